#include "bench_lstm_measure.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "bench_lstm_check.h"
#include "cmd.h"

enum {
    N_TRY = 4,      /* of a block in which another process had the CPU; the last one counts as it is */
    N_WARM_UP = 12, /* steps of a block before its first sample: caches, branch predictors, clock frequency */
    N_LOOP = 16,    /* steps of a block without stamps */
    N_LOOP_BLOCK = 2,
    MAC_PER_ROUND = 16 << 20,
    N_STEP_MIN = 16,
    N_STEP_MAX = 250,
    N_BATCH_BLOCK = 16,
    N_THREAD_STEP = 32,        /* a round */
    N_THREAD_GAP = 4,          /* prepares' time for the second thread, */
    THREAD_GAP_MIN_NS = 10000, /* and this at least */
    N_IDLE_BLOCK = 8,
    N_IDLE_WARM_UP = 2,
    IDLE_ROUND_DIVISOR = 4, /* rounds with gaps of milliseconds are long */
    WARM_EVERY_NS = 10000,
    READ_BYTES_MAX = 4 << 20,
    LINE_BYTES = 64,
};

const struct bench_lstm_idle bench_lstm_idles[BENCH_LSTM_N_IDLE] = {
    {"no gap", 0, 0, 0},
    {"5 us, spinning", 5000, 0, 0},
    {"50 us, spinning", 50000, 0, 0},
    {"1 ms, spinning", 1000000, 0, 0},
    {"1 ms, asleep", 1000000, 1, 0},
    {"64 KiB read", 0, 0, 64 << 10},
    {"4 MiB read", 0, 0, 4 << 20},
};

enum series {
    CRITICAL,
    TOTAL,
    TOTAL_LOOP,
    INT8_CRITICAL,
    INT8_TOTAL,
    INT8_LOOP,
    PLAIN,
    PLAIN_LOOP,
    EIGEN,
    EIGEN_LOOP,
    ONNX,
    BATCH,
    WARM,
    N_SERIES
};

struct bench {
    const struct bench_lstm_set *set;
    const struct bench_lstm_timer *timer;
    uint32_t n_round, n_step;
    uint32_t next; /* input */
    uint32_t n_retaken, n_preempted;
    struct bench_lstm_series series[N_SERIES];
    struct bench_lstm_series idle[BENCH_LSTM_N_IDLE][3]; /* bare, warmed, peer */
    uint8_t *evictor;                                    /* READ_BYTES_MAX */
    struct kl_request step[N_LOOP], batch[BENCH_LSTM_N_BATCH];
    float x[N_LOOP][KL_N_IN_MAX];
};

static struct kl_request request_for(uint32_t op, uint32_t stream)
{
    return (struct kl_request){.abi_version = KL_ABI_VERSION, .op = (uint16_t)op, .stream = stream};
}

static void next_request(struct bench *bench, struct kl_request *request)
{
    memcpy(request->x, bench_lstm_bits(bench->set->inputs, bench->next++),
           bench->set->inputs->n_in * sizeof(request->x[0]));
}

static void next_x(struct bench *bench, float *x)
{
    memcpy(x, bench_lstm_x(bench->set->inputs, bench->next++), bench->set->inputs->n_in * sizeof(*x));
}

/* Every answer of a timed request. A model that was checked before does not fail now. */
static void answered(const struct kl_result *result)
{
    assert(result->status == KL_OK);
    (void)result;
}

/* The prepare that the step's flag has asked for: a poll with nothing outstanding carries it out. */
static void prepare(struct accel *accel)
{
    struct kl_result none;
    const int outstanding = accel->ops->poll(accel, &none);
    assert(outstanding == -1);
    (void)outstanding;
}

/* The cpu backend, step by step: stamps before the step, between step and prepare, and after. */
static void accel_block(struct bench *bench, uint16_t slot, enum series critical, enum series total)
{
    struct accel *accel = bench->set->accel;
    struct kl_request *step = &bench->step[0];
    struct kl_result result;
    step->slot = slot;
    for (uint32_t i = 0; i < N_WARM_UP + bench->n_step; i++) {
        next_request(bench, step);
        uint64_t start = bench_lstm_start();
        bench_lstm_ask(accel, step, &result);
        uint64_t middle = bench_lstm_stop();
        answered(&result);
        prepare(accel);
        uint64_t stop = bench_lstm_stop();
        if (i >= N_WARM_UP) {
            bench_lstm_series_add(&bench->series[critical], middle - start);
            bench_lstm_series_add(&bench->series[total], stop - start);
        }
    }
}

static void accel_loop(struct bench *bench, uint16_t slot, enum series series)
{
    struct accel *accel = bench->set->accel;
    struct kl_result result;
    for (int block = 0; block < 1 + N_LOOP_BLOCK; block++) {
        for (int i = 0; i < N_LOOP; i++) {
            bench->step[i].slot = slot;
            next_request(bench, &bench->step[i]);
        }
        uint64_t start = bench_lstm_start();
        for (int i = 0; i < N_LOOP; i++) {
            bench_lstm_ask(accel, &bench->step[i], &result);
            prepare(accel);
        }
        uint64_t stop = bench_lstm_stop();
        answered(&result);
        if (block)
            bench_lstm_series_add(&bench->series[series], stop - start);
    }
}

static void peer_block(struct bench *bench, struct bench_lstm_peer *peer, enum series series)
{
    float logits[KL_N_CLASS_MAX];
    for (uint32_t i = 0; i < N_WARM_UP + bench->n_step; i++) {
        next_x(bench, bench->x[0]);
        uint64_t start = bench_lstm_start();
        peer->ops->step(peer, bench->x[0], logits);
        uint64_t stop = bench_lstm_stop();
        if (i >= N_WARM_UP)
            bench_lstm_series_add(&bench->series[series], stop - start);
    }
}

static void peer_loop(struct bench *bench, struct bench_lstm_peer *peer, enum series series)
{
    float logits[KL_N_CLASS_MAX];
    for (int block = 0; block < 1 + N_LOOP_BLOCK; block++) {
        for (int i = 0; i < N_LOOP; i++)
            next_x(bench, bench->x[i]);
        uint64_t start = bench_lstm_start();
        for (int i = 0; i < N_LOOP; i++)
            peer->ops->step(peer, bench->x[i], logits);
        uint64_t stop = bench_lstm_stop();
        if (block)
            bench_lstm_series_add(&bench->series[series], stop - start);
    }
}

static void batch_block(struct bench *bench)
{
    struct kl_result results[BENCH_LSTM_N_BATCH];
    for (int i = 0; i < 2 + N_BATCH_BLOCK; i++) {
        for (int k = 0; k < BENCH_LSTM_N_BATCH; k++)
            next_request(bench, &bench->batch[k]);
        uint64_t start = bench_lstm_start();
        accel_cpu_step_batch(bench->set->accel, bench->batch, results, BENCH_LSTM_N_BATCH);
        uint64_t stop = bench_lstm_stop();
        answered(&results[BENCH_LSTM_N_BATCH - 1]);
        if (i >= 2)
            bench_lstm_series_add(&bench->series[BATCH], stop - start);
    }
}

static void spin_until(uint64_t cycles)
{
    while (clock_tsc() < cycles)
        _mm_pause();
}

enum { N_BLOCK = 10 };

/* Short ones: a block is over before the kernel has another process's turn, as a rule. */
static void block(struct bench *bench, uint32_t which)
{
    const struct bench_lstm_set *set = bench->set;
    switch (which) {
    case 0:
        accel_block(bench, BENCH_LSTM_SLOT_FP16, CRITICAL, TOTAL);
        break;
    case 1:
        accel_loop(bench, BENCH_LSTM_SLOT_FP16, TOTAL_LOOP);
        break;
    case 2:
        peer_block(bench, set->plain, PLAIN);
        break;
    case 3:
        peer_loop(bench, set->plain, PLAIN_LOOP);
        break;
    case 4:
        peer_block(bench, set->eigen, EIGEN);
        break;
    case 5:
        peer_loop(bench, set->eigen, EIGEN_LOOP);
        break;
    case 6:
        accel_block(bench, BENCH_LSTM_SLOT_INT8, INT8_CRITICAL, INT8_TOTAL);
        break;
    case 7:
        accel_loop(bench, BENCH_LSTM_SLOT_INT8, INT8_LOOP);
        break;
    case 8:
        batch_block(bench);
        break;
    default:
        if (set->onnx)
            peer_block(bench, set->onnx, ONNX);
        break;
    }
}

/* How often this thread lost its CPU to another. */
static long n_preemption(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

/* One round: everyone's block, in an order that moves on by one every round. */
static void measure_round(struct bench *bench, uint32_t round)
{
    for (uint32_t i = 0; i < N_BLOCK; i++)
        for (int try = 0; try < N_TRY; try++) {
            uint32_t n[N_SERIES];
            const long before = n_preemption();
            for (int s = 0; s < N_SERIES; s++)
                n[s] = bench->series[s].n;
            block(bench, (i + round) % N_BLOCK);
            if (n_preemption() == before)
                break;
            if (try == N_TRY - 1) {
                bench->n_preempted++;
                break;
            }
            bench->n_retaken++;
            for (int k = 0; k < N_SERIES; k++)
                bench->series[k].n = n[k];
        }
}

static void read_lines(const uint8_t *bytes, uint32_t n)
{
    uint8_t sum = 0;
    for (uint32_t at = 0; at < n; at += LINE_BYTES)
        sum = (uint8_t)(sum + bytes[at]);
    __asm__ volatile("" : : "r"(sum));
}

/* The time between two ticks. warm: with the backend's warm call every 10 us of a spun gap, and once at the
 * end of what leaves no moment for it before: a sleep, a read. */
static void idle(struct bench *bench, const struct bench_lstm_idle *what, int warm)
{
    struct accel *accel = bench->set->accel;
    uint64_t now = clock_tsc(), end = now + clock_ns_to_cycles(&bench->timer->calibration, what->gap_ns);
    if (what->asleep) {
        const struct timespec pause = {.tv_nsec = (long)what->gap_ns};
        nanosleep(&pause, NULL);
    } else if (warm && !what->read_bytes) {
        const uint64_t every = clock_ns_to_cycles(&bench->timer->calibration, WARM_EVERY_NS);
        while ((now = clock_tsc()) < end) {
            accel->ops->warm(accel, BENCH_LSTM_SLOT_FP16, 0);
            spin_until(now + every < end ? now + every : end);
        }
        return;
    } else {
        spin_until(end);
    }
    if (what->read_bytes)
        read_lines(bench->evictor, what->read_bytes);
    if (warm && (what->asleep || what->read_bytes)) {
        uint64_t start = bench_lstm_start();
        accel->ops->warm(accel, BENCH_LSTM_SLOT_FP16, 0);
        bench_lstm_series_add(&bench->series[WARM], bench_lstm_stop() - start);
    }
}

static void idle_accel_block(struct bench *bench, const struct bench_lstm_idle *what, int warm,
                             struct bench_lstm_series *series)
{
    struct accel *accel = bench->set->accel;
    struct kl_request *step = &bench->step[0];
    struct kl_result result;
    step->slot = BENCH_LSTM_SLOT_FP16;
    for (int i = 0; i < N_IDLE_WARM_UP + N_IDLE_BLOCK; i++) {
        idle(bench, what, warm);
        next_request(bench, step);
        uint64_t start = bench_lstm_start();
        bench_lstm_ask(accel, step, &result);
        uint64_t stop = bench_lstm_stop();
        answered(&result);
        prepare(accel);
        if (i >= N_IDLE_WARM_UP)
            bench_lstm_series_add(series, stop - start);
    }
}

static void idle_peer_block(struct bench *bench, const struct bench_lstm_idle *what,
                            struct bench_lstm_peer *peer, struct bench_lstm_series *series)
{
    float logits[KL_N_CLASS_MAX];
    for (int i = 0; i < N_IDLE_WARM_UP + N_IDLE_BLOCK; i++) {
        idle(bench, what, 0);
        next_x(bench, bench->x[0]);
        uint64_t start = bench_lstm_start();
        peer->ops->step(peer, bench->x[0], logits);
        uint64_t stop = bench_lstm_stop();
        if (i >= N_IDLE_WARM_UP)
            bench_lstm_series_add(series, stop - start);
    }
}

static void measure_idle(struct bench *bench, struct bench_lstm_peer *peer, uint32_t round)
{
    for (int k = 0; k < BENCH_LSTM_N_IDLE; k++)
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t who = (i + round) % 3;
            if (who < 2)
                idle_accel_block(bench, &bench_lstm_idles[k], who == 1, &bench->idle[k][who]);
            else
                idle_peer_block(bench, &bench_lstm_idles[k], peer, &bench->idle[k][who]);
        }
}

static uint32_t idle_rounds(uint32_t n_round)
{
    return (n_round + IDLE_ROUND_DIVISOR - 1) / IDLE_ROUND_DIVISOR;
}

static int init(struct bench *bench)
{
    int failed = 0;
    const uint32_t n_idle = idle_rounds(bench->n_round) * (N_IDLE_BLOCK + N_IDLE_WARM_UP);
    for (int s = 0; s < N_SERIES; s++) {
        uint32_t cap = bench->n_round * (bench->n_step + N_LOOP_BLOCK + N_BATCH_BLOCK);
        failed |= bench_lstm_series_init(&bench->series[s], s == WARM ? BENCH_LSTM_N_IDLE * n_idle : cap);
    }
    for (int k = 0; k < BENCH_LSTM_N_IDLE; k++)
        for (int i = 0; i < 3; i++)
            failed |= bench_lstm_series_init(&bench->idle[k][i], n_idle);
    bench->evictor = malloc(READ_BYTES_MAX);
    if (failed || !bench->evictor)
        return -1;
    memset(bench->evictor, 1, READ_BYTES_MAX);
    for (int i = 0; i < N_LOOP; i++) {
        bench->step[i] = request_for(KL_OP_STEP, 0);
        bench->step[i].flags = KL_REQUEST_PREPARE;
    }
    for (uint32_t i = 0; i < BENCH_LSTM_N_BATCH; i++)
        bench->batch[i] = request_for(KL_OP_STEP, 1 + i);
    return 0;
}

static void summarise(struct bench *bench, struct bench_lstm_figures *out)
{
    const struct {
        struct bench_lstm_quantiles *to;
        enum series series;
        uint32_t n_stamp, of;
    } rows[] = {{&out->critical, CRITICAL, 1, 1},
                {&out->total, TOTAL, 2, 1},
                {&out->plain, PLAIN, 1, 1},
                {&out->eigen, EIGEN, 1, 1},
                {&out->onnx, ONNX, 1, 1},
                {&out->int8_critical, INT8_CRITICAL, 1, 1},
                {&out->int8_total, INT8_TOTAL, 2, 1},
                {&out->batch, BATCH, 1, BENCH_LSTM_N_BATCH},
                {&out->warm, WARM, 1, 1}};
    const struct {
        double *to;
        enum series series;
    } loops[] = {{&out->loop_total, TOTAL_LOOP},
                 {&out->loop_int8_total, INT8_LOOP},
                 {&out->loop_plain, PLAIN_LOOP},
                 {&out->loop_eigen, EIGEN_LOOP}};
    out->n_step = bench->series[CRITICAL].n;
    out->n_idle = bench->idle[0][0].n;
    out->n_retaken = bench->n_retaken;
    out->n_preempted = bench->n_preempted;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        *rows[i].to =
            bench_lstm_summarise(&bench->series[rows[i].series], bench->timer, rows[i].n_stamp, rows[i].of);
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++)
        *loops[i].to = bench_lstm_summarise(&bench->series[loops[i].series], bench->timer, 1, N_LOOP).p50;
    for (int k = 0; k < BENCH_LSTM_N_IDLE; k++) {
        out->idle[k].critical = bench_lstm_summarise(&bench->idle[k][0], bench->timer, 1, 1);
        out->idle[k].warmed = bench_lstm_summarise(&bench->idle[k][1], bench->timer, 1, 1);
        out->idle[k].peer = bench_lstm_summarise(&bench->idle[k][2], bench->timer, 1, 1);
    }
}

/* Multiplications of one step. */
static uint32_t mac_count(const struct bench_lstm_shape *shape)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < shape->n_layer; l++)
        n += KL_N_GATE * shape->n_hidden * ((l ? shape->n_hidden : shape->n_in) + shape->n_hidden);
    return n;
}

static uint32_t steps_per_round(const struct bench_lstm_shape *shape)
{
    uint32_t n = MAC_PER_ROUND / mac_count(shape);
    return n < N_STEP_MIN ? N_STEP_MIN : n > N_STEP_MAX ? N_STEP_MAX : n;
}

int bench_lstm_measure(const struct bench_lstm_set *set, const struct bench_lstm_timer *timer,
                       uint32_t n_round, struct bench_lstm_figures *out)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    if (!bench)
        return -1;
    bench->set = set;
    bench->timer = timer;
    bench->n_round = n_round;
    bench->n_step = steps_per_round(set->shape);
    int status = init(bench);
    if (status == 0) {
        const uint32_t n_idle = idle_rounds(n_round);
        measure_round(bench, 0); /* warms up */
        for (int s = 0; s < N_SERIES; s++)
            bench->series[s].n = 0;
        bench->n_retaken = bench->n_preempted = 0;
        for (uint32_t round = 0; round < n_round; round++) {
            measure_round(bench, round);
            cmd_progress(set->shape->name, "rounds", round + 1, n_round + n_idle);
        }
        summarise(bench, out);
        for (uint32_t round = 0; round < n_idle; round++) {
            measure_idle(bench, bench_lstm_plain_is_better(out) ? set->plain : set->eigen, round);
            cmd_progress(set->shape->name, "rounds", n_round + round + 1, n_round + n_idle);
        }
        summarise(bench, out);
        cmd_progress_done();
    }
    for (int s = 0; s < N_SERIES; s++)
        bench_lstm_series_free(&bench->series[s]);
    for (int k = 0; k < BENCH_LSTM_N_IDLE; k++)
        for (int i = 0; i < 3; i++)
            bench_lstm_series_free(&bench->idle[k][i]);
    free(bench->evictor);
    free(bench);
    return status;
}

int bench_lstm_measure_threaded(const struct bench_lstm_inputs *inputs, struct accel *threaded,
                                const struct bench_lstm_timer *timer, uint32_t n_round,
                                struct bench_lstm_figures *figures)
{
    struct bench_lstm_series series;
    struct kl_request step = request_for(KL_OP_STEP, 0);
    struct kl_result result;
    const double wanted_ns = N_THREAD_GAP * (figures->total.p50 - figures->critical.p50);
    const uint64_t gap = clock_ns_to_cycles(&timer->calibration,
                                            wanted_ns > THREAD_GAP_MIN_NS ? wanted_ns : THREAD_GAP_MIN_NS);
    const uint32_t n = n_round * N_THREAD_STEP;
    if (bench_lstm_series_init(&series, n) != 0)
        return -1;
    step.slot = BENCH_LSTM_SLOT_FP16;
    step.flags = KL_REQUEST_PREPARE;
    for (uint32_t i = 0; i < N_WARM_UP + n; i++) {
        memcpy(step.x, bench_lstm_bits(inputs, i), inputs->n_in * sizeof(step.x[0]));
        uint64_t start = bench_lstm_start();
        bench_lstm_ask(threaded, &step, &result);
        uint64_t stop = bench_lstm_stop();
        answered(&result);
        if (i >= N_WARM_UP)
            bench_lstm_series_add(&series, stop - start);
        spin_until(stop + gap);
    }
    figures->threaded = bench_lstm_summarise(&series, timer, 1, 1);
    bench_lstm_series_free(&series);
    return 0;
}
