/* Test helper: networks with random FP32 weights, from a seed. Header only. */
#ifndef MODEL_RANDOM_H
#define MODEL_RANDOM_H

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "host/model.h"

/* splitmix64, uniform in [-1, 1). */
static inline double model_random_uniform(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-52 - 1;
}

static inline float *model_random_array(size_t n, double limit, uint64_t *state)
{
    float *out = calloc(n, sizeof(*out));
    assert(out);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(limit * model_random_uniform(state));
    return out;
}

/* All weights and biases of a layer U(-1, 1) * gain / sqrt(hidden): gain 1 is PyTorch's start, 0 all zeros.
 * Free with model_weights_free. */
static inline struct model_weights model_random(uint32_t n_in, uint32_t n_layer, const uint32_t *n_hidden,
                                                uint32_t n_class, double gain, uint64_t seed)
{
    struct model_weights w = {.n_in = n_in, .n_layer = n_layer, .n_class = n_class};
    for (uint32_t l = 0; l < n_layer; l++) {
        uint32_t h = n_hidden[l], k = l ? n_hidden[l - 1] : n_in;
        double limit = gain / sqrt(h);
        w.n_hidden[l] = h;
        w.w_x[l] = model_random_array((size_t)4 * h * k, limit, &seed);
        w.w_h[l] = model_random_array((size_t)4 * h * h, limit, &seed);
        w.bias[l] = model_random_array((size_t)4 * h, limit, &seed);
    }
    uint32_t h = n_hidden[n_layer - 1];
    w.head_w = model_random_array((size_t)n_class * h, gain / sqrt(h), &seed);
    w.head_bias = model_random_array(n_class, gain / sqrt(h), &seed);
    return w;
}

#endif
