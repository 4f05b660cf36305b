/* The weight store: every slot's weight words, in the two kinds of memory that an SLR has, so that neither
 * runs out: rows below KL_BRAM_ROWS in block RAM, the others in UltraRAM, two rows to a bank, one at either
 * port. A bank's ports only read while the array runs: loads happen between two operations. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "mac.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KL_URAM_ROWS = KL_MAC_ROWS - KL_BRAM_ROWS,
    KL_URAM_BANKS = KL_URAM_ROWS / 2,
};
static_assert(KL_URAM_ROWS % 2 == 0 && KL_URAM_BANKS > 0, "whole banks");

struct weights {
    int16_t bram[KL_BRAM_ROWS > 0 ? KL_BRAM_ROWS : 1][KL_BUILD_SLOTS * KL_BUILD_WORDS][KL_MAC_COLS];
    int16_t uram[KL_URAM_BANKS][2 * KL_BUILD_SLOTS * KL_BUILD_WORDS][KL_MAC_COLS];
    int16_t head[KL_N_CLASS_MAX][KL_BUILD_SLOTS * KL_N_COL][KL_MAC_COLS];
};

/* A word of all rows: what the array multiplies with in one cycle. */
void weights_fetch(const struct weights *weights, uint32_t slot, uint32_t word, mac_word w);

/* The head's word of column step col, in the first rows; the others are 0. */
void weights_fetch_head(const struct weights *weights, uint32_t slot, uint32_t col, mac_word w);

/* A row's KL_MAC_COLS weights of a word; a class's of the head. For the loader, and whoever checks it. */
int16_t *weights_row(struct weights *weights, uint32_t slot, uint32_t word, uint32_t row);
int16_t *weights_head_row(struct weights *weights, uint32_t slot, uint32_t col, uint32_t row);

#ifdef __cplusplus
}
#endif

#endif
