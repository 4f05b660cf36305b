#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernel_front_rig.h"
#include "tests/model_image.h"

/* Doorbell mode with its rings in the host's memory: KL_CONFIG_REQUEST_FROM_HOST, KL_CONFIG_RESULT_TO_HOST.
 */

enum { FROM_HOST = KL_CONFIG_REQUEST_FROM_HOST, BOTH = FROM_HOST | KL_CONFIG_RESULT_TO_HOST };

static const struct kl_build *const build = &kl_build_small;
static const struct model_image_shape SHAPE = {.n_in = 5, .n_layer = 2, .n_class = 3, .n_hidden = {17, 6}};
static struct kernel_front_rig rig;
static struct kl_unit *direct; /* the same model, driven by exec alone */
static struct kl_image_header *image;
static struct kl_request ring[KL_QUEUE_DEPTH];
static struct kl_result answers[KL_QUEUE_DEPTH];

static int set_up(void **state)
{
    (void)state;
    image = model_image_new(&SHAPE, 1);
    rig = (struct kernel_front_rig){
        .build = build, .unit = kernel_rig_unit(build, 0, 1), .host_request = ring, .host_result = answers};
    direct = kernel_rig_unit(build, 0, 1);
    memset(ring, 0, sizeof ring);
    memset(answers, 0, sizeof answers);
    if (!image || !rig.unit || !direct || kernel_rig_load(build, rig.unit, 0, image) != KL_OK ||
        kernel_rig_load(build, direct, 0, image) != KL_OK)
        return -1;
    rig.reg = build->registers(rig.unit);
    rig.reg[KL_REG_CONFIG] = BOTH;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(image);
    free(direct);
    free(rig.unit);
    return 0;
}

static void rounds(uint32_t n)
{
    while (n-- > 0)
        kernel_front_rig_round(&rig);
}

static struct kl_request step_of(uint64_t n)
{
    struct kl_request request = kernel_rig_step(0, n % 3, n);
    request.seq_no = (uint32_t)(1 + n);
    return request;
}

/* Into memory. The block's ring is never written: a request from there would be refused. */
static void post(const struct kl_request *request)
{
    ring[rig.reg[KL_REG_REQUEST_TAIL]++ % KL_QUEUE_DEPTH] = *request;
}

/* The next answer lies in memory and in the block, and is this request's. */
static void expect_answer(const struct kl_request *request)
{
    const uint32_t entry = rig.reg[KL_REG_RESULT_HEAD] % KL_QUEUE_DEPTH;
    struct kl_result result;
    assert_true(kernel_front_rig_take(&rig, &result));
    assert_int_equal(result.seq_no, request->seq_no);
    assert_true(kernel_rig_same(result, kernel_rig_exec(build, direct, request)));
    assert_memory_equal(&answers[entry], &result, sizeof result);
}

/* Every batch size, from every distance to the counters' end on, so that entries and counters wrap. */
static void requests_are_read_from_memory(void **state)
{
    (void)state;
    uint64_t n = 0;
    for (uint32_t before = 0; before <= KL_QUEUE_DEPTH; before++) {
        const uint32_t at = 0u - before;
        struct front *front = &rig.unit->front;
        front->request_head = front->seen_tail = front->result_tail = at;
        rig.reg[KL_REG_REQUEST_TAIL] = rig.reg[KL_REG_RESULT_HEAD] = at;
        for (uint32_t batch = 1; batch <= KL_QUEUE_DEPTH; batch++) {
            for (uint32_t i = 0; i < batch; i++) {
                const struct kl_request request = step_of(n + i);
                post(&request);
            }
            rounds(batch);
            for (uint32_t i = 0; i < batch; i++, n++) {
                const struct kl_request request = step_of(n);
                expect_answer(&request);
            }
        }
    }
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 0);
}

/* Only what the operation reads: of another operation than a step no x, of a step what the model has. */
static void a_request_need_not_be_written_beyond_its_inputs(void **state)
{
    (void)state;
    struct kl_request request = step_of(1);
    const struct kl_request as_it_was = request;
    for (uint32_t k = SHAPE.n_in; k < KL_N_IN_MAX; k++)
        request.x[k] = 0x7c00;
    post(&request);
    rounds(1);
    expect_answer(&as_it_was);
    memset(request.x, 0xff, sizeof request.x);
    request.op = KL_OP_RESET;
    post(&request);
    rounds(1);
    expect_answer(&request);
}

static void a_wrong_tail_takes_nothing_from_memory(void **state)
{
    (void)state;
    const struct kl_request request = step_of(1);
    for (int i = 0; i < KL_QUEUE_DEPTH; i++)
        ring[i] = request;
    for (uint32_t n = 1; n <= 3; n++) {
        const uint32_t right = rig.reg[KL_REG_REQUEST_TAIL];
        const uint64_t cycles = kernel_front_rig_cycles(&rig);
        rig.reg[KL_REG_REQUEST_TAIL] = n == 1   ? right + KL_QUEUE_DEPTH + 1
                                       : n == 2 ? right - 1
                                                : right + 0x80000000u;
        rounds(3);
        assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], n);
        assert_int_equal(rig.reg[KL_REG_RESULT_TAIL], rig.reg[KL_REG_RESULT_HEAD]);
        assert_int_equal(kernel_front_rig_cycles(&rig), cycles);
        rig.reg[KL_REG_REQUEST_TAIL] = right; /* mended: the next request is answered */
        post(&request);
        rounds(1);
        expect_answer(&request);
    }
}

/* What the block's ring happens to hold is not a request; what waits is answered once there is a ring. */
static void without_a_ring_requests_wait(void **state)
{
    (void)state;
    const struct kl_request stale = step_of(99), first = step_of(1), second = step_of(2);
    struct kl_request prepare = step_of(0);
    prepare.flags = KL_REQUEST_PREPARE;
    memcpy(&rig.reg[KL_REG_REQUESTS], &stale, sizeof stale);
    memcpy(&rig.reg[KL_REG_REQUESTS + sizeof stale / 4], &stale, sizeof stale);
    post(&prepare);
    rounds(1);
    expect_answer(&prepare);
    rig.host_request = NULL;
    post(&first);
    post(&second);
    const uint64_t clock = kernel_front_rig_cycles(&rig);
    rounds(1); /* the prepare that was asked for does not need one */
    const uint64_t prepared = kernel_front_rig_cycles(&rig);
    assert_int_equal(prepared - clock, build->prepare_cycles(image, 1));
    rounds(3);
    assert_int_equal(kernel_front_rig_cycles(&rig), prepared);
    assert_int_equal(rig.reg[KL_REG_RESULT_TAIL], rig.reg[KL_REG_RESULT_HEAD]);
    assert_int_equal(rig.reg[KL_REG_REQUEST_TAIL] - rig.reg[KL_REG_REQUEST_HEAD], 2);
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 0);
    rig.host_request = ring;
    rounds(2);
    expect_answer(&first);
    expect_answer(&second);
}

/* CONFIG changes while nothing is outstanding: one request from memory, the next from the block, and so on.
 */
static void the_rings_take_turns(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 3 * KL_QUEUE_DEPTH; n++) {
        const struct kl_request request = step_of(n), other = step_of(1000 + n);
        const int from_host = n % 3 != 0, to_host = n % 2;
        const uint32_t entry = rig.reg[KL_REG_REQUEST_TAIL] % KL_QUEUE_DEPTH;
        rig.reg[KL_REG_CONFIG] =
            (from_host ? FROM_HOST : 0) | (to_host ? (uint32_t)KL_CONFIG_RESULT_TO_HOST : 0);
        ring[entry] = from_host ? request : other;
        memcpy(&rig.reg[KL_REG_REQUESTS + entry * (sizeof other / 4)], from_host ? &other : &request,
               sizeof other);
        rig.reg[KL_REG_REQUEST_TAIL]++;
        memset(answers, 0xa5, sizeof answers);
        rounds(1);
        struct kl_result result;
        assert_true(kernel_front_rig_take(&rig, &result));
        assert_int_equal(result.seq_no, request.seq_no);
        assert_true(kernel_rig_same(result, kernel_rig_exec(build, direct, &request)));
        assert_int_equal(memcmp(&answers[entry], &result, sizeof result) == 0, to_host);
    }
}

/* Waits and the clock do not depend on where a request lies. */
static void the_clock_is_the_same_for_both_rings(void **state)
{
    (void)state;
    uint64_t spent[2];
    struct kl_result last[2];
    for (int from_host = 0; from_host < 2; from_host++) {
        rig.reg[KL_REG_CONFIG] = from_host ? FROM_HOST : 0;
        kernel_rig_op(build, rig.unit, KL_OP_RESET, 0, 0);
        const uint64_t clock = kernel_front_rig_cycles(&rig);
        for (int i = 0; i < 2; i++) {
            const struct kl_request request = kernel_rig_step(0, 0, 5);
            if (from_host)
                post(&request);
            else
                kernel_front_rig_post(&rig, &request);
        }
        rounds(2);
        spent[from_host] = kernel_front_rig_cycles(&rig) - clock;
        for (int i = 0; i < 2; i++)
            assert_true(kernel_front_rig_take(&rig, &last[from_host]));
    }
    assert_int_equal(spent[0], spent[1]);
    assert_memory_equal(&last[0], &last[1], sizeof last[0]);
    assert_int_equal(last[1].wait_cycles, build->step_cycles(image, 1, 0));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(requests_are_read_from_memory),
        TEST(a_request_need_not_be_written_beyond_its_inputs),
        TEST(a_wrong_tail_takes_nothing_from_memory),
        TEST(without_a_ring_requests_wait),
        TEST(the_rings_take_turns),
        TEST(the_clock_is_the_same_for_both_rings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
