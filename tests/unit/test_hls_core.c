#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hls/kl_latency.h"
#include "hls/records.h"
#include "tests/unit/hls_example.h"

enum { SLOT = 1, STREAM = 7 };

/* Cycles of the example: one group of one column step, then the head's. */
enum {
    PREPARE = KL_FRAME + 1 + KL_DEPTH_DRAIN,
    STEP = KL_LAT_DECODE + KL_DEPTH_H + KL_DEPTH_HEAD,
    STEP_UNPREPARED = STEP + 1 + KL_DEPTH_DRAIN,
    RESET = KL_FRAME + 3 * 256 / 8, /* small: its layers, and the parts of the largest h that a pair shares */
};

static struct kl_core *core;
static uint64_t image_hash;

static int set_up(void **state)
{
    (void)state;
    core = tb_unit_core(0, 0, 1);
    image_hash = example_load(core, SLOT);
    return image_hash == 0;
}

static struct kl_request request_of(uint16_t op, const uint16_t *x)
{
    struct kl_request request = {
        .abi_version = KL_ABI_VERSION, .op = op, .slot = SLOT, .stream = STREAM, .seq_no = 99};
    if (x)
        memcpy(request.x, x, sizeof example_x);
    return request;
}

static struct kl_result exec(const struct kl_request *request, uint32_t wait_cycles)
{
    struct kl_result result;
    memset(&result, 0xa5, sizeof result);
    core_exec(core, request, wait_cycles, &result);
    return result;
}

static struct kl_result exec_op(uint16_t op, const uint16_t *x)
{
    const struct kl_request request = request_of(op, x);
    return exec(&request, 0);
}

static void assert_status_only(struct kl_result result, uint32_t status)
{
    struct kl_result expected = {.abi_version = KL_ABI_VERSION,
                                 .status = (uint16_t)status,
                                 .stream = result.stream,
                                 .seq_no = 99,
                                 .slot = result.slot};
    expected.check = kl_result_check(&expected);
    assert_memory_equal(&result, &expected, sizeof result);
}

static void an_answer_has_all_of_the_model(void **state)
{
    (void)state;
    const struct kl_result result = exec_op(KL_OP_STEP, example_x);
    struct kl_result expected = {.abi_version = KL_ABI_VERSION,
                                 .status = KL_OK,
                                 .stream = STREAM,
                                 .seq_no = 99,
                                 .slot = SLOT,
                                 .cls = 0,
                                 .kernel_cycles = STEP_UNPREPARED,
                                 .prepare_cycles = PREPARE,
                                 .image_hash = image_hash,
                                 .n_class = 2,
                                 .logit_frac = 25,
                                 .logits = {example_logit[0][0], example_logit[0][1]}};
    expected.check = kl_result_check(&expected);
    assert_memory_equal(&result, &expected, sizeof result);
    const struct kl_result next = exec_op(KL_OP_STEP, NULL);
    assert_true(next.logits[0] == example_logit[1][0] && next.logits[1] == example_logit[1][1]);
}

static void prepare_moves_cycles_but_no_bit(void **state)
{
    (void)state;
    struct kl_result result = exec_op(KL_OP_PREPARE, NULL);
    assert_int_equal(result.kernel_cycles, PREPARE);
    assert_int_equal(result.prepare_cycles, KL_FRAME);
    assert_int_equal(exec_op(KL_OP_PREPARE, NULL).kernel_cycles, KL_FRAME);
    result = exec_op(KL_OP_STEP, example_x);
    assert_int_equal(result.kernel_cycles, STEP);
    assert_true(result.logits[0] == example_logit[0][0]);
    result = exec_op(KL_OP_STEP, NULL); /* prepared no more */
    assert_int_equal(result.kernel_cycles, STEP_UNPREPARED);
    assert_true(result.logits[0] == example_logit[1][0]);
}

static void reset_brings_the_first_step_back(void **state)
{
    (void)state;
    exec_op(KL_OP_STEP, example_x);
    exec_op(KL_OP_PREPARE, NULL); /* of an h that is gone after the reset */
    const struct kl_result result = exec_op(KL_OP_RESET, NULL);
    assert_int_equal(result.kernel_cycles, RESET);
    assert_int_equal(result.prepare_cycles, PREPARE);
    assert_true(exec_op(KL_OP_STEP, example_x).logits[0] == example_logit[0][0]);
}

static void a_budget_is_met_to_the_cycle(void **state)
{
    (void)state;
    struct kl_request request = request_of(KL_OP_STEP, example_x);
    request.budget_cycles = STEP_UNPREPARED - 1;
    struct kl_result result = exec(&request, 0);
    assert_int_equal(result.status, KL_OK);
    assert_int_equal(result.flags, KL_RESULT_LATE);
    assert_int_equal(result.kernel_cycles, KL_FRAME);
    assert_int_equal(result.prepare_cycles, PREPARE);
    assert_true(result.logits[0] == 0 && result.image_hash == image_hash);
    request.budget_cycles = STEP_UNPREPARED; /* nothing has changed: it is the first step still */
    result = exec(&request, 0);
    assert_int_equal(result.flags, 0);
    assert_true(result.logits[0] == example_logit[0][0]);
    /* What it waited counts. */
    request.budget_cycles = STEP_UNPREPARED + 500;
    result = exec(&request, 501);
    assert_int_equal(result.flags, KL_RESULT_LATE);
    assert_int_equal(result.wait_cycles, 501);
    assert_int_equal(exec(&request, 500).flags, 0);
    request.op = KL_OP_RESET;
    request.budget_cycles = 1; /* any operation can be late */
    assert_int_equal(exec(&request, 0).flags, KL_RESULT_LATE);
}

static void a_wait_near_the_counters_end_is_late(void **state)
{
    (void)state;
    struct kl_request request = request_of(KL_OP_STEP, example_x);
    request.budget_cycles = UINT32_MAX;
    assert_int_equal(exec(&request, UINT32_MAX - STEP_UNPREPARED + 1).flags, KL_RESULT_LATE);
    assert_int_equal(exec(&request, UINT32_MAX - STEP_UNPREPARED).flags, 0);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint16_t abi_version, op, slot, flags;
        uint32_t stream, status;
    } bad[] = {
        {KL_ABI_VERSION - 1, KL_OP_STEP, SLOT, 0, STREAM, KL_E_ABI},
        {KL_ABI_VERSION, 0, SLOT, 0, STREAM, KL_E_OP},
        {KL_ABI_VERSION, KL_OP_RESET + 1, SLOT, 0, STREAM, KL_E_OP},
        {KL_ABI_VERSION, KL_OP_STEP, SLOT, 2, STREAM, KL_E_OP},
        {KL_ABI_VERSION, KL_OP_STEP, KL_N_SLOT, 0, STREAM, KL_E_SLOT},
        {KL_ABI_VERSION, KL_OP_STEP, SLOT, 0, KL_BUILD_STREAMS, KL_E_STREAM},
        {KL_ABI_VERSION, KL_OP_STEP, 0, 0, STREAM, KL_E_EMPTY},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kl_request request = request_of(bad[i].op, example_x);
        request.abi_version = bad[i].abi_version;
        request.slot = bad[i].slot;
        request.flags = bad[i].flags;
        request.stream = bad[i].stream;
        assert_status_only(exec(&request, 0), bad[i].status);
    }
    const uint16_t infinite[2] = {0x7c00, 0};
    assert_status_only(exec_op(KL_OP_STEP, infinite), KL_E_INPUT);
    struct kl_request flagged = request_of(KL_OP_STEP, example_x);
    flagged.flags = KL_REQUEST_PREPARE;
    flagged.x[2] = 0x7c00; /* beyond n_in */
    const struct kl_result result = exec(&flagged, 0);
    assert_int_equal(result.status, KL_OK);
    assert_true(result.logits[0] == example_logit[0][0]);
}

static void a_lost_state_needs_a_reset(void **state)
{
    (void)state;
    core->lost[SLOT][STREAM] = 1;
    assert_status_only(exec_op(KL_OP_STEP, example_x), KL_E_STATE);
    assert_status_only(exec_op(KL_OP_PREPARE, NULL), KL_E_STATE);
    assert_int_equal(exec_op(KL_OP_RESET, NULL).status, KL_OK);
    assert_true(exec_op(KL_OP_STEP, example_x).logits[0] == example_logit[0][0]);
}

static void the_clock_moves_by_what_was_done(void **state)
{
    (void)state;
    const uint64_t start = core->cycles;
    exec_op(KL_OP_STEP, example_x);
    assert_true(core->cycles == start + STEP_UNPREPARED);
    exec_op(KL_OP_PREPARE, NULL);
    assert_true(core->cycles == start + STEP_UNPREPARED + PREPARE);
    exec_op(77, NULL);
    assert_true(core->cycles == start + STEP_UNPREPARED + PREPARE + KL_FRAME);
}

static void a_pair_answers_as_one_unit_does(void **state)
{
    (void)state;
    struct kl_core *pair[2] = {tb_unit_core(0, 0, 2), tb_unit_core(1, 1, 2)};
    assert_true(example_load(pair[0], SLOT) != 0);
    struct kl_request request = request_of(KL_OP_STEP, example_x);
    struct kl_result result;
    core_exec_pair(pair, &request, 0, &result);
    assert_status_only(result, KL_E_EMPTY); /* one of them has no model yet */
    assert_true(example_load(pair[1], SLOT) != 0);
    core_exec_pair(pair, &request, 3, &result);
    assert_int_equal(result.status, KL_OK);
    assert_int_equal(result.wait_cycles, 3);
    assert_true(result.logits[0] == example_logit[0][0] && result.logits[1] == example_logit[0][1]);
    memset(request.x, 0, sizeof example_x);
    core_exec_pair(pair, &request, 0, &result);
    assert_true(result.logits[0] == example_logit[1][0] && result.logits[1] == example_logit[1][1]);
    assert_true(pair[0]->cycles == pair[1]->cycles);
    /* The halves disagree: the answer cannot be trusted, nor the state. */
    weights_head_row(&pair[1]->weights, SLOT, 0, 0)[0]++;
    core_exec_pair(pair, &request, 0, &result);
    assert_status_only(result, KL_E_PEER);
    core_exec_pair(pair, &request, 0, &result);
    assert_status_only(result, KL_E_STATE);
}

/* Beat by beat, with seq_no last, and the same as the result; of a step only. */
static void a_steps_answer_leaves_from_inside_the_pipeline(void **state)
{
    (void)state;
    uint32_t words[RECORD_RESULT_WORDS];
    struct kl_result result;
    struct kl_request request = request_of(KL_OP_STEP, example_x);
    memset(words, 0xa5, sizeof words);
    core_take(core, &request);
    core_exec_taken(core, &request, 3, &result, words);
    assert_int_equal(result.status, KL_OK);
    assert_int_equal(words[2], 99);
    assert_int_equal(result.check, kl_result_check(&result)); /* there as early as the rest */
    for (uint32_t i = 0; i < RECORD_RESULT_WORDS; i++)
        assert_int_equal(words[i], record_result_get(&result, i));
    memset(words, 0xa5, sizeof words);
    request.op = KL_OP_PREPARE;
    core_exec_taken(core, &request, 0, &result, words);
    request.op = KL_OP_STEP;
    request.budget_cycles = 1;
    core_take(core, &request);
    core_exec_taken(core, &request, 0, &result, words);
    assert_int_equal(result.flags, KL_RESULT_LATE);
    request.budget_cycles = 0;
    request.x[0] = 0x7c00;
    core_take(core, &request);
    core_exec_taken(core, &request, 0, &result, words);
    assert_int_equal(result.status, KL_E_INPUT);
    for (uint32_t i = 0; i < RECORD_RESULT_WORDS; i++)
        assert_int_equal(words[i], 0xa5a5a5a5);
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_has_all_of_the_model),       TEST(prepare_moves_cycles_but_no_bit),
        TEST(reset_brings_the_first_step_back),     TEST(a_budget_is_met_to_the_cycle),
        TEST(a_wait_near_the_counters_end_is_late), TEST(bad_requests_are_refused),
        TEST(a_lost_state_needs_a_reset),           TEST(the_clock_moves_by_what_was_done),
        TEST(a_pair_answers_as_one_unit_does),      TEST(a_steps_answer_leaves_from_inside_the_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
