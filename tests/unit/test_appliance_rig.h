/* What the tests of the poll loop share: a day's frames, made by hand, into a port; the appliance over an
 * accelerator that does what it is told (answers late, wrongly or never) or another one; the log read back.
 */
#ifndef TEST_APPLIANCE_RIG_H
#define TEST_APPLIANCE_RIG_H

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
#include "hls/kl_abi.h"
#include "host/appliance.h"

#define OPEN       34200000000000u
#define IMAGE_HASH 0x1122334455667788u
#define N_CYCLE    100 /* of every operation of the fake */

static const char session[MOLD_SESSION_BYTES] = "SESSION001";

/* ---- an accelerator on a string ---- */

enum misdeed {
    BEHAVES = 0,
    SILENT,        /* no answer before the next request comes */
    REFUSES,       /* KL_E_EMPTY */
    OTHER_IMAGE,   /* the answer of another model */
    OTHER_SLOT,    /* of the other slot */
    OTHER_STREAM,  /* of another symbol */
    CLASS_TOO_BIG, /* a class the model does not have */
    LATE,          /* not begun: over its budget */
    UNKNOWN_FLAG,
    FAILS_SUBMIT, /* ACCEL_FAILED, to the submit */
    FAILS_POLL,   /* to the poll; what was outstanding is gone */
};

enum { N_OP_MAX = 4096 };

struct appliance_rig;

struct fake {
    struct accel accel;                        /* first */
    struct kl_request request[KL_QUEUE_DEPTH]; /* outstanding, oldest first */
    unsigned nth[KL_QUEUE_DEPTH];              /* which of bad_op each of them is, from 1 */
    unsigned outstanding, depth;               /* depth: of its queue */
    unsigned deepest;                          /* most that ever were outstanding */
    int is_late;
    unsigned n_idle_poll;    /* with nothing outstanding: where a backend in the process prepares */
    enum kl_op op[N_OP_MAX]; /* all that were taken */
    unsigned n_op;
    enum kl_op bad_op; /* this operation ... */
    unsigned bad_nth;  /* ... the n-th time, from 1; 0: never */
    enum misdeed misdeed;
    unsigned n_bad_op; /* how often it has come */
    void (*during_step)(
        struct appliance_rig *r); /* called once, while the first step is at work; NULL: nothing */
    unsigned during_nth;          /* ... or while this many were before it */
    void (*answer)(struct appliance_rig *r, const struct kl_request *request,
                   struct kl_result *result); /* called with every answer that is fair; NULL: nothing */
    struct appliance_rig *rig;
};

static inline int fake_submit(struct accel *accel, const struct kl_request *request)
{
    struct fake *f = (struct fake *)(void *)accel;
    if (f->outstanding)
        f->is_late = 0; /* the late answer is there now */
    if (f->outstanding == f->depth)
        return -1;
    if (f->misdeed == FAILS_SUBMIT && request->op == f->bad_op && f->n_bad_op + 1 == f->bad_nth) {
        f->n_bad_op++;
        return ACCEL_FAILED;
    }
    assert_true(f->n_op < N_OP_MAX);
    f->op[f->n_op++] = (enum kl_op)request->op;
    f->n_bad_op += request->op == f->bad_op;
    f->nth[f->outstanding] = f->n_bad_op;
    f->request[f->outstanding++] = *request;
    f->deepest = f->outstanding > f->deepest ? f->outstanding : f->deepest;
    return 0;
}

static inline int fake_poll(struct accel *accel, struct kl_result *result)
{
    struct fake *f = (struct fake *)(void *)accel;
    if (!f->outstanding) {
        f->n_idle_poll++;
        return -1;
    }
    if (f->during_step && f->request[0].op == KL_OP_STEP && f->request[0].budget_cycles && /* no dummy */
        f->during_nth-- == 0) {
        f->during_step(f->rig);
        f->during_step = NULL;
    }
    int bad = f->request[0].op == f->bad_op && f->nth[0] == f->bad_nth;
    if (bad && f->misdeed == FAILS_POLL) {
        f->bad_nth = f->outstanding = 0;
        return ACCEL_FAILED;
    }
    if (bad && f->misdeed == SILENT) {
        f->bad_nth = 0;
        f->is_late = 1;
    }
    if (f->is_late)
        return 0;
    *result = (struct kl_result){.abi_version = KL_ABI_VERSION,
                                 .stream = f->request[0].stream,
                                 .seq_no = f->request[0].seq_no,
                                 .slot = f->request[0].slot,
                                 .kernel_cycles = N_CYCLE,
                                 .image_hash = IMAGE_HASH + f->request[0].slot,
                                 .n_class = 3,
                                 .cls = 1,
                                 .logit_frac = 20};
    if (bad && f->misdeed == REFUSES)
        result->status = KL_E_EMPTY;
    if (bad && f->misdeed == OTHER_IMAGE)
        result->image_hash++;
    if (bad && f->misdeed == OTHER_SLOT)
        result->slot ^= 1;
    if (bad && f->misdeed == OTHER_STREAM)
        result->stream++;
    if (bad && f->misdeed == CLASS_TOO_BIG)
        result->cls = 3;
    if (bad && f->misdeed == LATE) { /* cls and logits are 0, whatever it sends */
        result->flags = KL_RESULT_LATE;
        result->logits[1] = 77;
    }
    if (bad && f->misdeed == UNKNOWN_FLAG)
        result->flags = KL_RESULT_LATE | 2;
    else if (f->answer)
        f->answer(f->rig, &f->request[0], result);
    f->outstanding--;
    memmove(f->request, f->request + 1, f->outstanding * sizeof(f->request[0]));
    memmove(f->nth, f->nth + 1, f->outstanding * sizeof(f->nth[0]));
    return 1;
}

static const struct accel_ops fake_ops = {.name = "fake", .submit = fake_submit, .poll = fake_poll};

/* ---- an accelerator that keeps what it was asked ---- */

enum { N_ASKED_MAX = 1024 };

struct recorder {
    struct accel accel; /* first */
    struct accel *inner;
    struct kl_request asked[N_ASKED_MAX];
    unsigned n_asked;
};

static inline struct accel *inner_of(struct accel *accel)
{
    return ((struct recorder *)(void *)accel)->inner;
}

static inline int recorder_submit(struct accel *accel, const struct kl_request *request)
{
    struct recorder *k = (struct recorder *)(void *)accel;
    assert_true(k->n_asked < N_ASKED_MAX);
    k->asked[k->n_asked++] = *request;
    return k->inner->ops->submit(k->inner, request);
}

static inline int recorder_poll(struct accel *accel, struct kl_result *result)
{
    return inner_of(accel)->ops->poll(inner_of(accel), result);
}

static inline uint32_t recorder_load_begin(struct accel *accel, uint32_t slot, const void *image,
                                           size_t size_bytes)
{
    return inner_of(accel)->ops->load_begin(inner_of(accel), slot, image, size_bytes);
}

static inline uint32_t recorder_load_advance(struct accel *accel)
{
    return inner_of(accel)->ops->load_advance(inner_of(accel));
}

static const struct accel_ops recorder_ops = {.name = "recorder",
                                              .submit = recorder_submit,
                                              .poll = recorder_poll,
                                              .load_begin = recorder_load_begin,
                                              .load_advance = recorder_load_advance};

/* ---- a run ---- */

enum { N_FRAME_MAX = 1024, N_RECORD_MAX = 4096 };

struct appliance_rig {
    struct config *config;
    struct kl_image_header image;
    struct model model;
    struct fake fake;
    /* The rest is 0 after start(), and the test's to set. */
    struct accel *accel; /* model loaded; NULL: fake */
    struct accel *guard; /* accel, if it is one */
    const struct model *next_model, *backup;
    uint64_t switch_after;
    struct order_desk desk;
    const struct state_file *begins; /* how the last run was left; NULL: not known */
    double hz;                       /* of the TSC, as the appliance is told; 0: 2e9 */
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
static char rig_error[512];

static inline void start(struct appliance_rig *r, const char *settings)
{
    static int n;
    memset(r, 0, sizeof(*r));
    const struct config_layer layers[] = {
        {"fixed",
         "{egress: {device: net_null0}, join: {settle_ms: 0}, killline: {threshold_us: 999, "
         "device_timeout_us: 200, supersede: false, batch: 1, keep_warm_us: 0}, book: {orders: 1000, levels: "
         "1000}, audit: {ring_records: 256}}",
         0},
        {"test", settings, 0}};
    struct config_layer sized[2];
    for (int i = 0; i < 2; i++) {
        sized[i] = layers[i];
        sized[i].size_bytes = strlen(layers[i].text);
    }
    uint8_t sha256[CONFIG_SHA256_BYTES];
    r->config = config_parse(sized, 2, sha256, rig_error);
    if (!r->config)
        print_error("%s\n", rig_error);
    assert_non_null(r->config);
    r->image = (struct kl_image_header){.n_class = 3, .image_hash = IMAGE_HASH};
    r->model = (struct model){.n_feature = FEATURES_N, .image = &r->image};
    for (int i = 0; i < FEATURES_N; i++)
        r->model.feature[i].scale = 1;
    r->fake.accel.ops = &fake_ops;
    r->fake.depth = 1;
    r->fake.rig = r;
    r->rx = port_open_ring(rig_error);
    r->tx = port_open_tx(r->config->egress.device, "", rig_error);
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
    r->log = audit_open(&log, rig_error);
    if (!r->log)
        print_error("%s\n", rig_error);
    assert_non_null(r->log);
    r->seq = 1;
}

/* One packet; seq: of its first message. */
static inline void frame(struct appliance_rig *r, uint64_t at, uint64_t seq, const struct itch_msg *messages,
                         int n)
{
    feed_begin(&r->feed);
    for (int i = 0; i < n; i++)
        feed_add(&r->feed, &messages[i]);
    feed_frame(&r->feed, session, seq, (uint16_t)n, (uint32_t)FEED_GROUP_A);
    assert_int_equal(port_feed(r->rx, r->feed.frame, (uint32_t)r->feed.frame_len), 0);
    assert_true(r->n_frame < N_FRAME_MAX);
    r->stamps[r->n_frame++] = at;
}

static inline void next_frame(struct appliance_rig *r, uint64_t at, const struct itch_msg *messages, int n)
{
    frame(r, at, r->seq, messages, n);
    r->seq += (uint64_t)n;
}

static inline void open_market(struct appliance_rig *r)
{
    const struct itch_msg day[] = {feed_event('O', 1), feed_directory(7, "AAPL", 2),
                                   feed_state(7, "AAPL", 'T', 3), feed_event('Q', OPEN)};
    next_frame(r, OPEN, day, 4);
}

/* A new best bid: a tick. */
static inline struct itch_msg better_bid(struct appliance_rig *r, uint64_t ts)
{
    r->ref++;
    return feed_order(7, "AAPL", r->ref, 'B', 100, 1000000 + 100 * (uint32_t)r->ref, ts);
}

static inline void tick(struct appliance_rig *r, uint64_t at)
{
    const struct itch_msg m = better_bid(r, at);
    next_frame(r, at, &m, 1);
}

/* n symbols, locates 1 .. n, trade from here on. */
static inline void open_symbols(struct appliance_rig *r, unsigned n)
{
    struct itch_msg m[KL_N_STREAM_MAX / 8];
    m[0] = feed_event('O', 1);
    next_frame(r, OPEN, m, 1);
    for (unsigned locate = 1; locate <= n;) {
        int k = 0;
        for (; k < 30 && locate <= n; locate++) {
            char name[9];
            snprintf(name, sizeof name, "S%03u", locate % 1000);
            m[k++] = feed_directory((uint16_t)locate, name, 2);
            m[k++] = feed_state((uint16_t)locate, name, 'T', 3);
        }
        next_frame(r, OPEN, m, k);
    }
    m[0] = feed_event('Q', OPEN);
    next_frame(r, OPEN, m, 1);
}

/* A new best bid of one of them. */
static inline struct itch_msg bid(struct appliance_rig *r, unsigned locate, uint64_t ts)
{
    char name[9];
    snprintf(name, sizeof name, "S%03u", locate % 1000);
    r->ref++;
    return feed_order((uint16_t)locate, name, r->ref, 'B', 100, 1000000 + 100 * (uint32_t)r->ref, ts);
}

static inline void bid_frame(struct appliance_rig *r, unsigned locate, uint64_t at)
{
    const struct itch_msg m = bid(r, locate, at);
    next_frame(r, at, &m, 1);
}

/* Create, run, close, read the log; NULL or the message of appliance_create. */
static inline const char *run(struct appliance_rig *r, struct appliance_stats *stats)
{
    static const atomic_int never;
    struct appliance_config cfg = {.config = r->config,
                                   .model = &r->model,
                                   .accel = r->accel ? r->accel : &r->fake.accel,
                                   .guard = r->guard,
                                   .next_model = r->next_model,
                                   .backup = r->backup,
                                   .switch_after = r->switch_after,
                                   .desk = &r->desk,
                                   .start = r->begins,
                                   .log = r->log,
                                   .rx = r->rx,
                                   .tx = r->tx,
                                   .clock = {.hz = r->hz > 0 ? r->hz : 2e9},
                                   .stamps_ns = r->stamps,
                                   .arrival_is_bound = r->arrival_is_bound,
                                   .n_frame = r->n_frame + r->n_frame_later,
                                   .idle_limit_cycles = 4000000000u,
                                   .stop = &never};
    struct appliance *a = appliance_create(&cfg, rig_error);
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
        return rig_error;
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

static inline const struct audit_event *event_of(const struct appliance_rig *r, enum audit_event_code code)
{
    for (unsigned i = 0; i < r->n_record; i++)
        if (r->record[i].event.kind == AUDIT_EVENT && r->record[i].event.code == code)
            return &r->record[i].event;
    return NULL;
}

/* The n-th prediction, from 0. */
static inline const struct audit_prediction *prediction_of(const struct appliance_rig *r, unsigned n)
{
    for (unsigned i = 0; i < r->n_record; i++)
        if (r->record[i].prediction.kind == AUDIT_PREDICTION && n-- == 0)
            return &r->record[i].prediction;
    fail_msg("no such prediction");
    return NULL;
}

static inline unsigned verdict_of(const struct appliance_rig *r, unsigned n)
{
    return prediction_of(r, n)->verdict;
}

/* Every tick has one record, verdicts and events sum up, what was published has numbers without a gap. */
static inline void assert_sums(const struct appliance_rig *r, const struct appliance_stats *stats)
{
    uint64_t n = 0, verdicts[VERDICT_COUNT] = {0}, published = 0, alerts = 0, rungs = 0, thresholds = 0;
    for (unsigned i = 0; i < r->n_record; i++) {
        const struct audit_prediction *p = &r->record[i].prediction;
        const struct audit_event *e = &r->record[i].event;
        if (p->kind != AUDIT_PREDICTION) {
            alerts += e->code == AUDIT_EVENT_ALERT && e->value[1];
            rungs += e->code == AUDIT_EVENT_RUNG;
            thresholds += e->code == AUDIT_EVENT_THRESHOLD;
            continue;
        }
        for (unsigned k = 0; k < i; k++)
            assert_false(r->record[k].prediction.kind == AUDIT_PREDICTION &&
                         r->record[k].prediction.feed_seq_no == p->feed_seq_no &&
                         r->record[k].prediction.stream == p->stream);
        n++;
        verdicts[p->verdict]++;
        if (p->verdict == VERDICT_PUBLISHED) {
            assert_int_equal(p->publish_seq, ++published);
            assert_true(p->age_cycles <= p->threshold_cycles);
            assert_int_equal(p->flags & AUDIT_FLAG_AGE_UNKNOWN, 0);
            assert_true(audit_rung(p) != GOVERNOR_HALTED);
        } else {
            assert_int_equal(p->publish_seq, 0);
        }
    }
    assert_int_equal(n, stats->predictions);
    for (int v = 0; v < VERDICT_COUNT; v++)
        assert_int_equal(verdicts[v], stats->verdicts[v]);
    assert_int_equal(alerts, stats->alerts);
    assert_int_equal(rungs, stats->rung_changes);
    assert_int_equal(thresholds, stats->threshold_changes);
}

/* Of the symbol, the n-th, from 0. */
static inline const struct audit_prediction *prediction_at(const struct appliance_rig *r, unsigned locate,
                                                           unsigned n)
{
    for (unsigned i = 0; i < r->n_record; i++)
        if (r->record[i].prediction.kind == AUDIT_PREDICTION && r->record[i].prediction.locate == locate &&
            n-- == 0)
            return &r->record[i].prediction;
    fail_msg("no such prediction");
    return NULL;
}

static inline unsigned n_event(const struct appliance_rig *r, enum audit_event_code code)
{
    unsigned n = 0;
    for (unsigned i = 0; i < r->n_record; i++)
        n += r->record[i].event.kind == AUDIT_EVENT && r->record[i].event.code == code;
    return n;
}

/* The n-th event of the code, from 0. */
static inline const struct audit_event *event_at(const struct appliance_rig *r, enum audit_event_code code,
                                                 unsigned n)
{
    for (unsigned i = 0; i < r->n_record; i++)
        if (r->record[i].event.kind == AUDIT_EVENT && r->record[i].event.code == code && n-- == 0)
            return &r->record[i].event;
    fail_msg("no such event");
    return NULL;
}

/* What the accelerator was asked: S, P, R for step, prepare, reset. The start's own, steps and then resets,
 * are one of each. */
static inline const char *operations(const struct appliance_rig *r)
{
    static char text[N_OP_MAX + 1];
    unsigned n = 0, i = 0;
    while (i + 1 < r->fake.n_op && r->fake.op[i + 1] == KL_OP_STEP)
        i++;
    for (; i < r->fake.n_op; i++) {
        text[n++] = r->fake.op[i] == KL_OP_STEP ? 'S' : r->fake.op[i] == KL_OP_PREPARE ? 'P' : 'R';
        while (n == 2 && i + 1 < r->fake.n_op && r->fake.op[i + 1] == KL_OP_RESET)
            i++;
    }
    text[n] = '\0';
    return text;
}

/* Every answer in the log is what a kernel says that was asked the same, with all the time in the world.
 * images: per slot; NULL: none. */
static inline void assert_answers(const struct appliance_rig *r, const struct recorder *k,
                                  const struct kl_image_header *const images[KL_N_SLOT])
{
    struct accel *truth = accel_csim_open(&kl_build_small, 1);
    assert_non_null(truth);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        if (images[slot])
            assert_int_equal(accel_load(truth, slot, images[slot], images[slot]->size_bytes), KL_OK);
    unsigned at = 0;
    for (unsigned i = 0; i < k->n_asked; i++) {
        struct kl_request request = k->asked[i];
        struct kl_result result;
        request.budget_cycles = 0;
        assert_int_equal(truth->ops->submit(truth, &request), 0);
        assert_int_equal(truth->ops->poll(truth, &result), 1);
        while (at < r->n_record && (r->record[at].prediction.kind != AUDIT_PREDICTION ||
                                    !(r->record[at].prediction.flags & AUDIT_FLAG_INFERRED)))
            at++;
        const struct audit_prediction *p = &r->record[at].prediction;
        if (at == r->n_record || request.seq_no != p->request_seq)
            continue;
        assert_int_equal(request.op, KL_OP_STEP);
        assert_int_equal(request.slot, p->slot);
        assert_int_equal(request.stream, p->stream);
        assert_int_equal(features_hash(request.x, FEATURES_N), p->feature_hash);
        assert_int_equal(result.cls, p->cls);
        assert_int_equal(result.logit_frac, p->logit_frac);
        assert_memory_equal(result.logits, p->logits, sizeof p->logits);
        at++;
    }
    truth->ops->close(truth);
    for (; at < r->n_record; at++)
        assert_false(r->record[at].prediction.kind == AUDIT_PREDICTION &&
                     r->record[at].prediction.flags & AUDIT_FLAG_INFERRED);
}

static inline int set_up(void **state)
{
    (void)state;
    return !mkdtemp(folder) || port_init(rig_error);
}

static inline int tear_down(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

#endif
