/* The poll loop's queue: ticks that wait, a newer one that takes its elder's place, what comes while one
 * waits. Replay clock, so every stamp is exact. */
#include "test_appliance_rig.h"

/* The replay clock's service times, ns: of a frame of one message with a tick, and of a tick of the fake. */
enum {
    FRAME_NS = 120,
    MESSAGE_NS = 60,
    FEATURES_NS = 400,
    IO_NS = 900,
    PUBLISH_NS = 150,
    KERNEL_NS = N_CYCLE * 4,
    DECODE_NS = FRAME_NS + MESSAGE_NS,
    TAKE_NS = DECODE_NS + FEATURES_NS,
    ANSWER_NS = IO_NS + KERNEL_NS + PUBLISH_NS, /* from the submit to the last check */
    TICK_NS = ANSWER_NS + KERNEL_NS,            /* and the prepare */
    DRAIN_FRAMES = 128,                         /* decoded before a tick that waits has its turn */
    PENDING = 512,
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

/* ---- superseding ---- */

/* Frames of a burst, all there at once: 1 2 1 1 3. */
static void burst(int supersede)
{
    static const unsigned locates[] = {1, 2, 1, 1, 3};
    start(&r, supersede ? "{killline: {supersede: true}}" : "{}");
    open_symbols(&r, 3);
    for (int i = 0; i < 5; i++)
        bid_frame(&r, locates[i], T);
    finish();
    assert_int_equal(stats.predictions, 5);
}

static void a_newer_tick_takes_its_elders_turn(void **state)
{
    (void)state;
    burst(1);
    assert_int_equal(stats.verdicts[VERDICT_SUPERSEDED], 2);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 3);
    /* An elder's record: when it was skipped the younger one had been decoded. */
    for (unsigned i = 0; i < 2; i++) {
        const struct audit_prediction *p = prediction_at(&r, 1, i);
        const uint64_t first = i ? 2 : 0, then = i ? 3 : 2; /* frames of the burst */
        assert_int_equal(p->verdict, VERDICT_SUPERSEDED);
        assert_int_equal(p->arrival, T);
        assert_int_equal(p->decoded, T + first * TAKE_NS + DECODE_NS);
        assert_int_equal(p->decided, T + then * TAKE_NS + DECODE_NS);
        assert_int_equal(p->age_cycles, then * TAKE_NS + DECODE_NS);
        assert_int_equal(p->threshold_cycles, 999000);
        assert_int_equal(p->submitted, 0);
        assert_int_equal(p->completed, 0);
        assert_int_equal(p->request_seq, 0);
        assert_int_equal(p->feature_hash, 0);
        assert_int_equal(p->flags, 0);
        assert_int_equal(p->model_hash, IMAGE_HASH);
        assert_memory_equal(p->symbol, "S001    ", 8);
    }
    /* The youngest has the first one's turn, before the other symbols; they are untouched. */
    static const unsigned turns[] = {1, 2, 3}, frames[] = {3, 1, 4};
    for (unsigned i = 0; i < 3; i++) {
        const struct audit_prediction *p = prediction_at(&r, turns[i], i ? 0 : 2);
        assert_int_equal(p->verdict, VERDICT_PUBLISHED);
        assert_int_equal(p->decoded, T + frames[i] * TAKE_NS + DECODE_NS);
        assert_int_equal(p->submitted, T + 5 * TAKE_NS + i * TICK_NS);
        assert_int_equal(p->decided, p->submitted + ANSWER_NS);
        assert_int_equal(p->age_cycles, p->decided - T);
        assert_int_equal(p->publish_seq, i + 1);
        assert_int_equal(p->bid_price, 1000000 + 100 * (frames[i] + 1));
    }
    assert_string_equal(operations(&r), "SRSPSPSP");
}

static void without_superseding_all_are_worked_off_in_order(void **state)
{
    (void)state;
    burst(0);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 5);
    for (unsigned i = 0; i < 5; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        assert_int_equal(p->bid_price, 1000000 + 100 * (i + 1));
        assert_int_equal(p->decoded, T + i * TAKE_NS + DECODE_NS);
        assert_int_equal(p->submitted, T + 5 * TAKE_NS + i * TICK_NS);
    }
}

/* The tick that is at work, or has been, is nobody's elder any more. */
static void a_tick_whose_turn_has_come_is_not_superseded(void **state)
{
    (void)state;
    start(&r, "{killline: {supersede: true}}");
    open_symbols(&r, 1);
    bid_frame(&r, 1, T);
    bid_frame(&r, 1, T + TAKE_NS + 1); /* it comes while the first is at work */
    bid_frame(&r, 1, T + TAKE_NS + 2);
    finish();
    assert_int_equal(verdict_of(&r, 0), VERDICT_PUBLISHED);
    assert_int_equal(verdict_of(&r, 1), VERDICT_SUPERSEDED);
    assert_int_equal(verdict_of(&r, 2), VERDICT_PUBLISHED);
    assert_int_equal(prediction_of(&r, 2)->submitted, T + TAKE_NS + TICK_NS + 2 * TAKE_NS);
}

/* The features of a tick that is skipped are computed all the same, as in training: the answers behind it
 * are of the same inputs as if it had been inferred. */
static void features_see_the_ticks_that_are_skipped(void **state)
{
    uint64_t hash[2];
    (void)state;
    for (int supersede = 0; supersede < 2; supersede++) {
        burst(supersede);
        hash[supersede] = prediction_at(&r, 1, 2)->feature_hash;
        assert_true(hash[supersede] != 0);
    }
    assert_int_equal(hash[0], hash[1]);
}

/* The first tick after a gap says that the stream starts anew; when it is skipped, its heir says it. */
static void that_a_stream_starts_anew_is_handed_on(void **state)
{
    (void)state;
    start(&r, "{feed: {gap_wait_us: 0}, killline: {supersede: true}}");
    open_symbols(&r, 1);
    bid_frame(&r, 1, T);
    r.seq += 2;
    bid_frame(&r, 1, T + 1000000);
    bid_frame(&r, 1, T + 1000000);
    finish();
    assert_int_equal(stats.verdicts[VERDICT_SUPERSEDED], 1);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 2);
    assert_string_equal(operations(&r), "SRSPRSP");
}

/* A symbol that ticks faster than the queue moves is predicted all the time, in its turn: it does not go to
 * the queue's end with every tick. */
static void a_fast_symbol_gets_its_turns(void **state)
{
    enum { N_SLOW = 20, N_FAST = 400 };
    (void)state;
    start(&r, "{killline: {supersede: true}}");
    open_symbols(&r, 1 + N_SLOW);
    /* A frame every 1000 ns: there is time to take it, but not to infer its tick. Every second one is the
     * fast symbol's. */
    for (unsigned i = 0; i < N_FAST; i++) {
        bid_frame(&r, 1, T + 2000 * i);
        bid_frame(&r, 2 + i % N_SLOW, T + 2000 * i + 1000);
    }
    finish();
    unsigned n[N_FAST + 2] = {0};
    uint64_t last = 0, most = 0;
    for (unsigned i = 0; i < stats.predictions; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        if (p->verdict != VERDICT_PUBLISHED)
            continue;
        n[p->locate]++;
        if (p->locate != 1)
            continue;
        most = last && p->decided - last > most ? p->decided - last : most;
        last = p->decided;
    }
    for (unsigned locate = 1; locate <= 1 + N_SLOW; locate++)
        assert_true(n[locate] > 0);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED] + stats.verdicts[VERDICT_SUPERSEDED], 2 * N_FAST);
    assert_true(n[1] > 8);
    /* One round over all symbols, each with its inference and the frames that come meanwhile, at most. */
    assert_true(most <= (1 + N_SLOW) * (uint64_t)(TICK_NS + 5 * TAKE_NS));
}

/* ---- many frames ---- */

/* Frames that are there are decoded before a tick has its turn; but not more than so many. */
static void a_tick_waits_for_a_bounded_number_of_frames(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        start(&r, "{killline: {supersede: true}}");
        open_symbols(&r, 2);
        bid_frame(&r, 1, T);
        for (int i = 1; i < DRAIN_FRAMES + more; i++)
            bid_frame(&r, 2, T);
        finish();
        const struct audit_prediction *first = prediction_at(&r, 1, 0),
                                      *last = prediction_at(&r, 2, DRAIN_FRAMES + (unsigned)more - 2);
        assert_int_equal(first->verdict, VERDICT_PUBLISHED);
        assert_int_equal(first->submitted, T + DRAIN_FRAMES * TAKE_NS);
        assert_int_equal(last->verdict, VERDICT_PUBLISHED);
        /* The one frame more is taken between the two. */
        assert_int_equal(last->submitted, first->submitted + TICK_NS + (more ? TAKE_NS : 0));
    }
}

/* A queue that is full is worked off before more is decoded: nothing is lost, nothing grows. */
static void a_full_queue_loses_nothing(void **state)
{
    enum { N = PENDING + 88, IN_FRAME = 30 };
    (void)state;
    start(&r, "{replay: {frame_ns: 0, message_ns: 0, features_ns: 0, io_ns: 0, publish_ns: 0}}");
    open_symbols(&r, IN_FRAME);
    for (unsigned i = 0; i < N; i += IN_FRAME) {
        struct itch_msg m[IN_FRAME];
        for (unsigned k = 0; k < IN_FRAME; k++)
            m[k] = bid(&r, 1 + k, T);
        next_frame(&r, T, m, IN_FRAME);
    }
    finish();
    assert_int_equal(stats.predictions, N);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], N);
    uint64_t waited = 0;
    for (unsigned i = 0; i < N; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        assert_int_equal(p->bid_price, 1000000 + 100 * (i + 1)); /* in order */
        /* Whatever came behind a full queue was decoded when the first of it had been worked off. */
        assert_int_equal(p->decoded, T + (i < PENDING ? 0 : (uint64_t)(i - PENDING + 1) * 2 * KERNEL_NS));
        waited = p->submitted - p->decoded > waited ? p->submitted - p->decoded : waited;
    }
    assert_int_equal(waited, (PENDING - 1) * 2 * KERNEL_NS);
}

/* Superseding, every symbol there can be waits at once. */
static void every_stream_finds_room(void **state)
{
    enum { IN_FRAME = 32 };
    (void)state;
    start(&r, "{killline: {supersede: true}}");
    open_symbols(&r, KL_N_STREAM_MAX);
    for (int round = 0; round < 3; round++)
        for (unsigned locate = 1; locate <= KL_N_STREAM_MAX; locate += IN_FRAME) {
            struct itch_msg m[IN_FRAME];
            for (unsigned k = 0; k < IN_FRAME; k++)
                m[k] = bid(&r, locate + k, T);
            next_frame(&r, T, m, IN_FRAME);
        }
    finish();
    assert_int_equal(stats.predictions, 3 * KL_N_STREAM_MAX);
    assert_int_equal(stats.verdicts[VERDICT_SUPERSEDED], 2 * KL_N_STREAM_MAX);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED] + stats.verdicts[VERDICT_EXPECTED_LATE],
                     KL_N_STREAM_MAX);
}

/* ---- what comes while a tick waits ---- */

/* The tick is decoded, then a frame tells of a halt: it is not inferred. After the halt the stream starts
 * anew, with or without a tick in it. */
static void a_halt_that_comes_while_a_tick_waits(void **state)
{
    (void)state;
    for (int tick_in_it = 0; tick_in_it < 2; tick_in_it++) {
        start(&r, "{}");
        open_symbols(&r, 2);
        bid_frame(&r, 1, T);
        bid_frame(&r, 1, T + 1000000);
        bid_frame(&r, 2, T + 1000000);
        const struct itch_msg halt = feed_state(1, "S001", 'H', T + 1000000);
        next_frame(&r, T + 1000000, &halt, 1);
        if (tick_in_it)
            bid_frame(&r, 1, T + 1000000);
        const struct itch_msg again = feed_state(1, "S001", 'T', T + 2000000);
        next_frame(&r, T + 2000000, &again, 1);
        bid_frame(&r, 1, T + 2000000);
        finish();
        assert_int_equal(prediction_at(&r, 1, 0)->verdict, VERDICT_PUBLISHED);
        for (unsigned i = 1; i < 2u + (unsigned)tick_in_it; i++) {
            const struct audit_prediction *p = prediction_at(&r, 1, i);
            assert_int_equal(p->verdict, VERDICT_HALTED);
            assert_int_equal(p->submitted, 0);
            assert_int_equal(p->feature_hash, 0);
        }
        assert_int_equal(prediction_at(&r, 1, 2 + (unsigned)tick_in_it)->verdict, VERDICT_PUBLISHED);
        assert_int_equal(prediction_at(&r, 2, 0)->verdict, VERDICT_PUBLISHED);
        assert_string_equal(operations(&r), "SRSPSPRSP");
    }
}

static void a_gap_that_comes_while_a_tick_waits(void **state)
{
    (void)state;
    start(&r, "{feed: {gap_wait_us: 0}, join: {settle_ms: 1}}");
    open_symbols(&r, 2);
    bid_frame(&r, 1, T);
    bid_frame(&r, 2, T);
    bid_frame(&r, 1, T + 2000000);
    r.seq++;
    bid_frame(&r, 2, T + 2000000);
    bid_frame(&r, 1, T + 4000000);
    bid_frame(&r, 2, T + 4000000);
    finish();
    for (unsigned locate = 1; locate <= 2; locate++) {
        assert_int_equal(prediction_at(&r, locate, 0)->verdict, VERDICT_PUBLISHED);
        assert_int_equal(prediction_at(&r, locate, 1)->verdict, VERDICT_BOOK_UNRELIABLE);
        assert_int_equal(prediction_at(&r, locate, 2)->verdict, VERDICT_PUBLISHED);
    }
    assert_string_equal(operations(&r), "SRSPSPRSPRSP");
}

/* A tick of an unreliable book ends the stream's state, behind the elder that waits and before the next one:
 * the elder's own step is not the first of the new state. */
static void a_state_ends_behind_the_elder_that_waits(void **state)
{
    (void)state;
    start(&r, "{}");
    open_symbols(&r, 1);
    bid_frame(&r, 1, T);
    bid_frame(&r, 1, T + 1000000);
    /* crossed, and not any more */
    const struct itch_msg crossed[] = {feed_order(1, "S001", 900, 'S', 100, 500000, T + 1000000)};
    const struct itch_msg sound[] = {feed_delete(1, 900, T + 1000000)};
    next_frame(&r, T + 1000000, crossed, 1);
    next_frame(&r, T + 1000000, sound, 1);
    bid_frame(&r, 1, T + 1000000);
    finish();
    static const unsigned verdicts[] = {VERDICT_PUBLISHED, VERDICT_BOOK_UNRELIABLE, VERDICT_PUBLISHED,
                                        VERDICT_PUBLISHED, VERDICT_PUBLISHED};
    assert_int_equal(stats.predictions, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(verdict_of(&r, i), verdicts[i]);
    assert_string_equal(operations(&r), "SRSPSPRSPSP");
}

/* ---- the end ---- */

/* What waits when the last frame has come is worked off, what a hole holds back too. */
static void the_end_works_off_what_waits(void **state)
{
    (void)state;
    start(&r, "{feed: {gap_wait_us: 100000}}");
    open_symbols(&r, 3);
    bid_frame(&r, 1, T);
    bid_frame(&r, 2, T);
    r.seq++;
    bid_frame(&r, 3, T); /* behind a hole */
    finish();
    assert_int_equal(stats.predictions, 3);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 3);
    assert_int_equal(n_event(&r, AUDIT_EVENT_GAP), 1);
    assert_int_equal(n_event(&r, AUDIT_EVENT_STOP), 1);
}

/* ---- real clock ---- */

/* The same burst from the ring: everything that is there has been decoded before the first inference. */
static void a_burst_is_decoded_first_under_the_real_clock(void **state)
{
    static const unsigned locates[] = {1, 2, 1, 1, 3};
    (void)state;
    start(&r, "{clock: real, killline: {supersede: true, device_timeout_us: 100000}}");
    r.hz = 2e11;
    open_symbols(&r, 3);
    for (int i = 0; i < 5; i++)
        bid_frame(&r, locates[i], T);
    finish();
    assert_int_equal(stats.predictions, 5);
    assert_int_equal(stats.verdicts[VERDICT_SUPERSEDED], 2);
    assert_int_equal(prediction_at(&r, 1, 0)->verdict, VERDICT_SUPERSEDED);
    assert_int_equal(prediction_at(&r, 1, 1)->verdict, VERDICT_SUPERSEDED);
    uint64_t before = 0;
    static const unsigned turns[] = {1, 2, 3};
    for (unsigned i = 0; i < 3; i++) {
        const struct audit_prediction *p = prediction_at(&r, turns[i], i ? 0 : 2);
        assert_true(p->submitted >= prediction_at(&r, 3, 0)->decoded);
        assert_true(p->submitted > before);
        before = p->submitted;
    }
}

/* Full bursts, one after the other: the first symbol's turn comes before the last frame has been taken. */
static void a_tick_waits_for_a_bounded_number_of_bursts(void **state)
{
    enum { N = 400 };
    (void)state;
    for (int supersede = 0; supersede < 2; supersede++) {
        start(&r, supersede ? "{clock: real, killline: {supersede: true, device_timeout_us: 100000}}"
                            : "{clock: real, killline: {device_timeout_us: 100000}}");
        r.hz = 2e11; /* the line is a hundred times as far away */
        open_symbols(&r, 2);
        const unsigned first = r.n_frame;
        bid_frame(&r, 1, T);
        for (int i = 1; i < N; i++)
            bid_frame(&r, 2, T);
        finish();
        assert_int_equal(stats.predictions, N);
        const uint64_t submitted = prediction_at(&r, 1, 0)->submitted;
        unsigned n = 0;
        for (unsigned i = 0; i + 1 < N; i++)
            n += prediction_at(&r, 2, i)->decoded < submitted;
        const unsigned bursts = supersede ? 4 : 1;
        assert_true(submitted != 0);
        assert_true(n + 1 + first <= bursts * PORT_BURST);
        assert_true(n + 1 + first > (bursts - 1) * PORT_BURST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newer_tick_takes_its_elders_turn),
        cmocka_unit_test(without_superseding_all_are_worked_off_in_order),
        cmocka_unit_test(a_tick_whose_turn_has_come_is_not_superseded),
        cmocka_unit_test(features_see_the_ticks_that_are_skipped),
        cmocka_unit_test(that_a_stream_starts_anew_is_handed_on),
        cmocka_unit_test(a_fast_symbol_gets_its_turns),
        cmocka_unit_test(a_tick_waits_for_a_bounded_number_of_frames),
        cmocka_unit_test(a_full_queue_loses_nothing),
        cmocka_unit_test(every_stream_finds_room),
        cmocka_unit_test(a_halt_that_comes_while_a_tick_waits),
        cmocka_unit_test(a_gap_that_comes_while_a_tick_waits),
        cmocka_unit_test(a_state_ends_behind_the_elder_that_waits),
        cmocka_unit_test(the_end_works_off_what_waits),
        cmocka_unit_test(a_burst_is_decoded_first_under_the_real_clock),
        cmocka_unit_test(a_tick_waits_for_a_bounded_number_of_bursts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
