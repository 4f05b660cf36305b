/* The appliance as a command: the same input gives the same log, every verdict can be recomputed from the
 * stamps, what was published is what the log says, and bad input ends in a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "model_package.h"
#include "shell.h"

static char folder[] = "/tmp/test_run_XXXXXX", day[64], model[64];

/* A fresh output folder's name. */
static const char *fresh(void)
{
    static char path[64];
    static int n;
    snprintf(path, sizeof(path), "%s/out%d", folder, n++);
    return path;
}

/* Runs `killline run ARGS --json`, checks its exit status, returns the object. */
static json_t *run_json(const char *out, int status, const char *args)
{
    struct shell_result c =
        shell_run("%s run --model %s --out %s --json %s 2>%s/stderr", KILLLINE, model, out, args, folder);
    if (c.status != status) {
        struct shell_result e = shell_run("cat %s/stderr", folder);
        print_error("status %d for: run %s\n%s\n", c.status, args, e.out);
        shell_free(&e);
    }
    assert_int_equal(c.status, status);
    json_t *json = json_loads(c.out, 0, NULL);
    assert_non_null(json);
    shell_free(&c);
    return json;
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
    struct shell_result c = shell_run("%s run %s", KILLLINE, args);
    if (c.status != status || !strstr(c.out, because))
        print_error("run %s: status %d, expected '%s' in:\n%s\n", args, c.status, because, c.out);
    assert_int_equal(c.status, status);
    assert_non_null(strstr(c.out, because));
    shell_free(&c);
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
    struct shell_result c =
        shell_run("cmp %s/audit.kla %s/audit.kla && cmp %s/predictions.pcap %s/predictions.pcap", first,
                  second, first, second);
    /* the pcap's own stamps are the wall clock's: only the logs are bound to be equal */
    assert_null(strstr(c.out, "audit.kla"));
    shell_free(&c);
    /* the head in the summary is the log's */
    c = shell_run("%s audit verify %s/audit.kla --json", KILLLINE, first);
    assert_int_equal(c.status, 0);
    assert_non_null(strstr(c.out, json_string_value(json_object_get(json_object_get(a, "audit"), "head"))));
    shell_free(&c);
    json_decref(a);
    json_decref(b);
}

/* Every record of a log through f. */
static void each_prediction(const char *out, void (*f)(json_t *record, void *ctx), void *ctx)
{
    char line[4096], command[512];
    snprintf(command, sizeof(command), "%s audit show %s/audit.kla --json", KILLLINE, out);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    while (fgets(line, sizeof(line), pipe)) {
        json_t *record = json_loads(line, 0, NULL);
        assert_non_null(record);
        const char *kind = json_string_value(json_object_get(record, "kind"));
        if (!strcmp(kind, "prediction"))
            f(record, ctx);
        json_decref(record);
    }
    assert_int_equal(pclose(pipe), 0);
}

struct totals {
    int64_t predictions, published, last_publish_seq, server_free, threshold;
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
    if (!strcmp(verdict, "expected-late"))
        assert_true(!submitted && decided - arrival + number_at(r, "expected_cycles", NULL) > threshold);
    if (t->replay && submitted) {
        /* one server: it was free when this tick's decode began, and the inference took its modelled time */
        assert_true(decoded >= t->server_free);
        int64_t cycles = number_at(r, "kernel_cycles", NULL), prepare = number_at(r, "prepare_cycles", NULL);
        assert_int_equal(completed - submitted, 900 + (cycles * 1000 + 249) / 250);
        t->server_free = decided + (prepare * 1000 + 249) / 250;
    }
}

static void every_verdict_follows_from_its_stamps(void **state)
{
    static const struct {
        const char *args;
        int64_t threshold_ns;
        int replay;
    } runs[] = {{"", 100000, 1},
                {"--set killline.threshold_us=5", 5000, 1},
                {"--set killline.threshold_us=1", 1000, 1}, /* shorter than one inference: nothing may pass */
                {"--clock real", 100000, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        char args[256], out[64];
        snprintf(args, sizeof(args), "--pcap %s %s", day, runs[i].args);
        strcpy(out, fresh());
        json_t *json = run_json(out, 0, args);
        struct totals t = {.replay = runs[i].replay, .threshold = runs[i].threshold_ns};
        if (!runs[i].replay) { /* in cycles of this machine: taken from the first record */
            struct shell_result c =
                shell_run("%s audit show %s/audit.kla --json --verdict published --limit 1", KILLLINE, out);
            json_t *first = json_loads(c.out, 0, NULL);
            t.threshold = first ? number_at(first, "threshold_cycles", NULL) : 0;
            json_decref(first);
            shell_free(&c);
        }
        if (t.threshold)
            each_prediction(out, recompute, &t);
        if (runs[i].replay || t.threshold) {
            assert_int_equal(t.predictions, number_at(json, "predictions", NULL));
            assert_int_equal(t.published, number_at(json, "verdicts", "published"));
            assert_int_equal(t.verdicts[1], number_at(json, "verdicts", "expected-late"));
        }
        if (runs[i].threshold_ns == 1000)
            assert_int_equal(t.published, 0);
        else if (runs[i].replay)
            assert_true(t.published > 500);
        /* what left is what the log says */
        struct shell_result c =
            shell_run("%s listen --pcap %s/predictions.pcap --json 2>/dev/null | wc -l", KILLLINE, out);
        assert_int_equal(strtoll(c.out, NULL, 10), number_at(json, "verdicts", "published"));
        shell_free(&c);
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
    struct shell_result c = shell_run(
        "%s synth --out %s --itch %s --seed 5 --seconds 2 --gaps 0 --lost-gaps 0", KILLLINE, pcap, itch);
    assert_int_equal(c.status, 0);
    shell_free(&c);
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
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s --accel fpga", day, model, out);
    refused(1, "fpga", args);
    snprintf(args, sizeof(args), "--pcap %s --model %s --out /dev/null/x", day, model);
    refused(1, "/dev/null/x", args);
    /* an audit log is never overwritten */
    snprintf(args, sizeof(args), "--pcap %s", day);
    json_decref(run_json(out, 0, args));
    snprintf(args, sizeof(args), "--pcap %s --model %s --out %s", day, model, out);
    refused(1, "audit.kla", args);
    struct shell_result c = shell_run("%s audit verify %s/audit.kla", KILLLINE, out);
    assert_int_equal(c.status, 0);
    shell_free(&c);
}

/* What can be read of a torn capture is worked off; the exit status says that it was not all. */
static void torn_captures_are_worked_off_and_reported(void **state)
{
    (void)state;
    char args[256], torn[64];
    snprintf(torn, sizeof(torn), "%s/torn.pcap", folder);
    struct shell_result c = shell_run("head -c 200005 %s > %s", day, torn);
    shell_free(&c);
    snprintf(args, sizeof(args), "--pcap %s", torn);
    json_t *json = run_json(fresh(), 1, args);
    assert_true(number_at(json, "messages", NULL) > 100);
    json_decref(json);
    c = shell_run("grep -c torn.pcap %s/stderr", folder);
    assert_true(atoi(c.out) >= 1);
    shell_free(&c);
}

/* Between the poll thread's two name changes its trace is empty. Not under AddressSanitizer, whose own
 * allocator maps memory at any time. */
#ifndef __SANITIZE_ADDRESS__
static void the_poll_loop_makes_no_system_call(void **state)
{
    (void)state;
    char itch[64], trace[64];
    snprintf(itch, sizeof(itch), "%s/whole.itch50", folder);
    snprintf(trace, sizeof(trace), "%s/trace", folder);
    struct shell_result c = shell_run("strace -ff -o %s %s run --itch %s --model %s "
                                      "--out %s --clock real --set "
                                      "egress.device=net_null0 --set audit.on_full=wait --json",
                                      trace, KILLLINE, itch, model, fresh());
    if (c.status)
        print_error("%s\n", c.out);
    assert_int_equal(c.status, 0);
    shell_free(&c);
    /* prints the lines between the marks; exits 3 when no thread shows both */
    c = shell_run(
        "awk '/PR_SET_NAME, \"kl-poll\"/ {inside = 1; began++; next} /PR_SET_NAME, \"kl-poll-done\"/ "
        "{inside = 0; ended++} inside {print} END {exit began == 1 && ended == 1 ? 0 : 3}' %s.*",
        trace);
    if (c.status || c.out[0])
        print_error("system calls in the poll loop, or no marks (status %d):\n%.2000s\n", c.status, c.out);
    assert_int_equal(c.status, 0);
    assert_string_equal(c.out, "");
    shell_free(&c);
}
#endif

static int make_day(void **state)
{
    (void)state;
    char error[MODEL_ERROR_CHARS];
    assert_non_null(mkdtemp(folder));
    snprintf(day, sizeof(day), "%s/day.pcap", folder);
    snprintf(model, sizeof(model), "%s/model.klm", folder);
    if (model_package_write(model, 16, 1, error)) {
        print_error("%s\n", error);
        return -1;
    }
    struct shell_result c = shell_run("%s synth --out %s --seed 3 --seconds 3", KILLLINE, day);
    if (c.status)
        print_error("%s\n", c.out);
    int status = c.status;
    shell_free(&c);
    return status;
}

static int remove_folder(void **state)
{
    (void)state;
    struct shell_result c = shell_run("rm -rf %s", folder);
    shell_free(&c);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_is_reproducible),
        cmocka_unit_test(every_verdict_follows_from_its_stamps),
        cmocka_unit_test(symbols_and_messages_are_what_the_capture_holds),
        cmocka_unit_test(itch_files_go_through_the_ring_port),
        cmocka_unit_test(bad_input_ends_in_a_message),
        cmocka_unit_test(torn_captures_are_worked_off_and_reported),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(the_poll_loop_makes_no_system_call),
#endif
    };
    return cmocka_run_group_tests(tests, make_day, remove_folder);
}
