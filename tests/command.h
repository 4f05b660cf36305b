/* Runs commands for a test, killline above all, and keeps what they said. What this helper itself cannot do
 * (no memory, no temporary file) ends the test program. */
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
    int status;      /* exit status as the shell tells it (128 + n: ended by signal n); -1: no shell */
    char *out, *err; /* standard output and error, whole, NUL-terminated; free with command_free */
};

static inline void command_require(int ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

/* A whole file, NUL-terminated; free it. */
static inline char *command_read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    command_require(f && fseek(f, 0, SEEK_END) == 0, path);
    size_t n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(n + 1);
    command_require(text && fread(text, 1, n, f) == n, path);
    text[n] = '\0';
    fclose(f);
    return text;
}

/* line: any shell line, with its own redirections if it has some. */
static inline struct command_result command_take(const char *line)
{
    char out[] = "/tmp/killline-test-XXXXXX", err[] = "/tmp/killline-test-XXXXXX", *redirected;
    int out_fd = mkstemp(out), err_fd = mkstemp(err);
    command_require(out_fd >= 0 && err_fd >= 0, "/tmp");
    close(out_fd);
    close(err_fd);
    command_require(asprintf(&redirected, "{ %s\n} >%s 2>%s", line, out, err) >= 0, line);
    int status = system(redirected);
    struct command_result result = {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                                    .out = command_read_file(out),
                                    .err = command_read_file(err)};
    free(redirected);
    unlink(out);
    unlink(err);
    return result;
}

/* The shell line of the format. */
static inline __attribute__((format(printf, 1, 2))) struct command_result command_shell(const char *format,
                                                                                        ...)
{
    char *line;
    va_list args;
    va_start(args, format);
    command_require(vasprintf(&line, format, args) >= 0, format);
    va_end(args);
    struct command_result result = command_take(line);
    free(line);
    return result;
}

/* killline with the arguments of the format, as the shell splits them. */
static inline __attribute__((format(printf, 1, 2))) struct command_result command_run(const char *format, ...)
{
    char *arguments;
    va_list args;
    va_start(args, format);
    command_require(vasprintf(&arguments, format, args) >= 0, format);
    va_end(args);
    struct command_result result = command_shell("'%s' %s", KILLLINE, arguments);
    free(arguments);
    return result;
}

static inline void command_free(struct command_result *result)
{
    free(result->out);
    free(result->err);
    *result = (struct command_result){0};
}

#endif
