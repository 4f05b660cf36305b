#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hls/grid.h"
#include "hls/kl_tb.h"
#include "hls/operand.h"

static void grid_takes_what_lies_on_it_and_nothing_else(void **state)
{
    (void)state;
    const int32_t limits[] = {KL_X_ABS_MAX, 32767};
    for (uint32_t frac = 0; frac <= KL_W_FRAC_MAX; frac++) {
        for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
            const double exact = ldexp(tb_half_value((uint16_t)bits), (int)frac);
            for (int i = 0; i < 2; i++) {
                const int expected = exact == floor(exact) && fabs(exact) <= limits[i];
                int32_t steps = 12345;
                assert_int_equal(grid_steps((uint16_t)bits, frac, limits[i], &steps), expected);
                assert_true(steps == (expected ? exact : 12345));
            }
        }
    }
}

static void x_becomes_steps_of_its_grid(void **state)
{
    (void)state;
    static const struct {
        uint16_t bits;
        int32_t steps;
    } good[] = {
        {0x0000, 0},     {0x8000, 0},      /* 0 and -0 */
        {0x3c00, 2048},  {0xbc00, -2048},  /* 1 */
        {0x1000, 1},     {0x9000, -1},     /* 2^-11: the grid's step */
        {0x3554, 682},                     /* 1364 * 2^-12 */
        {0x4bff, 32752}, {0xcbff, -32752}, /* 16 - 2^-7: the largest below 16 */
    };
    static const uint16_t bad[] = {0x0c00, 0x1200, 0x4c00, 0xcc00, 0x0001,
                                   0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x7e00};
    uint16_t x[KL_N_IN_MAX] = {0};
    struct operand_step step;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        x[1] = good[i].bits;
        assert_true(operand_fetch_x(x, 2, 0, &step));
        assert_int_equal(step.v[0], 0);
        assert_int_equal(step.v[1], good[i].steps);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        x[1] = bad[i];
        assert_false(operand_fetch_x(x, 2, 0, &step));
        assert_true(operand_fetch_x(x, 1, 0, &step)); /* beyond n_in it is not looked at */
        assert_int_equal(step.v[1], 0);
    }
}

static void a_column_step_holds_its_own_operands(void **state)
{
    (void)state;
    uint16_t x[KL_N_IN_MAX];
    struct operand_step step;
    for (uint32_t k = 0; k < KL_N_IN_MAX; k++)
        x[k] = 0x7c00;
    x[KL_MAC_COLS] = 0x4000;     /* 2 */
    x[KL_MAC_COLS + 1] = 0xc200; /* -3 */
    assert_true(operand_fetch_x(x, KL_MAC_COLS + 2, 1, &step));
    assert_int_equal(step.v[0], 4096);
    assert_int_equal(step.v[1], -6144);
    for (uint32_t k = 2; k < KL_MAC_COLS; k++)
        assert_int_equal(step.v[k], 0);

    int16_t h[KL_N_COL][KL_MAC_COLS];
    for (uint32_t u = 0; u < KL_OPERANDS; u++)
        h[u / KL_MAC_COLS][u % KL_MAC_COLS] = (int16_t)(u + 1);
    operand_fetch_h((const int16_t(*)[KL_MAC_COLS])h, KL_N_COL - 1, &step);
    assert_int_equal(step.v[0], KL_OPERANDS - KL_MAC_COLS + 1);
    assert_int_equal(step.v[KL_MAC_COLS - 1], KL_OPERANDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grid_takes_what_lies_on_it_and_nothing_else),
        cmocka_unit_test(x_becomes_steps_of_its_grid),
        cmocka_unit_test(a_column_step_holds_its_own_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
