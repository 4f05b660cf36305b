/* The csim backend: one unit is the native build behind accel.h; two units split every layer's rows and give
 * the same bits, through a queue of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/accel.h"
#include "tests/model_image.h"

enum { SLOT = 1, N_STREAM = 3, N_STEP = 60 };

static const struct model_image_shape SHAPE = {.n_in = 20, .n_layer = 2, .n_class = 3, .n_hidden = {70, 65}};

static struct accel *accel[2]; /* of one unit, of two */
static struct kl_image_header *image;

static int set_up(void **state)
{
    (void)state;
    image = model_image_new(&SHAPE, 3);
    for (uint32_t n_part = 1; n_part <= 2; n_part++)
        accel[n_part - 1] = accel_csim_open(&kl_build_small, n_part);
    return accel[0] && accel[1] && image ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        accel[i]->ops->close(accel[i]);
    free(image);
    return 0;
}

static void load_both(void)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(accel_load(accel[i], SLOT, image, image->size_bytes), KL_OK);
}

static struct kl_request request_of(enum kl_op op, uint32_t seq_no)
{
    struct kl_request request = {.abi_version = KL_ABI_VERSION,
                                 .op = (uint16_t)op,
                                 .slot = SLOT,
                                 .stream = seq_no % N_STREAM,
                                 .seq_no = seq_no};
    uint64_t seed = seq_no;
    for (uint32_t k = 0; k < SHAPE.n_in; k++)
        request.x[k] = model_image_random_x(&seed);
    return request;
}

static struct kl_result answer_of(struct accel *a, const struct kl_request *request)
{
    struct kl_result result;
    assert_int_equal(a->ops->submit(a, request), 0);
    assert_int_equal(a->ops->poll(a, &result), 1);
    assert_int_equal(result.seq_no, request->seq_no);
    assert_int_equal(result.check, kl_result_check(&result));
    return result;
}

/* Cycles apart. */
static void expect_same_bits(const struct kl_result *a, const struct kl_result *b)
{
    struct kl_result copy = *b;
    copy.kernel_cycles = a->kernel_cycles;
    copy.prepare_cycles = a->prepare_cycles;
    copy.wait_cycles = a->wait_cycles;
    copy.check = kl_result_check(&copy);
    assert_memory_equal(a, &copy, sizeof copy);
}

static void the_queue_takes_its_depth_and_answers_in_order(void **state)
{
    (void)state;
    load_both();
    for (int i = 0; i < 2; i++) {
        const struct accel_ops *ops = accel[i]->ops;
        struct kl_result result, untouched;
        memset(&result, 0xa5, sizeof result);
        untouched = result;
        assert_int_equal(ops->poll(accel[i], &result), -1);
        assert_memory_equal(&result, &untouched, sizeof result);
        /* Its places are used over and over. */
        for (uint32_t round = 0; round < 3; round++) {
            struct kl_request request;
            for (uint32_t n = 0; n < KL_QUEUE_DEPTH; n++) {
                request = request_of(KL_OP_STEP, 100 * round + n);
                assert_int_equal(ops->submit(accel[i], &request), 0);
                memset(&request, 0xff, sizeof request); /* not kept */
            }
            request = request_of(KL_OP_STEP, 99);
            assert_int_equal(ops->submit(accel[i], &request), -1);
            uint32_t waited = 0;
            for (uint32_t n = 0; n < KL_QUEUE_DEPTH; n++) {
                assert_int_equal(ops->poll(accel[i], &result), 1);
                assert_int_equal(result.status, KL_OK);
                assert_int_equal(result.seq_no, 100 * round + n);
                assert_int_equal(result.wait_cycles, waited); /* for those before it */
                waited += result.kernel_cycles;
            }
            assert_int_equal(ops->poll(accel[i], &result), -1);
        }
    }
}

static void answers_are_the_kernels(void **state)
{
    (void)state;
    struct kl_unit *unit = aligned_alloc(64, kl_build_small.unit_size_bytes());
    assert_non_null(unit);
    kl_build_small.init(unit, 0, 1);
    assert_int_equal(kl_build_small.load_begin(unit, SLOT, image, image->size_bytes), KL_OK);
    uint32_t status;
    while ((status = kl_build_small.load_advance(unit)) == KL_E_BUSY)
        ;
    assert_int_equal(status, KL_OK);
    for (uint32_t n = 0; n < 10; n++) {
        if (n == 2)
            load_both();
        const struct kl_request request = request_of(KL_OP_STEP, n);
        struct kl_result result = answer_of(accel[0], &request), expected;
        if (n < 2) {
            assert_int_equal(result.status, KL_E_EMPTY); /* refusals are answers too */
            continue;
        }
        kl_build_small.exec(unit, &request, &expected);
        assert_int_equal(expected.status, KL_OK);
        assert_memory_equal(&result, &expected, sizeof result);
    }
    free(unit);
}

static void two_units_give_the_bits_of_one(void **state)
{
    (void)state;
    static const enum kl_op ops[] = {KL_OP_STEP,    KL_OP_STEP, KL_OP_PREPARE, KL_OP_STEP, KL_OP_PREPARE,
                                     KL_OP_PREPARE, KL_OP_STEP, KL_OP_STEP,    KL_OP_RESET};
    load_both();
    uint32_t n_step = 0;
    int64_t last[KL_N_CLASS_MAX] = {0};
    for (uint32_t n = 0; n < N_STEP; n++) {
        struct kl_request request = request_of(ops[n * 7 % (sizeof ops / sizeof ops[0])], n);
        if (n == 20)
            request.stream = KL_N_STREAM_MAX;
        if (n == 30)
            request.x[3] = 0x7c00; /* infinity */
        if (n == 40)
            request.op = 77;
        const struct kl_result one = answer_of(accel[0], &request), two = answer_of(accel[1], &request);
        expect_same_bits(&one, &two);
        if (request.op == KL_OP_STEP && one.status == KL_OK) {
            assert_true(two.kernel_cycles == kl_build_small.step_cycles(image, 2, 0) ||
                        two.kernel_cycles == kl_build_small.step_cycles(image, 2, 1));
            assert_memory_not_equal(one.logits, last, sizeof last);
            memcpy(last, one.logits, sizeof last);
            n_step++;
        }
    }
    assert_true(n_step > N_STEP / 3);
}

/* The budget runs from the doorbell. A tick that comes too late in the queue is not begun: the state is as
 * before. */
static void budgets_are_kept_through_the_queue(void **state)
{
    (void)state;
    load_both();
    for (int i = 0; i < 2; i++) {
        const struct accel_ops *ops = accel[i]->ops;
        struct kl_request first = request_of(KL_OP_STEP, 0);
        const uint32_t step = answer_of(accel[i], &first).kernel_cycles; /* never prepared: all the same */
        for (uint32_t over = 0; over < 2; over++) {
            struct kl_request requests[3] = {request_of(KL_OP_STEP, 3), request_of(KL_OP_STEP, 6),
                                             request_of(KL_OP_STEP, 9)};
            requests[0].budget_cycles = step;
            requests[1].budget_cycles = 2 * step - over;
            requests[2].budget_cycles = over ? 1 : UINT32_MAX; /* spent while it waited; none */
            struct kl_result result[3];
            struct kl_state before, after;
            assert_int_equal(ops->save(accel[i], SLOT, 0, &before), KL_OK);
            for (int n = 0; n < 3; n++)
                assert_int_equal(ops->submit(accel[i], &requests[n]), 0);
            for (int n = 0; n < 3; n++)
                assert_int_equal(ops->poll(accel[i], &result[n]), 1);
            assert_int_equal(result[0].flags, 0);
            assert_int_equal(result[1].flags, over ? KL_RESULT_LATE : 0);
            assert_int_equal(result[2].flags, over ? KL_RESULT_LATE : 0);
            assert_int_equal(ops->save(accel[i], SLOT, 0, &after), KL_OK);
            assert_memory_not_equal(&before, &after, sizeof after);
            if (!over)
                continue;
            static const int64_t none[KL_N_CLASS_MAX];
            assert_int_equal(result[1].status, KL_OK);
            assert_memory_equal(result[1].logits, none, sizeof none);
            /* Only the first of the three has moved it. */
            assert_int_equal(ops->restore(accel[i], SLOT, 0, &before), KL_OK);
            requests[0].budget_cycles = 0;
            answer_of(accel[i], &requests[0]);
            assert_int_equal(ops->save(accel[i], SLOT, 0, &before), KL_OK);
            assert_memory_equal(&before, &after, sizeof after);
        }
    }
}

/* KL_REQUEST_PREPARE: done when nothing waits, not before the queue is empty. */
static void prepares_that_are_asked_for_come_when_idle(void **state)
{
    (void)state;
    load_both();
    for (int i = 0; i < 2; i++) {
        const struct accel_ops *ops = accel[i]->ops;
        struct kl_request requests[3] = {request_of(KL_OP_STEP, 0), request_of(KL_OP_STEP, 1),
                                         request_of(KL_OP_STEP, 3)}; /* streams 0, 1, 0 */
        for (int n = 0; n < 3; n++)
            requests[n].flags = KL_REQUEST_PREPARE;
        struct kl_result result;
        uint32_t cycles[3];
        for (int n = 0; n < 3; n++)
            assert_int_equal(ops->submit(accel[i], &requests[n]), 0);
        for (int n = 0; n < 3; n++) {
            assert_int_equal(ops->poll(accel[i], &result), 1);
            assert_int_equal(result.status, KL_OK);
            cycles[n] = result.kernel_cycles;
        }
        assert_int_equal(cycles[2], cycles[0]); /* a tick was waiting: nothing was prepared */
        assert_int_equal(ops->poll(accel[i], &result), -1);
        for (uint32_t n = 3; n < 5; n++) { /* both streams */
            const struct kl_request next = request_of(KL_OP_STEP, n);
            assert_true(answer_of(accel[i], &next).kernel_cycles < cycles[0]);
        }
        const struct kl_request again = request_of(KL_OP_STEP, 6); /* not asked for: not prepared */
        assert_int_equal(ops->poll(accel[i], &result), -1);
        assert_int_equal(answer_of(accel[i], &again).kernel_cycles, cycles[0]);
    }
}

static void load_reports_the_kernels_verdict(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct accel_ops *ops = accel[i]->ops;
        assert_int_equal(ops->load_advance(accel[i]), KL_E_EMPTY);
        assert_int_equal(accel_load(accel[i], KL_N_SLOT, image, image->size_bytes), KL_E_SLOT);
        assert_int_equal(accel_load(accel[i], 0, image, image->size_bytes - 8), KL_E_IMAGE);
        assert_int_equal(ops->load_begin(accel[i], 0, image, image->size_bytes), KL_OK);
        assert_int_equal(ops->load_begin(accel[i], 0, image, image->size_bytes), KL_E_BUSY);
        assert_int_equal(ops->load_advance(accel[i]), KL_E_BUSY);
        struct kl_request request = request_of(KL_OP_STEP, 1);
        request.slot = 0;
        assert_int_equal(answer_of(accel[i], &request).status, KL_E_EMPTY); /* while it is loaded */
        uint32_t status;
        while ((status = ops->load_advance(accel[i])) == KL_E_BUSY)
            ;
        assert_int_equal(status, KL_OK);
        assert_int_equal(answer_of(accel[i], &request).status, KL_OK);
        struct kl_info info;
        ops->info(accel[i], &info);
        assert_string_equal(info.build, "small");
        assert_int_equal(info.abi_version, KL_ABI_VERSION);
        assert_int_equal(info.n_part, i + 1);
        assert_int_equal(info.image_hash[0], image->image_hash);
        assert_int_equal(info.image_hash[1], 0);
    }
    image->image_hash ^= 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(accel_load(accel[i], 0, image, image->size_bytes), KL_E_IMAGE_HASH);
    image->image_hash ^= 1;
    image->abi_version = 1;
    model_image_seal(image);
    for (int i = 0; i < 2; i++)
        assert_int_equal(accel_load(accel[i], 0, image, image->size_bytes), KL_E_ABI);
}

/* Of an odd number of groups the first half holds one more, and in a model this large it clears more lines
 * than there are streams: it is behind the other half from then on. */
static void a_pairs_halves_may_end_their_loads_at_different_times(void **state)
{
    (void)state;
    const struct model_image_shape shape = {.n_in = 128, .n_layer = 1, .n_class = 2, .n_hidden = {248}};
    struct kl_image_header *large = model_image_new(&shape, 5);
    assert_non_null(large);
    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged)
            ((uint8_t *)large)[large->size_bytes - 1] ^= 1;
        assert_int_equal(accel_load(accel[1], 0, large, large->size_bytes),
                         damaged ? KL_E_IMAGE_HASH : KL_OK);
        assert_int_equal(accel[1]->ops->load_advance(accel[1]), KL_E_EMPTY);
        struct kl_request request = request_of(KL_OP_STEP, 1);
        request.slot = 0;
        memset(request.x, 0, sizeof request.x);
        assert_int_equal(answer_of(accel[1], &request).status, damaged ? KL_E_EMPTY : KL_OK);
    }
    free(large);
}

static void states_move_between_one_unit_and_two(void **state)
{
    (void)state;
    load_both();
    struct kl_state saved, other;
    for (uint32_t n = 0; n < 6; n++) {
        const struct kl_request request = request_of(KL_OP_STEP, n);
        answer_of(accel[0], &request);
        answer_of(accel[1], &request);
    }
    for (uint32_t stream = 0; stream < N_STREAM; stream++) {
        assert_int_equal(accel[0]->ops->save(accel[0], SLOT, stream, &saved), KL_OK);
        assert_int_equal(accel[1]->ops->save(accel[1], SLOT, stream, &other), KL_OK);
        assert_memory_equal(&saved, &other, sizeof saved);
        assert_int_equal(saved.check, kl_state_check(&saved));
    }
    /* Stream 0's state into a fresh stream of the other accelerator: they go on alike. */
    for (int from = 0; from < 2; from++) {
        assert_int_equal(accel[from]->ops->save(accel[from], SLOT, 0, &saved), KL_OK);
        assert_int_equal(accel[!from]->ops->restore(accel[!from], SLOT, 9, &saved), KL_OK);
        struct kl_request request = request_of(KL_OP_STEP, 12);
        const struct kl_result here = answer_of(accel[from], &request);
        request.stream = 9;
        struct kl_result there = answer_of(accel[!from], &request);
        there.stream = 0;
        expect_same_bits(&here, &there);
    }
    saved.h[0][0] ^= 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(accel[i]->ops->restore(accel[i], SLOT, 0, &saved), KL_E_STATE);
        assert_int_equal(accel[i]->ops->save(accel[i], 0, 0, &other), KL_E_EMPTY);
        assert_int_equal(accel[i]->ops->save(accel[i], SLOT, KL_N_STREAM_MAX, &other), KL_E_STREAM);
    }
}

static void two_accelerators_share_nothing(void **state)
{
    (void)state;
    load_both();
    struct accel *other = accel_csim_open(&kl_build_fast, 1);
    assert_non_null(other);
    assert_string_equal(other->ops->name, "csim");
    other->ops->warm(other, SLOT, 0);
    const struct kl_request request = request_of(KL_OP_STEP, 1);
    struct kl_result result;
    assert_int_equal(other->ops->submit(other, &request), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(accel[i]->ops->poll(accel[i], &result), -1);
    assert_int_equal(other->ops->poll(other, &result), 1);
    assert_int_equal(result.status, KL_E_EMPTY);
    struct kl_info info;
    other->ops->info(other, &info);
    assert_string_equal(info.build, "fast");
    other->ops->close(other);
}

static const struct kl_build *build_for(uint16_t n_in, uint16_t n_layer, uint16_t n_hidden)
{
    struct kl_image_header header = {.magic = KL_IMAGE_MAGIC,
                                     .abi_version = KL_ABI_VERSION,
                                     .n_layer = n_layer,
                                     .n_in = n_in,
                                     .n_class = KL_N_CLASS_MAX};
    for (uint32_t l = 0; l < n_layer; l++)
        header.n_hidden[l] = n_hidden;
    return accel_build_for(&header);
}

static void the_smallest_build_that_takes_a_model_is_found(void **state)
{
    (void)state;
    assert_ptr_equal(build_for(20, 1, 64), &kl_build_small);
    assert_ptr_equal(build_for(128, 3, 128), &kl_build_small);
    assert_ptr_equal(build_for(128, 3, 129), &kl_build_large);
    /* The largest takes every shape that the records have room for, and nothing else does more. */
    assert_ptr_equal(build_for(KL_N_IN_MAX, KL_N_LAYER_MAX, KL_N_HIDDEN_MAX), &kl_build_large);
    assert_null(build_for(KL_N_IN_MAX + 1, KL_N_LAYER_MAX, KL_N_HIDDEN_MAX));
    assert_null(build_for(KL_N_IN_MAX, KL_N_LAYER_MAX, KL_N_HIDDEN_MAX + 1));
    assert_ptr_equal(accel_build_named("small"), &kl_build_small);
    assert_ptr_equal(accel_build_named("fast"), &kl_build_fast);
    assert_ptr_equal(accel_build_named("large"), &kl_build_large);
    assert_null(accel_build_named("auto"));
    assert_null(accel_build_named(""));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_queue_takes_its_depth_and_answers_in_order),
        TEST(answers_are_the_kernels),
        TEST(two_units_give_the_bits_of_one),
        TEST(budgets_are_kept_through_the_queue),
        TEST(prepares_that_are_asked_for_come_when_idle),
        TEST(load_reports_the_kernels_verdict),
        TEST(a_pairs_halves_may_end_their_loads_at_different_times),
        TEST(states_move_between_one_unit_and_two),
        TEST(two_accelerators_share_nothing),
        cmocka_unit_test(the_smallest_build_that_takes_a_model_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
