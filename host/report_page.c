#include "report_page.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "report_records.h"
#include "report_style.h"
#include "report_text.h"

/* csim and cpu count the cycles of the kernel's schedule, no card's. */
static int kernel_is_modelled(const struct audit_header *h)
{
    return strncmp(h->accel, "csim", sizeof(h->accel)) == 0 ||
           strncmp(h->accel, "cpu", sizeof(h->accel)) == 0;
}

static void tile_open(FILE *out, const char *kind)
{
    fprintf(out, "<div class=\"tile %s\"><b>", kind);
}

static void tile_close(FILE *out, const char *label)
{
    fprintf(out, "</b><span>%s</span></div>\n", label);
}

static void tiles(FILE *out, const struct report_data *r)
{
    static const struct {
        double q;
        const char *label;
    } ages[] = {{0.5, "p50 age, published"},
                {0.99, "p99 age, published"},
                {0.999, "p99.9 age, published"},
                {1, "oldest published"}};
    uint64_t n_published = r->by_verdict[VERDICT_PUBLISHED];
    fputs("<div class=\"tiles\">\n", out);
    tile_open(out, "");
    report_put_count(out, r->n_prediction);
    tile_close(out, "predictions");
    tile_open(out, "pub");
    report_put_percent(out, n_published, r->n_prediction);
    tile_close(out, "published");
    tile_open(out, "drop");
    report_put_percent(out, r->n_prediction - n_published, r->n_prediction);
    tile_close(out, "dropped");
    for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++) {
        tile_open(out, "");
        if (n_published)
            report_put_ns(out, (double)histogram_quantile(&r->published, ages[i].q) * r->ns_per_cycle);
        else
            fputs("&ndash;", out);
        tile_close(out, ages[i].label);
    }
    tile_open(out, "kill");
    report_put_ns(out, (double)r->line * r->ns_per_cycle);
    if (r->arm[1].n_prediction)
        tile_close(out, r->line_min == r->line_max ? "kill line, arm A" : "kill line, arm A, at the end");
    else
        tile_close(out, r->line_min == r->line_max ? "kill line" : "kill line, at the end");
    fputs("</div>\n", out);
}

static void head_of_page(FILE *out, const struct report_data *r)
{
    const struct audit_header *h = &r->header;
    int replay = h->clock == AUDIT_CLOCK_REPLAY;
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Kill line report: ",
          out);
    report_put_text(out, h->feed, sizeof(h->feed));
    fprintf(
        out,
        "</title><style>%s</style></head>\n<body><main>\n<header><h1>Kill line report</h1><p class=\"sub\">",
        report_css);
    report_put_text(out, h->feed, sizeof(h->feed));
    fputs(" &middot; accelerator ", out);
    report_put_text(out, h->accel, sizeof(h->accel));
    fprintf(
        out, " &middot; %s clock <span class=\"badge\">%s</span></p>\n<p class=\"lead\">%s",
        replay ? "replay" : "real", replay ? "modelled" : "measured",
        replay
            ? "Every latency on this page is <b>modelled</b>: arrivals come at the capture's own times, "
              "service "
              "times from the kernel's cycle model and the configured host and I/O costs, with one server. "
              "Nothing was timed on this machine."
            : "Latencies are <b>measured</b> with the machine's invariant TSC, from packet arrival to the "
              "verdict.");
    if (!replay && kernel_is_modelled(h))
        fprintf(
            out,
            " The accelerator was the %s: its inference times are the CPU's, not a card's; kernel cycles are "
            "modelled.",
            strncmp(h->accel, "cpu", sizeof(h->accel)) == 0 ? "vector backend on a CPU"
                                                            : "C simulation on a CPU");
    fputs("</p></header>\n", out);
    if (r->problem[0]) {
        fputs("<div class=\"alert\" role=\"alert\"><b>This log does not verify.</b> ", out);
        report_put_text(out, r->problem, sizeof(r->problem));
        fputs("<br>The page covers the ", out);
        report_put_count(out, r->n_record);
        fputs(" intact records before that point.</div>\n", out);
    }
    if (r->n_lost) {
        fputs("<div class=\"alert\" role=\"alert\"><b>", out);
        report_put_count(out, r->n_lost);
        fputs(" records are missing:</b> they found the audit ring full. The figures below do not include "
              "them.</div>\n",
              out);
    }
    if (r->n_disordered) {
        fputs("<div class=\"alert\" role=\"alert\"><b>", out);
        report_put_count(out, r->n_disordered);
        fputs(" predictions have stamps that run backwards</b> (arrival stamp ahead of the clock); such a "
              "stage counts as "
              "0.</div>\n",
              out);
    }
    tiles(out, r);
}

/* The ladder and the threshold, if either has moved. */
static void ladder_section(FILE *out, const struct report_data *r)
{
    if (!ladder_chart_moves(&r->ladder))
        return;
    fputs("<section><h2>Ladder and threshold</h2><p class=\"lead\">Where the ladder stood, and the threshold "
          "in "
          "force, at each prediction's verdict",
          out);
    fputs(r->arm[1].n_prediction ? " (arm A's; B's does not move).</p>\n" : ".</p>\n", out);
    ladder_chart_draw(out, &r->ladder);
    fputs("</section>\n", out);
}

static void arm_section(FILE *out, const struct report_data *r)
{
    if (!r->arm[1].n_prediction)
        return;
    fputs("<section><h2>Arms A and B</h2><p class=\"lead\">Two thresholds at a time, by symbol.</p>\n<div "
          "class=\"scroll\"><table><tr><th>arm</th><th class=\"r\">threshold</th><th "
          "class=\"r\">predictions</th>",
          out);
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        fprintf(out, "<th class=\"r\">%s</th>", verdict_name(v));
    fputs("</tr>\n", out);
    for (int k = 0; k < 2; k++) {
        const struct report_arm *arm = &r->arm[k];
        fprintf(out, "<tr><td>%c</td><td class=\"r\">", "AB"[k]);
        report_put_ns(out, (double)arm->line_min * r->ns_per_cycle);
        if (arm->line_min != arm->line_max) {
            fputs(" to ", out);
            report_put_ns(out, (double)arm->line_max * r->ns_per_cycle);
        }
        fputs("</td><td class=\"r\">", out);
        report_put_count(out, arm->n_prediction);
        fputs("</td>", out);
        for (int v = 0; v < VERDICT_COUNT; v++) {
            fputs("<td class=\"r\">", out);
            report_put_count(out, arm->by_verdict[v]);
            fputs(" (", out);
            report_put_percent(out, arm->by_verdict[v], arm->n_prediction);
            fputs(")</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void latency_section(FILE *out, const struct report_data *r)
{
    static const double q[] = {0.5, 0.99, 0.999, 1};
    const struct {
        const char *name;
        const struct histogram *h;
    } rows[] = {{"published", &r->published},
                {"inferred (published and late)", &r->inferred},
                {"all, at their verdict", &r->all}};
    fputs("<section><h2>Age against the kill line</h2><p class=\"lead\">From packet arrival to the verdict. "
          "Published "
          "predictions above the axis, dropped ones below it, wherever their verdict fell: those that never "
          "reached the "
          "accelerator are young, and still worthless.</p>\n",
          out);
    latency_chart_draw(out, &r->latency);
    if (r->n_unknown) {
        fputs("<p class=\"note\">", out);
        report_put_count(out, r->n_unknown);
        fputs(" predictions of unknown age are not in here: the clock had gone back, or their arrival stamp "
              "lay "
              "too far ahead. None of them was published.</p>\n",
              out);
    }
    if (r->line_min != r->line_max) {
        fputs("<p class=\"note\">The line moved ", out);
        report_put_count(out, r->line_changes);
        fputs(" times, between ", out);
        report_put_ns(out, (double)r->line_min * r->ns_per_cycle);
        fputs(" and ", out);
        report_put_ns(out, (double)r->line_max * r->ns_per_cycle);
        fputs(" (shaded); it is drawn where it was at the end.</p>\n", out);
    }
    fputs("<div class=\"scroll\"><table><tr><th>age of</th><th class=\"r\">count</th><th "
          "class=\"r\">p50</th><th "
          "class=\"r\">p99</th><th class=\"r\">p99.9</th><th class=\"r\">max</th><th class=\"r\">p99 &minus; "
          "p50</th></tr>\n",
          out);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct histogram *h = rows[i].h;
        fprintf(out, "<tr><td class=\"w\">%s</td><td class=\"r\">", rows[i].name);
        report_put_count(out, h->count);
        fputs("</td>", out);
        for (size_t k = 0; k < sizeof(q) / sizeof(q[0]); k++)
            report_put_cycles_cell(out, r, histogram_quantile(h, q[k]));
        report_put_cycles_cell(out, r, histogram_quantile(h, 0.99) - histogram_quantile(h, 0.5));
        fputs("</tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void verdict_section(FILE *out, const struct report_data *r)
{
    uint64_t n_published = r->by_verdict[VERDICT_PUBLISHED], n_dropped = r->n_prediction - n_published,
             n_max = 1;
    for (int v = 1; v < VERDICT_COUNT; v++)
        n_max = r->by_verdict[v] > n_max ? r->by_verdict[v] : n_max;
    fputs("<section><h2>Verdicts by cause</h2><p class=\"lead\">Every prediction has exactly one. Upper bar: "
          "published "
          "and dropped, to scale. Below: the causes of the drops, to the scale of the largest.</p>\n<div "
          "class=\"split\">",
          out);
    for (int v = 0; v < VERDICT_COUNT && r->n_prediction; v++)
        if (r->by_verdict[v])
            fprintf(out, "<i class=\"v%d\" style=\"width:%.4f%%\" title=\"%s\"></i>", v,
                    100.0 * (double)r->by_verdict[v] / (double)r->n_prediction, verdict_name((unsigned)v));
    fputs(
        "</div><div class=\"scroll\"><table><tr><th>verdict</th><th>means</th><th class=\"r\">count</th><th "
        "class=\"r\">of all</th><th class=\"r\">of dropped</th><th style=\"width:26%\"></th></tr>\n",
        out);
    for (int v = 0; v < VERDICT_COUNT; v++) {
        uint64_t n = r->by_verdict[v];
        fprintf(out, "<tr%s><td class=\"w\"><span class=\"sw v%d\"></span>%s</td><td>%s</td><td class=\"r\">",
                n ? "" : " class=\"zero\"", v, verdict_name((unsigned)v), report_cause_text[v]);
        report_put_count(out, n);
        fputs("</td><td class=\"r\">", out);
        report_put_percent(out, n, r->n_prediction);
        fputs("</td><td class=\"r\">", out);
        if (v != VERDICT_PUBLISHED)
            report_put_percent(out, n, n_dropped);
        fputs("</td><td>", out);
        if (v != VERDICT_PUBLISHED)
            fprintf(out, "<div class=\"bar\"><i class=\"v%d\" style=\"width:%.2f%%%s\"></i></div>", v,
                    100.0 * (double)n / (double)n_max, n ? "" : ";min-width:0");
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void stage_section(FILE *out, const struct report_data *r)
{
    fputs("<section><h2>Where the time goes</h2><p class=\"lead\">Stages of the ", out);
    report_put_count(out, r->n_inferred);
    fputs(" predictions that the accelerator answered. Percentiles of stages do not add up to the percentile "
          "of the "
          "whole.",
          out);
    if (r->n_batch) {
        fputs(" ", out);
        report_put_count(out, r->n_batch);
        fputs(
            " of them were submitted together with the one before: their inference includes the wait behind "
            "it, and overlaps its.",
            out);
    }
    fputs("</p>\n", out);
    if (!r->n_inferred) {
        fputs("<p>No prediction reached the accelerator.</p></section>\n", out);
        return;
    }
    uint64_t p99[REPORT_N_STAGE], p99_max = 1;
    int worst = 0;
    for (int i = 0; i < REPORT_N_STAGE; i++) {
        p99[i] = histogram_quantile(&r->stage[i], 0.99);
        if (p99[i] > p99[worst])
            worst = i;
        p99_max = p99[i] > p99_max ? p99[i] : p99_max;
    }
    fputs("<div class=\"scroll\"><table><tr><th>stage</th><th>from, to</th><th class=\"r\">p50</th><th "
          "class=\"r\">p99</th>"
          "<th class=\"r\">p99.9</th><th class=\"r\">max</th><th style=\"width:30%\">p50 (dark) and p99 "
          "(light)</th></tr>\n",
          out);
    for (int i = 0; i < REPORT_N_STAGE; i++) {
        uint64_t p50 = histogram_quantile(&r->stage[i], 0.5);
        fprintf(out, "<tr><td class=\"w\"><span class=\"sw s%d\"></span>%s</td><td>%s</td>", i,
                report_stage_text[i].name, report_stage_text[i].what);
        report_put_cycles_cell(out, r, p50);
        report_put_cycles_cell(out, r, p99[i]);
        report_put_cycles_cell(out, r, histogram_quantile(&r->stage[i], 0.999));
        report_put_cycles_cell(out, r, r->stage[i].max);
        fprintf(out,
                "<td><div class=\"bar\"><i class=\"p99\" style=\"width:%.2f%%\"></i><i class=\"p50\" "
                "style=\"width:%.2f%%\"></i></div></td></tr>\n",
                100.0 * (double)p99[i] / (double)p99_max, 100.0 * (double)p50 / (double)p99_max);
    }
    fprintf(out, "</table></div><p class=\"note\">Longest stage at p99: <b>%s</b> (",
            report_stage_text[worst].name);
    report_put_ns(out, (double)p99[worst] * r->ns_per_cycle);
    fputs("). Kernel's own count", out);
    fputs(kernel_is_modelled(&r->header) ? " (modelled schedule)" : "", out);
    static const double q[] = {0.5, 0.99, 1};
    static const char *const name[] = {"p50 ", ", p99 ", ", max "};
    fputs(": inference ", out);
    for (int i = 0; i < 3; i++) {
        fputs(name[i], out);
        report_put_count(out, histogram_quantile(&r->kernel, q[i]));
    }
    fputs(" kernel cycles; prepare, off the critical path, ", out);
    for (int i = 0; i < 3; i++) {
        fputs(name[i], out);
        report_put_count(out, histogram_quantile(&r->prepare, q[i]));
    }
    fputs(".</p></section>\n", out);
}

static void time_section(FILE *out, const struct report_data *r)
{
    fputs("<section><h2>Verdicts over time</h2><div class=\"legend\">", out);
    for (int v = 0; v < VERDICT_COUNT; v++)
        if (r->by_verdict[v])
            fprintf(out, "<span><span class=\"sw v%d\"></span>%s</span>", v, verdict_name((unsigned)v));
    if (r->time.n_mark)
        fputs("<span>&#9660; gap in the feed</span>", out);
    fputs("</div>\n", out);
    time_chart_draw(out, &r->time);
    fputs("</section>\n", out);
}

static void symbol_section(FILE *out, const struct report_data *r)
{
    uint64_t n_shown = 0;
    fputs("<section><h2>By symbol</h2>\n<div class=\"scroll\"><table><tr><th>symbol</th><th "
          "class=\"r\">predictions</th>"
          "<th class=\"r\">published</th><th>verdicts</th><th class=\"r\">p50 age, published</th><th "
          "class=\"r\">p99</th>"
          "<th class=\"r\">max</th></tr>\n",
          out);
    for (int i = 0; i < r->n_row; i++) {
        const struct report_symbol *row = r->row[i];
        n_shown += row->n_prediction;
        fputs("<tr><td class=\"mono\">", out);
        report_put_text(out, row->symbol, sizeof(row->symbol));
        fputs("</td><td class=\"r\">", out);
        report_put_count(out, row->n_prediction);
        fputs("</td><td class=\"r\">", out);
        report_put_percent(out, row->by_verdict[VERDICT_PUBLISHED], row->n_prediction);
        fputs("</td><td><div class=\"mini\" style=\"width:180px\">", out);
        for (int v = 0; v < VERDICT_COUNT; v++)
            if (row->by_verdict[v])
                fprintf(out, "<i class=\"v%d\" style=\"width:%.2f%%\" title=\"%s\"></i>", v,
                        100.0 * (double)row->by_verdict[v] / (double)row->n_prediction,
                        verdict_name((unsigned)v));
        fputs("</div></td>", out);
        static const double q[] = {0.5, 0.99, 1};
        for (int k = 0; k < 3; k++) {
            if (row->age->count)
                report_put_cycles_cell(out, r, histogram_quantile(row->age, q[k]));
            else
                fputs("<td class=\"r\">&ndash;</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
    if (n_shown < r->n_prediction) {
        fputs("<p class=\"note\">", out);
        report_put_count(out, r->n_prediction - n_shown);
        fputs(" predictions of other symbols are not listed.</p>\n", out);
    }
    fputs("</section>\n", out);
}

static void hex_fact(FILE *out, const char *name, const uint8_t *bytes, size_t size)
{
    fprintf(out, "<dt>%s</dt><dd class=\"mono\">", name);
    for (size_t i = 0; i < size; i++)
        fprintf(out, "%02x", bytes[i]);
    fputs("</dd>\n", out);
}

static void fact_section(FILE *out, const struct report_data *r)
{
    const struct audit_header *h = &r->header;
    fputs("<section><h2>The log behind this page</h2><dl class=\"facts\">\n<dt>build</dt><dd>", out);
    report_put_text(out, h->build, sizeof(h->build));
    fputs("</dd>\n<dt>records</dt><dd>", out);
    report_put_count(out, r->n_record);
    fputs(r->problem[0] ? ", see the warning on top" : ", SHA-256 chain verified, log closed", out);
    fputs("</dd>\n", out);
    hex_fact(out, "head", r->head, sizeof(r->head));
    for (uint32_t i = 0; i < h->n_model; i++)
        hex_fact(out, i == 0 ? "model, slot 0" : "model, slot 1", h->model_sha256[i],
                 sizeof(h->model_sha256[i]));
    hex_fact(out, "configuration", h->config_sha256, sizeof(h->config_sha256));
    if (r->n_prediction) {
        fputs("<dt>exchange time</dt><dd class=\"mono\">", out);
        report_put_time(out, r->first_feed_ns);
        fputs(" to ", out);
        report_put_time(out, r->last_feed_ns);
        fputs("</dd>\n", out);
    }
    if (h->clock == AUDIT_CLOCK_REAL) {
        time_t s = (time_t)(h->utc_ns0 / 1000000000u);
        struct tm utc;
        char text[32] = "?";
        if (gmtime_r(&s, &utc))
            strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc);
        fprintf(out, "<dt>clock</dt><dd>TSC %.6f MHz, error %.3g ppm; TSC %" PRIu64 " was %s</dd>\n",
                h->tsc_hz / 1e6, h->clock_error_ppm, h->tsc0, text);
    } else {
        fputs("<dt>clock</dt><dd>replay: nanoseconds of the capture's own time</dd>\n", out);
    }
    if (r->n_clamped) {
        fputs("<dt>clamped ages</dt><dd>", out);
        report_put_count(out, r->n_clamped);
        fputs(" arrival stamps lay in the future: age 0</dd>\n", out);
    }
    fputs("</dl><p class=\"note\">Check it: killline audit verify LOG --head HEAD</p></section>\n", out);
}

void report_page(FILE *out, const struct report_data *r)
{
    head_of_page(out, r);
    if (r->n_prediction) {
        latency_section(out, r);
        verdict_section(out, r);
        stage_section(out, r);
        time_section(out, r);
        ladder_section(out, r);
        arm_section(out, r);
        symbol_section(out, r);
        report_predictions(out, r);
    } else {
        fputs("<section><h2>No prediction</h2><p>The log holds events only.</p></section>\n", out);
    }
    report_events(out, r);
    fact_section(out, r);
    fputs("</main></body></html>\n", out);
}
