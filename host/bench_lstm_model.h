/* The models and inputs of killline bench lstm: fixed shapes, seeded random numbers, the same on every
 * machine. Cold code. */
#ifndef BENCH_LSTM_MODEL_H
#define BENCH_LSTM_MODEL_H

#include <stdint.h>

#include "model.h"

enum { BENCH_LSTM_N_MODEL = 4, BENCH_LSTM_N_CLASS = 3 };

struct bench_lstm_shape {
    const char *name;
    uint32_t n_in, n_layer, n_hidden;
    double target_critical, target_total; /* ratios to the better peer, at the median */
};
extern const struct bench_lstm_shape bench_lstm_shapes[BENCH_LSTM_N_MODEL];

/* Weights and biases uniform in +-1/sqrt(n_hidden), as torch.nn.LSTM starts; the head's biases such that no
 * class has a head start: with the raw ones the answer of a random net hardly ever changes, and counting
 * flips would show nothing. 0, or -1: out of memory. *out: model_weights_free. */
int bench_lstm_weights(const struct bench_lstm_shape *shape, uint64_t seed, struct model_weights *out);

/* Inputs on the kernel's grid, so that every implementation reads exactly the same numbers. */
struct bench_lstm_inputs {
    uint32_t n, n_in;
    float *x;       /* [n][n_in] */
    uint16_t *bits; /* [n][n_in], binary16 */
};

/* Normal, mean 0, standard deviation 1. 0, or -1: out of memory. */
int bench_lstm_inputs_create(uint32_t n, uint32_t n_in, uint64_t seed, struct bench_lstm_inputs *out);
void bench_lstm_inputs_free(struct bench_lstm_inputs *inputs);

static inline const float *bench_lstm_x(const struct bench_lstm_inputs *inputs, uint32_t step)
{
    return inputs->x + (size_t)(step % inputs->n) * inputs->n_in;
}

static inline const uint16_t *bench_lstm_bits(const struct bench_lstm_inputs *inputs, uint32_t step)
{
    return inputs->bits + (size_t)(step % inputs->n) * inputs->n_in;
}

#endif
