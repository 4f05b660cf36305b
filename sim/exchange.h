/* The simulated exchange: limit order books with price-time priority whose every change is published as
 * ITCH 5.0.
 *
 * Orders: limit (rests), IOC and market (never rest), hidden (rests, is never shown: its executions are P),
 * shown orders with discretion (they give the taker half a tick of improvement: their executions are C,
 * printable Y). Priority: price, then shown before hidden, then time. A replaced order loses its time.
 * Invariant: while a symbol trades continuously, no two resting orders, shown or hidden, could trade with
 * each other. During a halt orders rest without matching and the book may cross; the auction uncrosses it.
 *
 * Prices are unsigned, in 1e-4 USD, on the regular grid: 0.0001 below 1 USD, 0.01 from there (Rule 612).
 * Time is the caller's: exchange_at() before each event; all messages of an event share its timestamp.
 * All memory is allocated by exchange_create. One thread. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <stdint.h>

#include "../net/itch.h"

enum exchange_side { EXCHANGE_BUY = 0, EXCHANGE_SELL = 1 };

enum {
    EXCHANGE_LEVEL_MAX = 128,        /* shown price levels per symbol and side */
    EXCHANGE_ORDER_MAX = 512,        /* shown orders per symbol and side */
    EXCHANGE_HIDDEN_MAX = 16,        /* hidden levels per symbol and side */
    EXCHANGE_HIDDEN_ORDER_MAX = 32,  /* hidden orders per symbol and side */
    EXCHANGE_PRICE_MAX = 1999999900, /* 1e-4 USD, one cent below the highest legal price */
};

enum exchange_flags {
    EXCHANGE_IOC = 1,        /* what does not trade at once is dropped */
    EXCHANGE_HIDDEN = 2,     /* not shown */
    EXCHANGE_ATTRIBUTED = 4, /* added with a participant's name (F) */
    EXCHANGE_DISCRETION = 8,
};

/* One price. Orders are chained by index, oldest first. */
struct exchange_level {
    uint64_t qty;
    uint32_t price, n_order;
    uint32_t head, tail;
};

struct exchange_order {
    uint64_t ref;
    uint32_t price, qty;
    uint32_t prev, next; /* in the level; 0: none */
    uint32_t slot;       /* in the symbol's list of shown orders */
    uint16_t symbol;
    uint8_t side, flags;
};

struct exchange;

/* One encoded message: called in feed order. msg: len bytes, valid during the call. */
typedef void exchange_sink(void *ctx, uint64_t ts_ns, const uint8_t *msg, uint16_t len);

/* Symbols are indexed from 0; locate_of and stocks name them (8 characters, space padded). NULL: out of
 * memory. */
struct exchange *exchange_create(uint32_t n_symbol, const uint16_t *locates, const char (*stocks)[8],
                                 uint64_t seed, exchange_sink *sink, void *ctx);
void exchange_free(struct exchange *exchange);

/* Time of the next event, ns since midnight Eastern. */
void exchange_at(struct exchange *exchange, uint64_t ts_ns);

/* A buy or sell order. price 0: market (needs EXCHANGE_IOC). Trades what it can, then rests what is left
 * unless EXCHANGE_IOC. An order that finds no room in the book, or no grid price (hidden: half a step is
 * allowed), or a hidden one while matching is off, is refused as a whole and nothing is published: returns
 * -1; else the shares traded. A hidden order without room displaces the worst one. */
int64_t exchange_order(struct exchange *exchange, uint32_t symbol, enum exchange_side side, uint32_t price,
                       uint32_t qty, unsigned flags);

/* order: index of a shown order (exchange_shown, exchange_level.head). qty at or above what is left: delete.
 */
void exchange_cancel(struct exchange *exchange, uint32_t order, uint32_t qty);

/* New price and size, new reference, end of the queue. A replace that would trade is a delete and a new
 * order, as the exchange publishes it. 0, or -1 when refused (as exchange_order): the order stays. */
int exchange_replace(struct exchange *exchange, uint32_t order, uint32_t price, uint32_t qty);

/* Continuous matching on or off (publishes nothing by itself); off at first. Off drops the hidden orders. */
void exchange_set_matching(struct exchange *exchange, uint32_t symbol, int on);

/* What an auction would do now: book plus undisclosed market orders of buy_qty and sell_qty shares.
 * The price maximises the volume, then minimises the imbalance, then is nearest to reference. */
struct exchange_cross {
    uint64_t paired, imbalance;
    uint32_t price; /* 0: no cross possible */
    char direction; /* of the imbalance: B, S, N; O without any interest on a side */
};
void exchange_cross_preview(const struct exchange *exchange, uint32_t symbol, uint64_t buy_qty,
                            uint64_t sell_qty, uint32_t reference, struct exchange_cross *out);
/* Holds the auction: C (printable N) for every shown order it fills, then Q of cross_type O, C or H. */
void exchange_auction(struct exchange *exchange, uint32_t symbol, uint64_t buy_qty, uint64_t sell_qty,
                      uint32_t reference, char cross_type, struct exchange_cross *out);

/* Breaks one recent execution (B). 0: there was none. */
int exchange_break_trade(struct exchange *exchange);

/* Publishes a message that is not about orders: fill in type and member; locate (of symbol, or 0 when symbol
 * is negative), stock where the type has one at offset 11, and the time are set here. */
void exchange_publish(struct exchange *exchange, int symbol, struct itch_msg *msg);

/* Views; pointers live until the next call that changes the book. */
uint16_t exchange_locate(const struct exchange *exchange, uint32_t symbol);
const char *exchange_stock(const struct exchange *exchange, uint32_t symbol);
/* Shown levels, worst first: the best is [*n - 1]. */
const struct exchange_level *exchange_levels(const struct exchange *exchange, uint32_t symbol,
                                             enum exchange_side side, uint32_t *n);
/* Best shown price, 0: none. */
uint32_t exchange_best(const struct exchange *exchange, uint32_t symbol, enum exchange_side side);
/* Shown orders of a side, in no order: for drawing one at random. */
const uint32_t *exchange_shown(const struct exchange *exchange, uint32_t symbol, enum exchange_side side,
                               uint32_t *n);
uint32_t exchange_n_hidden(const struct exchange *exchange, uint32_t symbol, enum exchange_side side);
const struct exchange_order *exchange_get(const struct exchange *exchange, uint32_t order);
uint64_t exchange_n_messages(const struct exchange *exchange);
const uint64_t *exchange_by_type(const struct exchange *exchange); /* 256 counts */

/* Grid step at a price. */
static inline uint32_t exchange_tick(uint32_t price)
{
    return price < 10000 ? 1 : 100;
}

#endif
