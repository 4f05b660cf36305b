/* Stamps and quantiles of killline bench lstm: times of some tens of nanoseconds, so the time stamp counter's
 * own cost and step count. */
#ifndef BENCH_LSTM_STATS_H
#define BENCH_LSTM_STATS_H

#include <stdint.h>
#include <x86intrin.h>

#include "clock.h"

/* First stamp: all before it has been executed, nothing behind it has begun. */
static inline uint64_t bench_lstm_start(void)
{
    _mm_lfence();
    uint64_t t = __rdtsc();
    _mm_lfence();
    __asm__ volatile("" : : : "memory");
    return t;
}

/* Last stamp, also the first of what follows. */
static inline uint64_t bench_lstm_stop(void)
{
    unsigned aux;
    __asm__ volatile("" : : : "memory");
    uint64_t t = __rdtscp(&aux);
    _mm_lfence();
    return t;
}

/* Samples in TSC cycles. */
struct bench_lstm_series {
    uint64_t *cycles;
    uint32_t n, cap;
};

/* 0, or -1: out of memory. */
int bench_lstm_series_init(struct bench_lstm_series *series, uint32_t cap);
void bench_lstm_series_free(struct bench_lstm_series *series);

/* A sample; those beyond cap are a mistake of the caller. */
void bench_lstm_series_add(struct bench_lstm_series *series, uint64_t cycles);

struct bench_lstm_timer {
    struct clock_calibration calibration;
    uint64_t
        step_cycles;    /* by which the counter moves: some machines' (AMD's) count in larger steps than 1 */
    double cost_cycles; /* between start and stop with nothing between them, median */
};

/* Takes some 30 ms. 0, or -1: the counter does not run evenly, or out of memory. */
int bench_lstm_timer_init(struct bench_lstm_timer *timer);

static inline double bench_lstm_ns(const struct bench_lstm_timer *timer, double cycles)
{
    return cycles * 1e9 / timer->calibration.hz;
}

struct bench_lstm_quantiles {
    double p50, p99;
};

/* Quantile q of n > 0 sorted samples. Equal ones are taken as spread evenly over the counter's step around
 * their value: a counter of 10 ns steps would otherwise give an odd multiple of 10 ns for a time of 95. */
double bench_lstm_quantile(const uint64_t *sorted, uint32_t n, double q, uint64_t step_cycles);

/* Sorts the series. ns, each without the cost of n_stamp stamps; divided by `of` (steps in a sample). Not
 * below 0; an empty series: 0. */
struct bench_lstm_quantiles bench_lstm_summarise(struct bench_lstm_series *series,
                                                 const struct bench_lstm_timer *timer, uint32_t n_stamp,
                                                 uint32_t of);

#endif
