#include <errno.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../hls/kl_abi.h"
#include "audit.h"
#include "killline.h"

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

const char *audit_device_name(uint64_t status)
{
    switch (status) {
    case KL_OK:
        return "no error";
    case KL_E_ABI:
        return "ABI version differs";
    case KL_E_OP:
        return "unknown operation";
    case KL_E_SLOT:
        return "slot out of range";
    case KL_E_STREAM:
        return "stream out of range";
    case KL_E_EMPTY:
        return "no model in the slot";
    case KL_E_IMAGE:
        return "image refused";
    case KL_E_IMAGE_HASH:
        return "image damaged";
    case KL_E_INPUT:
        return "input off its grid";
    case KL_E_SHAPE:
        return "image beyond the build's limits";
    case KL_E_STATE:
        return "state lost or damaged";
    case KL_E_BUSY:
        return "busy";
    case KL_E_PEER:
        return "the other unit of a split layer failed";
    case AUDIT_DEVICE_SILENT:
        return "no answer in time";
    case AUDIT_DEVICE_NONSENSE:
        return "answer of another model or out of range";
    case AUDIT_DEVICE_FAILED:
        return "refuses access or is gone";
    default:
        return "unknown status";
    }
}

const char *audit_event_name(unsigned code)
{
    static const char *const name[AUDIT_EVENT_CODE_COUNT] = {
        [AUDIT_EVENT_START] = "start",
        [AUDIT_EVENT_STOP] = "stop",
        [AUDIT_EVENT_GAP] = "gap",
        [AUDIT_EVENT_TRADING_STATE] = "trading-state",
        [AUDIT_EVENT_RECORDS_LOST] = "records-lost",
        [AUDIT_EVENT_SESSION_END] = "session-end",
        [AUDIT_EVENT_MODEL_LOAD] = "model-load",
        [AUDIT_EVENT_DEVICE_ERROR] = "device-error",
        [AUDIT_EVENT_STREAMS_FULL] = "streams-full",
        [AUDIT_EVENT_CARD_FAILOVER] = "card-failover",
        [AUDIT_EVENT_CARD_QUARANTINE] = "card-quarantine",
        [AUDIT_EVENT_CARD_RESET] = "card-reset",
        [AUDIT_EVENT_CARD_PROBE_FAILED] = "card-probe-failed",
        [AUDIT_EVENT_CARD_RECOVERED] = "card-recovered",
        [AUDIT_EVENT_CARD_STATE_LOST] = "card-state-lost",
        [AUDIT_EVENT_MODEL_SWITCH] = "model-switch",
    };
    return code < AUDIT_EVENT_CODE_COUNT ? name[code] : NULL;
}

const char *audit_card_name(uint64_t reason)
{
    static const char *const name[] = {
        [AUDIT_CARD_OK] = "ok",
        [AUDIT_CARD_REFUSED] = "refuses access or is gone",
        [AUDIT_CARD_SILENT] = "no answer in time",
        [AUDIT_CARD_SEQUENCE] = "answer out of order",
        [AUDIT_CARD_DAMAGED] = "damaged answer",
        [AUDIT_CARD_DIFFERS] = "answer other than the cpu backend's",
        [AUDIT_CARD_STATUS] = "error status",
        [AUDIT_CARD_LOAD] = "model does not load",
    };
    return reason < sizeof(name) / sizeof(name[0]) ? name[reason] : "unknown";
}

int audit_card_text(const struct audit_event *e, char text[AUDIT_CARD_TEXT_CHARS])
{
    const unsigned long long card = e->value[0], stream = e->value[2], n = e->value[3];
    const char *why = audit_card_name(e->value[1]);
    switch (e->code) {
    case AUDIT_EVENT_CARD_FAILOVER:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: %s (request %llu of stream %llu)", card, why,
                        n, stream);
    case AUDIT_EVENT_CARD_QUARANTINE:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: %s, stream %llu; last proved request %llu",
                        card, why, stream, n);
    case AUDIT_EVENT_CARD_RESET:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: %s", card,
                        e->value[1] == AUDIT_CARD_OK ? "reset, loaded, being probed" : why);
    case AUDIT_EVENT_CARD_PROBE_FAILED:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: %s", card, why);
    case AUDIT_EVENT_CARD_RECOVERED:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu serves again after %llu equal probes", card,
                        n);
    case AUDIT_EVENT_CARD_STATE_LOST:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: stream %llu starts anew", card, stream);
    default:
        return 0;
    }
}

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
    if (h->version != AUDIT_VERSION)
        return "of another format version (byte 8): read it with the killline that wrote it, or a later one";
    if (h->header_bytes != sizeof(*h) || h->record_bytes != AUDIT_RECORD_BYTES)
        return "header or record size (bytes 12 and 16) does not belong to version 1";
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

static const char *prediction_check(const struct audit_prediction *p)
{
    const unsigned flags_known = AUDIT_FLAG_AGE_CLAMPED | AUDIT_FLAG_KERNEL_LATE | AUDIT_FLAG_INFERRED |
                                 AUDIT_FLAG_EGRESS_FAILED | AUDIT_FLAG_MIRROR;
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
    if (!all_zero(p->pad, sizeof(p->pad)))
        return "padding is not zero";
    return NULL;
}

static const char *event_check(const struct audit_event *e)
{
    if (!audit_event_name(e->code))
        return "event code is out of range";
    if (e->pad0 != 0 || e->pad1 != 0 || !all_zero(e->pad2, sizeof(e->pad2)))
        return "padding is not zero";
    if (!padded(e->text, sizeof(e->text)))
        return "text is not padded with NUL";
    return NULL;
}

const char *audit_record_check(const struct audit_record *record)
{
    switch (record->prediction.kind) {
    case AUDIT_PREDICTION:
        return prediction_check(&record->prediction);
    case AUDIT_EVENT:
        return event_check(&record->event);
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
    const char *wrong = audit_record_check(r);
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
