/* Order-book features of one tick, per stream: raw values in float, then normalised, clamped binary16 inputs.
 *
 * FEATURES_LIST below is the model's input order and part of FEATURES_SCHEMA, which every model package
 * carries: a model trained on another list is refused. Change the list or a formula: raise FEATURES_SCHEMA.
 *
 * No feature knows the price level or the lot size of its symbol, so one model serves many symbols; only
 * spread_ticks counts in absolute price steps. Nothing later than the tick enters. Signed features are
 * exactly odd: a market mirrored bid for ask gives their exact negative, and the two queue changes trade
 * places.
 *
 * Neutral values. First tick of a stream: everything that looks back is 0. A side missing: what needs m or
 * the spread (the mid and micro-price features, spread_ticks, slope_imbalance, volatility) is 0 and the
 * memory of m stays as it was; imbalances take the missing side's shares as 0 (so -1 or +1; 0 when both are
 * missing). No shares at all: 0. A price of 0 is no price. Time running backwards counts as no time. All
 * values are finite for any input.
 *
 * Bit for bit the same on every IEEE-754 machine: double, in fixed order, + - * / and sqrt only, all
 * correctly rounded, built with -ffp-contract=off. log2 and 2^-x are series of our own (error below float's
 * resolution), because libm's differ from version to version. */
#ifndef FEATURES_H
#define FEATURES_H

#include <stdint.h>

#include "../hls/kl_abi.h"
#include "book.h"
#include "market.h"
#include "model.h"

/* clang-format off */
/* Notation of the formulas:
 *   b, a; qb, qa   best bid and ask price; their shares
 *   B_i, A_i       shares of the i-th bid and ask level
 *   m, m[k]        (b + a) / 2; m of k ticks ago
 *   tick size      features_price_tick
 *   slog(x)        sign(x) * log2(1 + |x|): nearly linear around 0, and keeps the heavy tails of returns and
 *                  flows inside the +-16 standard deviations of the number contract (hls/kl_abi.h)
 *   E_n(x)         exponentially weighted mean over ticks, weight 1/n for the newest; the first x starts it
 *   S              E_64(max(a - b, tick size)), the stream's usual spread: the unit of price differences
 *   D, D5          E_64((qb + qa) / 2), and E_64 of half the sum of five levels of both sides; at least one
 *                  share: the unit of flows
 *   since          since the stream's last tick
 *
 * Sources: Andersen, Bollerslev, Diebold, Labys 2003, Modeling and forecasting realized volatility. Bacry,
 * Mastromatteo, Muzy 2015, Hawkes processes in finance. Cao, Hansch, Wang 2009, The information content of an open
 * limit-order book. Chordia, Roll, Subrahmanyam 2002, Order imbalance, liquidity, and market returns. Cont,
 * Cucuringu, Zhang 2023, Cross-impact of order flow imbalance in equity markets. Cont, Kukanov, Stoikov 2014, The
 * price impact of order book events. Easley, Lopez de Prado, O'Hara 2012, Flow toxicity and liquidity in a
 * high-frequency world. Engle, Russell 1998, Autoregressive conditional duration. Gatheral, Oomen 2010,
 * Zero-intelligence realized variance estimation. Gould, Bonart 2016, Queue imbalance as a one-tick-ahead price
 * predictor in a limit order book. Kercheval, Zhang 2015, Modelling high-frequency limit order book dynamics with
 * support vector machines. Lee, Ready 1991, Inferring trade direction from intraday data. Naes, Skjeltorp 2006,
 * Order book characteristics and the volume-volatility relation. RiskMetrics 1996, Technical document. Stoikov
 * 2018, The micro-price. Xu, Gould, Howison 2018, Multi-level order-flow imbalance in a limit order book. Zhang,
 * Zohren, Roberts 2019, DeepLOB: deep convolutional neural networks for limit order books.
 *
 * X(identifier, name, formula, unit, source) */
#define FEATURES_LIST(X) \
    X(MID_RETURN_1, "mid_return_1", \
      "slog((m - m[1]) / S)", \
      "log2 spreads", "price differences: Kercheval, Zhang 2015, set v6") \
    X(MID_RETURN_10, "mid_return_10", \
      "slog((m - m[10]) / S); with fewer ticks so far, the oldest", \
      "log2 spreads", "Kercheval, Zhang 2015; horizon 10: Zhang, Zohren, Roberts 2019 (DeepLOB)") \
    X(MID_EWMA_GAP, "mid_ewma_gap", \
      "slog((m - E_32(m)) / S)", \
      "log2 spreads", "smoothed mid as reference: Zhang, Zohren, Roberts 2019") \
    X(MICRO_PRICE_GAP, "micro_price_gap", \
      "slog((w - m) / S), w = (a qb + b qa) / (qb + qa)", \
      "log2 spreads", "weighted mid: Gatheral, Oomen 2010; as first step to the micro-price: Stoikov 2018") \
    X(SPREAD_TICKS, "spread_ticks", \
      "slog((a - b) / tick size)", \
      "log2 price ticks", "Kercheval, Zhang 2015, set v2") \
    X(IMBALANCE_L1, "imbalance_l1", \
      "(qb - qa) / (qb + qa)", \
      "1", "queue imbalance: Gould, Bonart 2016") \
    X(IMBALANCE_L5, "imbalance_l5", \
      "(sum B_i - sum A_i) / (sum B_i + sum A_i), i = 1..5", \
      "1", "depth behind the best level: Cao, Hansch, Wang 2009") \
    X(IMBALANCE_L10, "imbalance_l10", \
      "as imbalance_l5 for i = 1..10, level i weighted by 11 - i", \
      "1", "Cao, Hansch, Wang 2009; the linear weights are ours") \
    X(SLOPE_IMBALANCE, "slope_imbalance", \
      "(sb - sa) / (sb + sa), s = shares of a side's levels 1..5 / distance of the last of " \
      "them from m, at least half a tick", \
      "1", "order book slope: Naes, Skjeltorp 2006; as an imbalance: ours") \
    X(OFI, "ofi", \
      "slog(sum of e since / D), e per message = [b >= b']qb - [b <= b']qb' - [a <= a']qa + " \
      "[a >= a']qa', ' before it", \
      "log2 depths", "order-flow imbalance: Cont, Kukanov, Stoikov 2014") \
    X(OFI_EWMA, "ofi_ewma", \
      "slog(E_16(sum of e since / D))", \
      "log2 depths", "Cont, Kukanov, Stoikov 2014") \
    X(MLOFI, "mlofi", \
      "slog(sum of e_i, i = 1..5 / D5), e_i: e of the i-th levels between this tick's book and the last's", \
      "log2 depths", "multi-level OFI: Xu, Gould, Howison 2018; sum over levels: Cont, Cucuringu, Zhang 2023") \
    X(TRADE_IMBALANCE, "trade_imbalance", \
      "slog((bought - sold shares since) / D) by aggressor; hidden trades by their side of m, " \
      "none at m; crosses left out", \
      "log2 depths", "Chordia, Roll, Subrahmanyam 2002; quote rule: Lee, Ready 1991") \
    X(TRADE_IMBALANCE_EWMA, "trade_imbalance_ewma", \
      "(u - v) / (u + v), u = E_32(bought since), v = E_32(sold since)", \
      "1", "relative volume imbalance: Easley, Lopez de Prado, O'Hara 2012") \
    X(QUEUE_CHANGE_BID, "queue_change_bid", \
      "slog((added - cancelled shares at b or above since) / D); executions left out", \
      "log2 depths", "changes by kind of event: Kercheval, Zhang 2015, sets v6, v7") \
    X(QUEUE_CHANGE_ASK, "queue_change_ask", \
      "slog((added - cancelled shares at a or below since) / D); executions left out", \
      "log2 depths", "Kercheval, Zhang 2015, sets v6, v7") \
    X(TRADE_INTENSITY, "trade_intensity", \
      "log2(1 + trades per second), memory halved each second", \
      "log2 1/s", "exponential kernel: Bacry, Mastromatteo, Muzy 2015; Kercheval, Zhang 2015, set v7") \
    X(MESSAGE_INTENSITY, "message_intensity", \
      "log2(1 + messages per second), memory halved each 100 ms", \
      "log2 1/s", "as trade_intensity") \
    X(TIME_SINCE_TICK, "time_since_tick", \
      "log2(1 + time since the last tick)", \
      "log2 us", "durations: Engle, Russell 1998") \
    X(VOLATILITY, "volatility", \
      "log2(1 + 1e4 sqrt(E_32((m - m[1])^2)) / m)", \
      "log2 basis points per tick", \
      "realised volatility: Andersen, Bollerslev, Diebold, Labys 2003; weights: RiskMetrics 1996")
/* clang-format on */

enum feature {
#define X(id, name, formula, unit, source) FEATURE_##id,
    FEATURES_LIST(X)
#undef X
        FEATURES_N
};

enum { FEATURES_SCHEMA = 1 };
static_assert((int)FEATURES_N <= (int)KL_N_IN_MAX, "the kernel takes them all");

struct features_info {
    const char *name, *formula, *unit, *source;
};

struct features; /* the state of every stream */

/* n_stream <= KL_N_STREAM_MAX. NULL: out of memory. */
struct features *features_create(uint32_t n_stream);
void features_free(struct features *features);
/* Forgets a stream. intake.c does so after a gap, at a halt and at a change of session. */
void features_reset(struct features *features, uint32_t stream);

/* Every message that touched the stream's symbol (market_apply's event), in order; books: after it. No
 * allocation, bounded. */
void features_update(struct features *features, uint32_t stream, const struct market_event *event,
                     const struct book_set *books);

/* The features of a tick at feed time ts_ns, raw. Closes the tick: the sums "since the last tick" start anew.
 * To be called at the same ticks in training and in production: every tick of a stream that is reliable and
 * trading, also when no inference follows. */
void features_tick(struct features *features, uint32_t stream, uint16_t locate, uint64_t ts_ns,
                   const struct book_set *books, float raw[FEATURES_N]);

/* Normalises (model->feature, n_feature of them, at most FEATURES_N), clamps and rounds to the 2^-11 grid. x
 * beyond n_feature is not written. */
void features_quantise(const struct model *model, const float raw[FEATURES_N], uint16_t x[KL_N_IN_MAX]);

/* FNV-1a 64 over n binary16 values, low byte first, as in the audit log. */
uint64_t features_hash(const uint16_t *x, uint32_t n);

/* NULL for an index out of range. */
const char *features_name(uint32_t index);
const struct features_info *features_info(uint32_t index);

/* Smallest price step, 1e-4 USD, at a mid given as bid + ask: 0.01 USD, below 1 USD 0.0001. Source:
 * Regulation NMS, Rule 612. Half-cent ticks of the rule's 2024 amendment are not known to the feed's prices
 * and not modelled. */
static inline uint32_t features_price_tick(int64_t bid_plus_ask)
{
    return bid_plus_ask < 2 * 10000 ? 1 : 100;
}

#endif
