/* Operand fetch: one column step of x or h, in grid steps. Integers only, no state. */
#ifndef OPERAND_H
#define OPERAND_H

#include "kl_build.h"

#ifdef __cplusplus
extern "C" {
#endif

struct operand_step {
    int16_t v[KL_MAC_COLS];
};

/* Column step col of a request's x, n_in values, converted from binary16; zero from n_in on. Returns 1, or 0:
 * a value is not finite, off the 2^-KL_X_FRAC grid or above KL_X_ABS_MAX, and *step must not be used. */
int operand_fetch_x(const uint16_t *x, uint32_t n_in, uint32_t col, struct operand_step *step);

/* Column step col of h. Units beyond the layer's shape are zero in memory already. */
void operand_fetch_h(const int16_t h[KL_N_COL][KL_MAC_COLS], uint32_t col, struct operand_step *step);

#ifdef __cplusplus
}
#endif

#endif
