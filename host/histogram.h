/* Latency histogram: log-linear buckets, 128 per power of two (relative error below 0.8 %), fixed size, no
 * allocation; recording is a few instructions and belongs in the poll loop. One writer. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_SUB_BITS = 7, HISTOGRAM_N_BUCKET = (64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS };

struct histogram {
    uint64_t count, min, max;
    double sum;
    uint64_t bucket[HISTOGRAM_N_BUCKET];
};

/* Empty: count 0, max 0, min UINT64_MAX. */
void histogram_init(struct histogram *histogram);
/* Any value; nothing is clamped. */
void histogram_record(struct histogram *histogram, uint64_t value);
/* The highest value of the first bucket that at least q (0..1) of the values do not exceed, never above max:
 * at most 0.8 % too high, never too low. max for q = 1; 0 when empty. */
uint64_t histogram_quantile(const struct histogram *histogram, double q);
/* Lowest and highest value of bucket i: for drawing. */
uint64_t histogram_bucket_low(uint32_t i);
uint64_t histogram_bucket_high(uint32_t i);

#endif
