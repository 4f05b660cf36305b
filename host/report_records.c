#include "report_records.h"

#include <inttypes.h>

#include "report_text.h"

const struct report_stage_text report_stage_text[REPORT_N_STAGE] = {
    {"decode", "arrival to book updated, with the wait behind earlier packets"},
    {"features", "to the submit"},
    {"inference", "submitted to completed"},
    {"publish", "answer to the last check"},
};

const char *const report_cause_text[VERDICT_COUNT] = {
    "under the line: sent",
    "could not make the line any more: not inferred",
    "inferred, but over the line",
    "a newer tick of the symbol was already waiting",
    "after a gap or a mid-session join",
    "the stream had too few ticks for the model",
    "the accelerator or the send port failed, or did not answer in time",
    "the appliance was halted, or the symbol not trading",
};

void report_put_cycles_cell(FILE *out, const struct report_data *r, uint64_t cycles)
{
    fputs("<td class=\"r\">", out);
    report_put_ns(out, (double)cycles * r->ns_per_cycle);
    fputs("</td>", out);
}

static void time_cell(FILE *out, uint64_t ts_ns)
{
    fputs("<td class=\"mono w\">", out);
    if (ts_ns != 0)
        report_put_time(out, ts_ns);
    fputs("</td>", out);
}

/* The appliance's own events have no exchange time. */
static void event_time_cell(FILE *out, const struct audit_header *h, const struct audit_event *e)
{
    const uint64_t utc_ns = e->feed_ts_ns ? 0 : audit_utc_ns(h, e->at);
    if (!utc_ns) {
        time_cell(out, e->feed_ts_ns);
        return;
    }
    fputs("<td class=\"mono w\">", out);
    report_put_time(out, utc_ns % 86400000000000u);
    fputs("Z</td>", out);
}

/* One sentence: why this verdict, and which stage took most of the time. */
static void explain(FILE *out, const struct report_data *r, const struct audit_prediction *p,
                    const uint64_t cycles[REPORT_N_STAGE])
{
    int longest = 0;
    for (int i = 1; i < REPORT_N_STAGE; i++)
        longest = cycles[i] > cycles[longest] ? i : longest;
    switch (p->verdict) {
    case VERDICT_PUBLISHED:
        break;
    case VERDICT_EXPECTED_LATE:
        fputs("expected inference ", out);
        report_put_ns(out, (double)p->expected_cycles * r->ns_per_cycle);
        fputs(" more, line ", out);
        report_put_ns(out, (double)p->threshold_cycles * r->ns_per_cycle);
        fputs("; ", out);
        break;
    case VERDICT_STALE:
        report_put_ns(out, p->age_cycles > p->threshold_cycles
                               ? (double)(p->age_cycles - p->threshold_cycles) * r->ns_per_cycle
                               : 0);
        fputs(" over the line; ", out);
        break;
    default:
        fprintf(out, "%s; ",
                p->flags & AUDIT_FLAG_EGRESS_FAILED ? "in time, but the send port took nothing"
                                                    : report_cause_text[p->verdict]);
    }
    fprintf(out, "most of it in <b>%s</b> (", report_stage_text[longest].name);
    report_put_ns(out, (double)cycles[longest] * r->ns_per_cycle);
    fputs(")", out);
}

static void prediction_table(FILE *out, const struct report_data *r, const struct audit_prediction *top,
                             int n)
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
        uint64_t cycles[REPORT_N_STAGE];
        double sum = 0;
        report_stages(p, cycles);
        for (int i = 0; i < REPORT_N_STAGE; i++)
            sum += (double)cycles[i];
        fprintf(out, "<tr><td class=\"r\">%" PRIu64 "</td>", p->record_no);
        time_cell(out, p->feed_ts_ns);
        fputs("<td class=\"mono\">", out);
        report_put_text(out, p->symbol, sizeof(p->symbol));
        fprintf(out, "</td><td class=\"w\"><span class=\"sw v%d\"></span>%s</td>", p->verdict,
                verdict_name(p->verdict));
        report_put_cycles_cell(out, r, p->age_cycles);
        fputs("<td><div class=\"mini\">", out);
        for (int i = 0; i < REPORT_N_STAGE; i++)
            if (cycles[i])
                fprintf(out, "<i class=\"s%d\" style=\"width:%.2f%%\" title=\"%s\"></i>", i,
                        100 * (double)cycles[i] / sum, report_stage_text[i].name);
        fputs("</div></td><td>", out);
        explain(out, r, p, cycles);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

void report_predictions(FILE *out, const struct report_data *r)
{
    fputs("<section><h2>The oldest published</h2><div class=\"legend\">", out);
    for (int i = 0; i < REPORT_N_STAGE; i++)
        fprintf(out, "<span><span class=\"sw s%d\"></span>%s</span>", i, report_stage_text[i].name);
    fputs("</div>\n", out);
    prediction_table(out, r, r->oldest, r->n_oldest);
    fputs("</section>\n<section><h2>The oldest dropped</h2>\n", out);
    prediction_table(out, r, r->worst, r->n_worst);
    fputs("</section>\n", out);
}

static void event_detail(FILE *out, const struct audit_header *h, const struct audit_event *e)
{
    char text[AUDIT_GOVERN_TEXT_CHARS];
    switch (e->code) {
    case AUDIT_EVENT_STOP:
        report_put_count(out, e->value[0]);
        fputs(" predictions in the log, ", out);
        report_put_count(out, e->value[1]);
        fputs(" records lost ", out);
        break;
    case AUDIT_EVENT_GAP:
        report_put_count(out, e->value[1]);
        fprintf(out, " messages lost from sequence number %" PRIu64 " ", e->value[0]);
        break;
    case AUDIT_EVENT_TRADING_STATE:
        fputs(e->value[0] ? "trading " : "not trading ", out);
        break;
    case AUDIT_EVENT_RECORDS_LOST:
        report_put_count(out, e->value[0]);
        fputs(" records found the audit ring full ", out);
        break;
    case AUDIT_EVENT_SESSION_END:
        fprintf(out, "next sequence number %" PRIu64 " ", e->value[0]);
        break;
    case AUDIT_EVENT_MODEL_LOAD:
        fprintf(out, "slot %" PRIu64 ", image %016" PRIx64 " ", e->value[0], e->value[1]);
        if (e->value[2])
            fprintf(out, "%s (status %" PRIu64 ") ", audit_device_name(e->value[2]), e->value[2]);
        break;
    case AUDIT_EVENT_MODEL_SWITCH:
        fprintf(out, "to slot %" PRIu64 ", image %016" PRIx64 " ", e->value[0], e->value[1]);
        break;
    case AUDIT_EVENT_DEVICE_ERROR:
        fprintf(out, "%s (status %" PRIu64 ") ", audit_device_name(e->value[0]), e->value[0]);
        break;
    default:
        if (audit_card_text(e, text)) {
            fprintf(out, "%s ", text);
        } else if (audit_govern_text(h, e, text)) { /* an order's reason is in there */
            report_put_text(out, text, sizeof(text));
            fputs(" ", out);
        }
        break;
    }
    if (e->code == AUDIT_EVENT_ORDER)
        return;
    fputs("<span class=\"sub\">", out);
    report_put_text(out, e->text, sizeof(e->text));
    fputs("</span>", out);
}

void report_events(FILE *out, const struct report_data *r)
{
    uint64_t n_total = 0;
    fputs("<section><h2>Events</h2><p class=\"lead\">", out);
    for (unsigned code = 1; code < AUDIT_EVENT_CODE_COUNT; code++) {
        if (!r->n_by_code[code])
            continue;
        fputs(n_total ? ", " : "", out);
        report_put_count(out, r->n_by_code[code]);
        fprintf(out, " %s", audit_event_name(code));
        n_total += r->n_by_code[code];
    }
    fputs(n_total ? "." : "None.", out);
    if (n_total > (uint64_t)r->n_event)
        fprintf(out, " The first %d of each kind are listed.", REPORT_N_EVENT_PER_CODE);
    fputs("</p>\n", out);
    if (r->n_event) {
        fputs("<div class=\"scroll\"><table><tr><th class=\"r\">record</th><th>exchange time, or UTC "
              "(Z)</th><th>event</th>"
              "<th>symbol</th><th>detail</th></tr>\n",
              out);
        for (int i = 0; i < r->n_event; i++) {
            const struct audit_event *e = &r->event[i];
            fprintf(out, "<tr><td class=\"r\">%" PRIu64 "</td>", e->record_no);
            event_time_cell(out, &r->header, e);
            fprintf(out, "<td class=\"w\">%s</td><td class=\"mono\">", audit_event_name(e->code));
            report_put_text(out, e->symbol, sizeof(e->symbol));
            fputs("</td><td>", out);
            event_detail(out, &r->header, e);
            fputs("</td></tr>\n", out);
        }
        fputs("</table></div>", out);
    }
    fputs("</section>\n", out);
}
