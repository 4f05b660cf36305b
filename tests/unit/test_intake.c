/* From frames to ticks: what triggers, when, on which line, with which marks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "feed_builder.h"
#include "host/intake.h"

enum { N_TICK = 64, MS = 1000000 };
#define OPEN 34200000000000u

static const char session[MOLD_SESSION_BYTES] = "SESSION001", next_session[MOLD_SESSION_BYTES] = "SESSION002";

struct seen {
    struct intake_tick tick[N_TICK];
    int n_tick, n_gap, n_end, n_full, n_message;
    uint64_t gap_first, gap_count;
    int n_trading, last_trading;
    uint16_t last_locate;
};

static void on_tick(void *ctx, const struct intake_tick *tick)
{
    struct seen *s = ctx;
    assert_true(s->n_tick < N_TICK);
    s->tick[s->n_tick++] = *tick;
}

static void on_message(void *ctx, uint64_t seq_no, const struct market_event *event)
{
    (void)seq_no;
    (void)event;
    ((struct seen *)ctx)->n_message++;
}

static void on_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    struct seen *s = ctx;
    (void)now;
    s->n_gap++;
    s->gap_first = first;
    s->gap_count = count;
}

static void on_trading(void *ctx, uint16_t locate, int trading, uint64_t ts_ns)
{
    struct seen *s = ctx;
    (void)ts_ns;
    s->n_trading++;
    s->last_trading = trading;
    s->last_locate = locate;
}

static void on_end(void *ctx, uint64_t next_seq)
{
    (void)next_seq;
    ((struct seen *)ctx)->n_end++;
}

static void on_full(void *ctx, uint16_t locate)
{
    (void)locate;
    ((struct seen *)ctx)->n_full++;
}

struct fixture {
    struct intake *in;
    struct seen seen;
    struct feed_builder feed;
    uint64_t seq, now;
};

static const struct intake_config defaults = {
    .verify_checksum = 1,
    .gap_wait = MS,
    .market = {.join = MARKET_JOIN_STRICT, .limits = {.n_order = 10000, .n_level = 10000}}};

static void start(struct fixture *f, const struct intake_config *config)
{
    memset(f, 0, sizeof(*f));
    const struct intake_handler handler = {.tick = on_tick,
                                           .message = on_message,
                                           .gap = on_gap,
                                           .trading = on_trading,
                                           .session_end = on_end,
                                           .streams_full = on_full,
                                           .ctx = &f->seen};
    f->in = intake_create(config, &handler);
    assert_non_null(f->in);
    f->seq = 1;
    f->now = 1000;
}

/* One packet with these messages on a line's group. */
static void packet(struct fixture *f, uint32_t group, const struct itch_msg *messages, int n)
{
    feed_begin(&f->feed);
    for (int i = 0; i < n; i++)
        feed_add(&f->feed, &messages[i]);
    feed_frame(&f->feed, session, f->seq, (uint16_t)n, group);
    intake_frame(f->in, f->feed.frame, (uint32_t)f->feed.frame_len, f->now);
    f->seq += (uint64_t)n;
    f->now += 100;
}

static void open_market(struct fixture *f)
{
    const struct itch_msg day[] = {feed_event('O', 1),
                                   feed_directory(7, "AAPL", 2),
                                   feed_directory(9, "MSFT", 2),
                                   feed_state(7, "AAPL", 'T', 3),
                                   feed_state(9, "MSFT", 'T', 3),
                                   feed_event('Q', OPEN)};
    packet(f, FEED_GROUP_A, day, 6);
}

static void a_new_best_price_is_a_tick(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    open_market(&f);
    assert_int_equal(f.seen.n_tick, 0);
    assert_int_equal(f.seen.n_trading, 2);
    uint64_t arrival = f.now;
    struct itch_msg m = feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5);
    packet(&f, FEED_GROUP_A, &m, 1);
    assert_int_equal(f.seen.n_tick, 1);
    const struct intake_tick *t = &f.seen.tick[0];
    assert_int_equal(t->locate, 7);
    assert_true(t->seq_no == 7 && t->feed_ts_ns == OPEN + 5 && t->arrival == arrival);
    assert_int_equal(t->bbo.bid_price, 1000000);
    assert_int_equal(t->bbo.ask_price, 0);
    assert_true(t->reliable && t->trading);
    /* behind the best price nothing happens */
    m = feed_order(7, "AAPL", 2, 'B', 100, 990000, OPEN + 6);
    packet(&f, FEED_GROUP_A, &m, 1);
    assert_int_equal(f.seen.n_tick, 1);
    /* another symbol has another stream */
    m = feed_order(9, "MSFT", 3, 'S', 50, 3000000, OPEN + 7);
    packet(&f, FEED_GROUP_A, &m, 1);
    assert_int_equal(f.seen.n_tick, 2);
    assert_int_not_equal(f.seen.tick[0].stream, f.seen.tick[1].stream);
    intake_free(f.in);
}

static void messages_of_one_packet_make_one_tick(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    open_market(&f);
    const struct itch_msg burst[] = {feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5),
                                     feed_order(9, "MSFT", 2, 'B', 100, 2000000, OPEN + 5),
                                     feed_order(7, "AAPL", 3, 'B', 100, 1000100, OPEN + 6)};
    packet(&f, FEED_GROUP_A, burst, 3);
    assert_int_equal(f.seen.n_tick, 2);
    assert_int_equal(f.seen.tick[0].locate, 7);
    assert_int_equal(f.seen.tick[0].bbo.bid_price, 1000100);
    assert_true(f.seen.tick[0].seq_no == 9);
    assert_int_equal(f.seen.tick[1].locate, 9);
    /* up and back within the packet: no news */
    const struct itch_msg round_trip[] = {feed_order(7, "AAPL", 4, 'B', 5, 1000200, OPEN + 7),
                                          feed_delete(7, 4, OPEN + 7)};
    packet(&f, FEED_GROUP_A, round_trip, 2);
    assert_int_equal(f.seen.n_tick, 2);
    intake_free(f.in);
}

static void the_second_group_is_line_b(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    open_market(&f);
    struct itch_msg m = feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5);
    packet(&f, FEED_GROUP_B, &m, 1);
    assert_int_equal(f.seen.n_tick, 1);
    assert_int_equal(intake_mold(f.in)->packets[MOLD_LINE_A], 1);
    assert_int_equal(intake_mold(f.in)->packets[MOLD_LINE_B], 1);
    f.seq--;
    packet(&f, FEED_GROUP_A, &m, 1); /* the copy */
    assert_int_equal(f.seen.n_tick, 1);
    assert_int_equal(intake_mold(f.in)->duplicates, 1);
    packet(&f, 0xef010101, &m, 1); /* a third group is not ours */
    assert_int_equal(intake_counters(f.in)->filtered, 1);
    intake_free(f.in);
}

/* Captures hold other traffic, too: a group is a line only if what it carries is MoldUDP64. */
static void other_datagrams_are_no_line(void **state)
{
    static const uint8_t search[] = "M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\n\r\n";
    struct fixture f;
    uint8_t frame[256];
    (void)state;
    start(&f, &defaults);
    for (uint32_t i = 0; i < 3; i++) {
        size_t len = packet_build(frame, 0x0a000001, 1900, 0xeffffffa - i, 1900, 0, search, sizeof(search));
        intake_frame(f.in, frame, (uint32_t)len, f.now);
    }
    open_market(&f);
    struct itch_msg m = feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5);
    packet(&f, FEED_GROUP_B, &m, 1);
    assert_int_equal(f.seen.n_tick, 1);
    assert_int_equal(intake_mold(f.in)->packets[MOLD_LINE_A], 1);
    assert_int_equal(intake_mold(f.in)->packets[MOLD_LINE_B], 1);
    assert_int_equal(intake_counters(f.in)->filtered, 3);
    intake_free(f.in);
}

static void configured_groups_keep_others_out(void **state)
{
    struct fixture f;
    (void)state;
    struct intake_config config = defaults;
    config.line[MOLD_LINE_B] = (struct intake_group){.ip = FEED_GROUP_B, .port = FEED_PORT};
    start(&f, &config);
    open_market(&f); /* on A: not configured */
    assert_int_equal(intake_counters(f.in)->filtered, 1);
    assert_int_equal(f.seen.n_message, 0);
    f.seq = 1;
    struct itch_msg m = feed_event('O', 1);
    packet(&f, FEED_GROUP_B, &m, 1);
    assert_int_equal(f.seen.n_message, 1);
    assert_int_equal(intake_mold(f.in)->packets[MOLD_LINE_B], 1);
    intake_free(f.in);
}

static void only_subscribed_symbols_tick(void **state)
{
    static const char names[][9] = {"MSFT", "ZZZZ"};
    struct fixture f;
    (void)state;
    struct intake_config config = defaults;
    config.symbols = names;
    config.n_symbol = 2;
    start(&f, &config);
    open_market(&f);
    const struct itch_msg both[] = {feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5),
                                    feed_order(9, "MSFT", 2, 'B', 100, 2000000, OPEN + 5)};
    packet(&f, FEED_GROUP_A, both, 2);
    assert_int_equal(f.seen.n_tick, 1);
    assert_int_equal(f.seen.tick[0].locate, 9);
    assert_int_equal(f.seen.tick[0].stream, 0);
    intake_free(f.in);
}

static void a_locate_given_to_another_symbol_is_left(void **state)
{
    static const char names[][9] = {"AAPL", "MSFT"};
    struct fixture f;
    (void)state;
    struct intake_config config = defaults;
    config.symbols = names;
    config.n_symbol = 2;
    start(&f, &config);
    open_market(&f);
    struct itch_msg m = feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5);
    packet(&f, FEED_GROUP_A, &m, 1);
    assert_int_equal(f.seen.n_tick, 1);
    /* Within one packet: the tick that was due is of a symbol that is no longer there. */
    const struct itch_msg change[] = {feed_order(7, "AAPL", 2, 'B', 100, 1010000, OPEN + 6),
                                      feed_directory(7, "OTHER", OPEN + 6)};
    packet(&f, FEED_GROUP_A, change, 2);
    m = feed_order(7, "OTHER", 3, 'B', 100, 1020000, OPEN + 7);
    packet(&f, FEED_GROUP_A, &m, 1);
    assert_int_equal(f.seen.n_tick, 1);
    /* No name at all is no subscription either. */
    const struct itch_msg unnamed[] = {feed_directory(9, "", OPEN + 8),
                                       feed_order(9, "", 4, 'B', 100, 2000000, OPEN + 8)};
    packet(&f, FEED_GROUP_A, unnamed, 2);
    m = feed_order(9, "", 5, 'B', 100, 2010000, OPEN + 9);
    packet(&f, FEED_GROUP_A, &m, 1);
    assert_int_equal(f.seen.n_tick, 1);
    intake_free(f.in);
}

static void a_symbol_has_one_locate(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    open_market(&f);
    struct itch_msg m = feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5);
    packet(&f, FEED_GROUP_A, &m, 1);
    /* The directory says it again of another locate: the last word counts, with an empty memory. */
    const struct itch_msg again[] = {feed_directory(8, "AAPL", OPEN + 6),
                                     feed_state(8, "AAPL", 'T', OPEN + 6),
                                     feed_order(8, "AAPL", 2, 'S', 10, 1100000, OPEN + 6),
                                     feed_order(7, "AAPL", 3, 'B', 100, 1010000, OPEN + 6)};
    packet(&f, FEED_GROUP_A, again, 4);
    assert_int_equal(f.seen.n_tick, 2);
    assert_int_equal(f.seen.tick[1].locate, 8);
    assert_int_equal(f.seen.tick[1].stream, f.seen.tick[0].stream);
    assert_true(f.seen.tick[1].restarted);
    intake_free(f.in);
}

static void a_gap_makes_books_unreliable(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    open_market(&f);
    f.seq += 3; /* lost on both lines */
    struct itch_msg m = feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5);
    uint64_t arrival = f.now;
    packet(&f, FEED_GROUP_A, &m, 1);
    assert_int_equal(f.seen.n_tick, 0);
    uint64_t due = intake_poll(f.in, f.now);
    assert_true(due == arrival + MS);
    intake_poll(f.in, due - 1);
    assert_int_equal(f.seen.n_gap, 0);
    intake_poll(f.in, due);
    assert_int_equal(f.seen.n_gap, 1);
    assert_true(f.seen.gap_first == 7 && f.seen.gap_count == 3);
    assert_int_equal(f.seen.n_tick, 1);
    assert_int_equal(f.seen.tick[0].reliable, 0);
    assert_true(f.seen.tick[0].arrival ==
                arrival); /* its age counts from when it came, not from its release */
    intake_free(f.in);
}

static void a_halt_is_reported_and_marked(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    open_market(&f);
    struct itch_msg halt[] = {feed_state(7, "AAPL", 'H', OPEN + 1),
                              feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 2)};
    packet(&f, FEED_GROUP_A, halt, 2);
    assert_int_equal(f.seen.n_trading, 3);
    assert_int_equal(f.seen.last_trading, 0);
    assert_int_equal(f.seen.last_locate, 7);
    assert_int_equal(f.seen.n_tick, 1);
    assert_int_equal(f.seen.tick[0].trading, 0);
    /* the close ends trading for both */
    struct itch_msg close = feed_event('M', OPEN + 3);
    packet(&f, FEED_GROUP_A, &close, 1);
    assert_int_equal(f.seen.n_trading, 4);
    assert_int_equal(f.seen.last_locate, 9);
    intake_free(f.in);
}

/* A tick says whether what was remembered of its stream still holds, also when nothing ticked meanwhile. */
static void the_first_tick_after_a_break_is_marked(void **state)
{
    struct fixture f;
    (void)state;
    struct intake_config config = defaults;
    config.gap_wait = 0;
    start(&f, &config);
    open_market(&f);
    const uint32_t best = 1000000;
    for (uint32_t i = 0; i < 2; i++) {
        struct itch_msg m = feed_order(7, "AAPL", i + 1, 'B', 100, best + 100 * i, OPEN + 5 + i);
        packet(&f, FEED_GROUP_A, &m, 1);
    }
    f.seen.n_tick = 0;
    struct itch_msg halt[] = {feed_state(7, "AAPL", 'H', OPEN + 8), feed_state(7, "AAPL", 'T', OPEN + 9)};
    packet(&f, FEED_GROUP_A, halt, 2);
    assert_int_equal(f.seen.n_tick, 0);
    for (uint32_t i = 0; i < 4; i++) {
        struct itch_msg m = feed_order(7, "AAPL", i + 10, 'B', 100, best + 1000 + 100 * i, OPEN + 10 + i);
        f.seq += i == 2; /* a gap before the third */
        packet(&f, FEED_GROUP_A, &m, 1);
    }
    const uint8_t want[] = {1, 0, 1, 0};
    assert_int_equal(f.seen.n_tick, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(f.seen.tick[i].restarted, want[i]);
    intake_free(f.in);
}

static void a_new_session_starts_clean(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    open_market(&f);
    struct itch_msg m = feed_order(7, "AAPL", 1, 'B', 100, 1000000, OPEN + 5);
    packet(&f, FEED_GROUP_A, &m, 1);
    feed_begin(&f.feed);
    feed_frame(&f.feed, session, f.seq, MOLD_COUNT_END, FEED_GROUP_A);
    intake_frame(f.in, f.feed.frame, (uint32_t)f.feed.frame_len, f.now);
    assert_int_equal(f.seen.n_end, 1);
    /* next day: AAPL has another locate, the same stream, an empty book */
    const struct itch_msg day[] = {feed_event('O', 1), feed_directory(3, "AAPL", 2),
                                   feed_state(3, "AAPL", 'T', 3), feed_event('Q', OPEN),
                                   feed_order(3, "AAPL", 1, 'S', 10, 1100000, OPEN + 1)};
    feed_begin(&f.feed);
    for (int i = 0; i < 5; i++)
        feed_add(&f.feed, &day[i]);
    feed_frame(&f.feed, next_session, 1, 5, FEED_GROUP_A);
    intake_frame(f.in, f.feed.frame, (uint32_t)f.feed.frame_len, f.now + 1000);
    assert_int_equal(f.seen.n_tick, 2);
    assert_int_equal(f.seen.tick[1].locate, 3);
    assert_int_equal(f.seen.tick[1].stream, f.seen.tick[0].stream);
    assert_int_equal(f.seen.tick[1].bbo.bid_price, 0);
    assert_int_equal(f.seen.tick[1].bbo.ask_price, 1100000);
    assert_true(f.seen.tick[1].reliable && f.seen.tick[1].trading && f.seen.tick[1].restarted);
    intake_free(f.in);
}

static void more_symbols_than_streams_are_reported_once(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    struct itch_msg m = feed_event('O', 1);
    packet(&f, FEED_GROUP_A, &m, 1);
    for (int i = 1; i <= KL_N_STREAM_MAX + 2; i++) {
        char name[16];
        snprintf(name, sizeof(name), "S%d", i);
        struct itch_msg both[2] = {feed_directory((uint16_t)i, name, 2),
                                   feed_state((uint16_t)i, name, 'T', 3)};
        packet(&f, FEED_GROUP_A, both, 2);
    }
    assert_int_equal(f.seen.n_full, 2);
    intake_free(f.in);
}

static void bad_frames_are_counted_by_cause(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &defaults);
    open_market(&f);
    f.feed.frame[f.feed.frame_len - 1] ^= 1;
    intake_frame(f.in, f.feed.frame, (uint32_t)f.feed.frame_len, f.now);
    intake_frame(f.in, f.feed.frame, 20, f.now);
    const struct intake_counters *c = intake_counters(f.in);
    assert_int_equal(c->frames, 3);
    assert_int_equal(c->packet_status[-PACKET_OK], 1);
    assert_int_equal(c->packet_status[-PACKET_BAD_CHECKSUM], 1);
    assert_int_equal(c->packet_status[-PACKET_SHORT], 1);
    intake_free(f.in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_best_price_is_a_tick),
        cmocka_unit_test(messages_of_one_packet_make_one_tick),
        cmocka_unit_test(the_second_group_is_line_b),
        cmocka_unit_test(other_datagrams_are_no_line),
        cmocka_unit_test(configured_groups_keep_others_out),
        cmocka_unit_test(only_subscribed_symbols_tick),
        cmocka_unit_test(a_locate_given_to_another_symbol_is_left),
        cmocka_unit_test(a_symbol_has_one_locate),
        cmocka_unit_test(a_gap_makes_books_unreliable),
        cmocka_unit_test(a_halt_is_reported_and_marked),
        cmocka_unit_test(the_first_tick_after_a_break_is_marked),
        cmocka_unit_test(a_new_session_starts_clean),
        cmocka_unit_test(more_symbols_than_streams_are_reported_once),
        cmocka_unit_test(bad_frames_are_counted_by_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
