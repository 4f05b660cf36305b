/* MoldUDP64 1.0 receiver: puts the messages of two lines (A and B) into one gapless sequence.
 *
 * Arbitration is per message: the first copy of a sequence number wins, whichever line brings it and however
 * the lines batch. A hole is waited for (gap_wait) while later messages are kept; after that it is declared
 * lost, reported, and the sequence goes on behind it.
 * Source: MoldUDP64 protocol specification 1.0; the arbitration rule is ours (the specification has none).
 *
 * No allocation after mold_create, no system call, no clock: time is the caller's argument, in any unit, used
 * consistently. One thread. */
#ifndef MOLDUDP64_H
#define MOLDUDP64_H

#include <stddef.h>
#include <stdint.h>

enum { MOLD_HEADER_BYTES = 20, MOLD_SESSION_BYTES = 10, MOLD_COUNT_END = 0xffff };

enum mold_line { MOLD_LINE_A = 0, MOLD_LINE_B = 1, MOLD_N_LINE = 2 };

struct mold_config {
    uint32_t n_store;     /* power of two: messages kept behind a hole; more means the hole is given up at once */
    uint64_t gap_wait;    /* time units from the moment a hole is seen until it is declared lost */
    uint8_t session[MOLD_SESSION_BYTES]; /* all zero: take the first valid packet's */
    uint64_t first_seq;   /* first message wanted; 0: the first one seen (mid-session join) */
};

struct mold_handler {
    /* One message, in sequence. msg: len bytes, valid during the call. arrival: of the packet that brought it
     * (kept messages keep their own). last_of_packet: no further message of this packet follows in this call. */
    void (*message)(void *ctx, uint64_t seq, const uint8_t *msg, uint16_t len, uint64_t arrival, int last_of_packet);
    /* [first, first + count) are lost on both lines. Called before the next message behind the hole. */
    void (*gap)(void *ctx, uint64_t first, uint64_t count, uint64_t now);
    /* End of session seen and everything before it delivered or declared lost. */
    void (*end)(void *ctx, uint64_t next_seq);
    void *ctx;
};

struct mold_counters {
    uint64_t packets[MOLD_N_LINE];
    uint64_t messages;         /* delivered */
    uint64_t duplicates;       /* copies that came later than the first */
    uint64_t first_wins[MOLD_N_LINE];
    uint64_t gaps[MOLD_N_LINE];  /* holes seen in one line's own sequence */
    uint64_t gaps_lost;        /* holes declared lost */
    uint64_t messages_lost;
    uint64_t recovered;        /* messages of a hole filled by the other line, or late, before it was declared lost */
    uint64_t heartbeats;
    uint64_t end_of_session;
    uint64_t foreign_session;  /* dropped packets */
    uint64_t malformed;        /* dropped packets: shorter than 20 bytes, count beyond the payload, sequence overflow */
    uint64_t trailing_bytes;   /* packets with bytes behind the last block (tolerated) */
    uint64_t store_overflow;   /* holes given up because n_store was full */
};

struct mold;

/* NULL: out of memory or a config value out of range (n_store not a power of two). */
struct mold *mold_create(const struct mold_config *config, const struct mold_handler *handler);
void mold_free(struct mold *mold);

/* One UDP payload. A malformed packet is dropped whole: nothing of it is delivered. Returns 0, or -1 when it
 * was dropped (counted). */
int mold_packet(struct mold *mold, enum mold_line line, const uint8_t *payload, size_t len, uint64_t now);

/* Lets time pass: declares a hole lost whose wait is over. Call whenever the receive ring is empty.
 * Returns the time at which it wants to be called next, UINT64_MAX when no hole is open. */
uint64_t mold_poll(struct mold *mold, uint64_t now);

/* End of input: open holes are declared lost and what is kept behind them is delivered. */
void mold_flush(struct mold *mold, uint64_t now);

const struct mold_counters *mold_counters(const struct mold *mold);
/* Next sequence number that would be delivered; 0 before the first packet. */
uint64_t mold_expected(const struct mold *mold);

#endif
