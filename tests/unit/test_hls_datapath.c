#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/hls_example.h"

enum { SLOT = 1, STREAM = 7, SEQ_NO = 42 };

static struct kl_core *core;

/* One operation of the stream to its end. Returns the cycles of its schedule. */
static uint32_t run(enum seq_mode mode, const uint16_t *x)
{
    uint16_t whole[KL_N_IN_MAX] = {0};
    if (x)
        memcpy(whole, x, sizeof example_x);
    core->run.slot = SLOT;
    core->run.stream = STREAM;
    core->run.seq_no = SEQ_NO;
    core_take_x(core, whole, core->model[SLOT].shape.n_in, 0);
    datapath_start(core, mode);
    while (datapath_cycle(core, NULL, NULL))
        ;
    return core->run.sequencer.now;
}

static int set_up(void **state)
{
    (void)state;
    core = tb_unit_core(0, 0, 1);
    return example_load(core, SLOT) == 0;
}

static void assert_unit(uint32_t unit, int16_t h, int32_t c)
{
    assert_int_equal(core->h[SLOT][STREAM][0][0][unit], h);
    assert_int_equal(core->c[SLOT][STREAM][0][0][unit], c);
}

static void two_steps_of_the_example(void **state)
{
    (void)state;
    const uint16_t zero[2] = {0, 0};
    const uint16_t *x[2] = {example_x, zero};
    const int32_t one = 1 << KL_Z_FRAC;
    for (int n = 0; n < 2; n++) {
        assert_int_equal(run(SEQ_PREPARE, NULL), 1); /* one group of one column step */
        const int32_t *prepared = core->z[SLOT][STREAM][0][0];
        assert_int_equal(prepared[EXAMPLE_O], 8 * one);
        assert_int_equal(prepared[KL_N_GATE + EXAMPLE_G], n == 0 ? 0 : 242304);
        assert_int_equal(prepared[KL_N_GATE + EXAMPLE_I], 0);
        run(SEQ_STEP, x[n]);
        assert_true(core->run.x_good);
        assert_int_equal(core->seen_z[0][0][EXAMPLE_I], 0);
        assert_int_equal(core->seen_z[0][0][EXAMPLE_G], n == 0 ? 8 * one : 0);
        assert_int_equal(core->seen_z[0][0][EXAMPLE_O], 8 * one);
        assert_int_equal(core->seen_z[0][0][KL_N_GATE + EXAMPLE_G], n == 0 ? 0 : 242304);
        for (uint32_t unit = 0; unit < 2; unit++) {
            assert_unit(unit, example_h[n][unit], example_c[n][unit]);
            assert_true(core->run.logit[unit] == example_logit[n][unit]);
        }
        assert_unit(2, 0, 0); /* beyond the shape: zero rows keep it at rest */
        assert_true(core->run.logit[2] == 0);
    }
}

static void a_step_starts_from_the_prepared_sums(void **state)
{
    (void)state;
    /* z comes from memory, not from bias and h: sums put there by hand show. */
    run(SEQ_PREPARE, NULL);
    core->z[SLOT][STREAM][0][0][KL_N_GATE + EXAMPLE_F] = 1234567;
    run(SEQ_STEP, example_x);
    assert_int_equal(core->seen_z[0][0][KL_N_GATE + EXAMPLE_F], 1234567);
}

static void other_streams_and_slots_are_left_alone(void **state)
{
    (void)state;
    run(SEQ_PREPARE, NULL);
    run(SEQ_STEP, example_x);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        for (uint32_t stream = 0; stream < KL_BUILD_STREAMS; stream++) {
            if (slot == SLOT && stream == STREAM)
                continue;
            assert_int_equal(core->h[slot][stream][0][0][0], 0);
            assert_int_equal(core->c[slot][stream][0][0][0], 0);
            assert_int_equal(core->z[slot][stream][0][0][EXAMPLE_O], 0);
        }
    }
}

/* Part 1 of a pair holds none of the example's rows: it needs h of part 0 for its head. */
static uint32_t start_as_part_1(void)
{
    core = tb_unit_core(0, 1, 2);
    assert_true(example_load(core, SLOT) != 0);
    core->run.slot = SLOT;
    core->run.stream = STREAM;
    core->run.seq_no = SEQ_NO;
    datapath_start(core, SEQ_STEP);
    return core->run.sequencer.now;
}

static struct link_word word_of(uint32_t seq_no)
{
    struct link_word word = {.seq_no = seq_no};
    word.h[0] = example_h[0][0];
    return word;
}

static void h_of_the_other_unit_comes_over_the_link(void **state)
{
    (void)state;
    struct link in = {.head = 0}, out = {.head = 0};
    const struct link_word word = word_of(SEQ_NO);
    const uint32_t now = start_as_part_1();
    link_send(&in, &word, now + 10);
    while (datapath_cycle(core, &in, &out))
        ;
    assert_false(core->run.peer_failed);
    assert_int_equal(core->h[SLOT][STREAM][0][0][0], example_h[0][0]);
    assert_true(core->run.logit[0] == example_logit[0][0] && core->run.logit[1] == example_logit[0][1]);
    /* Sent at 10, there KL_LAT_LINK later, in the cycle that ends then; the head in the next. */
    assert_int_equal(core->run.sequencer.now, 10 + KL_LAT_LINK + 1);
    assert_int_equal(out.tail, 0);
}

static void another_requests_h_stops_the_step(void **state)
{
    (void)state;
    struct link in = {.head = 0}, out = {.head = 0};
    const struct link_word word = word_of(SEQ_NO + 1);
    link_send(&in, &word, start_as_part_1());
    while (datapath_cycle(core, &in, &out))
        ;
    assert_true(core->run.peer_failed);
    assert_int_equal(core->h[SLOT][STREAM][0][0][0], 0);
}

static void a_silent_peer_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    struct link in = {.head = 0}, out = {.head = 0};
    uint32_t n = 1;
    start_as_part_1();
    while (datapath_cycle(core, &in, &out))
        n++;
    assert_true(core->run.peer_failed);
    assert_int_equal(n, LINK_PATIENCE + 1);
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_steps_of_the_example),
        TEST(a_step_starts_from_the_prepared_sums),
        TEST(other_streams_and_slots_are_left_alone),
        TEST(h_of_the_other_unit_comes_over_the_link),
        TEST(another_requests_h_stops_the_step),
        TEST(a_silent_peer_is_not_waited_for_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
