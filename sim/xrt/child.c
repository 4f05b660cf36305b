/* A card in a child process, as the library sees it. The keeper, a thread of ours, is the child's parent: a
 * child is killed when the thread that made it ends (PR_SET_PDEATHSIG), and the host's threads come and go.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "device.h"

enum { READY_MS = 20000, STOP_MS = 2000 };

/* Path of the program: beside this library, wherever that was loaded from. */
static int find_program(char *path, size_t size)
{
    Dl_info info;
    if (!dladdr((const void *)kl_sim_device_version, &info) || !info.dli_fname)
        return -ENOENT;
    const char *slash = strrchr(info.dli_fname, '/');
    const int length = slash ? (int)(slash - info.dli_fname + 1) : 0;
    return snprintf(path, size, "%.*s" CHILD_NAME, length, info.dli_fname) < (int)size ? 0 : -ENAMETOOLONG;
}

/* The child's descriptors, above all numbers that it will have: dup2 must not overwrite one that is still to
 * be copied. */
static int copy_descriptors(const struct device *device, int fds[CHILD_FD_END])
{
    const int from[] = {device->card_fd, device->memory_fd, device->kernel_fd, device_control_fd(),
                        device->engine.event_fd};
    int rc = 0;
    for (int i = 0; i < CHILD_FD_END - CHILD_FD_CARD; i++) {
        fds[CHILD_FD_CARD + i] = fcntl(from[i], F_DUPFD_CLOEXEC, 64);
        if (fds[CHILD_FD_CARD + i] < 0)
            rc = -errno;
    }
    return rc;
}

static int spawn(const int fds[CHILD_FD_END], const char *program, pid_t *pid)
{
    extern char **environ;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char parent[16], name[] = CHILD_NAME;
    char *argv[] = {name, parent, NULL};
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -ENOMEM;
    }
    /* A group of its own: the terminal's Ctrl-C is the host's to act on. */
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    int rc = 0;
    for (int fd = CHILD_FD_CARD; fd < CHILD_FD_END && rc == 0; fd++)
        rc = posix_spawn_file_actions_adddup2(&actions, fds[fd], fd);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_FD_END);
    if (rc == 0)
        rc = posix_spawn(pid, program, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

/* Returns the child's pidfd, or a negative errno with a line on stderr. */
static int make_child(struct device *device)
{
    char program[4096] = CHILD_NAME;
    int fds[CHILD_FD_END];
    pid_t pid = 0;
    int rc = find_program(program, sizeof program);
    const int copied = copy_descriptors(device, fds);
    if (rc == 0)
        rc = copied;
    if (rc == 0)
        rc = spawn(fds, program, &pid);
    for (int fd = CHILD_FD_CARD; fd < CHILD_FD_END; fd++) {
        if (fds[fd] >= 0)
            close(fds[fd]);
    }
    if (rc == 0) {
        rc = pidfd_open(pid, 0);
        if (rc < 0) {
            rc = -errno;
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
    }
    if (rc < 0)
        fprintf(stderr, "killline-sim: device %u: %s does not start: %s\n", device->index, program,
                strerror(-rc));
    return rc;
}

/* The child is dead: the card is gone. */
static void bury(struct device *device, int pidfd)
{
    siginfo_t how = {0};
    const int is_ours = waitid(P_PIDFD, (id_t)pidfd, &how, WEXITED) == 0;
    if (atomic_load_explicit(&device->card->stop, memory_order_acquire))
        return;
    /* Before anything else: reads give all ones from here on. */
    atomic_store_explicit(&device->card->lost, 1, memory_order_release);
    queue_fail_all(device);
    fprintf(stderr, "killline-sim: device %u: its process ended (%s %d)\n", device->index,
            !is_ours                    ? "reaped by someone else,"
            : how.si_code == CLD_EXITED ? "exit status"
                                        : "signal",
            is_ours ? how.si_status : 0);
}

static void watch(struct device *device, int pidfd)
{
    struct engine *engine = &device->engine;
    struct card *card = device->card;
    struct pollfd fds[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = engine->event_fd, .events = POLLIN}};
    uint64_t until = latency_now_ns() + READY_MS * UINT64_C(1000000);
    int is_ready = 0, is_stopping = 0;
    for (;;) {
        const uint64_t now = latency_now_ns();
        if (until && now >= until) {
            pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
            until = 0;
        }
        poll(fds, 2, until ? (int)((until - now) / 1000000 + 1) : -1);
        uint64_t events;
        if (fds[1].revents & POLLIN && read(engine->event_fd, &events, sizeof events) < 0)
            events = 0;
        if (!is_ready && atomic_load_explicit(&card->is_ready, memory_order_acquire)) {
            is_ready = 1;
            until = 0;
            sem_post(&engine->ready);
        }
        for (uint32_t u = 0; is_ready && u < card->n_unit; u++)
            queue_run_ended(device, u);
        if (!is_stopping && atomic_load_explicit(&card->stop, memory_order_acquire)) {
            is_stopping = 1;
            until = latency_now_ns() + STOP_MS * UINT64_C(1000000);
        }
        if (fds[0].revents)
            break;
    }
    bury(device, pidfd);
    if (!is_ready) {
        engine->child_status = -EIO;
        sem_post(&engine->ready);
    }
}

static void *keep(void *context)
{
    struct device *device = (struct device *)context;
    const int pidfd = make_child(device);
    device->engine.child_status = pidfd < 0 ? pidfd : 0;
    if (pidfd < 0) {
        sem_post(&device->engine.ready);
        return NULL;
    }
    watch(device, pidfd);
    close(pidfd);
    return NULL;
}

int engine_child_start(struct device *device)
{
    struct engine *engine = &device->engine;
    atomic_store_explicit(&device->card->is_ready, 0, memory_order_relaxed);
    engine->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->event_fd < 0)
        return -errno;
    sem_init(&engine->ready, 0, 0);
    int rc = -pthread_create(&engine->keeper, NULL, keep, device);
    if (rc == 0) {
        while (sem_wait(&engine->ready) != 0)
            ;
        rc = engine->child_status;
        if (rc != 0)
            pthread_join(engine->keeper, NULL);
    }
    if (rc != 0) {
        sem_destroy(&engine->ready);
        close(engine->event_fd);
    }
    return rc;
}

void engine_child_stop(struct device *device)
{
    struct engine *engine = &device->engine;
    const uint64_t one = 1;
    atomic_store_explicit(&device->card->stop, 1, memory_order_seq_cst);
    for (uint32_t u = 0; u < device->card->n_unit; u++)
        card_ring(&device->card->units[u]);
    if (write(engine->event_fd, &one, sizeof one) < 0)
        perror("killline-sim: eventfd");
    pthread_join(engine->keeper, NULL);
    sem_destroy(&engine->ready);
    close(engine->event_fd);
}
