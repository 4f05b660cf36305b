#include <math.h>
#include <string.h>

#include "bench_killline_report.h"
#include "report_style.h"
#include "report_text.h"

enum { N_BIN = 110 };

/* Of the ages from the due time, on a log axis. */
struct chart {
    double low_ns, high_ns; /* of the axis */
    uint64_t bin[N_BIN], most;
};

static void put_string(FILE *out, const char *text)
{
    report_put_text(out, text, strlen(text));
}

static double position(const struct chart *c, double ns)
{
    const double at = log((ns > 1 ? ns : 1) / c->low_ns) / log(c->high_ns / c->low_ns);
    return fmin(fmax(at, 0), 1);
}

static void gather(const struct bench_killline_report *r, struct chart *c)
{
    const struct histogram *h = &r->result.age;
    const double line = r->setup->config->killline.threshold_us * 1e3,
                 recommended = r->result.recommendation.threshold_us * 1e3,
                 low = clock_cycles_to_ns(&r->setup->rig.clock, h->count ? h->min : 1);
    c->low_ns = fmax(1, fmin(fmin(low, line), recommended > 0 ? recommended : line) / 1.3);
    c->high_ns = fmax(fmax(bench_killline_ns(r, h, 1), line), recommended) * 1.3;
    for (uint32_t i = 0; i < HISTOGRAM_N_BUCKET; i++) {
        if (!h->bucket[i])
            continue;
        const double middle = ((double)histogram_bucket_low(i) + (double)histogram_bucket_high(i)) / 2;
        const int bin = (int)(position(c, middle * 1e9 / r->setup->rig.clock.hz) * N_BIN);
        uint64_t *n = &c->bin[bin < N_BIN ? bin : N_BIN - 1];
        *n += h->bucket[i];
        c->most = *n > c->most ? *n : c->most;
    }
}

static void put_line(FILE *out, const struct chart *c, double ns, const char *name, double y, int is_dashed)
{
    const double left = 64, width = 982, x = left + position(c, ns) * width;
    const int is_right = x > left + width - 240;
    fprintf(out, "<line class=\"kl\"%s x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"325\"/>",
            is_dashed ? " stroke-dasharray=\"6 4\"" : "", x, x, y - 8);
    fprintf(out, "<text class=\"kt\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s ", x + (is_right ? -7 : 7),
            y, is_right ? "end" : "start", name);
    report_put_ns(out, ns);
    fputs("</text>", out);
}

static void put_histogram(const struct bench_killline_report *r, FILE *out)
{
    const double left = 64, width = 982, top = 50, bottom = 320, step = width / N_BIN;
    struct chart c = {0};
    gather(r, &c);
    fputs("<div class=\"scroll\"><svg viewBox=\"0 0 1080 364\" role=\"img\" aria-label=\"Histogram of ages "
          "from the due time, with the kill line and the recommended one\">",
          out);
    for (uint64_t n = 1; n <= c.most && n < UINT64_MAX / 10; n *= 10) {
        const double y = bottom - (bottom - top) * log10(1 + (double)n) / log10(1 + (double)c.most);
        fprintf(out,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%.1f\" "
                "y=\"%.1f\" text-anchor=\"end\">",
                left, left + width, y, y, left - 6, y + 4);
        report_put_count(out, n);
        fputs("</text>", out);
    }
    for (int e = (int)floor(log10(c.low_ns)); e <= (int)ceil(log10(c.high_ns)); e++) {
        static const double mantissa[] = {1, 2, 5};
        for (int k = 0; k < 3; k++) {
            const double ns = mantissa[k] * pow(10, e), x = left + position(&c, ns) * width;
            if (ns < c.low_ns || ns > c.high_ns)
                continue;
            fprintf(out,
                    "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%.1f\" "
                    "y=\"%.1f\" text-anchor=\"middle\">",
                    x, x, top, bottom + 5, x, bottom + 19);
            report_put_ns(out, ns);
            fputs("</text>", out);
        }
    }
    for (int i = 0; i < N_BIN; i++) {
        if (!c.bin[i])
            continue;
        const double h = (bottom - top) * log10(1 + (double)c.bin[i]) / log10(1 + (double)c.most),
                     ratio = c.high_ns / c.low_ns;
        fprintf(out, "<rect class=\"pf\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                left + i * step + 0.4, bottom - h, step - 0.8, h);
        report_put_count(out, c.bin[i]);
        fputs(", ", out);
        report_put_ns(out, c.low_ns * pow(ratio, (double)i / N_BIN));
        fputs(" to ", out);
        report_put_ns(out, c.low_ns * pow(ratio, (double)(i + 1) / N_BIN));
        fputs("</title></rect>", out);
    }
    put_line(out, &c, r->setup->config->killline.threshold_us * 1e3, "kill line", 18, 0);
    if (r->result.recommendation.threshold_us)
        put_line(out, &c, r->result.recommendation.threshold_us * 1e3, "recommended", 36, 1);
    fprintf(
        out,
        "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%.1f\" y=\"359\" "
        "text-anchor=\"middle\">age at the last check, from when the frame was due (log axis); counts on "
        "a log axis too</text></svg></div>\n",
        left, left + width, bottom, bottom, left + width / 2);
}

static void cell_ns(FILE *out, double ns)
{
    fputs("<td class=\"r\">", out);
    report_put_ns(out, ns);
    fputs("</td>", out);
}

static void age_row(const struct bench_killline_report *r, FILE *out, const char *name,
                    const struct histogram *h)
{
    static const double q[] = {0.5, 0.9, 0.99, 0.999, 1};
    fprintf(out, "<tr><td class=\"w\">%s</td><td class=\"r\">", name);
    report_put_count(out, h->count);
    fputs("</td>", out);
    for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
        cell_ns(out, bench_killline_ns(r, h, q[i]));
    cell_ns(out, bench_killline_ns(r, h, 0.99) - bench_killline_ns(r, h, 0.5));
    fputs("</tr>", out);
}

static const char age_head[] =
    "<th class=\"r\">count</th><th class=\"r\">p50</th><th class=\"r\">p90</th><th class=\"r\">p99</th><th "
    "class=\"r\">p99.9</th><th class=\"r\">max</th><th class=\"r\">p99 &minus; p50</th></tr>\n";

static void head_section(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_setup *s = r->setup;
    fprintf(out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
            "content=\"width=device-width,initial-scale=1\"><title>Kill line evaluation</title><style>%s"
            "</style></head>\n<body><main>\n<header><h1>Kill line evaluation</h1><p class=\"sub\">",
            report_css);
    put_string(out, s->machine);
    fputs(" &middot; accelerator ", out);
    put_string(out, s->backend);
    fputs(" ", out);
    put_string(out, s->details);
    fputs(" &middot; model ", out);
    const char *name = strrchr(s->model_path, '/');
    put_string(out, name ? name + 1 : s->model_path);
    fputs(" <span class=\"badge\">measured</span></p>\n", out);
    fprintf(out,
            "<p class=\"lead\">The appliance as in production, under a generated flow at %.0f frames/s, one "
            "message each (%.0f reached). Ages count from when a frame was due, not from when it was sent: "
            "a stall is seen by every frame that was due in it.</p></header>\n",
            r->result.rate, r->result.reached);
}

static void indicator_section(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_killline_recommendation *c = &r->result.recommendation;
    struct bench_killline_judged judged[BENCH_KILLLINE_N_INDICATOR];
    bench_killline_judge(r, judged);
    fputs("<section><h2>Indicators</h2><div class=\"scroll\"><table><tr><th>indicator</th><th></th><th>"
          "figure</th></tr>\n",
          out);
    for (int i = 0; i < BENCH_KILLLINE_N_INDICATOR; i++) {
        fprintf(out, "<tr><td class=\"w\">%s</td><td class=\"w\">%s</td><td>", judged[i].name,
                judged[i].is_alert ? "<span class=\"badge\">alert</span>" : "ok");
        put_string(out, judged[i].text);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div><p class=\"note\">", out);
    if (c->threshold_us) {
        fprintf(
            out,
            "Recommended kill line: <b>%u &#181;s</b>, for at most %.4g %% missed. Of %llu ticks %llu were "
            "or would have been above it; with 95 %% confidence the rate is below %.3g %% (the larger of "
            "Clopper-Pearson's bound and a block bootstrap's).",
            c->threshold_us, 100 * r->target_miss, (unsigned long long)c->count,
            (unsigned long long)c->missed, 100 * c->miss_upper);
    } else {
        fprintf(out, "No kill line can be recommended for at most %.4g %% missed: ", 100 * r->target_miss);
        put_string(out, c->reason);
    }
    fputs("</p></section>\n", out);
}

static void latency_section(const struct bench_killline_report *r, FILE *out)
{
    fputs("<section><h2>Age at the last check</h2>\n", out);
    put_histogram(r, out);
    fprintf(out, "<div class=\"scroll\"><table><tr><th>age of inferred ticks</th>%s", age_head);
    age_row(r, out, "from the due time", &r->result.age);
    age_row(r, out, "from the arrival, as the kill line judges", &r->result.uncorrected);
    fputs("</table></div></section>\n", out);
}

static void stage_section(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_killline_result *m = &r->result;
    double most = 1;
    for (int s = 0; s < BENCH_KILLLINE_N_STAGE; s++)
        most = fmax(most, bench_killline_ns(r, &m->stage[s], 0.99));
    fprintf(
        out,
        "<section><h2>Where the time goes</h2><p class=\"lead\">Bottleneck: <b>%s</b>%s%s%s. Percentiles "
        "of stages do not add up to the percentile of the whole; shares are of all time.</p>\n<div "
        "class=\"scroll\"><table><tr><th>stage</th><th>from, to</th><th class=\"r\">share</th><th "
        "class=\"r\">p50</th><th class=\"r\">p99</th><th class=\"r\">max</th><th style=\"width:26%%\">p50 "
        "(dark) and p99 (light)</th></tr>\n",
        bench_killline_stage_name(m->bottleneck), m->bottleneck_p99 != m->bottleneck ? "; at p99: <b>" : "",
        m->bottleneck_p99 != m->bottleneck ? bench_killline_stage_name(m->bottleneck_p99) : "",
        m->bottleneck_p99 != m->bottleneck ? "</b>" : "");
    for (int s = 0; s < BENCH_KILLLINE_N_STAGE; s++) {
        const double p50 = bench_killline_ns(r, &m->stage[s], 0.5),
                     p99 = bench_killline_ns(r, &m->stage[s], 0.99);
        fprintf(out, "<tr><td class=\"w\">%s</td><td>",
                bench_killline_stage_name((enum bench_killline_stage)s));
        put_string(out, bench_killline_stage_text((enum bench_killline_stage)s));
        fprintf(out, "</td><td class=\"r\">%.1f %%</td>", m->share_percent[s]);
        cell_ns(out, p50);
        cell_ns(out, p99);
        cell_ns(out, bench_killline_ns(r, &m->stage[s], 1));
        fprintf(out,
                "<td><div class=\"bar\"><i class=\"p99\" style=\"width:%.2f%%\"></i><i class=\"p50\" "
                "style=\"width:%.2f%%\"></i></div></td></tr>\n",
                100 * p99 / most, 100 * p50 / most);
    }
    fputs("</table></div></section>\n", out);
}

static void verdict_section(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_killline_result *m = &r->result;
    fputs("<section><h2>Verdicts</h2><div class=\"split\">", out);
    for (unsigned v = 0; v < VERDICT_COUNT && m->predictions; v++)
        if (m->verdicts[v])
            fprintf(out, "<i class=\"v%u\" style=\"width:%.4f%%\" title=\"%s\"></i>", v,
                    100.0 * (double)m->verdicts[v] / (double)m->predictions, verdict_name(v));
    fputs("</div><div class=\"legend\">", out);
    for (unsigned v = 0; v < VERDICT_COUNT; v++) {
        if (!m->verdicts[v])
            continue;
        fprintf(out, "<span><span class=\"sw v%u\"></span>%s ", v, verdict_name(v));
        report_put_count(out, m->verdicts[v]);
        fputs(" (", out);
        report_put_percent(out, m->verdicts[v], m->predictions);
        fputs(")</span>", out);
    }
    fputs("</div><p class=\"note\">Missed (expected-late, stale, device-error): ", out);
    report_put_percent(out, m->missed, m->wanted);
    fputs(" of ", out);
    report_put_count(out, m->wanted);
    fputs(" that were wanted.", out);
    if (m->audit_lost) {
        fputs(" <b>", out);
        report_put_count(out, m->audit_lost);
        fputs(" records found the audit ring full</b> and are in no figure.", out);
    }
    fputs("</p></section>\n", out);
}

static void overload_rows(const struct bench_killline_report *r, FILE *out)
{
    static const char *const name[BENCH_KILLLINE_N_OVERLOAD] = {
        "too much for the accelerator (its time per step imposed)", "too much for the wire as well"};
    for (int i = 0; i < BENCH_KILLLINE_N_OVERLOAD; i++) {
        const struct bench_killline_overload *o = &r->overload[i];
        fprintf(out, "<tr><td>%s</td><td class=\"r\">%.0f</td><td class=\"r\">%.1f</td><td class=\"r\">",
                name[i], o->offered,
                o->capacity.frames_per_s > 0 ? o->offered / o->capacity.frames_per_s : 0);
        report_put_percent(out, o->verdicts[VERDICT_PUBLISHED], o->predictions);
        fputs("</td>", out);
        cell_ns(out, bench_killline_ns(r, &o->published_age, 0.5));
        cell_ns(out, bench_killline_ns(r, &o->published_age, 0.99));
        cell_ns(out, bench_killline_ns(r, &o->published_age, 1));
        fputs("<td class=\"r\">", out);
        report_put_percent(out, o->served, o->ticked);
        fputs("</td><td class=\"r\">", out);
        report_put_count(out, o->ring_lost);
        fputs("</td></tr>\n", out);
    }
}

static void stress_section(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_killline_halt *h = &r->halt;
    fputs("<section><h2>Ten times the capacity</h2><p class=\"lead\">Open loop; what the appliance publishes "
          "then, and how old it is. Served: symbols that ticked within 10 ms and had a prediction published "
          "in it.</p><div class=\"scroll\"><table><tr><th>load</th><th class=\"r\">frames/s</th><th "
          "class=\"r\">times capacity</th><th class=\"r\">published</th><th class=\"r\">age p50</th><th "
          "class=\"r\">p99</th><th class=\"r\">max</th><th class=\"r\">symbols served</th><th "
          "class=\"r\">frames lost</th></tr>\n",
          out);
    overload_rows(r, out);
    fprintf(
        out,
        "</table></div></section>\n<section><h2>After an idle gap</h2><div class=\"scroll\"><table><tr><th>"
        "gap</th>%s",
        age_head);
    for (int i = 0; i < BENCH_KILLLINE_N_IDLE; i++) {
        const struct bench_killline_idle *idle = &r->idle[i];
        char name[64];
        snprintf(name, sizeof(name), "%.0f ms, kept warm", idle->gap_ns / 1e6);
        age_row(r, out, name, &idle->on);
        snprintf(name, sizeof(name), "%.0f ms, not kept warm", idle->gap_ns / 1e6);
        age_row(r, out, name, &idle->off);
    }
    fputs("</table></div></section>\n<section><h2>Halt, and the checks themselves</h2><p>", out);
    fprintf(
        out,
        "%u orders to halt in the middle of a load: %llu predictions had their last check behind the order",
        h->orders, (unsigned long long)h->late);
    if (h->late) {
        fputs(", by at most ", out);
        report_put_ns(out, h->late_max_ns);
    }
    fputs("; the poll loop acknowledged after ", out);
    report_put_ns(out, bench_killline_ns(r, &h->acknowledged, 0.5));
    fputs(" (p50), at most ", out);
    report_put_ns(out, bench_killline_ns(r, &h->acknowledged, 1));
    fprintf(out,
            ".</p><p>Both checks of a tick take %.1f ns; two readings of the counter and two compares alone "
            "%.1f ns.</p></section>\n",
            r->check.check_ns, r->check.empty_ns);
}

int bench_killline_page(const struct bench_killline_report *r, FILE *out)
{
    head_section(r, out);
    indicator_section(r, out);
    latency_section(r, out);
    stage_section(r, out);
    verdict_section(r, out);
    stress_section(r, out);
    fputs("</main></body></html>\n", out);
    return fflush(out) != 0 || ferror(out) ? -1 : 0;
}
