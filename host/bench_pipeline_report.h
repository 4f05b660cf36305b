/* What killline bench pipeline says: for people, or one JSON object. */
#ifndef BENCH_PIPELINE_REPORT_H
#define BENCH_PIPELINE_REPORT_H

#include "bench_pipeline_overhead.h"
#include "bench_pipeline_run.h"

enum { BENCH_PIPELINE_LOADS_MAX = 16, BENCH_PIPELINE_TARGET_NS = 600 };

struct bench_pipeline_report {
    const char *backend, *build, *model; /* model: path */
    char machine[64], details[256];      /* details of the backend: variant, or device; "" */
    double time_stamp_ns;                /* between two readings of the counter */
    struct clock_calibration clock;
    struct bench_cpus cpus;
    double threshold_us;
    uint32_t n_load, n_symbol;
    struct bench_pipeline_result load[BENCH_PIPELINE_LOADS_MAX];
    struct bench_pipeline_overhead overhead;
};

/* 0, or 1 after a message on stderr. */
int bench_pipeline_print(const struct bench_pipeline_report *report, int as_json);

#endif
