/* Operator latencies in cycles at 300 MHz (3.3 ns) on UltraScale+, and the pipeline depths that follow: the
 * one table behind every modelled cycle. A synthesis report replaces a line here, nothing else.
 *
 * A latency counts from registered inputs to the registered output. */
#ifndef KL_LATENCY_H
#define KL_LATENCY_H

#include "kl_build.h"

enum {
    KL_LAT_BRAM = 2, /* block RAM: a clock edge, and its output register (UG573, "Read Operation", "Optional
                        Output Registers") */
    KL_LAT_OPERAND = 1,  /* selection of a column step from registers, and its fan-out to the rows */
    KL_LAT_MULTIPLY = 3, /* 16 x 16 in one DSP48E2, A/B, M and P registers (UG579): 775 MHz (DS923, -2, "all
                            registers used") */
    /* One more DSP behind it in the cascade (P + A * B): UG579, PCIN. f * c + i * g. */
    KL_LAT_CASCADE = 1,
    /* Two levels of 32-bit carry chains per cycle. */
    KL_LAT_TREE = KL_MAC_COLS > 16  ? 3
                  : KL_MAC_COLS > 4 ? 2
                                    : 1,
    KL_LAT_ACCUMULATE = 1,  /* column steps into a block */
    KL_LAT_ROUND_BLOCK = 1, /* row shift and addition to z; half is in the accumulator's start */
    /* T: clamp and split 1; A and D from a block RAM without output register 1; D * t, at most 10 x 14 bits,
     * in fabric 1; + A, rounded 1. */
    KL_LAT_ACTIVATE = 4,
    KL_LAT_ROUND_H = 2, /* to binary16: the binade; rounding and bound */
    /* h goes to the other SLR: UG1399, "Managing Interfaces with SSI Technology Devices", asks for a register
     * at the output and at the input. */
    KL_LAT_SLR = KL_N_SLR > 1 ? 2 : 0,
    KL_LAT_DECODE =
        2, /* checks of a request's fields; the slot's descriptor. x was taken in before, as it came */
    KL_LAT_CONVERT = 2, /* binary16 to grid steps: shift and check; bound and sign */
    KL_LAT_ARGMAX = 2,  /* all pairs compared; one selected */
    KL_LAT_RESULT = 1,  /* into the result ring */
    KL_LAT_CHECK = 1,   /* 13 words at every bit of an XOR tree: two levels of LUT6 */
    KL_LAT_LINK = 6, /* AXI4-Stream to the other unit of a pair: output register, SLR crossing, FIFO, input */

    /* From a slot of the sequencer to z of its row: the weight's read covers the operand's. */
    KL_DEPTH_MAC = KL_LAT_BRAM + KL_LAT_MULTIPLY + KL_LAT_TREE + KL_LAT_ACCUMULATE + KL_LAT_ROUND_BLOCK,
    /* From z to h: gates; c' = f * c + i * g, whose saturation is off this path (T clamps by itself); T(c');
     * o * T(c'); rounding; and over to the other SLR. */
    KL_DEPTH_CELL = KL_LAT_ACTIVATE + KL_LAT_MULTIPLY + KL_LAT_CASCADE + KL_LAT_ACTIVATE + KL_LAT_MULTIPLY +
                    KL_LAT_ROUND_H + KL_LAT_SLR,
    /* From the slot that completes a group to the first slot that may use its h. That slot reads its operands
     * KL_LAT_OPERAND before its weights are there, so it may start as much earlier. */
    KL_DEPTH_H = KL_DEPTH_MAC + KL_DEPTH_CELL - (KL_LAT_BRAM - KL_LAT_OPERAND),
    /* From the head's last slot to the answer. */
    KL_DEPTH_HEAD =
        KL_LAT_BRAM + KL_LAT_MULTIPLY + KL_LAT_TREE + KL_LAT_ACCUMULATE + KL_LAT_ARGMAX + KL_LAT_RESULT,
    /* The main loop's last iteration through all its stages: what stands behind the loop waits for it. A
     * step's answer does not, it leaves from inside; a prepare's z is then long written. */
    KL_DEPTH_DRAIN = KL_DEPTH_MAC + KL_DEPTH_CELL,
    /* A request that does nothing else. */
    KL_FRAME = KL_LAT_DECODE + KL_LAT_RESULT,
};
static_assert(KL_MAC_COLS == 4 || KL_MAC_COLS == 16 || KL_MAC_COLS == 32, "the adder tree's depth");

#endif
