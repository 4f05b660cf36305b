/* The market as the feed tells it: applies decoded ITCH messages to the books, and keeps per locate the
 * symbol, the trading state and whether the book counts as reliable. Where feed messages (net/itch.h) meet
 * the books.
 *
 * Join policy, when a book counts as reliable:
 * - strict: only if every message since the start of the session has been seen (the first one was system
 * event 'O') and nothing has proved the book wrong. A gap or a mid-session join makes every book, a proof
 * against one book makes that book unreliable until the next session.
 * - settled: also after settle_ns of feed time, since the join, the last gap or the last doubt, in which
 * nothing spoke against the book. With a start from 'O' and no gap there is nothing to wait for.
 *
 * What speaks against a book: an execution (E, C) of an unknown reference, which is by nature at the best
 * price; a replace of an unknown reference whose new price is at or inside the BBO; an excess quantity, a
 * duplicate reference, a zero quantity, an order of another locate; a message that cannot be applied (cut
 * short, side neither B nor S); an add whose stock is not the locate's, a directory that gives the locate to
 * another stock; a full order table or level pool. In strict every unknown reference is a proof; in settled
 * those of X and D are not: a joined book has old orders to miss. A book that is locked or crossed while
 * trading is unreliable as long as it is so, and in settled a doubt.
 *
 * Trading, decided from three things:
 * - hours: the last of the system events: Q opens, all others (O, S, M, E, C) close. Without any, the session
 * was joined in the middle: open.
 * - state: the last H of the locate: T is trading, H, P, Q and any other letter is not. Without any H: a
 * session seen from 'O' has not allowed the symbol to trade (specification, section 1.2.2: absent from the
 * spin is halted), not trading; after a mid-session join, trading.
 * - halt: the last h of the locate with market code Q: T lifts, H and any other letter halts. Other markets'
 * codes do not matter here.
 *
 * So a full day is silent until 'Q' (09:30) and again from 'M' (16:00); a file that starts S 'O', R, H 'T', S
 * 'Q' trades from that 'Q' on; a mid-session capture trades from its first message. An 'O' that is not the
 * first message closes, but clears nothing. A gap changes no state: what was not trading stays so until a
 * message says otherwise. W (market-wide breaker) changes nothing by itself: the halt comes as one H per
 * symbol. J is information only.
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
    MARKET_BOOK = 1,  /* levels changed: event.change is valid, event.type says by what (A F E C X D U) */
    MARKET_TOP = 2,   /* BBO price or quantity changed */
    MARKET_TRADE = 4, /* event.trade_* are valid: E, printable C, P, Q, with a quantity above 0 */
    MARKET_STATE =
        8, /* market_trading changed: of event.locate, or after a system event (S) perhaps of all */
    MARKET_DIRECTORY = 16 /* symbol of the locate became known, or another one (R, A, F) */
};

/* What one message did. */
struct market_event {
    uint16_t locate;    /* 0 for S, V, W, whatever they carry, and for messages without a whole header */
    uint16_t effects;   /* enum market_effect */
    uint8_t type;       /* ITCH type; 0: empty message */
    uint8_t trade_side; /* of the resting order: enum book_side; 2: unknown (P, Q, C of an unknown order) */
    uint64_t ts_ns;     /* feed time, since midnight; of the last message when this one has no whole header */
    struct book_bbo before; /* BBO before the message; after: market_bbo() */
    struct book_change change;
    uint32_t trade_price; /* 1e-4 USD */
    uint64_t trade_qty;
};

struct market_counters {
    uint64_t by_type[256]; /* messages by type byte, known or not */
    uint64_t messages, unknown_messages, short_messages, long_messages;
    uint64_t
        unreliable_marks; /* times a reliable book, or with a gap all of them (counts 1), became unreliable */
    uint64_t bad_enum;    /* letter out of its enumeration. Side (A, F): message not applied; event code (S):
                             no effect; trading state (H), halt action (h): not trading; printable (C): book yes,
                             trade no */
    uint64_t symbol_mismatch; /* A or F whose stock is not the locate's: applied by locate */
};

struct market;

/* NULL: out of memory, or limits out of book_create's range. */
struct market *market_create(const struct market_config *config);
void market_free(struct market *market);

/* Applies one message (len bytes, from the type byte). Unknown types are counted and skipped; a body longer
 * than the table is counted and applied without its unknown end; a shorter one is counted and not applied.
 * *event is always written, change and trade_* only with their effect. */
void market_apply(struct market *market, const uint8_t *msg, uint16_t len, struct market_event *event);

/* Hint: msg will be applied soon. Brings its order slot and its locate towards the cache; changes nothing.
 * For the messages behind the next one in the same datagram. Measured (killline bench feed): 73 to 63 ns per
 * message with 215,000 live orders of 8,000 symbols; no gain, and 4 ns for the hint, with 22,000 of 50, which
 * stay in the cache. */
void market_prefetch(const struct market *market, const uint8_t *msg, uint16_t len);

/* Messages were lost: every book is unreliable until the join policy is met again. */
void market_gap(struct market *market);
/* A new session: books, symbols and states are cleared; counters stay. */
void market_new_session(struct market *market);

/* 1: the book of locate may be used for predictions at feed time ts_ns. */
int market_reliable(const struct market *market, uint16_t locate, uint64_t ts_ns);
/* 1: trading, by the rule above. */
int market_trading(const struct market *market, uint16_t locate);
void market_bbo(const struct market *market, uint16_t locate, struct book_bbo *out);
/* 8 bytes, space padded; all spaces when unknown. Learned from R, else from the first A or F of the locate.
 * Valid until market_free; the bytes change with the directory. */
const char *market_symbol(const struct market *market, uint16_t locate);
/* Locate of a symbol (space padded, 8 bytes); 0 when unknown. Not for the hot path. */
uint16_t market_locate(const struct market *market, const char *symbol);
const struct book_set *market_books(const struct market *market);
const struct market_counters *market_counters(const struct market *market);

#endif
