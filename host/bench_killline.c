#include "bench_killline.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench_killline_report.h"
#include "cmd.h"

enum {
    RUNS_MIN = 1000,
    RUNS_MAX = 2000000,
    RATE_MAX = 10000000,
    N_SYMBOL_MAX = 256,        /* each has a stream of its own */
    FRAMES_PER_RUN = 4,        /* of the generated flow at least one message in so many makes a tick */
    OVERLOAD_FRAMES = 1500000, /* most of one overload */
};

static const char usage_text[] =
    "usage: killline bench killline [OPTIONS]\n"
    "\n"
    "The evaluation procedure of the kill line, on this machine: the appliance on the real clock, as in "
    "production, under a\n"
    "generated flow at a fixed rate that does not wait for it (open loop). Ages count from when a frame was "
    "due. Distribution,\n"
    "stages and bottleneck, four indicators, miss rate, and the kill line that is recommended for a target "
    "miss rate. Then:\n"
    "what the checks cost, 10 times the capacity, idle gaps with and without keep-warm, orders to halt.\n"
    "\n"
    "  --rate N/s        frames per second (20k)\n"
    "  --runs N          inferences measured after the warm-up, 1000 to 2M (20000)\n"
    "  --target-miss P%  miss rate that the recommended kill line is to keep (1%)\n"
    "  --accel B         csim (default), cpu or xrt\n"
    "  --model F         model package (default: the shipped models/primary.klm)\n"
    "  --symbols N       of the generated flow, 1 to 256 (50)\n"
    "  --quick           1000 inferences and short loads, some seconds in all: to see that it works\n"
    "  --xclbin F        xrt: the kernel's container\n"
    "  --xrt-mode M      xrt: doorbell (default) or run\n"
    "  --config F, --set KEY=VALUE\n"
    "                    as for killline run; clock is real, egress.device net_null0 unless set\n"
    "  --json            one JSON object\n"
    "  --html F          also a page, self-contained\n"
    "  --out DIR         also DIR/bench_killline.json and DIR/bench_killline.html\n"
    "  --help            this text\n"
    "\n"
    "Needs two CPUs, better three: one for the poll loop alone. Exit status 1 also for a prediction above "
    "the line, or two\n"
    "that went out after one order to halt.\n";

struct options {
    unsigned long long rate, runs, n_symbol;
    double target_miss;
    const char *model, *html, *out;
    int json, is_quick, has_runs;
    struct cmd_config settings;
};

/* How long everything takes. */
struct scale {
    uint64_t n_preload, idle_frames[BENCH_KILLLINE_N_IDLE];
    double capacity_seconds, overload_seconds;
    uint32_t idle_blocks, n_order;
};
static const struct scale full = {BENCH_RIG_PRELOAD, {300, 60}, 0.5, 1, 3, 200},
                          quick = {6000, {60, 30}, 0.05, 0.1, 1, 20};
static const double idle_gap_ns[BENCH_KILLLINE_N_IDLE] = {1e6, 10e6};

/* Everything that is open. */
struct bench {
    struct options opt;
    struct bench_setup setup;
    struct bench_killline_report report;
};

/* ---- options ---- */

static int usage_error(const char *what)
{
    cmd_error("bench killline: %s; killline bench killline --help says how", what);
    return 2;
}

/* "20k" or "20k/s". */
static int parse_rate(const char *text, unsigned long long *rate)
{
    char copy[32];
    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
        return -1;
    char *unit = strstr(copy, "/s");
    if (unit && !unit[2])
        *unit = '\0';
    return cmd_parse_u64(copy, 1, RATE_MAX, rate);
}

/* "1%" */
static int parse_percent(const char *text, double *rate)
{
    char *end;
    const double percent = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0 || !(percent >= 0.001 && percent <= 50))
        return -1;
    *rate = percent / 100;
    return 0;
}

static int parse_options(int argc, char **argv, struct options *opt)
{
    static const struct option options[] = {
        {"accel", required_argument, NULL, 'a'},    {"rate", required_argument, NULL, 'r'},
        {"runs", required_argument, NULL, 'n'},     {"target-miss", required_argument, NULL, 't'},
        {"symbols", required_argument, NULL, 'y'},  {"model", required_argument, NULL, 'm'},
        {"quick", no_argument, NULL, 'q'},          {"xclbin", required_argument, NULL, 'x'},
        {"xrt-mode", required_argument, NULL, 'o'}, {"config", required_argument, NULL, 'c'},
        {"set", required_argument, NULL, 'e'},      {"json", no_argument, NULL, 'j'},
        {"html", required_argument, NULL, 'l'},     {"out", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},           {0}};
    struct cmd_config *settings = &opt->settings;
    int option, e = cmd_config_key(settings, "egress.device", "egress.device", "net_null0");
    optind = 0;
    opterr = 0;
    while (!e && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'a':
            e = cmd_config_key(settings, "--accel", "accel", optarg);
            break;
        case 'r':
            if (parse_rate(optarg, &opt->rate))
                return usage_error("--rate is a number of frames per second from 1 to 10M");
            break;
        case 'n':
            opt->has_runs = 1;
            if (cmd_parse_u64(optarg, 0, RUNS_MAX, &opt->runs))
                return usage_error("--runs is a number up to 2M");
            if (opt->runs < RUNS_MIN)
                return usage_error("--runs is at least 1000: fewer say nothing of a p99.9, and the procedure "
                                   "asks for as many");
            break;
        case 't':
            if (parse_percent(optarg, &opt->target_miss))
                return usage_error("--target-miss is a rate from 0.001% to 50%, with its %");
            break;
        case 'y':
            if (cmd_parse_u64(optarg, 1, N_SYMBOL_MAX, &opt->n_symbol))
                return usage_error("--symbols is a number from 1 to 256");
            break;
        case 'm':
            opt->model = optarg;
            break;
        case 'q':
            opt->is_quick = 1;
            break;
        case 'x':
            e = cmd_config_key(settings, "--xclbin", "xrt.xclbin", optarg);
            break;
        case 'o':
            e = cmd_config_key(settings, "--xrt-mode", "xrt.mode", optarg);
            break;
        case 'c':
            e = cmd_config_file(settings, optarg);
            break;
        case 'e':
            e = cmd_config_set(settings, optarg);
            break;
        case 'j':
            opt->json = 1;
            break;
        case 'l':
            opt->html = optarg;
            break;
        case 'd':
            opt->out = optarg;
            break;
        case 'h':
            fputs(usage_text, stdout);
            exit(0);
        default:
            return usage_error("unknown option, or one without its value");
        }
    }
    if (!e && optind != argc)
        return usage_error("it takes options only");
    if (opt->is_quick && !opt->has_runs)
        opt->runs = RUNS_MIN;
    return e ? e : cmd_config_key(settings, "bench killline", "clock", "real");
}

/* ---- measuring ---- */

/* The steps of the accelerator in the overload that is too much for it: five fill the line. */
static double imposed_step_ns(const struct config *config)
{
    return config->killline.threshold_us * 1e3 * 0.2;
}

static int measure_overloads(struct bench *b, const struct scale *scale)
{
    struct bench_killline_report *r = &b->report;
    struct bench_killline_overload_plan plan = {.seconds = scale->overload_seconds,
                                                .capacity_seconds = scale->capacity_seconds,
                                                .n_preload = scale->n_preload,
                                                .step_ns = imposed_step_ns(b->setup.config)};
    if (bench_killline_overload(&b->setup.rig, &plan, &r->overload[0]))
        return 1;
    plan.step_ns = 0;
    plan.is_lossy = 1;
    return bench_killline_overload(&b->setup.rig, &plan, &r->overload[1]);
}

static int measure(struct bench *b)
{
    const struct scale *scale = b->opt.is_quick ? &quick : &full;
    const struct bench_rig *rig = &b->setup.rig;
    struct bench_killline_report *r = &b->report;
    enum { N_STEP = 6 };
    int failed =
        bench_killline_measure_capacity(rig, NULL, scale->n_preload, scale->capacity_seconds, &r->capacity);
    cmd_progress("measuring", "parts", 1, N_STEP);
    if (!failed) {
        const struct bench_killline_plan plan = {.runs = b->opt.runs,
                                                 .rate = (double)b->opt.rate,
                                                 .target_miss = b->opt.target_miss,
                                                 .n_preload = scale->n_preload,
                                                 .inferred_share = r->capacity.inferred_share};
        failed = bench_killline_evaluate(rig, &plan, &r->result);
        cmd_progress("measuring", "parts", 2, N_STEP);
    }
    if (!failed) {
        bench_cpus_move(&rig->cpus, 1);
        failed = bench_killline_measure_check(&rig->clock, b->opt.is_quick, &r->check);
        bench_cpus_move(&rig->cpus, 0);
        cmd_progress("measuring", "parts", 3, N_STEP);
    }
    if (!failed) {
        failed = measure_overloads(b, scale);
        cmd_progress("measuring", "parts", 4, N_STEP);
    }
    for (int i = 0; !failed && i < BENCH_KILLLINE_N_IDLE; i++)
        failed = bench_killline_idle(rig, idle_gap_ns[i], scale->idle_frames[i], scale->idle_blocks,
                                     scale->n_preload, &r->idle[i]);
    cmd_progress("measuring", "parts", 5, N_STEP);
    if (!failed)
        failed = bench_killline_halts(rig, (double)b->opt.rate, scale->n_order, scale->n_preload, &r->halt);
    cmd_progress_done();
    return failed;
}

static int open_all(struct bench *b)
{
    struct bench_setup *setup = &b->setup;
    const int status = bench_setup_open(setup, "bench killline", &b->opt.settings, b->opt.model);
    if (status)
        return status;
    const struct scale *scale = b->opt.is_quick ? &quick : &full;
    const uint64_t window = b->opt.rate * setup->config->governor.window_ms / 1000;
    const uint64_t asked = b->opt.runs * FRAMES_PER_RUN + window + 4000,
                   load = asked > OVERLOAD_FRAMES || b->opt.is_quick ? asked : OVERLOAD_FRAMES;
    if (b->opt.rate * setup->config->governor.window_ms / 1000 > 20 * OVERLOAD_FRAMES)
        return usage_error("--rate times governor.window_ms is at most 30M frames");
    b->report.setup = setup;
    b->report.n_symbol = (uint32_t)b->opt.n_symbol;
    b->report.target_miss = b->opt.target_miss;
    return bench_setup_flow(setup, scale->n_preload + load, (uint32_t)b->opt.n_symbol);
}

/* ---- telling ---- */

static int write_file(const struct bench_killline_report *r, const char *path,
                      int (*write)(const struct bench_killline_report *r, FILE *out))
{
    FILE *out = fopen(path, "w");
    if (!out)
        return cmd_error("bench killline: %s: %m", path);
    const int failed = write(r, out);
    return (fclose(out) != 0) | failed ? cmd_error("bench killline: %s: cannot be written: %m", path) : 0;
}

static int write_folder(const struct bench_killline_report *r, const char *folder)
{
    char path[4096];
    if (mkdir(folder, 0777) && errno != EEXIST)
        return cmd_error("bench killline: %s: %m", folder);
    snprintf(path, sizeof(path), "%.4000s/bench_killline.json", folder);
    if (write_file(r, path, bench_killline_json))
        return 1;
    snprintf(path, sizeof(path), "%.4000s/bench_killline.html", folder);
    return write_file(r, path, bench_killline_page);
}

/* What must never be. */
static int find_violations(const struct bench_killline_report *r)
{
    int found = 0;
    for (int i = 0; i < BENCH_KILLLINE_N_OVERLOAD; i++)
        if (r->overload[i].over_line)
            found = cmd_error("bench killline: %llu predictions were published above the kill line",
                              (unsigned long long)r->overload[i].over_line);
    if (r->halt.late_after_return_most > 1)
        found = cmd_error("bench killline: after one order to halt %u predictions were published",
                          r->halt.late_after_return_most);
    if (r->halt.not_carried_out)
        found = cmd_error("bench killline: the poll loop did not carry out an order within a second");
    return found;
}

static int tell(const struct bench *b)
{
    const struct bench_killline_report *r = &b->report;
    if ((b->opt.json ? bench_killline_json : bench_killline_text)(r, stdout))
        return cmd_error("bench killline: cannot write the result: %m");
    if (b->opt.html && write_file(r, b->opt.html, bench_killline_page))
        return 1;
    if (b->opt.out && write_folder(r, b->opt.out))
        return 1;
    return find_violations(r);
}

int bench_killline(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof(*b));
    if (!b)
        return cmd_error("bench killline: out of memory");
    b->opt = (struct options){.rate = 20000, .runs = 20000, .n_symbol = 50, .target_miss = 0.01};
    int status = parse_options(argc, argv, &b->opt);
    if (!status)
        status = open_all(b);
    if (!status)
        status = measure(b);
    if (!status)
        status = tell(b);
    free(b->report.result.age_ns);
    bench_setup_close(&b->setup);
    cmd_config_free(&b->opt.settings);
    free(b);
    return status;
}
