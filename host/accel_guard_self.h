/* What the guard holds. accel_guard.c: requests, answers, failover. accel_guard_load.c: models and states.
 * accel_guard_mirror.c: a card's mirror. accel_guard_recover.c: a card's way back. accel_guard_open.c: set-up
 * and threads.
 *
 * Who works on what. The poll loop: struct guard, and of a card everything but what follows. The mirror, and
 * the queue's reading end while the card serves: whoever holds `mirror_holder`; the poll loop keeps hold of
 * it as long as the card does not serve. The card, and the queue's reading end while it is out or shadows:
 * the card's thread ("worker"; inline it is the poll loop) as long as `stage` is one of its stages; in the
 * stages of rest the poll loop. Whoever gives one of the two away stores with release, whoever takes it reads
 * with acquire. */
#ifndef ACCEL_GUARD_SELF_H
#define ACCEL_GUARD_SELF_H

#include <pthread.h>

#include "accel_guard.h"
#include "spsc_ring.h"

enum {
    GUARD_N_EVENT = 64,
    GUARD_N_ENTRY = 1024, /* of a card's queue: what a mirror may be behind */
    GUARD_N_STATE = 16,   /* states on their way to a card */
    /* A card that gave so many answers since it came back has come back: its next failure starts with a reset
     * at once. */
    GUARD_LASTING_ANSWERS = 1024,
    GUARD_RETRY_DOUBLINGS = 6,
};

/* TSC: by far longer than any card takes for a model. One that is not done by then is silent. */
#define GUARD_LOAD_CYCLES 20000000000ull /* 4 to 10 s, above what a backend allows itself */

/* A model as answers have to show it. image NULL: no model in this slot. */
struct guard_model {
    const void *image;
    size_t size_bytes;
    uint64_t image_hash;
    uint16_t n_in;
    uint8_t n_class, logit_frac;
};

/* What the poll loop knows of a stream in a slot. */
struct guard_stream {
    uint8_t live;     /* stepped or restored since its reset or the load: it has a state */
    uint8_t prepared; /* the last operation on it was KL_OP_PREPARE */
    /* It prepares by KL_REQUEST_PREPARE: the device chooses when, so its cycles are not comparable. */
    uint8_t by_flag;
    uint8_t stale;    /* the mirror missed something of it */
    uint8_t lost;     /* was stale when the card was lost */
    uint8_t unsynced; /* while the card shadows: it has another state than the mirror */
};

enum guard_entry_kind { GUARD_REQUEST, GUARD_STATE, GUARD_FINISH };

/* One record of a card's queue: to its mirror while it serves, to the card while it shadows. */
struct guard_entry {
    uint8_t kind;        /* enum guard_entry_kind */
    uint8_t is_compared; /* with result, which the other side gave */
    uint8_t with_cycles;
    uint16_t slot; /* GUARD_STATE: of the state at the head of `states` */
    uint32_t stream;
    struct kl_result result;
    struct kl_request request; /* x: as many as the model has inputs */
};

enum guard_stage {
    /* At rest: */
    GUARD_REST,   /* the card is the poll loop's */
    GUARD_DONE,   /* everything that was queued is compared and equal: it may serve */
    GUARD_FAILED, /* while it shadowed: failed_* */
    /* The worker's: */
    GUARD_RESET, /* waits for its time, then resets the card */
    GUARD_LOAD,  /* models into card and judge */
    GUARD_PROBE, /* made-up requests, compared with the judge's answers */
    GUARD_SHADOW,
};

enum guard_holder { GUARD_NOBODY, GUARD_THREAD, GUARD_LOOP };

struct guard_finding {
    uint32_t reason; /* enum accel_guard_reason */
    uint32_t stream, seq_no;
    uint32_t last_good_seq_no;
};

struct guard_card {
    struct accel *card, *mirror;
    struct accel *judge; /* cpu too: answers to probes */
    uint32_t index, n_card, n_stream;
    int is_inline;
    int is_threaded_mirror; /* 0: inline, or prove: the mirror is the poll loop's for good */
    uint32_t n_probe;
    uint64_t retry_cycles;

    /* The poll loop's. */
    enum accel_guard_phase phase;
    int holds_mirror; /* mirror_holder is the poll loop, for its knowledge */
    struct guard_stream streams[KL_N_SLOT][KL_N_STREAM_MAX]; /* those of other cards stay unused */
    uint64_t n_step;                                         /* for check_every */
    uint64_t answers_since_back;
    uint64_t answers, mirror_answers, failovers, quarantines, recoveries, states_lost, gone_stale;
    uint64_t resets_told, resets_failed_told; /* by events */
    uint32_t load_status, mirror_load_status; /* of a load under way; KL_E_BUSY: not ended */
    int is_syncing, finish_sent;
    uint32_t n_unsynced, sync_at;
    int starts_anew; /* its recovery has to begin again, once the worker has put the card down */

    /* The mirror's holder's. */
    _Alignas(64) uint32_t last_good_seq_no;
    uint32_t idle_due; /* idle polls that the mirror is to get: it prepares in them */
    struct guard_finding differs_at;
    _Atomic uint64_t compared, differed; /* one writer at a time; read by stats */

    /* The worker's. */
    _Alignas(64) struct guard_model models[KL_N_SLOT];
    uint32_t n_failure; /* in a row */
    uint64_t due;       /* TSC of the next reset; inline: idle polls until then */
    uint32_t target;    /* of the load: 2 * slot, + 1 for the judge's */
    uint32_t probe;     /* next */
    uint32_t n_equal;
    int has_begun, awaits;     /* a load; an answer of the card */
    int judge_loads;           /* a load of the judge has begun and not ended */
    uint64_t since;            /* when: TSC */
    struct kl_request request; /* that is asked */
    uint32_t caller_seq_no, n_asked;
    struct kl_result expected;
    struct guard_finding failed;
    _Atomic uint64_t resets, resets_failed;

    _Alignas(64) _Atomic uint32_t mirror_holder; /* enum guard_holder */
    _Atomic uint32_t mirror_wanted;              /* by the poll loop: the thread keeps off */
    _Alignas(64) _Atomic uint32_t differs;       /* differs_at is set; release by the mirror's holder */
    _Alignas(64) _Atomic uint32_t stage;         /* enum guard_stage */
    _Atomic uint32_t put_down;                   /* by the poll loop: the worker goes to GUARD_REST */
    _Atomic uint32_t stop, gone;                 /* the thread's end */
    struct spsc_ring queue, states;
    pthread_t thread;
    int has_thread;
};

enum guard_where {
    GUARD_ON_CARD,
    GUARD_ON_MIRROR, /* stepped when it is polled */
    GUARD_REFUSED,   /* by the guard: status */
    GUARD_ANSWERED,  /* by the mirror already: result */
};

struct guard_wait {
    enum guard_where where;
    uint32_t card, status;
    struct kl_result result;
    struct kl_request request; /* x: as many as the model has inputs */
};

struct guard {
    struct accel accel; /* first: ops find the rest through it */
    uint32_t n_card, n_stream;
    uint32_t check_every;
    int prove;
    int was_mirror;                                 /* who gave the last answer */
    uint32_t n_submitted, n_answered;               /* run freely */
    struct guard_card *card[ACCEL_GUARD_CARDS_MAX]; /* each in memory of its own: one whose thread hangs in
                                                       the device is left behind on close */
    struct guard_model models[KL_N_SLOT];
    struct guard_model loading;
    int is_loading;
    uint32_t loading_slot, load_turn;
    uint64_t load_since; /* TSC */
    struct accel_guard_event events[GUARD_N_EVENT];
    uint32_t n_event_in, n_event_out; /* run freely */
    struct guard_wait waits[KL_QUEUE_DEPTH];
};

static inline struct guard *guard_of(struct accel *accel)
{
    return (struct guard *)(void *)accel;
}

/* Adds to a counter that has one writer at a time. */
static inline void guard_count(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static inline void guard_copy_request(struct kl_request *to, const struct kl_request *from, uint32_t n_in)
{
    memcpy(to, from, offsetof(struct kl_request, x) + n_in * sizeof from->x[0]);
}

static inline int guard_at_rest(uint32_t stage)
{
    return stage <= GUARD_FAILED;
}

/* ---- accel_guard_mirror.c ---- */

/* Whether what a device gave can be the answer to request at all. models: KL_N_SLOT of them. */
enum accel_guard_reason guard_judge(const struct guard_model *models, const struct kl_request *request,
                                    const struct kl_result *result);

/* Two answers, all but wait_cycles, check and flags' LATE; kernel_cycles if asked for. */
int guard_same(const struct kl_result *a, const struct kl_result *b, int with_cycles);

/* One request to its answer on a backend of this process, with nothing outstanding. */
void guard_exec(struct accel *accel, const struct kl_request *request, struct kl_result *result);

/* Poll loop: takes hold of the mirror, if it has not; the thread has finished the entry that it was at. */
void guard_take_mirror(struct guard_card *c);
/* And lets go of it, if the card serves. */
void guard_give_mirror(struct guard_card *c);

/* Its holder, while the card serves: the mirror steps what is queued. */
void guard_catch_up(struct guard_card *c);
/* One entry, or an idle poll that is due: 1; 0: nothing to do. */
int guard_mirror_piece(struct guard_card *c);

/* Poll loop: to the queue; 0, or -1: it is full. */
int guard_queue(struct guard_card *c, const struct guard_model *models, const struct kl_request *request,
                const struct kl_result *result, int is_compared, int with_cycles);

/* ---- accel_guard_recover.c ---- */

/* Worker: a bounded piece, but for the device's reset. 1: more to do at once; 0: not now. */
int guard_recover_piece(struct guard_card *c);

/* Poll loop. The card has stopped serving, or its models change: begin its recovery (anew), at once or as
 * soon as the worker has put the card down and no load is under way. */
void guard_recover(struct guard *g, struct guard_card *c);
/* In an idle moment, for a card that does not serve. */
void guard_tend(struct guard *g, struct guard_card *c);
/* A card shadows and its mirror gave result: the card is to do the same. */
void guard_shadow(struct guard *g, struct guard_card *c, const struct kl_request *request,
                  const struct kl_result *result, int with_cycles);

/* ---- accel_guard.c ---- */

/* The card is lost. What it owes is the mirror's now. */
void guard_fail(struct guard *g, struct guard_card *c, enum accel_guard_reason reason, uint32_t stream,
                uint32_t seq_no);
void guard_tell(struct guard *g, const struct accel_guard_event *event);
/* If the mirror has found a difference: failover, 1. */
int guard_look(struct guard *g, struct guard_card *c);

int guard_submit(struct accel *accel, const struct kl_request *request);
int guard_poll(struct accel *accel, struct kl_result *result);

/* ---- accel_guard_load.c ---- */

uint32_t guard_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes);
uint32_t guard_load_advance(struct accel *accel);
uint32_t guard_save(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state);
uint32_t guard_restore(struct accel *accel, uint32_t slot, uint32_t stream, const struct kl_state *state);

#endif
