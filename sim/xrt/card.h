/* A software card as its two sides see it: the host's, behind XRT's calls, and the execution side, which runs
 * the kernel. They share this and the card's memory, nothing else, so that the execution side may be the same
 * thread, another one, or another process.
 *
 * Everything that both sides touch while units run is atomic. A word has one writer, the side named at it; a
 * value announced by another word is stored before it (release) and read behind it (acquire). */
#ifndef CARD_H
#define CARD_H

#include <stdatomic.h>
#include <stdint.h>

#include "../../hls/kl_abi.h"
#include "../../host/xclbin.h"
#include "fault.h"
#include "latency.h"

enum {
    CARD_BUFFERS_MAX = 4096,
    CARD_N_ARGUMENT_WORD = KL_MAP_STATE / 4 + 3, /* control and arguments */
    CARD_N_MAP_WORD = KL_MAP_BYTES / 4,
};

/* Of a bank that the xclbin uses; fixed while the xclbin is loaded. */
struct card_bank {
    uint64_t base, size_bytes;
    uint64_t offset; /* in the card's memory; the bank's bytes lie there in one piece */
    uint32_t is_used, is_host;
};

/* A live buffer of a bank; size_bytes 0: free. Changes between two steps of memory_generation. */
struct card_buffer {
    _Atomic uint64_t address, size_bytes;
};

enum card_unit_state {
    CARD_UNIT_RUNS = 0,
    CARD_UNIT_HUNG = 1,  /* by a fault: does nothing any more, says nothing */
    CARD_UNIT_ERROR = 2, /* it was sent to an address where it has no business */
};

enum card_run_state { CARD_RUN_DONE = 0, CARD_RUN_ERROR = 1 };

struct card_unit {
    /* The host's. */
    _Alignas(64) _Atomic uint32_t doorbell; /* futex: moves when there may be something to do */
    _Atomic uint32_t start;                 /* ap_start was written so often */
    _Atomic uint32_t auto_restart;
    _Atomic uint32_t run_posted; /* queued runs given to the unit; one at a time */
    _Atomic uint64_t arrive_ns;  /* latency model: when the last register write reaches the card */
    uint32_t run_words[CARD_N_ARGUMENT_WORD];
    int32_t bank[XCLBIN_N_ARG]; /* that an argument is connected to; -1: none. Fixed like the banks */

    /* The execution side's. */
    _Alignas(64) _Atomic uint32_t ended; /* becomes start when the unit is idle again */
    _Atomic uint32_t run_ended;
    _Atomic uint32_t run_state; /* enum card_run_state of the run that ended */
    _Atomic uint32_t state;     /* enum card_unit_state */
    _Atomic uint32_t sleeping;  /* wake it by the futex */
    _Atomic uint32_t is_loading;

    /* The AXI-Lite side, by words (enum kl_map): arguments and the block's host words are the host's, all
     * others the execution side's. */
    _Alignas(64) _Atomic uint32_t map[CARD_N_MAP_WORD];
};

/* What a child process checks before it believes the rest. */
#define CARD_MAGIC 0x31304452414c4bu

struct card {
    uint64_t magic;
    uint64_t size_bytes; /* sizeof(struct card) */
    /* Fixed while the xclbin is loaded. */
    uint32_t device, n_unit, n_bank;
    uint32_t is_child; /* the execution side may die */
    uint64_t memory_bytes;
    char build[12], symbol[28];
    struct latency latency;
    struct card_bank banks[XCLBIN_BANKS_MAX];

    _Alignas(64) _Atomic uint32_t lost; /* the card does not answer any more */
    _Atomic uint32_t stop;              /* the execution side shall end */
    _Atomic uint32_t is_ready;          /* a child's units are there */
    _Atomic uint32_t memory_generation; /* odd: the buffers are being changed */

    struct fault_table faults;
    struct card_buffer buffers[CARD_BUFFERS_MAX];
    _Atomic uint32_t n_buffer; /* those beyond were never used */
    struct card_unit units[XCLBIN_UNITS_MAX];
};

/* How far from address on lies in one live buffer of the bank; 0: not in any. *generation: of the buffers
 * that it was true for. Any side. */
uint64_t card_room_bytes(const struct card *card, uint32_t bank, uint64_t address, uint32_t *generation);

/* Wakes and waits on a shared word. seen: value that is waited on to change; timeout_ns 0: without end.
 * Spurious returns are the caller's to see. */
void card_futex_wake(_Atomic uint32_t *word);
void card_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns);

/* Host side: something has changed for the unit. */
void card_ring(struct card_unit *unit);

#endif
