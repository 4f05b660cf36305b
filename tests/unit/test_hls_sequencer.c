/* Cycles of small shapes, written out by hand from kl_latency.h: a change of a latency or of the schedule has
 * to be made here as well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hls/kl_latency.h"
#include "hls/sequencer.h"

#if defined(KL_BUILD_LARGE)
/* MAC 2 + 3 + 3 + 1 + 1; cell 4 + 3 + 1 + 4 + 3 + 2, and 2 to the other SLR; head 2 + 3 + 3 + 1 + 2 + 1. */
enum { DRAIN = 10 + 19, TO_USE = 10 + 19 - 1, TO_ANSWER = 12 };
#else
/* MAC 2 + 3 + 2 + 1 + 1; cell 4 + 3 + 1 + 4 + 3 + 2; head 2 + 3 + 2 + 1 + 2 + 1. */
enum { DRAIN = 9 + 17, TO_USE = 9 + 17 - 1, TO_ANSWER = 11 };
#endif
enum { FRAME = 2 + 1, DECODE = 2, LINK = 6 };

/* Column steps of n operands, by counting. */
static uint32_t columns_of(uint32_t n)
{
    uint32_t columns = 0;
    for (uint32_t at = 0; at < n; at += KL_MAC_COLS)
        columns++;
    return columns;
}

static void one_group_and_its_head(void **state)
{
    (void)state;
    /* A group of one column step at cycle 0; its h can be used at TO_USE, where the head has one column step.
     */
    const struct seq_shape shape = {.n_layer = 1, .n_in = 3, .n_class = 2, .n_hidden = {5}, .n_part = 1};
    assert_int_equal(seq_step_cycles(&shape, 1), DECODE + TO_USE + TO_ANSWER);
    assert_int_equal(seq_prepare_cycles(&shape), FRAME + 1 + DRAIN);
    assert_int_equal(seq_step_cycles(&shape, 0), DECODE + TO_USE + TO_ANSWER + 1 + DRAIN);

    struct sequencer s;
    struct seq_slot slot;
    seq_start(&s, &shape, SEQ_STEP);
    seq_next(&s, &slot);
    assert_int_equal(slot.kind, SEQ_X);
    assert_true(slot.first && slot.last && slot.block_first && slot.block_last);
    for (uint32_t cycle = 1; cycle < TO_USE; cycle++) {
        seq_next(&s, &slot);
        assert_int_equal(slot.kind, SEQ_BUBBLE);
        assert_false(slot.waits_for_peer);
        assert_false(s.done);
    }
    seq_next(&s, &slot);
    assert_int_equal(slot.kind, SEQ_HEAD);
    assert_int_equal(slot.layer, 1);
    assert_true(slot.first && slot.last && s.done);
}

static void a_layer_starts_while_the_one_below_ends(void **state)
{
    (void)state;
    /* Two groups of layer 0, a column step each. */
    const struct seq_shape shape = {.n_layer = 2,
                                    .n_in = KL_MAC_COLS,
                                    .n_class = 1,
                                    .n_hidden = {2 * KL_GROUP_UNITS, KL_GROUP_UNITS},
                                    .n_part = 1};
#if defined(KL_BUILD_SMALL)
    /* A group is one cell part: they end at 0 and 1. Layer 1 has one column step of both groups' parts, used
     * at 1 + TO_USE. The head's one column step: TO_USE later. */
    const uint32_t last = 1 + TO_USE + TO_USE;
    const uint32_t h_slots = 2 * 1 + 1;
#elif defined(KL_BUILD_FAST)
    /* A group is two cell parts: they end at 0 and, as the cells are busy, 2. Layer 1 has 4 column steps, a
     * part each: 0 + TO_USE, one more, 2 + TO_USE, 3 + TO_USE. The head's 2 column steps need the two parts
     * of that group: the second is there a cycle after the first. */
    const uint32_t last = 3 + TO_USE + TO_USE + 1;
    const uint32_t h_slots = 2 * 4 + 2;
#else
    /* A group is one cell part and one column step: they end at 0 and 1; layer 1 at TO_USE and 1 + TO_USE;
     * the head's one column step TO_USE later. */
    const uint32_t last = 1 + TO_USE + TO_USE;
    const uint32_t h_slots = 2 * 2 + 1;
#endif
    assert_int_equal(seq_step_cycles(&shape, 1), DECODE + last + TO_ANSWER);
    assert_int_equal(seq_prepare_cycles(&shape), FRAME + h_slots + DRAIN);
}

static void a_reset_goes_over_all_that_a_stream_has_room_for(void **state)
{
    (void)state;
    /* Layers, and parts of the largest h that a pair shares. */
#if defined(KL_BUILD_SMALL)
    assert_int_equal(seq_reset_cycles(), FRAME + 3 * 256 / 8);
#elif defined(KL_BUILD_FAST)
    assert_int_equal(seq_reset_cycles(), FRAME + 2 * 256 / 16);
#else
    assert_int_equal(seq_reset_cycles(), FRAME + 3 * 256 / 32);
#endif
}

static void blocks_end_at_64_operands_and_with_the_row(void **state)
{
    (void)state;
    /* 64 + 1 operands: the second block is one column step. */
    const struct seq_shape shape = {
        .n_layer = 1, .n_in = KL_BLOCK + 1, .n_class = 1, .n_hidden = {1}, .n_part = 1};
    struct sequencer s;
    struct seq_slot slot;
    const uint32_t n_col = KL_BLOCK / KL_MAC_COLS + 1;
    seq_start(&s, &shape, SEQ_STEP);
    for (uint32_t col = 0; col < n_col; col++) {
        seq_next(&s, &slot);
        assert_int_equal(slot.kind, SEQ_X);
        assert_int_equal(slot.col, col);
        assert_int_equal(slot.first, col == 0);
        assert_int_equal(slot.last, col == n_col - 1);
        assert_int_equal(slot.block_first, col == 0 || col == n_col - 1);
        assert_int_equal(slot.block_last, col >= n_col - 2);
    }
}

static void above_layer_0_columns_go_chunk_by_chunk(void **state)
{
    (void)state;
    /* Two groups of layer 1 over two groups of layer 0: both take in the first chunk before the second. */
    const struct seq_shape shape = {.n_layer = 2,
                                    .n_in = 1,
                                    .n_class = 1,
                                    .n_hidden = {2 * KL_CHUNK_COLS * KL_MAC_COLS, 2 * KL_GROUP_UNITS},
                                    .n_part = 1};
    struct sequencer s;
    struct seq_slot slot = {.kind = SEQ_BUBBLE};
    seq_start(&s, &shape, SEQ_STEP);
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        for (uint32_t group = 0; group < 2; group++) {
            for (uint32_t col = 0; col < KL_CHUNK_COLS; col++) {
                do
                    seq_next(&s, &slot);
                while (slot.kind == SEQ_BUBBLE || slot.layer == 0);
                assert_int_equal(slot.layer, 1);
                assert_int_equal(slot.group, group);
                assert_int_equal(slot.col, chunk * KL_CHUNK_COLS + col);
            }
        }
    }
}

static void weight_words_follow_each_other(void **state)
{
    (void)state;
    /* Groups: 2 and 1; column steps of 1 input: 1; of 2 * KL_GROUP_UNITS units: h0; of one group's: h1. */
    const struct seq_shape shape = {
        .n_layer = 2, .n_in = 1, .n_class = 1, .n_hidden = {2 * KL_GROUP_UNITS, KL_GROUP_UNITS}, .n_part = 1};
    const uint32_t h0 = columns_of(2 * KL_GROUP_UNITS);
    const uint32_t h1 = columns_of(KL_GROUP_UNITS);
    assert_int_equal(seq_word_base(&shape, 0, 0), 0);
    assert_int_equal(seq_word_base(&shape, 0, 1), 2);
    assert_int_equal(seq_word_base(&shape, 1, 0), 2 + 2 * h0);
    assert_int_equal(seq_word_base(&shape, 1, 1), 2 + 2 * h0 + h0);
    assert_int_equal(seq_word_base(&shape, KL_BUILD_LAYERS, 0), 2 + 2 * h0 + h0 + h1);
}

static void a_pair_takes_groups_in_turn(void **state)
{
    (void)state;
    struct seq_shape shape = {
        .n_layer = 1, .n_in = 1, .n_class = 1, .n_hidden = {2 * KL_GROUP_UNITS + 1}, .n_part = 2};
    assert_int_equal(seq_n_group(&shape, 0), 2); /* 0 and 2 */
    assert_int_equal(seq_part_of(&shape, 1, 0), 2 * KL_GROUP_PARTS);
    shape.part = 1;
    assert_int_equal(seq_n_group(&shape, 0), 1); /* 1 */
    assert_int_equal(seq_part_of(&shape, 0, 0), KL_GROUP_PARTS);
}

static void a_unit_waits_for_its_peers_part(void **state)
{
    (void)state;
    /* One group, held by part 0: part 1 has the head only, and waits for every part of h from the start. */
    const struct seq_shape shape = {
        .n_layer = 1, .n_in = 1, .n_class = 1, .n_hidden = {KL_GROUP_UNITS}, .part = 1, .n_part = 2};
    struct sequencer s;
    struct seq_slot slot;
    seq_start(&s, &shape, SEQ_STEP);
    for (uint8_t part = 0; part < KL_GROUP_PARTS; part++) {
        do
            seq_next(&s, &slot);
        while (slot.kind == SEQ_HEAD); /* a column step that the parts before have filled */
        assert_int_equal(slot.kind, SEQ_BUBBLE);
        assert_true(slot.waits_for_peer);
        assert_int_equal(slot.layer, 0);
        assert_int_equal(slot.part, part);
        seq_peer_part(&s, 0, part);
    }
    seq_next(&s, &slot);
    assert_int_equal(slot.kind, SEQ_HEAD);
    assert_true(s.done);
    /* The pair's step: part 0 completes at cycle 0; its first part arrives LINK later than it could be
     * used there. From there on a part is taken in a cycle, and a column step goes the cycle after its last
     * part. */
    const uint32_t n_head = columns_of(KL_GROUP_UNITS);
    assert_int_equal(seq_step_cycles(&shape, 1),
                     DECODE + TO_USE + LINK + KL_GROUP_PARTS + n_head - 1 - 1 + TO_ANSWER);
}

/* Modelled at 300 MHz, input and output not included: 2 x 128 with 128 inputs within 0.40 us on fast and 0.30
 * us on large, 3 x 256 within 1.0 us on large. */
static void steps_meet_their_targets(void **state)
{
    (void)state;
#if !defined(KL_BUILD_SMALL)
    const struct seq_shape two = {
        .n_layer = 2, .n_in = 128, .n_class = 8, .n_hidden = {128, 128}, .n_part = 1};
    assert_in_range(seq_step_cycles(&two, 1), 1, KL_N_SLR > 1 ? 90 : 120);
#endif
#if defined(KL_BUILD_LARGE)
    const struct seq_shape three = {
        .n_layer = 3, .n_in = 256, .n_class = 8, .n_hidden = {256, 256, 256}, .n_part = 1};
    assert_in_range(seq_step_cycles(&three, 1), 1, 300);
#endif
#if defined(KL_BUILD_FAST)
    /* By hand: layer 0's groups end at 7, 15, 23, 31. Layer 1 starts at 32, its first h is there; 8 slots per
     * chunk, the last of 4 chunks from 56 on: its groups end at 57, 59, 61, 63. The head's last column step
     * needs the second part of the last one. */
    assert_int_equal(seq_step_cycles(&two, 1), DECODE + 63 + TO_USE + 1 + TO_ANSWER);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_group_and_its_head),
        cmocka_unit_test(a_layer_starts_while_the_one_below_ends),
        cmocka_unit_test(a_reset_goes_over_all_that_a_stream_has_room_for),
        cmocka_unit_test(blocks_end_at_64_operands_and_with_the_row),
        cmocka_unit_test(above_layer_0_columns_go_chunk_by_chunk),
        cmocka_unit_test(weight_words_follow_each_other),
        cmocka_unit_test(a_pair_takes_groups_in_turn),
        cmocka_unit_test(a_unit_waits_for_its_peers_part),
        cmocka_unit_test(steps_meet_their_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
