/* killline audit verify | show | report. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit.h"
#include "cmd.h"
#include "killline.h"
#include "report.h"

static const char usage_text[] =
    "usage: killline audit verify LOG|DIR [--head HEX] [--json]\n"
    "       killline audit show   LOG|DIR [--json] [--verdict V] [--symbol S] [--from N] [--limit N]\n"
    "       killline audit report LOG|DIR --out FILE.html\n"
    "\n"
    "DIR stands for DIR/audit.kla, where killline run --out DIR puts the log.\n"
    "\n"
    "verify  recomputes the SHA-256 chain and checks every field. Exit status 0: intact and closed.\n"
    "  --head HEX   the last record's chain, as noted at the end of the run: finds a log that was rewritten "
    "whole\n"
    "  --json       one JSON object\n"
    "show    prints the records, in order, as far as they verify.\n"
    "  --json       one JSON object per line, with every field\n"
    "  --verdict V  predictions of this verdict only; dropped: of every verdict but published; or";
static const char usage_text_2[] = "  --symbol S   records of this symbol only\n"
                                   "  --from N     from record N on (from 0)\n"
                                   "  --limit N    at most N records\n"
                                   "report  writes a self-contained HTML page: latency against the kill "
                                   "line, verdicts by cause, stages, events.\n"
                                   "  --out FILE   the page; an existing one is replaced\n"
                                   "\n"
                                   "Exit status: 0 all that was read verified, 1 it did not, or reading or "
                                   "writing failed, 2 wrong usage.\n";

enum { ANY_VERDICT = VERDICT_COUNT, DROPPED };

static int usage(FILE *out)
{
    fputs(usage_text, out);
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        fprintf(out, "%s%s", v % 4 == 0 ? "\n                 " : ", ", verdict_name(v));
    fputc('\n', out);
    fputs(usage_text_2, out);
    return out == stdout ? 0 : 2;
}

struct options {
    char path[4096];
    int json;
    unsigned verdict; /* enum verdict, ANY_VERDICT or DROPPED */
    const char *symbol, *head, *out;
    unsigned long long from, limit;
};

/* Everything after the subcommand. 0; 1: help was asked for and printed; 2: wrong usage, message printed. */
static int parse(int argc, char **argv, struct options *o)
{
    enum { OPT_JSON = 256, OPT_VERDICT, OPT_SYMBOL, OPT_FROM, OPT_LIMIT, OPT_OUT, OPT_HEAD };
    static const struct option longs[] = {{"json", no_argument, NULL, OPT_JSON},
                                          {"verdict", required_argument, NULL, OPT_VERDICT},
                                          {"symbol", required_argument, NULL, OPT_SYMBOL},
                                          {"from", required_argument, NULL, OPT_FROM},
                                          {"limit", required_argument, NULL, OPT_LIMIT},
                                          {"out", required_argument, NULL, OPT_OUT},
                                          {"head", required_argument, NULL, OPT_HEAD},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    *o = (struct options){.verdict = ANY_VERDICT, .limit = UINT64_MAX};
    int c;
    optind = 0; /* scan anew: main has already consumed words */
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        switch (c) {
        case 'h':
            usage(stdout);
            return 1;
        case OPT_JSON:
            o->json = 1;
            break;
        case OPT_VERDICT:
            for (o->verdict = 0; o->verdict < VERDICT_COUNT; o->verdict++)
                if (!strcmp(optarg, verdict_name(o->verdict)))
                    break;
            if (o->verdict == VERDICT_COUNT && !strcmp(optarg, "dropped"))
                o->verdict = DROPPED;
            if (o->verdict == VERDICT_COUNT) {
                cmd_error("audit: no verdict '%s': killline audit --help lists them", optarg);
                return 2;
            }
            break;
        case OPT_SYMBOL:
            if (strlen(optarg) == 0 || strlen(optarg) > 8) {
                cmd_error("audit: '%s' is no symbol: 1 to 8 characters", optarg);
                return 2;
            }
            o->symbol = optarg;
            break;
        case OPT_FROM:
        case OPT_LIMIT:
            if (cmd_parse_u64(optarg, 0, UINT64_MAX, c == OPT_FROM ? &o->from : &o->limit) != 0) {
                cmd_error("audit: --%s wants a number, not '%s'", c == OPT_FROM ? "from" : "limit", optarg);
                return 2;
            }
            break;
        case OPT_OUT:
            o->out = optarg;
            break;
        case OPT_HEAD:
            if (strlen(optarg) != 2 * AUDIT_CHAIN_BYTES ||
                strspn(optarg, "0123456789abcdefABCDEF") != 2 * AUDIT_CHAIN_BYTES) {
                cmd_error("audit: --head wants 64 hex digits, not '%s'", optarg);
                return 2;
            }
            o->head = optarg;
            break;
        default: /* getopt has said what */
            fputs("killline: audit: killline audit --help lists the options\n", stderr);
            return 2;
        }
    }
    if (optind + 1 != argc) {
        cmd_error("audit %s: name one log, or the directory it is in (killline audit --help)", argv[0]);
        return 2;
    }
    struct stat st;
    const char *suffix = stat(argv[optind], &st) == 0 && S_ISDIR(st.st_mode) ? "/audit.kla" : "";
    if (snprintf(o->path, sizeof(o->path), "%s%s", argv[optind], suffix) >= (int)sizeof(o->path)) {
        cmd_error("audit: path too long");
        return 2;
    }
    return 0;
}

/* What was printed has reached its reader. */
static int finish_stdout(int status)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return cmd_error("standard output: %s", strerror(errno));
    return status;
}

/* A JSON string of at most size bytes, up to the first NUL. Bytes that are not printable ASCII are shown as
 * the code point of the same value: always valid JSON, and no byte is lost. */
static void json_string(const char *key, const char *text, size_t size)
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

static void json_hex(const char *key, const uint8_t *bytes, size_t size)
{
    printf("\"%s\":\"", key);
    for (size_t i = 0; i < size; i++)
        printf("%02x", bytes[i]);
    putchar('"');
}

static size_t symbol_length(const char symbol[8])
{
    size_t length = strnlen(symbol, 8);
    while (length && symbol[length - 1] == ' ')
        length--;
    return length;
}

static void json_symbol(const char symbol[8])
{
    char text[9] = {0};
    memcpy(text, symbol, symbol_length(symbol));
    json_string("symbol", text, sizeof(text));
}

static const char *clock_name(const struct audit_header *h)
{
    return h->clock == AUDIT_CLOCK_REPLAY ? "replay" : "real";
}

static void verify_json(const struct audit_reader *reader, const uint64_t by_verdict[VERDICT_COUNT],
                        uint64_t n_prediction, const char *path, const char *problem)
{
    const struct audit_header *h = audit_reader_header(reader);
    static const char *const fault[] = {"none", "not-closed", "torn", "chain", "content", "io"};
    uint64_t n = audit_reader_records(reader);
    putchar('{');
    json_string("path", path, strlen(path));
    printf(",\"ok\":%s,\"closed\":%s,\"fault\":\"%s\",", problem ? "false" : "true",
           audit_reader_fault(reader) == AUDIT_FAULT_NONE ? "true" : "false",
           fault[audit_reader_fault(reader)]);
    if (problem)
        json_string("error", problem, strlen(problem));
    else
        printf("\"error\":null");
    printf(",\"records\":%" PRIu64 ",\"predictions\":%" PRIu64 ",\"events\":%" PRIu64 ",\"lost\":%" PRIu64
           ",",
           n, n_prediction, n - n_prediction, audit_reader_lost(reader));
    json_hex("head", audit_reader_head(reader), AUDIT_CHAIN_BYTES);
    printf(",\"verdicts\":{");
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        printf("%s\"%s\":%" PRIu64, v ? "," : "", verdict_name(v), by_verdict[v]);
    printf("},\"version\":%u,\"abi_version\":%u,\"clock\":\"%s\",\"tsc_hz\":%.17g,\"tsc0\":%" PRIu64
           ",\"utc_ns0\":%" PRIu64 ",\"clock_error_ppm\":%.17g,",
           h->version, h->abi_version, clock_name(h), h->tsc_hz, h->tsc0, h->utc_ns0, h->clock_error_ppm);
    json_string("accel", h->accel, sizeof(h->accel));
    putchar(',');
    json_string("feed", h->feed, sizeof(h->feed));
    putchar(',');
    json_string("build", h->build, sizeof(h->build));
    printf(",\"model_sha256\":[");
    for (uint32_t i = 0; i < h->n_model; i++) {
        printf("%s\"", i ? "," : "");
        for (int k = 0; k < 32; k++)
            printf("%02x", h->model_sha256[i][k]);
        putchar('"');
    }
    printf("],");
    json_hex("config_sha256", h->config_sha256, sizeof(h->config_sha256));
    puts("}");
}

static int cmd_verify(const struct options *o)
{
    char error[AUDIT_ERROR_CHARS];
    struct audit_reader *reader = audit_reader_open(o->path, error);
    if (!reader) {
        if (o->json) {
            printf("{\"ok\":false,");
            json_string("error", error, sizeof(error));
            puts("}");
        }
        return finish_stdout(cmd_error("%s", error));
    }
    const struct audit_record *r;
    uint64_t by_verdict[VERDICT_COUNT] = {0}, n_prediction = 0, n_total = audit_reader_size_records(reader);
    int result;
    while ((result = audit_reader_next(reader, &r, error)) == 1) {
        if (r->prediction.kind == AUDIT_PREDICTION) {
            by_verdict[r->prediction.verdict]++;
            n_prediction++;
        }
        if ((audit_reader_records(reader) & 0xffff) == 0)
            cmd_progress("verifying", "records", audit_reader_records(reader), n_total);
    }
    cmd_progress_done();

    uint64_t n = audit_reader_records(reader);
    char head[2 * AUDIT_CHAIN_BYTES + 1];
    for (int i = 0; i < AUDIT_CHAIN_BYTES; i++)
        snprintf(head + 2 * i, 3, "%02x", audit_reader_head(reader)[i]);
    if (result == 0 && o->head && strcasecmp(o->head, head) != 0) {
        snprintf(error, sizeof(error),
                 "%.100s: the chain is consistent, but its head is not the one given: this is not "
                 "the log that the head was taken from, or it was rewritten as a whole",
                 o->path);
        result = -1;
    }
    if (o->json)
        verify_json(reader, by_verdict, n_prediction, o->path, result == 0 ? NULL : error);
    else if (result == 0)
        printf("%s: intact and closed\n  %" PRIu64 " records: %" PRIu64 " predictions (%" PRIu64
               " published), %" PRIu64 " events; %" PRIu64
               " records lost for want of room in the ring\n  head %s%s\n",
               o->path, n, n_prediction, by_verdict[VERDICT_PUBLISHED], n - n_prediction,
               audit_reader_lost(reader), head, o->head ? " (as given)" : "");
    else
        printf("%s: NOT verified\n  %" PRIu64 " records are intact, up to head %s\n", o->path, n, head);
    audit_reader_close(reader);
    return finish_stdout(result == 0 ? 0 : cmd_error("%s", error));
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
    printf(",\"age_cycles\":%" PRIu64 ",\"threshold_cycles\":%" PRIu64 ",\"expected_cycles\":%" PRIu64
           ",\"age_ns\":%.1f,\"threshold_ns\":%.1f,\"expected_ns\":%.1f",
           p->age_cycles, p->threshold_cycles, p->expected_cycles, to_ns(h, p->age_cycles),
           to_ns(h, p->threshold_cycles), to_ns(h, p->expected_cycles));
    json_stage(h, "decode_ns", p->arrival, p->decoded);
    json_stage(h, "features_ns", p->decoded, p->submitted ? p->submitted : p->decided);
    json_stage(h, "inference_ns", p->submitted, p->completed);
    json_stage(h, "publish_ns", p->completed, p->completed ? p->decided : 0);
    printf(",\"kernel_cycles\":%u,\"prepare_cycles\":%u,\"flags\":{\"age_clamped\":%s,\"kernel_late\":%s,"
           "\"inferred\":%s,\"egress_failed\":%s,\"mirror\":%s}",
           p->kernel_cycles, p->prepare_cycles, p->flags & AUDIT_FLAG_AGE_CLAMPED ? "true" : "false",
           p->flags & AUDIT_FLAG_KERNEL_LATE ? "true" : "false", inferred ? "true" : "false",
           p->flags & AUDIT_FLAG_EGRESS_FAILED ? "true" : "false",
           p->flags & AUDIT_FLAG_MIRROR ? "true" : "false");
    printf(",\"class\":%u,", p->cls);
    if (inferred)
        json_string("class_name", h->class_name[p->cls], sizeof(h->class_name[0]));
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
    json_hex("chain", r->chain, AUDIT_CHAIN_BYTES);
    puts("}");
}

static void event_json(const struct audit_record *r)
{
    const struct audit_event *e = &r->event;
    printf("{\"record_no\":%" PRIu64 ",\"kind\":\"event\",\"event\":\"%s\",", e->record_no,
           audit_event_name(e->code));
    json_symbol(e->symbol);
    printf(",\"locate\":%u,\"at\":%" PRIu64 ",\"feed_ts_ns\":%" PRIu64 ",", e->locate, e->at, e->feed_ts_ns);
    /* A hash uses all 64 bits, which few JSON readers take as a number. */
    if (e->code == AUDIT_EVENT_MODEL_LOAD || e->code == AUDIT_EVENT_MODEL_SWITCH)
        printf("\"slot\":%" PRIu64 ",\"image_hash\":\"%016" PRIx64 "\",\"status\":%" PRIu64 ",", e->value[0],
               e->value[1], e->value[2]);
    else
        printf("\"value\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "],", e->value[0], e->value[1],
               e->value[2], e->value[3]);
    json_string("text", e->text, sizeof(e->text));
    putchar(',');
    json_hex("chain", r->chain, AUDIT_CHAIN_BYTES);
    puts("}");
}

/* Exchange time as hh:mm:ss.nnnnnnnnn. */
static void print_time(uint64_t ts_ns)
{
    uint64_t s = ts_ns / 1000000000u;
    printf("%02" PRIu64 ":%02u:%02u.%09u", s / 3600, (unsigned)(s / 60 % 60), (unsigned)(s % 60),
           (unsigned)(ts_ns % 1000000000u));
}

/* Text from the file, with what could steer a terminal replaced. */
static void print_text(const char *text, size_t size)
{
    for (size_t i = 0; i < size && text[i]; i++)
        putchar(text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?');
}

/* What audit.h says of an event's values. */
static void event_values_text(const struct audit_event *e)
{
    const uint64_t *v = e->value;
    char card[AUDIT_CARD_TEXT_CHARS];
    if (audit_card_text(e, card)) {
        printf(" %s", card);
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

static void record_text(const struct audit_header *h, const struct audit_record *r)
{
    if (r->prediction.kind == AUDIT_EVENT) {
        const struct audit_event *e = &r->event;
        printf("%9" PRIu64 "  ", e->record_no);
        if (e->feed_ts_ns)
            print_time(e->feed_ts_ns);
        else
            printf("%-18s", "-");
        printf("  ");
        print_text(e->symbol, 8);
        printf("%*s  EVENT %s", 8 - (int)strnlen(e->symbol, 8), "", audit_event_name(e->code));
        event_values_text(e);
        fputs(e->text[0] ? "  " : "", stdout);
        print_text(e->text, sizeof(e->text));
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
    printf("%10.3f  %10.3f  %8u  %11.4f  %11.4f  %10" PRIu64 "\n", to_ns(h, p->age_cycles) / 1e3,
           to_ns(h, p->threshold_cycles) / 1e3, p->kernel_cycles, p->bid_price / 1e4, p->ask_price / 1e4,
           p->feed_seq_no);
}

static int selected(const struct options *o, const struct audit_record *r)
{
    const char *symbol = r->prediction.kind == AUDIT_PREDICTION ? r->prediction.symbol : r->event.symbol;
    if (r->prediction.record_no < o->from)
        return 0;
    if (o->verdict != ANY_VERDICT && (r->prediction.kind != AUDIT_PREDICTION ||
                                      (o->verdict == DROPPED ? r->prediction.verdict == VERDICT_PUBLISHED
                                                             : r->prediction.verdict != o->verdict)))
        return 0;
    return !o->symbol ||
           (symbol_length(symbol) == strlen(o->symbol) && !memcmp(symbol, o->symbol, strlen(o->symbol)));
}

static int cmd_show(const struct options *o)
{
    char error[AUDIT_ERROR_CHARS];
    struct audit_reader *reader = audit_reader_open(o->path, error);
    if (!reader)
        return cmd_error("%s", error);
    const struct audit_header *h = audit_reader_header(reader);
    const struct audit_record *r;
    uint64_t n_shown = 0;
    int result = 0;
    if (!o->json)
        printf("%9s  %-18s  %-8s  %-15s  %-8s  %10s  %10s  %8s  %11s  %11s  %10s\n", "record",
               "exchange time", "symbol", "verdict", "class", "age us", "line us", "kernel", "bid", "ask",
               "feed seq");
    while (n_shown < o->limit && !ferror(stdout) && (result = audit_reader_next(reader, &r, error)) == 1) {
        if (!selected(o, r))
            continue;
        n_shown++;
        if (!o->json)
            record_text(h, r);
        else if (r->prediction.kind == AUDIT_PREDICTION)
            prediction_json(h, r);
        else
            event_json(r);
    }
    if (!n_shown && o->limit && result == 0)
        fprintf(stderr, "killline: %s: none of its %" PRIu64 " records is as asked for\n", o->path,
                audit_reader_records(reader));
    audit_reader_close(reader);
    return finish_stdout(result < 0 ? cmd_error("%s", error) : 0);
}

static void report_progress(uint64_t done, uint64_t total)
{
    cmd_progress("reading the log", "records", done, total);
}

static int is_audit_log(const char *path)
{
    char magic[sizeof(((struct audit_header *)0)->magic)] = {0};
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(magic, 1, sizeof(magic), f) : 0;
    if (f)
        fclose(f);
    return n == sizeof(magic) && !memcmp(magic, "KLAUDIT", sizeof(magic));
}

static int cmd_report(const struct options *o)
{
    char error[AUDIT_ERROR_CHARS];
    if (!o->out) {
        cmd_error("audit report: name the page: --out FILE.html");
        return 2;
    }
    if (is_audit_log(o->out))
        return cmd_error("%s: is an audit log, which is never overwritten: choose another --out", o->out);
    int result = report_write_progress(o->path, o->out, report_progress, error);
    cmd_progress_done();
    if (result < 0)
        return cmd_error("%s", error);
    printf("%s\n", o->out);
    return finish_stdout(
        result == 0 ? 0 : cmd_error("%s; the page covers the intact records and says so", error));
}

int cmd_audit(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct options *o);
    } subcommands[] = {{"verify", cmd_verify}, {"show", cmd_show}, {"report", cmd_report}};
    if (argc < 2)
        return usage(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return usage(stdout);
    for (size_t i = 0; i < sizeof(subcommands) / sizeof(subcommands[0]); i++) {
        if (strcmp(argv[1], subcommands[i].name) != 0)
            continue;
        struct options o;
        int status = parse(argc - 1, argv + 1, &o);
        return status == 1 ? 0 : status != 0 ? status : subcommands[i].run(&o);
    }
    cmd_error("audit: no subcommand '%s': verify, show or report (killline audit --help)", argv[1]);
    return 2;
}
