/* The same day through the real XRT library and the software device: the records are those of the kernel's C
 * simulation, bit for bit, in every mode and however the device is carried out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run_json.h"
#include "system_calls.h"

static char reference[64]; /* csim's run */
static json_t *reference_json;

/* The predictions of a log, without what names the run (chain, and record_no, which events shift), and what
 * was published. */
static void predictions_of(const char *out)
{
    struct command_result c = command_shell(
        "cd %s && '%s' audit show . --json > all && grep '\"kind\":\"prediction\"' all | sed -e "
        "'s/,\"chain\":\"[0-9a-f]*\"//' -e 's/\"record_no\":[0-9]*,//' > predictions && '%s' listen "
        "--pcap predictions.pcap > published",
        out, KILLLINE, KILLLINE);
    if (c.status)
        print_error("%s\n", c.err);
    assert_int_equal(c.status, 0);
    command_free(&c);
}

static void same_predictions(const char *out, const char *what)
{
    predictions_of(out);
    struct command_result c = command_shell("cmp %s/predictions %s/predictions && cmp %s/published "
                                            "%s/published && wc -l < %s/predictions",
                                            reference, out, reference, out, reference);
    if (c.status)
        print_error("%s: %s%s\n", what, c.out, c.err);
    assert_int_equal(c.status, 0);
    assert_int_equal(strtoll(c.out, NULL, 10), number_at(reference_json, "predictions", NULL));
    command_free(&c);
}

static void clean_run(const char *environment, const char *args)
{
    char out[64];
    strcpy(out, fresh());
    json_t *json = run_json_with(environment, model, out, args);
    assert_string_equal(text_at(json, "accel", NULL), "xrt");
    assert_true(json_is_true(json_object_get(json_object_get(json, "device"), "software_device")));
    assert_int_equal(number_at(json, "device", "abi"), KL_ABI_VERSION);
    assert_int_equal(strlen(text_at(json, "device", "uuid")), 36);
    assert_int_not_equal(strlen(text_at(json, "device", "name")), 0);
    assert_int_equal(number_at(json, "device", "failovers"), 0);
    assert_int_equal(number_at(json, "device", "quarantines"), 0);
    assert_int_equal(number_at(json, "device", "differed"), 0);
    assert_int_equal(number_at(json, "device", "mirror_answers"), 0);
    assert_true(number_at(json, "device", "compared") > 10);
    assert_true(json_equal(json_object_get(reference_json, "verdicts"), json_object_get(json, "verdicts")));
    same_predictions(out, args);
    json_decref(json);
}

static void both_modes_inline_thread_and_child(void **state)
{
    (void)state;
    static const char *const carried_out[] = {"inline", "thread", "child"};
    for (int e = 0; e < 3; e++)
        for (int mode = 0; mode < 2; mode++) {
            char environment[128];
            snprintf(environment, sizeof(environment), "KL_SIM_EXEC=%s KL_SIM_LATENCY=off", carried_out[e]);
            clean_run(environment, mode ? "--accel xrt --xrt-mode run" : "--accel xrt --xrt-mode doorbell");
        }
}

/* The latency model costs real time only. */
static void with_latency(void **state)
{
    (void)state;
    clean_run("KL_SIM_LATENCY=on", "--accel xrt");
}

static void registers_without_host_memory(void **state)
{
    (void)state;
    clean_run("KL_SIM_LATENCY=off", "--accel xrt --set xrt.xclbin=" KL_XRT_DIR "/kl_small_nohost.xclbin");
    clean_run("KL_SIM_LATENCY=off",
              "--accel xrt --xrt-mode run --set xrt.xclbin=" KL_XRT_DIR "/kl_small_nohost.xclbin");
}

static void several_cards_and_units(void **state)
{
    (void)state;
    clean_run("KL_SIM_LATENCY=off", "--accel xrt --set xrt.units=2");
    clean_run("KL_SIM_LATENCY=off KL_SIM_DEVICES=3 KL_SIM_EXEC=child",
              "--accel xrt --set 'xrt.devices=[\"0\",\"1\",\"2\"]'");
}

static void every_answer_proved(void **state)
{
    (void)state;
    clean_run("KL_SIM_LATENCY=off", "--accel xrt --set guard.prove=true");
    clean_run("KL_SIM_LATENCY=off", "--accel xrt --set guard.check_every=1");
}

/* On the real clock every answer is still right; how many make the line is the machine's. */
static void the_real_clock(void **state)
{
    (void)state;
    static const char *const modes[] = {"doorbell", "run"};
    for (int i = 0; i < 2; i++) {
        char args[160];
        snprintf(args, sizeof(args),
                 "--accel xrt --xrt-mode %s --clock real --set killline.threshold_us=999 --set "
                 "guard.check_every=1",
                 modes[i]);
        json_t *json = run_json_with("XILINX_XRT=" KL_XRT_DIR, model, fresh(), args);
        assert_int_equal(number_at(json, "device", "differed"), 0);
        assert_true(number_at(json, "verdicts", "published") > 0);
        json_decref(json);
    }
}

static void refused(const char *environment, const char *because, const char *args)
{
    struct command_result c = command_shell("%s '%s' run --pcap %s --model %s --out %s %s", environment,
                                            KILLLINE, day, model, fresh(), args);
    assert_null(strstr(c.err, "makes 0 to -1"));
    if (c.status != 1 || !strstr(c.err, because))
        print_error("%s run %s: status %d, expected '%s' in:\n%s\n", environment, args, c.status, because,
                    c.err);
    assert_int_equal(c.status, 1);
    assert_non_null(strstr(c.err, because));
    command_free(&c);
}

static void what_cannot_work_says_why(void **state)
{
    (void)state;
    char line[160];
    refused("env -u XILINX_XRT", "XILINX_XRT is not set", "--accel xrt --clock real");
    snprintf(line, sizeof(line), "XILINX_XRT=%s", folder);
    refused(line, folder, "--accel xrt");
    refused("", "accel_units", "--accel xrt --set accel_units=2");
    refused("", "xrt.units", "--accel xrt --set xrt.units=9");
    refused("", "devices", "--accel xrt --set 'xrt.devices=[\"0\",\"1\",\"2\"]' --set xrt.units=4");
    refused("", "kl_small_7.xclbin", "--accel xrt --set xrt.units=7");
    refused("", "no-such.xclbin", "--accel xrt --set xrt.xclbin=no-such.xclbin");
    refused("", "fast", "--accel xrt --set xrt.xclbin=" KL_XRT_DIR "/kl_fast.xclbin --set accel_build=small");
    refused("", "device 5", "--accel xrt --set 'xrt.devices=[\"5\"]'");
    refused("KL_SIM_DEVICES=0", "KL_SIM_DEVICES is a number from 1 to 16", "--accel xrt");
    refused("KL_SIM_EXEC=x", "KL_SIM_EXEC is inline, thread or child", "--accel xrt");
    refused("KL_SIM_FAULT=refuse-load", "", "--accel xrt");
    refused("KL_SIM_FAULT=memory-full", "", "--accel xrt");
    snprintf(line, sizeof(line), "--accel xrt --set xrt.xclbin=%s", day);
    refused("", "day.pcap", line);
}

/* A second model is loaded into the idle slot and every stream goes over, warmed up: no tick is without a
 * prediction on account of it, and a stream's answers are the new model's from one tick to the next. */
static void models_switch_without_a_missed_tick(void **state)
{
    (void)state;
    char next[96], args[320], out[3][64], error[MODEL_ERROR_CHARS];
    snprintf(next, sizeof(next), "%s/next.klm", folder);
    assert_int_equal(model_package_write(next, 70, 99, error), 0);
    static const char *const backends[] = {"csim", "cpu", "xrt"};
    for (int i = 0; i < 3; i++) {
        strcpy(out[i], fresh());
        snprintf(args, sizeof(args),
                 "--accel %s --set model_switch.model=%s --set model_switch.after_ms=13500", backends[i],
                 next);
        json_t *json = run_json_with("KL_SIM_LATENCY=off", model, out[i], args);
        assert_true(number_at(json, "streams_switched", NULL) > 3);
        assert_int_equal(number_at(json, "device_errors", NULL), 0);
        /* A stream that begins after the switch warms up as any; none warms up because of it. */
        assert_int_equal(number_at(json, "verdicts", "warming-up"),
                         number_at(reference_json, "verdicts", "warming-up"));
        json_decref(json);
        predictions_of(out[i]);
    }
    struct command_result c = command_shell("cmp %s/predictions %s/predictions && cmp %s/predictions "
                                            "%s/predictions && grep -c '\"slot\":1' %s/predictions",
                                            out[0], out[1], out[0], out[2], out[0]);
    if (c.status)
        print_error("%s%s\n", c.out, c.err);
    assert_int_equal(c.status, 0);
    assert_true(strtoll(c.out, NULL, 10) > 100);
    command_free(&c);
}

/* XRT itself makes none: a register access of it is a store or a load, and its waits, which sleep, are never
 * called. What takes a card's place wakes its own thread or process when that has gone to sleep. (A card's
 * driver enters the kernel for each run of run mode: its queue lies there.) */
#ifndef __SANITIZE_ADDRESS__
static void the_poll_loop_makes_no_system_call(void **state)
{
    (void)state;
    static const struct {
        const char *carried_out, *mode, *allowed;
    } way[] = {{"inline", "doorbell", NULL},
               {"inline", "run", NULL},
               {"thread", "doorbell", "^futex\\(0x[0-9a-f]+, FUTEX_WAKE, "},
               {"child", "doorbell", "^futex\\(0x[0-9a-f]+, FUTEX_WAKE, "}};
    char itch[64], environment[320], args[160];
    snprintf(itch, sizeof(itch), "%s/whole.itch50", folder);
    struct command_result c =
        command_run("synth --out %s/whole.pcap --itch %s --seed 5 --seconds 2", folder, itch);
    assert_int_equal(c.status, 0);
    command_free(&c);
    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
        snprintf(environment, sizeof(environment), "XILINX_XRT='%s' KL_SIM_EXEC=%s KL_SIM_LATENCY=off",
                 KL_XRT_DIR, way[i].carried_out);
        snprintf(args, sizeof(args), "--accel xrt --xrt-mode %s --set killline.device_timeout_us=100000",
                 way[i].mode);
        assert_no_system_call(environment, itch, args, way[i].allowed);
    }
}
#endif

static int make_day(void **state)
{
    (void)state;
    if (run_day_make(70))
        return -1;
    strcpy(reference, fresh());
    reference_json = run_json(model, reference, "");
    predictions_of(reference);
    return 0;
}

static int remove_day(void **state)
{
    json_decref(reference_json);
    return run_day_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_modes_inline_thread_and_child),
        cmocka_unit_test(with_latency),
        cmocka_unit_test(registers_without_host_memory),
        cmocka_unit_test(several_cards_and_units),
        cmocka_unit_test(every_answer_proved),
        cmocka_unit_test(the_real_clock),
        cmocka_unit_test(what_cannot_work_says_why),
        cmocka_unit_test(models_switch_without_a_missed_tick),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(the_poll_loop_makes_no_system_call),
#endif
    };
    return cmocka_run_group_tests(tests, make_day, remove_day);
}
