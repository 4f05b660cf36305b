/* What survives the process: the rung of the ladder, why, by whom, and the faults that the throttle counts.
 * JSON, written atomically: a new file, synced, renamed over the old one, the folder synced. Cold code. */
#ifndef STATE_FILE_H
#define STATE_FILE_H

#include "governor.h"
#include "order.h"

enum { STATE_FILE_ERROR_CHARS = 512, STATE_FILE_VERSION = 1 };

struct state_file {
    enum governor_rung rung;
    enum governor_cause cause;
    int latched;
    uint64_t since_utc_ns;
    char by[ORDER_BY_CHARS], reason[ORDER_REASON_CHARS]; /* of the last order; "": none */
    /* UTC ns, oldest first. */
    uint32_t n_device_fault, n_halt_fault;
    uint64_t device_fault_utc_ns[GOVERNOR_N_FAULT], halt_fault_utc_ns[GOVERNOR_N_FAULT];
};

/* path does not exist: *state is ACTIVE, GOVERNOR_BY_START. 0, or -1 with a message that names file and
 * remedy; *state is then HALTED, latched, GOVERNOR_BY_STATE_FILE: in doubt, publish nothing. Only a regular
 * file that holds what state_file_write writes, whole, is read. */
int state_file_read(const char *path, struct state_file *state, char error[STATE_FILE_ERROR_CHARS]);
/* The same of a file's content; name stands in messages. */
int state_file_parse(const char *name, const char *text, size_t size_bytes, struct state_file *state,
                     char error[STATE_FILE_ERROR_CHARS]);
/* Mode 0600, the folder's owner's. Values out of range, and faults that are not oldest first, are a program's
 * error (assert). One writer at a time. 0, or -1 with a message; the old file is then untouched (the new one
 * is there, but may not outlive a power cut, if it is the folder that could not be synced). */
int state_file_write(const char *path, const struct state_file *state, char error[STATE_FILE_ERROR_CHARS]);

#endif
