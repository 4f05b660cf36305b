/* Reads an audit log into a sweep's sums: what each prediction would have been at every threshold, and what
 * the market did after it. Streams; memory is bounded by the symbols and the predictions within a horizon.
 *
 * Outcome of an answer that has both sides of the book (mid = bid + ask, half-units of 1e-4 USD, exact):
 *   N ticks  the mid of the N-th later record of its symbol that has both sides
 *   time     the last mid known at feed_ts_ns + time; a record at that moment or later has to be there
 * Between the two the market must have been seen: a gap, lost records, a halt of the symbol, a record
 * book-unreliable or halted by its symbol, or the session's end, and the outcome is unknown. The appliance's
 * own halt is none of these. A record that is older than the symbol's last one (written late) is counted as
 * disordered, and has no outcome. */
#ifndef SWEEP_LOG_H
#define SWEEP_LOG_H

#include "sweep_sums.h"

/* progress: may be NULL; called with the records read since the last call. 0: done, and warning is not empty
 * when the log was not closed, and was used up to its end. -1: the log cannot be read, does not verify, or
 * does not belong to those in sums, which are then of no more use; error names it. */
int sweep_log_read(const char *path, struct sweep_sums *sums, void (*progress)(uint64_t records),
                   char warning[SWEEP_ERROR_CHARS], char error[SWEEP_ERROR_CHARS]);

#endif
