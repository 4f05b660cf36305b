/* HTML report of an audit log: one self-contained page (inline SVG and CSS, no script from elsewhere, no network).
 *
 * Latency histogram (log axis) with the kill line drawn in, verdicts by cause, stages, verdicts over time, the
 * worst published predictions, events; says which clock the run used and that replay figures are modelled. */
#ifndef REPORT_H
#define REPORT_H

#include "audit.h"

/* Reads and verifies the log, writes the page. 0, or -1 with a message in error. */
int report_write(const char *audit_path, const char *html_path, char error[AUDIT_ERROR_CHARS]);

#endif
