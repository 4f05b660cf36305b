/* A host of the software device, through XRT's public C API and nothing else: what test_sim_device*.c share.
 * The environment (XCL_EMULATION_MODE, KL_SIM_EXEC) is CTest's or the shell's; XILINX_XRT and what a test
 * file needs of KL_SIM_* are set before XRT's first call. XRT's waits are not used: they may take for ever.
 */
#ifndef TEST_SIM_DEVICE_RIG_H
#define TEST_SIM_DEVICE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <xrt.h>
/* behind xrt.h */
#include <ert.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include "hls/kl_abi.h"
#include "host/model.h"
#include "host/xclbin.h"
#include "sim/xrt/fault_control.h"
#include "tests/model_image.h"

#define RIG_REG(word) ((uint32_t)KL_MAP_REG + 4u * (uint32_t)(word))

enum { RIG_DEADLINE_MS = 20000, RIG_N_PART = 4 }; /* sanitizers on a busy machine */

/* A unit as a host drives it, and the same kernel in this process as the reference. */
struct rig {
    xrtDeviceHandle device;
    xuid_t uuid;
    xrtKernelHandle kernel;
    xrtBufferHandle image, request, result, state;
    uint8_t *image_at, *request_at, *result_at, *state_at; /* the host's copies */
    int has_host_memory;
    uint32_t tail; /* doorbell mode */
    struct kl_unit *reference;
    const struct kl_image_header *loaded;
};

static inline uint64_t rig_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline const char *rig_exec(void)
{
    const char *exec = getenv("KL_SIM_EXEC");
    return exec && *exec ? exec : "inline";
}

static inline int rig_is_inline(void)
{
    return strcmp(rig_exec(), "inline") == 0;
}

static inline const char *rig_xclbin(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s.xclbin", KL_SIM_XRT_DIR, name);
    return path;
}

/* The control file, mapped here as well. */
static struct fault_control *control;

/* Before XRT's first call. */
static inline void rig_start(uint32_t n_device)
{
    static char path[] = "/tmp/test_sim_device_XXXXXX";
    char text[16], error[FAULT_ERROR_CHARS];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(text, sizeof text, "%u", n_device);
    setenv("XILINX_XRT", KL_SIM_XRT_DIR, 1);
    setenv("KL_SIM_DEVICES", text, 1);
    setenv("KL_SIM_CONTROL", path, 1);
    unsetenv("KL_SIM_FAULT");
    control = fault_control_open(path, &fd, error);
    assert_non_null(control);
    close(fd);
}

/* A group's set-up and end. */
static inline int rig_two_devices(void **state)
{
    (void)state;
    rig_start(2);
    return 0;
}

static inline int rig_no_devices(void **state)
{
    (void)state;
    return unlink(getenv("KL_SIM_CONTROL"));
}

static inline void rig_fault(const char *spec)
{
    char error[FAULT_ERROR_CHARS] = "";
    if (fault_to_control(getenv("KL_SIM_CONTROL"), spec, error) != 0)
        fail_msg("%s", error);
}

static inline void rig_open_device(struct rig *rig, uint32_t index, const char *xclbin)
{
    memset(rig, 0, sizeof *rig);
    rig->device = xrtDeviceOpen(index);
    assert_non_null(rig->device);
    assert_int_equal(xrtDeviceLoadXclbinFile(rig->device, rig_xclbin(xclbin)), 0);
    assert_int_equal(xrtDeviceGetXclbinUUID(rig->device, rig->uuid), 0);
}

/* XRT asks aligned_alloc for the host's copy of a device buffer: C11 wants whole pages then. */
static inline xrtBufferHandle rig_buffer(const struct rig *rig, int argument, size_t size, int in_host,
                                         uint8_t **at)
{
    size = in_host ? size : (size + 4095) & ~(size_t)4095;
    xrtBufferHandle buffer =
        xrtBOAlloc(rig->device, size, in_host ? XRT_BO_FLAGS_HOST_ONLY : XRT_BO_FLAGS_NONE,
                   (xrtMemoryGroup)xrtKernelArgGroupId(rig->kernel, argument));
    assert_non_null(buffer);
    *at = (uint8_t *)xrtBOMap(buffer);
    assert_non_null(*at);
    memset(*at, 0, size);
    return buffer;
}

static inline const char *rig_unit_name(uint32_t unit)
{
    static char name[64];
    snprintf(name, sizeof name, "kl_kernel:{kl_kernel_%u}", unit + 1);
    return name;
}

enum { RIG_IMAGE_BYTES = 1 << 20, RIG_REQUESTS = 16 };

/* The kernel open and its buffers. */
static inline void rig_open_unit(struct rig *rig, uint32_t unit, int is_exclusive)
{
    rig->kernel = is_exclusive ? xrtPLKernelOpenExclusive(rig->device, rig->uuid, rig_unit_name(unit))
                               : xrtPLKernelOpen(rig->device, rig->uuid, rig_unit_name(unit));
    assert_non_null(rig->kernel);
    rig->has_host_memory = xrtKernelArgGroupId(rig->kernel, KL_ARG_REQUEST) == 1; /* XCLBIN_MAKE_HOST */
    rig->image = rig_buffer(rig, KL_ARG_IMAGE, RIG_IMAGE_BYTES, 0, &rig->image_at);
    rig->request = rig_buffer(rig, KL_ARG_REQUEST, RIG_REQUESTS * sizeof(struct kl_request),
                              rig->has_host_memory, &rig->request_at);
    rig->result = rig_buffer(rig, KL_ARG_RESULT, RIG_REQUESTS * sizeof(struct kl_result),
                             rig->has_host_memory, &rig->result_at);
    rig->state = rig_buffer(rig, KL_ARG_STATE, sizeof(struct kl_state), rig->has_host_memory, &rig->state_at);
    rig->reference = (struct kl_unit *)aligned_alloc(64, kl_build_small.unit_size_bytes());
    assert_non_null(rig->reference);
    kl_build_small.init(rig->reference, 0, 1);
}

static inline void rig_open(struct rig *rig, int is_exclusive)
{
    rig_open_device(rig, 0, "kl_small");
    rig_open_unit(rig, 0, is_exclusive);
}

static inline void rig_close(struct rig *rig)
{
    if (rig->kernel) {
        xrtBOFree(rig->image);
        xrtBOFree(rig->request);
        xrtBOFree(rig->result);
        xrtBOFree(rig->state);
        xrtKernelClose(rig->kernel);
    }
    xrtDeviceClose(rig->device);
    free(rig->reference);
}

/* ---- inputs ---- */

static inline void rig_request(struct kl_request *request, enum kl_op op, uint32_t stream, uint32_t seq_no)
{
    static const uint16_t values[] = {0x0000, 0x3c00, 0xbc00, 0x3800,
                                      0x4000, 0xb800, 0x3400, 0xc200}; /* on 2^-11 */
    memset(request, 0, sizeof *request);
    request->abi_version = KL_ABI_VERSION;
    request->op = (uint16_t)op;
    request->stream = stream;
    request->seq_no = seq_no;
    for (uint32_t i = 0; i < KL_N_IN_MAX; i++)
        request->x[i] = values[(seq_no * 7 + i * 5 + (seq_no * i) % 11) % 8];
}

/* Loads the reference. */
static inline void rig_load_reference(struct rig *rig, uint32_t slot, const struct kl_image_header *image)
{
    uint32_t status = kl_build_small.load_begin(rig->reference, slot, image, image->size_bytes);
    assert_int_equal(status, KL_OK);
    while ((status = kl_build_small.load_advance(rig->reference)) == KL_E_BUSY)
        ;
    assert_int_equal(status, KL_OK);
    rig->loaded = image;
}

/* The same answer, but for the waits, which are the card's own. */
static inline void rig_same(const struct kl_result *is, const struct kl_result *expected)
{
    struct kl_result a = *is, b = *expected;
    assert_int_equal(a.check, kl_result_check(&a));
    a.wait_cycles = b.wait_cycles = 0;
    a.check = b.check = 0;
    assert_memory_equal(&a, &b, sizeof a);
}

static inline struct kl_image_header *rig_image(uint32_t seed)
{
    static const struct model_image_shape shape = {
        .n_in = 20, .n_layer = 2, .n_class = 3, .n_hidden = {40, 24}};
    struct kl_image_header *image = model_image_new(&shape, seed);
    assert_non_null(image);
    return image;
}

/* ---- run mode ---- */

static inline void rig_sync_in(const struct rig *rig)
{
    assert_int_equal(xrtBOSync(rig->image, XCL_BO_SYNC_BO_TO_DEVICE, RIG_IMAGE_BYTES, 0), 0);
    assert_int_equal(
        xrtBOSync(rig->request, XCL_BO_SYNC_BO_TO_DEVICE, RIG_REQUESTS * sizeof(struct kl_request), 0), 0);
    assert_int_equal(xrtBOSync(rig->state, XCL_BO_SYNC_BO_TO_DEVICE, sizeof(struct kl_state), 0), 0);
}

static inline void rig_sync_out(const struct rig *rig)
{
    assert_int_equal(
        xrtBOSync(rig->result, XCL_BO_SYNC_BO_FROM_DEVICE, RIG_REQUESTS * sizeof(struct kl_result), 0), 0);
    assert_int_equal(xrtBOSync(rig->state, XCL_BO_SYNC_BO_FROM_DEVICE, sizeof(struct kl_state), 0), 0);
}

static inline xrtRunHandle rig_run_open(const struct rig *rig, uint32_t command, uint32_t slot,
                                        uint32_t image_bytes, uint32_t n_request)
{
    xrtRunHandle run = xrtRunOpen(rig->kernel);
    assert_non_null(run);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_COMMAND, command), 0);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_SLOT, slot), 0);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_IMAGE_SIZE_BYTES, image_bytes), 0);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_N_REQUEST, n_request), 0);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_IMAGE, rig->image), 0);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_REQUEST, rig->request), 0);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_RESULT, rig->result), 0);
    assert_int_equal(xrtRunSetArg(run, KL_ARG_STATE, rig->state), 0);
    return run;
}

/* The state that the run ends in, or the one it has after timeout_ms. */
static inline enum ert_cmd_state rig_run_poll(xrtRunHandle run, uint64_t timeout_ms)
{
    const uint64_t until = rig_now_ms() + timeout_ms;
    enum ert_cmd_state state;
    while ((state = xrtRunState(run)) < ERT_CMD_STATE_COMPLETED && rig_now_ms() < until)
        usleep(50);
    return state;
}

static inline enum ert_cmd_state rig_run(const struct rig *rig, uint32_t command, uint32_t slot,
                                         uint32_t image_bytes, uint32_t n_request)
{
    rig_sync_in(rig);
    xrtRunHandle run = rig_run_open(rig, command, slot, image_bytes, n_request);
    enum ert_cmd_state state = ERT_CMD_STATE_MAX;
    if (xrtRunStart(run) == 0)
        state = rig_run_poll(run, RIG_DEADLINE_MS);
    xrtRunClose(run);
    if (state == ERT_CMD_STATE_COMPLETED)
        rig_sync_out(rig);
    return state;
}

static inline const struct kl_result *rig_result(const struct rig *rig, uint32_t entry)
{
    return (const struct kl_result *)(const void *)rig->result_at + entry;
}

static inline struct kl_request *rig_request_at(const struct rig *rig, uint32_t entry)
{
    return (struct kl_request *)(void *)rig->request_at + entry;
}

static inline void rig_load_by_run(struct rig *rig, uint32_t slot, const struct kl_image_header *image)
{
    memcpy(rig->image_at, image, image->size_bytes);
    assert_int_equal(rig_run(rig, KL_COMMAND_LOAD, slot, image->size_bytes, 0), ERT_CMD_STATE_COMPLETED);
    assert_int_equal(rig_result(rig, 0)->status, KL_OK);
    rig_load_reference(rig, slot, image);
}

/* ---- doorbell mode ---- */

static inline void rig_write(const struct rig *rig, uint32_t offset, uint32_t value)
{
    assert_int_equal(xrtKernelWriteRegister(rig->kernel, offset, value), 0);
}

static inline uint32_t rig_read(const struct rig *rig, uint32_t offset)
{
    uint32_t value = 0;
    assert_int_equal(xrtKernelReadRegister(rig->kernel, offset, &value), 0);
    return value;
}

static inline void rig_write_address(const struct rig *rig, uint32_t offset, uint64_t address)
{
    rig_write(rig, offset, (uint32_t)address);
    rig_write(rig, offset + 4, (uint32_t)(address >> 32));
}

/* Auto-restart; rings in host memory if config says so. */
static inline void rig_serve(struct rig *rig, uint32_t config)
{
    rig_write(rig, KL_MAP_COMMAND, KL_COMMAND_SERVICE);
    rig_write_address(rig, KL_MAP_IMAGE, xrtBOAddress(rig->image));
    rig_write_address(rig, KL_MAP_REQUEST, xrtBOAddress(rig->request));
    rig_write_address(rig, KL_MAP_RESULT, xrtBOAddress(rig->result));
    rig_write(rig, RIG_REG(KL_REG_CONFIG), config);
    rig_write(rig, KL_MAP_CONTROL, KL_CONTROL_START | KL_CONTROL_AUTO_RESTART);
    rig->tail = 0;
}

/* A register until it has the value. 1, or 0: the deadline came first. */
static inline int rig_await(const struct rig *rig, uint32_t word, uint32_t value, uint64_t timeout_ms)
{
    const uint64_t until = rig_now_ms() + timeout_ms;
    do {
        if (rig_read(rig, RIG_REG(word)) == value)
            return 1;
    } while (rig_now_ms() < until);
    return 0;
}

static inline uint32_t rig_load_by_bell(struct rig *rig, uint32_t slot, const struct kl_image_header *image)
{
    memcpy(rig->image_at, image, image->size_bytes);
    assert_int_equal(xrtBOSync(rig->image, XCL_BO_SYNC_BO_TO_DEVICE, RIG_IMAGE_BYTES, 0), 0);
    const uint32_t number = rig_read(rig, RIG_REG(KL_REG_LOAD_DOORBELL)) + 1;
    rig_write(rig, RIG_REG(KL_REG_LOAD_SLOT), slot);
    rig_write(rig, RIG_REG(KL_REG_LOAD_SIZE_BYTES), image->size_bytes);
    rig_write(rig, RIG_REG(KL_REG_LOAD_DOORBELL), number);
    assert_true(rig_await(rig, KL_REG_LOAD_DONE, number, RIG_DEADLINE_MS));
    return rig_read(rig, RIG_REG(KL_REG_LOAD_STATUS));
}

/* Puts a request into the next entry: host memory, word by word as another thread may be reading, or
 * registers. */
static inline void rig_put(struct rig *rig, const struct kl_request *request, int in_host)
{
    uint32_t words[sizeof *request / 4];
    memcpy(words, request, sizeof words);
    const uint32_t entry = rig->tail % KL_QUEUE_DEPTH;
    for (uint32_t i = 0; i < sizeof words / 4; i++) {
        if (in_host)
            __atomic_store_n((uint32_t *)(void *)rig_request_at(rig, entry) + i, words[i], __ATOMIC_RELAXED);
        else
            rig_write(rig, RIG_REG(KL_REG_REQUESTS + entry * (sizeof words / 4) + i), words[i]);
    }
    rig->tail++;
}

/* The answer of entry as it stands in host memory. */
static inline struct kl_result rig_peek(const struct rig *rig, uint32_t entry)
{
    uint64_t words[sizeof(struct kl_result) / 8];
    for (uint32_t i = 0; i < sizeof words / 8; i++)
        words[i] =
            __atomic_load_n((const uint64_t *)(const void *)rig_result(rig, entry) + i, __ATOMIC_ACQUIRE);
    struct kl_result result;
    memcpy(&result, words, sizeof result);
    return result;
}

/* Waits for the answer seq_no in host memory. 1, or 0: the deadline came first. */
static inline int rig_await_answer(const struct rig *rig, uint32_t entry, uint32_t seq_no,
                                   uint64_t timeout_ms, struct kl_result *out)
{
    const uint64_t until = rig_now_ms() + timeout_ms;
    do {
        *out = rig_peek(rig, entry);
        if (out->seq_no == seq_no && out->check == kl_result_check(out))
            return 1;
    } while (rig_now_ms() < until);
    return 0;
}

/* One request through host memory, and its answer. 1, or 0: there was none in time, or an access failed. */
static inline int rig_ask(struct rig *rig, const struct kl_request *request, uint64_t timeout_ms,
                          struct kl_result *out)
{
    const uint32_t entry = rig->tail % KL_QUEUE_DEPTH;
    memset(out, 0, sizeof *out);
    rig_put(rig, request, 1);
    if (xrtKernelWriteRegister(rig->kernel, RIG_REG(KL_REG_REQUEST_TAIL), rig->tail) != 0)
        return 0;
    if (!rig_await_answer(rig, entry, request->seq_no, timeout_ms, out))
        return 0;
    return xrtKernelWriteRegister(rig->kernel, RIG_REG(KL_REG_RESULT_HEAD), rig->tail) == 0;
}

/* A stream of steps, card against reference. */
static inline void rig_steps(struct rig *rig, uint32_t stream, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct kl_request request;
        struct kl_result is, expected;
        rig_request(&request, KL_OP_STEP, stream, first + i);
        assert_true(rig_ask(rig, &request, RIG_DEADLINE_MS, &is));
        kl_build_small.exec(rig->reference, &request, &expected);
        rig_same(&is, &expected);
    }
}

#endif
