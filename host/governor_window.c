#include "governor_window.h"

#include <string.h>

static void add(struct governor_counts *sum, const struct governor_counts *c)
{
    for (int i = 0; i < GOVERNOR_N_COUNT; i++)
        sum->n[i] += c->n[i];
}

static void subtract(struct governor_counts *sum, const struct governor_counts *c)
{
    for (int i = 0; i < GOVERNOR_N_COUNT; i++)
        sum->n[i] -= c->n[i];
}

void governor_window_init(struct governor_window *w, uint64_t length, uint64_t now)
{
    *w = (struct governor_window){.begin = now, .length = length};
}

static void add_totals(struct governor_window *w)
{
    for (int v = 0; v < VERDICT_COUNT; v++)
        w->total_by_verdict[v] += w->slice[w->current].counts.n[GOVERNOR_AT_VERDICT + v];
}

static void empty(struct governor_window *w)
{
    memset(w->slice, 0, sizeof(w->slice));
    memset(&w->sum, 0, sizeof(w->sum));
}

void governor_window_clear(struct governor_window *w, uint64_t now)
{
    add_totals(w);
    empty(w);
    w->begin = now;
    w->covered = 0;
}

/* The oldest slice's place is the next one's. */
static void next_slice(struct governor_window *w)
{
    w->current = (w->current + 1) % GOVERNOR_N_SLICE;
    struct governor_slice *oldest = &w->slice[w->current];
    subtract(&w->sum, &oldest->counts);
    memset(oldest, 0, sizeof(*oldest));
}

/* Highest value of the first bucket that rank values do not exceed, never above max. */
static uint64_t quantile(const uint32_t *n, uint32_t n_bucket, uint64_t rank, uint64_t max)
{
    uint64_t below = 0;
    uint32_t i = 0;
    while (i < n_bucket - 1 && (below += n[i]) < rank)
        i++;
    if (i == n_bucket - 1)
        return max; /* it has no upper end */
    const uint64_t high = i < 16 ? i : ((uint64_t)(16 + i % 16 + 1) << (i / 16 - 1)) - 1;
    return high < max ? high : max;
}

static void measure(const struct governor_window *w, struct governor_figures *f)
{
    const uint32_t *n = w->sum.n;
    *f = (struct governor_figures){.device_errors = n[GOVERNOR_AT_DEVICE]};
    for (int v = 0; v < VERDICT_COUNT; v++)
        f->by_verdict[v] = n[GOVERNOR_AT_VERDICT + v];
    uint64_t max_ratio = 0;
    for (int i = 0; i < GOVERNOR_N_SLICE; i++) {
        const struct governor_slice *s = &w->slice[i];
        f->max = s->max_age > f->max ? s->max_age : f->max;
        max_ratio = s->max_ratio > max_ratio ? s->max_ratio : max_ratio;
        f->busy += s->busy;
        const uint32_t *by_verdict = &s->counts.n[GOVERNOR_AT_VERDICT];
        f->n_slice += (by_verdict[VERDICT_PUBLISHED] | by_verdict[VERDICT_EXPECTED_LATE] |
                       by_verdict[VERDICT_STALE] | by_verdict[VERDICT_DEVICE_ERROR]) != 0;
    }
    for (int i = 0; i < GOVERNOR_N_RATIO; i++)
        f->n_aged += n[GOVERNOR_AT_RATIO + i];
    if (f->n_aged == 0)
        return;
    const uint64_t rank50 = f->n_aged - f->n_aged / 2, rank99 = f->n_aged - f->n_aged / 100; /* upwards */
    f->p50 = quantile(n + GOVERNOR_AT_AGE, GOVERNOR_N_AGE, rank50, f->max);
    f->p99 = quantile(n + GOVERNOR_AT_AGE, GOVERNOR_N_AGE, rank99, f->max);
    f->p99_ratio = quantile(n + GOVERNOR_AT_RATIO, GOVERNOR_N_RATIO, rank99, max_ratio);
}

void governor_window_turn(struct governor_window *w, uint64_t now, struct governor_figures *figures)
{
    const uint64_t elapsed = now - w->begin;
    const struct governor_counts *running = &w->slice[w->current].counts;
    uint64_t total_by_verdict[VERDICT_COUNT];
    add(&w->sum, running);
    for (int v = 0; v < VERDICT_COUNT; v++)
        total_by_verdict[v] = w->total_by_verdict[v] + running->n[GOVERNOR_AT_VERDICT + v];

    uint64_t span;
    if (elapsed < w->length) {
        measure(w, figures);
        subtract(&w->sum, running);
        span = w->covered * w->length + elapsed;
    } else {
        const uint64_t n_over = elapsed / w->length;
        add_totals(w);
        if (n_over > GOVERNOR_N_SLICE)
            empty(w);
        else
            for (uint64_t i = 1; i < n_over; i++)
                next_slice(w);
        measure(w, figures);
        next_slice(w);
        const uint64_t covered = w->covered + (n_over < GOVERNOR_N_SLICE ? n_over : GOVERNOR_N_SLICE);
        span = (covered < GOVERNOR_N_SLICE ? covered : GOVERNOR_N_SLICE) * w->length;
        w->covered = covered < GOVERNOR_N_SLICE ? (uint32_t)covered : GOVERNOR_N_SLICE - 1;
        w->begin += n_over * w->length;
    }
    figures->span = span < w->length ? w->length : span;
    memcpy(figures->total_by_verdict, total_by_verdict, sizeof(total_by_verdict));
}
