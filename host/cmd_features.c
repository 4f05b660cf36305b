/* killline features: the feature matrix and its labels, from a capture, through the same intake as the
 * appliance. */
#include "cmd.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../net/capture.h"
#include "cmd_config.h"
#include "config.h"
#include "features.h"
#include "intake.h"
#include "intake_setup.h"
#include "npy.h"

enum {
    HORIZON_DEFAULT = 10,
    HORIZON_MAX = 100000,
    SYMBOL_CHARS = 8,
};
enum { LABEL_NONE = -1, LABEL_DOWN = 0, LABEL_FLAT = 1, LABEL_UP = 2 };

static const char label_formula[] = "d = mid[i + horizon] - mid[i], counted in ticks of the same stream; 2 "
                                    "(up) if d > dead_band * price tick, "
                                    "0 (down) if d < -dead_band * price tick, else 1 (flat); -1 (none) if "
                                    "one of the two has only one side, or if "
                                    "the session or the data ends, messages are lost, or the stream is not "
                                    "trading or not reliable in between";

enum array { ARRAY_FEATURES, ARRAY_LABELS, ARRAY_STREAM, ARRAY_TS, ARRAY_MID, ARRAY_COUNT };

static const struct {
    const char *file, *dtype, *what;
    uint32_t n_col;
} arrays[ARRAY_COUNT] = {
    [ARRAY_FEATURES] = {"features.npy", "<f4", "raw features, one row per tick", FEATURES_N},
    [ARRAY_LABELS] = {"labels.npy", "|i1", "0 down, 1 flat, 2 up, -1 none", 0},
    [ARRAY_STREAM] = {"stream.npy", "<u2", "stream, an index into symbols", 0},
    [ARRAY_TS] = {"ts_ns.npy", "<u8", "exchange time, ns since midnight", 0},
    [ARRAY_MID] = {"mid.npy", "<i8",
                   "bid + ask, 1e-4 USD (the mid in steps of 0.5e-4 USD); 0: a side is missing", 0},
};

struct options {
    const char *capture, *out;
    uint32_t horizon;
    double dead_band_ticks;
    int json;
    struct cmd_config settings;
};

/* A tick whose label the future has not told yet. */
struct waiting {
    uint64_t row;
    int64_t mid2;
};

struct summary {
    uint64_t n;
    double mean, square_sum, min, max; /* square_sum: of deviations from the mean */
};

struct job {
    const struct options *options;
    struct intake *intake;
    struct npy *npy[ARRAY_COUNT];
    struct waiting *waiting; /* per stream a ring of horizon entries */
    uint32_t n_waiting[KL_N_STREAM_MAX], oldest[KL_N_STREAM_MAX];
    uint16_t stream_of[BOOK_N_LOCATE]; /* stream + 1 of locates that have ticked */
    char symbol[KL_N_STREAM_MAX][SYMBOL_CHARS + 1];
    uint64_t rows_of[KL_N_STREAM_MAX], ticks_unreliable, ticks_not_trading, streams_refused;
    uint64_t labels[3];
    struct summary summary[FEATURES_N];
    int failed;
    char error[NPY_ERROR_CHARS];
};

static void append(struct job *job, enum array array, const void *row)
{
    if (!job->failed && npy_append(job->npy[array], row, job->error))
        job->failed = 1;
}

/* The oldest waiting tick of a stream gets its label. */
static void label_oldest(struct job *job, uint16_t stream, int64_t mid2)
{
    const struct waiting *w = &job->waiting[(size_t)stream * job->options->horizon + job->oldest[stream]];
    job->oldest[stream] = (job->oldest[stream] + 1) % job->options->horizon;
    job->n_waiting[stream]--;
    if (!w->mid2 || !mid2)
        return;
    double change2 = (double)(mid2 - w->mid2);
    double band2 = job->options->dead_band_ticks * 2.0 * features_price_tick(w->mid2);
    int8_t label = change2 > band2 ? LABEL_UP : change2 < -band2 ? LABEL_DOWN : LABEL_FLAT;
    job->labels[label]++;
    if (!job->failed && npy_replace(job->npy[ARRAY_LABELS], w->row, &label, job->error))
        job->failed = 1;
}

static void summarise(struct summary *s, double value)
{
    double from_mean = value - s->mean;
    if (!s->n || value < s->min)
        s->min = value;
    if (!s->n || value > s->max)
        s->max = value;
    s->n++;
    s->mean += from_mean / (double)s->n;
    s->square_sum += from_mean * (value - s->mean);
}

static void on_tick(void *ctx, const struct intake_tick *tick)
{
    struct job *job = ctx;
    uint16_t stream = tick->stream;
    if (!tick->reliable || !tick->trading) {
        job->ticks_unreliable += !tick->reliable;
        job->ticks_not_trading += tick->reliable;
        job->n_waiting[stream] = 0;
        return;
    }
    if (!job->stream_of[tick->locate]) {
        job->stream_of[tick->locate] = stream + 1;
        memcpy(job->symbol[stream], market_symbol(intake_market(job->intake), tick->locate), SYMBOL_CHARS);
        for (int i = SYMBOL_CHARS; i > 0 && job->symbol[stream][i - 1] == ' '; i--)
            job->symbol[stream][i - 1] = '\0';
    }
    float raw[FEATURES_N];
    features_tick(intake_features(job->intake), stream, tick->locate, tick->feed_ts_ns,
                  market_books(intake_market(job->intake)), raw);
    for (int i = 0; i < FEATURES_N; i++)
        summarise(&job->summary[i], raw[i]);

    const struct book_bbo *bbo = &tick->bbo;
    int64_t mid2 = bbo->bid_price && bbo->ask_price ? (int64_t)bbo->bid_price + bbo->ask_price : 0;
    if (job->n_waiting[stream] == job->options->horizon)
        label_oldest(job, stream, mid2);
    uint32_t newest = (job->oldest[stream] + job->n_waiting[stream]++) % job->options->horizon;
    job->waiting[(size_t)stream * job->options->horizon + newest] =
        (struct waiting){.row = npy_rows(job->npy[ARRAY_LABELS]), .mid2 = mid2};

    int8_t none = LABEL_NONE;
    append(job, ARRAY_FEATURES, raw);
    append(job, ARRAY_LABELS, &none);
    append(job, ARRAY_STREAM, &stream);
    append(job, ARRAY_TS, &tick->feed_ts_ns);
    append(job, ARRAY_MID, &mid2);
    job->rows_of[stream]++;
}

/* Labels are not carried over a halt, a gap or the session's end: the waiting ticks keep "none". */
static void on_trading(void *ctx, uint16_t locate, int trading, uint64_t ts_ns)
{
    struct job *job = ctx;
    (void)trading, (void)ts_ns;
    if (job->stream_of[locate])
        job->n_waiting[job->stream_of[locate] - 1] = 0;
}

static void on_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    struct job *job = ctx;
    (void)first, (void)count, (void)now;
    memset(job->n_waiting, 0, sizeof(job->n_waiting));
}

static void on_session_end(void *ctx, uint64_t next_seq)
{
    struct job *job = ctx;
    (void)next_seq;
    memset(job->n_waiting, 0, sizeof(job->n_waiting));
    memset(job->stream_of, 0, sizeof(job->stream_of)); /* locates are assigned anew */
}

static void on_streams_full(void *ctx, uint16_t locate)
{
    struct job *job = ctx;
    (void)locate;
    job->streams_refused++;
}

static void usage(FILE *out)
{
    fprintf(out,
            "usage: killline features CAPTURE --out DIR [OPTIONS]\n\n"
            "Writes the features of every tick of a pcap or BinaryFILE, and labels, for training.\n\n"
            "  --out DIR          created if absent; files of an earlier run are replaced\n"
            "  --symbols A,B      only these (default: all, up to %d)\n"
            "  --horizon TICKS    the label looks so many ticks of the stream ahead (default %d)\n"
            "  --dead-band TICKS  mid changes up to so many price ticks are flat (default 0.5)\n"
            "  --trigger T        what makes a tick: bbo, trade, book (default: the configuration's)\n"
            "  --config FILE, --set KEY=VALUE   as in killline run: feed, join and book apply\n"
            "  --json             print features.json instead of the table\n\n"
            "Ticks whose book is not reliable or not trading are left out and counted. Rows are in tick "
            "order, the\n"
            "streams interleaved. Label: %s.\n\nFiles in DIR:\n",
            KL_N_STREAM_MAX, HORIZON_DEFAULT, label_formula);
    for (int i = 0; i < ARRAY_COUNT; i++)
        fprintf(out, "  %-14s %s  %s\n", arrays[i].file, arrays[i].dtype, arrays[i].what);
    fprintf(out, "  features.json       all of this; written last, so its absence means an incomplete run\n\n"
                 "Features (host/features.h has notation and sources):\n");
    for (uint32_t i = 0; i < FEATURES_N; i++) {
        const struct features_info *f = features_info(i);
        fprintf(out, "  %-20s [%s] %s\n", f->name, f->unit, f->formula);
    }
}

/* 0, or the exit status. *done: nothing more to do. */
static int parse_options(struct options *o, int argc, char **argv, int *done)
{
    enum { OUT = 1, SYMBOLS, HORIZON, DEAD_BAND, TRIGGER, CONFIG, SET, JSON, HELP };
    static const struct option table[] = {{"out", 1, 0, OUT},         {"symbols", 1, 0, SYMBOLS},
                                          {"horizon", 1, 0, HORIZON}, {"dead-band", 1, 0, DEAD_BAND},
                                          {"trigger", 1, 0, TRIGGER}, {"config", 1, 0, CONFIG},
                                          {"set", 1, 0, SET},         {"json", 0, 0, JSON},
                                          {"help", 0, 0, HELP},       {0, 0, 0, 0}};
    *o = (struct options){.horizon = HORIZON_DEFAULT, .dead_band_ticks = 0.5};
    optind = 1;
    int e = 0;
    for (int c; !e && (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
        unsigned long long number;
        char *end;
        switch (c) {
        case OUT:
            o->out = optarg;
            break;
        case SYMBOLS:
            e = cmd_config_symbols(&o->settings, optarg);
            break;
        case HORIZON:
            if (cmd_parse_u64(optarg, 1, HORIZON_MAX, &number))
                return cmd_error("--horizon %s: 1 to %d ticks", optarg, HORIZON_MAX), 2;
            o->horizon = (uint32_t)number;
            break;
        case DEAD_BAND:
            o->dead_band_ticks = strtod(optarg, &end);
            if (end == optarg || *end || !(o->dead_band_ticks >= 0 && o->dead_band_ticks <= 1e6))
                return cmd_error("--dead-band %s: 0 to 1e6 price ticks", optarg), 2;
            break;
        case TRIGGER:
            e = cmd_config_key(&o->settings, "--trigger", "trigger", optarg);
            break;
        case CONFIG:
            e = cmd_config_file(&o->settings, optarg);
            break;
        case SET:
            e = cmd_config_set(&o->settings, optarg);
            break;
        case JSON:
            o->json = 1;
            break;
        case HELP:
        case 'h':
            usage(stdout);
            *done = 1;
            return 0;
        default:
            return 2;
        }
    }
    if (e)
        return e;
    if (optind + 1 != argc || !o->out) {
        cmd_error("%s", optind + 1 != argc ? "features: give one capture" : "features: give --out DIR");
        usage(stderr);
        return 2;
    }
    o->capture = argv[optind];
    return 0;
}

static int sha256_of_file(const char *path, char hex[65])
{
    FILE *f = fopen(path, "rb");
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int ok = f && md && EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    uint64_t done = 0;
    static uint8_t block[1 << 16];
    for (size_t n; ok && (n = fread(block, 1, sizeof(block), f)) > 0; done += n) {
        ok = EVP_DigestUpdate(md, block, n);
        cmd_progress("hashing the capture", "bytes", done, 0);
    }
    uint8_t digest[32];
    ok = ok && !ferror(f) && EVP_DigestFinal_ex(md, digest, NULL);
    for (int i = 0; ok && i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    EVP_MD_CTX_free(md);
    if (f)
        fclose(f);
    cmd_progress_done();
    return ok ? 0 : cmd_error("%s: cannot read it for its SHA-256", path);
}

static json_t *describe_features(const struct job *job)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < FEATURES_N; i++) {
        const struct features_info *f = features_info(i);
        const struct summary *s = &job->summary[i];
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "name", f->name, "formula",
                            f->formula, "unit", f->unit, "source", f->source, "mean", s->mean, "sd",
                            s->n ? sqrt(s->square_sum / (double)s->n) : 0.0, "min", s->min, "max", s->max));
    }
    return list;
}

/* NULL: out of memory. */
static json_t *describe(const struct job *job, const struct config *config, const char *sha256)
{
    static const char *const trigger[] = {
        [INTAKE_ON_BBO] = "bbo", [INTAKE_ON_TRADE] = "trade", [INTAKE_ON_BOOK] = "book"};
    const struct options *o = job->options;
    const char *slash = strrchr(o->capture, '/');
    const struct mold_counters *mold = intake_mold(job->intake);
    json_t *symbols = json_array(), *rows = json_array(), *names = json_array(), *files = json_object();
    int n_stream = KL_N_STREAM_MAX;
    while (n_stream > 0 && !job->rows_of[n_stream - 1])
        n_stream--;
    for (int s = 0; s < n_stream; s++) {
        json_array_append_new(symbols, json_string(job->symbol[s])); /* "": no row */
        json_array_append_new(rows, json_integer((json_int_t)job->rows_of[s]));
    }
    for (uint32_t i = 0; i < FEATURES_N; i++)
        json_array_append_new(names, json_string(features_name(i)));
    for (int i = 0; i < ARRAY_COUNT; i++)
        json_object_set_new(files, arrays[i].file, json_string(arrays[i].what));
    uint64_t n_row = job->summary[0].n;
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:I, s:i, s:f, s:s, s:[s,s,s], s:{s:I, s:I, s:I, s:I}, s:s, s:{s:s, s:I}, "
        "s:s, s:s, "
        "s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
        "feature_schema", (int)FEATURES_SCHEMA, "names", names, "symbols", symbols, "rows_by_stream", rows,
        "files", files, "rows", (json_int_t)n_row, "horizon_ticks", (int)o->horizon, "dead_band_ticks",
        o->dead_band_ticks, "label_formula", label_formula, "classes", "down", "flat", "up", "labels", "down",
        (json_int_t)job->labels[LABEL_DOWN], "flat", (json_int_t)job->labels[LABEL_FLAT], "up",
        (json_int_t)job->labels[LABEL_UP], "none",
        (json_int_t)(n_row - job->labels[LABEL_DOWN] - job->labels[LABEL_FLAT] - job->labels[LABEL_UP]),
        "trigger", trigger[config->trigger], "join", "policy",
        config->join.policy == MARKET_JOIN_STRICT ? "strict" : "settled", "settle_ms",
        (json_int_t)config->join.settle_ms, "capture", slash ? slash + 1 : o->capture, "capture_sha256",
        sha256, "frames", (json_int_t)intake_counters(job->intake)->frames, "messages",
        (json_int_t)mold->messages, "messages_lost", (json_int_t)mold->messages_lost, "ticks_unreliable",
        (json_int_t)job->ticks_unreliable, "ticks_not_trading", (json_int_t)job->ticks_not_trading,
        "symbols_refused", (json_int_t)job->streams_refused, "features", describe_features(job));
}

static void print_table(const struct job *job)
{
    const uint64_t *labels = job->labels;
    uint64_t n_row = job->summary[0].n, labelled = labels[LABEL_DOWN] + labels[LABEL_FLAT] + labels[LABEL_UP];
    printf("%" PRIu64 " rows of %d features; labels: %" PRIu64 " down, %" PRIu64 " flat, %" PRIu64
           " up, %" PRIu64 " none\n",
           n_row, FEATURES_N, labels[LABEL_DOWN], labels[LABEL_FLAT], labels[LABEL_UP], n_row - labelled);
    printf("left out: %" PRIu64 " ticks not reliable, %" PRIu64 " not trading\n", job->ticks_unreliable,
           job->ticks_not_trading);
    printf("%-20s %11s %11s %11s %11s\n", "feature", "mean", "sd", "min", "max");
    for (uint32_t i = 0; i < FEATURES_N; i++) {
        const struct summary *s = &job->summary[i];
        printf("%-20s %11.5f %11.5f %11.5f %11.5f\n", features_name(i), s->mean,
               s->n ? sqrt(s->square_sum / (double)s->n) : 0.0, s->min, s->max);
    }
}

/* Feeds the whole capture. 0, or 1 with a message. */
static int feed(struct job *job, struct capture *capture)
{
    char error[CAPTURE_ERROR_CHARS];
    struct capture_frame frame;
    uint64_t now = 0, n = 0;
    int more;
    while ((more = capture_next_frame(capture, &frame, error)) == 1) {
        now = frame.ts_ns > now ? frame.ts_ns : now;
        intake_poll(job->intake, now);
        intake_frame(job->intake, frame.data, frame.len, now);
        if (job->failed)
            return cmd_error("%s", job->error);
        if (n++ % 1024 == 0)
            cmd_progress("features", "bytes", capture_offset(capture), capture_size(capture));
    }
    cmd_progress_done();
    if (more < 0)
        return cmd_error("%s", error);
    intake_flush(job->intake, now);
    return job->failed ? cmd_error("%s", job->error) : 0;
}

static int join_path(char *path, size_t size_bytes, const char *dir, const char *file)
{
    if (snprintf(path, size_bytes, "%s/%s", dir, file) < (int)size_bytes)
        return 0;
    return cmd_error("%s: the path is too long", dir);
}

/* Creates the folder and the arrays, and removes the description that an earlier run has left. */
static int open_output(struct job *job)
{
    const char *dir = job->options->out;
    char path[4096];
    if (mkdir(dir, 0755) && errno != EEXIST)
        return cmd_error("--out %s: cannot create: %s", dir, strerror(errno));
    if (join_path(path, sizeof(path), dir, "features.json"))
        return 1;
    if (unlink(path) && errno != ENOENT)
        return cmd_error("%s: cannot replace: %s", path, strerror(errno));
    for (int i = 0; i < ARRAY_COUNT; i++) {
        if (join_path(path, sizeof(path), dir, arrays[i].file))
            return 1;
        job->npy[i] = npy_create(path, arrays[i].dtype, arrays[i].n_col, job->error);
        if (!job->npy[i])
            return cmd_error("%s", job->error);
    }
    return 0;
}

static int close_output(struct job *job, const json_t *description)
{
    for (int i = 0; i < ARRAY_COUNT; i++) {
        struct npy *npy = job->npy[i];
        job->npy[i] = NULL;
        if (npy_close(npy, job->error))
            return cmd_error("%s", job->error);
    }
    char path[4096];
    if (join_path(path, sizeof(path), job->options->out, "features.json"))
        return 1;
    if (json_dump_file(description, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9)))
        return cmd_error("%s: cannot write; is the disk full?", path);
    return 0;
}

static int set_up_intake(struct job *job, const struct config *config)
{
    struct intake_handler handler = {.tick = on_tick,
                                     .gap = on_gap,
                                     .trading = on_trading,
                                     .session_end = on_session_end,
                                     .streams_full = on_streams_full,
                                     .ctx = job};
    job->intake = intake_setup(config, config->feed.gap_wait_us * 1000ull, &handler);
    job->waiting = calloc((size_t)KL_N_STREAM_MAX * job->options->horizon, sizeof(job->waiting[0]));
    return job->intake && job->waiting ? 0
                                       : cmd_error("out of memory; make book.orders and book.levels smaller");
}

static int run(struct job *job)
{
    const struct options *o = job->options;
    char error[CAPTURE_ERROR_CHARS], sha256[65];
    uint8_t config_sha256[CONFIG_SHA256_BYTES];
    struct config *config = cmd_config_parse(&o->settings, config_sha256);
    if (!config)
        return 1;
    struct capture *capture = capture_open(o->capture, 0, error);
    json_t *description = NULL;
    int status = capture ? 0 : cmd_error("%s", error);
    if (!status)
        status = set_up_intake(job, config) || sha256_of_file(o->capture, sha256) || open_output(job) ||
                 feed(job, capture);
    if (!status) {
        description = describe(job, config, sha256);
        status = description ? close_output(job, description) : cmd_error("out of memory");
    }
    if (!status && job->streams_refused)
        fprintf(stderr,
                "killline: %" PRIu64 " symbols found no free stream (%d at most); name some with --symbols\n",
                job->streams_refused, KL_N_STREAM_MAX);
    if (!status && !job->summary[0].n)
        fprintf(
            stderr,
            "killline: %s: not one tick: is a symbol of --symbols in it, do feed.a and feed.b fit, was it "
            "trading?\n",
            o->capture);
    if (!status && o->json) {
        json_dumpf(description, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        putchar('\n');
    } else if (!status) {
        print_table(job);
    }
    json_decref(description);
    if (capture)
        capture_close(capture);
    config_free(config);
    return status;
}

int cmd_features(int argc, char **argv)
{
    struct options options;
    int done = 0, status = parse_options(&options, argc, argv, &done);
    if (!status && !done) {
        struct job *job = calloc(1, sizeof(*job));
        status = job ? 0 : cmd_error("out of memory");
        if (job) {
            job->options = &options;
            status = run(job);
            for (int i = 0; i < ARRAY_COUNT; i++)
                npy_abort(job->npy[i]);
            intake_free(job->intake);
            free(job->waiting);
            free(job);
        }
    }
    cmd_config_free(&options.settings);
    return status;
}
