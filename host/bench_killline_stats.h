/* Which threshold to recommend, from measured ages: the smallest whose miss rate is at most the target, not
 * by what was measured alone but by its upper confidence bound. Cold code. */
#ifndef BENCH_KILLLINE_STATS_H
#define BENCH_KILLLINE_STATS_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_KILLLINE_CONFIDENCE 0.95       /* one-sided */
#define BENCH_KILLLINE_NEVER      UINT64_MAX /* the age of a tick that no threshold would have published */

/* Upper bound of a rate of which k of n were seen (Clopper-Pearson, one-sided): the p with P(X <= k | n, p) =
 * 1 - confidence. k = n: 1. n > 0. */
double bench_killline_binomial_upper(uint64_t k, uint64_t n);

struct bench_killline_recommendation {
    uint32_t threshold_us; /* 1 .. 999; 0: none, for the reason */
    uint64_t missed, count;
    double miss_upper; /* bound of the miss rate at the threshold; without one: at 999 us */
    char reason[192];  /* "": there is one */
};

/* age_ns[n]: of every tick that was wanted, in the order of time, as it was or would have been at the last
 * check. n > 0. target: of ticks missed, 0..1. The bound is the larger of Clopper-Pearson's, and a block
 * bootstrap's (100 blocks of neighbours, 1000 resamples, seeded): misses come in bunches, which the first
 * does not know, and without any the second would be 0. */
void bench_killline_recommend(const uint64_t *age_ns, size_t n, double target,
                              struct bench_killline_recommendation *out);

#endif
