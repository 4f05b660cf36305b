/* killline bench lstm: it says all that it promises, its quotients are those of its figures, and a wrong
 * answer gives no figures. No time is judged here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "command.h"
#include "host/bench_lstm_check.h"
#include "host/bench_lstm_stats.h"

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number '%s'", key);
    assert_true(isfinite(json_number_value(value)));
    return json_number_value(value);
}

struct pair {
    double p50, p99;
};

static struct pair pair(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return (struct pair){number(value, "p50"), number(value, "p99")};
}

/* A time: above 0, percentiles in order. */
static struct pair times(const json_t *object, const char *key)
{
    struct pair t = pair(object, key);
    if (!(t.p50 > 0 && t.p99 >= t.p50))
        fail_msg("%s: p50 %g, p99 %g", key, t.p50, t.p99);
    return t;
}

static void check_quotient(double ratio, double a, double b, double ours)
{
    double expected = (a < b ? a : b) / ours;
    assert_true(fabs(ratio - expected) <= 1e-6 * expected);
}

static void check_ratios(const json_t *ratios, struct pair critical, struct pair total, struct pair plain,
                         struct pair eigen)
{
    struct pair of_critical = pair(ratios, "critical"), of_total = pair(ratios, "total");
    check_quotient(of_critical.p50, plain.p50, eigen.p50, critical.p50);
    check_quotient(of_critical.p99, plain.p99, eigen.p99, critical.p99);
    check_quotient(of_total.p50, plain.p50, eigen.p50, total.p50);
    check_quotient(of_total.p99, plain.p99, eigen.p99, total.p99);
}

static void check_target(const json_t *targets, const char *name, struct pair ratio, double target)
{
    const json_t *one = json_object_get(targets, name);
    assert_true(number(one, "ratio_p50") == target);
    assert_int_equal(json_is_true(json_object_get(one, "met")), ratio.p50 >= target);
    assert_int_equal(json_is_true(json_object_get(one, "p99_no_worse")), ratio.p99 >= ratio.p50);
}

static void check_idle(const json_t *idle)
{
    size_t i;
    const json_t *row;
    assert_int_equal(json_array_size(idle), 7);
    json_array_foreach(idle, i, row)
    {
        times(row, "critical_ns");
        times(row, "critical_warmed_ns");
        times(row, "peer_ns");
        const char *peer = json_string_value(json_object_get(row, "peer"));
        assert_true(peer && (!strcmp(peer, "plain_c") || !strcmp(peer, "eigen")));
    }
    assert_true(number(json_array_get(idle, 4), "gap_ns") == 1e6);
    assert_true(json_is_true(json_object_get(json_array_get(idle, 4), "asleep")));
    assert_true(number(json_array_get(idle, 6), "read_bytes") == 4 << 20);
}

static void check_model(const json_t *model, double n_in, double n_layer, double n_hidden,
                        double target_critical, double target_total)
{
    const json_t *shape = json_object_get(model, "shape"), *check = json_object_get(model, "check"),
                 *int8 = json_object_get(model, "int8"), *loop = json_object_get(model, "loop_ns"),
                 *ratios = json_object_get(model, "ratios"), *targets = json_object_get(model, "targets");
    assert_true(number(shape, "inputs") == n_in && number(shape, "layers") == n_layer &&
                number(shape, "hidden") == n_hidden && number(shape, "classes") == 3);
    struct pair critical = times(model, "critical_ns"), total = times(model, "total_ns"),
                plain = times(model, "plain_c_ns"), eigen = times(model, "eigen_ns");
    check_ratios(ratios, critical, total, plain, eigen);
    check_ratios(json_object_get(int8, "ratios"), times(int8, "critical_ns"), times(int8, "total_ns"), plain,
                 eigen);
    check_target(targets, "critical", pair(ratios, "critical"), target_critical);
    check_target(targets, "total", pair(ratios, "total"), target_total);
    static const char *const loops[] = {"total", "int8_total", "plain_c", "eigen"};
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++)
        assert_true(number(loop, loops[i]) > 0);
    times(model, "batch8_ns_per_step");
    times(model, "warm_ns");
    check_idle(json_object_get(model, "idle"));
    assert_true(number(model, "steps") == 500 &&
                number(model, "idle_steps") == 8); /* 2 rounds, 1 of pauses */
    assert_true(number(model, "retaken_blocks") >= 0 && number(model, "preempted_blocks") >= 0);
    assert_true(number(check, "steps") >= 300);
    assert_true(number(json_object_get(check, "plain_c"), "largest_error") <= 1e-5);
    assert_true(number(json_object_get(check, "eigen"), "largest_error") <= 1e-5);
    assert_true(number(json_object_get(check, "killline"), "flips") < 0.01 * number(check, "steps"));
    assert_true(number(json_object_get(check, "int8"), "largest_error") >
                number(json_object_get(check, "killline"), "largest_error"));
}

static int holds(const json_t *array, const char *name)
{
    size_t i;
    const json_t *value;
    json_array_foreach(array, i, value) if (!strcmp(json_string_value(value), name)) return 1;
    return 0;
}

static void test_json(void **state)
{
    (void)state;
    struct command_result result = command_run("bench lstm --json --rounds 2 --models S,M");
    assert_int_equal(result.status, 0);
    json_error_t error;
    json_t *root = json_loads(result.out, 0, &error);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "label")), "measured");
    assert_true(json_string_length(json_object_get(root, "machine")) > 0);
    assert_true(json_string_length(json_object_get(root, "variant")) > 0);
    assert_true(json_string_length(json_object_get(root, "compiler")) > 0);
    assert_true(number(root, "repetitions") == 2);
    assert_true(number(root, "time_stamp_ns") > 0 && number(root, "time_stamp_step_ns") > 0);
    assert_true(holds(json_object_get(root, "same_bits"), "csim"));
    const json_t *models = json_object_get(root, "models");
    assert_int_equal(json_object_size(models), 2);
    check_model(json_object_get(models, "S"), 16, 1, 32, 1.3, 1.1);
    check_model(json_object_get(models, "M"), 32, 2, 64, 3, 1.8);
    /* Every variant runs, or the machine has not got it and the command says so. */
    static const char *const variants[] = {"avx512vnni", "avx512bw", "avx2", "portable"};
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        struct command_result one =
            command_run("bench lstm --json --rounds 1 --models S --variant %s", variants[i]);
        if (holds(json_object_get(root, "absent_variants"), variants[i])) {
            assert_int_equal(one.status, 1);
            assert_non_null(strstr(one.err, variants[i]));
        } else {
            assert_int_equal(one.status, 0);
            json_t *other = json_loads(one.out, 0, &error);
            assert_string_equal(json_string_value(json_object_get(other, "variant")), variants[i]);
            json_decref(other);
        }
        command_free(&one);
    }
    json_decref(root);
    command_free(&result);
}

static void test_table(void **state)
{
    (void)state;
    struct command_result result = command_run("bench lstm --rounds 1 --models S");
    assert_int_equal(result.status, 0);
    static const char *const said[] = {"measured",    "critical path", "plain C",          "Eigen",
                                       "S  16, 1x32", "4 MiB read",    "same bits as csim"};
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        if (!strstr(result.out, said[i]))
            fail_msg("'%s' is not in: %s", said[i], result.out);
    assert_null(strstr(result.out, "\nM  32"));
    command_free(&result);
}

static void test_usage(void **state)
{
    (void)state;
    const struct {
        const char *arguments;
        int status;
        const char *said; /* on standard error */
    } cases[] = {{"bench lstm --help", 0, ""},
                 {"bench lstm --models T", 2, "--models"},
                 {"bench lstm --models S,", 2, "--models"},
                 {"bench lstm --models ''", 2, "--models"},
                 {"bench lstm --models SM", 2, "--models"},
                 {"bench lstm --variant sse2", 2, "--variant"},
                 {"bench lstm --rounds 0", 2, "--rounds"},
                 {"bench lstm --rounds 100001", 2, "--rounds"},
                 {"bench lstm --json extra", 2, "options only"},
                 {"bench lstm --rounds", 2, "without its value"},
                 {"bench lstm --models S --onnxruntime /nonexistent/lib.so", 1, "/nonexistent/lib.so"},
                 {"bench lstm --models S --onnxruntime libm.so.6", 1, "OrtGetApiBase"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct command_result result = command_run("%s", cases[i].arguments);
        assert_int_equal(result.status, cases[i].status);
        assert_non_null(strstr(result.err, cases[i].said));
        assert_true(result.status != 0 || result.out[0]);
        command_free(&result);
    }
}

/* ---- What the command relies on ---- */

enum { N_STEP = 300 };

struct net {
    struct model_weights weights;
    struct kl_image_header *image;
    struct accel *accel; /* csim */
    struct bench_lstm_peer *plain;
};

static void make_net(struct net *net, float change)
{
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(bench_lstm_weights(&bench_lstm_shapes[0], 5, &net->weights), 0);
    net->weights.w_x[0][(2 * 32 + 5) * 16 + 3] += change; /* gate g of unit 5, input 3 */
    assert_int_equal(model_quantise(&net->weights, &net->image, error), 0);
    net->accel = accel_csim_open(accel_build_for(net->image), 1);
    assert_non_null(net->accel);
    assert_int_equal(accel_load(net->accel, 0, net->image, net->image->size_bytes), KL_OK);
    net->plain = bench_lstm_plain_create(&net->weights);
    assert_non_null(net->plain);
}

static void free_net(struct net *net)
{
    net->plain->ops->free(net->plain);
    net->accel->ops->close(net->accel);
    free(net->image);
    model_weights_free(&net->weights);
}

static void test_check(void **state)
{
    (void)state;
    struct net net, other;
    struct bench_lstm_inputs inputs;
    struct bench_lstm_truth truth;
    struct bench_lstm_agreement agreement;
    make_net(&net, 0);
    make_net(&other, 0.5f); /* one weight of 6,144 */
    assert_int_equal(bench_lstm_inputs_create(N_STEP, 16, 6, &inputs), 0);
    assert_int_equal(bench_lstm_truth_create(&net.weights, &inputs, N_STEP, &truth), 0);
    assert_true(truth.changes > N_STEP / 10); /* or flips would show nothing */
    bench_lstm_check_peer(&truth, &inputs, net.plain, &agreement);
    assert_true(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_FP32));
    bench_lstm_check_peer(&truth, &inputs, other.plain, &agreement);
    assert_false(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_FP32));
    bench_lstm_check_accel(&truth, &inputs, net.accel, 0, 3, &agreement);
    assert_true(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_CONTRACT));
    bench_lstm_check_accel(&truth, &inputs, other.accel, 0, 3, &agreement);
    assert_int_equal(agreement.status, KL_OK);
    assert_false(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_CONTRACT));
    bench_lstm_check_accel(&truth, &inputs, net.accel, 1, 3, &agreement); /* nothing loaded */
    assert_int_equal(agreement.status, KL_E_EMPTY);
    assert_false(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_INT8));
    assert_int_equal(bench_lstm_same_bits(&inputs, N_STEP, net.accel, net.accel, 0, 0),
                     0); /* one stream, twice */
    assert_true(bench_lstm_same_bits(&inputs, N_STEP, net.accel, other.accel, 0, 0) < N_STEP);
    free_net(&other);
    make_net(&other, 0);
    assert_int_equal(bench_lstm_same_bits(&inputs, N_STEP, net.accel, other.accel, 0, 0), N_STEP);
    /* Bounds, and what no bound lets through. */
    agreement = (struct bench_lstm_agreement){.error = 1e-5};
    truth.spread = 1;
    assert_true(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_FP32));
    agreement.error = 1.001e-5;
    assert_false(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_FP32));
    agreement = (struct bench_lstm_agreement){.flips = N_STEP / 100 - 1};
    assert_true(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_CONTRACT));
    agreement.flips = N_STEP / 100;
    assert_false(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_CONTRACT));
    assert_true(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_INT8));
    agreement = (struct bench_lstm_agreement){.error = INFINITY};
    assert_false(bench_lstm_agrees(&truth, &agreement, BENCH_LSTM_INT8));
    free_net(&net);
    free_net(&other);
    bench_lstm_truth_free(&truth);
    bench_lstm_inputs_free(&inputs);
}

static void test_quantiles(void **state)
{
    (void)state;
    const uint64_t one[] = {10}, four[] = {10, 20, 30, 40}, equal[] = {26, 26, 26, 52};
    assert_true(bench_lstm_quantile(one, 1, 0.5, 1) == 10);
    assert_true(bench_lstm_quantile(one, 1, 0.99, 1) > 10 && bench_lstm_quantile(one, 1, 1, 1) == 10.5);
    assert_true(bench_lstm_quantile(four, 4, 0.25, 1) == 19.5);
    assert_true(bench_lstm_quantile(four, 4, 0.5, 1) == 29.5);
    assert_true(bench_lstm_quantile(four, 4, 1, 1) == 40.5);
    /* Three of four at 26 of a counter of 26: the median lies at two thirds of 13..39. */
    assert_true(fabs(bench_lstm_quantile(equal, 4, 0.5, 26) - (13 + 26 * 2 / 3.)) < 1e-9);
    struct bench_lstm_timer timer = {.calibration.hz = 2e9, .step_cycles = 1, .cost_cycles = 100};
    struct bench_lstm_series series;
    assert_int_equal(bench_lstm_series_init(&series, 200), 0);
    struct bench_lstm_quantiles q = bench_lstm_summarise(&series, &timer, 1, 1);
    assert_true(q.p50 == 0 && q.p99 == 0);
    for (uint64_t i = 0; i < 200; i++)
        bench_lstm_series_add(&series, 1000 + 10 * ((i * 77) % 200)); /* 1000 .. 2990, shuffled */
    q = bench_lstm_summarise(&series, &timer, 2, 4);
    assert_true(fabs(q.p50 - (2000 - 200) / 2. / 4) < 1 && fabs(q.p99 - (2980 - 200) / 2. / 4) < 1);
    timer.cost_cycles = 5000; /* more than there is */
    q = bench_lstm_summarise(&series, &timer, 1, 1);
    assert_true(q.p50 == 0 && q.p99 == 0);
    bench_lstm_series_free(&series);
    assert_int_equal(bench_lstm_timer_init(&timer), 0);
    assert_true(timer.step_cycles >= 1 && timer.cost_cycles >= 0 && timer.calibration.hz > 1e8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),  cmocka_unit_test(test_table),     cmocka_unit_test(test_usage),
        cmocka_unit_test(test_check), cmocka_unit_test(test_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
