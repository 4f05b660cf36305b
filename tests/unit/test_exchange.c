/* The simulated exchange: priorities, order kinds, auctions, and what it publishes; its random numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/agenda.h"
#include "sim/exchange.h"
#include "sim/rng.h"

enum { N_LOG = 64 };

static struct exchange *ex;
static struct itch_msg log_msg[N_LOG];
static uint32_t n_log;
static uint64_t now_ns;

static void record(void *ctx, uint64_t ts_ns, const uint8_t *msg, uint16_t len)
{
    (void)ctx;
    assert_int_equal(itch_decode(msg, len, &log_msg[n_log % N_LOG]), len);
    assert_int_equal(log_msg[n_log % N_LOG].timestamp_ns, ts_ns);
    n_log++;
}

static int setup(void **state)
{
    static const uint16_t locates[2] = {17, 60000};
    static const char stocks[2][8] = {{"AAA     "}, {"BBB     "}};
    (void)state;
    ex = exchange_create(2, locates, stocks, 1, record, NULL);
    if (!ex)
        return -1;
    exchange_set_matching(ex, 0, 1);
    exchange_set_matching(ex, 1, 1);
    now_ns = 0;
    n_log = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    exchange_free(ex);
    return 0;
}

static int64_t order(enum exchange_side side, uint32_t price, uint32_t qty, unsigned flags)
{
    exchange_at(ex, ++now_ns);
    n_log = 0;
    return exchange_order(ex, 0, side, price, qty, flags);
}

/* A resting order; its reference. */
static uint64_t rest(enum exchange_side side, uint32_t price, uint32_t qty, unsigned flags)
{
    assert_int_equal(order(side, price, qty, flags), 0);
    assert_int_equal(n_log, 1);
    assert_int_equal(log_msg[0].type, flags & EXCHANGE_ATTRIBUTED ? 'F' : 'A');
    assert_int_equal(log_msg[0].locate, 17);
    assert_int_equal(log_msg[0].add_order.shares, qty);
    assert_int_equal(log_msg[0].add_order.price, price);
    assert_int_equal(log_msg[0].add_order.buy_sell_indicator, side == EXCHANGE_BUY ? 'B' : 'S');
    assert_memory_equal(log_msg[0].add_order.stock, "AAA     ", 8);
    return log_msg[0].add_order.order_reference_number;
}

static uint32_t find(uint64_t ref)
{
    for (int side = 0; side < 2; side++) {
        uint32_t n;
        const uint32_t *shown = exchange_shown(ex, 0, (enum exchange_side)side, &n);
        for (uint32_t i = 0; i < n; i++)
            if (exchange_get(ex, shown[i])->ref == ref)
                return shown[i];
    }
    fail_msg("order is not in the book");
    return 0;
}

static void expect_executed(uint32_t i, uint64_t ref, uint32_t qty)
{
    assert_true(i < n_log);
    assert_int_equal(log_msg[i].type, 'E');
    assert_int_equal(log_msg[i].order_executed.order_reference_number, ref);
    assert_int_equal(log_msg[i].order_executed.executed_shares, qty);
    assert_int_not_equal(log_msg[i].tracking, 0);
}

static uint64_t level_qty(enum exchange_side side, uint32_t price)
{
    uint32_t n;
    const struct exchange_level *level = exchange_levels(ex, 0, side, &n);
    for (uint32_t i = 0; i < n; i++)
        if (level[i].price == price)
            return level[i].qty;
    return 0;
}

static void price_then_time(void **state)
{
    (void)state;
    uint64_t far = rest(EXCHANGE_SELL, 100200, 50, 0), first = rest(EXCHANGE_SELL, 100100, 30, 0);
    uint64_t second = rest(EXCHANGE_SELL, 100100, 40, EXCHANGE_ATTRIBUTED);
    assert_true(far > UINT32_MAX && second > first);
    assert_int_equal(order(EXCHANGE_BUY, 100200, 80, 0), 80);
    assert_int_equal(n_log, 3);
    expect_executed(0, first, 30);
    expect_executed(1, second, 40);
    expect_executed(2, far, 10);
    assert_int_equal(log_msg[1].order_executed.match_number, log_msg[0].order_executed.match_number + 1);
    assert_int_equal(exchange_best(ex, 0, EXCHANGE_SELL), 100200);
    assert_int_equal(level_qty(EXCHANGE_SELL, 100200), 40);
    assert_int_equal(exchange_best(ex, 0, EXCHANGE_BUY), 0);
    assert_int_equal(exchange_best(ex, 1, EXCHANGE_SELL), 0); /* the other stock is untouched */
}

static void remainder_rests_or_is_dropped(void **state)
{
    (void)state;
    uint64_t ask = rest(EXCHANGE_SELL, 100100, 30, 0);
    assert_int_equal(order(EXCHANGE_BUY, 100100, 100, EXCHANGE_IOC), 30);
    expect_executed(0, ask, 30);
    assert_int_equal(n_log, 1);
    assert_int_equal(exchange_best(ex, 0, EXCHANGE_BUY), 0);

    ask = rest(EXCHANGE_SELL, 100100, 30, 0);
    assert_int_equal(order(EXCHANGE_BUY, 100100, 100, 0), 30);
    assert_int_equal(n_log, 2);
    expect_executed(0, ask, 30);
    assert_int_equal(log_msg[1].type, 'A');
    assert_int_equal(log_msg[1].add_order.shares, 70);
    assert_int_equal(level_qty(EXCHANGE_BUY, 100100), 70);

    rest(EXCHANGE_BUY, 90000, 5, 0);
    assert_int_equal(order(EXCHANGE_SELL, 0, 1000, EXCHANGE_IOC),
                     75); /* a market order takes the whole side */
    assert_int_equal(exchange_best(ex, 0, EXCHANGE_BUY), 0);
    assert_int_equal(order(EXCHANGE_SELL, 0, 1, EXCHANGE_IOC), 0); /* and an empty one gives nothing */
    assert_int_equal(n_log, 0);
}

static void hidden_orders(void **state)
{
    (void)state;
    uint64_t shown = rest(EXCHANGE_SELL, 100200, 10, 0);
    assert_int_equal(order(EXCHANGE_SELL, 100200, 10, EXCHANGE_HIDDEN), 0);
    assert_int_equal(order(EXCHANGE_SELL, 100150, 10, EXCHANGE_HIDDEN), 0); /* a midpoint */
    assert_int_equal(n_log, 0);                                             /* never shown */
    assert_int_equal(exchange_n_hidden(ex, 0, EXCHANGE_SELL), 2);
    assert_int_equal(exchange_best(ex, 0, EXCHANGE_SELL), 100200);
    assert_int_equal(order(EXCHANGE_BUY, 100200, 25, 0), 25);
    assert_int_equal(n_log, 3);
    assert_int_equal(log_msg[0].type, 'P'); /* better price first */
    assert_int_equal(log_msg[0].trade.price, 100150);
    assert_int_equal(log_msg[0].trade.shares, 10);
    assert_int_equal(log_msg[0].trade.order_reference_number, 0);
    assert_int_equal(log_msg[0].trade.buy_sell_indicator, 'B');
    expect_executed(1, shown, 10); /* at one price the shown order first, although it is not older */
    assert_int_equal(log_msg[2].type, 'P');
    assert_int_equal(log_msg[2].trade.shares, 5);
    exchange_set_matching(ex, 0, 0);
    assert_int_equal(exchange_n_hidden(ex, 0, EXCHANGE_SELL), 0);
    assert_int_equal(order(EXCHANGE_SELL, 100150, 10, EXCHANGE_HIDDEN), -1);
}

static void hidden_orders_displace_the_worst(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * EXCHANGE_HIDDEN_ORDER_MAX; i++)
        assert_int_equal(order(EXCHANGE_SELL, 100000 + 100 * (i % 40), 1, EXCHANGE_HIDDEN), 0);
    assert_true(exchange_n_hidden(ex, 0, EXCHANGE_SELL) <= EXCHANGE_HIDDEN_ORDER_MAX);
    assert_int_equal(order(EXCHANGE_SELL, 99900, 7, EXCHANGE_HIDDEN), 0);
    assert_int_equal(order(EXCHANGE_BUY, 99900, 7, EXCHANGE_IOC), 7);
}

static void discretion_gives_half_a_tick(void **state)
{
    (void)state;
    uint64_t ask = rest(EXCHANGE_SELL, 100100, 10, EXCHANGE_DISCRETION);
    assert_int_equal(order(EXCHANGE_BUY, 100100, 4, 0), 4);
    assert_int_equal(log_msg[0].type, 'C');
    assert_int_equal(log_msg[0].order_executed_with_price.order_reference_number, ask);
    assert_int_equal(log_msg[0].order_executed_with_price.executed_shares, 4);
    assert_int_equal(log_msg[0].order_executed_with_price.execution_price, 100050);
    assert_int_equal(log_msg[0].order_executed_with_price.printable, 'Y');
    rest(EXCHANGE_BUY, 5000, 10, EXCHANGE_DISCRETION); /* below one dollar there is no half tick */
    assert_int_equal(order(EXCHANGE_SELL, 5000, 10, 0), 10);
    assert_int_equal(log_msg[0].type, 'E');
}

static void cancels(void **state)
{
    (void)state;
    uint64_t ref = rest(EXCHANGE_BUY, 100000, 50, 0);
    n_log = 0;
    exchange_cancel(ex, find(ref), 20);
    assert_int_equal(n_log, 1);
    assert_int_equal(log_msg[0].type, 'X');
    assert_int_equal(log_msg[0].order_cancel.cancelled_shares, 20);
    assert_int_equal(level_qty(EXCHANGE_BUY, 100000), 30);
    n_log = 0;
    exchange_cancel(ex, find(ref), 30);
    assert_int_equal(n_log, 1);
    assert_int_equal(log_msg[0].type, 'D');
    assert_int_equal(log_msg[0].order_delete.order_reference_number, ref);
    assert_int_equal(exchange_best(ex, 0, EXCHANGE_BUY), 0);
}

static void partial_cancel_keeps_time_and_replace_loses_it(void **state)
{
    (void)state;
    uint64_t a = rest(EXCHANGE_BUY, 100000, 10, 0), b = rest(EXCHANGE_BUY, 100000, 10, 0);
    exchange_cancel(ex, find(a), 1);
    assert_int_equal(order(EXCHANGE_SELL, 100000, 1, EXCHANGE_IOC), 1);
    expect_executed(0, a, 1);
    n_log = 0;
    assert_int_equal(exchange_replace(ex, find(a), 100000, 10), 0);
    assert_int_equal(n_log, 1);
    assert_int_equal(log_msg[0].type, 'U');
    assert_int_equal(log_msg[0].order_replace.original_order_reference_number, a);
    assert_int_equal(log_msg[0].order_replace.shares, 10);
    assert_int_equal(log_msg[0].order_replace.price, 100000);
    uint64_t c = log_msg[0].order_replace.new_order_reference_number;
    assert_true(c > b);
    assert_int_equal(order(EXCHANGE_SELL, 100000, 12, EXCHANGE_IOC), 12);
    expect_executed(0, b, 10);
    expect_executed(1, c, 2);
}

static void marketable_replace_trades(void **state)
{
    (void)state;
    uint64_t bid = rest(EXCHANGE_BUY, 100000, 10, 0), ask = rest(EXCHANGE_SELL, 100100, 4, 0);
    n_log = 0;
    assert_int_equal(exchange_replace(ex, find(bid), 100100, 10), 0);
    assert_int_equal(n_log, 3);
    assert_int_equal(log_msg[0].type, 'D');
    expect_executed(1, ask, 4);
    assert_int_equal(log_msg[2].type, 'A');
    assert_int_equal(log_msg[2].add_order.shares, 6);
    assert_int_equal(log_msg[2].add_order.price, 100100);
}

static void refusals_publish_nothing(void **state)
{
    (void)state;
    assert_int_equal(order(EXCHANGE_BUY, 100050, 10, 0), -1); /* half a cent */
    assert_int_equal(order(EXCHANGE_BUY, 100025, 10, EXCHANGE_HIDDEN), -1);
    assert_int_equal(order(EXCHANGE_BUY, EXCHANGE_PRICE_MAX + 100u, 10, 0), -1);
    assert_int_equal(n_log, 0);
    assert_int_equal(order(EXCHANGE_BUY, EXCHANGE_PRICE_MAX, 1, 0), 0);
    assert_int_equal(order(EXCHANGE_SELL, EXCHANGE_PRICE_MAX, 1, 0), 1);
    assert_int_equal(order(EXCHANGE_BUY, 9999, 1, 0), 0);
    for (uint32_t i = 0; i < EXCHANGE_LEVEL_MAX - 1; i++)
        assert_int_equal(order(EXCHANGE_BUY, 20000 + 100 * i, 1, 0), 0);
    assert_int_equal(order(EXCHANGE_BUY, 10000, 1, 0), -1); /* no level left */
    assert_int_equal(n_log, 0);
    uint64_t ref = exchange_get(ex, exchange_shown(ex, 0, EXCHANGE_BUY, &(uint32_t){0})[0])->ref;
    n_log = 0;
    assert_int_equal(exchange_replace(ex, find(ref), 10000, 1), -1);
    assert_int_equal(exchange_replace(ex, find(ref), 20001, 1), -1); /* off the grid */
    assert_int_equal(n_log, 0);
    find(ref); /* still there */
    uint32_t n;
    exchange_shown(ex, 0, EXCHANGE_BUY, &n);
    for (; n < EXCHANGE_ORDER_MAX; n++)
        assert_int_equal(order(EXCHANGE_BUY, 20000, 1, 0), 0);
    assert_int_equal(order(EXCHANGE_BUY, 20000, 1, 0), -1); /* no order left */
    assert_int_equal(n_log, 0);
}

static void auction_takes_the_largest_volume(void **state)
{
    struct exchange_cross cross;
    (void)state;
    exchange_set_matching(ex, 0, 0);
    uint64_t b1 = rest(EXCHANGE_BUY, 100300, 40, 0), b2 = rest(EXCHANGE_BUY, 100200, 30, 0);
    rest(EXCHANGE_BUY, 100100, 50, 0);
    uint64_t a1 = rest(EXCHANGE_SELL, 100100, 20, 0), a2 = rest(EXCHANGE_SELL, 100200, 60, 0);
    rest(EXCHANGE_SELL, 100400, 10, 0);
    /* At 100200: bids 70 + 5, asks 80; at 100100: 125 against 20; at 100300: 45 against 80. */
    exchange_cross_preview(ex, 0, 5, 0, 100200, &cross);
    assert_int_equal(cross.price, 100200);
    assert_int_equal(cross.paired, 75);
    assert_int_equal(cross.imbalance, 5);
    assert_int_equal(cross.direction, 'S');
    exchange_at(ex, ++now_ns);
    n_log = 0;
    exchange_auction(ex, 0, 5, 0, 100200, 'H', &cross);
    assert_int_equal(n_log, 5);
    const uint64_t refs[4] = {b1, b2, a1, a2};
    const uint32_t fills[4] = {40, 30, 20, 55};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(log_msg[i].type, 'C');
        assert_int_equal(log_msg[i].order_executed_with_price.order_reference_number, refs[i]);
        assert_int_equal(log_msg[i].order_executed_with_price.executed_shares, fills[i]);
        assert_int_equal(log_msg[i].order_executed_with_price.execution_price, 100200);
        assert_int_equal(log_msg[i].order_executed_with_price.printable, 'N');
    }
    assert_int_equal(log_msg[4].type, 'Q');
    assert_int_equal(log_msg[4].cross_trade.shares, 75);
    assert_int_equal(log_msg[4].cross_trade.cross_price, 100200);
    assert_int_equal(log_msg[4].cross_trade.cross_type, 'H');
    assert_int_equal(log_msg[4].cross_trade.match_number,
                     log_msg[3].order_executed_with_price.match_number + 1);
    assert_int_equal(exchange_best(ex, 0, EXCHANGE_BUY), 100100);
    assert_int_equal(exchange_best(ex, 0, EXCHANGE_SELL), 100200);
}

static void auction_without_interest(void **state)
{
    struct exchange_cross cross;
    (void)state;
    rest(EXCHANGE_BUY, 100000, 10, 0);
    n_log = 0;
    exchange_auction(ex, 0, 100, 0, 100000, 'O', &cross); /* nobody sells */
    assert_int_equal(n_log, 1);
    assert_int_equal(log_msg[0].type, 'Q');
    assert_int_equal(log_msg[0].cross_trade.shares, 0);
    assert_int_equal(log_msg[0].cross_trade.cross_price, 0);
    assert_int_equal(cross.direction, 'O');
    assert_int_equal(cross.imbalance, 0);
    exchange_auction(ex, 0, 100, 60, 100200, 'O', &cross); /* market orders alone: at the reference */
    assert_int_equal(cross.price, 100200);
    assert_int_equal(cross.paired, 60);
    assert_int_equal(cross.direction, 'B');
}

static void broken_trades_were_made(void **state)
{
    (void)state;
    exchange_at(ex, ++now_ns);
    assert_int_equal(exchange_break_trade(ex), 0);
    uint64_t low = UINT64_MAX, high = 0;
    for (int i = 0; i < 64; i++) {
        rest(EXCHANGE_SELL, 100100, 1, 0);
        assert_int_equal(order(EXCHANGE_BUY, 100100, 1, 0), 1);
        uint64_t match = log_msg[0].order_executed.match_number;
        low = match < low ? match : low;
        high = match > high ? match : high;
    }
    n_log = 0;
    assert_int_equal(exchange_break_trade(ex), 1);
    assert_int_equal(log_msg[0].type, 'B');
    assert_in_range(log_msg[0].broken_trade.match_number, low, high);
}

/* Whatever is sent: nothing that could trade rests, sums agree, best prices never meet. */
static void random_orders_never_cross(void **state)
{
    struct rng rng;
    (void)state;
    rng_seed(&rng, 99, 0);
    for (uint32_t i = 0; i < 60000; i++) {
        enum exchange_side side = rng_below(&rng, 2) ? EXCHANGE_BUY : EXCHANGE_SELL;
        uint32_t n, price = 100000 + 50 * (uint32_t)rng_below(&rng, 40),
                    qty = 1 + (uint32_t)rng_below(&rng, 100);
        static const unsigned kinds[5] = {0, EXCHANGE_IOC, EXCHANGE_HIDDEN, EXCHANGE_DISCRETION,
                                          EXCHANGE_ATTRIBUTED};
        const uint32_t *shown = exchange_shown(ex, 0, side, &n);
        uint64_t r = rng_below(&rng, 10);
        exchange_at(ex, ++now_ns);
        if (r < 5 || !n)
            exchange_order(ex, 0, side, price, qty, kinds[rng_below(&rng, 5)]);
        else if (r < 7)
            exchange_replace(ex, shown[rng_below(&rng, n)], price, qty);
        else
            exchange_cancel(ex, shown[rng_below(&rng, n)], qty);
        uint32_t bid = exchange_best(ex, 0, EXCHANGE_BUY), ask = exchange_best(ex, 0, EXCHANGE_SELL);
        assert_true(!bid || !ask || bid < ask);
        for (int s = 0; s < 2 && i % 64 == 0; s++) {
            uint32_t n_level, n_order = 0;
            const struct exchange_level *level = exchange_levels(ex, 0, (enum exchange_side)s, &n_level);
            for (uint32_t k = 0; k < n_level; k++) {
                uint64_t sum = 0, last_ref = 0;
                uint32_t count = 0;
                for (uint32_t o = level[k].head; o; o = exchange_get(ex, o)->next, count++) {
                    assert_true(exchange_get(ex, o)->ref > last_ref); /* oldest first */
                    last_ref = exchange_get(ex, o)->ref;
                    sum += exchange_get(ex, o)->qty;
                }
                assert_int_equal(sum, level[k].qty);
                assert_int_equal(count, level[k].n_order);
                assert_true(k == 0 || (s == EXCHANGE_BUY ? level[k].price > level[k - 1].price
                                                         : level[k].price < level[k - 1].price));
                n_order += count;
            }
            exchange_shown(ex, 0, (enum exchange_side)s, &n);
            assert_int_equal(n_order, n);
        }
    }
    const uint64_t *by_type = exchange_by_type(ex);
    for (const char *t = "AFECXDUP"; *t; t++)
        assert_true(by_type[(uint8_t)*t] > 100);
}

static void random_numbers(void **state)
{
    /* First outputs of xoshiro256** from the state 1, 2, 3, 4: the authors' reference code. */
    static const uint64_t expected[4] = {11520, 0, 1509978240, 1215971899390074240};
    struct rng rng = {{1, 2, 3, 4}}, other;
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(rng_next(&rng), expected[i]);
    rng_seed(&rng, 5, 0);
    rng_seed(&other, 5, 1);
    assert_int_not_equal(rng_next(&rng), rng_next(&other));
    double sum = 0, squares = 0;
    for (int i = 0; i < 200000; i++) {
        double e = rng_exponential(&rng);
        assert_true(e >= 0 && e < 40);
        sum += e;
        squares += e * e;
        assert_true(rng_between(&rng, 3, 5) - 3 <= 2);
    }
    assert_true(fabs(sum / 200000 - 1.0) < 0.01 && fabs(squares / 200000 - 2.0) < 0.05);
    for (double x = 1e-16; x <= 1.0; x *= 1.07)
        assert_true(fabs(rng_minus_log(x) + log(x)) < 1e-12);
    for (double x = 0.0; x < 600.0; x += 0.37)
        assert_true(fabs(rng_exp_minus(x) / exp(-x) - 1.0) < 1e-11);
    assert_true(rng_exp_minus(601.0) == 0.0 && rng_minus_log(1.0) == 0.0);
}

static void agenda_is_in_order(void **state)
{
    struct agenda_event room[300];
    struct agenda agenda = {.event = room, .max = 300};
    struct rng rng;
    (void)state;
    rng_seed(&rng, 1, 0);
    for (uint32_t i = 0; i < 300; i++)
        agenda_put(&agenda, rng_below(&rng, 40), 0, i);
    struct agenda_event last = agenda_take(&agenda);
    while (agenda.n) {
        struct agenda_event event = agenda_take(&agenda);
        assert_true(event.ts_ns > last.ts_ns || (event.ts_ns == last.ts_ns && event.arg > last.arg));
        last = event;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(price_then_time, setup, teardown),
        cmocka_unit_test_setup_teardown(remainder_rests_or_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(hidden_orders, setup, teardown),
        cmocka_unit_test_setup_teardown(hidden_orders_displace_the_worst, setup, teardown),
        cmocka_unit_test_setup_teardown(discretion_gives_half_a_tick, setup, teardown),
        cmocka_unit_test_setup_teardown(cancels, setup, teardown),
        cmocka_unit_test_setup_teardown(partial_cancel_keeps_time_and_replace_loses_it, setup, teardown),
        cmocka_unit_test_setup_teardown(marketable_replace_trades, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals_publish_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(auction_takes_the_largest_volume, setup, teardown),
        cmocka_unit_test_setup_teardown(auction_without_interest, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_trades_were_made, setup, teardown),
        cmocka_unit_test_setup_teardown(random_orders_never_cross, setup, teardown),
        cmocka_unit_test(random_numbers),
        cmocka_unit_test(agenda_is_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
