/* Books, features and hand-made market events, for the features' tests: one ITCH message's worth of book
 * operation becomes the event that market.c would make of it. Include behind cmocka.h. */
#ifndef FEATURES_RIG_H
#define FEATURES_RIG_H

#include <stdlib.h>

#include "host/features.h"

enum { LOCATE = 1, STREAM = 3, N_STREAM = 8 };
static const uint64_t T0 = 34200000000000u; /* 09:30, ns */

struct rig {
    struct book_set *books;
    struct features *features;
    uint64_t ts_ns;
};

static inline int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    struct book_limits limits = {.n_order = 4096, .n_level = 4096};
    rig->books = book_create(&limits);
    rig->features = features_create(N_STREAM);
    assert_true(rig->books && rig->features);
    rig->ts_ns = T0;
    *state = rig;
    return 0;
}

static inline int tear_down(void **state)
{
    struct rig *rig = *state;
    book_free(rig->books);
    features_free(rig->features);
    free(rig);
    return 0;
}

/* One ITCH message's worth of book operation, and its event to the features. */
struct op {
    uint8_t type;
    uint8_t side; /* of an add */
    uint64_t ref, new_ref;
    uint32_t qty, price;
};

static inline void apply_to(struct rig *rig, uint32_t stream, uint16_t locate, const struct op *op)
{
    struct market_event event = {.locate = locate, .type = op->type, .ts_ns = rig->ts_ns, .trade_side = 2};
    enum book_status status = BOOK_ZERO_QTY;
    book_bbo(rig->books, locate, &event.before);
    switch (op->type) {
    case 'A':
    case 'F':
        status = book_add(rig->books, locate, op->ref, op->side, op->qty, op->price, &event.change);
        break;
    case 'E':
    case 'C':
    case 'X':
        status = book_reduce(rig->books, locate, op->ref, op->qty, &event.change);
        break;
    case 'D':
        status = book_delete(rig->books, locate, op->ref, &event.change);
        break;
    case 'U':
        status = book_replace(rig->books, locate, op->ref, op->new_ref, op->qty, op->price, &event.change);
        break;
    default: /* P, Q: no book */
        break;
    }
    if (status == BOOK_OK)
        event.effects |= (uint16_t)(MARKET_BOOK | (event.change.top ? MARKET_TOP : 0));
    if ((op->type == 'E' || op->type == 'C') && status == BOOK_OK) {
        event.effects |= MARKET_TRADE;
        event.trade_side = event.change.side;
        event.trade_price = event.change.price;
        event.trade_qty = event.change.qty;
    } else if (op->type == 'P' || op->type == 'Q') {
        event.effects |= MARKET_TRADE;
        event.trade_price = op->price;
        event.trade_qty = op->qty;
    }
    features_update(rig->features, stream, &event, rig->books);
}

static inline void apply(struct rig *rig, struct op op)
{
    apply_to(rig, STREAM, LOCATE, &op);
}

static inline void tick(struct rig *rig, float raw[FEATURES_N])
{
    features_tick(rig->features, STREAM, LOCATE, rig->ts_ns, rig->books, raw);
}

#endif
