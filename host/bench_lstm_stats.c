#include "bench_lstm_stats.h"

#include <assert.h>
#include <stdlib.h>

enum { N_EMPTY = 20000, CALIBRATION_MS = 30 };

int bench_lstm_series_init(struct bench_lstm_series *series, uint32_t cap)
{
    *series = (struct bench_lstm_series){.cycles = malloc(cap * sizeof(*series->cycles)), .cap = cap};
    /* Touched now: no page fault between two stamps. */
    for (uint32_t i = 0; series->cycles && i < cap; i++)
        series->cycles[i] = UINT64_MAX;
    return series->cycles ? 0 : -1;
}

void bench_lstm_series_free(struct bench_lstm_series *series)
{
    free(series->cycles);
    *series = (struct bench_lstm_series){0};
}

void bench_lstm_series_add(struct bench_lstm_series *series, uint64_t cycles)
{
    assert(series->n < series->cap);
    series->cycles[series->n++] = cycles;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

double bench_lstm_quantile(const uint64_t *sorted, uint32_t n, double q, uint64_t step_cycles)
{
    const double rank = q * n;
    uint32_t at = (uint32_t)rank;
    if (at >= n)
        at = n - 1;
    uint32_t first = at, end = at + 1;
    while (first > 0 && sorted[first - 1] == sorted[at])
        first--;
    while (end < n && sorted[end] == sorted[at])
        end++;
    return (double)sorted[at] + (double)step_cycles * ((rank - first) / (end - first) - 0.5);
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int bench_lstm_timer_init(struct bench_lstm_timer *timer)
{
    struct bench_lstm_series empty;
    *timer = (struct bench_lstm_timer){0};
    if (clock_calibrate(&timer->calibration, CALIBRATION_MS) != 0 ||
        bench_lstm_series_init(&empty, N_EMPTY) != 0)
        return -1;
    for (int i = 0; i < N_EMPTY; i++) {
        uint64_t start = bench_lstm_start(), stop = bench_lstm_stop();
        bench_lstm_series_add(&empty, stop - start);
        timer->step_cycles = greatest_common_divisor(timer->step_cycles, stop - start);
    }
    if (timer->step_cycles == 0)
        timer->step_cycles = 1;
    qsort(empty.cycles, empty.n, sizeof(empty.cycles[0]), compare_u64);
    timer->cost_cycles = bench_lstm_quantile(empty.cycles, empty.n, 0.5, timer->step_cycles);
    bench_lstm_series_free(&empty);
    return 0;
}

struct bench_lstm_quantiles bench_lstm_summarise(struct bench_lstm_series *series,
                                                 const struct bench_lstm_timer *timer, uint32_t n_stamp,
                                                 uint32_t of)
{
    if (series->n == 0)
        return (struct bench_lstm_quantiles){0};
    qsort(series->cycles, series->n, sizeof(series->cycles[0]), compare_u64);
    double value[2];
    for (int i = 0; i < 2; i++) {
        double cycles = bench_lstm_quantile(series->cycles, series->n, i ? 0.99 : 0.5, timer->step_cycles) -
                        n_stamp * timer->cost_cycles;
        value[i] = cycles > 0 ? bench_lstm_ns(timer, cycles) / of : 0;
    }
    return (struct bench_lstm_quantiles){value[0], value[1]};
}
