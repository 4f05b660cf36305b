#include <immintrin.h>
#include <stdio.h>
#include <string.h>

#include "appliance_self.h"

enum { FAIR = 4 }; /* a card that has had so many times the expected inference is silent */

/* Time is up. A guard has the answer from elsewhere; 0, or -1: there is none. */
static int give_up(struct appliance *a, uint64_t left)
{
    if (!a->cfg.guard || a->gave_up || accel_guard_give_up(a->cfg.guard))
        return -1;
    a->gave_up = 1;
    a->stats.given_up++;
    appliance_spend(a, left);
    return 0;
}

uint32_t appliance_call(struct appliance *a, enum kl_op op, uint32_t slot, uint32_t stream,
                        uint32_t budget_cycles, uint64_t left)
{
    struct accel *accel = a->cfg.accel;
    a->gave_up = 0;
    a->request.slot = (uint16_t)slot;
    a->request.op = (uint16_t)op;
    a->request.flags = op == KL_OP_STEP && a->prepares_by_flag ? KL_REQUEST_PREPARE : 0;
    a->request.stream = stream;
    a->request.seq_no = ++a->request_seq;
    a->request.budget_cycles = budget_cycles;
    /* Answers that come after their time was up are still in the way, in the order of submission: they are
     * thrown away, here if the queue is full and below otherwise. */
    int refused = accel->ops->submit(accel, &a->request);
    if (refused == -1) {
        if (accel->ops->poll(accel, &a->result) != 1)
            return AUDIT_DEVICE_SILENT;
        a->n_unheard -= a->n_unheard > 0;
        refused = accel->ops->submit(accel, &a->request);
    }
    if (refused)
        return refused == ACCEL_FAILED ? AUDIT_DEVICE_FAILED : AUDIT_DEVICE_SILENT;
    a->n_unheard++;
    uint64_t start = clock_tsc_relaxed();
    /* Of a tick that is near the line little is left: too little to call a card silent that needs its usual
     * time. */
    const uint64_t fair = left > FAIR * a->expected ? left : FAIR * a->expected;
    const uint64_t limit = a->replay || fair > a->timeout ? a->timeout : fair;
    for (int late = 0;;) {
        int got = accel->ops->poll(accel, &a->result);
        if (got < 0) { /* nothing is outstanding, it says, or nothing will be answered */
            a->n_unheard = 0;
            return got == ACCEL_FAILED ? AUDIT_DEVICE_FAILED : AUDIT_DEVICE_NONSENSE;
        }
        a->n_unheard -= (uint32_t)got;
        if (got && !a->n_unheard)
            break;
        /* Late is who has been looked at once more after his time: a loop that was stalled finds the answer
         * that came meanwhile. */
        if (late) {
            if (give_up(a, left))
                return AUDIT_DEVICE_SILENT;
            start = clock_tsc();
        }
        late = clock_tsc() - start > limit;
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
    const struct kl_image_header *image = a->model[a->request.slot]->image;
    return r->abi_version == KL_ABI_VERSION && r->image_hash == image->image_hash &&
           r->n_class == image->n_class && r->n_class <= KL_N_CLASS_MAX && r->cls < r->n_class &&
           r->logit_frac < 64 && !(r->flags & ~KL_RESULT_LATE) && (!r->flags || a->request.budget_cycles);
}

/* A guard has judged what its cards answer. */
uint32_t appliance_step(struct appliance *a, uint32_t slot, uint32_t stream, uint32_t budget_cycles,
                        uint64_t left)
{
    uint32_t status = appliance_call(a, KL_OP_STEP, slot, stream, budget_cycles, left);
    return status == KL_OK && !a->cfg.guard && !plausible(a) ? AUDIT_DEVICE_NONSENSE : status;
}

enum verdict appliance_device_error(struct appliance *a, const struct intake_tick *tick, uint32_t status)
{
    a->stats.device_errors++;
    a->streams[tick->stream].needs_reset = 1;
    appliance_commit_event(a, AUDIT_EVENT_DEVICE_ERROR, tick->locate, tick->feed_ts_ns, status, tick->stream);
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
        struct audit_record record = {
            .event = {.kind = AUDIT_EVENT,
                      .code = (uint16_t)(AUDIT_EVENT_CARD_FAILOVER + e.code - ACCEL_GUARD_FAILOVER),
                      .at = appliance_now(a),
                      .symbol = "        ",
                      .value = {e.card, e.reason, e.stream, last}}};
        appliance_commit(a, &record);
        const double took_ns = (double)e.took_cycles * 1e9 / a->cfg.clock.hz;
        if (e.code == ACCEL_GUARD_FAILOVER || e.code == ACCEL_GUARD_QUARANTINE)
            a->stats.failover_ns_max =
                took_ns > a->stats.failover_ns_max ? took_ns : a->stats.failover_ns_max;
    }
}

void appliance_prepare(struct appliance *a, const struct intake_tick *tick, uint32_t slot)
{
    uint32_t status = appliance_call(a, KL_OP_PREPARE, slot, tick->stream, 0, a->threshold);
    if (status == KL_OK)
        appliance_spend(a, appliance_kernel_ns(a, a->result.kernel_cycles));
    else
        appliance_device_error(a, tick, status);
}

/* One dummy inference: the first guess at how long one takes, and a device that does not answer is found now.
 */
int appliance_first_inference(struct appliance *a, char error[AUDIT_ERROR_CHARS])
{
    uint64_t start = clock_tsc();
    uint32_t status = appliance_step(a, 0, 0, 0, UINT64_MAX);
    const struct config *c = a->cfg.config;
    a->expected =
        a->replay ? c->replay.io_ns + appliance_kernel_ns(a, a->result.kernel_cycles) + c->replay.publish_ns
                  : clock_tsc() - start;
    if (status == KL_OK)
        status = appliance_call(a, KL_OP_RESET, 0, 0, 0, UINT64_MAX);
    if (status == KL_OK)
        return 0;
    if (status == AUDIT_DEVICE_SILENT)
        snprintf(error, AUDIT_ERROR_CHARS,
                 "the accelerator does not answer within killline.device_timeout_us=%u",
                 c->killline.device_timeout_us);
    else if (status == AUDIT_DEVICE_NONSENSE)
        snprintf(error, AUDIT_ERROR_CHARS, "the accelerator's answer is not of the loaded model");
    else
        snprintf(error, AUDIT_ERROR_CHARS, "the accelerator's first request fails: %s (status %u)",
                 audit_device_name(status), status);
    return -1;
}
