/* A slower accelerator: another backend's answers, none before its time. One step after the other, each takes
 * at least so long, as a card with a larger model would. For killline bench killline's overload: what it
 * shows is measured, the accelerator's time is not. */
#ifndef BENCH_SLOW_H
#define BENCH_SLOW_H

#include "accel.h"

/* inner: stays the caller's and has to outlive this one. NULL: out of memory. Closed as every backend. */
struct accel *bench_slow_open(struct accel *inner, uint64_t step_cycles);

#endif
