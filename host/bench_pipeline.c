#include "bench_pipeline.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_pipeline_report.h"
#include "bench_setup.h"
#include "cmd.h"

enum {
    N_SYMBOL_DEFAULT = 50,
    N_SYMBOL_MAX = 256, /* each has a stream of its own */
    RATE_MAX = 10000000,
    UNPACED_MAX = 1000000, /* frames per second of --seconds that a load without a rate has at most */
    FRAMES_MAX = 50000000,
};

static const char usage_text[] =
    "usage: killline bench pipeline [OPTIONS]\n"
    "\n"
    "Runs the appliance on the real clock, as in production: frames through a DPDK ring port, headers and "
    "MoldUDP64, order\n"
    "book, features, accelerator, kill line, datagram into a DPDK port, audit record to the writer's thread "
    "and "
    "its file.\n"
    "A generated flow of one message per frame comes from a thread of its own at due times that do not wait "
    "for "
    "the\n"
    "appliance (open loop); total counts from the due time, so that a stall is seen by every frame that was "
    "due in "
    "it. The\n"
    "stages are stamped in the poll loop, with every stage's floor: what it shows when it is empty. What is "
    "decoded before\n"
    "a tick's turn comes is in that tick's stages. Ticks go to the accelerator one by one (killline.batch "
    "1).\n"
    "\n"
    "  --accel B       csim (default), cpu or xrt. xrt also steps the C simulation in turn and prints the "
    "difference\n"
    "  --rates A,B     frames per second, and 'unpaced': as fast as the ring takes them\n"
    "                  (20k,100k,300k,unpaced)\n"
    "  --seconds S     of each rate (1)\n"
    "  --symbols N     of the generated flow, 1 to 256 (50)\n"
    "  --model F       model package (default: the shipped models/primary.klm)\n"
    "  --xclbin F      xrt: the kernel's container\n"
    "  --xrt-mode M    xrt: doorbell (default) or run\n"
    "  --config F, --set KEY=VALUE\n"
    "                  as for killline run; clock is real, egress.device net_null0 unless set\n"
    "  --json          one JSON object\n"
    "  --help          this text\n"
    "\n"
    "Needs two CPUs, better three: one for the poll loop alone. What else runs on them is in the figures: "
    "for "
    "judging, take\n"
    "several runs on a quiet machine and the least p50.\n";

struct options {
    double rates[BENCH_PIPELINE_LOADS_MAX]; /* 0: unpaced */
    uint32_t n_rate;
    double seconds;
    unsigned long long n_symbol;
    const char *model;
    int json;
    struct cmd_config settings;
};

struct pipeline {
    struct options opt;
    struct bench_setup setup;
    struct bench_pipeline_report report;
};

/* ---- options ---- */

static int usage_error(const char *what)
{
    cmd_error("bench pipeline: %s; killline bench pipeline --help says how", what);
    return 2;
}

static int parse_rates(const char *list, struct options *opt)
{
    char copy[256], *rest = copy, *word;
    if (snprintf(copy, sizeof(copy), "%s", list) >= (int)sizeof(copy))
        return -1;
    opt->n_rate = 0;
    while ((word = strsep(&rest, ",")) != NULL) {
        unsigned long long rate = 0;
        if (opt->n_rate == BENCH_PIPELINE_LOADS_MAX ||
            (strcmp(word, "unpaced") != 0 && cmd_parse_u64(word, 1, RATE_MAX, &rate)))
            return -1;
        opt->rates[opt->n_rate++] = (double)rate;
    }
    return 0;
}

static uint64_t frames_of(const struct options *opt, double rate)
{
    const double n = (rate > 0 ? rate : UNPACED_MAX) * opt->seconds;
    return n < FRAMES_MAX ? (uint64_t)n : FRAMES_MAX;
}

static int check_options(const struct options *opt)
{
    for (uint32_t i = 0; i < opt->n_rate; i++) {
        if (opt->rates[i] * opt->seconds > FRAMES_MAX)
            return usage_error("a rate times --seconds is at most 50M frames");
        if (frames_of(opt, opt->rates[i]) < 2 * BENCH_PIPELINE_WARM_UP)
            return usage_error("a rate times --seconds is at least 20 frames");
    }
    return 0;
}

static int parse_options(int argc, char **argv, struct options *opt)
{
    static const struct option options[] = {
        {"accel", required_argument, NULL, 'a'},    {"rates", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 's'},  {"symbols", required_argument, NULL, 'y'},
        {"model", required_argument, NULL, 'm'},    {"xclbin", required_argument, NULL, 'x'},
        {"xrt-mode", required_argument, NULL, 'o'}, {"config", required_argument, NULL, 'c'},
        {"set", required_argument, NULL, 'e'},      {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},           {0}};
    struct cmd_config *settings = &opt->settings;
    int option, e = cmd_config_key(settings, "egress.device", "egress.device", "net_null0");
    char *end;
    optind = 0;
    opterr = 0;
    while (!e && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'a':
            e = cmd_config_key(settings, "--accel", "accel", optarg);
            break;
        case 'r':
            if (parse_rates(optarg, opt))
                return usage_error("--rates is up to 16 numbers from 1 to 10M, or 'unpaced', by commas");
            break;
        case 's':
            opt->seconds = strtod(optarg, &end);
            if (*end || end == optarg || !(opt->seconds >= 0.01 && opt->seconds <= 600))
                return usage_error("--seconds is a number from 0.01 to 600");
            break;
        case 'y':
            if (cmd_parse_u64(optarg, 1, N_SYMBOL_MAX, &opt->n_symbol))
                return usage_error("--symbols is a number from 1 to 256");
            break;
        case 'm':
            opt->model = optarg;
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
        case 'h':
            fputs(usage_text, stdout);
            exit(0);
        default:
            return usage_error("unknown option, or one without its value");
        }
    }
    if (!e && optind != argc)
        return usage_error("it takes options only");
    if (!e)
        e = check_options(opt);
    return e ? e : cmd_config_key(settings, "bench pipeline", "clock", "real");
}

/* ---- opening ---- */

static int open_all(struct pipeline *p)
{
    struct bench_setup *setup = &p->setup;
    struct bench_pipeline_report *report = &p->report;
    int status = bench_setup_open(setup, "bench pipeline", &p->opt.settings, p->opt.model);
    if (status)
        return status;
    uint64_t n_message = 0;
    for (uint32_t i = 0; i < p->opt.n_rate; i++) {
        const uint64_t n = BENCH_RIG_PRELOAD + frames_of(&p->opt, p->opt.rates[i]);
        n_message = n > n_message ? n : n_message;
    }
    status = bench_setup_flow(setup, n_message, (uint32_t)p->opt.n_symbol);
    report->backend = setup->backend;
    report->build = setup->accel.build->name;
    report->model = setup->model_path;
    memcpy(report->machine, setup->machine, sizeof(report->machine));
    memcpy(report->details, setup->details, sizeof(report->details));
    report->time_stamp_ns = setup->time_stamp_ns;
    report->clock = setup->rig.clock;
    report->cpus = setup->rig.cpus;
    report->threshold_us = setup->config->killline.threshold_us;
    report->n_symbol = (uint32_t)p->opt.n_symbol;
    return status;
}

/* ---- measuring ---- */

static int measure(struct pipeline *p)
{
    struct bench_pipeline_report *report = &p->report;
    int failed = 0;
    for (uint32_t i = 0; !failed && i < p->opt.n_rate; i++) {
        const struct bench_pipeline_load load = {.rate = p->opt.rates[i],
                                                 .n_frame = frames_of(&p->opt, p->opt.rates[i]),
                                                 .seconds = p->opt.seconds};
        failed = bench_pipeline_run(&p->setup.rig, &load, &report->load[report->n_load++]);
        cmd_progress("measuring", "rates", i + 1, p->opt.n_rate);
    }
    if (!failed && p->setup.config->accel == CONFIG_ACCEL_XRT) {
        const struct bench_rig *rig = &p->setup.rig;
        bench_cpus_move(&rig->cpus, 1);
        failed = bench_pipeline_measure_overhead(rig->accel, rig->model, &rig->clock, &report->overhead);
        bench_cpus_move(&rig->cpus, 0);
    }
    cmd_progress_done();
    return failed;
}

int bench_pipeline(int argc, char **argv)
{
    struct pipeline *p = calloc(1, sizeof(*p));
    if (!p)
        return cmd_error("bench pipeline: out of memory");
    p->opt = (struct options){
        .rates = {20e3, 100e3, 300e3, 0}, .n_rate = 4, .seconds = 1, .n_symbol = N_SYMBOL_DEFAULT};
    int status = parse_options(argc, argv, &p->opt);
    if (!status)
        status = open_all(p);
    if (!status)
        status = measure(p);
    if (!status)
        status = bench_pipeline_print(&p->report, p->opt.json);
    bench_setup_close(&p->setup);
    cmd_config_free(&p->opt.settings);
    free(p);
    return status;
}
