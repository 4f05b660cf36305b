/* killline bench killline: it measures what it says, its sums agree, and what must never be is not. No figure
 * is judged here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "command.h"
#include "host/killline.h"

/* A busy machine, or a sanitizer, is to change nothing that is asked here: the widest line, a slow rate, no
 * rule that halts. Small books: every load makes its own. */
#define SLOW                                                                                                 \
    "--quick --rate 2k/s --symbols 4 --set killline.threshold_us=999 --set governor.window_ms=100 "          \
    "--set 'governor.halted.miss_ppm={enter: 0, leave: 0}' --set book.orders=60000 --set book.levels=60000"

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        fail_msg("no %s", key);
    return value;
}

/* cmocka's is of floats. */
static void assert_close(double a, double b, double error)
{
    if (!(fabs(a - b) <= error))
        fail_msg("%.17g is not %.17g", a, b);
}

/* Returns the count. */
static double check_ages(const json_t *ages)
{
    const double p50 = number(ages, "p50"), p90 = number(ages, "p90"), p99 = number(ages, "p99"),
                 p999 = number(ages, "p999"), max = number(ages, "max");
    assert_true(p50 >= 0 && p50 <= p90 && p90 <= p99 && p99 <= p999 && p999 <= max);
    assert_close(number(ages, "p99_minus_p50"), p99 - p50, 1e-7 * (p99 + 1));
    return number(ages, "count");
}

static double sum_of(const json_t *verdicts)
{
    double sum = 0;
    assert_int_equal(json_object_size(verdicts), VERDICT_COUNT);
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        sum += number(verdicts, verdict_name(v));
    return sum;
}

static int is_one_of(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(word, words[i]))
            return 1;
    return 0;
}

static void check_stages(const json_t *root, double runs)
{
    static const char *const names[] = {"wait", "receive", "queue", "inference", "publish"};
    enum { N = sizeof(names) / sizeof(names[0]) };
    const json_t *stages = member(root, "stages");
    const double max = number(member(root, "latency_ns"), "max");
    double shares = 0, largest50 = 0, largest99 = 0;
    assert_int_equal(json_object_size(stages), N);
    for (int s = 0; s < N; s++) {
        const json_t *stage = member(stages, names[s]), *ns = member(stage, "ns");
        assert_true(check_ages(ns) == runs);
        /* Of every tick a stage is a part. */
        assert_true(number(ns, "max") <= max);
        assert_non_null(json_string_value(member(stage, "what")));
        shares += number(stage, "share_percent");
        largest50 = fmax(largest50, number(ns, "p50"));
        largest99 = fmax(largest99, number(ns, "p99"));
    }
    assert_close(shares, 100, 0.001);
    const char *bottleneck = json_string_value(member(root, "bottleneck")),
               *at_p99 = json_string_value(member(root, "bottleneck_p99"));
    assert_true(is_one_of(bottleneck, names, N) && is_one_of(at_p99, names, N));
    assert_true(number(member(member(stages, bottleneck), "ns"), "p50") == largest50);
    assert_true(number(member(member(stages, at_p99), "ns"), "p99") == largest99);
}

static void check_resources(const json_t *root)
{
    static const char *const names[] = {"poll_loop",  "accelerator", "receive_ring",
                                        "audit_ring", "book_orders", "book_levels"};
    enum { N = sizeof(names) / sizeof(names[0]) };
    const json_t *resources = member(root, "resources");
    double highest = 0;
    assert_int_equal(json_object_size(resources), N);
    for (int i = 0; i < N; i++) {
        const double percent = number(resources, names[i]);
        assert_true(percent >= 0 && percent <= 100.001);
        highest = fmax(highest, percent);
    }
    assert_true(number(root, "resource_percent") == highest);
}

static void check_indicators(const json_t *root)
{
    static const char *const names[] = {"latency", "throughput", "resource_use", "stability"};
    const json_t *indicators = member(root, "indicators");
    assert_int_equal(json_object_size(indicators), 4);
    for (int i = 0; i < 4; i++) {
        const json_t *one = member(indicators, names[i]), *bound = member(one, "bound");
        assert_non_null(json_string_value(member(one, "text")));
        const int reached = json_is_number(bound) && number(one, "value") >= json_number_value(bound);
        assert_int_equal(json_is_true(member(one, "alert")), reached);
    }
    assert_true(number(member(indicators, "resource_use"), "bound") == 70);
}

static void check_recommendation(const json_t *root)
{
    const json_t *threshold = member(root, "recommended_threshold_ns"), *why = member(root, "recommendation");
    assert_true(number(why, "missed") <= number(why, "count"));
    assert_true(number(why, "count") >= number(root, "runs"));
    assert_true(number(why, "target_miss_rate") == 0.05);
    if (json_is_null(threshold)) {
        assert_true(strlen(json_string_value(member(why, "reason"))) > 0);
        return;
    }
    const double ns = json_number_value(threshold);
    assert_true(ns >= 1000 && ns < 1e6 && fmod(ns, 1000) == 0);
    assert_true(number(why, "miss_rate_upper") <= 0.05);
    assert_true(number(why, "missed") / number(why, "count") <= number(why, "miss_rate_upper"));
    assert_true(json_is_null(member(why, "reason")));
}

static void check_overload(const json_t *overload, int is_lossy)
{
    const json_t *verdicts = member(overload, "verdicts"), *age = member(overload, "published_age_ns");
    const double predictions = number(overload, "predictions"), published = number(verdicts, "published");
    assert_true(predictions > 0 && sum_of(verdicts) == predictions);
    assert_true(check_ages(age) == published);
    check_ages(member(overload, "published_age_from_due_ns"));
    assert_close(number(overload, "published_fraction"), published / predictions, 1e-6);
    /* By the histogram's error above the line at most; by the records not at all. */
    assert_true(number(overload, "published_over_threshold") == 0);
    assert_true(number(age, "max") <= 999000 * 1.01);
    assert_close(number(overload, "rate"), 10 * number(member(overload, "capacity"), "frames_per_s"), 1);
    assert_true(number(overload, "ring_high") <= number(overload, "ring_size"));
    assert_true(number(overload, "ring_lost") == (is_lossy ? number(overload, "ring_full") : 0));
    assert_true(number(overload, "ring_lost") < number(overload, "frames"));
    assert_true(number(overload, "symbols_served") <= number(overload, "symbols_ticked"));
    assert_true(json_is_null(member(overload, "accelerator_step_ns")) == is_lossy);
}

static void check_halt(const json_t *halt)
{
    assert_true(number(halt, "orders") > 0);
    assert_true(number(halt, "not_carried_out") == 0);
    assert_true(check_ages(member(halt, "acknowledged_ns")) == number(halt, "orders"));
    /* Only what had looked for an order before it was given can still go out. */
    assert_true(number(halt, "published_after_return_most") <= 1);
    assert_true(number(halt, "published_after_return") <= number(halt, "published_after_order"));
}

static void check_all(const json_t *root, const char *backend, double runs_min)
{
    const double runs = number(root, "runs"), predictions = number(root, "predictions"),
                 wanted = number(root, "wanted");
    assert_string_equal(json_string_value(member(root, "label")), "measured");
    assert_string_equal(json_string_value(member(root, "backend")), backend);
    assert_true(runs >= runs_min && runs <= predictions);
    assert_true(check_ages(member(root, "latency_ns")) == runs);
    check_ages(member(root, "latency_uncorrected_ns"));
    assert_true(number(root, "throughput_per_s") > 0);
    assert_true(number(root, "rate") == 2000 && number(root, "threshold_ns") == 999000);
    /* Every prediction has one verdict. */
    const json_t *verdicts = member(root, "verdicts"), *causes = member(root, "miss_rate_by_cause");
    assert_true(sum_of(verdicts) == predictions);
    const double missed =
        number(verdicts, "expected-late") + number(verdicts, "stale") + number(verdicts, "device-error");
    assert_true(wanted == missed + number(verdicts, "published") + number(verdicts, "superseded"));
    assert_close(number(root, "miss_rate"), missed / wanted, 1e-6);
    assert_close(number(causes, "expected-late") + number(causes, "stale") + number(causes, "device-error"),
                 missed / wanted, 1e-6);
    assert_true(number(root, "warm_up_predictions") > 0);
    check_stages(root, runs);
    check_resources(root);
    check_indicators(root);
    check_recommendation(root);
    check_overload(member(member(root, "overload"), "accelerator"), 0);
    check_overload(member(member(root, "overload"), "wire"), 1);
    const json_t *idle = member(root, "idle"), *check = member(root, "check");
    assert_int_equal(json_array_size(idle), 2);
    double inferred = 0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *gap = json_array_get(idle, i);
        assert_true(number(gap, "gap_ns") == (i ? 10e6 : 1e6));
        inferred += check_ages(member(gap, "with_ns")) + check_ages(member(gap, "without_ns"));
        assert_true(number(gap, "ratio_p50") >= 0 && number(gap, "ratio_p99") >= 0);
    }
    assert_true(inferred > 0);
    assert_true(number(check, "check_ns") > 0 && number(check, "empty_ns") > 0);
    assert_close(number(check, "difference_ns"), number(check, "check_ns") - number(check, "empty_ns"), 1e-3);
    check_halt(member(root, "halt"));
}

/* With both files, and what they hold. */
static void test_cpu(void **state)
{
    (void)state;
    char folder[] = "/tmp/killline-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    struct command_result result = command_run("bench killline --json --accel cpu " SLOW
                                               " --target-miss 5%% --out %s/new --html %s/page",
                                               folder, folder);
    if (result.status)
        fail_msg("%s", result.err);
    json_t *root = json_loads(result.out, 0, NULL);
    assert_non_null(root);
    check_all(root, "cpu", 1000);
    json_decref(root);
    snprintf(path, sizeof(path), "%s/new/bench_killline.json", folder);
    char *json = command_read_file(path);
    assert_string_equal(json, result.out);
    snprintf(path, sizeof(path), "%s/page", folder);
    char *page = command_read_file(path);
    static const char *const says[] = {"<!doctype html>", "kill line 999 \xc2\xb5s", "Bottleneck: <b>",
                                       "resource use", "</html>"};
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        if (!strstr(page, says[i]))
            fail_msg("the page says nothing of \"%s\"", says[i]);
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "http"));
    free(json);
    free(page);
    command_free(&result);
    result = command_shell("rm -r %s", folder);
    assert_int_equal(result.status, 0);
    command_free(&result);
}

static void test_csim(void **state)
{
    (void)state;
    struct command_result result =
        command_run("bench killline --json --accel csim " SLOW " --runs 1200 --target-miss 5%%");
    if (result.status)
        fail_msg("%s", result.err);
    json_t *root = json_loads(result.out, 0, NULL);
    assert_non_null(root);
    check_all(root, "csim", 1200);
    json_decref(root);
    command_free(&result);
}

static void test_text(void **state)
{
    (void)state;
    struct command_result result = command_run("bench killline --accel cpu " SLOW);
    if (result.status)
        fail_msg("%s", result.err);
    static const char *const says[] = {"measured: backend cpu",
                                       "2000 frames/s due",
                                       "p99.9",
                                       "P99-P50",
                                       "age from due",
                                       "from arrival",
                                       "bottleneck at p50: ",
                                       "verdicts: ",
                                       "miss rate",
                                       "resource use",
                                       "stability",
                                       "recommended",
                                       "both checks of a tick",
                                       "overload, accelerator:",
                                       "overload, wire:",
                                       "after 10 ms idle",
                                       "orders to halt"};
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        if (!strstr(result.out, says[i]))
            fail_msg("says nothing of \"%s\":\n%s", says[i], result.out);
    int lines = 0;
    for (const char *p = result.out; *p; p++)
        lines += *p == '\n';
    assert_true(lines <= 45); /* one screen */
    command_free(&result);
}

static void check_refused(const char *arguments, int status, const char *says)
{
    struct command_result result = command_run("bench killline %s", arguments);
    if (result.status != status || !strstr(result.err, says) || result.out[0])
        fail_msg("%s: status %d, %s", arguments, result.status, result.err);
    command_free(&result);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const usage[][2] = {{"--runs 999", "at least 1000"},
                                           {"--runs 0", "at least 1000"},
                                           {"--runs 3M", "up to 2M"},
                                           {"--runs many", "--runs"},
                                           {"--rate 0", "--rate"},
                                           {"--rate 20k/m", "--rate"},
                                           {"--rate 11M/s", "--rate"},
                                           {"--target-miss 1", "--target-miss"},
                                           {"--target-miss 0%", "--target-miss"},
                                           {"--target-miss 51%", "--target-miss"},
                                           {"--target-miss nan%", "--target-miss"},
                                           {"--symbols 257", "--symbols"},
                                           {"--set x", "--set"},
                                           {"--fast", "unknown option"},
                                           {"--html", "unknown option"},
                                           {"now", "options only"}};
    for (size_t i = 0; i < sizeof(usage) / sizeof(usage[0]); i++)
        check_refused(usage[i][0], 2, usage[i][1]);
    check_refused("--accel gpu", 1, "--accel");
    check_refused("--model /nowhere.klm", 1, "/nowhere.klm");
    check_refused("--config /nowhere.yaml", 1, "/nowhere.yaml");
    check_refused("--set killline.threshold_us=1000", 1, "killline.threshold_us");
    check_refused("--accel cpu --quick --set egress.device=net_nowhere0", 1, "net_nowhere0");
    struct command_result result = command_run("bench killline --help");
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.out, "usage: killline bench killline"));
    command_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_csim),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
