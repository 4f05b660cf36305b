#include "sweep_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "governor.h"

enum {
    N_CELL = 16,                   /* kinds of answers of a block that are kept before they are added up */
    N_OPEN_MAX = 1 << 20,          /* answers of a symbol within a horizon */
    N_SERIES_MAX = 1 << 17,        /* symbols */
    PROGRESS_RECORDS = 1 << 16,    /* between two calls */
    DISORDER_MAX_NS = 1000000000u, /* older than this is another session */
};
#define NS_PER_S 1000000000u

/* An answer whose outcome is to come. */
struct open_answer {
    uint64_t due;    /* number of the tick, or feed time */
    uint64_t second; /* of its block */
    int64_t mid;
    struct sweep_path path;
    uint8_t cls, is_b, was_published;
};

struct arm_sums {
    int64_t line, published, known, hits, value;
};

/* A symbol. */
struct series {
    char symbol[8];
    uint64_t n_tick, last_ts_ns;
    int64_t mid; /* of the last record with both sides */
    struct open_answer *ring;
    uint32_t n_ring, head, tail; /* n_ring: power of two; indexes run free */
    uint64_t second;             /* of cell */
    uint32_t n_cell;
    struct sweep_block_cell cell[N_CELL];
    struct arm_sums arm[2];
};

struct log_reading {
    const char *path;
    struct sweep_sums *sums;
    uint64_t threshold_cycles[SWEEP_N_THRESHOLD_MAX];
    uint64_t log_key;
    double tsc_hz;
    struct sweep_arms arms;
    int has_arms;
    struct series *series;
    uint32_t n_series, n_allocated;
    uint32_t *table; /* index + 1 into series; 0: free */
    uint32_t n_table;
    struct sweep_log_info info;
    char *error;
};

static int fail(struct log_reading *l, const char *what)
{
    const size_t length = strlen(l->path), room = 150;
    snprintf(l->error, SWEEP_ERROR_CHARS, "%s: %s", l->path + (length > room ? length - room : 0), what);
    return -1;
}

static void flush(struct log_reading *l, struct series *s)
{
    uint64_t symbol;
    memcpy(&symbol, s->symbol, sizeof(symbol));
    if (s->n_cell)
        sweep_sums_block(l->sums, sweep_block_key(l->sums->spec.seed, l->log_key, symbol, s->second), s->cell,
                         s->n_cell);
    s->n_cell = 0;
}

/* Parts of a block that are added up apart give the same as the whole. */
static void add_to_block(struct log_reading *l, struct series *s, const struct open_answer *o,
                         const struct sweep_tally *t)
{
    uint32_t i = 0;
    if (s->second != o->second)
        flush(l, s);
    s->second = o->second;
    while (i < s->n_cell && (s->cell[i].at != o->path.at || s->cell[i].cls != o->cls))
        i++;
    if (i == N_CELL) {
        flush(l, s);
        i = 0;
    }
    if (i == s->n_cell)
        s->cell[s->n_cell++] = (struct sweep_block_cell){.at = o->path.at, .cls = o->cls};
    s->cell[i].known += t->known;
    s->cell[i].hits += t->hits;
    s->cell[i].value += t->value;
}

/* The oldest open answer has its outcome. */
static int resolve(struct log_reading *l, struct series *s, int64_t mid)
{
    const struct open_answer *o = &s->ring[s->head++ & (s->n_ring - 1)];
    const int64_t move = mid - o->mid;
    const int sign = l->sums->sign[o->cls];
    const struct sweep_tally t = {.known = 1, .hits = (move > 0) - (move < 0) == sign, .value = sign * move};
    if (sweep_sums_add(l->sums, &o->path, o->cls, &t))
        return fail(l, "its values pass 64 bits");
    if (o->path.is_line)
        add_to_block(l, s, o, &t);
    if (o->was_published) {
        struct arm_sums *arm = &s->arm[o->is_b];
        arm->known++;
        arm->hits += t.hits;
        arm->value += t.value;
    }
    return 0;
}

/* Nothing is known of the symbol from its last record on. */
static int break_chain(struct log_reading *l, struct series *s)
{
    int status = 0;
    if (l->sums->spec.horizon_ns)
        while (!status && s->head != s->tail && s->ring[s->head & (s->n_ring - 1)].due == s->last_ts_ns)
            status = resolve(l, s, s->mid);
    s->head = s->tail;
    return status;
}

static int break_all(struct log_reading *l)
{
    for (uint32_t i = 0; i < l->n_series; i++)
        if (break_chain(l, &l->series[i]))
            return -1;
    return 0;
}

static uint32_t table_slot(const struct log_reading *l, const char symbol[8])
{
    uint64_t key;
    memcpy(&key, symbol, sizeof(key));
    uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (l->n_table - 1);
    while (l->table[at] && memcmp(l->series[l->table[at] - 1].symbol, symbol, 8) != 0)
        at = (at + 1) & (l->n_table - 1);
    return at;
}

static int grow(struct log_reading *l)
{
    if (l->n_series == N_SERIES_MAX)
        return fail(l, "has more symbols than a feed");
    const uint32_t n = l->n_allocated ? 2 * l->n_allocated : 64;
    struct series *series = realloc(l->series, n * sizeof(*series));
    if (series)
        l->series = series;
    uint32_t *table = series ? calloc(4ul * n, sizeof(*table)) : NULL;
    if (!table)
        return fail(l, "out of memory");
    free(l->table);
    l->table = table;
    l->n_table = 4 * n;
    l->n_allocated = n;
    for (uint32_t i = 0; i < l->n_series; i++)
        l->table[table_slot(l, l->series[i].symbol)] = i + 1;
    return 0;
}

/* NULL: failed. */
static struct series *find_series(struct log_reading *l, const char symbol[8])
{
    if (l->n_series == l->n_allocated && grow(l))
        return NULL;
    const uint32_t at = table_slot(l, symbol);
    if (!l->table[at]) {
        struct series *s = &l->series[l->n_series];
        *s = (struct series){0};
        memcpy(s->symbol, symbol, 8);
        l->table[at] = ++l->n_series;
    }
    return &l->series[l->table[at] - 1];
}

static int push(struct log_reading *l, struct series *s, const struct open_answer *o)
{
    if (s->tail - s->head == s->n_ring) {
        const uint32_t n = s->n_ring ? 2 * s->n_ring : 16;
        struct open_answer *ring = n > N_OPEN_MAX ? NULL : malloc(n * sizeof(*ring));
        if (!ring)
            return fail(l, n > N_OPEN_MAX ? "more than 1048576 answers of one symbol within the horizon: "
                                            "take a shorter one"
                                          : "out of memory");
        for (uint32_t i = 0; i < s->n_ring; i++)
            ring[i] = s->ring[(s->head + i) & (s->n_ring - 1)];
        free(s->ring);
        s->ring = ring;
        s->head = 0;
        s->tail = s->n_ring;
        s->n_ring = n;
    }
    s->ring[s->tail++ & (s->n_ring - 1)] = *o;
    return 0;
}

/* A record of the symbol has come: outcomes that it settles. */
static int advance(struct log_reading *l, struct series *s, const struct audit_prediction *p)
{
    const struct sweep_spec *spec = &l->sums->spec;
    int status = 0;
    if (spec->horizon_ns)
        while (!status && s->head != s->tail && s->ring[s->head & (s->n_ring - 1)].due < p->feed_ts_ns)
            status = resolve(l, s, s->mid);
    s->last_ts_ns = p->feed_ts_ns;
    if (!p->bid_price || !p->ask_price)
        return status;
    s->n_tick++;
    s->mid = (int64_t)p->bid_price + p->ask_price;
    if (spec->horizon_ticks)
        while (!status && s->head != s->tail && s->ring[s->head & (s->n_ring - 1)].due == s->n_tick)
            status = resolve(l, s, s->mid);
    return status;
}

static void count_arms(struct log_reading *l, struct series *s, const struct audit_prediction *p)
{
    const int is_b = (p->flags & AUDIT_FLAG_ARM_B) != 0;
    l->has_arms |= is_b;
    s->arm[is_b].published += p->verdict == VERDICT_PUBLISHED;
    s->arm[is_b].line +=
        p->verdict == VERDICT_PUBLISHED || p->verdict == VERDICT_STALE || p->verdict == VERDICT_EXPECTED_LATE;
}

static int on_prediction(struct log_reading *l, const struct audit_record *record)
{
    const struct audit_prediction *p = &record->prediction;
    const struct sweep_spec *spec = &l->sums->spec;
    if (!l->info.predictions++) {
        memcpy(l->info.key, record->chain, sizeof(l->info.key));
        memcpy(&l->log_key, record->chain, sizeof(l->log_key));
    }
    const int is_answer = (p->flags & AUDIT_FLAG_INFERRED) && p->verdict != VERDICT_EXPECTED_LATE;
    if (is_answer && p->cls >= l->sums->n_class)
        return fail(l, "a prediction's class has no name in the log's header");
    struct series *s = find_series(l, p->symbol);
    if (!s)
        return -1;
    struct open_answer o = {.second = p->feed_ts_ns / NS_PER_S,
                            .cls = is_answer ? p->cls : SWEEP_NO_CLASS,
                            .is_b = (p->flags & AUDIT_FLAG_ARM_B) != 0,
                            .was_published = p->verdict == VERDICT_PUBLISHED};
    sweep_path_of(p, l->threshold_cycles, spec->n_threshold, &o.path);
    const struct sweep_tally one = {.n = 1};
    sweep_sums_add(l->sums, &o.path, o.cls, &one);
    l->sums->predictions++;
    l->sums->given[p->verdict]++;
    count_arms(l, s, p);

    if (p->feed_ts_ns < s->last_ts_ns) {
        if (s->last_ts_ns - p->feed_ts_ns <= DISORDER_MAX_NS) {
            l->sums->disordered++;
            return 0;
        }
        if (break_chain(l, s))
            return -1;
    }
    /* An answer that the appliance's own halt kept back says that the symbol traded. */
    if (p->verdict == VERDICT_BOOK_UNRELIABLE || (p->verdict == VERDICT_HALTED && !is_answer)) {
        const int status = break_chain(l, s);
        s->last_ts_ns = p->feed_ts_ns;
        return status;
    }
    if (advance(l, s, p))
        return -1;
    if (!is_answer || !p->bid_price || !p->ask_price)
        return 0;
    o.mid = s->mid;
    o.due = spec->horizon_ticks                             ? s->n_tick + spec->horizon_ticks
            : p->feed_ts_ns > UINT64_MAX - spec->horizon_ns ? UINT64_MAX
                                                            : p->feed_ts_ns + spec->horizon_ns;
    return push(l, s, &o);
}

/* Rows of the A/B test that ends here. */
static int fold_arms(struct log_reading *l)
{
    for (uint32_t i = 0; i < l->n_series; i++) {
        struct series *s = &l->series[i];
        for (uint64_t b = 0; b < 2; b++) {
            const struct arm_sums *a = &s->arm[b];
            struct sweep_arm_row row = {.arms = l->arms,
                                        .is_b = b,
                                        .line = a->line,
                                        .published = a->published,
                                        .known = a->known,
                                        .hits = a->hits,
                                        .value = a->value};
            memcpy(row.symbol, s->symbol, sizeof(row.symbol));
            if (l->has_arms && a->line && sweep_sums_row(l->sums, &row))
                return fail(l, "out of memory");
        }
        memset(s->arm, 0, sizeof(s->arm));
    }
    return 0;
}

static uint64_t to_us_in_ns(const struct log_reading *l, uint64_t cycles)
{
    const double us = (double)cycles * 1e6 / l->tsc_hz;
    return us < 1e9 ? (uint64_t)(us + 0.5) * 1000 : 0;
}

static int on_event(struct log_reading *l, const struct audit_event *e)
{
    struct series *s;
    switch (e->code) {
    case AUDIT_EVENT_GAP:
    case AUDIT_EVENT_RECORDS_LOST:
        return break_all(l);
    case AUDIT_EVENT_SESSION_END:
        if (break_all(l))
            return -1;
        for (uint32_t i = 0; i < l->n_series; i++)
            l->series[i].last_ts_ns = 0; /* the next one may begin earlier in its day */
        return 0;
    case AUDIT_EVENT_TRADING_STATE:
        if (e->value[0])
            return 0;
        s = find_series(l, e->symbol);
        return s ? break_chain(l, s) : -1;
    case AUDIT_EVENT_ARMS:
        if (break_all(l) || fold_arms(l))
            return -1;
        l->has_arms = 1;
        l->arms = (struct sweep_arms){.a_ns = to_us_in_ns(l, e->value[0]),
                                      .b_ns = to_us_in_ns(l, e->value[1]),
                                      .share_percent = e->value[2],
                                      .salt = e->value[3]};
        return 0;
    default:
        return 0;
    }
}

static int finish(struct log_reading *l, const struct audit_reader *reader)
{
    const struct audit_header *h = audit_reader_header(reader);
    if (break_all(l))
        return -1;
    for (uint32_t i = 0; i < l->n_series; i++)
        flush(l, &l->series[i]);
    if (fold_arms(l))
        return -1;
    struct sweep_log_info *info = &l->info;
    memcpy(info->head, audit_reader_head(reader), sizeof(info->head));
    if (!info->predictions)
        memcpy(info->key, info->head, sizeof(info->key));
    info->records = audit_reader_records(reader);
    info->lost = audit_reader_lost(reader);
    info->version = h->version;
    info->clock = h->clock;
    memcpy(info->feed, h->feed, sizeof(info->feed));
    const size_t length = strlen(l->path), room = sizeof(info->path) - 1;
    strncpy(info->path, l->path + (length > room ? length - room : 0), room);
    const struct sweep_log_info *twin = NULL;
    const int status = sweep_sums_log(l->sums, info, &twin);
    if (status == -2)
        snprintf(l->error, SWEEP_ERROR_CHARS,
                 "%.200s: is the same run's log as %.200s: leave one of them out", l->path, twin->path);
    return status == -1 ? fail(l, "out of memory") : status ? -1 : 0;
}

static int read_all(struct log_reading *l, struct audit_reader *reader, void (*progress)(uint64_t),
                    char warning[SWEEP_ERROR_CHARS])
{
    const struct audit_record *r;
    char why[AUDIT_ERROR_CHARS];
    int result;
    while ((result = audit_reader_next(reader, &r, why)) == 1) {
        if (r->prediction.kind == AUDIT_PREDICTION ? on_prediction(l, r) : on_event(l, &r->event))
            return -1;
        if (progress && audit_reader_records(reader) % PROGRESS_RECORDS == 0)
            progress(PROGRESS_RECORDS);
    }
    const enum audit_fault fault = result < 0 ? audit_reader_fault(reader) : AUDIT_FAULT_NONE;
    l->info.is_closed = result == 0;
    if (fault == AUDIT_FAULT_NOT_CLOSED || fault == AUDIT_FAULT_TORN)
        snprintf(warning, SWEEP_ERROR_CHARS, "%s; used up to there", why);
    else if (result < 0) {
        snprintf(l->error, SWEEP_ERROR_CHARS, "%s; a log that does not verify is not used", why);
        return -1;
    }
    return finish(l, reader);
}

int sweep_log_read(const char *path, struct sweep_sums *sums, void (*progress)(uint64_t records),
                   char warning[SWEEP_ERROR_CHARS], char error[SWEEP_ERROR_CHARS])
{
    struct log_reading l = {.path = path, .sums = sums, .error = error};
    char why[AUDIT_ERROR_CHARS];
    warning[0] = '\0';
    struct audit_reader *reader = audit_reader_open(path, why);
    if (!reader) {
        snprintf(error, SWEEP_ERROR_CHARS, "%s", why);
        return -1;
    }
    const struct audit_header *h = audit_reader_header(reader);
    int8_t sign[SWEEP_N_CLASS];
    int status = 0;
    l.tsc_hz = h->tsc_hz;
    sweep_thresholds_cycles(&sums->spec, h, l.threshold_cycles);
    if (!sweep_class_signs(h->class_name, sign))
        status = fail(&l, "its header names no classes");
    else if (sweep_sums_classes(sums, h->class_name))
        status = fail(&l, "its model's classes are not those of the logs before it: sweep them apart");
    if (!status)
        status = read_all(&l, reader, progress, warning);
    for (uint32_t i = 0; i < l.n_series; i++)
        free(l.series[i].ring);
    free(l.series);
    free(l.table);
    audit_reader_close(reader);
    return status;
}
