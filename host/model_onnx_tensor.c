/* Tensors of an ONNX file: the stored length must be what the dims say, nothing is allocated on its word. */
#include <stdlib.h>
#include <string.h>

#include "model_onnx_graph.h"

enum { COUNT_MAX = 1 << 24 };

static int data_is_inside(const Onnx__TensorProto *tensor)
{
    return !tensor->n_external_data && !tensor->segment &&
           (!tensor->has_data_location ||
            tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT);
}

int64_t onnx_tensor_count(const Onnx__TensorProto *tensor)
{
    int64_t count = 1;
    for (size_t i = 0; i < tensor->n_dims; i++) {
        int64_t dim = tensor->dims[i];
        if (dim < 0 || dim > COUNT_MAX || (dim && count > COUNT_MAX / dim))
            return -1;
        count *= dim;
    }
    return data_is_inside(tensor) ? count : -1;
}

/* Bytes of the count elements of element_bytes each, wherever the file keeps them; NULL: not as many. */
static const void *elements(const Onnx__TensorProto *tensor, int64_t count, size_t element_bytes,
                            const void *typed, size_t n_typed)
{
    if (tensor->has_raw_data)
        return !n_typed && tensor->raw_data.len == (size_t)count * element_bytes ? tensor->raw_data.data
                                                                                 : NULL;
    return n_typed == (size_t)count ? typed : NULL;
}

int onnx_tensor_floats(struct onnx_graph *graph, const Onnx__TensorProto *tensor, const char *what,
                       const uint32_t *dims, uint32_t n_dim, float **out)
{
    size_t count = 1;
    int same = tensor->n_dims == n_dim;
    for (uint32_t i = 0; i < n_dim; i++) {
        same = same && tensor->dims[i] == dims[i];
        count *= dims[i];
    }
    if (!data_is_inside(tensor))
        return onnx_refuse(graph, "%s is kept in another file: export with the weights inside", what);
    if (tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        return onnx_refuse(graph, "%s has ONNX data type %d, not FP32: export the model in FP32", what,
                           tensor->data_type);
    if (!same)
        return onnx_refuse(graph, "%s does not have the shape that the node's other tensors call for", what);
    const void *from =
        elements(tensor, (int64_t)count, sizeof(float), tensor->float_data, tensor->n_float_data);
    if (!from || !count)
        return onnx_refuse(graph, "%s: the file holds another number of values than its shape says", what);
    *out = malloc(count * sizeof(float));
    if (!*out)
        return onnx_refuse(graph, "out of memory");
    memcpy(*out, from, count * sizeof(float));
    return 0;
}

int onnx_tensor_ints(const Onnx__TensorProto *tensor, int64_t *out, int n_max)
{
    int64_t count = onnx_tensor_count(tensor);
    if (tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__INT64 || count < 0 || count > n_max)
        return -1;
    const void *from = elements(tensor, count, sizeof(int64_t), tensor->int64_data, tensor->n_int64_data);
    if (!count)
        return 0;
    if (!from)
        return -1;
    memcpy(out, from, (size_t)count * sizeof(int64_t));
    return (int)count;
}

int onnx_tensor_is_zero(const Onnx__TensorProto *tensor)
{
    int64_t count = onnx_tensor_count(tensor);
    if (tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || count < 1)
        return 0;
    const uint8_t *from = elements(tensor, count, sizeof(float), tensor->float_data, tensor->n_float_data);
    for (int64_t i = 0; from && i < count; i++) {
        float v;
        memcpy(&v, from + (size_t)i * sizeof(v), sizeof(v));
        if (v != 0)
            return 0;
    }
    return from != NULL;
}
