/* killline bench pipeline: it measures what it says, and says all of it. No figure is judged here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "command.h"
#include "host/killline.h"

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

/* One row of the table. Returns its count. */
static double check_figure(const json_t *figure)
{
    const json_t *ns = json_object_get(figure, "ns");
    const double count = number(figure, "count"), p50 = number(ns, "p50"), p99 = number(ns, "p99"),
                 p999 = number(ns, "p999"), max = number(ns, "max");
    assert_true(p50 >= 0 && p50 <= p99 && p99 <= p999 && p999 <= max);
    assert_true(number(ns, "mean_to_p99") >= 0 && number(ns, "mean_to_p99") <= max);
    assert_true(number(figure, "floor_ns") >= 0);
    return count;
}

static void check_load(const json_t *load, double rate, double n_frame)
{
    static const char *const stages[] = {"wait",   "receive",   "decode", "book",    "features",
                                         "submit", "inference", "check",  "publish", "audit"};
    enum { N_STAGE = sizeof(stages) / sizeof(stages[0]) };
    assert_true(number(load, "rate") == rate);
    assert_int_equal(json_is_true(json_object_get(load, "paced")), rate > 0);
    const double frames = number(load, "frames"), ticks = number(load, "ticks");
    assert_true(rate > 0 ? frames == n_frame : frames > 0 && frames <= n_frame);
    assert_true(number(load, "seconds") > 0);
    /* From the first due time to the last tick's end: not more than were due. */
    assert_true(number(load, "reached") > 0 && (rate == 0 || number(load, "reached") < 2 * rate));

    /* Every prediction is counted, and none twice. */
    const json_t *verdicts = json_object_get(load, "verdicts");
    double sum = 0;
    assert_int_equal(json_object_size(verdicts), VERDICT_COUNT);
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        sum += number(verdicts, verdict_name(v));
    assert_true(ticks > 0 && ticks <= frames && sum == ticks);
    assert_true(number(load, "audit_records") + number(load, "audit_lost") >
                ticks + number(load, "preload_ticks"));
    assert_true(number(load, "ring_full") >= 0 && number(load, "ring_full") <= frames);

    const json_t *total = json_object_get(load, "total"), *rows = json_object_get(load, "stages"),
                 *other = json_object_get(load, "other_than_inference");
    const double counted = check_figure(total);
    double count[N_STAGE];
    assert_int_equal(json_object_size(rows), N_STAGE);
    for (int s = 0; s < N_STAGE; s++) {
        const json_t *figure = json_object_get(rows, stages[s]);
        count[s] = check_figure(figure);
        /* Of every tick a stage is a part of the total. */
        assert_true(number(json_object_get(figure, "ns"), "max") <=
                    number(json_object_get(total, "ns"), "max"));
        /* Wait to book, and audit, are every tick's; the others' ticks become fewer on the way. */
        if (s <= 3 || s == N_STAGE - 1)
            assert_true(count[s] == counted);
        else
            assert_true(count[s] > 0 && count[s] <= count[s - 1]);
    }
    assert_true(counted > 0 && counted < ticks);
    assert_true(check_figure(other) > 0);
    assert_true(number(other, "count") <= number(verdicts, "published") &&
                number(other, "count") <= count[8]);
    assert_true(number(other, "target_p50_ns") == 600);
    assert_int_equal(json_is_true(json_object_get(other, "met")),
                     number(json_object_get(other, "ns"), "p50") <= 600);
    /* Ten empty stages are no less than one of them. */
    assert_true(number(total, "floor_ns") >= number(json_object_get(rows, "decode"), "floor_ns"));
}

static void check_refused(const char *arguments, int status, const char *says)
{
    struct command_result result = command_run("bench pipeline %s", arguments);
    if (result.status != status || !strstr(result.err, says) || result.out[0])
        fail_msg("%s: status %d, %s", arguments, result.status, result.err);
    command_free(&result);
}

static json_t *check_backend(const char *backend, const char *settings)
{
    struct command_result result =
        command_run("bench pipeline --json --accel %s --rates 5k,unpaced --seconds 0.2 --symbols 4 %s",
                    backend, settings);
    json_error_t error;
    if (result.status)
        fail_msg("%s", result.err);
    json_t *root = json_loads(result.out, 0, &error);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "label")), "measured");
    assert_string_equal(json_string_value(json_object_get(root, "backend")), backend);
    static const char *const texts[] = {"build", "model", "machine", "details"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_non_null(json_string_value(json_object_get(root, texts[i])));
    assert_true(number(root, "time_stamp_ns") > 0);
    assert_true(number(root, "symbols") == 4);
    const json_t *cpus = json_object_get(root, "cpus"), *rates = json_object_get(root, "rates");
    assert_true(number(cpus, "poll") >= 0 && number(cpus, "feeder") >= 0 && number(cpus, "audit") >= 0);
    assert_int_equal(json_array_size(rates), 2);
    check_load(json_array_get(rates, 0), 5000, 1000);
    check_load(json_array_get(rates, 1), 0, 200000);
    command_free(&result);
    return root;
}

/* A wide kill line: on a busy machine, or under a sanitizer, some are to be published as well. */
static void test_cpu(void **state)
{
    (void)state;
    json_t *root = check_backend("cpu", "--set killline.threshold_us=999");
    assert_true(strlen(json_string_value(json_object_get(root, "details"))) > 0);
    assert_true(number(root, "threshold_us") == 999);
    assert_null(json_object_get(root, "overhead"));
    json_decref(root);
}

static void test_csim(void **state)
{
    (void)state;
    json_decref(check_backend("csim", "--set killline.threshold_us=999"));
}

/* The real XRT library and the software device, with what it costs above the C simulation. */
static void test_xrt(void **state)
{
    (void)state;
    setenv("XILINX_XRT", KL_XRT_DIR, 1);
    json_t *root = check_backend("xrt", "--set killline.threshold_us=999"),
           *overhead = json_object_get(root, "overhead");
    const char *details = json_string_value(json_object_get(root, "details"));
    if (!strstr(details, "software device") || !strstr(details, "doorbell") ||
        !strstr(details, "latency model off"))
        fail_msg("%s", details);
    const json_t *backend = json_object_get(overhead, "backend_ns"),
                 *csim = json_object_get(overhead, "csim_ns");
    assert_true(number(overhead, "steps") > 0);
    assert_true(number(overhead, "steps") + number(overhead, "mirrored") >= 4000);
    assert_true(number(backend, "p50") > 0 && number(backend, "p50") <= number(backend, "p99"));
    assert_true(number(csim, "p50") > 0 && number(csim, "p50") <= number(csim, "p99"));
    assert_float_equal(number(overhead, "p50_ns"), number(backend, "p50") - number(csim, "p50"), 1);
    for (size_t i = 0; i < 2; i++)
        assert_true(number(json_array_get(json_object_get(root, "rates"), i), "failovers") >= 0);
    json_decref(root);
    check_refused("--accel xrt --xrt-mode slow", 1, "--xrt-mode");
    check_refused("--accel xrt --xclbin /nowhere.xclbin", 1, "/nowhere.xclbin");
    unsetenv("XILINX_XRT");
    check_refused("--accel xrt", 1, "XILINX_XRT is not set");
}

/* Start and stop of every stage, and what the figures are. */
static void test_text(void **state)
{
    (void)state;
    struct command_result result = command_run("bench pipeline --accel cpu --rates 5k --seconds 0.1 "
                                               "--symbols 4 --set killline.threshold_us=999");
    assert_int_equal(result.status, 0);
    static const char *const says[] = {"measured",
                                       "backend cpu",
                                       "5000 frames/s due",
                                       "p99.9",
                                       "floor",
                                       "due -> receive begins",
                                       "port_receive called",
                                       "-> features hashed, record in the writer's ring",
                                       "kill line at 999 us",
                                       "other than inference: p50",
                                       "audit writer on"};
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        if (!strstr(result.out, says[i]))
            fail_msg("says nothing of \"%s\":\n%s", says[i], result.out);
    command_free(&result);
}

/* Nothing is left behind in the folder for temporary files. */
static void test_temporary_files(void **state)
{
    (void)state;
    char folder[] = "/tmp/killline-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct command_result result = command_shell(
        "TMPDIR=%s '%s' bench pipeline --accel cpu --rates 5k --seconds 0.02 >/dev/null", folder, KILLLINE);
    assert_int_equal(result.status, 0);
    command_free(&result);
    assert_int_equal(rmdir(folder), 0);
    result = command_shell("TMPDIR=%s '%s' bench pipeline --accel cpu --rates 5k --seconds 0.02", folder,
                           KILLLINE);
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, folder));
    command_free(&result);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const usage[][2] = {{"--rates 0", "--rates"},
                                           {"--rates ''", "--rates"},
                                           {"--rates 5k,", "--rates"},
                                           {"--rates fast", "--rates"},
                                           {"--rates 20M", "--rates"},
                                           {"--rates 1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8", "--rates"},
                                           {"--seconds 0", "--seconds"},
                                           {"--seconds 1s", "--seconds"},
                                           {"--seconds nan", "--seconds"},
                                           {"--seconds 601", "--seconds"},
                                           {"--rates 1 --seconds 1", "at least 20 frames"},
                                           {"--rates 1M --seconds 100", "at most 50M"},
                                           {"--symbols 0", "--symbols"},
                                           {"--symbols 257", "--symbols"},
                                           {"--set x", "--set"},
                                           {"--fast", "unknown option"},
                                           {"--model", "unknown option"},
                                           {"now", "options only"}};
    for (size_t i = 0; i < sizeof(usage) / sizeof(usage[0]); i++)
        check_refused(usage[i][0], 2, usage[i][1]);
    check_refused("--accel gpu", 1, "--accel");
    check_refused("--model /nowhere.klm", 1, "/nowhere.klm");
    check_refused("--config /nowhere.yaml", 1, "/nowhere.yaml");
    check_refused("--accel cpu --set egress.device=net_nowhere0", 1, "net_nowhere0");
    struct command_result result = command_run("bench pipeline --help");
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.out, "usage: killline bench pipeline"));
    command_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_csim),
        cmocka_unit_test(test_xrt),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_temporary_files),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
