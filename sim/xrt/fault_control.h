/* The control file (KL_SIM_CONTROL): faults go in while a process runs, counters come out. Memory-mapped by
 * the software device, its child processes and `killline sim-device`. Without one the device keeps it to
 * itself. */
#ifndef CONTROL_H
#define CONTROL_H

#include <stdatomic.h>
#include <stdint.h>

#include "fault.h"

enum { CONTROL_VERSION = 1, CONTROL_DEVICES_MAX = 16, CONTROL_TEXT_BYTES = 16384 };
#define CONTROL_MAGIC 0x4c52544353494d4bu

/* Counted since the file was made. */
struct control_device {
    _Atomic uint64_t injected[FAULT_N_KIND];
    _Atomic uint64_t requests;   /* of doorbell mode, executed */
    _Atomic uint64_t runs;       /* ended, whatever their state */
    _Atomic uint64_t bad_access; /* by a unit, of memory: outside of its bank or of a live buffer */
    _Atomic uint64_t resets;     /* of the whole device: its units are new */
    _Atomic uint64_t lost;       /* times that the device was gone: child died, vanish */
};

struct fault_control {
    uint64_t magic;
    uint32_t version, size_bytes;
    _Atomic uint32_t generation; /* even; odd while text is being written */
    _Atomic uint32_t clears;     /* text began anew */
    /* Every spec since the last clear, a line each, 0-terminated. */
    _Atomic uint32_t text_bytes;
    _Atomic char text[CONTROL_TEXT_BYTES];
    struct control_device devices[CONTROL_DEVICES_MAX];
};

/* Opens and maps the file, making it if it is not there; path NULL: one of this process's own. *fd: CLOEXEC.
 * NULL with a message. Any thread. */
struct fault_control *fault_control_open(const char *path, int *fd, char error[FAULT_ERROR_CHARS]);

/* Maps one that is open. NULL with a message: it is not a control file. */
struct fault_control *fault_control_map(int fd, const char *name, char error[FAULT_ERROR_CHARS]);

void fault_control_close(struct fault_control *control, int fd);

/* What of the text a reader has taken in already. */
struct fault_control_reader {
    uint32_t generation, clears, at;
};

/* Whether there may be news. */
static inline int control_has_news(const struct fault_control *control,
                                   const struct fault_control_reader *reader)
{
    return atomic_load_explicit(&control->generation, memory_order_acquire) != reader->generation;
}

/* Takes in what is new: calls apply once per spec, in order, after is_clear if the text began anew. A text
 * that is being written is left for the next look. */
void fault_control_read(struct fault_control *control, struct fault_control_reader *reader,
                        void (*apply)(void *context, int is_clear, const char *spec), void *context);

#endif
