/* The audit log's reader against a chain computed here, and against every kind of damage.
 *
 * tests/data/audit_v1.kla and audit_v2.kla are logs of each format version, and never change.
 * test_audit_read --write-golden FILE writes the latter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit_file.h"
#include "audit_golden.h"

static char dir[] = "/tmp/test_audit_read_XXXXXX";

static int setup(void **state)
{
    (void)state;
    unlink(path);
    error[0] = 0;
    return 0;
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
        {PREDICTION + offsetof(struct audit_prediction, arrival_clock), AUDIT_ARRIVAL_BOUND + 1,
         "arrival clock"},
        {PREDICTION + offsetof(struct audit_prediction, logit_frac), 64, "logit_frac"},
        {PREDICTION + offsetof(struct audit_prediction, flags) + 1, 4, "flag"},
        {PREDICTION + offsetof(struct audit_prediction, flags) + 1, 0x80, "flag"},
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
        {offsetof(struct audit_header, version), 0, "version"},
        {offsetof(struct audit_header, version), 3, "version"},
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

static void test_version_1_is_read_as_before(void **state)
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
    uint64_t seed = 1;
    struct audit_prediction want = log_prediction(&seed, 0);
    want.record_no = 1;
    assert_memory_equal(golden.data + 512 + 256, &want, sizeof(want));
    free(golden.data);
}

/* What came with version 2 is not in a log that says it is of version 1, nor on 1's places. */
static void test_version_1_with_later_content_is_refused(void **state)
{
    (void)state;
    struct bytes golden = read_file(KL_SOURCE_DIR "/tests/data/audit_v1.kla");
    enum { PREDICTION = HEADER + RECORD, GAP = HEADER + 5 * RECORD };
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } cases[] = {
        {PREDICTION + offsetof(struct audit_prediction, flags), AUDIT_FLAG_ARM_B, "flag"},
        {PREDICTION + offsetof(struct audit_prediction, flags), 64, "flag"},
        {PREDICTION + offsetof(struct audit_prediction, flags), 128, "flag"},
        {PREDICTION + offsetof(struct audit_prediction, flags) + 1, AUDIT_FLAG_AGE_UNKNOWN >> 8, "flag"},
        {PREDICTION + offsetof(struct audit_prediction, flags) + 1, AUDIT_FLAG_BATCH >> 8, "flag"},
        {PREDICTION + offsetof(struct audit_prediction, model_hash), 1, "padding"},
        {PREDICTION + offsetof(struct audit_prediction, model_hash) + 7, 1, "padding"},
        {GAP + offsetof(struct audit_event, code), AUDIT_EVENT_RUNG, "event code"},
        {GAP + offsetof(struct audit_event, code), AUDIT_EVENT_CLOCK_BACK, "event code"},
    };
    uint64_t n;
    enum audit_fault why;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint8_t before = golden.data[cases[i].at];
        golden.data[cases[i].at] = cases[i].value;
        log_reseal(golden.data, golden.size);
        assert_int_equal(read_bytes(golden.data, golden.size, &n, &why), -1);
        assert_int_equal(why, AUDIT_FAULT_CONTENT);
        assert_says(cases[i].says);
        golden.data[cases[i].at] = before;
    }
    free(golden.data);

    static uint8_t lies[GOLDEN_BYTES];
    golden_build(lies, 1);
    assert_int_equal(read_bytes(lies, sizeof(lies), &n, &why), -1);
    assert_int_equal(why, AUDIT_FAULT_CONTENT);
    assert_int_equal(n, 3); /* up to ARMS */
}

static void test_golden_file(void **state)
{
    (void)state;
    static uint8_t now[GOLDEN_BYTES];
    struct bytes golden = read_file(KL_SOURCE_DIR "/tests/data/audit_v2.kla");
    golden_build(now, 2);
    assert_int_equal(golden.size, sizeof(now));
    assert_memory_equal(golden.data, now, sizeof(now));
    uint64_t n;
    enum audit_fault why;
    int result = read_bytes(golden.data, golden.size, &n, &why);
    if (result != 0)
        fail_msg("version 2 can no longer be read: %s", error);
    assert_int_equal(n, GOLDEN_N_RECORD);
    assert_memory_equal(golden.data, "KLAUDIT\0\2\0\0\0\0\2\0\0\0\1\0\0", 20);
    /* fixed values at fixed places, of the second "published" */
    const uint8_t *p = golden.data + 512 + 256 * (GOLDEN_N_EVENT + VERDICT_COUNT);
    uint64_t word;
    assert_int_equal(p[6] + 256 * p[7], 4 + 32 + 512); /* inferred, arm B, batch; ACTIVE */
    memcpy(&word, p + 96, 8);
    assert_int_equal(word, 75000);
    memcpy(&word, p + 216, 8);
    assert_int_equal(word, 0xa1);
    /* every code and every verdict is in it */
    unsigned codes = 0, verdicts = 0;
    for (size_t at = HEADER; at < golden.size; at += RECORD)
        if (golden.data[at] == AUDIT_EVENT)
            codes |= 1u << golden.data[at + offsetof(struct audit_event, code)];
        else
            verdicts |= 1u << golden.data[at + offsetof(struct audit_prediction, verdict)];
    assert_int_equal(codes, (1u << AUDIT_EVENT_CODE_COUNT) - 2);
    assert_int_equal(verdicts, (1u << VERDICT_COUNT) - 1);

    /* audit.c writes the same, byte for byte, as far as it is the one who decides (no record was lost) */
    struct audit_config config = {.path = path, .n_ring = 64, .on_full = AUDIT_FULL_WAIT};
    memcpy(&config.header, golden.data, sizeof(config.header));
    struct audit_log *audit = audit_open(&config, error);
    assert_non_null(audit);
    for (unsigned i = 0; i < GOLDEN_N_RECORD - 2; i++) {
        *audit_reserve(audit) = golden_record(i);
        audit_commit(audit);
    }
    audit_stop(audit, 1);
    assert_int_equal(audit_close(audit, NULL, error), 0);
    struct bytes written = read_file(path);
    assert_int_equal(written.size, golden.size - RECORD);
    assert_memory_equal(written.data, golden.data, golden.size - 2 * RECORD);
    free(written.data);
    free(golden.data);
}

/* Values of the new events that no poll loop writes. */
static void test_new_values_are_checked(void **state)
{
    (void)state;
    static const struct {
        enum audit_event_code code;
        int i; /* of value */
        uint64_t highest, above;
        const char *says;
    } cases[] = {
        {AUDIT_EVENT_RUNG, 0, GOVERNOR_N_RUNG - 1, GOVERNOR_N_RUNG, "rung"},
        {AUDIT_EVENT_RUNG, 1, GOVERNOR_N_RUNG - 1, UINT64_MAX, "rung"},
        {AUDIT_EVENT_RUNG, 2, GOVERNOR_N_CAUSE - 1, GOVERNOR_N_CAUSE, "cause"},
        {AUDIT_EVENT_RUNG, 2, GOVERNOR_N_CAUSE - 1, 1ull << 32, "cause"},
        {AUDIT_EVENT_RUNG, 3, 1, 2, "latched"},
        {AUDIT_EVENT_ALERT, 0, GOVERNOR_N_METRIC - 1, GOVERNOR_N_METRIC, "metric"},
        {AUDIT_EVENT_ALERT, 1, 1, 2, "raised"},
        {AUDIT_EVENT_ALERT, 2, UINT64_MAX, 0, NULL},
        {AUDIT_EVENT_ARMS, 2, 100, 101, "share"},
        {AUDIT_EVENT_ORDER, 0, ORDER_RESUME, ORDER_RESUME + 1, "order"},
        {AUDIT_EVENT_ORDER, 0, ORDER_HALT, 0, "order"},
        {AUDIT_EVENT_THRESHOLD, 3, UINT64_MAX, 0, NULL},
        {AUDIT_EVENT_CLOCK_BACK, 0, UINT64_MAX, 0, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct golden_event g = {.code = cases[i].code, .symbol = "", .text = ""};
        struct audit_record r;
        g.value[0] = g.code == AUDIT_EVENT_ORDER ? ORDER_HALT : 0;
        memset(&r, 0, sizeof(r));
        golden_put_event(&r, &g, 0);
        r.event.value[cases[i].i] = cases[i].highest;
        assert_null(audit_record_check(&r, 2));
        assert_non_null(audit_record_check(&r, 1));
        r.event.value[cases[i].i] = cases[i].above;
        const char *wrong = audit_record_check(&r, 2);
        if (cases[i].says && (!wrong || !strstr(wrong, cases[i].says)))
            fail_msg("case %zu: %s", i, wrong ? wrong : "passes");
        /* and whatever passes has words that fit */
        char text[AUDIT_GOVERN_TEXT_CHARS + 1];
        struct audit_header h = log_header(AUDIT_CLOCK_REAL);
        h.tsc_hz = 1e6;
        memset(r.event.value, 0xff, sizeof(r.event.value));
        r.event.value[cases[i].i] = cases[i].highest;
        memset(r.event.text, 'x', sizeof(r.event.text));
        if (!audit_record_check(&r, 2)) {
            memset(text, 0x7f, sizeof(text));
            const int length = audit_govern_text(&h, &r.event, text);
            assert_true(length > 0 && length < AUDIT_GOVERN_TEXT_CHARS && (int)strlen(text) == length);
            assert_int_equal(text[AUDIT_GOVERN_TEXT_CHARS], 0x7f);
        }
    }
    struct audit_record r = golden_record(GOLDEN_N_EVENT + VERDICT_STALE + VERDICT_COUNT);
    assert_true(r.prediction.flags & AUDIT_FLAG_AGE_UNKNOWN);
    assert_null(audit_record_check(&r, 2));
    r.prediction.verdict = VERDICT_PUBLISHED;
    assert_non_null(strstr(audit_record_check(&r, 2), "unknown"));
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--write-golden")) {
        static uint8_t data[GOLDEN_BYTES];
        golden_build(data, 2);
        FILE *f = fopen(argv[2], "wb");
        return !f || fwrite(data, sizeof(data), 1, f) != 1 || fclose(f) != 0;
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
        cmocka_unit_test_setup(test_version_1_is_read_as_before, setup),
        cmocka_unit_test_setup(test_version_1_with_later_content_is_refused, setup),
        cmocka_unit_test_setup(test_golden_file, setup),
        cmocka_unit_test_setup(test_new_values_are_checked, setup),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(dir);
    return result;
}
