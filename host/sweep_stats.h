/* What a sweep's sums say: rates, means, their bootstrap intervals, the recommended line.
 *
 * Every figure is computed from integers in one order, so equal sums give equal bits. */
#ifndef SWEEP_STATS_H
#define SWEEP_STATS_H

#include "sweep_sums.h"

/* 95 %, percentile bootstrap. */
struct sweep_interval {
    double value, low, high;
    int has_value;    /* 0: nothing to divide by */
    int has_interval; /* 0: too few blocks to say (see sweep_interval_of) */
};

#define SWEEP_USD_PER_UNIT 0.00005 /* value: half-units of 1e-4 USD */

struct sweep_quality {
    int64_t n, known,
        hits; /* predictions of this class with an answer; outcomes known; in the direction said */
    struct sweep_interval hit_rate, mean_usd;
};

struct sweep_point {
    uint32_t threshold_ns;
    int64_t by_verdict[VERDICT_COUNT];
    int64_t estimated;    /* of the published: never inferred, so without an answer */
    int64_t unsubmitted;  /* of the published: the check before the submit would have refused them */
    int64_t line, missed; /* line: published, expected-late, stale; missed: the latter two */
    double miss_rate;
    struct sweep_quality published[SWEEP_N_CLASS + 1]; /* by class; last: of all */
    struct sweep_quality dropped[SWEEP_N_CLASS + 1];   /* answers that came too late */
    struct sweep_quality other[VERDICT_COUNT];         /* answers dropped for other causes; no intervals */
    struct sweep_interval difference_usd;              /* mean of published - mean of dropped */
};

/* Two arms, one figure. Differences: B - A. */
struct sweep_ab_test {
    int64_t n[2], hits[2]; /* sums[3], instead, of the value */
    double rate[2];        /* or mean in USD */
    int has_rate;          /* both arms have some */
    double z, p_value;     /* two-proportion z test, pooled, two-sided; not of the value */
    int has_z;
    struct sweep_interval difference; /* clusters: symbols */
    double detectable;                /* difference that such a test finds in 80 % of cases, at 5 % */
};

enum { SWEEP_AB_PUBLISHED = 0, SWEEP_AB_HITS = 1, SWEEP_AB_VALUE = 2, SWEEP_N_AB = 3 };
enum { SWEEP_AB_MIN_SYMBOLS = 10 };

struct sweep_ab {
    struct sweep_arms arms;
    uint32_t n_symbol[2];
    int is_too_small; /* fewer symbols in an arm than SWEEP_AB_MIN_SYMBOLS */
    struct sweep_ab_test test[SWEEP_N_AB];
};

struct sweep_result {
    const struct sweep_sums *sums;
    uint32_t target_ppm;
    uint32_t n_point;
    struct sweep_point *point;
    int recommended;                      /* index; -1: none */
    char recommendation[512], worth[512]; /* for people */
    uint32_t n_ab;
    struct sweep_ab *ab;
};

/* sums: checked; they stay the caller's, and are needed as long as the result. NULL: out of memory. */
struct sweep_result *sweep_result_create(const struct sweep_sums *sums, uint32_t target_ppm);
void sweep_result_free(struct sweep_result *result);

/* value = scale * numerator / denominator, its interval from the replicates of both. The interval is left out
 * where blocks are too few for a bootstrap: fewer than 10 of them, by the variance of the denominator's
 * replicates (blocks of equal size n have total^2 / variance = count), or an empty replicate. */
void sweep_interval_of(int64_t numerator, int64_t denominator, const int64_t *numerators,
                       const int64_t *denominators, uint32_t n_replicate, double scale,
                       struct sweep_interval *interval);
/* Sorts x; the 2.5 and 97.5 percent points. */
void sweep_percentiles(double *x, uint32_t n, double *low, double *high);

/* Pooled two-proportion z statistic of b - a, and its two-sided p-value. 0, or -1: it does not exist (an
 * empty arm, or a pooled rate of 0 or 1). */
int sweep_two_proportions(int64_t hits_a, int64_t n_a, int64_t hits_b, int64_t n_b, double *z,
                          double *p_value);

/* Of all rows of one test, from first_row on; returns how many they are. */
uint32_t sweep_ab_of(const struct sweep_sums *sums, uint32_t first_row, struct sweep_ab *ab);

#endif
