#include <stdlib.h>
#include <string.h>

#include "accel_cpu_self.h"

static size_t whole_lines(size_t size_bytes)
{
    return (size_bytes + CPU_LINE - 1) / CPU_LINE * CPU_LINE;
}

/* Everything that a request touches, in one mapping: tables, arenas, states. 0, or -1: out of memory. */
static int map_slots(struct accel_cpu *self)
{
    const uint32_t lanes = self->variant->lanes, n_stream = self->info.n_stream;
    const size_t arena_bytes = whole_lines(cpu_arena_bytes_max(lanes, &self->info));
    const size_t state_bytes = cpu_state_bytes_max(lanes, &self->info);
    const size_t states_bytes = state_bytes * n_stream * (self->has_worker ? 2 : 1);
    const size_t tanh_bytes = whole_lines(sizeof(struct cpu_tanh));
    self->memory_bytes = tanh_bytes + KL_N_SLOT * (arena_bytes + states_bytes + state_bytes);
    self->memory = cpu_map(self->memory_bytes);
    if (!self->memory)
        return -1;
    struct cpu_tanh *tanh = self->memory;
    cpu_tanh_fill(tanh);
    uint8_t *at = (uint8_t *)self->memory + tanh_bytes;
    for (uint32_t s = 0; s < KL_N_SLOT; s++) {
        struct slot *slot = &self->slot[s];
        slot->model.tanh = tanh;
        slot->arena = at;
        slot->warm_state = at + arena_bytes;
        slot->states = slot->warm_state + state_bytes;
        slot->stream = calloc(n_stream, sizeof *slot->stream);
        if (!slot->stream)
            return -1;
        at = slot->states + states_bytes;
    }
    return 0;
}

struct accel *accel_cpu_open(const struct accel_cpu_options *options)
{
    enum accel_cpu_variant variant = options->variant;
    if (variant == ACCEL_CPU_AUTO) {
        for (variant = ACCEL_CPU_AVX512VNNI; !accel_cpu_has(variant); variant++)
            ;
    }
    if (!accel_cpu_has(variant))
        return NULL;
    struct accel_cpu *self = aligned_alloc(CPU_LINE, whole_lines(sizeof *self));
    if (!self)
        return NULL;
    memset(self, 0, sizeof *self);
    self->accel.ops = &accel_cpu_ops;
    self->variant = cpu_variant_of(variant);
    self->variant_id = variant;
    self->frame_cycles = options->build->frame_cycles();
    self->reset_cycles = options->build->reset_cycles();
    self->loader.variant = self->variant;
    self->loader.build = options->build;
    if (accel_build_limits(options->build, &self->info)) {
        free(self);
        return NULL;
    }
    if (options->prepare_thread) {
        if (cpu_worker_start(&self->worker, self->variant)) {
            free(self);
            return NULL;
        }
        self->has_worker = 1;
    }
    if (map_slots(self)) {
        accel_cpu_ops.close(&self->accel);
        return NULL;
    }
    return &self->accel;
}
