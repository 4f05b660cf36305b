/* How the report page writes values: numbers with their units, and text from the log, which reaches the page
 * through report_put_text only. Errors of the stream are the caller's to ask for (ferror). */
#ifndef REPORT_TEXT_H
#define REPORT_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* At most size bytes of text, up to the first NUL, escaped for HTML; what is not printable ASCII is replaced.
 */
void report_put_text(FILE *out, const char *text, size_t size);
/* 1234567 as 1,234,567. */
void report_put_count(FILE *out, uint64_t n);
/* hh:mm:ss.uuuuuu, of ns since midnight. */
void report_put_time(FILE *out, uint64_t ts_ns);
/* A duration: three significant digits in the unit that suits. */
void report_put_ns(FILE *out, double ns);
/* part of whole; a few are never shown as none, nor nearly all as all. */
void report_put_percent(FILE *out, uint64_t part, uint64_t whole);

#endif
