/* What killline bench killline says: text on one screen, JSON, an HTML page. */
#ifndef BENCH_KILLLINE_REPORT_H
#define BENCH_KILLLINE_REPORT_H

#include <stdio.h>

#include "bench_killline_check.h"
#include "bench_killline_run.h"
#include "bench_killline_stress.h"
#include "bench_setup.h"

enum { BENCH_KILLLINE_N_OVERLOAD = 2, BENCH_KILLLINE_N_IDLE = 2 };

struct bench_killline_report {
    const struct bench_setup *setup;
    uint32_t n_symbol;
    double target_miss;
    struct bench_killline_capacity capacity;
    struct bench_killline_result result;
    struct bench_killline_check check;
    struct bench_killline_overload overload[BENCH_KILLLINE_N_OVERLOAD]; /* accelerator; wire */
    struct bench_killline_idle idle[BENCH_KILLLINE_N_IDLE];
    struct bench_killline_halt halt;
};

/* The four indicators of the procedure. */
enum bench_killline_indicator {
    BENCH_KILLLINE_LATENCY = 0,
    BENCH_KILLLINE_THROUGHPUT,
    BENCH_KILLLINE_RESOURCE_USE,
    BENCH_KILLLINE_STABILITY,
    BENCH_KILLLINE_N_INDICATOR,
};
struct bench_killline_judged {
    const char *name; /* "latency" ... */
    int is_alert;
    double value, bound; /* in unit; bound 0: none is configured */
    const char *unit;    /* "percent", "ns" */
    char text[256];      /* in words */
};
void bench_killline_judge(const struct bench_killline_report *report,
                          struct bench_killline_judged judged[BENCH_KILLLINE_N_INDICATOR]);

double bench_killline_ns(const struct bench_killline_report *report, const struct histogram *h, double q);
/* The fullest resource. */
double bench_killline_resource_percent(const struct bench_killline_report *report);
/* Missed, of what was to be predicted; by cause: verdict. */
double bench_killline_miss_rate(const struct bench_killline_report *report);

/* Each to a stream; 0, or -1: it could not be written. */
int bench_killline_text(const struct bench_killline_report *report, FILE *out);
int bench_killline_json(const struct bench_killline_report *report, FILE *out);
int bench_killline_page(const struct bench_killline_report *report, FILE *out);

#endif
