/* The main loop's body: operand fetch, MAC array, block rounding, cells, head, once per cycle. */
#include <string.h>

#include "cell.h"
#include "head.h"
#include "kl_core.h"
#include "kl_pragma.h"

void datapath_start(struct kl_core *core, enum seq_mode mode)
{
    struct kl_run *run = &core->run;
    seq_start(&run->sequencer, &core->model[run->slot].shape, mode);
    run->peer_failed = 0;
    run->waited = 0;
    run->cell_busy = 0;
}

/* z of a group's rows from where its product starts: the bias in prepare, the prepared sums in a step. */
static void start_rows(const struct kl_core *core, const struct seq_slot *slot, int32_t z[KL_MAC_ROWS])
{
    const struct kl_run *run = &core->run;
row:
    for (int r = 0; r < KL_MAC_ROWS; r++) {
        KL_PRAGMA(HLS UNROLL) /* all rows of a group lie side by side in memory */
        z[r] = slot->kind == SEQ_H ? core->bias[run->slot][slot->layer][slot->group][r]
                                   : core->z[run->slot][run->stream][slot->layer][slot->group][r];
    }
}

static void head(struct kl_core *core, const struct seq_slot *slot, const int64_t sum[KL_N_CLASS_MAX])
{
    struct kl_run *run = &core->run;
    if (slot->first) {
    logit_row:
        for (int k = 0; k < KL_N_CLASS_MAX; k++) {
            KL_PRAGMA(HLS UNROLL)
            run->logit[k] = core->head_bias[run->slot][k];
        }
    }
    head_accumulate(run->logit, sum);
}

/* The operands of a slot: x; the new h of the layer below; in prepare the stream's old h. */
static void fetch(const struct kl_core *core, const struct seq_slot *slot, struct operand_step *step)
{
    const struct kl_run *run = &core->run;
    if (slot->kind == SEQ_H)
        operand_fetch_h((const int16_t(*)[KL_MAC_COLS])core->h[run->slot][run->stream][slot->layer],
                        slot->col, step);
    else if (slot->layer == 0)
        *step = run->x[slot->col];
    else
        *step = run->h[(slot->layer - 1) & 1][slot->col];
}

/* A slot of a layer, or of the head (wide), through the MAC array. */
static void product(struct kl_core *core, const struct seq_slot *slot)
{
    struct kl_run *run = &core->run;
    const struct kl_model *model = &core->model[run->slot];
    const int of_h = slot->kind == SEQ_H;
    struct operand_step step;
    KL_PRAGMA(HLS ARRAY_PARTITION variable = step.v type = complete)
    mac_word w;
    KL_PRAGMA(HLS ARRAY_PARTITION variable = w type = complete dim = 0)
    int32_t sum[KL_MAC_ROWS];
    KL_PRAGMA(HLS ARRAY_PARTITION variable = sum type = complete)
    int64_t wide[KL_N_CLASS_MAX];
    KL_PRAGMA(HLS ARRAY_PARTITION variable = wide type = complete)
    fetch(core, slot, &step);
    if (slot->kind == SEQ_HEAD) {
        weights_fetch_head(&core->weights, run->slot, slot->col, w);
    } else {
        const uint32_t n_operand = of_h || slot->layer > 0
                                       ? model->shape.n_hidden[of_h ? slot->layer : slot->layer - 1]
                                       : model->shape.n_in;
        const uint32_t base = of_h ? model->word_h[slot->layer] : model->word_x[slot->layer];
        weights_fetch(&core->weights, run->slot, base + slot->group * seq_n_col(n_operand) + slot->col, w);
    }
    /* One array for both: the head's weights come to its first rows. */
    mac_array(w, &step, sum, wide);
    if (slot->kind == SEQ_HEAD) {
        head(core, slot, wide);
        return;
    }
    int32_t *z = run->z[slot->group];
    if (slot->first)
        start_rows(core, slot, z);
    mac_round_block(sum,
                    of_h ? core->h_shift[run->slot][slot->layer][slot->group]
                         : core->x_shift[run->slot][slot->layer][slot->group],
                    slot->block_first, slot->block_last, run->acc[slot->group], z);
    if (slot->last && of_h) {
    store:
        for (int r = 0; r < KL_MAC_ROWS; r++) {
            KL_PRAGMA(HLS UNROLL)
            core->z[run->slot][run->stream][slot->layer][slot->group][r] = z[r];
        }
    } else if (slot->last) {
        run->cell_busy = 1;
        run->cell_layer = slot->layer;
        run->cell_group = slot->group;
        run->cell_part = 0;
    row:
        for (int r = 0; r < KL_MAC_ROWS; r++) {
            KL_PRAGMA(HLS UNROLL)
            run->cell_z[r] = z[r];
#ifndef __SYNTHESIS__
            core->seen_z[slot->layer][slot->group][r] = z[r];
#endif
        }
    }
}

static void write_h(struct kl_core *core, uint32_t layer, uint32_t part, const int16_t h[KL_CELL_LANES])
{
    const uint32_t unit = part * KL_CELL_LANES;
    struct kl_run *run = &core->run;
lane:
    for (uint32_t u = 0; u < KL_CELL_LANES; u++) {
        KL_PRAGMA(HLS UNROLL)
        const uint32_t col = (unit + u) / KL_MAC_COLS, k = (unit + u) % KL_MAC_COLS;
        core->h[run->slot][run->stream][layer][col][k] = h[u];
        run->h[layer & 1][col].v[k] = h[u];
    }
}

/* The next part of the group at the cells. Parts beyond the layer's units have zero rows and stay zero. */
static void cells(struct kl_core *core, struct link *out)
{
    struct kl_run *run = &core->run;
    const struct sequencer *s = &run->sequencer;
    const uint32_t own_part = run->cell_group * KL_GROUP_PARTS + run->cell_part;
    struct link_word word;
    KL_PRAGMA(HLS ARRAY_PARTITION variable = word.h type = complete)
    word.seq_no = run->seq_no;
    word.layer = (uint8_t)run->cell_layer;
    word.pad = 0;
    cell_update(&run->cell_z[run->cell_part * KL_CELL_LANES * KL_N_GATE],
                core->c[run->slot][run->stream][run->cell_layer][own_part], word.h);
    word.part = (uint8_t)seq_part_of(&s->shape, run->cell_group, run->cell_part);
    write_h(core, run->cell_layer, word.part, word.h);
    if (out && word.part * KL_CELL_LANES < s->shape.n_hidden[run->cell_layer])
        link_send(out, &word,
                  s->now - 1 + KL_DEPTH_H); /* when it leaves the pipeline; now is past this cycle */
    run->cell_part++;
    run->cell_busy = run->cell_part < KL_GROUP_PARTS;
}

/* The part that the sequencer waits for, if it is the link's next word. */
static void receive(struct kl_core *core, const struct seq_slot *slot, struct link *in)
{
    struct kl_run *run = &core->run;
    struct link_word word;
    if (!in || !link_receive(in, &word, run->sequencer.now)) {
        run->peer_failed = !in || ++run->waited > LINK_PATIENCE;
        return;
    }
    run->waited = 0;
    if (word.seq_no != run->seq_no || word.layer > slot->layer || word.part >= KL_N_PART) {
        run->peer_failed = 1;
        return;
    }
    /* A layer of which this unit holds no row is passed over without waiting for the one below: its words
     * come first here. */
    write_h(core, word.layer, word.part, word.h);
    if (word.layer == slot->layer)
        seq_peer_part(&run->sequencer, word.layer, word.part);
}

int datapath_cycle(struct kl_core *core, struct link *in, struct link *out)
{
    /* All of it into the caller's loop, which is the pipeline. */
    KL_PRAGMA(HLS INLINE recursive)
    struct kl_run *run = &core->run;
    struct seq_slot slot;
    if (run->sequencer.done)
        return 0;
    seq_next(&run->sequencer, &slot);
    if (slot.kind != SEQ_BUBBLE)
        product(core, &slot);
    else if (slot.waits_for_peer)
        receive(core, &slot, in);
    if (run->cell_busy)
        cells(core, out);
    return !run->peer_failed && !run->sequencer.done;
}
