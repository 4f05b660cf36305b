/* What keeps the appliance halted: an operator, the throttles, a restart; and resume. */
#include "test_governor_rig.h"

enum { THROTTLE = 1000 /* rig_config's throttle_window */ };

static void halt_is_at_once_and_latched(void **state)
{
    (void)state;
    for (unsigned start = GOVERNOR_ACTIVE; start < GOVERNOR_HALTED; start++) {
        struct governor_config c = rig_config();
        c.start_rung = start;
        c.dwell[GOVERNOR_WARNING] = c.dwell[GOVERNOR_BACKUP] = UINT64_MAX;
        struct governor *g = rig_create(&c, 0);
        governor_halt(g, 7);
        assert_int_equal(governor_rung(g), GOVERNOR_HALTED);
        struct governor_stats s = rig_stats(g);
        assert_int_equal(s.rung, GOVERNOR_HALTED);
        assert_int_equal(s.latched, 1);
        assert_int_equal(s.cause, GOVERNOR_BY_OPERATOR);
        assert_int_equal(s.since, 7);
        rig_rung(g, start, GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1);
        governor_halt(g, 8);
        for (uint64_t now = 0; now < 10 * WINDOW; now += SLICE)
            assert_int_equal(governor_step(g, now), 0);
        assert_int_equal(governor_rung(g), GOVERNOR_HALTED);
        assert_int_equal(rig_stats(g).n_halt_fault, 0); /* nothing forced it */
        rig_no_news(g);
        governor_free(g);
    }
}

/* resource at 90 halts, at 80 does not keep it so. */
static struct governor_config halting_config(void)
{
    struct governor_config c = rig_config();
    c.rule[GOVERNOR_HALTED][GOVERNOR_RESOURCE] = (struct governor_rule){90, 80};
    return c;
}

static void halt_latches_a_halt_by_a_rule(void **state)
{
    (void)state;
    struct governor_config c = halting_config();
    struct governor *g = rig_create(&c, 0);
    governor_resource(g, 90);
    governor_step(g, SLICE);
    rig_rung(g, GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_RESOURCE, 0);
    governor_halt(g, SLICE + 1);
    rig_rung(g, GOVERNOR_HALTED, GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1);
    assert_int_equal(rig_stats(g).changes, 1);
    assert_int_equal(rig_stats(g).since, SLICE);
    governor_resource(g, 0);
    assert_int_equal(governor_step(g, 2 * SLICE), 0);
    assert_int_equal(governor_rung(g), GOVERNOR_HALTED);
    governor_free(g);
}

static void stays_halted_by_a_rule(void **state)
{
    (void)state;
    for (int stays = 0; stays < 2; stays++) {
        struct governor_config c = halting_config();
        c.stays_halted = stays;
        struct governor *g = rig_create(&c, 0);
        governor_resource(g, 90);
        governor_step(g, SLICE);
        rig_rung(g, GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_RESOURCE, (unsigned)stays);
        governor_resource(g, 0);
        governor_step(g, 2 * SLICE);
        assert_int_equal(governor_rung(g), stays ? GOVERNOR_HALTED : GOVERNOR_BACKUP);
        assert_int_equal(rig_stats(g).latched, stays);
        governor_free(g);
    }
}

static void resume_empties_all(void **state)
{
    (void)state;
    struct governor_config c = halting_config();
    c.throttle_devices = 3;
    struct governor *g = rig_create(&c, 0);
    governor_resource(g, 90);
    for (int i = 0; i < MIN_COUNT; i++)
        governor_prediction(g, VERDICT_STALE, 2000, 1000);
    governor_busy(g, SLICE);
    governor_device_error(g, SLICE - 2);
    governor_device_error(g, SLICE - 1);
    governor_step(g, SLICE);
    assert_int_equal(rig_stats(g).n_halt_fault, 1);
    assert_int_equal(rig_stats(g).n_device_fault, 2);
    governor_prediction(g, VERDICT_STALE, 2000, 1000);
    governor_device_error(g, SLICE + 1); /* too many, but not evaluated yet */
    rig_drain(g);

    governor_resource(g, 0);
    governor_resume(g, SLICE + 50);
    rig_rung(g, GOVERNOR_HALTED, GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0);
    struct governor_stats s = rig_stats(g);
    assert_int_equal(s.rung, GOVERNOR_WARNING);
    assert_int_equal(s.latched, 0);
    assert_int_equal(s.since, SLICE + 50);
    assert_int_equal(s.n_device_fault, 0);
    assert_int_equal(s.n_halt_fault, 0);
    assert_int_equal(governor_step(g, 2 * SLICE + 49), 0);
    assert_int_equal(rig_stats(g).at, SLICE); /* slices begin at resume */
    governor_busy(g, SLICE / 2);
    governor_step(g, 2 * SLICE + 50);
    s = rig_stats(g);
    assert_int_equal(s.at, 2 * SLICE + 50);
    assert_int_equal(s.count, 0);
    assert_int_equal(s.max_ns, 0);
    assert_int_equal(s.metric[GOVERNOR_MISS], 0);
    assert_int_equal(s.metric[GOVERNOR_DEVICE], 0);
    assert_int_equal(s.metric[GOVERNOR_BUSY], 50);
    assert_int_equal(s.total, MIN_COUNT + 1); /* of the run */
    assert_int_equal(s.total_by_verdict[VERDICT_STALE], MIN_COUNT + 1);
    governor_free(g);
}

static void resume_elsewhere_does_nothing(void **state)
{
    (void)state;
    for (unsigned start = GOVERNOR_ACTIVE; start < GOVERNOR_HALTED; start++) {
        struct governor_config c = rig_config();
        c.start_rung = start;
        c.dwell[GOVERNOR_WARNING] = c.dwell[GOVERNOR_BACKUP] = UINT64_MAX;
        struct governor *g = rig_create(&c, 0);
        governor_prediction(g, VERDICT_PUBLISHED, 1, 1000);
        governor_device_error(g, 1);
        governor_resume(g, 5);
        rig_no_news(g);
        governor_step(g, SLICE);
        struct governor_stats s = rig_stats(g);
        assert_int_equal(s.rung, start);
        assert_int_equal(s.count, 1);
        assert_int_equal(s.n_device_fault, 1);
        assert_int_equal(s.changes, 0);
        governor_free(g);
    }
}

static void device_throttle_at_the_next_step(void **state)
{
    (void)state;
    struct governor_config c = rig_config();
    c.dwell[GOVERNOR_WARNING] = UINT64_MAX;
    c.throttle_devices = 3;
    struct governor *g = rig_create(&c, 0);
    governor_device_error(g, 1);
    governor_device_error(g, 2);
    assert_int_equal(governor_step(g, 3), 0);
    assert_int_equal(rig_stats(g).metric[GOVERNOR_DEVICE], 2);
    assert_int_equal(governor_step(g, 4), 0);
    assert_int_equal(rig_stats(g).at, 3); /* evaluated once for each */
    governor_device_error(g, 4);
    assert_int_not_equal(governor_step(g, 5), 0);
    rig_rung(g, GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_BY_DEVICE_THROTTLE, 1);
    governor_device_error(g, 6);
    assert_int_equal(governor_step(g, 7), 0); /* once */
    rig_no_news(g);
    assert_int_equal(rig_stats(g).n_halt_fault, 0);
    assert_int_equal(governor_step(g, 100 * THROTTLE), 0);
    assert_int_equal(governor_rung(g), GOVERNOR_HALTED);
    governor_resume(g, 100 * THROTTLE + 1);
    rig_drain(g);
    governor_device_error(g, 100 * THROTTLE + 2);
    governor_step(g, 100 * THROTTLE + 3);
    assert_int_equal(governor_rung(g), GOVERNOR_WARNING);
    governor_free(g);
}

/* Two carried over, the older one at the window's edge at the third, across time 0 and a wrap. */
static void carried_faults_at_the_windows_edge(void **state)
{
    (void)state;
    static const uint64_t starts[] = {0, 50, THROTTLE, UINT64_MAX - 10, UINT64_MAX / 2};
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        for (uint64_t age = THROTTLE - 1; age <= THROTTLE + 1; age++) {
            const uint64_t now = starts[i], at = now + 20;
            struct governor_config c = rig_config();
            c.throttle_devices = 3;
            c.n_device_fault = 2;
            c.device_fault[0] = at - age;
            c.device_fault[1] = now - 5;
            c.start_rung = GOVERNOR_WARNING;
            c.dwell[GOVERNOR_WARNING] = UINT64_MAX;
            struct governor *g = rig_create(&c, now);
            struct governor_stats s = rig_stats(g);
            assert_int_equal(s.n_device_fault, 2);
            assert_int_equal(s.device_fault[0], at - age);
            assert_int_equal(s.device_fault[1], now - 5);
            governor_device_error(g, at);
            const int news = governor_step(g, at);
            s = rig_stats(g);
            assert_int_equal(news != 0, age <= THROTTLE);
            assert_int_equal(s.rung, age <= THROTTLE ? GOVERNOR_HALTED : GOVERNOR_WARNING);
            assert_int_equal(s.n_device_fault, age <= THROTTLE ? 3 : 2);
            assert_int_equal(s.device_fault[s.n_device_fault - 1], at);
            governor_free(g);
        }
}

static void too_many_carried_trip_at_the_first_step(void **state)
{
    (void)state;
    for (int halts = 0; halts < 2; halts++)
        for (unsigned start = GOVERNOR_ACTIVE; start <= GOVERNOR_HALTED; start++) {
            struct governor_config c = rig_config();
            c.start_rung = start;
            c.start_cause = GOVERNOR_BY_RESTART;
            c.dwell[GOVERNOR_WARNING] = c.dwell[GOVERNOR_BACKUP] = UINT64_MAX;
            c.throttle_devices = c.throttle_halts = 2;
            *(halts ? &c.n_halt_fault : &c.n_device_fault) = 2;
            uint64_t *at = halts ? c.halt_fault : c.device_fault;
            at[0] = UINT64_MAX - 9;
            at[1] = 500; /* ahead: of a clock that went back */
            struct governor *g = rig_create(&c, 100);
            governor_step(g, 100);
            if (start != GOVERNOR_HALTED)
                rig_rung(g, start, GOVERNOR_HALTED,
                         halts ? GOVERNOR_BY_HALT_THROTTLE : GOVERNOR_BY_DEVICE_THROTTLE, 1);
            rig_no_news(g);
            assert_int_equal(governor_rung(g), GOVERNOR_HALTED);
            struct governor_stats s = rig_stats(g);
            assert_int_equal(halts ? s.halt_fault[1] : s.device_fault[1], 100);
            governor_free(g);
        }
}

/* Forced halts at SLICE and at the window's edge after it. */
static void halt_throttle(void **state)
{
    (void)state;
    for (uint64_t window = 2 * SLICE - 1; window <= 2 * SLICE + 1; window++)
        for (uint32_t bound = 0; bound <= 3; bound++) {
            struct governor_config c = halting_config();
            c.throttle_halts = bound;
            c.throttle_window = window;
            struct governor *g = rig_create(&c, 0);
            uint64_t now = 0;
            for (int i = 0; i < 2; i++) {
                governor_resource(g, 90);
                governor_step(g, now += SLICE);
                if (bound == 1 && i)
                    break;
                rig_rung(g, i ? GOVERNOR_BACKUP : GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_RESOURCE, 0);
                if (bound == 1 || (bound == 2 && i && window >= 2 * SLICE))
                    rig_rung(g, GOVERNOR_HALTED, GOVERNOR_HALTED, GOVERNOR_BY_HALT_THROTTLE, 1);
                rig_no_news(g);
                governor_resource(g, 0);
                governor_step(g, now += SLICE);
                rig_drain(g);
            }
            const int latched = bound == 1 || (bound == 2 && window >= 2 * SLICE);
            assert_int_equal(rig_stats(g).latched, latched);
            assert_int_equal(governor_rung(g), latched ? GOVERNOR_HALTED : GOVERNOR_BACKUP);
            governor_free(g);
        }
}

static void no_throttle_and_a_full_list(void **state)
{
    (void)state;
    struct governor_config c = rig_config();
    struct governor *g = rig_create(&c, 0);
    for (uint64_t i = 0; i < GOVERNOR_N_FAULT + 6; i++)
        governor_device_error(g, i);
    assert_int_equal(governor_step(g, 90), 0);
    struct governor_stats s = rig_stats(g);
    assert_int_equal(s.n_device_fault, GOVERNOR_N_FAULT);
    for (uint64_t i = 0; i < GOVERNOR_N_FAULT; i++)
        assert_int_equal(s.device_fault[i], i + 6);
    assert_int_equal(s.metric[GOVERNOR_DEVICE], GOVERNOR_N_FAULT + 6);
    governor_free(g);

    c.throttle_devices = GOVERNOR_N_FAULT;
    g = rig_create(&c, 0);
    for (uint64_t i = 0; i < GOVERNOR_N_FAULT; i++) {
        assert_int_equal(governor_rung(g), GOVERNOR_ACTIVE);
        governor_device_error(g, i);
        governor_step(g, i);
    }
    assert_int_equal(governor_rung(g), GOVERNOR_HALTED);
    governor_free(g);
}

static void restarts_where_it_was(void **state)
{
    (void)state;
    for (unsigned start = GOVERNOR_ACTIVE; start <= GOVERNOR_HALTED; start++)
        for (int has_backup = 0; has_backup < 2; has_backup++) {
            struct governor_config c = rig_config();
            c.has_backup = has_backup;
            c.start_rung = start;
            c.start_cause = start == GOVERNOR_HALTED ? GOVERNOR_BY_STATE_FILE : GOVERNOR_BY_RESTART;
            c.dwell[GOVERNOR_WARNING] = c.dwell[GOVERNOR_BACKUP] = 2 * SLICE;
            struct governor *g = rig_create(&c, 77);
            const unsigned expect = start == GOVERNOR_BACKUP && !has_backup ? GOVERNOR_WARNING : start;
            struct governor_stats s = rig_stats(g); /* before the first evaluation */
            assert_int_equal(s.rung, expect);
            assert_int_equal(governor_rung(g), expect);
            assert_int_equal(s.cause, c.start_cause);
            assert_int_equal(s.latched, start == GOVERNOR_HALTED);
            assert_int_equal(s.since, 77);
            assert_int_equal(s.at, 77);
            assert_int_equal(s.count + s.total + s.changes + s.alerts + s.per_s, 0);
            rig_no_news(g);
            governor_step(g, 77 + 2 * SLICE - 1); /* dwell counts from the start */
            assert_int_equal(governor_rung(g), expect);
            governor_step(g, 77 + 2 * SLICE);
            const unsigned up = expect == GOVERNOR_BACKUP    ? GOVERNOR_WARNING
                                : expect == GOVERNOR_WARNING ? GOVERNOR_ACTIVE
                                                             : expect;
            assert_int_equal(governor_rung(g), up);
            governor_free(g);
        }
}

/* What is remembered goes back with the clock: ages stay, and no time passes. */
static void clock_that_goes_back(void **state)
{
    (void)state;
    struct governor_config c = rig_config();
    c.start_rung = GOVERNOR_WARNING;
    c.dwell[GOVERNOR_WARNING] = 2 * SLICE;
    c.n_halt_fault = 1;
    c.halt_fault[0] = 990;
    struct governor *g = rig_create(&c, 1000);
    governor_device_error(g, 1010);
    governor_step(g, 1050);
    assert_int_equal(governor_step(g, 20), 0); /* 1050 is now 20 */
    assert_int_equal(rig_stats(g).at, 1050);
    governor_step(g, 69);
    assert_int_equal(rig_stats(g).at, 1050);
    governor_step(g, 70);
    struct governor_stats s = rig_stats(g);
    assert_int_equal(s.at, 70);
    assert_int_equal(s.device_fault[0], UINT64_MAX - 19); /* 20 before 0 */
    assert_int_equal(s.halt_fault[0], UINT64_MAX - 39);
    assert_int_equal(s.since, UINT64_MAX - 29);
    assert_int_equal(s.metric[GOVERNOR_DEVICE], 1);
    governor_step(g, 169);
    assert_int_equal(governor_rung(g), GOVERNOR_WARNING);
    governor_step(g, 170);
    assert_int_equal(governor_rung(g), GOVERNOR_ACTIVE);
    governor_halt(g, 100);
    assert_int_equal(rig_stats(g).since, 100);
    assert_int_equal(rig_stats(g).at, 100); /* was 170 */
    governor_step(g, 250);                  /* the slice ended at 270, which is 200 now */
    assert_int_equal(rig_stats(g).at, 250);
    governor_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halt_is_at_once_and_latched),
        cmocka_unit_test(halt_latches_a_halt_by_a_rule),
        cmocka_unit_test(stays_halted_by_a_rule),
        cmocka_unit_test(resume_empties_all),
        cmocka_unit_test(resume_elsewhere_does_nothing),
        cmocka_unit_test(device_throttle_at_the_next_step),
        cmocka_unit_test(carried_faults_at_the_windows_edge),
        cmocka_unit_test(too_many_carried_trip_at_the_first_step),
        cmocka_unit_test(halt_throttle),
        cmocka_unit_test(no_throttle_and_a_full_list),
        cmocka_unit_test(restarts_where_it_was),
        cmocka_unit_test(clock_that_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
