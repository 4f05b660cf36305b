/* Properties: messages lie within the file and follow each other by their framing; read as frames, the same
 * messages come in the same order and numbers; an error names an offset in the file and stays. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net/capture.h"
#include "net/itch.h"
#include "net/moldudp64.h"
#include "net/packet.h"

/* The next message of the frames in by_frame, read into a frame at a time. */
struct frame_walk {
    struct capture *capture;
    const uint8_t *block;
    uint32_t left;
    uint64_t seq_no;
};

static int next_of_frames(struct frame_walk *walk, const uint8_t **msg, uint16_t *len)
{
    char error[CAPTURE_ERROR_CHARS];
    if (walk->left == 0) {
        struct capture_frame frame;
        struct packet_udp udp;
        struct mold_packet_header header;
        int status = capture_next_frame(walk->capture, &frame, error);
        if (status <= 0)
            return status;
        assert(frame.len <= CAPTURE_FRAME_MAX);
        assert(packet_parse(frame.data, frame.len, 1, &udp) == PACKET_OK);
        assert(mold_parse(udp.payload, udp.payload_len, &header) == 0);
        assert(header.bytes == udp.payload_len && header.n_message > 0);
        assert(header.n_message == 1 || udp.payload_len <= 1400);
        assert(header.seq_no == walk->seq_no + 1);
        walk->block = udp.payload + MOLD_HEADER_BYTES;
        walk->left = header.n_message;
    }
    *len = be_load_u16(walk->block);
    *msg = walk->block + 2;
    walk->block += 2 + *len;
    walk->left--;
    walk->seq_no++;
    return 1;
}

/* What is refused at once: nothing, gzip, and what begins as a pcap or pcapng does. */
static int is_no_day(const uint8_t *data, size_t size)
{
    static const char *const begins[] = {"\x1f\x8b",         "\xa1\xb2\xc3\xd4", "\xd4\xc3\xb2\xa1",
                                         "\xa1\xb2\x3c\x4d", "\x4d\x3c\xb2\xa1", "\xa1\xb2\xcd\x34",
                                         "\x34\xcd\xb2\xa1", "\x0a\x0d\x0d\x0a"};
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        size_t n = strlen(begins[i]);
        if (size >= n && !memcmp(data, begins[i], n))
            return 1;
    }
    return size == 0;
}

static void read_all(const char *path, const uint8_t *data, size_t size)
{
    char error[CAPTURE_ERROR_CHARS];
    struct capture *capture = capture_open(path, CAPTURE_BINARYFILE, error);
    assert((capture == NULL) == is_no_day(data, size));
    if (!capture)
        return;
    struct frame_walk walk = {.capture = capture_open(path, CAPTURE_BINARYFILE, error)};
    assert(walk.capture && capture_size(capture) == size);
    const uint8_t *msg, *same;
    uint16_t len, same_len;
    uint64_t offset = 0;
    int status;
    while ((status = capture_next_message(capture, &msg, &len, error)) > 0) {
        assert(capture_offset(capture) == offset + 2 + len && capture_offset(capture) <= size);
        assert(!memcmp(msg, data + offset + 2, len));
        assert(be_load_u16(data + offset) == len ||
               (be_load_u16(data + offset) == 0 && itch_message_bytes(msg[0]) == len));
        offset = capture_offset(capture);
        assert(next_of_frames(&walk, &same, &same_len) == 1);
        assert(same_len == len && !memcmp(same, msg, len));
    }
    assert(capture_offset(capture) == offset);
    assert(status == 0 || strstr(error, "offset"));
    assert(status < 0 || size - offset == 0 || (size - offset == 2 && !data[offset] && !data[offset + 1]));
    assert(next_of_frames(&walk, &same, &same_len) == status);
    assert(capture_next_message(capture, &msg, &len, error) == status);
    capture_close(walk.capture);
    capture_close(capture);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("binaryfile", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read_all(path, data, size);
    close(fd);
    return 0;
}
