#include "appliance.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../net/wire.h"
#include "intake_setup.h"

enum {
    SLOT = 0,
    FRAME_BYTES = PACKET_HEADERS_MAX + WIRE_BYTES,
    EGRESS_SRC_PORT = 31075,
};
static_assert((int)FRAME_BYTES <= (int)PORT_FRAME_MAX, "a prediction is one frame");

struct stream {
    uint32_t ticks;      /* inferred since the last reset */
    uint8_t needs_reset; /* its state belongs to a market that has passed: gap, halt */
    uint8_t at_work;     /* the accelerator may hold a state of it other than zero */
};

struct appliance {
    struct appliance_config cfg;
    int replay;
    int prepares_by_flag;  /* real clock: the backend prepares by itself after a step, KL_REQUEST_PREPARE */
    uint8_t arrival_clock; /* enum audit_arrival of every frame */
    uint64_t now_ns;       /* replay: when the one server is free */
    uint64_t threshold, timeout; /* in the run's clock: TSC cycles, or ns */
    uint64_t expected;           /* submit -> last check, killline_expect */
    double to_ns;                /* clock units to ns */
    uint32_t egress_ip, egress_source;
    uint32_t request_seq, n_unheard; /* n_unheard: requests whose answers have not come */
    uint64_t publish_seq;
    struct stream streams[KL_N_STREAM_MAX];
    struct kl_request request;
    struct kl_result result;
    struct intake *intake;
    struct appliance_stats stats;
    _Alignas(64) _Atomic uint64_t frames;
};

const char *appliance_stage_name(enum appliance_stage stage)
{
    static const char *const name[STAGE_COUNT] = {"decode", "features", "inference", "publish", "total"};
    return name[stage];
}

/* ---- time ---- */

static uint64_t now(const struct appliance *a)
{
    return a->replay ? a->now_ns : clock_tsc();
}

/* Replay: work takes its configured time. Real: it already has. */
static void spend(struct appliance *a, uint64_t ns)
{
    if (a->replay)
        a->now_ns += ns;
}

static uint64_t kernel_ns(const struct appliance *a, uint32_t cycles)
{
    uint32_t mhz = a->cfg.config->replay.kernel_mhz;
    return ((uint64_t)cycles * 1000 + mhz - 1) / mhz;
}

/* ---- audit ---- */

static void commit(struct appliance *a, const struct audit_record *record)
{
    struct audit_record *slot = audit_reserve(a->cfg.log);
    if (!slot) /* counted by the log itself */
        return;
    memcpy(slot->body, record->body, sizeof(slot->body));
    audit_commit(a->cfg.log);
}

static void commit_event(struct appliance *a, enum audit_event_code code, uint16_t locate,
                         uint64_t feed_ts_ns, uint64_t value0, uint64_t value1)
{
    struct audit_record record = {.event = {.kind = AUDIT_EVENT,
                                            .code = (uint16_t)code,
                                            .at = now(a),
                                            .feed_ts_ns = feed_ts_ns,
                                            .locate = locate,
                                            .value = {value0, value1}}};
    memcpy(record.event.symbol, locate ? market_symbol(intake_market(a->intake), locate) : "        ",
           sizeof(record.event.symbol));
    commit(a, &record);
}

/* ---- accelerator ---- */

/* One request to its answer, within the device's time limit: enum kl_status, or enum audit_device. */
static uint32_t call_accel(struct appliance *a, enum kl_op op, uint32_t stream, uint32_t budget_cycles)
{
    struct accel *accel = a->cfg.accel;
    a->request.op = (uint16_t)op;
    a->request.flags = op == KL_OP_STEP && a->prepares_by_flag ? KL_REQUEST_PREPARE : 0;
    a->request.stream = stream;
    a->request.seq_no = ++a->request_seq;
    a->request.budget_cycles = budget_cycles;
    /* Answers that come after their time was up are still in the way, in the order of submission: they are
     * thrown away, here if the queue is full and below otherwise. */
    if (accel->ops->submit(accel, &a->request)) {
        if (accel->ops->poll(accel, &a->result) != 1)
            return AUDIT_DEVICE_SILENT;
        a->n_unheard -= a->n_unheard > 0;
        if (accel->ops->submit(accel, &a->request))
            return AUDIT_DEVICE_SILENT;
    }
    a->n_unheard++;
    /* The device's time runs on the real clock in both modes: a card that hangs hangs in real time. */
    uint64_t start = clock_tsc(), limit = a->timeout;
    for (;;) {
        int got = accel->ops->poll(accel, &a->result);
        if (got < 0) { /* nothing is outstanding, it says */
            a->n_unheard = 0;
            return AUDIT_DEVICE_NONSENSE;
        }
        a->n_unheard -= (uint32_t)got;
        if (got && !a->n_unheard)
            break;
        if (clock_tsc() - start > limit)
            return AUDIT_DEVICE_SILENT;
        _mm_pause();
    }
    if (a->result.seq_no != a->request_seq)
        return AUDIT_DEVICE_NONSENSE;
    return a->result.status;
}

/* A device may answer anything; what the log and the wire can carry is checked before it goes there. */
static int plausible(const struct appliance *a)
{
    const struct kl_result *r = &a->result;
    return r->abi_version == KL_ABI_VERSION && r->image_hash == a->cfg.model->image->image_hash &&
           r->n_class == a->cfg.model->image->n_class && r->n_class <= KL_N_CLASS_MAX &&
           r->cls < r->n_class && r->logit_frac < 64 && !(r->flags & ~KL_RESULT_LATE) &&
           (!r->flags || a->request.budget_cycles);
}

/* A step's answer; status as call_accel's. */
static uint32_t call_step(struct appliance *a, uint32_t stream, uint32_t budget_cycles)
{
    uint32_t status = call_accel(a, KL_OP_STEP, stream, budget_cycles);
    return status == KL_OK && !plausible(a) ? AUDIT_DEVICE_NONSENSE : status;
}

static enum verdict device_error(struct appliance *a, const struct intake_tick *tick, uint32_t status)
{
    a->stats.device_errors++;
    a->streams[tick->stream].needs_reset = 1;
    commit_event(a, AUDIT_EVENT_DEVICE_ERROR, tick->locate, tick->feed_ts_ns, status, tick->stream);
    return VERDICT_DEVICE_ERROR;
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
                                .slot = SLOT,
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
    float raw[FEATURES_N];
    features_tick(intake_features(a->intake), tick->stream, tick->locate, tick->feed_ts_ns,
                  market_books(intake_market(a->intake)), raw);
    features_quantise(a->cfg.model, raw, a->request.x);
    r->feature_hash = features_hash(a->request.x, a->cfg.model->n_feature);
    spend(a, a->cfg.config->replay.features_ns);
    uint32_t status;
    if (stream->needs_reset) {
        if (stream->at_work) {
            if ((status = call_accel(a, KL_OP_RESET, tick->stream, 0)) != KL_OK)
                return device_error(a, tick, status);
            spend(a, a->cfg.config->replay.io_ns + kernel_ns(a, a->result.kernel_cycles));
        }
        *stream = (struct stream){0};
    }

    uint64_t submitted = now(a), age = age_at(tick, submitted, r);
    r->expected_cycles = a->expected;
    if (!killline_can_make(age, a->expected, a->threshold)) {
        a->expected = killline_expect_unproved(a->expected, a->threshold);
        return VERDICT_EXPECTED_LATE;
    }
    r->submitted = submitted;
    uint64_t left_ns = (uint64_t)((double)(a->threshold - age) * a->to_ns);
    uint32_t budget_cycles = (uint32_t)(left_ns * a->cfg.config->replay.kernel_mhz / 1000);
    stream->at_work = 1;
    status = call_step(a, tick->stream, budget_cycles ? budget_cycles : 1); /* 0 would be no budget at all */
    r->request_seq = a->request_seq;
    if (status != KL_OK)
        return device_error(a, tick, status);
    spend(a, a->cfg.config->replay.io_ns + kernel_ns(a, a->result.kernel_cycles));
    r->completed = now(a);
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
    if (++stream->ticks <= a->cfg.model->warmup_ticks)
        return VERDICT_WARMING_UP;

    uint32_t len = build_datagram(a, tick, r->symbol);
    spend(a, a->cfg.config->replay.publish_ns);
    /* The last thing before the send. */
    r->decided = now(a);
    r->age_cycles = age_at(tick, r->decided, r);
    if (!killline_fresh(r->age_cycles, a->threshold))
        return VERDICT_STALE;
    if (!len || port_send(a->cfg.tx, len)) {
        a->stats.egress_errors++;
        r->flags |= AUDIT_FLAG_EGRESS_FAILED;
        return VERDICT_DEVICE_ERROR;
    }
    r->publish_seq = ++a->publish_seq;
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
                                                 .slot = SLOT,
                                                 .arrival_clock = a->arrival_clock,
                                                 .feed_seq_no = tick->seq_no,
                                                 .feed_ts_ns = tick->feed_ts_ns,
                                                 .locate = tick->locate,
                                                 .stream = tick->stream,
                                                 .arrival = tick->arrival,
                                                 .decoded = now(a),
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
        r->decided = now(a);
        r->age_cycles = age_at(tick, r->decided, r);
    }
    r->verdict = (uint8_t)verdict;
    a->stats.predictions++;
    a->stats.verdicts[verdict]++;
    if (r->flags & AUDIT_FLAG_INFERRED) {
        record_stages(a, r);
        a->expected = killline_expect(a->expected, r->decided - r->submitted);
    }
    if (verdict == VERDICT_PUBLISHED)
        histogram_record(&a->stats.published_age_ns, (uint64_t)((double)r->age_cycles * a->to_ns + 0.5));
    commit(a, &record);
    /* The recurrent half of the stream's next step, off the critical path. Also where the kernel was late: a
     * stream that comes anew and is never prepared could be late for ever. */
    if (r->flags & AUDIT_FLAG_KERNEL_LATE || (r->flags & AUDIT_FLAG_INFERRED && !a->prepares_by_flag)) {
        uint32_t status = call_accel(a, KL_OP_PREPARE, tick->stream, 0);
        if (status == KL_OK)
            spend(a, kernel_ns(a, a->result.kernel_cycles));
        else
            device_error(a, tick, status);
    } else if (r->flags & AUDIT_FLAG_INFERRED) {
        /* Nothing is outstanding: a backend in this process carries the prepare out in here. */
        a->cfg.accel->ops->poll(a->cfg.accel, &a->result);
    }
}

/* ---- intake's other news ---- */

static void on_message(void *ctx, uint64_t seq_no, const struct market_event *event)
{
    struct appliance *a = ctx;
    (void)seq_no;
    (void)event;
    spend(a, a->cfg.config->replay.message_ns);
}

static void on_gap(void *ctx, uint64_t first, uint64_t count, uint64_t at)
{
    struct appliance *a = ctx;
    (void)at;
    commit_event(a, AUDIT_EVENT_GAP, 0, 0, first, count);
}

static void on_trading(void *ctx, uint16_t locate, int trading, uint64_t ts_ns)
{
    commit_event(ctx, AUDIT_EVENT_TRADING_STATE, locate, ts_ns, (uint64_t)trading, 0);
}

static void on_session_end(void *ctx, uint64_t next_seq)
{
    commit_event(ctx, AUDIT_EVENT_SESSION_END, 0, 0, next_seq, 0);
}

static void on_streams_full(void *ctx, uint16_t locate)
{
    commit_event(ctx, AUDIT_EVENT_STREAMS_FULL, locate, 0, 0, 0);
}

/* ---- life ---- */

/* One dummy inference: the first guess at how long one takes, and a device that does not answer is found now.
 */
static int first_inference(struct appliance *a, char *error)
{
    uint64_t start = clock_tsc();
    uint32_t status = call_step(a, 0, 0);
    const struct config *c = a->cfg.config;
    a->expected = a->replay ? c->replay.io_ns + kernel_ns(a, a->result.kernel_cycles) + c->replay.publish_ns
                            : clock_tsc() - start;
    if (status == KL_OK)
        status = call_accel(a, KL_OP_RESET, 0, 0);
    if (status == KL_OK)
        return 0;
    if (status == AUDIT_DEVICE_SILENT)
        snprintf(error, AUDIT_ERROR_CHARS,
                 "the accelerator does not answer within killline.device_timeout_us=%u",
                 c->killline.device_timeout_us);
    else if (status == AUDIT_DEVICE_NONSENSE)
        snprintf(error, AUDIT_ERROR_CHARS, "the accelerator's answer is not of the loaded model");
    else
        snprintf(error, AUDIT_ERROR_CHARS, "the accelerator refuses its first request: kernel status %u",
                 status);
    return -1;
}

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
    a->timeout = clock_ns_to_cycles(&cfg->clock, c->killline.device_timeout_us * 1e3);
    config_parse_ip(c->egress.group, &a->egress_ip); /* checked when the configuration was read */
    config_parse_ip(c->egress.source, &a->egress_source);
    a->request.abi_version = KL_ABI_VERSION;
    a->request.slot = SLOT;
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
    if (first_inference(a, error)) {
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
    if (a->replay) {
        arrival = a->cfg.stamps_ns[frame_no];
        pass_time(a, arrival);
        if (arrival > a->now_ns)
            a->now_ns = arrival;
        spend(a, a->cfg.config->replay.frame_ns);
    }
    intake_frame(a->intake, frame, len, arrival);
}

void appliance_run(struct appliance *a)
{
    const struct appliance_config *cfg = &a->cfg;
    /* Whatever comes next came after the ring was last seen empty. */
    uint64_t done = 0, last_tsc = clock_tsc(), emptied = last_tsc;
    commit_event(a, AUDIT_EVENT_START, 0, 0, 0, 0);
    commit_event(a, AUDIT_EVENT_MODEL_LOAD, 0, 0, SLOT, cfg->model->image->image_hash);
    while (done < cfg->n_frame && !atomic_load_explicit(cfg->stop, memory_order_relaxed)) {
        uint64_t before = clock_tsc();
        unsigned n = port_receive(cfg->rx);
        uint64_t tsc = clock_tsc(), arrival = a->arrival_clock == AUDIT_ARRIVAL_BOUND ? emptied : tsc;
        if (n < PORT_BURST)
            emptied = before;
        if (!n) {
            if (!a->replay)
                intake_poll(a->intake, tsc);
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
    intake_flush(a->intake, now(a));
    audit_stop(cfg->log, now(a));
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
