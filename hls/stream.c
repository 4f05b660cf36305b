/* The state store: h and c of every stream of every slot. */
#include <string.h>

#include "kl_core.h"
#include "kl_pragma.h"
#include "records.h"

void stream_reset(struct kl_core *core, uint32_t slot, uint32_t stream)
{
layer:
    for (uint32_t l = 0; l < KL_BUILD_LAYERS; l++) {
    part:
        for (uint32_t p = 0; p < KL_N_PART; p++) {
            /* II = 1: a part of h and c per cycle. */
            KL_PRAGMA(HLS PIPELINE II = 1)
        unit:
            for (uint32_t u = 0; u < KL_CELL_LANES; u++) {
                KL_PRAGMA(HLS UNROLL)
                const uint32_t unit = p * KL_CELL_LANES + u;
                core->h[slot][stream][l][unit / KL_MAC_COLS][unit % KL_MAC_COLS] = 0;
                if (p < KL_OWN_PARTS)
                    core->c[slot][stream][l][p][u] = 0;
            }
        }
    }
    core->prepared[slot][stream] = 0;
    core->lost[slot][stream] = 0;
}

static uint32_t check_place(const struct kl_core *core, uint32_t slot, uint32_t stream)
{
    if (slot >= KL_BUILD_SLOTS)
        return KL_E_SLOT;
    if (stream >= KL_BUILD_STREAMS)
        return KL_E_STREAM;
    return core->model[slot].loaded ? KL_OK : KL_E_EMPTY;
}

/* Whether this unit holds the rows of a hidden unit, and where its c lies. */
static int own_unit(const struct seq_shape *shape, uint32_t unit, uint32_t *own)
{
    const uint32_t group = unit / KL_GROUP_UNITS;
    *own = seq_own_group(shape, group) * KL_GROUP_UNITS + unit % KL_GROUP_UNITS;
    return seq_part_holding(shape, group) == shape->part;
}

uint32_t stream_take(const struct kl_core *core, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    const uint32_t status = check_place(core, slot, stream);
    if (status != KL_OK)
        return status;
    if (core->lost[slot][stream])
        return KL_E_STATE;
    const struct kl_model *model = &core->model[slot];
    const struct seq_shape *shape = &model->shape;
    state->abi_version = KL_ABI_VERSION;
    state->n_layer = shape->n_layer;
    state->image_hash = model->image_hash;
layer:
    for (uint32_t l = 0; l < shape->n_layer; l++) {
        state->n_hidden[l] = shape->n_hidden[l];
    unit:
        for (uint32_t u = 0; u < shape->n_hidden[l]; u++) {
            KL_PRAGMA(HLS PIPELINE II = 1) /* a value of each per cycle: states move rarely */
            uint32_t own;
            state->h[l][u] = core->h[slot][stream][l][u / KL_MAC_COLS][u % KL_MAC_COLS];
            if (own_unit(shape, u, &own))
                state->c[l][u] = core->c[slot][stream][l][own / KL_CELL_LANES][own % KL_CELL_LANES];
        }
    }
    return KL_OK;
}

void stream_seal(struct kl_state *state)
{
    state->check = kl_state_check(state);
}

/* h is a binary16 value on its grid: at most 11 significant bits. */
static int h_fits(int32_t h)
{
    const uint32_t magnitude = (uint32_t)(h < 0 ? -h : h);
    uint32_t step_bits = 0;
binade:
    for (int b = 11; b < KL_H_FRAC; b++) {
        KL_PRAGMA(HLS UNROLL)
        step_bits += magnitude >> b != 0;
    }
    return magnitude <= KL_H_ABS_MAX && (magnitude & ((1u << step_bits) - 1u)) == 0;
}

uint32_t stream_check(const struct kl_core *core, uint32_t slot, uint32_t stream,
                      const struct kl_state *state)
{
    const uint32_t status = check_place(core, slot, stream);
    if (status != KL_OK)
        return status;
    const struct kl_model *model = &core->model[slot];
    const struct seq_shape *shape = &model->shape;
    int good = state->abi_version == KL_ABI_VERSION && state->image_hash == model->image_hash &&
               state->n_layer == shape->n_layer && state->pad0 == 0 && state->check == kl_state_check(state);
pad:
    for (uint32_t i = 0; i < sizeof state->pad1; i++)
        good &= state->pad1[i] == 0;
layer:
    for (uint32_t l = 0; l < 4; l++) {
        const uint32_t n_hidden = l < shape->n_layer ? shape->n_hidden[l] : 0;
        good &= state->n_hidden[l] == n_hidden;
    unit:
        for (uint32_t u = 0; l < KL_N_LAYER_MAX && u < KL_N_HIDDEN_MAX; u++) {
            KL_PRAGMA(HLS PIPELINE II = 1) /* a value of each per cycle, as in stream_take */
            const int32_t h = state->h[l][u], c = state->c[l][u];
            good &= u < n_hidden ? h_fits(h) && c <= KL_C_ABS_MAX && c >= -KL_C_ABS_MAX : h == 0 && c == 0;
        }
    }
    return good ? KL_OK : KL_E_STATE;
}

void stream_put(struct kl_core *core, uint32_t slot, uint32_t stream, const struct kl_state *state)
{
    const struct seq_shape *shape = &core->model[slot].shape;
    stream_reset(core, slot, stream);
layer:
    for (uint32_t l = 0; l < shape->n_layer; l++) {
    unit:
        for (uint32_t u = 0; u < shape->n_hidden[l]; u++) {
            KL_PRAGMA(HLS PIPELINE II = 1) /* a value of each per cycle, as in stream_take */
            uint32_t own;
            core->h[slot][stream][l][u / KL_MAC_COLS][u % KL_MAC_COLS] = state->h[l][u];
            if (own_unit(shape, u, &own))
                core->c[slot][stream][l][own / KL_CELL_LANES][own % KL_CELL_LANES] = state->c[l][u];
        }
    }
}

uint32_t stream_save(const struct kl_core *core, uint32_t slot, uint32_t stream, uint32_t *words)
{
    struct kl_state whole;
    memset(&whole, 0, sizeof whole);
    const uint32_t status = core->n_part > 1 ? (uint32_t)KL_E_PEER : stream_take(core, slot, stream, &whole);
    if (status != KL_OK)
        return status;
    stream_seal(&whole);
word:
    for (uint32_t i = 0; i < RECORD_STATE_WORDS; i++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* a word per cycle, one burst */
        words[i] = record_state_get(&whole, i);
    }
    return KL_OK;
}

uint32_t stream_restore(struct kl_core *core, uint32_t slot, uint32_t stream, const uint32_t *words)
{
    struct kl_state state; /* what was checked is what is put */
word:
    for (uint32_t i = 0; i < RECORD_STATE_WORDS; i++) {
        KL_PRAGMA(HLS PIPELINE II = 1) /* a word per cycle, one burst */
        record_state_put(&state, i, words[i]);
    }
    const uint32_t status = core->n_part > 1 ? (uint32_t)KL_E_PEER : stream_check(core, slot, stream, &state);
    if (status == KL_OK)
        stream_put(core, slot, stream, &state);
    return status;
}
