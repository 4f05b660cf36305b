/* The card's memory: banks, their allocator, and XRT's buffer objects.
 *
 * All banks lie one behind the other in one memfd, which the execution side maps as well. A bank's host
 * window
 * ("HOST[0]") is a bank whose buffers the host maps in place: one copy, no transfers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xrt_mem.h>

#include "device.h"

enum { PAGE = 4096, SLOT_BITS = 12 };
static_assert(CARD_BUFFERS_MAX == 1 << SLOT_BITS, "a handle is tenant and slot");

/* ---- banks ---- */

int memory_make(struct device *device)
{
    struct card *card = device->card;
    uint64_t bytes = 0;
    card->n_bank = device->xclbin.n_bank;
    for (uint32_t b = 0; b < card->n_bank; b++) {
        const struct xclbin_bank *bank = &device->xclbin.banks[b];
        const uint64_t size = bank->is_used ? bank->size_bytes & ~(uint64_t)(PAGE - 1) : 0;
        card->banks[b] =
            (struct card_bank){bank->base, size, bytes, (uint32_t)(size != 0), (uint32_t)bank->is_host};
        if (size > (UINT64_C(1) << 46) - bytes) {
            fprintf(stderr, "killline-sim: the xclbin's banks are beyond what a process can map\n");
            return -EFBIG;
        }
        bytes += size;
    }
    card->memory_bytes = bytes;
    /* Pages are taken as they are written: a bank of 16 GiB costs what is used of it. */
    device->memory_fd = memfd_create("killline-sim-memory", MFD_CLOEXEC);
    if (device->memory_fd < 0 || ftruncate(device->memory_fd, (off_t)bytes) != 0)
        goto fail;
    void *at =
        bytes ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, device->memory_fd, 0)
              : NULL;
    if (at == MAP_FAILED)
        goto fail;
    device->memory = (uint8_t *)at;
    for (uint32_t b = 0; b < card->n_bank; b++) {
        if (!card->banks[b].is_used)
            continue;
        struct device_extent *all = (struct device_extent *)malloc(sizeof *all);
        if (!all)
            goto fail;
        /* HBM begins at address 0, which stays nobody's. */
        const uint64_t skip = card->banks[b].base == 0 ? PAGE : 0;
        *all = (struct device_extent){NULL, card->banks[b].base + skip, card->banks[b].size_bytes - skip, 0};
        device->banks[b] = all;
    }
    return 0;
fail:
    fprintf(stderr, "killline-sim: no memory for the card's banks of %llu bytes: %s\n",
            (unsigned long long)bytes, strerror(errno));
    memory_free(device);
    return -ENOMEM;
}

void memory_free(struct device *device)
{
    for (uint32_t b = 0; b < XCLBIN_BANKS_MAX; b++) {
        while (device->banks[b]) {
            struct device_extent *next = device->banks[b]->next;
            free(device->banks[b]);
            device->banks[b] = next;
        }
    }
    if (device->memory)
        munmap(device->memory, device->card->memory_bytes);
    device->memory = NULL;
    if (device->memory_fd >= 0)
        close(device->memory_fd);
    device->memory_fd = -1;
}

/* First fit. 0: no piece is large enough, or no memory for its record. */
static uint64_t take(struct device *device, uint32_t bank, uint64_t size_bytes)
{
    for (struct device_extent *e = device->banks[bank]; e; e = e->next) {
        if (e->is_used || e->size_bytes < size_bytes)
            continue;
        if (e->size_bytes > size_bytes) {
            struct device_extent *rest = (struct device_extent *)malloc(sizeof *rest);
            if (!rest)
                return 0;
            *rest = (struct device_extent){e->next, e->address + size_bytes, e->size_bytes - size_bytes, 0};
            e->next = rest;
            e->size_bytes = size_bytes;
        }
        e->is_used = 1;
        return e->address;
    }
    return 0;
}

static void join_next(struct device_extent *e)
{
    struct device_extent *next = e->next;
    if (!next || next->is_used)
        return;
    e->size_bytes += next->size_bytes;
    e->next = next->next;
    free(next);
}

static uint8_t *at_address(const struct device *device, uint32_t bank, uint64_t address)
{
    const struct card_bank *in = &device->card->banks[bank];
    return device->memory + in->offset + (address - in->base);
}

static void give_back(struct device *device, uint32_t bank, uint64_t address)
{
    struct device_extent *before = NULL, *e = device->banks[bank];
    while (e && e->address != address) {
        before = e;
        e = e->next;
    }
    if (!e)
        return;
    e->is_used = 0;
    madvise(at_address(device, bank, address), e->size_bytes, MADV_REMOVE); /* its pages */
    join_next(e);
    if (before && !before->is_used)
        join_next(before);
}

/* ---- buffers ---- */

/* The buffers as the execution side sees them. Under the lock. */
static void publish(struct device *device, uint32_t slot, uint64_t address, uint64_t size_bytes)
{
    struct card *card = device->card;
    const uint32_t generation = atomic_load_explicit(&card->memory_generation, memory_order_relaxed);
    atomic_store_explicit(&card->memory_generation, generation + 1, memory_order_relaxed);
    atomic_store_explicit(&card->buffers[slot].address, address, memory_order_release);
    atomic_store_explicit(&card->buffers[slot].size_bytes, size_bytes, memory_order_release);
    if (slot >= atomic_load_explicit(&card->n_buffer, memory_order_relaxed))
        atomic_store_explicit(&card->n_buffer, slot + 1, memory_order_release);
    atomic_store_explicit(&card->memory_generation, generation + 2, memory_order_release);
}

static struct device_buffer *find(struct session *session, uint32_t handle)
{
    const uint32_t slot = handle & (CARD_BUFFERS_MAX - 1);
    struct device_buffer *buffer = &session->device->buffers[slot];
    return buffer->session == session && buffer->tenant == handle >> SLOT_BITS ? buffer : NULL;
}

/* Whether this kind of buffer can be had in this bank. */
static int check_kind(const struct device *device, uint32_t bank, uint32_t flags)
{
    const uint32_t kind = flags & ~(uint32_t)XRT_BO_FLAGS_MEMIDX_MASK;
    if (kind & (XCL_BO_FLAGS_P2P | XCL_BO_FLAGS_SVM | XCL_BO_FLAGS_SGL | XCL_BO_FLAGS_KERNBUF))
        return -EOPNOTSUPP;
    if (!device->is_loaded || bank >= device->card->n_bank || !device->card->banks[bank].is_used)
        return -EINVAL;
    if (!!(kind & XCL_BO_FLAGS_HOST_ONLY) != (int)device->card->banks[bank].is_host)
        return -EINVAL;
    return 0;
}

/* Address and, in place, the host's copy of a buffer in a bank. Under the lock. */
static int place(struct device *device, struct device_buffer *buffer, uint64_t size_bytes)
{
    int rc = check_kind(device, buffer->bank, buffer->flags);
    if (rc != 0)
        return rc;
    buffer->address = take(device, buffer->bank, size_bytes);
    if (!buffer->address)
        return -ENOMEM;
    if (device->card->banks[buffer->bank].is_host) {
        buffer->host = at_address(device, buffer->bank, buffer->address);
        buffer->is_in_place = 1;
    }
    return 0;
}

static int allocate(struct session *session, uint32_t slot, uint8_t *user, uint64_t size_bytes,
                    uint32_t flags)
{
    struct device *device = session->device;
    const uint64_t pages = (size_bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    struct device_buffer buffer = {.session = session,
                                   .size_bytes = size_bytes,
                                   .flags = flags,
                                   .bank = flags & (uint32_t)XRT_BO_FLAGS_MEMIDX_MASK,
                                   .host = user,
                                   .tenant =
                                       (device->buffers[slot].tenant + 1) & (UINT32_MAX >> SLOT_BITS >> 1)};
    if (!(flags & XCL_BO_FLAGS_EXECBUF)) {
        const int rc = place(device, &buffer, pages);
        if (rc != 0)
            return rc;
    }
    if (!buffer.host && !(flags & XCL_BO_FLAGS_DEV_ONLY)) {
        buffer.host = (uint8_t *)aligned_alloc(PAGE, pages);
        buffer.is_owned = 1;
        if (!buffer.host) {
            if (buffer.address)
                give_back(device, buffer.bank, buffer.address);
            return -ENOMEM;
        }
        memset(buffer.host, 0, pages);
    }
    device->buffers[slot] = buffer;
    if (buffer.address)
        publish(device, slot, buffer.address, size_bytes);
    return 0;
}

int memory_allocate(struct session *session, void *user, uint64_t size_bytes, uint32_t flags,
                    uint32_t *handle)
{
    struct device *device = session->device;
    if (size_bytes == 0 || size_bytes > UINT64_C(1) << 46)
        return -EINVAL;
    if (user && flags & (XCL_BO_FLAGS_HOST_ONLY | XCL_BO_FLAGS_DEV_ONLY))
        return -EINVAL;
    if (device_fault(device, FAULT_ALLOCATE, FAULT_MEMORY_FULL, 0))
        return -ENOMEM;
    pthread_mutex_lock(&device->lock);
    uint32_t slot = 0;
    while (slot < CARD_BUFFERS_MAX && device->buffers[slot].session)
        slot++;
    const int rc =
        slot < CARD_BUFFERS_MAX ? allocate(session, slot, (uint8_t *)user, size_bytes, flags) : -ENOSPC;
    if (rc == 0)
        *handle = device->buffers[slot].tenant << SLOT_BITS | slot;
    pthread_mutex_unlock(&device->lock);
    return rc;
}

static void release(struct device *device, uint32_t slot)
{
    struct device_buffer *buffer = &device->buffers[slot];
    if (buffer->flags & XCL_BO_FLAGS_EXECBUF)
        queue_forget(device, buffer->session, slot, 0);
    if (buffer->address) {
        publish(device, slot, 0, 0);
        give_back(device, buffer->bank, buffer->address);
    }
    if (buffer->is_owned)
        free(buffer->host);
    *buffer = (struct device_buffer){.tenant = buffer->tenant};
}

int memory_release(struct session *session, uint32_t handle)
{
    struct device *device = session->device;
    pthread_mutex_lock(&device->lock);
    struct device_buffer *buffer = find(session, handle);
    if (buffer)
        release(device, (uint32_t)(buffer - device->buffers));
    pthread_mutex_unlock(&device->lock);
    return buffer ? 0 : -ENOENT;
}

void memory_release_all(struct session *session)
{
    struct device *device = session->device;
    pthread_mutex_lock(&device->lock);
    for (uint32_t slot = 0; slot < CARD_BUFFERS_MAX; slot++) {
        if (device->buffers[slot].session == session)
            release(device, slot);
    }
    pthread_mutex_unlock(&device->lock);
}

int memory_get(struct session *session, uint32_t handle, struct device_buffer *out)
{
    pthread_mutex_lock(&session->device->lock);
    const struct device_buffer *buffer = find(session, handle);
    if (buffer)
        *out = *buffer;
    pthread_mutex_unlock(&session->device->lock);
    return buffer ? 0 : -ENOENT;
}

/* ---- transfers ---- */

static int is_inside(const struct device_buffer *buffer, uint64_t size_bytes, uint64_t offset)
{
    return offset <= buffer->size_bytes && size_bytes <= buffer->size_bytes - offset;
}

int memory_sync(struct session *session, uint32_t handle, int to_device, uint64_t size_bytes, uint64_t offset)
{
    struct device *device = session->device;
    struct device_buffer buffer;
    const int rc = memory_get(session, handle, &buffer);
    if (rc != 0)
        return rc;
    if (!buffer.address || !buffer.host || !is_inside(&buffer, size_bytes, offset))
        return -EINVAL;
    device_look(device);
    if (atomic_load_explicit(&device->card->lost, memory_order_acquire))
        return -EIO;
    if (buffer.is_in_place)
        return 0;
    const struct latency *latency = &device->card->latency;
    const uint64_t until =
        latency->is_on ? latency_now_ns() + latency->sync_ns + size_bytes * 1000 / latency->sync_mbps : 0;
    uint8_t *card = at_address(device, buffer.bank, buffer.address) + offset;
    if (to_device)
        memcpy(card, buffer.host + offset, size_bytes);
    else
        memcpy(buffer.host + offset, card, size_bytes);
    if (until)
        latency_until(until);
    return 0;
}

int memory_copy(struct session *session, uint32_t to, uint32_t from, uint64_t size_bytes, uint64_t to_offset,
                uint64_t from_offset)
{
    struct device *device = session->device;
    struct device_buffer into, out_of;
    if (memory_get(session, to, &into) != 0 || memory_get(session, from, &out_of) != 0)
        return -ENOENT;
    if (!into.address || !out_of.address || !is_inside(&into, size_bytes, to_offset) ||
        !is_inside(&out_of, size_bytes, from_offset))
        return -EINVAL;
    if (atomic_load_explicit(&device->card->lost, memory_order_acquire))
        return -EIO;
    memmove(at_address(device, into.bank, into.address) + to_offset,
            at_address(device, out_of.bank, out_of.address) + from_offset, size_bytes);
    return 0;
}
