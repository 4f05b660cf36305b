/* What the cpu backend holds. For accel_cpu.c, which works on it, and accel_cpu_open.c, which sets it up. */
#ifndef ACCEL_CPU_SELF_H
#define ACCEL_CPU_SELF_H

#include "accel_cpu_kernel.h"

struct stream {
    uint32_t epoch;       /* of the slot when the state was last valid; else it stands for zeros */
    uint8_t prepared;     /* as the kernel would count it */
    uint8_t z_ready;      /* z of the own state */
    uint8_t shadow_valid; /* the task's z, once it is there */
    _Atomic uint32_t task;
};

struct slot {
    struct cpu_model model;
    int loaded;
    uint32_t cycles_step, cycles_step_prepared, cycles_prepare;
    uint64_t image_hash;
    uint8_t logit_frac;
    uint32_t epoch; /* counts loads: every stream of an older one is at rest */
    uint32_t state_stride;
    uint8_t *arena, *states;
    struct stream *stream;
    uint8_t *warm_state; /* steps on it touch what a stream's step touches */
};

struct place {
    uint16_t slot;
    uint16_t stream;
};

/* Different places, newest last; of more than fit the oldest are forgotten. */
struct places {
    uint32_t n;
    struct place place[KL_QUEUE_DEPTH];
};

/* A request that waits for poll. */
struct queued {
    struct cpu_x x; /* decoded, or binary16 bits as long as there is no model to say how many */
    uint16_t abi_version, op, slot, flags;
    uint32_t stream, seq_no, budget_cycles;
    uint32_t epoch; /* of its slot when it came; 0: no model was there */
    int x_is_good;
    uint64_t doorbell; /* cycles */
};

struct accel_cpu {
    struct accel accel; /* first: ops find the rest through it */
    const struct cpu_variant *variant;
    enum accel_cpu_variant variant_id;
    struct kl_info info;
    uint32_t frame_cycles, reset_cycles;
    uint32_t n_submitted, n_answered; /* run freely */
    uint64_t cycles;                  /* the kernel's clock */
    struct places owed;               /* prepares, in the kernel's count */
    struct places due;                /* prepares to be carried out in idle moments */
    struct slot slot[KL_N_SLOT];
    struct queued queue[KL_QUEUE_DEPTH];
    struct cpu_loader loader;
    uint32_t loading; /* slot */
    int is_loading;
    uint64_t jobs_before_load;
    int has_worker;
    struct cpu_worker worker;
    void *memory;
    size_t memory_bytes;
};
static_assert((KL_QUEUE_DEPTH & (KL_QUEUE_DEPTH - 1)) == 0, "counters are masked");
static_assert(KL_N_STREAM_MAX <= UINT16_MAX + 1, "struct place");

extern const struct accel_ops accel_cpu_ops;

#endif
