#include "appliance_self.h"

#include <string.h>

#include "../net/wire.h"

/* A batch hides the way to the card and back; while it is at work nobody looks at the port, and what comes
 * meanwhile ages. It may take no more than this part of the line: with steps of a fifth of the line four at
 * once were late for most of what came behind them (bench killline, overload). */
enum { BATCH_SHARE = 8 };

enum { FRAME_BYTES = PACKET_HEADERS_MAX + WIRE_BYTES, EGRESS_SRC_PORT = 31075 };
static_assert((int)FRAME_BYTES <= (int)PORT_FRAME_MAX, "a prediction is one frame");

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
    _Alignas(64) uint8_t payload[WIRE_BYTES]; /* it is zeroed first: slower across lines, by 13 ns of 40 */
    wire_encode(&p, payload);
    return (uint32_t)packet_build(frame, a->egress_source, EGRESS_SRC_PORT, a->egress_ip,
                                  a->cfg.config->egress.port, 0, payload, WIRE_BYTES);
}

static uint32_t saturate(uint64_t qty)
{
    return qty > UINT32_MAX ? UINT32_MAX : (uint32_t)qty;
}

/* Live A/B: FNV-1a of the name and the salt, so that an arm is the same in every run. */
static uint8_t arm_of(const struct appliance *a, const char symbol[8])
{
    uint64_t hash = 0xcbf29ce484222325u;
    const uint32_t salt = a->cfg.config->killline.ab.salt;
    for (int i = 0; i < 8; i++)
        hash = (hash ^ (uint8_t)symbol[i]) * 0x100000001b3u;
    for (int i = 0; i < 4; i++)
        hash = (hash ^ (uint8_t)(salt >> 8 * i)) * 0x100000001b3u;
    hash ^= hash >> 32; /* its low bits alone are poor */
    return hash % 100 < a->cfg.config->killline.ab.share_percent ? 2 : 1;
}

/* The record's fields that are known before anything is decided. */
static void begin_record(struct appliance *a, const struct pending *p, struct audit_prediction *r)
{
    const struct intake_tick *tick = &p->tick;
    struct stream *stream = &a->streams[tick->stream];
    *r = (struct audit_prediction){.kind = AUDIT_PREDICTION,
                                   /* A stream that starts anew does so on the newest model. */
                                   .slot = stream->needs_reset || tick->restarted ? a->slot : stream->slot,
                                   .arrival_clock = a->arrival_clock,
                                   .feed_seq_no = tick->seq_no,
                                   .feed_ts_ns = tick->feed_ts_ns,
                                   .locate = tick->locate,
                                   .stream = tick->stream,
                                   .arrival = tick->arrival,
                                   .decoded = p->decoded,
                                   .threshold_cycles = a->threshold.current,
                                   .bid_price = tick->bbo.bid_price,
                                   .ask_price = tick->bbo.ask_price,
                                   .bid_qty = saturate(tick->bbo.bid_qty),
                                   .ask_qty = saturate(tick->bbo.ask_qty)};
    memcpy(r->symbol, market_symbol(intake_market(a->intake), tick->locate), sizeof(r->symbol));
    if (a->arm_b) {
        if (!stream->arm)
            stream->arm = arm_of(a, r->symbol);
        if (stream->arm == 2) {
            r->threshold_cycles = a->arm_b;
            r->flags |= AUDIT_FLAG_ARM_B;
        }
    }
}

static uint64_t age_at(struct appliance *a, const struct pending *p, uint64_t at, struct audit_prediction *r)
{
    enum killline_quality quality;
    if (r->flags & AUDIT_FLAG_AGE_UNKNOWN) /* a later look would only seem to know it */
        return KILLLINE_AGE_NEVER;
    const uint64_t age =
        killline_age(p->tick.arrival, p->epoch, at, appliance_look(a, at), a->future_max, &quality);
    if (quality != KILLLINE_AGE_EXACT)
        r->flags |= quality == KILLLINE_AGE_CLAMPED ? AUDIT_FLAG_AGE_CLAMPED : AUDIT_FLAG_AGE_UNKNOWN;
    return age;
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

/* A verdict's book-keeping: nothing is urgent any more. would_be: without the ladder. */
static void conclude(struct appliance *a, const struct pending *p, struct audit_prediction *r,
                     enum verdict verdict, enum verdict would_be)
{
    if (!r->decided) {
        r->decided = appliance_now(a);
        r->age_cycles = age_at(a, p, r->decided, r);
    }
    r->verdict = (uint8_t)verdict;
    r->flags |= (uint16_t)(governor_rung(a->governor) * 64);
    r->model_hash = a->model[r->slot]->image->image_hash;
    a->stats.predictions++;
    a->stats.verdicts[verdict]++;
    if (r->flags & AUDIT_FLAG_INFERRED && !(r->flags & AUDIT_FLAG_AGE_UNKNOWN))
        record_stages(a, r);
    if (verdict == VERDICT_PUBLISHED)
        histogram_record(&a->stats.published_age_ns, (uint64_t)((double)r->age_cycles * a->to_ns + 0.5));
    governor_prediction(a->governor, would_be, r->age_cycles, r->threshold_cycles);
    struct audit_record *slot = audit_reserve(a->cfg.log);
    if (slot) { /* else counted by the log itself */
        memcpy(slot->body, r, sizeof(*r));
        audit_commit(a->cfg.log);
    }
    trace_tick(a->cfg.trace, verdict);
}

/* ---- ticks that come ---- */

static void conclude_at_once(struct appliance *a, const struct pending *p, enum verdict verdict)
{
    struct audit_prediction r;
    begin_record(a, p, &r);
    conclude(a, p, &r, verdict, verdict);
}

void appliance_on_tick(void *appliance, const struct intake_tick *tick)
{
    struct appliance *a = appliance;
    struct stream *stream = &a->streams[tick->stream];
    stream->is_used = 1;
    if (!tick->trading || !tick->reliable) {
        const struct pending p = {.tick = *tick, .epoch = a->epoch, .decoded = appliance_now(a)};
        stream->breaks = 1; /* for the next one, not for an elder that waits */
        conclude_at_once(a, &p, tick->trading ? VERDICT_BOOK_UNRELIABLE : VERDICT_HALTED);
        return;
    }
    struct pending *p;
    uint8_t restarted = tick->restarted | stream->breaks;
    stream->breaks = 0;
    if (a->cfg.config->killline.supersede && stream->waits) {
        /* It has its elder's turn: a symbol that ticks faster than the queue moves gets its turns too. */
        p = &a->pending[stream->waits - 1];
        restarted |= p->tick.restarted;
        conclude_at_once(a, p, VERDICT_SUPERSEDED);
    } else {
        while (appliance_n_pending(a) == PENDING_MAX)
            appliance_work_off(a);
        const uint32_t i = a->pending_tail++ % PENDING_MAX;
        p = &a->pending[i];
        stream->waits = (uint16_t)(i + 1);
    }
    p->tick = *tick;
    p->tick.restarted = restarted;
    p->epoch = a->epoch;
    p->decoded = appliance_now(a);
    features_tick(intake_features(a->intake), tick->stream, tick->locate, tick->feed_ts_ns,
                  market_books(intake_market(a->intake)), p->raw);
    appliance_spend(a, a->cfg.config->replay.features_ns);
    trace_mark(a->cfg.trace, TRACE_FEATURES);
}

/* ---- ticks whose turn has come ---- */

/* 1: it is to be handed to the accelerator. 0: it has its verdict. -1: not together with the n_before that
 * are handed over before it. */
static int admit(struct appliance *a, struct work *w, uint32_t n_before)
{
    const struct intake_tick *tick = &w->p->tick;
    struct stream *stream = &a->streams[tick->stream];
    const struct market *market = intake_market(a->intake);
    struct audit_prediction *r = &w->r;
    begin_record(a, w->p, r);
    w->doomed = 0;
    w->has_features = w->stepped = 0;
    /* What came while it waited may have been a halt, or a gap. */
    w->verdict = !market_trading(market, tick->locate)                      ? VERDICT_HALTED
                 : !market_reliable(market, tick->locate, tick->feed_ts_ns) ? VERDICT_BOOK_UNRELIABLE
                                                                            : VERDICT_PUBLISHED;
    if (w->verdict != VERDICT_PUBLISHED) {
        stream->needs_reset = 1;
        return 0;
    }
    if (stream->needs_reset || tick->restarted) {
        /* A stream that starts anew does so on the newest model. */
        const uint8_t slot = a->slot;
        /* An earlier tick of it, in whichever slot, may be one of those before. */
        if (n_before && (stream->at_work[slot] || stream->at_work[!slot]))
            return -1;
        if (stream->at_work[slot]) {
            const uint32_t status = appliance_call(a, KL_OP_RESET, slot, tick->stream);
            if (status != KL_OK) {
                w->verdict = appliance_device_error(a, tick->stream, tick->locate, tick->feed_ts_ns, status);
                return 0;
            }
            appliance_spend(a, a->cfg.config->replay.io_ns + appliance_kernel_ns(a, a->result.kernel_cycles));
        }
        appliance_standby_reset(a, stream);
    } else if (stream->slot != a->slot) {
        appliance_standby_go_over(a, stream);
    }
    const uint8_t slot = r->slot = stream->slot;
    features_quantise(a->model[slot], w->p->raw, w->request.x);
    w->has_features = 1;
    trace_mark(a->cfg.trace, TRACE_FEATURES);
    r->submitted = appliance_now(a);
    const uint64_t age = age_at(a, w->p, r->submitted, r), threshold = r->threshold_cycles,
                   expected = killline_expect_batch(a->expected[slot], a->further[slot], n_before + 1);
    r->expected_cycles = expected;
    if (n_before && (expected > threshold / BATCH_SHARE || !killline_can_make(age, expected, threshold)))
        return -1; /* alone it may make the line */
    if (!killline_can_make(age, expected, threshold)) {
        r->submitted = 0;
        w->verdict = r->flags & AUDIT_FLAG_AGE_UNKNOWN ? VERDICT_STALE : VERDICT_EXPECTED_LATE;
        a->expected[slot] = killline_expect_unproved(a->expected[slot], threshold);
        return 0;
    }
    w->left = threshold - age;
    const uint64_t left_ns = (uint64_t)((double)w->left * a->to_ns),
                   budget_cycles = left_ns * a->cfg.config->replay.kernel_mhz / 1000;
    w->request.slot = slot;
    w->request.op = KL_OP_STEP;
    w->request.stream = tick->stream;
    w->request.budget_cycles = budget_cycles ? (uint32_t)budget_cycles : 1; /* 0 would be no budget at all */
    stream->at_work[slot] = 1;
    if (n_before)
        r->flags |= AUDIT_FLAG_BATCH;
    return 1;
}

/* From the answer to the verdict. */
static enum verdict finish(struct appliance *a, struct work *w, uint32_t status)
{
    const struct intake_tick *tick = &w->p->tick;
    struct stream *stream = &a->streams[tick->stream];
    struct audit_prediction *r = &w->r;
    const uint8_t slot = r->slot;
    trace_mark(a->cfg.trace, TRACE_INFERENCE);
    if (status != KL_OK)
        return appliance_device_error(a, tick->stream, tick->locate, tick->feed_ts_ns, status);
    if (a->gave_up) {
        /* The card did not answer by the kill line. The mirror has made the step: the stream goes on from
         * there. */
        r->flags |= AUDIT_FLAG_MIRROR;
        w->stepped = !(a->result.flags & KL_RESULT_LATE);
        stream->ticks[slot] += w->stepped;
        a->stats.device_errors++;
        appliance_device_fault(a);
        appliance_commit_event(a, AUDIT_EVENT_DEVICE_ERROR, tick->locate, tick->feed_ts_ns,
                               AUDIT_DEVICE_SILENT, tick->stream);
        return VERDICT_DEVICE_ERROR;
    }
    if (a->cfg.guard && accel_guard_mirrored(a->cfg.guard))
        r->flags |= AUDIT_FLAG_MIRROR;
    r->completed = appliance_now(a);
    r->kernel_cycles = a->result.kernel_cycles;
    r->prepare_cycles = a->result.prepare_cycles;
    if (a->result.flags & KL_RESULT_LATE) {
        /* The kernel has seen that it cannot make the line and has not begun: as if the tick had not been
         * submitted, the stream's state knows nothing of it. An inference takes longer than what was left. */
        r->flags |= AUDIT_FLAG_KERNEL_LATE;
        a->expected[slot] = killline_expect(a->expected[slot], w->left + 1);
        return VERDICT_EXPECTED_LATE;
    }
    r->flags |= AUDIT_FLAG_INFERRED;
    w->stepped = 1;
    r->cls = a->result.cls;
    r->logit_frac = a->result.logit_frac;
    memcpy(r->logits, a->result.logits, sizeof(r->logits));
    if (++stream->ticks[slot] <= a->model[slot]->warmup_ticks)
        return VERDICT_WARMING_UP;

    trace_mark(a->cfg.trace, TRACE_CHECK);
    const uint32_t len = build_datagram(a, tick, r->symbol);
    trace_mark(a->cfg.trace, TRACE_PUBLISH);
    appliance_spend(a, a->cfg.config->replay.publish_ns);
    /* The last things before the send: is there an order to halt, and what time is it. */
    const int halted = governor_rung(a->governor) == GOVERNOR_HALTED || order_is_halted(a->cfg.desk);
    r->decided = appliance_now_exactly(a);
    r->age_cycles = age_at(a, w->p, r->decided, r);
    w->would_be = killline_verdict(r->age_cycles, r->threshold_cycles, 0);
    const enum verdict verdict = killline_verdict(r->age_cycles, r->threshold_cycles, halted);
    trace_mark(a->cfg.trace, TRACE_CHECK);
    if (verdict != VERDICT_PUBLISHED)
        return verdict;
    if (!len || port_send(a->cfg.tx, len)) {
        a->stats.egress_errors++;
        r->flags |= AUDIT_FLAG_EGRESS_FAILED;
        return VERDICT_DEVICE_ERROR;
    }
    r->publish_seq = ++a->publish_seq;
    trace_mark(a->cfg.trace, TRACE_PUBLISH);
    return VERDICT_PUBLISHED;
}

/* Everything about a settled tick that need not be done before the next one's send. */
static void settle(struct appliance *a, struct work *w)
{
    const struct intake_tick *tick = &w->p->tick;
    struct audit_prediction *r = &w->r;
    if (w->has_features)
        r->feature_hash = features_hash(w->request.x, a->model[r->slot]->n_feature);
    conclude(a, w->p, r, w->verdict, w->would_be);
    /* The recurrent half of the stream's next step, off the critical path. Also where the kernel was late: a
     * stream that comes anew and is never prepared could be late for ever. */
    if (r->flags & AUDIT_FLAG_KERNEL_LATE || (w->stepped && !a->prepares_by_flag))
        appliance_prepare(a, tick->stream, tick->locate, tick->feed_ts_ns, r->slot);
    if (w->stepped)
        appliance_standby_push(a, w);
}

/* Takes ticks from the queue into a->work, and hands them over one by one, until a batch is full, one does
 * not go with those before it, or WORK_MAX are settled. Returns how many; *n_submit of them were for the
 * accelerator, which has *n_sent. */
static uint32_t gather(struct appliance *a, uint32_t *n_submit, uint32_t *n_sent)
{
    uint32_t n = 0, failed = KL_OK;
    *n_submit = *n_sent = 0;
    while (n < WORK_MAX && *n_submit < a->cfg.config->killline.batch && appliance_n_pending(a)) {
        const uint32_t at = a->pending_head % PENDING_MAX;
        struct work *w = &a->work[n];
        w->p = &a->pending[at];
        const int admitted = admit(a, w, *n_submit);
        if (admitted < 0)
            break;
        struct stream *stream = &a->streams[w->p->tick.stream];
        if (stream->waits == at + 1)
            stream->waits = 0;
        a->pending_head++;
        n++;
        w->submitted = (uint8_t)admitted;
        if (!admitted)
            continue;
        trace_mark(a->cfg.trace, TRACE_SUBMIT);
        ++*n_submit;
        w->request.flags = a->prepares_by_flag ? KL_REQUEST_PREPARE : 0;
        if (!failed) /* else it goes nowhere, like the one before */
            failed = appliance_submit(a, &w->request, *n_sent);
        w->status = failed;
        *n_sent += !failed;
    }
    return n;
}

void appliance_work_off(struct appliance *a)
{
    uint32_t n_submit, behind;
    const uint32_t n = gather(a, &n_submit, &behind);
    const uint64_t handed_over = a->now_ns, start = behind ? clock_tsc_relaxed() : 0;
    uint64_t previous = 0, busy_ns = 0;
    uint32_t nth = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct work *w = &a->work[i];
        w->would_be = w->verdict;
        if (!w->submitted)
            continue;
        const uint8_t slot = w->r.slot;
        const uint64_t usual = killline_expect_batch(a->expected[slot], a->further[slot], ++nth);
        a->gave_up = 0;
        if (w->status == KL_OK)
            w->status = appliance_await(a, &w->request, --behind, start, w->left, usual);
        w->r.request_seq = w->request.seq_no;
        if (a->replay && w->status == KL_OK) {
            /* The card works one off after the other; the ways there and back overlap. */
            busy_ns += a->gave_up ? 0 : appliance_kernel_ns(a, a->result.kernel_cycles);
            const uint64_t there =
                handed_over + (a->gave_up ? w->left : a->cfg.config->replay.io_ns + busy_ns);
            appliance_spend(a, there > a->now_ns ? there - a->now_ns : 0);
        }
        if (w->status == KL_OK)
            w->status = w->doomed;
        for (uint32_t k = i + 1; w->status != KL_OK && k < n; k++)
            if (a->work[k].p->tick.stream == w->p->tick.stream)
                a->work[k].doomed = w->status;
        w->verdict = finish(a, w, w->status);
        if (w->verdict != VERDICT_HALTED) /* else the last check has said what it would be */
            w->would_be = w->verdict;
        const uint64_t answered = w->r.decided ? w->r.decided : w->r.completed;
        if (w->r.flags & AUDIT_FLAG_INFERRED) {
            uint64_t *expected = nth > 1 ? &a->further[slot] : &a->expected[slot];
            *expected =
                killline_expect(*expected, answered - (nth > 1 && previous ? previous : w->r.submitted));
        }
        previous = answered;
    }
    /* From here on nothing is urgent. */
    for (uint32_t i = 0; i < n; i++)
        settle(a, &a->work[i]);
    a->stats.batches += n_submit > 1;
    a->stats.batched += n_submit > 1 ? n_submit : 0;
    /* Nothing is outstanding: a backend in this process carries the prepare out in here, a guard its mirror's
     * work. */
    if ((n_submit && a->prepares_by_flag) || a->cfg.guard)
        a->cfg.accel->ops->poll(a->cfg.accel, &a->result);
    if (a->cfg.guard)
        appliance_card_news(a);
    port_tx_prepare(a->cfg.tx);
}
