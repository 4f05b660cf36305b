/* What a run says at its end: for people on stdout, or one JSON object. */
#ifndef RUN_SUMMARY_H
#define RUN_SUMMARY_H

#include <stdio.h>

#include "appliance.h"
#include "run_accel.h"

struct run_summary {
    const struct config *config;
    const struct model *model;
    const struct appliance *appliance;
    struct audit_totals audit;
    const struct run_accel *accel;
    const char *feed_name, *audit_path, *report_path, *predictions_path; /* last: NULL without a file */
    uint64_t clock_steps; /* capture stamps that went backwards: taken as equal to the latest before them */
    double wall_s;
};

/* 0, or -1 when out could not be written. */
int run_summary_text(const struct run_summary *summary, FILE *out);
int run_summary_json(const struct run_summary *summary, FILE *out);

#endif
