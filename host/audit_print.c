#include "audit_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "governor.h"
#include "killline.h"

void audit_print_json_string(const char *key, const char *text, size_t size)
{
    printf("\"%s\":\"", key);
    for (size_t i = 0; i < size && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c > 0x7e)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

void audit_print_json_hex(const char *key, const uint8_t *bytes, size_t size)
{
    printf("\"%s\":\"", key);
    for (size_t i = 0; i < size; i++)
        printf("%02x", bytes[i]);
    putchar('"');
}

size_t audit_print_symbol_length(const char symbol[8])
{
    size_t length = strnlen(symbol, 8);
    while (length && symbol[length - 1] == ' ')
        length--;
    return length;
}

static void json_symbol(const char symbol[8])
{
    char text[9] = {0};
    memcpy(text, symbol, audit_print_symbol_length(symbol));
    audit_print_json_string("symbol", text, sizeof(text));
}

static double to_ns(const struct audit_header *h, uint64_t cycles)
{
    return (double)cycles * 1e9 / h->tsc_hz;
}

static void json_stage(const struct audit_header *h, const char *key, uint64_t from, uint64_t to)
{
    if (to == 0 || to < from) /* not reached, or stamps that run backwards */
        printf(",\"%s\":null", key);
    else
        printf(",\"%s\":%.1f", key, to_ns(h, to - from));
}

static void flags_json(const struct audit_header *h, const struct audit_prediction *p)
{
    static const struct {
        unsigned flag;
        const char *name;
    } flags[] = {{AUDIT_FLAG_AGE_CLAMPED, "age_clamped"},
                 {AUDIT_FLAG_AGE_UNKNOWN, "age_unknown"},
                 {AUDIT_FLAG_KERNEL_LATE, "kernel_late"},
                 {AUDIT_FLAG_INFERRED, "inferred"},
                 {AUDIT_FLAG_EGRESS_FAILED, "egress_failed"},
                 {AUDIT_FLAG_MIRROR, "mirror"},
                 {AUDIT_FLAG_BATCH, "batch"}};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        printf("%s\"%s\":%s", i ? "," : ",\"flags\":{", flags[i].name,
               p->flags & flags[i].flag ? "true" : "false");
    putchar('}');
    if (h->version == 1)
        printf(",\"rung\":null,\"arm\":null,\"model_hash\":null");
    else
        printf(",\"rung\":\"%s\",\"arm\":\"%s\",\"model_hash\":\"%016" PRIx64 "\"",
               governor_rung_name(audit_rung(p)), p->flags & AUDIT_FLAG_ARM_B ? "B" : "A", p->model_hash);
}

static void prediction_json(const struct audit_header *h, const struct audit_record *r)
{
    const struct audit_prediction *p = &r->prediction;
    static const char *const arrival[] = {[AUDIT_ARRIVAL_TSC] = "tsc",
                                          [AUDIT_ARRIVAL_NIC] = "nic",
                                          [AUDIT_ARRIVAL_CAPTURE] = "capture",
                                          [AUDIT_ARRIVAL_BOUND] = "bound"};
    int inferred = (p->flags & AUDIT_FLAG_INFERRED) != 0;
    printf("{\"record_no\":%" PRIu64 ",\"kind\":\"prediction\",\"verdict\":\"%s\",", p->record_no,
           verdict_name(p->verdict));
    json_symbol(p->symbol);
    printf(",\"locate\":%u,\"stream\":%u,\"slot\":%u,\"request_seq\":%u,\"feed_seq_no\":%" PRIu64
           ",\"feed_ts_ns\":%" PRIu64 ",\"arrival_clock\":\"%s\"",
           p->locate, p->stream, p->slot, p->request_seq, p->feed_seq_no, p->feed_ts_ns,
           arrival[p->arrival_clock]);
    printf(",\"arrival\":%" PRIu64 ",\"decoded\":%" PRIu64 ",\"submitted\":%" PRIu64 ",\"completed\":%" PRIu64
           ",\"decided\":%" PRIu64,
           p->arrival, p->decoded, p->submitted, p->completed, p->decided);
    printf(",\"threshold_cycles\":%" PRIu64 ",\"expected_cycles\":%" PRIu64
           ",\"threshold_ns\":%.1f,\"expected_ns\":%.1f",
           p->threshold_cycles, p->expected_cycles, to_ns(h, p->threshold_cycles),
           to_ns(h, p->expected_cycles));
    if (p->flags & AUDIT_FLAG_AGE_UNKNOWN)
        printf(",\"age_cycles\":null,\"age_ns\":null");
    else
        printf(",\"age_cycles\":%" PRIu64 ",\"age_ns\":%.1f", p->age_cycles, to_ns(h, p->age_cycles));
    json_stage(h, "decode_ns", p->arrival, p->decoded);
    json_stage(h, "features_ns", p->decoded, p->submitted ? p->submitted : p->decided);
    json_stage(h, "inference_ns", p->submitted, p->completed);
    json_stage(h, "publish_ns", p->completed, p->completed ? p->decided : 0);
    printf(",\"kernel_cycles\":%u,\"prepare_cycles\":%u", p->kernel_cycles, p->prepare_cycles);
    flags_json(h, p);
    printf(",\"class\":%u,", p->cls);
    if (inferred)
        audit_print_json_string("class_name", h->class_name[p->cls], sizeof(h->class_name[0]));
    else
        printf("\"class_name\":null");
    printf(",\"logit_frac\":%u,\"logits_raw\":[", p->logit_frac);
    for (int i = 0; i < 8; i++)
        printf("%s%" PRId64, i ? "," : "", p->logits[i]);
    printf("],\"logits\":[");
    for (int i = 0; i < 8; i++)
        printf("%s%.17g", i ? "," : "", ldexp((double)p->logits[i], -(int)p->logit_frac));
    printf("],\"bid_price\":%u,\"bid_qty\":%u,\"ask_price\":%u,\"ask_qty\":%u,\"feature_hash\":\"%016" PRIx64
           "\",\"publish_seq\":%" PRIu64 ",",
           p->bid_price, p->bid_qty, p->ask_price, p->ask_qty, p->feature_hash, p->publish_seq);
    audit_print_json_hex("chain", r->chain, AUDIT_CHAIN_BYTES);
    puts("}");
}

static void event_json(const struct audit_header *h, const struct audit_record *r)
{
    const struct audit_event *e = &r->event;
    printf("{\"record_no\":%" PRIu64 ",\"kind\":\"event\",\"event\":\"%s\",", e->record_no,
           audit_event_name(e->code));
    json_symbol(e->symbol);
    printf(",\"locate\":%u,\"at\":%" PRIu64 ",\"utc_ns\":%" PRIu64 ",\"feed_ts_ns\":%" PRIu64 ",", e->locate,
           e->at, audit_utc_ns(h, e->at), e->feed_ts_ns);
    /* A hash uses all 64 bits, which few JSON readers take as a number. */
    if (e->code == AUDIT_EVENT_MODEL_LOAD || e->code == AUDIT_EVENT_MODEL_SWITCH)
        printf("\"slot\":%" PRIu64 ",\"image_hash\":\"%016" PRIx64 "\",\"status\":%" PRIu64 ",", e->value[0],
               e->value[1], e->value[2]);
    else
        printf("\"value\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "],", e->value[0], e->value[1],
               e->value[2], e->value[3]);
    char text[AUDIT_GOVERN_TEXT_CHARS];
    if (audit_govern_text(h, e, text) || audit_card_text(e, text)) {
        audit_print_json_string("detail", text, sizeof(text));
        putchar(',');
    }
    audit_print_json_string("text", e->text, sizeof(e->text));
    putchar(',');
    audit_print_json_hex("chain", r->chain, AUDIT_CHAIN_BYTES);
    puts("}");
}

/* Exchange time as hh:mm:ss.nnnnnnnnn. */
static void print_time(uint64_t ts_ns)
{
    uint64_t s = ts_ns / 1000000000u;
    printf("%02" PRIu64 ":%02u:%02u.%09u", s / 3600, (unsigned)(s / 60 % 60), (unsigned)(s % 60),
           (unsigned)(ts_ns % 1000000000u));
}

/* UTC as hh:mm:ss.uuuuuuZ, as wide as exchange time; "-": not known. */
static void print_utc(uint64_t utc_ns)
{
    const uint64_t s = utc_ns / 1000000000u % 86400;
    if (utc_ns)
        printf("%02u:%02u:%02u.%06uZ  ", (unsigned)(s / 3600), (unsigned)(s / 60 % 60), (unsigned)(s % 60),
               (unsigned)(utc_ns % 1000000000u / 1000));
    else
        printf("%-18s", "-");
}

/* Text from the file, with what could steer a terminal replaced. */
static void print_text(const char *text, size_t size)
{
    for (size_t i = 0; i < size && text[i]; i++)
        putchar(text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?');
}

/* What audit.h says of an event's values. */
static void event_values_text(const struct audit_header *h, const struct audit_event *e)
{
    const uint64_t *v = e->value;
    char text[AUDIT_GOVERN_TEXT_CHARS];
    static_assert((int)AUDIT_GOVERN_TEXT_CHARS >= (int)AUDIT_CARD_TEXT_CHARS, "both fit");
    if (audit_govern_text(h, e, text) || audit_card_text(e, text)) {
        printf(" %s", text);
        return;
    }
    switch (e->code) {
    case AUDIT_EVENT_START:
    case AUDIT_EVENT_STREAMS_FULL:
        break;
    case AUDIT_EVENT_STOP:
        printf(" predictions %" PRIu64 ", records lost %" PRIu64, v[0], v[1]);
        break;
    case AUDIT_EVENT_GAP:
        printf(" from sequence number %" PRIu64 ", messages %" PRIu64, v[0], v[1]);
        break;
    case AUDIT_EVENT_TRADING_STATE:
        printf(" %s", v[0] ? "trading" : "not trading");
        break;
    case AUDIT_EVENT_RECORDS_LOST:
        printf(" records %" PRIu64, v[0]);
        break;
    case AUDIT_EVENT_SESSION_END:
        printf(" next sequence number %" PRIu64, v[0]);
        break;
    case AUDIT_EVENT_MODEL_LOAD:
        printf(" slot %" PRIu64 ", image %016" PRIx64, v[0], v[1]);
        if (v[2])
            printf(": %s (status %" PRIu64 ")", audit_device_name(v[2]), v[2]);
        break;
    case AUDIT_EVENT_MODEL_SWITCH:
        printf(" to slot %" PRIu64 ", image %016" PRIx64, v[0], v[1]);
        break;
    case AUDIT_EVENT_DEVICE_ERROR:
        printf(" %s (status %" PRIu64 "), stream %" PRIu64, audit_device_name(v[0]), v[0], v[1]);
        break;
    default:
        printf(" %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, v[0], v[1], v[2], v[3]);
    }
}

void audit_print_text(const struct audit_header *h, const struct audit_record *r)
{
    if (r->prediction.kind == AUDIT_EVENT) {
        const struct audit_event *e = &r->event;
        printf("%9" PRIu64 "  ", e->record_no);
        if (e->feed_ts_ns)
            print_time(e->feed_ts_ns);
        else
            print_utc(audit_utc_ns(h, e->at));
        printf("  ");
        print_text(e->symbol, 8);
        printf("%*s  EVENT %s", 8 - (int)strnlen(e->symbol, 8), "", audit_event_name(e->code));
        event_values_text(h, e);
        if (e->code != AUDIT_EVENT_ORDER) { /* whose values' text has it */
            fputs(e->text[0] ? "  " : "", stdout);
            print_text(e->text, sizeof(e->text));
        }
        putchar('\n');
        return;
    }
    const struct audit_prediction *p = &r->prediction;
    printf("%9" PRIu64 "  ", p->record_no);
    print_time(p->feed_ts_ns);
    printf("  ");
    print_text(p->symbol, 8);
    printf("%*s  %-15s  ", 8 - (int)strnlen(p->symbol, 8), "", verdict_name(p->verdict));
    if (p->flags & AUDIT_FLAG_INFERRED) {
        print_text(h->class_name[p->cls], sizeof(h->class_name[0]));
        printf("%*s  ", 8 - (int)strnlen(h->class_name[p->cls], 8), "");
    } else {
        printf("%-8s  ", "-");
    }
    if (p->flags & AUDIT_FLAG_AGE_UNKNOWN)
        printf("%10s", "unknown");
    else
        printf("%10.3f", to_ns(h, p->age_cycles) / 1e3);
    printf("  %10.3f  %8u  %11.4f  %11.4f  %10" PRIu64 "\n", to_ns(h, p->threshold_cycles) / 1e3,
           p->kernel_cycles, p->bid_price / 1e4, p->ask_price / 1e4, p->feed_seq_no);
}

void audit_print_head(void)
{
    printf("%9s  %-18s  %-8s  %-15s  %-8s  %10s  %10s  %8s  %11s  %11s  %10s\n", "record", "exchange time",
           "symbol", "verdict", "class", "age us", "line us", "kernel", "bid", "ask", "feed seq");
}

void audit_print_json(const struct audit_header *h, const struct audit_record *r)
{
    (r->prediction.kind == AUDIT_PREDICTION ? prediction_json : event_json)(h, r);
}
