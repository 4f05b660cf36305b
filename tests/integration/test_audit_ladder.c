/* What version 2 of the audit log says of ladder, alerts, thresholds, arms, orders and clock, through the
 * command; and every verdict given anew from what show --json prints alone. KILLLINE: the killline program.
 */
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit_golden.h"
#include "command.h"

static char dir[] = "/tmp/test_audit_ladder_XXXXXX", path[64], error[AUDIT_ERROR_CHARS];
static struct command_result said; /* by the last command */

#define run(...) keep(command_run("audit " __VA_ARGS__))

static int keep(struct command_result result)
{
    command_free(&said);
    said = result;
    return said.status;
}

static void assert_has(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' is not in: %.3000s", what, text);
}

static void write_bytes(const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, size, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static void write_golden(void)
{
    static uint8_t data[GOLDEN_BYTES];
    golden_build(data, 2);
    write_bytes(data, sizeof(data));
}

static void test_verify(void **state)
{
    (void)state;
    write_golden();
    assert_int_equal(run("verify %s", path), 0);
    assert_has(said.out,
               "\n  3 moves on the ladder, 7 alerts raised or gone, 2 changes of the threshold, 2 orders, 1 "
               "steps back of the clock, 1 predictions of unknown age\n  head ");
    assert_int_equal(run("verify %s --json", path), 0);
    json_t *o = json_loads(said.out, 0, NULL);
    assert_non_null(o);
    const json_t *events = json_object_get(o, "events_by_name");
    int64_t sum = 0;
    for (unsigned code = 1; code < AUDIT_EVENT_CODE_COUNT; code++) {
        int64_t n = 0;
        for (unsigned i = 0; i < GOLDEN_N_RECORD; i++) {
            const struct audit_record r = golden_record(i);
            n += r.prediction.kind == AUDIT_EVENT && r.event.code == code;
        }
        assert_int_equal(json_integer_value(json_object_get(events, audit_event_name(code))), n);
        sum += n;
    }
    assert_int_equal(json_integer_value(json_object_get(o, "events")), sum);
    assert_int_equal(json_integer_value(json_object_get(o, "age_unknown")), 1);
    json_decref(o);
    /* a log without any of it has no such line */
    unlink(path);
    struct audit_config config = {
        .path = path, .n_ring = 64, .on_full = AUDIT_FULL_WAIT, .header = log_header(AUDIT_CLOCK_REPLAY)};
    struct audit_log *audit = audit_open(&config, error);
    assert_non_null(audit);
    log_day(audit, 100, 1);
    assert_int_equal(audit_close(audit, NULL, error), 0);
    assert_int_equal(run("verify %s", path), 0);
    assert_null(strstr(said.out, "moves on"));
    assert_has(said.out, "in the ring\n  head ");
}

static void test_show_text(void **state)
{
    (void)state;
    write_golden();
    assert_int_equal(run("show %s", path), 0);
    for (unsigned i = 0; i < GOLDEN_N_EVENT; i++) {
        const struct golden_event *g = &golden_events[i];
        char line[300];
        snprintf(line, sizeof(line), "EVENT %s%s%s", audit_event_name(g->code), g->says[0] ? " " : "",
                 g->says);
        assert_has(said.out, line);
    }
    assert_has(said.out, "ACTIVE -> WARNING: latency near or over the line\n");
    assert_has(said.out, ": odd prices\n"); /* once */
    assert_has(said.out, "  stale            flat         unknown      75.000");
}

/* An event of the appliance itself has no exchange time: it is placed by the log's clock. */
static void test_time_of_events(void **state)
{
    (void)state;
    const struct audit_header header = log_header(AUDIT_CLOCK_REAL);
    struct audit_config config = {.path = path, .n_ring = 64, .on_full = AUDIT_FULL_WAIT, .header = header};
    assert_int_equal(audit_utc_ns(&header, header.tsc0), 1771509600000000000);
    assert_int_equal(audit_utc_ns(&header, header.tsc0 - 5), 1771509599999999998);
    assert_int_equal(audit_utc_ns(&header, 0), 1771509200000000000);
    struct audit_header slow = header;
    slow.tsc_hz = 1;
    assert_int_equal(audit_utc_ns(&slow, header.tsc0 + 10000000000), 0); /* 317 years */
    unlink(path);
    struct audit_log *audit = audit_open(&config, error);
    assert_non_null(audit);
    log_event(audit, AUDIT_EVENT_GAP, header.tsc0 + 3906250000, 0, "", 7, 1, "");
    log_event(audit, AUDIT_EVENT_GAP, header.tsc0, 34200000000000, "", 8, 1, "");
    log_event(audit, AUDIT_EVENT_STOP, header.tsc0 + 1, 0, "", 0, 0, "");
    assert_int_equal(audit_close(audit, NULL, error), 0);
    assert_int_equal(run("show %s --event=gap", path), 0);
    assert_has(said.out, "  14:00:01.562500Z              EVENT gap from sequence number 7");
    assert_has(said.out, "  09:30:00.000000000            EVENT gap from sequence number 8");
    assert_int_equal(run("show %s --event=gap --json", path), 0);
    assert_has(said.out, "\"utc_ns\":1771509601562500000,");
    assert_has(said.out, "\"utc_ns\":1771509600000000000,");
    char name[80];
    snprintf(name, sizeof(name), "%s/r.html", dir);
    assert_int_equal(run("report %s --out %s", path, name), 0);
    char *page = command_read_file(name);
    assert_has(page, "<th>exchange time, or UTC (Z)</th>");
    assert_has(page, "<td class=\"mono w\">14:00:01.562500Z</td>");
    assert_has(page, "<td class=\"mono w\">09:30:00.000000</td>");
    free(page);
    unlink(path);
}

static void test_show_events(void **state)
{
    (void)state;
    write_golden();
    assert_int_equal(run("show %s --event --json | grep -c '\"kind\":\"event\"'", path), 0);
    assert_int_equal(atoi(said.out), GOLDEN_N_EVENT + 2);
    assert_int_equal(run("show %s --event --json | wc -l", path), 0);
    assert_int_equal(atoi(said.out), GOLDEN_N_EVENT + 2);
    for (unsigned code = 1; code < AUDIT_EVENT_CODE_COUNT; code++) {
        int n = 0;
        for (unsigned i = 0; i < GOLDEN_N_RECORD; i++) {
            const struct audit_record r = golden_record(i);
            n += r.prediction.kind == AUDIT_EVENT && r.event.code == code;
        }
        const char *name = audit_event_name(code);
        assert_int_equal(run("show %s --event=%s --json | grep -c '\"event\":\"%s\"'", path, name, name), 0);
        assert_int_equal(atoi(said.out), n);
        assert_int_equal(run("show %s --event=%s --json | wc -l", path, name), 0);
        assert_int_equal(atoi(said.out), n);
    }
    assert_int_equal(run("show %s --event=nothing", path), 2);
    assert_has(said.err, "no event 'nothing'");
    assert_int_equal(run("show %s --event --verdict stale", path), 0); /* no record is both */
    assert_has(said.err, "none of its");
}

static int64_t integer(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_integer(value))
        fail_msg("no integer '%s'", key);
    return json_integer_value(value);
}

static int flag(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(json_object_get(o, "flags"), key);
    assert_true(json_is_boolean(value));
    return json_is_true(value);
}

/* Gives the verdict anew, as far as the stamps alone decide it; fails where the record has another. From the
 * JSON object only. Returns 1 if they did decide. */
static int recompute(const json_t *o)
{
    const char *verdict = json_string_value(json_object_get(o, "verdict"));
    const int64_t arrival = integer(o, "arrival"), decided = integer(o, "decided"),
                  age = flag(o, "age_unknown") ? -1 : integer(o, "age_cycles"),
                  threshold = integer(o, "threshold_cycles"), expected = integer(o, "expected_cycles");
    const int unknown = flag(o, "age_unknown"), published = !strcmp(verdict, "published");
    assert_int_equal(published, integer(o, "publish_seq") != 0);
    if (unknown) {
        assert_true(json_is_null(json_object_get(o, "age_ns")));
        assert_true(json_is_null(json_object_get(o, "age_cycles")));
        assert_false(published);
        return 1;
    }
    if (flag(o, "age_clamped"))
        assert_true(age == 0 && arrival > decided);
    else
        assert_true(age == decided - arrival && age >= 0);
    if (flag(o, "egress_failed"))
        assert_string_equal(verdict, "device-error");
    const int reached =
        flag(o, "inferred") && (published || !strcmp(verdict, "stale") || flag(o, "egress_failed"));
    if (reached) /* the last check */
        assert_int_equal(age <= threshold, strcmp(verdict, "stale") != 0);
    else if (!strcmp(verdict, "expected-late"))
        assert_true(flag(o, "kernel_late") || age + expected > threshold);
    else
        assert_false(published);
    return reached || !strcmp(verdict, "expected-late");
}

static void recompute_all(int n_min)
{
    int n = 0;
    for (const char *line = said.out, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_error_t e;
        json_t *o = json_loadb(line, (size_t)(end - line), 0, &e);
        if (!o)
            fail_msg("%s: %.*s", e.text, (int)(end - line), line);
        if (!strcmp(json_string_value(json_object_get(o, "kind")), "prediction"))
            n += recompute(o);
        json_decref(o);
    }
    assert_true(n >= n_min);
}

static void test_verdicts_from_json_alone(void **state)
{
    (void)state;
    write_golden();
    assert_int_equal(run("show %s --json", path), 0);
    recompute_all(7);
    unlink(path);
    struct audit_config config = {
        .path = path, .n_ring = 1024, .on_full = AUDIT_FULL_WAIT, .header = log_header(AUDIT_CLOCK_REAL)};
    struct audit_log *audit = audit_open(&config, error);
    assert_non_null(audit);
    log_day(audit, 20000, 3);
    assert_int_equal(audit_close(audit, NULL, error), 0);
    assert_int_equal(run("show %s --json", path), 0);
    recompute_all(10000);
}

static void test_show_json(void **state)
{
    (void)state;
    write_golden();
    assert_int_equal(run("show %s --json", path), 0);
    assert_has(said.out, "\"age_cycles\":null");
    const char *line = said.out;
    for (unsigned i = 0; i < GOLDEN_N_RECORD; i++) {
        const char *end = strchr(line, '\n');
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_non_null(o);
        line = end + 1;
        const struct audit_record r = golden_record(i);
        if (r.prediction.kind == AUDIT_EVENT) {
            const struct golden_event *g = i < GOLDEN_N_EVENT ? &golden_events[i] : NULL;
            const char *detail = json_string_value(json_object_get(o, "detail"));
            const int has = r.event.code >= AUDIT_EVENT_RUNG || (r.event.code >= AUDIT_EVENT_CARD_FAILOVER &&
                                                                 r.event.code <= AUDIT_EVENT_CARD_STATE_LOST);
            assert_int_equal(detail != NULL, has);
            if (g && has)
                assert_memory_equal(detail, g->says, strlen(g->says));
            json_decref(o);
            continue;
        }
        const struct audit_prediction *p = &r.prediction;
        char hash[17];
        snprintf(hash, sizeof(hash), "%016" PRIx64, p->model_hash);
        assert_string_equal(json_string_value(json_object_get(o, "model_hash")), hash);
        assert_string_equal(json_string_value(json_object_get(o, "rung")),
                            governor_rung_name((p->flags >> 6) & 3));
        assert_string_equal(json_string_value(json_object_get(o, "arm")),
                            p->flags & AUDIT_FLAG_ARM_B ? "B" : "A");
        static const struct {
            unsigned flag;
            const char *name;
        } flags[] = {{1, "age_clamped"},   {2, "kernel_late"}, {4, "inferred"},     {16, "mirror"},
                     {8, "egress_failed"}, {512, "batch"},     {256, "age_unknown"}};
        assert_int_equal(json_object_size(json_object_get(o, "flags")), 7);
        for (size_t k = 0; k < 7; k++)
            assert_int_equal(flag(o, flags[k].name), (p->flags & flags[k].flag) != 0);
        json_decref(o);
    }
    assert_string_equal(line, "");
}

/* Version 1 knew neither ladder nor arms nor the model of a prediction. */
static void test_version_1(void **state)
{
    (void)state;
    assert_int_equal(run("show %s/tests/data/audit_v1.kla --json", KL_SOURCE_DIR), 0);
    assert_has(said.out, "\"rung\":null,\"arm\":null,\"model_hash\":null");
    assert_int_equal(run("report %s/tests/data/audit_v1.kla --out %s/r.html", KL_SOURCE_DIR, dir), 0);
}

static char *report(void)
{
    char name[80];
    snprintf(name, sizeof(name), "%s/r.html", dir);
    assert_int_equal(run("report %s --out %s", path, name), 0);
    char *page = command_read_file(name);
    assert_non_null(page);
    return page;
}

static void test_report(void **state)
{
    (void)state;
    write_golden();
    char *page = report();
    for (unsigned i = 0; i < GOLDEN_N_EVENT; i++) {
        const struct golden_event *g = &golden_events[i];
        if (g->code < AUDIT_EVENT_RUNG || strstr(g->says, "->"))
            continue; /* the arrow is escaped; below */
        assert_has(page, g->says);
    }
    assert_has(page, "<td>ACTIVE -&#62; WARNING: latency near or over the line ");
    assert_has(page, "50.000 us -&#62; 60.000 us, relaxed: backlog 31.250 us old, receive ring 45 % full");
    assert_has(page, "BACKUP -&#62; HALTED: operator, latched");
    assert_has(page, "<h2>Ladder and threshold</h2>");
    assert_has(page, "predictions in HALTED");
    assert_has(page, "1 predictions of unknown age are not in here");
    assert_has(page, "2 of them were submitted together");
    assert_has(page, "<h2>Arms A and B</h2>");
    assert_has(
        page,
        "<td>A</td><td class=\"r\">50.0 \xc2\xb5s</td><td class=\"r\">8</td><td class=\"r\">1 (12.5 %)");
    assert_has(page, "<td>B</td><td class=\"r\">75.0 \xc2\xb5s</td><td class=\"r\">8</td>");
    assert_has(page, "kill line 50.0 "); /* arm A's */
    assert_has(page, "<span>kill line, arm A</span>");
    assert_null(strstr(page, "The line moved"));
    free(page);
}

/* Rungs and thresholds over time; predictions of unknown age stay out of the ages. */
static void test_report_of_a_moving_threshold(void **state)
{
    (void)state;
    enum { N = 1000 };
    unlink(path);
    struct audit_config config = {
        .path = path, .n_ring = 1024, .on_full = AUDIT_FULL_WAIT, .header = log_header(AUDIT_CLOCK_REPLAY)};
    struct audit_log *audit = audit_open(&config, error);
    uint64_t seed = 1;
    unsigned n_warning = 0, n_unknown = 0;
    for (unsigned i = 0; i < N; i++) {
        struct audit_prediction p = log_prediction(&seed, i);
        const int warning = i >= N / 2, unknown = i % 10 == 3;
        p.verdict = unknown ? VERDICT_STALE : VERDICT_PUBLISHED;
        p.threshold_cycles = warning ? 80000 : 50000;
        p.flags = (uint16_t)(AUDIT_FLAG_INFERRED | 64 * warning | (unknown ? AUDIT_FLAG_AGE_UNKNOWN : 0));
        p.age_cycles = unknown ? UINT64_MAX : p.age_cycles;
        n_warning += (unsigned)warning;
        n_unknown += (unsigned)unknown;
        audit_reserve(audit)->prediction = p;
        audit_commit(audit);
    }
    audit_stop(audit, 1);
    assert_int_equal(audit_close(audit, NULL, error), 0);
    char *page = report();
    assert_has(page, "The line moved 1 times, between 50.0 \xc2\xb5s and 80.0 \xc2\xb5s");
    assert_has(page, "threshold in force</text>");
    unsigned long shown[2] = {0, 0};
    for (int rung = 0; rung < 2; rung++) {
        char start[32];
        snprintf(start, sizeof(start), "<rect class=\"l%d\"", rung);
        for (const char *c = page; (c = strstr(c, start)); c++)
            shown[rung] += strtoul(strstr(c, "<title>") + 7, NULL, 10);
    }
    assert_int_equal(shown[0], N - n_warning);
    assert_int_equal(shown[1], n_warning);
    char text[64];
    snprintf(text, sizeof(text), "%u predictions of unknown age", n_unknown);
    assert_has(page, text);
    snprintf(text, sizeof(text), "all, at their verdict</td><td class=\"r\">%u<", N - n_unknown);
    assert_has(page, text);
    assert_null(strstr(page, "Arms A and B"));
    free(page);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/audit.kla", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_show_text),
        cmocka_unit_test(test_time_of_events),
        cmocka_unit_test(test_show_events),
        cmocka_unit_test(test_show_json),
        cmocka_unit_test(test_verdicts_from_json_alone),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_report_of_a_moving_threshold),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    keep(command_shell("rm -rf %s", dir));
    result |= said.status != 0;
    command_free(&said);
    return result;
}
