#include "control.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "control_self.h"

static const char socket_name[] = "control.sock", lock_name[] = "lock", state_name[] = "state.json";
static_assert(ORDER_BY_CHARS - 1 + 2 + ORDER_REASON_CHARS - 1 < sizeof(((struct audit_event *)0)->text),
              "by, \": \" and reason are an audit event's text");
static_assert(CONTROL_PATH_CHARS == sizeof(((struct sockaddr_un *)0)->sun_path), "Linux, unix(7)");

void control_path(const char *folder, const char *name, char path[CONTROL_PATH_CHARS + 32])
{
    snprintf(path, CONTROL_PATH_CHARS + 32, "%s/%s", folder, name);
}

uint64_t control_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t control_now_utc_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void control_utc_text(uint64_t utc_ns, char text[CONTROL_UTC_CHARS])
{
    const time_t s = (time_t)(utc_ns / 1000000000);
    struct tm t;
    char day[24];
    gmtime_r(&s, &t);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(text, CONTROL_UTC_CHARS, "%s.%03uZ", day, (unsigned)(utc_ns / 1000000 % 1000));
}

/* ---- folder and lock ---- */

int control_folder(const char *dir, char folder[CONTROL_PATH_CHARS], char error[CONTROL_ERROR_CHARS])
{
    const char *base = dir, *tail = "", *remedy = "";
    if (!*dir) {
        const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
        if (state && *state == '/') { /* XDG Base Directory Specification: relative ones are ignored */
            base = state;
            tail = "/killline";
        } else if (home && *home == '/') {
            base = home;
            tail = "/.local/state/killline";
        } else {
            snprintf(error, CONTROL_ERROR_CHARS,
                     "no folder for the state: neither XDG_STATE_HOME nor HOME is an absolute path. Give "
                     "--state DIR (run: --set state.dir=DIR)");
            return -1;
        }
        remedy = " Give a shorter --state DIR (run: --set state.dir=DIR)";
    }
    const size_t n = strlen(base) + strlen(tail), room = CONTROL_PATH_CHARS - 1 - sizeof(socket_name);
    if (n > room) {
        snprintf(error, CONTROL_ERROR_CHARS,
                 "%.200s%s: %zu characters, and a socket's address leaves %zu for the folder.%s", base, tail,
                 n, room, remedy);
        return -1;
    }
    memcpy(folder, base, strlen(base));
    memcpy(folder + strlen(base), tail, strlen(tail) + 1);
    return 0;
}

/* With its parents, 0700 whatever the umask. 0, or -1: errno, and part is what could not be made. */
static int make_folder(const char *folder, char part[CONTROL_PATH_CHARS])
{
    for (size_t n = 1; n <= strlen(folder); n++) {
        if (folder[n] && folder[n] != '/')
            continue;
        snprintf(part, CONTROL_PATH_CHARS, "%.*s", (int)n, folder);
        struct stat s;
        if (!mkdir(part, 0700)) {
            if (chmod(part, 0700))
                return -1;
        } else if (stat(part, &s)) { /* not for EEXIST only: "/" may be read-only */
            return -1;
        }
    }
    return 0;
}

void control_pid(const char *folder, char text[CONTROL_PID_CHARS])
{
    char path[CONTROL_PATH_CHARS + 32], pid[16] = "";
    control_path(folder, lock_name, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, pid, sizeof(pid) - 1);
    if (fd >= 0)
        close(fd);
    while (n > 0 && (pid[n - 1] < '0' || pid[n - 1] > '9'))
        n--;
    if (n > 0 && strspn(pid, "0123456789") >= (size_t)n)
        snprintf(text, CONTROL_PID_CHARS, "process %.*s", (int)n, pid);
    else
        snprintf(text, CONTROL_PID_CHARS, "process not yet known");
}

/* Returns the lock's descriptor; -1: a message; -2: someone has it (a message too). */
static int take_lock(const char *folder, int make, unsigned wait_ms, char error[CONTROL_ERROR_CHARS])
{
    char path[CONTROL_PATH_CHARS + 32], part[CONTROL_PATH_CHARS], pid[CONTROL_PID_CHARS];
    struct stat s;
    if (make && make_folder(folder, part)) {
        snprintf(error, CONTROL_ERROR_CHARS,
                 "%s: could not be made: %s. Choose another folder with --state "
                 "DIR (run: --set state.dir=DIR)",
                 part, strerror(errno));
        return -1;
    }
    if (stat(folder, &s) || !S_ISDIR(s.st_mode) || access(folder, W_OK | X_OK)) {
        snprintf(error, CONTROL_ERROR_CHARS,
                 "%s: %s. Choose another folder with --state DIR (run: --set "
                 "state.dir=DIR)",
                 folder, S_ISDIR(s.st_mode) ? strerror(errno) : "is not a folder");
        return -1;
    }
    if ((s.st_uid != geteuid() && geteuid()) || (s.st_mode & (S_IWGRP | S_IWOTH))) {
        snprintf(error, CONTROL_ERROR_CHARS,
                 "%s: others could change the state there (owner %u, mode %03o; we are user %u). It has to "
                 "be ours, and writable by us alone: chmod 700, or another folder with --state DIR (run: "
                 "--set state.dir=DIR)",
                 folder, (unsigned)s.st_uid, (unsigned)s.st_mode & 0777, (unsigned)geteuid());
        return -1;
    }
    control_path(folder, lock_name, path);
    int made = 1, fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST) {
        made = 0;
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    }
    struct stat l;
    if (fd < 0 || fstat(fd, &l) || !S_ISREG(l.st_mode) || l.st_nlink != 1 ||
        (made && (fchmod(fd, 0600) ||
                  (s.st_uid != geteuid() && fchown(fd, s.st_uid, s.st_gid))))) { /* root, for its owner */
        snprintf(error, CONTROL_ERROR_CHARS, "%s: %s. Remove it", path,
                 fd < 0 ? strerror(errno) : "is no lock file");
        if (fd >= 0)
            close(fd);
        return -1;
    }
    const uint64_t until_ms = control_now_ms() + wait_ms;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (control_now_ms() >= until_ms) {
            control_pid(folder, pid);
            snprintf(error, CONTROL_ERROR_CHARS,
                     "%s: another appliance has this folder (%s). End it, or "
                     "choose another with --state DIR (run: --set state.dir=DIR)",
                     folder, pid);
            close(fd);
            return -2;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    /* For messages only, so that a disk that is full is no matter. */
    if (!ftruncate(fd, 0))
        dprintf(fd, "%d\n", (int)getpid());
    return fd;
}

/* ---- appliance ---- */

struct control *control_open(const char *folder, struct state_file *state, char warning[CONTROL_ERROR_CHARS],
                             char error[CONTROL_ERROR_CHARS])
{
    char path[CONTROL_PATH_CHARS + 32], kept[CONTROL_PATH_CHARS + 64];
    assert(strlen(folder) + 1 + sizeof(socket_name) <= CONTROL_PATH_CHARS); /* control_folder's */
    const int lock_fd = take_lock(folder, 1, 1000, error);
    if (lock_fd < 0)
        return NULL;
    struct control *control = calloc(1, sizeof(*control));
    if (!control) {
        snprintf(error, CONTROL_ERROR_CHARS, "out of memory");
        close(lock_fd);
        return NULL;
    }
    *control = (struct control){.lock_fd = lock_fd, .listen_fd = -1, .stop_fd = -1};
    snprintf(control->folder, sizeof(control->folder), "%s", folder);
    control_path(folder, state_name, path);
    warning[0] = '\0';
    if (state_file_read(path, state, warning)) {
        /* A second name for it, so that at no moment there is none: without one the next start would not be
           halted. It fails for a folder, which no file replaces anyway. */
        snprintf(kept, sizeof(kept), "%s.unreadable", path);
        unlink(kept);
        link(path, kept);
    }
    control->began = *state;
    control->shown = (struct state_file){.rung = GOVERNOR_ACTIVE, .cause = GOVERNOR_BY_START};
    memcpy(control->last.by, state->by, sizeof(state->by));
    memcpy(control->last.reason, state->reason, sizeof(state->reason));
    return control;
}

/* Under the lock, so that what lies there is a dead process's. 0, or -1 with a message. */
static int start_listening(struct control *control, char error[CONTROL_ERROR_CHARS])
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char path[CONTROL_PATH_CHARS + 32];
    control_path(control->folder, socket_name, path);
    memcpy(at.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (unlink(path) && errno != ENOENT) || bind(fd, (struct sockaddr *)&at, sizeof(at))) {
        snprintf(error, CONTROL_ERROR_CHARS, "%s: %s. Remove it, or choose another folder with state.dir",
                 path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    control->listen_fd = fd;                   /* from here on control_close unlinks it */
    if (chmod(path, 0600) || listen(fd, 64)) { /* none can connect before listen */
        snprintf(error, CONTROL_ERROR_CHARS, "%s: %s", path, strerror(errno));
        return -1;
    }
    return 0;
}

int control_start(struct control *control, const struct control_view *view, char error[CONTROL_ERROR_CHARS])
{
    pthread_condattr_t monotonic;
    sigset_t all, old;
    assert(view->desk && view->governor && view->rules && view->log && view->run_name && view->out);
    control->view = *view;
    for (int i = 0; i < CONTROL_N_CLIENT; i++)
        control->client[i].fd = -1;
    if (start_listening(control, error))
        return -1;
    control->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (control->stop_fd < 0) {
        snprintf(error, CONTROL_ERROR_CHARS, "eventfd: %s", strerror(errno));
        return -1;
    }
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&control->mutex, NULL);
    pthread_cond_init(&control->wake, &monotonic);
    pthread_cond_init(&control->kept, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all); /* signals are the other threads' */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = pthread_create(&control->keeper, NULL, control_keep, control);
    if (!bad) {
        bad = pthread_create(&control->server, NULL, control_serve, control);
        if (bad) {
            pthread_mutex_lock(&control->mutex);
            control->ends = 1;
            pthread_cond_signal(&control->wake);
            pthread_mutex_unlock(&control->mutex);
            pthread_join(control->keeper, NULL);
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    control->started = !bad;
    if (bad)
        snprintf(error, CONTROL_ERROR_CHARS, "no thread for control: %s", strerror(bad));
    return bad ? -1 : 0;
}

void control_close(struct control *control)
{
    if (!control)
        return;
    char path[CONTROL_PATH_CHARS + 32];
    if (control->started) {
        const uint64_t one = 1;
        const ssize_t n = write(control->stop_fd, &one, sizeof(one));
        assert(n == sizeof(one));
        (void)n;
        pthread_join(control->server, NULL); /* first: it waits for the keeper */
        pthread_mutex_lock(&control->mutex);
        control->ends = 1;
        pthread_cond_signal(&control->wake);
        pthread_mutex_unlock(&control->mutex);
        pthread_join(control->keeper, NULL);
        pthread_cond_destroy(&control->kept);
        pthread_cond_destroy(&control->wake);
        pthread_mutex_destroy(&control->mutex);
    }
    if (control->stop_fd >= 0)
        close(control->stop_fd);
    if (control->listen_fd >= 0) {
        control_path(control->folder, socket_name, path);
        unlink(path);
        close(control->listen_fd);
    }
    close(control->lock_fd);
    free(control);
}

/* ---- commands ---- */

int control_is_taken(const char *folder, char pid[CONTROL_PID_CHARS])
{
    char path[CONTROL_PATH_CHARS + 32];
    control_path(folder, lock_name, path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const int is_taken = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    control_pid(folder, pid);
    return is_taken;
}

int control_read(const char *folder, struct state_file *state, char error[CONTROL_ERROR_CHARS])
{
    char path[CONTROL_PATH_CHARS + 32];
    control_path(folder, state_name, path);
    return state_file_read(path, state, error);
}

int control_set(const char *folder, const struct order *order, char error[CONTROL_ERROR_CHARS])
{
    char path[CONTROL_PATH_CHARS + 32];
    struct state_file old;
    control_path(folder, state_name, path);
    if (order->kind == ORDER_RESUME && access(folder, F_OK) && errno == ENOENT) { /* not made for this */
        snprintf(error, CONTROL_ERROR_CHARS, "nothing to resume: no appliance runs, and there is no %s",
                 folder);
        return -1;
    }
    const int lock_fd = take_lock(folder, 1, 0, error);
    if (lock_fd < 0)
        return lock_fd == -2 ? 1 : -1;
    struct state_file state = {.rung = order->kind == ORDER_HALT ? GOVERNOR_HALTED : GOVERNOR_WARNING,
                               .cause = GOVERNOR_BY_OPERATOR,
                               .latched = order->kind == ORDER_HALT,
                               .since_utc_ns = control_now_utc_ns()};
    memcpy(state.by, order->by, sizeof(state.by));
    memcpy(state.reason, order->reason, sizeof(state.reason));
    state_file_read(path, &old, error); /* one that cannot be read is halted */
    int bad = 0;
    if (order->kind == ORDER_RESUME && old.rung != GOVERNOR_HALTED) {
        snprintf(error, CONTROL_ERROR_CHARS,
                 "nothing to resume: no appliance runs, and %s says that it was left %s", path,
                 governor_rung_name(old.rung));
        bad = -1;
    } else {
        if (order->kind == ORDER_HALT) { /* the throttle goes on counting */
            state.n_device_fault = old.n_device_fault;
            state.n_halt_fault = old.n_halt_fault;
            memcpy(state.device_fault_utc_ns, old.device_fault_utc_ns, sizeof(old.device_fault_utc_ns));
            memcpy(state.halt_fault_utc_ns, old.halt_fault_utc_ns, sizeof(old.halt_fault_utc_ns));
        }
        bad = state_file_write(path, &state, error);
    }
    close(lock_fd);
    return bad;
}

int control_ask(const char *folder, const char *request, char answer[CONTROL_ANSWER_BYTES],
                char error[CONTROL_ERROR_CHARS])
{
    /* Longer than the appliance waits for its poll loop and its disk. */
    const struct timeval patience = {.tv_sec = 2 * (CONTROL_ACK_MS + CONTROL_SAVE_MS) / 1000};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char path[CONTROL_PATH_CHARS + 32], line[CONTROL_REQUEST_BYTES + 1], pid[CONTROL_PID_CHARS];
    control_path(folder, socket_name, path);
    assert(strlen(path) < sizeof(at.sun_path) && strlen(request) < CONTROL_REQUEST_BYTES);
    memcpy(at.sun_path, path, strlen(path) + 1);
    const size_t size_bytes = (size_t)snprintf(line, sizeof(line), "%s\n", request);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) ||
        connect(fd, (struct sockaddr *)&at, sizeof(at))) {
        const int nobody = errno == ENOENT || errno == ECONNREFUSED;
        control_pid(folder, pid);
        snprintf(error, CONTROL_ERROR_CHARS, "%s: %s (%s)", path,
                 errno == EAGAIN ? "the appliance does not answer" : strerror(errno), pid);
        if (fd >= 0)
            close(fd);
        return nobody ? 1 : -1;
    }
    size_t n = 0;
    ssize_t got = send(fd, line, size_bytes, MSG_NOSIGNAL) == (ssize_t)size_bytes ? 1 : -1;
    while (got > 0 && n < CONTROL_ANSWER_BYTES - 1) {
        got = recv(fd, answer + n, CONTROL_ANSWER_BYTES - 1 - n, 0);
        if (got < 0 && errno == EINTR) {
            got = 1;
            continue;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    const int was_cut_off =
        !n && (!got || errno == ECONNRESET || errno == EPIPE); /* it ends, or is crowded */
    close(fd);
    if (was_cut_off)
        return 1;
    if (n && answer[n - 1] == '\n') {
        answer[n - 1] = '\0';
        return 0;
    }
    control_pid(folder, pid);
    snprintf(error, CONTROL_ERROR_CHARS,
             "%s: the appliance does not answer (%s). If it hangs, end it with kill -9: then halt again",
             path, pid);
    return -1;
}
