/* What the report page shows, gathered from an audit log: two passes, constant memory. */
#ifndef REPORT_DATA_H
#define REPORT_DATA_H

#include "audit.h"
#include "histogram.h"
#include "killline.h"
#include "report_svg.h"

enum {
    REPORT_N_STAGE = 4,
    REPORT_N_TOP = 10, /* rows of the two lists of predictions */
    /* Listed; the rest is counted. A flood of one kind must not hide the others. */
    REPORT_N_EVENT_PER_CODE = 40,
    REPORT_N_EVENT = REPORT_N_EVENT_PER_CODE * AUDIT_EVENT_CODE_COUNT,
    /* Hash table, power of two; at most half of it is used, other symbols count as "others". */
    REPORT_N_SYMBOL_SLOT = 8192,
    REPORT_N_SYMBOL_ROW = 30,
};

struct report_symbol {
    char symbol[8];
    uint64_t n_prediction, by_verdict[VERDICT_COUNT];
    struct histogram *age; /* of the published ones; only for the rows that are shown */
};

/* Live A/B: the symbols of one arm. */
struct report_arm {
    uint64_t n_prediction, by_verdict[VERDICT_COUNT];
    uint64_t line_min, line_max; /* cycles */
};

/* What the page needs, whatever the log's length. */
struct report_data {
    struct audit_header header;
    double ns_per_cycle;
    uint64_t n_record, n_prediction, n_lost, n_inferred, n_clamped, n_disordered;
    uint64_t n_unknown; /* of no known age: in no figure of ages or stages */
    uint64_t n_batch;   /* inferred, and submitted together with the one before */
    uint8_t head[AUDIT_CHAIN_BYTES];
    uint64_t by_verdict[VERDICT_COUNT];
    struct histogram all, inferred, published;       /* age, cycles */
    struct histogram stage[REPORT_N_STAGE];          /* of the inferred ones, cycles */
    struct histogram kernel, prepare;                /* kernel cycles */
    uint64_t line, line_min, line_max, line_changes; /* arm A's, if there are two */
    struct report_arm arm[2];                        /* A, B */
    uint64_t first_decided, last_decided, first_feed_ns, last_feed_ns;
    struct audit_prediction oldest[REPORT_N_TOP]; /* published ones; by falling age */
    struct audit_prediction worst[REPORT_N_TOP];  /* dropped ones; by falling age */
    int n_oldest, n_worst;
    uint64_t n_by_code[AUDIT_EVENT_CODE_COUNT];
    struct audit_event event[REPORT_N_EVENT];
    int n_event;
    struct report_symbol symbol[REPORT_N_SYMBOL_SLOT];
    int n_symbol;
    uint64_t n_other; /* predictions of symbols that found no place */
    struct report_symbol *row[REPORT_N_SYMBOL_ROW];
    int n_row;
    struct latency_chart latency;
    struct time_chart time;
    struct ladder_chart ladder;
    char problem[AUDIT_ERROR_CHARS]; /* why the log does not verify; empty: it does */
};

/* Reads and verifies the log at path into *data, which is all zero before. progress: as in report.h.
 * 0: done. 1: it covers the intact records, but the log does not verify, data->problem says why. -1: not
 * read; error says why. report_data_clear afterwards in every case. */
int report_data_read(struct report_data *data, const char *path,
                     void (*progress)(uint64_t done, uint64_t total), char error[AUDIT_ERROR_CHARS]);
void report_data_clear(struct report_data *data);

/* Stage durations in cycles; an unreached stage has 0. They add up to the time from arrival to verdict. In a
 * batch, the inference of each begins when it was admitted and ends when its answer was taken: the stages of
 * one prediction add up, those of different ones overlap. Returns nonzero when the stamps run backwards: such
 * a stage has 0. */
int report_stages(const struct audit_prediction *p, uint64_t cycles[REPORT_N_STAGE]);

#endif
