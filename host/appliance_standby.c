#include "appliance_self.h"

#include <string.h>

/* The other slot's model: a backup that is kept up in idle moments, so that it can take over between two
 * ticks; or a model that was loaded beside the running one, and is warmed up stream by stream. */

void appliance_standby_reset(struct appliance *a, struct stream *stream)
{
    const uint8_t slot = a->slot;
    stream->at_work[slot] = 0;
    stream->ticks[slot] = stream->ticks[!slot] = 0; /* the other one is reset before its next step */
    stream->slot = slot;
    stream->needs_reset = 0;
    stream->lag = 0;
    stream->generation++;
}

/* Its state there misses a step: it starts anew. */
static void start_anew(struct appliance *a, struct stream *stream)
{
    stream->ticks[!stream->slot] = 0;
    stream->lag = 0;
    stream->generation++;
    a->stats.standby_dropped++;
}

void appliance_standby_push(struct appliance *a, const struct work *w)
{
    struct stream *stream = &a->streams[w->p->tick.stream];
    const int goes_over = stream->slot != a->slot;
    if (!a->cfg.backup && !goes_over)
        return;
    if (a->standby_tail - a->standby_head == STANDBY_MAX) {
        start_anew(a, stream);
    } else {
        struct standby *s = &a->standby[a->standby_tail++ % STANDBY_MAX];
        *s = (struct standby){.stream = w->p->tick.stream,
                              .locate = w->p->tick.locate,
                              .generation = stream->generation,
                              .feed_ts_ns = w->p->tick.feed_ts_ns};
        memcpy(s->raw, w->p->raw, sizeof(s->raw));
        stream->lag++;
    }
    /* A stream that is to go over does not wait for an idle moment, of which there may be none. Two: it gets
     * ahead of what has piled up, also of a queue that is full. */
    for (int i = 0; goes_over && i < 2 && appliance_standby_work(a); i++)
        ;
}

static uint32_t step(struct appliance *a, const struct standby *s, uint8_t slot)
{
    struct stream *stream = &a->streams[s->stream];
    const struct config_replay *replay = &a->cfg.config->replay;
    if (!stream->ticks[slot] && stream->at_work[slot]) {
        const uint32_t status = appliance_call(a, KL_OP_RESET, slot, s->stream);
        if (status != KL_OK)
            return status;
        appliance_spend(a, replay->io_ns + appliance_kernel_ns(a, a->result.kernel_cycles));
    }
    features_quantise(a->model[slot], s->raw, a->request.x);
    stream->at_work[slot] = 1;
    const uint32_t status = appliance_step(a, slot, s->stream);
    if (status != KL_OK)
        return status;
    appliance_spend(a, replay->io_ns + appliance_kernel_ns(a, a->result.kernel_cycles));
    stream->ticks[slot]++;
    a->stats.standby_steps++;
    if (a->prepares_by_flag)
        a->cfg.accel->ops->poll(a->cfg.accel, &a->result);
    else
        appliance_prepare(a, s->stream, s->locate, s->feed_ts_ns, slot);
    return KL_OK;
}

int appliance_standby_work(struct appliance *a)
{
    while (a->standby_head != a->standby_tail) {
        const struct standby *s = &a->standby[a->standby_head++ % STANDBY_MAX];
        struct stream *stream = &a->streams[s->stream];
        if (s->generation != stream->generation)
            continue;
        stream->lag--;
        const uint32_t status = step(a, s, !stream->slot);
        if (status != KL_OK)
            appliance_device_error(a, s->stream, s->locate, s->feed_ts_ns, status);
        return 1;
    }
    return 0;
}

void appliance_standby_go_over(struct appliance *a, struct stream *stream)
{
    if (stream->lag || stream->ticks[a->slot] < a->model[a->slot]->warmup_ticks || !stream->ticks[a->slot])
        return;
    stream->slot = a->slot;
    a->stats.switched++;
}

static void next_model_loaded(struct appliance *a, uint32_t status)
{
    const uint8_t slot = !a->slot;
    const uint64_t hash = a->model[slot]->image->image_hash, value[4] = {slot, hash, status, 0};
    appliance_commit_values(a, AUDIT_EVENT_MODEL_LOAD, value, "");
    a->switching = SWITCH_NONE;
    if (status != KL_OK) {
        a->stats.device_errors++;
        return;
    }
    a->slot = slot;
    appliance_commit_event(a, AUDIT_EVENT_MODEL_SWITCH, 0, 0, slot, hash);
}

/* With the replay clock all of it at once, in no modelled time: a beat lies between two steps and delays none
 * by more than itself, but when it is there would depend on this machine. */
void appliance_advance_switch(struct appliance *a)
{
    struct accel *accel = a->cfg.accel;
    const uint8_t slot = !a->slot;
    if (a->switching == SWITCH_WAITING) {
        if (appliance_now(a) < a->switch_at)
            return;
        const struct kl_image_header *image = a->model[slot]->image;
        const uint32_t status = accel->ops->load_begin(accel, slot, image, image->size_bytes);
        if (status == KL_OK)
            a->switching = SWITCH_LOADING;
        else if (status != KL_E_BUSY)
            next_model_loaded(a, status);
    }
    while (a->switching == SWITCH_LOADING) {
        const uint32_t status = accel->ops->load_advance(accel);
        if (status != KL_E_BUSY)
            next_model_loaded(a, status);
        else if (!a->replay)
            return;
    }
}
