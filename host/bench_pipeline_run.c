#include "bench_pipeline_run.h"

#include <assert.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../net/be.h"
#include "../net/port.h"
#include "appliance.h"
#include "cmd.h"

enum {
    FEED_IP = 0xefe00001, /* 239.224.0.1 */
    FEED_PORT = 26400,
    PAYLOAD_MAX = MOLD_HEADER_BYTES + 2 + ITCH_MESSAGE_BYTES_MAX,
    PRELOAD_AHEAD = 8,
    PRELOAD_AHEAD_SHARED = 1000,
    LEAD_NS = 200000, /* from the end of the preload to the first due time */
};

/* One tick, kept until the load is over: histograms would cost the loop more of its caches. */
struct sample {
    uint64_t end;      /* TSC, behind the last mark */
    uint32_t frame_no; /* within the load */
    uint16_t reached;
    uint8_t verdict;
    uint32_t cycles[TRACE_N_STAGE]; /* saturated */
    uint16_t floor_cycles[TRACE_N_STAGE];
};

struct bench {
    const struct bench_pipeline_rig *rig;
    const struct bench_pipeline_load *load;
    struct appliance *appliance;
    struct port *rx, *tx;
    struct audit_log *log;
    struct trace trace;
    struct sample *samples;
    uint64_t n_sample, n_all; /* n_all: frames there are, preload included */
    /* feeder's; read by others when it has ended */
    uint64_t *fed_at; /* without a rate: TSC at which a frame was handed over */
    uint64_t start;   /* TSC of the first due time */
    double step_cycles;
    uint64_t n_fed, ring_full;
    atomic_int stop; /* relaxed: nothing is published with it */
};

const char *bench_pipeline_row_name(enum bench_pipeline_row row)
{
    static const char *const name[BENCH_PIPELINE_N_ROW] = {
        [TRACE_RECEIVE] = "receive",
        [TRACE_DECODE] = "decode",
        [TRACE_BOOK] = "book",
        [TRACE_FEATURES] = "features",
        [TRACE_SUBMIT] = "submit",
        [TRACE_INFERENCE] = "inference",
        [TRACE_CHECK] = "check",
        [TRACE_PUBLISH] = "publish",
        [TRACE_AUDIT] = "audit",
        [BENCH_PIPELINE_WAIT] = "wait",
        [BENCH_PIPELINE_TOTAL] = "total",
        [BENCH_PIPELINE_OTHER] = "other_than_inference",
    };
    return name[row];
}

/* ---- threads ---- */

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    /* Refused only for a CPU that has been taken from the process meanwhile: then the system places it. */
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static uint64_t due_of(const struct bench *b, uint64_t frame_no)
{
    if (b->load->rate > 0)
        return b->start + (uint64_t)((double)frame_no * b->step_cycles);
    return b->fed_at[frame_no];
}

/* Message i of the flow at p, as a frame with a datagram of its own. */
static uint32_t build_frame(uint8_t frame[PORT_FRAME_MAX], const uint8_t *p, uint64_t i)
{
    static const uint8_t session[MOLD_SESSION_BYTES + 1] = "KLBENCH   ";
    uint8_t payload[PAYLOAD_MAX];
    uint16_t block = (uint16_t)(2 + be_load_u16(p));
    mold_write_header(payload, session, i + 1, 1);
    memcpy(payload + MOLD_HEADER_BYTES, p, block);
    return (uint32_t)packet_build(frame, 0x0a000001, FEED_PORT, FEED_IP, FEED_PORT, 0, payload,
                                  (uint16_t)(MOLD_HEADER_BYTES + block));
}

static int stopped(struct bench *b)
{
    return atomic_load_explicit(&b->stop, memory_order_relaxed);
}

/* Into the ring, which may be full for a while: nothing is lost, it comes late. */
static void hand_over(struct bench *b, const uint8_t *frame, uint32_t len, int counts)
{
    if (!port_feed(b->rx, frame, len))
        return;
    b->ring_full += (uint64_t)counts;
    while (port_feed(b->rx, frame, len) && !stopped(b))
        _mm_pause();
}

/* The load generator. A frame is built before it is due and handed over when it is; it never looks at how far
 * the appliance has come. */
static void *feed(void *arg)
{
    struct bench *b = arg;
    const int paced = b->load->rate > 0;
    /* On the poll loop's own CPU every wait is a time slice: then what the port's ring holds. */
    const uint64_t ahead = b->rig->cpus.poll == b->rig->cpus.feeder ? PRELOAD_AHEAD_SHARED : PRELOAD_AHEAD;
    const uint8_t *p = b->rig->flow->data;
    uint8_t frame[PORT_FRAME_MAX];
    pin(b->rig->cpus.feeder);
    pthread_setname_np(pthread_self(), "kl-feeder");
    uint64_t i = 0;
    for (; i < BENCH_PIPELINE_PRELOAD && !stopped(b); i++) {
        /* Not far ahead: fresh ticks are inferred, and so warm the streams up. */
        while (i - appliance_frames(b->appliance) >= ahead && !stopped(b))
            sched_yield();
        hand_over(b, frame, build_frame(frame, p, i), 0);
        p += 2 + be_load_u16(p);
    }
    while (appliance_frames(b->appliance) < i && !stopped(b))
        sched_yield();
    const struct clock_calibration *clock = &b->rig->clock;
    const uint64_t limit = clock_ns_to_cycles(clock, b->load->seconds * 1e9);
    b->start = clock_tsc() + clock_ns_to_cycles(clock, LEAD_NS);
    for (; i < b->n_all && !stopped(b); i++) {
        const uint64_t frame_no = i - BENCH_PIPELINE_PRELOAD;
        const uint32_t len = build_frame(frame, p, i);
        p += 2 + be_load_u16(p);
        const uint64_t due = paced ? due_of(b, frame_no) : b->start;
        uint64_t tsc;
        while ((int64_t)((tsc = clock_tsc()) - due) < 0)
            _mm_pause();
        if (!paced) {
            if (tsc - b->start > limit)
                break;
            b->fed_at[frame_no] = tsc;
        }
        hand_over(b, frame, len, 1);
    }
    b->n_fed = i;
    return NULL;
}

static void *poll_thread(void *arg)
{
    struct bench *b = arg;
    pin(b->rig->cpus.poll);
    pthread_setname_np(pthread_self(), "kl-poll");
    appliance_run(b->appliance);
    return NULL;
}

/* The poll loop's thread, after a verdict. */
static void on_tick(struct trace *trace, unsigned verdict)
{
    struct bench *b = trace->ctx;
    assert(b->n_sample < b->n_all); /* one message per frame: one tick at most */
    struct sample *s = &b->samples[b->n_sample++];
    const uint64_t frame = trace->packets - 1;
    s->end = trace->last;
    s->frame_no = frame < BENCH_PIPELINE_PRELOAD ? UINT32_MAX : (uint32_t)(frame - BENCH_PIPELINE_PRELOAD);
    s->reached = (uint16_t)trace->reached;
    s->verdict = (uint8_t)verdict;
    for (int i = 0; i < TRACE_N_STAGE; i++) {
        const uint64_t cycles = trace->cycles[i], empty = trace->floor_cycles[i];
        s->cycles[i] = cycles < UINT32_MAX ? (uint32_t)cycles : UINT32_MAX;
        s->floor_cycles[i] = empty < UINT16_MAX ? (uint16_t)empty : UINT16_MAX;
    }
}

/* ---- opening and closing ---- */

/* On a file that has no name any more: nothing is left behind, however this ends. */
static int open_log(struct bench *b)
{
    const struct bench_pipeline_rig *rig = b->rig;
    const char *base = getenv("TMPDIR");
    char folder[512], path[544], error[AUDIT_ERROR_CHARS];
    snprintf(folder, sizeof(folder), "%.400s/killline-bench-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(folder))
        return cmd_error("bench pipeline: %s: %m; set TMPDIR to a folder with room for the audit log",
                         folder);
    snprintf(path, sizeof(path), "%s/audit.kla", folder);
    struct audit_config config = {.path = path,
                                  .n_ring = rig->config->audit.ring_records,
                                  .on_full = (enum audit_full)rig->config->audit.on_full,
                                  .header = {.abi_version = KL_ABI_VERSION,
                                             .clock = AUDIT_CLOCK_REAL,
                                             .n_model = 1,
                                             .tsc_hz = rig->clock.hz,
                                             .tsc0 = rig->clock.tsc0,
                                             .utc_ns0 = rig->clock.utc_ns0,
                                             .clock_error_ppm = rig->clock.error_ppm}};
    struct audit_header *h = &config.header;
    memcpy(h->model_sha256[0], rig->model->sha256, sizeof(h->model_sha256[0]));
    memcpy(h->config_sha256, rig->config_sha256, sizeof(h->config_sha256));
    snprintf(h->build, sizeof(h->build), "%s", KL_VERSION);
    snprintf(h->accel, sizeof(h->accel), "%s", rig->accel->accel->ops->name);
    snprintf(h->feed, sizeof(h->feed), "generated");
    for (int k = 0; k < rig->model->image->n_class; k++)
        snprintf(h->class_name[k], sizeof(h->class_name[k]), "%.7s", rig->model->class_name[k]);
    /* The writer inherits this thread's place and policy. Where it has to share the feeder's CPU, it is not
     * to take it at every record (SCHED_BATCH: no preemption at wake-up), as it would not from a NIC. */
    cpu_set_t before;
    const struct sched_param none = {0};
    struct sched_param param;
    int policy;
    pthread_getaffinity_np(pthread_self(), sizeof(before), &before);
    pthread_getschedparam(pthread_self(), &policy, &param);
    pin(rig->cpus.audit);
    if (policy == SCHED_OTHER && rig->cpus.audit == rig->cpus.feeder)
        pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    b->log = audit_open(&config, error);
    pthread_setschedparam(pthread_self(), policy, &param);
    pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
    unlink(path);
    rmdir(folder);
    return b->log ? 0 : cmd_error("%s", error);
}

static int open_bench(struct bench *b)
{
    const struct bench_pipeline_rig *rig = b->rig;
    char error[PORT_ERROR_CHARS], reason[AUDIT_ERROR_CHARS];
    b->n_all = BENCH_PIPELINE_PRELOAD + b->load->n_frame;
    b->step_cycles = b->load->rate > 0 ? rig->clock.hz / b->load->rate : 0;
    const size_t fed_bytes = b->load->n_frame * sizeof(*b->fed_at),
                 sample_bytes = b->n_all * sizeof(*b->samples);
    b->fed_at = malloc(fed_bytes);
    b->samples = malloc(sample_bytes);
    if (!b->fed_at || !b->samples)
        return cmd_error(
            "bench pipeline: out of memory for the stamps of %llu frames; fewer --seconds or --rates",
            (unsigned long long)b->n_all);
    /* Touched now: no page fault between two ticks. */
    memset(b->fed_at, 0xff, fed_bytes);
    memset(b->samples, 0xff, sample_bytes);
    const struct kl_image_header *image = rig->model->image;
    const uint32_t status = accel_load(rig->accel->accel, 0, image, image->size_bytes);
    if (status != KL_OK)
        return cmd_error("bench pipeline: the accelerator refuses the model's image: kernel status %u",
                         status);
    if (open_log(b))
        return 1;
    b->rx = port_open_ring(error);
    b->tx = b->rx ? port_open_tx(rig->config->egress.device, "", error) : NULL;
    if (!b->tx)
        return cmd_error("bench pipeline: %s", error);
    b->trace.on_tick = on_tick;
    b->trace.ctx = b;
    const struct appliance_config config = {.config = rig->config,
                                            .model = rig->model,
                                            .accel = rig->accel->accel,
                                            .guard = rig->accel->guard,
                                            .log = b->log,
                                            .rx = b->rx,
                                            .tx = b->tx,
                                            .clock = rig->clock,
                                            .arrival_is_bound = b->load->rate > 0,
                                            .n_frame = b->n_all,
                                            .trace = &b->trace,
                                            .stop = &b->stop};
    b->appliance = appliance_create(&config, reason);
    return b->appliance ? 0 : cmd_error("bench pipeline: %s", reason);
}

static void close_bench(struct bench *b)
{
    if (b->log)
        audit_close(b->log, NULL, (char[AUDIT_ERROR_CHARS]){0});
    appliance_free(b->appliance);
    port_close(b->rx);
    port_close(b->tx);
    free(b->fed_at);
    free(b->samples);
}

/* ---- the load and what came of it ---- */

static int play(struct bench *b)
{
    pthread_t poll, feeder;
    if (pthread_create(&poll, NULL, poll_thread, b))
        return cmd_error("bench pipeline: cannot start the poll loop's thread");
    int failed = pthread_create(&feeder, NULL, feed, b);
    if (!failed)
        pthread_join(feeder, NULL);
    while (!failed && appliance_frames(b->appliance) < b->n_fed)
        usleep(500);
    atomic_store_explicit(&b->stop, 1, memory_order_relaxed);
    pthread_join(poll, NULL);
    return failed ? cmd_error("bench pipeline: cannot start the feeder's thread") : 0;
}

/* Since the guard was opened. */
static void count_failures(const struct accel *guard, uint64_t *failovers, uint64_t *mirror_answers)
{
    *failovers = *mirror_answers = 0;
    for (uint32_t card = 0; guard && card < accel_guard_n_card(guard); card++) {
        struct accel_guard_stats stats;
        accel_guard_stats(guard, card, &stats);
        *failovers += stats.failovers + stats.quarantines;
        *mirror_answers += stats.mirror_answers;
    }
}

static void record(struct bench_pipeline_result *result, int row, uint64_t cycles, uint64_t floor_cycles)
{
    histogram_record(&result->row[row], cycles);
    histogram_record(&result->floor[row], floor_cycles);
}

/* An idle loop is in port_receive when a frame becomes due, and may be interrupted there: the time before
 * counts for no frame. */
static void take_sample(const struct bench *b, struct sample *s, struct bench_pipeline_result *result)
{
    uint64_t stages = 0, floors = 0;
    for (int i = 0; i < TRACE_N_STAGE; i++) {
        stages += s->cycles[i];
        floors += s->floor_cycles[i];
    }
    const uint64_t total = s->end - due_of(b, s->frame_no);
    const uint64_t before = stages + floors > total ? stages + floors - total : 0;
    const uint64_t early = before < s->cycles[TRACE_RECEIVE] ? before : s->cycles[TRACE_RECEIVE];
    s->cycles[TRACE_RECEIVE] -= early;
    stages -= early;
    for (int i = 0; i < TRACE_N_STAGE; i++)
        if (s->reached & 1u << i)
            record(result, i, s->cycles[i], s->floor_cycles[i]);
    record(result, BENCH_PIPELINE_TOTAL, total, floors);
    record(result, BENCH_PIPELINE_WAIT, total > stages + floors ? total - stages - floors : 0, 0);
    if (s->verdict == VERDICT_PUBLISHED)
        record(result, BENCH_PIPELINE_OTHER, stages - s->cycles[TRACE_INFERENCE],
               floors - s->floor_cycles[TRACE_INFERENCE]);
}

static int summarise(struct bench *b, struct bench_pipeline_result *result)
{
    const struct appliance_stats *stats = appliance_stats(b->appliance);
    const uint64_t warm = (b->n_fed - BENCH_PIPELINE_PRELOAD) / BENCH_PIPELINE_WARM_UP;
    *result = (struct bench_pipeline_result){0};
    for (int row = 0; row < BENCH_PIPELINE_N_ROW; row++) {
        histogram_init(&result->row[row]);
        histogram_init(&result->floor[row]);
    }
    result->rate = b->load->rate;
    result->frames = b->n_fed - BENCH_PIPELINE_PRELOAD;
    result->ring_full = b->ring_full;
    uint64_t by_verdict[VERDICT_COUNT] = {0}, last = b->start;
    for (uint64_t i = 0; i < b->n_sample; i++) {
        struct sample *s = &b->samples[i];
        by_verdict[s->verdict]++;
        if (s->frame_no == UINT32_MAX) {
            result->preload_ticks++;
            continue;
        }
        last = s->end;
        result->ticks++;
        result->verdicts[s->verdict]++;
        if (s->frame_no >= warm)
            take_sample(b, s, result);
    }
    result->seconds = clock_cycles_to_ns(&b->rig->clock, last > b->start ? last - b->start : 0) / 1e9;
    result->reached = result->seconds > 0 ? (double)result->frames / result->seconds : 0;
    struct audit_totals totals;
    char error[AUDIT_ERROR_CHARS];
    const int failed = audit_close(b->log, &totals, error);
    b->log = NULL;
    if (failed)
        return cmd_error("bench pipeline: %s", error);
    result->audit_records = totals.records;
    result->audit_lost = totals.lost;
    /* Every tick has one verdict: what the appliance counted is what was stamped. */
    if (stats->predictions != b->n_sample || memcmp(by_verdict, stats->verdicts, sizeof(by_verdict)) != 0)
        return cmd_error("bench pipeline: %llu predictions in the appliance's books, %llu ticks stamped",
                         (unsigned long long)stats->predictions, (unsigned long long)b->n_sample);
    return 0;
}

int bench_pipeline_run(const struct bench_pipeline_rig *rig, const struct bench_pipeline_load *load,
                       struct bench_pipeline_result *result)
{
    struct bench *b = calloc(1, sizeof(*b));
    if (!b)
        return cmd_error("bench pipeline: out of memory");
    b->rig = rig;
    b->load = load;
    const struct accel *guard = rig->accel->guard;
    uint64_t failovers, mirror_answers;
    count_failures(guard, &failovers, &mirror_answers);
    const int failed = open_bench(b) || play(b) || summarise(b, result);
    count_failures(guard, &result->failovers, &result->mirror_answers);
    result->failovers -= failovers;
    result->mirror_answers -= mirror_answers;
    close_bench(b);
    free(b);
    return failed;
}
