/* The synthesised top: one compute unit. Natively it is a function like any other, with a core of its own;
 * the C simulation backend uses kl_core directly and takes as many as it wants. */
#ifndef KL_KERNEL_H
#define KL_KERNEL_H

#include "kl_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kl_command {
    KL_COMMAND_EXEC = 0, /* request -> result */
    KL_COMMAND_LOAD = 1, /* image -> slot; result: status and slot, and image_hash if KL_OK */
};

/* image: image_size_bytes bytes, KL_COMMAND_LOAD only. request: KL_COMMAND_EXEC only. An unknown command
 * answers KL_E_OP. Not reentrant: one call at a time, as the hardware runs it. */
void kl_kernel(uint32_t command, uint32_t slot, const uint8_t *image, uint32_t image_size_bytes,
               const struct kl_request *request, struct kl_result *result);

#ifdef __cplusplus
}
#endif

#endif
