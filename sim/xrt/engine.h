/* Where a card's units are executed (KL_SIM_EXEC): in the thread that calls ("inline"), in a thread each
 * ("thread"), or in a child process with a thread each ("child"). */
#ifndef ENGINE_H
#define ENGINE_H

#include <pthread.h>
#include <semaphore.h>

#include "unit.h"

enum engine_mode { ENGINE_INLINE, ENGINE_THREAD, ENGINE_CHILD };

struct device;

struct engine {
    enum engine_mode mode;
    int is_running;
    uint32_t n_unit;
    /* inline and thread */
    struct unit_kernel kernel;
    struct unit *units[XCLBIN_UNITS_MAX];
    pthread_mutex_t locks[XCLBIN_UNITS_MAX]; /* inline: one caller at a time. Always there */
    pthread_t threads[XCLBIN_UNITS_MAX];
    /* child: a thread of ours is its parent, since a parent's end kills it */
    pthread_t keeper;
    sem_t ready;
    int child_status; /* as it was at ready: 0, or a negative errno */
    int event_fd;     /* the child writes: ready, a run has ended; we: stop */
};

/* New units, as after configuration. Under life. 0, or a negative errno with a line on stderr. */
int engine_start(struct device *device);

/* Ends them. Bounded: a kernel always comes back, and a child that does not is killed. Under life. */
void engine_stop(struct device *device);

/* Something has changed for the unit. Inline: it is executed here and now. */
void engine_ring(struct device *device, uint32_t unit);

/* child.c's part. */
int engine_child_start(struct device *device);
void engine_child_stop(struct device *device);

/* "inline", ...; unset: inline. 0, or -1: none of them. */
int engine_mode_parse(const char *text, enum engine_mode *out);

#endif
