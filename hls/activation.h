/* T, the contract's tanh: 1,024 linear segments on [-8, 8) between int16 knots in Q0.15, clamped at both
 * ends. Integers only; every function is pure. The knots are in activation.c, which make_activation.py
 * writes. */
#ifndef ACTIVATION_H
#define ACTIVATION_H

#include "kl_abi.h"
#include "kl_pragma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* tanh(x_k) - (w^2 / 16) * tanh''(x_k) at x_k = -8 + k * w, w = 1/64, rounded to Q0.15 and saturated to
 * int16. The shift halves the chord's error at the middle of a segment (it has w^2/8 * tanh'' there without).
 */
extern const int16_t activation_knot[KL_T_SEGMENTS + 1];

/* Right shifts of negative numbers floor here, as every compiler in question does them. */
static_assert((-3 >> 1) == -2, "arithmetic right shift");

/* T(x) in Q0.15. x in Q.20 (any value). Interpolates with t in Q0.15: A + ((D * t + 2^14) >> 15). */
static inline int32_t activation_tanh(int32_t x_q20)
{
    enum {
        SEGMENT_BITS = KL_Z_FRAC - 6, /* a segment is 1/64 wide */
        LIMIT = 8 << KL_Z_FRAC,
        RISE_MASK = 0x3ff, /* T rises, by 512 steps a segment at most: tells a synthesis tool the width */
    };
    /* At +8 itself, segment 1,023: its two knots are the same, so its t does not matter. */
    const int32_t x = x_q20 < -LIMIT ? -LIMIT : x_q20 > LIMIT ? LIMIT : x_q20;
    const int32_t from_left = x + LIMIT;
    const int32_t whole = from_left >> SEGMENT_BITS;
    const int32_t segment = whole < KL_T_SEGMENTS ? whole : KL_T_SEGMENTS - 1;
    const int32_t t = (from_left & ((1 << SEGMENT_BITS) - 1)) << (KL_T_FRAC - SEGMENT_BITS);
    const int32_t a = activation_knot[segment];
    const int32_t rise = (activation_knot[segment + 1] - a) & RISE_MASK;
    const int32_t product = rise * t;
    /* 10 x 14 bits, five times per cell lane: the DSP slices are the MAC array's. */
    KL_PRAGMA(HLS BIND_OP variable = product op = mul impl = fabric)
    return a + ((product + (1 << (KL_T_FRAC - 1))) >> KL_T_FRAC);
}

/* sigma(z) in Q0.15, 0 .. 2^15 - 1, from z/2 in Q.20: rows i, f, o are stored at half scale. */
static inline int32_t activation_sigma(int32_t half_z_q20)
{
    return (activation_tanh(half_z_q20) + (1 << KL_T_FRAC)) >> 1;
}

#ifdef __cplusplus
}
#endif

#endif
