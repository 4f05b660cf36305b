/* Weight loader: takes a model image in word by word, beside the running model. Everything is checked before
 * the slot counts as loaded: the header first, rows and padding as they pass, the hash at the end.
 *
 * No word outside the image is asked for: the header's eight once size_bytes has room for them, the rest
 * after size_bytes was found equal to the sum of the sections, each of whole words. */
#include <string.h>

#include "grid.h"
#include "kl_core.h"
#include "kl_pragma.h"

enum {
    W_ABS_MAX = 32767,
    HASH_WORD = KL_IMAGE_HASH_AT / 8,
};
static_assert(sizeof(struct kl_image_header) == 8 * LOADER_BEAT_WORDS, "the header is the first beat");

/* Bytes first .. first + n - 1 of a word, as an unsigned number. */
static uint64_t bytes_of(uint64_t word, uint32_t first, uint32_t n)
{
    const uint64_t shifted = word >> (8 * first);
    return n == 8 ? shifted : shifted & (((uint64_t)1 << (8 * n)) - 1);
}

static uint32_t n_operand(const struct kl_image_header *header, uint32_t layer)
{
    return layer == 0 ? header->n_in : header->n_hidden[layer - 1];
}

/* ---- header ---- */

static int shape_fits_abi(const struct kl_image_header *header)
{
    int good = header->n_layer >= 1 && header->n_layer <= KL_N_LAYER_MAX && header->n_in >= 1 &&
               header->n_in <= KL_N_IN_MAX && header->n_class >= 1 && header->n_class <= KL_N_CLASS_MAX;
hidden:
    for (uint32_t l = 0; l < 4; l++) {
        KL_PRAGMA(HLS UNROLL)
        good &= l < header->n_layer ? header->n_hidden[l] >= 1 && header->n_hidden[l] <= KL_N_HIDDEN_MAX
                                    : header->n_hidden[l] == 0;
    }
    return good;
}

struct seq_shape loader_shape(const struct kl_image_header *header, uint32_t part, uint32_t n_part)
{
    struct seq_shape shape;
    shape.n_layer = header->n_layer;
    shape.n_in = header->n_in;
    shape.n_class = header->n_class;
    shape.part = (uint8_t)part;
    shape.n_part = (uint8_t)n_part;
layer:
    for (uint32_t l = 0; l < KL_BUILD_LAYERS; l++) {
        KL_PRAGMA(HLS UNROLL)
        shape.n_hidden[l] = header->n_hidden[l];
    }
    return shape;
}

uint32_t loader_check_shape(const struct kl_image_header *header, uint32_t n_part)
{
    if (!shape_fits_abi(header))
        return KL_E_IMAGE;
    int fits = header->n_layer <= KL_BUILD_LAYERS && header->n_in <= KL_BUILD_IN;
layer:
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        KL_PRAGMA(HLS UNROLL)
        fits &= header->n_hidden[l] <= KL_BUILD_UNITS * n_part && header->n_hidden[l] <= KL_OPERANDS;
    }
    return fits ? KL_OK : KL_E_SHAPE;
}
static_assert((int)(KL_N_GROUP * (KL_BUILD_IN / KL_MAC_COLS + KL_N_COL) +
                    (KL_BUILD_LAYERS - 1) * KL_N_GROUP * 2 * KL_N_COL) <= (int)KL_BUILD_WORDS,
              "the weights of every shape within the limits fit");

static uint32_t padded(uint32_t size_bytes)
{
    return (size_bytes + 7u) & ~7u;
}

static uint32_t expected_size(const struct kl_image_header *header)
{
    uint32_t size_bytes = sizeof *header;
layer:
    for (uint32_t l = 0; l < header->n_layer; l++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 3)
        const uint32_t n_row = KL_N_GATE * header->n_hidden[l];
        size_bytes += 2 * padded(n_row) + padded(4 * n_row) + padded(2 * n_row * n_operand(header, l)) +
                      padded(2 * n_row * header->n_hidden[l]);
    }
    return size_bytes + 8u * header->n_class +
           padded(2 * header->n_class * n_operand(header, header->n_layer));
}

/* Word `at` of the header; kl_image_header's layout, byte by byte. */
static void header_word(struct kl_loader *loader, uint64_t word)
{
    struct kl_image_header *header = &loader->header;
    int zero = 1;
    switch (loader->at) {
    case 0:
        header->magic = (uint32_t)bytes_of(word, 0, 4);
        header->abi_version = (uint16_t)bytes_of(word, 4, 2);
        header->n_layer = (uint16_t)bytes_of(word, 6, 2);
        break;
    case 1:
        header->n_in = (uint16_t)bytes_of(word, 0, 2);
        header->n_class = (uint16_t)bytes_of(word, 2, 2);
        header->n_hidden[0] = (uint16_t)bytes_of(word, 4, 2);
        header->n_hidden[1] = (uint16_t)bytes_of(word, 6, 2);
        break;
    case 2:
        header->n_hidden[2] = (uint16_t)bytes_of(word, 0, 2);
        header->n_hidden[3] = (uint16_t)bytes_of(word, 2, 2);
        header->head_frac = (uint8_t)bytes_of(word, 4, 1);
        zero = bytes_of(word, 5, 3) == 0;
        break;
    case 3:
        header->size_bytes = (uint32_t)bytes_of(word, 0, 4);
        zero = bytes_of(word, 4, 4) == 0;
        break;
    case HASH_WORD:
        loader->hash_expected = word;
        break;
    default:
        zero = word == 0;
        break;
    }
    if (!zero)
        loader->status = KL_E_IMAGE;
}

static uint32_t header_verdict(const struct kl_core *core)
{
    const struct kl_loader *loader = &core->loader;
    const struct kl_image_header *header = &loader->header;
    if (header->magic != KL_IMAGE_MAGIC)
        return KL_E_IMAGE;
    if (header->abi_version != KL_ABI_VERSION)
        return KL_E_ABI;
    if (loader->status != KL_OK || !shape_fits_abi(header) || header->head_frac > KL_W_FRAC_MAX ||
        header->size_bytes != loader->size_bytes || expected_size(header) != loader->size_bytes)
        return KL_E_IMAGE;
    return loader_check_shape(header, core->n_part);
}

/* ---- elements ---- */

static void refuse_unless(struct kl_loader *loader, int good)
{
    if (!good && loader->status == KL_OK)
        loader->status = KL_E_IMAGE;
}

/* Whether this unit holds a row, and where. */
static int own_row(const struct kl_core *core, uint32_t row, uint32_t *group, uint32_t *lane)
{
    const struct seq_shape *shape = &core->model[core->loader.slot].shape;
    const uint32_t of_all = row / KL_MAC_ROWS;
    *group = seq_own_group(shape, of_all);
    *lane = row % KL_MAC_ROWS;
    return seq_part_holding(shape, of_all) == shape->part;
}

/* shift = w_frac + operand_frac - KL_Z_FRAC, at least 0. */
static void shift_element(struct kl_core *core, uint32_t w_frac, int of_h)
{
    struct kl_loader *loader = &core->loader;
    const uint32_t operand_frac = of_h || loader->layer > 0 ? KL_H_FRAC : KL_X_FRAC;
    const int fits = w_frac <= KL_W_FRAC_MAX && w_frac + operand_frac >= KL_Z_FRAC;
    const uint8_t shift = fits ? (uint8_t)(w_frac + operand_frac - KL_Z_FRAC) : 0;
    uint32_t group, lane;
    refuse_unless(loader, fits);
    (of_h ? loader->h_shift : loader->x_shift)[loader->row] = shift;
    if (own_row(core, loader->row, &group, &lane))
        (of_h ? core->h_shift : core->x_shift)[loader->slot][loader->layer][group][lane] = shift;
}

static void bias_element(struct kl_core *core, int32_t bias)
{
    struct kl_loader *loader = &core->loader;
    uint32_t group, lane;
    loader->row_bound[loader->row] = bias < 0 ? -(int64_t)bias : bias;
    if (own_row(core, loader->row, &group, &lane))
        core->bias[loader->slot][loader->layer][group][lane] = bias;
}

/* One weight; proves the block and row bounds as the row passes. */
static void weight_element(struct kl_core *core, uint16_t bits, int of_h)
{
    struct kl_loader *loader = &core->loader;
    const struct kl_model *model = &core->model[loader->slot];
    const int of_x = !of_h && loader->layer == 0;
    const uint32_t operand_frac = of_x ? KL_X_FRAC : KL_H_FRAC;
    const int32_t operand_abs_max = of_x ? KL_X_ABS_MAX : KL_H_ABS_MAX;
    const uint32_t shift = (of_h ? loader->h_shift : loader->x_shift)[loader->row];
    const uint32_t n_column =
        of_h ? loader->header.n_hidden[loader->layer] : n_operand(&loader->header, loader->layer);
    const uint32_t col = loader->col;
    int32_t w = 0;
    /* A shift whose grid was refused is 0 here and would be below the grid of x. */
    const int on_grid = shift + KL_Z_FRAC >= operand_frac &&
                        grid_steps(bits, shift + KL_Z_FRAC - operand_frac, W_ABS_MAX, &w);
    if (col % KL_BLOCK == 0)
        loader->block_bound = ((int64_t)1 << shift) >> 1; /* the rounding's half */
    loader->block_bound += (int64_t)(w < 0 ? -w : w) * operand_abs_max;
    refuse_unless(loader, on_grid && loader->block_bound <= INT32_MAX);
    if (col % KL_BLOCK == KL_BLOCK - 1 || col == n_column - 1)
        loader->row_bound[loader->row] += loader->block_bound >> shift;
    refuse_unless(loader, loader->row_bound[loader->row] <= INT32_MAX);

    uint32_t group, lane;
    if (own_row(core, loader->row, &group, &lane)) {
        const uint32_t base = of_h ? model->word_h[loader->layer] : model->word_x[loader->layer];
        const uint32_t word = base + group * seq_n_col(n_column) + col / KL_MAC_COLS;
        weights_row(&core->weights, loader->slot, word, lane)[col % KL_MAC_COLS] = (int16_t)w;
    }
}

static void head_bias_element(struct kl_core *core, int64_t bias)
{
    const int64_t bias_max = (int64_t)1 << KL_HEAD_BIAS_BITS;
    refuse_unless(&core->loader, bias <= bias_max && bias >= -bias_max);
    core->head_bias[core->loader.slot][core->loader.row] = bias;
}

static void head_element(struct kl_core *core, uint16_t bits)
{
    struct kl_loader *loader = &core->loader;
    int32_t w = 0;
    refuse_unless(loader, grid_steps(bits, loader->header.head_frac, W_ABS_MAX, &w));
    weights_head_row(&core->weights, loader->slot, loader->col / KL_MAC_COLS,
                     loader->row)[loader->col % KL_MAC_COLS] = (int16_t)w;
}

/* ---- sections ---- */

/* Rows, columns and bytes per element of the section under way. */
static void section_shape(const struct kl_loader *loader, uint32_t *n_row, uint32_t *n_col,
                          uint32_t *size_bytes)
{
    const struct kl_image_header *header = &loader->header;
    const uint32_t layer = loader->layer;
    const int of_layer = loader->section >= LOAD_X_FRAC && loader->section <= LOAD_W_H;
    *n_row = of_layer ? (uint32_t)KL_N_GATE * header->n_hidden[layer] : header->n_class;
    *n_col = loader->section == LOAD_W_X    ? n_operand(header, layer)
             : loader->section == LOAD_W_H  ? header->n_hidden[layer]
             : loader->section == LOAD_HEAD ? n_operand(header, header->n_layer)
                                            : 1;
    *size_bytes = loader->section == LOAD_X_FRAC || loader->section == LOAD_H_FRAC ? 1
                  : loader->section == LOAD_BIAS                                   ? 4
                  : loader->section == LOAD_HEAD_BIAS                              ? 8
                                                                                   : 2;
}

static void element(struct kl_core *core, uint64_t value)
{
    switch (core->loader.section) {
    case LOAD_X_FRAC:
    case LOAD_H_FRAC:
        shift_element(core, (uint32_t)value, core->loader.section == LOAD_H_FRAC);
        break;
    case LOAD_BIAS:
        bias_element(core, (int32_t)(uint32_t)value);
        break;
    case LOAD_W_X:
    case LOAD_W_H:
        weight_element(core, (uint16_t)value, core->loader.section == LOAD_W_H);
        break;
    case LOAD_HEAD_BIAS:
        head_bias_element(core, (int64_t)value);
        break;
    default: /* LOAD_HEAD */
        head_element(core, (uint16_t)value);
        break;
    }
}

static void next_section(struct kl_loader *loader)
{
    loader->row = loader->col = 0;
    if (loader->section == LOAD_W_H && loader->layer + 1 < loader->header.n_layer) {
        loader->layer++;
        loader->section = LOAD_X_FRAC;
    } else {
        loader->section = (enum load_section)(loader->section + 1);
    }
}

/* The elements of one word, and what is left of it: every section ends with a word, zeros behind it. */
static void section_word(struct kl_core *core, uint64_t word)
{
    struct kl_loader *loader = &core->loader;
    uint32_t n_row, n_col, size_bytes;
    section_shape(loader, &n_row, &n_col, &size_bytes);
element:
    for (uint32_t byte = 0; byte < 8; byte += size_bytes) {
        /* II = 2: a row's bound is read, added to and written. */
        KL_PRAGMA(HLS PIPELINE II = 2)
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 8)
        const uint64_t value = bytes_of(word, byte, size_bytes);
        if (loader->row < n_row)
            element(core, value);
        else
            refuse_unless(loader, value == 0);
        loader->col++;
        if (loader->col == n_col) {
            loader->col = 0;
            loader->row++;
        }
    }
    if (loader->row >= n_row)
        next_section(loader);
}

/* ---- the load ---- */

uint32_t loader_begin(struct kl_core *core, uint32_t slot, size_t size_bytes)
{
    struct kl_loader *loader = &core->loader;
    if (slot >= KL_BUILD_SLOTS)
        return KL_E_SLOT;
    if (loader->section != LOAD_IDLE)
        return KL_E_BUSY;
    core->model[slot].loaded = 0;
    loader->section = LOAD_HEADER;
    loader->slot = slot;
    /* No image is as large as 2^32 - 1: the header's check refuses it. */
    loader->size_bytes = size_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)size_bytes;
    loader->at = loader->n_cleared = 0;
    loader->layer = loader->row = loader->col = 0;
    loader->hash = KL_HASH_START;
    loader->status = KL_OK;
    return KL_OK;
}

static void begin_model(struct kl_core *core)
{
    struct kl_loader *loader = &core->loader;
    struct kl_model *model = &core->model[loader->slot];
    model->shape = loader_shape(&loader->header, core->part, core->n_part);
    model->head_frac = loader->header.head_frac;
layer:
    for (uint32_t l = 0; l < KL_BUILD_LAYERS; l++) {
        KL_PRAGMA(HLS UNROLL)
        model->word_x[l] = seq_word_base(&model->shape, l, 0);
        model->word_h[l] = seq_word_base(&model->shape, l, 1);
    }
}

/* What no row of the new model writes has to be zero: a weight word and a stream's state per call. Shifts
 * need not: they shift zeros. */
static void clear_line(struct kl_core *core)
{
    struct kl_loader *loader = &core->loader;
    const uint32_t slot = loader->slot, line = loader->n_cleared++;
    /* Words beyond the model's are never read. */
    const uint32_t n_word = seq_word_base(&core->model[slot].shape, KL_BUILD_LAYERS, 0);
    if (line < n_word) {
    row:
        for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
            KL_PRAGMA(HLS UNROLL)
            memset(weights_row(&core->weights, slot, line, r), 0, KL_MAC_COLS * sizeof(int16_t));
        }
    }
    if (line < KL_BUILD_STREAMS)
        stream_reset(core, slot, line);
    if (line + 1 < n_word || line + 1 < KL_BUILD_STREAMS)
        return;
    memset(core->bias[slot], 0, sizeof core->bias[slot]);
head_word:
    for (uint32_t col = 0; col < KL_N_COL; col++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* a word per cycle: off the critical path */
    logit_row:
        for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
            KL_PRAGMA(HLS UNROLL)
            memset(weights_head_row(&core->weights, slot, col, k), 0, KL_MAC_COLS * sizeof(int16_t));
        }
    }
    memset(core->head_bias[slot], 0, sizeof core->head_bias[slot]);
    next_section(loader);
}

static uint32_t end_load(struct kl_core *core, uint32_t status)
{
    struct kl_loader *loader = &core->loader;
    struct kl_model *model = &core->model[loader->slot];
    loader->section = LOAD_IDLE;
    if (status != KL_OK)
        return status;
    model->image_hash = loader->hash_expected;
    model->cycles_step_prepared = seq_step_cycles(&model->shape, 1);
    model->cycles_prepare = seq_prepare_cycles(&model->shape);
    model->cycles_step = model->cycles_step_prepared + model->cycles_prepare - KL_FRAME;
    model->loaded = 1; /* the switch: the next request finds the new model whole */
    return KL_OK;
}

/* The header's last word has passed. Returns enum kl_status. */
static uint32_t end_header(struct kl_core *core)
{
    const uint32_t status = header_verdict(core);
    if (status == KL_OK) {
        begin_model(core);
        next_section(&core->loader);
    }
    return status;
}

uint32_t loader_n_word(const struct kl_core *core)
{
    const struct kl_loader *loader = &core->loader;
    if (loader->section == LOAD_IDLE || loader->section == LOAD_CLEAR ||
        loader->size_bytes < sizeof loader->header)
        return 0;
    const uint32_t n_left = loader->size_bytes / 8 - loader->at;
    return n_left < LOADER_BEAT_WORDS ? n_left : (uint32_t)LOADER_BEAT_WORDS;
}

uint32_t loader_advance(struct kl_core *core, const uint64_t beat[LOADER_BEAT_WORDS])
{
    struct kl_loader *loader = &core->loader;
    if (loader->section == LOAD_IDLE)
        return KL_E_EMPTY;
    if (loader->section == LOAD_CLEAR) {
        clear_line(core);
        return KL_E_BUSY;
    }
    const int in_header = loader->section == LOAD_HEADER;
    const uint32_t n_word = loader_n_word(core);
    if (n_word == 0) /* no room for a header */
        return end_load(core, KL_E_IMAGE);
word:
    for (uint32_t i = 0; i < n_word; i++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 8)
        if (loader->at != HASH_WORD)
            loader->hash = kl_image_hash_word(loader->hash, beat[i]);
        if (in_header)
            header_word(loader, beat[i]);
        else
            section_word(core, beat[i]);
        loader->at++;
    }
    if (in_header) {
        const uint32_t status = end_header(core);
        return status == KL_OK ? (uint32_t)KL_E_BUSY : end_load(core, status);
    }
    if (loader->section != LOAD_END)
        return KL_E_BUSY;
    return end_load(core, loader->hash != loader->hash_expected ? (uint32_t)KL_E_IMAGE_HASH : loader->status);
}
