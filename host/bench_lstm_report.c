#include "bench_lstm_report.h"

#include <jansson.h>
#include <stdio.h>

#include "cmd.h"

static double better(double a, double b)
{
    return a < b ? a : b;
}

static double quotient(double a, double b)
{
    return b > 0 ? a / b : 0;
}

struct bench_lstm_quantiles bench_lstm_ratios(const struct bench_lstm_figures *figures,
                                              const struct bench_lstm_quantiles *ours)
{
    return (struct bench_lstm_quantiles){quotient(better(figures->plain.p50, figures->eigen.p50), ours->p50),
                                         quotient(better(figures->plain.p99, figures->eigen.p99), ours->p99)};
}

static json_t *quantiles_json(struct bench_lstm_quantiles q)
{
    return json_pack("{s:f, s:f}", "p50", q.p50, "p99", q.p99);
}

static json_t *ratios_json(const struct bench_lstm_figures *f, const struct bench_lstm_quantiles *critical,
                           const struct bench_lstm_quantiles *total)
{
    return json_pack("{s:o, s:o}", "critical", quantiles_json(bench_lstm_ratios(f, critical)), "total",
                     quantiles_json(bench_lstm_ratios(f, total)));
}

static json_t *agreement_json(const struct bench_lstm_agreement *agreement)
{
    return json_pack("{s:f, s:I}", "largest_error", agreement->error, "flips", (json_int_t)agreement->flips);
}

static json_t *check_json(const struct bench_lstm_row *row)
{
    json_t *check =
        json_pack("{s:I, s:f, s:o, s:o, s:o, s:o}", "steps", (json_int_t)row->n_checked, "logit_spread",
                  row->spread, "killline", agreement_json(&row->fp16), "int8", agreement_json(&row->int8),
                  "plain_c", agreement_json(&row->plain), "eigen", agreement_json(&row->eigen));
    if (check && row->has_onnx)
        json_object_set_new(check, "onnxruntime", agreement_json(&row->onnx));
    return check;
}

static json_t *idle_json(const struct bench_lstm_figures *f)
{
    json_t *rows = json_array();
    const char *peer = bench_lstm_plain_is_better(f) ? "plain_c" : "eigen";
    for (int k = 0; rows && k < BENCH_LSTM_N_IDLE; k++)
        json_array_append_new(rows, json_pack("{s:s, s:I, s:b, s:I, s:o, s:o, s:s, s:o}", "between",
                                              bench_lstm_idles[k].name, "gap_ns",
                                              (json_int_t)bench_lstm_idles[k].gap_ns, "asleep",
                                              bench_lstm_idles[k].asleep, "read_bytes",
                                              (json_int_t)bench_lstm_idles[k].read_bytes, "critical_ns",
                                              quantiles_json(f->idle[k].critical), "critical_warmed_ns",
                                              quantiles_json(f->idle[k].warmed), "peer", peer, "peer_ns",
                                              quantiles_json(f->idle[k].peer)));
    return rows;
}

static json_t *targets_json(const struct bench_lstm_row *row)
{
    const struct bench_lstm_quantiles critical = bench_lstm_ratios(&row->figures, &row->figures.critical),
                                      total = bench_lstm_ratios(&row->figures, &row->figures.total);
    return json_pack("{s:{s:f, s:b, s:b}, s:{s:f, s:b, s:b}}", "critical", "ratio_p50",
                     row->shape->target_critical, "met", critical.p50 >= row->shape->target_critical,
                     "p99_no_worse", critical.p99 >= critical.p50, "total", "ratio_p50",
                     row->shape->target_total, "met", total.p50 >= row->shape->target_total, "p99_no_worse",
                     total.p99 >= total.p50);
}

static json_t *row_json(const struct bench_lstm_row *row)
{
    const struct bench_lstm_figures *f = &row->figures;
    const struct bench_lstm_shape *shape = row->shape;
    json_t *json = json_pack(
        "{s:{s:i, s:i, s:i, s:i}, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "shape", "inputs", (int)shape->n_in,
        "layers", (int)shape->n_layer, "hidden", (int)shape->n_hidden, "classes", BENCH_LSTM_N_CLASS,
        "critical_ns", quantiles_json(f->critical), "total_ns", quantiles_json(f->total), "plain_c_ns",
        quantiles_json(f->plain), "eigen_ns", quantiles_json(f->eigen), "ratios",
        ratios_json(f, &f->critical, &f->total), "targets", targets_json(row), "check", check_json(row));
    json_t *more = json_pack(
        "{s:{s:o, s:o, s:o}, s:{s:f, s:f, s:f, s:f}, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "int8",
        "critical_ns", quantiles_json(f->int8_critical), "total_ns", quantiles_json(f->int8_total), "ratios",
        ratios_json(f, &f->int8_critical, &f->int8_total), "loop_ns", "total", f->loop_total, "int8_total",
        f->loop_int8_total, "plain_c", f->loop_plain, "eigen", f->loop_eigen, "batch8_ns_per_step",
        quantiles_json(f->batch), "warm_ns", quantiles_json(f->warm), "idle", idle_json(f), "steps",
        (json_int_t)f->n_step, "idle_steps", (json_int_t)f->n_idle, "retaken_blocks",
        (json_int_t)f->n_retaken, "preempted_blocks", (json_int_t)f->n_preempted);
    int failed = !json || !more || json_object_update(json, more) != 0;
    json_decref(more);
    if (!failed && row->has_threaded)
        failed |= json_object_set_new(json, "second_thread_critical_ns", quantiles_json(f->threaded));
    if (!failed && row->has_onnx)
        failed |= json_object_set_new(json, "onnxruntime_ns", quantiles_json(f->onnx));
    if (failed) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static json_t *names_json(const char *const *names, uint32_t n)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(array, json_string(names[i]));
    return array;
}

static int print_json(const struct bench_lstm_report *report)
{
    const struct bench_lstm_timer *timer = report->timer;
    json_t *models = json_object();
    int failed = !models;
    for (uint32_t i = 0; !failed && i < report->n_row; i++)
        failed |= json_object_set_new(models, report->row[i].shape->name, row_json(&report->row[i]));
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:i, s:I, s:f, s:f, s:o}", "label", "measured", "machine",
                  report->machine, "variant", report->variant, "compiler", bench_lstm_plain_compiler,
                  "same_bits", names_json(report->same, report->n_same), "absent_variants",
                  names_json(report->absent, report->n_absent), "cpu", report->cpu, "repetitions",
                  (json_int_t)report->n_round, "time_stamp_ns", bench_lstm_ns(timer, timer->cost_cycles),
                  "time_stamp_step_ns", bench_lstm_ns(timer, (double)timer->step_cycles), "models", models);
    failed |= !root || json_dumpf(root, stdout, JSON_REAL_PRECISION(9)) != 0;
    json_decref(root);
    putchar('\n');
    return fflush(stdout) != 0 || failed ? cmd_error("bench lstm: cannot write the result: %m") : 0;
}

static void print_pair(struct bench_lstm_quantiles q)
{
    printf(" %9.0f %8.0f", q.p50, q.p99);
}

static void print_ratio(struct bench_lstm_quantiles ratio, double target)
{
    printf("  %6.2f %5.2f  %.1f %s", ratio.p50, ratio.p99, target, ratio.p50 >= target ? "met   " : "MISSED");
}

static void print_main(const struct bench_lstm_report *report)
{
    printf("                   critical path         total work            plain C              Eigen"
           "   times faster than the better of the two\n"
           "ns per step        p50      p99       p50      p99       p50      p99       p50      p99"
           "   critical, target      total, target\n");
    for (uint32_t i = 0; i < report->n_row; i++) {
        const struct bench_lstm_row *row = &report->row[i];
        const struct bench_lstm_figures *f = &row->figures;
        char shape[16];
        snprintf(shape, sizeof(shape), "%u, %ux%u", row->shape->n_in, row->shape->n_layer,
                 row->shape->n_hidden);
        printf("%-2s %-9s", row->shape->name, shape);
        print_pair(f->critical);
        print_pair(f->total);
        print_pair(f->plain);
        print_pair(f->eigen);
        print_ratio(bench_lstm_ratios(f, &f->critical), row->shape->target_critical);
        print_ratio(bench_lstm_ratios(f, &f->total), row->shape->target_total);
        putchar('\n');
    }
}

static void print_preempted(const struct bench_lstm_report *report)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < report->n_row; i++)
        n += report->row[i].figures.n_preempted;
    if (n)
        printf("another process had this CPU in %u blocks, at every try: p99 may not be ours\n", n);
}

/* A column that not every run has. */
static void print_if(int there, double ns)
{
    if (there)
        printf(" %10.0f", ns);
    else
        printf(" %10s", "-");
}

static void print_more(const struct bench_lstm_report *report)
{
    printf("\n                    INT8 weights      batch 2nd thread       ONNX   no stamp inside\n"
           "ns per step, p50 critical    total       of 8   critical    Runtime     total      INT8   plain C"
           "     Eigen\n");
    for (uint32_t i = 0; i < report->n_row; i++) {
        const struct bench_lstm_row *row = &report->row[i];
        const struct bench_lstm_figures *f = &row->figures;
        printf("%-16s %8.0f %8.0f %10.0f", row->shape->name, f->int8_critical.p50, f->int8_total.p50,
               f->batch.p50);
        print_if(row->has_threaded, f->threaded.p50);
        print_if(row->has_onnx, f->onnx.p50);
        printf(" %9.0f %9.0f %9.0f %9.0f\n", f->loop_total, f->loop_int8_total, f->loop_plain, f->loop_eigen);
    }
}

static void print_idle(const struct bench_lstm_report *report)
{
    printf("\nbetween two ticks: p50 of the critical path, the same kept warm, better peer\n%-16s", "");
    for (uint32_t i = 0; i < report->n_row; i++)
        printf("  %24s", report->row[i].shape->name);
    putchar('\n');
    for (int k = 0; k < BENCH_LSTM_N_IDLE; k++) {
        printf("%-16s", bench_lstm_idles[k].name);
        for (uint32_t i = 0; i < report->n_row; i++) {
            const struct bench_lstm_figures *f = &report->row[i].figures;
            printf("  %7.0f %7.0f %8.0f", f->idle[k].critical.p50, f->idle[k].warmed.p50,
                   f->idle[k].peer.p50);
        }
        putchar('\n');
    }
    printf("%-16s", "a warm call");
    for (uint32_t i = 0; i < report->n_row; i++)
        printf("  %7s %7.0f %8s", "", report->row[i].figures.warm.p50, "");
    putchar('\n');
}

static void print_checks(const struct bench_lstm_report *report)
{
    printf("\nchecked before: same bits as");
    for (uint32_t i = 0; i < report->n_same; i++)
        printf("%s %s", i ? "," : "", report->same[i]);
    for (uint32_t i = 0; i < report->n_absent; i++)
        printf("%s %s", i ? "," : "; not on this machine:", report->absent[i]);
    printf("\nagainst the double reference, largest error of a logit and other classes:\n");
    for (uint32_t i = 0; i < report->n_row; i++) {
        const struct bench_lstm_row *row = &report->row[i];
        printf("%-2s %u steps: plain C %.0e, Eigen %.0e, ", row->shape->name, row->n_checked,
               row->plain.error, row->eigen.error);
        if (row->has_onnx)
            printf("ONNX Runtime %.0e, ", row->onnx.error);
        printf("killline %.0e and %u, INT8 %.0e and %u, of a spread of %.1e\n", row->fp16.error,
               row->fp16.flips, row->int8.error, row->int8.flips, row->spread);
    }
}

int bench_lstm_print(const struct bench_lstm_report *report, int as_json)
{
    if (as_json)
        return print_json(report);
    const struct bench_lstm_timer *timer = report->timer;
    printf("bench lstm, measured: %s, %s, CPU %d, %u rounds, peers by %s\n"
           "the cost of a time stamp, %.1f ns, is taken off everybody's figures; the counter steps by %.1f "
           "ns\n\n",
           report->variant, report->machine, report->cpu, report->n_round, bench_lstm_plain_compiler,
           bench_lstm_ns(timer, timer->cost_cycles), bench_lstm_ns(timer, (double)timer->step_cycles));
    print_main(report);
    print_preempted(report);
    print_more(report);
    print_idle(report);
    print_checks(report);
    return fflush(stdout) != 0 ? cmd_error("bench lstm: cannot write the result: %m") : 0;
}
