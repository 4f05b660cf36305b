/* Requests on a compute unit: check, budget, operation, answer. */
#include "kl_core.h"

#include <string.h>

#include "head.h"
#include "kl_pragma.h"
#include "records.h"

uint32_t core_check_request(const struct kl_core *core, const struct kl_request *request)
{
    if (request->abi_version != KL_ABI_VERSION)
        return KL_E_ABI;
    if (request->op < KL_OP_STEP || request->op > KL_OP_RESET || (request->flags & ~KL_REQUEST_PREPARE) != 0)
        return KL_E_OP;
    if (request->slot >= KL_BUILD_SLOTS)
        return KL_E_SLOT;
    if (request->stream >= KL_BUILD_STREAMS)
        return KL_E_STREAM;
    if (!core->model[request->slot].loaded)
        return KL_E_EMPTY;
    if (core->lost[request->slot][request->stream] && request->op != KL_OP_RESET)
        return KL_E_STATE;
    return KL_OK;
}

uint32_t core_n_in(const struct kl_core *core, const struct kl_request *request)
{
    return request->op == KL_OP_STEP && core_check_request(core, request) == KL_OK
               ? core->model[request->slot].shape.n_in
               : 0;
}

void core_take_x(struct kl_core *core, const uint16_t *x, uint32_t n_in, uint32_t col)
{
    struct kl_run *run = &core->run;
    const int good = operand_fetch_x(x, n_in, col, &run->x[col]);
    run->x_good = col == 0 ? (uint32_t)good : run->x_good & (uint32_t)good;
}

void core_take(struct kl_core *core, const struct kl_request *request)
{
    const uint32_t n_in = core_n_in(core, request);
column:
    for (uint32_t col = 0; col < seq_n_col(n_in); col++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* a column step per cycle, beside what brings them */
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 16)
        core_take_x(core, request->x, n_in, col);
    }
}

/* What the operation is going to take: known before it begins, since its schedule is. */
static uint32_t cycles_ahead(const struct kl_core *core, const struct kl_request *request)
{
    const struct kl_model *model = &core->model[request->slot];
    const uint32_t prepared = core->prepared[request->slot][request->stream];
    if (request->op == KL_OP_STEP)
        return prepared ? model->cycles_step_prepared : model->cycles_step;
    if (request->op == KL_OP_PREPARE)
        return prepared ? (uint32_t)KL_FRAME : model->cycles_prepare;
    return seq_reset_cycles();
}

/* Everything of an answer but what the operation brings. Returns 1 if the operation is to be carried out. */
static int begin(const struct kl_core *core, const struct kl_request *request, uint32_t wait_cycles,
                 struct kl_result *result)
{
    memset(result, 0, sizeof *result);
    result->abi_version = KL_ABI_VERSION;
    result->stream = request->stream;
    result->seq_no = request->seq_no;
    result->slot = request->slot;
    result->status = (uint16_t)core_check_request(core, request);
    if (result->status != KL_OK)
        return 0;
    const struct kl_model *model = &core->model[request->slot];
    const uint32_t cycles = cycles_ahead(core, request);
    const int late = request->budget_cycles != 0 && (uint64_t)wait_cycles + cycles > request->budget_cycles;
    const int prepared =
        late ? core->prepared[request->slot][request->stream] : request->op == KL_OP_PREPARE; /* afterwards */
    result->flags = late ? KL_RESULT_LATE : 0;
    result->kernel_cycles = late ? (uint32_t)KL_FRAME : cycles;
    result->wait_cycles = wait_cycles;
    result->prepare_cycles = prepared ? (uint32_t)KL_FRAME : model->cycles_prepare;
    result->image_hash = model->image_hash;
    result->n_class = (uint8_t)model->shape.n_class;
    result->logit_frac = (uint8_t)(model->head_frac + KL_H_FRAC);
    return !late;
}

/* Turns what begin wrote into an error's answer. */
static void fail(struct kl_result *result, uint32_t status)
{
    const struct kl_result begun = *result;
    memset(result, 0, sizeof *result);
    result->abi_version = KL_ABI_VERSION;
    result->status = (uint16_t)status;
    result->stream = begun.stream;
    result->seq_no = begun.seq_no;
    result->slot = begun.slot;
}

static void end(struct kl_core *core, struct kl_result *result)
{
    record_result_seal(result);
    core->cycles += result->status == KL_OK ? result->kernel_cycles : (uint32_t)KL_FRAME;
}

static void answer(const struct kl_core *core, struct kl_result *result)
{
    result->cls = head_argmax(core->run.logit, result->n_class);
logit:
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
        KL_PRAGMA(HLS UNROLL)
        result->logits[k] = core->run.logit[k]; /* 0 from n_class on: zero weights and bias */
    }
}

/* ---- one unit ---- */

static_assert((int)KL_DEPTH_H >= 24, "the distance of h in run's pragma");

/* One cycle: of the schedule, or behind it of a step's answer, whose beats leave from inside the pipeline.
 * (What stands behind a pipelined loop waits until the loop's last iteration has left its last stage, far
 * behind the head's.) The beat with seq_no goes last: when it is there, the answer is whole. */
static int run_cycle(struct kl_core *core, struct kl_result *result, uint32_t *words)
{
    KL_PRAGMA(HLS INLINE)
    struct kl_run *r = &core->run;
    if (datapath_cycle(core, NULL, NULL))
        return 1;
    if (!words || r->n_beat == RECORD_RESULT_WORDS / RECORD_BEAT_WORDS)
        return 0;
    answer(core, result);
    record_result_seal(result);
    r->n_beat++;
    record_result_beat(result, RECORD_RESULT_WORDS / RECORD_BEAT_WORDS - r->n_beat, words);
    return 1;
}

/* Returns the cycles that the sequencer took. words: where a step's answer goes, or NULL. */
static uint32_t run(struct kl_core *core, enum seq_mode mode, struct kl_result *result, uint32_t *words)
{
    KL_PRAGMA(HLS INLINE off) /* the one array, whoever calls */
    datapath_start(core, mode);
    core->run.n_beat = 0;
cycle:
    while (run_cycle(core, result, words)) {
        /* One cycle of the schedule per iteration. The new h is read at least KL_DEPTH_H iterations after it
         * was written: told as a distance, so that a longer pipeline costs II and not a wrong answer. The
         * stored h is either written (step) or read (prepare), z the other way; a c is updated once; acc and
         * run.z are carried through one adder. */
        KL_PRAGMA(HLS PIPELINE II = 1)
        KL_PRAGMA(HLS DEPENDENCE variable = core->run.h inter RAW distance = 24 true)
        KL_PRAGMA(HLS DEPENDENCE variable = core->h inter false)
        KL_PRAGMA(HLS DEPENDENCE variable = core->c inter false)
        KL_PRAGMA(HLS DEPENDENCE variable = core->z inter false)
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 40 max = 500)
    }
    return core->run.sequencer.now;
}

/* A step, after its prepare where that has not been done. Returns enum kl_status. */
static uint32_t step(struct kl_core *core, const struct kl_request *request, struct kl_result *result,
                     uint32_t *words)
{
    KL_PRAGMA(HLS INLINE)
    uint8_t *prepared = &core->prepared[request->slot][request->stream];
    uint32_t cycles = KL_LAT_DECODE - 1 + KL_DEPTH_HEAD;
    if (!core->run.x_good)
        return KL_E_INPUT;
    if (!*prepared)
        cycles += run(core, SEQ_PREPARE, result, NULL) + KL_DEPTH_DRAIN;
    cycles += run(core, SEQ_STEP, result, words);
    *prepared = 0;                  /* h has moved on */
    result->kernel_cycles = cycles; /* counted, and what cycles_ahead said */
    answer(core, result);
    return KL_OK;
}

void core_exec_taken(struct kl_core *core, const struct kl_request *request, uint32_t wait_cycles,
                     struct kl_result *result, uint32_t *words)
{
    /* One instance, as in kl_kernel.c. */
    KL_PRAGMA(HLS INLINE off)
    KL_PRAGMA(HLS ALLOCATION function instances = run limit = 1)
    const int go = begin(core, request, wait_cycles, result);
    if (result->status == KL_OK && core->n_part > 1) {
        fail(result, KL_E_PEER);
    } else if (go) {
        struct kl_run *r = &core->run;
        r->slot = request->slot;
        r->stream = request->stream;
        r->seq_no = request->seq_no;
        uint8_t *prepared = &core->prepared[r->slot][r->stream];
        switch (request->op) {
        case KL_OP_STEP: {
            const uint32_t status = step(core, request, result, words);
            if (status != KL_OK)
                fail(result, status);
            break;
        }
        case KL_OP_PREPARE:
            if (!*prepared)
                result->kernel_cycles = KL_FRAME + run(core, SEQ_PREPARE, result, NULL) + KL_DEPTH_DRAIN;
            *prepared = 1;
            break;
        default: /* KL_OP_RESET: core_check_request knows no other */
            stream_reset(core, r->slot, r->stream);
            break;
        }
    }
    end(core, result);
}

void core_exec(struct kl_core *core, const struct kl_request *request, uint32_t wait_cycles,
               struct kl_result *result)
{
    core_take(core, request);
    core_exec_taken(core, request, wait_cycles, result, NULL);
}

/* ---- a pair ---- */

/* Both units cycle by cycle; their links hold nothing from before. Returns the cycles of the slower one. */
static uint32_t run_pair(struct kl_core *const core[2], enum seq_mode mode)
{
    struct link link[2]; /* [u]: to unit u */
    int running[2] = {1, 1};
    memset(link, 0, sizeof link);
    for (int u = 0; u < 2; u++) {
        datapath_start(core[u], mode);
        running[u] = !core[u]->run.sequencer.done;
    }
cycle:
    while (running[0] || running[1]) {
        for (int u = 0; u < 2; u++) {
            if (running[u])
                running[u] = datapath_cycle(core[u], &link[u], &link[1 - u]);
        }
    }
    const uint32_t now[2] = {core[0]->run.sequencer.now, core[1]->run.sequencer.now};
    return now[0] > now[1] ? now[0] : now[1];
}

static uint32_t step_pair(struct kl_core *const core[2], const struct kl_request *request,
                          struct kl_result *result)
{
    const uint32_t slot = request->slot, stream = request->stream;
    uint32_t cycles = KL_LAT_DECODE - 1 + KL_DEPTH_HEAD;
    if (!core[0]->run.x_good)
        return KL_E_INPUT;
    if (!core[0]->prepared[slot][stream])
        cycles += run_pair(core, SEQ_PREPARE) + KL_DEPTH_DRAIN;
    cycles += run_pair(core, SEQ_STEP);
    core[0]->prepared[slot][stream] = core[1]->prepared[slot][stream] = 0;
    result->kernel_cycles = cycles;
    /* Both hold all of h and computed the head: they must agree. */
    if (!core[0]->run.peer_failed && !core[1]->run.peer_failed &&
        memcmp(core[0]->run.logit, core[1]->run.logit, sizeof core[0]->run.logit) == 0)
        return KL_OK;
    core[0]->lost[slot][stream] = core[1]->lost[slot][stream] = 1;
    return KL_E_PEER;
}

int core_pair_fits(struct kl_core *const core[2], uint32_t slot)
{
    return core[0]->part != core[1]->part &&
           core[0]->model[slot].image_hash == core[1]->model[slot].image_hash;
}

int core_pair_agrees(struct kl_core *const core[2], uint32_t slot, uint32_t stream)
{
    return memcmp(core[0]->h[slot][stream], core[1]->h[slot][stream], sizeof core[0]->h[slot][stream]) == 0;
}

/* Halves that do not match would agree on a wrong answer. A reset makes their states one. */
static int halves_match(struct kl_core *const core[2], const struct kl_request *request)
{
    return core_pair_fits(core, request->slot) &&
           (request->op == KL_OP_RESET || core_pair_agrees(core, request->slot, request->stream));
}

void core_exec_pair(struct kl_core *const core[2], const struct kl_request *request, uint32_t wait_cycles,
                    struct kl_result *result)
{
    core_take(core[0], request);
    core_take(core[1], request);
    struct kl_result other;
    const int go = begin(core[0], request, wait_cycles, result);
    begin(core[1], request, wait_cycles, &other);
    if (result->status == KL_OK && other.status == KL_E_EMPTY)
        *result = other;
    else if (other.status == KL_OK && result->status == KL_E_EMPTY)
        other = *result;
    if (memcmp(result, &other, sizeof other) != 0 ||
        (result->status == KL_OK && !halves_match(core, request))) {
        fail(result, KL_E_PEER);
    } else if (go && result->status == KL_OK) {
        for (int u = 0; u < 2; u++) {
            core[u]->run.slot = request->slot;
            core[u]->run.stream = request->stream;
            core[u]->run.seq_no = request->seq_no;
        }
        const uint32_t slot = request->slot, stream = request->stream;
        switch (request->op) {
        case KL_OP_STEP: {
            const uint32_t status = step_pair(core, request, result);
            if (status == KL_OK)
                answer(core[0], result);
            else
                fail(result, status);
            break;
        }
        case KL_OP_PREPARE:
            if (!core[0]->prepared[slot][stream])
                result->kernel_cycles = KL_FRAME + run_pair(core, SEQ_PREPARE) + KL_DEPTH_DRAIN;
            core[0]->prepared[slot][stream] = core[1]->prepared[slot][stream] = 1;
            break;
        default:
            stream_reset(core[0], slot, stream);
            stream_reset(core[1], slot, stream);
            break;
        }
    }
    end(core[0], result);
    core[1]->cycles = core[0]->cycles;
}
