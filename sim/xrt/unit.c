#include "unit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit_self.h"

int unit_kernel_open(int fd, const char *build, const char *symbol, struct unit_kernel *out,
                     char error[FAULT_ERROR_CHARS])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    out->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!out->library) {
        snprintf(error, FAULT_ERROR_CHARS, "the kernel in the xclbin does not load: %s", dlerror());
        return -1;
    }
    out->build = (const struct kl_build *)dlsym(out->library, symbol);
    if (!out->build)
        snprintf(error, FAULT_ERROR_CHARS, "the kernel in the xclbin has no symbol %s", symbol);
    else if (strcmp(out->build->name, build) != 0)
        snprintf(error, FAULT_ERROR_CHARS, "the kernel in the xclbin is build %s, not %s", out->build->name,
                 build);
    else
        return 0;
    unit_kernel_close(out);
    return -1;
}

void unit_kernel_close(struct unit_kernel *kernel)
{
    if (kernel->library)
        dlclose(kernel->library);
    *kernel = (struct unit_kernel){0};
}

struct unit *unit_open(struct card *card, uint32_t index, uint8_t *memory, const struct kl_build *build,
                       struct control_device *counters, char error[FAULT_ERROR_CHARS])
{
    struct unit *unit = (struct unit *)aligned_alloc(64, (sizeof *unit + 63) & ~(size_t)63);
    struct kl_unit *kernel = (struct kl_unit *)aligned_alloc(64, build->unit_size_bytes());
    if (!unit || !kernel) {
        free(unit);
        free(kernel);
        snprintf(error, FAULT_ERROR_CHARS, "out of memory for unit %u (%zu bytes)", index,
                 build->unit_size_bytes());
        return NULL;
    }
    memset(unit, 0, sizeof *unit);
    build->init(kernel, 0, 1);
    unit->card = card;
    unit->shared = &card->units[index];
    unit->memory = memory;
    unit->build = build;
    unit->kernel = kernel;
    unit->reg = build->registers(kernel);
    unit->counters = counters;
    unit->index = index;
    for (uint32_t i = 0; i < KL_N_REG; i++)
        atomic_store_explicit(&unit->shared->map[KL_MAP_REG / 4 + i], unit->reg[i], memory_order_relaxed);
    return unit;
}

void unit_close(struct unit *unit)
{
    if (!unit)
        return;
    free(unit->kernel);
    free(unit);
}

/* ---- memory ---- */

uint8_t *unit_resolve(struct unit *unit, enum kl_argument argument, uint64_t address, uint64_t size_bytes)
{
    struct unit_place *place = &unit->places[argument - KL_ARG_IMAGE];
    if (size_bytes <= place->room_bytes && place->address == address &&
        place->generation == atomic_load_explicit(&unit->card->memory_generation, memory_order_acquire))
        return place->at;
    const int32_t bank = unit->shared->bank[argument];
    place->room_bytes = 0;
    if (bank < 0 || address % 8 != 0)
        return NULL;
    place->address = address;
    place->room_bytes = card_room_bytes(unit->card, (uint32_t)bank, address, &place->generation);
    if (place->room_bytes == 0)
        return NULL;
    const struct card_bank *in = &unit->card->banks[bank];
    place->at = unit->memory + in->offset + (address - in->base);
    return size_bytes <= place->room_bytes ? place->at : NULL;
}

void unit_bad_access(struct unit *unit, enum kl_argument argument, uint64_t address, uint64_t size_bytes)
{
    static const char *const names[UNIT_N_POINTER] = {"image", "request", "result", "state"};
    if (atomic_fetch_add_explicit(&unit->counters->bad_access, 1, memory_order_relaxed) == 0)
        fprintf(stderr,
                "killline-sim: device %u unit %u: argument %s leads to 0x%llx, and %llu bytes from there do "
                "not lie "
                "8-byte aligned in one live buffer of the bank that it is connected to\n",
                unit->card->device, unit->index, names[argument - KL_ARG_IMAGE], (unsigned long long)address,
                (unsigned long long)size_bytes);
}

/* ---- the words ---- */

static const uint8_t host_words[] = {KL_REG_REQUEST_TAIL, KL_REG_RESULT_HEAD,     KL_REG_CONFIG,
                                     KL_REG_LOAD_SLOT,    KL_REG_LOAD_SIZE_BYTES, KL_REG_LOAD_DOORBELL};

void unit_words_in(struct unit *unit)
{
    for (uint32_t i = 0; i < sizeof host_words; i++)
        unit->reg[host_words[i]] =
            atomic_load_explicit(&unit->shared->map[KL_MAP_REG / 4 + host_words[i]], memory_order_acquire);
}

static void word_out(struct unit *unit, uint32_t word, memory_order order)
{
    atomic_store_explicit(&unit->shared->map[KL_MAP_REG / 4 + word], unit->reg[word], order);
}

enum {
    INFO_CHANGES = offsetof(struct kl_info, image_hash) / 4,
    INFO_CYCLES = offsetof(struct kl_info, cycles) / 4
};
static_assert(INFO_CHANGES < INFO_CYCLES, "the words between change, and the two of cycles");

void unit_words_out(struct unit *unit)
{
    for (uint32_t i = INFO_CHANGES; i < INFO_CYCLES + 2; i++)
        word_out(unit, KL_REG_INFO + i, memory_order_relaxed);
    word_out(unit, KL_REG_REQUEST_HEAD, memory_order_relaxed);
    word_out(unit, KL_REG_BAD_DOORBELLS, memory_order_relaxed);
    word_out(unit, KL_REG_LOAD_STATUS, memory_order_relaxed);
    /* What these two announce is there. */
    word_out(unit, KL_REG_LOAD_DONE, memory_order_release);
    word_out(unit, KL_REG_RESULT_TAIL, memory_order_release);
}

uint64_t unit_cycles(const struct unit *unit)
{
    return unit->reg[KL_REG_INFO + INFO_CYCLES] | (uint64_t)unit->reg[KL_REG_INFO + INFO_CYCLES + 1] << 32;
}

/* ---- passes ---- */

static uint32_t queued_run(struct unit *unit, uint32_t posted)
{
    const uint32_t state = unit_command(unit, unit->shared->run_words);
    if (atomic_load_explicit(&unit->shared->state, memory_order_relaxed) == CARD_UNIT_HUNG ||
        atomic_load_explicit(&unit->card->lost, memory_order_relaxed))
        return UNIT_WORKED; /* it never ends */
    atomic_fetch_add_explicit(&unit->counters->runs, 1, memory_order_relaxed);
    atomic_store_explicit(&unit->shared->run_state, state, memory_order_relaxed);
    atomic_store_explicit(&unit->shared->run_ended, posted, memory_order_release);
    return UNIT_WORKED | UNIT_RUN_ENDED;
}

/* ap_start by register. */
static uint32_t started(struct unit *unit, uint32_t start)
{
    uint32_t words[CARD_N_ARGUMENT_WORD];
    /* Before the arguments: a host that takes auto_restart away changes them after ap_idle only. */
    const uint32_t auto_restart = atomic_load_explicit(&unit->shared->auto_restart, memory_order_acquire);
    for (uint32_t i = 0; i < CARD_N_ARGUMENT_WORD; i++)
        words[i] = atomic_load_explicit(&unit->shared->map[i], memory_order_relaxed);
    if (auto_restart && words[KL_MAP_COMMAND / 4] == KL_COMMAND_SERVICE)
        return unit_round(unit);
    const uint32_t state = unit_command(unit, words);
    if (state == CARD_RUN_ERROR)
        atomic_store_explicit(&unit->shared->state, CARD_UNIT_ERROR, memory_order_relaxed);
    else if (!auto_restart)
        atomic_store_explicit(&unit->shared->ended, start, memory_order_release);
    return UNIT_WORKED;
}

uint32_t unit_pass(struct unit *unit)
{
    struct card_unit *shared = unit->shared;
    if (atomic_load_explicit(&shared->state, memory_order_relaxed) != CARD_UNIT_RUNS ||
        atomic_load_explicit(&unit->card->lost, memory_order_relaxed))
        return 0;
    if (atomic_load_explicit(&unit->card->faults.n, memory_order_relaxed)) {
        struct fault_fired fired;
        fault_now(&unit->card->faults, unit->index, &fired);
        if (fired.kinds && !unit_break(unit, &fired))
            return 0;
    }
    const uint32_t posted = atomic_load_explicit(&shared->run_posted, memory_order_acquire);
    if (posted != atomic_load_explicit(&shared->run_ended, memory_order_relaxed))
        return queued_run(unit, posted);
    const uint32_t start = atomic_load_explicit(&shared->start, memory_order_acquire);
    if (start != atomic_load_explicit(&shared->ended, memory_order_relaxed))
        return started(unit, start);
    return 0;
}

enum { BEATS_PER_ACCESS = 64 };

uint32_t unit_access(struct unit *unit)
{
    uint32_t did = 0;
    for (uint32_t beats = 0; beats < BEATS_PER_ACCESS;) {
        const uint32_t pass = unit_pass(unit);
        did |= pass;
        if (!(pass & UNIT_WORKED) || (did & UNIT_ANSWERED && !(pass & UNIT_WAITING)))
            break;
        beats += !!(pass & UNIT_LOADING);
    }
    return did & UNIT_RUN_ENDED;
}

/* Spins on the doorbell for a while before it sleeps: waking a thread takes longer than a step. Not for long:
 * the host may be waiting for this very processor. (Not sched_yield: Linux 6.6 and later let a thread that
 * yields often starve.) */
enum { SPIN_NS = 20000, SPINS_PER_LOOK = 64 };

static int spin(struct card_unit *shared, uint32_t seen)
{
    const uint64_t until = latency_now_ns() + SPIN_NS;
    do {
        for (uint32_t i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load_explicit(&shared->doorbell, memory_order_relaxed) != seen)
                return 1;
            __builtin_ia32_pause();
        }
    } while (latency_now_ns() < until);
    return 0;
}

void unit_loop(struct unit *unit, void (*run_ended)(void *context, uint32_t index), void *context)
{
    struct card_unit *shared = unit->shared;
    while (!atomic_load_explicit(&unit->card->stop, memory_order_acquire)) {
        const uint32_t seen = atomic_load_explicit(&shared->doorbell, memory_order_acquire);
        const uint32_t pass = unit_pass(unit);
        if (pass & UNIT_RUN_ENDED)
            run_ended(context, unit->index);
        if (pass & UNIT_WORKED || spin(shared, seen))
            continue;
        atomic_store_explicit(&shared->sleeping, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&shared->doorbell, memory_order_seq_cst) == seen &&
            !atomic_load_explicit(&unit->card->stop, memory_order_seq_cst))
            card_futex_wait(&shared->doorbell, seen, 0);
        atomic_store_explicit(&shared->sleeping, 0, memory_order_seq_cst);
    }
}
