/* AVX-512 without VNNI (Skylake-X and later): products by vpmaddwd, T by word permutations. */
#include "accel_cpu_avx512.h"

static inline vec v_dot(vec sum, vec w, vec pair)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, pair));
}

/* Bits 0..5 of a word pick one of 64. */
static inline vec pick(const int16_t *table, vec index)
{
    return _mm512_permutex2var_epi16(v_load(table), index, v_load(table + 32));
}

static inline vec look_up(const int16_t *table, vec segment, __mmask32 bit_6, __mmask32 bit_7,
                          __mmask32 bit_8)
{
    const vec of_0 = _mm512_mask_mov_epi16(pick(table, segment), bit_6, pick(table + 64, segment));
    const vec of_128 = _mm512_mask_mov_epi16(pick(table + 128, segment), bit_6, pick(table + 192, segment));
    const vec of_256 = _mm512_mask_mov_epi16(pick(table + 256, segment), bit_6, pick(table + 320, segment));
    return _mm512_mask_mov_epi16(_mm512_mask_mov_epi16(of_0, bit_7, of_128), bit_8, of_256);
}

static inline vec tanh_2(const struct cpu_tanh *table, const int frac, vec first, vec second)
{
    const struct words x = words_of(frac, first, second);
    const vec segment = _mm512_min_epi16(x.segment, _mm512_set1_epi16(CPU_T_FLAT - 1));
    const __mmask32 bit_6 = _mm512_test_epi16_mask(segment, _mm512_set1_epi16(64));
    const __mmask32 bit_7 = _mm512_test_epi16_mask(segment, _mm512_set1_epi16(128));
    const __mmask32 bit_8 = _mm512_test_epi16_mask(segment, _mm512_set1_epi16(256));
    const vec before = look_up(table->a, segment, bit_6, bit_7, bit_8);
    return interpolate(before, look_up(table->d, segment, bit_6, bit_7, bit_8), x);
}

static inline void tanh_4(const struct cpu_tanh *table, const vec z[4], vec *first_two, vec *last_two)
{
    *first_two = tanh_2(table, KL_Z_FRAC, z[0], z[1]);
    *last_two = tanh_2(table, KL_Z_FRAC, z[2], z[3]);
}

#include "accel_cpu_matrix.h"

const struct cpu_variant accel_cpu_bw = {.lanes = LANES,
                                         .read_x = variant_read_x,
                                         .prepare = variant_prepare,
                                         .step = variant_step,
                                         .prepare_batch = variant_prepare_batch,
                                         .step_batch = variant_step_batch};
