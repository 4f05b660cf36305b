/* Where a tick's time goes in the poll loop: a time stamp at every change of stage, for killline bench
 * pipeline. In production no trace is set, and a mark is a branch that is never taken.
 *
 * The time since the last mark is given to the stage that the next mark names, so a stage that comes twice
 * (publish, before and behind the last check) has both parts, and all stages add up to the time from the
 * first mark to the last one. Every mark reads the counter twice: between the two readings lies nothing,
 * which is what a stage without work would show, in the same tick and at the same place (its floor). That
 * pair is in no stage. The counter is read without waiting for what is still being executed: some tens of
 * cycles may show one stage too late, none are lost. One thread. */
#ifndef TRACE_H
#define TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <x86intrin.h>

enum trace_stage {
    TRACE_RECEIVE = 0, /* port_receive, to the packet's turn; for a later packet of the burst, from the end
                          of the one before */
    TRACE_DECODE,      /* headers, checksums, MoldUDP64 */
    TRACE_BOOK,        /* market_apply: the message's fields, order book, BBO, symbol and trading state */
    TRACE_FEATURES,    /* sums by message, which streams are due, features, normalised */
    TRACE_SUBMIT,      /* the kill line's first check, the kernel's budget */
    TRACE_INFERENCE,   /* the backend: request handed over, answer polled and found whole */
    TRACE_CHECK,       /* answer judged, expectation, the kill line's last check */
    TRACE_PUBLISH,     /* datagram built, and sent */
    TRACE_AUDIT,       /* features hashed, record filled, pushed to the writer's ring */
    TRACE_N_STAGE,
};

struct trace {
    uint64_t first, last;           /* TSC; first: where the packet's first stage began, or the tick before
                                       ended */
    uint64_t packets;               /* whose turn has come */
    uint64_t cycles[TRACE_N_STAGE]; /* TSC, of this tick so far */
    uint64_t floor_cycles[TRACE_N_STAGE];
    uint32_t reached; /* bit i: stage i was marked */
    /* After a tick's verdict and its record; verdict: enum verdict. It may take its time, which is no
     * stage's. */
    void (*on_tick)(struct trace *trace, unsigned verdict);
    void *ctx;
};

/* A packet's first stage begins here; what came before is nobody's. trace NULL: nothing is measured. */
static inline void trace_begin(struct trace *trace)
{
    if (__builtin_expect(!trace, 1))
        return;
    for (int s = 0; s < TRACE_N_STAGE; s++)
        trace->cycles[s] = trace->floor_cycles[s] = 0;
    trace->reached = 0;
    trace->first = trace->last = __rdtsc();
    __asm__ volatile("" : : : "memory");
}

/* Stage ends here. */
static inline void trace_mark(struct trace *trace, enum trace_stage stage)
{
    if (__builtin_expect(!trace, 1))
        return;
    __asm__ volatile("" : : : "memory");
    const uint64_t now = __rdtsc(), again = __rdtsc();
    trace->cycles[stage] += now - trace->last;
    trace->floor_cycles[stage] += again - now;
    trace->reached |= 1u << stage;
    trace->last = again;
    __asm__ volatile("" : : : "memory");
}

/* It is the next packet's turn. */
static inline void trace_packet(struct trace *trace)
{
    trace_mark(trace, TRACE_RECEIVE);
    if (trace)
        trace->packets++;
}

/* A tick's record is in the ring. What was taken in meanwhile is in its stages: all time is some tick's, and
 * only one's. A second tick of the same packet, or of one that was decoded with it, has reached the packet's
 * stages as well, but their time is the first one's. */
static inline void trace_tick(struct trace *trace, unsigned verdict)
{
    if (__builtin_expect(!trace, 1))
        return;
    trace_mark(trace, TRACE_AUDIT);
    trace->on_tick(trace, verdict);
    for (int s = 0; s < TRACE_N_STAGE; s++)
        trace->cycles[s] = trace->floor_cycles[s] = 0;
    trace->reached &= (1u << TRACE_FEATURES) - 1;
    trace->first = trace->last = __rdtsc();
}

#endif
