/* Slots, streams and requests. Loading a model is in kl_image.c. */
#include "kl_core.h"

#include <string.h>

#include "grid.h"
#include "kl_pragma.h"

size_t kl_core_size_bytes(void)
{
    return sizeof(struct kl_core);
}

void kl_core_init(struct kl_core *core)
{
    memset(core, 0, sizeof *core);
}

static uint32_t check_request(const struct kl_core *core, const struct kl_request *request)
{
    if (request->abi_version != KL_ABI_VERSION)
        return KL_E_ABI;
    if (request->op < KL_OP_STEP || request->op > KL_OP_RESET)
        return KL_E_OP;
    if (request->slot >= KL_N_SLOT)
        return KL_E_SLOT;
    if (request->stream >= KL_N_STREAM_MAX)
        return KL_E_STREAM;
    if (!core->model[request->slot].loaded)
        return KL_E_EMPTY;
    return KL_OK;
}

/* x in grid steps; 0 if one of the n_in values is not on the grid. */
static int read_x(const uint16_t bits[KL_N_IN_MAX], uint32_t n_in, struct lstm_operands x[KL_X_BLOCKS_MAX])
{
    int good = 1;
input:
    for (uint32_t k = 0; k < KL_X_BLOCKS_MAX * KL_BLOCK; k++) {
        /* II = 1: 32 operands of a 64-byte beat at once. */
        KL_PRAGMA(HLS PIPELINE II = 1)
        KL_PRAGMA(HLS UNROLL factor = 32)
        int32_t steps = 0;
        if (k < n_in)
            good &= grid_steps(bits[k], KL_X_FRAC, KL_X_ABS_MAX, &steps);
        x[k / KL_BLOCK].v[k % KL_BLOCK] = (int16_t)steps;
    }
    return good;
}

static void prepare(const struct kl_model *model, struct kl_stream *stream)
{
layer:
    for (uint32_t l = 0; l < model->header.n_layer; l++) {
        /* No II: one layer's product after the other, all on the one MAC array. */
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 3)
        const struct kl_layer *layer = &model->layer[l];
        lstm_prepare(stream->z[l], layer->bias, &model->weights[layer->h_word], stream->h[l], layer->h_shift,
                     layer->h_shape);
    }
    stream->prepared = 1;
}

/* All layers from x up; stream is prepared. */
static void step(const struct kl_model *model, struct kl_stream *stream, const struct lstm_operands *x)
{
    const struct lstm_operands *operands = x;
layer:
    for (uint32_t l = 0; l < model->header.n_layer; l++) {
        /* No II: a layer needs every h of the one below. */
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 3)
        const struct kl_layer *layer = &model->layer[l];
        lstm_step(stream->h[l], stream->c[l], stream->z[l], &model->weights[layer->x_word], operands,
                  layer->x_shift, layer->x_shape);
        operands = stream->h[l];
    }
    stream->prepared = 0; /* h has moved on */
}

static void head(const struct kl_model *model, const struct lstm_operands *h, struct kl_result *result)
{
    const uint32_t n_block = model->layer[model->header.n_layer - 1].h_shape.n_block;
    int64_t logit[KL_N_CLASS_MAX];
    KL_PRAGMA(HLS ARRAY_PARTITION variable = logit complete)
bias:
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
        KL_PRAGMA(HLS UNROLL)
        logit[k] = model->head_bias[k]; /* 0 above n_class */
    }
block:
    for (uint32_t b = 0; b < n_block; b++) {
        /* II = 4, as in lstm_cell.c: 16 columns of a class per cycle, its sum the only carried dependence. */
        KL_PRAGMA(HLS PIPELINE II = 4)
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 4)
    logit_row:
        for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
            KL_PRAGMA(HLS UNROLL)
            int64_t sum = 0;
        column:
            for (uint32_t i = 0; i < KL_BLOCK; i++) {
                KL_PRAGMA(HLS UNROLL)
                sum += (int32_t)model->head[k][b][i] * h[b].v[i];
            }
            logit[k] += sum;
        }
    }
    uint8_t best = 0;
argmax:
    for (uint8_t k = 0; k < KL_N_CLASS_MAX; k++) {
        KL_PRAGMA(HLS UNROLL)
        if (k < model->header.n_class && logit[k] > logit[best])
            best = k;
        result->logits[k] = logit[k];
    }
    result->cls = best;
}

/* h and c back to zero; units beyond the model's shape are zero already and stay so. */
static void reset(const struct kl_model *model, struct kl_stream *stream)
{
layer:
    for (uint32_t l = 0; l < model->header.n_layer; l++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 3)
    group:
        for (uint32_t group = 0; group < model->layer[l].h_shape.n_group; group++) {
            /* II = 1: the units of a group lie side by side in memory. */
            KL_PRAGMA(HLS PIPELINE II = 1)
            KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 32)
        unit:
            for (uint32_t u = 0; u < KL_GROUP_UNITS; u++) {
                KL_PRAGMA(HLS UNROLL)
                const uint32_t unit = group * KL_GROUP_UNITS + u;
                stream->h[l][unit / KL_BLOCK].v[unit % KL_BLOCK] = 0;
                stream->c[l][group][u] = 0;
            }
        }
    }
    stream->prepared = 0;
}

void kl_core_exec(struct kl_core *core, const struct kl_request *request, struct kl_result *result)
{
    memset(result, 0, sizeof *result);
    result->abi_version = KL_ABI_VERSION;
    result->stream = request->stream;
    result->seq_no = request->seq_no;
    result->slot = request->slot;
    result->status = (uint16_t)check_request(core, request);
    if (result->status != KL_OK)
        return;

    const struct kl_model *model = &core->model[request->slot];
    struct kl_stream *stream = &core->stream[request->slot][request->stream];
    uint32_t cycles;
    switch (request->op) {
    case KL_OP_STEP: {
        struct lstm_operands x[KL_X_BLOCKS_MAX];
        if (!read_x(request->x, model->header.n_in, x)) {
            result->status = KL_E_INPUT;
            return;
        }
        cycles = stream->prepared ? model->cycles_step_prepared : model->cycles_step;
        if (!stream->prepared)
            prepare(model, stream);
        step(model, stream, x);
        head(model, stream->h[model->header.n_layer - 1], result);
        break;
    }
    case KL_OP_PREPARE:
        cycles = stream->prepared ? kl_schedule_frame_cycles() : model->cycles_prepare;
        if (!stream->prepared)
            prepare(model, stream);
        break;
    default: /* KL_OP_RESET: check_request knows no other */
        cycles = model->cycles_reset;
        reset(model, stream);
        break;
    }

    result->flags = request->budget_cycles != 0 && cycles > request->budget_cycles ? KL_RESULT_LATE : 0;
    result->kernel_cycles = cycles;
    result->prepare_cycles = stream->prepared ? kl_schedule_frame_cycles() : model->cycles_prepare;
    result->image_hash = model->header.image_hash;
    result->n_class = (uint8_t)model->header.n_class;
    result->logit_frac = (uint8_t)(model->header.head_frac + KL_H_FRAC);
}
