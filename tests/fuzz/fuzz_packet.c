/* Properties: a parsed payload lies within the frame, behind its headers; with checksums verified nothing
 * passes that does not pass without; what packet_build writes around the payload parses back to it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "net/packet.h"

static void rebuild(const struct packet_udp *udp)
{
    uint8_t *frame = malloc(PACKET_HEADERS_MAX + udp->payload_len);
    struct packet_udp again;
    assert(frame);
    size_t len = packet_build(frame, udp->src_ip, udp->src_port, udp->dst_ip, udp->dst_port, udp->vlan_id,
                              udp->payload, udp->payload_len);
    assert(len <= PACKET_HEADERS_MAX + (size_t)udp->payload_len);
    assert(packet_parse(frame, len, 1, &again) == PACKET_OK);
    assert(again.src_ip == udp->src_ip && again.src_port == udp->src_port);
    assert(again.dst_ip == udp->dst_ip && again.dst_port == udp->dst_port && again.vlan_id == udp->vlan_id);
    assert(again.payload_len == udp->payload_len);
    assert(!memcmp(again.payload, udp->payload, udp->payload_len));
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct packet_udp udp, unchecked;
    enum packet_status status = packet_parse(data, size, 1, &udp);
    enum packet_status without = packet_parse(data, size, 0, &unchecked);
    assert(packet_status_name(status)[0] != '?');
    assert(without != PACKET_BAD_CHECKSUM);
    assert(status == without || status == PACKET_BAD_CHECKSUM);
    if (without != PACKET_OK)
        return 0;
    assert(unchecked.payload >= data + 14 + 20 + 8);
    assert(unchecked.payload + unchecked.payload_len <= data + size);
    assert(unchecked.vlan_id < 4096);
    if (status == PACKET_OK)
        assert(udp.payload == unchecked.payload && udp.payload_len == unchecked.payload_len);
    rebuild(&unchecked);
    return 0;
}
