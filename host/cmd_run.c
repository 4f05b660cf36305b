/* killline run: opens everything, starts the poll loop's thread, waits, closes, reports. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "appliance.h"
#include "cmd.h"
#include "cmd_config.h"
#include "control.h"
#include "feeder.h"
#include "report.h"
#include "run_accel.h"
#include "run_summary.h"

enum { PATH_CHARS = 4096, CALIBRATE_MS = 50, IDLE_LIMIT_S = 2 };

static const char help[] =
    "usage: killline run --itch F | --pcap F [OPTIONS]\n\n"
    "Runs the appliance on a capture: packets through a DPDK port, books, features, accelerator, kill line.\n"
    "Prints a summary; writes the audit log, an HTML report and the published predictions.\n\n"
    "  --itch F         the exchange's BinaryFILE day format, played as MoldUDP64 packets through a ring "
    "port\n"
    "  --pcap F         pcap or pcapng with MoldUDP64, lines A and B, through the net_pcap port\n"
    "  --out DIR        for audit.kla, report.html, predictions.pcap (default: killline-out/TIME); a folder "
    "that\n"
    "                   holds an audit log is refused\n"
    "  --clock C        replay (default): discrete events at the capture's own stamps, modelled service "
    "times,\n"
    "                   exactly reproducible. real: the TSC, as in production\n"
    "  --pace X         real clock: play the capture at X times its own speed (default: as fast as it is "
    "taken)\n"
    "  --accel B        csim: the kernel's C source, in-process (default). cpu: the same answers, faster.\n"
    "                   xrt: a card through Xilinx XRT, or without one the software device; falls over to "
    "cpu\n"
    "  --xrt-mode M     doorbell (default) or run\n"
    "  --model F        model package (default: the shipped models/primary.klm)\n"
    "  --symbols A,B    symbols to predict (default: all, as they come, up to 256)\n"
    "  --config F       configuration, YAML; every key with its default: host/killline.yaml\n"
    "  --set KEY=VALUE  overrides one key, for example --set killline.threshold_us=50; may be repeated\n"
    "  --json           one JSON object instead of the summary\n\n"
    "Exit status: 0 when the whole capture was worked off and everything was written.\n";

enum stop { STOP_NONE = 0, STOP_SIGNAL, STOP_FELL_SHORT };
static atomic_int
    stop_requested; /* enum stop; lock-free, so a signal handler may set it and the poll loop read it */

static struct order_desk desk; /* its alignment is no heap's */

static void on_signal(int signo)
{
    (void)signo;
    stop_requested = STOP_SIGNAL;
}

struct options {
    const char *capture, *out, *model;
    enum capture_kind kind;
    double pace;
    int json;
    struct cmd_config settings;
};

/* Everything that is open during a run; closed in reverse by close_all. */
struct run {
    struct options opt;
    struct config *config;
    uint8_t config_sha256[CONFIG_SHA256_BYTES];
    struct model model, next_model, backup;
    uint64_t *stamps_ns;
    uint64_t n_frame, clock_steps;
    char torn[CAPTURE_ERROR_CHARS]; /* "": the capture is whole */
    struct clock_calibration clock;
    struct run_accel accel;
    struct port *rx, *tx;
    struct feeder *feeder;
    struct audit_log *log;
    struct appliance *appliance;
    struct control *control; /* --pace only */
    struct state_file state;
    char out[PATH_CHARS], audit_path[PATH_CHARS + 32], report_path[PATH_CHARS + 32], tx_path[PATH_CHARS + 32];
};

/* ---- options ---- */

static int parse_options(int argc, char **argv, struct options *opt)
{
    enum {
        OPT_ITCH = 1,
        OPT_PCAP,
        OPT_OUT,
        OPT_CLOCK,
        OPT_PACE,
        OPT_ACCEL,
        OPT_XRT_MODE,
        OPT_MODEL,
        OPT_SYMBOLS,
        OPT_CONFIG,
        OPT_SET
    };
    static const struct option options[] = {{"itch", 1, NULL, OPT_ITCH},
                                            {"pcap", 1, NULL, OPT_PCAP},
                                            {"out", 1, NULL, OPT_OUT},
                                            {"clock", 1, NULL, OPT_CLOCK},
                                            {"pace", 1, NULL, OPT_PACE},
                                            {"accel", 1, NULL, OPT_ACCEL},
                                            {"xrt-mode", 1, NULL, OPT_XRT_MODE},
                                            {"model", 1, NULL, OPT_MODEL},
                                            {"symbols", 1, NULL, OPT_SYMBOLS},
                                            {"config", 1, NULL, OPT_CONFIG},
                                            {"set", 1, NULL, OPT_SET},
                                            {"json", 0, NULL, 'j'},
                                            {"help", 0, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, e = 0;
    char *end;
    optind = 1;
    while (!e && (c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case OPT_ITCH:
        case OPT_PCAP:
            if (opt->capture) {
                cmd_error("one of --itch and --pcap, once");
                return 2;
            }
            opt->capture = optarg;
            opt->kind = c == OPT_ITCH ? CAPTURE_BINARYFILE : CAPTURE_PCAP;
            break;
        case OPT_OUT:
            if (!optarg[0]) {
                cmd_error("--out: the folder's name is empty");
                return 2;
            }
            opt->out = optarg;
            break;
        case OPT_CLOCK:
            e = cmd_config_key(&opt->settings, "--clock", "clock", optarg);
            break;
        case OPT_PACE:
            opt->pace = strtod(optarg, &end);
            if (*end || end == optarg || !(opt->pace > 0 && opt->pace <= 1e6)) {
                cmd_error("--pace %s: expected a number above 0, 1 is the capture's own speed", optarg);
                return 2;
            }
            break;
        case OPT_ACCEL:
            e = cmd_config_key(&opt->settings, "--accel", "accel", optarg);
            break;
        case OPT_XRT_MODE:
            e = cmd_config_key(&opt->settings, "--xrt-mode", "xrt.mode", optarg);
            break;
        case OPT_MODEL:
            opt->model = optarg;
            break;
        case OPT_SYMBOLS:
            e = cmd_config_symbols(&opt->settings, optarg);
            break;
        case OPT_CONFIG:
            e = cmd_config_file(&opt->settings, optarg);
            break;
        case OPT_SET:
            e = cmd_config_set(&opt->settings, optarg);
            break;
        case 'j':
            opt->json = 1;
            break;
        case 'h':
            fputs(help, stdout);
            exit(0);
        default:
            return 2;
        }
    if (!e && (optind < argc || !opt->capture)) {
        cmd_error(optind < argc ? "unexpected '%s': a capture is given with --itch F or --pcap F (run --help)"
                                : "a capture is needed: --itch F or --pcap F (run --help)",
                  argv[optind]);
        return 2;
    }
    return e;
}

/* ---- opening ---- */

/* Every frame's stamp, made not to go backwards. What can be read of a torn capture is kept. */
static int load_stamps(struct run *run)
{
    const char *path = run->opt.capture;
    char error[CAPTURE_ERROR_CHARS];
    struct capture *capture = capture_open(path, run->opt.kind, error);
    if (!capture)
        return cmd_error("%s", error);
    struct capture_frame frame;
    uint64_t room = 0, last = 0;
    int more;
    while ((more = capture_next_frame(capture, &frame, error)) == 1) {
        if (run->n_frame == room) {
            room = room ? 2 * room : 1 << 16;
            uint64_t *larger = realloc(run->stamps_ns, room * sizeof(*larger));
            if (!larger) {
                capture_close(capture);
                return cmd_error("%s: out of memory for the stamps of %llu frames", path,
                                 (unsigned long long)room);
            }
            run->stamps_ns = larger;
        }
        run->clock_steps += frame.ts_ns < last;
        last = frame.ts_ns > last ? frame.ts_ns : last;
        run->stamps_ns[run->n_frame++] = last;
        if (run->n_frame % 65536 == 0)
            cmd_progress("reading stamps", "bytes", capture_offset(capture), capture_size(capture));
    }
    cmd_progress_done();
    if (more < 0)
        snprintf(run->torn, sizeof(run->torn), "%s", error);
    capture_close(capture);
    if (!run->n_frame)
        return more < 0 ? cmd_error("%s", error) : cmd_error("%s: holds no frame", path);
    return 0;
}

/* The log names the classes once. */
static int same_classes(const struct model *a, const struct model *b)
{
    int same = a->image->n_class == b->image->n_class;
    for (int k = 0; same && k < a->image->n_class; k++)
        same = !strcmp(a->class_name[k], b->class_name[k]);
    return same;
}

static int open_model(struct run *run)
{
    char error[ACCEL_ERROR_CHARS];
    const char *path = run->opt.model          ? run->opt.model
                       : run->config->model[0] ? run->config->model
                                               : KL_MODEL_DEFAULT,
               *next = run->config->model_switch.model, *backup = run->config->backup.model;
    if (run_accel_model(path, &run->model, error) ||
        (next[0] && run_accel_model(next, &run->next_model, error)) ||
        (backup[0] && run_accel_model(backup, &run->backup, error)))
        return cmd_error("%s", error);
    if (backup[0] && !same_classes(&run->model, &run->backup))
        return cmd_error("backup.model=%s: its classes are not those of %s, and a log names them once",
                         backup, path);
    if (next[0] && !same_classes(&run->model, &run->next_model))
        return cmd_error("model_switch.model=%s: its classes are not those of %s, and a log names them once",
                         next, path);
    const struct model *second = next[0] ? &run->next_model : backup[0] ? &run->backup : NULL;
    if (run_accel_open(run->config, &run->model, path, second, run->clock.hz, &run->accel, error) ||
        (backup[0] && run_accel_load_backup(&run->accel, &run->backup, backup, error)))
        return cmd_error("%s", error);
    return 0;
}

/* The folder and those above it. *existed: it was there before. */
static int make_path(const char *folder, int *existed)
{
    char path[PATH_CHARS];
    for (size_t i = 1; i <= strlen(folder); i++)
        if (folder[i] == '/' || folder[i] == '\0') {
            snprintf(path, sizeof(path), "%.*s", (int)i, folder);
            *existed = mkdir(path, 0777) != 0;
            if (*existed && errno != EEXIST)
                return cmd_error("%s: cannot be made: %s; choose another --out", path, strerror(errno));
        }
    return 0;
}

static int make_folder(struct run *run)
{
    int existed = 0;
    if (run->opt.out) {
        if (snprintf(run->out, sizeof(run->out), "%s", run->opt.out) >= PATH_CHARS - 1)
            return cmd_error("--out: the path is too long");
        if (strchr(run->out, ',') && !run->config->egress.device[0])
            return cmd_error("--out %s: a comma in the path cannot be passed to DPDK: choose another",
                             run->out);
        if (make_path(run->out, &existed))
            return 1;
    } else {
        char stem[64];
        time_t t = time(NULL);
        struct tm tm;
        gmtime_r(&t, &tm);
        strftime(stem, sizeof(stem), "killline-out/%Y%m%d-%H%M%S", &tm);
        snprintf(run->out, sizeof(run->out), "%s", stem);
        /* Runs that start in the same second do not share a folder. */
        for (int n = 2; n < 1000; n++) {
            if (make_path(run->out, &existed))
                return 1;
            if (!existed)
                break;
            snprintf(run->out, sizeof(run->out), "%s-%d", stem, n);
        }
    }
    snprintf(run->audit_path, sizeof(run->audit_path), "%s/audit.kla", run->out);
    snprintf(run->report_path, sizeof(run->report_path), "%s/report.html", run->out);
    snprintf(run->tx_path, sizeof(run->tx_path), "%s/predictions.pcap", run->out);
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The backend; a simulated card says so. */
static const char *accel_label(const struct run *run)
{
    return !run->accel.guard                     ? run->accel.accel->ops->name
           : run->accel.cards[0].software_device ? "xrt-software"
                                                 : "xrt";
}

static int open_log(struct run *run)
{
    char error[AUDIT_ERROR_CHARS];
    int replay = run->config->clock == CONFIG_CLOCK_REPLAY;
    struct audit_config config = {
        .path = run->audit_path,
        .n_ring = run->config->audit.ring_records,
        /* A replay is to be reproducible: nothing may depend on the disk's speed. */
        .on_full = replay ? AUDIT_FULL_WAIT : (enum audit_full)run->config->audit.on_full,
        .header = {.abi_version = KL_ABI_VERSION,
                   .clock = replay ? AUDIT_CLOCK_REPLAY : AUDIT_CLOCK_REAL,
                   .n_model = run->next_model.image || run->backup.image ? 2 : 1,
                   .tsc_hz = replay ? 1e9 : run->clock.hz,
                   .tsc0 = replay ? 0 : run->clock.tsc0,
                   .utc_ns0 = replay ? 0 : run->clock.utc_ns0,
                   .clock_error_ppm = replay ? 0 : run->clock.error_ppm}};
    struct audit_header *h = &config.header;
    memcpy(h->model_sha256[0], run->model.sha256, sizeof(h->model_sha256[0]));
    if (run->next_model.image)
        memcpy(h->model_sha256[1], run->next_model.sha256, sizeof(h->model_sha256[1]));
    if (run->backup.image)
        memcpy(h->model_sha256[1], run->backup.sha256, sizeof(h->model_sha256[1]));
    memcpy(h->config_sha256, run->config_sha256, sizeof(h->config_sha256));
    snprintf(h->build, sizeof(h->build), "%s", KL_VERSION);
    snprintf(h->accel, sizeof(h->accel), "%s", accel_label(run));
    snprintf(h->feed, sizeof(h->feed), "%s", base_name(run->opt.capture));
    for (int k = 0; k < run->model.image->n_class; k++)
        snprintf(h->class_name[k], sizeof(h->class_name[k]), "%.7s", run->model.class_name[k]);
    run->log = audit_open(&config, error);
    return run->log ? 0 : cmd_error("%s", error);
}

static int open_ports(struct run *run)
{
    char error[PORT_ERROR_CHARS];
    if (port_init(error))
        return cmd_error("%s", error);
    int through_ring = run->opt.kind == CAPTURE_BINARYFILE || run->opt.pace > 0;
    run->rx = through_ring ? port_open_ring(error) : port_open_pcap(run->opt.capture, error);
    if (!run->rx)
        return cmd_error("%s", error);
    /* A file, or a link to one, of that name is not written through: it is replaced. */
    if (!run->config->egress.device[0] && unlink(run->tx_path) && errno != ENOENT)
        return cmd_error("%s: cannot be replaced: %s; choose another --out", run->tx_path, strerror(errno));
    run->tx = port_open_tx(run->config->egress.device, run->tx_path, error);
    if (!run->tx)
        return cmd_error("%s", error);
    if (through_ring) {
        char feed_error[CAPTURE_ERROR_CHARS];
        run->feeder = feeder_start(run->opt.capture, run->opt.kind, run->rx, run->opt.pace, run->n_frame,
                                   &run->clock, feed_error);
        if (!run->feeder)
            return cmd_error("%s", feed_error);
    }
    return 0;
}

/* What the last run left, and where a person's orders come in. */
static int open_control(struct run *run)
{
    char folder[CONTROL_PATH_CHARS], warning[CONTROL_ERROR_CHARS] = "", error[CONTROL_ERROR_CHARS];
    if (control_folder(run->config->state.dir, folder, error))
        return cmd_error("%s", error);
    run->control = control_open(folder, &run->state, warning, error);
    if (!run->control)
        return cmd_error("%s", error);
    if (warning[0])
        cmd_error("%s", warning);
    return 0;
}

static int open_all(struct run *run)
{
    run->config = cmd_config_parse(&run->opt.settings, run->config_sha256);
    if (!run->config)
        return 1;
    int replay = run->config->clock == CONFIG_CLOCK_REPLAY;
    if (replay && run->opt.pace > 0)
        return cmd_error("--pace is the real clock's: with --clock replay the stamps alone count");
    if (clock_calibrate(&run->clock, CALIBRATE_MS)) {
        if (!replay)
            return cmd_error(
                "this machine's TSC is not invariant, its cycles are not time: use --clock replay");
        run->clock.hz = 1e9; /* only bounds waiting then */
    }
    /* First of all: a second appliance on the folder leaves nothing behind. A file that is taken as fast as
     * it comes is a measurement, no appliance at work. */
    if ((run->opt.pace > 0 && open_control(run)) || load_stamps(run) || open_model(run) || make_folder(run))
        return 1;
    /* From here on there is a log, and a signal ends the run with a closed one. Before, it ends the program:
     * reading a day, or a card that does not come, may take long. */
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    return open_log(run) || open_ports(run);
}

/* ---- running ---- */

static int start_control(struct run *run)
{
    char error[CONTROL_ERROR_CHARS];
    const struct control_view view = {.desk = &desk,
                                      .governor = appliance_governor(run->appliance),
                                      .rules = &run->config->governor,
                                      .log = run->log,
                                      .clock = run->clock,
                                      .run_name = base_name(run->opt.capture),
                                      .out = run->out};
    return run->control && control_start(run->control, &view, error) ? cmd_error("%s", error) : 0;
}

static void *poll_thread(void *arg)
{
    /* The names are also marks: between them this thread makes no system call. */
    pthread_setname_np(pthread_self(), "kl-poll");
    appliance_run(arg);
    pthread_setname_np(pthread_self(), "kl-poll-done");
    return NULL;
}

static int run_appliance(struct run *run)
{
    char error[AUDIT_ERROR_CHARS];
    struct appliance_config config = {
        .config = run->config,
        .model = &run->model,
        .accel = run->accel.accel,
        .guard = run->accel.guard,
        .next_model = run->next_model.image ? &run->next_model : NULL,
        .switch_after = run->config->clock == CONFIG_CLOCK_REPLAY
                            ? run->config->model_switch.after_ms * 1000000ull
                            : clock_ns_to_cycles(&run->clock, run->config->model_switch.after_ms * 1e6),
        .backup = run->backup.image ? &run->backup : NULL,
        .desk = &desk,
        .log = run->log,
        .rx = run->rx,
        .tx = run->tx,
        .clock = run->clock,
        .stamps_ns = run->stamps_ns,
        .arrival_is_bound = run->opt.pace > 0,
        .n_frame = run->n_frame,
        /* A file's frames are there at once: silence means that the driver will not deliver them. */
        .idle_limit_cycles = run->feeder ? 0 : (uint64_t)(IDLE_LIMIT_S * run->clock.hz),
        .stop = &stop_requested,
    };
    if (run->control) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        config.start = &run->state;
        config.start_utc_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    }
    run->appliance = appliance_create(&config, error);
    if (!run->appliance)
        return cmd_error("%s", error);
    if (start_control(run))
        return 1;
    pthread_t thread;
    uint64_t frames = 0;
    if (pthread_create(&thread, NULL, poll_thread, run->appliance))
        return cmd_error("cannot start the poll loop's thread");
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!pthread_timedjoin_np(thread, NULL, &until))
            break;
        uint64_t before = frames;
        frames = appliance_frames(run->appliance);
        if (feeder_fell_short(run->feeder) && frames == before)
            stop_requested = STOP_FELL_SHORT; /* what had come is worked off */
        cmd_progress("running", "frames", frames, run->n_frame);
    }
    cmd_progress_done();
    control_close(run->control);
    run->control = NULL;
    return 0;
}

/* net_pcap writes through stdio and does not look at what comes of it. */
static int check_published(const struct run *run)
{
    char error[CAPTURE_ERROR_CHARS] = "";
    struct capture *capture = capture_open(run->tx_path, CAPTURE_PCAP, error);
    struct capture_frame frame;
    uint64_t n = 0, published = appliance_stats(run->appliance)->verdicts[VERDICT_PUBLISHED];
    while (capture && capture_next_frame(capture, &frame, error) == 1)
        n++;
    capture_close(capture);
    if (capture && n == published)
        return 0;
    return cmd_error("%s: holds %llu of %llu published predictions: free space, or choose another --out",
                     run->tx_path, (unsigned long long)n, (unsigned long long)published);
}

/* Closes the log first: what it says must not depend on what comes after. */
static int finish(struct run *run, double wall_s)
{
    struct run_summary summary = {.config = run->config,
                                  .model = &run->model,
                                  .appliance = run->appliance,
                                  .accel = &run->accel,
                                  .feed_name = base_name(run->opt.capture),
                                  .audit_path = run->audit_path,
                                  .report_path = run->report_path,
                                  .predictions_path = run->config->egress.device[0] ? NULL : run->tx_path,
                                  .clock_steps = run->clock_steps,
                                  .wall_s = wall_s};
    char error[AUDIT_ERROR_CHARS];
    int failed = 0;
    if (audit_close(run->log, &summary.audit, error))
        failed = cmd_error("%s", error);
    run->log = NULL;
    if (!failed && report_write(run->audit_path, run->report_path, error))
        failed = cmd_error("%s", error);
    port_close(run->tx);
    run->tx = NULL;
    if (summary.predictions_path && check_published(run))
        failed = 1;
    const struct appliance_stats *stats = appliance_stats(run->appliance);
    if ((run->opt.json ? run_summary_json : run_summary_text)(&summary, stdout))
        failed = cmd_error("the summary could not be written: %s", strerror(errno));
    if (stats->timed_out)
        failed =
            cmd_error("%s: the port fell silent after %llu of %llu frames", run->opt.capture,
                      (unsigned long long)appliance_frames(run->appliance), (unsigned long long)run->n_frame);
    if (stop_requested == STOP_FELL_SHORT)
        failed = cmd_error("%s: changed while it was played: %llu of %llu frames came; leave it alone. %s",
                           run->opt.capture, (unsigned long long)appliance_frames(run->appliance),
                           (unsigned long long)run->n_frame, feeder_fell_short(run->feeder));
    if (stop_requested == STOP_SIGNAL)
        failed =
            cmd_error("stopped by a signal after %llu of %llu frames",
                      (unsigned long long)appliance_frames(run->appliance), (unsigned long long)run->n_frame);
    if (run->torn[0])
        failed = cmd_error("%s; what came before was worked off", run->torn);
    return failed;
}

static void close_all(struct run *run)
{
    control_close(run->control); /* looks at the appliance's governor */
    feeder_stop(run->feeder);
    port_close(run->rx);
    port_close(run->tx);
    if (run->log) { /* the run has not begun: no log of it, which would refuse the folder the next time */
        audit_close(run->log, NULL, (char[AUDIT_ERROR_CHARS]){0});
        unlink(run->audit_path);
    }
    appliance_free(run->appliance);
    run_accel_close(&run->accel);
    model_free(&run->next_model);
    model_free(&run->backup);
    model_free(&run->model);
    free(run->stamps_ns);
    config_free(run->config);
    cmd_config_free(&run->opt.settings);
}

int cmd_run(int argc, char **argv)
{
    struct run *run = calloc(1, sizeof(*run));
    if (!run)
        return cmd_error("out of memory");
    struct timespec start, end;
    signal(SIGXFSZ, SIG_IGN); /* a file size limit ends in a message, as a full disk does */
    clock_gettime(CLOCK_MONOTONIC, &start);
    int status = parse_options(argc, argv, &run->opt);
    if (!status)
        status = open_all(run);
    if (!status)
        status = run_appliance(run);
    if (!status) {
        clock_gettime(CLOCK_MONOTONIC, &end);
        status =
            finish(run, (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9);
    }
    close_all(run);
    free(run);
    return status;
}
