/* The appliance's one clock: the invariant TSC, in cycles, calibrated against CLOCK_MONOTONIC_RAW.
 *
 * The EAL's own frequency is rounded (to 10 MHz when measured, DPDK 22.11) and is never used. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <x86intrin.h>

struct clock_calibration {
    double hz;        /* cycles per second of CLOCK_MONOTONIC_RAW */
    double error_ppm; /* spread of the calibration windows, parts per million */
    uint64_t tsc0;    /* one simultaneous reading of both clocks: */
    uint64_t utc_ns0; /* CLOCK_REALTIME, ns since the epoch */
};

#ifdef KL_CLOCK_TEST
/* Tests of what this machine's clock does not do bring their own. */
uint64_t clock_tsc(void);
uint64_t clock_tsc_relaxed(void);
#else
/* Ordered enough for stamps: instructions before it have been executed, later ones may have begun. */
static inline uint64_t clock_tsc(void)
{
    unsigned aux;
    return __rdtscp(&aux);
}

/* For stamps on which nothing hangs: may be read some tens of cycles before what stands before it has been
 * executed, and does not make it wait (15 ns a stamp: killline bench pipeline). */
static inline uint64_t clock_tsc_relaxed(void)
{
    return __rdtsc();
}
#endif

/* Measures for about window_ms. Returns 0, or -1 when the machine has no invariant TSC (CPUID 80000007h EDX
 * bit 8, Intel SDM vol. 3 "Invariant TSC"): its cycles are not time, the caller refuses to run with --clock
 * real. */
int clock_calibrate(struct clock_calibration *out, unsigned window_ms);

static inline double clock_cycles_to_ns(const struct clock_calibration *c, uint64_t cycles)
{
    return (double)cycles * 1e9 / c->hz;
}

static inline uint64_t clock_ns_to_cycles(const struct clock_calibration *c, double ns)
{
    return (uint64_t)(ns * c->hz / 1e9 + 0.5);
}

#endif
