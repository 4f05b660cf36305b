/* The guard with a thread per card: mirroring and recovery beside the poll loop. Worth running under
 * ThreadSanitizer. */
#include "test_accel_guard_rig.h"

#include "host/accel_guard_self.h"

static const enum rig_fault FAULTS[] = {RIG_HANG,   RIG_REFUSE, RIG_FORGET,   RIG_SEQUENCE,
                                        RIG_STREAM, RIG_EXTRA,  RIG_DAMAGE,   RIG_MODEL,
                                        RIG_LATE,   RIG_STATUS, RIG_DUPLICATE};
enum { N_FAULT = sizeof FAULTS / sizeof FAULTS[0] };

static struct accel_guard_options threaded(uint32_t n_card)
{
    struct accel_guard_options options = rig_options(n_card);
    options.is_inline = 0;
    options.retry_cycles = 20000;
    return options;
}

static struct guard_card *inside(struct rig *rig, uint32_t card)
{
    return guard_of(rig->guard)->card[card];
}

static void sleep_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000 * 1000};
    nanosleep(&time, NULL);
}

/* ---- long runs ---- */

static void long_run(uint64_t seed, int prove, int flags)
{
    struct accel_guard_options options = threaded(1 + (uint32_t)(seed % 3));
    options.prove = prove;
    options.n_probe = 1 + (uint32_t)(seed % 20);
    struct rig *rig = rig_open(&options, seed);
    rig->flags_allowed = flags;
    for (int i = 0; i < 40; i++) {
        rig_run(rig, rig_below(rig, 60), 1);
        struct rig_card *card = &rig->card[rig_below(rig, options.n_card)];
        card->reset_fails = (int)rig_below(rig, 3);
        card->load_fails = rig_below(rig, 4) == 0;
        card->restore_fails = rig_below(rig, 4) == 0;
        card->sticky = rig_below(rig, 4) == 0;
        card->fault = (int)FAULTS[rig_below(rig, N_FAULT)];
        rig_run(rig, rig_below(rig, 60), 1);
        if (card->sticky)
            card->fault = RIG_NONE;
        card->sticky = 0;
        if (rig_below(rig, 3) == 0)
            assert_true(rig_reaches(rig, rig_below(rig, options.n_card), ACCEL_GUARD_SERVING));
        if (rig_below(rig, 10) == 0)
            rig_compare_states(rig);
    }
    for (uint32_t c = 0; c < options.n_card; c++) {
        rig->card[c].fault = RIG_NONE;
        rig->card[c].reset_fails = 0;
        assert_true(rig_reaches(rig, c, ACCEL_GUARD_SERVING));
    }
    /* All cards serve: every answer that is not late is one of theirs, and compared. */
    struct accel_guard_stats before[3];
    for (uint32_t c = 0; c < options.n_card; c++)
        before[c] = rig_stats(rig, c);
    const uint32_t n_late = rig->n_late, n_heard = rig->n_heard;
    rig_run(rig, 100, 0);
    rig_compare_states(rig); /* the mirrors have caught up */
    uint64_t lost = 0, answers = 0, compared = 0;
    for (uint32_t c = 0; c < options.n_card; c++) {
        const struct accel_guard_stats stats = rig_stats(rig, c);
        lost += stats.failovers;
        answers += stats.answers - before[c].answers;
        compared += stats.compared - before[c].compared;
        assert_int_equal(stats.phase, ACCEL_GUARD_SERVING);
        assert_int_equal(stats.recoveries, stats.failovers);
        assert_int_equal(stats.quarantines, 0);
        assert_int_equal(stats.states_lost, 0);
    }
    assert_true(lost > 3);
    assert_int_equal(answers, rig->n_heard - n_heard);
    assert_int_equal(compared, answers - (rig->n_late - n_late));
    rig_end(rig);
}

static void nothing_shows(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++)
        long_run(seed, 0, seed % 2);
}

static void nothing_shows_when_proved(void **state)
{
    (void)state;
    for (uint64_t seed = 6; seed < 8; seed++)
        long_run(seed, 1, 0);
}

/* Found by the thread: answers between the flip and the failover may be wrong, and the event says from where
 * on. */
static void lies_are_found_and_bounded(void **state)
{
    (void)state;
    const enum rig_fault lies[] = {RIG_FLIP, RIG_STATE, RIG_CYCLES};
    for (uint32_t i = 0; i < 6; i++) {
        struct accel_guard_options options = threaded(2);
        options.check_every = 1 + i % 4;
        struct rig *rig = rig_open(&options, 50 + i);
        rig_run(rig, 100, 0);
        rig_idle(rig);
        assert_int_equal(rig->n_event, 0);
        const uint32_t bad = i % 2;
        const uint32_t last_good = rig->seq_no;
        rig->lies_allowed = 1;
        rig->card[bad].fault = (int)lies[i % 3];
        for (int k = 0; rig->n_event == 0; k++) {
            assert_true(k < 1000000);
            /* It has the time here that states_are_lost_and_it_says_so takes from it. */
            while (spsc_ring_count(&inside(rig, bad)->queue) > GUARD_N_ENTRY / 2)
                sleep_ms(1);
            rig_call(rig, KL_OP_STEP, 0, bad);
            rig_fetch_events(rig);
        }
        /* The call that found it was the mirror's; what was there before it may be a lie. */
        assert_int_equal(accel_guard_mirrored(rig->guard), 1);
        rig->lies_allowed = 0;
        assert_int_equal(rig->events[0].code, ACCEL_GUARD_QUARANTINE);
        assert_int_equal(rig->events[0].reason, ACCEL_GUARD_DIFFERS);
        assert_int_equal(rig->events[0].card, bad);
        assert_true(rig->events[0].last_good_seq_no <= last_good);
        assert_true(rig->n_lie > 0 && rig->first_lie > rig->events[0].last_good_seq_no);
        assert_in_range(rig->events[0].seq_no, rig->first_lie, rig->last_lie);
        rig_run(rig, 100, 1);
        assert_true(rig_reaches(rig, bad, ACCEL_GUARD_SERVING));
        rig_run(rig, 100, 0);
        rig_compare_states(rig);
        assert_int_equal(rig_stats(rig, 1 - bad).mirror_answers, 0);
        rig_end(rig);
    }
}

/* The mirror is behind by as much as the queue holds: the failover catches up first. */
static void a_failover_catches_up(void **state)
{
    (void)state;
    const struct accel_guard_options options = threaded(1);
    struct rig *rig = rig_open(&options, 60);
    for (int round = 0; round < 3; round++) {
        guard_take_mirror(inside(rig, 0)); /* as if its thread had no time */
        for (int i = 0; i < 700; i++)
            rig_call(rig, i % 50 ? KL_OP_STEP : KL_OP_RESET, (uint32_t)i % 2, (uint32_t)i % RIG_N_STREAM);
        guard_give_mirror(inside(rig, 0));
        rig->card[0].fault = RIG_HANG;
        rig_call(rig, KL_OP_STEP, 0, 1);
        rig_compare_states(rig);
        assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING));
        rig_compare_states(rig);
    }
    assert_int_equal(rig_stats(rig, 0).states_lost, 0);
    rig_end(rig);
}

/* ---- a mirror too far behind ---- */

static struct kl_result answer(struct rig *rig, const struct kl_request *request)
{
    struct kl_result result;
    assert_int_equal(rig->guard->ops->submit(rig->guard, request), 0);
    assert_int_equal(rig->guard->ops->poll(rig->guard, &result), 1);
    return result;
}

static void states_are_lost_and_it_says_so(void **state)
{
    (void)state;
    const struct accel_guard_options options = threaded(2);
    struct rig *rig = rig_open(&options, 61);
    for (uint32_t i = 0; i < RIG_N_STREAM; i++)
        rig_call(rig, KL_OP_STEP, 0, i);
    guard_take_mirror(inside(rig, 0));
    while (!guard_of(rig->guard)->card[0]->streams[0][2].stale) /* stream 2 fills the queue */
        rig_call(rig, KL_OP_STEP, 0, 2);
    rig_call(rig, KL_OP_STEP, 1, 2); /* its other slot as well: one stream, one event */
    rig_call(rig, KL_OP_STEP, 0, 4); /* and another */
    rig_call(rig, KL_OP_STEP, 0, 6); /* this one is reset before it matters */
    guard_give_mirror(inside(rig, 0));
    while (spsc_ring_count(&inside(rig, 0)->queue))
        sched_yield();
    rig_call(rig, KL_OP_RESET, 0, 6);
    rig_call(rig, KL_OP_STEP, 0, 6);
    rig_compare_states(rig); /* the card has them all */
    assert_int_equal(rig->n_event, 0);

    rig->card[0].reset_fails = -1;
    rig->card[0].fault = RIG_REFUSE;
    for (uint32_t i = 0; i < RIG_N_STREAM; i++)
        if (i != 2 && i != 4)
            rig_call(rig, KL_OP_STEP, 0, i); /* these know nothing of it */
    rig_fetch_events(rig);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < rig->n_event; i++)
        if (rig->events[i].code == ACCEL_GUARD_STATE_LOST)
            seen |= 1u << rig->events[i].stream;
    assert_int_equal(seen, 1u << 2 | 1u << 4);
    assert_int_equal(rig_count(rig, ACCEL_GUARD_STATE_LOST), 2);
    assert_int_equal(rig_stats(rig, 0).states_lost, 2);

    struct kl_state kept;
    for (int serving = 0; serving < 2; serving++) {
        const uint32_t stream = serving ? 4 : 2;
        struct kl_request request = rig_request(rig, KL_OP_STEP, 0, stream);
        const struct kl_result result = answer(rig, &request);
        assert_int_equal(result.status, KL_E_STATE);
        assert_int_equal(result.seq_no, request.seq_no);
        assert_int_equal(result.check, kl_result_check(&result));
        assert_int_equal(rig->guard->ops->save(rig->guard, 0, stream, &kept), KL_E_STATE);
        request.op = 99; /* a bad request is one first of all */
        assert_int_equal(answer(rig, &request).status, KL_E_OP);
        if (!serving) { /* a state of one's own is as good as a reset */
            assert_int_equal(rig->guard->ops->save(rig->guard, 0, 0, &kept), KL_OK);
            assert_int_equal(rig->guard->ops->restore(rig->guard, 0, 2, &kept), KL_OK);
            assert_int_equal(rig->truth->ops->restore(rig->truth, 0, 2, &kept), KL_OK);
            rig_call(rig, KL_OP_STEP, 0, 2);
            rig->card[0].reset_fails = 0;
            assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING)); /* stream 4 is lost still */
            continue;
        }
        /* The reset and what comes right behind it; no budget is too small for it. */
        struct kl_request reset = rig_request(rig, KL_OP_RESET, 0, 4);
        reset.budget_cycles = 1;
        request = rig_request(rig, KL_OP_STEP, 0, 4);
        assert_int_equal(rig_ask(rig, &reset), 0);
        assert_int_equal(rig_ask(rig, &request), 0);
        rig_hear_all(rig);
        assert_int_equal(rig->n_late, 0);
    }
    rig_call(rig, KL_OP_RESET, 1, 2);
    rig_compare_states(rig);
    rig_run(rig, 100, 1);
    rig_compare_states(rig);
    rig_end(rig);
}

/* The same with requests outstanding at that moment, and when the answer that shows it is an error. */
static void lost_states_answer_nothing_wrong(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        const struct accel_guard_options options = threaded(1);
        struct rig *rig = rig_open(&options, 62);
        guard_take_mirror(inside(rig, 0));
        while (!inside(rig, 0)->streams[0][2].stale)
            rig_call(rig, KL_OP_STEP, 0, 2);
        guard_give_mirror(inside(rig, 0));
        rig->card[0].reset_fails = -1;
        rig->card[0].fault = kind ? RIG_STATUS : RIG_HANG;
        const enum kl_op ops[5] = {KL_OP_STEP, KL_OP_STEP, KL_OP_PREPARE, KL_OP_RESET, KL_OP_STEP};
        struct kl_request requests[5];
        for (int i = 0; i < 5; i++) {
            requests[i] = rig_request(rig, ops[i], 0, 2);
            assert_int_equal(rig->guard->ops->submit(rig->guard, &requests[i]), 0);
        }
        if (kind == 0)
            assert_int_equal(accel_guard_give_up(rig->guard), 0);
        for (int i = 0; i < 5; i++) {
            struct kl_result result;
            assert_int_equal(rig->guard->ops->poll(rig->guard, &result), 1);
            assert_int_equal(result.seq_no, requests[i].seq_no);
            if (i < 3)
                assert_int_equal(result.status, KL_E_STATE);
            else
                rig_compare(rig, &requests[i], &result);
        }
        assert_int_equal(rig_stats(rig, 0).states_lost, 1);
        rig_compare_states(rig);
        rig_end(rig);
    }
}

/* ---- close ---- */

static void it_closes_in_every_phase(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        struct accel_guard_options options = threaded(1 + i % 3);
        options.prove = i % 5 == 0;
        options.n_probe = 200;
        struct rig *rig = rig_open(&options, 80 + i);
        rig_run(rig, 20, 0);
        if (i % 4) {
            rig->card[0].reset_fails = i % 4 == 1 ? -1 : 0;
            rig->card[0].fault = RIG_REFUSE;
            rig_call(rig, KL_OP_STEP, 0, 0);
            for (uint32_t k = 0; k < 5 * i; k++)
                rig_call(rig, KL_OP_STEP, 0, k % 7);
            if (i % 4 == 3)
                assert_true(rig_reaches(rig, 0, i % 8 == 3 ? ACCEL_GUARD_SHADOWING : ACCEL_GUARD_SERVING));
        }
        for (uint32_t k = 0; k < i % 3; k++) { /* with some outstanding */
            const struct kl_request request = rig_request(rig, KL_OP_STEP, 0, k);
            assert_int_equal(rig_ask(rig, &request), 0);
        }
        rig_end(rig);
    }
}

static struct guard_card *left_behind; /* reachable: not a leak by mistake */

static void it_closes_though_a_card_hangs(void **state)
{
    (void)state;
    const struct accel_guard_options options = threaded(2);
    struct rig *rig = rig_open(&options, 90);
    rig_run(rig, 20, 0);
    rig->card[1].reset_hangs = 1;
    rig->card[1].fault = RIG_HANG;
    rig_call(rig, KL_OP_STEP, 0, 1);
    rig_run(rig, 200, 1); /* the loads do not wait for it */
    assert_int_equal(rig_stats(rig, 1).phase, ACCEL_GUARD_OUT);
    assert_int_equal(rig_stats(rig, 0).phase, ACCEL_GUARD_SERVING);
    rig_compare_states(rig);
    left_behind = inside(rig, 1);
    const time_t start = time(NULL);
    rig->guard->ops->close(rig->guard);
    assert_true(time(NULL) - start <= 20);
    assert_int_equal(rig->card[0].is_open, 0);
    assert_int_equal(rig->card[1].is_open, 1);
    /* For a clean end of this test: the device comes to itself. */
    rig->card[1].reset_hangs = 0;
    while (!atomic_load_explicit(&left_behind->gone, memory_order_acquire))
        sleep_ms(1);
    rig->card[1].inner->ops->close(rig->card[1].inner);
    rig->truth->ops->close(rig->truth);
    free(rig->images[0]);
    free(rig->images[1]);
    free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_shows),
        cmocka_unit_test(nothing_shows_when_proved),
        cmocka_unit_test(lies_are_found_and_bounded),
        cmocka_unit_test(a_failover_catches_up),
        cmocka_unit_test(states_are_lost_and_it_says_so),
        cmocka_unit_test(lost_states_answer_nothing_wrong),
        cmocka_unit_test(it_closes_in_every_phase),
        cmocka_unit_test(it_closes_though_a_card_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
