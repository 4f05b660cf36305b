/* A sweep's result for people (text, HTML) and for programs (JSON). Nothing in it depends on paths, on how
 * the logs were split or on their order. Errors of the stream are the caller's to ask for (ferror). */
#ifndef SWEEP_REPORT_H
#define SWEEP_REPORT_H

#include <stdio.h>

#include "sweep_stats.h"

void sweep_report_text(FILE *out, const struct sweep_result *result);
/* One object and a newline. 0, or -1: out of memory. */
int sweep_report_json(FILE *out, const struct sweep_result *result);
/* One page without script or network. */
void sweep_report_html(FILE *out, const struct sweep_result *result);

/* Shared by the three. What the figures rest on, for every reader; NULL behind the last. */
const char *sweep_report_note(unsigned i);
/* Whether the ages are modelled or measured, by the logs' clocks. */
void sweep_report_clock(const struct sweep_sums *sums, char text[160]);
/* "10 ticks of its symbol", "100 ms". */
void sweep_report_horizon(const struct sweep_spec *spec, char text[48]);
/* What an A/B test's figures allow to say. */
void sweep_report_ab_text(const struct sweep_ab *ab, int which, char text[256]);
extern const char *const sweep_ab_figure[SWEEP_N_AB];

#endif
