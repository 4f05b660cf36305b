/* The rolling window against one that is computed anew from a list of everything that was told; and how
 * coarse its quantiles are. */
#include <stdlib.h>

#include "test_governor_rig.h"

enum { N_OP = 1000000, LENGTH = 8 * SLICE + 5 /* slices of 100 */, N_SLICE = 8, FEW = 5 };
/* Where the buckets of age and of thousandths of the threshold end. */
static const uint64_t AGE_END = UINT64_C(1) << 36, RATIO_END = 1 << 16;

static uint64_t random_state = 88172645463325252u;
static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

enum kind { PREDICTION, BUSY, DEVICE };
struct told {
    enum kind kind;
    enum verdict verdict;
    uint64_t age, threshold; /* age of BUSY: units */
    uint64_t slice;          /* number, from the start or the last resume */
};

struct list {
    struct told *told;
    size_t n, first; /* first: older ones are out of every window to come */
    uint64_t total_by_verdict[VERDICT_COUNT];
    uint64_t clock, passed; /* the clock, and what has passed of it since slice 0 began, never backwards */
    uint64_t slice;         /* at the last look */
    int device_failed;
};

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The value that percent of the n sorted ones do not exceed. */
static uint64_t rank(const uint64_t *sorted, size_t n, size_t percent)
{
    return n ? sorted[(n * percent + 99) / 100 - 1] : 0;
}

/* Beyond the buckets it is the largest. */
static void assert_near(uint64_t got, uint64_t exact, uint64_t buckets_end, uint64_t max)
{
    assert_true(got >= exact);
    if (exact < buckets_end)
        assert_true(got - exact <= exact / 16);
    else
        assert_int_equal(got, max);
}

/* What slices [from, to] hold. */
static void compare_window(struct list *l, const struct governor_stats *s, uint64_t from, uint64_t to)
{
    static uint64_t age[N_OP], ratio[N_OP];
    uint64_t by_verdict[VERDICT_COUNT] = {0}, busy = 0, devices = 0, count = 0, max = 0;
    size_t n = 0;
    while (l->first < l->n && l->told[l->first].slice < from)
        l->first++;
    for (size_t i = l->first; i < l->n; i++) {
        const struct told *t = &l->told[i];
        assert_true(t->slice <= to);
        busy += t->kind == BUSY ? t->age : 0;
        devices += t->kind == DEVICE;
        if (t->kind != PREDICTION)
            continue;
        by_verdict[t->verdict]++;
        count++;
        if ((t->verdict == VERDICT_PUBLISHED || t->verdict == VERDICT_EXPECTED_LATE ||
             t->verdict == VERDICT_STALE || t->verdict == VERDICT_DEVICE_ERROR) &&
            t->age != KILLLINE_AGE_NEVER) {
            age[n] = t->age;
            max = t->age > max ? t->age : max;
            ratio[n++] = (t->age * 1000 + t->threshold - 1) / t->threshold;
        }
    }
    assert_int_equal(s->count, count);
    assert_int_equal(s->max_ns, max);
    uint64_t total = 0;
    for (int v = 0; v < VERDICT_COUNT; v++) {
        assert_int_equal(s->by_verdict[v], by_verdict[v]);
        assert_int_equal(s->total_by_verdict[v], l->total_by_verdict[v]);
        total += l->total_by_verdict[v];
    }
    assert_int_equal(s->total, total);
    qsort(age, n, sizeof(age[0]), compare);
    qsort(ratio, n, sizeof(ratio[0]), compare);
    assert_near(s->p50_ns, rank(age, n, 50), AGE_END, max);
    assert_near(s->p99_ns, rank(age, n, 99), AGE_END, max);
    if (n >= FEW) {
        const uint64_t exact = rank(ratio, n, 99), percent = (exact + 9) / 10;
        assert_true(s->metric[GOVERNOR_LATENCY] >= percent);
        if (exact < RATIO_END)
            assert_true(s->metric[GOVERNOR_LATENCY] - percent <= percent / 16 + 1);
        else
            assert_int_equal(s->metric[GOVERNOR_LATENCY], (ratio[n - 1] + 9) / 10);
        assert_int_equal(s->metric[GOVERNOR_SPREAD], s->p99_ns - s->p50_ns);
    } else
        assert_int_equal(s->metric[GOVERNOR_LATENCY] + s->metric[GOVERNOR_SPREAD], 0);
    const uint64_t missed =
        by_verdict[VERDICT_EXPECTED_LATE] + by_verdict[VERDICT_STALE] + by_verdict[VERDICT_DEVICE_ERROR];
    const uint64_t wanted = missed + by_verdict[VERDICT_PUBLISHED] + by_verdict[VERDICT_SUPERSEDED];
    assert_int_equal(s->metric[GOVERNOR_MISS], wanted >= FEW ? missed * 1000000 / wanted : 0);
    assert_int_equal(s->metric[GOVERNOR_DEVICE], devices);

    /* Time that the window is about: from slice `from` to now, or to the end of the last slice that is over.
     */
    const uint64_t end = l->passed / SLICE == to ? l->passed : (to + 1) * SLICE;
    uint64_t span = end - from * SLICE;
    span = span < SLICE ? SLICE : span;
    assert_int_equal(s->metric[GOVERNOR_BUSY], busy >= span ? 100 : busy * 100 / span);
    assert_int_equal(s->per_s, (uint64_t)((double)count * 1e9 / (double)span));
}

static void look(struct list *l)
{
    const uint64_t dice = random_below(2000);
    if (dice == 0)
        l->clock -= random_below(1000000);
    else {
        const uint64_t passed = dice < 4     ? random_below(3000)
                                : dice == 4  ? random_below(UINT64_C(1) << 40)
                                : dice < 200 ? 0
                                             : random_below(8);
        l->clock += passed;
        l->passed += passed;
    }
}

static void tell(struct governor *g, struct list *l)
{
    struct told *t = &l->told[l->n++];
    *t = (struct told){.slice = l->slice};
    const uint64_t dice = random_below(1000);
    if (dice < 100) {
        t->kind = BUSY;
        t->age = random_below(60);
        governor_busy(g, t->age);
    } else if (dice < 103) {
        t->kind = DEVICE;
        l->device_failed = 1;
        governor_device_error(g, l->clock);
    } else {
        static const uint64_t thresholds[] = {1, 1000, 4999, 100000};
        t->kind = PREDICTION;
        t->verdict = random_below(3) ? VERDICT_PUBLISHED : (enum verdict)random_below(VERDICT_COUNT);
        t->age = random_below(50) ? random_below(UINT64_C(1) << random_below(42)) : KILLLINE_AGE_NEVER;
        t->threshold = thresholds[random_below(4)];
        l->total_by_verdict[t->verdict]++;
        governor_prediction(g, t->verdict, t->age, t->threshold);
    }
}

static void random_operations(void **state)
{
    (void)state;
    struct list l = {.told = malloc(N_OP * sizeof(struct told)), .clock = UINT64_MAX - 100000};
    assert_non_null(l.told);
    struct governor_config c = rig_config();
    c.window = LENGTH;
    c.min_count = FEW;
    struct governor *g = rig_create(&c, l.clock);
    uint64_t n_over = 0, n_amid = 0, n_resume = 0;
    for (int i = 0; i < N_OP; i++) {
        if (random_below(3)) {
            tell(g, &l);
            continue;
        }
        look(&l);
        if (random_below(20000) == 0) { /* empties the window */
            governor_halt(g, l.clock);
            governor_resume(g, l.clock);
            l.first = l.n;
            l.passed = l.slice = 0;
            l.device_failed = 0;
            n_resume++;
            rig_drain(g);
            continue;
        }
        const uint64_t slice = l.passed / SLICE;
        governor_step(g, l.clock);
        rig_drain(g);
        struct governor_stats s = rig_stats(g);
        if (slice != l.slice) {
            compare_window(&l, &s, slice > N_SLICE ? slice - N_SLICE : 0, slice - 1);
            n_over++;
        } else if (l.device_failed) {
            compare_window(&l, &s, slice > N_SLICE - 1 ? slice - (N_SLICE - 1) : 0, slice);
            n_amid++;
        } else
            continue;
        assert_int_equal(s.at, l.clock);
        l.slice = slice;
        l.device_failed = 0;
    }
    assert_true(n_over > 5000 && n_amid > 500 && n_resume > 5); /* it was about something */
    governor_free(g);
    free(l.told);
}

/* One value and one far above it, so that the largest hides nothing: around each power of two. */
static void quantiles_are_never_too_low(void **state)
{
    (void)state;
    for (unsigned exponent = 0; exponent < 63; exponent++)
        for (int d = -2; d <= 2; d++) {
            const uint64_t age = (UINT64_C(1) << exponent) + (uint64_t)(int64_t)d;
            if ((int64_t)age < 0)
                continue;
            struct governor_config c = rig_config();
            struct governor *g = rig_create(&c, 0);
            governor_prediction(g, VERDICT_PUBLISHED, age, 1000);
            governor_prediction(g, VERDICT_PUBLISHED, age, 1000);
            governor_prediction(g, VERDICT_STALE, UINT64_MAX - 1, 1000);
            governor_step(g, SLICE);
            struct governor_stats s = rig_stats(g);
            assert_true(s.p50_ns >= age);
            if (age < AGE_END)
                assert_true(s.p50_ns - age <= age / 16);
            if (age < 16)
                assert_int_equal(s.p50_ns, age);
            assert_true(s.p99_ns >= UINT64_MAX - 1);
            governor_free(g);
        }
}

/* Which of n values is the 50th and the 99th percentile. */
static void ranks(void **state)
{
    (void)state;
    static const struct {
        int low, high;
        uint64_t p50, p99;
    } cases[] = {{0, 1, 9, 9},  {1, 0, 3, 3},  {1, 1, 3, 9},   {1, 2, 9, 9},   {2, 1, 3, 9},   {98, 1, 3, 9},
                 {99, 1, 3, 3}, {98, 2, 3, 9}, {198, 2, 3, 3}, {50, 50, 3, 9}, {50, 51, 9, 9}, {0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct governor_config c = rig_config();
        struct governor *g = rig_create(&c, 0);
        for (int k = 0; k < cases[i].low; k++)
            governor_prediction(g, VERDICT_PUBLISHED, 3, 1000);
        for (int k = 0; k < cases[i].high; k++)
            governor_prediction(g, VERDICT_PUBLISHED, 9, 1000);
        governor_step(g, SLICE);
        struct governor_stats s = rig_stats(g);
        assert_int_equal(s.p50_ns, cases[i].p50);
        assert_int_equal(s.p99_ns, cases[i].p99);
        governor_free(g);
    }
}

/* Units of other clocks become ns, rounded up. */
static void other_units(void **state)
{
    (void)state;
    struct governor_config c = rig_config();
    c.ns_per_unit = 0.25;
    struct governor *g = rig_create(&c, 0);
    for (int i = 0; i < MIN_COUNT; i++)
        governor_prediction(g, VERDICT_PUBLISHED, i < 5 ? 3 : 13, 20);
    governor_step(g, SLICE);
    struct governor_stats s = rig_stats(g);
    assert_int_equal(s.p50_ns, 1);
    assert_int_equal(s.p99_ns, 4);
    assert_int_equal(s.max_ns, 4);
    assert_int_equal(s.metric[GOVERNOR_SPREAD], 3); /* 10 units */
    assert_int_equal(s.metric[GOVERNOR_LATENCY], 65);
    assert_int_equal(s.per_s, 400000000); /* 10 in 25 ns */
    governor_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations),
        cmocka_unit_test(quantiles_are_never_too_low),
        cmocka_unit_test(ranks),
        cmocka_unit_test(other_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
