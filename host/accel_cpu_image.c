/* Model images for the cpu backend: checked as the kernel checks them, then packed into tiles. */
#include <string.h>

#include "../hls/grid.h"
#include "accel_cpu_kernel.h"

enum {
    BEAT_BYTES = 64,
    W_ABS_MAX = 32767,
    FAR_BYTES =
        768 << 10,        /* what stays in an L2 of 1 MiB beside everything else; larger ones do not suffer */
    W_ABS_MAX_8BIT = 127, /* -128 would do, but an int8 grid is symmetric */
};

static uint32_t round_up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- sizes ---- */

static uint32_t tile_vectors(uint32_t n_vec, uint32_t n_operand, uint32_t of_h, int is_8bit)
{
    const uint32_t n_block = (n_operand + KL_BLOCK - 1) / KL_BLOCK;
    const uint32_t n_weights =
        is_8bit ? n_vec * n_block + n_vec * ((n_operand + 3) / 4) : n_vec * ((n_operand + 1) / 2);
    return n_vec * (of_h ? 3 : 2) + n_weights;
}

static void deal_units(struct cpu_layer *layer, uint32_t n_hidden, uint32_t lanes)
{
    const uint32_t rest = n_hidden % (2 * lanes);
    layer->n_hidden = n_hidden;
    layer->n_wide = n_hidden / (2 * lanes) + (rest > lanes);
    layer->n_narrow = rest > 0 && rest <= lanes;
}

static void size_product(struct cpu_product *product, uint32_t n_operand, uint32_t lanes, uint32_t of_h,
                         int is_8bit)
{
    product->n_operand = n_operand;
    product->is_8bit = is_8bit;
    for (uint32_t n_sub = 1; n_sub <= 2; n_sub++)
        product->tile_bytes[n_sub - 1] =
            tile_vectors(KL_N_GATE * n_sub, n_operand, of_h, is_8bit) * 4 * lanes;
}

static uint32_t product_bytes(const struct cpu_layer *layer, const struct cpu_product *product)
{
    return round_up(layer->n_wide * product->tile_bytes[1] + layer->n_narrow * product->tile_bytes[0],
                    CPU_LINE);
}

static uint32_t head_columns(uint32_t n_hidden)
{
    return round_up(n_hidden, CPU_LINE / 2);
}

/* Where everything of a stream lies. */
static void place_state(struct cpu_model *model, uint32_t lanes)
{
    uint32_t at = 0;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        struct cpu_layer *layer = &model->layer[l];
        const uint32_t n_unit = (2 * layer->n_wide + layer->n_narrow) * lanes;
        layer->h_at = at;
        at += round_up(2 * n_unit, CPU_LINE);
        layer->c_at = at;
        at += round_up(4 * n_unit, CPU_LINE);
        layer->z_at = at;
        at += round_up(4 * KL_N_GATE * n_unit, CPU_LINE);
    }
    model->state_bytes = at;
}

static void widest_model(struct cpu_model *model, uint32_t lanes, const struct kl_info *limits)
{
    memset(model, 0, sizeof *model);
    model->n_layer = limits->n_layer_max;
    for (uint32_t l = 0; l < model->n_layer; l++)
        deal_units(&model->layer[l], round_up(limits->n_hidden_max, 2 * lanes), lanes);
}

size_t cpu_arena_bytes_max(uint32_t lanes, const struct kl_info *limits)
{
    struct cpu_model model;
    widest_model(&model, lanes, limits);
    size_t size_bytes = (size_t)limits->n_class_max * head_columns(limits->n_hidden_max) * 2;
    for (uint32_t l = 0; l < model.n_layer; l++) {
        struct cpu_layer *layer = &model.layer[l];
        size_product(&layer->x, l ? limits->n_hidden_max : limits->n_in_max, lanes, 0, 0);
        size_product(&layer->h, limits->n_hidden_max, lanes, 1, 0);
        size_bytes += product_bytes(layer, &layer->x) + product_bytes(layer, &layer->h);
    }
    return size_bytes;
}

uint32_t cpu_state_bytes_max(uint32_t lanes, const struct kl_info *limits)
{
    struct cpu_model model;
    widest_model(&model, lanes, limits);
    place_state(&model, lanes);
    return model.state_bytes;
}

/* ---- header ---- */

static uint64_t word_at(const struct cpu_loader *loader, size_t at)
{
    uint64_t word;
    memcpy(&word, loader->image + at, sizeof word);
    return word;
}

static uint32_t n_operand(const struct kl_image_header *header, uint32_t layer)
{
    return layer == 0 ? header->n_in : header->n_hidden[layer - 1];
}

static int all_zero(const uint8_t *byte, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= byte[i];
    return any == 0;
}

static int header_is_good(const struct kl_image_header *header)
{
    if (header->n_layer < 1 || header->n_layer > KL_N_LAYER_MAX || header->n_in < 1 ||
        header->n_in > KL_N_IN_MAX || header->n_class < 1 || header->n_class > KL_N_CLASS_MAX ||
        header->head_frac > KL_W_FRAC_MAX)
        return 0;
    for (uint32_t l = 0; l < 4; l++) {
        const int used = l < header->n_layer;
        if (used ? header->n_hidden[l] < 1 || header->n_hidden[l] > KL_N_HIDDEN_MAX
                 : header->n_hidden[l] != 0)
            return 0;
    }
    return all_zero(header->pad0, sizeof header->pad0) && header->pad1 == 0 &&
           all_zero(header->pad2, sizeof header->pad2);
}

/* Where every array starts. Returns the size of the image. */
static uint32_t place_sections(struct cpu_loader *loader)
{
    const struct kl_image_header *header = &loader->header;
    uint32_t at = sizeof *header;
    for (uint32_t l = 0; l < header->n_layer; l++) {
        const uint32_t n_row = KL_N_GATE * header->n_hidden[l];
        const uint32_t size_bytes[CPU_HEAD_BIAS] = {n_row, n_row, 4 * n_row, 2 * n_row * n_operand(header, l),
                                                    2 * n_row * header->n_hidden[l]};
        for (int s = 0; s < CPU_HEAD_BIAS; s++) {
            loader->section_at[l][s] = at;
            at += round_up(size_bytes[s], 8);
        }
    }
    loader->head_bias_at = at;
    loader->head_at = at + 8 * header->n_class;
    return loader->head_at + round_up(2 * header->n_class * n_operand(header, header->n_layer), 8);
}

static uint32_t check_header(struct cpu_loader *loader)
{
    struct kl_image_header *header = &loader->header;
    if (loader->size_bytes < sizeof *header)
        return KL_E_IMAGE;
    memcpy(header, loader->image, sizeof *header);
    if (header->magic != KL_IMAGE_MAGIC)
        return KL_E_IMAGE;
    if (header->abi_version != KL_ABI_VERSION)
        return KL_E_ABI;
    if (!header_is_good(header) || header->size_bytes != loader->size_bytes ||
        place_sections(loader) != loader->size_bytes)
        return KL_E_IMAGE;
    return loader->build->check_shape(header, 1);
}

/* ---- check ---- */

static void refuse_unless(struct cpu_loader *loader, int good)
{
    if (!good)
        loader->status = KL_E_IMAGE;
}

static uint32_t operand_frac(uint32_t layer, uint32_t of_h)
{
    return of_h || layer > 0 ? KL_H_FRAC : KL_X_FRAC;
}

/* Rows, columns and bytes per element of the section under way. */
static void section_shape(const struct cpu_loader *loader, uint32_t *n_row, uint32_t *n_column,
                          uint32_t *size_bytes)
{
    const struct kl_image_header *header = &loader->header;
    *n_row = loader->section < CPU_HEAD_BIAS ? (uint32_t)KL_N_GATE * header->n_hidden[loader->layer]
                                             : header->n_class;
    switch (loader->section) {
    case CPU_X_FRAC:
    case CPU_H_FRAC:
        *n_column = 1;
        *size_bytes = 1;
        break;
    case CPU_BIAS:
        *n_column = 1;
        *size_bytes = 4;
        break;
    case CPU_W_X:
        *n_column = n_operand(header, loader->layer);
        *size_bytes = 2;
        break;
    case CPU_W_H:
        *n_column = header->n_hidden[loader->layer];
        *size_bytes = 2;
        break;
    case CPU_HEAD_BIAS:
        *n_column = 1;
        *size_bytes = 8;
        break;
    default: /* CPU_HEAD */
        *n_column = n_operand(header, header->n_layer);
        *size_bytes = 2;
        break;
    }
}

static void check_frac(struct cpu_loader *loader, uint32_t w_frac)
{
    const uint32_t of_h = loader->section == CPU_H_FRAC;
    const uint32_t frac = w_frac + operand_frac(loader->layer, of_h);
    const int fits = w_frac <= KL_W_FRAC_MAX && frac >= KL_Z_FRAC;
    refuse_unless(loader, fits);
    loader->shift[of_h][loader->row] = fits ? (uint8_t)(frac - KL_Z_FRAC) : 0;
}

/* One weight; proves the block and row bounds as the row passes. */
static void check_weight(struct cpu_loader *loader, uint16_t bits, uint32_t n_column)
{
    const uint32_t layer = loader->layer, of_h = loader->section == CPU_W_H;
    const uint32_t shift = loader->shift[of_h][loader->row], frac = operand_frac(layer, of_h);
    const int32_t operand_abs_max = frac == KL_X_FRAC ? KL_X_ABS_MAX : KL_H_ABS_MAX;
    int32_t w = 0;
    /* A shift that was refused is 0 here and may lie below the operand's grid. */
    const int on_grid =
        shift + KL_Z_FRAC >= frac && grid_steps(bits, shift + KL_Z_FRAC - frac, W_ABS_MAX, &w);
    const int32_t magnitude = w < 0 ? -w : w;
    if (magnitude > loader->w_abs_max[layer][of_h])
        loader->w_abs_max[layer][of_h] = magnitude;
    if (loader->column % KL_BLOCK == 0)
        loader->block_bound = ((int64_t)1 << shift) >> 1; /* the rounding's half */
    loader->block_bound += (int64_t)magnitude * operand_abs_max;
    refuse_unless(loader, on_grid && loader->block_bound <= INT32_MAX);
    int64_t *row_bound = &loader->row_bound[loader->row];
    if (loader->column % KL_BLOCK == KL_BLOCK - 1 || loader->column == n_column - 1)
        *row_bound += loader->block_bound >> shift;
    refuse_unless(loader, *row_bound <= INT32_MAX);
}

static void check_element(struct cpu_loader *loader, uint64_t value, uint32_t n_column)
{
    const int64_t bias_max = (int64_t)1 << KL_HEAD_BIAS_BITS;
    int32_t w;
    switch (loader->section) {
    case CPU_X_FRAC:
    case CPU_H_FRAC:
        check_frac(loader, (uint32_t)value);
        break;
    case CPU_BIAS: {
        const int64_t bias = (int32_t)(uint32_t)value;
        loader->row_bound[loader->row] = bias < 0 ? -bias : bias;
        break;
    }
    case CPU_W_X:
    case CPU_W_H:
        check_weight(loader, (uint16_t)value, n_column);
        break;
    case CPU_HEAD_BIAS:
        refuse_unless(loader, (int64_t)value <= bias_max && (int64_t)value >= -bias_max);
        break;
    default: /* CPU_HEAD */
        refuse_unless(loader, grid_steps((uint16_t)value, loader->header.head_frac, W_ABS_MAX, &w));
        break;
    }
}

static void next_section(struct cpu_loader *loader)
{
    loader->row = loader->column = 0;
    if (loader->section == CPU_W_H && loader->layer + 1 < loader->header.n_layer) {
        loader->layer++;
        loader->section = CPU_X_FRAC;
    } else {
        loader->section++;
    }
}

/* The elements of one word, and what is left of it: every section ends with a word, zeros behind it. */
static void check_word(struct cpu_loader *loader, uint64_t word)
{
    uint32_t n_row, n_column, size_bytes;
    section_shape(loader, &n_row, &n_column, &size_bytes);
    const uint64_t mask = ~(uint64_t)0 >> (64 - 8 * size_bytes);
    for (uint32_t bit = 0; bit < 64; bit += 8 * size_bytes) {
        const uint64_t value = word >> bit & mask;
        if (loader->row < n_row)
            check_element(loader, value, n_column);
        else
            refuse_unless(loader, value == 0);
        if (++loader->column == n_column) {
            loader->column = 0;
            loader->row++;
        }
    }
    if (loader->row >= n_row)
        next_section(loader);
}

/* One beat. Returns KL_E_BUSY, or at the end of the image what is to be said of it. */
static uint32_t check_beat(struct cpu_loader *loader)
{
    const uint32_t end = min_u32(loader->at + BEAT_BYTES, loader->header.size_bytes);
    for (; loader->at < end; loader->at += 8) {
        const uint64_t word = word_at(loader, loader->at);
        if (loader->at != KL_IMAGE_HASH_AT)
            loader->hash = kl_image_hash_word(loader->hash, word);
        if (loader->at >= sizeof loader->header)
            check_word(loader, word);
    }
    if (loader->at < loader->header.size_bytes)
        return KL_E_BUSY;
    return loader->hash != loader->header.image_hash ? (uint32_t)KL_E_IMAGE_HASH : loader->status;
}

/* ---- pack ---- */

static int packs_8bit(const struct cpu_loader *loader, uint32_t layer, uint32_t of_h)
{
    const uint32_t n = of_h ? loader->header.n_hidden[layer] : n_operand(&loader->header, layer);
    /* A few operands are no shorter in bytes, with the correction. */
    return loader->variant->has_8bit && loader->w_abs_max[layer][of_h] <= W_ABS_MAX_8BIT &&
           tile_vectors(1, n, of_h, 1) < tile_vectors(1, n, of_h, 0);
}

/* The arena: products of x, the head, products of h. */
static void begin_model(struct cpu_loader *loader)
{
    const struct kl_image_header *header = &loader->header;
    const uint32_t lanes = loader->variant->lanes;
    struct cpu_model *model = loader->model;
    const struct cpu_tanh *table = model->tanh;
    memset(model, 0, sizeof *model);
    model->tanh = table;
    model->n_layer = header->n_layer;
    model->n_in = header->n_in;
    model->n_class = header->n_class;
    for (uint32_t l = 0; l < header->n_layer; l++) {
        struct cpu_layer *layer = &model->layer[l];
        deal_units(layer, header->n_hidden[l], lanes);
        size_product(&layer->x, n_operand(header, l), lanes, 0, packs_8bit(loader, l, 0));
        size_product(&layer->h, header->n_hidden[l], lanes, 1, packs_8bit(loader, l, 1));
    }
    place_state(model, lanes);
    model->head_columns = head_columns(header->n_hidden[header->n_layer - 1]);

    uint8_t *at = loader->arena;
    for (uint32_t l = 0; l < header->n_layer; l++) {
        model->layer[l].x.tiles = at;
        at += product_bytes(&model->layer[l], &model->layer[l].x);
    }
    model->head_w = (const int16_t *)(const void *)at;
    at += (size_t)header->n_class * model->head_columns * 2;
    for (uint32_t l = 0; l < header->n_layer; l++) {
        model->layer[l].h.tiles = at;
        at += product_bytes(&model->layer[l], &model->layer[l].h);
    }
    model->arena_bytes = (uint32_t)(at - loader->arena);
    for (uint32_t l = 0; l < header->n_layer; l++)
        model->layer[l].x.is_far = model->layer[l].h.is_far = model->arena_bytes > FAR_BYTES;
}

/* A weight of the image, in steps of its grid; it was checked. */
static int32_t weight(const struct cpu_loader *loader, uint32_t at, uint32_t frac)
{
    uint16_t bits;
    int32_t w = 0;
    memcpy(&bits, loader->image + at, sizeof bits);
    grid_steps(bits, frac, W_ABS_MAX, &w);
    return w;
}

/* One vector of a tile, from the rows of its gate and sub. correction: of the block, if it has 8-bit weights.
 */
static void pack_vector(const struct cpu_loader *loader, uint8_t *tile, uint32_t n_vec, uint32_t vector)
{
    const uint32_t l = loader->layer, of_h = loader->of_h, lanes = loader->variant->lanes;
    const struct cpu_layer *layer = &loader->model->layer[l];
    const struct cpu_product *product = of_h ? &layer->h : &layer->x;
    const uint32_t *section_at = loader->section_at[l];
    const uint32_t n_sub = n_vec / KL_N_GATE, gate = vector % n_vec / n_sub, sub = vector % n_sub;
    int32_t *out_32 = (int32_t *)(void *)(tile + (size_t)vector * 4 * lanes);

    const uint32_t first_weights = n_vec * (of_h ? 3 : 2);
    const uint32_t kind =
        vector < first_weights ? vector / n_vec + !of_h : 3; /* bias, half, shift, weights */
    const uint32_t step = product->is_8bit ? 4 : 2;          /* operands per vector */
    const uint32_t block_vectors = n_vec * (KL_BLOCK / step + (product->is_8bit ? 1 : 0));
    const uint32_t block = (vector - first_weights) / block_vectors;
    const uint32_t in_block = (vector - first_weights) % block_vectors;
    const int is_correction = product->is_8bit && in_block < n_vec;
    const uint32_t column = block * KL_BLOCK + (in_block / n_vec - (product->is_8bit ? 1 : 0)) * step;
    int32_t *correction =
        (int32_t *)(void *)(tile +
                            (size_t)(first_weights + block * block_vectors + vector % n_vec) * 4 * lanes);

    for (uint32_t lane = 0; lane < lanes; lane++) {
        const uint32_t unit = loader->tile * 2 * lanes + (n_sub == 2 ? 2 * lane + sub : lane);
        const uint32_t row = KL_N_GATE * unit + gate;
        const int used = unit < layer->n_hidden;
        const uint32_t w_frac = used ? loader->image[section_at[of_h ? CPU_H_FRAC : CPU_X_FRAC] + row] : 0;
        const uint32_t shift = used ? w_frac + operand_frac(l, of_h) - KL_Z_FRAC : 0;
        if (kind < 3) {
            int32_t bias = 0;
            if (used)
                memcpy(&bias, loader->image + section_at[CPU_BIAS] + 4 * row, sizeof bias);
            out_32[lane] = kind == 0 ? bias : kind == 1 ? (int32_t)((1u << shift) >> 1) : (int32_t)shift;
            continue;
        }
        if (is_correction) {
            out_32[lane] = 0; /* grows with the block's weights */
            continue;
        }
        for (uint32_t k = 0; k < step; k++) {
            int32_t w = 0;
            if (used && column + k < product->n_operand)
                w = weight(loader,
                           section_at[of_h ? CPU_W_H : CPU_W_X] + 2 * (row * product->n_operand + column + k),
                           w_frac);
            if (product->is_8bit) {
                tile[(size_t)vector * 4 * lanes + 4 * lane + k] = (uint8_t)w;
                correction[lane] -= 128 * w;
            } else {
                const int16_t w_16 = (int16_t)w;
                memcpy(tile + (size_t)vector * 4 * lanes + 4 * lane + 2 * k, &w_16, sizeof w_16);
            }
        }
    }
}

/* The vector under way, and on to the next. Returns 0 behind the last. */
static int pack_next(struct cpu_loader *loader)
{
    const struct cpu_layer *layer = &loader->model->layer[loader->layer];
    const struct cpu_product *product = loader->of_h ? &layer->h : &layer->x;
    const uint32_t n_sub = loader->tile < layer->n_wide ? 2 : 1;
    uint8_t *tile =
        loader->arena + (product->tiles - loader->arena) + (size_t)loader->tile * product->tile_bytes[1];
    pack_vector(loader, tile, KL_N_GATE * n_sub, loader->vector);
    if (++loader->vector * 4 * loader->variant->lanes < product->tile_bytes[n_sub - 1])
        return 1;
    loader->vector = 0;
    if (++loader->tile < layer->n_wide + layer->n_narrow)
        return 1;
    loader->tile = 0;
    loader->of_h = !loader->of_h;
    return loader->of_h || ++loader->layer < loader->model->n_layer;
}

/* A line of the head's weights. Returns 0 behind the last. */
static int pack_head(struct cpu_loader *loader)
{
    struct cpu_model *model = loader->model;
    const uint32_t n_hidden = n_operand(&loader->header, model->n_layer), row = loader->head_row;
    int16_t *line = (int16_t *)(void *)(loader->arena + ((const uint8_t *)model->head_w - loader->arena)) +
                    (size_t)row * model->head_columns + loader->column;
    for (uint32_t k = 0; k < CPU_LINE / 2; k++) {
        const uint32_t column = loader->column + k;
        line[k] = column < n_hidden ? (int16_t)weight(loader, loader->head_at + 2 * (row * n_hidden + column),
                                                      loader->header.head_frac)
                                    : 0;
    }
    model->head_bias[row] = (int64_t)word_at(loader, loader->head_bias_at + 8 * row);
    loader->column += CPU_LINE / 2;
    if (loader->column < model->head_columns)
        return 1;
    loader->column = 0;
    return ++loader->head_row < model->n_class;
}

static uint32_t pack_beat(struct cpu_loader *loader)
{
    if (loader->head_row < loader->model->n_class) {
        pack_head(loader);
        return KL_E_BUSY;
    }
    for (uint32_t packed = 0; packed < BEAT_BYTES; packed += 4 * loader->variant->lanes) {
        if (!pack_next(loader)) {
            loader->phase = CPU_LOAD_CYCLES;
            break;
        }
    }
    return KL_E_BUSY;
}

/* One figure per call: each runs the kernel's sequencer once. */
static uint32_t count_cycles(struct cpu_loader *loader)
{
    const struct kl_build *build = loader->build;
    switch (loader->n_cycles++) {
    case 0:
        loader->cycles_step = build->step_cycles(&loader->header, 1, 0);
        return KL_E_BUSY;
    case 1:
        loader->cycles_step_prepared = build->step_cycles(&loader->header, 1, 1);
        return KL_E_BUSY;
    default:
        loader->cycles_prepare = build->prepare_cycles(&loader->header, 1);
        return KL_OK;
    }
}

/* ---- the load ---- */

void cpu_loader_begin(struct cpu_loader *loader, const void *image, size_t size_bytes,
                      struct cpu_model *model, uint8_t *arena)
{
    loader->image = image;
    loader->size_bytes = size_bytes;
    loader->model = model;
    loader->arena = arena;
    loader->phase = CPU_LOAD_HEADER;
    loader->hash = KL_HASH_START;
    loader->status = KL_OK;
    loader->at = 0;
    loader->section = CPU_X_FRAC;
    loader->layer = loader->row = loader->column = 0;
    loader->of_h = loader->tile = loader->vector = loader->head_row = loader->n_cycles = 0;
    memset(loader->w_abs_max, 0, sizeof loader->w_abs_max);
}

uint32_t cpu_loader_advance(struct cpu_loader *loader)
{
    uint32_t status;
    switch (loader->phase) {
    case CPU_LOAD_HEADER:
        status = check_header(loader);
        if (status == KL_OK) {
            loader->phase = CPU_LOAD_CHECK;
            status = check_beat(loader); /* the header's own words, for the hash */
        }
        break;
    case CPU_LOAD_CHECK:
        status = check_beat(loader);
        if (status == KL_OK) {
            begin_model(loader);
            loader->layer = loader->column = 0;
            loader->phase = CPU_LOAD_PACK;
            status = KL_E_BUSY;
        }
        break;
    case CPU_LOAD_PACK:
        status = pack_beat(loader);
        break;
    case CPU_LOAD_CYCLES:
        status = count_cycles(loader);
        break;
    default:
        return KL_E_EMPTY;
    }
    if (status != KL_E_BUSY)
        loader->phase = CPU_LOAD_IDLE;
    return status;
}
