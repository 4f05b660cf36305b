#include "cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int cmd_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    cmd_progress_done();
    fputs("killline: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return 1;
}

static int progress_shown;
static double progress_start_s, progress_last_s;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cmd_progress(const char *what, const char *unit, unsigned long long done, unsigned long long total)
{
    const double quiet_s = 2.0, step_s = 0.2;
    double now = now_s();
    if (progress_start_s == 0)
        progress_start_s = now;
    if (now - progress_start_s < quiet_s || now - progress_last_s < step_s)
        return;
    progress_last_s = now;
    /* On a terminal one line is rewritten; in a log file a line every 200 ms would be noise. */
    if (!isatty(STDERR_FILENO) && progress_shown && now - progress_start_s < 5.0 * progress_shown)
        return;
    progress_shown++;
    double rate = (double)done / (now - progress_start_s);
    const char *head = isatty(STDERR_FILENO) ? "\r\033[K" : "", *tail = isatty(STDERR_FILENO) ? "" : "\n";
    if (total)
        fprintf(stderr, "%s%s: %llu of %llu %s (%.0f %%), %.0f s left%s", head, what, done, total, unit,
                100.0 * (double)done / (double)total, (double)(total - (done < total ? done : total)) / rate,
                tail);
    else
        fprintf(stderr, "%s%s: %llu %s%s", head, what, done, unit, tail);
    fflush(stderr);
}

void cmd_progress_done(void)
{
    if (progress_shown && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    progress_shown = 0;
    progress_start_s = progress_last_s = 0;
}

int cmd_parse_u64(const char *text, unsigned long long min, unsigned long long max, unsigned long long *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10), unit = 1;
    if (*end == 'k' || *end == 'M' || *end == 'G') {
        unit = *end == 'k' ? 1000ull : *end == 'M' ? 1000000ull : 1000000000ull;
        end++;
    }
    if (errno || *end || value > max / unit || value * unit < min || value * unit > max)
        return -1;
    *out = value * unit;
    return 0;
}
