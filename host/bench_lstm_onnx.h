/* ONNX Runtime as a peer of killline bench lstm: a shared library that the user names, loaded at run time. */
#ifndef BENCH_LSTM_ONNX_H
#define BENCH_LSTM_ONNX_H

#include <stddef.h>
#include <stdint.h>

#include "bench_lstm_peer.h"

/* One step of the network as an ONNX model: inputs x [1, 1, n_in], h0, c0, h1.. [1, 1, n_hidden]; outputs
 * logits [1, 1, n_class], h0_next, c0_next, .. . *data: malloc'd, the caller frees it. 0, or -1: out of
 * memory. */
int bench_lstm_onnx_model(const struct model_weights *weights, void **data, size_t *size_bytes);

/* One thread, sequential, inputs and outputs bound once, the states' buffers swapped every step: its best
 * case. path: libonnxruntime.so of version 1.5 or later; stays loaded. NULL with the reason in error. */
struct bench_lstm_peer *bench_lstm_onnx_create(const struct model_weights *weights, const char *path,
                                               char error[MODEL_ERROR_CHARS]);

#endif
