/* The kill line: is this prediction still worth anything? Cycles in, verdict out.
 *
 * Depends on nothing but integers. Two checks: before submit, a tick that cannot make it any more never costs
 * accelerator time; after completion, as the last thing before the send, age <= threshold or it is dropped.
 */
#ifndef KILLLINE_H
#define KILLLINE_H

#include <stdint.h>

enum verdict {
    VERDICT_PUBLISHED = 0,
    VERDICT_EXPECTED_LATE = 1,   /* before submit: age + expected inference > threshold; or the kernel, asked
                                    with what is left as its   budget, did not begin (AUDIT_FLAG_KERNEL_LATE) */
    VERDICT_STALE = 2,           /* before publish: age > threshold */
    VERDICT_SUPERSEDED = 3,      /* a newer tick of the same symbol was already waiting; not given yet: the
                                    poll loop works ticks off in their order */
    VERDICT_BOOK_UNRELIABLE = 4, /* after a gap or a mid-session join, until the join policy is met */
    VERDICT_WARMING_UP = 5,      /* the stream has seen fewer ticks than the model needs */
    VERDICT_DEVICE_ERROR =
        6,              /* the accelerator failed or was silent too long, or the send port took nothing */
    VERDICT_HALTED = 7, /* the appliance is halted, or the symbol is not trading */
    VERDICT_COUNT = 8,
};

/* "published", "expected-late" ...; NULL for a value out of range. */
const char *verdict_name(unsigned verdict);

/* Age in cycles. A stamp in the future (hardware stamp ahead of the TSC) has age 0 and sets *clamped. */
static inline uint64_t killline_age(uint64_t arrival, uint64_t now, int *clamped)
{
    int64_t age = (int64_t)(now - arrival); /* modulo 2^64: right across a wrap for ages below 2^63 */
    *clamped = age < 0;
    return age < 0 ? 0 : (uint64_t)age;
}

/* Before submit. Nonzero: it can still make the line. No overflow for any input. */
static inline int killline_can_make(uint64_t age, uint64_t expected, uint64_t threshold)
{
    return age <= threshold && expected <= threshold - age;
}

/* Before publish. Nonzero: publish. Exact at threshold - 1, threshold (both published) and threshold + 1. */
static inline int killline_fresh(uint64_t age, uint64_t threshold)
{
    return age <= threshold;
}

/* The expected inference time: a running quantile, near the 80th percentile, of measured ones (up by 1/16,
 * down by 1/64 of itself). One answer moves it by little, however late it was: a mean would carry a single 4
 * ms preemption over the line, and then nothing would be submitted that could bring it back. */
static inline uint64_t killline_expect(uint64_t expected, uint64_t measured)
{
    return measured > expected ? expected + (expected >> 4) + 1 : expected - (expected >> 6);
}

/* After a tick that was not submitted. An expectation beyond half the line is doubted, so that even after a
 * slow spell a tick is tried again. */
static inline uint64_t killline_expect_unproved(uint64_t expected, uint64_t threshold)
{
    return expected > threshold / 2 ? expected - (expected >> 6) : expected;
}

#endif
