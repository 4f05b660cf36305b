/* Control beside a real governor and a thread that plays the poll loop: orders, the ladder's lines, what is
 * in the file when, restarts and kills in each rung. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>

#include "test_control_rig.h"

/* ---- orders ---- */

static void halt_and_resume(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        json_t *root = ask(halt);
        /* When it is answered, all of it is so. */
        expect_file(GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1, by_ann(), "smoke");
        assert_true(order_is_halted(&rig.desk));
        assert_string_equal(rig.by, by_ann());
        assert_string_equal(rig.reason, "smoke");
        assert_true(is_true(root, "ok") && is_true(root, "acknowledged") && is_true(root, "saved") &&
                    is_true(root, "running"));
        assert_string_equal(text(root, "by"), by_ann());
        assert_int_equal(number(root, "pid"), getpid());
        assert_in_range(number(root, "ack_ns"), 1, 1000000000);
        assert_null(json_object_get(root, "error"));
        json_decref(root);
        json_decref(ask(halt)); /* once more is no harm */

        root = ask(ask_status);
        assert_string_equal(text(root, "rung"), "HALTED");
        assert_string_equal(text(root, "by"), by_ann());
        json_decref(root);

        root = ask(resume);
        expect_resumed(by_bob(), "aired");
        assert_false(order_is_halted(&rig.desk));
        assert_true(is_true(root, "ok"));
        assert_in_range(number(root, "ack_ns"), 1, 1000000000);
        json_decref(root);
        rig_await(&rig, GOVERNOR_ACTIVE, 0); /* it is quiet */

        root = ask(resume);
        assert_false(is_true(root, "ok"));
        assert_string_equal(text(root, "error"), "nothing to resume: it is not halted, but ACTIVE");
        json_decref(root);
        expect_file(GOVERNOR_ACTIVE, GOVERNOR_BY_QUIET, 0, by_bob(), "aired");
    }
    char line[256];
    snprintf(line, sizeof(line), "Z killline: HALTED: operator: %s: smoke; nothing is published until ",
             by_ann());
    expect_err(line);
    snprintf(line, sizeof(line), "Z killline: WARNING: operator: %s: aired\n", by_bob());
    expect_err(line);
    expect_err("Z killline: ACTIVE: quiet again\n");
    passed = 1;
}

/* The poll loop does not come round: the halt is in force and in the file, and the answer says so. */
static void hanging_loop(void **state)
{
    (void)state;
    rig.hangs = 1;
    json_t *root = ask(halt);
    assert_true(order_is_halted(&rig.desk));
    expect_file(GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1, by_ann(), "smoke");
    assert_false(is_true(root, "ok") || is_true(root, "acknowledged"));
    assert_true(is_true(root, "saved"));
    assert_true(json_is_null(json_object_get(root, "ack_ns")));
    assert_non_null(strstr(text(root, "error"), "not acknowledged within 1000 ms: the halt is in force"));
    json_decref(root);
    root = ask(resume);
    assert_non_null(strstr(text(root, "error"), "still halted"));
    json_decref(root);
    expect_file(GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1, by_ann(), "smoke");
    root = ask(ask_status);
    assert_string_equal(text(root, "rung"), "HALTED");
    json_decref(root);
    rig.hangs = 0;
    root = ask(resume);
    assert_true(is_true(root, "ok"));
    json_decref(root);
    expect_resumed(by_bob(), "aired");
    passed = 1;
}

/* A resume that waits for a hanging loop, and a halt after it: the halt it is. */
static void halt_behind_a_resume(void **state)
{
    (void)state;
    json_decref(ask(halt));
    rig.hangs = 1;
    json_t *root = ask(resume);
    assert_non_null(
        strstr(text(root, "error"), "it is resumed when the loop goes on, and halted until then"));
    expect_file(GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1, by_ann(), "smoke"); /* not bob's yet */
    json_decref(root);
    root = ask("{\"command\":\"halt\",\"by\":\"eve\",\"reason\":\"no!\"}");
    assert_false(is_true(root, "acknowledged"));
    json_decref(root);
    rig.hangs = 0;
    for (int i = 0; i < 2000 && strcmp(rig.reason, "no!"); i++) {
        assert_true(order_is_halted(&rig.desk));
        rig_sleep_ms(5);
    }
    assert_string_equal(rig.reason, "no!"); /* the loop was told of it */
    assert_true(order_is_halted(&rig.desk));
    rig_sleep_ms(50);
    struct governor_stats stats;
    governor_read(rig.governor, &stats);
    assert_int_equal(stats.rung, GOVERNOR_HALTED);
    assert_int_equal(stats.latched, 1);
    struct state_file s;
    assert_int_equal(control_read(rig.folder, &s, error), 0);
    assert_int_equal(s.rung, GOVERNOR_HALTED);
    assert_string_equal(s.reason, "no!");
    passed = 1;
}

/* ---- ladder ---- */

static void ladder(void **state)
{
    (void)state;
    rig.ages_us = 90;
    struct state_file s = rig_await(&rig, GOVERNOR_WARNING, 0);
    assert_int_equal(s.cause, GOVERNOR_LATENCY);
    expect_err(" % of the threshold (enter 80 %)\n");
    expect_err("Z killline: WARNING: latency near or over the line: p99 9");
    expect_err("Z killline: alert: latency near or over the line: p99 9");
    json_t *root = ask(ask_status);
    for (int i = 0; i < 1000 && (strcmp(text(root, "rung"), "WARNING") ||
                                 number(json_object_get(root, "window"), "count") <= 20);
         i++) { /* a stall of this thread or the loop's empties the window */
        json_decref(root);
        rig_sleep_ms(10);
        root = ask(ask_status);
    }
    assert_string_equal(text(root, "rung"), "WARNING");
    assert_string_equal(text(root, "cause"), "latency near or over the line");
    assert_string_equal(text(root, "run"), "a day");
    assert_string_equal(text(root, "out"), "out/folder");
    assert_in_range(number(root, "threshold_ns"), 99999, 100001);
    assert_string_equal(json_string_value(json_array_get(json_object_get(root, "alerts"), 0)),
                        governor_metric_name(GOVERNOR_LATENCY));
    const json_t *w = json_object_get(root, "window");
    assert_in_range(number(w, "p99_ns"), 90000, 90000 * 17 / 16 + 1);
    assert_int_equal(number(w, "p99_minus_p50_ns"), number(w, "p99_ns") - number(w, "p50_ns"));
    assert_true(number(w, "count") > 20);
    assert_int_equal(number(w, "count"), number(json_object_get(w, "by_verdict"), "published"));
    assert_true(number(json_object_get(root, "totals"), "published") >= number(w, "count"));
    assert_int_equal(number(root, "audit_lost"), 0);
    assert_int_equal(strlen(text(root, "since_utc")), strlen("2026-12-01T02:03:04.123Z"));
    number(json_object_get(root, "ring"), "used");
    number(json_object_get(root, "throttle"), "device_faults");
    json_decref(root);

    rig.ages_us = 160;
    rig_await(&rig, GOVERNOR_BACKUP, 0);
    expect_err("Z killline: BACKUP: latency near or over the line: p99 1");
    expect_err("(enter 150 %)");
    rig.ages_us = 400;
    s = rig_await(&rig, GOVERNOR_HALTED, 0);
    assert_true(s.n_halt_fault >= 1);
    expect_err("Z killline: HALTED: latency near or over the line: p99 4");
    expect_err("(enter 300 %); nothing is published\n");
    rig.ages_us = 5;
    rig_await(&rig, GOVERNOR_ACTIVE, 0);
    expect_err("Z killline: BACKUP: quiet again\n");
    expect_err("Z killline: ACTIVE: quiet again\n");
    expect_err("Z killline: alert over: latency near or over the line: p99 ");
    passed = 1;
}

static void losses(void **state)
{
    (void)state;
    for (int i = 0; i < 1000000 && !audit_lost(rig.log); i++) {
        struct audit_record *record = audit_reserve(rig.log);
        if (!record)
            break;
        memset(record, 0, sizeof(*record));
        record->event.kind = AUDIT_EVENT;
        record->event.code = AUDIT_EVENT_GAP;
        record->event.at = clock_tsc();
        audit_commit(rig.log);
    }
    assert_int_equal(audit_lost(rig.log), 1);
    expect_err("Z killline: alert: audit log out/folder: 1 records lost, 1 in all: its disk is full");
    rig_sleep_ms(50);
    assert_int_equal(count_err("records lost"), 1);
    passed = 1;
}

/* ---- the file ---- */

static void throttle_across_a_restart(void **state)
{
    (void)state;
    rig.fail = 3;
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(control_read(rig.folder, &rig.start, error), 0);
        if (rig.start.n_device_fault == 3)
            break;
        rig_sleep_ms(5);
    }
    assert_int_equal(rig.start.n_device_fault, 3);
    const uint64_t first_utc_ns = rig.start.device_fault_utc_ns[0];
    rig_stop(&rig);
    rig_start(&rig);
    assert_int_equal(rig.start.n_device_fault, 3);
    assert_true(llabs((long long)(rig.start.device_fault_utc_ns[0] - first_utc_ns)) < 100000);
    rig.fail = 1; /* the fourth */
    const struct state_file s = rig_await(&rig, GOVERNOR_HALTED, 1);
    assert_int_equal(s.cause, GOVERNOR_BY_DEVICE_THROTTLE);
    expect_err("killline: HALTED: too many device errors; nothing is published until killline resume\n");
    rig_stop(&rig);
    rig_start(&rig); /* and once more */
    assert_int_equal(rig.start.cause, GOVERNOR_BY_DEVICE_THROTTLE);
    expect_err("killline: HALTED: too many device errors; nothing is published until killline resume\n");
    json_decref(ask(resume));
    rig_stop(&rig);
    rig_start(&rig);
    assert_int_not_equal(rig.start.rung, GOVERNOR_HALTED);
    assert_int_equal(rig.start.n_device_fault, 0);
    passed = 1;
}

/* Of kill -9 in each rung: the next start finds it, and neither socket nor lock is in its way. */
static void killed_in_each_rung(void **state)
{
    (void)state;
    static const struct {
        uint32_t ages_us;
        int is_ordered;
        enum governor_rung rung;
        unsigned cause;
    } cases[] = {
        {5, 0, GOVERNOR_ACTIVE, GOVERNOR_BY_START},    {90, 0, GOVERNOR_WARNING, GOVERNOR_LATENCY},
        {160, 0, GOVERNOR_BACKUP, GOVERNOR_LATENCY},   {400, 0, GOVERNOR_HALTED, GOVERNOR_LATENCY},
        {5, 1, GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR},
    };
    char path[128];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const pid_t child = fork();
        if (!child) {
            rig_start(&rig);
            rig.ages_us = cases[i].ages_us;
            if (cases[i].is_ordered)
                control_ask(rig.folder, halt, answer, error);
            pause();
        }
        assert_true(child > 0);
        rig.stderr_fd = STDERR_FILENO;
        struct state_file left = {0}, found;
        for (int n = 0; n < 2000; n++) {
            snprintf(path, sizeof(path), "%s/state.json", rig.folder);
            if (!access(path, F_OK) && !control_read(rig.folder, &left, error) &&
                left.rung == cases[i].rung && left.cause == cases[i].cause)
                break;
            rig_sleep_ms(5);
        }
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        snprintf(path, sizeof(path), "%s/control.sock", rig.folder);
        assert_int_equal(access(path, F_OK), 0); /* it could not tidy up */
        assert_int_equal(control_ask(rig.folder, ask_status, answer, error), 1);
        unlink(rig.log_path);
        rig_start(&rig);
        found = rig.start;
        assert_int_equal(found.rung, cases[i].rung);
        assert_int_equal(found.cause, cases[i].cause);
        assert_string_equal(rig.warning, "");
        if (cases[i].is_ordered) {
            assert_string_equal(found.by, by_ann());
            assert_string_equal(found.reason, "smoke");
        }
        if (found.rung == GOVERNOR_HALTED) {
            rig_await(&rig, GOVERNOR_HALTED, 1); /* latched, if it was not */
            if (!cases[i].is_ordered)            /* without figures: those were the other run's */
                expect_err("killline: HALTED: as the last run was left, for latency near or over the line; "
                           "nothing is "
                           "published until killline resume\n");
            json_t *root = ask(resume);
            assert_true(is_true(root, "ok"));
            json_decref(root);
        }
        rig_stop(&rig);
        assert_int_equal(access(path, F_OK), -1);
        snprintf(path, sizeof(path), "%s/state.json", rig.folder);
        unlink(path);
    }
}

static void unreadable(void **state)
{
    (void)state;
    char path[128], kept[160], back[64];
    snprintf(path, sizeof(path), "%s/state.json", rig.folder);
    snprintf(kept, sizeof(kept), "%s.unreadable", path);
    FILE *f = fopen(path, "w");
    fputs("{\"killline_state\":1, torn", f);
    fclose(f);
    rig_start(&rig);
    assert_int_equal(rig.start.rung, GOVERNOR_HALTED);
    assert_int_equal(rig.start.cause, GOVERNOR_BY_STATE_FILE);
    expect_err("killline: HALTED: state of the last run unreadable; nothing is published until ");
    rig_await(&rig, GOVERNOR_HALTED, 1);
    f = fopen(kept, "r"); /* for whoever wants to know */
    assert_non_null(f);
    assert_non_null(fgets(back, sizeof(back), f));
    fclose(f);
    assert_string_equal(back, "{\"killline_state\":1, torn");
    json_t *root = ask(resume);
    assert_true(is_true(root, "ok"));
    json_decref(root);
    rig_await(&rig, GOVERNOR_ACTIVE, 0);
    passed = 1;
}

/* A file that cannot be written: told once, the run goes on, the halt is in force, and it is made good. */
static void unwritable(void **state)
{
    (void)state;
    char path[128];
    rig_await(&rig, GOVERNOR_ACTIVE, 0);
    snprintf(path, sizeof(path), "%s/state.json.new", rig.folder);
    assert_int_equal(mkdir(path, 0700), 0); /* in the way */
    json_t *root = ask(halt);
    assert_true(order_is_halted(&rig.desk));
    assert_false(is_true(root, "ok") || is_true(root, "saved"));
    assert_true(is_true(root, "acknowledged"));
    assert_non_null(strstr(text(root, "error"), "the halt is in force, but not for after a restart: "));
    assert_non_null(strstr(text(root, "error"), "state.json: could not be written"));
    json_decref(root);
    rig_sleep_ms(1300); /* longer than until the next try */
    assert_int_equal(count_err("could not be written"), 1);
    assert_int_equal(rmdir(path), 0);
    rig_await(&rig, GOVERNOR_HALTED, 1);
    expect_err("alert over: ");
    expect_file(GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1, by_ann(), "smoke");
    passed = 1;
}

/* The last state is in the file after control_close, even if it is a tick old. */
static void last_look(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        rig_start(&rig);
        const struct order order = {.kind = ORDER_HALT};
        rig.hangs = 1;
        rig_sleep_ms(i % 3);
        order_post(&rig.desk, &order); /* behind the back of the threads */
        rig_stop(&rig);
        struct state_file s;
        assert_int_equal(control_read(rig.folder, &s, error), 0);
        assert_int_equal(s.rung, GOVERNOR_HALTED);
        assert_int_equal(s.latched, 1);
        char path[128];
        snprintf(path, sizeof(path), "%s/state.json", rig.folder);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PREPARED(killed_in_each_rung), /* first: it forks */
        RUNNING(halt_and_resume),
        RUNNING(hanging_loop),
        RUNNING(halt_behind_a_resume),
        RUNNING(ladder),
        RUNNING(losses),
        RUNNING(throttle_across_a_restart),
        cmocka_unit_test_setup_teardown(unreadable, make, stop_and_clean),
        RUNNING(unwritable),
        PREPARED(last_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
