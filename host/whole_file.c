#include "whole_file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0, or -1 with errno. */
static int write_to(const char *path, int is_durable, void (*write)(FILE *out, const void *ctx),
                    const void *ctx)
{
    FILE *out = fopen(path, "we");
    if (!out)
        return -1;
    write(out, ctx);
    int failed = fflush(out) != 0 || ferror(out) || (is_durable && fsync(fileno(out)) != 0), e = errno;
    if (fclose(out) != 0 && !failed) {
        failed = 1;
        e = errno;
    }
    errno = e;
    return failed ? -1 : 0;
}

int whole_file_write(const char *path, int is_durable, void (*write)(FILE *out, const void *ctx),
                     const void *ctx)
{
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return write_to(path, 0, write, ctx);
    char *part = NULL;
    if (asprintf(&part, "%s.part", path) < 0) {
        errno = ENOMEM;
        return -1;
    }
    const int failed = write_to(part, is_durable, write, ctx) || rename(part, path);
    const int e = errno;
    if (failed)
        unlink(part);
    free(part);
    errno = e;
    return failed ? -1 : 0;
}
