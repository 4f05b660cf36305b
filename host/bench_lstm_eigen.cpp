/* The same LSTM with Eigen 3: per layer one noalias() matrix-vector product over [x, h] and Eigen's own
 * vectorised logistic and tanh. The one C++ file: Eigen has no C interface. */
#include "bench_lstm_peer.h"

#include <new>

#include <Eigen/Core>

namespace
{

struct layer {
    Eigen::MatrixXf w;    /* [4 * n_hidden][n_in + n_hidden], column-major; rows gate-major i, f, g, o */
    Eigen::VectorXf bias; /* [4 * n_hidden] */
    Eigen::VectorXf z;    /* [4 * n_hidden] */
    Eigen::VectorXf xh;   /* this step's input, then the last step's h */
    Eigen::ArrayXf c;     /* [n_hidden] */
    Eigen::Index n_in, n_hidden;
};

using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct eigen_peer : bench_lstm_peer {
    uint32_t n_layer;
    layer layers[KL_N_LAYER_MAX];
    row_major head_w;
    Eigen::VectorXf head_bias, logits;
};

void cell(layer &at)
{
    const Eigen::Index n = at.n_hidden;
    const auto z = at.z.array();
    at.c = z.segment(n, n).logistic() * at.c + z.segment(0, n).logistic() * z.segment(2 * n, n).tanh();
    at.xh.tail(n) = (z.segment(3 * n, n).logistic() * at.c.tanh()).matrix();
}

uint32_t eigen_step(bench_lstm_peer *base, const float *x, float *logits)
{
    auto *peer = static_cast<eigen_peer *>(base);
    for (uint32_t l = 0; l < peer->n_layer; l++) {
        layer &at = peer->layers[l];
        at.xh.head(at.n_in) = Eigen::Map<const Eigen::VectorXf>(x, at.n_in);
        at.z = at.bias;
        at.z.noalias() += at.w * at.xh;
        cell(at);
        x = at.xh.data() + at.n_in;
    }
    peer->logits = peer->head_bias;
    peer->logits.noalias() += peer->head_w * peer->layers[peer->n_layer - 1].xh.tail(peer->head_w.cols());
    uint32_t best = 0;
    for (uint32_t k = 0; k < peer->logits.size(); k++) {
        logits[k] = peer->logits[k];
        if (logits[k] > logits[best])
            best = k;
    }
    return best;
}

void eigen_free(bench_lstm_peer *base)
{
    delete static_cast<eigen_peer *>(base);
}

const bench_lstm_peer_ops ops = {"Eigen", eigen_step, eigen_free};

} // namespace

bench_lstm_peer *bench_lstm_eigen_create(const model_weights *weights)
{
    auto *peer = new (std::nothrow) eigen_peer;
    if (!peer)
        return nullptr;
    peer->ops = &ops;
    peer->n_layer = weights->n_layer;
    for (uint32_t l = 0; l < weights->n_layer; l++) {
        layer &at = peer->layers[l];
        at.n_in = l ? weights->n_hidden[l - 1] : weights->n_in;
        at.n_hidden = weights->n_hidden[l];
        const Eigen::Index n_row = KL_N_GATE * at.n_hidden;
        at.w.resize(n_row, at.n_in + at.n_hidden);
        at.w.leftCols(at.n_in) = Eigen::Map<const row_major>(weights->w_x[l], n_row, at.n_in);
        at.w.rightCols(at.n_hidden) = Eigen::Map<const row_major>(weights->w_h[l], n_row, at.n_hidden);
        at.bias = Eigen::Map<const Eigen::VectorXf>(weights->bias[l], n_row);
        at.z.setZero(n_row);
        at.xh.setZero(at.n_in + at.n_hidden);
        at.c.setZero(at.n_hidden);
    }
    const Eigen::Index n_class = weights->n_class, n_hidden = weights->n_hidden[weights->n_layer - 1];
    peer->head_w = Eigen::Map<const row_major>(weights->head_w, n_class, n_hidden);
    peer->head_bias = Eigen::Map<const Eigen::VectorXf>(weights->head_bias, n_class);
    peer->logits.setZero(n_class);
    return peer;
}

const unsigned bench_lstm_eigen_isa = BENCH_LSTM_ISA;
