#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "host/histogram.h"

static struct histogram h;

/* The bucket a value falls into, seen from outside. */
static uint32_t bucket_of(uint64_t value)
{
    histogram_init(&h);
    histogram_record(&h, value);
    for (uint32_t i = 0; i < HISTOGRAM_N_BUCKET; i++)
        if (h.bucket[i])
            return i;
    fail_msg("value %llu is in no bucket", (unsigned long long)value);
    return 0;
}

static void test_buckets_tile_the_range(void **state)
{
    (void)state;
    assert_int_equal(histogram_bucket_low(0), 0);
    for (uint32_t i = 0; i < HISTOGRAM_N_BUCKET; i++) {
        uint64_t low = histogram_bucket_low(i), high = histogram_bucket_high(i);
        assert_true(low <= high);
        if (i + 1 < HISTOGRAM_N_BUCKET)
            assert_true(histogram_bucket_low(i + 1) == high + 1);
        /* relative error below 0.8 % */
        assert_true((high - low) * 128 <= low);
    }
    assert_true(histogram_bucket_high(HISTOGRAM_N_BUCKET - 1) == UINT64_MAX);
}

static void test_values_fall_into_their_bucket(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HISTOGRAM_N_BUCKET; i += 13) {
        assert_int_equal(bucket_of(histogram_bucket_low(i)), i);
        assert_int_equal(bucket_of(histogram_bucket_high(i)), i);
    }
    assert_int_equal(bucket_of(UINT64_MAX), HISTOGRAM_N_BUCKET - 1);
}

static void test_empty(void **state)
{
    (void)state;
    histogram_init(&h);
    assert_true(h.count == 0 && h.max == 0 && h.min == UINT64_MAX && h.sum == 0);
    assert_int_equal(histogram_quantile(&h, 0), 0);
    assert_int_equal(histogram_quantile(&h, 0.5), 0);
    assert_int_equal(histogram_quantile(&h, 1), 0);
}

static void test_small_values_are_exact(void **state)
{
    (void)state;
    histogram_init(&h);
    for (uint64_t v = 1; v <= 100; v++)
        histogram_record(&h, v);
    assert_true(h.count == 100 && h.min == 1 && h.max == 100 && h.sum == 5050);
    for (int percent = 1; percent <= 100; percent++)
        assert_int_equal(histogram_quantile(&h, percent / 100.0), percent);
    assert_int_equal(histogram_quantile(&h, 0), 1);
    assert_int_equal(histogram_quantile(&h, 0.001), 1);
    assert_int_equal(histogram_quantile(&h, 0.9901), 100);
    assert_int_equal(histogram_quantile(&h, 1.5), 100);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_quantiles_against_sorting(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint64_t value[N];
    uint64_t x = 88172645463325252u;
    histogram_init(&h);
    for (int i = 0; i < N; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        value[i] = x >> (x & 63);
        histogram_record(&h, value[i]);
    }
    qsort(value, N, sizeof(value[0]), by_value);
    static const double q[] = {0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999};
    for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++) {
        uint64_t exact = value[(int)(q[i] * N + 0.5) - 1], got = histogram_quantile(&h, q[i]);
        assert_true(got >= exact && got - exact <= exact / 128);
    }
    assert_true(histogram_quantile(&h, 1) == value[N - 1]);
    assert_true(h.min == value[0]);
}

static void test_one_value_is_every_quantile(void **state)
{
    (void)state;
    histogram_init(&h);
    histogram_record(&h, 1000001); /* inside a bucket: the bucket's end must not show */
    assert_int_equal(histogram_quantile(&h, 0), 1000001);
    assert_int_equal(histogram_quantile(&h, 0.5), 1000001);
    assert_int_equal(histogram_quantile(&h, 1), 1000001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_tile_the_range),
        cmocka_unit_test(test_values_fall_into_their_bucket),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_small_values_are_exact),
        cmocka_unit_test(test_quantiles_against_sorting),
        cmocka_unit_test(test_one_value_is_every_quantile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
