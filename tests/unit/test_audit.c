/* Writer and reader of the audit log against each other and against a chain computed here.
 *
 * write and fsync are wrapped (see CMakeLists.txt): they can be interrupted, shortened, held and made to
 * fail. test_audit --write-golden FILE writes tests/data/audit_v1.kla anew; that file must never change
 * within version 1. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit_log.h"

static char dir[] = "/tmp/test_audit_XXXXXX", path[64], error[AUDIT_ERROR_CHARS];

/* What the wrapped calls do. */
static struct {
    _Atomic int hold;       /* write waits while it is set; */
    _Atomic int held;       /* ... and says so here */
    int shorten, interrupt; /* every write that can be; every second write */
    uint64_t fail_after;    /* bytes that still go in; then ENOSPC */
    int fail_fsync;
    uint64_t n_call, n_byte;
} fault;

ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
int __wrap_fsync(int fd);

ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    if (atomic_load(&fault.hold)) {
        atomic_store(&fault.held, 1);
        while (atomic_load(&fault.hold))
            sched_yield();
    }
    fault.n_call++;
    if (fault.interrupt && fault.n_call % 2) {
        errno = EINTR;
        return -1;
    }
    if (fault.shorten && size > 1)
        size = 1 + (size_t)(fault.n_call * 7919) % (size - 1);
    if (fault.n_byte + size > fault.fail_after)
        size = fault.fail_after - fault.n_byte;
    if (size == 0) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t n = __real_write(fd, data, size);
    fault.n_byte += n > 0 ? (uint64_t)n : 0;
    return n;
}

/* The disk's own speed is no part of these tests. */
int __wrap_fsync(int fd)
{
    (void)fd;
    if (fault.fail_fsync && --fault.fail_fsync == 0) {
        errno = EIO;
        return -1;
    }
    return 0;
}

static int setup(void **state)
{
    (void)state;
    memset(&fault, 0, sizeof(fault));
    fault.fail_after = UINT64_MAX;
    unlink(path);
    error[0] = 0;
    return 0;
}

static struct audit_log *open_log(uint64_t n_ring, enum audit_full on_full)
{
    struct audit_config config = {
        .path = path, .n_ring = n_ring, .on_full = on_full, .header = log_header(AUDIT_CLOCK_REPLAY)};
    struct audit_log *audit = audit_open(&config, error);
    if (!audit)
        print_error("%s\n", error);
    assert_non_null(audit);
    return audit;
}

static void put(struct audit_log *audit, const struct audit_prediction *p)
{
    struct audit_record *r = audit_reserve(audit);
    assert_non_null(r);
    r->prediction = *p;
    audit_commit(audit);
}

/* n predictions and n / 4 events, START first; STOP last. */
static struct audit_totals write_log(uint64_t n, uint64_t n_ring)
{
    struct audit_log *audit = open_log(n_ring, AUDIT_FULL_WAIT);
    struct audit_totals totals;
    uint64_t state = 1;
    log_event(audit, AUDIT_EVENT_START, 0, 0, "", 0, 0, "start");
    for (uint64_t i = 0; i < n; i++) {
        struct audit_prediction p = log_prediction(&state, i);
        put(audit, &p);
        if (i % 4 == 3)
            log_event(audit, AUDIT_EVENT_GAP, p.decided, p.feed_ts_ns, "TEST", i, 1, "line A");
    }
    audit_stop(audit, 1000 * n);
    if (audit_close(audit, &totals, error) != 0)
        fail_msg("%s", error);
    return totals;
}

struct bytes {
    uint8_t *data;
    size_t size;
};

static struct bytes read_file(const char *name)
{
    struct stat st;
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    struct bytes b = {malloc((size_t)st.st_size + 1), (size_t)st.st_size};
    assert_int_equal(fread(b.data, 1, b.size, f), b.size);
    fclose(f);
    return b;
}

enum { HEADER = sizeof(struct audit_header), RECORD = AUDIT_RECORD_BYTES };

/* Reads b to its end. Returns the last result of audit_reader_next, or -2 when the header is refused; the
 * message is in error. */
static int read_bytes(const uint8_t *data, size_t size, uint64_t *n_record, enum audit_fault *fault_out)
{
    *n_record = 0;
    *fault_out = AUDIT_FAULT_NONE;
    error[0] = 0;
    FILE *stream = size ? fmemopen((void *)(uintptr_t)data, size, "r") : fopen("/dev/null", "r");
    assert_non_null(stream);
    struct audit_reader *reader = audit_reader_open_stream(stream, "log", error);
    if (!reader)
        return -2;
    const struct audit_record *r;
    int result;
    while ((result = audit_reader_next(reader, &r, error)) == 1)
        assert_int_equal(r->prediction.record_no, (*n_record)++);
    assert_int_equal(audit_reader_next(reader, &r, error), result); /* and it stays so */
    assert_int_equal(audit_reader_records(reader), *n_record);
    *fault_out = audit_reader_fault(reader);
    audit_reader_close(reader);
    return result;
}

static void assert_says(const char *what)
{
    if (!strstr(error, what))
        fail_msg("message '%s' does not say '%s'", error, what);
}

static void test_chain_against_one_computed_here(void **state)
{
    (void)state;
    struct audit_totals totals = write_log(1000, 64);
    struct bytes b = read_file(path);
    assert_int_equal(totals.records, 1000 + 250 + 2);
    assert_int_equal(totals.lost, 0);
    assert_int_equal(b.size, HEADER + totals.records * RECORD);
    uint8_t input[32 + AUDIT_BODY_BYTES], chain[32];
    SHA256(b.data, HEADER, chain);
    for (uint64_t i = 0; i < totals.records; i++) {
        const uint8_t *record = b.data + HEADER + i * RECORD;
        memcpy(input, chain, 32);
        memcpy(input + 32, record, AUDIT_BODY_BYTES);
        SHA256(input, sizeof(input), chain);
        assert_memory_equal(record + AUDIT_BODY_BYTES, chain, 32);
        uint64_t record_no;
        memcpy(&record_no, record + offsetof(struct audit_event, record_no), 8);
        assert_int_equal(record_no, i);
    }
    assert_memory_equal(totals.head, chain, 32);

    /* what was put in comes out */
    struct audit_reader *reader = audit_reader_open(path, error);
    assert_non_null(reader);
    struct audit_header want = log_header(AUDIT_CLOCK_REPLAY);
    assert_memory_equal(&audit_reader_header(reader)->tsc_hz, &want.tsc_hz,
                        HEADER - offsetof(struct audit_header, tsc_hz));
    assert_int_equal(audit_reader_size_records(reader), totals.records);
    const struct audit_record *r;
    uint64_t seed = 1, i = 0;
    while (audit_reader_next(reader, &r, error) == 1) {
        if (r->prediction.kind != AUDIT_PREDICTION)
            continue;
        struct audit_prediction p = log_prediction(&seed, i++);
        p.record_no = r->prediction.record_no;
        assert_memory_equal(&p, &r->prediction, sizeof(p));
    }
    assert_int_equal(i, 1000);
    assert_int_equal(r->event.code, AUDIT_EVENT_STOP);
    assert_int_equal(r->event.value[0], 1000);
    assert_int_equal(r->event.value[1], 0);
    assert_memory_equal(audit_reader_head(reader), totals.head, 32);
    audit_reader_close(reader);
    free(b.data);
}

static void test_every_flipped_byte_is_found(void **state)
{
    (void)state;
    write_log(6, 64);
    struct bytes b = read_file(path);
    static const uint8_t mask[] = {0x01, 0x80, 0xff, 0x20};
    for (size_t at = 0; at < b.size; at++) {
        for (size_t m = 0; m < sizeof(mask); m++) {
            uint64_t n;
            enum audit_fault why;
            b.data[at] ^= mask[m];
            int result = read_bytes(b.data, b.size, &n, &why);
            if (at < HEADER) {
                /* refused at once, or found by the first record's chain */
                assert_true(result == -2 || (result == -1 && n == 0 && why == AUDIT_FAULT_CHAIN));
            } else {
                char where[64];
                size_t record = (at - HEADER) / RECORD;
                snprintf(where, sizeof(where), "record %zu (byte %zu)", record, HEADER + record * RECORD);
                assert_int_equal(result, -1);
                assert_int_equal(why, AUDIT_FAULT_CHAIN);
                assert_int_equal(n, record);
                assert_says(where);
            }
            b.data[at] ^= mask[m];
        }
    }
    free(b.data);
}

static void test_cut_at_every_byte(void **state)
{
    (void)state;
    write_log(6, 64);
    struct bytes b = read_file(path);
    for (size_t size = 0; size < b.size; size++) {
        uint64_t n;
        enum audit_fault why;
        int result = read_bytes(b.data, size, &n, &why);
        if (size < HEADER) {
            assert_int_equal(result, -2);
            assert_says("not an audit log");
            continue;
        }
        assert_int_equal(result, -1);
        assert_int_equal(n, (size - HEADER) / RECORD);
        int torn = (size - HEADER) % RECORD != 0;
        assert_int_equal(why, torn ? AUDIT_FAULT_TORN : AUDIT_FAULT_NOT_CLOSED);
        assert_says(torn ? "torn tail" : "no STOP event");
        assert_says("not closed");
    }
    free(b.data);
}

static void test_removed_inserted_reordered_appended(void **state)
{
    (void)state;
    struct audit_totals totals = write_log(8, 64);
    struct bytes b = read_file(path);
    uint64_t n, n_all = totals.records;
    enum audit_fault why;
    uint8_t *copy = malloc(b.size + RECORD);
    for (uint64_t k = 0; k < n_all; k++) {
        uint8_t *at = copy + HEADER + k * RECORD;
        /* removed */
        memcpy(copy, b.data, b.size);
        memmove(at, at + RECORD, b.size - HEADER - (k + 1) * RECORD);
        assert_int_equal(read_bytes(copy, b.size - RECORD, &n, &why), -1);
        assert_int_equal(n, k);
        assert_int_equal(why, k + 1 < n_all ? AUDIT_FAULT_CHAIN : AUDIT_FAULT_NOT_CLOSED);
        /* inserted: a second copy of itself */
        memcpy(copy, b.data, b.size);
        memmove(at + RECORD, at, b.size - HEADER - k * RECORD);
        assert_int_equal(read_bytes(copy, b.size + RECORD, &n, &why), -1);
        assert_int_equal(n, k + 1);
        assert_int_equal(why, AUDIT_FAULT_CHAIN);
        /* reordered: exchanged with the one behind it */
        if (k + 1 < n_all) {
            memcpy(copy, b.data, b.size);
            memcpy(at, b.data + HEADER + (k + 1) * RECORD, RECORD);
            memcpy(at + RECORD, b.data + HEADER + k * RECORD, RECORD);
            assert_int_equal(read_bytes(copy, b.size, &n, &why), -1);
            assert_int_equal(n, k);
            assert_says("removed, inserted or reordered");
        }
    }
    memcpy(copy, b.data, b.size);
    memset(copy + b.size, 0, 100);
    assert_int_equal(read_bytes(copy, b.size + 100, &n, &why), -1);
    assert_int_equal(n, n_all);
    assert_says("100 bytes follow the STOP event");
    free(copy);
    free(b.data);
}

static void test_fields_are_checked_too(void **state)
{
    (void)state;
    write_log(6, 64); /* records: START, 4 predictions, GAP, 2 predictions, STOP */
    enum {
        START = HEADER,
        PREDICTION = HEADER + 2 * RECORD,
        GAP = HEADER + 5 * RECORD,
        STOP = HEADER + 8 * RECORD
    };
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } cases[] = {
        {PREDICTION + offsetof(struct audit_prediction, kind), 0, "kind"},
        {PREDICTION + offsetof(struct audit_prediction, kind), 3, "kind"},
        {PREDICTION + offsetof(struct audit_prediction, verdict), VERDICT_COUNT, "verdict"},
        {PREDICTION + offsetof(struct audit_prediction, slot), 2, "slot"},
        {PREDICTION + offsetof(struct audit_prediction, cls), 8, "class"},
        {PREDICTION + offsetof(struct audit_prediction, arrival_clock), 3, "arrival clock"},
        {PREDICTION + offsetof(struct audit_prediction, logit_frac), 64, "logit_frac"},
        {PREDICTION + offsetof(struct audit_prediction, flags), 16, "flag"},
        {PREDICTION + offsetof(struct audit_prediction, flags) + 1, 1, "flag"},
        {PREDICTION + offsetof(struct audit_prediction, pad) + 7, 1, "padding"},
        {PREDICTION + offsetof(struct audit_prediction, record_no), 9, "record_no 9 is out of order"},
        {GAP + offsetof(struct audit_event, code), 0, "event code"},
        {GAP + offsetof(struct audit_event, code), AUDIT_EVENT_CODE_COUNT, "event code"},
        {GAP + offsetof(struct audit_event, pad0), 1, "padding"},
        {GAP + offsetof(struct audit_event, pad1) + 3, 1, "padding"},
        {GAP + offsetof(struct audit_event, pad2) + 5, 1, "padding"},
        {GAP + offsetof(struct audit_event, text) + 143, 'x', "text"},
        {GAP + offsetof(struct audit_event, code), AUDIT_EVENT_STOP, "STOP counts"},
        {GAP + offsetof(struct audit_event, code), AUDIT_EVENT_RECORDS_LOST, "STOP counts"},
        {STOP + offsetof(struct audit_event, value), 7, "STOP counts 7 predictions"},
        {STOP + offsetof(struct audit_event, value) + 8, 1, "and 1 lost records"},
        {STOP + offsetof(struct audit_event, code), AUDIT_EVENT_START, "no STOP"},
    };
    struct bytes b = read_file(path);
    uint8_t *copy = malloc(b.size + RECORD);
    uint64_t n;
    enum audit_fault why;
    memcpy(copy, b.data, b.size);
    log_reseal(copy, b.size);
    assert_memory_equal(copy, b.data, b.size);
    assert_int_equal(read_bytes(copy, b.size, &n, &why), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memcpy(copy, b.data, b.size);
        copy[cases[i].at] = cases[i].value;
        log_reseal(copy, b.size);
        if (read_bytes(copy, b.size, &n, &why) != -1)
            fail_msg("case %zu (%s) is not found", i, cases[i].says);
        assert_says(cases[i].says);
    }
    /* a record appended with a right chain */
    memcpy(copy, b.data, b.size);
    memcpy(copy + b.size, copy + START, RECORD);
    copy[b.size + offsetof(struct audit_event, record_no)] = 9;
    log_reseal(copy, b.size + RECORD);
    assert_int_equal(read_bytes(copy, b.size + RECORD, &n, &why), -1);
    assert_int_equal(n, 9);
    assert_says("follows the STOP event");
    free(copy);
    free(b.data);
}

static void test_header_fields_are_checked(void **state)
{
    (void)state;
    write_log(1, 64);
    struct bytes b = read_file(path);
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } cases[] = {
        {0, 'k', "not an audit log"},
        {7, 1, "not an audit log"},
        {offsetof(struct audit_header, version), 2, "version"},
        {offsetof(struct audit_header, header_bytes) + 1, 1, "size"},
        {offsetof(struct audit_header, record_bytes), 1, "size"},
        {offsetof(struct audit_header, clock), 2, "clock"},
        {offsetof(struct audit_header, n_model), 3, "n_model"},
        {offsetof(struct audit_header, tsc_hz) + 7, 0xc1, "tsc_hz"},
        {offsetof(struct audit_header, tsc_hz) + 7, 0x7f, "tsc_hz"},
        {offsetof(struct audit_header, tsc_hz) + 6, 0xce, "replay"},
        {offsetof(struct audit_header, tsc0), 1, "replay"},
        {offsetof(struct audit_header, utc_ns0), 1, "replay"},
        {offsetof(struct audit_header, clock_error_ppm) + 7, 0xc0, "clock_error_ppm"},
        {offsetof(struct audit_header, build) + 63, 'x', "padded"},
        {offsetof(struct audit_header, accel) + 15, 'x', "padded"},
        {offsetof(struct audit_header, feed) + 127, 'x', "padded"},
        {offsetof(struct audit_header, class_name) + 63, 'x', "padded"},
        {offsetof(struct audit_header, pad) + 79, 1, "padding"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t n;
        enum audit_fault why;
        uint8_t before = b.data[cases[i].at];
        b.data[cases[i].at] = cases[i].value;
        assert_int_equal(read_bytes(b.data, b.size, &n, &why), -2);
        assert_says("log: ");
        assert_says(cases[i].says);
        b.data[cases[i].at] = before;
    }
    free(b.data);
}

static void test_no_log_to_read(void **state)
{
    (void)state;
    assert_null(audit_reader_open("/nonexistent/audit.kla", error));
    assert_says("No such file");
    assert_null(audit_reader_open(dir, error));
    assert_says(dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("not a log\n", f);
    fclose(f);
    assert_null(audit_reader_open(path, error));
    assert_says("not an audit log");
}

/* The writer is held in its first write, so the ring fills up to the last place. */
static void test_full_ring_is_counted_exactly(void **state)
{
    (void)state;
    enum { N_RING = 8, N_LOST = 5 };
    struct audit_log *audit = open_log(N_RING, AUDIT_FULL_DROP);
    uint64_t seed = 1;
    struct audit_prediction p = log_prediction(&seed, 0);
    atomic_store(&fault.hold, 1);
    put(audit, &p);
    while (!atomic_load(&fault.held))
        sched_yield();
    for (int i = 0; i < N_RING; i++)
        put(audit, &p);
    for (int i = 0; i < N_LOST; i++) {
        assert_int_equal(audit_lost(audit), i);
        assert_null(audit_reserve(audit));
    }
    atomic_store(&fault.hold, 0);
    audit_stop(audit, 77);
    struct audit_totals totals;
    assert_int_equal(audit_close(audit, &totals, error), 0);
    assert_int_equal(totals.lost, N_LOST);
    assert_int_equal(totals.records, 1 + N_RING + 2);

    struct audit_reader *reader = audit_reader_open(path, error);
    const struct audit_record *r;
    uint64_t n_lost = 0, n_prediction = 0;
    while (audit_reader_next(reader, &r, error) == 1) {
        n_prediction += r->prediction.kind == AUDIT_PREDICTION;
        if (r->event.kind == AUDIT_EVENT && r->event.code == AUDIT_EVENT_RECORDS_LOST) {
            n_lost += r->event.value[0];
            assert_int_equal(r->event.at, p.decided);
        }
    }
    assert_int_equal(n_lost, N_LOST);
    assert_int_equal(n_prediction, 1 + N_RING);
    assert_int_equal(r->event.code, AUDIT_EVENT_STOP);
    assert_int_equal(r->event.at, 77);
    assert_int_equal(r->event.value[1], N_LOST);
    assert_int_equal(audit_reader_lost(reader), N_LOST);
    audit_reader_close(reader);
}

/* A ring far too small, and a producer that does not wait: whatever is lost is in the log. */
static void test_overload_adds_up(void **state)
{
    (void)state;
    enum { N = 300000 };
    struct audit_log *audit = open_log(4, AUDIT_FULL_DROP);
    uint64_t seed = 1, n_lost = 0;
    struct audit_prediction p = log_prediction(&seed, 0);
    for (int i = 0; i < N; i++) {
        struct audit_record *r = audit_reserve(audit);
        if (!r) {
            n_lost++;
            continue;
        }
        r->prediction = p;
        audit_commit(audit);
    }
    assert_int_equal(audit_lost(audit), n_lost);
    assert_true(n_lost > 0);
    audit_stop(audit, 1);
    struct audit_totals totals;
    assert_int_equal(audit_close(audit, &totals, error), 0);
    assert_int_equal(totals.lost, n_lost);
    struct bytes b = read_file(path);
    uint64_t n;
    enum audit_fault why;
    assert_int_equal(read_bytes(b.data, b.size, &n, &why), 0); /* checks STOP's sums against the records */
    assert_int_equal(n, totals.records);
    struct audit_event stop;
    memcpy(&stop, b.data + b.size - RECORD, sizeof(stop));
    assert_int_equal(stop.value[0] + stop.value[1], N);
    free(b.data);
}

static void test_waiting_loses_nothing(void **state)
{
    (void)state;
    for (uint64_t n_ring = 1; n_ring <= 64; n_ring *= 8) {
        unlink(path);
        struct audit_totals totals = write_log(20000, n_ring);
        assert_int_equal(totals.lost, 0);
        assert_int_equal(totals.records, 20000 + 5000 + 2);
    }
}

/* Equal records give equal bytes, whatever ring, timing and write calls were. */
static void test_equal_input_equal_bytes(void **state)
{
    (void)state;
    write_log(3000, 4096);
    struct bytes a = read_file(path);
    for (int k = 0; k < 4; k++) {
        setup(NULL);
        fault.shorten = k & 1;
        fault.interrupt = k >> 1;
        write_log(3000, 2u << (2 * k));
        struct bytes b = read_file(path);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        free(b.data);
    }
    free(a.data);
}

/* Garbage that a caller leaves in the pads does not reach the file. */
static void test_pads_are_the_writers(void **state)
{
    (void)state;
    struct audit_log *audit = open_log(4, AUDIT_FULL_WAIT);
    uint64_t seed = 1;
    struct audit_prediction p = log_prediction(&seed, 0);
    p.record_no = 12345;
    memset(p.pad, 0xaa, sizeof(p.pad));
    put(audit, &p);
    struct audit_record *r = audit_reserve(audit);
    memset(r, 0xbb, sizeof(*r));
    r->event.kind = AUDIT_EVENT;
    r->event.code = AUDIT_EVENT_GAP;
    strcpy(r->event.text, "gap");
    audit_commit(audit);
    audit_stop(audit, 0);
    assert_int_equal(audit_close(audit, NULL, error), 0);
    struct bytes b = read_file(path);
    uint64_t n;
    enum audit_fault why;
    assert_int_equal(read_bytes(b.data, b.size, &n, &why), 0);
    assert_int_equal(n, 3);
    free(b.data);
}

static void test_disk_full(void **state)
{
    (void)state;
    static const uint64_t room[] = {HEADER,
                                    HEADER + 1,
                                    HEADER + RECORD - 1,
                                    HEADER + 3 * RECORD + 100,
                                    HEADER + 300 * RECORD,
                                    HEADER + 300 * RECORD + 255};
    enum { N = 1000 };
    for (size_t k = 0; k < sizeof(room) / sizeof(room[0]); k++) {
        setup(NULL);
        fault.fail_after = room[k];
        fault.shorten = k & 1;
        struct audit_log *audit = open_log(16, AUDIT_FULL_WAIT);
        uint64_t seed = 1;
        for (int i = 0; i < N; i++) {
            struct audit_prediction p = log_prediction(&seed, (uint64_t)i);
            put(audit, &p);
        }
        audit_stop(audit, 1);
        struct audit_totals totals;
        assert_int_equal(audit_close(audit, &totals, error), -1);
        uint64_t n_whole = (room[k] - HEADER) / RECORD;
        char where[64];
        snprintf(where, sizeof(where), "failed at byte %llu",
                 (unsigned long long)(HEADER + n_whole * RECORD));
        assert_says(path);
        assert_says(where);
        assert_says("No space left");
        assert_says("free space");
        assert_int_equal(totals.records, n_whole);
        assert_int_equal(totals.lost, N + 1 - n_whole);
        struct bytes b = read_file(path);
        assert_int_equal(b.size, HEADER + n_whole * RECORD);
        uint64_t n;
        enum audit_fault why;
        assert_int_equal(read_bytes(b.data, b.size, &n, &why), -1);
        assert_int_equal(why, AUDIT_FAULT_NOT_CLOSED);
        assert_int_equal(n, n_whole);
        static const uint8_t zero[32];
        assert_memory_equal(totals.head, n ? b.data + b.size - 32 : zero, 32);
        free(b.data);
    }
}

static void test_disk_full_at_the_header(void **state)
{
    (void)state;
    struct audit_config config = {.path = path, .n_ring = 4, .header = log_header(AUDIT_CLOCK_REPLAY)};
    fault.fail_after = 100;
    assert_null(audit_open(&config, error));
    assert_says("No space left");
    assert_int_equal(access(path, F_OK), -1); /* nothing is left behind */
    setup(NULL);
    fault.fail_fsync = 1;
    assert_null(audit_open(&config, error));
    assert_says("sync");
    assert_int_equal(access(path, F_OK), -1);
    setup(NULL);
    fault.fail_fsync = 2; /* the directory's */
    assert_null(audit_open(&config, error));
    assert_says("sync");
    assert_int_equal(access(path, F_OK), -1);
}

static void test_failed_sync_is_reported(void **state)
{
    (void)state;
    struct audit_log *audit = open_log(4, AUDIT_FULL_WAIT);
    fault.fail_fsync = 1;
    audit_stop(audit, 0);
    assert_int_equal(audit_close(audit, NULL, error), -1);
    assert_says("fsync");
    assert_says("Input/output error");
}

static void test_bad_targets(void **state)
{
    (void)state;
    struct audit_config config = {.path = path, .n_ring = 4, .header = log_header(AUDIT_CLOCK_REPLAY)};
    write_log(1, 4);
    struct bytes before = read_file(path);
    assert_null(audit_open(&config, error));
    assert_says("File exists");
    assert_says("never overwritten");
    struct bytes after = read_file(path);
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.data, after.data, after.size);
    free(before.data);
    free(after.data);

    config.path = "/dev/full";
    assert_null(audit_open(&config, error));
    assert_says("File exists");
    assert_int_equal(access("/dev/full", F_OK), 0);
    config.path = "/nonexistent/directory/audit.kla";
    assert_null(audit_open(&config, error));
    assert_says("No such file");
    assert_says("create the directory");
    config.path = "";
    assert_null(audit_open(&config, error));
}

static void test_bad_configurations(void **state)
{
    (void)state;
    static const uint64_t n_ring[] = {0, 3, 1000, 1u << 25};
    struct audit_config config = {.path = path, .header = log_header(AUDIT_CLOCK_REPLAY)};
    for (size_t i = 0; i < sizeof(n_ring) / sizeof(n_ring[0]); i++) {
        config.n_ring = n_ring[i];
        assert_null(audit_open(&config, error));
        assert_says("power of two");
    }
    config.n_ring = 4;
    config.header.tsc_hz = 2.5e9;
    assert_null(audit_open(&config, error));
    assert_says("replay");
    config.header.clock = AUDIT_CLOCK_REAL;
    config.header.tsc_hz = 0;
    assert_null(audit_open(&config, error));
    assert_says("tsc_hz");
    assert_int_equal(access(path, F_OK), -1);
}

static void test_closed_without_stop(void **state)
{
    (void)state;
    struct audit_log *audit = open_log(4, AUDIT_FULL_WAIT);
    uint64_t seed = 1;
    struct audit_prediction p = log_prediction(&seed, 0);
    put(audit, &p);
    assert_int_equal(audit_close(audit, NULL, error), 0);
    struct bytes b = read_file(path);
    uint64_t n;
    enum audit_fault why;
    assert_int_equal(read_bytes(b.data, b.size, &n, &why), -1);
    assert_int_equal(why, AUDIT_FAULT_NOT_CLOSED);
    assert_int_equal(n, 1);
    free(b.data);
}

static void test_names(void **state)
{
    (void)state;
    assert_null(audit_event_name(0));
    for (unsigned code = 1; code < AUDIT_EVENT_CODE_COUNT; code++)
        assert_non_null(audit_event_name(code));
    assert_null(audit_event_name(AUDIT_EVENT_CODE_COUNT));
    assert_string_equal(audit_event_name(AUDIT_EVENT_RECORDS_LOST), "records-lost");
}

static void test_golden_file(void **state)
{
    (void)state;
    struct bytes golden = read_file(KL_SOURCE_DIR "/tests/data/audit_v1.kla");
    uint64_t n;
    enum audit_fault why;
    int result = read_bytes(golden.data, golden.size, &n, &why);
    if (result != 0)
        fail_msg("version 1 can no longer be read: %s", error);
    assert_int_equal(n, 12);
    /* fixed values at fixed places: a changed layout must not pass by changing both ends */
    const uint8_t *p = golden.data + 512 + 2 * 256;
    uint64_t feed_seq_no, age;
    memcpy(&feed_seq_no, p + 16, 8);
    memcpy(&age, p + 88, 8);
    assert_int_equal(p[0], 1);
    assert_int_equal(feed_seq_no, 1003);
    assert_memory_equal(p + 32, "TEST    ", 8);
    uint64_t stamp[5];
    memcpy(stamp, p + 48, 40);
    assert_int_equal(stamp[0], 1000);
    assert_int_equal(stamp[4] - stamp[0], age);
    assert_memory_equal(golden.data, "KLAUDIT\0\1\0\0\0\0\2\0\0\0\1\0\0", 20);

    write_log(8, 64);
    struct bytes now = read_file(path);
    assert_int_equal(now.size, golden.size);
    assert_memory_equal(now.data, golden.data, golden.size);
    free(now.data);
    free(golden.data);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--write-golden")) {
        snprintf(path, sizeof(path), "%s", argv[2]);
        setup(NULL);
        write_log(8, 64);
        return 0;
    }
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/audit.kla", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_chain_against_one_computed_here, setup),
        cmocka_unit_test_setup(test_every_flipped_byte_is_found, setup),
        cmocka_unit_test_setup(test_cut_at_every_byte, setup),
        cmocka_unit_test_setup(test_removed_inserted_reordered_appended, setup),
        cmocka_unit_test_setup(test_fields_are_checked_too, setup),
        cmocka_unit_test_setup(test_header_fields_are_checked, setup),
        cmocka_unit_test_setup(test_no_log_to_read, setup),
        cmocka_unit_test_setup(test_full_ring_is_counted_exactly, setup),
        cmocka_unit_test_setup(test_overload_adds_up, setup),
        cmocka_unit_test_setup(test_waiting_loses_nothing, setup),
        cmocka_unit_test_setup(test_equal_input_equal_bytes, setup),
        cmocka_unit_test_setup(test_pads_are_the_writers, setup),
        cmocka_unit_test_setup(test_disk_full, setup),
        cmocka_unit_test_setup(test_disk_full_at_the_header, setup),
        cmocka_unit_test_setup(test_failed_sync_is_reported, setup),
        cmocka_unit_test_setup(test_bad_targets, setup),
        cmocka_unit_test_setup(test_bad_configurations, setup),
        cmocka_unit_test_setup(test_closed_without_stop, setup),
        cmocka_unit_test_setup(test_names, setup),
        cmocka_unit_test_setup(test_golden_file, setup),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(dir);
    return result;
}
