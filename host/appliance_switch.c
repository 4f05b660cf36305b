#include "appliance_self.h"

/* Warms the stream up in the new model's slot with the same tick; then it goes over. */
void appliance_step_next_model(struct appliance *a, const struct intake_tick *tick)
{
    struct stream *stream = &a->streams[tick->stream];
    const uint8_t slot = a->slot;
    features_quantise(a->model[slot], a->raw, a->request.x);
    stream->at_work[slot] = 1;
    uint32_t status = appliance_step(a, slot, tick->stream, 0, a->threshold);
    if (status != KL_OK) {
        appliance_device_error(a, tick, status);
        return;
    }
    appliance_spend(a, a->cfg.config->replay.io_ns + appliance_kernel_ns(a, a->result.kernel_cycles));
    if (!a->prepares_by_flag)
        appliance_prepare(a, tick, slot);
    if (++stream->ticks[slot] >= a->model[slot]->warmup_ticks) {
        stream->slot = slot;
        a->stats.switched++;
    }
}

static void next_model_loaded(struct appliance *a, uint32_t status)
{
    const uint8_t slot = !a->slot;
    const uint64_t hash = a->model[slot]->image->image_hash;
    struct audit_record record = {.event = {.kind = AUDIT_EVENT,
                                            .code = AUDIT_EVENT_MODEL_LOAD,
                                            .at = appliance_now(a),
                                            .symbol = "        ",
                                            .value = {slot, hash, status}}};
    appliance_commit(a, &record);
    a->switching = SWITCH_NONE;
    if (status != KL_OK) {
        a->stats.device_errors++;
        return;
    }
    a->slot = slot;
    appliance_commit_event(a, AUDIT_EVENT_MODEL_SWITCH, 0, 0, slot, hash);
}

/* A piece of the next model's load. With the replay clock all of it at once, in no modelled time: a beat lies
 * between two steps and delays none by more than itself, but when it is there would depend on this machine.
 */
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
