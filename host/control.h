/* The appliance seen from outside: threads of its own that listen on a Unix socket for halt, resume and
 * status, and keep in a file what has to survive the process. Cold code; nothing of it runs in the poll
 * loop, which it meets at the order desk (order.h) and the governor's seqlock (governor.h).
 *
 * In the folder: "control.sock" (mode 0600: the user that runs the appliance, and root), "state.json"
 * (state_file.h), "lock" (one appliance per folder: flock; its process number). */
#ifndef CONTROL_H
#define CONTROL_H

#include "audit.h"
#include "clock.h"
#include "config.h"
#include "governor.h"
#include "order.h"
#include "state_file.h"

enum { CONTROL_ERROR_CHARS = 512, CONTROL_PATH_CHARS = 108, CONTROL_UTC_CHARS = 32, CONTROL_PID_CHARS = 32 };

/* Where the folder is: dir if not "", else $XDG_STATE_HOME/killline, else $HOME/.local/state/killline. 0, or
 * -1 with a message: none of them is set, or too long for a socket's address (108 bytes with its name). */
int control_folder(const char *dir, char folder[CONTROL_PATH_CHARS], char error[CONTROL_ERROR_CHARS]);

struct control;

/* Makes the folder (0700, with its parents), takes its lock and reads the state: call it before the governor
 * is made, which starts from *state. That is as the last run, or a command since, left it, however it ended:
 * a HALTED keeps its cause, by and reason, since what an operator wants to read is why it was halted, not
 * that it was started again.
 *
 * A state file that cannot be read is no reason not to start: *state is then HALTED with
 * GOVERNOR_BY_STATE_FILE, the message is in warning ("": none), and the file is kept as
 * "state.json.unreadable". NULL with a message in error: another appliance runs there (its pid; it is given a
 * second to end), or the folder cannot be made or written. */
struct control *control_open(const char *folder, struct state_file *state, char warning[CONTROL_ERROR_CHARS],
                             char error[CONTROL_ERROR_CHARS]);

/* What it looks at while it runs; everything outlives control_close. */
struct control_view {
    struct order_desk *desk;
    const struct governor *governor;
    const struct config_governor *rules; /* the bounds, for messages */
    const struct audit_log *log;         /* its losses are told on stderr */
    struct clock_calibration clock;      /* TSC to UTC */
    const char *run_name;                /* what is being run, for status */
    const char *out;                     /* folder of the log */
};

/* Starts the threads: call it before the poll loop's. Every change of rung, and every alert, is a line on
 * stderr; every change of the rung, the latch or the faults is in the file within 20 ms, if the disk is as
 * fast (halt and resume: before the command is told that it is done). A file that cannot be written is told
 * on stderr and tried again every second; it never ends the run, and a halt does not wait for it. 0, or -1
 * with a message. */
int control_start(struct control *control, const struct control_view *view, char error[CONTROL_ERROR_CHARS]);

/* Ends the threads after a last look at the governor, gives back socket and lock. The file stays. NULL:
 * nothing. */
void control_close(struct control *control);

/* ---- the other side: commands ---- */

enum { CONTROL_REQUEST_BYTES = 1024, CONTROL_ANSWER_BYTES = 16384 };

/* One line of JSON to the appliance in the folder, one line back (control_answer.c has both forms). 0; 1:
 * no socket, or nobody behind it; -1 with a message: it does not answer, or the folder is not ours. */
int control_ask(const char *folder, const char *request, char answer[CONTROL_ANSWER_BYTES],
                char error[CONTROL_ERROR_CHARS]);

/* Carries the order out on the state file, since no appliance runs. 0; 1 with a message: one runs there, or
 * is about to; -1 with a message: not halted (resume), or the file could not be written. */
int control_set(const char *folder, const struct order *order, char error[CONTROL_ERROR_CHARS]);

/* Nonzero: an appliance has the folder's lock, whether it listens or not; pid: "process N". */
int control_is_taken(const char *folder, char pid[CONTROL_PID_CHARS]);

/* The state file of the folder, whoever runs there; see state_file_read. */
int control_read(const char *folder, struct state_file *state, char error[CONTROL_ERROR_CHARS]);

/* "2026-12-01T02:03:04.123Z" */
void control_utc_text(uint64_t utc_ns, char text[CONTROL_UTC_CHARS]);

#endif
