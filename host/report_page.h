/* What the report page shows, and its sections. Included by report.c only. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <string.h>
#include <time.h>

#include "audit.h"
#include "histogram.h"
#include "killline.h"
#include "report_style.h"
#include "report_svg.h"

enum {
    N_STAGE = 4,
    N_TOP = 10,            /* rows of the two lists of predictions */
    N_EVENT_PER_CODE = 40, /* listed; the rest is counted. A flood of one kind must not hide the others. */
    N_EVENT = N_EVENT_PER_CODE * AUDIT_EVENT_CODE_COUNT,
    N_SYMBOL_SLOT =
        8192, /* hash table, power of two; at most half of it is used, other symbols count as "others" */
    N_SYMBOL_ROW = 30,
};

struct symbol_row {
    char symbol[8];
    uint64_t n_prediction, by_verdict[VERDICT_COUNT];
    struct histogram *age; /* of the published ones; only for the rows that are shown */
};

/* What the page needs, whatever the log's length. */
struct report {
    struct audit_header header;
    double ns_per_cycle;
    uint64_t n_record, n_prediction, n_lost, n_inferred, n_clamped, n_disordered;
    uint8_t head[AUDIT_CHAIN_BYTES];
    uint64_t by_verdict[VERDICT_COUNT];
    struct histogram all, inferred, published; /* age, cycles */
    struct histogram stage[N_STAGE];           /* of the inferred ones, cycles */
    struct histogram kernel, prepare;          /* kernel cycles */
    uint64_t line, line_min, line_max, line_changes;
    uint64_t first_decided, last_decided, first_feed_ns, last_feed_ns;
    struct audit_prediction oldest[N_TOP], worst[N_TOP]; /* published, dropped; by falling age */
    int n_oldest, n_worst;
    uint64_t n_by_code[AUDIT_EVENT_CODE_COUNT];
    struct audit_event event[N_EVENT];
    int n_event;
    struct symbol_row symbol[N_SYMBOL_SLOT];
    int n_symbol;
    uint64_t n_other; /* predictions of symbols that found no place */
    struct symbol_row *row[N_SYMBOL_ROW];
    int n_row;
    struct latency_chart latency;
    struct time_chart time;
    char problem[AUDIT_ERROR_CHARS]; /* why the log does not verify; empty: it does */
};

static const struct {
    const char *name, *what;
} stage_text[N_STAGE] = {
    {"receive", "arrival to book updated"},
    {"queue", "features, and waiting for the accelerator"},
    {"inference", "submitted to completed"},
    {"decide", "answer to verdict"},
};

static const char *const cause_text[VERDICT_COUNT] = {
    "under the line: sent",
    "could not make the line any more: never submitted",
    "inferred, but over the line",
    "a newer tick of the symbol was already waiting",
    "after a gap or a mid-session join",
    "the stream had too few ticks for the model",
    "the accelerator or the send port failed, or did not answer in time",
    "the appliance was halted, or the symbol not trading",
};

/* Stage durations in cycles; an unreached stage has 0, and what was spent before the verdict counts as queue.
 * Returns nonzero when the stamps run backwards. */
static int stages_of(const struct audit_prediction *p, uint64_t cycles[N_STAGE])
{
    uint64_t decoded = p->decoded ? p->decoded : p->arrival;
    uint64_t submitted = p->submitted ? p->submitted : p->decided,
             completed = p->completed ? p->completed : p->decided;
    const uint64_t from[N_STAGE] = {p->arrival, decoded, submitted, completed};
    const uint64_t to[N_STAGE] = {decoded, submitted, completed, p->decided};
    int disordered = 0;
    for (int i = 0; i < N_STAGE; i++) {
        disordered |= to[i] < from[i];
        cycles[i] = to[i] < from[i] ? 0 : to[i] - from[i];
    }
    return disordered;
}

static void cycles_cell(FILE *out, const struct report *r, uint64_t cycles)
{
    fputs("<td class=\"r\">", out);
    put_ns(out, (double)cycles * r->ns_per_cycle);
    fputs("</td>", out);
}

static void tile_open(FILE *out, const char *kind)
{
    fprintf(out, "<div class=\"tile %s\"><b>", kind);
}

static void tile_close(FILE *out, const char *label)
{
    fprintf(out, "</b><span>%s</span></div>\n", label);
}

static void tiles(FILE *out, const struct report *r)
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
    put_count(out, r->n_prediction);
    tile_close(out, "predictions");
    tile_open(out, "pub");
    put_percent(out, n_published, r->n_prediction);
    tile_close(out, "published");
    tile_open(out, "drop");
    put_percent(out, r->n_prediction - n_published, r->n_prediction);
    tile_close(out, "dropped");
    for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++) {
        tile_open(out, "");
        if (n_published)
            put_ns(out, (double)histogram_quantile(&r->published, ages[i].q) * r->ns_per_cycle);
        else
            fputs("&ndash;", out);
        tile_close(out, ages[i].label);
    }
    tile_open(out, "kill");
    put_ns(out, (double)r->line * r->ns_per_cycle);
    tile_close(out, r->line_min == r->line_max ? "kill line" : "kill line, at the end");
    fputs("</div>\n", out);
}

static void head_of_page(FILE *out, const struct report *r)
{
    const struct audit_header *h = &r->header;
    int replay = h->clock == AUDIT_CLOCK_REPLAY;
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Kill line report: ",
          out);
    put_text(out, h->feed, sizeof(h->feed));
    fprintf(
        out,
        "</title><style>%s</style></head>\n<body><main>\n<header><h1>Kill line report</h1><p class=\"sub\">",
        report_css);
    put_text(out, h->feed, sizeof(h->feed));
    fputs(" &middot; accelerator ", out);
    put_text(out, h->accel, sizeof(h->accel));
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
    if (!replay && strncmp(h->accel, "csim", sizeof(h->accel)) == 0)
        fputs(" The accelerator was the C simulation on a CPU: its inference times are the CPU's, not a "
              "card's; kernel "
              "cycles are modelled.",
              out);
    fputs("</p></header>\n", out);
    if (r->problem[0]) {
        fputs("<div class=\"alert\" role=\"alert\"><b>This log does not verify.</b> ", out);
        put_text(out, r->problem, sizeof(r->problem));
        fputs("<br>The page covers the ", out);
        put_count(out, r->n_record);
        fputs(" intact records before that point.</div>\n", out);
    }
    if (r->n_lost) {
        fputs("<div class=\"alert\" role=\"alert\"><b>", out);
        put_count(out, r->n_lost);
        fputs(" records are missing:</b> they found the audit ring full. The figures below do not include "
              "them.</div>\n",
              out);
    }
    if (r->n_disordered) {
        fputs("<div class=\"alert\" role=\"alert\"><b>", out);
        put_count(out, r->n_disordered);
        fputs(" predictions have stamps that run backwards</b> (arrival stamp ahead of the clock); such a "
              "stage counts as "
              "0.</div>\n",
              out);
    }
    tiles(out, r);
}

static void latency_section(FILE *out, const struct report *r)
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
    if (r->line_min != r->line_max) {
        fputs("<p class=\"note\">The line moved ", out);
        put_count(out, r->line_changes);
        fputs(" times, between ", out);
        put_ns(out, (double)r->line_min * r->ns_per_cycle);
        fputs(" and ", out);
        put_ns(out, (double)r->line_max * r->ns_per_cycle);
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
        put_count(out, h->count);
        fputs("</td>", out);
        for (size_t k = 0; k < sizeof(q) / sizeof(q[0]); k++)
            cycles_cell(out, r, histogram_quantile(h, q[k]));
        cycles_cell(out, r, histogram_quantile(h, 0.99) - histogram_quantile(h, 0.5));
        fputs("</tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void verdict_section(FILE *out, const struct report *r)
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
                n ? "" : " class=\"zero\"", v, verdict_name((unsigned)v), cause_text[v]);
        put_count(out, n);
        fputs("</td><td class=\"r\">", out);
        put_percent(out, n, r->n_prediction);
        fputs("</td><td class=\"r\">", out);
        if (v != VERDICT_PUBLISHED)
            put_percent(out, n, n_dropped);
        fputs("</td><td>", out);
        if (v != VERDICT_PUBLISHED)
            fprintf(out, "<div class=\"bar\"><i class=\"v%d\" style=\"width:%.2f%%%s\"></i></div>", v,
                    100.0 * (double)n / (double)n_max, n ? "" : ";min-width:0");
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void stage_section(FILE *out, const struct report *r)
{
    fputs("<section><h2>Where the time goes</h2><p class=\"lead\">Stages of the ", out);
    put_count(out, r->n_inferred);
    fputs(" predictions that the accelerator answered. Percentiles of stages do not add up to the percentile "
          "of the "
          "whole.</p>\n",
          out);
    if (!r->n_inferred) {
        fputs("<p>No prediction reached the accelerator.</p></section>\n", out);
        return;
    }
    uint64_t p99[N_STAGE], p99_max = 1;
    int worst = 0;
    for (int i = 0; i < N_STAGE; i++) {
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
    for (int i = 0; i < N_STAGE; i++) {
        uint64_t p50 = histogram_quantile(&r->stage[i], 0.5);
        fprintf(out, "<tr><td class=\"w\"><span class=\"sw s%d\"></span>%s</td><td>%s</td>", i,
                stage_text[i].name, stage_text[i].what);
        cycles_cell(out, r, p50);
        cycles_cell(out, r, p99[i]);
        cycles_cell(out, r, histogram_quantile(&r->stage[i], 0.999));
        cycles_cell(out, r, r->stage[i].max);
        fprintf(out,
                "<td><div class=\"bar\"><i class=\"p99\" style=\"width:%.2f%%\"></i><i class=\"p50\" "
                "style=\"width:%.2f%%\"></i></div></td></tr>\n",
                100.0 * (double)p99[i] / (double)p99_max, 100.0 * (double)p50 / (double)p99_max);
    }
    fprintf(out, "</table></div><p class=\"note\">Longest stage at p99: <b>%s</b> (", stage_text[worst].name);
    put_ns(out, (double)p99[worst] * r->ns_per_cycle);
    fputs("). Kernel's own count", out);
    fputs(strncmp(r->header.accel, "csim", sizeof(r->header.accel)) == 0 ? " (modelled schedule)" : "", out);
    static const double q[] = {0.5, 0.99, 1};
    static const char *const name[] = {"p50 ", ", p99 ", ", max "};
    fputs(": inference ", out);
    for (int i = 0; i < 3; i++) {
        fputs(name[i], out);
        put_count(out, histogram_quantile(&r->kernel, q[i]));
    }
    fputs(" kernel cycles; prepare, off the critical path, ", out);
    for (int i = 0; i < 3; i++) {
        fputs(name[i], out);
        put_count(out, histogram_quantile(&r->prepare, q[i]));
    }
    fputs(".</p></section>\n", out);
}

static void time_section(FILE *out, const struct report *r)
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

static void time_cell(FILE *out, uint64_t ts_ns)
{
    fputs("<td class=\"mono w\">", out);
    if (ts_ns != 0)
        put_time(out, ts_ns);
    fputs("</td>", out);
}

/* One sentence: why this verdict, and which stage took most of the time. */
static void explain(FILE *out, const struct report *r, const struct audit_prediction *p,
                    const uint64_t cycles[N_STAGE])
{
    int longest = 0;
    for (int i = 1; i < N_STAGE; i++)
        longest = cycles[i] > cycles[longest] ? i : longest;
    switch (p->verdict) {
    case VERDICT_PUBLISHED:
        break;
    case VERDICT_EXPECTED_LATE:
        fputs("expected inference ", out);
        put_ns(out, (double)p->expected_cycles * r->ns_per_cycle);
        fputs(" more, line ", out);
        put_ns(out, (double)p->threshold_cycles * r->ns_per_cycle);
        fputs("; ", out);
        break;
    case VERDICT_STALE:
        put_ns(out, p->age_cycles > p->threshold_cycles
                        ? (double)(p->age_cycles - p->threshold_cycles) * r->ns_per_cycle
                        : 0);
        fputs(" over the line; ", out);
        break;
    default:
        fprintf(out, "%s; ",
                p->flags & AUDIT_FLAG_EGRESS_FAILED ? "in time, but the send port took nothing"
                                                    : cause_text[p->verdict]);
    }
    fprintf(out, "most of it in <b>%s</b> (", stage_text[longest].name);
    put_ns(out, (double)cycles[longest] * r->ns_per_cycle);
    fputs(")", out);
}

static void prediction_table(FILE *out, const struct report *r, const struct audit_prediction *top, int n)
{
    if (n == 0) {
        fputs("<p>None.</p>\n", out);
        return;
    }
    fputs("<div class=\"scroll\"><table><tr><th class=\"r\">record</th><th>exchange "
          "time</th><th>symbol</th><th>verdict</th>"
          "<th class=\"r\">age</th><th>stages</th><th>explanation</th></tr>\n",
          out);
    for (int k = 0; k < n; k++) {
        const struct audit_prediction *p = &top[k];
        uint64_t cycles[N_STAGE];
        double sum = 0;
        stages_of(p, cycles);
        for (int i = 0; i < N_STAGE; i++)
            sum += (double)cycles[i];
        fprintf(out, "<tr><td class=\"r\">%" PRIu64 "</td>", p->record_no);
        time_cell(out, p->feed_ts_ns);
        fputs("<td class=\"mono\">", out);
        put_text(out, p->symbol, sizeof(p->symbol));
        fprintf(out, "</td><td class=\"w\"><span class=\"sw v%d\"></span>%s</td>", p->verdict,
                verdict_name(p->verdict));
        cycles_cell(out, r, p->age_cycles);
        fputs("<td><div class=\"mini\">", out);
        for (int i = 0; i < N_STAGE; i++)
            if (cycles[i])
                fprintf(out, "<i class=\"s%d\" style=\"width:%.2f%%\" title=\"%s\"></i>", i,
                        100 * (double)cycles[i] / sum, stage_text[i].name);
        fputs("</div></td><td>", out);
        explain(out, r, p, cycles);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static void list_section(FILE *out, const struct report *r)
{
    fputs("<section><h2>The oldest published</h2><div class=\"legend\">", out);
    for (int i = 0; i < N_STAGE; i++)
        fprintf(out, "<span><span class=\"sw s%d\"></span>%s</span>", i, stage_text[i].name);
    fputs("</div>\n", out);
    prediction_table(out, r, r->oldest, r->n_oldest);
    fputs("</section>\n<section><h2>The oldest dropped</h2>\n", out);
    prediction_table(out, r, r->worst, r->n_worst);
    fputs("</section>\n", out);
}

static void symbol_section(FILE *out, const struct report *r)
{
    uint64_t n_shown = 0;
    fputs("<section><h2>By symbol</h2>\n<div class=\"scroll\"><table><tr><th>symbol</th><th "
          "class=\"r\">predictions</th>"
          "<th class=\"r\">published</th><th>verdicts</th><th class=\"r\">p50 age, published</th><th "
          "class=\"r\">p99</th>"
          "<th class=\"r\">max</th></tr>\n",
          out);
    for (int i = 0; i < r->n_row; i++) {
        const struct symbol_row *row = r->row[i];
        n_shown += row->n_prediction;
        fputs("<tr><td class=\"mono\">", out);
        put_text(out, row->symbol, sizeof(row->symbol));
        fputs("</td><td class=\"r\">", out);
        put_count(out, row->n_prediction);
        fputs("</td><td class=\"r\">", out);
        put_percent(out, row->by_verdict[VERDICT_PUBLISHED], row->n_prediction);
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
                cycles_cell(out, r, histogram_quantile(row->age, q[k]));
            else
                fputs("<td class=\"r\">&ndash;</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
    if (n_shown < r->n_prediction) {
        fputs("<p class=\"note\">", out);
        put_count(out, r->n_prediction - n_shown);
        fputs(" predictions of other symbols are not listed.</p>\n", out);
    }
    fputs("</section>\n", out);
}

static void event_detail(FILE *out, const struct audit_event *e)
{
    switch (e->code) {
    case AUDIT_EVENT_STOP:
        put_count(out, e->value[0]);
        fputs(" predictions in the log, ", out);
        put_count(out, e->value[1]);
        fputs(" records lost ", out);
        break;
    case AUDIT_EVENT_GAP:
        put_count(out, e->value[1]);
        fprintf(out, " messages lost from sequence number %" PRIu64 " ", e->value[0]);
        break;
    case AUDIT_EVENT_TRADING_STATE:
        fputs(e->value[0] ? "trading " : "not trading ", out);
        break;
    case AUDIT_EVENT_RECORDS_LOST:
        put_count(out, e->value[0]);
        fputs(" records found the audit ring full ", out);
        break;
    case AUDIT_EVENT_SESSION_END:
        fprintf(out, "next sequence number %" PRIu64 " ", e->value[0]);
        break;
    case AUDIT_EVENT_MODEL_LOAD:
        fprintf(out, "slot %" PRIu64 ", image %016" PRIx64 " ", e->value[0], e->value[1]);
        break;
    case AUDIT_EVENT_DEVICE_ERROR:
        fprintf(out, "status %" PRIu64 " ", e->value[0]);
        break;
    default:
        break;
    }
    fputs("<span class=\"sub\">", out);
    put_text(out, e->text, sizeof(e->text));
    fputs("</span>", out);
}

static void event_section(FILE *out, const struct report *r)
{
    uint64_t n_total = 0;
    fputs("<section><h2>Events</h2><p class=\"lead\">", out);
    for (unsigned code = 1; code < AUDIT_EVENT_CODE_COUNT; code++) {
        if (!r->n_by_code[code])
            continue;
        fputs(n_total ? ", " : "", out);
        put_count(out, r->n_by_code[code]);
        fprintf(out, " %s", audit_event_name(code));
        n_total += r->n_by_code[code];
    }
    fputs(n_total ? "." : "None.", out);
    if (n_total > (uint64_t)r->n_event)
        fprintf(out, " The first %d of each kind are listed.", N_EVENT_PER_CODE);
    fputs("</p>\n", out);
    if (r->n_event) {
        fputs(
            "<div class=\"scroll\"><table><tr><th class=\"r\">record</th><th>exchange time</th><th>event</th>"
            "<th>symbol</th><th>detail</th></tr>\n",
            out);
        for (int i = 0; i < r->n_event; i++) {
            const struct audit_event *e = &r->event[i];
            fprintf(out, "<tr><td class=\"r\">%" PRIu64 "</td>", e->record_no);
            time_cell(out, e->feed_ts_ns);
            fprintf(out, "<td class=\"w\">%s</td><td class=\"mono\">", audit_event_name(e->code));
            put_text(out, e->symbol, sizeof(e->symbol));
            fputs("</td><td>", out);
            event_detail(out, e);
            fputs("</td></tr>\n", out);
        }
        fputs("</table></div>", out);
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

static void fact_section(FILE *out, const struct report *r)
{
    const struct audit_header *h = &r->header;
    fputs("<section><h2>The log behind this page</h2><dl class=\"facts\">\n<dt>build</dt><dd>", out);
    put_text(out, h->build, sizeof(h->build));
    fputs("</dd>\n<dt>records</dt><dd>", out);
    put_count(out, r->n_record);
    fputs(r->problem[0] ? ", see the warning on top" : ", SHA-256 chain verified, log closed", out);
    fputs("</dd>\n", out);
    hex_fact(out, "head", r->head, sizeof(r->head));
    for (uint32_t i = 0; i < h->n_model; i++)
        hex_fact(out, i == 0 ? "model, slot 0" : "model, slot 1", h->model_sha256[i],
                 sizeof(h->model_sha256[i]));
    hex_fact(out, "configuration", h->config_sha256, sizeof(h->config_sha256));
    if (r->n_prediction) {
        fputs("<dt>exchange time</dt><dd class=\"mono\">", out);
        put_time(out, r->first_feed_ns);
        fputs(" to ", out);
        put_time(out, r->last_feed_ns);
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
        fputs("<dt>clock</dt><dd>replay: nanoseconds since the first packet</dd>\n", out);
    }
    if (r->n_clamped) {
        fputs("<dt>clamped ages</dt><dd>", out);
        put_count(out, r->n_clamped);
        fputs(" arrival stamps lay in the future: age 0</dd>\n", out);
    }
    fputs("</dl><p class=\"note\">Check it: killline audit verify LOG --head HEAD</p></section>\n", out);
}

static void page(FILE *out, const struct report *r)
{
    head_of_page(out, r);
    if (r->n_prediction) {
        latency_section(out, r);
        verdict_section(out, r);
        stage_section(out, r);
        time_section(out, r);
        symbol_section(out, r);
        list_section(out, r);
    } else {
        fputs("<section><h2>No prediction</h2><p>The log holds events only.</p></section>\n", out);
    }
    event_section(out, r);
    fact_section(out, r);
    fputs("</main></body></html>\n", out);
}

#endif
