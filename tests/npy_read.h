/* Reads an .npy file of NumPy format 1.0 whole, for tests: refuses what host/npy.c would not write. */
#ifndef NPY_READ_H
#define NPY_READ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct npy_array {
    uint64_t n_row;
    uint32_t n_col;   /* 0: one-dimensional */
    const void *data; /* aligned to 64 bytes */
    void *buffer;     /* free it */
};

/* dtype and its size_bytes: what is expected. Exits the test program with a message when the file is not as
 * expected. */
static inline struct npy_array npy_read(const char *dir, const char *file, const char *dtype,
                                        size_t size_bytes)
{
    struct npy_array array = {0};
    char path[4096], descr[4] = "";
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    FILE *f = fopen(path, "rb");
    int ok = f && !fseek(f, 0, SEEK_END);
    size_t size = ok ? (size_t)ftell(f) : 0;
    if (ok) {
        rewind(f);
        array.buffer = aligned_alloc(64, (size + 64) / 64 * 64);
        ok = array.buffer && fread(array.buffer, 1, size, f) == size && size >= 128 &&
             !memcmp(array.buffer, "\x93NUMPY\x01\x00\x76\x00", 10);
    }
    if (f)
        fclose(f);
    if (ok) {
        char text[119] = {0};
        memcpy(text, (const char *)array.buffer + 10, 118);
        unsigned long long n_row = 0;
        int n = sscanf(text, "{'descr': '%3[^']', 'fortran_order': False, 'shape': (%llu, %u), }", descr,
                       &n_row, &array.n_col);
        if (n == 2)
            array.n_col = 0;
        array.n_row = n_row;
        ok = n >= 2 && !strcmp(descr, dtype) &&
             size == 128 + array.n_row * size_bytes * (array.n_col ? array.n_col : 1);
    }
    if (!ok) {
        fprintf(stderr, "%s: is no whole .npy file of %s\n", path, dtype);
        exit(1);
    }
    array.data = (const char *)array.buffer + 128;
    return array;
}

#endif
