/* The two checks at their edges: threshold - 1, threshold, threshold + 1, wraps, stamps in the future. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/killline.h"

static const uint64_t thresholds[] = {0, 1, 2, 1000, 100000, 299999, UINT32_MAX, UINT64_MAX / 2, UINT64_MAX};
enum { N_THRESHOLD = sizeof(thresholds) / sizeof(thresholds[0]) };

static void fresh_at_the_edge(void **state)
{
    (void)state;
    for (int i = 0; i < N_THRESHOLD; i++) {
        uint64_t t = thresholds[i];
        if (t > 0)
            assert_true(killline_fresh(t - 1, t));
        assert_true(killline_fresh(t, t));
        if (t < UINT64_MAX)
            assert_false(killline_fresh(t + 1, t));
    }
}

static void can_make_at_the_edge(void **state)
{
    (void)state;
    for (int i = 0; i < N_THRESHOLD; i++)
        for (uint64_t age = 0; age < 3; age++) {
            uint64_t t = thresholds[i];
            if (age > t) {
                assert_false(killline_can_make(age, 0, t));
                continue;
            }
            uint64_t left = t - age;
            assert_true(killline_can_make(age, left, t));
            if (left > 0)
                assert_true(killline_can_make(age, left - 1, t));
            if (left < UINT64_MAX)
                assert_false(killline_can_make(age, left + 1, t));
        }
}

/* Where age + expected would wrap, the answer is still no. */
static void can_make_does_not_wrap(void **state)
{
    (void)state;
    assert_false(killline_can_make(10, UINT64_MAX - 5, 100));
    assert_false(killline_can_make(UINT64_MAX, 1, 100));
    assert_false(killline_can_make(100, UINT64_MAX, 100));
}

static void age_across_a_wrap(void **state)
{
    (void)state;
    int clamped = -1;
    assert_true(killline_age(UINT64_MAX - 9, 90, &clamped) == 100);
    assert_int_equal(clamped, 0);
    assert_true(killline_age(5, 5, &clamped) == 0);
    assert_int_equal(clamped, 0);
}

static void age_of_a_stamp_in_the_future(void **state)
{
    (void)state;
    int clamped = 0;
    assert_true(killline_age(1000, 999, &clamped) == 0);
    assert_int_equal(clamped, 1);
    assert_true(killline_age(UINT64_MAX / 2, 0, &clamped) == 0);
    assert_int_equal(clamped, 1);
}

/* Against a wider integer, over many random triples. */
static void checks_equal_wide_arithmetic(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 1000000; i++) {
        uint64_t v[3];
        for (int k = 0; k < 3; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            v[k] = x >> (x & 63); /* all magnitudes */
        }
        __extension__ unsigned __int128 sum = (unsigned __int128)v[0] + v[1];
        assert_int_equal(killline_can_make(v[0], v[1], v[2]) != 0, sum <= v[2]);
        assert_int_equal(killline_fresh(v[0], v[2]) != 0, v[0] <= v[2]);
    }
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
    /* from 0 it still finds its way */
    e = 0;
    for (int i = 0; i < 2000; i++)
        e = killline_expect(e, 300);
    assert_true(e >= 290 && e <= 325);
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
        cmocka_unit_test(fresh_at_the_edge),
        cmocka_unit_test(can_make_at_the_edge),
        cmocka_unit_test(can_make_does_not_wrap),
        cmocka_unit_test(age_across_a_wrap),
        cmocka_unit_test(age_of_a_stamp_in_the_future),
        cmocka_unit_test(checks_equal_wide_arithmetic),
        cmocka_unit_test(expectation_follows_and_forgives),
        cmocka_unit_test(every_verdict_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
