/* The native build's face: struct kl_build over this build's kernel. Not synthesised. */
#include <string.h>

#include "kl_kernel.h"
#include "kl_resources.h"

static size_t unit_size_bytes(void)
{
    return (sizeof(struct kl_unit) + 63) & ~(size_t)63;
}

static void init(struct kl_unit *unit, uint32_t part, uint32_t n_part)
{
    assert(n_part >= 1 && n_part <= 2 && part < n_part);
    memset(unit, 0, sizeof *unit);
    unit->core.part = part;
    unit->core.n_part = n_part;
    front_init(&unit->front, &unit->core, unit->reg);
}

static void info(const struct kl_unit *unit, struct kl_info *out)
{
    front_info(&unit->core, out);
}

static uint32_t load_begin(struct kl_unit *unit, uint32_t slot, const void *image, size_t size_bytes)
{
    assert(image);
    const uint32_t status = loader_begin(&unit->core, slot, size_bytes);
    if (status == KL_OK)
        unit->image = (const uint8_t *)image;
    return status;
}

static uint32_t load_advance(struct kl_unit *unit)
{
    if (!unit->image)
        return KL_E_EMPTY; /* one that the register block began is advanced by its rounds */
    uint64_t beat[LOADER_BEAT_WORDS] = {0};
    memcpy(beat, unit->image + 8 * (size_t)unit->core.loader.at, 8 * (size_t)loader_n_word(&unit->core));
    const uint32_t status = loader_advance(&unit->core, beat);
    if (status != KL_E_BUSY)
        unit->image = NULL;
    return status;
}

static void exec(struct kl_unit *unit, const struct kl_request *request, struct kl_result *result)
{
    core_exec(&unit->core, request, 0, result);
    front_look(&unit->front, &unit->core, unit->reg);
}

static void exec_pair(struct kl_unit *const unit[2], const struct kl_request *request, uint32_t wait_cycles,
                      struct kl_result *result)
{
    struct kl_core *const core[2] = {&unit[0]->core, &unit[1]->core};
    core_exec_pair(core, request, wait_cycles, result);
}

/* ---- the queue, as a host drives it through the register block ---- */

static int post(struct kl_unit *unit, const struct kl_request *request)
{
    uint32_t *reg = unit->reg;
    const uint32_t tail = reg[KL_REG_REQUEST_TAIL];
    if (tail - reg[KL_REG_RESULT_HEAD] >= KL_QUEUE_DEPTH)
        return -1;
    memcpy(&reg[KL_REG_REQUESTS + tail % KL_QUEUE_DEPTH * (sizeof *request / 4)], request, sizeof *request);
    reg[KL_REG_REQUEST_TAIL] = tail + 1;
    return 0;
}

static int take(struct kl_unit *unit, struct kl_result *result)
{
    uint32_t *reg = unit->reg;
    /* A round answers the next request; with none there it does a prepare, until nothing is left to do. The
     * load is the host's to advance here, so no image. */
    while (reg[KL_REG_RESULT_TAIL] == reg[KL_REG_RESULT_HEAD]) {
        if (!front_serve(&unit->front, &unit->core, reg, NULL, NULL))
            return 0;
    }
    const uint32_t head = reg[KL_REG_RESULT_HEAD];
    memcpy(result, &reg[KL_REG_RESULTS + head % KL_QUEUE_DEPTH * (sizeof *result / 4)], sizeof *result);
    reg[KL_REG_RESULT_HEAD] = head + 1;
    return 1;
}

/* Records are words to the kernel, as in memory; this build is compiled without strict aliasing. */
static void kernel(struct kl_unit *unit, const struct kl_arguments *arguments)
{
    kernel_start(&unit->core, &unit->front, unit->reg, arguments->command, arguments->slot,
                 arguments->image_size_bytes, arguments->n_request, (const uint64_t *)arguments->image,
                 (const uint32_t *)(const void *)arguments->request, (uint32_t *)(void *)arguments->result,
                 (uint32_t *)(void *)arguments->state);
}

static uint32_t *registers(struct kl_unit *unit)
{
    return unit->reg;
}

/* ---- states ---- */

static uint32_t save(const struct kl_unit *unit, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    return stream_save(&unit->core, slot, stream, (uint32_t *)(void *)state);
}

static uint32_t restore(struct kl_unit *unit, uint32_t slot, uint32_t stream, const struct kl_state *state)
{
    return stream_restore(&unit->core, slot, stream, (const uint32_t *)(const void *)state);
}

static uint32_t save_pair(struct kl_unit *const unit[2], uint32_t slot, uint32_t stream,
                          struct kl_state *state)
{
    struct kl_state whole;
    memset(&whole, 0, sizeof whole);
    for (int u = 0; u < 2; u++) {
        const uint32_t status = stream_take(&unit[u]->core, slot, stream, &whole);
        if (status != KL_OK)
            return status;
    }
    struct kl_core *const core[2] = {&unit[0]->core, &unit[1]->core};
    if (!core_pair_fits(core, slot) || !core_pair_agrees(core, slot, stream))
        return KL_E_PEER;
    stream_seal(&whole);
    *state = whole;
    return KL_OK;
}

static uint32_t restore_pair(struct kl_unit *const unit[2], uint32_t slot, uint32_t stream,
                             const struct kl_state *state)
{
    for (int u = 0; u < 2; u++) {
        const uint32_t status = stream_check(&unit[u]->core, slot, stream, state);
        if (status != KL_OK)
            return status;
    }
    struct kl_core *const core[2] = {&unit[0]->core, &unit[1]->core};
    if (!core_pair_fits(core, slot))
        return KL_E_PEER;
    stream_put(&unit[0]->core, slot, stream, state);
    stream_put(&unit[1]->core, slot, stream, state);
    return KL_OK;
}

/* ---- cycles ---- */

static uint32_t step_cycles(const struct kl_image_header *header, uint32_t n_part, int prepared)
{
    const struct seq_shape shape = loader_shape(header, 0, n_part);
    return seq_step_cycles(&shape, prepared);
}

static uint32_t prepare_cycles(const struct kl_image_header *header, uint32_t n_part)
{
    const struct seq_shape shape = loader_shape(header, 0, n_part);
    return seq_prepare_cycles(&shape);
}

static uint32_t io_cycles(const struct kl_image_header *header)
{
    return front_io_cycles(header->n_in);
}

static uint32_t frame_cycles(void)
{
    return KL_FRAME;
}

static uint8_t *weights(struct kl_unit *unit, size_t *size_bytes)
{
    *size_bytes = sizeof unit->core.weights;
    return (uint8_t *)&unit->core.weights;
}

static int32_t seen_z(const struct kl_unit *unit, uint32_t layer, uint32_t row)
{
    const struct kl_core *core = &unit->core;
    const uint32_t group = row / KL_MAC_ROWS;
    if (layer >= KL_BUILD_LAYERS || group % core->n_part != core->part || group / core->n_part >= KL_N_GROUP)
        return 0;
    return core->seen_z[layer][group / core->n_part][row % KL_MAC_ROWS];
}

__attribute__((visibility("default"))) const struct kl_build KL_BUILD_SYMBOL(kl_build) = {
    .name = KL_BUILD_NAME,
    .unit_size_bytes = unit_size_bytes,
    .init = init,
    .info = info,
    .load_begin = load_begin,
    .load_advance = load_advance,
    .exec = exec,
    .exec_pair = exec_pair,
    .post = post,
    .take = take,
    .kernel = kernel,
    .registers = registers,
    .save = save,
    .restore = restore,
    .save_pair = save_pair,
    .restore_pair = restore_pair,
    .check_shape = loader_check_shape,
    .step_cycles = step_cycles,
    .prepare_cycles = prepare_cycles,
    .reset_cycles = seq_reset_cycles,
    .frame_cycles = frame_cycles,
    .io_cycles = io_cycles,
    .resources = kl_resources_estimate,
    .weights = weights,
    .seen_z = seen_z,
};
