/* Runs the killline command for a test and keeps what it said. Include behind cmocka.h. */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef KILLLINE
#error "KILLLINE: path of the command, from CMake"
#endif

struct command_result {
    int status;      /* exit status; -1: killed by a signal */
    char *out, *err; /* standard output and error, NUL-terminated; free with command_free */
};

static inline char *command_read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, n, f), n);
    text[n] = '\0';
    fclose(f);
    return text;
}

/* killline with the arguments of the format, as the shell splits them. */
static inline __attribute__((format(printf, 1, 2))) struct command_result command_run(const char *format, ...)
{
    char out[] = "/tmp/killline-test-XXXXXX", err[] = "/tmp/killline-test-XXXXXX", arguments[8192],
         line[16384];
    int out_fd = mkstemp(out), err_fd = mkstemp(err);
    assert_true(out_fd >= 0 && err_fd >= 0);
    close(out_fd);
    close(err_fd);
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof(arguments), format, args);
    va_end(args);
    snprintf(line, sizeof(line), "'%s' %s >%s 2>%s", KILLLINE, arguments, out, err);
    int status = system(line);
    struct command_result result = {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                                    .out = command_read_file(out),
                                    .err = command_read_file(err)};
    unlink(out);
    unlink(err);
    return result;
}

static inline void command_free(struct command_result *result)
{
    free(result->out);
    free(result->err);
}

#endif
