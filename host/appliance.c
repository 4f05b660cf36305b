#include "appliance_self.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intake_setup.h"

enum {
    /* Before a frame. A card that has recovered takes its place in three idle moments in a row: with fewer it
     * would wait for a pause in the feed. */
    REPLAY_IDLE_POLLS = 4,
    REPLAY_TIMEOUT_S = 2, /* real time: a replay is to be the same on a busy machine */
    /* Bursts that are decoded before a tick that waits has its turn. More, and a tick of a short burst waits
     * longer; fewer, and under overload ticks are inferred that are superseded a moment later. */
    DRAIN_BURSTS = 4,
    REPLAY_RING = 1024, /* the modelled port's ring, as port_open_ring's */
};

const char *appliance_stage_name(enum appliance_stage stage)
{
    static const char *const name[STAGE_COUNT] = {"decode", "features", "inference", "publish", "total"};
    return name[stage];
}

/* ---- audit ---- */

static void commit_event(struct appliance *a, const struct audit_event *event)
{
    struct audit_record *slot = audit_reserve(a->cfg.log);
    if (!slot) /* counted by the log itself */
        return;
    slot->event = *event;
    audit_commit(a->cfg.log);
}

void appliance_commit_event(struct appliance *a, enum audit_event_code code, uint16_t locate,
                            uint64_t feed_ts_ns, uint64_t value0, uint64_t value1)
{
    struct audit_event event = {.kind = AUDIT_EVENT,
                                .code = (uint16_t)code,
                                .at = appliance_now(a),
                                .feed_ts_ns = feed_ts_ns,
                                .locate = locate,
                                .value = {value0, value1}};
    memcpy(event.symbol, locate ? market_symbol(intake_market(a->intake), locate) : "        ",
           sizeof(event.symbol));
    commit_event(a, &event);
}

void appliance_commit_values(struct appliance *a, enum audit_event_code code, const uint64_t value[4],
                             const char *text)
{
    struct audit_event event = {
        .kind = AUDIT_EVENT, .code = (uint16_t)code, .at = appliance_now(a), .symbol = "        "};
    memcpy(event.value, value, sizeof(event.value));
    memcpy(event.text, text, strnlen(text, sizeof(event.text) - 1));
    commit_event(a, &event);
}

/* ---- intake's other news ---- */

static void on_message(void *ctx, uint64_t seq_no, const struct market_event *event)
{
    struct appliance *a = ctx;
    (void)seq_no;
    (void)event;
    appliance_spend(a, a->cfg.config->replay.message_ns);
}

static void on_gap(void *ctx, uint64_t first, uint64_t count, uint64_t at)
{
    struct appliance *a = ctx;
    (void)at;
    appliance_commit_event(a, AUDIT_EVENT_GAP, 0, 0, first, count);
}

static void on_trading(void *ctx, uint16_t locate, int trading, uint64_t ts_ns)
{
    appliance_commit_event(ctx, AUDIT_EVENT_TRADING_STATE, locate, ts_ns, (uint64_t)trading, 0);
}

static void on_session_end(void *ctx, uint64_t next_seq)
{
    struct appliance *a = ctx;
    /* The next session may give a locate, which names the symbol of a tick that waits, to another. */
    while (appliance_n_pending(a))
        appliance_work_off(a);
    appliance_commit_event(a, AUDIT_EVENT_SESSION_END, 0, 0, next_seq, 0);
}

static void on_streams_full(void *ctx, uint16_t locate)
{
    appliance_commit_event(ctx, AUDIT_EVENT_STREAMS_FULL, locate, 0, 0, 0);
}

/* ---- life ---- */

struct appliance *appliance_create(const struct appliance_config *cfg, char error[AUDIT_ERROR_CHARS])
{
    struct appliance *a = aligned_alloc(64, (sizeof(*a) + 63) / 64 * 64);
    if (!a) {
        snprintf(error, AUDIT_ERROR_CHARS, "out of memory");
        return NULL;
    }
    memset(a, 0, sizeof(*a));
    const struct config *c = cfg->config;
    a->cfg = *cfg;
    a->replay = c->clock == CONFIG_CLOCK_REPLAY;
    /* The replay clock has to know when a prepare is done: there it is an operation of its own. */
    a->prepares_by_flag = !a->replay;
    a->arrival_clock = a->replay               ? AUDIT_ARRIVAL_CAPTURE
                       : cfg->arrival_is_bound ? AUDIT_ARRIVAL_BOUND
                                               : AUDIT_ARRIVAL_TSC;
    a->now_ns = a->replay && cfg->n_frame ? cfg->stamps_ns[0] : 0;
    a->to_ns = a->replay ? 1.0 : 1e9 / cfg->clock.hz;
    a->per_ns = a->replay ? 1.0 : cfg->clock.hz / 1e9;
    a->stall_state = c->replay.stall.seed;
    a->timeout = clock_ns_to_cycles(&cfg->clock,
                                    a->replay ? REPLAY_TIMEOUT_S * 1e9 : c->killline.device_timeout_us * 1e3);
    a->model[0] = cfg->model;
    a->model[1] = cfg->next_model ? cfg->next_model : cfg->backup;
    a->switching = cfg->next_model ? SWITCH_WAITING : SWITCH_NONE;
    for (int i = 0; i < KL_N_STREAM_MAX; i++)
        a->streams[i].needs_reset = 1;               /* it starts, in whatever slot is the one then */
    config_parse_ip(c->egress.group, &a->egress_ip); /* checked when the configuration was read */
    config_parse_ip(c->egress.source, &a->egress_source);
    for (int s = 0; s < STAGE_COUNT; s++)
        histogram_init(&a->stats.stage_ns[s]);
    histogram_init(&a->stats.published_age_ns);
    histogram_init(&a->stats.kernel_cycles);
    histogram_init(&a->stats.prepare_cycles);

    const struct intake_handler handler = {.tick = appliance_on_tick,
                                           .message = on_message,
                                           .gap = on_gap,
                                           .trading = on_trading,
                                           .session_end = on_session_end,
                                           .streams_full = on_streams_full,
                                           .ctx = a};
    uint64_t gap_wait = a->replay ? c->feed.gap_wait_us * 1000ull
                                  : clock_ns_to_cycles(&cfg->clock, c->feed.gap_wait_us * 1e3);
    a->intake = intake_setup(c, gap_wait, &handler);
    if (!a->intake) {
        snprintf(error, AUDIT_ERROR_CHARS,
                 "out of memory for books of %u orders and %u levels (book.orders, "
                 "book.levels)",
                 c->book.orders, c->book.levels);
        free(a);
        return NULL;
    }
    intake_set_trace(a->intake, cfg->trace);
    if (appliance_govern_create(a))
        snprintf(error, AUDIT_ERROR_CHARS, "out of memory for the governor");
    else if (!appliance_warm_up(a, error))
        return a;
    appliance_free(a);
    return NULL;
}

/* ---- replay: one server ---- */

/* splitmix64: the next of a sequence that is the same for the same seed. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void appliance_stall(struct appliance *a)
{
    const struct config_stall *stall = &a->cfg.config->replay.stall;
    const uint64_t random = random_next(&a->stall_state);
    if (random % 1000000 < stall->per_million)
        a->now_ns += (random >> 20) % (stall->max_us * 1000ull + 1);
}

/* What the server does until this frame arrives: ticks that wait, the other slot, the receiver's timer. It
 * begins nothing after it, and what it has begun it ends. */
static void pass_time(struct appliance *a, uint64_t until)
{
    while (a->now_ns < until) {
        const uint64_t began = a->now_ns;
        if (appliance_n_pending(a)) {
            appliance_work_off(a);
            appliance_govern(a, a->now_ns);
        } else if (!appliance_standby_work(a)) {
            const uint64_t due = intake_poll(a->intake, a->now_ns);
            if (appliance_n_pending(a))
                continue;
            appliance_govern(a, a->now_ns);
            if (due >= until)
                return;
            if (due > a->now_ns)
                a->now_ns = due;
            continue;
        }
        governor_busy(a->governor, a->now_ns - began);
    }
}

/* Frames behind this one that have arrived. */
static uint64_t arrived(struct appliance *a, uint64_t frame_no)
{
    uint64_t n = 0;
    while (n < REPLAY_RING && frame_no + 1 + n < a->cfg.n_frame &&
           a->cfg.stamps_ns[frame_no + 1 + n] <= a->now_ns)
        n++;
    return n;
}

static void replay_frame(struct appliance *a, uint64_t frame_no, uint32_t *drained)
{
    const uint64_t arrival = a->cfg.stamps_ns[frame_no];
    const int supersede = a->cfg.config->killline.supersede;
    if (arrival > a->now_ns)
        *drained = 0;
    pass_time(a, arrival);
    if (a->cfg.guard && !appliance_n_pending(a)) {
        for (int k = 0; k < REPLAY_IDLE_POLLS; k++)
            a->cfg.accel->ops->poll(a->cfg.accel, &a->result);
        appliance_card_news(a);
    }
    if (*drained >= (supersede ? DRAIN_BURSTS : 1) * PORT_BURST && appliance_n_pending(a)) {
        const uint64_t began = a->now_ns;
        a->ring_used = arrived(a, frame_no);
        a->ring_size = REPLAY_RING;
        *drained = 0;
        do {
            appliance_work_off(a);
            appliance_govern(a, a->now_ns);
        } while (!supersede && appliance_n_pending(a));
        governor_busy(a->governor, a->now_ns - began);
    }
    if (arrival > a->now_ns) {
        a->now_ns = arrival;
        a->ring_used = 0;
    }
    ++*drained;
}

/* ---- the loop ---- */

static void take_frame(struct appliance *a, unsigned i, uint64_t frame_no, uint64_t arrival,
                       uint32_t *drained)
{
    uint32_t len;
    const uint8_t *frame = port_packet(a->cfg.rx, i, &len);
    trace_packet(a->cfg.trace);
    if (a->replay) {
        replay_frame(a, frame_no, drained);
        arrival = a->cfg.stamps_ns[frame_no];
    }
    const uint64_t began = a->now_ns;
    appliance_spend(a, a->cfg.config->replay.frame_ns);
    if (a->switching)
        appliance_advance_switch(a);
    intake_frame(a->intake, frame, len, arrival);
    if (a->replay)
        governor_busy(a->governor, a->now_ns - began);
}

static void replay_loop(struct appliance *a, uint64_t last_tsc)
{
    const struct appliance_config *cfg = &a->cfg;
    uint64_t done = 0;
    uint32_t drained = 0;
    while (done < cfg->n_frame && !atomic_load_explicit(cfg->stop, memory_order_relaxed)) {
        const unsigned n = port_receive(cfg->rx);
        const uint64_t tsc = clock_tsc();
        for (unsigned i = 0; i < n && done < cfg->n_frame; i++)
            take_frame(a, i, done++, 0, &drained);
        port_release(cfg->rx);
        if (n) {
            last_tsc = tsc;
        } else if (cfg->idle_limit_cycles && tsc - last_tsc > cfg->idle_limit_cycles) {
            a->stats.timed_out = 1;
            return;
        } else {
            _mm_pause();
        }
        atomic_store_explicit(&a->frames, done, memory_order_relaxed); /* for people: no order needed */
    }
}

/* Nothing waits, nothing came. */
static void idle(struct appliance *a, uint64_t tsc, uint64_t keep_warm)
{
    const struct appliance_config *cfg = &a->cfg;
    if (a->switching)
        appliance_advance_switch(a);
    if (cfg->guard) {
        cfg->accel->ops->poll(cfg->accel, &a->result);
        appliance_card_news(a);
    }
    if (appliance_standby_work(a)) {
        a->warmed_at = tsc;
    } else if (keep_warm && (int64_t)(tsc - a->warmed_at) > (int64_t)keep_warm) {
        appliance_keep_warm(a);
        a->warmed_at = clock_tsc_relaxed();
    }
    _mm_pause();
}

static void real_loop(struct appliance *a, uint64_t last_tsc)
{
    const struct appliance_config *cfg = &a->cfg;
    const uint64_t keep_warm = clock_ns_to_cycles(&cfg->clock, cfg->config->killline.keep_warm_us * 1e3);
    const int supersede = cfg->config->killline.supersede;
    /* Whatever comes next came after the ring was last seen empty. */
    uint64_t done = 0, emptied = last_tsc, began = last_tsc;
    uint32_t drained = 0, worked = 0;
    a->warmed_at = last_tsc;
    while (done < cfg->n_frame && !atomic_load_explicit(cfg->stop, memory_order_relaxed)) {
        const uint64_t before = clock_tsc();
        const uint32_t epoch = appliance_look(a, before);
        const int turned = epoch != a->epoch;
        if (turned)
            last_tsc = began = before; /* no time has passed, as far as one can say */
        if (worked)
            governor_busy(a->governor, before - began);
        began = before;
        if (!appliance_n_pending(a))
            trace_begin(cfg->trace);
        const unsigned n = port_receive(cfg->rx);
        const uint64_t tsc = clock_tsc();
        const uint64_t arrival = a->arrival_clock == AUDIT_ARRIVAL_BOUND ? emptied : tsc;
        appliance_look(a, tsc);
        if (n < PORT_BURST)
            emptied = before;
        for (unsigned i = 0; i < n && done < cfg->n_frame; i++)
            take_frame(a, i, done++, arrival, &drained);
        /* What was in the ring may have come in the old epoch. Once it has been emptied, what comes is of the
         * new one, and so is `emptied`. */
        if (turned && (n < PORT_BURST || a->arrival_clock != AUDIT_ARRIVAL_BOUND))
            appliance_begin_epoch(a, before, epoch);
        worked = n || appliance_n_pending(a);
        if (n) {
            last_tsc = a->warmed_at = tsc;
            atomic_store_explicit(&a->frames, done, memory_order_relaxed); /* for people: no order needed */
        } else {
            intake_poll(a->intake, tsc);
            if (cfg->idle_limit_cycles && (int64_t)(tsc - last_tsc) > (int64_t)cfg->idle_limit_cycles) {
                a->stats.timed_out = 1;
                return;
            }
        }
        a->ring_used = 0;
        if (n == PORT_BURST) {
            /* There is more: a tick that waits may be superseded by what comes. */
            unsigned size;
            a->ring_used = port_waiting(cfg->rx, &size);
            a->ring_size = size;
            if (++drained < DRAIN_BURSTS && supersede) {
                port_release(cfg->rx);
                continue;
            }
        }
        drained = 0;
        if (!n && !appliance_n_pending(a))
            idle(a, tsc, keep_warm);
        /* Without superseding nothing is gained by a look at the port in between: it would only fill the
         * queue. */
        do {
            if (appliance_n_pending(a))
                appliance_work_off(a);
            appliance_govern(a, clock_tsc_relaxed());
        } while (!supersede && appliance_n_pending(a));
        if (n)
            port_release(cfg->rx); /* after the send: it costs as much as the last check */
    }
}

void appliance_run(struct appliance *a)
{
    appliance_commit_event(a, AUDIT_EVENT_START, 0, 0, 0, 0);
    appliance_commit_event(a, AUDIT_EVENT_MODEL_LOAD, 0, 0, 0, a->model[0]->image->image_hash);
    if (a->cfg.backup)
        appliance_commit_event(a, AUDIT_EVENT_MODEL_LOAD, 0, 0, 1, a->model[1]->image->image_hash);
    appliance_govern_start(a);
    a->switch_at = appliance_now(a) + a->cfg.switch_after;
    (a->replay ? replay_loop : real_loop)(a, clock_tsc());
    intake_flush(a->intake, appliance_now(a));
    while (appliance_n_pending(a))
        appliance_work_off(a);
    if (a->cfg.guard)
        appliance_card_news(a);
    appliance_govern(a, appliance_now(a));
    audit_stop(a->cfg.log, appliance_now(a));
}

uint64_t appliance_frames(const struct appliance *a)
{
    return atomic_load_explicit(&a->frames, memory_order_relaxed);
}

const struct appliance_stats *appliance_stats(const struct appliance *a)
{
    return &a->stats;
}

const struct governor *appliance_governor(const struct appliance *a)
{
    return a->governor;
}

const struct intake *appliance_intake(const struct appliance *a)
{
    return a->intake;
}

void appliance_free(struct appliance *a)
{
    if (!a)
        return;
    governor_free(a->governor);
    intake_free(a->intake);
    free(a);
}
