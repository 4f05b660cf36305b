/* model_check: what is counted, on a network whose every decision is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/features.h"
#include "host/model_check.h"
#include "model_random.h"

enum { N_ROW = 40, WARMUP = 3 };

/* One unit that follows feature 0 at once (input and output gate open, forget gate shut); class 2 when it is
 * above 0.25, class 0 below -0.25, class 1 between. */
static struct model_weights follower(void)
{
    struct model_weights w = model_random(FEATURES_N, 1, (const uint32_t[]){1}, 3, 0, 1);
    w.bias[0][0] = 20, w.bias[0][1] = -20, w.bias[0][3] = 20;
    w.w_x[0][2 * FEATURES_N] = 1;
    w.head_w[0] = -1, w.head_w[2] = 1;
    w.head_bias[1] = 0.25f;
    return w;
}

static struct model model_of(const struct model_weights *weights)
{
    struct kl_image_header *image;
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(model_quantise(weights, &image, error), 0);
    struct model model = {.feature_schema = FEATURES_SCHEMA, .warmup_ticks = WARMUP, .n_feature = FEATURES_N};
    for (uint32_t i = 0; i < FEATURES_N; i++)
        model.feature[i] = (struct model_feature){.mean = 5, .scale = 0.5f};
    model.image = image;
    return model;
}

static void free_image(const struct model *model)
{
    free((void *)(uintptr_t)model->image);
}

struct rows {
    float features[N_ROW][FEATURES_N];
    int8_t label[N_ROW];
    uint16_t stream[N_ROW];
};

/* Streams 0 and 255 in turn; the network says 2, 1, 0, 1 ...: pairs of rows say the same. Labels: 2 always.
 */
static struct model_check_data data_of(struct rows *rows)
{
    static const float raw[4] = {7, 5, 3, 5};
    for (int r = 0; r < N_ROW; r++) {
        for (int i = 0; i < FEATURES_N; i++)
            rows->features[r][i] = 5;
        rows->features[r][0] = raw[r / 2 % 4];
        rows->label[r] = 2;
        rows->stream[r] = r % 2 ? 255 : 0;
    }
    rows->label[N_ROW - 1] = -1;
    return (struct model_check_data){&rows->features[0][0], rows->label, rows->stream, N_ROW};
}

static void decisions_and_labels_are_counted(void **state)
{
    struct model_weights weights = follower();
    struct model model = model_of(&weights);
    static struct rows rows;
    struct model_check_data data = data_of(&rows);
    struct model_check_result r;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    if (model_check(&model, &weights, &data, NULL, &r, error))
        fail_msg("%s", error);
    assert_int_equal(r.n_step, N_ROW);
    assert_int_equal(r.n_warmup, 2 * WARMUP);
    assert_int_equal(r.n_decision, N_ROW - 2 * WARMUP);
    assert_int_equal(r.n_flip, 0);
    assert_int_equal(r.n_labelled, N_ROW - 2 * WARMUP - 1);
    /* Per stream 20 ticks, classes 2 1 0 1 | 2 1 ...; without the first three (2 1 0): 4 times 2, 9 times 1,
     * 4 times 0. The last tick of stream 255 (1) has no label. */
    assert_int_equal(r.confusion[2][2], 8);
    assert_int_equal(r.confusion[2][1], 17);
    assert_int_equal(r.confusion[2][0], 8);
    assert_int_equal(r.n_right_kernel, 8);
    assert_int_equal(r.n_right_reference, 8);
    assert_int_equal(r.n_label[2], 33);
    assert_int_equal(r.n_label[0] + r.n_label[1], 0);
    assert_true(r.logit_error_max < 1e-3 && r.logit_error_rms <= r.logit_error_max && r.logit_error_rms > 0);
    assert_true(r.logit_rms > 0.3 && r.logit_rms < 0.8);
    free_image(&model);
    model_weights_free(&weights);
}

/* A tie for the rounded weights, not for the FP32 ones: every decision on a zero input flips. */
static void flips_are_counted(void **state)
{
    struct model_weights weights = follower();
    weights.head_bias[1] = 0;
    weights.head_bias[2] = 1e-12f; /* below the grid of the head's sum */
    struct model model = model_of(&weights);
    static struct rows rows;
    struct model_check_data data = data_of(&rows);
    struct model_check_result r;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    for (int i = 0; i < N_ROW; i++)
        rows.features[i][0] = 5;
    assert_int_equal(model_check(&model, &weights, &data, NULL, &r, error), 0);
    assert_int_equal(r.n_flip, N_ROW - 2 * WARMUP);
    assert_int_equal(r.n_right_reference, r.n_labelled);
    assert_int_equal(r.n_right_kernel, 0); /* the tie goes to class 0 */
    free_image(&model);
    model_weights_free(&weights);
}

/* A package with INT8 weights is of the same network, and is measured as it is. */
static void int8_packages_are_measured(void **state)
{
    struct model_weights weights = follower();
    weights.w_h[0][2] = 0.3f; /* not on an 8-bit grid: more than the other form differ */
    struct model model = model_of(&weights);
    struct kl_image_header *int8;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    assert_int_equal(model_quantise_int8(&weights, &int8, error), 0);
    assert_int_not_equal(int8->image_hash, model.image->image_hash);
    free_image(&model);
    model.image = int8;
    static struct rows rows;
    struct model_check_data data = data_of(&rows);
    struct model_check_result r;
    if (model_check(&model, &weights, &data, NULL, &r, error))
        fail_msg("%s", error);
    assert_int_equal(r.n_decision, N_ROW - 2 * WARMUP);
    assert_true(r.logit_error_max > 0 && r.logit_error_max < 1e-2);
    free_image(&model);
    model_weights_free(&weights);
}

static void expect_refused(const struct model *model, const struct model_weights *weights,
                           const struct model_check_data *data, const char *why)
{
    struct model_check_result r;
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(model_check(model, weights, data, NULL, &r, error), -1);
    if (!strstr(error, why))
        fail_msg("'%s' does not say '%s'", error, why);
}

static void bad_data_is_refused_with_its_row(void **state)
{
    struct model_weights weights = follower();
    struct model model = model_of(&weights), other = model;
    static struct rows rows;
    struct model_check_data data = data_of(&rows);
    (void)state;
    rows.stream[7] = KL_N_STREAM_MAX;
    expect_refused(&model, &weights, &data, "row 7");
    data_of(&rows), rows.label[9] = 3;
    expect_refused(&model, &weights, &data, "row 9");
    data_of(&rows), rows.label[9] = -2;
    expect_refused(&model, &weights, &data, "row 9");
    data_of(&rows), rows.features[11][FEATURES_N - 1] = NAN;
    expect_refused(&model, &weights, &data, "row 11");
    data_of(&rows), data.n_row = 2 * WARMUP;
    expect_refused(&model, &weights, &data, "nothing to compare");
    data.n_row = 0;
    expect_refused(&model, &weights, &data, "nothing to compare");
    data.n_row = N_ROW;
    other.feature_schema++;
    expect_refused(&other, &weights, &data, "feature list");
    weights.bias[0][2] += 0.5f;
    expect_refused(&model, &weights, &data, "not packed from these weights");
    free_image(&model);
    model_weights_free(&weights);
}

static void wilson_interval(void **state)
{
    /* Source: Wilson 1927; values from its formula in Python. */
    static const struct {
        uint64_t hit, n;
        double low, high;
    } known[] = {{0, 100, 0, 0.0369935},
                 {50, 100, 0.4038315, 0.5961685},
                 {100, 100, 0.9630065, 1},
                 {1, 10, 0.0178762, 0.4041500}};
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        double low, high;
        model_check_interval(known[i].hit, known[i].n, &low, &high);
        if (fabs(low - known[i].low) > 1e-6 || fabs(high - known[i].high) > 1e-6)
            fail_msg("%u of %u: %.7f to %.7f", (unsigned)known[i].hit, (unsigned)known[i].n, low, high);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_and_labels_are_counted),
        cmocka_unit_test(flips_are_counted),
        cmocka_unit_test(int8_packages_are_measured),
        cmocka_unit_test(bad_data_is_refused_with_its_row),
        cmocka_unit_test(wilson_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
