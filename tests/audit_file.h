/* What the audit log's unit tests share: a log of known records written to a file, files as bytes, bytes
 * through the reader. */
#ifndef TESTS_AUDIT_FILE_H
#define TESTS_AUDIT_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "audit_log.h"

static char path[64], error[AUDIT_ERROR_CHARS]; /* of the log under test; the last message */

static inline struct audit_log *open_log(uint64_t n_ring, enum audit_full on_full)
{
    struct audit_config config = {
        .path = path, .n_ring = n_ring, .on_full = on_full, .header = log_header(AUDIT_CLOCK_REPLAY)};
    struct audit_log *audit = audit_open(&config, error);
    if (!audit)
        print_error("%s\n", error);
    assert_non_null(audit);
    return audit;
}

static inline void put(struct audit_log *audit, const struct audit_prediction *p)
{
    struct audit_record *r = audit_reserve(audit);
    assert_non_null(r);
    r->prediction = *p;
    audit_commit(audit);
}

/* n predictions and n / 4 events, START first; STOP last. */
static inline struct audit_totals write_log(uint64_t n, uint64_t n_ring)
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

static inline struct bytes read_file(const char *name)
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
static inline int read_bytes(const uint8_t *data, size_t size, uint64_t *n_record,
                             enum audit_fault *fault_out)
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

static inline void assert_says(const char *what)
{
    if (!strstr(error, what))
        fail_msg("message '%s' does not say '%s'", error, what);
}

#endif
