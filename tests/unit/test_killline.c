/* The kill line's functions at their edges: threshold - 1, threshold, threshold + 1, wraps, stamps in the
 * future, clocks that go back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "host/killline.h"

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 signed_wide;

static const uint64_t thresholds[] = {
    0, 1, 2, 1000, 100000, 299999, UINT32_MAX, UINT64_MAX / 2, UINT64_MAX / 2 + 1, UINT64_MAX - 1};
enum { N_THRESHOLD = sizeof(thresholds) / sizeof(thresholds[0]) };

static uint64_t random_state;

static uint64_t random64(void) /* xorshift */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t random_magnitude(void)
{
    const uint64_t v = random64();
    return v >> (random64() & 63);
}

static int random_setup(void **state)
{
    (void)state;
    random_state = 88172645463325252u;
    return 0;
}

static void last_check_at_the_edge(void **state)
{
    (void)state;
    for (int i = 0; i < N_THRESHOLD; i++) {
        const uint64_t t = thresholds[i];
        if (t > 0)
            assert_int_equal(killline_verdict(t - 1, t, 0), VERDICT_PUBLISHED);
        assert_int_equal(killline_verdict(t, t, 0), VERDICT_PUBLISHED);
        assert_int_equal(killline_verdict(t + 1, t, 0), VERDICT_STALE);
    }
}

static void halted_wins(void **state)
{
    (void)state;
    for (int i = 0; i < N_THRESHOLD; i++)
        for (int halted = -1; halted <= 2; halted += 1 + (halted == -1)) {
            const uint64_t t = thresholds[i];
            assert_int_equal(killline_verdict(0, t, halted), VERDICT_HALTED);
            assert_int_equal(killline_verdict(t, t, halted), VERDICT_HALTED);
            assert_int_equal(killline_verdict(t + 1, t, halted), VERDICT_HALTED);
            assert_int_equal(killline_verdict(KILLLINE_AGE_NEVER, t, halted), VERDICT_HALTED);
        }
}

/* An age that is not known, and a threshold that is none. */
static void never_is_never(void **state)
{
    (void)state;
    for (int i = 0; i < N_THRESHOLD; i++) {
        assert_int_equal(killline_verdict(KILLLINE_AGE_NEVER, thresholds[i], 0), VERDICT_STALE);
        assert_false(killline_can_make(KILLLINE_AGE_NEVER, 0, thresholds[i]));
    }
    assert_int_equal(killline_verdict(KILLLINE_AGE_NEVER, KILLLINE_AGE_NEVER, 0), VERDICT_STALE);
    assert_int_equal(killline_verdict(0, KILLLINE_AGE_NEVER, 0), VERDICT_STALE);
    assert_int_equal(killline_verdict(1000, KILLLINE_AGE_NEVER, 0), VERDICT_STALE);
}

static void first_check_at_the_edge(void **state)
{
    (void)state;
    for (int i = 0; i < N_THRESHOLD; i++)
        for (uint64_t age = 0; age < 3; age++) {
            const uint64_t t = thresholds[i];
            if (age > t) {
                assert_false(killline_can_make(age, 0, t));
                continue;
            }
            const uint64_t left = t - age;
            assert_true(killline_can_make(age, left, t));
            if (left > 0)
                assert_true(killline_can_make(age, left - 1, t));
            assert_false(killline_can_make(age, left + 1, t));
        }
    for (int i = 0; i < N_THRESHOLD; i++) {
        const uint64_t t = thresholds[i];
        assert_true(killline_can_make(t, 0, t));
        assert_false(killline_can_make(t, 1, t));
        assert_false(killline_can_make(t + 1, 0, t));
        if (t > 0)
            assert_true(killline_can_make(t - 1, 1, t));
    }
    /* where age + expected would wrap, the answer is still no */
    assert_false(killline_can_make(10, UINT64_MAX - 5, 100));
    assert_false(killline_can_make(UINT64_MAX, 1, 100));
    assert_false(killline_can_make(100, UINT64_MAX, 100));
}

static void age_is(uint64_t arrival, uint32_t arrival_epoch, uint64_t now, uint32_t epoch,
                   uint64_t future_max, uint64_t age, enum killline_quality quality)
{
    enum killline_quality q = (enum killline_quality)77;
    assert_true(killline_age(arrival, arrival_epoch, now, epoch, future_max, &q) == age);
    assert_int_equal(q, quality);
}

static void age_across_a_wrap(void **state)
{
    (void)state;
    age_is(5, 0, 5, 0, 0, 0, KILLLINE_AGE_EXACT);
    age_is(5, 0, 6, 0, 0, 1, KILLLINE_AGE_EXACT);
    age_is(UINT64_MAX, 0, 0, 0, 0, 1, KILLLINE_AGE_EXACT);
    age_is(UINT64_MAX - 9, 0, 90, 0, 0, 100, KILLLINE_AGE_EXACT);
    age_is(UINT64_MAX, 3, UINT64_MAX, 3, 0, 0, KILLLINE_AGE_EXACT);
    /* the longest age that is told from a stamp in the future, and one more */
    age_is(7, 0, 7 + (uint64_t)INT64_MAX, 0, 1000, INT64_MAX, KILLLINE_AGE_EXACT);
    age_is(7, 0, 8 + (uint64_t)INT64_MAX, 0, 1000, KILLLINE_AGE_NEVER, KILLLINE_AGE_UNKNOWN);
}

static void age_of_a_stamp_in_the_future(void **state)
{
    (void)state;
    static const uint64_t at[] = {0,         1, 999, 1000, UINT64_MAX / 2, UINT64_MAX - 1000, UINT64_MAX - 1,
                                  UINT64_MAX};
    static const uint64_t future_max[] = {0, 1, 2, 1000, INT64_MAX};
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        for (size_t k = 0; k < sizeof(future_max) / sizeof(future_max[0]); k++) {
            const uint64_t now = at[i], f = future_max[k];
            age_is(now, 0, now, 0, f, 0, KILLLINE_AGE_EXACT);
            if (f > 0) {
                age_is(now + 1, 0, now, 0, f, 0, KILLLINE_AGE_CLAMPED);
                age_is(now + f, 0, now, 0, f, 0, KILLLINE_AGE_CLAMPED);
            }
            age_is(now + f + 1, 0, now, 0, f, KILLLINE_AGE_NEVER, KILLLINE_AGE_UNKNOWN);
        }
}

static void age_of_another_epoch_is_unknown(void **state)
{
    (void)state;
    static const uint32_t epoch[][2] = {{0, 1}, {1, 0}, {0, UINT32_MAX}, {UINT32_MAX, 0}, {7, 9}};
    static const uint64_t ahead[] = {0, 1, 10, 11, UINT64_MAX, UINT64_MAX / 2}; /* UINT64_MAX: one behind */
    for (size_t i = 0; i < sizeof(epoch) / sizeof(epoch[0]); i++)
        for (size_t k = 0; k < sizeof(ahead) / sizeof(ahead[0]); k++)
            age_is(500 + ahead[k], epoch[i][0], 500, epoch[i][1], 10, KILLLINE_AGE_NEVER,
                   KILLLINE_AGE_UNKNOWN);
}

static void clock_that_goes_on_stands_still_and_goes_back(void **state)
{
    (void)state;
    struct killline_clock clock = {.last = UINT64_MAX - 5};
    assert_int_equal(killline_look(&clock, UINT64_MAX - 5), 0); /* stands still */
    assert_int_equal(killline_look(&clock, UINT64_MAX), 0);
    assert_int_equal(killline_look(&clock, 0), 0); /* wraps */
    assert_int_equal(killline_look(&clock, 100), 0);
    assert_int_equal(killline_look(&clock, 99), 1); /* by one */
    assert_int_equal(killline_look(&clock, 99), 1);
    assert_int_equal(killline_look(&clock, UINT64_MAX), 2); /* back across the wrap */
    assert_int_equal(killline_look(&clock, 98), 2); /* and on, though below an earlier epoch's reading */
    assert_int_equal(killline_look(&clock, 98 + (uint64_t)INT64_MAX), 2); /* the longest leap ahead */
    assert_int_equal(killline_look(&clock, 98), 3);
    clock.epoch = UINT32_MAX;
    assert_int_equal(killline_look(&clock, 97), 0); /* another one, all the same */
    assert_true(clock.last == 97);
}

/* Against wider integers, over many random values of all magnitudes. */
static void functions_equal_wide_arithmetic(void **state)
{
    (void)state;
    for (int i = 0; i < 1000000; i++) {
        const uint64_t age = random_magnitude(), expected = random_magnitude(),
                       threshold = random_magnitude();
        assert_int_equal(killline_can_make(age, expected, threshold) != 0, (wide)age + expected <= threshold);
        assert_int_equal(killline_verdict(age, threshold, 0),
                         age <= threshold && threshold != UINT64_MAX ? VERDICT_PUBLISHED : VERDICT_STALE);

        const uint32_t n = (uint32_t)random_magnitude();
        const wide sum = age + (wide)expected * (n ? n - 1 : 0);
        assert_true(killline_expect_batch(age, expected, n) ==
                    (sum > UINT64_MAX ? UINT64_MAX : (uint64_t)sum));

        /* a true distance, and its ends anywhere on the circle */
        const signed_wide distance = (signed_wide)(random_magnitude() >> 1) * (random64() & 1 ? 1 : -1);
        const uint64_t arrival = random64(), now = (uint64_t)((signed_wide)arrival + distance);
        const uint64_t future_max = random_magnitude() >> 1;
        enum killline_quality quality;
        const uint64_t got = killline_age(arrival, 4, now, 4, future_max, &quality);
        assert_int_equal(quality, distance >= 0                          ? KILLLINE_AGE_EXACT
                                  : -distance <= (signed_wide)future_max ? KILLLINE_AGE_CLAMPED
                                                                         : KILLLINE_AGE_UNKNOWN);
        assert_true(got == (distance >= 0                     ? (uint64_t)distance
                            : quality == KILLLINE_AGE_CLAMPED ? 0
                                                              : KILLLINE_AGE_NEVER));
        struct killline_clock clock = {.last = arrival, .epoch = 4};
        assert_int_equal(killline_look(&clock, now), distance < 0 ? 5 : 4);
    }
}

static void batch_saturates(void **state)
{
    (void)state;
    assert_true(killline_expect_batch(1000, 300, 0) == 1000);
    assert_true(killline_expect_batch(1000, 300, 1) == 1000);
    assert_true(killline_expect_batch(1000, 300, 2) == 1300);
    assert_true(killline_expect_batch(1000, 300, 16) == 1000 + 15 * 300);
    assert_true(killline_expect_batch(1000, 0, UINT32_MAX) == 1000);
    assert_true(killline_expect_batch(UINT64_MAX, 0, 2) == UINT64_MAX);
    assert_true(killline_expect_batch(UINT64_MAX, 1, 2) == UINT64_MAX);
    assert_true(killline_expect_batch(UINT64_MAX - 1, 1, 2) == UINT64_MAX);
    assert_true(killline_expect_batch(UINT64_MAX - 2, 1, 2) == UINT64_MAX - 1);
    assert_true(killline_expect_batch(0, UINT64_MAX, UINT32_MAX) == UINT64_MAX);
    /* saturated, it makes no line */
    assert_false(killline_can_make(0, killline_expect_batch(1, UINT64_MAX, 2), UINT64_MAX - 1));
}

static void expectation_follows_and_forgives(void **state)
{
    (void)state;
    uint64_t e = 1000;
    for (int i = 0; i < 1000; i++)
        e = killline_expect(e, 2000);
    assert_true(e >= 1960 && e <= 2130); /* within one step of the constant */
    /* one preemption of 1,000 times the usual moves it by a sixteenth */
    assert_true(killline_expect(e, 2000000) <= e + e / 16 + 1);
    /* a slow device: comes over the line, is doubted, and a tick is tried again */
    for (int i = 0; i < 1000; i++)
        e = killline_expect(e, 500000);
    const uint64_t threshold = 100000;
    assert_false(killline_can_make(0, e, threshold));
    int drops = 0;
    while (!killline_can_make(1000, e, threshold)) {
        e = killline_expect_unproved(e, threshold);
        assert_true(++drops < 200);
    }
    /* below half the line nothing is doubted: in a backlog it is the age that is too high */
    assert_true(killline_expect_unproved(2000, threshold) == 2000);
    assert_true(killline_expect_unproved(threshold / 2, threshold) == threshold / 2);
    assert_true(killline_expect_unproved(threshold / 2 + 1, threshold) < threshold / 2 + 1);
    /* from 0 it still finds its way */
    e = 0;
    for (int i = 0; i < 2000; i++)
        e = killline_expect(e, 300);
    assert_true(e >= 290 && e <= 325);
}

/* Converges near the 80th percentile of what it sees: up by 1/16 as often as down by 1/64 four times. */
static void expectation_is_a_high_quantile(void **state)
{
    (void)state;
    double sum = 0;
    uint64_t e = 50;
    enum { N = 200000, SETTLED = 2000 };
    for (int i = 0; i < N; i++) {
        e = killline_expect(e, 100000 + random64() % 100000); /* uniform: percentile p at 1000 * (100 + p) */
        sum += i >= SETTLED ? (double)e : 0;
    }
    const double mean = sum / (N - SETTLED);
    if (mean < 170000 || mean > 190000)
        fail_msg("settles at %.0f", mean);
}

static void every_verdict_has_a_name(void **state)
{
    (void)state;
    for (unsigned v = 0; v < VERDICT_COUNT; v++) {
        assert_non_null(verdict_name(v));
        for (unsigned w = 0; w < v; w++)
            assert_string_not_equal(verdict_name(v), verdict_name(w));
    }
    assert_null(verdict_name(VERDICT_COUNT));
    assert_null(verdict_name(UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_check_at_the_edge),
        cmocka_unit_test(halted_wins),
        cmocka_unit_test(never_is_never),
        cmocka_unit_test(first_check_at_the_edge),
        cmocka_unit_test(age_across_a_wrap),
        cmocka_unit_test(age_of_a_stamp_in_the_future),
        cmocka_unit_test(age_of_another_epoch_is_unknown),
        cmocka_unit_test(clock_that_goes_on_stands_still_and_goes_back),
        cmocka_unit_test_setup(functions_equal_wide_arithmetic, random_setup),
        cmocka_unit_test(batch_saturates),
        cmocka_unit_test(expectation_follows_and_forgives),
        cmocka_unit_test_setup(expectation_is_a_high_quantile, random_setup),
        cmocka_unit_test(every_verdict_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
