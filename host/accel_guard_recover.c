/* A lost card's way back: reset, models, probes, then it shadows its mirror until it may serve. The worker's
 * half, a state machine in bounded pieces, and the poll loop's half, which feeds it. */
#include <immintrin.h>
#include <stddef.h>

#include "accel_guard_self.h"
#include "clock.h"
#include "fp16.h"

enum {
    /* TSC cycles are 0.2 to 1 ns. A request takes a card microseconds. */
    SILENCE_CYCLES = 30 * 1000 * 1000,
    /* Inline a run is to be the same every time: the card is waited for, however busy the machine is. */
    INLINE_SILENCE_CYCLES = 300 * 1000 * 1000,
    INLINE_PIECES = 64, /* per idle moment */
    INLINE_RETRY_POLLS = 64,
};

/* ---- the worker ---- */

static void set_stage(struct guard_card *c, enum guard_stage stage)
{
    /* release: pairs with the acquire in guard_tend; the card is as it was left */
    atomic_store_explicit(&c->stage, stage, memory_order_release);
}

static int give_it_up(struct guard_card *c, enum accel_guard_reason reason)
{
    c->failed =
        (struct guard_finding){.reason = reason, .stream = c->request.stream, .seq_no = c->request.seq_no};
    set_stage(c, GUARD_FAILED);
    return 0;
}

static uint64_t retry_after(const struct guard_card *c)
{
    if (!c->n_failure)
        return 0;
    const uint32_t n = c->n_failure - 1;
    return (c->is_inline ? (uint64_t)INLINE_RETRY_POLLS : c->retry_cycles)
           << (n < GUARD_RETRY_DOUBLINGS ? n : GUARD_RETRY_DOUBLINGS);
}

/* The next reset, by how often it has failed. */
static void set_due(struct guard_card *c)
{
    c->due = c->is_inline ? retry_after(c) : clock_tsc() + retry_after(c);
}

static int reset_piece(struct guard_card *c)
{
    if (!c->card->ops->reset)
        return 0; /* out for good */
    if (c->is_inline ? c->due > 0 : clock_tsc() < c->due) {
        c->due -= (uint64_t)c->is_inline;
        return 0;
    }
    char error[ACCEL_ERROR_CHARS];
    if (c->card->ops->reset(c->card, error)) {
        guard_count(&c->resets_failed);
        c->n_failure++;
        set_due(c);
        return 0;
    }
    guard_count(&c->resets);
    c->target = 0;
    c->has_begun = 0;
    set_stage(c, GUARD_LOAD);
    return 1;
}

static uint32_t n_model(const struct guard_card *c)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < KL_N_SLOT; s++)
        n += c->models[s].image != NULL;
    return n;
}

static int load_piece(struct guard_card *c)
{
    if (c->judge_loads && !c->has_begun) { /* since before the reset: it has to end before another begins */
        c->judge_loads = c->judge->ops->load_advance(c->judge) == KL_E_BUSY;
        return 1;
    }
    while (c->target < 2 * KL_N_SLOT && !c->models[c->target / 2].image)
        c->target++;
    if (c->target == 2 * KL_N_SLOT) {
        c->probe = c->n_equal = 0;
        c->awaits = 0;
        set_stage(c, GUARD_PROBE);
        return 1;
    }
    const struct guard_model *model = &c->models[c->target / 2];
    struct accel *accel = c->target % 2 ? c->judge : c->card;
    uint32_t status = KL_E_BUSY;
    if (!c->has_begun) {
        c->since = clock_tsc();
        c->has_begun = 1;
        c->judge_loads = (int)(c->target % 2);
        status = accel->ops->load_begin(accel, c->target / 2, model->image, model->size_bytes);
        if (status == KL_OK)
            return 1;
    } else {
        do
            status = accel->ops->load_advance(accel);
        while (c->is_inline && status == KL_E_BUSY && clock_tsc() - c->since < GUARD_LOAD_CYCLES);
        if (status == KL_E_BUSY && clock_tsc() - c->since < GUARD_LOAD_CYCLES)
            return 1;
    }
    c->judge_loads = c->target % 2 && status == KL_E_BUSY;
    if (status != KL_OK)
        return give_it_up(c, ACCEL_GUARD_LOAD);
    c->has_begun = 0;
    c->target++;
    return 1;
}

/* Asks the card c->request, under a number that no caller has used for long: a card's answers are told apart
 * by them. 1, or 0: given up. */
static int ask(struct guard_card *c)
{
    c->caller_seq_no = c->request.seq_no;
    c->request.seq_no = UINT32_MAX - c->n_asked++;
    if (c->card->ops->submit(c->card, &c->request)) {
        give_it_up(c, ACCEL_GUARD_REFUSED);
        return 0;
    }
    c->awaits = 1;
    c->since = clock_tsc();
    return 1;
}

/* 1: *result answers c->request; 0: not yet, or given up. */
static int hear(struct guard_card *c, struct kl_result *result)
{
    const uint64_t limit = c->is_inline ? INLINE_SILENCE_CYCLES : SILENCE_CYCLES;
    int got, is_late;
    do {
        is_late = clock_tsc() - c->since > limit;
        got = c->card->ops->poll(c->card, result);
    } while (c->is_inline && got == 0 && !is_late);
    if (got == 0) {
        if (is_late)
            give_it_up(c, ACCEL_GUARD_SILENT);
        return 0;
    }
    enum accel_guard_reason reason = ACCEL_GUARD_REFUSED;
    if (got != ACCEL_FAILED)
        reason = got == 1 ? guard_judge(c->models, &c->request, result) : ACCEL_GUARD_SEQUENCE;
    if (reason != ACCEL_GUARD_OK) {
        give_it_up(c, reason);
        return 0;
    }
    c->awaits = 0;
    return 1;
}

static int compare(struct guard_card *c, const struct kl_result *result, const struct kl_result *expected,
                   int with_cycles)
{
    if (!guard_same(result, expected, with_cycles))
        return give_it_up(c, ACCEL_GUARD_DIFFERS);
    c->n_equal++;
    return 1;
}

/* The index'th slot with a model. */
static uint32_t slot_of(const struct guard_card *c, uint32_t index)
{
    uint32_t slot = 0;
    while (!c->models[slot].image || index-- > 0)
        slot++;
    return slot;
}

/* splitmix64's finish, of a probe's place. */
static uint64_t noise(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Steps of one stream in every slot, x uniform in +-2, and at the end their resets: the streams are as they
 * were after the load. */
static void make_probe(struct guard_card *c)
{
    const uint32_t n_slot = n_model(c), n_step = c->n_probe;
    const int is_step = c->probe < n_step;
    const uint32_t slot = slot_of(c, is_step ? c->probe % n_slot : c->probe - n_step);
    c->request.abi_version = KL_ABI_VERSION;
    c->request.op = is_step ? KL_OP_STEP : KL_OP_RESET;
    c->request.slot = (uint16_t)slot;
    c->request.flags = 0;
    c->request.stream = c->index;
    c->request.seq_no = 0; /* nobody's */
    c->request.budget_cycles = 0;
    memset(c->request.pad1, 0, sizeof c->request.pad1);
    for (uint32_t k = 0; is_step && k < c->models[slot].n_in; k++) {
        const uint64_t random = noise(((uint64_t)c->probe + 1) * KL_N_IN_MAX + k);
        const int32_t x = (int32_t)(random % (4u << KL_X_FRAC)) - (2 << KL_X_FRAC);
        c->request.x[k] = fp16_from_double((double)x / (1 << KL_X_FRAC), KL_X_FRAC, KL_X_ABS_MAX);
    }
}

static int probe_piece(struct guard_card *c)
{
    struct kl_result result;
    if (c->awaits) {
        if (!hear(c, &result) || !compare(c, &result, &c->expected, 1))
            return 0;
        c->probe++;
    }
    const uint32_t n_slot = n_model(c);
    if (n_slot == 0 || c->probe == c->n_probe + n_slot) {
        set_stage(c, GUARD_SHADOW);
        return 1;
    }
    make_probe(c);
    guard_exec(c->judge, &c->request, &c->expected);
    return ask(c);
}

static int shadow_piece(struct guard_card *c)
{
    const struct guard_entry *entry = spsc_ring_peek(&c->queue);
    if (!entry)
        return 0;
    struct kl_result result;
    if (entry->kind == GUARD_STATE) {
        const struct kl_state *state = spsc_ring_peek(&c->states); /* pushed before the entry */
        const uint32_t status = c->card->ops->restore(c->card, entry->slot, entry->stream, state);
        spsc_ring_pop(&c->states);
        if (status != KL_OK)
            return give_it_up(c, ACCEL_GUARD_STATUS);
    } else if (entry->kind == GUARD_FINISH) {
        const int got = c->card->ops->poll(c->card, &result);
        if (got != -1) /* an answer too many */
            return give_it_up(c, got == ACCEL_FAILED ? ACCEL_GUARD_REFUSED : ACCEL_GUARD_SEQUENCE);
        spsc_ring_pop(&c->queue);
        set_stage(c, GUARD_DONE);
        return 0;
    } else if (!c->awaits) {
        const uint32_t slot = entry->request.slot;
        guard_copy_request(&c->request, &entry->request, slot < KL_N_SLOT ? c->models[slot].n_in : 0);
        return ask(c);
    } else {
        if (!hear(c, &result))
            return 0;
        if (entry->is_compared && !compare(c, &result, &entry->result, entry->with_cycles))
            return 0;
        if (result.status != entry->result.status)
            return give_it_up(c, ACCEL_GUARD_STATUS);
    }
    spsc_ring_pop(&c->queue);
    return 1;
}

int guard_recover_piece(struct guard_card *c)
{
    const uint32_t stage = atomic_load_explicit(&c->stage, memory_order_relaxed); /* its own */
    if (atomic_load_explicit(&c->put_down, memory_order_relaxed)) {
        set_stage(c, GUARD_REST);
        return 0;
    }
    switch (stage) {
    case GUARD_RESET:
        return reset_piece(c);
    case GUARD_LOAD:
        return load_piece(c);
    case GUARD_PROBE:
        return probe_piece(c);
    default:
        return shadow_piece(c);
    }
}

/* ---- the poll loop ---- */

/* The worker is at rest. */
static void start(struct guard *g, struct guard_card *c)
{
    while (spsc_ring_peek(&c->queue))
        spsc_ring_pop(&c->queue);
    while (spsc_ring_peek(&c->states))
        spsc_ring_pop(&c->states);
    memcpy(c->models, g->models, sizeof c->models);
    c->is_syncing = c->finish_sent = c->starts_anew = 0;
    set_due(c);
    atomic_store_explicit(&c->put_down, 0, memory_order_relaxed);
    /* release: pairs with the acquire in the thread's loop; the card, and all of the above, is the worker's
     */
    atomic_store_explicit(&c->stage, GUARD_RESET, memory_order_release);
}

static void start_if_possible(struct guard *g, struct guard_card *c)
{
    /* acquire: pairs with the release in set_stage */
    if (!g->is_loading && guard_at_rest(atomic_load_explicit(&c->stage, memory_order_acquire)))
        start(g, c);
}

void guard_recover(struct guard *g, struct guard_card *c)
{
    c->phase = ACCEL_GUARD_OUT;
    c->is_syncing = 0;
    c->starts_anew = 1;
    atomic_store_explicit(&c->put_down, 1, memory_order_relaxed);
    start_if_possible(g, c);
}

static void tell_resets(struct guard *g, struct guard_card *c)
{
    const uint64_t resets = atomic_load_explicit(&c->resets, memory_order_relaxed);
    const uint64_t failed = atomic_load_explicit(&c->resets_failed, memory_order_relaxed);
    struct accel_guard_event event = {
        .code = ACCEL_GUARD_RESET, .card = c->index, .reason = ACCEL_GUARD_REFUSED};
    for (; c->resets_failed_told < failed; c->resets_failed_told++)
        guard_tell(g, &event);
    event.reason = ACCEL_GUARD_OK;
    for (; c->resets_told < resets; c->resets_told++)
        guard_tell(g, &event);
}

static void begin_sync(struct guard_card *c)
{
    c->phase = ACCEL_GUARD_SHADOWING;
    c->is_syncing = 1;
    c->n_unsynced = c->sync_at = 0;
    for (uint32_t s = 0; s < KL_N_SLOT; s++)
        for (uint32_t i = c->index; i < c->n_stream; i += c->n_card) {
            struct guard_stream *stream = &c->streams[s][i];
            /* The others are at rest there as well. */
            stream->unsynced = (stream->live || stream->prepared) && !stream->lost;
            c->n_unsynced += stream->unsynced;
        }
}

static void set_unsynced(struct guard_card *c, struct guard_stream *stream, int unsynced)
{
    c->n_unsynced = c->n_unsynced - stream->unsynced + (uint32_t)unsynced;
    stream->unsynced = (uint8_t)unsynced;
}

/* A prepare of a stream that is prepared on the mirror: its next step is to take the card as long. */
static int queue_prepare(struct guard *g, struct guard_card *c, uint32_t slot, uint32_t stream)
{
    const struct kl_request request = {
        .abi_version = KL_ABI_VERSION, .op = KL_OP_PREPARE, .slot = (uint16_t)slot, .stream = stream};
    const struct kl_result done = {.status = KL_OK};
    return guard_queue(c, g->models, &request, &done, 0, 0);
}

/* The state of one stream that the card has not got, from the mirror. */
static void sync_one(struct guard *g, struct guard_card *c)
{
    struct guard_stream *at;
    uint32_t slot, stream;
    do {
        slot = c->sync_at / c->n_stream;
        stream = c->sync_at % c->n_stream;
        at = &c->streams[slot][stream];
        c->sync_at = (c->sync_at + 1) % (KL_N_SLOT * c->n_stream);
    } while (!at->unsynced);
    struct kl_state *state = spsc_ring_reserve(&c->states);
    struct guard_entry *entry = spsc_ring_reserve(&c->queue);
    if (!state || !entry)
        return; /* it comes round again */
    if (c->mirror->ops->save(c->mirror, slot, stream, state) == KL_OK) {
        spsc_ring_push(&c->states);
        entry->kind = GUARD_STATE;
        entry->slot = (uint16_t)slot;
        entry->stream = stream;
        spsc_ring_push(&c->queue);
        if ((at->prepared || at->by_flag) && queue_prepare(g, c, slot, stream))
            return;
    }
    set_unsynced(c, at, 0);
}

void guard_shadow(struct guard *g, struct guard_card *c, const struct kl_request *request,
                  const struct kl_result *result, int with_cycles)
{
    if (!c->is_syncing || result->flags & KL_RESULT_LATE)
        return; /* what has not moved needs not follow */
    struct guard_stream *stream = NULL;
    if (request->slot < KL_N_SLOT && request->stream < c->n_stream)
        stream = &c->streams[request->slot][request->stream];
    const int resets = result->status == KL_OK && request->op == KL_OP_RESET;
    if (stream && stream->unsynced && !resets)
        return; /* its state will be sent when it is its turn */
    const int queued = guard_queue(c, g->models, request, result, 1, with_cycles) == 0;
    if (stream && result->status == KL_OK)
        set_unsynced(c, stream, !queued);
}

static void serve_again(struct guard *g, struct guard_card *c)
{
    const struct accel_guard_event event = {
        .code = ACCEL_GUARD_RECOVERED, .card = c->index, .count = c->n_equal};
    guard_tell(g, &event);
    c->recoveries++;
    c->answers_since_back = 0;
    c->is_syncing = 0;
    c->idle_due = KL_QUEUE_DEPTH;
    c->phase = ACCEL_GUARD_SERVING;
    atomic_store_explicit(&c->stage, GUARD_REST, memory_order_relaxed); /* its own while the worker rests */
    guard_give_mirror(c);
}

static void after_failed_probe(struct guard *g, struct guard_card *c)
{
    const struct accel_guard_event event = {.code = ACCEL_GUARD_PROBE_FAILED,
                                            .card = c->index,
                                            .reason = c->failed.reason,
                                            .stream = c->failed.stream,
                                            .seq_no = c->failed.seq_no,
                                            .count = c->n_equal};
    guard_tell(g, &event);
    c->n_failure++;
    guard_recover(g, c);
}

static void finish_or_sync(struct guard *g, struct guard_card *c)
{
    if (!c->is_syncing)
        begin_sync(c);
    if (c->n_unsynced) {
        sync_one(g, c);
        return;
    }
    struct guard_entry *entry = c->finish_sent ? NULL : spsc_ring_reserve(&c->queue);
    if (!entry)
        return;
    entry->kind = GUARD_FINISH;
    spsc_ring_push(&c->queue);
    c->finish_sent = 1;
}

void guard_tend(struct guard *g, struct guard_card *c)
{
    /* acquire: pairs with the release in set_stage; at rest the card is the poll loop's */
    uint32_t stage = atomic_load_explicit(&c->stage, memory_order_acquire);
    for (uint32_t i = 0; c->is_inline && i < INLINE_PIECES && !guard_at_rest(stage); i++) {
        const int more = guard_recover_piece(c);
        stage = atomic_load_explicit(&c->stage, memory_order_relaxed);
        if (!more)
            break;
    }
    tell_resets(g, c);
    if (c->starts_anew) {
        start_if_possible(g, c);
        return;
    }
    if (stage == GUARD_PROBE)
        c->phase = ACCEL_GUARD_SHADOWING;
    else if (stage == GUARD_SHADOW)
        finish_or_sync(g, c);
    else if (stage == GUARD_FAILED)
        after_failed_probe(g, c);
    else if (stage == GUARD_DONE && !c->n_unsynced && !spsc_ring_peek(&c->queue))
        serve_again(g, c);
    else if (stage == GUARD_DONE) {
        /* Something came after the end of the queue had been sent: that first. */
        c->finish_sent = 0;
        atomic_store_explicit(&c->stage, GUARD_SHADOW, memory_order_release); /* as in start */
    }
}
