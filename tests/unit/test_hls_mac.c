#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hls/mac.h"

static mac_word w;

static void a_row_is_its_own_dot_product(void **state)
{
    (void)state;
    struct operand_step step;
    int32_t sum[KL_MAC_ROWS];
    int64_t wide[KL_N_CLASS_MAX];
    memset(w, 0, sizeof w);
    for (int k = 0; k < KL_MAC_COLS; k++) {
        step.v[k] = (int16_t)(k + 1);
        w[1][k] = 1;
        w[2][k] = (int16_t)(k % 2 ? -3 : 3);
    }
    w[KL_MAC_ROWS - 1][0] = 7;
    w[KL_MAC_ROWS - 1][KL_MAC_COLS - 1] = -2;
    mac_array(w, &step, sum, wide);
    assert_int_equal(sum[0], 0);
    assert_int_equal(sum[1], KL_MAC_COLS * (KL_MAC_COLS + 1) / 2);
    assert_int_equal(sum[2], 3 * -KL_MAC_COLS / 2);
    assert_int_equal(sum[KL_MAC_ROWS - 1], 7 - 2 * KL_MAC_COLS);
}

static void a_sum_reaches_the_blocks_bound(void **state)
{
    (void)state;
    /* 65,568 steps of |w| per block: 511 short of 2^31 - 1, and one more is beyond. */
    struct operand_step step;
    int32_t sum[KL_MAC_ROWS];
    int64_t wide[KL_N_CLASS_MAX];
    memset(w, 0, sizeof w);
    for (int k = 0; k < KL_MAC_COLS; k++) {
        const int steps = 65568 / KL_MAC_COLS;
        step.v[k] = (int16_t)(k % 2 ? -KL_H_ABS_MAX : KL_H_ABS_MAX);
        w[0][k] = (int16_t)(k % 2 ? -steps : steps);
        w[1][k] = (int16_t)-w[0][k];
    }
    mac_array(w, &step, sum, wide);
    assert_true(sum[0] == 65568LL * 32752 && sum[1] == -65568LL * 32752);
    assert_true(65568LL * 32752 + 511 == INT32_MAX && 65569LL * 32752 > INT32_MAX);
}

static void the_heads_rows_go_beyond_32_bits(void **state)
{
    (void)state;
    struct operand_step step;
    int32_t low[KL_MAC_ROWS];
    int64_t sum[KL_N_CLASS_MAX];
    memset(w, 0, sizeof w);
    for (int k = 0; k < KL_MAC_COLS; k++) {
        step.v[k] = 32752;
        w[0][k] = 32767;
        w[KL_N_CLASS_MAX - 1][k] = -32767;
    }
    mac_array(w, &step, low, sum);
    assert_true(sum[0] == KL_MAC_COLS * 1073184784LL); /* 32767 * 32752 */
    assert_true(sum[1] == 0 && sum[KL_N_CLASS_MAX - 1] == -KL_MAC_COLS * 1073184784LL);
}

static uint8_t shift[KL_MAC_ROWS];
static int32_t sum[KL_MAC_ROWS], acc[KL_MAC_ROWS], z[KL_MAC_ROWS];

static void a_block_is_rounded_half_up(void **state)
{
    (void)state;
    static const struct {
        uint8_t shift;
        int32_t sum, block;
    } example[] = {
        {4, 8, 1},
        {4, 7, 0},
        {4, -8, 0},
        {4, -9, -1},
        {4, 24, 2},
        {4, -24, -1},
        {4, -25, -2},
        {1, 1, 1},
        {1, -1, 0},
        {1, -3, -1},
        {0, 7, 7},
        {0, -7, -7},
        {0, INT32_MAX, INT32_MAX},
        {19, 262144, 1},
        {19, 262143, 0},
        {19, -262144, 0},
        {19, -262145, -1},
    };
    enum { N_EXAMPLE = sizeof example / sizeof *example };
    for (int i = 0; i < N_EXAMPLE; i++) {
        shift[i] = example[i].shift;
        sum[i] = example[i].sum;
        acc[i] = 999; /* of the block before */
        z[i] = i == 12 ? 0 : 1000;
    }
    mac_round_block(sum, shift, 1, 1, acc, z);
    for (int i = 0; i < N_EXAMPLE; i++)
        assert_int_equal(z[i], example[i].block + (i == 12 ? 0 : 1000));
}

static void blocks_are_rounded_one_by_one(void **state)
{
    (void)state;
    memset(z, 0, sizeof z);
    memset(sum, 0, sizeof sum);
    memset(shift, 4, sizeof shift);
    /* Row 0: .5 and .5 in two blocks are 1 + 1; row 1: in one block 1. Row 2: -.5 twice is 0 + 0, and as one
     * block -1. */
    sum[0] = sum[1] = 8;
    sum[2] = -8;
    mac_round_block(sum, shift, 1, 1, acc, z);
    mac_round_block(sum, shift, 1, 1, acc, z);
    assert_int_equal(z[0], 2);
    assert_int_equal(z[2], 0);
    memset(z, 0, sizeof z);
    mac_round_block(sum, shift, 1, 0, acc, z);
    assert_int_equal(z[1], 0); /* nothing before the block's last column step */
    mac_round_block(sum, shift, 0, 0, acc, z);
    assert_int_equal(z[1], 0);
    sum[1] = sum[2] = 0;
    mac_round_block(sum, shift, 0, 1, acc, z);
    assert_int_equal(z[1], 1);
    assert_int_equal(z[2], -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_its_own_dot_product),     cmocka_unit_test(a_sum_reaches_the_blocks_bound),
        cmocka_unit_test(the_heads_rows_go_beyond_32_bits), cmocka_unit_test(a_block_is_rounded_half_up),
        cmocka_unit_test(blocks_are_rounded_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
