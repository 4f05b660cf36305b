/* What the files of the XRT backend share: accel_xrt.c (open, check, reset, close), accel_xrt_unit.c
 * (buffers, loads, states), accel_xrt_doorbell.c, accel_xrt_run.c, accel_xrt_worker.c. Nobody else includes
 * this.
 *
 * XRT 2.13 (Debian's 202210.2.13.466), as this backend relies on it. Measured: tried with the library on a
 * software device; read: upstream's sources.
 *   - The calls of the poll loop - xrtKernelReadRegister, xrtKernelWriteRegister, xrtRunStart, xrtRunState,
 *     xrtBOSync - catch what is thrown inside, say it on stderr and return an error (read, measured).
 *   - What loads the driver does not: out of xrtDeviceOpen an exception comes when XILINX_XRT is not set, the
 *     library is not there, is none, or XCL_EMULATION_MODE is unknown, and every time again (measured). C has
 *     no use for it and the process ends; accel_xrt_try.cpp turns it into a message.
 *   - A run that has ended may be started again once xrtRunState has been seen to say so; no wait is needed
 *     (measured: after COMPLETED and after ERROR). A start before that fails with "bad command state", and
 *     leaves the run's state at NEW, so that it is never seen to end (measured): a run is started only after
 *     its end was seen.
 *   - xrtRunClose of a run that is under way returns at once, and so do xrtKernelClose and xrtDeviceClose
 *     after it (measured, software device: 1 to 20 us). A card's driver may take its time: the worker.
 *   - A unit that is still open when the process exits: XRT's static objects go in an order in which its
 *     kernel objects read freed memory (measured: valgrind). Closed before, nothing is found.
 *   - xrtKernelReadRegister needs an exclusively opened kernel: "Cannot read or write kernel with shared
 *     access" (measured).
 *   - XRT_BO_FLAGS_HOST_ONLY goes to the driver (xclAllocBO, xclMapBO), and xrtBOSync of it does nothing and
 *     succeeds (measured).
 *   - xrtDeviceOpen opens anew at each call (measured: two handles), so every accel has its own.
 *   - Costs, software device inline, p50 of 20,000, the clock's own 20 ns taken off (measured): register
 *     write or read 20 ns, xrtRunState 30, xrtBOSync of 128 bytes 20, xrtRunStart to a state of COMPLETED
 *     with an empty kernel 290. Handles are looked up in a std::map on every call, behind a mutex that
 *     threads of one process share (read). */
#ifndef ACCEL_XRT_SELF_H
#define ACCEL_XRT_SELF_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <x86intrin.h>

#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include "accel_owed.h"
#include "accel_xrt.h"
#include "xclbin.h"

/* Requests and their answers have places; a run each in run mode. In doorbell mode the first KL_QUEUE_DEPTH
 * are the rings, in one buffer each. */
enum {
    XRT_PLACE_PREPARE = KL_QUEUE_DEPTH, /* run mode: what it owes */
    XRT_PLACE_LOAD,                     /* run mode */
    XRT_PLACE_COLD,                     /* save, restore, info */
    XRT_N_PLACE
};

/* Limits of ours on what XRT or a unit may take, in ms. Generous: a card is configured in seconds, and every
 * other step takes milliseconds at most. */
enum {
    XRT_OPEN_LIMIT_MS = 60000,
    XRT_CLOSE_LIMIT_MS = 10000,
    XRT_LOAD_LIMIT_MS = 5000, /* of a model: staged and taken in; a software device takes its time */
    XRT_UNIT_LIMIT_MS = 500,  /* a unit comes to rest, a command is carried out */
};

struct xrt_buffer {
    xrtBufferHandle handle;
    void *host;
    uint64_t address;
    size_t size_bytes;
    int is_host; /* the kernel reaches the host's memory: nothing to sync */
};

/* What the host remembers of an outstanding request. */
struct xrt_pending {
    uint32_t stream;
    uint16_t slot, flags;
    int is_masked; /* sent with a slot that does not exist: its slot has no model that may answer */
};

/* A load, from load_begin to its verdict. */
struct xrt_load {
    enum { XRT_LOAD_NONE, XRT_LOAD_STAGING, XRT_LOAD_IN_UNIT } phase;
    uint32_t slot;
    const void *image;
    size_t size_bytes; /* as given */
    uint32_t n_byte;   /* in the buffer: those that have room */
    uint32_t number;   /* doorbell mode: LOAD_DOORBELL's */
    uint32_t n_read;   /* doorbell mode: registers of the verdict read */
    uint32_t verdict;  /* enum kl_status */
    uint64_t hash;     /* that the unit says it holds now */
    uint64_t limit_ns;
};

struct accel_xrt;

/* A thread for what may take long: XRT opens and closes, images are copied. */
struct xrt_worker {
    pthread_t thread;
    int (*task)(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS]);
    char error[ACCEL_ERROR_CHARS];
    int result;
    _Atomic uint32_t n_posted, n_done, stop;
};

/* The two modes. -1: the device failed, or with an error: a message. Cold but for load_poll. */
struct xrt_mode {
    int (*submit)(struct accel *accel, const struct kl_request *request); /* struct accel_ops's */
    int (*poll)(struct accel *accel, struct kl_result *result);
    const char *name;
    int is_exclusive; /* how the kernel has to be opened */
    /* Places and unit, up to kl_info in self->got_info; then, checked, up to requests. */
    int (*open)(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS]);
    int (*start)(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS]);
    void (*stop)(struct accel_xrt *self); /* so that the unit writes to no memory any more, within a limit */
    int (*command)(struct accel_xrt *self, uint32_t command); /* of enum kl_command, at XRT_PLACE_COLD */
    int (*load_start)(struct accel_xrt *self);
    int (*load_poll)(struct accel_xrt *self); /* 1: load.verdict and load.hash are there; 0: not yet */
    uint64_t (*cycles)(struct accel_xrt *self);
};

struct accel_xrt {
    struct accel accel;   /* first: ops find the rest through it */
    struct accel_ops ops; /* accel.ops: the mode's submit and poll, the rest is both's */

    /* The poll loop's. */
    const struct xrt_mode *mode;
    xrtKernelHandle kernel;
    int failed;           /* until reset */
    int has_ring;         /* doorbell mode: rings in the host's memory */
    uint32_t n_submitted; /* free-running, like the registers that they are written to */
    uint32_t n_answered;
    uint32_t n_freed;                /* RESULT_HEAD as written */
    uint64_t torn_since, torn_limit; /* TSC; when the next answer was first found torn, 0: not yet */
    struct kl_request *request[XRT_N_PLACE];
    struct kl_result *result[XRT_N_PLACE];
    struct xrt_pending pending[KL_QUEUE_DEPTH];
    uint8_t n_x_word[KL_N_SLOT];  /* 64-bit words of x that a step of the slot's model reads */
    uint8_t is_masked[KL_N_SLOT]; /* no model of ours: never loaded, being loaded, or refused */
    xrtRunHandle run[XRT_N_PLACE];
    int is_preparing; /* run mode: the run at XRT_PLACE_PREPARE is under way */
    struct accel_owed owed;
    /* Doorbell mode without host memory: what the block's request ring holds. */
    uint32_t shadow[KL_QUEUE_DEPTH][sizeof(struct kl_request) / 4];

    struct xrt_load load;
    uint64_t image_hash[KL_N_SLOT];

    /* Cold. */
    struct xrt_buffer request_buffer[XRT_N_PLACE], result_buffer[XRT_N_PLACE], image, state;
    xrtDeviceHandle device;
    struct xrt_worker worker;
    xuid_t uuid;
    struct kl_info limits, got_info;
    const struct kl_build *build;
    int is_exclusive; /* how the kernel was opened; in run mode until it is shared */
    int is_stopped;   /* while it closes */
    char device_name[32], path[4096], unit_name[80];
    struct xclbin xclbin;
    struct accel_xrt_info info;
};

static inline struct accel_xrt *accel_xrt_self(struct accel *accel)
{
    return (struct accel_xrt *)(void *)accel;
}

static inline int accel_xrt_fail(struct accel_xrt *self)
{
    self->failed = 1;
    return ACCEL_FAILED;
}

/* ---- records in memory that a device reads and writes meanwhile: by whole words, each once ---- */

static inline void xrt_word_put(void *at, uint64_t word)
{
    __atomic_store_n((uint64_t *)at, word, __ATOMIC_RELAXED);
}

/* Acquire: behind the check comes the rest of the record, and the host's next use of its request. */
static inline uint64_t xrt_word_get(const void *at)
{
    return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
}

/* No answer has this check: the chance is 2^-64, and its request would time out. */
enum { XRT_NO_CHECK = 0 };

/* Notes and writes a request: head, and x as far as it is read. request has what the unit shall get. */
static inline void xrt_request_note(struct accel_xrt *self, uint32_t place, const struct kl_request *request,
                                    uint64_t head[3], uint32_t *n_x_word)
{
    struct xrt_pending *pending = &self->pending[place];
    const int in_range = request->slot < KL_N_SLOT && request->stream < self->limits.n_stream;
    pending->stream = request->stream;
    pending->slot = request->slot;
    pending->flags = request->flags;
    pending->is_masked = in_range && self->is_masked[request->slot];
    memcpy(head, request, 3 * sizeof *head);
    head[2] &= UINT32_MAX; /* pad1 */
    if (pending->is_masked)
        head[0] |= (uint64_t)UINT16_MAX << 32; /* slot */
    *n_x_word =
        request->op == KL_OP_STEP && in_range && !pending->is_masked ? self->n_x_word[request->slot] : 0;
}
static_assert(offsetof(struct kl_request, slot) == 4 && offsetof(struct kl_request, budget_cycles) == 16,
              "the head's words");

static inline void xrt_request_put(struct kl_request *to, const struct kl_request *request,
                                   const uint64_t head[3], uint32_t n_x_word)
{
    uint64_t *word = (uint64_t *)(void *)to;
    for (uint32_t i = 0; i < 3; i++)
        xrt_word_put(&word[i], head[i]);
    for (uint32_t i = 0; i < n_x_word; i++) {
        uint64_t x;
        memcpy(&x, &request->x[4 * i], sizeof x);
        xrt_word_put(&word[offsetof(struct kl_request, x) / 8 + i], x);
    }
}

/* So that what the place holds of before is not taken for the next answer. */
static inline void xrt_result_clear(struct kl_result *at)
{
    xrt_word_put(&at->check, XRT_NO_CHECK);
}

/* 1: *result is a whole answer; 0: none yet; -1: *result is what is there, and its check is wrong. */
static inline int xrt_result_get(const struct kl_result *at, struct kl_result *result)
{
    if (xrt_word_get(&at->check) == XRT_NO_CHECK)
        return 0;
    uint64_t words[sizeof *result / 8];
    for (uint32_t i = 0; i < sizeof *result / 8; i++)
        words[i] = xrt_word_get((const uint64_t *)(const void *)at + i);
    memcpy(result, words, sizeof *result);
    return result->check == kl_result_check(result) ? 1 : -1;
}

enum { XRT_TORN_CYCLES = 100000 };

/* Whoever polls faster than an answer's bytes come finds it torn. 1: it may still become whole; 0: it has
 * been so for too long, and is the caller's to see. */
static inline int xrt_may_be_torn(struct accel_xrt *self)
{
    const uint64_t now = __rdtsc();
    if (!self->torn_since)
        self->torn_since = now;
    return now - self->torn_since < self->torn_limit;
}

/* The last look at an answer that poll gives: a masked request's is the one that its own slot would have got.
 */
static inline void xrt_answer_finish(struct accel_xrt *self, struct kl_result *result)
{
    const struct xrt_pending *pending = &self->pending[self->n_answered % KL_QUEUE_DEPTH];
    if (pending->is_masked && result->slot == UINT16_MAX && result->check == kl_result_check(result)) {
        if (result->status == KL_E_SLOT)
            result->status = KL_E_EMPTY;
        result->slot = pending->slot;
        result->check = kl_result_check(result);
    }
    self->torn_since = 0;
    self->n_answered++;
}

/* ---- accel_xrt_try.cpp ---- */

/* Calls call(context). What it returns, or -1 with what was thrown in error. */
int accel_xrt_try(int (*call)(void *context, char *error), void *context, char *error, size_t error_bytes);

/* ---- accel_xrt_worker.c ---- */

uint64_t accel_xrt_now_ns(void);
/* For a cold loop that looks at a unit, between two looks: 1, or 0: it has waited for limit_ms since
 * start_ns. Whoever waits for longer than a card takes sleeps in here: the threads of a software device may
 * need this very processor. */
int accel_xrt_may_wait(uint64_t start_ns, uint32_t limit_ms);
int accel_xrt_worker_start(struct accel_xrt *self);
/* 0, or -1: it does not come back from its task, and must stay with all of self. */
int accel_xrt_worker_stop(struct accel_xrt *self);
/* Without waiting: the last one has to be done. */
void accel_xrt_worker_post(struct accel_xrt *self, int (*task)(struct accel_xrt *, char *));
int accel_xrt_worker_is_done(const struct accel_xrt *self);
/* The whole task, or its limit: -1 with a message. doing: for that message. Not for the poll loop. */
int accel_xrt_worker_call(struct accel_xrt *self, int (*task)(struct accel_xrt *, char *), uint32_t limit_ms,
                          const char *doing, char error[ACCEL_ERROR_CHARS]);

/* ---- accel_xrt_unit.c ---- */

/* argument: of enum kl_argument, whose bank it lies in. */
int accel_xrt_buffer_open(struct accel_xrt *self, struct xrt_buffer *buffer, uint32_t argument,
                          size_t size_bytes, char error[ACCEL_ERROR_CHARS]);
void accel_xrt_buffer_close(struct xrt_buffer *buffer);
int accel_xrt_to_device(const struct xrt_buffer *buffer, size_t size_bytes);
int accel_xrt_from_device(const struct xrt_buffer *buffer, size_t size_bytes);

/* Of struct accel_ops, in both modes. */
uint32_t accel_xrt_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes);
uint32_t accel_xrt_load_advance(struct accel *accel);
uint32_t accel_xrt_save(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state);
uint32_t accel_xrt_restore(struct accel *accel, uint32_t slot, uint32_t stream, const struct kl_state *state);
void accel_xrt_unit_info(struct accel *accel, struct kl_info *info);
void accel_xrt_warm(struct accel *accel, uint32_t slot, uint32_t stream);

/* ---- accel_xrt.c ---- */

int accel_xrt_reset(struct accel *accel, char error[ACCEL_ERROR_CHARS]);
void accel_xrt_close(struct accel *accel);

/* ---- the modes ---- */

/* Stops a unit that restarts by itself and has a load that is under way in it end; what it does not answer
 * stays. The kernel is open exclusively. 0, or -1: it does not come to rest. accel_xrt_doorbell.c. */
int accel_xrt_settle(struct accel_xrt *self);

extern const struct xrt_mode accel_xrt_doorbell_mode, accel_xrt_run_mode;

#endif
