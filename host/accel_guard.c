/* Requests, answers, failover. */
#include <assert.h>
#include <stddef.h>

#include "accel_guard_self.h"
#include "clock.h"

const char *accel_guard_reason_name(enum accel_guard_reason reason)
{
    static const char *const name[] = {"ok",      "refused", "silent", "sequence",
                                       "damaged", "differs", "status", "load"};
    assert((uint32_t)reason < sizeof name / sizeof name[0]);
    return name[reason];
}

/* ---- events ---- */

void guard_tell(struct guard *g, const struct accel_guard_event *event)
{
    if (g->n_event_in - g->n_event_out < GUARD_N_EVENT)
        g->events[g->n_event_in++ % GUARD_N_EVENT] = *event;
}

int accel_guard_event(struct accel *accel, struct accel_guard_event *event)
{
    struct guard *g = guard_of(accel);
    if (g->n_event_in == g->n_event_out)
        return 0;
    *event = g->events[g->n_event_out++ % GUARD_N_EVENT];
    return 1;
}

/* ---- what the guard answers by itself ---- */

static struct guard_stream *stream_of(struct guard *g, const struct kl_request *request)
{
    if (request->slot >= KL_N_SLOT || request->stream >= g->n_stream)
        return NULL;
    return &g->card[request->stream % g->n_card]->streams[request->slot][request->stream];
}

/* What every backend says of a request to a slot, whatever is in it; as the kernel orders its checks. */
static uint32_t check_form(const struct guard *g, const struct kl_request *request)
{
    if (request->abi_version != KL_ABI_VERSION)
        return KL_E_ABI;
    if (request->op < KL_OP_STEP || request->op > KL_OP_RESET || (request->flags & ~KL_REQUEST_PREPARE) != 0)
        return KL_E_OP;
    if (request->slot >= KL_N_SLOT)
        return KL_E_SLOT;
    return request->stream < g->n_stream ? KL_OK : KL_E_STREAM;
}

/* Whether the guard answers by itself: a load is under way, which cards and mirrors do not end at the same
 * moment, or the state is lost. */
static void refuse_or_pass(struct guard *g, struct guard_wait *wait)
{
    struct guard_stream *stream = stream_of(g, &wait->request);
    const int is_loading = g->is_loading && wait->request.slot == g->loading_slot;
    if (!is_loading && !(stream && stream->lost))
        return;
    const uint32_t status = check_form(g, &wait->request);
    if (status != KL_OK)
        return;
    if (!is_loading && wait->request.op == KL_OP_RESET) {
        stream->lost = 0;
        wait->request.budget_cycles = 0; /* it is not to be late: what comes after it counts on it */
        return;
    }
    wait->where = GUARD_REFUSED;
    wait->status = is_loading ? KL_E_EMPTY : KL_E_STATE;
}

/* ---- failover ---- */

static void lose_states(struct guard *g, struct guard_card *c)
{
    for (uint32_t i = c->index; i < g->n_stream; i += g->n_card) {
        int lost = 0;
        for (uint32_t s = 0; s < KL_N_SLOT; s++) {
            struct guard_stream *stream = &c->streams[s][i];
            if (!stream->stale)
                continue;
            stream->stale = 0;
            stream->lost = lost = 1;
        }
        if (!lost)
            continue;
        c->states_lost++;
        const struct accel_guard_event event = {
            .code = ACCEL_GUARD_STATE_LOST, .card = c->index, .stream = i};
        guard_tell(g, &event);
    }
}

void guard_fail(struct guard *g, struct guard_card *c, enum accel_guard_reason reason, uint32_t stream,
                uint32_t seq_no)
{
    assert(c->phase == ACCEL_GUARD_SERVING);
    const uint64_t start = clock_tsc();
    guard_take_mirror(c);
    guard_catch_up(c);
    struct accel_guard_event event = {.code = ACCEL_GUARD_FAILOVER,
                                      .card = c->index,
                                      .reason = reason,
                                      .stream = stream,
                                      .seq_no = seq_no,
                                      .took_cycles = clock_tsc() - start};
    if (atomic_load_explicit(&c->differs, memory_order_relaxed)) { /* which is the graver news */
        event.reason = ACCEL_GUARD_DIFFERS;
        event.stream = c->differs_at.stream;
        event.seq_no = c->differs_at.seq_no;
        event.last_good_seq_no = c->differs_at.last_good_seq_no;
        atomic_store_explicit(&c->differs, 0, memory_order_relaxed);
    } else if (reason == ACCEL_GUARD_DIFFERS) {
        event.last_good_seq_no = c->last_good_seq_no;
    }
    if (event.reason == ACCEL_GUARD_DIFFERS) {
        event.code = ACCEL_GUARD_QUARANTINE;
        c->quarantines++;
    } else {
        c->failovers++;
    }
    guard_tell(g, &event);
    lose_states(g, c);
    for (uint32_t i = g->n_answered; i != g->n_submitted; i++) {
        struct guard_wait *wait = &g->waits[i % KL_QUEUE_DEPTH];
        if (wait->card == c->index && wait->where == GUARD_ON_CARD) {
            wait->where = GUARD_ON_MIRROR;
            refuse_or_pass(g, wait);
        }
    }
    if (c->answers_since_back >= GUARD_LASTING_ANSWERS)
        c->n_failure = 0;
    else if (c->recoveries)
        c->n_failure++;
    guard_recover(g, c);
}

int guard_look(struct guard *g, struct guard_card *c)
{
    /* acquire: pairs with the release in the mirror's step_entry */
    if (c->phase != ACCEL_GUARD_SERVING || !atomic_load_explicit(&c->differs, memory_order_acquire))
        return 0;
    guard_fail(g, c, ACCEL_GUARD_DIFFERS, 0, 0);
    return 1;
}

int accel_guard_give_up(struct accel *accel)
{
    struct guard *g = guard_of(accel);
    if (g->n_submitted == g->n_answered)
        return -1;
    const struct guard_wait *wait = &g->waits[g->n_answered % KL_QUEUE_DEPTH];
    if (wait->where != GUARD_ON_CARD)
        return -1;
    guard_fail(g, g->card[wait->card], ACCEL_GUARD_SILENT, wait->request.stream, wait->request.seq_no);
    return 0;
}

/* ---- requests ---- */

int guard_submit(struct accel *accel, const struct kl_request *request)
{
    struct guard *g = guard_of(accel);
    if (g->n_submitted - g->n_answered == KL_QUEUE_DEPTH)
        return -1;
    struct guard_card *c = g->card[request->stream % g->n_card];
    guard_look(g, c);
    struct guard_wait *wait = &g->waits[g->n_submitted++ % KL_QUEUE_DEPTH];
    guard_copy_request(&wait->request, request,
                       request->slot < KL_N_SLOT ? g->models[request->slot].n_in : 0);
    wait->card = c->index;
    wait->where = c->phase == ACCEL_GUARD_SERVING ? GUARD_ON_CARD : GUARD_ON_MIRROR;
    refuse_or_pass(g, wait);
    if (wait->where != GUARD_ON_CARD)
        return 0;
    if (c->card->ops->submit(c->card, &wait->request))
        guard_fail(g, c, ACCEL_GUARD_REFUSED, request->stream, request->seq_no);
    else if (!c->is_threaded_mirror) { /* while the card is at it */
        guard_catch_up(c);
        guard_look(g, c);
    }
    return 0;
}

/* ---- answers ---- */

static void refusal(const struct guard_wait *wait, struct kl_result *result)
{
    *result = (struct kl_result){.abi_version = KL_ABI_VERSION,
                                 .status = (uint16_t)wait->status,
                                 .stream = wait->request.stream,
                                 .seq_no = wait->request.seq_no,
                                 .slot = wait->request.slot};
    result->check = kl_result_check(result);
}

static int with_cycles(const struct guard_stream *stream)
{
    return !(stream && stream->by_flag);
}

/* The mirror's answer to the same, before the card's is given. If they differ the card is lost, and the
 * mirror's is the one. */
static void confirm(struct guard *g, struct guard_card *c, struct guard_wait *wait, struct kl_result *result)
{
    guard_take_mirror(c);
    guard_catch_up(c);
    if (guard_look(g, c)) /* before: this one, too, is the mirror's now */
        return;
    struct kl_request *request = &wait->request;
    const struct guard_stream *stream = stream_of(g, request);
    request->budget_cycles = 0; /* the card has done it */
    guard_exec(c->mirror, request, &wait->result);
    const int same = guard_same(result, &wait->result, with_cycles(stream));
    guard_count(&c->compared);
    if (same) {
        c->last_good_seq_no = request->seq_no;
        guard_give_mirror(c);
        return;
    }
    guard_count(&c->differed);
    const int is_status = result->status != KL_OK && result->status != wait->result.status;
    wait->where = GUARD_ANSWERED;
    if (stream && stream->stale) { /* the mirror does not know either */
        wait->where = GUARD_REFUSED;
        wait->status = KL_E_STATE;
    }
    guard_fail(g, c, is_status ? ACCEL_GUARD_STATUS : ACCEL_GUARD_DIFFERS, request->stream, request->seq_no);
}

/* The mirror is to step it as well. */
static void mirror_later(struct guard *g, struct guard_card *c, const struct kl_request *request,
                         const struct kl_result *result)
{
    struct guard_stream *stream = stream_of(g, request);
    /* Steps are what counts: with prepares between them an even number would only ever meet those. */
    const int is_compared = g->check_every == 1 || (g->check_every && request->op == KL_OP_STEP &&
                                                    ++c->n_step % g->check_every == 0);
    if (stream->stale && request->op != KL_OP_RESET)
        return;
    const int was_stale = stream->stale;
    stream->stale = guard_queue(c, g->models, request, result, is_compared, with_cycles(stream)) != 0;
    c->gone_stale += stream->stale && !was_stale;
}

/* The oldest request's answer, from its card. 1: there; 0: not yet, or it is not the card's to answer any
 * more. */
static int card_answers(struct guard *g, struct guard_card *c, struct guard_wait *wait,
                        struct kl_result *result)
{
    const int got = c->card->ops->poll(c->card, result);
    if (got == 0)
        return 0;
    enum accel_guard_reason reason = ACCEL_GUARD_REFUSED;
    if (got != ACCEL_FAILED)
        reason = got == 1 ? guard_judge(g->models, &wait->request, result) : ACCEL_GUARD_SEQUENCE;
    if (reason != ACCEL_GUARD_OK) {
        guard_fail(g, c, reason, wait->request.stream, wait->request.seq_no);
        return 0;
    }
    if (result->flags & KL_RESULT_LATE) /* not begun: nothing to follow */
        return 1;
    if (g->prove || result->status != KL_OK || check_form(g, &wait->request) != KL_OK) {
        confirm(g, c, wait, result);
        return wait->where == GUARD_ON_CARD;
    }
    mirror_later(g, c, &wait->request, result);
    return 1;
}

/* What an answer says of the stream. */
static void note(struct guard *g, const struct kl_request *request, const struct kl_result *result)
{
    if (result->status != KL_OK || result->flags & KL_RESULT_LATE)
        return;
    struct guard_stream *stream = stream_of(g, request);
    if (request->op != KL_OP_PREPARE)
        stream->live = request->op == KL_OP_STEP;
    stream->prepared = request->op == KL_OP_PREPARE;
    stream->by_flag |= (request->flags & KL_REQUEST_PREPARE) != 0;
}

/* Nothing is outstanding. */
static void be_idle(struct guard *g)
{
    for (uint32_t i = 0; i < g->n_card; i++) {
        struct guard_card *c = g->card[i];
        if (!guard_look(g, c) && c->phase == ACCEL_GUARD_SERVING) {
            struct kl_result none;
            const int got = c->card->ops->poll(c->card, &none);
            if (got != -1)
                guard_fail(g, c, got == ACCEL_FAILED ? ACCEL_GUARD_REFUSED : ACCEL_GUARD_SEQUENCE, 0, 0);
        }
        if (c->phase == ACCEL_GUARD_SERVING && !c->is_threaded_mirror) {
            guard_catch_up(c);
            guard_look(g, c);
        }
        if (c->phase != ACCEL_GUARD_SERVING)
            guard_tend(g, c);
        if (c->phase != ACCEL_GUARD_SERVING || !c->is_threaded_mirror) {
            struct kl_result none;
            c->mirror->ops->poll(c->mirror, &none);
        }
    }
}

int guard_poll(struct accel *accel, struct kl_result *result)
{
    struct guard *g = guard_of(accel);
    if (g->n_submitted == g->n_answered) {
        be_idle(g);
        return -1;
    }
    struct guard_wait *wait = &g->waits[g->n_answered % KL_QUEUE_DEPTH];
    struct guard_card *c = g->card[wait->card];
    if (wait->where == GUARD_ON_CARD)
        guard_look(g, c);
    g->was_mirror = 0;
    if (wait->where == GUARD_ON_CARD && card_answers(g, c, wait, result)) {
        c->answers++;
        c->answers_since_back++;
    } else if (wait->where == GUARD_ON_CARD) {
        return 0;
    } else if (wait->where == GUARD_REFUSED) {
        refusal(wait, result);
    } else {
        if (wait->where == GUARD_ON_MIRROR)
            guard_exec(c->mirror, &wait->request, &wait->result);
        *result = wait->result;
        g->was_mirror = 1;
        c->mirror_answers++;
        guard_shadow(g, c, &wait->request, result, with_cycles(stream_of(g, &wait->request)));
    }
    note(g, &wait->request, result);
    g->n_answered++;
    return 1;
}

/* ---- figures ---- */

int accel_guard_mirrored(const struct accel *accel)
{
    return ((const struct guard *)(const void *)accel)->was_mirror;
}

uint32_t accel_guard_n_card(const struct accel *accel)
{
    return ((const struct guard *)(const void *)accel)->n_card;
}

void accel_guard_stats(const struct accel *accel, uint32_t card, struct accel_guard_stats *stats)
{
    const struct guard *g = (const struct guard *)(const void *)accel;
    assert(card < g->n_card);
    const struct guard_card *c = g->card[card];
    *stats = (struct accel_guard_stats){
        .phase = c->phase,
        .answers = c->answers,
        .mirror_answers = c->mirror_answers,
        .compared = atomic_load_explicit(&c->compared, memory_order_relaxed),
        .differed = atomic_load_explicit(&c->differed, memory_order_relaxed),
        .failovers = c->failovers,
        .quarantines = c->quarantines,
        .resets = atomic_load_explicit(&c->resets, memory_order_relaxed),
        .resets_failed = atomic_load_explicit(&c->resets_failed, memory_order_relaxed),
        .recoveries = c->recoveries,
        .states_lost = c->states_lost,
        .gone_stale = c->gone_stale,
    };
}
