/* Inside the execution side: shared by unit*.c. */
#ifndef UNIT_SELF_H
#define UNIT_SELF_H

#include "unit.h"

/* Where a pointer argument leads, as long as it and the buffers stay as they are. */
struct unit_place {
    uint64_t address, room_bytes; /* room_bytes 0: nowhere that was looked up */
    uint8_t *at;
    uint32_t generation;
};

enum { UNIT_N_POINTER = KL_ARG_STATE - KL_ARG_IMAGE + 1 };

struct unit {
    struct card *card;
    struct card_unit *shared;
    struct control_device *counters;
    uint8_t *memory;
    const struct kl_build *build;
    struct kl_unit *kernel;
    uint32_t *reg; /* the kernel's register block */
    uint32_t index;

    uint32_t fetched; /* requests copied in, counted like KL_REG_REQUEST_TAIL */
    uint32_t load_seen, load_number, load_bytes;
    int is_loading, is_load_refused;
    int has_last;
    uint64_t busy_until_ns;
    struct kl_result last; /* first answer of the last batch in run mode */
    struct unit_place places[UNIT_N_POINTER];

    /* The rings in host memory as the kernel sees them: copied word by word (the host may be another thread),
     * and where answers are tampered with on their way. */
    struct kl_request requests[KL_QUEUE_DEPTH];
    struct kl_result results[KL_QUEUE_DEPTH];
};

/* The register word of the block: the host's side of it. */
static inline uint32_t unit_shared_reg(const struct unit *unit, uint32_t word)
{
    return atomic_load_explicit(&unit->shared->map[KL_MAP_REG / 4 + word], memory_order_relaxed);
}

/* size_bytes of memory behind a pointer argument, or NULL: the address is not 8-byte aligned, or not in the
 * bank that the argument is connected to, or the bytes are not all of one live buffer. */
uint8_t *unit_resolve(struct unit *unit, enum kl_argument argument, uint64_t address, uint64_t size_bytes);

/* The unit was sent where it has no business: counted, said once. */
void unit_bad_access(struct unit *unit, enum kl_argument argument, uint64_t address, uint64_t size_bytes);

/* Faults before a request or run: hang, crash, vanish and flipped weights happen here. 1: it goes on; 0: the
 * unit or the card is out of order now. */
int unit_break(struct unit *unit, const struct fault_fired *fired);

/* The host's words into the kernel's block, and the kernel's out. */
void unit_words_in(struct unit *unit);
void unit_words_out(struct unit *unit);

uint64_t unit_cycles(const struct unit *unit);

/* One round of doorbell mode. Returns as unit_pass. */
uint32_t unit_round(struct unit *unit);

/* One start with these arguments (words as in the map). Returns enum card_run_state. */
uint32_t unit_command(struct unit *unit, const uint32_t words[CARD_N_ARGUMENT_WORD]);

#endif
