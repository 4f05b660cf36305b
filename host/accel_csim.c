#include <assert.h>
#include <stdlib.h>

#include "accel.h"
#include "accel_owed.h"

struct queued {
    struct kl_request request;
    uint64_t doorbell; /* the kernel's clock when it was submitted */
};

/* The kernel runs here, inline: submit takes what the native kernel takes, and poll carries it out. */
struct accel_csim {
    struct accel accel; /* first: ops find the rest through it */
    const struct kl_build *build;
    struct kl_unit *unit[2]; /* [1]: NULL unless rows are split */

    /* Split only: a unit has its own queue. Counters run freely; masked, they are places. */
    struct queued queue[KL_QUEUE_DEPTH];
    uint32_t n_submitted, n_answered;
    struct accel_owed owed;
    int is_loading;
    uint32_t load_status[2]; /* of the halves, while loading */
};
static_assert((KL_QUEUE_DEPTH & (KL_QUEUE_DEPTH - 1)) == 0, "counters are masked");

static struct accel_csim *self_of(struct accel *accel)
{
    return (struct accel_csim *)(void *)accel;
}

/* ---- one unit ---- */

static int unit_submit(struct accel *accel, const struct kl_request *request)
{
    struct accel_csim *self = self_of(accel);
    return self->build->post(self->unit[0], request);
}

static int unit_poll(struct accel *accel, struct kl_result *result)
{
    struct accel_csim *self = self_of(accel);
    return self->build->take(self->unit[0], result) ? 1 : -1;
}

static uint32_t unit_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    struct accel_csim *self = self_of(accel);
    return self->build->load_begin(self->unit[0], slot, image, size_bytes);
}

static uint32_t unit_load_advance(struct accel *accel)
{
    struct accel_csim *self = self_of(accel);
    return self->build->load_advance(self->unit[0]);
}

static uint32_t unit_save(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    struct accel_csim *self = self_of(accel);
    return self->build->save(self->unit[0], slot, stream, state);
}

static uint32_t unit_restore(struct accel *accel, uint32_t slot, uint32_t stream,
                             const struct kl_state *state)
{
    struct accel_csim *self = self_of(accel);
    return self->build->restore(self->unit[0], slot, stream, state);
}

/* ---- two units ---- */

static int pair_submit(struct accel *accel, const struct kl_request *request)
{
    struct accel_csim *self = self_of(accel);
    if (self->n_submitted - self->n_answered == KL_QUEUE_DEPTH)
        return -1;
    struct kl_info info;
    self->build->info(self->unit[0], &info);
    self->queue[self->n_submitted++ % KL_QUEUE_DEPTH] =
        (struct queued){.request = *request, .doorbell = info.cycles};
    return 0;
}

static int pair_poll(struct accel *accel, struct kl_result *result)
{
    struct accel_csim *self = self_of(accel);
    if (self->n_submitted == self->n_answered) {
        struct kl_request prepare;
        struct kl_result unheard;
        while (accel_owed_take(&self->owed, &prepare))
            self->build->exec_pair(self->unit, &prepare, 0, &unheard);
        return -1;
    }
    const struct queued *queued = &self->queue[self->n_answered++ % KL_QUEUE_DEPTH];
    const struct kl_request *request = &queued->request;
    struct kl_info info;
    self->build->info(self->unit[0], &info);
    const uint64_t waited = info.cycles - queued->doorbell;
    self->build->exec_pair(self->unit, request, waited > UINT32_MAX ? UINT32_MAX : (uint32_t)waited, result);
    accel_owed_note(&self->owed, request, result);
    return 1;
}

/* Both halves run the same checks on the same bytes: they say the same. */
static uint32_t pair_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    struct accel_csim *self = self_of(accel);
    const uint32_t status = self->build->load_begin(self->unit[0], slot, image, size_bytes);
    const uint32_t other = self->build->load_begin(self->unit[1], slot, image, size_bytes);
    assert(status == other);
    if (status == KL_OK) {
        self->is_loading = 1;
        self->load_status[0] = self->load_status[1] = KL_E_BUSY;
    }
    return status;
}

/* A half clears what it holds of a slot, and the first may hold a group more: it ends later then. */
static uint32_t pair_load_advance(struct accel *accel)
{
    struct accel_csim *self = self_of(accel);
    if (!self->is_loading)
        return KL_E_EMPTY;
    for (int u = 0; u < 2; u++)
        if (self->load_status[u] == KL_E_BUSY)
            self->load_status[u] = self->build->load_advance(self->unit[u]);
    if (self->load_status[0] == KL_E_BUSY || self->load_status[1] == KL_E_BUSY)
        return KL_E_BUSY;
    self->is_loading = 0;
    assert(self->load_status[0] == self->load_status[1]);
    return self->load_status[0];
}

static uint32_t pair_save(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    struct accel_csim *self = self_of(accel);
    return self->build->save_pair(self->unit, slot, stream, state);
}

static uint32_t pair_restore(struct accel *accel, uint32_t slot, uint32_t stream,
                             const struct kl_state *state)
{
    struct accel_csim *self = self_of(accel);
    return self->build->restore_pair(self->unit, slot, stream, state);
}

/* ---- both ---- */

/* Of a pair: of its first half, which says that it is one. */
static void csim_info(struct accel *accel, struct kl_info *info)
{
    struct accel_csim *self = self_of(accel);
    self->build->info(self->unit[0], info);
}

/* The simulation's speed is of no interest, and there are no caches in what it simulates. */
static void csim_warm(struct accel *accel, uint32_t slot, uint32_t stream)
{
    (void)accel;
    (void)slot;
    (void)stream;
}

static void csim_close(struct accel *accel)
{
    struct accel_csim *self = self_of(accel);
    free(self->unit[0]);
    free(self->unit[1]);
    free(self);
}

static const struct accel_ops unit_ops = {
    .name = "csim",
    .submit = unit_submit,
    .poll = unit_poll,
    .load_begin = unit_load_begin,
    .load_advance = unit_load_advance,
    .save = unit_save,
    .restore = unit_restore,
    .info = csim_info,
    .warm = csim_warm,
    .close = csim_close,
};

static const struct accel_ops pair_ops = {
    .name = "csim",
    .submit = pair_submit,
    .poll = pair_poll,
    .load_begin = pair_load_begin,
    .load_advance = pair_load_advance,
    .save = pair_save,
    .restore = pair_restore,
    .info = csim_info,
    .warm = csim_warm,
    .close = csim_close,
};

struct accel *accel_csim_open(const struct kl_build *build, uint32_t n_part)
{
    assert(n_part == 1 || n_part == 2);
    struct accel_csim *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->accel.ops = n_part == 1 ? &unit_ops : &pair_ops;
    self->build = build;
    for (uint32_t part = 0; part < n_part; part++) {
        self->unit[part] = aligned_alloc(64, build->unit_size_bytes());
        if (!self->unit[part]) {
            csim_close(&self->accel);
            return NULL;
        }
        build->init(self->unit[part], part, n_part);
    }
    return &self->accel;
}
