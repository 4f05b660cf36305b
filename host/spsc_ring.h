/* Bounded single-producer single-consumer ring of fixed-size records, lock-free, wait-free on both sides.
 *
 * Capacity is a power of two. Producer and consumer indexes lie on separate cache lines, each beside a cached
 * copy of the peer's, so that an uncontended push or pop touches one shared line only when the cache runs
 * out. */
#ifndef SPSC_RING_H
#define SPSC_RING_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct spsc_ring {
    /* producer's line */
    _Alignas(64) _Atomic uint64_t head; /* next slot to write; release by push, acquired by peek */
    uint64_t tail_seen;
    /* consumer's line */
    _Alignas(64) _Atomic uint64_t tail; /* next slot to read; release by pop, acquired by push */
    uint64_t head_seen;
    /* read-only after init */
    _Alignas(64) uint64_t mask;
    uint32_t record_bytes;
    uint8_t *records;
};

/* n_record: power of two. Returns 0, or -1: not a power of two, more than the address space holds, or out of
 * memory. The struct itself must lie on 64 bytes (_Alignas: aligned_alloc, not malloc). Pages are not
 * touched. */
static inline int spsc_ring_init(struct spsc_ring *ring, uint64_t n_record, uint32_t record_bytes)
{
    if (n_record == 0 || (n_record & (n_record - 1)) != 0 || record_bytes == 0 ||
        n_record > (SIZE_MAX - 63) / record_bytes)
        return -1;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
    ring->tail_seen = ring->head_seen = 0;
    ring->mask = n_record - 1;
    ring->record_bytes = record_bytes;
    ring->records = aligned_alloc(64, (n_record * record_bytes + 63) / 64 * 64);
    return ring->records ? 0 : -1;
}

static inline void spsc_ring_free(struct spsc_ring *ring)
{
    free(ring->records);
    ring->records = NULL;
}

/* Producer: the slot to fill, or NULL when the ring is full. It becomes visible with spsc_ring_push. */
static inline void *spsc_ring_reserve(struct spsc_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head - ring->tail_seen > ring->mask) {
        /* acquire: pairs with the release in spsc_ring_pop; the consumer has finished reading that slot */
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head - ring->tail_seen > ring->mask)
            return NULL;
    }
    return ring->records + (head & ring->mask) * ring->record_bytes;
}

/* Producer: publishes the slot that spsc_ring_reserve returned. */
static inline void spsc_ring_push(struct spsc_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    /* release: the record's bytes are written before the consumer sees the index */
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* Consumer: the oldest record, or NULL when the ring is empty. Stays valid until spsc_ring_pop. */
static inline const void *spsc_ring_peek(struct spsc_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail == ring->head_seen) {
        /* acquire: pairs with the release in spsc_ring_push */
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail == ring->head_seen)
            return NULL;
    }
    return ring->records + (tail & ring->mask) * ring->record_bytes;
}

/* Consumer: gives the slot back. */
static inline void spsc_ring_pop(struct spsc_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    /* release: the slot has been read before the producer may overwrite it */
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
}

/* Records waiting; either side; a snapshot. */
static inline uint64_t spsc_ring_count(const struct spsc_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    return atomic_load_explicit(&ring->head, memory_order_acquire) - tail;
}

#endif
