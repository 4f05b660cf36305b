#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernel_front_rig.h"
#include "tests/model_image.h"

/* The register block: requests, answers, budgets and prepares. Loads and a host that errs:
 * test_hls_front_faults.c. */

static const struct kl_build *const build = &kl_build_small;
static const struct model_image_shape SHAPE = {.n_in = 5, .n_layer = 2, .n_class = 3, .n_hidden = {17, 6}};
static struct kernel_front_rig rig;
static struct kl_unit *direct; /* the same models, driven by exec alone */
static struct kl_image_header *image[KL_N_SLOT];
static uint32_t step_cycles, step_cycles_prepared, prepare_cycles, reset_cycles, frame_cycles; /* of slot 0 */

static int set_up(void **state)
{
    (void)state;
    rig = (struct kernel_front_rig){.build = build, .unit = kernel_rig_unit(build, 0, 1)};
    direct = kernel_rig_unit(build, 0, 1);
    if (!rig.unit || !direct)
        return -1;
    rig.reg = build->registers(rig.unit);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        image[slot] = model_image_new(&SHAPE, 1 + slot);
        if (!image[slot] || kernel_rig_load(build, rig.unit, slot, image[slot]) != KL_OK ||
            kernel_rig_load(build, direct, slot, image[slot]) != KL_OK)
            return -1;
    }
    step_cycles = build->step_cycles(image[0], 1, 0);
    step_cycles_prepared = build->step_cycles(image[0], 1, 1);
    prepare_cycles = build->prepare_cycles(image[0], 1);
    reset_cycles = build->reset_cycles();
    frame_cycles = build->frame_cycles();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        free(image[slot]);
    free(direct);
    free(rig.unit);
    return 0;
}

static struct kl_request step_of(uint32_t stream, uint64_t n)
{
    struct kl_request request = kernel_rig_step(0, stream, n);
    request.seq_no = (uint32_t)(0xfffffff0u + n); /* wraps in the longer tests */
    return request;
}

static void post(const struct kl_request *request)
{
    kernel_front_rig_post(&rig, request);
}

static void rounds(uint32_t n)
{
    while (n-- > 0)
        kernel_front_rig_round(&rig);
}

static struct kl_result take(void)
{
    struct kl_result result;
    assert_true(kernel_front_rig_take(&rig, &result));
    return result;
}

static void assert_no_answer(void)
{
    assert_int_equal(rig.reg[KL_REG_RESULT_HEAD], rig.reg[KL_REG_RESULT_TAIL]);
}

/* ---- order ---- */

static void the_block_shows_what_the_kernel_is(void **state)
{
    (void)state;
    struct kl_info info, in_block;
    for (int served = 0; served < 2; served++) {
        build->info(rig.unit, &info);
        assert_string_equal(info.build, "small");
        assert_true(info.abi_version == KL_ABI_VERSION && info.n_stream == KL_N_STREAM_MAX &&
                    info.n_slot == KL_N_SLOT && info.queue_depth == KL_QUEUE_DEPTH && info.n_part == 1 &&
                    info.n_class_max == KL_N_CLASS_MAX);
        assert_true(info.image_hash[0] == image[0]->image_hash && info.image_hash[1] == image[1]->image_hash);
        const struct kl_request request = step_of(0, 1);
        post(&request);
        rounds(1);
        take();
        build->info(rig.unit, &info);
        memcpy(&in_block, &rig.reg[KL_REG_INFO], sizeof in_block);
        assert_memory_equal(&in_block, &info, sizeof info);
    }
    /* After reset all is 0 but the information. */
    build->init(rig.unit, 0, 1);
    build->info(rig.unit, &info);
    assert_memory_equal(&rig.reg[KL_REG_INFO], &info, sizeof info);
    for (int r = KL_REG_REQUEST_TAIL; r < KL_N_REG; r++)
        assert_int_equal(rig.reg[r], 0);
}

/* Every batch size, several times round the ring; good and bad requests mixed. */
static void answers_come_in_the_order_of_the_requests(void **state)
{
    (void)state;
    uint64_t n = 0;
    for (int lap = 0; lap < 3; lap++) {
        for (uint32_t batch = 1; batch <= KL_QUEUE_DEPTH; batch++) {
            struct kl_result expected[KL_QUEUE_DEPTH];
            uint32_t waited = 0;
            for (uint32_t i = 0; i < batch; i++, n++) {
                struct kl_request request = step_of(n % 3, n);
                request.slot = n % 5 == 4;
                request.op = n % 7 == 6 ? KL_OP_PREPARE : n % 11 == 10 ? KL_OP_RESET : KL_OP_STEP;
                request.abi_version += n % 13 == 12;
                if (n % 17 == 16)
                    request.x[4] = 0x7e00;
                expected[i] = kernel_rig_exec(build, direct, &request);
                expected[i].wait_cycles = expected[i].status == KL_OK ? waited : 0;
                expected[i].check = kl_result_check(&expected[i]);
                waited += expected[i].status == KL_OK ? expected[i].kernel_cycles : frame_cycles;
                post(&request);
            }
            for (uint32_t i = 0; i < batch; i++) {
                const uint32_t tail = rig.reg[KL_REG_RESULT_TAIL];
                rounds(1);
                assert_int_equal(rig.reg[KL_REG_RESULT_TAIL], tail + 1);
                assert_int_equal(rig.reg[KL_REG_REQUEST_HEAD], tail + 1);
            }
            for (uint32_t i = 0; i < batch; i++) {
                const struct kl_result result = take();
                assert_memory_equal(&result, &expected[i], sizeof result);
            }
            rounds(2);
            assert_no_answer();
        }
    }
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 0);
}

static void a_full_result_ring_stops_the_service(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < KL_QUEUE_DEPTH; n++) {
        const struct kl_request request = step_of(0, n);
        post(&request);
    }
    rounds(KL_QUEUE_DEPTH);
    for (uint64_t n = 0; n < KL_QUEUE_DEPTH; n++) {
        const struct kl_request request = step_of(0, 100 + n);
        post(&request);
    }
    rounds(5);
    const uint64_t cycles = kernel_front_rig_cycles(&rig);
    rounds(5);
    assert_int_equal(kernel_front_rig_cycles(&rig), cycles);
    assert_int_equal(rig.reg[KL_REG_REQUEST_HEAD], KL_QUEUE_DEPTH);
    for (uint64_t n = 0; n < 2 * KL_QUEUE_DEPTH; n++) {
        const struct kl_request request = step_of(0, n < KL_QUEUE_DEPTH ? n : 92 + n);
        const struct kl_result expected = kernel_rig_exec(build, direct, &request), result = take();
        assert_true(kernel_rig_same(result, expected));
        assert_int_equal(result.seq_no, request.seq_no);
        rounds(1); /* a place is free: one more */
        const uint64_t answered = KL_QUEUE_DEPTH + n + 1;
        assert_int_equal(rig.reg[KL_REG_RESULT_TAIL],
                         answered < 2 * KL_QUEUE_DEPTH ? answered : 2 * KL_QUEUE_DEPTH);
    }
    assert_no_answer();
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 0);
}

static void counters_wrap(void **state)
{
    (void)state;
    for (uint32_t before = 0; before <= KL_QUEUE_DEPTH; before++) {
        const uint32_t at = 0u - before;
        struct front *front = &rig.unit->front;
        front->request_head = front->seen_tail = front->result_tail = front->bad_doorbells = at;
        rig.reg[KL_REG_REQUEST_TAIL] = rig.reg[KL_REG_RESULT_HEAD] = at;
        rounds(1);
        for (uint32_t batch = 1; batch <= KL_QUEUE_DEPTH; batch++) {
            for (uint32_t i = 0; i < batch; i++) {
                const struct kl_request request = step_of(i, batch);
                post(&request);
            }
            rounds(batch);
            for (uint32_t i = 0; i < batch; i++) {
                const struct kl_request request = step_of(i, batch);
                const struct kl_result result = take();
                assert_true(kernel_rig_same(result, kernel_rig_exec(build, direct, &request)));
                assert_int_equal(result.seq_no, request.seq_no);
            }
            assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], at);
        }
        /* The count of bad doorbells wraps as well. */
        for (uint32_t i = 1; i <= before; i++) {
            rig.reg[KL_REG_REQUEST_TAIL] += KL_QUEUE_DEPTH + 1;
            rounds(1);
            assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], at + i);
        }
        rig.reg[KL_REG_REQUEST_TAIL] = rig.reg[KL_REG_REQUEST_HEAD];
    }
}

static void answers_go_to_the_host_if_it_says_so(void **state)
{
    (void)state;
    struct kl_result buffer[KL_QUEUE_DEPTH], untouched[KL_QUEUE_DEPTH];
    const uint32_t others = ~(uint32_t)(KL_CONFIG_RESULT_TO_HOST | KL_CONFIG_REQUEST_FROM_HOST);
    memset(untouched, 0xa5, sizeof untouched);
    for (uint64_t n = 0; n < 3 * KL_QUEUE_DEPTH; n++) {
        const int to_host = n % 3 != 0;
        rig.reg[KL_REG_CONFIG] = others | (to_host ? KL_CONFIG_RESULT_TO_HOST : 0);
        rig.host_result = n % 4 == 3 ? NULL : buffer; /* none: the register block has the answer */
        memcpy(buffer, untouched, sizeof buffer);
        const struct kl_request request = step_of(0, n);
        post(&request);
        rounds(2);
        const struct kl_result result = take();
        assert_int_equal(result.status, KL_OK);
        for (uint64_t i = 0; i < KL_QUEUE_DEPTH; i++) {
            const int is_there = to_host && rig.host_result && i == n % KL_QUEUE_DEPTH;
            assert_memory_equal(&buffer[i], is_there ? &result : &untouched[i], sizeof result);
        }
    }
}

/* ---- waits and budgets ---- */

static void a_request_waits_for_those_before_it_only(void **state)
{
    (void)state;
    struct kl_request request = step_of(0, 0);
    /* One after the other: none waits, whatever the last one took, be it an error or late. */
    for (int i = 0; i < 5; i++) {
        request = step_of(0, 1);
        request.abi_version += i == 1;
        request.budget_cycles = i == 2;
        post(&request);
        rounds(1);
        assert_int_equal(take().wait_cycles, 0);
        rounds((uint32_t)i);
    }
    /* Two at once, and one that comes while they are being served. */
    request = step_of(0, 1);
    post(&request);
    post(&request);
    rounds(1);
    post(&request);
    rounds(2);
    assert_int_equal(take().wait_cycles, 0);
    assert_int_equal(take().wait_cycles, step_cycles);
    assert_int_equal(take().wait_cycles, step_cycles);
    /* It waits while the result ring is full, but no clock runs then. What does run is a prepare. */
    for (int i = 0; i < KL_QUEUE_DEPTH; i++) {
        request.flags = i == 0 ? KL_REQUEST_PREPARE : 0;
        request.stream = (uint32_t)i;
        post(&request);
    }
    rounds(KL_QUEUE_DEPTH);
    post(&request);
    rounds(3);
    for (int i = 0; i < KL_QUEUE_DEPTH; i++)
        take();
    rounds(1);
    assert_int_equal(take().wait_cycles, prepare_cycles);
    /* It does not wait for what was executed beside the queue before it came. */
    kernel_rig_op(build, rig.unit, KL_OP_RESET, 0, 0);
    post(&request);
    rounds(1);
    assert_int_equal(take().wait_cycles, 0);
    post(&request);
    kernel_rig_op(build, rig.unit, KL_OP_RESET, 0, 0);
    rounds(1);
    assert_int_equal(take().wait_cycles, reset_cycles);
}

static void a_wait_beyond_32_bits_saturates(void **state)
{
    (void)state;
    for (uint64_t beyond = 0; beyond < 2; beyond++) {
        struct kl_request request = step_of(0, 0);
        request.budget_cycles = UINT32_MAX;
        post(&request);
        rig.unit->core.cycles += UINT32_MAX + beyond;
        rounds(1);
        const struct kl_result result = take();
        assert_int_equal(result.wait_cycles, UINT32_MAX);
        assert_int_equal(result.flags, KL_RESULT_LATE);
    }
}

static void late_is_above_the_budget(void **state)
{
    (void)state;
    for (uint32_t op = KL_OP_STEP; op <= KL_OP_RESET; op++) {
        const uint32_t cycles = op == KL_OP_STEP      ? step_cycles
                                : op == KL_OP_PREPARE ? prepare_cycles
                                                      : reset_cycles;
        /* Behind a step, so that it has waited. */
        for (uint32_t over = 0; over < 2; over++) {
            struct kl_state before, after;
            struct kl_request request = step_of(1, 0);
            post(&request);
            rounds(1);
            take();
            assert_int_equal(build->save(rig.unit, 0, 1, &before), KL_OK);
            request = step_of(2, 0);
            post(&request);
            request = step_of(1, 1);
            request.op = (uint16_t)op;
            request.flags = KL_REQUEST_PREPARE;
            request.budget_cycles = step_cycles + cycles - over;
            post(&request);
            rounds(2);
            take();
            const uint64_t clock = kernel_front_rig_cycles(&rig);
            const struct kl_result result = take();
            assert_int_equal(result.status, KL_OK);
            assert_int_equal(result.flags, over ? KL_RESULT_LATE : 0);
            assert_int_equal(result.wait_cycles, step_cycles);
            assert_int_equal(result.kernel_cycles, over ? frame_cycles : cycles);
            assert_int_equal(build->save(rig.unit, 0, 1, &after), KL_OK);
            if (over) {
                assert_memory_equal(&after, &before, sizeof after);
                assert_int_equal(result.cls, 0);
                for (int k = 0; k < KL_N_CLASS_MAX; k++)
                    assert_int_equal(result.logits[k], 0);
                assert_int_equal(result.prepare_cycles, prepare_cycles); /* nor was it prepared */
            }
            /* What is late asks for no prepare. */
            rounds(1);
            const uint32_t prepare = op == KL_OP_PREPARE ? frame_cycles : prepare_cycles;
            assert_int_equal(kernel_front_rig_cycles(&rig) - clock, over ? 0 : prepare);
        }
    }
}

/* A late one takes a frame's time, so those behind it may still make it. */
static void a_backlog_of_late_requests(void **state)
{
    (void)state;
    struct kl_request request = step_of(0, 0);
    post(&request);
    for (uint32_t i = 1; i < KL_QUEUE_DEPTH; i++) {
        request = step_of(0, i);
        /* 1 .. 5: the first step alone uses it up. 6: just makes it behind five late ones; 7: no budget. */
        request.budget_cycles = i < 6 ? step_cycles : i == 6 ? 2 * step_cycles + 5 * frame_cycles : 0;
        post(&request);
    }
    rounds(KL_QUEUE_DEPTH);
    uint32_t waited = 0;
    for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++) {
        const int is_late = i >= 1 && i <= 5;
        const struct kl_result result = take();
        assert_int_equal(result.flags, is_late ? KL_RESULT_LATE : 0);
        assert_int_equal(result.wait_cycles, waited);
        waited += result.kernel_cycles;
        if (!is_late) {
            request = step_of(0, i);
            assert_true(kernel_rig_same(result, kernel_rig_exec(build, direct, &request)));
        }
    }
    assert_int_equal(waited, 3 * step_cycles + 5 * frame_cycles);
}

/* ---- prepare by flag ---- */

static void post_flagged(uint32_t stream, uint64_t n)
{
    struct kl_request request = step_of(stream, n);
    request.flags = KL_REQUEST_PREPARE;
    post(&request);
}

/* Whether a step of the stream finds its sums ready. */
static int is_prepared(uint32_t stream)
{
    const struct kl_request request = step_of(stream, 99);
    post(&request);
    rounds(1);
    const struct kl_result result = take();
    assert_true(result.kernel_cycles == step_cycles || result.kernel_cycles == step_cycles_prepared);
    return result.kernel_cycles == step_cycles_prepared;
}

static void prepare_waits_for_an_idle_moment(void **state)
{
    (void)state;
    for (uint32_t stream = 0; stream < 3; stream++)
        post_flagged(stream, 0);
    const uint64_t start = kernel_front_rig_cycles(&rig);
    rounds(3);
    assert_int_equal(kernel_front_rig_cycles(&rig) - start, 3 * step_cycles);
    for (int i = 0; i < 3; i++)
        assert_int_equal(take().prepare_cycles, prepare_cycles); /* not done yet when the answer left */
    for (uint32_t i = 1; i <= 4; i++) {
        rounds(1);
        assert_int_equal(kernel_front_rig_cycles(&rig) - start,
                         3 * step_cycles + (i < 3 ? i : 3) * prepare_cycles);
    }
    for (uint32_t stream = 0; stream < 3; stream++)
        assert_true(is_prepared(stream));
}

static void a_request_goes_before_every_prepare(void **state)
{
    (void)state;
    /* A second tick of the same stream, with and without the prepare done: the same bits, later. */
    struct kl_result expected[4];
    for (uint64_t n = 0; n < 4; n++) {
        const struct kl_request request = step_of(0, n);
        expected[n] = kernel_rig_exec(build, direct, &request);
    }
    for (uint64_t n = 0; n < 4; n++) {
        post_flagged(0, n);
        rounds(n == 1 ? 2 : 1); /* n == 2 finds it done */
        const struct kl_result result = take();
        assert_true(kernel_rig_same(result, expected[n]));
        assert_int_equal(result.kernel_cycles, n == 2 ? step_cycles_prepared : step_cycles);
    }
}

static void the_newest_is_prepared_first(void **state)
{
    (void)state;
    for (uint32_t stream = 0; stream < 4; stream++)
        post_flagged(stream, 0);
    post_flagged(1, 1); /* asked for again: it is the newest now */
    rounds(5 + 2);
    for (int i = 0; i < 5; i++)
        take();
    assert_true(is_prepared(1));
    assert_true(is_prepared(3));
    assert_false(is_prepared(2));
    assert_false(is_prepared(0));
    /* Their prepares are still owed; streams 1 and 3 asked for none since. */
    rounds(3);
    assert_true(is_prepared(0));
    assert_true(is_prepared(2));
    assert_false(is_prepared(1));
}

/* Of more streams than fit the oldest do without; one stream takes one place however often it asks. */
static void a_full_list_forgets_the_oldest(void **state)
{
    (void)state;
    enum { N_STREAM = KL_QUEUE_DEPTH + 2 };
    uint32_t posted = 0, answered = 0;
    for (uint32_t stream = 0; stream < N_STREAM; stream++, posted++)
        post_flagged(stream, 0), rounds(1), take();
    answered = posted;
    assert_int_equal(answered, N_STREAM);
    const uint64_t start = kernel_front_rig_cycles(&rig);
    rounds(2 * N_STREAM);
    assert_int_equal(kernel_front_rig_cycles(&rig) - start, KL_QUEUE_DEPTH * prepare_cycles);
    for (uint32_t stream = 0; stream < N_STREAM; stream++)
        assert_int_equal(is_prepared(stream), stream >= 2);

    for (uint32_t stream = 0; stream < KL_QUEUE_DEPTH; stream++)
        post_flagged(stream, 0), rounds(1), take();
    for (uint32_t again = 0; again < 3 * KL_QUEUE_DEPTH; again++)
        post_flagged(again % 3, again), rounds(1), take();
    rounds(2 * N_STREAM);
    for (uint32_t stream = 0; stream < KL_QUEUE_DEPTH; stream++)
        assert_true(is_prepared(stream));
}

static void what_failed_asks_for_no_prepare(void **state)
{
    (void)state;
    post_flagged(0, 0);
    struct kl_request request = step_of(1, 0);
    request.flags = KL_REQUEST_PREPARE;
    request.x[0] = 0x7e00;
    post(&request);
    request.stream = KL_N_STREAM_MAX;
    post(&request);
    request.slot = KL_N_SLOT;
    post(&request);
    rounds(4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(take().status, i == 0   ? KL_OK
                                        : i == 1 ? KL_E_INPUT
                                        : i == 2 ? KL_E_STREAM
                                                 : KL_E_SLOT);
    const uint64_t start = kernel_front_rig_cycles(&rig);
    rounds(4);
    assert_int_equal(kernel_front_rig_cycles(&rig) - start, prepare_cycles);
    /* A slot that is emptied before its turn: nothing to prepare, and the new model's streams are at rest. */
    post_flagged(0, 1);
    rounds(1);
    take();
    assert_int_equal(kernel_rig_load_bytes(build, rig.unit, 0, image[0], 3), KL_E_IMAGE);
    rounds(2);
    assert_int_equal(kernel_rig_load(build, rig.unit, 0, image[0]), KL_OK);
    assert_false(is_prepared(0));
}

/* ---- the queue of struct kl_build ---- */

static void post_and_take_use_the_same_rings(void **state)
{
    (void)state;
    struct kl_result result;
    assert_int_equal(build->take(rig.unit, &result), 0);
    for (uint32_t n = 0; n < 3; n++) { /* one after the other: none waits */
        const struct kl_request request = step_of(20, n);
        assert_int_equal(build->post(rig.unit, &request), 0);
        assert_int_equal(build->take(rig.unit, &result), 1);
        assert_int_equal(result.wait_cycles, 0);
    }
    for (uint64_t lap = 0; lap < 3; lap++) {
        struct kl_request request;
        for (uint64_t n = 0; n < KL_QUEUE_DEPTH; n++) {
            request = step_of((uint32_t)n, lap);
            request.flags = KL_REQUEST_PREPARE;
            assert_int_equal(build->post(rig.unit, &request), 0);
        }
        assert_int_equal(build->post(rig.unit, &request), -1);
        /* An answer that was not taken counts as outstanding. */
        rounds(3);
        assert_int_equal(build->post(rig.unit, &request), -1);
        for (uint64_t n = 0; n < KL_QUEUE_DEPTH; n++) {
            request = step_of((uint32_t)n, lap);
            assert_int_equal(build->take(rig.unit, &result), 1);
            assert_int_equal(result.seq_no, request.seq_no);
            assert_true(kernel_rig_same(result, kernel_rig_exec(build, direct, &request)));
            /* Prepared where take found the queue empty before, so from the second lap on. */
            const uint32_t cycles = lap ? step_cycles_prepared : step_cycles;
            assert_int_equal(result.kernel_cycles, cycles);
            assert_int_equal(result.wait_cycles, n * cycles);
        }
        assert_int_equal(build->take(rig.unit, &result), 0);
        const uint64_t clock = kernel_front_rig_cycles(&rig);
        assert_int_equal(build->take(rig.unit, &result), 0);
        assert_int_equal(kernel_front_rig_cycles(&rig), clock);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_block_shows_what_the_kernel_is),   TEST(answers_come_in_the_order_of_the_requests),
        TEST(a_full_result_ring_stops_the_service), TEST(counters_wrap),
        TEST(answers_go_to_the_host_if_it_says_so), TEST(a_request_waits_for_those_before_it_only),
        TEST(a_wait_beyond_32_bits_saturates),      TEST(late_is_above_the_budget),
        TEST(a_backlog_of_late_requests),           TEST(prepare_waits_for_an_idle_moment),
        TEST(a_request_goes_before_every_prepare),  TEST(the_newest_is_prepared_first),
        TEST(a_full_list_forgets_the_oldest),       TEST(what_failed_asks_for_no_prepare),
        TEST(post_and_take_use_the_same_rings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
