/* Prepares that a host owes: asked for by KL_REQUEST_PREPARE, carried out when nothing waits. The kernel
 * keeps such a list in doorbell mode; this is the same list for who drives a kernel without one, by the same
 * rules: the newest first, whose stream is the likeliest to come again; each stream once; of more than
 * KL_QUEUE_DEPTH the oldest is forgotten, and its step prepares for itself. One thread. */
#ifndef ACCEL_OWED_H
#define ACCEL_OWED_H

#include "../hls/kl_abi.h"

struct accel_owed { /* all zero: nothing is owed */
    uint32_t n;
    struct {
        uint32_t slot, stream;
    } list[KL_QUEUE_DEPTH]; /* newest last */
};

/* Notes a prepare, if the request asked for one and its answer earned it: not after an error, not after LATE.
 */
void accel_owed_note(struct accel_owed *owed, const struct kl_request *request,
                     const struct kl_result *result);

/* Takes the newest: 1 and *request is it, whole but for seq_no, which is 0; 0: nothing is owed. Its answer is
 * of no interest: refused, the slot was emptied meanwhile. */
int accel_owed_take(struct accel_owed *owed, struct kl_request *request);

#endif
