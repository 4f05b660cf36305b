/* What kl_core holds: weights of every slot and state of every stream, as they lie on chip.
 * For the kernel's own files, its top and its testbench; the host sees kl_abi.h only. */
#ifndef KL_CORE_H
#define KL_CORE_H

#include <stdalign.h>

#include "kl_abi.h"
#include "lstm_cell.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* Weight words of a slot: layer 0 has x beside h, the layers above have h of the layer below. */
    KL_N_WORD_MAX =
        KL_N_GROUP_MAX * (KL_X_BLOCKS_MAX + KL_H_BLOCKS_MAX + (KL_N_LAYER_MAX - 1) * 2 * KL_H_BLOCKS_MAX),
};

struct kl_layer {
    struct lstm_shape x_shape, h_shape; /* of the two products; the same groups */
    uint32_t x_word, h_word;            /* first word of each in kl_model.weights */
    int32_t bias[KL_N_GROUP_MAX][KL_MAC_ROWS];
    uint8_t x_shift[KL_N_GROUP_MAX][KL_MAC_ROWS];
    uint8_t h_shift[KL_N_GROUP_MAX][KL_MAC_ROWS];
};

struct kl_model {
    struct kl_image_header header; /* valid if loaded */
    uint32_t loaded;
    uint32_t cycles_step, cycles_step_prepared, cycles_prepare, cycles_reset;
    struct kl_layer layer[KL_N_LAYER_MAX];
    int64_t head_bias[KL_N_CLASS_MAX];
    int16_t head[KL_N_CLASS_MAX][KL_H_BLOCKS_MAX][KL_BLOCK];
    alignas(64) struct lstm_weights weights[KL_N_WORD_MAX];
};

struct kl_stream {
    alignas(64) struct lstm_operands h[KL_N_LAYER_MAX][KL_H_BLOCKS_MAX]; /* 2^-15 steps */
    int32_t c[KL_N_LAYER_MAX][KL_N_GROUP_MAX][KL_GROUP_UNITS];           /* Q.18 */
    int32_t z[KL_N_LAYER_MAX][KL_N_GROUP_MAX][KL_MAC_ROWS]; /* W_h.h + b, Q.20; valid if prepared */
    uint32_t prepared;
};

/* All bytes zero: every slot empty, every stream at rest. */
struct kl_core {
    alignas(64) struct kl_model model[KL_N_SLOT];
    struct kl_stream stream[KL_N_SLOT][KL_N_STREAM_MAX];
};

/* A request's framing: reading, checking and answering it, with no work in between (a second KL_OP_PREPARE).
 */
uint32_t kl_schedule_frame_cycles(void);
uint32_t kl_schedule_reset_cycles(const struct kl_image_header *header);

#ifdef __cplusplus
}
#endif

#endif
