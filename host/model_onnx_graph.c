/* Follows the graph: which axes a value has, whether it is an activation, a state or only a shape. */
#include "model_onnx_graph.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_NODE_MAX = 1024, N_NODE_INPUT_MAX = 16, N_NODE_OUTPUT_MAX = 4, N_TENSOR_MAX = 512, N_PORT_MAX = 16 };

int onnx_refuse(struct onnx_graph *graph, const char *format, ...)
{
    int n = 0;
    va_list args;
    va_start(args, format);
    if (graph->reason_op)
        n = snprintf(graph->error, MODEL_ERROR_CHARS, "node '%.60s', operator %.30s: ", graph->reason_node,
                     graph->reason_op);
    vsnprintf(graph->error + n, MODEL_ERROR_CHARS - (size_t)n, format, args);
    va_end(args);
    return -1;
}

static const char *text(const char *name)
{
    return name ? name : "";
}

static const struct onnx_value *find(const struct onnx_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_value; i++)
        if (!strcmp(graph->value[i].name, name))
            return &graph->value[i];
    return NULL;
}

static int define_name(struct onnx_graph *graph, const char *name, struct onnx_value value)
{
    if (!*name)
        return 0;
    if (find(graph, name))
        return onnx_refuse(graph, "value '%.60s' is defined twice", name);
    if (graph->n_value == graph->n_value_max)
        return onnx_refuse(graph, "too many values");
    value.name = name;
    graph->value[graph->n_value++] = value;
    return 0;
}

const struct onnx_value *onnx_input(const struct onnx_graph *graph, const Onnx__NodeProto *node, size_t index)
{
    return index < node->n_input && *text(node->input[index]) ? find(graph, node->input[index]) : NULL;
}

int onnx_define(struct onnx_graph *graph, const Onnx__NodeProto *node, size_t index, struct onnx_value value)
{
    return index < node->n_output ? define_name(graph, text(node->output[index]), value) : 0;
}

const Onnx__AttributeProto *onnx_attribute(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (!strcmp(text(node->attribute[i]->name), name))
            return node->attribute[i];
    return NULL;
}

int64_t onnx_attribute_int(const Onnx__NodeProto *node, const char *name, int64_t absent)
{
    const Onnx__AttributeProto *attribute = onnx_attribute(node, name);
    if (!attribute)
        return absent;
    return attribute->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT ? attribute->i : INT64_MIN;
}

int onnx_only_attributes(struct onnx_graph *graph, const Onnx__NodeProto *node, const char *const *known)
{
    for (size_t i = 0; i < node->n_attribute; i++) {
        const char *name = text(node->attribute[i]->name);
        const char *const *k = known;
        while (*k && strcmp(*k, name))
            k++;
        if (!*k)
            return onnx_refuse(graph, "attribute '%.40s' is not supported: see killline model pack --help",
                               name);
    }
    return 0;
}

/* Integers that an operator takes as an attribute (older opsets) or as a constant input. Their number; 0:
 * absent; -1, refused: not constant. */
static int const_ints(struct onnx_graph *graph, const Onnx__NodeProto *node, const char *name, size_t input,
                      int64_t out[ONNX_RANK_MAX])
{
    const Onnx__AttributeProto *attribute = onnx_attribute(node, name);
    const struct onnx_value *value = onnx_input(graph, node, input);
    if (attribute && attribute->n_ints <= ONNX_RANK_MAX) {
        for (size_t i = 0; i < attribute->n_ints; i++)
            out[i] = attribute->ints[i];
        return (int)attribute->n_ints;
    }
    int n = value && value->kind == ONNX_CONST ? onnx_tensor_ints(value->tensor, out, ONNX_RANK_MAX) : -1;
    if (!attribute && !value)
        return 0;
    if (n < 0)
        return onnx_refuse(graph, "'%s' must be at most %d constant integers", name, ONNX_RANK_MAX);
    return n;
}

/* Nonzero: axis, counted from the end when negative, is one of the n_axis; it is made positive. */
static int normal_axis(int64_t *axis, size_t n_axis)
{
    if (*axis < 0 && *axis >= -(int64_t)n_axis)
        *axis += (int64_t)n_axis;
    return *axis >= 0 && *axis < (int64_t)n_axis;
}

static int refuse_axis(struct onnx_graph *graph, int64_t axis, const char *axes)
{
    return onnx_refuse(graph, "axis %" PRId64 " of '%s' cannot be treated so here", axis, axes);
}

static int transpose(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    struct onnx_value y = *x;
    size_t rank = strlen(x->axes);
    int64_t perm[ONNX_RANK_MAX];
    int n = const_ints(graph, node, "perm", SIZE_MAX, perm), used = 0;
    if (n < 0)
        return -1;
    if (x->kind == ONNX_CONST) {
        if (x->tensor->n_dims != 2 || n != 2 || perm[0] != 1 || perm[1] != 0)
            return onnx_refuse(graph, "of a stored tensor: export with do_constant_folding=True");
        y.transposed = !x->transposed;
        return onnx_define(graph, node, 0, y);
    }
    for (int i = 0; i < n; i++) {
        if ((size_t)n != rank || perm[i] < 0 || perm[i] >= n)
            return refuse_axis(graph, perm[i], x->axes);
        used |= 1 << perm[i];
        y.axes[i] = x->axes[perm[i]];
    }
    if (used != (1 << rank) - 1)
        return onnx_refuse(graph, "perm is not a permutation of the %zu axes '%s'", rank, x->axes);
    return onnx_define(graph, node, 0, y);
}

static int squeeze(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    struct onnx_value y = *x;
    size_t rank = strlen(x->axes), kept = 0;
    int64_t axis[ONNX_RANK_MAX];
    int n = const_ints(graph, node, "axes", 1, axis), drop = 0;
    if (n < 1)
        return n ? -1 : onnx_refuse(graph, "without axes: which axes vanish must not depend on the data");
    for (int i = 0; i < n; i++) {
        if (!normal_axis(&axis[i], rank) || x->axes[axis[i]] == 'F' ||
            (x->axes[axis[i]] == 'L' && x->n_stacked != 1))
            return refuse_axis(graph, axis[i], x->axes);
        drop |= 1 << axis[i];
    }
    for (size_t i = 0; i < rank; i++)
        if (!(drop >> i & 1))
            y.axes[kept++] = x->axes[i];
    y.axes[kept] = 0;
    return onnx_define(graph, node, 0, y);
}

static int unsqueeze(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    struct onnx_value y = *x;
    int64_t axis[ONNX_RANK_MAX];
    int n = const_ints(graph, node, "axes", 1, axis), inserted = 0;
    size_t rank = strlen(x->axes) + (size_t)(n > 0 ? n : 0), from = 0;
    if (n < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        if (rank > ONNX_RANK_MAX || !normal_axis(&axis[i], rank) || inserted >> axis[i] & 1)
            return refuse_axis(graph, axis[i], x->axes);
        inserted |= 1 << axis[i];
    }
    for (size_t i = 0; i < rank; i++)
        y.axes[i] = inserted >> i & 1 ? '1' : x->axes[from++];
    return onnx_define(graph, node, 0, y);
}

/* One index of an axis: the last time step, or one of the stacked layers. */
static int gather(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    struct onnx_value y = *x;
    const struct onnx_value *indices = onnx_input(graph, node, 1);
    int64_t axis = onnx_attribute_int(node, "axis", 0), index;
    size_t rank = strlen(x->axes);
    if (!indices || indices->kind != ONNX_CONST || onnx_tensor_ints(indices->tensor, &index, 1) != 1)
        return onnx_refuse(graph, "the index must be one constant");
    if (!normal_axis(&axis, rank))
        return refuse_axis(graph, axis, x->axes);
    if (x->axes[axis] == 'L' && normal_axis(&index, x->n_stacked)) {
        y.layer += (uint32_t)index;
        y.n_stacked = 1;
    } else if (x->axes[axis] == 'T' && index == -1) {
        y.last_step = 1;
    } else {
        return onnx_refuse(graph,
                           "index %" PRId64 " of axis %" PRId64 " of '%s': only the last time step (-1) or "
                           "a layer can be picked",
                           index, axis, x->axes);
    }
    if (!indices->tensor->n_dims)
        memmove(y.axes + axis, y.axes + axis + 1, rank - (size_t)axis);
    return onnx_define(graph, node, 0, y);
}

static int slice(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    struct onnx_value y = *x;
    size_t rank = strlen(x->axes);
    int64_t start[ONNX_RANK_MAX], end[ONNX_RANK_MAX], axis[ONNX_RANK_MAX], step[ONNX_RANK_MAX];
    int n = const_ints(graph, node, "starts", 1, start), n_end = const_ints(graph, node, "ends", 2, end);
    int n_axis = const_ints(graph, node, "axes", 3, axis), n_step = const_ints(graph, node, "steps", 4, step);
    if (n < 0 || n_end < 0 || n_axis < 0 || n_step < 0)
        return -1;
    if (!n || n_end != n || (n_axis && n_axis != n) || (n_step && n_step != n))
        return onnx_refuse(graph, "starts, ends, axes and steps differ in number");
    for (int i = 0; i < n; i++) {
        const int to_end = end[i] >= INT32_MAX;
        int64_t at = n_axis ? axis[i] : i;
        if (!normal_axis(&at, rank) || (n_step && step[i] != 1))
            return refuse_axis(graph, at, x->axes);
        if (!start[i] && to_end)
            continue;
        int64_t last = end[i] >= (int64_t)y.n_stacked ? (int64_t)y.n_stacked : end[i];
        if (y.axes[at] == 'T' && start[i] == -1 && to_end) {
            y.last_step = 1;
        } else if (y.axes[at] == 'L' && normal_axis(&start[i], y.n_stacked) && last > start[i]) {
            y.layer += (uint32_t)start[i];
            y.n_stacked = (uint32_t)(last - start[i]);
        } else {
            return onnx_refuse(graph,
                               "%" PRId64 " to %" PRId64 " of axis %" PRId64 " of '%s': only the last time "
                               "step or layers can be cut out",
                               start[i], end[i], at, x->axes);
        }
    }
    return onnx_define(graph, node, 0, y);
}

/* Only what leaves the features or classes last and whole: the steps before them are flattened. */
static int reshape(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    struct onnx_value y = *x;
    size_t rank = strlen(x->axes);
    int64_t shape[ONNX_RANK_MAX];
    int n = const_ints(graph, node, "shape", 1, shape);
    if (n < 1)
        return n ? -1 : onnx_refuse(graph, "without a shape");
    if (!rank || x->axes[rank - 1] != 'F' || !x->width || shape[n - 1] != x->width || x->n_stacked != 1)
        return onnx_refuse(graph, "of '%s': the last axis must stay the %u features or classes", x->axes,
                           x->width);
    memset(y.axes, 'S', (size_t)n - 1);
    y.axes[n - 1] = 'F';
    y.axes[n] = 0;
    return onnx_define(graph, node, 0, y);
}

/* Keeps every argmax, so the logits in front of it are what the package holds. */
static int softmax(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    size_t rank = strlen(x->axes);
    int64_t axis = onnx_attribute_int(node, "axis", graph->opset < 13 ? 1 : -1);
    if (x->stage != ONNX_LOGITS || !normal_axis(&axis, rank) || x->axes[axis] != 'F' ||
        (size_t)axis + 1 != rank)
        return onnx_refuse(graph, "only over the classes, behind the head, as the last axis");
    return onnx_define(graph, node, 0, *x);
}

/* The h of consecutive layers, as torch.nn.LSTM returns them. */
static int concat(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    struct onnx_value y = *onnx_input(graph, node, 0);
    int64_t axis = onnx_attribute_int(node, "axis", -1);
    for (size_t i = 1; i < node->n_input; i++) {
        const struct onnx_value *x = onnx_input(graph, node, i);
        if (!x || x->kind != ONNX_ACTIVATION || x->stage != ONNX_HIDDEN || y.stage != ONNX_HIDDEN || axis ||
            strcmp(x->axes, "LBF") || strcmp(y.axes, "LBF") || x->layer != y.layer + y.n_stacked ||
            x->width != y.width)
            return onnx_refuse(graph, "only the final h of consecutive layers can be joined: no concatenated "
                                      "features, no skip connections");
        y.n_stacked += x->n_stacked;
    }
    return onnx_define(graph, node, 0, y);
}

static int cast(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    if (onnx_attribute_int(node, "to", 0) != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        return onnx_refuse(graph, "to another type than FP32: export the model in FP32");
    return onnx_define(graph, node, 0, *x);
}

static int constant(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    static const char *const known[] = {"value", NULL};
    const Onnx__AttributeProto *value = onnx_attribute(node, "value");
    if (onnx_only_attributes(graph, node, known))
        return -1;
    if (!value || !value->t)
        return onnx_refuse(graph, "without a tensor");
    return onnx_define(graph, node, 0, (struct onnx_value){.kind = ONNX_CONST, .tensor = value->t});
}

static int constant_of_shape(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    const Onnx__AttributeProto *value = onnx_attribute(node, "value");
    if (value && (!value->t || !onnx_tensor_is_zero(value->t)))
        return onnx_refuse(graph, "filled with something else than FP32 zeros: streams start from zero");
    return onnx_define(graph, node, 0, (struct onnx_value){.kind = ONNX_ZERO});
}

enum { ACTIVATION_ONLY = 0, ANY_STATE = 1 };

/* What may be done to an activation; the same moves a state's axes about, which makes no difference here. */
static const struct {
    const char *op;
    int (*on_activation)(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x);
    int on_what;
    const char *attribute[5];
} plumbing[] = {
    {"Transpose", transpose, ANY_STATE, {"perm"}},
    {"Squeeze", squeeze, ANY_STATE, {"axes"}},
    {"Unsqueeze", unsqueeze, ANY_STATE, {"axes"}},
    {"Gather", gather, ANY_STATE, {"axis"}},
    {"Slice", slice, ANY_STATE, {"starts", "ends", "axes", "steps"}},
    {"Reshape", reshape, ANY_STATE, {"allowzero"}},
    {"Cast", cast, ACTIVATION_ONLY, {"to"}},
    {"Softmax", softmax, ACTIVATION_ONLY, {"axis"}},
    {"LogSoftmax", softmax, ACTIVATION_ONLY, {"axis"}},
};

static int plumb(struct onnx_graph *graph, const Onnx__NodeProto *node, const struct onnx_value *x)
{
    for (size_t i = 0; i < sizeof(plumbing) / sizeof(plumbing[0]); i++) {
        if (strcmp(plumbing[i].op, node->op_type))
            continue;
        if (onnx_only_attributes(graph, node, plumbing[i].attribute))
            return -1;
        if (x->kind == ONNX_ACTIVATION || (x->kind == ONNX_CONST && plumbing[i].on_activation == transpose))
            return plumbing[i].on_activation(graph, node, x);
        if (x->kind == ONNX_CONST)
            return onnx_refuse(graph, "of a stored tensor: export with do_constant_folding=True");
        if (plumbing[i].on_what == ACTIVATION_ONLY)
            break;
        return onnx_define(graph, node, 0, (struct onnx_value){.kind = x->kind});
    }
    return onnx_refuse(graph,
                       "not supported here: an LSTM with a linear head is (killline model pack --help)");
}

/* Nonzero: every input is a shape, or integers, so the result is one too. */
static int is_shape_arithmetic(const struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    static const char *const ops[] = {"Gather", "Unsqueeze", "Squeeze", "Concat", "Slice",
                                      "Cast",   "Mul",       "Add",     "Sub"};
    int known = 0;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        known |= !strcmp(ops[i], node->op_type);
    for (size_t i = 0; i < node->n_input; i++) {
        const struct onnx_value *x = onnx_input(graph, node, i);
        if (x && x->kind != ONNX_SHAPE &&
            (x->kind != ONNX_CONST || x->tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__INT64))
            return 0;
    }
    return known && node->n_input;
}

static int follow_node(struct onnx_graph *graph, const Onnx__NodeProto *node)
{
    const char *op = text(node->op_type);
    graph->reason_node = *text(node->name) ? node->name : node->n_output ? text(node->output[0]) : "";
    graph->reason_op = op;
    if (*text(node->domain) && strcmp(node->domain, "ai.onnx"))
        return onnx_refuse(graph, "domain '%.40s' is not supported: export with standard operators",
                           node->domain);
    if (node->n_input > N_NODE_INPUT_MAX || node->n_output > N_NODE_OUTPUT_MAX || !node->op_type)
        return onnx_refuse(graph, "%zu inputs, %zu outputs: at most %d and %d", node->n_input, node->n_output,
                           N_NODE_INPUT_MAX, N_NODE_OUTPUT_MAX);
    for (size_t i = 0; i < node->n_input; i++)
        if (*text(node->input[i]) && !find(graph, node->input[i]))
            return onnx_refuse(graph, "input '%.60s' is not defined before it", node->input[i]);
    if (!strcmp(op, "Constant"))
        return constant(graph, node);
    const struct onnx_value *x = onnx_input(graph, node, 0);
    if (!x)
        return onnx_refuse(graph, "without an input");
    if (!strcmp(op, "LSTM"))
        return onnx_lstm(graph, node);
    if (!strcmp(op, "Gemm"))
        return onnx_gemm(graph, node);
    if (!strcmp(op, "MatMul"))
        return onnx_matmul(graph, node);
    if (!strcmp(op, "Identity"))
        return onnx_define(graph, node, 0, *x);
    if (!strcmp(op, "Shape") || is_shape_arithmetic(graph, node))
        return onnx_define(graph, node, 0, (struct onnx_value){.kind = ONNX_SHAPE});
    if (!strcmp(op, "Add"))
        return onnx_add(graph, node);
    if (!strcmp(op, "ConstantOfShape"))
        return constant_of_shape(graph, node);
    if (!strcmp(op, "Expand")) {
        int zero = x->kind == ONNX_ZERO || (x->kind == ONNX_CONST && onnx_tensor_is_zero(x->tensor));
        return zero ? onnx_define(graph, node, 0, (struct onnx_value){.kind = ONNX_ZERO})
                    : onnx_refuse(graph, "of something else than zeros: streams start from zero");
    }
    if (!strcmp(op, "Concat") && x->kind == ONNX_ACTIVATION)
        return concat(graph, node);
    if (!strcmp(op, "Concat") && x->kind != ONNX_CONST && x->kind != ONNX_SHAPE) {
        for (size_t i = 1; i < node->n_input; i++)
            if (!onnx_input(graph, node, i) || onnx_input(graph, node, i)->kind != x->kind)
                return onnx_refuse(graph, "of a state with something else");
        return onnx_define(graph, node, 0, (struct onnx_value){.kind = x->kind});
    }
    return plumb(graph, node, x);
}

/* The first input that is no stored tensor holds the features; the others are initial states. */
static int define_inputs(struct onnx_graph *graph)
{
    const Onnx__GraphProto *proto = graph->proto;
    int n_seen = 0;
    for (size_t i = 0; i < proto->n_initializer; i++)
        if (define_name(graph, text(proto->initializer[i]->name),
                        (struct onnx_value){.kind = ONNX_CONST, .tensor = proto->initializer[i]}))
            return -1;
    for (size_t i = 0; i < proto->n_input; i++) {
        const Onnx__ValueInfoProto *input = proto->input[i];
        struct onnx_value value = {.kind = ONNX_STATE_IN};
        if (find(graph, text(input->name)))
            continue; /* IR version 3 lists stored tensors among the inputs */
        if (!n_seen++) {
            const Onnx__TypeProto__Tensor *type =
                input->type && input->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
                    ? input->type->tensor_type
                    : NULL;
            size_t rank = type && type->shape ? type->shape->n_dim : 0;
            if (rank < 2 || rank > 3 || type->elem_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
                return onnx_refuse(
                    graph,
                    "input '%.60s': rank %zu, ONNX data type %d: FP32 features of rank 2 [time, "
                    "features] or 3 with a batch must come first",
                    text(input->name), rank, type ? type->elem_type : 0);
            value = (struct onnx_value){.kind = ONNX_ACTIVATION, .stage = ONNX_INPUT, .n_stacked = 1};
            memcpy(value.axes, rank == 2 ? "pF" : "pqF", rank + 1);
        }
        if (define_name(graph, text(input->name), value))
            return -1;
    }
    return n_seen ? 0 : onnx_refuse(graph, "the graph has no input");
}

static int check_outputs(struct onnx_graph *graph)
{
    int n_logits = 0;
    for (size_t i = 0; i < graph->proto->n_output; i++) {
        const struct onnx_value *value = find(graph, text(graph->proto->output[i]->name));
        if (!value)
            return onnx_refuse(graph, "output '%.60s' is computed by no node",
                               text(graph->proto->output[i]->name));
        n_logits += value->kind == ONNX_ACTIVATION && value->stage == ONNX_LOGITS;
    }
    if (n_logits != 1)
        return onnx_refuse(graph, "%d of the outputs are logits of a linear head: exactly one must be",
                           n_logits);
    return 0;
}

int onnx_follow(struct onnx_graph *graph)
{
    const Onnx__GraphProto *proto = graph->proto;
    if (proto->n_node > N_NODE_MAX || proto->n_initializer > N_TENSOR_MAX ||
        proto->n_input > N_TENSOR_MAX + N_PORT_MAX || proto->n_output > N_PORT_MAX)
        return onnx_refuse(graph,
                           "%zu nodes, %zu tensors: at most %d and %d; no supported network has as many",
                           proto->n_node, proto->n_initializer, N_NODE_MAX, N_TENSOR_MAX);
    if (proto->n_sparse_initializer || proto->n_quantization_annotation)
        return onnx_refuse(graph, "sparse or quantised tensors: export in dense FP32");
    graph->n_value_max = proto->n_initializer + proto->n_input + proto->n_node * N_NODE_OUTPUT_MAX;
    graph->value = calloc(graph->n_value_max + 1, sizeof(*graph->value));
    if (!graph->value)
        return onnx_refuse(graph, "out of memory");
    int result = define_inputs(graph);
    for (size_t i = 0; i < proto->n_node && !result; i++)
        result = follow_node(graph, proto->node[i]);
    graph->reason_op = NULL;
    if (!result && !graph->weights.n_layer)
        result = onnx_refuse(graph, "the graph has no LSTM node");
    if (!result)
        result = check_outputs(graph);
    free(graph->value);
    graph->value = NULL;
    return result;
}
