/* The software device as a host sees it through XRT: buffers, runs, doorbells, several of everything. Run by CTest in
 * every mode: XCL_EMULATION_MODE x KL_SIM_EXEC. */
#include "test_sim_device_rig.h"

#include <dlfcn.h>
#include <pthread.h>

static struct control *control;

/* ---- devices ---- */

static void opens(void **state)
{
    (void)state;
    xrtDeviceHandle first = xrtDeviceOpen(0), second = xrtDeviceOpen(1), again = xrtDeviceOpen(0);
    assert_true(first && second && again);
    assert_null(xrtDeviceOpen(2));
    xrtDeviceHandle named = xrtDeviceOpenByBDF("0000:00:01.0");
    assert_non_null(named);
    assert_null(xrtDeviceOpenByBDF("0000:00:02.0"));
    assert_null(xrtDeviceOpenByBDF("0000:00:01.1"));
    assert_null(xrtDeviceOpenByBDF("elsewhere"));
    const char *version = (const char *)dlsym(RTLD_DEFAULT, "kl_sim_device_version");
    assert_non_null(version);
    assert_memory_equal(version, "killline-sim ", 13);
    xrtDeviceClose(first);
    xrtDeviceClose(second);
    xrtDeviceClose(again);
    xrtDeviceClose(named);
}

static void contexts(void **state)
{
    (void)state;
    struct rig a, b;
    rig_open_device(&a, 0, "kl_small_2");
    rig_open_device(&b, 0, "kl_small_2");
    xrtKernelHandle one = xrtPLKernelOpenExclusive(a.device, a.uuid, rig_unit_name(0));
    assert_non_null(one);
    assert_null(xrtPLKernelOpenExclusive(b.device, b.uuid, rig_unit_name(0)));
    assert_null(xrtPLKernelOpen(b.device, b.uuid, rig_unit_name(0)));
    xrtKernelHandle other = xrtPLKernelOpen(b.device, b.uuid, rig_unit_name(1));
    assert_non_null(other);
    xrtKernelHandle shared = xrtPLKernelOpen(a.device, a.uuid, rig_unit_name(1));
    assert_non_null(shared);
    assert_null(xrtPLKernelOpenExclusive(b.device, b.uuid, rig_unit_name(2))); /* there is no third */
    /* Shared units have no registers. */
    uint32_t value;
    assert_int_not_equal(xrtKernelReadRegister(shared, KL_MAP_COMMAND, &value), 0);
    /* Another xclbin does not push a used one out; the same is no news. */
    assert_int_not_equal(xrtDeviceLoadXclbinFile(b.device, rig_xclbin("kl_small")), 0);
    assert_int_equal(xrtDeviceLoadXclbinFile(b.device, rig_xclbin("kl_small_2")), 0);
    xrtKernelClose(one);
    xrtKernelClose(other);
    xrtKernelClose(shared);
    assert_int_equal(xrtDeviceLoadXclbinFile(b.device, rig_xclbin("kl_small")), 0);
    xrtDeviceClose(a.device);
    xrtDeviceClose(b.device);
}

/* ---- buffers ---- */

static void a_forgotten_sync_shows(void **state)
{
    (void)state;
    struct rig rig;
    rig_open_device(&rig, 0, "kl_small");
    xrtBufferHandle buffer = xrtBOAlloc(rig.device, 8192, XRT_BO_FLAGS_NONE, 0);
    uint8_t *at = (uint8_t *)xrtBOMap(buffer);
    assert_non_null(at);
    memset(at, 1, 8192);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, 4096, 0), 0);
    memset(at, 2, 8192);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_FROM_DEVICE, 8192, 0), 0);
    assert_int_equal(at[0], 1);
    assert_int_equal(at[4095], 1);
    assert_int_equal(at[4096], 0); /* never sent */
    memset(at, 3, 8192);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, 100, 5000), 0);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_FROM_DEVICE, 8192, 0), 0);
    assert_int_equal(at[4999], 0);
    assert_int_equal(at[5000], 3);
    assert_int_equal(at[5099], 3);
    assert_int_equal(at[5100], 0);
    assert_int_not_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, 8193, 0), 0);
    assert_int_not_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, 1, 8192), 0);
    assert_int_not_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, SIZE_MAX, 1), 0);
    xrtBOFree(buffer);
    /* The host's own memory is one copy. */
    buffer = xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_HOST_ONLY, 1);
    at = (uint8_t *)xrtBOMap(buffer);
    assert_non_null(at);
    memset(at, 7, 4096);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_FROM_DEVICE, 4096, 0), 0);
    assert_int_equal(at[4095], 7);
    xrtBOFree(buffer);
    xrtDeviceClose(rig.device);
}

static void banks(void **state)
{
    (void)state;
    struct rig rig;
    rig_open_device(&rig, 0, "kl_small");
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_HOST_ONLY, 0));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_NONE, 1));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_NONE, 2));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_P2P, 0));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_SVM, 0));
    xrtBufferHandle device_only = xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_DEV_ONLY, 0);
    assert_non_null(device_only);
    assert_null(xrtBOMap(device_only));
    assert_int_equal(xrtBOAddress(device_only), 0x4000000000);
    xrtBufferHandle host = xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_HOST_ONLY, 1);
    assert_int_equal(xrtBOAddress(host), 0x2000000000);
    xrtBOFree(device_only);
    xrtBOFree(host);
    xrtDeviceClose(rig.device);
}

/* A bank of 64 MiB. */
static void memory_runs_out_and_comes_back(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    struct rig rig;
    rig_open_device(&rig, 0, "kl_small");
    xrtBufferHandle pieces[64];
    uint64_t addresses[64];
    for (uint32_t i = 0; i < 64; i++) {
        pieces[i] = xrtBOAlloc(rig.device, MIB, XRT_BO_FLAGS_DEV_ONLY, 0);
        assert_non_null(pieces[i]);
        addresses[i] = xrtBOAddress(pieces[i]);
        for (uint32_t j = 0; j < i; j++)
            assert_true(addresses[j] + MIB <= addresses[i] || addresses[i] + MIB <= addresses[j]);
    }
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_DEV_ONLY, 0));
    /* Two holes of one are no hole of two; neighbours are. */
    xrtBOFree(pieces[10]);
    xrtBOFree(pieces[12]);
    assert_null(xrtBOAlloc(rig.device, 2 * MIB, XRT_BO_FLAGS_DEV_ONLY, 0));
    xrtBOFree(pieces[11]);
    xrtBufferHandle large = xrtBOAlloc(rig.device, 3 * MIB, XRT_BO_FLAGS_DEV_ONLY, 0);
    assert_non_null(large);
    assert_int_equal(xrtBOAddress(large), addresses[10]);
    xrtBOFree(large);
    for (uint32_t i = 0; i < 64; i++) {
        if (i < 10 || i > 12)
            xrtBOFree(pieces[i]);
    }
    large = xrtBOAlloc(rig.device, 64 * (size_t)MIB, XRT_BO_FLAGS_DEV_ONLY, 0);
    assert_non_null(large);
    xrtBOFree(large);
    assert_null(xrtBOAlloc(rig.device, 64 * (size_t)MIB + 1, XRT_BO_FLAGS_DEV_ONLY, 0));
    /* A closed device's buffers are gone. */
    assert_non_null(xrtBOAlloc(rig.device, 60 * (size_t)MIB, XRT_BO_FLAGS_DEV_ONLY, 0));
    xrtDeviceClose(rig.device);
    rig_open_device(&rig, 0, "kl_small");
    large = xrtBOAlloc(rig.device, 64 * (size_t)MIB, XRT_BO_FLAGS_DEV_ONLY, 0);
    assert_non_null(large);
    xrtBOFree(large);
    xrtDeviceClose(rig.device);
}

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
    assert_int_equal(rig_read(&rig, KL_MAP_CONTROL), 0x81);
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
    while (!(rig_read(rig, KL_MAP_CONTROL) & 4))
        assert_true(rig_now_ms() < until);
}

/* Out of doorbell mode, a command by register, and back: how a state is saved there. */
static void starts_by_register(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_image_header *image = rig_image(4);
    rig_open(&rig, 1);
    assert_int_equal(rig_read(&rig, KL_MAP_CONTROL), 4);
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
    rig_write(&rig, KL_MAP_CONTROL, 1);
    await_idle(&rig);
    rig_sync_out(&rig);
    struct kl_state expected;
    assert_int_equal(kl_build_small.save(rig.reference, 0, 3, &expected), KL_OK);
    assert_memory_equal(rig.state_at, &expected, sizeof expected);
    rig_write(&rig, KL_MAP_COMMAND, KL_COMMAND_SERVICE);
    rig_write(&rig, KL_MAP_CONTROL, 0x81);
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
    rig_write(&rig, KL_MAP_CONTROL, 1);
    const uint64_t until = rig_now_ms() + RIG_DEADLINE_MS;
    uint32_t value;
    while (!((value = rig_read(&rig, KL_MAP_CONTROL)) & 2))
        assert_true(rig_now_ms() < until);
    assert_int_equal(value, 6);
    assert_int_equal(rig_read(&rig, KL_MAP_CONTROL), 4);
    rig_close(&rig);
}

static void registers(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1);
    uint32_t value = 1;
    assert_int_not_equal(xrtKernelReadRegister(rig.kernel, KL_MAP_COMMAND + 1, &value), 0);
    assert_int_not_equal(xrtKernelWriteRegister(rig.kernel, KL_MAP_COMMAND + 2, 1), 0);
    assert_int_not_equal(xrtKernelReadRegister(rig.kernel, KL_MAP_BYTES, &value), 0);
    assert_int_not_equal(xrtKernelWriteRegister(rig.kernel, KL_MAP_BYTES, 1), 0);
    assert_int_not_equal(xrtKernelWriteRegister(rig.kernel, UINT32_MAX - 3, 1), 0);
    /* The kernel's words and nobody's stay as they are. */
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_INFO)), KL_ABI_VERSION);
    rig_write(&rig, RIG_REG(KL_REG_INFO), 77);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_INFO)), KL_ABI_VERSION);
    rig_write(&rig, RIG_REG(KL_REG_RESULTS), 5);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_RESULTS)), 0);
    rig_write(&rig, KL_MAP_REG - 4, 5);
    assert_int_equal(rig_read(&rig, KL_MAP_REG - 4), 0);
    rig_write(&rig, KL_MAP_BYTES - 4, 5);
    assert_int_equal(rig_read(&rig, KL_MAP_BYTES - 4), 0);
    /* The host's keep what was written. */
    rig_write(&rig, KL_MAP_SLOT, 1);
    assert_int_equal(rig_read(&rig, KL_MAP_SLOT), 1);
    rig_write(&rig, RIG_REG(KL_REG_REQUESTS + 3), 9);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_REQUESTS + 3)), 9);
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
        driver->ok = xrtKernelWriteRegister(driver->rig.kernel, RIG_REG(KL_REG_REQUEST_TAIL), driver->rig.tail) == 0 &&
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

static uint32_t status_of_a_step(struct rig *rig)
{
    struct kl_request request;
    struct kl_result is;
    rig_request(&request, KL_OP_STEP, 0, 1 + rig->tail);
    assert_true(rig_ask(rig, &request, RIG_DEADLINE_MS, &is));
    return is.status;
}

/* The last close resets a card, one of two does not; loading again with no unit open does. */
static void closing_and_loading_again_reset(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_image_header *image = rig_image(6);
    const uint32_t config = KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST;
    const uint64_t resets = control->devices[0].resets;
    xrtDeviceHandle other = xrtDeviceOpen(0);
    rig_open(&rig, 1);
    assert_int_equal(control->devices[0].resets, resets + 1);
    rig_serve(&rig, config);
    assert_int_equal(rig_load_by_bell(&rig, 0, image), KL_OK);
    assert_int_equal(status_of_a_step(&rig), KL_OK);
    assert_int_equal(xrtDeviceLoadXclbinFile(other, rig_xclbin("kl_small")), 0);
    assert_int_equal(status_of_a_step(&rig), KL_OK);
    assert_int_equal(control->devices[0].resets, resets + 1);
    rig_close(&rig);
    rig_open(&rig, 1);
    assert_int_equal(control->devices[0].resets, resets + 2); /* loaded again, no unit open */
    rig_serve(&rig, config);
    assert_int_equal(status_of_a_step(&rig), KL_E_EMPTY);
    rig_close(&rig);
    xrtDeviceClose(other);
    rig_open(&rig, 1);
    assert_int_equal(rig_read(&rig, KL_MAP_CONTROL), 4);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_REQUEST_TAIL)), 0);
    rig_close(&rig);
    free(image);
}

/* ---- xclbins ---- */

static uint8_t *read_xclbin(const char *name, size_t *size)
{
    FILE *file = fopen(rig_xclbin(name), "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = (uint8_t *)malloc(*size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static struct axlf_section_header *section(struct axlf *axlf, enum axlf_section_kind kind)
{
    for (uint32_t i = 0; i < axlf->m_header.m_numSections; i++) {
        if (axlf->m_sections[i].m_sectionKind == (uint32_t)kind)
            return &axlf->m_sections[i];
    }
    fail();
    return NULL;
}

static void malformed_xclbins_are_refused(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = read_xclbin("kl_small", &size);
    struct axlf *axlf = (struct axlf *)(void *)bytes;
    xrtDeviceHandle device = xrtDeviceOpen(0);
    assert_non_null(device);
    struct axlf_section_header *stream = section(axlf, BITSTREAM);
    struct xclbin_library *library = (struct xclbin_library *)(void *)(bytes + stream->m_sectionOffset);
    library->abi_version++;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    library->abi_version--;
    library->symbol[9] = 'z';
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    library->symbol[9] = 's';
    library->size_bytes++;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    library->size_bytes--;
    /* Not an ELF file any more. */
    ((uint8_t *)library)[sizeof *library] ^= 1;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    ((uint8_t *)library)[sizeof *library] ^= 1;
    stream->m_sectionKind = BITSTREAM_PARTIAL_PDI;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    stream->m_sectionKind = BITSTREAM;
    struct axlf_section_header *memory = section(axlf, MEM_TOPOLOGY);
    memory->m_sectionOffset = size;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    xrtDeviceClose(device);
    free(bytes);
}

static int start(void **state)
{
    (void)state;
    control = rig_start(2);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return unlink(getenv("KL_SIM_CONTROL"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens),
        cmocka_unit_test(contexts),
        cmocka_unit_test(a_forgotten_sync_shows),
        cmocka_unit_test(banks),
        cmocka_unit_test(memory_runs_out_and_comes_back),
        cmocka_unit_test(runs),
        cmocka_unit_test(runs_queue),
        cmocka_unit_test(doorbell_with_rings_in_host_memory),
        cmocka_unit_test(doorbell_with_rings_in_registers),
        cmocka_unit_test(starts_by_register),
        cmocka_unit_test(done_is_cleared_by_reading),
        cmocka_unit_test(registers),
        cmocka_unit_test(wrong_addresses_end_in_an_error),
        cmocka_unit_test(two_units_and_two_devices),
        cmocka_unit_test(hosts_threads_drive_units_at_once),
        cmocka_unit_test(closing_and_loading_again_reset),
        cmocka_unit_test(malformed_xclbins_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
