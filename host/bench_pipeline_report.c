#include "bench_pipeline_report.h"

#include <jansson.h>
#include <stdio.h>

#include "cmd.h"

/* In the order of a tick's way. */
static const int rows[] = {BENCH_PIPELINE_WAIT, TRACE_RECEIVE,   TRACE_DECODE, TRACE_BOOK,    TRACE_FEATURES,
                           TRACE_SUBMIT,        TRACE_INFERENCE, TRACE_CHECK,  TRACE_PUBLISH, TRACE_AUDIT};
enum { N_STAGE = sizeof(rows) / sizeof(rows[0]) };

struct figure { /* ns */
    double p50, p99, p999, max, mean, floor;
};

/* Of the values up to the p99: what the scheduler did to the few above it is in max. */
static double mean_to_p99(const struct histogram *h)
{
    const uint64_t n = h->count - h->count / 100;
    uint64_t seen = 0;
    double sum = 0;
    for (uint32_t i = 0; i < HISTOGRAM_N_BUCKET && seen < n; i++) {
        const uint64_t here = h->bucket[i] < n - seen ? h->bucket[i] : n - seen;
        sum += (double)here * ((double)histogram_bucket_low(i) + (double)histogram_bucket_high(i)) / 2;
        seen += here;
    }
    return seen ? sum / (double)seen : 0;
}

static struct figure figure_of(const struct bench_pipeline_report *report,
                               const struct bench_pipeline_result *load, int row)
{
    const double ns = 1e9 / report->clock.hz;
    const struct histogram *h = &load->row[row];
    return (struct figure){.p50 = (double)histogram_quantile(h, 0.5) * ns,
                           .p99 = (double)histogram_quantile(h, 0.99) * ns,
                           .p999 = (double)histogram_quantile(h, 0.999) * ns,
                           .max = (double)h->max * ns,
                           .mean = mean_to_p99(h) * ns,
                           .floor = (double)histogram_quantile(&load->floor[row], 0.5) * ns};
}

/* ---- JSON ---- */

static json_t *figure_json(const struct bench_pipeline_report *report,
                           const struct bench_pipeline_result *load, int row)
{
    const struct figure f = figure_of(report, load, row);
    return json_pack("{s:{s:f, s:f, s:f, s:f, s:f}, s:f, s:I}", "ns", "p50", f.p50, "p99", f.p99, "p999",
                     f.p999, "max", f.max, "mean_to_p99", f.mean, "floor_ns", f.floor, "count",
                     (json_int_t)load->row[row].count);
}

static json_t *load_json(const struct bench_pipeline_report *report, const struct bench_pipeline_result *load)
{
    json_t *stages = json_object(), *verdicts = json_object(),
           *other = figure_json(report, load, BENCH_PIPELINE_OTHER);
    int failed = !stages || !verdicts || !other;
    for (int i = 0; !failed && i < N_STAGE; i++)
        failed = json_object_set_new(stages, bench_pipeline_row_name((enum bench_pipeline_row)rows[i]),
                                     figure_json(report, load, rows[i]));
    for (unsigned v = 0; !failed && v < VERDICT_COUNT; v++)
        failed = json_object_set_new(verdicts, verdict_name(v), json_integer((json_int_t)load->verdicts[v]));
    failed = failed || json_object_set_new(other, "target_p50_ns", json_integer(BENCH_PIPELINE_TARGET_NS)) ||
             json_object_set_new(
                 other, "met",
                 json_boolean(load->row[BENCH_PIPELINE_OTHER].count &&
                              figure_of(report, load, BENCH_PIPELINE_OTHER).p50 <= BENCH_PIPELINE_TARGET_NS));
    json_t *json =
        json_pack("{s:f, s:b, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "rate",
                  load->rate, "paced", load->rate > 0, "reached", load->reached, "seconds", load->seconds,
                  "frames", (json_int_t)load->frames, "ticks", (json_int_t)load->ticks, "preload_ticks",
                  (json_int_t)load->preload_ticks, "ring_full", (json_int_t)load->ring_full, "audit_records",
                  (json_int_t)load->audit_records, "audit_lost", (json_int_t)load->audit_lost, "failovers",
                  (json_int_t)load->failovers, "mirror_answers", (json_int_t)load->mirror_answers, "verdicts",
                  verdicts, "stages", stages, "total", figure_json(report, load, BENCH_PIPELINE_TOTAL),
                  "other_than_inference", other);
    if (failed) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static double overhead_ns(const struct bench_pipeline_report *report, const struct histogram *h, double q)
{
    return (double)histogram_quantile(h, q) * 1e9 / report->clock.hz;
}

static json_t *overhead_json(const struct bench_pipeline_report *r)
{
    const struct bench_pipeline_overhead *o = &r->overhead;
    const double backend = overhead_ns(r, &o->backend, 0.5), csim = overhead_ns(r, &o->csim, 0.5);
    return json_pack("{s:I, s:I, s:{s:f, s:f}, s:{s:f, s:f}, s:f}", "steps", (json_int_t)o->steps, "mirrored",
                     (json_int_t)o->mirrored, "backend_ns", "p50", backend, "p99",
                     overhead_ns(r, &o->backend, 0.99), "csim_ns", "p50", csim, "p99",
                     overhead_ns(r, &o->csim, 0.99), "p50_ns", backend - csim);
}

static int print_json(const struct bench_pipeline_report *r)
{
    json_t *loads = json_array();
    int failed = !loads;
    for (uint32_t i = 0; !failed && i < r->n_load; i++)
        failed = json_array_append_new(loads, load_json(r, &r->load[i]));
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:I, s:{s:i, s:i, s:i}, s:o}", "label",
                  "measured", "backend", r->backend, "build", r->build, "model", r->model, "details",
                  r->details, "machine", r->machine, "time_stamp_ns", r->time_stamp_ns, "threshold_us",
                  r->threshold_us, "symbols", (json_int_t)r->n_symbol, "cpus", "poll", r->cpus.poll, "feeder",
                  r->cpus.feeder, "audit", r->cpus.audit, "rates", loads);
    failed |= !root;
    if (!failed && r->overhead.is_measured)
        failed = json_object_set_new(root, "overhead", overhead_json(r));
    failed |= json_dumpf(root, stdout, JSON_REAL_PRECISION(9)) != 0;
    json_decref(root);
    putchar('\n');
    return fflush(stdout) != 0 || failed ? cmd_error("bench pipeline: cannot write the result: %m") : 0;
}

/* ---- text ---- */

static void print_row(const struct bench_pipeline_report *report, const struct bench_pipeline_result *load,
                      int row, const char *what)
{
    const struct figure f = figure_of(report, load, row);
    printf("  %-20s %9.0f %9.0f %9.0f %10.0f %10.1f %7.0f   %s\n",
           bench_pipeline_row_name((enum bench_pipeline_row)row), f.p50, f.p99, f.p999, f.max, f.mean,
           f.floor, what);
}

static void print_load(const struct bench_pipeline_report *report, const struct bench_pipeline_result *load)
{
    static const char *const what[BENCH_PIPELINE_N_ROW] = {
        [BENCH_PIPELINE_WAIT] = "due -> receive begins: feeder, copy into the ring, queue",
        [TRACE_RECEIVE] = "port_receive called -> the packet's bytes at hand",
        [TRACE_DECODE] = "-> headers, checksums, MoldUDP64 done",
        [TRACE_BOOK] = "-> message decoded and in the book, BBO, states",
        [TRACE_FEATURES] = "-> features computed, normalised",
        [TRACE_SUBMIT] = "-> kill line's first check passed, budget set",
        [TRACE_INFERENCE] = "-> backend called, its answer polled and whole",
        [TRACE_CHECK] = "answer judged; datagram built -> last check passed",
        [TRACE_PUBLISH] = "datagram built; last check -> sent",
        [TRACE_AUDIT] = "-> features hashed, record in the writer's ring",
    };
    if (load->rate > 0)
        printf("\n%.0f frames/s due, %.0f reached", load->rate, load->reached);
    else
        printf("\nunpaced, %.0f frames/s", load->reached);
    printf(", %.2f s: %llu frames, %llu ticks", load->seconds, (unsigned long long)load->frames,
           (unsigned long long)load->ticks);
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        if (load->verdicts[v])
            printf(", %llu %s", (unsigned long long)load->verdicts[v], verdict_name(v));
    printf("\n%llu frames found the ring full, %llu audit records lost of %llu\n"
           "  %-20s %9s %9s %9s %10s %10s %7s\n",
           (unsigned long long)load->ring_full, (unsigned long long)load->audit_lost,
           (unsigned long long)(load->audit_records + load->audit_lost), "ns", "p50", "p99", "p99.9", "max",
           "mean<=p99", "floor");
    for (int i = 0; i < N_STAGE; i++)
        print_row(report, load, rows[i], what[rows[i]]);
    print_row(report, load, BENCH_PIPELINE_TOTAL, "due -> record in the ring; every tick");
    print_row(report, load, BENCH_PIPELINE_OTHER, "receive to audit but inference; published ticks");
    if (load->failovers || load->mirror_answers)
        printf("  THE CARD DID NOT SERVE THEM ALL: %llu answers are its mirror's, the cpu backend; it failed "
               "%llu "
               "times\n",
               (unsigned long long)load->mirror_answers, (unsigned long long)load->failovers);
    if (load->row[BENCH_PIPELINE_OTHER].count) {
        const double p50 = figure_of(report, load, BENCH_PIPELINE_OTHER).p50;
        printf("  other than inference: p50 %.0f ns, target %d ns: %s\n", p50, BENCH_PIPELINE_TARGET_NS,
               p50 <= BENCH_PIPELINE_TARGET_NS ? "met" : "MISSED");
    }
}

static void print_overhead(const struct bench_pipeline_report *r)
{
    const struct bench_pipeline_overhead *o = &r->overhead;
    const double backend = overhead_ns(r, &o->backend, 0.5), csim = overhead_ns(r, &o->csim, 0.5);
    if (o->steps)
        printf("\n%s against the C simulation called directly, %llu steps in turn, same answers: p50 %.0f - "
               "%.0f = "
               "%.0f ns\n",
               r->backend, (unsigned long long)o->steps, backend, csim, backend - csim);
    else
        printf("\n%s against the C simulation: no figure, its card does not serve\n", r->backend);
}

int bench_pipeline_print(const struct bench_pipeline_report *r, int as_json)
{
    if (as_json)
        return print_json(r);
    printf(
        "bench pipeline, measured: backend %s%s%s, kernel build %s, model %s\n"
        "%s; poll loop on CPU %d, feeder on %d, audit writer on %d%s\n"
        "%u generated symbols, one message per frame; kill line at %.0f us; the counter is read %.1f ns "
        "apart, "
        "a stage's\nfloor is what it shows when empty, at the same place of the same ticks; nothing is taken "
        "off\n",
        r->backend, r->details[0] ? ", " : "", r->details, r->build, r->model, r->machine, r->cpus.poll,
        r->cpus.feeder, r->cpus.audit,
        r->cpus.poll == r->cpus.feeder    ? ": ALL ON ONE, the figures say nothing"
        : r->cpus.feeder == r->cpus.audit ? ": these two share one, which shows in wait"
                                          : "",
        r->n_symbol, r->threshold_us, r->time_stamp_ns);
    for (uint32_t i = 0; i < r->n_load; i++)
        print_load(r, &r->load[i]);
    if (r->overhead.is_measured)
        print_overhead(r);
    return fflush(stdout) != 0 ? cmd_error("bench pipeline: cannot write the result: %m") : 0;
}
