#include "bench_pipeline.h"

#include <cpuid.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../net/port.h"
#include "bench_pipeline_report.h"
#include "cmd.h"
#include "cmd_config.h"
#include "features.h"

enum {
    N_SYMBOL_DEFAULT = 50,
    N_SYMBOL_MAX = 256, /* each has a stream of its own */
    SEED = 20191230,
    CALIBRATE_MS = 50,
    N_STAMP = 10001,
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
    "stages are stamped in the poll loop, with every stage's floor: what it shows when it is empty.\n"
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

/* Everything that is open. */
struct pipeline {
    struct options opt;
    struct config *config;
    struct model model;
    struct run_accel accel;
    struct bench_flow flow;
    struct bench_pipeline_rig rig;
    struct bench_pipeline_report report;
    cpu_set_t cpus;
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

/* This thread, and those that it starts: to the poll loop's CPU, or to the others, if there are others. */
static void move_to(const struct bench_pipeline_cpus *cpus, const cpu_set_t *all, int poll)
{
    cpu_set_t set = *all;
    if (poll) {
        CPU_ZERO(&set);
        CPU_SET(cpus->poll, &set);
    } else if (CPU_COUNT(all) > 1) {
        CPU_CLR(cpus->poll, &set);
    }
    /* Refused only for CPUs that have been taken from the process meanwhile: then the system places it. */
    sched_setaffinity(0, sizeof(set), &set);
}

/* The last CPU is the poll loop's: the first ones have the system's interrupts. */
static int choose_cpus(struct bench_pipeline_cpus *cpus, cpu_set_t *all)
{
    cpu_set_t set;
    int cpu[3], n = 0;
    if (sched_getaffinity(0, sizeof(set), &set))
        return cmd_error("bench pipeline: cannot read which CPUs there are: %m");
    *all = set;
    for (int c = CPU_SETSIZE - 1; c >= 0 && n < 3; c--)
        if (CPU_ISSET(c, &set))
            cpu[n++] = c;
    cpus->poll = cpu[0];
    cpus->feeder = cpu[n > 1 ? 1 : 0];
    cpus->audit = cpu[n - 1];
    move_to(cpus, all, 0); /* and with it the threads of a backend or its guard */
    return 0;
}

static void read_machine(char name[64])
{
    unsigned words[12] = {0}, highest = __get_cpuid_max(0x80000000, NULL);
    for (unsigned i = 0; i < 3 && highest >= 0x80000004; i++)
        __get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
    snprintf(name, 64, "%.48s", words[0] ? (const char *)words : "unknown CPU");
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Median of what lies between two readings of the counter. */
static double stamp_ns(const struct clock_calibration *clock)
{
    static uint64_t apart[N_STAMP];
    uint64_t last = __rdtsc();
    for (int i = 0; i < N_STAMP; i++) {
        const uint64_t now = __rdtsc();
        apart[i] = now - last;
        last = now;
    }
    qsort(apart, N_STAMP, sizeof(apart[0]), compare_u64);
    return clock_cycles_to_ns(clock, apart[N_STAMP / 2]);
}

static int open_model(struct pipeline *p)
{
    char error[ACCEL_ERROR_CHARS];
    const char *path = p->opt.model          ? p->opt.model
                       : p->config->model[0] ? p->config->model
                                             : KL_MODEL_DEFAULT;
    p->report.model = path;
    if (run_accel_model(path, &p->model, error) ||
        run_accel_open(p->config, &p->model, path, NULL, p->rig.clock.hz, &p->accel, error))
        return cmd_error("%s", error);
    return 0;
}

static void describe(struct pipeline *p)
{
    struct bench_pipeline_report *report = &p->report;
    static const char *const names[] = {"csim", "cpu", "xrt"};
    report->backend = names[p->config->accel];
    report->build = p->accel.build->name;
    report->clock = p->rig.clock;
    report->cpus = p->rig.cpus;
    report->time_stamp_ns = stamp_ns(&p->rig.clock);
    report->threshold_us = p->config->killline.threshold_us;
    report->n_symbol = (uint32_t)p->opt.n_symbol;
    read_machine(report->machine);
    if (p->config->accel == CONFIG_ACCEL_CPU) {
        snprintf(report->details, sizeof(report->details), "%s",
                 accel_cpu_variant_name(accel_cpu_variant_of(p->accel.accel)));
    } else if (p->config->accel == CONFIG_ACCEL_XRT) {
        const struct accel_xrt_info *card = &p->accel.cards[0];
        const char *exec = getenv("KL_SIM_EXEC"), *latency = getenv("KL_SIM_LATENCY");
        int n = snprintf(report->details, sizeof(report->details), "%s, %s mode, %s memory", card->name,
                         accel_xrt_mode_name(card->mode), card->host_memory ? "host" : "device");
        if (card->software_device)
            snprintf(report->details + n, sizeof(report->details) - (size_t)n,
                     ", the software device, execution %.20s, latency model %.80s", exec ? exec : "inline",
                     latency ? latency : "off");
    }
}

static int open_all(struct pipeline *p)
{
    struct bench_pipeline_rig *rig = &p->rig;
    char error[PORT_ERROR_CHARS];
    p->config = cmd_config_parse(&p->opt.settings, rig->config_sha256);
    if (!p->config)
        return 1;
    if (clock_calibrate(&rig->clock, CALIBRATE_MS))
        return cmd_error(
            "bench pipeline: this machine's time stamp counter does not run evenly; no figures from "
            "here");
    if (port_init(error))
        return cmd_error("bench pipeline: %s", error);
    if (choose_cpus(&rig->cpus, &p->cpus) || open_model(p))
        return 1;
    uint64_t n_message = 0;
    for (uint32_t i = 0; i < p->opt.n_rate; i++) {
        const uint64_t n = BENCH_PIPELINE_PRELOAD + frames_of(&p->opt, p->opt.rates[i]);
        n_message = n > n_message ? n : n_message;
    }
    if (bench_flow_generate(n_message, (uint32_t)p->opt.n_symbol, SEED, &p->flow))
        return cmd_error("bench pipeline: no memory for %llu messages; fewer --seconds",
                         (unsigned long long)n_message);
    rig->config = p->config;
    rig->model = &p->model;
    rig->accel = &p->accel;
    rig->flow = &p->flow;
    describe(p);
    return 0;
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
        failed = bench_pipeline_run(&p->rig, &load, &report->load[report->n_load++]);
        cmd_progress("measuring", "rates", i + 1, p->opt.n_rate);
    }
    if (!failed && p->config->accel == CONFIG_ACCEL_XRT) {
        move_to(&p->rig.cpus, &p->cpus, 1);
        failed = bench_pipeline_measure_overhead(&p->accel, &p->model, &p->rig.clock, &report->overhead);
        move_to(&p->rig.cpus, &p->cpus, 0);
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
    run_accel_close(&p->accel);
    model_free(&p->model);
    free(p->flow.data);
    config_free(p->config);
    cmd_config_free(&p->opt.settings);
    free(p);
    return status;
}
