/* Does a package decide as the network it was made from? Runs both over the same ticks, every stream with its
 * own state, and counts. Cold code. */
#ifndef MODEL_CHECK_H
#define MODEL_CHECK_H

#include <stdint.h>

#include "model.h"

/* Ticks in time order, streams interleaved, as killline features writes them. */
struct model_check_data {
    const float *features;  /* [n_row][model->n_feature], raw */
    const int8_t *label;    /* [n_row], -1: none */
    const uint16_t *stream; /* [n_row], below KL_N_STREAM_MAX */
    uint64_t n_row;
};

struct model_check_result {
    uint64_t n_step;     /* rows run */
    uint64_t n_warmup;   /* of these, not counted below: the stream had seen fewer than warmup_ticks */
    uint64_t n_decision; /* the others */
    uint64_t n_flip;     /* decisions of kernel and reference that differ */
    uint64_t n_labelled; /* decisions with a label; the rest of the counts is over these */
    uint64_t n_right_kernel, n_right_reference;
    uint64_t n_label[KL_N_CLASS_MAX];
    uint64_t confusion[KL_N_CLASS_MAX][KL_N_CLASS_MAX]; /* [label][kernel's class] */
    double logit_error_max, logit_error_rms;            /* kernel against reference, over all decisions */
    double logit_rms;                                   /* of the reference, for scale */
};

/* Kernel: the model's image through the csim backend, in the smallest build that takes it. Reference: weights
 * (model_reference.h), with features normalised and clamped but not rounded to binary16, so that input
 * rounding counts too. progress (NULL: none) is called now and then. 0, or -1 with the reason: data that does
 * not fit, weights that are not the image's. */
int model_check(const struct model *model, const struct model_weights *weights,
                const struct model_check_data *data, void (*progress)(uint64_t done, uint64_t total),
                struct model_check_result *out, char error[MODEL_ERROR_CHARS]);

/* Wilson's score interval, 95 %, of n_hit among n (> 0). */
void model_check_interval(uint64_t n_hit, uint64_t n, double *low, double *high);

#endif
