#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report_data.h"
#include "report_page.h"
#include "whole_file.h"

static void page(FILE *out, const void *data)
{
    report_page(out, data);
}

static int write_page(const struct report_data *r, const char *html_path, char error[AUDIT_ERROR_CHARS])
{
    if (!whole_file_write(html_path, 0, page, r))
        return 0;
    snprintf(error, AUDIT_ERROR_CHARS, "%.150s: cannot write the report: %s; choose another --out", html_path,
             strerror(errno));
    return -1;
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
