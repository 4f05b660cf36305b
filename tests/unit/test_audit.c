/* The audit log's writer: full rings, slow, interrupted and failing disks, bad targets.
 *
 * write and fsync are wrapped (see CMakeLists.txt): they can be interrupted, shortened, held and made to
 * fail. */
#include <errno.h>
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

#include "audit_file.h"
#include "hls/kl_abi.h"

static char dir[] = "/tmp/test_audit_XXXXXX";

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

/* The last thing before STOP is a loss, while the writer is emptying the ring: it still gets in front of
 * STOP. */
static void test_loss_right_before_stop(void **state)
{
    (void)state;
    for (int k = 0; k < 300; k++) {
        unlink(path);
        struct audit_log *audit = open_log(4, AUDIT_FULL_DROP);
        uint64_t seed = 1;
        struct audit_prediction p = log_prediction(&seed, 0);
        while (audit_lost(audit) < 50) {
            struct audit_record *r = audit_reserve(audit);
            if (!r)
                continue;
            r->prediction = p;
            audit_commit(audit);
        }
        audit_stop(audit, 1);
        struct audit_totals totals;
        assert_int_equal(audit_close(audit, &totals, error), 0);
        assert_int_equal(totals.lost, 50);
        struct bytes b = read_file(path);
        uint64_t n;
        enum audit_fault why;
        assert_int_equal(read_bytes(b.data, b.size, &n, &why), 0);
        struct audit_event stop;
        memcpy(&stop, b.data + b.size - RECORD, sizeof(stop));
        assert_int_equal(stop.value[1], 50);
        free(b.data);
    }
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
    for (unsigned code = 1; code < AUDIT_EVENT_CODE_COUNT; code++)
        for (unsigned k = 1; k < code; k++)
            assert_string_not_equal(audit_event_name(code), audit_event_name(k));
    static const char *const cards[] = {"card-failover",     "card-quarantine", "card-reset",
                                        "card-probe-failed", "card-recovered",  "card-state-lost"};
    for (unsigned k = 0; k < 6; k++)
        assert_string_equal(audit_event_name(AUDIT_EVENT_CARD_FAILOVER + k), cards[k]);
    assert_string_equal(audit_event_name(AUDIT_EVENT_MODEL_SWITCH), "model-switch");
    /* every status has words of its own */
    static const uint64_t statuses[] = {KL_OK,
                                        KL_E_ABI,
                                        KL_E_OP,
                                        KL_E_SLOT,
                                        KL_E_STREAM,
                                        KL_E_EMPTY,
                                        KL_E_IMAGE,
                                        KL_E_IMAGE_HASH,
                                        KL_E_INPUT,
                                        KL_E_SHAPE,
                                        KL_E_STATE,
                                        KL_E_BUSY,
                                        KL_E_PEER,
                                        AUDIT_DEVICE_SILENT,
                                        AUDIT_DEVICE_NONSENSE,
                                        AUDIT_DEVICE_FAILED};
    enum { N_STATUS = sizeof(statuses) / sizeof(statuses[0]) };
    for (size_t i = 0; i < N_STATUS; i++) {
        assert_string_not_equal(audit_device_name(statuses[i]), "unknown status");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(audit_device_name(statuses[i]), audit_device_name(statuses[k]));
    }
    /* and there are no others */
    unsigned n_named = 0;
    for (uint64_t status = 0; status < 0x20000; status++)
        n_named += strcmp(audit_device_name(status), "unknown status") != 0;
    assert_int_equal(n_named, N_STATUS);
    assert_string_equal(audit_device_name(AUDIT_DEVICE_FAILED), "refuses access or is gone");
    assert_string_equal(audit_device_name(UINT64_MAX), "unknown status");
    for (uint64_t reason = 0; reason <= AUDIT_CARD_LOAD; reason++) {
        assert_string_not_equal(audit_card_name(reason), "unknown");
        for (uint64_t k = 0; k < reason; k++)
            assert_string_not_equal(audit_card_name(reason), audit_card_name(k));
    }
    assert_string_equal(audit_card_name(AUDIT_CARD_SILENT), "no answer in time");
    assert_string_equal(audit_card_name(AUDIT_CARD_DIFFERS), "answer other than the cpu backend's");
    assert_string_equal(audit_card_name(AUDIT_CARD_LOAD + 1), "unknown");
    assert_string_equal(audit_card_name(UINT64_MAX), "unknown");
}

static void test_card_text(void **state)
{
    (void)state;
    static const struct {
        enum audit_event_code code;
        uint64_t value[4];
        const char *text;
    } cases[] = {
        {AUDIT_EVENT_CARD_FAILOVER,
         {1, AUDIT_CARD_SILENT, 7, 4711},
         "card 1: no answer in time (request 4711 of stream 7)"},
        {AUDIT_EVENT_CARD_QUARANTINE,
         {0, AUDIT_CARD_DIFFERS, 9, 4710},
         "card 0: answer other than the cpu backend's, stream 9; last proved request 4710"},
        {AUDIT_EVENT_CARD_RESET, {2, AUDIT_CARD_OK, 0, 0}, "card 2: reset, loaded, being probed"},
        {AUDIT_EVENT_CARD_RESET, {2, AUDIT_CARD_REFUSED, 0, 0}, "card 2: refuses access or is gone"},
        {AUDIT_EVENT_CARD_PROBE_FAILED, {3, AUDIT_CARD_LOAD, 0, 0}, "card 3: model does not load"},
        {AUDIT_EVENT_CARD_RECOVERED,
         {4, AUDIT_CARD_OK, 0, 257},
         "card 4 serves again after 257 equal probes"},
        {AUDIT_EVENT_CARD_STATE_LOST, {5, AUDIT_CARD_OK, 11, 0}, "card 5: stream 11 starts anew"},
        /* from a file, which can hold anything */
        {AUDIT_EVENT_CARD_FAILOVER,
         {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
         "card 18446744073709551615: unknown (request 18446744073709551615 of stream 18446744073709551615)"},
    };
    char text[AUDIT_CARD_TEXT_CHARS];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct audit_event e = {.code = (uint16_t)cases[i].code};
        memcpy(e.value, cases[i].value, sizeof(e.value));
        assert_int_equal(audit_card_text(&e, text), strlen(cases[i].text));
        assert_string_equal(text, cases[i].text);
    }
    /* the longest text of each code fits */
    for (unsigned code = AUDIT_EVENT_CARD_FAILOVER; code <= AUDIT_EVENT_CARD_STATE_LOST; code++)
        for (uint64_t reason = 0; reason <= AUDIT_CARD_LOAD + 1; reason++) {
            const struct audit_event e = {.code = (uint16_t)code,
                                          .value = {UINT64_MAX, reason, UINT64_MAX, UINT64_MAX}};
            const int n = audit_card_text(&e, text);
            assert_true(n > 0 && n < AUDIT_CARD_TEXT_CHARS);
        }
    strcpy(text, "as it was");
    for (unsigned code = 0; code <= AUDIT_EVENT_CODE_COUNT; code++) {
        const struct audit_event e = {.code = (uint16_t)code};
        if (code >= AUDIT_EVENT_CARD_FAILOVER && code <= AUDIT_EVENT_CARD_STATE_LOST)
            continue;
        assert_int_equal(audit_card_text(&e, text), 0);
        assert_string_equal(text, "as it was");
    }
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/audit.kla", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_full_ring_is_counted_exactly, setup),
        cmocka_unit_test_setup(test_overload_adds_up, setup),
        cmocka_unit_test_setup(test_loss_right_before_stop, setup),
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
        cmocka_unit_test_setup(test_card_text, setup),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(dir);
    return result;
}
