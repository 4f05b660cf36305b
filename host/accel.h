/* The accelerator as the appliance sees it: submit, poll, load. One backend per file, accel_*.c.
 *
 * One request is outstanding per accel; all calls come from the poll loop's thread. No call allocates, locks
 * or enters the kernel after open. */
#ifndef ACCEL_H
#define ACCEL_H

#include <stddef.h>
#include <stdint.h>

#include "../hls/kl_abi.h"

struct accel;

struct accel_ops {
    const char *name;
    /* Starts a request. 0, or -1 when one is outstanding: its answer has to be taken by poll first, however
     * late it comes. request is not kept. */
    int (*submit)(struct accel *accel, const struct kl_request *request);
    /* 1: *result is the answer to the outstanding request; 0: not yet; -1: nothing is outstanding. */
    int (*poll)(struct accel *accel, struct kl_result *result);
    /* Loads a model image into a slot; every stream of the slot is reset. Returns enum kl_status. */
    uint32_t (*load)(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes);
    void (*close)(struct accel *accel);
};

/* Backends embed this as their first member. */
struct accel {
    const struct accel_ops *ops;
};

/* The kernel source compiled natively, in-process: the reference. NULL: out of memory. */
struct accel *accel_csim_open(void);

#endif
