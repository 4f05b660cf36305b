/* Order flow of the simulated market: who sends what to the exchange, and when.
 *
 * The mechanism that makes the next move partly predictable: every symbol has a latent pressure in [-1, 1]
 * that no message carries. It reverts to the level of a hidden regime (down, quiet, up), which changes about
 * every 300 orders of the symbol; a common factor, moved by market-wide bursts, is added. Under upward
 * pressure takers buy more often, new bids come more often and closer, asks are cancelled more often
 * (downward: the mirror image). So the queues lean before the price moves: queue imbalance and order-flow
 * imbalance carry information about the next mid move, but only through noise, as prices move when a best
 * queue is used up by the sum of everything.
 *
 * Timing: per symbol a self-exciting point process, two exponential kernels (0.3 ms and 50 ms) over a base
 * rate that falls off by rank (some symbols are busy, most are not). Bursts: a common shock makes 100 to 400
 * messages over many symbols within 100 to 200 us.
 *
 * Calibration: the parameters are ours, set so that the message mix is near a real day's and so that, of
 * three classes (mid down, flat, up after ten changes of the best prices or queues), a small network on queue
 * and flow imbalances calls about 63 % right on later unseen time, where the largest class has about 47 %. No
 * real stock is modelled.
 *
 * Sources: Smith, Farmer, Gillemot, Krishnamurthy 2003 (zero-intelligence flow: rates of limit, market,
 * cancel); Huang, Lehalle, Rosenbaum 2015 (rates that depend on the queues); Gould and Bonart 2015 (queue
 * imbalance predicts the next move); Cont, Kukanov, Stoikov 2014 (order-flow imbalance); Bacry, Mastromatteo,
 * Muzy 2015 (Hawkes processes).
 *
 * Integer and correctly rounded arithmetic only (sim/rng.h). One thread. */
#ifndef FLOW_H
#define FLOW_H

#include <stdint.h>

#include "exchange.h"

enum { FLOW_SYMBOL_MAX = 8000 };

struct flow;

/* rate: orders (and cancels) per second, all symbols together. NULL: out of memory. */
struct flow *flow_create(uint32_t n_symbol, double rate, uint64_t seed);
void flow_free(struct flow *flow);

/* The symbols: arrays of n_symbol, for exchange_create. */
const uint16_t *flow_locates(const struct flow *flow);
const char (*flow_stocks(const struct flow *flow))[8];
/* Last mid, before trading the price of the day before; 1e-4 USD, on the grid. */
uint32_t flow_reference(const struct flow *flow, uint32_t symbol);
/* Round lot, shares. */
uint32_t flow_lot(const struct flow *flow, uint32_t symbol);
/* Shares in the auction books that are never shown. */
uint64_t flow_cross_qty(const struct flow *flow, uint32_t symbol, enum exchange_side side);
/* New interest for the next auction; scale 1: a usual opening. */
void flow_draw_cross(struct flow *flow, uint32_t symbol, double scale);

/* Scales every rate. */
void flow_set_activity(struct flow *flow, double activity);

/* Time of the symbol's next candidate event after now_ns (UINT64_MAX never occurs), and whether the event at
 * that time happens (the process is thinned: a 0 means only ask flow_next again). */
uint64_t flow_next(struct flow *flow, uint32_t symbol, uint64_t now_ns);
int flow_happens(struct flow *flow, uint32_t symbol, uint64_t ts_ns);

/* One order, cancel or replace of the symbol, at exchange time ts_ns. Publishes 0 or more messages. */
void flow_act(struct flow *flow, struct exchange *exchange, uint32_t symbol, uint64_t ts_ns);
/* A passive order of the opening book: never crosses. */
void flow_seed_book(struct flow *flow, struct exchange *exchange, uint32_t symbol);
/* FLOW_HALTED: fewer orders, which rest around the last price, so that bids and asks may cross. FLOW_FROZEN:
 * none. */
enum flow_state { FLOW_TRADING, FLOW_HALTED, FLOW_FROZEN };
void flow_set_state(struct flow *flow, uint32_t symbol, enum flow_state state);

/* A market-wide shock, sign +1 or -1: sets the common factor. */
void flow_shock(struct flow *flow, int sign, uint64_t ts_ns);
/* A symbol for the next order of a burst, busy ones more often, and that order. Returns the symbol. */
uint32_t flow_act_in_burst(struct flow *flow, struct exchange *exchange, int sign, uint64_t ts_ns);

/* How often the sign of the latent pressure was the sign of the mid's move over the symbol's next 32 orders,
 * of those that moved: what a predictor that sees the pressure itself would reach. */
struct flow_truth {
    uint64_t n_up_down, n_right, n_flat;
};
void flow_truth(const struct flow *flow, struct flow_truth *out);

#endif
