/* The controller's schedule: which product the MAC array works on in every cycle.
 *
 * The kernel's main loop takes one slot per cycle from here. What a slot needs is ready by construction: the
 * sequencer keeps a scoreboard of when every part of h leaves the cell pipeline and holds a slot back (a
 * bubble) until then. Running it without a datapath gives the cycles of an operation; there is no other
 * schedule.
 *
 * Order of a step, layer by layer: layer 0 goes group by group over all columns, so that its first units are
 * done early; the layers above, and the head, go chunk by chunk over the columns, in the order in which h
 * arrives from below, so that a layer starts long before the one below has ended. prepare goes group by
 * group: everything it needs lies there. */
#ifndef SEQUENCER_H
#define SEQUENCER_H

#include "kl_build.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A loaded model's shape, and which part of every layer's rows this unit holds: group g of a layer belongs to
 * part g % n_part, where it is group g / n_part. */
struct seq_shape {
    uint16_t n_layer, n_in, n_class;
    uint16_t n_hidden[KL_BUILD_LAYERS];
    uint8_t part, n_part;
};

enum seq_kind { SEQ_BUBBLE, SEQ_X, SEQ_H, SEQ_HEAD };

struct seq_slot {
    enum seq_kind kind;
    uint8_t layer, group, col; /* group: of this unit's; col: the column step */
    uint8_t first, last;       /* of the row's product: load z; z is complete, and a step's cells follow */
    uint8_t block_first, block_last;
    /* The slot waits for part `part` of the other unit's h of layer `layer` (not SEQ_BUBBLE's other cause).
     */
    uint8_t waits_for_peer;
    uint8_t part;
};

enum seq_mode { SEQ_STEP, SEQ_PREPARE };

struct sequencer {
    struct seq_shape shape;
    enum seq_mode mode;
    uint32_t now; /* cycles since the start */
    uint32_t cell_free;
    uint16_t layer, chunk, group, col;
    uint8_t done;
    /* When h parts can be used, of the layer being read and the layer being written (by the layer's parity).
     */
    uint32_t ready[2][KL_N_PART];
};

/* Which part holds group `group` of a layer, and where it is there. n_part is 1 or 2, so a mask and a shift:
 * a division by it would not end within the sequencer's cycle. */
static inline uint32_t seq_part_holding(const struct seq_shape *shape, uint32_t group)
{
    return group & (shape->n_part - 1u);
}

static inline uint32_t seq_own_group(const struct seq_shape *shape, uint32_t group)
{
    return group >> (shape->n_part - 1u);
}

/* Groups of a layer whose rows this unit holds; column steps of n operands. */
static inline uint32_t seq_n_group(const struct seq_shape *shape, uint32_t layer)
{
    const uint32_t all = (shape->n_hidden[layer] + KL_GROUP_UNITS - 1u) / KL_GROUP_UNITS;
    return seq_own_group(shape, all + shape->n_part - 1u - shape->part);
}

static inline uint32_t seq_n_col(uint32_t n_operand)
{
    return (n_operand + KL_MAC_COLS - 1) / KL_MAC_COLS;
}

/* Part of the whole h that part p of this unit's group g is. */
static inline uint32_t seq_part_of(const struct seq_shape *shape, uint32_t group, uint32_t p)
{
    return ((group << (shape->n_part - 1u)) + shape->part) * KL_GROUP_PARTS + p;
}

/* Weight words, in the order W_x of layer 0, W_h of layer 0, W_x of layer 1 ...: group by group, a word per
 * column step. The address of a matrix; the words of the whole model. */
uint32_t seq_word_base(const struct seq_shape *shape, uint32_t layer, int of_h);

void seq_start(struct sequencer *s, const struct seq_shape *shape, enum seq_mode mode);

/* The next cycle's slot. Afterwards s->done says whether it was the last one. */
void seq_next(struct sequencer *s, struct seq_slot *slot);

/* The other unit's part has arrived and can be used from the next cycle on. */
void seq_peer_part(struct sequencer *s, uint32_t layer, uint32_t part);

/* Cycles from a request's start to its answer, counted by running the sequencer; for a unit without a peer,
 * or for a pair whose link has KL_LAT_LINK. prepared: the step finds W_h.h + b ready. */
uint32_t seq_step_cycles(const struct seq_shape *shape, int prepared);
uint32_t seq_prepare_cycles(const struct seq_shape *shape);

/* stream_reset's loop: a part of h and c per cycle, all that a stream has room for, whatever the shape. */
uint32_t seq_reset_cycles(void);

#ifdef __cplusplus
}
#endif

#endif
