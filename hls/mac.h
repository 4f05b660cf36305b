/* The MAC array, KL_MAC_ROWS rows of KL_MAC_COLS multipliers with an adder tree each, and the rounding of
 * blocks behind it. Integers only, no state. Exact in any order: the loader proved that no sum overflows. */
#ifndef MAC_H
#define MAC_H

#include "operand.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the array reads per cycle: a column step of all rows of a group. */
typedef int16_t mac_word[KL_MAC_ROWS][KL_MAC_COLS];

/* sum[r] = w[r] . step of every row. The first rows, which the head's classes use, have wide trees, since a
 * head has no block bound: wide[r] is exact for any weights; sum[r] is its low half, exact where the loader
 * proved a bound, as everywhere but in the head. */
void mac_array(mac_word w, const struct operand_step *step, int32_t sum[KL_MAC_ROWS],
               int64_t wide[KL_N_CLASS_MAX]);

/* Takes a column step's sums into the blocks of a group: acc collects a block from `half` of the row's shift
 * on; with its last column step it is shifted, which rounds it half-up to Q.20, and added to z. */
void mac_round_block(const int32_t sum[KL_MAC_ROWS], const uint8_t shift[KL_MAC_ROWS], int block_first,
                     int block_last, int32_t acc[KL_MAC_ROWS], int32_t z[KL_MAC_ROWS]);

#ifdef __cplusplus
}
#endif

#endif
