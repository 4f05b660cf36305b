/* The threshold that moves with the load: relaxed under backlog, so that work which has been done is not
 * thrown away, tightened again when it is quiet; between base and max, both below 1 ms, with hysteresis.
 *
 * Integers only, in units of the run's clock. One thread. A clock that goes back begins the dwell anew. */
#ifndef THRESHOLD_H
#define THRESHOLD_H

#include <stdint.h>

struct threshold_config {
    uint64_t base, max; /* base <= max < 2^56; equal: fixed */
    uint64_t step;      /* by which it moves, at least 1 */
    /* Percent: of the backlog's age to base, and of the receive ring's occupancy. Either at or above relax:
     * it is relaxed; both at or below tighten, which is less: it is tightened. */
    uint32_t relax_percent, tighten_percent; /* at most 100 */
    uint64_t dwell;                          /* at least so long between two changes */
};

struct threshold {
    struct threshold_config cfg;
    uint64_t current, changed_at;
};

static inline void threshold_init(struct threshold *t, const struct threshold_config *config, uint64_t now)
{
    *t = (struct threshold){.cfg = *config, .current = config->base, .changed_at = now};
}

/* Between two ticks. backlog_age: of the oldest tick or packet that waits, 0: none. Nonzero: current has
 * changed. Constant work; a fixed threshold costs one compare. */
int threshold_update(struct threshold *t, uint64_t now, uint64_t backlog_age, uint32_t ring_percent);

#endif
