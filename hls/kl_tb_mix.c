#include <string.h>

#include "kl_tb_step.h"

/* A request that has to be refused and to change nothing. */
static void refused_request(struct tb_run *run, uint32_t slot_no, uint32_t s)
{
    static const uint16_t bad_x[] = {0x7c00 /* inf */, 0xfe00 /* NaN */, 0x4c00 /* 16 */, 0x0001 /* 2^-24 */};
    struct kl_request request = tb_step_request(run, slot_no, s, KL_OP_STEP);
    struct kl_result result;
    uint32_t status;
    switch (tb_random_below(&run->seed, 6)) {
    case 0:
        request.abi_version ^= 1;
        status = KL_E_ABI;
        break;
    case 1:
        request.op = (uint16_t)(tb_random_below(&run->seed, 2) ? 0 : KL_OP_RESET + 1);
        status = KL_E_OP;
        break;
    case 2:
        request.flags = 1u << (1 + tb_random_below(&run->seed, 15));
        status = KL_E_OP;
        break;
    case 3:
        request.slot = KL_N_SLOT;
        status = KL_E_SLOT;
        break;
    case 4:
        request.stream = run->info.n_stream;
        status = KL_E_STREAM;
        break;
    default:
        request.x[tb_random_below(&run->seed, run->slot[slot_no].model->n_in)] =
            bad_x[tb_random_below(&run->seed, 4)];
        tb_step_refused(run, &request, s);
        return;
    }
    tb_step_execute(run, &request, 0, &result);
    const struct kl_result expected = tb_step_refusal(&request, status);
    run->report.check.n_case++;
    if (memcmp(&result, &expected, sizeof result) != 0)
        tb_report_mismatch(&run->report.check, "seq_no %u: a request to refuse got status %u, expected %u",
                           request.seq_no, result.status, status);
}

/* A state with one bit turned, or of the other slot's model, is refused. */
static void refused_restore(struct tb_run *run, uint32_t slot_no, uint32_t s, const struct kl_state *state)
{
    struct kl_state damaged = *state;
    const uint32_t bit = tb_random_below(&run->seed, 8 * sizeof damaged);
    const uint32_t number = run->slot[slot_no].stream[s].number, other = 1 - slot_no;
    ((uint8_t *)&damaged)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    uint32_t status = tb_step_restore(run, slot_no, number, &damaged);
    run->report.check.n_case++;
    if (status != KL_E_STATE)
        tb_report_mismatch(&run->report.check,
                           "slot %u, stream %u: restore of a state with bit %u turned: "
                           "status %u, expected %u",
                           slot_no, number, bit, status, KL_E_STATE);
    if (!run->slot[other].model || run->slot[other].image->image_hash == state->image_hash)
        return;
    status = tb_step_restore(run, other, number, state);
    run->report.check.n_case++;
    if (status != KL_E_STATE)
        tb_report_mismatch(&run->report.check,
                           "slot %u, stream %u: restore of another model's state: status "
                           "%u, expected %u",
                           other, number, status, KL_E_STATE);
}

static void restore_into(struct tb_run *run, uint32_t slot_no, uint32_t s, const struct kl_state *state)
{
    struct tb_run_stream *stream = &run->slot[slot_no].stream[s];
    const struct kl_request request = tb_step_request(run, slot_no, s, KL_OP_RESET); /* for the trail */
    const uint32_t status = tb_step_restore(run, slot_no, stream->number, state);
    run->report.check.n_case++;
    stream->prepared = 0;
    if (status != KL_OK)
        tb_report_mismatch(&run->report.check, "slot %u, stream %u: restore of a saved state: status %u",
                           slot_no, stream->number, status);
    if (status != KL_OK || !tb_step_compare_state(run, &request, s))
        tb_step_follow_kernel(run, slot_no, s);
}

/* Saves a stream, lets it go on, moves the saved state to another stream, and the other's back to it. */
static void move_states(struct tb_run *run, uint32_t slot_no, uint32_t s)
{
    struct tb_run_slot *slot = &run->slot[slot_no];
    struct kl_state first, second;
    uint32_t t = (s + 1 + tb_random_below(&run->seed, TB_RUN_STREAMS - 1)) % TB_RUN_STREAMS;
    if (t == 0 && slot->model->kind == TB_SATURATE)
        t = s == 1 ? 2 : 1; /* the stream whose c is on its way to the bound */
    const uint32_t status[2] = {tb_step_save(run, slot_no, slot->stream[s].number, &first),
                                tb_step_save(run, slot_no, slot->stream[t].number, &second)};
    run->report.check.n_case += 2;
    if (status[0] != KL_OK || status[1] != KL_OK) {
        tb_report_mismatch(&run->report.check, "slot %u, streams %u and %u: save: status %u and %u", slot_no,
                           slot->stream[s].number, slot->stream[t].number, status[0], status[1]);
        return;
    }
    refused_restore(run, slot_no, s, &first);
    if (tb_random_below(&run->seed, 2))
        tb_step_operation(run, slot_no, t, KL_OP_PREPARE); /* of the state that is about to go */
    const struct tb_state state = slot->stream[s].state, true_state = slot->stream[s].true_state;
    slot->stream[s].state = slot->stream[t].state;
    slot->stream[s].true_state = slot->stream[t].true_state;
    slot->stream[t].state = state;
    slot->stream[t].true_state = true_state;
    restore_into(run, slot_no, t, &first);
    restore_into(run, slot_no, s, &second);
}

/* One answer from the queue. Returns whether a prepare follows it. */
static int burst_answer(struct tb_run *run, const struct kl_request *request, uint32_t s,
                        const struct kl_result *result)
{
    struct tb_run_slot *slot = &run->slot[request->slot];
    struct tb_run_stream *stream = &slot->stream[s];
    struct kl_result expected = tb_step_refusal(request, KL_E_INPUT);
    const int good_x = tb_step_is_good_x(slot->model, request->x);
    if (good_x) {
        if (stream->prepared == TB_PREPARED_UNKNOWN)
            stream->prepared = result->kernel_cycles == slot->step_cycles[1];
        expected = tb_step_result(run, request, slot->step_cycles[stream->prepared], 0);
        expected.wait_cycles = result->wait_cycles; /* the controller's check proves it */
        tb_step_oracle(run, request, s, &expected);
    }
    stream->prepared = good_x ? 0 : TB_PREPARED_UNKNOWN;
    if (!tb_step_compare_result(run, request, result, &expected))
        tb_step_follow_kernel(run, request->slot, s);
    if (good_x && run->hooks.answered)
        run->hooks.answered(run->hooks.context, request, result, &run->answer);
    return good_x && request->flags & KL_REQUEST_PREPARE;
}

/* Steps through the queue, some of them with a prepare behind: answers in order, each the oracle's. */
static void burst(struct tb_run *run, uint32_t slot_no)
{
    struct tb_run_slot *slot = &run->slot[slot_no];
    struct kl_request request[KL_QUEUE_DEPTH];
    uint32_t s[KL_QUEUE_DEPTH];
    struct kl_result result;
    uint32_t n = 1 + tb_random_below(&run->seed, KL_QUEUE_DEPTH), n_posted = 0;
    for (; n_posted < n; n_posted++) {
        struct kl_request *r = &request[n_posted];
        s[n_posted] = tb_random_below(&run->seed, TB_RUN_STREAMS);
        *r = tb_step_request(run, slot_no, s[n_posted], KL_OP_STEP);
        r->flags = (uint16_t)tb_random_below(&run->seed, 2);
        if (!tb_step_next_x(run, slot_no, s[n_posted], r->x))
            break;
        if (run->build->post(run->unit[0], r) != 0) {
            tb_report_mismatch(&run->report.check, "post refused with %u outstanding", n_posted);
            break;
        }
    }
    if (n_posted == KL_QUEUE_DEPTH && run->build->post(run->unit[0], &request[0]) == 0)
        tb_report_mismatch(&run->report.check, "post took a request beyond the queue's depth");
    int wanted[TB_RUN_STREAMS] = {0};
    for (uint32_t i = 0; i < n_posted; i++) {
        if (!run->build->take(run->unit[0], &result)) {
            tb_report_mismatch(&run->report.check, "seq_no %u: no answer in the queue", request[i].seq_no);
            break;
        }
        wanted[s[i]] |= burst_answer(run, &request[i], s[i], &result);
    }
    if (run->build->take(run->unit[0], &result))
        tb_report_mismatch(&run->report.check, "seq_no %u: one answer too many", result.seq_no);
    for (uint32_t i = 0; i < TB_RUN_STREAMS; i++) {
        const struct kl_request about = tb_step_request(run, slot_no, i, KL_OP_STEP);
        if (wanted[i] && slot->stream[i].prepared == 0)
            slot->stream[i].prepared = 1; /* done when take found nothing else to do */
        if (!tb_step_compare_state(run, &about, i))
            tb_step_follow_kernel(run, slot_no, i);
    }
}

void tb_step_disturb(struct tb_run *run, uint32_t slot, uint32_t s)
{
    uint64_t *seed = &run->seed;
    if (tb_random_below(seed, 64) == 0)
        tb_step_operation(run, slot, s, KL_OP_RESET);
    if (tb_random_below(seed, 16) == 0)
        refused_request(run, slot, s);
    if (tb_random_below(seed, 32) == 0)
        move_states(run, slot, s);
    if (run->n_part == 1 && tb_random_below(seed, 32) == 0)
        burst(run, slot);
}
