#include "doctor_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_KEPT = 4096 };

/* Never returns. The process group is the child's own, so that a driver's helpers go with it. */
static void child(void (*probe)(const void *context, void *result), const void *context, void *shared,
                  int output, pid_t parent)
{
    const struct rlimit no_core = {0, 0};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    probe(context, shared);
    fflush(NULL);
    _exit(0);
}

/* 1: it has ended; 0: not within limit_s. */
static int wait_for(pid_t pid, unsigned limit_s)
{
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    int n;
    do
        n = poll(&ended, 1, (int)limit_s * 1000);
    while (n < 0 && errno == EINTR);
    if (fd >= 0)
        close(fd);
    return n > 0;
}

/* The first line that tells a reason: a C++ exception's, XRT's own, the loader's; else the last line. 1: it
 * is one of the first kind. */
static int find_reason(int output, char why[DOCTOR_PROBE_CHARS])
{
    static const char *const mark[] = {"what():", "killline-sim: ", "ERROR:", "rror: ", "error while"};
    char text[OUTPUT_KEPT + 1], *rest;
    const ssize_t n = pread(output, text, OUTPUT_KEPT, 0);
    int found = 0;
    why[0] = '\0';
    text[n > 0 ? n : 0] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line && !found; line = strtok_r(NULL, "\n", &rest)) {
        line += strspn(line, " \t\r");
        for (size_t i = 0; i < sizeof mark / sizeof mark[0] && !found; i++)
            found = strstr(line, mark[i]) != NULL;
        if (*line)
            snprintf(why, DOCTOR_PROBE_CHARS, "%s", line);
    }
    return found;
}

/* How a child ended, before the reason that it printed. */
static enum doctor_probe_end judge(int status, char why[DOCTOR_PROBE_CHARS])
{
    char reason[DOCTOR_PROBE_CHARS];
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return DOCTOR_PROBE_DONE;
    memcpy(reason, why, sizeof reason);
    if (WIFSIGNALED(status))
        snprintf(why, DOCTOR_PROBE_CHARS, "ended by signal %d (%s)%s%.400s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), reason[0] ? ": " : "", reason);
    else
        snprintf(why, DOCTOR_PROBE_CHARS, "ended with status %d%s%.400s", WEXITSTATUS(status),
                 reason[0] ? ": " : "", reason);
    return DOCTOR_PROBE_CRASHED;
}

enum doctor_probe_end doctor_probe(void (*probe)(const void *context, void *result), const void *context,
                                   void *result, size_t result_bytes, unsigned limit_s,
                                   char why[DOCTOR_PROBE_CHARS])
{
    enum doctor_probe_end end = DOCTOR_PROBE_FAILED;
    const int output = memfd_create("doctor", MFD_CLOEXEC);
    void *shared = mmap(NULL, result_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t parent = getpid();
    fflush(NULL); /* or the child prints it again */
    const pid_t pid = output < 0 || shared == MAP_FAILED ? -1 : fork();
    if (pid == 0)
        child(probe, context, shared, output, parent);
    if (pid > 0) {
        int status;
        setpgid(pid, pid); /* whoever is first */
        const int ended = wait_for(pid, limit_s);
        kill(-pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        const int is_reason = find_reason(output, why);
        end = ended ? judge(status, why) : DOCTOR_PROBE_HANGS;
        if (end == DOCTOR_PROBE_DONE && !is_reason)
            why[0] = '\0';
        memcpy(result, shared, result_bytes);
    } else {
        snprintf(why, DOCTOR_PROBE_CHARS, "no child process: %s", strerror(errno));
    }
    if (shared != MAP_FAILED)
        munmap(shared, result_bytes);
    if (output >= 0)
        close(output);
    return end;
}
