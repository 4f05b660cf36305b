#include "bench_pipeline_overhead.h"

#include <immintrin.h>
#include <string.h>

#include "cmd.h"
#include "fp16.h"

enum { N_STEP = 4000, N_WARM = 400, ANSWER_LIMIT_MS = 500 };

/* One request to its answer: 0, or -1: refused, or none within the limit. */
static int call(struct accel *accel, struct accel *guard, const struct kl_request *request,
                struct kl_result *result, uint64_t limit_cycles, uint64_t *took_cycles)
{
    const uint64_t start = clock_tsc();
    if (accel->ops->submit(accel, request))
        return -1;
    int got;
    while (!(got = accel->ops->poll(accel, result)) && clock_tsc() - start < limit_cycles)
        _mm_pause();
    *took_cycles = clock_tsc() - start;
    if (!got && guard && !accel_guard_give_up(guard))
        got = accel->ops->poll(accel, result);
    return got == 1 && result->seq_no == request->seq_no && result->status == KL_OK ? 0 : -1;
}

static int same_answer(const struct kl_result *a, const struct kl_result *b)
{
    return a->cls == b->cls && a->n_class == b->n_class && a->logit_frac == b->logit_frac &&
           !memcmp(a->logits, b->logits, sizeof(a->logits));
}

static int measure(const struct run_accel *accel, struct accel *csim, const struct model *model,
                   const struct clock_calibration *clock, struct bench_pipeline_overhead *overhead)
{
    struct accel *const accels[2] = {accel->accel, csim};
    const uint64_t limit = clock_ns_to_cycles(clock, ANSWER_LIMIT_MS * 1e6);
    struct kl_request request = {.abi_version = KL_ABI_VERSION, .op = KL_OP_RESET, .seq_no = 1u << 30};
    uint64_t random = 20191230;
    for (int i = -1; i < N_WARM + N_STEP; i++) {
        struct kl_result answers[2], unheard;
        uint64_t took[2];
        for (uint32_t k = 0; k < model->n_feature; k++) {
            random ^= random << 13; /* xorshift64, Marsaglia 2003 */
            random ^= random >> 7;
            random ^= random << 17;
            request.x[k] =
                fp16_from_double((double)(random >> 11) * 0x1p-53 * 4 - 2, KL_X_FRAC, KL_X_ABS_MAX);
        }
        int mirrored = 0;
        for (int a = 0; a < 2; a++) {
            if (call(accels[a], a ? NULL : accel->guard, &request, &answers[a], limit, &took[a]))
                return cmd_error("bench pipeline: %s gives no answer to step %d", accels[a]->ops->name, i);
            if (a == 0)
                mirrored = accel->guard && accel_guard_mirrored(accel->guard);
            accels[a]->ops->poll(accels[a], &unheard); /* idle: the prepare, as the appliance does it */
        }
        if (!same_answer(&answers[0], &answers[1]))
            return cmd_error("bench pipeline: %s answers step %d differently from the C simulation",
                             accels[0]->ops->name, i);
        overhead->mirrored += (uint64_t)mirrored;
        if (i >= N_WARM && !mirrored) {
            histogram_record(&overhead->backend, took[0]);
            histogram_record(&overhead->csim, took[1]);
            overhead->steps++;
        }
        request.op = KL_OP_STEP;
        request.flags = KL_REQUEST_PREPARE;
        request.seq_no++;
    }
    return 0;
}

int bench_pipeline_measure_overhead(const struct run_accel *accel, const struct model *model,
                                    const struct clock_calibration *clock,
                                    struct bench_pipeline_overhead *overhead)
{
    *overhead = (struct bench_pipeline_overhead){.is_measured = 1};
    histogram_init(&overhead->backend);
    histogram_init(&overhead->csim);
    struct accel *csim = accel_csim_open(accel->build, 1);
    if (!csim)
        return cmd_error("bench pipeline: out of memory for the C simulation");
    const uint32_t status = accel_load(csim, 0, model->image, model->image->size_bytes);
    const int failed =
        status != KL_OK
            ? cmd_error("bench pipeline: the C simulation refuses the model's image: kernel status %u",
                        status)
            : measure(accel, csim, model, clock, overhead);
    csim->ops->close(csim);
    return failed;
}
