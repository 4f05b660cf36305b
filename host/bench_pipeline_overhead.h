/* What a backend costs above the kernel's C simulation called directly. */
#ifndef BENCH_PIPELINE_OVERHEAD_H
#define BENCH_PIPELINE_OVERHEAD_H

#include "accel.h"
#include "clock.h"
#include "histogram.h"
#include "model.h"

/* Of one step each, from submit to the answer; TSC cycles. */
struct bench_pipeline_overhead {
    uint64_t steps; /* 0: not measured */
    struct histogram backend, csim;
};

/* Steps accel and a C simulation of build in turn, with the same requests, on the calling thread; every
 * answer is compared. accel: model in slot 0; its stream 0 is reset and used. 0, or 1 after a message on
 * stderr: no answer, another answer, out of memory. */
int bench_pipeline_measure_overhead(struct accel *accel, const struct kl_build *build,
                                    const struct model *model, const struct clock_calibration *clock,
                                    struct bench_pipeline_overhead *overhead);

#endif
