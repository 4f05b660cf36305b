/* The latency audit log: one fixed-size record per prediction (passes too) and per event, SHA-256 chained.
 *
 * File: one audit_header, then audit_records, 256 bytes each, little-endian. chain of record n =
 * SHA-256(chain of record n-1, or SHA-256(header) for the first || the record's first 224 bytes). The poll
 * loop fills records in an SPSC ring; the writer thread chains and writes them. The last record of a closed
 * log is an AUDIT_EVENT_STOP.
 *
 * What the chain proves: bytes that changed, and records removed, inserted, reordered or appended, are found
 * and located, by anyone, without a key. Whoever rewrites the whole chain is found out by the head (the last
 * record's chain) kept elsewhere: audit_totals.head at close, `killline audit verify --head` later.
 *
 * A full ring is never silent: the loss is counted and the count is written into the log as an event. A
 * killed process leaves a log without STOP: its records verify, and the reader says that it was not closed.
 */
#ifndef AUDIT_H
#define AUDIT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    AUDIT_VERSION =
        2, /* 1 had no model_hash, and neither flags nor events from 32 and 17 on: it is still read */
    AUDIT_RECORD_BYTES = 256,
    AUDIT_BODY_BYTES = 224,
    AUDIT_CHAIN_BYTES = 32,
    AUDIT_ERROR_CHARS = 256
};

struct audit_header {      /* 512 bytes */
    char magic[8];         /* "KLAUDIT\0" */
    uint32_t version;      /* AUDIT_VERSION */
    uint32_t header_bytes; /* 512 */
    uint32_t record_bytes; /* 256 */
    uint32_t abi_version;  /* KL_ABI_VERSION */
    uint32_t clock;        /* enum audit_clock of the run */
    uint32_t n_model;
    double tsc_hz;    /* cycles per second of every stamp; 1e9 with the replay clock */
    uint64_t tsc0;    /* one simultaneous reading: this TSC ... */
    uint64_t utc_ns0; /* ... was this UTC, ns since the epoch; both 0 with the replay clock */
    double clock_error_ppm;
    uint8_t model_sha256[2][32]; /* per slot; zero: empty slot */
    uint8_t config_sha256[32];
    char build[64];        /* version and commit, NUL padded */
    char accel[16];        /* backend */
    char feed[128];        /* what was replayed or listened to, NUL padded: name only, no directory */
    char class_name[8][8]; /* NUL padded */
    uint8_t pad[80];       /* zero */
};
static_assert(sizeof(struct audit_header) == 512, "frozen format");

enum audit_clock { AUDIT_CLOCK_REAL = 0, AUDIT_CLOCK_REPLAY = 1 };
enum audit_kind { AUDIT_PREDICTION = 1, AUDIT_EVENT = 2 };

/* Where the arrival stamp is from. */
enum audit_arrival {
    AUDIT_ARRIVAL_TSC =
        0, /* TSC read after the burst that brought the packet: blind to its wait in the ring */
    AUDIT_ARRIVAL_NIC = 1,     /* the port's hardware stamp, mapped to TSC */
    AUDIT_ARRIVAL_CAPTURE = 2, /* the capture's own stamp (replay clock) */
    AUDIT_ARRIVAL_BOUND =
        3, /* TSC read before the last receive that emptied the ring: the packet came later */
};

enum audit_flag {
    AUDIT_FLAG_AGE_CLAMPED = 1,   /* the arrival stamp lay in the future */
    AUDIT_FLAG_KERNEL_LATE = 2,   /* the kernel did not begin: it would have been over budget */
    AUDIT_FLAG_INFERRED = 4,      /* the accelerator ran: cls, logits, kernel_cycles are valid */
    AUDIT_FLAG_MIRROR = 16,       /* the answer is the cpu backend's, in place of a card that failed */
    AUDIT_FLAG_EGRESS_FAILED = 8, /* fresh, but the send port took nothing: verdict device-error */
    AUDIT_FLAG_ARM_B = 32,        /* the symbol has killline.ab's threshold */
    AUDIT_FLAG_RUNG = 64 | 128,   /* enum governor_rung at the verdict, times 64 */
    AUDIT_FLAG_AGE_UNKNOWN = 256, /* the clock went back, or the arrival stamp lay too far ahead: age_cycles
                                     is UINT64_MAX, and nothing was published */
    AUDIT_FLAG_BATCH = 512,       /* submitted together with the one before */
};

/* Stamps are TSC cycles, or with the replay clock ns of the capture's own time (pcap: since the epoch;
 * BinaryFILE: since midnight); 0: stage not reached. */
struct audit_prediction {
    uint8_t kind;    /* AUDIT_PREDICTION */
    uint8_t verdict; /* enum verdict */
    uint8_t slot;
    uint8_t cls;
    uint8_t arrival_clock; /* enum audit_arrival */
    uint8_t logit_frac;
    uint16_t flags;       /* enum audit_flag */
    uint64_t record_no;   /* from 0, no gaps; set by the writer */
    uint64_t feed_seq_no; /* of the message that triggered it */
    uint64_t feed_ts_ns;  /* exchange time, since midnight */
    char symbol[8];       /* space padded */
    uint16_t locate, stream;
    uint32_t request_seq;
    uint64_t arrival, decoded, submitted, completed, decided; /* stamps */
    uint64_t age_cycles;                                      /* at the verdict */
    uint64_t threshold_cycles;
    uint64_t expected_cycles; /* of the inference, as believed before submit */
    uint32_t kernel_cycles;   /* kernel clock */
    uint32_t prepare_cycles;
    uint32_t bid_price, ask_price; /* 1e-4 USD */
    uint32_t bid_qty, ask_qty;     /* saturated */
    uint64_t feature_hash;         /* FNV-1a 64 over the n_in binary16 inputs */
    uint64_t publish_seq;          /* of the datagram; 0: not published */
    int64_t logits[8];
    uint64_t model_hash; /* image hash of the model in the slot; version 1: 0 */
};
static_assert(sizeof(struct audit_prediction) == AUDIT_BODY_BYTES, "frozen format");

/* Where the ladder stood at the verdict: enum governor_rung. Version 1 had no ladder: 0. */
static inline unsigned audit_rung(const struct audit_prediction *prediction)
{
    return (prediction->flags & AUDIT_FLAG_RUNG) / 64;
}

enum audit_event_code {
    AUDIT_EVENT_START = 1,
    AUDIT_EVENT_STOP = 2, /* value[0]: predictions in the log, value[1]: records lost (set by the writer) */
    AUDIT_EVENT_GAP = 3,  /* value[0]: first lost sequence number, value[1]: count */
    AUDIT_EVENT_TRADING_STATE = 4, /* symbol; value[0]: 1 trading, 0 not */
    AUDIT_EVENT_RECORDS_LOST = 5,  /* by the writer; value[0]: records that found the ring full since the last
                                      such  event; at: stamp of the record before it, 0: none */
    AUDIT_EVENT_SESSION_END = 6,   /* value[0]: next sequence number */
    AUDIT_EVENT_MODEL_LOAD = 7,   /* value[0]: slot, value[1]: image hash, value[2]: kernel status, 0: live */
    AUDIT_EVENT_DEVICE_ERROR = 8, /* value[0]: enum kl_status or enum audit_device, value[1]: stream */
    AUDIT_EVENT_STREAMS_FULL = 9, /* symbol found no free stream */
    /* Cards. value[0]: card, value[1]: enum audit_card, value[2]: stream that showed it, value[3]: its
       request_seq. */
    AUDIT_EVENT_CARD_FAILOVER = 10,   /* the card's streams are the cpu backend's from here on */
    AUDIT_EVENT_CARD_QUARANTINE = 11, /* the same, because an answer differed; value[3]: the last one that was
                                         compared and equal: those after it are unproved */
    AUDIT_EVENT_CARD_RESET = 12, /* an attempt has ended; value[1] 0: the card is back, and is being probed */
    AUDIT_EVENT_CARD_PROBE_FAILED = 13,
    AUDIT_EVENT_CARD_RECOVERED = 14,  /* it serves again; value[3]: probes that were equal */
    AUDIT_EVENT_CARD_STATE_LOST = 15, /* stream starts anew: its state was on the card alone */
    AUDIT_EVENT_MODEL_SWITCH = 16,    /* value[0]: slot, value[1]: image hash; streams go over one by one */
    AUDIT_EVENT_RUNG =
        17,                 /* the ladder. value[0]: from, value[1]: to (enum governor_rung), value[2]: enum
                               governor_cause, value[3]: 1 latched; text: at the start of a run, who left it so */
    AUDIT_EVENT_ALERT = 18, /* value[0]: enum governor_metric, value[1]: 1 raised, 0 gone, value[2]: its
                               value, value[3]: the bound, in the metric's unit */
    AUDIT_EVENT_THRESHOLD = 19,  /* value[0]: from, value[1]: to, value[2]: age of the backlog, all in the
                                    log's  clock; value[3]: receive ring, percent */
    AUDIT_EVENT_ARMS = 20,       /* live A/B: value[0]: threshold, value[1]: arm B's, value[2]: share of B,
                                    percent, value[3]: salt */
    AUDIT_EVENT_ORDER = 21,      /* value[0]: enum order_kind; text: "NAME: REASON" */
    AUDIT_EVENT_CLOCK_BACK = 22, /* a new epoch: value[0]: its number, value[1]: last reading of the old one.
                                    Ages of what arrived before are unknown */
    AUDIT_EVENT_CODE_COUNT = 23,
};

/* What was wrong with a card. */
enum audit_card {
    AUDIT_CARD_OK = 0,
    AUDIT_CARD_REFUSED = 1,  /* it refused an access, or is gone */
    AUDIT_CARD_SILENT = 2,   /* no answer in time */
    AUDIT_CARD_SEQUENCE = 3, /* an answer that was not the next */
    AUDIT_CARD_DAMAGED = 4,  /* an answer that was damaged on its way, or of no sense */
    AUDIT_CARD_DIFFERS = 5,  /* an answer other than the cpu backend's */
    AUDIT_CARD_STATUS = 6,   /* an error status */
    AUDIT_CARD_LOAD = 7,     /* a model did not load */
};

/* What no kernel status says, above all of them. */
enum audit_device {
    AUDIT_DEVICE_SILENT = 0x10000,   /* no answer within the device's time */
    AUDIT_DEVICE_NONSENSE = 0x10001, /* an answer of another model, or out of every range */
    AUDIT_DEVICE_FAILED = 0x10002,   /* it refused the access, or is gone */
};

struct audit_event {
    uint8_t kind; /* AUDIT_EVENT */
    uint8_t pad0;
    uint16_t code; /* enum audit_event_code */
    uint32_t pad1;
    uint64_t record_no;
    uint64_t at;         /* stamp */
    uint64_t feed_ts_ns; /* exchange time, 0: none */
    char symbol[8];
    uint16_t locate;
    uint8_t pad2[6];
    uint64_t value[4];
    char text[144]; /* NUL padded */
};
static_assert(sizeof(struct audit_event) == AUDIT_BODY_BYTES, "frozen format");

struct audit_record {
    union {
        struct audit_prediction prediction;
        struct audit_event event;
        uint8_t body[AUDIT_BODY_BYTES];
    };
    uint8_t chain[AUDIT_CHAIN_BYTES];
};
static_assert(sizeof(struct audit_record) == AUDIT_RECORD_BYTES, "frozen format");

enum audit_full { AUDIT_FULL_DROP = 0, AUDIT_FULL_WAIT = 1 };

struct audit_config {
    const char *path;           /* created; an existing file is refused */
    uint64_t n_ring;            /* records, power of two */
    enum audit_full on_full;    /* WAIT spins until there is room (replay: nothing may be lost) */
    struct audit_header header; /* magic, version and sizes are filled in by audit_open */
};

struct audit_log;

/* Creates the file (and its directory entry, synced), writes the header, starts the writer thread. NULL with
 * a message in error; no file is left behind then. The thread inherits the caller's CPU affinity: call it
 * before the poll loop is pinned, or it will share the loop's core. */
struct audit_log *audit_open(const struct audit_config *config, char error[AUDIT_ERROR_CHARS]);

/* Poll loop: a record to fill (not zeroed: fill every field or assign a whole struct), or NULL when the ring
 * is full and the policy is to drop (counted). audit_commit hands it to the writer. record_no, chain and pads
 * are the writer's. kind, verdict, code and the other enumerations must be valid (assert). No system call, no
 * lock. */
struct audit_record *audit_reserve(struct audit_log *log);
void audit_commit(struct audit_log *log);

/* Poll loop's thread, last of all: commits AUDIT_EVENT_STOP with this stamp. Waits for room whatever the
 * policy, so that a log that could be written is never left open. audit_reserve must not be called after it.
 */
void audit_stop(struct audit_log *log, uint64_t at);

/* Records lost until now, for want of room in the ring or because writing failed (disk full): nonzero is an
 * alert. Any thread; two loads. */
uint64_t audit_lost(const struct audit_log *log);

/* Records in the ring, which holds n_ring: near full is an alert. Any thread; two loads. */
uint64_t audit_used(const struct audit_log *log);

struct audit_totals {
    uint64_t records; /* on disk, events too */
    uint64_t lost;
    uint8_t head[AUDIT_CHAIN_BYTES]; /* chain of the last record on disk; zero: none */
};

/* Poll loop's thread, after audit_stop (without it the log counts as not closed): drains the ring, joins the
 * writer, syncs and closes the file. 0, or -1 with a message when something could not be written: then the
 * file ends with the last whole record that was, and totals says how many were not. totals may be NULL. Frees
 * log. */
int audit_close(struct audit_log *log, struct audit_totals *totals, char error[AUDIT_ERROR_CHARS]);

/* Reader (audit_read.c): streams, constant memory, believes nothing. */
enum audit_fault {
    AUDIT_FAULT_NONE = 0,
    AUDIT_FAULT_NOT_CLOSED = 1, /* intact, but no STOP: the process was killed, or still writes */
    AUDIT_FAULT_TORN = 2,       /* the same, with part of a record at the end */
    AUDIT_FAULT_CHAIN = 3,      /* altered, or records removed, inserted, reordered */
    AUDIT_FAULT_CONTENT =
        4, /* the chain is right but a field is not: not written by audit.c, or by a later version */
    AUDIT_FAULT_IO = 5, /* could not be read */
};

struct audit_reader;
/* NULL with a message: cannot be read, not an audit log, or of another version. */
struct audit_reader *audit_reader_open(const char *path, char error[AUDIT_ERROR_CHARS]);
/* The same from an open stream, which the reader then owns, on failure too; name stands in messages. */
struct audit_reader *audit_reader_open_stream(FILE *stream, const char *name, char error[AUDIT_ERROR_CHARS]);
const struct audit_header *audit_reader_header(const struct audit_reader *reader);
/* Next record, its chain and every field's range checked: 1 and *record (valid until the next call), 0 at the
 * end of a closed log, -1 with a message that names the record, its byte offset, what is wrong and what that
 * means. After 0 or -1 every further call returns the same. */
int audit_reader_next(struct audit_reader *reader, const struct audit_record **record,
                      char error[AUDIT_ERROR_CHARS]);
enum audit_fault audit_reader_fault(const struct audit_reader *reader); /* after -1 */
uint64_t audit_reader_records(const struct audit_reader *reader);       /* intact ones so far */
uint64_t audit_reader_lost(const struct audit_reader *reader); /* sum of the RECORDS_LOST events so far */
const uint8_t *
audit_reader_head(const struct audit_reader *reader); /* chain of the last intact one (of the header: none) */
uint64_t audit_reader_size_records(const struct audit_reader *reader); /* by the file's size; 0: not a file */
void audit_reader_close(struct audit_reader *reader);

/* A stamp in UTC, ns since 1970, by the header's clock; 0: of another clock than that, or centuries off. A
 * clock that went back since (CLOCK_BACK) is not known here. */
uint64_t audit_utc_ns(const struct audit_header *header, uint64_t at);
/* "gap", "records-lost" ...; NULL for a code out of range. */
const char *audit_event_name(unsigned code);
/* What a DEVICE_ERROR's value[0] says, in a few words; "unknown status" for a value out of range. */
const char *audit_device_name(uint64_t status);
/* enum audit_card in a few words; "unknown" for a value out of range. */
const char *audit_card_name(uint64_t reason);
/* What a CARD_* event's values say. Returns the text's length; 0, text untouched: another event. */
enum { AUDIT_CARD_TEXT_CHARS = 160 };
int audit_card_text(const struct audit_event *event, char text[AUDIT_CARD_TEXT_CHARS]);
/* The same for RUNG, ALERT, THRESHOLD, ARMS, ORDER (with the event's own text, printable) and CLOCK_BACK,
 * whose values audit_record_check has passed. header: of the log, for its clock. */
enum { AUDIT_GOVERN_TEXT_CHARS = 224 };
int audit_govern_text(const struct audit_header *header, const struct audit_event *event,
                      char text[AUDIT_GOVERN_TEXT_CHARS]);
/* NULL, or what is wrong with the header's fields (sizes and versions too). For the reader and audit_open. */
const char *audit_header_check(const struct audit_header *header);
/* NULL, or what is wrong with the record's fields, record_no and chain apart. For the reader and the writer.
 * version: the log's. */
const char *audit_record_check(const struct audit_record *record, uint32_t version);

#endif
