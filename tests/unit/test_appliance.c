/* The poll loop on real ports, with an accelerator that does what it is told: answers late, wrongly or never.
 * Replay clock, so every stamp is exact. */
#include "test_appliance_rig.h"

static void ticks_are_inferred_prepared_and_published(void **state)
{
    struct appliance_rig r;
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
    struct appliance_rig r;
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
    struct appliance_rig r;
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

/* A device that says itself that it is gone, with no mirror behind it: the tick is lost, and the stream, of
 * whose state nobody knows, starts anew. */
static void a_failed_device_costs_one_tick(void **state)
{
    static const enum misdeed misdeeds[] = {FAILS_SUBMIT, FAILS_POLL};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct appliance_rig r;
        struct appliance_stats stats;
        start(&r, "{}");
        r.fake.bad_op = KL_OP_STEP;
        r.fake.bad_nth = 3;
        r.fake.misdeed = misdeeds[i];
        open_market(&r);
        for (uint64_t t = 1; t <= 3; t++)
            tick(&r, OPEN + t * 1000000);
        assert_null(run(&r, &stats));
        assert_int_equal(verdict_of(&r, 0), VERDICT_PUBLISHED);
        assert_int_equal(verdict_of(&r, 1), VERDICT_DEVICE_ERROR);
        assert_int_equal(verdict_of(&r, 2), VERDICT_PUBLISHED);
        assert_int_equal(prediction_of(&r, 1)->flags, 0);
        assert_int_equal(stats.device_errors, 1);
        assert_int_equal(stats.given_up, 0);
        assert_string_equal(operations(&r), misdeeds[i] == FAILS_SUBMIT ? "SRSPRSP" : "SRSPSRSP");
        assert_int_equal(event_of(&r, AUDIT_EVENT_DEVICE_ERROR)->value[0], AUDIT_DEVICE_FAILED);
        assert_int_equal(event_of(&r, AUDIT_EVENT_DEVICE_ERROR)->value[1], 0);

        start(&r, "{}"); /* and before the first frame */
        r.fake.bad_op = KL_OP_STEP;
        r.fake.bad_nth = 1;
        r.fake.misdeed = misdeeds[i];
        const char *why = run(&r, &stats);
        assert_non_null(why);
        assert_non_null(strstr(why, "refuses access or is gone"));
    }
}

/* Off the critical path, but not in silence. */
static void a_failed_prepare_is_recorded(void **state)
{
    struct appliance_rig r;
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
    static const enum misdeed misdeeds[] = {OTHER_IMAGE,   OTHER_SLOT,   OTHER_STREAM,
                                            CLASS_TOO_BIG, UNKNOWN_FLAG, LATE};
    (void)state;
    for (size_t i = 0; i < sizeof(misdeeds) / sizeof(misdeeds[0]); i++) {
        struct appliance_rig r;
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
    struct appliance_rig r;
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
        struct appliance_rig r;
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
        assert_int_equal(r.fake.n_idle_poll, real ? r.fake.n_op - 8 : 0); /* one per step; 8 resets */
    }
}

/* Recurrent state does not reach over a gap or a halt, also when no tick came while it lasted. */
static void state_ends_at_gaps_and_halts(void **state)
{
    struct appliance_rig r;
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
    struct appliance_rig r;
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
    struct appliance_rig r;
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
static void stall_while_a_packet_comes(struct appliance_rig *r)
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
        struct appliance_rig r;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_inferred_prepared_and_published),
        cmocka_unit_test(a_late_answer_costs_one_tick),
        cmocka_unit_test(a_late_answer_in_a_queue_costs_one_tick),
        cmocka_unit_test(a_silent_reset_is_recorded_as_silence),
        cmocka_unit_test(a_failed_device_costs_one_tick),
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
