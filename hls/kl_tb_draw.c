#include <string.h>

#include "kl_tb_run.h"

/* A size in 1 .. max: one of those where rows, blocks and groups begin or end, or any. */
static uint32_t draw_size(uint32_t max, uint64_t *seed)
{
    static const uint16_t edge[] = {1,  2,  3,  7,  8,  9,  15,  16,  17,  31,
                                    32, 33, 63, 64, 65, 96, 127, 128, 129, 256};
    const uint32_t size = edge[tb_random_below(seed, sizeof edge / sizeof *edge)];
    return tb_random_below(seed, 3) == 0 || size > max ? 1 + tb_random_below(seed, max) : size;
}

static int takes(const struct kl_build *build, uint32_t n_part, const struct tb_model *model)
{
    const struct kl_image_header header = tb_model_header(model);
    return build->check_shape(&header, n_part) == KL_OK;
}

/* The most layers, then inputs, then hidden units that the build takes. */
static void largest_shape(const struct kl_build *build, uint32_t n_part, struct tb_model *model)
{
    model->n_class = KL_N_CLASS_MAX;
    model->n_in = 1;
    for (model->n_layer = KL_N_LAYER_MAX; model->n_layer > 1; model->n_layer--) {
        for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++)
            model->layer[l].n_hidden = l < model->n_layer;
        if (takes(build, n_part, model))
            break;
    }
    model->n_in = KL_N_IN_MAX;
    while (model->n_in > 1 && !takes(build, n_part, model))
        model->n_in--;
    for (uint32_t n_hidden = KL_N_HIDDEN_MAX; n_hidden > 0; n_hidden--) {
        for (uint32_t l = 0; l < model->n_layer; l++)
            model->layer[l].n_hidden = n_hidden;
        if (takes(build, n_part, model))
            break;
    }
}

void tb_run_draw_model(const struct kl_build *build, uint32_t n_part, uint32_t number, uint64_t *seed,
                       struct tb_model *model)
{
    memset(model, 0, sizeof *model);
    model->kind = (enum tb_kind)(number % TB_N_KIND);
    if (number == 0) {
        largest_shape(build, n_part, model);
        tb_model_fill(model, seed);
        return;
    }
    do {
        model->n_in = draw_size(KL_N_IN_MAX, seed);
        model->n_layer = 1 + tb_random_below(seed, KL_N_LAYER_MAX);
        model->n_class = 1 + tb_random_below(seed, KL_N_CLASS_MAX);
        for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++)
            model->layer[l].n_hidden = l < model->n_layer ? draw_size(KL_N_HIDDEN_MAX, seed) : 0;
    } while (!takes(build, n_part, model));
    tb_model_fill(model, seed);
}
