/* A sweep's sums in a file, to be merged with others: one part of the logs was read here, another elsewhere.
 *
 * Little-endian: magic "KLSWEEP\0", version, spec, classes, logs, A/B rows, sums; at the end the SHA-256 of
 * all of it. Integers are LEB128 varints (signed ones in zigzag), zeros in the sums are run lengths. Equal
 * sums give equal bytes, and bytes that these sums would not give are refused. */
#ifndef SWEEP_PARTIAL_H
#define SWEEP_PARTIAL_H

#include <stddef.h>

#include "sweep_sums.h"

enum { SWEEP_PARTIAL_VERSION = 1, SWEEP_DIGEST_BYTES = 32 };

/* The file's bytes, to be freed; NULL: out of memory. */
uint8_t *sweep_partial_encode(const struct sweep_sums *sums, size_t *size_bytes);
/* NULL with a message that names name. */
struct sweep_sums *sweep_partial_decode(const uint8_t *data, size_t size_bytes, const char *name,
                                        char error[SWEEP_ERROR_CHARS]);

/* Beside the file, then renamed over it. 0, or -1 with a message. */
int sweep_partial_save(const struct sweep_sums *sums, const char *path, char error[SWEEP_ERROR_CHARS]);
struct sweep_sums *sweep_partial_load(const char *path, char error[SWEEP_ERROR_CHARS]);

#endif
