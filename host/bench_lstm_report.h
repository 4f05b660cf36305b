/* What killline bench lstm says of its figures: a table for people, one JSON object for programs. */
#ifndef BENCH_LSTM_REPORT_H
#define BENCH_LSTM_REPORT_H

#include "bench_lstm_check.h"
#include "bench_lstm_measure.h"

enum { BENCH_LSTM_N_REFERENCE = 8, BENCH_LSTM_MACHINE_CHARS = 128 };

/* One model's. */
struct bench_lstm_row {
    const struct bench_lstm_shape *shape;
    struct bench_lstm_figures figures;
    struct bench_lstm_agreement plain, eigen, onnx, fp16, int8;
    uint32_t n_checked; /* steps */
    double spread;      /* of the logits: bench_lstm_truth */
    int has_onnx, has_threaded;
};

struct bench_lstm_report {
    char machine[BENCH_LSTM_MACHINE_CHARS];
    const char *variant;
    /* Names of what gave the same bits as the variant, and of the variants that this machine has not. */
    const char *same[BENCH_LSTM_N_REFERENCE], *absent[BENCH_LSTM_N_REFERENCE];
    uint32_t n_same, n_absent;
    uint32_t n_round;
    int cpu; /* pinned to */
    const struct bench_lstm_timer *timer;
    struct bench_lstm_row row[BENCH_LSTM_N_MODEL];
    uint32_t n_row;
};

/* How many times faster than the better of plain C and Eigen, at the same quantile. */
struct bench_lstm_quantiles bench_lstm_ratios(const struct bench_lstm_figures *figures,
                                              const struct bench_lstm_quantiles *ours);

/* On stdout. 0, or 1 with a message: it could not be written. */
int bench_lstm_print(const struct bench_lstm_report *report, int as_json);

#endif
