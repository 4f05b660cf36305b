/* A sweep's sums: integers only, so that adding up parts of the logs in any order gives the same bits as
 * reading them all at once.
 *
 * Over the thresholds a prediction changes its verdict at most twice: what is kept is the differences from
 * one threshold to the next. Bootstrap replicates: every block (log, symbol, second of feed time) has a
 * Poisson(1) weight per replicate, a hash of these and the seed, so that replicates add up as well. One
 * thread per object. */
#ifndef SWEEP_SUMS_H
#define SWEEP_SUMS_H

#include <stdint.h>

#include "killline.h"
#include "sweep.h"

/* value: half-units of 1e-4 USD, in the predicted direction. known, hits, value: where the outcome is known.
 */
struct sweep_tally {
    int64_t n, known, hits, value;
};

struct sweep_log_info {
    uint8_t
        key[AUDIT_CHAIN_BYTES]; /* chain of the first prediction (the head, if there is none): the run's */
    uint8_t head[AUDIT_CHAIN_BYTES];
    uint64_t records, predictions, lost;
    uint32_t version, clock, is_closed, pad; /* pad: 0 */
    char feed[128];                          /* NUL padded */
    char path[256];                          /* its end, NUL padded: for messages */
};

/* A live A/B test, as AUDIT_EVENT_ARMS has it; ns rounded to us. All 0: the log does not say. */
struct sweep_arms {
    uint64_t a_ns, b_ns, share_percent, salt;
};

/* What was published of one symbol in an arm, with the thresholds that were in force. */
struct sweep_arm_row {
    struct sweep_arms arms;
    char symbol[8];
    uint64_t is_b;
    int64_t line, published; /* line: published, stale or expected-late */
    int64_t known, hits, value;
};

enum { SWEEP_N_LOG_MAX = 16384 };
enum { SWEEP_KNOWN = 0, SWEEP_HITS = 1, SWEEP_VALUE = 2, SWEEP_N_FIELD = 3 };

struct sweep_sums {
    struct sweep_spec spec;
    uint32_t n_class; /* 0: no log yet */
    char class_name[SWEEP_N_CLASS][8];
    int8_t sign[SWEEP_N_CLASS]; /* of the names */
    uint32_t n_log, n_row;
    struct sweep_log_info *log; /* by feed, then key */
    struct sweep_arm_row *row;  /* by arms, symbol, is_b */
    int64_t predictions, disordered;
    int64_t given[VERDICT_COUNT];               /* as they were given */
    int64_t value_bound;                        /* sum of the values without their signs */
    int64_t n_cell;                             /* length of cell */
    int64_t *cell;                              /* all that follows, in one piece */
    struct sweep_tally *step;                   /* [VERDICT_COUNT][SWEEP_N_CLASS + 1][n_threshold] */
    int64_t *estimated_step, *unsubmitted_step; /* [n_threshold] */
    int64_t *replicate; /* [n_threshold + 1][SWEEP_N_CLASS][SWEEP_N_FIELD][n_replicate], answers that the line
                           alone decides on, by the threshold that first publishes them */
};

/* NULL: out of memory. spec: checked. */
struct sweep_sums *sweep_sums_create(const struct sweep_spec *spec);
void sweep_sums_free(struct sweep_sums *sums);

/* Adds add to the path's verdicts. cls: or SWEEP_NO_CLASS. 0, or -1: too much for 64 bits. */
int sweep_sums_add(struct sweep_sums *sums, const struct sweep_path *path, unsigned cls,
                   const struct sweep_tally *add);

/* Answers of one block with their outcomes: first index that publishes them, class, sums. */
struct sweep_block_cell {
    uint16_t at, cls;
    int64_t known, hits, value;
};
void sweep_sums_block(struct sweep_sums *sums, uint64_t block_key, const struct sweep_block_cell *cell,
                      unsigned n_cell);
/* Of a block. log_key: first 8 bytes of the log's. */
uint64_t sweep_block_key(uint64_t seed, uint64_t log_key, uint64_t symbol, uint64_t second);
/* Poisson(1), of a block or another cluster. */
uint32_t sweep_weight(uint64_t key, uint32_t replicate);

/* Take class names; -1: other ones are there already. names: sweep_class_signs takes them. */
int sweep_sums_classes(struct sweep_sums *sums, const char class_name[SWEEP_N_CLASS][8]);
/* -1: no memory. -2: this log is in the sums already; *twin. */
int sweep_sums_log(struct sweep_sums *sums, const struct sweep_log_info *log,
                   const struct sweep_log_info **twin);
/* Adds to the row of the same arms, symbol and arm. -1: no memory, or too much for 64 bits. */
int sweep_sums_row(struct sweep_sums *sums, const struct sweep_arm_row *row);

/* Adds from to into. -1 with a message: other spec or classes, a log that is in both, overflow, no memory;
 * into is then of no more use. name: the file that from is of, for the message; NULL: none, its logs were
 * read here. */
int sweep_sums_merge(struct sweep_sums *into, const struct sweep_sums *from, const char *name,
                     char error[SWEEP_ERROR_CHARS]);
/* NULL, or what no reading of logs can have given: after loading and after merging. */
const char *sweep_sums_check(const struct sweep_sums *sums);

#endif
