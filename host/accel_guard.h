/* Cards that may fail, behind accel.h: the same answers whatever happens to a card.
 *
 * Streams are spread over n cards (stream modulo n). Every card has a mirror, the cpu backend, which steps
 * the same requests off the critical path and so always holds the state of every stream, to the bit. When a
 * card fails - it refuses an access, is silent, answers out of order or damaged, or differs from its mirror -
 * its streams, and only its, go on on the mirror: what was outstanding is stepped there, so no tick is
 * missing in any state, and the answers that the caller waits for come from there. In the background the card
 * is reset and loaded anew. Then it shadows the mirror: n_probe made-up steps are compared with those of a
 * second cpu backend, every stream's state is restored from the mirror, live requests follow and are compared
 * with the mirror's answers. When all of it was equal, and nothing is left to follow, it serves again,
 * between two ticks; that needs no traffic. One difference, and it starts from the reset.
 *
 * submit, poll, load_*, save, restore, warm, info and accel_guard_* are the poll loop's. With a thread per
 * card mirroring and recovery are that thread's; inline they are done in poll's idle moments, so that a
 * replay is the same every time. In both cases a recovery moves on, and RESET, PROBE_FAILED and RECOVERED
 * are told, only in polls while nothing is outstanding: make some, on a quiet market too.
 *
 * What is compared: status, class, logits, model and prepare_cycles, and kernel_cycles, but not on a stream
 * that ever asked for KL_REQUEST_PREPARE: there the device chooses when it prepares. wait_cycles are the
 * device's alone. An answer that is LATE moved no state, and the mirror does not follow it.
 *
 * A device resets only as a whole: a unit that hangs comes back when the others of its device are closed too.
 *
 * An image that was loaded has to stay where it is until close: a card that comes back is loaded from it.
 * close takes up to two seconds per card whose thread hangs in a call of the device's; that card is left
 * behind open. */
#ifndef ACCEL_GUARD_H
#define ACCEL_GUARD_H

#include "accel.h"

enum { ACCEL_GUARD_CARDS_MAX = 8 };

struct accel_guard_options {
    struct accel *const *cards; /* open, no model loaded; the guard's from now on, also when open fails */
    uint32_t n_card;
    struct accel_cpu_options cpu; /* of the mirrors; build: the cards' */
    uint32_t check_every; /* 1: every answer of a card is compared with the mirror's, which costs next to
                             nothing, since it makes every step anyway; n: every n-th step's; 0: none. An
                             error status always is, before poll gives it */
    int prove;        /* 1: every answer is compared before poll gives it: nothing that the mirror does not
                         confirm is ever given, for the mirror's time on the critical path */
    int is_inline;    /* 1: no threads */
    uint32_t n_probe; /* made-up steps, all equal, before a card serves again; at least 1 */
    /* Between reset attempts, after each that failed or did not last twice as long, up to 64 times that: TSC
     * cycles. Inline, where time is not the same every time, 64 idle polls stand for it. The first one comes
     * at once. */
    uint64_t retry_cycles;
};

enum accel_guard_code {
    ACCEL_GUARD_FAILOVER = 1, /* card: its streams are the mirror's now. reason, took_cycles */
    ACCEL_GUARD_QUARANTINE,   /* the same, because an answer differed from the mirror's */
    ACCEL_GUARD_RESET,        /* a reset attempt has ended. reason 0: it worked; REFUSED: it did not */
    ACCEL_GUARD_PROBE_FAILED, /* while it was loaded or shadowed: reset again. reason; count: equal before */
    ACCEL_GUARD_RECOVERED,    /* serves again. count: answers that were compared and equal */
    ACCEL_GUARD_STATE_LOST,   /* the mirror was too far behind: stream's state is gone, its requests answer
                                 KL_E_STATE until it is reset */
};

enum accel_guard_reason {
    ACCEL_GUARD_OK = 0,
    ACCEL_GUARD_REFUSED = 1,  /* ACCEL_FAILED */
    ACCEL_GUARD_SILENT = 2,   /* accel_guard_give_up */
    ACCEL_GUARD_SEQUENCE = 3, /* an answer that is not the next one */
    ACCEL_GUARD_DAMAGED = 4,  /* check, ABI version, model or a range is wrong */
    ACCEL_GUARD_DIFFERS = 5,  /* from the mirror: class, logits, status or cycles */
    ACCEL_GUARD_STATUS = 6,   /* an error status that the mirror does not give */
    ACCEL_GUARD_LOAD = 7,     /* a model does not load */
};
const char *accel_guard_reason_name(enum accel_guard_reason reason);

struct accel_guard_event {
    uint32_t code; /* enum accel_guard_code */
    uint32_t card;
    uint32_t reason; /* enum accel_guard_reason */
    uint32_t stream; /* that showed it */
    uint32_t seq_no; /* of the request that showed it */
    uint32_t
        last_good_seq_no; /* QUARANTINE: the card's last answer that was compared and equal before; 0: none */
    uint64_t took_cycles; /* FAILOVER, QUARANTINE: TSC, from the decision until the mirror had all states */
    uint64_t count;
};

enum accel_guard_phase { ACCEL_GUARD_SERVING, ACCEL_GUARD_OUT, ACCEL_GUARD_SHADOWING };

struct accel_guard_stats { /* of one card */
    enum accel_guard_phase phase;
    uint64_t answers;        /* that it gave and that were passed on */
    uint64_t mirror_answers; /* that its mirror gave instead */
    uint64_t compared, differed;
    uint64_t failovers, quarantines, resets, resets_failed, recoveries, states_lost;
    uint64_t gone_stale; /* streams that the mirror fell behind with: neither stepped there nor compared until
                            their next reset. The mirror's thread needs a core of its own */
};

/* NULL with a message: out of memory, a thread that does not start, cards of other builds. */
struct accel *accel_guard_open(const struct accel_guard_options *options, char error[ACCEL_ERROR_CHARS]);

/* The caller's time for the oldest outstanding request is up. Its card is silent: failover. poll gives the
 * mirror's answers then, at once. 0, or -1: nothing is outstanding on a card. */
int accel_guard_give_up(struct accel *guard);

/* 1: the answer that poll gave last was the mirror's. */
int accel_guard_mirrored(const struct accel *guard);

/* The next piece of news: 1, or 0: none. News beyond 64 that nobody fetched is dropped, the oldest kept. */
int accel_guard_event(struct accel *guard, struct accel_guard_event *event);

uint32_t accel_guard_n_card(const struct accel *guard);
void accel_guard_stats(const struct accel *guard, uint32_t card, struct accel_guard_stats *stats);

#endif
