#include "model_check.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel.h"
#include "features.h"
#include "model_reference.h"

enum { PROGRESS_STEP = 4096 };

struct check {
    const struct model *model;
    struct accel *accel;
    struct model_reference *reference;
    uint32_t n_tick[KL_N_STREAM_MAX];
    double error_square_sum, logit_square_sum;
    uint32_t seq_no;
};

static int is_same(const struct kl_image_header *a, const struct kl_image_header *b)
{
    return a->size_bytes == b->size_bytes && a->image_hash == b->image_hash;
}

/* The reference must be the network that the image was made from, or every figure would be about something
 * else. */
static int weights_are_the_images(const struct model *model, const struct model_weights *weights, char *error)
{
    struct kl_image_header *image;
    char unused[MODEL_ERROR_CHARS]; /* what 8 bits cannot hold was not packed so */
    if (model_quantise(weights, &image, error))
        return -1;
    int same = is_same(image, model->image);
    free(image);
    if (!same && !model_quantise_int8(weights, &image, unused)) {
        same = is_same(image, model->image);
        free(image);
    }
    return same ? 0
                : model_refuse(
                      error,
                      "the package was not packed from these weights: its kernel image differs from what "
                      "they quantise to, with FP16 and with INT8 weights");
}

static int run_kernel(struct check *check, uint32_t stream, const float *raw, struct kl_result *result,
                      char *error)
{
    struct kl_request request = {
        .abi_version = KL_ABI_VERSION, .op = KL_OP_STEP, .stream = stream, .seq_no = check->seq_no++};
    int ready;
    features_quantise(check->model, raw, request.x);
    if (check->accel->ops->submit(check->accel, &request))
        return model_refuse(error, "csim backend: does not take the request");
    while (!(ready = check->accel->ops->poll(check->accel, result)))
        ;
    if (ready < 0 || result->status != KL_OK || result->seq_no != request.seq_no)
        return model_refuse(error, "csim backend: status %u", result->status);
    return 0;
}

static uint32_t run_reference(struct check *check, uint32_t stream, const float *raw, double *logits)
{
    const float x_max = (float)KL_X_ABS_MAX / (1 << KL_X_FRAC);
    double x[KL_N_IN_MAX];
    for (uint32_t i = 0; i < check->model->n_feature; i++) {
        float v = (raw[i] - check->model->feature[i].mean) * check->model->feature[i].scale;
        x[i] = (double)(v > x_max ? x_max : v < -x_max ? -x_max : v);
    }
    return model_reference_step(check->reference, stream, x, logits);
}

static void count(struct check *check, const struct kl_result *kernel, uint32_t reference_cls,
                  const double *logits, int8_t label, struct model_check_result *out)
{
    out->n_decision++;
    out->n_flip += kernel->cls != reference_cls;
    for (uint32_t c = 0; c < check->model->image->n_class; c++) {
        double error = fabs(ldexp((double)kernel->logits[c], -kernel->logit_frac) - logits[c]);
        if (error > out->logit_error_max)
            out->logit_error_max = error;
        check->error_square_sum += error * error;
        check->logit_square_sum += logits[c] * logits[c];
    }
    if (label < 0)
        return;
    out->n_labelled++;
    out->n_label[label]++;
    out->n_right_kernel += kernel->cls == label;
    out->n_right_reference += reference_cls == (uint32_t)label;
    out->confusion[label][kernel->cls]++;
}

static int check_row(struct check *check, const struct model_check_data *data, uint64_t row,
                     struct model_check_result *out, char *error)
{
    const float *raw = data->features + row * check->model->n_feature;
    uint16_t stream = data->stream[row];
    int8_t label = data->label[row];
    struct kl_result kernel;
    double logits[KL_N_CLASS_MAX];
    if (stream >= KL_N_STREAM_MAX || label < -1 || label >= check->model->image->n_class)
        return model_refuse(
            error, "row %" PRIu64 ": stream %u, label %d: streams below %d and labels below %u are known",
            row, stream, label, KL_N_STREAM_MAX, check->model->image->n_class);
    for (uint32_t i = 0; i < check->model->n_feature; i++)
        if (!isfinite(raw[i]))
            return model_refuse(error, "row %" PRIu64 ", feature %u: not finite", row, i);
    if (run_kernel(check, stream, raw, &kernel, error))
        return -1;
    uint32_t reference_cls = run_reference(check, stream, raw, logits);
    out->n_step++;
    if (check->n_tick[stream]++ < check->model->warmup_ticks)
        out->n_warmup++;
    else
        count(check, &kernel, reference_cls, logits, label, out);
    return 0;
}

int model_check(const struct model *model, const struct model_weights *weights,
                const struct model_check_data *data, void (*progress)(uint64_t done, uint64_t total),
                struct model_check_result *out, char error[MODEL_ERROR_CHARS])
{
    struct check check = {.model = model};
    struct model_check_result result = {0};
    if (model->feature_schema != FEATURES_SCHEMA || model->n_feature != FEATURES_N)
        return model_refuse(
            error, "feature list %u with %u features: this build computes list %d with %d, train again",
            model->feature_schema, model->n_feature, FEATURES_SCHEMA, FEATURES_N);
    if (weights_are_the_images(model, weights, error))
        return -1;
    const struct kl_build *build = accel_build_for(model->image);
    assert(build); /* the largest takes every shape that an image can have */
    check.accel = accel_csim_open(build, 1);
    check.reference = model_reference_create(weights, KL_N_STREAM_MAX);
    int status = -1;
    if (!check.accel || !check.reference) {
        model_refuse(error, "out of memory");
    } else {
        uint32_t loaded = accel_load(check.accel, 0, model->image, model->image->size_bytes);
        status =
            loaded == KL_OK ? 0 : model_refuse(error, "csim backend: refuses the image, status %u", loaded);
    }
    for (uint64_t row = 0; row < data->n_row && !status; row++) {
        status = check_row(&check, data, row, &result, error);
        if (progress && row % PROGRESS_STEP == 0)
            progress(row, data->n_row);
    }
    if (check.accel)
        check.accel->ops->close(check.accel);
    model_reference_free(check.reference);
    if (!status && !result.n_decision)
        status = model_refuse(
            error, "%" PRIu64 " rows, none beyond the %u warm-up ticks of its stream: nothing to compare",
            data->n_row, model->warmup_ticks);
    if (status)
        return -1;
    double n_logit = (double)result.n_decision * model->image->n_class;
    result.logit_error_rms = sqrt(check.error_square_sum / n_logit);
    result.logit_rms = sqrt(check.logit_square_sum / n_logit);
    *out = result;
    return 0;
}

void model_check_interval(uint64_t n_hit, uint64_t n, double *low, double *high)
{
    const double z = 1.959963984540054; /* 97.5 % quantile of the normal distribution */
    double p = (double)n_hit / (double)n, zz = z * z / (double)n;
    double centre = p + zz / 2, half = z * sqrt((p * (1 - p) + zz / 4) / (double)n);
    *low = n_hit ? (centre - half) / (1 + zz) : 0;
    *high = n_hit < n ? (centre + half) / (1 + zz) : 1;
}
