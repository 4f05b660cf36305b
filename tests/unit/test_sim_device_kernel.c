/* The kernel on the software device, as a host drives it through XRT: runs, doorbells, wrong addresses,
 * several units and devices. Run by CTest in every mode: XCL_EMULATION_MODE x KL_SIM_EXEC. */
#include "test_sim_device_rig.h"

#include <pthread.h>

/* ---- run mode ---- */

static void runs(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 0);
    assert_int_equal(rig_run(&rig, KL_COMMAND_INFO, 0, 0, 0), ERT_CMD_STATE_COMPLETED);
    struct kl_info info;
    memcpy(&info, rig.result_at, sizeof info);
    assert_int_equal(info.abi_version, KL_ABI_VERSION);
    assert_string_equal(info.build, "small");

    struct model model;
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(model_load(KL_MODEL_DEFAULT, &model, error), 0);
    rig_load_by_run(&rig, 0, model.image);
    for (uint32_t n = 1; n <= 4; n++) {
        struct kl_result expected[4];
        for (uint32_t i = 0; i < n; i++) {
            rig_request(rig_request_at(&rig, i), KL_OP_STEP, i % 2, 10 * n + i);
            kl_build_small.exec(rig.reference, rig_request_at(&rig, i), &expected[i]);
        }
        assert_int_equal(rig_run(&rig, KL_COMMAND_EXEC, 0, 0, n), ERT_CMD_STATE_COMPLETED);
        for (uint32_t i = 0; i < n; i++)
            rig_same(rig_result(&rig, i), &expected[i]);
    }
    /* A state moves to another stream. */
    struct kl_state expected_state;
    assert_int_equal(kl_build_small.save(rig.reference, 0, 1, &expected_state), KL_OK);
    rig_request(rig_request_at(&rig, 0), KL_OP_STEP, 1, 0);
    assert_int_equal(rig_run(&rig, KL_COMMAND_SAVE, 0, 0, 0), ERT_CMD_STATE_COMPLETED);
    assert_int_equal(rig_result(&rig, 0)->status, KL_OK);
    assert_memory_equal(rig.state_at, &expected_state, sizeof expected_state);
    rig_request(rig_request_at(&rig, 0), KL_OP_STEP, 5, 0);
    assert_int_equal(rig_run(&rig, KL_COMMAND_RESTORE, 0, 0, 0), ERT_CMD_STATE_COMPLETED);
    assert_int_equal(rig_result(&rig, 0)->status, KL_OK);
    struct kl_result expected;
    rig_request(rig_request_at(&rig, 0), KL_OP_STEP, 5, 99);
    assert_int_equal(kl_build_small.restore(rig.reference, 0, 5, &expected_state), KL_OK);
    kl_build_small.exec(rig.reference, rig_request_at(&rig, 0), &expected);
    assert_int_equal(rig_run(&rig, KL_COMMAND_EXEC, 0, 0, 1), ERT_CMD_STATE_COMPLETED);
    rig_same(rig_result(&rig, 0), &expected);
    /* What the kernel refuses is an answer, not an error of the run. */
    assert_int_equal(rig_run(&rig, 77, 0, 0, 0), ERT_CMD_STATE_COMPLETED);
    assert_int_equal(rig_result(&rig, 0)->status, KL_E_OP);
    assert_int_equal(rig_run(&rig, KL_COMMAND_LOAD, 0, 64, 0), ERT_CMD_STATE_COMPLETED);
    assert_int_equal(rig_result(&rig, 0)->status, KL_E_IMAGE);
    rig_close(&rig);
    model_free(&model);
}

/* Several outstanding, each with its own buffers: in order, one after the other. */
static void runs_queue(void **state)
{
    (void)state;
    enum { N = 12 };
    struct rig rig;
    struct kl_image_header *image = rig_image(1);
    rig_open(&rig, 0);
    rig_load_by_run(&rig, 1, image);
    xrtRunHandle run[N];
    xrtBufferHandle request[N], result[N];
    uint8_t *request_at[N], *result_at[N];
    struct kl_result expected[N];
    for (uint32_t i = 0; i < N; i++) {
        request[i] = rig_buffer(&rig, KL_ARG_REQUEST, sizeof(struct kl_request), 1, &request_at[i]);
        result[i] = rig_buffer(&rig, KL_ARG_RESULT, sizeof(struct kl_result), 1, &result_at[i]);
        struct kl_request one;
        rig_request(&one, KL_OP_STEP, 7, i + 1);
        one.slot = 1;
        memcpy(request_at[i], &one, sizeof one);
        kl_build_small.exec(rig.reference, &one, &expected[i]);
        run[i] = rig_run_open(&rig, KL_COMMAND_EXEC, 1, 0, 1);
        assert_int_equal(xrtRunSetArg(run[i], KL_ARG_REQUEST, request[i]), 0);
        assert_int_equal(xrtRunSetArg(run[i], KL_ARG_RESULT, result[i]), 0);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(xrtRunStart(run[i]), 0);
    for (uint32_t i = N; i-- > 0;)
        assert_int_equal(rig_run_poll(run[i], RIG_DEADLINE_MS), ERT_CMD_STATE_COMPLETED);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(xrtBOSync(result[i], XCL_BO_SYNC_BO_FROM_DEVICE, sizeof(struct kl_result), 0), 0);
        rig_same((const struct kl_result *)(const void *)result_at[i], &expected[i]);
        xrtRunClose(run[i]);
        xrtBOFree(request[i]);
        xrtBOFree(result[i]);
    }
    rig_close(&rig);
    free(image);
}

/* ---- doorbell mode ---- */

static void doorbell_with_rings_in_host_memory(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_image_header *image = rig_image(2);
    rig_open(&rig, 1);
    rig_serve(&rig, KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST);
    assert_int_equal(rig_read(&rig, KL_MAP_CONTROL), KL_CONTROL_START | KL_CONTROL_AUTO_RESTART);
    assert_int_equal(rig_load_by_bell(&rig, 1, image), KL_OK);
    rig_load_reference(&rig, 1, image);
    for (uint32_t i = 0; i < 40; i++) {
        struct kl_request request;
        struct kl_result is, expected;
        rig_request(&request, KL_OP_STEP, i % 3, i + 1);
        request.slot = 1;
        request.flags = i % 2 ? KL_REQUEST_PREPARE : 0;
        assert_true(rig_ask(&rig, &request, RIG_DEADLINE_MS, &is));
        kl_build_small.exec(rig.reference, &request, &expected);
        assert_int_equal(is.status, KL_OK);
        assert_memory_equal(is.logits, expected.logits, sizeof is.logits);
        assert_int_equal(is.cls, expected.cls);
    }
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_RESULT_TAIL)), 40);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_REQUEST_HEAD)), 40);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_BAD_DOORBELLS)), 0);
    /* As many as the queue holds, with one ring of the bell. */
    struct kl_result expected[KL_QUEUE_DEPTH];
    const uint32_t first = rig.tail;
    for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++) {
        struct kl_request request;
        rig_request(&request, KL_OP_STEP, 4, 100 + i);
        request.slot = 1;
        kl_build_small.exec(rig.reference, &request, &expected[i]);
        rig_put(&rig, &request, 1);
    }
    rig_write(&rig, RIG_REG(KL_REG_REQUEST_TAIL), rig.tail);
    for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++) {
        struct kl_result is;
        assert_true(rig_await_answer(&rig, (first + i) % KL_QUEUE_DEPTH, 100 + i, RIG_DEADLINE_MS, &is));
        rig_same(&is, &expected[i]);
    }
    /* Until they are taken there is no room for another. */
    struct kl_request request;
    struct kl_result is;
    rig_request(&request, KL_OP_STEP, 4, 200);
    request.slot = 1;
    kl_build_small.exec(rig.reference, &request, &expected[0]);
    rig_put(&rig, &request, 1);
    rig_write(&rig, RIG_REG(KL_REG_REQUEST_TAIL), rig.tail);
    assert_false(rig_await_answer(&rig, first % KL_QUEUE_DEPTH, 200, 20, &is));
    rig_write(&rig, RIG_REG(KL_REG_RESULT_HEAD), rig.tail - 1);
    assert_true(rig_await_answer(&rig, first % KL_QUEUE_DEPTH, 200, RIG_DEADLINE_MS, &is));
    rig_same(&is, &expected[0]);
    rig_close(&rig);
    free(image);
}

static void doorbell_with_rings_in_registers(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_image_header *image = rig_image(3);
    rig_open_device(&rig, 0, "kl_small_nohost");
    rig_open_unit(&rig, 0, 1);
    assert_false(rig.has_host_memory);
    rig_serve(&rig, 0);
    assert_int_equal(rig_load_by_bell(&rig, 0, image), KL_OK);
    rig_load_reference(&rig, 0, image);
    for (uint32_t i = 0; i < 12; i++) {
        struct kl_request request;
        struct kl_result expected;
        union {
            struct kl_result result;
            uint32_t words[sizeof(struct kl_result) / 4];
        } is;
        const uint32_t entry = rig.tail % KL_QUEUE_DEPTH;
        rig_request(&request, KL_OP_STEP, 2, i + 1);
        kl_build_small.exec(rig.reference, &request, &expected);
        rig_put(&rig, &request, 0);
        rig_write(&rig, RIG_REG(KL_REG_REQUEST_TAIL), rig.tail);
        assert_true(rig_await(&rig, KL_REG_RESULT_TAIL, rig.tail, RIG_DEADLINE_MS));
        for (uint32_t w = 0; w < sizeof is.words / 4; w++)
            is.words[w] = rig_read(&rig, RIG_REG(KL_REG_RESULTS + entry * (sizeof is.words / 4) + w));
        rig_write(&rig, RIG_REG(KL_REG_RESULT_HEAD), rig.tail);
        rig_same(&is.result, &expected);
    }
    rig_close(&rig);
    free(image);
}

static void await_idle(const struct rig *rig)
{
    const uint64_t until = rig_now_ms() + RIG_DEADLINE_MS;
    while (!(rig_read(rig, KL_MAP_CONTROL) & KL_CONTROL_IDLE))
        assert_true(rig_now_ms() < until);
}

/* Out of doorbell mode, a command by register, and back: how a state is saved there. */
static void starts_by_register(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_image_header *image = rig_image(4);
    rig_open(&rig, 1);
    assert_int_equal(rig_read(&rig, KL_MAP_CONTROL), KL_CONTROL_IDLE);
    rig_serve(&rig, KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST);
    assert_int_equal(rig_load_by_bell(&rig, 0, image), KL_OK);
    rig_load_reference(&rig, 0, image);
    rig_steps(&rig, 3, 1, 5);
    rig_write(&rig, KL_MAP_CONTROL, 0);
    await_idle(&rig);
    struct kl_request request;
    rig_request(&request, KL_OP_STEP, 3, 0);
    memcpy(rig.request_at, &request, sizeof request);
    rig_write(&rig, KL_MAP_COMMAND, KL_COMMAND_SAVE);
    rig_write_address(&rig, KL_MAP_STATE, xrtBOAddress(rig.state));
    rig_write(&rig, KL_MAP_CONTROL, KL_CONTROL_START);
    await_idle(&rig);
    rig_sync_out(&rig);
    struct kl_state expected;
    assert_int_equal(kl_build_small.save(rig.reference, 0, 3, &expected), KL_OK);
    assert_memory_equal(rig.state_at, &expected, sizeof expected);
    rig_write(&rig, KL_MAP_COMMAND, KL_COMMAND_SERVICE);
    rig_write(&rig, KL_MAP_CONTROL, KL_CONTROL_START | KL_CONTROL_AUTO_RESTART);
    rig_steps(&rig, 3, 6, 5);
    rig_close(&rig);
    free(image);
}

/* ap_done: set once by the end of a start, cleared by reading. */
static void done_is_cleared_by_reading(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1);
    rig_write(&rig, KL_MAP_COMMAND, KL_COMMAND_INFO);
    rig_write_address(&rig, KL_MAP_RESULT, xrtBOAddress(rig.result));
    rig_write(&rig, KL_MAP_CONTROL, KL_CONTROL_START);
    const uint64_t until = rig_now_ms() + RIG_DEADLINE_MS;
    uint32_t value;
    while (!((value = rig_read(&rig, KL_MAP_CONTROL)) & KL_CONTROL_DONE))
        assert_true(rig_now_ms() < until);
    assert_int_equal(value, 6);
    assert_int_equal(rig_read(&rig, KL_MAP_CONTROL), KL_CONTROL_IDLE);
    rig_close(&rig);
}

/* ---- addresses ---- */

static void run_with_addresses(const struct rig *rig, uint32_t argument, xrtBufferHandle buffer,
                               enum ert_cmd_state expected)
{
    xrtRunHandle run = rig_run_open(rig, KL_COMMAND_EXEC, 0, 0, 1);
    assert_int_equal(xrtRunSetArg(run, (int)argument, buffer), 0);
    assert_int_equal(xrtRunStart(run), 0);
    assert_int_equal(rig_run_poll(run, RIG_DEADLINE_MS), expected);
    xrtRunClose(run);
}

static void wrong_addresses_end_in_an_error(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_image_header *image = rig_image(5);
    const struct control_device *counters = &control->devices[0];
    uint64_t bad = counters->bad_access;
    rig_open(&rig, 0);
    rig_load_by_run(&rig, 0, image);
    rig_request(rig_request_at(&rig, 0), KL_OP_STEP, 0, 1);
    /* The image argument's bank is not the requests'; and a buffer for half a request. */
    run_with_addresses(&rig, KL_ARG_REQUEST, rig.image, ERT_CMD_STATE_ERROR);
    assert_int_equal(counters->bad_access, bad + 1);
    uint8_t *at;
    xrtBufferHandle half = rig_buffer(&rig, KL_ARG_REQUEST, sizeof(struct kl_request) / 2, 1, &at);
    run_with_addresses(&rig, KL_ARG_REQUEST, half, ERT_CMD_STATE_ERROR);
    assert_int_equal(counters->bad_access, bad + 2);
    run_with_addresses(&rig, KL_ARG_RESULT, rig.result, ERT_CMD_STATE_COMPLETED);
    xrtBOFree(half);
    assert_int_equal(rig_run(&rig, KL_COMMAND_EXEC, 0, 0, RIG_REQUESTS + 1), ERT_CMD_STATE_ERROR);
    assert_int_equal(rig_run(&rig, KL_COMMAND_LOAD, 0, RIG_IMAGE_BYTES + 1, 0), ERT_CMD_STATE_ERROR);
    /* One that was freed meanwhile. */
    xrtRunHandle run = rig_run_open(&rig, KL_COMMAND_EXEC, 0, 0, 1);
    xrtBufferHandle gone = rig_buffer(&rig, KL_ARG_RESULT, sizeof(struct kl_result), 1, &at);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_RESULT, gone), 0);
    xrtBOFree(gone);
    bad = counters->bad_access;
    assert_int_equal(xrtRunStart(run), 0);
    assert_int_equal(rig_run_poll(run, RIG_DEADLINE_MS), ERT_CMD_STATE_ERROR);
    assert_int_equal(counters->bad_access, bad + 1);
    xrtRunClose(run);
    rig_close(&rig);
    /* In doorbell mode the unit stops. */
    struct kl_request request;
    struct kl_result is;
    rig_open(&rig, 1);
    rig_serve(&rig, KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST);
    rig_request(&request, KL_OP_STEP, 0, 1);
    assert_true(rig_ask(&rig, &request, RIG_DEADLINE_MS, &is));
    rig_write_address(&rig, KL_MAP_RESULT, xrtBOAddress(rig.result) + 1032); /* 1,016 bytes are left */
    bad = counters->bad_access;
    rig_request(&request, KL_OP_STEP, 0, 2);
    assert_false(rig_ask(&rig, &request, 50, &is));
    assert_int_equal(counters->bad_access, bad + 1);
    rig_write_address(&rig, KL_MAP_RESULT, xrtBOAddress(rig.result));
    rig_request(&request, KL_OP_STEP, 0, 3);
    assert_false(rig_ask(&rig, &request, 50, &is));
    rig_close(&rig);
    free(image);
}

/* ---- several ---- */

static void two_units_and_two_devices(void **state)
{
    (void)state;
    enum { N = 4 };
    struct rig rigs[N];
    struct kl_image_header *images[N];
    const uint32_t config = KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST;
    for (uint32_t i = 0; i < N; i++) {
        images[i] = rig_image(10 + i);
        rig_open_device(&rigs[i], i / 2, "kl_small_2");
        rig_open_unit(&rigs[i], i % 2, 1);
        rig_serve(&rigs[i], config);
        assert_int_equal(rig_load_by_bell(&rigs[i], 0, images[i]), KL_OK);
        rig_load_reference(&rigs[i], 0, images[i]);
    }
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < N; i++)
            rig_steps(&rigs[i], round % 2, 1 + round, 1);
    }
    for (uint32_t i = 0; i < N; i++) {
        rig_close(&rigs[i]);
        free(images[i]);
    }
}

struct driver {
    struct rig rig;
    uint32_t unit;
    int ok;
};

/* No cmocka in here: its asserts belong to the test's own thread. */
static void *drive(void *argument)
{
    struct driver *driver = (struct driver *)argument;
    driver->ok = 1;
    for (uint32_t i = 1; i <= 60 && driver->ok; i++) {
        struct kl_request request;
        struct kl_result is, expected;
        const uint32_t entry = driver->rig.tail % KL_QUEUE_DEPTH;
        rig_request(&request, KL_OP_STEP, 1, i);
        rig_put(&driver->rig, &request, 1);
        kl_build_small.exec(driver->rig.reference, &request, &expected);
        driver->ok =
            xrtKernelWriteRegister(driver->rig.kernel, RIG_REG(KL_REG_REQUEST_TAIL), driver->rig.tail) == 0 &&
            rig_await_answer(&driver->rig, entry, i, RIG_DEADLINE_MS, &is) &&
            memcmp(is.logits, expected.logits, sizeof is.logits) == 0 &&
            xrtKernelWriteRegister(driver->rig.kernel, RIG_REG(KL_REG_RESULT_HEAD), driver->rig.tail) == 0;
    }
    return NULL;
}

static void hosts_threads_drive_units_at_once(void **state)
{
    (void)state;
    struct driver drivers[2];
    pthread_t threads[2];
    struct kl_image_header *image = rig_image(20);
    for (uint32_t i = 0; i < 2; i++) {
        rig_open_device(&drivers[i].rig, 0, "kl_small_2");
        rig_open_unit(&drivers[i].rig, i, 1);
        rig_serve(&drivers[i].rig, KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST);
        assert_int_equal(rig_load_by_bell(&drivers[i].rig, 0, image), KL_OK);
        rig_load_reference(&drivers[i].rig, 0, image);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, drive, &drivers[i]), 0);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(drivers[i].ok);
        rig_close(&drivers[i].rig);
    }
    free(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs),
        cmocka_unit_test(runs_queue),
        cmocka_unit_test(doorbell_with_rings_in_host_memory),
        cmocka_unit_test(doorbell_with_rings_in_registers),
        cmocka_unit_test(starts_by_register),
        cmocka_unit_test(done_is_cleared_by_reading),
        cmocka_unit_test(wrong_addresses_end_in_an_error),
        cmocka_unit_test(two_units_and_two_devices),
        cmocka_unit_test(hosts_threads_drive_units_at_once),
    };
    return cmocka_run_group_tests(tests, rig_two_devices, rig_no_devices);
}
