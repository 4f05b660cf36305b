#include <immintrin.h>
#include <stdio.h>
#include <string.h>

#include "appliance_self.h"

enum {
    FAIR = 4, /* a card that has had so many times the expected inference is silent */
    /* Real clock: dummy inferences before the first tick, per slot. The first takes many times as long as the
     * hundredth (code, weights and state not cached, clocks low). */
    WARM_UP_STEPS = 200,
};

/* Time is up. A guard has the answer from elsewhere; 0, or -1: there is none. */
static int give_up(struct appliance *a)
{
    if (!a->cfg.guard || a->gave_up || accel_guard_give_up(a->cfg.guard))
        return -1;
    a->gave_up = 1;
    a->stats.given_up++;
    return 0;
}

uint32_t appliance_submit(struct appliance *a, struct kl_request *request, uint32_t n_before)
{
    struct accel *accel = a->cfg.accel;
    request->abi_version = KL_ABI_VERSION;
    request->seq_no = ++a->request_seq;
    /* Answers that come after their time was up are still in the way, in the order of submission: they are
     * thrown away, here if the queue is full and otherwise when the next one is waited for. */
    int refused = accel->ops->submit(accel, request);
    if (refused == -1) {
        if (a->n_unheard <= n_before || accel->ops->poll(accel, &a->result) != 1)
            return AUDIT_DEVICE_SILENT;
        a->n_unheard--;
        refused = accel->ops->submit(accel, request);
    }
    if (refused)
        return refused == ACCEL_FAILED ? AUDIT_DEVICE_FAILED : AUDIT_DEVICE_SILENT;
    a->n_unheard++;
    return KL_OK;
}

/* A device may answer anything; what the log and the wire can carry is checked before it goes there. */
static int plausible(const struct appliance *a, const struct kl_request *request)
{
    const struct kl_result *r = &a->result;
    const struct kl_image_header *image = a->model[request->slot]->image;
    return r->abi_version == KL_ABI_VERSION && r->slot == request->slot && r->stream == request->stream &&
           r->image_hash == image->image_hash && r->n_class == image->n_class &&
           r->n_class <= KL_N_CLASS_MAX && r->cls < r->n_class && r->logit_frac < 64 &&
           !(r->flags & ~KL_RESULT_LATE) && (!r->flags || request->budget_cycles);
}

uint32_t appliance_await(struct appliance *a, const struct kl_request *request, uint32_t behind,
                         uint64_t start, uint64_t left, uint64_t usual)
{
    struct accel *accel = a->cfg.accel;
    if (a->n_unheard <= behind) /* the device dropped all that was outstanding */
        return AUDIT_DEVICE_FAILED;
    /* Of a tick that is near the line little is left: too little to call a card silent that needs its usual
     * time. */
    const uint64_t fair = usual > UINT64_MAX / FAIR ? UINT64_MAX : left > FAIR * usual ? left : FAIR * usual;
    const uint64_t limit = a->replay || fair > a->timeout ? a->timeout : fair;
    for (int late = 0;;) {
        int got = accel->ops->poll(accel, &a->result);
        if (got < 0) { /* nothing is outstanding, it says, or nothing will be answered */
            a->n_unheard = 0;
            return got == ACCEL_FAILED ? AUDIT_DEVICE_FAILED : AUDIT_DEVICE_NONSENSE;
        }
        a->n_unheard -= (uint32_t)got;
        if (got && a->n_unheard == behind)
            break;
        /* Late is who has been looked at once more after his time: a loop that was stalled finds the answer
         * that came meanwhile, behind those that nobody waits for any more. */
        if (late && !got) {
            if (give_up(a))
                return AUDIT_DEVICE_SILENT;
            start = clock_tsc();
        }
        const uint64_t now = clock_tsc();
        if (!a->replay)
            appliance_look(a, now); /* so that a step back during an inference is seen */
        if ((int64_t)(now - start) < 0)
            start = now;
        late = now - start > limit;
        _mm_pause();
    }
    if (a->result.seq_no != request->seq_no)
        return AUDIT_DEVICE_NONSENSE;
    /* A guard has judged what its cards answer. */
    if (a->result.status == KL_OK && request->op == KL_OP_STEP && !a->cfg.guard && !plausible(a, request))
        return AUDIT_DEVICE_NONSENSE;
    return a->result.status;
}

uint32_t appliance_call(struct appliance *a, enum kl_op op, uint32_t slot, uint32_t stream)
{
    a->gave_up = 0;
    a->request.slot = (uint16_t)slot;
    a->request.op = (uint16_t)op;
    a->request.flags = op == KL_OP_STEP && a->prepares_by_flag ? KL_REQUEST_PREPARE : 0;
    a->request.stream = stream;
    a->request.budget_cycles = 0;
    const uint32_t status = appliance_submit(a, &a->request, 0);
    if (status != KL_OK)
        return status;
    /* Not what is left to some line: a sound card is to have its time. */
    const uint64_t left = a->threshold.current;
    const uint32_t answer = appliance_await(a, &a->request, 0, clock_tsc_relaxed(), left, a->expected[slot]);
    if (a->gave_up)
        appliance_spend(a, left);
    return answer;
}

uint32_t appliance_step(struct appliance *a, uint32_t slot, uint32_t stream)
{
    return appliance_call(a, KL_OP_STEP, slot, stream);
}

enum verdict appliance_device_error(struct appliance *a, uint16_t stream, uint16_t locate,
                                    uint64_t feed_ts_ns, uint32_t status)
{
    a->stats.device_errors++;
    a->streams[stream].needs_reset = 1;
    appliance_device_fault(a);
    appliance_commit_event(a, AUDIT_EVENT_DEVICE_ERROR, locate, feed_ts_ns, status, stream);
    return VERDICT_DEVICE_ERROR;
}

/* What became of the cards since the last look. */
void appliance_card_news(struct appliance *a)
{
    static_assert((int)ACCEL_GUARD_FAILOVER == 1 && (int)ACCEL_GUARD_STATE_LOST == 6 &&
                      (int)AUDIT_EVENT_CARD_FAILOVER + 5 == (int)AUDIT_EVENT_CARD_STATE_LOST,
                  "same order");
    static_assert((int)ACCEL_GUARD_REFUSED == (int)AUDIT_CARD_REFUSED &&
                      (int)ACCEL_GUARD_LOAD == (int)AUDIT_CARD_LOAD,
                  "same reasons");
    struct accel_guard_event e;
    while (accel_guard_event(a->cfg.guard, &e)) {
        const uint64_t last = e.code == ACCEL_GUARD_QUARANTINE  ? e.last_good_seq_no
                              : e.code == ACCEL_GUARD_RECOVERED ? e.count
                                                                : e.seq_no;
        const uint64_t value[4] = {e.card, e.reason, e.stream, last};
        appliance_commit_values(
            a, (enum audit_event_code)(AUDIT_EVENT_CARD_FAILOVER + e.code - ACCEL_GUARD_FAILOVER), value, "");
        const double took_ns = (double)e.took_cycles * 1e9 / a->cfg.clock.hz;
        if (e.code == ACCEL_GUARD_FAILOVER || e.code == ACCEL_GUARD_QUARANTINE) {
            appliance_device_fault(a);
            a->stats.failover_ns_max =
                took_ns > a->stats.failover_ns_max ? took_ns : a->stats.failover_ns_max;
        }
    }
}

void appliance_prepare(struct appliance *a, uint16_t stream, uint16_t locate, uint64_t feed_ts_ns,
                       uint32_t slot)
{
    uint32_t status = appliance_call(a, KL_OP_PREPARE, slot, stream);
    if (status == KL_OK)
        appliance_spend(a, appliance_kernel_ns(a, a->result.kernel_cycles));
    else
        appliance_device_error(a, stream, locate, feed_ts_ns, status);
}

/* ---- dummies ---- */

/* A step that nobody asked for, timed. */
static uint32_t dummy(struct appliance *a, uint32_t slot, uint32_t stream, uint64_t *took)
{
    const uint64_t start = clock_tsc();
    memset(a->request.x, 0, sizeof(a->request.x));
    const uint32_t status = appliance_step(a, slot, stream);
    const uint64_t end = clock_tsc();
    *took = end - start < a->timeout ? end - start : a->timeout; /* whatever the clock has done */
    return status;
}

static int say(const struct appliance *a, uint32_t status, char error[AUDIT_ERROR_CHARS])
{
    if (status == AUDIT_DEVICE_SILENT)
        snprintf(error, AUDIT_ERROR_CHARS,
                 "the accelerator does not answer within killline.device_timeout_us=%u",
                 a->cfg.config->killline.device_timeout_us);
    else if (status == AUDIT_DEVICE_NONSENSE)
        snprintf(error, AUDIT_ERROR_CHARS, "the accelerator's answer is not of the loaded model");
    else
        snprintf(error, AUDIT_ERROR_CHARS, "the accelerator's first request fails: %s (status %u)",
                 audit_device_name(status), status);
    return -1;
}

int appliance_warm_up(struct appliance *a, char error[AUDIT_ERROR_CHARS])
{
    const struct config *c = a->cfg.config;
    const uint32_t n_slot = a->cfg.backup ? 2 : 1, n_step = a->replay ? 1 : WARM_UP_STEPS;
    for (uint32_t slot = 0; slot < n_slot; slot++) {
        a->expected[slot] = a->timeout; /* while nothing is known, a card has all its time */
        for (uint32_t i = 0; i < n_step; i++) {
            uint64_t took;
            const uint32_t status = dummy(a, slot, i % WARM_STREAMS, &took);
            if (status != KL_OK)
                return say(a, status, error);
            if (a->replay)
                took =
                    c->replay.io_ns + appliance_kernel_ns(a, a->result.kernel_cycles) + c->replay.publish_ns;
            a->expected[slot] = i ? killline_expect(a->expected[slot], took) : took;
            if (a->prepares_by_flag)
                a->cfg.accel->ops->poll(a->cfg.accel, &a->result);
        }
        for (uint32_t i = 0; i < n_step && i < WARM_STREAMS; i++) {
            const uint32_t status = appliance_call(a, KL_OP_RESET, slot, i);
            if (status != KL_OK)
                return say(a, status, error);
        }
        a->further[slot] = a->expected[slot];
    }
    /* The slot of a model that comes later starts from this one's. */
    for (uint32_t slot = n_slot; slot < KL_N_SLOT; slot++) {
        a->expected[slot] = a->expected[0];
        a->further[slot] = a->further[0];
    }
    return 0;
}

void appliance_keep_warm(struct appliance *a)
{
    /* From the last stream down, which symbols reach last: one that is in use is not touched. */
    const uint32_t n = KL_N_STREAM_MAX - 1 - (uint32_t)(a->stats.kept_warm % WARM_STREAMS);
    struct stream *stream = &a->streams[n];
    if (stream->is_used)
        return;
    stream->needs_reset = stream->at_work[a->slot] = 1; /* for whom it may be later */
    uint64_t took;
    const uint32_t status = dummy(a, a->slot, n, &took);
    if (status != KL_OK) {
        appliance_device_error(a, (uint16_t)n, 0, 0, status);
        return;
    }
    if (a->prepares_by_flag)
        a->cfg.accel->ops->poll(a->cfg.accel, &a->result);
    const uint64_t took_ns = (uint64_t)((double)took * a->to_ns);
    a->stats.kept_warm++;
    a->stats.keep_warm_ns_max = took_ns > a->stats.keep_warm_ns_max ? took_ns : a->stats.keep_warm_ns_max;
}
