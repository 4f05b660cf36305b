#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/accel.h"
#include "host/accel_xrt.h"
#include "host/audit.h"
#include "host/config.h"
#include "host/intake.h"

static char error[CONFIG_ERROR_CHARS];
static uint8_t sha256[CONFIG_SHA256_BYTES];

static struct config *parse(const char *first, const char *second)
{
    struct config_layer layers[2] = {{"first.yaml", first, first ? strlen(first) : 0},
                                     {"second.yaml", second, second ? strlen(second) : 0}};
    error[0] = '\0';
    return config_parse(layers, first ? second ? 2 : 1 : 0, sha256, error);
}

static void refused(const char *text, const char *because)
{
    struct config *c = parse(text, NULL);
    if (c || !strstr(error, because))
        print_error("%s: expected '%s' in '%s'\n", text, because, error);
    assert_null(c);
    assert_non_null(strstr(error, because));
}

static void defaults_are_the_documented_file(void **state)
{
    (void)state;
    struct config *c = parse(NULL, NULL);
    assert_non_null(c);
    assert_int_equal(c->symbols_count, 0);
    assert_int_equal(c->clock, CONFIG_CLOCK_REPLAY);
    assert_int_equal(c->killline.threshold_us, 100);
    assert_int_equal(c->trigger, INTAKE_ON_BBO);
    assert_int_equal(c->join.policy, MARKET_JOIN_SETTLED);
    assert_true(c->feed.verify_checksum);
    assert_int_equal(c->accel, CONFIG_ACCEL_CSIM);
    assert_int_equal(c->accel_build, CONFIG_BUILD_AUTO);
    assert_int_equal(c->accel_units, 1);
    assert_int_equal(c->cpu.variant, ACCEL_CPU_AUTO);
    assert_false(c->cpu.prepare_thread);
    assert_string_equal(c->feed.a.group, "");
    assert_int_equal(c->egress.port, 31075);
    assert_int_equal(c->audit.on_full, AUDIT_FULL_DROP);
    config_free(c);
    /* The defaults written out are a valid file and change nothing. */
    uint8_t before[CONFIG_SHA256_BYTES];
    memcpy(before, sha256, sizeof(before));
    c = parse(config_default_yaml, NULL);
    assert_non_null(c);
    assert_memory_equal(sha256, before, sizeof(before));
    config_free(c);
}

static void later_layers_win_key_by_key(void **state)
{
    (void)state;
    struct config *c = parse("killline: {threshold_us: 50, device_timeout_us: 77}\nsymbols: [AAPL, BRK.A]\n"
                             "feed: {a: {group: 233.54.12.111, port: 26477}}\n",
                             "killline:\n  threshold_us: 60\nclock: real\nsymbols: [MSFT]\n");
    assert_non_null(c);
    assert_int_equal(c->killline.threshold_us, 60);
    assert_int_equal(c->killline.device_timeout_us, 77);
    assert_int_equal(c->clock, CONFIG_CLOCK_REAL);
    assert_int_equal(c->symbols_count, 1);
    assert_string_equal(c->symbols[0], "MSFT");
    assert_string_equal(c->feed.a.group, "233.54.12.111");
    assert_int_equal(c->feed.a.port, 26477);
    assert_int_equal(c->feed.b.port, 0);
    config_free(c);
}

static void accelerators_are_chosen_by_name(void **state)
{
    (void)state;
    static const char *const builds[] = {"auto", "small", "fast", "large"};
    static const char *const variants[] = {"auto", "avx512vnni", "avx512bw", "avx2", "portable"};
    char text[64];
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), "{accel_build: %s, accel_units: %d}", builds[i], 1 + i % 2);
        struct config *c = parse(text, NULL);
        assert_non_null(c);
        assert_int_equal(c->accel_build, CONFIG_BUILD_AUTO + i);
        assert_int_equal(c->accel_units, 1 + i % 2);
        assert_string_equal(config_build_name(c->accel_build), builds[i]);
        config_free(c);
    }
    assert_null(config_build_name(CONFIG_BUILD_LARGE + 1));
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof(text), "{accel: cpu, cpu: {variant: %s, prepare_thread: true}}", variants[i]);
        struct config *c = parse(text, NULL);
        assert_non_null(c);
        assert_int_equal(c->accel, CONFIG_ACCEL_CPU);
        assert_int_equal(c->cpu.variant, ACCEL_CPU_AUTO + i);
        assert_string_equal(accel_cpu_variant_name((enum accel_cpu_variant)i), variants[i]);
        assert_true(c->cpu.prepare_thread);
        config_free(c);
    }
    refused("accel: gpu\n", "accel: 'gpu' is none of csim, cpu, xrt");
    refused("accel_build: medium\n", "accel_build: 'medium' is none of auto, small, fast, large");
    refused("cpu: {variant: sse2}\n",
            "variant: 'sse2' is none of auto, avx512vnni, avx512bw, avx2, portable");
    refused("accel_units: 0\n", "accel_units: 0 is not within 1..2");
    refused("accel_units: 3\n", "accel_units: 3 is not within 1..2");
    refused("{accel: cpu, accel_units: 2}\n", "accel=csim");
}

static void cards_are_listed(void **state)
{
    (void)state;
    struct config *c = parse(NULL, NULL);
    assert_non_null(c);
    assert_int_equal(c->xrt.devices_count, 1);
    assert_string_equal(c->xrt.devices[0], "0");
    assert_int_equal(c->xrt.units, 1);
    assert_string_equal(c->xrt.xclbin, "");
    assert_int_equal(c->xrt.mode, ACCEL_XRT_DOORBELL);
    config_free(c);
    /* a list replaces the list before it */
    c = parse("{accel: xrt, xrt: {devices: [\"0\", \"1\", \"2\"], units: 2, mode: run}}",
              "xrt: {devices: [\"0000:3b:00.1\", 1], xclbin: kl_small.xclbin}");
    assert_non_null(c);
    assert_int_equal(c->accel, CONFIG_ACCEL_XRT);
    assert_int_equal(c->xrt.devices_count, 2);
    assert_string_equal(c->xrt.devices[0], "0000:3b:00.1");
    assert_string_equal(c->xrt.devices[1], "1");
    assert_int_equal(c->xrt.units, 2);
    assert_string_equal(c->xrt.xclbin, "kl_small.xclbin");
    assert_int_equal(c->xrt.mode, ACCEL_XRT_RUN);
    config_free(c);
    static const char *const eight[] = {"xrt: {devices: [a, b, c, d, e, f, g, h]}", "xrt: {units: 8}",
                                        "xrt: {devices: [a, b, c, d], units: 2}",
                                        "xrt: {devices: [a, b], units: 4}"};
    for (size_t i = 0; i < sizeof(eight) / sizeof(eight[0]); i++) {
        c = parse(eight[i], NULL);
        if (!c)
            fail_msg("%s: %s", eight[i], error);
        config_free(c);
    }
    refused("xrt: {devices: [a, b, c, d, e, f, g, h, i]}", "first.yaml");
    refused("xrt: {devices: [a, b, c, d, e, f, g, h, i]}", "devices");
    refused("xrt: {devices: []}", "devices");
    refused("xrt: {devices: [\"\"]}", "devices");
    refused("xrt: {devices: \"0\"}", "devices");
    refused("xrt: {devices: [\"01234567890123456789012345678901\"]}", "devices");
    refused("xrt: {units: 0}", "xrt.units: 0 is not within 1..8");
    refused("xrt: {units: 9}", "xrt.units: 9 is not within 1..8");
    refused("xrt: {devices: [a, b, c], units: 3}",
            "xrt.devices, xrt.units: 3 devices with 3 units each: 8 units in all");
    refused("xrt: {mode: fast}", "mode: 'fast' is none of doorbell, run");
    refused("xrt: {card: 0}", "card");
    refused("{accel: xrt, accel_units: 2}", "accel_units: 2 that split");
    refused("{accel: xrt, accel_units: 2}", "xrt.devices, xrt.units"); /* what would be right */
    c = parse("{accel: csim, accel_units: 2, xrt: {units: 2}}", NULL);
    assert_non_null(c);
    config_free(c);
}

static void the_guard_has_its_limits(void **state)
{
    (void)state;
    struct config *c = parse(NULL, NULL);
    assert_non_null(c);
    assert_int_equal(c->guard.check_every, 1);
    assert_int_equal(c->guard.probes, 256);
    assert_int_equal(c->guard.retry_ms, 100);
    assert_false(c->guard.prove);
    config_free(c);
    c = parse("guard: {check_every: 0, prove: true, probes: 1, retry_ms: 60000}", NULL);
    assert_non_null(c);
    assert_int_equal(c->guard.check_every, 0);
    assert_int_equal(c->guard.probes, 1);
    assert_int_equal(c->guard.retry_ms, 60000);
    assert_true(c->guard.prove);
    config_free(c);
    c = parse("guard: {check_every: 4294967295, probes: 1000000, retry_ms: 1}", NULL);
    assert_non_null(c);
    assert_int_equal(c->guard.check_every, UINT32_MAX);
    config_free(c);
    refused("guard: {probes: 0}", "guard.probes: 0 is not within 1..1000000");
    refused("guard: {probes: 1000001}", "guard.probes: 1000001 is not within 1..1000000");
    refused("guard: {retry_ms: 0}", "guard.retry_ms: 0 is not within 1..60000");
    refused("guard: {retry_ms: 60001}", "guard.retry_ms: 60001 is not within 1..60000");
    refused("guard: {check_every: -1}", "check_every");
    refused("guard: {prove: maybe}", "prove: 'maybe' is none of true, false");
}

static void a_model_switch_is_off_unless_asked_for(void **state)
{
    (void)state;
    struct config *c = parse(NULL, NULL);
    assert_non_null(c);
    assert_string_equal(c->model_switch.model, "");
    assert_int_equal(c->model_switch.after_ms, 0);
    config_free(c);
    c = parse("model_switch: {model: next.klm}", "model_switch: {after_ms: 1500}");
    assert_non_null(c);
    assert_string_equal(c->model_switch.model, "next.klm");
    assert_int_equal(c->model_switch.after_ms, 1500);
    config_free(c);
    refused("model_switch: {after_ms: 1.5}", "after_ms: '1.5' is no whole number");
    refused("model_switch: {after_ms: 4294967296}", "after_ms");
    refused("model_switch: next.klm", "model_switch");
}

static void hash_tells_configurations_apart(void **state)
{
    (void)state;
    uint8_t a[CONFIG_SHA256_BYTES], b[CONFIG_SHA256_BYTES];
    config_free(parse("killline: {threshold_us: 50}", NULL));
    memcpy(a, sha256, sizeof(a));
    config_free(parse("killline: {threshold_us: 51}", NULL));
    memcpy(b, sha256, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    config_free(parse("killline: {threshold_us: 51}", "killline: {threshold_us: 50}"));
    assert_memory_equal(a, sha256, sizeof(a));
}

static void the_kill_line_stays_below_a_millisecond(void **state)
{
    (void)state;
    config_free(parse("killline: {threshold_us: 999}", NULL));
    assert_string_equal(error, "");
    refused("killline: {threshold_us: 1000}", "killline.threshold_us: 1000 is not within 1..999");
    refused("killline: {threshold_us: 0}", "killline.threshold_us");
}

/* No number is cut where its digits end: 1e3 is not 1. */
static void numbers_are_taken_whole_or_not_at_all(void **state)
{
    (void)state;
    static const char *const bad[] = {"1e3", "99.9", "50us", "0x32", "050", "5 0", "''", "' 50'"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "clock: real\nkillline: {threshold_us: %s}\n", bad[i]);
        refused(text, "first.yaml: threshold_us: '");
        refused(text, "' is no whole number in plain digits (line: 2)");
    }
    refused("feed: {a: {port: 26477.5}}", "port: '26477.5'");
    struct config *c = parse("killline: {threshold_us: '50'}\nfeed: {gap_wait_us: 0}\n", NULL);
    assert_non_null(c);
    assert_int_equal(c->killline.threshold_us, 50);
    assert_int_equal(c->feed.gap_wait_us, 0);
    config_free(c);
}

static void names_that_are_possible_are_listed(void **state)
{
    (void)state;
    refused("clock: sundial\n", "first.yaml: clock: 'sundial' is none of real, replay (line: 1)");
    refused("join: {policy: lax}\n", "policy: 'lax' is none of strict, settled");
    static const char *const no_bool[] = {"off", "nope", "0", "2",
                                          "''"}; /* libcyaml: true, but for 0 and '' */
    for (size_t i = 0; i < sizeof(no_bool) / sizeof(no_bool[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "feed: {verify_checksum: %s}\n", no_bool[i]);
        refused(text, "is none of true, false");
    }
}

static void a_second_document_is_refused(void **state)
{
    (void)state;
    refused("clock: real\n---\nkillline: {threshold_us: 5}\n", "first.yaml: more than one YAML document");
    struct config *c = parse("---\nkillline: {threshold_us: 5}\n...\n", NULL);
    assert_non_null(c);
    assert_int_equal(c->killline.threshold_us, 5);
    config_free(c);
}

static void errors_name_file_line_and_key(void **state)
{
    (void)state;
    refused("killline:\n  treshold_us: 5\n", "first.yaml");
    refused("killline:\n  treshold_us: 5\n", "treshold_us");
    refused("killline:\n  treshold_us: 5\n", "line: 2");
    refused("clock: sundial\n", "sundial");
    refused("killline: 5\n", "killline");
    refused("killline: {threshold_us: fast}\n", "threshold_us");
    refused("killline: {threshold_us: -1}\n", "threshold_us");
    refused("killline: {threshold_us: 4294967296}\n", "threshold_us");
    refused("feed: {a: {port: 65536}}\n", "port");
    refused("feed: {a: {group: 300.1.2.3}}\n", "feed.a.group");
    refused("feed: {b: {group: localhost}}\n", "feed.b.group");
    refused("symbols: [TOOLONGNAME]\n", "TOOLONGNAME");
    refused("audit: {ring_records: 1000}\n", "power of two");
    refused("book: {orders: 1}\n", "book.orders");
    refused("- a\n- b\n", "first.yaml");
    refused("a: [1, 2\n", "first.yaml");
    refused("\x01\x02\xff", "first.yaml");
    refused("", "first.yaml: holds no settings");
    refused("a: &x 1\nb: *x\n", "first.yaml");
}

static void too_many_symbols_are_refused(void **state)
{
    (void)state;
    char text[4096] = "symbols: [";
    for (int i = 0; i < KL_N_STREAM_MAX; i++)
        sprintf(text + strlen(text), "S%d,", i);
    strcat(text, "]");
    struct config *c = parse(text, NULL);
    assert_non_null(c);
    assert_int_equal(c->symbols_count, KL_N_STREAM_MAX);
    config_free(c);
    text[strlen(text) - 1] = '\0';
    strcat(text, "ONEMORE]");
    refused(text, "first.yaml");
}

static void set_text(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {{"killline.threshold_us=50", "{killline: {threshold_us: 50}}"},
                 {"clock=real", "{clock: real}"},
                 {"feed.a.group=1.2.3.4", "{feed: {a: {group: 1.2.3.4}}}"},
                 {"model=", "{model: \"\"}"},
                 {"model=a=b", "{model: a=b}"},
                 {"=5", NULL},
                 {"clock", NULL},
                 {"Clock=real", NULL},
                 {"a b=5", NULL},
                 {"a}=5", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = config_set_text(cases[i].in);
        if (cases[i].out)
            assert_string_equal(text, cases[i].out);
        else
            assert_null(text);
        free(text);
    }
}

static void addresses(void **state)
{
    (void)state;
    uint32_t ip = 1;
    assert_int_equal(config_parse_ip("", &ip), 0);
    assert_int_equal(ip, 0);
    assert_int_equal(config_parse_ip("233.54.12.111", &ip), 0);
    assert_true(ip == 0xe9360c6f);
    assert_int_equal(config_parse_ip("233.54.12", &ip), -1);
    assert_int_equal(config_parse_ip("233.54.12.111 ", &ip), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_documented_file),
        cmocka_unit_test(later_layers_win_key_by_key),
        cmocka_unit_test(accelerators_are_chosen_by_name),
        cmocka_unit_test(cards_are_listed),
        cmocka_unit_test(the_guard_has_its_limits),
        cmocka_unit_test(a_model_switch_is_off_unless_asked_for),
        cmocka_unit_test(hash_tells_configurations_apart),
        cmocka_unit_test(the_kill_line_stays_below_a_millisecond),
        cmocka_unit_test(numbers_are_taken_whole_or_not_at_all),
        cmocka_unit_test(names_that_are_possible_are_listed),
        cmocka_unit_test(a_second_document_is_refused),
        cmocka_unit_test(errors_name_file_line_and_key),
        cmocka_unit_test(too_many_symbols_are_refused),
        cmocka_unit_test(set_text),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
