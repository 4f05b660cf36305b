/* killline audit verify | show | report. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit.h"
#include "audit_print.h"
#include "cmd.h"
#include "killline.h"
#include "report.h"

static const char usage_text[] =
    "usage: killline audit verify LOG|DIR [--head HEX] [--json]\n"
    "       killline audit show   LOG|DIR [--json] [--verdict V | --event[=E]] [--symbol S] [--from N] "
    "[--limit N]\n"
    "       killline audit report LOG|DIR --out FILE.html\n"
    "\n"
    "DIR stands for DIR/audit.kla, where killline run --out DIR puts the log.\n"
    "\n"
    "verify  recomputes the SHA-256 chain and checks every field. Exit status 0: intact and closed.\n"
    "  --head HEX   the last record's chain, as noted at the end of the run: finds a log that was rewritten "
    "whole\n"
    "  --json       one JSON object\n"
    "show    prints the records, in order, as far as they verify. Events of the appliance itself have no\n"
    "        exchange time: in its place stands UTC, with a Z.\n"
    "  --json       one JSON object per line, with every field\n"
    "  --verdict V  predictions of this verdict only; dropped: of every verdict but published; or";
static const char usage_text_2[] = "  --event[=E]  events only; E: of this name only, as show prints it\n"
                                   "  --symbol S   records of this symbol only\n"
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
    int events_only;
    unsigned event; /* enum audit_event_code; 0: any */
    const char *symbol, *head, *out;
    unsigned long long from, limit;
};

/* Everything after the subcommand. 0; 1: help was asked for and printed; 2: wrong usage, message printed. */
static int parse(int argc, char **argv, struct options *o)
{
    enum { OPT_JSON = 256, OPT_VERDICT, OPT_SYMBOL, OPT_FROM, OPT_LIMIT, OPT_OUT, OPT_HEAD, OPT_EVENT };
    static const struct option longs[] = {{"json", no_argument, NULL, OPT_JSON},
                                          {"verdict", required_argument, NULL, OPT_VERDICT},
                                          {"event", optional_argument, NULL, OPT_EVENT},
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
        case OPT_EVENT:
            o->events_only = 1;
            for (o->event = AUDIT_EVENT_CODE_COUNT - 1; optarg && o->event > 0; o->event--)
                if (!strcmp(optarg, audit_event_name(o->event)))
                    break;
            if (!optarg)
                o->event = 0;
            else if (!o->event) {
                cmd_error("audit: no event '%s': killline audit verify --json LOG lists them", optarg);
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

static const char *clock_name(const struct audit_header *h)
{
    return h->clock == AUDIT_CLOCK_REPLAY ? "replay" : "real";
}

/* What verify counts. */
struct counts {
    uint64_t prediction, by_verdict[VERDICT_COUNT], age_unknown;
    uint64_t by_code[AUDIT_EVENT_CODE_COUNT];
};

static void verify_json(const struct audit_reader *reader, const struct counts *counts, const char *path,
                        const char *problem)
{
    const struct audit_header *h = audit_reader_header(reader);
    static const char *const fault[] = {"none", "not-closed", "torn", "chain", "content", "io"};
    uint64_t n = audit_reader_records(reader);
    putchar('{');
    audit_print_json_string("path", path, strlen(path));
    printf(",\"ok\":%s,\"closed\":%s,\"fault\":\"%s\",", problem ? "false" : "true",
           audit_reader_fault(reader) == AUDIT_FAULT_NONE ? "true" : "false",
           fault[audit_reader_fault(reader)]);
    if (problem)
        audit_print_json_string("error", problem, strlen(problem));
    else
        printf("\"error\":null");
    printf(",\"records\":%" PRIu64 ",\"predictions\":%" PRIu64 ",\"events\":%" PRIu64 ",\"lost\":%" PRIu64
           ",",
           n, counts->prediction, n - counts->prediction, audit_reader_lost(reader));
    audit_print_json_hex("head", audit_reader_head(reader), AUDIT_CHAIN_BYTES);
    printf(",\"verdicts\":{");
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        printf("%s\"%s\":%" PRIu64, v ? "," : "", verdict_name(v), counts->by_verdict[v]);
    printf("},\"age_unknown\":%" PRIu64 ",\"events_by_name\":{", counts->age_unknown);
    for (unsigned code = 1; code < AUDIT_EVENT_CODE_COUNT; code++)
        printf("%s\"%s\":%" PRIu64, code > 1 ? "," : "", audit_event_name(code), counts->by_code[code]);
    printf("},\"version\":%u,\"abi_version\":%u,\"clock\":\"%s\",\"tsc_hz\":%.17g,\"tsc0\":%" PRIu64
           ",\"utc_ns0\":%" PRIu64 ",\"clock_error_ppm\":%.17g,",
           h->version, h->abi_version, clock_name(h), h->tsc_hz, h->tsc0, h->utc_ns0, h->clock_error_ppm);
    audit_print_json_string("accel", h->accel, sizeof(h->accel));
    putchar(',');
    audit_print_json_string("feed", h->feed, sizeof(h->feed));
    putchar(',');
    audit_print_json_string("build", h->build, sizeof(h->build));
    printf(",\"model_sha256\":[");
    for (uint32_t i = 0; i < h->n_model; i++) {
        printf("%s\"", i ? "," : "");
        for (int k = 0; k < 32; k++)
            printf("%02x", h->model_sha256[i][k]);
        putchar('"');
    }
    printf("],");
    audit_print_json_hex("config_sha256", h->config_sha256, sizeof(h->config_sha256));
    puts("}");
}

/* What happened besides predictions: one line, or none. */
static void verify_ladder(const struct counts *counts)
{
    static const struct {
        unsigned code;
        const char *what;
    } parts[] = {{AUDIT_EVENT_RUNG, "moves on the ladder"},
                 {AUDIT_EVENT_ALERT, "alerts raised or gone"},
                 {AUDIT_EVENT_THRESHOLD, "changes of the threshold"},
                 {AUDIT_EVENT_ORDER, "orders"},
                 {AUDIT_EVENT_CLOCK_BACK, "steps back of the clock"}};
    const char *before = "  ";
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (counts->by_code[parts[i].code]) {
            printf("%s%" PRIu64 " %s", before, counts->by_code[parts[i].code], parts[i].what);
            before = ", ";
        }
    if (counts->age_unknown)
        printf("%s%" PRIu64 " predictions of unknown age", before, counts->age_unknown);
    if (counts->age_unknown || before[0] == ',')
        putchar('\n');
}

static int cmd_verify(const struct options *o)
{
    char error[AUDIT_ERROR_CHARS];
    struct audit_reader *reader = audit_reader_open(o->path, error);
    if (!reader) {
        if (o->json) {
            printf("{\"ok\":false,");
            audit_print_json_string("error", error, sizeof(error));
            puts("}");
        }
        return finish_stdout(cmd_error("%s", error));
    }
    const struct audit_record *r;
    struct counts counts = {0};
    const uint64_t n_total = audit_reader_size_records(reader);
    int result;
    while ((result = audit_reader_next(reader, &r, error)) == 1) {
        if (r->prediction.kind == AUDIT_PREDICTION) {
            counts.by_verdict[r->prediction.verdict]++;
            counts.prediction++;
            counts.age_unknown += (r->prediction.flags & AUDIT_FLAG_AGE_UNKNOWN) != 0;
        } else {
            counts.by_code[r->event.code]++;
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
        verify_json(reader, &counts, o->path, result == 0 ? NULL : error);
    else if (result == 0) {
        printf("%s: intact and closed\n  %" PRIu64 " records: %" PRIu64 " predictions (%" PRIu64
               " published), %" PRIu64 " events; %" PRIu64 " records lost for want of room in the ring\n",
               o->path, n, counts.prediction, counts.by_verdict[VERDICT_PUBLISHED], n - counts.prediction,
               audit_reader_lost(reader));
        verify_ladder(&counts);
        printf("  head %s%s\n", head, o->head ? " (as given)" : "");
    } else
        printf("%s: NOT verified\n  %" PRIu64 " records are intact, up to head %s\n", o->path, n, head);
    audit_reader_close(reader);
    return finish_stdout(result == 0 ? 0 : cmd_error("%s", error));
}

static int selected(const struct options *o, const struct audit_record *r)
{
    const char *symbol = r->prediction.kind == AUDIT_PREDICTION ? r->prediction.symbol : r->event.symbol;
    if (r->prediction.record_no < o->from)
        return 0;
    if (o->events_only && (r->prediction.kind != AUDIT_EVENT || (o->event && r->event.code != o->event)))
        return 0;
    if (o->verdict != ANY_VERDICT && (r->prediction.kind != AUDIT_PREDICTION ||
                                      (o->verdict == DROPPED ? r->prediction.verdict == VERDICT_PUBLISHED
                                                             : r->prediction.verdict != o->verdict)))
        return 0;
    return !o->symbol || (audit_print_symbol_length(symbol) == strlen(o->symbol) &&
                          !memcmp(symbol, o->symbol, strlen(o->symbol)));
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
        audit_print_head();
    while (n_shown < o->limit && !ferror(stdout) && (result = audit_reader_next(reader, &r, error)) == 1) {
        if (!selected(o, r))
            continue;
        n_shown++;
        (o->json ? audit_print_json : audit_print_text)(h, r);
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
