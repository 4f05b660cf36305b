/* The execution side of a compute unit: runs the kernel on what the card's shared words ask for. In the
 * host's process (inline, or a thread per unit) or in the child. One caller at a time per unit. */
#ifndef UNIT_H
#define UNIT_H

#include "card.h"
#include "fault_control.h"

struct unit;

/* The kernel's library, out of a file descriptor. */
struct unit_kernel {
    void *library; /* of dlopen */
    const struct kl_build *build;
};

/* 0, or -1 with a message: it does not load, does not show symbol, or is of another build or ABI version. */
int unit_kernel_open(int fd, const char *build, const char *symbol, struct unit_kernel *out,
                     char error[FAULT_ERROR_CHARS]);
void unit_kernel_close(struct unit_kernel *kernel);

/* A new unit, as after configuration: slots empty, ap_idle; its shared words are set accordingly. memory: the
 * card's. counters: the device's. NULL: out of memory, with a message. All must stay until unit_close. */
struct unit *unit_open(struct card *card, uint32_t index, uint8_t *memory, const struct kl_build *build,
                       struct control_device *counters, char error[FAULT_ERROR_CHARS]);
void unit_close(struct unit *unit);

/* What a pass did. */
enum {
    UNIT_WORKED = 1,    /* something; there may be more */
    UNIT_ANSWERED = 2,  /* an answer was given */
    UNIT_WAITING = 4,   /* another request could be answered at once */
    UNIT_LOADING = 8,   /* a beat of a load was taken in */
    UNIT_RUN_ENDED = 16 /* a queued run: run_ended has moved */
};

/* One pass: the queued run, a start, or a round of doorbell mode. Bounded by the kernel's own work; nothing
 * if the unit hangs or the card is lost. */
uint32_t unit_pass(struct unit *unit);

/* Inline: passes until every request that can be answered has been, or nothing is left to do. A prepare is
 * not done in front of an answer that the host waits for, so never behind an answer in the same call, and a
 * load goes on by 64 beats at most. Returns UNIT_RUN_ENDED if a run ended. */
uint32_t unit_access(struct unit *unit);

/* Thread and child: passes until card->stop, waiting for the doorbell between them. run_ended is called after
 * each run that ended. */
void unit_loop(struct unit *unit, void (*run_ended)(void *context, uint32_t index), void *context);

#endif
