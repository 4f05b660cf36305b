/* Whether the implementations of killline bench lstm compute the same thing: a figure of a wrong answer is
 * worth nothing. Cold code. */
#ifndef BENCH_LSTM_CHECK_H
#define BENCH_LSTM_CHECK_H

#include <stdint.h>

#include "accel.h"
#include "bench_lstm_model.h"
#include "bench_lstm_peer.h"

/* What the double reference answers, from zero state. */
struct bench_lstm_truth {
    uint32_t n_step, n_class;
    double *logits;   /* [n_step][n_class] */
    uint8_t *cls;     /* [n_step] */
    double spread;    /* standard deviation of the logits around their class's mean */
    uint32_t changes; /* steps whose class is not the step's before */
};

/* 0, or -1: out of memory. */
int bench_lstm_truth_create(const struct model_weights *weights, const struct bench_lstm_inputs *inputs,
                            uint32_t n_step, struct bench_lstm_truth *out);
void bench_lstm_truth_free(struct bench_lstm_truth *truth);

struct bench_lstm_agreement {
    double error;    /* largest difference of a logit; INFINITY if one is not finite */
    uint32_t flips;  /* steps with another class than the reference */
    uint32_t status; /* enum kl_status of the first request that failed: error and flips say nothing then */
};

/* A peer, or the model in a slot of an accelerator (stream, reset first), against the truth. Both start from
 * zero state. */
void bench_lstm_check_peer(const struct bench_lstm_truth *truth, const struct bench_lstm_inputs *inputs,
                           struct bench_lstm_peer *peer, struct bench_lstm_agreement *out);
void bench_lstm_check_accel(const struct bench_lstm_truth *truth, const struct bench_lstm_inputs *inputs,
                            struct accel *accel, uint32_t slot, uint32_t stream,
                            struct bench_lstm_agreement *out);

/* FP32: every logit within 1e-5 and a thousandth of the logits' spread. The number contract: fewer than 1 %
 * of the steps another class, no logit further off than 2 % of the logits' spread; weights of 8 bits: 3 %
 * and 30 %. Two to four times what the random nets show (1 % of the spread at XL; 0.7 % of the steps and 7
 * %). Nonzero: so it is. */
enum bench_lstm_bound { BENCH_LSTM_FP32, BENCH_LSTM_CONTRACT, BENCH_LSTM_INT8 };
int bench_lstm_agrees(const struct bench_lstm_truth *truth, const struct bench_lstm_agreement *agreement,
                      enum bench_lstm_bound bound);

/* Runs two accelerators with the same image in the slot side by side over n_step steps, prepared and
 * unprepared ones: class, logits and state. flags_b: of b's requests; with KL_REQUEST_PREPARE b is asked for
 * its prepare in no other way. Returns the first step that differs, or n_step. */
uint32_t bench_lstm_same_bits(const struct bench_lstm_inputs *inputs, uint32_t n_step, struct accel *a,
                              struct accel *b, uint32_t slot, uint16_t flags_b);

/* Submits the request and waits for its answer; nothing else may be outstanding. */
static inline void bench_lstm_ask(struct accel *accel, const struct kl_request *request,
                                  struct kl_result *result)
{
    int full = accel->ops->submit(accel, request), got;
    assert(!full);
    while ((got = accel->ops->poll(accel, result)) == 0)
        ;
    assert(got == 1);
    (void)full;
}

#endif
