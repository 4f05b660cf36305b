/* Model package (.klm): the kernel's image, the normalisation, the labels and where they came from, in one
 * file.
 *
 * Layout, little-endian, every part padded with zeros to 8 bytes: struct model_file_header, manifest (UTF-8
 * JSON object, for people and tools: provenance, feature names, accuracy; at least one zero behind it),
 * struct model_feature[n_feature], kernel image. Anything inconsistent is refused with the reason; nothing is
 * repaired. Cold code: any thread, allocates. */
#ifndef MODEL_H
#define MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "../hls/kl_abi.h"

enum {
    MODEL_SHA256_BYTES = 32,
    MODEL_ERROR_CHARS = 512,
    MODEL_VERSION = 1,
    MODEL_MAGIC = 0x464d4c4b, /* "KLMF" */
    MODEL_CLASS_NAME_CHARS = 16,
    MODEL_FILE_BYTES_MAX = 16 << 20,    /* the largest image of these limits has 3.2 MB */
    MODEL_MANIFEST_BYTES_MAX = 1 << 20, /* without the zeros behind it */
};

struct model_file_header {
    uint32_t magic;
    uint16_t version;
    uint16_t pad0;
    uint8_t sha256[MODEL_SHA256_BYTES]; /* of everything behind this field to the end of the file */
    uint64_t file_bytes;
    uint32_t manifest_bytes;
    uint32_t image_bytes;
    uint32_t feature_schema;
    uint32_t horizon_events;
    uint32_t warmup_ticks;
    uint32_t n_feature;
    char class_name[KL_N_CLASS_MAX][MODEL_CLASS_NAME_CHARS];
};
static_assert(sizeof(struct model_file_header) == 200, "no padding, parts stay on 8 bytes");
static_assert(offsetof(struct model_file_header, file_bytes) == 40, "what the SHA-256 covers starts here");

/* x = clamp((raw - mean) * scale); computed in float, in this order. */
struct model_feature {
    float mean;
    float scale; /* 1 / standard deviation; finite, > 0 */
};

struct model {
    uint32_t feature_schema; /* FEATURES_SCHEMA of features.h that it was trained on: the caller compares */
    uint32_t horizon_events; /* of the label; > 0 */
    uint32_t warmup_ticks;   /* ticks of a stream before its first prediction counts */
    uint32_t n_feature;
    struct model_feature feature[KL_N_IN_MAX];
    char class_name[KL_N_CLASS_MAX][MODEL_CLASS_NAME_CHARS]; /* "down", "flat", "up"; zeros behind */
    const struct kl_image_header *image;                     /* image->size_bytes bytes, 8-byte aligned */
    const char *manifest;                                    /* JSON, NUL-terminated */
    uint8_t sha256[MODEL_SHA256_BYTES];                      /* of the whole file */
    void *buffer;                                            /* owns image and manifest */
};

/* Writes the reason into error; returns -1. For the modules that read and check models. */
int model_refuse(char error[MODEL_ERROR_CHARS], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads and checks a package, the accumulator proofs of its image included. 0, or -1 with a message (file,
 * what, offset, remedy) in error; *out is written on success only and then freed with model_free. */
int model_load(const char *path, struct model *out, char error[MODEL_ERROR_CHARS]);
/* The same from memory (fuzzing, tests); data is copied. name stands in messages. */
int model_parse(const char *name, const void *data, size_t size_bytes, struct model *out,
                char error[MODEL_ERROR_CHARS]);
void model_free(struct model *model);

/* The bytes of a package. features etc. as in struct model (image, manifest given; sha256 and buffer
 * ignored). *data: malloc'd, the caller frees it. 0, or -1 with the reason. */
int model_serialise(const struct model *model, void **data, size_t *size_bytes,
                    char error[MODEL_ERROR_CHARS]);
/* The same into a file, replaced in one step: a reader sees the old file or the whole new one. */
int model_write(const char *path, const struct model *model, char error[MODEL_ERROR_CHARS]);

/* FP32 weights of a network in PyTorch's terms, before quantisation. Rows gate-major i, f, g, o as in
 * torch.nn.LSTM; biases already added (b_ih + b_hh). */
struct model_weights {
    uint32_t n_in, n_layer, n_class;
    uint32_t n_hidden[KL_N_LAYER_MAX];
    float *w_x[KL_N_LAYER_MAX];  /* [4 * H][K] */
    float *w_h[KL_N_LAYER_MAX];  /* [4 * H][H] */
    float *bias[KL_N_LAYER_MAX]; /* [4 * H] */
    float *head_w;               /* [n_class][H of the last layer] */
    float *head_bias;            /* [n_class] */
};
/* Frees the arrays; the structure may be zero or partly filled. */
void model_weights_free(struct model_weights *weights);

/* Quantises by the number contract and lays out a kernel image: chooses the grids, proves the accumulator
 * bounds row by row, refuses what does not fit with layer, row and numbers. *image: malloc'd, the caller
 * frees it. */
int model_quantise(const struct model_weights *weights, struct kl_image_header **image,
                   char error[MODEL_ERROR_CHARS]);
/* The same, in the INT8 form: |w_int| <= 127 for every weight that multiplies a hidden state (W_h, and W_x
 * above layer 0); layer 0's W_x stays at 16 bits. Every backend takes such an image, as any other; some are
 * faster with it. Refuses, with its name, a row that 8 bits cannot hold on the coarsest grid. */
int model_quantise_int8(const struct model_weights *weights, struct kl_image_header **image,
                        char error[MODEL_ERROR_CHARS]);

enum model_matrix { MODEL_W_X, MODEL_W_H };
/* Whether every weight of a layer's matrix is at most 127 steps of its row's grid. image: one that
 * model_image_check takes. */
int model_matrix_is_int8(const struct kl_image_header *image, uint32_t layer, enum model_matrix matrix);

/* Checks an image of size_bytes bytes, 8-byte aligned, as if it came from an enemy: header, shape, size,
 * hash, padding, grids, and for every row the proofs that no accumulator of the kernel can overflow for any
 * input. 0, or -1 with the reason. */
int model_image_check(const void *image, size_t size_bytes, char error[MODEL_ERROR_CHARS]);

#endif
