#include "weights.h"

#include "kl_pragma.h"

void weights_fetch(const struct weights *weights, uint32_t slot, uint32_t word, mac_word w)
{
    const uint32_t at = slot * KL_BUILD_WORDS + word;
bram_row:
    for (int r = 0; r < KL_BRAM_ROWS; r++) {
        KL_PRAGMA(HLS UNROLL) /* a bank per row: all are read in the same cycle */
    bram_column:
        for (uint32_t k = 0; k < KL_MAC_COLS; k++) {
            KL_PRAGMA(HLS UNROLL)
            w[r][k] = weights->bram[r][at][k];
        }
    }
uram_row:
    for (int r = 0; r < KL_URAM_ROWS; r++) {
        KL_PRAGMA(HLS UNROLL) /* two rows of a bank at its two ports */
    uram_column:
        for (uint32_t k = 0; k < KL_MAC_COLS; k++) {
            KL_PRAGMA(HLS UNROLL)
            w[KL_BRAM_ROWS + r][k] = weights->uram[r / 2][2 * at + r % 2][k];
        }
    }
}

void weights_fetch_head(const struct weights *weights, uint32_t slot, uint32_t col, mac_word w)
{
row:
    for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
        KL_PRAGMA(HLS UNROLL)
    column:
        for (uint32_t k = 0; k < KL_MAC_COLS; k++) {
            KL_PRAGMA(HLS UNROLL)
            w[r][k] = 0;
            if (r < KL_N_CLASS_MAX)
                w[r][k] = weights->head[r][slot * KL_N_COL + col][k];
        }
    }
}

int16_t *weights_row(struct weights *weights, uint32_t slot, uint32_t word, uint32_t row)
{
    const uint32_t at = slot * KL_BUILD_WORDS + word;
    const uint32_t n_bram_row = KL_BRAM_ROWS; /* may be 0 */
    if (row < n_bram_row)
        return weights->bram[row][at];
    const uint32_t uram_row = row - n_bram_row;
    return weights->uram[uram_row / 2][2 * at + uram_row % 2];
}

int16_t *weights_head_row(struct weights *weights, uint32_t slot, uint32_t col, uint32_t row)
{
    return weights->head[row][slot * KL_N_COL + col];
}
