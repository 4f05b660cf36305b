/* The kill line: is this prediction still worth anything? Cycles in, verdict out.
 *
 * Depends on nothing but integers: cycles of one clock, which the caller reads. Two checks: before submit, a
 * tick that cannot make it any more never costs accelerator time; after completion, as the last thing before
 * the send, age <= threshold or it is dropped. Whatever cannot be trusted is not fresh.
 */
#ifndef KILLLINE_H
#define KILLLINE_H

#include <stdint.h>

enum verdict {
    VERDICT_PUBLISHED = 0,
    VERDICT_EXPECTED_LATE = 1,   /* before submit: age + expected inference > threshold; or the kernel, asked
                                    with what is left as its budget, did not begin (AUDIT_FLAG_KERNEL_LATE) */
    VERDICT_STALE = 2,           /* before publish: age > threshold, or an age that is not known */
    VERDICT_SUPERSEDED = 3,      /* a newer tick of the same symbol was already waiting */
    VERDICT_BOOK_UNRELIABLE = 4, /* after a gap or a mid-session join, until the join policy is met */
    VERDICT_WARMING_UP = 5,      /* the stream has seen fewer ticks than the model needs */
    VERDICT_DEVICE_ERROR =
        6,              /* the accelerator failed or was silent too long, or the send port took nothing */
    VERDICT_HALTED = 7, /* the appliance is halted, or the symbol is not trading */
    VERDICT_COUNT = 8,
};

/* "published", "expected-late" ...; NULL for a value out of range. */
const char *verdict_name(unsigned verdict);

/* A clock that goes back starts a new epoch: stamps of different epochs say nothing about each other. A clock
 * that leaps ahead needs none: what arrived before it is old, and is dropped for it. A step back that is
 * shorter than the time between two looks cannot be seen from inside; the looks are as close as the checks
 * themselves. One thread. */
struct killline_clock {
    uint64_t last;
    uint32_t epoch;
};

/* Every reading goes through here. Returns the epoch it belongs to. */
static inline uint32_t killline_look(struct killline_clock *clock, uint64_t now)
{
    clock->epoch += (int64_t)(now - clock->last) < 0; /* modulo 2^64: a wrap is no step back */
    clock->last = now;
    return clock->epoch;
}

enum killline_quality {
    KILLLINE_AGE_EXACT = 0,
    KILLLINE_AGE_CLAMPED = 1, /* the arrival lies up to future_max ahead: stamped by a clock that is mapped to
                                 this one, to within its error. Age 0 */
    KILLLINE_AGE_UNKNOWN = 2, /* further ahead, or of another epoch. Age KILLLINE_AGE_NEVER */
};
#define KILLLINE_AGE_NEVER UINT64_MAX /* no threshold admits it */

/* Age in cycles of what arrived then, now. */
static inline uint64_t killline_age(uint64_t arrival, uint32_t arrival_epoch, uint64_t now, uint32_t epoch,
                                    uint64_t future_max, enum killline_quality *quality)
{
    const uint64_t age = now - arrival; /* modulo 2^64: right across a wrap for ages below 2^63 */
    if (arrival_epoch == epoch && (int64_t)age >= 0) {
        *quality = KILLLINE_AGE_EXACT;
        return age;
    }
    if (arrival_epoch == epoch && arrival - now <= future_max) {
        *quality = KILLLINE_AGE_CLAMPED;
        return 0;
    }
    *quality = KILLLINE_AGE_UNKNOWN;
    return KILLLINE_AGE_NEVER;
}

/* Before submit. Nonzero: it can still make the line. No overflow for any input. */
static inline int killline_can_make(uint64_t age, uint64_t expected, uint64_t threshold)
{
    return age <= threshold && expected <= threshold - age;
}

/* The last thing before the send. Exact at threshold - 1, threshold (both published) and threshold + 1. A
 * threshold of KILLLINE_AGE_NEVER admits nothing. */
static inline enum verdict killline_verdict(uint64_t age, uint64_t threshold, int halted)
{
    return halted                                                ? VERDICT_HALTED
           : age <= threshold && threshold != KILLLINE_AGE_NEVER ? VERDICT_PUBLISHED
                                                                 : VERDICT_STALE;
}

/* The expected inference time of a slot, submit to last check: a running quantile, near the 80th percentile,
 * of measured ones (up by 1/16, down by 1/64 of itself). One answer moves it by little, however late it was:
 * a mean would carry a single 4 ms preemption over the line, and then nothing would be submitted that could
 * bring it back. */
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

/* Of the last of a batch: first, and further for each of the n - 1 behind it. Saturates. */
static inline uint64_t killline_expect_batch(uint64_t first, uint64_t further, uint32_t n)
{
    const uint64_t more = n > 1 ? n - 1 : 0;
    return further && more > (UINT64_MAX - first) / further ? UINT64_MAX : first + more * further;
}

#endif
