/* The synthesised top: one compute unit. */
#ifndef KL_KERNEL_H
#define KL_KERNEL_H

#include "front.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A compute unit's memories. */
struct kl_unit {
    struct front front;
    uint32_t reg[KL_N_REG];
    const uint8_t *image; /* of the load that kl_build.load_begin began; NULL: none */
    struct kl_core core;
};

/* One start, kl_kernel's on the memories given: command (enum kl_command) with the arguments that it reads,
 * as in struct kl_arguments, its records as words (records.h). KL_COMMAND_EXEC: a request of a batch waits
 * for those before it, and asks for KL_OP_PREPARE by a request of its own, since a batch has no idle moment:
 * KL_REQUEST_PREPARE does nothing.
 */
void kernel_start(struct kl_core *core, struct front *front, uint32_t *reg, uint32_t command, uint32_t slot,
                  uint32_t image_size_bytes, uint32_t n_request, const uint64_t *image,
                  const uint32_t *request, uint32_t *result, uint32_t *state);

/* command, slot, image_size_bytes, n_request: as struct kl_arguments. reg: the register block. Not reentrant:
 * one start at a time, as the hardware runs it. */
void kl_kernel(uint32_t command, uint32_t slot, uint32_t image_size_bytes, uint32_t n_request,
               const uint64_t *image, const uint32_t *request, uint32_t *result, uint32_t *state,
               uint32_t reg[KL_N_REG]);

#ifdef __cplusplus
}
#endif

#endif
