#include <stdarg.h>
#include <stdio.h>

#include "kl_tb.h"

void tb_report_mismatch(struct tb_report *report, const char *format, ...)
{
    if (report->n_mismatch++ > 0)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(report->first, sizeof report->first, format, args);
    va_end(args);
}
