#include "bench_lstm_onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx.pb-c.h"

enum {
    NAME_CHARS = 16,
    OPSET = 14, /* LSTM-14 */
    IR_VERSION = 7,
    N_NODE_MAX = KL_N_LAYER_MAX + 2,
    N_TENSOR_MAX = 3 * KL_N_LAYER_MAX + 2,
    N_VALUE_MAX = 1 + 2 * KL_N_LAYER_MAX,
    N_DIM = 3,
    N_LSTM_INPUT = 7,
};

/* Whatever the message points to, in one place. */
struct builder {
    Onnx__NodeProto node[N_NODE_MAX], *nodes[N_NODE_MAX];
    Onnx__AttributeProto attribute[KL_N_LAYER_MAX], *attributes[KL_N_LAYER_MAX];
    char *edge[N_NODE_MAX][N_LSTM_INPUT + 3]; /* inputs, then outputs */
    Onnx__TensorProto tensor[N_TENSOR_MAX], *tensors[N_TENSOR_MAX];
    int64_t tensor_dim[N_TENSOR_MAX][N_DIM];
    float *reordered[N_TENSOR_MAX];
    struct value {
        Onnx__ValueInfoProto info;
        Onnx__TypeProto type;
        Onnx__TypeProto__Tensor tensor;
        Onnx__TensorShapeProto shape;
        Onnx__TensorShapeProto__Dimension dim[N_DIM], *dims[N_DIM];
    } input[N_VALUE_MAX], output[N_VALUE_MAX];
    Onnx__ValueInfoProto *inputs[N_VALUE_MAX], *outputs[N_VALUE_MAX];
    char name[N_TENSOR_MAX + 2 * N_VALUE_MAX][NAME_CHARS];
    uint32_t n_name, n_tensor, n_node;
    int failed;
};

static char *name(struct builder *b, const char *stem, uint32_t layer, const char *tail)
{
    char *out = b->name[b->n_name++];
    snprintf(out, NAME_CHARS, "%s%u%s", stem, layer, tail);
    return out;
}

/* A weight tensor; data stays the caller's. */
static void add_tensor(struct builder *b, char *tensor_name, uint32_t n_dim, const int64_t *dims,
                       const float *data)
{
    Onnx__TensorProto *tensor = &b->tensor[b->n_tensor];
    size_t n = 1;
    onnx__tensor_proto__init(tensor);
    tensor->name = tensor_name;
    tensor->n_dims = n_dim;
    tensor->dims = b->tensor_dim[b->n_tensor];
    for (uint32_t i = 0; i < n_dim; i++) {
        tensor->dims[i] = dims[i];
        n *= (size_t)dims[i];
    }
    tensor->has_data_type = 1;
    tensor->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    tensor->n_float_data = n;
    tensor->float_data = (float *)(uintptr_t)data; /* packed from, never written to */
    b->tensors[b->n_tensor++] = tensor;
}

/* The same, its gates in ONNX's order i, o, f, g; PyTorch's rows are i, f, g, o. n_zero rows of zeros behind.
 */
static void add_gates(struct builder *b, char *tensor_name, uint32_t n_dim, const int64_t *dims,
                      const float *data, size_t n_per_gate, size_t n_zero)
{
    static const size_t from[KL_N_GATE] = {0, 3, 1, 2};
    float *out = calloc(KL_N_GATE * n_per_gate + n_zero, sizeof(*out));
    b->reordered[b->n_tensor] = out;
    for (size_t gate = 0; out && gate < KL_N_GATE; gate++)
        memcpy(out + gate * n_per_gate, data + from[gate] * n_per_gate, n_per_gate * sizeof(*out));
    b->failed |= !out;
    add_tensor(b, tensor_name, n_dim, dims, out);
}

static void add_node(struct builder *b, const char *type, uint32_t n_input, uint32_t n_output)
{
    Onnx__NodeProto *node = &b->node[b->n_node];
    onnx__node_proto__init(node);
    node->op_type = (char *)(uintptr_t)type;
    node->n_input = n_input;
    node->input = b->edge[b->n_node];
    node->n_output = n_output;
    node->output = b->edge[b->n_node] + n_input;
    b->nodes[b->n_node++] = node;
}

static Onnx__ValueInfoProto *describe(struct value *value, char *value_name, uint32_t n)
{
    onnx__value_info_proto__init(&value->info);
    onnx__type_proto__init(&value->type);
    onnx__type_proto__tensor__init(&value->tensor);
    onnx__tensor_shape_proto__init(&value->shape);
    for (int i = 0; i < N_DIM; i++) {
        onnx__tensor_shape_proto__dimension__init(&value->dim[i]);
        value->dim[i].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        value->dim[i].dim_value = i == N_DIM - 1 ? (int64_t)n : 1;
        value->dims[i] = &value->dim[i];
    }
    value->shape.n_dim = N_DIM;
    value->shape.dim = value->dims;
    value->tensor.has_elem_type = 1;
    value->tensor.elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    value->tensor.shape = &value->shape;
    value->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    value->type.tensor_type = &value->tensor;
    value->info.name = value_name;
    value->info.type = &value->type;
    return &value->info;
}

static char x_name[] = "x", logits_name[] = "logits", sum_name[] = "sum", head_w_name[] = "head_w",
            head_bias_name[] = "head_bias", hidden_size_name[] = "hidden_size", no_name[] = "",
            graph_name[] = "lstm";

/* Returns the name of the layer's h. */
static char *add_layer(struct builder *b, const struct model_weights *weights, uint32_t l, char *x)
{
    const uint32_t n_in = l ? weights->n_hidden[l - 1] : weights->n_in, n_hidden = weights->n_hidden[l];
    const int64_t n_row = KL_N_GATE * (int64_t)n_hidden;
    char **edge = b->edge[b->n_node];
    edge[0] = x;
    edge[1] = name(b, "w", l, "");
    edge[2] = name(b, "r", l, "");
    edge[3] = name(b, "b", l, "");
    edge[4] = no_name; /* sequence lengths */
    edge[5] = name(b, "h", l, "");
    edge[6] = name(b, "c", l, "");
    edge[7] = no_name; /* all steps' h: there is one step */
    edge[8] = name(b, "h", l, "_next");
    edge[9] = name(b, "c", l, "_next");
    add_gates(b, edge[1], 3, (const int64_t[]){1, n_row, n_in}, weights->w_x[l], (size_t)n_hidden * n_in, 0);
    add_gates(b, edge[2], 3, (const int64_t[]){1, n_row, n_hidden}, weights->w_h[l],
              (size_t)n_hidden * n_hidden, 0);
    add_gates(b, edge[3], 2, (const int64_t[]){1, 2 * n_row}, weights->bias[l], n_hidden, (size_t)n_row);
    add_node(b, "LSTM", N_LSTM_INPUT, 3);
    Onnx__AttributeProto *attribute = b->attributes[l] = &b->attribute[l];
    onnx__attribute_proto__init(attribute);
    attribute->name = hidden_size_name;
    attribute->has_type = attribute->has_i = 1;
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    attribute->i = n_hidden;
    b->node[l].n_attribute = 1;
    b->node[l].attribute = &b->attributes[l];
    b->inputs[1 + 2 * l] = describe(&b->input[1 + 2 * l], edge[5], n_hidden);
    b->inputs[2 + 2 * l] = describe(&b->input[2 + 2 * l], edge[6], n_hidden);
    b->outputs[1 + 2 * l] = describe(&b->output[1 + 2 * l], edge[8], n_hidden);
    b->outputs[2 + 2 * l] = describe(&b->output[2 + 2 * l], edge[9], n_hidden);
    return edge[8];
}

/* head_w: [n_hidden][n_class], transposed, the builder's. */
static void add_head(struct builder *b, const struct model_weights *weights, char *h)
{
    const uint32_t n_hidden = weights->n_hidden[weights->n_layer - 1], n_class = weights->n_class;
    float *w = malloc((size_t)n_hidden * n_class * sizeof(*w));
    b->reordered[b->n_tensor] = w;
    for (uint32_t u = 0; w && u < n_hidden; u++)
        for (uint32_t c = 0; c < n_class; c++)
            w[(size_t)u * n_class + c] = weights->head_w[(size_t)c * n_hidden + u];
    b->failed |= !w;
    add_tensor(b, head_w_name, 2, (const int64_t[]){n_hidden, n_class}, w);
    add_tensor(b, head_bias_name, 1, (const int64_t[]){n_class}, weights->head_bias);
    char **product = b->edge[b->n_node];
    product[0] = h;
    product[1] = head_w_name;
    product[2] = sum_name;
    add_node(b, "MatMul", 2, 1);
    char **sum = b->edge[b->n_node];
    sum[0] = sum_name;
    sum[1] = head_bias_name;
    sum[2] = logits_name;
    add_node(b, "Add", 2, 1);
}

int bench_lstm_onnx_model(const struct model_weights *weights, void **data, size_t *size_bytes)
{
    struct builder *b = calloc(1, sizeof(*b));
    if (!b)
        return -1;
    b->inputs[0] = describe(&b->input[0], x_name, weights->n_in);
    b->outputs[0] = describe(&b->output[0], logits_name, weights->n_class);
    char *h = x_name;
    for (uint32_t l = 0; l < weights->n_layer; l++)
        h = add_layer(b, weights, l, h);
    add_head(b, weights, h);
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = {&opset};
    opset.has_version = 1;
    opset.version = OPSET;
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    graph.name = graph_name;
    graph.n_node = b->n_node;
    graph.node = b->nodes;
    graph.n_initializer = b->n_tensor;
    graph.initializer = b->tensors;
    graph.n_input = graph.n_output = 1 + 2 * weights->n_layer;
    graph.input = b->inputs;
    graph.output = b->outputs;
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    model.has_ir_version = 1;
    model.ir_version = IR_VERSION;
    model.n_opset_import = 1;
    model.opset_import = opsets;
    model.graph = &graph;
    int status = -1;
    if (!b->failed) {
        *size_bytes = onnx__model_proto__get_packed_size(&model);
        *data = malloc(*size_bytes);
        if (*data) {
            onnx__model_proto__pack(&model, *data);
            status = 0;
        }
    }
    for (uint32_t i = 0; i < N_TENSOR_MAX; i++)
        free(b->reordered[i]);
    free(b);
    return status;
}
