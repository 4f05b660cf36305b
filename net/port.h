/* DPDK ports: the only file of the product that sees rte_*.
 *
 * EAL is started by us, with our own arguments, on virtual devices (no PCI, no hugepages, no files left
 * behind); the calling thread's CPU affinity is put back. One EAL per process, for its lifetime. A port is
 * used by one thread; feeding a ring port is another thread's. Receive: port_receive, then each packet, then
 * port_release; the caller reads the clock between the first two. No allocation on either path but mbufs. */
#ifndef PORT_H
#define PORT_H

#include <stdint.h>

enum { PORT_BURST = 32, PORT_ERROR_CHARS = 256, PORT_FRAME_MAX = 1514 };

/* Starts EAL. 0, or -1 with a message. A second call in the process succeeds and does nothing. */
int port_init(char error[PORT_ERROR_CHARS]);

/* "DPDK 22.11.7", of the library that is loaded. */
const char *port_library_version(void);

struct port;

/* Receive port on a capture, through the net_pcap driver (pcap or pcapng). NULL with a message: the file is
 * missing, no capture, or the driver refused it. */
struct port *port_open_pcap(const char *path, char error[PORT_ERROR_CHARS]);
/* Receive port on a ring that port_feed fills: 1,024 frames deep. */
struct port *port_open_ring(char error[PORT_ERROR_CHARS]);
/* Send port: device "" writes the frames to the pcap file at path, else a DPDK vdev such as "net_null0". */
struct port *port_open_tx(const char *device, const char *path, char error[PORT_ERROR_CHARS]);
/* Stops and closes the device; what was sent is on its way (a pcap file: written). */
void port_close(struct port *port);

/* Takes what has arrived, at most PORT_BURST packets; 0: nothing. */
unsigned port_receive(struct port *port);
/* Packet i of the burst: contiguous, valid until port_release. */
const uint8_t *port_packet(struct port *port, unsigned i, uint32_t *len);
void port_release(struct port *port);

/* Packets that wait to be received, as far as the device says; *size: how many it holds. 0 of 0: it does not
 * say. */
unsigned port_waiting(const struct port *port, unsigned *size);

/* Ring port, feeder's thread: appends a copy of the frame. 0, or -1 when the ring or the pool is full: try
 * again. */
int port_feed(struct port *port, const uint8_t *frame, uint32_t len);

/* Send port: the next frame's buffer, PORT_FRAME_MAX bytes, or NULL when the pool is empty (count it: nothing
 * can be sent). It stays reserved until port_send; calling again returns the same buffer. */
uint8_t *port_tx_buffer(struct port *port);
/* Hint, for a moment when nothing is urgent: reserves the next frame's buffer and brings its first 192 bytes
 * into the cache. Every send takes another buffer of the pool, which has not been touched for a thousand
 * sends: building and sending a prediction takes 40 instead of 280 ns (killline bench pipeline, p50). */
void port_tx_prepare(struct port *port);
/* Sends the buffer's first len bytes. 0, or -1 when the device took nothing (the buffer stays reserved). */
int port_send(struct port *port, uint32_t len);

#endif
