#include "operand.h"

#include "grid.h"
#include "kl_pragma.h"

int operand_fetch_x(const uint16_t *x, uint32_t n_in, uint32_t col, struct operand_step *step)
{
    int good = 1;
input:
    for (uint32_t k = 0; k < KL_MAC_COLS; k++) {
        /* A column step per cycle: the caller's loop is at II = 1. */
        KL_PRAGMA(HLS UNROLL)
        const uint32_t at = col * KL_MAC_COLS + k;
        int32_t value = 0;
        if (at < n_in)
            good &= grid_steps(x[at], KL_X_FRAC, KL_X_ABS_MAX, &value);
        step->v[k] = (int16_t)value;
    }
    return good;
}

void operand_fetch_h(const int16_t h[KL_N_COL][KL_MAC_COLS], uint32_t col, struct operand_step *step)
{
unit:
    for (uint32_t k = 0; k < KL_MAC_COLS; k++) {
        KL_PRAGMA(HLS UNROLL) /* as above */
        step->v[k] = h[col][k];
    }
}
