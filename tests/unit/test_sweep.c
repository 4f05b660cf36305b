/* What a sweep is asked, and what one record says of every threshold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sweep_rig.h"

static void ranges_and_values(void **state)
{
    (void)state;
    char error[SWEEP_ERROR_CHARS];
    struct sweep_spec spec = {0};
    assert_int_equal(sweep_parse_thresholds("50us:1ms:50us", &spec, error), 0);
    assert_int_equal(spec.n_threshold, 19);
    assert_int_equal(spec.threshold_ns[0], 50000);
    assert_int_equal(spec.threshold_ns[18], 950000);
    assert_int_equal(sweep_parse_thresholds("100us,999999ns,5us:8us:2us,100us,1ns", &spec, error), 0);
    const uint32_t want[] = {1, 5000, 7000, 100000, 999999};
    assert_int_equal(spec.n_threshold, 5);
    assert_memory_equal(spec.threshold_ns, want, sizeof(want));
    assert_int_equal(spec.threshold_ns[5], 0); /* nothing of the longer list before it */
    assert_int_equal(sweep_parse_thresholds("1us:201us:1us", &spec, error), 0);
    assert_int_equal(spec.n_threshold, 200);
    assert_null(sweep_spec_check(&(struct sweep_spec){
        .n_threshold = 1, .threshold_ns = {5}, .horizon_ns = 1, .n_replicate = SWEEP_REPLICATES_MIN}));
}

static void bad_thresholds(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "no unit"},
        {"50", "no unit"},
        {"us", "no unit"},
        {"50s", "no unit"},
        {"-50us", "no unit"},
        {"1ms", "not below 1ms"},
        {"1000us", "not below 1ms"},
        {"50us:2ms:50us", "range has three values"},
        {"2ms", "above 1ms"},
        {"50us:1ms", "range has three values"},
        {"50us:1ms:", "range has three values"},
        {"50us:1ms:0us", "step is 0"},
        {"50us:50us:10us", "ends before"},
        {"90us:50us:10us", "ends before"},
        {"0us", "is 0"},
        {"0us:50us:10us", "is 0"},
        {"1us:202us:1us", "too many"},
        {"50us:1ms:50us:7us", "neither a comma"},
        {"50us 60us", "neither a comma"},
        {"50us,", "no unit"},
        {"99999999999999999999999us", "above 1ms"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char error[SWEEP_ERROR_CHARS] = "";
        struct sweep_spec spec = {.n_threshold = 77};
        if (sweep_parse_thresholds(bad[i].text, &spec, error) != -1 || !strstr(error, bad[i].says) ||
            !strstr(error, "50us:1ms:50us") || spec.n_threshold != 77)
            fail_msg("'%s': %s", bad[i].text, error);
    }
}

static void horizons_and_targets(void **state)
{
    (void)state;
    char error[SWEEP_ERROR_CHARS];
    struct sweep_spec spec = {0};
    uint32_t ppm = 7;
    assert_int_equal(sweep_parse_horizon("10ticks", &spec, error), 0);
    assert_true(spec.horizon_ticks == 10 && spec.horizon_ns == 0);
    assert_int_equal(sweep_parse_horizon("100ms", &spec, error), 0);
    assert_true(spec.horizon_ticks == 0 && spec.horizon_ns == 100000000);
    assert_int_equal(sweep_parse_horizon("1s", &spec, error), 0);
    assert_true(spec.horizon_ns == 1000000000);
    static const char *const bad[] = {"",        "10",       "0ticks", "65537ticks", "ticks",
                                      "-1ticks", "0ms",      "601s",   "100msx",     "10 ticks",
                                      "1.5ms",   "10tickss", " 5ms"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (sweep_parse_horizon(bad[i], &spec, error) != -1 || !strstr(error, "10ticks or 100ms"))
            fail_msg("'%s'", bad[i]);
    assert_int_equal(sweep_parse_target("1%", &ppm, error), 0);
    assert_int_equal(ppm, 10000);
    assert_int_equal(sweep_parse_target("0.25%", &ppm, error), 0);
    assert_int_equal(ppm, 2500);
    assert_int_equal(sweep_parse_target("0%", &ppm, error), 0);
    assert_int_equal(ppm, 0);
    assert_int_equal(sweep_parse_target("99.9999%", &ppm, error), 0);
    assert_int_equal(ppm, 999999);
    static const char *const bad_target[] = {"", "1", "%", "100%", "-1%", "0.00001%", "1%%", "1e1%"};
    for (size_t i = 0; i < sizeof(bad_target) / sizeof(bad_target[0]); i++)
        if (sweep_parse_target(bad_target[i], &ppm, error) != -1)
            fail_msg("'%s'", bad_target[i]);
}

static void signs_of_classes(void **state)
{
    (void)state;
    const struct {
        char name[SWEEP_N_CLASS][8];
        uint32_t n;
        int8_t sign[SWEEP_N_CLASS];
    } c[] = {
        {{"down", "flat", "up"}, 3, {-1, 0, 1}},
        {{"up", "down"}, 2, {1, -1}},
        {{"sell", "hold", "buy"}, 3, {-1, 0, 1}},
        {{"up", "dn"}, 2, {-1, 1}}, /* not all known: by index */
        {{"a", "b"}, 2, {-1, 1}},
        {{"a", "b", "c", "d", "e"}, 5, {-1, -1, 0, 1, 1}},
        {{"a"}, 1, {0}},
        {{""}, 0, {0}},
        {{"a", "", "c"}, 0, {0}},
    };
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        int8_t sign[SWEEP_N_CLASS];
        assert_int_equal(sweep_class_signs(c[i].name, sign), c[i].n);
        if (c[i].n)
            assert_memory_equal(sign, c[i].sign, sizeof(sign));
    }
}

enum { N = 6 };
static const uint64_t line[N] = {1000, 3999, 4000, 9999, 10000, 60000};

static unsigned verdict_at(const struct sweep_path *p, unsigned j)
{
    return j < p->stale_from ? p->before : j < p->at ? VERDICT_STALE : p->after;
}

static void expect_path(const struct audit_prediction *p, const unsigned want[N], int is_line)
{
    struct sweep_path path;
    sweep_path_of(p, line, N, &path);
    for (unsigned j = 0; j < N; j++)
        if (verdict_at(&path, j) != want[j])
            fail_msg("threshold %u: %s, expected %s", (unsigned)line[j], verdict_name(verdict_at(&path, j)),
                     verdict_name(want[j]));
    assert_int_equal(path.is_line, is_line);
}

enum { P = VERDICT_PUBLISHED, E = VERDICT_EXPECTED_LATE, S = VERDICT_STALE, H = VERDICT_HALTED };

static void edges_of_an_answer(void **state)
{
    (void)state;
    struct sweep_path path;
    /* Age 10000, submitted at 1000, expected 3000: from 4000 on it would have been submitted. */
    struct audit_prediction p = rig_answer("A", 1, 10000, 0, 1, 2);
    expect_path(&p, (unsigned[]){E, E, S, S, P, P}, 1);
    p.age_cycles = 9999;
    expect_path(&p, (unsigned[]){E, E, S, P, P, P}, 1);
    p.age_cycles = 10001;
    expect_path(&p, (unsigned[]){E, E, S, S, S, P}, 1);
    /* Quicker than expected: published where its age fits, though it would not have been submitted. */
    p = rig_answer("A", 1, 1000, 0, 1, 2);
    expect_path(&p, (unsigned[]){P, P, P, P, P, P}, 1);
    sweep_path_of(&p, line, N, &path);
    assert_true(path.at == 0 && path.submitted_from == 2);
    /* Stale, in a log whose line it passed before the submit: stale again at that line. */
    p = rig_answer("A", 1, 60000, 0, 1, 2);
    p.threshold_cycles = 3999;
    expect_path(&p, (unsigned[]){E, S, S, S, S, P}, 1);
    /* The same while the ladder has halted: the line does not decide on it. */
    p.flags |= GOVERNOR_HALTED * 64;
    expect_path(&p, (unsigned[]){E, S, S, S, S, H}, 0);
    /* A clamped age, and a stamp ahead of its submit. */
    p = rig_answer("A", 1, 0, 0, 1, 2);
    p.flags |= AUDIT_FLAG_AGE_CLAMPED;
    p.arrival = p.submitted + 5;
    expect_path(&p, (unsigned[]){P, P, P, P, P, P}, 1);
}

static void what_was_never_inferred(void **state)
{
    (void)state;
    struct sweep_path path;
    struct audit_prediction p = rig_answer("A", 1, 7000, 0, 1, 2);
    p.verdict = VERDICT_EXPECTED_LATE;
    p.flags = 0;
    p.submitted = p.completed = 0;
    p.threshold_cycles = 9000;
    expect_path(&p, (unsigned[]){E, E, E, E, P, P}, 0); /* 7000 + 3000 */
    sweep_path_of(&p, line, N, &path);
    assert_true(path.is_estimated);
    /* The kernel did not begin with what was left: the line in force was not enough, whatever was expected.
     */
    p.flags = AUDIT_FLAG_KERNEL_LATE;
    p.submitted = p.arrival + 500;
    p.threshold_cycles = 4000;
    expect_path(&p, (unsigned[]){E, E, E, P, P, P}, 0);
    p.expected_cycles = UINT64_MAX;
    expect_path(&p, (unsigned[]){E, E, E, E, E, E}, 0);
    p.expected_cycles = 3000;
    /* While halted it would have been halted. */
    p.flags = AUDIT_FLAG_KERNEL_LATE | GOVERNOR_HALTED * 64;
    expect_path(&p, (unsigned[]){E, E, E, H, H, H}, 0);
    sweep_path_of(&p, line, N, &path);
    assert_false(path.is_estimated);
    p.flags = AUDIT_FLAG_AGE_UNKNOWN;
    expect_path(&p, (unsigned[]){E, E, E, E, E, E}, 0);
}

static void what_no_threshold_changes(void **state)
{
    (void)state;
    static const unsigned fixed[] = {VERDICT_SUPERSEDED, VERDICT_BOOK_UNRELIABLE, VERDICT_WARMING_UP,
                                     VERDICT_DEVICE_ERROR, VERDICT_HALTED};
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        for (unsigned rung = 0; rung < GOVERNOR_N_RUNG; rung++) {
            const unsigned v = fixed[i];
            struct audit_prediction p = rig_answer("A", 1, 10000, 0, 1, 2);
            p.verdict = (uint8_t)v;
            p.flags = (uint16_t)(AUDIT_FLAG_INFERRED | AUDIT_FLAG_EGRESS_FAILED | rung * 64);
            expect_path(&p, (unsigned[]){v, v, v, v, v, v}, 0);
        }
    struct audit_prediction p = rig_answer("A", 1, UINT64_MAX, 0, 1, 2);
    p.flags |= AUDIT_FLAG_AGE_UNKNOWN;
    expect_path(&p, (unsigned[]){S, S, S, S, S, S}, 0);
    p.age_cycles = 5; /* whatever the field says */
    expect_path(&p, (unsigned[]){S, S, S, S, S, S}, 0);
}

static void thresholds_in_cycles(void **state)
{
    (void)state;
    const struct sweep_spec spec = rig_spec("1ns,50us,999999ns", "1ticks");
    struct audit_header h = log_header(AUDIT_CLOCK_REAL); /* 2.5 GHz */
    uint64_t cycles[SWEEP_N_THRESHOLD_MAX];
    sweep_thresholds_cycles(&spec, &h, cycles);
    assert_int_equal(cycles[0], 3); /* 2.5, rounded as killline run rounds */
    assert_int_equal(cycles[1], 125000);
    assert_int_equal(cycles[2], 2499998);
    h = log_header(AUDIT_CLOCK_REPLAY);
    sweep_thresholds_cycles(&spec, &h, cycles);
    assert_int_equal(cycles[2], 999999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_and_values),         cmocka_unit_test(bad_thresholds),
        cmocka_unit_test(horizons_and_targets),      cmocka_unit_test(signs_of_classes),
        cmocka_unit_test(edges_of_an_answer),        cmocka_unit_test(what_was_never_inferred),
        cmocka_unit_test(what_no_threshold_changes), cmocka_unit_test(thresholds_in_cycles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
