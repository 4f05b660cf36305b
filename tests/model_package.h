/* Test helper: a valid model package with random weights and neutral normalisation, for runs that need any
 * model. */
#ifndef MODEL_PACKAGE_H
#define MODEL_PACKAGE_H

#include <stdlib.h>
#include <string.h>

#include "host/features.h"
#include "host/model.h"
#include "model_image.h"

/* Writes it to path; hidden: units of its one layer. 0, or -1 with the reason in error. */
static inline int model_package_write(const char *path, uint16_t hidden, uint64_t seed,
                                      char error[MODEL_ERROR_CHARS])
{
    const struct model_image_shape shape = {
        .n_in = FEATURES_N, .n_layer = 1, .n_class = 3, .n_hidden = {hidden}};
    struct model model = {.feature_schema = FEATURES_SCHEMA,
                          .horizon_events = 10,
                          .warmup_ticks = 5,
                          .n_feature = FEATURES_N,
                          .class_name = {"down", "flat", "up"},
                          .manifest = "{}",
                          .image = model_image_new(&shape, seed)};
    for (uint32_t i = 0; i < FEATURES_N; i++)
        model.feature[i] = (struct model_feature){.mean = 0, .scale = 1};
    int e = model_write(path, &model, error);
    free((void *)(uintptr_t)model.image);
    return e;
}

#endif
