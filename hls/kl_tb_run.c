#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kl_tb_step.h"

/* One step of a stream with what goes before and behind it. Returns 0: no more input. */
static int tick(struct tb_run *run, uint32_t slot, uint32_t s, enum tb_run_how how)
{
    uint64_t *seed = &run->seed;
    const int mix = how == TB_RUN_MIX;
    const uint32_t n_prepare = mix ? tb_random_below(seed, 3) : 0;
    for (uint32_t i = 0; i < n_prepare; i++)
        tb_step_operation(run, slot, s, KL_OP_PREPARE);
    struct kl_request request = tb_step_request(run, slot, s, KL_OP_STEP);
    if (!tb_step_next_x(run, slot, s, request.x))
        return 0;
    if (!tb_step_is_good_x(run->slot[slot].model, request.x)) {
        tb_step_refused(run, &request, s);
        return 1;
    }
    const uint32_t wait_cycles = mix && run->n_part > 1 ? tb_random_below(seed, 1000) : 0;
    if (mix && tb_random_below(seed, 8) == 0)
        tb_step_late(run, &request, s, wait_cycles);
    tb_step_exec(run, &request, s, wait_cycles);
    if (!mix)
        tb_step_operation(run, slot, s, KL_OP_PREPARE);
    return 1;
}

static int may_go_on(const struct tb_run *run)
{
    return !run->ended && run->report.check.n_mismatch < TB_RUN_MISMATCH_MAX;
}

int tb_run_steps(struct tb_run *run, uint32_t slot, enum tb_run_how how, uint32_t n_step)
{
    uint64_t *seed = &run->seed;
    assert(run->slot[slot].model);
    for (uint32_t i = 0; i < n_step && may_go_on(run); i++) {
        if (how == TB_RUN_PLAIN) {
            tick(run, slot, i % TB_RUN_STREAMS, how);
            continue;
        }
        /* c moves by at most 1 per step: a SATURATE model has to stay on one stream to get anywhere. */
        const int stay = run->slot[slot].model->kind == TB_SATURATE && tb_random_below(seed, 8) != 0;
        const uint32_t s = stay ? 0 : tb_random_below(seed, TB_RUN_STREAMS);
        if (!stay && s != 0)
            tb_step_disturb(run, slot, s);
        if (!may_go_on(run) || !tick(run, slot, s, how))
            break;
        if (run->slot[1 - slot].model && tb_random_below(seed, 8) == 0)
            tick(run, 1 - slot, tb_random_below(seed, TB_RUN_STREAMS), how);
    }
    return may_go_on(run);
}

/* The kernel's streams that a slot's run uses: the first, the last, some in between. */
static void choose_streams(struct tb_run *run, struct tb_run_slot *slot)
{
    const uint32_t n_stream = run->info.n_stream, gap = (n_stream - 2) / (TB_RUN_STREAMS - 2);
    memset(slot->stream, 0, sizeof slot->stream);
    for (uint32_t s = 0; s < TB_RUN_STREAMS; s++)
        slot->stream[s].number = s == 0 ? 0
                                 : s == TB_RUN_STREAMS - 1
                                     ? n_stream - 1
                                     : 1 + (s - 1) * gap + tb_random_below(&run->seed, gap);
}

/* A slot is empty for as long as its load lasts, of a pair until both halves are done. */
static void refused_while_loading(struct tb_run *run, uint32_t slot)
{
    const struct kl_request request = {
        .abi_version = KL_ABI_VERSION, .op = KL_OP_STEP, .slot = (uint16_t)slot, .seq_no = run->seq_no++};
    const struct kl_result expected = tb_step_refusal(&request, KL_E_EMPTY);
    struct kl_result result;
    tb_step_execute(run, &request, 0, &result);
    run->report.check.n_case++;
    if (memcmp(&result, &expected, sizeof result) != 0)
        tb_report_mismatch(&run->report.check, "slot %u while it loads: status %u, expected %u", slot,
                           result.status, KL_E_EMPTY);
}

int tb_run_load(struct tb_run *run, uint32_t slot_no, const struct tb_model *model,
                const struct kl_image_header *image)
{
    struct tb_run_slot *slot = &run->slot[slot_no], *other = &run->slot[1 - slot_no];
    uint32_t status[2] = {KL_OK, KL_OK};
    slot->model = NULL;
    run->report.check.n_case++;
    for (uint32_t u = 0; u < run->n_part; u++)
        status[u] = run->build->load_begin(run->unit[u], slot_no, image, image->size_bytes);
    if (status[0] != KL_OK || status[1] != KL_OK) {
        tb_report_mismatch(&run->report.check, "slot %u: load_begin: status %u and %u", slot_no, status[0],
                           status[1]);
        return 0;
    }
    for (uint32_t u = 0; u < run->n_part; u++)
        status[u] = KL_E_BUSY;
    for (uint32_t n = 0; status[0] == KL_E_BUSY || status[1] == KL_E_BUSY; n++) {
        if (n % 1021 == 100) {
            refused_while_loading(run, slot_no);
            if (other->model && !run->hooks.input && may_go_on(run))
                tick(run, 1 - slot_no, tb_random_below(&run->seed, TB_RUN_STREAMS), TB_RUN_MIX);
        }
        for (uint32_t u = 0; u < run->n_part; u++) {
            if (status[u] == KL_E_BUSY)
                status[u] = run->build->load_advance(run->unit[u]);
        }
    }
    if (status[0] != KL_OK || status[1] != KL_OK) {
        tb_report_mismatch(&run->report.check, "slot %u: image refused: status %u and %u", slot_no, status[0],
                           status[1]);
        return 0;
    }
    slot->model = model;
    slot->image = image;
    for (int prepared = 0; prepared < 2; prepared++)
        slot->step_cycles[prepared] = run->build->step_cycles(image, run->n_part, prepared);
    slot->prepare_cycles = run->build->prepare_cycles(image, run->n_part);
    slot->reset_cycles = run->build->reset_cycles();
    choose_streams(run, slot);
    struct kl_info info;
    run->build->info(run->unit[run->n_part - 1], &info);
    if (info.image_hash[slot_no] != image->image_hash)
        tb_report_mismatch(&run->report.check, "slot %u: kl_info shows image hash %016llx, loaded %016llx",
                           slot_no, (unsigned long long)info.image_hash[slot_no],
                           (unsigned long long)image->image_hash);
    return 1;
}

struct tb_run *tb_run_open(const struct kl_build *build, uint32_t n_part, uint64_t seed)
{
    assert(n_part >= 1 && n_part <= 2);
    struct tb_run *run = (struct tb_run *)calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->build = build;
    run->n_part = n_part;
    run->seed = seed;
    run->frame_cycles = build->frame_cycles();
    for (uint32_t u = 0; u < n_part; u++) {
        run->unit[u] = (struct kl_unit *)aligned_alloc(64, build->unit_size_bytes());
        if (!run->unit[u]) {
            tb_run_close(run);
            return NULL;
        }
        build->init(run->unit[u], u, n_part);
    }
    build->info(run->unit[0], &run->info);
    tb_oracle_init();
    return run;
}

void tb_run_close(struct tb_run *run)
{
    if (!run)
        return;
    free(run->unit[0]);
    free(run->unit[1]);
    free(run);
}

void tb_run_hook(struct tb_run *run, const struct tb_run_hooks *hooks)
{
    run->hooks = *hooks;
    run->ended = 0;
}

const struct tb_run_report *tb_run_report(const struct tb_run *run)
{
    return &run->report;
}
