/* The exchange's publisher: ITCH messages in, MoldUDP64 datagrams of two lines out, as one nanosecond pcap
 * merged by time, and the same messages as a BinaryFILE day.
 *
 * Batching is a publisher's: one sender that is busy for a while with each datagram; what comes meanwhile
 * goes together into the next one, up to 1,472 bytes. Both lines carry the same datagrams. Line B is behind A
 * by the lag and a jitter; now and then a datagram of A is held up, and B is first. Each line stays in order.
 * Loss is made on request: the datagram is counted and never written. Writing is in bounded memory; the first
 * write error is kept and returned by feed_close.
 * Source: MoldUDP64 1.0. One thread. */
#ifndef FEED_H
#define FEED_H

#include <stddef.h>
#include <stdint.h>

enum { FEED_LINE_A = 1, FEED_LINE_B = 2, FEED_ERROR_CHARS = 256, FEED_LAG_NS_MAX = 5000000 };

struct feed_options {
    const char *pcap_path;
    const char *itch_path; /* NULL: none */
    uint64_t seed;
    uint64_t midnight_ns; /* of the trading day in US Eastern, as ns since the epoch */
    uint32_t lag_ns;      /* of line B, <= FEED_LAG_NS_MAX */
    uint16_t vlan_id;     /* 0: untagged */
};

/* Consecutive messages that one line (or both: FEED_LINE_A | FEED_LINE_B) did not carry. */
struct feed_loss {
    unsigned lines;
    uint64_t first_seq, count;
};

struct feed_totals {
    uint64_t messages, pcap_bytes, itch_bytes;
    uint64_t packets[2]; /* written, line A and B; heartbeats and ends of session included */
    uint64_t heartbeats; /* per line */
    uint64_t b_first;    /* datagrams that line B brought before A */
    uint64_t packet_messages_max;
};

struct feed;

/* NULL with a message (file, reason, remedy). */
struct feed *feed_open(const struct feed_options *options, char error[FEED_ERROR_CHARS]);

/* Next message; ts_ns since midnight Eastern, never decreasing. */
void feed_message(struct feed *feed, uint64_t ts_ns, const uint8_t *msg, uint16_t len);

/* The next n_packets data packets are not carried by lines. Returns -1, and does nothing, while a loss is
 * going on or has just ended: try again some packets later. */
int feed_lose(struct feed *feed, unsigned lines, uint32_t n_packets);

/* Losses so far, in order; the last may still be going on. */
const struct feed_loss *feed_losses(const struct feed *feed, size_t *n);
const struct feed_totals *feed_totals(const struct feed *feed);

/* 1 after a write error: go on to feed_close. */
int feed_failed(const struct feed *feed);

/* n end-of-session packets, a second apart, then everything to disk. */
void feed_end_session(struct feed *feed, uint64_t ts_ns, unsigned n);

/* Frees. 0, or -1 with a message; a failed regular file is removed, half a day is not left behind. */
int feed_close(struct feed *feed, char error[FEED_ERROR_CHARS]);

#endif
