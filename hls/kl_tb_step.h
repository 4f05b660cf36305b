/* What a run is made of: requests on the kernel beside the oracle, each compared. For kl_tb_run.c,
 * kl_tb_mix.c. */
#ifndef KL_TB_STEP_H
#define KL_TB_STEP_H

#include "kl_tb_run.h"
#include "kl_tb_trail.h"

enum { TB_PREPARED_UNKNOWN = -1 };

struct tb_run_stream {
    uint32_t number; /* of the kernel's */
    int prepared;    /* 0, 1 or TB_PREPARED_UNKNOWN: after a refused x, which may have prepared it or not */
    struct tb_state state, true_state;
};

struct tb_run_slot {
    const struct tb_model *model; /* NULL: empty */
    const struct kl_image_header *image;
    uint32_t step_cycles[2]; /* [prepared] */
    uint32_t prepare_cycles, reset_cycles;
    struct tb_run_stream stream[TB_RUN_STREAMS];
};

struct tb_run {
    const struct kl_build *build;
    uint32_t n_part;
    struct kl_unit *unit[2];
    struct kl_info info;
    uint32_t frame_cycles;
    uint64_t seed;
    uint32_t seq_no;
    int ended; /* no more input */
    struct tb_run_hooks hooks;
    struct tb_run_slot slot[KL_N_SLOT];
    struct tb_run_report report;
    /* Of the step being compared: too large for the stack. */
    struct tb_state before;
    struct tb_answer answer, true_answer;
    struct kl_state kernel_state, oracle_state;
};

/* The kernel, whole or split. wait_cycles: of a pair only. */
void tb_step_execute(struct tb_run *run, const struct kl_request *request, uint32_t wait_cycles,
                     struct kl_result *result);
uint32_t tb_step_save(const struct tb_run *run, uint32_t slot, uint32_t stream, struct kl_state *state);
uint32_t tb_step_restore(struct tb_run *run, uint32_t slot, uint32_t stream, const struct kl_state *state);

/* A request of the next seq_no on stream s (0 .. TB_RUN_STREAMS - 1) of the slot. */
struct kl_request tb_step_request(struct tb_run *run, uint32_t slot, uint32_t s, uint32_t op);

/* The stream's next input. Returns 0: there is none, and the run has ended. */
int tb_step_next_x(struct tb_run *run, uint32_t slot, uint32_t s, uint16_t x[KL_N_IN_MAX]);

/* Whether x is an input by the number contract. */
int tb_step_is_good_x(const struct tb_model *model, const uint16_t *x);

/* The answer to expect, but for logits, class, flags, wait_cycles and check; of a refusal all of it. */
struct kl_result tb_step_result(const struct tb_run *run, const struct kl_request *request,
                                uint32_t kernel_cycles, int prepared_after);
struct kl_result tb_step_refusal(const struct kl_request *request, uint32_t status);

/* The oracle's side of a step: its logits and class into *expected, its answer into run->answer; the stream
 * moves on. */
void tb_step_oracle(struct tb_run *run, const struct kl_request *request, uint32_t s,
                    struct kl_result *expected);

/* Compare all of an answer, expected's check computed here; the stream's state with the oracle's. Return 1:
 * equal; else they count. */
int tb_step_compare_result(struct tb_run *run, const struct kl_request *request,
                           const struct kl_result *result, const struct kl_result *expected);
int tb_step_compare_state(struct tb_run *run, const struct kl_request *request, uint32_t s);

/* After a mismatch: the oracle goes on from the kernel's state; a stream that lost its state is reset. */
void tb_step_follow_kernel(struct tb_run *run, uint32_t slot, uint32_t s);

/* A step that is carried out, then the stream's state and every z. */
void tb_step_exec(struct tb_run *run, struct kl_request *request, uint32_t s, uint32_t wait_cycles);

/* A step whose x has to be refused; the stream stays as it was. */
void tb_step_refused(struct tb_run *run, const struct kl_request *request, uint32_t s);

/* A budget that the step misses by one cycle: late, nothing changed. Leaves one that it just meets. */
void tb_step_late(struct tb_run *run, struct kl_request *request, uint32_t s, uint32_t wait_cycles);

/* KL_OP_PREPARE or KL_OP_RESET. */
void tb_step_operation(struct tb_run *run, uint32_t slot, uint32_t s, uint32_t op);

/* kl_tb_mix.c: now and then a reset, a refused request, moved states, a burst through the queue. */
void tb_step_disturb(struct tb_run *run, uint32_t slot, uint32_t s);

#endif
