/* Stamps of the poll loop's stages: whose time is whose, and nothing where nobody measures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "feed_builder.h"
#include "host/intake.h"
#include "host/trace.h"

enum { LONG_CYCLES = 200000 };

struct seen {
    int n;
    unsigned verdict;
    struct trace trace; /* as on_tick saw it */
};

static void on_tick(struct trace *trace, unsigned verdict)
{
    struct seen *seen = trace->ctx;
    seen->n++;
    seen->verdict = verdict;
    seen->trace = *trace;
}

static void work(uint64_t cycles)
{
    const uint64_t start = __rdtsc();
    while (__rdtsc() - start < cycles)
        ;
}

static uint64_t sum(const struct trace *trace)
{
    uint64_t cycles = 0;
    for (int s = 0; s < TRACE_N_STAGE; s++)
        cycles += trace->cycles[s] + trace->floor_cycles[s];
    return cycles;
}

static void test_nobody_measures(void **state)
{
    (void)state;
    trace_begin(NULL);
    trace_packet(NULL);
    trace_mark(NULL, TRACE_BOOK);
    trace_tick(NULL, 0);
}

/* All time between the first mark and the last is some stage's, or an empty stage's. */
static void test_stages(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct trace trace = {.on_tick = on_tick, .ctx = &seen};
    memset(trace.cycles, 0xff, sizeof(trace.cycles));
    trace_begin(&trace);
    assert_int_equal(sum(&trace), 0);
    work(LONG_CYCLES);
    trace_packet(&trace);
    assert_int_equal(trace.packets, 1);
    work(2 * LONG_CYCLES);
    trace_mark(&trace, TRACE_DECODE);
    trace_mark(&trace, TRACE_PUBLISH);
    work(LONG_CYCLES);
    trace_mark(&trace, TRACE_CHECK);
    work(3 * LONG_CYCLES);
    trace_mark(&trace, TRACE_PUBLISH);
    assert_true(trace.cycles[TRACE_RECEIVE] >= LONG_CYCLES);
    assert_true(trace.cycles[TRACE_DECODE] >= 2 * LONG_CYCLES);
    assert_true(trace.cycles[TRACE_CHECK] >= LONG_CYCLES);
    assert_true(trace.cycles[TRACE_PUBLISH] >= 3 * LONG_CYCLES);
    assert_int_equal(trace.cycles[TRACE_BOOK], 0);
    assert_int_equal(trace.reached,
                     1u << TRACE_RECEIVE | 1u << TRACE_DECODE | 1u << TRACE_CHECK | 1u << TRACE_PUBLISH);
    assert_int_equal(sum(&trace), trace.last - trace.first);
    assert_int_equal(seen.n, 0);
    trace_tick(&trace, 5);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.verdict, 5);
    assert_true(seen.trace.reached & 1u << TRACE_AUDIT);
    assert_int_equal(sum(&seen.trace), seen.trace.last - seen.trace.first);
}

/* A second tick of the packet has its own stages, and has reached the packet's, whose time is the first
 * one's; the next packet has none of them. */
static void test_second_tick(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct trace trace = {.on_tick = on_tick, .ctx = &seen};
    trace_begin(&trace);
    trace_packet(&trace);
    work(LONG_CYCLES);
    trace_mark(&trace, TRACE_DECODE);
    trace_mark(&trace, TRACE_BOOK);
    work(LONG_CYCLES);
    trace_mark(&trace, TRACE_FEATURES);
    trace_mark(&trace, TRACE_PUBLISH);
    trace_tick(&trace, 0);
    const struct seen first = seen;
    trace_mark(&trace, TRACE_FEATURES);
    trace_tick(&trace, 1);
    assert_int_equal(seen.n, 2);
    assert_true(first.trace.cycles[TRACE_DECODE] >= LONG_CYCLES);
    assert_int_equal(seen.trace.cycles[TRACE_DECODE], 0);
    assert_int_equal(sum(&seen.trace), seen.trace.last - seen.trace.first);
    assert_int_equal(seen.trace.cycles[TRACE_PUBLISH], 0);
    assert_int_equal(seen.trace.reached, 1u << TRACE_RECEIVE | 1u << TRACE_DECODE | 1u << TRACE_BOOK |
                                             1u << TRACE_FEATURES | 1u << TRACE_AUDIT);
    trace_begin(&trace);
    assert_int_equal(trace.reached, 0);
    assert_int_equal(sum(&trace), 0);
    assert_int_equal(trace.packets, 1);
}

static void ignore_tick(void *ctx, const struct intake_tick *tick)
{
    (void)ctx;
    (void)tick;
}

static void test_intake(void **state)
{
    (void)state;
    const struct intake_config config = {.market = {.limits = {.n_order = 10000, .n_level = 10000}}};
    const struct intake_handler handler = {.tick = ignore_tick};
    struct intake *intake = intake_create(&config, &handler);
    assert_non_null(intake);
    struct trace trace = {0};
    static struct feed_builder feed;
    const struct itch_msg message = feed_event('O', 1);
    for (int traced = 0; traced < 3; traced++) {
        intake_set_trace(intake, traced == 1 ? &trace : NULL);
        trace_begin(&trace);
        feed_begin(&feed);
        feed_add(&feed, &message);
        feed_frame(&feed, "SESSION001", (uint64_t)traced + 1, 1, FEED_GROUP_A);
        intake_frame(intake, feed.frame, (uint32_t)feed.frame_len, 1);
        assert_int_equal(trace.reached, traced == 1 ? 1u << TRACE_DECODE | 1u << TRACE_BOOK : 0);
    }
    intake_free(intake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_measures),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_second_tick),
        cmocka_unit_test(test_intake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
