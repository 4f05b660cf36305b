#include <errno.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../hls/kl_abi.h"
#include "audit.h"
#include "governor.h"
#include "killline.h"
#include "order.h"

struct audit_reader {
    FILE *stream;
    char *name;
    EVP_MD *sha256;
    EVP_MD_CTX *ctx;
    struct audit_header header;
    uint64_t size_bytes; /* of the file when it was opened; 0: not a regular file */
    uint64_t n_record;   /* intact so far */
    uint64_t n_prediction, n_lost;
    uint8_t head[AUDIT_CHAIN_BYTES];
    int closed; /* STOP has been read */
    int ended;  /* result is final */
    int result;
    enum audit_fault fault;
    char error[AUDIT_ERROR_CHARS];
    struct audit_record record;
};

static int all_zero(const void *data, size_t size_bytes)
{
    const uint8_t *p = data;
    uint8_t any = 0;
    for (size_t i = 0; i < size_bytes; i++)
        any |= p[i];
    return any == 0;
}

/* Text up to the first NUL, zeros from there on. */
static int padded(const char *text, size_t size_bytes)
{
    size_t length = strnlen(text, size_bytes);
    return all_zero(text + length, size_bytes - length);
}

const char *audit_header_check(const struct audit_header *h)
{
    if (memcmp(h->magic, "KLAUDIT", sizeof(h->magic)) != 0)
        return "not an audit log (no KLAUDIT at byte 0)";
    if (h->version < 1 || h->version > AUDIT_VERSION)
        return "of another format version (byte 8): read it with the killline that wrote it, or a later one";
    if (h->header_bytes != sizeof(*h) || h->record_bytes != AUDIT_RECORD_BYTES)
        return "header or record size (bytes 12 and 16) does not belong to this version";
    if (h->clock != AUDIT_CLOCK_REAL && h->clock != AUDIT_CLOCK_REPLAY)
        return "clock (byte 24) is neither real nor replay";
    if (h->n_model > KL_N_SLOT)
        return "n_model (byte 28) is above the number of model slots";
    if (!isfinite(h->tsc_hz) || h->tsc_hz < 1e6 || h->tsc_hz > 1e12)
        return "tsc_hz (byte 32) is no clock rate (1e6 to 1e12)";
    if (!isfinite(h->clock_error_ppm) || h->clock_error_ppm < 0)
        return "clock_error_ppm (byte 56) is negative or not a number";
    if (h->clock == AUDIT_CLOCK_REPLAY && (h->tsc_hz != 1e9 || h->tsc0 != 0 || h->utc_ns0 != 0))
        return "replay clock, but tsc_hz is not 1e9 or tsc0, utc_ns0 (bytes 32 to 55) are not 0";
    if (!padded(h->build, sizeof(h->build)) || !padded(h->accel, sizeof(h->accel)) ||
        !padded(h->feed, sizeof(h->feed)))
        return "build, accel or feed is not padded with NUL";
    for (int i = 0; i < 8; i++)
        if (!padded(h->class_name[i], sizeof(h->class_name[i])))
            return "a class_name is not padded with NUL";
    if (!all_zero(h->pad, sizeof(h->pad)))
        return "padding (bytes 432 to 511) is not zero";
    return NULL;
}

static const char *prediction_check(const struct audit_prediction *p, uint32_t version)
{
    const unsigned flags_v1 = AUDIT_FLAG_AGE_CLAMPED | AUDIT_FLAG_KERNEL_LATE | AUDIT_FLAG_INFERRED |
                              AUDIT_FLAG_EGRESS_FAILED | AUDIT_FLAG_MIRROR;
    const unsigned flags_known = version == 1 ? flags_v1
                                              : flags_v1 | AUDIT_FLAG_ARM_B | AUDIT_FLAG_RUNG |
                                                    AUDIT_FLAG_AGE_UNKNOWN | AUDIT_FLAG_BATCH;
    if (p->verdict >= VERDICT_COUNT)
        return "verdict is out of range";
    if (p->slot >= KL_N_SLOT)
        return "slot is out of range";
    if (p->cls >= KL_N_CLASS_MAX)
        return "class is out of range";
    if (p->arrival_clock > AUDIT_ARRIVAL_BOUND)
        return "arrival clock is out of range";
    if (p->logit_frac > 63)
        return "logit_frac is above 63";
    if (p->flags & ~flags_known)
        return "unknown flag";
    if (version == 1 && p->model_hash)
        return "padding is not zero";
    if (p->flags & AUDIT_FLAG_AGE_UNKNOWN && p->verdict == VERDICT_PUBLISHED)
        return "published, but its age is unknown";
    return NULL;
}

/* The values that are enumerations, of the events that came with version 2. */
static const char *govern_check(const struct audit_event *e)
{
    const uint64_t *v = e->value;
    switch (e->code) {
    case AUDIT_EVENT_RUNG:
        if (v[0] >= GOVERNOR_N_RUNG || v[1] >= GOVERNOR_N_RUNG)
            return "rung is out of range";
        if (v[2] >= GOVERNOR_N_CAUSE)
            return "cause of the rung is out of range";
        return v[3] > 1 ? "latched is neither 0 nor 1" : NULL;
    case AUDIT_EVENT_ALERT:
        if (v[0] >= GOVERNOR_N_METRIC)
            return "metric of the alert is out of range";
        return v[1] > 1 ? "alert is neither raised nor gone" : NULL;
    case AUDIT_EVENT_ARMS:
        return v[2] > 100 ? "share of arm B is above 100 percent" : NULL;
    case AUDIT_EVENT_ORDER:
        return v[0] != ORDER_HALT && v[0] != ORDER_RESUME ? "order is neither halt nor resume" : NULL;
    default:
        return NULL;
    }
}

static const char *event_check(const struct audit_event *e, uint32_t version)
{
    if (!audit_event_name(e->code) || (version == 1 && e->code > AUDIT_EVENT_MODEL_SWITCH))
        return "event code is out of range";
    if (e->pad0 != 0 || e->pad1 != 0 || !all_zero(e->pad2, sizeof(e->pad2)))
        return "padding is not zero";
    if (!padded(e->text, sizeof(e->text)))
        return "text is not padded with NUL";
    return govern_check(e);
}

const char *audit_record_check(const struct audit_record *record, uint32_t version)
{
    switch (record->prediction.kind) {
    case AUDIT_PREDICTION:
        return prediction_check(&record->prediction, version);
    case AUDIT_EVENT:
        return event_check(&record->event, version);
    default:
        return "kind is neither prediction nor event";
    }
}

static int sha256(struct audit_reader *reader, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                  uint8_t out[AUDIT_CHAIN_BYTES])
{
    return EVP_DigestInit_ex2(reader->ctx, NULL, NULL) && EVP_DigestUpdate(reader->ctx, a, a_bytes) &&
           EVP_DigestUpdate(reader->ctx, b, b_bytes) && EVP_DigestFinal_ex(reader->ctx, out, NULL);
}

/* A long path by its tail: the reason behind it must fit into the message. */
static const char *name_tail(const char *name)
{
    size_t length = strlen(name), room = 100;
    return length > room ? name + length - room : name;
}

struct audit_reader *audit_reader_open(const char *path, char error[AUDIT_ERROR_CHARS])
{
    FILE *stream = fopen(path, "rbe");
    if (!stream) {
        snprintf(error, AUDIT_ERROR_CHARS, "%s: cannot open the audit log: %s", name_tail(path),
                 strerror(errno));
        return NULL;
    }
    return audit_reader_open_stream(stream, path, error);
}

/* Reads and checks the header. 0, or -1 with the message in error. */
static int read_header(struct audit_reader *reader, char error[AUDIT_ERROR_CHARS])
{
    const char *name = name_tail(reader->name);
    struct stat st;
    int fd = fileno(reader->stream);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        reader->size_bytes = (uint64_t)st.st_size;
    size_t n = fread(&reader->header, 1, sizeof(reader->header), reader->stream);
    if (ferror(reader->stream)) {
        snprintf(error, AUDIT_ERROR_CHARS, "%s: cannot read the audit log: %s", name, strerror(errno));
        return -1;
    }
    if (n < sizeof(reader->header)) {
        snprintf(error, AUDIT_ERROR_CHARS, "%s: not an audit log: %zu bytes, its header alone has %zu", name,
                 n, sizeof(reader->header));
        return -1;
    }
    const char *wrong = audit_header_check(&reader->header);
    if (wrong) {
        snprintf(error, AUDIT_ERROR_CHARS, "%s: header: %s", name, wrong);
        return -1;
    }
    if (!sha256(reader, &reader->header, sizeof(reader->header), NULL, 0, reader->head)) {
        snprintf(error, AUDIT_ERROR_CHARS, "%s: SHA-256 failed in OpenSSL", name);
        return -1;
    }
    return 0;
}

struct audit_reader *audit_reader_open_stream(FILE *stream, const char *name, char error[AUDIT_ERROR_CHARS])
{
    struct audit_reader *reader = calloc(1, sizeof(*reader));
    if (reader) {
        reader->name = strdup(name);
        reader->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
        reader->ctx = EVP_MD_CTX_new();
    }
    if (!reader || !reader->name || !reader->sha256 || !reader->ctx ||
        !EVP_DigestInit_ex2(reader->ctx, reader->sha256, NULL)) {
        snprintf(error, AUDIT_ERROR_CHARS, "%s: out of memory, or no SHA-256 in OpenSSL", name_tail(name));
        fclose(stream);
        if (reader)
            reader->stream = NULL;
        audit_reader_close(reader);
        return NULL;
    }
    reader->stream = stream;
    if (read_header(reader, error) != 0) {
        audit_reader_close(reader);
        return NULL;
    }
    return reader;
}

void audit_reader_close(struct audit_reader *reader)
{
    if (!reader)
        return;
    if (reader->stream)
        fclose(reader->stream);
    EVP_MD_CTX_free(reader->ctx);
    EVP_MD_free(reader->sha256);
    free(reader->name);
    free(reader);
}

const struct audit_header *audit_reader_header(const struct audit_reader *reader)
{
    return &reader->header;
}

enum audit_fault audit_reader_fault(const struct audit_reader *reader)
{
    return reader->fault;
}

uint64_t audit_reader_records(const struct audit_reader *reader)
{
    return reader->n_record;
}

uint64_t audit_reader_lost(const struct audit_reader *reader)
{
    return reader->n_lost;
}

const uint8_t *audit_reader_head(const struct audit_reader *reader)
{
    return reader->head;
}

uint64_t audit_reader_size_records(const struct audit_reader *reader)
{
    return reader->size_bytes < sizeof(reader->header)
               ? 0
               : (reader->size_bytes - sizeof(reader->header)) / AUDIT_RECORD_BYTES;
}

__attribute__((format(printf, 3, 4))) static int fail(struct audit_reader *reader, enum audit_fault fault,
                                                      const char *format, ...)
{
    int n = snprintf(reader->error, sizeof(reader->error), "%s: ", name_tail(reader->name));
    va_list args;
    va_start(args, format);
    vsnprintf(reader->error + n, sizeof(reader->error) - (size_t)n, format, args);
    va_end(args);
    reader->fault = fault;
    reader->ended = 1;
    return reader->result = -1;
}

/* The file has no further whole record: n bytes are left. */
static int at_end(struct audit_reader *reader, size_t n)
{
    unsigned long long intact = reader->n_record;
    if (ferror(reader->stream))
        return fail(reader, AUDIT_FAULT_IO, "cannot read on after record %lld: %s", (long long)intact - 1,
                    strerror(errno));
    if (n != 0 && reader->closed)
        return fail(reader, AUDIT_FAULT_CONTENT,
                    "%zu bytes follow the STOP event (record %llu): appended later", n, intact - 1);
    if (n != 0)
        return fail(reader, AUDIT_FAULT_TORN,
                    "torn tail: %zu bytes after the last whole one of %llu intact records; the log was not "
                    "closed (killed "
                    "process, full disk or cut file)",
                    n, intact);
    if (!reader->closed)
        return fail(reader, AUDIT_FAULT_NOT_CLOSED,
                    "log was not closed: no STOP event after %llu intact records (killed process, cut file, "
                    "or the run "
                    "goes on)",
                    intact);
    reader->ended = 1;
    return reader->result = 0;
}

/* What the record adds to the log's state. 0, or -1: it contradicts the records before it. */
static int follow(struct audit_reader *reader, unsigned long long offset)
{
    const struct audit_record *r = &reader->record;
    unsigned long long n = reader->n_record;
    if (r->prediction.kind == AUDIT_PREDICTION) {
        reader->n_prediction++;
        return 0;
    }
    if (r->event.code == AUDIT_EVENT_RECORDS_LOST)
        reader->n_lost += r->event.value[0];
    if (r->event.code != AUDIT_EVENT_STOP)
        return 0;
    if (r->event.value[0] != reader->n_prediction || r->event.value[1] != reader->n_lost)
        return fail(reader, AUDIT_FAULT_CONTENT,
                    "record %llu (byte %llu): STOP counts %llu predictions and %llu lost records, the log "
                    "holds %llu and "
                    "%llu",
                    n, offset, (unsigned long long)r->event.value[0], (unsigned long long)r->event.value[1],
                    (unsigned long long)reader->n_prediction, (unsigned long long)reader->n_lost);
    reader->closed = 1;
    return 0;
}

static int next(struct audit_reader *reader)
{
    struct audit_record *r = &reader->record;
    unsigned long long n = reader->n_record, offset = sizeof(struct audit_header) + n * AUDIT_RECORD_BYTES;
    size_t n_read = fread(r, 1, sizeof(*r), reader->stream);
    if (n_read < sizeof(*r))
        return at_end(reader, n_read);

    uint8_t chain[AUDIT_CHAIN_BYTES];
    if (!sha256(reader, reader->head, sizeof(reader->head), r->body, AUDIT_BODY_BYTES, chain))
        return fail(reader, AUDIT_FAULT_IO, "SHA-256 failed in OpenSSL at record %llu", n);
    /* prediction.record_no and event.record_no have one offset */
    unsigned long long record_no = r->prediction.record_no;
    if (memcmp(chain, r->chain, sizeof(chain)) != 0 && record_no != n)
        return fail(reader, AUDIT_FAULT_CHAIN,
                    "chain broken at record %llu (byte %llu), which calls itself %llu: records were removed, "
                    "inserted or "
                    "reordered here, or this one was altered",
                    n, offset, record_no);
    if (memcmp(chain, r->chain, sizeof(chain)) != 0)
        return fail(reader, AUDIT_FAULT_CHAIN,
                    "chain broken at record %llu (byte %llu): %sthis record was altered; the %llu before it "
                    "are intact",
                    n, offset, n == 0 ? "the header or " : "", n);
    if (record_no != n)
        return fail(reader, AUDIT_FAULT_CONTENT, "record %llu (byte %llu): record_no %llu is out of order", n,
                    offset, record_no);
    if (reader->closed)
        return fail(reader, AUDIT_FAULT_CONTENT,
                    "record %llu (byte %llu) follows the STOP event: appended later", n, offset);
    const char *wrong = audit_record_check(r, reader->header.version);
    if (wrong)
        return fail(reader, AUDIT_FAULT_CONTENT,
                    "record %llu (byte %llu): %s; the chain is right, so another program or version wrote it",
                    n, offset, wrong);
    if (follow(reader, offset) != 0)
        return -1;
    memcpy(reader->head, chain, sizeof(chain));
    reader->n_record++;
    return 1;
}
static_assert(offsetof(struct audit_prediction, record_no) == offsetof(struct audit_event, record_no),
              "record_no has one place");

int audit_reader_next(struct audit_reader *reader, const struct audit_record **record,
                      char error[AUDIT_ERROR_CHARS])
{
    int result = reader->ended ? reader->result : next(reader);
    if (result == 1)
        *record = &reader->record;
    else if (result < 0)
        memcpy(error, reader->error, sizeof(reader->error));
    return result;
}
