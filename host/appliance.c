#include "appliance_self.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../net/wire.h"
#include "intake_setup.h"

enum {
    /* Before a frame. A card that has recovered takes its place in three idle moments in a row: with fewer it
     * would wait for a pause in the feed. */
    REPLAY_IDLE_POLLS = 4,
    REPLAY_TIMEOUT_S = 2, /* real time: a replay is to be the same on a busy machine */
    FRAME_BYTES = PACKET_HEADERS_MAX + WIRE_BYTES,
    EGRESS_SRC_PORT = 31075,
};
static_assert((int)FRAME_BYTES <= (int)PORT_FRAME_MAX, "a prediction is one frame");

const char *appliance_stage_name(enum appliance_stage stage)
{
    static const char *const name[STAGE_COUNT] = {"decode", "features", "inference", "publish", "total"};
    return name[stage];
}

/* ---- audit ---- */

void appliance_commit(struct appliance *a, const struct audit_record *record)
{
    struct audit_record *slot = audit_reserve(a->cfg.log);
    if (!slot) /* counted by the log itself */
        return;
    memcpy(slot->body, record->body, sizeof(slot->body));
    audit_commit(a->cfg.log);
}

void appliance_commit_event(struct appliance *a, enum audit_event_code code, uint16_t locate,
                            uint64_t feed_ts_ns, uint64_t value0, uint64_t value1)
{
    struct audit_record record = {.event = {.kind = AUDIT_EVENT,
                                            .code = (uint16_t)code,
                                            .at = appliance_now(a),
                                            .feed_ts_ns = feed_ts_ns,
                                            .locate = locate,
                                            .value = {value0, value1}}};
    memcpy(record.event.symbol, locate ? market_symbol(intake_market(a->intake), locate) : "        ",
           sizeof(record.event.symbol));
    appliance_commit(a, &record);
}

/* ---- one tick ---- */

/* Builds the datagram in the send port's buffer; its length, or 0 when there is no buffer. */
static uint32_t build_datagram(struct appliance *a, const struct intake_tick *tick, const char *symbol)
{
    uint8_t *frame = port_tx_buffer(a->cfg.tx);
    if (!frame)
        return 0;
    struct wire_prediction p = {.publish_seq = a->publish_seq + 1,
                                .feed_seq_no = tick->seq_no,
                                .feed_ts_ns = tick->feed_ts_ns,
                                .locate = tick->locate,
                                .cls = a->result.cls,
                                .n_class = a->result.n_class,
                                .slot = (uint8_t)a->result.slot,
                                .model_hash = a->result.image_hash,
                                .bid_price = tick->bbo.bid_price,
                                .ask_price = tick->bbo.ask_price};
    memcpy(p.symbol, symbol, sizeof(p.symbol));
    for (int k = 0; k < a->result.n_class; k++)
        p.logits[k] = wire_logit(a->result.logits[k], a->result.logit_frac);
    uint8_t payload[WIRE_BYTES];
    wire_encode(&p, payload);
    return (uint32_t)packet_build(frame, a->egress_source, EGRESS_SRC_PORT, a->egress_ip,
                                  a->cfg.config->egress.port, 0, payload, WIRE_BYTES);
}

static uint64_t age_at(const struct intake_tick *tick, uint64_t at, struct audit_prediction *r)
{
    int clamped;
    uint64_t age = killline_age(tick->arrival, at, &clamped);
    if (clamped)
        r->flags |= AUDIT_FLAG_AGE_CLAMPED;
    return age;
}

/* From the decoded tick to its verdict; *r gets the stamps and results of the stages that were reached. */
static enum verdict judge(struct appliance *a, const struct intake_tick *tick, struct audit_prediction *r)
{
    struct stream *stream = &a->streams[tick->stream];
    stream->needs_reset |= tick->restarted;
    if (!tick->trading) {
        stream->needs_reset = 1;
        return VERDICT_HALTED;
    }
    if (!tick->reliable) {
        stream->needs_reset = 1;
        return VERDICT_BOOK_UNRELIABLE;
    }
    /* A stream that starts anew does so on the newest model. */
    const uint8_t slot = stream->needs_reset ? a->slot : stream->slot;
    const struct model *model = a->model[slot];
    r->slot = slot;
    features_tick(intake_features(a->intake), tick->stream, tick->locate, tick->feed_ts_ns,
                  market_books(intake_market(a->intake)), a->raw);
    features_quantise(model, a->raw, a->request.x);
    appliance_spend(a, a->cfg.config->replay.features_ns);
    uint32_t status;
    if (stream->needs_reset) {
        if (stream->at_work[slot]) {
            /* Not what is left to the line: a tick that is late already would leave a sound card no time. */
            status = appliance_call(a, KL_OP_RESET, slot, tick->stream, 0, a->threshold);
            if (status != KL_OK)
                return appliance_device_error(a, tick, status);
            appliance_spend(a, a->cfg.config->replay.io_ns + appliance_kernel_ns(a, a->result.kernel_cycles));
        }
        stream->at_work[slot] = 0;
        stream->ticks[slot] = 0;
        stream->slot = slot;
        stream->needs_reset = 0;
    }

    trace_mark(a->cfg.trace, TRACE_FEATURES);
    uint64_t submitted = appliance_now(a), age = age_at(tick, submitted, r);
    r->expected_cycles = a->expected;
    if (!killline_can_make(age, a->expected, a->threshold)) {
        a->expected = killline_expect_unproved(a->expected, a->threshold);
        return VERDICT_EXPECTED_LATE;
    }
    r->submitted = submitted;
    uint64_t left_ns = (uint64_t)((double)(a->threshold - age) * a->to_ns);
    uint32_t budget_cycles = (uint32_t)(left_ns * a->cfg.config->replay.kernel_mhz / 1000);
    stream->at_work[slot] = 1;
    trace_mark(a->cfg.trace, TRACE_SUBMIT);
    status = appliance_step(a, slot, tick->stream,
                            budget_cycles ? budget_cycles : 1, /* 0 would be no budget at all */
                            a->threshold - age);
    trace_mark(a->cfg.trace, TRACE_INFERENCE);
    r->request_seq = a->request_seq;
    if (status != KL_OK)
        return appliance_device_error(a, tick, status);
    if (a->gave_up) {
        /* The card did not answer by the kill line. The mirror has made the step: the stream goes on from
         * there. */
        r->flags |= AUDIT_FLAG_MIRROR;
        stream->ticks[slot] += !(a->result.flags & KL_RESULT_LATE);
        a->stats.device_errors++;
        appliance_commit_event(a, AUDIT_EVENT_DEVICE_ERROR, tick->locate, tick->feed_ts_ns,
                               AUDIT_DEVICE_SILENT, tick->stream);
        return VERDICT_DEVICE_ERROR;
    }
    if (a->cfg.guard && accel_guard_mirrored(a->cfg.guard))
        r->flags |= AUDIT_FLAG_MIRROR;
    appliance_spend(a, a->cfg.config->replay.io_ns + appliance_kernel_ns(a, a->result.kernel_cycles));
    r->completed = appliance_now(a);
    r->kernel_cycles = a->result.kernel_cycles;
    r->prepare_cycles = a->result.prepare_cycles;
    if (a->result.flags & KL_RESULT_LATE) {
        /* The kernel has seen that it cannot make the line and has not begun: as if the tick had not been
         * submitted, the stream's state knows nothing of it. An inference takes longer than what was left. */
        r->flags |= AUDIT_FLAG_KERNEL_LATE;
        a->expected = killline_expect(a->expected, a->threshold - age + 1);
        return VERDICT_EXPECTED_LATE;
    }
    r->flags |= AUDIT_FLAG_INFERRED;
    r->cls = a->result.cls;
    r->logit_frac = a->result.logit_frac;
    memcpy(r->logits, a->result.logits, sizeof(r->logits));
    if (++stream->ticks[slot] <= model->warmup_ticks)
        return VERDICT_WARMING_UP;

    trace_mark(a->cfg.trace, TRACE_CHECK);
    uint32_t len = build_datagram(a, tick, r->symbol);
    trace_mark(a->cfg.trace, TRACE_PUBLISH);
    appliance_spend(a, a->cfg.config->replay.publish_ns);
    /* The last thing before the send. */
    r->decided = appliance_now_exactly(a);
    r->age_cycles = age_at(tick, r->decided, r);
    const int is_fresh = killline_fresh(r->age_cycles, a->threshold);
    trace_mark(a->cfg.trace, TRACE_CHECK);
    if (!is_fresh)
        return VERDICT_STALE;
    if (!len || port_send(a->cfg.tx, len)) {
        a->stats.egress_errors++;
        r->flags |= AUDIT_FLAG_EGRESS_FAILED;
        return VERDICT_DEVICE_ERROR;
    }
    r->publish_seq = ++a->publish_seq;
    trace_mark(a->cfg.trace, TRACE_PUBLISH);
    return VERDICT_PUBLISHED;
}

static uint32_t saturate(uint64_t qty)
{
    return qty > UINT32_MAX ? UINT32_MAX : (uint32_t)qty;
}

static void record_stages(struct appliance *a, const struct audit_prediction *r)
{
    const uint64_t from[STAGE_COUNT] = {r->arrival, r->decoded, r->submitted, r->completed, r->arrival};
    const uint64_t to[STAGE_COUNT] = {r->decoded, r->submitted, r->completed, r->decided, r->decided};
    for (int s = 0; s < STAGE_COUNT; s++)
        histogram_record(&a->stats.stage_ns[s],
                         to[s] > from[s] ? (uint64_t)((double)(to[s] - from[s]) * a->to_ns + 0.5) : 0);
    histogram_record(&a->stats.kernel_cycles, r->kernel_cycles);
    histogram_record(&a->stats.prepare_cycles, r->prepare_cycles);
}

static void on_tick(void *ctx, const struct intake_tick *tick)
{
    struct appliance *a = ctx;
    struct audit_record record = {.prediction = {.kind = AUDIT_PREDICTION,
                                                 .slot = a->streams[tick->stream].slot,
                                                 .arrival_clock = a->arrival_clock,
                                                 .feed_seq_no = tick->seq_no,
                                                 .feed_ts_ns = tick->feed_ts_ns,
                                                 .locate = tick->locate,
                                                 .stream = tick->stream,
                                                 .arrival = tick->arrival,
                                                 .decoded = appliance_now(a),
                                                 .threshold_cycles = a->threshold,
                                                 .bid_price = tick->bbo.bid_price,
                                                 .ask_price = tick->bbo.ask_price,
                                                 .bid_qty = saturate(tick->bbo.bid_qty),
                                                 .ask_qty = saturate(tick->bbo.ask_qty)}};
    struct audit_prediction *r = &record.prediction;
    memcpy(r->symbol, market_symbol(intake_market(a->intake), tick->locate), sizeof(r->symbol));

    enum verdict verdict = judge(a, tick, r);

    /* From here on nothing is urgent. */
    if (!r->decided) {
        r->decided = appliance_now(a);
        r->age_cycles = age_at(tick, r->decided, r);
    }
    if (tick->trading && tick->reliable) /* features were computed */
        r->feature_hash = features_hash(a->request.x, a->model[r->slot]->n_feature);
    r->verdict = (uint8_t)verdict;
    a->stats.predictions++;
    a->stats.verdicts[verdict]++;
    if (r->flags & AUDIT_FLAG_INFERRED) {
        record_stages(a, r);
        a->expected = killline_expect(a->expected, r->decided - r->submitted);
    }
    if (verdict == VERDICT_PUBLISHED)
        histogram_record(&a->stats.published_age_ns, (uint64_t)((double)r->age_cycles * a->to_ns + 0.5));
    appliance_commit(a, &record);
    trace_tick(a->cfg.trace, verdict);
    /* The recurrent half of the stream's next step, off the critical path. Also where the kernel was late: a
     * stream that comes anew and is never prepared could be late for ever. */
    const int stepped = (r->flags & (AUDIT_FLAG_INFERRED | AUDIT_FLAG_MIRROR)) != 0;
    if (r->flags & AUDIT_FLAG_KERNEL_LATE || (stepped && !a->prepares_by_flag))
        appliance_prepare(a, tick, r->slot);
    if (stepped && r->slot != a->slot)
        appliance_step_next_model(a, tick);
    /* Nothing is outstanding: a backend in this process carries the prepare out in here, a guard its mirror's
     * work. */
    if ((stepped && a->prepares_by_flag) || a->cfg.guard)
        a->cfg.accel->ops->poll(a->cfg.accel, &a->result);
    if (a->cfg.guard)
        appliance_card_news(a);
    port_tx_prepare(a->cfg.tx);
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
    appliance_commit_event(ctx, AUDIT_EVENT_SESSION_END, 0, 0, next_seq, 0);
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
    a->threshold = a->replay ? c->killline.threshold_us * 1000ull
                             : clock_ns_to_cycles(&cfg->clock, c->killline.threshold_us * 1e3);
    a->timeout = clock_ns_to_cycles(&cfg->clock,
                                    a->replay ? REPLAY_TIMEOUT_S * 1e9 : c->killline.device_timeout_us * 1e3);
    a->model[0] = cfg->model;
    a->model[1] = cfg->next_model;
    a->switching = cfg->next_model ? SWITCH_WAITING : SWITCH_NONE;
    config_parse_ip(c->egress.group, &a->egress_ip); /* checked when the configuration was read */
    config_parse_ip(c->egress.source, &a->egress_source);
    a->request.abi_version = KL_ABI_VERSION;
    for (int s = 0; s < STAGE_COUNT; s++)
        histogram_init(&a->stats.stage_ns[s]);
    histogram_init(&a->stats.published_age_ns);
    histogram_init(&a->stats.kernel_cycles);
    histogram_init(&a->stats.prepare_cycles);

    const struct intake_handler handler = {.tick = on_tick,
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
    if (appliance_first_inference(a, error)) {
        appliance_free(a);
        return NULL;
    }
    return a;
}

/* Replay: what the receiver's timer does while nothing has come, until this frame's arrival. A server that is
 * behind has frames waiting instead, and one of them may fill the hole. */
static void pass_time(struct appliance *a, uint64_t until)
{
    while (a->now_ns < until) {
        uint64_t due = intake_poll(a->intake, a->now_ns);
        if (due >= until)
            return;
        if (due > a->now_ns)
            a->now_ns = due;
    }
}

static void on_packet(struct appliance *a, unsigned i, uint64_t frame_no, uint64_t arrival)
{
    uint32_t len;
    const uint8_t *frame = port_packet(a->cfg.rx, i, &len);
    trace_packet(a->cfg.trace);
    if (a->replay) {
        arrival = a->cfg.stamps_ns[frame_no];
        if (a->cfg.guard) {
            for (int k = 0; k < REPLAY_IDLE_POLLS; k++)
                a->cfg.accel->ops->poll(a->cfg.accel, &a->result);
            appliance_card_news(a);
        }
        pass_time(a, arrival);
        if (arrival > a->now_ns)
            a->now_ns = arrival;
        appliance_spend(a, a->cfg.config->replay.frame_ns);
    }
    if (a->switching)
        appliance_advance_switch(a);
    intake_frame(a->intake, frame, len, arrival);
    trace_begin(a->cfg.trace);
}

void appliance_run(struct appliance *a)
{
    const struct appliance_config *cfg = &a->cfg;
    /* Whatever comes next came after the ring was last seen empty. */
    uint64_t done = 0, last_tsc = clock_tsc(), emptied = last_tsc;
    appliance_commit_event(a, AUDIT_EVENT_START, 0, 0, 0, 0);
    appliance_commit_event(a, AUDIT_EVENT_MODEL_LOAD, 0, 0, a->slot, cfg->model->image->image_hash);
    a->switch_at = appliance_now(a) + cfg->switch_after;
    while (done < cfg->n_frame && !atomic_load_explicit(cfg->stop, memory_order_relaxed)) {
        uint64_t before = clock_tsc();
        trace_begin(cfg->trace);
        unsigned n = port_receive(cfg->rx);
        uint64_t tsc = clock_tsc(), arrival = a->arrival_clock == AUDIT_ARRIVAL_BOUND ? emptied : tsc;
        if (n < PORT_BURST)
            emptied = before;
        if (!n) {
            if (!a->replay) {
                intake_poll(a->intake, tsc);
                if (a->switching)
                    appliance_advance_switch(a);
                if (cfg->guard) {
                    cfg->accel->ops->poll(cfg->accel, &a->result);
                    appliance_card_news(a);
                }
            }
            if (cfg->idle_limit_cycles && tsc - last_tsc > cfg->idle_limit_cycles) {
                a->stats.timed_out = 1;
                break;
            }
            _mm_pause();
            continue;
        }
        for (unsigned i = 0; i < n && done < cfg->n_frame; i++)
            on_packet(a, i, done++, arrival);
        port_release(cfg->rx);
        last_tsc = tsc;
        atomic_store_explicit(&a->frames, done,
                              memory_order_relaxed); /* a figure for people: no order needed */
    }
    intake_flush(a->intake, appliance_now(a));
    if (cfg->guard)
        appliance_card_news(a);
    audit_stop(cfg->log, appliance_now(a));
}

uint64_t appliance_frames(const struct appliance *a)
{
    return atomic_load_explicit(&a->frames, memory_order_relaxed);
}

const struct appliance_stats *appliance_stats(const struct appliance *a)
{
    return &a->stats;
}

const struct intake *appliance_intake(const struct appliance *a)
{
    return a->intake;
}

void appliance_free(struct appliance *a)
{
    if (!a)
        return;
    intake_free(a->intake);
    free(a);
}
