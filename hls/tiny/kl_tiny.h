/* The smallest synthesisable configuration: one layer of 8 units with its weights built in, one stream. Any
 * synthesis tool can be pointed at it, and its RTL compared with the C simulation's vectors (README.md).
 * Its arithmetic is the product's: the unit functions of ../operand.c, ../mac.c, ../cell.c and ../head.c,
 * built with KL_BUILD_TINY. */
#ifndef KL_TINY_H
#define KL_TINY_H

#include "../kl_build.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KL_TINY_N_IN = 6, /* not whole column steps: the last one is filled up with zeros */
    KL_TINY_N_HIDDEN = 8,
    KL_TINY_N_CLASS = 3,

    KL_TINY_BAD_INPUT = 0xff, /* instead of a class */
};

/* One step of the stream, or a first one. reset: not 0: from h = c = 0; hardware's first call needs it, since
 * not every tool initialises static arrays. x: binary16 bits. logit: steps of 2^-(head_frac + KL_H_FRAC).
 * Returns the class; or KL_TINY_BAD_INPUT: a value of x is not finite, off its grid or out of range, the
 * logits are 0, and the state is as before (after the reset). */
uint32_t kl_tiny(uint32_t reset, const uint16_t x[KL_TINY_N_IN], int64_t logit[KL_TINY_N_CLASS]);

#ifdef __cplusplus
}
#endif

#endif
