#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/accel.h"
#include "tests/model_image.h"

static const struct model_image_shape SHAPE = {.n_in = 4, .n_layer = 1, .n_class = 3, .n_hidden = {8}};

static struct accel *accel;
static struct kl_image_header *image;

static int set_up(void **state)
{
    (void)state;
    accel = accel_csim_open();
    image = model_image_new(&SHAPE, 3);
    return accel && image ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    accel->ops->close(accel);
    free(image);
    return 0;
}

static struct kl_request step_request(uint32_t seq_no)
{
    struct kl_request request = {
        .abi_version = KL_ABI_VERSION, .op = KL_OP_STEP, .slot = 1, .stream = 2, .seq_no = seq_no};
    uint64_t seed = seq_no;
    for (uint32_t k = 0; k < SHAPE.n_in; k++)
        request.x[k] = model_image_random_x(&seed);
    return request;
}

static void one_request_is_outstanding_at_a_time(void **state)
{
    (void)state;
    struct kl_result result, untouched;
    memset(&result, 0xa5, sizeof result);
    untouched = result;
    assert_int_equal(accel->ops->poll(accel, &result), -1);
    assert_memory_equal(&result, &untouched, sizeof result);

    const struct kl_request first = step_request(1), second = step_request(2);
    assert_int_equal(accel->ops->submit(accel, &first), 0);
    assert_int_equal(accel->ops->submit(accel, &second), -1);
    assert_int_equal(accel->ops->poll(accel, &result), 1);
    assert_int_equal(result.seq_no, 1);
    assert_int_equal(accel->ops->poll(accel, &result), -1);
    assert_int_equal(accel->ops->submit(accel, &second), 0);
    assert_int_equal(accel->ops->poll(accel, &result), 1);
    assert_int_equal(result.seq_no, 2);
}

static void answers_are_the_kernels(void **state)
{
    (void)state;
    struct kl_core *core = aligned_alloc(64, (kl_core_size_bytes() + 63) & ~(size_t)63);
    assert_non_null(core);
    kl_core_init(core);
    assert_int_equal(kl_core_load(core, 1, image, image->size_bytes), KL_OK);
    for (uint32_t n = 0; n < 10; n++) {
        if (n == 2)
            assert_int_equal(accel->ops->load(accel, 1, image, image->size_bytes), KL_OK);
        const struct kl_request request = step_request(n);
        struct kl_result result, expected;
        assert_int_equal(accel->ops->submit(accel, &request), 0);
        assert_int_equal(accel->ops->poll(accel, &result), 1);
        if (n < 2) {
            assert_int_equal(result.status, KL_E_EMPTY); /* refusals are answers too */
            continue;
        }
        kl_core_exec(core, &request, &expected);
        assert_int_equal(expected.status, KL_OK);
        assert_memory_equal(&result, &expected, sizeof result);
    }
    free(core);
}

static void load_reports_the_kernels_verdict(void **state)
{
    (void)state;
    assert_int_equal(accel->ops->load(accel, KL_N_SLOT, image, image->size_bytes), KL_E_SLOT);
    assert_int_equal(accel->ops->load(accel, 0, image, image->size_bytes - 8), KL_E_IMAGE);
    image->image_hash ^= 1;
    assert_int_equal(accel->ops->load(accel, 0, image, image->size_bytes), KL_E_IMAGE_HASH);
}

static void two_accelerators_share_nothing(void **state)
{
    (void)state;
    struct accel *other = accel_csim_open();
    assert_non_null(other);
    assert_string_equal(other->ops->name, "csim");
    assert_int_equal(accel->ops->load(accel, 1, image, image->size_bytes), KL_OK);
    const struct kl_request request = step_request(1);
    struct kl_result result;
    assert_int_equal(other->ops->submit(other, &request), 0);
    assert_int_equal(accel->ops->poll(accel, &result), -1);
    assert_int_equal(other->ops->poll(other, &result), 1);
    assert_int_equal(result.status, KL_E_EMPTY);
    other->ops->close(other);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_request_is_outstanding_at_a_time),
        TEST(answers_are_the_kernels),
        TEST(load_reports_the_kernels_verdict),
        TEST(two_accelerators_share_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
