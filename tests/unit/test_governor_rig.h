/* A governor whose clock counts ns, with a window of 800 and slices of 100. */
#ifndef TEST_GOVERNOR_RIG_H
#define TEST_GOVERNOR_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/governor.h"

enum { SLICE = 100, WINDOW = 8 * SLICE, MIN_COUNT = 10 };

static inline struct governor_config rig_config(void)
{
    return (struct governor_config){.ns_per_unit = 1,
                                    .window = WINDOW,
                                    .min_count = MIN_COUNT,
                                    .has_backup = 1,
                                    .throttle_window = 1000,
                                    .start_cause = GOVERNOR_BY_START};
}

static inline struct governor *rig_create(const struct governor_config *config, uint64_t now)
{
    struct governor *g = governor_create(config, now);
    assert_non_null(g);
    return g;
}

static inline struct governor_stats rig_stats(const struct governor *g)
{
    struct governor_stats s;
    governor_read(g, &s);
    return s;
}

static inline void rig_no_news(struct governor *g)
{
    struct governor_event e;
    assert_int_equal(governor_next(g, &e), 0);
}

/* The next news is this change of the rung. */
static inline struct governor_event rig_rung(struct governor *g, unsigned from, unsigned to, unsigned cause,
                                             unsigned latched)
{
    struct governor_event e;
    assert_int_equal(governor_next(g, &e), 1);
    assert_int_equal(e.news, GOVERNOR_RUNG);
    assert_int_equal(e.from, from);
    assert_int_equal(e.to, to);
    assert_int_equal(e.cause, cause);
    assert_int_equal(e.latched, latched);
    return e;
}

static inline void rig_alert(struct governor *g, unsigned metric, unsigned raised, uint64_t value,
                             uint64_t bound)
{
    struct governor_event e;
    assert_int_equal(governor_next(g, &e), 1);
    assert_int_equal(e.news, GOVERNOR_ALERT);
    assert_int_equal(e.metric, metric);
    assert_int_equal(e.raised, raised);
    assert_int_equal(e.value, value);
    assert_int_equal(e.bound, bound);
}

/* What happens does not matter. */
static inline void rig_drain(struct governor *g)
{
    struct governor_event e;
    while (governor_next(g, &e))
        ;
}

#endif
