#include "mac.h"

#include "kl_pragma.h"

void mac_array(mac_word w, const struct operand_step *step, int32_t sum[KL_MAC_ROWS],
               int64_t wide[KL_N_CLASS_MAX])
{
wide_row:
    for (int r = 0; r < KL_N_CLASS_MAX; r++) {
        /* One DSP slice per product, all of them every cycle: the caller's loop is at II = 1. */
        KL_PRAGMA(HLS UNROLL)
        int64_t tree = 0;
    wide_column:
        for (int k = 0; k < KL_MAC_COLS; k++) {
            KL_PRAGMA(HLS UNROLL) /* a balanced tree: integer addition is associative */
            tree += w[r][k] * step->v[k];
        }
        wide[r] = tree;
        sum[r] = (int32_t)(uint32_t)(uint64_t)tree;
    }
row:
    for (int r = KL_N_CLASS_MAX; r < KL_MAC_ROWS; r++) {
        KL_PRAGMA(HLS UNROLL)
        int32_t tree = 0;
    column:
        for (int k = 0; k < KL_MAC_COLS; k++) {
            KL_PRAGMA(HLS UNROLL)
            tree += w[r][k] * step->v[k];
        }
        sum[r] = tree;
    }
}

void mac_round_block(const int32_t sum[KL_MAC_ROWS], const uint8_t shift[KL_MAC_ROWS], int block_first,
                     int block_last, int32_t acc[KL_MAC_ROWS], int32_t z[KL_MAC_ROWS])
{
row:
    for (int r = 0; r < KL_MAC_ROWS; r++) {
        /* II = 1: acc and z are carried from cycle to cycle through one adder each. */
        KL_PRAGMA(HLS UNROLL)
        const int32_t rounding = (int32_t)((1u << shift[r]) >> 1);
        const int32_t block = (block_first ? rounding : acc[r]) + sum[r];
        acc[r] = block;
        if (block_last)
            z[r] += block >> shift[r];
    }
}
