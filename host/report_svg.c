#include "report_svg.h"

#include <math.h>

#include "report_text.h"

void latency_chart_init(struct latency_chart *chart, uint64_t low, uint64_t high)
{
    double line = chart->line ? (double)chart->line : 1;
    double lo = log((low ? (double)low : 1) / line), hi = log((high ? (double)high : 1) / line);
    lo = fmin(lo, -0.1) - 0.1;
    hi = fmax(hi, 0.1) + 0.1;
    chart->log_ratio = (hi - lo) / (CHART_N_BIN - 2); /* two to spare for rounding to the kill line */
    chart->first_bin = (int)floor(lo / chart->log_ratio);
}

void latency_chart_add(struct latency_chart *chart, uint64_t age, int is_published)
{
    double line = chart->line ? (double)chart->line : 1;
    int bin = (int)floor(log((age ? (double)age : 1) / line) / chart->log_ratio);
    /* Left of the line as far as the verdict's integer comparison goes; right of it the logarithm is never
     * negative. */
    if (age <= chart->line && bin >= 0)
        bin = -1;
    bin -= chart->first_bin;
    bin = bin < 0 ? 0 : bin >= CHART_N_BIN ? CHART_N_BIN - 1 : bin;
    (is_published ? chart->published : chart->dropped)[bin]++;
}

static double bar_height(uint64_t n, uint64_t n_max, double height)
{
    return n_max ? height * log10(1 + (double)n) / log10(1 + (double)n_max) : 0;
}

void latency_chart_draw(FILE *out, const struct latency_chart *chart)
{
    const double width = 1080, left = 64, right = 34, top = 34, half = 150, middle = top + half,
                 bottom = top + 2 * half;
    const double step = (width - left - right) / CHART_N_BIN;
    const double line_x = left - chart->first_bin * step;
    const double line_ns = (chart->line ? (double)chart->line : 1) * chart->ns_per_cycle;
    uint64_t n_max = 1;
    for (int i = 0; i < CHART_N_BIN; i++) {
        n_max = chart->published[i] > n_max ? chart->published[i] : n_max;
        n_max = chart->dropped[i] > n_max ? chart->dropped[i] : n_max;
    }
    fprintf(
        out,
        "<div class=\"scroll\"><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"Latency histogram, "
        "published above, dropped below, with the kill line\">",
        width, bottom + 44);
    for (uint64_t n = 1; n <= n_max && n < UINT64_MAX / 10; n *= 10) {
        double h = bar_height(n, n_max, half);
        for (int side = -1; side <= 1; side += 2) {
            fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
                    width - right, middle + side * h, middle + side * h);
            fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 6, middle + side * h + 4);
            report_put_count(out, n);
            fputs("</text>", out);
        }
    }
    /* Ticks at 1, 2, 5 in every decade; only at 1 when there are many. */
    double lo_ns = line_ns * exp(chart->first_bin * chart->log_ratio);
    double hi_ns = line_ns * exp((chart->first_bin + CHART_N_BIN) * chart->log_ratio);
    int n_decade = (int)(log10(hi_ns / lo_ns));
    for (int e = (int)floor(log10(lo_ns)); e <= (int)ceil(log10(hi_ns)); e++) {
        static const double mantissa[] = {1, 2, 5};
        for (int k = 0; k < (n_decade > 5 ? 1 : 3); k++) {
            double ns = mantissa[k] * pow(10, e), x = line_x + log(ns / line_ns) / chart->log_ratio * step;
            if (x < left || x > width - right)
                continue;
            fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x, top,
                    bottom + 5);
            fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x, bottom + 19);
            report_put_ns(out, ns);
            fputs("</text>", out);
        }
    }
    for (int i = 0; i < CHART_N_BIN; i++) {
        const uint64_t n[2] = {chart->published[i], chart->dropped[i]};
        for (int d = 0; d < 2; d++) {
            if (!n[d])
                continue;
            double h = bar_height(n[d], n_max, half),
                   lo = line_ns * exp((chart->first_bin + i) * chart->log_ratio);
            fprintf(out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                    d ? "df" : "pf", left + i * step + 0.4, d ? middle : middle - h, step - 0.8, h);
            report_put_count(out, n[d]);
            fputs(d ? " dropped, " : " published, ", out);
            report_put_ns(out, lo);
            fputs(" to ", out);
            report_put_ns(out, lo * exp(chart->log_ratio));
            fputs("</title></rect>", out);
        }
    }
    fprintf(out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
            width - right, middle, middle);
    if (chart->line_min != chart->line_max) {
        double x[2];
        for (int k = 0; k < 2; k++) {
            uint64_t at = k ? chart->line_max : chart->line_min;
            double ratio = (at ? (double)at : 1) / (chart->line ? (double)chart->line : 1);
            x[k] = fmin(fmax(line_x + log(ratio) / chart->log_ratio * step, left), width - right);
        }
        fprintf(out, "<rect class=\"kb\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", x[0], top,
                x[1] - x[0], 2 * half);
    }
    fprintf(out, "<line class=\"kl\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", line_x, line_x,
            top - 8, bottom + 5);
    int label_left = line_x > width - 220;
    fprintf(out, "<text class=\"kt\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">kill line ",
            line_x + (label_left ? -7 : 7), top - 10, label_left ? "end" : "start");
    report_put_ns(out, line_ns);
    fputs("</text>", out);
    fprintf(out, "<text class=\"strong\" x=\"%.1f\" y=\"%.1f\">published</text>", left + 8, top + 14);
    fprintf(out, "<text class=\"strong\" x=\"%.1f\" y=\"%.1f\">dropped</text>", left + 8, bottom - 8);
    fprintf(out,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">age at the verdict (log axis); counts on a "
            "log axis too</text>",
            (left + width - right) / 2, bottom + 39);
    fputs("</svg></div>\n", out);
}

/* The smallest of 1, 2, 5 * 10^k that is at least v. */
static double nice_above(double v)
{
    double p = pow(10, floor(log10(v)));
    return v <= p ? p : v <= 2 * p ? 2 * p : v <= 5 * p ? 5 * p : 10 * p;
}

void time_chart_draw(FILE *out, const struct time_chart *chart)
{
    const double width = 1080, left = 64, right = 34, top = 22, height = 220, bottom = top + height;
    const double step = (width - left - right) / CHART_N_SLICE;
    uint64_t n_max = 1;
    for (int i = 0; i < CHART_N_SLICE; i++) {
        uint64_t n = 0;
        for (int v = 0; v < VERDICT_COUNT; v++)
            n += chart->slice[i][v];
        n_max = n > n_max ? n : n_max;
    }
    fprintf(out,
            "<div class=\"scroll\"><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"Verdicts over "
            "time, stacked by cause\">",
            width, bottom + 44);
    double grid = fmax(1, nice_above((double)n_max / 5));
    for (double n = 0; n <= (double)n_max; n += grid) {
        double y = bottom - height * n / (double)n_max;
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
                width - right, y, y);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 6, y + 4);
        report_put_count(out, (uint64_t)n);
        fputs("</text>", out);
    }
    for (int i = 0; i < CHART_N_SLICE; i++) {
        double y = bottom;
        for (int v = 0; v < VERDICT_COUNT; v++) {
            if (!chart->slice[i][v])
                continue;
            double h = height * (double)chart->slice[i][v] / (double)n_max;
            y -= h;
            fprintf(out, "<rect class=\"v%d\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                    v, left + i * step + 0.3, y, step - 0.6, h);
            report_put_count(out, chart->slice[i][v]);
            fprintf(out, " %s</title></rect>", verdict_name((unsigned)v));
        }
    }
    for (int i = 0; i < chart->n_mark; i++) {
        double x = left + chart->mark[i] * (width - left - right);
        fprintf(out, "<path class=\"gapmark\" d=\"M%.1f %.1fl5 -9h-10z\"><title>gap</title></path>", x,
                top - 3);
    }
    double tick = chart->span_s > 0 ? nice_above(chart->span_s / 10) : 1;
    for (int i = 0; i <= 20 && i * tick <= chart->span_s; i++) {
        double x = left + (chart->span_s > 0 ? i * tick / chart->span_s : 0) * (width - left - right);
        fprintf(out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x, bottom,
                bottom + 5);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.6g</text>", x, bottom + 19,
                i * tick);
    }
    fprintf(out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
            width - right, bottom, bottom);
    fprintf(
        out,
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">seconds since the first verdict; one column: ",
        (left + width - right) / 2, bottom + 39);
    report_put_ns(out, chart->span_s * 1e9 / CHART_N_SLICE);
    fputs("</text></svg></div>\n", out);
}
