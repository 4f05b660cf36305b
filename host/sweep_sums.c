#include "sweep_sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TALLY_INTS = sizeof(struct sweep_tally) / sizeof(int64_t),
    WEIGHT_MAX = 20 /* highest entry of the table below */
};

struct sweep_sums *sweep_sums_create(const struct sweep_spec *spec)
{
    struct sweep_sums *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->spec = *spec;
    const int64_t n = spec->n_threshold, n_step = VERDICT_COUNT * (SWEEP_N_CLASS + 1) * n * TALLY_INTS;
    s->n_cell = n_step + 2 * n + (n + 1) * SWEEP_N_CLASS * SWEEP_N_FIELD * spec->n_replicate;
    s->cell = calloc((size_t)s->n_cell, sizeof(*s->cell));
    if (!s->cell) {
        free(s);
        return NULL;
    }
    s->step = (struct sweep_tally *)s->cell;
    s->estimated_step = s->cell + n_step;
    s->unsubmitted_step = s->estimated_step + n;
    s->replicate = s->unsubmitted_step + n;
    return s;
}

void sweep_sums_free(struct sweep_sums *s)
{
    if (!s)
        return;
    free(s->log);
    free(s->row);
    free(s->cell);
    free(s);
}

static void add_step(struct sweep_sums *s, unsigned verdict, unsigned cls, uint32_t at,
                     const struct sweep_tally *add, int64_t sign)
{
    if (at >= s->spec.n_threshold)
        return;
    struct sweep_tally *t = &s->step[(verdict * (SWEEP_N_CLASS + 1) + cls) * s->spec.n_threshold + at];
    t->n += sign * add->n;
    t->known += sign * add->known;
    t->hits += sign * add->hits;
    t->value += sign * add->value;
}

int sweep_sums_add(struct sweep_sums *s, const struct sweep_path *path, unsigned cls,
                   const struct sweep_tally *add)
{
    const int64_t size = add->value < 0 ? -add->value : add->value;
    /* Then no sum can pass 64 bits, a replicate's neither. */
    if (size > INT64_MAX / WEIGHT_MAX - s->value_bound)
        return -1;
    s->value_bound += size;
    add_step(s, path->before, cls, 0, add, 1);
    add_step(s, path->before, cls, path->stale_from, add, -1);
    add_step(s, VERDICT_STALE, cls, path->stale_from, add, 1);
    add_step(s, VERDICT_STALE, cls, path->at, add, -1);
    add_step(s, path->after, cls, path->at, add, 1);
    if (path->is_estimated && path->at < s->spec.n_threshold)
        s->estimated_step[path->at] += add->n;
    if (path->is_line && path->submitted_from > path->at) {
        s->unsubmitted_step[path->at] += add->n;
        if (path->submitted_from < s->spec.n_threshold)
            s->unsubmitted_step[path->submitted_from] -= add->n;
    }
    return 0;
}

/* splitmix64's output function: every bit of the result depends on every bit of z. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static const uint64_t golden = 0x9e3779b97f4a7c15u;

uint64_t sweep_block_key(uint64_t seed, uint64_t log_key, uint64_t symbol, uint64_t second)
{
    return mix(mix(mix(mix(seed + golden) ^ log_key) + symbol) + golden * second);
}

uint32_t sweep_weight(uint64_t key, uint32_t replicate)
{
    /* floor(2^64 * P(X <= k)), k = 0, 1 ..., of Poisson(1). */
    static const uint64_t cdf[WEIGHT_MAX] = {
        0x5e2d58d8b3bcdf1a, 0xbc5ab1b16779be35, 0xeb715e1dc1582dc2, 0xfb23979734a252f1, 0xff1025f59174dc3d,
        0xffd90f3ba4055e19, 0xfffa8b71fc72c913, 0xffff540c0914b3c9, 0xffffed1f4aa8f120, 0xfffffe216e641462,
        0xffffffd4d85d3183, 0xfffffffc6da262b4, 0xffffffffba12d178, 0xfffffffffb07c64c, 0xffffffffffab8ea5,
        0xfffffffffffabe22, 0xffffffffffffb11a, 0xfffffffffffffba1, 0xffffffffffffffc5, 0xfffffffffffffffd};
    const uint64_t h = mix(key + golden * (replicate + 1));
    uint32_t weight = (h >= cdf[0]) + (h >= cdf[1]) + (h >= cdf[2]) + (h >= cdf[3]);
    if (weight == 4) /* 1.9 % */
        while (weight < WEIGHT_MAX && h >= cdf[weight])
            weight++;
    return weight;
}

void sweep_sums_block(struct sweep_sums *s, uint64_t block_key, const struct sweep_block_cell *cell,
                      unsigned n_cell)
{
    const uint32_t n = s->spec.n_replicate;
    int64_t weight[SWEEP_REPLICATES_MAX];
    for (uint32_t r = 0; r < n; r++)
        weight[r] = sweep_weight(block_key, r);
    for (unsigned i = 0; i < n_cell; i++) {
        int64_t *sum =
            s->replicate + (uint64_t)(cell[i].at * SWEEP_N_CLASS + cell[i].cls) * SWEEP_N_FIELD * n;
        const int64_t add[SWEEP_N_FIELD] = {cell[i].known, cell[i].hits, cell[i].value};
        for (int f = 0; f < SWEEP_N_FIELD; f++, sum += n)
            for (uint32_t r = 0; r < n; r++)
                sum[r] += weight[r] * add[f];
    }
}

int sweep_sums_classes(struct sweep_sums *s, const char class_name[SWEEP_N_CLASS][8])
{
    if (s->n_class)
        return memcmp(s->class_name, class_name, sizeof(s->class_name)) == 0 ? 0 : -1;
    memcpy(s->class_name, class_name, sizeof(s->class_name));
    s->n_class = sweep_class_signs(class_name, s->sign);
    return 0;
}

static int compare_logs(const struct sweep_log_info *a, const struct sweep_log_info *b)
{
    const int feed = memcmp(a->feed, b->feed, sizeof(a->feed));
    return feed ? feed : memcmp(a->key, b->key, sizeof(a->key));
}

/* Room for one more of n, and the place at which it belongs. */
static void *insert(void *array, uint32_t *n, uint32_t at, size_t size)
{
    char *grown = realloc(array, (*n + 1) * size);
    if (!grown)
        return NULL;
    memmove(grown + (at + 1) * size, grown + at * size, (*n - at) * size);
    ++*n;
    return grown;
}

int sweep_sums_log(struct sweep_sums *s, const struct sweep_log_info *log, const struct sweep_log_info **twin)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->n_log; i++) {
        if (memcmp(s->log[i].key, log->key, sizeof(log->key)) == 0) {
            *twin = &s->log[i];
            return -2;
        }
        at += compare_logs(&s->log[i], log) < 0;
    }
    void *grown = insert(s->log, &s->n_log, at, sizeof(*log));
    if (!grown)
        return -1;
    s->log = grown;
    s->log[at] = *log;
    return 0;
}

static int compare_rows(const struct sweep_arm_row *a, const struct sweep_arm_row *b)
{
    const int arms = memcmp(&a->arms, &b->arms, sizeof(a->arms)),
              symbol = memcmp(a->symbol, b->symbol, sizeof(a->symbol));
    return arms ? arms : symbol ? symbol : (a->is_b > b->is_b) - (a->is_b < b->is_b);
}

static int add_checked(int64_t *into, int64_t add)
{
    return __builtin_add_overflow(*into, add, into) ? -1 : 0;
}

int sweep_sums_row(struct sweep_sums *s, const struct sweep_arm_row *row)
{
    uint32_t low = 0, high = s->n_row;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (compare_rows(&s->row[middle], row) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < s->n_row && compare_rows(&s->row[low], row) == 0) {
        struct sweep_arm_row *into = &s->row[low];
        return add_checked(&into->line, row->line) || add_checked(&into->published, row->published) ||
                       add_checked(&into->known, row->known) || add_checked(&into->hits, row->hits) ||
                       add_checked(&into->value, row->value)
                   ? -1
                   : 0;
    }
    void *grown = insert(s->row, &s->n_row, low, sizeof(*row));
    if (!grown)
        return -1;
    s->row = grown;
    s->row[low] = *row;
    return 0;
}

int sweep_sums_merge(struct sweep_sums *into, const struct sweep_sums *from, const char *name,
                     char error[SWEEP_ERROR_CHARS])
{
    const char *differs = sweep_spec_differs(&into->spec, &from->spec);
    const int is_file = name != NULL;
    if (!is_file)
        name = from->n_log ? from->log[0].path : "sweep";
    if (differs) {
        snprintf(error, SWEEP_ERROR_CHARS,
                 "%.150s: made with another %s than what it is to be merged with: sweep its logs anew with "
                 "the same --thresholds, --horizon, --seed and --replicates",
                 name, differs);
        return -1;
    }
    if (from->n_class && sweep_sums_classes(into, from->class_name)) {
        snprintf(error, SWEEP_ERROR_CHARS,
                 "%.150s: its model's classes are not those of the others: sweep them apart", name);
        return -1;
    }
    for (uint32_t i = 0; i < from->n_log; i++) {
        const struct sweep_log_info *twin = NULL;
        const int status = sweep_sums_log(into, &from->log[i], &twin);
        if (status == -2 && is_file)
            snprintf(error, SWEEP_ERROR_CHARS,
                     "%.120s: holds the log %.150s, which is there already as %.150s: leave one of them out",
                     name, from->log[i].path, twin->path);
        else if (status == -2)
            snprintf(error, SWEEP_ERROR_CHARS,
                     "%.200s: is the same run's log as %.200s: leave one of them out", from->log[i].path,
                     twin->path);
        else if (status)
            snprintf(error, SWEEP_ERROR_CHARS, "out of memory");
        if (status)
            return -1;
    }
    int failed = add_checked(&into->predictions, from->predictions) ||
                 add_checked(&into->disordered, from->disordered) ||
                 add_checked(&into->value_bound, from->value_bound);
    for (int v = 0; v < VERDICT_COUNT; v++)
        failed |= add_checked(&into->given[v], from->given[v]);
    for (int64_t i = 0; i < into->n_cell; i++)
        failed |= add_checked(&into->cell[i], from->cell[i]);
    for (uint32_t i = 0; i < from->n_row && !failed; i++)
        failed |= sweep_sums_row(into, &from->row[i]);
    if (failed)
        snprintf(error, SWEEP_ERROR_CHARS, "%.150s: its sums and those of the others pass 64 bits", name);
    return failed ? -1 : 0;
}

/* Over the thresholds nothing passes 64 bits, counts are in order, and every prediction has one verdict. */
static const char *check_steps(const struct sweep_sums *s)
{
    const uint32_t n = s->spec.n_threshold;
    struct sweep_tally at[VERDICT_COUNT][SWEEP_N_CLASS + 1] = {0};
    int64_t estimated = 0, unsubmitted = 0;
    for (uint32_t j = 0; j < n; j++) {
        int64_t total = 0, published = 0;
        for (unsigned v = 0; v < VERDICT_COUNT; v++)
            for (unsigned c = 0; c <= SWEEP_N_CLASS; c++) {
                const struct sweep_tally *d = &s->step[(v * (SWEEP_N_CLASS + 1) + c) * n + j];
                struct sweep_tally *t = &at[v][c];
                if (add_checked(&t->n, d->n) || add_checked(&t->known, d->known) ||
                    add_checked(&t->hits, d->hits) || add_checked(&t->value, d->value))
                    return "its sums pass 64 bits";
                if (t->hits < 0 || t->hits > t->known || t->known > t->n || add_checked(&total, t->n) ||
                    t->value > s->value_bound || t->value < -s->value_bound)
                    return "its counts contradict each other";
                if (v == VERDICT_PUBLISHED)
                    published += t->n;
            }
        if (total != s->predictions)
            return "its verdicts do not sum to its predictions";
        if (add_checked(&estimated, s->estimated_step[j]) || estimated < 0 || estimated > published ||
            add_checked(&unsubmitted, s->unsubmitted_step[j]) || unsubmitted < 0 || unsubmitted > published)
            return "its estimates contradict its verdicts";
    }
    return NULL;
}

const char *sweep_sums_check(const struct sweep_sums *s)
{
    int64_t given = 0, in_logs = 0;
    for (int v = 0; v < VERDICT_COUNT; v++)
        if (s->given[v] < 0 || add_checked(&given, s->given[v]))
            return "its verdicts are no counts";
    for (uint32_t i = 0; i < s->n_log; i++)
        if (s->log[i].predictions > INT64_MAX || add_checked(&in_logs, (int64_t)s->log[i].predictions))
            return "its logs' predictions are no counts";
    if (given != s->predictions || in_logs != s->predictions || s->disordered < 0 ||
        s->disordered > s->predictions || s->value_bound < 0 || s->value_bound > INT64_MAX / WEIGHT_MAX)
        return "its totals contradict each other";
    const char *wrong = check_steps(s);
    /* Sums over thresholds and classes, replicate by replicate. */
    const uint64_t n_line = (uint64_t)SWEEP_N_FIELD * s->spec.n_replicate;
    int64_t total[SWEEP_N_FIELD * SWEEP_REPLICATES_MAX] = {0};
    for (uint64_t cell = 0; !wrong && cell < (s->spec.n_threshold + 1u) * SWEEP_N_CLASS; cell++)
        for (uint64_t i = 0; i < n_line; i++) {
            const int64_t x = s->replicate[cell * n_line + i];
            /* Those without their sign stay below as well, so that any part of them can be added up. */
            if (x == INT64_MIN || (i < 2ull * s->spec.n_replicate && x < 0) ||
                add_checked(&total[i], x < 0 ? -x : x))
                return "its replicates are out of range";
        }
    for (uint32_t i = 0; !wrong && i < s->n_row; i++) {
        const struct sweep_arm_row *r = &s->row[i];
        if (r->is_b > 1 || r->published < 0 || r->line < r->published || r->hits < 0 || r->known < r->hits ||
            r->published < r->known || r->value > s->value_bound || r->value < -s->value_bound ||
            r->line > s->predictions || (i && compare_rows(r - 1, r) >= 0))
            return "a row of its A/B test is out of range or order";
    }
    return wrong;
}
