/* model_quantise, model_image_check: grids, proofs, refusals, and the kernel against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/fp16.h"
#include "host/model.h"
#include "host/model_reference.h"
#include "model_random.h"

/* Where one layer's arrays lie: the layout of kl_abi.h, written down once more. */
struct layer_view {
    const uint8_t *w_x_frac, *w_h_frac;
    const int32_t *bias;
    const uint16_t *w_x, *w_h;
    const uint8_t *end;
};

static size_t padded(size_t n)
{
    return (n + 7) / 8 * 8;
}

static struct layer_view view(const struct kl_image_header *image, uint32_t layer)
{
    const uint8_t *at = (const uint8_t *)(image + 1);
    struct layer_view v = {0};
    for (uint32_t l = 0; l <= layer; l++) {
        size_t n_hidden = image->n_hidden[l], n_in = l ? image->n_hidden[l - 1] : image->n_in;
        v.w_x_frac = at;
        v.w_h_frac = at += padded(4 * n_hidden);
        v.bias = (const void *)(at += padded(4 * n_hidden));
        v.w_x = (const void *)(at += padded(16 * n_hidden));
        v.w_h = (const void *)(at += padded(8 * n_hidden * n_in));
        v.end = at += padded(8 * n_hidden * n_hidden);
    }
    return v;
}

static struct kl_image_header *quantise(const struct model_weights *weights)
{
    struct kl_image_header *image;
    char error[MODEL_ERROR_CHARS];
    if (model_quantise(weights, &image, error))
        fail_msg("%s", error);
    return image;
}

static void expect_refused(const struct model_weights *weights, const char *const *words)
{
    struct kl_image_header *image;
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(model_quantise(weights, &image, error), -1);
    for (; *words; words++)
        if (!strstr(error, *words))
            fail_msg("'%s' does not say '%s'", error, *words);
}
#define EXPECT_REFUSED(weights, ...) expect_refused(weights, (const char *const[]){__VA_ARGS__, NULL})

static void rows_are_unit_major_and_sigmoid_gates_half(void **state)
{
    (void)state;
    struct model_weights w = model_random(3, 1, (const uint32_t[]){5}, 2, 0, 1);
    /* Every weight its own value, exact on any grid that comes into question. */
    for (uint32_t r = 0; r < 20; r++) {
        for (uint32_t k = 0; k < 3; k++)
            w.w_x[0][r * 3 + k] = (float)(r * 8 + k) / 256;
        for (uint32_t k = 0; k < 5; k++)
            w.w_h[0][r * 5 + k] = -(float)(r * 8 + k) / 256;
        w.bias[0][r] = (float)r / 64;
    }
    struct kl_image_header *image = quantise(&w);
    struct layer_view v = view(image, 0);
    assert_int_equal(image->magic, KL_IMAGE_MAGIC);
    assert_int_equal(image->abi_version, KL_ABI_VERSION);
    assert_int_equal(image->n_layer, 1);
    assert_int_equal(image->n_in, 3);
    assert_int_equal(image->n_hidden[0], 5);
    assert_int_equal(image->n_hidden[1], 0);
    assert_int_equal(image->image_hash, kl_image_hash(image, image->size_bytes));
    for (uint32_t unit = 0; unit < 5; unit++)
        for (uint32_t gate = 0; gate < 4; gate++) {
            uint32_t from = gate * 5 + unit, row = unit * 4 + gate;
            double scale = gate == 2 ? 1 : 0.5;
            for (uint32_t k = 0; k < 3; k++)
                assert_true(fp16_to_double(v.w_x[row * 3 + k]) == scale * (double)w.w_x[0][from * 3 + k]);
            for (uint32_t k = 0; k < 5; k++)
                assert_true(fp16_to_double(v.w_h[row * 5 + k]) == scale * (double)w.w_h[0][from * 5 + k]);
            assert_true(ldexp(v.bias[row], -KL_Z_FRAC) == scale * (double)w.bias[0][from]);
        }
    free(image);
    for (uint32_t r = 0; r < 20; r++)
        w.bias[0][r] = 0.1f; /* 104,857.6 steps of 2^-20 */
    image = quantise(&w);
    v = view(image, 0);
    assert_int_equal(v.bias[0], 52429);
    assert_int_equal(v.bias[2], 104858);
    free(image);
    model_weights_free(&w);
}

/* One row of a 1-unit net with n_in inputs; gate g, so at full scale. */
static struct model_weights one_row(uint32_t n_in, float value)
{
    struct model_weights w = model_random(n_in, 1, (const uint32_t[]){1}, 2, 0, 1);
    for (uint32_t k = 0; k < n_in; k++)
        w.w_x[0][2 * n_in + k] = value;
    return w;
}

static void expect_grid(uint32_t n_in, float value, int frac)
{
    struct model_weights w = one_row(n_in, value);
    struct kl_image_header *image = quantise(&w);
    int got = view(image, 0).w_x_frac[2];
    if (got != frac)
        fail_msg("%u weights of %g: grid 2^-%d, not 2^-%d", n_in, (double)value, got, frac);
    free(image);
    model_weights_free(&w);
}

static void grid_is_the_finest_that_fits(void **state)
{
    (void)state;
    expect_grid(1, 0.0f, 24);
    expect_grid(1, ldexpf(1, -10), 24);
    /* |w| 2^g < 2^15 alone: 2047/2048 rounds within, 1 does not. */
    expect_grid(1, ldexpf(2047, -20), 24); /* 2^-9 - 2^-20: 32752 steps */
    expect_grid(1, ldexpf(1, -9), 23);
    expect_grid(1, 1.0f, 14);
    expect_grid(2, ldexpf(2047, -20), 24); /* 65504 steps times 32752 and rounding: 2^31 - 1 holds it */
    /* The block bound: sum of |w_int| at most 65,567. */
    expect_grid(64, ldexpf(1024, -24), 24); /* 65,536 */
    expect_grid(64, ldexpf(1025, -24), 23); /* 65,600 */
    expect_grid(3, ldexpf(2047, -20), 23);  /* 98,256 */
    expect_grid(64, 1.0f, 10);              /* 64 * 2^10 */
    expect_grid(64, 1.9990234375f, 9);      /* 1.999 * 2^9 * 64 = 65,504 */
    expect_grid(33, 63.0f / 33, 10);        /* 64,512 + rounding */
}

static void too_large_for_any_grid_is_refused(void **state)
{
    (void)state;
    struct model_weights w = one_row(64, 2.0f); /* 64 * 2 * 2^9 = 65,536: fits */
    free(quantise(&w));
    w.w_x[0][2 * 64 + 5] = 2.0625f; /* 65,568 times 32,752 is 512 below 2^31 */
    free(quantise(&w));
    w.w_x[0][2 * 64 + 5] = 2.064453125f; /* one step more */
    EXPECT_REFUSED(&w, "layer 0", "unit 0", "gate g", "W_x", "32-bit");
    model_weights_free(&w);
    w = one_row(1, 64.0f); /* 2^15 steps on the coarsest grid */
    EXPECT_REFUSED(&w, "gate g", "W_x", "16 bits", "64");
    w.w_x[0][2] = nextafterf(64.0f, 0); /* rounds up to 64 in binary16 */
    EXPECT_REFUSED(&w, "16 bits");
    w.w_x[0][2] = 63.96875f;
    free(quantise(&w));
    w.w_x[0][2] = 0;
    w.w_h[0][3] = 2048.0f; /* gate o, half scale: 2^15 steps of 2^-5 */
    EXPECT_REFUSED(&w, "gate o", "W_h");
    w.w_h[0][3] = 2047.0f; /* 1023.5 fits its 16 bits, and alone the 2,048 of the row's sum */
    free(quantise(&w));
    w.w_x[0][3] = 127.0f; /* half of it times 16: 1,015.5 more */
    w.bias[0][3] = 18.0f; /* 9 more: 2,047.5 */
    free(quantise(&w));
    w.bias[0][3] = 20.0f;
    EXPECT_REFUSED(&w, "gate o", "pre-activation", "2048");
    w.bias[0][3] = -20.0f;
    EXPECT_REFUSED(&w, "gate o", "pre-activation");
    w.bias[0][3] = 5000.0f;
    EXPECT_REFUSED(&w, "gate o", "bias", "5000");
    model_weights_free(&w);
}

static void not_finite_is_refused(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct model_weights w = model_random(4, 2, (const uint32_t[]){3, 2}, 3, 1, 1);
        struct {
            float *at;
            const char *what;
        } spots[] = {{&w.w_x[1][7], "layer 1, W_x, row 2, column 1"},
                     {&w.w_h[0][35], "layer 0, W_h, row 11, column 2"},
                     {&w.bias[1][7], "layer 1, bias, row 7"},
                     {&w.head_w[5], "class 2, column 1"},
                     {&w.head_bias[2], "class 2: bias"}};
        for (size_t s = 0; s < sizeof(spots) / sizeof(spots[0]); s++) {
            float keep = *spots[s].at;
            *spots[s].at = bad[i];
            EXPECT_REFUSED(&w, spots[s].what, "not finite");
            *spots[s].at = keep;
        }
        model_weights_free(&w);
    }
}

static double steps_max(const uint16_t *w, uint32_t n, int frac)
{
    double most = 0;
    for (uint32_t k = 0; k < n; k++)
        most = fmax(most, ldexp(fabs(fp16_to_double(w[k])), frac));
    return most;
}

/* Every row of W_h, and of W_x above layer 0, on the finest grid on which 127 steps reach its largest weight:
 * that weight has 64 to 127 steps. Layer 0's W_x is as with FP16 weights. */
static void int8_rows_use_their_seven_bits(void **state)
{
    (void)state;
    struct model_weights w = model_random(10, 3, (const uint32_t[]){20, 70, 5}, 3, 1, 8);
    w.w_h[1][0] = 0.6f; /* row of its own size: unit 0, gate i, half scale */
    struct kl_image_header *fp16 = quantise(&w), *int8;
    char error[MODEL_ERROR_CHARS];
    if (model_quantise_int8(&w, &int8, error))
        fail_msg("%s", error);
    assert_int_equal(model_image_check(int8, int8->size_bytes, error), 0);
    assert_int_equal(int8->size_bytes, fp16->size_bytes);
    for (uint32_t l = 0; l < 3; l++) {
        struct layer_view v = view(int8, l), v16 = view(fp16, l);
        uint32_t n_hidden = int8->n_hidden[l], n_in = l ? int8->n_hidden[l - 1] : int8->n_in;
        for (uint32_t row = 0; row < 4 * n_hidden; row++) {
            double h = steps_max(v.w_h + (size_t)row * n_hidden, n_hidden, v.w_h_frac[row]);
            double x = steps_max(v.w_x + (size_t)row * n_in, n_in, v.w_x_frac[row]);
            assert_true(h <= 127 && h >= 63.5);
            if (l)
                assert_true(x <= 127 && x >= 63.5);
            /* The nearest step, and a half at most away. */
            uint32_t from = row % 4 * n_hidden + row / 4;
            double scale = row % 4 == 2 ? 1 : 0.5;
            for (uint32_t k = 0; k < n_hidden; k++)
                assert_true(fabs(fp16_to_double(v.w_h[(size_t)row * n_hidden + k]) -
                                 scale * (double)w.w_h[l][(size_t)from * n_hidden + k]) <=
                            ldexp(0.5, -v.w_h_frac[row]));
        }
        assert_memory_equal(v.bias, v16.bias, 16 * n_hidden);
        assert_int_equal(model_matrix_is_int8(int8, l, MODEL_W_H), 1);
        assert_int_equal(model_matrix_is_int8(int8, l, MODEL_W_X), l > 0);
        assert_int_equal(model_matrix_is_int8(fp16, l, MODEL_W_H), 0);
        assert_int_equal(model_matrix_is_int8(fp16, l, MODEL_W_X), 0);
        if (!l) {
            assert_memory_equal(v.w_x_frac, v16.w_x_frac, 4 * n_hidden);
            assert_memory_equal(v.w_x, v16.w_x, 8 * n_hidden * n_in);
        }
    }
    assert_int_equal(view(int8, 1).w_h_frac[0], 8); /* 0.3 * 2^8 = 76.8 */
    free(fp16);
    free(int8);
    model_weights_free(&w);
}

static void what_eight_bits_cannot_hold_is_refused(void **state)
{
    (void)state;
    struct model_weights w = model_random(2, 2, (const uint32_t[]){2, 1}, 2, 0, 1);
    struct kl_image_header *image;
    char error[MODEL_ERROR_CHARS];
    /* The coarsest grid is 2^-5: gate g, at full scale, reaches 127 / 32. */
    w.w_h[0][4 * 2 + 1] = 3.984f; /* 127.49 steps, rounded down */
    assert_int_equal(model_quantise_int8(&w, &image, error), 0);
    assert_int_equal(view(image, 0).w_h_frac[2], 5);
    assert_true(fp16_to_double(view(image, 0).w_h[2 * 2 + 1]) == 127.0 / 32);
    free(image);
    w.w_h[0][4 * 2 + 1] = 3.985f; /* 127.52 */
    assert_int_equal(model_quantise_int8(&w, &image, error), -1);
    assert_non_null(
        strstr(error, "layer 0, unit 0, gate g, W_h from column 1: weight does not fit in 8 bits"));
    assert_non_null(strstr(error, "FP16"));
    free(quantise(&w));
    w.w_h[0][4 * 2 + 1] = 0;
    w.w_x[1][3 * 2] = -8; /* layer 1, gate o: 128 steps at half scale */
    assert_int_equal(model_quantise_int8(&w, &image, error), -1);
    assert_non_null(strstr(error, "layer 1, unit 0, gate o, W_x from column 0"));
    w.w_x[1][3 * 2] = 0;
    w.w_x[0][3] = 8; /* layer 0's W_x has 16 bits */
    assert_int_equal(model_quantise_int8(&w, &image, error), 0);
    free(image);
    /* Zeros have any size. */
    w.w_x[0][3] = 0;
    free(quantise(&w));
    assert_int_equal(model_quantise_int8(&w, &image, error), 0);
    assert_int_equal(view(image, 0).w_h_frac[0], KL_W_FRAC_MAX);
    free(image);
    model_weights_free(&w);
}

static void shapes_beyond_the_build_are_refused(void **state)
{
    (void)state;
    struct model_weights w = model_random(4, 1, (const uint32_t[]){3}, 3, 1, 1);
    struct model_weights bad = w;
    bad.n_in = KL_N_IN_MAX + 1;
    EXPECT_REFUSED(&bad, "inputs");
    bad = w, bad.n_in = 0;
    EXPECT_REFUSED(&bad, "inputs");
    bad = w, bad.n_layer = KL_N_LAYER_MAX + 1;
    EXPECT_REFUSED(&bad, "layers");
    bad = w, bad.n_layer = 0;
    EXPECT_REFUSED(&bad, "layers");
    bad = w, bad.n_class = 1;
    EXPECT_REFUSED(&bad, "classes");
    bad = w, bad.n_class = KL_N_CLASS_MAX + 1;
    EXPECT_REFUSED(&bad, "classes");
    bad = w, bad.n_hidden[0] = KL_N_HIDDEN_MAX + 1;
    EXPECT_REFUSED(&bad, "hidden");
    bad = w, bad.n_hidden[0] = 65536 + 3; /* must not wrap into the header's 16 bits */
    EXPECT_REFUSED(&bad, "hidden");
    bad = w, bad.n_hidden[0] = 0;
    EXPECT_REFUSED(&bad, "hidden");
    model_weights_free(&w);
}

static void head_has_one_grid(void **state)
{
    (void)state;
    struct model_weights w = model_random(2, 1, (const uint32_t[]){2}, 3, 0, 1);
    const float head[6] = {0.25f, -0.125f, 3.0f, 0.001f, 0, -1.5f};
    memcpy(w.head_w, head, sizeof(head));
    w.head_bias[1] = -0.75f;
    struct kl_image_header *image = quantise(&w);
    const int64_t *bias = (const void *)view(image, 0).end;
    const uint16_t *got = (const void *)((const uint8_t *)bias + 24);
    assert_int_equal(image->head_frac, 13); /* 3 * 2^13 < 2^15 */
    for (int i = 0; i < 6; i++)
        assert_int_equal(got[i], fp16_from_double((double)head[i], 13, 32767));
    assert_true(bias[1] == -(int64_t)(3 << 26)); /* 0.75 * 2^(13 + 15) */
    free(image);
    w.head_bias[1] = 1e6f; /* grid gives way to the bias: 1e6 * 2^(frac + 15) <= 2^52 */
    image = quantise(&w);
    assert_int_equal(image->head_frac, 13);
    free(image);
    w.head_bias[1] = 4e7f;
    image = quantise(&w);
    assert_int_equal(image->head_frac, 11);
    free(image);
    w.head_bias[1] = 1e12f;
    EXPECT_REFUSED(&w, "head");
    w.head_bias[1] = 0;
    w.head_w[0] = 40000.0f;
    EXPECT_REFUSED(&w, "head");
    model_weights_free(&w);
}

/* Every change of an image is found: by the hash, and with the hash made right again by what it breaks. */
static void damaged_images_are_refused(void **state)
{
    (void)state;
    struct model_weights w = model_random(3, 2, (const uint32_t[]){3, 1}, 3, 1, 5);
    struct kl_image_header *image = quantise(&w);
    size_t size_bytes = image->size_bytes;
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(model_image_check(image, size_bytes, error), 0);
    uint8_t *bytes = (uint8_t *)image;
    for (size_t i = 0; i < size_bytes; i++) {
        bytes[i] ^= 0x40;
        assert_int_equal(model_image_check(image, size_bytes, error), -1);
        bytes[i] ^= 0x40;
    }
    for (size_t n = 0; n < size_bytes; n++)
        assert_int_equal(model_image_check(image, n, error), -1);

    struct layer_view v = view(image, 0);
    struct {
        const void *at;
        uint8_t value;
        const char *why;
    } edits[] = {
        {&image->pad0[1], 1, "padding"},
        {&image->pad2[23], 1, "padding"},
        {&image->pad1, 1, "padding"},
        {v.w_x_frac, 25, "grids"},
        {v.w_x_frac, 8, "grids"},
        {v.w_h_frac, 4, "grids"},
        {v.w_h_frac + 12, 1, "padding"}, /* 12 rows, 4 bytes of padding */
        {(const uint8_t *)v.w_x + 1, 0x7c, "16 bits"},
        {(const uint8_t *)v.w_h + 1, 0x7e, "16 bits"},
        {&image->head_frac, 25, "head"},
        {&image->head_frac, 24, "head"},
        {&image->n_class, 9, "classes"},
        {&image->n_class, 2, "bytes"},
        {&image->n_hidden[2], 1, "layer 2"},
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        uint8_t *at = bytes + ((const uint8_t *)edits[i].at - bytes), keep = *at;
        *at = edits[i].value;
        image->image_hash = kl_image_hash(image, size_bytes);
        if (!model_image_check(image, size_bytes, error))
            fail_msg("edit %zu accepted", i);
        if (!strstr(error, edits[i].why))
            fail_msg("edit %zu: '%s' does not say '%s'", i, error, edits[i].why);
        *at = keep;
    }
    image->image_hash = kl_image_hash(image, size_bytes);
    assert_int_equal(model_image_check(image, size_bytes, error), 0);
    free(image);
    model_weights_free(&w);
}

static void off_grid_images_are_refused(void **state)
{
    (void)state;
    struct model_weights w = model_random(1, 1, (const uint32_t[]){1}, 2, 0, 1);
    struct kl_image_header *image = quantise(&w); /* all zero, so every grid is 2^-24 */
    struct layer_view v = view(image, 0);
    char error[MODEL_ERROR_CHARS];
    uint8_t *bytes = (uint8_t *)image, *w_x_frac = bytes + (v.w_x_frac - bytes);
    uint16_t *w_x = (void *)(bytes + ((const uint8_t *)v.w_x - bytes));
    int64_t *head_bias = (void *)(bytes + (v.end - bytes));
    w_x[0] = 0x0001; /* 2^-24 */
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), 0);
    w_x_frac[0] = 23;
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), -1);
    assert_non_null(strstr(error, "off its grid"));
    w_x[0] = 0x8002; /* -2^-23 */
    head_bias[1] = -((int64_t)1 << KL_HEAD_BIAS_BITS);
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), 0);
    head_bias[1]--;
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), -1);
    assert_non_null(strstr(error, "class 1"));
    head_bias[1] = ((int64_t)1 << KL_HEAD_BIAS_BITS) + 1;
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), -1);
    free(image);
    model_weights_free(&w);
}

/* An image that someone else wrote: each number alone is valid, the sums are not. */
static void overflowing_images_are_refused(void **state)
{
    (void)state;
    struct model_weights w = model_random(64, 1, (const uint32_t[]){1}, 2, 0, 1);
    struct kl_image_header *image = quantise(&w);
    struct layer_view v = view(image, 0);
    char error[MODEL_ERROR_CHARS];
    uint8_t *bytes = (uint8_t *)image;
    uint16_t *w_x = (void *)(bytes + ((const uint8_t *)v.w_x - bytes));
    int32_t *bias = (void *)(bytes + ((const uint8_t *)v.bias - bytes));
    const uint16_t step_1025 = fp16_from_double(ldexp(1025, -24), 24, 32767);
    for (int k = 0; k < 64; k++)
        w_x[k] = step_1025; /* grid 2^-24: 65,600 steps */
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), -1);
    assert_non_null(strstr(error, "32-bit"));
    for (int k = 0; k < 64; k++)
        w_x[k] = fp16_from_double(ldexp(k ? 1024 : 1056, -24), 24, 32767);
    /* 65,568 steps times 32,752 is below 2^31, but not with half of 2^15 for the rounding. */
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), -1);
    assert_non_null(strstr(error, "32-bit"));
    for (int k = 0; k < 64; k++)
        w_x[k] = step_1025;
    w_x[0] = 0; /* 64,575: fits */
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), 0);
    /* The row: this block adds at most (64575 * 32752 + half) >> 15 to the bias. */
    const int32_t block = (int32_t)(((int64_t)64575 * 32752 + (1 << 14)) >> 15);
    bias[0] = -(INT32_MAX - block);
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), 0);
    bias[0]--;
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), -1);
    assert_non_null(strstr(error, "pre-activation"));
    bias[0] = INT32_MIN;
    image->image_hash = kl_image_hash(image, image->size_bytes);
    assert_int_equal(model_image_check(image, image->size_bytes, error), -1);
    free(image);
    model_weights_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_unit_major_and_sigmoid_gates_half),
        cmocka_unit_test(grid_is_the_finest_that_fits),
        cmocka_unit_test(too_large_for_any_grid_is_refused),
        cmocka_unit_test(not_finite_is_refused),
        cmocka_unit_test(int8_rows_use_their_seven_bits),
        cmocka_unit_test(what_eight_bits_cannot_hold_is_refused),
        cmocka_unit_test(shapes_beyond_the_build_are_refused),
        cmocka_unit_test(head_has_one_grid),
        cmocka_unit_test(damaged_images_are_refused),
        cmocka_unit_test(off_grid_images_are_refused),
        cmocka_unit_test(overflowing_images_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
