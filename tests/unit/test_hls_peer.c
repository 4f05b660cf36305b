#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hls/kl_kernel.h"
#include "tests/kernel_rig.h"
#include "tests/model_image.h"

/* A pair of which one half breaks: faults that only its memories can be given. */

enum { STREAM = 3 };

static const struct kl_build *const build = &kl_build_small;
static const struct model_image_shape SHAPE = {.n_in = 21, .n_layer = 2, .n_class = 3, .n_hidden = {70, 40}};
static struct kl_unit *pair[2];
static struct kl_image_header *image;

static int set_up(void **state)
{
    (void)state;
    image = model_image_new(&SHAPE, 1);
    if (!image)
        return -1;
    for (uint32_t u = 0; u < 2; u++) {
        pair[u] = kernel_rig_unit(build, u, 2);
        if (!pair[u] || kernel_rig_load(build, pair[u], 0, image) != KL_OK)
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(pair[0]);
    free(pair[1]);
    free(image);
    return 0;
}

static struct kl_result exec(uint32_t op, uint32_t stream)
{
    struct kl_request request = kernel_rig_step(0, stream, 0);
    struct kl_result result;
    request.op = (uint16_t)op;
    memset(&result, 0xa5, sizeof result);
    build->exec_pair(pair, &request, 7, &result);
    if (result.status != KL_OK)
        assert_true(kernel_rig_refused(&result, &request, result.status));
    return result;
}

/* The stream answers nothing until it is reset or restored; other streams go on. */
static void assert_lost(void)
{
    struct kl_state s;
    memset(&s, 0xa5, sizeof s);
    const struct kl_state untouched = s;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(exec(KL_OP_STEP, STREAM).status, KL_E_STATE);
        assert_int_equal(exec(KL_OP_PREPARE, STREAM).status, KL_E_STATE);
    }
    assert_int_equal(build->save_pair(pair, 0, STREAM, &s), KL_E_STATE);
    assert_memory_equal(&s, &untouched, sizeof s);
}

/* Half 1's head gives other logits than half 0's. */
static void halves_that_differ_lose_the_stream(void **state)
{
    (void)state;
    const struct kl_result first = exec(KL_OP_STEP, STREAM), of_other = exec(KL_OP_STEP, STREAM + 1);
    struct kl_state good, s;
    assert_int_equal(build->save_pair(pair, 0, STREAM, &good), KL_OK);
    const struct kl_result second = exec(KL_OP_STEP, STREAM);
    for (int mend_by_restore = 0; mend_by_restore < 2; mend_by_restore++) {
        pair[1]->core.head_bias[0][2] ^= 1;
        assert_int_equal(exec(KL_OP_STEP, STREAM).status, KL_E_PEER);
        assert_lost();
        if (mend_by_restore) {
            assert_int_equal(build->restore_pair(pair, 0, STREAM, &good), KL_OK);
        } else {
            assert_int_equal(exec(KL_OP_RESET, STREAM).status, KL_OK);
            /* Still broken: lost again. */
            assert_int_equal(exec(KL_OP_STEP, STREAM).status, KL_E_PEER);
            assert_lost();
            assert_int_equal(exec(KL_OP_RESET, STREAM).status, KL_OK);
        }
        pair[1]->core.head_bias[0][2] ^= 1;
        assert_true(kernel_rig_same(exec(KL_OP_STEP, STREAM), mend_by_restore ? second : first));
    }
    /* The other stream has lost nothing. */
    assert_int_equal(build->save_pair(pair, 0, STREAM + 1, &s), KL_OK);
    exec(KL_OP_RESET, STREAM + 1);
    assert_true(kernel_rig_same(exec(KL_OP_STEP, STREAM + 1), of_other));
}

/* Half 1 takes its model for one of a single layer and is never heard of in the second. */
static void a_half_that_falls_silent_loses_the_stream(void **state)
{
    (void)state;
    const struct kl_result first = exec(KL_OP_STEP, STREAM);
    pair[1]->core.model[0].shape.n_layer = 1;
    assert_int_equal(exec(KL_OP_STEP, STREAM).status, KL_E_PEER);
    pair[1]->core.model[0].shape.n_layer = 2;
    assert_lost();
    assert_int_equal(exec(KL_OP_RESET, STREAM).status, KL_OK);
    assert_true(kernel_rig_same(exec(KL_OP_STEP, STREAM), first));
    /* Both wait for each other in vain, and are left with the same old logits. */
    exec(KL_OP_RESET, STREAM);
    pair[1]->core.model[0].shape.part = 0;
    assert_int_equal(exec(KL_OP_STEP, STREAM).status, KL_E_PEER);
    pair[1]->core.model[0].shape.part = 1;
    assert_lost();
}

/* A load resets the slot's streams, lost ones as well. */
static void a_load_mends_a_lost_stream(void **state)
{
    (void)state;
    const struct kl_result first = exec(KL_OP_STEP, STREAM);
    pair[0]->core.head_bias[0][0] ^= 1;
    assert_int_equal(exec(KL_OP_STEP, STREAM).status, KL_E_PEER);
    assert_lost();
    for (int u = 0; u < 2; u++)
        assert_int_equal(kernel_rig_load(build, pair[u], 0, image), KL_OK);
    assert_true(kernel_rig_same(exec(KL_OP_STEP, STREAM), first));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(halves_that_differ_lose_the_stream),
        TEST(a_half_that_falls_silent_loses_the_stream),
        TEST(a_load_mends_a_lost_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
