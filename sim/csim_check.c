#include "csim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    UNIT_CASES = 300, /* random inputs of a unit's check; what is exhaustive is so anyway */
    SPEED_STREAMS = 16,
    SPEED_BATCH = 64, /* steps between two looks at the clock */
};
#define SPEED_S 0.15 /* measured for so long */

void csim_check_units(const struct kl_build *build, uint64_t seed, uint32_t n_case,
                      struct csim_result *result)
{
    const struct kl_tb_units *units = csim_units_of(build);
    assert(units->n_unit <= CSIM_UNIT_MAX);
    tb_oracle_init();
    result->n_unit_check = units->n_unit;
    for (uint32_t u = 0; u < units->n_unit; u++) {
        result->unit[u] = (struct csim_unit_result){.name = units->name(u)};
        units->check(u, seed + u, n_case, &result->unit[u].report);
    }
}

uint64_t csim_n_case(const struct csim_result *result)
{
    uint64_t n = result->whole.n_case;
    for (uint32_t u = 0; u < result->n_unit_check; u++)
        n += result->unit[u].report.n_case;
    return n;
}

uint64_t csim_n_mismatch(const struct csim_result *result)
{
    uint64_t n = result->whole.n_mismatch;
    for (uint32_t u = 0; u < result->n_unit_check; u++)
        n += result->unit[u].report.n_mismatch;
    return n;
}

static int passed(const struct tb_report *report)
{
    return report->n_case > 0 && report->n_mismatch == 0;
}

int csim_passed(const struct csim_result *result)
{
    int pass = passed(&result->whole);
    for (uint32_t u = 0; u < result->n_unit_check; u++)
        pass &= passed(&result->unit[u].report);
    return pass;
}

const char *csim_first(const struct csim_result *result)
{
    for (uint32_t u = 0; u < result->n_unit_check; u++) {
        if (result->unit[u].report.n_mismatch)
            return result->unit[u].report.first;
    }
    return result->whole.first;
}

/* ---- the whole kernel ---- */

static void take_report(struct tb_run *run, struct csim_result *result)
{
    const struct tb_run_report *report = tb_run_report(run);
    result->whole = report->check;
    result->n_step = report->n_step;
}

/* Models of every kind, loaded into the two slots in turn, each while the one before goes on. */
int csim_check_shape_random(const struct csim_subject *subject, struct csim_result *result,
                            char error[CSIM_ERROR_CHARS])
{
    uint64_t seed = subject->seed;
    struct tb_run *run = tb_run_open(subject->build, subject->n_unit, tb_random_u64(&seed));
    struct tb_model *model[KL_N_SLOT] = {calloc(1, sizeof *model[0]), calloc(1, sizeof *model[0])};
    struct kl_image_header *image[KL_N_SLOT] = {NULL, NULL};
    int status = run && model[0] && model[1] ? 0 : csim_refuse(error, "out of memory");
    for (uint32_t kind = 0; kind < TB_N_KIND && !status; kind++) {
        const uint32_t slot = kind % KL_N_SLOT;
        const uint32_t n_step = subject->n_vector / TB_N_KIND + (kind < subject->n_vector % TB_N_KIND);
        free(image[slot]);
        memset(model[slot], 0, sizeof *model[slot]);
        model[slot]->kind = (enum tb_kind)kind;
        csim_shape_to_model(&subject->shape, model[slot]);
        tb_model_fill(model[slot], &seed);
        image[slot] = tb_model_image(model[slot]);
        if (!image[slot])
            status = csim_refuse(error, "out of memory");
        else if (!tb_run_load(run, slot, model[slot], image[slot]) ||
                 !tb_run_steps(run, slot, TB_RUN_MIX, n_step))
            break; /* told in the report */
    }
    if (run)
        take_report(run, result);
    tb_run_close(run);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        free(image[slot]);
        free(model[slot]);
    }
    return status;
}

/* The package's model in both slots. */
static int check_package(const struct csim_subject *subject, const struct tb_model *model,
                         struct csim_result *result, char *error)
{
    struct tb_run *run = tb_run_open(subject->build, subject->n_unit, subject->seed);
    if (!run)
        return csim_refuse(error, "out of memory");
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        const uint32_t n_step = subject->n_vector / KL_N_SLOT + (slot < subject->n_vector % KL_N_SLOT);
        if (!tb_run_load(run, slot, model, subject->package.image) ||
            !tb_run_steps(run, slot, TB_RUN_MIX, n_step))
            break;
    }
    take_report(run, result);
    tb_run_close(run);
    return 0;
}

/* ---- speed ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int measure(const struct csim_subject *subject, const struct tb_model *model,
                   const struct kl_image_header *image, struct csim_result *result, char *error)
{
    struct csim_kernel kernel;
    struct kl_request request[SPEED_STREAMS];
    struct kl_result answer;
    double x[KL_N_IN_MAX];
    uint64_t seed = subject->seed, n_step = 0;
    memset(request, 0, sizeof request);
    for (uint32_t i = 0; i < SPEED_STREAMS; i++) {
        request[i].abi_version = KL_ABI_VERSION;
        request[i].stream = i;
        tb_random_x(model, x, &seed);
        for (uint32_t k = 0; k < model->n_in; k++)
            request[i].x[k] = tb_half(x[k]);
    }
    int status = csim_kernel_open(&kernel, subject->build, subject->n_unit, image, error);
    const double start_s = now_s();
    double spent_s = 0;
    while (!status && spent_s < SPEED_S) {
        for (uint32_t i = 0; i < SPEED_BATCH; i++, n_step++) {
            struct kl_request *r = &request[n_step % SPEED_STREAMS];
            r->op = KL_OP_PREPARE;
            csim_kernel_exec(&kernel, r, &answer);
            r->op = KL_OP_STEP;
            csim_kernel_exec(&kernel, r, &answer);
        }
        spent_s = now_s() - start_s;
    }
    csim_kernel_close(&kernel);
    if (!status)
        result->steps_per_s = (double)n_step / spent_s;
    return status;
}

static int measure_random(const struct csim_subject *subject, struct tb_model *model,
                          struct csim_result *result, char *error)
{
    uint64_t seed = subject->seed;
    model->kind = TB_TYPICAL;
    csim_shape_to_model(&subject->shape, model);
    tb_model_fill(model, &seed);
    struct kl_image_header *image = tb_model_image(model);
    const int status =
        image ? measure(subject, model, image, result, error) : csim_refuse(error, "out of memory");
    free(image);
    return status;
}

int csim_check(const struct csim_subject *subject, const char *features_path,
               void (*progress)(uint64_t done, uint64_t total), struct csim_result *result,
               char error[CSIM_ERROR_CHARS])
{
    const struct kl_image_header *image = subject->package.image;
    struct tb_model *model = calloc(1, sizeof *model);
    if (!model)
        return csim_refuse(error, "out of memory");
    csim_check_units(subject->build, subject->seed, UNIT_CASES, result);
    int status;
    if (!image) {
        status =
            csim_check_shape_random(subject, result, error) || measure_random(subject, model, result, error)
                ? -1
                : 0;
    } else {
        const char *wrong = tb_model_from_image(model, image, image->size_bytes);
        status = wrong           ? csim_refuse(error, "the package's image: %s", wrong)
                 : features_path ? csim_features_run(subject, model, features_path, progress, result, error)
                                 : check_package(subject, model, result, error);
        if (!status)
            status = measure(subject, model, image, result, error);
    }
    free(model);
    return status;
}
