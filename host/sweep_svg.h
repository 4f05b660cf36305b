/* The sweep page's charts, as inline SVG; colours and classes are report_style.h's. */
#ifndef SWEEP_SVG_H
#define SWEEP_SVG_H

#include <stdio.h>

#include "sweep_stats.h"

/* Shares of all predictions by verdict, stacked, over the threshold; the recommended one marked. */
void sweep_svg_verdicts(FILE *out, const struct sweep_result *result);

/* A figure of published and of dropped answers over the threshold, with their intervals as bands. */
enum sweep_svg_figure { SWEEP_SVG_HIT_RATE, SWEEP_SVG_VALUE };
void sweep_svg_quality(FILE *out, const struct sweep_result *result, enum sweep_svg_figure figure);

#endif
