/* Runs that came through XRT's queue (xclExecBuf): one at a time per unit, in order. */
#include <errno.h>
#include <string.h>
#include <xrt.h>
/* behind xrt.h */
#include <ert.h>

#include "device.h"

/* The packet's state word, which XRT polls. */
static void set_state(uint32_t *packet, enum ert_cmd_state state)
{
    const uint32_t header = __atomic_load_n(packet, __ATOMIC_RELAXED);
    __atomic_store_n(packet, (header & ~0xfu) | (uint32_t)state, __ATOMIC_RELEASE);
}

void queue_tell(struct session *session)
{
    /* Sequentially consistent with the waiter's: it sees this store, or is seen itself. */
    atomic_store_explicit(&session->pending, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&session->n_waiting, memory_order_seq_cst))
        card_futex_wake(&session->pending);
}

static void end(struct device_run *run, enum ert_cmd_state state)
{
    if (!run->packet)
        return;
    set_state(run->packet, state);
    queue_tell(run->session);
}

/* Gives the unit its next run, if it has none. Under the lock. 1: it has to be rung. */
static int dispatch(struct device *device, uint32_t unit)
{
    struct device_queue *queue = &device->queues[unit];
    struct card_unit *shared = &device->card->units[unit];
    if (queue->is_running || queue->n == 0)
        return 0;
    struct device_run *run = &queue->runs[queue->head];
    queue->is_running = 1;
    if (run->packet)
        set_state(run->packet, ERT_CMD_STATE_RUNNING);
    memcpy(shared->run_words, run->words, sizeof shared->run_words);
    atomic_fetch_add_explicit(&shared->run_posted, 1, memory_order_release);
    return 1;
}

void queue_run_ended(void *context, uint32_t unit)
{
    struct device *device = (struct device *)context;
    struct device_queue *queue = &device->queues[unit];
    pthread_mutex_lock(&device->lock);
    const struct card_unit *shared = &device->card->units[unit];
    const uint32_t ended = atomic_load_explicit(&shared->run_ended, memory_order_acquire);
    int ring = 0;
    if (queue->is_running && ended == atomic_load_explicit(&shared->run_posted, memory_order_relaxed)) {
        end(&queue->runs[queue->head],
            atomic_load_explicit(&shared->run_state, memory_order_relaxed) == CARD_RUN_DONE
                ? ERT_CMD_STATE_COMPLETED
                : ERT_CMD_STATE_ERROR);
        queue->head = (queue->head + 1) % DEVICE_QUEUE_MAX;
        queue->n--;
        queue->is_running = 0;
        ring = dispatch(device, unit);
    }
    pthread_mutex_unlock(&device->lock);
    if (ring)
        engine_ring(device, unit);
}

void queue_fail_all(struct device *device)
{
    pthread_mutex_lock(&device->lock);
    for (uint32_t u = 0; u < XCLBIN_UNITS_MAX; u++) {
        struct device_queue *queue = &device->queues[u];
        for (; queue->n > 0; queue->n--) {
            end(&queue->runs[queue->head], ERT_CMD_STATE_ERROR);
            queue->head = (queue->head + 1) % DEVICE_QUEUE_MAX;
        }
        queue->is_running = 0;
    }
    pthread_mutex_unlock(&device->lock);
}

static int is_of(const struct device_run *run, const struct session *session, uint32_t buffer, int any_buffer)
{
    return run->packet && run->session == session && (any_buffer || run->buffer == buffer);
}

void queue_forget(struct device *device, const struct session *session, uint32_t buffer, int any_buffer)
{
    for (uint32_t u = 0; u < XCLBIN_UNITS_MAX; u++) {
        struct device_queue *queue = &device->queues[u];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < queue->n; i++) {
            struct device_run *run = &queue->runs[(queue->head + i) % DEVICE_QUEUE_MAX];
            if (is_of(run, session, buffer, any_buffer)) {
                set_state(run->packet, ERT_CMD_STATE_ABORT);
                run->packet = NULL;
                if (i > 0 || !queue->is_running)
                    continue; /* the unit has not seen it */
            }
            queue->runs[(queue->head + kept++) % DEVICE_QUEUE_MAX] = *run;
        }
        queue->n = kept;
    }
}

/* The unit out of a packet's mask that has the fewest runs; this session has to have it open. -1: none. */
static int choose(const struct session *session, const uint32_t *masks, uint32_t n_mask)
{
    const struct device *device = session->device;
    int best = -1;
    for (uint32_t u = 0; u < device->card->n_unit && u < 32 * n_mask; u++) {
        if (!(masks[u / 32] >> u % 32 & 1))
            continue;
        if (!atomic_load_explicit(&session->shared[u], memory_order_relaxed) &&
            !atomic_load_explicit(&session->exclusive[u], memory_order_relaxed))
            continue;
        if (best < 0 || device->queues[u].n < device->queues[best].n)
            best = (int)u;
    }
    return best;
}

/* Puts a start packet into its unit's queue. Under the lock. Returns the unit, or a negative errno. */
static int enqueue(struct session *session, const struct device_buffer *buffer, uint32_t slot)
{
    struct device *device = session->device;
    uint32_t *packet = (uint32_t *)(void *)buffer->host;
    const struct ert_start_kernel_cmd *start = (const struct ert_start_kernel_cmd *)(const void *)packet;
    const uint32_t n_mask = 1u + start->extra_cu_masks, n_word = start->count;
    if (4 * (UINT64_C(1) + n_word) > buffer->size_bytes || n_word < n_mask)
        return -EINVAL;
    if (!device->is_loaded)
        return -ENODEV;
    const int unit = choose(session, packet + 1, n_mask);
    if (unit < 0)
        return -EPERM;
    const struct card_unit *shared = &device->card->units[unit];
    /* It was started by its registers and has not ended: its queue is not XRT's now. */
    if (atomic_load_explicit(&shared->start, memory_order_relaxed) !=
        atomic_load_explicit(&shared->ended, memory_order_acquire))
        return -EBUSY;
    struct device_queue *queue = &device->queues[unit];
    if (queue->n == DEVICE_QUEUE_MAX)
        return -EAGAIN;
    struct device_run *run = &queue->runs[(queue->head + queue->n++) % DEVICE_QUEUE_MAX];
    *run = (struct device_run){.session = session, .packet = packet, .buffer = slot};
    const uint32_t n = n_word - n_mask < CARD_N_ARGUMENT_WORD ? n_word - n_mask : CARD_N_ARGUMENT_WORD;
    memcpy(run->words, packet + 1 + n_mask, 4 * (size_t)n);
    set_state(packet, ERT_CMD_STATE_QUEUED);
    return unit;
}

int queue_submit(struct session *session, uint32_t handle)
{
    struct device *device = session->device;
    struct device_buffer buffer;
    if (memory_get(session, handle, &buffer) != 0 || !(buffer.flags & XCL_BO_FLAGS_EXECBUF) ||
        buffer.size_bytes < sizeof(struct ert_packet))
        return -EINVAL;
    device_look(device);
    if (atomic_load_explicit(&device->card->lost, memory_order_acquire)) {
        device_lost(device);
        return -EIO;
    }
    const struct ert_packet *packet = (const struct ert_packet *)(const void *)buffer.host;
    if (packet->opcode == ERT_CONFIGURE || packet->opcode == ERT_INIT_CU) { /* nothing to set up here */
        set_state((uint32_t *)(void *)buffer.host, ERT_CMD_STATE_COMPLETED);
        queue_tell(session);
        return 0;
    }
    if (packet->opcode != ERT_START_CU)
        return -EOPNOTSUPP;
    pthread_mutex_lock(&device->lock);
    const int unit = enqueue(session, &buffer, handle & (CARD_BUFFERS_MAX - 1));
    const int ring = unit >= 0 && dispatch(device, (uint32_t)unit);
    pthread_mutex_unlock(&device->lock);
    if (ring)
        engine_ring(device, (uint32_t)unit);
    if (atomic_load_explicit(&device->card->lost, memory_order_acquire))
        queue_fail_all(device); /* inline: by this very run */
    return unit < 0 ? unit : 0;
}

int queue_wait(struct session *session, int timeout_ms)
{
    const uint64_t until = timeout_ms > 0 ? latency_now_ns() + 1000000u * (uint64_t)timeout_ms : 0;
    for (;;) {
        if (atomic_exchange_explicit(&session->pending, 0, memory_order_acquire))
            return 1;
        if (!atomic_load_explicit(&session->is_open, memory_order_acquire))
            return 0;
        const uint64_t now = latency_now_ns();
        if (timeout_ms == 0 || (until && now >= until))
            return 0;
        atomic_fetch_add_explicit(&session->n_waiting, 1, memory_order_seq_cst);
        if (!atomic_load_explicit(&session->pending, memory_order_seq_cst))
            card_futex_wait(&session->pending, 0, until ? until - now : 0);
        atomic_fetch_sub_explicit(&session->n_waiting, 1, memory_order_relaxed);
    }
}
