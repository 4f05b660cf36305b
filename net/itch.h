/* Nasdaq TotalView-ITCH 5.0 messages: layout, decoder, encoder, field descriptions, all made from one table.
 *
 * Knows bytes, not meaning: which messages count and what they do to a book is decided elsewhere. Enumerated
 * one-letter fields are handed on as they are (new letters appear with each revision). Any thread; no state.
 * Source: Nasdaq TotalView-ITCH 5.0 specification, revision of 2026-02-19, section 1; all 23 types. */
#ifndef ITCH_H
#define ITCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "be.h"

enum itch_status {
    ITCH_SHORT = -1,   /* ends before the type's last field: count it, do not apply it */
    ITCH_UNKNOWN = -2, /* no type of this revision: count it, skip it by its framed length */
};

enum { ITCH_HEADER_BYTES = 11, ITCH_MESSAGE_BYTES_MAX = 50 };

/* The table: F(context, kind, name, offset, bytes) per field, offset from the type byte. Kinds:
 *   U8 one-letter alpha, ALPHA(n) char[n], space padded, not terminated, U16 .. U64 big-endian unsigned,
 *   PRICE4 uint32_t in 1e-4 USD, PRICE8 uint64_t in 1e-8 index points. */
/* clang-format off */
#define ITCH_HEADER(F, c)                             /* the same 11 bytes in every type */ \
    F(c, U8,     type,                             0, 1) \
    F(c, U16,    locate,                           1, 2) /* of the day; 0: not about one stock */ \
    F(c, U16,    tracking,                         3, 2) \
    F(c, U48,    timestamp_ns,                     5, 6) /* since midnight, US Eastern */
#define ITCH_SYSTEM_EVENT(F, c) \
    F(c, U8,     event_code,                      11, 1)
#define ITCH_STOCK_DIRECTORY(F, c) \
    F(c, ALPHA,  stock,                           11, 8) \
    F(c, U8,     market_category,                 19, 1) \
    F(c, U8,     financial_status_indicator,      20, 1) \
    F(c, U32,    round_lot_size,                  21, 4) \
    F(c, U8,     round_lots_only,                 25, 1) \
    F(c, U8,     issue_classification,            26, 1) \
    F(c, ALPHA,  issue_sub_type,                  27, 2) \
    F(c, U8,     authenticity,                    29, 1) \
    F(c, U8,     short_sale_threshold_indicator,  30, 1) \
    F(c, U8,     ipo_flag,                        31, 1) \
    F(c, U8,     luld_reference_price_tier,       32, 1) \
    F(c, U8,     etp_flag,                        33, 1) \
    F(c, U32,    etp_leverage_factor,             34, 4) \
    F(c, U8,     inverse_indicator,               38, 1)
#define ITCH_STOCK_TRADING_ACTION(F, c) \
    F(c, ALPHA,  stock,                           11, 8) \
    F(c, U8,     trading_state,                   19, 1) \
    F(c, U8,     reserved,                        20, 1) \
    F(c, ALPHA,  reason,                          21, 4)
#define ITCH_REG_SHO_RESTRICTION(F, c) \
    F(c, ALPHA,  stock,                           11, 8) \
    F(c, U8,     reg_sho_action,                  19, 1)
#define ITCH_MARKET_PARTICIPANT_POSITION(F, c) \
    F(c, ALPHA,  mpid,                            11, 4) \
    F(c, ALPHA,  stock,                           15, 8) \
    F(c, U8,     primary_market_maker,            23, 1) \
    F(c, U8,     market_maker_mode,               24, 1) \
    F(c, U8,     market_participant_state,        25, 1)
#define ITCH_MWCB_DECLINE_LEVEL(F, c) \
    F(c, PRICE8, level_1,                         11, 8) \
    F(c, PRICE8, level_2,                         19, 8) \
    F(c, PRICE8, level_3,                         27, 8)
#define ITCH_MWCB_STATUS(F, c) \
    F(c, U8,     breached_level,                  11, 1)
#define ITCH_IPO_QUOTING_PERIOD_UPDATE(F, c) \
    F(c, ALPHA,  stock,                           11, 8) \
    F(c, U32,    ipo_quotation_release_time,      19, 4) /* s since midnight */ \
    F(c, U8,     ipo_quotation_release_qualifier, 23, 1) \
    F(c, PRICE4, ipo_price,                       24, 4)
#define ITCH_LULD_AUCTION_COLLAR(F, c) \
    F(c, ALPHA,  stock,                           11, 8) \
    F(c, PRICE4, auction_collar_reference_price,  19, 4) \
    F(c, PRICE4, upper_auction_collar_price,      23, 4) \
    F(c, PRICE4, lower_auction_collar_price,      27, 4) \
    F(c, U32,    auction_collar_extension,        31, 4)
#define ITCH_OPERATIONAL_HALT(F, c) \
    F(c, ALPHA,  stock,                           11, 8) \
    F(c, U8,     market_code,                     19, 1) \
    F(c, U8,     operational_halt_action,         20, 1)
#define ITCH_ADD_ORDER(F, c) \
    F(c, U64,    order_reference_number,          11, 8) \
    F(c, U8,     buy_sell_indicator,              19, 1) \
    F(c, U32,    shares,                          20, 4) \
    F(c, ALPHA,  stock,                           24, 8) \
    F(c, PRICE4, price,                           32, 4)
#define ITCH_ADD_ORDER_MPID(F, c) \
    ITCH_ADD_ORDER(F, c) \
    F(c, ALPHA,  attribution,                     36, 4)
#define ITCH_ORDER_EXECUTED(F, c) \
    F(c, U64,    order_reference_number,          11, 8) \
    F(c, U32,    executed_shares,                 19, 4) \
    F(c, U64,    match_number,                    23, 8)
#define ITCH_ORDER_EXECUTED_WITH_PRICE(F, c) \
    ITCH_ORDER_EXECUTED(F, c) \
    F(c, U8,     printable,                       31, 1) \
    F(c, PRICE4, execution_price,                 32, 4)
#define ITCH_ORDER_CANCEL(F, c) \
    F(c, U64,    order_reference_number,          11, 8) \
    F(c, U32,    cancelled_shares,                19, 4)
#define ITCH_ORDER_DELETE(F, c) \
    F(c, U64,    order_reference_number,          11, 8)
#define ITCH_ORDER_REPLACE(F, c) \
    F(c, U64,    original_order_reference_number, 11, 8) \
    F(c, U64,    new_order_reference_number,      19, 8) \
    F(c, U32,    shares,                          27, 4) \
    F(c, PRICE4, price,                           31, 4)
#define ITCH_TRADE(F, c) \
    ITCH_ADD_ORDER(F, c) \
    F(c, U64,    match_number,                    36, 8)
#define ITCH_CROSS_TRADE(F, c) \
    F(c, U64,    shares,                          11, 8) \
    F(c, ALPHA,  stock,                           19, 8) \
    F(c, PRICE4, cross_price,                     27, 4) \
    F(c, U64,    match_number,                    31, 8) \
    F(c, U8,     cross_type,                      39, 1)
#define ITCH_BROKEN_TRADE(F, c) \
    F(c, U64,    match_number,                    11, 8)
#define ITCH_NET_ORDER_IMBALANCE(F, c) \
    F(c, U64,    paired_shares,                   11, 8) \
    F(c, U64,    imbalance_shares,                19, 8) \
    F(c, U8,     imbalance_direction,             27, 1) \
    F(c, ALPHA,  stock,                           28, 8) \
    F(c, PRICE4, far_price,                       36, 4) \
    F(c, PRICE4, near_price,                      40, 4) \
    F(c, PRICE4, current_reference_price,         44, 4) \
    F(c, U8,     cross_type,                      48, 1) \
    F(c, U8,     price_variation_indicator,       49, 1)
#define ITCH_RETAIL_PRICE_IMPROVEMENT(F, c) \
    F(c, ALPHA,  stock,                           11, 8) \
    F(c, U8,     interest_flag,                   19, 1)
#define ITCH_DIRECT_LISTING(F, c) \
    F(c, ALPHA,  stock,                           11, 8) \
    F(c, U8,     open_eligibility_status,         19, 1) \
    F(c, PRICE4, minimum_allowable_price,         20, 4) \
    F(c, PRICE4, maximum_allowable_price,         24, 4) \
    F(c, PRICE4, near_execution_price,            28, 4) \
    F(c, U64,    near_execution_time,             32, 8) /* ns since midnight; 8 bytes wide only here */ \
    F(c, PRICE4, lower_price_range_collar,        40, 4) \
    F(c, PRICE4, upper_price_range_collar,        44, 4)

/* M(type, member of struct itch_msg, fields, name, bytes). */
#define ITCH_MESSAGES(M) \
    M('S', system_event,                ITCH_SYSTEM_EVENT,                "System Event",                       12) \
    M('R', stock_directory,             ITCH_STOCK_DIRECTORY,             "Stock Directory",                    39) \
    M('H', stock_trading_action,        ITCH_STOCK_TRADING_ACTION,        "Stock Trading Action",               25) \
    M('Y', reg_sho_restriction,         ITCH_REG_SHO_RESTRICTION,         "Reg SHO Restriction",                20) \
    M('L', market_participant_position, ITCH_MARKET_PARTICIPANT_POSITION, "Market Participant Position",        26) \
    M('V', mwcb_decline_level,          ITCH_MWCB_DECLINE_LEVEL,          "MWCB Decline Level",                 35) \
    M('W', mwcb_status,                 ITCH_MWCB_STATUS,                 "MWCB Status",                        12) \
    M('K', ipo_quoting_period_update,   ITCH_IPO_QUOTING_PERIOD_UPDATE,   "IPO Quoting Period Update",          28) \
    M('J', luld_auction_collar,         ITCH_LULD_AUCTION_COLLAR,         "LULD Auction Collar",                35) \
    M('h', operational_halt,            ITCH_OPERATIONAL_HALT,            "Operational Halt",                   21) \
    M('A', add_order,                   ITCH_ADD_ORDER,                   "Add Order",                          36) \
    M('F', add_order_mpid,              ITCH_ADD_ORDER_MPID,              "Add Order MPID",                     40) \
    M('E', order_executed,              ITCH_ORDER_EXECUTED,              "Order Executed",                     31) \
    M('C', order_executed_with_price,   ITCH_ORDER_EXECUTED_WITH_PRICE,   "Order Executed With Price",          36) \
    M('X', order_cancel,                ITCH_ORDER_CANCEL,                "Order Cancel",                       23) \
    M('D', order_delete,                ITCH_ORDER_DELETE,                "Order Delete",                       19) \
    M('U', order_replace,               ITCH_ORDER_REPLACE,               "Order Replace",                      35) \
    M('P', trade,                       ITCH_TRADE,                       "Trade",                              44) \
    M('Q', cross_trade,                 ITCH_CROSS_TRADE,                 "Cross Trade",                        40) \
    M('B', broken_trade,                ITCH_BROKEN_TRADE,                "Broken Trade",                       19) \
    M('I', net_order_imbalance,         ITCH_NET_ORDER_IMBALANCE,         "Net Order Imbalance Indicator",      50) \
    M('N', retail_price_improvement,    ITCH_RETAIL_PRICE_IMPROVEMENT,    "Retail Price Improvement Indicator", 20) \
    M('O', direct_listing,              ITCH_DIRECT_LISTING,              "Direct Listing With Capital Raise",  48)
/* clang-format on */

/* struct itch_system_event, struct itch_add_order ...: one member per field. */
#define ITCH_MEMBER_U8(name, n)     uint8_t name;
#define ITCH_MEMBER_ALPHA(name, n)  char name[n];
#define ITCH_MEMBER_U16(name, n)    uint16_t name;
#define ITCH_MEMBER_U32(name, n)    uint32_t name;
#define ITCH_MEMBER_U48(name, n)    uint64_t name;
#define ITCH_MEMBER_U64(name, n)    uint64_t name;
#define ITCH_MEMBER_PRICE4(name, n) uint32_t name;
#define ITCH_MEMBER_PRICE8(name, n) uint64_t name;

#define ITCH_MEMBER(c, kind, name, offset, bytes) ITCH_MEMBER_##kind(name, bytes)
#define ITCH_STRUCT(type, member, fields, name, bytes)                                                       \
    struct itch_##member {                                                                                   \
        fields(ITCH_MEMBER, )                                                                                \
    };
ITCH_MESSAGES(ITCH_STRUCT)
#undef ITCH_STRUCT

struct itch_msg {
    ITCH_HEADER(ITCH_MEMBER, )
    union { /* by type: msg.add_order.price */
#define ITCH_UNION(type, member, fields, name, bytes) struct itch_##member member;
        ITCH_MESSAGES(ITCH_UNION)
#undef ITCH_UNION
    };
};

#define ITCH_LOAD_U8(to, p, n)     (to) = *(p)
#define ITCH_LOAD_ALPHA(to, p, n)  memcpy((to), (p), (n))
#define ITCH_LOAD_U16(to, p, n)    (to) = be_load_u16(p)
#define ITCH_LOAD_U32(to, p, n)    (to) = be_load_u32(p)
#define ITCH_LOAD_U48(to, p, n)    (to) = be_load_u48(p)
#define ITCH_LOAD_U64(to, p, n)    (to) = be_load_u64(p)
#define ITCH_LOAD_PRICE4(to, p, n) (to) = be_load_u32(p)
#define ITCH_LOAD_PRICE8(to, p, n) (to) = be_load_u64(p)

/* Decodes one message from buf into *out.
 * buf: len bytes from the type byte on (the body as framed), network order; not kept.
 * *out is written only on success; of the union only the member of out->type.
 * Returns the type's length (> 0; len may be larger: a later revision's fields follow, skip them by len),
 * ITCH_SHORT or ITCH_UNKNOWN. */
static inline int itch_decode(const uint8_t *buf, size_t len, struct itch_msg *out)
{
    if (len == 0)
        return ITCH_SHORT;
    switch (buf[0]) {
#define ITCH_DECODE_HEADER(c, kind, name, offset, bytes) ITCH_LOAD_##kind(out->name, buf + (offset), bytes);
#define ITCH_DECODE_FIELD(c, kind, name, offset, bytes)  ITCH_LOAD_##kind(out->c.name, buf + (offset), bytes);
#define ITCH_DECODE(letter, member, fields, text, size)                                                      \
    case letter:                                                                                             \
        if (__builtin_expect(len < (size), 0))                                                               \
            return ITCH_SHORT;                                                                               \
        ITCH_HEADER(ITCH_DECODE_HEADER, )                                                                    \
        fields(ITCH_DECODE_FIELD, member) return (size);
        ITCH_MESSAGES(ITCH_DECODE)
#undef ITCH_DECODE
#undef ITCH_DECODE_FIELD
#undef ITCH_DECODE_HEADER
    default:
        return ITCH_UNKNOWN;
    }
}

/* Length of a type's body, 0 when unknown. */
uint16_t itch_message_bytes(uint8_t type);

/* Encodes *msg (type, header and the type's member are set; timestamp_ns below 2^48) into buf of size bytes.
 * Returns the type's length, ITCH_UNKNOWN, or ITCH_SHORT when it does not fit (ITCH_MESSAGE_BYTES_MAX always
 * does). */
int itch_encode(const struct itch_msg *msg, uint8_t *buf, size_t size);

/* Field descriptions, for printing. */
enum itch_kind { ITCH_U8, ITCH_ALPHA, ITCH_U16, ITCH_U32, ITCH_U48, ITCH_U64, ITCH_PRICE4, ITCH_PRICE8 };

struct itch_field {
    const char *name;
    uint8_t kind;   /* enum itch_kind */
    uint8_t offset; /* on the wire, from the type byte */
    uint8_t bytes;  /* on the wire */
    uint8_t member; /* offset in struct itch_msg */
};

struct itch_message_info {
    const char *name;
    const struct itch_field *field; /* in wire order, without the header's four */
    uint8_t n_field;
    uint8_t bytes;
    uint8_t type;
};

/* NULL: unknown type. */
const struct itch_message_info *itch_message_info(uint8_t type);

/* Value of an integer or price field of a decoded message (not ITCH_ALPHA; ITCH_U8: the letter's code). */
uint64_t itch_field_integer(const struct itch_msg *msg, const struct itch_field *field);
/* First byte of an ITCH_U8 or ITCH_ALPHA field of a decoded message: field->bytes bytes, not terminated. */
const char *itch_field_alpha(const struct itch_msg *msg, const struct itch_field *field);

#endif
