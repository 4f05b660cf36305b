/* The AXI-Lite side as the host reaches it: ap_ctrl_hs, arguments, register block. No lock and no wait: the
 * words are shared with whoever executes the unit. */
#include <errno.h>

#include "device.h"

static uint32_t read_control(struct device *device, uint32_t number)
{
    struct card_unit *unit = &device->card->units[number];
    const uint32_t ended = atomic_load_explicit(&unit->ended, memory_order_acquire);
    const uint32_t start = atomic_load_explicit(&unit->start, memory_order_relaxed);
    const uint32_t auto_restart = atomic_load_explicit(&unit->auto_restart, memory_order_relaxed);
    uint32_t value = auto_restart ? KL_CONTROL_AUTO_RESTART : 0;
    value |= start != ended ? KL_CONTROL_START : KL_CONTROL_IDLE;
    if (ended != atomic_load_explicit(&device->done_seen[number], memory_order_relaxed)) {
        value |= KL_CONTROL_DONE;
        atomic_store_explicit(&device->done_seen[number], ended, memory_order_relaxed);
    }
    return value;
}

static void write_control(struct card_unit *unit, uint32_t value)
{
    const uint32_t start = atomic_load_explicit(&unit->start, memory_order_relaxed);
    atomic_store_explicit(&unit->auto_restart, !!(value & KL_CONTROL_AUTO_RESTART), memory_order_release);
    /* While it runs ap_start stands already. */
    if (value & KL_CONTROL_START && atomic_load_explicit(&unit->ended, memory_order_acquire) == start)
        atomic_store_explicit(&unit->start, start + 1, memory_order_release);
}

/* What the host may write; other words are the kernel's or nobody's, and a write there has no effect. */
static int is_host_word(uint32_t word)
{
    if (word < CARD_N_ARGUMENT_WORD)
        return word != KL_MAP_CONTROL / 4;
    if (word < KL_MAP_REG / 4)
        return 0;
    const uint32_t reg = word - KL_MAP_REG / 4;
    return (reg >= KL_REG_REQUEST_TAIL && reg < KL_REG_REQUEST_HEAD) ||
           (reg >= KL_REG_REQUESTS && reg < KL_REG_RESULTS);
}

/* What makes a unit look. */
static int is_bell(uint32_t offset)
{
    switch (offset) {
    case KL_MAP_CONTROL:
    case KL_MAP_REG + 4 * KL_REG_REQUEST_TAIL:
    case KL_MAP_REG + 4 * KL_REG_RESULT_HEAD:
    case KL_MAP_REG + 4 * KL_REG_CONFIG:
    case KL_MAP_REG + 4 * KL_REG_LOAD_DOORBELL:
        return 1;
    default:
        return 0;
    }
}

static int is_register(uint32_t offset)
{
    return offset % 4 == 0 && offset < KL_MAP_BYTES;
}

int device_read_at(struct session *session, uint32_t number, uint32_t offset, uint32_t *value)
{
    struct device *device = session->device;
    struct card_unit *unit = &device->card->units[number];
    if (!is_register(offset))
        return -EINVAL;
    device_look(device);
    const struct latency *latency = &device->card->latency;
    const uint64_t begin = latency->is_on ? latency_now_ns() : 0;
    if (begin)
        latency_until(begin + latency->read_ns / 2);
    /* Inline, a load goes on by whoever asks how far it is. */
    if (device->engine.mode == ENGINE_INLINE && atomic_load_explicit(&unit->is_loading, memory_order_relaxed))
        engine_ring(device, number);
    if (atomic_load_explicit(&device->card->lost, memory_order_acquire)) {
        *value = UINT32_MAX;
        return device_lost(device);
    }
    *value = offset == KL_MAP_CONTROL ? read_control(device, number)
                                      : atomic_load_explicit(&unit->map[offset / 4], memory_order_acquire);
    if (begin)
        latency_until(begin + latency->read_ns);
    return 0;
}

int device_write_at(struct session *session, uint32_t number, uint32_t offset, uint32_t value)
{
    struct device *device = session->device;
    struct card_unit *unit = &device->card->units[number];
    if (!is_register(offset))
        return -EINVAL;
    device_look(device);
    if (atomic_load_explicit(&device->card->lost, memory_order_acquire))
        return device_lost(device);
    if (offset == KL_MAP_REG + 4 * KL_REG_REQUEST_TAIL &&
        device_fault(device, FAULT_DOORBELL, FAULT_LOSE_DOORBELL, number))
        return 0;
    if (device->card->latency.is_on)
        atomic_store_explicit(&unit->arrive_ns, latency_now_ns() + device->card->latency.write_ns,
                              memory_order_relaxed);
    if (offset == KL_MAP_CONTROL)
        write_control(unit, value);
    else if (is_host_word(offset / 4))
        atomic_store_explicit(&unit->map[offset / 4], value, memory_order_release);
    if (is_bell(offset))
        engine_ring(device, number);
    return 0;
}

/* Opened exclusively by this session? */
static int may_reach(const struct session *session, uint32_t unit)
{
    return unit < XCLBIN_UNITS_MAX && atomic_load_explicit(&session->exclusive[unit], memory_order_relaxed);
}

int device_read(struct session *session, uint32_t unit, uint32_t offset, uint32_t *value)
{
    return may_reach(session, unit) ? device_read_at(session, unit, offset, value) : -EPERM;
}

int device_write(struct session *session, uint32_t unit, uint32_t offset, uint32_t value)
{
    return may_reach(session, unit) ? device_write_at(session, unit, offset, value) : -EPERM;
}

int device_unit_at(const struct session *session, uint64_t address, uint32_t *unit, uint32_t *offset)
{
    const struct device *device = session->device;
    for (uint32_t u = 0; device->is_loaded && u < device->card->n_unit; u++) {
        const uint64_t at = address - device->xclbin.units[device->order[u]].base;
        if (at >= KL_MAP_BYTES)
            continue;
        *unit = u;
        *offset = (uint32_t)at;
        return session->shared[u] || may_reach(session, u) ? 0 : -EPERM;
    }
    return -EINVAL;
}
