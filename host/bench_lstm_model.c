#include "bench_lstm_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fp16.h"
#include "model_reference.h"

enum { N_CENTRE = 300 }; /* steps whose mean logits centre the head */

const struct bench_lstm_shape bench_lstm_shapes[BENCH_LSTM_N_MODEL] = {
    {"S", 16, 1, 32, 1.3, 1.1},
    {"M", 32, 2, 64, 3.0, 1.8},
    {"L", 64, 2, 128, 4.0, 1.9},
    {"XL", 128, 3, 256, 5.0, 2.2},
};

/* splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double random_unit(uint64_t *state)
{
    return (double)(random_u64(state) >> 11) * 0x1p-53;
}

static float *uniform(size_t n, double limit, uint64_t *state)
{
    float *values = malloc(n * sizeof(*values));
    for (size_t i = 0; values && i < n; i++)
        values[i] = (float)((2 * random_unit(state) - 1) * limit);
    return values;
}

int bench_lstm_inputs_create(uint32_t n, uint32_t n_in, uint64_t seed, struct bench_lstm_inputs *out)
{
    const size_t count = (size_t)n * n_in;
    *out = (struct bench_lstm_inputs){.n = n,
                                      .n_in = n_in,
                                      .x = malloc(count * sizeof(*out->x)),
                                      .bits = malloc(count * sizeof(*out->bits))};
    if (!out->x || !out->bits) {
        bench_lstm_inputs_free(out);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        double sum = -6; /* of 12 uniform numbers: normal up to 6 standard deviations */
        for (int k = 0; k < 12; k++)
            sum += random_unit(&seed);
        out->bits[i] = fp16_from_double(sum, KL_X_FRAC, KL_X_ABS_MAX);
        out->x[i] = (float)fp16_to_double(out->bits[i]);
    }
    return 0;
}

void bench_lstm_inputs_free(struct bench_lstm_inputs *inputs)
{
    free(inputs->x);
    free(inputs->bits);
    *inputs = (struct bench_lstm_inputs){0};
}

static int centre_head(struct model_weights *weights, uint64_t seed)
{
    struct bench_lstm_inputs inputs;
    struct model_reference *reference = model_reference_create(weights, 1);
    if (!reference || bench_lstm_inputs_create(N_CENTRE, weights->n_in, seed, &inputs) != 0) {
        model_reference_free(reference);
        return -1;
    }
    double sum[KL_N_CLASS_MAX] = {0};
    for (uint32_t step = 0; step < N_CENTRE; step++) {
        double x[KL_N_IN_MAX], logits[KL_N_CLASS_MAX];
        for (uint32_t k = 0; k < weights->n_in; k++)
            x[k] = (double)bench_lstm_x(&inputs, step)[k];
        model_reference_step(reference, 0, x, logits);
        for (uint32_t c = 0; c < weights->n_class; c++)
            sum[c] += logits[c];
    }
    for (uint32_t c = 0; c < weights->n_class; c++)
        weights->head_bias[c] -= (float)(sum[c] / N_CENTRE);
    bench_lstm_inputs_free(&inputs);
    model_reference_free(reference);
    return 0;
}

int bench_lstm_weights(const struct bench_lstm_shape *shape, uint64_t seed, struct model_weights *out)
{
    const uint32_t n_hidden = shape->n_hidden, n_row = KL_N_GATE * n_hidden;
    const double limit = 1 / sqrt(n_hidden);
    int ok = 1;
    *out =
        (struct model_weights){.n_in = shape->n_in, .n_layer = shape->n_layer, .n_class = BENCH_LSTM_N_CLASS};
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        out->n_hidden[l] = n_hidden;
        out->w_x[l] = uniform((size_t)n_row * (l ? n_hidden : shape->n_in), limit, &seed);
        out->w_h[l] = uniform((size_t)n_row * n_hidden, limit, &seed);
        out->bias[l] = uniform(n_row, limit, &seed);
        float *second = uniform(n_row, limit, &seed); /* PyTorch adds two */
        ok &= out->w_x[l] && out->w_h[l] && out->bias[l] && second;
        for (uint32_t row = 0; ok && row < n_row; row++)
            out->bias[l][row] += second[row];
        free(second);
    }
    out->head_w = uniform((size_t)BENCH_LSTM_N_CLASS * n_hidden, limit, &seed);
    out->head_bias = uniform(BENCH_LSTM_N_CLASS, limit, &seed);
    if (!ok || !out->head_w || !out->head_bias || centre_head(out, random_u64(&seed)) != 0) {
        model_weights_free(out);
        return -1;
    }
    return 0;
}
