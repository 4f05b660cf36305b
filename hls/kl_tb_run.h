/* Whole-kernel check: a build, whole or split over a pair of units, against the binary64 oracle.
 *
 * Every request's answer (all bytes of struct kl_result, the cycles among them) and afterwards the stream's
 * state (all bytes of struct kl_state, from kl_build.save) and z of every row have to be the oracle's. After
 * a mismatch the oracle goes on from the kernel's state, so that each further one is one of its own. No
 * printing; the first mismatch is told with its trail, from the first layer and row in evaluation order that
 * differs. */
#ifndef KL_TB_RUN_H
#define KL_TB_RUN_H

#include "kl_tb.h"

enum {
    TB_RUN_STREAMS = 6,      /* that a run steps, per slot, out of all of the kernel's */
    TB_RUN_MISMATCH_MAX = 64 /* a run ends itself there */
};

struct tb_run_report {
    struct tb_report check; /* a case: a request, or a state or an image taken in */
    uint64_t n_step;        /* requests answered with logits */
    /* Against the same network in true binary64, models of kind TB_TYPICAL only. Reported, not judged. */
    uint64_t n_true_step, n_flip; /* steps compared; classes that differ */
    double h_error_max;           /* |h - h of the true network| */
    double h_abs_max, c_abs_max;  /* reached, in steps of h and c: a SATURATE model has to reach the bounds */
};

/* The caller's part in a run; zero: random inputs, nobody listens. */
struct tb_run_hooks {
    void *context;
    /* The next input of a stream (0 .. TB_RUN_STREAMS - 1) of a slot into x, binary16 bits. What is no input
     * by the number contract has to be refused by the kernel. Returns 0: no more, the run ends. */
    int (*input)(void *context, uint32_t slot, uint32_t stream, uint16_t x[KL_N_IN_MAX]);
    /* A step was answered and compared: request and result as the kernel had them. */
    void (*answered)(void *context, const struct kl_request *request, const struct kl_result *result,
                     const struct tb_answer *oracle);
};

enum tb_run_how {
    TB_RUN_PLAIN, /* steps on interleaved streams, each prepared after its answer */
    /* The same with prepare before, after, never or twice, budgets just met and just missed, resets, refused
     * requests, states saved, restored and moved between streams, bursts through the queue (not of a pair)
     * and steps of the other slot in between. */
    TB_RUN_MIX,
};

struct tb_run;

/* n_part: 1, or 2 for a pair. NULL: out of memory. */
struct tb_run *tb_run_open(const struct kl_build *build, uint32_t n_part, uint64_t seed);
void tb_run_close(struct tb_run *run);

void tb_run_hook(struct tb_run *run, const struct tb_run_hooks *hooks);

/* Loads a model's image into a slot, while the other slot goes on stepping if it holds a model. model and
 * image stay with the caller and must live until the slot's next load or tb_run_close. Returns 1, or 0: the
 * kernel refused it (a mismatch; the slot is empty). */
int tb_run_load(struct tb_run *run, uint32_t slot, const struct tb_model *model,
                const struct kl_image_header *image);

/* n_step steps of a slot that holds a model (a few more in MIX). Returns 0 if it ended early: no more input,
 * or TB_RUN_MISMATCH_MAX. */
int tb_run_steps(struct tb_run *run, uint32_t slot, enum tb_run_how how, uint32_t n_step);

/* What was found so far; lives as long as the run. */
const struct tb_run_report *tb_run_report(const struct tb_run *run);

/* A random model that the build takes: kinds and sizes in turn by number; number 0 is of the build's largest
 * shape. *model is written anew. */
void tb_run_draw_model(const struct kl_build *build, uint32_t n_part, uint32_t number, uint64_t *seed,
                       struct tb_model *model);

#endif
