/* The audit log's reader, and the report on top of it, over any bytes.
 *
 * Each input is read as it is, and once more with its chain made right, since otherwise the chain would
 * shield the field checks and the report from nearly every mutation. */
#include <assert.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/governor.h"
#include "host/killline.h"
#include "host/report.h"
#include "tests/audit_log.h"

enum { HEADER = sizeof(struct audit_header), RECORD = AUDIT_RECORD_BYTES };

static char html[] = "/tmp/fuzz_audit_XXXXXX";

static void remove_html(void)
{
    unlink(html);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    int fd = mkstemp(html);
    assert(fd >= 0);
    close(fd);
    atexit(remove_html);
    return 0;
}

/* Every chain in data is the one computed independently. */
static int chain_holds(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size);
    assert(copy);
    memcpy(copy, data, size);
    log_reseal(copy, size);
    int same = memcmp(copy, data, size) == 0;
    free(copy);
    return same;
}

/* Whatever the reader lets through has words: of the length that is said, within their room, printable. */
static void words(const struct audit_header *h, const struct audit_event *e)
{
    char text[AUDIT_GOVERN_TEXT_CHARS + 1];
    memset(text, 0x7f, sizeof(text));
    const int card = audit_card_text(e, text), length = card ? card : audit_govern_text(h, e, text);
    const int room = card ? (int)AUDIT_CARD_TEXT_CHARS : (int)AUDIT_GOVERN_TEXT_CHARS;
    assert(length >= 0 && length < room);
    assert((length != 0) == (e->code >= AUDIT_EVENT_RUNG || (e->code >= AUDIT_EVENT_CARD_FAILOVER &&
                                                             e->code <= AUDIT_EVENT_CARD_STATE_LOST)));
    for (int i = 0; i < length; i++)
        assert(text[i] >= 0x20 && text[i] < 0x7f);
    assert(!length || text[length] == 0);
    assert(text[sizeof(text) - 1] == 0x7f);
}

/* Returns the records read, or -1: refused. */
static int64_t read_log(const uint8_t *data, size_t size)
{
    char error[AUDIT_ERROR_CHARS] = "";
    FILE *stream = fmemopen((void *)(uintptr_t)data, size, "r");
    assert(stream);
    struct audit_reader *reader = audit_reader_open_stream(stream, "fuzz", error);
    if (!reader) {
        assert(error[0]);
        return -1;
    }
    const struct audit_record *r;
    uint64_t n = 0, n_max = (size - HEADER) / RECORD;
    int result, closed = 0;
    while ((result = audit_reader_next(reader, &r, error)) == 1) {
        assert(!closed); /* nothing comes after STOP */
        assert(n < n_max);
        assert(memcmp(r, data + HEADER + n * RECORD, RECORD) == 0);
        assert(r->prediction.record_no == n);
        assert(audit_record_check(r, audit_reader_header(reader)->version) == NULL);
        if (r->prediction.kind == AUDIT_PREDICTION) {
            assert(verdict_name(r->prediction.verdict) && governor_rung_name(audit_rung(&r->prediction)));
            assert(r->prediction.verdict != VERDICT_PUBLISHED ||
                   !(r->prediction.flags & AUDIT_FLAG_AGE_UNKNOWN));
        } else {
            words(audit_reader_header(reader), &r->event);
            closed = r->event.code == AUDIT_EVENT_STOP;
        }
        n++;
    }
    assert(audit_reader_records(reader) == n);
    assert(memcmp(audit_reader_head(reader), n ? data + HEADER + n * RECORD - 32 : audit_reader_head(reader),
                  32) == 0);
    if (result == 0) {
        assert(closed && size == HEADER + n * RECORD && audit_reader_fault(reader) == AUDIT_FAULT_NONE);
        assert(chain_holds(data, size));
    } else {
        assert(error[0] && audit_reader_fault(reader) != AUDIT_FAULT_NONE);
        /* what it did accept holds, whatever comes after */
        assert(chain_holds(data, HEADER + n * RECORD));
    }
    audit_reader_close(reader);
    return (int64_t)n;
}

/* The report of any log that can be opened gets written, and is a whole page. */
static void report(const uint8_t *data, size_t size)
{
    char log_path[64], error[AUDIT_ERROR_CHARS], tail[16] = "";
    int fd = memfd_create("audit", MFD_CLOEXEC);
    assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(log_path, sizeof(log_path), "/proc/self/fd/%d", fd);
    assert(report_write(log_path, html, error) >= 0);
    close(fd);
    FILE *f = fopen(html, "r");
    assert(f && fseek(f, -8, SEEK_END) == 0 && fread(tail, 1, 8, f) == 8);
    assert(memcmp(tail, "</html>\n", 8) == 0);
    fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    read_log(data, size);
    if (size < HEADER)
        return 0;
    uint8_t *sealed = malloc(size);
    assert(sealed);
    memcpy(sealed, data, size);
    /* record numbers too: a removed or doubled record would stop every such input */
    for (size_t at = HEADER; at + RECORD <= size; at += RECORD) {
        uint64_t record_no = (at - HEADER) / RECORD;
        memcpy(sealed + at + offsetof(struct audit_event, record_no), &record_no, sizeof(record_no));
    }
    log_reseal(sealed, size);
    if (read_log(sealed, size) >= 0)
        report(sealed, size);
    free(sealed);
    return 0;
}
