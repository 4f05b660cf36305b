/* Sections of the report page that list single records of the log, and the words for stages and causes. */
#ifndef REPORT_RECORDS_H
#define REPORT_RECORDS_H

#include <stdio.h>

#include "report_data.h"

struct report_stage_text {
    const char *name, *what;
};
extern const struct report_stage_text report_stage_text[REPORT_N_STAGE];
extern const char *const report_cause_text[VERDICT_COUNT]; /* by verdict: what it means */

/* A table's cell with a duration. */
void report_put_cycles_cell(FILE *out, const struct report_data *data, uint64_t cycles);

/* The oldest published and the oldest dropped predictions, each with what took its time. */
void report_predictions(FILE *out, const struct report_data *data);
void report_events(FILE *out, const struct report_data *data);

#endif
