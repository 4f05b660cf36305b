/* The software device's faults, each through XRT: what the host sees of it, that nothing of it hangs the
 * host, and that a reset brings the device back. */
#include "test_sim_device_rig.h"

static struct kl_image_header *image;

static const uint32_t RINGS = KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST;
enum { SHORT_MS = 60 }; /* in which nothing is to come */

static uint64_t injected(enum fault_kind kind)
{
    return atomic_load(&control->devices[0].injected[kind]);
}

static void serve(struct rig *rig)
{
    rig_open(rig, 1);
    rig_serve(rig, RINGS);
    assert_int_equal(rig_load_by_bell(rig, 0, image), KL_OK);
    rig_load_reference(rig, 0, image);
    rig_steps(rig, 0, 1, 3);
}

/* The next step of stream 0: 1 if it was answered in time. */
static int step(struct rig *rig, uint32_t seq_no, uint64_t timeout_ms, struct kl_result *is,
                struct kl_result *expected)
{
    struct kl_request request;
    rig_request(&request, KL_OP_STEP, 0, seq_no);
    kl_build_small.exec(rig->reference, &request, expected);
    return rig_ask(rig, &request, timeout_ms, is);
}

/* Closed and opened again, everything works. */
static void comes_back(struct rig *rig)
{
    rig_close(rig);
    serve(rig);
    rig_close(rig);
}

static void hang(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_result is, expected;
    const uint64_t before = injected(FAULT_HANG);
    serve(&rig);
    rig_fault("hang:after=2");
    assert_true(step(&rig, 10, RIG_DEADLINE_MS, &is, &expected));
    rig_same(&is, &expected);
    assert_false(step(&rig, 11, SHORT_MS, &is, &expected));
    assert_int_equal(injected(FAULT_HANG), before + 1);
    assert_false(step(&rig, 12, SHORT_MS, &is, &expected));
    assert_int_equal(injected(FAULT_HANG), before + 1);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_REQUEST_HEAD)), 4); /* registers answer */
    comes_back(&rig);
    /* A run that never ends; closing does not wait for it. */
    rig_open(&rig, 0);
    rig_load_by_run(&rig, 0, image);
    rig_fault("hang");
    rig_request(rig_request_at(&rig, 0), KL_OP_STEP, 0, 1);
    rig_sync_in(&rig);
    xrtRunHandle run = rig_run_open(&rig, KL_COMMAND_EXEC, 0, 0, 1),
                 next = rig_run_open(&rig, KL_COMMAND_EXEC, 0, 0, 1);
    assert_int_equal(xrtRunStart(run), 0);
    assert_int_equal(xrtRunStart(next), 0);
    assert_int_equal(rig_run_poll(run, SHORT_MS), ERT_CMD_STATE_RUNNING);
    assert_int_equal(rig_run_poll(next, SHORT_MS), ERT_CMD_STATE_QUEUED);
    const uint64_t begin = rig_now_ms();
    xrtRunClose(run);
    xrtRunClose(next);
    comes_back(&rig);
    assert_true(rig_now_ms() - begin < RIG_DEADLINE_MS);
}

static void a_lasting_hang_outlives_resets(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_request request;
    struct kl_result is;
    rig_fault("hang:count=0");
    for (uint32_t i = 0; i < 2; i++) {
        rig_open(&rig, 1);
        rig_serve(&rig, RINGS);
        rig_request(&request, KL_OP_STEP, 0, 1);
        assert_false(rig_ask(&rig, &request, SHORT_MS, &is));
        rig_close(&rig);
    }
    rig_fault("clear");
    serve(&rig);
    rig_close(&rig);
}

static void late(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_result is, expected;
    const uint64_t before = injected(FAULT_LATE);
    serve(&rig);
    rig_fault("late:us=30000");
    uint64_t begin = rig_now_ms();
    assert_true(step(&rig, 10, RIG_DEADLINE_MS, &is, &expected));
    assert_true(rig_now_ms() - begin >= 29);
    rig_same(&is, &expected);
    assert_int_equal(injected(FAULT_LATE), before + 1);
    rig_close(&rig);
    rig_open(&rig, 0);
    rig_fault("late:us=30000");
    begin = rig_now_ms();
    assert_int_equal(rig_run(&rig, KL_COMMAND_INFO, 0, 0, 0), ERT_CMD_STATE_COMPLETED);
    assert_true(rig_now_ms() - begin >= 29);
    rig_close(&rig);
}

static void error(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_result is, expected;
    serve(&rig);
    rig_fault("error:status=12");
    assert_true(step(&rig, 10, RIG_DEADLINE_MS, &is, &expected));
    assert_int_equal(is.status, KL_E_PEER);
    assert_int_equal(is.stream, 0);
    assert_int_equal(is.logits[0] | is.logits[1] | is.logits[2], 0);
    assert_true(step(&rig, 11, RIG_DEADLINE_MS, &is, &expected));
    rig_same(&is, &expected); /* it was executed, the answer only was lost */
    rig_close(&rig);
    rig_open(&rig, 0);
    rig_fault("error");
    assert_int_equal(rig_run(&rig, KL_COMMAND_INFO, 0, 0, 0), ERT_CMD_STATE_ERROR);
    assert_int_equal(rig_run(&rig, KL_COMMAND_INFO, 0, 0, 0), ERT_CMD_STATE_COMPLETED);
    rig_close(&rig);
}

/* Reads give all ones, once without an error; then nothing works any more, and nothing waits. */
static void is_gone(struct rig *rig)
{
    uint32_t value = 0;
    const uint64_t until = rig_now_ms() + RIG_DEADLINE_MS;
    int rc = 0;
    while (rc == 0 && value != UINT32_MAX && rig_now_ms() < until)
        rc = xrtKernelReadRegister(rig->kernel, RIG_REG(KL_REG_REQUEST_HEAD), &value);
    if (rc == 0)
        assert_int_equal(value, UINT32_MAX);
    assert_int_not_equal(xrtKernelReadRegister(rig->kernel, RIG_REG(KL_REG_REQUEST_HEAD), &value), 0);
    assert_int_not_equal(xrtKernelWriteRegister(rig->kernel, KL_MAP_SLOT, 1), 0);
    assert_int_not_equal(xrtBOSync(rig->image, XCL_BO_SYNC_BO_TO_DEVICE, 64, 0), 0);
}

static void vanish(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_result is, expected;
    const uint64_t before = injected(FAULT_VANISH), lost = control->devices[0].lost;
    serve(&rig);
    rig_fault("vanish");
    assert_false(step(&rig, 10, SHORT_MS, &is, &expected));
    is_gone(&rig);
    assert_int_equal(injected(FAULT_VANISH), before + 1);
    assert_int_equal(control->devices[0].lost, lost + 1);
    comes_back(&rig);
    /* At whatever comes next. */
    serve(&rig);
    rig_fault("vanish:after=0");
    is_gone(&rig);
    comes_back(&rig);
    /* In run mode. */
    rig_open(&rig, 0);
    rig_fault("vanish");
    xrtRunHandle run = rig_run_open(&rig, KL_COMMAND_INFO, 0, 0, 0),
                 next = rig_run_open(&rig, KL_COMMAND_INFO, 0, 0, 0);
    (void)xrtRunStart(run);
    assert_int_not_equal(rig_run_poll(run, SHORT_MS), ERT_CMD_STATE_COMPLETED);
    assert_int_not_equal(xrtRunStart(next), 0);
    assert_int_equal(rig_run_poll(run, RIG_DEADLINE_MS), ERT_CMD_STATE_ERROR);
    xrtRunClose(run);
    xrtRunClose(next);
    comes_back(&rig);
}

static void crash(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_result is, expected;
    const uint64_t before = injected(FAULT_CRASH);
    serve(&rig);
    rig_fault("crash");
    assert_false(step(&rig, 10, SHORT_MS, &is, &expected));
    is_gone(&rig);
    assert_int_equal(injected(FAULT_CRASH), before + 1);
    comes_back(&rig);
    rig_open(&rig, 0);
    rig_load_by_run(&rig, 0, image);
    rig_fault("crash:signal=6");
    rig_request(rig_request_at(&rig, 0), KL_OP_STEP, 0, 1);
    assert_int_not_equal(rig_run(&rig, KL_COMMAND_EXEC, 0, 0, 1), ERT_CMD_STATE_COMPLETED);
    xrtRunHandle run = rig_run_open(&rig, KL_COMMAND_INFO, 0, 0, 0);
    assert_int_not_equal(xrtRunStart(run), 0);
    xrtRunClose(run);
    /* The xclbin again: a new child, without closing anything of the device but its units. */
    xrtKernelClose(rig.kernel);
    assert_int_equal(xrtDeviceLoadXclbinFile(rig.device, rig_xclbin("kl_small")), 0);
    rig.kernel = xrtPLKernelOpen(rig.device, rig.uuid, rig_unit_name(0));
    assert_non_null(rig.kernel);
    assert_int_equal(rig_run(&rig, KL_COMMAND_INFO, 0, 0, 0), ERT_CMD_STATE_COMPLETED);
    rig_close(&rig);
}

static void flipped_answers(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_request request;
    struct kl_result is, expected;
    serve(&rig);
    rig_fault("flip-answer:bit=512");
    rig_request(&request, KL_OP_STEP, 0, 10);
    kl_build_small.exec(rig.reference, &request, &expected);
    const uint32_t entry = rig.tail % KL_QUEUE_DEPTH;
    assert_false(rig_ask(&rig, &request, SHORT_MS, &is)); /* the check says so */
    is = rig_peek(&rig, entry);
    assert_int_equal(is.seq_no, 10);
    assert_int_equal(is.logits[0], expected.logits[0] ^ 1);
    assert_int_equal(is.check, expected.check ^ (is.wait_cycles ? is.check ^ expected.check : 0));
    rig_write(&rig, RIG_REG(KL_REG_RESULT_HEAD), rig.tail);
    rig_fault("flip-answer:bit=520,sealed=1,after=2");
    rig_steps(&rig, 0, 11, 1);
    assert_true(step(&rig, 12, RIG_DEADLINE_MS, &is, &expected)); /* whole, and wrong */
    assert_int_equal(is.logits[0], expected.logits[0] ^ 256);
    rig_steps(&rig, 0, 13, 2);
    rig_close(&rig);
    /* In run mode. */
    rig_open(&rig, 0);
    rig_load_by_run(&rig, 0, image);
    rig_fault("flip-answer:after=1");
    rig_request(rig_request_at(&rig, 0), KL_OP_STEP, 0, 1);
    kl_build_small.exec(rig.reference, rig_request_at(&rig, 0), &expected);
    assert_int_equal(rig_run(&rig, KL_COMMAND_EXEC, 0, 0, 1), ERT_CMD_STATE_COMPLETED);
    assert_int_equal(rig_result(&rig, 0)->logits[0], expected.logits[0] ^ 1);
    rig_close(&rig);
}

/* A step of a fresh stream on the reference. */
static struct kl_result fresh_step(struct kl_unit *unit)
{
    struct kl_request request;
    struct kl_result result;
    rig_request(&request, KL_OP_RESET, 0, 1);
    kl_build_small.exec(unit, &request, &result);
    rig_request(&request, KL_OP_STEP, 0, 1);
    kl_build_small.exec(unit, &request, &result);
    return result;
}

/* A bit of the weights that matters, found on the reference first: most of the memory is unused. */
static uint64_t find_bit(struct rig *rig)
{
    size_t size;
    uint8_t *weights = kl_build_small.weights(rig->reference, &size);
    const struct kl_result right = fresh_step(rig->reference);
    for (uint64_t bit = 12; bit < 8 * size; bit += 16) {
        if (!weights[bit / 8])
            continue;
        weights[bit / 8] ^= (uint8_t)(1u << bit % 8);
        const struct kl_result wrong = fresh_step(rig->reference);
        weights[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (memcmp(right.logits, wrong.logits, sizeof right.logits) != 0)
            return bit;
    }
    fail();
    return 0;
}

static void flipped_weights(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_result is, expected;
    char spec[64];
    rig_open(&rig, 1);
    rig_serve(&rig, RINGS);
    assert_int_equal(rig_load_by_bell(&rig, 0, image), KL_OK);
    rig_load_reference(&rig, 0, image);
    snprintf(spec, sizeof spec, "flip-weight:bit=%llu", (unsigned long long)find_bit(&rig));
    kl_build_small.init(rig.reference, 0, 1);
    rig_load_reference(&rig, 0, image);
    rig_fault(spec);
    assert_true(step(&rig, 1, RIG_DEADLINE_MS, &is, &expected));
    assert_int_equal(is.status, KL_OK);
    assert_int_equal(is.check, kl_result_check(&is)); /* nothing but a comparison finds it */
    assert_memory_not_equal(is.logits, expected.logits, sizeof is.logits);
    /* The model loaded again mends it. */
    assert_int_equal(rig_load_by_bell(&rig, 0, image), KL_OK);
    rig_load_reference(&rig, 0, image);
    rig_steps(&rig, 0, 2, 3);
    rig_close(&rig);
}

static void duplicates(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_result is, expected, before;
    serve(&rig);
    assert_true(step(&rig, 10, RIG_DEADLINE_MS, &before, &expected));
    rig_fault("duplicate");
    const uint32_t entry = rig.tail % KL_QUEUE_DEPTH;
    assert_false(step(&rig, 11, SHORT_MS, &is, &expected));
    is = rig_peek(&rig, entry);
    assert_memory_equal(&is, &before, sizeof is);
    rig_write(&rig, RIG_REG(KL_REG_RESULT_HEAD), rig.tail);
    rig_steps(&rig, 0, 12, 2);
    rig_close(&rig);
}

static void lost_doorbells(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_request request;
    struct kl_result is, expected[2];
    const uint64_t before = injected(FAULT_LOSE_DOORBELL);
    serve(&rig);
    rig_fault("lose-doorbell");
    assert_false(step(&rig, 10, SHORT_MS, &is, &expected[0]));
    assert_int_equal(injected(FAULT_LOSE_DOORBELL), before + 1);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_REQUEST_TAIL)), rig.tail - 1);
    /* The next brings both. */
    const uint32_t entry = (rig.tail - 1) % KL_QUEUE_DEPTH;
    rig_request(&request, KL_OP_STEP, 0, 11);
    kl_build_small.exec(rig.reference, &request, &expected[1]);
    assert_true(rig_ask(&rig, &request, RIG_DEADLINE_MS, &is));
    rig_same(&is, &expected[1]);
    assert_true(rig_await_answer(&rig, entry, 10, RIG_DEADLINE_MS, &is));
    rig_same(&is, &expected[0]);
    rig_close(&rig);
}

static void refused_loads(void **state)
{
    (void)state;
    struct rig rig;
    serve(&rig);
    rig_fault("refuse-load:what=model,after=2");
    assert_int_equal(rig_load_by_bell(&rig, 1, image), KL_OK);
    assert_int_equal(rig_load_by_bell(&rig, 1, image), KL_E_IMAGE);
    assert_int_equal(rig_load_by_bell(&rig, 1, image), KL_OK);
    rig_close(&rig);
    rig_open(&rig, 0);
    rig_fault("refuse-load");
    memcpy(rig.image_at, image, image->size_bytes);
    assert_int_equal(rig_run(&rig, KL_COMMAND_LOAD, 0, image->size_bytes, 0), ERT_CMD_STATE_COMPLETED);
    assert_int_equal(rig_result(&rig, 0)->status, KL_E_IMAGE);
    rig_load_by_run(&rig, 0, image);
    rig_close(&rig);
    rig_fault("refuse-load:what=xclbin,count=2");
    xrtDeviceHandle device = xrtDeviceOpen(0);
    assert_non_null(device);
    assert_int_not_equal(xrtDeviceLoadXclbinFile(device, rig_xclbin("kl_small")), 0);
    assert_int_not_equal(xrtDeviceLoadXclbinFile(device, rig_xclbin("kl_small")), 0);
    assert_int_equal(xrtDeviceLoadXclbinFile(device, rig_xclbin("kl_small")), 0);
    xrtDeviceClose(device);
}

static void no_memory(void **state)
{
    (void)state;
    struct rig rig;
    rig_open_device(&rig, 0, "kl_small");
    rig_fault("memory-full:after=2,count=2");
    xrtBufferHandle first = xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_NONE, 0);
    assert_non_null(first);
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_NONE, 0));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_HOST_ONLY, 1));
    xrtBufferHandle second = xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_HOST_ONLY, 1);
    assert_non_null(second);
    xrtBOFree(first);
    xrtBOFree(second);
    xrtDeviceClose(rig.device);
}

/* A fault of one unit, or of another device, is nobody else's. */
static void only_the_unit_that_is_named(void **state)
{
    (void)state;
    struct rig rigs[2];
    struct kl_request request;
    struct kl_result is;
    for (uint32_t u = 0; u < 2; u++) {
        rig_open_device(&rigs[u], 0, "kl_small_2");
        rig_open_unit(&rigs[u], u, 1);
        rig_serve(&rigs[u], RINGS);
        assert_int_equal(rig_load_by_bell(&rigs[u], 0, image), KL_OK);
        rig_load_reference(&rigs[u], 0, image);
    }
    rig_fault("hang:unit=1;hang:device=1,unit=0");
    rig_steps(&rigs[0], 0, 1, 3);
    rig_request(&request, KL_OP_STEP, 0, 1);
    assert_false(rig_ask(&rigs[1], &request, SHORT_MS, &is));
    rig_steps(&rigs[0], 0, 4, 3);
    rig_close(&rigs[0]);
    rig_close(&rigs[1]);
}

static int start(void **state)
{
    (void)state;
    rig_start(1);
    image = rig_image(1);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    free(image);
    return unlink(getenv("KL_SIM_CONTROL"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hang),
        cmocka_unit_test(a_lasting_hang_outlives_resets),
        cmocka_unit_test(late),
        cmocka_unit_test(error),
        cmocka_unit_test(vanish),
        cmocka_unit_test(crash),
        cmocka_unit_test(flipped_answers),
        cmocka_unit_test(flipped_weights),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(lost_doorbells),
        cmocka_unit_test(refused_loads),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(only_the_unit_that_is_named),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
