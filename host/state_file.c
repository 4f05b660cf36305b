#include "state_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE_MAX_BYTES = 16384, PATH_CHARS = 4096 }; /* 2 * 64 times of 20 bytes and indentation: 4 KiB */

static const char key_version[] = "killline_state", key_rung[] = "rung", key_cause[] = "cause",
                  key_latched[] = "latched", key_since[] = "since_utc_ns", key_by[] = "by",
                  key_reason[] = "reason", key_device[] = "device_faults_utc_ns",
                  key_halt[] = "halt_faults_utc_ns";
enum { N_KEY = 9 };

/* Words of the file: these never change, whatever governor_cause_name says to people. */
static const char *cause_word(unsigned cause)
{
    static const char *const words[GOVERNOR_N_CAUSE] = {
        [GOVERNOR_LATENCY] = "latency",
        [GOVERNOR_SPREAD] = "spread",
        [GOVERNOR_MISS] = "miss",
        [GOVERNOR_BUSY] = "busy",
        [GOVERNOR_RESOURCE] = "resource",
        [GOVERNOR_DEVICE] = "device",
        [GOVERNOR_BY_QUIET] = "quiet",
        [GOVERNOR_BY_OPERATOR] = "operator",
        [GOVERNOR_BY_DEVICE_THROTTLE] = "device-throttle",
        [GOVERNOR_BY_HALT_THROTTLE] = "halt-throttle",
        [GOVERNOR_BY_RESTART] = "restart",
        [GOVERNOR_BY_STATE_FILE] = "state-file",
        [GOVERNOR_BY_START] = "start",
    };
    return words[cause];
}

static const char *rung_word(unsigned rung)
{
    static const char *const words[GOVERNOR_N_RUNG] = {"active", "warning", "backup", "halted"};
    return words[rung];
}

/* ---- read ---- */

/* 0, or -1. */
static int word_of(const json_t *root, const char *key, const char *(*word)(unsigned), unsigned n,
                   unsigned *out)
{
    const char *text = json_string_value(json_object_get(root, key));
    for (*out = 0; text && *out < n; ++*out)
        if (!strcmp(text, word(*out)))
            return 0;
    return -1;
}

static int text_of(const json_t *root, const char *key, char *out, size_t chars)
{
    const json_t *value = json_object_get(root, key);
    const char *text = json_string_value(value);
    if (!text || strlen(text) != json_string_length(value) || order_text_check(text, chars))
        return -1;
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

static int time_of(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return -1;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int faults_of(const json_t *root, const char *key, uint32_t *n, uint64_t *out)
{
    const json_t *array = json_object_get(root, key);
    if (!json_is_array(array) || json_array_size(array) > GOVERNOR_N_FAULT)
        return -1;
    *n = (uint32_t)json_array_size(array);
    for (uint32_t i = 0; i < *n; i++)
        if (time_of(json_array_get(array, i), &out[i]) || (i && out[i] < out[i - 1]))
            return -1;
    return 0;
}

/* NULL, or the key that is missing or has no such value. */
static const char *fill(const json_t *root, struct state_file *state)
{
    unsigned rung, cause;
    if (word_of(root, key_rung, rung_word, GOVERNOR_N_RUNG, &rung))
        return key_rung;
    if (word_of(root, key_cause, cause_word, GOVERNOR_N_CAUSE, &cause))
        return key_cause;
    state->rung = rung;
    state->cause = cause;
    const json_t *latched = json_object_get(root, key_latched);
    state->latched = json_is_true(latched);
    if (!json_is_boolean(latched) || (state->latched && rung != GOVERNOR_HALTED))
        return key_latched;
    if (time_of(json_object_get(root, key_since), &state->since_utc_ns))
        return key_since;
    if (text_of(root, key_by, state->by, sizeof(state->by)))
        return key_by;
    if (text_of(root, key_reason, state->reason, sizeof(state->reason)))
        return key_reason;
    if (faults_of(root, key_device, &state->n_device_fault, state->device_fault_utc_ns))
        return key_device;
    if (faults_of(root, key_halt, &state->n_halt_fault, state->halt_fault_utc_ns))
        return key_halt;
    return NULL;
}

static __attribute__((format(printf, 3, 4))) int doubt(struct state_file *state, char *error,
                                                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(error, STATE_FILE_ERROR_CHARS, format, args);
    va_end(args);
    if (n < STATE_FILE_ERROR_CHARS)
        snprintf(error + n, STATE_FILE_ERROR_CHARS - (size_t)n,
                 ": in doubt the appliance is halted. Remedy: killline resume --by NAME --reason TEXT, which "
                 "writes it anew");
    *state = (struct state_file){.rung = GOVERNOR_HALTED, .cause = GOVERNOR_BY_STATE_FILE, .latched = 1};
    return -1;
}

int state_file_parse(const char *name, const char *text, size_t size_bytes, struct state_file *state,
                     char error[STATE_FILE_ERROR_CHARS])
{
    enum { NAME_CHARS = 256 }; /* so that the remedy fits behind it */
    json_error_t at;
    if (!size_bytes)
        return doubt(state, error, "%.*s: is empty", NAME_CHARS, name);
    json_t *root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        return doubt(state, error, "%.*s:%d: %.60s", NAME_CHARS, name, at.line, at.text);
    *state = (struct state_file){0};
    const json_t *version = json_object_get(root, key_version);
    const json_int_t n = json_integer_value(version);
    const int is_ours = json_is_integer(version) && n == STATE_FILE_VERSION;
    const size_t n_key = json_object_size(root);
    const char *wrong = is_ours ? fill(root, state) : NULL;
    json_decref(root);
    if (!is_ours)
        return n > STATE_FILE_VERSION
                   ? doubt(state, error, "%.*s: of version %lld, this killline reads %d", NAME_CHARS, name,
                           (long long)n, STATE_FILE_VERSION)
                   : doubt(state, error, "%.*s: is no state file of killline", NAME_CHARS, name);
    if (wrong)
        return doubt(state, error, "%.*s: '%s' is missing or has no such value", NAME_CHARS, name, wrong);
    if (n_key != N_KEY)
        return doubt(state, error, "%.*s: has a key that no state file has", NAME_CHARS, name);
    return 0;
}

int state_file_read(const char *path, struct state_file *state, char error[STATE_FILE_ERROR_CHARS])
{
    /* NONBLOCK: a fifo, too, is opened at once, and then refused. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        *state = (struct state_file){.rung = GOVERNOR_ACTIVE, .cause = GOVERNOR_BY_START};
        return 0;
    }
    if (fd < 0)
        return doubt(state, error, "%.256s: %s", path,
                     errno == ELOOP ? "is a symbolic link" : strerror(errno));
    struct stat s;
    char text[SIZE_MAX_BYTES + 1];
    size_t size_bytes = 0;
    ssize_t n = 1;
    if (fstat(fd, &s) || !S_ISREG(s.st_mode)) {
        close(fd);
        return doubt(state, error, "%.256s: is not a regular file", path);
    }
    while (n && size_bytes < sizeof(text)) {
        n = read(fd, text + size_bytes, sizeof(text) - size_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        size_bytes += (size_t)n;
    }
    const int read_errno = errno;
    close(fd);
    if (n < 0)
        return doubt(state, error, "%.256s: %s", path, strerror(read_errno));
    if (size_bytes == sizeof(text))
        return doubt(state, error, "%.256s: is larger than any state file (%d bytes)", path, SIZE_MAX_BYTES);
    return state_file_parse(path, text, size_bytes, state, error);
}

/* ---- write ---- */

static json_t *times(uint32_t n, const uint64_t *utc_ns)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++) {
        assert(!i || utc_ns[i] >= utc_ns[i - 1]);
        json_array_append_new(array, json_integer((json_int_t)utc_ns[i]));
    }
    return array;
}

/* malloc'd, or NULL: out of memory. */
static char *text_from(const struct state_file *state)
{
    assert(state->rung < GOVERNOR_N_RUNG && state->cause < GOVERNOR_N_CAUSE &&
           state->n_device_fault <= GOVERNOR_N_FAULT && state->n_halt_fault <= GOVERNOR_N_FAULT &&
           (!state->latched || state->rung == GOVERNOR_HALTED) && state->since_utc_ns <= INT64_MAX &&
           !order_text_check(state->by, sizeof(state->by)) &&
           !order_text_check(state->reason, sizeof(state->reason)));
    json_t *root = json_object();
    int bad = json_object_set_new(root, key_version, json_integer(STATE_FILE_VERSION));
    bad |= json_object_set_new(root, key_rung, json_string(rung_word(state->rung)));
    bad |= json_object_set_new(root, key_cause, json_string(cause_word(state->cause)));
    bad |= json_object_set_new(root, key_latched, json_boolean(state->latched));
    bad |= json_object_set_new(root, key_since, json_integer((json_int_t)state->since_utc_ns));
    bad |= json_object_set_new(root, key_by, json_string(state->by));
    bad |= json_object_set_new(root, key_reason, json_string(state->reason));
    bad |= json_object_set_new(root, key_device, times(state->n_device_fault, state->device_fault_utc_ns));
    bad |= json_object_set_new(root, key_halt, times(state->n_halt_fault, state->halt_fault_utc_ns));
    char *text = bad ? NULL : json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return text;
}

static int write_all(int fd, const char *text, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes;) {
        const ssize_t n = write(fd, text + at, size_bytes - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

/* Of the file's folder. owner: its own. */
static int open_folder(const char *path, struct stat *owner)
{
    char folder[PATH_CHARS];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, owner)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A new file of mode 0600 whatever the umask, the folder's owner's even if root writes it. 0, or -1: errno;
 * nothing is left. */
static int write_new(const char *path, const struct stat *owner, const char *text)
{
    unlink(path); /* of a process that was killed */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    int bad = fchmod(fd, 0600) || (owner->st_uid != geteuid() && fchown(fd, owner->st_uid, owner->st_gid)) ||
              write_all(fd, text, strlen(text)) || write_all(fd, "\n", 1) || fsync(fd);
    int why = errno;
    if (close(fd) && !bad) {
        bad = 1;
        why = errno;
    }
    if (bad)
        unlink(path);
    errno = why;
    return bad ? -1 : 0;
}

int state_file_write(const char *path, const struct state_file *state, char error[STATE_FILE_ERROR_CHARS])
{
    char next[PATH_CHARS];
    struct stat owner;
    if (snprintf(next, sizeof(next), "%s.new", path) >= (int)sizeof(next)) {
        snprintf(error, STATE_FILE_ERROR_CHARS, "%.256s...: path too long", path);
        return -1;
    }
    char *text = text_from(state);
    const int folder = text ? open_folder(path, &owner) : -1;
    int bad = folder < 0 ? -1 : write_new(next, &owner, text);
    int why = text ? errno : ENOMEM;
    if (!bad && rename(next, path)) {
        bad = -1;
        why = errno;
        unlink(next);
    }
    if (!bad && fsync(folder)) {
        bad = -1;
        why = errno;
    }
    if (bad)
        snprintf(error, STATE_FILE_ERROR_CHARS, "%.256s: could not be written: %s%s", path, strerror(why),
                 why == EISDIR || why == ENOTEMPTY ? ": remove that folder" : "");
    if (folder >= 0)
        close(folder);
    free(text);
    return bad;
}
