#include "sequencer.h"

#include <string.h>

#include "kl_pragma.h"
#include "link.h"

enum { NOT_READY = -1 };

static uint32_t n_operand(const struct seq_shape *shape, uint32_t layer)
{
    return layer == 0 ? shape->n_in : shape->n_hidden[layer - 1];
}

uint32_t seq_word_base(const struct seq_shape *shape, uint32_t layer, int of_h)
{
    uint32_t word = 0;
below:
    for (uint32_t l = 0; l < KL_BUILD_LAYERS; l++) {
        KL_PRAGMA(HLS UNROLL)
        const uint32_t x_words = seq_n_group(shape, l) * seq_n_col(n_operand(shape, l));
        const uint32_t h_words = seq_n_group(shape, l) * seq_n_col(shape->n_hidden[l]);
        if (l < layer)
            word += x_words + h_words;
        if (l == layer && of_h)
            word += x_words;
    }
    return word;
}

static void forget_parts(struct sequencer *s, uint32_t bank)
{
part:
    for (uint32_t p = 0; p < KL_N_PART; p++) {
        KL_PRAGMA(HLS UNROLL)
        s->ready[bank][p] = (uint32_t)NOT_READY;
    }
}

/* Layers of which this unit holds no row are passed over; head_layer ends a step, there is none in prepare.
 */
static void enter_layer(struct sequencer *s, uint32_t layer)
{
    const uint32_t n_layer = s->shape.n_layer;
skip:
    for (uint32_t i = 0; i < KL_BUILD_LAYERS; i++) {
        KL_PRAGMA(HLS UNROLL) /* within the main loop's cycle: no loop whose end depends on the shape */
        if (layer < n_layer && seq_n_group(&s->shape, layer) == 0) {
            forget_parts(s, layer & 1);
            layer++;
        }
    }
    if (layer < n_layer)
        forget_parts(s, layer & 1);
    s->layer = (uint16_t)layer;
    s->chunk = s->group = s->col = 0;
    s->done = s->mode == SEQ_PREPARE && layer == n_layer;
}

void seq_start(struct sequencer *s, const struct seq_shape *shape, enum seq_mode mode)
{
    s->shape = *shape;
    s->mode = mode;
    s->now = 0;
    s->cell_free = 0;
    forget_parts(s, 0);
    forget_parts(s, 1);
    enter_layer(s, 0);
}

void seq_peer_part(struct sequencer *s, uint32_t layer, uint32_t part)
{
    s->ready[layer & 1][part] = s->now;
}

/* Whether the parts of h of layer `below` that fill column step col can be used; if not, for which to wait.
 */
static int operands_ready(const struct sequencer *s, uint32_t below, uint32_t col, struct seq_slot *slot)
{
    const uint32_t n_unit = s->shape.n_hidden[below];
part:
    for (uint32_t i = 0; i < KL_COL_PARTS; i++) {
        KL_PRAGMA(HLS UNROLL)
        const uint32_t part = col * KL_COL_PARTS + i;
        const uint32_t ready = s->ready[below & 1][part];
        if (part * KL_CELL_LANES < n_unit && (ready == (uint32_t)NOT_READY || ready > s->now)) {
            const uint32_t group = part / KL_GROUP_PARTS;
            slot->waits_for_peer =
                ready == (uint32_t)NOT_READY && seq_part_holding(&s->shape, group) != s->shape.part;
            slot->layer = (uint8_t)below;
            slot->part = (uint8_t)part;
            return 0;
        }
    }
    return 1;
}

/* Chunk, group, column within the chunk, in this order; a layer's end enters the next. */
static void advance(struct sequencer *s, uint32_t n_group, uint32_t n_col, uint32_t chunk_cols)
{
    s->col++;
    if (s->col < chunk_cols && s->chunk + s->col < n_col)
        return;
    s->col = 0;
    s->group++;
    if (s->group < n_group)
        return;
    s->group = 0;
    s->chunk = (uint16_t)(s->chunk + chunk_cols);
    if (s->chunk < n_col)
        return;
    if (s->layer < s->shape.n_layer)
        enter_layer(s, s->layer + 1u);
    else
        s->done = 1;
}

void seq_next(struct sequencer *s, struct seq_slot *slot)
{
    const struct seq_shape *shape = &s->shape;
    const uint32_t layer = s->layer;
    const int is_head = layer == shape->n_layer;
    const int of_h = s->mode == SEQ_PREPARE;
    const uint32_t n_group = is_head ? 1 : seq_n_group(shape, layer);
    const uint32_t n_col = seq_n_col(of_h ? shape->n_hidden[layer] : n_operand(shape, layer));
    /* All columns are one chunk where all operands lie there already. */
    const uint32_t chunk_cols = of_h || layer == 0 ? n_col : KL_CHUNK_COLS;
    const uint32_t col = s->chunk + s->col;
    const int last = col == n_col - 1;

    slot->kind = SEQ_BUBBLE;
    slot->waits_for_peer = 0;
    const int ready = of_h || layer == 0 || operands_ready(s, layer - 1, col, slot);
    const int completes = last && !is_head && !of_h;
    if (ready && !(completes && s->now < s->cell_free)) {
        slot->kind = is_head ? SEQ_HEAD : of_h ? SEQ_H : SEQ_X;
        slot->layer = (uint8_t)layer;
        slot->group = (uint8_t)s->group;
        slot->col = (uint8_t)col;
        slot->first = col == 0;
        slot->last = (uint8_t)last;
        slot->block_first = col % KL_BLOCK_COLS == 0;
        slot->block_last = last || col % KL_BLOCK_COLS == KL_BLOCK_COLS - 1;
        if (completes) {
            /* The cell lanes take a part per cycle. */
            s->cell_free = s->now + KL_GROUP_PARTS;
        part:
            for (uint32_t p = 0; p < KL_GROUP_PARTS; p++) {
                KL_PRAGMA(HLS UNROLL)
                s->ready[layer & 1][seq_part_of(shape, s->group, p)] = s->now + p + KL_DEPTH_H;
            }
        }
        advance(s, n_group, n_col, chunk_cols);
    }
    s->now++;
}

/* ---- cycles ---- */

/* A finished group's parts go to the other unit, as the cells send them (datapath.c). */
static void send_group(const struct sequencer *s, const struct seq_slot *slot, struct link *out)
{
    for (uint32_t p = 0; p < KL_GROUP_PARTS; p++) {
        struct link_word word;
        memset(&word, 0, sizeof word);
        word.layer = slot->layer;
        word.part = (uint8_t)seq_part_of(&s->shape, slot->group, p);
        if (word.part * KL_CELL_LANES < s->shape.n_hidden[slot->layer])
            link_send(out, &word, s->now - 1 + p + KL_DEPTH_H);
    }
}

/* The sequencer without a datapath; of a pair both, with their links. */
static uint32_t run_to_end(const struct seq_shape *shape, enum seq_mode mode)
{
    struct sequencer unit[2];
    struct link link[2]; /* [u]: to unit u */
    struct link_word word;
    struct seq_slot slot;
    uint32_t end = 0;
    memset(link, 0, sizeof link);
    for (uint32_t u = 0; u < shape->n_part; u++) {
        struct seq_shape own = *shape;
        own.part = (uint8_t)u;
        seq_start(&unit[u], &own, mode);
    }
    for (int running = 1; running;) {
        running = 0;
        for (uint32_t u = 0; u < shape->n_part; u++) {
            struct sequencer *s = &unit[u];
            if (s->done)
                continue;
            running = 1;
            seq_next(s, &slot);
            if (slot.kind == SEQ_X && slot.last && shape->n_part > 1)
                send_group(s, &slot, &link[1 - u]);
            if (slot.waits_for_peer && link_receive(&link[u], &word, s->now) && word.layer == slot.layer)
                seq_peer_part(s, word.layer, word.part);
            end = s->now > end ? s->now : end;
        }
    }
    return end; /* one past the last slot's cycle */
}

uint32_t seq_prepare_cycles(const struct seq_shape *shape)
{
    return KL_FRAME + run_to_end(shape, SEQ_PREPARE) + KL_DEPTH_DRAIN;
}

uint32_t seq_step_cycles(const struct seq_shape *shape, int prepared)
{
    const uint32_t step = KL_LAT_DECODE + run_to_end(shape, SEQ_STEP) - 1 + KL_DEPTH_HEAD;
    return prepared ? step : step + run_to_end(shape, SEQ_PREPARE) + KL_DEPTH_DRAIN;
}

uint32_t seq_reset_cycles(void)
{
    return KL_FRAME + KL_BUILD_LAYERS * KL_N_PART;
}
