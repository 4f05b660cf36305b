/* The charts of the report page, as inline SVG. Gather into the struct, then draw; the structs hold
 * counts only, whatever the log's length. */
#ifndef REPORT_SVG_H
#define REPORT_SVG_H

#include <stdint.h>
#include <stdio.h>

#include "killline.h"

/* Latency histogram: bins of equal width on a log axis, one of whose borders is the kill line, so that no bar
 * lies on both sides of it. */
enum { CHART_N_BIN = 110 };

struct latency_chart {
    uint64_t line, line_min, line_max; /* cycles; min, max: over the log */
    double ns_per_cycle;
    int first_bin;    /* index, relative to the kill line's, of bin[0] */
    double log_ratio; /* of neighbouring borders */
    uint64_t published[CHART_N_BIN], dropped[CHART_N_BIN];
};

/* low, high: the range of ages to come, cycles. line and ns_per_cycle are set by then. */
void latency_chart_init(struct latency_chart *chart, uint64_t low, uint64_t high);
/* age in cycles; one outside the range goes into the bin at that end. */
void latency_chart_add(struct latency_chart *chart, uint64_t age, int is_published);
void latency_chart_draw(FILE *out, const struct latency_chart *chart);

/* Verdicts over time: one stacked column per slice. */
enum { CHART_N_SLICE = 120, CHART_N_MARK = 64 };

struct time_chart {
    double span_s;
    uint64_t slice[CHART_N_SLICE][VERDICT_COUNT];
    double mark[CHART_N_MARK]; /* gaps: 0..1 of the span */
    int n_mark;
};

void time_chart_draw(FILE *out, const struct time_chart *chart);

/* The ladder's rungs and the threshold over time, slice by slice as above, from what each prediction's record
 * says was in force. */
enum { CHART_N_RUNG = 4 };

struct ladder_chart {
    double span_s, ns_per_cycle;
    struct {
        uint64_t n[CHART_N_RUNG];    /* predictions, by rung */
        uint64_t line_min, line_max; /* cycles; of arm A, and of the slice's n_line */
        uint64_t n_line;
    } slice[CHART_N_SLICE];
};

/* arm_b: the threshold is arm B's, which does not move, and is not drawn. */
void ladder_chart_add(struct ladder_chart *chart, int slice, unsigned rung, uint64_t threshold, int arm_b);
/* Nonzero: it has more to show than one rung, ACTIVE, and one threshold. */
int ladder_chart_moves(const struct ladder_chart *chart);
void ladder_chart_draw(FILE *out, const struct ladder_chart *chart);

#endif
