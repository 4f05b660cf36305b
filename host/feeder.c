#include "feeder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct feeder {
    struct capture *capture;
    struct port *port;
    double cycles_per_ns; /* of the capture's time, pace included; 0: no pacing */
    int64_t far_cycles;   /* so long before a frame is due this thread may sleep: 200 us of the clock */
    uint64_t n_frame;
    _Atomic int stop;       /* relaxed: a request to end, nothing is published with it */
    _Atomic int fell_short; /* release: error is written */
    char error[CAPTURE_ERROR_CHARS];
    pthread_t thread;
};

static void short_sleep(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static int stopped(struct feeder *f)
{
    return atomic_load_explicit(&f->stop, memory_order_relaxed);
}

static void *feed(void *arg)
{
    struct feeder *f = arg;
    struct capture_frame frame;
    uint64_t tsc0 = clock_tsc(), ts0 = 0;
    for (uint64_t i = 0; i < f->n_frame && !stopped(f); i++) {
        int more = capture_next_frame(f->capture, &frame, f->error);
        if (more != 1) {
            if (more == 0)
                f->error[0] = '\0';
            atomic_store_explicit(&f->fell_short, 1, memory_order_release);
            break;
        }
        if (i == 0)
            ts0 = frame.ts_ns;
        if (f->cycles_per_ns > 0 && frame.ts_ns > ts0) {
            uint64_t due = tsc0 + (uint64_t)((double)(frame.ts_ns - ts0) * f->cycles_per_ns);
            for (int64_t left; (left = (int64_t)(due - clock_tsc())) > 0 && !stopped(f);)
                if (left > f->far_cycles)
                    short_sleep();
        }
        while (port_feed(f->port, frame.data, frame.len) && !stopped(f))
            short_sleep();
    }
    return NULL;
}

struct feeder *feeder_start(const char *path, enum capture_kind kind, struct port *port, double pace,
                            uint64_t n_frame, const struct clock_calibration *clock,
                            char error[CAPTURE_ERROR_CHARS])
{
    struct feeder *f = calloc(1, sizeof(*f));
    if (!f) {
        snprintf(error, CAPTURE_ERROR_CHARS, "out of memory");
        return NULL;
    }
    f->port = port;
    f->n_frame = n_frame;
    f->cycles_per_ns = pace > 0 ? clock->hz / 1e9 / pace : 0;
    f->far_cycles = (int64_t)clock_ns_to_cycles(clock, 200e3);
    f->capture = capture_open(path, kind, error);
    if (f->capture && !pthread_create(&f->thread, NULL, feed, f))
        return f;
    if (f->capture)
        snprintf(error, CAPTURE_ERROR_CHARS, "no thread to play %.150s", path);
    capture_close(f->capture);
    free(f);
    return NULL;
}

const char *feeder_fell_short(struct feeder *f)
{
    /* acquire: pairs with the release in feed() */
    return f && atomic_load_explicit(&f->fell_short, memory_order_acquire) ? f->error : NULL;
}

void feeder_stop(struct feeder *f)
{
    if (!f)
        return;
    atomic_store_explicit(&f->stop, 1, memory_order_relaxed);
    pthread_join(f->thread, NULL);
    capture_close(f->capture);
    free(f);
}
