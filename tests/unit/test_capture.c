#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/capture.h"
#include "net/itch.h"
#include "net/moldudp64.h"
#include "net/packet.h"

static char path[] = "/tmp/test_capture.XXXXXX";
static uint8_t content[1 << 18];
static size_t n_content;
static char error[CAPTURE_ERROR_CHARS];

static void add(const void *bytes, size_t n)
{
    assert_true(n_content + n <= sizeof(content));
    memcpy(content + n_content, bytes, n);
    n_content += n;
}

static void add_u16(uint32_t value)
{
    uint8_t bytes[2] = {(uint8_t)(value >> 8), (uint8_t)value};
    add(bytes, 2);
}

/* A record with an Order Delete of feed time ts_ns. prefix: the length to write. */
static void add_delete_as(uint64_t ts_ns, uint16_t prefix)
{
    struct itch_msg msg = {.type = 'D', .locate = 3, .timestamp_ns = ts_ns};
    uint8_t bytes[ITCH_MESSAGE_BYTES_MAX];
    msg.order_delete.order_reference_number = ts_ns + 7;
    int n = itch_encode(&msg, bytes, sizeof(bytes));
    add_u16(prefix);
    add(bytes, (size_t)n);
}

static void add_delete(uint64_t ts_ns)
{
    add_delete_as(ts_ns, 19);
}

static struct capture *open_content(enum capture_kind kind)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, n_content, file), n_content);
    assert_int_equal(fclose(file), 0);
    memset(error, 0, sizeof(error));
    return capture_open(path, kind, error);
}

static void assert_error(const char *part)
{
    assert_non_null(strstr(error, path));
    if (!strstr(error, part))
        fail_msg("'%s' is not in '%s'", part, error);
}

static int setup(void **state)
{
    (void)state;
    n_content = 0;
    return 0;
}

static void messages_of_a_binaryfile(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 5; i++)
        add_delete(i);
    struct capture *capture = open_content(0);
    assert_non_null(capture);
    assert_int_equal(capture_kind(capture), CAPTURE_BINARYFILE);
    assert_int_equal(capture_size(capture), n_content);
    const uint8_t *msg;
    uint16_t len;
    for (uint64_t i = 0; i < 5; i++) {
        struct itch_msg decoded = {0};
        assert_int_equal(capture_offset(capture), i * 21);
        assert_int_equal(capture_next_message(capture, &msg, &len, error), 1);
        assert_int_equal(len, 19);
        assert_int_equal(itch_decode(msg, len, &decoded), 19);
        assert_true(decoded.order_delete.order_reference_number == i + 7);
    }
    assert_int_equal(capture_next_message(capture, &msg, &len, error), 0);
    assert_int_equal(capture_next_message(capture, &msg, &len, error), 0);
    assert_int_equal(capture_offset(capture), n_content);
    capture_close(capture);
}

static void zero_prefix_stands_for_the_types_length(void **state)
{
    (void)state;
    add_delete_as(1, 0);
    add_delete(2);
    add_delete_as(3, 0);
    add_u16(0); /* end marker */
    struct capture *capture = open_content(0);
    const uint8_t *msg;
    uint16_t len;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(capture_next_message(capture, &msg, &len, error), 1);
        assert_int_equal(len, 19);
        assert_int_equal(msg[0], 'D');
    }
    assert_int_equal(capture_next_message(capture, &msg, &len, error), 0);
    capture_close(capture);
}

/* Every cut of the last record is told, and what came before stays good. */
static void torn_binaryfile(void **state)
{
    (void)state;
    for (int zero_prefix = 0; zero_prefix < 2; zero_prefix++)
        for (size_t cut = 1; cut < 21; cut++) {
            if (zero_prefix && cut == 2)
                continue; /* is an end marker */
            n_content = 0;
            add_delete(1);
            add_delete_as(2, zero_prefix ? 0 : 19);
            n_content = 21 + cut;
            struct capture *capture = open_content(0);
            const uint8_t *msg;
            uint16_t len;
            assert_int_equal(capture_next_message(capture, &msg, &len, error), 1);
            assert_int_equal(capture_next_message(capture, &msg, &len, error), -1);
            assert_error("offset 21: torn");
            assert_int_equal(capture_next_message(capture, &msg, &len, error), -1);
            capture_close(capture);

            capture = open_content(0);
            struct capture_frame frame;
            assert_int_equal(capture_next_frame(capture, &frame, error), 1);
            assert_int_equal(capture_next_frame(capture, &frame, error), -1);
            assert_error("offset 21: torn");
            capture_close(capture);
        }
}

static void impossible_lengths(void **state)
{
    (void)state;
    const uint8_t *msg;
    uint16_t len;
    add_u16(65486); /* a MoldUDP64 datagram has room for 65,485 */
    n_content += 65486;
    struct capture *capture = open_content(0);
    assert_int_equal(capture_next_message(capture, &msg, &len, error), -1);
    assert_error("offset 0: record length 65486");
    capture_close(capture);

    content[1]--;
    capture = open_content(0);
    struct capture_frame frame;
    struct packet_udp udp;
    struct mold_packet_header header;
    assert_int_equal(capture_next_frame(capture, &frame, error), 1);
    assert_int_equal(packet_parse(frame.data, frame.len, 1, &udp), PACKET_OK);
    assert_int_equal(mold_parse(udp.payload, udp.payload_len, &header), 0);
    assert_int_equal(udp.payload_len, 65507);
    capture_close(capture);

    n_content = 0;
    add_u16(0);
    add("zz", 2); /* a type that has no length of its own */
    capture = open_content(0);
    assert_int_equal(capture_next_message(capture, &msg, &len, error), -1);
    assert_error("type 0x7a");
    capture_close(capture);
}

static void frames_of_a_binaryfile(void **state)
{
    (void)state;
    /* 3 of one time, 1 of another, 100 of a third: more than 1,400 bytes. */
    for (int i = 0; i < 3; i++)
        add_delete(100);
    add_delete(200);
    for (int i = 0; i < 100; i++)
        add_delete(300);
    const struct {
        uint32_t n_message;
        uint64_t seq_no, ts_ns;
    } want[] = {{3, 1, 100}, {1, 4, 200}, {65, 5, 300}, {35, 70, 300}};
    struct capture *capture = open_content(CAPTURE_BINARYFILE);
    struct capture_frame frame;
    for (size_t i = 0; i < 4; i++) {
        struct packet_udp udp;
        struct mold_packet_header header;
        assert_int_equal(capture_next_frame(capture, &frame, error), 1);
        assert_true(frame.ts_ns == want[i].ts_ns);
        assert_int_equal(packet_parse(frame.data, frame.len, 1, &udp), PACKET_OK);
        assert_int_equal(udp.dst_ip, 0xe9360c6f);
        assert_int_equal(udp.dst_port, 26477);
        assert_true(udp.payload_len <= 1400);
        assert_int_equal(mold_parse(udp.payload, udp.payload_len, &header), 0);
        assert_int_equal(header.bytes, udp.payload_len);
        assert_memory_equal(header.session, "BINARYFILE", 10);
        assert_true(header.seq_no == want[i].seq_no);
        assert_int_equal(header.n_message, want[i].n_message);
        assert_memory_equal(udp.payload + MOLD_HEADER_BYTES, content + (want[i].seq_no - 1) * 21,
                            header.n_message * 21);
    }
    assert_int_equal(capture_next_frame(capture, &frame, error), 0);
    capture_close(capture);
}

/* A message too short for a time of its own goes with the last one; an unknown type is passed on. */
static void short_and_unknown_messages_are_framed(void **state)
{
    (void)state;
    add_delete(100);
    add_u16(1);
    add("D", 1);
    add_u16(3);
    add("zzz", 3);
    struct capture *capture = open_content(0);
    struct capture_frame frame;
    struct packet_udp udp;
    assert_int_equal(capture_next_frame(capture, &frame, error), 1);
    assert_true(frame.ts_ns == 100);
    assert_int_equal(packet_parse(frame.data, frame.len, 1, &udp), PACKET_OK);
    assert_memory_equal(udp.payload + MOLD_HEADER_BYTES, content, n_content);
    capture_close(capture);
}

static void add_u32_le(uint32_t value)
{
    add(&value, 4);
}

static void add_pcap_header(uint32_t magic, uint32_t link_type)
{
    add_u32_le(magic);
    add_u32_le(2 | 4 << 16);
    add_u32_le(0);
    add_u32_le(0);
    add_u32_le(262144);
    add_u32_le(link_type);
}

static void add_pcap_frame(uint32_t s, uint32_t fraction, const void *bytes, uint32_t n)
{
    add_u32_le(s);
    add_u32_le(fraction);
    add_u32_le(n);
    add_u32_le(n);
    add(bytes, n);
}

static void pcap_times(void **state)
{
    (void)state;
    const struct {
        uint32_t magic, fraction;
    } kinds[] = {{0xa1b23c4d, 434142123}, {0xa1b2c3d4, 434142}};
    for (size_t i = 0; i < 2; i++) {
        n_content = 0;
        add_pcap_header(kinds[i].magic, 1);
        add_pcap_frame(1692711000, kinds[i].fraction, "fourteen bytes", 14);
        struct capture *capture = open_content(0);
        struct capture_frame frame;
        assert_non_null(capture);
        assert_int_equal(capture_kind(capture), CAPTURE_PCAP);
        assert_int_equal(capture_next_frame(capture, &frame, error), 1);
        assert_true(frame.ts_ns == UINT64_C(1692711000434142000) + (i == 0 ? 123 : 0));
        assert_int_equal(frame.len, 14);
        assert_memory_equal(frame.data, "fourteen bytes", 14);
        assert_int_equal(capture_offset(capture), n_content);
        assert_int_equal(capture_next_frame(capture, &frame, error), 0);
        const uint8_t *msg;
        uint16_t len;
        assert_int_equal(capture_next_message(capture, &msg, &len, error), -1);
        capture_close(capture);
    }
}

/* The seconds of a pcap are unsigned: they reach to 2106. */
static void pcap_times_after_2038(void **state)
{
    (void)state;
    add_pcap_header(0xa1b23c4d, 1);
    add_pcap_frame(0x7fffffff, 999999999, "abcd", 4);
    add_pcap_frame(0x80000000, 1, "abcd", 4);
    add_pcap_frame(0xffffffff, 2, "abcd", 4);
    add_pcap_frame(1, 0xffffffff, "abcd", 4); /* damage, but not a stamp of the past */
    const uint64_t want[] = {UINT64_C(2147483647999999999), UINT64_C(2147483648000000001),
                             UINT64_C(4294967295000000002), UINT64_C(5294967295)};
    struct capture *capture = open_content(0);
    struct capture_frame frame;
    assert_non_null(capture);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(capture_next_frame(capture, &frame, error), 1);
        assert_true(frame.ts_ns == want[i]);
    }
    capture_close(capture);
}

static void pcapng(void **state)
{
    (void)state;
    /* Section header, interface (Ethernet, nanoseconds), one enhanced packet. */
    static const uint8_t blocks[] = {
        0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1,  0, 0, 0, 255, 255, 255, 255,
        255,  255,  255,  255,  28, 0, 0, 0, 1,    0,    0,    0,    32, 0, 0, 0, 1,   0,   0,   0,
        0,    0,    4,    0,    9,  0, 1, 0, 9,    0,    0,    0,    0,  0, 0, 0, 32,  0,   0,   0,
        6,    0,    0,    0,    36, 0, 0, 0, 0,    0,    0,    0,    1,  0, 0, 0, 2,   0,   0,   0,
        4,    0,    0,    0,    4,  0, 0, 0, 'a',  'b',  'c',  'd',  36, 0, 0, 0};
    add(blocks, sizeof(blocks));
    struct capture *capture = open_content(0);
    struct capture_frame frame;
    assert_non_null(capture);
    assert_int_equal(capture_kind(capture), CAPTURE_PCAP);
    assert_int_equal(capture_next_frame(capture, &frame, error), 1);
    assert_true(frame.ts_ns == (UINT64_C(1) << 32) + 2);
    assert_memory_equal(frame.data, "abcd", 4);
    assert_int_equal(capture_next_frame(capture, &frame, error), 0);
    capture_close(capture);
}

static void torn_pcap(void **state)
{
    (void)state;
    for (size_t cut = 1; cut < 30; cut++) {
        n_content = 0;
        add_pcap_header(0xa1b23c4d, 1);
        add_pcap_frame(1, 2, "fourteen bytes", 14);
        add_pcap_frame(3, 4, "fourteen bytes", 14);
        n_content -= cut;
        struct capture *capture = open_content(0);
        struct capture_frame frame;
        assert_int_equal(capture_next_frame(capture, &frame, error), 1);
        assert_int_equal(capture_next_frame(capture, &frame, error), -1);
        assert_error("offset 54");
        capture_close(capture);
    }
}

static void longer_frames_are_cut_to_the_limit(void **state)
{
    (void)state;
    static const uint8_t jumbo[CAPTURE_FRAME_MAX + 1];
    add_pcap_header(0xa1b23c4d, 1);
    add_pcap_frame(1, 2, jumbo, sizeof(jumbo));
    struct capture *capture = open_content(0);
    struct capture_frame frame;
    assert_int_equal(capture_next_frame(capture, &frame, error), 1);
    assert_int_equal(frame.len, CAPTURE_FRAME_MAX);
    capture_close(capture);
}

static void refused_files(void **state)
{
    (void)state;
    assert_null(open_content(0));
    assert_error("empty");
    add("\x1f\x8b\x08\x00", 4);
    assert_null(open_content(0));
    assert_error("gunzip");
    n_content = 0;
    add_pcap_header(0xa1b2c3d4, 113);
    assert_null(open_content(0));
    assert_error("LINUX_SLL");
    n_content = 10; /* the magic, and no header behind it */
    assert_null(open_content(0));
    assert_error("offset 0");
    n_content = 0;
    add_delete(1);
    assert_null(open_content(CAPTURE_PCAP));
    assert_error("offset 0: not a pcap or pcapng; if it is a BinaryFILE");
    n_content = 0;
    add_pcap_header(0xa1b2c3d4, 1);
    assert_null(open_content(CAPTURE_BINARYFILE));
    assert_error("offset 0: a pcap, not a BinaryFILE");
    assert_null(capture_open("/nonexistent/file", 0, error));
    assert_non_null(strstr(error, "/nonexistent/file: No such file"));
    assert_null(capture_open("/tmp", 0, error));
    assert_non_null(strstr(error, "not a regular file"));
    capture_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(messages_of_a_binaryfile, setup),
        cmocka_unit_test_setup(zero_prefix_stands_for_the_types_length, setup),
        cmocka_unit_test_setup(torn_binaryfile, setup),
        cmocka_unit_test_setup(impossible_lengths, setup),
        cmocka_unit_test_setup(frames_of_a_binaryfile, setup),
        cmocka_unit_test_setup(short_and_unknown_messages_are_framed, setup),
        cmocka_unit_test_setup(pcap_times, setup),
        cmocka_unit_test_setup(pcap_times_after_2038, setup),
        cmocka_unit_test_setup(pcapng, setup),
        cmocka_unit_test_setup(torn_pcap, setup),
        cmocka_unit_test_setup(longer_frames_are_cut_to_the_limit, setup),
        cmocka_unit_test_setup(refused_files, setup),
    };
    int fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        return 1;
    }
    close(fd);
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return status;
}
