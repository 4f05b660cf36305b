#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernel_rig.h"
#include "tests/model_image.h"

/* Loading beside a running model, and the shapes that a build takes. What is checked of an image's bytes:
 * test_hls_image.c. */

static const struct kl_build *const builds[] = {&kl_build_small, &kl_build_fast, &kl_build_large};

enum { N_BUILD = sizeof builds / sizeof builds[0], N_STEP = 6 };

static const struct model_image_shape TINY = {.n_in = 3, .n_layer = 1, .n_class = 2, .n_hidden = {5}};
static const struct model_image_shape ODD = {.n_in = 67, .n_layer = 2, .n_class = 7, .n_hidden = {97, 41}};

static struct kl_unit *new_unit(const struct kl_build *build, uint32_t part, uint32_t n_part)
{
    struct kl_unit *unit = kernel_rig_unit(build, part, n_part);
    assert_non_null(unit);
    return unit;
}

static struct kl_image_header *new_image(const struct model_image_shape *shape, uint64_t seed)
{
    struct kl_image_header *image = model_image_new(shape, seed);
    assert_non_null(image);
    return image;
}

static struct kl_result step(const struct kl_build *build, struct kl_unit *unit, uint32_t slot,
                             uint32_t stream, uint64_t n)
{
    const struct kl_request request = kernel_rig_step(slot, stream, n);
    const struct kl_result result = kernel_rig_exec(build, unit, &request);
    assert_int_equal(result.status, KL_OK);
    return result;
}

/* The answers of a fresh unit's stream that has seen x 0, 1, ... */
static void answers_of(const struct kl_build *build, const struct kl_image_header *image,
                       struct kl_result *answer, uint64_t n_answer)
{
    struct kl_unit *unit = new_unit(build, 0, 1);
    assert_int_equal(kernel_rig_load(build, unit, 0, image), KL_OK);
    for (uint64_t n = 0; n < n_answer; n++)
        answer[n] = step(build, unit, 0, 0, n);
    free(unit);
}

/* ---- shapes ---- */

/* What a build's unit, or its pair, takes; written here again from kl_abi.h's text. */
struct limits {
    const struct kl_build *build;
    uint32_t n_part;
    uint16_t n_layer, n_in, n_hidden;
};

static const struct limits LIMITS[] = {
    {&kl_build_small, 1, 3, 128, 128}, {&kl_build_small, 2, 3, 128, 256}, {&kl_build_fast, 1, 2, 128, 128},
    {&kl_build_fast, 2, 2, 128, 256},  {&kl_build_large, 1, 3, 256, 256}, {&kl_build_large, 2, 3, 256, 256},
};

enum { N_LIMITS = sizeof LIMITS / sizeof LIMITS[0] };

/* Loads into a unit, or both halves; check_shape and the loader must say the same. */
static void assert_takes(const struct limits *limits, const struct model_image_shape *shape, uint32_t status)
{
    struct kl_image_header *image = new_image(shape, 3);
    assert_int_equal(limits->build->check_shape(image, limits->n_part), status);
    for (uint32_t part = 0; part < limits->n_part; part++) {
        struct kl_unit *unit = new_unit(limits->build, part, limits->n_part);
        struct kl_info info;
        assert_int_equal(kernel_rig_load(limits->build, unit, 1, image), status);
        limits->build->info(unit, &info);
        assert_int_equal(info.image_hash[0], 0);
        assert_int_equal(info.image_hash[1], status == KL_OK ? image->image_hash : 0);
        assert_true(info.part == part && info.n_part == limits->n_part);
        assert_int_equal(info.n_hidden_max, limits->n_hidden);
        assert_int_equal(info.n_layer_max, limits->n_layer);
        assert_int_equal(info.n_in_max, limits->n_in);
        free(unit);
    }
    free(image);
}

static void shapes_load_up_to_the_builds_limits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LIMITS; i++) {
        const struct limits *limits = &LIMITS[i];
        const uint16_t most = limits->n_hidden;
        struct model_image_shape shape = {
            .n_in = limits->n_in, .n_layer = limits->n_layer, .n_class = KL_N_CLASS_MAX};
        for (uint32_t l = 0; l < limits->n_layer; l++)
            shape.n_hidden[l] = most;
        assert_takes(limits, &shape, KL_OK);
        /* One beyond, one at a time. What the records have no room for is no image of this ABI at all. */
        for (uint32_t l = 0; l < limits->n_layer; l++) {
            shape.n_hidden[l] = (uint16_t)(most + 1);
            assert_takes(limits, &shape, most == KL_N_HIDDEN_MAX ? KL_E_IMAGE : KL_E_SHAPE);
            shape.n_hidden[l] = most;
        }
        shape.n_in++;
        assert_takes(limits, &shape, limits->n_in == KL_N_IN_MAX ? KL_E_IMAGE : KL_E_SHAPE);
        shape.n_in--;
        shape.n_class++;
        assert_takes(limits, &shape, KL_E_IMAGE);
        shape.n_class--;
        if (limits->n_layer < KL_N_LAYER_MAX) {
            shape.n_hidden[shape.n_layer++] = 1;
            assert_takes(limits, &shape, KL_E_SHAPE);
        }
        const struct model_image_shape least = {.n_in = 1, .n_layer = 1, .n_class = 1, .n_hidden = {1}};
        assert_takes(limits, &least, KL_OK);
    }
}

static void check_shape_looks_at_every_field(void **state)
{
    (void)state;
    const struct kl_image_header good = {.n_layer = 2, .n_in = 9, .n_class = 3, .n_hidden = {4, 5}};
    struct kl_image_header bad[10];
    for (int i = 0; i < 10; i++)
        bad[i] = good;
    bad[0].n_layer = 0;
    bad[1].n_layer = KL_N_LAYER_MAX + 1;
    bad[2].n_layer = UINT16_MAX;
    bad[3].n_in = 0;
    bad[4].n_class = 0;
    bad[5].n_class = KL_N_CLASS_MAX + 1;
    bad[6].n_hidden[1] = 0;
    bad[7].n_hidden[2] = 1;
    bad[8].n_hidden[3] = 1;
    bad[9].n_layer = 1;
    for (int b = 0; b < N_BUILD; b++) {
        for (uint32_t n_part = 1; n_part <= 2; n_part++) {
            assert_int_equal(builds[b]->check_shape(&good, n_part), KL_OK);
            for (int i = 0; i < 10; i++)
                assert_int_equal(builds[b]->check_shape(&bad[i], n_part), KL_E_IMAGE);
        }
    }
}

/* ---- the load ---- */

static void begin_refuses_a_bad_slot_and_a_second_load(void **state)
{
    (void)state;
    const struct kl_build *build = &kl_build_small;
    struct kl_unit *unit = new_unit(build, 0, 1);
    struct kl_image_header *image = new_image(&TINY, 1);
    const size_t size_bytes = image->size_bytes;
    assert_int_equal(build->load_advance(unit), KL_E_EMPTY);
    assert_int_equal(build->load_begin(unit, KL_N_SLOT, image, size_bytes), KL_E_SLOT);
    assert_int_equal(build->load_begin(unit, UINT32_MAX, image, size_bytes), KL_E_SLOT);
    assert_int_equal(build->load_advance(unit), KL_E_EMPTY);
    assert_int_equal(kernel_rig_load(build, unit, 1, image), KL_OK);

    assert_int_equal(build->load_begin(unit, 0, image, size_bytes), KL_OK);
    for (uint32_t status = KL_E_BUSY; status == KL_E_BUSY;) {
        /* Refused, and neither the load under way nor the slot that was named is touched. */
        assert_int_equal(build->load_begin(unit, 0, image, 3), KL_E_BUSY);
        assert_int_equal(build->load_begin(unit, 1, image, 3), KL_E_BUSY);
        assert_int_equal(build->load_begin(unit, KL_N_SLOT, image, 3), KL_E_SLOT);
        step(build, unit, 1, 0, 0);
        status = build->load_advance(unit);
        assert_true(status == KL_E_BUSY || status == KL_OK);
    }
    /* The verdict comes once. */
    assert_int_equal(build->load_advance(unit), KL_E_EMPTY);
    step(build, unit, 0, 0, 0);
    free(image);
    free(unit);
}

/* Slot 0 answers as if nothing happened, after every single beat; slot 1 refuses until the last one. */
static void a_load_leaves_the_other_slot_alone(void **state)
{
    (void)state;
    for (int b = 0; b < N_BUILD; b++) {
        const struct kl_build *build = builds[b];
        struct kl_image_header *running = new_image(&TINY, 1), *loaded = new_image(&ODD, 2);
        struct kl_unit *unit = new_unit(build, 0, 1), *alone = new_unit(build, 0, 1);
        struct kl_result expected[N_STEP];
        answers_of(build, loaded, expected, N_STEP);
        assert_int_equal(kernel_rig_load(build, unit, 0, running), KL_OK);
        assert_int_equal(kernel_rig_load(build, alone, 0, running), KL_OK);
        assert_int_equal(kernel_rig_load(build, unit, 1, running), KL_OK); /* replaced in a moment */
        step(build, unit, 1, 7, 0);
        /* A damaged one first: refused at its end, and the slot is empty. */
        for (int good = 0; good < 2; good++) {
            loaded->image_hash ^= 1;
            assert_int_equal(build->load_begin(unit, 1, loaded, loaded->size_bytes), KL_OK);
            uint32_t status = KL_E_BUSY;
            for (uint64_t n = 0; status == KL_E_BUSY; n++) {
                for (uint32_t op = KL_OP_STEP; op <= KL_OP_RESET; op++) {
                    struct kl_request request = kernel_rig_step(1, (uint32_t)(n % KL_N_STREAM_MAX), n);
                    request.op = (uint16_t)op;
                    const struct kl_result result = kernel_rig_exec(build, unit, &request);
                    assert_true(kernel_rig_refused(&result, &request, KL_E_EMPTY));
                }
                if (n % 3 == 0)
                    kernel_rig_op(build, unit, KL_OP_PREPARE, 0, (uint32_t)(n % 5));
                const struct kl_result on_loading = step(build, unit, 0, (uint32_t)(n % 5), n);
                const struct kl_result on_idle = step(build, alone, 0, (uint32_t)(n % 5), n);
                assert_true(kernel_rig_same(on_loading, on_idle));
                status = build->load_advance(unit);
            }
            assert_int_equal(status, good ? KL_OK : KL_E_IMAGE_HASH);
            assert_int_equal(kernel_rig_op(build, unit, KL_OP_PREPARE, 1, 7).status,
                             good ? KL_OK : KL_E_EMPTY);
        }
        for (uint64_t n = 0; n < N_STEP; n++)
            assert_true(kernel_rig_same(step(build, unit, 1, 7, n), expected[n]));
        free(unit);
        free(alone);
        free(running);
        free(loaded);
    }
}

/* The largest model of the build in a slot, all streams moved and prepared; then a small one, and one that is
 * larger in its first layer only. */
static void nothing_of_the_old_model_is_left(void **state)
{
    (void)state;
    const struct model_image_shape next[] = {
        TINY, ODD, {.n_in = 1, .n_layer = 2, .n_class = 8, .n_hidden = {128, 1}}};
    for (size_t i = 0; i < N_LIMITS; i++) {
        const struct limits *limits = &LIMITS[i];
        const struct kl_build *build = limits->build;
        if (limits->n_part != 1)
            continue;
        struct model_image_shape largest = {
            .n_in = limits->n_in, .n_layer = limits->n_layer, .n_class = KL_N_CLASS_MAX};
        for (uint32_t l = 0; l < limits->n_layer; l++)
            largest.n_hidden[l] = limits->n_hidden;
        struct kl_unit *unit = new_unit(build, 0, 1);
        struct kl_image_header *old = new_image(&largest, 1);
        int64_t *head_bias = (int64_t *)(void *)((uint8_t *)old + model_image_head_bias(old));
        for (int c = 0; c < KL_N_CLASS_MAX; c++)
            head_bias[c] = 1 << 20;
        model_image_seal(old);
        for (size_t k = 0; k < sizeof next / sizeof *next; k++) {
            struct kl_image_header *image = new_image(&next[k], 2 + k);
            struct kl_result expected[N_STEP];
            const uint32_t stream[] = {0, 100, KL_N_STREAM_MAX - 1};
            answers_of(build, image, expected, N_STEP);
            assert_int_equal(kernel_rig_load(build, unit, 1, old), KL_OK);
            for (int s = 0; s < 3; s++) {
                for (uint64_t n = 0; n < 3; n++)
                    step(build, unit, 1, stream[s], n);
                kernel_rig_op(build, unit, KL_OP_PREPARE, 1, stream[s]);
            }
            assert_int_equal(kernel_rig_load(build, unit, 1, image), KL_OK);
            for (int s = 0; s < 3; s++) {
                for (uint64_t n = 0; n < N_STEP; n++) {
                    const struct kl_result result = step(build, unit, 1, stream[s], n);
                    assert_true(kernel_rig_same(result, expected[n]));
                    assert_int_equal(result.kernel_cycles, build->step_cycles(image, 1, 0));
                }
            }
            free(image);
        }
        free(old);
        free(unit);
    }
}

static void requests_in_the_queue_meet_an_empty_slot(void **state)
{
    (void)state;
    const struct kl_build *build = &kl_build_fast;
    struct kl_unit *unit = new_unit(build, 0, 1);
    struct kl_image_header *image = new_image(&TINY, 1);
    struct kl_result first, result;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        assert_int_equal(kernel_rig_load(build, unit, slot, image), KL_OK);
    first = step(build, unit, 0, 0, 0);
    for (uint32_t i = 0; i < 6; i++) {
        struct kl_request request = kernel_rig_step(i % 2, 1, 0);
        request.flags = KL_REQUEST_PREPARE;
        assert_int_equal(build->post(unit, &request), 0);
        if (i == 1) {
            assert_int_equal(build->take(unit, &result), 1); /* the prepare of slot 0 is owed now */
            assert_true(kernel_rig_same(result, first));
        }
    }
    assert_int_equal(build->load_begin(unit, 0, image, image->size_bytes), KL_OK);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(build->take(unit, &result), 1);
        assert_int_equal(result.slot, i % 2);
        assert_int_equal(result.status, i % 2 ? KL_OK : KL_E_EMPTY);
    }
    while (build->load_advance(unit) == KL_E_BUSY)
        ;
    /* Those that are still there find the new model, at rest. */
    assert_int_equal(build->take(unit, &result), 1);
    assert_true(kernel_rig_same(result, first));
    assert_int_equal(build->take(unit, &result), 1);
    assert_int_equal(result.status, KL_OK);
    assert_int_equal(build->take(unit, &result), 0);
    free(image);
    free(unit);
}

/* A refused image empties its slot, whatever was in it, and leaves the other. */
static void a_refused_image_empties_its_slot_only(void **state)
{
    (void)state;
    const struct kl_build *build = &kl_build_small;
    struct kl_unit *unit = new_unit(build, 0, 1), *alone = new_unit(build, 0, 1);
    struct kl_image_header *image = new_image(&TINY, 1), *bad = new_image(&TINY, 1);
    bad->n_class = 0;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        assert_int_equal(kernel_rig_load(build, unit, slot, image), KL_OK);
    assert_int_equal(kernel_rig_load(build, alone, 1, image), KL_OK);
    for (uint64_t n = 0; n < N_STEP; n++) {
        assert_true(kernel_rig_same(step(build, unit, 1, 2, n), step(build, alone, 1, 2, n)));
        assert_int_equal(kernel_rig_load(build, unit, 0, bad), KL_E_IMAGE);
        assert_int_equal(kernel_rig_op(build, unit, KL_OP_RESET, 0, 0).status, KL_E_EMPTY);
    }
    free(bad);
    free(image);
    free(unit);
    free(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_load_up_to_the_builds_limits),
        cmocka_unit_test(check_shape_looks_at_every_field),
        cmocka_unit_test(begin_refuses_a_bad_slot_and_a_second_load),
        cmocka_unit_test(a_load_leaves_the_other_slot_alone),
        cmocka_unit_test(nothing_of_the_old_model_is_left),
        cmocka_unit_test(requests_in_the_queue_meet_an_empty_slot),
        cmocka_unit_test(a_refused_image_empties_its_slot_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
