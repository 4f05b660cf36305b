/* Test helper: runs a shell command line, keeps its exit status and what it printed. */
#ifndef SHELL_H
#define SHELL_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

struct shell_result {
    int status; /* exit status; 256: ended by a signal */
    char *out;  /* stdout and stderr, NUL-terminated, malloc'd */
};

static inline void shell_free(struct shell_result *c)
{
    free(c->out);
    c->out = NULL;
}

/* Output is taken whole; use `2>/dev/null` in the line where only stdout is wanted. */
static inline struct shell_result __attribute__((format(printf, 1, 2))) shell_run(const char *format, ...)
{
    struct shell_result c = {.status = -1};
    char line[8192];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof(line) - 16, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(line) - 16)
        abort();
    if (!strstr(line, "2>"))
        strcat(line, " 2>&1");
    FILE *pipe = popen(line, "r");
    size_t room = 1 << 16, len = 0, got;
    c.out = malloc(room);
    if (!pipe || !c.out)
        abort();
    while ((got = fread(c.out + len, 1, room - len - 1, pipe)) > 0) {
        len += got;
        if (room - len < 4096 && !(c.out = realloc(c.out, room *= 2)))
            abort();
    }
    c.out[len] = '\0';
    int status = pclose(pipe);
    c.status = WIFEXITED(status) ? WEXITSTATUS(status) : 256;
    return c;
}

#endif
