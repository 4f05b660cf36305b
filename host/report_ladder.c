#include <assert.h>

#include "governor.h"
#include "report_svg.h"
#include "report_text.h"

static_assert((int)CHART_N_RUNG == (int)GOVERNOR_N_RUNG, "the ladder's");

void ladder_chart_add(struct ladder_chart *chart, int slice, unsigned rung, uint64_t threshold, int arm_b)
{
    chart->slice[slice].n[rung]++;
    if (arm_b)
        return;
    if (chart->slice[slice].n_line++ == 0)
        chart->slice[slice].line_min = chart->slice[slice].line_max = threshold;
    if (threshold < chart->slice[slice].line_min)
        chart->slice[slice].line_min = threshold;
    if (threshold > chart->slice[slice].line_max)
        chart->slice[slice].line_max = threshold;
}

/* Lowest and highest threshold of all slices; both 0: there is none. */
static void line_range(const struct ladder_chart *chart, uint64_t *low, uint64_t *high)
{
    *low = UINT64_MAX;
    *high = 0;
    for (int i = 0; i < CHART_N_SLICE; i++)
        if (chart->slice[i].n_line) {
            *low = chart->slice[i].line_min < *low ? chart->slice[i].line_min : *low;
            *high = chart->slice[i].line_max > *high ? chart->slice[i].line_max : *high;
        }
    *low = *low > *high ? *high : *low;
}

int ladder_chart_moves(const struct ladder_chart *chart)
{
    uint64_t low, high;
    line_range(chart, &low, &high);
    int moves = low != high;
    for (int i = 0; i < CHART_N_SLICE; i++)
        for (int rung = GOVERNOR_ACTIVE + 1; rung < CHART_N_RUNG; rung++)
            moves |= chart->slice[i].n[rung] != 0;
    return moves;
}

void ladder_chart_draw(FILE *out, const struct ladder_chart *chart)
{
    const double width = 1080, left = 90, right = 34, top = 10, lane = 22, line_height = 90;
    const double bottom = top + CHART_N_RUNG * lane, line_top = bottom + 34,
                 line_bottom = line_top + line_height;
    const double step = (width - left - right) / CHART_N_SLICE;
    uint64_t low, high;
    line_range(chart, &low, &high);
    const int draws_line = low != high;
    fprintf(
        out,
        "<div class=\"scroll\"><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"Rungs of the ladder "
        "and the threshold over time\">",
        width, (draws_line ? line_bottom : bottom) + 30);
    for (int rung = 0; rung < CHART_N_RUNG; rung++) {
        const double y = top + rung * lane;
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>", left - 8, y + 15,
                governor_rung_name((unsigned)rung));
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
                width - right, y + lane, y + lane);
        for (int i = 0; i < CHART_N_SLICE; i++) {
            if (!chart->slice[i].n[rung])
                continue;
            fprintf(out, "<rect class=\"l%d\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                    rung, left + i * step, y + 3, step, lane - 6);
            report_put_count(out, chart->slice[i].n[rung]);
            fprintf(out, " predictions in %s</title></rect>", governor_rung_name((unsigned)rung));
        }
    }
    if (draws_line) {
        const double range = (double)high - (double)low;
        for (int k = 0; k < 2; k++) {
            const double y = k ? line_top : line_bottom;
            fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
                    width - right, y, y);
            fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 8, y + 4);
            report_put_ns(out, (double)(k ? high : low) * chart->ns_per_cycle);
            fputs("</text>", out);
        }
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">threshold in force</text>", left, line_top - 10);
        for (int i = 0; i < CHART_N_SLICE; i++) {
            if (!chart->slice[i].n_line)
                continue;
            const double y0 =
                line_bottom - line_height * ((double)chart->slice[i].line_max - (double)low) / range;
            const double y1 =
                line_bottom - line_height * ((double)chart->slice[i].line_min - (double)low) / range;
            fprintf(out, "<rect class=\"lt\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                    left + i * step, y0 - 1, step, y1 - y0 + 2);
            report_put_ns(out, (double)chart->slice[i].line_min * chart->ns_per_cycle);
            fputs(" to ", out);
            report_put_ns(out, (double)chart->slice[i].line_max * chart->ns_per_cycle);
            fputs("</title></rect>", out);
        }
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (left + width - right) / 2,
            (draws_line ? line_bottom : bottom) + 22);
    fprintf(out, "the run's %.6g seconds; one column: ", chart->span_s);
    report_put_ns(out, chart->span_s * 1e9 / CHART_N_SLICE);
    fputs("</text></svg></div>\n", out);
}
