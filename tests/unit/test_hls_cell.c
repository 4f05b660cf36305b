#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hls/cell.h"

/* z that opens or closes a gate, or sets g to +-1, as far as T goes: 32767, 0, 32767, -32768. */
static const int32_t OPEN = 8 << KL_Z_FRAC, CLOSED = -(8 << KL_Z_FRAC);

static int32_t z[KL_CELL_LANES * KL_N_GATE], c[KL_CELL_LANES];
static int16_t h[KL_CELL_LANES];

static void set_lane(int lane, int32_t i, int32_t f, int32_t g, int32_t o, int32_t c_before)
{
    z[KL_N_GATE * lane] = i;
    z[KL_N_GATE * lane + 1] = f;
    z[KL_N_GATE * lane + 2] = g;
    z[KL_N_GATE * lane + 3] = o;
    c[lane] = c_before;
}

static void update(void)
{
    cell_update(z, c, h);
}

static void h_is_rounded_once_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        int32_t v, h;
    } example[] = {
        {0, 0},
        {1 << 14, 0}, /* half a step of 2^-15: to even, 0 */
        {(1 << 14) + 1, 1},
        {3 << 14, 2}, /* one and a half: to even, 2 */
        {(3 << 14) - 1, 1},
        {5 << 14, 2}, /* two and a half: to even, 2 */
        /* From 2^26 on, 2048 steps, the step is 2: 2049 is a tie between 2048 and 2050, to 1024 * 2. */
        {2047 << 15, 2047},
        {2049 << 15, 2048},
        {(2049 << 15) + 1, 2050},
        {2051 << 15, 2052},
        /* 2047.5 is a tie on the step below 2048, and goes up into the next binade. */
        {4095 << 14, 2048},
        {(4095 << 14) - 1, 2047},
        {KL_H_ABS_MAX << 15, KL_H_ABS_MAX},
        {1 << 30, KL_H_ABS_MAX}, /* 1 does not exist */
    };
    for (size_t i = 0; i < sizeof example / sizeof *example; i++) {
        assert_int_equal(cell_round_h(example[i].v), example[i].h);
        assert_int_equal(cell_round_h(-example[i].v), -example[i].h);
    }
}

static void gates_are_i_f_g_o(void **state)
{
    (void)state;
    memset(z, 0, sizeof z);
    memset(c, 0, sizeof c);
    /* i * g alone: (32767 * 32767 * 8 + 2^14) >> 15 = 262128; the output is closed. */
    set_lane(0, OPEN, CLOSED, OPEN, CLOSED, 1000000);
    /* f * c alone: (32767 * 1000000 + 2^14) >> 15 = 999969. */
    set_lane(1, CLOSED, OPEN, OPEN, CLOSED, 1000000);
    /* The output of c = 0.5 alone: f at a half (16384) of 1. T(0.5) = 15143; 32767 * 15143 rounds to 15144.
     */
    set_lane(2, CLOSED, 0, 0, OPEN, 1 << KL_C_FRAC);
    /* g negative: (32767 * -32768 * 8 + 2^14) >> 15 = -262136. */
    set_lane(3, OPEN, CLOSED, CLOSED, CLOSED, 1000000);
    update();
    assert_int_equal(c[0], 262128);
    assert_int_equal(c[1], 999969);
    assert_int_equal(c[2], 1 << (KL_C_FRAC - 1));
    assert_int_equal(c[3], -262136);
    assert_int_equal(h[0], 0);
    assert_int_equal(h[1], 0);
    assert_int_equal(h[2], 15144);
    assert_int_equal(h[3], 0);
    assert_int_equal(c[KL_CELL_LANES - 1], 0); /* a unit of zeros stays at rest */
    assert_int_equal(h[KL_CELL_LANES - 1], 0);
}

static void c_is_rounded_half_up(void **state)
{
    (void)state;
    memset(z, 0, sizeof z);
    /* f = 16384 of an odd c: a half, which goes up on both sides of 0. */
    set_lane(0, CLOSED, 0, 0, CLOSED, 5);
    set_lane(1, CLOSED, 0, 0, CLOSED, -5);
    set_lane(2, CLOSED, 0, 0, CLOSED, -1);
    update();
    assert_int_equal(c[0], 3);
    assert_int_equal(c[1], -2);
    assert_int_equal(c[2], 0);
}

static void c_saturates_at_its_bound(void **state)
{
    (void)state;
    memset(z, 0, sizeof z);
    /* f, i and g at 32767: (32767 * 66848776 + 8589410312 + 2^14) >> 15 is 2^26. */
    set_lane(0, OPEN, OPEN, OPEN, OPEN, 66848776);
    set_lane(1, OPEN, OPEN, OPEN, OPEN, 66848775);
    set_lane(2, OPEN, OPEN, OPEN, OPEN, 66848777);
    set_lane(3, OPEN, OPEN, OPEN, OPEN, KL_C_ABS_MAX);
    set_lane(4, OPEN, OPEN, CLOSED, OPEN, -KL_C_ABS_MAX);
    update();
    assert_int_equal(c[0], KL_C_ABS_MAX);
    assert_int_equal(c[1], KL_C_ABS_MAX - 1);
    assert_int_equal(c[2], KL_C_ABS_MAX);
    assert_int_equal(c[3], KL_C_ABS_MAX);
    assert_int_equal(c[4], -KL_C_ABS_MAX);
    assert_int_equal(h[3], KL_H_ABS_MAX);
    assert_int_equal(h[4], -KL_H_ABS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h_is_rounded_once_to_nearest_even),
        cmocka_unit_test(gates_are_i_f_g_o),
        cmocka_unit_test(c_is_rounded_half_up),
        cmocka_unit_test(c_saturates_at_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
