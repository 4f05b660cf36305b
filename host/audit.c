#include "audit.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "../hls/kl_abi.h"
#include "spsc_ring.h"

enum {
    BATCH_RECORDS =
        256,           /* 64 KB per write: a system call then costs less than the hashing of what it writes */
    IDLE_SPINS = 2000, /* some 50 us of pauses: a steady feed never finds the writer asleep */
    IDLE_SLEEP_NS = 50000, /* the producer never signals (a system call); the ring holds far more than comes
                              in this time */
};
static const uint64_t n_ring_max = 1u << 24; /* 4 GB */

struct audit_log {
    struct spsc_ring ring;
    /* producer's */
    _Alignas(64) _Atomic uint64_t lost_in_ring; /* only the producer adds */
    enum audit_full on_full;
    /* both */
    _Alignas(64) _Atomic int stopping; /* release by audit_close, acquired by the writer */
    _Atomic uint64_t lost_in_write;    /* only the writer adds */
    /* writer's */
    pthread_t thread;
    int fd;
    int failed_errno;        /* of the first write that failed; 0: none. Nothing is written after it. */
    const char *failed_what; /* the call that failed */
    uint64_t file_bytes;     /* on disk */
    uint64_t record_no;      /* of the next record */
    uint64_t n_prediction;
    uint64_t lost_reported; /* of lost_in_ring, by RECORDS_LOST events */
    uint64_t last_stamp;
    int stopped; /* the STOP event has come */
    uint32_t n_batch;
    uint8_t head[AUDIT_CHAIN_BYTES]; /* chain of the last record on disk, zero: none */
    EVP_MD *sha256;
    EVP_MD_CTX *ctx;
    char *path;
    uint8_t chain[AUDIT_CHAIN_BYTES]; /* of the last sealed record, or SHA-256 of the header */
    struct audit_record batch[BATCH_RECORDS];
};

/* out = SHA-256(a || b); out may be a. */
static void sha256(struct audit_log *log, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                   uint8_t out[AUDIT_CHAIN_BYTES])
{
    int ok = EVP_DigestInit_ex2(log->ctx, NULL, NULL) && EVP_DigestUpdate(log->ctx, a, a_bytes) &&
             EVP_DigestUpdate(log->ctx, b, b_bytes) && EVP_DigestFinal_ex(log->ctx, out, NULL);
    assert(ok); /* a context that is set up has no way to fail */
    (void)ok;
}

/* All of data, through interrupts and short writes. Returns the bytes written; fewer than asked: errno is
 * set. */
static size_t write_all(int fd, const void *data, size_t size_bytes)
{
    size_t done = 0;
    while (done < size_bytes) {
        ssize_t n = write(fd, (const uint8_t *)data + done, size_bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO; /* a regular file never does this; without it the loop would not end */
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

static void flush(struct audit_log *log)
{
    uint32_t n = log->n_batch, n_written = 0;
    if (n == 0)
        return;
    if (!log->failed_errno) {
        size_t written = write_all(log->fd, log->batch, (size_t)n * AUDIT_RECORD_BYTES);
        n_written = (uint32_t)(written / AUDIT_RECORD_BYTES);
        if (n_written < n) {
            log->failed_errno = errno;
            log->failed_what = "write";
        }
        log->file_bytes += (uint64_t)n_written * AUDIT_RECORD_BYTES;
        /* The part of a record that still went in is cut off again; where that fails, it is a torn tail. */
        if (written % AUDIT_RECORD_BYTES != 0 && ftruncate(log->fd, (off_t)log->file_bytes) != 0)
            log->failed_what = "write (and cutting off the torn record)";
    }
    if (n_written)
        memcpy(log->head, log->batch[n_written - 1].chain, AUDIT_CHAIN_BYTES);
    if (n_written < n)
        atomic_store_explicit(&log->lost_in_write,
                              atomic_load_explicit(&log->lost_in_write, memory_order_relaxed) + n - n_written,
                              memory_order_relaxed);
    log->n_batch = 0;
}

/* Numbers and chains the record at the end of the batch. */
static void seal(struct audit_log *log)
{
    struct audit_record *r = &log->batch[log->n_batch];
    if (r->prediction.kind == AUDIT_PREDICTION) {
        r->prediction.record_no = log->record_no;
        log->last_stamp = r->prediction.decided;
        log->n_prediction++;
    } else {
        r->event.pad0 = 0;
        r->event.pad1 = 0;
        memset(r->event.pad2, 0, sizeof(r->event.pad2));
        size_t length = strnlen(r->event.text, sizeof(r->event.text));
        memset(r->event.text + length, 0, sizeof(r->event.text) - length);
        r->event.record_no = log->record_no;
        log->last_stamp = r->event.at;
        if (r->event.code == AUDIT_EVENT_STOP) {
            r->event.value[0] = log->n_prediction;
            r->event.value[1] = log->lost_reported;
            log->stopped = 1;
        }
    }
    assert(audit_record_check(r, AUDIT_VERSION) ==
           NULL); /* a record that our own reader refuses must not get into the file */
    sha256(log, log->chain, AUDIT_CHAIN_BYTES, r->body, AUDIT_BODY_BYTES, log->chain);
    memcpy(r->chain, log->chain, AUDIT_CHAIN_BYTES);
    log->record_no++;
    if (++log->n_batch == BATCH_RECORDS)
        flush(log);
}

/* Puts what the ring had no room for into the log. Called after the acquire of spsc_ring_peek, which orders
 * every loss that came before the peeked record's push before this load. */
static void report_loss(struct audit_log *log)
{
    uint64_t lost = atomic_load_explicit(&log->lost_in_ring, memory_order_relaxed);
    if (lost == log->lost_reported || log->stopped)
        return;
    memset(&log->batch[log->n_batch], 0, AUDIT_RECORD_BYTES);
    struct audit_event *e = &log->batch[log->n_batch].event;
    e->kind = AUDIT_EVENT;
    e->code = AUDIT_EVENT_RECORDS_LOST;
    e->at = log->last_stamp;
    memset(e->symbol, ' ', sizeof(e->symbol));
    e->value[0] = lost - log->lost_reported;
    log->lost_reported = lost;
    seal(log);
}

/* Takes up to a batch out of the ring. Returns how many. */
static uint32_t drain(struct audit_log *log)
{
    const struct audit_record *r;
    uint32_t n = 0;
    /* Once per batch, not once per record: under overload the log must not fill with loss events. */
    report_loss(log);
    while (n < BATCH_RECORDS && (r = spsc_ring_peek(&log->ring)) != NULL) {
        assert(!log->stopped); /* STOP is the last record */
        if (r->event.kind == AUDIT_EVENT && r->event.code == AUDIT_EVENT_STOP)
            report_loss(log);
        memcpy(&log->batch[log->n_batch], r, AUDIT_RECORD_BYTES);
        spsc_ring_pop(&log->ring);
        seal(log);
        n++;
    }
    return n;
}

static void *writer_main(void *arg)
{
    struct audit_log *log = arg;
    const struct timespec nap = {.tv_nsec = IDLE_SLEEP_NS};
    unsigned n_idle = 0;
    for (;;) {
        /* acquire: pairs with the release in audit_close; read before the ring, so that an empty ring after
         * it is empty for good */
        int stopping = atomic_load_explicit(&log->stopping, memory_order_acquire);
        if (drain(log)) {
            n_idle = 0;
            continue;
        }
        if (stopping)
            break;
        if (++n_idle < IDLE_SPINS) {
            _mm_pause();
            continue;
        }
        flush(log);
        nanosleep(&nap, NULL);
    }
    report_loss(log);
    flush(log);
    return NULL;
}

/* Message: the tail of a long path, since the reason and the remedy behind it matter more than its beginning.
 */
static const char *path_tail(const char *path)
{
    size_t length = strlen(path), room = 120;
    return length > room ? path + length - room : path;
}

static int sync_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash == path ? strdup("/") : slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, result = -1;
    if (fd >= 0) {
        result = fsync(fd);
        /* EINVAL: a file system that cannot sync directories; then there is nothing to wait for. */
        if (result != 0 && errno == EINVAL)
            result = 0;
        close(fd);
    }
    free(dir);
    return result;
}

static const char *remedy(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "free space, or choose another --out";
    case EEXIST:
        return "an audit log is never overwritten: move it away, or choose another --out";
    case ENOENT:
    case ENOTDIR:
        return "create the directory first";
    case EACCES:
    case EPERM:
    case EROFS:
        return "make the directory writable, or choose another --out";
    case EFBIG:
        return "raise the file size limit (ulimit -f)";
    default:
        return "check the disk (dmesg)";
    }
}

static void free_log(struct audit_log *log)
{
    spsc_ring_free(&log->ring);
    EVP_MD_CTX_free(log->ctx);
    EVP_MD_free(log->sha256);
    free(log->path);
    free(log);
}

/* Starts the thread with every signal blocked: they belong to the main thread. Returns errno. */
static int start_writer(struct audit_log *log)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&log->thread, NULL, writer_main, log);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e == 0)
        pthread_setname_np(log->thread, "kl-audit");
    return e;
}

static struct audit_log *create_log(const struct audit_config *config)
{
    struct audit_log *log = aligned_alloc(_Alignof(struct audit_log), sizeof(*log));
    if (!log)
        return NULL;
    memset(log, 0, sizeof(*log));
    atomic_init(&log->lost_in_ring, 0);
    atomic_init(&log->lost_in_write, 0);
    atomic_init(&log->stopping, 0);
    log->fd = -1;
    log->on_full = config->on_full;
    log->path = strdup(config->path);
    log->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    log->ctx = EVP_MD_CTX_new();
    if (!log->path || !log->sha256 || !log->ctx || !EVP_DigestInit_ex2(log->ctx, log->sha256, NULL) ||
        spsc_ring_init(&log->ring, config->n_ring, AUDIT_RECORD_BYTES) != 0) {
        free_log(log);
        return NULL;
    }
    /* Touch every page now: otherwise the poll loop takes the page faults of the ring's first lap. */
    memset(log->ring.records, 0, config->n_ring * AUDIT_RECORD_BYTES);
    return log;
}

struct audit_log *audit_open(const struct audit_config *config, char error[AUDIT_ERROR_CHARS])
{
    struct audit_header header = config->header;
    memset(header.magic, 0, sizeof(header.magic));
    memcpy(header.magic, "KLAUDIT", 7);
    header.version = AUDIT_VERSION;
    header.header_bytes = sizeof(header);
    header.record_bytes = AUDIT_RECORD_BYTES;
    const char *path = path_tail(config->path), *wrong = audit_header_check(&header);
    if (wrong) {
        snprintf(error, AUDIT_ERROR_CHARS, "%s: not created: %s", path, wrong);
        return NULL;
    }
    if (config->n_ring == 0 || (config->n_ring & (config->n_ring - 1)) != 0 || config->n_ring > n_ring_max) {
        snprintf(error, AUDIT_ERROR_CHARS,
                 "%s: not created: the audit ring's %llu records are not a power of two of at most %llu",
                 path, (unsigned long long)config->n_ring, (unsigned long long)n_ring_max);
        return NULL;
    }
    struct audit_log *log = create_log(config);
    if (!log) {
        snprintf(error, AUDIT_ERROR_CHARS,
                 "%s: not created: out of memory (the ring takes %llu bytes), or no SHA-256 in OpenSSL", path,
                 (unsigned long long)config->n_ring * AUDIT_RECORD_BYTES);
        return NULL;
    }
    sha256(log, &header, sizeof(header), NULL, 0, log->chain);

    log->fd = open(config->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0640);
    if (log->fd < 0) {
        int e = errno;
        snprintf(error, AUDIT_ERROR_CHARS, "%s: cannot create the audit log: %s; %s", path, strerror(e),
                 remedy(e));
        free_log(log);
        return NULL;
    }
    const char *what = "write its header";
    int e = write_all(log->fd, &header, sizeof(header)) == sizeof(header) ? 0 : errno;
    log->file_bytes = sizeof(header);
    if (e == 0 && (fsync(log->fd) != 0 || sync_directory(config->path) != 0)) {
        e = errno;
        what = "sync it to disk";
    }
    if (e == 0 && (e = start_writer(log)) != 0)
        what = "start its writer thread";
    if (e != 0) {
        snprintf(error, AUDIT_ERROR_CHARS, "%s: audit log created, but cannot %s: %s; removed again; %s",
                 path, what, strerror(e), remedy(e));
        close(log->fd);
        unlink(config->path);
        free_log(log);
        return NULL;
    }
    return log;
}

static struct audit_record *reserve_wait(struct audit_log *log)
{
    struct audit_record *r;
    while ((r = spsc_ring_reserve(&log->ring)) == NULL)
        _mm_pause();
    return r;
}

struct audit_record *audit_reserve(struct audit_log *log)
{
    struct audit_record *r = spsc_ring_reserve(&log->ring);
    if (__builtin_expect(r != NULL, 1))
        return r;
    if (log->on_full == AUDIT_FULL_WAIT)
        return reserve_wait(log);
    /* Only this thread writes it; the next push's release makes it visible to the writer. */
    atomic_store_explicit(&log->lost_in_ring,
                          atomic_load_explicit(&log->lost_in_ring, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return NULL;
}

void audit_commit(struct audit_log *log)
{
    spsc_ring_push(&log->ring);
}

void audit_stop(struct audit_log *log, uint64_t at)
{
    struct audit_record *r = reserve_wait(log);
    r->event = (struct audit_event){.kind = AUDIT_EVENT, .code = AUDIT_EVENT_STOP, .at = at};
    memset(r->event.symbol, ' ', sizeof(r->event.symbol));
    audit_commit(log);
}

uint64_t audit_lost(const struct audit_log *log)
{
    return atomic_load_explicit(&log->lost_in_ring, memory_order_relaxed) +
           atomic_load_explicit(&log->lost_in_write, memory_order_relaxed);
}

uint64_t audit_used(const struct audit_log *log)
{
    return spsc_ring_count(&log->ring);
}

int audit_close(struct audit_log *log, struct audit_totals *totals, char error[AUDIT_ERROR_CHARS])
{
    /* release: pairs with the acquire in writer_main; every commit is visible to the writer's last drain */
    atomic_store_explicit(&log->stopping, 1, memory_order_release);
    pthread_join(log->thread, NULL);
    uint64_t lost_in_write = atomic_load_explicit(&log->lost_in_write, memory_order_relaxed);
    if (fsync(log->fd) != 0 && !log->failed_errno) {
        log->failed_errno = errno;
        log->failed_what = "fsync";
    }
    if (close(log->fd) != 0 && errno != EINTR && !log->failed_errno) {
        log->failed_errno = errno;
        log->failed_what = "close";
    }
    int result = 0;
    if (log->failed_errno) {
        snprintf(error, AUDIT_ERROR_CHARS,
                 "%s: %s failed at byte %llu: %s; %llu records are lost, those before it are intact; %s",
                 path_tail(log->path), log->failed_what, (unsigned long long)log->file_bytes,
                 strerror(log->failed_errno), (unsigned long long)lost_in_write, remedy(log->failed_errno));
        result = -1;
    }
    if (totals) {
        totals->records = (log->file_bytes - sizeof(struct audit_header)) / AUDIT_RECORD_BYTES;
        totals->lost = audit_lost(log);
        memcpy(totals->head, log->head, AUDIT_CHAIN_BYTES);
    }
    free_log(log);
    return result;
}
