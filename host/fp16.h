/* binary16 values that lie on a power-of-two grid (number contract, hls/kl_abi.h), to and from binary64. */
#ifndef FP16_H
#define FP16_H

#include <stdint.h>

/* Rounds v once, to nearest even, to the coarser of binary16's own step at v and 2^-frac, and clamps it
 * (infinities too) to the largest such value that is not above abs_max grid steps. NaN becomes 0.
 * frac: 0..24; abs_max: >= 0, in steps of 2^-frac. Returns the binary16 bits; never infinity, never -0.
 * Any thread; integers only, no library call. */
uint16_t fp16_from_double(double v, int frac, int32_t abs_max);

/* Exact. Infinities and NaN come out as such. */
double fp16_to_double(uint16_t bits);

#endif
