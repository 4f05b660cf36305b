/* The guard without threads: what each kind of fault leads to, and that no answer, no state and no other
 * card's stream shows any of it. */
#include "test_accel_guard_faults.h"

/* ---- one fault at a time ---- */

static void fault_by_fault(uint32_t n_card, int prove, uint32_t check_every)
{
    for (uint32_t i = 0; i < N_DETECTED; i++) {
        struct accel_guard_options options = rig_options(n_card);
        options.prove = prove;
        options.check_every = check_every;
        struct rig *rig = rig_open(&options, 100 + i);
        const uint32_t bad = i % n_card;
        rig_run(rig, 60, 0);
        rig_idle(rig);
        assert_int_equal(rig->n_event, 0);
        rig_call(rig, KL_OP_STEP, 0, bad); /* there is a last answer, and a state */
        const uint32_t last_good = rig->seq_no;
        const struct accel_guard_stats before = rig_stats(rig, bad);
        rig->card[bad].fault = DETECTED[i].fault;
        rig->lies_allowed = is_lie(DETECTED[i].fault) && !prove;
        for (int k = 0; k < 3; k++)
            rig_call(rig, KL_OP_STEP, 0, bad);
        assert_true(rig->card[bad].n_fired > 0 || DETECTED[i].fault == RIG_EXTRA);
        rig->lies_allowed = 0;
        rig_idle(rig);
        assert_true(rig->n_event > 0);
        const struct accel_guard_event *event = &rig->events[0];
        const int differs = DETECTED[i].reason == ACCEL_GUARD_DIFFERS;
        assert_int_equal(event->code, differs ? ACCEL_GUARD_QUARANTINE : ACCEL_GUARD_FAILOVER);
        assert_int_equal(event->reason, DETECTED[i].reason);
        assert_int_equal(event->card, bad);
        if (DETECTED[i].fault != RIG_EXTRA) {
            assert_int_equal(event->stream, bad);
            assert_int_equal(event->seq_no, last_good + 1);
            assert_true(event->took_cycles > 0);
        }
        if (differs && check_every == 1)
            assert_int_equal(event->last_good_seq_no, last_good);
        /* Only lies are given, and only between the flip and its detection. */
        if (rig->n_lie)
            assert_true(is_lie(DETECTED[i].fault) && rig->first_lie == last_good + 1 &&
                        rig->last_lie == last_good + 1);
        assert_int_equal(rig->n_lie > 0, is_lie(DETECTED[i].fault) && !prove);
        const struct accel_guard_stats after = rig_stats(rig, bad);
        assert_int_equal(after.failovers, !differs);
        assert_int_equal(after.quarantines, differs);
        assert_int_equal(after.differed, differs || DETECTED[i].reason == ACCEL_GUARD_STATUS);
        if (DETECTED[i].fault != RIG_EXTRA)
            assert_true(after.mirror_answers >= before.mirror_answers + 2);
        for (uint32_t c = 0; c < n_card; c++)
            assert_true(c == bad || (rig_stats(rig, c).phase == ACCEL_GUARD_SERVING &&
                                     rig_stats(rig, c).mirror_answers == 0));
        rig_compare_states(rig);
        assert_true(rig_reaches(rig, bad, ACCEL_GUARD_SERVING));
        assert_int_equal(rig->events[rig->n_event - 1].code, ACCEL_GUARD_RECOVERED);
        assert_true(rig->events[rig->n_event - 1].count >= options.n_probe);
        rig_compare_states(rig);
        /* The card itself answers again. */
        const int n_answer = rig->card[bad].n_answer;
        const uint64_t n_passed = rig_stats(rig, bad).answers;
        rig_call(rig, KL_OP_STEP, 1, bad);
        assert_int_equal(rig->card[bad].n_answer, n_answer + 1);
        assert_int_equal(rig_stats(rig, bad).answers, n_passed + 1);
        assert_int_equal(accel_guard_mirrored(rig->guard), 0);
        rig_run(rig, 60, 1);
        rig_compare_states(rig);
        assert_phase(rig, bad, ACCEL_GUARD_SERVING);
        rig_end(rig);
    }
}

static void every_fault_is_found(void **state)
{
    (void)state;
    fault_by_fault(1, 0, 1);
    fault_by_fault(3, 0, 1);
}

static void proved_answers_are_never_wrong(void **state)
{
    (void)state;
    fault_by_fault(1, 1, 0); /* prove compares all, whatever check_every says */
    fault_by_fault(2, 1, 1);
}

/* Compared at once, whatever check_every says: neither an error nor its absence is believed. */
static void statuses_are_always_checked(void **state)
{
    (void)state;
    struct accel_guard_options options = rig_options(1);
    options.check_every = 0;
    struct rig *rig = rig_open(&options, 3);
    rig_call(rig, KL_OP_STEP, 0, 0);
    struct kl_request bad = rig_request(rig, KL_OP_STEP, 0, 1);
    bad.x[2] = 0x7e00;
    assert_int_equal(rig_ask(rig, &bad), 0);
    assert_int_equal(rig_hear(rig).status, KL_E_INPUT); /* both say so */
    assert_phase(rig, 0, ACCEL_GUARD_SERVING);
    rig_call(rig, KL_OP_STEP, 0, 0);
    rig->card[0].fault = RIG_DENY;
    rig->lies_allowed = 1; /* the class of a refused request: until the mirror has refused it */
    bad.seq_no = ++rig->seq_no;
    assert_int_equal(rig_ask(rig, &bad), 0);
    rig_hear(rig);
    rig->lies_allowed = 0;
    rig_idle(rig);
    assert_int_equal(rig->events[0].code, ACCEL_GUARD_QUARANTINE);
    assert_int_equal(rig->events[0].seq_no, bad.seq_no);
    rig_compare_states(rig);
    rig_end(rig);
    /* A request that no card may carry out is not believed to be. */
    rig = rig_open(&options, 4);
    rig_call(rig, KL_OP_STEP, 0, 0);
    rig->card[0].fault = RIG_DENY;
    bad = rig_request(rig, KL_OP_STEP, 0, KL_N_STREAM_MAX);
    assert_int_equal(rig_ask(rig, &bad), 0);
    assert_int_equal(rig_hear(rig).status, KL_E_STREAM);
    rig_idle(rig);
    assert_int_equal(rig->events[0].code, ACCEL_GUARD_QUARANTINE);
    rig_end(rig);
}

/* Every n-th answer: a lie is found at the n-th at the latest. */
static void every_nth_answer_is_compared(void **state)
{
    (void)state;
    struct accel_guard_options options = rig_options(1);
    options.check_every = 5;
    struct rig *rig = rig_open(&options, 3);
    for (int i = 0; i < 20; i++)
        rig_call(rig, KL_OP_STEP, 0, 0);
    rig_idle(rig);
    assert_int_equal(rig_stats(rig, 0).compared, 4);
    rig->card[0].fault = RIG_FLIP;
    rig->lies_allowed = 1;
    const uint32_t last_good = rig->seq_no;
    for (uint32_t i = 0; rig->n_event == 0; i++) {
        assert_true(i < 6);
        rig_call(rig, KL_OP_STEP, 0, 0);
        rig_idle(rig);
    }
    assert_int_equal(rig->events[0].last_good_seq_no, last_good);
    assert_int_equal(rig->events[0].seq_no, last_good + 5);
    assert_int_equal(rig->n_lie, 5);
    rig->lies_allowed = 0;
    rig_compare_states(rig);
    rig_end(rig);
}

/* Several wrong answers are there before the mirror comes to the first: that one is told. */
static void the_first_lie_is_told(void **state)
{
    (void)state;
    const struct accel_guard_options options = rig_options(1);
    struct rig *rig = rig_open(&options, 4);
    rig_call(rig, KL_OP_STEP, 0, 0);
    rig->card[0].fault = RIG_FLIP;
    rig->lies_allowed = 1;
    for (uint32_t i = 0; i < 4; i++) {
        const struct kl_request request = rig_request(rig, KL_OP_STEP, 0, i);
        assert_int_equal(rig_ask(rig, &request), 0);
    }
    rig_hear_all(rig);
    assert_int_equal(rig->n_lie, 4);
    rig_idle(rig);
    assert_int_equal(rig->events[0].seq_no, 2);
    assert_int_equal(rig->events[0].last_good_seq_no, 1);
    assert_int_equal(rig_stats(rig, 0).differed, 4);
    rig->lies_allowed = 0;
    rig_compare_states(rig);
    rig_end(rig);
}

static void slow_is_not_lost(void **state)
{
    (void)state;
    const struct accel_guard_options options = rig_options(2);
    struct rig *rig = rig_open(&options, 5);
    rig->card[0].delay_polls = RIG_PATIENCE - 5;
    rig_run(rig, 200, 0);
    assert_int_equal(rig->n_event, 0);
    assert_int_equal(accel_guard_give_up(rig->guard), -1); /* nothing is outstanding */
    rig_compare_states(rig);
    rig_end(rig);
}

/* Its own outstanding requests are stepped on the mirror, in their places among the others'. */
static void what_is_outstanding_is_not_lost(void **state)
{
    (void)state;
    for (uint32_t n_before = 0; n_before < KL_QUEUE_DEPTH; n_before++) {
        const struct accel_guard_options options = rig_options(2);
        struct rig *rig = rig_open(&options, n_before);
        rig_run(rig, 40, 0);
        rig_idle(rig);
        const uint64_t n_mirror = rig_stats(rig, 1).mirror_answers;
        for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++) {
            const struct kl_request request = rig_request(rig, KL_OP_STEP, i / 2 % 2, i % 4);
            assert_int_equal(rig_ask(rig, &request), 0);
        }
        const struct kl_request more = rig_request(rig, KL_OP_STEP, 0, 0);
        assert_int_equal(rig_ask(rig, &more), -1);
        for (uint32_t i = 0; i < n_before; i++)
            rig_hear(rig);
        rig->card[0].fault = n_before % 2 ? RIG_HANG : RIG_DAMAGE;
        rig_hear_all(rig);
        /* even streams, from the next one of its own on */
        assert_int_equal(rig_stats(rig, 0).mirror_answers, (KL_QUEUE_DEPTH - n_before) / 2);
        assert_int_equal(rig_stats(rig, 1).mirror_answers, n_mirror);
        rig_compare_states(rig);
        rig_end(rig);
    }
}

/* ---- long runs ---- */

static struct rig *random_run(uint64_t seed, int prove, int flags)
{
    struct accel_guard_options options = rig_options(1 + (uint32_t)(seed % 3));
    options.prove = prove;
    options.check_every = prove ? 0 : 1;
    options.n_probe = 1 + (uint32_t)(seed % 40);
    struct rig *rig = rig_open(&options, seed);
    rig->flags_allowed = flags;
    uint32_t n_fault = 0;
    for (int i = 0; i < 120; i++) {
        rig_run(rig, rig_below(rig, 40), 1);
        struct rig_card *card = &rig->card[rig_below(rig, options.n_card)];
        const int fault = DETECTED[rig_below(rig, N_DETECTED)].fault;
        if (rig_below(rig, 3) || (is_lie(fault) && !prove))
            continue; /* lies without prove: fault_by_fault */
        n_fault++;
        card->fault = fault;
        card->sticky = rig_below(rig, 4) == 0;
        card->reset_fails = (int)rig_below(rig, 3);
        card->load_fails = rig_below(rig, 4) == 0;
        card->restore_fails = rig_below(rig, 4) == 0;
        rig_run(rig, rig_below(rig, 40), 1);
        if (card->sticky)
            card->fault = RIG_NONE;
        card->sticky = 0;
        if (rig_below(rig, 2))
            assert_true(rig_reaches(rig, rig_below(rig, options.n_card), ACCEL_GUARD_SERVING));
    }
    assert_true(n_fault > 10);
    for (uint32_t c = 0; c < options.n_card; c++) {
        rig->card[c].fault = RIG_NONE;
        rig->card[c].reset_fails = 0;
        assert_true(rig_reaches(rig, c, ACCEL_GUARD_SERVING));
    }
    rig_compare_states(rig);
    rig_run(rig, 100, 0);
    rig_compare_states(rig);
    uint64_t lost = 0, recovered = 0;
    for (uint32_t c = 0; c < options.n_card; c++) {
        const struct accel_guard_stats stats = rig_stats(rig, c);
        lost += stats.failovers + stats.quarantines;
        recovered += stats.recoveries;
        assert_int_equal(stats.recoveries, stats.failovers + stats.quarantines);
        assert_int_equal(stats.states_lost, 0);
    }
    assert_true(lost > 5 && recovered == lost);
    assert_true(rig->n_late > 0 && rig->n_refused > 0);
    return rig;
}

static void nothing_shows_in_long_runs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++)
        rig_end(random_run(seed, 0, seed % 2));
}

static void nothing_shows_when_proved(void **state)
{
    (void)state;
    for (uint64_t seed = 10; seed < 16; seed++)
        rig_end(random_run(seed, 1, 0));
}

static void a_run_is_the_same_every_time(void **state)
{
    (void)state;
    struct rig *one = random_run(21, 0, 0), *two = random_run(21, 0, 0);
    assert_int_equal(one->n_event, two->n_event);
    assert_true(one->n_event > 20);
    for (uint32_t i = 0; i < one->n_event; i++) {
        one->events[i].took_cycles = two->events[i].took_cycles = 0; /* real time */
        assert_memory_equal(&one->events[i], &two->events[i], sizeof one->events[i]);
    }
    for (uint32_t c = 0; c < one->options.n_card; c++) {
        const struct accel_guard_stats a = rig_stats(one, c), b = rig_stats(two, c);
        assert_int_equal(a.phase, b.phase);
        assert_memory_equal(&a.answers, &b.answers, sizeof a - offsetof(struct accel_guard_stats, answers));
    }
    rig_end(one);
    rig_end(two);
}

/* ---- the rest ---- */

static void news_is_bounded(void **state)
{
    (void)state;
    const struct accel_guard_options options = rig_options(1);
    struct rig *rig = rig_open(&options, 41);
    struct accel_guard_event event;
    struct kl_result none;
    rig->card[0].reset_fails = 100;
    rig->card[0].fault = RIG_REFUSE;
    rig_call(rig, KL_OP_STEP, 0, 0);
    for (uint32_t i = 0; i < 1000000 && rig->card[0].reset_fails; i++)
        rig->guard->ops->poll(rig->guard, &none);
    uint32_t n = 0;
    for (; accel_guard_event(rig->guard, &event); n++)
        assert_int_equal(event.code, n ? ACCEL_GUARD_RESET : ACCEL_GUARD_FAILOVER); /* the oldest are kept */
    assert_int_equal(n, 64);
    rig_end(rig);
}

static void cards_of_another_build_are_refused(void **state)
{
    (void)state;
    struct accel *cards[2] = {accel_csim_open(&kl_build_small, 1), accel_csim_open(&kl_build_fast, 1)};
    struct accel_guard_options options = rig_options(2);
    char error[ACCEL_ERROR_CHARS];
    options.cards = cards;
    assert_null(accel_guard_open(&options, error));
    assert_non_null(strstr(error, "card 1"));
    assert_non_null(strstr(error, "fast"));
    cards[0] = accel_csim_open(&kl_build_small, 2); /* half of a pair: other cycles */
    options.n_card = 1;
    assert_null(accel_guard_open(&options, error));
    assert_non_null(strstr(error, "card 0"));
}

static void it_says_what_it_is(void **state)
{
    (void)state;
    const struct accel_guard_options options = rig_options(3);
    struct rig *rig = rig_open(&options, 43);
    struct accel *guard = rig->guard;
    struct kl_info info, limits;
    assert_int_equal(accel_build_limits(&kl_build_small, &limits), 0);
    assert_int_equal(accel_guard_n_card(guard), 3);
    assert_null(guard->ops->reset);
    for (int lost = 0; lost < 2; lost++) {
        guard->ops->info(guard, &info);
        assert_string_equal(info.build, limits.build);
        assert_int_equal(info.n_stream, limits.n_stream);
        for (uint32_t s = 0; s < KL_N_SLOT; s++)
            assert_int_equal(info.image_hash[s], rig->loaded[s]->image_hash);
        guard->ops->warm(guard, 0, 0);
        rig_call(rig, KL_OP_STEP, 0, 0);
        assert_int_equal(accel_guard_mirrored(guard), lost);
        struct kl_state kept;
        assert_int_equal(guard->ops->save(guard, KL_N_SLOT, 0, &kept), KL_E_SLOT);
        assert_int_equal(guard->ops->save(guard, 0, KL_N_STREAM_MAX, &kept), KL_E_STREAM);
        assert_int_equal(guard->ops->save(guard, 0, 0, &kept), KL_OK);
        kept.check++;
        assert_int_equal(guard->ops->restore(guard, 0, 0, &kept), KL_E_STATE);
        rig_compare_states(rig);
        rig->card[0].reset_fails = -1;
        rig->card[0].fault = RIG_REFUSE;
        rig_idle(rig);
        assert_phase(rig, 0, ACCEL_GUARD_OUT);
    }
    for (enum accel_guard_reason r = ACCEL_GUARD_OK; r <= ACCEL_GUARD_LOAD; r++)
        for (enum accel_guard_reason other = ACCEL_GUARD_OK; other < r; other++)
            assert_string_not_equal(accel_guard_reason_name(r), accel_guard_reason_name(other));
    rig_end(rig);
}

/* How long a card takes for a model is not the same every time. What comes after what is. */
static void inline_loads_come_one_after_the_other(void **state)
{
    (void)state;
    const struct accel_guard_options options = rig_options(3);
    struct rig *rig = rig_open(&options, 44);
    struct accel *guard = rig->guard;
    enum { DELAY = 5 };
    for (uint32_t i = 0; i < 3; i++)
        rig->card[i].load_delay = DELAY + i;
    assert_int_equal(guard->ops->load_begin(guard, 0, rig->images[0], rig->images[0]->size_bytes), KL_OK);
    uint32_t status, n_under_way = 0;
    while ((status = guard->ops->load_advance(guard)) == KL_E_BUSY)
        for (uint32_t i = 0; i < 3 && rig->card[i].load_waits; i++) {
            n_under_way++;
            for (uint32_t later = i + 1; later < 3; later++)
                assert_int_equal(rig->card[later].load_waits, DELAY + later);
        }
    assert_int_equal(status, KL_OK);
    assert_true(n_under_way > 0);
    rig_end(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_is_found),
        cmocka_unit_test(proved_answers_are_never_wrong),
        cmocka_unit_test(statuses_are_always_checked),
        cmocka_unit_test(every_nth_answer_is_compared),
        cmocka_unit_test(the_first_lie_is_told),
        cmocka_unit_test(slow_is_not_lost),
        cmocka_unit_test(what_is_outstanding_is_not_lost),
        cmocka_unit_test(nothing_shows_in_long_runs),
        cmocka_unit_test(nothing_shows_when_proved),
        cmocka_unit_test(a_run_is_the_same_every_time),
        cmocka_unit_test(news_is_bounded),
        cmocka_unit_test(cards_of_another_build_are_refused),
        cmocka_unit_test(it_says_what_it_is),
        cmocka_unit_test(inline_loads_come_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
