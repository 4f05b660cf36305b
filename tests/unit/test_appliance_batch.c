/* The poll loop's batches: as many ticks as make the line together, when each of them is answered, and what
 * an error of one costs the others. Replay clock, so every stamp is exact; the device's patience is real
 * time. */
#include "test_accel_guard_rig.h"
#include "test_appliance_rig.h"

enum {
    DECODE_NS = 120 + 60,
    TAKE_NS = DECODE_NS + 400,
    IO_NS = 900,
    PUBLISH_NS = 150,
    KERNEL_NS = N_CYCLE * 4,
    ALONE_NS = IO_NS + KERNEL_NS + PUBLISH_NS, /* submit to last check; as the warm-up measures it */
};
#define T (OPEN + 1000000u)

static struct appliance_rig r;
static struct appliance_stats stats;

static void finish(void)
{
    const char *why = run(&r, &stats);
    if (why)
        fail_msg("%s", why);
    assert_sums(&r, &stats);
}

static void begin(const char *settings, unsigned n_symbol)
{
    start(&r, settings);
    r.fake.depth = KL_QUEUE_DEPTH;
    open_symbols(&r, n_symbol);
}

static void burst(unsigned n, uint64_t at)
{
    for (unsigned i = 0; i < n; i++)
        bid_frame(&r, 1 + i, at);
}

/* ---- when ---- */

/* The card works one off after the other; the ways there and back overlap, and the next answer waits for the
 * datagram of the one before. */
static void every_answer_of_a_batch_has_its_time(void **state)
{
    enum { N = 6, BATCH = 4 };
    (void)state;
    begin("{killline: {batch: 4}}", N);
    burst(N, T);
    finish();
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], N);
    assert_int_equal(stats.batches, 2);
    assert_int_equal(stats.batched, N);
    assert_int_equal(r.fake.deepest, BATCH);
    uint64_t submitted = T + N * TAKE_NS;
    for (unsigned i = 0; i < N; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        const unsigned nth = i % BATCH;
        if (i == BATCH) /* behind the prepares of the first four */
            submitted = prediction_of(&r, BATCH - 1)->decided + BATCH * KERNEL_NS;
        uint64_t there = submitted + IO_NS + (nth + 1) * KERNEL_NS;
        if (nth && prediction_of(&r, i - 1)->decided > there)
            there = prediction_of(&r, i - 1)->decided;
        assert_int_equal(p->submitted, submitted);
        assert_int_equal(p->completed, there);
        assert_int_equal(p->decided, there + PUBLISH_NS);
        assert_int_equal(p->age_cycles, p->decided - T);
        assert_int_equal(p->flags, AUDIT_FLAG_INFERRED | (nth ? AUDIT_FLAG_BATCH : 0));
        assert_int_equal(p->request_seq, prediction_of(&r, 0)->request_seq + i + (i < BATCH ? 0 : BATCH));
        assert_int_equal(p->stream, i);
    }
    assert_string_equal(operations(&r), "SRSSSSPPPPSSPP");
}

/* Where publishing takes longer than the kernel, the next answer waits for it. */
static void an_answer_waits_for_the_datagram_of_the_one_before(void **state)
{
    (void)state;
    begin("{killline: {batch: 3}, replay: {publish_ns: 1000}}", 3);
    burst(3, T);
    finish();
    for (unsigned i = 0; i < 3; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        assert_int_equal(p->completed, T + 3 * TAKE_NS + IO_NS + KERNEL_NS + i * 1000);
        assert_int_equal(p->decided, p->completed + 1000);
    }
}

/* ---- how many ---- */

/* What the n-th of a batch is expected to take decides, to the nanosecond: n times what one takes alone, as
 * long as nothing else is known. */
static void a_batch_is_as_many_as_make_the_line(void **state)
{
    enum { N = 4, LINE_NS = 100000, MORE_NS = 100 };
    (void)state;
    for (int n = 1; n <= N; n++)
        for (int off = -1; off <= 1; off++) {
            const int age = LINE_NS - n * ALONE_NS - off; /* of the n-th, at the submit */
            begin("{killline: {batch: 4, threshold_us: 100}}", N);
            const int take = (age + MORE_NS - DECODE_NS) / N, taken = DECODE_NS + N * take;
            r.config->replay.features_ns = (uint32_t)(take - DECODE_NS);
            /* All are taken one after the other, behind a frame without a tick; the n-th and those behind it
             * came a little later. */
            const struct itch_msg busy = feed_event('Q', T);
            next_frame(&r, T, &busy, 1);
            for (int i = 0; i < N; i++)
                bid_frame(&r, 1 + (unsigned)i, T + (uint64_t)(i + 1 < n ? 0 : taken - age));
            finish();
            const int fits = off >= 0;
            for (int i = 0; i < n - 1 + fits; i++) {
                const struct audit_prediction *p = prediction_at(&r, 1 + (unsigned)i, 0);
                assert_int_equal(p->submitted, T + (uint64_t)taken);
                assert_int_equal(p->expected_cycles, (i + 1) * ALONE_NS);
                assert_int_equal(p->verdict, VERDICT_PUBLISHED);
            }
            const struct audit_prediction *nth = prediction_at(&r, (unsigned)n, 0);
            assert_int_equal(nth->flags & AUDIT_FLAG_BATCH, n > 1 && fits ? AUDIT_FLAG_BATCH : 0);
            if (n == 1)
                assert_int_equal(nth->verdict, fits ? VERDICT_PUBLISHED : VERDICT_EXPECTED_LATE);
            else /* else it is tried again, alone: there may be time for that */
                assert_int_equal(nth->submitted == T + (uint64_t)taken, fits);
            if (n < N)
                assert_false(prediction_at(&r, (unsigned)n + 1, 0)->flags & AUDIT_FLAG_BATCH &&
                             prediction_at(&r, (unsigned)n + 1, 0)->submitted == T + (uint64_t)taken);
        }
}

/* Nobody looks at the port while it is at work: it may take an eighth of the line, to the nanosecond. */
static void a_batch_takes_an_eighth_of_the_line(void **state)
{
    enum { LINE_NS = 20000, HALF_NS = LINE_NS / 8 / 2 };
    (void)state;
    for (int off = -1; off <= 1; off++) {
        begin("{killline: {batch: 4, threshold_us: 20}}", 3);
        r.config->replay.io_ns = (uint32_t)(HALF_NS - KERNEL_NS - PUBLISH_NS + off);
        burst(3, T);
        finish();
        for (unsigned i = 0; i < 3; i++) {
            const struct audit_prediction *p = prediction_of(&r, i);
            assert_int_equal(p->verdict, VERDICT_PUBLISHED);
            /* After the first alone an inference is expected to take a little less. */
            assert_int_equal(p->flags & AUDIT_FLAG_BATCH, i == (off <= 0 ? 1u : 2u) ? AUDIT_FLAG_BATCH : 0);
        }
    }
}

static void of_changing_length(struct appliance_rig *rig, const struct kl_request *request,
                               struct kl_result *result)
{
    (void)rig;
    if (request->op == KL_OP_STEP && request->budget_cycles)
        result->kernel_cycles = 50 + request->seq_no * 37 % 200;
}

/* First and further are running quantiles, each of its own. */
static void expectations_follow_what_was_measured(void **state)
{
    enum { N = 5, ROUNDS = 40 };
    (void)state;
    begin("{killline: {batch: 4}}", N);
    r.fake.answer = of_changing_length;
    for (unsigned i = 0; i < ROUNDS; i++)
        burst(N, T + i * 1000000);
    finish();
    uint64_t first = ALONE_NS, further = ALONE_NS;
    for (unsigned i = 0; i < N * ROUNDS;) {
        const uint64_t before[2] = {first, further};
        uint64_t previous = 0;
        uint32_t nth = 0;
        do {
            const struct audit_prediction *p = prediction_of(&r, i++);
            assert_int_equal(p->expected_cycles, killline_expect_batch(before[0], before[1], ++nth));
            if (nth == 1)
                first = killline_expect(first, p->decided - p->submitted);
            else
                further = killline_expect(further, p->decided - previous);
            previous = p->decided;
        } while (i < N * ROUNDS && prediction_of(&r, i)->flags & AUDIT_FLAG_BATCH);
    }
    assert_true(first != ALONE_NS && further < ALONE_NS * 3 / 4); /* a kernel's time */
}

/* ---- streams ---- */

/* Not superseded, a stream may be in a batch twice. */
static void a_stream_may_be_in_a_batch_twice(void **state)
{
    static const unsigned locates[] = {1, 1, 2, 1};
    (void)state;
    begin("{killline: {batch: 4}}", 2);
    for (int i = 0; i < 4; i++)
        bid_frame(&r, locates[i], T);
    finish();
    assert_int_equal(r.fake.deepest, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(verdict_of(&r, i), VERDICT_PUBLISHED);
        assert_int_equal(prediction_of(&r, i)->locate, locates[i]);
    }
}

/* What the first of them has done to the stream's state is not known when it fails: those behind it have
 * answers of nothing. */
static void an_error_takes_the_streams_other_ticks_with_it(void **state)
{
    static const unsigned locates[] = {1, 1, 2, 1};
    (void)state;
    for (unsigned bad = 0; bad < 4; bad++) {
        begin("{killline: {batch: 4}}", 2);
        r.fake.bad_op = KL_OP_STEP;
        r.fake.bad_nth = 2 + bad;
        r.fake.misdeed = REFUSES;
        for (int i = 0; i < 4; i++)
            bid_frame(&r, locates[i], T);
        bid_frame(&r, 1, T + 1000000);
        bid_frame(&r, 2, T + 1000000);
        finish();
        for (unsigned i = 0; i < 4; i++) {
            const int lost = i == bad || (i > bad && locates[i] == locates[bad]);
            assert_int_equal(verdict_of(&r, i), lost ? VERDICT_DEVICE_ERROR : VERDICT_PUBLISHED);
            assert_int_equal(prediction_of(&r, i)->flags & AUDIT_FLAG_INFERRED,
                             lost ? 0 : AUDIT_FLAG_INFERRED);
        }
        assert_int_equal(verdict_of(&r, 4), VERDICT_PUBLISHED);
        assert_int_equal(verdict_of(&r, 5), VERDICT_PUBLISHED);
        assert_int_equal(n_event(&r, AUDIT_EVENT_DEVICE_ERROR), stats.verdicts[VERDICT_DEVICE_ERROR]);
    }
}

/* Ticks that one failure takes with it are one fault to the throttle. */
static void an_error_of_a_batch_is_one_fault(void **state)
{
    (void)state;
    for (unsigned limit = 1; limit <= 2; limit++) {
        begin("{killline: {batch: 4, supersede: false}}", 1);
        r.config->throttle.device_errors = limit;
        r.fake.bad_op = KL_OP_STEP;
        r.fake.bad_nth = 2;
        r.fake.misdeed = REFUSES;
        for (int i = 0; i < 3; i++)
            bid_frame(&r, 1, T);
        bid_frame(&r, 1, T + 1000000);
        finish();
        assert_int_equal(stats.verdicts[VERDICT_DEVICE_ERROR], 3);
        assert_int_equal(verdict_of(&r, 3), limit == 1 ? VERDICT_HALTED : VERDICT_PUBLISHED);
    }
}

/* A reset is an operation of its own: its tick begins the next batch. */
static void a_reset_begins_a_batch(void **state)
{
    (void)state;
    begin("{killline: {batch: 4}}", 3);
    burst(3, T);
    const struct itch_msg halt[] = {feed_state(2, "S002", 'H', T + 500000),
                                    feed_state(2, "S002", 'T', T + 500000)};
    next_frame(&r, T + 500000, halt, 2);
    burst(3, T + 1000000);
    finish();
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 6);
    assert_string_equal(operations(&r), "SRSSSPPPSPRSSPP");
    assert_int_equal(prediction_of(&r, 3)->flags & AUDIT_FLAG_BATCH, 0);
    assert_int_equal(prediction_of(&r, 4)->flags & AUDIT_FLAG_BATCH, 0);
    assert_int_equal(prediction_of(&r, 5)->flags & AUDIT_FLAG_BATCH, AUDIT_FLAG_BATCH);
}

/* ---- errors ---- */

enum { N_BATCH = 4 };

/* Two bursts; in the first the bad-th tick meets it. */
static void misdeed_at(unsigned bad, enum misdeed misdeed, unsigned depth)
{
    begin("{killline: {batch: 4}}", N_BATCH);
    r.hz = 2e7; /* a hundredth of the truth: the patience with a silent device ends after 20 ms */
    r.fake.depth = depth;
    r.fake.bad_op = KL_OP_STEP;
    r.fake.bad_nth = 2 + bad;
    r.fake.misdeed = misdeed;
    burst(N_BATCH, T);
    burst(N_BATCH, T + 1000000);
    burst(N_BATCH, T + 2000000);
    finish();
    for (unsigned i = 0; i < bad; i++)
        assert_int_equal(verdict_of(&r, i), VERDICT_PUBLISHED);
    for (unsigned i = N_BATCH; i < 3 * N_BATCH; i++)
        assert_int_equal(verdict_of(&r, i), VERDICT_PUBLISHED);
    /* Nothing of it is left in the way: the third burst is one batch again. */
    for (unsigned i = 2 * N_BATCH + 1; i < 3 * N_BATCH; i++)
        assert_true(prediction_of(&r, i)->flags & AUDIT_FLAG_BATCH);
    assert_int_equal(stats.device_errors, stats.verdicts[VERDICT_DEVICE_ERROR]);
    assert_int_equal(n_event(&r, AUDIT_EVENT_DEVICE_ERROR), stats.device_errors);
}

static void an_error_in_a_batch_costs_its_own_tick(void **state)
{
    static const enum misdeed misdeeds[] = {REFUSES, OTHER_IMAGE, CLASS_TOO_BIG, UNKNOWN_FLAG, LATE};
    (void)state;
    for (size_t k = 0; k < sizeof(misdeeds) / sizeof(misdeeds[0]); k++)
        for (unsigned bad = 0; bad < N_BATCH; bad++) {
            misdeed_at(bad, misdeeds[k], KL_QUEUE_DEPTH);
            for (unsigned i = bad; i < N_BATCH; i++) {
                const struct audit_prediction *p = prediction_of(&r, i);
                assert_int_equal(p->verdict, i != bad              ? VERDICT_PUBLISHED
                                             : misdeeds[k] == LATE ? VERDICT_EXPECTED_LATE
                                                                   : VERDICT_DEVICE_ERROR);
                assert_int_equal(p->flags & (AUDIT_FLAG_KERNEL_LATE | AUDIT_FLAG_INFERRED),
                                 i != bad              ? AUDIT_FLAG_INFERRED
                                 : misdeeds[k] == LATE ? AUDIT_FLAG_KERNEL_LATE
                                                       : 0);
            }
            if (misdeeds[k] == LATE) {
                assert_int_equal(stats.device_errors, 0);
                assert_string_equal(operations(&r), "SRSSSSPPPPSSSSPPPPSSSSPPPP");
            }
        }
}

/* Gone, or silent: those behind it are lost with it, and no more. The answers of a silent one come later. */
static void a_device_that_is_gone_costs_the_rest_of_the_batch(void **state)
{
    static const enum misdeed misdeeds[] = {FAILS_SUBMIT, FAILS_POLL, SILENT};
    static const unsigned status[] = {AUDIT_DEVICE_FAILED, AUDIT_DEVICE_FAILED, AUDIT_DEVICE_SILENT};
    (void)state;
    for (int k = 0; k < 3; k++)
        for (unsigned bad = 0; bad < N_BATCH; bad++)
            for (unsigned depth = N_BATCH; depth <= KL_QUEUE_DEPTH; depth += KL_QUEUE_DEPTH - N_BATCH) {
                misdeed_at(bad, misdeeds[k], depth);
                for (unsigned i = bad; i < N_BATCH; i++)
                    assert_int_equal(verdict_of(&r, i), VERDICT_DEVICE_ERROR);
                assert_int_equal(stats.device_errors, N_BATCH - bad);
                for (unsigned i = 0; i < stats.device_errors; i++) {
                    const struct audit_event *e = event_at(&r, AUDIT_EVENT_DEVICE_ERROR, i);
                    assert_int_equal(e->value[0], status[k]);
                    assert_int_equal(e->value[1], bad + i);
                }
            }
}

/* Silent until it is given up, and again; then all that it owes comes at once. */
static struct {
    struct fake *fake;
    uint64_t patience; /* TSC */
    unsigned n_silent; /* looks that are left */
    int has_waited;
} slow;

static int slow_poll(struct accel *accel, struct kl_result *result)
{
    if (slow.n_silent && slow.fake->outstanding && slow.fake->request[0].budget_cycles) {
        for (const uint64_t begin_tsc = clock_tsc();
             !slow.has_waited && clock_tsc() - begin_tsc <= slow.patience;)
            ;
        slow.has_waited = 1;
        slow.n_silent--;
        return 0;
    }
    return fake_poll(accel, result);
}

/* However many answers are in the way: who is behind them has been answered. */
static void late_answers_in_a_batch_cost_their_own_ticks(void **state)
{
    static const struct accel_ops slow_ops = {.name = "slow", .submit = fake_submit, .poll = slow_poll};
    (void)state;
    for (unsigned n = 1; n < N_BATCH; n++) {
        begin("{killline: {batch: 4}}", N_BATCH);
        r.hz = 2e7;
        slow.fake = &r.fake;
        slow.patience = (uint64_t)(2 * r.hz);
        slow.n_silent = 2 * n; /* the look after which its time is up, and the last one */
        slow.has_waited = 0;
        r.fake.accel.ops = &slow_ops;
        burst(N_BATCH, T);
        burst(N_BATCH, T + 1000000);
        finish();
        for (unsigned i = 0; i < 2 * N_BATCH; i++)
            assert_int_equal(verdict_of(&r, i), i < n ? VERDICT_DEVICE_ERROR : VERDICT_PUBLISHED);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(event_at(&r, AUDIT_EVENT_DEVICE_ERROR, i)->value[0], AUDIT_DEVICE_SILENT);
    }
}

/* ---- a card and its mirror ---- */

static struct {
    struct rig_card card;
    struct accel_ops ops;
    unsigned n_step, bad; /* steps with a budget; the one that meets the fault, from 1 */
    int fault;
    struct recorder recorder;
    struct kl_image_header *image;
} guarded;

static int guarded_submit(struct accel *accel, const struct kl_request *request)
{
    if (request->op == KL_OP_STEP && request->budget_cycles && ++guarded.n_step == guarded.bad)
        guarded.card.fault = guarded.fault;
    return rig_submit(accel, request);
}

static void guarded_day(int fault, unsigned bad)
{
    enum { N_ROUND = 8 };
    static const struct model_image_shape shape = {
        .n_in = FEATURES_N, .n_layer = 1, .n_class = 3, .n_hidden = {16}};
    char why[ACCEL_ERROR_CHARS];
    memset(&guarded, 0, sizeof guarded);
    start(&r, "{killline: {batch: 4}, governor: {min_count: 1000}}");
    guarded.ops = rig_ops;
    guarded.ops.submit = guarded_submit;
    guarded.card.accel.ops = &guarded.ops;
    guarded.card.inner = accel_csim_open(&kl_build_small, 1);
    assert_non_null(guarded.card.inner);
    guarded.card.is_open = 1;
    guarded.fault = fault;
    guarded.bad = bad;
    struct accel *const cards[] = {&guarded.card.accel};
    const struct accel_guard_options options = {.cards = cards,
                                                .n_card = 1,
                                                .cpu = {.build = &kl_build_small},
                                                .check_every = 1,
                                                .is_inline = 1,
                                                .n_probe = 4,
                                                .retry_cycles = 1000};
    r.guard = accel_guard_open(&options, why);
    assert_non_null(r.guard);
    guarded.image = model_image_new(&shape, 5);
    assert_non_null(guarded.image);
    r.model.image = guarded.image;
    assert_int_equal(accel_load(r.guard, 0, guarded.image, guarded.image->size_bytes), KL_OK);
    guarded.recorder.accel.ops = &recorder_ops;
    guarded.recorder.inner = r.guard;
    r.accel = &guarded.recorder.accel;
    r.hz = 2e7;
    open_symbols(&r, N_BATCH);
    for (unsigned i = 0; i < N_ROUND; i++)
        burst(N_BATCH, T + i * 1000000);
    finish();
    assert_answers(&r, &guarded.recorder, (const struct kl_image_header *const[KL_N_SLOT]){guarded.image});
    r.guard->ops->close(r.guard);
    free(guarded.image);
}

/* The card fails in the middle of a batch: the mirror answers what was outstanding, from the right states. */
static void a_card_that_fails_in_a_batch_costs_no_answer(void **state)
{
    static const int faults[] = {RIG_REFUSE, RIG_DAMAGE, RIG_HANG};
    static struct appliance_rig clean;
    (void)state;
    guarded_day(RIG_NONE, 0);
    clean = r;
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], stats.predictions);
    assert_true(stats.batched > 0);
    for (int k = 0; k < 3; k++)
        for (unsigned at = 0; at < N_BATCH; at++) {
            const unsigned bad = 2 * N_BATCH + at; /* of the third burst */
            guarded_day(faults[k], bad + 1);
            assert_int_equal(n_event(&r, AUDIT_EVENT_CARD_FAILOVER), 1);
            for (unsigned i = 0; i < stats.predictions; i++) {
                const struct audit_prediction *p = prediction_of(&r, i), *q = prediction_of(&clean, i);
                /* It hangs from that submit on: with all that it has not answered. */
                const int silent = faults[k] == RIG_HANG && i == 2 * N_BATCH;
                assert_int_equal(p->feature_hash, q->feature_hash);
                if (i < 2 * N_BATCH) /* what is outstanding when it fails is the mirror's, too */
                    assert_int_equal(p->flags & AUDIT_FLAG_MIRROR, 0);
                if (silent) { /* its time was up: the line's, and those behind it in the batch are as old */
                    assert_int_equal(p->verdict, VERDICT_DEVICE_ERROR);
                    assert_int_equal(p->flags & AUDIT_FLAG_MIRROR, AUDIT_FLAG_MIRROR);
                    continue;
                }
                assert_memory_equal(p->logits, q->logits, sizeof p->logits);
                assert_int_equal(p->cls, q->cls);
                if (faults[k] == RIG_HANG && i > 2 * N_BATCH && i < 3 * N_BATCH)
                    assert_int_equal(p->verdict, VERDICT_STALE);
                else
                    assert_int_equal(p->verdict, VERDICT_PUBLISHED);
            }
            assert_int_equal(stats.given_up, faults[k] == RIG_HANG);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_of_a_batch_has_its_time),
        cmocka_unit_test(an_answer_waits_for_the_datagram_of_the_one_before),
        cmocka_unit_test(a_batch_is_as_many_as_make_the_line),
        cmocka_unit_test(a_batch_takes_an_eighth_of_the_line),
        cmocka_unit_test(expectations_follow_what_was_measured),
        cmocka_unit_test(a_stream_may_be_in_a_batch_twice),
        cmocka_unit_test(an_error_takes_the_streams_other_ticks_with_it),
        cmocka_unit_test(an_error_of_a_batch_is_one_fault),
        cmocka_unit_test(a_reset_begins_a_batch),
        cmocka_unit_test(an_error_in_a_batch_costs_its_own_tick),
        cmocka_unit_test(a_device_that_is_gone_costs_the_rest_of_the_batch),
        cmocka_unit_test(late_answers_in_a_batch_cost_their_own_ticks),
        cmocka_unit_test(a_card_that_fails_in_a_batch_costs_no_answer),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
