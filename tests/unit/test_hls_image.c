#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernel_rig.h"
#include "tests/model_image.h"

/* 12 and 20 rows, 3 * 5 head weights: padding behind the row grids and the head. */
static const struct model_image_shape SHAPE = {.n_in = 3, .n_layer = 2, .n_class = 3, .n_hidden = {3, 5}};

static const struct kl_build *const build = &kl_build_fast;
static struct kl_unit *unit;
static struct kl_image_header *image;
static uint8_t *byte;                /* image */
static struct model_image_layout at; /* layer 0 */

static int set_up(void **state)
{
    (void)state;
    unit = kernel_rig_unit(build, 0, 1);
    image = model_image_new(&SHAPE, 1);
    if (!unit || !image)
        return -1;
    byte = (uint8_t *)image;
    at = model_image_layer(image, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(image);
    free(unit);
    return 0;
}

/* From a block of just its size: reading beyond it is seen by AddressSanitizer. */
static uint32_t load_bytes(const void *bytes, size_t size_bytes)
{
    uint8_t *exact = malloc(size_bytes ? size_bytes : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, size_bytes);
    const uint32_t status = kernel_rig_load_bytes(build, unit, 0, exact, size_bytes);
    free(exact);
    return status;
}

static uint32_t load(void)
{
    return load_bytes(image, image->size_bytes);
}

static uint32_t load_sealed(void)
{
    model_image_seal(image);
    return load();
}

static int is_empty(void)
{
    struct kl_info info;
    build->info(unit, &info);
    const int empty = kernel_rig_op(build, unit, KL_OP_PREPARE, 0, 0).status == KL_E_EMPTY;
    assert_int_equal(info.image_hash[0], empty ? 0 : image->image_hash);
    return empty;
}

static void put_u16(size_t offset, uint16_t value)
{
    memcpy(byte + offset, &value, sizeof value);
}

static void put_i32(size_t offset, int32_t value)
{
    memcpy(byte + offset, &value, sizeof value);
}

static void put_i64(size_t offset, int64_t value)
{
    memcpy(byte + offset, &value, sizeof value);
}

/* The image with this edit is refused whole or re-sealed; without it, it loads again. */
static void assert_refused_u8(size_t offset, uint8_t value, uint32_t status)
{
    const uint8_t old = byte[offset];
    assert_int_equal(load_sealed(), KL_OK);
    byte[offset] = value;
    assert_int_equal(load_sealed(), status);
    assert_true(is_empty());
    byte[offset] = old;
    assert_int_equal(load_sealed(), KL_OK);
    assert_false(is_empty());
}

static void hash_is_over_words_without_its_own_field(void **state)
{
    (void)state;
    /* The generator's published first output from 1. */
    assert_int_equal(kl_image_hash_word(0, 1), 1082269761);
    /* Eight words, one of them the field's own. */
    uint64_t words[8] = {0};
    uint64_t hash = KL_HASH_START;
    words[7] = 1;
    for (int i = 0; i < 7; i++)
        hash = kl_image_hash_word(hash, words[i + (i >= 4)]);
    assert_int_equal(kl_image_hash(words, sizeof words), hash);
    words[7] = 0;
    const uint64_t of_zeros = kl_image_hash(words, sizeof words);
    /* Every bit counts, but for the field itself. */
    for (size_t i = 0; i < 64; i++) {
        for (int bit = 0; bit < 8; bit++) {
            uint8_t one[64] = {0};
            one[i] = (uint8_t)(1 << bit);
            assert_int_equal(kl_image_hash(one, sizeof one) == of_zeros, i >= 32 && i < 40);
        }
    }
    /* A last part of a word counts as filled up with zeros; no byte beyond it is read. */
    const uint8_t part[3] = {7, 8, 9};
    const uint8_t whole[8] = {7, 8, 9};
    assert_int_equal(kl_image_hash(part, 3), kl_image_hash(whole, 8));
}

static void every_damaged_bit_is_refused(void **state)
{
    (void)state;
    assert_int_equal(load(), KL_OK);
    const uint32_t size_bytes = image->size_bytes;
    for (uint32_t i = 0; i < size_bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            byte[i] ^= (uint8_t)(1 << bit);
            const uint32_t status = load_bytes(image, size_bytes);
            byte[i] ^= (uint8_t)(1 << bit);
            /* Behind the header the hash tells, whatever else is wrong. */
            if (i >= sizeof *image || (i >= KL_IMAGE_HASH_AT && i < KL_IMAGE_HASH_AT + 8))
                assert_int_equal(status, KL_E_IMAGE_HASH);
            else
                assert_true(status == KL_E_ABI || status == KL_E_IMAGE || status == KL_E_IMAGE_HASH);
            assert_true(is_empty());
        }
    }
    assert_int_equal(load(), KL_OK);
    assert_false(is_empty());
}

static void every_wrong_size_is_refused(void **state)
{
    (void)state;
    const uint32_t right = image->size_bytes;
    uint8_t *longer = calloc(1, right + 64);
    assert_non_null(longer);
    memcpy(longer, image, right);
    for (uint32_t size = 0; size < right + 64; size++)
        assert_int_equal(load_bytes(longer, size), size == right ? KL_OK : KL_E_IMAGE);
    /* Cut or extended, and the header agrees, but not the shape. */
    struct kl_image_header *header = (struct kl_image_header *)(void *)longer;
    for (uint32_t size = sizeof *header; size < right + 64; size++) {
        header->size_bytes = size;
        header->image_hash = kl_image_hash(longer, size);
        assert_int_equal(load_bytes(longer, size), size == right ? KL_OK : KL_E_IMAGE);
    }
    /* The length is right, the header says otherwise. */
    header->size_bytes = right + 8;
    header->image_hash = kl_image_hash(longer, right);
    assert_int_equal(load_bytes(longer, right), KL_E_IMAGE);
    free(longer);
}

static void a_size_beyond_32_bits_is_refused(void **state)
{
    (void)state;
    /* None may be taken modulo 2^32, nor may more than the header be read. */
    const size_t claims[] = {((size_t)1 << 32) + image->size_bytes, UINT32_MAX, (size_t)1 << 32, SIZE_MAX,
                             SIZE_MAX - 7};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        struct kl_image_header *header = malloc(sizeof *header);
        assert_non_null(header);
        *header = *image;
        for (int as_claimed = 0; as_claimed < 2; as_claimed++) {
            if (as_claimed)
                header->size_bytes = (uint32_t)claims[i];
            assert_int_equal(kernel_rig_load_bytes(build, unit, 0, header, claims[i]), KL_E_IMAGE);
            assert_true(is_empty());
        }
        free(header);
    }
}

static void any_alignment_will_do(void **state)
{
    (void)state;
    for (size_t offset = 1; offset < 8; offset++) {
        uint8_t *shifted = malloc(image->size_bytes + offset);
        assert_non_null(shifted);
        memcpy(shifted + offset, image, image->size_bytes);
        assert_int_equal(kernel_rig_load_bytes(build, unit, 0, shifted + offset, image->size_bytes), KL_OK);
        free(shifted);
    }
}

/* The first of these that is wrong with an image decides; all that come behind it are wrong as well. */
static void verdicts_have_an_order(void **state)
{
    (void)state;
    const size_t weight = at.w_x;
    for (int first = 0; first < 6; first++) {
        struct kl_image_header *header = image;
        uint32_t expected = KL_OK;
        free(image);
        const struct model_image_shape beyond = {.n_in = 129, .n_layer = 1, .n_class = 2, .n_hidden = {2}};
        header = image = model_image_new(first <= 3 ? &beyond : &SHAPE, 1);
        assert_non_null(image);
        byte = (uint8_t *)image;
        const uint16_t nan = 0x7e00;
        memcpy(byte + (first <= 3 ? model_image_layer(image, 0).w_x : weight), &nan, sizeof nan);
        model_image_seal(header);
        header->image_hash ^= first <= 4;
        switch (first) {
        case 0:
            header->magic++;
            header->abi_version++;
            header->n_class = 0;
            expected = KL_E_IMAGE;
            break;
        case 1:
            header->abi_version++;
            header->n_class = 0;
            expected = KL_E_ABI;
            break;
        case 2:
            header->n_class++; /* the size no longer fits; beyond the build as well */
            expected = KL_E_IMAGE;
            break;
        case 3:
            expected = KL_E_SHAPE;
            break;
        case 4:
            expected = KL_E_IMAGE_HASH;
            break;
        default:
            expected = KL_E_IMAGE;
            break;
        }
        assert_int_equal(load(), expected);
        assert_true(is_empty());
    }
}

static void every_header_field_is_checked(void **state)
{
    (void)state;
    assert_refused_u8(0, 'k', KL_E_IMAGE);
    assert_refused_u8(offsetof(struct kl_image_header, abi_version), KL_ABI_VERSION + 1, KL_E_ABI);
    assert_refused_u8(offsetof(struct kl_image_header, abi_version), 0, KL_E_ABI);
    const size_t n_hidden = offsetof(struct kl_image_header, n_hidden);
    const struct {
        size_t offset;
        uint8_t value;
    } bad[] = {
        {offsetof(struct kl_image_header, n_layer), 0},
        {offsetof(struct kl_image_header, n_layer), 1},
        {offsetof(struct kl_image_header, n_layer), 3},
        {offsetof(struct kl_image_header, n_layer), KL_N_LAYER_MAX + 1},
        {offsetof(struct kl_image_header, n_layer) + 1, 1},
        {offsetof(struct kl_image_header, n_in), 0},
        {offsetof(struct kl_image_header, n_in) + 1, 1}, /* 259 */
        {offsetof(struct kl_image_header, n_in), 4},
        {offsetof(struct kl_image_header, n_class), 0},
        {offsetof(struct kl_image_header, n_class), KL_N_CLASS_MAX + 1},
        {n_hidden, 0},
        {n_hidden + 1, 1}, /* 259 */
        {n_hidden + 2, 6},
        {n_hidden + 4, 1}, /* a layer that is not there */
        {n_hidden + 6, 1},
        {offsetof(struct kl_image_header, head_frac), KL_W_FRAC_MAX + 1},
        {offsetof(struct kl_image_header, pad0), 1},
        {offsetof(struct kl_image_header, pad0) + 2, 1},
        {offsetof(struct kl_image_header, pad1), 1},
        {offsetof(struct kl_image_header, pad1) + 3, 1},
        {offsetof(struct kl_image_header, pad2), 1},
        {offsetof(struct kl_image_header, pad2) + 23, 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused_u8(bad[i].offset, bad[i].value, KL_E_IMAGE);
}

static void padding_is_zero(void **state)
{
    (void)state;
    /* 12 rows: four bytes behind each row grid. */
    assert_refused_u8(at.w_x_frac + 12, 1, KL_E_IMAGE);
    assert_refused_u8(at.w_x_frac + 15, 1, KL_E_IMAGE);
    assert_refused_u8(at.w_h_frac + 12, 1, KL_E_IMAGE);
    assert_refused_u8(at.w_h_frac + 15, 1, KL_E_IMAGE);
    /* The head: 3 * 5 weights of 2 bytes, then two. */
    assert_refused_u8(image->size_bytes - 2u, 1, KL_E_IMAGE);
    assert_refused_u8(image->size_bytes - 1u, 1, KL_E_IMAGE);
}

static void row_grids_stay_in_their_range(void **state)
{
    (void)state;
    /* The shift must not be negative: x of layer 0 from 9 on, h from 5 on. Zero weights lie on every grid. */
    const struct model_image_layout upper = model_image_layer(image, 1);
    memset(byte + at.w_x, 0, 2 * 12 * 3);
    memset(byte + at.w_h, 0, 2 * 12 * 3);
    memset(byte + upper.w_x, 0, 2 * 20 * 3);
    memset(byte + upper.w_h, 0, 2 * 20 * 5);
    const struct {
        size_t offset;
        uint8_t lowest;
    } grid[] = {{at.w_x_frac, 9},    {at.w_x_frac + 11, 9},    {at.w_h_frac, 5},       {at.w_h_frac + 11, 5},
                {upper.w_x_frac, 5}, {upper.w_x_frac + 19, 5}, {upper.w_h_frac + 7, 5}};
    for (size_t i = 0; i < sizeof grid / sizeof *grid; i++) {
        const uint8_t old = byte[grid[i].offset];
        byte[grid[i].offset] = grid[i].lowest;
        assert_int_equal(load_sealed(), KL_OK);
        byte[grid[i].offset] = KL_W_FRAC_MAX;
        assert_int_equal(load_sealed(), KL_OK);
        byte[grid[i].offset] = old;
        assert_refused_u8(grid[i].offset, (uint8_t)(grid[i].lowest - 1), KL_E_IMAGE);
        assert_refused_u8(grid[i].offset, KL_W_FRAC_MAX + 1, KL_E_IMAGE);
        assert_refused_u8(grid[i].offset, 255, KL_E_IMAGE);
    }
}

static void weights_lie_exactly_on_their_grid(void **state)
{
    (void)state;
    const struct model_image_layout upper = model_image_layer(image, 1);
    /* First and last weight of each matrix, and of the head; all on the 2^-13 grid. */
    const size_t weight[] = {at.w_x,
                             at.w_x + 2 * 35,
                             at.w_h,
                             at.w_h + 2 * 35,
                             upper.w_x,
                             upper.w_x + 2 * 59,
                             upper.w_h,
                             upper.w_h + 2 * 99,
                             model_image_head_w(image),
                             model_image_head_w(image) + 2 * 14};
    const uint16_t good[] = {0, 0x8000, 0x0800 /* 2^-13 */, 0x8800, 0x3c00 /* 1 */};
    const uint16_t bad[] = {
        0x0400 /* 2^-14 */,           0x0001, 0x7c00 /* inf */, 0xfc00, 0x7e00 /* NaN */, 0x7fff,
        0x4400 /* 4 is 2^15 steps */, 0xc400};
    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++) {
        uint16_t old;
        memcpy(&old, byte + weight[i], sizeof old);
        for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
            put_u16(weight[i], good[k]);
            assert_int_equal(load_sealed(), KL_OK);
        }
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            put_u16(weight[i], bad[k]);
            assert_int_equal(load_sealed(), KL_E_IMAGE);
            assert_true(is_empty());
        }
        put_u16(weight[i], old);
        assert_int_equal(load_sealed(), KL_OK);
    }
}

/* An image of one layer, 64 inputs, one unit, on these grids, with zero weights. */
static void zero_image(uint8_t x_frac, uint8_t h_frac)
{
    const struct model_image_shape shape = {.n_in = 64, .n_layer = 1, .n_class = 1, .n_hidden = {1}};
    free(image);
    image = model_image_new(&shape, 1);
    assert_non_null(image);
    byte = (uint8_t *)image;
    at = model_image_layer(image, 0);
    memset(byte + at.w_x_frac, x_frac, 4);
    memset(byte + at.w_h_frac, h_frac, 4);
    memset(byte + at.bias, 0, at.end - at.bias);
}

static void block_bound_is_exact(void **state)
{
    (void)state;
    /* Grid 2^-9, shift 0: the steps of a row may sum up to 65,568, of either sign. */
    for (int extra = 0; extra <= 1; extra++) {
        zero_image(9, 5);
        for (int k = 0; k < 64; k++) {
            const int32_t steps = 1024 + (k < 32) + (k == 63 ? extra : 0);
            put_u16(at.w_x + 2 * (size_t)k, model_image_half(k % 3 ? steps : -steps, 9));
        }
        assert_int_equal(load_sealed(), extra ? KL_E_IMAGE : KL_OK);
    }
    /* With the rounding half of shift 10 (512) in the sum, 65,568 steps are one too many: 511 were left. */
    for (int extra = 0; extra <= 1; extra++) {
        zero_image(19, 5);
        for (int k = 0; k < 64; k++)
            put_u16(at.w_x + 2 * (size_t)k, model_image_half(1024 + (k < 31) + (k == 63 ? extra : 0), 19));
        assert_int_equal(load_sealed(), extra ? KL_E_IMAGE : KL_OK);
    }
}

static void blocks_end_after_64_operands(void **state)
{
    (void)state;
    /* Grid 2^-10, shift 1: a block may have 65,568 steps. Two such blocks, full up to their common border. */
    const struct model_image_shape shape = {.n_in = 128, .n_layer = 1, .n_class = 1, .n_hidden = {1}};
    for (int moved = -1; moved <= 1; moved++) {
        free(image);
        image = model_image_new(&shape, 1);
        assert_non_null(image);
        byte = (uint8_t *)image;
        at = model_image_layer(image, 0);
        memset(byte + at.w_x_frac, 10, 4);
        memset(byte + at.w_h_frac, 5, 4);
        memset(byte + at.bias, 0, at.end - at.bias);
        /* 2 * 32752 + 64, at the border and its far side, one step too many in either block. */
        const int32_t first = 64 + (moved < 0), second = 64 + (moved > 0);
        const int32_t steps[][2] = {{61, first}, {62, 32752}, {63, 32752},
                                    {64, 32752}, {65, 32752}, {66, second}};
        for (size_t k = 0; k < 6; k++)
            put_u16(at.w_x + 2 * (size_t)steps[k][0], model_image_half(steps[k][1], 10));
        assert_int_equal(load_sealed(), moved ? KL_E_IMAGE : KL_OK);
    }
}

static void row_bound_is_exact(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int32_t extra = 0; extra <= 1; extra++) {
            /* x and h each at 16 * 32752 steps, shift 0; the bias may be what is left of 2^31 - 1. */
            zero_image(9, 5);
            put_u16(at.w_x + 2 * 63, model_image_half(16, 9));
            put_u16(at.w_h, model_image_half(-16, 5));
            put_i32(at.bias, sign * (INT32_MAX - 2 * 16 * 32752 + extra));
            assert_int_equal(load_sealed(), extra ? KL_E_IMAGE : KL_OK);
        }
    }
    /* All blocks of both matrices count. */
    const struct model_image_shape shape = {.n_in = 128, .n_layer = 1, .n_class = 1, .n_hidden = {1}};
    for (int32_t extra = 0; extra <= 1; extra++) {
        free(image);
        image = model_image_new(&shape, 1);
        assert_non_null(image);
        byte = (uint8_t *)image;
        at = model_image_layer(image, 0);
        memset(byte + at.w_x_frac, 9, 4);
        memset(byte + at.w_h_frac, 5, 4);
        memset(byte + at.bias, 0, at.end - at.bias);
        const size_t k[] = {0, 64, 127};
        for (int i = 0; i < 3; i++)
            put_u16(at.w_x + 2 * k[i], model_image_half(16, 9));
        put_u16(at.w_h, model_image_half(16, 5));
        put_i32(at.bias, INT32_MAX - 4 * 16 * 32752 + extra);
        assert_int_equal(load_sealed(), extra ? KL_E_IMAGE : KL_OK);
    }
    zero_image(9, 5);
    put_i32(at.bias + 12, INT32_MIN);
    assert_int_equal(load_sealed(), KL_E_IMAGE);
    put_i32(at.bias + 12, -INT32_MAX);
    assert_int_equal(load_sealed(), KL_OK);
}

static void head_bias_is_bounded(void **state)
{
    (void)state;
    const size_t head = model_image_head_bias(image);
    const int64_t limit = 1LL << KL_HEAD_BIAS_BITS;
    for (size_t k = 0; k < SHAPE.n_class; k++) {
        const int64_t good[] = {limit, -limit}, bad[] = {limit + 1, -limit - 1, INT64_MAX, INT64_MIN};
        for (int i = 0; i < 2; i++) {
            put_i64(head + 8 * k, good[i]);
            assert_int_equal(load_sealed(), KL_OK);
        }
        for (int i = 0; i < 4; i++) {
            put_i64(head + 8 * k, bad[i]);
            assert_int_equal(load_sealed(), KL_E_IMAGE);
        }
        put_i64(head + 8 * k, 0);
    }
}

static void head_grid_ends_at_binary16s_own(void **state)
{
    (void)state;
    /* Zero weights lie on every grid, so that only the range of head_frac decides. */
    const size_t head = model_image_head_w(image);
    memset(byte + head, 0, image->size_bytes - head);
    for (int frac = 0; frac <= KL_W_FRAC_MAX + 1; frac++) {
        image->head_frac = (uint8_t)frac;
        assert_int_equal(load_sealed(), frac <= KL_W_FRAC_MAX ? KL_OK : KL_E_IMAGE);
    }
    image->head_frac = 255;
    assert_int_equal(load_sealed(), KL_E_IMAGE);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(hash_is_over_words_without_its_own_field),
        TEST(every_damaged_bit_is_refused),
        TEST(every_wrong_size_is_refused),
        TEST(a_size_beyond_32_bits_is_refused),
        TEST(any_alignment_will_do),
        TEST(verdicts_have_an_order),
        TEST(every_header_field_is_checked),
        TEST(padding_is_zero),
        TEST(row_grids_stay_in_their_range),
        TEST(weights_lie_exactly_on_their_grid),
        TEST(block_bound_is_exact),
        TEST(blocks_end_after_64_operands),
        TEST(row_bound_is_exact),
        TEST(head_bias_is_bounded),
        TEST(head_grid_ends_at_binary16s_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
