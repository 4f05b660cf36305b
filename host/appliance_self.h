/* The poll loop's inside, shared by its files: appliance.c (ticks, verdicts, life), appliance_accel.c (calls
 * of the accelerator), appliance_switch.c (going over to another model). Not for anyone else. */
#ifndef APPLIANCE_SELF_H
#define APPLIANCE_SELF_H

#include "appliance.h"

struct stream {
    uint32_t ticks[KL_N_SLOT];  /* inferred since the last reset */
    uint8_t at_work[KL_N_SLOT]; /* the accelerator may hold a state of it other than zero */
    uint8_t slot;               /* whose predictions count */
    uint8_t needs_reset;        /* its state belongs to a market that has passed: gap, halt */
};

enum switching { SWITCH_NONE, SWITCH_WAITING, SWITCH_LOADING };

struct appliance {
    struct appliance_config cfg;
    int replay;
    int prepares_by_flag;  /* real clock: the backend prepares by itself after a step, KL_REQUEST_PREPARE */
    uint8_t arrival_clock; /* enum audit_arrival of every frame */
    uint64_t now_ns;       /* replay: when the one server is free */
    uint64_t threshold;    /* in the run's clock: TSC cycles, or ns */
    uint64_t timeout;      /* TSC, also with the replay clock: a card that hangs hangs in real time */
    uint64_t expected;     /* submit -> last check, killline_expect */
    double to_ns;          /* clock units to ns */
    uint32_t egress_ip, egress_source;
    uint32_t request_seq, n_unheard; /* n_unheard: requests whose answers have not come */
    int gave_up;                     /* the last call's time was up: its answer is the mirror's */
    const struct model *model[KL_N_SLOT];
    uint8_t slot; /* of streams that start, and where the others go */
    enum switching switching;
    uint64_t switch_at;
    float raw[FEATURES_N]; /* features of the tick, not quantised */
    uint64_t publish_seq;
    struct stream streams[KL_N_STREAM_MAX];
    struct kl_request request;
    struct kl_result result;
    struct intake *intake;
    struct appliance_stats stats;
    _Alignas(64) _Atomic uint64_t frames;
};

static inline uint64_t appliance_now(const struct appliance *a)
{
    return a->replay ? a->now_ns : clock_tsc_relaxed();
}

/* The same for what the kill line decides on: everything before it has been done. */
static inline uint64_t appliance_now_exactly(const struct appliance *a)
{
    return a->replay ? a->now_ns : clock_tsc();
}

/* Replay: work takes its configured time. Real: it already has. */
static inline void appliance_spend(struct appliance *a, uint64_t ns)
{
    if (a->replay)
        a->now_ns += ns;
}

static inline uint64_t appliance_kernel_ns(const struct appliance *a, uint32_t cycles)
{
    uint32_t mhz = a->cfg.config->replay.kernel_mhz;
    return ((uint64_t)cycles * 1000 + mhz - 1) / mhz;
}

void appliance_commit(struct appliance *a, const struct audit_record *record);
void appliance_commit_event(struct appliance *a, enum audit_event_code code, uint16_t locate,
                            uint64_t feed_ts_ns, uint64_t value0, uint64_t value1);

/* One request to its answer, a->result: enum kl_status, or enum audit_device. left: until the answer is worth
 * nothing any more, in the run's clock; a device that needs longer costs this one. a->gave_up: it did, and
 * the answer is the mirror's. */
uint32_t appliance_call(struct appliance *a, enum kl_op op, uint32_t slot, uint32_t stream,
                        uint32_t budget_cycles, uint64_t left);
/* The same for a step of a->request.x; its answer is looked at: what the log and the wire can carry. */
uint32_t appliance_step(struct appliance *a, uint32_t slot, uint32_t stream, uint32_t budget_cycles,
                        uint64_t left);
/* The recurrent half of the stream's next step, off the critical path. */
void appliance_prepare(struct appliance *a, const struct intake_tick *tick, uint32_t slot);
/* Counts, logs and has the stream start anew. */
enum verdict appliance_device_error(struct appliance *a, const struct intake_tick *tick, uint32_t status);
/* What became of the cards since the last look: into the log. */
void appliance_card_news(struct appliance *a);
/* One dummy inference: the first guess at how long one takes, and a device that does not answer is found now.
 * 0, or -1 with a message. */
int appliance_first_inference(struct appliance *a, char error[AUDIT_ERROR_CHARS]);

/* After the tick's verdict: warms the stream up in the new model's slot with the same tick; then it goes
 * over. */
void appliance_step_next_model(struct appliance *a, const struct intake_tick *tick);
/* A piece of the next model's load. */
void appliance_advance_switch(struct appliance *a);

#endif
