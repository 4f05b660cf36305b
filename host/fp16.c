/* All in integers on the bits of the binary64: exact, independent of the rounding mode, no library call. */
#include "fp16.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    FP64_MANTISSA_BITS = 52,
    FP64_BIAS = 1023,
    FP16_MANTISSA_BITS = 10,
    FP16_BIAS = 15,
    FP16_EXP_MAX = 15,
    FP16_EXP_MIN = -14,
    FP16_FRAC_MAX = 24, /* 2^-24: the subnormals' step */
    FP16_LARGEST = 65504,
};

/* The largest binary16 value on the grid that is not above abs_max steps, in steps. */
static uint64_t largest_steps(int frac, int32_t abs_max)
{
    uint64_t steps = (uint64_t)abs_max, finite = (uint64_t)FP16_LARGEST << frac;
    if (steps > finite)
        steps = finite;
    int excess = steps ? 63 - __builtin_clzll(steps) - FP16_MANTISSA_BITS : 0;
    return excess > 0 ? steps >> excess << excess : steps;
}

/* steps * 2^-frac, which must be a finite binary16 value. */
static uint16_t encode(uint64_t steps, int frac)
{
    if (!steps)
        return 0;
    int top = 63 - __builtin_clzll(steps), exponent = top - frac;
    if (exponent < FP16_EXP_MIN)
        return (uint16_t)(steps << (FP16_FRAC_MAX - frac));
    uint64_t mantissa =
        top > FP16_MANTISSA_BITS ? steps >> (top - FP16_MANTISSA_BITS) : steps << (FP16_MANTISSA_BITS - top);
    return (uint16_t)((uint32_t)(exponent + FP16_BIAS) << FP16_MANTISSA_BITS | (mantissa & 0x3ff));
}

uint16_t fp16_from_double(double v, int frac, int32_t abs_max)
{
    assert(frac >= 0 && frac <= FP16_FRAC_MAX && abs_max >= 0);
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    int biased = (int)(bits >> FP64_MANTISSA_BITS & 0x7ff), exponent = biased - FP64_BIAS;
    uint64_t mantissa = (bits & ((1ull << FP64_MANTISSA_BITS) - 1)) | 1ull << FP64_MANTISSA_BITS;
    if (v != v || !biased) /* binary64's subnormals are far below half a step */
        return 0;
    uint64_t largest = largest_steps(frac, abs_max), steps = largest;
    if (exponent <= FP16_EXP_MAX) {
        /* v = mantissa * 2^(exponent - 52), to be a multiple of 2^unit. */
        int unit = exponent - FP16_MANTISSA_BITS > -frac ? exponent - FP16_MANTISSA_BITS : -frac;
        int shift = unit - (exponent - FP64_MANTISSA_BITS); /* >= 42 */
        uint64_t n = 0;
        if (shift <= FP64_MANTISSA_BITS + 1) { /* else below half a step */
            uint64_t rest = mantissa & ((1ull << shift) - 1), half = 1ull << (shift - 1);
            n = mantissa >> shift;
            n += rest > half || (rest == half && (n & 1));
        }
        steps = n << (unit + frac); /* n <= 2^11, unit + frac <= 29 */
        if (steps > largest)
            steps = largest;
    }
    uint16_t magnitude = encode(steps, frac);
    return magnitude ? (uint16_t)(magnitude | bits >> 63 << 15) : 0;
}

double fp16_to_double(uint16_t bits)
{
    int exponent = bits >> FP16_MANTISSA_BITS & 0x1f, mantissa = bits & 0x3ff;
    double v;
    if (exponent == 0x1f)
        v = mantissa ? (double)NAN : (double)INFINITY;
    else if (!exponent)
        v = ldexp(mantissa, -FP16_FRAC_MAX);
    else
        v = ldexp(mantissa | 1 << FP16_MANTISSA_BITS, exponent - FP16_BIAS - FP16_MANTISSA_BITS);
    return bits >> 15 ? -v : v;
}
