/* The strongest property of the poll loop: under random faults of the device, overload, halts, gaps, ladder
 * moves, batches and superseding, every answer in the log is what the stream's state, as the log itself tells
 * it, makes of that tick. The device answers with the history of its stream; the check knows the log alone.
 */
#include "test_appliance_rig.h"

enum {
    N_RUN = 300,
    WARMUP = 3,    /* of both models */
    N_TICK = 1500, /* more than the other slot may be behind */
    FRAMES = 900,
};
#define T (OPEN + 20000000u) /* the window has seen the pause before it */

static struct appliance_rig r;
static struct appliance_stats stats;
static struct kl_image_header other_image;
static struct model other;
static uint64_t random_state;

static unsigned below(unsigned n)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ (z >> 31)) % n);
}

static int happens(unsigned per_million)
{
    return below(1000000) < per_million;
}

/* ---- the device ---- */

enum fault {
    NO_FAULT,
    GONE,           /* ACCEL_FAILED; the request is not taken */
    LOSES_STATE,    /* an error, and another state than before */
    WRONG_MODEL,    /* the rest: the step was made, the answer is not to be used */
    WRONG_CLASS,    /* ... of a class the model has not */
    WRONG_SEQ,      /* ... of another request */
    WRONG_ABI,      /* ... */
    WRONG_STATUS,   /* ... an error status */
    SILENT_FOREVER, /* ... and comes with the next request only */
    SILENT_A_WHILE,
    N_FAULT
};

static struct device {
    struct accel accel;                      /* first */
    struct kl_result answer[KL_QUEUE_DEPTH]; /* outstanding, oldest first */
    unsigned silent[KL_QUEUE_DEPTH];         /* polls until it comes */
    unsigned n;
    int is_running; /* a tick has come: a device that fails before is another test's */
    uint64_t state[KL_N_SLOT][KL_N_STREAM_MAX];
    unsigned fault_ppm, late_ppm, order_ppm;
} device;

static uint64_t mix(uint64_t state, uint64_t feature_hash)
{
    return (state * 31 + feature_hash) % 0xffffffffffff + 1;
}

static int device_submit(struct accel *accel, const struct kl_request *request)
{
    (void)accel;
    const enum fault fault =
        device.is_running && happens(device.fault_ppm) ? 1 + below(N_FAULT - 1) : NO_FAULT;
    device.is_running |= request->budget_cycles != 0;
    if (device.n == KL_QUEUE_DEPTH)
        return -1;
    if (fault == GONE)
        return ACCEL_FAILED;
    uint64_t *state = &device.state[request->slot][request->stream];
    struct kl_result result = {.abi_version = KL_ABI_VERSION,
                               .stream = request->stream,
                               .seq_no = request->seq_no,
                               .slot = request->slot,
                               .kernel_cycles = N_CYCLE + below(50),
                               .image_hash = IMAGE_HASH + request->slot,
                               .n_class = 3,
                               .logit_frac = 20};
    if (fault == LOSES_STATE) {
        result.status = KL_E_STATE;
        *state = below(1000);
    } else if (request->op == KL_OP_STEP && request->budget_cycles && happens(device.late_ppm)) {
        result.flags = KL_RESULT_LATE;
    } else if (request->op == KL_OP_STEP) {
        *state = mix(*state, features_hash(request->x, FEATURES_N));
        result.logits[0] = (int64_t)*state;
    } else if (request->op == KL_OP_RESET) {
        *state = 0;
    }
    result.image_hash += fault == WRONG_MODEL;
    result.cls = fault == WRONG_CLASS ? 3 : 0;
    result.seq_no += fault == WRONG_SEQ;
    result.abi_version += fault == WRONG_ABI;
    result.status = fault == WRONG_STATUS ? KL_E_EMPTY : result.status;
    for (unsigned i = 0; i < device.n; i++)
        device.silent[i] = device.silent[i] == UINT32_MAX ? 0 : device.silent[i];
    device.silent[device.n] = fault == SILENT_FOREVER   ? UINT32_MAX
                              : fault == SILENT_A_WHILE ? 200 + below(20000)
                                                        : 0;
    device.answer[device.n++] = result;
    return 0;
}

static int device_poll(struct accel *accel, struct kl_result *result)
{
    (void)accel;
    if (!device.n)
        return -1;
    if (device.is_running && happens(device.fault_ppm / 20)) { /* what was outstanding is gone */
        device.n = 0;
        return below(2) ? ACCEL_FAILED : -1;
    }
    if (device.silent[0]) {
        device.silent[0] -= device.silent[0] != UINT32_MAX;
        return 0;
    }
    *result = device.answer[0];
    device.n--;
    memmove(device.answer, device.answer + 1, device.n * sizeof(device.answer[0]));
    memmove(device.silent, device.silent + 1, device.n * sizeof(device.silent[0]));
    if (happens(device.order_ppm)) {
        const struct order order = {
            .kind = below(3) ? ORDER_RESUME : ORDER_HALT, .by = "anna", .reason = "drill"};
        order_post(&r.desk, &order); /* refused while one waits: a halt is in force all the same */
    }
    return 1;
}

static uint32_t device_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    (void)accel;
    (void)image;
    (void)size_bytes;
    memset(device.state[slot], 0, sizeof(device.state[slot]));
    return KL_OK;
}

static uint32_t device_load_advance(struct accel *accel)
{
    (void)accel;
    return below(5) ? KL_E_BUSY : KL_OK;
}

static const struct accel_ops device_ops = {.name = "device",
                                            .submit = device_submit,
                                            .poll = device_poll,
                                            .load_begin = device_load_begin,
                                            .load_advance = device_load_advance};

/* ---- what the log implies ---- */

/* Of a stream, from its records. */
static struct told {
    uint64_t hash[N_TICK + 64]; /* of the ticks that were inferred */
    unsigned n;
    unsigned reset, from; /* its last reset; the slot's state is of the ticks from there on */
    int slot;             /* of the last one; -1: none yet */
    uint64_t may_reset;   /* since then: a reason to start anew. 0: none */
    int must_reset;
} told[KL_N_STREAM_MAX];

static uint64_t history(const struct told *t, unsigned from)
{
    uint64_t state = 0;
    for (unsigned i = from; i < t->n; i++)
        state = mix(state, t->hash[i]);
    return state;
}

/* The tick from which on the answer is the stream's history, or t->n: there is none that the log allows. */
static unsigned begin_of(const struct told *t, const struct audit_prediction *p)
{
    const uint64_t answer = (uint64_t)p->logits[0];
    const unsigned last = t->n - 1;
    if (t->slot == p->slot && !t->must_reset && history(t, t->from) == answer)
        return t->from;
    if ((t->slot < 0 || t->may_reset || t->must_reset) && history(t, last) == answer)
        return last;
    /* The other slot's state may miss what came before some tick. */
    for (unsigned from = t->reset; t->slot != p->slot && !t->must_reset && from < last; from++)
        if (history(t, from) == answer)
            return from;
    return t->n;
}

static void check_inferred(struct told *t, const struct audit_prediction *p)
{
    t->hash[t->n++] = p->feature_hash;
    const unsigned from = begin_of(t, p);
    assert_true(from < t->n);
    assert_int_equal(p->verdict == VERDICT_WARMING_UP, t->n - from <= WARMUP);
    t->reset = from == t->n - 1 ? from : t->reset;
    t->from = from;
    t->slot = p->slot;
    t->must_reset = 0;
    if (p->decoded >= t->may_reset && p->submitted > t->may_reset) /* not one that came before the reason */
        t->may_reset = 0;
}

static void check_log(void)
{
    memset(told, 0, sizeof(told));
    for (unsigned i = 0; i < KL_N_STREAM_MAX; i++)
        told[i].slot = -1;
    for (unsigned i = 0; i < r.n_record; i++) {
        const struct audit_event *e = &r.record[i].event;
        const struct audit_prediction *p = &r.record[i].prediction;
        if (e->kind == AUDIT_EVENT && e->code == AUDIT_EVENT_DEVICE_ERROR)
            told[e->value[1]].may_reset = e->at;
        if (e->kind == AUDIT_EVENT && (e->code == AUDIT_EVENT_GAP || e->code == AUDIT_EVENT_TRADING_STATE))
            for (unsigned k = 0; k < KL_N_STREAM_MAX; k++)
                told[k].may_reset = e->at;
        if (p->kind != AUDIT_PREDICTION)
            continue;
        struct told *t = &told[p->stream];
        assert_int_equal(p->model_hash, IMAGE_HASH + p->slot);
        if (p->flags & AUDIT_FLAG_INFERRED) {
            check_inferred(t, p);
            continue;
        }
        assert_int_equal(p->logits[0], 0);
        if ((p->verdict == VERDICT_BOOK_UNRELIABLE || p->verdict == VERDICT_HALTED) &&
            p->decided > t->may_reset)
            t->may_reset = p->decided;
        t->must_reset |= p->verdict == VERDICT_DEVICE_ERROR;
    }
}

/* ---- a run ---- */

static void configure(int real)
{
    char settings[1024];
    const unsigned busy = 1 + below(60), few = below(2);
    snprintf(settings, sizeof(settings),
             "{clock: %s, join: {settle_ms: %u}, book: {orders: 5000, levels: 5000}, "
             "killline: {threshold_us: %u, device_timeout_us: %u, supersede: %s, keep_warm_us: %u}, "
             "replay: {frame_ns: %u, stall: {per_million: %u, max_us: %u, seed: %u}}, "
             "throttle: {device_errors: %u, halts: %u}, governor: {window_ms: %u, min_count: %u, "
             "warning: {dwell_ms: %u, busy_percent: {enter: %u, leave: %u}}, "
             "backup: {dwell_ms: %u, busy_percent: {enter: %u, leave: 0}, miss_ppm: {enter: %u, leave: 0}}, "
             "halted: {dwell_ms: %u, miss_ppm: {enter: %u, leave: 0}}}}",
             real ? "real" : "replay", 3 * below(2), 20 + below(980), 50 + below(300),
             below(2) ? "true" : "false", below(20), few ? 600 : 20000 + below(100000),
             below(2) ? below(300000) : 0, 1 + below(2000), below(1000), below(65), below(65), 8 + below(12),
             1 + below(200), below(4), busy, busy - 1, below(4), 1 + below(100), few ? 0 : 1 + below(500000),
             below(4), below(2) ? 0 : 1 + below(900000));
    start(&r, settings);
    r.config->killline.batch = 1 + below(KL_QUEUE_DEPTH);
    memset(&device, 0, sizeof(device));
    device.accel.ops = &device_ops;
    device.fault_ppm = below(3) ? 2000 + below(30000) : 0;
    device.late_ppm = below(2) ? below(100000) : 0;
    device.order_ppm = below(2) ? below(5000) : 0;
    r.accel = &device.accel;
    r.model.warmup_ticks = WARMUP;
    other_image = r.image;
    other_image.image_hash++;
    other = r.model;
    other.image = &other_image;
    if (below(4))
        r.backup = &other;
    else if (below(2))
        r.next_model = &other;
    r.switch_after = real ? 100000 : below(50000000);
}

static void feed(void)
{
    static const unsigned symbols[] = {1, 2, 3, 8, 30, KL_N_STREAM_MAX};
    const unsigned n_symbol = symbols[below(6)], pause_us = below(2) ? 30 : 1000, n_max = 1 + below(4) * 8,
                   chaos = below(2) ? 0 : below(60000);
    uint8_t halted[KL_N_STREAM_MAX + 1] = {0};
    uint64_t at = T;
    open_symbols(&r, n_symbol);
    for (unsigned n_tick = 0; r.n_frame < FRAMES && n_tick < N_TICK - n_max;) {
        struct itch_msg m[32];
        const unsigned n = 1 + below(n_max);
        for (unsigned i = 0; i < n; i++) {
            const unsigned locate = 1 + below(n_symbol);
            char name[9];
            snprintf(name, sizeof(name), "S%03u", locate % 1000);
            if (happens(chaos))
                m[i] = feed_state((uint16_t)locate, name, (halted[locate] ^= 1) ? 'H' : 'T', at);
            else
                m[i] = bid(&r, locate, at);
        }
        n_tick += n;
        r.seq += happens(chaos / 4) ? 1 + below(3) : 0; /* a gap */
        next_frame(&r, at, m, (int)n);
        at += below(4) ? below(pause_us * 1000) : below(3) ? 0 : below(pause_us * 20000);
    }
}

static void every_answer_is_what_the_log_implies(void **state)
{
    uint64_t published = 0, batched = 0, switched = 0, errors = 0, superseded = 0;
    (void)state;
    for (unsigned seed = 1; seed <= N_RUN; seed++) {
        random_state = seed;
        configure(seed % 3 == 0);
        feed();
        if (run(&r, &stats))
            fail_msg("seed %u: %s", seed, rig_error);
        unlink(r.path);
        assert_sums(&r, &stats);
        check_log();
        published += stats.verdicts[VERDICT_PUBLISHED];
        superseded += stats.verdicts[VERDICT_SUPERSEDED];
        batched += stats.batched;
        switched += stats.switched;
        errors += stats.device_errors;
    }
    /* It was about something. */
    assert_true(published > 5000 && superseded > 1000 && batched > 1000 && switched > 100 && errors > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_answer_is_what_the_log_implies)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
