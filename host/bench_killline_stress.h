/* What killline bench killline puts the appliance under, beside the procedure: ten times what it can do, idle
 * gaps with and without keep-warm, orders to halt. */
#ifndef BENCH_KILLLINE_STRESS_H
#define BENCH_KILLLINE_STRESS_H

#include "bench_killline_run.h"

/* 10 times the capacity, open loop; the load generator waits for nobody. */
struct bench_killline_overload {
    struct bench_killline_capacity capacity; /* of this variant */
    double rate, offered, seconds;           /* frames/s: due; and handed over or lost, as it was reached */
    uint64_t frames, ring_full, ring_lost, predictions, audit_lost; /* ring_full: found it full, and were lost
 or came late */
    unsigned ring_high, ring_size;
    uint64_t verdicts[VERDICT_COUNT];
    struct histogram published_age; /* cycles, from arrival: what the kill line judged */
    struct histogram published_due; /* cycles, from the due time: the load generator's delay included */
    uint64_t over_line;             /* published with an age above the threshold in its record: none */
    /* Of every 10 ms: symbols that ticked in it, and those of them that had a prediction published. */
    uint64_t windows, ticked, served;
    double served_least_percent; /* of the worst window */
    int64_t memory_growth_bytes; /* resident, from the load's first quarter to its end */
    uint64_t rung_changes;
    double step_ns; /* imposed on each step of the accelerator; 0: none */
};

struct bench_killline_overload_plan {
    double seconds, capacity_seconds;
    uint64_t n_preload;
    double step_ns; /* each step of the accelerator takes at least that: the load is then too much for it and
                       not for the wire; 0: as it is */
    int is_lossy;   /* frames that find the ring full are lost; else they come late */
};

int bench_killline_overload(const struct bench_rig *rig, const struct bench_killline_overload_plan *plan,
                            struct bench_killline_overload *out);

/* Ticks after a gap, with keep-warm and without, in turn. */
struct bench_killline_idle {
    double gap_ns;
    uint32_t keep_warm_us;
    struct histogram on, off; /* cycles, from handed over to the last check; inferred ticks */
    uint64_t kept_warm;
    double keep_warm_max_ns; /* longest dummy inference: what a tick can have waited for one */
};

int bench_killline_idle(const struct bench_rig *rig, double gap_ns, uint64_t n_frame, uint32_t n_block,
                        uint64_t n_preload, struct bench_killline_idle *out);

/* Orders to halt in the middle of a load. */
struct bench_killline_halt {
    uint32_t orders;          /* to halt, each followed by one to resume */
    uint32_t not_carried_out; /* within a second; the measurement ends with it */
    uint64_t published;       /* in all, between the halts */
    /* Published although ordered to halt before: of the last check's clock reading, behind the order's. The
     * poll loop looks for an order right before that reading; what was ordered in between comes with the next
     * tick. */
    uint64_t late,
        late_after_return;           /* after_return: behind the return of order_post: at most one an order */
    uint32_t late_after_return_most; /* of one order */
    double late_max_ns;
    struct histogram acknowledged; /* cycles, from the order to the poll loop's answer */
};

int bench_killline_halts(const struct bench_rig *rig, double rate, uint32_t n_order, uint64_t n_preload,
                         struct bench_killline_halt *out);

#endif
