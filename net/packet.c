#include "packet.h"

#include <assert.h>
#include <string.h>

#include "be.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "loads and the checksum swap bytes");

enum {
    ETHER_BYTES = 14,
    VLAN_BYTES = 4,
    N_VLAN_MAX = 2, /* 802.1ad: one outer, one inner tag */
    IPV4_BYTES_MIN = 20,
    UDP_BYTES = 8,
    ETHERTYPE_IPV4 = 0x0800,
    ETHERTYPE_VLAN = 0x8100,
    ETHERTYPE_QINQ = 0x88a8,     /* 802.1ad service tag */
    ETHERTYPE_QINQ_OLD = 0x9100, /* what switches used before 802.1ad */
    IPV4_DF = 0x4000,
    IPV4_MF_OR_OFFSET = 0x3fff,
    IPV4_PROTO_UDP = 17,
    IPV4_TTL = 16, /* enough inside one site */
    UDP_PAYLOAD_MAX = 65535 - IPV4_BYTES_MIN - UDP_BYTES,
};

static_assert(PACKET_HEADERS_MAX == ETHER_BYTES + VLAN_BYTES + IPV4_BYTES_MIN + UDP_BYTES,
              "headers packet_build writes");

static uint8_t *store_u16(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
    return p + 2;
}

static uint8_t *store_u32(uint8_t *p, uint32_t value)
{
    return store_u16(store_u16(p, value >> 16), value & 0xffff);
}

uint16_t packet_checksum(const uint8_t *data, size_t len, uint32_t sum)
{
    /* One's complement addition does not care for the order of the bytes (RFC 1071, 2.B), so words are added
     * as they lie in memory, 32 bits at a time into 64 (no carry is lost below 2^34 bytes), and swapped once.
     */
    uint64_t acc = 0;
    size_t i = 0;
    for (; i + 4 <= len; i += 4) {
        uint32_t word;
        memcpy(&word, data + i, sizeof(word));
        acc += word;
    }
    if (i + 2 <= len) {
        uint16_t word;
        memcpy(&word, data + i, sizeof(word));
        acc += word;
        i += 2;
    }
    if (i < len)
        acc += data[i];
    acc = (acc & 0xffffffff) + (acc >> 32);
    acc = (acc & 0xffffffff) + (acc >> 32);
    acc = (acc & 0xffff) + (acc >> 16);
    acc = (acc & 0xffff) + (acc >> 16);
    acc = (uint64_t)__builtin_bswap16((uint16_t)acc) + sum;
    acc = (acc & 0xffff) + (acc >> 16);
    acc = (acc & 0xffff) + (acc >> 16);
    return (uint16_t)~acc;
}

/* Partial sum of the UDP pseudo header (RFC 768). */
static uint32_t pseudo_header_sum(uint32_t src_ip, uint32_t dst_ip, uint32_t udp_len)
{
    return (src_ip >> 16) + (src_ip & 0xffff) + (dst_ip >> 16) + (dst_ip & 0xffff) + IPV4_PROTO_UDP + udp_len;
}

enum packet_status packet_parse(const uint8_t *frame, size_t len, int verify_checksum, struct packet_udp *out)
{
    if (len < ETHER_BYTES)
        return PACKET_SHORT;
    size_t at = ETHER_BYTES;
    uint16_t ethertype = be_load_u16(frame + at - 2), vlan_id = 0;
    for (int n = 0; n < N_VLAN_MAX && (ethertype == ETHERTYPE_VLAN || ethertype == ETHERTYPE_QINQ ||
                                       ethertype == ETHERTYPE_QINQ_OLD);
         n++) {
        if (len - at < VLAN_BYTES)
            return PACKET_SHORT;
        if (n == 0)
            vlan_id = be_load_u16(frame + at) & 0xfff;
        ethertype = be_load_u16(frame + at + 2);
        at += VLAN_BYTES;
    }
    if (ethertype != ETHERTYPE_IPV4)
        return PACKET_NOT_IPV4;

    const uint8_t *ip = frame + at;
    size_t left = len - at;
    if (left < IPV4_BYTES_MIN)
        return PACKET_SHORT;
    size_t ip_header = (size_t)(ip[0] & 15) * 4, ip_len = be_load_u16(ip + 2);
    if (ip[0] >> 4 != 4 || ip_header < IPV4_BYTES_MIN || ip_len < ip_header)
        return PACKET_BAD_HEADER;
    if (left < ip_len)
        return PACKET_SHORT;
    if (verify_checksum && packet_checksum(ip, ip_header, 0) != 0)
        return PACKET_BAD_CHECKSUM;
    if (ip[9] != IPV4_PROTO_UDP)
        return PACKET_NOT_UDP;
    if (be_load_u16(ip + 6) & IPV4_MF_OR_OFFSET)
        return PACKET_FRAGMENT;

    const uint8_t *udp = ip + ip_header;
    if (ip_len - ip_header < UDP_BYTES)
        return PACKET_BAD_HEADER;
    size_t udp_len = be_load_u16(udp + 4);
    if (udp_len < UDP_BYTES || udp_len > ip_len - ip_header)
        return PACKET_BAD_HEADER;
    uint32_t src_ip = be_load_u32(ip + 12), dst_ip = be_load_u32(ip + 16);
    if (verify_checksum && be_load_u16(udp + 6) != 0 &&
        packet_checksum(udp, udp_len, pseudo_header_sum(src_ip, dst_ip, (uint32_t)udp_len)) != 0)
        return PACKET_BAD_CHECKSUM;

    out->payload = udp + UDP_BYTES;
    out->payload_len = (uint16_t)(udp_len - UDP_BYTES);
    out->src_port = be_load_u16(udp);
    out->dst_port = be_load_u16(udp + 2);
    out->src_ip = src_ip;
    out->dst_ip = dst_ip;
    out->vlan_id = vlan_id;
    return PACKET_OK;
}

const char *packet_status_name(enum packet_status status)
{
    switch (status) {
    case PACKET_OK:
        return "ok";
    case PACKET_SHORT:
        return "short";
    case PACKET_NOT_IPV4:
        return "not-ipv4";
    case PACKET_NOT_UDP:
        return "not-udp";
    case PACKET_FRAGMENT:
        return "fragment";
    case PACKET_BAD_HEADER:
        return "bad-header";
    case PACKET_BAD_CHECKSUM:
        return "bad-checksum";
    }
    assert(!"a status that packet_parse does not return");
    return "?";
}

size_t packet_build(uint8_t *frame, uint32_t src_ip, uint16_t src_port, uint32_t dst_ip, uint16_t dst_port,
                    uint16_t vlan_id, const uint8_t *payload, uint16_t payload_len)
{
    assert(payload_len <= UDP_PAYLOAD_MAX && vlan_id < 4096);
    uint8_t *p = frame;
    if (dst_ip >> 28 == 0xe) { /* RFC 1112, 6.4 */
        p = store_u16(p, 0x0100);
        p = store_u32(p, 0x5e000000 | (dst_ip & 0x7fffff));
    } else {
        p = store_u16(p, 0x0200);
        p = store_u32(p, dst_ip);
    }
    p = store_u16(p, 0x0200); /* locally administered */
    p = store_u32(p, src_ip);
    if (vlan_id) {
        p = store_u16(p, ETHERTYPE_VLAN);
        p = store_u16(p, vlan_id);
    }
    p = store_u16(p, ETHERTYPE_IPV4);

    uint8_t *ip = p;
    uint32_t udp_len = (uint32_t)UDP_BYTES + payload_len;
    p = store_u16(p, 0x4500);
    p = store_u16(p, IPV4_BYTES_MIN + udp_len);
    p = store_u16(p, 0); /* identification: free with DF (RFC 6864, 4.1) */
    p = store_u16(p, IPV4_DF);
    p = store_u16(p, IPV4_TTL << 8 | IPV4_PROTO_UDP);
    p = store_u16(p, 0);
    p = store_u32(p, src_ip);
    p = store_u32(p, dst_ip);
    store_u16(ip + 10, packet_checksum(ip, IPV4_BYTES_MIN, 0));

    uint8_t *udp = p;
    p = store_u16(p, src_port);
    p = store_u16(p, dst_port);
    p = store_u16(p, udp_len);
    p = store_u16(p, 0);
    if (payload_len)
        memcpy(p, payload, payload_len);
    uint16_t sum = packet_checksum(udp, udp_len, pseudo_header_sum(src_ip, dst_ip, udp_len));
    store_u16(udp + 6, sum ? sum : 0xffff); /* 0 on the wire means: no checksum */
    return (size_t)(p + payload_len - frame);
}
