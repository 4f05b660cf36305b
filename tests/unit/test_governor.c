/* The governor's rules: each metric at its bounds, the ladder's ways, dwell, alerts. */
#include "host/governor_window.h"
#include "test_governor_rig.h"

static const struct governor_rule bounds[GOVERNOR_N_METRIC] = {
    [GOVERNOR_LATENCY] = {80, 60}, [GOVERNOR_SPREAD] = {50, 30},   [GOVERNOR_MISS] = {100, 50},
    [GOVERNOR_BUSY] = {70, 60},    [GOVERNOR_RESOURCE] = {70, 60}, [GOVERNOR_DEVICE] = {5, 2}};

static void predict(struct governor *g, uint64_t n, enum verdict verdict, uint64_t age)
{
    for (uint64_t i = 0; i < n; i++)
        governor_prediction(g, verdict, age, 1000);
}

/* The metric gets this value; time since the window was empty: span. */
static void feed(struct governor *g, unsigned metric, uint64_t value, uint64_t span)
{
    switch (metric) {
    case GOVERNOR_LATENCY:
        predict(g, MIN_COUNT, VERDICT_PUBLISHED, value * 10);
        break;
    case GOVERNOR_SPREAD:
        predict(g, MIN_COUNT - 4, VERDICT_PUBLISHED, 0);
        predict(g, 4, VERDICT_PUBLISHED, value);
        break;
    case GOVERNOR_MISS:
        predict(g, 1000000 - value, VERDICT_SUPERSEDED, 0);
        predict(g, value, VERDICT_STALE, 0);
        break;
    case GOVERNOR_BUSY:
        governor_busy(g, value * span / 100);
        break;
    case GOVERNOR_RESOURCE:
        governor_resource(g, (uint32_t)value);
        break;
    default:
        for (uint64_t i = 0; i < value; i++)
            governor_device_error(g, span - 1);
    }
}

static void enters_at_the_bound(void **state)
{
    (void)state;
    for (unsigned rung = GOVERNOR_WARNING; rung <= GOVERNOR_HALTED; rung++)
        for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++)
            for (uint64_t value = bounds[m].enter - 1; value <= bounds[m].enter + 1; value++) {
                struct governor_config c = rig_config();
                if (rung == GOVERNOR_HALTED && m <= GOVERNOR_MISS)
                    continue; /* not by one slice: halted_by_half_a_window */
                c.rule[rung][m] = bounds[m];
                struct governor *g = rig_create(&c, 0);
                feed(g, m, value, SLICE);
                const int news = governor_step(g, SLICE);
                struct governor_stats s = rig_stats(g);
                assert_int_equal(s.metric[m], value);
                if (value < bounds[m].enter) {
                    assert_int_equal(news, 0);
                    assert_int_equal(governor_rung(g), GOVERNOR_ACTIVE);
                } else {
                    assert_int_not_equal(news, 0);
                    if (rung == GOVERNOR_WARNING)
                        rig_alert(g, m, 1, value, bounds[m].enter);
                    struct governor_event e = rig_rung(g, GOVERNOR_ACTIVE, rung, m, 0);
                    assert_int_equal(e.value, value);
                    assert_int_equal(e.bound, bounds[m].enter);
                    assert_int_equal(governor_rung(g), rung);
                    assert_int_equal(s.rung, rung);
                    assert_int_equal(s.cause, m);
                    assert_int_equal(s.since, SLICE);
                    assert_int_equal(s.changes, 1);
                    assert_int_equal(s.n_halt_fault, rung == GOVERNOR_HALTED);
                }
                rig_no_news(g);
                governor_free(g);
            }
}

/* Another metric leads to the rung, and is quiet then. */
static void leaves_at_the_bound(void **state)
{
    (void)state;
    for (unsigned rung = GOVERNOR_WARNING; rung <= GOVERNOR_HALTED; rung++)
        for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++)
            for (uint64_t value = bounds[m].leave - 1; value <= bounds[m].leave + 1; value++) {
                const unsigned other = m == GOVERNOR_BUSY ? GOVERNOR_RESOURCE : GOVERNOR_BUSY;
                struct governor_config c = rig_config();
                c.rule[rung][m] = bounds[m];
                c.rule[rung][other] = (struct governor_rule){100, 99};
                struct governor *g = rig_create(&c, 0);
                feed(g, other, 100, SLICE);
                governor_step(g, SLICE);
                assert_int_equal(governor_rung(g), rung);
                rig_drain(g);
                if (other == GOVERNOR_RESOURCE)
                    feed(g, other, 0, SLICE);
                feed(g, m, value, 2 * SLICE);
                governor_step(g, 2 * SLICE);
                assert_int_equal(rig_stats(g).metric[m], value);
                if (rung == GOVERNOR_WARNING) /* the alert of what led there */
                    rig_alert(g, other, 0, other == GOVERNOR_BUSY ? 50 : 0, 99);
                if (value <= bounds[m].leave)
                    rig_rung(g, rung, rung - 1, GOVERNOR_BY_QUIET, 0);
                rig_no_news(g);
                governor_free(g);
            }
}

static void stays_for_the_dwell_time(void **state)
{
    (void)state;
    for (unsigned rung = GOVERNOR_WARNING; rung <= GOVERNOR_HALTED; rung++)
        for (uint64_t dwell = 2 * SLICE - 1; dwell <= 2 * SLICE + 1; dwell++) {
            struct governor_config c = rig_config();
            c.rule[rung][GOVERNOR_RESOURCE] = bounds[GOVERNOR_RESOURCE];
            c.dwell[rung] = dwell;
            struct governor *g = rig_create(&c, 0);
            governor_resource(g, 100);
            governor_step(g, SLICE);
            governor_resource(g, 0);
            governor_step(g, 2 * SLICE);
            assert_int_equal(governor_rung(g), rung);
            governor_step(g, 3 * SLICE);
            assert_int_equal(governor_rung(g), dwell <= 2 * SLICE ? rung - 1 : rung);
            governor_free(g);
        }
}

static void min_count_at_the_edge(void **state)
{
    (void)state;
    for (uint64_t n = MIN_COUNT - 1; n <= MIN_COUNT + 1; n++) {
        struct governor_config c = rig_config();
        struct governor *g = rig_create(&c, 0);
        /* neither latency's nor misses' */
        predict(g, 100, VERDICT_BOOK_UNRELIABLE, 5000);
        predict(g, 100, VERDICT_WARMING_UP, 5000);
        predict(g, 100, VERDICT_HALTED, 5000);
        predict(g, 6, VERDICT_PUBLISHED, 3);
        predict(g, n - 6, VERDICT_STALE, 2000);
        governor_step(g, SLICE);
        struct governor_stats s = rig_stats(g);
        const int enough = n >= MIN_COUNT;
        assert_int_equal(s.metric[GOVERNOR_LATENCY], enough ? 200 : 0);
        assert_int_equal(s.metric[GOVERNOR_SPREAD], enough ? 1997 : 0);
        assert_int_equal(s.metric[GOVERNOR_MISS], enough ? (n - 6) * 1000000 / n : 0);
        assert_int_equal(s.count, 300 + n);
        assert_int_equal(s.max_ns, 2000);
        governor_free(g);
    }
}

/* What each verdict counts for. */
static void verdicts_count_where_they_should(void **state)
{
    (void)state;
    static const struct {
        int aged, wanted, missed;
    } expect[VERDICT_COUNT] = {[VERDICT_PUBLISHED] = {1, 1, 0},    [VERDICT_EXPECTED_LATE] = {1, 1, 1},
                               [VERDICT_STALE] = {1, 1, 1},        [VERDICT_SUPERSEDED] = {0, 1, 0},
                               [VERDICT_BOOK_UNRELIABLE] = {0},    [VERDICT_WARMING_UP] = {0},
                               [VERDICT_DEVICE_ERROR] = {1, 1, 1}, [VERDICT_HALTED] = {0}};
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        for (int known = 0; known < 2; known++) {
            struct governor_config c = rig_config();
            struct governor *g = rig_create(&c, 0);
            predict(g, MIN_COUNT, v, known ? 500 : KILLLINE_AGE_NEVER);
            governor_step(g, SLICE);
            struct governor_stats s = rig_stats(g);
            const int aged = expect[v].aged && known;
            assert_int_equal(s.metric[GOVERNOR_LATENCY], aged ? 50 : 0);
            assert_int_equal(s.p50_ns, aged ? 500 : 0);
            assert_int_equal(s.p99_ns, aged ? 500 : 0);
            assert_int_equal(s.metric[GOVERNOR_MISS], expect[v].missed ? 1000000 : 0);
            assert_int_equal(s.by_verdict[v], MIN_COUNT);
            assert_int_equal(s.total_by_verdict[v], MIN_COUNT);
            assert_int_equal(s.total, MIN_COUNT);
            predict(g, MIN_COUNT, VERDICT_STALE, KILLLINE_AGE_NEVER);
            governor_step(g, 2 * SLICE);
            const int wanted = expect[v].wanted, missed = expect[v].missed;
            assert_int_equal(rig_stats(g).metric[GOVERNOR_MISS], wanted && !missed ? 500000 : 1000000);
            governor_free(g);
        }
}

/* Each tick's age is set against its own threshold, rounded up. */
static void latency_is_relative(void **state)
{
    (void)state;
    static const struct {
        uint64_t age, threshold, percent;
    } cases[] = {{0, 0, 0},
                 {0, 1000, 0},
                 {1, 1000, 1},
                 {100, 200, 50},
                 {990, 1000, 99},
                 {991, 1000, 100},
                 {1000, 1000, 100},
                 {1001, 1000, 101},
                 {7, 7, 100},
                 {1, 3, 34},
                 {1, 0, UINT64_MAX / 10 + 1},
                 {UINT64_MAX / 1000 + 1, 1000, UINT64_MAX / 10 + 1},
                 {1000000, 1000, 100000}, /* beyond the last bucket: the largest itself */
                 {1000, KILLLINE_AGE_NEVER, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct governor_config c = rig_config();
        c.min_count = 0;
        struct governor *g = rig_create(&c, 0);
        governor_prediction(g, VERDICT_PUBLISHED, cases[i].age, cases[i].threshold);
        governor_step(g, SLICE);
        assert_int_equal(rig_stats(g).metric[GOVERNOR_LATENCY], cases[i].percent);
        governor_free(g);
    }
}

static void ring_and_resources_fullest_counts(void **state)
{
    (void)state;
    struct governor_config c = rig_config();
    struct governor *g = rig_create(&c, 0);
    static const struct {
        uint64_t used, size;
        uint32_t other;
        uint64_t percent;
    } cases[] = {{0, 0, 0, 0},   {699, 1000, 0, 69},   {700, 1000, 69, 70},
                 {1, 2, 51, 51}, {1100, 1000, 0, 100}, {UINT64_MAX / 2, UINT64_MAX, 0, 50}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        governor_ring(g, cases[i].used, cases[i].size);
        governor_resource(g, cases[i].other);
        governor_step(g, (i + 1) * SLICE);
        struct governor_stats s = rig_stats(g);
        assert_int_equal(s.metric[GOVERNOR_RESOURCE], cases[i].percent);
        assert_int_equal(s.ring_used, cases[i].used);
        assert_int_equal(s.ring_size, cases[i].size);
    }
    governor_free(g);
}

/* Rules by resource: WARNING 50/40, BACKUP 70/60, HALTED 90/80. */
static struct governor_config ladder_config(int has_backup)
{
    struct governor_config c = rig_config();
    c.has_backup = has_backup;
    c.rule[GOVERNOR_WARNING][GOVERNOR_RESOURCE] = (struct governor_rule){50, 40};
    c.rule[GOVERNOR_BACKUP][GOVERNOR_RESOURCE] = (struct governor_rule){70, 60};
    c.rule[GOVERNOR_HALTED][GOVERNOR_RESOURCE] = (struct governor_rule){90, 80};
    return c;
}

/* Steps through the resource's percentages; the rung after each. */
static void walk(int has_backup, size_t n, const uint32_t (*steps)[2])
{
    struct governor_config c = ladder_config(has_backup);
    struct governor *g = rig_create(&c, 0);
    uint64_t changes = 0;
    for (size_t i = 0; i < n; i++) {
        const enum governor_rung from = governor_rung(g);
        governor_resource(g, steps[i][0]);
        governor_step(g, (i + 1) * SLICE);
        assert_int_equal(governor_rung(g), steps[i][1]);
        struct governor_event e;
        int told = 0;
        while (governor_next(g, &e))
            if (e.news == GOVERNOR_RUNG) {
                assert_int_equal(e.from, from);
                assert_int_equal(e.to, steps[i][1]);
                assert_int_equal(e.cause, e.to > e.from ? GOVERNOR_RESOURCE : (unsigned)GOVERNOR_BY_QUIET);
                told++;
            }
        assert_int_equal(told, from != steps[i][1]);
        changes += from != steps[i][1];
        assert_int_equal(rig_stats(g).changes, changes);
    }
    governor_free(g);
}
#define WALK(has_backup, ...)                                                                                \
    walk(has_backup, sizeof((uint32_t[][2]){__VA_ARGS__}) / sizeof(uint32_t[2]),                             \
         (const uint32_t[][2]){__VA_ARGS__})

static void goes_down_at_once_and_up_rung_by_rung(void **state)
{
    (void)state;
    enum { A = GOVERNOR_ACTIVE, W = GOVERNOR_WARNING, B = GOVERNOR_BACKUP, H = GOVERNOR_HALTED };
    WALK(1, {49, A}, {50, W}, {70, B}, {90, H}, {0, B}, {0, W}, {0, A}, {0, A});
    WALK(1, {70, B}, {0, W}, {90, H}, {0, B}, {0, W}, {69, W}, {0, A}, {90, H});
    WALK(1, {90, H}, {81, H}, {80, B}, {90, H}, {75, B}, {61, B}, {60, W}, {60, W}, {41, W}, {40, A});
}

/* In BACKUP, WARNING's bounds say nothing; there again, they keep it there. */
static void rules_of_rungs_above_do_not_count(void **state)
{
    (void)state;
    enum { W = GOVERNOR_WARNING, B = GOVERNOR_BACKUP };
    WALK(1, {70, B}, {65, B}, {65, B}, {55, W}, {55, W}, {55, W});
}

static void no_backup_is_skipped_both_ways(void **state)
{
    (void)state;
    enum { A = GOVERNOR_ACTIVE, W = GOVERNOR_WARNING, H = GOVERNOR_HALTED };
    WALK(0, {70, W}, {89, W}, {90, H}, {81, H}, {80, W}, {89, W}, {0, A}, {90, H}, {0, W}, {0, A});
    struct governor_config c = ladder_config(0);
    c.rule[GOVERNOR_WARNING][GOVERNOR_RESOURCE].enter = c.rule[GOVERNOR_WARNING][GOVERNOR_RESOURCE].leave = 0;
    struct governor *g = rig_create(&c, 0);
    governor_resource(g, 70);
    assert_int_equal(governor_step(g, SLICE), 0); /* BACKUP's rule leads nowhere */
    assert_int_equal(governor_rung(g), GOVERNOR_ACTIVE);
    governor_free(g);
}

static void rung_without_rules_is_left_after_its_dwell(void **state)
{
    (void)state;
    struct governor_config c = rig_config();
    c.start_rung = GOVERNOR_BACKUP;
    c.start_cause = GOVERNOR_BY_RESTART;
    c.dwell[GOVERNOR_BACKUP] = 2 * SLICE;
    c.dwell[GOVERNOR_WARNING] = SLICE;
    struct governor *g = rig_create(&c, 0);
    governor_resource(g, 100);
    assert_int_equal(governor_step(g, SLICE), 0);
    assert_int_not_equal(governor_step(g, 2 * SLICE), 0);
    rig_rung(g, GOVERNOR_BACKUP, GOVERNOR_WARNING, GOVERNOR_BY_QUIET, 0);
    assert_int_not_equal(governor_step(g, 3 * SLICE), 0);
    rig_rung(g, GOVERNOR_WARNING, GOVERNOR_ACTIVE, GOVERNOR_BY_QUIET, 0);
    governor_free(g);
}

/* Raised at enter, gone at leave, whatever the rung; at most once each. */
static void alerts_have_hysteresis_in_every_rung(void **state)
{
    (void)state;
    for (unsigned start = GOVERNOR_ACTIVE; start <= GOVERNOR_HALTED; start++) {
        struct governor_config c = rig_config();
        c.start_rung = start;
        c.dwell[GOVERNOR_WARNING] = c.dwell[GOVERNOR_BACKUP] = UINT64_MAX; /* stays */
        c.rule[GOVERNOR_WARNING][GOVERNOR_RESOURCE] = bounds[GOVERNOR_RESOURCE];
        struct governor *g = rig_create(&c, 0);
        static const struct {
            uint32_t percent;
            int raised; /* 1, 0, or no news */
        } steps[] = {{69, -1}, {70, 1},  {100, -1}, {69, -1}, {61, -1},
                     {60, 0},  {69, -1}, {71, 1},   {0, 0},   {0, -1}};
        uint64_t alerts = 0;
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
            governor_resource(g, steps[i].percent);
            governor_step(g, (i + 1) * SLICE);
            if (steps[i].raised >= 0) {
                alerts = (uint64_t)steps[i].raised << GOVERNOR_RESOURCE;
                rig_alert(g, GOVERNOR_RESOURCE, (unsigned)steps[i].raised, steps[i].percent,
                          steps[i].raised ? 70 : 60);
            }
            if (start != GOVERNOR_ACTIVE)
                rig_no_news(g);
            rig_drain(g);
            assert_int_equal(rig_stats(g).alerts, alerts);
            if (start != GOVERNOR_ACTIVE)
                assert_int_equal(governor_rung(g), start);
        }
        governor_free(g);
    }
}

/* All at once: the most news that one call brings. */
/* What ticks say leads to HALTED when they came in half of the window's slices at least, not in one burst; to
 * the other rungs at once. */
static void halted_by_half_a_window(void **state)
{
    (void)state;
    for (unsigned rung = GOVERNOR_WARNING; rung <= GOVERNOR_HALTED; rung++)
        for (unsigned m = GOVERNOR_LATENCY; m <= GOVERNOR_MISS; m++) {
            struct governor_config c = rig_config();
            c.rule[rung][m] = (struct governor_rule){1, 0};
            struct governor *g = rig_create(&c, 0);
            unsigned n = 0;
            while (governor_rung(g) == GOVERNOR_ACTIVE && n < GOVERNOR_N_SLICE) {
                predict(g, MIN_COUNT - 1, VERDICT_PUBLISHED, 3);
                predict(g, 1 + MIN_COUNT / 10, VERDICT_STALE, 2000);
                governor_step(g, ++n * SLICE);
            }
            assert_int_equal(n, rung == GOVERNOR_HALTED ? GOVERNOR_N_SLICE / 2 : 1);
            assert_int_equal(governor_rung(g), rung);
            struct governor_event e;
            while (governor_next(g, &e))
                ;
            governor_free(g);
        }
}

static void every_alert_at_once(void **state)
{
    (void)state;
    struct governor_config c = rig_config();
    c.throttle_halts = 1;
    for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++)
        c.rule[GOVERNOR_WARNING][m] = c.rule[GOVERNOR_HALTED][m] = (struct governor_rule){1, 0};
    struct governor *g = rig_create(&c, 0);
    predict(g, MIN_COUNT, VERDICT_PUBLISHED, 3);
    predict(g, MIN_COUNT, VERDICT_STALE, 2000);
    governor_busy(g, 50);
    governor_resource(g, 50);
    governor_device_error(g, SLICE);
    governor_step(g, SLICE);
    struct governor_event e;
    for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++) {
        assert_int_equal(governor_next(g, &e), 1);
        assert_int_equal(e.news, GOVERNOR_ALERT);
        assert_int_equal(e.metric, m);
    }
    rig_rung(g, GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_BUSY, 0); /* by ticks not in one slice */
    rig_rung(g, GOVERNOR_HALTED, GOVERNOR_HALTED, GOVERNOR_BY_HALT_THROTTLE, 1);
    rig_no_news(g);
    governor_free(g);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(governor_rung_name(GOVERNOR_ACTIVE), "ACTIVE");
    assert_string_equal(governor_rung_name(GOVERNOR_HALTED), "HALTED");
    assert_null(governor_rung_name(GOVERNOR_N_RUNG));
    assert_string_equal(governor_metric_name(GOVERNOR_LATENCY), "latency_percent");
    assert_string_equal(governor_metric_name(GOVERNOR_DEVICE), "device_errors");
    assert_null(governor_metric_name(GOVERNOR_N_METRIC));
    for (unsigned i = 0; i < GOVERNOR_N_CAUSE; i++)
        assert_non_null(governor_cause_name(i));
    assert_null(governor_cause_name(GOVERNOR_N_CAUSE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enters_at_the_bound),
        cmocka_unit_test(leaves_at_the_bound),
        cmocka_unit_test(stays_for_the_dwell_time),
        cmocka_unit_test(min_count_at_the_edge),
        cmocka_unit_test(verdicts_count_where_they_should),
        cmocka_unit_test(latency_is_relative),
        cmocka_unit_test(ring_and_resources_fullest_counts),
        cmocka_unit_test(goes_down_at_once_and_up_rung_by_rung),
        cmocka_unit_test(rules_of_rungs_above_do_not_count),
        cmocka_unit_test(no_backup_is_skipped_both_ways),
        cmocka_unit_test(rung_without_rules_is_left_after_its_dwell),
        cmocka_unit_test(alerts_have_hysteresis_in_every_rung),
        cmocka_unit_test(halted_by_half_a_window),
        cmocka_unit_test(every_alert_at_once),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
