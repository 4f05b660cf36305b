/* Audit logs for tests: headers, single records, and a whole made-up day with bursts, a gap and a halt. Equal
 * seeds give equal records. */
#ifndef TESTS_AUDIT_LOG_H
#define TESTS_AUDIT_LOG_H

#include <math.h>
#include <openssl/sha.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/audit.h"
#include "host/killline.h"

static inline uint64_t log_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double log_uniform(uint64_t *state)
{
    return ((double)(log_random(state) >> 11) + 0.5) / 9007199254740992.0;
}

static inline struct audit_header log_header(enum audit_clock clock)
{
    struct audit_header h = {.abi_version = 1, .clock = clock, .n_model = 1, .tsc_hz = 1e9};
    if (clock == AUDIT_CLOCK_REAL) {
        h.tsc_hz = 2.5e9;
        h.tsc0 = 1000000000000;
        h.utc_ns0 = 1771509600000000000;
        h.clock_error_ppm = 0.4;
    }
    for (int i = 0; i < 32; i++) {
        h.model_sha256[0][i] = (uint8_t)(7 * i + 1);
        h.config_sha256[i] = (uint8_t)(11 * i + 2);
    }
    strcpy(h.build, "0.1.0 test");
    strcpy(h.accel, "csim");
    strcpy(h.feed, "day.pcap");
    strcpy(h.class_name[0], "down");
    strcpy(h.class_name[1], "flat");
    strcpy(h.class_name[2], "up");
    return h;
}

/* Computes every chain anew, independently of audit.c, as a faulty program or a forger would. size: at least
 * a header. */
static inline void log_reseal(uint8_t *data, size_t size)
{
    uint8_t input[AUDIT_CHAIN_BYTES + AUDIT_BODY_BYTES], chain[AUDIT_CHAIN_BYTES];
    SHA256(data, sizeof(struct audit_header), chain);
    for (size_t at = sizeof(struct audit_header); at + AUDIT_RECORD_BYTES <= size; at += AUDIT_RECORD_BYTES) {
        memcpy(input, chain, AUDIT_CHAIN_BYTES);
        memcpy(input + AUDIT_CHAIN_BYTES, data + at, AUDIT_BODY_BYTES);
        SHA256(input, sizeof(input), chain);
        memcpy(data + at + AUDIT_BODY_BYTES, chain, AUDIT_CHAIN_BYTES);
    }
}

/* A prediction with every field set, none of them special. */
static inline struct audit_prediction log_prediction(uint64_t *state, uint64_t i)
{
    struct audit_prediction p = {.kind = AUDIT_PREDICTION,
                                 .verdict = (uint8_t)(log_random(state) % VERDICT_COUNT),
                                 .cls = (uint8_t)(i % 3),
                                 .arrival_clock = AUDIT_ARRIVAL_CAPTURE,
                                 .logit_frac = 35,
                                 .flags = AUDIT_FLAG_INFERRED,
                                 .feed_seq_no = 1000 + 3 * i,
                                 .feed_ts_ns = 34200000000000 + 1000 * i,
                                 .symbol = {'T', 'E', 'S', 'T', ' ', ' ', ' ', ' '},
                                 .locate = 7,
                                 .stream = 3,
                                 .request_seq = (uint32_t)i,
                                 .arrival = 1000 * i,
                                 .threshold_cycles = 50000,
                                 .expected_cycles = 4000,
                                 .kernel_cycles = 900,
                                 .prepare_cycles = 1100,
                                 .bid_price = 1000000,
                                 .ask_price = 1000100,
                                 .bid_qty = 300,
                                 .ask_qty = 200,
                                 .feature_hash = log_random(state),
                                 .publish_seq = i};
    p.decoded = p.arrival + 300;
    p.submitted = p.decoded + 500 + log_random(state) % 1000;
    p.completed = p.submitted + 3000;
    p.decided = p.completed + 100;
    p.age_cycles = p.decided - p.arrival;
    for (int k = 0; k < 3; k++)
        p.logits[k] = (int64_t)(log_random(state) >> 20) - (1ll << 43);
    return p;
}

static inline void log_event(struct audit_log *audit, unsigned code, uint64_t at, uint64_t feed_ts_ns,
                             const char *symbol, uint64_t value0, uint64_t value1, const char *text)
{
    struct audit_record *r = audit_reserve(audit);
    if (!r)
        return;
    r->event = (struct audit_event){.kind = AUDIT_EVENT,
                                    .code = (uint16_t)code,
                                    .at = at,
                                    .feed_ts_ns = feed_ts_ns,
                                    .value = {value0, value1}};
    memset(r->event.symbol, ' ', 8);
    for (int i = 0; i < 8 && symbol[i]; i++)
        r->event.symbol[i] = symbol[i];
    strncpy(r->event.text, text, sizeof(r->event.text) - 1);
    audit_commit(audit);
}

/* A day as the replay clock sees it: Hawkes-like bursts of ticks of 34 symbols, one server, a gap after a
 * third, a halt of one symbol after the middle. n predictions. The caller opens and closes the log. */
static inline void log_day(struct audit_log *audit, uint64_t n, uint64_t seed)
{
    enum { N_SYMBOL = 34 };
    const uint64_t open_ns = 34200000000000, line = 50000, inference = 3400, span = 60000000000;
    uint64_t state = seed, server_free = 0, t = 0, publish_seq = 0, gap_at = n / 3, halt_from = n / 2,
             halt_to = n / 2 + n / 20;
    uint32_t ticks[N_SYMBOL] = {0};
    unsigned burst = 0;
    log_event(audit, AUDIT_EVENT_START, 0, 0, "", 0, 0, "killline run, csim");
    log_event(audit, AUDIT_EVENT_MODEL_LOAD, 0, 0, "", 0, 0xf122334455667788, "lstm-32-64-2");
    for (uint64_t i = 0; i < n; i++) {
        if (burst == 0 && log_uniform(&state) < 0.01)
            burst = 5 + (unsigned)(log_random(&state) % 60);
        double mean_gap = (double)span / (double)n;
        t += 1 + (uint64_t)(-log(log_uniform(&state)) * (burst ? 900 : mean_gap));
        burst -= burst > 0;
        unsigned s = (unsigned)(N_SYMBOL * pow(log_uniform(&state), 1.7));
        struct audit_prediction p = log_prediction(&state, i);
        snprintf(p.symbol, 8, "SY%02u", s);
        memset(p.symbol + 4, ' ', 4);
        p.locate = (uint16_t)(s + 1);
        p.stream = (uint16_t)s;
        p.feed_ts_ns = open_ns + t;
        p.arrival = t;
        p.decoded = t + 180 + log_random(&state) % 120;
        p.flags = 0;
        p.publish_seq = 0;
        p.threshold_cycles = line;
        p.expected_cycles = inference + 300;
        p.submitted = p.completed = 0;
        if (i == gap_at)
            log_event(audit, AUDIT_EVENT_GAP, t, p.feed_ts_ns, "", p.feed_seq_no - 40, 40, "both lines");
        if (i == halt_from || i == halt_to)
            log_event(audit, AUDIT_EVENT_TRADING_STATE, t, p.feed_ts_ns, "SY03", i == halt_to, 0,
                      i == halt_to ? "T" : "H");
        uint64_t now = (server_free > p.decoded ? server_free : p.decoded) + 120;
        uint64_t age = now - t;
        ticks[s]++;
        if (s == 3 && i >= halt_from && i < halt_to)
            p.verdict = VERDICT_HALTED;
        else if (i >= gap_at && i < gap_at + n / 60)
            p.verdict = VERDICT_BOOK_UNRELIABLE;
        else if (ticks[s] < 20)
            p.verdict = VERDICT_WARMING_UP;
        else if (burst > 30 && log_uniform(&state) < 0.3)
            p.verdict = VERDICT_SUPERSEDED;
        else if (!killline_can_make(age, p.expected_cycles, line))
            p.verdict = VERDICT_EXPECTED_LATE;
        else {
            p.submitted = now;
            p.completed =
                now + inference +
                (log_uniform(&state) < 0.002 ? 2000 + log_random(&state) % 60000 : log_random(&state) % 400);
            now = p.completed + 90;
            server_free = now + 600;
            p.flags = AUDIT_FLAG_INFERRED;
            p.verdict = killline_verdict(now - t, line, 0);
            if (i % 20011 == 20010)
                p.verdict = VERDICT_DEVICE_ERROR;
            p.kernel_cycles = 880 + (uint32_t)(log_random(&state) % 3) * 16;
            if (p.verdict == VERDICT_PUBLISHED)
                p.publish_seq = ++publish_seq;
        }
        if (!(p.flags & AUDIT_FLAG_INFERRED)) {
            memset(p.logits, 0, sizeof(p.logits));
            p.cls = 0;
            p.kernel_cycles = p.prepare_cycles = 0;
        }
        p.decided = now;
        p.age_cycles = now - t;
        struct audit_record *r = audit_reserve(audit);
        if (r) {
            r->prediction = p;
            audit_commit(audit);
        }
    }
    log_event(audit, AUDIT_EVENT_SESSION_END, t, open_ns + t, "", 4 * n, 0, "");
    audit_stop(audit, t);
}

#endif
