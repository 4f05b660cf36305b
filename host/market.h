/* The market as the feed tells it: applies decoded ITCH messages to the books, and keeps per locate the symbol,
 * the trading state and whether the book counts as reliable. Where feed messages (net/itch.h) meet the books.
 *
 * Join policy, when a book counts as reliable:
 *   strict   only if every message since the start of the session (system event 'O' was the first message)
 *            has been seen: a gap or a mid-session join makes it unreliable until the next session;
 *   settled  also after settle_ns of feed time, since the join, the last gap or the last doubt, in which nothing
 *            spoke against the book. What speaks against it: an execution (E, C) of an unknown reference, which is by
 *            nature at the best price; a replace of an unknown reference whose new price is at or inside the
 *            BBO; a book locked or crossed while trading; a full order table; an excess quantity.
 *
 * No allocation after market_create. One thread. */
#ifndef MARKET_H
#define MARKET_H

#include <stdint.h>

#include "../net/itch.h"
#include "book.h"

enum market_join { MARKET_JOIN_STRICT = 0, MARKET_JOIN_SETTLED = 1 };

struct market_config {
    enum market_join join;
    uint64_t settle_ns; /* feed time */
    struct book_limits limits;
};

enum market_effect {
    MARKET_BOOK = 1,      /* levels changed: event.change and event.book_op are valid */
    MARKET_TOP = 2,       /* BBO price or quantity changed */
    MARKET_TRADE = 4,     /* event.trade_* are valid */
    MARKET_STATE = 8,     /* trading state changed */
    MARKET_DIRECTORY = 16 /* symbol of the locate became known */
};

/* What one message did. */
struct market_event {
    uint16_t locate;
    uint16_t effects;         /* enum market_effect */
    uint8_t type;             /* ITCH type */
    uint8_t trade_side;       /* of the resting order: enum book_side; 2: unknown (P, Q) */
    uint64_t ts_ns;           /* feed time, since midnight */
    struct book_bbo before;   /* BBO before the message; after: market_bbo() */
    struct book_change change;
    uint32_t trade_price;     /* 1e-4 USD */
    uint64_t trade_qty;
};

struct market_counters {
    uint64_t by_type[256]; /* messages by type byte, known or not */
    uint64_t messages, unknown_messages, short_messages, long_messages;
    uint64_t unreliable_marks; /* times a reliable book became unreliable */
    uint64_t bad_enum;         /* side not B or S and the like: message not applied */
};

struct market;

/* NULL: out of memory. */
struct market *market_create(const struct market_config *config);
void market_free(struct market *market);

/* Applies one message (len bytes, from the type byte). Unknown types and bodies longer than the table are
 * counted and skipped; a shorter body is counted and not applied. *event is always written. */
void market_apply(struct market *market, const uint8_t *msg, uint16_t len, struct market_event *event);

/* Messages were lost: every book is unreliable until the join policy is met again. */
void market_gap(struct market *market);
/* A new session: books, symbols and states are cleared. */
void market_new_session(struct market *market);

/* 1: the book of locate may be used for predictions at feed time ts_ns. */
int market_reliable(const struct market *market, uint16_t locate, uint64_t ts_ns);
/* 1: trading (H state T, no operational halt on Nasdaq, and the market-hours event Q seen or none was). A symbol
 * without any H since the session's start counts as halted; after a mid-session join as trading. */
int market_trading(const struct market *market, uint16_t locate);
/* 8 bytes, space padded; all spaces when unknown. */
const char *market_symbol(const struct market *market, uint16_t locate);
/* Locate of a symbol (space padded, 8 bytes); 0 when unknown. Not for the hot path. */
uint16_t market_locate(const struct market *market, const char *symbol);
const struct book_set *market_books(const struct market *market);
const struct market_counters *market_counters(const struct market *market);

#endif
