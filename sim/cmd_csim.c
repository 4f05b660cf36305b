/* killline csim: the kernel's C simulation, checked against the binary64 oracle and against golden vectors.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../hls/tiny/kl_tiny_vectors.h"
#include "../host/accel.h"
#include "../host/cmd.h"
#include "csim.h"

enum {
    WRONG_USAGE = 2,
    N_VECTOR_DEFAULT = 400,
    N_VECTOR_WRITTEN_DEFAULT = 24,
    N_VECTOR_MAX = 10000000,
};
#define MHZ_DEFAULT   300.0
#define IO_US_DEFAULT 0.9

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: killline csim [--build B] [--units 1|2] [--shape S | --model X.klm [--features F.npy]] "
        "[OPTIONS]\n"
        "       killline csim --write-vectors DIR [--build B] [--shape S [--kind K] | --model X.klm] "
        "[OPTIONS]\n"
        "       killline csim --check-vectors DIR [--build B] [--units 1|2] [--json]\n"
        "       killline csim --all [--record] [--data DIR] [--seed N] [--json]\n"
        "\n"
        "Runs the accelerator kernel in C simulation: every unit, then the whole, against an oracle in "
        "binary64\n"
        "arithmetic. Every class, logit, state and pre-activation has to be equal. Then its cycles "
        "(modelled, by\n"
        "the kernel's own sequencer), what it takes of an FPGA (modelled), and the simulation's speed "
        "(measured).\n"
        "\n"
        "  --build B          small, fast or large (default: the smallest that takes the model; without one: "
        "fast)\n"
        "  --units 2          a pair of compute units that split every layer's rows (default 1)\n"
        "  --shape S          random models of IN,HIDDENxLAYERS,OUT or IN,HIDDEN-HIDDEN-HIDDEN,OUT (default: "
        "the\n"
        "                     build's class: %s, %s, %s)\n"
        "  --model X.klm      the model of a package, on random inputs\n"
        "  --features F.npy   the same on a day's features, from killline features, with stream.npy beside "
        "them\n"
        "  --vectors N        steps (default %d; with --features all rows; with --write-vectors %d)\n"
        "  --seed N           of everything random (default 1)\n"
        "  --mhz F            kernel clock (default %g)\n"
        "  --io-us F          input and output of a request over PCIe (default %g: the round trip by "
        "registers\n"
        "                     that is published for a V80, VOLLO SDK 27.1: 0.89 mean, 0.91 p99)\n"
        "  --register-ns F    instead: so much for each register that a request's doorbell writes\n"
        "  --json             one JSON object\n"
        "  --write-vectors    inputs and the oracle's answers as text, the model with them; and those of "
        "the\n"
        "                     smallest synthesisable top in DIR/tiny\n"
        "  --kind K           weights: typical, wide, bound, saturate or zero (default typical)\n"
        "  --check-vectors    the kernel on such files: all builds and pairs that take the model, or "
        "--build's\n"
        "  --all              every build and pair: units, random models, the golden vectors that are "
        "shipped, and\n"
        "                     cycles against those on record. Did a bit move, and what does it cost?\n"
        "  --record           the cycles are as they should be: write them down\n"
        "  --data DIR         golden vectors and cycles.json (default: tests/data/csim of the source)\n"
        "\n"
        "Exit status: 0 all equal, 1 a difference or a failure, 2 wrong usage.\n",
        csim_shape_of_class(&kl_build_small), csim_shape_of_class(&kl_build_fast),
        csim_shape_of_class(&kl_build_large), N_VECTOR_DEFAULT, N_VECTOR_WRITTEN_DEFAULT, MHZ_DEFAULT,
        IO_US_DEFAULT);
}

struct options {
    const char *build, *shape, *model, *features, *write_dir, *check_dir, *data_dir, *kind;
    unsigned long long n_unit, n_vector, seed; /* 0: not given; but for seed */
    struct csim_clock clock;
    int json, all, record;
};

static int wrong(const char *option, const char *value, const char *want)
{
    cmd_error("csim: --%s %s: %s; killline csim --help", option, value, want);
    return WRONG_USAGE;
}

/* A number above 0, as a user writes it. */
static int parse_real(const char *option, const char *text, double max, double *value)
{
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end != '\0' || !(*value >= 1e-3) || *value > max) {
        cmd_error("csim: --%s %s: a number from 0.001 to %g is wanted", option, text, max);
        return WRONG_USAGE;
    }
    return 0;
}

static int check_together(const struct options *o)
{
    const struct {
        int wrong;
        const char *what;
    } rule[] = {
        {(o->write_dir != NULL) + (o->check_dir != NULL) + o->all > 1,
         "--write-vectors, --check-vectors and --all are three commands: give one"},
        {o->shape && o->model, "--shape and --model both say which model: give one"},
        {o->features && !o->model, "--features needs the --model that they are for"},
        {o->features && (o->write_dir || o->check_dir || o->all),
         "--features goes with the plain check only"},
        {(o->shape || o->model) && (o->check_dir || o->all), "the vectors bring their models"},
        {(o->build || o->n_unit || o->n_vector) && o->all, "--all runs every build and pair as it sees fit"},
        {(o->record || o->data_dir) && !o->all, "--record and --data go with --all"},
        {o->kind && (!o->write_dir || o->model), "--kind goes with --write-vectors of a random model"},
    };
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++) {
        if (rule[i].wrong) {
            cmd_error("csim: %s", rule[i].what);
            return WRONG_USAGE;
        }
    }
    return 0;
}

/* 0; -1: help was printed; 2: wrong usage. */
static int parse(int argc, char **argv, struct options *o)
{
    enum {
        BUILD = 1,
        UNITS,
        SHAPE,
        MODEL,
        FEATURES,
        VECTORS,
        SEED,
        MHZ,
        IO_US,
        REGISTER_NS,
        JSON,
        WRITE,
        CHECK,
        KIND,
        ALL,
        RECORD,
        DATA,
        HELP
    };
    static const struct option table[] = {{"build", 1, 0, BUILD},
                                          {"units", 1, 0, UNITS},
                                          {"shape", 1, 0, SHAPE},
                                          {"model", 1, 0, MODEL},
                                          {"features", 1, 0, FEATURES},
                                          {"vectors", 1, 0, VECTORS},
                                          {"seed", 1, 0, SEED},
                                          {"mhz", 1, 0, MHZ},
                                          {"io-us", 1, 0, IO_US},
                                          {"register-ns", 1, 0, REGISTER_NS},
                                          {"json", 0, 0, JSON},
                                          {"write-vectors", 1, 0, WRITE},
                                          {"kind", 1, 0, KIND},
                                          {"check-vectors", 1, 0, CHECK},
                                          {"all", 0, 0, ALL},
                                          {"record", 0, 0, RECORD},
                                          {"data", 1, 0, DATA},
                                          {"help", 0, 0, HELP},
                                          {0, 0, 0, 0}};
    *o = (struct options){.seed = 1,
                          .clock = {.mhz = MHZ_DEFAULT, .io = {.us = IO_US_DEFAULT, .is_default = 1}}};
    optind = 0; /* GNU: starts anew */
    int e = 0;
    for (int c; !e && (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
        switch (c) {
        case BUILD:
            o->build = optarg;
            if (!accel_build_named(optarg))
                e = wrong("build", optarg, "small, fast or large");
            break;
        case UNITS:
            if (cmd_parse_u64(optarg, 1, 2, &o->n_unit))
                e = wrong("units", optarg, "1, or 2 for a pair");
            break;
        case SHAPE:
            o->shape = optarg;
            break;
        case MODEL:
            o->model = optarg;
            break;
        case FEATURES:
            o->features = optarg;
            break;
        case VECTORS:
            if (cmd_parse_u64(optarg, 1, N_VECTOR_MAX, &o->n_vector))
                e = wrong("vectors", optarg, "1 to 10M steps are possible");
            break;
        case SEED:
            if (cmd_parse_u64(optarg, 0, UINT64_MAX, &o->seed))
                e = wrong("seed", optarg, "a number is wanted");
            break;
        case MHZ:
            e = parse_real("mhz", optarg, 10000, &o->clock.mhz);
            break;
        case IO_US:
            e = parse_real("io-us", optarg, 1e6, &o->clock.io.us);
            o->clock.io.is_default = 0;
            break;
        case REGISTER_NS:
            e = parse_real("register-ns", optarg, 1e6, &o->clock.io.register_ns);
            break;
        case JSON:
            o->json = 1;
            break;
        case WRITE:
            o->write_dir = optarg;
            break;
        case KIND:
            o->kind = optarg;
            break;
        case CHECK:
            o->check_dir = optarg;
            break;
        case ALL:
            o->all = 1;
            break;
        case RECORD:
            o->record = 1;
            break;
        case DATA:
            o->data_dir = optarg;
            break;
        case 'h':
        case HELP:
            usage(stdout);
            return -1;
        default:
            cmd_error("csim: killline csim --help lists the options");
            return WRONG_USAGE;
        }
    }
    if (e)
        return e;
    if (optind < argc) {
        cmd_error("csim: '%s' is not an option: killline csim --help", argv[optind]);
        return WRONG_USAGE;
    }
    return check_together(o);
}

/* 0, or the exit status, with its message. */
static int open_subject(const struct options *o, struct csim_subject *subject)
{
    char error[CSIM_ERROR_CHARS];
    *subject = (struct csim_subject){.build = o->build ? accel_build_named(o->build) : &kl_build_fast,
                                     .n_unit = o->n_unit ? (uint32_t)o->n_unit : 1,
                                     .n_vector = (uint32_t)o->n_vector,
                                     .seed = o->seed};
    if (o->model) {
        if (model_load(o->model, &subject->package, error))
            return cmd_error("%s", error);
        subject->shape = *subject->package.image;
    } else {
        const char *shape = o->shape ? o->shape : csim_shape_of_class(subject->build);
        if (csim_shape_parse(shape, &subject->shape))
            return wrong("shape", shape, "IN,HIDDENxLAYERS,OUT is wanted, as in 128,128x2,3");
    }
    const struct kl_build *smallest = accel_build_for(&subject->shape);
    if (!o->build && (o->shape || o->model) && smallest)
        subject->build = smallest;
    return csim_check_shape(subject->build, subject->n_unit, &subject->shape, error)
               ? cmd_error("csim: %s", error)
               : 0;
}

static int print_json(json_t *root)
{
    const int failed = !root || json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) ||
                       putchar('\n') == EOF || fflush(stdout);
    json_decref(root);
    return failed ? cmd_error("csim: standard output: write failed") : 0;
}

/* ---- the check ---- */

static void progress(uint64_t done, uint64_t total)
{
    cmd_progress("checking", "rows", done, total);
}

static int check(const struct options *o, struct csim_subject *subject)
{
    char error[CSIM_ERROR_CHARS];
    struct csim_result *result = calloc(1, sizeof *result);
    if (!result)
        return cmd_error("csim: out of memory");
    if (!subject->n_vector && !o->features)
        subject->n_vector = N_VECTOR_DEFAULT;
    int status = csim_check(subject, o->features, progress, result, error);
    cmd_progress_done();
    if (status)
        status = cmd_error("csim: %s", error);
    else if (o->json)
        status = print_json(csim_report_json(subject, &o->clock, result));
    else
        csim_report_text(subject, &o->clock, result);
    if (!status)
        status = !csim_passed(result);
    free(result);
    return status;
}

/* ---- vectors ---- */

/* The model to write vectors of: decoded from the package, or random. */
static int draw_model(const struct options *o, const struct csim_subject *subject, struct tb_model *model,
                      uint64_t *seed)
{
    const struct kl_image_header *image = subject->package.image;
    if (image) {
        const char *what = tb_model_from_image(model, image, image->size_bytes);
        return what ? cmd_error("csim: %s: %s", o->model, what) : 0;
    }
    uint32_t kind = TB_TYPICAL;
    while (o->kind && kind < TB_N_KIND && strcmp(o->kind, tb_kind_name[kind]) != 0)
        kind++;
    if (kind == TB_N_KIND)
        return wrong("kind", o->kind, "typical, wide, bound, saturate or zero");
    model->kind = (enum tb_kind)kind;
    csim_shape_to_model(&subject->shape, model);
    tb_model_fill(model, seed);
    return 0;
}

static int write_tiny(const char *dir)
{
    char *path;
    if (asprintf(&path, "%s/tiny", dir) < 0)
        return cmd_error("csim: out of memory");
    int status = mkdir(path, 0777) && errno != EEXIST ? cmd_error("csim: %s: %s", path, strerror(errno)) : 0;
    if (!status && kl_tiny_write_vectors(path) < 0)
        status = cmd_error("csim: %s: the tiny top's vectors could not be written", path);
    free(path);
    return status;
}

static int write_vectors(const struct options *o, const struct csim_subject *subject)
{
    char error[CSIM_ERROR_CHARS];
    uint64_t seed = o->seed;
    const uint32_t n_step = subject->n_vector ? subject->n_vector : N_VECTOR_WRITTEN_DEFAULT;
    struct tb_model *model = calloc(1, sizeof *model);
    if (!model)
        return cmd_error("csim: out of memory");
    tb_oracle_init();
    int status = draw_model(o, subject, model, &seed);
    struct kl_image_header *image = status ? NULL : tb_model_image(model);
    if (!status && !image)
        status = cmd_error("csim: out of memory");
    if (!status && csim_vectors_write(o->write_dir, model, image, n_step, seed, error))
        status = cmd_error("csim: %s", error);
    if (!status)
        status = write_tiny(o->write_dir);
    if (!status && !o->json)
        printf("%s: model.hex, vectors.txt: %u steps; tiny: the smallest top's\n", o->write_dir, n_step);
    if (!status && o->json)
        status = print_json(json_pack("{s:s, s:i}", "dir", o->write_dir, "steps", (int)n_step));
    free(image);
    free(model);
    return status;
}

static json_t *vectors_json(const struct kl_build *build, uint32_t n_unit, const struct tb_report *report)
{
    return json_pack("{s:s, s:i, s:b, s:I, s:I, s:s?}", "build", build->name, "compute_units", (int)n_unit,
                     "pass", report->n_mismatch == 0, "cases", (json_int_t)report->n_case, "mismatches",
                     (json_int_t)report->n_mismatch, "first", report->n_mismatch ? report->first : NULL);
}

/* Every build and pair that takes the model, or the one that was asked for. */
static int check_vectors(const struct options *o)
{
    char error[CSIM_ERROR_CHARS];
    json_t *rows = json_array();
    int pass = 1, n_run = 0, status = rows ? 0 : cmd_error("csim: out of memory");
    for (int i = 0; i < CSIM_N_BUILD && !status; i++) {
        for (uint32_t n_unit = 1; n_unit <= 2 && !status; n_unit++) {
            struct tb_report report;
            if ((o->build && strcmp(o->build, csim_build[i]->name) != 0) ||
                (o->n_unit && n_unit != o->n_unit))
                continue;
            const int taken = csim_vectors_check(o->check_dir, csim_build[i], n_unit, 1, &report, error);
            if (taken < 0) {
                status = cmd_error("csim: %s", error);
            } else if (taken == 0) {
                n_run++;
                pass &= report.n_mismatch == 0;
                json_array_append_new(rows, vectors_json(csim_build[i], n_unit, &report));
                if (!o->json)
                    printf("%s  %s%s: %" PRIu64 " operations, %" PRIu64 " differences%s%s\n",
                           report.n_mismatch ? "FAIL" : "PASS", csim_build[i]->name,
                           n_unit == 2 ? " pair" : "", report.n_case, report.n_mismatch,
                           report.n_mismatch ? "\n      first: " : "", report.first);
            }
        }
    }
    if (!status && n_run == 0)
        status = cmd_error("csim: %s: the model is beyond %s%s", o->check_dir,
                           o->build ? "build " : "every build", o->build ? o->build : "");
    if (!status && o->json)
        status = print_json(json_pack("{s:b, s:O}", "pass", pass, "rows", rows));
    json_decref(rows);
    return status || !pass ? 1 : 0;
}

static int run(const struct options *o)
{
    struct csim_subject subject = {0};
    int status;
    if (o->all)
        return csim_all(o->data_dir ? o->data_dir : KL_CSIM_DATA, o->seed, o->record, o->json);
    if (o->check_dir)
        return check_vectors(o);
    status = open_subject(o, &subject);
    if (!status)
        status = o->write_dir ? write_vectors(o, &subject) : check(o, &subject);
    model_free(&subject.package);
    return status;
}

int cmd_csim(int argc, char **argv)
{
    struct options o;
    int status = parse(argc, argv, &o);
    if (status)
        return status < 0 ? 0 : status;
    status = run(&o);
    const int lost = fflush(stdout) || ferror(stdout);
    return !status && lost ? cmd_error("csim: standard output: write failed") : status;
}
