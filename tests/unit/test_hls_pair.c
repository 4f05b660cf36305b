#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernel_rig.h"
#include "tests/model_image.h"

/* Two units that split every layer's rows, against one unit that holds all. */

static const struct kl_build *const builds[] = {&kl_build_small, &kl_build_fast, &kl_build_large};

enum { N_BUILD = sizeof builds / sizeof builds[0], STREAM = 200 };

static const struct model_image_shape SHAPE = {.n_in = 21, .n_layer = 2, .n_class = 3, .n_hidden = {70, 40}};

struct pair {
    const struct kl_build *build;
    struct kl_unit *unit[2];
};

static struct pair new_pair(const struct kl_build *build)
{
    struct pair pair = {.build = build};
    for (uint32_t part = 0; part < 2; part++) {
        pair.unit[part] = kernel_rig_unit(build, part, 2);
        assert_non_null(pair.unit[part]);
    }
    return pair;
}

static void free_pair(struct pair *pair)
{
    free(pair->unit[0]);
    free(pair->unit[1]);
}

static void load_pair(struct pair *pair, uint32_t slot, const struct kl_image_header *image)
{
    for (int u = 0; u < 2; u++)
        assert_int_equal(kernel_rig_load(pair->build, pair->unit[u], slot, image), KL_OK);
}

static struct kl_result exec_pair(struct pair *pair, const struct kl_request *request, uint32_t wait_cycles)
{
    struct kl_result result;
    memset(&result, 0xa5, sizeof result);
    pair->build->exec_pair(pair->unit, request, wait_cycles, &result);
    return result;
}

static struct kl_state save_pair(struct pair *pair, uint32_t slot, uint32_t stream)
{
    struct kl_state state;
    assert_int_equal(pair->build->save_pair(pair->unit, slot, stream, &state), KL_OK);
    return state;
}

static uint64_t cycles_of(const struct pair *pair, int u)
{
    struct kl_info info;
    pair->build->info(pair->unit[u], &info);
    return info.cycles;
}

static struct pair pair; /* of small, SHAPE in slot 0 */
static struct kl_image_header *image;

static int set_up(void **state)
{
    (void)state;
    pair = new_pair(&kl_build_small);
    image = model_image_new(&SHAPE, 1);
    if (!image)
        return -1;
    load_pair(&pair, 0, image);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(image);
    free_pair(&pair);
    return 0;
}

/* ---- bit-equality ---- */

/* Steps, prepares, resets in a random mix on two streams: every answer and state as the single unit's, every
 * operation in the cycles that the build says. */
static void assert_pair_equals_single(struct pair *split, struct kl_unit *whole,
                                      const struct model_image_shape *shape, uint64_t seed)
{
    const struct kl_build *build = split->build;
    struct kl_image_header *model = model_image_new(shape, seed);
    assert_non_null(model);
    assert_int_equal(build->check_shape(model, 2), KL_OK);
    load_pair(split, 1, model);
    assert_int_equal(kernel_rig_load(&kl_build_large, whole, 1, model), KL_OK);
    int prepared[2] = {0, 0};
    for (uint64_t n = 0; n < 14; n++) {
        const uint32_t s = model_image_random_u64(&seed) % 2, dice = model_image_random_u64(&seed) % 8;
        struct kl_request request = kernel_rig_step(1, STREAM + s, n);
        request.op = dice == 0 && n > 6 ? KL_OP_RESET : dice < 4 ? KL_OP_PREPARE : KL_OP_STEP;
        const uint64_t before = cycles_of(split, 0);
        const struct kl_result of_pair = exec_pair(split, &request, 0);
        assert_int_equal(of_pair.status, KL_OK);
        assert_true(kernel_rig_same(of_pair, kernel_rig_exec(&kl_build_large, whole, &request)));
        const uint32_t cycles = request.op == KL_OP_RESET  ? build->reset_cycles()
                                : request.op == KL_OP_STEP ? build->step_cycles(model, 2, prepared[s])
                                : prepared[s]              ? build->frame_cycles()
                                                           : build->prepare_cycles(model, 2);
        assert_int_equal(of_pair.kernel_cycles, cycles);
        prepared[s] = request.op == KL_OP_PREPARE;
        assert_int_equal(of_pair.prepare_cycles,
                         prepared[s] ? build->frame_cycles() : build->prepare_cycles(model, 2));
        assert_int_equal(cycles_of(split, 0), before + cycles);
        assert_int_equal(cycles_of(split, 1), before + cycles);
    }
    for (uint32_t s = 0; s < 2; s++) {
        const struct kl_state of_pair = save_pair(split, 1, STREAM + s);
        struct kl_state of_single;
        assert_int_equal(kl_build_large.save(whole, 1, STREAM + s, &of_single), KL_OK);
        assert_memory_equal(&of_pair, &of_single, sizeof of_pair);
    }
    free(model);
}

static void a_pair_equals_a_single_unit(void **state)
{
    (void)state;
    /* One unit; a part, a group and a column step, and one off each (groups: 8 units in small, else 32);
     * layers of which the second half holds nothing below, between and above others. */
    static const struct model_image_shape shapes[] = {
        {.n_in = 1, .n_layer = 1, .n_class = 1, .n_hidden = {1}},
        {.n_in = 1, .n_layer = 2, .n_class = 2, .n_hidden = {1, 1}},
        {.n_in = 16, .n_layer = 2, .n_class = 3, .n_hidden = {8, 9}},
        {.n_in = 17, .n_layer = 2, .n_class = 3, .n_hidden = {7, 16}},
        {.n_in = 64, .n_layer = 2, .n_class = 3, .n_hidden = {32, 33}},
        {.n_in = 65, .n_layer = 2, .n_class = 4, .n_hidden = {33, 32}},
        {.n_in = 31, .n_layer = 2, .n_class = 5, .n_hidden = {1, 100}},
        {.n_in = 31, .n_layer = 2, .n_class = 5, .n_hidden = {100, 1}},
        {.n_in = 128, .n_layer = 2, .n_class = 8, .n_hidden = {128, 128}},
        {.n_in = 128, .n_layer = 2, .n_class = 8, .n_hidden = {129, 255}},
        {.n_in = 128, .n_layer = 2, .n_class = 8, .n_hidden = {256, 1}},
        {.n_in = 2, .n_layer = 2, .n_class = 8, .n_hidden = {1, 256}},
        {.n_in = 128, .n_layer = 2, .n_class = 8, .n_hidden = {256, 256}}, /* fast's limit */
        {.n_in = 3, .n_layer = 3, .n_class = 2, .n_hidden = {1, 1, 1}},
        {.n_in = 40, .n_layer = 3, .n_class = 2, .n_hidden = {50, 1, 50}},
        {.n_in = 40, .n_layer = 3, .n_class = 2, .n_hidden = {1, 50, 1}},
        {.n_in = 128, .n_layer = 3, .n_class = 8, .n_hidden = {1, 2, 256}},
        {.n_in = 128, .n_layer = 3, .n_class = 8, .n_hidden = {256, 256, 256}}, /* small's limit */
        {.n_in = 256, .n_layer = 3, .n_class = 8, .n_hidden = {256, 256, 256}}, /* large's limit */
        {.n_in = 200, .n_layer = 1, .n_class = 1, .n_hidden = {256}},
    };
    struct kl_unit *whole = kernel_rig_unit(&kl_build_large, 0, 1);
    assert_non_null(whole);
    int n_checked[N_BUILD] = {0};
    for (int b = 0; b < N_BUILD; b++) {
        struct pair split = new_pair(builds[b]);
        struct kl_info info;
        builds[b]->info(split.unit[0], &info);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            if (shapes[i].n_layer > info.n_layer_max || shapes[i].n_in > info.n_in_max)
                continue;
            assert_pair_equals_single(&split, whole, &shapes[i], 10 + i);
            n_checked[b]++;
        }
        free_pair(&split);
    }
    assert_int_equal(n_checked[0], 18);
    assert_int_equal(n_checked[1], 13);
    assert_int_equal(n_checked[2], 20);
    free(whole);
}

static void a_pair_equals_a_single_unit_in_random_shapes(void **state)
{
    (void)state;
    uint64_t seed = 77;
    struct kl_unit *whole = kernel_rig_unit(&kl_build_large, 0, 1);
    assert_non_null(whole);
    for (int b = 0; b < N_BUILD; b++) {
        struct pair split = new_pair(builds[b]);
        struct kl_info info;
        builds[b]->info(split.unit[0], &info);
        for (int i = 0; i < 15; i++) {
            struct model_image_shape shape = {
                .n_in = (uint16_t)(1 + model_image_random_u64(&seed) % info.n_in_max),
                .n_layer = (uint16_t)(1 + model_image_random_u64(&seed) % info.n_layer_max),
                .n_class = (uint16_t)(1 + model_image_random_u64(&seed) % info.n_class_max)};
            for (uint32_t l = 0; l < shape.n_layer; l++)
                shape.n_hidden[l] = (uint16_t)(1 + model_image_random_u64(&seed) % info.n_hidden_max);
            assert_pair_equals_single(&split, whole, &shape, model_image_random_u64(&seed));
        }
        free_pair(&split);
    }
    free(whole);
}

static void the_halves_may_be_named_in_either_order(void **state)
{
    (void)state;
    struct pair swapped = {.build = pair.build, .unit = {pair.unit[1], pair.unit[0]}}, other;
    other = new_pair(pair.build);
    load_pair(&other, 0, image);
    for (uint64_t n = 0; n < 6; n++) {
        const struct kl_request request = kernel_rig_step(0, STREAM, n);
        const struct kl_result in_order = exec_pair(&other, &request, 0);
        const struct kl_result result = exec_pair(n % 2 ? &swapped : &pair, &request, 0);
        assert_memory_equal(&result, &in_order, sizeof result);
    }
    free_pair(&other);
}

/* ---- what is not carried out ---- */

/* Refused with status, and neither states nor sums are touched: the next step is another pair's, in its
 * cycles. */
static void assert_refused(const struct kl_request *request, uint32_t status)
{
    const struct kl_state before = save_pair(&pair, 0, STREAM);
    const struct kl_result result = exec_pair(&pair, request, 5);
    assert_true(kernel_rig_refused(&result, request, status));
    const struct kl_state after = save_pair(&pair, 0, STREAM);
    assert_memory_equal(&after, &before, sizeof before);
}

static void a_bad_request_is_refused_by_both(void **state)
{
    (void)state;
    struct kl_request request = kernel_rig_step(0, STREAM, 0);
    exec_pair(&pair, &request, 0);
    const uint64_t before = cycles_of(&pair, 0);
    request.abi_version++;
    assert_refused(&request, KL_E_ABI);
    request = kernel_rig_step(0, STREAM, 0);
    request.op = KL_OP_RESET + 1;
    assert_refused(&request, KL_E_OP);
    request = kernel_rig_step(0, STREAM, 0);
    request.flags = KL_REQUEST_PREPARE << 1;
    assert_refused(&request, KL_E_OP);
    request = kernel_rig_step(KL_N_SLOT, STREAM, 0);
    assert_refused(&request, KL_E_SLOT);
    request = kernel_rig_step(UINT16_MAX, STREAM, 0);
    assert_refused(&request, KL_E_SLOT);
    request = kernel_rig_step(0, KL_N_STREAM_MAX, 0);
    assert_refused(&request, KL_E_STREAM);
    request = kernel_rig_step(1, STREAM, 0);
    assert_refused(&request, KL_E_EMPTY);
    for (int u = 0; u < 2; u++)
        assert_int_equal(cycles_of(&pair, u), before + 7 * kl_build_small.frame_cycles());
}

static void a_bad_x_stops_both(void **state)
{
    (void)state;
    static const uint16_t bad_x[] = {0x7c00, 0xfc00, 0x7e00, 0x4c00, 0xcc00, 0x0001, 0x0fff};
    for (int prepared = 0; prepared < 2; prepared++) {
        struct kl_request request = kernel_rig_step(0, STREAM, 1);
        exec_pair(&pair, &request, 0);
        request.op = KL_OP_PREPARE;
        if (prepared)
            exec_pair(&pair, &request, 0);
        for (uint32_t k = 0; k < SHAPE.n_in; k++) {
            for (size_t i = 0; i < sizeof bad_x / sizeof *bad_x; i++) {
                request = kernel_rig_step(0, STREAM, 2);
                request.x[k] = bad_x[i];
                assert_refused(&request, KL_E_INPUT);
            }
        }
        request = kernel_rig_step(0, STREAM, 2);
        request.x[SHAPE.n_in] = 0x7e00; /* beyond n_in: ignored */
        const struct kl_result result = exec_pair(&pair, &request, 0);
        assert_int_equal(result.status, KL_OK);
        assert_int_equal(result.kernel_cycles, kl_build_small.step_cycles(image, 2, prepared));
    }
    /* Also where the second half holds no row of layer 0 and never sees x. */
    const struct model_image_shape one = {.n_in = 2, .n_layer = 2, .n_class = 2, .n_hidden = {1, 30}};
    free(image);
    image = model_image_new(&one, 4);
    assert_non_null(image);
    load_pair(&pair, 0, image);
    struct kl_request request = kernel_rig_step(0, STREAM, 0);
    exec_pair(&pair, &request, 0);
    request.x[1] = 0x7e00;
    assert_refused(&request, KL_E_INPUT);
}

static void late_counts_the_wait(void **state)
{
    (void)state;
    const uint32_t wait[] = {0, 1, 1000};
    for (uint32_t op = KL_OP_STEP; op <= KL_OP_RESET; op++) {
        struct kl_request request = kernel_rig_step(0, STREAM, 1);
        const uint32_t cycles = op == KL_OP_STEP      ? kl_build_small.step_cycles(image, 2, 0)
                                : op == KL_OP_PREPARE ? kl_build_small.prepare_cycles(image, 2)
                                                      : kl_build_small.reset_cycles();
        for (int i = 0; i < 3; i++) {
            request.op = KL_OP_STEP; /* back to not prepared */
            request.budget_cycles = 0;
            exec_pair(&pair, &request, 0);
            request.op = (uint16_t)op;
            request.budget_cycles = wait[i] + cycles - 1;
            const struct kl_state before = save_pair(&pair, 0, STREAM);
            const uint64_t clock = cycles_of(&pair, 0);
            const struct kl_result late = exec_pair(&pair, &request, wait[i]);
            struct kl_result expected = {.abi_version = KL_ABI_VERSION,
                                         .stream = STREAM,
                                         .seq_no = request.seq_no,
                                         .flags = KL_RESULT_LATE,
                                         .kernel_cycles = kl_build_small.frame_cycles(),
                                         .prepare_cycles = kl_build_small.prepare_cycles(image, 2),
                                         .image_hash = image->image_hash,
                                         .n_class = SHAPE.n_class,
                                         .logit_frac = (uint8_t)(image->head_frac + KL_H_FRAC),
                                         .wait_cycles = wait[i]};
            expected.check = kl_result_check(&expected);
            assert_memory_equal(&late, &expected, sizeof late);
            assert_int_equal(cycles_of(&pair, 0), clock + late.kernel_cycles);
            assert_int_equal(cycles_of(&pair, 1), clock + late.kernel_cycles);
            const struct kl_state after = save_pair(&pair, 0, STREAM);
            assert_memory_equal(&after, &before, sizeof before);
            request.budget_cycles++;
            const struct kl_result in_time = exec_pair(&pair, &request, wait[i]);
            assert_true(in_time.status == KL_OK && in_time.flags == 0);
            assert_int_equal(in_time.kernel_cycles, cycles);
            assert_int_equal(in_time.wait_cycles, wait[i]);
        }
    }
    struct kl_request request = kernel_rig_step(0, STREAM, 1);
    request.budget_cycles = UINT32_MAX;
    assert_int_equal(exec_pair(&pair, &request, UINT32_MAX).flags, KL_RESULT_LATE); /* their sum is > 2^32 */
}

/* ---- halves that do not fit together ---- */

static void halves_of_different_models_are_noticed(void **state)
{
    (void)state;
    /* A weight of a row that only half 1 holds: all that both compute alike would agree. */
    struct kl_image_header *other = model_image_new(&SHAPE, 1);
    assert_non_null(other);
    const size_t row = 4 * 8; /* unit 8: small's second group */
    uint16_t *w = (uint16_t *)(void *)((uint8_t *)other + model_image_layer(other, 0).w_x) + row * SHAPE.n_in;
    *w ^= 0x8000;
    model_image_seal(other);
    assert_int_equal(kernel_rig_load(pair.build, pair.unit[1], 0, other), KL_OK);
    for (uint32_t op = KL_OP_STEP; op <= KL_OP_RESET; op++) {
        struct kl_request request = kernel_rig_step(0, STREAM, 0);
        request.op = (uint16_t)op;
        const struct kl_result result = exec_pair(&pair, &request, 3);
        assert_true(kernel_rig_refused(&result, &request, KL_E_PEER));
    }
    struct kl_state s;
    assert_int_equal(pair.build->save_pair(pair.unit, 0, STREAM, &s), KL_E_PEER);
    assert_int_equal(kernel_rig_load(pair.build, pair.unit[1], 0, image), KL_OK);
    const struct kl_request request = kernel_rig_step(0, STREAM, 0);
    assert_int_equal(exec_pair(&pair, &request, 0).status, KL_OK);
    free(other);
}

static void halves_of_different_states_are_noticed(void **state)
{
    (void)state;
    struct kl_request request = kernel_rig_step(0, STREAM, 0);
    const struct kl_result first = exec_pair(&pair, &request, 0);
    exec_pair(&pair, &request, 0);
    /* One half is loaded again: its streams are at rest, the other's are not. */
    assert_int_equal(kernel_rig_load(pair.build, pair.unit[0], 0, image), KL_OK);
    struct kl_state s;
    for (int again = 0; again < 2; again++) {
        request.op = again ? KL_OP_PREPARE : KL_OP_STEP;
        const struct kl_result result = exec_pair(&pair, &request, 0);
        assert_true(kernel_rig_refused(&result, &request, KL_E_PEER));
        assert_int_equal(pair.build->save_pair(pair.unit, 0, STREAM, &s), KL_E_PEER);
    }
    request.op = KL_OP_RESET;
    assert_int_equal(exec_pair(&pair, &request, 0).status, KL_OK);
    request.op = KL_OP_STEP;
    assert_true(kernel_rig_same(exec_pair(&pair, &request, 0), first));
    /* A restore mends it as well. */
    s = save_pair(&pair, 0, STREAM);
    const struct kl_result second = exec_pair(&pair, &request, 0);
    assert_int_equal(kernel_rig_load(pair.build, pair.unit[1], 0, image), KL_OK);
    assert_int_equal(exec_pair(&pair, &request, 0).status, KL_E_PEER);
    assert_int_equal(pair.build->restore_pair(pair.unit, 0, STREAM, &s), KL_OK);
    assert_true(kernel_rig_same(exec_pair(&pair, &request, 0), second));
}

static void a_half_that_is_still_loading_is_noticed(void **state)
{
    (void)state;
    struct kl_request request = kernel_rig_step(0, STREAM, 0);
    const struct kl_result first = exec_pair(&pair, &request, 0);
    for (int u = 0; u < 2; u++)
        assert_int_equal(pair.build->load_begin(pair.unit[u], 0, image, image->size_bytes), KL_OK);
    for (uint32_t status = KL_E_BUSY; status == KL_E_BUSY;) {
        const struct kl_result result = exec_pair(&pair, &request, 0);
        assert_true(kernel_rig_refused(&result, &request, KL_E_EMPTY));
        status = pair.build->load_advance(pair.unit[0]);
    }
    const struct kl_result half = exec_pair(&pair, &request, 0);
    assert_true(kernel_rig_refused(&half, &request, KL_E_EMPTY));
    while (pair.build->load_advance(pair.unit[1]) == KL_E_BUSY)
        ;
    assert_true(kernel_rig_same(exec_pair(&pair, &request, 0), first));
}

/* Half of a layer's rows is no answer: through no entry of a half. */
static void a_half_alone_refuses(void **state)
{
    (void)state;
    const struct kl_build *build = pair.build;
    struct kl_request request = kernel_rig_step(0, STREAM, 0);
    exec_pair(&pair, &request, 0);
    const struct kl_state before = save_pair(&pair, 0, STREAM);
    for (int u = 0; u < 2; u++) {
        for (uint32_t op = KL_OP_STEP; op <= KL_OP_RESET; op++) {
            request.op = (uint16_t)op;
            struct kl_result result = kernel_rig_exec(build, pair.unit[u], &request);
            assert_true(kernel_rig_refused(&result, &request, KL_E_PEER));
            assert_int_equal(build->post(pair.unit[u], &request), 0);
            assert_int_equal(build->take(pair.unit[u], &result), 1);
            assert_true(kernel_rig_refused(&result, &request, KL_E_PEER));
            const struct kl_arguments arguments = {
                .command = KL_COMMAND_EXEC, .n_request = 1, .request = &request, .result = &result};
            build->kernel(pair.unit[u], &arguments);
            assert_true(kernel_rig_refused(&result, &request, KL_E_PEER));
        }
    }
    const struct kl_state after = save_pair(&pair, 0, STREAM);
    assert_memory_equal(&after, &before, sizeof before);
    /* Nor are two units that are no pair. */
    struct kl_unit *twice[2] = {pair.unit[1], pair.unit[1]};
    struct kl_result result;
    request.op = KL_OP_STEP;
    build->exec_pair(twice, &request, 0, &result);
    assert_true(kernel_rig_refused(&result, &request, KL_E_PEER));
    struct kl_state s = before;
    assert_int_equal(build->save_pair(twice, 0, STREAM, &s), KL_E_PEER);
    assert_int_equal(build->restore_pair(twice, 0, STREAM, &s), KL_E_PEER);
    struct kl_unit *single[2] = {kernel_rig_unit(build, 0, 1), kernel_rig_unit(build, 0, 1)};
    for (int u = 0; u < 2; u++)
        assert_int_equal(kernel_rig_load(build, single[u], 0, image), KL_OK);
    build->exec_pair(single, &request, 0, &result);
    assert_true(kernel_rig_refused(&result, &request, KL_E_PEER));
    free(single[0]);
    free(single[1]);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_pair_equals_a_single_unit),
        TEST(a_pair_equals_a_single_unit_in_random_shapes),
        TEST(the_halves_may_be_named_in_either_order),
        TEST(a_bad_request_is_refused_by_both),
        TEST(a_bad_x_stops_both),
        TEST(late_counts_the_wait),
        TEST(halves_of_different_models_are_noticed),
        TEST(halves_of_different_states_are_noticed),
        TEST(a_half_that_is_still_loading_is_noticed),
        TEST(a_half_alone_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
