/* The poll loop's other slot: a backup model that is stepped along in idle moments and takes over between two
 * ticks, and dummies that keep a device warm. Over a device whose answer is the history of its stream: what a
 * stream's state holds can be read from the log. */
#include "test_appliance_rig.h"
#include "tests/model_image.h"

#define T  (OPEN + 20000000u) /* the window has seen the pause before it */
#define MS 1000000u
enum {
    TAKE_NS = 120 + 60 + 400,
    IO_NS = 900,
    KERNEL_NS = N_CYCLE * 4,
    ANSWER_NS = IO_NS + KERNEL_NS + 150,
    TICK_NS = ANSWER_NS + KERNEL_NS,
    STANDBY_NS = IO_NS + KERNEL_NS + KERNEL_NS, /* step and prepare */
    WARMUP = 3,                                 /* of both models */
};

static struct appliance_rig r;
static struct appliance_stats stats;
static struct kl_image_header backup_image;
static struct model backup;

/* ---- a device with a memory ---- */

static struct {
    uint64_t state[KL_N_SLOT][KL_N_STREAM_MAX];
    unsigned n_dummy; /* steps without a budget in slot 0, after the warm-up */
    unsigned n_step;
    void (*at_dummy)(void);
} memory;

static uint64_t mix(uint64_t state, uint64_t feature_hash)
{
    return (state * 31 + feature_hash) % 0xffffffffffff + 1;
}

static void remember(struct appliance_rig *rig, const struct kl_request *request, struct kl_result *result)
{
    uint64_t *state = &memory.state[request->slot][request->stream];
    (void)rig;
    if (request->op == KL_OP_RESET)
        *state = 0;
    if (request->op != KL_OP_STEP)
        return;
    *state = mix(*state, features_hash(request->x, FEATURES_N));
    result->logits[0] = (int64_t)*state;
    memory.n_step++;
    if (request->budget_cycles || request->slot || memory.n_step <= 400)
        return;
    memory.n_dummy++;
    if (memory.at_dummy)
        memory.at_dummy();
}

static void begin(const char *settings, unsigned n_symbol)
{
    start(&r, settings);
    memset(&memory, 0, sizeof memory);
    backup_image = r.image;
    backup_image.image_hash = IMAGE_HASH + 1;
    r.model.warmup_ticks = WARMUP;
    backup = r.model;
    backup.image = &backup_image;
    r.backup = &backup;
    r.fake.answer = remember;
    r.fake.depth = KL_QUEUE_DEPTH;
    open_symbols(&r, n_symbol);
}

static void finish(void)
{
    const char *why = run(&r, &stats);
    if (why)
        fail_msg("%s", why);
    assert_sums(&r, &stats);
    for (unsigned i = 0; i < stats.predictions; i++)
        assert_int_equal(prediction_of(&r, i)->model_hash, IMAGE_HASH + prediction_of(&r, i)->slot);
}

/* Every answer, of whichever slot, is of all the stream's ticks since the n-th of its records; and every tick
 * was inferred. */
static void assert_whole_history(unsigned locate, unsigned n_tick, unsigned from)
{
    uint64_t state = 0;
    for (unsigned i = from; i < n_tick; i++) {
        const struct audit_prediction *p = prediction_at(&r, locate, i);
        state = mix(state, p->feature_hash);
        assert_true(p->flags & AUDIT_FLAG_INFERRED);
        assert_int_equal(p->logits[0], state);
        assert_int_equal(p->verdict, i - from < WARMUP ? VERDICT_WARMING_UP : VERDICT_PUBLISHED);
    }
}

/* ---- there and back ---- */

/* Rules with a tiny window: BACKUP while the loop is busy. A frame is heavy, and some bring no tick. */
static const char by_load[] =
    "{killline: {threshold_us: 999}, replay: {frame_ns: 100000}, governor: {window_ms: 8, min_count: 1000, "
    "warning: {dwell_ms: 4, busy_percent: {enter: 0, leave: 0}, resource_percent: {enter: 0, leave: 0}}, "
    "backup: {dwell_ms: 4, busy_percent: {enter: 40, leave: 25}, resource_percent: {enter: 0, leave: 0}, "
    "miss_ppm: {enter: 0, leave: 0}}, halted: {miss_ppm: {enter: 0, leave: 0}}}}";

static void a_day_there_and_back(unsigned n_symbol)
{
    uint64_t at = T;
    for (unsigned i = 0; i < 80; i++, at += MS) {
        bid_frame(&r, 1 + i % n_symbol, at);
        for (unsigned k = 0; k < (i >= 20 && i < 40 ? 5 : 0); k++) {
            const struct itch_msg m = feed_event('Q', at); /* no news, and no tick */
            next_frame(&r, at + MS / 4, &m, 1);
        }
    }
}

static void the_backup_takes_over_and_gives_back(void **state)
{
    (void)state;
    begin(by_load, 2);
    a_day_there_and_back(2);
    finish();
    unsigned by_slot[2] = {0}, changes = 0;
    for (unsigned i = 0; i < 80; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        by_slot[p->slot]++;
        changes += i >= 2 && p->slot != prediction_of(&r, i - 2)->slot;
        assert_int_equal(p->slot, audit_rung(p) >= GOVERNOR_BACKUP); /* from the next tick on */
    }
    assert_int_equal(changes, 4); /* two streams, there and back */
    assert_int_equal(stats.switched, 4);
    assert_true(by_slot[1] > 10 && by_slot[0] > 40);
    assert_int_equal(n_event(&r, AUDIT_EVENT_MODEL_SWITCH), 2);
    assert_int_equal(event_at(&r, AUDIT_EVENT_MODEL_SWITCH, 0)->value[0], 1);
    assert_int_equal(event_at(&r, AUDIT_EVENT_MODEL_SWITCH, 0)->value[1], IMAGE_HASH + 1);
    assert_int_equal(event_at(&r, AUDIT_EVENT_MODEL_SWITCH, 1)->value[0], 0);
    assert_int_equal(stats.standby_dropped, 0);
    assert_int_equal(stats.standby_steps, 80 - 1); /* the day ends before the last one */
    assert_whole_history(1, 40, 0);
    assert_whole_history(2, 40, 0);
}

/* After a halt of the symbol both slots begin anew. */
static void a_reset_is_one_in_both_slots(void **state)
{
    (void)state;
    begin(by_load, 1);
    for (unsigned i = 0; i < 10; i++)
        bid_frame(&r, 1, T + i * MS);
    const struct itch_msg halt[] = {feed_state(1, "S001", 'H', T + 9 * MS + MS / 2),
                                    feed_state(1, "S001", 'T', T + 9 * MS + MS / 2)};
    next_frame(&r, T + 9 * MS + MS / 2, halt, 2);
    for (unsigned i = 10; i < 60; i++) {
        bid_frame(&r, 1, T + i * MS);
        for (unsigned k = 0; k < (i >= 15 && i < 30 ? 5 : 0); k++) {
            const struct itch_msg m = feed_event('Q', T);
            next_frame(&r, T + i * MS + MS / 4, &m, 1);
        }
    }
    finish();
    assert_int_equal(stats.switched, 2);
    assert_whole_history(1, 60, 10);
}

/* Starts at BACKUP: the streams start there, the primary model is the one that is stepped along. */
static void a_start_at_backup(void **state)
{
    const struct state_file begins = {.rung = GOVERNOR_BACKUP, .cause = GOVERNOR_BY_RESTART};
    (void)state;
    begin(by_load, 1);
    r.begins = &begins;
    for (unsigned i = 0; i < 30; i++)
        bid_frame(&r, 1, T + i * MS);
    finish();
    assert_int_equal(prediction_of(&r, 0)->slot, 1);
    assert_int_equal(prediction_of(&r, 29)->slot, 0);
    assert_int_equal(stats.switched, 1);
    assert_whole_history(1, 30, 0);
}

/* ---- what it costs ---- */

/* A tick that comes when a step of the other slot has just begun waits for that one, however many are due. */
static void a_tick_waits_for_one_step(void **state)
{
    (void)state;
    begin("{}", 4);
    for (unsigned i = 1; i <= 3; i++)
        bid_frame(&r, i, T);
    const uint64_t done = T + 3 * (TAKE_NS + TICK_NS - 150); /* nothing is published while it warms up */
    bid_frame(&r, 4, done + 1);
    finish();
    const struct audit_prediction *p = prediction_at(&r, 4, 0);
    assert_int_equal(p->arrival, done + 1);
    assert_int_equal(p->decoded, done + STANDBY_NS + 120 + 60);
    assert_int_equal(stats.standby_steps, 1); /* the rest is due when the day ends */
}

static unsigned n_until_halt;

static void remember_and_halt(struct appliance_rig *rig, const struct kl_request *request,
                              struct kl_result *result)
{
    static const struct order order = {.kind = ORDER_HALT, .by = "anna", .reason = "drill"};
    remember(rig, request, result);
    if (request->op == KL_OP_STEP && request->budget_cycles && n_until_halt && !--n_until_halt)
        assert_int_equal(order_post(&rig->desk, &order), 0);
}

static uint64_t history(const uint64_t *hash, unsigned from, unsigned n)
{
    uint64_t state = 0;
    for (unsigned k = from; k < n; k++)
        state = mix(state, hash[k]);
    return state;
}

/* While ticks come without a pause no step is made for the backup. What does not fit is dropped: the stream
 * starts anew there, and goes over when it is warm again. */
static void a_backlog_of_steps_is_bounded(void **state)
{
    enum { N = 1500, STEPS_MAX = 1024, LATER = 40, HALT = 20 };
    static uint64_t hash[N + LATER];
    (void)state;
    begin("{killline: {threshold_us: 999}, governor: {min_count: 100000, backup: {busy_percent: {enter: 0, "
          "leave: 0}, resource_percent: {enter: 0, leave: 0}}}}",
          2);
    r.fake.answer = remember_and_halt;
    n_until_halt = N + HALT;
    r.config->book.orders = r.config->book.levels = 2 * N;
    /* Two ticks a frame, in exactly the time that they take. */
    const uint64_t both = 120 + 2 * 60 + 2 * 400 + 2 * TICK_NS;
    for (unsigned i = 0; i < N / 2; i++) {
        const struct itch_msg m[] = {bid(&r, 1, T), bid(&r, 2, T)};
        next_frame(&r, T + i * both, m, 2);
    }
    const uint64_t calm = T + N / 2 * both + 10 * MS;
    for (unsigned i = 0; i < LATER; i++)
        bid_frame(&r, 1, calm + i * MS);
    finish();
    assert_int_equal(stats.predictions, N + LATER);
    assert_true(stats.standby_dropped > 0 && stats.standby_dropped <= N - STEPS_MAX);
    /* No tick is without its prediction for it. The halt's slot is the backup's, whose answers are of all
     * ticks since the stream started anew there. */
    unsigned n = 0, n_backup = 0;
    for (unsigned i = 0; i < stats.predictions; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        assert_int_equal(p->verdict, i < 2 * WARMUP      ? VERDICT_WARMING_UP
                                     : i < N + HALT - 1u ? VERDICT_PUBLISHED
                                                         : VERDICT_HALTED);
        assert_int_equal(p->slot, i >= N + HALT);
        if (p->locate != 1)
            continue;
        hash[n++] = p->feature_hash;
        unsigned from = 0;
        while (p->slot && from < n && (int64_t)history(hash, from, n) != p->logits[0])
            from++;
        assert_int_equal(history(hash, from, n), p->logits[0]);
        assert_true(!p->slot || (from > 0 && from < N / 2 + HALT - WARMUP));
        n_backup += p->slot;
    }
    assert_int_equal(n_backup, LATER - HALT);
}

/* The order to go over comes while steps are due there: the stream goes when they are made, two with every
 * tick, since there is no idle moment. */
static void a_stream_goes_over_when_nothing_is_due(void **state)
{
    enum { CALM = 10, HALT = 10, N = 60 };
    (void)state;
    begin("{governor: {min_count: 100000, backup: {busy_percent: {enter: 0, leave: 0}}}}", 1);
    r.fake.answer = remember_and_halt;
    n_until_halt = CALM + HALT;
    for (unsigned i = 0; i < N; i++)
        bid_frame(&r, 1, i < CALM ? T + i * MS : T + CALM * MS + (i - CALM) * (TAKE_NS + TICK_NS));
    finish();
    uint64_t hash[N];
    unsigned first = N;
    for (unsigned i = 0; i < N; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        hash[i] = p->feature_hash;
        assert_int_equal(p->logits[0], history(hash, 0, i + 1));
        first = p->slot && i < first ? i : first;
        assert_int_equal(p->slot, i >= first);
    }
    /* HALT steps, or one less, are due; one of every tick's two is its own. */
    assert_true(first >= CALM + HALT + HALT - 2 && first <= CALM + HALT + HALT + 1);
}

/* The same when, after a long load without an idle moment, no more steps fit into the queue: that is when the
 * ladder calls for the backup. */
static void streams_go_over_from_a_full_queue(void **state)
{
    enum { N = 1700, HALT = 1300, SOON = 100 };
    (void)state;
    begin("{killline: {threshold_us: 999}, governor: {min_count: 100000, backup: {busy_percent: {enter: 0, "
          "leave: 0}, resource_percent: {enter: 0, leave: 0}}}}",
          2);
    r.fake.answer = remember_and_halt;
    n_until_halt = HALT;
    r.config->book.orders = r.config->book.levels = 2 * N;
    const uint64_t both = 120 + 2 * 60 + 2 * 400 + 2 * TICK_NS;
    for (unsigned i = 0; i < N / 2; i++) {
        const struct itch_msg m[] = {bid(&r, 1, T), bid(&r, 2, T)};
        next_frame(&r, T + i * both, m, 2);
    }
    finish();
    assert_true(stats.standby_dropped > 0);
    assert_int_equal(stats.switched, 2);
    unsigned n_backup = 0;
    for (unsigned i = 0; i < stats.predictions; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        assert_true(i >= HALT || !p->slot);
        assert_true(i < HALT + SOON || p->slot || !(p->flags & AUDIT_FLAG_INFERRED));
        n_backup += p->slot;
    }
    assert_true(n_backup > SOON);
}

/* ---- two real models ---- */

static struct recorder recorder;
static struct kl_image_header *image[2];

/* order: which of the two is in slot 0; the other one is the backup, if there is to be one. */
static void begin_real_models(unsigned first, int with_backup)
{
    static const struct model_image_shape shapes[2] = {
        {.n_in = FEATURES_N, .n_layer = 2, .n_class = 3, .n_hidden = {12, 9}},
        {.n_in = FEATURES_N, .n_layer = 1, .n_class = 3, .n_hidden = {16}}};
    start(&r, by_load);
    for (unsigned m = 0; m < 2; m++) {
        image[m] = model_image_new(&shapes[m], 5 + m);
        assert_non_null(image[m]);
    }
    backup = r.model;
    r.model.image = image[first];
    backup.image = image[!first];
    r.backup = with_backup ? &backup : NULL;
    memset(&recorder, 0, sizeof recorder);
    recorder.accel.ops = &recorder_ops;
    recorder.inner = accel_csim_open(&kl_build_small, 1);
    assert_non_null(recorder.inner);
    assert_int_equal(accel_load(recorder.inner, 0, r.model.image, r.model.image->size_bytes), KL_OK);
    if (with_backup)
        assert_int_equal(accel_load(recorder.inner, 1, backup.image, backup.image->size_bytes), KL_OK);
    r.accel = &recorder.accel;
    open_symbols(&r, 2);
}

static void end_real_models(int with_backup)
{
    const uint64_t hash[2] = {r.model.image->image_hash, backup.image->image_hash};
    const char *why = run(&r, &stats);
    if (why)
        fail_msg("%s", why);
    assert_sums(&r, &stats);
    assert_answers(
        &r, &recorder,
        (const struct kl_image_header *const[KL_N_SLOT]){r.model.image, with_backup ? backup.image : NULL});
    for (unsigned i = 0; i < stats.predictions; i++)
        assert_int_equal(prediction_of(&r, i)->model_hash, hash[prediction_of(&r, i)->slot]);
    recorder.inner->ops->close(recorder.inner);
    free(image[0]);
    free(image[1]);
}

/* Each slot's answers are those of its model alone that saw every tick from the start, to the bit. */
static void each_slot_answers_as_if_it_were_alone(void **state)
{
    static struct appliance_rig alone[2];
    (void)state;
    for (unsigned m = 0; m < 2; m++) {
        begin_real_models(m, 0);
        a_day_there_and_back(2);
        end_real_models(0);
        alone[m] = r;
    }
    begin_real_models(0, 1);
    a_day_there_and_back(2);
    end_real_models(1);
    unsigned by_slot[2] = {0};
    for (unsigned i = 0; i < 80; i++) {
        const struct audit_prediction *p = prediction_of(&r, i), *q = prediction_of(&alone[p->slot], i);
        by_slot[p->slot]++;
        assert_int_equal(p->verdict, VERDICT_PUBLISHED);
        assert_int_equal(p->feature_hash, q->feature_hash);
        assert_int_equal(p->cls, q->cls);
        assert_memory_equal(p->logits, q->logits, sizeof p->logits);
    }
    assert_true(by_slot[1] > 10 && by_slot[0] > 40);
    assert_int_equal(stats.switched, 4);
}

/* ---- dummies ---- */

static void ticks_of_all(void)
{
    enum { IN_FRAME = 32 };
    if (memory.n_dummy != 20)
        return;
    for (unsigned locate = 1; locate <= KL_N_STREAM_MAX; locate += IN_FRAME) {
        struct itch_msg m[IN_FRAME];
        for (unsigned k = 0; k < IN_FRAME; k++)
            m[k] = bid(&r, locate + k, T);
        next_frame(&r, T, m, IN_FRAME);
    }
}

/* Streams that dummies have used start from nothing when a symbol reaches them; and then none are used any
 * more. */
static void a_stream_that_a_dummy_used_starts_from_nothing(void **state)
{
    (void)state;
    begin("{clock: real, killline: {supersede: true, keep_warm_us: 1, device_timeout_us: 1000000}}",
          KL_N_STREAM_MAX);
    r.config->killline.batch = 4;
    r.hz = 2e11; /* the line is a hundred times as far away */
    memory.at_dummy = ticks_of_all;
    r.n_frame_later = KL_N_STREAM_MAX / 32;
    finish();
    assert_true(stats.kept_warm >= 20);
    assert_int_equal(stats.predictions, KL_N_STREAM_MAX);
    for (unsigned i = 0; i < KL_N_STREAM_MAX; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        if (p->flags & AUDIT_FLAG_INFERRED)
            assert_int_equal(p->logits[0], mix(0, p->feature_hash));
    }
    assert_true(prediction_of(&r, KL_N_STREAM_MAX - 1)->flags & AUDIT_FLAG_INFERRED);
}

static void one_more_tick(void)
{
    if (memory.n_dummy == 30)
        bid_frame(&r, 1, T);
}

/* The device fails in a dummy: an event, and a fault of the device's; no tick has to do with it. */
static void a_device_may_fail_in_a_dummy(void **state)
{
    (void)state;
    begin("{clock: real, killline: {keep_warm_us: 1, device_timeout_us: 1000000}}", 1);
    r.hz = 2e11;
    r.fake.bad_op = KL_OP_STEP;
    r.fake.bad_nth = 400 + 5;
    r.fake.misdeed = REFUSES;
    memory.at_dummy = one_more_tick;
    r.n_frame_later = 1;
    finish();
    assert_int_equal(stats.device_errors, 1);
    assert_int_equal(n_event(&r, AUDIT_EVENT_DEVICE_ERROR), 1);
    const struct audit_event *e = event_of(&r, AUDIT_EVENT_DEVICE_ERROR);
    assert_int_equal(e->value[0], KL_E_EMPTY);
    assert_true(e->value[1] >= KL_N_STREAM_MAX - 8);
    assert_int_equal(verdict_of(&r, 0), VERDICT_WARMING_UP);
    assert_int_equal(prediction_of(&r, 0)->stream, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_backup_takes_over_and_gives_back),
        cmocka_unit_test(a_reset_is_one_in_both_slots),
        cmocka_unit_test(a_start_at_backup),
        cmocka_unit_test(a_tick_waits_for_one_step),
        cmocka_unit_test(a_backlog_of_steps_is_bounded),
        cmocka_unit_test(a_stream_goes_over_when_nothing_is_due),
        cmocka_unit_test(streams_go_over_from_a_full_queue),
        cmocka_unit_test(each_slot_answers_as_if_it_were_alone),
        cmocka_unit_test(a_stream_that_a_dummy_used_starts_from_nothing),
        cmocka_unit_test(a_device_may_fail_in_a_dummy),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
