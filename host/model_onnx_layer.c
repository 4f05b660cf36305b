/* The operators that carry weights: LSTM, and the linear head (Gemm, or MatMul and Add). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model_onnx_graph.h"

/* ONNX stacks the gates as i, o, f, c; PyTorch and model.h as i, f, g (= c), o. Source: ONNX, LSTM. */
static const uint32_t onnx_gate[KL_N_GATE] = {0, 2, 3, 1};

/* [1][4 * n_hidden][n_column] in ONNX gate order into model.h's. */
static int take_gates(struct onnx_graph *graph, const struct onnx_value *value, const char *what,
                      uint32_t n_hidden, uint32_t n_column, float **out)
{
    const uint32_t dims[3] = {1, KL_N_GATE * n_hidden, n_column};
    const size_t block = (size_t)n_hidden * n_column;
    float *onnx;
    if (!value || value->kind != ONNX_CONST || value->transposed)
        return onnx_refuse(graph, "%s is computed, not stored: export with do_constant_folding=True", what);
    if (onnx_tensor_floats(graph, value->tensor, what, dims, 3, &onnx))
        return -1;
    *out = malloc(KL_N_GATE * block * sizeof(float));
    for (uint32_t gate = 0; *out && gate < KL_N_GATE; gate++)
        memcpy(*out + gate * block, onnx + onnx_gate[gate] * block, block * sizeof(float));
    free(onnx);
    return *out ? 0 : onnx_refuse(graph, "out of memory");
}

/* B is [1][8 * n_hidden]: the input's biases, then the recurrent ones. */
static int take_bias(struct onnx_graph *graph, const struct onnx_value *value, uint32_t n_hidden, float **out)
{
    const uint32_t dims[2] = {1, 2 * KL_N_GATE * n_hidden};
    float *onnx = NULL;
    if (value && (value->kind != ONNX_CONST || value->transposed))
        return onnx_refuse(graph, "B is computed, not stored: export with do_constant_folding=True");
    if (value && onnx_tensor_floats(graph, value->tensor, "B", dims, 2, &onnx))
        return -1;
    *out = calloc((size_t)KL_N_GATE * n_hidden, sizeof(float));
    for (uint32_t row = 0; *out && onnx && row < KL_N_GATE * n_hidden; row++) {
        uint32_t from = onnx_gate[row / n_hidden] * n_hidden + row % n_hidden;
        (*out)[row] = onnx[from] + onnx[KL_N_GATE * n_hidden + from];
    }
    free(onnx);
    return *out ? 0 : onnx_refuse(graph, "out of memory");
}

static int check_lstm_attributes(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    static const char *const known[] = {"hidden_size",  "direction", "activations", "clip",
                                        "input_forget", "layout",    NULL};
    static const char *const activation[] = {"Sigmoid", "Tanh", "Tanh"};
    const Onnx__AttributeProto *direction = onnx_attribute(node, "direction");
    const Onnx__AttributeProto *activations = onnx_attribute(node, "activations");
    if (onnx_only_attributes(graph, node, known))
        return -1;
    if (direction && (direction->s.len != 7 || memcmp(direction->s.data, "forward", 7)))
        return onnx_refuse(graph, "direction is not 'forward': the future is not known, train one direction");
    if (activations && activations->n_strings != 3)
        return onnx_refuse(graph, "%zu activations: three are needed", activations->n_strings);
    for (size_t i = 0; activations && i < activations->n_strings; i++) {
        const ProtobufCBinaryData *name = &activations->strings[i];
        if (name->len != strlen(activation[i]) || memcmp(name->data, activation[i], name->len))
            return onnx_refuse(graph, "activations other than Sigmoid, Tanh, Tanh: the kernel has no others");
    }
    if (onnx_attribute(node, "clip"))
        return onnx_refuse(graph, "clip is not supported: train without cell clipping");
    if (onnx_attribute_int(node, "input_forget", 0))
        return onnx_refuse(graph, "input_forget (coupled gates) is not supported: train without");
    if (onnx_attribute_int(node, "layout", 0))
        return onnx_refuse(graph, "layout 1 is not supported: export with layout 0, as PyTorch does");
    return 0;
}

static int check_initial_state(struct onnx_graph *graph, const struct onnx_value *value, const char *what)
{
    if (!value || value->kind == ONNX_ZERO || value->kind == ONNX_STATE_IN ||
        (value->kind == ONNX_CONST && onnx_tensor_is_zero(value->tensor)))
        return 0;
    return onnx_refuse(graph, "%s is neither zero nor an input of the model: streams start from zero", what);
}

/* The first layer learns here which of the input's axes is time. */
static int check_lstm_input(struct onnx_graph *graph, const struct onnx_value *x)
{
    const uint32_t layer = graph->weights.n_layer;
    if (!x || x->kind != ONNX_ACTIVATION)
        return onnx_refuse(graph, "X is not the features: make them the model's first input");
    if (layer >= KL_N_LAYER_MAX)
        return onnx_refuse(graph, "more than %d layers", KL_N_LAYER_MAX);
    if (x->stage == ONNX_LOGITS || (x->stage == ONNX_INPUT) != !layer || (layer && x->layer != layer - 1))
        return onnx_refuse(graph,
                           "LSTM layers must be in one chain, each on the whole output of the one before");
    if (strlen(x->axes) != 3 || x->axes[2] != 'F' || x->last_step || x->n_stacked > 1 ||
        (layer && strcmp(x->axes, "TBF")))
        return onnx_refuse(graph, "X has axes '%s': [time, batch, features] of every step is needed",
                           x->axes);
    return 0;
}

int onnx_lstm(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    const struct onnx_value *x = onnx_input(graph, node, 0), *w = onnx_input(graph, node, 1);
    struct model_weights *weights = &graph->weights;
    const uint32_t layer = weights->n_layer;
    if (check_lstm_attributes(graph, node) || check_lstm_input(graph, x))
        return -1;
    if (onnx_input(graph, node, 4))
        return onnx_refuse(graph, "sequence_lens is not supported: export without packed sequences");
    if (onnx_input(graph, node, 7) || node->n_input > 8)
        return onnx_refuse(graph, "peephole weights are not supported: train without");
    if (check_initial_state(graph, onnx_input(graph, node, 5), "initial_h") ||
        check_initial_state(graph, onnx_input(graph, node, 6), "initial_c"))
        return -1;
    int64_t n_hidden = onnx_attribute_int(node, "hidden_size", 0);
    if (n_hidden < 1 || n_hidden > KL_N_HIDDEN_MAX)
        return onnx_refuse(graph, "hidden_size %" PRId64 ": 1 to %d", n_hidden, KL_N_HIDDEN_MAX);
    if (!w || w->kind != ONNX_CONST || w->tensor->n_dims != 3)
        return onnx_refuse(graph, "W is computed, not stored: export with do_constant_folding=True");
    int64_t n_in = w->tensor->dims[2], n_in_max = layer ? KL_N_HIDDEN_MAX : KL_N_IN_MAX;
    if (n_in < 1 || n_in > n_in_max || (x->width && n_in != x->width))
        return onnx_refuse(graph,
                           "W has %" PRId64 " inputs: layer %u takes 1 to %" PRId64 " and must fit X (%u)",
                           n_in, layer, n_in_max, x->width);
    if (take_gates(graph, w, "W", (uint32_t)n_hidden, (uint32_t)n_in, &weights->w_x[layer]) ||
        take_gates(graph, onnx_input(graph, node, 2), "R (no projection)", (uint32_t)n_hidden,
                   (uint32_t)n_hidden, &weights->w_h[layer]) ||
        take_bias(graph, onnx_input(graph, node, 3), (uint32_t)n_hidden, &weights->bias[layer]))
        return -1;
    if (!layer)
        weights->n_in = (uint32_t)n_in;
    weights->n_hidden[layer] = (uint32_t)n_hidden;
    weights->n_layer = layer + 1;
    struct onnx_value y = {.kind = ONNX_ACTIVATION,
                           .stage = ONNX_HIDDEN,
                           .axes = "TDBF",
                           .layer = layer,
                           .n_stacked = 1,
                           .width = (uint32_t)n_hidden};
    struct onnx_value y_h = y;
    memcpy(y_h.axes, "LBF", 4); /* the direction axis, on which PyTorch stacks the layers */
    y_h.last_step = 1;
    return onnx_define(graph, node, 0, y) || onnx_define(graph, node, 1, y_h) ||
                   onnx_define(graph, node, 2, (struct onnx_value){.kind = ONNX_CELL_OUT})
               ? -1
               : 0;
}

static int check_head_input(struct onnx_graph *graph, const struct onnx_value *x)
{
    if (!x || x->kind != ONNX_ACTIVATION || x->stage == ONNX_INPUT)
        return onnx_refuse(graph, "a linear layer before the LSTM: fold it into the first layer's W");
    if (x->stage == ONNX_LOGITS || graph->weights.head_w)
        return onnx_refuse(graph, "a second linear layer: the kernel has one head, from the last layer's h");
    if (x->n_stacked != 1 || !*x->axes || x->axes[strlen(x->axes) - 1] != 'F')
        return onnx_refuse(graph, "axes '%s': the head must act on the hidden units of one layer", x->axes);
    if (x->layer + 1 != graph->weights.n_layer)
        return onnx_refuse(graph, "the head reads layer %u of %u: it must be the last one", x->layer,
                           graph->weights.n_layer);
    return 0;
}

/* weights of the head, [classes][hidden], stored so or the other way round. */
static int take_head(struct onnx_graph *graph, const struct onnx_value *x, const struct onnx_value *w,
                     int stored_by_class, struct onnx_value *logits)
{
    if (!w || w->kind != ONNX_CONST || w->tensor->n_dims != 2)
        return onnx_refuse(graph, "the head's weights are computed, not stored: export with "
                                  "do_constant_folding=True");
    stored_by_class ^= w->transposed;
    int64_t n_class = w->tensor->dims[stored_by_class ? 0 : 1];
    if (n_class < 2 || n_class > KL_N_CLASS_MAX)
        return onnx_refuse(graph, "%" PRId64 " classes: 2 to %d", n_class, KL_N_CLASS_MAX);
    uint32_t classes = (uint32_t)n_class, n_hidden = x->width;
    const uint32_t dims[2] = {stored_by_class ? classes : n_hidden, stored_by_class ? n_hidden : classes};
    float *stored;
    if (onnx_tensor_floats(graph, w->tensor, "the head's weight", dims, 2, &stored))
        return -1;
    graph->weights.head_w = malloc((size_t)classes * n_hidden * sizeof(float));
    graph->weights.head_bias = calloc(classes, sizeof(float));
    graph->weights.n_class = classes;
    int ok = graph->weights.head_w && graph->weights.head_bias;
    for (uint32_t c = 0; ok && c < classes; c++)
        for (uint32_t k = 0; k < n_hidden; k++)
            graph->weights.head_w[c * n_hidden + k] =
                stored_by_class ? stored[c * n_hidden + k] : stored[k * classes + c];
    free(stored);
    if (!ok)
        return onnx_refuse(graph, "out of memory");
    *logits = *x;
    logits->stage = ONNX_LOGITS;
    logits->width = classes;
    return 0;
}

static int take_head_bias(struct onnx_graph *graph, const struct onnx_value *bias, struct onnx_value *logits)
{
    float *stored;
    if (bias->kind != ONNX_CONST)
        return onnx_refuse(graph,
                           "the head's bias is computed, not stored: export with do_constant_folding=True");
    if (onnx_tensor_floats(graph, bias->tensor, "the head's bias", &logits->width, 1, &stored))
        return -1;
    memcpy(graph->weights.head_bias, stored, logits->width * sizeof(float));
    free(stored);
    logits->has_bias = 1;
    return 0;
}

int onnx_gemm(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    static const char *const known[] = {"alpha", "beta", "transA", "transB", NULL};
    const struct onnx_value *x = onnx_input(graph, node, 0), *bias = onnx_input(graph, node, 2);
    const Onnx__AttributeProto *alpha = onnx_attribute(node, "alpha"), *beta = onnx_attribute(node, "beta");
    struct onnx_value logits;
    if (onnx_only_attributes(graph, node, known) || check_head_input(graph, x))
        return -1;
    if ((alpha && alpha->f != 1.0f) || (bias && beta && beta->f != 1.0f) ||
        onnx_attribute_int(node, "transA", 0))
        return onnx_refuse(graph, "alpha and beta must be 1, transA 0: fold the factors into the weights");
    if (strlen(x->axes) != 2)
        return onnx_refuse(graph, "axes '%s': Gemm takes two", x->axes);
    if (take_head(graph, x, onnx_input(graph, node, 1), onnx_attribute_int(node, "transB", 0) != 0,
                  &logits) ||
        (bias && take_head_bias(graph, bias, &logits)))
        return -1;
    return onnx_define(graph, node, 0, logits);
}

int onnx_matmul(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    const struct onnx_value *x = onnx_input(graph, node, 0);
    struct onnx_value logits;
    if (check_head_input(graph, x) || take_head(graph, x, onnx_input(graph, node, 1), 0, &logits))
        return -1;
    return onnx_define(graph, node, 0, logits);
}

/* The bias behind a MatMul. (Additions of shape arithmetic do not come here.) */
int onnx_add(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    const struct onnx_value *a = onnx_input(graph, node, 0), *b = onnx_input(graph, node, 1);
    if (a && b && a->kind == ONNX_CONST) {
        const struct onnx_value *swap = a;
        a = b;
        b = swap;
    }
    if (!a || !b || a->kind != ONNX_ACTIVATION || a->stage != ONNX_LOGITS || a->has_bias ||
        a->axes[strlen(a->axes) - 1] != 'F')
        return onnx_refuse(graph,
                           "only the head's bias can be added: no residual connections, no second bias");
    struct onnx_value logits = *a;
    if (take_head_bias(graph, b, &logits))
        return -1;
    return onnx_define(graph, node, 0, logits);
}
