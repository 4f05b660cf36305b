/* From FP32 weights to the kernel's image, and the proofs that go with it.
 *
 * The proofs are carried out on the rounded integers of the finished image (model_image_check), so they hold
 * for what the kernel reads, whoever wrote it; model_quantise only chooses grids that let them succeed. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp16.h"
#include "model.h"

enum {
    W_INT16_MAX = (1 << 15) - 1,          /* largest |w_int|: one int16 operand */
    W_INT8_MAX = (1 << 7) - 1,            /* of the INT8 form */
    W_X_FRAC_MIN = KL_Z_FRAC - KL_X_FRAC, /* shift >= 0 */
    W_H_FRAC_MIN = KL_Z_FRAC - KL_H_FRAC,
    HEAD_BOUND_BITS = 39,
};
static const char gate_name[KL_N_GATE] = {'i', 'f', 'g', 'o'};

/* Where each array of an image lies, from the image's start. */
struct layout {
    size_t w_x_frac[KL_N_LAYER_MAX], w_h_frac[KL_N_LAYER_MAX], bias[KL_N_LAYER_MAX];
    size_t w_x[KL_N_LAYER_MAX], w_h[KL_N_LAYER_MAX];
    size_t head_bias, head_w;
    size_t size_bytes;
};

static size_t place(size_t *offset, size_t count, size_t element_bytes)
{
    size_t at = *offset;
    *offset = (at + count * element_bytes + 7) & ~(size_t)7;
    return at;
}

static uint32_t layer_inputs(const struct kl_image_header *header, uint32_t layer)
{
    return layer ? header->n_hidden[layer - 1] : header->n_in;
}

/* header's shape has been checked, so nothing overflows. */
static void lay_out(const struct kl_image_header *header, struct layout *out)
{
    size_t offset = sizeof(*header);
    for (uint32_t l = 0; l < header->n_layer; l++) {
        size_t n_hidden = header->n_hidden[l], n_row = KL_N_GATE * n_hidden;
        out->w_x_frac[l] = place(&offset, n_row, sizeof(uint8_t));
        out->w_h_frac[l] = place(&offset, n_row, sizeof(uint8_t));
        out->bias[l] = place(&offset, n_row, sizeof(int32_t));
        out->w_x[l] = place(&offset, n_row * layer_inputs(header, l), sizeof(uint16_t));
        out->w_h[l] = place(&offset, n_row * n_hidden, sizeof(uint16_t));
    }
    out->head_bias = place(&offset, header->n_class, sizeof(int64_t));
    out->head_w =
        place(&offset, (size_t)header->n_class * header->n_hidden[header->n_layer - 1], sizeof(uint16_t));
    out->size_bytes = offset;
}

static int check_shape(const struct kl_image_header *header, char *error)
{
    if (header->n_layer < 1 || header->n_layer > KL_N_LAYER_MAX)
        return model_refuse(error, "%u LSTM layers: this build takes 1 to %d", header->n_layer,
                            KL_N_LAYER_MAX);
    if (header->n_in < 1 || header->n_in > KL_N_IN_MAX)
        return model_refuse(error, "%u inputs: this build takes 1 to %d", header->n_in, KL_N_IN_MAX);
    if (header->n_class < 2 || header->n_class > KL_N_CLASS_MAX)
        return model_refuse(error, "%u classes: this build takes 2 to %d", header->n_class, KL_N_CLASS_MAX);
    for (uint32_t l = 0; l < 4; l++) {
        uint32_t n_hidden = header->n_hidden[l];
        if (l >= header->n_layer ? n_hidden != 0 : n_hidden < 1 || n_hidden > KL_N_HIDDEN_MAX)
            return model_refuse(error, "layer %u of %u: %u hidden units: this build takes 1 to %d", l,
                                header->n_layer, n_hidden, KL_N_HIDDEN_MAX);
    }
    return 0;
}

/* Why a row's weights do not fit, for the message. */
struct row_fault {
    uint32_t index;   /* of the weight, or of the block's first weight */
    double magnitude; /* of the weight, or of the block's bound */
    enum { ROW_FITS = 0, ROW_OFF_GRID, ROW_NOT_INT16, ROW_NOT_INT8, ROW_BLOCK_TOO_LARGE } what;
};

/* The block proof on n weights of one row: every block of KL_BLOCK stays in an int32, its rounding included.
 * w_max: W_INT16_MAX or W_INT8_MAX. On success *sum_q20 grows by the largest value that the rounded block
 * sums can add. */
static int prove_blocks(const uint16_t *w, uint32_t n, int w_frac, int32_t w_max, int operand_frac,
                        int32_t operand_max, int64_t *sum_q20, struct row_fault *fault)
{
    int shift = w_frac + operand_frac - KL_Z_FRAC;
    int64_t half = shift ? (int64_t)1 << (shift - 1) : 0, total = 0;
    for (uint32_t start = 0; start < n; start += KL_BLOCK) {
        uint32_t end = n - start < KL_BLOCK ? n : start + KL_BLOCK;
        int64_t sum_abs = 0;
        for (uint32_t k = start; k < end; k++) {
            double steps = ldexp(fabs(fp16_to_double(w[k])), w_frac);
            *fault = (struct row_fault){k, fp16_to_double(w[k]),
                                        w_max == W_INT8_MAX ? ROW_NOT_INT8 : ROW_NOT_INT16};
            if (!(steps <= w_max)) /* NaN and infinity too */
                return -1;
            fault->what = ROW_OFF_GRID;
            if (steps != floor(steps))
                return -1;
            sum_abs += (int64_t)steps;
        }
        int64_t bound = sum_abs * operand_max + half;
        *fault = (struct row_fault){start, ldexp((double)bound, -w_frac - operand_frac), ROW_BLOCK_TOO_LARGE};
        if (bound > INT32_MAX)
            return -1;
        total += bound >> shift;
    }
    fault->what = ROW_FITS;
    *sum_q20 += total;
    return 0;
}

static int refuse_row(char *error, const char *matrix, uint32_t layer, uint32_t row, int w_frac,
                      const struct row_fault *fault)
{
    const char *const why[] = {
        [ROW_FITS] = "fits",
        [ROW_OFF_GRID] = "weight is off its grid",
        [ROW_NOT_INT16] = "weight does not fit in 16 bits",
        [ROW_NOT_INT8] = "weight does not fit in 8 bits, pack with FP16 weights",
        [ROW_BLOCK_TOO_LARGE] = "block of 64 could overflow its 32-bit sum, bound",
    };
    return model_refuse(error, "layer %u, unit %u, gate %c, %s from column %u: %s: %.6g on grid 2^-%d", layer,
                        row / KL_N_GATE, gate_name[row % KL_N_GATE], matrix, fault->index, why[fault->what],
                        fault->magnitude, w_frac);
}

static int prove_layer(const uint8_t *image, const struct layout *layout, uint32_t layer, char *error)
{
    const struct kl_image_header *header = (const void *)image;
    uint32_t n_operand = layer_inputs(header, layer), n_hidden = header->n_hidden[layer];
    const uint8_t *w_x_frac = image + layout->w_x_frac[layer], *w_h_frac = image + layout->w_h_frac[layer];
    const int32_t *bias = (const void *)(image + layout->bias[layer]);
    const uint16_t *w_x = (const void *)(image + layout->w_x[layer]);
    const uint16_t *w_h = (const void *)(image + layout->w_h[layer]);
    int x_frac = layer ? KL_H_FRAC : KL_X_FRAC, x_frac_min = layer ? W_H_FRAC_MIN : W_X_FRAC_MIN;
    int32_t x_max = layer ? KL_H_ABS_MAX : KL_X_ABS_MAX;
    for (uint32_t row = 0; row < KL_N_GATE * n_hidden; row++) {
        struct row_fault fault;
        int64_t bound = llabs((int64_t)bias[row]);
        if (w_x_frac[row] < x_frac_min || w_x_frac[row] > KL_W_FRAC_MAX || w_h_frac[row] < W_H_FRAC_MIN ||
            w_h_frac[row] > KL_W_FRAC_MAX)
            return model_refuse(
                error, "layer %u, unit %u, gate %c: grids 2^-%u (W_x, %d to %d) and 2^-%u (W_h, %d to %d)",
                layer, row / KL_N_GATE, gate_name[row % KL_N_GATE], w_x_frac[row], x_frac_min, KL_W_FRAC_MAX,
                w_h_frac[row], W_H_FRAC_MIN, KL_W_FRAC_MAX);
        if (prove_blocks(w_x + (size_t)row * n_operand, n_operand, w_x_frac[row], W_INT16_MAX, x_frac, x_max,
                         &bound, &fault))
            return refuse_row(error, "W_x", layer, row, w_x_frac[row], &fault);
        if (prove_blocks(w_h + (size_t)row * n_hidden, n_hidden, w_h_frac[row], W_INT16_MAX, KL_H_FRAC,
                         KL_H_ABS_MAX, &bound, &fault))
            return refuse_row(error, "W_h", layer, row, w_h_frac[row], &fault);
        if (bound > INT32_MAX)
            return model_refuse(
                error,
                "layer %u, unit %u, gate %c: the pre-activation could reach %.6g, its 32-bit sum holds "
                "2048: weights or bias too large",
                layer, row / KL_N_GATE, gate_name[row % KL_N_GATE], ldexp((double)bound, -KL_Z_FRAC));
    }
    return 0;
}

/* The largest |sum| of one head row without its bias, in steps of 2^-(head_frac + KL_H_FRAC); -1: a weight
 * does not fit the grid. */
static int64_t head_row_bound(const uint16_t *w, uint32_t n, int head_frac)
{
    int64_t sum_abs = 0;
    for (uint32_t k = 0; k < n; k++) {
        double steps = ldexp(fabs(fp16_to_double(w[k])), head_frac);
        if (!(steps <= W_INT16_MAX) || steps != floor(steps))
            return -1;
        sum_abs += (int64_t)steps;
    }
    return sum_abs * KL_H_ABS_MAX;
}

static int prove_head(const uint8_t *image, const struct layout *layout, char *error)
{
    const struct kl_image_header *header = (const void *)image;
    const int64_t bias_max = (int64_t)1 << KL_HEAD_BIAS_BITS;
    uint32_t n = header->n_hidden[header->n_layer - 1];
    const int64_t *bias = (const void *)(image + layout->head_bias);
    const uint16_t *w = (const void *)(image + layout->head_w);
    if (header->head_frac > KL_W_FRAC_MAX)
        return model_refuse(error, "head: grid 2^-%u: the finest is 2^-%d", header->head_frac, KL_W_FRAC_MAX);
    for (uint32_t c = 0; c < header->n_class; c++) {
        int64_t bound = head_row_bound(w + (size_t)c * n, n, header->head_frac);
        if (bound < 0)
            return model_refuse(error, "head, class %u: a weight does not fit grid 2^-%u in 16 bits", c,
                                header->head_frac);
        /* 256 hidden units stay below 2^38: no shape of this build can fail here. */
        assert(!(bound >> HEAD_BOUND_BITS));
        if (bias[c] < -bias_max || bias[c] > bias_max)
            return model_refuse(error, "head, class %u: bias %.6g is above 2^%d steps of the sum", c,
                                ldexp((double)bias[c], -header->head_frac - KL_H_FRAC), KL_HEAD_BIAS_BITS);
    }
    return 0;
}

/* Bytes between an array's end and the next multiple of 8 are zero. */
static int padding_is_zero(const uint8_t *image, size_t offset, size_t size_bytes)
{
    for (size_t i = offset + size_bytes; i % 8; i++)
        if (image[i])
            return 0;
    return 1;
}

static int check_padding(const uint8_t *image, const struct layout *layout)
{
    const struct kl_image_header *header = (const void *)image;
    int ok = 1;
    for (uint32_t l = 0; l < header->n_layer; l++) {
        size_t n_hidden = header->n_hidden[l], n_row = KL_N_GATE * n_hidden;
        ok &= padding_is_zero(image, layout->w_x_frac[l], n_row);
        ok &= padding_is_zero(image, layout->w_h_frac[l], n_row);
    }
    /* A layer's matrices have 4 H rows of 2 bytes: whole multiples of 8, as its biases and the head's. */
    size_t head_bytes = (size_t)header->n_class * header->n_hidden[header->n_layer - 1] * sizeof(uint16_t);
    return ok && padding_is_zero(image, layout->head_w, head_bytes);
}

int model_image_check(const void *image, size_t size_bytes, char error[MODEL_ERROR_CHARS])
{
    const struct kl_image_header *header = image;
    struct layout layout;
    if (size_bytes < sizeof(*header))
        return model_refuse(error, "kernel image: %zu bytes, its header alone has %zu", size_bytes,
                            sizeof(*header));
    if (header->magic != KL_IMAGE_MAGIC)
        return model_refuse(error, "kernel image: starts with 0x%08x, not with 0x%08x: not an image",
                            header->magic, KL_IMAGE_MAGIC);
    if (header->abi_version != KL_ABI_VERSION)
        return model_refuse(error,
                            "kernel image: of ABI version %u, this build's is %d: pack the model again from "
                            "its ONNX file (killline model pack), with a killline of this version",
                            header->abi_version, KL_ABI_VERSION);
    for (size_t i = 0; i < sizeof(header->pad0); i++)
        if (header->pad0[i])
            return model_refuse(error, "kernel image: padding in the header is not zero");
    for (size_t i = 0; i < sizeof(header->pad2); i++)
        if (header->pad2[i] || header->pad1)
            return model_refuse(error, "kernel image: padding in the header is not zero");
    if (check_shape(header, error))
        return -1;
    lay_out(header, &layout);
    if (layout.size_bytes != size_bytes || header->size_bytes != size_bytes)
        return model_refuse(error, "kernel image: %zu bytes there, %u in its header, %zu by its shape",
                            size_bytes, header->size_bytes, layout.size_bytes);
    const uint8_t *bytes = image;
    if (kl_image_hash(image, size_bytes) != header->image_hash)
        return model_refuse(error,
                            "kernel image: its hash does not match: the file is damaged, pack it again");
    if (!check_padding(bytes, &layout))
        return model_refuse(error, "kernel image: padding between arrays is not zero");
    for (uint32_t l = 0; l < header->n_layer; l++)
        if (prove_layer(bytes, &layout, l, error))
            return -1;
    return prove_head(bytes, &layout, error);
}

/* Rounds n weights, times scale, to the finest grid on which their blocks fit. Returns the grid's fraction
 * bits, or -1 with the fault on the coarsest grid. */
static int quantise_row(const float *w, uint32_t n, double scale, int frac_min, int32_t w_max,
                        int operand_frac, int32_t operand_max, uint16_t *out, struct row_fault *fault)
{
    for (int frac = KL_W_FRAC_MAX; frac >= frac_min; frac--) {
        int64_t unused = 0;
        for (uint32_t k = 0; k < n; k++)
            out[k] = fp16_from_double((double)w[k] * scale, frac, INT32_MAX);
        if (!prove_blocks(out, n, frac, w_max, operand_frac, operand_max, &unused, fault))
            return frac;
    }
    return -1;
}

static int check_finite(const float *values, size_t n, const char *what, uint32_t layer, size_t n_column,
                        char *error)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return model_refuse(error,
                                "layer %u, %s, row %zu, column %zu: %g is not finite: the training diverged",
                                layer, what, i / n_column, i % n_column, (double)values[i]);
    return 0;
}

/* h_w_max: largest |w_int| of the weights that multiply a hidden state. Layer 0's W_x multiplies features:
 * its grid cannot be coarser than 2^-9, on which 8 bits end at 0.25. */
static int quantise_layer(const struct model_weights *weights, uint32_t layer, int32_t h_w_max,
                          uint8_t *image, const struct layout *layout, char *error)
{
    const struct kl_image_header *header = (const void *)image;
    uint32_t n_operand = layer_inputs(header, layer), n_hidden = header->n_hidden[layer];
    uint32_t n_row = KL_N_GATE * n_hidden;
    const float *w_x = weights->w_x[layer], *w_h = weights->w_h[layer], *bias = weights->bias[layer];
    if (check_finite(w_x, (size_t)n_row * n_operand, "W_x", layer, n_operand, error) ||
        check_finite(w_h, (size_t)n_row * n_hidden, "W_h", layer, n_hidden, error) ||
        check_finite(bias, n_row, "bias", layer, 1, error))
        return -1;
    for (uint32_t row = 0; row < n_row; row++) {
        uint32_t gate = row % KL_N_GATE;
        size_t from = (size_t)gate * n_hidden + row / KL_N_GATE; /* PyTorch's gate-major row */
        double scale = gate == 2 ? 1.0 : 0.5;                    /* sigma(z) comes from T(z / 2) */
        struct row_fault fault;
        int frac = quantise_row(
            w_x + from * n_operand, n_operand, scale, layer ? W_H_FRAC_MIN : W_X_FRAC_MIN,
            layer ? h_w_max : W_INT16_MAX, layer ? KL_H_FRAC : KL_X_FRAC, layer ? KL_H_ABS_MAX : KL_X_ABS_MAX,
            (uint16_t *)(void *)(image + layout->w_x[layer]) + (size_t)row * n_operand, &fault);
        if (frac < 0)
            return refuse_row(error, "W_x", layer, row, layer ? W_H_FRAC_MIN : W_X_FRAC_MIN, &fault);
        image[layout->w_x_frac[layer] + row] = (uint8_t)frac;
        frac = quantise_row(
            w_h + from * n_hidden, n_hidden, scale, W_H_FRAC_MIN, h_w_max, KL_H_FRAC, KL_H_ABS_MAX,
            (uint16_t *)(void *)(image + layout->w_h[layer]) + (size_t)row * n_hidden, &fault);
        if (frac < 0)
            return refuse_row(error, "W_h", layer, row, W_H_FRAC_MIN, &fault);
        image[layout->w_h_frac[layer] + row] = (uint8_t)frac;
        double bias_q20 = nearbyint(ldexp((double)bias[from] * scale, KL_Z_FRAC));
        if (fabs(bias_q20) > INT32_MAX)
            return model_refuse(error, "layer %u, unit %u, gate %c: bias %g does not fit in Q.%d", layer,
                                row / KL_N_GATE, gate_name[gate], (double)bias[from], KL_Z_FRAC);
        ((int32_t *)(void *)(image + layout->bias[layer]))[row] = (int32_t)bias_q20;
    }
    return 0;
}

/* One grid for all rows: the finest on which every row's bound, bias included, holds. */
static int quantise_head(const struct model_weights *weights, uint8_t *image, const struct layout *layout,
                         char *error)
{
    struct kl_image_header *header = (void *)image;
    uint32_t n = header->n_hidden[header->n_layer - 1], n_class = header->n_class;
    uint16_t *w = (void *)(image + layout->head_w);
    int64_t *bias = (void *)(image + layout->head_bias);
    for (uint32_t i = 0; i < n * n_class; i++)
        if (!isfinite(weights->head_w[i]))
            return model_refuse(error, "head, class %u, column %u: %g is not finite: the training diverged",
                                i / n, i % n, (double)weights->head_w[i]);
    for (uint32_t c = 0; c < n_class; c++)
        if (!isfinite(weights->head_bias[c]))
            return model_refuse(error, "head, class %u: bias %g is not finite: the training diverged", c,
                                (double)weights->head_bias[c]);
    const double bias_max = ldexp(1, KL_HEAD_BIAS_BITS);
    for (int frac = KL_W_FRAC_MAX; frac >= 0; frac--) {
        int fits = 1;
        for (uint32_t c = 0; c < n_class; c++) {
            for (uint32_t k = 0; k < n; k++)
                w[c * n + k] = fp16_from_double((double)weights->head_w[c * n + k], frac, INT32_MAX);
            double steps = nearbyint(ldexp((double)weights->head_bias[c], frac + KL_H_FRAC));
            fits &= fabs(steps) <= bias_max && head_row_bound(w + (size_t)c * n, n, frac) >= 0;
            bias[c] = fits ? (int64_t)steps : 0;
        }
        if (fits) {
            header->head_frac = (uint8_t)frac;
            return 0;
        }
    }
    return model_refuse(error, "head: weights above %d or biases above 2^%d: nothing a trained head has",
                        W_INT16_MAX, KL_HEAD_BIAS_BITS - KL_H_FRAC);
}

static int quantise(const struct model_weights *weights, int32_t h_w_max, struct kl_image_header **image,
                    char *error)
{
    struct kl_image_header header = {.magic = KL_IMAGE_MAGIC, .abi_version = KL_ABI_VERSION};
    struct layout layout;
    if (weights->n_layer > KL_N_LAYER_MAX || weights->n_in > KL_N_IN_MAX || weights->n_class > KL_N_CLASS_MAX)
        return model_refuse(error, "%u layers, %u inputs, %u classes: this build takes %d, %d, %d",
                            weights->n_layer, weights->n_in, weights->n_class, KL_N_LAYER_MAX, KL_N_IN_MAX,
                            KL_N_CLASS_MAX);
    header.n_layer = (uint16_t)weights->n_layer;
    header.n_in = (uint16_t)weights->n_in;
    header.n_class = (uint16_t)weights->n_class;
    for (uint32_t l = 0; l < weights->n_layer; l++)
        header.n_hidden[l] =
            (uint16_t)(weights->n_hidden[l] > KL_N_HIDDEN_MAX ? UINT16_MAX : weights->n_hidden[l]);
    if (check_shape(&header, error))
        return -1;
    lay_out(&header, &layout);
    header.size_bytes = (uint32_t)layout.size_bytes;
    uint8_t *bytes = calloc(1, layout.size_bytes);
    if (!bytes)
        return model_refuse(error, "out of memory: %zu bytes for the kernel image", layout.size_bytes);
    struct kl_image_header *out = (void *)bytes;
    *out = header;
    int status = 0;
    for (uint32_t l = 0; l < header.n_layer && !status; l++)
        status = quantise_layer(weights, l, h_w_max, bytes, &layout, error);
    if (!status)
        status = quantise_head(weights, bytes, &layout, error);
    if (!status) {
        out->image_hash = kl_image_hash(bytes, layout.size_bytes);
        status = model_image_check(bytes, layout.size_bytes, error);
    }
    if (status) {
        free(bytes);
        return -1;
    }
    *image = out;
    return 0;
}

int model_quantise(const struct model_weights *weights, struct kl_image_header **image,
                   char error[MODEL_ERROR_CHARS])
{
    return quantise(weights, W_INT16_MAX, image, error);
}

int model_quantise_int8(const struct model_weights *weights, struct kl_image_header **image,
                        char error[MODEL_ERROR_CHARS])
{
    return quantise(weights, W_INT8_MAX, image, error);
}

int model_matrix_is_int8(const struct kl_image_header *image, uint32_t layer, enum model_matrix matrix)
{
    struct layout layout;
    lay_out(image, &layout);
    const uint8_t *bytes = (const uint8_t *)image;
    const uint8_t *frac = bytes + (matrix == MODEL_W_X ? layout.w_x_frac : layout.w_h_frac)[layer];
    const uint16_t *w = (const void *)(bytes + (matrix == MODEL_W_X ? layout.w_x : layout.w_h)[layer]);
    uint32_t n_row = KL_N_GATE * image->n_hidden[layer];
    uint32_t n_column = matrix == MODEL_W_X ? layer_inputs(image, layer) : image->n_hidden[layer];
    for (uint32_t row = 0; row < n_row; row++)
        for (uint32_t k = 0; k < n_column; k++)
            if (ldexp(fabs(fp16_to_double(w[(size_t)row * n_column + k])), frac[row]) > W_INT8_MAX)
                return 0;
    return 1;
}
