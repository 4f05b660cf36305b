#include "synth.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "agenda.h"
#include "rng.h"

static const uint64_t second_ns = 1000000000, ms_ns = 1000000, us_ns = 1000;
/* Midnight of Thursday 2026-02-19 in New York (UTC-5), ns since the epoch. */
static const uint64_t midnight_ns = 1771477200u * 1000000000ull;
static const uint64_t start_ns = (9 * 3600 + 29 * 60 + 48) * 1000000000ull;
static const uint64_t open_ns = (9 * 3600 + 30 * 60) * 1000000000ull;

enum {
    EVENT_APART_NS = 150, /* the matching engine's own pace */
    CONTROL_NS = 50000000,
    BROKEN_ONE_IN = 100000, /* messages */
    SEED_ORDERS = 120,      /* per symbol before the open; a third of it above 1,000 symbols */
    END_PACKETS = 3,
    BURST_NS_MAX = 250000,
};

enum kind {
    START,
    SYSTEM_HOURS,
    SEED,
    OPENING_IMBALANCE,
    OPEN,
    ORDER,
    CONTROL,
    BURST,
    BURST_ORDER,
    LOSS,
    HALT,
    HALT_COLLAR,
    HALT_IMBALANCE,
    HALT_QUOTING,
    HALT_END,
    CLOSING_IMBALANCE,
    CLOSE,
    SYSTEM_END,
    END,
};

struct synth {
    struct synth_options options;
    struct exchange *exchange;
    struct flow *flow;
    struct feed *feed;
    struct rng rng;
    struct agenda agenda;
    struct synth_halt *halt;
    struct synth_burst *burst;
    uint64_t *burst_seen; /* symbol -> number of its last burst + 1 */
    uint8_t *loss_lines;
    uint32_t n_halt, n_burst, n_loss_started, n_seed_left;
    uint64_t now_ns, close_ns;
    uint64_t open_messages, target_messages, broken_messages;
    double activity, activity_s, mood;
    int burst_sign;
    uint32_t burst_target;
    uint64_t burst_mean_ns, burst_before;
    int over;
};

void synth_defaults(struct synth_options *options)
{
    *options = (struct synth_options){.seed = 1,
                                      .n_symbol = 30,
                                      .rate = 12000,
                                      .seconds = 60,
                                      .n_gap = 6,
                                      .n_lost_gap = 1,
                                      .n_burst = SYNTH_BURST_AUTO,
                                      .n_halt = 3,
                                      .lag_ns = 6000};
}

/* -- events ------------------------------------------------------------------------------------ */

static void schedule(struct synth *s, uint64_t ts_ns, enum kind kind, uint32_t arg)
{
    agenda_put(&s->agenda, ts_ns, kind, arg);
}

/* The exchange comes to its next event: at ts_ns, or later when it is behind. */
static void at(struct synth *s, uint64_t ts_ns)
{
    s->now_ns = ts_ns > s->now_ns + EVENT_APART_NS ? ts_ns : s->now_ns + EVENT_APART_NS;
    exchange_at(s->exchange, s->now_ns);
}

static void to_feed(void *ctx, uint64_t ts_ns, const uint8_t *msg, uint16_t len)
{
    feed_message(ctx, ts_ns, msg, len);
}

static double trading_s(const struct synth *s)
{
    return (double)(s->close_ns - open_ns) * 1e-9;
}

/* -- the day ----------------------------------------------------------------------------------- */

/* The opening spins, message by message: R, H, Y, L for every symbol. */
static void start(struct synth *s)
{
    static const char spins[] = "RHYLL";
    at(s, start_ns);
    admin_system_event(s->exchange, 'O');
    for (uint32_t spin = 0; spins[spin]; spin++)
        for (uint32_t i = 0; i < s->options.n_symbol; i++) {
            at(s, s->now_ns + 2 * us_ns);
            switch (spins[spin]) {
            case 'R':
                admin_directory(s->exchange, s->flow, i);
                break;
            case 'H':
                admin_trading_action(s->exchange, i, 'T', "    ");
                break;
            case 'Y':
                admin_reg_sho(s->exchange, i);
                break;
            default:
                admin_participant(s->exchange, i, spin == 4);
            }
        }
}

static void system_hours(struct synth *s, uint64_t ts_ns)
{
    at(s, ts_ns);
    admin_system_event(s->exchange, 'S');
    at(s, s->now_ns + 100 * us_ns);
    admin_breaker_levels(s->exchange);
}

/* Position of the k-th of n things spread over a part of the trading time, jittered inside its slot. */
static uint64_t spread(struct synth *s, uint32_t k, uint32_t n, double from, double to)
{
    double slot = (to - from) / n, place = from + slot * (k + 0.15 + 0.7 * rng_unit(&s->rng));
    return open_ns + (uint64_t)(place * (double)(s->close_ns - open_ns));
}

static void plan_losses(struct synth *s)
{
    uint32_t n = 0, n_b = (s->options.n_gap + 2) / 3, n_all = s->options.n_gap + n_b + s->options.n_lost_gap;
    for (uint32_t i = 0; i < n_all; i++)
        s->loss_lines[n++] = i < s->options.n_lost_gap         ? FEED_LINE_A | FEED_LINE_B
                             : i < s->options.n_lost_gap + n_b ? FEED_LINE_B
                                                               : FEED_LINE_A;
    for (uint32_t i = n; i > 1; i--) { /* shuffled */
        uint32_t j = (uint32_t)rng_below(&s->rng, i);
        uint8_t swap = s->loss_lines[i - 1];
        s->loss_lines[i - 1] = s->loss_lines[j];
        s->loss_lines[j] = swap;
    }
    for (uint32_t i = 0; i < n; i++)
        schedule(s, spread(s, i, n, 0.05, 0.9), LOSS, i);
}

static void open_market(struct synth *s)
{
    const uint32_t n = s->options.n_symbol;
    struct exchange_cross cross;
    at(s, open_ns);
    admin_system_event(s->exchange, 'Q');
    for (uint32_t i = 0; i < n; i++) {
        at(s, s->now_ns + us_ns);
        exchange_auction(s->exchange, i, flow_cross_qty(s->flow, i, EXCHANGE_BUY),
                         flow_cross_qty(s->flow, i, EXCHANGE_SELL), flow_reference(s->flow, i), 'O', &cross);
        exchange_set_matching(s->exchange, i, 1);
        flow_draw_cross(s->flow, i, 1.5); /* for the close */
        schedule(s, flow_next(s->flow, i, s->now_ns), ORDER, i);
    }
    s->open_messages = s->broken_messages = exchange_n_messages(s->exchange);
    s->target_messages = s->options.messages > s->open_messages + 2 * n
                             ? s->options.messages - s->open_messages - 2 * n
                             : (uint64_t)(s->options.rate * trading_s(s));
    schedule(s, s->now_ns, CONTROL, 0);
    for (uint32_t i = 0; i < s->options.n_burst; i++)
        schedule(s, spread(s, i, s->options.n_burst, 0.02, 0.98), BURST, 0);
    for (uint32_t i = 0; i < s->options.n_halt; i++)
        schedule(s, spread(s, i, s->options.n_halt, 0.04, 0.92), HALT, i);
    plan_losses(s);
    uint64_t seconds = (s->close_ns - open_ns) / second_ns;
    for (uint64_t i = 1; i <= (seconds < 40 ? seconds / 4 : 10); i++)
        schedule(s, s->close_ns - i * second_ns, CLOSING_IMBALANCE, 0);
    schedule(s, s->close_ns, CLOSE, 0);
}

/* Steers the activity so that the messages asked for are there at the close; the mood makes it breathe. */
static void control(struct synth *s, uint64_t ts_ns)
{
    uint64_t total = exchange_n_messages(s->exchange), done = total - s->open_messages;
    if (rng_below(&s->rng, BROKEN_ONE_IN) < total - s->broken_messages) {
        at(s, ts_ns);
        exchange_break_trade(s->exchange);
    }
    s->broken_messages = total;
    double left_s = (double)(s->close_ns - ts_ns) * 1e-9, left = (double)s->target_messages - (double)done;
    double per_activity_s = s->activity_s > 1.0 ? (double)done / s->activity_s : s->options.rate * 1.05;
    s->mood += 0.05 * (1.0 - s->mood) + 0.25 * (rng_unit(&s->rng) - 0.5);
    s->mood = s->mood < 0.5 ? 0.5 : s->mood > 1.8 ? 1.8 : s->mood;
    double need = left_s > 0 && left > 0 ? left / left_s / per_activity_s : 0.05;
    s->activity = need * (left_s > 1.0 ? s->mood : 1.0);
    s->activity = s->activity < 0.05 ? 0.05 : s->activity > 4.0 ? 4.0 : s->activity;
    flow_set_activity(s->flow, s->activity);
    s->activity_s += s->activity * (double)CONTROL_NS * 1e-9;
    if (ts_ns + CONTROL_NS < s->close_ns)
        schedule(s, ts_ns + CONTROL_NS, CONTROL, 0);
}

static void burst_start(struct synth *s, uint64_t ts_ns)
{
    struct synth_burst *burst = &s->burst[s->n_burst++];
    s->burst_sign = rng_below(&s->rng, 2) ? 1 : -1;
    s->burst_target = (uint32_t)rng_between(&s->rng, 100, 400);
    s->burst_mean_ns = rng_between(&s->rng, 100 * us_ns, 200 * us_ns) / s->burst_target;
    s->burst_before = exchange_n_messages(s->exchange);
    *burst = (struct synth_burst){.from_ns = ts_ns};
    flow_shock(s->flow, s->burst_sign, ts_ns);
    schedule(s, ts_ns, BURST_ORDER, s->n_burst - 1);
}

static void burst_order(struct synth *s, uint64_t ts_ns, uint32_t index)
{
    struct synth_burst *burst = &s->burst[index];
    at(s, ts_ns);
    uint32_t symbol = flow_act_in_burst(s->flow, s->exchange, s->burst_sign, s->now_ns);
    if (s->burst_seen[symbol] != index + 1u) {
        s->burst_seen[symbol] = index + 1u;
        burst->symbols++;
    }
    burst->messages = (uint32_t)(exchange_n_messages(s->exchange) - s->burst_before);
    burst->to_ns = s->now_ns;
    /* The next burst, should it come so soon, takes over; halted symbols answer nothing. */
    if (burst->messages < s->burst_target && index + 1 == s->n_burst &&
        s->now_ns < burst->from_ns + BURST_NS_MAX)
        schedule(s, s->now_ns + (uint64_t)(rng_exponential(&s->rng) * (double)s->burst_mean_ns), BURST_ORDER,
                 index);
}

static void halt_start(struct synth *s, uint64_t ts_ns, uint32_t index)
{
    static const char reasons[3][5] = {"LUDP", "T1", "OPER"};
    struct synth_halt *halt = &s->halt[s->n_halt++];
    assert(index + 1 == s->n_halt);
    /* Inside its slot (spread: at most 0.85 of a slot in), so that no two halts overlap. */
    double slot_ns = 0.88 * (double)(s->close_ns - open_ns) / s->options.n_halt;
    uint64_t length_ns = (uint64_t)((0.5 + 0.5 * rng_unit(&s->rng)) * 0.28 * slot_ns);
    if (length_ns > 6 * second_ns)
        length_ns = 3 * second_ns + rng_below(&s->rng, 3 * second_ns);
    at(s, ts_ns);
    *halt = (struct synth_halt){.symbol = (uint32_t)rng_below(&s->rng, s->options.n_symbol),
                                .from_ns = s->now_ns,
                                .to_ns = s->now_ns + length_ns};
    memcpy(halt->reason, reasons[index % 3], 5);
    exchange_set_matching(s->exchange, halt->symbol, 0);
    if (index % 3 == 2) {
        admin_operational_halt(s->exchange, halt->symbol, 'H');
        flow_set_state(s->flow, halt->symbol, FLOW_FROZEN);
    } else {
        admin_trading_action(s->exchange, halt->symbol, index % 3 ? 'H' : 'P', index % 3 ? "T1  " : "LUDP");
        flow_set_state(s->flow, halt->symbol, FLOW_HALTED);
        if (index % 3 == 0)
            schedule(s, s->now_ns + 250 * us_ns, HALT_COLLAR, index);
        else
            schedule(s, s->now_ns + length_ns / 2, HALT_QUOTING, index);
        for (uint64_t t = second_ns; t < length_ns; t += second_ns)
            schedule(s, s->now_ns + t, HALT_IMBALANCE, index);
    }
    schedule(s, halt->to_ns, HALT_END, index);
}

static void halt_end(struct synth *s, uint32_t index)
{
    const struct synth_halt *halt = &s->halt[index];
    if (index % 3 == 2) {
        admin_operational_halt(s->exchange, halt->symbol, 'T');
    } else {
        struct exchange_cross cross;
        exchange_auction(s->exchange, halt->symbol, flow_cross_qty(s->flow, halt->symbol, EXCHANGE_BUY) / 4,
                         flow_cross_qty(s->flow, halt->symbol, EXCHANGE_SELL) / 4,
                         flow_reference(s->flow, halt->symbol), 'H', &cross);
        admin_trading_action(s->exchange, halt->symbol, 'T', "    ");
    }
    exchange_set_matching(s->exchange, halt->symbol, 1);
    flow_set_state(s->flow, halt->symbol, FLOW_TRADING);
}

static void close_market(struct synth *s)
{
    struct exchange_cross cross;
    at(s, s->close_ns);
    admin_system_event(s->exchange, 'M');
    for (uint32_t i = 0; i < s->options.n_symbol; i++) {
        at(s, s->now_ns + us_ns);
        exchange_set_matching(s->exchange, i, 0);
        exchange_auction(s->exchange, i, flow_cross_qty(s->flow, i, EXCHANGE_BUY),
                         flow_cross_qty(s->flow, i, EXCHANGE_SELL), flow_reference(s->flow, i), 'C', &cross);
    }
    s->agenda.n = 0; /* nobody trades any more */
    schedule(s, s->close_ns + second_ns, SYSTEM_END, 0);
}

static void all_imbalances(struct synth *s, uint64_t ts_ns, char cross_type)
{
    for (uint32_t i = 0; i < s->options.n_symbol; i++) {
        at(s, i ? s->now_ns + us_ns : ts_ns);
        admin_imbalance(s->exchange, s->flow, i, cross_type);
    }
}

static void handle(struct synth *s, const struct agenda_event *event)
{
    const uint64_t ts_ns = event->ts_ns;
    switch ((enum kind)event->kind) {
    case START:
        start(s);
        schedule(s, start_ns + second_ns, SYSTEM_HOURS, 0);
        break;
    case SYSTEM_HOURS:
        system_hours(s, ts_ns);
        for (uint32_t i = 0; i < s->options.n_symbol; i++)
            flow_draw_cross(s->flow, i, 1.0);
        schedule(s, ts_ns + second_ns, SEED, 0);
        for (uint64_t t = open_ns - 8 * second_ns; t < open_ns; t += second_ns)
            schedule(s, t, OPENING_IMBALANCE, 0);
        schedule(s, open_ns, OPEN, 0);
        break;
    case SEED:
        at(s, ts_ns);
        flow_seed_book(s->flow, s->exchange, event->arg);
        if (--s->n_seed_left)
            schedule(s, ts_ns + (open_ns - second_ns / 2 - ts_ns) / s->n_seed_left, SEED,
                     (event->arg + 1) % s->options.n_symbol);
        break;
    case OPENING_IMBALANCE:
        all_imbalances(s, ts_ns, 'O');
        break;
    case OPEN:
        open_market(s);
        break;
    case ORDER:
        if (flow_happens(s->flow, event->arg, ts_ns)) {
            at(s, ts_ns);
            flow_act(s->flow, s->exchange, event->arg, ts_ns);
        }
        schedule(s, flow_next(s->flow, event->arg, ts_ns), ORDER, event->arg);
        break;
    case CONTROL:
        control(s, ts_ns);
        break;
    case BURST:
        burst_start(s, ts_ns);
        break;
    case BURST_ORDER:
        burst_order(s, ts_ns, event->arg);
        break;
    case LOSS:
        if (feed_lose(s->feed, s->loss_lines[event->arg], (uint32_t)rng_between(&s->rng, 1, 6)) == 0)
            s->n_loss_started++;
        else
            schedule(s, ts_ns + ms_ns, LOSS, event->arg);
        break;
    case HALT:
        halt_start(s, ts_ns, event->arg);
        break;
    case HALT_COLLAR:
        at(s, ts_ns);
        admin_collar(s->exchange, s->flow, s->halt[event->arg].symbol);
        break;
    case HALT_IMBALANCE:
        at(s, ts_ns);
        admin_imbalance(s->exchange, s->flow, s->halt[event->arg].symbol, 'H');
        break;
    case HALT_QUOTING:
        at(s, ts_ns);
        admin_trading_action(s->exchange, s->halt[event->arg].symbol, 'Q', "T3  ");
        break;
    case HALT_END:
        at(s, ts_ns);
        halt_end(s, event->arg);
        break;
    case CLOSING_IMBALANCE:
        all_imbalances(s, ts_ns, 'C');
        break;
    case CLOSE:
        close_market(s);
        break;
    case SYSTEM_END:
        at(s, ts_ns);
        admin_system_event(s->exchange, 'E');
        schedule(s, ts_ns + second_ns, END, 0);
        break;
    case END:
        at(s, ts_ns);
        admin_system_event(s->exchange, 'C');
        feed_end_session(s->feed, s->now_ns + second_ns, END_PACKETS);
        s->over = 1;
        break;
    }
}

int synth_run(struct synth *s, uint32_t n_event)
{
    while (n_event-- && !s->over) {
        struct agenda_event event = agenda_take(&s->agenda);
        handle(s, &event);
        if (feed_failed(s->feed))
            return -1;
    }
    return !s->over;
}

/* -- life -------------------------------------------------------------------------------------- */

static void synth_free(struct synth *s)
{
    exchange_free(s->exchange);
    flow_free(s->flow);
    free(s->agenda.event);
    free(s->halt);
    free(s->burst);
    free(s->burst_seen);
    free(s->loss_lines);
    free(s);
}

static struct synth *synth_allocate(const struct synth_options *o)
{
    struct synth *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->options = *o;
    uint32_t n_loss = o->n_gap + (o->n_gap + 2) / 3 + o->n_lost_gap;
    /* At once: an order per symbol, all bursts, losses and halts with what belongs to them, the rounds. */
    s->agenda.max = 64u + o->n_symbol + o->n_burst + n_loss + 8u * o->n_halt;
    s->agenda.event = malloc(s->agenda.max * sizeof *s->agenda.event);
    s->halt = calloc(o->n_halt + 1, sizeof *s->halt);
    s->burst = calloc(o->n_burst + 1, sizeof *s->burst);
    s->burst_seen = calloc(o->n_symbol, sizeof *s->burst_seen);
    s->loss_lines = calloc(n_loss + 1, 1);
    /* 1.15: messages per order. */
    s->flow = flow_create(o->n_symbol, o->rate / 1.15, o->seed);
    if (s->flow && s->agenda.event && s->halt && s->burst && s->burst_seen && s->loss_lines)
        return s;
    synth_free(s);
    return NULL;
}

struct synth *synth_open(const struct synth_options *options, char error[FEED_ERROR_CHARS])
{
    struct synth_options o = *options;
    if (o.messages && o.seconds)
        o.rate = (double)o.messages / o.seconds;
    else if (o.messages)
        o.seconds = (uint32_t)((double)o.messages / o.rate) + 1;
    if (o.seconds < 1 || o.seconds > SYNTH_SECONDS_MAX || o.rate < 50 || o.rate > 2e6) {
        snprintf(error, FEED_ERROR_CHARS,
                 "%u s of trading at %.0f messages/s: seconds must be 1 to %d, the rate 50 to 2000000",
                 (unsigned)o.seconds, o.rate, SYNTH_SECONDS_MAX);
        return NULL;
    }
    if (o.n_burst == SYNTH_BURST_AUTO)
        o.n_burst = o.seconds / 2;
    struct synth *s = synth_allocate(&o);
    if (!s) {
        snprintf(error, FEED_ERROR_CHARS, "out of memory");
        return NULL;
    }
    const struct feed_options feed_options = {o.pcap_path, o.itch_path, o.seed,
                                              midnight_ns, o.lag_ns,    o.vlan_id};
    s->feed = feed_open(&feed_options, error);
    if (!s->feed) {
        synth_free(s);
        return NULL;
    }
    s->exchange =
        exchange_create(o.n_symbol, flow_locates(s->flow), flow_stocks(s->flow), o.seed, to_feed, s->feed);
    if (!s->exchange) {
        char ignored[FEED_ERROR_CHARS];
        feed_close(s->feed, ignored);
        synth_free(s);
        snprintf(error, FEED_ERROR_CHARS, "out of memory");
        return NULL;
    }
    rng_seed(&s->rng, o.seed, 4);
    s->mood = 1.0;
    s->close_ns = open_ns + o.seconds * second_ns;
    s->n_seed_left = o.n_symbol * (o.n_symbol > 1000 ? SEED_ORDERS / 3 : SEED_ORDERS);
    schedule(s, start_ns, START, 0);
    return s;
}

uint64_t synth_expected_messages(const struct synth *s)
{
    return s->options.messages ? s->options.messages : (uint64_t)(s->options.rate * trading_s(s));
}

const struct exchange *synth_exchange(const struct synth *s)
{
    return s->exchange;
}

const struct flow *synth_flow(const struct synth *s)
{
    return s->flow;
}

const struct feed *synth_feed(const struct synth *s)
{
    return s->feed;
}

const struct synth_options *synth_options(const struct synth *s)
{
    return &s->options;
}

const struct synth_halt *synth_halts(const struct synth *s, size_t *n)
{
    *n = s->n_halt;
    return s->halt;
}

const struct synth_burst *synth_bursts(const struct synth *s, size_t *n)
{
    *n = s->n_burst;
    return s->burst;
}

int synth_close(struct synth *s, char error[FEED_ERROR_CHARS])
{
    uint32_t n_loss = s->options.n_gap + (s->options.n_gap + 2) / 3 + s->options.n_lost_gap;
    int rc = feed_close(s->feed, error);
    if (!rc && s->over && s->n_loss_started < n_loss) {
        snprintf(error, FEED_ERROR_CHARS,
                 "the day is written, but only %u of %u losses fitted in: ask for fewer gaps, or for more "
                 "messages",
                 (unsigned)s->n_loss_started, (unsigned)n_loss);
        rc = -1;
    }
    synth_free(s);
    return rc;
}
