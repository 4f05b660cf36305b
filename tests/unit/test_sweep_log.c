/* Outcomes: hand-computed logs, and a random one against a naive recomputation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sweep_rig.h"

enum { DOWN, FLAT, UP };

static char path[] = "/tmp/test_sweep_log_XXXXXX";
static struct rig_log rig;

static void begin(void)
{
    const struct audit_header h = log_header(AUDIT_CLOCK_REPLAY);
    rig = rig_open(path, &h);
}

/* A tick of X at ts, with the answer that it goes up; mid = 2 * bid + 2. */
static void tick(uint64_t ts, uint32_t bid)
{
    const struct audit_prediction p = rig_answer("X", ts, 10000, UP, bid, bid + 2);
    rig_put(&rig, &p);
}

static void without_answer(unsigned verdict, uint64_t ts, uint32_t bid, uint32_t ask)
{
    struct audit_prediction p = rig_answer("X", ts, 10000, DOWN, bid, ask);
    p.verdict = (uint8_t)verdict;
    p.flags = 0;
    p.submitted = p.completed = 0;
    rig_put(&rig, &p);
}

/* Closes the log; what its answers that X goes up came to. */
static struct sweep_tally up_of(const char *horizon)
{
    const struct sweep_spec spec = rig_spec("50us", horizon);
    rig_close(&rig);
    struct sweep_sums *s = rig_read(path, &spec);
    assert_null(sweep_sums_check(s));
    const struct sweep_tally t = rig_tally(s, VERDICT_PUBLISHED, UP, 0);
    sweep_sums_free(s);
    return t;
}

static void expect(struct sweep_tally t, int64_t n, int64_t known, int64_t hits, int64_t value)
{
    if (t.n != n || t.known != known || t.hits != hits || t.value != value)
        fail_msg("n %lld known %lld hits %lld value %lld", (long long)t.n, (long long)t.known,
                 (long long)t.hits, (long long)t.value);
}

static void ticks(void **state)
{
    (void)state;
    begin();
    tick(10, 100);
    tick(20, 103);
    without_answer(VERDICT_SUPERSEDED, 25, 0, 105); /* one side: no tick */
    without_answer(VERDICT_WARMING_UP, 26, 90, 92); /* a tick without an answer */
    tick(30, 110);
    struct audit_prediction other = rig_answer("Y", 31, 10000, DOWN, 7, 9);
    rig_put(&rig, &other);
    tick(40, 90);
    /* 100: second later tick 90, -20; 103: 110, +14; 110 and 90: none */
    expect(up_of("2ticks"), 4, 2, 1, -20 + 14);
}

static void every_class_and_sign(void **state)
{
    (void)state;
    static const uint32_t bid[] = {100, 110, 110, 105};
    begin();
    for (uint32_t from = 0; from < 3; from++)
        for (uint8_t cls = 0; cls < 3; cls++) {
            char symbol[8];
            snprintf(symbol, sizeof(symbol), "S%u%u", from, cls);
            struct audit_prediction p = rig_answer(symbol, 10, 10000, cls, bid[from], bid[from] + 1);
            rig_put(&rig, &p);
            p = rig_answer(symbol, 20, 10000, cls, bid[from + 1], bid[from + 1] + 1);
            rig_put(&rig, &p);
        }
    rig_close(&rig);
    const struct sweep_spec spec = rig_spec("50us", "1ticks");
    struct sweep_sums *s = rig_read(path, &spec);
    /* Moves: +20, 0, -10. */
    expect(rig_tally(s, VERDICT_PUBLISHED, DOWN, 0), 6, 3, 1, -10);
    expect(rig_tally(s, VERDICT_PUBLISHED, FLAT, 0), 6, 3, 1, 0);
    expect(rig_tally(s, VERDICT_PUBLISHED, UP, 0), 6, 3, 1, 10);
    sweep_sums_free(s);
}

static void time(void **state)
{
    (void)state;
    begin();
    tick(1000, 100);
    tick(1500, 104); /* last known at 1999 and at 2000 */
    tick(2001, 120);
    expect(up_of("1us"), 3, 1, 1, 8);
    begin();
    tick(1000, 100);
    tick(2000, 104); /* at the moment itself; one more at it is later still */
    tick(2000, 106);
    tick(2001, 120);
    expect(up_of("1us"), 4, 1, 1, 12);
    begin();
    tick(1000, 100);
    tick(2000, 104); /* the last record is at the moment: known; from 1999 it would not be */
    expect(up_of("1us"), 2, 1, 1, 8);
    begin();
    tick(1000, 100);
    tick(1999, 104);
    expect(up_of("1us"), 2, 0, 0, 0);
    begin();
    tick(1000, 100);
    without_answer(VERDICT_SUPERSEDED, 1400, 110, 112);
    without_answer(VERDICT_SUPERSEDED, 1500, 0, 50); /* one side: the mid before it is the last known */
    without_answer(VERDICT_SUPERSEDED, 2500, 300, 302);
    expect(up_of("1us"), 1, 1, 1, 20);
}

/* Something between an answer and its outcome. */
static void breaks(void **state)
{
    (void)state;
    enum { GAP, LOST, END, HALT, RESUME, OTHER_HALT, UNRELIABLE, HALTED, OWN_HALT, N };
    static const int known[N] = {0, 0, 0, 0, 1, 1, 0, 0, 1};
    for (int what = 0; what < N; what++)
        for (int by_time = 0; by_time < 2; by_time++) {
            begin();
            tick(1000, 100);
            struct audit_prediction p;
            switch (what) {
            case GAP:
                log_event(rig.log, AUDIT_EVENT_GAP, 1, 0, "", 5, 1, "");
                break;
            case LOST:
                /* Only the writer counts losses: the STOP has to agree. */
                log_event(rig.log, AUDIT_EVENT_RECORDS_LOST, 1, 0, "", 0, 0, "");
                break;
            case END:
                log_event(rig.log, AUDIT_EVENT_SESSION_END, 1, 0, "", 5, 0, "");
                break;
            case HALT:
            case RESUME:
                log_event(rig.log, AUDIT_EVENT_TRADING_STATE, 1, 0, "X", what == RESUME, 0, "");
                break;
            case OTHER_HALT:
                log_event(rig.log, AUDIT_EVENT_TRADING_STATE, 1, 0, "Y", 0, 0, "");
                break;
            case UNRELIABLE:
            case HALTED:
                without_answer(what == HALTED ? VERDICT_HALTED : VERDICT_BOOK_UNRELIABLE, 1500, 50, 52);
                break;
            default: /* the appliance is halted, the symbol trades */
                p = rig_answer("X", 1500, 10000, UP, 104, 106);
                p.verdict = VERDICT_HALTED;
                p.flags |= GOVERNOR_HALTED * 64;
                rig_put(&rig, &p);
            }
            without_answer(VERDICT_SUPERSEDED, 2000, 104, 106);
            without_answer(VERDICT_SUPERSEDED, 2001, 300, 302);
            const struct sweep_tally t = up_of(by_time ? "1us" : "1ticks");
            if (t.known != known[what] || t.value != 8 * known[what])
                fail_msg("case %d by %s: known %lld value %lld", what, by_time ? "time" : "ticks",
                         (long long)t.known, (long long)t.value);
        }
}

static void late_records(void **state)
{
    (void)state;
    const struct sweep_spec spec = rig_spec("50us", "1ticks");
    begin();
    tick(1000, 100);
    tick(900, 500); /* written late: no tick, no outcome */
    tick(1100, 104);
    rig_close(&rig);
    struct sweep_sums *s = rig_read(path, &spec);
    assert_int_equal(s->disordered, 1);
    expect(rig_tally(s, VERDICT_PUBLISHED, UP, 0), 3, 1, 1, 8);
    sweep_sums_free(s);
    /* Another session: its chain is its own. */
    begin();
    tick(5000000000, 100);
    tick(1000, 500);
    tick(1100, 504);
    rig_close(&rig);
    s = rig_read(path, &spec);
    assert_int_equal(s->disordered, 0);
    expect(rig_tally(s, VERDICT_PUBLISHED, UP, 0), 3, 1, 1, 8);
    sweep_sums_free(s);
}

static void verdicts_and_line(void **state)
{
    (void)state;
    const struct sweep_spec spec = rig_spec("9999ns,10us,10001ns,50us,60us", "1ticks");
    begin();
    tick(1, 100); /* age 10000 */
    struct audit_prediction p = rig_answer("X", 2, 60000, DOWN, 100, 102);
    rig_put(&rig, &p); /* stale */
    p.verdict = VERDICT_EXPECTED_LATE;
    p.flags = 0;
    p.submitted = p.completed = 0;
    p.age_cycles = 48000; /* would be 51000 */
    rig_put(&rig, &p);
    for (unsigned v = VERDICT_SUPERSEDED; v < VERDICT_COUNT; v++)
        without_answer(v, 3, 100, 102);
    rig_close(&rig);
    struct sweep_sums *s = rig_read(path, &spec);
    assert_null(sweep_sums_check(s));
    static const int64_t want[5][3] = {{0, 1, 2}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {3, 0, 0}};
    for (uint32_t j = 0; j < 5; j++) {
        assert_int_equal(rig_count(s, VERDICT_PUBLISHED, j), want[j][0]);
        assert_int_equal(rig_count(s, VERDICT_EXPECTED_LATE, j), want[j][1]);
        assert_int_equal(rig_count(s, VERDICT_STALE, j), want[j][2]);
        for (unsigned v = VERDICT_SUPERSEDED; v < VERDICT_COUNT; v++)
            assert_int_equal(rig_count(s, v, j), 1);
    }
    assert_int_equal(s->estimated_step[4], 1);
    assert_int_equal(rig_tally(s, VERDICT_PUBLISHED, SWEEP_NO_CLASS, 4).n, 1);
    sweep_sums_free(s);
}

static void arms(void **state)
{
    (void)state;
    const struct sweep_spec spec = rig_spec("50us", "1ticks");
    struct audit_header h = log_header(AUDIT_CLOCK_REAL); /* 2.5 GHz */
    rig = rig_open(path, &h);
    struct audit_record *r = audit_reserve(rig.log);
    r->event = (struct audit_event){.kind = AUDIT_EVENT,
                                    .code = AUDIT_EVENT_ARMS,
                                    .symbol = "        ",
                                    .value = {125001, 249999, 40, 9}};
    audit_commit(rig.log);
    for (int i = 0; i < 4; i++) {
        struct audit_prediction p = rig_answer("A", 10 + (uint64_t)i, 10000, UP, 100 + (uint32_t)i, 110);
        rig_put(&rig, &p);
        p = rig_answer("B", 10 + (uint64_t)i, i ? 10000 : 60000, DOWN, 100 + (uint32_t)i, 110);
        p.flags |= AUDIT_FLAG_ARM_B;
        rig_put(&rig, &p);
    }
    rig_close(&rig);
    struct sweep_sums *s = rig_read(path, &spec);
    assert_null(sweep_sums_check(s));
    assert_int_equal(s->n_row, 2);
    const struct sweep_arm_row want[2] = {{.arms = {50000, 100000, 40, 9},
                                           .symbol = "A       ",
                                           .line = 4,
                                           .published = 4,
                                           .known = 3,
                                           .hits = 3,
                                           .value = 3},
                                          {.arms = {50000, 100000, 40, 9},
                                           .symbol = "B       ",
                                           .is_b = 1,
                                           .line = 4,
                                           .published = 3,
                                           .known = 2,
                                           .hits = 0,
                                           .value = -2}};
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(&s->row[i].arms, &want[i].arms, sizeof(want[i].arms));
        assert_memory_equal(s->row[i].symbol, want[i].symbol, 8);
        assert_int_equal(s->row[i].is_b, want[i].is_b);
        assert_int_equal(s->row[i].line, want[i].line);
        assert_int_equal(s->row[i].published, want[i].published);
        assert_int_equal(s->row[i].known, want[i].known);
        assert_int_equal(s->row[i].hits, want[i].hits);
        assert_int_equal(s->row[i].value, want[i].value);
    }
    sweep_sums_free(s);
}

/* ---- a random log, naively ---- */

enum { N_RANDOM = 6000, N_SYMBOL = 7 };

struct seen {
    struct audit_prediction p;
    int breaks; /* before it, of its symbol */
};
static struct seen seen[N_RANDOM];

static int has_mid(const struct audit_prediction *p)
{
    return p->bid_price && p->ask_price;
}

/* 1: known, *move. Looks through the whole log for each. */
static int naive_outcome(const struct sweep_spec *spec, int i, int64_t *move)
{
    const struct audit_prediction *from = &seen[i].p;
    int64_t mid = (int64_t)from->bid_price + from->ask_price, first = mid;
    uint64_t n_tick = 0, last_ts = from->feed_ts_ns, due = from->feed_ts_ns + spec->horizon_ns;
    if (!has_mid(from))
        return 0;
    for (int k = i + 1; k < N_RANDOM; k++) {
        const struct audit_prediction *p = &seen[k].p;
        if (memcmp(p->symbol, from->symbol, 8) != 0)
            continue;
        if (seen[k].breaks)
            break;
        if (spec->horizon_ns && p->feed_ts_ns > due) {
            *move = mid - first;
            return 1;
        }
        last_ts = p->feed_ts_ns;
        if (!has_mid(p))
            continue;
        mid = (int64_t)p->bid_price + p->ask_price;
        if (spec->horizon_ticks && ++n_tick == spec->horizon_ticks) {
            *move = mid - first;
            return 1;
        }
    }
    *move = mid - first;
    return spec->horizon_ns && last_ts == due;
}

static unsigned naive_verdict(const struct audit_prediction *p, uint64_t line)
{
    if (p->verdict == VERDICT_PUBLISHED || p->verdict == VERDICT_STALE)
        return p->age_cycles <= line                                    ? VERDICT_PUBLISHED
               : p->submitted - p->arrival + p->expected_cycles <= line ? VERDICT_STALE
                                                                        : VERDICT_EXPECTED_LATE;
    if (p->verdict == VERDICT_EXPECTED_LATE)
        return p->age_cycles + p->expected_cycles <= line ? VERDICT_PUBLISHED : VERDICT_EXPECTED_LATE;
    return p->verdict;
}

static void random_log(uint64_t seed)
{
    uint64_t random = seed, ts = 1000, broken[N_SYMBOL] = {0};
    begin();
    for (int i = 0; i < N_RANDOM; i++) {
        if (log_random(&random) % 200 == 0) {
            log_event(rig.log, AUDIT_EVENT_GAP, 1, 0, "", 1, 1, "");
            for (int k = 0; k < N_SYMBOL; k++)
                broken[k] = 1;
        }
        const unsigned symbol = log_random(&random) % N_SYMBOL, kind = log_random(&random) % 20;
        char name[8];
        snprintf(name, sizeof(name), "R%u", symbol);
        ts += log_random(&random) % 3 ? log_random(&random) % 40000 : 0;
        const uint32_t bid = 1000 + log_random(&random) % 4, ask = 1002 + log_random(&random) % 4;
        struct audit_prediction p =
            rig_answer(name, ts, 3000 + log_random(&random) % 80000, log_random(&random) % 3,
                       log_random(&random) % 9 ? bid : 0, ask);
        if (kind >= 18) { /* the verdicts before the submit, and those of no line */
            p.verdict = (uint8_t)(VERDICT_SUPERSEDED + log_random(&random) % 5);
            p.flags = 0;
            p.submitted = 0;
        } else if (kind >= 16) {
            p.verdict = VERDICT_EXPECTED_LATE;
            p.flags = 0;
            p.submitted = 0;
            p.age_cycles = 47001 + log_random(&random) % 40000;
        }
        const int is_break = p.verdict == VERDICT_BOOK_UNRELIABLE || p.verdict == VERDICT_HALTED;
        seen[i] = (struct seen){.p = p, .breaks = broken[symbol] || is_break};
        broken[symbol] = 0;
        rig_put(&rig, &p);
    }
    rig_close(&rig);
}

static void as_recomputed(void **state)
{
    (void)state;
    static const char *const horizon[] = {"1ticks", "3ticks", "40ticks", "20us", "1ms", "1ns"};
    for (size_t k = 0; k < sizeof(horizon) / sizeof(horizon[0]); k++) {
        const struct sweep_spec spec = rig_spec("3us:90us:7us,999us", horizon[k]);
        random_log(17 + k);
        struct sweep_sums *s = rig_read(path, &spec);
        assert_null(sweep_sums_check(s));
        assert_int_equal(s->disordered, 0);
        for (uint32_t j = 0; j < spec.n_threshold; j++) {
            struct sweep_tally want[VERDICT_COUNT][SWEEP_N_CLASS + 1] = {0};
            for (int i = 0; i < N_RANDOM; i++) {
                const struct audit_prediction *p = &seen[i].p;
                const int is_answer = (p->flags & AUDIT_FLAG_INFERRED) != 0;
                struct sweep_tally *t =
                    &want[naive_verdict(p, spec.threshold_ns[j])][is_answer ? p->cls : SWEEP_NO_CLASS];
                int64_t move;
                t->n++;
                if (!is_answer || !naive_outcome(&spec, i, &move))
                    continue;
                t->known++;
                t->hits += p->cls == DOWN ? move < 0 : p->cls == UP ? move > 0 : move == 0;
                t->value += p->cls == DOWN ? -move : p->cls == UP ? move : 0;
            }
            for (unsigned v = 0; v < VERDICT_COUNT; v++)
                for (unsigned c = 0; c <= SWEEP_N_CLASS; c++)
                    expect(rig_tally(s, v, c, j), want[v][c].n, want[v][c].known, want[v][c].hits,
                           want[v][c].value);
        }
        sweep_sums_free(s);
    }
}

/* Days whose headers are alike have weights of their own. */
static void blocks_are_of_a_log(void **state)
{
    (void)state;
    const struct sweep_spec spec = rig_spec("50us", "1ticks");
    struct sweep_sums *s[2];
    for (uint32_t k = 0; k < 2; k++) {
        begin();
        for (uint64_t i = 0; i < 50; i++) {
            struct audit_prediction p = rig_answer("X", i * 1000000000, 10000, UP, 100 + (uint32_t)i, 200);
            p.kernel_cycles = k;
            rig_put(&rig, &p);
        }
        rig_close(&rig);
        s[k] = rig_read(path, &spec);
    }
    const int64_t n_step = (int64_t *)s[0]->replicate - s[0]->cell;
    assert_memory_equal(s[0]->cell, s[1]->cell, (size_t)n_step * sizeof(int64_t));
    assert_memory_not_equal(s[0]->replicate, s[1]->replicate,
                            (size_t)(s[0]->n_cell - n_step) * sizeof(int64_t));
    sweep_sums_free(s[0]);
    sweep_sums_free(s[1]);
}

static void refused(void **state)
{
    (void)state;
    const struct sweep_spec spec = rig_spec("50us", "1ticks");
    char error[SWEEP_ERROR_CHARS], warning[SWEEP_ERROR_CHARS];
    struct audit_header h = log_header(AUDIT_CLOCK_REPLAY);
    struct sweep_sums *s = sweep_sums_create(&spec);
    memset(h.class_name, 0, sizeof(h.class_name));
    rig = rig_open(path, &h);
    rig_close(&rig);
    assert_int_equal(sweep_log_read(path, s, NULL, warning, error), -1);
    assert_non_null(strstr(error, "names no classes"));
    begin();
    struct audit_prediction p = rig_answer("X", 1, 10000, 3, 100, 102); /* classes 0 to 2 have names */
    rig_put(&rig, &p);
    rig_close(&rig);
    assert_int_equal(sweep_log_read(path, s, NULL, warning, error), -1);
    assert_non_null(strstr(error, "class has no name"));
    assert_int_equal(sweep_log_read("/nowhere.kla", s, NULL, warning, error), -1);
    assert_non_null(strstr(error, "/nowhere.kla"));
    sweep_sums_free(s);
    /* Other classes than the log before it. */
    s = sweep_sums_create(&spec);
    begin();
    tick(1, 100);
    rig_close(&rig);
    assert_int_equal(sweep_log_read(path, s, NULL, warning, error), 0);
    assert_int_equal(sweep_log_read(path, s, NULL, warning, error), -1);
    assert_non_null(strstr(error, "same run's log"));
    h = log_header(AUDIT_CLOCK_REPLAY);
    strcpy(h.class_name[2], "high");
    rig = rig_open(path, &h);
    rig_close(&rig);
    assert_int_equal(sweep_log_read(path, s, NULL, warning, error), -1);
    assert_non_null(strstr(error, "classes are not those"));
    sweep_sums_free(s);
}

static int set_up(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks),        cmocka_unit_test(every_class_and_sign),
        cmocka_unit_test(time),         cmocka_unit_test(breaks),
        cmocka_unit_test(late_records), cmocka_unit_test(verdicts_and_line),
        cmocka_unit_test(arms),         cmocka_unit_test(as_recomputed),
        cmocka_unit_test(refused),      cmocka_unit_test(blocks_are_of_a_log),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
