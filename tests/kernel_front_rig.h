/* Test helper: the host's side of a unit's register block, in doorbell mode. Header only; kl_units_BUILD. */
#ifndef KERNEL_FRONT_RIG_H
#define KERNEL_FRONT_RIG_H

#include "hls/kl_kernel.h"
#include "tests/kernel_rig.h"

struct kernel_front_rig {
    const struct kl_build *build;
    struct kl_unit *unit;
    uint32_t *reg;
    const void *image;                     /* a round's argument */
    const struct kl_request *host_request; /* a round's argument: the ring in memory */
    struct kl_result *host_result;         /* a round's argument */
};

static inline void kernel_front_rig_round(const struct kernel_front_rig *rig)
{
    const struct kl_arguments arguments = {.command = KL_COMMAND_SERVICE,
                                           .image = rig->image,
                                           .request = rig->host_request,
                                           .result = rig->host_result};
    rig->build->kernel(rig->unit, &arguments);
}

/* Writes a request into the ring and rings, whether there is room or not. */
static inline void kernel_front_rig_post(const struct kernel_front_rig *rig, const struct kl_request *request)
{
    const uint32_t entry = rig->reg[KL_REG_REQUEST_TAIL] % KL_QUEUE_DEPTH;
    memcpy(&rig->reg[KL_REG_REQUESTS + entry * (sizeof *request / 4)], request, sizeof *request);
    rig->reg[KL_REG_REQUEST_TAIL]++;
}

/* The answer of counter `at`, whether it is there or not. */
static inline struct kl_result kernel_front_rig_answer(const struct kernel_front_rig *rig, uint32_t at)
{
    struct kl_result result;
    const uint32_t entry = at % KL_QUEUE_DEPTH;
    memcpy(&result, &rig->reg[KL_REG_RESULTS + entry * (sizeof result / 4)], sizeof result);
    return result;
}

/* 1: *result is the next answer, and its entry is free; 0: none. */
static inline int kernel_front_rig_take(const struct kernel_front_rig *rig, struct kl_result *result)
{
    if (rig->reg[KL_REG_RESULT_HEAD] == rig->reg[KL_REG_RESULT_TAIL])
        return 0;
    *result = kernel_front_rig_answer(rig, rig->reg[KL_REG_RESULT_HEAD]++);
    return 1;
}

static inline uint64_t kernel_front_rig_cycles(const struct kernel_front_rig *rig)
{
    struct kl_info info;
    rig->build->info(rig->unit, &info);
    return info.cycles;
}

#endif
