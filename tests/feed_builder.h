/* Builds frames of a feed, message by message: ITCH in MoldUDP64 in UDP. For tests. */
#ifndef FEED_BUILDER_H
#define FEED_BUILDER_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "net/itch.h"
#include "net/moldudp64.h"
#include "net/packet.h"

enum { FEED_GROUP_A = (int)0xe9360c6f, FEED_GROUP_B = (int)0xe931c46f, FEED_PORT = 26477 };

struct feed_builder {
    uint64_t next_seq;
    uint8_t payload[1472];
    size_t len;
    uint16_t count;
    uint8_t frame[1600];
    size_t frame_len;
};

static inline void feed_put(uint8_t *at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(v >> 8 * (bytes - 1 - i));
}

static inline void feed_begin(struct feed_builder *f)
{
    f->len = MOLD_HEADER_BYTES;
    f->count = 0;
}

static inline void feed_add(struct feed_builder *f, const struct itch_msg *msg)
{
    int n = itch_encode(msg, f->payload + f->len + 2, sizeof(f->payload) - f->len - 2);
    assert(n > 0);
    feed_put(f->payload + f->len, (uint64_t)n, 2);
    f->len += 2 + (size_t)n;
    f->count++;
}

/* Ends the packet; f->frame, f->frame_len are its bytes. The same packet can be ended again for another
 * group. */
static inline void feed_frame(struct feed_builder *f, const char session[MOLD_SESSION_BYTES], uint64_t seq,
                              uint16_t count, uint32_t group)
{
    memcpy(f->payload, session, MOLD_SESSION_BYTES);
    feed_put(f->payload + 10, seq, 8);
    feed_put(f->payload + 18, count, 2);
    f->frame_len =
        packet_build(f->frame, 0x0a000001, 5000, group, FEED_PORT, 0, f->payload, (uint16_t)f->len);
}

static inline struct itch_msg feed_event(char code, uint64_t ts)
{
    struct itch_msg m = {.type = 'S', .timestamp_ns = ts};
    m.system_event.event_code = code;
    return m;
}

static inline void feed_symbol(char out[8], const char *symbol)
{
    memset(out, ' ', 8);
    memcpy(out, symbol, strlen(symbol));
}

static inline struct itch_msg feed_directory(uint16_t locate, const char *symbol, uint64_t ts)
{
    struct itch_msg m = {.type = 'R', .locate = locate, .timestamp_ns = ts};
    feed_symbol(m.stock_directory.stock, symbol);
    return m;
}

static inline struct itch_msg feed_state(uint16_t locate, const char *symbol, char state, uint64_t ts)
{
    struct itch_msg m = {.type = 'H', .locate = locate, .timestamp_ns = ts};
    feed_symbol(m.stock_trading_action.stock, symbol);
    m.stock_trading_action.trading_state = state;
    memset(m.stock_trading_action.reason, ' ', sizeof(m.stock_trading_action.reason));
    return m;
}

static inline struct itch_msg feed_order(uint16_t locate, const char *symbol, uint64_t ref, char side,
                                         uint32_t shares, uint32_t price, uint64_t ts)
{
    struct itch_msg m = {.type = 'A', .locate = locate, .timestamp_ns = ts};
    m.add_order.order_reference_number = ref;
    m.add_order.buy_sell_indicator = (uint8_t)side;
    m.add_order.shares = shares;
    feed_symbol(m.add_order.stock, symbol);
    m.add_order.price = price;
    return m;
}

static inline struct itch_msg feed_delete(uint16_t locate, uint64_t ref, uint64_t ts)
{
    struct itch_msg m = {.type = 'D', .locate = locate, .timestamp_ns = ts};
    m.order_delete.order_reference_number = ref;
    return m;
}

#endif
