/* fp16: every bit pattern, and every rounding boundary of every grid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdint.h>

#include "hls/kl_abi.h"
#include "host/fp16.h"

enum { INFINITY_BITS = 0x7c00, ONE_BITS = 0x3c00 };

static void every_pattern_decodes(void **state)
{
    (void)state;
    /* From 0 in steps: 2^-24 in the first two binades, twice the step in each further one. */
    double expected = 0, step = ldexp(1, -24);
    for (uint32_t bits = 0; bits < INFINITY_BITS; bits++) {
        if (fp16_to_double((uint16_t)bits) != expected)
            fail_msg("bits 0x%04x: %.17g, not %.17g", bits, fp16_to_double((uint16_t)bits), expected);
        if (fp16_to_double((uint16_t)(bits | 0x8000)) != -expected)
            fail_msg("bits 0x%04x: sign", bits | 0x8000);
        expected += step;
        if ((bits & 0x3ff) == 0x3ff && bits > 0x3ff)
            step *= 2;
    }
    assert_true(fp16_to_double(ONE_BITS) == 1.0);
    assert_true(fp16_to_double(0x7bff) == 65504.0);
    assert_true(signbit(fp16_to_double(0x8000)));
    assert_true(isinf(fp16_to_double(INFINITY_BITS)) && fp16_to_double(INFINITY_BITS) > 0);
    assert_true(isinf(fp16_to_double(0xfc00)) && fp16_to_double(0xfc00) < 0);
    for (uint32_t bits = INFINITY_BITS + 1; bits < 0x8000; bits++) {
        assert_true(isnan(fp16_to_double((uint16_t)bits)));
        assert_true(isnan(fp16_to_double((uint16_t)(bits | 0x8000))));
    }
}

static void every_finite_pattern_comes_back(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        if ((bits & 0x7c00) == INFINITY_BITS)
            continue;
        uint16_t expected = bits == 0x8000 ? 0 : (uint16_t)bits; /* -0 is written as 0 */
        uint16_t back = fp16_from_double(fp16_to_double((uint16_t)bits), 24, INT32_MAX);
        /* 2^-24 steps up to INT32_MAX reach 128 only: what lies above is clamped, tested below. */
        if (fabs(fp16_to_double((uint16_t)bits)) < 128.0)
            assert_int_equal(back, expected);
        if (fabs(fp16_to_double((uint16_t)bits)) >= 1024.0) /* multiples of 1 */
            assert_int_equal(fp16_from_double(fp16_to_double((uint16_t)bits), 0, INT32_MAX), expected);
    }
}

/* The next binary16 magnitude above bits that lies on the grid. */
static uint32_t next_on_grid(uint32_t bits, int frac)
{
    double scaled;
    do {
        bits++;
        scaled = ldexp(fp16_to_double((uint16_t)bits), frac);
    } while (scaled != floor(scaled));
    return bits;
}

static void expect(double v, int frac, int32_t abs_max, uint32_t bits)
{
    uint16_t got = fp16_from_double(v, frac, abs_max);
    if (got != bits)
        fail_msg("%.17g, frac %d, at most %d: 0x%04x, not 0x%04x", v, frac, abs_max, got, bits);
    uint16_t negative = fp16_from_double(-v, frac, abs_max);
    if (negative != (bits ? (bits | 0x8000) : 0))
        fail_msg("%.17g, frac %d, at most %d: 0x%04x", -v, frac, abs_max, negative);
}

/* Between any two neighbours on the grid: below the middle, the middle (ties to even), above it. */
static void every_boundary_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (int frac = 0; frac <= 24; frac++) {
        double largest = ldexp(INT32_MAX, -frac);
        for (uint32_t low = 0, high; low < 0x7bff; low = high) {
            high = next_on_grid(low, frac);
            double a = fp16_to_double((uint16_t)low), b = fp16_to_double((uint16_t)high), unit = b - a;
            if (high >= INFINITY_BITS || b > largest)
                break;
            double middle = a + unit / 2;
            uint32_t even = fmod(a / unit, 2) == 0 ? low : high;
            expect(a, frac, INT32_MAX, low);
            expect(b, frac, INT32_MAX, high);
            expect(middle, frac, INT32_MAX, even);
            expect(nextafter(middle, 0), frac, INT32_MAX, low);
            expect(nextafter(middle, INFINITY), frac, INT32_MAX, high);
            expect(a + unit * 0.25, frac, INT32_MAX, low);
            expect(a + unit * 0.75, frac, INT32_MAX, high);
        }
    }
}

static void contract_formats(void **state)
{
    (void)state;
    /* x: grid 2^-11 is finer than binary16's step from 1 on, coarser below 1. */
    expect(16.0, KL_X_FRAC, KL_X_ABS_MAX, 0x4bff);
    expect(1e300, KL_X_FRAC, KL_X_ABS_MAX, 0x4bff);
    expect(INFINITY, KL_X_FRAC, KL_X_ABS_MAX, 0x4bff);
    expect(KL_X_ABS_MAX / 2048.0, KL_X_FRAC, KL_X_ABS_MAX, 0x4bff);
    expect(nextafter(KL_X_ABS_MAX / 2048.0, 0), KL_X_FRAC, KL_X_ABS_MAX, 0x4bff);
    expect(0.5 / 2048, KL_X_FRAC, KL_X_ABS_MAX, 0);
    expect(nextafter(0.5 / 2048, 1), KL_X_FRAC, KL_X_ABS_MAX, 0x1000); /* 2^-11 */
    expect(1.5 / 2048, KL_X_FRAC, KL_X_ABS_MAX, 0x1400);               /* tie: up to 2 steps */
    expect(4.0 + 1.0 / 512, KL_X_FRAC, KL_X_ABS_MAX, 0x4400);          /* half of binary16's 2^-8: to even */
    expect(4.0 + 3.0 / 512, KL_X_FRAC, KL_X_ABS_MAX, 0x4402);
    /* h. */
    expect(1.0, KL_H_FRAC, KL_H_ABS_MAX, 0x3bff);
    expect(0.99999, KL_H_FRAC, KL_H_ABS_MAX, 0x3bff);
    expect(ldexp(1, -16), KL_H_FRAC, KL_H_ABS_MAX, 0);
}

static void limits(void **state)
{
    (void)state;
    /* A limit that is no binary16 value itself: the next one below it. */
    expect(1e9, 0, 4099, 0x6c00);  /* 4096 */
    expect(4099, 0, 4099, 0x6c00); /* 4100 is nearer, but off limits */
    expect(4099, 0, 4100, 0x6c01);
    expect(65520, 0, INT32_MAX, 0x7bff); /* would round to infinity */
    expect(65536, 0, INT32_MAX, 0x7bff);
    expect(1e9, 3, 0, 0);
    expect(0.0, 24, 1, 0);
    expect(ldexp(1, -25), 24, INT32_MAX, 0);
    expect(nextafter(ldexp(1, -25), 1), 24, INT32_MAX, 1);
    expect(5e-324, 24, INT32_MAX, 0);
    assert_int_equal(fp16_from_double(NAN, 11, KL_X_ABS_MAX), 0);
    assert_int_equal(fp16_from_double(-NAN, 11, KL_X_ABS_MAX), 0);
    assert_int_equal(fp16_from_double(-1e-9, 11, KL_X_ABS_MAX), 0); /* no -0 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_decodes),
        cmocka_unit_test(every_finite_pattern_comes_back),
        cmocka_unit_test(every_boundary_rounds_to_nearest_even),
        cmocka_unit_test(contract_formats),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
