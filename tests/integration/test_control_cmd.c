/* killline halt, resume, status, whole: to an appliance (control_rig.h, in this process), to none, and while
 * one starts; and everything that they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "command.h"
#include "control_rig.h"

static struct control_rig rig;

static int make(void **state)
{
    (void)state;
    rig_make(&rig);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    rig_remove(&rig);
    return 0;
}

static int make_and_start(void **state)
{
    make(state);
    rig_start(&rig);
    return 0;
}

static int stop_and_clean(void **state)
{
    rig_stop(&rig);
    return clean(state);
}

/* Frees the result. */
static void expect(struct command_result r, int status, const char *out, const char *err)
{
    if (r.status != status || !strstr(r.out, out) || !strstr(r.err, err)) {
        dprintf(STDOUT_FILENO, "status %d, not %d, or no '%s' and '%s' in:\n%s%s\n", r.status, status, out,
                err, r.out, r.err);
        fail();
    }
    command_free(&r);
}

static json_t *json_of(struct command_result r, int status)
{
    json_t *root = json_loads(r.out, 0, NULL);
    if (r.status != status || !root) {
        dprintf(STDOUT_FILENO, "status %d: %s%s\n", r.status, r.out, r.err);
        fail();
    }
    command_free(&r);
    return root;
}

static const char *text(const json_t *root, const char *key)
{
    const char *value = json_string_value(json_object_get(root, key));
    assert_non_null(value);
    return value;
}

static int is_true(const json_t *root, const char *key)
{
    assert_true(json_is_boolean(json_object_get(root, key)));
    return json_is_true(json_object_get(root, key));
}

static void running(void **state)
{
    (void)state;
    char by[64];
    rig.ages_us = 90;
    rig_await(&rig, GOVERNOR_WARNING, 0);
    rig_sleep_ms(30);
    expect(command_run("status --state '%s'", rig.folder), 0, "WARNING since 20", "");
    expect(command_run("status --state '%s'", rig.folder), 0,
           "latency near or over the line\n  run          a day, process ", "");
    expect(command_run("status --state '%s'", rig.folder), 0, "  alerts       latency_percent\n", "");
    expect(command_run("status --state '%s'", rig.folder), 0, "  kill line    100.0 us\n", "");
    expect(command_run("status --state '%s'", rig.folder), 0, " us (arrival to verdict, measured)\n", "");
    json_t *root = json_of(command_run("status --json --state '%s'", rig.folder), 0);
    assert_true(is_true(root, "running"));
    assert_string_equal(text(root, "rung"), "WARNING");
    assert_true(json_integer_value(json_object_get(json_object_get(root, "window"), "count")) > 0);
    json_decref(root);

    expect(command_run("halt --state '%s' --by ann --reason 'smoke in row 7'", rig.folder), 0,
           "halted by ann (uid ", "");
    assert_true(order_is_halted(&rig.desk));
    snprintf(by, sizeof(by), "ann (uid %u)", (unsigned)getuid());
    assert_string_equal(rig.by, by);
    assert_string_equal(rig.reason, "smoke in row 7");
    expect(command_run("status --state '%s'", rig.folder), 0,
           "operator; nothing is published until killline resume\n  last order   ann (uid ", "");
    root = json_of(command_run("halt --json --state '%s'", rig.folder), 0);
    assert_true(is_true(root, "acknowledged"));
    snprintf(by, sizeof(by), " (uid %u)", (unsigned)getuid()); /* behind the login name */
    assert_true(strlen(text(root, "by")) > strlen(by));
    assert_non_null(strstr(text(root, "by"), by));
    json_decref(root);

    rig.ages_us = 5;
    expect(command_run("resume --state '%s' --by bob --reason aired", rig.folder), 0, "resumed by bob (uid ",
           "");
    assert_false(order_is_halted(&rig.desk));
    expect(command_run("resume --state '%s' --by bob --reason aired", rig.folder), 1, "",
           "killline: nothing to resume: it is not halted");
    root = json_of(command_run("resume --json --state '%s' --by bob --reason aired", rig.folder), 1);
    assert_false(is_true(root, "ok"));
    json_decref(root);

    rig.ages_us = 400;
    rig_await(&rig, GOVERNOR_HALTED, 0);
    rig_sleep_ms(30);
    expect(command_run("status --state '%s'", rig.folder), 0,
           "; nothing is published until its rules are quiet again, or killline resume\n", "");

    rig.hangs = 1;
    expect(command_run("halt --state '%s'", rig.folder), 1, "", "has not acknowledged within 1000 ms");
    assert_true(order_is_halted(&rig.desk));
}

static void nobody(void **state)
{
    (void)state;
    expect(command_run("status --state '%s'", rig.folder), 0, "no appliance runs in ", "");
    expect(command_run("status --state '%s'", rig.folder), 0,
           ", and none has left a state there: the next one starts ACTIVE\n", "");
    expect(command_run("resume --state '%s' --by b --reason r", rig.folder), 1, "", "nothing to resume");
    expect(command_run("halt --state '%s' --by ann --reason dark", rig.folder), 0, "it starts halted\n", "");
    json_t *root = json_of(command_run("status --json --state '%s'", rig.folder), 0);
    assert_false(is_true(root, "running"));
    assert_true(is_true(root, "latched"));
    assert_string_equal(text(root, "rung"), "HALTED");
    assert_string_equal(text(root, "cause"), "operator");
    assert_string_equal(text(root, "reason"), "dark");
    assert_true(json_is_null(json_object_get(root, "pid")));
    json_decref(root);
    rig_start(&rig);
    assert_int_equal(rig.start.rung, GOVERNOR_HALTED);
    rig_stop(&rig);
    root = json_of(command_run("resume --json --state '%s' --by bob --reason light", rig.folder), 0);
    assert_false(is_true(root, "running"));
    assert_true(is_true(root, "saved"));
    json_decref(root);
    expect(command_run("status --state '%s'", rig.folder), 0, "WARNING since 20", "");

    /* The default folder, made for a halt, not for a look. */
    expect(command_shell("unset XDG_STATE_HOME; HOME='%s/home' '%s' status && ls '%s'", rig.folder, KILLLINE,
                         rig.folder),
           0, "home/.local/state/killline", "");
    expect(command_shell("test -e '%s/home'", rig.folder), 1, "", "");
    expect(command_shell("unset XDG_STATE_HOME; HOME='%s/home' '%s' halt && cat "
                         "'%s/home/.local/state/killline/state.json'",
                         rig.folder, KILLLINE, rig.folder),
           0, "\"rung\": \"halted\"", "");

    expect(command_shell("printf x >'%s/state.json'", rig.folder), 0, "", "");
    expect(command_run("status --state '%s'", rig.folder), 1,
           "HALTED: state of the last run unreadable; nothing is published until killline resume\n",
           "Remedy: killline resume --by NAME --reason TEXT");
    expect(command_run("resume --state '%s' --by b --reason r", rig.folder), 0, "it starts in WARNING", "");
    expect(command_run("status --state '%s'", rig.folder), 0, "WARNING since 20", "");
}

/* Between its lock and its socket a command waits for it. */
struct early {
    const char *arguments;
    struct command_result said;
    _Atomic int is_over;
};

static void *ask_early(void *argument)
{
    struct early *early = argument;
    early->said = command_run("%s --state '%s'", early->arguments, rig.folder);
    early->is_over = 1;
    return NULL;
}

static void while_it_starts(void **state)
{
    (void)state;
    struct early early[] = {{.arguments = "halt --by ann"}, {.arguments = "status"}};
    pthread_t threads[2];
    rig_open(&rig);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_early, &early[i]), 0);
    rig_sleep_ms(300);
    const int was_over = early[0].is_over || early[1].is_over;
    rig_start(&rig);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_false(was_over);
    expect(early[0].said, 0, "halted by ann (uid ", "");
    expect(early[1].said, 0, "  run          a day, process ", "");
    assert_true(order_is_halted(&rig.desk));
    rig_await(&rig, GOVERNOR_HALTED, 1);
    rig_stop(&rig);
}

static void refused(void **state)
{
    (void)state;
    static const char name31[] = "0123456789012345678901234567890",
                      reason94[] = "0123456789012345678901234567890123456789012345678901234567890123456789"
                                   "012345678901234567890123";
    static const struct {
        const char *arguments, *why;
    } wrong[] = {
        {"resume", "resume needs --by NAME and --reason TEXT"},
        {"resume --by b", "resume needs --by NAME and --reason TEXT"},
        {"resume --reason r", "resume needs --by NAME and --reason TEXT"},
        {"resume --by '' --reason r", "--by : it is empty: up to 30 printable ASCII characters"},
        {"resume --by b --reason ''", "--reason : it is empty: up to 93 printable ASCII characters"},
        {"halt --by ''", "--by : it is empty"},
        {"halt --by caf\xc3\xa9", "it has a character that is not printable ASCII: up to 30"},
        {"halt --reason \"$(printf 'a\\nb')\"", "it has a character that is not printable ASCII: up to 93"},
        {"halt more", "'more' is not an option"},
        {"halt --colour red", "--help lists the options"},
        {"status --by b", "status takes neither --by nor --reason"},
        {"status more", "'more' is not an option"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect(command_run("%s", wrong[i].arguments), 2, "", wrong[i].why);
    expect(command_run("halt --by %s", name31), 2, "", "it is too long: up to 30");
    expect(command_run("halt --reason %s", reason94), 2, "", "it is too long: up to 93");
    expect(command_run("halt --state '%s' --by %s --reason %s", rig.folder, name31 + 1, reason94 + 1), 0,
           "it starts halted", "");
    expect(command_shell("env -u XDG_STATE_HOME -u HOME '%s' status", KILLLINE), 1, "",
           "neither XDG_STATE_HOME nor HOME");
    expect(command_run("halt --state '/proc/none'"), 1, "", "/proc/none: could not be made");
    expect(command_run("status --state '/tmp/%090d'", 0), 1, "", "a socket's address leaves 94");
    expect(command_shell("'%s' status --state '%s' >/dev/full", KILLLINE, rig.folder), 1, "",
           "standard output: write failed");
    expect(command_run("halt --help"), 0, "usage: killline halt", "");
    expect(command_run("resume -h"), 0, "usage: killline resume", "");
    expect(command_run("status --help"), 0, "usage: killline status", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(running, make_and_start, stop_and_clean),
        cmocka_unit_test_setup_teardown(nobody, make, clean),
        cmocka_unit_test_setup_teardown(while_it_starts, make, clean),
        cmocka_unit_test_setup_teardown(refused, make, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
