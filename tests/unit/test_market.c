/* market.c: what each message does to book, tape, state and directory, and when a book counts as reliable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "feed_builder.h"
#include "host/market.h"

enum { L = 3, OTHER = 4 };
static const uint64_t SETTLE = 1000, T = 34200000000000u; /* 09:30 */

struct rig {
    struct market *market;
    struct market_event event;
    uint64_t ts;
};

static struct rig rig_of(enum market_join join)
{
    const struct market_config config = {
        .join = join, .settle_ns = SETTLE, .limits = {.n_order = 8, .n_level = 8}};
    struct rig rig = {.market = market_create(&config), .ts = T};
    assert_non_null(rig.market);
    return rig;
}

/* Applies the message at the rig's time; returns the effects. */
static unsigned apply(struct rig *rig, struct itch_msg msg)
{
    uint8_t body[ITCH_MESSAGE_BYTES_MAX];
    msg.timestamp_ns = rig->ts;
    int len = itch_encode(&msg, body, sizeof(body));
    assert_true(len > 0);
    memset(&rig->event, 0xa5, sizeof(rig->event)); /* always written: nothing may be left */
    market_apply(rig->market, body, (uint16_t)len, &rig->event);
    assert_int_equal(rig->event.type, msg.type);
    assert_true(rig->event.ts_ns == rig->ts);
    return rig->event.effects;
}

static unsigned add(struct rig *rig, uint64_t ref, char side, uint32_t qty, uint32_t price)
{
    return apply(rig, feed_order(L, "TEST", ref, side, qty, price, 0));
}

static struct itch_msg executed(uint64_t ref, uint32_t qty)
{
    return (struct itch_msg){
        .type = 'E', .locate = L, .order_executed = {.order_reference_number = ref, .executed_shares = qty}};
}

static struct itch_msg executed_at(uint64_t ref, uint32_t qty, char printable, uint32_t price)
{
    return (struct itch_msg){.type = 'C',
                             .locate = L,
                             .order_executed_with_price = {.order_reference_number = ref,
                                                           .executed_shares = qty,
                                                           .printable = (uint8_t)printable,
                                                           .execution_price = price}};
}

static struct itch_msg cancel(uint64_t ref, uint32_t qty)
{
    return (struct itch_msg){
        .type = 'X', .locate = L, .order_cancel = {.order_reference_number = ref, .cancelled_shares = qty}};
}

static struct itch_msg replace(uint64_t ref, uint64_t new_ref, uint32_t qty, uint32_t price)
{
    return (struct itch_msg){.type = 'U',
                             .locate = L,
                             .order_replace = {.original_order_reference_number = ref,
                                               .new_order_reference_number = new_ref,
                                               .shares = qty,
                                               .price = price}};
}

static struct itch_msg halt(char market_code, char action)
{
    return (struct itch_msg){.type = 'h',
                             .locate = L,
                             .operational_halt = {.market_code = (uint8_t)market_code,
                                                  .operational_halt_action = (uint8_t)action}};
}

static int reliable(const struct rig *rig)
{
    return market_reliable(rig->market, L, rig->ts);
}

static int trading(const struct rig *rig)
{
    return market_trading(rig->market, L);
}

/* A day from its first message to continuous trading. */
static void open_day(struct rig *rig)
{
    apply(rig, feed_event('O', 0));
    apply(rig, feed_directory(L, "TEST", 0));
    apply(rig, feed_state(L, "TEST", 'T', 0));
    apply(rig, feed_event('Q', 0));
}

static void test_book_messages(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_STRICT);
    struct book_bbo bbo;
    open_day(&rig);
    assert_int_equal(add(&rig, 1, 'B', 100, 5000), MARKET_BOOK | MARKET_TOP);
    assert_int_equal(rig.event.before.bid_qty, 0);
    assert_int_equal(rig.event.change.side, BOOK_BID);
    assert_int_equal(rig.event.change.qty, 100);
    assert_int_equal(add(&rig, 2, 'S', 50, 5100), MARKET_BOOK | MARKET_TOP);
    assert_int_equal(add(&rig, 3, 'S', 50, 5200), MARKET_BOOK); /* behind the best */
    market_bbo(rig.market, L, &bbo);
    assert_int_equal(bbo.bid_price, 5000);
    assert_int_equal(bbo.ask_price, 5100);

    /* E: at the order's price; the order's side rests. */
    assert_int_equal(apply(&rig, executed(2, 20)), MARKET_BOOK | MARKET_TOP | MARKET_TRADE);
    assert_int_equal(rig.event.trade_side, BOOK_ASK);
    assert_int_equal(rig.event.trade_price, 5100);
    assert_int_equal(rig.event.trade_qty, 20);
    assert_int_equal(rig.event.before.ask_qty, 50);
    /* C: at the message's price, the book at the order's. */
    assert_int_equal(apply(&rig, executed_at(2, 10, 'Y', 5090)), MARKET_BOOK | MARKET_TOP | MARKET_TRADE);
    assert_int_equal(rig.event.trade_price, 5090);
    assert_int_equal(rig.event.change.price, 5100);
    /* Not printable: it is in a later Q. */
    assert_int_equal(apply(&rig, executed_at(2, 5, 'N', 5090)), MARKET_BOOK | MARKET_TOP);
    assert_int_equal(apply(&rig, executed_at(2, 5, '?', 5090)), MARKET_BOOK | MARKET_TOP);
    assert_int_equal(market_counters(rig.market)->bad_enum, 1);
    market_bbo(rig.market, L, &bbo);
    assert_int_equal(bbo.ask_qty, 10);
    /* X takes away, U moves, D removes. */
    assert_int_equal(apply(&rig, cancel(2, 4)), MARKET_BOOK | MARKET_TOP);
    assert_int_equal(apply(&rig, replace(2, 22, 70, 5300)), MARKET_BOOK | MARKET_TOP);
    assert_int_equal(rig.event.change.qty, 6);
    assert_int_equal(rig.event.change.new_qty, 70);
    assert_int_equal(rig.event.change.new_price, 5300);
    market_bbo(rig.market, L, &bbo);
    assert_int_equal(bbo.ask_price, 5200);
    assert_int_equal(apply(&rig, feed_delete(L, 22, 0)), MARKET_BOOK);
    assert_int_equal(apply(&rig, feed_delete(L, 1, 0)), MARKET_BOOK | MARKET_TOP);
    market_bbo(rig.market, L, &bbo);
    assert_int_equal(bbo.bid_price, 0);
    assert_true(reliable(&rig));
    assert_int_equal(market_counters(rig.market)->by_type['E'], 1);
    assert_int_equal(market_counters(rig.market)->by_type['C'], 3);
    market_free(rig.market);
}

static void test_tape(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_STRICT);
    open_day(&rig);
    struct itch_msg p = {
        .type = 'P', .locate = L, .trade = {.buy_sell_indicator = 'B', .shares = 7, .price = 5050}};
    assert_int_equal(apply(&rig, p), MARKET_TRADE);
    assert_int_equal(rig.event.trade_side, 2); /* its B says nothing */
    assert_int_equal(rig.event.trade_qty, 7);
    assert_int_equal(rig.event.trade_price, 5050);
    struct itch_msg q = {
        .type = 'Q', .locate = L, .cross_trade = {.shares = 0, .cross_price = 0, .cross_type = 'O'}};
    assert_int_equal(apply(&rig, q), 0); /* no cross happened */
    q.cross_trade.shares = 5000000000u;
    q.cross_trade.cross_price = 5000;
    assert_int_equal(apply(&rig, q), MARKET_TRADE);
    assert_true(rig.event.trade_qty == 5000000000u);
    assert_int_equal(rig.event.trade_side, 2);
    struct itch_msg b = {.type = 'B', .locate = L, .broken_trade = {.match_number = 1}};
    assert_int_equal(apply(&rig, b), 0);
    assert_int_equal(book_counters(market_books(rig.market))->updates, 0);
    market_free(rig.market);
}

static void test_all_types_are_taken(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_STRICT);
    open_day(&rig);
    for (const char *type = "YLVWKJINO"; *type; type++) {
        struct itch_msg msg = {.type = (uint8_t)*type, .locate = L};
        assert_int_equal(apply(&rig, msg), 0);
        assert_int_equal(rig.event.locate, *type == 'V' || *type == 'W' ? 0 : L);
        assert_int_equal(market_counters(rig.market)->by_type[(uint8_t)*type], 1);
    }
    assert_true(trading(&rig)); /* W and J by themselves stop nothing: the halts come as H */
    assert_true(reliable(&rig));
    assert_int_equal(market_counters(rig.market)->bad_enum, 0);
    market_free(rig.market);
}

static void test_lengths(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_SETTLED);
    uint8_t body[64] = {0};
    struct itch_msg msg = feed_order(L, "TEST", 1, 'B', 100, 5000, rig.ts);
    int len = itch_encode(&msg, body, sizeof(body));
    uint8_t *start = malloc(ITCH_HEADER_BYTES); /* a first message cut in front of its event code */
    assert_non_null(start);
    memset(start, 0, ITCH_HEADER_BYTES);
    start[0] = 'S';
    market_apply(rig.market, start, ITCH_HEADER_BYTES, &rig.event);
    assert_int_equal(market_counters(rig.market)->short_messages, 1);
    assert_false(market_reliable(rig.market, L, SETTLE - 1));
    free(start);
    market_free(rig.market);
    rig = rig_of(MARKET_JOIN_SETTLED);
    open_day(&rig);
    for (int cut = 0; cut < len; cut++) {
        market_apply(rig.market, body, (uint16_t)cut, &rig.event);
        assert_int_equal(rig.event.effects, 0);
        assert_int_equal(rig.event.type, cut ? 'A' : 0);
        assert_int_equal(rig.event.locate, cut >= ITCH_HEADER_BYTES ? L : 0);
        assert_true(rig.event.ts_ns == rig.ts);
    }
    assert_int_equal(market_counters(rig.market)->short_messages, len);
    assert_int_equal(book_counters(market_books(rig.market))->n_order, 0);
    market_apply(rig.market, body, (uint16_t)(len + 9), &rig.event); /* of a later revision */
    assert_int_equal(rig.event.effects, MARKET_BOOK | MARKET_TOP);
    assert_int_equal(market_counters(rig.market)->long_messages, 1);
    body[0] = 'z';
    market_apply(rig.market, body, (uint16_t)len, &rig.event);
    assert_int_equal(rig.event.effects, 0);
    assert_int_equal(rig.event.locate, L);
    assert_int_equal(market_counters(rig.market)->unknown_messages, 1);
    assert_int_equal(market_counters(rig.market)->by_type['z'], 1);
    market_free(rig.market);

    /* A message that cannot be read may have been about the book: in doubt for the settling time, all books
     * when not even the locate is there. An empty one and an unknown type are about nothing. */
    rig = rig_of(MARKET_JOIN_SETTLED);
    open_day(&rig);
    market_apply(rig.market, body, 0, &rig.event);
    market_apply(rig.market, body, 5, &rig.event);
    assert_true(reliable(&rig));
    body[0] = 'A';
    market_apply(rig.market, body, 20, &rig.event);
    assert_false(reliable(&rig));
    assert_true(market_reliable(rig.market, OTHER, rig.ts));
    market_apply(rig.market, body, 3, &rig.event);
    assert_false(market_reliable(rig.market, OTHER, rig.ts));
    rig.ts += SETTLE - 1;
    assert_false(reliable(&rig));
    rig.ts++;
    assert_true(reliable(&rig));
    assert_true(market_reliable(rig.market, OTHER, rig.ts));
    market_free(rig.market);
}

static void test_bad_side(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_SETTLED);
    open_day(&rig);
    assert_int_equal(add(&rig, 1, 'b', 100, 5000), 0);
    assert_int_equal(market_counters(rig.market)->bad_enum, 1);
    assert_int_equal(book_counters(market_books(rig.market))->n_order, 0);
    assert_false(reliable(&rig));
    market_free(rig.market);
}

static void test_directory(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_STRICT);
    assert_memory_equal(market_symbol(rig.market, L), "        ", 8);
    assert_int_equal(market_locate(rig.market, "        "), 0);
    apply(&rig, feed_event('O', 0));
    assert_int_equal(apply(&rig, feed_directory(L, "TEST", 0)), MARKET_DIRECTORY);
    assert_int_equal(apply(&rig, feed_directory(L, "TEST", 0)), 0);
    assert_int_equal(apply(&rig, feed_directory(65535, "LAST", 0)), MARKET_DIRECTORY);
    assert_int_equal(apply(&rig, feed_directory(0, "NONE", 0)), 0); /* locate 0 is no stock */
    assert_memory_equal(market_symbol(rig.market, L), "TEST    ", 8);
    assert_int_equal(market_locate(rig.market, "TEST    "), L);
    assert_int_equal(market_locate(rig.market, "LAST    "), 65535);
    assert_int_equal(market_locate(rig.market, "NONE    "), 0);
    assert_int_equal(add(&rig, 1, 'B', 1, 1), MARKET_BOOK | MARKET_TOP); /* known already */
    /* An order of another stock on this locate: applied, counted, and the book is in doubt. */
    assert_int_equal(apply(&rig, feed_order(L, "WRONG", 2, 'B', 1, 1, 0)), MARKET_BOOK | MARKET_TOP);
    assert_int_equal(market_counters(rig.market)->symbol_mismatch, 1);
    assert_memory_equal(market_symbol(rig.market, L), "TEST    ", 8);
    assert_false(reliable(&rig));
    market_new_session(rig.market);
    assert_memory_equal(market_symbol(rig.market, L), "        ", 8);
    /* A directory that gives the locate to another stock: the orders there are not that stock's. */
    open_day(&rig);
    add(&rig, 1, 'B', 1, 1);
    assert_true(reliable(&rig));
    assert_int_equal(apply(&rig, feed_directory(L, "OTHER", 0)), MARKET_DIRECTORY);
    assert_false(reliable(&rig));
    market_new_session(rig.market);
    /* Mid-session there is no R: the first add names the symbol. */
    assert_int_equal(apply(&rig, feed_order(L, "LATE", 1, 'B', 1, 1, 0)),
                     MARKET_BOOK | MARKET_TOP | MARKET_DIRECTORY);
    struct itch_msg f = {.type = 'F', .locate = OTHER};
    f.add_order_mpid = (struct itch_add_order_mpid){
        .order_reference_number = 2, .buy_sell_indicator = 'S', .shares = 5, .stock = "MPID    ", .price = 9};
    assert_int_equal(apply(&rig, f), MARKET_BOOK | MARKET_TOP | MARKET_DIRECTORY);
    assert_int_equal(market_locate(rig.market, "MPID    "), OTHER);
    assert_int_equal(rig.event.change.side, BOOK_ASK);
    assert_int_equal(rig.event.change.qty, 5);
    assert_int_equal(rig.event.change.price, 9);
    market_free(rig.market);
}

static void test_trading_full_day(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_STRICT);
    apply(&rig, feed_event('O', 0));
    apply(&rig, feed_directory(L, "TEST", 0));
    apply(&rig, feed_event('S', 0));
    assert_false(trading(&rig));
    assert_int_equal(apply(&rig, feed_event('Q', 0)), MARKET_STATE);
    assert_false(trading(&rig)); /* no H: not allowed to trade */
    assert_int_equal(apply(&rig, feed_state(L, "TEST", 'T', 0)), MARKET_STATE);
    assert_true(trading(&rig));
    assert_int_equal(apply(&rig, feed_state(L, "TEST", 'T', 0)), 0);
    for (const char *letter = "HPQ?"; *letter; letter++) {
        assert_int_equal(apply(&rig, feed_state(L, "TEST", *letter, 0)), MARKET_STATE);
        assert_false(trading(&rig));
        assert_int_equal(apply(&rig, feed_state(L, "TEST", 'T', 0)), MARKET_STATE);
        assert_true(trading(&rig));
    }
    assert_int_equal(market_counters(rig.market)->bad_enum, 1);
    /* Operational halt: of this market only. */
    assert_int_equal(apply(&rig, halt('B', 'H')), 0);
    assert_int_equal(apply(&rig, halt('X', 'H')), 0);
    assert_true(trading(&rig));
    assert_int_equal(apply(&rig, halt('Q', 'H')), MARKET_STATE);
    assert_false(trading(&rig));
    assert_int_equal(apply(&rig, halt('B', 'T')), 0);
    assert_false(trading(&rig));
    assert_int_equal(apply(&rig, halt('Q', 'T')), MARKET_STATE);
    assert_true(trading(&rig));
    assert_int_equal(apply(&rig, halt('Q', '?')), MARKET_STATE); /* in doubt, halted */
    assert_false(trading(&rig));
    apply(&rig, halt('Q', 'T'));
    assert_int_equal(apply(&rig, halt('?', 'H')), 0);
    assert_int_equal(apply(&rig, feed_event('?', 0)), 0);
    assert_true(trading(&rig));
    assert_int_equal(market_counters(rig.market)->bad_enum, 4);
    /* Another symbol's state is its own. */
    assert_false(market_trading(rig.market, OTHER));
    assert_int_equal(apply(&rig, feed_event('M', 0)), MARKET_STATE);
    assert_int_equal(rig.event.locate, 0);
    assert_false(trading(&rig));
    assert_int_equal(apply(&rig, feed_event('E', 0)), 0);
    assert_int_equal(apply(&rig, feed_event('C', 0)), 0);
    assert_false(trading(&rig));
    market_free(rig.market);
}

static void test_trading_mid_session(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_SETTLED);
    assert_false(trading(&rig)); /* nothing seen at all */
    add(&rig, 1, 'B', 1, 1);
    assert_true(trading(&rig));
    apply(&rig, feed_state(L, "TEST", 'P', 0));
    assert_false(trading(&rig));
    assert_true(market_trading(rig.market, OTHER));
    apply(&rig, feed_state(L, "TEST", 'T', 0));
    assert_true(trading(&rig));
    apply(&rig, feed_state(L, "TEST", 0, 0)); /* a letter 0 is not "no H" */
    assert_false(trading(&rig));
    apply(&rig, feed_state(L, "TEST", 'T', 0));
    apply(&rig, feed_event('M', 0));
    assert_false(trading(&rig));
    market_free(rig.market);

    /* An O behind other messages closes, clears nothing and does not make a full day of it. */
    rig = rig_of(MARKET_JOIN_SETTLED);
    add(&rig, 1, 'B', 1, 1);
    apply(&rig, feed_event('O', 0));
    assert_false(trading(&rig));
    assert_false(reliable(&rig));
    assert_int_equal(book_counters(market_books(rig.market))->n_order, 1);
    apply(&rig, feed_event('Q', 0));
    assert_true(trading(&rig));
    market_free(rig.market);
}

static void test_strict(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_STRICT);
    assert_false(reliable(&rig)); /* before the first message */
    open_day(&rig);
    assert_true(reliable(&rig));
    market_gap(rig.market);
    assert_false(reliable(&rig));
    assert_int_equal(market_counters(rig.market)->unreliable_marks, 1);
    market_gap(rig.market); /* no reliable book left to lose */
    assert_int_equal(market_counters(rig.market)->unreliable_marks, 1);
    rig.ts += 1000 * SETTLE;
    add(&rig, 1, 'B', 1, 1);
    assert_false(market_reliable(rig.market, L, UINT64_MAX - 1));
    assert_true(trading(&rig)); /* a gap changes no state */
    market_new_session(rig.market);
    assert_false(reliable(&rig));
    assert_int_equal(book_counters(market_books(rig.market))->n_order, 0);
    assert_false(trading(&rig));
    open_day(&rig);
    assert_true(reliable(&rig));
    /* Every unknown reference proves that something was missed, X and D too. */
    apply(&rig, feed_delete(L, 99, 0));
    assert_false(reliable(&rig));
    assert_true(market_reliable(rig.market, OTHER, rig.ts));
    assert_int_equal(market_counters(rig.market)->unreliable_marks, 2);
    rig.ts += 1000 * SETTLE;
    assert_false(reliable(&rig));
    market_new_session(rig.market);
    add(&rig, 1, 'B', 1, 1); /* joined */
    assert_false(market_reliable(rig.market, L, UINT64_MAX - 1));
    market_new_session(rig.market);
    market_gap(rig.market); /* the start itself is lost */
    open_day(&rig);
    assert_false(reliable(&rig));
    assert_true(
        market_trading(rig.market, OTHER)); /* its H may have been lost: joined, as far as anyone knows */
    market_free(rig.market);
}

/* Unreliable from now until the settling time is over, to the nanosecond. */
static void assert_doubted(struct rig *rig)
{
    assert_false(reliable(rig));
    assert_false(market_reliable(rig->market, L, rig->ts + SETTLE - 1));
    assert_true(market_reliable(rig->market, L, rig->ts + SETTLE));
    rig->ts += SETTLE;
}

static void test_settled(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_SETTLED);
    assert_false(reliable(&rig));
    add(&rig, 1, 'B', 100, 5000); /* joined */
    assert_doubted(&rig);
    add(&rig, 2, 'S', 100, 5100);
    assert_true(reliable(&rig));
    market_gap(rig.market);
    assert_false(market_reliable(rig.market, L, UINT64_MAX - 1)); /* until a message gives the time */
    rig.ts += 5;
    apply(&rig, feed_delete(OTHER, 77, 0));
    assert_doubted(&rig);

    /* Old orders that go are expected after a join. */
    apply(&rig, feed_delete(L, 99, 0));
    apply(&rig, cancel(99, 5));
    assert_true(reliable(&rig));
    /* Executions are at the best price, so an unknown one is. */
    assert_int_equal(apply(&rig, executed(99, 5)), 0);
    assert_doubted(&rig);
    assert_int_equal(apply(&rig, executed_at(99, 5, 'N', 5050)), 0);
    assert_doubted(&rig);
    assert_int_equal(apply(&rig, executed_at(99, 5, 'Y', 5050)), MARKET_TRADE); /* on the tape all the same */
    assert_int_equal(rig.event.trade_side, 2);
    assert_int_equal(rig.event.trade_price, 5050);
    assert_int_equal(rig.event.trade_qty, 5);
    assert_doubted(&rig);
    /* An unknown order that moves to the touch or inside it would be the best one; behind it, it may be deep.
     */
    apply(&rig, replace(99, 98, 5, 4999));
    apply(&rig, replace(99, 98, 5, 5101));
    assert_true(reliable(&rig));
    const uint32_t inside[] = {5000, 5050, 5100};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(apply(&rig, replace(99, 98, 5, inside[i])), 0);
        assert_doubted(&rig);
    }
    assert_int_equal(book_counters(market_books(rig.market))->n_order, 2);
    /* Contradictions. */
    assert_int_equal(apply(&rig, cancel(1, 0)), 0);
    assert_doubted(&rig);
    assert_int_equal(add(&rig, 1, 'B', 100, 5000), 0); /* duplicate */
    assert_doubted(&rig);
    struct itch_msg wrong = feed_delete(OTHER, 1, 0);
    apply(&rig, wrong);
    assert_int_equal(book_counters(market_books(rig.market))->wrong_locate, 1);
    assert_false(market_reliable(rig.market, OTHER, rig.ts));
    assert_true(reliable(&rig));
    rig.ts += SETTLE;
    assert_int_equal(apply(&rig, executed(2, 101)), MARKET_BOOK | MARKET_TOP | MARKET_TRADE);
    assert_int_equal(rig.event.trade_qty, 100); /* what was left */
    assert_doubted(&rig);
    /* A doubt in doubt counts once, and the later one rules. */
    uint64_t marks = market_counters(rig.market)->unreliable_marks;
    apply(&rig, executed(99, 5));
    rig.ts += SETTLE / 2;
    apply(&rig, executed(99, 5));
    assert_int_equal(market_counters(rig.market)->unreliable_marks, marks + 1);
    rig.ts -= SETTLE / 4; /* a doubt with an earlier time stamp shortens nothing */
    apply(&rig, executed(99, 5));
    rig.ts += SETTLE / 4;
    assert_doubted(&rig);
    market_free(rig.market);
}

static void test_crossed(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_SETTLED);
    open_day(&rig);
    add(&rig, 1, 'B', 100, 5000);
    add(&rig, 2, 'S', 100, 5001);
    assert_true(reliable(&rig));
    add(&rig, 3, 'B', 100, 5001); /* locked */
    assert_false(reliable(&rig));
    assert_false(market_reliable(rig.market, L, rig.ts + 100 * SETTLE)); /* as long as it is */
    rig.ts += 10 * SETTLE;
    apply(&rig, feed_state(L, "TEST", 'H', 0));
    assert_true(reliable(&rig)); /* allowed while halted */
    add(&rig, 4, 'B', 100, 5002);
    assert_true(reliable(&rig));
    apply(&rig, feed_state(L, "TEST", 'T', 0));
    assert_false(reliable(&rig));
    apply(&rig, feed_delete(L, 3, 0)); /* not the top: still crossed */
    assert_false(reliable(&rig));
    apply(&rig, feed_delete(L, 4, 0));
    assert_true(reliable(&rig)); /* the last doubt was long before: crossed while halted is none */
    add(&rig, 5, 'S', 100, 4000);
    apply(&rig, feed_delete(L, 5, 0));
    assert_doubted(&rig); /* crossed for a moment while trading */
    market_free(rig.market);

    rig = rig_of(MARKET_JOIN_STRICT);
    open_day(&rig);
    add(&rig, 1, 'B', 100, 5000);
    add(&rig, 2, 'S', 100, 4000);
    assert_false(reliable(&rig));
    apply(&rig, feed_delete(L, 2, 0));
    assert_true(reliable(&rig)); /* every message was seen: the crossing was the market's */
    market_free(rig.market);
}

static void test_full_table(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_STRICT);
    open_day(&rig);
    for (uint64_t ref = 0; ref < 8; ref++)
        add(&rig, ref, 'B', 100, 5000);
    assert_true(reliable(&rig));
    assert_int_equal(add(&rig, 8, 'B', 100, 5000), 0);
    assert_false(reliable(&rig));
    assert_int_equal(book_counters(market_books(rig.market))->full, 1);
    market_free(rig.market);

    /* A replace that finds no room has still removed its order. */
    rig = rig_of(MARKET_JOIN_STRICT);
    open_day(&rig);
    for (uint32_t i = 0; i < 7; i++)
        add(&rig, i, 'B', 100, 5000 + i);
    apply(&rig, feed_order(OTHER, "OTHR", 7, 'B', 100, 1, 0));
    add(&rig, 0, 'B', 1, 1); /* duplicate: a doubt, and so never reliable again */
    assert_int_equal(apply(&rig, replace(6, 16, 5, 5006)), MARKET_BOOK | MARKET_TOP);
    market_free(rig.market);

    rig = rig_of(MARKET_JOIN_STRICT);
    const struct market_config config = {.join = MARKET_JOIN_STRICT, .limits = {.n_order = 8, .n_level = 1}};
    market_free(rig.market);
    rig.market = market_create(&config);
    open_day(&rig);
    add(&rig, 1, 'B', 100, 5000);
    add(&rig, 2, 'B', 100, 5000);
    assert_true(reliable(&rig));
    assert_int_equal(apply(&rig, replace(1, 11, 5, 4000)), MARKET_BOOK | MARKET_TOP);
    assert_int_equal(rig.event.change.new_qty, 0);
    assert_false(reliable(&rig));
    market_free(rig.market);
    const struct market_config none = {.limits = {.n_order = 0, .n_level = 1}};
    assert_null(market_create(&none));
}

/* A hint: whatever it is given, nothing changes and nothing is read beyond the message. */
static void test_prefetch(void **state)
{
    (void)state;
    struct rig rig = rig_of(MARKET_JOIN_STRICT);
    struct book_counters before = *book_counters(market_books(rig.market));
    for (unsigned type = 0; type < 256; type++)
        for (uint16_t len = 0; len <= ITCH_MESSAGE_BYTES_MAX; len++) {
            uint8_t *body = malloc(len ? len : 1); /* exactly as long: AddressSanitizer watches */
            assert_non_null(body);
            memset(body, 0xff, len);
            if (len)
                body[0] = (uint8_t)type;
            market_prefetch(rig.market, body, len);
            free(body);
        }
    assert_memory_equal(book_counters(market_books(rig.market)), &before, sizeof(before));
    assert_int_equal(market_counters(rig.market)->messages, 0);
    market_free(rig.market);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_book_messages),
        cmocka_unit_test(test_tape),
        cmocka_unit_test(test_all_types_are_taken),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_bad_side),
        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_trading_full_day),
        cmocka_unit_test(test_trading_mid_session),
        cmocka_unit_test(test_strict),
        cmocka_unit_test(test_settled),
        cmocka_unit_test(test_crossed),
        cmocka_unit_test(test_full_table),
        cmocka_unit_test(test_prefetch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
