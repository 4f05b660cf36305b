/* Control beside a real governor and a thread that plays the poll loop: orders, the ladder's lines, what is
 * in the file when, restarts and kills in each rung, folders and clients of every kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "control_rig.h"

static struct control_rig rig;
static int passed;
static char error[CONTROL_ERROR_CHARS], answer[CONTROL_ANSWER_BYTES];

static int make(void **state)
{
    (void)state;
    passed = 0;
    rig_make(&rig);
    return 0;
}

static int make_and_start(void **state)
{
    make(state);
    rig_start(&rig);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    rig_remove(&rig);
    return 0;
}

static int stop_and_clean(void **state)
{
    rig_stop(&rig);
    if (!passed)
        fprintf(stderr, "stderr of the test that failed:\n%s", rig_err(&rig));
    return clean(state);
}

static json_t *ask(const char *request)
{
    const int asked = control_ask(rig.folder, request, answer, error);
    if (asked)
        fail_msg("%s: %d %s", request, asked, error);
    json_t *root = json_loads(answer, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    return root;
}

static int is_true(const json_t *root, const char *key)
{
    assert_true(json_is_boolean(json_object_get(root, key)));
    return json_is_true(json_object_get(root, key));
}

static long long number(const json_t *root, const char *key)
{
    assert_true(json_is_integer(json_object_get(root, key)));
    return json_integer_value(json_object_get(root, key));
}

static const char *text(const json_t *root, const char *key)
{
    const char *value = json_string_value(json_object_get(root, key));
    assert_non_null(value);
    return value;
}

static void expect_file(enum governor_rung rung, unsigned cause, int latched, const char *by,
                        const char *reason)
{
    struct state_file s;
    assert_int_equal(control_read(rig.folder, &s, error), 0);
    assert_int_equal(s.rung, rung);
    assert_int_equal(s.cause, cause);
    assert_int_equal(s.latched, latched);
    assert_string_equal(s.by, by);
    assert_string_equal(s.reason, reason);
    uint64_t now = (uint64_t)time(NULL);
    assert_in_range(s.since_utc_ns / 1000000000, now - 100, now + 1);
}

/* Within 10 s. */
static void expect_err(const char *line)
{
    for (int i = 0; i < 2000 && !strstr(rig_err(&rig), line); i++)
        rig_sleep_ms(5);
    if (!strstr(rig_err(&rig), line))
        fail_msg("no '%s' in:\n%s", line, rig_err(&rig));
}

static unsigned count_err(const char *line)
{
    unsigned n = 0;
    for (const char *at = rig_err(&rig); (at = strstr(at, line)); at++)
        n++;
    return n;
}

static const char halt[] = "{\"command\":\"halt\",\"by\":\"ann\",\"reason\":\"smoke\"}",
                  resume[] = "{\"command\":\"resume\",\"by\":\"bob\",\"reason\":\"aired\"}",
                  ask_status[] = "{\"command\":\"status\"}";
static const char *by_ann(void)
{
    static char by[ORDER_BY_CHARS];
    order_by(by, "ann", getuid());
    return by;
}
static const char *by_bob(void)
{
    static char by[ORDER_BY_CHARS];
    order_by(by, "bob", getuid());
    return by;
}

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
        expect_file(GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0, by_bob(), "aired");
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
    expect_file(GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0, by_bob(), "aired");
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
    expect_err("Z killline: WARNING: latency near the line: p99 9");
    expect_err("Z killline: alert: latency near the line: p99 9");
    json_t *root = ask(ask_status);
    assert_string_equal(text(root, "rung"), "WARNING");
    assert_string_equal(text(root, "cause"), "latency near the line");
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
    expect_err("Z killline: BACKUP: latency near the line: p99 1");
    expect_err("(enter 150 %)");
    rig.ages_us = 400;
    s = rig_await(&rig, GOVERNOR_HALTED, 0);
    assert_int_equal(s.n_halt_fault, 1);
    expect_err("Z killline: HALTED: latency near the line: p99 4");
    expect_err("(enter 300 %); nothing is published\n");
    rig.ages_us = 5;
    rig_await(&rig, GOVERNOR_ACTIVE, 0);
    expect_err("Z killline: BACKUP: quiet again\n");
    expect_err("Z killline: ACTIVE: quiet again\n");
    expect_err("Z killline: alert over: latency near the line: p99 6 % of the threshold (leave 60 %)\n");
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

/* ---- without an appliance ---- */

static void offline(void **state)
{
    (void)state;
    struct order h = {ORDER_HALT, "ann (uid 7)", "dark"}, r = {ORDER_RESUME, "bob (uid 8)", "light"};
    struct state_file s;
    assert_int_equal(control_ask(rig.folder, ask_status, answer, error), 1);
    assert_int_equal(control_set(rig.folder, &r, error), -1);
    assert_non_null(strstr(error, "nothing to resume"));
    assert_false(control_is_taken(rig.folder, answer));
    memset(&s, 0, sizeof(s));
    s.n_device_fault = 1;
    s.device_fault_utc_ns[0] = 5;
    char path[128], deeper[128];
    snprintf(path, sizeof(path), "%s/state.json", rig.folder);
    assert_int_equal(state_file_write(path, &s, error), 0);
    assert_int_equal(control_set(rig.folder, &h, error), 0);
    expect_file(GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1, "ann (uid 7)", "dark");
    assert_int_equal(control_read(rig.folder, &s, error), 0);
    assert_int_equal(s.n_device_fault, 1); /* a halt forgives nothing */
    rig_start(&rig);                       /* and so it starts */
    assert_int_equal(rig.start.rung, GOVERNOR_HALTED);
    assert_int_equal(control_set(rig.folder, &r, error), 1); /* not behind its back */
    char pid[32];
    snprintf(pid, sizeof(pid), "process %d)", (int)getpid());
    assert_non_null(strstr(error, pid));
    rig_stop(&rig);
    assert_int_equal(control_set(rig.folder, &r, error), 0);
    expect_file(GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0, "bob (uid 8)", "light");
    assert_int_equal(control_read(rig.folder, &s, error), 0);
    assert_int_equal(s.n_device_fault, 0);
    assert_int_equal(control_set(rig.folder, &r, error), -1);
    assert_non_null(strstr(error, "it was left WARNING"));
    assert_int_equal(truncate(path, 3), 0); /* unreadable is halted, and resumed like that */
    assert_int_equal(control_set(rig.folder, &r, error), 0);
    expect_file(GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0, "bob (uid 8)", "light");
    snprintf(deeper, sizeof(deeper), "%s/a/b", rig.folder);
    assert_int_equal(control_set(deeper, &r, error), -1);
    assert_int_equal(access(deeper, F_OK), -1); /* not made for nothing */
    assert_int_equal(control_set(deeper, &h, error), 0);
}

/* ---- folder ---- */

static void where(void **state)
{
    (void)state;
    char folder[CONTROL_PATH_CHARS], longest[CONTROL_PATH_CHARS];
    assert_int_equal(control_folder("/x/y", folder, error), 0);
    assert_string_equal(folder, "/x/y");
    setenv("XDG_STATE_HOME", "/state", 1);
    setenv("HOME", "/home/op", 1);
    assert_int_equal(control_folder("", folder, error), 0);
    assert_string_equal(folder, "/state/killline");
    setenv("XDG_STATE_HOME", "relative", 1);
    assert_int_equal(control_folder("", folder, error), 0);
    assert_string_equal(folder, "/home/op/.local/state/killline");
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    assert_int_equal(control_folder("", folder, error), -1);
    assert_non_null(strstr(error, "neither XDG_STATE_HOME nor HOME"));
    memset(longest, 'x', sizeof(longest));
    longest[108 - sizeof("/control.sock")] = '\0';
    assert_int_equal(control_folder(longest, folder, error), 0);
    strcat(longest, "x");
    assert_int_equal(control_folder(longest, folder, error), -1);
    assert_non_null(strstr(error, "95 characters, and a socket's address leaves 94"));
}

static void expect_refused(const char *folder, const char *why)
{
    struct state_file s;
    char warning[CONTROL_ERROR_CHARS];
    if (control_open(folder, &s, warning, error))
        fail_msg("%s was opened", folder);
    if (!strstr(error, why) || !strstr(error, folder))
        fail_msg("no '%s' in: %s", why, error);
}

static void bad_folders(void **state)
{
    (void)state;
    char path[96], part[160];
    snprintf(path, sizeof(path), "%s/file", rig.folder);
    fclose(fopen(path, "w"));
    expect_refused(path, "is not a folder");
    snprintf(part, sizeof(part), "%s/under/it", path);
    struct state_file s;
    assert_null(control_open(part, &s, rig.warning, error));
    assert_non_null(strstr(error, "could not be made: Not a directory. Choose another folder"));
    expect_refused("/proc/killline", "could not be made: No such file");
    assert_int_equal(chmod(rig.folder, 0770), 0);
    expect_refused(rig.folder, "others could change the state there");
    assert_non_null(strstr(error, "chmod 700"));
    assert_int_equal(chmod(rig.folder, 0700), 0);
    snprintf(path, sizeof(path), "%s/lock", rig.folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect_refused(rig.folder, "lock: Too many levels of symbolic links. Remove it");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(rig.folder, "lock: is no lock file. Remove it");
}

/* Root orders in the appliance's user's folder: nothing there becomes root's, or its user could not start
 * again. And a folder that is another user's is refused. */
static void owners(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    const struct order h = {ORDER_HALT, "ann (uid 0)", "dark"};
    struct state_file s;
    struct stat st;
    if (geteuid()) {
        print_message("not root: folders of other users are not tested\n");
        skip();
    }
    const pid_t child = fork();
    if (!child)
        _exit(chmod(rig.folder, 0755) || setuid(NOBODY) || control_open(rig.folder, &s, rig.warning, error) ||
              !strstr(error, "Permission denied. Choose another folder"));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chown(rig.folder, NOBODY, NOBODY), 0);
    assert_int_equal(control_set(rig.folder, &h, error), 0);
    static const char *const names[] = {"lock", "state.json"};
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%s", rig.folder, names[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_uid, NOBODY);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static void modes(void **state)
{
    (void)state;
    char folder[128], path[160];
    struct stat st;
    const mode_t old = umask(0);
    snprintf(folder, sizeof(folder), "%s", rig.folder);
    strcat(rig.folder, "/a/b"); /* made with its parent */
    rig_start(&rig);
    umask(old);
    rig_await(&rig, GOVERNOR_ACTIVE, 0);
    rig_stop(&rig);
    umask(077777 & 0777);
    rig_start(&rig);
    umask(old);
    static const struct {
        const char *name;
        mode_t mode;
    } files[] = {{"/a", 0700},
                 {"/a/b", 0700},
                 {"/a/b/lock", 0600},
                 {"/a/b/control.sock", 0600},
                 {"/a/b/state.json", 0600}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, files[i].name);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, files[i].mode);
    }
    rig_stop(&rig);
    memcpy(rig.folder, folder, sizeof(rig.folder));
    passed = 1;
}

static void two_appliances(void **state)
{
    (void)state;
    char pid[64];
    snprintf(pid, sizeof(pid), "another appliance has this folder (process %d)", (int)getpid());
    expect_refused(rig.folder, pid);
    assert_true(control_is_taken(rig.folder, pid));
    json_t *root = ask(halt); /* the first has not noticed */
    assert_true(is_true(root, "ok"));
    json_decref(root);
    passed = 1;
}

/* ---- clients ---- */

static int dial(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = 10};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/control.sock", rig.folder);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* Sends it, and expects an error's answer. */
static void expect_error(const char *request, size_t size_bytes, const char *why)
{
    char got[1024];
    size_t n = 0;
    ssize_t more;
    const int fd = dial();
    for (size_t at = 0;
         at < size_bytes && (more = send(fd, request + at, size_bytes - at, MSG_NOSIGNAL)) > 0;)
        at += (size_t)more;
    while (n < sizeof(got) - 1 && (more = recv(fd, got + n, sizeof(got) - 1 - n, 0)) > 0)
        n += (size_t)more;
    close(fd);
    got[n] = '\0';
    if (!strstr(got, "\"ok\":false") || !strstr(got, why) || got[n - 1] != '\n')
        fail_msg("no '%s' in the answer '%s'", why, got);
}

static void wrong_requests(void **state)
{
    (void)state;
    static const struct {
        const char *request, *why;
    } wrong[] = {
        {"\n", "is no JSON object"},
        {"halt\n", "is no JSON object"},
        {"[]\n", "is no JSON object"},
        {"{}\n", "'command' is not"},
        {"{\"command\":\"stop\"}\n", "'command' is not"},
        {"{\"command\":1}\n", "'command' is not"},
        {"{\"command\":\"status\",\"by\":\"b\"}\n", "keys are missing, or too many"},
        {"{\"command\":\"halt\",\"by\":\"b\"}\n", "keys are missing, or too many"},
        {"{\"command\":\"halt\",\"by\":\"\",\"reason\":\"r\"}\n", "'by' is not 1 to 30"},
        {"{\"command\":\"halt\",\"by\":\"0123456789012345678901234567890\",\"reason\":\"r\"}\n",
         "'by' is not"},
        {"{\"command\":\"halt\",\"by\":\"b\\u0007\",\"reason\":\"r\"}\n", "'by' is not"},
        {"{\"command\":\"halt\",\"by\":\"b\",\"reasons\":\"r\"}\n", "'reason' is not"},
        {"{\"command\":\"resume\",\"by\":\"b\",\"reason\":\"\"}\n", "'reason' is not 1 to 93"},
        {"{\"command\":\"halt\",\"command\":\"halt\",\"by\":\"b\",\"reason\":\"r\"}\n", "is no JSON object"},
        {"{\"command\":\"status\"}\n{\"command\":\"status\"}\n", "more than one line"},
        {"{\"command\":", "no whole line within a second"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_error(wrong[i].request, strlen(wrong[i].request), wrong[i].why);
    char *junk = malloc(1 << 20);
    assert_non_null(junk);
    memset(junk, 'x', 1 << 20);
    junk[(1 << 20) - 1] = '\n';
    expect_error(junk, 1 << 20, "longer than 1023 bytes");
    for (size_t i = 0; i < 1 << 20; i++)
        junk[i] = (char)(i * 2654435761u >> 13); /* newlines and NULs among them */
    expect_error(junk, 1 << 20, "request");
    free(junk);
    assert_false(order_is_halted(&rig.desk));
    passed = 1;
}

/* Silent ones, ones that hang up in the middle, ones that never read: none keeps a halt waiting for long. */
static void crowd(void **state)
{
    (void)state;
    enum { N = 50 };
    int fds[N];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            fds[i] = dial();
            if (round == 1)
                assert_int_equal(send(fds[i], "{\"comm", 6, MSG_NOSIGNAL), 6);
            if (round == 2)
                send(fds[i], "{\"command\":\"status\"}\n", 21, MSG_NOSIGNAL);
        }
        const uint64_t before = clock_tsc();
        json_t *root = ask(halt);
        const double took_ms = clock_cycles_to_ns(&rig.clock, clock_tsc() - before) / 1e6;
        assert_true(is_true(root, "ok"));
        assert_true(took_ms < 5000);
        json_decref(root);
        if (round == 1)
            for (int i = 0; i < N; i++)
                shutdown(fds[i], SHUT_WR);
        for (int i = 0; i < N; i++)
            close(fds[i]);
        root = ask(resume);
        assert_true(is_true(root, "ok"));
        json_decref(root);
    }
    fds[0] = dial(); /* one that is there at the end */
    rig_stop(&rig);
    char c;
    assert_true(recv(fds[0], &c, 1, 0) <= 0);
    close(fds[0]);
    rig_start(&rig);
    passed = 1;
}

/* Several at once, all served. */
static void *ask_often(void *argument)
{
    unsigned *served = argument;
    char line[CONTROL_ANSWER_BYTES], why[CONTROL_ERROR_CHARS];
    for (int i = 0; i < 20; i++)
        *served += !control_ask(rig.folder, ask_status, line, why) && strstr(line, "\"running\":true");
    return NULL;
}

static void many_at_once(void **state)
{
    (void)state;
    pthread_t threads[8];
    unsigned served[8] = {0};
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &served[i]), 0);
    for (int i = 0; i < 10; i++) {
        json_decref(ask(halt));
        json_decref(ask(resume));
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(served[i], 20);
    }
    passed = 1;
}

int main(void)
{
#define RUNNING(f)  cmocka_unit_test_setup_teardown(f, make_and_start, stop_and_clean)
#define PREPARED(f) cmocka_unit_test_setup_teardown(f, make, clean)
    const struct CMUnitTest tests[] = {
        PREPARED(killed_in_each_rung), /* first: it forks */
        PREPARED(owners),
        PREPARED(bad_folders),
        RUNNING(halt_and_resume),
        RUNNING(hanging_loop),
        RUNNING(halt_behind_a_resume),
        RUNNING(ladder),
        RUNNING(losses),
        RUNNING(throttle_across_a_restart),
        cmocka_unit_test_setup_teardown(unreadable, make, stop_and_clean),
        RUNNING(unwritable),
        PREPARED(last_look),
        PREPARED(offline),
        PREPARED(where),
        PREPARED(modes),
        RUNNING(two_appliances),
        RUNNING(wrong_requests),
        RUNNING(crowd),
        RUNNING(many_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
