/* Products and heads of a vector variant, from its primitives. Included once by each of accel_cpu_*.c, which
 * defines before:
 *
 *   vec                             LANES int32
 *   v_load(p), v_store(p, v), v_add(a, b), v_sra(a, shifts)
 *   v_pair(p)                       the two int16 at p in every lane
 *   v_dot(sum, w, pair)             sum + w[0] * pair[0] + w[1] * pair[1], by lane
 *   v_head(w, h, n)                 int64 sum of n products, n a multiple of 32
 *   cell(n_sub, tanh, z, c, h)      KL_N_GATE * n_sub vectors of gates to c and h of a tile, aligned
 *   BATCH_16BIT                     streams whose sums, four vectors each, fit the registers
 *   HAS_8BIT                        if there are v_quad(p), v_dot_8bit(sum, w, quad), v_shift_left_8(v): four
 *                                   operands, uint8 times int8
 *
 * Every function is forced inline with n_sub, and what a product begins from, as constants: sums live in
 * registers. */
#ifndef ACCEL_CPU_MATRIX_H
#define ACCEL_CPU_MATRIX_H

#include <string.h>

#include "accel_cpu_kernel.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    VEC_BYTES = 4 * LANES,
    PAIRS = KL_BLOCK / 2, /* of a whole block */
    QUADS = KL_BLOCK / 4,
    VECS_MAX = 2 * KL_N_GATE,
};

/* An operand's halves, for 8-bit weights. */
struct bytes {
    _Alignas(CPU_LINE) uint8_t high[CPU_UNITS_MAX], low[CPU_UNITS_MAX];
};

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Weights that come from beyond L2: the processor's own prefetcher stops at every 4 KiB, and asking ahead
 * takes a seventh off a step and its prepare. Within L2 it costs a few per cent (both measured on Zen 5). */
ALWAYS void ask_ahead(const int is_far, const uint8_t *w, int n_byte)
{
    enum { AHEAD_BYTES = 4096 };
    if (is_far && n_byte % CPU_LINE == 0)
        __builtin_prefetch(w + n_byte + AHEAD_BYTES);
}

/* One block of one tile, 16-bit weights. Returns the end of its weights. */
ALWAYS const uint8_t *block_16bit(const int is_far, const int n_vec, vec *restrict sum, const uint8_t *w,
                                  const int16_t *v, uint32_t n_pair)
{
#pragma GCC unroll 1
    for (uint32_t p = 0; p < n_pair; p++) {
        const vec pair = v_pair(v + 2 * p);
#pragma GCC unroll 8
        for (int i = 0; i < n_vec; i++) {
            ask_ahead(is_far, w, i * VEC_BYTES);
            sum[i] = v_dot(sum[i], v_load(w + i * VEC_BYTES), pair);
        }
        w += n_vec * VEC_BYTES;
    }
    return w;
}

/* z += the tile's product. Returns the end of the tile. at: half. */
ALWAYS const uint8_t *tile_16bit(const int is_far, const int n_vec, vec *restrict z, const uint8_t *at,
                                 const int16_t *v, uint32_t n_operand)
{
    const uint8_t *half = at, *shift = at + n_vec * VEC_BYTES;
    at = shift + n_vec * VEC_BYTES;
    for (uint32_t left = (n_operand + 1) / 2; left;) {
        const uint32_t n_pair = min_u32(left, PAIRS);
        vec sum[VECS_MAX];
#pragma GCC unroll 8
        for (int i = 0; i < n_vec; i++)
            sum[i] = v_load(half + i * VEC_BYTES);
        at = block_16bit(is_far, n_vec, sum, at, v, n_pair);
#pragma GCC unroll 8
        for (int i = 0; i < n_vec; i++)
            z[i] = v_add(z[i], v_sra(sum[i], v_load(shift + i * VEC_BYTES)));
        v += KL_BLOCK;
        left -= n_pair;
    }
    return at;
}

#ifdef HAS_8BIT
ALWAYS const uint8_t *tile_8bit(const int n_vec, vec *restrict z, const uint8_t *at, const struct bytes *v,
                                uint32_t n_operand)
{
    const uint8_t *half = at, *shift = at + n_vec * VEC_BYTES;
    const uint8_t *v_high = v->high, *v_low = v->low;
    at = shift + n_vec * VEC_BYTES;
    for (uint32_t left = (n_operand + 3) / 4; left;) {
        const uint32_t n_quad = min_u32(left, QUADS);
        vec high[VECS_MAX], low[VECS_MAX];
#pragma GCC unroll 8
        for (int i = 0; i < n_vec; i++) {
            high[i] = v_load(at + i * VEC_BYTES);
            low[i] = v_load(half + i * VEC_BYTES);
        }
        at += n_vec * VEC_BYTES;
#pragma GCC unroll 1
        for (uint32_t q = 0; q < n_quad; q++) {
            const vec quad_high = v_quad(v_high + 4 * q), quad_low = v_quad(v_low + 4 * q);
#pragma GCC unroll 8
            for (int i = 0; i < n_vec; i++) {
                const vec w = v_load(at + i * VEC_BYTES);
                high[i] = v_dot_8bit(high[i], w, quad_high);
                low[i] = v_dot_8bit(low[i], w, quad_low);
            }
            at += n_vec * VEC_BYTES;
        }
#pragma GCC unroll 8
        for (int i = 0; i < n_vec; i++) {
            const vec sum = v_add(v_shift_left_8(high[i]), low[i]);
            z[i] = v_add(z[i], v_sra(sum, v_load(shift + i * VEC_BYTES)));
        }
        v_high += KL_BLOCK;
        v_low += KL_BLOCK;
        left -= n_quad;
    }
    return at;
}

/* n: filled up to a whole line with zeros. */
static void split_bytes(const int16_t *v, uint32_t n, struct bytes *bytes)
{
    for (uint32_t i = 0; i < (n + 31) / 32 * 32; i++) {
        bytes->high[i] = (uint8_t)((v[i] >> 8) + 128);
        bytes->low[i] = (uint8_t)v[i];
    }
}
#endif

/* z += product, for the tile at `at` behind a bias. */
ALWAYS const uint8_t *tile_product(const int n_vec, vec *restrict z, const struct cpu_product *product,
                                   const uint8_t *at, const int16_t *v, const struct bytes *v_bytes)
{
#ifdef HAS_8BIT
    if (product->is_8bit)
        return tile_8bit(n_vec, z, at, v_bytes, product->n_operand);
#endif
    (void)v_bytes;
    if (product->is_far)
        return tile_16bit(1, n_vec, z, at, v, product->n_operand);
    return tile_16bit(0, n_vec, z, at, v, product->n_operand);
}

ALWAYS const uint8_t *tile_prepare(const int n_sub, const struct cpu_product *product, const uint8_t *at,
                                   const int16_t *h, const struct bytes *h_bytes, int32_t *z_out)
{
    const int n_vec = KL_N_GATE * n_sub;
    vec z[VECS_MAX];
#pragma GCC unroll 8
    for (int i = 0; i < n_vec; i++)
        z[i] = v_load(at + i * VEC_BYTES);
    at = tile_product(n_vec, z, product, at + n_vec * VEC_BYTES, h, h_bytes);
#pragma GCC unroll 8
    for (int i = 0; i < n_vec; i++)
        v_store(z_out + i * LANES, z[i]);
    return at;
}

ALWAYS const uint8_t *tile_step(const int n_sub, const struct cpu_tanh *tanh,
                                const struct cpu_product *product, const uint8_t *at, const int16_t *x,
                                const struct bytes *x_bytes, const int32_t *z_in, int32_t *c, int16_t *h)
{
    const int n_vec = KL_N_GATE * n_sub;
    vec z[VECS_MAX];
#pragma GCC unroll 8
    for (int i = 0; i < n_vec; i++)
        z[i] = v_load(z_in + i * LANES);
    at = tile_product(n_vec, z, product, at, x, x_bytes);
    cell(n_sub, tanh, z, c, h);
    return at;
}

static void prepare_layer(const struct cpu_layer *layer, uint8_t *state)
{
    const int16_t *h = (const int16_t *)(state + layer->h_at);
    int32_t *z = (int32_t *)(state + layer->z_at);
    const uint8_t *at = layer->h.tiles;
    struct bytes bytes;
#ifdef HAS_8BIT
    if (layer->h.is_8bit)
        split_bytes(h, layer->h.n_operand, &bytes);
#endif
    for (uint32_t tile = 0; tile < layer->n_wide; tile++, z += 2 * KL_N_GATE * LANES)
        at = tile_prepare(2, &layer->h, at, h, &bytes, z);
    if (layer->n_narrow)
        tile_prepare(1, &layer->h, at, h, &bytes, z);
}

static void variant_prepare(const struct cpu_model *model, uint8_t *state)
{
    for (uint32_t l = 0; l < model->n_layer; l++)
        prepare_layer(&model->layer[l], state);
}

static void step_layer(const struct cpu_layer *layer, const struct cpu_tanh *tanh, uint8_t *state,
                       const uint8_t *prepared, const int16_t *x)
{
    int16_t *h = (int16_t *)(state + layer->h_at);
    int32_t *c = (int32_t *)(state + layer->c_at);
    const int32_t *z = (const int32_t *)(prepared + layer->z_at);
    const uint8_t *at = layer->x.tiles;
    struct bytes bytes;
#ifdef HAS_8BIT
    if (layer->x.is_8bit)
        split_bytes(x, layer->x.n_operand, &bytes);
#endif
    for (uint32_t tile = 0; tile < layer->n_wide; tile++) {
        at = tile_step(2, tanh, &layer->x, at, x, &bytes, z, c, h);
        z += 2 * KL_N_GATE * LANES;
        c += 2 * LANES;
        h += 2 * LANES;
    }
    if (layer->n_narrow)
        tile_step(1, tanh, &layer->x, at, x, &bytes, z, c, h);
}

static uint32_t head(const struct cpu_model *model, const int16_t *h, int64_t *logits)
{
    uint32_t best = 0;
    int64_t largest = INT64_MIN;
    for (uint32_t k = 0; k < model->n_class; k++) {
        const int64_t logit = model->head_bias[k] +
                              v_head(model->head_w + (size_t)k * model->head_columns, h, model->head_columns);
        logits[k] = logit;
        best = logit > largest ? k : best;
        largest = logit > largest ? logit : largest;
    }
    return best;
}

static uint32_t variant_step(const struct cpu_model *model, uint8_t *state, const uint8_t *prepared,
                             const struct cpu_x *x, int64_t *logits)
{
    const int16_t *operands = x->v;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        step_layer(&model->layer[l], model->tanh, state, prepared, operands);
        operands = (const int16_t *)(state + model->layer[l].h_at);
    }
    return head(model, operands, logits);
}

/* ---- n streams in one pass over the weights: one sub of a tile at a time, four sums a stream ---- */

/* z[s] += the sub's product for n streams; z and v by stream. n is a constant. */
ALWAYS void sub_16bit(const int n, const int n_vec, const uint8_t *at, const int16_t *const *v,
                      uint32_t n_operand, int32_t *const *z)
{
    const int stride = n_vec / KL_N_GATE * VEC_BYTES; /* from gate to gate */
    const uint8_t *half = at, *shift = at + n_vec * VEC_BYTES;
    at = shift + n_vec * VEC_BYTES;
    for (uint32_t left = (n_operand + 1) / 2, first = 0; left; first += KL_BLOCK) {
        const uint32_t n_pair = min_u32(left, PAIRS);
        vec sum[CPU_BATCH_MAX][KL_N_GATE];
#pragma GCC unroll 4
        for (int s = 0; s < n; s++)
#pragma GCC unroll 4
            for (int g = 0; g < KL_N_GATE; g++)
                sum[s][g] = v_load(half + g * stride);
        for (uint32_t p = 0; p < n_pair; p++) {
            vec w[KL_N_GATE];
#pragma GCC unroll 4
            for (int g = 0; g < KL_N_GATE; g++)
                w[g] = v_load(at + g * stride);
#pragma GCC unroll 4
            for (int s = 0; s < n; s++) {
                const vec pair = v_pair(v[s] + first + 2 * p);
#pragma GCC unroll 4
                for (int g = 0; g < KL_N_GATE; g++)
                    sum[s][g] = v_dot(sum[s][g], w[g], pair);
            }
            at += n_vec * VEC_BYTES;
        }
#pragma GCC unroll 4
        for (int s = 0; s < n; s++)
#pragma GCC unroll 4
            for (int g = 0; g < KL_N_GATE; g++) {
                int32_t *z_g = z[s] + g * stride / 4;
                v_store(z_g, v_add(v_load(z_g), v_sra(sum[s][g], v_load(shift + g * stride))));
            }
        left -= n_pair;
    }
}

#ifdef HAS_8BIT
ALWAYS void sub_8bit(const int n, const int n_vec, const uint8_t *at, const struct bytes *v,
                     uint32_t n_operand, int32_t *const *z)
{
    const int stride = n_vec / KL_N_GATE * VEC_BYTES;
    const uint8_t *half = at, *shift = at + n_vec * VEC_BYTES;
    at = shift + n_vec * VEC_BYTES;
    for (uint32_t left = (n_operand + 3) / 4, first = 0; left; first += KL_BLOCK) {
        const uint32_t n_quad = min_u32(left, QUADS);
        vec high[2][KL_N_GATE], low[2][KL_N_GATE];
#pragma GCC unroll 2
        for (int s = 0; s < n; s++)
#pragma GCC unroll 4
            for (int g = 0; g < KL_N_GATE; g++) {
                high[s][g] = v_load(at + g * stride);
                low[s][g] = v_load(half + g * stride);
            }
        at += n_vec * VEC_BYTES;
        for (uint32_t q = 0; q < n_quad; q++) {
            vec w[KL_N_GATE];
#pragma GCC unroll 4
            for (int g = 0; g < KL_N_GATE; g++)
                w[g] = v_load(at + g * stride);
#pragma GCC unroll 2
            for (int s = 0; s < n; s++) {
                const vec quad_high = v_quad(v[s].high + first + 4 * q);
                const vec quad_low = v_quad(v[s].low + first + 4 * q);
#pragma GCC unroll 4
                for (int g = 0; g < KL_N_GATE; g++) {
                    high[s][g] = v_dot_8bit(high[s][g], w[g], quad_high);
                    low[s][g] = v_dot_8bit(low[s][g], w[g], quad_low);
                }
            }
            at += n_vec * VEC_BYTES;
        }
#pragma GCC unroll 2
        for (int s = 0; s < n; s++)
#pragma GCC unroll 4
            for (int g = 0; g < KL_N_GATE; g++) {
                int32_t *z_g = z[s] + g * stride / 4;
                const vec sum = v_add(v_shift_left_8(high[s][g]), low[s][g]);
                v_store(z_g, v_add(v_load(z_g), v_sra(sum, v_load(shift + g * stride))));
            }
        left -= n_quad;
    }
}
#endif

/* z[s] += the tile's product. at: half. Streams two by two; registers are enough for four with 16-bit weights
 * where there are 32 of them. */
static void tile_batch(const int n_vec, const struct cpu_product *product, const uint8_t *at,
                       const int16_t *const *v, const struct bytes *v_bytes, int32_t *const *z, uint32_t n)
{
    for (int sub = 0; sub < n_vec / KL_N_GATE; sub++, at += VEC_BYTES) {
        int32_t *z_sub[CPU_BATCH_MAX];
        for (uint32_t s = 0; s < n; s++)
            z_sub[s] = z[s] + sub * LANES;
#ifdef HAS_8BIT
        if (product->is_8bit) {
            for (uint32_t s = 0; s < n; s += 2) {
                if (n - s >= 2)
                    sub_8bit(2, n_vec, at, v_bytes + s, product->n_operand, z_sub + s);
                else
                    sub_8bit(1, n_vec, at, v_bytes + s, product->n_operand, z_sub + s);
            }
            continue;
        }
#endif
        (void)v_bytes;
        for (uint32_t s = 0; s < n;) {
            if (n - s >= BATCH_16BIT) {
                sub_16bit(BATCH_16BIT, n_vec, at, v + s, product->n_operand, z_sub + s);
                s += BATCH_16BIT;
            } else if (n - s >= 2) {
                sub_16bit(2, n_vec, at, v + s, product->n_operand, z_sub + s);
                s += 2;
            } else {
                sub_16bit(1, n_vec, at, v + s, product->n_operand, z_sub + s);
                s++;
            }
        }
    }
}

/* The product of a layer for n streams, onto their z; of h: with its bias first. Behind a tile of x the
 * cells. */
ALWAYS void layer_batch(const int of_h, const struct cpu_layer *layer, const struct cpu_tanh *tanh,
                        uint8_t *const *states, const int16_t *const *v, uint32_t n)
{
    const struct cpu_product *product = of_h ? &layer->h : &layer->x;
    const uint8_t *at = product->tiles;
    struct bytes bytes[CPU_BATCH_MAX];
#ifdef HAS_8BIT
    for (uint32_t s = 0; s < n && product->is_8bit; s++)
        split_bytes(v[s], product->n_operand, &bytes[s]);
#endif
    for (uint32_t tile = 0; tile < layer->n_wide + layer->n_narrow; tile++) {
        const int n_sub = tile < layer->n_wide ? 2 : 1, n_vec = KL_N_GATE * n_sub;
        int32_t *z[CPU_BATCH_MAX];
        for (uint32_t s = 0; s < n; s++) {
            z[s] = (int32_t *)(states[s] + layer->z_at) + tile * 2 * KL_N_GATE * LANES;
            if (of_h)
                memcpy(z[s], at, (size_t)n_vec * VEC_BYTES);
        }
        tile_batch(n_vec, product, at + (of_h ? n_vec * VEC_BYTES : 0), v, bytes, z, n);
        for (uint32_t s = 0; s < n && !of_h; s++) {
            int32_t *c = (int32_t *)(states[s] + layer->c_at) + tile * 2 * LANES;
            int16_t *h = (int16_t *)(states[s] + layer->h_at) + tile * 2 * LANES;
            vec sums[VECS_MAX];
            for (int i = 0; i < n_vec; i++)
                sums[i] = v_load(z[s] + i * LANES);
            if (n_sub == 2)
                cell(2, tanh, sums, c, h);
            else
                cell(1, tanh, sums, c, h);
        }
        at += product->tile_bytes[n_sub - 1];
    }
}

static void variant_prepare_batch(const struct cpu_model *model, uint8_t *const *states, uint32_t n)
{
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const int16_t *h[CPU_BATCH_MAX];
        for (uint32_t s = 0; s < n; s++)
            h[s] = (const int16_t *)(states[s] + model->layer[l].h_at);
        layer_batch(1, &model->layer[l], model->tanh, states, h, n);
    }
}

static void variant_step_batch(const struct cpu_model *model, uint8_t *const *states, const struct cpu_x *x,
                               uint32_t n, int64_t (*logits)[KL_N_CLASS_MAX], uint32_t *classes)
{
    const int16_t *operands[CPU_BATCH_MAX];
    for (uint32_t s = 0; s < n; s++)
        operands[s] = x[s].v;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        layer_batch(0, &model->layer[l], model->tanh, states, operands, n);
        for (uint32_t s = 0; s < n; s++)
            operands[s] = (const int16_t *)(states[s] + model->layer[l].h_at);
    }
    for (uint32_t s = 0; s < n; s++)
        classes[s] = head(model, operands[s], logits[s]);
}

#endif
