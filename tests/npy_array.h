/* Arrays that killline features has written, for tests. */
#ifndef NPY_ARRAY_H
#define NPY_ARRAY_H

#include <stdio.h>
#include <stdlib.h>

#include "host/npy_read.h"

struct npy_array {
    uint64_t n_row;
    void *data; /* free it */
};

/* Ends the test program with a message when the file is not of this dtype and width. */
static inline struct npy_array npy_array(const char *dir, const char *file, const char *dtype, uint32_t n_col)
{
    struct npy_array array;
    char path[4096], error[NPY_READ_ERROR_CHARS];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    if (npy_read(path, dtype, n_col, &array.data, &array.n_row, error)) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
    return array;
}

#endif
