#include "histogram.h"

#include <math.h>
#include <string.h>

enum { SUB_COUNT = 1 << HISTOGRAM_SUB_BITS };

void histogram_init(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->min = UINT64_MAX;
}

/* Values below 2 * SUB_COUNT have a bucket each; above, every power of two has SUB_COUNT. */
static uint32_t bucket_of(uint64_t value)
{
    if (value < SUB_COUNT)
        return (uint32_t)value;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    return ((shift + 1) << HISTOGRAM_SUB_BITS) + ((uint32_t)(value >> shift) & (SUB_COUNT - 1));
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
    histogram->bucket[bucket_of(value)]++;
    histogram->count++;
    histogram->sum += (double)value;
    if (value < histogram->min)
        histogram->min = value;
    if (value > histogram->max)
        histogram->max = value;
}

uint64_t histogram_bucket_low(uint32_t i)
{
    uint32_t octave = i >> HISTOGRAM_SUB_BITS;
    if (octave == 0)
        return i;
    return (uint64_t)(SUB_COUNT + (i & (SUB_COUNT - 1))) << (octave - 1);
}

uint64_t histogram_bucket_high(uint32_t i)
{
    uint32_t octave = i >> HISTOGRAM_SUB_BITS;
    return octave == 0 ? i : histogram_bucket_low(i) + ((1ull << (octave - 1)) - 1);
}

uint64_t histogram_quantile(const struct histogram *histogram, double q)
{
    if (histogram->count == 0)
        return 0;
    if (q >= 1)
        return histogram->max;
    /* The factor keeps 0.07 * 100 = 7.000000000000001 from becoming rank 8. */
    double rank_real = ceil(q * (double)histogram->count * (1 - 1e-14));
    uint64_t rank = rank_real > 1 ? (uint64_t)rank_real : 1, seen = 0; /* a NaN or negative q: the minimum */
    for (uint32_t i = 0; i < HISTOGRAM_N_BUCKET; i++) {
        seen += histogram->bucket[i];
        if (seen >= rank) {
            uint64_t high = histogram_bucket_high(i);
            return high < histogram->max ? high : histogram->max;
        }
    }
    return histogram->max;
}
