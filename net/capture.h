/* Captures on disk as a sequence of frames: pcap and pcapng (libpcap), and the exchange's BinaryFILE day
 * format (2-byte big-endian length before each ITCH message; a zero length stands for the type's own length),
 * whose messages are put into MoldUDP64 frames, so that everything behind has one kind of input.
 *
 * Offline: reads ahead from disk; not for the poll loop. One thread per capture. */
#ifndef CAPTURE_H
#define CAPTURE_H

#include <stddef.h>
#include <stdint.h>

/* No frame is longer: 14 bytes of Ethernet, two VLAN tags, the longest IPv4 datagram. */
enum { CAPTURE_ERROR_CHARS = 512, CAPTURE_FRAME_MAX = 14 + 2 * 4 + 65535 };

enum capture_kind { CAPTURE_PCAP = 1, CAPTURE_BINARYFILE = 2 };

struct capture_frame {
    const uint8_t *data; /* valid until the next call */
    uint32_t len;
    uint64_t ts_ns; /* pcap: ns since the epoch; BinaryFILE: the messages' feed time, ns since midnight */
};

struct capture;

/* kind 0: told apart by the first bytes (pcap and pcapng have a magic; everything else is taken for a
 * BinaryFILE). NULL with a message (file, reason, remedy) in error: unreadable, empty, compressed, not a
 * regular file, a pcap of another link type than Ethernet. The file must not be shortened while it is open.
 */
struct capture *capture_open(const char *path, enum capture_kind kind, char error[CAPTURE_ERROR_CHARS]);
enum capture_kind capture_kind(const struct capture *capture);

/* Next frame: 1, 0 at the end, -1 with a message (file, offset, remedy) when the rest cannot be read: a torn
 * last record, a length no message can have. What came before stays good. pcap: ts_ns in full nanosecond
 * precision; a frame that the capture cut (snap length) is as long as what is there. BinaryFILE: messages of
 * one timestamp share a frame up to 1,400 payload bytes (as the exchange batches); session "BINARYFILE",
 * sequence = message number in the file, from 1; group 233.54.12.111:26477. A zero length at the very end of
 * the file is its end marker. */
int capture_next_frame(struct capture *capture, struct capture_frame *frame, char error[CAPTURE_ERROR_CHARS]);

/* BinaryFILE only: next message itself (it stays valid until capture_close), without a frame; not mixed with
 * capture_next_frame. Returns as above. */
int capture_next_message(struct capture *capture, const uint8_t **msg, uint16_t *len,
                         char error[CAPTURE_ERROR_CHARS]);

/* Bytes of the file read so far and in all: for progress. */
uint64_t capture_offset(const struct capture *capture);
uint64_t capture_size(const struct capture *capture);

void capture_close(struct capture *capture);

#endif
