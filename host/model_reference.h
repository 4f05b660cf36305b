/* The network as trained: FP32 weights, exact activations, binary64 arithmetic. What "decision flips" are
 * counted against; its own rounding (1e-15) never counts as a flip. Plain C, for checks and tests, not for
 * production. */
#ifndef MODEL_REFERENCE_H
#define MODEL_REFERENCE_H

#include <stdint.h>

#include "model.h"

struct model_reference;

/* weights: finite, shapes within the limits of hls/kl_abi.h; not kept. n_stream states, all zero. NULL: out
 * of memory. */
struct model_reference *model_reference_create(const struct model_weights *weights, uint32_t n_stream);
void model_reference_free(struct model_reference *reference);

/* The state of one stream back to zero. */
void model_reference_reset(struct model_reference *reference, uint32_t stream);

/* One step: x[n_in] normalised inputs, logits[n_class]; the stream's state moves on. Returns the argmax, the
 * lowest class on a tie. One caller at a time. */
uint32_t model_reference_step(struct model_reference *reference, uint32_t stream, const double *x,
                              double *logits);

#endif
