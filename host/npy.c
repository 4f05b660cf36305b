#include "npy.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18 };

struct npy {
    int fd;
    char dtype[4];
    uint32_t n_col;
    size_t row_bytes;
    size_t n_buffered, n_buffer; /* rows, filled and at most */
    uint64_t n_written;          /* rows on disk */
    char path[4096];
    uint8_t buffer[BUFFER_BYTES];
};

void npy_header(uint8_t out[NPY_HEADER_BYTES], const char *dtype, uint64_t n_row, uint32_t n_col)
{
    static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    enum { PREFIX = sizeof(magic) + 2, TEXT = NPY_HEADER_BYTES - PREFIX };
    char text[TEXT + 1], columns[16] = "";
    if (n_col)
        snprintf(columns, sizeof(columns), " %" PRIu32, n_col);
    int len =
        snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRIu64 ",%s), }",
                 dtype, n_row, columns);
    assert(len > 0 && len < TEXT);
    memcpy(out, magic, sizeof(magic));
    out[sizeof(magic)] = TEXT & 0xff;
    out[sizeof(magic) + 1] = TEXT >> 8;
    memset(out + PREFIX, ' ', TEXT);
    memcpy(out + PREFIX, text, (size_t)len);
    out[NPY_HEADER_BYTES - 1] = '\n';
}

static int write_at(const struct npy *npy, const void *data, size_t size_bytes, uint64_t offset,
                    char error[NPY_ERROR_CHARS])
{
    const uint8_t *from = data;
    while (size_bytes > 0) {
        ssize_t n = pwrite(npy->fd, from, size_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            snprintf(error, NPY_ERROR_CHARS, "%.150s: cannot write at offset %" PRIu64 ": %s", npy->path,
                     offset, n < 0 ? strerror(errno) : "nothing was written; is the disk full?");
            return -1;
        }
        from += n;
        size_bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static uint64_t row_offset(const struct npy *npy, uint64_t index)
{
    return NPY_HEADER_BYTES + index * npy->row_bytes;
}

static int write_header(const struct npy *npy, uint64_t n_row, char error[NPY_ERROR_CHARS])
{
    uint8_t header[NPY_HEADER_BYTES];
    npy_header(header, npy->dtype, n_row, npy->n_col);
    return write_at(npy, header, sizeof(header), 0, error);
}

struct npy *npy_create(const char *path, const char *dtype, uint32_t n_col, char error[NPY_ERROR_CHARS])
{
    assert(strlen(dtype) == 3 && dtype[2] >= '1' && dtype[2] <= '8');
    struct npy *npy = malloc(sizeof(*npy));
    if (!npy) {
        snprintf(error, NPY_ERROR_CHARS, "%.150s: out of memory", path);
        return NULL;
    }
    npy->row_bytes = (size_t)(dtype[2] - '0') * (n_col ? n_col : 1);
    assert(npy->row_bytes <= BUFFER_BYTES);
    npy->n_buffer = BUFFER_BYTES / npy->row_bytes;
    npy->n_buffered = 0;
    npy->n_written = 0;
    npy->n_col = n_col;
    memcpy(npy->dtype, dtype, sizeof(npy->dtype));
    snprintf(npy->path, sizeof(npy->path), "%s", path);
    npy->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (npy->fd < 0) {
        snprintf(error, NPY_ERROR_CHARS, "%.150s: cannot create: %s", path, strerror(errno));
        free(npy);
        return NULL;
    }
    if (write_header(npy, 0, error)) {
        npy_abort(npy);
        return NULL;
    }
    return npy;
}

static int write_buffer(struct npy *npy, char error[NPY_ERROR_CHARS])
{
    if (write_at(npy, npy->buffer, npy->n_buffered * npy->row_bytes, row_offset(npy, npy->n_written), error))
        return -1;
    npy->n_written += npy->n_buffered;
    npy->n_buffered = 0;
    return 0;
}

int npy_append(struct npy *npy, const void *row, char error[NPY_ERROR_CHARS])
{
    if (npy->n_buffered == npy->n_buffer && write_buffer(npy, error))
        return -1;
    memcpy(npy->buffer + npy->n_buffered * npy->row_bytes, row, npy->row_bytes);
    npy->n_buffered++;
    return 0;
}

int npy_replace(struct npy *npy, uint64_t index, const void *row, char error[NPY_ERROR_CHARS])
{
    assert(index < npy_rows(npy));
    if (index < npy->n_written)
        return write_at(npy, row, npy->row_bytes, row_offset(npy, index), error);
    memcpy(npy->buffer + (index - npy->n_written) * npy->row_bytes, row, npy->row_bytes);
    return 0;
}

uint64_t npy_rows(const struct npy *npy)
{
    return npy->n_written + npy->n_buffered;
}

int npy_close(struct npy *npy, char error[NPY_ERROR_CHARS])
{
    int failed = write_buffer(npy, error) || write_header(npy, npy->n_written, error);
    if (close(npy->fd) && !failed) {
        snprintf(error, NPY_ERROR_CHARS, "%.150s: cannot close: %s", npy->path, strerror(errno));
        failed = 1;
    }
    free(npy);
    return failed ? -1 : 0;
}

void npy_abort(struct npy *npy)
{
    if (!npy)
        return;
    close(npy->fd);
    free(npy);
}
