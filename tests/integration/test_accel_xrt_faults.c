/* The XRT backend against devices that fail and things that are not what they should be: every refusal has
 * its message, a failure is said once and for all until a reset, and nothing waits without end. */
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include "host/xclbin.h"
#include "sim/xrt/fault.h"
#include "test_accel_xrt_rig.h"

static struct tb_model model;
static struct kl_image_header *image;
static char folder[] = "/tmp/kl_accel_xrt_XXXXXX", control[64];
static uint64_t seed;

static int set_up(void **state)
{
    (void)state;
    uint64_t random = 17;
    rig_model(&model, 40, 33, 2, &random);
    image = tb_model_image(&model);
    return image ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(image);
    unlink(control);
    rmdir(folder);
    return 0;
}

static void faults(const char *spec)
{
    char error[FAULT_ERROR_CHARS], whole[FAULT_SPEC_CHARS];
    snprintf(whole, sizeof whole, "clear;%s", spec);
    if (fault_to_control(control, whole, error))
        fail_msg("%s", error);
}

static struct kl_request step(uint32_t seq_no)
{
    return rig_request(KL_OP_STEP, 0, 0, seq_no, &model, &seed);
}

/* A loaded device that has answered n steps, numbered from 0. */
static struct accel *open_loaded(enum accel_xrt_mode mode, const char *xclbin, uint32_t n)
{
    struct accel *accel = rig_open(mode, xclbin);
    assert_int_equal(rig_load(accel, 0, image), KL_OK);
    for (uint32_t i = 0; i < n; i++) {
        const struct kl_request request = step(i);
        assert_int_equal(rig_answer(accel, &request).status, KL_OK);
    }
    return accel;
}

/* For a while. */
static int poll_for_ms(struct accel *accel, struct kl_result *result, double ms)
{
    const double limit_s = rig_now_s() + 1e-3 * ms;
    int got;
    while (!(got = accel->ops->poll(accel, result)) && rig_now_s() < limit_s)
        ;
    return got;
}

/* ---- refused opens ---- */

static void assert_refused(const struct accel_xrt_options *options, const char *because)
{
    char error[ACCEL_ERROR_CHARS] = "";
    struct accel *accel = accel_xrt_open(options, error);
    assert_null(accel);
    if (!strstr(error, because))
        fail_msg("\"%s\" says nothing of \"%s\"", error, because);
}

static void refused_by_the_environment(void **state)
{
    (void)state;
    const struct accel_xrt_options options = rig_options(ACCEL_XRT_DOORBELL, RIG_SMALL);
    char error[ACCEL_ERROR_CHARS], path[256];
    unsetenv("XILINX_XRT");
    assert_refused(&options, "XILINX_XRT is not set");
    assert_refused(&options, "source /opt/xilinx/xrt/setup.sh");
    assert_refused(&options, "killline sim-device env");
    setenv("XILINX_XRT", "", 1);
    assert_refused(&options, "XILINX_XRT is not set");
    setenv("XILINX_XRT", folder, 1);
    assert_refused(&options, "/lib/libxrt_core.so.2: XRT's driver library is not there");
    setenv("XCL_EMULATION_MODE", "hw_emu", 1);
    assert_refused(&options, "/lib/libxrt_hwemu.so.2");
    setenv("XCL_EMULATION_MODE", "foo", 1);
    assert_refused(&options, "XCL_EMULATION_MODE=foo");
    unsetenv("XCL_EMULATION_MODE");
    snprintf(path, sizeof path, "%s/lib", folder); /* a folder of the library's name is no library */
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/lib/libxrt_core.so.2", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(accel_xrt_available(error), -1);
    assert_int_equal(rmdir(path), 0);

    /* A library that is none passes every check before XRT's first call, out of which then an exception
     * comes. In a process of its own: XRT remembers where it looked. */
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("no library", file);
    fclose(file);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct accel *accel = accel_xrt_open(&options, error);
        _exit(accel || !strstr(error, "XRT: Failed to open library"));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    unlink(path);
    snprintf(path, sizeof path, "%s/lib", folder);
    rmdir(path);
    setenv("XILINX_XRT", KL_XRT_DIR, 1);
    assert_int_equal(accel_xrt_available(error), 0);
}

static void refused_by_the_options(void **state)
{
    (void)state;
    struct accel_xrt_options options = rig_options(ACCEL_XRT_DOORBELL, RIG_SMALL);
    options.device = "7";
    assert_refused(&options, "device 7: XRT opens no such device");
    options.device = "0000:3b:00.1";
    assert_refused(&options, "device 0000:3b:00.1: XRT opens no such device");
    options.device = "";
    assert_refused(&options, "device : XRT opens no such device");
    options.device = "first";
    assert_refused(&options, "device first: XRT opens no such device");
    options = rig_options(ACCEL_XRT_RUN, RIG_SMALL_2);
    options.unit = 2;
    assert_refused(&options, "has 2 compute units of kl_kernel, and number 2 (from 0) is asked for");
    options = rig_options(ACCEL_XRT_RUN, KL_XRT_DIR "/kl_fast.xclbin");
    assert_refused(&options, "holds the build fast, and small is asked for");
    options.xclbin = KL_XRT_DIR "/nowhere.xclbin";
    assert_refused(&options, "nowhere.xclbin");
}

/* Written anew with one thing changed. */
static void assert_file_refused(const uint8_t *bytes, size_t size_bytes, const char *because)
{
    char path[128];
    snprintf(path, sizeof path, "%s/changed.xclbin", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    fclose(file);
    const struct accel_xrt_options options = rig_options(ACCEL_XRT_DOORBELL, path);
    assert_refused(&options, because);
    unlink(path);
}

static void refused_by_the_file(void **state)
{
    (void)state;
    struct stat found;
    assert_int_equal(stat(RIG_SMALL, &found), 0);
    const size_t size_bytes = (size_t)found.st_size;
    uint8_t *bytes = malloc(size_bytes);
    FILE *file = fopen(RIG_SMALL, "rb");
    assert_true(bytes && file);
    assert_int_equal(fread(bytes, 1, size_bytes, file), size_bytes);
    fclose(file);
    struct xclbin_library library = {.build = "small", .symbol = "kl_build_small"};
    size_t at = 0;
    while (at + sizeof library <= size_bytes &&
           memcmp(bytes + at + offsetof(struct xclbin_library, build), library.build,
                  sizeof library.build + sizeof library.symbol))
        at += 8;
    assert_true(at + sizeof library <= size_bytes);
    memcpy(&library, bytes + at, sizeof library);
    assert_int_equal(library.abi_version, KL_ABI_VERSION);
    library.abi_version = KL_ABI_VERSION - 1;
    memcpy(bytes + at, &library, sizeof library);
    assert_file_refused(bytes, size_bytes, "a kernel of ABI version 2, this program's is 3");
    bytes[0] ^= 1;
    assert_file_refused(bytes, size_bytes, "changed.xclbin");
    bytes[0] ^= 1;
    assert_file_refused(bytes, size_bytes / 2, "changed.xclbin");
    assert_file_refused(bytes, 0, "changed.xclbin");
    free(bytes);
}

static void small_with_fewer_streams(const struct kl_unit *unit, struct kl_info *info)
{
    accel_build_named("small")->info(unit, info);
    info->n_stream--;
}

static void small_by_another_name(const struct kl_unit *unit, struct kl_info *info)
{
    accel_build_named("small")->info(unit, info);
    memcpy(info->build, "tiny", 5);
}

/* A unit that is not what the build says, behind a container that says nothing of it. */
static void refused_by_the_unit(void **state)
{
    (void)state;
    for (enum accel_xrt_mode mode = ACCEL_XRT_DOORBELL; mode <= ACCEL_XRT_RUN; mode++) {
        struct accel_xrt_options options = rig_options(mode, RIG_SMALL);
        struct kl_build build = *options.build;
        options.build = &build;
        build.info = small_with_fewer_streams;
        assert_refused(&options, "the unit has n_stream 256, the build small has 255");
        build.info = small_by_another_name;
        assert_refused(&options, "the unit is of the build small, and tiny is asked for");
    }
}

static void refused_by_the_device(void **state)
{
    (void)state;
    struct accel_xrt_options options = rig_options(ACCEL_XRT_DOORBELL, RIG_SMALL);
    faults("refuse-load:what=xclbin");
    assert_refused(&options, "XRT does not load");
    faults("memory-full");
    assert_refused(&options, "XRT gives no buffer");
    options.mode = ACCEL_XRT_RUN;
    faults("memory-full:after=9");
    assert_refused(&options, "XRT gives no buffer");
    faults("hang:after=0");
    assert_refused(&options, "does not carry out a run within");
    options.mode = ACCEL_XRT_DOORBELL;
    faults("hang:after=0");
    assert_refused(&options, "the unit does not answer within");
    struct accel *accel = rig_open(ACCEL_XRT_DOORBELL, RIG_SMALL);
    assert_refused(&options, "it is in use");
    rig_close(accel);
}

/* ---- failures ---- */

/* Nothing but reset helps, whatever is tried. */
static void assert_failed_for_good(struct accel *accel)
{
    const struct kl_request request = step(99);
    struct kl_result result;
    struct kl_state saved = {0};
    struct kl_info info;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(accel->ops->submit(accel, &request), ACCEL_FAILED);
        assert_int_equal(accel->ops->poll(accel, &result), ACCEL_FAILED);
    }
    assert_int_equal(accel->ops->save(accel, 0, 0, &saved), KL_E_EMPTY);
    assert_int_equal(accel->ops->restore(accel, 0, 0, &saved), KL_E_EMPTY);
    accel->ops->info(accel, &info);
    assert_int_equal(accel->ops->load_begin(accel, 1, image, image->size_bytes), KL_OK);
    assert_int_equal(rig_load_end(accel), KL_E_EMPTY);
}

/* After a reset: slots empty, and then the answers of a fresh kernel. */
static void assert_as_new(struct accel *accel)
{
    char error[ACCEL_ERROR_CHARS] = "";
    const double start_s = rig_now_s();
    if (accel->ops->reset(accel, error))
        fail_msg("%s", error);
    assert_true(rig_now_s() - start_s < 5);
    struct kl_result unheard;
    assert_int_equal(accel->ops->poll(accel, &unheard), -1);
    struct kl_request request = step(0);
    assert_int_equal(rig_answer(accel, &request).status, KL_E_EMPTY);
    struct accel *csim = accel_csim_open(accel_build_named("small"), 1);
    assert_int_equal(rig_load(csim, 0, image), KL_OK);
    assert_int_equal(rig_load(accel, 0, image), KL_OK);
    for (uint32_t i = 0; i < 10; i++) {
        request = step(i);
        const struct kl_result expected = rig_answer(csim, &request);
        struct kl_result got = rig_answer(accel, &request);
        got.wait_cycles = expected.wait_cycles;
        got.check = kl_result_check(&got);
        rig_assert_same(&got, &expected);
    }
    rig_close(csim);
}

static const struct {
    enum accel_xrt_mode mode;
    const char *xclbin;
} ways[] = {{ACCEL_XRT_DOORBELL, RIG_SMALL},
            {ACCEL_XRT_DOORBELL, RIG_NOHOST},
            {ACCEL_XRT_RUN, RIG_SMALL},
            {ACCEL_XRT_RUN, RIG_NOHOST}};
enum { N_WAY = sizeof ways / sizeof *ways };

/* A device that is lost with an answer outstanding is silent, or says so; at the next access it does. */
static void lost(const char *spec)
{
    for (uint32_t w = 0; w < N_WAY; w++) {
        struct accel *accel = open_loaded(ways[w].mode, ways[w].xclbin, 3);
        struct kl_result result;
        faults(spec);
        const struct kl_request request = step(3);
        int got = accel->ops->submit(accel, &request);
        if (got == 0)
            got = poll_for_ms(accel, &result, 30);
        assert_true(got == 0 || got == ACCEL_FAILED);
        /* On a busy machine a child takes its time to die. */
        for (uint32_t i = 2; i < KL_QUEUE_DEPTH && got == 0; i++) {
            got = accel->ops->submit(accel, &request);
            if (got == 0)
                got = poll_for_ms(accel, &result, i < 4 ? 1 : 400);
        }
        assert_int_equal(got, ACCEL_FAILED);
        assert_failed_for_good(accel);
        assert_as_new(accel);
        rig_close(accel);
    }
}

static void the_device_vanishes(void **state)
{
    (void)state;
    lost("vanish");
}

static void the_child_crashes(void **state)
{
    (void)state;
    lost("crash");
}

/* Nothing tells a hung unit from a slow one: it is silent until the caller gives up. */
static void the_unit_hangs(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < N_WAY; w++) {
        struct accel *accel = open_loaded(ways[w].mode, ways[w].xclbin, 3);
        struct kl_result result;
        faults("hang");
        for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++) {
            const struct kl_request request = step(3 + i);
            assert_int_equal(accel->ops->submit(accel, &request), 0);
            assert_int_equal(poll_for_ms(accel, &result, 5), 0);
        }
        const struct kl_request request = step(77);
        assert_int_equal(accel->ops->submit(accel, &request), -1);
        assert_as_new(accel);

        if (w != 0 && (w != 2 || !rig_is_inline())) { /* it takes its 5 s */
            rig_close(accel);
            continue;
        }
        /* Under a load: it ends, in our time. */
        faults("hang:after=0");
        const double start_s = rig_now_s();
        assert_int_equal(rig_load(accel, 1, image), KL_E_EMPTY);
        assert_true(rig_now_s() - start_s < 9);
        assert_failed_for_good(accel);
        rig_close(accel); /* as it is */
    }
}

static void a_reset_that_fails(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < N_WAY; w++) {
        char error[ACCEL_ERROR_CHARS];
        struct accel *accel = open_loaded(ways[w].mode, ways[w].xclbin, 1);
        faults("refuse-load:what=xclbin,count=2");
        for (uint32_t i = 0; i < 2; i++) {
            error[0] = 0;
            assert_int_equal(accel->ops->reset(accel, error), -1);
            assert_non_null(strstr(error, "XRT does not load"));
            assert_failed_for_good(accel);
        }
        assert_as_new(accel);
        assert_as_new(accel); /* a sound one as well, with a state and a model */
        rig_close(accel);
    }
}

/* A hung unit comes back with its device, which is new when nobody has it open any more. */
static void all_units_of_a_device_hang(void **state)
{
    (void)state;
    for (enum accel_xrt_mode mode = ACCEL_XRT_DOORBELL; mode <= ACCEL_XRT_RUN; mode++) {
        struct accel *unit[2];
        char error[ACCEL_ERROR_CHARS];
        for (uint32_t u = 0; u < 2; u++) {
            struct accel_xrt_options options = rig_options(mode, RIG_SMALL_2);
            options.unit = u;
            unit[u] = accel_xrt_open(&options, error);
            assert_non_null(unit[u]);
            assert_int_equal(rig_load(unit[u], 0, image), KL_OK);
        }
        faults("hang:unit=0;hang:unit=1");
        for (uint32_t u = 0; u < 2; u++) {
            struct kl_result result;
            const struct kl_request request = step(0);
            assert_int_equal(unit[u]->ops->submit(unit[u], &request), 0);
            assert_int_equal(poll_for_ms(unit[u], &result, 5), 0);
        }
        assert_int_equal(unit[0]->ops->reset(unit[0], error), -1); /* the other one has the device open */
        assert_failed_for_good(unit[0]);
        assert_as_new(unit[1]);
        assert_as_new(unit[0]);
        rig_close(unit[0]);
        rig_close(unit[1]);
    }
}

static void a_run_ends_in_an_error(void **state)
{
    (void)state;
    struct kl_result result;
    for (uint32_t w = 0; w < N_WAY; w++) {
        struct accel *accel = open_loaded(ways[w].mode, ways[w].xclbin, 3);
        faults("error:status=10");
        const struct kl_request request = step(3);
        if (ways[w].mode == ACCEL_XRT_DOORBELL) { /* an answer, for the caller to judge */
            result = rig_answer(accel, &request);
            assert_true(result.status == KL_E_STATE && result.seq_no == 3);
            rig_close(accel);
            continue;
        }
        assert_int_equal(accel->ops->submit(accel, &request), 0);
        assert_int_equal(rig_poll(accel, &result), ACCEL_FAILED);
        assert_failed_for_good(accel);
        assert_as_new(accel);
        rig_close(accel);
    }
}

/* What comes is passed on as it is: damaged, twice, late, after a lost ring. And nothing else is made of it.
 */
static void answers_are_not_judged(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        int check_is_right, is_last;
    } cases[] = {{"flip-answer:bit=512", 0, 0}, {"flip-answer:bit=40", 0, 0},
                 {"flip-answer:bit=450", 0, 0}, {"flip-answer:bit=512,sealed=1", 1, 0},
                 {"duplicate", 1, 1},           {"late:us=3000", 1, 0}};
    for (uint32_t w = 0; w < N_WAY; w++)
        for (uint32_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            struct accel *accel = open_loaded(ways[w].mode, ways[w].xclbin, 3);
            faults(cases[c].spec);
            struct kl_request request = step(3);
            struct kl_result result = rig_answer(accel, &request);
            assert_int_equal(result.check == kl_result_check(&result), cases[c].check_is_right);
            assert_int_equal(result.seq_no == 2, cases[c].is_last);
            request = step(4);
            result = rig_answer(accel, &request);
            assert_int_equal(result.check, kl_result_check(&result));
            assert_int_equal(result.seq_no, 4);
            rig_close(accel);
        }
}

static void a_lost_ring(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < 2; w++) { /* doorbell */
        struct accel *accel = open_loaded(ways[w].mode, ways[w].xclbin, 3);
        struct kl_result result;
        faults("lose-doorbell");
        struct kl_request request = step(3);
        assert_int_equal(accel->ops->submit(accel, &request), 0);
        assert_int_equal(poll_for_ms(accel, &result, 10), 0);
        request = step(4);
        assert_int_equal(accel->ops->submit(accel, &request), 0);
        for (uint32_t i = 3; i < 5; i++) {
            assert_int_equal(rig_poll(accel, &result), 1);
            assert_int_equal(result.seq_no, i);
        }
        rig_close(accel);
    }
}

/* The verdict is checked against what was to be loaded, not only the device's word. */
static void a_model_is_the_one_that_was_sent(void **state)
{
    (void)state;
    struct kl_image_header *mine = malloc(image->size_bytes);
    for (uint32_t w = 0; w < N_WAY; w++) {
        struct accel *accel = open_loaded(ways[w].mode, ways[w].xclbin, 1);
        const struct kl_request request = step(1);
        struct kl_state saved;
        faults("refuse-load:what=model");
        assert_int_equal(rig_load(accel, 0, image), KL_E_IMAGE);
        assert_int_equal(rig_answer(accel, &request).status, KL_E_EMPTY);
        memcpy(mine, image, image->size_bytes);
        assert_int_equal(accel->ops->load_begin(accel, 0, mine, mine->size_bytes), KL_OK);
        usleep(50000); /* it has left, */
        assert_int_equal(accel->ops->load_advance(accel), KL_E_BUSY);
        mine->image_hash ^= 1; /* as if another had arrived */
        assert_int_equal(rig_load_end(accel), KL_E_IMAGE_HASH);
        assert_int_equal(rig_answer(accel, &request).status, KL_E_EMPTY);
        assert_int_equal(accel->ops->save(accel, 0, 0, &saved), KL_E_EMPTY);
        assert_int_equal(rig_load(accel, 0, image), KL_OK);
        assert_int_equal(rig_answer(accel, &request).status, KL_OK);
        rig_close(accel);
    }
    free(mine);
}

/* XRT does not configure a card again for an xclbin that it holds: whoever opens a unit finds it as the one
 * before left it, models, counters and requests that nobody takes. */
static void a_unit_that_was_used_before(void **state)
{
    (void)state;
    for (enum accel_xrt_mode mode = ACCEL_XRT_DOORBELL; mode <= ACCEL_XRT_RUN; mode++) {
        struct accel_xrt_options options = rig_options(mode, RIG_SMALL_2);
        char error[ACCEL_ERROR_CHARS];
        options.unit = 1;
        struct accel *other = accel_xrt_open(&options, error);
        assert_non_null(other); /* as long as this is open the card is not reset */
        for (uint32_t round = 0; round < 5; round++) {
            struct accel *accel = open_loaded(mode, RIG_SMALL_2, round);
            for (uint32_t i = 0; i < 2 * round && i < KL_QUEUE_DEPTH; i++) {
                const struct kl_request request = step(i);
                assert_int_equal(accel->ops->submit(accel, &request), 0);
            }
            if (round % 2)
                assert_as_new(accel);
            /* And a load that is under way, in this process or in the unit. */
            assert_int_equal(accel->ops->load_begin(accel, 0, image, image->size_bytes), KL_OK);
            uint32_t status = KL_E_BUSY;
            for (uint32_t i = 0; i < round && status == KL_E_BUSY; i++) {
                usleep(2000);
                status = accel->ops->load_advance(accel);
            }
            assert_true(status == KL_E_BUSY || status == KL_OK);
            rig_close(accel);
        }
        rig_close(other);
    }
}

/* As a host leaves unit 0 that was killed in doorbell mode: restarting by itself. */
static void leave_running(void)
{
    xuid_t uuid;
    const xrtDeviceHandle device = xrtDeviceOpen(0);
    assert_non_null(device);
    assert_int_equal(xrtDeviceLoadXclbinFile(device, RIG_SMALL_2), 0);
    assert_int_equal(xrtDeviceGetXclbinUUID(device, uuid), 0);
    const xrtKernelHandle kernel = xrtPLKernelOpenExclusive(device, uuid, "kl_kernel:{kl_kernel_1}");
    assert_non_null(kernel);
    assert_int_equal(
        xrtKernelWriteRegister(kernel, KL_MAP_CONTROL, KL_CONTROL_START | KL_CONTROL_AUTO_RESTART), 0);
    xrtKernelClose(kernel);
    xrtDeviceClose(device);
}

/* Whoever comes next, in either mode, finds a unit that is running, or that has a model half taken in. */
static void a_unit_that_was_left_running(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const enum accel_xrt_mode mode = i % 2 ? ACCEL_XRT_RUN : ACCEL_XRT_DOORBELL;
        struct accel_xrt_options options = rig_options(mode, RIG_SMALL_2);
        char error[ACCEL_ERROR_CHARS];
        options.unit = 1;
        struct accel *other = accel_xrt_open(&options, error);
        if (!other) /* as long as this is open the card is not reset */
            fail_msg("%s", error);
        struct accel *before = open_loaded(ACCEL_XRT_DOORBELL, RIG_SMALL_2, 3);
        if (i / 2) {
            assert_int_equal(before->ops->load_begin(before, 0, image, image->size_bytes), KL_OK);
            usleep(50000); /* it is on the card, */
            assert_int_equal(before->ops->load_advance(before), KL_E_BUSY);
            /* and now begins to go into the unit */
        }
        rig_close(before);
        if (i / 2 == 0)
            leave_running();
        struct accel *accel = open_loaded(mode, RIG_SMALL_2, 0);
        assert_as_new(accel);
        rig_close(accel);
        rig_close(other);
    }
}

/* argv[1]: a pattern of test names, for the one that is looked at. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    rig_environment();
    tb_oracle_init();
    if (!mkdtemp(folder))
        return 1;
    snprintf(control, sizeof control, "%s/control", folder);
    setenv("KL_SIM_CONTROL", control, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_by_the_environment),
        cmocka_unit_test(refused_by_the_options),
        cmocka_unit_test(refused_by_the_file),
        cmocka_unit_test(refused_by_the_unit),
        cmocka_unit_test(refused_by_the_device),
        cmocka_unit_test(the_device_vanishes),
        cmocka_unit_test(the_child_crashes),
        cmocka_unit_test(the_unit_hangs),
        cmocka_unit_test(a_reset_that_fails),
        cmocka_unit_test(all_units_of_a_device_hang),
        cmocka_unit_test(a_run_ends_in_an_error),
        cmocka_unit_test(answers_are_not_judged),
        cmocka_unit_test(a_lost_ring),
        cmocka_unit_test(a_model_is_the_one_that_was_sent),
        cmocka_unit_test(a_unit_that_was_used_before),
        cmocka_unit_test(a_unit_that_was_left_running),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
