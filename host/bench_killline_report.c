#include "bench_killline_report.h"

#include <string.h>

/* ---- figures ---- */

double bench_killline_ns(const struct bench_killline_report *r, const struct histogram *h, double q)
{
    return clock_cycles_to_ns(&r->setup->rig.clock, histogram_quantile(h, q));
}

double bench_killline_resource_percent(const struct bench_killline_report *r)
{
    double most = 0;
    for (int i = 0; i < BENCH_KILLLINE_N_RESOURCE; i++)
        most = r->result.resource_percent[i] > most ? r->result.resource_percent[i] : most;
    return most;
}

double bench_killline_miss_rate(const struct bench_killline_report *r)
{
    return r->result.wanted ? (double)r->result.missed / (double)r->result.wanted : 0;
}

static void judge_latency(const struct bench_killline_report *r, struct bench_killline_judged *j)
{
    const struct config *c = r->setup->config;
    const double p99 = bench_killline_ns(r, &r->result.age, 0.99), line = c->killline.threshold_us * 1e3;
    j->value = 100 * p99 / line;
    j->bound = c->governor.warning.latency_percent.enter;
    snprintf(j->text, sizeof(j->text), "p99 %.1f us is %.1f %% of the kill line at %u us", p99 / 1e3,
             j->value, c->killline.threshold_us);
}

static void judge_throughput(const struct bench_killline_report *r, struct bench_killline_judged *j)
{
    const struct bench_killline_result *m = &r->result;
    /* Of the frames that can be worked off with every tick inferred. */
    j->value = r->capacity.frames_per_s > 0 ? 100 * m->rate / r->capacity.frames_per_s : 0;
    j->bound = BENCH_KILLLINE_RESOURCE_ALERT;
    snprintf(j->text, sizeof(j->text),
             "%.0f inferences/s at %.0f frames/s; capacity %.0f inferences/s at %.0f frames/s, closed loop: "
             "%.1f %% of it",
             m->per_s, m->reached, r->capacity.inferences_per_s, r->capacity.frames_per_s, j->value);
}

static void judge_resources(const struct bench_killline_report *r, struct bench_killline_judged *j)
{
    size_t n = 0;
    j->value = bench_killline_resource_percent(r);
    j->bound = BENCH_KILLLINE_RESOURCE_ALERT;
    for (int i = 0; i < BENCH_KILLLINE_N_RESOURCE && n < sizeof(j->text); i++)
        n += (size_t)snprintf(j->text + n, sizeof(j->text) - n, "%s%s %.1f %%", i ? ", " : "",
                              bench_killline_resource_name((enum bench_killline_resource)i),
                              r->result.resource_percent[i]);
}

static void judge_stability(const struct bench_killline_report *r, struct bench_killline_judged *j)
{
    j->value = bench_killline_ns(r, &r->result.age, 0.99) - bench_killline_ns(r, &r->result.age, 0.5);
    j->bound = r->setup->config->governor.warning.spread_us.enter * 1e3;
    snprintf(j->text, sizeof(j->text), "P99 - P50 %.1f us, bound %.0f us", j->value / 1e3, j->bound / 1e3);
}

void bench_killline_judge(const struct bench_killline_report *r,
                          struct bench_killline_judged judged[BENCH_KILLLINE_N_INDICATOR])
{
    static const struct {
        const char *name, *unit;
        void (*judge)(const struct bench_killline_report *r, struct bench_killline_judged *j);
    } rows[BENCH_KILLLINE_N_INDICATOR] = {{"latency", "percent", judge_latency},
                                          {"throughput", "percent", judge_throughput},
                                          {"resource use", "percent", judge_resources},
                                          {"stability", "ns", judge_stability}};
    for (int i = 0; i < BENCH_KILLLINE_N_INDICATOR; i++) {
        judged[i] = (struct bench_killline_judged){.name = rows[i].name, .unit = rows[i].unit};
        rows[i].judge(r, &judged[i]);
        judged[i].is_alert = judged[i].bound > 0 && judged[i].value >= judged[i].bound;
    }
}

/* ---- text ---- */

static void put_ages(const struct bench_killline_report *r, FILE *out, const char *name,
                     const struct histogram *h)
{
    const double p50 = bench_killline_ns(r, h, 0.5), p99 = bench_killline_ns(r, h, 0.99);
    fprintf(out, "  %-16s %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", name, p50 / 1e3,
            bench_killline_ns(r, h, 0.9) / 1e3, p99 / 1e3, bench_killline_ns(r, h, 0.999) / 1e3,
            bench_killline_ns(r, h, 1) / 1e3, (p99 - p50) / 1e3);
}

static void put_verdicts(FILE *out, const uint64_t verdicts[VERDICT_COUNT])
{
    const char *comma = "";
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        if (verdicts[v]) {
            fprintf(out, "%s%llu %s", comma, (unsigned long long)verdicts[v], verdict_name(v));
            comma = ", ";
        }
}

static void put_head(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_setup *s = r->setup;
    const struct bench_cpus *cpus = &s->rig.cpus;
    fprintf(out,
            "bench killline, measured: backend %s%s%s, kernel build %s, model %s\n"
            "%s; poll loop on CPU %d, load generator on %d, audit writer on %d%s\n",
            s->backend, s->details[0] ? ", " : "", s->details, s->accel.build->name, s->model_path,
            s->machine, cpus->poll, cpus->feeder, cpus->audit,
            cpus->poll == cpus->feeder    ? ": ALL ON ONE, the figures say nothing"
            : cpus->feeder == cpus->audit ? ": these two share one, which shows in wait"
                                          : "");
}

static void put_procedure(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_killline_result *m = &r->result;
    fprintf(out,
            "%.0f frames/s due, %.0f reached, %u symbols: %llu inferences in %.2f s (%u rounds), after %llu "
            "predictions of warm-up\n\n"
            "  us                     p50       p90       p99     p99.9       max   P99-P50\n",
            m->rate, m->reached, r->n_symbol, (unsigned long long)m->runs, m->seconds, m->rounds,
            (unsigned long long)m->warm_up_predictions);
    put_ages(r, out, "age from due", &m->age);
    put_ages(r, out, "  from arrival", &m->uncorrected);
    fprintf(out, "  stages %67s\n", "of all time");
    for (int s = 0; s < BENCH_KILLLINE_N_STAGE; s++) {
        const struct histogram *h = &m->stage[s];
        fprintf(out, "  %-16s %9.2f %9.2f %9.2f %9.2f %9.2f  %5.1f %%  %s\n",
                bench_killline_stage_name((enum bench_killline_stage)s), bench_killline_ns(r, h, 0.5) / 1e3,
                bench_killline_ns(r, h, 0.9) / 1e3, bench_killline_ns(r, h, 0.99) / 1e3,
                bench_killline_ns(r, h, 0.999) / 1e3, bench_killline_ns(r, h, 1) / 1e3, m->share_percent[s],
                bench_killline_stage_text((enum bench_killline_stage)s));
    }
    fprintf(out, "  bottleneck at p50: %s%s%s\n", bench_killline_stage_name(m->bottleneck),
            m->bottleneck_p99 != m->bottleneck ? "; at p99: " : "",
            m->bottleneck_p99 != m->bottleneck ? bench_killline_stage_name(m->bottleneck_p99) : "");
    fprintf(out, "  verdicts: ");
    put_verdicts(out, m->verdicts);
    fprintf(out, "\n  miss rate %.4f %% of %llu wanted", 100 * bench_killline_miss_rate(r),
            (unsigned long long)m->wanted);
    if (m->audit_lost)
        fprintf(out, "; %llu records found the audit ring full and are in no figure",
                (unsigned long long)m->audit_lost);
    fputs("\n\n", out);
}

static void put_judged(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_killline_recommendation *c = &r->result.recommendation;
    struct bench_killline_judged judged[BENCH_KILLLINE_N_INDICATOR];
    bench_killline_judge(r, judged);
    for (int i = 0; i < BENCH_KILLLINE_N_INDICATOR; i++)
        fprintf(out, "  %-12s  %-5s  %s\n", judged[i].name, judged[i].is_alert ? "ALERT" : "ok",
                judged[i].text);
    if (c->threshold_us)
        fprintf(out,
                "  recommended   kill line %u us for at most %.4g %% missed: %llu of %llu above it, the rate "
                "is below %.3g %% (95 %% bound)\n",
                c->threshold_us, 100 * r->target_miss, (unsigned long long)c->missed,
                (unsigned long long)c->count, 100 * c->miss_upper);
    else
        fprintf(out, "  recommended   none for at most %.4g %% missed: %s\n", 100 * r->target_miss,
                c->reason);
    fprintf(out,
            "  check         both checks of a tick %.1f ns, two readings and compares alone %.1f ns: %+.1f "
            "ns, x %.3f\n\n",
            r->check.check_ns, r->check.empty_ns, r->check.check_ns - r->check.empty_ns,
            r->check.check_ns / r->check.empty_ns);
}

static void put_overload(const struct bench_killline_report *r, FILE *out,
                         const struct bench_killline_overload *o, const char *what)
{
    const struct histogram *h = &o->published_age;
    fprintf(out, "  overload, %s: %.0f frames/s offered, capacity %.0f (x %.1f), for %.2f s", what,
            o->offered, o->capacity.frames_per_s,
            o->capacity.frames_per_s > 0 ? o->offered / o->capacity.frames_per_s : 0, o->seconds);
    if (o->step_ns > 0)
        fprintf(out, "; each step made to take %.0f us", o->step_ns / 1e3);
    fprintf(out, "\n    %.3f %% published: ",
            o->predictions ? 100.0 * (double)o->verdicts[VERDICT_PUBLISHED] / (double)o->predictions : 0);
    put_verdicts(out, o->verdicts);
    fprintf(out,
            "\n    age of the published p50 %.1f, p99 %.1f, max %.1f us, %llu over the line; symbols that "
            "ticked in 10 ms: %.1f %% had one (worst window %.0f %%)\n"
            "    receive ring at most %u of %u, %llu frames found it full, %llu were lost; %llu audit "
            "records lost; memory %+lld KiB\n",
            bench_killline_ns(r, h, 0.5) / 1e3, bench_killline_ns(r, h, 0.99) / 1e3,
            bench_killline_ns(r, h, 1) / 1e3, (unsigned long long)o->over_line,
            o->ticked ? 100.0 * (double)o->served / (double)o->ticked : 0, o->served_least_percent,
            o->ring_high, o->ring_size, (unsigned long long)o->ring_full, (unsigned long long)o->ring_lost,
            (unsigned long long)o->audit_lost, (long long)(o->memory_growth_bytes / 1024));
}

static void put_idle(const struct bench_killline_report *r, FILE *out, const struct bench_killline_idle *i)
{
    const double on50 = bench_killline_ns(r, &i->on, 0.5), off50 = bench_killline_ns(r, &i->off, 0.5);
    fprintf(out,
            "  after %.0f ms idle: p50 %.2f, p99 %.2f us with keep-warm; %.2f, %.2f without (p50 x %.2f); "
            "longest dummy %s%.1f us\n",
            i->gap_ns / 1e6, on50 / 1e3, bench_killline_ns(r, &i->on, 0.99) / 1e3, off50 / 1e3,
            bench_killline_ns(r, &i->off, 0.99) / 1e3, on50 > 0 ? off50 / on50 : 0,
            /* measured no further than the timeout, within the rounding */
            i->keep_warm_max_ns + 2 >= 1e3 * r->setup->config->killline.device_timeout_us ? "at least " : "",
            i->keep_warm_max_ns / 1e3);
}

int bench_killline_text(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_killline_halt *h = &r->halt;
    put_head(r, out);
    put_procedure(r, out);
    put_judged(r, out);
    put_overload(r, out, &r->overload[0], "accelerator");
    put_overload(r, out, &r->overload[1], "wire");
    for (int i = 0; i < BENCH_KILLLINE_N_IDLE; i++)
        put_idle(r, out, &r->idle[i]);
    fprintf(out, "  %u orders to halt: %llu published with a check behind the order", h->orders,
            (unsigned long long)h->late);
    if (h->late)
        fprintf(out, ", by at most %.2f us", h->late_max_ns / 1e3);
    fprintf(out, "; acknowledged after p50 %.1f, max %.1f us\n",
            bench_killline_ns(r, &h->acknowledged, 0.5) / 1e3,
            bench_killline_ns(r, &h->acknowledged, 1) / 1e3);
    return fflush(out) != 0 || ferror(out) ? -1 : 0;
}
