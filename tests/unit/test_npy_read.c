/* npy_read: NumPy's own headers, those of npy.h, and headers that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/npy.h"
#include "host/npy_read.h"

static char path[] = "/tmp/test_npy_read.XXXXXX";

static int create(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int delete (void **state)
{
    (void)state;
    return unlink(path);
}

/* Magic, version 1.0, the dictionary, then n_data bytes of a counter. */
static void write_file(const char *dictionary, size_t n_data)
{
    FILE *file = fopen(path, "wb");
    size_t length = strlen(dictionary);
    assert_non_null(file);
    fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    fputc((int)(length & 0xff), file);
    fputc((int)(length >> 8), file);
    fputs(dictionary, file);
    for (size_t i = 0; i < n_data; i++)
        fputc((int)i, file);
    assert_int_equal(fclose(file), 0);
}

static void expect_refused(const char *dtype, uint32_t n_col, const char *why)
{
    void *rows = NULL;
    uint64_t n_row;
    char error[NPY_READ_ERROR_CHARS];
    assert_int_equal(npy_read(path, dtype, n_col, &rows, &n_row, error), -1);
    if (!strstr(error, path) || !strstr(error, why))
        fail_msg("'%s' does not say '%s'", error, why);
    assert_null(rows);
}

static void numpy_files(void **state)
{
    void *rows;
    uint64_t n_row;
    char error[NPY_READ_ERROR_CHARS];
    (void)state;
    write_file("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }      \n", 6);
    assert_int_equal(npy_read(path, "<u2", 0, &rows, &n_row, error), 0);
    assert_int_equal(n_row, 3);
    assert_int_equal(((const uint16_t *)rows)[2], 0x0504);
    free(rows);
    write_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 20), }\n", 160);
    assert_int_equal(npy_read(path, "<f4", 20, &rows, &n_row, error), 0);
    assert_int_equal(n_row, 2);
    assert_int_equal(((const uint8_t *)rows)[159], 159);
    free(rows);
    write_file("{'descr': '|i1', 'fortran_order': False, 'shape': (0,), }\n", 0);
    assert_int_equal(npy_read(path, "|i1", 0, &rows, &n_row, error), 0);
    assert_int_equal(n_row, 0);
    assert_non_null(rows);
    free(rows);
}

static void what_npy_writes(void **state)
{
    char error[NPY_READ_ERROR_CHARS];
    float row[3] = {1, 2, 3};
    void *rows;
    uint64_t n_row;
    (void)state;
    struct npy *npy = npy_create(path, "<f4", 3, error);
    assert_non_null(npy);
    for (int i = 0; i < 100; i++) {
        row[0] = (float)i;
        assert_int_equal(npy_append(npy, row, error), 0);
    }
    assert_int_equal(npy_close(npy, error), 0);
    assert_int_equal(npy_read(path, "<f4", 3, &rows, &n_row, error), 0);
    assert_int_equal(n_row, 100);
    assert_true(((const float *)rows)[99 * 3] == 99 && ((const float *)rows)[99 * 3 + 2] == 3);
    free(rows);
}

static void headers_that_lie(void **state)
{
    (void)state;
    const char *const good = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }\n";
    write_file(good, 5);
    expect_refused("<u2", 0, "3 rows");
    write_file(good, 7);
    expect_refused("<u2", 0, "3 rows");
    write_file(good, 8);
    expect_refused("<u2", 0, "3 rows");
    write_file(good, 6);
    expect_refused("<u2", 3, "3 columns");
    expect_refused("<f4", 0, "type <f4");
    write_file("{'descr': '<u2', 'fortran_order': True, 'shape': (3,), }\n", 6);
    expect_refused("<u2", 0, "needed");
    write_file("{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2), }\n", 12);
    expect_refused("<u2", 0, "needed");
    expect_refused("<u2", 3, "needed");
    const char *const shapes[] = {"(99999999999999999999,)", "(-1,)", "3", "()", "(3",
                                  "(9223372036854775810,)"};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), "{'descr': '<u2', 'fortran_order': False, 'shape': %s, }\n", shapes[i]);
        write_file(text, 6);
        expect_refused("<u2", 0, "");
    }
    write_file("", 0);
    expect_refused("<u2", 0, "needed");
    assert_int_equal(truncate(path, 40), 0); /* grows with zeros: header length 0 */
    expect_refused("<u2", 0, "needed");
    assert_int_equal(truncate(path, 9), 0);
    expect_refused("<u2", 0, "not a NumPy file");
    assert_int_equal(truncate(path, 0), 0);
    expect_refused("<u2", 0, "not a NumPy file");
    write_file(good, 6);
    assert_int_equal(truncate(path, 30), 0);
    expect_refused("<u2", 0, "header of 58 bytes");
}

static void no_file(void **state)
{
    void *rows;
    uint64_t n_row;
    char error[NPY_READ_ERROR_CHARS];
    (void)state;
    assert_int_equal(npy_read("/nonexistent/x.npy", "<u2", 0, &rows, &n_row, error), -1);
    assert_non_null(strstr(error, "/nonexistent/x.npy"));
    assert_int_equal(npy_read("/tmp", "<u2", 0, &rows, &n_row, error), -1);
    assert_non_null(strstr(error, "regular file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numpy_files),
        cmocka_unit_test(what_npy_writes),
        cmocka_unit_test(headers_that_lie),
        cmocka_unit_test(no_file),
    };
    return cmocka_run_group_tests(tests, create, delete);
}
