#include "clock.h"

#include <cpuid.h>
#include <stdlib.h>
#include <time.h>

enum { N_WINDOW = 5, N_TRY = 16 };

static uint64_t read_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Both clocks at one moment: of some tries the one with the shortest bracket, so that a preemption between
 * the readings does not count. */
static void read_pair(clockid_t id, uint64_t *tsc, uint64_t *ns)
{
    uint64_t best = UINT64_MAX;
    *tsc = *ns = 0;
    for (int i = 0; i < N_TRY; i++) {
        uint64_t before = clock_tsc();
        uint64_t t = read_ns(id);
        uint64_t after = clock_tsc();
        if (after - before < best) {
            best = after - before;
            *tsc = before + (after - before) / 2;
            *ns = t;
        }
    }
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int has_invariant_tsc(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) && (edx & 1u << 8);
}

int clock_calibrate(struct clock_calibration *out, unsigned window_ms)
{
    if (!has_invariant_tsc())
        return -1;
    double hz[N_WINDOW];
    struct timespec pause = {.tv_sec = window_ms / N_WINDOW / 1000,
                             .tv_nsec = (long)(window_ms / N_WINDOW % 1000) * 1000000 + 1000000};
    for (int i = 0; i < N_WINDOW; i++) {
        uint64_t tsc0, ns0, tsc1, ns1;
        read_pair(CLOCK_MONOTONIC_RAW, &tsc0, &ns0);
        nanosleep(&pause, NULL);
        read_pair(CLOCK_MONOTONIC_RAW, &tsc1, &ns1);
        hz[i] = (double)(tsc1 - tsc0) * 1e9 / (double)(ns1 - ns0);
    }
    qsort(hz, N_WINDOW, sizeof(hz[0]), compare_double);
    out->hz = hz[N_WINDOW / 2];
    out->error_ppm = (hz[N_WINDOW - 1] - hz[0]) / 2 / out->hz * 1e6;
    read_pair(CLOCK_REALTIME, &out->tsc0, &out->utc_ns0);
    return 0;
}
