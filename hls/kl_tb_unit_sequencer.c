/* Unit check of the sequencer, by brute force: every product of a step and of a prepare exactly once, none
 * before its operands or the cell lanes are ready, none later than it had to be; on a unit of its own and on
 * both units of a pair. When a part of h is ready is computed anew from kl_latency.h. */
#include <stdio.h>
#include <string.h>

#include "kl_tb_unit.h"
#include "link.h"
#include "sequencer.h"

enum {
    NEVER = 1 << 30,
    N_CYCLE_MAX = 100 * 1000, /* far beyond any schedule: a deadlock */

    /* From a group's last slot to the first that may read its first part: the MAC array's pipeline, the
     * cells', less what reading the operand is shorter than reading the weight. */
    DEPTH_MAC = KL_LAT_BRAM + KL_LAT_MULTIPLY + KL_LAT_TREE + KL_LAT_ACCUMULATE + KL_LAT_ROUND_BLOCK,
    DEPTH_GATES = KL_LAT_ACTIVATE,
    DEPTH_C = KL_LAT_MULTIPLY + KL_LAT_CASCADE,
    DEPTH_H = KL_LAT_ACTIVATE + KL_LAT_MULTIPLY + KL_LAT_ROUND_H + KL_LAT_SLR,
    TO_NEXT_USE = DEPTH_MAC + DEPTH_GATES + DEPTH_C + DEPTH_H - (KL_LAT_BRAM - KL_LAT_OPERAND),
    DEPTH_ANSWER =
        KL_LAT_BRAM + KL_LAT_MULTIPLY + KL_LAT_TREE + KL_LAT_ACCUMULATE + KL_LAT_ARGMAX + KL_LAT_RESULT,
};

/* A part of h on its way to the other unit. */
struct parcel {
    uint32_t layer, part, arrival;
};

/* What one unit has issued so far. */
struct trace {
    struct sequencer s;
    uint32_t n_col_done[KL_BUILD_LAYERS + 1][KL_N_GROUP]; /* the head is layer n_layer */
    uint32_t complete[KL_BUILD_LAYERS][KL_N_GROUP];       /* cycle of a group's last slot */
    uint32_t arrived[KL_BUILD_LAYERS][KL_N_PART];         /* first cycle that may use the other unit's part */
    uint64_t order;                                       /* of the last slot */
    uint32_t next_cycle, cell_free; /* earliest cycle of the next slot; of the next completed group */
    struct parcel inbox[KL_BUILD_LAYERS * KL_N_PART];
    uint32_t n_in, n_read;
};

struct schedule {
    struct trace unit[2];
    enum seq_mode mode;
    struct tb_report *report;
    uint32_t case_no;
};

static void mismatch(const struct schedule *schedule, const struct trace *t, const struct seq_slot *slot,
                     const char *what)
{
    const struct seq_shape *shape = &t->s.shape;
    char hidden[64] = "";
    size_t at = 0;
    for (uint32_t l = 0; l < KL_BUILD_LAYERS && l < shape->n_layer; l++)
        at += (size_t)snprintf(hidden + at, sizeof hidden - at, "-%u", shape->n_hidden[l]);
    tb_report_mismatch(
        schedule->report,
        "sequencer: case %u, %s, part %u of %u, %u%s: cycle %u, layer %u, group %u, column step %u: "
        "%s",
        schedule->case_no, schedule->mode == SEQ_STEP ? "step" : "prepare", shape->part, shape->n_part,
        shape->n_in, hidden, t->s.now - 1, slot->layer, slot->group, slot->col, what);
}

static uint32_t ceil_div(uint32_t n, uint32_t by)
{
    return n / by + (n % by != 0);
}

/* Groups of a layer that part `part` of n_part holds: g, g + n_part, ... */
static uint32_t groups_of(const struct seq_shape *shape, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t g = shape->part; g * KL_GROUP_UNITS < shape->n_hidden[layer]; g += shape->n_part)
        n++;
    return n;
}

static uint32_t operands_of(const struct seq_shape *shape, enum seq_kind kind, uint32_t layer)
{
    if (kind == SEQ_H)
        return shape->n_hidden[layer];
    return layer == 0 ? shape->n_in : shape->n_hidden[layer - 1];
}

/* The first cycle that may read column step col of layer `below`'s h. */
static uint32_t ready_at(const struct trace *t, uint32_t below, uint32_t col)
{
    const struct seq_shape *shape = &t->s.shape;
    uint32_t ready = 0;
    for (uint32_t u = col * KL_MAC_COLS; u < (col + 1) * KL_MAC_COLS && u < shape->n_hidden[below]; u++) {
        const uint32_t group = u / KL_GROUP_UNITS, part = u / KL_CELL_LANES;
        const uint32_t at = group % shape->n_part != shape->part
                                ? t->arrived[below][part]
                                : t->complete[below][group / shape->n_part] +
                                      u % KL_GROUP_UNITS / KL_CELL_LANES + TO_NEXT_USE;
        ready = at > ready ? at : ready;
    }
    return ready;
}

static void check_flags(const struct schedule *schedule, const struct trace *t, const struct seq_slot *slot,
                        uint32_t n_operand)
{
    const uint32_t from = slot->col * KL_MAC_COLS, to = from + KL_MAC_COLS;
    if (slot->first != (from == 0) || slot->last != (to >= n_operand))
        mismatch(schedule, t, slot, "first or last is wrong");
    if (slot->block_first != (from % KL_BLOCK == 0) ||
        slot->block_last != (to % KL_BLOCK == 0 || to >= n_operand))
        mismatch(schedule, t, slot, "block_first or block_last is wrong");
}

/* z and acc of a group are shared by all layers: no other layer's product of the group may be open. */
static int is_open(const struct trace *t, uint32_t layer, uint32_t group)
{
    const struct seq_shape *shape = &t->s.shape;
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        const uint32_t n_col = t->n_col_done[l][group];
        if (l != layer && n_col > 0 &&
            n_col < ceil_div(operands_of(shape, t->s.mode == SEQ_STEP ? SEQ_X : SEQ_H, l), KL_MAC_COLS))
            return 1;
    }
    return 0;
}

/* Where a slot stands in its operation, from 1: layers in turn; where all operands lie there, group by group,
 * else all groups chunk by chunk as the layer below delivers them: a group of units there, or as many as fill
 * a column step. */
static uint64_t order_of(const struct seq_slot *slot)
{
    const uint32_t chunk_units = KL_GROUP_UNITS / KL_MAC_COLS > 0 ? KL_GROUP_UNITS : KL_MAC_COLS;
    const int arrives = slot->kind != SEQ_H && slot->layer > 0;
    const uint64_t chunk = arrives ? slot->col * KL_MAC_COLS / chunk_units : 0;
    return 1 + ((((uint64_t)slot->layer << 16 | chunk) << 16 | slot->group) << 16 | slot->col);
}

static void send_parts(struct trace *to, const struct trace *t, const struct seq_slot *slot, uint32_t cycle)
{
    const struct seq_shape *shape = &t->s.shape;
    for (uint32_t p = 0; p < KL_GROUP_PARTS; p++) {
        const uint32_t part = (slot->group * shape->n_part + shape->part) * KL_GROUP_PARTS + p;
        if (part * KL_CELL_LANES < shape->n_hidden[slot->layer])
            to->inbox[to->n_in++] = (struct parcel){slot->layer, part, cycle + p + TO_NEXT_USE + KL_LAT_LINK};
    }
}

static void check_slot(struct schedule *schedule, struct trace *t, const struct seq_slot *slot)
{
    const struct seq_shape *shape = &t->s.shape;
    const uint32_t cycle = t->s.now - 1;
    const int is_head = slot->kind == SEQ_HEAD;
    const uint32_t n_group = slot->layer < shape->n_layer ? groups_of(shape, slot->layer) : 1;
    if ((slot->kind == SEQ_H) != (schedule->mode == SEQ_PREPARE) || slot->layer > shape->n_layer ||
        is_head != (slot->layer == shape->n_layer) || slot->group >= n_group) {
        mismatch(schedule, t, slot, "no such product");
        return;
    }
    const uint32_t n_operand = operands_of(shape, slot->kind, slot->layer);
    if (slot->col != t->n_col_done[slot->layer][slot->group] || slot->col >= ceil_div(n_operand, KL_MAC_COLS))
        mismatch(schedule, t, slot, "a column step twice, left out or out of order");
    if (!is_head && is_open(t, slot->layer, slot->group))
        mismatch(schedule, t, slot, "another layer's product of this group has not ended");
    check_flags(schedule, t, slot, n_operand);
    const uint64_t order = order_of(slot);
    if (order <= t->order)
        mismatch(schedule, t, slot, "not in the order in which h arrives");
    t->order = order;

    uint32_t earliest = t->next_cycle;
    if (slot->kind != SEQ_H && slot->layer > 0) {
        const uint32_t ready = ready_at(t, slot->layer - 1u, slot->col);
        earliest = ready > earliest ? ready : earliest;
    }
    const int completes = slot->kind == SEQ_X && slot->last;
    if (completes && t->cell_free > earliest)
        earliest = t->cell_free;
    if (cycle < earliest)
        mismatch(schedule, t, slot, "before its operands or the cell lanes are ready");
    if (cycle > earliest)
        mismatch(schedule, t, slot, "later than it had to be");
    t->next_cycle = cycle + 1;
    t->n_col_done[slot->layer][slot->group]++;
    if (!completes)
        return;
    t->cell_free = cycle + KL_GROUP_UNITS / KL_CELL_LANES;
    t->complete[slot->layer][slot->group] = cycle;
    if (shape->n_part > 1)
        send_parts(&schedule->unit[1 - shape->part], t, slot, cycle);
}

/* A bubble: hands over the next part from the other unit if it is there. Parts of a layer that the unit has
 * passed over come first. */
static void wait_for_peer(const struct schedule *schedule, struct trace *t, const struct seq_slot *slot)
{
    const struct seq_shape *shape = &t->s.shape;
    const uint32_t group = slot->part / KL_GROUP_PARTS;
    if (shape->n_part == 1 || group % shape->n_part == shape->part || slot->layer >= shape->n_layer ||
        t->arrived[slot->layer][slot->part] != NEVER) {
        mismatch(schedule, t, slot, "waits for a part that the other unit does not hold or has sent");
        return;
    }
    const struct parcel *parcel = &t->inbox[t->n_read];
    if (t->n_read == t->n_in || parcel->arrival > t->s.now)
        return;
    t->n_read++;
    t->arrived[parcel->layer][parcel->part] = t->s.now;
    if (parcel->layer == slot->layer)
        seq_peer_part(&t->s, parcel->layer, parcel->part);
}

static void check_complete(const struct schedule *schedule, const struct trace *t)
{
    const struct seq_shape *shape = &t->s.shape;
    const struct seq_slot none = {.layer = (uint8_t)shape->n_layer};
    const enum seq_kind kind = schedule->mode == SEQ_STEP ? SEQ_X : SEQ_H;
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        for (uint32_t g = 0; g < groups_of(shape, l); g++) {
            const struct seq_slot at = {.layer = (uint8_t)l, .group = (uint8_t)g};
            if (t->n_col_done[l][g] != ceil_div(operands_of(shape, kind, l), KL_MAC_COLS))
                mismatch(schedule, t, &at, "the product was not completed");
        }
    }
    if (schedule->mode == SEQ_STEP && t->n_col_done[shape->n_layer][0] !=
                                          ceil_div(operands_of(shape, SEQ_HEAD, shape->n_layer), KL_MAC_COLS))
        mismatch(schedule, t, &none, "the head was not completed");
}

/* Runs one operation of a shape to its end, on one unit or two side by side. Returns its cycles: one past the
 * last slot of the slower unit. */
static uint32_t run(struct schedule *schedule, const struct seq_shape *shape, enum seq_mode mode)
{
    const uint32_t n_part = shape->n_part;
    uint32_t end = 0;
    schedule->mode = mode;
    for (uint32_t u = 0; u < n_part; u++) {
        struct trace *t = &schedule->unit[u];
        struct seq_shape own = *shape;
        own.part = (uint8_t)u;
        memset(t, 0, sizeof *t);
        for (uint32_t l = 0; l < KL_BUILD_LAYERS; l++) {
            for (uint32_t p = 0; p < KL_N_PART; p++)
                t->arrived[l][p] = NEVER;
            for (uint32_t g = 0; g < KL_N_GROUP; g++)
                t->complete[l][g] = NEVER;
        }
        seq_start(&t->s, &own, mode);
    }
    for (uint32_t n = 0; !schedule->unit[0].s.done || (n_part > 1 && !schedule->unit[1].s.done); n++) {
        if (n == N_CYCLE_MAX) {
            const struct seq_slot none = {.layer = 0};
            mismatch(schedule, &schedule->unit[0], &none, "the schedule does not end");
            break;
        }
        for (uint32_t u = 0; u < n_part; u++) {
            struct trace *t = &schedule->unit[u];
            struct seq_slot slot = {.kind = SEQ_BUBBLE};
            if (t->s.done)
                continue;
            seq_next(&t->s, &slot);
            if (slot.kind != SEQ_BUBBLE)
                check_slot(schedule, t, &slot);
            else if (slot.waits_for_peer)
                wait_for_peer(schedule, t, &slot);
            if (t->n_in - t->n_read > LINK_DEPTH)
                mismatch(schedule, t, &slot, "the link holds more than its depth");
            end = t->s.now;
        }
    }
    for (uint32_t u = 0; u < n_part; u++)
        check_complete(schedule, &schedule->unit[u]);
    return end;
}

/* Weight words: every matrix behind the one before, of this unit's groups only. */
static void check_addresses(const struct schedule *schedule, const struct seq_shape *shape)
{
    uint32_t word = 0;
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        for (int of_h = 0; of_h < 2; of_h++) {
            const uint32_t n_operand = operands_of(shape, of_h ? SEQ_H : SEQ_X, l);
            if (seq_word_base(shape, l, of_h) != word)
                tb_report_mismatch(
                    schedule->report,
                    "sequencer: case %u, part %u of %u: W_%c of layer %u lies at word %u, right %u",
                    schedule->case_no, shape->part, shape->n_part, of_h ? 'h' : 'x', l,
                    seq_word_base(shape, l, of_h), word);
            word += groups_of(shape, l) * ceil_div(n_operand, KL_MAC_COLS);
        }
    }
    if (seq_word_base(shape, KL_BUILD_LAYERS, 0) != word)
        tb_report_mismatch(schedule->report, "sequencer: case %u: the model has %u words, right %u",
                           schedule->case_no, seq_word_base(shape, KL_BUILD_LAYERS, 0), word);
}

static void check_cycles(const struct schedule *schedule, const char *what, uint32_t said, uint32_t right)
{
    if (said != right)
        tb_report_mismatch(schedule->report, "sequencer: case %u: %s cycles %u, right %u", schedule->case_no,
                           what, said, right);
}

static void check_shape(struct schedule *schedule, const struct seq_shape *shape)
{
    const uint32_t frame = KL_LAT_DECODE + KL_LAT_RESULT;
    const uint32_t reset = frame + KL_BUILD_LAYERS * (KL_OPERANDS / KL_CELL_LANES);
    schedule->report->n_case++;
    const uint32_t step = KL_LAT_DECODE + run(schedule, shape, SEQ_STEP) - 1 + DEPTH_ANSWER;
    const uint32_t prepare = run(schedule, shape, SEQ_PREPARE) + DEPTH_MAC + DEPTH_GATES + DEPTH_C +
                             DEPTH_H; /* the pipeline drains */
    check_cycles(schedule, "prepared step", seq_step_cycles(shape, 1), step);
    check_cycles(schedule, "unprepared step", seq_step_cycles(shape, 0), step + prepare);
    check_cycles(schedule, "prepare", seq_prepare_cycles(shape), frame + prepare);
    check_cycles(schedule, "reset", seq_reset_cycles(), reset);
    for (uint32_t u = 0; u < shape->n_part; u++) {
        struct seq_shape own = *shape;
        own.part = (uint8_t)u;
        check_addresses(schedule, &own);
    }
}

static uint16_t draw(uint64_t *seed, uint32_t max)
{
    return (uint16_t)(tb_random_below(seed, 4) ? 1 + tb_random_below(seed, max) : max);
}

void tb_unit_sequencer(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    static struct schedule schedule;
    schedule.report = report;
    schedule.case_no = 0;
    for (uint32_t n_part = 1; n_part <= 2; n_part++) {
        const uint32_t n_hidden_max =
            n_part * KL_BUILD_UNITS < KL_OPERANDS ? n_part * KL_BUILD_UNITS : (uint32_t)KL_OPERANDS;
        /* Every size of a first and only layer, then random shapes. */
        for (uint32_t n = 0; n < n_hidden_max + n_case / 4; n++) {
            struct seq_shape shape = {.n_layer = 1, .n_class = 1, .n_part = (uint8_t)n_part};
            shape.n_in = draw(&seed, KL_BUILD_IN);
            shape.n_hidden[0] = (uint16_t)(n + 1);
            if (n >= n_hidden_max) {
                shape.n_layer = (uint16_t)(1 + tb_random_below(&seed, KL_BUILD_LAYERS));
                for (uint32_t l = 0; l < shape.n_layer; l++)
                    shape.n_hidden[l] = draw(&seed, n_hidden_max);
            }
            check_shape(&schedule, &shape);
            schedule.case_no++;
        }
    }
}
