/* The poll loop's inside, shared by its files: appliance.c (life, loop), appliance_tick.c (ticks, verdicts),
 * appliance_accel.c (calls of the accelerator), appliance_standby.c (the other model slot),
 * appliance_govern.c (ladder, threshold, orders, clock). Not for anyone else. */
#ifndef APPLIANCE_SELF_H
#define APPLIANCE_SELF_H

#include "appliance.h"
#include "threshold.h"

enum {
    /* Ticks that wait for the accelerator. Superseding, one per stream at most; else a full queue is worked
     * off before more is decoded. */
    PENDING_MAX = 512,
    /* Settled in one go, and concluded after the last send of them. */
    WORK_MAX = 2 * KL_QUEUE_DEPTH,
    /* Steps that the other slot is behind. Beyond it, the stream starts anew there. */
    STANDBY_MAX = 1024,
    /* Of dummy inferences, one after the other: streams are spread over as many cards. */
    WARM_STREAMS = ACCEL_GUARD_CARDS_MAX,
};
static_assert((int)PENDING_MAX >= 2 * (int)KL_N_STREAM_MAX, "superseding ticks always find room");

struct stream {
    uint32_t ticks[KL_N_SLOT];  /* inferred since the last reset */
    uint8_t at_work[KL_N_SLOT]; /* the accelerator may hold a state of it other than zero */
    uint8_t slot;               /* whose predictions count */
    uint8_t needs_reset;        /* its state belongs to a market that has passed: gap, halt */
    uint8_t breaks;             /* a tick came that cannot be used: the next one starts anew */
    uint8_t is_used;            /* a tick of it has come */
    uint8_t arm;                /* live A/B: 0 not looked at yet, 1 A, 2 B */
    uint16_t lag;               /* steps that the other slot is behind */
    uint16_t waits;             /* superseding: 1 + index of its tick in pending; 0: none */
    uint32_t generation;        /* of its state: steps of an earlier one are void */
};

/* A decoded tick that waits. */
struct pending {
    struct intake_tick tick;
    uint32_t epoch; /* of the arrival */
    uint64_t decoded;
    float raw[FEATURES_N]; /* not quantised */
};

/* A tick in the accelerator's hands, and its record. */
struct work {
    const struct pending *p; /* its place in the queue: nothing is decoded until the batch is settled */
    _Alignas(64) struct kl_request request;
    _Alignas(64) struct audit_prediction r;
    uint64_t left;                  /* to the line, at the submit */
    enum verdict verdict, would_be; /* would_be: if the ladder did not halt */
    uint32_t status;                /* submitted: KL_OK, or what it failed with */
    uint32_t doomed;                /* why, if an earlier one of its stream failed: its state is not known */
    uint8_t submitted, has_features, stepped;
};

struct standby {
    uint16_t stream, locate;
    uint32_t generation;
    uint64_t feed_ts_ns;
    float raw[FEATURES_N];
};

enum switching { SWITCH_NONE, SWITCH_WAITING, SWITCH_LOADING };

struct appliance {
    struct appliance_config cfg;
    int replay;
    int prepares_by_flag;  /* real clock: the backend prepares by itself after a step, KL_REQUEST_PREPARE */
    uint8_t arrival_clock; /* enum audit_arrival of every frame */
    uint64_t now_ns;       /* replay: when the one server is free */
    struct killline_clock clock;
    uint32_t epoch;      /* of what is being taken in */
    uint64_t future_max; /* how far ahead an arrival may lie */
    double to_ns;        /* clock units to ns */
    double per_ns;       /* and back */
    /* The line, in the run's clock: TSC cycles, or ns. */
    struct threshold threshold;
    uint64_t arm_b;   /* live A/B: the other one; 0: none */
    uint64_t timeout; /* TSC, also with the replay clock: a card that hangs hangs in real time */
    /* Submit -> last check, per slot: of the first of a batch, and of each further one. */
    uint64_t expected[KL_N_SLOT], further[KL_N_SLOT];
    uint32_t egress_ip, egress_source;
    uint32_t request_seq, n_unheard; /* n_unheard: requests whose answers have not come */
    int gave_up;                     /* the last answer's time was up: it is the mirror's */
    const struct model *model[KL_N_SLOT];
    uint8_t slot; /* of streams that start, and where the others go */
    enum switching switching;
    uint64_t switch_at;
    uint64_t publish_seq;
    struct governor *governor;
    int fault_told;                 /* since it was asked last */
    uint64_t ring_used, ring_size;  /* receive ring at the last look */
    uint64_t looked_at, look_every; /* resources */
    uint64_t warmed_at;             /* real: when there was work, or a dummy, for the last time */
    uint64_t stall_state;           /* replay.stall: its random numbers */
    struct stream streams[KL_N_STREAM_MAX];
    struct kl_request request; /* of calls that are not of a batch */
    struct kl_result result;
    uint32_t pending_head, pending_tail, standby_head, standby_tail;
    struct pending pending[PENDING_MAX];
    struct standby standby[STANDBY_MAX];
    struct work work[WORK_MAX];
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

void appliance_stall(struct appliance *a);

/* Replay: work takes its configured time. Real: it already has. */
static inline void appliance_spend(struct appliance *a, uint64_t ns)
{
    if (!a->replay)
        return;
    a->now_ns += ns;
    if (a->cfg.config->replay.stall.per_million)
        appliance_stall(a);
}

static inline uint64_t appliance_kernel_ns(const struct appliance *a, uint32_t cycles)
{
    uint32_t mhz = a->cfg.config->replay.kernel_mhz;
    return ((uint64_t)cycles * 1000 + mhz - 1) / mhz;
}

static inline uint32_t appliance_n_pending(const struct appliance *a)
{
    return a->pending_tail - a->pending_head;
}

void appliance_clock_back(struct appliance *a, uint64_t last);

/* Every reading that an age depends on, and as many between as there are. Returns its epoch. */
static inline uint32_t appliance_look(struct appliance *a, uint64_t now)
{
    const struct killline_clock before = a->clock;
    const uint32_t epoch = killline_look(&a->clock, now);
    if (epoch != before.epoch)
        appliance_clock_back(a, before.last);
    return epoch;
}

void appliance_commit_event(struct appliance *a, enum audit_event_code code, uint16_t locate,
                            uint64_t feed_ts_ns, uint64_t value0, uint64_t value1);
/* Of no symbol. */
void appliance_commit_values(struct appliance *a, enum audit_event_code code, const uint64_t value[4],
                             const char *text);

/* ---- appliance_accel.c ---- */

/* Hands a request over; op, slot, stream, flags, budget and x are set, the rest is filled in. n_before: of
 * the same batch. KL_OK, or what it failed with. */
uint32_t appliance_submit(struct appliance *a, struct kl_request *request, uint32_t n_before);
/* The answer to the request that has `behind` others submitted after it, into a->result: enum kl_status, or
 * enum audit_device. start: TSC at the submit; left: from then until the answer is worth nothing any more, in
 * the run's clock; usual: what it usually takes. a->gave_up: a device needed longer, and the answer is the
 * mirror's. */
uint32_t appliance_await(struct appliance *a, const struct kl_request *request, uint32_t behind,
                         uint64_t start, uint64_t left, uint64_t usual);
/* One request to its answer. */
uint32_t appliance_call(struct appliance *a, enum kl_op op, uint32_t slot, uint32_t stream);
/* The same for a step of a->request.x without a budget. */
uint32_t appliance_step(struct appliance *a, uint32_t slot, uint32_t stream);
/* The recurrent half of the stream's next step, off the critical path. */
void appliance_prepare(struct appliance *a, uint16_t stream, uint16_t locate, uint64_t feed_ts_ns,
                       uint32_t slot);
/* Counts, logs and has the stream start anew. */
enum verdict appliance_device_error(struct appliance *a, uint16_t stream, uint16_t locate,
                                    uint64_t feed_ts_ns, uint32_t status);
/* What became of the cards since the last look: into the log. */
void appliance_card_news(struct appliance *a);
/* Dummy inferences before the first tick: how long one takes, warm caches, and a device that does not answer
 * is found now. 0, or -1 with a message. */
int appliance_warm_up(struct appliance *a, char error[AUDIT_ERROR_CHARS]);
/* Idle for long: a dummy inference, if its stream is nobody's. */
void appliance_keep_warm(struct appliance *a);

/* ---- appliance_tick.c ---- */

void appliance_on_tick(void *appliance, const struct intake_tick *tick);
/* One batch of what waits, to its verdicts; something does. */
void appliance_work_off(struct appliance *a);

/* ---- appliance_standby.c ---- */

/* The stream's state is gone in both slots; it starts anew in a->slot. */
void appliance_standby_reset(struct appliance *a, struct stream *stream);
/* After a step in the stream's own slot: the same one is due in the other, if that is kept up. */
void appliance_standby_push(struct appliance *a, const struct work *w);
/* One step that is due: nonzero; 0: none is. */
int appliance_standby_work(struct appliance *a);
/* Before a tick: the stream goes over to a->slot if it is warm there. */
void appliance_standby_go_over(struct appliance *a, struct stream *stream);
/* A piece of the next model's load. */
void appliance_advance_switch(struct appliance *a);

/* ---- appliance_govern.c ---- */

/* A device failed. The ticks of a batch that it costs, and the failover of its card, are one fault to the
 * ladder. */
void appliance_device_fault(struct appliance *a);
/* 0, or -1: out of memory. */
int appliance_govern_create(struct appliance *a);
/* At the start of the run: where the ladder stands. */
void appliance_govern_start(struct appliance *a);
/* Between two ticks: orders, ladder, threshold. */
void appliance_govern(struct appliance *a, uint64_t now);
/* Between two ticks: what is received from here on is of that epoch, to which now belongs. */
void appliance_begin_epoch(struct appliance *a, uint64_t now, uint32_t epoch);

#endif
