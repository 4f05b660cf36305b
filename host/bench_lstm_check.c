#include "bench_lstm_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model_reference.h"

int bench_lstm_truth_create(const struct model_weights *weights, const struct bench_lstm_inputs *inputs,
                            uint32_t n_step, struct bench_lstm_truth *out)
{
    const uint32_t n_class = weights->n_class;
    struct model_reference *reference = model_reference_create(weights, 1);
    *out = (struct bench_lstm_truth){.n_step = n_step,
                                     .n_class = n_class,
                                     .logits = malloc((size_t)n_step * n_class * sizeof(*out->logits)),
                                     .cls = malloc(n_step)};
    if (!reference || !out->logits || !out->cls) {
        model_reference_free(reference);
        bench_lstm_truth_free(out);
        return -1;
    }
    double sum[KL_N_CLASS_MAX] = {0}, square = 0;
    for (uint32_t step = 0; step < n_step; step++) {
        double x[KL_N_IN_MAX], *logits = out->logits + (size_t)step * n_class;
        for (uint32_t k = 0; k < inputs->n_in; k++)
            x[k] = (double)bench_lstm_x(inputs, step)[k];
        out->cls[step] = (uint8_t)model_reference_step(reference, 0, x, logits);
        out->changes += step && out->cls[step] != out->cls[step - 1];
        for (uint32_t c = 0; c < n_class; c++) {
            sum[c] += logits[c];
            square += logits[c] * logits[c];
        }
    }
    for (uint32_t c = 0; c < n_class; c++)
        square -= sum[c] * sum[c] / n_step;
    out->spread = sqrt(square > 0 ? square / n_class / n_step : 0);
    model_reference_free(reference);
    return 0;
}

void bench_lstm_truth_free(struct bench_lstm_truth *truth)
{
    free(truth->logits);
    free(truth->cls);
    *truth = (struct bench_lstm_truth){0};
}

/* One step's answer into the agreement. */
static void compare(const struct bench_lstm_truth *truth, uint32_t step, uint32_t cls, const double *logits,
                    struct bench_lstm_agreement *out)
{
    out->flips += cls != truth->cls[step];
    for (uint32_t c = 0; c < truth->n_class; c++) {
        double error = fabs(logits[c] - truth->logits[(size_t)step * truth->n_class + c]);
        if (!(error <= out->error)) /* NaN too */
            out->error = isfinite(error) ? error : (double)INFINITY;
    }
}

void bench_lstm_check_peer(const struct bench_lstm_truth *truth, const struct bench_lstm_inputs *inputs,
                           struct bench_lstm_peer *peer, struct bench_lstm_agreement *out)
{
    *out = (struct bench_lstm_agreement){0};
    for (uint32_t step = 0; step < truth->n_step; step++) {
        float answer[KL_N_CLASS_MAX] = {0};
        double logits[KL_N_CLASS_MAX];
        uint32_t cls = peer->ops->step(peer, bench_lstm_x(inputs, step), answer);
        for (uint32_t c = 0; c < truth->n_class; c++)
            logits[c] = (double)answer[c];
        compare(truth, step, cls, logits, out);
    }
}

static struct kl_request request_for(uint32_t op, uint32_t slot, uint32_t stream)
{
    return (struct kl_request){
        .abi_version = KL_ABI_VERSION, .op = (uint16_t)op, .slot = (uint16_t)slot, .stream = stream};
}

void bench_lstm_check_accel(const struct bench_lstm_truth *truth, const struct bench_lstm_inputs *inputs,
                            struct accel *accel, uint32_t slot, uint32_t stream,
                            struct bench_lstm_agreement *out)
{
    struct kl_request step_request = request_for(KL_OP_STEP, slot, stream),
                      prepare = request_for(KL_OP_PREPARE, slot, stream),
                      reset = request_for(KL_OP_RESET, slot, stream);
    struct kl_result result;
    *out = (struct bench_lstm_agreement){0};
    bench_lstm_ask(accel, &reset, &result);
    out->status = result.status;
    for (uint32_t step = 0; step < truth->n_step && out->status == KL_OK; step++) {
        double logits[KL_N_CLASS_MAX];
        memcpy(step_request.x, bench_lstm_bits(inputs, step), inputs->n_in * sizeof(uint16_t));
        bench_lstm_ask(accel, &step_request, &result);
        out->status = result.status;
        for (uint32_t c = 0; c < truth->n_class; c++)
            logits[c] = ldexp((double)result.logits[c], -result.logit_frac);
        if (out->status == KL_OK) {
            compare(truth, step, result.cls, logits, out);
            bench_lstm_ask(accel, &prepare, &result);
            out->status = result.status;
        }
    }
}

int bench_lstm_agrees(const struct bench_lstm_truth *truth, const struct bench_lstm_agreement *agreement,
                      enum bench_lstm_bound bound)
{
    static const struct {
        double flips, error;
    } shares[] = {[BENCH_LSTM_CONTRACT] = {0.01, 0.02}, [BENCH_LSTM_INT8] = {0.03, 0.3}};
    if (agreement->status != KL_OK)
        return 0;
    if (bound == BENCH_LSTM_FP32)
        return agreement->error <= 1e-5 && agreement->error <= 1e-3 * truth->spread;
    return agreement->flips < shares[bound].flips * truth->n_step &&
           agreement->error <= shares[bound].error * truth->spread;
}

uint32_t bench_lstm_same_bits(const struct bench_lstm_inputs *inputs, uint32_t n_step, struct accel *a,
                              struct accel *b, uint32_t slot, uint16_t flags_b)
{
    struct accel *const both[2] = {a, b};
    struct kl_request step_request = request_for(KL_OP_STEP, slot, 0),
                      prepare = request_for(KL_OP_PREPARE, slot, 0),
                      reset = request_for(KL_OP_RESET, slot, 0);
    struct kl_result result[2];
    struct kl_state state[2];
    for (int i = 0; i < 2; i++)
        bench_lstm_ask(both[i], &reset, &result[i]);
    for (uint32_t step = 0; step < n_step; step++) {
        memcpy(step_request.x, bench_lstm_bits(inputs, step), inputs->n_in * sizeof(uint16_t));
        for (int i = 0; i < 2; i++) {
            step_request.flags = i ? flags_b : 0;
            memset(&state[i], 0, sizeof(state[i]));
            bench_lstm_ask(both[i], &step_request, &result[i]);
            if (both[i]->ops->save(both[i], slot, 0, &state[i]) != KL_OK || result[i].status != KL_OK)
                return step;
        }
        if (result[0].cls != result[1].cls || result[0].logit_frac != result[1].logit_frac ||
            memcmp(result[0].logits, result[1].logits, sizeof(result[0].logits)) != 0 ||
            memcmp(&state[0], &state[1], sizeof(state[0])) != 0)
            return step;
        if (step % 4 != 3)
            for (int i = 0; i < (flags_b & KL_REQUEST_PREPARE ? 1 : 2); i++)
                bench_lstm_ask(both[i], &prepare, &result[i]);
    }
    return n_step;
}
