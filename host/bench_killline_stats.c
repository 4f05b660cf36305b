#include "bench_killline_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

enum { N_BLOCK = 100, N_RESAMPLE = 1000, BISECTIONS = 60 };

/* log P(X = k | n, p) */
static double log_binomial(double k, double n, double p)
{
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(p) + (n - k) * log1p(-p);
}

/* P(X <= k | n, p) for p > k / n: the terms fall from k on down. */
static double binomial_cdf(uint64_t k, uint64_t n, double p)
{
    double term = 1, sum = 1;
    for (uint64_t i = k; i > 0 && term > 1e-12 * sum; i--) {
        term *= (double)i / (double)(n - i + 1) * (1 - p) / p;
        sum += term;
    }
    return sum * exp(log_binomial((double)k, (double)n, p));
}

double bench_killline_binomial_upper(uint64_t k, uint64_t n)
{
    double low = (double)k / (double)n, high = 1;
    if (k >= n)
        return 1;
    for (int i = 0; i < BISECTIONS; i++) {
        const double p = (low + high) / 2;
        if (p > low && p < 1 && binomial_cdf(k, n, p) > 1 - BENCH_KILLLINE_CONFIDENCE)
            low = p;
        else
            high = p;
    }
    return high;
}

static int compare_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Misses above the threshold, in all and by block. */
static uint64_t count_misses(const uint64_t *age_ns, size_t n, uint64_t threshold_ns, uint64_t block[N_BLOCK])
{
    uint64_t missed = 0;
    memset(block, 0, N_BLOCK * sizeof(*block));
    for (size_t i = 0; i < n; i++)
        if (age_ns[i] > threshold_ns) {
            block[i * N_BLOCK / n]++;
            missed++;
        }
    return missed;
}

static double bootstrap_upper(const uint64_t block[N_BLOCK], size_t n)
{
    double rate[N_RESAMPLE];
    uint64_t random = 20191230;
    for (int r = 0; r < N_RESAMPLE; r++) {
        uint64_t missed = 0;
        for (int i = 0; i < N_BLOCK; i++) {
            random ^= random << 13; /* xorshift64, Marsaglia 2003 */
            random ^= random >> 7;
            random ^= random << 17;
            missed += block[(random >> 32) % N_BLOCK];
        }
        rate[r] = (double)missed / (double)n;
    }
    qsort(rate, N_RESAMPLE, sizeof(rate[0]), compare_double);
    return rate[(int)(BENCH_KILLLINE_CONFIDENCE * N_RESAMPLE)];
}

static double upper_bound(const uint64_t *age_ns, size_t n, uint32_t threshold_us, uint64_t *missed)
{
    uint64_t block[N_BLOCK];
    *missed = count_misses(age_ns, n, threshold_us * 1000ull, block);
    return fmax(bench_killline_binomial_upper(*missed, n), bootstrap_upper(block, n));
}

void bench_killline_recommend(const uint64_t *age_ns, size_t n, double target,
                              struct bench_killline_recommendation *out)
{
    *out = (struct bench_killline_recommendation){.count = n};
    out->miss_upper = upper_bound(age_ns, n, CONFIG_THRESHOLD_US_MAX, &out->missed);
    if (out->miss_upper > target) {
        const double without = bench_killline_binomial_upper(0, n);
        if (without > target)
            snprintf(out->reason, sizeof(out->reason),
                     "%zu ticks show no rate below %.3g %%, had none been missed: more --runs, at least %.0f",
                     n, without * 100, ceil(log(1 - BENCH_KILLLINE_CONFIDENCE) / log1p(-target)));
        else
            snprintf(out->reason, sizeof(out->reason),
                     "at %d us %llu of %zu ticks are missed, and the bound of the rate is %.3g %%",
                     CONFIG_THRESHOLD_US_MAX, (unsigned long long)out->missed, n, out->miss_upper * 100);
        return;
    }
    uint32_t low = 0, high = CONFIG_THRESHOLD_US_MAX; /* low: too low; both bounds fall as it rises */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        uint64_t missed;
        const double upper = upper_bound(age_ns, n, middle, &missed);
        if (upper > target) {
            low = middle;
        } else {
            high = middle;
            out->miss_upper = upper;
            out->missed = missed;
        }
    }
    out->threshold_us = high;
}
