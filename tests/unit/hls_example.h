/* A model small enough to follow by hand, for the tests of datapath, core and oracle: 2 inputs, one layer of
 * 2 units, 2 classes, and what its first two steps give. Q0.15 gates; T from the table in activation.c.
 *
 * Step 1, x = (1, -2):
 *   unit 0: z_i = 0.5 * 1 + 0.25 * -2 = 0, so i = 16384; z_f = 0, f = 16384; z_g = 8, g = 32767; z_o = 8
 * (half scale), o = 32767. c = (16384 * 0 + 16384 * 32767 * 8 + 2^14) >> 15 = 131068. T(131068 * 2^-18):
 * knots 14737, 15143 of segment 543, t = 32736: 15143. h = 32767 * 15143 = 496190681, binade 2^28: 1893 steps
 * of 2^18: 15144. unit 1: all z 0, g = 0: c = h = 0. logits: 1024 * 15144 = 15507456; 5 + 1024 * 0 = 5. Step
 * 2, x = 0: unit 0: z_i = z_f = z_g = 0, g = 0: c = (16384 * 131068 + 2^14) >> 15 = 65534; T(65534 * 2^-18):
 * knots 7543, 8026 of segment 527, t = 32752: 8026. h = 32767 * 8026 = 262987942, binade 2^27: 2006 steps of
 * 2^17: 8024. unit 1: z_g = (512 * 15144 + 16) >> 5 = 242304; T: knots 7056, 7543 of segment 526, t = 25856:
 * 7440. c = (16384 * 7440 * 8 + 2^14) >> 15 = 29760; T(29760 * 2^-18): knots 3570, 4075 of segment 519, t =
 * 8704: 3704. h = 16384 * 3704 = 60686336, below 2^26: 1852 steps of 2^15: 1852. logits: 1024 * 8024 =
 * 8216576; 5 + 1024 * 1852 = 1896453. */
#ifndef HLS_EXAMPLE_H
#define HLS_EXAMPLE_H

#include <stdlib.h>
#include <string.h>

#include "hls/kl_tb.h"
#include "hls/kl_tb_unit.h"

enum { EXAMPLE_I, EXAMPLE_F, EXAMPLE_G, EXAMPLE_O };

static const uint16_t example_x[2] = {0x3c00, 0xc000}; /* 1, -2 */
static const int32_t example_c[2][2] = {{131068, 0}, {65534, 29760}};
static const int16_t example_h[2][2] = {{15144, 0}, {8024, 1852}};
static const int64_t example_logit[2][2] = {{15507456, 5}, {8216576, 1896453}};

static void example_model(struct tb_model *model)
{
    memset(model, 0, sizeof *model);
    model->n_in = model->n_class = 2;
    model->n_layer = 1;
    struct tb_layer *layer = &model->layer[0];
    layer->n_operand = layer->n_hidden = 2;
    for (int row = 0; row < 2 * KL_N_GATE; row++)
        layer->x_frac[row] = layer->h_frac[row] = 10; /* W_h: shift 5 */
    layer->w_x[EXAMPLE_I][0] = 0.5;
    layer->w_x[EXAMPLE_I][1] = 0.25;
    layer->w_x[EXAMPLE_G][0] = 8;
    layer->bias[EXAMPLE_O] = 8 << KL_Z_FRAC;
    layer->w_h[KL_N_GATE + EXAMPLE_G][0] = 0.5;
    model->head_frac = 10;
    model->head_w[0][0] = model->head_w[1][1] = 1;
    model->head_bias[1] = 5;
}

/* Loads the example into a slot. Returns its image hash, 0: refused. */
static inline uint64_t example_load(struct kl_core *core, uint32_t slot)
{
    static struct tb_model model;
    example_model(&model);
    struct kl_image_header *image = tb_model_image(&model);
    uint32_t n_advance;
    const uint64_t hash = image && tb_unit_load(core, slot, image, image->size_bytes, &n_advance) == KL_OK
                              ? image->image_hash
                              : 0;
    free(image);
    return hash;
}

#endif
