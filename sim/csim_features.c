/* A package's model on a day's features: the same bits as the oracle, tick for tick. */
#include "csim.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../hls/kl_tb_trail.h"
#include "../host/features.h"
#include "../host/npy_read.h"

enum { PROGRESS_STEP = 4096 };

struct data {
    float *row;
    uint16_t *stream;
    uint64_t n_row;
};

static int read_data(const struct model *model, const char *features_path, struct data *data, char *error)
{
    const char *slash = strrchr(features_path, '/');
    const int dir_chars = slash ? (int)(slash - features_path) + 1 : 0;
    void *row = NULL, *stream = NULL;
    uint64_t n_stream;
    char *stream_path;
    if (model->feature_schema != FEATURES_SCHEMA || model->n_feature != FEATURES_N)
        return csim_refuse(
            error,
            "the package has feature list %u with %u features, this build list %d with %d: train again",
            model->feature_schema, model->n_feature, FEATURES_SCHEMA, FEATURES_N);
    if (asprintf(&stream_path, "%.*sstream.npy", dir_chars, features_path) < 0)
        return csim_refuse(error, "out of memory");
    static_assert((int)CSIM_ERROR_CHARS >= (int)NPY_READ_ERROR_CHARS, "its messages fit");
    int status = npy_read(features_path, "<f4", model->n_feature, &row, &data->n_row, error) ||
                         npy_read(stream_path, "<u2", 0, &stream, &n_stream, error)
                     ? -1
                     : 0;
    if (!status && n_stream != data->n_row)
        status = csim_refuse(error, "%s has %" PRIu64 " rows, %s %" PRIu64 ": they are not of one run",
                             features_path, data->n_row, stream_path, n_stream);
    data->row = row;
    data->stream = stream;
    free(stream_path);
    return status;
}

struct job {
    struct csim_kernel kernel;
    const struct model *model;
    const struct tb_model *oracle;
    struct tb_report *report;
    struct tb_state *state; /* per stream */
    int prepared[KL_N_STREAM_MAX];
    uint32_t step_cycles[2], prepare_cycles;
    uint16_t mac_rows;
    /* Of the step being compared: too large for the stack. */
    struct tb_state before;
    struct tb_answer answer;
    struct kl_state kernel_state, oracle_state;
};

static void step(struct job *job, const float *raw, uint32_t stream, uint32_t seq_no)
{
    const struct kl_image_header *image = job->model->image;
    struct tb_state *state = &job->state[stream];
    struct kl_request request = {
        .abi_version = KL_ABI_VERSION, .op = KL_OP_STEP, .stream = stream, .seq_no = seq_no};
    struct kl_result result, expected = {.abi_version = KL_ABI_VERSION,
                                         .stream = stream,
                                         .seq_no = seq_no,
                                         .kernel_cycles = job->step_cycles[job->prepared[stream]],
                                         .prepare_cycles = job->prepare_cycles,
                                         .image_hash = image->image_hash,
                                         .n_class = (uint8_t)image->n_class,
                                         .logit_frac = (uint8_t)(image->head_frac + KL_H_FRAC)};
    double x[KL_N_IN_MAX];
    features_quantise(job->model, raw, request.x);
    for (uint32_t k = 0; k < image->n_in; k++)
        x[k] = tb_half_value(request.x[k]);
    job->before = *state;
    tb_oracle_step(job->oracle, state, x, &job->answer);
    expected.cls = (uint8_t)job->answer.cls;
    for (uint32_t k = 0; k < image->n_class; k++)
        expected.logits[k] = (int64_t)job->answer.logit[k];
    expected.check = kl_result_check(&expected);
    tb_trail_write_state(state, image, &job->oracle_state);

    csim_kernel_exec(&job->kernel, &request, &result);
    const uint32_t saved = csim_kernel_save(&job->kernel, stream, &job->kernel_state);
    const struct tb_trail trail = {.build = job->kernel.build,
                                   .n_part = job->kernel.n_unit,
                                   .mac_rows = job->mac_rows,
                                   .model = job->oracle,
                                   .request = &request,
                                   .was_prepared = job->prepared[stream],
                                   .before = &job->before,
                                   .answer = &job->answer};
    job->report->n_case++;
    if (memcmp(&result, &expected, sizeof result) != 0 || saved != KL_OK ||
        memcmp(&job->kernel_state, &job->oracle_state, sizeof job->oracle_state) != 0 ||
        !tb_trail_same_z(&trail, job->kernel.unit)) {
        tb_trail_step(job->report, &trail, job->kernel.unit, &result, &expected, saved, &job->kernel_state,
                      &job->oracle_state);
        /* Each further mismatch is to be one of its own. */
        if (saved == KL_OK)
            tb_trail_read_state(&job->kernel_state, state);
    }
    request.op = KL_OP_PREPARE;
    csim_kernel_exec(&job->kernel, &request, &result);
    job->prepared[stream] = 1;
}

static int run(struct job *job, const struct data *data, void (*progress)(uint64_t done, uint64_t total),
               char *error)
{
    const uint32_t n_feature = job->model->n_feature;
    struct kl_info info;
    job->kernel.build->info(job->kernel.unit[0], &info);
    job->mac_rows = info.mac_rows;
    for (int prepared = 0; prepared < 2; prepared++)
        job->step_cycles[prepared] =
            job->kernel.build->step_cycles(job->model->image, job->kernel.n_unit, prepared);
    job->prepare_cycles = job->kernel.build->prepare_cycles(job->model->image, job->kernel.n_unit);
    for (uint64_t i = 0; i < data->n_row; i++) {
        const float *raw = data->row + i * n_feature;
        if (data->stream[i] >= KL_N_STREAM_MAX)
            return csim_refuse(error, "row %" PRIu64 ": stream %u, streams below %d are known", i,
                               data->stream[i], KL_N_STREAM_MAX);
        for (uint32_t k = 0; k < n_feature; k++) {
            if (!isfinite(raw[k]))
                return csim_refuse(error, "row %" PRIu64 ", feature %u: not finite", i, k);
        }
        step(job, raw, data->stream[i], (uint32_t)i);
        if (progress && i % PROGRESS_STEP == 0)
            progress(i, data->n_row);
    }
    return data->n_row ? 0 : csim_refuse(error, "not one row of features");
}

int csim_features_run(const struct csim_subject *subject, const struct tb_model *oracle,
                      const char *features_path, void (*progress)(uint64_t done, uint64_t total),
                      struct csim_result *result, char error[CSIM_ERROR_CHARS])
{
    const struct model *model = &subject->package;
    struct data data = {0};
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return csim_refuse(error, "out of memory");
    job->model = model;
    job->oracle = oracle;
    job->report = &result->whole;
    tb_oracle_init();
    int status = read_data(model, features_path, &data, error);
    if (subject->n_vector && data.n_row > subject->n_vector)
        data.n_row = subject->n_vector;
    if (!status) {
        job->state = calloc(KL_N_STREAM_MAX, sizeof *job->state);
        status = job->state
                     ? csim_kernel_open(&job->kernel, subject->build, subject->n_unit, model->image, error)
                     : csim_refuse(error, "out of memory");
    }
    if (!status)
        status = run(job, &data, progress, error);
    result->n_step = data.n_row;
    csim_kernel_close(&job->kernel);
    free(job->state);
    free(job);
    free(data.row);
    free(data.stream);
    return status;
}
