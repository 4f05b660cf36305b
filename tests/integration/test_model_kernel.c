/* The quantised network in the kernel's C simulation against the FP32 weights in binary64: random networks of
 * every kind of shape, 10^4 steps on two streams with their own states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/accel.h"
#include "host/fp16.h"
#include "host/model_check.h"
#include "host/model_reference.h"
#include "model_random.h"

enum { N_STEP = 10000, N_STREAM = 2 };

/* Logit errors relative to the logits' rms, about twice the worst measured here; the product's limit for
 * flips. */
#define ERROR_RMS_MAX     1e-3
#define ERROR_MAX         5e-3
#define FLIPS_PERCENT_MAX 0.1

struct shape {
    uint32_t n_in, n_layer, n_hidden[KL_N_LAYER_MAX], n_class;
    double gain;
};

static void compare(const struct shape *shape, uint64_t seed)
{
    struct model_weights weights =
        model_random(shape->n_in, shape->n_layer, shape->n_hidden, shape->n_class, shape->gain, seed);
    struct kl_image_header *image;
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(model_quantise(&weights, &image, error), 0);
    const struct kl_build *build = accel_build_for(image);
    assert_non_null(build);
    struct accel *accel = accel_csim_open(build, 1);
    struct model_reference *reference = model_reference_create(&weights, N_STREAM);
    assert_non_null(accel);
    assert_non_null(reference);
    assert_int_equal(accel_load(accel, 1, image, image->size_bytes), KL_OK);

    uint64_t random = seed;
    double walk[N_STREAM][KL_N_IN_MAX] = {{0}}, error_sum = 0, logit_sum = 0, error_max = 0;
    int flips = 0;
    for (uint32_t t = 0; t < N_STEP; t++) {
        struct kl_request request = {.abi_version = KL_ABI_VERSION, .op = KL_OP_STEP, .slot = 1, .seq_no = t};
        struct kl_result result;
        double x[KL_N_IN_MAX], logits[KL_N_CLASS_MAX];
        request.stream = (uint32_t)(model_random_uniform(&random) > 0.3);
        for (uint32_t i = 0; i < shape->n_in; i++) { /* autocorrelated, about 1.5 wide, like features */
            double *w = &walk[request.stream][i];
            *w = 0.8 * *w + 1.5 * model_random_uniform(&random);
            request.x[i] = fp16_from_double(*w, KL_X_FRAC, KL_X_ABS_MAX);
            x[i] = fp16_to_double(request.x[i]);
        }
        assert_int_equal(accel->ops->submit(accel, &request), 0);
        int ready;
        while (!(ready = accel->ops->poll(accel, &result)))
            ;
        assert_int_equal(ready, 1);
        assert_int_equal(result.status, KL_OK);
        assert_int_equal(result.n_class, shape->n_class);
        uint32_t cls = model_reference_step(reference, request.stream, x, logits);
        flips += cls != result.cls;
        for (uint32_t c = 0; c < shape->n_class; c++) {
            double off = fabs(ldexp((double)result.logits[c], -result.logit_frac) - logits[c]);
            error_max = off > error_max ? off : error_max;
            error_sum += off * off;
            logit_sum += logits[c] * logits[c];
        }
    }
    double scale = sqrt(logit_sum), rms = sqrt(error_sum) / scale;
    error_max /= scale / sqrt((double)N_STEP * shape->n_class);
    print_message(
        "%ux%u.. in %u, gain %.1f, seed %u: logit error rms %.2e, max %.2e of rms; flips %d of %d\n",
        shape->n_layer, shape->n_hidden[0], shape->n_in, shape->gain, (unsigned)seed, rms, error_max, flips,
        N_STEP);
    assert_true(rms <= ERROR_RMS_MAX);
    assert_true(error_max <= ERROR_MAX);
    assert_true(flips <= N_STEP * FLIPS_PERCENT_MAX / 100);
    assert_true(logit_sum > 0);
    accel->ops->close(accel);
    model_reference_free(reference);
    model_weights_free(&weights);
    free(image);
}

static void kernel_follows_the_reference(void **state)
{
    static const struct shape shapes[] = {
        {1, 1, {1}, 2, 1},       {16, 1, {32}, 3, 1},  {20, 1, {64}, 3, 1},      {20, 1, {64}, 3, 3},
        {64, 2, {65, 33}, 8, 1}, {256, 1, {40}, 3, 1}, {7, 3, {9, 17, 5}, 3, 2}, {32, 2, {64, 64}, 3, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        compare(&shapes[i], 11 + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernel_follows_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
