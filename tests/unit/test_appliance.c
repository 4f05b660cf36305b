/* The poll loop on real ports, with an accelerator that does what it is told: answers late, wrongly or never.
 * Replay clock, so every stamp is exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "feed_builder.h"
#include "host/appliance.h"

#define OPEN       34200000000000u
#define IMAGE_HASH 0x1122334455667788u
#define N_CYCLE    100 /* of every operation */

static const char session[MOLD_SESSION_BYTES] = "SESSION001";

/* ---- an accelerator on a string ---- */

enum misdeed {
    BEHAVES = 0,
    SILENT,        /* no answer before the next request comes */
    REFUSES,       /* KL_E_EMPTY */
    OTHER_IMAGE,   /* the answer of another model */
    CLASS_TOO_BIG, /* a class the model does not have */
    LATE,          /* not begun: over its budget */
    UNKNOWN_FLAG,
};

enum { N_OP_MAX = 256 };

struct rig;

struct fake {
    struct accel accel;                        /* first */
    struct kl_request request[KL_QUEUE_DEPTH]; /* outstanding, oldest first */
    unsigned outstanding, depth;               /* depth: of its queue */
    int is_late;
    unsigned n_idle_poll;    /* with nothing outstanding: where a backend in the process prepares */
    enum kl_op op[N_OP_MAX]; /* all that were taken */
    unsigned n_op;
    enum kl_op bad_op; /* this operation ... */
    unsigned bad_nth;  /* ... the n-th time, from 1; 0: never */
    enum misdeed misdeed;
    unsigned n_bad_op;                  /* how often it has come */
    void (*during_step)(struct rig *r); /* called once, while the first step is at work; NULL: nothing */
    struct rig *rig;
};

static int fake_submit(struct accel *accel, const struct kl_request *request)
{
    struct fake *f = (struct fake *)(void *)accel;
    if (f->outstanding)
        f->is_late = 0; /* the late answer is there now */
    if (f->outstanding == f->depth)
        return -1;
    assert_true(f->n_op < N_OP_MAX);
    f->op[f->n_op++] = (enum kl_op)request->op;
    f->request[f->outstanding++] = *request;
    f->n_bad_op += request->op == f->bad_op;
    return 0;
}

static int fake_poll(struct accel *accel, struct kl_result *result)
{
    struct fake *f = (struct fake *)(void *)accel;
    if (!f->outstanding) {
        f->n_idle_poll++;
        return -1;
    }
    if (f->during_step && f->request[0].op == KL_OP_STEP &&
        f->n_op > 2) { /* the first two are the start's own */
        f->during_step(f->rig);
        f->during_step = NULL;
    }
    int bad = f->request[0].op == f->bad_op && f->n_bad_op == f->bad_nth;
    if (bad && f->misdeed == SILENT) {
        f->bad_nth = 0;
        f->is_late = 1;
    }
    if (f->is_late)
        return 0;
    *result = (struct kl_result){.abi_version = KL_ABI_VERSION,
                                 .seq_no = f->request[0].seq_no,
                                 .kernel_cycles = N_CYCLE,
                                 .image_hash = IMAGE_HASH,
                                 .n_class = 3,
                                 .cls = 1,
                                 .logit_frac = 20};
    if (bad && f->misdeed == REFUSES)
        result->status = KL_E_EMPTY;
    if (bad && f->misdeed == OTHER_IMAGE)
        result->image_hash++;
    if (bad && f->misdeed == CLASS_TOO_BIG)
        result->cls = 3;
    if (bad && f->misdeed == LATE) { /* cls and logits are 0, whatever it sends */
        result->flags = KL_RESULT_LATE;
        result->logits[1] = 77;
    }
    if (bad && f->misdeed == UNKNOWN_FLAG)
        result->flags = KL_RESULT_LATE | 2;
    f->outstanding--;
    memmove(f->request, f->request + 1, f->outstanding * sizeof(f->request[0]));
    return 1;
}

static const struct accel_ops fake_ops = {.name = "fake", .submit = fake_submit, .poll = fake_poll};

/* ---- a run ---- */

enum { N_FRAME_MAX = 64, N_RECORD_MAX = 256 };

struct rig {
    struct config *config;
    struct kl_image_header image;
    struct model model;
    struct fake fake;
    struct port *rx, *tx;
    struct audit_log *log;
    struct feed_builder feed;
    uint64_t seq, ref, stamps[N_FRAME_MAX];
    unsigned n_frame, n_frame_later; /* in the ring at the start; fed during the run */
    int arrival_is_bound;
    struct audit_record record[N_RECORD_MAX]; /* after run() */
    unsigned n_record;
    char path[64];
};

static char folder[] = "/tmp/test_appliance_XXXXXX";
static char error[512];

static void start(struct rig *r, const char *settings)
{
    static int n;
    memset(r, 0, sizeof(*r));
    const struct config_layer layers[] = {
        {"fixed",
         "{egress: {device: net_null0}, join: {settle_ms: 0}, killline: {threshold_us: 999, "
         "device_timeout_us: 200}, book: {orders: 1000, levels: 1000}, audit: {ring_records: 256}}",
         0},
        {"test", settings, 0}};
    struct config_layer sized[2];
    for (int i = 0; i < 2; i++) {
        sized[i] = layers[i];
        sized[i].size_bytes = strlen(layers[i].text);
    }
    uint8_t sha256[CONFIG_SHA256_BYTES];
    r->config = config_parse(sized, 2, sha256, error);
    if (!r->config)
        print_error("%s\n", error);
    assert_non_null(r->config);
    r->image = (struct kl_image_header){.n_class = 3, .image_hash = IMAGE_HASH};
    r->model = (struct model){.n_feature = FEATURES_N, .image = &r->image};
    for (int i = 0; i < FEATURES_N; i++)
        r->model.feature[i].scale = 1;
    r->fake.accel.ops = &fake_ops;
    r->fake.depth = 1;
    r->rx = port_open_ring(error);
    r->tx = port_open_tx(r->config->egress.device, "", error);
    assert_true(r->rx && r->tx);
    snprintf(r->path, sizeof(r->path), "%s/%d.kla", folder, n++);
    struct audit_config log = {
        .path = r->path,
        .n_ring = r->config->audit.ring_records,
        .on_full = AUDIT_FULL_WAIT,
        .header = {.abi_version = KL_ABI_VERSION, .clock = AUDIT_CLOCK_REPLAY, .n_model = 1, .tsc_hz = 1e9}};
    if (r->config->clock == CONFIG_CLOCK_REAL) {
        log.header.clock = AUDIT_CLOCK_REAL;
        log.header.tsc_hz = 2e9;
    }
    r->log = audit_open(&log, error);
    if (!r->log)
        print_error("%s\n", error);
    assert_non_null(r->log);
    r->seq = 1;
}

/* One packet; seq: of its first message. */
static void frame(struct rig *r, uint64_t at, uint64_t seq, const struct itch_msg *messages, int n)
{
    feed_begin(&r->feed);
    for (int i = 0; i < n; i++)
        feed_add(&r->feed, &messages[i]);
    feed_frame(&r->feed, session, seq, (uint16_t)n, (uint32_t)FEED_GROUP_A);
    assert_int_equal(port_feed(r->rx, r->feed.frame, (uint32_t)r->feed.frame_len), 0);
    assert_true(r->n_frame < N_FRAME_MAX);
    r->stamps[r->n_frame++] = at;
}

static void next_frame(struct rig *r, uint64_t at, const struct itch_msg *messages, int n)
{
    frame(r, at, r->seq, messages, n);
    r->seq += (uint64_t)n;
}

static void open_market(struct rig *r)
{
    const struct itch_msg day[] = {feed_event('O', 1), feed_directory(7, "AAPL", 2),
                                   feed_state(7, "AAPL", 'T', 3), feed_event('Q', OPEN)};
    next_frame(r, OPEN, day, 4);
}

/* A new best bid: a tick. */
static struct itch_msg better_bid(struct rig *r, uint64_t ts)
{
    r->ref++;
    return feed_order(7, "AAPL", r->ref, 'B', 100, 1000000 + 100 * (uint32_t)r->ref, ts);
}

static void tick(struct rig *r, uint64_t at)
{
    const struct itch_msg m = better_bid(r, at);
    next_frame(r, at, &m, 1);
}

/* Create, run, close, read the log; NULL or the message of appliance_create. */
static const char *run(struct rig *r, struct appliance_stats *stats)
{
    static const atomic_int never;
    struct appliance_config cfg = {.config = r->config,
                                   .model = &r->model,
                                   .accel = &r->fake.accel,
                                   .log = r->log,
                                   .rx = r->rx,
                                   .tx = r->tx,
                                   .clock = {.hz = 2e9},
                                   .stamps_ns = r->stamps,
                                   .arrival_is_bound = r->arrival_is_bound,
                                   .n_frame = r->n_frame + r->n_frame_later,
                                   .idle_limit_cycles = 4000000000u,
                                   .stop = &never};
    struct appliance *a = appliance_create(&cfg, error);
    if (a) {
        appliance_run(a);
        *stats = *appliance_stats(a);
        appliance_free(a);
    }
    port_close(r->rx);
    port_close(r->tx);
    config_free(r->config);
    char why[AUDIT_ERROR_CHARS];
    assert_int_equal(audit_close(r->log, NULL, why), 0);
    if (!a)
        return error;
    struct audit_reader *reader = audit_reader_open(r->path, why);
    assert_non_null(reader);
    const struct audit_record *record;
    int more;
    while ((more = audit_reader_next(reader, &record, why)) == 1) {
        assert_true(r->n_record < N_RECORD_MAX);
        r->record[r->n_record++] = *record;
    }
    if (more)
        print_error("%s\n", why);
    assert_int_equal(more, 0);
    audit_reader_close(reader);
    return NULL;
}

static const struct audit_event *event_of(const struct rig *r, enum audit_event_code code)
{
    for (unsigned i = 0; i < r->n_record; i++)
        if (r->record[i].event.kind == AUDIT_EVENT && r->record[i].event.code == code)
            return &r->record[i].event;
    return NULL;
}

/* The n-th prediction, from 0. */
static const struct audit_prediction *prediction_of(const struct rig *r, unsigned n)
{
    for (unsigned i = 0; i < r->n_record; i++)
        if (r->record[i].prediction.kind == AUDIT_PREDICTION && n-- == 0)
            return &r->record[i].prediction;
    fail_msg("no such prediction");
    return NULL;
}

static unsigned verdict_of(const struct rig *r, unsigned n)
{
    return prediction_of(r, n)->verdict;
}

/* What the accelerator was asked: S, P, R for step, prepare, reset. */
static const char *operations(const struct rig *r)
{
    static char text[N_OP_MAX + 1];
    for (unsigned i = 0; i < r->fake.n_op; i++)
        text[i] = r->fake.op[i] == KL_OP_STEP ? 'S' : r->fake.op[i] == KL_OP_PREPARE ? 'P' : 'R';
    text[r->fake.n_op] = '\0';
    return text;
}

static void ticks_are_inferred_prepared_and_published(void **state)
{
    struct rig r;
    struct appliance_stats stats;
    (void)state;
    start(&r, "{}");
    open_market(&r);
    for (uint64_t i = 1; i <= 3; i++)
        tick(&r, OPEN + i * 1000000);
    assert_null(run(&r, &stats));
    assert_int_equal(stats.predictions, 3);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 3);
    assert_int_equal(stats.device_errors, 0);
    /* the dummy inference; then step and prepare: a stream that was never used needs no reset */
    assert_string_equal(operations(&r), "SRSPSPSP");
    assert_int_equal(event_of(&r, AUDIT_EVENT_START)->at,
                     OPEN); /* the capture's time begins with its first frame */
}

/* A device that was silent once is used again: its late answer is thrown away, and the stream, whose state
 * may have moved, starts anew. */
static void late_answer_costs_one_tick(unsigned depth)
{
    struct rig r;
    struct appliance_stats stats;
    start(&r, "{}");
    r.fake.depth = depth;
    r.fake.bad_op = KL_OP_STEP;
    r.fake.bad_nth = 3; /* the dummy, the first tick's, this one */
    r.fake.misdeed = SILENT;
    open_market(&r);
    for (uint64_t i = 1; i <= 4; i++)
        tick(&r, OPEN + i * 1000000);
    assert_null(run(&r, &stats));
    assert_int_equal(verdict_of(&r, 0), VERDICT_PUBLISHED);
    assert_int_equal(verdict_of(&r, 1), VERDICT_DEVICE_ERROR);
    assert_int_equal(verdict_of(&r, 2), VERDICT_PUBLISHED);
    assert_int_equal(verdict_of(&r, 3), VERDICT_PUBLISHED);
    assert_int_equal(stats.device_errors, 1);
    assert_string_equal(operations(&r), "SRSPSRSPSP");
    const struct audit_event *e = event_of(&r, AUDIT_EVENT_DEVICE_ERROR);
    assert_non_null(e);
    assert_int_equal(e->value[0], AUDIT_DEVICE_SILENT);
}

static void a_late_answer_costs_one_tick(void **state)
{
    (void)state;
    late_answer_costs_one_tick(1);
}

/* Where the next request finds room behind the silent one, the late answer comes first. */
static void a_late_answer_in_a_queue_costs_one_tick(void **state)
{
    (void)state;
    late_answer_costs_one_tick(KL_QUEUE_DEPTH);
}

/* The event names what happened, not what the answer before it said. */
static void a_silent_reset_is_recorded_as_silence(void **state)
{
    struct rig r;
    struct appliance_stats stats;
    (void)state;
    start(&r, "{feed: {gap_wait_us: 0}}");
    r.fake.bad_op = KL_OP_RESET;
    r.fake.bad_nth = 2; /* the dummy inference's, the gap's */
    r.fake.misdeed = SILENT;
    open_market(&r);
    tick(&r, OPEN + 1000000);
    r.seq += 2;
    tick(&r, OPEN + 2000000);
    tick(&r, OPEN + 3000000);
    assert_null(run(&r, &stats));
    assert_int_equal(verdict_of(&r, 1), VERDICT_DEVICE_ERROR);
    assert_int_equal(verdict_of(&r, 2), VERDICT_PUBLISHED);
    assert_string_equal(operations(&r), "SRSPRRSP");
    assert_int_equal(event_of(&r, AUDIT_EVENT_DEVICE_ERROR)->value[0], AUDIT_DEVICE_SILENT);
}

/* Off the critical path, but not in silence. */
static void a_failed_prepare_is_recorded(void **state)
{
    struct rig r;
    struct appliance_stats stats;
    (void)state;
    start(&r, "{}");
    r.fake.bad_op = KL_OP_PREPARE;
    r.fake.bad_nth = 1;
    r.fake.misdeed = REFUSES;
    open_market(&r);
    tick(&r, OPEN + 1000000);
    tick(&r, OPEN + 2000000);
    assert_null(run(&r, &stats));
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 2);
    assert_int_equal(stats.device_errors, 1);
    assert_int_equal(event_of(&r, AUDIT_EVENT_DEVICE_ERROR)->value[0], KL_E_EMPTY);
    assert_string_equal(operations(&r), "SRSPRSP");
}

/* An answer that is not of the loaded model, or makes no sense, is never published. */
static void implausible_answers_are_device_errors(void **state)
{
    /* LATE without a budget, as the first inference comes; later it is a fair answer. */
    static const enum misdeed misdeeds[] = {OTHER_IMAGE, CLASS_TOO_BIG, UNKNOWN_FLAG, LATE};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig r;
        struct appliance_stats stats;
        if (misdeeds[i] != LATE) {
            start(&r, "{}");
            r.fake.bad_op = KL_OP_STEP;
            r.fake.bad_nth = 2;
            r.fake.misdeed = misdeeds[i];
            open_market(&r);
            tick(&r, OPEN + 1000000);
            assert_null(run(&r, &stats));
            assert_int_equal(stats.verdicts[VERDICT_DEVICE_ERROR], 1);
            assert_int_equal(event_of(&r, AUDIT_EVENT_DEVICE_ERROR)->value[0], AUDIT_DEVICE_NONSENSE);
        }
        start(&r, "{}");
        r.fake.bad_op = KL_OP_STEP;
        r.fake.bad_nth = 1; /* found before the first frame */
        r.fake.misdeed = misdeeds[i];
        assert_non_null(run(&r, &stats));
    }
}

/* What the kernel did not begin is no inference: nothing of it is published or logged as an answer, the
 * stream goes on from the state before it, without a reset, and it is expected to take longer next time. */
static void a_step_that_the_kernel_did_not_begin_is_expected_late(void **state)
{
    struct rig r;
    struct appliance_stats stats;
    (void)state;
    start(&r, "{}");
    r.fake.bad_op = KL_OP_STEP;
    r.fake.bad_nth = 3;
    r.fake.misdeed = LATE;
    open_market(&r);
    for (uint64_t i = 1; i <= 3; i++)
        tick(&r, OPEN + i * 1000000);
    assert_null(run(&r, &stats));
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 2);
    assert_int_equal(stats.verdicts[VERDICT_EXPECTED_LATE], 1);
    assert_int_equal(stats.device_errors, 0);
    assert_int_equal(stats.stage_ns[STAGE_TOTAL].count, 2);
    assert_string_equal(operations(&r), "SRSPSPSP"); /* the next one shall not be late for want of it */
    const struct audit_prediction *p = prediction_of(&r, 1), *before = prediction_of(&r, 0),
                                  *after = prediction_of(&r, 2);
    static const int64_t none[KL_N_CLASS_MAX];
    assert_int_equal(p->verdict, VERDICT_EXPECTED_LATE);
    assert_int_equal(p->flags, AUDIT_FLAG_KERNEL_LATE);
    assert_true(p->submitted && p->completed > p->submitted);
    assert_int_equal(p->kernel_cycles, N_CYCLE);
    assert_int_equal(p->publish_seq, 0);
    assert_int_equal(p->cls, 0);
    assert_memory_equal(p->logits, none, sizeof none);
    assert_int_equal(after->publish_seq, before->publish_seq + 1);
    assert_int_equal(after->flags, AUDIT_FLAG_INFERRED);
    assert_true(after->expected_cycles > p->expected_cycles);
}

/* Under the real clock the backend prepares by itself; under the replay clock, whose time a prepare takes, it
 * is an operation. */
static void prepares_are_left_to_the_backend_under_the_real_clock(void **state)
{
    static const char *const settings[] = {"{clock: real, accel: cpu, cpu: {prepare_thread: true}}",
                                           "{clock: real}", "{accel: cpu, cpu: {prepare_thread: true}}"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rig r;
        struct appliance_stats stats;
        start(&r, settings[i]);
        r.config->killline.device_timeout_us = 100000; /* of a machine that others use too */
        open_market(&r);
        tick(&r, OPEN + 1000000);
        tick(&r, OPEN + 2000000);
        assert_null(run(&r, &stats));
        const int real = i < 2;
        assert_string_equal(operations(&r), real ? "SRSS" : "SRSPSP");
        /* of the last one */
        assert_int_equal(r.fake.request[0].flags, real ? KL_REQUEST_PREPARE : 0);
        assert_int_equal(r.fake.n_idle_poll, real ? 2 : 0);
    }
}

/* Recurrent state does not reach over a gap or a halt, also when no tick came while it lasted. */
static void state_ends_at_gaps_and_halts(void **state)
{
    struct rig r;
    struct appliance_stats stats;
    (void)state;
    start(&r, "{feed: {gap_wait_us: 0}}");
    open_market(&r);
    tick(&r, OPEN + 1000000);
    r.seq += 2; /* lost on both lines */
    tick(&r, OPEN + 2000000);
    tick(&r, OPEN + 3000000);
    const struct itch_msg halt[] = {feed_state(7, "AAPL", 'H', OPEN + 4000000),
                                    feed_state(7, "AAPL", 'T', OPEN + 4000000)};
    next_frame(&r, OPEN + 4000000, halt, 2);
    tick(&r, OPEN + 5000000);
    assert_null(run(&r, &stats));
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 4);
    assert_string_equal(operations(&r), "SRSPRSPSPRSP");
}

/* Replay: the receiver's timer runs only while nothing waits to be received. A hole that the next frame of
 * the queue fills is no loss, however far the server is behind. */
static void a_backlog_declares_no_loss(void **state)
{
    struct rig r;
    struct appliance_stats stats;
    (void)state;
    start(&r, "{feed: {gap_wait_us: 500}, replay: {frame_ns: 1000000}}");
    open_market(&r);
    const struct itch_msg first = better_bid(&r, OPEN + 100), second = better_bid(&r, OPEN + 200);
    frame(&r, OPEN + 100, r.seq + 1, &second, 1);
    frame(&r, OPEN + 200, r.seq, &first, 1);
    assert_null(run(&r, &stats));
    assert_null(event_of(&r, AUDIT_EVENT_GAP));
    assert_int_equal(stats.predictions, 2);
}

/* ... and while nothing waits it runs to the nanosecond. */
static void an_idle_receiver_declares_the_loss_on_time(void **state)
{
    struct rig r;
    struct appliance_stats stats;
    (void)state;
    start(&r, "{feed: {gap_wait_us: 500}}");
    open_market(&r);
    r.seq++;
    tick(&r, OPEN + 1000000);
    tick(&r, OPEN + 9000000);
    assert_null(run(&r, &stats));
    const struct audit_event *e = event_of(&r, AUDIT_EVENT_GAP);
    assert_non_null(e);
    assert_int_equal(e->at, OPEN + 1000000 + 500000);
}

/* The loop is away for longer than the kill line while a packet comes in. */
static void stall_while_a_packet_comes(struct rig *r)
{
    tick(r, OPEN + 2000);
    uint64_t start = clock_tsc();
    while (clock_tsc() - start < 3000000) /* 1.5 ms of the rig's clock */
        ;
}

static void what_waited_in_the_ring_is_not_fresh(void **state)
{
    (void)state;
    for (int bound = 0; bound < 2; bound++) {
        struct rig r;
        struct appliance_stats stats;
        start(&r, "{clock: real, killline: {device_timeout_us: 100000}}");
        r.arrival_is_bound = bound;
        r.fake.during_step = stall_while_a_packet_comes;
        r.fake.rig = &r;
        r.n_frame_later = 1;
        open_market(&r);
        tick(&r, OPEN + 1000);
        assert_null(run(&r, &stats));
        assert_int_equal(stats.predictions, 2);
        assert_int_equal(verdict_of(&r, 0), VERDICT_STALE); /* the stall was its own inference */
        /* taken after the stall, it looks fresh; known to have come any time since the ring was last empty,
         * it is not */
        assert_int_equal(verdict_of(&r, 1), bound ? VERDICT_EXPECTED_LATE : VERDICT_PUBLISHED);
        for (unsigned i = 0; i < r.n_record; i++)
            if (r.record[i].prediction.kind == AUDIT_PREDICTION)
                assert_int_equal(r.record[i].prediction.arrival_clock,
                                 bound ? AUDIT_ARRIVAL_BOUND : AUDIT_ARRIVAL_TSC);
    }
}

static int set_up(void **state)
{
    (void)state;
    return !mkdtemp(folder) || port_init(error);
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_inferred_prepared_and_published),
        cmocka_unit_test(a_late_answer_costs_one_tick),
        cmocka_unit_test(a_late_answer_in_a_queue_costs_one_tick),
        cmocka_unit_test(a_silent_reset_is_recorded_as_silence),
        cmocka_unit_test(a_failed_prepare_is_recorded),
        cmocka_unit_test(implausible_answers_are_device_errors),
        cmocka_unit_test(a_step_that_the_kernel_did_not_begin_is_expected_late),
        cmocka_unit_test(prepares_are_left_to_the_backend_under_the_real_clock),
        cmocka_unit_test(state_ends_at_gaps_and_halts),
        cmocka_unit_test(a_backlog_declares_no_loss),
        cmocka_unit_test(an_idle_receiver_declares_the_loss_on_time),
        cmocka_unit_test(what_waited_in_the_ring_is_not_fresh),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
