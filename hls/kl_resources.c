/* Resource estimates from the build's parameters. Not synthesised.
 *
 * Sources: M, a block of this kind measured with Yosys 0.23, synth_xilinx -family xcup (LUTs unpacked); D,
 * vendor's documents; E, estimate by counting bits. A csynth report replaces an E or M line here, nothing
 * else. */
#include "kl_resources.h"

#include <string.h>

#include "kl_latency.h"
#include "weights.h"

enum {
    /* ---- products: DSP slices each; 0: in fabric ---- */
    DSP_MAC = 1, /* 16 x 16 in one DSP48E2, 27 x 18 bits (D: UG579; M) */
    DSP_F_C = 1, /* 16 x 27 (M): cell.c takes c's upper bound apart, the only value that needs 28 bits */
    DSP_I_G = 1,
    DSP_O_T = 1,
    DSP_T = 0,       /* D * t, in fabric as kl_latency.h has it */
    DSP_ADDRESS = 4, /* sizes and addresses in the loader (E) */

    /* ---- widths, bits ---- */
    OPERAND_BITS = 16, /* gates, too */
    C_BITS = 27,
    SUM_BITS = 32,
    LOGIT_BITS = 64,
    T_PER_LANE = 5, /* four gates and T(c') */
    T_ENTRY_BITS = 16,
    T_D_BITS = 10, /* the steepest segment rises by 512 steps */
    T_T_BITS = 14, /* segments are 2^14 steps of z wide */

    /* ---- logic ---- */
    LUT_PER_ADDER_BIT = 1, /* a carry chain: a tree of 16 sums takes 15 x 32 (M) */
    LUT_PRODUCT_HALVES =
        3, /* halves of a LUT per bit of partial product, in fabric (E; M: 5 to 7, not optimised for it) */
    LUT_PER_SHIFT_BIT = 3,  /* 32 bits shifted by up to 31: 4:1, 4:1 and 2:1. A row is 226 in all (M) */
    LUT_T = 32 + 32 + 16,   /* clamp at both ends, A + D * t rounded (M: 53) */
    LUT_CELL = 496,         /* c': sum, saturation; h: rounding to the binade (M) */
    LUT_CONVERT = 153,      /* binary16 to the grid, with its checks (M) */
    LUT_SEQUENCER = 2000,   /* (E), and its scoreboard */
    LUT_FRONT = 4000,       /* (E) */
    LUT_LOADER = 6000,      /* (E) */
    LUT_STATE_MOVES = 2000, /* (E) */
    N_M_AXI = 4,
    LUT_M_AXI = 1000, /* (E) */
    LUT_S_AXILITE = 1000,
    BRAM_M_AXI = 2, /* (E): read and write buffers */

    /* ---- memories ---- */
    BRAM_DEPTH_AT_WIDEST = 512, /* RAMB36: 72 x 512, 36 x 1,024 ... 1 x 32,768 (D: UG573; M) */
    URAM_BITS_WIDE = 72,        /* URAM288: 72 x 4,096, two ports that read or write (D: UG573; M) */
    URAM_DEPTH = 4096,
    URAM_PORTS = 2,
    LUTRAM_DEPTH_MAX = 64, /* deeper memories go to block RAM */
    LUTRAM_DEPTH = 32,     /* RAM32M16: 14 bits with a port of their own to read, in 8 LUTs (M) */
    LUTRAM_BITS_WIDE = 14,
    LUTRAM_LUTS = 8,
};

static uint32_t parts_of(uint32_t whole, uint32_t part)
{
    return (whole + part - 1) / part;
}

/* The best of a block RAM's shapes. */
static uint32_t bram_of(uint32_t bits, uint32_t depth)
{
    uint32_t least = UINT32_MAX;
    /* 72, 36, 18 and 9 bits use the parity bits, 4, 2 and 1 cannot. */
    static const uint32_t wide[] = {72, 36, 18, 9, 4, 2, 1};
    for (uint32_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        const uint32_t n = parts_of(bits, wide[i]) * parts_of(depth, (uint32_t)BRAM_DEPTH_AT_WIDEST << i);
        least = n < least ? n : least;
    }
    return least;
}

static uint32_t uram_of(uint32_t bits, uint32_t depth)
{
    return parts_of(bits, URAM_BITS_WIDE) * parts_of(depth, URAM_DEPTH);
}

static void add(struct kl_area *area, uint32_t dsp, uint32_t bram, uint32_t uram, uint32_t lut)
{
    area->used[KL_DSP] += dsp;
    area->used[KL_BRAM] += bram;
    area->used[KL_URAM] += uram;
    area->used[KL_LUT] += lut;
}

/* n products of so many bits. */
static void add_product(struct kl_area *area, uint32_t n, uint32_t dsp, uint32_t bits, uint32_t by_bits)
{
    add(area, n * dsp, 0, 0, dsp ? 0 : n * bits * by_bits * LUT_PRODUCT_HALVES / 2);
}

/* A memory that is small or has to be read at once. */
static void add_small(struct kl_area *area, uint32_t bits, uint32_t depth)
{
    if (depth > LUTRAM_DEPTH_MAX)
        add(area, 0, bram_of(bits, depth), 0, 0);
    else
        add(area, 0, 0, 0, parts_of(bits, LUTRAM_BITS_WIDE) * LUTRAM_LUTS * parts_of(depth, LUTRAM_DEPTH));
}

/* One of n words of so many bits: a LUT6 takes four to one. */
static uint32_t lut_select(uint32_t n, uint32_t bits)
{
    return parts_of(n - 1, 3) * bits;
}

/* ---- logic ---- */

static void estimate_mac(struct kl_area *area)
{
    const uint32_t tree = (KL_MAC_COLS - 1) * SUM_BITS * LUT_PER_ADDER_BIT;
    add_product(area, KL_MAC_ROWS * KL_MAC_COLS, DSP_MAC, OPERAND_BITS, OPERAND_BITS);
    add(area, 0, 0, 0, KL_MAC_ROWS * tree);
    /* Operand fetch: x is converted as it is taken in. */
    add(area, 0, 0, 0, KL_MAC_COLS * LUT_CONVERT);
    /* A column step out of x, two layers' new h, and the stored h. */
    add(area, 0, 0, 0, lut_select(KL_BUILD_IN / KL_MAC_COLS + 2 * KL_N_COL + 1, KL_MAC_COLS * OPERAND_BITS));
}

static void estimate_round(struct kl_area *area)
{
    /* acc: adder, and its start; z: shift, adder, and its start; both chosen by group. */
    const uint32_t row = 2 * SUM_BITS * LUT_PER_ADDER_BIT + 2 * lut_select(2, SUM_BITS) +
                         SUM_BITS * LUT_PER_SHIFT_BIT + 2 * lut_select(KL_N_GROUP, SUM_BITS);
    add(area, 0, 0, 0, KL_MAC_ROWS * row);
    add(area, 0, 0, 0, lut_select(KL_GROUP_PARTS, KL_CELL_LANES * KL_N_GATE * SUM_BITS)); /* a part's z */
}

static void estimate_cells(struct kl_area *area)
{
    add_product(area, KL_CELL_LANES, DSP_F_C, OPERAND_BITS, C_BITS);
    add_product(area, KL_CELL_LANES, DSP_I_G, OPERAND_BITS, OPERAND_BITS);
    add_product(area, KL_CELL_LANES, DSP_O_T, OPERAND_BITS, OPERAND_BITS);
    add_product(area, KL_CELL_LANES * T_PER_LANE, DSP_T, T_D_BITS, T_T_BITS);
    /* T reads two knots of one table: both ports of a block RAM. */
    add(area, 0, KL_CELL_LANES * T_PER_LANE * bram_of(T_ENTRY_BITS, KL_T_SEGMENTS + 1), 0,
        KL_CELL_LANES * (T_PER_LANE * LUT_T + LUT_CELL));
}

static void estimate_head(struct kl_area *area)
{
    const uint32_t tree = (KL_MAC_COLS - 1) * (SUM_BITS + 4) * LUT_PER_ADDER_BIT; /* wide: no block bound */
    const uint32_t compare =
        KL_N_CLASS_MAX * (KL_N_CLASS_MAX - 1) / 2 * LOGIT_BITS / 2; /* two bits per LUT */
    /* The products are the array's: its first rows choose between two weights. */
    add(area, 0, 0, 0, KL_N_CLASS_MAX * KL_MAC_COLS * lut_select(2, OPERAND_BITS));
    add(area, 0, 0, 0, KL_N_CLASS_MAX * (tree + LOGIT_BITS * LUT_PER_ADDER_BIT) + compare);
}

static void estimate_control(struct kl_area *area)
{
    enum { LOAD_ROW = KL_N_GATE * KL_OPERANDS };
    const uint32_t scoreboard = 2 * lut_select(KL_N_PART, 32);
    add(area, DSP_ADDRESS, 0, 0, LUT_SEQUENCER + scoreboard + LUT_FRONT + LUT_LOADER + LUT_STATE_MOVES);
    add_small(area, 64, LOAD_ROW); /* row bounds */
    add_small(area, 8, LOAD_ROW);  /* shifts of x and of h */
    add_small(area, 8, LOAD_ROW);
    add_small(area, 32, KL_N_REG);
    add_small(area, 16, KL_N_LAYER_MAX * KL_N_HIDDEN_MAX); /* a state on its way: h, c */
    add_small(area, 32, KL_N_LAYER_MAX * KL_N_HIDDEN_MAX);
}

/* ---- the large memories, and where they lie ---- */

struct memory {
    uint32_t bits, depth;
};

struct placement {
    uint32_t bram, uram;
    uint32_t in_uram; /* a bit per state memory */
};

enum { STATE_H, STATE_C, STATE_Z, N_STATE };

/* Weights of n rows: each row is a bank of its own, a column step wide. */
static uint32_t weights_bram(uint32_t n_row)
{
    return n_row * bram_of(KL_MAC_COLS * OPERAND_BITS, KL_BUILD_SLOTS * KL_BUILD_WORDS);
}

/* In UltraRAM two rows share a bank, one at either port, as long as both fit one's depth: a load never writes
 * in a cycle in which the array reads. */
static uint32_t weights_uram(uint32_t n_row)
{
    const uint32_t depth = KL_BUILD_SLOTS * KL_BUILD_WORDS;
    return depth * URAM_PORTS <= URAM_DEPTH
               ? parts_of(n_row, URAM_PORTS) * uram_of(KL_MAC_COLS * OPERAND_BITS, depth * URAM_PORTS)
               : n_row * uram_of(KL_MAC_COLS * OPERAND_BITS, depth);
}

/* The higher of both shares of an SLR of the U250 or U55C, as a comparable number. */
static uint64_t pressure(const struct placement *p, uint32_t other_bram, const uint32_t slr[KL_N_RESOURCE])
{
    const uint64_t bram = ((uint64_t)p->bram + other_bram) * slr[KL_URAM];
    const uint64_t uram = (uint64_t)p->uram * slr[KL_BRAM];
    return bram > uram ? bram : uram;
}

/* Every state memory in either kind, beside the weights as kl_build.h lays them: what has the lowest higher
 * share. kl_kernel.c binds them like this. */
static struct placement place(const struct memory state[N_STATE], uint32_t other_bram,
                              const uint32_t slr[KL_N_RESOURCE])
{
    struct placement best = {UINT32_MAX, UINT32_MAX, 0};
    for (uint32_t mask = 0; mask < 1u << N_STATE; mask++) {
        struct placement p = {weights_bram(KL_BRAM_ROWS), weights_uram(KL_URAM_ROWS), mask};
        for (uint32_t m = 0; m < N_STATE; m++) {
            if (mask >> m & 1)
                p.uram += uram_of(state[m].bits, state[m].depth);
            else
                p.bram += bram_of(state[m].bits, state[m].depth);
        }
        if (pressure(&p, other_bram, slr) < pressure(&best, other_bram, slr))
            best = p;
    }
    return best;
}

static void estimate_memories(struct kl_resources *out, uint32_t other_bram,
                              const uint32_t slr[KL_N_RESOURCE])
{
    enum {
        LINES = KL_BUILD_SLOTS * KL_BUILD_STREAMS * KL_BUILD_LAYERS, /* a line: one layer of one stream */
        GROUPS = KL_BUILD_SLOTS * KL_BUILD_LAYERS * KL_N_GROUP,
    };
    static const struct memory state[N_STATE] = {
        [STATE_H] = {KL_MAC_COLS * OPERAND_BITS, LINES * KL_N_COL},
        [STATE_C] = {KL_CELL_LANES * 32, LINES * KL_OWN_PARTS},
        [STATE_Z] = {KL_MAC_ROWS * SUM_BITS, LINES * KL_N_GROUP},
    };
    struct kl_area *weights = &out->area[KL_AREA_WEIGHTS];
    add_small(weights, KL_MAC_ROWS * SUM_BITS, GROUPS); /* biases; shifts of x and of h */
    add_small(weights, KL_MAC_ROWS * 8, GROUPS);
    add_small(weights, KL_MAC_ROWS * 8, GROUPS);
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++)
        add_small(weights, KL_MAC_COLS * OPERAND_BITS,
                  KL_BUILD_SLOTS * KL_N_COL); /* the head, a class each */
    const struct placement p = place(state, other_bram + weights->used[KL_BRAM], slr);
    out->n_row = KL_MAC_ROWS;
    out->n_row_uram = KL_URAM_ROWS;
    out->h_uram = p.in_uram >> STATE_H & 1;
    out->c_uram = p.in_uram >> STATE_C & 1;
    out->z_uram = p.in_uram >> STATE_Z & 1;
    const uint32_t bram = weights_bram(KL_BRAM_ROWS), uram = weights_uram(KL_URAM_ROWS);
    add(weights, 0, bram, uram, 0);
    add(&out->area[KL_AREA_STATE], 0, p.bram - bram, p.uram - uram, 0);
}

/* ---- cards ---- */

/* Whole devices. U250 and U55C: 12,288 and 9,024 DSP slices, 2,688 and 2,016 block RAMs, 1,280 and 960
 * UltraRAMs, 1,728,000 and 1,303,680 LUTs: AMD's data sheets DS962 and DS978, as reported by Vivado for
 * XCU250 and XCU55C. V80: AMD's published table of the card; not confirmed by a tool's report. */
static const struct kl_card cards[KL_N_CARD] = {
    {.name = "U250", .device = "XCU250", .n_slr = 4, .total = {12288, 2688, 1280, 1728000}},
    {.name = "U55C", .device = "XCU55C", .n_slr = 3, .total = {9024, 2016, 960, 1303680}},
    {.name = "V80", .device = "XCV80", .n_slr = 3, .total = {10848, 3741, 1925, 2574208}},
};

static void compare(struct kl_card *card, const struct kl_resources *out)
{
    for (int r = 0; r < KL_N_RESOURCE; r++) {
        const double share = 100.0 * out->used[r] / card->total[r];
        card->percent[r] = share;
        card->slr_percent[r] = share * card->n_slr / out->n_slr;
        card->warn[r] = card->slr_percent[r] > KL_RESOURCE_LIMIT_PERCENT;
    }
}

void kl_resources_estimate(struct kl_resources *out)
{
    static const char *const name[KL_N_AREA_UNIT] = {
        [KL_AREA_MAC] = "MAC array",   [KL_AREA_ROUND] = "block rounding",
        [KL_AREA_CELLS] = "cells",     [KL_AREA_HEAD] = "head",
        [KL_AREA_WEIGHTS] = "weights", [KL_AREA_STATE] = "state",
        [KL_AREA_CONTROL] = "control", [KL_AREA_AXI] = "AXI",
    };
    static const char *const resource[KL_N_RESOURCE] = {"dsp", "bram", "uram", "lut"};
    memset(out, 0, sizeof *out);
    out->n_slr = KL_N_SLR;
    memcpy(out->name, resource, sizeof resource);
    for (int u = 0; u < KL_N_AREA_UNIT; u++)
        out->area[u].name = name[u];
    estimate_mac(&out->area[KL_AREA_MAC]);
    estimate_round(&out->area[KL_AREA_ROUND]);
    estimate_cells(&out->area[KL_AREA_CELLS]);
    estimate_head(&out->area[KL_AREA_HEAD]);
    estimate_control(&out->area[KL_AREA_CONTROL]);
    add(&out->area[KL_AREA_AXI], 0, N_M_AXI * BRAM_M_AXI, 0, N_M_AXI * LUT_M_AXI + LUT_S_AXILITE);
    uint32_t other_bram = 0;
    for (int u = 0; u < KL_N_AREA_UNIT; u++)
        other_bram += out->area[u].used[KL_BRAM];
    uint32_t slr[KL_N_RESOURCE]; /* the U250's and the U55C's are alike in memories */
    for (int r = 0; r < KL_N_RESOURCE; r++)
        slr[r] = cards[0].total[r] / cards[0].n_slr;
    estimate_memories(out, other_bram, slr);

    for (int u = 0; u < KL_N_AREA_UNIT; u++)
        for (int r = 0; r < KL_N_RESOURCE; r++)
            out->used[r] += out->area[u].used[r];
    memcpy(out->card, cards, sizeof cards);
    for (int i = 0; i < KL_N_CARD; i++)
        compare(&out->card[i], out);
}
