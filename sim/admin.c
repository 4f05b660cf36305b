#include "admin.h"

#include <string.h>

void admin_system_event(struct exchange *exchange, char code)
{
    struct itch_msg msg = {.type = 'S', .system_event = {.event_code = (uint8_t)code}};
    exchange_publish(exchange, -1, &msg);
}

void admin_breaker_levels(struct exchange *exchange)
{
    struct itch_msg msg = {
        .type = 'V', /* 7, 13, 20 % below 6,000.00 points */
        .mwcb_decline_level = {.level_1 = 558000000000u, .level_2 = 522000000000u, .level_3 = 480000000000u}};
    exchange_publish(exchange, -1, &msg);
}

void admin_directory(struct exchange *exchange, const struct flow *flow, uint32_t symbol)
{
    static const char categories[3] = {'Q', 'G', 'S'};
    struct itch_msg msg = {.type = 'R',
                           .stock_directory = {.market_category = (uint8_t)categories[symbol % 3],
                                               .financial_status_indicator = 'N',
                                               .round_lot_size = flow_lot(flow, symbol) == 1 ? 1 : 100,
                                               .round_lots_only = 'N',
                                               .issue_classification = 'C',
                                               .issue_sub_type = {'Z', ' '},
                                               .authenticity = 'P',
                                               .short_sale_threshold_indicator = 'N',
                                               .ipo_flag = 'N',
                                               .luld_reference_price_tier = symbol % 3 ? '2' : '1',
                                               .etp_flag = 'N',
                                               .inverse_indicator = 'N'}};
    exchange_publish(exchange, (int)symbol, &msg);
}

void admin_reg_sho(struct exchange *exchange, uint32_t symbol)
{
    struct itch_msg msg = {.type = 'Y',
                           .reg_sho_restriction = {.reg_sho_action = symbol % 17 == 16 ? '2' : '0'}};
    exchange_publish(exchange, (int)symbol, &msg);
}

void admin_participant(struct exchange *exchange, uint32_t symbol, uint32_t which)
{
    struct itch_msg msg = {.type = 'L',
                           .market_participant_position = {.mpid = {'K', 'L', 'M', which ? 'B' : 'A'},
                                                           .primary_market_maker = which ? 'N' : 'Y',
                                                           .market_maker_mode = 'N',
                                                           .market_participant_state = 'A'}};
    exchange_publish(exchange, (int)symbol, &msg);
}

void admin_trading_action(struct exchange *exchange, uint32_t symbol, char state, const char *reason)
{
    struct itch_msg msg = {.type = 'H',
                           .stock_trading_action = {.trading_state = (uint8_t)state, .reserved = ' '}};
    memcpy(msg.stock_trading_action.reason, reason, 4);
    exchange_publish(exchange, (int)symbol, &msg);
}

void admin_operational_halt(struct exchange *exchange, uint32_t symbol, char action)
{
    struct itch_msg msg = {
        .type = 'h', .operational_halt = {.market_code = 'Q', .operational_halt_action = (uint8_t)action}};
    exchange_publish(exchange, (int)symbol, &msg);
}

void admin_collar(struct exchange *exchange, const struct flow *flow, uint32_t symbol)
{
    uint32_t reference = flow_reference(flow, symbol), width = reference / 20;
    width -= width % exchange_tick(reference);
    struct itch_msg msg = {.type = 'J',
                           .luld_auction_collar = {.auction_collar_reference_price = reference,
                                                   .upper_auction_collar_price = reference + width,
                                                   .lower_auction_collar_price = reference - width}};
    exchange_publish(exchange, (int)symbol, &msg);
}

/* The I message's letter for |price - reference|. */
static char variation(uint32_t price, uint32_t reference)
{
    if (!price)
        return ' ';
    uint64_t away = price > reference ? price - reference : reference - price,
             percent = away * 100 / reference;
    if (percent == 0)
        return 'L';
    if (percent < 10)
        return (char)('0' + percent);
    return percent < 20 ? 'A' : percent < 30 ? 'B' : 'C';
}

void admin_imbalance(struct exchange *exchange, const struct flow *flow, uint32_t symbol, char cross_type)
{
    struct exchange_cross cross;
    uint32_t reference = flow_reference(flow, symbol);
    exchange_cross_preview(exchange, symbol, flow_cross_qty(flow, symbol, EXCHANGE_BUY),
                           flow_cross_qty(flow, symbol, EXCHANGE_SELL), reference, &cross);
    struct itch_msg msg = {
        .type = 'I',
        .net_order_imbalance = {.paired_shares = cross.paired,
                                .imbalance_shares = cross.imbalance,
                                .imbalance_direction = (uint8_t)cross.direction,
                                .far_price = cross.price,
                                .near_price = cross.price,
                                .current_reference_price = reference,
                                .cross_type = (uint8_t)cross_type,
                                .price_variation_indicator = (uint8_t)variation(cross.price, reference)}};
    exchange_publish(exchange, (int)symbol, &msg);
}
