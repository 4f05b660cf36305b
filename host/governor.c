#include "governor.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "governor_window.h"

enum {
    /* What was to be predicted, and what of it has an age that the line is about: a superseded tick was
       skipped, however young. */
    WANTED = 1u << VERDICT_PUBLISHED | 1u << VERDICT_EXPECTED_LATE | 1u << VERDICT_STALE |
             1u << VERDICT_SUPERSEDED | 1u << VERDICT_DEVICE_ERROR,
    AGED = WANTED & ~(1u << VERDICT_SUPERSEDED),
    MISSED = 1u << VERDICT_EXPECTED_LATE | 1u << VERDICT_STALE | 1u << VERDICT_DEVICE_ERROR,
    N_EVENT = 2 * (2 * GOVERNOR_N_METRIC + 4), /* of one call, and one that was not fetched */
    N_WORD = sizeof(struct governor_stats) / sizeof(uint64_t),
};
static_assert(sizeof(struct governor_stats) == N_WORD * sizeof(uint64_t), "whole words");

struct faults {
    uint32_t n;
    uint64_t at[GOVERNOR_N_FAULT]; /* oldest first */
};

struct governor {
    /* each tick */
    struct governor_slice *slice; /* the one that runs */
    uint64_t now;                 /* last reading of the clock */
    uint32_t device_failed;       /* since the last evaluation */
    enum governor_rung rung;

    enum governor_cause cause;
    int latched;
    uint64_t since;
    uint32_t alerts, resource;
    uint64_t ring_used, ring_size, threshold, changes;
    struct faults device, halt;
    uint32_t n_event, next_event;
    struct governor_event event[N_EVENT];
    struct governor_figures figures; /* of the last evaluation, at: */
    uint64_t evaluated_at;
    uint64_t metric[GOVERNOR_N_METRIC];
    struct governor_config cfg;
    struct governor_window window;

    /* For other threads: word is written while sequence is odd. */
    _Alignas(64) _Atomic uint64_t sequence;
    _Atomic uint64_t word[N_WORD];
};

const char *governor_rung_name(unsigned rung)
{
    static const char *const name[GOVERNOR_N_RUNG] = {"ACTIVE", "WARNING", "BACKUP", "HALTED"};
    return rung < GOVERNOR_N_RUNG ? name[rung] : NULL;
}

const char *governor_metric_name(unsigned metric)
{
    static const char *const name[GOVERNOR_N_METRIC] = {
        "latency_percent", "spread_us", "miss_ppm", "busy_percent", "resource_percent", "device_errors"};
    return metric < GOVERNOR_N_METRIC ? name[metric] : NULL;
}

const char *governor_cause_name(unsigned cause)
{
    static const char *const name[GOVERNOR_N_CAUSE] = {
        [GOVERNOR_LATENCY] = "latency near or over the line",
        [GOVERNOR_SPREAD] = "latency spread",
        [GOVERNOR_MISS] = "missed predictions",
        [GOVERNOR_BUSY] = "poll loop busy",
        [GOVERNOR_RESOURCE] = "resource nearly full",
        [GOVERNOR_DEVICE] = "device errors",
        [GOVERNOR_BY_QUIET] = "quiet again",
        [GOVERNOR_BY_OPERATOR] = "operator",
        [GOVERNOR_BY_DEVICE_THROTTLE] = "too many device errors",
        [GOVERNOR_BY_HALT_THROTTLE] = "too many forced halts",
        [GOVERNOR_BY_RESTART] = "as the last run was left",
        [GOVERNOR_BY_STATE_FILE] = "state of the last run unreadable",
        [GOVERNOR_BY_START] = "start",
    };
    return cause < GOVERNOR_N_CAUSE ? name[cause] : NULL;
}

/* Percent, 100 at most. No overflow. */
static uint64_t percent(uint64_t part, uint64_t whole)
{
    if (part >= whole)
        return part ? 100 : 0;
    return part <= UINT64_MAX / 100 ? part * 100 / whole : part / (whole / 100);
}

static uint64_t to_ns(const struct governor *g, uint64_t units)
{
    const double ns = ceil((double)units * g->cfg.ns_per_unit);
    return ns < 0x1p64 ? (uint64_t)ns : UINT64_MAX;
}

static uint64_t sum_of(const uint64_t by_verdict[VERDICT_COUNT], unsigned verdicts)
{
    uint64_t sum = 0;
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        sum += verdicts >> v & 1 ? by_verdict[v] : 0;
    return sum;
}

/* Seqlock without fences. Writer: release on a word keeps the odd sequence before it. Reader: acquire on a
 * word keeps the second look at sequence behind it; who reads a new word sees the odd sequence then. */
static void tell(struct governor *g)
{
    const struct governor_figures *f = &g->figures;
    const double span_ns = (double)f->span * g->cfg.ns_per_unit;
    struct governor_stats s = {
        .at = g->evaluated_at,
        .rung = g->rung,
        .cause = g->cause,
        .latched = (uint64_t)g->latched,
        .since = g->since,
        .threshold = g->threshold,
        .count = sum_of(f->by_verdict, ~0u),
        .total = sum_of(f->total_by_verdict, ~0u),
        .p50_ns = to_ns(g, f->p50),
        .p99_ns = to_ns(g, f->p99),
        .max_ns = to_ns(g, f->max),
        .alerts = g->alerts,
        .ring_used = g->ring_used,
        .ring_size = g->ring_size,
        .changes = g->changes,
        .n_device_fault = g->device.n,
        .n_halt_fault = g->halt.n,
    };
    s.per_s = span_ns > 0 ? (uint64_t)((double)s.count * 1e9 / span_ns) : 0;
    memcpy(s.by_verdict, f->by_verdict, sizeof(s.by_verdict));
    memcpy(s.total_by_verdict, f->total_by_verdict, sizeof(s.total_by_verdict));
    memcpy(s.metric, g->metric, sizeof(s.metric));
    memcpy(s.device_fault, g->device.at, g->device.n * sizeof(uint64_t));
    memcpy(s.halt_fault, g->halt.at, g->halt.n * sizeof(uint64_t));

    uint64_t word[N_WORD];
    memcpy(word, &s, sizeof(s));
    const uint64_t sequence = atomic_load_explicit(&g->sequence, memory_order_relaxed);
    atomic_store_explicit(&g->sequence, sequence + 1, memory_order_relaxed);
    for (int i = 0; i < N_WORD; i++)
        atomic_store_explicit(&g->word[i], word[i], memory_order_release);
    atomic_store_explicit(&g->sequence, sequence + 2, memory_order_release);
}

void governor_read(const struct governor *g, struct governor_stats *stats)
{
    uint64_t word[N_WORD], before, after;
    do {
        before = atomic_load_explicit(&g->sequence, memory_order_acquire);
        for (int i = 0; i < N_WORD; i++)
            word[i] = atomic_load_explicit(&g->word[i], memory_order_acquire);
        after = atomic_load_explicit(&g->sequence, memory_order_relaxed);
    } while (before != after || before & 1);
    memcpy(stats, word, sizeof(*stats));
}

static void add_fault(struct faults *f, uint64_t at)
{
    if (f->n == GOVERNOR_N_FAULT)
        memmove(f->at, f->at + 1, --f->n * sizeof(f->at[0]));
    f->at[f->n++] = at;
}

/* Those of longer ago than window do not count any more. */
static void expire(struct faults *f, uint64_t now, uint64_t window)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (now - f->at[i] <= window)
            f->at[n++] = f->at[i];
    f->n = n;
}

static void carry_over(struct faults *f, uint32_t n, const uint64_t *at, uint64_t now)
{
    assert(n <= GOVERNOR_N_FAULT);
    f->n = n;
    for (uint32_t i = 0; i < n; i++) /* one that lies ahead is of a clock that went back: it is young */
        f->at[i] = (int64_t)(now - at[i]) < 0 ? now : at[i];
}

struct governor *governor_create(const struct governor_config *config, uint64_t now)
{
    assert(config->ns_per_unit > 0);
    assert(config->window >= GOVERNOR_N_SLICE && config->window < UINT64_MAX / 2);
    assert(config->throttle_devices <= GOVERNOR_N_FAULT && config->throttle_halts <= GOVERNOR_N_FAULT);
    assert(config->throttle_window < UINT64_MAX / 2);
    assert((unsigned)config->start_rung < GOVERNOR_N_RUNG &&
           (unsigned)config->start_cause < GOVERNOR_N_CAUSE);
    for (int r = GOVERNOR_WARNING; r < GOVERNOR_N_RUNG; r++)
        for (int m = 0; m < GOVERNOR_N_METRIC; m++)
            assert(config->rule[r][m].enter == 0 || config->rule[r][m].leave < config->rule[r][m].enter);

    struct governor *g = aligned_alloc(_Alignof(struct governor), sizeof(*g));
    if (!g)
        return NULL;
    memset(g, 0, sizeof(*g));
    g->cfg = *config;
    g->now = g->since = g->evaluated_at = now;
    g->rung =
        config->start_rung == GOVERNOR_BACKUP && !config->has_backup ? GOVERNOR_WARNING : config->start_rung;
    g->cause = config->start_cause;
    g->latched = g->rung == GOVERNOR_HALTED;
    governor_window_init(&g->window, config->window / GOVERNOR_N_SLICE, now);
    g->slice = &g->window.slice[g->window.current];
    carry_over(&g->device, config->n_device_fault, config->device_fault, now);
    carry_over(&g->halt, config->n_halt_fault, config->halt_fault, now);
    expire(&g->device, now, config->throttle_window);
    expire(&g->halt, now, config->throttle_window);
    g->device_failed = g->device.n || g->halt.n; /* the first step looks whether they are too many */
    tell(g);
    return g;
}

void governor_free(struct governor *governor)
{
    free(governor);
}

void governor_prediction(struct governor *g, enum verdict verdict, uint64_t age, uint64_t threshold)
{
    assert((unsigned)verdict < VERDICT_COUNT);
    g->slice->counts.n[GOVERNOR_AT_VERDICT + verdict]++;
    if (AGED >> verdict & 1 && age != KILLLINE_AGE_NEVER)
        governor_window_age(g->slice, age, threshold);
}

void governor_busy(struct governor *g, uint64_t units)
{
    g->slice->busy += units;
}

void governor_ring(struct governor *g, uint64_t used, uint64_t size)
{
    g->ring_used = used;
    g->ring_size = size;
}

void governor_resource(struct governor *g, uint32_t resource_percent)
{
    g->resource = resource_percent;
}

void governor_threshold(struct governor *g, uint64_t threshold)
{
    g->threshold = threshold;
}

/* A clock that goes back takes all that is remembered with it: no time has passed. */
static void set_back(struct governor *g, uint64_t by)
{
    g->since -= by;
    g->evaluated_at -= by;
    g->window.begin -= by;
    for (uint32_t i = 0; i < g->device.n; i++)
        g->device.at[i] -= by;
    for (uint32_t i = 0; i < g->halt.n; i++)
        g->halt.at[i] -= by;
}

static inline void look(struct governor *g, uint64_t now)
{
    if ((int64_t)(now - g->now) < 0)
        set_back(g, g->now - now);
    g->now = now;
}

void governor_device_error(struct governor *g, uint64_t now)
{
    look(g, now);
    g->slice->counts.n[GOVERNOR_AT_DEVICE]++;
    g->device_failed = 1;
    add_fault(&g->device, now);
}

static void post(struct governor *g, struct governor_event event)
{
    assert(g->n_event - g->next_event < N_EVENT);
    g->event[g->n_event++ % N_EVENT] = event;
}

int governor_next(struct governor *g, struct governor_event *event)
{
    if (g->n_event == g->next_event)
        return 0;
    *event = g->event[g->next_event++ % N_EVENT];
    return 1;
}

static void go(struct governor *g, enum governor_rung to, enum governor_cause cause, int latched)
{
    struct governor_event e = {
        .news = GOVERNOR_RUNG, .from = g->rung, .to = to, .cause = cause, .latched = (uint32_t)latched};
    if ((unsigned)cause < GOVERNOR_N_METRIC) {
        e.value = g->metric[cause];
        e.bound = g->cfg.rule[to][cause].enter;
    }
    post(g, e);
    if (g->rung != to) {
        g->changes++;
        g->since = g->now;
    }
    g->rung = to;
    g->cause = cause;
    g->latched = latched;
}

static void measure(struct governor *g)
{
    struct governor_figures *f = &g->figures;
    governor_window_turn(&g->window, g->now, f);
    g->slice = &g->window.slice[g->window.current];
    g->evaluated_at = g->now;

    const uint32_t min = g->cfg.min_count ? g->cfg.min_count : 1;
    const int aged = f->n_aged >= min;
    const uint64_t wanted = sum_of(f->by_verdict, WANTED);
    const uint64_t ring = percent(g->ring_used, g->ring_size);
    g->metric[GOVERNOR_LATENCY] = aged ? f->p99_ratio / 10 + (f->p99_ratio % 10 != 0) : 0;
    g->metric[GOVERNOR_SPREAD] = aged ? to_ns(g, f->p99 - f->p50) : 0;
    g->metric[GOVERNOR_MISS] = wanted >= min ? sum_of(f->by_verdict, MISSED) * 1000000 / wanted : 0;
    g->metric[GOVERNOR_BUSY] = percent(f->busy, f->span);
    g->metric[GOVERNOR_RESOURCE] = ring > g->resource ? ring : g->resource;
    g->metric[GOVERNOR_DEVICE] = f->device_errors;
}

static void alert(struct governor *g)
{
    for (uint32_t m = 0; m < GOVERNOR_N_METRIC; m++) {
        const struct governor_rule *rule = &g->cfg.rule[GOVERNOR_WARNING][m];
        const uint32_t raised = g->alerts >> m & 1;
        const uint64_t value = g->metric[m];
        if (rule->enter == 0 || (raised ? value > rule->leave : value < rule->enter))
            continue;
        g->alerts ^= 1u << m;
        post(g, (struct governor_event){.news = GOVERNOR_ALERT,
                                        .metric = m,
                                        .raised = !raised,
                                        .value = value,
                                        .bound = raised ? rule->leave : rule->enter});
    }
}

/* A metric that leads to the rung, or GOVERNOR_N_METRIC: none. */
static unsigned leads_to(const struct governor *g, unsigned rung)
{
    /* Ticks of one burst are many, and one event: what they say is no reason to publish nothing. */
    const int is_short = rung == GOVERNOR_HALTED && g->figures.n_slice < GOVERNOR_N_SLICE / 2;
    for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++) {
        const uint64_t enter = g->cfg.rule[rung][m].enter;
        const int of_ticks = m == GOVERNOR_LATENCY || m == GOVERNOR_SPREAD || m == GOVERNOR_MISS;
        if (enter && g->metric[m] >= enter && !(is_short && of_ticks))
            return m;
    }
    return GOVERNOR_N_METRIC;
}

static int is_quiet(const struct governor *g, unsigned rung)
{
    for (unsigned m = 0; m < GOVERNOR_N_METRIC; m++)
        if (g->cfg.rule[rung][m].enter != 0 && g->metric[m] > g->cfg.rule[rung][m].leave)
            return 0;
    return 1;
}

/* Down to the lowest rung below this one that a metric leads to; else, up one. The rules of rungs above say
 * nothing here: they are asked when the appliance stands there. */
static void climb(struct governor *g)
{
    for (unsigned to = GOVERNOR_HALTED; to > g->rung; to--) {
        if (to == GOVERNOR_BACKUP && !g->cfg.has_backup)
            continue;
        const unsigned m = leads_to(g, to);
        if (m == GOVERNOR_N_METRIC)
            continue;
        if (to == GOVERNOR_HALTED)
            add_fault(&g->halt, g->now);
        go(g, to, m, to == GOVERNOR_HALTED && g->cfg.stays_halted);
        return;
    }
    if (g->rung == GOVERNOR_ACTIVE || g->now - g->since < g->cfg.dwell[g->rung] || !is_quiet(g, g->rung))
        return;
    unsigned to = g->rung - 1u;
    if (to == GOVERNOR_BACKUP && !g->cfg.has_backup)
        to = GOVERNOR_WARNING;
    go(g, to, GOVERNOR_BY_QUIET, 0);
}

static int is_over(uint32_t n, uint32_t bound)
{
    return bound && n >= bound;
}

static int evaluate(struct governor *g)
{
    const struct governor_config *c = &g->cfg;
    const uint32_t n_event = g->n_event;
    measure(g);
    g->device_failed = 0;
    alert(g);
    expire(&g->device, g->now, c->throttle_window);
    expire(&g->halt, g->now, c->throttle_window);
    if (!g->latched && is_over(g->device.n, c->throttle_devices))
        go(g, GOVERNOR_HALTED, GOVERNOR_BY_DEVICE_THROTTLE, 1);
    if (!g->latched)
        climb(g);
    if (!g->latched && is_over(g->halt.n, c->throttle_halts))
        go(g, GOVERNOR_HALTED, GOVERNOR_BY_HALT_THROTTLE, 1);
    tell(g);
    return g->n_event != n_event;
}

int governor_step(struct governor *g, uint64_t now)
{
    look(g, now);
    return now - g->window.begin >= g->window.length || g->device_failed ? evaluate(g) : 0;
}

void governor_halt(struct governor *g, uint64_t now)
{
    look(g, now);
    if (g->latched)
        return;
    go(g, GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1);
    tell(g);
}

void governor_resume(struct governor *g, uint64_t now)
{
    look(g, now);
    if (g->rung != GOVERNOR_HALTED)
        return;
    governor_window_clear(&g->window, now);
    g->slice = &g->window.slice[g->window.current];
    g->device.n = g->halt.n = 0;
    g->device_failed = 0;
    go(g, GOVERNOR_WARNING, GOVERNOR_BY_OPERATOR, 0);
    tell(g);
}

enum governor_rung governor_rung(const struct governor *governor)
{
    return governor->rung;
}
