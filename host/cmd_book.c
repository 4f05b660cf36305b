/* killline book: a symbol's price levels after each of its messages, in LOBSTER's column order. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../net/capture.h"
#include "../net/itch.h"
#include "../net/moldudp64.h"
#include "../net/packet.h"
#include "cmd.h"
#include "market.h"

enum {
    N_LEVEL_MAX = 1000,
    N_SEEN = 8,       /* symbols named when the wanted one is not there */
    FIELD_CHARS = 21, /* longest number and its comma */
    MOLD_STORE = 1 << 16,
};

static const char usage_text[] =
    "usage: killline book FILE --symbol S --levels N [--changes-only]\n"
    "\n"
    "FILE: a BinaryFILE of ITCH 5.0 messages, or a pcap of MoldUDP64 datagrams (lines A and B in one file "
    "are one\n"
    "sequence). Prints CSV without a header, one row after each message whose locate is the symbol's or "
    "which names\n"
    "it: message number (from 1; in a pcap: in order of delivery), then for each level, best first, ask "
    "price, ask\n"
    "size, bid price, bid size. Prices in 1e-4 USD; an absent level is 9999999999,0 (ask) and -9999999999,0 "
    "(bid).\n"
    "Messages that refer to orders older than FILE are ignored and counted.\n"
    "\n"
    "  --symbol S       stock symbol, as in the stock directory\n"
    "  --levels N       price levels per side, 1 to 1000\n"
    "  --changes-only   a row only when the printed levels are others than before (at first: empty)\n"
    "  --help           this text\n";

struct book_cmd {
    const char *path;
    char symbol[8]; /* space padded */
    uint32_t n_level;
    int changes_only;

    uint8_t stock_offset[256]; /* of the stock field by type; 0: none */
    int stop;

    /* first pass */
    int found;
    uint16_t locate;
    char seen[N_SEEN][8];
    uint32_t n_seen, n_more_seen;

    /* second pass */
    struct market *market;
    uint64_t message_no;
    int row_is_stale; /* the book is another than the row says */
    struct book_level *ask, *bid;
    char *row, *last_row; /* the columns behind the message number, with the newline */
    size_t row_chars, last_row_chars;
    uint64_t lost_messages, first_lost_after;
};

typedef void (*message_fn)(struct book_cmd *cmd, const uint8_t *msg, uint16_t len);

/* ---- where messages come from ---- */

struct mold_pass {
    struct book_cmd *cmd;
    message_fn message;
    uint32_t ip[MOLD_N_LINE];
    uint16_t port[MOLD_N_LINE];
    int n_line;
    uint64_t other_groups;
};

static void on_mold_message(void *ctx, uint64_t seq, const uint8_t *msg, uint16_t len, uint64_t arrival,
                            int last_of_packet)
{
    struct mold_pass *pass = ctx;
    (void)seq;
    (void)arrival;
    (void)last_of_packet;
    if (!pass->cmd->stop)
        pass->message(pass->cmd, msg, len);
}

static void on_mold_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    struct mold_pass *pass = ctx;
    struct book_cmd *cmd = pass->cmd;
    (void)first;
    (void)now;
    if (cmd->lost_messages == 0)
        cmd->first_lost_after = cmd->message_no;
    cmd->lost_messages += count;
    if (cmd->market)
        market_gap(cmd->market);
}

static void on_mold_end(void *ctx, uint64_t next_seq)
{
    (void)ctx;
    (void)next_seq;
}

/* Another day: empty books, and locates are assigned anew. */
static void on_mold_new_session(void *ctx, const uint8_t session[MOLD_SESSION_BYTES])
{
    struct book_cmd *cmd = ((struct mold_pass *)ctx)->cmd;
    (void)session;
    if (cmd->market)
        market_new_session(cmd->market);
    cmd->row_is_stale = 1;
}

/* The first two groups that bring MoldUDP64 are lines A and B. -1: none of them. */
static int line_of(struct mold_pass *pass, const struct packet_udp *udp)
{
    for (int line = 0; line < pass->n_line; line++)
        if (pass->ip[line] == udp->dst_ip && pass->port[line] == udp->dst_port)
            return line;
    struct mold_packet_header header;
    if (pass->n_line == MOLD_N_LINE || mold_parse(udp->payload, udp->payload_len, &header))
        return -1;
    pass->ip[pass->n_line] = udp->dst_ip;
    pass->port[pass->n_line] = udp->dst_port;
    return pass->n_line++;
}

static int read_pcap(struct book_cmd *cmd, struct capture *capture, message_fn message)
{
    /* A hole stays open for a second of the capture's time: the other line may still fill it. */
    const struct mold_config config = {.n_store = MOLD_STORE, .gap_wait = 1000000000};
    struct mold_pass pass = {.cmd = cmd, .message = message};
    struct mold_handler handler = {.message = on_mold_message,
                                   .gap = on_mold_gap,
                                   .end = on_mold_end,
                                   .new_session = on_mold_new_session,
                                   .ctx = &pass};
    struct mold *mold = mold_create(&config, &handler);
    if (!mold)
        return cmd_error("%s: out of memory", cmd->path);
    char error[CAPTURE_ERROR_CHARS];
    struct capture_frame frame;
    uint64_t n_udp = 0, now = 0;
    int status = 0, got = 0;
    while (!cmd->stop && (got = capture_next_frame(capture, &frame, error)) == 1) {
        struct packet_udp udp;
        now = frame.ts_ns;
        cmd_progress("reading", "bytes", capture_offset(capture), capture_size(capture));
        /* Checksums are not verified: captures of a sender's own packets have none yet. */
        if (packet_parse(frame.data, frame.len, 0, &udp) != PACKET_OK)
            continue;
        n_udp++;
        int line = line_of(&pass, &udp);
        if (line < 0)
            pass.other_groups++;
        else
            mold_packet(mold, (enum mold_line)line, udp.payload, udp.payload_len, now);
    }
    if (!cmd->stop)
        mold_flush(mold, now);
    const struct mold_counters *counters = mold_counters(mold);
    if (got < 0)
        status = cmd_error("%s", error);
    else if (!cmd->stop &&
             counters->packets[MOLD_LINE_A] + counters->packets[MOLD_LINE_B] == counters->malformed)
        status = cmd_error("%s: none of %llu UDP datagrams is MoldUDP64; capture the feed's multicast groups",
                           cmd->path, (unsigned long long)n_udp);
    else if (pass.other_groups && cmd->market)
        cmd_error("%s: note: %llu datagrams of further groups left out; a file holds one feed, lines A and B",
                  cmd->path, (unsigned long long)pass.other_groups);
    mold_free(mold);
    return status;
}

static int read_binaryfile(struct book_cmd *cmd, struct capture *capture, message_fn message)
{
    char error[CAPTURE_ERROR_CHARS];
    const uint8_t *msg;
    uint16_t len;
    int got = 0;
    uint64_t n = 0;
    while (!cmd->stop && (got = capture_next_message(capture, &msg, &len, error)) == 1) {
        if ((++n & 0xffff) == 0)
            cmd_progress("reading", "bytes", capture_offset(capture), capture_size(capture));
        message(cmd, msg, len);
    }
    return got < 0 ? cmd_error("%s", error) : 0;
}

static int read_messages(struct book_cmd *cmd, message_fn message)
{
    char error[CAPTURE_ERROR_CHARS];
    struct capture *capture = capture_open(cmd->path, 0, error);
    if (!capture)
        return cmd_error("%s", error);
    cmd->stop = 0;
    int status = capture_kind(capture) == CAPTURE_PCAP ? read_pcap(cmd, capture, message)
                                                       : read_binaryfile(cmd, capture, message);
    cmd_progress_done();
    capture_close(capture);
    return status;
}

/* ---- first pass: the symbol's locate, so that messages before the first one that names it count as well
 * ---- */

static void find_stock_fields(struct book_cmd *cmd)
{
    for (unsigned type = 0; type < 256; type++) {
        const struct itch_message_info *info = itch_message_info((uint8_t)type);
        for (unsigned i = 0; info && i < info->n_field; i++)
            if (!strcmp(info->field[i].name, "stock"))
                cmd->stock_offset[type] = info->field[i].offset;
    }
}

/* The 8 bytes of the stock it names, or NULL. */
static const uint8_t *stock_of(const struct book_cmd *cmd, const uint8_t *msg, uint16_t len)
{
    uint8_t offset = len > 0 ? cmd->stock_offset[msg[0]] : 0;
    return offset && len >= offset + 8 ? msg + offset : NULL;
}

static void find_locate(struct book_cmd *cmd, const uint8_t *msg, uint16_t len)
{
    const uint8_t *stock = stock_of(cmd, msg, len);
    if (!stock)
        return;
    if (!memcmp(stock, cmd->symbol, sizeof(cmd->symbol))) {
        cmd->found = 1;
        cmd->locate = be_load_u16(msg + 1);
        cmd->stop = cmd->locate != 0; /* K carries locate 0: go on looking */
        return;
    }
    for (uint32_t i = 0; i < cmd->n_seen; i++)
        if (!memcmp(cmd->seen[i], stock, 8))
            return;
    if (cmd->n_seen < N_SEEN)
        memcpy(cmd->seen[cmd->n_seen++], stock, 8);
    else
        cmd->n_more_seen = 1;
}

static int unknown_symbol_error(const struct book_cmd *cmd)
{
    char names[N_SEEN * 10 + 1];
    size_t at = 0;
    for (uint32_t i = 0; i < cmd->n_seen; i++) {
        at += (size_t)snprintf(names + at, sizeof(names) - at, "%s", i ? ", " : "");
        for (int k = 0; k < 8 && cmd->seen[i][k] != ' '; k++)
            names[at++] = cmd->seen[i][k] > ' ' && cmd->seen[i][k] < 0x7f ? cmd->seen[i][k] : '?';
    }
    names[at] = '\0';
    return cmd_error("%s: no message names the symbol '%.8s'; it has %s%s%s", cmd->path, cmd->symbol,
                     cmd->n_seen ? "" : "no symbols at all", names, cmd->n_more_seen ? " and more" : "");
}

/* ---- second pass: rows ---- */

static char *put_u64(char *p, uint64_t value)
{
    char digits[20];
    int n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n > 0)
        *p++ = digits[--n];
    return p;
}

static char *put_text(char *p, const char *text)
{
    size_t n = strlen(text);
    memcpy(p, text, n);
    return p + n;
}

static void format_row(struct book_cmd *cmd)
{
    const struct book_set *books = market_books(cmd->market);
    size_t n_ask = book_levels(books, cmd->locate, BOOK_ASK, cmd->ask, cmd->n_level);
    size_t n_bid = book_levels(books, cmd->locate, BOOK_BID, cmd->bid, cmd->n_level);
    char *p = cmd->row;
    for (size_t i = 0; i < cmd->n_level; i++) {
        *p++ = ',';
        if (i < n_ask) {
            p = put_u64(p, cmd->ask[i].price);
            *p++ = ',';
            p = put_u64(p, cmd->ask[i].qty);
        } else {
            p = put_text(p, "9999999999,0");
        }
        *p++ = ',';
        if (i < n_bid) {
            p = put_u64(p, cmd->bid[i].price);
            *p++ = ',';
            p = put_u64(p, cmd->bid[i].qty);
        } else {
            p = put_text(p, "-9999999999,0");
        }
    }
    *p++ = '\n';
    cmd->row_chars = (size_t)(p - cmd->row);
}

static void apply_and_print(struct book_cmd *cmd, const uint8_t *msg, uint16_t len)
{
    struct market_event event;
    cmd->message_no++;
    market_apply(cmd->market, msg, len, &event);
    if (len < 3)
        return;
    if (event.effects & MARKET_DIRECTORY && !memcmp(market_symbol(cmd->market, event.locate), cmd->symbol, 8))
        cmd->locate = event.locate; /* another one in a further session */
    if (!cmd->locate || be_load_u16(msg + 1) != cmd->locate) {
        const uint8_t *stock = stock_of(cmd, msg, len);
        if (!stock || memcmp(stock, cmd->symbol, sizeof(cmd->symbol)) != 0)
            return;
    }
    if (cmd->row_is_stale || ((event.effects & MARKET_BOOK) && event.locate == cmd->locate))
        format_row(cmd);
    cmd->row_is_stale = 0;
    if (cmd->changes_only) {
        if (cmd->row_chars == cmd->last_row_chars && !memcmp(cmd->row, cmd->last_row, cmd->row_chars))
            return;
        memcpy(cmd->last_row, cmd->row, cmd->row_chars);
        cmd->last_row_chars = cmd->row_chars;
    }
    char number[FIELD_CHARS];
    fwrite(number, 1, (size_t)(put_u64(number, cmd->message_no) - number), stdout);
    fwrite(cmd->row, 1, cmd->row_chars, stdout);
    cmd->stop = ferror(stdout);
}

/* Notes on stderr: the rows are what the file's messages make of an empty book. Returns the exit status. */
static int report_doubts(const struct book_cmd *cmd)
{
    const struct book_counters *books = book_counters(market_books(cmd->market));
    const struct market_counters *counters = market_counters(cmd->market);
    if (cmd->lost_messages)
        cmd_error(
            "%s: note: %llu messages are lost on all lines, the first after message %llu; rows behind it may "
            "lack their effect",
            cmd->path, (unsigned long long)cmd->lost_messages, (unsigned long long)cmd->first_lost_after);
    if (books->unknown_ref)
        cmd_error("%s: note: %llu messages refer to orders that the file does not hold; ignored", cmd->path,
                  (unsigned long long)books->unknown_ref);
    uint64_t damaged = books->duplicate_ref + books->wrong_locate + books->excess_qty + books->zero_qty +
                       counters->short_messages + counters->bad_enum + counters->symbol_mismatch;
    if (damaged)
        cmd_error("%s: note: %llu messages are damaged or contradict earlier ones", cmd->path,
                  (unsigned long long)damaged);
    if (books->full)
        return cmd_error(
            "%s: %llu orders found the order table full (%llu orders, %llu levels): rows are incomplete; "
            "split the file by symbol",
            cmd->path, (unsigned long long)books->full, (unsigned long long)books->n_order_peak,
            (unsigned long long)books->n_level_peak);
    return 0;
}

/* No more orders than adds fit into the file, up to twice what the shipped configuration has for the whole
 * feed. */
static struct book_limits limits_of(const char *path)
{
    const uint64_t n_max = 1u << 22, add_bytes = 36;
    char error[CAPTURE_ERROR_CHARS];
    struct capture *capture = capture_open(path, 0, error);
    uint64_t n = n_max;
    if (capture) {
        n = capture_size(capture) / add_bytes + 1;
        capture_close(capture);
    }
    n = n < n_max ? n : n_max;
    return (struct book_limits){.n_order = (uint32_t)n, .n_level = (uint32_t)(n < n_max / 2 ? n : n_max / 2)};
}

static int print_book(struct book_cmd *cmd)
{
    find_stock_fields(cmd);
    int status = read_messages(cmd, find_locate);
    if (status != 0 && !cmd->found)
        return status;
    if (!cmd->found)
        return unknown_symbol_error(cmd);
    struct market_config config = {.join = MARKET_JOIN_SETTLED, .limits = limits_of(cmd->path)};
    cmd->market = market_create(&config);
    size_t row_max = (size_t)cmd->n_level * 4 * FIELD_CHARS + 1;
    cmd->ask = calloc(cmd->n_level, sizeof(*cmd->ask));
    cmd->bid = calloc(cmd->n_level, sizeof(*cmd->bid));
    cmd->row = malloc(row_max);
    cmd->last_row = malloc(row_max);
    if (!cmd->market || !cmd->ask || !cmd->bid || !cmd->row || !cmd->last_row)
        return cmd_error("%s: out of memory (the order table takes %u orders)", cmd->path,
                         config.limits.n_order);
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    format_row(cmd);
    memcpy(cmd->last_row, cmd->row, cmd->row_chars);
    cmd->last_row_chars = cmd->row_chars;
    cmd->lost_messages = 0;
    status = read_messages(cmd, apply_and_print);
    if (fflush(stdout) != 0 || ferror(stdout))
        return cmd_error("standard output: cannot write: %m; rows are missing");
    int doubts = report_doubts(cmd);
    return status ? status : doubts;
}

static int usage_error(const char *what)
{
    cmd_error("book: %s; killline book --help says how", what);
    return 2;
}

int cmd_book(int argc, char **argv)
{
    static const struct option options[] = {{"symbol", required_argument, NULL, 's'},
                                            {"levels", required_argument, NULL, 'n'},
                                            {"changes-only", no_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct book_cmd cmd = {0};
    const char *symbol = NULL;
    unsigned long long n_level = 0;
    int option;
    optind = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            symbol = optarg;
            break;
        case 'n':
            if (cmd_parse_u64(optarg, 1, N_LEVEL_MAX, &n_level) != 0)
                return usage_error("--levels is a number from 1 to 1000");
            break;
        case 'c':
            cmd.changes_only = 1;
            break;
        case 'h':
            fputs(usage_text, stdout);
            return 0;
        default:
            return usage_error("unknown option, or one without its value");
        }
    }
    if (argc - optind != 1)
        return usage_error(argc == optind ? "no file given" : "more than one file given");
    if (!symbol || !n_level)
        return usage_error("--symbol and --levels are needed");
    size_t symbol_chars = strlen(symbol);
    if (symbol_chars < 1 || symbol_chars > sizeof(cmd.symbol))
        return usage_error("--symbol is 1 to 8 characters");
    cmd.path = argv[optind];
    cmd.n_level = (uint32_t)n_level;
    memset(cmd.symbol, ' ', sizeof(cmd.symbol));
    memcpy(cmd.symbol, symbol, symbol_chars);
    int status = print_book(&cmd);
    market_free(cmd.market);
    free(cmd.ask);
    free(cmd.bid);
    free(cmd.row);
    free(cmd.last_row);
    return status;
}
