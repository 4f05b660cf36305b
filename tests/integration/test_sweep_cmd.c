/* killline sweep as a user calls it, and the shipped Slurm script without Slurm. KILLLINE: the program. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "command.h"
#include "sweep_rig.h"

enum { N_DAY = 3, N = 20000 };
#define ASK "--thresholds 5us:60us:5us,999us --horizon 10ticks"

static char dir[] = "/tmp/test_sweep_cmd_XXXXXX";
static struct command_result said; /* by the last command */

static int keep(struct command_result result)
{
    command_free(&said);
    said = result;
    return said.status;
}
#define run(...)   keep(command_run("sweep " __VA_ARGS__))
#define shell(...) keep(command_shell(__VA_ARGS__))

static void assert_has(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' is not in: %.2000s", what, text);
}

static void assert_run_fails(int status, const char *what)
{
    if (said.status != status)
        fail_msg("exit %d: %s", said.status, said.err);
    assert_has(said.err, what);
    assert_string_equal(said.out, "");
}

static json_t *said_json(void)
{
    json_error_t e;
    json_t *o = json_loads(said.out, 0, &e);
    if (!o)
        fail_msg("no JSON: %s: %.500s", e.text, said.out);
    return o;
}

static int64_t integer(const json_t *o, const char *key)
{
    if (!json_is_integer(json_object_get(o, key)))
        fail_msg("no integer '%s'", key);
    return json_integer_value(json_object_get(o, key));
}

static void own_line_gives_what_was_given(void **state)
{
    (void)state;
    assert_int_equal(run("'%s/days/2' --thresholds 50us --horizon 10ticks --json", dir), 0);
    json_t *o = said_json(), *point = json_array_get(json_object_get(o, "thresholds"), 0);
    json_t *given = json_object_get(o, "verdicts"), *dropped = json_object_get(point, "dropped");
    assert_int_equal(integer(o, "predictions"), N);
    int64_t sum = integer(point, "published");
    assert_int_equal(integer(point, "published"), integer(given, "published"));
    for (unsigned v = 1; v < VERDICT_COUNT; v++) {
        assert_int_equal(integer(dropped, verdict_name(v)), integer(given, verdict_name(v)));
        assert_true(integer(given, verdict_name(v)) > 0 || v == VERDICT_DEVICE_ERROR);
        sum += integer(dropped, verdict_name(v));
    }
    assert_int_equal(sum, N);
    assert_int_equal(integer(point, "estimated"), 0);
    assert_int_equal(integer(point, "threshold_ns"), 50000);
    /* And as the log itself has it. */
    assert_int_equal(keep(command_run("audit verify '%s/days/2' --json", dir)), 0);
    json_t *log = said_json();
    assert_int_equal(integer(json_object_get(log, "verdicts"), "published"), integer(point, "published"));
    json_decref(log);
    json_decref(o);
}

static void json_has_every_figure(void **state)
{
    (void)state;
    static const char *const bounds[] = {"hit_rate", "value", "dropped_hit_rate", "dropped_value"};
    assert_int_equal(run("'%s/days' " ASK " --json", dir), 0);
    json_t *o = said_json(), *points = json_object_get(o, "thresholds");
    assert_int_equal(json_array_size(points), 12);
    assert_int_equal(json_array_size(json_object_get(o, "logs")), N_DAY);
    assert_int_equal(integer(o, "predictions"), N_DAY * N);
    int64_t before = 0;
    for (size_t j = 0; j < 12; j++) {
        json_t *p = json_array_get(points, j), *classes = json_object_get(p, "classes");
        assert_true(integer(p, "published") >= before);
        before = integer(p, "published");
        assert_true(integer(p, "estimated") <= before);
        assert_int_equal(json_array_size(classes), 3);
        int64_t hits = 0, outcomes = 0;
        for (size_t c = 0; c < 3; c++) {
            hits += integer(json_array_get(classes, c), "hits");
            outcomes += integer(json_array_get(classes, c), "outcomes");
        }
        assert_int_equal(hits, integer(p, "hits"));
        assert_int_equal(outcomes, integer(p, "outcomes"));
        for (size_t b = 0; b < 4; b++) {
            json_t *i = json_object_get(p, bounds[b]),
                   *value = json_object_get(i, b % 2 ? "mean_usd" : "value"),
                   *low = json_object_get(i, "low");
            assert_non_null(value);
            assert_non_null(low);
            if (json_is_real(low))
                assert_true(json_real_value(low) <= json_real_value(value) &&
                            json_real_value(value) <= json_real_value(json_object_get(i, "high")));
        }
        assert_true(json_is_real(json_object_get(json_object_get(p, "hit_rate"), "low")));
    }
    assert_int_equal(integer(json_array_get(points, 11), "published") -
                         integer(json_array_get(points, 9), "published"),
                     integer(json_object_get(json_array_get(points, 9), "dropped"), "expected-late") +
                         integer(json_object_get(json_array_get(points, 9), "dropped"), "stale"));
    const int64_t recommended = integer(o, "recommended_threshold_ns");
    assert_true(recommended >= 5000 && recommended <= 999000);
    json_decref(o);
    assert_int_equal(run("'%s/days' --thresholds 5us --horizon 10ticks --json --target-miss 0%%", dir), 0);
    o = said_json();
    assert_true(json_is_null(json_object_get(o, "recommended_threshold_ns")));
    assert_has(json_string_value(json_object_get(o, "recommendation")), "none: even at 5 us");
    json_decref(o);
}

static void merged_is_direct(void **state)
{
    (void)state;
    static const char *const order[] = {"1 2 3", "3 1 2", "2 3 1"};
    static const char *const split[] = {"1|2|3", "12|3", "1|23", "13|2"};
    assert_int_equal(
        shell("cd '%s' && '%s' sweep days " ASK " --html direct.html >direct.txt", dir, KILLLINE), 0);
    assert_int_equal(shell("cd '%s' && '%s' sweep days " ASK " --json --jobs 1 >direct.json", dir, KILLLINE),
                     0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            shell("cd '%s' && for d in %s; do set -- \"$@\" days/$d; done && '%s' sweep \"$@\" " ASK
                  " --jobs 3 --html o.html | cmp - direct.txt && cmp o.html direct.html",
                  dir, order[i], KILLLINE),
            0);
    }
    for (int i = 0; i < 4; i++) {
        /* Each group of digits is a part; then the parts in both orders, and a part of parts. */
        assert_int_equal(
            shell(
                "cd '%s' && rm -f *.part && n=0 && for g in $(echo '%s' | tr '|' ' '); do set -- && for d in "
                "$(echo $g | sed 's/./& /g'); do set -- \"$@\" days/$d/audit.kla; done; '%s' sweep "
                "\"$@\" " ASK
                " --partial $g.part >said || exit 1; done; set -- *.part && '%s' sweep --merge \"$@\" --html "
                "o.html | cmp - direct.txt && cmp o.html direct.html && '%s' sweep --merge \"$@\" --json | "
                "cmp - "
                "direct.json && set -- $(ls -r *.part) && '%s' sweep --merge \"$@\" --json | cmp - "
                "direct.json && "
                "'%s' sweep --merge \"$@\" --partial all.part >said && '%s' sweep --merge all.part --json | "
                "cmp - "
                "direct.json",
                dir, split[i], KILLLINE, KILLLINE, KILLLINE, KILLLINE, KILLLINE, KILLLINE),
            0);
    }
    /* Same log twice, in parts and directly; parts of another question. */
    assert_int_equal(
        shell("cd '%s' && '%s' sweep days/1 " ASK " --partial 1.part && '%s' sweep days/1 days/2 " ASK
              " --partial 12.part && '%s' sweep days/2 --thresholds 5us --horizon 10ticks --partial "
              "other.part",
              dir, KILLLINE, KILLLINE, KILLLINE),
        0);
    run("--merge '%s/1.part' '%s/12.part'", dir, dir);
    assert_run_fails(1, "days/1/audit.kla");
    run("--merge '%s/1.part' '%s/other.part'", dir, dir);
    assert_run_fails(1, "other.part: made with another thresholds");
    run("--merge '%s/1.part' '%s/days/1/audit.kla'", dir, dir);
    assert_run_fails(1, "audit.kla: not a partial result");
    for (int jobs = 1; jobs <= 2; jobs++) {
        run("'%s/days/1' '%s/copy.kla' " ASK " --jobs %d", dir, dir, jobs);
        assert_run_fails(1, "is the same run's log as ");
        assert_has(said.err, "copy.kla");
    }
}

static void page(void **state)
{
    (void)state;
    assert_int_equal(run("'%s/days/1' " ASK " --html '%s/page.html'", dir, dir), 0);
    assert_has(said.out, "recommended  ");
    assert_has(said.out, "Queueing is taken as it was");
    assert_has(said.out, "Estimated:");
    char file[80];
    snprintf(file, sizeof(file), "%s/page.html", dir);
    char *html = command_read_file(file);
    static const char *const has[] = {
        "<svg",     "recommended line", "estimated",       "Queueing is taken as it was",
        "Hit rate", "By class",         "book-unreliable", "</html>"};
    for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
        assert_has(html, has[i]);
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "http"));
    assert_null(strstr(html, "nan"));
    assert_null(strstr(html, "inf\""));
    free(html);
}

/* Of the replay clock, of the real one, and of both at once. */
static void modelled_or_measured_is_said(void **state)
{
    (void)state;
    char path[96], error[AUDIT_ERROR_CHARS];
    snprintf(path, sizeof(path), "%s/real.kla", dir);
    const struct audit_header h = log_header(AUDIT_CLOCK_REAL);
    struct rig_log rig = rig_open(path, &h);
    log_day(rig.log, 1000, 9);
    assert_int_equal(audit_close(rig.log, NULL, error), 0);
    assert_int_equal(run("'%s/days/1' " ASK " --html '%s/clock.html'", dir, dir), 0);
    assert_has(said.out, "\n  ages modelled (replay clock)\n");
    assert_int_equal(shell("grep -c ' &middot; ages modelled (replay clock) &middot; ' '%s/clock.html'", dir),
                     0);
    assert_int_equal(run("'%s' " ASK, path), 0);
    assert_has(said.out, "\n  ages measured (real clock)\n");
    assert_int_equal(run("'%s/days/1' '%s/days/2' '%s' " ASK, dir, dir, path), 0);
    assert_has(said.out,
               "\n  ages MIXED: 2 modelled (replay clock), 1 measured (real clock): better swept apart\n");
    assert_int_equal(unlink(path), 0);
}

static void bad_logs(void **state)
{
    (void)state;
    assert_int_equal(
        shell("cd '%s' && mkdir -p bad empty && head -c 256512 days/1/audit.kla >bad/open.kla && head -c "
              "256600 days/1/audit.kla >bad/torn.kla && cp days/1/audit.kla bad/altered.kla && printf X | "
              "dd of=bad/altered.kla bs=1 seek=100000 conv=notrunc 2>/dev/null",
              dir),
        0);
    assert_int_equal(run("'%s/bad/open.kla' " ASK " --json", dir), 0);
    assert_has(said.err, "warning: ");
    assert_has(said.err, "open.kla: log was not closed");
    assert_has(said.out, "\"closed\":false");
    assert_has(said.out, "\"records\":1000,");
    assert_int_equal(run("'%s/bad/torn.kla' " ASK, dir), 0);
    assert_has(said.err, "torn.kla: torn tail");
    assert_has(said.out, "not closed: used up to their ends");
    run("'%s/bad/altered.kla' '%s/days/2' " ASK, dir, dir);
    assert_run_fails(1, "altered.kla: chain broken at record 388");
    run("'%s/bad/open.kla' '%s/days/1' " ASK, dir, dir); /* one run's log, twice */
    assert_int_equal(said.status, 1);
    assert_has(said.err, "same run's log");
    run("'%s/empty' " ASK, dir);
    assert_run_fails(1, "empty: no audit log");
    run("'%s/nowhere' " ASK, dir);
    assert_run_fails(1, "nowhere");
    run("'%s/days/1' " ASK " --html '%s/days/2/audit.kla'", dir, dir);
    assert_run_fails(1, "never overwritten");
    run("'%s/days/1' " ASK " --partial '%s/days/2/audit.kla'", dir, dir);
    assert_run_fails(1, "never overwritten");
    run("'%s/days/1' " ASK " --partial /nowhere/x", dir);
    assert_run_fails(1, "/nowhere/x: cannot write");
    run("'%s/days/1' " ASK " --html /nowhere/x", dir);
    assert_int_equal(said.status, 1);
    assert_has(said.err, "/nowhere/x: cannot write");
}

static void wrong_usage(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *says;
    } c[] = {
        {"", "which audit log"},
        {"x --horizon 10ticks", "--thresholds 50us:1ms:50us"},
        {"x --thresholds 50us", "--horizon 10ticks"},
        {"x --thresholds 50us:2ms:50us --horizon 10ticks", "below 1ms"},
        {"x --thresholds 1ms --horizon 10ticks", "not below 1ms"},
        {"x --thresholds 1us:500us:1us --horizon 10ticks", "at most 200"},
        {"x --thresholds 5us:1ms:0us --horizon 10ticks", "step is 0"},
        {"x --thresholds 50us --horizon 10", "10ticks or 100ms"},
        {"x " ASK " --target-miss 1", "1% or 0.25%"},
        {"x " ASK " --jobs 0", "1 to 256"},
        {"x " ASK " --seed -1", "--seed"},
        {"x " ASK " --replicates 39", "40 to 1000"},
        {"x " ASK " --partial p --json", "--merge's"},
        {"--merge", "which partial"},
        {"--merge p " ASK, "from the parts"},
        {"--merge p --seed 2", "from the parts"},
        {"x --nonsense", "nonsense"},
    };
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        run("%s", c[i].arguments);
        assert_run_fails(2, c[i].says);
    }
    assert_int_equal(run("--help"), 0);
    assert_has(said.out, "50us:1ms:50us ends at 950us");
    assert_has(said.out, "sweep.sbatch");
    assert_has(said.out, "without TO itself");
}

/* The job array without Slurm: its tasks by hand, and by a stand-in for sbatch. */
static void slurm_script(void **state)
{
    (void)state;
    char line[4096], head[1024];
    assert_int_equal(shell("cd '%s' && '%s' sweep days " ASK
                           " --html direct.html >direct.txt && '%s' sweep days " ASK " --json >direct.json",
                           dir, KILLLINE, KILLLINE),
                     0);
    snprintf(head, sizeof(head),
             "cd '%s' && export DAYS=days OUT=out THRESHOLDS=5us:60us:5us,999us HORIZON=10ticks "
             "KILLLINE='%s' && ",
             dir, KILLLINE);
    snprintf(line, sizeof(line),
             "%s SLURM_ARRAY_TASK_ID=1 sh '" KL_SBATCH "' task && sh '" KL_SBATCH "' merge", head);
    assert_int_not_equal(keep(command_take(line)), 0);
    assert_has(said.err, "out/part-2.klsweep: not there");
    snprintf(line, sizeof(line),
             "%s for i in 3 1 2; do SLURM_ARRAY_TASK_ID=$i sh '" KL_SBATCH
             "' task || exit 1; done; sh '" KL_SBATCH
             "' merge >merged && cmp out/sweep.txt direct.txt && cmp merged direct.txt && cmp out/sweep.json "
             "direct.json && cmp out/sweep.html direct.html",
             head);
    if (keep(command_take(line)))
        fail_msg("%s %s", said.out, said.err);
    snprintf(line, sizeof(line), "%s SLURM_ARRAY_TASK_ID=4 sh '" KL_SBATCH "' task", head);
    assert_int_not_equal(keep(command_take(line)), 0);
    assert_has(said.err, "has 3 directories only");
    snprintf(line, sizeof(line), "%s sh '" KL_SBATCH "'", head);
    assert_int_not_equal(keep(command_take(line)), 0);
    assert_has(said.err, "of an earlier sweep");
    /* sbatch: runs an array's tasks one by one, and what depends on them, at once. */
    snprintf(
        line, sizeof(line),
        "%s mkdir -p bin && cat >bin/sbatch <<'END'\n"
        "#!/bin/sh\n"
        "tasks= after=\n"
        "while case $1 in --*) true ;; *) false ;; esac; do\n"
        "case $1 in --array=1-*) tasks=${1#--array=1-} ;; --dependency=afterok:7) after=7 ;; esac\n"
        "shift\n"
        "done\n"
        "i=0\n"
        "if [ \"$tasks\" ]; then\n"
        "while [ $i -lt \"$tasks\" ]; do i=$((i + 1)); SLURM_ARRAY_TASK_ID=$i sh \"$@\" >&2 || exit 1; done\n"
        "else [ \"$after\" ] && sh \"$@\" >/dev/null || exit 1; fi\n"
        "echo '7;cluster'\n"
        "END\n"
        "chmod +x bin/sbatch && OUT=out2 PATH=$PWD/bin:$PATH sh '" KL_SBATCH
        "' && cmp out2/sweep.txt direct.txt && cmp out2/sweep.json direct.json",
        head);
    if (keep(command_take(line)))
        fail_msg("%s %s", said.out, said.err);
    assert_has(said.out, "3 days: job 7, then 7 writes out2/sweep.txt");
    assert_int_not_equal(shell("sh '" KL_SBATCH "' merge"), 0);
    assert_has(said.err, "DAYS: directory with one directory per day");
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    if (shell("mkdir -p '%s/days/1' '%s/days/2' '%s/days/3'", dir, dir, dir))
        return -1;
    for (int i = 1; i <= N_DAY; i++) {
        char path[96];
        snprintf(path, sizeof(path), "%s/days/%d/audit.kla", dir, i);
        const struct audit_header h = log_header(AUDIT_CLOCK_REPLAY);
        struct rig_log rig = rig_open(path, &h);
        char error[AUDIT_ERROR_CHARS];
        log_day(rig.log, N, (uint64_t)i);
        if (audit_close(rig.log, NULL, error))
            return -1;
    }
    return shell("cp '%s/days/1/audit.kla' '%s/copy.kla'", dir, dir);
}

static int tear_down(void **state)
{
    (void)state;
    const int status = shell("rm -rf '%s'", dir);
    command_free(&said);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_line_gives_what_was_given),
        cmocka_unit_test(json_has_every_figure),
        cmocka_unit_test(merged_is_direct),
        cmocka_unit_test(page),
        cmocka_unit_test(modelled_or_measured_is_said),
        cmocka_unit_test(bad_logs),
        cmocka_unit_test(wrong_usage),
        cmocka_unit_test(slurm_script),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
