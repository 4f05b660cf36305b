#include <math.h>
#include <string.h>

#include "kl_tb_step.h"

/* ---- the kernel, whole or split ---- */

void tb_step_execute(struct tb_run *run, const struct kl_request *request, uint32_t wait_cycles,
                     struct kl_result *result)
{
    if (run->n_part == 1)
        run->build->exec(run->unit[0], request, result);
    else
        run->build->exec_pair(run->unit, request, wait_cycles, result);
}

uint32_t tb_step_save(const struct tb_run *run, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    return run->n_part == 1 ? run->build->save(run->unit[0], slot, stream, state)
                            : run->build->save_pair(run->unit, slot, stream, state);
}

uint32_t tb_step_restore(struct tb_run *run, uint32_t slot, uint32_t stream, const struct kl_state *state)
{
    return run->n_part == 1 ? run->build->restore(run->unit[0], slot, stream, state)
                            : run->build->restore_pair(run->unit, slot, stream, state);
}

/* ---- what is expected ---- */

int tb_step_is_good_x(const struct tb_model *model, const uint16_t *x)
{
    for (uint32_t k = 0; k < model->n_in; k++) {
        const double steps = tb_half_value(x[k]) * 0x1p11;
        if (!(fabs(steps) <= KL_X_ABS_MAX) || steps != floor(steps))
            return 0;
    }
    return 1;
}

struct kl_request tb_step_request(struct tb_run *run, uint32_t slot, uint32_t s, uint32_t op)
{
    return (struct kl_request){.abi_version = KL_ABI_VERSION,
                               .op = (uint16_t)op,
                               .slot = (uint16_t)slot,
                               .stream = run->slot[slot].stream[s].number,
                               .seq_no = run->seq_no++};
}

/* An answer but for logits, class and what a late one leaves out. */
struct kl_result tb_step_result(const struct tb_run *run, const struct kl_request *request,
                                uint32_t kernel_cycles, int prepared_after)
{
    const struct tb_run_slot *slot = &run->slot[request->slot];
    return (struct kl_result){.abi_version = KL_ABI_VERSION,
                              .status = KL_OK,
                              .stream = request->stream,
                              .seq_no = request->seq_no,
                              .slot = request->slot,
                              .kernel_cycles = kernel_cycles,
                              .prepare_cycles = prepared_after ? run->frame_cycles : slot->prepare_cycles,
                              .image_hash = slot->image->image_hash,
                              .n_class = (uint8_t)slot->model->n_class,
                              .logit_frac = (uint8_t)(slot->model->head_frac + KL_H_FRAC)};
}

struct kl_result tb_step_refusal(const struct kl_request *request, uint32_t status)
{
    struct kl_result refusal = {.abi_version = KL_ABI_VERSION,
                                .status = (uint16_t)status,
                                .stream = request->stream,
                                .seq_no = request->seq_no,
                                .slot = request->slot};
    refusal.check = kl_result_check(&refusal);
    return refusal;
}

static struct tb_trail trail_of(const struct tb_run *run, const struct kl_request *request)
{
    return (struct tb_trail){.build = run->build,
                             .n_part = run->n_part,
                             .mac_rows = run->info.mac_rows,
                             .model = run->slot[request->slot].model,
                             .request = request};
}

/* Takes the stream's state from the kernel and lets the oracle go on from there; a stream that has lost its
 * state is reset. */
void tb_step_follow_kernel(struct tb_run *run, uint32_t slot, uint32_t s)
{
    struct tb_run_stream *stream = &run->slot[slot].stream[s];
    struct kl_state state;
    struct kl_result result;
    memset(&stream->state, 0, sizeof stream->state);
    if (tb_step_save(run, slot, stream->number, &state) == KL_OK) {
        tb_trail_read_state(&state, &stream->state);
    } else {
        const struct kl_request request = tb_step_request(run, slot, s, KL_OP_RESET);
        tb_step_execute(run, &request, 0, &result);
    }
    stream->true_state = stream->state;
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u++)
            stream->true_state.c[l][u] *= 0x1p-18;
    }
    stream->prepared = TB_PREPARED_UNKNOWN;
}

/* Compares a whole answer. Returns 1: equal. */
int tb_step_compare_result(struct tb_run *run, const struct kl_request *request,
                           const struct kl_result *result, const struct kl_result *expected)
{
    struct kl_result right = *expected;
    right.check = kl_result_check(&right);
    run->report.check.n_case++;
    if (memcmp(result, &right, sizeof *result) == 0)
        return 1;
    const struct tb_trail trail = trail_of(run, request);
    tb_trail_result(&run->report.check, &trail, result, &right);
    return 0;
}

/* The stream's state as the oracle has it. Returns 1: the kernel's is the same. */
int tb_step_compare_state(struct tb_run *run, const struct kl_request *request, uint32_t s)
{
    const struct tb_run_slot *slot = &run->slot[request->slot];
    const struct tb_trail trail = trail_of(run, request);
    tb_trail_write_state(&slot->stream[s].state, slot->image, &run->oracle_state);
    const uint32_t status = tb_step_save(run, request->slot, request->stream, &run->kernel_state);
    run->report.check.n_case++;
    if (status == KL_OK && memcmp(&run->kernel_state, &run->oracle_state, sizeof run->oracle_state) == 0)
        return 1;
    tb_trail_state(&run->report.check, &trail, status, &run->kernel_state, &run->oracle_state);
    return 0;
}

/* ---- steps ---- */

static void note_true_step(struct tb_run *run, const struct tb_run_slot *slot, struct tb_run_stream *stream,
                           const double *x)
{
    const struct tb_model *model = slot->model;
    struct tb_run_report *report = &run->report;
    if (model->kind != TB_TYPICAL)
        return;
    tb_true_step(model, &stream->true_state, x, &run->true_answer);
    report->n_true_step++;
    report->n_flip += run->true_answer.cls != run->answer.cls;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        for (uint32_t u = 0; u < model->layer[l].n_hidden; u++)
            report->h_error_max =
                fmax(report->h_error_max, fabs(stream->state.h[l][u] - stream->true_state.h[l][u]));
    }
}

static void note_extremes(struct tb_run *run, const struct tb_run_slot *slot,
                          const struct tb_run_stream *stream)
{
    struct tb_run_report *report = &run->report;
    for (uint32_t l = 0; l < slot->model->n_layer; l++) {
        for (uint32_t u = 0; u < slot->model->layer[l].n_hidden; u++) {
            report->h_abs_max = fmax(report->h_abs_max, fabs(stream->state.h[l][u] * 0x1p15));
            report->c_abs_max = fmax(report->c_abs_max, fabs(stream->state.c[l][u]));
        }
    }
}

/* The oracle's side of a step: its answer into *expected and run->answer; the stream moves on. */
void tb_step_oracle(struct tb_run *run, const struct kl_request *request, uint32_t s,
                    struct kl_result *expected)
{
    struct tb_run_slot *slot = &run->slot[request->slot];
    struct tb_run_stream *stream = &slot->stream[s];
    double x[KL_N_IN_MAX];
    for (uint32_t k = 0; k < slot->model->n_in; k++)
        x[k] = tb_half_value(request->x[k]);
    run->before = stream->state;
    tb_oracle_step(slot->model, &stream->state, x, &run->answer);
    for (uint32_t k = 0; k < slot->model->n_class; k++)
        expected->logits[k] = (int64_t)run->answer.logit[k];
    expected->cls = (uint8_t)run->answer.cls;
    note_true_step(run, slot, stream, x);
    note_extremes(run, slot, stream);
    run->report.n_step++;
}

/* A step that is carried out, and its stream's state and every z behind it. */
void tb_step_exec(struct tb_run *run, struct kl_request *request, uint32_t s, uint32_t wait_cycles)
{
    struct tb_run_slot *slot = &run->slot[request->slot];
    struct tb_run_stream *stream = &slot->stream[s];
    struct kl_result result;
    struct tb_trail trail = trail_of(run, request);
    tb_step_execute(run, request, wait_cycles, &result);
    int prepared = stream->prepared;
    if (prepared == TB_PREPARED_UNKNOWN)
        prepared = result.kernel_cycles == slot->step_cycles[1];
    struct kl_result expected = tb_step_result(run, request, slot->step_cycles[prepared], 0);
    expected.wait_cycles = wait_cycles;
    tb_step_oracle(run, request, s, &expected);
    expected.check = kl_result_check(&expected);
    trail.was_prepared = prepared;
    trail.before = &run->before;
    trail.answer = &run->answer;
    stream->prepared = 0;
    run->report.check.n_case++;
    tb_trail_write_state(&stream->state, slot->image, &run->oracle_state);
    const uint32_t status = tb_step_save(run, request->slot, request->stream, &run->kernel_state);
    const int good = memcmp(&result, &expected, sizeof result) == 0 && status == KL_OK &&
                     memcmp(&run->kernel_state, &run->oracle_state, sizeof run->oracle_state) == 0 &&
                     tb_trail_same_z(&trail, run->unit);
    if (!good) {
        tb_trail_step(&run->report.check, &trail, run->unit, &result, &expected, status, &run->kernel_state,
                      &run->oracle_state);
        tb_step_follow_kernel(run, request->slot, s);
    }
    if (run->hooks.answered)
        run->hooks.answered(run->hooks.context, request, &result, &run->answer);
}

/* A step whose x the kernel has to refuse; the stream stays as it was. */
void tb_step_refused(struct tb_run *run, const struct kl_request *request, uint32_t s)
{
    struct kl_result result;
    const struct kl_result expected = tb_step_refusal(request, KL_E_INPUT);
    tb_step_execute(run, request, 0, &result);
    int good = tb_step_compare_result(run, request, &result, &expected);
    good = good && tb_step_compare_state(run, request, s);
    run->slot[request->slot].stream[s].prepared = TB_PREPARED_UNKNOWN;
    if (!good)
        tb_step_follow_kernel(run, request->slot, s);
}

/* KL_OP_PREPARE or KL_OP_RESET. */
void tb_step_operation(struct tb_run *run, uint32_t slot_no, uint32_t s, uint32_t op)
{
    struct tb_run_slot *slot = &run->slot[slot_no];
    struct tb_run_stream *stream = &slot->stream[s];
    const struct kl_request request = tb_step_request(run, slot_no, s, op);
    struct kl_result result;
    tb_step_execute(run, &request, 0, &result);
    uint32_t cycles = slot->reset_cycles;
    if (op == KL_OP_PREPARE) {
        if (stream->prepared == TB_PREPARED_UNKNOWN)
            stream->prepared = result.kernel_cycles == run->frame_cycles;
        cycles = stream->prepared ? run->frame_cycles : slot->prepare_cycles;
    } else {
        memset(&stream->state, 0, sizeof stream->state);
        memset(&stream->true_state, 0, sizeof stream->true_state);
    }
    stream->prepared = op == KL_OP_PREPARE;
    const struct kl_result expected = tb_step_result(run, &request, cycles, stream->prepared);
    int good = tb_step_compare_result(run, &request, &result, &expected);
    if (op == KL_OP_RESET)
        good = good && tb_step_compare_state(run, &request, s);
    if (!good)
        tb_step_follow_kernel(run, slot_no, s);
}

/* A budget that the operation misses by one cycle: late, nothing changed. Then the same is left to be met
 * exactly. */
void tb_step_late(struct tb_run *run, struct kl_request *request, uint32_t s, uint32_t wait_cycles)
{
    struct tb_run_slot *slot = &run->slot[request->slot];
    struct tb_run_stream *stream = &slot->stream[s];
    struct kl_result result;
    if (stream->prepared == TB_PREPARED_UNKNOWN)
        tb_step_operation(run, request->slot, s, KL_OP_PREPARE);
    if (stream->prepared == TB_PREPARED_UNKNOWN)
        return; /* a mismatch, reported */
    const uint32_t cycles = wait_cycles + slot->step_cycles[stream->prepared];
    request->budget_cycles = cycles - 1;
    tb_step_execute(run, request, wait_cycles, &result);
    struct kl_result expected = tb_step_result(run, request, run->frame_cycles, stream->prepared);
    expected.flags = KL_RESULT_LATE;
    expected.wait_cycles = wait_cycles;
    int good = tb_step_compare_result(run, request, &result, &expected);
    good = good && tb_step_compare_state(run, request, s);
    if (!good)
        tb_step_follow_kernel(run, request->slot, s);
    request->budget_cycles = cycles;
}

/* The stream's next input. Returns 0: there is none, and the run has ended. */
int tb_step_next_x(struct tb_run *run, uint32_t slot, uint32_t s, uint16_t x[KL_N_IN_MAX])
{
    const struct tb_model *model = run->slot[slot].model;
    double value[KL_N_IN_MAX];
    for (uint32_t k = model->n_in; k < KL_N_IN_MAX; k++)
        x[k] = 0x7c00; /* beyond n_in everything is ignored, infinities too */
    if (run->hooks.input) {
        run->ended |= !run->hooks.input(run->hooks.context, slot, s, x);
        return !run->ended;
    }
    tb_random_x(model, value, &run->seed);
    for (uint32_t k = 0; k < model->n_in; k++)
        x[k] = tb_half(value[k]);
    return 1;
}
