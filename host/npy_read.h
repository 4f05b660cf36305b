/* Reads a NumPy array (.npy, format 1.0, C order, little-endian) whole into memory. Other half of npy.h. */
#ifndef NPY_READ_H
#define NPY_READ_H

#include <stddef.h>
#include <stdint.h>

enum { NPY_READ_ERROR_CHARS = 512 };

/* dtype as in npy.h: "<f4", "<u2", "|i1"; n_col 0: one-dimensional. *rows: malloc'd, *n_row rows of
 * max(n_col, 1) elements, the caller frees it; never NULL on success. 0, or -1 with a message: file, what was
 * found, remedy. The file is untrusted: what its header says must be what it holds. */
int npy_read(const char *path, const char *dtype, uint32_t n_col, void **rows, uint64_t *n_row,
             char error[NPY_READ_ERROR_CHARS]);

#endif
