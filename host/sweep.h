/* What a threshold sweep asks: which thresholds, which horizon, which replicates. And what a prediction's
 * record says of every one of those thresholds.
 *
 * The line is taken to be the only thing that changes: queueing stays as it was, though a lower line would
 * have shortened it. */
#ifndef SWEEP_H
#define SWEEP_H

#include <stdint.h>

#include "audit.h"

enum {
    SWEEP_N_THRESHOLD_MAX = 200,
    SWEEP_THRESHOLD_END_NS = 1000000, /* the kill line's bound: every threshold is below it */
    SWEEP_TICKS_MAX = 65536,
    SWEEP_REPLICATES_MIN = 40,
    SWEEP_REPLICATES_MAX = 1000,
    SWEEP_REPLICATES = 200,
    SWEEP_N_CLASS = 8,
    SWEEP_NO_CLASS = 8, /* index of predictions without an answer */
    SWEEP_ERROR_CHARS = 512,
};
#define SWEEP_HORIZON_MAX_NS 600000000000u

/* Sums of different specs cannot be added up. */
struct sweep_spec {
    uint32_t n_threshold, n_replicate;
    uint32_t threshold_ns[SWEEP_N_THRESHOLD_MAX]; /* ascending; behind n_threshold: 0 */
    uint64_t horizon_ticks, horizon_ns;           /* one of them is 0 */
    uint64_t seed;
};

/* "50us:1ms:50us" (the end is exclusive), single values, or several of both with commas between; ns, us, ms.
 * 0, or -1 with a message that says what would be right; spec is then as before. */
int sweep_parse_thresholds(const char *text, struct sweep_spec *spec, char error[SWEEP_ERROR_CHARS]);
/* "10ticks", or a time in ns, us, ms, s. */
int sweep_parse_horizon(const char *text, struct sweep_spec *spec, char error[SWEEP_ERROR_CHARS]);
/* "1%", "0.25%": parts per million. */
int sweep_parse_target(const char *text, uint32_t *ppm, char error[SWEEP_ERROR_CHARS]);
/* NULL, or what is wrong with a spec that was not parsed here. */
const char *sweep_spec_check(const struct sweep_spec *spec);
/* NULL, or what differs, for people. */
const char *sweep_spec_differs(const struct sweep_spec *a, const struct sweep_spec *b);

/* A log's thresholds in its clock, as killline run converts them. */
void sweep_thresholds_cycles(const struct sweep_spec *spec, const struct audit_header *header,
                             uint64_t cycles[SWEEP_N_THRESHOLD_MAX]);

/* One prediction's verdict at every threshold: before below index stale_from, stale below index at, and from
 * there on. At the threshold that was in force it is the verdict that was given. */
struct sweep_path {
    uint8_t before, after; /* enum verdict */
    uint8_t is_line;       /* published or not by the line alone, and has an answer */
    uint8_t is_estimated;  /* it was never inferred: its age is age at the submit + expected inference */
    uint16_t stale_from, at;
    uint16_t submitted_from; /* the check before the submit lets it through from this index on */
};

/* - published or stale, with an answer: its age at the last check is known. Below it: expected-late where the
 *   check before the submit would have refused it, else stale. That check is not asked where the age fits.
 * - expected-late: age at the submit + expected inference, and above the threshold in force, which it did not
 *   make. With the ladder HALTED: halted instead of published.
 * - anything else (superseded, warming-up, book-unreliable, device-error, halted; stale of unknown age): the
 *   same at every threshold. */
void sweep_path_of(const struct audit_prediction *prediction, const uint64_t *threshold_cycles,
                   uint32_t n_threshold, struct sweep_path *path);

/* -1, 0, 1 per class: of down, flat, up when all are among these, else of the index relative to the middle
 * one. Returns the number of named classes; 0: none, or a name behind a gap. */
uint32_t sweep_class_signs(const char class_name[SWEEP_N_CLASS][8], int8_t sign[SWEEP_N_CLASS]);

#endif
