/* The governor's rolling window: eight slices, each with counts and two log-linear histograms of age, one in
 * the run's clock, one in thousandths of the threshold that was in force for that tick.
 *
 * A prediction belongs to the slice that runs when it is added. A slice that is over is measured together
 * with the seven before it; then the oldest makes room for the next. One thread; integers; constant work. */
#ifndef GOVERNOR_WINDOW_H
#define GOVERNOR_WINDOW_H

#include <stdint.h>

#include "killline.h"

enum {
    GOVERNOR_N_SLICE = 8,
    /* 16 buckets per power of two, one value each below 16; one for all beyond. */
    GOVERNOR_N_AGE = (36 - 3) * 16 + 1,   /* below 2^36 units: 20 s at 3 GHz */
    GOVERNOR_N_RATIO = (16 - 3) * 16 + 1, /* below 65 thresholds */
    /* Places of a slice's counts. */
    GOVERNOR_AT_AGE = 0,
    GOVERNOR_AT_RATIO = GOVERNOR_AT_AGE + GOVERNOR_N_AGE,
    GOVERNOR_AT_VERDICT = GOVERNOR_AT_RATIO + GOVERNOR_N_RATIO,
    GOVERNOR_AT_DEVICE = GOVERNOR_AT_VERDICT + VERDICT_COUNT,
    GOVERNOR_N_COUNT = (GOVERNOR_AT_DEVICE + 16) / 16 * 16 /* whole cache lines */
};

/* Of 32 bits: right for less than 2^32 predictions in a window. */
struct governor_counts {
    _Alignas(64) uint32_t n[GOVERNOR_N_COUNT];
};

struct governor_slice {
    struct governor_counts counts;
    uint64_t max_age, max_ratio;
    uint64_t busy; /* run's clock */
};

struct governor_window {
    struct governor_slice slice[GOVERNOR_N_SLICE];
    struct governor_counts sum;               /* of all slices but the one that runs */
    uint64_t total_by_verdict[VERDICT_COUNT]; /* of slices that are over */
    uint64_t begin, length;                   /* of the slice that runs; run's clock */
    uint32_t current;
    uint32_t covered; /* slices before the one that runs that time has passed through, at most 7 */
};

struct governor_figures {
    uint64_t by_verdict[VERDICT_COUNT], total_by_verdict[VERDICT_COUNT];
    uint64_t n_aged;                    /* predictions in the histograms */
    uint32_t n_slice;                   /* slices with predictions that the line is about */
    uint64_t p50, p99, max;             /* age, run's clock; at most 1/16 too high, never too low */
    uint64_t p99_ratio;                 /* thousandths of the threshold; the same */
    uint64_t device_errors, busy, span; /* span: time that all this is about, at least a slice */
};

void governor_window_init(struct governor_window *w, uint64_t length, uint64_t now);
/* Empty, as at the start; the totals stay. */
void governor_window_clear(struct governor_window *w, uint64_t now);

/* now - w->begin must not be negative. Measures the eight slices up to the last one that is over, or, if the
 * one that runs is not, that and the seven before it; and makes room for the slice that now belongs to. */
void governor_window_turn(struct governor_window *w, uint64_t now, struct governor_figures *figures);

static inline uint32_t governor_bucket(uint64_t value, uint32_t n_bucket)
{
    if (value < 16)
        return (uint32_t)value;
    const uint32_t exponent = 63 - (uint32_t)__builtin_clzll(value);
    const uint32_t i = (exponent - 3) * 16 + (uint32_t)(value >> (exponent - 4) & 15);
    return i < n_bucket ? i : n_bucket - 1;
}

/* Thousandths of the threshold, rounded up. */
static inline uint64_t governor_ratio(uint64_t age, uint64_t threshold)
{
    if (age == 0)
        return 0;
    if (threshold == 0 || age > UINT64_MAX / 1000)
        return UINT64_MAX;
    const uint64_t ratio = age * 1000 / threshold;
    return ratio + (ratio * threshold != age * 1000);
}

static inline void governor_window_age(struct governor_slice *slice, uint64_t age, uint64_t threshold)
{
    const uint64_t ratio = governor_ratio(age, threshold);
    slice->counts.n[GOVERNOR_AT_AGE + governor_bucket(age, GOVERNOR_N_AGE)]++;
    slice->counts.n[GOVERNOR_AT_RATIO + governor_bucket(ratio, GOVERNOR_N_RATIO)]++;
    slice->max_age = age > slice->max_age ? age : slice->max_age;
    slice->max_ratio = ratio > slice->max_ratio ? ratio : slice->max_ratio;
}

#endif
