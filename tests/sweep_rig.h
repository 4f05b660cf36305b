/* Small audit logs for the sweep's tests, record by record. Everything ends the test program that goes wrong
 * here. */
#ifndef SWEEP_RIG_H
#define SWEEP_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit_log.h"
#include "host/governor.h"
#include "host/sweep_log.h"

static inline void rig_require(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "sweep_rig: %s\n", what);
    abort();
}

struct rig_log {
    struct audit_log *log;
};

static inline struct rig_log rig_open(const char *path, const struct audit_header *header)
{
    struct rig_log r;
    char error[AUDIT_ERROR_CHARS];
    unlink(path);
    const struct audit_config config = {
        .path = path, .n_ring = 1024, .on_full = AUDIT_FULL_WAIT, .header = *header};
    r.log = audit_open(&config, error);
    rig_require(r.log != NULL, r.log ? "" : error);
    return r;
}

static inline void rig_close(struct rig_log *r)
{
    char error[AUDIT_ERROR_CHARS];
    audit_stop(r->log, 1);
    rig_require(audit_close(r->log, NULL, error) == 0, error);
}

/* An answer of symbol: arrived at 0, submitted after 1000, decided at age, expected 3000, line 50000. */
static inline struct audit_prediction rig_answer(const char *symbol, uint64_t feed_ts_ns, uint64_t age,
                                                 uint8_t cls, uint32_t bid, uint32_t ask)
{
    struct audit_prediction p = {.kind = AUDIT_PREDICTION,
                                 .verdict = age <= 50000 ? VERDICT_PUBLISHED : VERDICT_STALE,
                                 .cls = cls,
                                 .arrival_clock = AUDIT_ARRIVAL_CAPTURE,
                                 .flags = AUDIT_FLAG_INFERRED,
                                 .feed_ts_ns = feed_ts_ns,
                                 .arrival = 1000000,
                                 .submitted = 1001000,
                                 .completed = 1000000 + age,
                                 .decided = 1000000 + age,
                                 .age_cycles = age,
                                 .threshold_cycles = 50000,
                                 .expected_cycles = 3000,
                                 .bid_price = bid,
                                 .ask_price = ask};
    memset(p.symbol, ' ', 8);
    memcpy(p.symbol, symbol, strlen(symbol));
    return p;
}

static inline void rig_put(struct rig_log *r, const struct audit_prediction *p)
{
    struct audit_record *record = audit_reserve(r->log);
    record->prediction = *p;
    audit_commit(r->log);
}

static inline struct sweep_spec rig_spec(const char *thresholds, const char *horizon)
{
    char error[SWEEP_ERROR_CHARS];
    struct sweep_spec spec = {.seed = 1, .n_replicate = SWEEP_REPLICATES};
    rig_require(!sweep_parse_thresholds(thresholds, &spec, error), thresholds);
    rig_require(!sweep_parse_horizon(horizon, &spec, error), horizon);
    return spec;
}

static inline struct sweep_sums *rig_read(const char *path, const struct sweep_spec *spec)
{
    char error[SWEEP_ERROR_CHARS], warning[SWEEP_ERROR_CHARS];
    struct sweep_sums *sums = sweep_sums_create(spec);
    rig_require(sums && !sweep_log_read(path, sums, NULL, warning, error), error);
    return sums;
}

/* At threshold index j. */
static inline struct sweep_tally rig_tally(const struct sweep_sums *s, unsigned verdict, unsigned cls,
                                           uint32_t j)
{
    struct sweep_tally t = {0};
    for (uint32_t i = 0; i <= j; i++) {
        const struct sweep_tally *d =
            &s->step[(verdict * (SWEEP_N_CLASS + 1) + cls) * s->spec.n_threshold + i];
        t.n += d->n;
        t.known += d->known;
        t.hits += d->hits;
        t.value += d->value;
    }
    return t;
}

static inline int64_t rig_count(const struct sweep_sums *s, unsigned verdict, uint32_t j)
{
    int64_t n = 0;
    for (unsigned c = 0; c <= SWEEP_N_CLASS; c++)
        n += rig_tally(s, verdict, c, j).n;
    return n;
}

#endif
