#include "feed.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../net/moldudp64.h"
#include "../net/packet.h"
#include "rng.h"

enum {
    PAYLOAD_MAX =
        1472, /* one Ethernet MTU less IPv4 and UDP headers; also the largest seen on the real feed */
    FRAME_MAX = PACKET_HEADERS_MAX + PAYLOAD_MAX,
    PORT = 26477,
    WIRE_NS = 3000, /* exchange to the tap */
    JITTER_NS = 400,
    SEND_NS = 450, /* per datagram, besides 0.8 ns per byte (10 Gbit/s) */
    HELD_UP_ONE_IN = 40,
    LOSS_APART = 8, /* packets between two losses: they stay two */
    WRITE_BUFFER_BYTES = 1 << 20,
};

static const uint64_t heartbeat_ns = 1000000000;
static const uint32_t group[2] = {0xe936 << 16 | 0x0c6f,
                                  0xe931 << 16 | 0xc46f};   /* 233.54.12.111, 233.49.196.111 */
static const uint32_t source[2] = {0x0a46010b, 0x0a46020b}; /* 10.70.1.11, 10.70.2.11 */

/* Frames of one line that wait for the other line to pass their time. */
struct queued {
    uint64_t ts_ns;
    uint32_t len;
};

struct line {
    uint8_t *bytes; /* records: struct queued, frame */
    size_t head, tail, size;
    uint64_t last_ns; /* nothing of this line comes before it any more */
};

struct output {
    FILE *file;
    const char *path;
    int error; /* errno of the first failure */
};

struct feed {
    struct output pcap, itch;
    struct line line[2];
    struct rng rng;
    struct feed_totals totals;
    struct feed_loss *loss;
    size_t n_loss, loss_max;
    unsigned losing;       /* lines */
    uint32_t losing_left;  /* packets */
    uint64_t n_since_loss; /* packets */
    uint64_t midnight_ns, lag_ns;
    uint64_t next_seq; /* of the next message */
    uint64_t first_ts_ns, sender_free_ns, last_send_ns;
    uint16_t vlan_id;
    uint16_t n_pending, payload_len;
    uint8_t payload[PAYLOAD_MAX];
};

static void store_be(uint8_t *p, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, value >>= 8)
        p[i] = (uint8_t)value;
}

static void store_le32(uint8_t *p, uint32_t value)
{
    for (int i = 0; i < 4; i++, value >>= 8)
        p[i] = (uint8_t)value;
}

static void output_write(struct output *out, const void *data, size_t len)
{
    if (!out->error && fwrite(data, 1, len, out->file) != len)
        out->error = errno ? errno : EIO;
}

static int output_open(struct output *out, const char *path, char error[FEED_ERROR_CHARS])
{
    out->path = path;
    out->file = fopen(path, "wb");
    if (!out->file) {
        snprintf(error, FEED_ERROR_CHARS, "%s: cannot be written: %s; choose a writable place", path,
                 strerror(errno));
        return -1;
    }
    setvbuf(out->file, NULL, _IOFBF, WRITE_BUFFER_BYTES);
    return 0;
}

static void output_flush(struct output *out)
{
    if (out->file && fflush(out->file) != 0 && !out->error)
        out->error = errno;
}

static int output_close(struct output *out, char error[FEED_ERROR_CHARS])
{
    struct stat st;
    if (!out->file)
        return 0;
    int regular = fstat(fileno(out->file), &st) == 0 && S_ISREG(st.st_mode);
    if (fclose(out->file) != 0 && !out->error)
        out->error = errno;
    out->file = NULL;
    if (!out->error)
        return 0;
    snprintf(error, FEED_ERROR_CHARS, "%s: writing failed: %s; %s", out->path, strerror(out->error),
             out->error == ENOSPC ? "free some space, or write fewer messages" : "check the disk");
    if (regular)
        unlink(out->path);
    return -1;
}

struct feed *feed_open(const struct feed_options *options, char error[FEED_ERROR_CHARS])
{
    struct feed *feed = calloc(1, sizeof *feed);
    if (!feed) {
        snprintf(error, FEED_ERROR_CHARS, "out of memory");
        return NULL;
    }
    if (output_open(&feed->pcap, options->pcap_path, error) ||
        (options->itch_path && output_open(&feed->itch, options->itch_path, error))) {
        char ignored[FEED_ERROR_CHARS];
        feed->pcap.error = ECANCELED; /* nothing of use in it */
        feed_close(feed, ignored);
        return NULL;
    }
    rng_seed(&feed->rng, options->seed, 2);
    feed->midnight_ns = options->midnight_ns;
    feed->lag_ns = options->lag_ns;
    feed->vlan_id = options->vlan_id;
    feed->next_seq = 1;
    feed->payload_len = MOLD_HEADER_BYTES;
    char session[MOLD_SESSION_BYTES + 1];
    snprintf(session, sizeof session, "KL%08X", (unsigned)(options->seed & 0xffffffffu));
    memcpy(feed->payload, session, MOLD_SESSION_BYTES);

    /* pcap 2.4, nanoseconds, Ethernet; by hand in little-endian, so that every machine writes the same bytes.
     */
    uint8_t header[24] = {0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0};
    store_le32(header + 16, 65535);
    store_le32(header + 20, 1);
    output_write(&feed->pcap, header, sizeof header);
    feed->totals.pcap_bytes = sizeof header;
    return feed;
}

/* -- lines ------------------------------------------------------------------------------------- */

static void line_push(struct feed *feed, struct line *line, uint64_t ts_ns, const uint8_t *frame,
                      uint32_t len)
{
    struct queued record = {ts_ns, len};
    size_t need = sizeof record + len;
    if (line->tail + need > line->size) {
        if (line->head > line->size / 2) {
            memmove(line->bytes, line->bytes + line->head, line->tail - line->head);
            line->tail -= line->head;
            line->head = 0;
        } else {
            /* Bounded by the lag: the other line is never further behind. */
            size_t size = line->size ? 2 * line->size : 1 << 20;
            uint8_t *bytes = realloc(line->bytes, size);
            if (!bytes) {
                feed->pcap.error = ENOMEM;
                return;
            }
            line->bytes = bytes;
            line->size = size;
        }
    }
    memcpy(line->bytes + line->tail, &record, sizeof record);
    memcpy(line->bytes + line->tail + sizeof record, frame, len);
    line->tail += need;
}

/* Writes what can no longer be preceded by anything; all of it at the end. */
static void lines_drain(struct feed *feed, int all)
{
    for (;;) {
        struct queued record[2];
        int pick = -1;
        for (int i = 0; i < 2; i++) {
            const struct line *line = &feed->line[i];
            if (line->head == line->tail)
                continue;
            memcpy(&record[i], line->bytes + line->head, sizeof record[i]);
            if (pick < 0 || record[i].ts_ns < record[pick].ts_ns)
                pick = i;
        }
        if (pick < 0)
            return;
        const struct line *other = &feed->line[pick ^ 1];
        if (!all && other->head == other->tail && other->last_ns < record[pick].ts_ns)
            return;
        struct line *line = &feed->line[pick];
        uint64_t epoch_ns = feed->midnight_ns + record[pick].ts_ns;
        uint8_t header[16];
        store_le32(header, (uint32_t)(epoch_ns / 1000000000));
        store_le32(header + 4, (uint32_t)(epoch_ns % 1000000000));
        store_le32(header + 8, record[pick].len);
        store_le32(header + 12, record[pick].len);
        output_write(&feed->pcap, header, sizeof header);
        output_write(&feed->pcap, line->bytes + line->head + sizeof record[pick], record[pick].len);
        feed->totals.pcap_bytes += sizeof header + record[pick].len;
        line->head += sizeof record[pick] + record[pick].len;
        if (line->head == line->tail)
            line->head = line->tail = 0;
    }
}

/* Puts the datagram in feed->payload on both lines; lost: lines that do not carry it. */
static void lines_send(struct feed *feed, uint64_t send_ns, unsigned lost)
{
    uint8_t frame[FRAME_MAX];
    uint64_t wire_ns = (PACKET_HEADERS_MAX + feed->payload_len) * 4 / 5;
    /* One draw to a statement: C leaves the order inside of one to the compiler. */
    uint64_t at[2] = {send_ns + WIRE_NS, send_ns + WIRE_NS + feed->lag_ns};
    at[0] += rng_below(&feed->rng, JITTER_NS);
    at[1] += rng_below(&feed->rng, JITTER_NS + feed->lag_ns / 2);
    if (rng_below(&feed->rng, HELD_UP_ONE_IN) == 0)
        at[0] += JITTER_NS + feed->lag_ns + rng_below(&feed->rng, 2 * feed->lag_ns + JITTER_NS);
    for (int i = 0; i < 2; i++) {
        struct line *line = &feed->line[i];
        if (at[i] < line->last_ns + wire_ns)
            at[i] = line->last_ns + wire_ns;
        line->last_ns = at[i];
        if (lost & 1u << i)
            continue;
        size_t len = packet_build(frame, source[i], PORT, group[i], PORT, feed->vlan_id, feed->payload,
                                  feed->payload_len);
        line_push(feed, line, at[i], frame, (uint32_t)len);
        feed->totals.packets[i]++;
    }
    feed->totals.b_first += at[1] < at[0] && !lost;
    feed->last_send_ns = send_ns;
    lines_drain(feed, 0);
}

/* A packet without messages: heartbeat or end of session; both name the next sequence number. */
static void send_bare(struct feed *feed, uint64_t send_ns, uint16_t count)
{
    assert(feed->n_pending == 0);
    store_be(feed->payload + MOLD_SESSION_BYTES, feed->next_seq, 8);
    store_be(feed->payload + MOLD_SESSION_BYTES + 8, count, 2);
    lines_send(feed, send_ns, 0);
}

static uint64_t pending_send_ns(const struct feed *feed)
{
    return feed->first_ts_ns > feed->sender_free_ns ? feed->first_ts_ns : feed->sender_free_ns;
}

static void send_pending(struct feed *feed)
{
    uint64_t send_ns = pending_send_ns(feed), first = feed->next_seq - feed->n_pending;
    unsigned lost = 0;
    if (feed->losing_left) {
        struct feed_loss *loss = &feed->loss[feed->n_loss - 1];
        lost = feed->losing;
        if (!loss->count)
            loss->first_seq = first;
        loss->count += feed->n_pending;
        feed->losing_left--;
        feed->n_since_loss = 0;
    } else {
        feed->n_since_loss++;
    }
    store_be(feed->payload + MOLD_SESSION_BYTES, first, 8);
    store_be(feed->payload + MOLD_SESSION_BYTES + 8, feed->n_pending, 2);
    if (feed->n_pending > feed->totals.packet_messages_max)
        feed->totals.packet_messages_max = feed->n_pending;
    feed->n_pending = 0;
    lines_send(feed, send_ns, lost);
    feed->sender_free_ns = send_ns + SEND_NS + feed->payload_len * 4 / 5;
    feed->payload_len = MOLD_HEADER_BYTES;
}

/* Time has come to ts_ns without a message: what is pending goes out, and a heartbeat for each idle second.
 */
static void advance(struct feed *feed, uint64_t ts_ns)
{
    if (feed->n_pending && pending_send_ns(feed) < ts_ns)
        send_pending(feed);
    while (!feed->n_pending && feed->next_seq > 1 && feed->last_send_ns + heartbeat_ns < ts_ns) {
        send_bare(feed, feed->last_send_ns + heartbeat_ns, 0);
        feed->totals.heartbeats++;
    }
}

void feed_message(struct feed *feed, uint64_t ts_ns, const uint8_t *msg, uint16_t len)
{
    advance(feed, ts_ns);
    if (feed->payload_len + 2 + len > PAYLOAD_MAX)
        send_pending(feed);
    if (!feed->n_pending)
        feed->first_ts_ns = ts_ns;
    store_be(feed->payload + feed->payload_len, len, 2);
    memcpy(feed->payload + feed->payload_len + 2, msg, len);
    feed->payload_len = (uint16_t)(feed->payload_len + 2 + len);
    feed->n_pending++;
    feed->next_seq++;
    feed->totals.messages++;
    if (feed->itch.file) {
        uint8_t prefix[2];
        store_be(prefix, len, 2);
        output_write(&feed->itch, prefix, 2);
        output_write(&feed->itch, msg, len);
        feed->totals.itch_bytes += 2u + len;
    }
}

int feed_lose(struct feed *feed, unsigned lines, uint32_t n_packets)
{
    assert(n_packets && lines && lines <= (FEED_LINE_A | FEED_LINE_B));
    if (feed->losing_left || (feed->n_loss && feed->n_since_loss < LOSS_APART))
        return -1;
    if (feed->n_loss == feed->loss_max) {
        size_t max = feed->loss_max ? 2 * feed->loss_max : 16;
        struct feed_loss *loss = realloc(feed->loss, max * sizeof *loss);
        if (!loss) {
            feed->pcap.error = ENOMEM;
            return -1;
        }
        feed->loss = loss;
        feed->loss_max = max;
    }
    feed->loss[feed->n_loss++] = (struct feed_loss){.lines = lines};
    feed->losing = lines;
    feed->losing_left = n_packets;
    return 0;
}

const struct feed_loss *feed_losses(const struct feed *feed, size_t *n)
{
    *n = feed->n_loss;
    return feed->loss;
}

const struct feed_totals *feed_totals(const struct feed *feed)
{
    return &feed->totals;
}

int feed_failed(const struct feed *feed)
{
    return feed->pcap.error || feed->itch.error;
}

void feed_end_session(struct feed *feed, uint64_t ts_ns, unsigned n)
{
    if (feed->n_pending)
        send_pending(feed);
    advance(feed, ts_ns);
    for (unsigned i = 0; i < n; i++)
        send_bare(feed, ts_ns + i * heartbeat_ns, MOLD_COUNT_END);
    lines_drain(feed, 1);
}

int feed_close(struct feed *feed, char error[FEED_ERROR_CHARS])
{
    struct output *pcap = &feed->pcap, *itch = &feed->itch;
    char text[FEED_ERROR_CHARS], other[FEED_ERROR_CHARS];
    output_flush(pcap);
    output_flush(itch);
    /* The two files are one day: a failure of one spoils the other; the message is about the one that failed.
     */
    int itch_failed = !pcap->error && itch->error;
    if (pcap->error)
        itch->error = pcap->error;
    else if (itch->error)
        pcap->error = itch->error;
    int rc = output_close(pcap, itch_failed ? other : text);
    rc |= output_close(itch, itch_failed ? text : other);
    if (rc)
        memcpy(error, text, FEED_ERROR_CHARS);
    free(feed->line[0].bytes);
    free(feed->line[1].bytes);
    free(feed->loss);
    free(feed);
    return rc;
}
