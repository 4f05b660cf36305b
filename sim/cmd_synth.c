/* killline synth: writes a synthetic market day. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "../host/cmd.h"
#include "synth.h"

enum { EVENTS_PER_STEP = 20000 };

static const char help[] =
    "usage: killline synth --out F.pcap [OPTIONS]\n"
    "\n"
    "Writes a market day of a simulated exchange: ITCH 5.0 messages in MoldUDP64 datagrams, lines A\n"
    "(233.54.12.111:26477) and B (233.49.196.111:26477), as one nanosecond pcap. The same options give the\n"
    "same bytes on every machine. The next move is partly predictable: sim/flow.h says how.\n"
    "\n"
    "  --out FILE      the pcap\n"
    "  --itch FILE     the same messages, without losses, as a BinaryFILE day\n"
    "  --seed N        another N, another day (1)\n"
    "  --symbols N     1 to 8000 (30)\n"
    "  --seconds S     of continuous trading (60)\n"
    "  --rate R        messages per second of trading, all symbols together (12000)\n"
    "  --messages N    about N messages in all; sets the rate when --seconds is given, else the seconds\n"
    "  --bursts N      market-wide bursts of 100 to 400 messages in 100 to 200 us (one in 2 s)\n"
    "  --halts N       volatility pause, news halt and operational halt in turn (3)\n"
    "  --gaps N        losses on line A that B fills; a third as many more on B alone (6)\n"
    "  --lost-gaps N   losses on both lines (1)\n"
    "  --lag-us N      line B behind A, with jitter (6)\n"
    "  --vlan ID       802.1Q tag, 1 to 4094 (none)\n"
    "  --json          a summary as one JSON object on stdout\n"
    "\n"
    "N and R take the suffixes k and M. Exit status: 0 written, 1 failed, 2 wrong usage.\n";

static int usage_error(const char *option, const char *value, const char *want)
{
    cmd_error("synth: --%s %s: %s; killline synth --help", option, value, want);
    return 2;
}

struct number { /* a numeric option */
    const char *name, *want;
    unsigned long long min, max, value;
    int given;
};

enum { SEED, SYMBOLS, SECONDS, RATE, MESSAGES, BURSTS, HALTS, GAPS, LOST_GAPS, LAG_US, VLAN, N_NUMBER };
enum { OPT_OUT = N_NUMBER, OPT_ITCH, OPT_JSON, OPT_HELP };

/* 0; -1: help was printed; 2: wrong usage. */
static int parse(int argc, char **argv, struct synth_options *o, int *json)
{
    struct number number[N_NUMBER] = {
        [SEED] = {"seed", "a number is wanted", 0, UINT64_MAX, 0, 0},
        [SYMBOLS] = {"symbols", "1 to 8000 are possible", 1, FLOW_SYMBOL_MAX, 0, 0},
        [SECONDS] = {"seconds", "1 to 20000 are possible", 1, SYNTH_SECONDS_MAX, 0, 0},
        [RATE] = {"rate", "50 to 2M messages per second are possible", 50, 2000000, 0, 0},
        [MESSAGES] = {"messages", "1000 to 10G are possible", 1000, 10000000000u, 0, 0},
        [BURSTS] = {"bursts", "0 to 100000 are possible", 0, SYNTH_BURST_MAX, 0, 0},
        [HALTS] = {"halts", "0 to 1000 are possible", 0, SYNTH_HALT_MAX, 0, 0},
        [GAPS] = {"gaps", "0 to 1000 are possible", 0, SYNTH_LOSS_MAX, 0, 0},
        [LOST_GAPS] = {"lost-gaps", "0 to 1000 are possible", 0, SYNTH_LOSS_MAX, 0, 0},
        [LAG_US] = {"lag-us", "0 to 5000 microseconds are possible", 0, FEED_LAG_NS_MAX / 1000, 0, 0},
        [VLAN] = {"vlan", "1 to 4094 are possible", 1, 4094, 0, 0},
    };
    struct option options[N_NUMBER + 5] = {{0}};
    for (int i = 0; i < N_NUMBER; i++)
        options[i] = (struct option){number[i].name, required_argument, NULL, i};
    options[OPT_OUT] = (struct option){"out", required_argument, NULL, OPT_OUT};
    options[OPT_ITCH] = (struct option){"itch", required_argument, NULL, OPT_ITCH};
    options[OPT_JSON] = (struct option){"json", no_argument, NULL, OPT_JSON};
    options[OPT_HELP] = (struct option){"help", no_argument, NULL, OPT_HELP};

    int c;
    optind = 0; /* GNU: starts anew, also when called twice in one process */
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == OPT_HELP) {
            fputs(help, stdout);
            return -1;
        } else if (c == OPT_JSON) {
            *json = 1;
        } else if (c == OPT_OUT) {
            o->pcap_path = optarg;
        } else if (c == OPT_ITCH) {
            o->itch_path = optarg;
        } else if (c >= 0 && c < N_NUMBER) {
            struct number *n = &number[c];
            if (cmd_parse_u64(optarg, n->min, n->max, &n->value))
                return usage_error(n->name, optarg, n->want);
            n->given = 1;
        } else {
            cmd_error("synth: killline synth --help lists the options");
            return 2;
        }
    }
    if (optind < argc) {
        cmd_error("synth: '%s' is not an option: killline synth --help", argv[optind]);
        return 2;
    }
    if (!o->pcap_path) {
        cmd_error("synth: --out FILE is needed: where the pcap goes");
        return 2;
    }
    if (o->itch_path && !strcmp(o->itch_path, o->pcap_path)) {
        cmd_error("synth: --out and --itch name the same file: give two");
        return 2;
    }
    if (number[MESSAGES].given && number[SECONDS].given && number[RATE].given) {
        cmd_error("synth: --messages, --seconds and --rate contradict each other: give two of them");
        return 2;
    }
    const struct {
        uint32_t *to;
        int from;
    } direct[] = {{&o->n_symbol, SYMBOLS}, {&o->seconds, SECONDS}, {&o->n_burst, BURSTS},
                  {&o->n_halt, HALTS},     {&o->n_gap, GAPS},      {&o->n_lost_gap, LOST_GAPS}};
    for (size_t i = 0; i < sizeof direct / sizeof direct[0]; i++)
        if (number[direct[i].from].given)
            *direct[i].to = (uint32_t)number[direct[i].from].value;
    if (number[SEED].given)
        o->seed = number[SEED].value;
    if (number[RATE].given)
        o->rate = (double)number[RATE].value;
    if (number[LAG_US].given)
        o->lag_ns = (uint32_t)number[LAG_US].value * 1000;
    if (number[VLAN].given)
        o->vlan_id = (uint16_t)number[VLAN].value;
    o->messages = number[MESSAGES].value;
    if (number[MESSAGES].given && !number[SECONDS].given)
        o->seconds = 0;
    return 0;
}

static json_t *losses_json(const struct feed *feed, int both)
{
    size_t n;
    const struct feed_loss *loss = feed_losses(feed, &n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if ((loss[i].lines == (FEED_LINE_A | FEED_LINE_B)) == both)
            json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "line",
                                                  both                           ? "AB"
                                                  : loss[i].lines == FEED_LINE_A ? "A"
                                                                                 : "B",
                                                  "first", (json_int_t)loss[i].first_seq, "count",
                                                  (json_int_t)loss[i].count));
    return list;
}

static json_t *halts_json(const struct synth *synth)
{
    size_t n;
    const struct synth_halt *halt = synth_halts(synth, &n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *stock = exchange_stock(synth_exchange(synth), halt[i].symbol);
        int len = 8;
        while (len > 0 && stock[len - 1] == ' ')
            len--;
        json_array_append_new(list, json_pack("{s:s%, s:s, s:I, s:I}", "symbol", stock, len, "reason",
                                              halt[i].reason, "from_ns", (json_int_t)halt[i].from_ns, "to_ns",
                                              (json_int_t)halt[i].to_ns));
    }
    return list;
}

static json_t *bursts_json(const struct synth *synth)
{
    size_t n;
    const struct synth_burst *burst = synth_bursts(synth, &n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:I, s:I, s:i, s:i}", "from_ns", (json_int_t)burst[i].from_ns,
                                              "to_ns", (json_int_t)burst[i].to_ns, "messages",
                                              (int)burst[i].messages, "symbols", (int)burst[i].symbols));
    return list;
}

static json_t *symbols_json(const struct synth *synth)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < synth_options(synth)->n_symbol; i++) {
        const char *stock = exchange_stock(synth_exchange(synth), i);
        int len = 8;
        while (len > 0 && stock[len - 1] == ' ')
            len--;
        json_array_append_new(list, json_stringn(stock, (size_t)len));
    }
    return list;
}

/* Everything the day is known to hold: what a receiver has to find again. */
static json_t *summary_json(const struct synth *synth)
{
    const struct feed_totals *t = feed_totals(synth_feed(synth));
    const struct synth_options *o = synth_options(synth);
    const uint64_t *by_type = exchange_by_type(synth_exchange(synth));
    struct flow_truth truth;
    flow_truth(synth_flow(synth), &truth);
    json_t *types = json_object();
    for (int i = 0; i < 256; i++)
        if (by_type[i])
            json_object_set_new(types, (char[2]){(char)i, 0}, json_integer((json_int_t)by_type[i]));
    return json_pack(
        "{s:I, s:o, s:{s:I, s:I}, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:{s:I, s:I}, s:I, s:i, s:f,"
        " s:{s:I, s:I, s:I}}",
        "messages", (json_int_t)t->messages, "messages_by_type", types, "packets", "A",
        (json_int_t)t->packets[0], "B", (json_int_t)t->packets[1], "heartbeats", (json_int_t)t->heartbeats,
        "b_first", (json_int_t)t->b_first, "packet_messages_max", (json_int_t)t->packet_messages_max,
        "bursts", bursts_json(synth), "gaps", losses_json(synth_feed(synth), 0), "lost",
        losses_json(synth_feed(synth), 1), "halts", halts_json(synth), "symbols", symbols_json(synth),
        "bytes", "pcap", (json_int_t)t->pcap_bytes, "itch", (json_int_t)t->itch_bytes, "seed",
        (json_int_t)o->seed, "seconds", (int)o->seconds, "rate", o->rate, "pressure", "moved",
        (json_int_t)truth.n_up_down, "right", (json_int_t)truth.n_right, "flat", (json_int_t)truth.n_flat);
}

static void print_text(const struct synth *synth)
{
    const struct feed_totals *t = feed_totals(synth_feed(synth));
    const struct synth_options *o = synth_options(synth);
    size_t n_loss, n_halt, n_burst;
    feed_losses(synth_feed(synth), &n_loss);
    synth_halts(synth, &n_halt);
    synth_bursts(synth, &n_burst);
    printf("%s: %llu messages of %u symbols, %u s of trading, seed %llu\n", o->pcap_path,
           (unsigned long long)t->messages, (unsigned)o->n_symbol, (unsigned)o->seconds,
           (unsigned long long)o->seed);
    printf("packets: %llu on line A, %llu on line B; losses %zu, bursts %zu, halts %zu\n",
           (unsigned long long)t->packets[0], (unsigned long long)t->packets[1], n_loss, n_burst, n_halt);
}

int cmd_synth(int argc, char **argv)
{
    struct synth_options options;
    char error[FEED_ERROR_CHARS];
    int json = 0, rc;
    synth_defaults(&options);
    rc = parse(argc, argv, &options, &json);
    if (rc)
        return rc < 0 ? 0 : rc;
    struct synth *synth = synth_open(&options, error);
    if (!synth)
        return cmd_error("synth: %s", error);
    while ((rc = synth_run(synth, EVENTS_PER_STEP)) == 1)
        cmd_progress("writing", "messages", exchange_n_messages(synth_exchange(synth)),
                     synth_expected_messages(synth));
    cmd_progress_done();
    json_t *summary = rc == 0 && json ? summary_json(synth) : NULL;
    if (rc == 0 && json && !summary)
        cmd_error("synth: out of memory for the summary");
    if (rc == 0 && !json)
        print_text(synth);
    if (synth_close(synth, error)) {
        json_decref(summary);
        return cmd_error("synth: %s", error);
    }
    if (!json)
        return 0;
    if (!summary)
        return 1;
    rc = json_dumpf(summary, stdout, JSON_REAL_PRECISION(10)) || putchar('\n') == EOF || fflush(stdout) != 0;
    json_decref(summary);
    return rc ? cmd_error("synth: the summary cannot be written to stdout") : 0;
}
