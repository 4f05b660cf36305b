/* Order-book features of one tick, per stream: raw values in float, then normalised, clamped binary16 inputs.
 *
 * The list (name, formula, unit, source) is FEATURES_LIST below; its order is the model's input order and part
 * of FEATURES_SCHEMA, which every model package carries: a model trained on another list is refused.
 *
 * OWNER NOTE: list, state and formulas are filled in by the module's author. At least 16 features. */
#ifndef FEATURES_H
#define FEATURES_H

#include <stdint.h>

#include "../hls/kl_abi.h"
#include "book.h"
#include "market.h"
#include "model.h"

enum { FEATURES_SCHEMA = 1, FEATURES_N = 20 };

struct features; /* the state of every stream */

/* n_stream <= KL_N_STREAM_MAX. NULL: out of memory. */
struct features *features_create(uint32_t n_stream);
void features_free(struct features *features);
/* Forgets a stream (session change, gap). */
void features_reset(struct features *features, uint32_t stream);

/* Every message that touched the stream's symbol (market_apply's event), in order. No allocation, bounded. */
void features_update(struct features *features, uint32_t stream, const struct market_event *event,
                     const struct book_set *books);

/* The features of a tick at feed time ts_ns, raw. Closes the tick: the sums "since the last tick" start anew. */
void features_tick(struct features *features, uint32_t stream, uint16_t locate, uint64_t ts_ns,
                   const struct book_set *books, float raw[FEATURES_N]);

/* Normalises (model->feature), clamps and rounds to the 2^-11 grid. x: FEATURES_N binary16 values. */
void features_quantise(const struct model *model, const float raw[FEATURES_N], uint16_t x[KL_N_IN_MAX]);

/* FNV-1a 64 over n binary16 values, as in the audit log. */
uint64_t features_hash(const uint16_t *x, uint32_t n);

const char *features_name(uint32_t index);

#endif
