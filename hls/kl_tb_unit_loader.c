/* Unit check of the weight loader: everything of an image lands where the datapath reads it, with zeros
 * around it, and what is damaged or unproven is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kl_tb_unit.h"

/* A model, and where it was loaded. */
struct place {
    struct kl_core *core;
    const struct tb_model *model;
    uint32_t slot, case_no;
    struct tb_report *report;
};

static void check_value(const struct place *place, const char *what, uint32_t layer, uint32_t row,
                        uint32_t col, int64_t value, double right)
{
    if ((double)value != right)
        tb_report_mismatch(
            place->report,
            "loader: case %u, slot %u, part %u of %u: %s of layer %u, row %u, column %u is %lld, "
            "right %.0f",
            place->case_no, place->slot, place->core->part, place->core->n_part, what, layer, row, col,
            (long long)value, right);
}

/* A matrix at the word addresses of the sequencer, its padding included. */
static void check_matrix(const struct place *place, uint32_t layer, int of_h)
{
    struct kl_core *core = place->core;
    const struct tb_layer *l = &place->model->layer[layer];
    const struct seq_shape *shape = &core->model[place->slot].shape;
    const uint32_t n_operand = of_h ? l->n_hidden : l->n_operand;
    const uint32_t n_col = seq_n_col(n_operand), base = seq_word_base(shape, layer, of_h);
    for (uint32_t group = 0; group < seq_n_group(shape, layer); group++) {
        for (uint32_t lane = 0; lane < KL_MAC_ROWS; lane++) {
            const uint32_t row = (group * core->n_part + core->part) * KL_MAC_ROWS + lane;
            const int is_row = row < KL_N_GATE * l->n_hidden;
            for (uint32_t k = 0; k < n_col * KL_MAC_COLS; k++) {
                const int16_t w = weights_row(&core->weights, place->slot,
                                              base + group * n_col + k / KL_MAC_COLS, lane)[k % KL_MAC_COLS];
                double right = 0;
                if (is_row && k < n_operand)
                    right =
                        of_h ? ldexp(l->w_h[row][k], l->h_frac[row]) : ldexp(l->w_x[row][k], l->x_frac[row]);
                check_value(place, of_h ? "W_h" : "W_x", layer, row, k, w, right);
            }
        }
    }
}

static void check_rows(const struct place *place, uint32_t layer)
{
    const struct kl_core *core = place->core;
    const struct tb_layer *l = &place->model->layer[layer];
    const int x_frac = layer == 0 ? KL_X_FRAC : KL_H_FRAC;
    for (uint32_t group = 0; group < KL_N_GROUP; group++) {
        for (uint32_t lane = 0; lane < KL_MAC_ROWS; lane++) {
            const uint32_t row = (group * core->n_part + core->part) * KL_MAC_ROWS + lane;
            const int is_row = row < KL_N_GATE * l->n_hidden;
            check_value(place, "bias", layer, row, 0, core->bias[place->slot][layer][group][lane],
                        is_row ? l->bias[row] : 0);
            if (!is_row)
                continue; /* shifts zeros */
            check_value(place, "shift of x", layer, row, 0, core->x_shift[place->slot][layer][group][lane],
                        l->x_frac[row] + x_frac - KL_Z_FRAC);
            check_value(place, "shift of h", layer, row, 0, core->h_shift[place->slot][layer][group][lane],
                        l->h_frac[row] + KL_H_FRAC - KL_Z_FRAC);
        }
    }
}

static void check_head(const struct place *place)
{
    struct kl_core *core = place->core;
    const struct tb_model *model = place->model;
    const uint32_t n_hidden = model->layer[model->n_layer - 1].n_hidden;
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
        const int is_class = k < model->n_class;
        check_value(place, "head bias", model->n_layer, k, 0, core->head_bias[place->slot][k],
                    is_class ? model->head_bias[k] : 0);
        for (uint32_t u = 0; u < KL_OPERANDS; u++)
            check_value(place, "head", model->n_layer, k, u,
                        weights_head_row(&core->weights, place->slot, u / KL_MAC_COLS, k)[u % KL_MAC_COLS],
                        is_class && u < n_hidden ? ldexp(model->head_w[k][u], model->head_frac) : 0);
    }
}

static void check_loaded(const struct place *place, const struct kl_image_header *image)
{
    const struct kl_model *loaded = &place->core->model[place->slot];
    place->report->n_case++;
    if (!loaded->loaded || loaded->image_hash != image->image_hash || loaded->head_frac != image->head_frac ||
        loaded->shape.n_layer != image->n_layer || loaded->shape.n_in != image->n_in ||
        loaded->shape.n_class != image->n_class)
        tb_report_mismatch(place->report, "loader: case %u: the slot's descriptor is wrong", place->case_no);
    for (uint32_t l = 0; l < place->model->n_layer; l++) {
        check_matrix(place, l, 0);
        check_matrix(place, l, 1);
        check_rows(place, l);
    }
    check_head(place);
}

/* A verdict, and what has to follow from it: an emptied slot, and the other one as it was. */
static void expect(const struct place *place, struct kl_core *core, const void *image, size_t size_bytes,
                   uint32_t right, const char *what)
{
    uint32_t n_advance;
    const struct kl_model other = core->model[1 - place->slot];
    const uint32_t status = tb_unit_load(core, place->slot, image, size_bytes, &n_advance);
    place->report->n_case++;
    if (status != right || core->model[place->slot].loaded ||
        memcmp(&other, &core->model[1 - place->slot], sizeof other) != 0 ||
        loader_advance(core, NULL) != KL_E_EMPTY)
        tb_report_mismatch(place->report,
                           "loader: case %u: an image with %s: status %u after %u calls, right %u",
                           place->case_no, what, status, n_advance, right);
}

static void seal(uint8_t *image, size_t size_bytes)
{
    const uint64_t hash = kl_image_hash(image, size_bytes);
    for (int i = 0; i < 8; i++)
        image[KL_IMAGE_HASH_AT + i] = (uint8_t)(hash >> (8 * i));
}

/* Damage on the way, which the hash has to show, and images that are whole but malformed. */
static void check_damaged(const struct place *place, struct kl_core *core, uint8_t *image, size_t size_bytes,
                          uint64_t *seed)
{
    const size_t body = sizeof(struct kl_image_header);
    const size_t at = body + tb_random_below(seed, (uint32_t)(size_bytes - body));
    const uint8_t bit = (uint8_t)(1u << tb_random_below(seed, 8));
    image[at] ^= bit;
    expect(place, core, image, size_bytes, KL_E_IMAGE_HASH, "a bit turned");
    image[at] ^= bit;
    image[KL_IMAGE_HASH_AT + at % 8] ^= bit;
    expect(place, core, image, size_bytes, KL_E_IMAGE_HASH, "another hash");
    image[KL_IMAGE_HASH_AT + at % 8] ^= bit;
    image[0] ^= bit;
    expect(place, core, image, size_bytes, KL_E_IMAGE, "another magic");
    image[0] ^= bit;
    image[4] ^= bit;
    expect(place, core, image, size_bytes, KL_E_ABI, "another ABI version");
    image[4] ^= bit;
    expect(place, core, image, size_bytes - 8, KL_E_IMAGE, "its last word cut off");
    expect(place, core, image, body - 1, KL_E_IMAGE, "half a header");
    image[body - 1] ^= bit;
    seal(image, size_bytes);
    expect(place, core, image, size_bytes, KL_E_IMAGE, "padding of the header that is not zero");
    image[body - 1] ^= bit;
    /* Behind the first layer's shifts of x, and behind the head. */
    const uint32_t n_row = KL_N_GATE * place->model->layer[0].n_hidden;
    const uint32_t n_head = place->model->n_class * place->model->layer[place->model->n_layer - 1].n_hidden;
    const size_t padding[2] = {n_row % 8 ? body + n_row : 0, n_head % 4 ? size_bytes - 1 : 0};
    for (int i = 0; i < 2; i++) {
        if (padding[i] == 0)
            continue;
        image[padding[i]] ^= bit;
        seal(image, size_bytes);
        expect(place, core, image, size_bytes, KL_E_IMAGE, "padding that is not zero");
        image[padding[i]] ^= bit;
    }
    seal(image, size_bytes);
}

/* Rows that the packer could not have proven, and numbers off their grids: the model is made so, and its hash
 * is right. */
static void check_unproven(const struct place *place, struct kl_core *core, struct tb_model *model,
                           uint64_t *seed)
{
    const uint32_t l = tb_random_below(seed, model->n_layer);
    struct tb_layer *layer = &model->layer[l];
    const uint32_t r = tb_random_below(seed, KL_N_GATE * layer->n_hidden);
    struct kl_image_header *image;
    const double bias = layer->bias[r], w = layer->w_h[r][0], head_bias = model->head_bias[0];
    /* A BOUND model's rows are at 2^31 - 1 exactly. */
    layer->bias[r] += bias < 0 ? -1 : 1;
    image = model->kind == TB_BOUND && fabs(bias) < INT32_MAX ? tb_model_image(model) : NULL;
    if (image)
        expect(place, core, image, image->size_bytes, KL_E_IMAGE, "a row one step above its bound");
    free(image);
    layer->bias[r] = bias;
    if (layer->h_frac[r] < KL_W_FRAC_MAX) {
        layer->w_h[r][0] = 0x1p-24; /* finer than the row's grid */
        image = tb_model_image(model);
        if (image)
            expect(place, core, image, image->size_bytes, KL_E_IMAGE, "a weight off its grid");
        free(image);
        layer->w_h[r][0] = w;
    }
    model->head_bias[0] = 0x1p52 + 1;
    image = tb_model_image(model);
    if (image)
        expect(place, core, image, image->size_bytes, KL_E_IMAGE, "a head bias above its bound");
    free(image);
    model->head_bias[0] = head_bias;

    /* From here on the row is spoilt: the model is drawn anew afterwards. */
    memset(layer->w_x[r], 0, sizeof layer->w_x[r]);
    memset(layer->w_h[r], 0, sizeof layer->w_h[r]);
    layer->bias[r] = 0;
    static const struct {
        int h_frac;
        const char *what;
    } range[] = {{KL_W_FRAC_MAX + 1, "a row's grid that is too fine"},
                 {KL_Z_FRAC - KL_H_FRAC - 1, "a row's grid that is too coarse"}};
    for (int i = 0; i < 2; i++) {
        layer->h_frac[r] = range[i].h_frac;
        image = tb_model_image(model);
        if (image)
            expect(place, core, image, image->size_bytes, KL_E_IMAGE, range[i].what);
        free(image);
    }
    /* A block of more than 2^31 in a row that comes to next to nothing once it is shifted. */
    layer->h_frac[r] = KL_W_FRAC_MAX;
    for (uint32_t k = 0; k < 3 && k < layer->n_hidden; k++)
        layer->w_h[r][k] = ldexp(32752, -KL_W_FRAC_MAX);
    image = layer->n_hidden >= 3 ? tb_model_image(model) : NULL;
    if (image)
        expect(place, core, image, image->size_bytes, KL_E_IMAGE, "a block above its bound");
    free(image);
}

void tb_unit_loader(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    const uint32_t n_image = 10 + n_case / 200;
    for (uint32_t n = 0; n < n_image; n++) {
        const uint32_t n_part = 1 + n % 2, part = n / 2 % n_part;
        struct tb_model *model;
        uint32_t n_advance, status;
        /* The second image of two goes over the first one's weights. */
        struct kl_core *core = tb_unit_core(0, part, n_part);
        for (uint32_t load = 0; load < 3; load++) {
            const uint32_t slot = load % 2;
            struct kl_image_header *image =
                tb_unit_draw(n_part, (enum tb_kind)(n % TB_N_KIND), &seed, &model, report);
            if (!image)
                return;
            const size_t size_bytes = image->size_bytes;
            const struct place place = {core, model, slot, n, report};
            status = tb_unit_load(core, slot, image, size_bytes, &n_advance);
            if (status == KL_OK)
                check_loaded(&place, image);
            else
                tb_report_mismatch(report, "loader: case %u: status %u after %u calls, right %u", n, status,
                                   n_advance, KL_OK);
            if (load == 2) {
                check_damaged(&place, core, (uint8_t *)image, size_bytes, &seed);
                check_unproven(&place, core, model, &seed);
            }
            free(image);
        }
    }
}
