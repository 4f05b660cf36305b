#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/accel.h"
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
    refused("accel: gpu\n", "accel: 'gpu' is none of csim, cpu");
    refused("accel_build: medium\n", "accel_build: 'medium' is none of auto, small, fast, large");
    refused("cpu: {variant: sse2}\n",
            "variant: 'sse2' is none of auto, avx512vnni, avx512bw, avx2, portable");
    refused("accel_units: 0\n", "accel_units: 0 is not within 1..2");
    refused("accel_units: 3\n", "accel_units: 3 is not within 1..2");
    refused("{accel: cpu, accel_units: 2}\n", "accel=csim");
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
