#include <stdlib.h>

#include "accel.h"

struct accel_csim {
    struct accel accel; /* first: ops find the rest through it */
    struct kl_core *core;
    struct kl_result result;
    int outstanding;
};

static struct accel_csim *self_of(struct accel *accel)
{
    return (struct accel_csim *)(void *)accel;
}

/* The kernel runs here, inline: submit takes what the native kernel takes, and poll finds the answer ready.
 */
static int csim_submit(struct accel *accel, const struct kl_request *request)
{
    struct accel_csim *self = self_of(accel);
    if (self->outstanding)
        return -1;
    kl_core_exec(self->core, request, &self->result);
    self->outstanding = 1;
    return 0;
}

static int csim_poll(struct accel *accel, struct kl_result *result)
{
    struct accel_csim *self = self_of(accel);
    if (!self->outstanding)
        return -1;
    *result = self->result;
    self->outstanding = 0;
    return 1;
}

static uint32_t csim_load(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    return kl_core_load(self_of(accel)->core, slot, image, size_bytes);
}

static void csim_close(struct accel *accel)
{
    struct accel_csim *self = self_of(accel);
    free(self->core);
    free(self);
}

static const struct accel_ops csim_ops = {
    .name = "csim", .submit = csim_submit, .poll = csim_poll, .load = csim_load, .close = csim_close};

struct accel *accel_csim_open(void)
{
    struct accel_csim *self = calloc(1, sizeof *self);
    const size_t size_bytes = (kl_core_size_bytes() + 63) & ~(size_t)63; /* aligned_alloc wants whole lines */
    struct kl_core *core = aligned_alloc(64, size_bytes);
    if (!self || !core) {
        free(self);
        free(core);
        return NULL;
    }
    kl_core_init(core);
    self->accel.ops = &csim_ops;
    self->core = core;
    return &self->accel;
}
