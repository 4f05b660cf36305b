#include "csim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../host/accel.h"

const struct kl_build *const csim_build[CSIM_N_BUILD] = {&kl_build_small, &kl_build_fast, &kl_build_large};

const struct kl_tb_units *csim_units_of(const struct kl_build *build)
{
    return build == &kl_build_small  ? &kl_tb_units_small
           : build == &kl_build_fast ? &kl_tb_units_fast
                                     : &kl_tb_units_large;
}

int csim_refuse(char error[CSIM_ERROR_CHARS], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, CSIM_ERROR_CHARS, format, args);
    va_end(args);
    return -1;
}

/* ---- shapes ---- */

/* A number from 1 to max, and what stands behind it. */
static int take_number(const char **text, uint32_t max, uint16_t *value)
{
    uint32_t number = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9' && number <= max; at++)
        number = 10 * number + (uint32_t)(*at - '0');
    if (at == *text || number < 1 || number > max)
        return -1;
    *text = at;
    *value = (uint16_t)number;
    return 0;
}

static int take(const char **text, char wanted)
{
    return *(*text)++ == wanted ? 0 : -1;
}

int csim_shape_parse(const char *text, struct kl_image_header *header)
{
    enum { SIZE_MAX_OF_HEADER = 9999, LAYER_MAX_OF_HEADER = 4 };
    memset(header, 0, sizeof *header);
    if (take_number(&text, SIZE_MAX_OF_HEADER, &header->n_in) || take(&text, ',') ||
        take_number(&text, SIZE_MAX_OF_HEADER, &header->n_hidden[0]))
        return -1;
    header->n_layer = 1;
    if (*text == 'x') {
        text++;
        if (take_number(&text, LAYER_MAX_OF_HEADER, &header->n_layer))
            return -1;
        for (uint32_t l = 1; l < header->n_layer; l++)
            header->n_hidden[l] = header->n_hidden[0];
    }
    while (*text == '-') {
        text++;
        if (header->n_layer == LAYER_MAX_OF_HEADER ||
            take_number(&text, SIZE_MAX_OF_HEADER, &header->n_hidden[header->n_layer]))
            return -1;
        header->n_layer++;
    }
    return take(&text, ',') || take_number(&text, SIZE_MAX_OF_HEADER, &header->n_class) || *text != '\0' ? -1
                                                                                                         : 0;
}

void csim_shape_text(const struct kl_image_header *header, char text[CSIM_SHAPE_CHARS])
{
    int same = 1;
    for (uint32_t l = 1; l < header->n_layer; l++)
        same &= header->n_hidden[l] == header->n_hidden[0];
    int at = snprintf(text, CSIM_SHAPE_CHARS, "%u,%u", header->n_in, header->n_hidden[0]);
    if (same)
        at += snprintf(text + at, CSIM_SHAPE_CHARS - (size_t)at, "x%u", header->n_layer);
    for (uint32_t l = 1; l < header->n_layer && !same; l++)
        at += snprintf(text + at, CSIM_SHAPE_CHARS - (size_t)at, "-%u", header->n_hidden[l]);
    snprintf(text + at, CSIM_SHAPE_CHARS - (size_t)at, ",%u", header->n_class);
}

const char *csim_shape_of_class(const struct kl_build *build)
{
    return build == &kl_build_small ? "32,64x1,3" : build == &kl_build_fast ? "128,128x2,3" : "256,256x3,3";
}

void csim_shape_to_model(const struct kl_image_header *header, struct tb_model *model)
{
    model->n_in = header->n_in;
    model->n_layer = header->n_layer;
    model->n_class = header->n_class;
    for (uint32_t l = 0; l < header->n_layer; l++)
        model->layer[l].n_hidden = header->n_hidden[l];
}

/* ---- limits ---- */

/* The limit that a shape breaks. */
static void limit_text(const struct kl_build *build, uint32_t n_unit, const struct kl_image_header *header,
                       char *text, size_t size)
{
    struct kl_info info;
    if (accel_build_limits(build, &info)) {
        snprintf(text, size, "out of memory");
        return;
    }
    uint32_t hidden = 0;
    for (uint32_t l = 0; l < header->n_layer; l++)
        hidden = header->n_hidden[l] > hidden ? header->n_hidden[l] : hidden;
    const uint32_t both = n_unit * info.n_hidden_max;
    const uint32_t hidden_max = both < KL_N_HIDDEN_MAX ? both : KL_N_HIDDEN_MAX;
    if (header->n_layer > info.n_layer_max)
        snprintf(text, size, "%u layers, at most %u", header->n_layer, info.n_layer_max);
    else if (hidden > hidden_max)
        snprintf(text, size, "%u hidden units, at most %u", hidden, hidden_max);
    else if (header->n_in > info.n_in_max)
        snprintf(text, size, "%u inputs, at most %u", header->n_in, info.n_in_max);
    else if (header->n_class > info.n_class_max)
        snprintf(text, size, "%u classes, at most %u", header->n_class, info.n_class_max);
    else
        snprintf(text, size, "more weights than its memory holds");
}

int csim_check_shape(const struct kl_build *build, uint32_t n_unit, const struct kl_image_header *header,
                     char error[CSIM_ERROR_CHARS])
{
    char shape[CSIM_SHAPE_CHARS], limit[64];
    if (build->check_shape(header, n_unit) == KL_OK)
        return 0;
    csim_shape_text(header, shape);
    limit_text(build, n_unit, header, limit, sizeof limit);
    for (uint32_t n = 1; n <= 2; n++) {
        for (int i = 0; i < CSIM_N_BUILD; i++) {
            if (csim_build[i]->check_shape(header, n) == KL_OK)
                return csim_refuse(error, "%s is beyond build %s with %u unit%s (%s): take --build %s%s",
                                   shape, build->name, n_unit, n_unit == 1 ? "" : "s", limit,
                                   csim_build[i]->name, n == 1 ? "" : " --units 2");
        }
    }
    const struct kl_build *largest = csim_build[CSIM_N_BUILD - 1];
    limit_text(largest, n_unit, header, limit, sizeof limit);
    return csim_refuse(error,
                       "%s is beyond build %s (%s), and no other build takes it: make the model smaller",
                       shape, largest->name, limit);
}

/* ---- the kernel ---- */

int csim_kernel_open(struct csim_kernel *kernel, const struct kl_build *build, uint32_t n_unit,
                     const struct kl_image_header *image, char error[CSIM_ERROR_CHARS])
{
    *kernel = (struct csim_kernel){.build = build, .n_unit = n_unit};
    for (uint32_t u = 0; u < n_unit; u++) {
        kernel->unit[u] = aligned_alloc(64, build->unit_size_bytes());
        if (!kernel->unit[u])
            return csim_refuse(error, "out of memory");
        build->init(kernel->unit[u], u, n_unit);
        uint32_t status = build->load_begin(kernel->unit[u], 0, image, image->size_bytes);
        while (status == KL_OK && (status = build->load_advance(kernel->unit[u])) == KL_E_BUSY)
            status = KL_OK;
        if (status != KL_OK)
            return csim_refuse(error, "build %s refuses the image: status %u", build->name, status);
    }
    return 0;
}

void csim_kernel_close(struct csim_kernel *kernel)
{
    free(kernel->unit[0]);
    free(kernel->unit[1]);
    *kernel = (struct csim_kernel){0};
}

void csim_kernel_exec(struct csim_kernel *kernel, const struct kl_request *request, struct kl_result *result)
{
    if (kernel->n_unit == 1)
        kernel->build->exec(kernel->unit[0], request, result);
    else
        kernel->build->exec_pair(kernel->unit, request, 0, result);
}

uint32_t csim_kernel_save(const struct csim_kernel *kernel, uint32_t stream, struct kl_state *state)
{
    return kernel->n_unit == 1 ? kernel->build->save(kernel->unit[0], 0, stream, state)
                               : kernel->build->save_pair(kernel->unit, 0, stream, state);
}
