/* Test helper: units of the native kernel builds, and requests for them. Header only. */
#ifndef KERNEL_RIG_H
#define KERNEL_RIG_H

#include <stdlib.h>
#include <string.h>

#include "hls/kl_abi.h"
#include "tests/model_image.h"

/* A unit of its own (n_part 1) or half of a pair; the caller frees it. NULL: out of memory. */
static inline struct kl_unit *kernel_rig_unit(const struct kl_build *build, uint32_t part, uint32_t n_part)
{
    struct kl_unit *unit = (struct kl_unit *)aligned_alloc(64, build->unit_size_bytes());
    if (unit)
        build->init(unit, part, n_part);
    return unit;
}

/* A whole load. Returns enum kl_status. */
static inline uint32_t kernel_rig_load_bytes(const struct kl_build *build, struct kl_unit *unit,
                                             uint32_t slot, const void *image, size_t size_bytes)
{
    uint32_t status = build->load_begin(unit, slot, image, size_bytes);
    if (status != KL_OK)
        return status;
    while ((status = build->load_advance(unit)) == KL_E_BUSY)
        ;
    return status;
}

static inline uint32_t kernel_rig_load(const struct kl_build *build, struct kl_unit *unit, uint32_t slot,
                                       const struct kl_image_header *image)
{
    return kernel_rig_load_bytes(build, unit, slot, image, image->size_bytes);
}

static inline struct kl_request kernel_rig_request(uint32_t op, uint32_t slot, uint32_t stream)
{
    return (struct kl_request){.abi_version = KL_ABI_VERSION,
                               .op = (uint16_t)op,
                               .slot = (uint16_t)slot,
                               .stream = stream,
                               .seq_no = 0x12345678};
}

/* A step with the n-th x of a fixed random sequence. */
static inline struct kl_request kernel_rig_step(uint32_t slot, uint32_t stream, uint64_t n)
{
    struct kl_request request = kernel_rig_request(KL_OP_STEP, slot, stream);
    uint64_t seed = n * 1000 + 7;
    for (int k = 0; k < KL_N_IN_MAX; k++)
        request.x[k] = model_image_random_x(&seed);
    return request;
}

/* exec, with every byte of the result to be written. */
static inline struct kl_result kernel_rig_exec(const struct kl_build *build, struct kl_unit *unit,
                                               const struct kl_request *request)
{
    struct kl_result result;
    memset(&result, 0xa5, sizeof result);
    build->exec(unit, request, &result);
    return result;
}

static inline struct kl_result kernel_rig_op(const struct kl_build *build, struct kl_unit *unit, uint32_t op,
                                             uint32_t slot, uint32_t stream)
{
    const struct kl_request request = kernel_rig_request(op, slot, stream);
    return kernel_rig_exec(build, unit, &request);
}

/* What both of two results say that does not depend on when and where they were computed: everything but
 * cycles, slot, stream and seq_no. Both whole and undamaged: check. */
static inline int kernel_rig_same(struct kl_result a, struct kl_result b)
{
    struct kl_result *both[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        if (both[i]->check != kl_result_check(both[i]))
            return 0;
        both[i]->check = 0;
        both[i]->kernel_cycles = both[i]->prepare_cycles = both[i]->wait_cycles = 0;
        both[i]->slot = 0;
        both[i]->stream = both[i]->seq_no = 0;
    }
    return memcmp(&a, &b, sizeof a) == 0;
}

/* An answer that refuses: status, and nothing but the request's own words. */
static inline int kernel_rig_refused(const struct kl_result *result, const struct kl_request *request,
                                     uint32_t status)
{
    struct kl_result expected = {.abi_version = KL_ABI_VERSION,
                                 .status = (uint16_t)status,
                                 .stream = request->stream,
                                 .seq_no = request->seq_no,
                                 .slot = request->slot};
    expected.check = kl_result_check(&expected);
    return memcmp(result, &expected, sizeof expected) == 0;
}

#endif
