#include "head.h"

#include "kl_pragma.h"

void head_accumulate(int64_t logit[KL_N_CLASS_MAX], const int64_t sum[KL_N_CLASS_MAX])
{
logit_row:
    for (int k = 0; k < KL_N_CLASS_MAX; k++) {
        KL_PRAGMA(HLS UNROLL) /* II = 1 in the caller's loop: one adder is all that is carried */
        logit[k] += sum[k];
    }
}

uint8_t head_argmax(const int64_t logit[KL_N_CLASS_MAX], uint32_t n_class)
{
    uint8_t best = 0;
candidate:
    for (uint8_t k = 0; k < KL_N_CLASS_MAX; k++) {
        /* All pairs at once: a class wins if none below is as large and none above larger. */
        KL_PRAGMA(HLS UNROLL)
        int wins = k < n_class;
    rival:
        for (uint8_t j = 0; j < KL_N_CLASS_MAX; j++) {
            KL_PRAGMA(HLS UNROLL)
            if (j < n_class && (j < k ? logit[j] >= logit[k] : logit[j] > logit[k]))
                wins = 0;
        }
        best = wins ? k : best;
    }
    return best;
}
