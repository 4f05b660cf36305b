#include "report_text.h"

#include <inttypes.h>
#include <math.h>

void report_put_text(FILE *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
            fprintf(out, "&#%d;", c);
        else if (c < 0x20 || c > 0x7e)
            fputs("&#xfffd;", out);
        else
            fputc(c, out);
    }
}

void report_put_count(FILE *out, uint64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, n);
    for (int i = 0; i < length; i++) {
        fputc(digits[i], out);
        if (i + 1 < length && (length - 1 - i) % 3 == 0)
            fputc(',', out);
    }
}

void report_put_time(FILE *out, uint64_t ts_ns)
{
    uint64_t s = ts_ns / 1000000000u;
    fprintf(out, "%02" PRIu64 ":%02u:%02u.%06u", s / 3600, (unsigned)(s / 60 % 60), (unsigned)(s % 60),
            (unsigned)(ts_ns % 1000000000u / 1000));
}

void report_put_ns(FILE *out, double ns)
{
    static const struct {
        double scale;
        const char *unit;
    } units[] = {{1, "ns"}, {1e3, "\xc2\xb5s"}, {1e6, "ms"}, {1e9, "s"}};
    int u = ns < 999.5 ? 0 : ns < 999.5e3 ? 1 : ns < 999.5e6 ? 2 : 3;
    double v = ns / units[u].scale;
    int decimals = u == 0 ? (v < 9.95 && v != floor(v)) : v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    fprintf(out, "%.*f %s", decimals, v, units[u].unit);
}

void report_put_percent(FILE *out, uint64_t part, uint64_t whole)
{
    double percent = whole ? 100.0 * (double)part / (double)whole : 0;
    /* A few are never shown as none, nor nearly all as all. */
    if (part && percent < 0.001)
        fputs("&lt; 0.001 %", out);
    else if (part < whole && percent > 99.999)
        fputs("&gt; 99.999 %", out);
    else
        fprintf(out,
                percent >= 99.95 && part < whole ? "%.3f %%"
                : percent >= 1 || part == 0      ? "%.1f %%"
                                                 : "%.3f %%",
                percent);
}
