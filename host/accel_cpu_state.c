/* A stream's state between the backend's layout and kl_abi.h's. */
#include <string.h>

#include "accel_cpu_kernel.h"

/* Where unit's c lies among the c of its layer. */
static uint32_t c_index(const struct cpu_layer *layer, uint32_t lanes, uint32_t unit)
{
    const uint32_t tile = unit / (2 * lanes), in_tile = unit % (2 * lanes);
    if (tile >= layer->n_wide)
        return unit;
    return tile * 2 * lanes + in_tile % 2 * lanes + in_tile / 2;
}

void cpu_state_save(const struct cpu_model *model, uint32_t lanes, uint64_t image_hash, const uint8_t *from,
                    struct kl_state *state)
{
    memset(state, 0, sizeof *state);
    state->abi_version = KL_ABI_VERSION;
    state->n_layer = (uint16_t)model->n_layer;
    state->image_hash = image_hash;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const struct cpu_layer *layer = &model->layer[l];
        const int16_t *h = (const int16_t *)(const void *)(from + layer->h_at);
        const int32_t *c = (const int32_t *)(const void *)(from + layer->c_at);
        state->n_hidden[l] = (uint16_t)layer->n_hidden;
        for (uint32_t u = 0; u < layer->n_hidden; u++) {
            state->h[l][u] = h[u];
            state->c[l][u] = c[c_index(layer, lanes, u)];
        }
    }
    state->check = kl_state_check(state);
}

/* h is a binary16 value on its grid: at most 11 significant bits. */
static int h_fits(int32_t h)
{
    const uint32_t magnitude = (uint32_t)(h < 0 ? -h : h);
    const uint32_t step = magnitude < 1u << 11 ? 1 : 1u << (32 - __builtin_clz(magnitude) - 11);
    return magnitude <= KL_H_ABS_MAX && magnitude % step == 0;
}

int cpu_state_fits(const struct cpu_model *model, uint64_t image_hash, const struct kl_state *state)
{
    int good = state->abi_version == KL_ABI_VERSION && state->image_hash == image_hash &&
               state->n_layer == model->n_layer && state->pad0 == 0 && state->check == kl_state_check(state);
    for (size_t i = 0; i < sizeof state->pad1; i++)
        good &= state->pad1[i] == 0;
    for (uint32_t l = 0; l < 4; l++)
        good &= state->n_hidden[l] == (l < model->n_layer ? model->layer[l].n_hidden : 0);
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        const uint32_t n_hidden = l < model->n_layer ? model->layer[l].n_hidden : 0;
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u++) {
            const int32_t h = state->h[l][u], c = state->c[l][u];
            good &= u < n_hidden ? h_fits(h) && c <= KL_C_ABS_MAX && c >= -KL_C_ABS_MAX : h == 0 && c == 0;
        }
    }
    return good;
}

void cpu_state_restore(const struct cpu_model *model, uint32_t lanes, const struct kl_state *state,
                       uint8_t *to)
{
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const struct cpu_layer *layer = &model->layer[l];
        int16_t *h = (int16_t *)(void *)(to + layer->h_at);
        int32_t *c = (int32_t *)(void *)(to + layer->c_at);
        for (uint32_t u = 0; u < layer->n_hidden; u++) {
            h[u] = state->h[l][u];
            c[c_index(layer, lanes, u)] = state->c[l][u];
        }
    }
}
