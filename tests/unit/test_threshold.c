/* The threshold that moves with the load: its bounds, hysteresis, dwell, and a random walk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/threshold.h"

enum { BASE = 1000, MAX = 1250, STEP = 100, RELAX = 50, TIGHTEN = 10, DWELL = 500 };

static struct threshold fresh(uint64_t now)
{
    const struct threshold_config c = {.base = BASE,
                                       .max = MAX,
                                       .step = STEP,
                                       .relax_percent = RELAX,
                                       .tighten_percent = TIGHTEN,
                                       .dwell = DWELL};
    struct threshold t;
    threshold_init(&t, &c, now);
    return t;
}

static void relaxes_at_the_bound(void **state)
{
    (void)state;
    static const struct {
        uint64_t age;
        uint32_t ring;
        int relaxes;
    } cases[] = {{499, 49, 0}, {500, 0, 1}, {501, 0, 1}, {0, 50, 1}, {0, 51, 1}, {UINT64_MAX, 100, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct threshold t = fresh(0);
        assert_int_equal(threshold_update(&t, DWELL, cases[i].age, cases[i].ring), cases[i].relaxes);
        assert_int_equal(t.current, cases[i].relaxes ? BASE + STEP : BASE);
    }
}

static void tightens_at_the_bound(void **state)
{
    (void)state;
    static const struct {
        uint64_t age;
        uint32_t ring;
        int tightens;
    } cases[] = {{99, 9, 1}, {100, 10, 1}, {101, 0, 0}, {0, 11, 0}, {0, 0, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct threshold t = fresh(0);
        assert_int_equal(threshold_update(&t, DWELL, 500, 0), 1);
        assert_int_equal(threshold_update(&t, 2 * DWELL, cases[i].age, cases[i].ring), cases[i].tightens);
        assert_int_equal(t.current, cases[i].tightens ? BASE : BASE + STEP);
    }
}

/* A percentage that is no whole age: the first age at or above, the last at or below. */
static void bounds_between_two_ages(void **state)
{
    (void)state;
    const struct threshold_config c = {
        .base = 1001, .max = 1002, .step = 1, .relax_percent = 50, .tighten_percent = 10};
    struct threshold t;
    threshold_init(&t, &c, 0);
    assert_int_equal(threshold_update(&t, 1, 500, 0), 0); /* 49.95 % */
    assert_int_equal(threshold_update(&t, 1, 501, 0), 1);
    assert_int_equal(threshold_update(&t, 2, 101, 0), 0); /* 10.09 % */
    assert_int_equal(threshold_update(&t, 2, 100, 0), 1);
}

static void steps_end_at_the_bounds(void **state)
{
    (void)state;
    struct threshold t = fresh(0);
    static const uint64_t up[] = {1100, 1200, 1250}, down[] = {1150, 1050, 1000};
    uint64_t now = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(threshold_update(&t, now += DWELL, 500, 0), 1);
        assert_int_equal(t.current, up[i]);
    }
    assert_int_equal(threshold_update(&t, now += DWELL, 500, 0), 0);
    assert_int_equal(t.current, MAX);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(threshold_update(&t, now += DWELL, 0, 0), 1);
        assert_int_equal(t.current, down[i]);
    }
    assert_int_equal(threshold_update(&t, now += DWELL, 0, 0), 0);
    assert_int_equal(t.current, BASE);
}

static void dwells_between_changes(void **state)
{
    (void)state;
    const uint64_t start = UINT64_MAX - DWELL / 2; /* across a wrap */
    struct threshold t = fresh(start);
    assert_int_equal(threshold_update(&t, start + DWELL - 1, 500, 0), 0);
    assert_int_equal(threshold_update(&t, start + DWELL, 500, 0), 1);
    assert_int_equal(threshold_update(&t, start + 2 * DWELL - 1, 500, 0), 0);
    assert_int_equal(threshold_update(&t, start + 2 * DWELL, 500, 0), 1);
    assert_int_equal(threshold_update(&t, start + 3 * DWELL + 1, 0, 0), 1);
}

static void fixed_never_moves(void **state)
{
    (void)state;
    const struct threshold_config c = {
        .base = BASE, .max = BASE, .step = 1, .relax_percent = RELAX, .tighten_percent = TIGHTEN};
    struct threshold t;
    threshold_init(&t, &c, 0);
    for (uint64_t now = 1; now < 100; now++)
        assert_int_equal(threshold_update(&t, now, now % 2 ? UINT64_MAX : 0, now % 2 ? 100 : 0), 0);
    assert_int_equal(t.current, BASE);
}

static void clock_that_goes_back(void **state)
{
    (void)state;
    struct threshold t = fresh(1000000);
    assert_int_equal(threshold_update(&t, 10, 500, 0), 0);
    assert_int_equal(threshold_update(&t, 10 + DWELL - 1, 500, 0), 0);
    assert_int_equal(threshold_update(&t, 10 + DWELL, 500, 0), 1);
}

static uint64_t random_state = 88172645463325252u;
static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

static void random_walk(void **state)
{
    (void)state;
    for (int run = 0; run < 200; run++) {
        const struct threshold_config c = {.base = 1 + random_below(3000000),
                                           .max = 3000000 + random_below(1000000),
                                           .step = 1 + random_below(run % 2 ? 100000 : 4000000),
                                           .relax_percent = (uint32_t)(30 + random_below(71)),
                                           .tighten_percent = (uint32_t)random_below(30),
                                           .dwell = random_below(5000)};
        uint64_t now = random_below(2) ? random_below(1u << 30) : UINT64_MAX - random_below(1u << 22);
        struct threshold t;
        threshold_init(&t, &c, now);
        uint64_t since = 0; /* time that has passed since the last change */
        for (int i = 0; i < 5000; i++) {
            const uint64_t age = random_below(c.base + c.base / 8 + 2), before = t.current;
            const uint32_t ring = (uint32_t)random_below(random_below(2) ? 101 : 10);
            if (random_below(500) == 0)
                now -= random_below(1u << 20);
            else {
                const uint64_t passed = random_below(2000);
                now += passed;
                since += passed;
            }
            const int changed = threshold_update(&t, now, age, ring);
            assert_int_equal(changed, t.current != before);
            assert_in_range(t.current, c.base, c.max);
            const int load = age * 100 >= c.base * c.relax_percent || ring >= c.relax_percent;
            const int quiet = age * 100 <= c.base * c.tighten_percent && ring <= c.tighten_percent;
            if (t.current > before) {
                assert_true(load);
                assert_true(t.current - before == c.step || t.current == c.max);
            } else if (t.current < before) {
                assert_true(quiet);
                assert_true(before - t.current == c.step || t.current == c.base);
            }
            if (changed) {
                assert_true(since >= c.dwell);
                since = 0;
            }
        }
        for (uint64_t i = 0; i <= (c.max - c.base) / c.step + 1; i++) /* quiet: back to base */
            threshold_update(&t, now += c.dwell, 0, 0);
        assert_int_equal(t.current, c.base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relaxes_at_the_bound),    cmocka_unit_test(tightens_at_the_bound),
        cmocka_unit_test(bounds_between_two_ages), cmocka_unit_test(steps_end_at_the_bounds),
        cmocka_unit_test(dwells_between_changes),  cmocka_unit_test(fixed_never_moves),
        cmocka_unit_test(clock_that_goes_back),    cmocka_unit_test(random_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
