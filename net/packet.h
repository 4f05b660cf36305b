/* Ethernet, 802.1Q/QinQ, IPv4 and UDP headers of one frame: bounds, fragments, options, checksums.
 *
 * Knows no mbuf: takes (pointer, length), so it is tested and fuzzed without DPDK. Any thread. */
#ifndef PACKET_H
#define PACKET_H

#include <stddef.h>
#include <stdint.h>

enum packet_status {
    PACKET_OK = 0,
    PACKET_SHORT = -1, /* frame ends inside a header, or a length field promises more than there is: drop */
    PACKET_NOT_IPV4 = -2,     /* ARP, IPv6, LLDP ...: not ours, drop quietly */
    PACKET_NOT_UDP = -3,      /* IGMP, TCP ...: not ours, drop quietly */
    PACKET_FRAGMENT = -4,     /* feeds never fragment; a fragment is never read as a datagram: drop */
    PACKET_BAD_HEADER = -5,   /* IHL < 5, UDP length < 8 or beyond the IP length: drop */
    PACKET_BAD_CHECKSUM = -6, /* IPv4 header or UDP checksum wrong: damaged on its way, drop */
};

struct packet_udp {
    const uint8_t *payload; /* into the frame; lives as long as it */
    uint16_t payload_len;   /* from the UDP header, never from the frame: Ethernet pads */
    uint16_t src_port, dst_port;
    uint32_t src_ip, dst_ip; /* host order */
    uint16_t vlan_id;        /* outermost tag; 0 when untagged */
};

/* Parses frame. verify_checksum: check the IPv4 header sum, and the UDP sum where it is not 0; pass 0 only
 * when the NIC has checked it. At most two VLAN tags (0x8100, 0x88a8, 0x9100); a third is PACKET_NOT_IPV4.
 * *out is written only on PACKET_OK. Source: IEEE 802.1Q-2018 9.6, RFC 791, RFC 768. */
enum packet_status packet_parse(const uint8_t *frame, size_t len, int verify_checksum,
                                struct packet_udp *out);

/* "short", "not-ipv4" ...: for reports. */
const char *packet_status_name(enum packet_status status);

/* Internet checksum (RFC 1071) over len bytes, started at sum (host-order partial). Returns the folded one's
 * complement, host order. Used by the egress and by sim/ to write headers. */
uint16_t packet_checksum(const uint8_t *data, size_t len, uint32_t sum);

/* Writes Ethernet (optional VLAN), IPv4 and UDP headers in front of a payload, checksums included.
 * frame has room for PACKET_HEADERS_MAX + payload_len; the payload (at most 65,507 bytes; not inside frame)
 * is copied behind the headers. vlan_id 0: untagged; below 4,096. DF set, TTL 16. Not padded to Ethernet's
 * minimum. MAC addresses: 02:00 + the IP address; dst_ip multicast: 01:00:5e + its low 23 bits. Returns the
 * frame's length. */
enum { PACKET_HEADERS_MAX = 46 };
size_t packet_build(uint8_t *frame, uint32_t src_ip, uint16_t src_port, uint32_t dst_ip, uint16_t dst_port,
                    uint16_t vlan_id, const uint8_t *payload, uint16_t payload_len);

#endif
