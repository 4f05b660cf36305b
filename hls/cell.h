/* The cell update: gates, cell and hidden state of the units of one part. Integers only, no state of its own.
 * A unit whose rows are all zero keeps c = h = 0 (T(0) = 0), so padding needs no mask. */
#ifndef CELL_H
#define CELL_H

#include "kl_build.h"

#ifdef __cplusplus
extern "C" {
#endif

/* z: pre-activations of KL_CELL_LANES units, four rows each (i, f, g, o; i, f, o at half scale), Q.20.
 * c: Q.18, updated. h: in 2^-15 steps, written. */
void cell_update(const int32_t z[KL_CELL_LANES * KL_N_GATE], int32_t c[KL_CELL_LANES],
                 int16_t h[KL_CELL_LANES]);

/* Rounds a Q0.30 value once, to nearest even, to binary16 on the 2^-15 grid; in grid steps, saturating at
 * +-KL_H_ABS_MAX. v: -2^30 .. 2^30. */
int32_t cell_round_h(int32_t v_q30);

#ifdef __cplusplus
}
#endif

#endif
