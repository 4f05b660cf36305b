/* The poll loop under orders, ladder and moving threshold: what each does to the next publish, and what the
 * log says of it. Replay clock where it matters what happens when. */
#include "test_appliance_rig.h"
#include "tests/model_image.h"

#define T  (OPEN + 1000000u)
#define MS 1000000u

static struct appliance_rig r;
static struct appliance_stats stats;

static void finish(void)
{
    const char *why = run(&r, &stats);
    if (why)
        fail_msg("%s", why);
    assert_sums(&r, &stats);
    /* The ladder that the records tell of is the one that the events tell of. */
    unsigned rung = GOVERNOR_ACTIVE;
    for (unsigned i = 0; i < r.n_record; i++) {
        const struct audit_event *e = &r.record[i].event;
        if (e->kind == AUDIT_PREDICTION) {
            assert_int_equal(audit_rung(&r.record[i].prediction), rung);
        } else if (e->code == AUDIT_EVENT_RUNG) {
            assert_int_equal(e->value[0], rung);
            rung = (unsigned)e->value[1];
        }
    }
}

static void assert_rung(unsigned n, unsigned from, unsigned to, unsigned cause, unsigned latched)
{
    const struct audit_event *e = event_at(&r, AUDIT_EVENT_RUNG, n);
    assert_int_equal(e->value[0], from);
    assert_int_equal(e->value[1], to);
    assert_int_equal(e->value[2], cause);
    assert_int_equal(e->value[3], latched);
}

/* ---- orders ---- */

static void order(struct appliance_rig *rig, enum order_kind kind, const char *reason)
{
    struct order o = {.kind = kind};
    order_by(o.by, "anna", 1000);
    snprintf(o.reason, sizeof o.reason, "%s", reason);
    assert_int_equal(order_post(&rig->desk, &o), 0);
}

static void halt(struct appliance_rig *rig)
{
    order(rig, ORDER_HALT, "drill");
}

static void assert_order(unsigned n, enum order_kind kind, const char *text)
{
    const struct audit_event *e = event_at(&r, AUDIT_EVENT_ORDER, n);
    assert_int_equal(e->value[0], kind);
    assert_string_equal(e->text, text);
}

/* While a tick is at work, on either clock, first of a batch or last: from that look on nothing is sent; it
 * goes on inferring. */
static void a_halt_keeps_the_tick_at_work_from_being_sent(void **state)
{
    static const char *const settings[] = {"{killline: {batch: 4}}",
                                           "{clock: real, killline: {batch: 4, device_timeout_us: 100000}}"};
    (void)state;
    for (int real = 0; real < 2; real++)
        for (unsigned during = 0; during < 4; during++) {
            start(&r, settings[real]);
            r.fake.depth = KL_QUEUE_DEPTH;
            r.fake.during_step = halt;
            r.fake.during_nth = during;
            open_symbols(&r, 4);
            for (unsigned i = 0; i < 4; i++)
                bid_frame(&r, 1 + i, T);
            for (unsigned i = 0; i < 4; i++)
                bid_frame(&r, 1 + i, T + MS);
            finish();
            for (unsigned i = 0; i < 8; i++) {
                const struct audit_prediction *p = prediction_of(&r, i);
                assert_int_equal(p->verdict, i < during ? VERDICT_PUBLISHED : VERDICT_HALTED);
                assert_true(p->flags & AUDIT_FLAG_INFERRED);
                assert_true(p->feature_hash != 0);
                assert_true(p->age_cycles <= p->threshold_cycles); /* it was fresh */
                assert_int_equal(p->publish_seq, i < during ? i + 1 : 0);
            }
            assert_int_equal(n_event(&r, AUDIT_EVENT_ORDER), 1);
            assert_order(0, ORDER_HALT, "anna (uid 1000): drill");
            assert_int_equal(n_event(&r, AUDIT_EVENT_RUNG), 1);
            assert_rung(0, GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1);
            assert_true(order_is_done(&r.desk));
            assert_true(order_is_halted(&r.desk));
        }
}

uint8_t *__real_port_tx_buffer(struct port *port);
uint8_t *__wrap_port_tx_buffer(struct port *port);

static struct appliance_rig *halt_at_build; /* NULL: nothing happens then */

uint8_t *__wrap_port_tx_buffer(struct port *port)
{
    if (halt_at_build)
        halt(halt_at_build);
    halt_at_build = NULL;
    return __real_port_tx_buffer(port);
}

/* Between the answer and the send, while the datagram is built: that one is not sent any more. */
static void a_halt_while_the_datagram_is_built(void **state)
{
    (void)state;
    start(&r, "{}");
    open_symbols(&r, 1);
    bid_frame(&r, 1, T);
    halt_at_build = &r;
    finish();
    assert_int_equal(verdict_of(&r, 0), VERDICT_HALTED);
    assert_true(prediction_of(&r, 0)->flags & AUDIT_FLAG_INFERRED);
}

/* Before the first frame. */
static void a_halt_before_the_start_is_carried_out(void **state)
{
    (void)state;
    start(&r, "{}");
    open_symbols(&r, 1);
    bid_frame(&r, 1, T);
    halt(&r);
    finish();
    assert_int_equal(verdict_of(&r, 0), VERDICT_HALTED);
    assert_int_equal(n_event(&r, AUDIT_EVENT_ORDER), 1);
    assert_true(order_is_done(&r.desk));
}

static void resume(struct appliance_rig *rig)
{
    order(rig, ORDER_RESUME, "drill is over");
}

static unsigned n_answered;

static void orders_by_answers(struct appliance_rig *rig, const struct kl_request *request,
                              struct kl_result *result)
{
    (void)result;
    if (request->op != KL_OP_STEP || !request->budget_cycles)
        return;
    n_answered++;
    if (n_answered == 2)
        halt(rig);
    if (n_answered == 5)
        resume(rig);
}

/* Resumed, the next tick is sent; the one that was at work then is not, for the ladder stood at HALTED. */
static void a_resume_is_for_the_next_tick(void **state)
{
    (void)state;
    n_answered = 0;
    start(&r, "{}");
    r.fake.answer = orders_by_answers;
    open_symbols(&r, 1);
    for (unsigned i = 0; i < 8; i++)
        bid_frame(&r, 1, T + i * MS);
    finish();
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(verdict_of(&r, i), i >= 1 && i < 5 ? VERDICT_HALTED : VERDICT_PUBLISHED);
    assert_int_equal(n_event(&r, AUDIT_EVENT_ORDER), 2);
    assert_order(1, ORDER_RESUME, "anna (uid 1000): drill is over");
    assert_rung(0, GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1);
    assert_rung(1, GOVERNOR_HALTED, GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0);
    assert_false(order_is_halted(&r.desk));
    /* The state went on: no reset, no warming up. */
    assert_null(strstr(operations(&r) + 2, "R"));
}

/* ---- how the last run was left ---- */

static void a_run_begins_where_the_last_one_was_left(void **state)
{
    static const struct {
        enum governor_rung rung, stands;
        enum verdict verdict;
    } cases[] = {{GOVERNOR_ACTIVE, GOVERNOR_ACTIVE, VERDICT_PUBLISHED},
                 {GOVERNOR_WARNING, GOVERNOR_WARNING, VERDICT_PUBLISHED},
                 {GOVERNOR_BACKUP, GOVERNOR_WARNING, VERDICT_PUBLISHED}, /* there is none */
                 {GOVERNOR_HALTED, GOVERNOR_HALTED, VERDICT_HALTED}};
    (void)state;
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct state_file begins = {.rung = cases[k].rung, .cause = GOVERNOR_BY_RESTART};
        start(&r, "{governor: {warning: {dwell_ms: 100000}}}");
        r.begins = &begins;
        open_symbols(&r, 1);
        for (unsigned i = 0; i < 3; i++)
            bid_frame(&r, 1, T + i * MS);
        finish();
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(verdict_of(&r, i), cases[k].verdict);
            assert_int_equal(audit_rung(prediction_of(&r, i)), cases[k].stands);
        }
        assert_int_equal(n_event(&r, AUDIT_EVENT_RUNG), cases[k].stands != GOVERNOR_ACTIVE);
        if (cases[k].stands != GOVERNOR_ACTIVE)
            assert_rung(0, GOVERNOR_ACTIVE, cases[k].stands, GOVERNOR_BY_RESTART,
                        cases[k].stands == GOVERNOR_HALTED);
    }
}

/* ---- rules ---- */

static void at_each_answer(struct appliance_rig *rig, const struct kl_request *request,
                           struct kl_result *result)
{
    (void)rig;
    if (request->op == KL_OP_STEP && request->budget_cycles)
        result->kernel_cycles = 22500; /* 90 us */
}

/* Near the line: an alert, and WARNING. */
static void a_rule_leads_down_the_ladder(void **state)
{
    (void)state;
    start(&r, "{killline: {threshold_us: 100}, governor: {window_ms: 8, min_count: 1, warning: {dwell_ms: 4, "
              "spread_us: {enter: 0, leave: 0}, busy_percent: {enter: 0, leave: 0}}, halted: {dwell_ms: 4, "
              "latency_percent: {enter: 110, leave: 50}, miss_ppm: {enter: 0, leave: 0}}}}");
    open_symbols(&r, 1);
    unsigned i = 0;
    for (; i < 10; i++)
        bid_frame(&r, 1, T + i * MS);
    r.fake.answer = at_each_answer;
    for (; i < 40; i++)
        bid_frame(&r, 1, T + i * MS);
    finish();
    /* 90 us and what is around it: over 80 percent of the line from the first tick on. */
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 40);
    assert_rung(0, GOVERNOR_ACTIVE, GOVERNOR_WARNING, GOVERNOR_LATENCY, 0);
    assert_int_equal(n_event(&r, AUDIT_EVENT_RUNG), 1);
    const struct audit_event *alert = event_at(&r, AUDIT_EVENT_ALERT, 0);
    assert_int_equal(alert->value[0], GOVERNOR_LATENCY);
    assert_int_equal(alert->value[1], 1);
    assert_true(alert->value[2] >= 80 && alert->value[2] <= 100);
    assert_int_equal(alert->value[3], 80);
    assert_int_equal(stats.alerts, 1);
}

static unsigned n_slow;

static void slow_at_first(struct appliance_rig *rig, const struct kl_request *request,
                          struct kl_result *result)
{
    (void)rig;
    if (request->op == KL_OP_STEP && request->budget_cycles && n_slow && n_slow--)
        result->kernel_cycles = 30000; /* 120 us */
}

/* The verdicts of a halted loop are told to the governor as what they would be: it goes up again when it is
 * quiet, unless it is to stay. */
static void halted_by_a_rule_the_loop_comes_back_by_itself(void **state)
{
    (void)state;
    for (int stays = 0; stays < 2; stays++) {
        n_slow = 10;
        start(&r, stays ? "{governor: {stays_halted: true}}" : "{}");
        struct config *c = r.config;
        c->killline.threshold_us = 100;
        c->governor.window_ms = 8;
        c->governor.min_count = 1;
        c->governor.warning = (struct config_rung){.dwell_ms = 4};
        c->governor.halted = (struct config_rung){.dwell_ms = 4, .miss_ppm = {500000, 100000}};
        r.fake.answer = slow_at_first;
        open_symbols(&r, 1);
        for (unsigned i = 0; i < 60; i++)
            bid_frame(&r, 1, T + i * MS);
        finish();
        assert_rung(0, GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_MISS, (unsigned)stays);
        unsigned halted = 0, stale = 0;
        for (unsigned i = 0; i < 60; i++) {
            halted += verdict_of(&r, i) == VERDICT_HALTED;
            stale += verdict_of(&r, i) == VERDICT_STALE;
        }
        assert_true(stale > 0 || halted >= 10);
        assert_int_equal(verdict_of(&r, 59), stays ? VERDICT_HALTED : VERDICT_PUBLISHED);
        assert_int_equal(n_event(&r, AUDIT_EVENT_RUNG), stays ? 1 : 3);
        if (!stays) {
            assert_rung(1, GOVERNOR_HALTED, GOVERNOR_WARNING, GOVERNOR_BY_QUIET, 0);
            assert_rung(2, GOVERNOR_WARNING, GOVERNOR_ACTIVE, GOVERNOR_BY_QUIET, 0);
        }
    }
}

/* So many device errors latch HALTED; with those of the last run, fewer are enough. */
static void a_device_that_fails_too_often_halts(void **state)
{
    (void)state;
    for (unsigned before = 0; before < 3; before++) {
        struct state_file begins = {.cause = GOVERNOR_BY_START, .n_device_fault = before};
        start(&r,
              "{throttle: {device_errors: 3}, governor: {warning: {device_errors: {enter: 0, leave: 0}}}}");
        r.begins = &begins;
        r.fake.bad_op = KL_OP_STEP;
        r.fake.bad_nth = 2;
        r.fake.misdeed = REFUSES;
        open_symbols(&r, 1);
        for (unsigned i = 0; i < 6; i++)
            bid_frame(&r, 1, T + i * MS);
        finish();
        const int trips = before == 2;
        assert_int_equal(verdict_of(&r, 0), VERDICT_DEVICE_ERROR);
        for (unsigned i = 1; i < 6; i++)
            assert_int_equal(verdict_of(&r, i), trips ? VERDICT_HALTED : VERDICT_PUBLISHED);
        assert_int_equal(n_event(&r, AUDIT_EVENT_RUNG), trips);
        if (trips)
            assert_rung(0, GOVERNOR_ACTIVE, GOVERNOR_HALTED, GOVERNOR_BY_DEVICE_THROTTLE, 1);
    }
}

/* A failed prepare and a failed reset are device errors too. */
static void every_kind_of_device_error_is_counted(void **state)
{
    static const enum kl_op ops[] = {KL_OP_PREPARE, KL_OP_STEP, KL_OP_RESET};
    (void)state;
    for (int k = 0; k < 3; k++) {
        start(&r, "{feed: {gap_wait_us: 0}, throttle: {device_errors: 1}}");
        r.fake.bad_op = ops[k];
        r.fake.bad_nth = ops[k] == KL_OP_PREPARE ? 1 : 2;
        r.fake.misdeed = REFUSES;
        open_symbols(&r, 1);
        bid_frame(&r, 1, T);
        r.seq++;
        for (unsigned i = 1; i < 4; i++)
            bid_frame(&r, 1, T + i * MS);
        finish();
        assert_int_equal(stats.device_errors, 1);
        assert_int_equal(verdict_of(&r, 3), VERDICT_HALTED);
        assert_int_equal(event_of(&r, AUDIT_EVENT_RUNG)->value[2], GOVERNOR_BY_DEVICE_THROTTLE);
    }
}

/* ---- egress ---- */

int __real_port_send(struct port *port, uint32_t len);
int __wrap_port_send(struct port *port, uint32_t len);

static int egress_fails;

int __wrap_port_send(struct port *port, uint32_t len)
{
    return egress_fails ? -1 : __real_port_send(port, len);
}

static void a_port_that_takes_nothing_is_a_miss(void **state)
{
    (void)state;
    egress_fails = 1;
    start(&r, "{governor: {window_ms: 8, min_count: 1}, throttle: {device_errors: 1}}");
    open_symbols(&r, 1);
    for (unsigned i = 0; i < 30; i++)
        bid_frame(&r, 1, T + i * MS);
    finish();
    egress_fails = 0;
    assert_int_equal(verdict_of(&r, 0), VERDICT_DEVICE_ERROR);
    assert_true(prediction_of(&r, 0)->flags & AUDIT_FLAG_EGRESS_FAILED);
    assert_true(stats.egress_errors > 0 && stats.device_errors == 0);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 0);
    /* By the rule of misses, not by the throttle: no device failed. */
    assert_rung(0, GOVERNOR_ACTIVE, GOVERNOR_WARNING, GOVERNOR_MISS, 0);
    assert_rung(1, GOVERNOR_WARNING, GOVERNOR_HALTED, GOVERNOR_MISS, 0);
}

/* ---- threshold ---- */

static void the_threshold_moves_with_the_backlog(void **state)
{
    enum { N = 300 };
    (void)state;
    start(&r,
          "{killline: {threshold_us: 20, threshold_max_us: 60, adaptive: {step_us: 10, relax_percent: 50, "
          "tighten_percent: 10, dwell_us: 5}}}");
    open_symbols(&r, 1);
    for (unsigned i = 0; i < N; i++)
        bid_frame(&r, 1, T + (i < N / 2 ? 1000 * i : N / 2 * 1000 + i * MS));
    finish();
    uint64_t current = 20000, most = 0, last_change = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < r.n_record; i++) {
        const struct audit_event *e = &r.record[i].event;
        if (e->kind == AUDIT_PREDICTION) {
            assert_int_equal(r.record[i].prediction.threshold_cycles, current);
            continue;
        }
        if (e->code != AUDIT_EVENT_THRESHOLD)
            continue;
        n++;
        assert_int_equal(e->value[0], current);
        const int up = e->value[1] > current;
        assert_int_equal(e->value[1], up ? current + 10000 : current - 10000);
        assert_true(e->value[1] >= 20000 && e->value[1] <= 60000);
        assert_true(up ? e->value[2] >= 10000 || e->value[3] >= 50
                       : e->value[2] <= 2000 && e->value[3] <= 10);
        assert_true(!last_change || e->at - last_change >= 5000);
        last_change = e->at;
        current = e->value[1];
        most = current > most ? current : most;
    }
    assert_int_equal(most, 60000);
    assert_int_equal(current, 20000);
    assert_int_equal(n, stats.threshold_changes);
    assert_int_equal(n, 8);
    assert_true(stats.verdicts[VERDICT_PUBLISHED] > N / 2);
}

static void arms_are_by_symbol_and_the_same_in_every_run(void **state)
{
    enum { N = 200, IN_FRAME = 20 };
    static uint64_t arms[3][N];
    (void)state;
    for (unsigned k = 0; k < 3; k++) { /* the third: another salt */
        start(&r,
              k < 2 ? "{killline: {threshold_us: 500, ab: {threshold_us: 50, share_percent: 30, salt: 1}}}"
                    : "{killline: {threshold_us: 500, ab: {threshold_us: 50, share_percent: 30, salt: 2}}}");
        open_symbols(&r, N);
        for (unsigned round = 0; round < 2; round++)
            for (unsigned i = 0; i < N; i++)
                bid_frame(&r, 1 + (k == 1 ? N - 1 - i : i), T + (round * N + i) * 10000);
        finish();
        assert_int_equal(n_event(&r, AUDIT_EVENT_ARMS), 1);
        const struct audit_event *e = event_of(&r, AUDIT_EVENT_ARMS);
        assert_int_equal(e->value[0], 500000);
        assert_int_equal(e->value[1], 50000);
        assert_int_equal(e->value[2], 30);
        assert_int_equal(e->value[3], k < 2 ? 1 : 2);
        unsigned b = 0, same = 0;
        for (unsigned i = 0; i < N; i++) {
            const struct audit_prediction *p = prediction_at(&r, 1 + i, 0), *q = prediction_at(&r, 1 + i, 1);
            arms[k][i] = p->threshold_cycles;
            assert_int_equal(p->threshold_cycles, p->flags & AUDIT_FLAG_ARM_B ? 50000 : 500000);
            assert_int_equal(p->threshold_cycles, q->threshold_cycles);
            assert_int_equal(p->flags & AUDIT_FLAG_ARM_B, q->flags & AUDIT_FLAG_ARM_B);
            b += p->flags & AUDIT_FLAG_ARM_B ? 1 : 0;
            same += arms[k][i] == arms[0][i];
        }
        assert_true(b > N * 20 / 100 && b < N * 40 / 100);
        assert_true(k == 1 ? same == N : k == 0 || same < N * 80 / 100);
    }
}

/* Over its own arm's line, under the other's. */
static void each_arm_has_its_own_line(void **state)
{
    (void)state;
    start(&r, "{killline: {threshold_us: 500, ab: {threshold_us: 50, share_percent: 50, salt: 1}}}");
    r.fake.answer = at_each_answer; /* 90 us */
    open_symbols(&r, 40);
    for (unsigned i = 0; i < 40; i++)
        bid_frame(&r, 1 + i, T + i * MS);
    finish();
    for (unsigned i = 0; i < 40; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        if (!(p->flags & AUDIT_FLAG_ARM_B))
            assert_int_equal(p->verdict, VERDICT_PUBLISHED);
        else
            assert_true(p->verdict == VERDICT_STALE || p->verdict == VERDICT_EXPECTED_LATE);
    }
    assert_true(stats.verdicts[VERDICT_PUBLISHED] > 10 && stats.verdicts[VERDICT_PUBLISHED] < 30);
}

/* ---- stalls ---- */

static void stalled_day(struct appliance_rig *rig, unsigned seed, unsigned per_million)
{
    start(rig, "{killline: {threshold_us: 100, supersede: true, batch: 4}}");
    rig->fake.depth = KL_QUEUE_DEPTH;
    rig->config->replay.stall = (struct config_stall){per_million, 200, seed};
    open_symbols(rig, 4);
    for (unsigned i = 0; i < 400; i++)
        bid_frame(rig, 1 + i % 4, T + i * 20000);
    const char *why = run(rig, &stats);
    if (why)
        fail_msg("%s", why);
    assert_sums(rig, &stats);
}

static void stalls_are_the_same_for_the_same_seed(void **state)
{
    static struct appliance_rig again, calm;
    (void)state;
    stalled_day(&calm, 1, 0);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 400);
    stalled_day(&r, 7, 20000);
    const uint64_t stale = stats.verdicts[VERDICT_STALE], published = stats.verdicts[VERDICT_PUBLISHED];
    assert_true(stale > 0 && published > 100 && published < 400);
    stalled_day(&again, 7, 20000);
    assert_int_equal(r.n_record, again.n_record);
    assert_memory_equal(r.record, again.record, r.n_record * sizeof(r.record[0]));
    stalled_day(&again, 8, 20000);
    unsigned differ = 0, older = 0;
    for (unsigned i = 0; i < 400; i++) {
        const struct audit_prediction *p = prediction_of(&r, i), *q = prediction_of(&calm, i);
        differ += p->age_cycles != prediction_of(&again, i)->age_cycles;
        older += p->age_cycles > q->age_cycles + 1000;
    }
    assert_true(differ > 0);
    assert_true(older > 20);
}

/* The audit ring is full or empty as this machine has time for the writer: on the replay clock that leads
 * nowhere. */
static void a_replay_does_not_look_at_the_writer(void **state)
{
    (void)state;
    start(&r, "{audit: {ring_records: 2}, governor: {window_ms: 8, warning: {busy_percent: {enter: 0, leave: "
              "0}, resource_percent: {enter: 50, leave: 10}}}}");
    open_symbols(&r, 1);
    for (unsigned i = 0; i < 400; i++)
        bid_frame(&r, 1, T + i * MS / 5);
    finish();
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], 400);
    assert_int_equal(n_event(&r, AUDIT_EVENT_ALERT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_halt_keeps_the_tick_at_work_from_being_sent),
        cmocka_unit_test(a_halt_while_the_datagram_is_built),
        cmocka_unit_test(a_halt_before_the_start_is_carried_out),
        cmocka_unit_test(a_resume_is_for_the_next_tick),
        cmocka_unit_test(a_run_begins_where_the_last_one_was_left),
        cmocka_unit_test(a_rule_leads_down_the_ladder),
        cmocka_unit_test(halted_by_a_rule_the_loop_comes_back_by_itself),
        cmocka_unit_test(a_device_that_fails_too_often_halts),
        cmocka_unit_test(every_kind_of_device_error_is_counted),
        cmocka_unit_test(a_port_that_takes_nothing_is_a_miss),
        cmocka_unit_test(the_threshold_moves_with_the_backlog),
        cmocka_unit_test(arms_are_by_symbol_and_the_same_in_every_run),
        cmocka_unit_test(each_arm_has_its_own_line),
        cmocka_unit_test(stalls_are_the_same_for_the_same_seed),
        cmocka_unit_test(a_replay_does_not_look_at_the_writer),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
