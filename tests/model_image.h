/* Test helper: random valid kernel images of any shape, from a seed. Header only.
 *
 * Weights are about as large as a trained network's, U(+-1/sqrt(n)) of a layer's larger side on the 2^-13
 * grid, so that outputs move with the input; class decisions mean nothing. Production images come from
 * model_quantise(). */
#ifndef MODEL_IMAGE_H
#define MODEL_IMAGE_H

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hls/kl_abi.h"

struct model_image_shape {
    uint16_t n_in, n_layer, n_class;
    uint16_t n_hidden[KL_N_LAYER_MAX];
};

/* splitmix64. */
static inline uint64_t model_image_random_u64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in -limit .. limit. */
static inline int32_t model_image_random(uint64_t *state, int32_t limit)
{
    return (int32_t)(model_image_random_u64(state) % (2 * (uint64_t)limit + 1)) - limit;
}

/* binary16 bits of steps * 2^-frac, the low bits beyond its 11 significant ones cut off. frac <= 24. */
static inline uint16_t model_image_half(int32_t steps, int frac)
{
    uint32_t magnitude = (uint32_t)abs(steps);
    int exponent = 25 - frac; /* biased exponent of a significand whose unit is one step */
    if (magnitude == 0)
        return 0;
    for (; magnitude >= 0x800; magnitude >>= 1)
        exponent++;
    for (; magnitude < 0x400 && exponent > 1; magnitude <<= 1)
        exponent--;
    assert(exponent >= 1 && exponent < 31);
    const uint32_t bits = magnitude < 0x400 ? magnitude : (uint32_t)exponent << 10 | (magnitude & 0x3ffu);
    return (uint16_t)(steps < 0 ? bits | 0x8000u : bits);
}

/* A random feature value on the kernel's input grid: uniform in +-2. */
static inline uint16_t model_image_random_x(uint64_t *state)
{
    return model_image_half(model_image_random(state, 2 << KL_X_FRAC), KL_X_FRAC);
}

/* Makes the hash right again after an edit. */
static inline void model_image_seal(struct kl_image_header *image)
{
    image->image_hash = kl_image_hash(image, image->size_bytes);
}

static inline size_t model_image_padded(size_t size_bytes)
{
    return (size_bytes + 7) & ~(size_t)7;
}

/* Byte offsets of layer l's arrays, and of the head's; the layout stands in kl_abi.h. */
struct model_image_layout {
    size_t w_x_frac, w_h_frac, bias, w_x, w_h;
    size_t end;
};

static inline struct model_image_layout model_image_layer(const struct kl_image_header *image, uint32_t layer)
{
    struct model_image_layout at = {.end = sizeof *image};
    for (uint32_t l = 0; l <= layer; l++) {
        const size_t hidden = image->n_hidden[l], n_row = KL_N_GATE * hidden;
        const size_t n_operand = l == 0 ? image->n_in : image->n_hidden[l - 1];
        at.w_x_frac = at.end;
        at.w_h_frac = at.w_x_frac + model_image_padded(n_row);
        at.bias = at.w_h_frac + model_image_padded(n_row);
        at.w_x = at.bias + model_image_padded(4 * n_row);
        at.w_h = at.w_x + model_image_padded(2 * n_row * n_operand);
        at.end = at.w_h + model_image_padded(2 * n_row * hidden);
    }
    return at;
}

static inline size_t model_image_head_bias(const struct kl_image_header *image)
{
    return model_image_layer(image, image->n_layer - 1u).end;
}

static inline size_t model_image_head_w(const struct kl_image_header *image)
{
    return model_image_head_bias(image) + 8u * image->n_class;
}

/* Size in bytes that the shape in a header asks for. */
static inline size_t model_image_size(const struct kl_image_header *image)
{
    return model_image_head_w(image) +
           model_image_padded(2 * (size_t)image->n_class * image->n_hidden[image->n_layer - 1]);
}

/* A valid image; malloc'd, image->size_bytes bytes, the caller frees it. NULL: out of memory. */
static inline struct kl_image_header *model_image_new(const struct model_image_shape *shape, uint64_t seed)
{
    enum { FRAC = 13 };
    struct kl_image_header header = {.magic = KL_IMAGE_MAGIC,
                                     .abi_version = KL_ABI_VERSION,
                                     .n_layer = shape->n_layer,
                                     .n_in = shape->n_in,
                                     .n_class = shape->n_class,
                                     .head_frac = FRAC};
    for (uint32_t l = 0; l < shape->n_layer; l++)
        header.n_hidden[l] = shape->n_hidden[l];
    const size_t last = shape->n_hidden[shape->n_layer - 1];
    header.size_bytes = (uint32_t)model_image_size(&header);

    uint8_t *byte = (uint8_t *)calloc(1, header.size_bytes);
    if (!byte)
        return NULL;
    struct kl_image_header *image = (struct kl_image_header *)(void *)byte;
    *image = header;
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        const struct model_image_layout at = model_image_layer(image, l);
        const size_t hidden = shape->n_hidden[l], n_row = KL_N_GATE * hidden;
        const size_t n_operand = l == 0 ? shape->n_in : shape->n_hidden[l - 1];
        /* 64 such weights stay within a block's bound: 64 * 2^13 / 8 * 32752 < 2^31. */
        const int32_t limit =
            (int32_t)((1 << FRAC) / sqrt((double)(hidden > n_operand ? hidden : n_operand)));
        memset(byte + at.w_x_frac, FRAC, n_row);
        memset(byte + at.w_h_frac, FRAC, n_row);
        int32_t *bias = (int32_t *)(void *)(byte + at.bias);
        for (size_t r = 0; r < n_row; r++)
            bias[r] = model_image_random(&seed, 1 << (KL_Z_FRAC - 2));
        uint16_t *w_x = (uint16_t *)(void *)(byte + at.w_x);
        for (size_t k = 0; k < n_row * n_operand; k++)
            w_x[k] = model_image_half(model_image_random(&seed, limit), FRAC);
        uint16_t *w_h = (uint16_t *)(void *)(byte + at.w_h);
        for (size_t k = 0; k < n_row * hidden; k++)
            w_h[k] = model_image_half(model_image_random(&seed, limit), FRAC);
    }
    uint16_t *head_w = (uint16_t *)(void *)(byte + model_image_head_w(image));
    for (size_t k = 0; k < shape->n_class * last; k++)
        head_w[k] = model_image_half(model_image_random(&seed, 1 << FRAC), FRAC);
    model_image_seal(image);
    return image;
}

#endif
