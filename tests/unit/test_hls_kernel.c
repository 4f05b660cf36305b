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

/* The commands of run mode, through the synthesised top and through struct kl_build. */

enum { N_BATCH = 20, STREAM = 11 };

static const struct kl_build *const build = &kl_build_small;
static const struct model_image_shape SHAPE = {.n_in = 5, .n_layer = 2, .n_class = 3, .n_hidden = {17, 6}};
static struct kl_unit *unit, *direct; /* direct: the same models, driven by exec alone */
static struct kl_image_header *image[KL_N_SLOT];

/* The top's register block. Its memories live as long as the program does, as on the card: tests on it load
 * their model first, and leave the doorbell counters as they find them. */
static uint32_t top_reg[KL_N_REG];

static int set_up(void **state)
{
    (void)state;
    unit = kernel_rig_unit(build, 0, 1);
    direct = kernel_rig_unit(build, 0, 1);
    if (!unit || !direct)
        return -1;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        image[slot] = model_image_new(&SHAPE, 1 + slot);
        if (!image[slot] || kernel_rig_load(build, direct, slot, image[slot]) != KL_OK)
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        free(image[slot]);
    free(direct);
    free(unit);
    return 0;
}

static void start_unit(const struct kl_arguments *arguments)
{
    build->kernel(unit, arguments);
}

static void start_top(const struct kl_arguments *a)
{
    kl_kernel(a->command, a->slot, a->image_size_bytes, a->n_request, (const uint64_t *)a->image,
              (const uint32_t *)(const void *)a->request, (uint32_t *)(void *)a->result,
              (uint32_t *)(void *)a->state, top_reg);
}

static void (*const starts[])(const struct kl_arguments *) = {start_unit, start_top};
enum { N_START = sizeof starts / sizeof starts[0] };

/* result: status and slot, the image's hash if KL_OK, and zeros. */
static void assert_status(const struct kl_result *result, uint32_t status, uint32_t slot)
{
    struct kl_result expected = {.abi_version = KL_ABI_VERSION,
                                 .status = (uint16_t)status,
                                 .slot = (uint16_t)slot,
                                 .image_hash = status == KL_OK ? image[slot]->image_hash : 0};
    expected.check = kl_result_check(&expected);
    assert_memory_equal(result, &expected, sizeof expected);
}

static void load(void (*start)(const struct kl_arguments *), uint32_t slot, const void *bytes,
                 uint32_t size_bytes, uint32_t status)
{
    struct kl_result result;
    memset(&result, 0xa5, sizeof result);
    const struct kl_arguments arguments = {.command = KL_COMMAND_LOAD,
                                           .slot = slot,
                                           .image = bytes,
                                           .image_size_bytes = size_bytes,
                                           .result = &result};
    start(&arguments);
    assert_status(&result, status, slot);
}

static void load_takes_a_whole_image(void **state)
{
    (void)state;
    for (int s = 0; s < N_START; s++) {
        const uint32_t size_bytes = image[1]->size_bytes;
        load(starts[s], KL_N_SLOT, image[1], size_bytes, KL_E_SLOT);
        load(starts[s], UINT32_MAX, image[1], size_bytes, KL_E_SLOT);
        load(starts[s], 1, image[1], size_bytes, KL_OK);
        load(starts[s], 1, image[1], size_bytes - 8, KL_E_IMAGE);
        load(starts[s], 1, image[1], 0, KL_E_IMAGE);
        const struct kl_request request = kernel_rig_step(1, STREAM, 0);
        struct kl_result result;
        const struct kl_arguments exec = {
            .command = KL_COMMAND_EXEC, .n_request = 1, .request = &request, .result = &result};
        starts[s](&exec);
        assert_true(kernel_rig_refused(&result, &request, KL_E_EMPTY));
        image[1]->image_hash ^= 1;
        load(starts[s], 1, image[1], size_bytes, KL_E_IMAGE_HASH);
        image[1]->image_hash ^= 1;
        load(starts[s], 1, image[1], size_bytes, KL_OK);
    }
}

/* The kernel's clock runs while it loads, by command as by doorbell. */
static void a_load_takes_its_time(void **state)
{
    (void)state;
    uint32_t *reg = build->registers(unit);
    struct kl_info before, between, after;
    build->info(unit, &before);
    load(start_unit, 0, image[0], image[0]->size_bytes, KL_OK);
    build->info(unit, &between);
    assert_true(between.cycles - before.cycles > image[0]->size_bytes / 8);
    reg[KL_REG_LOAD_SLOT] = 1;
    reg[KL_REG_LOAD_SIZE_BYTES] = image[1]->size_bytes;
    reg[KL_REG_LOAD_DOORBELL]++;
    const struct kl_arguments service = {.command = KL_COMMAND_SERVICE, .image = image[1]};
    for (int i = 0; i < 10000 && reg[KL_REG_LOAD_DONE] != reg[KL_REG_LOAD_DOORBELL]; i++)
        build->kernel(unit, &service);
    build->info(unit, &after);
    assert_int_equal(after.image_hash[1], image[1]->image_hash);
    assert_int_equal(after.cycles - between.cycles, between.cycles - before.cycles);
}

static void exec_works_off_a_batch(void **state)
{
    (void)state;
    static struct kl_request request[N_BATCH];
    static struct kl_result result[N_BATCH + 1], expected[N_BATCH];
    uint32_t waited = 0;
    for (uint64_t n = 0; n < N_BATCH; n++) {
        request[n] = kernel_rig_step(n % 2, STREAM, n);
        request[n].seq_no = (uint32_t)n;
        request[n].op = n % 5 == 4 ? KL_OP_PREPARE : KL_OP_STEP;
        request[n].flags = n % 3 ? KL_REQUEST_PREPARE : 0; /* a batch has no idle moment: none is done */
        request[n].abi_version += n == 7;
        expected[n] = kernel_rig_exec(build, direct, &request[n]);
        expected[n].wait_cycles = n == 7 ? 0 : waited;
        expected[n].check = kl_result_check(&expected[n]);
        waited += n == 7 ? build->frame_cycles() : expected[n].kernel_cycles;
    }
    for (int s = 0; s < N_START; s++) {
        load(starts[s], 0, image[0], image[0]->size_bytes, KL_OK);
        load(starts[s], 1, image[1], image[1]->size_bytes, KL_OK);
        for (uint32_t n_request = 0; n_request <= N_BATCH; n_request += N_BATCH) {
            memset(result, 0xa5, sizeof result);
            const struct kl_result untouched = result[0];
            const struct kl_arguments arguments = {
                .command = KL_COMMAND_EXEC, .n_request = n_request, .request = request, .result = result};
            starts[s](&arguments);
            assert_memory_equal(result, expected, n_request * sizeof *result);
            assert_memory_equal(&result[n_request], &untouched, sizeof untouched);
        }
    }
}

static void a_batch_has_its_budgets_from_its_start(void **state)
{
    (void)state;
    for (int s = 0; s < N_START; s++) {
        load(starts[s], 0, image[0], image[0]->size_bytes, KL_OK);
        for (uint32_t over = 0; over < 2; over++) {
            struct kl_request request[2] = {kernel_rig_step(0, 2 * over, 0),
                                            kernel_rig_step(0, 2 * over + 1, 0)};
            struct kl_result result[2];
            request[1].budget_cycles = 2 * build->step_cycles(image[0], 1, 0) - over;
            const struct kl_arguments arguments = {
                .command = KL_COMMAND_EXEC, .n_request = 2, .request = request, .result = result};
            starts[s](&arguments);
            assert_int_equal(result[1].flags, over ? KL_RESULT_LATE : 0);
        }
    }
}

static void save_and_restore_move_a_state(void **state)
{
    (void)state;
    for (int s = 0; s < N_START; s++) {
        struct kl_state saved, expected;
        struct kl_result result;
        struct kl_request request = kernel_rig_step(1, STREAM, 5);
        load(starts[s], 1, image[1], image[1]->size_bytes, KL_OK);
        const struct kl_arguments exec = {
            .command = KL_COMMAND_EXEC, .n_request = 1, .request = &request, .result = &result};
        const struct kl_arguments save = {
            .command = KL_COMMAND_SAVE, .request = &request, .result = &result, .state = &saved};
        const struct kl_arguments restore = {
            .command = KL_COMMAND_RESTORE, .request = &request, .result = &result, .state = &saved};
        kernel_rig_op(build, direct, KL_OP_RESET, 1, STREAM);
        kernel_rig_exec(build, direct, &request);
        assert_int_equal(build->save(direct, 1, STREAM, &expected), KL_OK);
        starts[s](&exec);
        memset(&result, 0xa5, sizeof result);
        memset(&saved, 0xa5, sizeof saved);
        starts[s](&save);
        assert_status(&result, KL_OK, 1);
        assert_memory_equal(&saved, &expected, sizeof saved);
        const struct kl_result next = kernel_rig_exec(build, direct, &request);
        for (int again = 0; again < 2; again++) {
            starts[s](&exec);
            assert_true(kernel_rig_same(result, next));
            memset(&result, 0xa5, sizeof result);
            starts[s](&restore);
            assert_status(&result, KL_OK, 1);
        }
        saved.c[0][0] ^= 1;
        starts[s](&restore);
        assert_status(&result, KL_E_STATE, 1);
        starts[s](&exec);
        assert_true(kernel_rig_same(result, next));
    }
}

static void a_bad_place_or_command_is_refused(void **state)
{
    (void)state;
    for (int s = 0; s < N_START; s++) {
        struct kl_result result;
        struct kl_state untouched, saved;
        struct kl_request request = kernel_rig_request(0, 0, 0); /* op does not count here */
        load(starts[s], 0, image[0], image[0]->size_bytes, KL_OK);
        load(starts[s], 1, image[1], 0, KL_E_IMAGE);
        memset(&untouched, 0xa5, sizeof untouched);
        saved = untouched;
        const struct {
            uint16_t slot;
            uint32_t stream, status;
        } bad[] = {{KL_N_SLOT, 0, KL_E_SLOT},
                   {UINT16_MAX, 0, KL_E_SLOT},
                   {0, KL_N_STREAM_MAX, KL_E_STREAM},
                   {0, UINT32_MAX, KL_E_STREAM},
                   {1, 0, KL_E_EMPTY}};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            request.slot = bad[i].slot;
            request.stream = bad[i].stream;
            for (uint32_t command = KL_COMMAND_SAVE; command <= KL_COMMAND_RESTORE; command++) {
                memset(&result, 0xa5, sizeof result);
                const struct kl_arguments arguments = {
                    .command = command, .request = &request, .result = &result, .state = &saved};
                starts[s](&arguments);
                assert_status(&result, bad[i].status, bad[i].slot);
                assert_memory_equal(&saved, &untouched, sizeof saved);
            }
        }
        const uint32_t command[] = {KL_COMMAND_INFO + 1, 0x80000000u, UINT32_MAX};
        for (int i = 0; i < 3; i++) {
            memset(&result, 0xa5, sizeof result);
            const struct kl_arguments arguments = {.command = command[i], .slot = 1, .result = &result};
            starts[s](&arguments);
            assert_status(&result, KL_E_OP, 1);
        }
    }
}

static void info_tells_what_the_kernel_is(void **state)
{
    (void)state;
    for (int s = 0; s < N_START; s++) {
        struct kl_info info[2], expected; /* [1]: not to be touched */
        load(starts[s], 1, image[1], image[1]->size_bytes, KL_OK);
        load(starts[s], 0, image[0], 0, KL_E_IMAGE);
        memset(info, 0xa5, sizeof info);
        const struct kl_info untouched = info[1];
        const struct kl_arguments arguments = {.command = KL_COMMAND_INFO,
                                               .slot = KL_N_SLOT, /* does not count */
                                               .result = (struct kl_result *)(void *)info};
        starts[s](&arguments);
        build->info(direct, &expected);
        expected.image_hash[0] = 0;
        expected.image_hash[1] = image[1]->image_hash;
        expected.cycles = info[0].cycles;
        assert_memory_equal(&info[0], &expected, sizeof expected);
        assert_memory_equal(&info[1], &untouched, sizeof untouched);
        assert_true(info[0].cycles > image[1]->size_bytes / 8);
        if (s == 0) {
            build->info(unit, &expected);
            assert_memory_equal(&info[0], &expected, sizeof expected);
        }
    }
}

/* A fault there changes answers and nothing that the host could see of the model. */
static void the_weights_memory_can_be_damaged(void **state)
{
    (void)state;
    size_t size_bytes;
    build->init(unit, 0, 1);
    uint8_t *weights = build->weights(unit, &size_bytes);
    assert_ptr_equal(weights, &unit->core.weights);
    assert_int_equal(size_bytes, sizeof unit->core.weights);
    for (size_t i = 0; i < size_bytes; i++)
        assert_int_equal(weights[i], 0);
    load(start_unit, 1, image[1], image[1]->size_bytes, KL_OK);
    size_t n_used = 0;
    for (size_t i = 0; i < size_bytes; i++)
        n_used += weights[i] != 0;
    assert_true(n_used > 4 * 17 * 5); /* not whole rows of zeros */
    const struct kl_request request = kernel_rig_step(1, STREAM, 1);
    kernel_rig_exec(build, unit, &request);
    const struct kl_result right = kernel_rig_exec(build, unit, &request);
    uint32_t n_wrong = 0, n_tried = 0;
    for (size_t i = 0; i < size_bytes && n_tried < 40; i++) {
        if (weights[i] == 0 || i % 2 == 0) /* a weight's high byte */
            continue;
        n_tried++;
        weights[i] ^= 0x40;
        kernel_rig_op(build, unit, KL_OP_RESET, 1, STREAM);
        kernel_rig_exec(build, unit, &request);
        const struct kl_result wrong = kernel_rig_exec(build, unit, &request);
        assert_int_equal(wrong.status, KL_OK);
        assert_int_equal(wrong.image_hash, image[1]->image_hash);
        assert_int_equal(wrong.check, kl_result_check(&wrong)); /* of what it computed */
        n_wrong += memcmp(wrong.logits, right.logits, sizeof wrong.logits) != 0;
        weights[i] ^= 0x40;
    }
    assert_int_equal(n_tried, 40);
    assert_true(n_wrong > 30); /* a gate that is saturated hides one */
    kernel_rig_op(build, unit, KL_OP_RESET, 1, STREAM);
    kernel_rig_exec(build, unit, &request);
    assert_true(kernel_rig_same(kernel_rig_exec(build, unit, &request), right));
}

/* Run mode and doorbell mode are two doors to the same memories. */
static void service_rounds_see_what_run_mode_did(void **state)
{
    (void)state;
    for (int s = 0; s < N_START; s++) {
        uint32_t *reg = s == 0 ? build->registers(unit) : top_reg;
        struct kl_result result;
        struct kl_request request = kernel_rig_step(1, STREAM, 1);
        load(starts[s], 1, image[1], image[1]->size_bytes, KL_OK);
        kernel_rig_op(build, direct, KL_OP_RESET, 1, STREAM);
        const struct kl_result first = kernel_rig_exec(build, direct, &request),
                               second = kernel_rig_exec(build, direct, &request);
        const struct kl_arguments exec = {
            .command = KL_COMMAND_EXEC, .n_request = 1, .request = &request, .result = &result};
        const struct kl_arguments service = {.command = KL_COMMAND_SERVICE};
        starts[s](&exec);
        assert_true(kernel_rig_same(result, first));
        const uint32_t at = reg[KL_REG_REQUEST_TAIL] % KL_QUEUE_DEPTH;
        memcpy(&reg[KL_REG_REQUESTS + at * (sizeof request / 4)], &request, sizeof request);
        reg[KL_REG_REQUEST_TAIL]++;
        starts[s](&service);
        assert_int_equal(reg[KL_REG_RESULT_TAIL], reg[KL_REG_REQUEST_TAIL]);
        memcpy(&result, &reg[KL_REG_RESULTS + at * (sizeof result / 4)], sizeof result);
        assert_true(kernel_rig_same(result, second));
        assert_int_equal(result.wait_cycles, 0);
        reg[KL_REG_RESULT_HEAD]++;
        assert_int_equal(reg[KL_REG_INFO], KL_ABI_VERSION);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(load_takes_a_whole_image),
        TEST(a_load_takes_its_time),
        TEST(exec_works_off_a_batch),
        TEST(a_batch_has_its_budgets_from_its_start),
        TEST(save_and_restore_move_a_state),
        TEST(a_bad_place_or_command_is_refused),
        TEST(info_tells_what_the_kernel_is),
        TEST(the_weights_memory_can_be_damaged),
        TEST(service_rounds_see_what_run_mode_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
