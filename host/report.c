#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report_data.h"
#include "report_page.h"

/* Beside the page, then renamed over it: a reader never sees half a page. */
static int write_page(const struct report_data *r, const char *html_path, char error[AUDIT_ERROR_CHARS])
{
    char *part = NULL;
    if (asprintf(&part, "%s.part", html_path) < 0) {
        snprintf(error, AUDIT_ERROR_CHARS, "report: out of memory");
        return -1;
    }
    FILE *out = fopen(part, "we");
    int failed = 1, e = errno;
    if (out) {
        report_page(out, r);
        failed = fflush(out) != 0 || ferror(out);
        e = errno;
        if (fclose(out) != 0 && !failed) {
            failed = 1;
            e = errno;
        }
        if (!failed && rename(part, html_path) != 0) {
            failed = 1;
            e = errno;
        }
        if (failed)
            unlink(part);
    }
    free(part);
    if (failed)
        snprintf(error, AUDIT_ERROR_CHARS, "%.150s: cannot write the report: %s; choose another --out",
                 html_path, strerror(e));
    return failed ? -1 : 0;
}

int report_write_progress(const char *audit_path, const char *html_path,
                          void (*progress)(uint64_t done, uint64_t total), char error[AUDIT_ERROR_CHARS])
{
    struct report_data *r = calloc(1, sizeof(*r));
    if (!r) {
        snprintf(error, AUDIT_ERROR_CHARS, "report: out of memory");
        return -1;
    }
    int status = report_data_read(r, audit_path, progress, error);
    if (status >= 0 && write_page(r, html_path, error) != 0)
        status = -1;
    if (status == 1)
        memcpy(error, r->problem, AUDIT_ERROR_CHARS);
    report_data_clear(r);
    free(r);
    return status;
}

int report_write(const char *audit_path, const char *html_path, char error[AUDIT_ERROR_CHARS])
{
    return report_write_progress(audit_path, html_path, NULL, error);
}
