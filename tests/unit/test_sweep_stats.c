/* Bootstrap, tests of the arms, the recommended line. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "host/sweep_report.h"
#include "host/sweep_stats.h"
#include "sweep_rig.h"

static void weights_are_poisson(void **state)
{
    (void)state;
    enum { N = 200000 };
    static const double p[] = {0.367879, 0.367879, 0.183940, 0.061313, 0.015328, 0.003066, 0.000511};
    uint64_t count[32] = {0}, sum = 0, squares = 0, products = 0, before = 0;
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t w = sweep_weight(sweep_block_key(1, 2, 3, i / 200), i % 200);
        assert_true(w < 32);
        count[w]++;
        sum += w;
        squares += (uint64_t)w * w;
        products += (uint64_t)w * before;
        before = w;
    }
    for (int k = 0; k < 7; k++) /* five standard deviations */
        assert_true(fabs((double)count[k] / N - p[k]) < 5 * sqrt(p[k] * (1 - p[k]) / N));
    const double mean = (double)sum / N;
    assert_true(fabs(mean - 1) < 5 / sqrt(N));
    assert_true(fabs((double)squares / N - mean * mean - 1) < 5 * sqrt(3.0 / N));
    assert_true(fabs((double)products / N - 1) < 5 * sqrt(3.0 / N)); /* neighbours are independent */
}

static void keys_differ(void **state)
{
    (void)state;
    const uint64_t key = sweep_block_key(1, 2, 3, 4);
    assert_int_equal(key, sweep_block_key(1, 2, 3, 4));
    assert_int_not_equal(key, sweep_block_key(2, 2, 3, 4));
    assert_int_not_equal(key, sweep_block_key(1, 3, 3, 4));
    assert_int_not_equal(key, sweep_block_key(1, 2, 4, 4));
    assert_int_not_equal(key, sweep_block_key(1, 2, 3, 5));
    assert_int_not_equal(key, sweep_block_key(1, 3, 2, 4));
}

static void percentiles(void **state)
{
    (void)state;
    double x[200], low, high;
    for (int i = 0; i < 200; i++)
        x[(i * 37) % 200] = i;
    sweep_percentiles(x, 200, &low, &high);
    assert_true(low == 5 && high == 194); /* five on either side: 2.5 % */
}

/* Blocks of correlated answers with a known hit rate: how often does the interval hold it? */
static void coverage(void **state)
{
    (void)state;
    enum { N_RUN = 400, N_BLOCK = 80, R = 200 };
    uint64_t random = 5;
    int n_held = 0;
    for (int run = 0; run < N_RUN; run++) {
        int64_t hits = 0, known = 0, rep_hits[R] = {0}, rep_known[R] = {0};
        for (uint64_t b = 0; b < N_BLOCK; b++) {
            /* Mean 0.6, but each block has its own rate: as if its answers were one. */
            const double rate = log_uniform(&random) < 0.5 ? 0.3 : 0.9;
            int64_t n = 20 + (int64_t)(log_random(&random) % 40), h = 0;
            for (int64_t i = 0; i < n; i++)
                h += log_uniform(&random) < rate;
            const uint64_t key = sweep_block_key((uint64_t)run, 1, 2, b);
            for (uint32_t r = 0; r < R; r++) {
                const int64_t w = sweep_weight(key, r);
                rep_hits[r] += w * h;
                rep_known[r] += w * n;
            }
            hits += h;
            known += n;
        }
        struct sweep_interval i;
        sweep_interval_of(hits, known, rep_hits, rep_known, R, 1, &i);
        assert_true(i.has_value && i.has_interval && i.low < i.value && i.value < i.high);
        n_held += i.low <= 0.6 && 0.6 <= i.high;
    }
    /* 95 % nominal; a percentile bootstrap of 80 blocks is a little short. Three deviations of 400 runs are 3
     * %.
     */
    const double held = (double)n_held / N_RUN;
    if (held < 0.90 || held > 0.985)
        fail_msg("coverage %.3f", held);
}

static void too_few_blocks(void **state)
{
    (void)state;
    enum { R = 200 };
    static const uint64_t n_blocks[] = {1, 8, 40};
    for (int k = 0; k < 3; k++) {
        const uint64_t n_block = n_blocks[k];
        int64_t rep_hits[R] = {0}, rep_known[R] = {0};
        for (uint64_t b = 0; b < n_block; b++)
            for (uint32_t r = 0; r < R; r++) {
                const int64_t w = sweep_weight(sweep_block_key(1, 1, 1, b), r);
                rep_hits[r] += 5 * w;
                rep_known[r] += 10 * w;
            }
        struct sweep_interval i;
        sweep_interval_of(5 * (int64_t)n_block, 10 * (int64_t)n_block, rep_hits, rep_known, R, 1, &i);
        assert_true(i.has_value && i.value == 0.5);
        assert_int_equal(i.has_interval, n_block > 10);
    }
    const int64_t none[R] = {0};
    struct sweep_interval i;
    sweep_interval_of(0, 0, none, none, R, 1, &i);
    assert_false(i.has_value);
}

static void z_by_hand(void **state)
{
    (void)state;
    double z, p;
    /* 60/100 against 75/100: pooled 0.675; z = 0.15 / sqrt(0.675 * 0.325 * 0.02) = 2.2646 */
    assert_int_equal(sweep_two_proportions(60, 100, 75, 100, &z, &p), 0);
    assert_true(fabs(z - 2.264554) < 1e-5);
    assert_true(fabs(p - 0.023541) < 1e-5);
    /* 45/300 against 20/200: pooled 65/500 = 0.13; z = -0.05 / sqrt(0.1131 * (1/300 + 1/200)) = -1.6287 */
    assert_int_equal(sweep_two_proportions(45, 300, 20, 200, &z, &p), 0);
    assert_true(fabs(z + 1.628657) < 1e-5);
    assert_true(fabs(p - 0.103386) < 1e-5);
    assert_int_equal(sweep_two_proportions(5, 10, 50, 100, &z, &p), 0);
    assert_true(z == 0 && p == 1);
    assert_int_equal(sweep_two_proportions(0, 10, 0, 100, &z, &p), -1);
    assert_int_equal(sweep_two_proportions(10, 10, 100, 100, &z, &p), -1);
    assert_int_equal(sweep_two_proportions(0, 0, 5, 100, &z, &p), -1);
}

/* ---- arms ---- */

static struct sweep_sums *arms_of(uint32_t n_symbol[2], double rate_a, double rate_b, double spread,
                                  uint64_t *random)
{
    const struct sweep_spec spec = rig_spec("50us", "1ticks");
    struct sweep_sums *s = sweep_sums_create(&spec);
    s->spec.seed = log_random(random) >> 1;
    for (uint64_t b = 0; b < 2; b++)
        for (uint32_t i = 0; i < n_symbol[b]; i++) {
            struct sweep_arm_row row = {.arms = {50000, 100000, 50, 1}, .is_b = b};
            snprintf(row.symbol, sizeof(row.symbol), "%c%u", b ? 'B' : 'A', i % 1000);
            row.line = 300 + (int64_t)(log_random(random) % 400);
            const double rate = (b ? rate_b : rate_a) + spread * (log_uniform(random) - 0.5);
            for (int64_t k = 0; k < row.line; k++)
                row.published += log_uniform(random) < rate;
            row.known = row.published;
            row.hits = row.published / 2;
            row.value = 3 * row.published;
            rig_require(!sweep_sums_row(s, &row), "row");
        }
    return s;
}

/* No difference, but symbols of their own: how often is one claimed? */
static void arms_without_difference(void **state)
{
    (void)state;
    enum { N_RUN = 300 };
    uint64_t random = 11;
    int by_z = 0, by_symbol = 0, by_z_alike = 0;
    for (int run = 0; run < N_RUN; run++) {
        struct sweep_ab ab;
        struct sweep_sums *s = arms_of((uint32_t[]){40, 40}, 0.7, 0.7, 0.2, &random);
        assert_int_equal(sweep_ab_of(s, 0, &ab), 80);
        const struct sweep_ab_test *t = &ab.test[SWEEP_AB_PUBLISHED];
        assert_true(t->has_z && t->difference.has_interval && !ab.is_too_small);
        by_z += t->p_value < 0.05;
        by_symbol += t->difference.low > 0 || t->difference.high < 0;
        sweep_sums_free(s);
        s = arms_of((uint32_t[]){40, 40}, 0.7, 0.7, 0, &random);
        sweep_ab_of(s, 0, &ab);
        by_z_alike += ab.test[SWEEP_AB_PUBLISHED].p_value < 0.05;
        sweep_sums_free(s);
    }
    /* Where symbols are alike the z test is right, 5 %; where they are not it claims far too much, and the
     * symbols' bootstrap stays near 5 %. */
    assert_true(by_z_alike < N_RUN * 10 / 100);
    assert_true(by_z > N_RUN * 30 / 100);
    assert_true(by_symbol < N_RUN * 11 / 100 && by_symbol > 0);
}

static void arms_with_difference(void **state)
{
    (void)state;
    enum { N_RUN = 200 };
    uint64_t random = 12;
    int found = 0, held = 0;
    double detectable = 0;
    for (int run = 0; run < N_RUN; run++) {
        struct sweep_ab ab;
        struct sweep_sums *s = arms_of((uint32_t[]){40, 40}, 0.60, 0.64, 0.2, &random);
        sweep_ab_of(s, 0, &ab);
        const struct sweep_ab_test *t = &ab.test[SWEEP_AB_PUBLISHED];
        found += t->difference.low > 0;
        held += t->difference.low <= 0.04 && 0.04 <= t->difference.high;
        detectable += t->detectable / N_RUN;
        sweep_sums_free(s);
    }
    /* 0.04 is about what can be detected: it is found in about 80 % of cases. */
    assert_true(fabs(detectable - 0.04) < 0.006);
    assert_true(found > N_RUN * 70 / 100 && found < N_RUN * 95 / 100);
    assert_true(held > N_RUN * 88 / 100);
}

static void small_samples(void **state)
{
    (void)state;
    uint64_t random = 13;
    struct sweep_ab ab;
    char text[256];
    struct sweep_sums *s = arms_of((uint32_t[]){40, 9}, 0.2, 0.9, 0, &random);
    sweep_ab_of(s, 0, &ab);
    assert_true(ab.is_too_small && ab.n_symbol[1] == 9);
    assert_false(ab.test[SWEEP_AB_PUBLISHED].difference.has_interval);
    sweep_report_ab_text(&ab, SWEEP_AB_PUBLISHED, text);
    assert_non_null(strstr(text, "too small: fewer than 10 symbols"));
    sweep_sums_free(s);
    s = arms_of((uint32_t[]){10, 10}, 0.60, 0.61, 0.2, &random);
    sweep_ab_of(s, 0, &ab);
    assert_false(ab.is_too_small);
    sweep_report_ab_text(&ab, SWEEP_AB_PUBLISHED, text);
    assert_non_null(strstr(text, "sample too small for this one"));
    sweep_sums_free(s);
    s = arms_of((uint32_t[]){40, 0}, 0.6, 0.6, 0, &random);
    sweep_ab_of(s, 0, &ab);
    sweep_report_ab_text(&ab, SWEEP_AB_HITS, text);
    assert_non_null(strstr(text, "nothing to compare"));
    sweep_sums_free(s);
    s = arms_of((uint32_t[]){40, 40}, 0.2, 0.9, 0, &random);
    sweep_ab_of(s, 0, &ab);
    sweep_report_ab_text(&ab, SWEEP_AB_PUBLISHED, text);
    assert_non_null(strstr(text, "B is higher"));
    assert_true(fabs(ab.test[SWEEP_AB_VALUE].rate[0] - 3 * SWEEP_USD_PER_UNIT) < 1e-12);
    sweep_sums_free(s);
}

/* ---- the line ---- */

/* n answers of each age, X ticking up by 1 under an answer that says so where it was quick, else against it.
 */
static struct sweep_sums *line_log(const uint64_t age[], int n_age, int n)
{
    static char path[] = "/tmp/test_sweep_stats_XXXXXX";
    const int fd = mkstemp(path);
    rig_require(fd >= 0, path);
    close(fd);
    const struct audit_header h = log_header(AUDIT_CLOCK_REPLAY);
    struct rig_log rig = rig_open(path, &h);
    uint64_t ts = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_age; k++) {
            ts += 300000000; /* about three in a second */
            const struct audit_prediction p =
                rig_answer("X", ts, age[k], k ? 0 : 2, 1000 + (uint32_t)(i * n_age + k), 2000);
            rig_put(&rig, &p);
        }
    rig_close(&rig);
    const struct sweep_spec spec = rig_spec("10us,20us,30us", "1ticks");
    struct sweep_sums *s = rig_read(path, &spec);
    unlink(path);
    memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
    return s;
}

static void recommended_line(void **state)
{
    (void)state;
    const uint64_t age[] = {5000, 20000, 20001, 20001};
    struct sweep_sums *s = line_log(age, 4, 50);
    /* Missed: 75 %, 50 %, 0. */
    static const struct {
        uint32_t ppm;
        int index;
    } c[] = {{0, 2}, {499999, 2}, {500000, 1}, {749999, 1}, {750000, 0}};
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        struct sweep_result *r = sweep_result_create(s, c[i].ppm);
        assert_int_equal(r->recommended, c[i].index);
        sweep_result_free(r);
    }
    struct sweep_result *r = sweep_result_create(s, 500000);
    const struct sweep_point *p = &r->point[0];
    assert_int_equal(p->line, 200);
    assert_int_equal(p->missed, 150);
    const struct sweep_quality *up = &p->published[SWEEP_N_CLASS], *late = &p->dropped[SWEEP_N_CLASS];
    assert_true(up->known == 50 && up->hits == 50 && late->known == 149 && late->hits == 0);
    assert_true(up->hit_rate.value == 1 && late->hit_rate.value == 0);
    assert_true(fabs(up->mean_usd.value - SWEEP_USD_PER_UNIT) < 1e-12);
    assert_true(fabs(late->mean_usd.value + SWEEP_USD_PER_UNIT) < 1e-12);
    assert_true(p->difference_usd.has_interval && p->difference_usd.low > 0);
    assert_non_null(strstr(r->recommendation, "20 us"));
    assert_non_null(strstr(r->worth, "At 20 us a published prediction is worth"));
    sweep_result_free(r);
    sweep_sums_free(s);
    /* Only the published at the last threshold: nothing on the other side. */
    const uint64_t slow[] = {40000};
    s = line_log(slow, 1, 5);
    r = sweep_result_create(s, 10000);
    assert_int_equal(r->recommended, -1);
    assert_non_null(strstr(r->recommendation, "none: even at 30 us 100 % miss"));
    assert_non_null(strstr(r->worth, "too few"));
    sweep_result_free(r);
    sweep_sums_free(s);
    s = line_log(slow, 0, 5);
    r = sweep_result_create(s, 10000);
    assert_int_equal(r->recommended, -1);
    assert_non_null(strstr(r->recommendation, "no prediction came as far"));
    sweep_result_free(r);
    sweep_sums_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_poisson),
        cmocka_unit_test(keys_differ),
        cmocka_unit_test(percentiles),
        cmocka_unit_test(coverage),
        cmocka_unit_test(too_few_blocks),
        cmocka_unit_test(z_by_hand),
        cmocka_unit_test(arms_without_difference),
        cmocka_unit_test(arms_with_difference),
        cmocka_unit_test(small_samples),
        cmocka_unit_test(recommended_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
