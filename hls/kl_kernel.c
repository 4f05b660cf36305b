#include "kl_kernel.h"

#include <string.h>

#include "kl_core.h"
#include "kl_pragma.h"

void kl_kernel(uint32_t command, uint32_t slot, const uint8_t *image, uint32_t image_size_bytes,
               const struct kl_request *request, struct kl_result *result)
{
    /* Requests and results on a bundle of their own, so that a model load never queues before an answer. The
     * image's depth, for RTL co-simulation only: 3 x 256 hidden, 64 inputs, 8 classes. */
    KL_PRAGMA(HLS INTERFACE m_axi port = image offset = slave bundle = load depth = 2775168)
    KL_PRAGMA(HLS INTERFACE m_axi port = request offset = slave bundle = tick depth = 1)
    KL_PRAGMA(HLS INTERFACE m_axi port = result offset = slave bundle = tick depth = 1)
    KL_PRAGMA(HLS INTERFACE s_axilite port = command)
    KL_PRAGMA(HLS INTERFACE s_axilite port = slot)
    KL_PRAGMA(HLS INTERFACE s_axilite port = image)
    KL_PRAGMA(HLS INTERFACE s_axilite port = image_size_bytes)
    KL_PRAGMA(HLS INTERFACE s_axilite port = request)
    KL_PRAGMA(HLS INTERFACE s_axilite port = result)
    KL_PRAGMA(HLS INTERFACE s_axilite port = return )

    /* Zero at configuration, which is kl_core_init's state; it lives on from call to call. */
    static struct kl_core core;
    /* What the loops' II = 4 needs from memory: every row lane its own bank, 16 weights (256 bits) per read;
     * h the same width; c and z of all units and rows of a group in one word; two knots per T and cycle. Not
     * yet seen by a synthesis tool. */
    KL_PRAGMA(HLS DISAGGREGATE variable = core)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.model.weights.w complete dim = 3)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.model.weights.w cyclic factor = 16 dim = 4)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.stream.h.v cyclic factor = 16 dim = 5)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.stream.c complete dim = 5)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.stream.z complete dim = 5)
    KL_PRAGMA(HLS BIND_STORAGE variable = core.stream.z type = ram_t2p impl = uram)
    struct kl_request request_on_chip;
    struct kl_result result_on_chip;

    if (command == KL_COMMAND_EXEC) {
        memcpy(&request_on_chip, request, sizeof request_on_chip); /* one burst */
        kl_core_exec(&core, &request_on_chip, &result_on_chip);
    } else {
        memset(&result_on_chip, 0, sizeof result_on_chip);
        result_on_chip.abi_version = KL_ABI_VERSION;
        result_on_chip.slot = (uint16_t)slot;
        uint32_t status = KL_E_OP;
        if (command == KL_COMMAND_LOAD)
            status = kl_core_load(&core, slot, image, image_size_bytes);
        result_on_chip.status = (uint16_t)status;
        if (result_on_chip.status == KL_OK)
            result_on_chip.image_hash = core.model[slot].header.image_hash;
    }
    memcpy(result, &result_on_chip, sizeof result_on_chip);
}
