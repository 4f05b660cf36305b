/* A card's mirror: what is believed of an answer, the queue of requests that the mirror steps after the card,
 * and who holds it. */
#include <assert.h>
#include <immintrin.h>
#include <stddef.h>

#include "accel_guard_self.h"

/* ---- answers ---- */

static int is_plausible(const struct guard_model *model, const struct kl_request *request,
                        const struct kl_result *r)
{
    if (r->status != KL_OK) /* which status: the mirror's say */
        return 1;
    if (!model->image || r->image_hash != model->image_hash || r->n_class != model->n_class ||
        r->logit_frac != model->logit_frac || r->cls >= model->n_class || (r->flags & ~KL_RESULT_LATE) != 0)
        return 0;
    if (!(r->flags & KL_RESULT_LATE))
        return 1;
    if (!request->budget_cycles || r->cls != 0)
        return 0;
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++)
        if (r->logits[k] != 0)
            return 0;
    return 1;
}

enum accel_guard_reason guard_judge(const struct guard_model *models, const struct kl_request *request,
                                    const struct kl_result *result)
{
    static const struct guard_model none;
    if (result->check != kl_result_check(result) || result->abi_version != KL_ABI_VERSION)
        return ACCEL_GUARD_DAMAGED;
    if (result->seq_no != request->seq_no || result->stream != request->stream ||
        result->slot != request->slot)
        return ACCEL_GUARD_SEQUENCE;
    const struct guard_model *model = request->slot < KL_N_SLOT ? &models[request->slot] : &none;
    return is_plausible(model, request, result) ? ACCEL_GUARD_OK : ACCEL_GUARD_DAMAGED;
}

int guard_same(const struct kl_result *a, const struct kl_result *b, int with_cycles)
{
    return a->status == b->status && a->cls == b->cls && a->image_hash == b->image_hash &&
           a->n_class == b->n_class && a->logit_frac == b->logit_frac &&
           a->prepare_cycles == b->prepare_cycles && (!with_cycles || a->kernel_cycles == b->kernel_cycles) &&
           memcmp(a->logits, b->logits, sizeof a->logits) == 0;
}

void guard_exec(struct accel *accel, const struct kl_request *request, struct kl_result *result)
{
    int got = accel->ops->submit(accel, request);
    assert(got == 0);
    got = accel->ops->poll(accel, result);
    assert(got == 1);
}

/* ---- who holds the mirror ---- */

void guard_take_mirror(struct guard_card *c)
{
    if (!c->is_threaded_mirror || c->holds_mirror)
        return;
    atomic_store_explicit(&c->mirror_wanted, 1, memory_order_relaxed);
    uint32_t nobody = GUARD_NOBODY;
    /* acquire: pairs with the release in the thread's run_mirror */
    while (!atomic_compare_exchange_weak_explicit(&c->mirror_holder, &nobody, GUARD_LOOP,
                                                  memory_order_acquire, memory_order_relaxed)) {
        nobody = GUARD_NOBODY;
        _mm_pause();
    }
    atomic_store_explicit(&c->mirror_wanted, 0, memory_order_relaxed);
    c->holds_mirror = 1;
}

void guard_give_mirror(struct guard_card *c)
{
    if (!c->is_threaded_mirror || c->phase != ACCEL_GUARD_SERVING)
        return;
    c->holds_mirror = 0;
    /* release: pairs with the acquire in the thread's run_mirror */
    atomic_store_explicit(&c->mirror_holder, GUARD_NOBODY, memory_order_release);
}

/* ---- the queue ---- */

int guard_queue(struct guard_card *c, const struct guard_model *models, const struct kl_request *request,
                const struct kl_result *result, int is_compared, int with_cycles)
{
    struct guard_entry *entry = spsc_ring_reserve(&c->queue);
    if (!entry)
        return -1;
    entry->kind = GUARD_REQUEST;
    entry->is_compared = (uint8_t)is_compared;
    entry->with_cycles = (uint8_t)with_cycles;
    entry->result = *result;
    guard_copy_request(&entry->request, request, request->slot < KL_N_SLOT ? models[request->slot].n_in : 0);
    entry->request.budget_cycles = 0; /* it was in time: whoever follows does it, however late it is */
    spsc_ring_push(&c->queue);
    return 0;
}

static void step_entry(struct guard_card *c, const struct guard_entry *entry)
{
    const struct kl_request *request = &entry->request;
    struct kl_result result;
    guard_exec(c->mirror, request, &result);
    /* Its status costs nothing to compare: that of every answer is. */
    const int same = entry->is_compared ? guard_same(&entry->result, &result, entry->with_cycles)
                                        : entry->result.status == result.status;
    if (entry->is_compared)
        guard_count(&c->compared);
    if (same) {
        if (entry->is_compared)
            c->last_good_seq_no = request->seq_no;
        return;
    }
    guard_count(&c->differed);
    if (atomic_load_explicit(&c->differs, memory_order_relaxed))
        return; /* the first counts */
    c->differs_at = (struct guard_finding){.reason = ACCEL_GUARD_DIFFERS,
                                           .stream = request->stream,
                                           .seq_no = request->seq_no,
                                           .last_good_seq_no = c->last_good_seq_no};
    /* release: pairs with the acquire in guard_look */
    atomic_store_explicit(&c->differs, 1, memory_order_release);
}

int guard_mirror_piece(struct guard_card *c)
{
    const struct guard_entry *entry = spsc_ring_peek(&c->queue);
    if (entry) {
        step_entry(c, entry);
        spsc_ring_pop(&c->queue);
        c->idle_due = KL_QUEUE_DEPTH;
        return 1;
    }
    if (!c->idle_due)
        return 0;
    struct kl_result none;
    c->mirror->ops->poll(c->mirror, &none);
    c->idle_due--;
    return 1;
}

void guard_catch_up(struct guard_card *c)
{
    while (spsc_ring_count(&c->queue))
        guard_mirror_piece(c);
}
