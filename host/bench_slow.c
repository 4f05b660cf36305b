#include "bench_slow.h"

#include <stdlib.h>

#include "clock.h"

struct bench_slow {
    struct accel accel;
    struct accel *inner;
    uint64_t step_cycles, free_at;  /* TSC: from when on it can begin another step */
    uint64_t ready[KL_QUEUE_DEPTH]; /* TSC at which an outstanding answer may be told */
    uint32_t head, tail;
    int is_held;
    struct kl_result held; /* the next answer, before its time */
};

static int slow_submit(struct accel *accel, const struct kl_request *request)
{
    struct bench_slow *s = (struct bench_slow *)accel;
    const int refused = s->tail - s->head == KL_QUEUE_DEPTH ? -1 : s->inner->ops->submit(s->inner, request);
    if (refused)
        return refused;
    if (request->op == KL_OP_STEP) {
        const uint64_t now = clock_tsc();
        s->free_at = ((int64_t)(s->free_at - now) > 0 ? s->free_at : now) + s->step_cycles;
    }
    s->ready[s->tail++ % KL_QUEUE_DEPTH] = s->free_at;
    return 0;
}

static int slow_poll(struct accel *accel, struct kl_result *result)
{
    struct bench_slow *s = (struct bench_slow *)accel;
    if (s->head == s->tail)
        return s->inner->ops->poll(s->inner, result);
    if (!s->is_held) {
        const int got = s->inner->ops->poll(s->inner, &s->held);
        if (got < 0)
            s->head = s->tail;
        if (got <= 0)
            return got;
        s->is_held = 1;
    }
    if ((int64_t)(clock_tsc() - s->ready[s->head % KL_QUEUE_DEPTH]) < 0)
        return 0;
    *result = s->held;
    s->is_held = 0;
    s->head++;
    return 1;
}

static uint32_t slow_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    struct accel *inner = ((struct bench_slow *)accel)->inner;
    return inner->ops->load_begin(inner, slot, image, size_bytes);
}

static uint32_t slow_load_advance(struct accel *accel)
{
    struct accel *inner = ((struct bench_slow *)accel)->inner;
    return inner->ops->load_advance(inner);
}

static uint32_t slow_save(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    struct accel *inner = ((struct bench_slow *)accel)->inner;
    return inner->ops->save(inner, slot, stream, state);
}

static uint32_t slow_restore(struct accel *accel, uint32_t slot, uint32_t stream,
                             const struct kl_state *state)
{
    struct accel *inner = ((struct bench_slow *)accel)->inner;
    return inner->ops->restore(inner, slot, stream, state);
}

static void slow_info(struct accel *accel, struct kl_info *info)
{
    struct accel *inner = ((struct bench_slow *)accel)->inner;
    inner->ops->info(inner, info);
}

static void slow_warm(struct accel *accel, uint32_t slot, uint32_t stream)
{
    struct accel *inner = ((struct bench_slow *)accel)->inner;
    inner->ops->warm(inner, slot, stream);
}

static void slow_close(struct accel *accel)
{
    free(accel);
}

struct accel *bench_slow_open(struct accel *inner, uint64_t step_cycles)
{
    static const struct accel_ops ops = {.name = "slowed",
                                         .submit = slow_submit,
                                         .poll = slow_poll,
                                         .load_begin = slow_load_begin,
                                         .load_advance = slow_load_advance,
                                         .save = slow_save,
                                         .restore = slow_restore,
                                         .info = slow_info,
                                         .warm = slow_warm,
                                         .close = slow_close};
    struct bench_slow *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->accel.ops = &ops;
    s->inner = inner;
    s->step_cycles = step_cycles;
    return &s->accel;
}
