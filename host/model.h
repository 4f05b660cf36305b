/* Model package (.klm): the kernel's image, the normalisation, the labels and where they came from, in one file.
 *
 * Layout, little-endian: struct model_file_header, manifest (UTF-8 JSON, for people and tools: provenance,
 * feature names, labels, accuracy), struct model_feature[n_in], kernel image. SHA-256 over everything behind the
 * header's sha256 field. Anything inconsistent is refused with the reason; nothing is repaired. */
#ifndef MODEL_H
#define MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "../hls/kl_abi.h"

enum { MODEL_SHA256_BYTES = 32, MODEL_ERROR_CHARS = 256, MODEL_VERSION = 1 };

/* x = clamp((raw - mean) * scale); computed in float, in this order. */
struct model_feature {
    float mean;
    float scale; /* 1 / standard deviation; finite, > 0 */
};

struct model {
    uint32_t feature_schema; /* FEATURES_SCHEMA of features.h that it was trained on */
    uint32_t horizon_events; /* of the label */
    uint32_t warmup_ticks;   /* ticks of a stream before its first prediction counts */
    uint32_t n_feature;
    struct model_feature feature[KL_N_IN_MAX];
    char class_name[KL_N_CLASS_MAX][16]; /* "down", "flat", "up" */
    const struct kl_image_header *image; /* image->size_bytes bytes */
    const char *manifest; /* JSON, NUL-terminated */
    uint8_t sha256[MODEL_SHA256_BYTES]; /* of the whole file */
    void *buffer; /* owns image and manifest */
};

/* Reads and checks a package. 0, or -1 with a message (file, what, offset, remedy) in error. */
int model_load(const char *path, struct model *out, char error[MODEL_ERROR_CHARS]);
/* The same from memory (fuzzing, tests); data is copied. name stands in messages. */
int model_parse(const char *name, const void *data, size_t size_bytes, struct model *out,
                char error[MODEL_ERROR_CHARS]);
void model_free(struct model *model);

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

/* Quantises by the number contract and lays out a kernel image: chooses the grids, proves the accumulator bounds
 * row by row, refuses what does not fit with layer, row and numbers. *image: malloc'd, the caller frees it. */
int model_quantise(const struct model_weights *weights, struct kl_image_header **image,
                   char error[MODEL_ERROR_CHARS]);

/* Writes a package. features etc. as in struct model (image, manifest given; sha256 and buffer ignored). */
int model_write(const char *path, const struct model *model, char error[MODEL_ERROR_CHARS]);

#endif
