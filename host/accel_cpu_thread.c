#include <sched.h>

#include "accel_cpu_kernel.h"

enum { N_JOB = 64, SPINS_BEFORE_YIELD = 4096 };

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void run(const struct cpu_worker *worker, const struct cpu_job *job)
{
    uint32_t queued = CPU_TASK_QUEUED;
    /* acquire: pairs with the release in cpu_worker_queue. Fails when the job was taken back. */
    if (!atomic_compare_exchange_strong_explicit(job->task, &queued, CPU_TASK_RUNNING, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    worker->variant->prepare(job->model, job->state);
    /* release: z is written before the poll loop sees it done */
    atomic_store_explicit(job->task, CPU_TASK_DONE, memory_order_release);
}

static void *work(void *argument)
{
    struct cpu_worker *worker = argument;
    uint32_t n_idle = 0;
    while (!atomic_load_explicit(&worker->stop, memory_order_relaxed)) {
        const struct cpu_job *job = spsc_ring_peek(&worker->jobs);
        if (job) {
            run(worker, job);
            spsc_ring_pop(&worker->jobs); /* only now: cpu_worker_is_over counts what is over */
            n_idle = 0;
        } else if (++n_idle < SPINS_BEFORE_YIELD) {
            pause_cpu();
        } else {
            sched_yield(); /* on a core of its own this comes back at once */
        }
    }
    return NULL;
}

int cpu_worker_start(struct cpu_worker *worker, const struct cpu_variant *variant)
{
    worker->variant = variant;
    atomic_init(&worker->stop, 0);
    if (spsc_ring_init(&worker->jobs, N_JOB, sizeof(struct cpu_job)))
        return -1;
    if (pthread_create(&worker->thread, NULL, work, worker)) {
        spsc_ring_free(&worker->jobs);
        return -1;
    }
    return 0;
}

void cpu_worker_stop(struct cpu_worker *worker)
{
    atomic_store_explicit(&worker->stop, 1, memory_order_relaxed);
    pthread_join(worker->thread, NULL);
    spsc_ring_free(&worker->jobs);
}

int cpu_worker_queue(struct cpu_worker *worker, const struct cpu_job *job)
{
    struct cpu_job *slot = spsc_ring_reserve(&worker->jobs);
    if (!slot)
        return 0;
    *slot = *job;
    /* release: a job of this task that was taken back may still lie in the ring, and is carried out if the
     * worker comes to it first: it has to see the new h. */
    atomic_store_explicit(job->task, CPU_TASK_QUEUED, memory_order_release);
    spsc_ring_push(&worker->jobs);
    return 1;
}

int cpu_worker_take_back(_Atomic uint32_t *task)
{
    uint32_t queued = CPU_TASK_QUEUED;
    return atomic_compare_exchange_strong_explicit(task, &queued, CPU_TASK_NONE, memory_order_relaxed,
                                                   memory_order_relaxed);
}

int cpu_worker_wait(_Atomic uint32_t *task, uint32_t n_spin)
{
    for (uint32_t i = 0;; i++) {
        /* acquire: pairs with the release in run */
        if (atomic_load_explicit(task, memory_order_acquire) == CPU_TASK_DONE)
            return 1;
        if (i == n_spin)
            return 0;
        pause_cpu();
    }
}

uint64_t cpu_worker_queued(const struct cpu_worker *worker)
{
    return atomic_load_explicit(&worker->jobs.head, memory_order_relaxed);
}

int cpu_worker_is_over(const struct cpu_worker *worker, uint64_t n)
{
    /* acquire: pairs with the release in spsc_ring_pop; the worker has finished reading the model */
    return atomic_load_explicit(&worker->jobs.tail, memory_order_acquire) >= n;
}
