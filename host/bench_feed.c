#include "bench_feed.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

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
};

static const char usage_text[] =
    "usage: killline bench feed [--itch FILE] [--messages N] [--symbols N] [--json]\n"
    "\n"
    "Measures, per message, on one core, warm, in interleaved rounds over the same bytes in memory (medians "
    "of 5 rounds\n"
    "of the thread's CPU time):\n"
    "  frame walk   follows the length prefixes and loads 8 bytes of each message: the floor\n"
    "  decode       every field of every message\n"
    "  book         decode, order books of all symbols, BBO, symbol and trading state (market_apply), each "
    "message as\n"
    "               if it were alone in its datagram; and with look-ahead within full datagrams of 1400 "
    "bytes\n"
    "p99 and max of book come from a pass of their own with a time stamp around every message; the stamp's "
    "own\n"
    "cost is stated and not taken off, and what else the machine did in that time is in them.\n"
    "\n"
    "  --itch FILE     a BinaryFILE of ITCH 5.0 messages; without it a seeded flow is generated in memory\n"
    "                  (45 % A, 43 % D, 6 % U, 3 % E, 0.7 % X, Zipf over the symbols: realistic, not real)\n"
    "  --messages N    so many messages (2M; with --itch: the file's first N, all of them without it)\n"
    "  --symbols N     symbols of the generated flow (50)\n"
    "  --json          one JSON object\n"
    "  --help          this text\n";

struct feed_bench {
    struct bench_flow flow;
    struct market *market;
    double walk_ns[N_ROUND], decode_ns[N_ROUND], book_ns[N_ROUND], look_ahead_ns[N_ROUND];
    struct histogram per_message; /* cycles */
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

static double walk_pass(const struct bench_flow *flow)
{
    const uint8_t *p = flow->data, *end = p + flow->size_bytes;
    uint64_t sum = 0;
    double start = cpu_ns();
    while (p < end) {
        uint64_t word;
        memcpy(&word, p + 2, sizeof(word)); /* the pad makes this legal for the last message */
        sum += word;
        p += 2 + itch_load_u16(p);
    }
    __asm__ volatile("" : : "r"(sum)); /* the loads are needed */
    return (cpu_ns() - start) / (double)flow->n_message;
}

static double decode_pass(const struct bench_flow *flow)
{
    const uint8_t *p = flow->data, *end = p + flow->size_bytes;
    double start = cpu_ns();
    while (p < end) {
        struct itch_msg msg;
        uint16_t len = itch_load_u16(p);
        itch_decode(p + 2, len, &msg);
        __asm__ volatile("" : : "r"(&msg) : "memory"); /* every field is needed, in memory */
        p += 2 + len;
    }
    return (cpu_ns() - start) / (double)flow->n_message;
}

static double book_pass(const struct bench_flow *flow, struct market *market)
{
    const uint8_t *p = flow->data, *end = p + flow->size_bytes;
    market_new_session(market);
    double start = cpu_ns();
    while (p < end) {
        struct market_event event;
        uint16_t len = itch_load_u16(p);
        market_apply(market, p + 2, len, &event);
        __asm__ volatile("" : : "r"(&event) : "memory");
        p += 2 + len;
    }
    return (cpu_ns() - start) / (double)flow->n_message;
}

/* A datagram's messages are announced first, then applied: what a receiver that has the whole datagram can
 * do. */
static double look_ahead_pass(const struct bench_flow *flow, struct market *market)
{
    const uint8_t *p = flow->data, *end = p + flow->size_bytes;
    market_new_session(market);
    double start = cpu_ns();
    while (p < end) {
        const uint8_t *ahead = p;
        while (ahead < end && ahead - p <= BATCH_BYTES) {
            uint16_t len = itch_load_u16(ahead);
            market_prefetch(market, ahead + 2, len);
            ahead += 2 + len;
        }
        while (p < ahead) {
            struct market_event event;
            uint16_t len = itch_load_u16(p);
            market_apply(market, p + 2, len, &event);
            __asm__ volatile("" : : "r"(&event) : "memory");
            p += 2 + len;
        }
    }
    return (cpu_ns() - start) / (double)flow->n_message;
}

static void stamped_pass(struct feed_bench *bench)
{
    const struct bench_flow *flow = &bench->flow;
    const uint8_t *p = flow->data, *end = p + flow->size_bytes;
    histogram_init(&bench->per_message);
    market_new_session(bench->market);
    while (p < end) {
        struct market_event event;
        uint16_t len = itch_load_u16(p);
        uint64_t start = clock_tsc();
        market_apply(bench->market, p + 2, len, &event);
        __asm__ volatile("" : : "r"(&event) : "memory");
        histogram_record(&bench->per_message, clock_tsc() - start);
        p += 2 + len;
    }
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

static int measure(struct feed_bench *bench)
{
    const struct market_config config = {.join = MARKET_JOIN_SETTLED,
                                         .settle_ns = 2000000000,
                                         .limits = {.n_order = N_ORDER, .n_level = N_LEVEL}};
    if (clock_calibrate(&bench->calibration, 20) != 0)
        return cmd_error(
            "bench feed: this machine's time stamp counter does not run evenly; no figures from here");
    bench->market = market_create(&config);
    if (!bench->market)
        return cmd_error("bench feed: out of memory for the books");
    bench->stamp_ns = stamp_cost_ns(&bench->calibration);
    const struct book_counters *counters = book_counters(market_books(bench->market));
    for (int round = -1; round < N_ROUND; round++) { /* the first warms up and is not counted */
        int i = round < 0 ? 0 : round;
        bench->walk_ns[i] = walk_pass(&bench->flow);
        bench->decode_ns[i] = decode_pass(&bench->flow);
        bench->book_ns[i] = book_pass(&bench->flow, bench->market);
        if (round < 0) {
            bench->n_live_order = counters->n_order_peak;
            bench->n_level = counters->n_level_peak;
            bench->unknown_ref = counters->unknown_ref;
            for (uint32_t locate = 1; locate < BOOK_N_LOCATE; locate++)
                bench->n_symbol += market_symbol(bench->market, (uint16_t)locate)[0] != ' ';
        }
        bench->look_ahead_ns[i] = look_ahead_pass(&bench->flow, bench->market);
        cmd_progress("measuring", "rounds", (unsigned long long)(round + 2), N_ROUND + 1);
    }
    stamped_pass(bench);
    cmd_progress_done();
    if (counters->full)
        return cmd_error("bench feed: the books outgrew %d orders or %d levels; measure fewer --messages",
                         N_ORDER, N_LEVEL);
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

static int print(const struct feed_bench *bench, const char *path, int as_json)
{
    double walk = median(bench->walk_ns), decode = median(bench->decode_ns), book = median(bench->book_ns),
           look_ahead = median(bench->look_ahead_ns);
    double p99 = clock_cycles_to_ns(&bench->calibration, histogram_quantile(&bench->per_message, 0.99));
    double max = clock_cycles_to_ns(&bench->calibration, bench->per_message.max);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double rss_mb = (double)usage.ru_maxrss / 1024.0;
    const char *source = path ? path : "generated";
    if (as_json) {
        json_t *root = json_pack(
            "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:f, s:{s:f, s:f, s:f}, s:f, s:{s:f, s:f, s:f}, "
            "s:f, s:f}",
            "label", "measured", "source", source, "messages", (json_int_t)bench->flow.n_message, "symbols",
            (json_int_t)bench->n_symbol, "live_orders", (json_int_t)bench->n_live_order, "live_levels",
            (json_int_t)bench->n_level, "unknown_references", (json_int_t)bench->unknown_ref, "rounds",
            N_ROUND, "frame_walk_ns", walk, "decode_ns", decode, "book_ns", "mean", book, "p99", p99, "max",
            max, "book_look_ahead_ns", look_ahead, "ratios", "decode_to_frame_walk", decode / walk,
            "book_to_frame_walk", book / walk, "book_look_ahead_to_frame_walk", look_ahead / walk,
            "time_stamp_ns", bench->stamp_ns, "peak_rss_mb", rss_mb);
        int failed = !root || json_dumpf(root, stdout, JSON_REAL_PRECISION(6)) != 0;
        json_decref(root);
        putchar('\n');
        return fflush(stdout) != 0 || failed ? cmd_error("bench feed: cannot write the result: %m") : 0;
    }
    printf("bench feed, measured, medians of %d rounds, ns per message\n"
           "  flow               %s: %llu messages, %llu symbols, at most %llu live orders on %llu levels\n"
           "  frame walk         %8.1f\n"
           "  decode             %8.1f   %.1f x the walk\n"
           "  book               %8.1f   %.1f x the walk; decode and books of all symbols\n"
           "  book, look-ahead   %8.1f   %.1f x the walk; within full datagrams\n"
           "  book p99           %8.1f   max %.0f; of single messages, stamped apart: each value holds one "
           "stamp, %.1f\n"
           "  peak memory        %8.1f MB\n",
           N_ROUND, source, (unsigned long long)bench->flow.n_message, (unsigned long long)bench->n_symbol,
           (unsigned long long)bench->n_live_order, (unsigned long long)bench->n_level, walk, decode,
           decode / walk, book, book / walk, look_ahead, look_ahead / walk, p99, max, bench->stamp_ns,
           rss_mb);
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
    free(bench->flow.data);
    free(bench);
    return status;
}
