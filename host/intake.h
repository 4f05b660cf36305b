/* From a frame to ticks: headers, line A or B, MoldUDP64 sequence, market, and which subscribed symbols now
 * want a prediction. The one piece that the appliance and killline features share, so that a model sees in
 * training what it sees in production.
 *
 * A tick is due when a subscribed symbol's trigger has fired by the last message delivered out of one packet:
 * messages of one packet are one exchange event, and a book in the middle of it is nobody's price.
 *
 * No allocation, no clock, no system call after intake_create. One thread. */
#ifndef INTAKE_H
#define INTAKE_H

#include <stdint.h>

#include "../net/moldudp64.h"
#include "../net/packet.h"
#include "features.h"
#include "market.h"
#include "trace.h"

enum intake_trigger { INTAKE_ON_BBO = 0, INTAKE_ON_TRADE = 1, INTAKE_ON_BOOK = 2 };

struct intake_group { /* multicast group and UDP port of one line; 0: any */
    uint32_t ip;      /* host order */
    uint16_t port;
};

struct intake_config {
    struct intake_group line[MOLD_N_LINE]; /* neither set: the first with MoldUDP64 is A, the second B */
    int verify_checksum;
    uint64_t gap_wait; /* in arrival time units */
    enum intake_trigger trigger;
    const char (*symbols)[9]; /* NUL-terminated names, copied; NULL: all, as they come, up to
                                 KL_N_STREAM_MAX */
    uint32_t n_symbol;
    struct market_config market;
};

struct intake_tick {
    uint16_t locate, stream;
    uint8_t reliable;    /* market_reliable */
    uint8_t trading;     /* market_trading */
    uint8_t restarted;   /* its features were reset since the last tick (gap, halt, new session): what a model
                            remembers of the stream is to go, too */
    uint64_t seq_no;     /* feed sequence number of the last message */
    uint64_t feed_ts_ns; /* its exchange time */
    uint64_t arrival;    /* of the packet that brought it */
    struct book_bbo bbo;
};

struct intake_handler {
    void (*tick)(void *ctx, const struct intake_tick *tick);
    /* Before the tick of that message; may be NULL. seq_no: feed sequence number. event: what it did. */
    void (*message)(void *ctx, uint64_t seq_no, const struct market_event *event);
    void (*gap)(void *ctx, uint64_t first, uint64_t count, uint64_t now);
    void (*trading)(void *ctx, uint16_t locate, int trading, uint64_t ts_ns);
    void (*session_end)(void *ctx, uint64_t next_seq);
    void (*streams_full)(void *ctx, uint16_t locate); /* once per symbol that found no stream */
    void *ctx;
};

struct intake_counters {
    uint64_t frames;
    uint64_t packet_status[8]; /* by -enum packet_status; [0]: parsed */
    uint64_t filtered;         /* UDP, but of no configured group and port */
};

struct intake;

struct intake *intake_create(const struct intake_config *config, const struct intake_handler *handler);
void intake_free(struct intake *intake);
/* Marks the stages of decode and book from now on; NULL: none, as after intake_create. trace must live as
 * long as intake. */
void intake_set_trace(struct intake *intake, struct trace *trace);

/* One frame; arrival in any unit, not going backwards. */
void intake_frame(struct intake *intake, const uint8_t *frame, uint32_t len, uint64_t arrival);
/* Time passes without a frame; returns when to call again (UINT64_MAX: no need). */
uint64_t intake_poll(struct intake *intake, uint64_t now);
void intake_flush(struct intake *intake, uint64_t now);

const struct intake_counters *intake_counters(const struct intake *intake);
const struct mold_counters *intake_mold(const struct intake *intake);
const struct market *intake_market(const struct intake *intake);
struct features *intake_features(struct intake *intake);

#endif
