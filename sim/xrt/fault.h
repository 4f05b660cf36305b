/* Faults on request: the grammar, and the table by which both sides of a card know what to break.
 *
 *   SPEC  = FAULT[;FAULT]...
 *   FAULT = KIND[:KEY=VALUE[,KEY=VALUE]...]
 *
 * KIND, what it counts as events, and its own keys:
 *   hang           request   the unit does nothing any more, until the device is reset
 *   late           request   its answer, or the run's end, comes us=N microseconds later
 *                            (default 1000)
 *   error          request   the run ends in state ERROR; in doorbell mode the answer is status=N
 *                            (default 10, KL_E_STATE) with nothing else in it
 *   crash          request   the child process dies by signal=N (default 11); inline and threads
 *                            have no process to lose: as vanish
 *   flip-answer    request   bit=N of the answer's record is turned over on its way (default 512,
 *                            the lowest of logits[0]); sealed=1: its check is right again, so that
 *                            nothing but a comparison finds it
 *   flip-weight    request   bit=N of the on-chip weights (default: a high one of a weight of the
 *                            output layer) is turned over, before the request is executed, and
 *                            stays so until the model is loaded again
 *   duplicate      request   the answer before is given in the place of this one
 *   vanish         request   the whole device is gone: reads give all ones, then every access
 *                            fails, until the device is reset
 *   lose-doorbell  doorbell  a write of KL_REG_REQUEST_TAIL does not arrive
 *   refuse-load    load      what=xclbin: XRT's load of the xclbin fails; what=model: a model image
 *                            is refused with KL_E_IMAGE; default: both, whichever comes
 *   memory-full    buffer    an allocation fails
 * "request": a request in doorbell mode, or a run, before it is executed.
 *
 * Keys of all: device=N and unit=N (default: any; hang, late ... count the events of every unit in turn),
 * after=N (from the N-th event on, default 1; 0: at once, at whatever access comes next - hang, crash and
 * vanish only), count=N (so many events, default 1; 0: for ever). When the device is reset - its last handle
 * closed, or its xclbin loaded again with no unit open - a fault that has done its count is over, one with
 * count=0 goes on.
 *
 * "clear" in the place of a KIND removes everything before it. */
#ifndef FAULT_H
#define FAULT_H

#include <stdatomic.h>
#include <stdint.h>

enum fault_kind {
    FAULT_HANG,
    FAULT_LATE,
    FAULT_ERROR,
    FAULT_CRASH,
    FAULT_FLIP_ANSWER,
    FAULT_FLIP_WEIGHT,
    FAULT_DUPLICATE,
    FAULT_VANISH,
    FAULT_LOSE_DOORBELL,
    FAULT_REFUSE_LOAD,
    FAULT_MEMORY_FULL,
    FAULT_N_KIND
};

enum fault_event { FAULT_REQUEST, FAULT_DOORBELL, FAULT_LOAD_XCLBIN, FAULT_LOAD_MODEL, FAULT_ALLOCATE };

enum {
    FAULT_ANY = -1, /* device, unit */
    FAULT_SPEC_CHARS = 1024,
    FAULT_LIST_MAX = 64, /* in one spec */
    FAULT_TABLE_MAX = 256,
    FAULT_ERROR_CHARS = 512,
};

/* flip-weight's value when the spec names no bit. */
#define FAULT_ANY_WEIGHT UINT64_MAX

/* One fault as it stands in a spec. */
struct fault {
    enum fault_kind kind;
    int32_t device, unit; /* FAULT_ANY */
    uint32_t after, count;
    uint64_t value; /* us, status, signal or bit */
    int is_sealed;
    int on_xclbin, on_model; /* refuse-load */
};

/* A spec, parsed. is_clear: it began anew; list has what came behind the last "clear". */
struct fault_list {
    int is_clear;
    uint32_t n;
    struct fault list[FAULT_LIST_MAX];
};

/* 0, or -1 with a message that names the place in the spec and what may stand there. Any thread. */
int fault_parse(const char *spec, struct fault_list *out, char error[FAULT_ERROR_CHARS]);

const char *fault_kind_name(enum fault_kind kind);

/* ---- the table: the host side adds, both sides ask ---- */

struct fault_entry {
    struct fault fault; /* does not change once it is in the table */
    _Atomic uint32_t seen, fired;
};

struct fault_table {
    _Atomic uint32_t first, n; /* those before first are removed */
    struct fault_entry entries[FAULT_TABLE_MAX];
};

/* What fires at an event: bits 1 << kind, and each kind's fault. */
struct fault_fired {
    uint32_t kinds;
    const struct fault *by[FAULT_N_KIND];
};

/* Host side, one caller at a time. Those of another device are left out. 0, or -1: the table is full (clear
 * does not make room; a reset does). */
int fault_table_add(struct fault_table *table, const struct fault_list *list, uint32_t device);

/* Host side, with no execution side running: drops what is over or removed. */
void fault_table_reset(struct fault_table *table);

/* Slow half of fault_at. */
void fault_look(struct fault_table *table, enum fault_event event, uint32_t unit, struct fault_fired *fired);

/* An event of unit: what fires. Counts. */
static inline void fault_at(struct fault_table *table, enum fault_event event, uint32_t unit,
                            struct fault_fired *fired)
{
    fired->kinds = 0;
    if (atomic_load_explicit(&table->n, memory_order_acquire) !=
        atomic_load_explicit(&table->first, memory_order_relaxed))
        fault_look(table, event, unit, fired);
}

/* The faults with after=0 that wait: fires them. No event is counted. */
void fault_now(struct fault_table *table, uint32_t unit, struct fault_fired *fired);

/* ---- from outside ---- */

/* Adds a spec to the control file at path (fault_control.h), which is made if it is not there. The devices of
 * every process that has this file see it at their next access. 0, or -1 with a message. */
int fault_to_control(const char *path, const char *spec, char error[FAULT_ERROR_CHARS]);

#endif
