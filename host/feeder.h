/* Plays a capture into a ring port from a thread of its own, so that the poll loop's side of the port behaves
 * like a NIC's: frames are simply there. Waits for room when the ring is full: nothing is lost. */
#ifndef FEEDER_H
#define FEEDER_H

#include "../net/capture.h"
#include "../net/port.h"
#include "clock.h"

struct feeder;

/* pace: 0 as fast as the poll loop takes it; 1 at the capture's own speed, 10 ten times as fast. n_frame: how
 * many to play (a torn capture's good part). NULL with a message in error. */
struct feeder *feeder_start(const char *path, enum capture_kind kind, struct port *port, double pace,
                            uint64_t n_frame, const struct clock_calibration *clock,
                            char error[CAPTURE_ERROR_CHARS]);
/* NULL, or why it could not play all n_frame frames ("": the capture's end came too early): the file was
 * changed after it had been counted. Nothing more will come then. Any thread; valid until feeder_stop. */
const char *feeder_fell_short(struct feeder *feeder);
/* Ends the thread, whether or not it is through, and frees it. */
void feeder_stop(struct feeder *feeder);

#endif
