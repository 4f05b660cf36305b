/* Test vectors of kl_tiny from the binary64 oracle, and its built-in model. Cold code; any thread, after each
 * other. Needs no KL_BUILD_ macro. */
#ifndef KL_TINY_VECTORS_H
#define KL_TINY_VECTORS_H

#include <stdio.h>

#include "../kl_tb.h"

/* The model behind kl_tiny_model.h: drawn from a fixed seed. */
void kl_tiny_model(struct tb_model *model);

/* Writes kl_tiny_model.h: the model as kl_tiny's tables. Returns 0, or -1: out could not be written. */
int kl_tiny_write_model(FILE *out);

/* Writes dir/inputs.txt and dir/expected.txt, always the same. dir exists. Line i of either is step i:
 * hexadecimal words, separated by blanks, without 0x; lines that begin with // are comments. $readmemh reads
 * both, into flat memories of 16-bit (inputs) and 64-bit words (expected). inputs.txt    reset (0 or 1), then
 * x[0] .. x[5], binary16 bits expected.txt  class, or ff for a bad input, then logit[0] .. logit[2], two's
 * complement Returns the steps written, or -1: a file could not be written; stderr says which and why. */
int kl_tiny_write_vectors(const char *dir);

#endif
