/* Test helper: writes MoldUDP64 packets and records what a receiver delivers as one line of text, such as
 *   "1 2* gap(3,2)@50 5* end(6)"     2* was the last of its packet; @ the time of the declaration.
 * Every message's bytes follow from its number, so that the record also checks them. */
#ifndef MOLD_LOG_H
#define MOLD_LOG_H

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "net/moldudp64.h"

enum { MOLD_LOG_CHARS = 1 << 16, MOLD_LOG_PACKET_BYTES = 1 << 17 };

struct mold_log {
    char text[MOLD_LOG_CHARS];
    size_t n;
    int bad_bytes; /* a message came with another length or other bytes than were sent */
    uint64_t last_arrival;
    /* Length of message seq. */
    uint16_t (*length)(uint64_t seq);
};

static inline void mold_log_add(struct mold_log *log, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log->n += (size_t)vsnprintf(log->text + log->n, sizeof(log->text) - log->n, format, args);
    va_end(args);
    assert(log->n < sizeof(log->text));
}

static inline uint16_t mold_log_length(uint64_t seq)
{
    return (uint16_t)(seq * 7 % 41);
}

static inline uint8_t mold_log_byte(uint64_t seq, size_t i)
{
    return (uint8_t)(seq * 31 + i * 7 + (i >> 8));
}

static inline void mold_log_message(void *ctx, uint64_t seq, const uint8_t *msg, uint16_t len,
                                    uint64_t arrival, int last_of_packet)
{
    struct mold_log *log = ctx;
    log->bad_bytes += len != log->length(seq);
    for (size_t i = 0; i < len; i++)
        log->bad_bytes += msg[i] != mold_log_byte(seq, i);
    log->last_arrival = arrival;
    mold_log_add(log, "%s%llu%s", log->n ? " " : "", (unsigned long long)seq, last_of_packet ? "*" : "");
}

static inline void mold_log_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    struct mold_log *log = ctx;
    mold_log_add(log, "%sgap(%llu,%llu)@%llu", log->n ? " " : "", (unsigned long long)first,
                 (unsigned long long)count, (unsigned long long)now);
}

static inline void mold_log_end(void *ctx, uint64_t next_seq)
{
    struct mold_log *log = ctx;
    mold_log_add(log, "%send(%llu)", log->n ? " " : "", (unsigned long long)next_seq);
}

static inline void mold_log_new_session(void *ctx, const uint8_t session[MOLD_SESSION_BYTES])
{
    struct mold_log *log = ctx;
    mold_log_add(log, "%ssession(%.10s)", log->n ? " " : "", (const char *)session);
}

static inline struct mold_handler mold_log_handler(struct mold_log *log)
{
    if (!log->length)
        log->length = mold_log_length;
    return (struct mold_handler){mold_log_message, mold_log_gap, mold_log_end, mold_log_new_session, log};
}

/* A packet with messages seq .. seq + count - 1; count 0 and MOLD_COUNT_END: without any. Returns its bytes.
 */
static inline size_t mold_log_packet(uint8_t *out, uint16_t (*length)(uint64_t), const char *session,
                                     uint64_t seq, uint16_t count)
{
    size_t at = MOLD_HEADER_BYTES;
    mold_write_header(out, (const uint8_t *)session, seq, count);
    for (uint64_t s = seq; count != MOLD_COUNT_END && s != seq + count; s++) {
        uint16_t len = length(s);
        assert(at + 2 + len <= MOLD_LOG_PACKET_BYTES);
        out[at++] = (uint8_t)(len >> 8);
        out[at++] = (uint8_t)len;
        for (size_t i = 0; i < len; i++)
            out[at++] = mold_log_byte(s, i);
    }
    return at;
}

#endif
