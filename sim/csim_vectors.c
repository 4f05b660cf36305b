/* Writes golden vectors: from the oracle, never from the kernel. Only the cycles, which no oracle knows, are
 * the builds' own schedule. */
#include "csim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../host/accel.h"

static const char format_text[] =
    "# Inputs of the Killline kernel and what it has to answer, from an oracle in binary64 arithmetic.\n"
    "# Numbers are decimal, but for hash and x, which are hex. Lines, in this order:\n"
    "#   killline-vectors 1                      version of this format\n"
    "#   shape IN LAYERS HIDDEN... OUT\n"
    "#   model HASH                              image_hash of model.hex\n"
    "#   cycles BUILD UNITS STEP UNPREPARED PREPARE RESET\n"
    "#                                           modelled; UNITS 2: a pair that splits every layer's rows;\n"
    "#                                           STEP: after a prepare, UNPREPARED: without one\n"
    "#   op NAME STREAM                          step, prepare or reset; after a step:\n"
    "#     x V...                                IN binary16 values, as bits\n"
    "#     class K\n"
    "#     logits V...                           OUT integers\n"
    "#     h V...                                of the stream after the step, a line per layer, 2^-15 "
    "steps\n"
    "#     c V...                                the same, 2^-18 steps\n"
    "#   end N                                   N operations stood above\n"
    "# model.hex: the model image (hls/kl_abi.h) as 64-bit little-endian words, one a line, most "
    "significant\n"
    "# digit first. All streams start at rest.\n";

enum { N_STREAM = 3 };
static const uint32_t streams[N_STREAM] = {0, 7, KL_N_STREAM_MAX - 1};

static FILE *create(const char *dir, const char *name, char *error)
{
    char *path;
    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        csim_refuse(error, "out of memory");
        return NULL;
    }
    FILE *file = fopen(path, "w");
    if (!file)
        csim_refuse(error, "%s: %s", path, strerror(errno));
    free(path);
    return file;
}

static int finish(FILE *file, const char *dir, const char *name, char *error)
{
    const int failed = ferror(file);
    return fclose(file) || failed ? csim_refuse(error, "%s/%s: cannot write; is the disk full?", dir, name)
                                  : 0;
}

static int write_image(const char *dir, const struct kl_image_header *image, char *error)
{
    static const char name[] = "model.hex";
    FILE *file = create(dir, name, error);
    if (!file)
        return -1;
    const uint8_t *byte = (const uint8_t *)image;
    for (uint32_t at = 0; at < image->size_bytes; at += 8) {
        for (int b = 7; b >= 0; b--)
            fprintf(file, "%02x", byte[at + (uint32_t)b]);
        putc('\n', file);
    }
    return finish(file, dir, name, error);
}

static void write_cycles(FILE *file, const struct kl_image_header *image)
{
    static const char *const name[] = {"small", "fast", "large"};
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        const struct kl_build *build = accel_build_named(name[i]);
        for (uint32_t n_unit = 1; n_unit <= 2; n_unit++) {
            if (build->check_shape(image, n_unit) == KL_OK)
                fprintf(file, "cycles %s %u %u %u %u %u\n", build->name, n_unit,
                        build->step_cycles(image, n_unit, 1), build->step_cycles(image, n_unit, 0),
                        build->prepare_cycles(image, n_unit), build->reset_cycles());
        }
    }
}

static void write_step(FILE *file, const struct tb_model *model, struct tb_state *state, const double *x,
                       uint32_t stream)
{
    struct tb_answer answer;
    tb_oracle_step(model, state, x, &answer);
    fprintf(file, "op step %u\nx", stream);
    for (uint32_t k = 0; k < model->n_in; k++)
        fprintf(file, " %04x", tb_half(x[k]));
    fprintf(file, "\nclass %u\nlogits", answer.cls);
    for (uint32_t k = 0; k < model->n_class; k++)
        fprintf(file, " %.0f", answer.logit[k] + 0.0); /* never -0 */
    for (uint32_t l = 0; l < model->n_layer; l++) {
        fputs("\nh", file);
        for (uint32_t u = 0; u < model->layer[l].n_hidden; u++)
            fprintf(file, " %.0f", state->h[l][u] * 0x1p15 + 0.0);
    }
    for (uint32_t l = 0; l < model->n_layer; l++) {
        fputs("\nc", file);
        for (uint32_t u = 0; u < model->layer[l].n_hidden; u++)
            fprintf(file, " %.0f", state->c[l][u] + 0.0);
    }
    putc('\n', file);
}

/* Returns how many. */
static uint32_t write_operations(FILE *file, const struct tb_model *model, uint32_t n_step, uint64_t seed,
                                 struct tb_state *state)
{
    double x[KL_N_IN_MAX];
    uint32_t n_operation = 0;
    for (uint32_t done = 0; done < n_step; n_operation++) {
        const uint32_t what = tb_random_below(&seed, 16);
        /* c moves by at most 1 per step: a model that saturates has to stay on a stream to get to its bound.
         */
        const int stay = model->kind == TB_SATURATE && (what == 0 || tb_random_below(&seed, 8));
        const uint32_t s = stay ? 0 : tb_random_below(&seed, N_STREAM);
        if (what == 0 && !stay) {
            memset(&state[s], 0, sizeof state[s]);
            fprintf(file, "op reset %u\n", streams[s]);
        } else if (what < 4) {
            fprintf(file, "op prepare %u\n", streams[s]);
        } else {
            tb_random_x(model, x, &seed);
            write_step(file, model, &state[s], x, streams[s]);
            done++;
        }
    }
    return n_operation;
}

int csim_vectors_write(const char *dir, const struct tb_model *model, const struct kl_image_header *image,
                       uint32_t n_step, uint64_t seed, char error[CSIM_ERROR_CHARS])
{
    static const char name[] = "vectors.txt";
    if (mkdir(dir, 0777) && errno != EEXIST)
        return csim_refuse(error, "%s: %s", dir, strerror(errno));
    if (write_image(dir, image, error))
        return -1;
    struct tb_state *state = calloc(N_STREAM, sizeof *state);
    FILE *file = state ? create(dir, name, error) : NULL;
    if (!file) {
        if (!state)
            csim_refuse(error, "out of memory");
        free(state);
        return -1;
    }
    fprintf(file, "%skillline-vectors 1\nshape %u %u", format_text, model->n_in, model->n_layer);
    for (uint32_t l = 0; l < model->n_layer; l++)
        fprintf(file, " %u", model->layer[l].n_hidden);
    fprintf(file, " %u\nmodel %016" PRIx64 "\n", model->n_class, image->image_hash);
    write_cycles(file, image);
    fprintf(file, "end %u\n", write_operations(file, model, n_step, seed, state));
    free(state);
    return finish(file, dir, name, error);
}
