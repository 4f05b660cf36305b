/* killline doctor: the software device is found well; whatever else XILINX_XRT names, it says why not, exits
 * with 1, in time, and never aborts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdint.h>

#include "command.h"
#include "xclbin_file.h"

static char dir[] = "/tmp/test_doctor.XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return !mkdtemp(dir);
}

static int remove_dir(void **state)
{
    (void)state;
    struct command_result r = command_shell("rm -r '%s'", dir);
    const int status = r.status;
    command_free(&r);
    return status;
}

/* With environment before it; 124 when it hangs itself. */
static struct command_result doctor(const char *environment, const char *arguments)
{
    return command_shell("unset XILINX_XRT XCL_EMULATION_MODE KL_SIM_EXEC KL_SIM_FAULT KL_SIM_DEVICES "
                         "KL_SIM_CONTROL KL_SIM_LATENCY; %s timeout 120 '%s' doctor %s",
                         environment, KILLLINE, arguments);
}

static json_t *doctor_json(const char *environment, const char *arguments, int status)
{
    char *with_json;
    assert_true(asprintf(&with_json, "%s --json", arguments) > 0);
    struct command_result r = doctor(environment, with_json);
    json_t *root = json_loads(r.out, 0, NULL);
    if (r.status != status || !root || json_is_true(json_object_get(root, "ok")) != (status == 0))
        fail_msg("%s: status %d, not %d:\n%s%s", environment, r.status, status, r.out, r.err);
    free(with_json);
    command_free(&r);
    return root;
}

/* The i-th line of that check; NULL: there is none. */
static const json_t *line_of(const json_t *root, const char *check, int i)
{
    size_t index;
    const json_t *line;
    json_array_foreach(json_object_get(root, "checks"), index,
                       line) if (!strcmp(json_string_value(json_object_get(line, "check")), check) &&
                                 i-- == 0) return line;
    return NULL;
}

static const json_t *expect_line(const json_t *root, const char *check, const char *level, const char *text)
{
    const json_t *line = line_of(root, check, 0);
    if (!line || strcmp(json_string_value(json_object_get(line, "level")), level) != 0 ||
        !strstr(json_string_value(json_object_get(line, "text")), text)) {
        json_dumpf(root, stderr, JSON_INDENT(1));
        fail_msg("no %s '%s' at %s", level, text, check);
    }
    return json_object_get(line, "data");
}

static const char *text(const json_t *data, const char *key)
{
    const char *value = json_string_value(json_object_get(data, key));
    assert_non_null(value);
    return value;
}

#define SIM "XILINX_XRT='" KL_SIM_XRT_DIR "'"

/* Frees root. */
static void expect_well(json_t *root)
{
    assert_null(json_object_get(root, "reason"));
    assert_true(json_is_true(json_object_get(
        expect_line(root, "device", "ok", "device 0: the software device"), "software_device")));
    const json_t *kernel = expect_line(root, "kernel", "ok", "loads it");
    assert_int_equal(json_integer_value(json_object_get(kernel, "abi")), KL_ABI_VERSION);
    assert_true(json_is_true(json_object_get(kernel, "software_device")));
    json_decref(root);
}

static void the_software_device(void **state)
{
    (void)state;
    static const char *const environment[] = {
        SIM,
        SIM " KL_SIM_EXEC=thread",
        SIM " KL_SIM_EXEC=child",
        SIM " XCL_EMULATION_MODE=hw_emu",
        SIM " XCL_EMULATION_MODE=sw_emu",
    };
    for (size_t i = 0; i < sizeof environment / sizeof environment[0]; i++)
        expect_well(doctor_json(environment[i], "", 0));
}

static void figures(void **state)
{
    (void)state;
    struct xclbin x;
    char error[XCLBIN_ERROR_CHARS];
    const char *path = KL_SIM_XRT_DIR "/kl_fast.xclbin";
    assert_int_equal(xclbin_read(path, &x, NULL, NULL, error), 0);
    json_t *root = doctor_json(SIM, "--xclbin '" KL_SIM_XRT_DIR "/kl_fast.xclbin'", 0);
    const json_t *data = expect_line(root, "xclbin", "ok", path);
    assert_string_equal(text(data, "uuid"), x.uuid);
    assert_string_equal(text(data, "platform"), x.platform);
    assert_string_equal(text(data, "build"), "fast");
    assert_int_equal(json_integer_value(json_object_get(data, "abi")), KL_ABI_VERSION);
    assert_int_equal(json_array_size(json_object_get(data, "units")), 1);
    assert_int_equal(json_array_size(json_object_get(data, "banks")), 2);
    assert_string_equal(text(expect_line(root, "kernel", "ok", "unit 0 is build fast"), "build"), "fast");
    expect_line(root, "build", "note", "the xclbin's build is fast");
    data = expect_line(root, "xrt", "ok", "XRT 2.13");
    assert_string_equal(text(data, "headers"), text(data, "library"));
    expect_line(root, "driver", "ok", KL_SIM_XRT_DIR);
    expect_line(root, "model", "ok", "primary.klm");
    expect_line(root, "dpdk", "ok", "DPDK 2");
    expect_line(root, "openssl", "ok", "OpenSSL 3");
    assert_non_null(line_of(root, "cpu", 0));
    assert_non_null(line_of(root, "tsc", 0));
    assert_non_null(line_of(root, "hugepages", 0));
    assert_non_null(line_of(root, "memlock", 0));
    json_decref(root);
}

static void several_devices(void **state)
{
    (void)state;
    json_t *root = doctor_json(SIM " KL_SIM_DEVICES=3", "", 0);
    assert_non_null(line_of(root, "device", 2));
    assert_null(line_of(root, "device", 3));
    expect_well(root);
}

static void as_text(void **state)
{
    (void)state;
    struct command_result r = doctor(SIM, "");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "\nOK       kernel     device 0: loads it"));
    assert_non_null(strstr(r.out, "\nrun --accel xrt can work\n"));
    assert_string_equal(r.err, "");
    command_free(&r);
    r = doctor("XILINX_XRT=/nowhere", "");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.out, "\nproblem  driver     "));
    assert_non_null(strstr(r.out, "\nrun --accel xrt cannot work: driver: "));
    command_free(&r);
}

/* A replay takes the software device then; the doctor says so. */
static void nothing_set(void **state)
{
    (void)state;
    json_t *root = doctor_json("", "", 0);
    expect_line(root, "driver", "note", "XILINX_XRT is not set: a replay takes the software device");
    expect_well(root);
}

/* ---- what is no XRT, or a bad one ---- */

static void bad_drivers(void **state)
{
    (void)state;
    static const struct {
        const char *make; /* shell, in the test's folder; leaves a folder X */
        const char *mode, *check, *why;
    } bad[] = {
        {"mkdir X", "", "driver", "libxrt_core.so.2"},
        {"mkdir -p X/lib/libxrt_core.so.2", "", "driver", "libxrt_core.so.2"},
        {"touch X", "", "driver", "libxrt_core.so.2"},
        {"mkdir -p X/lib && echo text >X/lib/libxrt_core.so.2", "", "device", "Failed to open library"},
        {"mkdir -p X/lib && cp '" KL_HANGING_DRIVER "' X/lib/libxrt_core.so.2", "", "device",
         "device 0: no answer within 2 s"},
        {"mkdir -p X/lib && cp '" KL_CRASHING_DRIVER "' X/lib/libxrt_core.so.2", "", "device",
         "device 0: XRT ended"},
        {"cp -r '" KL_SIM_XRT_DIR "/.' X", "XCL_EMULATION_MODE=other", "driver", "other"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char environment[256];
        struct command_result r = command_shell("cd '%s' && rm -rf X && %s", dir, bad[i].make);
        assert_int_equal(r.status, 0);
        command_free(&r);
        snprintf(environment, sizeof environment, "XILINX_XRT='%s/X' %s", dir, bad[i].mode);
        json_t *root =
            doctor_json(environment, "--timeout 2 --xclbin '" KL_SIM_XRT_DIR "/kl_small.xclbin'", 1);
        expect_line(root, bad[i].check, "problem", bad[i].why);
        expect_line(root, "xclbin", "ok", "kl_small.xclbin");
        json_decref(root);
    }
}

/* Debian's own: opens, takes any xclbin, runs nothing. */
static void noop_driver(void **state)
{
    (void)state;
    char environment[256];
    struct command_result r =
        command_shell("cd '%s' && rm -rf X && mkdir -p X/lib && "
                      "cp -L \"$(dirname '%s')/libxrt_noop.so.2\" X/lib/libxrt_noop.so.2",
                      dir, KL_XRT_COREUTIL);
    assert_int_equal(r.status, 0);
    command_free(&r);
    snprintf(environment, sizeof environment, "XILINX_XRT='%s/X' XCL_EMULATION_MODE=noop", dir);
    json_t *root = doctor_json(environment, "--xclbin '" KL_SIM_XRT_DIR "/kl_small.xclbin'", 1);
    assert_false(json_is_true(json_object_get(line_of(root, "device", 0), "software_device")));
    expect_line(root, "kernel", "problem", "device 0");
    json_decref(root);
}

static void broken_devices(void **state)
{
    (void)state;
    static const char *const fault[] = {"vanish:after=0,count=0", "hang:after=0,count=0",
                                        "crash:after=0,count=0", "refuse-load:what=xclbin,count=0",
                                        "memory-full:count=0"};
    static const char *const exec[] = {"inline", "thread", "child"};
    for (size_t i = 0; i < sizeof fault / sizeof fault[0]; i++)
        for (size_t k = 0; k < sizeof exec / sizeof exec[0]; k++) {
            char environment[256];
            snprintf(environment, sizeof environment, SIM " KL_SIM_EXEC=%s KL_SIM_FAULT='%s'", exec[k],
                     fault[i]);
            json_t *root = doctor_json(environment, "--timeout 5", 1);
            expect_line(root, "xclbin", "ok", "kl_small.xclbin");
            assert_non_null(json_object_get(root, "reason"));
            json_decref(root);
        }
}

/* The driver refuses what it was told to be. */
static void does_not_open(void **state)
{
    (void)state;
    json_t *root = doctor_json(SIM " KL_SIM_EXEC=elsewhere", "", 1);
    const json_t *device = expect_line(root, "device", "problem", "device 0 does not open: ");
    assert_true(json_is_false(json_object_get(device, "opens")));
    assert_null(line_of(root, "device", 1));
    assert_null(line_of(root, "kernel", 0));
    json_decref(root);
}

/* Through the control file, and its counters afterwards. */
static void fault_by_command(void **state)
{
    (void)state;
    char environment[256];
    struct command_result r =
        command_shell("'%s' sim-device fault --control '%s/c' refuse-load:what=xclbin", KILLLINE, dir);
    assert_int_equal(r.status, 0);
    command_free(&r);
    snprintf(environment, sizeof environment, SIM " KL_SIM_CONTROL='%s/c'", dir);
    json_decref(doctor_json(environment, "", 1));
    r = command_shell("'%s' sim-device status --control '%s/c'", KILLLINE, dir);
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.out, "device 0\n"));
    assert_non_null(strstr(r.out, "1  injected: refuse-load\n"));
    command_free(&r);
}

/* ---- xclbin ---- */

static void bad_xclbins(void **state)
{
    (void)state;
    char path[64], arguments[128];
    struct xclbin_file file = xclbin_file_make(1, 0);
    struct xclbin_library *library = xclbin_file_section(&file, BITSTREAM);
    library->abi_version = KL_ABI_VERSION + 1;
    snprintf(path, sizeof path, "%s/other_abi.xclbin", dir);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(file.bytes, 1, file.size_bytes, out), file.size_bytes);
    assert_int_equal(fclose(out), 0);
    free(file.bytes);
    snprintf(arguments, sizeof arguments, "--xclbin '%s'", path);
    json_t *root = doctor_json(SIM, arguments, 1);
    expect_line(root, "xclbin", "problem", "a kernel of ABI version");
    assert_null(line_of(root, "kernel", 0));
    json_decref(root);
    root = doctor_json(SIM, "--xclbin /nowhere.xclbin", 1);
    expect_line(root, "xclbin", "problem", "/nowhere.xclbin: No such file");
    json_decref(root);
    root = doctor_json(SIM, "--xclbin /etc/passwd", 1);
    expect_line(root, "xclbin", "problem", "/etc/passwd: ");
    json_decref(root);
}

static void another_xrt_needs_its_xclbin(void **state)
{
    (void)state;
    char environment[256];
    struct command_result r =
        command_shell("cd '%s' && rm -rf X && mkdir X && cp -r '%s/lib' X", dir, KL_SIM_XRT_DIR);
    assert_int_equal(r.status, 0);
    command_free(&r);
    snprintf(environment, sizeof environment, "XILINX_XRT='%s/X'", dir);
    json_t *root = doctor_json(environment, "", 1);
    expect_line(root, "device", "ok", "device 0: the software device");
    expect_line(root, "xclbin", "problem", "which one is not known");
    json_decref(root);
    expect_well(doctor_json(environment, "--xclbin '" KL_SIM_XRT_DIR "/kl_small.xclbin'", 0));
}

static void usage(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int status;
        const char *out, *err;
    } line[] = {
        {"--help", 0, "usage: killline doctor", ""},
        {"-h", 0, "usage: killline doctor", ""},
        {"--timeout 0", 2, "", "--timeout 0: 1 to 3600"},
        {"--timeout soon", 2, "", "--timeout soon: 1 to 3600"},
        {"--colour red", 2, "", "lists the options"},
        {"me", 2, "", "'me' is not an option"},
        {"--json >/dev/full", 1, "", "standard output: write failed"},
    };
    for (size_t i = 0; i < sizeof line / sizeof line[0]; i++) {
        struct command_result r = doctor(SIM, line[i].arguments);
        if (r.status != line[i].status || !strstr(r.out, line[i].out) || !strstr(r.err, line[i].err))
            fail_msg("%s: status %d: %s%s", line[i].arguments, r.status, r.out, r.err);
        command_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_software_device),
        cmocka_unit_test(figures),
        cmocka_unit_test(several_devices),
        cmocka_unit_test(as_text),
        cmocka_unit_test(nothing_set),
        cmocka_unit_test(bad_drivers),
        cmocka_unit_test(noop_driver),
        cmocka_unit_test(broken_devices),
        cmocka_unit_test(does_not_open),
        cmocka_unit_test(fault_by_command),
        cmocka_unit_test(bad_xclbins),
        cmocka_unit_test(another_xrt_needs_its_xclbin),
        cmocka_unit_test(usage),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
