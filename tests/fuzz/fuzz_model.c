/* Model packages from anywhere. Properties: what is accepted is written back byte for byte, and the kernel
 * accepts its image too and computes with it, at the largest inputs, without overflow (UBSan watches).
 *
 * A random change never survives the hashes, so they are made right first; the first byte of the input says
 * which. */
#include <assert.h>
#include <openssl/evp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/accel.h"
#include "host/fp16.h"
#include "host/model.h"

enum { FIX_SHA256 = 1, FIX_IMAGE_HASH = 2, FIX_LENGTHS = 4, N_STEP = 3 };

static void fix(uint8_t *data, size_t size_bytes, uint8_t what)
{
    struct model_file_header header;
    const size_t from = offsetof(struct model_file_header, file_bytes);
    if (size_bytes < sizeof(header))
        return;
    memcpy(&header, data, sizeof(header));
    if (what & FIX_LENGTHS) {
        size_t before =
            sizeof(header) + (header.manifest_bytes / 8 + (size_t)1) * 8 + header.n_feature * (size_t)8;
        header.file_bytes = size_bytes;
        if (before <= size_bytes)
            header.image_bytes = (uint32_t)(size_bytes - before);
        memcpy(data, &header, sizeof(header));
    }
    if (what & FIX_IMAGE_HASH && header.image_bytes >= sizeof(struct kl_image_header) &&
        header.image_bytes <= size_bytes) {
        uint8_t *image = data + size_bytes - header.image_bytes;
        uint64_t hash = kl_image_hash(image, header.image_bytes);
        memcpy(image + offsetof(struct kl_image_header, image_hash), &hash, sizeof(hash));
    }
    if (what & FIX_SHA256)
        EVP_Digest(data + from, size_bytes - from, data + offsetof(struct model_file_header, sha256), NULL,
                   EVP_sha256(), NULL);
}

static void run(const struct kl_image_header *image)
{
    static struct accel *accel; /* the build that takes every shape */
    if (!accel)
        accel = accel_csim_open(&kl_build_large, 1);
    assert(accel);
    assert(accel_build_for(image));
    assert(accel_load(accel, 0, image, image->size_bytes) == KL_OK);
    for (uint32_t l = 0; l < image->n_layer; l++)
        model_matrix_is_int8(image, l, MODEL_W_X), model_matrix_is_int8(image, l, MODEL_W_H);
    for (int t = 0; t < N_STEP; t++) {
        struct kl_request request = {.abi_version = KL_ABI_VERSION, .op = KL_OP_STEP};
        struct kl_result result;
        for (uint32_t i = 0; i < image->n_in; i++)
            request.x[i] = fp16_from_double(t % 2 ? -1e9 : 1e9, KL_X_FRAC, KL_X_ABS_MAX);
        assert(!accel->ops->submit(accel, &request));
        while (!accel->ops->poll(accel, &result))
            ;
        assert(result.status == KL_OK && result.cls < image->n_class);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size_bytes)
{
    struct model model;
    char error[MODEL_ERROR_CHARS];
    if (!size_bytes)
        return 0;
    size_bytes--;
    uint8_t *data = malloc(size_bytes + 1);
    assert(data);
    memcpy(data, input + 1, size_bytes);
    fix(data, size_bytes, input[0]);
    error[0] = '\0';
    if (model_parse("input", data, size_bytes, &model, error)) {
        assert(!strncmp(error, "input: ", 7) && strlen(error) < MODEL_ERROR_CHARS);
    } else {
        void *again;
        size_t again_bytes;
        assert(!model_serialise(&model, &again, &again_bytes, error));
        assert(again_bytes == size_bytes && !memcmp(again, data, size_bytes));
        free(again);
        run(model.image);
        model_free(&model);
    }
    free(data);
    return 0;
}
