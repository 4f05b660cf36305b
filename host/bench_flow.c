#include "bench_flow.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../net/itch.h"
#include "book.h"

enum {
    TICK = 100, /* 1 cent in 1e-4 USD */
    PRICE_FIRST = 100 * 10000,
    PRICE_MIN = 1 * 10000, /* no bid below, no ask below its double: bids stay above 0, the sides apart */
    FRAMED_MAX = 2 + ITCH_MESSAGE_BYTES_MAX,
    CANDIDATES = 12, /* orders looked at to find one near the touch */
};

struct live_order {
    uint64_t ref;
    uint32_t qty, price;
    uint8_t side;
};

struct live_symbol {
    struct live_order *order;
    uint32_t n, cap;
    uint32_t mid;
    char stock[8];
};

struct generator {
    struct bench_flow *flow;
    struct live_symbol *symbol;
    double *cumulative; /* of the symbols' Zipf weights */
    uint32_t n_symbol;
    struct book_set *books;
    uint64_t random, ref, match, ts_ns;
    int failed;
};

static uint64_t random_u64(struct generator *g)
{
    g->random ^= g->random << 13; /* xorshift64, Marsaglia 2003 */
    g->random ^= g->random >> 7;
    g->random ^= g->random << 17;
    return g->random;
}

static double random_unit(struct generator *g)
{
    return (double)(random_u64(g) >> 11) * 0x1p-53;
}

static uint32_t random_below(struct generator *g, uint32_t n)
{
    return (uint32_t)((random_u64(g) >> 32) * n >> 32);
}

static void emit(struct generator *g, struct itch_msg *msg, char type, uint16_t locate)
{
    g->ts_ns += random_below(g, 2000);
    msg->type = (uint8_t)type;
    msg->locate = locate;
    msg->tracking = 0;
    msg->timestamp_ns = g->ts_ns;
    uint8_t *to = g->flow->data + g->flow->size_bytes;
    int bytes = itch_encode(msg, to + 2, ITCH_MESSAGE_BYTES_MAX);
    assert(bytes > 0);
    to[0] = 0;
    to[1] = (uint8_t)bytes;
    g->flow->size_bytes += 2 + (size_t)bytes;
    g->flow->n_message++;
}

static void emit_event(struct generator *g, char code)
{
    struct itch_msg msg = {.system_event.event_code = (uint8_t)code};
    emit(g, &msg, 'S', 0);
}

static void emit_directory(struct generator *g, uint16_t locate)
{
    struct live_symbol *symbol = &g->symbol[locate - 1];
    memset(symbol->stock, ' ', sizeof(symbol->stock));
    uint32_t rest = locate;
    for (int i = 0; i < 4; i++, rest /= 26)
        symbol->stock[3 - i] = (char)('A' + rest % 26);
    struct itch_msg msg = {.stock_directory = {.market_category = 'Q', .round_lot_size = 100}};
    memcpy(msg.stock_directory.stock, symbol->stock, 8);
    emit(g, &msg, 'R', locate);
    struct itch_msg action = {
        .stock_trading_action = {.trading_state = 'T', .reserved = ' ', .reason = "    "}};
    memcpy(action.stock_trading_action.stock, symbol->stock, 8);
    emit(g, &action, 'H', locate);
}

/* Ticks behind the best price of the side; -1: one better. As on a real stream (AAPL, 2019-12-30, 09:35):
 * about a third at the touch, two thirds within 5 levels, nine tenths within 12. */
static int32_t random_depth(struct generator *g)
{
    double u = random_unit(g);
    if (u < 0.06)
        return -1;
    if (u < 0.36)
        return 0;
    if (u < 0.96)
        return 1 + (int32_t)(-5.5 * log(1.0 - (u - 0.36) / 0.60 * 0.999));
    return 30 + (int32_t)(400.0 * random_unit(g));
}

/* A price that neither locks nor crosses, for an order on the given side of the symbol. */
static uint32_t random_price(struct generator *g, uint16_t locate, unsigned side)
{
    struct live_symbol *symbol = &g->symbol[locate - 1];
    struct book_bbo bbo;
    book_bbo(g->books, locate, &bbo);
    if (bbo.bid_qty && bbo.ask_qty)
        symbol->mid = (bbo.bid_price / 2 + bbo.ask_price / 2) / TICK * TICK;
    int32_t away = random_depth(g) * TICK;
    if (side == BOOK_BID) {
        uint32_t best = bbo.bid_qty ? bbo.bid_price : symbol->mid - TICK;
        uint32_t price = best - (uint32_t)away;
        if (bbo.ask_qty && price >= bbo.ask_price)
            price = bbo.ask_price - TICK;
        return price < PRICE_MIN ? PRICE_MIN : price;
    }
    uint32_t best = bbo.ask_qty ? bbo.ask_price : symbol->mid + TICK;
    uint32_t price = best + (uint32_t)away;
    if (bbo.bid_qty && price <= bbo.bid_price)
        price = bbo.bid_price + TICK;
    return price < 2 * PRICE_MIN ? 2 * PRICE_MIN : price;
}

static void add(struct generator *g, uint16_t locate, char type)
{
    struct live_symbol *symbol = &g->symbol[locate - 1];
    unsigned side = random_below(g, 2);
    struct live_order order = {.ref = g->ref += 1 + random_below(g, 4),
                               .qty = (1 + random_below(g, 5)) * 100,
                               .price = random_price(g, locate, side),
                               .side = (uint8_t)side};
    struct book_change change;
    if (symbol->n == symbol->cap) {
        uint32_t cap = symbol->cap ? symbol->cap * 2 : 16;
        struct live_order *grown = realloc(symbol->order, cap * sizeof(*grown));
        if (!grown) {
            g->failed = 1;
            return;
        }
        symbol->order = grown;
        symbol->cap = cap;
    }
    if (book_add(g->books, locate, order.ref, side, order.qty, order.price, &change) != BOOK_OK)
        g->failed = 1;
    symbol->order[symbol->n++] = order;
    struct itch_msg msg = {0};
    struct itch_add_order fields = {.order_reference_number = order.ref,
                                    .buy_sell_indicator = side == BOOK_BID ? 'B' : 'S',
                                    .shares = order.qty,
                                    .price = order.price};
    memcpy(fields.stock, symbol->stock, 8);
    if (type == 'A') {
        msg.add_order = fields;
    } else {
        msg.add_order_mpid = (struct itch_add_order_mpid){.order_reference_number = order.ref,
                                                          .buy_sell_indicator = fields.buy_sell_indicator,
                                                          .shares = order.qty,
                                                          .price = order.price,
                                                          .attribution = "MMKR"};
        memcpy(msg.add_order_mpid.stock, symbol->stock, 8);
    }
    emit(g, &msg, type, locate);
}

/* One of the symbol's orders, most of the time a young one. */
static uint32_t random_order(struct generator *g, const struct live_symbol *symbol)
{
    uint32_t window = symbol->n < 64 || random_below(g, 8) == 0 ? symbol->n : 64;
    return symbol->n - 1 - random_below(g, window);
}

static uint32_t random_order_near_touch(struct generator *g, const struct live_symbol *symbol)
{
    uint32_t best = random_order(g, symbol);
    for (int i = 1; i < CANDIDATES; i++) {
        uint32_t other = random_order(g, symbol);
        const struct live_order *a = &symbol->order[best], *b = &symbol->order[other];
        if (a->side == b->side && (a->side == BOOK_BID ? b->price > a->price : b->price < a->price))
            best = other;
    }
    return best;
}

/* Takes qty off; the order that is used up leaves, and the youngest takes its place in the list. */
static void take(struct generator *g, uint16_t locate, uint32_t index, uint32_t qty)
{
    struct live_symbol *symbol = &g->symbol[locate - 1];
    struct live_order *order = &symbol->order[index];
    struct book_change change;
    if (book_reduce(g->books, locate, order->ref, qty, &change) != BOOK_OK)
        g->failed = 1;
    order->qty -= qty;
    if (order->qty == 0)
        *order = symbol->order[--symbol->n];
}

static void act(struct generator *g, uint16_t locate, char type)
{
    struct live_symbol *symbol = &g->symbol[locate - 1];
    struct itch_msg msg = {0};
    uint32_t index =
        type == 'E' || type == 'C' ? random_order_near_touch(g, symbol) : random_order(g, symbol);
    struct live_order order = symbol->order[index];
    uint32_t qty = random_below(g, 2) ? order.qty : 1 + random_below(g, order.qty);
    switch (type) {
    case 'D':
        msg.order_delete.order_reference_number = order.ref;
        take(g, locate, index, order.qty);
        break;
    case 'E':
        msg.order_executed = (struct itch_order_executed){
            .order_reference_number = order.ref, .executed_shares = qty, .match_number = ++g->match};
        take(g, locate, index, qty);
        break;
    case 'C':
        msg.order_executed_with_price =
            (struct itch_order_executed_with_price){.order_reference_number = order.ref,
                                                    .executed_shares = qty,
                                                    .match_number = ++g->match,
                                                    .printable = 'Y',
                                                    .execution_price = order.price};
        take(g, locate, index, qty);
        break;
    case 'X':
        if (order.qty == 1) { /* nothing to cancel in part */
            act(g, locate, 'D');
            return;
        }
        qty = 1 + random_below(g, order.qty - 1);
        msg.order_cancel =
            (struct itch_order_cancel){.order_reference_number = order.ref, .cancelled_shares = qty};
        take(g, locate, index, qty);
        break;
    default: { /* U */
        struct book_change change;
        struct live_order *replaced = &symbol->order[index];
        replaced->ref = g->ref += 1 + random_below(g, 4);
        replaced->qty = (1 + random_below(g, 5)) * 100;
        replaced->price = random_price(g, locate, order.side);
        msg.order_replace = (struct itch_order_replace){.original_order_reference_number = order.ref,
                                                        .new_order_reference_number = replaced->ref,
                                                        .shares = replaced->qty,
                                                        .price = replaced->price};
        if (book_replace(g->books, locate, order.ref, replaced->ref, replaced->qty, replaced->price,
                         &change) != BOOK_OK)
            g->failed = 1;
        break;
    }
    }
    emit(g, &msg, type, locate);
}

static void inform(struct generator *g, uint16_t locate, char type)
{
    struct live_symbol *symbol = &g->symbol[locate - 1];
    struct itch_msg msg = {0};
    if (type == 'P') {
        msg.trade = (struct itch_trade){
            .buy_sell_indicator = 'B', .shares = 100, .price = symbol->mid, .match_number = ++g->match};
        memcpy(msg.trade.stock, symbol->stock, 8);
    } else if (type == 'I') {
        msg.net_order_imbalance = (struct itch_net_order_imbalance){.paired_shares = 1000,
                                                                    .imbalance_direction = 'B',
                                                                    .cross_type = 'C',
                                                                    .price_variation_indicator = 'L'};
        memcpy(msg.net_order_imbalance.stock, symbol->stock, 8);
    } else {
        msg.retail_price_improvement.interest_flag = 'A';
        memcpy(msg.retail_price_improvement.stock, symbol->stock, 8);
    }
    emit(g, &msg, type, locate);
}

static uint16_t random_locate(struct generator *g)
{
    double u = random_unit(g) * g->cumulative[g->n_symbol - 1];
    uint32_t low = 0, high = g->n_symbol - 1;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (g->cumulative[mid] < u)
            low = mid + 1;
        else
            high = mid;
    }
    return (uint16_t)(low + 1);
}

static void generate_message(struct generator *g)
{
    /* Shares of 1,000 messages. */
    static const struct {
        char type;
        uint16_t share;
    } mix[] = {{'A', 450}, {'D', 430}, {'U', 60}, {'E', 30}, {'X', 7},
               {'F', 7},   {'P', 10},  {'C', 2},  {'I', 3},  {'N', 1}};
    uint32_t pick = random_below(g, 1000), i = 0;
    while (pick >= mix[i].share)
        pick -= mix[i++].share;
    char type = mix[i].type;
    uint16_t locate = random_locate(g);
    if (strchr("DUEXC", type) && g->symbol[locate - 1].n == 0)
        type = 'A';
    if (type == 'A' || type == 'F')
        add(g, locate, type);
    else if (type == 'P' || type == 'I' || type == 'N')
        inform(g, locate, type);
    else
        act(g, locate, type);
}

int bench_flow_generate(uint64_t n_message, uint32_t n_symbol, uint64_t seed, struct bench_flow *flow)
{
    assert(n_symbol > 0 && n_symbol <= 60000 && n_message >= 4ull * n_symbol + 2);
    const uint64_t n_order_max = 1u << 26;
    uint64_t n_order = n_message < n_order_max ? n_message : n_order_max;
    const struct book_limits limits = {.n_order = (uint32_t)(n_order / 4 + 1000),
                                       .n_level = (uint32_t)(n_order / 8 + 1000)};
    struct generator g = {.flow = flow,
                          .symbol = calloc(n_symbol, sizeof(*g.symbol)),
                          .cumulative = malloc(n_symbol * sizeof(*g.cumulative)),
                          .n_symbol = n_symbol,
                          .books = book_create(&limits),
                          .random = seed ? seed : 1,
                          .ts_ns = 14400000000000ull}; /* 04:00 */
    *flow = (struct bench_flow){.data = calloc(1, n_message * FRAMED_MAX + BENCH_FLOW_PAD_BYTES)};
    int status = -1;
    if (g.symbol && g.cumulative && g.books && flow->data) {
        double sum = 0;
        emit_event(&g, 'O');
        for (uint32_t i = 0; i < n_symbol; i++) {
            g.cumulative[i] = sum += 1.0 / (i + 1);
            g.symbol[i].mid = PRICE_FIRST + random_below(&g, 10000) * TICK / 10;
            g.symbol[i].mid -= g.symbol[i].mid % TICK;
            emit_directory(&g, (uint16_t)(i + 1));
        }
        emit_event(&g, 'Q');
        while (flow->n_message < n_message && !g.failed)
            generate_message(&g);
        status = g.failed ? -1 : 0;
    }
    for (uint32_t i = 0; g.symbol && i < n_symbol; i++)
        free(g.symbol[i].order);
    free(g.symbol);
    free(g.cumulative);
    book_free(g.books);
    if (status != 0) {
        free(flow->data);
        flow->data = NULL;
    }
    return status;
}
