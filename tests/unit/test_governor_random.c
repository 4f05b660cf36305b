/* The ladder over random rules and figures: every step is what the rules say, and every change is told. */
#include "test_governor_rig.h"

enum { N_RUN = 300, N_STEP = 2000, N_TIME = N_STEP + 2 };

static uint64_t random_state = 88172645463325252u;
static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

/* Of resource and device errors: what can be told from outside at once. */
static struct governor_config random_config(void)
{
    struct governor_config c = rig_config();
    for (unsigned rung = GOVERNOR_WARNING; rung <= GOVERNOR_HALTED; rung++) {
        c.dwell[rung] = random_below(6 * SLICE);
        if (random_below(4)) {
            const uint64_t enter = 1 + random_below(100);
            c.rule[rung][GOVERNOR_RESOURCE] = (struct governor_rule){enter, random_below(enter)};
        }
        if (random_below(3) == 0) {
            const uint64_t enter = 1 + random_below(8);
            c.rule[rung][GOVERNOR_DEVICE] = (struct governor_rule){enter, random_below(enter)};
        }
    }
    c.has_backup = (int)random_below(2);
    c.stays_halted = random_below(4) == 0;
    c.throttle_devices = (uint32_t)random_below(10);
    c.throttle_halts = (uint32_t)random_below(6);
    c.throttle_window = random_below(100 * SLICE);
    c.start_rung = (enum governor_rung)random_below(GOVERNOR_N_RUNG);
    return c;
}

struct times {
    uint32_t n, first;
    uint64_t at[2 * N_TIME];
};

/* How many of the last GOVERNOR_N_FAULT lie within the window. */
static uint32_t within(struct times *t, uint64_t now, uint64_t window)
{
    if (t->n - t->first > GOVERNOR_N_FAULT)
        t->first = t->n - GOVERNOR_N_FAULT;
    while (t->first < t->n && now - t->at[t->first] > window)
        t->first++;
    return t->n - t->first;
}

static int reached(const struct governor_config *c, unsigned rung, const uint64_t *metric)
{
    if (rung == GOVERNOR_BACKUP && !c->has_backup)
        return 0;
    for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++)
        if (c->rule[rung][m].enter && metric[m] >= c->rule[rung][m].enter)
            return 1;
    return 0;
}

static int is_loud(const struct governor_config *c, unsigned rung, const uint64_t *metric)
{
    for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++)
        if (c->rule[rung][m].enter && metric[m] > c->rule[rung][m].leave)
            return 1;
    return 0;
}

struct ladder {
    unsigned rung;
    int latched;
    uint64_t since, changes;
    struct times device, halt;
};

static void move(struct governor *g, struct ladder *l, unsigned to, unsigned cause, int latched, uint64_t now)
{
    rig_rung(g, l->rung, to, cause, (unsigned)latched);
    if (l->rung != to) {
        l->since = now;
        l->changes++;
    }
    l->rung = to;
    l->latched = latched;
}

/* What an evaluation has to have done, by the rules. */
static void follow(struct governor *g, const struct governor_config *c, struct ladder *l, uint64_t now)
{
    const struct governor_stats s = rig_stats(g);
    const uint32_t devices = within(&l->device, now, c->throttle_window);
    if (!l->latched && c->throttle_devices && devices >= c->throttle_devices)
        move(g, l, GOVERNOR_HALTED, GOVERNOR_BY_DEVICE_THROTTLE, 1, now);
    if (!l->latched) {
        unsigned lowest = 0;
        for (unsigned rung = l->rung + 1; rung <= GOVERNOR_HALTED; rung++)
            lowest = reached(c, rung, s.metric) ? rung : lowest;
        if (lowest) {
            if (lowest == GOVERNOR_HALTED)
                l->halt.at[l->halt.n++] = now;
            const struct governor_rule *resource = &c->rule[lowest][GOVERNOR_RESOURCE];
            const int by_resource = resource->enter && s.metric[GOVERNOR_RESOURCE] >= resource->enter;
            move(g, l, lowest, by_resource ? GOVERNOR_RESOURCE : GOVERNOR_DEVICE,
                 lowest == GOVERNOR_HALTED && c->stays_halted, now);
        } else if (l->rung != GOVERNOR_ACTIVE && now - l->since >= c->dwell[l->rung] &&
                   !is_loud(c, l->rung, s.metric))
            move(g, l, l->rung == GOVERNOR_HALTED && !c->has_backup ? GOVERNOR_WARNING : l->rung - 1,
                 GOVERNOR_BY_QUIET, 0, now);
    }
    const uint32_t halts = within(&l->halt, now, c->throttle_window);
    if (!l->latched && c->throttle_halts && halts >= c->throttle_halts)
        move(g, l, GOVERNOR_HALTED, GOVERNOR_BY_HALT_THROTTLE, 1, now);
    rig_no_news(g);
    assert_int_equal(s.rung, l->rung);
    assert_int_equal(s.latched, l->latched);
    assert_int_equal(s.since, l->since);
    assert_int_equal(s.changes, l->changes);
    assert_int_equal(s.n_device_fault, devices);
    assert_true(s.n_halt_fault == halts);
}

static void skip_alerts(struct governor *g, const struct governor_config *c, uint64_t *alerts)
{
    const struct governor_stats s = rig_stats(g);
    for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++) {
        const struct governor_rule *rule = &c->rule[GOVERNOR_WARNING][m];
        const int was = *alerts >> m & 1;
        if (rule->enter && was != (was ? s.metric[m] > rule->leave : s.metric[m] >= rule->enter)) {
            rig_alert(g, m, !was, s.metric[m], was ? rule->leave : rule->enter);
            *alerts ^= UINT64_C(1) << m;
        }
    }
    assert_int_equal(s.alerts, *alerts);
}

static void random_ladder(void **state)
{
    (void)state;
    static struct ladder l;
    uint64_t visits[GOVERNOR_N_RUNG] = {0}, latches = 0;
    for (int run = 0; run < N_RUN; run++) {
        const struct governor_config c = random_config();
        uint64_t now = random_below(2) ? 0 : UINT64_MAX - random_below(N_STEP * SLICE), alerts = 0;
        struct governor *g = rig_create(&c, now);
        l = (struct ladder){.rung = governor_rung(g), .since = now};
        l.latched = l.rung == GOVERNOR_HALTED;
        uint64_t begin = now;
        for (int i = 0; i < N_STEP; i++) {
            now += random_below(SLICE);
            if (random_below(40) == 0)
                governor_resource(g, (uint32_t)random_below(101));
            const int failed = random_below(60) == 0;
            if (failed) {
                governor_device_error(g, now);
                l.device.at[l.device.n++] = now;
            }
            const int over = now - begin >= SLICE;
            begin += over ? SLICE : 0;
            const int news = governor_step(g, now);
            if (over || failed) {
                const unsigned from = l.rung;
                const uint64_t changes = l.changes, had = alerts;
                const int was = l.latched;
                skip_alerts(g, &c, &alerts);
                follow(g, &c, &l, now);
                assert_int_equal(news != 0, changes != l.changes || had != alerts || was != l.latched);
                visits[l.rung] += from != l.rung;
                latches += was != l.latched;
            } else
                assert_int_equal(news, 0);
            assert_int_equal(governor_rung(g), l.rung);
            if (random_below(500) == 0) {
                governor_halt(g, now);
                if (!l.latched)
                    move(g, &l, GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1, now);
                rig_no_news(g);
            } else if (random_below(100) == 0) {
                governor_resume(g, now);
                if (l.rung == GOVERNOR_HALTED) {
                    move(g, &l, GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0, now);
                    l.device.first = l.device.n;
                    l.halt.first = l.halt.n;
                    begin = now;
                }
                rig_no_news(g);
            }
        }
        governor_free(g);
    }
    for (int rung = 0; rung < GOVERNOR_N_RUNG; rung++)
        assert_true(visits[rung] > 500);
    assert_true(latches > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_ladder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
