/* One load of killline bench pipeline: frames at their due times through a ring port into the appliance as it
 * runs in production, and what became of every tick. */
#ifndef BENCH_PIPELINE_RUN_H
#define BENCH_PIPELINE_RUN_H

#include "bench_rig.h"

/* What is told of a tick: the stages of trace.h, and */
enum bench_pipeline_row {
    BENCH_PIPELINE_WAIT = TRACE_N_STAGE, /* due -> where receive begins: the feeder's delay, its copy into the
                                            ring, and the queue */
    BENCH_PIPELINE_TOTAL,                /* due -> record in the audit ring */
    BENCH_PIPELINE_OTHER,                /* receive to audit without inference, of published ticks */
    BENCH_PIPELINE_N_ROW,
};
const char *bench_pipeline_row_name(enum bench_pipeline_row row);

enum {
    /* One in so many of a load's frames, its first ones, is not in the figures: what was asleep or cold is
     * awake by then. */
    BENCH_PIPELINE_WARM_UP = 10,
};

struct bench_pipeline_load {
    double rate;      /* frames per second, due evenly; 0: as fast as the ring takes them */
    uint64_t n_frame; /* behind the preload; one message each */
    double seconds;   /* without a rate: ends after them, if not after n_frame */
};

struct bench_pipeline_result {
    double rate, reached, seconds;                /* reached: frames taken per second */
    uint64_t frames, ticks;                       /* without the preload */
    uint64_t verdicts[VERDICT_COUNT];             /* sum: ticks */
    uint64_t preload_ticks;                       /* verdicts that the preload's had, which are not told */
    uint64_t ring_full;                           /* frames that found the port's ring full and came later */
    uint64_t failovers, mirror_answers;           /* preload included: of a guard's cards (xrt) */
    uint64_t audit_records, audit_lost;           /* preload included: written, and lost for want of room */
    struct histogram row[BENCH_PIPELINE_N_ROW];   /* TSC cycles; ticks behind the warm-up that came so far */
    struct histogram floor[BENCH_PIPELINE_N_ROW]; /* the same, of the empty stages; wait: nothing */
};

/* Runs it. port_init has been called. 0, or 1 after a message on stderr. */
int bench_pipeline_run(const struct bench_rig *rig, const struct bench_pipeline_load *load,
                       struct bench_pipeline_result *result);

#endif
