/* Writes NumPy arrays (.npy, format 1.0) row by row; the number of rows need not be known beforehand.
 *
 * The header says 0 rows until npy_close, so a file whose writer died reads as empty, never as complete. Rows
 * can be changed after they were appended (labels that the future tells). Memory: one fixed buffer per file.
 * Offline: cold code. One thread per file. Source: NumPy Enhancement Proposal 1; header length a multiple of
 * 64 as NumPy writes it since 1.14. Little-endian machines only. */
#ifndef NPY_H
#define NPY_H

#include <stddef.h>
#include <stdint.h>

enum { NPY_ERROR_CHARS = 256, NPY_HEADER_BYTES = 128 };

/* The 128 header bytes of an array of n_row rows. dtype: NumPy's "<f4", "|i1" ...; n_col 0: one-dimensional.
 */
void npy_header(uint8_t out[NPY_HEADER_BYTES], const char *dtype, uint64_t n_row, uint32_t n_col);

struct npy;

/* Creates or truncates path. dtype: kind and size in bytes of an element, "<f4", "<u2", "|i1" ... NULL with a
 * message in error. */
struct npy *npy_create(const char *path, const char *dtype, uint32_t n_col, char error[NPY_ERROR_CHARS]);

/* Appends a row of max(n_col, 1) elements. 0, or -1 with a message (disk full ...). */
int npy_append(struct npy *npy, const void *row, char error[NPY_ERROR_CHARS]);

/* Replaces row index, which has been appended. As above. */
int npy_replace(struct npy *npy, uint64_t index, const void *row, char error[NPY_ERROR_CHARS]);

uint64_t npy_rows(const struct npy *npy);

/* Writes what is buffered and the final header, closes and frees, also on error. As above. */
int npy_close(struct npy *npy, char error[NPY_ERROR_CHARS]);

/* Closes and frees without completing the file. NULL is allowed. */
void npy_abort(struct npy *npy);

#endif
