/* The poll loop while a second model is loaded beside the running one and takes over: no tick without a
 * prediction, and every answer is of the model that the log names. Over csim, which is asked the same again
 * afterwards. */
#include "test_appliance_rig.h"
#include "tests/model_image.h"

/* Two streams in turn, SPACING ns apart; AFTER ns after the first frame the load begins: before tick LOADED.
 */
enum { N_TICK = 60, WARMUP_OLD = 3, WARMUP_NEW = 5, LOADED = 20 };
#define SPACING 1000000u
#define AFTER   (LOADED * SPACING + SPACING / 2)

struct device {
    struct recorder recorder; /* first */
    uint32_t begin_status;    /* not KL_OK: what the next n_bad_begin begins answer */
    unsigned n_bad_begin, n_begin, n_advance;
    unsigned loaded_at;           /* asked before the load has ended */
    unsigned n_since, most_since; /* advances since the last request; the most there were at one */
    void (*when_loaded)(void);    /* NULL: nothing */
};

static struct change {
    struct appliance_rig r;
    struct appliance_stats stats;
    struct device device;
    struct kl_image_header *image[2];
    struct model next;
} change, only_old, only_new;

static struct device *device_of(struct accel *accel)
{
    return (struct device *)(void *)accel;
}

static int device_submit(struct accel *accel, const struct kl_request *request)
{
    struct device *d = device_of(accel);
    d->most_since = d->n_since > d->most_since ? d->n_since : d->most_since;
    d->n_since = 0;
    return recorder_submit(accel, request);
}

static uint32_t device_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    struct device *d = device_of(accel);
    d->n_begin++;
    if (d->n_bad_begin) {
        d->n_bad_begin--;
        return d->begin_status;
    }
    return recorder_load_begin(accel, slot, image, size_bytes);
}

static uint32_t device_load_advance(struct accel *accel)
{
    struct device *d = device_of(accel);
    const uint32_t status = recorder_load_advance(accel);
    d->n_advance++;
    d->n_since++;
    if (status != KL_E_BUSY) {
        d->loaded_at = d->recorder.n_asked;
        d->n_since = 0; /* only those that a tick of the ring waited behind count */
        if (d->when_loaded)
            d->when_loaded();
    }
    return status;
}

static const struct accel_ops device_ops = {.name = "device",
                                            .submit = device_submit,
                                            .poll = recorder_poll,
                                            .load_begin = device_load_begin,
                                            .load_advance = device_load_advance};

/* ---- a day ---- */

/* Loads image first into slot 0; next: the other one is to follow it. */
static void begin_day(struct change *c, const char *settings, int first, int next)
{
    static const struct model_image_shape shapes[2] = {
        {.n_in = FEATURES_N, .n_layer = 1, .n_class = 3, .n_hidden = {16}},
        {.n_in = FEATURES_N, .n_layer = 2, .n_class = 3, .n_hidden = {12, 9}}};
    struct model models[2];
    memset(c, 0, sizeof *c);
    start(&c->r, settings);
    for (int m = 0; m < 2; m++) {
        c->image[m] = model_image_new(&shapes[m], 5 + (uint64_t)m);
        assert_non_null(c->image[m]);
        models[m] = (struct model){
            .n_feature = FEATURES_N, .image = c->image[m], .warmup_ticks = m ? WARMUP_NEW : WARMUP_OLD};
        for (int i = 0; i < FEATURES_N; i++)
            models[m].feature[i] = (struct model_feature){.mean = m ? 0.25f : 0, .scale = m ? 0.5f : 1};
    }
    c->r.model = models[first];
    c->next = models[!first];
    if (next)
        c->r.next_model = &c->next;
    c->r.switch_after = AFTER;
    c->device.recorder.accel.ops = &device_ops;
    c->device.recorder.inner = accel_csim_open(&kl_build_small, 1);
    assert_non_null(c->device.recorder.inner);
    c->r.accel = &c->device.recorder.accel;
    assert_int_equal(accel_load(c->device.recorder.inner, 0, c->image[first], c->image[first]->size_bytes),
                     KL_OK);
    const struct itch_msg open[] = {
        feed_event('O', 1),           feed_directory(7, "AAPL", 2),  feed_state(7, "AAPL", 'T', 3),
        feed_directory(8, "MSFT", 4), feed_state(8, "MSFT", 'T', 5), feed_event('Q', OPEN)};
    next_frame(&c->r, OPEN, open, 6);
}

/* with_next: what the second slot was asked is checked too. */
static void end_day(struct change *c, int with_next)
{
    const char *why = run(&c->r, &c->stats);
    if (why)
        fail_msg("%s", why);
    const struct kl_image_header *const images[KL_N_SLOT] = {c->r.model.image,
                                                             with_next ? c->next.image : NULL};
    assert_answers(&c->r, &c->device.recorder, images);
    c->device.recorder.inner->ops->close(c->device.recorder.inner);
    free(c->image[0]);
    free(c->image[1]);
}

static void quote(struct appliance_rig *r, uint16_t locate, uint64_t at)
{
    const uint32_t n = (uint32_t)++r->ref;
    const int buys = n / 2 % 2;
    const struct itch_msg m =
        feed_order(locate, locate == 7 ? "AAPL" : "MSFT", n, buys ? 'B' : 'S', 100 + 37 * n % 900,
                   buys ? 1000000 + 100 * n : 1200000 - 100 * n, at);
    next_frame(r, at, &m, 1);
}

static uint64_t time_of(unsigned i)
{
    return OPEN + (i + 1) * SPACING;
}

static uint16_t locate_of(unsigned i)
{
    return i % 2 ? 8 : 7;
}

static void quotes(struct change *c, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        quote(&c->r, locate_of(i), time_of(i));
}

/* The same ticks on one model alone: what x a step of it has to have. */
static void single_days(void)
{
    begin_day(&only_old, "{}", 0, 0);
    quotes(&only_old, 0, N_TICK);
    end_day(&only_old, 0);
    begin_day(&only_new, "{}", 1, 0);
    quotes(&only_new, 0, N_TICK);
    end_day(&only_new, 0);
    for (unsigned i = 0; i < N_TICK; i++)
        assert_true(prediction_of(&only_old.r, i)->feature_hash !=
                    prediction_of(&only_new.r, i)->feature_hash);
}

static uint64_t hash_of(unsigned slot, unsigned i)
{
    return prediction_of(slot ? &only_new.r : &only_old.r, i)->feature_hash;
}

/* The n-th event of the code, from 0; NULL: none. */
static const struct audit_event *nth_event(const struct appliance_rig *r, enum audit_event_code code,
                                           unsigned n)
{
    for (unsigned i = 0; i < r->n_record; i++)
        if (r->record[i].event.kind == AUDIT_EVENT && r->record[i].event.code == code && n-- == 0)
            return &r->record[i].event;
    return NULL;
}

static unsigned n_asked(const struct device *d, enum kl_op op, unsigned slot, unsigned stream, unsigned from)
{
    unsigned n = 0;
    for (unsigned i = from; i < d->recorder.n_asked; i++) {
        const struct kl_request *q = &d->recorder.asked[i];
        n += q->op == op && q->slot == slot && q->stream == stream;
    }
    return n;
}

/* The second load is told, at this moment and with this status. */
static void assert_load(uint64_t at, uint32_t status)
{
    const struct audit_event *first = nth_event(&change.r, AUDIT_EVENT_MODEL_LOAD, 0),
                             *e = nth_event(&change.r, AUDIT_EVENT_MODEL_LOAD, 1),
                             *over = event_of(&change.r, AUDIT_EVENT_MODEL_SWITCH);
    assert_non_null(first);
    assert_int_equal(first->value[0], 0);
    assert_non_null(e);
    assert_null(nth_event(&change.r, AUDIT_EVENT_MODEL_LOAD, 2));
    assert_int_equal(e->at, at);
    assert_int_equal(e->value[0], 1);
    assert_true(e->value[1] != 0 && e->value[1] != first->value[1]);
    assert_int_equal(e->value[2], status);
    assert_memory_equal(e->symbol, "        ", 8);
    if (status != KL_OK) {
        assert_null(over);
        return;
    }
    assert_non_null(over);
    assert_int_equal(over->at, at);
    assert_int_equal(over->value[0], 1);
    assert_int_equal(over->value[1], e->value[1]);
    assert_null(nth_event(&change.r, AUDIT_EVENT_MODEL_SWITCH, 1));
}

/* ---- */

static void every_stream_goes_over_without_missing_a_tick(void **state)
{
    (void)state;
    const uint64_t frame_ns = 1000;
    single_days();
    begin_day(&change, "{replay: {frame_ns: 1000}}", 0, 1);
    const uint64_t next_hash = change.next.image->image_hash;
    quotes(&change, 0, N_TICK);
    end_day(&change, 1);
    assert_int_equal(change.device.n_begin, 1);
    assert_load(time_of(LOADED) + frame_ns, KL_OK);
    assert_int_equal(event_of(&change.r, AUDIT_EVENT_MODEL_SWITCH)->value[1], next_hash);
    assert_int_equal(change.stats.switched, 2);
    assert_int_equal(change.stats.device_errors, 0);

    /* Stream s: WARMUP_NEW ticks in both slots, the old one's answers count; from then on the new one's. */
    const unsigned first_new = LOADED + 2 * WARMUP_NEW;
    for (unsigned i = 0; i < N_TICK; i++) {
        const struct audit_prediction *p = prediction_of(&change.r, i);
        assert_int_equal(p->stream, i % 2);
        assert_int_equal(p->slot, i >= first_new);
        assert_int_equal(p->verdict, i / 2 < WARMUP_OLD ? VERDICT_WARMING_UP : VERDICT_PUBLISHED);
        assert_int_equal(p->feature_hash, hash_of(p->slot, i));
        if (i < first_new)
            assert_memory_equal(p->logits, prediction_of(&only_old.r, i)->logits, sizeof p->logits);
    }
    assert_int_equal(change.stats.verdicts[VERDICT_PUBLISHED], N_TICK - 2 * WARMUP_OLD);

    /* And of the new slot's steps that nobody sees every x is the new model's, of each tick since the load.
     */
    unsigned i[2] = {0, 0};
    const struct device *d = &change.device;
    for (unsigned k = d->loaded_at; k < d->recorder.n_asked; k++) {
        const struct kl_request *q = &d->recorder.asked[k];
        if (q->op != KL_OP_STEP || q->slot != 1)
            continue;
        assert_int_equal(features_hash(q->x, FEATURES_N),
                         hash_of(1, LOADED + 2 * i[q->stream]++ + q->stream));
        assert_true(q->budget_cycles == 0 || i[q->stream] > WARMUP_NEW);
    }
    for (unsigned s = 0; s < 2; s++) {
        assert_int_equal(i[s], (N_TICK - LOADED) / 2);
        assert_int_equal(n_asked(d, KL_OP_STEP, 0, s, d->loaded_at), WARMUP_NEW);
        assert_int_equal(n_asked(d, KL_OP_PREPARE, 1, s, 0), i[s]);
        assert_int_equal(n_asked(d, KL_OP_RESET, 1, s, 0), 0);
    }
}

/* Halted while it warms up in the new slot: what it has there is of a market that has passed. It starts anew,
 * on the new model. */
static void a_stream_that_is_reset_meanwhile_starts_on_the_new_model(void **state)
{
    enum { HALTED = LOADED + 4 }; /* stream 0 has made two steps there */
    (void)state;
    begin_day(&change, "{}", 0, 1);
    quotes(&change, 0, HALTED);
    const uint64_t at = time_of(HALTED) - SPACING / 2;
    const struct itch_msg halt[] = {feed_state(7, "AAPL", 'H', at), feed_state(7, "AAPL", 'T', at)};
    next_frame(&change.r, at, halt, 2);
    quotes(&change, HALTED, N_TICK);
    end_day(&change, 1);
    for (unsigned i = LOADED; i < N_TICK; i++) {
        const struct audit_prediction *p = prediction_of(&change.r, i);
        const unsigned n = (i - HALTED) / 2; /* since the halt */
        const int anew = i % 2 == 0 && i >= HALTED;
        assert_int_equal(p->verdict, anew && n < WARMUP_NEW ? VERDICT_WARMING_UP : VERDICT_PUBLISHED);
        assert_int_equal(p->slot, anew || i >= LOADED + 2 * WARMUP_NEW);
    }
    assert_int_equal(change.stats.switched, 1); /* the other one */
    assert_int_equal(n_asked(&change.device, KL_OP_RESET, 1, 0, 0), 1);
    assert_int_equal(n_asked(&change.device, KL_OP_STEP, 0, 0, change.device.loaded_at), 2);
    assert_int_equal(n_asked(&change.device, KL_OP_STEP, 1, 0, 0), (N_TICK - LOADED) / 2);
}

static void a_stream_that_starts_later_starts_on_the_new_model(void **state)
{
    (void)state;
    begin_day(&change, "{}", 0, 1);
    for (unsigned i = 0; i < N_TICK; i++)
        quote(&change.r, i < LOADED + 2 ? 7 : locate_of(i), time_of(i));
    end_day(&change, 1);
    unsigned n = 0;
    for (unsigned i = 0; i < N_TICK; i++) {
        const struct audit_prediction *p = prediction_of(&change.r, i);
        if (p->stream == 0)
            continue;
        assert_int_equal(p->slot, 1);
        assert_int_equal(p->verdict, n++ < WARMUP_NEW ? VERDICT_WARMING_UP : VERDICT_PUBLISHED);
    }
    assert_true(n > WARMUP_NEW);
    assert_int_equal(change.stats.switched, 1);
    assert_int_equal(n_asked(&change.device, KL_OP_STEP, 0, 1, 0), 0);
}

/* The old model goes on as if nothing had been asked for. */
static void a_model_that_is_refused_changes_nothing(void **state)
{
    (void)state;
    single_days();
    for (int at_begin = 0; at_begin < 2; at_begin++) {
        begin_day(&change, "{replay: {frame_ns: 1000}}", 0, 1);
        if (at_begin) {
            change.device.begin_status = KL_E_SLOT;
            change.device.n_bad_begin = 1;
        } else {
            change.image[1]->image_hash ^= 1;
        }
        quotes(&change, 0, N_TICK);
        end_day(&change, 0);
        assert_load(time_of(LOADED) + 1000, at_begin ? KL_E_SLOT : KL_E_IMAGE_HASH);
        assert_int_equal(change.device.n_begin, 1);
        assert_int_equal(change.stats.switched, 0);
        assert_int_equal(change.stats.device_errors, 1);
        for (unsigned i = 0; i < N_TICK; i++) {
            const struct audit_prediction *p = prediction_of(&change.r, i),
                                          *q = prediction_of(&only_old.r, i);
            assert_int_equal(p->slot, 0);
            assert_int_equal(p->verdict, q->verdict);
            assert_memory_equal(p->logits, q->logits, sizeof p->logits);
        }
        for (unsigned s = 0; s < 2; s++)
            assert_int_equal(n_asked(&change.device, KL_OP_STEP, 1, s, 0), 0);
    }
}

/* A card that is loading something else: no refusal. */
static void a_busy_device_is_asked_again(void **state)
{
    (void)state;
    begin_day(&change, "{replay: {frame_ns: 1000}}", 0, 1);
    change.device.begin_status = KL_E_BUSY;
    change.device.n_bad_begin = 2;
    quotes(&change, 0, N_TICK);
    end_day(&change, 1);
    assert_int_equal(change.device.n_begin, 3);
    assert_load(time_of(LOADED + 2) + 1000, KL_OK);
    assert_int_equal(change.stats.switched, 2);
    assert_int_equal(change.stats.device_errors, 0);
}

/* A new model that needs no warming up has the stream's next tick. */
static void without_a_warm_up_the_next_tick_is_the_new_models(void **state)
{
    (void)state;
    begin_day(&change, "{}", 0, 1);
    change.next.warmup_ticks = 0;
    quotes(&change, 0, N_TICK);
    end_day(&change, 1);
    for (unsigned i = LOADED; i < N_TICK; i++) {
        assert_int_equal(prediction_of(&change.r, i)->slot, i >= LOADED + 2);
        assert_int_equal(verdict_of(&change.r, i), VERDICT_PUBLISHED);
    }
}

/* ---- real clock ---- */

enum { N_LATER = 6 };

static void later_ticks(void)
{
    quotes(&change, N_TICK, N_TICK + N_LATER);
}

/* Between two frames one piece at the most: a load takes no tick's time. */
static void a_load_is_cut_into_pieces(void **state)
{
    (void)state;
    begin_day(&change, "{clock: real, killline: {device_timeout_us: 1000000}}", 0, 1);
    change.r.switch_after = 0;
    change.device.when_loaded = later_ticks;
    change.r.n_frame_later = N_LATER;
    change.r.arrival_is_bound = 0;
    quotes(&change, 0, N_TICK);
    end_day(&change, 1);
    const struct audit_event *e = nth_event(&change.r, AUDIT_EVENT_MODEL_LOAD, 1);
    assert_non_null(e);
    assert_int_equal(e->value[2], KL_OK);
    assert_non_null(event_of(&change.r, AUDIT_EVENT_MODEL_SWITCH));
    /* However few of the ticks were asked for, as a slow machine has it: one piece per frame. */
    assert_true(change.device.most_since > 0 && change.device.most_since <= N_TICK + 1);
    assert_true(change.device.n_advance > N_TICK + 1);
    unsigned n = 0;
    for (unsigned i = 0; i < change.device.loaded_at; i++)
        assert_int_equal(change.device.recorder.asked[i].slot, 0);
    for (unsigned i = change.device.loaded_at; i < change.device.recorder.n_asked; i++)
        n += change.device.recorder.asked[i].slot == 1;
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stream_goes_over_without_missing_a_tick),
        cmocka_unit_test(a_stream_that_is_reset_meanwhile_starts_on_the_new_model),
        cmocka_unit_test(a_stream_that_starts_later_starts_on_the_new_model),
        cmocka_unit_test(a_model_that_is_refused_changes_nothing),
        cmocka_unit_test(a_busy_device_is_asked_again),
        cmocka_unit_test(without_a_warm_up_the_next_tick_is_the_new_models),
        cmocka_unit_test(a_load_is_cut_into_pieces),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
