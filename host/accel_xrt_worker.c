#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "accel_xrt_self.h"

uint64_t accel_xrt_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int accel_xrt_may_wait(uint64_t start_ns, uint32_t limit_ms)
{
    enum { SPIN_NS = 200 * 1000 };
    const uint64_t waited_ns = accel_xrt_now_ns() - start_ns;
    if (waited_ns > limit_ms * (uint64_t)1000000)
        return 0;
    if (waited_ns > SPIN_NS)
        nap();
    return 1;
}

static int guarded(void *context, char *error)
{
    struct accel_xrt *self = context;
    return self->worker.task(self, error);
}

/* It looks for work every millisecond: whoever posts must not have to enter the operating system to wake it.
 */
static void *worker_main(void *context)
{
    struct accel_xrt *self = context;
    struct xrt_worker *worker = &self->worker;
    uint32_t n_done = 0;
    for (;;) {
        if (atomic_load_explicit(&worker->n_posted, memory_order_acquire) != n_done) {
            worker->error[0] = 0;
            worker->result = accel_xrt_try(guarded, self, worker->error, sizeof worker->error);
            atomic_store_explicit(&worker->n_done, ++n_done, memory_order_release);
        } else if (atomic_load_explicit(&worker->stop, memory_order_acquire)) {
            return NULL;
        } else {
            nap();
        }
    }
}

int accel_xrt_worker_start(struct accel_xrt *self)
{
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&self->worker.thread, NULL, worker_main, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? -1 : 0;
}

int accel_xrt_worker_is_done(const struct accel_xrt *self)
{
    return atomic_load_explicit(&self->worker.n_done, memory_order_acquire) ==
           atomic_load_explicit(&self->worker.n_posted, memory_order_relaxed);
}

void accel_xrt_worker_post(struct accel_xrt *self, int (*task)(struct accel_xrt *, char *))
{
    self->worker.task = task;
    atomic_fetch_add_explicit(&self->worker.n_posted, 1, memory_order_release);
}

static int wait_done(struct accel_xrt *self, uint32_t limit_ms)
{
    const uint64_t limit_ns = accel_xrt_now_ns() + limit_ms * (uint64_t)1000000;
    while (!accel_xrt_worker_is_done(self)) {
        if (accel_xrt_now_ns() > limit_ns)
            return -1;
        nap();
    }
    return 0;
}

int accel_xrt_worker_stop(struct accel_xrt *self)
{
    atomic_store_explicit(&self->worker.stop, 1, memory_order_release);
    if (wait_done(self, XRT_CLOSE_LIMIT_MS)) {
        pthread_detach(self->worker.thread);
        return -1;
    }
    pthread_join(self->worker.thread, NULL);
    return 0;
}

int accel_xrt_worker_call(struct accel_xrt *self, int (*task)(struct accel_xrt *, char *), uint32_t limit_ms,
                          const char *doing, char error[ACCEL_ERROR_CHARS])
{
    /* First what is under way: an image being staged, or a call that an earlier reset gave up on. */
    if (wait_done(self, limit_ms)) {
        snprintf(error, ACCEL_ERROR_CHARS,
                 "device %s: XRT has not come back from an earlier call within %u ms; reset the card (xbutil "
                 "reset), or restart",
                 self->device_name, limit_ms);
        return -1;
    }
    accel_xrt_worker_post(self, task);
    if (wait_done(self, limit_ms)) {
        snprintf(error, ACCEL_ERROR_CHARS,
                 "device %s: XRT has not come back from %s within %u ms; reset the card (xbutil reset)",
                 self->device_name, doing, limit_ms);
        return -1;
    }
    snprintf(error, ACCEL_ERROR_CHARS, "%s", self->worker.error);
    return self->worker.result;
}
