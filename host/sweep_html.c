#include <inttypes.h>

#include "report_style.h"
#include "report_text.h"
#include "sweep_report.h"
#include "sweep_svg.h"

static void put_interval(FILE *out, const struct sweep_interval *i, double scale, int decimals)
{
    fputs("<td class=\"r\">", out);
    if (i->has_value)
        fprintf(out, "%.*f", decimals, scale * i->value);
    else
        fputs("&ndash;", out);
    fputs("</td><td class=\"r zero\">", out);
    if (i->has_interval)
        fprintf(out, "%.*f to %.*f", decimals, scale * i->low, decimals, scale * i->high);
    else
        fputs("&ndash;", out);
    fputs("</td>", out);
}

static void put_cell(FILE *out, int64_t n)
{
    fputs("<td class=\"r\">", out);
    report_put_count(out, (uint64_t)n);
    fputs("</td>", out);
}

static void put_quality(FILE *out, const struct sweep_quality *q)
{
    put_cell(out, q->known);
    put_interval(out, &q->hit_rate, 100, 2);
    put_interval(out, &q->mean_usd, 1, 6);
}

static const char *mark(const struct sweep_result *r, uint32_t j)
{
    return (int)j == r->recommended ? " style=\"font-weight:650\"" : "";
}

static void head(FILE *out, const struct sweep_result *r)
{
    const struct sweep_sums *s = r->sums;
    char horizon[48], clock[160];
    sweep_report_clock(s, clock);
    sweep_report_horizon(&s->spec, horizon);
    fprintf(out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
            "content=\"width=device-width,initial-scale=1\"><title>Kill line sweep</title><style>%s</style>"
            "</head>\n<body><main>\n<header><h1>Kill line sweep</h1><p class=\"sub\">",
            report_css);
    report_put_count(out, (uint64_t)s->predictions);
    fprintf(out,
            " predictions of %u log%s &middot; %s &middot; horizon %s &middot; seed %" PRIu64
            ", %u replicates</p></header>\n<div class=\"tiles\"><div class=\"tile kill\"><b>",
            s->n_log, s->n_log == 1 ? "" : "s", clock, horizon, s->spec.seed, s->spec.n_replicate);
    if (r->recommended >= 0)
        report_put_ns(out, r->point[r->recommended].threshold_ns);
    else
        fputs("none", out);
    fprintf(out,
            "</b><span>recommended line, at most %.6g %% missed</span></div></div>\n<section><h2>What it "
            "says</h2><p><b>Recommended:</b> ",
            r->target_ppm / 1e4);
    report_put_text(out, r->recommendation, sizeof(r->recommendation));
    fputs(".</p><p>", out);
    report_put_text(out, r->worth, sizeof(r->worth));
    fputs(".</p>\n", out);
    for (unsigned i = 0; sweep_report_note(i); i++) {
        fputs("<p class=\"note\">", out);
        report_put_text(out, sweep_report_note(i), 1024);
        fputs("</p>\n", out);
    }
    fputs("</section>\n", out);
}

static void verdicts(FILE *out, const struct sweep_result *r)
{
    fputs("<section><h2>Verdicts over the threshold</h2><div class=\"legend\">", out);
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        fprintf(out, "<span><span class=\"sw v%u\"></span>%s</span>", v, verdict_name(v));
    fputs("</div>\n", out);
    sweep_svg_verdicts(out, r);
    fputs("<div class=\"scroll\"><table><tr><th class=\"r\">threshold</th><th class=\"r\">missed</th>", out);
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        fprintf(out, "<th class=\"r\">%s</th>%s", verdict_name(v),
                v ? "" : "<th class=\"r\">estimated</th><th class=\"r\">unsubmitted</th>");
    fputs("</tr>\n", out);
    for (uint32_t j = 0; j < r->n_point; j++) {
        const struct sweep_point *p = &r->point[j];
        fprintf(out, "<tr%s><td class=\"r\">", mark(r, j));
        report_put_ns(out, p->threshold_ns);
        fputs("</td><td class=\"r\">", out);
        report_put_percent(out, (uint64_t)p->missed, (uint64_t)p->line);
        fputs("</td>", out);
        for (unsigned v = 0; v < VERDICT_COUNT; v++) {
            put_cell(out, p->by_verdict[v]);
            if (!v) {
                put_cell(out, p->estimated);
                put_cell(out, p->unsubmitted);
            }
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void quality_head(FILE *out, const char *first)
{
    fprintf(out,
            "<div class=\"scroll\"><table><tr><th>%s</th><th class=\"r\">published, outcome known</th>"
            "<th class=\"r\">hits, %%</th><th class=\"r\">95 %%</th><th class=\"r\">value, USD</th>"
            "<th class=\"r\">95 %%</th><th class=\"r\">dropped, outcome known</th><th class=\"r\">hits, "
            "%%</th><th class=\"r\">95 %%</th><th class=\"r\">value, USD</th><th class=\"r\">95 "
            "%%</th></tr>\n",
            first);
}

static void quality(FILE *out, const struct sweep_result *r)
{
    const struct sweep_sums *s = r->sums;
    const struct sweep_point *at = &r->point[r->recommended >= 0 ? r->recommended : (int)r->n_point - 1];
    fputs("<section><h2>Hit rate</h2><div class=\"legend\"><span>blue: published</span><span>orange: dropped "
          "as too late</span><span>boxes: 95 %</span></div>\n",
          out);
    sweep_svg_quality(out, r, SWEEP_SVG_HIT_RATE);
    fputs("</section>\n<section><h2>Value per prediction, USD</h2>\n", out);
    sweep_svg_quality(out, r, SWEEP_SVG_VALUE);
    quality_head(out, "threshold");
    for (uint32_t j = 0; j < r->n_point; j++) {
        fprintf(out, "<tr%s><td class=\"w\">", mark(r, j));
        report_put_ns(out, r->point[j].threshold_ns);
        fputs("</td>", out);
        put_quality(out, &r->point[j].published[SWEEP_N_CLASS]);
        put_quality(out, &r->point[j].dropped[SWEEP_N_CLASS]);
        fputs("</tr>\n", out);
    }
    fputs("</table></div></section>\n<section><h2>By class, at ", out);
    report_put_ns(out, at->threshold_ns);
    fputs("</h2>\n", out);
    quality_head(out, "class");
    for (uint32_t c = 0; c < s->n_class; c++) {
        fputs("<tr><td class=\"w\">", out);
        report_put_text(out, s->class_name[c], sizeof(s->class_name[c]));
        fputs("</td>", out);
        put_quality(out, &at->published[c]);
        put_quality(out, &at->dropped[c]);
        fputs("</tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void test(FILE *out, const struct sweep_ab *ab)
{
    fputs("<section><h2>Live A/B: ", out);
    report_put_ns(out, (double)ab->arms.a_ns);
    fputs(" against ", out);
    report_put_ns(out, (double)ab->arms.b_ns);
    fprintf(out,
            "</h2><p class=\"lead\">%u symbols in A, %u in B. The arms are different instruments, which may "
            "have differed before: compare with a day on which both had one threshold. z and p take "
            "predictions for independent, and those of a symbol are not; the intervals resample symbols, "
            "since symbols were assigned.</p>\n<div class=\"scroll\"><table><tr><th></th><th "
            "class=\"r\">A</th><th class=\"r\">B</th><th class=\"r\">B &minus; A</th><th "
            "class=\"r\">95 %%</th><th class=\"r\">z</th><th class=\"r\">p</th><th class=\"r\">detectable"
            "</th><th></th></tr>\n",
            ab->n_symbol[0], ab->n_symbol[1]);
    for (int w = 0; w < SWEEP_N_AB; w++) {
        const struct sweep_ab_test *t = &ab->test[w];
        char text[256];
        sweep_report_ab_text(ab, w, text);
        fprintf(out, "<tr><td class=\"w\">%s</td><td class=\"r\">%.6f</td><td class=\"r\">%.6f</td>",
                sweep_ab_figure[w], t->rate[0], t->rate[1]);
        put_interval(out, &t->difference, 1, 6);
        if (t->has_z)
            fprintf(out, "<td class=\"r\">%.2f</td><td class=\"r\">%.3g</td>", t->z, t->p_value);
        else
            fputs("<td class=\"r\">&ndash;</td><td class=\"r\">&ndash;</td>", out);
        fprintf(out, "<td class=\"r\">%.3g</td><td>", t->detectable);
        report_put_text(out, text, sizeof(text));
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

static void logs(FILE *out, const struct sweep_sums *s)
{
    fputs("<section><h2>Logs</h2><div class=\"scroll\"><table><tr><th>feed</th><th class=\"r\">records</th>"
          "<th class=\"r\">predictions</th><th class=\"r\">lost</th><th>closed</th><th>head</th></tr>\n",
          out);
    for (uint32_t i = 0; i < s->n_log; i++) {
        const struct sweep_log_info *l = &s->log[i];
        fputs("<tr><td>", out);
        report_put_text(out, l->feed, sizeof(l->feed));
        fputs("</td>", out);
        put_cell(out, (int64_t)l->records);
        put_cell(out, (int64_t)l->predictions);
        put_cell(out, (int64_t)l->lost);
        fprintf(out, "<td>%s</td><td class=\"mono\">", l->is_closed ? "yes" : "no: used up to its end");
        for (int k = 0; k < AUDIT_CHAIN_BYTES; k++)
            fprintf(out, "%02x", l->head[k]);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div></section>\n", out);
}

void sweep_report_html(FILE *out, const struct sweep_result *r)
{
    head(out, r);
    verdicts(out, r);
    quality(out, r);
    for (uint32_t k = 0; k < r->n_ab; k++)
        test(out, &r->ab[k]);
    logs(out, r->sums);
    fputs("</main></body></html>\n", out);
}
