/* A paced run as an operator has it: halted in the middle, killed, started again as each rung of the ladder
 * was left. Every start reads the state that the one before wrote; what left is read from the logs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "host/audit.h"
#include "host/killline.h"
#include "host/state_file.h"
#include "run_json.h"

static char state_dir[96], state_path[128];

/* What a log says: verdicts, and what came after the first order. */
struct story {
    uint64_t n_prediction, by_verdict[VERDICT_COUNT], by_slot[2];
    uint64_t n_order, published_after_order;
    int begins_on;    /* rung of the first record; -1: none */
    int n_rung_event; /* before the first prediction */
    uint64_t first_from, first_to, first_latched;
};

static struct story story_of(const char *out, int is_closed)
{
    char path[128], error[AUDIT_ERROR_CHARS];
    struct story s = {.begins_on = -1};
    snprintf(path, sizeof(path), "%s/audit.kla", out);
    struct audit_reader *reader = audit_reader_open(path, error);
    if (!reader)
        fail_msg("%s", error);
    const struct audit_record *r;
    int more;
    while ((more = audit_reader_next(reader, &r, error)) == 1) {
        if (r->prediction.kind == AUDIT_PREDICTION) {
            const struct audit_prediction *p = &r->prediction;
            if (s.begins_on < 0)
                s.begins_on = (p->flags & AUDIT_FLAG_RUNG) / 64;
            s.n_prediction++;
            s.by_verdict[p->verdict]++;
            s.by_slot[p->slot]++;
            s.published_after_order += s.n_order == 1 && p->verdict == VERDICT_PUBLISHED;
        } else if (r->event.code == AUDIT_EVENT_ORDER) {
            s.n_order++;
        } else if (r->event.code == AUDIT_EVENT_RUNG && !s.n_prediction && !s.n_rung_event++) {
            s.first_from = r->event.value[0];
            s.first_to = r->event.value[1];
            s.first_latched = r->event.value[3];
        }
    }
    if (is_closed)
        assert_int_equal(more, 0);
    else
        assert_int_equal(audit_reader_fault(reader) == AUDIT_FAULT_NOT_CLOSED ||
                             audit_reader_fault(reader) == AUDIT_FAULT_TORN,
                         1);
    audit_reader_close(reader);
    return s;
}

/* A paced run in the background, and a script while it runs; $pid is the run's. The script's output. Rules of
 * the ladder that a busy machine might set off are off. */
static struct command_result while_it_runs(const char *out, const char *args, const char *script)
{
    return command_shell(
        "K='%s'; S=%s; \"$K\" run --pcap %s --model %s --out %s --clock real --accel cpu --set "
        "state.dir=$S "
        "--set killline.threshold_us=999 --set 'governor.halted.miss_ppm={enter: 0, leave: 0}' %s "
        ">%s.out 2>%s.err & pid=$!; "
        "n=0; until \"$K\" status --state $S --json | grep -q '\"running\": *true' || [ $n = 300 ]; do "
        "sleep 0.05; n=$((n + 1)); done; %s",
        KILLLINE, state_dir, day, model, out, args, out, out, script);
}

static void forget(void)
{
    struct command_result c = command_shell("rm -rf %s", state_dir);
    command_free(&c);
}

static void leave(enum governor_rung rung)
{
    char error[STATE_FILE_ERROR_CHARS];
    const struct state_file state = {.rung = rung,
                                     .cause = rung == GOVERNOR_ACTIVE ? GOVERNOR_BY_START
                                                                      : (enum governor_cause)GOVERNOR_MISS,
                                     .latched = rung == GOVERNOR_HALTED,
                                     .since_utc_ns = 1};
    struct command_result c = command_shell("mkdir -p %s", state_dir);
    command_free(&c);
    if (state_file_write(state_path, &state, error))
        fail_msg("%s", error);
}

static enum governor_rung left(void)
{
    char error[STATE_FILE_ERROR_CHARS] = "";
    struct state_file state;
    if (state_file_read(state_path, &state, error))
        print_error("%s\n", error);
    return state.rung;
}

static void halt_and_resume_while_it_runs(void **state)
{
    (void)state;
    char out[64];
    forget();
    strcpy(out, fresh());
    struct command_result c = while_it_runs(
        out, "--pace 2",
        "sleep 1; \"$K\" halt --by ops --reason drill --state $S && sleep 1 && "
        "\"$K\" resume --by zoe --reason over --state $S; e=$?; wait $pid; r=$?; exit $((e + r))");
    if (c.status)
        print_error("%s%s", c.out, c.err);
    assert_int_equal(c.status, 0);
    assert_non_null(strstr(c.out, "halted by ops"));
    assert_non_null(strstr(c.out, "resumed by zoe"));
    command_free(&c);
    const struct story s = story_of(out, 1);
    assert_int_equal(s.n_order, 2);
    assert_int_equal(s.published_after_order, 0); /* until the second order */
    assert_true(s.by_verdict[VERDICT_PUBLISHED] > 0 && s.by_verdict[VERDICT_HALTED] > 0);
    assert_true(left() != GOVERNOR_HALTED);
}

/* HALTED survives the end of the run, and its end by kill -9; nothing leaves until a named person resumes. */
static void halted_survives(void **state)
{
    (void)state;
    char first[64], second[64], third[64], fourth[64];
    forget();
    strcpy(first, fresh());
    struct command_result c = while_it_runs(
        first, "--pace 1", "\"$K\" halt --by ops --reason drill --state $S; kill -9 $pid; wait $pid; exit 0");
    command_free(&c);
    struct story s = story_of(first, 0);
    assert_int_equal(s.published_after_order, 0);
    assert_int_equal(left(), GOVERNOR_HALTED);

    strcpy(second, fresh());
    c = while_it_runs(second, "--pace 1", "sleep 1; kill -9 $pid; wait $pid; exit 0");
    command_free(&c);
    assert_int_equal(left(), GOVERNOR_HALTED);

    strcpy(third, fresh());
    c = while_it_runs(third, "--pace 16", "wait $pid");
    assert_int_equal(c.status, 0);
    command_free(&c);
    s = story_of(third, 1);
    assert_true(s.n_prediction > 1000);
    assert_int_equal(s.by_verdict[VERDICT_PUBLISHED], 0);
    assert_int_equal(s.begins_on, GOVERNOR_HALTED);
    assert_int_equal(s.first_to, GOVERNOR_HALTED);
    assert_int_equal(s.first_latched, 1);
    char err[96];
    snprintf(err, sizeof(err), "%s.err", third);
    char *said = command_read_file(err);
    assert_non_null(strstr(said, "HALTED"));
    assert_non_null(strstr(said, "killline resume"));
    free(said);

    c = command_run("resume --by zoe --reason over --state %s", state_dir);
    assert_int_equal(c.status, 0);
    command_free(&c);
    strcpy(fourth, fresh());
    c = while_it_runs(fourth, "--pace 16", "wait $pid");
    assert_int_equal(c.status, 0);
    command_free(&c);
    assert_true(story_of(fourth, 1).by_verdict[VERDICT_PUBLISHED] > 0);
}

/* It goes on where it was left; the log says so before the first prediction. */
static void every_rung_is_where_a_run_begins(void **state)
{
    static const char *const backup =
        "--set backup.model=" KL_BACKUP
        " --set governor.backup.dwell_ms=600000 --set governor.warning.dwell_ms=600000 --pace 16";
    (void)state;
    for (int rung = GOVERNOR_ACTIVE; rung < GOVERNOR_N_RUNG; rung++) {
        char out[64];
        leave((enum governor_rung)rung);
        strcpy(out, fresh());
        struct command_result c = while_it_runs(out, backup, "wait $pid");
        if (c.status) {
            struct command_result said = command_shell("cat %s.err", out);
            print_error("%s", said.out);
            command_free(&said);
        }
        assert_int_equal(c.status, 0);
        command_free(&c);
        const struct story s = story_of(out, 1);
        assert_int_equal(s.begins_on, rung);
        if (rung == GOVERNOR_ACTIVE) {
            assert_true(!s.n_rung_event || s.first_from == GOVERNOR_ACTIVE);
            continue;
        }
        assert_int_equal(s.first_from, GOVERNOR_ACTIVE);
        assert_int_equal(s.first_to, rung);
        if (rung == GOVERNOR_BACKUP)
            assert_int_equal(s.by_slot[0], 0); /* the backup's alone */
        if (rung == GOVERNOR_HALTED) {
            assert_int_equal(s.by_verdict[VERDICT_PUBLISHED], 0);
            assert_int_equal(left(), GOVERNOR_HALTED);
        }
    }
}

/* In doubt, publish nothing. */
static void an_unreadable_state_is_halted(void **state)
{
    (void)state;
    char out[64];
    struct command_result c = command_shell("mkdir -p %s && echo '{' >%s", state_dir, state_path);
    command_free(&c);
    strcpy(out, fresh());
    c = while_it_runs(out, "--pace 16", "wait $pid");
    assert_int_equal(c.status, 0);
    command_free(&c);
    const struct story s = story_of(out, 1);
    assert_true(s.n_prediction > 1000);
    assert_int_equal(s.by_verdict[VERDICT_PUBLISHED], 0);
}

static int set_up(void **state)
{
    (void)state;
    const int bad = run_day_make(16);
    snprintf(state_dir, sizeof(state_dir), "%s/state", folder);
    snprintf(state_path, sizeof(state_path), "%s/state.json", state_dir);
    return bad;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halt_and_resume_while_it_runs),
        cmocka_unit_test(halted_survives),
        cmocka_unit_test(every_rung_is_where_a_run_begins),
        cmocka_unit_test(an_unreadable_state_is_halted),
    };
    return cmocka_run_group_tests(tests, set_up, run_day_remove);
}
