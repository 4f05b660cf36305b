/* The accelerator as the appliance sees it: submit, poll, load. One backend per file, accel_*.c.
 *
 * All calls come from one thread at a time, the poll loop's but where said. No call of ours allocates,
 * locks or enters the operating system after open; XRT locks in every call, and its runs and transfers are
 * system calls on a card (accel_xrt.h). Every backend gives the same bits: class, logits, states, statuses,
 * and the modelled cycles that a result reports. */
#ifndef ACCEL_H
#define ACCEL_H

#include <stddef.h>
#include <stdint.h>

#include "../hls/kl_abi.h"

struct accel;

enum {
    ACCEL_ERROR_CHARS = 512,
    /* submit's and poll's: the device refused an access, or says that it is broken or gone. What is
     * outstanding will not be answered; nothing but reset and close is of use now. csim and cpu never say so.
     */
    ACCEL_FAILED = -2,
};

struct accel_ops {
    const char *name;
    /* Starts a request; up to KL_QUEUE_DEPTH may be outstanding. 0; -1 when that many are: an answer has
     * to be taken by poll first, however late it comes; ACCEL_FAILED. request is not kept. */
    int (*submit)(struct accel *accel, const struct kl_request *request);
    /* 1: *result is the next answer, in the order of submission; 0: not yet; -1: nothing is outstanding (an
     * idle moment: a backend may carry out a prepare in here); ACCEL_FAILED. An answer is as the device gave
     * it, whole but not believed: the caller checks. */
    int (*poll)(struct accel *accel, struct kl_result *result);
    /* Loads a model image into a slot, beside the running model: every stream of the slot is reset, and
     * requests to it answer KL_E_EMPTY until the load has ended. Let none be outstanding to the slot:
     * backends differ in whether such a one still meets the new model. KL_OK, KL_E_SLOT, KL_E_BUSY (a load is
     * under way). image must stay until then. */
    uint32_t (*load_begin)(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes);
    /* A bounded piece of the load. csim and cpu: below a microsecond on the host, but for the last few, which
     * count the model's cycles and take some microseconds (measured). xrt: at most three register writes, or
     * one read, which takes a card about a microsecond, and the run's state in run mode. KL_E_BUSY: go on
     * calling; else the load has ended and this is its verdict: KL_OK, the slot is live, or it is empty.
     * Without a load under way: KL_E_EMPTY. */
    uint32_t (*load_advance)(struct accel *accel);
    /* State of a stream in a slot, between two of its steps: kl_abi.h. Returns enum kl_status. */
    uint32_t (*save)(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state);
    uint32_t (*restore)(struct accel *accel, uint32_t slot, uint32_t stream, const struct kl_state *state);
    void (*info)(struct accel *accel, struct kl_info *info);
    /* For idle moments: brings what the slot's next step of this stream touches back into the caches. Changes
     * nothing that can be seen. */
    void (*warm)(struct accel *accel, uint32_t slot, uint32_t stream);
    /* Brings a device that failed, hangs or answers wrong back to the state after open: slots empty, nothing
     * outstanding. 0, or -1 with a message: it is still broken, try again later or close. May take seconds:
     * never from the poll loop. Another thread may call it, as the only one that uses this accel then. NULL:
     * this backend has nothing to reset. */
    int (*reset)(struct accel *accel, char error[ACCEL_ERROR_CHARS]);
    void (*close)(struct accel *accel);
};

/* Backends embed this as their first member. */
struct accel {
    const struct accel_ops *ops;
};

/* A whole load: begin, and advance to its end, which every backend comes to (a card's is given up after
 * seconds). For cold code. Returns enum kl_status. */
static inline uint32_t accel_load(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    uint32_t status = accel->ops->load_begin(accel, slot, image, size_bytes);
    if (status != KL_OK)
        return status;
    while ((status = accel->ops->load_advance(accel)) == KL_E_BUSY)
        ;
    return status;
}

/* The smallest named build that takes the model, or NULL: none does. Its limits, name and cycles hold for
 * every backend that stands in for it. */
const struct kl_build *accel_build_for(const struct kl_image_header *header);

/* By name: small, fast, large. NULL: no such build. */
const struct kl_build *accel_build_named(const char *name);

/* A build's limits, as a unit of it shows them before any load. Cold: makes such a unit for the moment. 0, or
 * -1: out of memory. */
int accel_build_limits(const struct kl_build *build, struct kl_info *info);

/* The kernel's source compiled natively, in-process: the reference. n_part 2: two units that split every
 * layer's rows. NULL: out of memory. */
struct accel *accel_csim_open(const struct kl_build *build, uint32_t n_part);

/* Instruction sets of the cpu backend. */
enum accel_cpu_variant {
    ACCEL_CPU_AUTO,
    ACCEL_CPU_AVX512VNNI,
    ACCEL_CPU_AVX512BW,
    ACCEL_CPU_AVX2,
    ACCEL_CPU_PORTABLE
};

struct accel_cpu_options {
    enum accel_cpu_variant variant;
    /* Reports this build's limits and modelled cycles, as if it were that card. */
    const struct kl_build *build;
    int prepare_thread; /* 1: a second thread carries out KL_REQUEST_PREPARE, between two steps of the stream
                         */
};

/* 1 if this machine has the variant's instructions. name: as in --variant, for messages and figures. */
int accel_cpu_has(enum accel_cpu_variant variant);
const char *accel_cpu_variant_name(enum accel_cpu_variant variant);

/* The vector backend. NULL: out of memory, or a variant that this machine has not. */
struct accel *accel_cpu_open(const struct accel_cpu_options *options);

/* Steps n streams of one slot at once, in one pass over the weights: n requests (all KL_OP_STEP, same slot,
 * different streams), n results in the same order, the same bits as one by one. For regression runs and
 * backlogs; none may be outstanding. */
void accel_cpu_step_batch(struct accel *accel, const struct kl_request *requests, struct kl_result *results,
                          uint32_t n);

/* The variant that runs. */
enum accel_cpu_variant accel_cpu_variant_of(const struct accel *accel);

#endif
