/* Model images that are not right: the cpu backend says of the same bytes what the kernel says. */
#include "test_accel_cpu_rig.h"

#include "tests/model_image.h"

enum { N_FLIP = 400, SLOT = 0 };

static const struct model_image_shape SHAPE = {.n_in = 11, .n_layer = 2, .n_class = 3, .n_hidden = {9, 5}};

static struct accel *csim, *cpu;
static uint8_t *copy; /* at an odd address */
static uint8_t *memory;
static struct kl_image_header *image;

static int set_up(void **state)
{
    (void)state;
    csim = accel_csim_open(&kl_build_small, 1);
    cpu = rig_open(ACCEL_CPU_PORTABLE, &kl_build_small); /* the loader is the same for all */
    image = model_image_new(&SHAPE, 5);
    memory = malloc(image->size_bytes + 64);
    copy = memory + 1;
    return csim && memory ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    csim->ops->close(csim);
    cpu->ops->close(cpu);
    free(memory);
    free(image);
    return 0;
}

static void seal_copy(uint32_t size_bytes)
{
    const uint64_t hash = kl_image_hash(copy, size_bytes);
    memcpy(copy + KL_IMAGE_HASH_AT, &hash, sizeof hash);
}

/* Loads size_bytes of copy into both. */
static uint32_t verdict(size_t size_bytes)
{
    const uint32_t expected = accel_load(csim, SLOT, copy, size_bytes);
    const uint32_t got = accel_load(cpu, SLOT, copy, size_bytes);
    assert_int_equal(got, expected);
    const struct kl_request request = {.abi_version = KL_ABI_VERSION, .op = KL_OP_STEP, .slot = SLOT};
    const struct kl_result from_csim = rig_answer(csim, &request), from_cpu = rig_answer(cpu, &request);
    rig_assert_same(&from_cpu, &from_csim, "after the load");
    assert_int_equal(from_cpu.status, expected == KL_OK ? KL_OK : KL_E_EMPTY);
    return expected;
}

static void take_copy(void)
{
    memcpy(copy, image, image->size_bytes);
}

static void a_right_one_at_any_address(void **state)
{
    (void)state;
    take_copy();
    assert_int_equal(verdict(image->size_bytes), KL_OK);
}

static void cut_short_or_too_long(void **state)
{
    (void)state;
    const size_t sizes[] = {0,
                            1,
                            8,
                            63,
                            64,
                            65,
                            128,
                            image->size_bytes - 8,
                            image->size_bytes - 1,
                            image->size_bytes + 1,
                            image->size_bytes + 8};
    take_copy();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(verdict(sizes[i]), KL_E_IMAGE);
}

/* Every bit of the header and some of the rest, with the hash as it was and made right. */
static void flipped_bits(void **state)
{
    (void)state;
    uint64_t seed = 3;
    uint32_t n[KL_E_PEER + 1] = {0};
    for (uint32_t flip = 0; flip < 8 * sizeof *image + N_FLIP; flip++) {
        const uint32_t bit = flip < 8 * sizeof *image ? flip : tb_random_below(&seed, 8 * image->size_bytes);
        take_copy();
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        n[verdict(image->size_bytes)]++;
        seal_copy(image->size_bytes);
        n[verdict(image->size_bytes)]++;
    }
    /* All of the loader's answers were met. */
    assert_true(n[KL_OK] > 0 && n[KL_E_ABI] > 0 && n[KL_E_IMAGE] > 0 && n[KL_E_IMAGE_HASH] > 0);
}

static void put(size_t at, const void *value, size_t size_bytes)
{
    memcpy(copy + at, value, size_bytes);
}

static void single_values_off_their_limits(void **state)
{
    (void)state;
    const struct model_image_layout at[2] = {model_image_layer(image, 0), model_image_layer(image, 1)};
    const size_t head_bias = model_image_head_bias(image), head_w = model_image_head_w(image);
    const int32_t bias_min = INT32_MIN, bias_max = INT32_MAX;
    const int64_t head_max = (int64_t)1 << KL_HEAD_BIAS_BITS, above = head_max + 1, below = -head_max - 1;
    const uint8_t frac_high = KL_W_FRAC_MAX + 1, frac_low = KL_Z_FRAC - KL_X_FRAC - 1, frac_h_low = 4,
                  one = 1;
    const uint16_t infinite = 0x7c00, nan = 0x7e00, tiny = 0x0001,
                   large = 0x4400 /* 4: 2^15 steps of 2^-13 */;
    const struct {
        size_t at;
        const void *value;
        size_t size_bytes;
        uint32_t expected;
    } cases[] = {
        {at[0].bias, &bias_min, 4, KL_E_IMAGE},
        {at[0].bias, &bias_max, 4, KL_E_IMAGE},
        {at[0].w_x_frac, &frac_high, 1, KL_E_IMAGE},
        {at[0].w_x_frac, &frac_low, 1, KL_E_IMAGE},
        {at[0].w_h_frac + 35, &frac_h_low, 1, KL_E_IMAGE},
        {at[1].w_x_frac + 20, &one, 1, KL_E_IMAGE},
        {at[0].w_x, &infinite, 2, KL_E_IMAGE},
        {at[0].w_h, &nan, 2, KL_E_IMAGE},
        {at[1].w_x, &tiny, 2, KL_E_IMAGE},
        {at[1].w_h, &large, 2, KL_E_IMAGE},
        {head_bias, &head_max, 8, KL_OK},
        {head_bias, &above, 8, KL_E_IMAGE},
        {head_bias + 8, &below, 8, KL_E_IMAGE},
        {head_w, &tiny, 2, KL_E_IMAGE},
        {head_w + 2 * 3 * 5, &one, 1, KL_E_IMAGE}, /* padding */
        {at[1].w_x_frac + 20, &one, 1, KL_E_IMAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        take_copy();
        put(cases[i].at, cases[i].value, cases[i].size_bytes);
        assert_int_equal(verdict(image->size_bytes), KL_E_IMAGE_HASH);
        seal_copy(image->size_bytes);
        assert_int_equal(verdict(image->size_bytes), cases[i].expected);
    }
}

/* Row 7 of W_h: 65,567 steps times KL_H_ABS_MAX leave room for the rounding of shift 16, but not of 17. */
static void a_block_at_its_bound(void **state)
{
    (void)state;
    const struct model_image_layout at = model_image_layer(image, 0);
    enum { ROW = 7, N_HIDDEN = 9, FRAC = 16 + KL_Z_FRAC - KL_H_FRAC };
    for (uint8_t frac = FRAC; frac <= FRAC + 1; frac++) {
        const int32_t steps[N_HIDDEN] = {32752, -32752, 0, 63};
        take_copy();
        put(at.w_h_frac + ROW, &frac, 1);
        for (int k = 0; k < N_HIDDEN; k++) {
            const uint16_t w = model_image_half(steps[k], frac);
            put(at.w_h + 2 * (ROW * N_HIDDEN + (size_t)k), &w, 2);
        }
        seal_copy(image->size_bytes);
        assert_int_equal(verdict(image->size_bytes), frac == FRAC ? KL_OK : KL_E_IMAGE);
    }
}

/* Well-formed, but beyond the small build. */
static void too_large_for_the_build(void **state)
{
    (void)state;
    const struct model_image_shape shapes[] = {
        {.n_in = 129, .n_layer = 1, .n_class = 1, .n_hidden = {1}},
        {.n_in = 1, .n_layer = 3, .n_class = 1, .n_hidden = {1, 129, 1}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct kl_image_header *large = model_image_new(&shapes[i], 1);
        assert_int_equal(accel_load(csim, SLOT, large, large->size_bytes), KL_E_SHAPE);
        assert_int_equal(accel_load(cpu, SLOT, large, large->size_bytes), KL_E_SHAPE);
        free(large);
    }
}

/* A load that fails empties its slot and leaves the other alone; a second one meanwhile has to wait. */
static void loads_beside_a_running_model(void **state)
{
    (void)state;
    struct kl_info info;
    assert_int_equal(accel_load(cpu, 1, image, image->size_bytes), KL_OK);
    take_copy();
    copy[100] ^= 1;
    assert_int_equal(cpu->ops->load_begin(cpu, SLOT, copy, image->size_bytes), KL_OK);
    assert_int_equal(cpu->ops->load_begin(cpu, 1, image, image->size_bytes), KL_E_BUSY);
    assert_int_equal(cpu->ops->load_begin(cpu, KL_N_SLOT, image, image->size_bytes), KL_E_SLOT);
    uint32_t status, n_step = 0;
    while ((status = cpu->ops->load_advance(cpu)) == KL_E_BUSY) {
        struct kl_request request = {.abi_version = KL_ABI_VERSION, .op = KL_OP_STEP, .slot = 1};
        assert_int_equal(rig_answer(cpu, &request).status, KL_OK);
        request.slot = SLOT;
        assert_int_equal(rig_answer(cpu, &request).status, KL_E_EMPTY);
        n_step++;
    }
    assert_true(n_step > image->size_bytes / 64 / 2);
    assert_int_equal(status, KL_E_IMAGE_HASH);
    assert_int_equal(cpu->ops->load_advance(cpu), KL_E_EMPTY);
    cpu->ops->info(cpu, &info);
    assert_int_equal(info.image_hash[SLOT], 0);
    assert_int_equal(info.image_hash[1], image->image_hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_one_at_any_address),
        cmocka_unit_test(cut_short_or_too_long),
        cmocka_unit_test(flipped_bits),
        cmocka_unit_test(single_values_off_their_limits),
        cmocka_unit_test(a_block_at_its_bound),
        cmocka_unit_test(too_large_for_the_build),
        cmocka_unit_test(loads_beside_a_running_model),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
