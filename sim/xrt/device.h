/* The host side of the software devices: what stands behind XRT's calls (hal.c).
 *
 * A device is a card: there is one per index in the process, however often it is opened. A session is one
 * opening of it, with the buffers and contexts that were made through it. A card lives from its first opening
 * to its last close; then, and when its xclbin is loaded again while no unit is open, it is reset: its units
 * are new, its faults that have done their count are over.
 *
 * Functions return 0 or a negative errno, as XRT expects, and write a line to stderr where the errno does not
 * say what to do. Any thread; handles that are closed or were never given are refused. */
#ifndef DEVICE_H
#define DEVICE_H

#include <pthread.h>
#include <xrt.h>

#include "card.h"
#include "engine.h"
#include "fault_control.h"

enum { DEVICE_SESSIONS_MAX = 64, DEVICE_QUEUE_MAX = 256 };

/* By which a host can tell that this is no card: dlsym(RTLD_DEFAULT, "kl_sim_device_version"). hal.c. */
extern const char kl_sim_device_version[];

struct session;

/* A buffer object. Table slots are reused; the handle's upper bits tell a new tenant from an old one. */
struct device_buffer {
    struct session *session; /* NULL: free */
    uint8_t *host;           /* the host's copy; NULL: device only */
    uint64_t address;        /* on the card; 0: none, a command's packet */
    uint64_t size_bytes;
    uint32_t flags, bank;
    uint32_t tenant;
    int is_owned;    /* host is ours to free */
    int is_in_place; /* host memory: host is the very memory that units reach */
};

/* A piece of a bank, in the order of addresses; neighbours that are both free are one. */
struct device_extent {
    struct device_extent *next;
    uint64_t address, size_bytes;
    int is_used;
};

/* A queued run. */
struct device_run {
    struct session *session;
    uint32_t *packet; /* struct ert_start_kernel_cmd; NULL: freed by the host while it ran */
    uint32_t buffer;
    uint32_t words[CARD_N_ARGUMENT_WORD];
};

/* A unit's runs, oldest first. The oldest is with the unit if is_running. */
struct device_queue {
    struct device_run runs[DEVICE_QUEUE_MAX];
    uint32_t head, n;
    int is_running;
};

struct device {
    uint32_t index;
    /* Opening, closing, loading, resetting: held while an execution side starts or ends, so never taken by
     * one. Outside of lock. */
    pthread_mutex_t life;
    /* Buffers, contexts, queues, faults: held for moments. */
    pthread_mutex_t lock;

    struct card *card;
    int card_fd;
    uint32_t n_session;

    /* The loaded xclbin. */
    int is_loaded;
    xuid_t uuid;
    struct xclbin xclbin;
    uint32_t order[XCLBIN_UNITS_MAX]; /* XRT's number of a unit -> the xclbin's: XRT counts by address */
    int kernel_fd, memory_fd;
    uint8_t *memory;
    struct device_extent *banks[XCLBIN_BANKS_MAX];

    struct engine engine;

    uint32_t n_shared[XCLBIN_UNITS_MAX], n_exclusive[XCLBIN_UNITS_MAX];
    struct device_queue queues[XCLBIN_UNITS_MAX];
    struct device_buffer buffers[CARD_BUFFERS_MAX];
    _Atomic uint32_t done_seen[XCLBIN_UNITS_MAX]; /* ap_done is cleared by reading: the end that was read */
    _Atomic uint32_t loss_seen;                   /* the host has had its all ones */
    struct fault_control_reader reader;
    _Atomic uint32_t reader_generation; /* the reader's, for a look without the lock */
};

struct session {
    _Atomic uint32_t is_open;
    struct device *device;
    void *core;                               /* XRT's device object: glue.cpp */
    _Atomic uint8_t shared[XCLBIN_UNITS_MAX]; /* how often it has it open */
    _Atomic uint8_t exclusive[XCLBIN_UNITS_MAX];
    _Atomic uint32_t pending;   /* futex: runs have ended since the last xclExecWait */
    _Atomic uint32_t n_waiting; /* in there */
};

/* How many devices there are: KL_SIM_DEVICES. 0 with a message if the environment makes no sense. */
uint32_t device_count(void);

/* The index behind a PCIe address, "0000:00:03.0" for device 3 (what XRT shows of it), or behind "3". -1:
 * there is no such device. */
int device_named(const char *name);

/* Opens; XRT's handle is the session. NULL with a message and errno. */
struct session *device_open(uint32_t index);
void device_close(struct session *session);

/* The session behind XRT's handle; NULL: it is none that is open. */
struct session *device_session(void *handle);

/* Takes in the xclbin; a reset as said at the top. -EBUSY: another one is loaded and in use. */
int device_load(struct session *session, const struct axlf *axlf);

/* A reset as said at the top, the xclbin kept. -EBUSY: a unit is open. */
int device_reset(struct session *session);

/* A unit (XRT's number) for this session's use. -EBUSY: another has it exclusively, or this wants to and
 * others have it at all. */
int device_open_unit(struct session *session, const xuid_t uuid, uint32_t unit, int is_shared);
int device_close_unit(struct session *session, uint32_t unit);

/* Any access may bring news of faults. Takes the lock only if there are some. */
void device_look(struct device *device);

/* An event of the host's side. 1: a fault of this kind fired, and was counted. Without the lock. */
int device_fault(struct device *device, enum fault_event event, enum fault_kind kind, uint32_t unit);

/* The card is gone: 0: the host learns it by this access, which goes nowhere; else -EIO. */
int device_lost(struct device *device);

/* The counters and settings that all devices share. */
struct control_device *device_counters(const struct device *device);
int device_control_fd(void);

/* ---- registers (register.c) ---- */

/* unit: XRT's number, opened exclusively. Bytes offset. */
int device_read(struct session *session, uint32_t unit, uint32_t offset, uint32_t *value);
int device_write(struct session *session, uint32_t unit, uint32_t offset, uint32_t value);

/* The unit, by address, for XRT's own scheduler (xrt.ini, kds_sw_emu=false): *unit, *offset. */
int device_unit_at(const struct session *session, uint64_t address, uint32_t *unit, uint32_t *offset);
int device_read_at(struct session *session, uint32_t unit, uint32_t offset, uint32_t *value);
int device_write_at(struct session *session, uint32_t unit, uint32_t offset, uint32_t value);

/* ---- buffers (memory.c) ---- */

/* Makes the card's memory out of the xclbin's banks; frees it. Under life, with no buffer alive. */
int memory_make(struct device *device);
void memory_free(struct device *device);

/* user: the host's copy, or NULL: ours. *handle is XRT's. */
int memory_allocate(struct session *session, void *user, uint64_t size_bytes, uint32_t flags,
                    uint32_t *handle);
int memory_release(struct session *session, uint32_t handle);
void memory_release_all(struct session *session);
/* Copied out under the lock; 0, or -ENOENT: no such buffer of this session's. */
int memory_get(struct session *session, uint32_t handle, struct device_buffer *out);
int memory_sync(struct session *session, uint32_t handle, int to_device, uint64_t size_bytes,
                uint64_t offset);
int memory_copy(struct session *session, uint32_t to, uint32_t from, uint64_t size_bytes, uint64_t to_offset,
                uint64_t from_offset);

/* ---- queued runs (queue.c) ---- */

int queue_submit(struct session *session, uint32_t handle);
/* 1: a run of this session's ended since the last call; 0: timeout_ms are over. -1: without end. */
int queue_wait(struct session *session, int timeout_ms);
/* Ends a wait, now or the next one. Enters the operating system only if somebody waits. */
void queue_tell(struct session *session);

/* The engine's: a run of the unit's has ended; all that are with the card end as errors; what is queued
 * begins anew on new units. */
void queue_run_ended(void *device, uint32_t unit);
void queue_fail_all(struct device *device);
/* Under the lock: a session or packet goes. */
void queue_forget(struct device *device, const struct session *session, uint32_t buffer, int any_buffer);

#endif
