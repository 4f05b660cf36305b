/* .npy files: the header's bytes, rows changed before and after they reached the disk, and what fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host/npy.h"

/* NEP 1, format 1.0: magic, version, little-endian length of what follows, a Python literal, spaces, newline.
 */
#define PREFIX    "\x93NUMPY\x01\x00\x76\x00"
#define SPACES_43 "                                           "

static void test_header(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        uint64_t n_row;
        uint32_t n_col;
        const char *text;
        size_t n_space;
    } cases[] = {
        {"<f4", 3, 20, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 20), }", 57},
        {"|i1", 0, 0, "{'descr': '|i1', 'fortran_order': False, 'shape': (0,), }", 60},
        {"<u8", UINT64_MAX, UINT32_MAX,
         "{'descr': '<u8', 'fortran_order': False, 'shape': (18446744073709551615, 4294967295), }", 30},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t header[NPY_HEADER_BYTES], expected[NPY_HEADER_BYTES];
        size_t len = strlen(cases[i].text);
        assert_int_equal(10 + len + cases[i].n_space + 1, NPY_HEADER_BYTES);
        memcpy(expected, PREFIX, 10);
        memcpy(expected + 10, cases[i].text, len);
        memset(expected + 10 + len, ' ', cases[i].n_space);
        expected[NPY_HEADER_BYTES - 1] = '\n';
        npy_header(header, cases[i].dtype, cases[i].n_row, cases[i].n_col);
        assert_memory_equal(header, expected, sizeof(expected));
    }
}

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/test_npy.XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static uint8_t *read_all(size_t *size_bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size_bytes = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size_bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size_bytes, f), *size_bytes);
    fclose(f);
    return data;
}

static void test_golden_file(void **state)
{
    (void)state;
    static const char golden[] =
        PREFIX "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }" SPACES_43 "               \n"
               "\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\xff\xff";
    static const uint16_t rows[2][3] = {{1, 2, 3}, {4, 5, 65535}};
    char error[NPY_ERROR_CHARS];
    struct npy *npy = npy_create(path, "<u2", 3, error);
    assert_non_null(npy);
    assert_int_equal(npy_append(npy, rows[0], error), 0);
    assert_int_equal(npy_append(npy, rows[1], error), 0);
    assert_int_equal(npy_close(npy, error), 0);
    size_t size_bytes;
    uint8_t *data = read_all(&size_bytes);
    assert_int_equal(size_bytes, sizeof(golden) - 1);
    assert_memory_equal(data, golden, size_bytes);
    free(data);
}

/* More rows than the buffer holds; every third is replaced later, near and far behind. */
static void test_replace(void **state)
{
    (void)state;
    enum { N = 1000000, BEHIND = 700000 };
    char error[NPY_ERROR_CHARS];
    struct npy *npy = npy_create(path, "|i1", 0, error);
    assert_non_null(npy);
    int8_t none = -1;
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(npy_append(npy, &none, error), 0);
        assert_true(npy_rows(npy) == i + 1);
        int8_t near = (int8_t)(i % 100), far = 101;
        if (i % 3 == 0)
            assert_int_equal(npy_replace(npy, i, &near, error), 0);
        if (i >= BEHIND && i % 1000 == 1)
            assert_int_equal(npy_replace(npy, i - BEHIND, &far, error), 0);
    }
    assert_int_equal(npy_close(npy, error), 0);
    size_t size_bytes;
    uint8_t *data = read_all(&size_bytes);
    assert_int_equal(size_bytes, NPY_HEADER_BYTES + N);
    for (int i = 0; i < N; i++) {
        int expected = i + BEHIND < N && (i + BEHIND) % 1000 == 1 ? 101 : i % 3 == 0 ? i % 100 : -1;
        if ((int8_t)data[NPY_HEADER_BYTES + i] != expected)
            fail_msg("row %d is %d, not %d", i, (int8_t)data[NPY_HEADER_BYTES + i], expected);
    }
    free(data);
}

static void test_unfinished_reads_as_empty(void **state)
{
    (void)state;
    uint8_t empty[NPY_HEADER_BYTES];
    char error[NPY_ERROR_CHARS];
    struct npy *npy = npy_create(path, "<f4", 5, error);
    assert_non_null(npy);
    float row[5] = {0};
    for (int i = 0; i < 100000; i++)
        assert_int_equal(npy_append(npy, row, error), 0);
    npy_abort(npy);
    npy_abort(NULL);
    size_t size_bytes;
    uint8_t *data = read_all(&size_bytes);
    assert_true(size_bytes > NPY_HEADER_BYTES);
    npy_header(empty, "<f4", 0, 5);
    assert_memory_equal(data, empty, sizeof(empty));
    free(data);
}

static void test_cannot_create(void **state)
{
    (void)state;
    char error[NPY_ERROR_CHARS];
    assert_null(npy_create("/nonexistent/x.npy", "<f4", 1, error));
    assert_string_equal(error, "/nonexistent/x.npy: cannot create: No such file or directory");
    assert_null(npy_create("/dev/full", "<f4", 1, error));
    assert_non_null(strstr(error, "/dev/full: cannot write at offset 0: No space left on device"));
}

/* A file size limit stands in for a full disk. */
static void test_disk_full(void **state)
{
    (void)state;
    char error[NPY_ERROR_CHARS] = "";
    struct rlimit old, limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = 1000000, .rlim_max = old.rlim_max};
    struct npy *npy = npy_create(path, "<u8", 0, error), *small = NULL;
    assert_non_null(npy);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    uint64_t rows = 0;
    while (rows < 1000000 && !npy_append(npy, &rows, error))
        rows++;
    int at_append = rows < 1000000, named = strstr(error, path) != NULL;
    int closed = npy_close(npy, error);
    /* The same when only closing writes: fewer rows than the buffer. */
    limit.rlim_cur = 1000;
    small = npy_create(path, "<u8", 0, error);
    setrlimit(RLIMIT_FSIZE, &limit);
    for (rows = 0; rows < 200; rows++)
        npy_append(small, &rows, error);
    int small_closed = npy_close(small, error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(at_append && named);
    assert_int_equal(closed, -1);
    assert_int_equal(small_closed, -1);
    assert_non_null(strstr(error, "File too large"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_path, remove_path)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        TEST(test_golden_file),
        TEST(test_replace),
        TEST(test_unfinished_reads_as_empty),
        cmocka_unit_test(test_cannot_create),
        TEST(test_disk_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
