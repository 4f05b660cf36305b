#include "flow.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"

/* Self-excitation: each event raises the intensity by share * rate of the kernel, which decays. */
static const double fast_share = 0.30, fast_per_ns = 1.0 / 300e3;
static const double slow_share = 0.25, slow_per_ns = 1.0 / 50e6;
static const double common_per_ns = 1.0 / 60e6;
static const double halted_activity = 0.15;

enum { TRUTH_ORDERS = 32, BOOK_ORDERS = 70 };

struct flow_symbol {
    double base_per_ns;  /* immigrant intensity */
    double fast, slow;   /* excitation at excite_ns, 1/ns */
    double bound_per_ns; /* intensity right after excite_ns: the thinning bound */
    double pressure, beta;
    uint64_t excite_ns;
    uint64_t cross_qty[2];
    uint32_t reference; /* last mid, where orders go when the book is empty or halted */
    uint32_t first_price;
    uint32_t step; /* distance of levels: a tick, or many for dear stocks */
    uint32_t spread_steps;
    uint32_t lot;
    int8_t regime;
    uint8_t state;      /* enum flow_state */
    uint8_t truth_left; /* orders until the next sample */
    int8_t truth_sign;
    uint64_t truth_mid2; /* 0: no sample open */
};

struct flow {
    struct flow_symbol *symbol;
    uint16_t *locate;
    char (*stock)[8];
    double *burst_weight; /* running sum */
    struct rng rng;
    struct flow_truth truth;
    double activity, common;
    uint64_t common_ns;
    uint32_t n_symbol;
};

/* Pronounceable five-letter tickers of no company in particular: no two indexes give the same. */
static void make_stock(uint32_t index, char stock[8])
{
    static const char consonant[] = "BDFGKLMNPRSTVWXZ", vowel[] = "AEIOUY";
    uint32_t i = index * 3571u % 9216u; /* 3571 is prime to 16 * 6 * 16 * 6: a permutation */
    memset(stock, ' ', 8);
    stock[0] = consonant[i % 16];
    stock[1] = vowel[i / 16 % 6];
    stock[2] = consonant[i / 96 % 16];
    stock[3] = vowel[i / 1536 % 6];
    stock[4] = consonant[(i * 7 + i / 96) % 16];
}

static void make_symbol(struct flow *flow, uint32_t i)
{
    struct flow_symbol *sym = &flow->symbol[i];
    struct rng *rng = &flow->rng;
    uint32_t kind = i % 10;
    int dear = i == 7;
    if (kind == 4) { /* below a dollar: ticks of 0.0001 */
        sym->first_price = (uint32_t)rng_between(rng, 1800, 8500);
        sym->step = sym->first_price < 4000 ? 2 : 5;
        sym->spread_steps = 2;
        sym->lot = 500;
    } else if (dear) { /* one stock per market whose price needs the upper bits of the field */
        sym->first_price = (uint32_t)rng_between(rng, 141000, 158000) * 10000;
        sym->step = 40000; /* 4 USD */
        sym->spread_steps = 3;
        sym->lot = 1;
    } else {
        double low = 8.0, factor = 1.0;
        for (int doublings = (int)rng_below(rng, 6); doublings > 0; doublings--)
            factor *= 2.0;
        double price_usd = low * factor * (1.0 + rng_unit(rng)); /* 8 to 512, even in the logarithm */
        sym->first_price = (uint32_t)(price_usd * 100.0) * 100;
        sym->step = price_usd < 25.0 ? 100 : price_usd < 100.0 ? 200 : price_usd < 250.0 ? 300 : 500;
        sym->spread_steps = price_usd < 40.0 ? 1 : 2;
        sym->lot = price_usd < 200.0 ? 100 : 50;
    }
    sym->first_price -= sym->first_price % sym->step;
    sym->reference = sym->first_price;
    sym->beta = 0.5 + 0.7 * rng_unit(rng);
    sym->truth_left = TRUTH_ORDERS;
}

struct flow *flow_create(uint32_t n_symbol, double rate, uint64_t seed)
{
    struct flow *flow = calloc(1, sizeof *flow);
    assert(n_symbol > 0 && n_symbol <= FLOW_SYMBOL_MAX && rate > 0);
    if (!flow)
        return NULL;
    flow->symbol = calloc(n_symbol, sizeof *flow->symbol);
    flow->locate = calloc(n_symbol, sizeof *flow->locate);
    flow->stock = calloc(n_symbol, sizeof *flow->stock);
    flow->burst_weight = calloc(n_symbol, sizeof *flow->burst_weight);
    if (!flow->symbol || !flow->locate || !flow->stock || !flow->burst_weight) {
        flow_free(flow);
        return NULL;
    }
    rng_seed(&flow->rng, seed, 3);
    flow->n_symbol = n_symbol;
    flow->activity = 1.0;
    /* Locates are spread as those of a few chosen symbols among all of a real day are. */
    uint32_t stride = 65535 / n_symbol < 251 ? 65535 / n_symbol : 251;
    double sum = 0.0, burst_sum = 0.0;
    for (uint32_t i = 0; i < n_symbol; i++)
        sum += 1.0 / (i + 6.0);
    for (uint32_t i = 0; i < n_symbol; i++) {
        flow->locate[i] = (uint16_t)(1 + i * stride);
        make_stock(i, flow->stock[i]);
        make_symbol(flow, i);
        double share = 1.0 / (i + 6.0) / sum;
        flow->symbol[i].base_per_ns = rate * 1e-9 * share * (1.0 - fast_share - slow_share);
        flow->symbol[i].bound_per_ns = flow->symbol[i].base_per_ns;
        burst_sum += 1.0 / (i + 20.0);
        flow->burst_weight[i] = burst_sum;
    }
    return flow;
}

void flow_free(struct flow *flow)
{
    if (!flow)
        return;
    free(flow->symbol);
    free(flow->locate);
    free(flow->stock);
    free(flow->burst_weight);
    free(flow);
}

const uint16_t *flow_locates(const struct flow *flow)
{
    return flow->locate;
}

const char (*flow_stocks(const struct flow *flow))[8]
{
    return (const char(*)[8])flow->stock;
}

uint32_t flow_reference(const struct flow *flow, uint32_t symbol)
{
    return flow->symbol[symbol].reference;
}

uint32_t flow_lot(const struct flow *flow, uint32_t symbol)
{
    return flow->symbol[symbol].lot;
}

uint64_t flow_cross_qty(const struct flow *flow, uint32_t symbol, enum exchange_side side)
{
    return flow->symbol[symbol].cross_qty[side];
}

void flow_draw_cross(struct flow *flow, uint32_t symbol, double scale)
{
    struct flow_symbol *sym = &flow->symbol[symbol];
    int none = rng_chance(&flow->rng, 0.15); /* an issue without a cross */
    for (int side = 0; side < 2; side++) {
        double lots = scale * (2.0 + 10.0 * rng_exponential(&flow->rng));
        sym->cross_qty[side] = none ? 0 : (uint64_t)lots * sym->lot;
    }
}

void flow_set_activity(struct flow *flow, double activity)
{
    flow->activity = activity;
}

/* -- time -------------------------------------------------------------------------------------- */

static void decay(struct flow_symbol *sym, uint64_t ts_ns)
{
    double dt = (double)(ts_ns - sym->excite_ns);
    sym->fast *= rng_exp_minus(dt * fast_per_ns);
    sym->slow *= rng_exp_minus(dt * slow_per_ns);
    sym->excite_ns = ts_ns;
}

static double intensity(const struct flow *flow, const struct flow_symbol *sym)
{
    double per_ns = sym->base_per_ns * flow->activity + sym->fast + sym->slow;
    return sym->state != FLOW_TRADING ? per_ns * halted_activity : per_ns;
}

uint64_t flow_next(struct flow *flow, uint32_t symbol, uint64_t now_ns)
{
    struct flow_symbol *sym = &flow->symbol[symbol];
    decay(sym, now_ns);
    sym->bound_per_ns = intensity(flow, sym);
    return now_ns + 1 + (uint64_t)(rng_exponential(&flow->rng) / sym->bound_per_ns);
}

int flow_happens(struct flow *flow, uint32_t symbol, uint64_t ts_ns)
{
    struct flow_symbol *sym = &flow->symbol[symbol];
    decay(sym, ts_ns);
    return rng_unit(&flow->rng) * sym->bound_per_ns < intensity(flow, sym);
}

static void excite(struct flow_symbol *sym, uint64_t ts_ns)
{
    decay(sym, ts_ns);
    sym->fast += fast_share * fast_per_ns;
    sym->slow += slow_share * slow_per_ns;
}

/* -- pressure ---------------------------------------------------------------------------------- */

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double common_at(const struct flow *flow, uint64_t ts_ns)
{
    return flow->common * rng_exp_minus((double)(ts_ns - flow->common_ns) * common_per_ns);
}

static double step_pressure(struct flow *flow, struct flow_symbol *sym, uint64_t ts_ns)
{
    struct rng *rng = &flow->rng;
    if (rng_below(rng, 300) == 0) {
        /* Far from the first price the way back is likelier: a long day stays in a sane range. */
        double away = ((double)sym->reference - (double)sym->first_price) / (15.0 * sym->step);
        double up = clamp(1.0 / 3.0 - away / 3.0, 0.02, 0.64), r = rng_unit(rng);
        sym->regime = (int8_t)(r < up ? 1 : r < up + 1.0 / 3.0 ? 0 : -1);
    }
    sym->pressure += 0.04 * (0.85 * sym->regime - sym->pressure) + 0.06 * (rng_unit(rng) - 0.5);
    return clamp(sym->pressure + sym->beta * common_at(flow, ts_ns), -1.0, 1.0);
}

static void sample_truth(struct flow *flow, struct flow_symbol *sym, const struct exchange *ex,
                         uint32_t symbol, double pressure)
{
    if (--sym->truth_left > 0)
        return;
    sym->truth_left = TRUTH_ORDERS;
    uint32_t bid = exchange_best(ex, symbol, EXCHANGE_BUY), ask = exchange_best(ex, symbol, EXCHANGE_SELL);
    uint64_t mid2 = bid && ask && sym->state == FLOW_TRADING ? (uint64_t)bid + ask : 0;
    if (mid2 && sym->truth_mid2) {
        if (mid2 == sym->truth_mid2) {
            flow->truth.n_flat++;
        } else {
            flow->truth.n_up_down++;
            flow->truth.n_right += (mid2 > sym->truth_mid2 ? 1 : -1) == sym->truth_sign;
        }
    }
    sym->truth_mid2 = mid2;
    sym->truth_sign = pressure > 0 ? 1 : -1;
}

void flow_truth(const struct flow *flow, struct flow_truth *out)
{
    *out = flow->truth;
}

/* -- orders ------------------------------------------------------------------------------------ */

static uint32_t draw_qty(struct flow *flow, const struct flow_symbol *sym)
{
    static const uint8_t lots[16] = {1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 8, 12};
    struct rng *rng = &flow->rng;
    uint32_t qty = sym->lot * lots[rng_below(rng, 16)];
    if (sym->lot > 1 && rng_below(rng, 4) == 0)
        qty = (uint32_t)rng_between(rng, 1, 2 * sym->lot - 1); /* odd lots */
    return qty;
}

static unsigned draw_flags(struct flow *flow)
{
    uint64_t r = rng_below(&flow->rng, 100);
    return r < 4 ? EXCHANGE_ATTRIBUTED : r < 8 ? EXCHANGE_DISCRETION : 0;
}

/* Draws never share an expression: C leaves the order of arguments and operands to the compiler. */
static void passive_order(struct flow *flow, const struct flow_symbol *sym, struct exchange *ex,
                          uint32_t symbol, unsigned side, uint32_t price)
{
    uint32_t qty = draw_qty(flow, sym);
    unsigned flags = draw_flags(flow);
    exchange_order(ex, symbol, side, price, qty, flags);
}

/* Geometric, mean about 1 / p - 1, at most max. */
static uint32_t draw_geometric(struct flow *flow, double p, uint32_t max)
{
    uint32_t n = 0;
    while (n < max && !rng_chance(&flow->rng, p))
        n++;
    return n;
}

/* price moved by n steps away from the middle (negative: towards it); 0 when it would leave the legal range.
 */
static uint32_t behind(uint32_t price, unsigned side, uint32_t step, int64_t n)
{
    int64_t moved = (int64_t)price + (side == EXCHANGE_BUY ? -n : n) * (int64_t)step;
    if (moved < 1 || moved > EXCHANGE_PRICE_MAX)
        return 0;
    /* Across one dollar the grid changes. */
    uint32_t grid = exchange_tick((uint32_t)moved);
    return (uint32_t)moved - (uint32_t)moved % grid;
}

/* Where a passive order goes. lean: pressure seen from the order's side. */
static uint32_t place(struct flow *flow, const struct flow_symbol *sym, const struct exchange *ex,
                      uint32_t symbol, unsigned side, double lean)
{
    uint32_t own = exchange_best(ex, symbol, side), other = exchange_best(ex, symbol, side ^ 1u);
    if (sym->state != FLOW_TRADING)
        return behind(sym->reference, side, sym->step, (int64_t)draw_geometric(flow, 0.25, 30) - 1);
    if (!own)
        return behind(other ? other : sym->reference, side, sym->step,
                      other ? (int64_t)sym->spread_steps : (int64_t)sym->spread_steps / 2 + 1);
    if (other) {
        uint32_t spread = own < other ? other - own : own - other;
        int64_t room = (int64_t)(spread / sym->step) - 1; /* free levels inside */
        if (room > 0) {
            int64_t wide = room + 1 - (int64_t)sym->spread_steps;
            double inside = clamp(0.14 + 0.22 * (double)wide + 0.30 * lean, 0.01, 0.95);
            if (rng_chance(&flow->rng, inside))
                return behind(own, side, sym->step, wide > 2 && room > 2 ? -2 : -1);
        }
    }
    if (rng_chance(&flow->rng, 0.42 + 0.18 * lean))
        return own;
    uint32_t price = behind(own, side, sym->step, 1 + draw_geometric(flow, 0.22, 40));
    /* Levels of a dear stock are not all on its steps. */
    if (price && sym->step > exchange_tick(price) && rng_chance(&flow->rng, 0.1))
        price = behind(price, side, exchange_tick(price), 1);
    return price;
}

/* A shown order of the side: near the touch, or any; 0: none. */
static uint32_t draw_order(struct flow *flow, const struct exchange *ex, uint32_t symbol, unsigned side)
{
    uint32_t n_level, n_order;
    const struct exchange_level *level = exchange_levels(ex, symbol, side, &n_level);
    const uint32_t *shown = exchange_shown(ex, symbol, side, &n_order);
    if (!n_order)
        return 0;
    if (rng_chance(&flow->rng, 0.50)) {
        uint32_t k = draw_geometric(flow, 0.60, 3);
        if (k >= n_level)
            k = n_level - 1;
        /* The youngest leave first more often than not. */
        level += n_level - 1 - k;
        return rng_chance(&flow->rng, 0.6) ? level->tail : level->head;
    }
    return shown[rng_below(&flow->rng, n_order)];
}

static void act_take(struct flow *flow, const struct flow_symbol *sym, struct exchange *ex, uint32_t symbol,
                     unsigned side)
{
    struct rng *rng = &flow->rng;
    uint32_t n, qty = draw_qty(flow, sym);
    const struct exchange_level *level = exchange_levels(ex, symbol, side ^ 1u, &n);
    if (!n)
        return;
    const struct exchange_level *best = &level[n - 1];
    uint32_t all = best->qty < UINT32_MAX / 4 ? (uint32_t)best->qty : UINT32_MAX / 4;
    uint64_t r = rng_below(rng, 100);
    if (r < 40) { /* a part of the queue */
        if (qty > all)
            qty = all;
        exchange_order(ex, symbol, side, best->price, qty, EXCHANGE_IOC);
    } else if (r < 68) { /* all of it */
        exchange_order(ex, symbol, side, best->price, all, EXCHANGE_IOC);
    } else if (r < 92) { /* all of it, and the rest becomes the new best of the other side */
        exchange_order(ex, symbol, side, best->price, all + qty, draw_flags(flow) & EXCHANGE_ATTRIBUTED);
    } else if (r < 97) { /* through the level, limited */
        exchange_order(ex, symbol, side, behind(best->price, side, sym->step, -1), all + qty, EXCHANGE_IOC);
    } else { /* market */
        exchange_order(ex, symbol, side, 0, qty, EXCHANGE_IOC);
    }
}

static void act_hidden(struct flow *flow, const struct flow_symbol *sym, struct exchange *ex, uint32_t symbol,
                       unsigned side)
{
    uint32_t bid = exchange_best(ex, symbol, EXCHANGE_BUY), ask = exchange_best(ex, symbol, EXCHANGE_SELL);
    if (!bid || !ask)
        return;
    uint32_t half = exchange_tick(bid) > 1 ? exchange_tick(bid) / 2 : 1, mid = bid + (ask - bid) / 2;
    uint32_t price = rng_chance(&flow->rng, 0.7) ? mid - mid % half : side == EXCHANGE_BUY ? bid : ask;
    exchange_order(ex, symbol, side, price, draw_qty(flow, sym), EXCHANGE_HIDDEN);
}

/* Weights of takers, adds, replaces, partial cancels, hidden orders; cancels make up the rest and
 * grow with the book, which keeps its size stationary. */
static void act(struct flow *flow, struct exchange *ex, uint32_t symbol, double pressure)
{
    struct flow_symbol *sym = &flow->symbol[symbol];
    struct rng *rng = &flow->rng;
    uint32_t n_shown[2];
    if (sym->state == FLOW_FROZEN)
        return;
    for (unsigned side = 0; side < 2; side++)
        exchange_shown(ex, symbol, side, &n_shown[side]);
    double fill = (double)(n_shown[0] + n_shown[1]) / (2.0 * BOOK_ORDERS);
    double w_take = sym->state != FLOW_TRADING ? 0.0 : 0.024, w_add = 0.465, w_replace = 0.060,
           w_part = 0.008;
    double w_hidden = sym->state != FLOW_TRADING ? 0.0 : 0.012, w_cancel = 0.400 * fill;
    double r = rng_unit(rng) * (w_take + w_add + w_replace + w_part + w_hidden + w_cancel);
    if ((r -= w_take) < 0.0) {
        act_take(flow, sym, ex, symbol,
                 rng_chance(rng, 0.5 + 0.46 * pressure) ? EXCHANGE_BUY : EXCHANGE_SELL);
    } else if ((r -= w_add) < 0.0) {
        unsigned side = rng_chance(rng, 0.5 + 0.25 * pressure) ? EXCHANGE_BUY : EXCHANGE_SELL;
        uint32_t price = place(flow, sym, ex, symbol, side, side == EXCHANGE_BUY ? pressure : -pressure);
        if (price)
            passive_order(flow, sym, ex, symbol, side, price);
    } else if ((r -= w_hidden) < 0.0) {
        act_hidden(flow, sym, ex, symbol, rng_chance(rng, 0.5) ? EXCHANGE_BUY : EXCHANGE_SELL);
    } else {
        /* Bids are left under downward pressure. The fuller side loses more: both stay near their size. */
        double n_all = (double)(n_shown[0] + n_shown[1]) + 1e-9;
        double bid_share = clamp((double)n_shown[0] / n_all - 0.32 * pressure, 0.02, 0.98);
        unsigned side = rng_chance(rng, bid_share) ? EXCHANGE_BUY : EXCHANGE_SELL;
        uint32_t order = draw_order(flow, ex, symbol, side);
        if (!order)
            return;
        const struct exchange_order *o = exchange_get(ex, order);
        if ((r -= w_replace) < 0.0) {
            uint32_t price = rng_chance(rng, 0.25) ? o->price
                                                   : place(flow, sym, ex, symbol, side,
                                                           side == EXCHANGE_BUY ? pressure : -pressure);
            uint32_t qty = rng_chance(rng, 0.6) ? o->qty : draw_qty(flow, sym);
            if (price)
                exchange_replace(ex, order, price, qty);
        } else if ((r -= w_part) < 0.0 && o->qty > 1) {
            exchange_cancel(ex, order, (uint32_t)rng_between(rng, 1, o->qty - 1));
        } else {
            exchange_cancel(ex, order, o->qty);
        }
    }
    uint32_t bid = exchange_best(ex, symbol, EXCHANGE_BUY), ask = exchange_best(ex, symbol, EXCHANGE_SELL);
    if (bid && ask && sym->state == FLOW_TRADING) {
        sym->reference = (uint32_t)(((uint64_t)bid + ask) / 2);
        sym->reference -= sym->reference % exchange_tick(sym->reference);
    }
}

void flow_act(struct flow *flow, struct exchange *ex, uint32_t symbol, uint64_t ts_ns)
{
    struct flow_symbol *sym = &flow->symbol[symbol];
    double pressure = step_pressure(flow, sym, ts_ns);
    excite(sym, ts_ns);
    act(flow, ex, symbol, pressure);
    sample_truth(flow, sym, ex, symbol, pressure);
}

void flow_seed_book(struct flow *flow, struct exchange *ex, uint32_t symbol)
{
    const struct flow_symbol *sym = &flow->symbol[symbol];
    unsigned side = (unsigned)rng_below(&flow->rng, 2);
    int64_t n = (int64_t)draw_geometric(flow, 0.15, 30) + (side == EXCHANGE_SELL ? sym->spread_steps : 0);
    uint32_t price = behind(sym->first_price, side, sym->step, n);
    if (price)
        passive_order(flow, sym, ex, symbol, side, price);
}

void flow_set_state(struct flow *flow, uint32_t symbol, enum flow_state state)
{
    struct flow_symbol *sym = &flow->symbol[symbol];
    sym->state = (uint8_t)state;
    sym->truth_mid2 = 0;
}

void flow_shock(struct flow *flow, int sign, uint64_t ts_ns)
{
    flow->common = clamp(common_at(flow, ts_ns) + 0.9 * sign, -1.0, 1.0);
    flow->common_ns = ts_ns;
}

uint32_t flow_act_in_burst(struct flow *flow, struct exchange *ex, int sign, uint64_t ts_ns)
{
    double at = rng_unit(&flow->rng) * flow->burst_weight[flow->n_symbol - 1];
    uint32_t low = 0, high = flow->n_symbol - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (flow->burst_weight[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    double pressure = step_pressure(flow, &flow->symbol[low], ts_ns);
    act(flow, ex, low, clamp(0.3 * pressure + 0.8 * sign, -1.0, 1.0));
    return low;
}
