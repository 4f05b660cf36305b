/* The controller: the register block, its request and result rings, and what it does in a round. */
#ifndef FRONT_H
#define FRONT_H

#include "kl_core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A counter of the host's that makes no sense. */
struct front_wrong {
    uint32_t stands, value;
};

/* What the controller keeps for itself; the host cannot write it. */
struct front {
    uint32_t request_head, result_tail, bad_doorbells;
    uint32_t seen_tail; /* REQUEST_TAIL in the last look */
    struct front_wrong wrong_tail, wrong_head;
    uint64_t looked_at;               /* the core's cycle of the last look at the tail */
    uint64_t seen_at[KL_QUEUE_DEPTH]; /* when an entry can have come at the earliest */
    /* Prepares that were asked for by flag: done when nothing else is, newest last; each stream once. */
    uint32_t n_prepare;
    uint16_t prepare_slot[KL_QUEUE_DEPTH];
    uint16_t prepare_stream[KL_QUEUE_DEPTH];
    /* The load. */
    uint32_t load_doorbell; /* the last one that was answered or refused */
    uint32_t load_running;  /* a load of the register block's is under way, of this doorbell: */
    uint32_t load_number;
    uint32_t load_status, load_done;
};

/* The block's read-only words as they are after reset. reg: KL_N_REG words. */
void front_init(struct front *front, const struct kl_core *core, uint32_t *reg);

/* Fills in struct kl_info; its words, as they lie in memory. */
void front_info(const struct kl_core *core, struct kl_info *info);
void front_give_info(const struct kl_core *core, uint32_t *words);

/* Takes over what the host has written to REQUEST_TAIL. To be called whenever the core's clock has moved: the
 * waits of what comes afterwards count from here. Returns how many requests wait, or -1: the tail stands
 * wrong. */
int front_look(struct front *front, const struct kl_core *core, const uint32_t *reg);

/* Takes a request in from its words: the fields, and as much of x as its model has inputs. What is not read
 * of *request is left alone. */
void front_take(struct kl_core *core, const uint32_t *words, struct kl_request *request);

/* Cycles that a step's request and answer take between the register block and the core, by beats of 64 bytes
 * (front_take, front_give), and the answer's check: input and output, not part of the step's own cycles. */
uint32_t front_io_cycles(uint32_t n_in);

/* An answer's words. */
void front_give(const struct kl_result *result, uint32_t *words);

/* The next request if there is one and room for its answer, else a prepare that was asked for: the newest,
 * whose stream is the likeliest to come again. A prepare never delays a request that is there, and the
 * stream's next step is right without it. Nothing while REQUEST_TAIL stands wrong.
 *
 * host_request: KL_CONFIG_REQUEST_FROM_HOST's ring of words. NULL while the bit is set: requests wait for a
 * round that has one, as they wait for room; what the block's ring happens to hold is not taken for one.
 * host_result: KL_CONFIG_RESULT_TO_HOST's; NULL: the answer is in the block alone. Returns 1 if it did
 * anything. */
int front_serve(struct front *front, struct kl_core *core, uint32_t *reg, const uint32_t *host_request,
                uint32_t *host_result);

/* A beat of the load under way, from its image. Returns as loader_advance. */
uint32_t front_load_beat(struct kl_core *core, const uint64_t *image);

/* One round of doorbell mode: front_serve, then the load: its doorbell, or a beat. image: the load's, the
 * same until LOAD_DONE moves; NULL: there is none, so that a doorbell ends with KL_E_IMAGE at once and a load
 * under way waits. LOAD_DONE becomes the number of the doorbell whose load has ended; a refused doorbell's
 * number never shows there. */
void front_round(struct front *front, struct kl_core *core, uint32_t *reg, const uint64_t *image,
                 const uint32_t *host_request, uint32_t *host_result);

#ifdef __cplusplus
}
#endif

#endif
