#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/packet.h"

enum { ETHER = 14, IP = 20, UDP = 8, FRAME_MAX = 65535 + 64 };

static const uint32_t src = 0xc0000201, dst = 0xe9360c6f;
static uint8_t frame[FRAME_MAX];

/* A frame of today's feed with n payload bytes: 0, 1, 2 ... */
static size_t build(uint16_t vlan_id, uint16_t n)
{
    static uint8_t payload[65536];
    for (size_t i = 0; i < n; i++)
        payload[i] = (uint8_t)i;
    memset(frame, 0, sizeof(frame));
    return packet_build(frame, src, 49152, dst, 26477, vlan_id, payload, n);
}

/* Parses from a buffer of exactly len bytes, so that the sanitizer sees a read beyond it. */
static enum packet_status parse_exact(size_t len, int verify, struct packet_udp *out)
{
    uint8_t *exact = malloc(len ? len : 1);
    memcpy(exact, frame, len);
    enum packet_status status = packet_parse(exact, len, verify, out);
    free(exact);
    return status;
}

static enum packet_status parse(size_t len)
{
    struct packet_udp out;
    return parse_exact(len, 1, &out);
}

/* Makes the IPv4 header's checksum right again after a change. */
static void fix_ip_checksum(uint8_t *ip)
{
    ip[10] = ip[11] = 0;
    uint16_t sum = packet_checksum(ip, (size_t)(ip[0] & 15) * 4, 0);
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
}

/* Puts n bytes in at offset at of a frame of len bytes. */
static size_t insert(size_t len, size_t at, const char *bytes, size_t n)
{
    memmove(frame + at + n, frame + at, len - at);
    memcpy(frame + at, bytes, n);
    return len + n;
}

static void build_and_parse(void **state)
{
    (void)state;
    const uint16_t sizes[] = {0, 1, 2, 3, 20, 1472, 65507};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (uint16_t vlan = 0; vlan < 300; vlan += 141) {
            struct packet_udp out;
            size_t len = build(vlan, sizes[i]);
            assert_int_equal(len, ETHER + (vlan ? 4 : 0) + IP + UDP + sizes[i]);
            assert_int_equal(packet_parse(frame, len, 1, &out), PACKET_OK);
            assert_ptr_equal(out.payload, frame + len - sizes[i]);
            assert_int_equal(out.payload_len, sizes[i]);
            assert_int_equal(out.src_ip, src);
            assert_int_equal(out.dst_ip, dst);
            assert_int_equal(out.src_port, 49152);
            assert_int_equal(out.dst_port, 26477);
            assert_int_equal(out.vlan_id, vlan);
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(out.payload[k], (uint8_t)k);
        }
}

static void multicast_address(void **state)
{
    (void)state;
    build(0, 1);
    assert_memory_equal(frame, "\x01\x00\x5e\x36\x0c\x6f", 6);
    packet_build(frame, src, 1, 0xefff1234, 2, 0, (const uint8_t *)"x", 1); /* the 24th bit is not copied */
    assert_memory_equal(frame, "\x01\x00\x5e\x7f\x12\x34", 6);
    packet_build(frame, src, 1, 0x0a000002, 2, 0, (const uint8_t *)"x", 1);
    assert_memory_equal(frame, "\x02\x00\x0a\x00\x00\x02\x02\x00\xc0\x00\x02\x01", 12);
}

/* The example of RFC 1071, section 3, and a plain sum. */
static void checksum(void **state)
{
    (void)state;
    static const uint8_t example[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    assert_int_equal(packet_checksum(example, 8, 0), (uint16_t)~0xddf2);
    assert_int_equal(packet_checksum(NULL, 0, 0), 0xffff);
    assert_int_equal(packet_checksum(NULL, 0, 0xffffffff), 0);
    static uint8_t bytes[70000];
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
    for (size_t len = 0; len < sizeof(bytes); len += len < 70 ? 1 : 7919)
        for (size_t skip = 0; skip < 4 && skip <= len; skip++) {
            uint64_t sum = 0x1234567;
            for (size_t i = skip; i < len; i++)
                sum += (i - skip) % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
            while (sum >> 16)
                sum = (sum & 0xffff) + (sum >> 16);
            assert_int_equal(packet_checksum(bytes + skip, len - skip, 0x1234567), (uint16_t)~sum);
        }
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(packet_checksum(bytes, sizeof(bytes), 0), 0);
}

static void cut_frames(void **state)
{
    (void)state;
    for (uint16_t vlan = 0; vlan < 2; vlan++) {
        size_t len = build(vlan, 30);
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(parse(cut), PACKET_SHORT);
    }
}

static void ethernet_padding(void **state)
{
    (void)state;
    struct packet_udp out;
    build(0, 3);
    assert_int_equal(parse_exact(60, 1, &out), PACKET_OK);
    assert_int_equal(out.payload_len, 3);
    build(0, 0);
    assert_int_equal(parse_exact(60, 1, &out), PACKET_OK);
    assert_int_equal(out.payload_len, 0);
}

static void vlan_tags(void **state)
{
    (void)state;
    const char *outer[] = {"\x81\x00", "\x88\xa8", "\x91\x00"};
    for (size_t i = 0; i < 3; i++) {
        struct packet_udp out;
        size_t len = build(7, 5);
        char tag[4] = {outer[i][0], outer[i][1], (char)0xe1, 0x23}; /* priority 7: not part of the id */
        len = insert(len, 12, tag, 4);
        assert_int_equal(parse_exact(len, 1, &out), PACKET_OK);
        assert_int_equal(out.vlan_id, 0x123);
        assert_int_equal(out.payload_len, 5);
        assert_int_equal(parse(17), PACKET_SHORT);
        assert_int_equal(parse(21), PACKET_SHORT);
        len = insert(len, 12, tag, 4);
        assert_int_equal(parse(len), PACKET_NOT_IPV4);
    }
}

static void other_protocols(void **state)
{
    (void)state;
    const char *ethertypes[] = {"\x08\x06", "\x86\xdd", "\x88\xcc", "\x00\x2e", "\x08\x01"};
    for (size_t i = 0; i < 5; i++) {
        size_t len = build(0, 10);
        memcpy(frame + 12, ethertypes[i], 2);
        assert_int_equal(parse(len), PACKET_NOT_IPV4);
    }
    const uint8_t protocols[] = {1, 2, 6, 136};
    for (size_t i = 0; i < 4; i++) {
        size_t len = build(0, 10);
        frame[ETHER + 9] = protocols[i];
        fix_ip_checksum(frame + ETHER);
        assert_int_equal(parse(len), PACKET_NOT_UDP);
    }
}

static void fragments(void **state)
{
    (void)state;
    const char *fields[] = {"\x20\x00", "\x00\x01", "\x3f\xff", "\x60\x00"};
    for (size_t i = 0; i < 4; i++) {
        size_t len = build(0, 10);
        memcpy(frame + ETHER + 6, fields[i], 2);
        fix_ip_checksum(frame + ETHER);
        assert_int_equal(parse(len), PACKET_FRAGMENT);
    }
    size_t len = build(0, 10);
    memcpy(frame + ETHER + 6, "\xc0\x00", 2); /* reserved bit and DF: whole */
    fix_ip_checksum(frame + ETHER);
    assert_int_equal(parse(len), PACKET_OK);
}

static void ip_options(void **state)
{
    (void)state;
    for (uint8_t n = 4; n <= 40; n += 4) {
        struct packet_udp out;
        char options[40];
        memset(options, 1, sizeof(options)); /* no-operation */
        size_t len = insert(build(0, 9), ETHER + IP, options, n);
        frame[ETHER] = (uint8_t)(0x45 + n / 4);
        frame[ETHER + 3] = (uint8_t)(frame[ETHER + 3] + n);
        fix_ip_checksum(frame + ETHER);
        assert_int_equal(parse_exact(len, 1, &out), PACKET_OK);
        assert_int_equal(out.dst_port, 26477);
        assert_int_equal(out.payload_len, 9);
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(parse(cut), PACKET_SHORT);
    }
}

static void bad_headers(void **state)
{
    (void)state;
    const struct {
        size_t at;
        uint8_t value;
    } bad[] = {
        {ETHER, 0x44},         /* IHL 4 */
        {ETHER, 0x40},         /* IHL 0 */
        {ETHER, 0x65},         /* version 6 under the EtherType of 4 */
        {ETHER + 3, 19},       /* total length below the header's */
        {ETHER + 3, 27},       /* no room for a UDP header */
        {ETHER + IP + 5, 7},   /* UDP length below its header's */
        {ETHER + IP + 5, 0},   /* jumbogram: not in IPv4 */
        {ETHER + IP + 5, 19},  /* UDP length beyond the IP length */
        {ETHER + IP + 4, 255}, /* far beyond */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct packet_udp out;
        size_t len = build(0, 10);
        frame[bad[i].at] = bad[i].value;
        if (bad[i].at == ETHER + 3)
            fix_ip_checksum(frame + ETHER);
        assert_int_equal(parse_exact(len, 1, &out), PACKET_BAD_HEADER);
        assert_int_equal(parse_exact(len, 0, &out), PACKET_BAD_HEADER);
    }
    size_t len = build(0, 10);
    frame[ETHER + 3] = IP + UDP + 11; /* IP length beyond the frame */
    fix_ip_checksum(frame + ETHER);
    assert_int_equal(parse(len), PACKET_SHORT);
}

static void udp_shorter_than_ip(void **state)
{
    (void)state;
    struct packet_udp out;
    size_t len = build(0, 10);
    frame[ETHER + IP + 5] = UDP + 4;
    frame[ETHER + IP + 6] = frame[ETHER + IP + 7] = 0; /* no checksum */
    assert_int_equal(parse_exact(len, 1, &out), PACKET_OK);
    assert_int_equal(out.payload_len, 4);
}

/* Every single flipped bit behind the MAC addresses is noticed: by the checksum or before. */
static void flipped_bits(void **state)
{
    (void)state;
    size_t len = build(0, 33);
    for (size_t bit = ETHER * 8; bit < len * 8; bit++) {
        struct packet_udp out, before;
        memset(&out, 0x55, sizeof(out));
        before = out;
        frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(parse_exact(len, 1, &out), PACKET_OK);
        assert_memory_equal(&out, &before, sizeof(out));
        frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    struct packet_udp out;
    frame[len - 1] ^= 1;
    assert_int_equal(parse(len), PACKET_BAD_CHECKSUM);
    assert_int_equal(packet_parse(frame, len, 0, &out), PACKET_OK);
    frame[ETHER + IP + 6] = frame[ETHER + IP + 7] = 0; /* sent without a checksum */
    assert_int_equal(packet_parse(frame, len, 1, &out), PACKET_OK);
    frame[ETHER + 8] ^= 1; /* TTL: the IP header has a sum of its own */
    assert_int_equal(packet_parse(frame, len, 1, &out), PACKET_BAD_CHECKSUM);
    assert_int_equal(packet_parse(frame, len, 0, &out), PACKET_OK);
}

/* A sum of zero is sent as 0xffff: 0 would say that there is none. */
static void checksum_of_zero(void **state)
{
    (void)state;
    uint8_t payload[2] = {0, 0};
    int seen = 0;
    for (uint32_t value = 0; value < 65536; value++) {
        payload[0] = (uint8_t)(value >> 8);
        payload[1] = (uint8_t)value;
        size_t len = packet_build(frame, src, 49152, dst, 26477, 0, payload, 2);
        const uint8_t *sum = frame + ETHER + IP + 6;
        assert_true(sum[0] || sum[1]);
        seen += sum[0] == 0xff && sum[1] == 0xff;
        struct packet_udp out;
        assert_int_equal(packet_parse(frame, len, 1, &out), PACKET_OK);
    }
    assert_int_equal(seen, 1);
}

static void status_names(void **state)
{
    (void)state;
    assert_string_equal(packet_status_name(PACKET_OK), "ok");
    assert_string_equal(packet_status_name(PACKET_SHORT), "short");
    assert_string_equal(packet_status_name(PACKET_NOT_IPV4), "not-ipv4");
    assert_string_equal(packet_status_name(PACKET_NOT_UDP), "not-udp");
    assert_string_equal(packet_status_name(PACKET_FRAGMENT), "fragment");
    assert_string_equal(packet_status_name(PACKET_BAD_HEADER), "bad-header");
    assert_string_equal(packet_status_name(PACKET_BAD_CHECKSUM), "bad-checksum");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build_and_parse),
        cmocka_unit_test(multicast_address),
        cmocka_unit_test(checksum),
        cmocka_unit_test(cut_frames),
        cmocka_unit_test(ethernet_padding),
        cmocka_unit_test(vlan_tags),
        cmocka_unit_test(other_protocols),
        cmocka_unit_test(fragments),
        cmocka_unit_test(ip_options),
        cmocka_unit_test(bad_headers),
        cmocka_unit_test(udp_shorter_than_ip),
        cmocka_unit_test(flipped_bits),
        cmocka_unit_test(checksum_of_zero),
        cmocka_unit_test(status_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
