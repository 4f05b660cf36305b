/* binary16 bits to steps of a power-of-two grid, exactly or not at all. Integers only. */
#ifndef GRID_H
#define GRID_H

#include "kl_abi.h"

/* *steps = value * 2^frac if that is an integer of at most abs_max in magnitude; -0 is 0. Returns 1, or 0 for
 * infinities, NaN and everything else, and leaves *steps alone. frac: 0..KL_W_FRAC_MAX; abs_max < 2^30. */
static inline int grid_steps(uint16_t bits, uint32_t frac, int32_t abs_max, int32_t *steps)
{
    const uint32_t exponent = (bits >> 10) & 0x1fu;
    const uint32_t fraction = bits & 0x3ffu;
    const uint64_t significand = exponent ? fraction | 0x400u : fraction;
    /* value = significand * 2^(e - 25), e = 1 for subnormals, so the point lies 25 - e bits up. At most 11 +
     * 30 + 24 - 1 = 64 bits. */
    const uint64_t scaled = significand << ((exponent ? exponent - 1u : 0u) + frac);
    const uint64_t magnitude = scaled >> 24;
    if (exponent == 0x1f || (scaled & 0xffffffu) != 0 || magnitude > (uint64_t)abs_max)
        return 0;
    *steps = bits & 0x8000u ? -(int32_t)magnitude : (int32_t)magnitude;
    return 1;
}

#endif
