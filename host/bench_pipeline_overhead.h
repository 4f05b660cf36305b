/* What a backend costs above the kernel's C simulation called directly. */
#ifndef BENCH_PIPELINE_OVERHEAD_H
#define BENCH_PIPELINE_OVERHEAD_H

#include "clock.h"
#include "histogram.h"
#include "model.h"
#include "run_accel.h"

/* Of one step each, from submit to the answer; TSC cycles. */
struct bench_pipeline_overhead {
    int is_measured;
    uint64_t steps;    /* of each, answered by the card */
    uint64_t mirrored; /* answered by a guard's mirror instead: compared, but in no figure */
    struct histogram backend, csim;
};

/* Steps the accelerator and a C simulation of its build in turn, with the same requests, on the calling
 * thread; every answer is compared. accel: model in slot 0; its stream 0 is reset and used. 0, or 1 after a
 * message on stderr: no answer, another answer, out of memory. */
int bench_pipeline_measure_overhead(const struct run_accel *accel, const struct model *model,
                                    const struct clock_calibration *clock,
                                    struct bench_pipeline_overhead *overhead);

#endif
