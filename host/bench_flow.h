/* A generated ITCH 5.0 flow for speed measurements: seeded, reproducible, in memory.
 *
 * Mix of types, symbols and depth as on a busy day (45 % A, 43 % D, 6 % U, 3 % E, 0.7 % X, the rest F, P, C,
 * I, N; Zipf over the symbols; most activity near the touch, and most orders die young); every reference is
 * valid and no book is ever locked or crossed. It is realistic in mix and depth, not real. Not for the hot
 * path. */
#ifndef BENCH_FLOW_H
#define BENCH_FLOW_H

#include <stddef.h>
#include <stdint.h>

enum { BENCH_FLOW_PAD_BYTES = 64 }; /* readable bytes behind the last message */

struct bench_flow { /* BinaryFILE framing: 2-byte big-endian length, message */
    uint8_t *data;
    size_t size_bytes; /* without the pad */
    uint64_t n_message;
};

/* n_message >= 4 * n_symbol + 2, as the day's opening spins come first; n_symbol 1 .. 60,000. 0, or -1: out
 * of memory (or of order table). The caller frees flow->data. */
int bench_flow_generate(uint64_t n_message, uint32_t n_symbol, uint64_t seed, struct bench_flow *flow);

#endif
