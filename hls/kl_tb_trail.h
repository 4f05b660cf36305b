/* Tells the first difference between kernel and oracle with its trail. For kl_tb_run.c. */
#ifndef KL_TB_TRAIL_H
#define KL_TB_TRAIL_H

#include "kl_tb.h"

/* Where a request stands. */
struct tb_trail {
    const struct kl_build *build;
    uint32_t n_part, mac_rows;
    const struct tb_model *model;
    const struct kl_request *request;
    /* Of a step only: whether W_h.h + b was ready, the state before it, the oracle's answer. */
    int was_prepared;
    const struct tb_state *before;
    const struct tb_answer *answer;
};

/* A stream's state as kl_build.save writes it, all bytes. */
void tb_trail_write_state(const struct tb_state *from, const struct kl_image_header *image,
                          struct kl_state *state);
void tb_trail_read_state(const struct kl_state *state, struct tb_state *to);

/* Whether z of every row of the unit's (or pair's) last step is the oracle's. */
int tb_trail_same_z(const struct tb_trail *trail, struct kl_unit *const unit[2]);

/* Count a mismatch and tell it: of a step, in evaluation order; of an answer without a step; of a state.
 * save_status: of the kernel's state, which is not looked at unless it is KL_OK. */
void tb_trail_step(struct tb_report *report, const struct tb_trail *trail, struct kl_unit *const unit[2],
                   const struct kl_result *result, const struct kl_result *expected, uint32_t save_status,
                   const struct kl_state *kernel, const struct kl_state *oracle);
void tb_trail_result(struct tb_report *report, const struct tb_trail *trail, const struct kl_result *result,
                     const struct kl_result *expected);
void tb_trail_state(struct tb_report *report, const struct tb_trail *trail, uint32_t save_status,
                    const struct kl_state *kernel, const struct kl_state *oracle);

#endif
