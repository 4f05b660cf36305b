/* Parameters of the named builds. One is chosen at compile time: -DKL_BUILD_SMALL, _FAST, _LARGE or _TINY.
 *
 * KL_MAC_ROWS x KL_MAC_COLS 16 x 16-bit multipliers work on a group (KL_MAC_ROWS adjacent rows: the four
 * gates of KL_GROUP_UNITS hidden units) and one column step (KL_MAC_COLS operands) per cycle. */
#ifndef KL_BUILD_H
#define KL_BUILD_H

#include "kl_abi.h"

#if defined(KL_BUILD_SMALL)
/* 512 MACs: a sixth of an SLR. */
#define KL_BUILD_NAME         "small"
#define KL_BUILD_SYMBOL(name) name##_small
enum {
    KL_MAC_ROWS = 32,
    KL_MAC_COLS = 16,
    KL_CELL_LANES = 8, /* units whose cell is updated per cycle */
    KL_N_SLR = 1,
    KL_BUILD_LAYERS = 3,
    KL_BUILD_UNITS = 128, /* hidden units per layer whose rows this unit holds */
    KL_BUILD_IN = 128,
    KL_BRAM_ROWS = 0,      /* of the MAC rows: their weights lie in block RAM, the others' in UltraRAM */
    KL_BUILD_WORDS = 2048, /* weight words per slot: room for half of a split 3 x 256 */
};
#elif defined(KL_BUILD_FAST)
/* 2,048 MACs, one SLR of a U250 or U55C. */
#define KL_BUILD_NAME         "fast"
#define KL_BUILD_SYMBOL(name) name##_fast
enum {
    KL_MAC_ROWS = 128,
    KL_MAC_COLS = 16,
    KL_CELL_LANES = 16,
    KL_N_SLR = 1,
    KL_BUILD_LAYERS = 2,
    KL_BUILD_UNITS = 128,
    KL_BUILD_IN = 128,
    KL_BRAM_ROWS = 76,
    KL_BUILD_WORDS = 256, /* half of what a 512-deep block RAM holds; room for half of a split 2 x 256 */
};
#elif defined(KL_BUILD_LARGE)
/* 4,096 MACs over two SLRs: each has half of a group's rows, h crosses over. */
#define KL_BUILD_NAME         "large"
#define KL_BUILD_SYMBOL(name) name##_large
enum {
    KL_MAC_ROWS = 128,
    KL_MAC_COLS = 32,
    KL_CELL_LANES = 32,
    KL_N_SLR = 2,
    KL_BUILD_LAYERS = 3,
    KL_BUILD_UNITS = 256,
    KL_BUILD_IN = 256,
    KL_BRAM_ROWS = 60,
    KL_BUILD_WORDS = 384, /* 3 x 256, 256 inputs */
};
#elif defined(KL_BUILD_TINY)
/* 64 MACs, for hls/tiny: the smallest array in which a layer has several groups, columns and cell parts. */
#define KL_BUILD_NAME         "tiny"
#define KL_BUILD_SYMBOL(name) name##_tiny
enum {
    KL_MAC_ROWS = 16,
    KL_MAC_COLS = 4,
    KL_CELL_LANES = 2,
    KL_N_SLR = 1,
    KL_BUILD_LAYERS = 1,
    KL_BUILD_UNITS = 8,
    KL_BUILD_IN = 8,
    KL_BRAM_ROWS = 12,
    KL_BUILD_WORDS = 12,
};
#else
#error "define KL_BUILD_SMALL, KL_BUILD_FAST, KL_BUILD_LARGE or KL_BUILD_TINY"
#endif

enum {
    KL_BUILD_SLOTS = KL_N_SLOT,
    KL_BUILD_STREAMS = KL_N_STREAM_MAX,

    KL_GROUP_UNITS = KL_MAC_ROWS / KL_N_GATE,
    KL_N_GROUP = KL_BUILD_UNITS / KL_GROUP_UNITS, /* per layer */
    KL_N_ROW = KL_N_GROUP * KL_MAC_ROWS,

    /* Operands of a layer: a unit of a split pair holds half of the rows and needs all of the h. */
    KL_OPERANDS = 2 * KL_BUILD_UNITS < KL_N_HIDDEN_MAX ? 2 * KL_BUILD_UNITS : KL_N_HIDDEN_MAX,
    KL_N_COL = KL_OPERANDS / KL_MAC_COLS, /* column steps of a whole operand vector */
    KL_BLOCK_COLS = KL_BLOCK / KL_MAC_COLS,

    /* A cell part: the units that the cell lanes update in one cycle. */
    KL_GROUP_PARTS = KL_GROUP_UNITS / KL_CELL_LANES,
    KL_N_PART = KL_OPERANDS / KL_CELL_LANES, /* of a whole h */
    KL_OWN_PARTS = KL_BUILD_UNITS / KL_CELL_LANES,
    KL_COL_PARTS = KL_MAC_COLS / KL_CELL_LANES, /* parts that fill a column step */

    /* Above layer 0 the columns are worked off in chunks, in the order in which the layer below delivers
     * them: the column steps of a group's units, or as many groups as fill a column step. */
    KL_CHUNK_COLS = KL_GROUP_UNITS > KL_MAC_COLS ? KL_GROUP_UNITS / KL_MAC_COLS : 1,
};
static_assert(KL_MAC_ROWS % KL_N_GATE == 0 && KL_GROUP_UNITS % KL_CELL_LANES == 0, "groups hold whole parts");
static_assert(KL_MAC_COLS % KL_CELL_LANES == 0, "a column step holds whole parts");
static_assert(KL_BLOCK % KL_MAC_COLS == 0, "a block holds whole column steps");
static_assert(KL_GROUP_UNITS % KL_MAC_COLS == 0 || KL_MAC_COLS % KL_GROUP_UNITS == 0, "chunks are whole");
static_assert((int)KL_BUILD_IN <= (int)KL_OPERANDS && KL_BUILD_IN % KL_MAC_COLS == 0, "x fits where h fits");
static_assert(KL_BUILD_UNITS % KL_GROUP_UNITS == 0 && KL_OPERANDS % KL_MAC_COLS == 0, "whole groups");
static_assert((int)KL_N_CLASS_MAX <= (int)KL_MAC_ROWS, "the head's rows fit the MAC array");

#endif
