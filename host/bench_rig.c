#include "bench_rig.h"

#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../net/be.h"
#include "../net/port.h"
#include "cmd.h"

enum {
    FEED_IP = 0xefe00001, /* 239.224.0.1 */
    FEED_PORT = 26400,
    PAYLOAD_MAX = MOLD_HEADER_BYTES + 2 + ITCH_MESSAGE_BYTES_MAX,
    PRELOAD_AHEAD = 8,
    PRELOAD_AHEAD_SHARED = 1000,
    LEAD_NS = 200000, /* from the end of the preload to the first due time */
    LOOK_US = 1000,
    FAR_NS = 300000, /* so long before a frame is due the feeder may sleep */
};

struct bench_run {
    const struct bench_rig *rig;
    struct bench_load load;
    const struct config *config;
    struct appliance *appliance;
    struct port *rx, *tx;
    struct audit_log *log;
    int log_fd; /* of the log's file, which has no name any more */
    struct order_desk desk;
    /* feeder's; read by others when it has ended */
    uint64_t *fed_at; /* TSC at which a frame of the load was handed over */
    double step_cycles;
    uint64_t n_fed; /* preload included */
    struct bench_outcome outcome;
    atomic_int under_way, has_ended; /* relaxed: for bench_load.watch */
    atomic_int stop;                 /* relaxed: nothing is published with it */
};

/* ---- threads ---- */

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    /* Refused only for a CPU that has been taken from the process meanwhile: then the system places it. */
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

uint64_t bench_run_due(const struct bench_run *b, uint64_t frame_no)
{
    if (b->load.rate > 0)
        return b->outcome.start + (uint64_t)((double)frame_no * b->step_cycles);
    return b->fed_at[frame_no];
}

uint64_t bench_run_fed(const struct bench_run *b, uint64_t frame_no)
{
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

static int stopped(struct bench_run *b)
{
    return atomic_load_explicit(&b->stop, memory_order_relaxed);
}

/* Into the ring, which may be full for a while: then it comes late. Returns the TSC before it was there. */
static uint64_t hand_over(struct bench_run *b, const uint8_t *frame, uint32_t len)
{
    uint64_t tsc = clock_tsc();
    while (port_feed(b->rx, frame, len) && !stopped(b)) {
        _mm_pause();
        tsc = clock_tsc();
    }
    return tsc;
}

/* A frame of the load: late, or lost, if the ring is full. Returns the TSC, or UINT64_MAX: lost. */
static uint64_t hand_over_in_time(struct bench_run *b, const uint8_t *frame, uint32_t len)
{
    struct bench_outcome *o = &b->outcome;
    uint64_t tsc = clock_tsc();
    if (port_feed(b->rx, frame, len)) {
        o->ring_full++;
        if (b->load.is_lossy) {
            o->ring_lost++;
            return UINT64_MAX;
        }
        tsc = hand_over(b, frame, len);
    }
    const unsigned waiting = port_waiting(b->rx, &o->ring_size);
    o->ring_high = waiting > o->ring_high ? waiting : o->ring_high;
    return tsc;
}

static void wait_until(const struct bench_run *b, uint64_t due)
{
    const int64_t far = (int64_t)clock_ns_to_cycles(&b->rig->clock, FAR_NS);
    int64_t left;
    while ((left = (int64_t)(due - clock_tsc())) > 0) {
        /* Slow loads leave this CPU to who shares it: the audit writer, and whoever orders. */
        if (left > far)
            usleep(50);
        _mm_pause();
    }
}

/* As fast as they are worked off, not far ahead: fresh ticks are inferred, and so warm the streams up. */
static const uint8_t *preload(struct bench_run *b, const uint8_t *p)
{
    /* On the poll loop's own CPU every wait is a time slice: then what the port's ring holds. */
    const uint64_t ahead = b->rig->cpus.poll == b->rig->cpus.feeder ? PRELOAD_AHEAD_SHARED : PRELOAD_AHEAD;
    uint8_t frame[PORT_FRAME_MAX];
    for (uint64_t i = 0; i < b->load.n_preload && !stopped(b); i++) {
        while (i - appliance_frames(b->appliance) >= ahead && !stopped(b))
            sched_yield();
        hand_over(b, frame, build_frame(frame, p, i));
        p += 2 + be_load_u16(p);
    }
    while (appliance_frames(b->appliance) < b->load.n_preload && !stopped(b))
        sched_yield();
    return p;
}

/* The load generator. A frame is built before it is due and handed over when it is; with a rate it never
 * waits for the appliance. */
static void *feed(void *arg)
{
    struct bench_run *b = arg;
    const struct bench_load *load = &b->load;
    uint8_t frame[PORT_FRAME_MAX];
    pin(b->rig->cpus.feeder);
    pthread_setname_np(pthread_self(), "kl-feeder");
    const uint8_t *p = preload(b, b->rig->flow->data);
    const struct clock_calibration *clock = &b->rig->clock;
    const uint64_t limit = clock_ns_to_cycles(clock, load->seconds * 1e9),
                   n_all = load->n_preload + load->n_frame;
    const uint64_t start = b->outcome.start = clock_tsc() + clock_ns_to_cycles(clock, LEAD_NS);
    atomic_store_explicit(&b->under_way, 1, memory_order_relaxed);
    uint64_t i = load->n_preload;
    for (; i < n_all && !stopped(b); i++) {
        const uint64_t frame_no = i - load->n_preload;
        const uint32_t len = build_frame(frame, p, i);
        p += 2 + be_load_u16(p);
        wait_until(b, load->rate > 0 ? bench_run_due(b, frame_no) : start);
        while (load->ahead && i - appliance_frames(b->appliance) >= load->ahead && !stopped(b))
            _mm_pause();
        const uint64_t tsc = clock_tsc();
        if (!(load->rate > 0) && tsc - start > limit)
            break;
        const uint64_t fed = hand_over_in_time(b, frame, len);
        b->fed_at[frame_no] = load->rate > 0 ? fed : tsc;
    }
    b->n_fed = i;
    b->outcome.frames = i - load->n_preload;
    atomic_store_explicit(&b->has_ended, 1, memory_order_relaxed);
    return NULL;
}

static void *poll_thread(void *arg)
{
    struct bench_run *b = arg;
    pin(b->rig->cpus.poll);
    pthread_setname_np(pthread_self(), "kl-poll");
    appliance_run(b->appliance);
    return NULL;
}

int bench_run_play(struct bench_run *b)
{
    pthread_t poll, feeder;
    if (pthread_create(&poll, NULL, poll_thread, b))
        return cmd_error("%s: cannot start the poll loop's thread", b->rig->command);
    int failed = pthread_create(&feeder, NULL, feed, b);
    while (!failed && !atomic_load_explicit(&b->has_ended, memory_order_relaxed)) {
        usleep(LOOK_US);
        if (!atomic_load_explicit(&b->under_way, memory_order_relaxed))
            continue;
        const uint64_t waiting = audit_used(b->log);
        b->outcome.audit_high = waiting > b->outcome.audit_high ? waiting : b->outcome.audit_high;
        if (b->load.watch)
            b->load.watch(b->load.ctx, b->appliance);
    }
    if (!failed)
        pthread_join(feeder, NULL);
    while (!failed && appliance_frames(b->appliance) < b->n_fed - b->outcome.ring_lost)
        usleep(500);
    atomic_store_explicit(&b->stop, 1, memory_order_relaxed);
    pthread_join(poll, NULL);
    if (failed)
        return cmd_error("%s: cannot start the feeder's thread", b->rig->command);
    char error[AUDIT_ERROR_CHARS];
    failed = audit_close(b->log, &b->outcome.audit, error);
    b->log = NULL;
    return failed ? cmd_error("%s: %s", b->rig->command, error) : 0;
}

/* ---- opening and closing ---- */

static void fill_header(const struct bench_run *b, struct audit_header *h)
{
    const struct bench_rig *rig = b->rig;
    *h = (struct audit_header){.abi_version = KL_ABI_VERSION,
                               .clock = AUDIT_CLOCK_REAL,
                               .n_model = 1,
                               .tsc_hz = rig->clock.hz,
                               .tsc0 = rig->clock.tsc0,
                               .utc_ns0 = rig->clock.utc_ns0,
                               .clock_error_ppm = rig->clock.error_ppm};
    memcpy(h->model_sha256[0], rig->model->sha256, sizeof(h->model_sha256[0]));
    memcpy(h->config_sha256, rig->config_sha256, sizeof(h->config_sha256));
    snprintf(h->build, sizeof(h->build), "%s", KL_VERSION);
    snprintf(h->accel, sizeof(h->accel), "%s", rig->accel->accel->ops->name);
    snprintf(h->feed, sizeof(h->feed), "generated");
    for (int k = 0; k < rig->model->image->n_class; k++)
        snprintf(h->class_name[k], sizeof(h->class_name[k]), "%.7s", rig->model->class_name[k]);
}

/* The writer inherits this thread's place and policy. Where it has to share the feeder's CPU, it is not to
 * take it at every record (SCHED_BATCH: no preemption at wake-up), as it would not from a NIC. */
static struct audit_log *open_log_in_place(const struct bench_rig *rig, const struct audit_config *config,
                                           char error[AUDIT_ERROR_CHARS])
{
    cpu_set_t before;
    const struct sched_param none = {0};
    struct sched_param param;
    int policy;
    pthread_getaffinity_np(pthread_self(), sizeof(before), &before);
    pthread_getschedparam(pthread_self(), &policy, &param);
    pin(rig->cpus.audit);
    if (policy == SCHED_OTHER && rig->cpus.audit == rig->cpus.feeder)
        pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    struct audit_log *log = audit_open(config, error);
    pthread_setschedparam(pthread_self(), policy, &param);
    pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
    return log;
}

/* On a file that has no name any more: nothing is left behind, however this ends. */
static int open_log(struct bench_run *b)
{
    const struct bench_rig *rig = b->rig;
    const char *base = getenv("TMPDIR");
    char folder[512], path[544], error[AUDIT_ERROR_CHARS];
    snprintf(folder, sizeof(folder), "%.400s/killline-bench-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(folder))
        return cmd_error("%s: %s: %m; set TMPDIR to a folder with room for the audit log", rig->command,
                         folder);
    snprintf(path, sizeof(path), "%s/audit.kla", folder);
    struct audit_config config = {.path = path,
                                  .n_ring = b->config->audit.ring_records,
                                  .on_full = (enum audit_full)b->config->audit.on_full};
    fill_header(b, &config.header);
    b->log = open_log_in_place(rig, &config, error);
    b->log_fd = b->log ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    unlink(path);
    rmdir(folder);
    if (!b->log)
        return cmd_error("%s: %s", rig->command, error);
    return b->log_fd < 0 ? cmd_error("%s: %s: %m", rig->command, path) : 0;
}

static int open_run(struct bench_run *b)
{
    const struct bench_rig *rig = b->rig;
    const struct bench_load *load = &b->load;
    char error[PORT_ERROR_CHARS], reason[AUDIT_ERROR_CHARS];
    const uint64_t n_all = load->n_preload + load->n_frame;
    if (n_all > rig->flow->n_message)
        return cmd_error("%s: %llu frames asked of a flow of %llu", rig->command, (unsigned long long)n_all,
                         (unsigned long long)rig->flow->n_message);
    b->step_cycles = load->rate > 0 ? rig->clock.hz / load->rate : 0;
    b->fed_at = malloc(load->n_frame * sizeof(*b->fed_at));
    if (!b->fed_at)
        return cmd_error("%s: out of memory for the stamps of %llu frames", rig->command,
                         (unsigned long long)load->n_frame);
    /* Touched now: no page fault between two frames. */
    memset(b->fed_at, 0xff, load->n_frame * sizeof(*b->fed_at));
    struct accel *accel = load->accel ? load->accel : rig->accel->accel;
    const struct kl_image_header *image = rig->model->image;
    const uint32_t status = accel_load(accel, 0, image, image->size_bytes);
    if (status != KL_OK)
        return cmd_error("%s: the accelerator refuses the model's image: kernel status %u", rig->command,
                         status);
    if (open_log(b))
        return 1;
    b->rx = port_open_ring(error);
    b->tx = b->rx ? port_open_tx(b->config->egress.device, "", error) : NULL;
    if (!b->tx)
        return cmd_error("%s: %s", rig->command, error);
    const struct appliance_config config = {.config = b->config,
                                            .model = rig->model,
                                            .accel = accel,
                                            .guard = load->accel ? NULL : rig->accel->guard,
                                            .log = b->log,
                                            .rx = b->rx,
                                            .tx = b->tx,
                                            .clock = rig->clock,
                                            .arrival_is_bound = load->rate > 0,
                                            .n_frame = UINT64_MAX, /* until it is stopped */
                                            .trace = load->trace,
                                            .desk = load->desk ? load->desk : &b->desk,
                                            .stop = &b->stop};
    b->appliance = appliance_create(&config, reason);
    return b->appliance ? 0 : cmd_error("%s: %s", rig->command, reason);
}

int bench_run_open(const struct bench_rig *rig, const struct bench_load *load, struct bench_run **run)
{
    struct bench_run *b = *run = aligned_alloc(64, (sizeof(*b) + 63) / 64 * 64);
    if (!b)
        return cmd_error("%s: out of memory", rig->command);
    *b = (struct bench_run){
        .rig = rig, .load = *load, .config = load->config ? load->config : rig->config, .log_fd = -1};
    return open_run(b);
}

void bench_run_close(struct bench_run *b)
{
    if (!b)
        return;
    if (b->log)
        audit_close(b->log, NULL, (char[AUDIT_ERROR_CHARS]){0});
    if (b->log_fd >= 0)
        close(b->log_fd);
    appliance_free(b->appliance);
    port_close(b->rx);
    port_close(b->tx);
    free(b->fed_at);
    free(b);
}

/* ---- afterwards ---- */

const struct bench_outcome *bench_run_outcome(const struct bench_run *b)
{
    return &b->outcome;
}

const struct appliance *bench_run_appliance(const struct bench_run *b)
{
    return b->appliance;
}

int bench_run_records(struct bench_run *b,
                      void (*on_record)(void *ctx, const struct audit_prediction *r, uint64_t frame_no),
                      void *ctx)
{
    char error[AUDIT_ERROR_CHARS];
    FILE *stream = fdopen(b->log_fd, "rb");
    if (!stream)
        return cmd_error("%s: cannot read the audit log: %m", b->rig->command);
    b->log_fd = -1; /* the stream's */
    struct audit_reader *reader = audit_reader_open_stream(stream, "the audit log", error);
    if (!reader)
        return cmd_error("%s: %s", b->rig->command, error);
    const struct audit_record *record;
    int more;
    while ((more = audit_reader_next(reader, &record, error)) == 1)
        if (record->prediction.kind == AUDIT_PREDICTION) {
            const uint64_t i = record->prediction.feed_seq_no - 1;
            on_record(ctx, &record->prediction,
                      i < b->load.n_preload ? BENCH_RUN_PRELOADED : i - b->load.n_preload);
        }
    audit_reader_close(reader);
    return more ? cmd_error("%s: %s", b->rig->command, error) : 0;
}
