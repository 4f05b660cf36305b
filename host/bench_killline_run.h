/* The measurements of killline bench killline: what the appliance did with every tick of a load, from the
 * audit log, counted from when its frame was due. */
#ifndef BENCH_KILLLINE_RUN_H
#define BENCH_KILLLINE_RUN_H

#include "bench_killline_stats.h"
#include "bench_rig.h"
#include "histogram.h"

/* Stages of one inferred tick; they add up to its age from the due time. */
enum bench_killline_stage {
    BENCH_KILLLINE_WAIT = 0,  /* due -> handed over: the load generator is late, or the ring is full */
    BENCH_KILLLINE_RECEIVE,   /* -> decoded, in sequence and in the book: queueing in the ring included */
    BENCH_KILLLINE_QUEUE,     /* -> submitted: features, its turn, the first check */
    BENCH_KILLLINE_INFERENCE, /* -> answer there */
    BENCH_KILLLINE_PUBLISH,   /* -> datagram built, last check */
    BENCH_KILLLINE_N_STAGE,
};
const char *bench_killline_stage_name(enum bench_killline_stage stage);
const char *bench_killline_stage_text(enum bench_killline_stage stage);

enum bench_killline_resource {
    BENCH_KILLLINE_POLL = 0,    /* poll loop: share of time with work, highest of the governor's windows */
    BENCH_KILLLINE_ACCELERATOR, /* share of time with a request outstanding */
    BENCH_KILLLINE_RING,        /* receive ring: most frames that waited */
    BENCH_KILLLINE_AUDIT,       /* audit ring: most records that waited */
    BENCH_KILLLINE_ORDERS,      /* books: most live orders */
    BENCH_KILLLINE_LEVELS,      /* books: most price levels */
    BENCH_KILLLINE_N_RESOURCE,
};
const char *bench_killline_resource_name(enum bench_killline_resource resource);
enum { BENCH_KILLLINE_RESOURCE_ALERT = 70 };

/* What the poll loop can do: closed loop, a few frames outstanding, every tick inferred. */
struct bench_killline_capacity {
    double frames_per_s, inferences_per_s;
    double inferred_share; /* of frames */
    uint64_t inferences;
};

int bench_killline_measure_capacity(const struct bench_rig *rig, struct accel *accel, uint64_t n_preload,
                                    double seconds, struct bench_killline_capacity *out);

struct bench_killline_plan {
    uint64_t runs; /* inferences to measure, at least */
    double rate;   /* frames per second */
    double target_miss;
    uint64_t n_preload;
    double inferred_share; /* of frames, as it is expected */
};

struct bench_killline_result {
    double rate, reached;                              /* frames per second, from due to taken */
    double seconds;                                    /* measured, all rounds */
    uint32_t rounds;                                   /* loads that it took */
    uint64_t frames, predictions, warm_up_predictions; /* warm-up: verdicts that are in no figure */
    uint64_t runs;                                     /* inferences; the histograms' count */
    uint64_t verdicts[VERDICT_COUNT];                  /* sum: predictions */
    uint64_t missed, wanted;                           /* expected-late, stale, device-error; of them, the
                                                          fresh and the superseded */
    uint64_t audit_lost, rung_changes, alerts, kept_warm;
    double keep_warm_max_ns;
    double per_s;                      /* inferences */
    struct histogram age, uncorrected; /* cycles: from due; from arrival, as the kill line */
    struct histogram stage[BENCH_KILLLINE_N_STAGE];
    double share_percent[BENCH_KILLLINE_N_STAGE]; /* of all time of all inferred ticks */
    double resource_percent[BENCH_KILLLINE_N_RESOURCE];
    enum bench_killline_stage bottleneck, bottleneck_p99; /* largest at p50, at p99 */
    struct bench_killline_recommendation recommendation;
    uint64_t *age_ns; /* of n_age wanted ticks, as they went into the recommendation; free it */
    size_t n_age;
};

/* The procedure itself: warm-up, then the load until there are as many inferences as planned; at most eight
 * rounds. 0, or 1 after a message on stderr. */
int bench_killline_evaluate(const struct bench_rig *rig, const struct bench_killline_plan *plan,
                            struct bench_killline_result *out);

#endif
