/* The FP32 LSTMs that killline bench lstm measures the cpu backend against: same weights, same inputs,
 * stateful.
 *
 * Created and freed in cold code; a step allocates nothing of ours. One caller at a time. The two that are
 * built in are compiled with -O3 -ffast-math -march=native: what the building machine does best. */
#ifndef BENCH_LSTM_PEER_H
#define BENCH_LSTM_PEER_H

#include <stdint.h>

#include "model.h"

struct bench_lstm_peer;

struct bench_lstm_peer_ops {
    const char *name;
    /* One step: x[n_in], logits[n_class]; the state moves on. Returns the argmax, the lowest class on a tie.
     */
    uint32_t (*step)(struct bench_lstm_peer *peer, const float *x, float *logits);
    void (*free)(struct bench_lstm_peer *peer);
};

/* Peers embed this as their first member. */
struct bench_lstm_peer {
    const struct bench_lstm_peer_ops *ops;
};

/* Instructions that a file was compiled for, which the running machine may not have. */
enum { BENCH_LSTM_ISA_AVX2 = 1, BENCH_LSTM_ISA_AVX512 = 2 };

#if defined(__AVX512F__)
#define BENCH_LSTM_ISA (BENCH_LSTM_ISA_AVX2 | BENCH_LSTM_ISA_AVX512)
#elif defined(__AVX2__)
#define BENCH_LSTM_ISA BENCH_LSTM_ISA_AVX2
#else
#define BENCH_LSTM_ISA 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* State zero; weights are copied. NULL: out of memory. Legal only where bench_lstm_*_isa are all there. */
struct bench_lstm_peer *bench_lstm_plain_create(const struct model_weights *weights);
struct bench_lstm_peer *bench_lstm_eigen_create(const struct model_weights *weights);

/* BENCH_LSTM_ISA of the two files, and what compiled the first one: a figure of it says much of its compiler.
 */
extern const unsigned bench_lstm_plain_isa, bench_lstm_eigen_isa;
extern const char bench_lstm_plain_compiler[];

#ifdef __cplusplus
}
#endif

#endif
