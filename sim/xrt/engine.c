#include "engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

int engine_mode_parse(const char *text, enum engine_mode *out)
{
    static const char *const names[] = {"inline", "thread", "child"};
    *out = ENGINE_INLINE;
    if (!text || !*text)
        return 0;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum engine_mode)i;
            return 0;
        }
    }
    return -1;
}

static void close_units(struct engine *engine)
{
    for (uint32_t u = 0; u < engine->n_unit; u++) {
        pthread_mutex_lock(&engine->locks[u]);
        unit_close(engine->units[u]);
        engine->units[u] = NULL;
        pthread_mutex_unlock(&engine->locks[u]);
    }
    engine->n_unit = 0;
    unit_kernel_close(&engine->kernel);
}

static int open_units(struct device *device, char error[FAULT_ERROR_CHARS])
{
    struct engine *engine = &device->engine;
    struct card *card = device->card;
    if (unit_kernel_open(device->kernel_fd, card->build, card->symbol, &engine->kernel, error) != 0)
        return -EINVAL;
    engine->n_unit = 0;
    for (uint32_t u = 0; u < card->n_unit; u++) {
        struct unit *unit =
            unit_open(card, u, device->memory, engine->kernel.build, device_counters(device), error);
        if (!unit) {
            close_units(engine);
            return -ENOMEM;
        }
        pthread_mutex_lock(&engine->locks[u]);
        engine->units[u] = unit;
        pthread_mutex_unlock(&engine->locks[u]);
        engine->n_unit++;
    }
    return 0;
}

/* ---- threads ---- */

struct thread_start {
    struct device *device;
    struct unit *unit;
};

static void *run(void *argument)
{
    const struct thread_start start = *(struct thread_start *)argument;
    free(argument);
    unit_loop(start.unit, queue_run_ended, start.device);
    return NULL;
}

static void join_threads(struct device *device, uint32_t n)
{
    atomic_store_explicit(&device->card->stop, 1, memory_order_seq_cst);
    for (uint32_t u = 0; u < n; u++)
        card_ring(&device->card->units[u]);
    for (uint32_t u = 0; u < n; u++)
        pthread_join(device->engine.threads[u], NULL);
}

static int start_threads(struct device *device)
{
    struct engine *engine = &device->engine;
    for (uint32_t u = 0; u < engine->n_unit; u++) {
        struct thread_start *start = (struct thread_start *)malloc(sizeof *start);
        if (start)
            *start = (struct thread_start){device, engine->units[u]};
        if (!start || pthread_create(&engine->threads[u], NULL, run, start) != 0) {
            free(start);
            join_threads(device, u);
            return -EAGAIN;
        }
    }
    return 0;
}

/* ---- all ---- */

/* The shared words of new units: idle, arguments and host words zero. */
static void clear_units(struct card *card)
{
    for (uint32_t u = 0; u < card->n_unit; u++) {
        struct card_unit *unit = &card->units[u];
        atomic_store_explicit(&unit->start, 0, memory_order_relaxed);
        atomic_store_explicit(&unit->auto_restart, 0, memory_order_relaxed);
        atomic_store_explicit(&unit->run_posted, 0, memory_order_relaxed);
        atomic_store_explicit(&unit->arrive_ns, 0, memory_order_relaxed);
        atomic_store_explicit(&unit->ended, 0, memory_order_relaxed);
        atomic_store_explicit(&unit->run_ended, 0, memory_order_relaxed);
        atomic_store_explicit(&unit->state, CARD_UNIT_RUNS, memory_order_relaxed);
        atomic_store_explicit(&unit->sleeping, 0, memory_order_relaxed);
        atomic_store_explicit(&unit->is_loading, 0, memory_order_relaxed);
        for (uint32_t i = 0; i < CARD_N_MAP_WORD; i++)
            atomic_store_explicit(&unit->map[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&card->stop, 0, memory_order_relaxed);
    atomic_store_explicit(&card->lost, 0, memory_order_release);
}

int engine_start(struct device *device)
{
    char error[FAULT_ERROR_CHARS] = "";
    struct engine *engine = &device->engine;
    clear_units(device->card);
    fault_table_reset(&device->card->faults);
    int rc;
    if (engine->mode == ENGINE_CHILD) {
        rc = engine_child_start(device);
    } else {
        rc = open_units(device, error);
        if (rc == 0 && engine->mode == ENGINE_THREAD && (rc = start_threads(device)) != 0) {
            close_units(engine);
            snprintf(error, sizeof error, "no thread for a unit: %s", strerror(-rc));
        }
        if (rc != 0)
            fprintf(stderr, "killline-sim: device %u: %s\n", device->index, error);
    }
    engine->is_running = rc == 0;
    return rc;
}

void engine_stop(struct device *device)
{
    struct engine *engine = &device->engine;
    if (!engine->is_running)
        return;
    engine->is_running = 0;
    if (engine->mode == ENGINE_CHILD) {
        engine_child_stop(device);
        return;
    }
    if (engine->mode == ENGINE_THREAD)
        join_threads(device, engine->n_unit);
    close_units(engine);
}

void engine_ring(struct device *device, uint32_t unit)
{
    struct engine *engine = &device->engine;
    if (engine->mode != ENGINE_INLINE) {
        card_ring(&device->card->units[unit]);
        return;
    }
    pthread_mutex_lock(&engine->locks[unit]);
    const uint32_t did = engine->units[unit] ? unit_access(engine->units[unit]) : 0;
    pthread_mutex_unlock(&engine->locks[unit]);
    if (did & UNIT_RUN_ENDED)
        queue_run_ended(device, unit);
}
