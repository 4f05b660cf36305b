/* Inside the ONNX import: the graph's values and what is known of each. Not for other modules. */
#ifndef MODEL_ONNX_GRAPH_H
#define MODEL_ONNX_GRAPH_H

#include <onnx.pb-c.h>
#include <stdint.h>

#include "model.h"

enum { ONNX_RANK_MAX = 5 };

/* The import never computes tensors. It follows what each value stands for. */
enum onnx_kind {
    ONNX_CONST,      /* a tensor of the file */
    ONNX_SHAPE,      /* integers computed from shapes: only ever used to size a zero state */
    ONNX_ZERO,       /* a zero tensor of some shape: an initial state */
    ONNX_STATE_IN,   /* an initial state given to the model: here every stream keeps its own */
    ONNX_CELL_OUT,   /* the final c of layers: may leave the model, must not be used in it */
    ONNX_ACTIVATION, /* on the way from the features to the logits */
};

enum onnx_stage {
    ONNX_INPUT,  /* the features */
    ONNX_HIDDEN, /* h of LSTM layer `layer` (and the n_stacked - 1 behind it, on an 'L' axis) */
    ONNX_LOGITS,
};

/* Axes, one character each: 'T' time, 'B' batch, 'F' features or classes, 'D' direction (one), 'L' stacked
 * layers, '1' inserted, 'S' several flattened into one, 'p' and 'q' of the input: time and batch in unknown
 * order. */
struct onnx_value {
    const char *name;
    enum onnx_kind kind;
    const Onnx__TensorProto *tensor; /* ONNX_CONST */
    int transposed;                  /* ONNX_CONST: used the other way round */
    enum onnx_stage stage;           /* ONNX_ACTIVATION, as the following */
    char axes[ONNX_RANK_MAX + 1];
    uint32_t layer, n_stacked;
    uint32_t width; /* of 'F'; 0: not known yet */
    int last_step;  /* only the last time step is left */
    int has_bias;   /* of the head */
};

struct onnx_graph {
    const Onnx__GraphProto *proto;
    int64_t opset;
    struct onnx_value *value;
    size_t n_value, n_value_max;
    struct model_weights weights;
    const char *reason_node, *reason_op; /* the node at work, for messages */
    char *error;
};

/* Messages start with the node at work. Returns -1. */
int onnx_refuse(struct onnx_graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Follows every node in order and fills graph->weights. 0 or -1. */
int onnx_follow(struct onnx_graph *graph);

/* NULL: input index is absent or left empty. (Names that nothing defines were refused before.) */
const struct onnx_value *onnx_input(const struct onnx_graph *graph, const Onnx__NodeProto *node,
                                    size_t index);
/* Defines output index of the node; no-op when the node leaves it unnamed. */
int onnx_define(struct onnx_graph *graph, const Onnx__NodeProto *node, size_t index, struct onnx_value value);

const Onnx__AttributeProto *onnx_attribute(const Onnx__NodeProto *node, const char *name);
/* An integer attribute; the default when absent; INT64_MIN, which no operator allows, when no integer. */
int64_t onnx_attribute_int(const Onnx__NodeProto *node, const char *name, int64_t absent);
/* Refuses attributes that are not in the NULL-terminated list: each can change the meaning. */
int onnx_only_attributes(struct onnx_graph *graph, const Onnx__NodeProto *node, const char *const *known);

/* model_onnx_tensor.c. Elements of a tensor with its data in the file; -1 (not refused) otherwise. */
int64_t onnx_tensor_count(const Onnx__TensorProto *tensor);
/* Copies n floats; refused unless the tensor is FP32 with exactly the n_dim dims given. *out: malloc'd. */
int onnx_tensor_floats(struct onnx_graph *graph, const Onnx__TensorProto *tensor, const char *what,
                       const uint32_t *dims, uint32_t n_dim, float **out);
/* int64 tensors of at most n_max elements: their number, or -1 (not refused). */
int onnx_tensor_ints(const Onnx__TensorProto *tensor, int64_t *out, int n_max);
/* Nonzero: an FP32 tensor that is zero in every element. */
int onnx_tensor_is_zero(const Onnx__TensorProto *tensor);

/* model_onnx_layer.c: the operators that carry weights. */
int onnx_lstm(struct onnx_graph *graph, const Onnx__NodeProto *node);
int onnx_gemm(struct onnx_graph *graph, const Onnx__NodeProto *node);
int onnx_matmul(struct onnx_graph *graph, const Onnx__NodeProto *node);
int onnx_add(struct onnx_graph *graph, const Onnx__NodeProto *node);

#endif
