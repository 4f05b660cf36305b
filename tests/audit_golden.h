/* A version 2 log with every event code and every verdict, made without audit.c: tests/data/audit_v2.kla. */
#ifndef TESTS_AUDIT_GOLDEN_H
#define TESTS_AUDIT_GOLDEN_H

#include <stdio.h>

#include "audit_log.h"
#include "host/governor.h"
#include "host/order.h"

static const struct golden_event {
    enum audit_event_code code;
    uint64_t value[4];
    const char *symbol, *text, *says; /* says: its values, in words */
} golden_events[] = {
    {AUDIT_EVENT_START, {0}, "", "killline run", ""},
    {AUDIT_EVENT_MODEL_LOAD, {0, 0xf122334455667788}, "", "primary", "slot 0, image f122334455667788"},
    {AUDIT_EVENT_MODEL_LOAD,
     {1, 0xa1, 9},
     "",
     "",
     "slot 1, image 00000000000000a1: image beyond the build's limits (status 9)"},
    {AUDIT_EVENT_ARMS,
     {50000, 75000, 40, 7},
     "",
     "",
     "A 50.000 us, B 75.000 us for 40 % of the symbols, salt 7"},
    {AUDIT_EVENT_GAP, {1000, 12}, "", "both lines", "from sequence number 1000, messages 12"},
    {AUDIT_EVENT_TRADING_STATE, {0}, "TEST", "H", "not trading"},
    {AUDIT_EVENT_DEVICE_ERROR,
     {AUDIT_DEVICE_SILENT, 3},
     "TEST",
     "",
     "no answer in time (status 65536), stream 3"},
    {AUDIT_EVENT_STREAMS_FULL, {0}, "FULL", "", ""},
    {AUDIT_EVENT_CARD_FAILOVER,
     {1, AUDIT_CARD_SILENT, 7, 4711},
     "",
     "",
     "card 1: no answer in time (request 4711 of stream 7)"},
    {AUDIT_EVENT_CARD_QUARANTINE,
     {0, AUDIT_CARD_DIFFERS, 9, 4710},
     "",
     "",
     "card 0: answer other than the cpu backend's, stream 9; last proved request 4710"},
    {AUDIT_EVENT_CARD_RESET, {2}, "", "", "card 2: reset, loaded, being probed"},
    {AUDIT_EVENT_CARD_PROBE_FAILED, {3, AUDIT_CARD_LOAD}, "", "", "card 3: model does not load"},
    {AUDIT_EVENT_CARD_RECOVERED, {4, 0, 0, 257}, "", "", "card 4 serves again after 257 equal probes"},
    {AUDIT_EVENT_CARD_STATE_LOST, {5, 0, 11}, "", "", "card 5: stream 11 starts anew"},
    {AUDIT_EVENT_ALERT,
     {GOVERNOR_LATENCY, 1, 93, 90},
     "",
     "",
     "raised: p99 age 93 % of the threshold, bound 90 % of the threshold"},
    {AUDIT_EVENT_RUNG,
     {GOVERNOR_ACTIVE, GOVERNOR_WARNING, GOVERNOR_LATENCY, 0},
     "",
     "",
     "ACTIVE -> WARNING: "},
    {AUDIT_EVENT_ALERT,
     {GOVERNOR_SPREAD, 1, 41500, 40000},
     "",
     "",
     "raised: P99 - P50 of the age 41.500 us, bound 40.000 us"},
    {AUDIT_EVENT_ALERT,
     {GOVERNOR_MISS, 1, 120000, 100000},
     "",
     "",
     "raised: misses 120000 per million, bound 100000 per million"},
    {AUDIT_EVENT_RUNG, {GOVERNOR_WARNING, GOVERNOR_BACKUP, GOVERNOR_MISS, 0}, "", "", "WARNING -> BACKUP: "},
    {AUDIT_EVENT_MODEL_SWITCH, {1, 0xa1}, "", "", "to slot 1, image 00000000000000a1"},
    {AUDIT_EVENT_ALERT, {GOVERNOR_BUSY, 1, 71, 70}, "", "", "raised: poll loop busy 71 %, bound 70 %"},
    {AUDIT_EVENT_ALERT, {GOVERNOR_RESOURCE, 1, 70, 70}, "", "", "raised: resources 70 %, bound 70 %"},
    {AUDIT_EVENT_ALERT, {GOVERNOR_DEVICE, 1, 2, 2}, "", "", "raised: device errors 2, bound 2"},
    {AUDIT_EVENT_ALERT,
     {GOVERNOR_LATENCY, 0, 60, 70},
     "",
     "",
     "gone: p99 age 60 % of the threshold, bound 70 % of the threshold"},
    {AUDIT_EVENT_THRESHOLD,
     {50000, 60000, 31250, 45},
     "",
     "",
     "50.000 us -> 60.000 us, relaxed: backlog 31.250 us old, receive ring 45 % full"},
    {AUDIT_EVENT_THRESHOLD,
     {60000, 50000, 0, 0},
     "",
     "",
     "60.000 us -> 50.000 us, tightened: backlog 0.000 us old, receive ring 0 % full"},
    {AUDIT_EVENT_ORDER, {ORDER_HALT}, "", "ann (uid 1000): odd prices", "halt by ann (uid 1000): odd prices"},
    {AUDIT_EVENT_RUNG,
     {GOVERNOR_BACKUP, GOVERNOR_HALTED, GOVERNOR_BY_OPERATOR, 1},
     "",
     "",
     "BACKUP -> HALTED: operator, latched"},
    {AUDIT_EVENT_ORDER, {ORDER_RESUME}, "", "bob (uid 0): checked", "resume by bob (uid 0): checked"},
    {AUDIT_EVENT_CLOCK_BACK, {1, 987654321}, "", "", "epoch 1 begins; the last reading before was 987654321"},
    {AUDIT_EVENT_SESSION_END, {2000}, "", "", "next sequence number 2000"},
};
enum {
    GOLDEN_N_EVENT = sizeof(golden_events) / sizeof(golden_events[0]),
    GOLDEN_N_PREDICTION = 2 * VERDICT_COUNT,
    GOLDEN_N_RECORD = GOLDEN_N_EVENT + GOLDEN_N_PREDICTION + 2, /* RECORDS_LOST, STOP */
    GOLDEN_BYTES = sizeof(struct audit_header) + GOLDEN_N_RECORD * AUDIT_RECORD_BYTES,
};

/* Of every verdict two: in each rung, arm and quality of the age; as a poll loop would have decided. */
static inline struct audit_prediction golden_prediction(unsigned i)
{
    uint64_t state = 100 + i;
    const unsigned verdict = i % VERDICT_COUNT, second = i / VERDICT_COUNT;
    struct audit_prediction p = log_prediction(&state, i);
    p.verdict = (uint8_t)verdict;
    p.slot = (uint8_t)second;
    p.model_hash = second ? 0xa1 : 0xf122334455667788;
    p.publish_seq = verdict == VERDICT_PUBLISHED ? 1 + second : 0;
    p.threshold_cycles = second ? 75000 : 50000;
    p.flags = (uint16_t)(64 * (i % GOVERNOR_N_RUNG) | (second ? AUDIT_FLAG_ARM_B : 0));
    if (verdict == VERDICT_PUBLISHED) {
        p.flags |= AUDIT_FLAG_INFERRED | AUDIT_FLAG_BATCH;
        p.decided = p.arrival + p.threshold_cycles; /* at the line */
    } else if (verdict == VERDICT_STALE) {
        p.flags |= AUDIT_FLAG_INFERRED | (second ? AUDIT_FLAG_AGE_UNKNOWN : 0);
        p.decided = second ? p.arrival - 1 : p.arrival + p.threshold_cycles + 1;
    } else if (verdict == VERDICT_DEVICE_ERROR) {
        p.flags |= second ? AUDIT_FLAG_MIRROR : AUDIT_FLAG_INFERRED | AUDIT_FLAG_EGRESS_FAILED;
    } else if (verdict == VERDICT_EXPECTED_LATE) {
        p.flags |= second ? AUDIT_FLAG_KERNEL_LATE : 0;
        p.expected_cycles = p.threshold_cycles;
    } else if (second) { /* a stamp ahead of the clock */
        p.flags |= AUDIT_FLAG_AGE_CLAMPED;
        p.decided = p.arrival - 1;
    }
    p.age_cycles = p.flags & AUDIT_FLAG_AGE_UNKNOWN   ? UINT64_MAX
                   : p.flags & AUDIT_FLAG_AGE_CLAMPED ? 0
                                                      : p.decided - p.arrival;
    if (!(p.flags & (AUDIT_FLAG_INFERRED | AUDIT_FLAG_KERNEL_LATE)))
        p.submitted = p.completed = 0;
    return p;
}

static inline void golden_put_event(struct audit_record *r, const struct golden_event *g, uint64_t at)
{
    r->event = (struct audit_event){.kind = AUDIT_EVENT, .code = (uint16_t)g->code, .at = at};
    memset(r->event.symbol, ' ', 8);
    memcpy(r->event.symbol, g->symbol, strlen(g->symbol));
    memcpy(r->event.value, g->value, sizeof(g->value));
    memcpy(r->event.text, g->text, strlen(g->text));
}

/* Record i, but for record_no and chain; the last two are RECORDS_LOST and STOP. */
static inline struct audit_record golden_record(unsigned i)
{
    static const struct golden_event lost = {AUDIT_EVENT_RECORDS_LOST, {3}, "", "", "records 3"},
                                     stop = {AUDIT_EVENT_STOP, {GOLDEN_N_PREDICTION, 3}, "", "", ""};
    struct audit_record r;
    memset(&r, 0, sizeof(r));
    if (i >= GOLDEN_N_EVENT && i < GOLDEN_N_EVENT + GOLDEN_N_PREDICTION)
        r.prediction = golden_prediction(i - GOLDEN_N_EVENT);
    else
        golden_put_event(&r,
                         i < GOLDEN_N_EVENT        ? &golden_events[i]
                         : i + 1 < GOLDEN_N_RECORD ? &lost
                                                   : &stop,
                         10 * i);
    return r;
}

/* version: as the header says it; with 1, a log that lies. */
static inline void golden_build(uint8_t data[GOLDEN_BYTES], uint32_t version)
{
    struct audit_header h = log_header(AUDIT_CLOCK_REPLAY);
    memcpy(h.magic, "KLAUDIT", 8);
    h.version = version;
    h.header_bytes = sizeof(h);
    h.record_bytes = AUDIT_RECORD_BYTES;
    h.n_model = 2;
    memset(h.model_sha256[1], 0xb2, sizeof(h.model_sha256[1]));
    memcpy(data, &h, sizeof(h));
    for (unsigned i = 0; i < GOLDEN_N_RECORD; i++) {
        struct audit_record r = golden_record(i);
        r.prediction.record_no = i;
        memcpy(data + sizeof(h) + i * AUDIT_RECORD_BYTES, &r, sizeof(r));
    }
    log_reseal(data, GOLDEN_BYTES);
}

#endif
