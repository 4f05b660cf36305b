#include "bench_feed.h"

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../net/capture.h"
#include "../net/itch.h"
#include "bench_flow.h"
#include "clock.h"
#include "cmd.h"
#include "histogram.h"
#include "market.h"

enum {
    N_ROUND = 5,
    N_MESSAGE_DEFAULT = 2000000,
    N_SYMBOL_DEFAULT = 50,
    BATCH_BYTES =
        1400, /* payload of a full MoldUDP64 datagram as the exchange sends them: some 38 messages */
    /* As in the shipped configuration. */
    N_ORDER = 2000000,
    N_LEVEL = 1000000,
    SEED = 20191230,
    READ_BYTES = 1 << 20,
};

enum stage { WALK, DECODE, BOOK, LOOK_AHEAD, N_STAGE };

static const char usage_text[] =
    "usage: killline bench feed [--itch FILE] [--messages N] [--symbols N] [--json]\n"
    "\n"
    "Measures, per message, on one core, warm, in interleaved rounds over the same bytes (medians of 5 "
    "rounds of the\n"
    "thread's CPU time):\n"
    "  frame walk   follows the length prefixes and loads 8 bytes of each message: the floor\n"
    "  decode       every field of every message\n"
    "  book         decode, order books of all symbols, BBO, symbol and trading state (market_apply), each "
    "message as\n"
    "               if it were alone in its datagram; and with look-ahead within full datagrams of 1400 "
    "bytes\n"
    "The figures are those with the bytes read from the page cache in pieces of 1 MiB, because the published "
    "figures of\n"
    "other parsers and their floor were measured this way. The same with the bytes in memory already, where "
    "the floor is\n"
    "without the kernel's copy and so the ratios are larger, stand beside them (JSON: in_memory).\n"
    "p99 and max of book come from passes of their own with a time stamp around every message, the reads "
    "outside; the\n"
    "stamp's own cost is stated and not taken off, and what else the machine did in that time is in them.\n"
    "\n"
    "  --itch FILE     a BinaryFILE of ITCH 5.0 messages; without it a seeded flow is generated in memory\n"
    "                  (45 % A, 43 % D, 6 % U, 3 % E, 0.7 % X, Zipf over the symbols: realistic, not real)\n"
    "  --messages N    so many messages (2M; with --itch: the file's first N, all of them without it)\n"
    "  --symbols N     symbols of the generated flow (50)\n"
    "  --json          one JSON object\n"
    "  --help          this text\n";

/* What was measured with the bytes from one place. */
struct figures {
    double ns[N_STAGE][N_ROUND];  /* mean per message */
    struct histogram per_message; /* cycles, of book */
};

struct feed_bench {
    struct bench_flow flow;
    struct market *market;
    struct figures cached, in_memory;
    struct histogram *stamped; /* where stamped_span records */
    int file;                  /* the flow again, in the page cache */
    uint8_t *file_buffer;      /* a piece of it behind the start of a message */
    struct clock_calibration calibration;
    double stamp_ns; /* cost of one time stamp */
    uint64_t n_symbol, n_live_order, n_level, unknown_ref;
};

/* CPU time of this thread: another process on the core is not our cost, its cache misses are. */
static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* What is measured: takes the whole messages of [p, end), returns where the first incomplete one begins. The
 * pad behind end makes an 8-byte load of the last message legal. */
typedef const uint8_t *(*span_fn)(struct feed_bench *bench, const uint8_t *p, const uint8_t *end);

static inline int is_whole(const uint8_t *p, const uint8_t *end)
{
    return end - p >= 2 && end - p >= 2 + be_load_u16(p);
}

static const uint8_t *walk_span(struct feed_bench *bench, const uint8_t *p, const uint8_t *end)
{
    uint64_t sum = 0;
    (void)bench;
    while (is_whole(p, end)) {
        uint64_t word;
        memcpy(&word, p + 2, sizeof(word));
        sum += word;
        p += 2 + be_load_u16(p);
    }
    __asm__ volatile("" : : "r"(sum)); /* the loads are needed */
    return p;
}

static const uint8_t *decode_span(struct feed_bench *bench, const uint8_t *p, const uint8_t *end)
{
    (void)bench;
    while (is_whole(p, end)) {
        struct itch_msg msg;
        uint16_t len = be_load_u16(p);
        itch_decode(p + 2, len, &msg);
        __asm__ volatile("" : : "r"(&msg) : "memory"); /* every field is needed, in memory */
        p += 2 + len;
    }
    return p;
}

static const uint8_t *book_span(struct feed_bench *bench, const uint8_t *p, const uint8_t *end)
{
    while (is_whole(p, end)) {
        struct market_event event;
        uint16_t len = be_load_u16(p);
        market_apply(bench->market, p + 2, len, &event);
        __asm__ volatile("" : : "r"(&event) : "memory");
        p += 2 + len;
    }
    return p;
}

/* As book_span, every message timed on its own. */
static const uint8_t *stamped_span(struct feed_bench *bench, const uint8_t *p, const uint8_t *end)
{
    while (is_whole(p, end)) {
        struct market_event event;
        uint16_t len = be_load_u16(p);
        uint64_t start = clock_tsc();
        market_apply(bench->market, p + 2, len, &event);
        __asm__ volatile("" : : "r"(&event) : "memory");
        histogram_record(bench->stamped, clock_tsc() - start);
        p += 2 + len;
    }
    return p;
}

/* A datagram's messages are announced first, then applied: what a receiver that has the whole datagram can
 * do. */
static const uint8_t *look_ahead_span(struct feed_bench *bench, const uint8_t *p, const uint8_t *end)
{
    while (is_whole(p, end)) {
        const uint8_t *ahead = p;
        while (ahead - p <= BATCH_BYTES && is_whole(ahead, end)) {
            uint16_t len = be_load_u16(ahead);
            market_prefetch(bench->market, ahead + 2, len);
            ahead += 2 + len;
        }
        p = book_span(bench, p, ahead);
    }
    return p;
}

/* ns per message over the flow as it lies in memory. */
static double memory_pass(struct feed_bench *bench, span_fn span)
{
    market_new_session(bench->market);
    double start = cpu_ns();
    span(bench, bench->flow.data, bench->flow.data + bench->flow.size_bytes);
    return (cpu_ns() - start) / (double)bench->flow.n_message;
}

/* The same, the bytes read from a file in the page cache piece by piece. NAN when it cannot be read. */
static double file_pass(struct feed_bench *bench, span_fn span)
{
    uint8_t *buffer = bench->file_buffer;
    size_t kept = 0;
    ssize_t got;
    off_t offset = 0;
    market_new_session(bench->market);
    double start = cpu_ns();
    while ((got = pread(bench->file, buffer + kept, READ_BYTES, offset)) > 0) {
        const uint8_t *end = buffer + kept + got, *rest = span(bench, buffer, end);
        kept = (size_t)(end - rest);
        memcpy(buffer, rest, kept);
        offset += got;
    }
    return got < 0 || kept ? NAN : (cpu_ns() - start) / (double)bench->flow.n_message;
}

static double stamp_cost_ns(const struct clock_calibration *calibration)
{
    enum { N = 100000 };
    uint64_t start = clock_tsc(), last = start;
    for (int i = 0; i < N; i++)
        last = clock_tsc();
    return clock_cycles_to_ns(calibration, last - start) / N;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *rounds)
{
    double sorted[N_ROUND];
    memcpy(sorted, rounds, sizeof(sorted));
    qsort(sorted, N_ROUND, sizeof(sorted[0]), compare_doubles);
    return sorted[N_ROUND / 2];
}

/* The flow into a file that exists in memory only. */
static int make_file(struct feed_bench *bench)
{
    bench->file = memfd_create("killline-bench", 0);
    bench->file_buffer = calloc(1, READ_BYTES + 2 + UINT16_MAX + BENCH_FLOW_PAD_BYTES);
    if (bench->file < 0 || !bench->file_buffer)
        return -1;
    for (size_t at = 0; at < bench->flow.size_bytes;) {
        ssize_t put = write(bench->file, bench->flow.data + at, bench->flow.size_bytes - at);
        if (put <= 0)
            return -1;
        at += (size_t)put;
    }
    return 0;
}

static void measure_round(struct feed_bench *bench, int round)
{
    static const span_fn spans[N_STAGE] = {
        [WALK] = walk_span, [DECODE] = decode_span, [BOOK] = book_span, [LOOK_AHEAD] = look_ahead_span};
    for (int stage = 0; stage < N_STAGE; stage++) {
        bench->in_memory.ns[stage][round] = memory_pass(bench, spans[stage]);
        bench->cached.ns[stage][round] = file_pass(bench, spans[stage]);
    }
}

static void measure_each(struct feed_bench *bench)
{
    histogram_init(&bench->in_memory.per_message);
    bench->stamped = &bench->in_memory.per_message;
    memory_pass(bench, stamped_span);
    histogram_init(&bench->cached.per_message);
    bench->stamped = &bench->cached.per_message;
    file_pass(bench, stamped_span);
}

static int measure(struct feed_bench *bench)
{
    const struct market_config config = {.join = MARKET_JOIN_SETTLED,
                                         .settle_ns = 2000000000,
                                         .limits = {.n_order = N_ORDER, .n_level = N_LEVEL}};
    if (clock_calibrate(&bench->calibration, 20) != 0)
        return cmd_error(
            "bench feed: this machine's time stamp counter does not run evenly; no figures from here");
    bench->market = market_create(&config);
    if (!bench->market || make_file(bench) != 0)
        return cmd_error(
            "bench feed: out of memory for the books or a second copy of the flow: %m; measure fewer "
            "--messages");
    bench->stamp_ns = stamp_cost_ns(&bench->calibration);
    memory_pass(bench, book_span); /* for the counts */
    const struct book_counters *counters = book_counters(market_books(bench->market));
    bench->n_live_order = counters->n_order_peak;
    bench->n_level = counters->n_level_peak;
    bench->unknown_ref = counters->unknown_ref;
    for (uint32_t locate = 1; locate < BOOK_N_LOCATE; locate++)
        bench->n_symbol += market_symbol(bench->market, (uint16_t)locate)[0] != ' ';
    if (counters->full)
        return cmd_error("bench feed: the books outgrew %d orders or %d levels; measure fewer --messages",
                         N_ORDER, N_LEVEL);
    measure_round(bench, 0); /* warms up; measured again */
    for (int round = 0; round < N_ROUND; round++) {
        measure_round(bench, round);
        cmd_progress("measuring", "rounds", (unsigned long long)(round + 1), N_ROUND);
    }
    measure_each(bench);
    cmd_progress_done();
    if (isnan(bench->cached.ns[WALK][0]))
        return cmd_error("bench feed: cannot read the flow back from the page cache: %m");
    return 0;
}

/* A BinaryFILE into memory, every length prefix filled in. n_max 0: all of it. */
static int load_file(const char *path, uint64_t n_max, struct bench_flow *flow)
{
    char error[CAPTURE_ERROR_CHARS];
    struct capture *capture = capture_open(path, CAPTURE_BINARYFILE, error);
    if (!capture)
        return cmd_error("%s", error);
    size_t cap = 0;
    const uint8_t *msg;
    uint16_t len;
    int got;
    while ((n_max == 0 || flow->n_message < n_max) &&
           (got = capture_next_message(capture, &msg, &len, error)) != 0) {
        if (got < 0) {
            capture_close(capture);
            return cmd_error("%s", error);
        }
        if (flow->size_bytes + 2 + len + BENCH_FLOW_PAD_BYTES > cap) {
            cap = cap ? cap * 2 : 1 << 20;
            cap += 2 + UINT16_MAX + BENCH_FLOW_PAD_BYTES;
            uint8_t *grown = realloc(flow->data, cap);
            if (!grown) {
                capture_close(capture);
                return cmd_error("%s: does not fit into memory; measure its first --messages N", path);
            }
            flow->data = grown;
        }
        uint8_t *to = flow->data + flow->size_bytes;
        to[0] = (uint8_t)(len >> 8);
        to[1] = (uint8_t)len;
        memcpy(to + 2, msg, len);
        flow->size_bytes += 2u + len;
        flow->n_message++;
        if ((flow->n_message & 0xffff) == 0)
            cmd_progress("reading", "bytes", capture_offset(capture), capture_size(capture));
    }
    cmd_progress_done();
    capture_close(capture);
    if (flow->n_message == 0)
        return cmd_error("%s: holds no messages", path);
    memset(flow->data + flow->size_bytes, 0, BENCH_FLOW_PAD_BYTES);
    return 0;
}

/* What is said of one place. */
struct summary {
    double mean_ns[N_STAGE], ratio[N_STAGE]; /* to the walk */
    double p99_ns, max_ns;                   /* of book */
};

static struct summary summarise(const struct feed_bench *bench, const struct figures *figures)
{
    struct summary s;
    for (int stage = 0; stage < N_STAGE; stage++)
        s.mean_ns[stage] = median(figures->ns[stage]);
    for (int stage = 0; stage < N_STAGE; stage++)
        s.ratio[stage] = s.mean_ns[stage] / s.mean_ns[WALK];
    s.p99_ns = clock_cycles_to_ns(&bench->calibration, histogram_quantile(&figures->per_message, 0.99));
    s.max_ns = clock_cycles_to_ns(&bench->calibration, figures->per_message.max);
    return s;
}

static json_t *summary_json(const struct summary *s)
{
    return json_pack("{s:f, s:f, s:{s:f, s:f, s:f}, s:f, s:{s:f, s:f, s:f}}", "frame_walk_ns",
                     s->mean_ns[WALK], "decode_ns", s->mean_ns[DECODE], "book_ns", "mean", s->mean_ns[BOOK],
                     "p99", s->p99_ns, "max", s->max_ns, "book_look_ahead_ns", s->mean_ns[LOOK_AHEAD],
                     "ratios", "decode", s->ratio[DECODE], "book", s->ratio[BOOK], "book_look_ahead",
                     s->ratio[LOOK_AHEAD]);
}

static int print_json(const struct feed_bench *bench, const char *source, const struct summary *cached,
                      const struct summary *in_memory, double rss_mb)
{
    json_t *root = summary_json(cached);
    json_t *more = json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:f}", "in_memory",
                             summary_json(in_memory), "label", "measured", "source", source, "messages",
                             (json_int_t)bench->flow.n_message, "symbols", (json_int_t)bench->n_symbol,
                             "live_orders", (json_int_t)bench->n_live_order, "live_levels",
                             (json_int_t)bench->n_level, "unknown_references", (json_int_t)bench->unknown_ref,
                             "rounds", N_ROUND, "time_stamp_ns", bench->stamp_ns, "peak_rss_mb", rss_mb);
    int failed = !root || !more || json_object_update(root, more) != 0 ||
                 json_dumpf(root, stdout, JSON_REAL_PRECISION(6)) != 0;
    json_decref(root);
    json_decref(more);
    putchar('\n');
    return fflush(stdout) != 0 || failed ? cmd_error("bench feed: cannot write the result: %m") : 0;
}

static int print(const struct feed_bench *bench, const char *path, int as_json)
{
    static const char *const names[N_STAGE] = {"frame walk", "decode", "book", "book, look-ahead"};
    struct summary cached = summarise(bench, &bench->cached), memory = summarise(bench, &bench->in_memory);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double rss_mb = (double)usage.ru_maxrss / 1024.0;
    const char *source = path ? path : "generated";
    if (as_json)
        return print_json(bench, source, &cached, &memory, rss_mb);
    printf("bench feed, measured, medians of %d rounds\n"
           "%s: %llu messages, %llu symbols, at most %llu live orders on %llu levels\n\n"
           "ns per message       from page cache  x the walk   in memory  x the walk\n",
           N_ROUND, source, (unsigned long long)bench->flow.n_message, (unsigned long long)bench->n_symbol,
           (unsigned long long)bench->n_live_order, (unsigned long long)bench->n_level);
    for (int stage = 0; stage < N_STAGE; stage++)
        printf("  %-18s %15.1f  %10.1f   %9.1f  %10.1f\n", names[stage], cached.mean_ns[stage],
               cached.ratio[stage], memory.mean_ns[stage], memory.ratio[stage]);
    printf(
        "  book, p99          %15.0f               %9.0f\n"
        "  book, max          %15.0f               %9.0f\n"
        "The floor and the figures published for other parsers were measured on a file in the page cache.\n"
        "p99 and max: stamped apart, the reads outside; each value holds one stamp of %.1f ns\n"
        "peak memory          %.0f MB\n",
        cached.p99_ns, memory.p99_ns, cached.max_ns, memory.max_ns, bench->stamp_ns, rss_mb);
    return fflush(stdout) != 0 ? cmd_error("bench feed: cannot write the result: %m") : 0;
}

static int usage_error(const char *what)
{
    cmd_error("bench feed: %s; killline bench feed --help says how", what);
    return 2;
}

int bench_feed(int argc, char **argv)
{
    static const struct option options[] = {
        {"itch", required_argument, NULL, 'i'},     {"json", no_argument, NULL, 'j'},
        {"messages", required_argument, NULL, 'm'}, {"symbols", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},           {0}};
    const char *path = NULL;
    unsigned long long n_message = 0, n_symbol = N_SYMBOL_DEFAULT;
    int as_json = 0, option;
    optind = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'i':
            path = optarg;
            break;
        case 'j':
            as_json = 1;
            break;
        case 'm':
            if (cmd_parse_u64(optarg, 1, 1000000000, &n_message) != 0)
                return usage_error("--messages is a number from 1 to 1G");
            break;
        case 's':
            if (cmd_parse_u64(optarg, 1, 60000, &n_symbol) != 0)
                return usage_error("--symbols is a number from 1 to 60000");
            break;
        case 'h':
            fputs(usage_text, stdout);
            return 0;
        default:
            return usage_error("unknown option, or one without its value");
        }
    }
    if (optind != argc)
        return usage_error("it takes options only");
    struct feed_bench *bench = calloc(1, sizeof(*bench));
    if (!bench)
        return cmd_error("bench feed: out of memory");
    bench->file = -1;
    int status;
    if (path) {
        status = load_file(path, n_message, &bench->flow);
    } else {
        n_message = n_message ? n_message : N_MESSAGE_DEFAULT;
        if (n_message < 4 * n_symbol + 2)
            n_message = 4 * n_symbol + 2; /* the opening spins */
        status = bench_flow_generate(n_message, (uint32_t)n_symbol, SEED, &bench->flow) == 0
                     ? 0
                     : cmd_error("bench feed: no memory for %llu messages; measure fewer", n_message);
    }
    if (status == 0)
        status = measure(bench);
    if (status == 0)
        status = print(bench, path, as_json);
    market_free(bench->market);
    if (bench->file >= 0)
        close(bench->file);
    free(bench->file_buffer);
    free(bench->flow.data);
    free(bench);
    return status;
}
