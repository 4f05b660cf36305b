/* killline sim-device, whole: the containers that it writes, the shell lines, faults and counters through a
 * control file; and everything that it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdint.h>

#include "command.h"
#include "host/xclbin.h"

static char dir[] = "/tmp/test_sim_device.XXXXXX";

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

/* Frees the result. */
static void expect(struct command_result r, int status, const char *out, const char *err)
{
    if (r.status != status || !strstr(r.out, out) || !strstr(r.err, err))
        fail_msg("status %d, not %d, or no '%s' and '%s' in:\n%s%s", r.status, status, out, err, r.out,
                 r.err);
    command_free(&r);
}

static json_t *json_of(struct command_result r)
{
    json_error_t error;
    json_t *root = json_loads(r.out, 0, &error);
    if (r.status || !root)
        fail_msg("status %d: %s%s", r.status, r.out, r.err);
    command_free(&r);
    return root;
}

static const char *text(const json_t *root, const char *key)
{
    const char *value = json_string_value(json_object_get(root, key));
    assert_non_null(value);
    return value;
}

static long long figure(const json_t *root, const char *key)
{
    assert_true(json_is_integer(json_object_get(root, key)));
    return json_integer_value(json_object_get(root, key));
}

/* ---- xclbin ---- */

static void every_build(void **state)
{
    (void)state;
    static const char *const build[] = {"small", "fast", "large"};
    for (size_t i = 0; i < sizeof build / sizeof build[0]; i++) {
        struct xclbin x;
        char error[XCLBIN_ERROR_CHARS], path[64], again[64];
        snprintf(path, sizeof path, "%s/a.xclbin", dir);
        snprintf(again, sizeof again, "%s/b.xclbin", dir);
        json_t *root = json_of(command_run("sim-device xclbin --build %s --out '%s' --json", build[i], path));
        if (xclbin_read(path, &x, NULL, NULL, error))
            fail_msg("%s", error);
        assert_string_equal(text(root, "file"), path);
        assert_string_equal(text(root, "build"), build[i]);
        assert_string_equal(x.build, build[i]);
        assert_string_equal(text(root, "uuid"), x.uuid);
        assert_string_equal(text(root, "platform"), x.platform);
        assert_int_equal(figure(root, "abi"), KL_ABI_VERSION);
        assert_int_equal(figure(root, "compute_units"), 1);
        assert_int_equal(x.n_unit, 1);
        assert_true(json_is_true(json_object_get(root, "host_memory")));
        assert_int_equal(x.banks[0].size_bytes, 64 << 20);
        expect(command_run("sim-device xclbin --build %s --out '%s'", build[i], again), 0, x.uuid, "");
        expect(command_shell("cmp '%s' '%s' && stat -c %%s '%s' | grep -x %lld", path, again, path,
                             figure(root, "bytes")),
               0, "", "");
        json_decref(root);
    }
}

static void options_carried(void **state)
{
    (void)state;
    struct xclbin x;
    char error[XCLBIN_ERROR_CHARS], path[64];
    snprintf(path, sizeof path, "%s/options.xclbin", dir);
    expect(
        command_run("sim-device xclbin --build small --units 3 --bank-mib 5 --no-host-memory --kernel '%s' "
                    "--out '%s'",
                    KL_LIBRARY_SMALL, path),
        0, "3 units, no host memory", "");
    assert_int_equal(xclbin_read(path, &x, NULL, NULL, error), 0);
    assert_int_equal(x.n_unit, 3);
    assert_int_equal(x.n_bank, 1);
    assert_int_equal(x.banks[0].size_bytes, 5 << 20);
}

static void xclbin_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int status;
        const char *why;
    } wrong[] = {
        {"--build small", 2, "needs --build and --out"},
        {"--out x", 2, "needs --build and --out"},
        {"--build huge --out x", 2, "--build huge: small, fast or large"},
        {"--build small --out x --units 0", 2, "--units 0: 1 to 16"},
        {"--build small --out x --units 17", 2, "--units 17: 1 to 16"},
        {"--build small --out x --bank-mib 0", 2, "--bank-mib 0: 1 to 65536"},
        {"--build small --out x --bank-mib 65537", 2, "--bank-mib 65537: 1 to 65536"},
        {"--build small --out x --colour red", 2, "lists the options"},
        {"--build small --out x y", 2, "'y' is not an option"},
        {"--build small --out x --kernel /nowhere.so", 1, "/nowhere.so: No such file"},
        {"--build small --out x --kernel /etc/passwd", 1, "/etc/passwd: not a library"},
        {"--build fast --out x --kernel " KL_LIBRARY_SMALL, 1, "has no kl_build_fast"},
        {"--build small --out /nowhere/x", 1, "/nowhere/x: No such file"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect(command_shell("cd '%s' && '%s' sim-device xclbin %s", dir, KILLLINE, wrong[i].arguments),
               wrong[i].status, "", wrong[i].why);
    expect(command_shell("ls '%s' | grep -c -e '^x' -e part", dir), 1, "0", "");
}

/* The file that is there stays as it is, and nothing is left beside it. */
static void a_full_disk(void **state)
{
    (void)state;
    expect(command_shell("cd '%s' && echo old >full && trap '' XFSZ && ulimit -f 8 && '%s' sim-device xclbin "
                         "--build small --out full",
                         dir, KILLLINE),
           1, "", "full: File too large");
    expect(command_shell("cd '%s' && cat full && ls | grep -c full", dir), 0, "old\n1\n", "");
    expect(command_shell("'%s' sim-device xclbin --build small --out '%s/out' >/dev/full", KILLLINE, dir), 1,
           "", "standard output: write failed");
}

/* ---- env ---- */

static void shell_lines(void **state)
{
    (void)state;
    static const char print[] =
        "echo \"$XILINX_XRT:${KL_SIM_EXEC-none}:${KL_SIM_DEVICES-none}:${KL_SIM_CONTROL-none}\"";
    static const char clean[] = "unset KL_SIM_EXEC KL_SIM_DEVICES KL_SIM_CONTROL";
    expect(command_shell("%s; eval \"$('%s' sim-device env)\"; %s", clean, KILLLINE, print), 0,
           KL_SIM_XRT_DIR ":none:none:none\n", "");
    expect(command_shell(
               "%s; eval \"$('%s' sim-device env --exec child --devices 2 --control \"it's \\$HOME\")\"; "
               "%s",
               clean, KILLLINE, print),
           0, KL_SIM_XRT_DIR ":child:2:it's $HOME\n", "");
    expect(command_run("sim-device env --exec outside"), 2, "", "--exec outside: inline, thread or child");
    expect(command_run("sim-device env --devices 17"), 2, "", "--devices 17: 1 to 16");
    expect(command_run("sim-device env more"), 2, "", "'more' is not an option");
    expect(command_run("sim-device env --colour red"), 2, "", "lists the options");
}

/* ---- fault and status ---- */

static void armed(void **state)
{
    (void)state;
    expect(command_run("sim-device fault --control '%s/c' 'late:us=50,after=100,count=3;hang:after=0,unit=1'",
                       dir),
           0,
           "armed: late, device any, unit any, from event 100 on, 3 times\n"
           "armed: hang, device any, unit 1, at once, 1 time\n",
           "");
    expect(command_run("sim-device fault --control '%s/c' 'clear;vanish:device=2,count=0'", dir), 0,
           "cleared: what was armed before\narmed: vanish, device 2, unit any, from event 1 on, for ever\n",
           "");
    expect(command_shell("grep -a -c -e 'late' '%s/c'", dir), 1, "0", "");
    expect(command_shell("grep -a -c -e 'vanish:device=2,count=0' '%s/c'", dir), 0, "1", "");
    json_t *root = json_of(
        command_run("sim-device fault --control '%s/c' 'clear;flip-answer:unit=3,after=7' --json", dir));
    const json_t *fault = json_array_get(json_object_get(root, "armed"), 0);
    assert_true(json_is_true(json_object_get(root, "cleared")));
    assert_int_equal(json_array_size(json_object_get(root, "armed")), 1);
    assert_string_equal(text(fault, "kind"), "flip-answer");
    assert_int_equal(figure(fault, "unit"), 3);
    assert_int_equal(figure(fault, "after"), 7);
    assert_int_equal(figure(fault, "count"), 1);
    assert_null(json_object_get(fault, "device"));
    json_decref(root);
    expect(command_shell("KL_SIM_CONTROL='%s/env' '%s' sim-device fault hang && ls '%s/env'", dir, KILLLINE,
                         dir),
           0, "armed: hang", "");
}

static void counted(void **state)
{
    (void)state;
    expect(command_run("sim-device fault --control '%s/n' hang", dir), 0, "armed: hang", "");
    expect(command_run("sim-device status --control '%s/n'", dir), 0, "no device has counted anything yet",
           "");
    json_t *root = json_of(command_run("sim-device status --control '%s/n' --json", dir));
    assert_int_equal(json_array_size(json_object_get(root, "devices")), 0);
    json_decref(root);
    expect(command_run("sim-device status --control '%s/not-there'", dir), 1, "", "not-there: No such file");
    expect(command_shell("ls '%s/not-there'", dir), 2, "", "No such file");
}

static void faults_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int status;
        const char *why;
    } wrong[] = {
        {"fault --control c", 2, "which fault?"},
        {"fault hang", 2, "Give --control F, or set KL_SIM_CONTROL"},
        {"status", 2, "Give --control F, or set KL_SIM_CONTROL"},
        {"status --control c more", 2, "more than one argument"},
        {"fault --control c hang vanish", 2, "separate faults by ';'"},
        {"fault --control c --colour red", 2, "no such option"},
        {"fault --control c sulk", 2, "fault 'sulk': the kinds are hang"},
        {"fault --control c ''", 2, "fault"},
        {"fault --control /etc/passwd hang", 1, "control file /etc/passwd"},
        {"status --control /etc/passwd", 1, "control file /etc/passwd"},
        {"fault --control /nowhere/c hang", 1, "control file /nowhere/c: No such file"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect(command_shell("cd '%s' && unset KL_SIM_CONTROL && '%s' sim-device %s", dir, KILLLINE,
                             wrong[i].arguments),
               wrong[i].status, "", wrong[i].why);
}

static void help(void **state)
{
    (void)state;
    static const char *const ask[] = {"sim-device --help",        "sim-device -h",
                                      "sim-device xclbin --help", "sim-device env -h",
                                      "sim-device fault --help",  "sim-device status -h"};
    for (size_t i = 0; i < sizeof ask / sizeof ask[0]; i++)
        expect(command_run("%s", ask[i]), 0, "usage: killline sim-device xclbin", "");
    expect(command_run("sim-device"), 2, "", "say what to do");
    expect(command_run("sim-device repair"), 2, "", "there is no such job");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_build), cmocka_unit_test(options_carried), cmocka_unit_test(xclbin_refused),
        cmocka_unit_test(a_full_disk), cmocka_unit_test(shell_lines),     cmocka_unit_test(armed),
        cmocka_unit_test(counted),     cmocka_unit_test(faults_refused),  cmocka_unit_test(help),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
