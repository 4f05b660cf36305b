/* The vector backend: requests, slots, streams. What a result reports is what the kernel's native build
 * reports for the same calls, cycles included; accel_cpu_kernel.h says who computes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "accel_cpu_self.h"

static struct accel_cpu *self_of(struct accel *accel)
{
    return (struct accel_cpu *)(void *)accel;
}

static void places_add(struct places *places, struct place place)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < places->n; i++) {
        const struct place old = places->place[i];
        if (old.slot != place.slot || old.stream != place.stream)
            places->place[n_kept++] = old;
    }
    if (n_kept == KL_QUEUE_DEPTH) {
        n_kept--;
        memmove(places->place, places->place + 1, n_kept * sizeof place);
    }
    places->place[n_kept] = place;
    places->n = n_kept + 1;
}

/* ---- streams ---- */

static uint8_t *state_of(const struct slot *slot, uint32_t stream)
{
    return slot->states + (size_t)stream * slot->state_stride;
}

/* The second copy of h and z, which the worker works on. */
static uint8_t *shadow_of(const struct slot *slot, uint32_t stream)
{
    return state_of(slot, stream) + slot->model.state_bytes;
}

static void forget_prepared(struct stream *stream)
{
    stream->prepared = stream->z_ready = stream->shadow_valid = 0;
}

static void zero_state(const struct slot *slot, uint32_t stream)
{
    memset(state_of(slot, stream), 0, slot->model.state_bytes);
    forget_prepared(&slot->stream[stream]);
}

/* The stream with its state there. A load resets all streams in one stroke; each is cleared when it is met.
 */
static struct stream *stream_at(struct slot *slot, uint32_t stream)
{
    struct stream *s = &slot->stream[stream];
    if (s->epoch != slot->epoch) {
        zero_state(slot, stream);
        s->epoch = slot->epoch;
    }
    return s;
}

/* About what it takes to prepare here instead; then the worker was interrupted. (A pause is some 10 ns, and a
 * prepare reads 100 bytes per ns at best.) */
static uint32_t spins_of(const struct cpu_model *model)
{
    enum { SPINS = 100, BYTES_PER_SPIN = 1024 };
    return SPINS + model->arena_bytes / BYTES_PER_SPIN;
}

/* Whether z is in the shadow. A prepare that is not done when it is needed is not waited for without bound: a
 * result that comes later is nobody's. */
static int shadow_has_z(const struct slot *slot, struct stream *stream)
{
    if (!stream->shadow_valid)
        return 0;
    stream->shadow_valid =
        !cpu_worker_take_back(&stream->task) && cpu_worker_wait(&stream->task, spins_of(&slot->model));
    return stream->shadow_valid;
}

/* The state that holds z for the stream's next step, which it is prepared for if need be. */
static const uint8_t *prepared_state(const struct accel_cpu *self, struct slot *slot, uint32_t stream)
{
    struct stream *s = stream_at(slot, stream);
    if (!s->z_ready && shadow_has_z(slot, s))
        return shadow_of(slot, stream);
    if (!s->z_ready)
        self->variant->prepare(&slot->model, state_of(slot, stream));
    s->z_ready = 1;
    return state_of(slot, stream);
}

/* Hands the prepare that was asked for last to the worker, if it is not done and the worker does not still
 * hold an older one of the stream. What it does not get is done in an idle moment. */
static void hand_over_newest(struct accel_cpu *self)
{
    const struct place place = self->owed.place[self->owed.n - 1];
    struct slot *slot = &self->slot[place.slot];
    const uint32_t stream = place.stream;
    struct stream *s = &slot->stream[stream];
    /* acquire: pairs with the release in the worker's run */
    const uint32_t task = atomic_load_explicit(&s->task, memory_order_acquire);
    if (!slot->loaded || s->epoch != slot->epoch || s->z_ready || s->shadow_valid ||
        task == CPU_TASK_QUEUED || task == CPU_TASK_RUNNING)
        return;
    uint8_t *state = state_of(slot, stream), *shadow = shadow_of(slot, stream);
    for (uint32_t l = 0; l < slot->model.n_layer; l++) {
        const struct cpu_layer *layer = &slot->model.layer[l];
        memcpy(shadow + layer->h_at, state + layer->h_at, layer->c_at - layer->h_at);
    }
    const struct cpu_job job = {.model = &slot->model, .state = shadow, .task = &s->task};
    s->shadow_valid = (uint8_t)cpu_worker_queue(&self->worker, &job);
}

/* ---- requests ---- */

/* Keeps what counts of a request; x is read now, so that as little as possible of it is copied. */
static void take_in(const struct accel_cpu *self, const struct kl_request *request, struct queued *queued)
{
    queued->abi_version = request->abi_version;
    queued->op = request->op;
    queued->slot = request->slot;
    queued->flags = request->flags;
    queued->stream = request->stream;
    queued->seq_no = request->seq_no;
    queued->budget_cycles = request->budget_cycles;
    queued->doorbell = self->cycles;
    if (request->slot < KL_N_SLOT && self->slot[request->slot].loaded) {
        const struct slot *slot = &self->slot[request->slot];
        queued->epoch = slot->epoch;
        if (request->op == KL_OP_STEP)
            queued->x_is_good = self->variant->read_x(request->x, slot->model.n_in, &queued->x);
    } else {
        queued->epoch = 0;
        memcpy(queued->x.v, request->x, sizeof queued->x.v);
    }
}

/* The model came while the request was waiting. */
static void read_late(const struct accel_cpu *self, struct queued *queued)
{
    const struct slot *slot = &self->slot[queued->slot];
    uint16_t bits[KL_N_IN_MAX];
    memcpy(bits, queued->x.v, sizeof bits);
    queued->x_is_good = self->variant->read_x(bits, slot->model.n_in, &queued->x);
    queued->epoch = slot->epoch;
}

static uint32_t check_request(const struct accel_cpu *self, const struct queued *queued)
{
    if (queued->abi_version != KL_ABI_VERSION)
        return KL_E_ABI;
    if (queued->op < KL_OP_STEP || queued->op > KL_OP_RESET || (queued->flags & ~KL_REQUEST_PREPARE) != 0)
        return KL_E_OP;
    if (queued->slot >= KL_N_SLOT)
        return KL_E_SLOT;
    if (queued->stream >= self->info.n_stream)
        return KL_E_STREAM;
    /* A request that met one model is not for another that took its place. */
    if (!self->slot[queued->slot].loaded ||
        (queued->epoch && queued->epoch != self->slot[queued->slot].epoch))
        return KL_E_EMPTY;
    return KL_OK;
}

static uint32_t cycles_ahead(const struct accel_cpu *self, const struct slot *slot, uint32_t op,
                             uint32_t prepared)
{
    if (op == KL_OP_STEP)
        return prepared ? slot->cycles_step_prepared : slot->cycles_step;
    if (op == KL_OP_PREPARE)
        return prepared ? self->frame_cycles : slot->cycles_prepare;
    return self->reset_cycles;
}

/* Everything of a result but what the operation brings. Returns 1 if the operation is to be carried out. */
static int begin(struct accel_cpu *self, struct queued *queued, struct kl_result *result)
{
    memset(result, 0, sizeof *result);
    result->abi_version = KL_ABI_VERSION;
    result->stream = queued->stream;
    result->seq_no = queued->seq_no;
    result->slot = queued->slot;
    const uint32_t status = check_request(self, queued);
    if (status != KL_OK) {
        result->status = (uint16_t)status;
        return 0;
    }
    if (!queued->epoch)
        read_late(self, queued);
    struct slot *slot = &self->slot[queued->slot];
    const struct stream *stream = stream_at(slot, queued->stream);
    const uint32_t cycles = cycles_ahead(self, slot, queued->op, stream->prepared);
    const uint64_t waited = self->cycles - queued->doorbell;
    const uint32_t wait_cycles = waited > UINT32_MAX ? UINT32_MAX : (uint32_t)waited;
    if (queued->budget_cycles != 0 && (uint64_t)wait_cycles + cycles > queued->budget_cycles) {
        result->wait_cycles = wait_cycles;
        result->flags = KL_RESULT_LATE;
        result->kernel_cycles = self->frame_cycles;
        return 0;
    }
    if (queued->op == KL_OP_STEP && !queued->x_is_good) {
        result->status = KL_E_INPUT;
        return 0;
    }
    result->wait_cycles = wait_cycles;
    result->kernel_cycles = cycles;
    return 1;
}

static void end(struct accel_cpu *self, const struct queued *queued, struct kl_result *result)
{
    if (result->status != KL_OK) {
        self->cycles += self->frame_cycles;
        return;
    }
    struct slot *slot = &self->slot[queued->slot];
    self->cycles += result->kernel_cycles;
    result->prepare_cycles =
        slot->stream[queued->stream].prepared ? self->frame_cycles : slot->cycles_prepare;
    result->image_hash = slot->image_hash;
    result->n_class = (uint8_t)slot->model.n_class;
    result->logit_frac = slot->logit_frac;
    if (queued->flags & KL_REQUEST_PREPARE && !(result->flags & KL_RESULT_LATE))
        places_add(&self->owed, (struct place){.slot = queued->slot, .stream = (uint16_t)queued->stream});
}

static void exec(struct accel_cpu *self, struct queued *queued, struct kl_result *result)
{
    if (begin(self, queued, result)) {
        struct slot *slot = &self->slot[queued->slot];
        struct stream *stream = &slot->stream[queued->stream];
        switch (queued->op) {
        case KL_OP_STEP: {
            const uint8_t *prepared = prepared_state(self, slot, queued->stream);
            result->cls = (uint8_t)self->variant->step(&slot->model, state_of(slot, queued->stream), prepared,
                                                       &queued->x, result->logits);
            forget_prepared(stream); /* h has moved on */
            break;
        }
        case KL_OP_PREPARE:
            prepared_state(self, slot, queued->stream);
            stream->prepared = 1;
            break;
        default: /* KL_OP_RESET: check_request knows no other */
            zero_state(slot, queued->stream);
            break;
        }
    }
    end(self, queued, result);
    result->check = kl_result_check(result);
    if (self->has_worker && self->owed.n)
        hand_over_newest(self);
}

static int cpu_submit(struct accel *accel, const struct kl_request *request)
{
    struct accel_cpu *self = self_of(accel);
    if (self->n_submitted - self->n_answered == KL_QUEUE_DEPTH)
        return -1;
    take_in(self, request, &self->queue[self->n_submitted % KL_QUEUE_DEPTH]);
    self->n_submitted++;
    return 0;
}

/* One prepare that is due; the newest: its stream is the likeliest to come again. */
static void do_due(struct accel_cpu *self)
{
    if (self->due.n == 0)
        return;
    const struct place place = self->due.place[--self->due.n];
    struct slot *slot = &self->slot[place.slot];
    if (slot->loaded && !stream_at(slot, place.stream)->shadow_valid)
        prepared_state(self, slot, place.stream);
}

/* Nothing is outstanding: the kernel would do what prepares it owes, all of them, newest first. Here one is
 * carried out per call, which bounds the call. */
static void be_idle(struct accel_cpu *self)
{
    for (uint32_t i = self->owed.n; i-- > 0;) {
        const struct place place = self->owed.place[i];
        struct slot *slot = &self->slot[place.slot];
        uint32_t cycles = self->frame_cycles;
        if (slot->loaded) {
            struct stream *stream = stream_at(slot, place.stream);
            cycles = cycles_ahead(self, slot, KL_OP_PREPARE, stream->prepared);
            stream->prepared = 1;
        }
        self->cycles += cycles;
    }
    for (uint32_t i = 0; i < self->owed.n; i++)
        places_add(&self->due, self->owed.place[i]);
    self->owed.n = 0;
    do_due(self);
}

static int cpu_poll(struct accel *accel, struct kl_result *result)
{
    struct accel_cpu *self = self_of(accel);
    if (self->n_submitted == self->n_answered) {
        be_idle(self);
        return -1;
    }
    exec(self, &self->queue[self->n_answered % KL_QUEUE_DEPTH], result);
    self->n_answered++;
    return 1;
}

/* ---- models ---- */

static uint32_t cpu_load_begin(struct accel *accel, uint32_t slot_index, const void *image, size_t size_bytes)
{
    struct accel_cpu *self = self_of(accel);
    if (slot_index >= KL_N_SLOT)
        return KL_E_SLOT;
    if (self->is_loading)
        return KL_E_BUSY;
    struct slot *slot = &self->slot[slot_index];
    slot->loaded = 0;
    slot->epoch++;
    self->is_loading = 1;
    self->loading = slot_index;
    if (self->has_worker)
        self->jobs_before_load = cpu_worker_queued(&self->worker);
    cpu_loader_begin(&self->loader, image, size_bytes, &slot->model, slot->arena);
    return KL_OK;
}

static uint32_t cpu_load_advance(struct accel *accel)
{
    struct accel_cpu *self = self_of(accel);
    if (!self->is_loading)
        return KL_E_EMPTY;
    /* The worker may be reading the old model. */
    if (self->has_worker && !cpu_worker_is_over(&self->worker, self->jobs_before_load))
        return KL_E_BUSY;
    const struct cpu_loader *loader = &self->loader;
    const uint32_t status = cpu_loader_advance(&self->loader);
    if (status == KL_E_BUSY)
        return status;
    self->is_loading = 0;
    if (status != KL_OK)
        return status;
    struct slot *slot = &self->slot[self->loading];
    slot->cycles_step = loader->cycles_step;
    slot->cycles_step_prepared = loader->cycles_step_prepared;
    slot->cycles_prepare = loader->cycles_prepare;
    slot->image_hash = loader->header.image_hash;
    slot->logit_frac = (uint8_t)(loader->header.head_frac + KL_H_FRAC);
    slot->state_stride = slot->model.state_bytes * (self->has_worker ? 2 : 1);
    memset(slot->warm_state, 0, slot->model.state_bytes);
    slot->loaded = 1;
    return KL_OK;
}

/* ---- states ---- */

static uint32_t check_place(const struct accel_cpu *self, uint32_t slot, uint32_t stream)
{
    if (slot >= KL_N_SLOT)
        return KL_E_SLOT;
    if (stream >= self->info.n_stream)
        return KL_E_STREAM;
    return self->slot[slot].loaded ? KL_OK : KL_E_EMPTY;
}

static uint32_t cpu_save(struct accel *accel, uint32_t slot_index, uint32_t stream, struct kl_state *state)
{
    struct accel_cpu *self = self_of(accel);
    const uint32_t status = check_place(self, slot_index, stream);
    if (status != KL_OK)
        return status;
    struct slot *slot = &self->slot[slot_index];
    stream_at(slot, stream);
    cpu_state_save(&slot->model, self->variant->lanes, slot->image_hash, state_of(slot, stream), state);
    return KL_OK;
}

static uint32_t cpu_restore(struct accel *accel, uint32_t slot_index, uint32_t stream,
                            const struct kl_state *state)
{
    struct accel_cpu *self = self_of(accel);
    const uint32_t status = check_place(self, slot_index, stream);
    if (status != KL_OK)
        return status;
    struct slot *slot = &self->slot[slot_index];
    if (!cpu_state_fits(&slot->model, slot->image_hash, state))
        return KL_E_STATE;
    stream_at(slot, stream);
    zero_state(slot, stream);
    cpu_state_restore(&slot->model, self->variant->lanes, state, state_of(slot, stream));
    return KL_OK;
}

/* ---- the rest ---- */

static void cpu_info(struct accel *accel, struct kl_info *info)
{
    const struct accel_cpu *self = self_of(accel);
    *info = self->info;
    for (uint32_t s = 0; s < KL_N_SLOT; s++)
        info->image_hash[s] = self->slot[s].loaded ? self->slot[s].image_hash : 0;
    info->cycles = self->cycles;
}

/* A step beside the stream: same weights, same code, so the vector units stay awake as well. */
static void cpu_warm(struct accel *accel, uint32_t slot_index, uint32_t stream)
{
    struct accel_cpu *self = self_of(accel);
    if (check_place(self, slot_index, stream) != KL_OK)
        return;
    do_due(self);
    struct slot *slot = &self->slot[slot_index];
    const struct stream *s = stream_at(slot, stream);
    const struct cpu_x zero = {{0}};
    int64_t logits[KL_N_CLASS_MAX];
    self->variant->step(&slot->model, slot->warm_state, slot->warm_state, &zero, logits);
    const uint8_t *state = state_of(slot, stream);
    const uint8_t *z = s->shadow_valid ? shadow_of(slot, stream) : state;
    for (uint32_t at = 0; at < slot->model.state_bytes; at += CPU_LINE) {
        __builtin_prefetch(state + at);
        __builtin_prefetch(z + at);
    }
}

static void cpu_close(struct accel *accel)
{
    struct accel_cpu *self = self_of(accel);
    if (self->has_worker)
        cpu_worker_stop(&self->worker);
    cpu_unmap(self->memory, self->memory_bytes);
    for (uint32_t s = 0; s < KL_N_SLOT; s++)
        free(self->slot[s].stream);
    free(self);
}

const struct accel_ops accel_cpu_ops = {
    .name = "cpu",
    .submit = cpu_submit,
    .poll = cpu_poll,
    .load_begin = cpu_load_begin,
    .load_advance = cpu_load_advance,
    .save = cpu_save,
    .restore = cpu_restore,
    .info = cpu_info,
    .warm = cpu_warm,
    .close = cpu_close,
};

/* ---- batches ---- */

/* At most CPU_BATCH_MAX of them. As if each were submitted and polled. */
static void step_few(struct accel_cpu *self, const struct kl_request *requests, struct kl_result *results,
                     uint32_t n)
{
    struct queued queued;
    struct cpu_x x[CPU_BATCH_MAX];
    int64_t logits[CPU_BATCH_MAX][KL_N_CLASS_MAX];
    uint32_t classes[CPU_BATCH_MAX], chosen[CPU_BATCH_MAX];
    uint8_t *states[CPU_BATCH_MAX], *unprepared[CPU_BATCH_MAX];
    uint32_t n_chosen = 0, n_unprepared = 0;
    struct slot *slot = NULL;
    for (uint32_t i = 0; i < n; i++) {
        assert(requests[i].op == KL_OP_STEP && requests[i].slot == requests[0].slot);
        for (uint32_t before = 0; before < i; before++)
            assert(requests[i].stream != requests[before].stream);
        take_in(self, &requests[i], &queued);
        if (begin(self, &queued, &results[i])) {
            slot = &self->slot[queued.slot];
            struct stream *stream = &slot->stream[queued.stream];
            x[n_chosen] = queued.x;
            states[n_chosen] = state_of(slot, queued.stream);
            if (!stream->z_ready) /* what the worker may have is left alone: z is used up, so it has to be the
                                     own */
                unprepared[n_unprepared++] = states[n_chosen];
            chosen[n_chosen++] = i;
            forget_prepared(stream);
        }
        end(self, &queued, &results[i]);
    }
    if (n_unprepared)
        self->variant->prepare_batch(&slot->model, unprepared, n_unprepared);
    if (n_chosen)
        self->variant->step_batch(&slot->model, states, x, n_chosen, logits, classes);
    for (uint32_t j = 0; j < n_chosen; j++) {
        struct kl_result *result = &results[chosen[j]];
        memcpy(result->logits, logits[j], slot->model.n_class * sizeof logits[j][0]);
        result->cls = (uint8_t)classes[j];
    }
    for (uint32_t i = 0; i < n; i++)
        results[i].check = kl_result_check(&results[i]);
}

void accel_cpu_step_batch(struct accel *accel, const struct kl_request *requests, struct kl_result *results,
                          uint32_t n)
{
    struct accel_cpu *self = self_of(accel);
    assert(accel->ops == &accel_cpu_ops && self->n_submitted == self->n_answered);
    for (uint32_t at = 0; at < n; at += CPU_BATCH_MAX)
        step_few(self, requests + at, results + at, n - at < CPU_BATCH_MAX ? n - at : CPU_BATCH_MAX);
}

enum accel_cpu_variant accel_cpu_variant_of(const struct accel *accel)
{
    return ((const struct accel_cpu *)(const void *)accel)->variant_id;
}
