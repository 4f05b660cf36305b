/* Limit order books of all locates: orders by reference, price levels on both sides.
 *
 * Takes plain arguments; knows no feed. Prices are unsigned, in 1e-4 USD; any price a feed can carry fits,
 * there is no price window. Data errors (unknown reference, excess quantity ...) are counted, returned and
 * never corrupt a level: quantities cannot wrap. No allocation after book_create, which also touches all
 * memory, so that no page fault is left for later. One thread.
 *
 * Memory: 64 to 128 bytes per order and per level of book_limits (both tables are rounded up
 * to a power of two), and 4 MiB for the locates; in 2 MiB pages where the system has them. */
#ifndef BOOK_H
#define BOOK_H

#include <stddef.h>
#include <stdint.h>

enum { BOOK_N_LOCATE = 65536 };
enum book_side { BOOK_BID = 0, BOOK_ASK = 1 };

enum book_status {
    BOOK_OK = 0,
    BOOK_UNKNOWN_REF = -1,   /* no such order: count, ignore (mid-session join, gap) */
    BOOK_DUPLICATE_REF = -2, /* an order of this reference exists: ignored */
    BOOK_WRONG_LOCATE = -3,  /* the order belongs to another locate: ignored */
    BOOK_EXCESS_QTY = -4,    /* more than is left: the order is removed, the level loses what was left */
    BOOK_ZERO_QTY = -5,      /* nothing to add, reduce or replace by: ignored */
    BOOK_FULL = -6, /* order table or level pool exhausted: the order is not in the book (a replace has
                       removed the old one), the symbol must be marked unreliable; enlarge book_limits */
};

struct book_limits {
    uint32_t n_order; /* most live orders at once; 1 .. 2^30 */
    uint32_t n_level; /* most price levels at once, all symbols together; 1 .. 2^28. A side's array is a block
                         of a pool of 4 entries per level; a badly fragmented pool may be full some levels
                         earlier */
};

struct book_level {
    uint32_t price; /* 1e-4 USD */
    uint32_t n_order;
    uint64_t qty; /* sum of the orders' shares */
};

/* Best bid and ask. An absent side has price 0 and qty 0. */
struct book_bbo {
    uint32_t bid_price, ask_price;
    uint64_t bid_qty, ask_qty;
};

/* What an operation did: written on BOOK_OK, BOOK_EXCESS_QTY and, for a replace, BOOK_FULL (new_qty 0: only
 * the removal happened), so that features need no second look-up. */
struct book_change {
    uint8_t side;                /* enum book_side, of the order touched */
    uint8_t top;                 /* the best price or its qty on that side is another than before */
    uint8_t crossed;             /* the book is now locked or crossed */
    uint32_t price;              /* of the order touched (for a replace: of the old order) */
    uint32_t qty;                /* shares added or removed (for a replace: removed from the old) */
    uint32_t new_price, new_qty; /* replace only, else 0 */
};

struct book_counters {
    uint64_t updates; /* operations that changed a book */
    uint64_t unknown_ref, duplicate_ref, wrong_locate, excess_qty, zero_qty, full;
    uint64_t n_order, n_order_peak;
    uint64_t n_level, n_level_peak;
};

struct book_set;

/* NULL: out of memory, or a limit out of its range. */
struct book_set *book_create(const struct book_limits *limits);
void book_free(struct book_set *set);
/* Empties every book (change of session); counters stay. */
void book_clear(struct book_set *set);

/* Every reference is legal, 0 too. The errors are checked in the order unknown, duplicate, wrong locate,
 * zero. */
enum book_status book_add(struct book_set *set, uint16_t locate, uint64_t ref, enum book_side side,
                          uint32_t qty, uint32_t price, struct book_change *change);
/* Takes qty shares off an order (execution or partial cancel); at zero left the order is gone. */
enum book_status book_reduce(struct book_set *set, uint16_t locate, uint64_t ref, uint32_t qty,
                             struct book_change *change);
enum book_status book_delete(struct book_set *set, uint16_t locate, uint64_t ref, struct book_change *change);
/* Removes ref wholly and adds new_ref on the same side. Unknown ref, or another order already has new_ref:
 * nothing happens. new_ref may equal ref. */
enum book_status book_replace(struct book_set *set, uint16_t locate, uint64_t ref, uint64_t new_ref,
                              uint32_t qty, uint32_t price, struct book_change *change);

/* Brings the order's slot and the locate's line towards the cache; call some messages ahead. */
void book_prefetch(const struct book_set *set, uint16_t locate, uint64_t ref);

void book_bbo(const struct book_set *set, uint16_t locate, struct book_bbo *out);
/* Copies the best n levels of a side, best first. Returns how many there were (<= n). */
size_t book_levels(const struct book_set *set, uint16_t locate, enum book_side side, struct book_level *out,
                   size_t n);
/* Number of price levels on a side. */
size_t book_depth(const struct book_set *set, uint16_t locate, enum book_side side);

const struct book_counters *book_counters(const struct book_set *set);

#endif
