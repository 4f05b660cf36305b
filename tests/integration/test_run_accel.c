/* The same day on every backend, build and number of units: what must not change and what must. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run_json.h"

static void refused(const char *package, const char *because, const char *args)
{
    struct command_result c =
        command_run("run --pcap %s --model %s --out %s %s", day, package, fresh(), args);
    if (c.status != 1 || !strstr(c.err, because))
        print_error("run %s: status %d, expected '%s' in:\n%s\n", args, c.status, because, c.err);
    assert_int_equal(c.status, 1);
    assert_non_null(strstr(c.err, because));
    command_free(&c);
}

/* Whatever carries the kernel out, the log says the same: classes, logits, modelled cycles, and so every
 * stamp and verdict. Only the header names another backend and configuration, and the chain starts from it.
 */
static void backends_give_the_same_records(void **state)
{
    (void)state;
    static const char *const others[] = {"--accel cpu", "--accel cpu --set cpu.variant=portable",
                                         "--accel cpu --set cpu.prepare_thread=true"};
    char csim[64], other[64];
    strcpy(csim, fresh());
    json_t *a = run_json(model, csim, "");
    assert_string_equal(text_at(a, "accel", NULL), "csim");
    assert_string_equal(text_at(a, "build", NULL), "small");
    assert_int_equal(number_at(a, "units", NULL), 1);
    assert_true(number_at(a, "verdicts", "published") > 500);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        strcpy(other, fresh());
        json_t *b = run_json(model, other, others[i]);
        assert_string_equal(text_at(b, "accel", NULL), "cpu");
        assert_true(json_equal(json_object_get(a, "verdicts"), json_object_get(b, "verdicts")));
        struct command_result c =
            command_shell("for d in %s %s; do '%s' audit show $d --json > $d/all || exit 9; "
                          "sed 's/,\"chain\":\"[0-9a-f]*\"//' $d/all > $d/records; done; "
                          "cmp %s/records %s/records && wc -l < %s/records",
                          csim, other, KILLLINE, csim, other, csim);
        if (c.status)
            print_error("%s: %s%s\n", others[i], c.out, c.err);
        assert_int_equal(c.status, 0);
        assert_true(strtoll(c.out, NULL, 10) > number_at(a, "predictions", NULL));
        command_free(&c);
        json_decref(b);
    }
    json_decref(a);
}

/* The real clock's figures are the machine's, its answers are not: with a thread that prepares too. */
static void the_real_clock_runs_on_every_backend(void **state)
{
    (void)state;
    static const char *const settings[] = {"", "--accel cpu", "--accel cpu --set cpu.prepare_thread=true"};
    for (int i = 0; i < 3; i++) {
        char args[256];
        snprintf(args, sizeof(args), "--clock real --set killline.threshold_us=999 %s", settings[i]);
        json_t *json = run_json(model, fresh(), args);
        assert_int_equal(number_at(json, "device_errors", NULL), 0);
        assert_true(number_at(json, "verdicts", "published") > 0);
        json_decref(json);
    }
}

/* The build and the number of units change cycles. */
static void builds_and_units_change_the_cycles(void **state)
{
    (void)state;
    static const char *const settings[] = {"", "--set accel_units=2", "--set accel_build=fast"};
    int64_t cycles[3];
    for (int i = 0; i < 3; i++) {
        json_t *json = run_json(model, fresh(), settings[i]);
        assert_string_equal(text_at(json, "build", NULL), i == 2 ? "fast" : "small");
        assert_int_equal(number_at(json, "units", NULL), i == 1 ? 2 : 1);
        cycles[i] = number_at(json, "kernel_cycles", "p50");
        json_decref(json);
    }
    assert_int_not_equal(cycles[1], cycles[0]);
    assert_int_not_equal(cycles[2], cycles[0]);
}

/* A model beyond the build that was asked for is refused with both shapes; the build that it needs is found.
 */
static void models_find_their_build(void **state)
{
    (void)state;
    char wide[64], error[MODEL_ERROR_CHARS];
    snprintf(wide, sizeof(wide), "%s/wide.klm", folder);
    assert_int_equal(model_package_write(wide, 200, 1, error), 0);
    refused(
        wide,
        "wide.klm: 1 layers of up to 200 hidden units, 20 inputs: beyond the kernel's build small (3 layers",
        "--set accel_build=small");
    refused(wide, "accel_build=auto", "--set accel_build=small --accel cpu");
    refused(model, "accel_units", "--accel cpu --set accel_units=2");
    static const char *const settings[] = {"--accel cpu", "--accel cpu --set accel_build=large",
                                           "--set accel_units=2"};
    static const char *const builds[] = {"large", "large",
                                         "small"}; /* each of two units has half of the rows */
    for (int i = 0; i < 3; i++) {
        char args[256];
        snprintf(args, sizeof(args), "%s --symbols NOSUCH", settings[i]);
        json_t *json = run_json(wide, fresh(), args);
        assert_string_equal(text_at(json, "build", NULL), builds[i]);
        json_decref(json);
    }
}

static int make_day(void **state)
{
    (void)state;
    return run_day_make(70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_give_the_same_records),
        cmocka_unit_test(the_real_clock_runs_on_every_backend),
        cmocka_unit_test(builds_and_units_change_the_cycles),
        cmocka_unit_test(models_find_their_build),
    };
    return cmocka_run_group_tests(tests, make_day, run_day_remove);
}
