/* The arithmetic of one layer: exact matrix products on row groups, and the cell update.
 *
 * A group is KL_MAC_ROWS adjacent rows, that is all four gates of KL_GROUP_UNITS hidden units: the rows that
 * the MAC array works on at once. Rows and columns beyond a model's shape hold zero weights, which changes no
 * sum, and a unit whose rows are all zero keeps c = h = 0 (T(0) = 0), so nothing needs a mask. Integers only,
 * no state of its own. */
#ifndef LSTM_CELL_H
#define LSTM_CELL_H

#include "kl_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KL_GROUP_UNITS = KL_MAC_ROWS / KL_N_GATE,
    KL_N_GROUP_MAX = (KL_N_GATE * KL_N_HIDDEN_MAX + KL_MAC_ROWS - 1) / KL_MAC_ROWS,
    KL_N_ROW_MAX = KL_N_GROUP_MAX * KL_MAC_ROWS,
    KL_N_UNIT_MAX = KL_N_GROUP_MAX * KL_GROUP_UNITS,
    KL_H_BLOCKS_MAX = (KL_N_HIDDEN_MAX + KL_BLOCK - 1) / KL_BLOCK,
    KL_X_BLOCKS_MAX = (KL_N_IN_MAX + KL_BLOCK - 1) / KL_BLOCK,
};
static_assert(KL_MAC_ROWS % KL_N_GATE == 0, "a group holds whole units");
static_assert(KL_BLOCK % KL_GROUP_UNITS == 0, "a group's h lies in one operand block");
static_assert(KL_X_BLOCKS_MAX <= KL_H_BLOCKS_MAX, "x fits where h fits");
static_assert(KL_N_UNIT_MAX <= KL_H_BLOCKS_MAX * KL_BLOCK, "every unit has a place in an operand block");

/* One block of one group: the unit in which weights are stored and fetched. */
struct lstm_weights {
    int16_t w[KL_MAC_ROWS][KL_BLOCK];
};

/* One block of operands: x or h in grid steps. */
struct lstm_operands {
    int16_t v[KL_BLOCK];
};

/* Shape of one matrix product: n_group <= KL_N_GROUP_MAX, 1 <= n_block <= KL_H_BLOCKS_MAX. Word
 * group * n_block + block of weights belongs to that group and block; shift is 0..31 per row. kl_core_load
 * proved that no sum overflows. */
struct lstm_shape {
    uint32_t n_group;
    uint32_t n_block;
};

/* The recurrent half of a step: z[group][r] = bias + W_h.h, Q.20. h: shape.n_block blocks. */
void lstm_prepare(int32_t z[KL_N_GROUP_MAX][KL_MAC_ROWS], const int32_t bias[KL_N_GROUP_MAX][KL_MAC_ROWS],
                  const struct lstm_weights *weights, const struct lstm_operands *h,
                  const uint8_t shift[KL_N_GROUP_MAX][KL_MAC_ROWS], struct lstm_shape shape);

/* The other half: z + W_x.x, then gates, cell and hidden state of every group. z_h: lstm_prepare's answer.
 * x: shape.n_block blocks; c is updated; h (KL_H_BLOCKS_MAX blocks, not x) is written. */
void lstm_step(struct lstm_operands *h, int32_t c[KL_N_GROUP_MAX][KL_GROUP_UNITS],
               const int32_t z_h[KL_N_GROUP_MAX][KL_MAC_ROWS], const struct lstm_weights *weights,
               const struct lstm_operands *x, const uint8_t shift[KL_N_GROUP_MAX][KL_MAC_ROWS],
               struct lstm_shape shape);

/* Gates, cell and hidden state of one group. z: pre-activations, Q.20 (i, f, o at half scale).
 * c: Q.18, updated. h: in 2^-15 steps, written. */
void lstm_update(const int32_t z[KL_MAC_ROWS], int32_t c[KL_GROUP_UNITS], int16_t h[KL_GROUP_UNITS]);

/* Rounds a Q0.30 value once, to nearest even, to binary16 on the 2^-15 grid; in grid steps, saturating at
 * +-KL_H_ABS_MAX. v: -2^30 .. 2^30. */
int32_t lstm_round_h(int32_t v_q30);

#ifdef __cplusplus
}
#endif

#endif
