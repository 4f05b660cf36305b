/* Unit check of the state store: every stream of every slot keeps its own state, and only a state that the
 * slot's model can have goes in. */
#include <stdlib.h>
#include <string.h>

#include "kl_tb_unit.h"

/* The store and what it has to hold. */
struct store {
    struct kl_core *core[2];
    uint32_t n_part;
    struct kl_state state[KL_N_SLOT][KL_BUILD_STREAMS];
    struct tb_report *report;
};

/* An h that a cell can have: a binary16 value on the 2^-15 grid below 1. */
static int16_t draw_h(uint64_t *seed)
{
    const double v = tb_oracle_round_h(tb_random_real(seed) * 0x1p30);
    return (int16_t)(tb_random_below(seed, 8) ? v : tb_random_below(seed, 2) ? KL_H_ABS_MAX : -KL_H_ABS_MAX);
}

static int32_t draw_c(uint64_t *seed)
{
    const int32_t v = (int32_t)(tb_random_real(seed) * KL_C_ABS_MAX);
    return tb_random_below(seed, 8) ? v : tb_random_below(seed, 2) ? KL_C_ABS_MAX : -KL_C_ABS_MAX;
}

/* The rest of a state of zeros, by the slot's model. */
static struct kl_state rest_state(const struct store *store, uint32_t slot)
{
    const struct kl_model *model = &store->core[0]->model[slot];
    struct kl_state state;
    memset(&state, 0, sizeof state);
    state.abi_version = KL_ABI_VERSION;
    state.n_layer = model->shape.n_layer;
    for (uint32_t l = 0; l < model->shape.n_layer; l++)
        state.n_hidden[l] = model->shape.n_hidden[l];
    state.image_hash = model->image_hash;
    state.check = kl_state_check(&state);
    return state;
}

static struct kl_state draw_state(const struct store *store, uint32_t slot, uint64_t *seed)
{
    struct kl_state state = rest_state(store, slot);
    for (uint32_t l = 0; l < state.n_layer; l++) {
        for (uint32_t u = 0; u < state.n_hidden[l]; u++) {
            state.h[l][u] = draw_h(seed);
            state.c[l][u] = draw_c(seed);
        }
    }
    state.check = kl_state_check(&state);
    return state;
}

static void check_stream(const struct store *store, uint32_t slot, uint32_t stream)
{
    struct kl_state state;
    memset(&state, 0, sizeof state);
    store->report->n_case++;
    for (uint32_t u = 0; u < store->n_part; u++) {
        const uint32_t status = stream_take(store->core[u], slot, stream, &state);
        if (status != KL_OK)
            tb_report_mismatch(store->report, "state store: slot %u, stream %u cannot be taken: status %u",
                               slot, stream, status);
    }
    stream_seal(&state);
    const struct kl_state *right = &store->state[slot][stream];
    if (memcmp(&state, right, sizeof state) == 0)
        return;
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u++) {
            if (state.h[l][u] != right->h[l][u] || state.c[l][u] != right->c[l][u]) {
                tb_report_mismatch(
                    store->report,
                    "state store: slot %u, stream %u, layer %u, unit %u: h %d, c %d, right h %d, c "
                    "%d",
                    slot, stream, l, u, state.h[l][u], state.c[l][u], right->h[l][u], right->c[l][u]);
                return;
            }
        }
    }
    tb_report_mismatch(store->report, "state store: slot %u, stream %u: the state's header is wrong", slot,
                       stream);
}

static void expect_check(const struct store *store, uint32_t slot, uint32_t stream, struct kl_state *state,
                         int sealed, uint32_t right, const char *what)
{
    if (sealed)
        state->check = kl_state_check(state);
    store->report->n_case++;
    for (uint32_t u = 0; u < store->n_part; u++) {
        const uint32_t status = stream_check(store->core[u], slot, stream, state);
        if (status != right)
            tb_report_mismatch(store->report,
                               "state store: slot %u, stream %u: a state with %s: status %u, right %u", slot,
                               stream, what, status, right);
    }
}

/* Each with a right check word, so that the value itself is what is looked at. */
static void check_refusals(const struct store *store, uint32_t slot, uint64_t *seed)
{
    const struct kl_state good = draw_state(store, slot, seed);
    struct kl_state state = good;
    const uint32_t l = tb_random_below(seed, good.n_layer), u = tb_random_below(seed, good.n_hidden[l]);
    const uint32_t stream = tb_random_below(seed, KL_BUILD_STREAMS),
                   bit = tb_random_below(seed, 8 * sizeof state);
    expect_check(store, slot, stream, &state, 1, KL_OK, "nothing wrong");
    ((uint8_t *)&state)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    expect_check(store, slot, stream, &state, 0, KL_E_STATE, "a bit turned");
    state = good;
    state.c[l][u] = KL_C_ABS_MAX + 1;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "c above its bound");
    state.c[l][u] = -KL_C_ABS_MAX - 1;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "c below its bound");
    state = good;
    state.abi_version++;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "another ABI version");
    state = good;
    state.image_hash ^= 1u << bit % 32;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "another image hash");
    state = good;
    state.n_hidden[l]++;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "another shape");
    state = good;
    state.n_layer ^= 1;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "other layers");
    state = good;
    state.n_hidden[3] = 1;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "a layer too many");
    state = good;
    state.pad0 = 1;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "padding that is not zero");
    state = good;
    state.pad1[bit % sizeof state.pad1] = 1;
    expect_check(store, slot, stream, &state, 1, KL_E_STATE, "padding that is not zero");
    state = good;
    if (good.n_hidden[l] < KL_N_HIDDEN_MAX) {
        state.h[l][good.n_hidden[l]] = 1;
        expect_check(store, slot, stream, &state, 1, KL_E_STATE, "h beyond the shape");
        state = good;
        state.c[l][good.n_hidden[l]] = 1;
        expect_check(store, slot, stream, &state, 1, KL_E_STATE, "c beyond the shape");
        state = good;
    }
    expect_check(store, KL_N_SLOT, stream, &state, 1, KL_E_SLOT, "a slot that is not there");
    expect_check(store, slot, KL_BUILD_STREAMS, &state, 1, KL_E_STREAM, "a stream that is not there");
}

/* h around every power of two: h is one exactly if rounding leaves it as it is. */
static void check_h_values(const struct store *store, uint32_t slot)
{
    struct kl_state state = rest_state(store, slot);
    for (int32_t power = 1; power <= 1 << 15; power *= 2) {
        for (int32_t d = -40; d <= 40; d++) {
            const int32_t h = power + d;
            if (h < 0 || h > INT16_MAX)
                continue;
            const uint32_t right = tb_oracle_round_h(h * 0x1p15) == h ? KL_OK : KL_E_STATE;
            state.h[0][0] = (int16_t)h;
            expect_check(store, slot, 0, &state, 1, right, "an h");
            state.h[0][0] = (int16_t)-h;
            expect_check(store, slot, 0, &state, 1, right, "an h");
        }
    }
    state.h[0][0] = INT16_MIN;
    expect_check(store, slot, 0, &state, 1, KL_E_STATE, "h of -1");
}

/* A random operation on a random stream; then it, and any other, have to be as they should be. */
static void operate(struct store *store, uint64_t *seed)
{
    const uint32_t slot = tb_random_below(seed, KL_N_SLOT), stream = tb_random_below(seed, KL_BUILD_STREAMS);
    struct kl_state *state = &store->state[slot][stream];
    const int put = tb_random_below(seed, 3) != 0;
    *state = put ? draw_state(store, slot, seed) : rest_state(store, slot);
    for (uint32_t u = 0; u < store->n_part; u++) {
        struct kl_core *core = store->core[u];
        core->prepared[slot][stream] = 1;
        core->lost[slot][stream] = 1;
        struct kl_state lost;
        if (stream_take(core, slot, stream, &lost) != KL_E_STATE)
            tb_report_mismatch(store->report, "state store: slot %u, stream %u is lost and can be taken",
                               slot, stream);
        if (put)
            stream_put(core, slot, stream, state);
        else
            stream_reset(core, slot, stream);
        if (core->prepared[slot][stream] || core->lost[slot][stream])
            tb_report_mismatch(store->report, "state store: slot %u, stream %u: still prepared or lost", slot,
                               stream);
    }
    check_stream(store, slot, stream);
    check_stream(store, tb_random_below(seed, KL_N_SLOT), tb_random_below(seed, KL_BUILD_STREAMS));
}

void tb_unit_stream(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    static struct store store;
    store.report = report;
    tb_oracle_init();
    for (store.n_part = 1; store.n_part <= 2; store.n_part++) {
        for (uint32_t u = 0; u < store.n_part; u++)
            store.core[u] = tb_unit_core(u, u, store.n_part);
        struct kl_state none = {.abi_version = KL_ABI_VERSION};
        expect_check(&store, 0, 0, &none, 1, KL_E_EMPTY, "no model in the slot");
        for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
            struct tb_model *model;
            uint32_t n_advance;
            struct kl_image_header *image = tb_unit_draw(store.n_part, TB_TYPICAL, &seed, &model, report);
            for (uint32_t u = 0; image && u < store.n_part; u++) {
                if (tb_unit_load(store.core[u], slot, image, image->size_bytes, &n_advance) != KL_OK)
                    tb_report_mismatch(report, "state store: no model to check it with");
            }
            free(image);
            if (report->n_mismatch > 0)
                return;
            for (uint32_t stream = 0; stream < KL_BUILD_STREAMS; stream++)
                store.state[slot][stream] = rest_state(&store, slot);
            check_refusals(&store, slot, &seed);
            check_h_values(&store, slot);
        }
        for (uint32_t n = 0; n < 50 + n_case / 4; n++)
            operate(&store, &seed);
    }
}
