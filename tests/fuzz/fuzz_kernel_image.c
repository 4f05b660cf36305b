/* Model images, with the hash made right so that the checks behind it are reached. Whatever kl_core_load
 * takes must run without overflow (UBSan), stay within the contract's bounds and answer the same with and
 * without prepare. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hls/kl_core.h"

enum { N_STEP = 3, N_X_BYTE = 64 };

static struct kl_core *core;

static void check(int holds)
{
    if (!holds)
        abort();
}

/* The k-th operand of step n: the fuzzer's byte as one of the grid's extreme or small values. */
static uint16_t operand(const uint8_t *data, uint32_t n, uint32_t k)
{
    static const uint16_t value[] = {0x4bff, 0xcbff, 0x0000, 0x3c00, 0xbc00, 0x1000, 0x9000, 0x8000};
    return value[(data[k % N_X_BYTE] >> n) & 7];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!core) {
        core = aligned_alloc(64, (kl_core_size_bytes() + 63) & ~(size_t)63);
        check(core != NULL);
        kl_core_init(core);
    }
    if (size < N_X_BYTE)
        return 0;
    const size_t image_size = size - N_X_BYTE;
    uint8_t *image = malloc(image_size ? image_size : 1);
    check(image != NULL);
    memcpy(image, data + N_X_BYTE, image_size);
    if (image_size >= sizeof(struct kl_image_header)) {
        const uint64_t hash = kl_image_hash(image, image_size);
        memcpy(image + offsetof(struct kl_image_header, image_hash), &hash, sizeof hash);
    }
    const uint32_t status = kl_core_load(core, 0, image, image_size);
    check(status == KL_OK || status == KL_E_ABI || status == KL_E_IMAGE);
    check((status == KL_OK) == (core->model[0].loaded == 1));

    struct kl_request request = {.abi_version = KL_ABI_VERSION};
    for (uint32_t n = 0; n < N_STEP; n++) {
        struct kl_result result[2];
        for (uint32_t stream = 0; stream < 2; stream++) {
            request.stream = stream;
            request.op = KL_OP_PREPARE;
            if (stream == 1) {
                kl_core_exec(core, &request, &result[stream]);
                check(result[stream].status == (status == KL_OK ? KL_OK : KL_E_EMPTY));
            }
            request.op = KL_OP_STEP;
            for (uint32_t k = 0; k < KL_N_IN_MAX; k++)
                request.x[k] = operand(data, n, k);
            kl_core_exec(core, &request, &result[stream]);
            check(result[stream].status == (status == KL_OK ? KL_OK : KL_E_EMPTY));
        }
        if (status != KL_OK)
            break;
        check(memcmp(result[0].logits, result[1].logits, sizeof result[0].logits) == 0);
        check(result[0].cls == result[1].cls && result[0].cls < result[0].n_class);
        for (uint32_t k = 0; k < result[0].n_class; k++)
            check(result[0].logits[k] <= result[0].logits[result[0].cls]);
        check(result[0].kernel_cycles > result[1].kernel_cycles);
        for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
            for (uint32_t u = 0; u < KL_N_UNIT_MAX; u++) {
                const int32_t h = core->stream[0][0].h[l][u / KL_BLOCK].v[u % KL_BLOCK];
                const int32_t c = core->stream[0][0].c[l][u / KL_GROUP_UNITS][u % KL_GROUP_UNITS];
                check(abs(h) <= KL_H_ABS_MAX && abs(c) <= KL_C_ABS_MAX);
                check(l < core->model[0].header.n_layer && u < core->model[0].header.n_hidden[l]
                          ? 1
                          : h == 0 && c == 0); /* units that do not exist stay at rest */
            }
        }
    }
    free(image);
    return 0;
}
