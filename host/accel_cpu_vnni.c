/* AVX-512 with VNNI and VBMI (Ice Lake, Zen 4 and later): products by vpdpwssd and vpdpbusd, T by byte
 * permutations. */
#include "accel_cpu_avx512.h"

#define HAS_8BIT

/* The empty asm ties the sum to its register: gcc 12 else copies every sum in every round of the loop, which
 * costs half of the speed. */
static inline vec v_dot(vec sum, vec w, vec pair)
{
    sum = _mm512_dpwssd_epi32(sum, w, pair);
    __asm__("" : "+v"(sum));
    return sum;
}

static inline vec v_quad(const uint8_t *p)
{
    return _mm512_set1_epi32(load_i32(p));
}

static inline vec v_dot_8bit(vec sum, vec w, vec quad)
{
    sum = _mm512_dpbusd_epi32(sum, quad, w);
    __asm__("" : "+v"(sum));
    return sum;
}

static inline vec v_shift_left_8(vec v)
{
    return _mm512_slli_epi32(v, 8);
}

/* Bits 0..6 of a byte pick one of 128. */
static inline vec pick(const uint8_t *table, vec index)
{
    return _mm512_permutex2var_epi8(v_load(table), index, v_load(table + 64));
}

/* A - 1 and 2 * D of the segments of first and second: two words registers each. Bytes are looked up, all 64
 * at once: index is the segment up to 255, top what is above 255, up to 127. */
static inline void look_up(const struct cpu_tanh *table, vec first, vec second, vec a[2], vec d[2])
{
    const vec before_top = _mm512_set1_epi16(255);
    const vec index = _mm512_packus_epi16(first, second);
    const vec top =
        _mm512_packs_epi16(_mm512_sub_epi16(first, before_top), _mm512_sub_epi16(second, before_top));
    const __mmask64 upper = _mm512_movepi8_mask(index);
    const __mmask64 is_top = _mm512_cmpgt_epi8_mask(top, _mm512_setzero_si512());

    vec a_low = _mm512_mask_mov_epi8(pick(table->a_low, index), upper, pick(table->a_low + 128, index));
    vec d_low = _mm512_mask_mov_epi8(pick(table->d_low, index), upper, pick(table->d_low + 128, index));
    a_low = _mm512_mask_mov_epi8(a_low, is_top, pick(table->a_top, top));
    d_low = _mm512_mask_mov_epi8(d_low, is_top, pick(table->d_top, top));
    const vec a_high =
        _mm512_mask_mov_epi8(pick(table->a_high, index), upper, pick(table->a_high + 128, index));
    const vec d_high = _mm512_mask_mov_epi8(pick(table->d_high, index), upper, _mm512_setzero_si512());
    a[0] = _mm512_unpacklo_epi8(a_low, a_high);
    a[1] = _mm512_unpackhi_epi8(a_low, a_high);
    d[0] = _mm512_unpacklo_epi8(d_low, d_high);
    d[1] = _mm512_unpackhi_epi8(d_low, d_high);
}

static inline void tanh_4(const struct cpu_tanh *table, const vec z[4], vec *first_two, vec *last_two)
{
    const struct words x = words_of(KL_Z_FRAC, z[0], z[1]), y = words_of(KL_Z_FRAC, z[2], z[3]);
    vec before[2], difference[2];
    look_up(table, x.segment, y.segment, before, difference);
    *first_two = interpolate(before[0], difference[0], x);
    *last_two = interpolate(before[1], difference[1], y);
}

static inline vec tanh_2(const struct cpu_tanh *table, const int frac, vec first, vec second)
{
    const struct words x = words_of(frac, first, second);
    vec before[2], difference[2];
    look_up(table, x.segment, x.segment, before, difference);
    return interpolate(before[0], difference[0], x);
}

#include "accel_cpu_matrix.h"

const struct cpu_variant accel_cpu_vnni = {.lanes = LANES,
                                           .has_8bit = 1,
                                           .read_x = variant_read_x,
                                           .prepare = variant_prepare,
                                           .step = variant_step,
                                           .prepare_batch = variant_prepare_batch,
                                           .step_batch = variant_step_batch};
