#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hls/head.h"

static void logits_collect_beyond_32_bits(void **state)
{
    (void)state;
    int64_t logit[KL_N_CLASS_MAX] = {(int64_t)1 << 52, -((int64_t)1 << 52), 0, -1};
    const int64_t sum[KL_N_CLASS_MAX] = {(int64_t)1 << 38, -((int64_t)1 << 38), -5, 1};
    head_accumulate(logit, sum);
    head_accumulate(logit, sum);
    assert_true(logit[0] == ((int64_t)1 << 52) + ((int64_t)1 << 39));
    assert_true(logit[1] == -logit[0]);
    assert_true(logit[2] == -10 && logit[3] == 1 && logit[7] == 0);
}

static void the_largest_logit_wins(void **state)
{
    (void)state;
    for (uint8_t best = 0; best < KL_N_CLASS_MAX; best++) {
        int64_t logit[KL_N_CLASS_MAX];
        for (int k = 0; k < KL_N_CLASS_MAX; k++)
            logit[k] = k == best ? -1 : -2; /* negative: unused classes, at 0, must not win */
        assert_int_equal(head_argmax(logit, KL_N_CLASS_MAX), best);
    }
    const int64_t large[KL_N_CLASS_MAX] = {1, ((int64_t)1 << 32), 2}; /* its low 32 bits are 0 */
    assert_int_equal(head_argmax(large, 3), 1);
}

static void a_tie_goes_to_the_lowest_class(void **state)
{
    (void)state;
    const int64_t all[KL_N_CLASS_MAX] = {4, 4, 4, 4, 4, 4, 4, 4};
    const int64_t later[KL_N_CLASS_MAX] = {3, 9, 1, 9, 2, 9};
    for (uint32_t n_class = 1; n_class <= KL_N_CLASS_MAX; n_class++)
        assert_int_equal(head_argmax(all, n_class), 0);
    assert_int_equal(head_argmax(later, 6), 1);
}

static void classes_beyond_n_class_are_not_looked_at(void **state)
{
    (void)state;
    const int64_t logit[KL_N_CLASS_MAX] = {-7, -5, 0, 100};
    assert_int_equal(head_argmax(logit, 1), 0);
    assert_int_equal(head_argmax(logit, 2), 1);
    assert_int_equal(head_argmax(logit, 3), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_collect_beyond_32_bits),
        cmocka_unit_test(the_largest_logit_wins),
        cmocka_unit_test(a_tie_goes_to_the_lowest_class),
        cmocka_unit_test(classes_beyond_n_class_are_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
