/* Model images: everything is checked before the slot counts as loaded. The image is read byte by byte, at
 * any alignment; loading is cold and its speed does not matter. */
#include <string.h>

#include "grid.h"
#include "kl_core.h"
#include "kl_pragma.h"

enum {
    W_ABS_MAX = 32767,
    /* Pad and field bytes of the header behind n_hidden. */
    AT_HEAD_FRAC = offsetof(struct kl_image_header, head_frac),
    AT_SIZE = offsetof(struct kl_image_header, size_bytes),
    AT_HASH = offsetof(struct kl_image_header, image_hash),
    AT_PAD2 = offsetof(struct kl_image_header, pad2),
};

/* n little-endian bytes. */
static uint64_t get(const uint8_t *image, uint32_t at, uint32_t n)
{
    uint64_t value = 0;
byte:
    for (uint32_t i = 0; i < n; i++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 8)
        value |= (uint64_t)image[at + i] << (8 * i);
    }
    return value;
}

static int all_zero(const uint8_t *image, uint32_t from, uint32_t to)
{
    int zero = 1;
pad:
    for (uint32_t i = from; i < to; i++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 0 max = 24)
        zero &= image[i] == 0;
    }
    return zero;
}

/* Where the next array starts. */
static uint32_t padded(uint32_t size_bytes)
{
    return (size_bytes + 7u) & ~7u;
}

static uint32_t read_header(const uint8_t *image, size_t size_bytes, struct kl_image_header *header)
{
    if (size_bytes < sizeof *header)
        return KL_E_IMAGE;
    memset(header, 0, sizeof *header);
    header->magic = (uint32_t)get(image, 0, 4);
    header->abi_version = (uint16_t)get(image, offsetof(struct kl_image_header, abi_version), 2);
    header->n_layer = (uint16_t)get(image, offsetof(struct kl_image_header, n_layer), 2);
    header->n_in = (uint16_t)get(image, offsetof(struct kl_image_header, n_in), 2);
    header->n_class = (uint16_t)get(image, offsetof(struct kl_image_header, n_class), 2);
    header->head_frac = image[AT_HEAD_FRAC];
    header->size_bytes = (uint32_t)get(image, AT_SIZE, 4);
    header->image_hash = get(image, AT_HASH, 8);
    if (header->magic != KL_IMAGE_MAGIC)
        return KL_E_IMAGE;
    if (header->abi_version != KL_ABI_VERSION)
        return KL_E_ABI;
    if (header->n_layer < 1 || header->n_layer > KL_N_LAYER_MAX || header->n_in < 1 ||
        header->n_in > KL_N_IN_MAX || header->n_class < 1 || header->n_class > KL_N_CLASS_MAX ||
        header->head_frac > KL_W_FRAC_MAX)
        return KL_E_IMAGE;
hidden:
    for (uint32_t l = 0; l < 4; l++) {
        header->n_hidden[l] = (uint16_t)get(image, offsetof(struct kl_image_header, n_hidden) + 2 * l, 2);
        const int used = l < header->n_layer;
        if (used ? header->n_hidden[l] < 1 || header->n_hidden[l] > KL_N_HIDDEN_MAX
                 : header->n_hidden[l] != 0)
            return KL_E_IMAGE;
    }
    if (!all_zero(image, AT_HEAD_FRAC + 1, AT_SIZE) || !all_zero(image, AT_SIZE + 4, AT_HASH) ||
        !all_zero(image, AT_PAD2, sizeof *header))
        return KL_E_IMAGE;

    uint32_t expected = sizeof *header;
    uint32_t n_operand = header->n_in;
layer:
    for (uint32_t l = 0; l < header->n_layer; l++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 3)
        const uint32_t hidden = header->n_hidden[l];
        const uint32_t n_row = KL_N_GATE * hidden;
        expected += 2 * padded(n_row) + padded(4 * n_row) + padded(2 * n_row * n_operand) +
                    padded(2 * n_row * hidden);
        n_operand = hidden;
    }
    expected += 8u * header->n_class + padded(2 * header->n_class * n_operand);
    return header->size_bytes == expected && size_bytes == expected ? KL_OK : KL_E_IMAGE;
}

/* Rows come in fours: of the arrays below only the row grids and the head can end in padding.
 *
 * The grids: shift = w_frac + operand_frac - KL_Z_FRAC, at least 0. */
static int read_shifts(const uint8_t *image, uint32_t at, uint32_t n_row, uint32_t operand_frac,
                       uint8_t shift[KL_N_GROUP_MAX][KL_MAC_ROWS])
{
    int good = 1;
row:
    for (uint32_t r = 0; r < n_row; r++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 4 max = 1024)
        const uint32_t w_frac = image[at + r];
        const int fits = w_frac <= KL_W_FRAC_MAX && w_frac + operand_frac >= KL_Z_FRAC;
        good &= fits;
        shift[r / KL_MAC_ROWS][r % KL_MAC_ROWS] = fits ? (uint8_t)(w_frac + operand_frac - KL_Z_FRAC) : 0;
    }
    return good & all_zero(image, at + n_row, at + padded(n_row));
}

static void read_bias(const uint8_t *image, uint32_t at, uint32_t n_row,
                      int32_t bias[KL_N_GROUP_MAX][KL_MAC_ROWS], int64_t bound[KL_N_ROW_MAX])
{
row:
    for (uint32_t r = 0; r < n_row; r++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 4 max = 1024)
        const int32_t b = (int32_t)get(image, at + 4 * r, 4);
        bias[r / KL_MAC_ROWS][r % KL_MAC_ROWS] = b;
        bound[r] = b < 0 ? -(int64_t)b : b;
    }
}

/* One matrix, rows of n_column weights, into weight words; proves the block and row bounds. bound[r]: the
 * row's bound so far, grows by this matrix's blocks. */
static int read_matrix(const uint8_t *image, uint32_t at, uint32_t n_row, uint32_t n_column,
                       uint32_t operand_frac, int32_t operand_abs_max,
                       const uint8_t shift[KL_N_GROUP_MAX][KL_MAC_ROWS], struct lstm_weights *weights,
                       uint32_t n_block, int64_t bound[KL_N_ROW_MAX])
{
    int good = 1;
row:
    for (uint32_t r = 0; r < n_row; r++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 4 max = 1024)
        const uint32_t group = r / KL_MAC_ROWS, lane = r % KL_MAC_ROWS;
        const uint32_t row_shift = shift[group][lane];
        const int64_t rounding = ((int64_t)1 << row_shift) >> 1;
        int64_t block_bound = rounding;
    column:
        for (uint32_t k = 0; k < n_column; k++) {
            KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 256)
            int32_t w = 0;
            const uint16_t bits = (uint16_t)get(image, at + 2 * (r * n_column + k), 2);
            good &= grid_steps(bits, row_shift + KL_Z_FRAC - operand_frac, W_ABS_MAX, &w);
            weights[group * n_block + k / KL_BLOCK].w[lane][k % KL_BLOCK] = (int16_t)w;
            block_bound += (int64_t)(w < 0 ? -w : w) * operand_abs_max;
            if (k % KL_BLOCK == KL_BLOCK - 1 || k == n_column - 1) {
                good &= block_bound <= INT32_MAX;
                bound[r] += block_bound >> row_shift;
                block_bound = rounding;
            }
        }
        good &= bound[r] <= INT32_MAX;
    }
    return good; /* 2 * n_row bytes are whole words: no padding */
}

static int read_head(const uint8_t *image, uint32_t at, struct kl_model *model, uint32_t n_hidden)
{
    const uint32_t n_class = model->header.n_class;
    const int64_t bias_max = (int64_t)1 << KL_HEAD_BIAS_BITS;
    int good = 1;
logit_row:
    for (uint32_t k = 0; k < n_class; k++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 8)
        const int64_t bias = (int64_t)get(image, at + 8 * k, 8);
        good &= bias <= bias_max && bias >= -bias_max;
        model->head_bias[k] = bias;
    column:
        for (uint32_t i = 0; i < n_hidden; i++) {
            KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 256)
            int32_t w = 0;
            const uint16_t bits = (uint16_t)get(image, at + 8 * n_class + 2 * (k * n_hidden + i), 2);
            good &= grid_steps(bits, model->header.head_frac, W_ABS_MAX, &w);
            model->head[k][i / KL_BLOCK][i % KL_BLOCK] = (int16_t)w;
        }
    }
    const uint32_t end = at + 8 * n_class + 2 * n_class * n_hidden;
    return good & all_zero(image, end, padded(end));
}

uint32_t kl_core_load(struct kl_core *core, uint32_t slot, const void *image, size_t size_bytes)
{
    if (slot >= KL_N_SLOT)
        return KL_E_SLOT;
    struct kl_model *model = &core->model[slot];
    model->loaded = 0;
    const uint8_t *byte = (const uint8_t *)image;
    struct kl_image_header header;
    const uint32_t status = read_header(byte, size_bytes, &header);
    if (status != KL_OK)
        return status;
    if (kl_image_hash(image, size_bytes) != header.image_hash)
        return KL_E_IMAGE_HASH;

    /* The old model's padding and state go with it: what no row of the new one writes has to be zero. */
    memset(model, 0, sizeof *model);
    memset(core->stream[slot], 0, sizeof core->stream[slot]);
    model->header = header;

    int good = 1;
    uint32_t at = sizeof model->header;
    uint32_t word = 0;
    uint32_t n_operand = model->header.n_in, operand_frac = KL_X_FRAC;
    int32_t operand_abs_max = KL_X_ABS_MAX;
layer:
    for (uint32_t l = 0; l < model->header.n_layer; l++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 3)
        struct kl_layer *layer = &model->layer[l];
        const uint32_t hidden = model->header.n_hidden[l];
        const uint32_t n_row = KL_N_GATE * hidden;
        const uint32_t n_group = (n_row + KL_MAC_ROWS - 1) / KL_MAC_ROWS;
        layer->x_shape.n_group = layer->h_shape.n_group = n_group;
        layer->x_shape.n_block = (n_operand + KL_BLOCK - 1) / KL_BLOCK;
        layer->h_shape.n_block = (hidden + KL_BLOCK - 1) / KL_BLOCK;
        layer->x_word = word;
        layer->h_word = word + n_group * layer->x_shape.n_block;
        word = layer->h_word + n_group * layer->h_shape.n_block;

        int64_t bound[KL_N_ROW_MAX];
        good &= read_shifts(byte, at, n_row, operand_frac, layer->x_shift);
        at += padded(n_row);
        good &= read_shifts(byte, at, n_row, KL_H_FRAC, layer->h_shift);
        at += padded(n_row);
        read_bias(byte, at, n_row, layer->bias, bound);
        at += padded(4 * n_row);
        good &= read_matrix(byte, at, n_row, n_operand, operand_frac, operand_abs_max, layer->x_shift,
                            &model->weights[layer->x_word], layer->x_shape.n_block, bound);
        at += padded(2 * n_row * n_operand);
        good &= read_matrix(byte, at, n_row, hidden, KL_H_FRAC, KL_H_ABS_MAX, layer->h_shift,
                            &model->weights[layer->h_word], layer->h_shape.n_block, bound);
        at += padded(2 * n_row * hidden);
        n_operand = hidden;
        operand_frac = KL_H_FRAC;
        operand_abs_max = KL_H_ABS_MAX;
    }
    good &= read_head(byte, at, model, n_operand);
    if (!good)
        return KL_E_IMAGE;

    model->cycles_step = kl_schedule_step_cycles(&model->header, 0);
    model->cycles_step_prepared = kl_schedule_step_cycles(&model->header, 1);
    model->cycles_prepare = kl_schedule_prepare_cycles(&model->header);
    model->cycles_reset = kl_schedule_reset_cycles(&model->header);
    model->loaded = 1;
    return KL_OK;
}
