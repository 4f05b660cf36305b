#include "card.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t room_bytes(const struct card *card, uint64_t address)
{
    const uint32_t n = atomic_load_explicit(&card->n_buffer, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t size = atomic_load_explicit(&card->buffers[i].size_bytes, memory_order_acquire);
        const uint64_t at = address - atomic_load_explicit(&card->buffers[i].address, memory_order_acquire);
        if (at < size)
            return size - at;
    }
    return 0;
}

uint64_t card_room_bytes(const struct card *card, uint32_t bank, uint64_t address, uint32_t *generation)
{
    const struct card_bank *in = &card->banks[bank];
    if (bank >= card->n_bank || !in->is_used || address - in->base >= in->size_bytes) {
        *generation = atomic_load_explicit(&card->memory_generation, memory_order_acquire);
        return 0;
    }
    /* A sequence lock, its loads acquires and its stores releases in the place of fences: the host changes
     * buffers rarely and for some nanoseconds. */
    for (;;) {
        const uint32_t before = atomic_load_explicit(&card->memory_generation, memory_order_acquire);
        const uint64_t room = room_bytes(card, address);
        const uint32_t after = atomic_load_explicit(&card->memory_generation, memory_order_relaxed);
        if (before == after && !(before & 1)) {
            *generation = before;
            return room;
        }
    }
}

void card_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void card_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    const struct timespec limit = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ns ? &limit : NULL, NULL, 0);
}

void card_ring(struct card_unit *unit)
{
    /* Sequentially consistent with the sleeper's store of `sleeping` and its look at the doorbell: one of the
     * two sees the other. */
    atomic_fetch_add_explicit(&unit->doorbell, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&unit->sleeping, memory_order_seq_cst))
        card_futex_wake(&unit->doorbell);
}
