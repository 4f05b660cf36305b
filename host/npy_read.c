#include "npy_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PREFIX_BYTES = 10, HEADER_TEXT_BYTES_MAX = 1024 };

__attribute__((format(printf, 3, 4))) static int refuse(char *error, const char *path, const char *format,
                                                        ...)
{
    int n = snprintf(error, NPY_READ_ERROR_CHARS, "%.200s: ", path);
    va_list args;
    va_start(args, format);
    vsnprintf(error + n, NPY_READ_ERROR_CHARS - (size_t)n, format, args);
    va_end(args);
    return -1;
}

/* The value behind 'key': in the header's Python dictionary; NULL: not there. */
static const char *value_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? at + strlen(key) + strspn(at + strlen(key), " ") : NULL;
}

/* "(123,)" or "(123, 20)" into *n_row; nonzero: it has the n_col asked for. */
static int shape_is(const char *shape, uint32_t n_col, uint64_t *n_row)
{
    char *end;
    if (!shape || *shape != '(' || shape[1] < '0' || shape[1] > '9')
        return 0;
    errno = 0;
    *n_row = strtoull(shape + 1, &end, 10);
    if (errno || *end != ',')
        return 0;
    end += 1 + strspn(end + 1, " ");
    if (n_col) {
        if (*end < '0' || *end > '9' || strtoull(end, &end, 10) != n_col)
            return 0;
    }
    return *end == ')';
}

static int read_open(FILE *file, const char *path, const char *dtype, uint32_t n_col, void **rows,
                     uint64_t *n_row, char *error)
{
    static const uint8_t magic[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    uint8_t prefix[PREFIX_BYTES];
    char text[HEADER_TEXT_BYTES_MAX + 1], quoted[16];
    struct stat status;
    size_t row_bytes = strtoul(dtype + 2, NULL, 10) * (n_col ? n_col : 1);
    if (fstat(fileno(file), &status) || !S_ISREG(status.st_mode))
        return refuse(error, path, "not a regular file");
    if (fread(prefix, 1, sizeof(prefix), file) != sizeof(prefix) || memcmp(prefix, magic, sizeof(magic)))
        return refuse(error, path,
                      "not a NumPy file of format 1.0 (offset 0): killline features writes them");
    size_t text_bytes = prefix[8] | (size_t)prefix[9] << 8;
    if (text_bytes > HEADER_TEXT_BYTES_MAX || fread(text, 1, text_bytes, file) != text_bytes)
        return refuse(error, path, "header of %zu bytes (offset 8): too long, or cut short", text_bytes);
    text[text_bytes] = '\0';
    snprintf(quoted, sizeof(quoted), "'%s'", dtype);
    const char *descr = value_of(text, "'descr':"), *order = value_of(text, "'fortran_order':");
    if (!descr || strncmp(descr, quoted, strlen(quoted)) || !order || strncmp(order, "False", 5) ||
        !shape_is(value_of(text, "'shape':"), n_col, n_row))
        return refuse(error, path,
                      "an array of type %s with %u columns (0: one-dimensional) is needed, not %.100s", dtype,
                      n_col, text);
    size_t data_bytes = (size_t)status.st_size - PREFIX_BYTES - text_bytes;
    if (*n_row != data_bytes / row_bytes || data_bytes % row_bytes)
        return refuse(error, path, "%" PRIu64 " rows of %zu bytes by its header, %zu bytes there: cut short?",
                      *n_row, row_bytes, data_bytes);
    *rows = malloc(data_bytes + 1);
    if (!*rows || fread(*rows, 1, data_bytes, file) != data_bytes) {
        free(*rows);
        *rows = NULL;
        return refuse(error, path, "%zu bytes: out of memory, or the disk failed", data_bytes);
    }
    return 0;
}

int npy_read(const char *path, const char *dtype, uint32_t n_col, void **rows, uint64_t *n_row,
             char error[NPY_READ_ERROR_CHARS])
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return refuse(error, path, "%s: killline features --out DIR writes it", strerror(errno));
    int result = read_open(file, path, dtype, n_col, rows, n_row, error);
    fclose(file);
    return result;
}
