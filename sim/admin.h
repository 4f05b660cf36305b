/* The messages of a day that are not orders: system events, spins, trading actions, imbalances, collars. Each
 * is published at the exchange's current time. */
#ifndef ADMIN_H
#define ADMIN_H

#include "exchange.h"
#include "flow.h"

/* S. */
void admin_system_event(struct exchange *exchange, char code);
/* V. */
void admin_breaker_levels(struct exchange *exchange);
/* R. */
void admin_directory(struct exchange *exchange, const struct flow *flow, uint32_t symbol);
/* Y. */
void admin_reg_sho(struct exchange *exchange, uint32_t symbol);
/* L; which: 0 or 1. */
void admin_participant(struct exchange *exchange, uint32_t symbol, uint32_t which);
/* H; reason: 4 characters. */
void admin_trading_action(struct exchange *exchange, uint32_t symbol, char state, const char *reason);
/* h of this market; action H or T. */
void admin_operational_halt(struct exchange *exchange, uint32_t symbol, char action);
/* J: 5 % around the last price. */
void admin_collar(struct exchange *exchange, const struct flow *flow, uint32_t symbol);
/* I: what the auction would do now. */
void admin_imbalance(struct exchange *exchange, const struct flow *flow, uint32_t symbol, char cross_type);

#endif
