#include "kl_tiny.h"

#include "../cell.h"
#include "../head.h"
#include "../kl_pragma.h"
#include "../mac.h"
#include "../operand.h"

enum {
    N_GROUP = KL_TINY_N_HIDDEN / KL_GROUP_UNITS,
    N_X_COL = (KL_TINY_N_IN + KL_MAC_COLS - 1) / KL_MAC_COLS,
    N_H_COL = KL_TINY_N_HIDDEN / KL_MAC_COLS,
};
static_assert(KL_TINY_N_HIDDEN == N_GROUP * KL_GROUP_UNITS && KL_TINY_N_HIDDEN == N_H_COL * KL_MAC_COLS,
              "whole groups and columns");
static_assert((int)N_GROUP <= (int)KL_N_GROUP && (int)KL_TINY_N_IN <= (int)KL_BUILD_IN, "fits the build");
static_assert((int)N_X_COL >= (int)KL_GROUP_PARTS, "a group's cells end before the next group's z");

/* w_x, w_h: a word of the MAC array per group and column; x_shift, h_shift, bias: per row; head_w, head_bias.
 * The words are not const, since mac_array takes words that are written somewhere; nothing does so here, and
 * compilers find out and make a ROM of them. */
#include "kl_tiny_model.h"

static int16_t state_h[KL_N_COL][KL_MAC_COLS];
static int32_t state_c[KL_OWN_PARTS][KL_CELL_LANES];

static void reset_state(void)
{
unit:
    for (uint32_t u = 0; u < KL_TINY_N_HIDDEN; u++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* off the critical path: a unit per cycle will do */
        state_h[u / KL_MAC_COLS][u % KL_MAC_COLS] = 0;
        state_c[u / KL_CELL_LANES][u % KL_CELL_LANES] = 0;
    }
}

/* A column of a group through the array and the block rounding. */
static void product(mac_word w, const struct operand_step *step, const uint8_t shift[KL_MAC_ROWS],
                    uint32_t col, uint32_t n_col, int32_t acc[KL_MAC_ROWS], int32_t z[KL_MAC_ROWS])
{
    int32_t sum[KL_MAC_ROWS];
    int64_t wide[KL_N_CLASS_MAX];
    mac_array(w, step, sum, wide);
    mac_round_block(sum, shift, col % KL_BLOCK_COLS == 0,
                    col == n_col - 1 || col % KL_BLOCK_COLS == KL_BLOCK_COLS - 1, acc, z);
}

static void update_part(uint32_t group, uint32_t part, const int32_t z[KL_MAC_ROWS])
{
    const uint32_t of_all = group * KL_GROUP_PARTS + part;
    const uint32_t unit = of_all * KL_CELL_LANES;
    int16_t h[KL_CELL_LANES];
    cell_update(&z[part * KL_CELL_LANES * KL_N_GATE], state_c[of_all], h);
lane:
    for (uint32_t u = 0; u < KL_CELL_LANES; u++) {
        KL_PRAGMA(HLS UNROLL)
        state_h[unit / KL_MAC_COLS][unit % KL_MAC_COLS + u] = h[u];
    }
}

/* W_h.h + b of all groups: everything it needs lies there. */
static void prepare(int32_t acc[N_GROUP][KL_MAC_ROWS], int32_t z[N_GROUP][KL_MAC_ROWS])
{
slot:
    for (uint32_t slot = 0; slot < (uint32_t)N_GROUP * N_H_COL; slot++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* a column per cycle: acc and z are carried through one adder each */
        const uint32_t group = slot / N_H_COL, col = slot % N_H_COL;
        struct operand_step step;
        operand_fetch_h((const int16_t(*)[KL_MAC_COLS])state_h, col, &step);
        if (col == 0) {
        row:
            for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
                KL_PRAGMA(HLS UNROLL)
                z[group][r] = bias[group][r];
            }
        }
        product(w_h[group][col], &step, h_shift[group], col, N_H_COL, acc[group], z[group]);
    }
}

/* + W_x.x, group by group, a part of the finished group through the cells beside it. Returns 0: x is bad, the
 * state has not been touched. */
static int input(const uint16_t x[KL_TINY_N_IN], int32_t acc[N_GROUP][KL_MAC_ROWS],
                 int32_t z[N_GROUP][KL_MAC_ROWS])
{
    int good = 1;
    uint32_t cell_busy = 0, cell_group = 0, cell_part = 0;
slot:
    for (uint32_t slot = 0; slot < (uint32_t)N_GROUP * N_X_COL + KL_GROUP_PARTS - 1; slot++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* as above; a part's c is not read again in this loop */
        const uint32_t group = slot / N_X_COL, col = slot % N_X_COL;
        if (group < N_GROUP) {
            struct operand_step step;
            good &= operand_fetch_x(x, KL_TINY_N_IN, col, &step);
            product(w_x[group][col], &step, x_shift[group], col, N_X_COL, acc[group], z[group]);
            if (col == N_X_COL - 1) {
                cell_busy = 1;
                cell_group = group;
                cell_part = 0;
            }
        }
        /* Every column of x has passed before the first group's last. */
        if (cell_busy && good) {
            update_part(cell_group, cell_part, z[cell_group]);
            cell_part++;
            cell_busy = cell_part < KL_GROUP_PARTS;
        }
    }
    return good;
}

static void head(int64_t logit[KL_N_CLASS_MAX])
{
column:
    for (uint32_t col = 0; col < N_H_COL; col++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* a column per cycle: logit is carried through one adder */
        struct operand_step step;
        mac_word w;
        int32_t low[KL_MAC_ROWS];
        int64_t sum[KL_N_CLASS_MAX];
        operand_fetch_h((const int16_t(*)[KL_MAC_COLS])state_h, col, &step);
    row:
        for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
            KL_PRAGMA(HLS UNROLL) /* the head's weights come to the array's first rows */
        weight:
            for (uint32_t k = 0; k < KL_MAC_COLS; k++) {
                KL_PRAGMA(HLS UNROLL)
                w[r][k] = 0;
                if (r < KL_N_CLASS_MAX)
                    w[r][k] = head_w[col][r][k];
            }
        }
        mac_array(w, &step, low, sum);
        head_accumulate(logit, sum);
    }
}

uint32_t kl_tiny(uint32_t reset, const uint16_t x[KL_TINY_N_IN], int64_t logit[KL_TINY_N_CLASS])
{
    /* What II = 1 needs from memory: all rows of a word, bias and shift at once, a column step of h, a part
     * of c. */
    KL_PRAGMA(HLS ARRAY_PARTITION variable = w_x complete dim = 3)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = w_x complete dim = 4)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = w_h complete dim = 3)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = w_h complete dim = 4)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = x_shift complete dim = 2)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = h_shift complete dim = 2)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = bias complete dim = 2)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = head_w complete dim = 2)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = head_w complete dim = 3)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = head_bias complete)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = state_h complete dim = 0)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = state_c complete dim = 0)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = x complete)
    int32_t acc[N_GROUP][KL_MAC_ROWS], z[N_GROUP][KL_MAC_ROWS];
    int64_t sum[KL_N_CLASS_MAX];
    KL_PRAGMA(HLS ARRAY_PARTITION variable = acc complete dim = 0)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = z complete dim = 0)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = sum complete)

    if (reset)
        reset_state();
    prepare(acc, z);
    const int good = input(x, acc, z);
logit_row:
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
        KL_PRAGMA(HLS UNROLL)
        sum[k] = head_bias[k];
    }
    head(sum);
logit:
    for (uint32_t k = 0; k < KL_TINY_N_CLASS; k++) {
        KL_PRAGMA(HLS UNROLL)
        logit[k] = good ? sum[k] : 0;
    }
    return good ? head_argmax(sum, KL_TINY_N_CLASS) : (uint32_t)KL_TINY_BAD_INPUT;
}
