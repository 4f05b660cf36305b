/* AVX-512 (F, BW, DQ, VL, CD) parts of the two AVX-512 variants: 16 units a vector. Included by
 * accel_cpu_vnni.c and accel_cpu_bw.c, which define v_dot and look_up before cell. */
#ifndef ACCEL_CPU_AVX512_H
#define ACCEL_CPU_AVX512_H

#include <immintrin.h>

#include "accel_cpu_kernel.h"

enum { LANES = 16, BATCH_16BIT = 4 };
typedef __m512i vec;

static inline vec v_load(const void *p)
{
    return _mm512_load_si512(p);
}

static inline void v_store(void *p, vec v)
{
    _mm512_store_si512(p, v);
}

static inline vec v_add(vec a, vec b)
{
    return _mm512_add_epi32(a, b);
}

static inline vec v_sra(vec v, vec shifts)
{
    return _mm512_srav_epi32(v, shifts);
}

static inline int32_t load_i32(const void *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

static inline vec v_pair(const int16_t *p)
{
    return _mm512_set1_epi32(load_i32(p));
}

/* Two products fit an int32 (2 * 32767 * 32752); their sum over a row needs 64 bits. */
static inline int64_t v_head(const int16_t *w, const int16_t *h, uint32_t n)
{
    vec sum = _mm512_setzero_si512();
    for (uint32_t i = 0; i < n; i += 32) {
        const vec product = _mm512_madd_epi16(v_load(w + i), v_load(h + i));
        const vec odd = _mm512_srai_epi64(product, 32);
        const vec even = _mm512_srai_epi64(_mm512_slli_epi64(product, 32), 32);
        sum = _mm512_add_epi64(sum, _mm512_add_epi64(odd, even));
    }
    return _mm512_reduce_add_epi64(sum);
}

/* ---- T ----
 *
 * By words, in the order that packing two vectors of dwords gives: of every 128 bits the low half is the
 * first vector's, the high half the second's. T is odd but for two details: halves round up on both sides,
 * and +1 itself saturates. With m the segment of |z| and t in [0, 1) the place in it, z >= 0: T =
 * saturate(A(m) + round(D(m) * t)) z <  0: T = -A(m) + round(D(m) * (t - 1)), t counted from the left of z's
 * own segment. Every step of a chain takes 2 cycles or more on current cores, and most go to two ports of
 * four: few steps. */
struct words {
    vec segment, t; /* segment: saturates far beyond where T is flat; t: 2^-14 */
    __mmask32 negative;
};

/* frac: of the arguments. */
static inline __attribute__((always_inline)) struct words words_of(const int frac, vec first, vec second)
{
    const int segment_bits = frac - KL_Z_FRAC + CPU_T_SEGMENT_BITS;
    const vec t_bits = _mm512_set1_epi32((1 << segment_bits) - 1);
    const vec place =
        _mm512_packs_epi32(_mm512_srai_epi32(first, segment_bits), _mm512_srai_epi32(second, segment_bits));
    const __mmask32 negative = _mm512_movepi16_mask(place);
    vec t = _mm512_packs_epi32(_mm512_and_si512(first, t_bits), _mm512_and_si512(second, t_bits));
    if (segment_bits < CPU_T_SEGMENT_BITS)
        t = _mm512_slli_epi16(t, CPU_T_SEGMENT_BITS - segment_bits);
    return (struct words){
        /* place or ~place */
        .segment = _mm512_min_epu16(place, _mm512_xor_si512(place, _mm512_set1_epi32(-1))),
        .t = _mm512_mask_sub_epi16(t, negative, t, _mm512_set1_epi16(1 << CPU_T_SEGMENT_BITS)),
        .negative = negative};
}

/* before: A - 1; difference: 2 * D. */
static inline vec interpolate(vec before, vec difference, struct words x)
{
    vec a = _mm512_adds_epi16(before, _mm512_set1_epi16(1));
    a = _mm512_mask_sub_epi16(a, x.negative, _mm512_set1_epi32(-1), before);
    return _mm512_adds_epi16(a, _mm512_mulhrs_epi16(difference, x.t));
}

/* T of two vectors, and of four. */
static inline vec tanh_2(const struct cpu_tanh *table, const int frac, vec first, vec second);
static inline void tanh_4(const struct cpu_tanh *table, const vec z[4], vec *first_two, vec *last_two);

/* ---- the cell ---- */

/* Words to dwords with a high half of 0. */
static inline vec first_words(vec words)
{
    return _mm512_unpacklo_epi16(words, _mm512_setzero_si512());
}

static inline vec second_words(vec words)
{
    return _mm512_unpackhi_epi16(words, _mm512_setzero_si512());
}

/* o * T(c), Q0.30, to binary16 on the 2^-15 grid: 11 significant bits, half to even, saturating. drop: bits
 * that go; 15, and one more per binade from 2^26 on. */
static inline vec round_h(vec v)
{
    enum { TO_GRID = 30 - KL_H_FRAC, WIDEST = TO_GRID + 6, LIMIT = ((KL_H_ABS_MAX + 8) << TO_GRID) - 1 };
    const vec one = _mm512_set1_epi32(1);
    const vec zeros = _mm512_min_epi32(_mm512_lzcnt_epi32(_mm512_abs_epi32(v)), _mm512_set1_epi32(6));
    const vec drop = _mm512_sub_epi32(_mm512_set1_epi32(WIDEST), zeros);
    const vec bounded =
        _mm512_max_epi32(_mm512_min_epi32(v, _mm512_set1_epi32(LIMIT)), _mm512_set1_epi32(-LIMIT));
    const vec odd = _mm512_and_si512(_mm512_srav_epi32(bounded, drop), one);
    const vec below_half =
        _mm512_sub_epi32(_mm512_srlv_epi32(_mm512_set1_epi32(1 << (WIDEST - 1)), zeros), one);
    const vec sum = _mm512_add_epi32(_mm512_add_epi32(bounded, below_half), odd);
    return _mm512_sllv_epi32(_mm512_srav_epi32(sum, drop), _mm512_sub_epi32(_mm512_set1_epi32(6), zeros));
}

/* (f * c + ((i * g) << 3) + 2^14) >> 15 without 64-bit products: with c = high * 2^15 + low it is
 * f * high + ((((f * low + 2^14) >> 3) + i * g) >> 12). The high words of i and f are 0. */
static inline vec next_c(vec i, vec f, vec g, vec c)
{
    const vec low = _mm512_and_si512(c, _mm512_set1_epi32(0x7fff));
    const vec f_low = _mm512_add_epi32(_mm512_madd_epi16(f, low), _mm512_set1_epi32(1 << 14));
    const vec sum = _mm512_add_epi32(_mm512_srai_epi32(f_low, 3), _mm512_madd_epi16(i, g));
    const vec f_high = _mm512_madd_epi16(f, _mm512_srai_epi32(c, 15));
    return _mm512_add_epi32(f_high, _mm512_srai_epi32(sum, 12));
}

/* One sub's gates: its c moves on. Returns what T(c) is taken of: not saturated, but T is flat there. */
static inline vec gates(const struct cpu_tanh *table, const vec *z, int stride, int32_t *c, vec *o)
{
    const vec half = _mm512_set1_epi16((short)0x8000);
    const vec of_sub[KL_N_GATE] = {z[0], z[stride], z[2 * stride], z[3 * stride]};
    vec i_f, g_o;
    tanh_4(table, of_sub, &i_f, &g_o);
    const vec sigma = _mm512_srli_epi16(_mm512_xor_si512(i_f, half), 1); /* (T + 2^15) >> 1 */
    *o = second_words(_mm512_srli_epi16(_mm512_xor_si512(g_o, half), 1));
    const vec next = next_c(first_words(sigma), second_words(sigma), first_words(g_o), v_load(c));
    v_store(c, _mm512_max_epi32(_mm512_min_epi32(next, _mm512_set1_epi32(KL_C_ABS_MAX)),
                                _mm512_set1_epi32(-KL_C_ABS_MAX)));
    return next;
}

static inline vec interleave(vec even, vec odd)
{
    return _mm512_mask_mov_epi16(even, 0xaaaaaaaa, _mm512_slli_epi32(odd, 16));
}

static inline __attribute__((always_inline)) void cell(const int n_sub, const struct cpu_tanh *table,
                                                       const vec *z, int32_t *c, int16_t *h)
{
    vec o_0, o_1;
    const vec c_0 = gates(table, z, n_sub, c, &o_0);
    if (n_sub == 1) {
        const vec h_0 = round_h(_mm512_madd_epi16(o_0, first_words(tanh_2(table, KL_C_FRAC, c_0, c_0))));
        _mm256_store_si256((__m256i *)(void *)h, _mm512_cvtepi32_epi16(h_0));
        return;
    }
    const vec c_1 = gates(table, z + 1, n_sub, c + LANES, &o_1);
    const vec t = tanh_2(table, KL_C_FRAC, c_0, c_1);
    v_store(h, interleave(round_h(_mm512_madd_epi16(o_0, first_words(t))),
                          round_h(_mm512_madd_epi16(o_1, second_words(t)))));
}

/* ---- x ---- */

/* A binary16 value is on the grid if 2^11 times it is an integer; NaN and infinities compare as different. */
static int variant_read_x(const uint16_t *bits, uint32_t n_in, struct cpu_x *x)
{
    const __m512 scale = _mm512_set1_ps(1 << KL_X_FRAC);
    const vec limit = _mm512_set1_epi32(KL_X_ABS_MAX);
    __mmask16 bad = 0;
    for (uint32_t k = 0; k < n_in; k += 16) {
        const uint32_t n = n_in - k;
        const __mmask16 mask = n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
        const __m512 value = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, bits + k)), scale);
        const vec steps = _mm512_cvtps_epi32(value);
        bad |= _mm512_cmp_ps_mask(_mm512_cvtepi32_ps(steps), value, _CMP_NEQ_UQ);
        bad |= _mm512_cmp_epu32_mask(_mm512_abs_epi32(steps), limit, _MM_CMPINT_GT);
        _mm256_store_si256((__m256i *)(void *)(x->v + k), _mm512_cvtepi32_epi16(steps));
    }
    if (n_in % 32 != 0 && n_in % 32 <= 16) /* to a whole line */
        _mm256_store_si256((__m256i *)(void *)(x->v + (n_in + 15) / 16 * 16), _mm256_setzero_si256());
    return !bad;
}

#endif
