#include "fault_control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *name, const char *what, char error[FAULT_ERROR_CHARS])
{
    snprintf(error, FAULT_ERROR_CHARS, "control file %s: %s", name, what);
    return -1;
}

struct fault_control *fault_control_map(int fd, const char *name, char error[FAULT_ERROR_CHARS])
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size != (off_t)sizeof(struct fault_control)) {
        fail(name, "it is not one of this version's; take another name", error);
        return NULL;
    }
    void *at = mmap(NULL, sizeof(struct fault_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        fail(name, strerror(errno), error);
        return NULL;
    }
    struct fault_control *control = (struct fault_control *)at;
    if (control->magic == CONTROL_MAGIC && control->version == CONTROL_VERSION &&
        control->size_bytes == sizeof *control)
        return control;
    munmap(at, sizeof *control);
    fail(name, "it is not one of this version's; take another name", error);
    return NULL;
}

/* A new file gets its size and its first words. The caller holds the lock. */
static int make(int fd)
{
    const struct {
        uint64_t magic;
        uint32_t version, size_bytes;
    } head = {CONTROL_MAGIC, CONTROL_VERSION, sizeof(struct fault_control)};
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -1;
    if (st.st_size != 0)
        return 0;
    return ftruncate(fd, sizeof(struct fault_control)) == 0 &&
                   pwrite(fd, &head, sizeof head, 0) == (ssize_t)sizeof head
               ? 0
               : -1;
}

struct fault_control *fault_control_open(const char *path, int *fd, char error[FAULT_ERROR_CHARS])
{
    const char *name = path ? path : "in memory";
    *fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
               : memfd_create("killline-sim-control", MFD_CLOEXEC);
    if (*fd < 0) {
        fail(name, strerror(errno), error);
        return NULL;
    }
    struct fault_control *control = NULL;
    if (flock(*fd, LOCK_EX) != 0 || make(*fd) != 0)
        fail(name, strerror(errno), error);
    else
        control = fault_control_map(*fd, name, error);
    flock(*fd, LOCK_UN);
    if (!control)
        close(*fd);
    return control;
}

void fault_control_close(struct fault_control *control, int fd)
{
    munmap(control, sizeof *control);
    close(fd);
}

void fault_control_read(struct fault_control *control, struct fault_control_reader *reader,
                        void (*apply)(void *context, int is_clear, const char *spec), void *context)
{
    char text[CONTROL_TEXT_BYTES];
    const uint32_t generation = atomic_load_explicit(&control->generation, memory_order_acquire);
    if (generation & 1)
        return;
    /* A sequence lock without fences: every load of what it guards is an acquire, so the second look at the
     * generation comes behind them; every store in append is a release, so it comes behind the first mark. */
    const uint32_t clears = atomic_load_explicit(&control->clears, memory_order_acquire);
    uint32_t n = atomic_load_explicit(&control->text_bytes, memory_order_acquire);
    if (n > CONTROL_TEXT_BYTES - 1)
        n = CONTROL_TEXT_BYTES - 1;
    for (uint32_t i = 0; i < n; i++)
        text[i] = atomic_load_explicit(&control->text[i], memory_order_acquire);
    if (atomic_load_explicit(&control->generation, memory_order_relaxed) != generation)
        return;
    text[n] = 0;
    const int is_clear = clears != reader->clears;
    uint32_t at = is_clear || reader->at > n ? 0 : reader->at;
    if (is_clear)
        apply(context, 1, "");
    for (char *line = text + at; *line;) {
        char *end = line + strcspn(line, "\n");
        const int is_last = !*end;
        *end = 0;
        apply(context, 0, line);
        line = is_last ? end : end + 1;
    }
    *reader = (struct fault_control_reader){generation, clears, n};
}

/* ---- the writer's side ---- */

static int append(struct fault_control *control, const char *spec, int is_clear,
                  char error[FAULT_ERROR_CHARS])
{
    uint32_t at = is_clear ? 0 : atomic_load_explicit(&control->text_bytes, memory_order_relaxed);
    const size_t length = strlen(spec);
    if (at + length + 2 > CONTROL_TEXT_BYTES)
        return fail("full", "clear it first", error);
    /* Odd while it is being written; it is odd already if a writer died in here. */
    const uint32_t writing = atomic_load_explicit(&control->generation, memory_order_relaxed) | 1;
    atomic_store_explicit(&control->generation, writing, memory_order_relaxed);
    if (is_clear)
        atomic_fetch_add_explicit(&control->clears, 1, memory_order_release);
    for (size_t i = 0; i < length; i++)
        atomic_store_explicit(&control->text[at++], spec[i], memory_order_release);
    if (length)
        atomic_store_explicit(&control->text[at++], '\n', memory_order_release);
    atomic_store_explicit(&control->text_bytes, at, memory_order_release);
    atomic_store_explicit(&control->generation, writing + 1, memory_order_release);
    return 0;
}

/* What stands behind the last "clear". */
static const char *behind_clear(const char *spec)
{
    const char *last = spec;
    for (const char *at = spec; *at;) {
        const size_t length = strcspn(at, ";");
        const char *next = at + length + (at[length] == ';');
        if (length == 5 && memcmp(at, "clear", 5) == 0)
            last = next;
        at = next;
    }
    return last;
}

int fault_to_control(const char *path, const char *spec, char error[FAULT_ERROR_CHARS])
{
    struct fault_list list;
    if (fault_parse(spec, &list, error) != 0)
        return -1;
    int fd;
    struct fault_control *control = fault_control_open(path, &fd, error);
    if (!control)
        return -1;
    int rc = -1;
    if (flock(fd, LOCK_EX) != 0)
        fail(path, strerror(errno), error);
    else
        rc = append(control, list.is_clear ? behind_clear(spec) : spec, list.is_clear, error);
    flock(fd, LOCK_UN);
    fault_control_close(control, fd);
    return rc;
}
