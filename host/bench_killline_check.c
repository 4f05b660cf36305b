#include "bench_killline_check.h"

#include <stdlib.h>

#include "cmd.h"
#include "governor.h"
#include "killline.h"
#include "order.h"

enum { N_CHECK = 500, N_BLOCK = 2001, N_BLOCK_QUICK = 201, N_TICK = 64 };

/* As a tick has it when it is checked. */
struct tick {
    uint64_t arrival, threshold;
    uint32_t epoch;
};

struct checked {
    struct killline_clock clock;
    struct governor *governor;
    struct order_desk desk;
    uint64_t expected, further, future_max;
    struct tick ticks[N_TICK];
};

/* What follows of a check is kept from being moved across it, or left out. */
static inline void barrier(void)
{
    __asm__ volatile("" : : : "memory");
}

/* Both checks of one tick. Nonzero: it would have been published. */
static inline int check(struct checked *c, const struct tick *t)
{
    enum killline_quality quality;
    const uint64_t submitted = clock_tsc_relaxed();
    const uint64_t age = killline_age(t->arrival, t->epoch, submitted, killline_look(&c->clock, submitted),
                                      c->future_max, &quality);
    if (!killline_can_make(age, killline_expect_batch(c->expected, c->further, 1), t->threshold))
        return 0;
    barrier();
    const int halted = governor_rung(c->governor) == GOVERNOR_HALTED || order_is_halted(&c->desk);
    const uint64_t decided = clock_tsc();
    const uint64_t age_then = killline_age(t->arrival, t->epoch, decided, killline_look(&c->clock, decided),
                                           c->future_max, &quality);
    return killline_verdict(age_then, t->threshold, halted) == VERDICT_PUBLISHED;
}

static inline int empty(const struct checked *c, const struct tick *t)
{
    (void)c;
    if (clock_tsc_relaxed() - t->arrival > t->threshold)
        return 0;
    barrier();
    return clock_tsc() - t->arrival <= t->threshold;
}

static int compare_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int bench_killline_measure_check(const struct clock_calibration *clock, int is_quick,
                                 struct bench_killline_check *out)
{
    static struct checked c;
    static double took[2][N_BLOCK];
    const uint32_t n_block = is_quick ? N_BLOCK_QUICK : N_BLOCK;
    uint64_t published[2] = {0};
    c = (struct checked){.clock = {.last = clock_tsc()}, .expected = 1000, .future_max = 3000};
    /* Without rules it stays ACTIVE. */
    c.governor = governor_create(&(struct governor_config){.ns_per_unit = 1, .window = 1000000}, 0);
    if (!c.governor)
        return cmd_error("bench killline: out of memory");
    /* An hour: whatever interrupts the bench, each of them is fresh, and takes the whole way. */
    for (int i = 0; i < N_TICK; i++)
        c.ticks[i] = (struct tick){.arrival = clock_tsc(), .threshold = clock_ns_to_cycles(clock, 3600e9)};
    for (uint32_t b = 0; b < n_block; b++) {
        barrier();
        const uint64_t start = clock_tsc();
        for (uint32_t i = 0; i < N_CHECK; i++) {
            published[0] += (uint64_t)check(&c, &c.ticks[i % N_TICK]);
            barrier();
        }
        const uint64_t middle = clock_tsc();
        for (uint32_t i = 0; i < N_CHECK; i++) {
            published[1] += (uint64_t)empty(&c, &c.ticks[i % N_TICK]);
            barrier();
        }
        const uint64_t end = clock_tsc();
        took[0][b] = clock_cycles_to_ns(clock, middle - start) / N_CHECK;
        took[1][b] = clock_cycles_to_ns(clock, end - middle) / N_CHECK;
    }
    governor_free(c.governor);
    if (published[0] != (uint64_t)n_block * N_CHECK || published[1] != published[0])
        return cmd_error(
            "bench killline: of %llu checks that pass %llu did: this machine's counter goes back",
            (unsigned long long)n_block * N_CHECK, (unsigned long long)published[0]);
    for (int k = 0; k < 2; k++)
        qsort(took[k], n_block, sizeof(took[k][0]), compare_double);
    *out = (struct bench_killline_check){.n_block = n_block,
                                         .n_check = N_CHECK,
                                         .check_ns = took[0][n_block / 2],
                                         .empty_ns = took[1][n_block / 2],
                                         .check_p99_ns = took[0][n_block * 99 / 100],
                                         .empty_p99_ns = took[1][n_block * 99 / 100]};
    return 0;
}
