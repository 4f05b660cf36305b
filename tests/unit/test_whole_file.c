/* Whole or not at all; a device stays one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/whole_file.h"

static char folder[] = "/tmp/test_whole_file_XXXXXX", path[96], part[112];

static void put(FILE *out, const void *text)
{
    fputs(text, out);
}

static void put_badly(FILE *out, const void *text)
{
    fputs(text, out);
    fflush(out);
    assert_int_equal(fgetc(out), EOF); /* not open for that: ferror */
}

static void expect(const char *text)
{
    char got[32] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    got[fread(got, 1, sizeof(got) - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, text);
    assert_int_equal(access(part, F_OK), -1); /* nothing else is left */
}

static void written_and_replaced(void **state)
{
    (void)state;
    for (int durable = 0; durable < 2; durable++) {
        assert_int_equal(whole_file_write(path, durable, put, "first, the longer one"), 0);
        expect("first, the longer one");
        assert_int_equal(whole_file_write(path, durable, put, "second"), 0);
        expect("second");
    }
}

static void a_failure_leaves_the_old_one(void **state)
{
    (void)state;
    assert_int_equal(whole_file_write(path, 0, put, "old"), 0);
    assert_int_equal(whole_file_write(path, 0, put_badly, "half"), -1);
    expect("old");
    char nowhere[128];
    snprintf(nowhere, sizeof(nowhere), "%s/nowhere/file", folder);
    assert_int_equal(whole_file_write(nowhere, 0, put, "x"), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(whole_file_write(folder, 0, put, "x"), -1); /* a folder is none */
}

/* A pipe, in place of a device that a test must not risk. */
static void what_is_no_regular_file_is_written_into(void **state)
{
    (void)state;
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    FILE *reader = fopen(path, "r+"); /* does not wait for a writer */
    assert_non_null(reader);
    assert_int_equal(whole_file_write(path, 1, put, "through\n"), 0);
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    char got[32];
    assert_non_null(fgets(got, sizeof(got), reader));
    assert_string_equal(got, "through\n");
    fclose(reader);
    unlink(path);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/file", folder);
    snprintf(part, sizeof(part), "%s.part", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_replaced),
        cmocka_unit_test(a_failure_leaves_the_old_one),
        cmocka_unit_test(what_is_no_regular_file_is_written_into),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
