#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hls/activation.h"

static const int32_t EIGHT = 8 << KL_Z_FRAC;
static const int32_t SEGMENT = 1 << (KL_Z_FRAC - 6);

static void knots_are_those_of_the_contract(void **state)
{
    (void)state;
    for (int k = 0; k <= KL_T_SEGMENTS; k++) {
        const double w = 1.0 / 64, y = tanh(-8.0 + k * w);
        const double shifted = y - w * w / 16 * (-2 * y * (1 - y * y));
        const double steps = fmin(fmax(round(shifted * 32768), -32768), 32767);
        assert_int_equal(activation_knot[k], (int)steps);
    }
}

static void value_at_a_knot_is_the_knot(void **state)
{
    (void)state;
    for (int k = 0; k <= KL_T_SEGMENTS; k++)
        assert_int_equal(activation_tanh(-EIGHT + k * SEGMENT), activation_knot[k]);
    assert_int_equal(activation_tanh(0), 0);
}

static void interpolation_rounds_half_up(void **state)
{
    (void)state;
    for (int k = 0; k < KL_T_SEGMENTS; k++) {
        const int a = activation_knot[k], d = activation_knot[k + 1] - a;
        for (int t = 0; t < SEGMENT; t += 61) {
            const double exact = a + (double)d * t / SEGMENT;
            assert_int_equal(activation_tanh(-EIGHT + k * SEGMENT + t), (int)floor(exact + 0.5));
        }
    }
    /* The first segment right of 0 rises by 512: t of 1/1024 is exactly a half, which goes up. */
    assert_int_equal(activation_knot[KL_T_SEGMENTS / 2 + 1], 512);
    assert_int_equal(activation_tanh(SEGMENT / 1024), 1);
    assert_int_equal(activation_tanh(SEGMENT / 1024 - 1), 0);
    assert_int_equal(activation_tanh(-SEGMENT / 1024), 0);
    assert_int_equal(activation_tanh(-SEGMENT / 1024 - 1), -1);
}

static void both_ends_are_clamped(void **state)
{
    (void)state;
    const int32_t above[] = {EIGHT - 1, EIGHT, EIGHT + 1, EIGHT * 2, INT32_MAX};
    const int32_t below[] = {-EIGHT + 1, -EIGHT, -EIGHT - 1, -EIGHT * 2, INT32_MIN};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(activation_tanh(above[i]), 32767);
        assert_int_equal(activation_tanh(below[i]), -32768);
        assert_int_equal(activation_sigma(above[i]), 32767);
        assert_int_equal(activation_sigma(below[i]), 0);
    }
}

static void every_input_is_monotone_and_near_tanh(void **state)
{
    (void)state;
    int previous = activation_tanh(-EIGHT - 1);
    double error = 0;
    for (int32_t x = -EIGHT; x <= EIGHT; x++) {
        const int y = activation_tanh(x);
        assert_in_range(y - previous, 0, 1); /* continuous: the slope is at most 1/32 step per input step */
        previous = y;
        if (x % 97 == 0)
            error = fmax(error, fabs(y / 32768.0 - tanh(x * 0x1p-20)));
    }
    /* Two roundings (knot, value) of half a step each and half of the chord's error, w^2/16 * 0.77 = 1.2e-5.
     */
    assert_true(error < 0x1p-15 + 1.2e-5);
}

static void sigma_is_half_of_one_plus_tanh(void **state)
{
    (void)state;
    assert_int_equal(activation_sigma(0), 1 << 14);
    for (int32_t z = -2 * EIGHT; z <= 2 * EIGHT; z += 101) {
        const double sigma = 1 / (1 + exp(-z * 0x1p-20));
        assert_true(fabs(activation_sigma(z / 2) / 32768.0 - sigma) < 5e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knots_are_those_of_the_contract),
        cmocka_unit_test(value_at_a_knot_is_the_knot),
        cmocka_unit_test(interpolation_rounds_half_up),
        cmocka_unit_test(both_ends_are_clamped),
        cmocka_unit_test(every_input_is_monotone_and_near_tanh),
        cmocka_unit_test(sigma_is_half_of_one_plus_tanh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
