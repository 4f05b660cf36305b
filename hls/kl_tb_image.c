/* Models to and from the kernel's image, and binary16. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kl_tb.h"

uint16_t tb_half(double v)
{
    if (v == 0)
        return 0;
    int exponent;
    const double fraction = frexp(fabs(v), &exponent); /* in [1/2, 1) */
    const int biased = exponent + 14;                  /* 1.m * 2^(exponent - 1), bias 15 */
    const double significand = biased >= 1 ? ldexp(fraction, 11) : ldexp(fabs(v), 24);
    assert(significand == floor(significand) && biased <= 30);
    const uint32_t bits =
        biased >= 1 ? (uint32_t)biased << 10 | ((uint32_t)significand & 0x3ffu) : (uint32_t)significand;
    return (uint16_t)(v < 0 ? bits | 0x8000u : bits);
}

double tb_half_value(uint16_t bits)
{
    const int exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
    double v;
    if (exponent == 31)
        v = fraction ? NAN : INFINITY;
    else
        v = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits & 0x8000 ? -v : v;
}

/* ---- writing ---- */

/* A cursor that writes little-endian arrays, each padded to 8 bytes with zeros; with no buffer it only
 * counts. */
struct writer {
    uint8_t *byte;
    size_t at;
};

static void put(struct writer *out, uint64_t value, unsigned n_byte)
{
    for (unsigned i = 0; i < n_byte; i++, out->at++) {
        if (out->byte)
            out->byte[out->at] = (uint8_t)(value >> (8 * i));
    }
}

static void pad(struct writer *out)
{
    while (out->at % 8 != 0)
        put(out, 0, 1);
}

static void write_body(const struct tb_model *model, struct writer *out)
{
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const struct tb_layer *layer = &model->layer[l];
        const uint32_t n_row = KL_N_GATE * layer->n_hidden;
        for (uint32_t r = 0; r < n_row; r++)
            put(out, (uint64_t)layer->x_frac[r], 1);
        pad(out);
        for (uint32_t r = 0; r < n_row; r++)
            put(out, (uint64_t)layer->h_frac[r], 1);
        pad(out);
        for (uint32_t r = 0; r < n_row; r++)
            put(out, (uint64_t)(int64_t)layer->bias[r], 4);
        pad(out);
        for (uint32_t r = 0; r < n_row; r++) {
            for (uint32_t k = 0; k < layer->n_operand; k++)
                put(out, tb_half(layer->w_x[r][k]), 2);
        }
        pad(out);
        for (uint32_t r = 0; r < n_row; r++) {
            for (uint32_t k = 0; k < layer->n_hidden; k++)
                put(out, tb_half(layer->w_h[r][k]), 2);
        }
        pad(out);
    }
    for (uint32_t k = 0; k < model->n_class; k++)
        put(out, (uint64_t)(int64_t)model->head_bias[k], 8);
    for (uint32_t k = 0; k < model->n_class; k++) {
        for (uint32_t u = 0; u < model->layer[model->n_layer - 1].n_hidden; u++)
            put(out, tb_half(model->head_w[k][u]), 2);
    }
    pad(out);
}

struct kl_image_header tb_model_header(const struct tb_model *model)
{
    struct kl_image_header header = {.magic = KL_IMAGE_MAGIC,
                                     .abi_version = KL_ABI_VERSION,
                                     .n_layer = (uint16_t)model->n_layer,
                                     .n_in = (uint16_t)model->n_in,
                                     .n_class = (uint16_t)model->n_class,
                                     .head_frac = (uint8_t)model->head_frac};
    for (uint32_t l = 0; l < model->n_layer; l++)
        header.n_hidden[l] = (uint16_t)model->layer[l].n_hidden;
    return header;
}

struct kl_image_header *tb_model_image(const struct tb_model *model)
{
    struct kl_image_header header = tb_model_header(model);
    struct writer out = {.at = sizeof header};
    write_body(model, &out);
    header.size_bytes = (uint32_t)out.at;

    struct kl_image_header *image = malloc(out.at);
    if (!image)
        return NULL;
    *image = header;
    out = (struct writer){.byte = (uint8_t *)image, .at = sizeof header};
    write_body(model, &out);
    image->image_hash = kl_image_hash(image, image->size_bytes);
    return image;
}

/* ---- reading ---- */

/* A cursor over the image's little-endian arrays. */
struct reader {
    const uint8_t *byte;
    size_t at, size_bytes;
    int good; /* 0: read past the end */
};

static uint64_t get(struct reader *in, unsigned n_byte)
{
    uint64_t value = 0;
    if (in->size_bytes - in->at < n_byte) {
        in->good = 0;
        return 0;
    }
    for (unsigned i = 0; i < n_byte; i++)
        value |= (uint64_t)in->byte[in->at++] << (8 * i);
    return value;
}

static void skip_padding(struct reader *in)
{
    while (in->at % 8 != 0)
        get(in, 1);
}

static void read_layer(struct reader *in, struct tb_layer *layer)
{
    const uint32_t n_row = KL_N_GATE * layer->n_hidden;
    for (uint32_t r = 0; r < n_row; r++)
        layer->x_frac[r] = (int)get(in, 1);
    skip_padding(in);
    for (uint32_t r = 0; r < n_row; r++)
        layer->h_frac[r] = (int)get(in, 1);
    skip_padding(in);
    for (uint32_t r = 0; r < n_row; r++)
        layer->bias[r] = (int32_t)(uint32_t)get(in, 4);
    skip_padding(in);
    for (uint32_t r = 0; r < n_row; r++) {
        for (uint32_t k = 0; k < layer->n_operand; k++)
            layer->w_x[r][k] = tb_half_value((uint16_t)get(in, 2));
    }
    skip_padding(in);
    for (uint32_t r = 0; r < n_row; r++) {
        for (uint32_t k = 0; k < layer->n_hidden; k++)
            layer->w_h[r][k] = tb_half_value((uint16_t)get(in, 2));
    }
    skip_padding(in);
}

const char *tb_model_from_image(struct tb_model *model, const void *image, size_t size_bytes)
{
    struct kl_image_header header;
    if (size_bytes < sizeof header)
        return "image is shorter than its header";
    memcpy(&header, image, sizeof header);
    if (header.magic != KL_IMAGE_MAGIC || header.abi_version != KL_ABI_VERSION)
        return "not an image of this ABI version";
    if (header.n_layer < 1 || header.n_layer > KL_N_LAYER_MAX || header.n_in < 1 ||
        header.n_in > KL_N_IN_MAX || header.n_class < 1 || header.n_class > KL_N_CLASS_MAX)
        return "layers, inputs or classes out of range";
    memset(model, 0, sizeof *model);
    model->kind = TB_TYPICAL;
    model->n_in = header.n_in;
    model->n_layer = header.n_layer;
    model->n_class = header.n_class;
    model->head_frac = header.head_frac;
    struct reader in = {
        .byte = (const uint8_t *)image, .at = sizeof header, .size_bytes = size_bytes, .good = 1};
    uint32_t n_operand = header.n_in;
    for (uint32_t l = 0; l < header.n_layer; l++) {
        if (header.n_hidden[l] < 1 || header.n_hidden[l] > KL_N_HIDDEN_MAX)
            return "hidden units out of range";
        model->layer[l].n_operand = n_operand;
        model->layer[l].n_hidden = n_operand = header.n_hidden[l];
        read_layer(&in, &model->layer[l]);
    }
    for (uint32_t k = 0; k < model->n_class; k++)
        model->head_bias[k] = (double)(int64_t)get(&in, 8);
    for (uint32_t k = 0; k < model->n_class; k++) {
        for (uint32_t u = 0; u < n_operand; u++)
            model->head_w[k][u] = tb_half_value((uint16_t)get(&in, 2));
    }
    skip_padding(&in);
    return in.good && in.at == size_bytes ? NULL : "image has not the size that its header says";
}
