/* The poll loop over the guard, with cards (csim) that hang, refuse, answer late, damaged or wrong: what each
 * costs, what the log says of it, and that every other answer is that of a run in which nothing happened.
 * Replay clock and an inline guard, so all of it is exact. */
#include "test_accel_guard_rig.h"
#include "test_appliance_rig.h"

enum { N_CARD_MAX = 2, N_TICK = 60, BAD = 20, N_PROBE = 20 }; /* BAD: the tick that meets the fault, from 0 */
#define SPACING      1000000u /* ns between ticks: everything is done by the next one */
#define THRESHOLD_NS 100000u

/* A card whose fault begins with a certain request. */
struct card {
    struct rig_card rig; /* first */
    enum kl_op bad_op;   /* this operation ... */
    unsigned bad_nth;    /* ... the n-th time, from 1; 0: never */
    unsigned n_bad_op;
    int fault;          /* enum rig_fault; and: */
    void (*then)(void); /* called once, in the submit of that request; NULL: nothing */
    void (*during_reset)(void);
};

static int card_submit(struct accel *accel, const struct kl_request *request)
{
    struct card *card = (struct card *)(void *)accel;
    if (request->op == card->bad_op && ++card->n_bad_op == card->bad_nth) {
        card->rig.fault = card->fault;
        if (card->then)
            card->then();
    }
    return rig_submit(accel, request);
}

static int card_reset(struct accel *accel, char why[ACCEL_ERROR_CHARS])
{
    struct card *card = (struct card *)(void *)accel;
    if (card->during_reset)
        card->during_reset();
    card->during_reset = NULL;
    return rig_reset(accel, why);
}

/* ---- a day with cards ---- */

static struct day {
    struct appliance_rig r;
    struct appliance_stats stats;
    struct card card[N_CARD_MAX];
    uint32_t n_card;
    struct recorder recorder;
    struct kl_image_header *image;
    uint32_t kernel_mhz, frame_ns, message_ns;
} clean, day;

static struct accel_ops card_ops;

/* Cards get their faults between this and end_day(). */
static void begin_day(struct day *d, const char *settings, uint32_t n_card, int prove)
{
    static const struct model_image_shape shape = {
        .n_in = FEATURES_N, .n_layer = 1, .n_class = 3, .n_hidden = {16}};
    struct accel *cards[N_CARD_MAX];
    char why[ACCEL_ERROR_CHARS];
    memset(d, 0, sizeof *d);
    start(&d->r, settings);
    d->r.config->killline.threshold_us = THRESHOLD_NS / 1000;
    d->kernel_mhz = d->r.config->replay.kernel_mhz;
    d->frame_ns = d->r.config->replay.frame_ns;
    d->message_ns = d->r.config->replay.message_ns;
    d->n_card = n_card;
    card_ops = rig_ops;
    card_ops.submit = card_submit;
    card_ops.reset = card_reset;
    for (uint32_t i = 0; i < n_card; i++) {
        d->card[i].rig.accel.ops = &card_ops;
        d->card[i].rig.inner = accel_csim_open(&kl_build_small, 1);
        assert_non_null(d->card[i].rig.inner);
        d->card[i].rig.is_open = 1;
        d->card[i].rig.reset_fails = 1; /* so that it is away for some ticks: 64 idle moments */
        cards[i] = &d->card[i].rig.accel;
    }
    const struct accel_guard_options options = {.cards = cards,
                                                .n_card = n_card,
                                                .cpu = {.build = &kl_build_small},
                                                .check_every = 1,
                                                .prove = prove,
                                                .is_inline = 1,
                                                .n_probe = N_PROBE,
                                                .retry_cycles = 1000};
    d->r.guard = accel_guard_open(&options, why);
    assert_non_null(d->r.guard);
    d->image = model_image_new(&shape, 5);
    assert_non_null(d->image);
    d->r.model.image = d->image;
    assert_int_equal(accel_load(d->r.guard, 0, d->image, d->image->size_bytes), KL_OK);
    d->recorder.accel.ops = &recorder_ops;
    d->recorder.inner = d->r.guard;
    d->r.accel = &d->recorder.accel;
    d->r.hz = 2e7; /* a hundredth of the truth: a replay's patience with a silent card ends after 20 ms */
    const struct itch_msg open[] = {
        feed_event('O', 1),           feed_directory(7, "AAPL", 2),  feed_state(7, "AAPL", 'T', 3),
        feed_directory(8, "MSFT", 4), feed_state(8, "MSFT", 'T', 5), feed_event('Q', OPEN)};
    next_frame(&d->r, OPEN, open, 6);
}

static void end_day(struct day *d)
{
    if (run(&d->r, &d->stats))
        fail_msg("%s", rig_error);
    assert_answers(&d->r, &d->recorder, (const struct kl_image_header *const[KL_N_SLOT]){d->image});
    d->r.guard->ops->close(d->r.guard);
    for (uint32_t i = 0; i < d->n_card; i++)
        assert_int_equal(d->card[i].rig.is_open, 0);
    free(d->image);
}

/* A better price, of a size that was not there before: a tick. The sides take turns. */
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

static void halt_before(struct appliance_rig *r, unsigned i)
{
    const uint64_t at = time_of(i) - SPACING / 2;
    const struct itch_msg halt[] = {feed_state(7, "AAPL", 'H', at), feed_state(7, "AAPL", 'T', at)};
    next_frame(r, at, halt, 2);
}

/* halted: before this tick, or -1. */
static void whole_day(struct day *d, int halted)
{
    for (unsigned i = 0; i < N_TICK; i++) {
        if ((int)i == halted)
            halt_before(&d->r, i);
        quote(&d->r, 7, time_of(i));
    }
    end_day(d);
}

static void clean_day(int halted)
{
    begin_day(&clean, "{}", 1, 0);
    whole_day(&clean, halted);
    assert_int_equal(clean.stats.verdicts[VERDICT_PUBLISHED], N_TICK);
    assert_int_equal(clean.stats.given_up, 0);
    assert_null(event_of(&clean.r, AUDIT_EVENT_CARD_FAILOVER));
    int64_t all = 0;
    for (unsigned i = 1; i < N_TICK; i++) {
        assert_int_equal(prediction_of(&clean.r, i)->flags, AUDIT_FLAG_INFERRED);
        all |= prediction_of(&clean.r, i)->logits[0] ^ prediction_of(&clean.r, i - 1)->logits[0];
    }
    assert_true(all != 0); /* answers differ from tick to tick: that they are equal means something */
}

/* The same answer as on the clean day, to the bit and to the nanosecond; but for who gave it. */
static void assert_as_clean(unsigned i, unsigned n_unpublished_before, int with_expected)
{
    struct audit_prediction expected = *prediction_of(&clean.r, i), got = *prediction_of(&day.r, i);
    got.flags &= (uint16_t) ~(AUDIT_FLAG_MIRROR | AUDIT_FLAG_RUNG); /* a card that failed is an alert */
    got.publish_seq += n_unpublished_before;
    got.record_no = expected.record_no;
    got.request_seq = expected.request_seq;
    if (!with_expected)
        got.expected_cycles = expected.expected_cycles;
    if (memcmp(&expected, &got, sizeof got) != 0)
        fail_msg("tick %u: verdict %u/%u flags %u/%u logit %lld/%lld decided %llu/%llu", i, got.verdict,
                 expected.verdict, got.flags, expected.flags, (long long)got.logits[0],
                 (long long)expected.logits[0], (unsigned long long)got.decided,
                 (unsigned long long)expected.decided);
}

/* The mirror answered from this tick until the card was back, and only then; the card came back. */
static void assert_mirrored_from(unsigned first)
{
    unsigned i = 0, n = 0;
    for (; i < first; i++)
        assert_false(prediction_of(&day.r, i)->flags & AUDIT_FLAG_MIRROR);
    for (; i < N_TICK && prediction_of(&day.r, i)->flags & AUDIT_FLAG_MIRROR; i++)
        n++;
    assert_true(n > 4 && i < N_TICK);
    for (; i < N_TICK; i++)
        assert_false(prediction_of(&day.r, i)->flags & AUDIT_FLAG_MIRROR);
}

/* The n-th event of the code, from 0, has these values. */
static void assert_event(enum audit_event_code code, unsigned n, uint64_t v0, uint64_t v1, uint64_t v2,
                         uint64_t v3)
{
    const uint64_t values[4] = {v0, v1, v2, v3};
    for (unsigned i = 0; i < day.r.n_record; i++) {
        const struct audit_event *e = &day.r.record[i].event;
        if (e->kind != AUDIT_EVENT || e->code != code || n-- > 0)
            continue;
        for (int k = 0; k < 4; k++)
            assert_int_equal(e->value[k], values[k]);
        assert_memory_equal(e->symbol, "        ", 8);
        return;
    }
    fail_msg("no event %s", audit_event_name(code));
}

static unsigned count_events(enum audit_event_code code)
{
    unsigned n = 0;
    for (unsigned i = 0; i < day.r.n_record; i++)
        n += day.r.record[i].event.kind == AUDIT_EVENT && day.r.record[i].event.code == code;
    return n;
}

/* The codes of all events that cards and devices gave, in order. */
static void assert_story(const enum audit_event_code *codes, unsigned n)
{
    unsigned at = 0;
    for (unsigned i = 0; i < day.r.n_record; i++) {
        const struct audit_event *e = &day.r.record[i].event;
        if (e->kind != AUDIT_EVENT ||
            (e->code != AUDIT_EVENT_DEVICE_ERROR &&
             (e->code < AUDIT_EVENT_CARD_FAILOVER || e->code > AUDIT_EVENT_CARD_STATE_LOST)))
            continue;
        if (at == n || e->code != codes[at])
            fail_msg("event %u of the cards is %s", at, audit_event_name(e->code));
        at++;
    }
    assert_int_equal(at, n);
}

static void assert_recovered(void)
{
    assert_event(AUDIT_EVENT_CARD_RESET, 0, 0, AUDIT_CARD_REFUSED, 0, 0);
    assert_event(AUDIT_EVENT_CARD_RESET, 1, 0, AUDIT_CARD_OK, 0, 0);
    const struct audit_event *e = event_of(&day.r, AUDIT_EVENT_CARD_RECOVERED);
    assert_non_null(e);
    assert_int_equal(e->value[0], 0);
    assert_int_equal(e->value[1], AUDIT_CARD_OK);
    assert_true(e->value[3] >= N_PROBE);
    assert_int_equal(day.card[0].rig.n_reset, 2);
}

static void fault_at(unsigned card, enum kl_op op, unsigned nth, int fault)
{
    day.card[card].bad_op = op;
    day.card[card].bad_nth = nth;
    day.card[card].fault = fault;
}

/* ---- silence ---- */

static void a_card_silent_at_a_step_costs_one_tick(void **state)
{
    static const enum audit_event_code story[] = {AUDIT_EVENT_DEVICE_ERROR, AUDIT_EVENT_CARD_FAILOVER,
                                                  AUDIT_EVENT_CARD_RESET, AUDIT_EVENT_CARD_RESET,
                                                  AUDIT_EVENT_CARD_RECOVERED};
    (void)state;
    clean_day(-1);
    begin_day(&day, "{}", 1, 0);
    fault_at(0, KL_OP_STEP, 1 + BAD + 1, RIG_HANG); /* the first is the appliance's own */
    whole_day(&day, -1);
    for (unsigned i = 0; i < N_TICK; i++)
        if (i != BAD)
            assert_as_clean(i, i > BAD, i < BAD);
    const struct audit_prediction *p = prediction_of(&day.r, BAD), *q = prediction_of(&clean.r, BAD);
    static const int64_t none[KL_N_CLASS_MAX];
    assert_int_equal(p->verdict, VERDICT_DEVICE_ERROR);
    assert_int_equal(p->flags, AUDIT_FLAG_MIRROR);
    assert_int_equal(p->submitted, q->submitted);
    assert_int_equal(p->completed, 0);
    assert_int_equal(p->decided, p->arrival + THRESHOLD_NS);
    assert_int_equal(p->age_cycles, THRESHOLD_NS);
    assert_int_equal(p->publish_seq, 0);
    assert_int_equal(p->cls, 0);
    assert_memory_equal(p->logits, none, sizeof none);
    assert_int_equal(p->feature_hash, q->feature_hash);
    assert_mirrored_from(BAD);

    assert_story(story, sizeof(story) / sizeof(story[0]));
    const struct audit_event *e = event_of(&day.r, AUDIT_EVENT_DEVICE_ERROR);
    assert_int_equal(e->value[0], AUDIT_DEVICE_SILENT);
    assert_int_equal(e->value[1], 0);
    assert_int_equal(e->locate, 7);
    assert_int_equal(e->feed_ts_ns, p->feed_ts_ns);
    assert_int_equal(e->at, p->decided);
    assert_event(AUDIT_EVENT_CARD_FAILOVER, 0, 0, AUDIT_CARD_SILENT, 0, p->request_seq);
    assert_recovered();

    assert_int_equal(day.stats.verdicts[VERDICT_PUBLISHED], N_TICK - 1);
    assert_int_equal(day.stats.verdicts[VERDICT_DEVICE_ERROR], 1);
    assert_int_equal(day.stats.device_errors, 1);
    assert_int_equal(day.stats.given_up, 1);
    assert_int_equal(day.stats.switched, 0);
    assert_true(day.stats.failover_ns_max > 0);
    assert_int_equal(day.stats.stage_ns[STAGE_TOTAL].count, N_TICK - 1);
}

/* What was left to the line has passed: whoever came meanwhile has waited for it, and for the prepare. */
static void the_wait_for_a_silent_card_is_modelled_time(void **state)
{
    (void)state;
    clean_day(-1);
    begin_day(&day, "{}", 1, 0);
    fault_at(0, KL_OP_STEP, 1 + BAD + 1, RIG_HANG);
    for (unsigned i = 0; i <= BAD; i++)
        quote(&day.r, 7, time_of(i));
    quote(&day.r, 7, time_of(BAD) + 1000);
    end_day(&day);
    const struct audit_prediction *p = prediction_of(&day.r, BAD), *next = prediction_of(&day.r, BAD + 1);
    const uint64_t cycles = prediction_of(&clean.r, BAD)->prepare_cycles;
    assert_true(cycles > 0);
    const uint64_t prepare_ns = (cycles * 1000 + day.kernel_mhz - 1) / day.kernel_mhz;
    assert_int_equal(next->arrival, p->arrival + 1000);
    assert_int_equal(next->decoded, p->decided + prepare_ns + day.frame_ns + day.message_ns);
    assert_int_equal(next->verdict, VERDICT_EXPECTED_LATE);
}

/* Off the critical path: nobody waits for it. */
static void a_card_silent_at_a_prepare_costs_no_tick(void **state)
{
    static const enum audit_event_code story[] = {AUDIT_EVENT_CARD_FAILOVER, AUDIT_EVENT_CARD_RESET,
                                                  AUDIT_EVENT_CARD_RESET, AUDIT_EVENT_CARD_RECOVERED};
    (void)state;
    clean_day(-1);
    begin_day(&day, "{}", 1, 0);
    fault_at(0, KL_OP_PREPARE, BAD + 1, RIG_HANG);
    whole_day(&day, -1);
    for (unsigned i = 0; i < N_TICK; i++)
        assert_as_clean(i, 0, 1);
    assert_mirrored_from(BAD + 1);
    assert_story(story, sizeof(story) / sizeof(story[0]));
    assert_event(AUDIT_EVENT_CARD_FAILOVER, 0, 0, AUDIT_CARD_SILENT, 0,
                 prediction_of(&day.r, BAD)->request_seq + 1);
    assert_recovered();
    assert_int_equal(day.stats.given_up, 1);
    assert_int_equal(day.stats.device_errors, 0);
    assert_true(day.stats.failover_ns_max > 0);
}

/* The mirror is reset in its place; the time has passed, the tick comes too late. The stream goes on from
 * there. */
static void a_card_silent_at_a_reset_costs_one_tick(void **state)
{
    static const enum audit_event_code story[] = {AUDIT_EVENT_CARD_FAILOVER, AUDIT_EVENT_CARD_RESET,
                                                  AUDIT_EVENT_CARD_RESET, AUDIT_EVENT_CARD_RECOVERED};
    (void)state;
    clean_day(BAD);
    begin_day(&day, "{}", 1, 0);
    fault_at(0, KL_OP_RESET, 2, RIG_HANG);
    whole_day(&day, BAD);
    for (unsigned i = 0; i < N_TICK; i++)
        if (i < BAD)
            assert_as_clean(i, 0, 1);
        else
            assert_int_equal(prediction_of(&day.r, i)->feature_hash,
                             prediction_of(&clean.r, i)->feature_hash);
    assert_int_equal(day.stats.verdicts[VERDICT_PUBLISHED], N_TICK - 1);
    assert_int_equal(prediction_of(&day.r, BAD)->verdict, VERDICT_EXPECTED_LATE);
    assert_true(prediction_of(&day.r, BAD)->age_cycles >= THRESHOLD_NS);
    assert_story(story, sizeof(story) / sizeof(story[0]));
    assert_event(AUDIT_EVENT_CARD_FAILOVER, 0, 0, AUDIT_CARD_SILENT, 0,
                 prediction_of(&day.r, BAD - 1)->request_seq + 2); /* its prepare, the reset */
    assert_recovered();
    assert_int_equal(day.stats.given_up, 1);
}

/* A replay has patience: how long a card takes in real time changes nothing. */
static void a_card_that_answers_late_changes_nothing(void **state)
{
    (void)state;
    clean_day(-1);
    begin_day(&day, "{}", 1, 0);
    day.r.hz = 2e9;
    day.card[0].rig.delay_polls = 1000;
    whole_day(&day, -1);
    for (unsigned i = 0; i < N_TICK; i++) {
        assert_as_clean(i, 0, 1);
        assert_int_equal(prediction_of(&day.r, i)->flags, AUDIT_FLAG_INFERRED);
    }
    assert_story(NULL, 0);
}

/* ---- refusals, damage, lies ---- */

/* No verdict changes; the log says whose answer it was, and why. */
static void no_tick_is_lost_with_a_card_that_says_or_shows_it(void **state)
{
    static const enum audit_event_code story[] = {AUDIT_EVENT_CARD_FAILOVER, AUDIT_EVENT_CARD_RESET,
                                                  AUDIT_EVENT_CARD_RESET, AUDIT_EVENT_CARD_RECOVERED};
    static const struct {
        int fault;
        enum kl_op op;
        enum audit_card reason;
    } cases[] = {
        {RIG_REFUSE, KL_OP_STEP, AUDIT_CARD_REFUSED},    {RIG_REFUSE, KL_OP_PREPARE, AUDIT_CARD_REFUSED},
        {RIG_DAMAGE, KL_OP_STEP, AUDIT_CARD_DAMAGED},    {RIG_DAMAGE, KL_OP_PREPARE, AUDIT_CARD_DAMAGED},
        {RIG_SEQUENCE, KL_OP_STEP, AUDIT_CARD_SEQUENCE}, {RIG_MODEL, KL_OP_STEP, AUDIT_CARD_DAMAGED},
        {RIG_STATUS, KL_OP_STEP, AUDIT_CARD_STATUS},
    };
    (void)state;
    clean_day(-1);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        const int at_step = cases[k].op == KL_OP_STEP;
        begin_day(&day, "{}", 1, 0);
        fault_at(0, cases[k].op, at_step ? 1 + BAD + 1 : BAD + 1, cases[k].fault);
        whole_day(&day, -1);
        assert_true(day.card[0].rig.n_fired > 0);
        for (unsigned i = 0; i < N_TICK; i++)
            assert_as_clean(i, 0, 1);
        assert_mirrored_from(at_step ? BAD : BAD + 1);
        assert_story(story, sizeof(story) / sizeof(story[0]));
        assert_event(AUDIT_EVENT_CARD_FAILOVER, 0, 0, cases[k].reason, 0,
                     prediction_of(&day.r, BAD)->request_seq + !at_step);
        assert_recovered();
        assert_int_equal(day.stats.given_up, 0);
        assert_int_equal(day.stats.device_errors, 0);
        assert_true(day.stats.failover_ns_max > 0);
    }
}

/* Only a comparison shows it, and with guard.prove it comes before the answer is used. */
static void a_proved_lie_is_never_published(void **state)
{
    static const enum audit_event_code story[] = {AUDIT_EVENT_CARD_QUARANTINE, AUDIT_EVENT_CARD_RESET,
                                                  AUDIT_EVENT_CARD_RESET, AUDIT_EVENT_CARD_RECOVERED};
    static const int faults[] = {RIG_FLIP, RIG_STATE};
    (void)state;
    clean_day(-1);
    for (int k = 0; k < 2; k++) {
        begin_day(&day, "{}", 1, 1);
        fault_at(0, KL_OP_STEP, 1 + BAD + 1, faults[k]);
        whole_day(&day, -1);
        assert_true(day.card[0].rig.n_fired > 0);
        for (unsigned i = 0; i < N_TICK; i++)
            assert_as_clean(i, 0, 1);
        assert_mirrored_from(BAD);
        assert_story(story, sizeof(story) / sizeof(story[0]));
        const uint32_t request_seq = prediction_of(&day.r, BAD)->request_seq;
        /* the last proved one was the prepare before */
        assert_event(AUDIT_EVENT_CARD_QUARANTINE, 0, 0, AUDIT_CARD_DIFFERS, 0, request_seq - 1);
        assert_recovered();
        assert_true(day.stats.failover_ns_max > 0);
    }
}

/* A card that lies again after every reset stays out, and everything is right without it. */
static void a_card_that_goes_on_lying_stays_out(void **state)
{
    (void)state;
    clean_day(-1);
    begin_day(&day, "{}", 1, 1);
    fault_at(0, KL_OP_STEP, 1 + BAD + 1, RIG_FLIP);
    day.card[0].rig.sticky = 1;
    whole_day(&day, -1);
    for (unsigned i = 0; i < N_TICK; i++) {
        assert_as_clean(i, 0, 1);
        assert_int_equal(!(prediction_of(&day.r, i)->flags & AUDIT_FLAG_MIRROR), i < BAD);
    }
    assert_int_equal(count_events(AUDIT_EVENT_CARD_QUARANTINE), 1);
    assert_int_equal(count_events(AUDIT_EVENT_CARD_RECOVERED), 0);
    const struct audit_event *e = event_of(&day.r, AUDIT_EVENT_CARD_PROBE_FAILED);
    assert_non_null(e);
    assert_int_equal(e->value[0], 0);
    assert_int_equal(e->value[1], AUDIT_CARD_DIFFERS);
}

/* It needs no pause in the feed for that, at whatever moment it is ready. */
static void a_card_comes_back_while_every_frame_is_a_tick(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        begin_day(&day, "{}", 1, 0);
        fault_at(0, k & 1 ? KL_OP_PREPARE : KL_OP_STEP, BAD, RIG_REFUSE);
        day.card[0].rig.reset_fails = k / 2;
        whole_day(&day, -1);
        assert_int_equal(count_events(AUDIT_EVENT_CARD_RECOVERED), 1);
        assert_false(prediction_of(&day.r, N_TICK - 1)->flags & AUDIT_FLAG_MIRROR);
    }
}

/* ---- several cards ---- */

static void a_lost_card_moves_only_its_streams(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct day *d = k ? &day : &clean;
        begin_day(d, "{}", 2, 0);
        if (k)
            fault_at(1, KL_OP_STEP, BAD / 2 + 1, RIG_HANG); /* the appliance's first is card 0's */
        for (unsigned i = 0; i < N_TICK; i++)
            quote(&d->r, i % 2 ? 8 : 7, time_of(i));
        end_day(d);
    }
    const unsigned bad = BAD + 1; /* of stream 1 */
    unsigned n_mirrored = 0;
    for (unsigned i = 0; i < N_TICK; i++) {
        const struct audit_prediction *p = prediction_of(&day.r, i);
        const int mirrored = (p->flags & AUDIT_FLAG_MIRROR) != 0;
        assert_int_equal(p->stream, i % 2);
        assert_true(!mirrored || p->stream == 1);
        n_mirrored += (unsigned)mirrored;
        if (i != bad)
            assert_as_clean(i, i > bad, i < bad);
    }
    assert_int_equal(verdict_of(&day.r, bad), VERDICT_DEVICE_ERROR);
    assert_true(n_mirrored > 4);
    assert_event(AUDIT_EVENT_CARD_FAILOVER, 0, 1, AUDIT_CARD_SILENT, 1,
                 prediction_of(&day.r, bad)->request_seq);
    assert_int_equal(event_of(&day.r, AUDIT_EVENT_DEVICE_ERROR)->value[1], 1);
    assert_int_equal(event_of(&day.r, AUDIT_EVENT_CARD_RECOVERED)->value[0], 1);
    assert_int_equal(day.card[0].rig.n_reset, 0);
}

/* ---- real clock ---- */

static void one_more_tick(void)
{
    quote(&day.r, 7, time_of(1));
}

/* On a machine that others use too a run of a millisecond may be disturbed: one of so many is not. */
enum { N_ATTEMPT = 50 };

/* The appliance's own, before the first tick: steps, and resets of their streams. */
enum { N_WARM_UP = 200, N_WARM_UP_RESET = 8 };

static void begin_real_day(void)
{
    begin_day(&day, "{clock: real, killline: {device_timeout_us: 1000000}}", 1, 0);
    day.r.config->killline.threshold_us = 999;
    day.r.hz = 2e9;
}

/* The kill line ends the wait, not the device's own limit of a second; and the mirror has the next tick. */
static void a_silent_card_is_given_up_at_the_kill_line(void **state)
{
    (void)state;
    const struct audit_prediction *p = NULL;
    for (int k = 0; k < N_ATTEMPT && !(p && p->submitted); k++) {
        begin_real_day();
        fault_at(0, KL_OP_STEP, N_WARM_UP + 1, RIG_HANG);
        day.card[0].during_reset = one_more_tick;
        day.r.n_frame_later = 1;
        quote(&day.r, 7, time_of(0));
        end_day(&day);
        p = prediction_of(&day.r, 0);
    }
    assert_int_equal(p->verdict, VERDICT_DEVICE_ERROR);
    assert_int_equal(p->flags, AUDIT_FLAG_MIRROR);
    assert_true(p->age_cycles >= 999 * 2000);
    /* Coarse: a quarter of the device's limit. */
    assert_true(p->decided - p->submitted < 500000000);
    assert_int_equal(day.stats.predictions, 2);
    assert_true(verdict_of(&day.r, 1) != VERDICT_DEVICE_ERROR);
    assert_int_equal(day.stats.device_errors, 1);
    assert_int_equal(day.stats.given_up, 1);
    assert_event(AUDIT_EVENT_CARD_FAILOVER, 0, 0, AUDIT_CARD_SILENT, 0, p->request_seq);
}

static void stall(void)
{
    const uint64_t start_tsc = clock_tsc();
    while (clock_tsc() - start_tsc < 3000000) /* 1.5 ms of the rig's clock */
        ;
}

/* A tick that is over the line already has its stream reset; a card that takes a while for that is not a
 * silent one. */
static void a_reset_for_a_tick_that_is_late_is_given_time(void **state)
{
    int is_given = 0;
    (void)state;
    for (int k = 0; k < N_ATTEMPT && !is_given; k++) {
        begin_real_day();
        day.card[0].rig.delay_polls = 50;
        fault_at(0, KL_OP_STEP, N_WARM_UP + 1, RIG_NONE);
        day.card[0].then = stall;
        quote(&day.r, 7, time_of(0));
        halt_before(&day.r, 1);
        quote(&day.r, 7, time_of(1));
        end_day(&day);
        /* the appliance's own, the step, the reset */
        is_given = verdict_of(&day.r, 0) == VERDICT_STALE && verdict_of(&day.r, 1) == VERDICT_EXPECTED_LATE &&
                   day.stats.given_up == 0 && day.card[0].rig.n_answer == N_WARM_UP + N_WARM_UP_RESET + 2;
    }
    assert_true(is_given);
    assert_story(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_silent_at_a_step_costs_one_tick),
        cmocka_unit_test(the_wait_for_a_silent_card_is_modelled_time),
        cmocka_unit_test(a_card_silent_at_a_prepare_costs_no_tick),
        cmocka_unit_test(a_card_silent_at_a_reset_costs_one_tick),
        cmocka_unit_test(a_card_that_answers_late_changes_nothing),
        cmocka_unit_test(no_tick_is_lost_with_a_card_that_says_or_shows_it),
        cmocka_unit_test(a_proved_lie_is_never_published),
        cmocka_unit_test(a_card_that_goes_on_lying_stays_out),
        cmocka_unit_test(a_card_comes_back_while_every_frame_is_a_tick),
        cmocka_unit_test(a_lost_card_moves_only_its_streams),
        cmocka_unit_test(a_silent_card_is_given_up_at_the_kill_line),
        cmocka_unit_test(a_reset_for_a_tick_that_is_late_is_given_time),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
