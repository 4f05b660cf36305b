#include "exchange.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"

enum { N_RECENT = 64, N_MPID = 8 };

struct ladder { /* levels of one side, worst first: work happens at the end */
    struct exchange_level *level;
    uint32_t n, max;
};

struct symbol {
    struct ladder shown[2], hidden[2];
    uint32_t *list[2]; /* shown orders of a side */
    uint32_t n_list[2], n_hidden[2];
    uint16_t locate;
    char stock[8];
    int matching;
};

struct exchange {
    struct symbol *symbol;
    struct exchange_order *order; /* [0] is no order */
    struct exchange_level *levels;
    uint32_t *lists;
    exchange_sink *sink;
    void *ctx;
    struct rng rng;
    uint64_t ts_ns, next_ref, next_match;
    uint64_t recent_match[N_RECENT]; /* executions that may be broken; 0: none */
    uint64_t by_type[256], n_messages;
    uint32_t n_symbol, n_order, used, free_head;
    uint32_t n_recent;
    uint16_t tracking;
};

static const char mpids[N_MPID][4] = {"KLMA", "KLMB", "SIMX", "SIMY", "BRKR", "FLOW", "QUOT", "TAPE"};

struct exchange *exchange_create(uint32_t n_symbol, const uint16_t *locates, const char (*stocks)[8],
                                 uint64_t seed, exchange_sink *sink, void *ctx)
{
    const uint32_t side_levels = EXCHANGE_LEVEL_MAX + EXCHANGE_HIDDEN_MAX;
    struct exchange *ex = calloc(1, sizeof *ex);
    if (!ex)
        return NULL;
    ex->n_symbol = n_symbol;
    ex->n_order = n_symbol * 2 * (EXCHANGE_ORDER_MAX + EXCHANGE_HIDDEN_ORDER_MAX) + 1;
    ex->symbol = calloc(n_symbol, sizeof *ex->symbol);
    ex->order = malloc(ex->n_order * sizeof *ex->order);
    ex->levels = malloc((size_t)n_symbol * 2 * side_levels * sizeof *ex->levels);
    ex->lists = malloc((size_t)n_symbol * 2 * EXCHANGE_ORDER_MAX * sizeof *ex->lists);
    if (!ex->symbol || !ex->order || !ex->levels || !ex->lists) {
        exchange_free(ex);
        return NULL;
    }
    ex->sink = sink;
    ex->ctx = ctx;
    ex->used = 1;
    rng_seed(&ex->rng, seed, 1);
    /* Beyond 32 bits from the first order on: nobody gets away with a short reference. */
    ex->next_ref = 5000000000u + rng_below(&ex->rng, 1000000000u);
    ex->next_match = 20000 + rng_below(&ex->rng, 1000);
    for (uint32_t i = 0; i < n_symbol; i++) {
        struct symbol *sym = &ex->symbol[i];
        sym->locate = locates[i];
        memcpy(sym->stock, stocks[i], 8);
        for (uint32_t side = 0; side < 2; side++) {
            struct exchange_level *level = ex->levels + (size_t)(2 * i + side) * side_levels;
            sym->shown[side] = (struct ladder){level, 0, EXCHANGE_LEVEL_MAX};
            sym->hidden[side] = (struct ladder){level + EXCHANGE_LEVEL_MAX, 0, EXCHANGE_HIDDEN_MAX};
            sym->list[side] = ex->lists + (size_t)(2 * i + side) * EXCHANGE_ORDER_MAX;
        }
    }
    return ex;
}

void exchange_free(struct exchange *ex)
{
    if (!ex)
        return;
    free(ex->symbol);
    free(ex->order);
    free(ex->levels);
    free(ex->lists);
    free(ex);
}

void exchange_at(struct exchange *ex, uint64_t ts_ns)
{
    assert(ts_ns >= ex->ts_ns);
    ex->ts_ns = ts_ns;
}

/* -- messages ---------------------------------------------------------------------------------- */

static void send(struct exchange *ex, struct itch_msg *msg, uint16_t locate, uint16_t tracking)
{
    uint8_t buf[ITCH_MESSAGE_BYTES_MAX];
    msg->locate = locate;
    msg->tracking = tracking;
    msg->timestamp_ns = ex->ts_ns;
    int len = itch_encode(msg, buf, sizeof buf);
    assert(len > 0);
    ex->by_type[msg->type]++;
    ex->n_messages++;
    ex->sink(ex->ctx, ex->ts_ns, buf, (uint16_t)len);
}

/* Executions carry a tracking number, as on the real feed; it is no sequence number there either. */
static uint16_t next_tracking(struct exchange *ex)
{
    ex->tracking = (uint16_t)(ex->tracking + 2);
    return ex->tracking ? ex->tracking : (ex->tracking = 2);
}

static uint64_t next_match(struct exchange *ex, int breakable)
{
    uint64_t match = ex->next_match++;
    if (breakable)
        ex->recent_match[ex->n_recent++ % N_RECENT] = match;
    return match;
}

static void send_add(struct exchange *ex, const struct exchange_order *o)
{
    const struct symbol *sym = &ex->symbol[o->symbol];
    struct itch_msg msg;
    struct itch_add_order_mpid *add = &msg.add_order_mpid; /* begins like add_order */
    struct itch_add_order plain = {.order_reference_number = o->ref,
                                   .buy_sell_indicator = o->side == EXCHANGE_BUY ? 'B' : 'S',
                                   .shares = o->qty,
                                   .price = o->price};
    memcpy(plain.stock, sym->stock, 8);
    if (o->flags & EXCHANGE_ATTRIBUTED) {
        msg.type = 'F';
        add->order_reference_number = plain.order_reference_number;
        add->buy_sell_indicator = plain.buy_sell_indicator;
        add->shares = plain.shares;
        add->price = plain.price;
        memcpy(add->stock, plain.stock, 8);
        memcpy(add->attribution, mpids[o->ref % N_MPID], 4);
    } else {
        msg.type = 'A';
        msg.add_order = plain;
    }
    send(ex, &msg, sym->locate, 0);
}

static void send_delete(struct exchange *ex, const struct exchange_order *o)
{
    struct itch_msg msg = {.type = 'D', .order_delete = {.order_reference_number = o->ref}};
    send(ex, &msg, ex->symbol[o->symbol].locate, 0);
}

static void send_executed(struct exchange *ex, const struct exchange_order *o, uint32_t qty)
{
    struct itch_msg msg = {.type = 'E',
                           .order_executed = {.order_reference_number = o->ref,
                                              .executed_shares = qty,
                                              .match_number = next_match(ex, 1)}};
    send(ex, &msg, ex->symbol[o->symbol].locate, next_tracking(ex));
}

static void send_executed_at(struct exchange *ex, const struct exchange_order *o, uint32_t qty,
                             uint32_t price, char printable)
{
    struct itch_msg msg = {.type = 'C',
                           .order_executed_with_price = {.order_reference_number = o->ref,
                                                         .executed_shares = qty,
                                                         .match_number = next_match(ex, printable == 'Y'),
                                                         .printable = (uint8_t)printable,
                                                         .execution_price = price}};
    send(ex, &msg, ex->symbol[o->symbol].locate, next_tracking(ex));
}

/* A hidden execution: reference 0 and side B whatever happened, as since 2010 and 2014. */
static void send_trade(struct exchange *ex, const struct exchange_order *o, uint32_t qty)
{
    const struct symbol *sym = &ex->symbol[o->symbol];
    struct itch_msg msg = {.type = 'P',
                           .trade = {.order_reference_number = 0,
                                     .buy_sell_indicator = 'B',
                                     .shares = qty,
                                     .price = o->price,
                                     .match_number = next_match(ex, 1)}};
    memcpy(msg.trade.stock, sym->stock, 8);
    send(ex, &msg, sym->locate, next_tracking(ex));
}

void exchange_publish(struct exchange *ex, int symbol, struct itch_msg *msg)
{
    uint16_t locate = 0;
    if (symbol >= 0) {
        const char *stock = ex->symbol[symbol].stock;
        locate = ex->symbol[symbol].locate;
        switch (msg->type) {
        case 'R':
            memcpy(msg->stock_directory.stock, stock, 8);
            break;
        case 'H':
            memcpy(msg->stock_trading_action.stock, stock, 8);
            break;
        case 'Y':
            memcpy(msg->reg_sho_restriction.stock, stock, 8);
            break;
        case 'L':
            memcpy(msg->market_participant_position.stock, stock, 8);
            break;
        case 'J':
            memcpy(msg->luld_auction_collar.stock, stock, 8);
            break;
        case 'h':
            memcpy(msg->operational_halt.stock, stock, 8);
            break;
        case 'I':
            memcpy(msg->net_order_imbalance.stock, stock, 8);
            break;
        default:
            assert(!"message without a stock, or one the exchange makes itself");
        }
    }
    send(ex, msg, locate, 0);
}

int exchange_break_trade(struct exchange *ex)
{
    uint32_t slot = (uint32_t)rng_below(&ex->rng, N_RECENT);
    uint64_t match = ex->recent_match[slot];
    if (!match)
        return 0;
    ex->recent_match[slot] = 0;
    struct itch_msg msg = {.type = 'B', .broken_trade = {.match_number = match}};
    send(ex, &msg, 0, next_tracking(ex));
    return 1;
}

/* -- book -------------------------------------------------------------------------------------- */

/* Greater is better for the side that rests. */
static uint32_t rank(unsigned side, uint32_t price)
{
    return side == EXCHANGE_BUY ? price : ~price;
}

/* Index of the level, or where it has to be inserted (*found 0). */
static uint32_t ladder_find(const struct ladder *ladder, unsigned side, uint32_t price, int *found)
{
    uint32_t key = rank(side, price), i = ladder->n;
    while (i > 0 && rank(side, ladder->level[i - 1].price) > key)
        i--;
    *found = i > 0 && ladder->level[i - 1].price == price;
    return *found ? i - 1 : i;
}

static int ladder_has_room(const struct ladder *ladder, unsigned side, uint32_t price)
{
    int found;
    ladder_find(ladder, side, price, &found);
    return found || ladder->n < ladder->max;
}

static struct ladder *ladder_of(struct exchange *ex, const struct exchange_order *o)
{
    struct symbol *sym = &ex->symbol[o->symbol];
    return o->flags & EXCHANGE_HIDDEN ? &sym->hidden[o->side] : &sym->shown[o->side];
}

static void book_insert(struct exchange *ex, uint32_t index)
{
    struct exchange_order *o = &ex->order[index];
    struct symbol *sym = &ex->symbol[o->symbol];
    struct ladder *ladder = ladder_of(ex, o);
    int found;
    uint32_t i = ladder_find(ladder, o->side, o->price, &found);
    struct exchange_level *level = &ladder->level[i];
    if (!found) {
        assert(ladder->n < ladder->max);
        memmove(level + 1, level, (ladder->n - i) * sizeof *level);
        ladder->n++;
        *level = (struct exchange_level){.price = o->price};
    }
    o->prev = level->tail;
    o->next = 0;
    if (level->tail)
        ex->order[level->tail].next = index;
    else
        level->head = index;
    level->tail = index;
    level->qty += o->qty;
    level->n_order++;
    if (o->flags & EXCHANGE_HIDDEN) {
        sym->n_hidden[o->side]++;
    } else {
        assert(sym->n_list[o->side] < EXCHANGE_ORDER_MAX);
        o->slot = sym->n_list[o->side]++;
        sym->list[o->side][o->slot] = index;
    }
}

static void book_take(struct exchange *ex, uint32_t index, uint32_t qty);

static void book_remove(struct exchange *ex, uint32_t index)
{
    book_take(ex, index, ex->order[index].qty);
}

static uint32_t order_new(struct exchange *ex, uint32_t symbol, unsigned side, uint32_t price, uint32_t qty,
                          unsigned flags)
{
    uint32_t index = ex->free_head;
    if (index)
        ex->free_head = ex->order[index].next;
    else
        index = ex->used++;
    assert(index < ex->n_order);
    ex->next_ref += 1 + rng_below(&ex->rng, 16);
    ex->order[index] = (struct exchange_order){.ref = ex->next_ref,
                                               .price = price,
                                               .qty = qty,
                                               .symbol = (uint16_t)symbol,
                                               .side = (uint8_t)side,
                                               .flags = (uint8_t)flags};
    return index;
}

/* Takes qty off an order; at zero it leaves the book. */
static void book_take(struct exchange *ex, uint32_t index, uint32_t qty)
{
    struct exchange_order *o = &ex->order[index];
    struct symbol *sym = &ex->symbol[o->symbol];
    struct ladder *ladder = ladder_of(ex, o);
    int found;
    uint32_t i = ladder_find(ladder, o->side, o->price, &found);
    struct exchange_level *level = &ladder->level[i];
    assert(found && qty > 0 && qty <= o->qty);
    o->qty -= qty;
    level->qty -= qty;
    if (o->qty > 0)
        return;
    if (o->prev)
        ex->order[o->prev].next = o->next;
    else
        level->head = o->next;
    if (o->next)
        ex->order[o->next].prev = o->prev;
    else
        level->tail = o->prev;
    if (--level->n_order == 0) {
        memmove(level, level + 1, (ladder->n - i - 1) * sizeof *level);
        ladder->n--;
    }
    if (o->flags & EXCHANGE_HIDDEN) {
        sym->n_hidden[o->side]--;
    } else {
        uint32_t last = sym->list[o->side][--sym->n_list[o->side]];
        sym->list[o->side][o->slot] = last;
        ex->order[last].slot = o->slot;
    }
    o->next = ex->free_head;
    ex->free_head = index;
}

/* -- trading ----------------------------------------------------------------------------------- */

/* The level an order of side would trade with first; NULL: none at limit or better. */
static struct exchange_level *first_level(struct symbol *sym, unsigned side, uint32_t limit)
{
    unsigned other = side ^ 1;
    struct ladder *shown = &sym->shown[other], *hidden = &sym->hidden[other];
    struct exchange_level *best = shown->n ? &shown->level[shown->n - 1] : NULL;
    if (hidden->n) {
        struct exchange_level *h = &hidden->level[hidden->n - 1];
        if (!best || rank(other, h->price) > rank(other, best->price))
            best = h;
    }
    if (!best || (limit && rank(other, best->price) < rank(other, limit)))
        return NULL;
    return best;
}

static uint32_t trade(struct exchange *ex, struct symbol *sym, unsigned side, uint32_t limit, uint32_t qty)
{
    uint32_t left = qty;
    struct exchange_level *level;
    while (left && (level = first_level(sym, side, limit))) {
        uint32_t index = level->head;
        struct exchange_order *o = &ex->order[index];
        uint32_t fill = o->qty < left ? o->qty : left, half = exchange_tick(o->price) / 2;
        if (o->flags & EXCHANGE_HIDDEN)
            send_trade(ex, o, fill);
        else if (o->flags & EXCHANGE_DISCRETION && half)
            send_executed_at(ex, o, fill, side == EXCHANGE_BUY ? o->price - half : o->price + half, 'Y');
        else
            send_executed(ex, o, fill);
        book_take(ex, index, fill);
        left -= fill;
    }
    return qty - left;
}

static int price_ok(uint32_t price, unsigned flags)
{
    uint32_t grid = exchange_tick(price);
    if (flags & EXCHANGE_HIDDEN && grid > 1)
        grid /= 2; /* midpoints */
    return price > 0 && price <= EXCHANGE_PRICE_MAX && price % grid == 0;
}

int64_t exchange_order(struct exchange *ex, uint32_t symbol, enum exchange_side side, uint32_t price,
                       uint32_t qty, unsigned flags)
{
    struct symbol *sym = &ex->symbol[symbol];
    assert(qty > 0 && (price || flags & EXCHANGE_IOC));
    if (price && !price_ok(price, flags))
        return -1;
    if (!(flags & EXCHANGE_IOC)) {
        if (flags & EXCHANGE_HIDDEN) {
            struct ladder *hidden = &sym->hidden[side];
            if (!sym->matching)
                return -1;
            while (sym->n_hidden[side] >= EXCHANGE_HIDDEN_ORDER_MAX || !ladder_has_room(hidden, side, price))
                book_remove(ex, hidden->level[0].head);
        } else if (sym->n_list[side] >= EXCHANGE_ORDER_MAX ||
                   !ladder_has_room(&sym->shown[side], side, price)) {
            return -1;
        }
    }
    uint32_t traded = sym->matching ? trade(ex, sym, side, price, qty) : 0;
    if (traded < qty && !(flags & EXCHANGE_IOC)) {
        uint32_t index = order_new(ex, symbol, side, price, qty - traded, flags);
        book_insert(ex, index);
        if (!(flags & EXCHANGE_HIDDEN))
            send_add(ex, &ex->order[index]);
    }
    return traded;
}

void exchange_cancel(struct exchange *ex, uint32_t order, uint32_t qty)
{
    struct exchange_order *o = &ex->order[order];
    if (qty < o->qty) {
        struct itch_msg msg = {.type = 'X',
                               .order_cancel = {.order_reference_number = o->ref, .cancelled_shares = qty}};
        send(ex, &msg, ex->symbol[o->symbol].locate, 0);
        book_take(ex, order, qty);
    } else {
        send_delete(ex, o);
        book_remove(ex, order);
    }
}

int exchange_replace(struct exchange *ex, uint32_t order, uint32_t price, uint32_t qty)
{
    struct exchange_order old = ex->order[order];
    struct symbol *sym = &ex->symbol[old.symbol];
    assert(qty > 0 && !(old.flags & EXCHANGE_HIDDEN));
    if (!price_ok(price, 0) || !ladder_has_room(&sym->shown[old.side], old.side, price))
        return -1;
    if (sym->matching && first_level(sym, old.side, price)) {
        exchange_cancel(ex, order, old.qty);
        exchange_order(ex, old.symbol, old.side, price, qty, old.flags);
        return 0;
    }
    book_remove(ex, order);
    uint32_t index = order_new(ex, old.symbol, old.side, price, qty, old.flags);
    book_insert(ex, index);
    struct itch_msg msg = {.type = 'U',
                           .order_replace = {.original_order_reference_number = old.ref,
                                             .new_order_reference_number = ex->order[index].ref,
                                             .shares = qty,
                                             .price = price}};
    send(ex, &msg, sym->locate, 0);
    return 0;
}

void exchange_set_matching(struct exchange *ex, uint32_t symbol, int on)
{
    struct symbol *sym = &ex->symbol[symbol];
    sym->matching = on;
    /* Hidden orders do not outlive a halt: shown ones may come to rest across them. Nobody ever saw them. */
    for (unsigned side = 0; side < 2 && !on; side++)
        while (sym->hidden[side].n)
            book_remove(ex, sym->hidden[side].level[sym->hidden[side].n - 1].head);
}

/* -- auctions ---------------------------------------------------------------------------------- */

/* Shares of a side that would trade at price. */
static uint64_t interest(const struct symbol *sym, unsigned side, uint32_t price, uint64_t market_qty)
{
    const struct ladder *ladder = &sym->shown[side];
    uint64_t qty = market_qty;
    for (uint32_t i = ladder->n; i > 0 && rank(side, ladder->level[i - 1].price) >= rank(side, price); i--)
        qty += ladder->level[i - 1].qty;
    return qty;
}

void exchange_cross_preview(const struct exchange *ex, uint32_t symbol, uint64_t buy_qty, uint64_t sell_qty,
                            uint32_t reference, struct exchange_cross *out)
{
    const struct symbol *sym = &ex->symbol[symbol];
    uint64_t best_distance = UINT64_MAX;
    *out = (struct exchange_cross){.direction = 'O', .imbalance = UINT64_MAX};
    for (unsigned set = 0; set < 3; set++) { /* candidates: the levels of both sides, and the reference */
        uint32_t n = set < 2 ? sym->shown[set].n : 1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t price = set < 2 ? sym->shown[set].level[i].price : reference;
            uint64_t buy = interest(sym, EXCHANGE_BUY, price, buy_qty);
            uint64_t sell = interest(sym, EXCHANGE_SELL, price, sell_qty);
            uint64_t paired = buy < sell ? buy : sell, imbalance = buy < sell ? sell - buy : buy - sell;
            uint64_t distance = price < reference ? reference - price : price - reference;
            if (!paired || paired < out->paired ||
                (paired == out->paired &&
                 (imbalance > out->imbalance || (imbalance == out->imbalance && distance >= best_distance))))
                continue;
            *out = (struct exchange_cross){paired, imbalance, price,
                                           buy > sell   ? 'B'
                                           : buy < sell ? 'S'
                                                        : 'N'};
            best_distance = distance;
        }
    }
    if (!out->price)
        out->imbalance = 0;
}

void exchange_auction(struct exchange *ex, uint32_t symbol, uint64_t buy_qty, uint64_t sell_qty,
                      uint32_t reference, char cross_type, struct exchange_cross *out)
{
    struct symbol *sym = &ex->symbol[symbol];
    const uint64_t market_qty[2] = {buy_qty, sell_qty};
    exchange_cross_preview(ex, symbol, buy_qty, sell_qty, reference, out);
    for (unsigned side = 0; side < 2; side++) {
        uint64_t left = out->paired > market_qty[side] ? out->paired - market_qty[side] : 0;
        while (left) {
            const struct ladder *ladder = &sym->shown[side];
            assert(ladder->n);
            uint32_t index = ladder->level[ladder->n - 1].head;
            struct exchange_order *o = &ex->order[index];
            uint32_t fill = o->qty < left ? o->qty : (uint32_t)left;
            send_executed_at(ex, o, fill, out->price, 'N');
            book_take(ex, index, fill);
            left -= fill;
        }
    }
    struct itch_msg msg = {.type = 'Q',
                           .cross_trade = {.shares = out->paired,
                                           .cross_price = out->price,
                                           .match_number = next_match(ex, 0),
                                           .cross_type = (uint8_t)cross_type}};
    memcpy(msg.cross_trade.stock, sym->stock, 8);
    send(ex, &msg, sym->locate, next_tracking(ex));
}

/* -- views ------------------------------------------------------------------------------------- */

uint16_t exchange_locate(const struct exchange *ex, uint32_t symbol)
{
    return ex->symbol[symbol].locate;
}

const char *exchange_stock(const struct exchange *ex, uint32_t symbol)
{
    return ex->symbol[symbol].stock;
}

const struct exchange_level *exchange_levels(const struct exchange *ex, uint32_t symbol,
                                             enum exchange_side side, uint32_t *n)
{
    const struct ladder *ladder = &ex->symbol[symbol].shown[side];
    *n = ladder->n;
    return ladder->level;
}

uint32_t exchange_best(const struct exchange *ex, uint32_t symbol, enum exchange_side side)
{
    const struct ladder *ladder = &ex->symbol[symbol].shown[side];
    return ladder->n ? ladder->level[ladder->n - 1].price : 0;
}

const uint32_t *exchange_shown(const struct exchange *ex, uint32_t symbol, enum exchange_side side,
                               uint32_t *n)
{
    *n = ex->symbol[symbol].n_list[side];
    return ex->symbol[symbol].list[side];
}

uint32_t exchange_n_hidden(const struct exchange *ex, uint32_t symbol, enum exchange_side side)
{
    return ex->symbol[symbol].n_hidden[side];
}

const struct exchange_order *exchange_get(const struct exchange *ex, uint32_t order)
{
    return &ex->order[order];
}

uint64_t exchange_n_messages(const struct exchange *ex)
{
    return ex->n_messages;
}

const uint64_t *exchange_by_type(const struct exchange *ex)
{
    return ex->by_type;
}
