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
/* A sequence number further ahead than this (ten times the messages of a busy day) is damage, not loss. */
#define MOLD_JUMP_MAX (UINT64_C(1) << 32)

enum mold_line { MOLD_LINE_A = 0, MOLD_LINE_B = 1, MOLD_N_LINE = 2 };

struct mold_config {
    /* Messages kept behind a hole; power of two, at most 2^24. A message further ahead means that the hole is
     * given up at once. Each has room for 64 bytes; longer ones (to 65,535) take from the others' room, of
     * which there is 128 KiB more: when it is used up, the hole is given up likewise. */
    uint32_t n_store;
    /* Time units from the moment a hole is seen until it is declared lost; 0: at once. */
    uint64_t gap_wait;
    /* All zero: the first valid packet's, and after its end any other. */
    uint8_t session[MOLD_SESSION_BYTES];
    /* First message wanted; 0: the first one seen (mid-session join). Lower ones count as duplicates. A
     * session that follows on another starts at 1. */
    uint64_t first_seq;
};

struct mold_handler {
    /* One message, in sequence. msg: len bytes, valid during the call. arrival: of the packet that brought it
     * (kept messages keep their own). last_of_packet: no further message of the packet that brought it
     * follows. */
    void (*message)(void *ctx, uint64_t seq, const uint8_t *msg, uint16_t len, uint64_t arrival,
                    int last_of_packet);
    /* [first, first + count) are lost on both lines. Called before the next message behind the hole. */
    void (*gap)(void *ctx, uint64_t first, uint64_t count, uint64_t now);
    /* End of session seen and everything before it delivered or declared lost. Once, however often it is
     * sent; once more if the session goes on and ends after all. */
    void (*end)(void *ctx, uint64_t next_seq);
    /* After an end the first packet of another session has come: forget the old one's state. Called before
     * its first message. May be NULL. */
    void (*new_session)(void *ctx, const uint8_t session[MOLD_SESSION_BYTES]);
    void *ctx;
};

struct mold_counters {
    uint64_t packets[MOLD_N_LINE];
    uint64_t messages;   /* delivered */
    uint64_t duplicates; /* copies that came later than the first, or than the loss was declared */
    uint64_t first_wins[MOLD_N_LINE];
    uint64_t gaps[MOLD_N_LINE]; /* holes seen in one line's own sequence */
    uint64_t gaps_lost;         /* holes declared lost */
    uint64_t messages_lost;
    uint64_t recovered; /* of a hole, filled by the other line or late, before it was declared lost */
    uint64_t heartbeats;
    uint64_t end_of_session;
    uint64_t foreign_session; /* dropped packets */
    /* Dropped packets: shorter than 20 bytes, count beyond the payload, sequence overflow, jump above
     * MOLD_JUMP_MAX, an end before what has been sent already. */
    uint64_t malformed;
    uint64_t trailing_bytes; /* packets with bytes behind the last block (tolerated) */
    uint64_t store_overflow; /* holes given up because n_store was full */
};

/* One downstream packet, checked. */
struct mold_packet_header {
    uint64_t seq_no;        /* of the first message; heartbeat and end: the next one to be sent */
    uint32_t n_message;     /* 0 for heartbeat and end */
    uint8_t end;            /* 1: end of session */
    uint32_t bytes;         /* header and blocks; the payload may be longer */
    const uint8_t *session; /* MOLD_SESSION_BYTES bytes in the payload */
};

/* Reads the header of a UDP payload and checks that all its blocks lie inside and their numbers below 2^64.
 * Returns 0, or -1 (malformed: drop the packet whole); *out is written only on success. The blocks (2-byte
 * big-endian length, message) start at MOLD_HEADER_BYTES and can then be walked without further checks. */
int mold_parse(const uint8_t *payload, size_t len, struct mold_packet_header *out);

/* Writes the 20 bytes of a header. count: number of blocks, 0 heartbeat, MOLD_COUNT_END. */
void mold_write_header(uint8_t *payload, const uint8_t session[MOLD_SESSION_BYTES], uint64_t seq_no,
                       uint16_t count);

struct mold;

/* NULL: out of memory or a config value out of range (n_store not a power of two). */
struct mold *mold_create(const struct mold_config *config, const struct mold_handler *handler);
void mold_free(struct mold *mold);

/* One UDP payload, not kept. A malformed packet is dropped whole: nothing of it is delivered. A hole whose
 * wait is over at now is declared lost after the packet, which may fill it. Returns 0, or -1 when it was
 * dropped (counted). Handlers are called from inside and must not call back. */
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
