#include "accel_owed.h"

void accel_owed_note(struct accel_owed *owed, const struct kl_request *request,
                     const struct kl_result *result)
{
    if (result->status != KL_OK || !(request->flags & KL_REQUEST_PREPARE) || result->flags & KL_RESULT_LATE)
        return;
    uint32_t gone = 0; /* the same stream's, or with no room the oldest */
    while (gone < owed->n &&
           !(owed->list[gone].slot == request->slot && owed->list[gone].stream == request->stream))
        gone++;
    if (gone == owed->n && owed->n == KL_QUEUE_DEPTH)
        gone = 0;
    if (gone < owed->n) {
        owed->n--;
        for (uint32_t i = gone; i < owed->n; i++)
            owed->list[i] = owed->list[i + 1];
    }
    owed->list[owed->n].slot = request->slot;
    owed->list[owed->n++].stream = request->stream;
}

int accel_owed_take(struct accel_owed *owed, struct kl_request *request)
{
    if (owed->n == 0)
        return 0;
    owed->n--;
    *request = (struct kl_request){.abi_version = KL_ABI_VERSION,
                                   .op = KL_OP_PREPARE,
                                   .slot = (uint16_t)owed->list[owed->n].slot,
                                   .stream = owed->list[owed->n].stream};
    return 1;
}
