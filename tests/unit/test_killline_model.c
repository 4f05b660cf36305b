/* The kill line in a small world that is explored completely: every order in which packets, time, a clock
 * that steps back, thresholds, orders and answers can come between any two steps of the poll loop.
 *
 * Real: every check is a function of host/killline.h, and the desk is that of host/order.[ch].
 * Modelled, after host/appliance*.c: who reads what in which order.
 *   top      the threshold that the load wants comes into force; an order that waits is carried out
 *   receive  one clock reading; what has come has the epoch of the receive before it, since its stamp may be
 *            of then, and waits; superseding, it takes the place of an elder of its stream
 *   admit    per waiting tick: the threshold in force is noted, one reading, first check
 *   await    per submitted tick, in order: its answer, at any time; one of an earlier request; none in time
 *   look     is the loop halted, or a halt ordered
 *   last     one reading, last check, and the send
 * Between two steps, any number of times within the budgets below: time passes by one (that gives every
 * length, threshold - 1, = and + 1 among them), a packet comes, with a stamp that is exact, ahead by
 * future_max or by more, the clock steps back, another threshold is wanted, halt or resume is ordered.
 * Clock readings have 8 bits, sign extended: both ends of 2^64, and its wrap.
 *
 * What is proved, for two ticks of one stream or of two: these functions in this order publish nothing that
 * is older, by true time, than the threshold in force at the last check, nor after a halt that was ordered
 * before the look at the desk; every tick gets one verdict. Granted are what no
 * look can see: a stamp's own error (and none beyond future_max that a check saw), and steps back that are no
 * longer than the time since the reading before. What is not: that the loop does follow this order (the
 * appliance's tests and the campaign are about that), memory ordering between threads (order.h), more ticks
 * or longer times than these. Visited states are kept as 64 bit hashes: of N states, one is taken for another
 * with probability N^2 / 2^65. */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/killline.h"
#include "host/order.h"

enum {
    N_TICK = 2,
    THRESHOLD = 3,
    FUTURE_MAX = 2,
    NONE = 255,
};
static const uint8_t thresholds[] = {2, THRESHOLD, 4};
static const uint8_t stamp_errors[] = {0, FUTURE_MAX, FUTURE_MAX + 1};
static const uint8_t back_steps[] = {1, THRESHOLD + 1};

enum place { TO_COME, WIRE, WAITING, SUBMITTED, DONE };
enum pc { TOP, CARRIED_OUT, RECEIVE, ADMIT, AWAIT, LOOK, LAST };

/* Bytes only: the state is its own key. Names as in the appliance, except what is true or a ghost: g_. */
struct tick {
    uint8_t place, stamp, epoch, threshold, verdict;
    uint8_t g_arrival, g_error, g_back, g_unseen, g_ahead;
};
struct world {
    uint8_t clock, last, epoch; /* readings; epoch of the last look */
    uint8_t receive_epoch;      /* of the last one in receive */
    uint8_t threshold, wanted, rung_halted, expected;
    uint8_t desk_halted, desk_posted, desk_done, desk_kind, desk_resumes, desk_halts;
    uint8_t pc, at, halted, request_seq, first_seq, owed;
    uint8_t n_back, n_threshold, n_order;
    uint8_t g_time, g_since_look, g_back, g_halt, g_halt_at_look;
    struct tick tick[N_TICK];
};
static_assert(sizeof(struct world) == 28 + N_TICK * sizeof(struct tick), "no padding");

struct setting {
    uint8_t supersede, batch;
    uint8_t time_max, n_back, n_threshold, n_order; /* budgets: of time, steps back, changes, orders */
    int8_t start;                                   /* of the clock */
};
static struct setting setting;

/* ---- visited states, and those whose successors are to come ---- */

static uint64_t *seen;
static size_t n_seen, seen_size;
static struct world *stack;
static size_t n_stack, stack_size;
static uint64_t published, stale, halted_verdicts, late, superseded, device_errors, at_the_edge;

static uint64_t hash_of(const struct world *w)
{
    uint64_t h = 0x9e3779b97f4a7c15u, v;
    uint8_t bytes[48] = {0};
    static_assert(sizeof(*w) <= sizeof(bytes), "fits");
    memcpy(bytes, w, sizeof(*w));
    for (size_t i = 0; i < sizeof(bytes); i += 8) {
        memcpy(&v, bytes + i, 8);
        h = (h ^ v) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 29;
        h *= 0x94d049bb133111ebu;
        h ^= h >> 32;
    }
    return h ? h : 1;
}

static void insert(uint64_t hash)
{
    size_t i = hash & (seen_size - 1);
    while (seen[i])
        i = (i + 1) & (seen_size - 1);
    seen[i] = hash;
}

static void grow(void)
{
    uint64_t *old = seen;
    const size_t old_size = seen_size;
    seen_size *= 2;
    seen = calloc(seen_size, sizeof(*seen));
    assert_non_null(seen);
    for (size_t i = 0; i < old_size; i++)
        if (old[i])
            insert(old[i]);
    free(old);
}

static void push(const struct world *w)
{
    const uint64_t hash = hash_of(w);
    size_t i = hash & (seen_size - 1);
    while (seen[i]) {
        if (seen[i] == hash)
            return;
        i = (i + 1) & (seen_size - 1);
    }
    seen[i] = hash;
    if (2 * ++n_seen > seen_size)
        grow();
    if (n_stack == stack_size) {
        stack_size *= 2;
        stack = realloc(stack, stack_size * sizeof(*stack));
        assert_non_null(stack);
    }
    stack[n_stack++] = *w;
}

/* ---- the poll loop ---- */

static uint64_t extend(uint8_t reading)
{
    return (uint64_t)(int64_t)(int8_t)reading;
}

/* One clock reading, as everything of the loop makes them. Returns it. */
static uint64_t look(struct world *w)
{
    struct killline_clock clock = {.last = extend(w->last), .epoch = w->epoch};
    const uint64_t now = extend(w->clock);
    w->epoch = (uint8_t)killline_look(&clock, now);
    w->last = w->clock;
    assert_true(clock.last == now);
    /* true time: a step shows if it is longer than what has passed */
    for (int i = 0; i < N_TICK; i++) {
        w->tick[i].g_unseen += w->g_back > w->g_since_look ? 0 : w->tick[i].g_back;
        w->tick[i].g_back = 0;
    }
    w->g_since_look = w->g_back = 0;
    return now;
}

static uint64_t age_of(struct world *w, struct tick *t)
{
    enum killline_quality quality;
    const uint64_t now = look(w);
    const uint64_t age = killline_age(extend(t->stamp), t->epoch, now, w->epoch, FUTURE_MAX, &quality);
    t->g_ahead |= !w->n_back && t->g_arrival + t->g_error > w->g_time + FUTURE_MAX;
    return age;
}

static void conclude(struct tick *t, enum verdict verdict)
{
    assert_int_equal(t->verdict, NONE);                             /* one verdict */
    *t = (struct tick){.place = DONE, .verdict = (uint8_t)verdict}; /* what it was is of no more interest */
    published += verdict == VERDICT_PUBLISHED;
    stale += verdict == VERDICT_STALE;
    halted_verdicts += verdict == VERDICT_HALTED;
    late += verdict == VERDICT_EXPECTED_LATE;
    superseded += verdict == VERDICT_SUPERSEDED;
    device_errors += verdict == VERDICT_DEVICE_ERROR;
}

static void desk_load(const struct world *w, struct order_desk *desk)
{
    memset(desk, 0, sizeof(*desk));
    atomic_init(&desk->halted, w->desk_halted);
    atomic_init(&desk->posted, w->desk_posted);
    atomic_init(&desk->done, w->desk_done);
    desk->order.kind = (enum order_kind)w->desk_kind;
    desk->resumes = w->desk_resumes;
    desk->halts = w->desk_halts;
}

static void desk_store(struct world *w, const struct order_desk *desk)
{
    w->desk_halted = (uint8_t)atomic_load(&desk->halted);
    w->desk_posted = (uint8_t)atomic_load(&desk->posted);
    w->desk_done = (uint8_t)atomic_load(&desk->done);
    w->desk_kind = (uint8_t)desk->order.kind;
    w->desk_resumes = (uint8_t)desk->resumes;
    w->desk_halts = (uint8_t)desk->halts;
}

static void receive(struct world *w)
{
    const uint8_t epoch_before = w->receive_epoch;
    struct tick *elder = NULL;
    look(w);
    w->receive_epoch = w->epoch;
    for (int i = 0; i < N_TICK; i++) {
        struct tick *t = &w->tick[i];
        if (t->place == WIRE) {
            t->epoch = epoch_before;
            t->place = WAITING;
            if (setting.supersede && elder)
                conclude(elder, VERDICT_SUPERSEDED);
        }
        if (t->place == WAITING)
            elder = t;
    }
    w->at = w->first_seq = w->request_seq = 0;
    w->pc = elder ? ADMIT : TOP;
}

static int next_in(const struct world *w, enum place place)
{
    for (int i = w->at; i < N_TICK; i++)
        if (w->tick[i].place == place)
            return i;
    return -1;
}

static void admit(struct world *w)
{
    const int i = next_in(w, WAITING), n_before = w->request_seq - w->first_seq;
    if (i < 0 || n_before == setting.batch) {
        w->pc = AWAIT;
        w->at = 0;
        return;
    }
    struct tick *t = &w->tick[i];
    t->threshold = w->threshold;
    const uint64_t age = age_of(w, t),
                   expected = killline_expect_batch(w->expected, 1, (uint32_t)n_before + 1);
    if (killline_can_make(age, expected, t->threshold)) {
        t->place = SUBMITTED;
        w->request_seq++;
    } else if (n_before && age <= t->threshold) {
        w->pc = AWAIT;
        w->at = 0;
        return;
    } else {
        conclude(t, age == KILLLINE_AGE_NEVER ? VERDICT_STALE : VERDICT_EXPECTED_LATE);
        w->expected = (uint8_t)killline_expect_unproved(w->expected, t->threshold);
    }
    w->at = (uint8_t)(i + 1);
}

/* All that the accelerator can do about the next answer. Answers come in the order of the requests: one that
 * is owed to a request whose time was up comes before, if it comes, and is thrown away. */
static void await(const struct world *w)
{
    const int i = next_in(w, SUBMITTED);
    struct world next = *w;
    if (i < 0) {
        next.pc = TOP;
        next.at = 0;
        push(&next);
        return;
    }
    next.at = (uint8_t)i;
    if (w->owed) {
        next.owed--;
        push(&next); /* the earlier one: goes on waiting */
    } else {
        next.pc = LOOK;
        push(&next); /* the right one */
    }
    next = *w;
    next.owed++;
    conclude(&next.tick[i], VERDICT_DEVICE_ERROR); /* none in time */
    push(&next);
}

static void last_check(struct world *w)
{
    struct tick *t = &w->tick[w->at];
    const uint64_t age = age_of(w, t);
    const enum verdict verdict = killline_verdict(age, t->threshold, w->halted);
    w->expected = (uint8_t)killline_expect(w->expected, (uint64_t)(w->g_time - t->g_arrival));
    if (verdict == VERDICT_PUBLISHED) {
        const int true_age = w->g_time - t->g_arrival, granted = t->g_error + t->g_unseen;
        if (true_age > w->threshold + granted)
            fail_msg("published %d old, line %d, granted %d", true_age, w->threshold, granted);
        if (w->g_halt_at_look)
            fail_msg("published although halt had been ordered");
        if (t->g_ahead)
            fail_msg("published with a stamp that was seen too far ahead");
        at_the_edge += true_age == w->threshold && !granted;
    } else if (verdict == VERDICT_STALE) {
        /* nor is anything held back that is fresh without a doubt */
        assert_true(w->g_time - t->g_arrival > w->threshold || t->g_error || w->n_back);
    }
    conclude(t, verdict);
    w->halted = w->g_halt_at_look = 0;
    w->pc = AWAIT;
}

static void loop_step(const struct world *before)
{
    struct world w = *before;
    struct order_desk desk;
    switch ((enum pc)w.pc) {
    case TOP:
        for (int i = 0; i < N_TICK; i++) /* none is lost on the way */
            assert_true(w.tick[i].place == TO_COME || w.tick[i].place == WIRE || w.tick[i].place == WAITING ||
                        (w.tick[i].place == DONE && w.tick[i].verdict != NONE));
        w.threshold = w.wanted;
        desk_load(&w, &desk);
        const struct order *order = order_next(&desk);
        if (order)
            w.rung_halted = order->kind == ORDER_HALT;
        w.pc = order ? CARRIED_OUT : RECEIVE;
        break;
    case CARRIED_OUT:
        desk_load(&w, &desk);
        order_carried_out(&desk);
        desk_store(&w, &desk);
        w.pc = RECEIVE;
        break;
    case RECEIVE:
        receive(&w);
        break;
    case ADMIT:
        admit(&w);
        break;
    case AWAIT:
        await(&w);
        return;
    case LOOK:
        desk_load(&w, &desk);
        w.halted = w.rung_halted || order_is_halted(&desk);
        w.g_halt_at_look = w.g_halt;
        w.pc = LAST;
        break;
    case LAST:
        last_check(&w);
        break;
    }
    push(&w);
}

/* ---- what can come between two steps ---- */

static void pass_time(struct world w)
{
    if (w.g_time == setting.time_max)
        return;
    w.g_time++;
    w.clock++;
    w.g_since_look++;
    push(&w);
}

static void step_back(struct world w, uint8_t by)
{
    if (w.n_back == setting.n_back)
        return;
    w.n_back++;
    w.clock = (uint8_t)(w.clock - by);
    w.g_back += by;
    for (int i = 0; i < N_TICK; i++)
        if (w.tick[i].place != TO_COME && w.tick[i].place != DONE)
            w.tick[i].g_back += by;
    push(&w);
}

static void packet(struct world w, uint8_t error)
{
    for (int i = 0; i < N_TICK; i++)
        if (w.tick[i].place == TO_COME) {
            w.tick[i].place = WIRE;
            w.tick[i].stamp = (uint8_t)(w.clock + error);
            w.tick[i].g_arrival = w.g_time;
            w.tick[i].g_error = error;
            push(&w);
            return;
        }
}

static void post(struct world w, enum order_kind kind)
{
    if (w.n_order == setting.n_order)
        return;
    w.n_order++;
    struct order_desk desk;
    const struct order order = {.kind = kind};
    desk_load(&w, &desk);
    const int refused = order_post(&desk, &order);
    desk_store(&w, &desk);
    /* a halt is in force whatever order_post says; a resume when it is accepted */
    if (kind == ORDER_HALT)
        w.g_halt = 1;
    else if (!refused)
        w.g_halt = 0;
    push(&w);
}

static void environment(const struct world *w)
{
    pass_time(*w);
    for (size_t i = 0; i < sizeof(stamp_errors); i++)
        packet(*w, stamp_errors[i]);
    for (size_t i = 0; i < sizeof(back_steps); i++)
        step_back(*w, back_steps[i]);
    for (size_t i = 0; w->n_threshold < setting.n_threshold && i < sizeof(thresholds); i++)
        if (thresholds[i] != w->wanted) {
            struct world next = *w;
            next.n_threshold++;
            next.wanted = thresholds[i];
            push(&next);
        }
    post(*w, ORDER_HALT);
    post(*w, ORDER_RESUME);
}

static void explore(const struct setting *chosen)
{
    setting = *chosen;
    seen_size = 1 << 20;
    n_seen = n_stack = 0;
    stack_size = 1 << 16;
    seen = calloc(seen_size, sizeof(*seen));
    stack = malloc(stack_size * sizeof(*stack));
    assert_true(seen && stack);
    const uint8_t start = (uint8_t)setting.start;
    struct world w = {
        .clock = start, .last = start, .threshold = THRESHOLD, .wanted = THRESHOLD, .expected = 1};
    for (int i = 0; i < N_TICK; i++)
        w.tick[i].verdict = NONE;
    push(&w);
    while (n_stack) {
        w = stack[--n_stack];
        int done = 1;
        for (int i = 0; i < N_TICK; i++)
            done &= w.tick[i].place == DONE;
        if (done) /* what comes after the last verdict is of no interest */
            continue;
        loop_step(&w);
        environment(&w);
    }
    print_message(
        "supersede %d, batch %d, time %d, steps back %d, changes %d, orders %d, clock from %d: %zu states\n",
        setting.supersede, setting.batch, setting.time_max, setting.n_back, setting.n_threshold,
        setting.n_order, setting.start, n_seen);
    free(seen);
    free(stack);
}

static void every_interleaving(void **state)
{
    static const struct setting settings[] = {
        {0, 1, 10, 0, 0, 0, -5}, {0, 2, 10, 0, 0, 0, -1}, {1, 1, 10, 0, 0, 0, -5}, /* time alone */
        {0, 1, 7, 1, 0, 0, -3},  {0, 2, 6, 1, 0, 0, 1},   {1, 1, 6, 1, 0, 0, -3},  /* and steps back */
        {0, 1, 6, 2, 0, 0, -2},  {0, 1, 8, 0, 2, 0, -5},  {0, 2, 7, 0, 1, 0, -5},  /* changes */
        {0, 1, 5, 0, 0, 3, 0},   {0, 2, 5, 0, 0, 2, 0},   {1, 1, 5, 0, 0, 2, 0},   /* orders */
        {0, 1, 4, 1, 1, 1, -3},                                                    /* all of it */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        explore(&settings[i]);
    print_message(
        "verdicts: published %llu (%llu of them as old as the line), stale %llu, late %llu, halted %llu, "
        "superseded %llu, device %llu\n",
        (unsigned long long)published, (unsigned long long)at_the_edge, (unsigned long long)stale,
        (unsigned long long)late, (unsigned long long)halted_verdicts, (unsigned long long)superseded,
        (unsigned long long)device_errors);
    /* the world is not so small that it has none of these */
    assert_true(published && at_the_edge && stale && late && halted_verdicts && superseded && device_errors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_interleaving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
