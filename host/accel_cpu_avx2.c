/* AVX2 and F16C: 8 units a vector, products by vpmaddwd, T by gathers. */
#include <immintrin.h>

#include "accel_cpu_kernel.h"

enum { LANES = 8, BATCH_16BIT = 2 };
typedef __m256i vec;

static inline vec v_load(const void *p)
{
    return _mm256_load_si256(p);
}

static inline void v_store(void *p, vec v)
{
    _mm256_store_si256(p, v);
}

static inline vec v_add(vec a, vec b)
{
    return _mm256_add_epi32(a, b);
}

static inline vec v_sra(vec v, vec shifts)
{
    return _mm256_srav_epi32(v, shifts);
}

static inline vec v_pair(const int16_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

static inline vec v_dot(vec sum, vec w, vec pair)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, pair));
}

/* Two products fit an int32 (2 * 32767 * 32752); their sum over a row needs 64 bits. */
static inline int64_t v_head(const int16_t *w, const int16_t *h, uint32_t n)
{
    vec sum = _mm256_setzero_si256();
    for (uint32_t i = 0; i < n; i += 16) {
        const vec product = _mm256_madd_epi16(v_load(w + i), v_load(h + i));
        const vec low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(product));
        const vec high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(product, 1));
        sum = _mm256_add_epi64(sum, _mm256_add_epi64(low, high));
    }
    const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return _mm_cvtsi128_si64(half) + _mm_extract_epi64(half, 1);
}

/* T is odd but for two details: halves round up on both sides, and +1 itself saturates. With s = -1 for
 * negative arguments and 0 else: T = (A ^ s) - s + round(D * (s ? -t : t)), at most 2^15 - 1. */
static inline vec tanh_1(const struct cpu_tanh *table, vec z)
{
    const vec last = _mm256_set1_epi32((CPU_T_ROWS << CPU_T_SEGMENT_BITS) - 1);
    const vec x = _mm256_min_epu32(_mm256_abs_epi32(z), last);
    const vec sign = _mm256_srai_epi32(z, 31);
    const vec a_d =
        _mm256_i32gather_epi32((const int *)table->a_d, _mm256_srli_epi32(x, CPU_T_SEGMENT_BITS), 4);
    /* The table has A - 1 in 16 bits; D and t, Q0.15, are below 2^15. */
    const vec a = _mm256_add_epi32(_mm256_srai_epi32(_mm256_slli_epi32(a_d, 16), 16), _mm256_set1_epi32(1));
    const vec d = _mm256_srli_epi32(a_d, 16);
    const vec t =
        _mm256_and_si256(_mm256_slli_epi32(x, KL_T_FRAC - CPU_T_SEGMENT_BITS), _mm256_set1_epi32(0x7fff));
    const vec product = _mm256_madd_epi16(d, t);
    const vec half =
        _mm256_add_epi32(_mm256_set1_epi32(1 << (KL_T_FRAC - 1)), sign); /* a half goes down below 0 */
    const vec y = _mm256_add_epi32(a, _mm256_srai_epi32(_mm256_add_epi32(product, half), KL_T_FRAC));
    return _mm256_min_epi32(_mm256_sub_epi32(_mm256_xor_si256(y, sign), sign), _mm256_set1_epi32(INT16_MAX));
}

static inline vec sigma(const struct cpu_tanh *table, vec half_z)
{
    return _mm256_srli_epi32(_mm256_add_epi32(tanh_1(table, half_z), _mm256_set1_epi32(1 << KL_T_FRAC)), 1);
}

/* o * T(c), Q0.30, to binary16 on the 2^-15 grid: 11 significant bits, half to even, saturating. */
static inline vec round_h(vec v)
{
    enum { TO_GRID = 30 - KL_H_FRAC };
    const vec one = _mm256_set1_epi32(1);
    const vec magnitude = _mm256_abs_epi32(v);
    vec drop = _mm256_set1_epi32(TO_GRID); /* from 2^26 on a bit more in every binade */
    for (int b = 26; b < 30; b++)
        drop = _mm256_sub_epi32(drop, _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((1 << b) - 1)));
    const vec odd = _mm256_and_si256(_mm256_srlv_epi32(magnitude, drop), one);
    const vec half = _mm256_sub_epi32(_mm256_sllv_epi32(one, _mm256_sub_epi32(drop, one)), one);
    const vec sum = _mm256_add_epi32(_mm256_add_epi32(magnitude, half), odd);
    const vec steps =
        _mm256_sllv_epi32(_mm256_srlv_epi32(sum, drop), _mm256_sub_epi32(drop, _mm256_set1_epi32(TO_GRID)));
    return _mm256_sign_epi32(_mm256_min_epi32(steps, _mm256_set1_epi32(KL_H_ABS_MAX)), v);
}

/* c' = saturate((f * c + ((i * g) << 3) + 2^14) >> 15) without 64-bit products: with c = high * 2^15 + low it
 * is f * high + ((((f * low + 2^14) >> 3) + i * g) >> 12). The high words of i and f are 0. */
static inline vec next_c(vec i, vec f, vec g, vec c)
{
    const vec low = _mm256_and_si256(c, _mm256_set1_epi32(0x7fff));
    const vec f_low = _mm256_add_epi32(_mm256_madd_epi16(f, low), _mm256_set1_epi32(1 << 14));
    const vec sum = _mm256_add_epi32(_mm256_srai_epi32(f_low, 3), _mm256_madd_epi16(i, g));
    const vec next =
        _mm256_add_epi32(_mm256_madd_epi16(f, _mm256_srai_epi32(c, 15)), _mm256_srai_epi32(sum, 12));
    return _mm256_max_epi32(_mm256_min_epi32(next, _mm256_set1_epi32(KL_C_ABS_MAX)),
                            _mm256_set1_epi32(-KL_C_ABS_MAX));
}

/* c and h of one sub. */
static inline vec cell_sub(const struct cpu_tanh *table, const vec *z, int stride, int32_t *c)
{
    const vec i = sigma(table, z[0]), f = sigma(table, z[stride]);
    const vec g = tanh_1(table, z[2 * stride]), o = sigma(table, z[3 * stride]);
    const vec next = next_c(i, f, g, v_load(c));
    v_store(c, next);
    /* o's high words are 0. */
    return round_h(_mm256_madd_epi16(o, tanh_1(table, _mm256_slli_epi32(next, KL_Z_FRAC - KL_C_FRAC))));
}

static inline __attribute__((always_inline)) void cell(const int n_sub, const struct cpu_tanh *table,
                                                       const vec *z, int32_t *c, int16_t *h)
{
    const vec h_0 = cell_sub(table, z, n_sub, c);
    if (n_sub == 1) {
        const vec packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(h_0, h_0), 0x08);
        _mm_store_si128((__m128i *)(void *)h, _mm256_castsi256_si128(packed));
        return;
    }
    const vec h_1 = cell_sub(table, z + 1, n_sub, c + LANES);
    v_store(h, _mm256_blend_epi16(h_0, _mm256_slli_epi32(h_1, 16), 0xaa));
}

/* A binary16 value is on the grid if 2^11 times it is an integer; NaN and infinities compare as different. */
static int variant_read_x(const uint16_t *bits, uint32_t n_in, struct cpu_x *x)
{
    const __m256 scale = _mm256_set1_ps(1 << KL_X_FRAC);
    const vec limit = _mm256_set1_epi32(KL_X_ABS_MAX);
    const __m128i index = _mm_set_epi16(7, 6, 5, 4, 3, 2, 1, 0);
    vec bad = _mm256_setzero_si256();
    for (uint32_t k = 0; k < (n_in + 31) / 32 * 32; k += 8) {
        /* x[n_in..] is there but need not be written. */
        const int left = (int)n_in - (int)k;
        const __m128i used = _mm_cmpgt_epi16(_mm_set1_epi16((short)left), index);
        const __m128i half = _mm_and_si128(used, _mm_loadu_si128((const __m128i *)(const void *)(bits + k)));
        const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), scale);
        const vec steps = _mm256_cvtps_epi32(value);
        const __m256 off = _mm256_cmp_ps(_mm256_cvtepi32_ps(steps), value, _CMP_NEQ_UQ);
        const vec large = _mm256_cmpgt_epi32(_mm256_abs_epi32(steps), limit);
        bad = _mm256_or_si256(bad, _mm256_or_si256(_mm256_castps_si256(off), large));
        const vec packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(steps, steps), 0x08);
        _mm_store_si128((__m128i *)(void *)(x->v + k), _mm256_castsi256_si128(packed));
    }
    return _mm256_testz_si256(bad, bad);
}

#include "accel_cpu_matrix.h"

const struct cpu_variant accel_cpu_avx2 = {.lanes = LANES,
                                           .read_x = variant_read_x,
                                           .prepare = variant_prepare,
                                           .step = variant_step,
                                           .prepare_batch = variant_prepare_batch,
                                           .step_batch = variant_step_batch};
