/* What the tests of control share: a rig (control_rig.h), its setup and teardown, questions and expectations.
 */
#ifndef TEST_CONTROL_RIG_H
#define TEST_CONTROL_RIG_H

#include <jansson.h>

#include "control_rig.h"

static struct control_rig rig;
static int passed;
static char error[CONTROL_ERROR_CHARS], answer[CONTROL_ANSWER_BYTES];

static inline int make(void **state)
{
    (void)state;
    passed = 0;
    rig_make(&rig);
    return 0;
}

static inline int make_and_start(void **state)
{
    make(state);
    rig_start(&rig);
    return 0;
}

static inline int clean(void **state)
{
    (void)state;
    rig_remove(&rig);
    return 0;
}

static inline int stop_and_clean(void **state)
{
    rig_stop(&rig);
    if (!passed)
        fprintf(stderr, "stderr of the test that failed:\n%s", rig_err(&rig));
    return clean(state);
}

static inline json_t *ask(const char *request)
{
    const int asked = control_ask(rig.folder, request, answer, error);
    if (asked)
        fail_msg("%s: %d %s", request, asked, error);
    json_t *root = json_loads(answer, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    return root;
}

static inline int is_true(const json_t *root, const char *key)
{
    assert_true(json_is_boolean(json_object_get(root, key)));
    return json_is_true(json_object_get(root, key));
}

static inline long long number(const json_t *root, const char *key)
{
    assert_true(json_is_integer(json_object_get(root, key)));
    return json_integer_value(json_object_get(root, key));
}

static inline const char *text(const json_t *root, const char *key)
{
    const char *value = json_string_value(json_object_get(root, key));
    assert_non_null(value);
    return value;
}

static inline void expect_file(enum governor_rung rung, unsigned cause, int latched, const char *by,
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

/* Since then it may have come up, being quiet. */
static inline void expect_resumed(const char *by, const char *reason)
{
    struct state_file s;
    assert_int_equal(control_read(rig.folder, &s, error), 0);
    const int is_up = s.rung == GOVERNOR_ACTIVE;
    expect_file(is_up ? GOVERNOR_ACTIVE : GOVERNOR_WARNING, is_up ? GOVERNOR_BY_QUIET : GOVERNOR_BY_OPERATOR,
                0, by, reason);
}

/* Within 10 s. */
static inline void expect_err(const char *line)
{
    for (int i = 0; i < 2000 && !strstr(rig_err(&rig), line); i++)
        rig_sleep_ms(5);
    if (!strstr(rig_err(&rig), line))
        fail_msg("no '%s' in:\n%s", line, rig_err(&rig));
}

static inline unsigned count_err(const char *line)
{
    unsigned n = 0;
    for (const char *at = rig_err(&rig); (at = strstr(at, line)); at++)
        n++;
    return n;
}

static const char halt[] = "{\"command\":\"halt\",\"by\":\"ann\",\"reason\":\"smoke\"}",
                  resume[] = "{\"command\":\"resume\",\"by\":\"bob\",\"reason\":\"aired\"}",
                  ask_status[] = "{\"command\":\"status\"}";
static inline const char *by_ann(void)
{
    static char by[ORDER_BY_CHARS];
    order_by(by, "ann", getuid());
    return by;
}
static inline const char *by_bob(void)
{
    static char by[ORDER_BY_CHARS];
    order_by(by, "bob", getuid());
    return by;
}

#define RUNNING(f)  cmocka_unit_test_setup_teardown(f, make_and_start, stop_and_clean)
#define PREPARED(f) cmocka_unit_test_setup_teardown(f, make, clean)

#endif
