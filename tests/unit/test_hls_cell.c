#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hls/activation.h"
#include "hls/grid.h"
#include "hls/lstm_cell.h"

/* Value of a binary16 pattern; infinities and NaN as such. */
static double half_value(uint16_t bits)
{
    const int exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
    double v;
    if (exponent == 31)
        v = fraction ? NAN : INFINITY;
    else
        v = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits & 0x8000 ? -v : v;
}

static void grid_takes_what_lies_on_it_and_nothing_else(void **state)
{
    (void)state;
    const int32_t limits[] = {KL_X_ABS_MAX, 32767};
    for (uint32_t frac = 0; frac <= KL_W_FRAC_MAX; frac++) {
        for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
            const double exact = ldexp(half_value((uint16_t)bits), (int)frac);
            const int32_t limit = limits[bits & 1];
            const int expected = exact == floor(exact) && fabs(exact) <= limit;
            int32_t steps = 12345;
            assert_int_equal(grid_steps((uint16_t)bits, frac, limit, &steps), expected);
            assert_true(steps == (expected ? exact : 12345));
        }
    }
}

static void grid_is_exact_at_the_limit(void **state)
{
    (void)state;
    int32_t steps;
    /* 32752 steps of 2^-11 is 0x4bff, one binary16 step more is 16. */
    assert_true(grid_steps(0x4bff, KL_X_FRAC, KL_X_ABS_MAX, &steps));
    assert_int_equal(steps, KL_X_ABS_MAX);
    assert_true(grid_steps(0xcbff, KL_X_FRAC, KL_X_ABS_MAX, &steps));
    assert_int_equal(steps, -KL_X_ABS_MAX);
    assert_false(grid_steps(0x4c00, KL_X_FRAC, KL_X_ABS_MAX, &steps));
    assert_false(grid_steps(0x4bff, KL_X_FRAC, KL_X_ABS_MAX - 1, &steps));
    assert_true(grid_steps(0x8000, KL_X_FRAC, KL_X_ABS_MAX, &steps)); /* -0 */
    assert_int_equal(steps, 0);
}

/* The contract's rounding in binary64: to nearest even (rint) at the coarser of binary16's step and 2^-15. */
static int32_t rounded_h(int32_t v_q30)
{
    const double v = v_q30 * 0x1p-30;
    int exponent;
    frexp(v, &exponent);
    const double step = fmax(ldexp(1, exponent - 11), 0x1p-15);
    return (int32_t)(fmin(fmax(rint(v / step) * step, -(1 - 0x1p-11)), 1 - 0x1p-11) * 0x1p15);
}

static void h_is_rounded_once_to_nearest_even(void **state)
{
    (void)state;
    /* Around every tie of every binade's first and last steps, and evenly over the whole range. */
    for (int binade = 0; binade <= 30; binade++) {
        for (int32_t near = -70; near <= 70; near++) {
            for (int32_t d = -2; d <= 2; d++) {
                const int64_t v = (1LL << binade) + (int64_t)near * (1 << 14) + d;
                if (v < 0 || v > 1 << 30)
                    continue;
                assert_int_equal(lstm_round_h((int32_t)v), rounded_h((int32_t)v));
                assert_int_equal(lstm_round_h(-(int32_t)v), rounded_h(-(int32_t)v));
            }
        }
    }
    for (int32_t v = -(1 << 30); v <= (1 << 30) - 997; v += 997)
        assert_int_equal(lstm_round_h(v), rounded_h(v));
    assert_int_equal(lstm_round_h(0), 0);
    assert_int_equal(lstm_round_h(1 << 14), 0); /* half a step: to even, 0 */
    assert_int_equal(lstm_round_h((1 << 14) + 1), 1);
    assert_int_equal(lstm_round_h(3 << 14), 2);            /* one and a half: to even, 2 */
    assert_int_equal(lstm_round_h(1 << 30), KL_H_ABS_MAX); /* 1 does not exist */
    assert_int_equal(lstm_round_h(-(1 << 30)), -KL_H_ABS_MAX);
    assert_int_equal(lstm_round_h(KL_H_ABS_MAX << 15), KL_H_ABS_MAX);
}

static void every_h_is_a_binary16_value(void **state)
{
    (void)state;
    for (int32_t v = 0; v <= (1 << 30) - 4099; v += 4099) {
        const int32_t h = lstm_round_h(v);
        int32_t significand = h;
        for (; significand && significand % 2 == 0; significand /= 2)
            ;
        assert_true(significand < 1 << 11);
    }
}

static void update_follows_the_formula(void **state)
{
    (void)state;
    const int32_t one = 1 << KL_Z_FRAC;
    int32_t z[KL_MAC_ROWS], c[KL_GROUP_UNITS], before[KL_GROUP_UNITS];
    int16_t h[KL_GROUP_UNITS];
    for (int u = 0; u < KL_GROUP_UNITS; u++) {
        for (int gate = 0; gate < KL_N_GATE; gate++)
            z[u * KL_N_GATE + gate] = (u - 4) * one / 3 + gate * one / 5;
        c[u] = before[u] = (u * 77777 - 250000) * 5;
    }
    lstm_update(z, c, h);
    for (int u = 0; u < KL_GROUP_UNITS; u++) {
        const int64_t i = activation_sigma(z[4 * u]), f = activation_sigma(z[4 * u + 1]);
        const int64_t g = activation_tanh(z[4 * u + 2]), o = activation_sigma(z[4 * u + 3]);
        const double next = floor((double)(f * before[u] + i * g * 8) / 32768 + 0.5);
        assert_true(c[u] == next);
        assert_int_equal(h[u], rounded_h((int32_t)(o * activation_tanh(c[u] * 4))));
    }
}

static void cell_saturates_exactly_at_its_bound(void **state)
{
    (void)state;
    int32_t z[KL_MAC_ROWS], c[KL_GROUP_UNITS];
    int16_t h[KL_GROUP_UNITS];
    /* f and i at 32767 / 32768, g at +-1: from c the next is c - c/32768 + 1 step of about 2^18. */
    for (int r = 0; r < KL_MAC_ROWS; r++)
        z[r] = r % KL_N_GATE == 2 && r >= KL_MAC_ROWS / 2 ? INT32_MIN : INT32_MAX;
    const int32_t to_max =
        (int32_t)(((int64_t)KL_C_ABS_MAX * 32768 - 32767LL * 32767 * 8 - (1 << 14)) / 32767);
    for (int u = 0; u < KL_GROUP_UNITS / 2; u++) {
        c[u] = to_max + u - 1;
        c[u + KL_GROUP_UNITS / 2] = -(to_max + u - 1);
    }
    lstm_update(z, c, h);
    int n_below = 0, n_at = 0;
    for (int u = 0; u < KL_GROUP_UNITS / 2; u++) {
        const double exact = floor((32767.0 * (to_max + u - 1) + 32767.0 * 32767 * 8) / 32768 + 0.5);
        assert_true(c[u] == fmin(exact, KL_C_ABS_MAX));
        n_below += exact < KL_C_ABS_MAX;
        n_at += exact > KL_C_ABS_MAX;
        assert_int_equal(h[u], KL_H_ABS_MAX);
        assert_int_equal(h[u + KL_GROUP_UNITS / 2], -KL_H_ABS_MAX);
        assert_in_range(-c[u + KL_GROUP_UNITS / 2], KL_C_ABS_MAX - 2, KL_C_ABS_MAX);
    }
    assert_true(n_below > 0 && n_at > 0); /* the test saw both sides of the bound */
    c[0] = KL_C_ABS_MAX;
    c[KL_GROUP_UNITS - 1] = -KL_C_ABS_MAX;
    lstm_update(z, c, h);
    assert_int_equal(c[0], KL_C_ABS_MAX);
    assert_int_equal(c[KL_GROUP_UNITS - 1], -KL_C_ABS_MAX);
}

static struct lstm_weights weights[4];
static struct lstm_operands operands[2];
static uint8_t shift[KL_N_GROUP_MAX][KL_MAC_ROWS];
static int32_t bias[KL_N_GROUP_MAX][KL_MAC_ROWS], z[KL_N_GROUP_MAX][KL_MAC_ROWS];

static void blocks_are_rounded_one_by_one_half_up(void **state)
{
    (void)state;
    memset(weights, 0, sizeof weights);
    memset(operands, 0, sizeof operands);
    memset(shift, 4, sizeof shift);
    operands[0].v[63] = 1;
    operands[1].v[0] = 1;
    weights[0].w[0][63] = 8, weights[1].w[0][0] = 8;   /* .5 + .5: 1 + 1, not round(1) */
    weights[0].w[1][63] = -8, weights[1].w[1][0] = -8; /* -.5 goes up to 0, twice */
    weights[0].w[2][63] = 7, weights[1].w[2][0] = 7;   /* under a half, twice */
    weights[0].w[3][63] = -9, weights[1].w[3][0] = -9; /* over a half, twice */
    weights[2].w[0][63] = 160;                         /* the second group: 10 + 0 */
    shift[0][4] = 0;
    weights[0].w[4][63] = 7; /* no shift, no rounding */
    bias[0][0] = 1000;
    bias[1][0] = -1000;
    lstm_prepare(z, bias, weights, operands, shift, (struct lstm_shape){.n_group = 2, .n_block = 2});
    assert_int_equal(z[0][0], 1002);
    assert_int_equal(z[0][1], 0);
    assert_int_equal(z[0][2], 0);
    assert_int_equal(z[0][3], -2);
    assert_int_equal(z[0][4], 7);
    assert_int_equal(z[1][0], -990);
}

static void block_sum_reaches_its_bound_exactly(void **state)
{
    (void)state;
    /* At shift 0 a block's |w| may sum up to 65,568 steps: 511 short of 2^31 - 1. */
    memset(weights, 0, sizeof weights);
    memset(shift, 0, sizeof shift);
    memset(bias, 0, sizeof bias);
    for (int k = 0; k < KL_BLOCK; k++) {
        const int w = 1024 + (k < 32);
        operands[0].v[k] = k % 2 ? -KL_H_ABS_MAX : KL_H_ABS_MAX;
        weights[0].w[0][k] = (int16_t)(k % 2 ? -w : w);
        weights[0].w[1][k] = (int16_t)(k % 2 ? w : -w);
    }
    lstm_prepare(z, bias, weights, operands, shift, (struct lstm_shape){.n_group = 1, .n_block = 1});
    assert_int_equal(z[0][0], 65568LL * 32752);
    assert_int_equal(z[0][1], -65568LL * 32752);
    assert_true(65568LL * 32752 <= INT32_MAX && 65569LL * 32752 > INT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grid_takes_what_lies_on_it_and_nothing_else),
        cmocka_unit_test(grid_is_exact_at_the_limit),
        cmocka_unit_test(h_is_rounded_once_to_nearest_even),
        cmocka_unit_test(every_h_is_a_binary16_value),
        cmocka_unit_test(update_follows_the_formula),
        cmocka_unit_test(cell_saturates_exactly_at_its_bound),
        cmocka_unit_test(blocks_are_rounded_one_by_one_half_up),
        cmocka_unit_test(block_sum_reaches_its_bound_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
