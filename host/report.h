/* HTML report of an audit log: one self-contained page (inline SVG and CSS, no script, no network).
 *
 * Latency histogram (log axis) with the kill line drawn in, verdicts by cause, stages, verdicts over time,
 * the worst published predictions, events; says which clock the run used and that replay figures are
 * modelled. */
#ifndef REPORT_H
#define REPORT_H

#include "audit.h"

/* Reads and verifies the log (two passes, constant memory), writes the page; an existing page is replaced.
 * 0: done. 1: the page is written and covers the intact records, but the log does not verify (not closed,
 * torn, altered): the page says so on top, and error says why. -1: no page; error says why. */
int report_write(const char *audit_path, const char *html_path, char error[AUDIT_ERROR_CHARS]);

/* The same, calling progress (may be NULL) now and then with the records read so far and those of both
 * passes. */
int report_write_progress(const char *audit_path, const char *html_path,
                          void (*progress)(uint64_t done, uint64_t total), char error[AUDIT_ERROR_CHARS]);

#endif
