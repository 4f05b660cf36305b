/* What a build takes of an FPGA, estimated: kl_build.resources. A model, not a synthesis result: the formulas
 * of kl_resources.c over the parameters of kl_build.h. A platform's shell (PCIe, DMA, memory controllers) is
 * not included, neither in what is used nor in what a card has left.
 *
 * The memories' figures count the weights where weights.h puts them: some rows in block RAM and some in
 * UltraRAM (n_row_uram). */
#ifndef KL_RESOURCES_H
#define KL_RESOURCES_H

#include "kl_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* DSP slices (DSP48E2, DSP58), block RAMs of 36 Kb, UltraRAMs of 288 Kb, LUTs. */
enum kl_resource { KL_DSP, KL_BRAM, KL_URAM, KL_LUT, KL_N_RESOURCE };

enum {
    KL_N_CARD = 3,
    KL_RESOURCE_LIMIT_PERCENT = 70, /* above it placement and timing become hard */
};

enum kl_area_unit {
    KL_AREA_MAC,     /* multipliers, adder trees, operand fetch */
    KL_AREA_ROUND,   /* block accumulators, shifts, z */
    KL_AREA_CELLS,   /* gates, T's tables, c', h */
    KL_AREA_HEAD,    /* weight selection, wide trees, argmax; the products are the array's */
    KL_AREA_WEIGHTS, /* both slots: weights, biases, shifts, head */
    KL_AREA_STATE,   /* h, c, prepared sums of all streams */
    KL_AREA_CONTROL, /* sequencer, controller, register block, loader, save and restore */
    KL_AREA_AXI,     /* the bus adapters that HLS puts at the ports */
    KL_N_AREA_UNIT
};

struct kl_area {
    const char *name;
    uint32_t used[KL_N_RESOURCE];
};

struct kl_card {
    const char *name;   /* U250, U55C, V80 */
    const char *device; /* its FPGA */
    uint32_t n_slr;
    uint32_t total[KL_N_RESOURCE];
    double percent[KL_N_RESOURCE];     /* of the card */
    double slr_percent[KL_N_RESOURCE]; /* of the SLRs that the build occupies (kl_resources.n_slr), each
                                          counted as an equal share of the card */
    uint8_t warn[KL_N_RESOURCE];       /* 1: slr_percent is above KL_RESOURCE_LIMIT_PERCENT */
};

struct kl_resources {
    uint32_t n_slr;
    const char *name[KL_N_RESOURCE]; /* dsp, bram, uram, lut */
    uint32_t used[KL_N_RESOURCE];    /* sum of area */
    uint32_t n_row, n_row_uram;      /* weight rows of the MAC array, and how many of them lie in UltraRAM */
    uint8_t h_uram, c_uram, z_uram;  /* where the state lies; 0: block RAM */
    struct kl_area area[KL_N_AREA_UNIT];
    struct kl_card card[KL_N_CARD];
};

/* kl_build.resources of the build that this is compiled for. */
void kl_resources_estimate(struct kl_resources *out);

#ifdef __cplusplus
}
#endif

#endif
