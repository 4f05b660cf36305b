#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../net/capture.h"
#include "../net/itch.h"
#include "../net/moldudp64.h"
#include "../net/packet.h"
#include "cmd.h"

enum { OUTPUT_BUFFER_BYTES = 1 << 18, PROGRESS_STEP = 4096 };

struct decode {
    const char *path;
    int json;
    unsigned long long messages, unknown, longer, shorter, malformed;
    unsigned long long frames, not_mold, bad_checksum, mold_packets; /* pcap */
};

/* Where a message comes from, when it is from a pcap. */
struct origin {
    unsigned long long frame_no; /* from 1, as in other tools */
    const uint8_t *session;
    uint64_t seq_no;
};

static void put(const char *text)
{
    fputs_unlocked(text, stdout);
}

static void put_u64(uint64_t value)
{
    char digits[20];
    size_t n = sizeof(digits);
    do {
        digits[--n] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    fwrite_unlocked(digits + n, 1, sizeof(digits) - n, stdout);
}

/* Quoted and escaped as JSON; bytes above ASCII are taken as Latin-1, so that any byte can be read back. */
static void put_string(const char *bytes, size_t n)
{
    putc_unlocked('"', stdout);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\') {
            putc_unlocked('\\', stdout);
            putc_unlocked(c, stdout);
        } else if (c >= 0x20 && c < 0x7f) {
            putc_unlocked(c, stdout);
        } else {
            fprintf(stdout, "\\u%04x", c);
        }
    }
    putc_unlocked('"', stdout);
}

/* Without the spaces that pad it. */
static void put_padded(const char *bytes, size_t n)
{
    while (n > 0 && bytes[n - 1] == ' ')
        n--;
    put_string(bytes, n);
}

static void put_hex(const uint8_t *bytes, size_t n)
{
    static const char digit[] = "0123456789abcdef";
    putc_unlocked('"', stdout);
    for (size_t i = 0; i < n; i++) {
        putc_unlocked(digit[bytes[i] >> 4], stdout);
        putc_unlocked(digit[bytes[i] & 15], stdout);
    }
    putc_unlocked('"', stdout);
}

/* Name of a value: "name": in JSON, name= in text; both behind a separator. */
static void put_name(const struct decode *decode, const char *name)
{
    put(decode->json ? ",\"" : " ");
    put(name);
    put(decode->json ? "\":" : "=");
}

static void put_integer(const struct decode *decode, const char *name, uint64_t value)
{
    put_name(decode, name);
    put_u64(value);
}

/* For people, text output only: hours, minutes, seconds. */
static void put_time(uint64_t ns)
{
    uint64_t s = ns / 1000000000;
    fprintf(stdout, "%02llu:%02llu:%02llu.%09llu", (unsigned long long)(s / 3600),
            (unsigned long long)(s / 60 % 60), (unsigned long long)(s % 60),
            (unsigned long long)(ns % 1000000000));
}

static void put_field(const struct decode *decode, const struct itch_msg *msg, const struct itch_field *field)
{
    put_name(decode, field->name);
    if (field->kind == ITCH_U8) {
        put_string(itch_field_alpha(msg, field), 1);
        return;
    }
    if (field->kind == ITCH_ALPHA) {
        put_padded(itch_field_alpha(msg, field), field->bytes);
        return;
    }
    uint64_t value = itch_field_integer(msg, field);
    if (decode->json || (field->kind != ITCH_PRICE4 && field->kind != ITCH_PRICE8))
        put_u64(value);
    else if (field->kind == ITCH_PRICE4)
        fprintf(stdout, "%llu.%04llu", (unsigned long long)(value / 10000),
                (unsigned long long)(value % 10000));
    else
        fprintf(stdout, "%llu.%08llu", (unsigned long long)(value / 100000000),
                (unsigned long long)(value % 100000000));
}

static void print_message(struct decode *decode, const uint8_t *bytes, uint16_t len,
                          const struct origin *origin)
{
    struct itch_msg msg;
    int status = itch_decode(bytes, len, &msg);
    const struct itch_message_info *info = len ? itch_message_info(bytes[0]) : NULL;
    decode->messages++;
    decode->longer += status > 0 && status < len;
    decode->shorter += status == ITCH_SHORT;
    decode->unknown += status == ITCH_UNKNOWN;

    if (decode->json)
        put("{\"number\":");
    put_u64(decode->messages);
    put_integer(decode, "len", len);
    if (origin) {
        put_integer(decode, "frame", origin->frame_no);
        put_name(decode, "session");
        put_padded((const char *)origin->session, MOLD_SESSION_BYTES);
        put_integer(decode, "seq_no", origin->seq_no);
    }
    put_name(decode, "type");
    put_string((const char *)bytes, len ? 1 : 0);
    if (info) {
        put_name(decode, "name");
        put_string(info->name, strlen(info->name));
    }
    if (status > 0) {
        put_integer(decode, "locate", msg.locate);
        put_integer(decode, "tracking", msg.tracking);
        put_name(decode, "timestamp");
        if (decode->json)
            put_u64(msg.timestamp_ns);
        else
            put_time(msg.timestamp_ns);
        for (int i = 0; i < info->n_field; i++)
            put_field(decode, &msg, &info->field[i]);
    } else {
        put_name(decode, status == ITCH_SHORT ? "short" : "unknown");
        put("true");
        put_name(decode, "hex");
        put_hex(bytes, len);
    }
    put(decode->json ? "}\n" : "\n");
}

static void print_frame(struct decode *decode, const struct capture_frame *frame)
{
    struct packet_udp udp;
    decode->frames++;
    enum packet_status status = packet_parse(frame->data, frame->len, 1, &udp);
    if (status == PACKET_BAD_CHECKSUM) {
        decode->bad_checksum++;
        status = packet_parse(frame->data, frame->len, 0, &udp);
    }
    if (status == PACKET_NOT_IPV4 || status == PACKET_NOT_UDP) {
        decode->not_mold++;
        return;
    }
    struct mold_packet_header header;
    if (status != PACKET_OK || mold_parse(udp.payload, udp.payload_len, &header)) {
        decode->malformed++;
        return;
    }
    decode->mold_packets++;
    const uint8_t *block = udp.payload + MOLD_HEADER_BYTES;
    for (uint32_t i = 0; i < header.n_message; i++) {
        uint16_t len = be_load_u16(block);
        struct origin origin = {decode->frames, header.session, header.seq_no + i};
        print_message(decode, block + 2, len, &origin);
        block += 2 + (size_t)len;
    }
}

/* 1: one more message or frame printed, 0: end, -1: error. */
static int print_next(struct decode *decode, struct capture *capture, char error[CAPTURE_ERROR_CHARS])
{
    int status;
    if (capture_kind(capture) == CAPTURE_PCAP) {
        struct capture_frame frame;
        status = capture_next_frame(capture, &frame, error);
        if (status > 0)
            print_frame(decode, &frame);
    } else {
        const uint8_t *msg;
        uint16_t len;
        status = capture_next_message(capture, &msg, &len, error);
        if (status > 0)
            print_message(decode, msg, len, NULL);
    }
    return status;
}

static void print_summary(const struct decode *decode, enum capture_kind kind)
{
    fprintf(stderr, "%s: %llu messages, %llu unknown, %llu longer, %llu short, %llu malformed", decode->path,
            decode->messages, decode->unknown, decode->longer, decode->shorter, decode->malformed);
    if (kind == CAPTURE_PCAP)
        fprintf(stderr, "; %llu frames, %llu not UDP, %llu with a bad checksum", decode->frames,
                decode->not_mold, decode->bad_checksum);
    fputc('\n', stderr);
}

static int decode_file(struct decode *decode)
{
    char error[CAPTURE_ERROR_CHARS];
    struct capture *capture = capture_open(decode->path, 0, error);
    if (!capture)
        return cmd_error("%s", error);
    int status;
    unsigned long long step = 0;
    while ((status = print_next(decode, capture, error)) > 0 && !ferror(stdout))
        if (++step % PROGRESS_STEP == 0)
            cmd_progress("decoding", "bytes", capture_offset(capture), capture_size(capture));
    int write_failed = fflush(stdout) || ferror(stdout);
    int write_errno = errno;
    cmd_progress_done();
    enum capture_kind kind = capture_kind(capture);
    capture_close(capture);
    if (write_failed)
        return cmd_error("standard output: message %llu: %s: make room, or read all of it", decode->messages,
                         strerror(write_errno));
    print_summary(decode, kind);
    if (status < 0)
        return cmd_error("%s", error);
    if (kind == CAPTURE_PCAP && decode->mold_packets == 0)
        return cmd_error("%s: no MoldUDP64 packet in %llu frames: is this a capture of the feed?",
                         decode->path, decode->frames);
    return 0;
}

static void usage(FILE *out)
{
    fputs(
        "usage: killline decode FILE [--json]\n\n"
        "Prints every ITCH 5.0 message of a BinaryFILE (the exchange's day format) or of the MoldUDP64 "
        "packets of a\n"
        "pcap or pcapng, one a line, in the order of the file: nothing is arbitrated or left out. A counted "
        "summary\n"
        "goes to standard error.\n\n"
        "  --json   one JSON object a line: number (from 1), len (as framed), for pcaps frame, session and "
        "seq_no,\n"
        "           type, name, locate, tracking, timestamp (ns since midnight), and the type's fields. "
        "Prices are\n"
        "           integers in 1e-4 USD (V: 1e-8 points). Unknown or cut messages: unknown or short, and "
        "hex.\n"
        "  --help   this text\n\n"
        "Exit status: 0 all of the file was read, 1 not (torn, unreadable, output failed), 2 wrong usage.\n",
        out);
}

int cmd_decode(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    struct decode decode = {0};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            decode.json = 1;
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (optind + 1 != argc) {
        usage(stderr);
        return 2;
    }
    decode.path = argv[optind];
    /* A reader that goes away is a write error here, with a message and a status, not a silent death. */
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOFBF, OUTPUT_BUFFER_BYTES);
    return decode_file(&decode);
}
