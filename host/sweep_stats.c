#include "sweep_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_BLOCKS = 10 };

static int compare_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sweep_percentiles(double *x, uint32_t n, double *low, double *high)
{
    const uint32_t tail = n / 40; /* 2.5 % */
    qsort(x, n, sizeof(*x), compare_double);
    *low = x[tail];
    *high = x[n - 1 - tail];
}

/* Number of equal blocks that replicates of this spread would come of. */
static double block_count(int64_t total, const int64_t *replicates, uint32_t n)
{
    double variance = 0;
    for (uint32_t r = 0; r < n; r++) {
        const double d = (double)replicates[r] - (double)total;
        variance += d * d / n;
    }
    return variance > 0 ? (double)total * (double)total / variance : 0;
}

static int can_resample(int64_t total, const int64_t *replicates, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        if (replicates[r] <= 0)
            return 0;
    return block_count(total, replicates, n) >= MIN_BLOCKS;
}

void sweep_interval_of(int64_t numerator, int64_t denominator, const int64_t *numerators,
                       const int64_t *denominators, uint32_t n, double scale, struct sweep_interval *interval)
{
    double x[SWEEP_REPLICATES_MAX];
    *interval = (struct sweep_interval){.has_value = denominator > 0};
    if (!interval->has_value)
        return;
    interval->value = scale * (double)numerator / (double)denominator;
    if (!can_resample(denominator, denominators, n))
        return;
    for (uint32_t r = 0; r < n; r++)
        x[r] = scale * (double)numerators[r] / (double)denominators[r];
    sweep_percentiles(x, n, &interval->low, &interval->high);
    interval->has_interval = 1;
}

/* Sums over thresholds, while these go up. */
struct running {
    struct sweep_tally tally[VERDICT_COUNT][SWEEP_N_CLASS + 1];
    int64_t estimated, unsubmitted;
    int64_t published[SWEEP_N_CLASS + 1][SWEEP_N_FIELD][SWEEP_REPLICATES_MAX]; /* last: all classes */
    int64_t dropped[SWEEP_N_CLASS + 1][SWEEP_N_FIELD][SWEEP_REPLICATES_MAX];
};

/* Replicates of threshold index j's cell: from dropped to published. */
static void advance(struct running *a, const struct sweep_sums *s, uint32_t j)
{
    const uint32_t n = s->spec.n_replicate;
    for (uint32_t c = 0; c < SWEEP_N_CLASS; c++)
        for (uint32_t f = 0; f < SWEEP_N_FIELD; f++) {
            const int64_t *x = s->replicate + ((uint64_t)(j * SWEEP_N_CLASS + c) * SWEEP_N_FIELD + f) * n;
            for (uint32_t r = 0; r < n; r++) {
                a->published[c][f][r] += x[r];
                a->published[SWEEP_N_CLASS][f][r] += x[r];
                a->dropped[c][f][r] -= x[r];
                a->dropped[SWEEP_N_CLASS][f][r] -= x[r];
            }
        }
}

static void start(struct running *a, const struct sweep_sums *s)
{
    for (uint32_t j = 0; j <= s->spec.n_threshold; j++)
        advance(a, s, j);
    for (uint32_t c = 0; c <= SWEEP_N_CLASS; c++)
        for (uint32_t f = 0; f < SWEEP_N_FIELD; f++)
            for (uint32_t r = 0; r < s->spec.n_replicate; r++) {
                a->dropped[c][f][r] = a->published[c][f][r];
                a->published[c][f][r] = 0;
            }
}

static void quality_of(struct sweep_quality *q, const struct sweep_tally *t,
                       int64_t replicate[SWEEP_N_FIELD][SWEEP_REPLICATES_MAX], uint32_t n)
{
    q->n = t->n;
    q->known = t->known;
    q->hits = t->hits;
    sweep_interval_of(t->hits, t->known, replicate[SWEEP_HITS], replicate[SWEEP_KNOWN], n, 1, &q->hit_rate);
    sweep_interval_of(t->value, t->known, replicate[SWEEP_VALUE], replicate[SWEEP_KNOWN], n,
                      SWEEP_USD_PER_UNIT, &q->mean_usd);
}

static void add_tally(struct sweep_tally *into, const struct sweep_tally *add)
{
    into->n += add->n;
    into->known += add->known;
    into->hits += add->hits;
    into->value += add->value;
}

static void difference_of(const struct running *a, struct sweep_point *p, uint32_t n)
{
    const struct sweep_quality *up = &p->published[SWEEP_N_CLASS], *down = &p->dropped[SWEEP_N_CLASS];
    const int64_t(*u)[SWEEP_REPLICATES_MAX] = a->published[SWEEP_N_CLASS],
          (*d)[SWEEP_REPLICATES_MAX] = a->dropped[SWEEP_N_CLASS];
    struct sweep_interval *i = &p->difference_usd;
    double x[SWEEP_REPLICATES_MAX];
    *i = (struct sweep_interval){.has_value = up->mean_usd.has_value && down->mean_usd.has_value,
                                 .has_interval = up->mean_usd.has_interval && down->mean_usd.has_interval};
    if (i->has_value)
        i->value = up->mean_usd.value - down->mean_usd.value;
    for (uint32_t r = 0; r < n && i->has_interval; r++)
        x[r] = SWEEP_USD_PER_UNIT * ((double)u[SWEEP_VALUE][r] / (double)u[SWEEP_KNOWN][r] -
                                     (double)d[SWEEP_VALUE][r] / (double)d[SWEEP_KNOWN][r]);
    if (i->has_interval)
        sweep_percentiles(x, n, &i->low, &i->high);
}

static void point_of(struct running *a, const struct sweep_sums *s, uint32_t j, struct sweep_point *p)
{
    const uint32_t n = s->spec.n_threshold, n_replicate = s->spec.n_replicate;
    *p = (struct sweep_point){.threshold_ns = s->spec.threshold_ns[j]};
    p->estimated = a->estimated += s->estimated_step[j];
    p->unsubmitted = a->unsubmitted += s->unsubmitted_step[j];
    struct sweep_tally published = {0}, late = {0}, by_class[SWEEP_N_CLASS] = {0};
    for (unsigned v = 0; v < VERDICT_COUNT; v++) {
        struct sweep_tally answers = {0};
        for (unsigned c = 0; c <= SWEEP_N_CLASS; c++) {
            struct sweep_tally *t = &a->tally[v][c];
            add_tally(t, &s->step[(v * (SWEEP_N_CLASS + 1) + c) * n + j]);
            p->by_verdict[v] += t->n;
            if (c == SWEEP_NO_CLASS)
                continue;
            add_tally(&answers, t);
            if (v == VERDICT_EXPECTED_LATE || v == VERDICT_STALE)
                add_tally(&by_class[c], t);
            if (v == VERDICT_PUBLISHED)
                quality_of(&p->published[c], t, a->published[c], n_replicate);
        }
        if (v == VERDICT_PUBLISHED)
            published = answers;
        else if (v == VERDICT_EXPECTED_LATE || v == VERDICT_STALE)
            add_tally(&late, &answers);
        else
            p->other[v] = (struct sweep_quality){
                .n = answers.n,
                .known = answers.known,
                .hits = answers.hits,
                .hit_rate = {.has_value = answers.known > 0,
                             .value = answers.known ? (double)answers.hits / (double)answers.known : 0},
                .mean_usd = {.has_value = answers.known > 0,
                             .value = answers.known
                                          ? SWEEP_USD_PER_UNIT * (double)answers.value / (double)answers.known
                                          : 0}};
    }
    for (unsigned c = 0; c < SWEEP_N_CLASS; c++)
        quality_of(&p->dropped[c], &by_class[c], a->dropped[c], n_replicate);
    quality_of(&p->published[SWEEP_N_CLASS], &published, a->published[SWEEP_N_CLASS], n_replicate);
    quality_of(&p->dropped[SWEEP_N_CLASS], &late, a->dropped[SWEEP_N_CLASS], n_replicate);
    difference_of(a, p, n_replicate);
    p->missed = p->by_verdict[VERDICT_EXPECTED_LATE] + p->by_verdict[VERDICT_STALE];
    p->line = p->by_verdict[VERDICT_PUBLISHED] + p->missed;
    p->miss_rate = p->line ? (double)p->missed / (double)p->line : 0;
}

/* ---- words ---- */

static void recommend(struct sweep_result *r)
{
    const double target = r->target_ppm / 1e4;
    r->recommended = -1;
    for (uint32_t j = 0; j < r->n_point && r->recommended < 0; j++) {
        const struct sweep_point *p = &r->point[j];
        if (p->line && (__int128)p->missed * 1000000 <= (__int128)p->line * r->target_ppm)
            r->recommended = (int)j;
    }
    const struct sweep_point *last = &r->point[r->n_point - 1];
    if (r->recommended >= 0) {
        const struct sweep_point *p = &r->point[r->recommended];
        snprintf(r->recommendation, sizeof(r->recommendation),
                 "%.9g us: the smallest of these thresholds at which at most %.6g %% miss the line (%.3g %%; "
                 "%lld "
                 "of the published are estimated)",
                 p->threshold_ns / 1e3, target, 100 * p->miss_rate, (long long)p->estimated);
    } else if (!last->line) {
        snprintf(r->recommendation, sizeof(r->recommendation), "none: no prediction came as far as the line");
    } else {
        snprintf(r->recommendation, sizeof(r->recommendation),
                 "none: even at %.9g us %.3g %% miss the line, more than the target of %.6g %%",
                 last->threshold_ns / 1e3, 100 * last->miss_rate, target);
    }
}

static void say_worth(struct sweep_result *r)
{
    const struct sweep_point *p = &r->point[r->recommended >= 0 ? r->recommended : (int)r->n_point - 1];
    const struct sweep_interval *i = &p->difference_usd, *late = &p->dropped[SWEEP_N_CLASS].mean_usd;
    const double us = p->threshold_ns / 1e3;
    int n;
    if (!i->has_interval) {
        snprintf(r->worth, sizeof(r->worth),
                 "At %.9g us too few answers with a known outcome lie on %s side of the line to compare "
                 "their value",
                 us, i->has_value ? "one" : "the one or the other");
        return;
    }
    n = snprintf(r->worth, sizeof(r->worth),
                 "At %.9g us a published prediction is worth %s than one that is dropped as too late: "
                 "difference %.3g USD (95 %%: %.3g to %.3g)%s",
                 us,
                 i->low > 0    ? "more"
                 : i->high < 0 ? "less"
                               : "no clearly different sum",
                 i->value, i->low, i->high, i->low > 0 || i->high < 0 ? "" : ", not significant");
    if (late->has_interval && n > 0)
        snprintf(r->worth + n, sizeof(r->worth) - (size_t)n,
                 late->low > 0 ? "; the dropped ones are still worth something (%.3g USD, %.3g to %.3g): a "
                                 "later line would lose less"
                 : late->high < 0 ? "; the dropped ones would have lost (%.3g USD, %.3g to %.3g)"
                                  : "; the dropped ones are worth nothing that can be told from 0 (%.3g USD, "
                                    "%.3g to %.3g)",
                 late->value, late->low, late->high);
}

/* ---- all of it ---- */

static int tests_of(struct sweep_result *r)
{
    const struct sweep_sums *s = r->sums;
    for (uint32_t row = 0; row < s->n_row;) {
        struct sweep_ab *grown = realloc(r->ab, (r->n_ab + 1) * sizeof(*grown));
        if (!grown)
            return -1;
        r->ab = grown;
        row += sweep_ab_of(s, row, &r->ab[r->n_ab++]);
    }
    return 0;
}

struct sweep_result *sweep_result_create(const struct sweep_sums *sums, uint32_t target_ppm)
{
    const uint32_t n = sums->spec.n_threshold;
    struct sweep_result *r = calloc(1, sizeof(*r));
    struct running *a = calloc(1, sizeof(*a));
    if (r) {
        r->sums = sums;
        r->target_ppm = target_ppm;
        r->n_point = n;
        r->point = calloc(n, sizeof(*r->point));
    }
    if (!r || !a || !r->point || tests_of(r)) {
        sweep_result_free(r);
        free(a);
        return NULL;
    }
    start(a, sums);
    for (uint32_t j = 0; j < n; j++) {
        advance(a, sums, j);
        point_of(a, sums, j, &r->point[j]);
    }
    free(a);
    recommend(r);
    say_worth(r);
    return r;
}

void sweep_result_free(struct sweep_result *r)
{
    if (!r)
        return;
    free(r->point);
    free(r->ab);
    free(r);
}
