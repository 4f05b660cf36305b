/* The measuring of killline bench lstm: one model, every implementation in turn, on one pinned thread. */
#ifndef BENCH_LSTM_MEASURE_H
#define BENCH_LSTM_MEASURE_H

#include <stdint.h>

#include "accel.h"
#include "bench_lstm_model.h"
#include "bench_lstm_peer.h"
#include "bench_lstm_stats.h"

enum { BENCH_LSTM_SLOT_FP16 = 0, BENCH_LSTM_SLOT_INT8 = 1, BENCH_LSTM_N_BATCH = 8, BENCH_LSTM_N_IDLE = 7 };

/* What is measured; built and checked by the caller. */
struct bench_lstm_set {
    const struct bench_lstm_shape *shape;
    const struct bench_lstm_inputs *inputs;
    struct accel *accel; /* the FP16 and the INT8 image in their slots */
    struct bench_lstm_peer *plain, *eigen;
    struct bench_lstm_peer *onnx; /* NULL: not asked for */
};

/* What happens between two ticks. */
struct bench_lstm_idle {
    const char *name;
    uint32_t gap_ns;
    int asleep;          /* the gap passes in nanosleep, not spinning */
    uint32_t read_bytes; /* read between the ticks, so that the caches hold something else */
};
extern const struct bench_lstm_idle bench_lstm_idles[BENCH_LSTM_N_IDLE];

/* ns. */
struct bench_lstm_figures {
    struct bench_lstm_quantiles critical, total, plain, eigen, onnx;
    struct bench_lstm_quantiles int8_critical, int8_total;
    struct bench_lstm_quantiles batch;    /* per step of a batch of BENCH_LSTM_N_BATCH */
    struct bench_lstm_quantiles threaded; /* critical path, prepared by a second thread */
    struct bench_lstm_quantiles warm;     /* of one warm call */
    double loop_total, loop_int8_total, loop_plain, loop_eigen; /* no stamp inside, median of blocks of 16 */
    struct {
        struct bench_lstm_quantiles critical, warmed, peer;
    } idle[BENCH_LSTM_N_IDLE];
    uint32_t n_step, n_idle; /* samples of a quantile: of the upper ones, of idle */
    /* Blocks of the upper ones in which another process had the CPU: taken again, and those where it did so
     * at every try and which count as they are. */
    uint32_t n_retaken, n_preempted;
};

/* n_round rounds; all of *out but threaded. Progress on stderr. 0, or -1: out of memory. */
int bench_lstm_measure(const struct bench_lstm_set *set, const struct bench_lstm_timer *timer,
                       uint32_t n_round, struct bench_lstm_figures *out);

/* figures->threaded, after bench_lstm_measure. threaded: prepare_thread, the FP16 image in its slot; apart
 * from the others because its thread spins, which they would feel. 0, or -1: out of memory. */
int bench_lstm_measure_threaded(const struct bench_lstm_inputs *inputs, struct accel *threaded,
                                const struct bench_lstm_timer *timer, uint32_t n_round,
                                struct bench_lstm_figures *figures);

/* The better one of the peers at the median, the one of the idle rows. */
static inline int bench_lstm_plain_is_better(const struct bench_lstm_figures *figures)
{
    return figures->plain.p50 <= figures->eigen.p50;
}

#endif
