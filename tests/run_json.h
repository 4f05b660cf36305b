/* `killline run --json` on the day of run_day.h, and what its object says. */
#ifndef RUN_JSON_H
#define RUN_JSON_H

#include <jansson.h>

#include "run_day.h"

/* environment: assignments before the command, or "". */
static inline json_t *run_json_with(const char *environment, const char *package, const char *out,
                                    const char *args)
{
    struct command_result c = command_shell("%s '%s' run --pcap %s --model %s --out %s --json %s",
                                            environment, KILLLINE, day, package, out, args);
    if (c.status)
        print_error("%s run %s: status %d\n%s\n", environment, args, c.status, c.err);
    assert_int_equal(c.status, 0);
    json_t *json = json_loads(c.out, 0, NULL);
    assert_non_null(json);
    command_free(&c);
    return json;
}

static inline json_t *run_json(const char *package, const char *out, const char *args)
{
    return run_json_with("", package, out, args);
}

static inline int64_t number_at(json_t *json, const char *a, const char *b)
{
    json_t *v = json_object_get(json, a);
    if (b)
        v = json_object_get(v, b);
    if (!json_is_integer(v))
        print_error("no number %s.%s\n", a, b ? b : "");
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static inline const char *text_at(json_t *json, const char *a, const char *b)
{
    json_t *v = json_object_get(json, a);
    const char *text = json_string_value(b ? json_object_get(v, b) : v);
    assert_non_null(text);
    return text;
}

#endif
