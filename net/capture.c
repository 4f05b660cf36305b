#include "capture.h"

#include <errno.h>
#include <fcntl.h>
#include <pcap/pcap.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "itch.h"
#include "moldudp64.h"
#include "packet.h"

enum {
    LENGTH_BYTES = 2, /* before each message, in a BinaryFILE as in a MoldUDP64 block */
    BATCH_PAYLOAD_MAX = 1400,
    UDP_PAYLOAD_MAX = 65507,
    MESSAGE_MAX = UDP_PAYLOAD_MAX - MOLD_HEADER_BYTES - LENGTH_BYTES,
    TIMESTAMP_OFFSET = 5,
    TIMESTAMP_BYTES = 6,
    SRC_PORT = 49152,
    DST_PORT = 26477,
};

/* 192.0.2.1, an address for documentation (RFC 5737): it names no sender. */
static const uint32_t src_ip = 0xc0000201;
/* 233.54.12.111, the group of the real feed. */
static const uint32_t dst_ip = 0xe9360c6f;
static const uint8_t session[MOLD_SESSION_BYTES] = {'B', 'I', 'N', 'A', 'R', 'Y', 'F', 'I', 'L', 'E'};

struct capture {
    enum capture_kind kind;
    uint64_t size;
    pcap_t *pcap;
    char *path;

    /* BinaryFILE */
    const uint8_t *map;
    uint64_t offset; /* of the next record */
    uint64_t seq;    /* of the next message */
    uint64_t ts_ns;  /* of the last message that had one */
    uint8_t payload[UDP_PAYLOAD_MAX];
    uint8_t frame[CAPTURE_FRAME_MAX];
};

static int fail(char error[CAPTURE_ERROR_CHARS], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int fail(char error[CAPTURE_ERROR_CHARS], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, CAPTURE_ERROR_CHARS, format, args);
    va_end(args);
    return -1;
}

/* First four bytes of pcap (both byte orders; microseconds, nanoseconds, Kuznetzov's) and of pcapng. A
 * BinaryFILE cannot start like this: the third byte would be its first message's type, and none of them is
 * one. */
static int has_pcap_magic(const uint8_t head[4])
{
    static const uint32_t magics[] = {0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1,
                                      0xa1b2cd34, 0x34cdb2a1, 0x0a0d0d0a};
    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++)
        if (be_load_u32(head) == magics[i])
            return 1;
    return 0;
}

static int open_pcap(struct capture *capture, int fd, char error[CAPTURE_ERROR_CHARS])
{
    char reason[PCAP_ERRBUF_SIZE];
    FILE *file = fdopen(fd, "rb");
    if (!file) {
        close(fd);
        return fail(error, "%s: %s", capture->path, strerror(errno));
    }
    capture->pcap = pcap_fopen_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, reason);
    if (!capture->pcap) {
        fclose(file);
        return fail(error, "%s: offset 0: not a readable pcap (%s): capture it again, or check the copy",
                    capture->path, reason);
    }
    int link = pcap_datalink(capture->pcap);
    if (link != DLT_EN10MB) {
        const char *name = pcap_datalink_val_to_name(link);
        return fail(error, "%s: link type %s, not Ethernet: capture on the port itself, not on \"any\"",
                    capture->path, name ? name : "unknown");
    }
    return 0;
}

static int open_binaryfile(struct capture *capture, int fd, char error[CAPTURE_ERROR_CHARS])
{
    void *map = mmap(NULL, capture->size, PROT_READ, MAP_PRIVATE, fd, 0);
    int reason = errno;
    close(fd);
    if (map == MAP_FAILED)
        return fail(error, "%s: cannot be mapped: %s", capture->path, strerror(reason));
    madvise(map, capture->size, MADV_SEQUENTIAL);
    capture->map = map;
    return 0;
}

struct capture *capture_open(const char *path, enum capture_kind kind, char error[CAPTURE_ERROR_CHARS])
{
    uint8_t head[4] = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        fail(error, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    ssize_t n_head = S_ISREG(st.st_mode) ? pread(fd, head, sizeof(head), 0) : 0;
    if (!S_ISREG(st.st_mode))
        fail(error, "%s: not a regular file: write the data to a file first", path);
    else if (n_head <= 0)
        fail(error, "%s: empty", path);
    else if (head[0] == 0x1f && head[1] == 0x8b)
        fail(error, "%s: offset 0: compressed with gzip: run gunzip on it first", path);
    else if (kind == CAPTURE_BINARYFILE && has_pcap_magic(head))
        fail(error, "%s: offset 0: a pcap, not a BinaryFILE of ITCH messages: give it as a pcap (run --pcap)",
             path);
    else if (kind == CAPTURE_PCAP && !has_pcap_magic(head))
        fail(error,
             "%s: offset 0: not a pcap or pcapng; if it is a BinaryFILE of ITCH messages, give it as one "
             "(run --itch)",
             path);
    else
        goto readable;
    close(fd);
    return NULL;

readable:;
    struct capture *capture = calloc(1, sizeof(*capture));
    if (!capture || !(capture->path = strdup(path))) {
        fail(error, "%s: out of memory", path);
        free(capture);
        close(fd);
        return NULL;
    }
    capture->kind = kind ? kind : has_pcap_magic(head) ? CAPTURE_PCAP : CAPTURE_BINARYFILE;
    capture->size = (uint64_t)st.st_size;
    capture->seq = 1;
    if (capture->kind == CAPTURE_PCAP ? open_pcap(capture, fd, error) : open_binaryfile(capture, fd, error)) {
        capture_close(capture);
        return NULL;
    }
    return capture;
}

enum capture_kind capture_kind(const struct capture *capture)
{
    return capture->kind;
}

/* The record at capture->offset, not consumed: 1, 0 at the end, -1 with error. */
static int peek_record(const struct capture *capture, const uint8_t **msg, uint16_t *len,
                       char error[CAPTURE_ERROR_CHARS])
{
    unsigned long long offset = capture->offset;
    uint64_t left = capture->size - capture->offset;
    if (left == 0)
        return 0;
    if (left < LENGTH_BYTES)
        return fail(
            error, "%s: offset %llu: torn: one byte of a record's length: complete the file, or cut it there",
            capture->path, offset);
    const uint8_t *record = capture->map + offset;
    uint32_t bytes = be_load_u16(record);
    if (bytes == 0 && left == LENGTH_BYTES)
        return 0; /* end marker */
    if (bytes == 0) {
        bytes = itch_message_bytes(record[LENGTH_BYTES]);
        if (bytes == 0)
            return fail(error,
                        "%s: offset %llu: record without a length, and type 0x%02x has none of its own: not "
                        "an ITCH 5.0 "
                        "BinaryFILE, or damaged from here on",
                        capture->path, offset, record[LENGTH_BYTES]);
    }
    if (bytes > MESSAGE_MAX)
        return fail(error,
                    "%s: offset %llu: record length %u, more than the %d of any message: not an ITCH 5.0 "
                    "BinaryFILE, or "
                    "damaged from here on",
                    capture->path, offset, bytes, MESSAGE_MAX);
    if (left - LENGTH_BYTES < bytes)
        return fail(
            error,
            "%s: offset %llu: torn: %llu of the last record's %u bytes: complete the file, or cut it there",
            capture->path, offset, (unsigned long long)(left - LENGTH_BYTES), bytes);
    *msg = record + LENGTH_BYTES;
    *len = (uint16_t)bytes;
    return 1;
}

static void consume_record(struct capture *capture, uint16_t len)
{
    capture->offset += (uint64_t)LENGTH_BYTES + len;
    capture->seq++;
}

int capture_next_message(struct capture *capture, const uint8_t **msg, uint16_t *len,
                         char error[CAPTURE_ERROR_CHARS])
{
    if (capture->kind != CAPTURE_BINARYFILE)
        return fail(error, "%s: a pcap has frames, not messages", capture->path);
    int status = peek_record(capture, msg, len, error);
    if (status > 0)
        consume_record(capture, *len);
    return status;
}

static uint64_t message_ts_ns(const uint8_t *msg, uint16_t len, uint64_t otherwise)
{
    if (len < TIMESTAMP_OFFSET + TIMESTAMP_BYTES)
        return otherwise;
    return be_load_u48(msg + TIMESTAMP_OFFSET);
}

static int next_binaryfile_frame(struct capture *capture, struct capture_frame *frame,
                                 char error[CAPTURE_ERROR_CHARS])
{
    const uint8_t *msg = NULL;
    uint16_t len = 0;
    int status = peek_record(capture, &msg, &len, error);
    if (status <= 0)
        return status;
    uint64_t seq = capture->seq;
    uint8_t *payload = capture->payload;
    size_t at = MOLD_HEADER_BYTES;
    uint16_t count = 0;
    capture->ts_ns = message_ts_ns(msg, len, capture->ts_ns);
    do {
        payload[at] = (uint8_t)(len >> 8);
        payload[at + 1] = (uint8_t)len;
        memcpy(payload + at + LENGTH_BYTES, msg, len);
        at += (size_t)LENGTH_BYTES + len;
        count++;
        consume_record(capture, len);
        /* An error behind this frame is told by the next call. */
    } while (peek_record(capture, &msg, &len, error) > 0 && at + LENGTH_BYTES + len <= BATCH_PAYLOAD_MAX &&
             message_ts_ns(msg, len, capture->ts_ns) == capture->ts_ns);

    mold_write_header(payload, session, seq, count);
    frame->len =
        (uint32_t)packet_build(capture->frame, src_ip, SRC_PORT, dst_ip, DST_PORT, 0, payload, (uint16_t)at);
    frame->data = capture->frame;
    frame->ts_ns = capture->ts_ns;
    return 1;
}

int capture_next_frame(struct capture *capture, struct capture_frame *frame, char error[CAPTURE_ERROR_CHARS])
{
    if (capture->kind == CAPTURE_BINARYFILE)
        return next_binaryfile_frame(capture, frame, error);
    struct pcap_pkthdr *header;
    const u_char *data;
    unsigned long long offset = capture_offset(capture);
    int status = pcap_next_ex(capture->pcap, &header, &data);
    if (status == PCAP_ERROR_BREAK)
        return 0;
    if (status != 1)
        return fail(error, "%s: offset %llu: %s: complete the file, or cut it there", capture->path, offset,
                    pcap_geterr(capture->pcap));
    frame->data = data;
    frame->len = header->caplen < CAPTURE_FRAME_MAX ? header->caplen : CAPTURE_FRAME_MAX;
    /* With nanosecond precision libpcap puts nanoseconds into tv_usec. Both fields of a pcap are unsigned on
     * disk, libpcap reads them as signed: without this, stamps from 2038 on lie before 1970. */
    int64_t s = header->ts.tv_sec, ns = header->ts.tv_usec;
    s += s < 0 ? INT64_C(1) << 32 : 0;
    ns += ns < 0 ? INT64_C(1) << 32 : 0;
    frame->ts_ns = (uint64_t)s * 1000000000u + (uint64_t)ns;
    return 1;
}

uint64_t capture_offset(const struct capture *capture)
{
    if (capture->kind == CAPTURE_BINARYFILE)
        return capture->offset;
    long offset = ftell(pcap_file(capture->pcap));
    return offset < 0 ? 0 : (uint64_t)offset;
}

uint64_t capture_size(const struct capture *capture)
{
    return capture->size;
}

void capture_close(struct capture *capture)
{
    if (!capture)
        return;
    if (capture->pcap)
        pcap_close(capture->pcap);
    if (capture->map)
        munmap((void *)(uintptr_t)capture->map, capture->size);
    free(capture->path);
    free(capture);
}
