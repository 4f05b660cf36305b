/* The dense head: logits from the last layer's h, and their argmax. Integers only, no state of its own. */
#ifndef HEAD_H
#define HEAD_H

#include "kl_build.h"

#ifdef __cplusplus
extern "C" {
#endif

/* logit += sum, a column step's sums of the head's rows (mac_array's wide). */
void head_accumulate(int64_t logit[KL_N_CLASS_MAX], const int64_t sum[KL_N_CLASS_MAX]);

/* The class of the largest of the first n_class logits; a tie goes to the lowest. n_class >= 1. */
uint8_t head_argmax(const int64_t logit[KL_N_CLASS_MAX], uint32_t n_class);

#ifdef __cplusplus
}
#endif

#endif
