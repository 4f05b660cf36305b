#include "bench_lstm.h"

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_lstm_check.h"
#include "bench_lstm_measure.h"
#include "bench_lstm_onnx.h"
#include "bench_lstm_report.h"
#include "cmd.h"

enum {
    N_ROUND_DEFAULT = 60,
    N_ROUND_MAX = 100000,
    N_INPUT = 1000,    /* and the steps that are checked against the double reference */
    N_SAME_STEP = 300, /* checked bit by bit */
    SEED = 20191230,
};

static const char usage_text[] =
    "usage: killline bench lstm [--models S,M,L,XL] [--variant V] [--rounds N] [--onnxruntime PATH]\n"
    "                           [--json]\n"
    "\n"
    "Measures one step of a stateful LSTM, one stream, on one pinned thread: the cpu backend (number\n"
    "contract, FP16 weights) against FP32 LSTMs with the same weights, all interleaved in rounds whose\n"
    "order moves on. Models, of 3 classes: S 16 inputs, 1 layer of 32; M 32, 2 x 64; L 64, 2 x 128;\n"
    "XL 128, 3 x 256. Random weights, uniform in +-1/sqrt(hidden), the same on every machine.\n"
    "\n"
    "What each figure spans; x lies in a buffer before the first stamp, in binary16 or FP32:\n"
    "  critical path  from before submit until poll has returned class and logits; W_h.h + b of this\n"
    "                 step was prepared before\n"
    "  total work     the same, and on until the poll after it has returned, which prepares the next step\n"
    "  plain C        a whole step, x to class and logits: a tiled LSTM in C, vectorised by the compiler\n"
    "                 with -O3 -ffast-math -march=native\n"
    "  Eigen          a whole step of a hand-written cell on Eigen 3, the same flags\n"
    "  ONNX Runtime   a whole step: one Run with bound inputs and outputs, states swapped, one thread;\n"
    "                 the shared library of --onnxruntime\n"
    "  INT8 weights   critical path and total work of the same net packed with 8-bit weights, which\n"
    "                 gives other answers than with FP16 weights\n"
    "  batch of 8     one call for 8 streams, not prepared, from before the call to its return, over 8\n"
    "  2nd thread     critical path when another thread has prepared, in a pause of at least 10 us\n"
    "  no stamp inside  16 steps back to back (total work, whole steps) between two stamps, over 16\n"
    "  x              the better of plain C and Eigen divided by ours, at the same quantile\n"
    "  between ticks  a pause spent spinning or asleep (nanosleep), or other memory read; kept warm: the\n"
    "                 backend's warm call every 10 us of a spun pause, and once after a sleep or a read,\n"
    "                 right before the tick. A call that has begun ends before the tick; its own time is\n"
    "                 a row of its own\n"
    "A stamp is lfence; rdtsc; lfence before and rdtscp; lfence after. Its cost with nothing inside is\n"
    "measured and taken off every figure, twice off total work, which holds one between step and\n"
    "prepare. Where the counter moves in steps (10 ns on AMD), equal values count as spread over one.\n"
    "The first 12 steps of every block are left out, and a block in which the kernel gave the CPU to\n"
    "another process is taken again, up to three times (not the pauses' rows).\n"
    "Before that, 1000 steps of everyone are checked against a double reference, and 300 bit by bit\n"
    "against the kernel's C simulation, every variant that this machine has and the second thread: exit\n"
    "status 1 if one differs. Times are not judged; what else runs on the machine is in them, in p99\n"
    "above all.\n"
    "\n"
    "  --models LIST       some of S,M,L,XL (all)\n"
    "  --variant V         auto, avx512vnni, avx512bw, avx2, portable (auto: the fastest there is)\n"
    "  --rounds N          for longer or shorter (60)\n"
    "  --onnxruntime PATH  libonnxruntime.so, version 1.5 or later, as another peer\n"
    "  --json              one JSON object\n"
    "  --help              this text\n";

struct options {
    int wanted[BENCH_LSTM_N_MODEL];
    enum accel_cpu_variant variant;
    uint32_t n_round;
    const char *onnx_path;
    int as_json;
};

static const enum accel_cpu_variant variants[] = {ACCEL_CPU_AVX512VNNI, ACCEL_CPU_AVX512BW, ACCEL_CPU_AVX2,
                                                  ACCEL_CPU_PORTABLE};
enum { N_VARIANT = sizeof(variants) / sizeof(variants[0]) };

/* ---- One thread on one CPU ---- */

struct place {
    cpu_set_t allowed; /* as the process started */
    int cpu;
    int has_second;
};

static int pin(struct place *place)
{
    cpu_set_t one;
    place->cpu = sched_getcpu();
    if (place->cpu < 0 || sched_getaffinity(0, sizeof(place->allowed), &place->allowed) != 0)
        return cmd_error("bench lstm: cannot find out which CPU this is: %m");
    place->has_second = CPU_COUNT(&place->allowed) > 1;
    CPU_ZERO(&one);
    CPU_SET(place->cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        return cmd_error("bench lstm: cannot stay on CPU %d: %m", place->cpu);
    return 0;
}

/* A thread that a backend starts inherits where this one may run: anywhere but on our CPU. */
static struct accel *open_threaded(const struct place *place, struct accel_cpu_options options)
{
    options.prepare_thread = 1;
    cpu_set_t one, others = place->allowed;
    CPU_ZERO(&one);
    CPU_SET(place->cpu, &one);
    CPU_CLR(place->cpu, &others);
    if (sched_setaffinity(0, sizeof(others), &others) != 0)
        return NULL;
    struct accel *accel = accel_cpu_open(&options);
    if (sched_setaffinity(0, sizeof(one), &one) != 0 && accel) {
        accel->ops->close(accel);
        accel = NULL;
    }
    return accel;
}

/* ---- One model ---- */

struct bench {
    const struct options *options;
    const struct place *place;
    struct bench_lstm_report *report;
    struct bench_lstm_row *row;
    struct model_weights weights;
    struct bench_lstm_inputs inputs;
    struct bench_lstm_truth truth;
    struct kl_image_header *image[KL_N_SLOT]; /* by slot */
    struct bench_lstm_set set;
};

static int load(struct bench *bench, struct accel *accel, const char *name)
{
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        uint32_t status = accel_load(accel, slot, bench->image[slot], bench->image[slot]->size_bytes);
        if (status != KL_OK)
            return cmd_error("bench lstm: %s: %s refuses the image, status %u", bench->row->shape->name, name,
                             status);
    }
    return 0;
}

static int prepare(struct bench *bench)
{
    const struct bench_lstm_shape *shape = bench->row->shape;
    char error[MODEL_ERROR_CHARS];
    if (bench_lstm_weights(shape, SEED, &bench->weights) != 0 ||
        bench_lstm_inputs_create(N_INPUT, shape->n_in, SEED + 1, &bench->inputs) != 0 ||
        bench_lstm_truth_create(&bench->weights, &bench->inputs, N_INPUT, &bench->truth) != 0)
        return cmd_error("bench lstm: %s: out of memory", shape->name);
    if (model_quantise(&bench->weights, &bench->image[BENCH_LSTM_SLOT_FP16], error) != 0 ||
        model_quantise_int8(&bench->weights, &bench->image[BENCH_LSTM_SLOT_INT8], error) != 0)
        return cmd_error("bench lstm: %s: %s", shape->name, error);
    struct accel_cpu_options options = {.variant = bench->options->variant,
                                        .build = accel_build_for(bench->image[BENCH_LSTM_SLOT_FP16])};
    struct bench_lstm_set *set = &bench->set;
    *set = (struct bench_lstm_set){.shape = shape,
                                   .inputs = &bench->inputs,
                                   .accel = accel_cpu_open(&options),
                                   .plain = bench_lstm_plain_create(&bench->weights),
                                   .eigen = bench_lstm_eigen_create(&bench->weights)};
    if (!set->accel || !set->plain || !set->eigen)
        return cmd_error("bench lstm: %s: out of memory", shape->name);
    if (bench->options->onnx_path) {
        set->onnx = bench_lstm_onnx_create(&bench->weights, bench->options->onnx_path, error);
        if (!set->onnx)
            return cmd_error("bench lstm: %s", error);
    }
    bench->row->has_onnx = set->onnx != NULL;
    bench->report->variant = accel_cpu_variant_name(accel_cpu_variant_of(set->accel));
    return load(bench, set->accel, "the cpu backend");
}

static int check_same(struct bench *bench, struct accel *other, const char *name, uint16_t flags)
{
    int status = 0;
    for (uint32_t slot = 0; slot < KL_N_SLOT && status == 0; slot++) {
        uint32_t step =
            bench_lstm_same_bits(&bench->inputs, N_SAME_STEP, bench->set.accel, other, slot, flags);
        if (step < N_SAME_STEP)
            status =
                cmd_error("bench lstm: %s, %s weights: %s and %s differ at step %u of seed %d: no figures "
                          "of a wrong answer",
                          bench->row->shape->name, slot == BENCH_LSTM_SLOT_INT8 ? "INT8" : "FP16",
                          bench->report->variant, name, step, SEED);
    }
    if (status == 0)
        bench->report->same[bench->report->n_same++] = name;
    return status;
}

static int check_other(struct bench *bench, struct accel *other, const char *name)
{
    if (!other)
        return cmd_error("bench lstm: %s: out of memory for %s", bench->row->shape->name, name);
    int status = load(bench, other, name) || check_same(bench, other, name, 0);
    other->ops->close(other);
    return status;
}

/* Bit by bit against the kernel's own source and every variant of this machine. */
static int check_variants(struct bench *bench)
{
    struct bench_lstm_report *report = bench->report;
    const struct kl_build *build = accel_build_for(bench->image[BENCH_LSTM_SLOT_FP16]);
    report->n_same = report->n_absent = 0;
    if (check_other(bench, accel_csim_open(build, 1), "csim") != 0)
        return 1;
    for (int i = 0; i < N_VARIANT; i++) {
        const char *name = accel_cpu_variant_name(variants[i]);
        const struct accel_cpu_options options = {.variant = variants[i], .build = build};
        if (!accel_cpu_has(variants[i])) {
            report->absent[report->n_absent++] = name;
            continue;
        }
        if (variants[i] == accel_cpu_variant_of(bench->set.accel))
            continue;
        if (check_other(bench, accel_cpu_open(&options), name) != 0)
            return 1;
    }
    return 0;
}

static int agrees(const struct bench *bench, const char *name, const struct bench_lstm_agreement *agreement,
                  enum bench_lstm_bound bound)
{
    if (bench_lstm_agrees(&bench->truth, agreement, bound))
        return 0;
    if (agreement->status != KL_OK)
        return cmd_error("bench lstm: %s: %s answers with status %u", bench->row->shape->name, name,
                         agreement->status);
    return cmd_error(
        "bench lstm: %s: %s is up to %.3g off the double reference (spread of the logits: %.3g), "
        "%u of %u steps in another class: no figures of a wrong answer",
        bench->row->shape->name, name, agreement->error, bench->truth.spread, agreement->flips,
        bench->truth.n_step);
}

static int check(struct bench *bench)
{
    const struct bench_lstm_set *set = &bench->set;
    struct bench_lstm_row *row = bench->row;
    row->n_checked = bench->truth.n_step;
    row->spread = bench->truth.spread;
    bench_lstm_check_peer(&bench->truth, &bench->inputs, set->plain, &row->plain);
    bench_lstm_check_peer(&bench->truth, &bench->inputs, set->eigen, &row->eigen);
    bench_lstm_check_accel(&bench->truth, &bench->inputs, set->accel, BENCH_LSTM_SLOT_FP16, 0, &row->fp16);
    bench_lstm_check_accel(&bench->truth, &bench->inputs, set->accel, BENCH_LSTM_SLOT_INT8, 0, &row->int8);
    if (set->onnx)
        bench_lstm_check_peer(&bench->truth, &bench->inputs, set->onnx, &row->onnx);
    return agrees(bench, "plain C", &row->plain, BENCH_LSTM_FP32) ||
           agrees(bench, "Eigen", &row->eigen, BENCH_LSTM_FP32) ||
           (set->onnx && agrees(bench, "ONNX Runtime", &row->onnx, BENCH_LSTM_FP32)) ||
           agrees(bench, "the cpu backend", &row->fp16, BENCH_LSTM_CONTRACT) ||
           agrees(bench, "the cpu backend with INT8 weights", &row->int8, BENCH_LSTM_INT8) ||
           check_variants(bench);
}

static void close_all(struct bench *bench)
{
    struct bench_lstm_set *set = &bench->set;
    struct bench_lstm_peer *const peers[] = {set->plain, set->eigen, set->onnx};
    if (set->accel)
        set->accel->ops->close(set->accel);
    for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++)
        if (peers[i])
            peers[i]->ops->free(peers[i]);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        free(bench->image[slot]);
    bench_lstm_truth_free(&bench->truth);
    bench_lstm_inputs_free(&bench->inputs);
    model_weights_free(&bench->weights);
}

static int measure(struct bench *bench)
{
    if (bench_lstm_measure(&bench->set, bench->report->timer, bench->options->n_round,
                           &bench->row->figures) != 0)
        return cmd_error("bench lstm: out of memory for the samples; take fewer --rounds");
    return 0;
}

static int check_and_measure_threaded(struct bench *bench)
{
    const struct accel_cpu_options options = {.variant = accel_cpu_variant_of(bench->set.accel),
                                              .build = accel_build_for(bench->image[BENCH_LSTM_SLOT_FP16])};
    struct accel *threaded = open_threaded(bench->place, options);
    if (!threaded)
        return cmd_error("bench lstm: %s: cannot start a second thread on another CPU: %m",
                         bench->row->shape->name);
    int status = load(bench, threaded, "the cpu backend with a second thread") ||
                 check_same(bench, threaded, "second thread", KL_REQUEST_PREPARE);
    if (status == 0 && bench_lstm_measure_threaded(&bench->inputs, threaded, bench->report->timer,
                                                   bench->options->n_round, &bench->row->figures) != 0)
        status = cmd_error("bench lstm: out of memory for the samples; take fewer --rounds");
    threaded->ops->close(threaded);
    bench->row->has_threaded = status == 0;
    return status;
}

static int bench_model(struct bench *bench)
{
    int status = prepare(bench) || check(bench) || measure(bench);
    if (status == 0 && bench->place->has_second)
        status = check_and_measure_threaded(bench);
    close_all(bench);
    return status;
}

/* ---- The command ---- */

static void read_machine(char machine[BENCH_LSTM_MACHINE_CHARS])
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(machine, BENCH_LSTM_MACHINE_CHARS, "unknown CPU");
    while (f && fgets(line, sizeof(line), f)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        value += 1 + strspn(value + 1, " ");
        snprintf(machine, BENCH_LSTM_MACHINE_CHARS, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (f)
        fclose(f);
}

/* -march=native is the machine's that built. */
static int check_isa(void)
{
    const unsigned isa = bench_lstm_plain_isa | bench_lstm_eigen_isa;
    const int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const int has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if ((isa & BENCH_LSTM_ISA_AVX2 && !has_avx2) || (isa & BENCH_LSTM_ISA_AVX512 && !has_avx512))
        return cmd_error(
            "bench lstm: the peers were compiled for the machine that built this killline, which "
            "has instructions that this one has not: build it here");
    return 0;
}

static int bench_models(const struct options *options)
{
    struct bench_lstm_timer timer;
    struct place place;
    struct bench_lstm_report *report = calloc(1, sizeof(*report));
    if (!report)
        return cmd_error("bench lstm: out of memory");
    int status = check_isa() || pin(&place);
    if (status == 0 && bench_lstm_timer_init(&timer) != 0)
        status = cmd_error(
            "bench lstm: this machine's time stamp counter does not run evenly; no figures from here");
    if (status == 0) {
        report->n_round = options->n_round;
        report->cpu = place.cpu;
        report->timer = &timer;
        read_machine(report->machine);
    }
    for (int i = 0; i < BENCH_LSTM_N_MODEL && status == 0; i++) {
        if (!options->wanted[i])
            continue;
        struct bench bench = {.options = options, .place = &place, .report = report};
        bench.row = &report->row[report->n_row++];
        bench.row->shape = &bench_lstm_shapes[i];
        status = bench_model(&bench);
    }
    if (status == 0)
        status = bench_lstm_print(report, options->as_json);
    free(report);
    return status;
}

static int parse_models(const char *list, int wanted[BENCH_LSTM_N_MODEL])
{
    memset(wanted, 0, BENCH_LSTM_N_MODEL * sizeof(wanted[0]));
    for (;; list++) {
        size_t n = strcspn(list, ",");
        int found = 0;
        for (int i = 0; i < BENCH_LSTM_N_MODEL; i++)
            if (strlen(bench_lstm_shapes[i].name) == n && !strncmp(list, bench_lstm_shapes[i].name, n))
                wanted[i] = found = 1;
        if (!found)
            return -1;
        list += n;
        if (!*list)
            return 0;
    }
}

static int parse_variant(const char *name, enum accel_cpu_variant *out)
{
    *out = ACCEL_CPU_AUTO;
    if (!strcmp(name, "auto"))
        return 0;
    for (int i = 0; i < N_VARIANT; i++)
        if (!strcmp(name, accel_cpu_variant_name(variants[i]))) {
            *out = variants[i];
            return 0;
        }
    return -1;
}

static int usage_error(const char *what)
{
    cmd_error("bench lstm: %s; killline bench lstm --help says how", what);
    return 2;
}

int bench_lstm(int argc, char **argv)
{
    static const struct option long_options[] = {{"models", required_argument, NULL, 'm'},
                                                 {"variant", required_argument, NULL, 'v'},
                                                 {"rounds", required_argument, NULL, 'r'},
                                                 {"onnxruntime", required_argument, NULL, 'o'},
                                                 {"json", no_argument, NULL, 'j'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {0}};
    struct options options = {.wanted = {1, 1, 1, 1}, .n_round = N_ROUND_DEFAULT};
    unsigned long long n_round;
    int option;
    optind = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (option) {
        case 'm':
            if (parse_models(optarg, options.wanted) != 0)
                return usage_error("--models is a list of S, M, L, XL with commas");
            break;
        case 'v':
            if (parse_variant(optarg, &options.variant) != 0)
                return usage_error("--variant is auto, avx512vnni, avx512bw, avx2 or portable");
            break;
        case 'r':
            if (cmd_parse_u64(optarg, 1, N_ROUND_MAX, &n_round) != 0)
                return usage_error("--rounds is a number from 1 to 100k");
            options.n_round = (uint32_t)n_round;
            break;
        case 'o':
            options.onnx_path = optarg;
            break;
        case 'j':
            options.as_json = 1;
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
    if (options.variant != ACCEL_CPU_AUTO && !accel_cpu_has(options.variant))
        return cmd_error("bench lstm: this machine does not have the instructions of --variant %s; --variant "
                         "auto takes the fastest that it has",
                         accel_cpu_variant_name(options.variant));
    return bench_models(&options);
}
