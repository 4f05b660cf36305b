/* The governor: watches the poll loop over a rolling window, and decides how far down the ladder the
 * appliance stands.
 *
 * Ladder: ACTIVE -> WARNING (alert first) -> BACKUP (the smaller model) -> HALTED (nothing is published).
 * Each rung below ACTIVE has rules: a metric at or above its enter bound takes the appliance there at once,
 * over rungs in between too; HALTED by what ticks say (latency, spread, misses) only if they came in half of
 * the window's slices, for one burst is no reason to publish nothing. A rung is left upwards, one rung at a
 * time, when all its metrics are at or below their leave bounds and it has stood there for its dwell time;
 * the rules of the rung above are asked from then on. A rung without rules is left after its dwell. A device
 * that fails too often, or rules that force HALTED too often, latch HALTED: so does an operator, and a
 * restart in HALTED. A latched HALTED is left by governor_resume only.
 *
 * One thread, the poll loop's, calls everything but governor_read; time is the run's clock (TSC cycles, or ns
 * of a replay), so that a replay's ladder is an exact function of its input. No lock, allocation, system call
 * or clock reading; constant work, bounded by the window's slices. Times come in the clock's order. Time that
 * goes back is taken for standing still, and what is remembered goes back with it; a leap ahead of a window
 * and a slice empties the window.
 *
 * The window is eight slices. A prediction belongs to the slice that runs when it is told, which
 * governor_step ends; an evaluation at the end of a slice is about that and the seven before it. */
#ifndef GOVERNOR_H
#define GOVERNOR_H

#include <stdint.h>

#include "killline.h"

enum governor_rung {
    GOVERNOR_ACTIVE = 0,
    GOVERNOR_WARNING = 1,
    GOVERNOR_BACKUP = 2,
    GOVERNOR_HALTED = 3,
    GOVERNOR_N_RUNG = 4
};
const char *governor_rung_name(unsigned rung); /* "ACTIVE" ...; NULL out of range */

/* What rules are about. All over the window, unless it says otherwise. LATENCY, SPREAD and MISS are 0, which
 * is quiet, when they would be about fewer predictions than min_count. */
enum governor_metric {
    GOVERNOR_LATENCY = 0,  /* p99 of age at the verdict, percent of the threshold (each tick of its own), of
                              fresh, expected-late, stale and device-error ones whose age is known; rounded
                              up */
    GOVERNOR_SPREAD = 1,   /* P99 - P50 of that age, ns */
    GOVERNOR_MISS = 2,     /* expected-late, stale and device-error, per million of what was to be predicted:
                              those, fresh and superseded ones (book-unreliable, warming-up and a symbol's halt
                              are not the line's) */
    GOVERNOR_BUSY = 3,     /* poll loop: share of time with work, percent */
    GOVERNOR_RESOURCE = 4, /* fullest of the other resources at the last look, percent: receive ring, audit
                              ring, book's orders and levels */
    GOVERNOR_DEVICE = 5,   /* device errors, count */
    GOVERNOR_N_METRIC = 6,
};
/* As in the configuration: "latency_percent", "spread_us", "miss_ppm" ...; NULL out of range. */
const char *governor_metric_name(unsigned metric);

/* Why the appliance stands where it does. Below GOVERNOR_N_METRIC: that metric's rule. */
enum governor_cause {
    GOVERNOR_BY_QUIET = GOVERNOR_N_METRIC, /* up: the rung's metrics are below their leave bounds */
    GOVERNOR_BY_OPERATOR,                  /* halt or resume by a person */
    GOVERNOR_BY_DEVICE_THROTTLE,           /* too many device errors */
    GOVERNOR_BY_HALT_THROTTLE,             /* too many forced halts */
    GOVERNOR_BY_RESTART,                   /* as the last run was left */
    GOVERNOR_BY_STATE_FILE,                /* what the last run left could not be read */
    GOVERNOR_BY_START,
    GOVERNOR_N_CAUSE,
};
/* A few words, for people: "latency near or over the line", "operator" ...; NULL out of range. */
const char *governor_cause_name(unsigned cause);

struct governor_rule {
    uint64_t enter, leave; /* in the metric's unit; leave < enter; enter 0: no such rule */
};

enum { GOVERNOR_N_FAULT = 64 };

struct governor_config {
    double ns_per_unit; /* of the run's clock */
    uint64_t window;    /* all times: in the run's clock */
    uint32_t min_count; /* of predictions in the window that the metric is about */
    uint64_t dwell[GOVERNOR_N_RUNG];
    struct governor_rule rule[GOVERNOR_N_RUNG][GOVERNOR_N_METRIC]; /* [GOVERNOR_ACTIVE] is not used */
    int has_backup;   /* 0: BACKUP is skipped both ways; its rules lead nowhere */
    int stays_halted; /* 1: HALTED by a rule is latched as well */
    /* Faults that latch HALTED, none of them longer ago than throttle_window; 0: never. At most
     * GOVERNOR_N_FAULT. A forced halt: a rule took the appliance from another rung into HALTED. */
    uint32_t throttle_devices, throttle_halts;
    uint64_t throttle_window;
    /* Where the last run was left: rung, and faults before now (times; may lie before 0, modulo 2^64; one
     * that lies ahead of now counts as now). If they are too many already, the first governor_step trips. */
    enum governor_rung start_rung;   /* HALTED starts latched; BACKUP without a backup: WARNING */
    enum governor_cause start_cause; /* BY_START, BY_RESTART or BY_STATE_FILE, or how it was halted */
    uint32_t n_device_fault, n_halt_fault;
    uint64_t device_fault[GOVERNOR_N_FAULT], halt_fault[GOVERNOR_N_FAULT]; /* oldest first */
};

/* The poll loop's figures over the window, for other threads. */
struct governor_stats {
    uint64_t at; /* of the last evaluation, run's clock */
    uint64_t rung, cause, latched;
    uint64_t since;                                  /* it stands there */
    uint64_t threshold;                              /* in force, run's clock */
    uint64_t count;                                  /* predictions in the window, all verdicts */
    uint64_t by_verdict[VERDICT_COUNT];              /* in the window */
    uint64_t total, total_by_verdict[VERDICT_COUNT]; /* from the start to the last evaluation */
    uint64_t p50_ns, p99_ns, max_ns; /* age at the verdict, of those that LATENCY is about, however few; at
                                        most 1/16 too high, never too low */
    uint64_t per_s;                  /* predictions */
    uint64_t metric[GOVERNOR_N_METRIC];
    uint64_t alerts;               /* bit i: metric i is at or above WARNING's enter bound, and has not
                                      been at or below its leave bound since */
    uint64_t ring_used, ring_size; /* receive ring, at the last look */
    uint64_t changes;              /* from one rung to another since the start */
    uint64_t n_device_fault, n_halt_fault; /* within throttle_window, and their times, oldest first: */
    uint64_t device_fault[GOVERNOR_N_FAULT], halt_fault[GOVERNOR_N_FAULT];
};

enum governor_news { GOVERNOR_RUNG = 1, GOVERNOR_ALERT = 2 };
struct governor_event {
    enum governor_news news;
    uint32_t from, to, cause, latched; /* RUNG; from HALTED to HALTED: it has been latched */
    uint32_t metric, raised;           /* ALERT: 1 raised, 0 gone */
    uint64_t value, bound; /* ALERT; RUNG by a metric: what it was, and the bound it reached; else 0 */
};

struct governor;

/* NULL: out of memory. now: run's clock. config: copied; values out of range are a program's error (assert).
 */
struct governor *governor_create(const struct governor_config *config, uint64_t now);
void governor_free(struct governor *governor);

/* After a prediction's verdict. verdict: what it would be if the ladder did not halt. age: cycles, at the
 * verdict; KILLLINE_AGE_NEVER: not in latency and spread. */
void governor_prediction(struct governor *governor, enum verdict verdict, uint64_t age, uint64_t threshold);
/* The loop had work for that long; any number of calls. */
void governor_busy(struct governor *governor, uint64_t units);
void governor_ring(struct governor *governor, uint64_t used, uint64_t size);
/* Fullest of the other resources, percent. */
void governor_resource(struct governor *governor, uint32_t percent);
void governor_threshold(struct governor *governor, uint64_t threshold);
/* A device failed: counted in the window and by the throttle; evaluated at the next governor_step. */
void governor_device_error(struct governor *governor, uint64_t now);

/* Between two ticks: evaluates if a slice of the window (an eighth) is over or a device failed since, else
 * three compares. Nonzero: there is news. */
int governor_step(struct governor *governor, uint64_t now);
/* The next piece of news, oldest first: 1, or 0: none. At most 2 * GOVERNOR_N_METRIC + 4 come of one call
 * above; fetch them before the next. */
int governor_next(struct governor *governor, struct governor_event *event);

/* A person's orders, at once. halt latches HALTED; of one that is latched already there is no news, and its
 * cause stays. resume leaves HALTED, latched or not, for WARNING (the
 * rules decide on), with window and throttles empty; it does nothing elsewhere. */
void governor_halt(struct governor *governor, uint64_t now);
void governor_resume(struct governor *governor, uint64_t now);

enum governor_rung governor_rung(const struct governor *governor);

/* Any thread: a consistent copy (seqlock; retries while the poll loop writes, which takes well below a
 * microsecond once in a slice). */
void governor_read(const struct governor *governor, struct governor_stats *stats);

#endif
