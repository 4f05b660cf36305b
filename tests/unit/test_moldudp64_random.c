/* Random loss, duplication, batching and reordering over two lines, against a plain model of the rule:
 * the receiver must deliver and report exactly what the model does. Seeded: a failure names its seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mold_log.h"

enum { N_MESSAGE_MAX = 200, N_EVENT_MAX = 4096, N_PATTERN = 4000 };

static const char session[] = "RANDOM0001";

static uint64_t seed_state;

/* splitmix64 */
static uint64_t random_below(uint64_t n)
{
    uint64_t z = (seed_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

/* Mostly like ITCH, now and then of many cells. */
static uint16_t mixed_length(uint64_t seq)
{
    return seq % 37 == 5 ? (uint16_t)(seq * 211 % 3000) : (uint16_t)(seq * 13 % 70);
}

enum event_kind { PACKET, HEARTBEAT, END, POLL };

struct event {
    uint64_t at;
    enum event_kind kind;
    enum mold_line line;
    uint64_t seq;
    uint16_t count;
};

struct pattern {
    uint64_t first, n_message, gap_wait;
    uint32_t n_store;
    size_t n_event;
    struct event events[N_EVENT_MAX];
};

static int by_time(const void *x, const void *y)
{
    const struct event *a = x, *b = y;
    return (a->at > b->at) - (a->at < b->at);
}

static void add_event(struct pattern *pattern, struct event event)
{
    assert(pattern->n_event < N_EVENT_MAX);
    pattern->events[pattern->n_event++] = event;
}

/* One line sends everything in its own batches, one unit of time per message; loss in 1/1000 per packet. */
static void add_line(struct pattern *pattern, enum mold_line line, uint64_t skew, uint64_t jitter,
                     uint64_t loss, uint64_t duplication)
{
    uint64_t last = pattern->first + pattern->n_message;
    uint64_t batch = 1 + random_below(12);
    for (uint64_t seq = pattern->first, count; seq < last; seq += count) {
        count = 1 + random_below(batch);
        if (count > last - seq)
            count = last - seq;
        uint64_t sent = 1000 + 10 * (seq + count - pattern->first) + skew;
        struct event event = {sent + random_below(jitter + 1), PACKET, line, seq, (uint16_t)count};
        if (random_below(1000) >= loss)
            add_event(pattern, event);
        if (random_below(1000) < duplication) {
            event.at = sent + random_below(jitter + 1);
            add_event(pattern, event);
        }
        if (random_below(20) == 0)
            add_event(pattern,
                      (struct event){sent + random_below(jitter + 1), HEARTBEAT, line, seq + count, 0});
    }
    if (random_below(4) != 0)
        add_event(pattern, (struct event){1000 + 10 * pattern->n_message + skew + jitter + 1000, END, line,
                                          last, MOLD_COUNT_END});
}

/* Arrival times are made different, so that a message's arrival names its packet. */
static void finish(struct pattern *pattern)
{
    for (uint64_t i = random_below(50); i > 0; i--)
        add_event(pattern, (struct event){1000 + random_below(10 * pattern->n_message + 100), POLL, 0, 0, 0});
    qsort(pattern->events, pattern->n_event, sizeof(pattern->events[0]), by_time);
    for (size_t i = 1; i < pattern->n_event; i++)
        if (pattern->events[i].at <= pattern->events[i - 1].at)
            pattern->events[i].at = pattern->events[i - 1].at + 1;
}

/* The rule, written down as plainly as it goes: arrays over all numbers, scans, a store without limits. */
struct model {
    uint64_t first, expected, horizon, gap_wait;
    int started, has_end, ended;
    uint64_t seen[N_MESSAGE_MAX + 1];    /* when a number was first known to be passed over */
    uint64_t arrival[N_MESSAGE_MAX + 1]; /* of the first copy, 0: none yet */
    int last[N_MESSAGE_MAX + 1];
    struct mold_log log;
};

static void model_advance(struct model *model, uint64_t now)
{
    while (model->expected < model->horizon) {
        uint64_t i = model->expected - model->first, n = 0;
        if (model->arrival[i]) {
            mold_log_add(&model->log, "%s%llu%s", model->log.n ? " " : "",
                         (unsigned long long)model->expected, model->last[i] ? "*" : "");
            model->expected++;
            continue;
        }
        if (now - model->seen[i] < model->gap_wait)
            return;
        while (model->expected + n < model->horizon && !model->arrival[i + n])
            n++;
        mold_log_gap(&model->log, model->expected, n, now);
        model->expected += n;
    }
    if (model->has_end && !model->ended) {
        model->ended = 1;
        mold_log_end(&model->log, model->expected);
    }
}

static void model_event(struct model *model, const struct event *event)
{
    if (event->kind != POLL) {
        if (!model->started)
            model->started = 1, model->expected = model->horizon = model->first;
        for (; model->horizon < event->seq; model->horizon++)
            model->seen[model->horizon - model->first] = event->at;
        uint64_t newest = UINT64_MAX;
        for (uint64_t s = event->seq; event->kind == PACKET && s < event->seq + event->count; s++)
            if (s >= model->expected && !model->arrival[s - model->first]) {
                model->arrival[s - model->first] = event->at;
                newest = s;
            }
        if (newest != UINT64_MAX)
            model->last[newest - model->first] = 1;
        if (event->kind == PACKET && model->horizon < event->seq + event->count)
            model->horizon = event->seq + event->count;
        model->has_end |= event->kind == END;
    }
    if (model->started)
        model_advance(model, event->at);
}

static struct pattern pattern;
static struct model model;
static struct mold_log record;
static uint8_t packet[MOLD_LOG_PACKET_BYTES];

static void play(struct mold *mold, const struct event *event)
{
    if (event->kind == POLL) {
        mold_poll(mold, event->at);
        return;
    }
    size_t len = mold_log_packet(packet, mixed_length, session, event->seq, event->count);
    assert_int_equal(mold_packet(mold, event->line, packet, len, event->at), 0);
}

static struct mold_counters run(uint64_t seed, int with_model)
{
    memset(&record, 0, sizeof(record));
    memset(&model, 0, sizeof(model));
    record.length = mixed_length;
    struct mold_handler handler = mold_log_handler(&record);
    struct mold_config config = {
        .n_store = pattern.n_store, .gap_wait = pattern.gap_wait, .first_seq = pattern.first};
    struct mold *mold = mold_create(&config, &handler);
    assert_non_null(mold);
    model.first = pattern.first;
    model.gap_wait = pattern.gap_wait;
    for (size_t i = 0; i < pattern.n_event; i++) {
        play(mold, &pattern.events[i]);
        if (with_model)
            model_event(&model, &pattern.events[i]);
    }
    const uint64_t done = pattern.events[pattern.n_event - 1].at + 1;
    mold_flush(mold, done);
    if (with_model) {
        model.gap_wait = 0;
        model_advance(&model, done);
        if (strcmp(record.text, model.log.text))
            print_error("seed %llu\n", (unsigned long long)seed);
        assert_string_equal(record.text, model.log.text);
    }
    assert_int_equal(record.bad_bytes, 0);
    struct mold_counters counters = *mold_counters(mold);
    assert_true(counters.first_wins[0] + counters.first_wins[1] == counters.messages);
    mold_free(mold);
    return counters;
}

static void make(uint64_t seed, uint64_t jitter, uint64_t loss)
{
    seed_state = seed;
    pattern.n_event = 0;
    pattern.n_message = 1 + random_below(N_MESSAGE_MAX);
    pattern.first = random_below(4) ? 1 + random_below(1000) : UINT64_MAX - N_MESSAGE_MAX - random_below(10);
    pattern.n_store = 256;
    add_line(&pattern, MOLD_LINE_A, random_below(100), random_below(jitter + 1), loss, 50);
    add_line(&pattern, MOLD_LINE_B, random_below(100), random_below(jitter + 1), loss, 50);
    if (pattern.n_event == 0)
        add_event(&pattern, (struct event){1000, HEARTBEAT, MOLD_LINE_A, pattern.first, 0});
    finish(&pattern);
}

/* Each message arrives within the wait on one of the lines: 1..N in order, once each, nothing lost. */
static void complete(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < N_PATTERN; seed++) {
        make(seed, 300, 0);
        /* Take packets away from one line only: which one changes with the number. */
        size_t kept = 0;
        for (size_t i = 0; i < pattern.n_event; i++) {
            const struct event *event = &pattern.events[i];
            enum mold_line spared = (event->seq / 64 + seed) % 2 ? MOLD_LINE_A : MOLD_LINE_B;
            int whole =
                event->seq / 64 == (event->seq + event->count) / 64; /* batches across would need both */
            if (event->kind == PACKET && event->line != spared && whole && random_below(3) == 0)
                continue;
            pattern.events[kept++] = *event;
        }
        pattern.n_event = kept;
        pattern.gap_wait = 10000;
        struct mold_counters counters = run(seed, 1);
        assert_true(counters.gaps_lost == 0 && counters.messages == pattern.n_message);
    }
}

/* Loss on both lines, waits that run out: lost ranges to the message, everything else in order. */
static void incomplete(void **state)
{
    (void)state;
    uint64_t lost = 0, recovered = 0;
    for (uint64_t seed = 0; seed < N_PATTERN; seed++) {
        make(seed, seed % 3 * 150, 20 + seed % 7 * 80);
        pattern.gap_wait = seed % 5 * 60;
        struct mold_counters counters = run(seed, 1);
        lost += counters.messages_lost;
        recovered += counters.recovered;
    }
    assert_true(lost > N_PATTERN && recovered > N_PATTERN); /* the patterns do reach these cases */
}

/* A store that overflows: still every number is either delivered or reported, in order. */
static void overflowing(void **state)
{
    (void)state;
    uint64_t overflows = 0;
    for (uint64_t seed = 0; seed < N_PATTERN; seed++) {
        make(seed, 400, 200);
        pattern.gap_wait = 5000;
        pattern.n_store = 1u << seed % 5;
        struct mold_counters counters = run(seed, 0);
        overflows += counters.store_overflow;
        uint64_t next = pattern.first, value, count;
        for (const char *p = record.text; *p; p += strcspn(p, " "), p += *p == ' ') {
            if (sscanf(p, "gap(%lu,%lu)", &value, &count) == 2) {
                assert_true(value == next && count > 0);
                next += count;
            } else if (sscanf(p, "%lu", &value) == 1) {
                assert_true(value == next);
                next++;
            }
        }
        assert_true(counters.messages + counters.messages_lost == next - pattern.first);
    }
    assert_true(overflows > N_PATTERN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete),
        cmocka_unit_test(incomplete),
        cmocka_unit_test(overflowing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
