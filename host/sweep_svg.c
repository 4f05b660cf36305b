#include "sweep_svg.h"

#include <math.h>

#include "killline.h"
#include "report_text.h"

static const double width = 1080, left = 76, right = 34, top = 34, height = 230;

/* One column per threshold, at equal distances: they need not be. */
static double x_of(const struct sweep_result *r, uint32_t j)
{
    return left + (width - left - right) * (j + 0.5) / r->n_point;
}

static void frame(FILE *out, const struct sweep_result *r, const char *label)
{
    const double bottom = top + height;
    fprintf(out, "<div class=\"scroll\"><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">",
            width, bottom + 44, label);
    const uint32_t every = r->n_point > 16 ? (r->n_point + 15) / 16 : 1;
    for (uint32_t j = 0; j < r->n_point; j += every) {
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x_of(r, j), bottom + 19);
        report_put_ns(out, r->point[j].threshold_ns);
        fputs("</text>", out);
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">threshold</text>",
            (left + width - right) / 2, bottom + 39);
}

static void grid_line(FILE *out, double y, double value, const char *unit)
{
    fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
            width - right, y, y);
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.3g%s</text>", left - 6, y + 4, value,
            unit);
}

static void close_frame(FILE *out, const struct sweep_result *r)
{
    if (r->recommended >= 0) {
        const double x = x_of(r, (uint32_t)r->recommended);
        const int label_left = x > width - 260;
        fprintf(out, "<line class=\"kl\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x, top - 8,
                top + height + 5);
        fprintf(out, "<text class=\"kt\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">recommended line ",
                x + (label_left ? -7 : 7), top - 12, label_left ? "end" : "start");
        report_put_ns(out, r->point[r->recommended].threshold_ns);
        fputs("</text>", out);
    }
    fputs("</svg></div>\n", out);
}

void sweep_svg_verdicts(FILE *out, const struct sweep_result *r)
{
    const double step = (width - left - right) / r->n_point, bottom = top + height;
    const double total = r->sums->predictions ? (double)r->sums->predictions : 1;
    frame(out, r, "Share of predictions by verdict over the threshold");
    for (int percent = 0; percent <= 100; percent += 20)
        grid_line(out, bottom - height * percent / 100, percent, " %");
    for (uint32_t j = 0; j < r->n_point; j++) {
        double y = bottom;
        for (unsigned v = 0; v < VERDICT_COUNT; v++) {
            const int64_t n = r->point[j].by_verdict[v];
            if (!n)
                continue;
            const double h = height * (double)n / total;
            y -= h;
            fprintf(out, "<rect class=\"v%u\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                    v, x_of(r, j) - step * 0.46, y, step * 0.92, h);
            report_put_count(out, (uint64_t)n);
            fprintf(out, " %s</title></rect>", verdict_name(v));
        }
    }
    close_frame(out, r);
}

static const struct sweep_interval *figure_of(const struct sweep_point *p, enum sweep_svg_figure figure,
                                              int dropped)
{
    const struct sweep_quality *q = dropped ? &p->dropped[SWEEP_N_CLASS] : &p->published[SWEEP_N_CLASS];
    return figure == SWEEP_SVG_VALUE ? &q->mean_usd : &q->hit_rate;
}

/* Lowest and highest of what is to be drawn, with some room. */
static void range_of(const struct sweep_result *r, enum sweep_svg_figure figure, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (uint32_t j = 0; j < r->n_point; j++)
        for (int d = 0; d < 2; d++) {
            const struct sweep_interval *i = figure_of(&r->point[j], figure, d);
            if (!i->has_value)
                continue;
            *low = fmin(*low, i->has_interval ? fmin(i->value, i->low) : i->value);
            *high = fmax(*high, i->has_interval ? fmax(i->value, i->high) : i->value);
        }
    if (*low > *high)
        *low = *high = 0;
    const double room = fmax((*high - *low) * 0.1, fmax(fabs(*high) * 0.01, 1e-6));
    *low -= room;
    *high += room;
}

static double y_of(double value, double low, double high)
{
    return top + height * (high - value) / (high - low);
}

static void band(FILE *out, const struct sweep_result *r, enum sweep_svg_figure figure, int dropped,
                 double low, double high)
{
    const double half = (width - left - right) / r->n_point * 0.46;
    const char *kind = dropped ? "df" : "pf";
    for (uint32_t j = 0; j < r->n_point; j++) {
        const struct sweep_interval *i = figure_of(&r->point[j], figure, dropped);
        if (!i->has_value)
            continue;
        const double x = x_of(r, j) + (dropped ? half * 0.3 : -half * 0.3);
        if (i->has_interval)
            fprintf(out,
                    "<rect class=\"%s\" opacity=\".3\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                    "height=\"%.2f\"/>",
                    kind, x - half * 0.3, y_of(i->high, low, high), half * 0.6,
                    fmax(y_of(i->low, low, high) - y_of(i->high, low, high), 1));
        fprintf(out, "<circle class=\"%s\" cx=\"%.2f\" cy=\"%.2f\" r=\"3.2\"><title>%s %.6g", kind, x,
                y_of(i->value, low, high), dropped ? "dropped" : "published", i->value);
        if (i->has_interval)
            fprintf(out, ", %.6g to %.6g", i->low, i->high);
        fputs("</title></circle>", out);
    }
}

void sweep_svg_quality(FILE *out, const struct sweep_result *r, enum sweep_svg_figure figure)
{
    double low, high;
    range_of(r, figure, &low, &high);
    frame(out, r, figure == SWEEP_SVG_VALUE ? "Value over the threshold" : "Hit rate over the threshold");
    for (int k = 0; k <= 4; k++) {
        const double value = low + (high - low) * (0.05 + 0.9 * k / 4);
        grid_line(out, y_of(value, low, high), figure == SWEEP_SVG_VALUE ? value : 100 * value,
                  figure == SWEEP_SVG_VALUE ? "" : " %");
    }
    if (low < 0 && high > 0)
        fprintf(out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", left,
                width - right, y_of(0, low, high), y_of(0, low, high));
    band(out, r, figure, 0, low, high);
    band(out, r, figure, 1, low, high);
    close_frame(out, r);
}
