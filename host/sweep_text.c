#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sweep_report.h"

const char *const sweep_ab_figure[SWEEP_N_AB] = {"published rate", "hit rate", "value, USD"};

const char *sweep_report_note(unsigned i)
{
    static const char *const note[] = {
        "Queueing is taken as it was: a lower threshold would have shortened it, a higher one lengthened it.",
        "Estimated: predictions that were never inferred (expected-late) count as published where age at the "
        "submit + expected inference fits; they have no answer, so neither hit nor value.",
        "A prediction is published where its age at the last check fits. Those among them that the check "
        "before the submit would have refused at that threshold are given as unsubmitted.",
        "Dropped, where hit rate and value stand: answers that were late at that threshold. Superseded, "
        "warming-up, book-unreliable, device-error and halted ones stay dropped at every threshold.",
        "Hit rate and value: over those whose outcome is known: the symbol's records go on to the horizon, "
        "and "
        "no gap, halt or unreliable book comes before it.",
        "Value: mid at the horizon - mid at the prediction, in the direction predicted; no costs, no fills. "
        "Intervals: 95 %, bootstrap over blocks of log, symbol and second; '-' where blocks are too few.",
        NULL};
    return note[i];
}

void sweep_report_clock(const struct sweep_sums *sums, char text[160])
{
    uint32_t modelled = 0;
    for (uint32_t i = 0; i < sums->n_log; i++)
        modelled += sums->log[i].clock == AUDIT_CLOCK_REPLAY;
    if (modelled && modelled < sums->n_log)
        snprintf(text, 160,
                 "ages MIXED: %u modelled (replay clock), %u measured (real clock): better swept apart",
                 modelled, sums->n_log - modelled);
    else
        snprintf(text, 160, "ages %s clock)", modelled ? "modelled (replay" : "measured (real");
}

void sweep_report_horizon(const struct sweep_spec *spec, char text[48])
{
    if (spec->horizon_ticks)
        snprintf(text, 48, "%" PRIu64 " ticks of its symbol", spec->horizon_ticks);
    else if (spec->horizon_ns % 1000000 == 0)
        snprintf(text, 48, "%" PRIu64 " ms", spec->horizon_ns / 1000000);
    else
        snprintf(text, 48, "%" PRIu64 " ns", spec->horizon_ns);
}

void sweep_report_ab_text(const struct sweep_ab *ab, int which, char text[256])
{
    const struct sweep_ab_test *t = &ab->test[which];
    const struct sweep_interval *d = &t->difference;
    if (!t->has_rate)
        snprintf(text, 256, "an arm has none: nothing to compare");
    else if (ab->is_too_small)
        snprintf(text, 256, "sample too small: fewer than %d symbols in an arm (A %u, B %u)",
                 SWEEP_AB_MIN_SYMBOLS, ab->n_symbol[0], ab->n_symbol[1]);
    else if (!d->has_interval)
        snprintf(text, 256, "sample too small: a resample of the symbols can be without any of an arm");
    else if (d->low > 0 || d->high < 0)
        snprintf(text, 256, "B is %s, by the symbols' own spread", d->low > 0 ? "higher" : "lower");
    else
        snprintf(
            text, 256, "no difference shown; one below %.3g would mostly go unseen with these symbols: %s",
            t->detectable, fabs(d->value) < t->detectable ? "sample too small for this one" : "undecided");
}

static void put_interval(FILE *out, const struct sweep_interval *i, double scale, int decimals)
{
    char text[96] = "-";
    if (i->has_interval)
        snprintf(text, sizeof(text), "%.*f [%.*f, %.*f]", decimals, scale * i->value, decimals,
                 scale * i->low, decimals, scale * i->high);
    else if (i->has_value)
        snprintf(text, sizeof(text), "%.*f [-]", decimals, scale * i->value);
    fprintf(out, "  %*s", decimals > 2 ? 29 : 22, text);
}

static void put_quality(FILE *out, const struct sweep_quality *q)
{
    fprintf(out, "  %9" PRId64, q->known);
    put_interval(out, &q->hit_rate, 100, 2);
    put_interval(out, &q->mean_usd, 1, 6);
}

static void head(FILE *out, const struct sweep_sums *s)
{
    char horizon[48], clock[160];
    int64_t open = 0, lost = 0;
    for (uint32_t i = 0; i < s->n_log; i++) {
        open += !s->log[i].is_closed;
        lost += (int64_t)s->log[i].lost;
    }
    sweep_report_horizon(&s->spec, horizon);
    fprintf(out, "sweep: %u log%s, %" PRId64 " predictions, horizon %s, seed %" PRIu64 ", %u replicates\n",
            s->n_log, s->n_log == 1 ? "" : "s", s->predictions, horizon, s->spec.seed, s->spec.n_replicate);
    sweep_report_clock(s, clock);
    fprintf(out, "  %s\n", clock);
    if (open)
        fprintf(out, "  %" PRId64 " of the logs not closed: used up to their ends\n", open);
    if (lost)
        fprintf(out,
                "  %" PRId64 " records were lost for want of room in the audit ring: not in the figures\n",
                lost);
    if (s->disordered)
        fprintf(out, "  %" PRId64 " records were written after newer ones of their symbol: without outcome\n",
                s->disordered);
    fputs("  as it was:", out);
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        if (s->given[v])
            fprintf(out, " %s %" PRId64, verdict_name(v), s->given[v]);
    fputc('\n', out);
}

static void tests(FILE *out, const struct sweep_result *r)
{
    for (uint32_t k = 0; k < r->n_ab; k++) {
        const struct sweep_ab *ab = &r->ab[k];
        fprintf(out,
                "\nlive A/B, thresholds A %.9g us, B %.9g us, %" PRIu64
                " %% of the symbols in B: %u symbols in A, %u in B\n",
                (double)ab->arms.a_ns / 1e3, (double)ab->arms.b_ns / 1e3, ab->arms.share_percent,
                ab->n_symbol[0], ab->n_symbol[1]);
        fprintf(out, "  %-15s %12s %12s %31s %8s %9s %11s\n", "", "A", "B", "B - A [95 %, by symbol]", "z",
                "p", "detectable");
        for (int w = 0; w < SWEEP_N_AB; w++) {
            const struct sweep_ab_test *t = &ab->test[w];
            char text[256], z[16] = "-", p[16] = "-";
            sweep_report_ab_text(ab, w, text);
            if (t->has_z) {
                snprintf(z, sizeof(z), "%.2f", t->z);
                snprintf(p, sizeof(p), "%.3g", t->p_value);
            }
            fprintf(out, "  %-15s %12.6f %12.6f", sweep_ab_figure[w], t->rate[0], t->rate[1]);
            put_interval(out, &t->difference, 1, 6);
            fprintf(out, " %8s %9s %11.3g  %s\n", z, p, t->detectable, text);
        }
        fputs("  The arms are different instruments, which may have differed before: compare with a day on "
              "which both had one threshold. z and p take predictions\n  for independent, and those of a "
              "symbol are not; the intervals resample symbols, since symbols were assigned.\n",
              out);
    }
}

void sweep_report_text(FILE *out, const struct sweep_result *r)
{
    const struct sweep_sums *s = r->sums;
    head(out, s);
    fprintf(out, "\n%12s %11s %10s %11s %8s", "threshold us", "published", "estimated", "unsubmitted",
            "miss %");
    for (unsigned v = 1; v < VERDICT_COUNT; v++)
        fprintf(out, " %15s", verdict_name(v));
    fputc('\n', out);
    for (uint32_t j = 0; j < r->n_point; j++) {
        const struct sweep_point *p = &r->point[j];
        fprintf(out, "%c%11.9g %11" PRId64 " %10" PRId64 " %11" PRId64 " %8.3f",
                (int)j == r->recommended ? '>' : ' ', p->threshold_ns / 1e3, p->by_verdict[VERDICT_PUBLISHED],
                p->estimated, p->unsubmitted, 100 * p->miss_rate);
        for (unsigned v = 1; v < VERDICT_COUNT; v++)
            fprintf(out, " %15" PRId64, p->by_verdict[v]);
        fputc('\n', out);
    }
    fprintf(out, "\n%12s  %9s  %22s  %29s  %9s  %22s  %29s\n", "threshold us", "published", "hits %",
            "value, USD", "dropped", "hits %", "value, USD");
    for (uint32_t j = 0; j < r->n_point; j++) {
        const struct sweep_point *p = &r->point[j];
        fprintf(out, "%c%11.9g", (int)j == r->recommended ? '>' : ' ', p->threshold_ns / 1e3);
        put_quality(out, &p->published[SWEEP_N_CLASS]);
        put_quality(out, &p->dropped[SWEEP_N_CLASS]);
        fputc('\n', out);
    }
    const struct sweep_point *p = &r->point[r->recommended >= 0 ? r->recommended : (int)r->n_point - 1];
    fprintf(out, "\nby class, at %.9g us (classes with an outcome that is known)\n", p->threshold_ns / 1e3);
    for (uint32_t c = 0; c < s->n_class; c++) {
        fprintf(out, "%12.8s", s->class_name[c]);
        put_quality(out, &p->published[c]);
        put_quality(out, &p->dropped[c]);
        fputc('\n', out);
    }
    tests(out, r);
    fprintf(out, "\nrecommended  %s\n%s.\n\n", r->recommendation, r->worth);
    for (unsigned i = 0; sweep_report_note(i); i++)
        fprintf(out, "%s\n", sweep_report_note(i));
}
