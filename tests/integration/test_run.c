/* The appliance as a command: the same input gives the same log, every verdict can be recomputed from the
 * stamps, what was published is what the log says, and bad input ends in a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "run_day.h"
#include "system_calls.h"

/* Runs `killline run ARGS --json`, checks its exit status and that stderr holds `says`, returns the object.
 */
static json_t *run_json_saying(const char *out, int status, const char *says, const char *args)
{
    struct command_result c = command_run("run --model %s --out %s --json %s", model, out, args);
    if (c.status != status || !strstr(c.err, says))
        print_error("status %d, expected '%s', for: run %s\n%s\n", c.status, says, args, c.err);
    assert_int_equal(c.status, status);
    assert_non_null(strstr(c.err, says));
    json_t *json = json_loads(c.out, 0, NULL);
    assert_non_null(json);
    command_free(&c);
    return json;
}

static json_t *run_json(const char *out, int status, const char *args)
{
    return run_json_saying(out, status, "", args);
}

static int64_t number_at(json_t *json, const char *a, const char *b)
{
    json_t *v = json_object_get(json, a);
    if (b)
        v = json_object_get(v, b);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static int64_t verdict_sum(json_t *json)
{
    int64_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(json, "verdicts"), key, value) sum += json_integer_value(value);
    return sum;
}

static void refused(int status, const char *because, const char *args)
{
    struct command_result c = command_run("run %s", args);
    if (c.status != status || !strstr(c.err, because))
        print_error("run %s: status %d, expected '%s' in:\n%s\n", args, c.status, because, c.err);
    assert_int_equal(c.status, status);
    assert_non_null(strstr(c.err, because));
    command_free(&c);
}

static void replay_is_reproducible(void **state)
{
    (void)state;
    char args[128], first[64], second[64];
    snprintf(args, sizeof(args), "--pcap %s", day);
    strcpy(first, fresh());
    json_t *a = run_json(first, 0, args);
    strcpy(second, fresh());
    json_t *b = run_json(second, 0, args);
    assert_true(number_at(a, "predictions", NULL) > 1000);
    assert_int_equal(number_at(a, "predictions", NULL), verdict_sum(a));
    assert_true(json_equal(json_object_get(a, "verdicts"), json_object_get(b, "verdicts")));
    assert_true(json_equal(json_object_get(a, "latency_ns"), json_object_get(b, "latency_ns")));
    /* the pcap's own stamps are the wall clock's: only the logs are bound to be equal */
    struct command_result c = command_shell("cmp %s/audit.kla %s/audit.kla", first, second);
    assert_int_equal(c.status, 0);
    command_free(&c);
    /* the head in the summary is the log's */
    c = command_run("audit verify %s/audit.kla --json", first);
    assert_int_equal(c.status, 0);
    assert_non_null(strstr(c.out, json_string_value(json_object_get(json_object_get(a, "audit"), "head"))));
    command_free(&c);
    json_decref(a);
    json_decref(b);
}

/* Every record of a log through f. */
static void each_prediction(const char *out, void (*f)(json_t *record, void *ctx), void *ctx)
{
    struct command_result shown = command_run("audit show %s/audit.kla --json", out);
    assert_int_equal(shown.status, 0);
    char *at = NULL;
    for (char *line = strtok_r(shown.out, "\n", &at); line; line = strtok_r(NULL, "\n", &at)) {
        /* An event's values are 64 bits wide, the parser's integers 63. */
        if (!strstr(line, "\"kind\":\"prediction\""))
            continue;
        json_t *record = json_loads(line, 0, NULL);
        assert_non_null(record);
        f(record, ctx);
        json_decref(record);
    }
    command_free(&shown);
}

struct totals {
    int64_t predictions, published, last_publish_seq, server_free, threshold;
    int64_t io_ns, mhz, kernel_late, batched;
    int replay;
    int64_t verdicts[8];
};

/* Independent of the appliance's code: stamps in, verdict out. */
static void recompute(json_t *r, void *ctx)
{
    static const char *const names[] = {"published",       "expected-late", "stale",        "superseded",
                                        "book-unreliable", "warming-up",    "device-error", "halted"};
    struct totals *t = ctx;
    int64_t arrival = number_at(r, "arrival", NULL), decoded = number_at(r, "decoded", NULL),
            submitted = number_at(r, "submitted", NULL), completed = number_at(r, "completed", NULL),
            decided = number_at(r, "decided", NULL), threshold = number_at(r, "threshold_cycles", NULL),
            age = number_at(r, "age_cycles", NULL);
    const char *verdict = json_string_value(json_object_get(r, "verdict"));
    t->predictions++;
    for (int v = 0; v < 8; v++)
        t->verdicts[v] += !strcmp(verdict, names[v]);
    if (!t->threshold)
        t->threshold = threshold;
    assert_int_equal(threshold, t->threshold);
    assert_true(arrival <= decoded && decoded <= decided);
    assert_int_equal(age, decided - arrival);
    if (submitted)
        assert_true(decoded <= submitted && submitted <= completed && completed <= decided);
    if (!strcmp(verdict, "published")) {
        assert_true(submitted && age <= threshold);
        assert_int_equal(number_at(r, "publish_seq", NULL), ++t->last_publish_seq);
        t->published++;
    } else {
        assert_int_equal(number_at(r, "publish_seq", NULL), 0);
    }
    if (!strcmp(verdict, "stale"))
        assert_true(age > threshold);
    /* Not submitted, or seen to be late by the kernel, which then does not begin. */
    int kernel_late = json_is_true(json_object_get(json_object_get(r, "flags"), "kernel_late")),
        inferred = json_is_true(json_object_get(json_object_get(r, "flags"), "inferred"));
    assert_int_equal(inferred, submitted && !kernel_late && strcmp(verdict, "device-error"));
    if (!strcmp(verdict, "expected-late"))
        assert_true(kernel_late ||
                    (!submitted && decided - arrival + number_at(r, "expected_cycles", NULL) > threshold));
    else
        assert_false(kernel_late);
    t->kernel_late += kernel_late;
    if (t->replay && submitted) {
        /* one server: it was free when this tick was handed over, and the inference took its modelled time;
         * in a batch, that of those before it as well */
        int64_t cycles = number_at(r, "kernel_cycles", NULL), prepare = number_at(r, "prepare_cycles", NULL),
                took_ns = t->io_ns + (cycles * 1000 + t->mhz - 1) / t->mhz;
        const int batched = json_is_true(json_object_get(json_object_get(r, "flags"), "batch"));
        if (batched)
            assert_true(completed - submitted > took_ns);
        else
            assert_true(submitted >= t->server_free && completed - submitted == took_ns);
        t->batched += batched;
        t->server_free = decided + (prepare * 1000 + t->mhz - 1) / t->mhz;
    }
}

static void every_verdict_follows_from_its_stamps(void **state)
{
    static const struct {
        const char *args;
        int64_t threshold_ns, io_ns, mhz;
        int replay;
    } runs[] = {{"--set killline.batch=1", 100000, 900, 250, 1},
                {"", 100000, 900, 250, 1},
                {"--set killline.threshold_us=5", 5000, 900, 250, 1},
                /* shorter than one inference: nothing may pass */
                {"--set killline.threshold_us=1", 1000, 900, 250, 1},
                /* with nothing but the kernel behind the submit it is the kernel that finds out */
                {"--set killline.threshold_us=2 --set replay.io_ns=0 --set replay.publish_ns=0 --set "
                 "replay.kernel_mhz=50",
                 2000, 0, 50, 1},
                {"--clock real", 100000, 0, 250, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        char args[256], out[64];
        snprintf(args, sizeof(args), "--pcap %s %s", day, runs[i].args);
        strcpy(out, fresh());
        json_t *json = run_json(out, 0, args);
        /* the real clock's threshold is in cycles of this machine: the first record's, for all */
        struct totals t = {.replay = runs[i].replay,
                           .io_ns = runs[i].io_ns,
                           .mhz = runs[i].mhz,
                           .threshold = runs[i].replay ? runs[i].threshold_ns : 0};
        each_prediction(out, recompute, &t);
        assert_int_equal(t.predictions, number_at(json, "predictions", NULL));
        assert_int_equal(t.published, number_at(json, "verdicts", "published"));
        assert_int_equal(t.verdicts[1], number_at(json, "verdicts", "expected-late"));
        assert_true(t.kernel_late > 5 || runs[i].threshold_ns != 2000);
        assert_true(i == 1 ? t.batched > 10 : i > 0 || !t.batched);
        if (runs[i].threshold_ns == 1000)
            assert_int_equal(t.published, 0);
        else if (runs[i].replay)
            assert_true(t.published > 500);
        /* what left is what the log says */
        struct command_result c = command_run("listen --pcap %s/predictions.pcap --json | wc -l", out);
        assert_int_equal(strtoll(c.out, NULL, 10), number_at(json, "verdicts", "published"));
        command_free(&c);
        json_decref(json);
    }
}

static void symbols_and_messages_are_what_the_capture_holds(void **state)
{
    (void)state;
    char args[256];
    snprintf(args, sizeof(args), "--pcap %s", day);
    json_t *all = run_json(fresh(), 0, args);
    int64_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(all, "messages_by_type"), key, value) sum +=
        json_integer_value(value);
    assert_int_equal(sum, number_at(all, "messages", NULL));
    assert_int_equal(number_at(all, "delivered", NULL), number_at(all, "messages", NULL));
    assert_int_equal(number_at(all, "unknown_messages", NULL), 0);
    assert_true(number_at(all, "gaps", NULL) == number_at(all, "gaps_both", NULL));
    assert_true(number_at(all, "gaps_a", NULL) > 0);
    assert_true(number_at(all, "book_updates", NULL) > 1000);
    /* a symbol that is not there: everything is read, nothing predicted */
    strcat(args, " --symbols NOSUCH");
    json_t *none = run_json(fresh(), 0, args);
    assert_int_equal(number_at(none, "messages", NULL), number_at(all, "messages", NULL));
    assert_int_equal(number_at(none, "predictions", NULL), 0);
    json_decref(all);
    json_decref(none);
}

/* --itch goes the same way: the day's BinaryFILE gives the same books as its capture without loss. */
static void itch_files_go_through_the_ring_port(void **state)
{
    (void)state;
    char args[256], pcap[64], itch[64];
    snprintf(pcap, sizeof(pcap), "%s/whole.pcap", folder);
    snprintf(itch, sizeof(itch), "%s/whole.itch50", folder);
    struct command_result c =
        command_run("synth --out %s --itch %s --seed 5 --seconds 2 --gaps 0 --lost-gaps 0", pcap, itch);
    assert_int_equal(c.status, 0);
    command_free(&c);
    snprintf(args, sizeof(args), "--pcap %s", pcap);
    json_t *a = run_json(fresh(), 0, args);
    snprintf(args, sizeof(args), "--itch %s", itch);
    json_t *b = run_json(fresh(), 0, args);
    assert_int_equal(number_at(a, "messages", NULL), number_at(b, "messages", NULL));
    assert_int_equal(number_at(a, "book_updates", NULL), number_at(b, "book_updates", NULL));
    assert_true(json_equal(json_object_get(a, "messages_by_type"), json_object_get(b, "messages_by_type")));
    assert_int_equal(number_at(b, "predictions", NULL), verdict_sum(b));
    assert_true(number_at(b, "predictions", NULL) > 500);
    json_decref(a);
    json_decref(b);
}

static void bad_input_ends_in_a_message(void **state)
{
    (void)state;
    char args[512], out[64];
    strcpy(out, fresh());
    refused(2, "--itch F or --pcap F", "");
    refused(2, "no-such-option", "--no-such-option");
    refused(2, "expected KEY=VALUE", "--pcap x --set nonsense");
    refused(2, "--pace", "--pcap x --pace -1");
    refused(2, "--out", "--pcap x --out ''");
    refused(2, "--pcap F", "x.pcap");
    snprintf(args, sizeof(args), "--pcap %s --model %s --out '%s,x'", day, model, out);
    refused(1, ",x: a comma in the path", args);
    snprintf(args, sizeof(args), "--pcap %s/nosuch.pcap --model %s --out %s", folder, model, out);
    refused(1, "nosuch.pcap", args);
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s --set killline.threshold_us=1000", day, model,
             out);
    refused(1, "killline.threshold_us", args);
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s --set killline.treshold_us=1", day, model,
             out);
    refused(1, "treshold_us", args);
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s", day, day, out);
    refused(1, day, args);
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s", model, model, out);
    refused(1, model, args);
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s --config %s", day, model, out, day);
    refused(1, "not a configuration", args);
    /* getopt's other way to write it */
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s --config=%s/nosuch.yaml", day, model, out,
             folder);
    refused(1, "nosuch.yaml: cannot read", args);
    refused(2, "'' is no symbol", "--pcap x --symbols A,,B");
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s --set accel_build=tiny", day, model, out);
    refused(1, "tiny", args);
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s --accel fpga", day, model, out);
    refused(1, "fpga", args);
    snprintf(args, sizeof(args), "--pcap %s --model %s --out /dev/null/x", day, model);
    refused(1, "/dev/null/x", args);
    /* an audit log is never overwritten */
    snprintf(args, sizeof(args), "--pcap %s", day);
    json_decref(run_json(out, 0, args));
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s", day, model, out);
    refused(1, "audit.kla", args);
    struct command_result c = command_run("audit verify %s/audit.kla", out);
    assert_int_equal(c.status, 0);
    command_free(&c);
}

/* Without --out the folder is called after the time: runs that start together get one each. */
static void runs_at_the_same_time_do_not_meet(void **state)
{
    (void)state;
    struct command_result c = command_shell(
        "cd %s && for i in 1 2 3 4; do '%s' run --model %s --pcap %s > run$i & pids=\"$pids $!\"; "
        "done; for p in $pids; do wait $p || exit 1; done; ls killline-out/*/audit.kla | wc -l",
        folder, KILLLINE, model, day);
    if (c.status)
        print_error("%s\n", c.err);
    assert_int_equal(c.status, 0);
    assert_int_equal(atoi(c.out), 4);
    command_free(&c);
}

static void what_makes_a_run_empty_is_said(void **state)
{
    (void)state;
    struct command_result c =
        command_run("run --model %s --pcap %s --out %s --symbols NOSUCH", model, day, fresh());
    assert_int_equal(c.status, 0);
    assert_non_null(strstr(c.out, "NOSUCH: no message of the capture names it"));
    command_free(&c);
    char args[256];
    snprintf(args, sizeof(args), "--pcap %s --symbols NOSUCH", day);
    json_t *json = run_json(fresh(), 0, args);
    assert_int_equal(json_array_size(json_object_get(json, "symbols_unseen")), 1);
    json_decref(json);
    c = command_run("run --model %s --pcap %s --out %s --set feed.a.group=224.1.1.1 --set feed.a.port=7",
                    model, day, fresh());
    assert_int_equal(c.status, 0);
    assert_non_null(strstr(c.out, "every frame is of another group"));
    command_free(&c);
}

static void each_kill_line_of_a_run_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *set, *says;
    } runs[] = {{"", "\n  kill line      100.00   "},
                {"--set killline.threshold_max_us=900", "\n  at most        900.00   relaxed under backlog"},
                {"--set killline.ab.threshold_us=40 --set killline.ab.share_percent=30",
                 "\n  arm B           40.00   for 30 % of the symbols"}};
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        struct command_result c =
            command_run("run --model %s --pcap %s --out %s %s", model, day, fresh(), runs[i].set);
        assert_int_equal(c.status, 0);
        assert_non_null(strstr(c.out, runs[0].says));
        for (size_t k = 1; k < sizeof(runs) / sizeof(runs[0]); k++)
            assert_int_equal(strstr(c.out, runs[k].says) != NULL, k == i);
        command_free(&c);
    }
}

static void listen_says_why_it_heard_nothing(void **state)
{
    (void)state;
    struct command_result c = command_run("listen --pcap %s", day);
    assert_int_equal(c.status, 1);
    assert_non_null(strstr(c.err, "0 predictions, 0 lost, "));
    assert_non_null(strstr(c.err, "no datagram is a prediction"));
    command_free(&c);
    c = command_run("listen --pcap %s/nosuch.pcap", folder);
    assert_int_equal(c.status, 1);
    assert_non_null(strstr(c.err, "nosuch.pcap: No such file"));
    assert_null(strstr(c.err, "predictions"));
    command_free(&c);
}

/* What the run did not begin with it does not leave: the folder can be used again. */
static void a_run_that_cannot_start_leaves_no_log(void **state)
{
    (void)state;
    char args[256], out[64];
    strcpy(out, fresh());
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s --set egress.device=net_nosuch0", day, model,
             out);
    refused(1, "net_nosuch0", args);
    snprintf(args, sizeof(args), "--pcap %s", day);
    json_decref(run_json(out, 0, args));
}

static void predictions_are_not_written_through_a_link(void **state)
{
    (void)state;
    char args[128], out[64];
    strcpy(out, fresh());
    struct command_result c = command_shell("mkdir %s && echo precious > %s/other && "
                                            "ln -s %s/other %s/predictions.pcap",
                                            out, folder, folder, out);
    assert_int_equal(c.status, 0);
    command_free(&c);
    snprintf(args, sizeof(args), "--pcap %s", day);
    json_decref(run_json(out, 0, args));
    c = command_shell("cat %s/other; test ! -L %s/predictions.pcap", folder, out);
    assert_int_equal(c.status, 0);
    assert_string_equal(c.out, "precious\n");
    command_free(&c);
}

/* net_pcap does not say that a disk is full: what the file holds is counted at the end. Here it is taken away
 * from under the run. */
static void predictions_missing_from_the_file_are_a_failure(void **state)
{
    (void)state;
    const char *out = fresh();
    struct command_result c = command_shell(
        "'%s' run --model %s --pcap %s --out %s --clock real --pace 1 --set killline.threshold_us=999 --json "
        "& p=$!; "
        "n=0; until [ -e %s/predictions.pcap ]; do n=$((n + 1)); [ $n -lt 600 ] || exit 9; sleep 0.1; done; "
        "head -c 24 %s > %s/none && mv %s/none %s/predictions.pcap; wait $p",
        KILLLINE, model, day, out, out, day, out, out, out);
    if (c.status != 1)
        print_error("status %d: %s\n", c.status, c.err);
    assert_int_equal(c.status, 1);
    assert_non_null(strstr(c.err, "predictions.pcap: holds 0 of "));
    command_free(&c);
    /* A file size limit is an error, not a death. */
    c = command_shell("ulimit -f 100; '%s' run --model %s --pcap %s --out %s", KILLLINE, model, day, fresh());
    assert_int_equal(c.status, 1);
    command_free(&c);
}

/* The capture is read twice, for its stamps and to be played; in between somebody may cut it. */
static void a_capture_cut_while_it_is_played_ends_the_run(void **state)
{
    (void)state;
    const char *out = fresh();
    struct command_result c =
        command_shell("cp %s %s/cut.pcap; timeout 60 '%s' run --model %s --pcap %s/cut.pcap --out %s --clock "
                      "real --pace 1 --json & "
                      "p=$!; n=0; until [ \"$(stat -c %%s %s/audit.kla 2>/dev/null || echo 0)\" -gt 512 ]; "
                      "do n=$((n + 1)); "
                      "[ $n -lt 600 ] || exit 9; sleep 0.1; done; truncate -s 40000 %s/cut.pcap; wait $p",
                      day, folder, KILLLINE, model, folder, out, out, folder);
    if (c.status != 1)
        print_error("status %d: %s\n", c.status, c.err);
    assert_int_equal(c.status, 1);
    assert_non_null(strstr(c.err, "cut.pcap: changed while it was played"));
    assert_null(strstr(c.err, "signal"));
    command_free(&c);
    c = command_run("audit verify %s", out);
    assert_int_equal(c.status, 0);
    command_free(&c);
}

/* A signal ends the run, not its log. */
static void signals_close_the_log(void **state)
{
    (void)state;
    static const char *const signals[] = {"INT", "TERM", "HUP"};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        const char *out = fresh();
        struct command_result c = command_shell(
            "'%s' run --model %s --pcap %s --out %s --clock real --pace 0.05 --json & p=$!; n=0; "
            "until [ \"$(stat -c %%s %s/audit.kla 2>/dev/null || echo 0)\" -gt 512 ]; do n=$((n + 1)); "
            "[ $n -lt 600 ] || exit 9; sleep 0.1; done; kill -%s $p; wait $p",
            KILLLINE, model, day, out, out, signals[i]);
        if (c.status != 1 || !strstr(c.err, "stopped by a signal after"))
            print_error("SIG%s: status %d: %s\n", signals[i], c.status, c.err);
        assert_int_equal(c.status, 1);
        assert_non_null(strstr(c.err, "stopped by a signal after"));
        command_free(&c);
        c = command_run("audit verify %s", out);
        assert_int_equal(c.status, 0);
        command_free(&c);
    }
}

/* What can be read of a torn capture is worked off; the exit status says that it was not all. */
static void torn_captures_are_worked_off_and_reported(void **state)
{
    (void)state;
    char args[256], torn[64];
    snprintf(torn, sizeof(torn), "%s/torn.pcap", folder);
    struct command_result c = command_shell("head -c 200005 %s > %s", day, torn);
    assert_int_equal(c.status, 0);
    command_free(&c);
    snprintf(args, sizeof(args), "--pcap %s", torn);
    json_t *json = run_json_saying(fresh(), 1, "torn.pcap", args);
    assert_true(number_at(json, "messages", NULL) > 100);
    json_decref(json);
}

#ifndef __SANITIZE_ADDRESS__
static void the_poll_loop_makes_no_system_call(void **state)
{
    (void)state;
    char itch[64];
    snprintf(itch, sizeof(itch), "%s/whole.itch50", folder);
    assert_no_system_call("", itch, "", NULL);
}
#endif

static int make_day(void **state)
{
    (void)state;
    return run_day_make(64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_is_reproducible),
        cmocka_unit_test(every_verdict_follows_from_its_stamps),
        cmocka_unit_test(symbols_and_messages_are_what_the_capture_holds),
        cmocka_unit_test(itch_files_go_through_the_ring_port),
        cmocka_unit_test(bad_input_ends_in_a_message),
        cmocka_unit_test(runs_at_the_same_time_do_not_meet),
        cmocka_unit_test(what_makes_a_run_empty_is_said),
        cmocka_unit_test(each_kill_line_of_a_run_is_said),
        cmocka_unit_test(listen_says_why_it_heard_nothing),
        cmocka_unit_test(a_run_that_cannot_start_leaves_no_log),
        cmocka_unit_test(predictions_are_not_written_through_a_link),
        cmocka_unit_test(predictions_missing_from_the_file_are_a_failure),
        cmocka_unit_test(a_capture_cut_while_it_is_played_ends_the_run),
        cmocka_unit_test(signals_close_the_log),
        cmocka_unit_test(torn_captures_are_worked_off_and_reported),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(the_poll_loop_makes_no_system_call),
#endif
    };
    return cmocka_run_group_tests(tests, make_day, run_day_remove);
}
