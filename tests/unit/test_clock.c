#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "host/clock.h"

static uint64_t realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void calibration_agrees_with_the_system_clock(void **state)
{
    (void)state;
    struct clock_calibration c;
    if (clock_calibrate(&c, 50)) {
        print_message("no invariant TSC on this machine\n");
        skip();
    }
    assert_true(c.hz > 5e8 && c.hz < 1e10);
    assert_true(c.error_ppm >= 0 && c.error_ppm < 10000);
    /* What the TSC says now, in UTC, against UTC: within 1 ms and 1 % of the time that has passed. */
    double tsc_utc = (double)(int64_t)(clock_tsc() - c.tsc0) * 1e9 / c.hz;
    double utc = (double)(int64_t)(realtime_ns() - c.utc_ns0);
    assert_true(tsc_utc - utc < 1e6 + utc * 0.01 && utc - tsc_utc < 1e6 + utc * 0.01);
}

static void conversions_invert_each_other(void **state)
{
    (void)state;
    struct clock_calibration c = {.hz = 2.5e9};
    assert_true(clock_ns_to_cycles(&c, 100000) == 250000);
    assert_true(clock_cycles_to_ns(&c, 250000) == 100000);
    assert_true(clock_ns_to_cycles(&c, 0.2) == 1); /* rounds */
    for (uint64_t ns = 0; ns < 1000000; ns += 777)
        assert_true((uint64_t)(clock_cycles_to_ns(&c, clock_ns_to_cycles(&c, (double)ns)) + 0.5) == ns);
}

static void tsc_does_not_run_backwards(void **state)
{
    (void)state;
    uint64_t last = clock_tsc();
    for (int i = 0; i < 100000; i++) {
        uint64_t t = clock_tsc();
        assert_true(t >= last);
        last = t;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibration_agrees_with_the_system_clock),
        cmocka_unit_test(conversions_invert_each_other),
        cmocka_unit_test(tsc_does_not_run_backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
