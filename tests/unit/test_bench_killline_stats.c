/* The recommended threshold: smallest, whole microseconds, by an upper bound that is what it says. And the
 * slowed accelerator of the same bench. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "host/bench_killline_stats.h"
#include "host/bench_slow.h"
#include "host/clock.h"

/* Of exact tables: 1 - 0.05^(1/n) without any, and the beta distribution's 0.95 quantile (k + 1, n - k). */
static void test_binomial_upper(void **state)
{
    (void)state;
    static const struct {
        uint64_t k, n;
        double upper;
    } rows[] = {{0, 1, 0.95},
                {0, 100, 0.0295130},
                {1, 100, 0.0465598},
                {10, 10, 1},
                {9, 10, 0.9948838},
                {5, 50, 0.1988330},
                {0, 20000, 1.497753e-4},
                {50, 100, 0.5863783},
                {200, 20000, 0.01123671}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const double upper = bench_killline_binomial_upper(rows[i].k, rows[i].n);
        if (upper < rows[i].upper * 0.9999 || upper > rows[i].upper * 1.0001)
            fail_msg("%llu of %llu: %.9g, not %.9g", (unsigned long long)rows[i].k,
                     (unsigned long long)rows[i].n, upper, rows[i].upper);
    }
}

enum { N = 10000 };

static void test_recommends_the_smallest(void **state)
{
    (void)state;
    uint64_t *age = malloc(N * sizeof(*age));
    struct bench_killline_recommendation got;
    /* One in a thousand at 80 us, the rest at 12 us and a half; spread evenly. */
    for (int i = 0; i < N; i++)
        age[i] = i % 1000 == 500 ? 80000 : 12500;
    bench_killline_recommend(age, N, 0.01, &got);
    assert_int_equal(got.threshold_us, 13);
    assert_int_equal(got.missed, 10);
    assert_int_equal(got.count, N);
    assert_true(got.miss_upper > 0.001 && got.miss_upper <= 0.01);
    assert_string_equal(got.reason, "");
    /* At most one in a thousand: the ten have to be within. An age of a whole microsecond is not above it. */
    bench_killline_recommend(age, N, 0.001, &got);
    assert_int_equal(got.threshold_us, 80);
    assert_int_equal(got.missed, 0);
    /* All below a microsecond. */
    memset(age, 0, N * sizeof(*age));
    bench_killline_recommend(age, N, 0.01, &got);
    assert_int_equal(got.threshold_us, 1);
    free(age);
}

/* Misses in bunches: the same number, but one stall more would double it. */
static void test_bunches_count_more(void **state)
{
    (void)state;
    uint64_t *age = malloc(N * sizeof(*age));
    struct bench_killline_recommendation even, bunched;
    for (int i = 0; i < N; i++)
        age[i] = i % 200 == 0 ? 500000 : 10000;
    bench_killline_recommend(age, N, 0.008, &even);
    for (int i = 0; i < N; i++)
        age[i] = i < N / 200 ? 500000 : 10000;
    bench_killline_recommend(age, N, 0.008, &bunched);
    assert_int_equal(even.threshold_us, 10);
    assert_int_equal(bunched.threshold_us, 500);
    free(age);
}

static void test_none(void **state)
{
    (void)state;
    uint64_t *age = malloc(N * sizeof(*age));
    struct bench_killline_recommendation got;
    for (int i = 0; i < N; i++)
        age[i] = i % 20 == 0 ? BENCH_KILLLINE_NEVER : i % 20 == 1 ? 999001 : 999000;
    bench_killline_recommend(age, N, 0.12, &got);
    assert_int_equal(got.threshold_us, 999);
    bench_killline_recommend(age, N, 0.10, &got);
    assert_int_equal(got.threshold_us, 0);
    assert_int_equal(got.missed, N / 10);
    assert_non_null(strstr(got.reason, "at 999 us 1000 of 10000"));
    /* Too few to show so low a rate: 29,956 are needed for 0.01 %. */
    memset(age, 0, N * sizeof(*age));
    bench_killline_recommend(age, N, 0.0001, &got);
    assert_int_equal(got.threshold_us, 0);
    assert_non_null(strstr(got.reason, "at least 29956"));
    /* Fewer than there are blocks. */
    bench_killline_recommend(age, 1, 0.5, &got);
    assert_int_equal(got.threshold_us, 0);
    free(age);
}

/* ---- the slowed accelerator ---- */

/* Answers at once. */
struct fake {
    struct accel accel;
    uint32_t seq[KL_QUEUE_DEPTH + 1], head, tail;
};

static int fake_submit(struct accel *accel, const struct kl_request *request)
{
    struct fake *f = (struct fake *)accel;
    if (f->tail - f->head == KL_QUEUE_DEPTH)
        return -1;
    f->seq[f->tail++ % KL_QUEUE_DEPTH] = request->seq_no;
    return 0;
}

static int fake_poll(struct accel *accel, struct kl_result *result)
{
    struct fake *f = (struct fake *)accel;
    if (f->head == f->tail)
        return -1;
    *result = (struct kl_result){.seq_no = f->seq[f->head++ % KL_QUEUE_DEPTH]};
    return 1;
}

static uint64_t await(struct accel *accel, uint32_t seq_no)
{
    struct kl_result result;
    int got;
    while (!(got = accel->ops->poll(accel, &result)))
        ;
    assert_int_equal(got, 1);
    assert_int_equal(result.seq_no, seq_no);
    return clock_tsc();
}

static void test_slow(void **state)
{
    (void)state;
    static const struct accel_ops ops = {.submit = fake_submit, .poll = fake_poll};
    const uint64_t step = 1000000; /* cycles */
    struct fake fake = {.accel.ops = &ops};
    struct accel *slow = bench_slow_open(&fake.accel, step);
    assert_non_null(slow);
    struct kl_result result;
    struct kl_request request = {.op = KL_OP_STEP};
    assert_int_equal(slow->ops->poll(slow, &result), -1); /* nothing is outstanding */
    const uint64_t start = clock_tsc();
    for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++) {
        request.seq_no = i;
        assert_int_equal(slow->ops->submit(slow, &request), 0);
    }
    assert_int_equal(slow->ops->submit(slow, &request), -1);
    /* Not even when the other one would take it, since an answer is held back. */
    assert_int_equal(slow->ops->poll(slow, &result), 0);
    assert_int_equal(slow->ops->submit(slow, &request), -1);
    /* In order, one after the other, none before its time. */
    for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++)
        assert_true(await(slow, i) - start >= (i + 1) * step);
    assert_int_equal(slow->ops->poll(slow, &result), -1);
    /* What is no step waits for the steps before it, and takes no time of its own. */
    request.op = KL_OP_RESET;
    request.seq_no = 99;
    assert_int_equal(slow->ops->submit(slow, &request), 0);
    await(slow, 99);
    slow->ops->close(slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_binomial_upper),
        cmocka_unit_test(test_recommends_the_smallest),
        cmocka_unit_test(test_bunches_count_more),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
