/* Modelled cycles: what the pragmas of lstm_cell.c and kl_core.c schedule, with these pipeline depths. The
 * depths are estimates for UltraScale+ at 250-300 MHz, to be replaced by the first synthesis report; the loop
 * counts are exact for this source. Integers only. */
#include "kl_core.h"

enum {
    /* Framing of a request at 64 bytes per cycle. */
    READ_REQUEST = 3, /* sizeof(struct kl_request) / 64 beats */
    DECODE = 2,       /* checks of the header fields, slot and stream lookup */
    CHECK_X = 2,      /* binary16 to grid steps: 32 operands per beat, behind the beats */
    FETCH_STATE = 2,  /* block RAM read with output register */
    WRITE_RESULT = 2, /* sizeof(struct kl_result) / 64 beats */
    COMMIT = 1,       /* done flag */
    FRAME = READ_REQUEST + DECODE + CHECK_X + FETCH_STATE + WRITE_RESULT + COMMIT,

    /* Depth of one product: the first weight word's way to its sum. */
    READ_WEIGHT = 2, /* block RAM with output register */
    MULTIPLY = 3,    /* DSP48E2, fully registered */
    ADDER_TREE = 2,  /* 16 columns: four levels, two per cycle */
    ACCUMULATE = 1,  /* four beats of a block into one sum */
    ROUND_BLOCK = 1, /* half, shift, add to z */
    PRODUCT_DEPTH = READ_WEIGHT + MULTIPLY + ADDER_TREE + ACCUMULATE + ROUND_BLOCK,

    STORE = 1, /* z, or c and h, back to their memory */

    /* Depth of T: clamp and split 1, knots 2 (block RAM with output register), D * t 3, round and add 1. */
    ACTIVATE = 7,
    /* Depth of the cell update behind the gates' T: f * c 4 (16 x 28 bits: two DSPs), sum and saturation 2,
     * T(c), o * T(c) 3, rounding to binary16 2. */
    UPDATE = ACTIVATE + 4 + 2 + ACTIVATE + 3 + 2,

    ARGMAX = 3, /* three levels of compares over 8 classes */

    WORD_II = KL_BLOCK / KL_MAC_COLS, /* of the loops over weight words, and of the head's over blocks */
};
static_assert(READ_REQUEST == sizeof(struct kl_request) / 64, "beats of 64 bytes");
static_assert(WRITE_RESULT == sizeof(struct kl_result) / 64, "beats of 64 bytes");
static_assert(KL_MAC_COLS == 16 && KL_N_CLASS_MAX == 8, "the trees' depths");
static_assert(KL_N_CLASS_MAX <= KL_MAC_ROWS, "the head's rows fit the MAC array at once");

static uint32_t n_block(uint32_t n_operand)
{
    return (n_operand + KL_BLOCK - 1) / KL_BLOCK;
}

static uint32_t n_group(uint32_t n_hidden)
{
    return (KL_N_GATE * n_hidden + KL_MAC_ROWS - 1) / KL_MAC_ROWS;
}

/* The recurrent products of all layers: WORD_II * groups * blocks + depth each. */
static uint32_t prepare_body_cycles(const struct kl_image_header *header)
{
    uint32_t cycles = 0;
layer:
    for (uint32_t l = 0; l < header->n_layer; l++) {
        const uint32_t hidden = header->n_hidden[l];
        cycles += WORD_II * n_group(hidden) * n_block(hidden) + PRODUCT_DEPTH + STORE;
    }
    return cycles;
}

uint32_t kl_schedule_frame_cycles(void)
{
    return FRAME;
}

uint32_t kl_schedule_prepare_cycles(const struct kl_image_header *header)
{
    return FRAME + prepare_body_cycles(header);
}

/* Each layer waits for all of h below it. The cell update costs its depth only: it takes a group of units per
 * WORD_II cycles, as fast as the products deliver them. */
uint32_t kl_schedule_step_cycles(const struct kl_image_header *header, int prepared)
{
    uint32_t cycles = FRAME + (prepared ? 0 : prepare_body_cycles(header));
    uint32_t n_operand = header->n_in;
layer:
    for (uint32_t l = 0; l < header->n_layer; l++) {
        const uint32_t hidden = header->n_hidden[l];
        cycles += WORD_II * n_group(hidden) * n_block(n_operand) + PRODUCT_DEPTH + ACTIVATE + UPDATE + STORE;
        n_operand = hidden;
    }
    return cycles + WORD_II * n_block(n_operand) + READ_WEIGHT + MULTIPLY + ADDER_TREE + ACCUMULATE + ARGMAX;
}

/* One group of units per cycle, layer after layer. */
uint32_t kl_schedule_reset_cycles(const struct kl_image_header *header)
{
    uint32_t cycles = FRAME + STORE;
layer:
    for (uint32_t l = 0; l < header->n_layer; l++)
        cycles += n_group(header->n_hidden[l]);
    return cycles;
}
