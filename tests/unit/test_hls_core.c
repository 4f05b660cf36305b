#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hls/kl_core.h"
#include "hls/kl_kernel.h"
#include "tests/model_image.h"

static struct kl_core *core;
static struct kl_image_header *image[KL_N_SLOT]; /* what the slots hold */

static const struct model_image_shape SHAPE[KL_N_SLOT] = {
    {.n_in = 5, .n_layer = 2, .n_class = 3, .n_hidden = {17, 6}},
    {.n_in = 64, .n_layer = 3, .n_class = 8, .n_hidden = {65, 1, 100}},
};

static int set_up(void **state)
{
    (void)state;
    core = aligned_alloc(64, (kl_core_size_bytes() + 63) & ~(size_t)63);
    if (!core)
        return -1;
    kl_core_init(core);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        image[slot] = model_image_new(&SHAPE[slot], 10 + slot);
        if (!image[slot] || kl_core_load(core, slot, image[slot], image[slot]->size_bytes) != KL_OK)
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        free(image[slot]);
    free(core);
    return 0;
}

static struct kl_request request_of(uint32_t op, uint32_t slot, uint32_t stream)
{
    return (struct kl_request){.abi_version = KL_ABI_VERSION,
                               .op = (uint16_t)op,
                               .slot = (uint16_t)slot,
                               .stream = stream,
                               .seq_no = 0x12345678};
}

static struct kl_result exec(const struct kl_request *request)
{
    struct kl_result result;
    memset(&result, 0xa5, sizeof result); /* every byte has to be written */
    kl_core_exec(core, request, &result);
    return result;
}

static struct kl_result op_of(uint32_t op, uint32_t slot, uint32_t stream)
{
    const struct kl_request request = request_of(op, slot, stream);
    return exec(&request);
}

/* A step with the n-th random x of a fixed sequence. */
static struct kl_request step_request(uint32_t slot, uint32_t stream, uint64_t n)
{
    struct kl_request request = request_of(KL_OP_STEP, slot, stream);
    uint64_t seed = n * 1000 + 7;
    for (int k = 0; k < KL_N_IN_MAX; k++)
        request.x[k] = model_image_random_x(&seed);
    return request;
}

static struct kl_result step(uint32_t slot, uint32_t stream, uint64_t n)
{
    const struct kl_request request = step_request(slot, stream, n);
    const struct kl_result result = exec(&request);
    assert_int_equal(result.status, KL_OK);
    return result;
}

/* Result but for the cycles, which depend on prepare. */
static void assert_same_answer(struct kl_result a, struct kl_result b)
{
    a.kernel_cycles = b.kernel_cycles = 0;
    a.stream = b.stream = 0;
    assert_memory_equal(&a, &b, sizeof a);
}

static void assert_refused(const struct kl_request *request, uint32_t status)
{
    struct kl_core *before = malloc(sizeof *before);
    memcpy(before, core, sizeof *before);
    struct kl_result expected = {.abi_version = KL_ABI_VERSION,
                                 .status = (uint16_t)status,
                                 .stream = request->stream,
                                 .seq_no = request->seq_no,
                                 .slot = request->slot};
    const struct kl_result result = exec(request);
    assert_memory_equal(&result, &expected, sizeof result);
    assert_int_equal(memcmp(before, core, sizeof *before), 0); /* a failed request changes nothing */
    free(before);
}

static void a_bad_request_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    step(0, 3, 1);
    op_of(KL_OP_PREPARE, 0, 3);
    struct kl_request request;

    const uint16_t bad_abi[] = {0, KL_ABI_VERSION - 1, KL_ABI_VERSION + 1, UINT16_MAX};
    for (int i = 0; i < 4; i++) {
        request = step_request(0, 3, 2);
        request.abi_version = bad_abi[i];
        assert_refused(&request, KL_E_ABI);
    }
    const uint16_t bad_op[] = {0, KL_OP_RESET + 1, UINT16_MAX};
    for (int i = 0; i < 3; i++) {
        request = step_request(0, 3, 2);
        request.op = bad_op[i];
        assert_refused(&request, KL_E_OP);
    }
    for (uint16_t op = KL_OP_STEP; op <= KL_OP_RESET; op++) {
        request = step_request(KL_N_SLOT, 3, 2);
        request.op = op;
        assert_refused(&request, KL_E_SLOT);
        request.slot = UINT16_MAX;
        assert_refused(&request, KL_E_SLOT);
        request = step_request(0, KL_N_STREAM_MAX, 2);
        request.op = op;
        assert_refused(&request, KL_E_STREAM);
        request.stream = UINT32_MAX;
        assert_refused(&request, KL_E_STREAM);
    }
    const uint16_t bad_x[] = {0x7c00, 0xfc00, 0x7e00, 0x4c00, 0xcc00, 0x0001, 0x0fff /* 2^-12 and a bit */};
    for (uint32_t i = 0; i < sizeof bad_x / sizeof *bad_x; i++) {
        for (uint32_t k = 0; k < SHAPE[0].n_in; k++) {
            request = step_request(0, 3, 2);
            request.x[k] = bad_x[i];
            assert_refused(&request, KL_E_INPUT);
        }
    }
}

static void an_empty_slot_refuses_every_operation(void **state)
{
    (void)state;
    assert_int_equal(kl_core_load(core, 1, image[1], 10), KL_E_IMAGE);
    for (uint32_t op = KL_OP_STEP; op <= KL_OP_RESET; op++) {
        struct kl_request request = step_request(1, 0, 1);
        request.op = (uint16_t)op;
        assert_refused(&request, KL_E_EMPTY);
    }
    kl_core_init(core);
    struct kl_request request = step_request(0, 0, 1);
    assert_refused(&request, KL_E_EMPTY);
}

static void x_is_taken_at_its_bounds_and_ignored_beyond_n_in(void **state)
{
    (void)state;
    struct kl_request request = step_request(0, 0, 1);
    request.x[0] = 0x4bff; /* KL_X_ABS_MAX */
    request.x[1] = 0xcbff;
    request.x[2] = 0x8000; /* -0 */
    request.x[3] = 0x1000; /* 2^-11, one step */
    const struct kl_result result = exec(&request);
    assert_int_equal(result.status, KL_OK);
    op_of(KL_OP_RESET, 0, 0);
    for (uint32_t k = SHAPE[0].n_in; k < KL_N_IN_MAX; k++)
        request.x[k] = 0x7e00;
    request.x[2] = 0;
    assert_same_answer(exec(&request), result);
}

static void result_fields_tell_model_and_answer(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        const struct kl_result result = step(slot, 9, 1);
        assert_int_equal(result.abi_version, KL_ABI_VERSION);
        assert_int_equal(result.stream, 9);
        assert_int_equal(result.seq_no, 0x12345678);
        assert_int_equal(result.slot, slot);
        assert_int_equal(result.image_hash, image[slot]->image_hash);
        assert_int_equal(result.n_class, SHAPE[slot].n_class);
        assert_int_equal(result.logit_frac, image[slot]->head_frac + KL_H_FRAC);
        assert_int_equal(result.flags, 0);
        for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
            if (k >= SHAPE[slot].n_class)
                assert_int_equal(result.logits[k], 0);
            else if (k < result.cls)
                assert_true(result.logits[k] < result.logits[result.cls]);
            else
                assert_true(result.logits[k] <= result.logits[result.cls]);
        }
        for (size_t i = 0; i < sizeof result.pad; i++)
            assert_int_equal(result.pad[i], 0);
    }
    const struct kl_result prepared = op_of(KL_OP_PREPARE, 0, 9), reset = op_of(KL_OP_RESET, 0, 9);
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++)
        assert_true(prepared.logits[k] == 0 && reset.logits[k] == 0);
    assert_int_equal(prepared.image_hash, image[0]->image_hash);
}

static void negative_logits_beat_the_unused_classes(void **state)
{
    (void)state;
    /* Every logit is negative: the zeros above n_class must not win. */
    int64_t *head_bias = (int64_t *)(void *)((uint8_t *)image[0] + model_image_head_bias(image[0]));
    for (int k = 0; k < 3; k++)
        head_bias[k] = -(1LL << 50) - (k == 1 ? 0 : 1LL << 40);
    model_image_seal(image[0]);
    assert_int_equal(kl_core_load(core, 0, image[0], image[0]->size_bytes), KL_OK);
    const struct kl_result result = step(0, 0, 1);
    assert_int_equal(result.cls, 1);
    assert_true(result.logits[1] < -(1LL << 49));
}

static void a_tie_goes_to_the_lowest_class(void **state)
{
    (void)state;
    uint8_t *byte = (uint8_t *)image[0];
    const size_t head = model_image_head_bias(image[0]);
    memset(byte + head, 0, image[0]->size_bytes - head);
    ((int64_t *)(void *)(byte + head))[1] = 5;
    ((int64_t *)(void *)(byte + head))[2] = 5;
    model_image_seal(image[0]);
    assert_int_equal(kl_core_load(core, 0, image[0], image[0]->size_bytes), KL_OK);
    assert_int_equal(step(0, 0, 1).cls, 1);
}

static void prepare_changes_no_bit(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        for (uint64_t n = 0; n < 20; n++) {
            const struct kl_result plain = step(slot, 1, n);
            op_of(KL_OP_PREPARE, slot, 2);
            if (n % 3 == 0)
                op_of(KL_OP_PREPARE, slot, 2); /* twice is once */
            assert_same_answer(step(slot, 2, n), plain);
        }
    }
}

static void a_step_moves_the_state(void **state)
{
    (void)state;
    const struct kl_result first = step(0, 0, 1), second = step(0, 0, 1);
    assert_memory_not_equal(first.logits, second.logits, sizeof first.logits);
}

static void reset_brings_a_stream_back_to_its_start(void **state)
{
    (void)state;
    const struct kl_result first = step(1, 4, 1), other = step(1, 5, 1);
    for (uint64_t n = 2; n < 6; n++)
        step(1, 4, n);
    op_of(KL_OP_PREPARE, 1, 4); /* sums of the old h must not survive */
    const struct kl_result reset = op_of(KL_OP_RESET, 1, 4);
    assert_int_equal(reset.status, KL_OK);
    assert_int_equal(reset.prepare_cycles, kl_schedule_prepare_cycles(image[1]));
    assert_same_answer(step(1, 4, 1), first);
    /* Other streams, and the same stream of the other slot, are untouched. */
    const struct kl_result next = step(1, 5, 2);
    op_of(KL_OP_RESET, 1, 5);
    assert_same_answer(step(1, 5, 1), other);
    assert_same_answer(step(1, 5, 2), next);
}

static void slots_and_streams_are_independent(void **state)
{
    (void)state;
    const uint32_t streams[] = {0, 1, 128, KL_N_STREAM_MAX - 1};
    struct kl_result alone[KL_N_SLOT][4][5];
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        for (int s = 0; s < 4; s++) {
            for (int n = 0; n < 5; n++)
                alone[slot][s][n] = step(slot, streams[s], (uint64_t)(n * 4 + s));
        }
    }
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        for (int s = 0; s < 4; s++)
            op_of(KL_OP_RESET, slot, streams[s]);
    }
    for (int n = 0; n < 5; n++) {
        for (int s = 3; s >= 0; s--) {
            for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
                const struct kl_result result = step(slot, streams[s], (uint64_t)(n * 4 + s));
                assert_same_answer(result, alone[slot][s][n]);
            }
        }
    }
}

static void loading_resets_its_slot_only(void **state)
{
    (void)state;
    const struct kl_result first[KL_N_SLOT] = {step(0, 0, 1), step(1, 0, 1)};
    const struct kl_result second = step(1, 0, 2);
    op_of(KL_OP_RESET, 1, 0);
    step(1, 0, 1);
    assert_int_equal(kl_core_load(core, 0, image[0], image[0]->size_bytes), KL_OK);
    assert_same_answer(step(0, 0, 1), first[0]);
    assert_same_answer(step(1, 0, 2), second);
}

static void a_smaller_model_leaves_nothing_of_the_larger(void **state)
{
    (void)state;
    struct kl_result expected[10];
    for (uint64_t n = 0; n < 10; n++)
        expected[n] = step(0, 0, n);
    for (uint64_t n = 0; n < 10; n++)
        step(1, 0, n);
    assert_int_equal(kl_core_load(core, 1, image[0], image[0]->size_bytes), KL_OK);
    for (uint64_t n = 0; n < 10; n++) {
        struct kl_result result = step(1, 0, n);
        result.slot = 0;
        assert_same_answer(result, expected[n]);
    }
}

static void late_is_above_the_budget(void **state)
{
    (void)state;
    for (uint32_t op = KL_OP_STEP; op <= KL_OP_RESET; op++) {
        struct kl_request request = step_request(0, 0, 1);
        request.op = (uint16_t)op;
        uint32_t cycles = 0;
        for (int around = -2; around <= 1; around++) {
            step(0, 0, 2); /* back to not prepared */
            request.budget_cycles = around == -2 ? 0 : cycles + (uint32_t)around;
            const struct kl_result result = exec(&request);
            assert_int_equal(result.flags, around == -1 ? KL_RESULT_LATE : 0);
            cycles = result.kernel_cycles;
            assert_true(cycles > 1);
        }
        request.budget_cycles = 1;
        step(0, 0, 2);
        assert_int_equal(exec(&request).flags, KL_RESULT_LATE);
        request.budget_cycles = UINT32_MAX;
        assert_int_equal(exec(&request).flags, 0);
    }
}

/* By hand, from the depths in kl_schedule.c: frame 12; product 9; a layer's step 9 + 7 + 25 + 1 = 42; a
 * layer's prepare 9 + 1; head 4 per block + 11. A weight word is 4 cycles. */
static void cycles_are_those_of_the_schedule(void **state)
{
    (void)state;
    /* 5-17-6-3: rows 68 and 24, groups 3 and 1, one block everywhere. */
    const uint32_t prepared = 12 + (3 * 4 + 42) + (1 * 4 + 42) + (4 + 11);
    const uint32_t body = (3 * 4 + 10) + (1 * 4 + 10);
    assert_int_equal(kl_schedule_step_cycles(image[0], 1), prepared);
    assert_int_equal(kl_schedule_step_cycles(image[0], 0), prepared + body);
    assert_int_equal(kl_schedule_prepare_cycles(image[0]), 12 + body);
    assert_int_equal(kl_schedule_reset_cycles(image[0]), 12 + 1 + 3 + 1);
    assert_int_equal(kl_schedule_frame_cycles(), 12);
    /* 64-65-1-100-8: groups 9, 1, 13; x blocks 1, 2, 1; h blocks 2, 1, 2. */
    const uint32_t large = 12 + (9 * 4 + 42) + (1 * 2 * 4 + 42) + (13 * 4 + 42) + (2 * 4 + 11);
    assert_int_equal(kl_schedule_step_cycles(image[1], 1), large);
    assert_int_equal(kl_schedule_prepare_cycles(image[1]), 12 + 9 * 2 * 4 + 4 + 13 * 2 * 4 + 3 * 10);
    assert_int_equal(kl_schedule_step_cycles(image[1], 0), large + 9 * 2 * 4 + 4 + 13 * 2 * 4 + 3 * 10);
}

static void results_carry_the_cycles_of_what_was_done(void **state)
{
    (void)state;
    const uint32_t prepare_cycles = kl_schedule_prepare_cycles(image[0]);
    struct kl_result result = step(0, 0, 1);
    assert_int_equal(result.kernel_cycles, kl_schedule_step_cycles(image[0], 0));
    assert_int_equal(result.prepare_cycles, prepare_cycles);
    result = op_of(KL_OP_PREPARE, 0, 0);
    assert_int_equal(result.kernel_cycles, prepare_cycles);
    assert_int_equal(result.prepare_cycles, kl_schedule_frame_cycles());
    result = op_of(KL_OP_PREPARE, 0, 0);
    assert_int_equal(result.kernel_cycles, kl_schedule_frame_cycles());
    result = step(0, 0, 2);
    assert_int_equal(result.kernel_cycles, kl_schedule_step_cycles(image[0], 1));
    assert_int_equal(result.prepare_cycles, prepare_cycles);
    result = op_of(KL_OP_RESET, 0, 0);
    assert_int_equal(result.kernel_cycles, kl_schedule_reset_cycles(image[0]));
}

static void top_loads_executes_and_refuses(void **state)
{
    (void)state;
    struct kl_result result, expected;
    struct kl_request request = step_request(1, 7, 1);
    kl_kernel(KL_COMMAND_EXEC, 0, NULL, 0, &request, &result);
    assert_int_equal(result.status, KL_E_EMPTY);

    kl_kernel(KL_COMMAND_LOAD, 1, (const uint8_t *)image[1], image[1]->size_bytes - 1, NULL, &result);
    assert_int_equal(result.status, KL_E_IMAGE);
    assert_int_equal(result.image_hash, 0);
    kl_kernel(KL_COMMAND_LOAD, KL_N_SLOT, (const uint8_t *)image[1], image[1]->size_bytes, NULL, &result);
    assert_int_equal(result.status, KL_E_SLOT);
    kl_kernel(KL_COMMAND_LOAD + 1, 1, (const uint8_t *)image[1], image[1]->size_bytes, &request, &result);
    assert_int_equal(result.status, KL_E_OP);

    memset(&result, 0xa5, sizeof result);
    expected =
        (struct kl_result){.abi_version = KL_ABI_VERSION, .slot = 1, .image_hash = image[1]->image_hash};
    kl_kernel(KL_COMMAND_LOAD, 1, (const uint8_t *)image[1], image[1]->size_bytes, NULL, &result);
    assert_memory_equal(&result, &expected, sizeof result);

    for (uint64_t n = 0; n < 4; n++) {
        request = step_request(1, 7, n);
        kl_kernel(KL_COMMAND_EXEC, 0, NULL, 0, &request, &result);
        expected = exec(&request);
        assert_memory_equal(&result, &expected, sizeof result);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_bad_request_is_refused_and_changes_nothing),
        TEST(an_empty_slot_refuses_every_operation),
        TEST(x_is_taken_at_its_bounds_and_ignored_beyond_n_in),
        TEST(result_fields_tell_model_and_answer),
        TEST(negative_logits_beat_the_unused_classes),
        TEST(a_tie_goes_to_the_lowest_class),
        TEST(prepare_changes_no_bit),
        TEST(a_step_moves_the_state),
        TEST(reset_brings_a_stream_back_to_its_start),
        TEST(slots_and_streams_are_independent),
        TEST(loading_resets_its_slot_only),
        TEST(a_smaller_model_leaves_nothing_of_the_larger),
        TEST(late_is_above_the_budget),
        TEST(cycles_are_those_of_the_schedule),
        TEST(results_carry_the_cycles_of_what_was_done),
        TEST(top_loads_executes_and_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
