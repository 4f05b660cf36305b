/* Models and states: the same on every card and mirror. */
#include <assert.h>
#include <stddef.h>

#include "accel_guard_self.h"
#include "clock.h"

static struct guard_stream *stream_at(struct guard *g, uint32_t slot, uint32_t stream)
{
    return &g->card[stream % g->n_card]->streams[slot][stream];
}

/* ---- models ---- */

/* The slot's streams are at rest. */
static void forget_streams(struct guard *g, uint32_t slot)
{
    for (uint32_t i = 0; i < g->n_stream; i++) {
        struct guard_stream *stream = stream_at(g, slot, i);
        /* A prepare that is still owed on some card may yet be carried out on the new model. */
        *stream = (struct guard_stream){.by_flag = stream->by_flag};
    }
}

static void begin_on(struct guard *g, struct guard_card *c, const void *image, size_t size_bytes)
{
    guard_take_mirror(c);
    if (c->phase == ACCEL_GUARD_SERVING)
        guard_catch_up(c);
    const uint32_t status = c->mirror->ops->load_begin(c->mirror, g->loading_slot, image, size_bytes);
    assert(status == KL_OK); /* the slot is there, and the guard begins no load during another */
    guard_give_mirror(c);
    c->mirror_load_status = c->load_status = KL_E_BUSY;
    if (guard_look(g, c))
        return;
    if (c->phase != ACCEL_GUARD_SERVING)
        guard_recover(g, c); /* begins when the load has ended, with what is loaded then */
    else if (c->card->ops->load_begin(c->card, g->loading_slot, image, size_bytes) != KL_OK)
        guard_fail(g, c, ACCEL_GUARD_LOAD, 0, 0);
}

uint32_t guard_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    struct guard *g = guard_of(accel);
    if (slot >= KL_N_SLOT)
        return KL_E_SLOT;
    if (g->is_loading)
        return KL_E_BUSY;
    g->is_loading = 1;
    g->loading_slot = slot;
    g->loading = (struct guard_model){.image = image, .size_bytes = size_bytes};
    g->load_turn = 0;
    g->load_since = clock_tsc();
    for (uint32_t i = 0; i < g->n_card; i++)
        begin_on(g, g->card[i], image, size_bytes);
    /* Only now: what had to be caught up with was of the old model. */
    g->models[slot] = (struct guard_model){.image = NULL};
    forget_streams(g, slot);
    return KL_OK;
}

static int mirror_loads(const struct guard_card *c)
{
    return c->mirror_load_status == KL_E_BUSY;
}

static int card_loads(const struct guard_card *c)
{
    return c->phase == ACCEL_GUARD_SERVING && c->load_status == KL_E_BUSY;
}

/* A piece of one load of those that have not ended, in turn; inline one after the other, since how long one
 * takes, and so what comes before what on a device that several units share, is not the same every time. */
static void advance(struct guard *g)
{
    struct guard_card *c = NULL;
    int of_card = 0, loads = 0;
    if (g->card[0]->is_inline)
        g->load_turn = 0;
    for (uint32_t i = 0; i < 2 * g->n_card && !loads; i++) {
        c = g->card[g->load_turn / 2];
        of_card = g->load_turn % 2;
        g->load_turn = (g->load_turn + 1) % (2 * g->n_card);
        loads = of_card ? card_loads(c) : mirror_loads(c);
    }
    if (!loads) /* the last one was lost meanwhile */
        return;
    if (!of_card) {
        guard_take_mirror(c);
        c->mirror_load_status = c->mirror->ops->load_advance(c->mirror);
        guard_give_mirror(c);
    } else if ((c->load_status = c->card->ops->load_advance(c->card)) == KL_E_BUSY &&
               clock_tsc() - g->load_since > GUARD_LOAD_CYCLES) {
        guard_fail(g, c, ACCEL_GUARD_LOAD, 0, 0);
    }
    if (c->is_inline && !(of_card ? card_loads(c) : mirror_loads(c)))
        g->load_since = clock_tsc(); /* the next one's */
}

uint32_t guard_load_advance(struct accel *accel)
{
    struct guard *g = guard_of(accel);
    if (!g->is_loading)
        return KL_E_EMPTY;
    advance(g);
    for (uint32_t i = 0; i < g->n_card; i++)
        if (mirror_loads(g->card[i]) || card_loads(g->card[i]))
            return KL_E_BUSY;
    const uint32_t status = g->card[0]->mirror_load_status;
    if (status == KL_OK) {
        struct kl_image_header header;
        memcpy(&header, g->loading.image, sizeof header);
        struct guard_model *model = &g->models[g->loading_slot];
        *model = g->loading;
        model->image_hash = header.image_hash;
        model->n_in = header.n_in;
        model->n_class = (uint8_t)header.n_class;
        model->logit_frac = (uint8_t)(header.head_frac + KL_H_FRAC);
    }
    g->is_loading = 0;
    for (uint32_t i = 0; i < g->n_card; i++) {
        struct guard_card *c = g->card[i];
        assert(c->mirror_load_status == status);
        if (c->phase == ACCEL_GUARD_SERVING && c->load_status != status)
            guard_fail(g, c, ACCEL_GUARD_LOAD, 0, 0);
    }
    return status;
}

/* ---- states ---- */

uint32_t guard_save(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    struct guard *g = guard_of(accel);
    struct guard_card *c = g->card[stream % g->n_card];
    if (slot < KL_N_SLOT && stream < g->n_stream) {
        const struct guard_stream *at = stream_at(g, slot, stream);
        if (at->lost)
            return KL_E_STATE;
        if (at->stale) /* then the card serves */
            return c->card->ops->save(c->card, slot, stream, state);
    }
    guard_take_mirror(c);
    if (c->phase == ACCEL_GUARD_SERVING)
        guard_catch_up(c);
    const uint32_t status = c->mirror->ops->save(c->mirror, slot, stream, state);
    guard_give_mirror(c);
    guard_look(g, c);
    return status;
}

uint32_t guard_restore(struct accel *accel, uint32_t slot, uint32_t stream, const struct kl_state *state)
{
    struct guard *g = guard_of(accel);
    struct guard_card *c = g->card[stream % g->n_card];
    guard_take_mirror(c);
    if (c->phase == ACCEL_GUARD_SERVING)
        guard_catch_up(c);
    const uint32_t status = c->mirror->ops->restore(c->mirror, slot, stream, state);
    guard_give_mirror(c);
    if (!guard_look(g, c) && c->phase == ACCEL_GUARD_SERVING &&
        c->card->ops->restore(c->card, slot, stream, state) != status)
        guard_fail(g, c, ACCEL_GUARD_STATUS, stream, 0);
    if (status != KL_OK)
        return status;
    struct guard_stream *at = stream_at(g, slot, stream);
    at->live = 1;
    at->prepared = at->stale = at->lost = 0;
    if (c->is_syncing && !at->unsynced) {
        at->unsynced = 1;
        c->n_unsynced++;
    }
    return KL_OK;
}
