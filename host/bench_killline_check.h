/* What the kill line's two checks cost, against two readings of the counter and two compares. */
#ifndef BENCH_KILLLINE_CHECK_H
#define BENCH_KILLLINE_CHECK_H

#include "clock.h"

struct bench_killline_check {
    uint32_t n_block, n_check; /* blocks of each, and checks in a block */
    double check_ns, empty_ns; /* of both checks of one tick: median of the blocks */
    double check_p99_ns, empty_p99_ns;
};

/* On the calling thread. Both are run in blocks, in turn. The checks are the appliance's own functions, in
 * its order: the counter, epoch, age, can it make the line; the ladder's rung, is there an order to halt,
 * the counter, epoch, age, verdict. 0, or 1 after a message on stderr: no memory, or the checks gave other
 * verdicts than they have to. */
int bench_killline_measure_check(const struct clock_calibration *clock, int is_quick,
                                 struct bench_killline_check *out);

#endif
