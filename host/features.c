#include "features.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_LEVEL_NEAR = 5, N_LEVEL_FAR = 10, N_MID = 10 };

/* Weights of the exponential means: powers of two, so 1 - w is exact. */
static const double W_SCALE = 1.0 / 64, W_MID = 1.0 / 32, W_OFI = 1.0 / 16, W_TRADE = 1.0 / 32;
static const double TRADE_HALF_LIFE_NS = 1e9, MESSAGE_HALF_LIFE_NS = 1e8;
static const double LN_2 = 0.69314718055994530942;

enum { /* IEEE-754 */
       FP64_MANTISSA_BITS = 52,
       FP64_BIAS = 1023,
       FP32_MANTISSA_BITS = 23,
       FP32_BIAS = 127,
       FP32_INFINITY_BITS = 0x7f800000,
       FP16_MANTISSA_BITS = 10,
       FP16_BIAS = 15,
};

struct stream {
    /* memory in time */
    double n_trade, n_message; /* decayed counts, at event_ns */
    uint64_t event_ns;         /* latest feed time seen */
    /* since the last tick, shares */
    double ofi, bought, sold;
    double queue_change[2]; /* by enum book_side: added - cancelled at the best price or better */
    /* memory over ticks */
    uint64_t n_tick; /* since create or reset */
    uint64_t n_mid;  /* ticks with both sides */
    uint64_t tick_ns;
    int64_t mid2[N_MID];              /* bid + ask, 1e-4 USD; the n-th at n % N_MID */
    double spread, depth, depth_near; /* S in 1e-4 USD, D and D5 in shares */
    double mid_gap;                   /* m - E_32(m), in units of mid2 */
    double variance;                  /* E_32 of the squared difference of mid2 */
    double ofi_mean, bought_mean, sold_mean;
    struct book_level near[2][N_LEVEL_NEAR]; /* by side, at the last tick; absent levels are 0 */
};

struct features {
    uint32_t n_stream;
    struct stream stream[];
};

static const struct features_info info[FEATURES_N] = {
#define X(id, name, formula, unit, source) {name, formula, unit, source},
    FEATURES_LIST(X)
#undef X
};

static inline uint64_t bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline double double_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* sign(x) log2(1 + |x|): exponent bits, and atanh's series of the mantissa in [sqrt(1/2), sqrt(2)). On the
 * bits and without a branch, so that a vector unit takes several: nobody foresees a mantissa, or the sign of
 * a flow. */
static inline double slog(double x)
{
    const uint64_t one = (uint64_t)FP64_BIAS << FP64_MANTISSA_BITS, sqrt_2 = 0x3ff6a09e667f3bcd;
    const uint64_t two_52 = (uint64_t)(FP64_BIAS + FP64_MANTISSA_BITS) << FP64_MANTISSA_BITS;
    uint64_t bits = bits_of_double(1.0 + fabs(x));
    const uint64_t mantissa = (bits & 0xfffffffffffff) | one, is_above = mantissa > sqrt_2;
    /* An integer in the last bits of 2^52 is 2^52 and that integer. */
    double exponent = double_of_bits(((bits >> FP64_MANTISSA_BITS) + is_above) | two_52);
    exponent -= 0x1p52 + FP64_BIAS;
    double m = double_of_bits(mantissa - (is_above << FP64_MANTISSA_BITS));
    double s = (m - 1.0) / (m + 1.0), s2 = s * s;
    double p = 1.0 / 11; /* what is left out is below 3e-11 */
    p = p * s2 + 1.0 / 9;
    p = p * s2 + 1.0 / 7;
    p = p * s2 + 1.0 / 5;
    p = p * s2 + 1.0 / 3;
    p = p * s2 + 1.0;
    return double_of_bits(bits_of_double(exponent + 2.0 / LN_2 * (s * p)) | (uint64_t)(x < 0) << 63);
}

/* 2^-x, x >= 0: the nearest whole number into the exponent, the exponential's series for the rest. */
static double exp2_neg(double x)
{
    if (x >= 64)
        return 0;
    int whole = (int)(x + 0.5);
    double t = (whole - x) * LN_2; /* within +-0.35 */
    double p = 1.0 / 40320;        /* what is left out is below 3e-10 */
    p = p * t + 1.0 / 5040;
    p = p * t + 1.0 / 720;
    p = p * t + 1.0 / 120;
    p = p * t + 1.0 / 24;
    p = p * t + 1.0 / 6;
    p = p * t + 1.0 / 2;
    p = p * t + 1.0;
    p = p * t + 1.0;
    return p * double_of_bits((uint64_t)(FP64_BIAS - whole) << FP64_MANTISSA_BITS);
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* Exponential mean; the first value starts it. */
static void mean_add(double *mean, double weight, double value, int is_first)
{
    *mean = is_first ? value : *mean + weight * (value - *mean);
}

struct features *features_create(uint32_t n_stream)
{
    assert(n_stream <= KL_N_STREAM_MAX);
    struct features *f = calloc(1, sizeof(*f) + n_stream * sizeof(f->stream[0]));
    if (f)
        f->n_stream = n_stream;
    return f;
}

void features_free(struct features *f)
{
    free(f);
}

void features_reset(struct features *f, uint32_t stream)
{
    assert(stream < f->n_stream);
    memset(&f->stream[stream], 0, sizeof(f->stream[stream]));
}

/* Lets the counts decay to ts_ns. Time that runs backwards stands still. */
static void decay(struct stream *s, uint64_t ts_ns)
{
    if (ts_ns <= s->event_ns)
        return;
    double elapsed_ns = (double)(ts_ns - s->event_ns);
    s->event_ns = ts_ns;
    if (s->n_message > 0)
        s->n_message *= exp2_neg(elapsed_ns / MESSAGE_HALF_LIFE_NS);
    if (s->n_trade > 0)
        s->n_trade *= exp2_neg(elapsed_ns / TRADE_HALF_LIFE_NS);
}

/* e of one level: shares that a price or size change has added to the bid's side. An absent level has no
 * shares; an absent ask lies above every price. */
static double flow(uint32_t bid0, uint64_t bid_qty0, uint32_t bid1, uint64_t bid_qty1, uint32_t ask0,
                   uint64_t ask_qty0, uint32_t ask1, uint64_t ask_qty1)
{
    uint64_t far0 = ask0 ? ask0 : UINT64_MAX, far1 = ask1 ? ask1 : UINT64_MAX;
    double bid = (bid1 >= bid0 ? (double)bid_qty1 : 0) - (bid1 <= bid0 ? (double)bid_qty0 : 0);
    double ask = (far1 <= far0 ? (double)ask_qty1 : 0) - (far1 >= far0 ? (double)ask_qty0 : 0);
    return bid - ask;
}

static void add_trade(struct stream *s, const struct market_event *event)
{
    if (event->type == 'Q') /* an auction has no aggressor, and its size is of another order */
        return;
    int bought = event->trade_side == BOOK_ASK, sold = event->trade_side == BOOK_BID;
    if (!bought && !sold && event->before.bid_price && event->before.ask_price) {
        int64_t mid2 = (int64_t)event->before.bid_price + event->before.ask_price;
        bought = 2 * (int64_t)event->trade_price > mid2;
        sold = 2 * (int64_t)event->trade_price < mid2;
    }
    s->n_trade += 1;
    if (bought)
        s->bought += (double)event->trade_qty;
    else if (sold)
        s->sold += (double)event->trade_qty;
}

/* At the side's best price before the message, or better. */
static int at_touch(const struct market_event *event, int side, uint32_t price)
{
    if (side == BOOK_BID)
        return price >= event->before.bid_price;
    return !event->before.ask_price || price <= event->before.ask_price;
}

static void add_queue_change(struct stream *s, const struct market_event *event)
{
    const struct book_change *change = &event->change;
    int side = change->side == BOOK_BID ? BOOK_BID : BOOK_ASK;
    double old = at_touch(event, side, change->price) ? (double)change->qty : 0;
    switch (event->type) {
    case 'A':
    case 'F':
        s->queue_change[side] += old;
        break;
    case 'X':
    case 'D':
        s->queue_change[side] -= old;
        break;
    case 'U':
        s->queue_change[side] -= old;
        if (at_touch(event, side, change->new_price))
            s->queue_change[side] += (double)change->new_qty;
        break;
    default: /* executions */
        break;
    }
}

void features_update(struct features *f, uint32_t stream, const struct market_event *event,
                     const struct book_set *books)
{
    assert(stream < f->n_stream);
    struct stream *s = &f->stream[stream];
    decay(s, event->ts_ns);
    s->n_message += 1;
    if (event->effects & MARKET_TRADE)
        add_trade(s, event);
    if (event->effects & MARKET_BOOK)
        add_queue_change(s, event);
    if (event->effects & MARKET_TOP) {
        const struct book_bbo *old = &event->before;
        struct book_bbo new;
        book_bbo(books, event->locate, &new);
        s->ofi += flow(old->bid_price, old->bid_qty, new.bid_price, new.bid_qty, old->ask_price, old->ask_qty,
                       new.ask_price, new.ask_qty);
    }
}

/* Sum of shares of the best n levels (weight 0), or of shares times weight, weight - 1 ... */
static double level_sum(const struct book_level *level, int n, int weight)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)level[i].qty * (weight ? weight - i : 1);
    return sum;
}

/* Shares per price step of a side: its best levels' sum over the distance of the last of them from the mid.
 */
static double slope(double qty, const struct book_level *level, int64_t mid2, double tick)
{
    int last = N_LEVEL_NEAR - 1;
    while (last > 0 && !level[last].price)
        last--;
    int64_t distance2 = 2 * (int64_t)level[last].price - mid2;
    double distance = (double)(distance2 < 0 ? -distance2 : distance2) * 0.5;
    return qty / (distance > tick * 0.5 ? distance : tick * 0.5);
}

/* Features that are the slog of their value; as masks, for a vector unit. */
static const uint64_t is_log[FEATURES_N] = {
    [FEATURE_MID_RETURN_1] = UINT64_MAX,
    [FEATURE_MID_RETURN_10] = UINT64_MAX,
    [FEATURE_MID_EWMA_GAP] = UINT64_MAX,
    [FEATURE_MICRO_PRICE_GAP] = UINT64_MAX,
    [FEATURE_SPREAD_TICKS] = UINT64_MAX,
    [FEATURE_VOLATILITY] = UINT64_MAX,
    [FEATURE_OFI] = UINT64_MAX,
    [FEATURE_OFI_EWMA] = UINT64_MAX,
    [FEATURE_MLOFI] = UINT64_MAX,
    [FEATURE_TRADE_IMBALANCE] = UINT64_MAX,
    [FEATURE_QUEUE_CHANGE_BID] = UINT64_MAX,
    [FEATURE_QUEUE_CHANGE_ASK] = UINT64_MAX,
    [FEATURE_TIME_SINCE_TICK] = UINT64_MAX,
    [FEATURE_TRADE_INTENSITY] = UINT64_MAX,
    [FEATURE_MESSAGE_INTENSITY] = UINT64_MAX,
};

/* What needs a mid price; both sides are there. */
static void price_features(struct stream *s, const struct book_level level[2][N_LEVEL_FAR], double near_bid,
                           double near_ask, double value[FEATURES_N])
{
    const struct book_level *bid = level[BOOK_BID], *ask = level[BOOK_ASK];
    int64_t mid2 = (int64_t)bid->price + ask->price;
    double spread = (double)((int64_t)ask->price - bid->price);
    double tick = features_price_tick(mid2);
    int is_first = s->n_mid == 0;
    mean_add(&s->spread, W_SCALE, spread > tick ? spread : tick, is_first);

    double change = 0, change_10 = 0; /* of mid2 */
    if (!is_first) {
        uint64_t back = s->n_mid < N_MID ? s->n_mid : N_MID;
        change = (double)(mid2 - s->mid2[(s->n_mid - 1) % N_MID]);
        change_10 = (double)(mid2 - s->mid2[(s->n_mid - back) % N_MID]);
        s->mid_gap = (1 - W_MID) * (s->mid_gap + change); /* = m - E(m), free of the price's level */
        mean_add(&s->variance, W_MID, change * change, s->n_mid == 1);
    }
    s->mid2[s->n_mid % N_MID] = mid2;
    s->n_mid++;

    double unit2 = 2 * s->spread; /* S in units of mid2 */
    double qb = (double)bid->qty, qa = (double)ask->qty;
    value[FEATURE_MID_RETURN_1] = change / unit2;
    value[FEATURE_MID_RETURN_10] = change_10 / unit2;
    value[FEATURE_MID_EWMA_GAP] = s->mid_gap / unit2;
    value[FEATURE_MICRO_PRICE_GAP] = ratio(qb - qa, qb + qa) * spread / unit2;
    value[FEATURE_SPREAD_TICKS] = spread / tick;
    double slope_bid = slope(near_bid, bid, mid2, tick), slope_ask = slope(near_ask, ask, mid2, tick);
    value[FEATURE_SLOPE_IMBALANCE] = ratio(slope_bid - slope_ask, slope_bid + slope_ask);
    value[FEATURE_VOLATILITY] = 1e4 * sqrt(s->variance) / (double)mid2;
}

void features_tick(struct features *f, uint32_t stream, uint16_t locate, uint64_t ts_ns,
                   const struct book_set *books, float raw[FEATURES_N])
{
    assert(stream < f->n_stream);
    struct stream *s = &f->stream[stream];
    struct book_level level[2][N_LEVEL_FAR] = {0};
    book_levels(books, locate, BOOK_BID, level[BOOK_BID], N_LEVEL_FAR);
    book_levels(books, locate, BOOK_ASK, level[BOOK_ASK], N_LEVEL_FAR);
    const struct book_level *bid = level[BOOK_BID], *ask = level[BOOK_ASK];
    int is_first = s->n_tick == 0;
    double value[FEATURES_N] = {0}; /* where is_log: slog's argument */

    double qb = (double)bid->qty, qa = (double)ask->qty;
    double near_bid = level_sum(bid, N_LEVEL_NEAR, 0), near_ask = level_sum(ask, N_LEVEL_NEAR, 0);
    double far_bid = level_sum(bid, N_LEVEL_FAR, N_LEVEL_FAR),
           far_ask = level_sum(ask, N_LEVEL_FAR, N_LEVEL_FAR);
    value[FEATURE_IMBALANCE_L1] = ratio(qb - qa, qb + qa);
    value[FEATURE_IMBALANCE_L5] = ratio(near_bid - near_ask, near_bid + near_ask);
    value[FEATURE_IMBALANCE_L10] = ratio(far_bid - far_ask, far_bid + far_ask);
    if (bid->price && ask->price)
        price_features(s, level, near_bid, near_ask, value);

    double depth = (qb + qa) * 0.5, depth_near = (near_bid + near_ask) * 0.5;
    mean_add(&s->depth, W_SCALE, depth > 1 ? depth : 1, is_first);
    mean_add(&s->depth_near, W_SCALE, depth_near > 1 ? depth_near : 1, is_first);
    if (!is_first) {
        double multi = 0;
        for (int i = 0; i < N_LEVEL_NEAR; i++) {
            const struct book_level *bid0 = &s->near[BOOK_BID][i], *ask0 = &s->near[BOOK_ASK][i];
            multi += flow(bid0->price, bid0->qty, bid[i].price, bid[i].qty, ask0->price, ask0->qty,
                          ask[i].price, ask[i].qty);
        }
        double ofi = s->ofi / s->depth;
        mean_add(&s->ofi_mean, W_OFI, ofi, s->n_tick == 1);
        mean_add(&s->bought_mean, W_TRADE, s->bought, s->n_tick == 1);
        mean_add(&s->sold_mean, W_TRADE, s->sold, s->n_tick == 1);
        value[FEATURE_OFI] = ofi;
        value[FEATURE_OFI_EWMA] = s->ofi_mean;
        value[FEATURE_MLOFI] = multi / s->depth_near;
        value[FEATURE_TRADE_IMBALANCE] = (s->bought - s->sold) / s->depth;
        value[FEATURE_TRADE_IMBALANCE_EWMA] =
            ratio(s->bought_mean - s->sold_mean, s->bought_mean + s->sold_mean);
        value[FEATURE_QUEUE_CHANGE_BID] = s->queue_change[BOOK_BID] / s->depth;
        value[FEATURE_QUEUE_CHANGE_ASK] = s->queue_change[BOOK_ASK] / s->depth;
        if (ts_ns > s->tick_ns)
            value[FEATURE_TIME_SINCE_TICK] = (double)(ts_ns - s->tick_ns) / 1e3;
    }
    decay(s, ts_ns);
    /* A steady rate r leaves a count of r * half-life / ln 2. */
    value[FEATURE_TRADE_INTENSITY] = s->n_trade * (LN_2 * 1e9 / TRADE_HALF_LIFE_NS);
    value[FEATURE_MESSAGE_INTENSITY] = s->n_message * (LN_2 * 1e9 / MESSAGE_HALF_LIFE_NS);

    s->ofi = s->bought = s->sold = s->queue_change[BOOK_BID] = s->queue_change[BOOK_ASK] = 0;
    memcpy(s->near[BOOK_BID], bid, sizeof(s->near[BOOK_BID]));
    memcpy(s->near[BOOK_ASK], ask, sizeof(s->near[BOOK_ASK]));
    if (is_first || ts_ns > s->tick_ns)
        s->tick_ns = ts_ns;
    s->n_tick++;
    /* All at once, in vector registers: 165 to 115 ns, with their share of mispredicted branches. */
    for (int i = 0; i < FEATURES_N; i++)
        raw[i] = (float)double_of_bits((bits_of_double(slog(value[i])) & is_log[i]) |
                                       (bits_of_double(value[i]) & ~is_log[i]));
}

/* fp16_from_double's answer, the nearest binary16 value on the grid, ties to even, clamped, in steps that a
 * vector unit takes (20 of them: 200 to 15 ns): on the bits, without a branch. Adding a power of two and
 * taking it off again rounds to the last bit of the sum: that of the value's own binary16 exponent, but not
 * below the grid. */
static inline uint16_t quantise(float v)
{
    enum {
        MORE_BITS = FP32_MANTISSA_BITS - FP16_MANTISSA_BITS,
        LARGEST = 0x417fe000, /* 16 - 2^-7 */
        GRID_EXPONENT = FP32_BIAS + FP32_MANTISSA_BITS - KL_X_FRAC,
    };
    static_assert(KL_X_FRAC == 11 && KL_X_ABS_MAX == (16 << 11) - (1 << 4), "LARGEST");
    const uint32_t sign = bits_of_float(v) >> 31, above = bits_of_float(v) & 0x7fffffff;
    const uint32_t clamped =
        (above < LARGEST ? above : LARGEST) & (0u - (above <= FP32_INFINITY_BITS)); /* not a number: 0 */
    const uint32_t own = (clamped >> FP32_MANTISSA_BITS) + MORE_BITS;
    const float power = float_of_bits((own > GRID_EXPONENT ? own : GRID_EXPONENT) << FP32_MANTISSA_BITS);
    const uint32_t rounded = bits_of_float((float_of_bits(clamped) + power) - power);
    const uint32_t fp16 = (rounded >> MORE_BITS) - ((FP32_BIAS - FP16_BIAS) << FP16_MANTISSA_BITS);
    return (uint16_t)((fp16 | sign << 15) & (0u - (rounded != 0)));
}

void features_quantise(const struct model *model, const float raw[FEATURES_N], uint16_t x[KL_N_IN_MAX])
{
    assert(model->n_feature <= FEATURES_N);
    uint16_t all[FEATURES_N];
    for (int i = 0; i < FEATURES_N; i++)
        all[i] = quantise((raw[i] - model->feature[i].mean) * model->feature[i].scale);
    memcpy(x, all, model->n_feature * sizeof(x[0]));
}

uint64_t features_hash(const uint16_t *x, uint32_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ (x[i] & 0xff)) * 0x100000001b3u;
        hash = (hash ^ (x[i] >> 8)) * 0x100000001b3u;
    }
    return hash;
}

const struct features_info *features_info(uint32_t index)
{
    return index < FEATURES_N ? &info[index] : NULL;
}

const char *features_name(uint32_t index)
{
    return index < FEATURES_N ? info[index].name : NULL;
}
