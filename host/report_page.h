/* The report as one HTML page without script or network: its head, its sections, the facts behind it. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <stdio.h>

#include "report_data.h"

/* The whole page, to a stream; ask ferror(out) afterwards. */
void report_page(FILE *out, const struct report_data *data);

#endif
