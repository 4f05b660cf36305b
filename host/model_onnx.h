/* Reads the FP32 weights of a stateful LSTM classifier from an ONNX file.
 *
 * Supported: what torch.onnx.export of PyTorch 1.13 (opset 9 to 17) writes for nn.LSTM with 1 to
 * KL_N_LAYER_MAX layers, batch_first or not, batched or not, initial state zero or given as inputs, followed
 * by one nn.Linear on every step or on the last one, and optionally softmax. Whether the head sees the last
 * step or all of them makes no difference here: the appliance steps one tick at a time and reads the logits
 * of each. Everything else (bidirectional, projections, peepholes, clip, other activations, other operators,
 * FP16 or quantised tensors, weights in other files) is refused with node, operator, reason and remedy.
 *
 * Files are untrusted: at most MODEL_ONNX_FILE_BYTES_MAX bytes, message nesting and memory bounded. Cold
 * code, any thread. */
#ifndef MODEL_ONNX_H
#define MODEL_ONNX_H

#include "model.h"

enum {
    MODEL_ONNX_FILE_BYTES_MAX = 64 << 20,    /* the largest supported network has 6.3 MB */
    MODEL_ONNX_MEMORY_BYTES_MAX = 256 << 20, /* all that decoding one file may allocate */
};

/* 0 and *out, to be freed with model_weights_free; or -1 with the reason in error. */
int model_onnx_load(const char *path, struct model_weights *out, char error[MODEL_ERROR_CHARS]);
/* The same from memory; data is not kept. name stands in messages. */
int model_onnx_parse(const char *name, const void *data, size_t size_bytes, struct model_weights *out,
                     char error[MODEL_ERROR_CHARS]);

#endif
