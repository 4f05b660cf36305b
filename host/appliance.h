/* The poll loop: packets in, verdicts out. One thread runs it to completion and owns everything up to the
 * send: intake, features, accelerator, kill line, governor, egress. What has come is decoded first; ticks
 * wait in a queue that is bounded, where a newer one takes its elder's place, and go to the accelerator in
 * batches that make the line as a whole. Then the port is looked at again. No lock, allocation, system call
 * or log line in it; what it has to say goes through the audit ring and the counters below.
 *
 * Two clocks. Real: the TSC. Replay: a discrete-event run with one server; a frame arrives at its capture
 * stamp, waits until the server is free, and every piece of work takes its configured time (the accelerator
 * its modelled cycles). Ages, queueing and verdicts are then exact functions of capture, model and
 * configuration. */
#ifndef APPLIANCE_H
#define APPLIANCE_H

#include <stdatomic.h>
#include <stdint.h>

#include "../net/port.h"
#include "accel_guard.h"
#include "audit.h"
#include "clock.h"
#include "config.h"
#include "governor.h"
#include "histogram.h"
#include "intake.h"
#include "killline.h"
#include "model.h"
#include "order.h"
#include "state_file.h"
#include "trace.h"

struct appliance_config {
    const struct config *config;
    const struct model *model; /* in slot 0 */
    struct accel *accel;       /* model loaded */
    struct accel *guard;       /* accel, if it is a guard: its news goes to the log; else NULL */
    /* To be loaded into slot 1 beside the running one, switch_after (in the run's clock: TSC cycles, or ns)
     * after the first frame; then a stream goes over between two ticks as soon as it is warmed up there, so
     * that no tick is without a prediction. Until then it is stepped in both. NULL: none. */
    const struct model *next_model;
    uint64_t switch_after;
    /* Loaded in slot 1: the ladder's BACKUP. NULL: none; never together with next_model. */
    const struct model *backup;
    struct order_desk *desk; /* where a person's orders come from; all zero at first */
    /* How the last run was left, and the time now; NULL: nothing is known of one. */
    const struct state_file *start;
    uint64_t start_utc_ns;
    struct audit_log *log;
    struct port *rx, *tx;
    struct clock_calibration clock; /* real clock */
    const uint64_t *stamps_ns;      /* of every frame that will come, not going backwards (replay clock) */
    /* Real clock: a frame's arrival is the earliest moment at which it can have come, the TSC before the last
     * receive that emptied the ring. It overstates an age by at most the time since then, and a loop that was
     * stalled cannot take what piled up meanwhile for fresh. 0: the TSC after the burst; for a source that
     * keeps the ring full because it brings frames as fast as they are taken, whose arrival means nothing. */
    int arrival_is_bound;
    uint64_t n_frame;           /* frames that will come: the loop ends after them */
    uint64_t idle_limit_cycles; /* TSC; a receive port silent for that long ends the loop; 0: never */
    struct trace *trace;        /* its stages are marked: killline bench pipeline; NULL: none */
    const atomic_int *stop;     /* nonzero: end; relaxed, nothing is published with it */
};

enum appliance_stage {                   /* of one prediction that was inferred */
                       STAGE_DECODE = 0, /* packet arrival -> message decoded, in sequence and in the book;
                                            queueing included */
                       STAGE_FEATURES,   /* -> request submitted */
                       STAGE_INFERENCE,  /* -> answer there */
                       STAGE_PUBLISH,    /* -> datagram built, last check */
                       STAGE_TOTAL,      /* arrival -> last check */
                       STAGE_COUNT,
};
const char *appliance_stage_name(enum appliance_stage stage);

struct appliance_stats {
    uint64_t predictions;
    uint64_t verdicts[VERDICT_COUNT];
    struct histogram stage_ns[STAGE_COUNT];
    struct histogram published_age_ns;
    struct histogram kernel_cycles, prepare_cycles; /* kernel clock */
    uint64_t device_errors, egress_errors;
    double failover_ns_max;    /* real time, from the decision until the mirror could answer */
    uint64_t given_up;         /* requests that a card had not answered when their time was up */
    uint64_t switched;         /* streams that went over to the other slot */
    uint64_t batches, batched; /* of more than one tick, and the ticks in them */
    uint64_t standby_steps, standby_dropped; /* of the other slot; streams that started anew there for want of
                                                idle time */
    uint64_t kept_warm, keep_warm_ns_max;    /* dummy inferences in idle time: how many, the longest; none
                                                begins while a packet waits, so none delays one by more */
    uint64_t rung_changes, alerts, threshold_changes;
    uint64_t clock_back; /* epochs that the clock has begun */
    int timed_out;       /* the receive port fell silent before n_frame */
};

struct appliance;

/* NULL with a message in error: out of memory, or the accelerator does not answer its first request. */
struct appliance *appliance_create(const struct appliance_config *config, char error[AUDIT_ERROR_CHARS]);
/* The poll loop, until every frame has come, *stop is set or the port falls silent. */
void appliance_run(struct appliance *appliance);
/* Frames worked off so far; any thread. */
uint64_t appliance_frames(const struct appliance *appliance);
/* For governor_read, from any thread. */
const struct governor *appliance_governor(const struct appliance *appliance);
/* After appliance_run. */
const struct appliance_stats *appliance_stats(const struct appliance *appliance);
const struct intake *appliance_intake(const struct appliance *appliance);
void appliance_free(struct appliance *appliance);

#endif
