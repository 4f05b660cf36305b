/* An LSTM in plain C, as a careful programmer would leave it to the compiler: rows in tiles whose sums stay
 * in registers, weights in the order of their use, every loop without a branch. Compiled with flags of its
 * own (CMakeLists.txt). */
#include <stdlib.h>
#include <string.h>

#include "bench_lstm_peer.h"

enum {
    TILE = 64, /* rows: of 32, 64 and 128 the fastest at all four models, gcc 12, AVX-512 */
    LINE_BYTES = 64,
    N_ROW_MAX = KL_N_GATE * KL_N_HIDDEN_MAX + TILE,
};

struct layer {
    uint32_t n_in, n_hidden, n_tile;
    float *w;    /* [tile][n_in + n_hidden][TILE]; rows gate-major i, f, g, o, filled up with zeros */
    float *bias; /* [tile][TILE] */
    float *c;    /* [n_hidden] */
    float *xh;   /* [n_in + n_hidden]: this step's input, then the last step's h */
};

struct plain {
    struct bench_lstm_peer base;
    uint32_t n_layer, n_class;
    struct layer layer[KL_N_LAYER_MAX];
    float *head_w, *head_bias; /* [n_class][n_hidden of the last layer], [n_class] */
    void *memory;
};

static size_t whole_lines(size_t n_float)
{
    return (n_float * sizeof(float) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES / sizeof(float);
}

/* Places the arrays one behind the other, from at on; with at NULL it only counts. Returns the floats. */
static size_t place(struct plain *peer, const struct model_weights *weights, float *at)
{
    size_t n = 0;
    for (uint32_t l = 0; l < weights->n_layer; l++) {
        struct layer *layer = &peer->layer[l];
        layer->n_in = l ? weights->n_hidden[l - 1] : weights->n_in;
        layer->n_hidden = weights->n_hidden[l];
        layer->n_tile = (KL_N_GATE * layer->n_hidden + TILE - 1) / TILE;
        const size_t n_column = layer->n_in + layer->n_hidden, n_row = (size_t)layer->n_tile * TILE;
        const struct {
            float **array;
            size_t n;
        } arrays[] = {{&layer->w, n_row * n_column},
                      {&layer->bias, n_row},
                      {&layer->c, layer->n_hidden},
                      {&layer->xh, n_column}};
        for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
            if (at)
                *arrays[i].array = at + n;
            n += whole_lines(arrays[i].n);
        }
    }
    if (at) {
        peer->head_w = at + n;
        peer->head_bias =
            peer->head_w + whole_lines((size_t)weights->n_class * weights->n_hidden[weights->n_layer - 1]);
    }
    return n + whole_lines((size_t)weights->n_class * weights->n_hidden[weights->n_layer - 1]) +
           whole_lines(weights->n_class);
}

static void copy_layer(struct layer *layer, const struct model_weights *weights, uint32_t l)
{
    const uint32_t n_in = layer->n_in, n_hidden = layer->n_hidden, n_column = n_in + n_hidden;
    for (uint32_t row = 0; row < KL_N_GATE * n_hidden; row++) {
        float *w = layer->w + (size_t)(row / TILE) * n_column * TILE + row % TILE;
        layer->bias[row] = weights->bias[l][row];
        for (uint32_t k = 0; k < n_in; k++)
            w[(size_t)k * TILE] = weights->w_x[l][(size_t)row * n_in + k];
        for (uint32_t k = 0; k < n_hidden; k++)
            w[(size_t)(n_in + k) * TILE] = weights->w_h[l][(size_t)row * n_hidden + k];
    }
}

/* z = bias + w * xh. */
static void matrix_vector(const struct layer *layer, float *restrict z)
{
    const uint32_t n_column = layer->n_in + layer->n_hidden;
    const float *restrict w = layer->w, *restrict xh = layer->xh, *restrict bias = layer->bias;
    for (uint32_t t = 0; t < layer->n_tile; t++, bias += TILE, z += TILE) {
        float sum[TILE];
        for (int r = 0; r < TILE; r++)
            sum[r] = bias[r];
        for (uint32_t k = 0; k < n_column; k++, w += TILE)
            for (int r = 0; r < TILE; r++)
                sum[r] += w[r] * xh[k];
        for (int r = 0; r < TILE; r++)
            z[r] = sum[r];
    }
}

/* e^x for |x| <= 80, relative error below 2e-7: 2^n by the exponent's bits, the rest (|r| <= ln 2 / 2) by
 * Cephes' polynomial (expf.c). Called from loops, which gcc and clang vectorise with it. */
static inline float exponential(float x)
{
    const float n = __builtin_rintf(x * 1.44269504f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const float p =
        ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
         1.6666665459e-1f) *
            r +
        5.0000001201e-1f;
    const int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return (p * r * r + r + 1) * power;
}

static inline float clamp(float x, float limit)
{
    const float low = x < -limit ? -limit : x;
    return low > limit ? limit : low;
}

static inline float sigmoid(float x)
{
    return 1 / (1 + exponential(-clamp(x, 30)));
}

static inline float tangent_h(float x)
{
    return 1 - 2 / (1 + exponential(2 * clamp(x, 15)));
}

static void cell(const struct layer *layer, const float *restrict z, float *restrict h)
{
    const uint32_t n = layer->n_hidden;
    const float *restrict z_f = z + n, *restrict z_g = z + 2 * n, *restrict z_o = z + 3 * n;
    float *restrict c = layer->c;
    for (uint32_t u = 0; u < n; u++) {
        c[u] = sigmoid(z_f[u]) * c[u] + sigmoid(z[u]) * tangent_h(z_g[u]);
        h[u] = sigmoid(z_o[u]) * tangent_h(c[u]);
    }
}

static uint32_t plain_step(struct bench_lstm_peer *peer, const float *x, float *logits)
{
    struct plain *plain = (struct plain *)(void *)peer;
    float z[N_ROW_MAX] __attribute__((aligned(LINE_BYTES)));
    for (uint32_t l = 0; l < plain->n_layer; l++) {
        struct layer *layer = &plain->layer[l];
        float *h = layer->xh + layer->n_in;
        memcpy(layer->xh, x, layer->n_in * sizeof(float));
        matrix_vector(layer, z);
        cell(layer, z, h);
        x = h;
    }
    const uint32_t n = plain->layer[plain->n_layer - 1].n_hidden;
    const float *restrict w = plain->head_w;
    uint32_t best = 0;
    for (uint32_t k = 0; k < plain->n_class; k++, w += n) {
        float sum = 0;
        for (uint32_t u = 0; u < n; u++)
            sum += w[u] * x[u];
        logits[k] = plain->head_bias[k] + sum;
        if (logits[k] > logits[best])
            best = k;
    }
    return best;
}

static void plain_free(struct bench_lstm_peer *peer)
{
    struct plain *plain = (struct plain *)(void *)peer;
    free(plain->memory);
    free(plain);
}

struct bench_lstm_peer *bench_lstm_plain_create(const struct model_weights *weights)
{
    static const struct bench_lstm_peer_ops ops = {.name = "plain C", .step = plain_step, .free = plain_free};
    struct plain *plain = calloc(1, sizeof(*plain));
    if (!plain)
        return NULL;
    plain->base.ops = &ops;
    const size_t size_bytes = place(plain, weights, NULL) * sizeof(float);
    plain->memory = aligned_alloc(LINE_BYTES, size_bytes);
    if (!plain->memory) {
        free(plain);
        return NULL;
    }
    memset(plain->memory, 0, size_bytes);
    place(plain, weights, plain->memory);
    plain->n_layer = weights->n_layer;
    plain->n_class = weights->n_class;
    for (uint32_t l = 0; l < weights->n_layer; l++)
        copy_layer(&plain->layer[l], weights, l);
    const uint32_t n_hidden = weights->n_hidden[weights->n_layer - 1];
    memcpy(plain->head_w, weights->head_w, (size_t)weights->n_class * n_hidden * sizeof(float));
    memcpy(plain->head_bias, weights->head_bias, weights->n_class * sizeof(float));
    return &plain->base;
}

const unsigned bench_lstm_plain_isa = BENCH_LSTM_ISA;
#ifdef __clang__
const char bench_lstm_plain_compiler[] = __VERSION__; /* has the name in it */
#else
const char bench_lstm_plain_compiler[] = "gcc " __VERSION__;
#endif
