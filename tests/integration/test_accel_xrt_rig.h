/* What the tests of the XRT backend share: the software device behind the real XRT library, models, and the
 * native kernel that it is compared with. RIG_EXEC: how the software device executes. */
#ifndef TEST_ACCEL_XRT_RIG_H
#define TEST_ACCEL_XRT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "hls/kl_tb.h"
#include "host/accel_xrt.h"

#ifndef RIG_EXEC
#define RIG_EXEC "inline"
#endif

/* The kernel is there twice: native, and as the software device has loaded it out of the xclbin.
 * AddressSanitizer takes the two kl_build_small for one symbol defined twice. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_odr_violation=0";
}

/* Run mode: the end of a run is announced in its packet, which XRT's library reads. ThreadSanitizer does not
 * see into that, so not that the kernel's accesses for a queued run are over before the host's. run_submit:
 * for when it no longer remembers where the kernel's was. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:queued_run\nrace:run_submit\n";
}

enum { RIG_LIMIT_S = 20 };

#define RIG_SMALL   KL_XRT_DIR "/kl_small.xclbin"
#define RIG_SMALL_2 KL_XRT_DIR "/kl_small_2.xclbin"
#define RIG_NOHOST  KL_XRT_DIR "/kl_small_nohost.xclbin"

static inline int rig_is_inline(void)
{
    return strcmp(RIG_EXEC, "inline") == 0;
}

/* Before the first call of XRT's, which looks once. */
static inline void rig_environment(void)
{
    setenv("XILINX_XRT", KL_XRT_DIR, 1);
    setenv("KL_SIM_EXEC", RIG_EXEC, 1);
    unsetenv("XCL_EMULATION_MODE");
    unsetenv("KL_SIM_LATENCY");
    unsetenv("KL_SIM_FAULT");
    unsetenv("KL_SIM_CONTROL");
}

static inline double rig_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline struct accel_xrt_options rig_options(enum accel_xrt_mode mode, const char *xclbin)
{
    return (struct accel_xrt_options){.device = "0",
                                      .xclbin = xclbin,
                                      .mode = mode,
                                      .build = accel_build_named("small"),
                                      .torn_cycles = 500000000 /* a machine that is busy with other tests */};
}

static inline struct accel *rig_open(enum accel_xrt_mode mode, const char *xclbin)
{
    const struct accel_xrt_options options = rig_options(mode, xclbin);
    char error[ACCEL_ERROR_CHARS] = "";
    struct accel *accel = accel_xrt_open(&options, error);
    if (!accel)
        fail_msg("%s", error);
    return accel;
}

static inline void rig_close(struct accel *accel)
{
    accel->ops->close(accel);
}

/* Until it is something else than "not yet". */
static inline int rig_poll(struct accel *accel, struct kl_result *result)
{
    const double limit_s = rig_now_s() + RIG_LIMIT_S;
    int got;
    while (!(got = accel->ops->poll(accel, result)))
        if (rig_now_s() > limit_s)
            fail_msg("%s: no answer within %d s", accel->ops->name, RIG_LIMIT_S);
    return got;
}

static inline struct kl_result rig_answer(struct accel *accel, const struct kl_request *request)
{
    struct kl_result result;
    assert_int_equal(accel->ops->submit(accel, request), 0);
    assert_int_equal(rig_poll(accel, &result), 1);
    return result;
}

static inline uint32_t rig_load_end(struct accel *accel)
{
    const double limit_s = rig_now_s() + RIG_LIMIT_S;
    uint32_t status;
    while ((status = accel->ops->load_advance(accel)) == KL_E_BUSY)
        if (rig_now_s() > limit_s)
            fail_msg("%s: the load does not end within %d s", accel->ops->name, RIG_LIMIT_S);
    return status;
}

static inline uint32_t rig_load(struct accel *accel, uint32_t slot, const struct kl_image_header *image)
{
    const uint32_t status = accel->ops->load_begin(accel, slot, image, image->size_bytes);
    return status == KL_OK ? rig_load_end(accel) : status;
}

static inline void rig_model(struct tb_model *model, uint32_t n_in, uint32_t n_hidden, uint32_t n_layer,
                             uint64_t *seed)
{
    model->kind = tb_random_below(seed, TB_N_KIND);
    model->n_in = n_in;
    model->n_layer = n_layer;
    model->n_class = 1 + tb_random_below(seed, KL_N_CLASS_MAX);
    for (uint32_t l = 0; l < n_layer; l++)
        model->layer[l].n_hidden = n_hidden;
    tb_model_fill(model, seed);
}

/* What lies behind a model's inputs is garbage, as a caller may leave it. */
static inline struct kl_request rig_request(uint32_t op, uint32_t slot, uint32_t stream, uint32_t seq_no,
                                            const struct tb_model *model, uint64_t *seed)
{
    struct kl_request request = {.abi_version = KL_ABI_VERSION,
                                 .op = (uint16_t)op,
                                 .slot = (uint16_t)slot,
                                 .stream = stream,
                                 .seq_no = seq_no};
    double x[KL_N_IN_MAX];
    memset(request.x, 0x7f, sizeof request.x);
    tb_random_x(model, x, seed);
    for (uint32_t k = 0; k < model->n_in; k++)
        request.x[k] = tb_half(x[k]);
    return request;
}

/* Every byte, and whole by their check. */
static inline void rig_assert_same(const struct kl_result *got, const struct kl_result *expected)
{
    assert_int_equal(expected->check, kl_result_check(expected));
    if (memcmp(got, expected, sizeof *got) == 0)
        return;
    print_error(
        "seq_no %u/%u slot %u/%u stream %u/%u status %u/%u flags %u/%u cls %u/%u cycles %u/%u prepare %u/%u "
        "wait %u/%u logit[0] %lld/%lld\n",
        got->seq_no, expected->seq_no, got->slot, expected->slot, got->stream, expected->stream, got->status,
        expected->status, got->flags, expected->flags, got->cls, expected->cls, got->kernel_cycles,
        expected->kernel_cycles, got->prepare_cycles, expected->prepare_cycles, got->wait_cycles,
        expected->wait_cycles, (long long)got->logits[0], (long long)expected->logits[0]);
    assert_memory_equal(got, expected, sizeof *got);
}

#endif
