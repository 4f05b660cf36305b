/* killline model: from a trained network to a package, what is in a package, and does it decide the same. */
#include "cmd.h"

#include <assert.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel.h"
#include "features.h"
#include "model.h"
#include "model_check.h"
#include "model_onnx.h"
#include "npy_read.h"

enum { WRONG_USAGE = 2, PATH_CHARS = 4096 };
#define FLIPS_PERCENT_MAX 0.1 /* the product's limit for the trading case */

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: killline model pack MODEL.onnx --norm NORM.json --out X.klm [--weights fp16|int8]\n"
        "       killline model info X.klm [--json]\n"
        "       killline model check X.klm --onnx MODEL.onnx --data DIR [--split A:B] [--max-flips PERCENT] "
        "[--json]\n"
        "\n"
        "pack   Quantises an ONNX network by the number contract (hls/kl_abi.h) and proves, row by row, that "
        "no\n"
        "       accumulator of the kernel can overflow for any input. What does not fit is refused.\n"
        "       MODEL.onnx: torch.onnx.export (opset 9 to 17) of nn.LSTM, 1 to %d layers of at most %d, %d "
        "inputs, then\n"
        "       one nn.Linear to 2 to %d classes, on the last or on every step; softmax at the end is fine.\n"
        "       NORM.json, written by the training script:\n"
        "         feature_schema   the list of features it was trained on (this build: %d)\n"
        "         features         [{\"name\": N, \"mean\": M, \"scale\": S}, ...] in input order; x = (raw "
        "- M) * S\n"
        "         classes          [\"down\", \"flat\", \"up\"], in the order of the logits\n"
        "         horizon_events   ticks that the label looks ahead\n"
        "         warmup_ticks     ticks of a stream before its first prediction counts\n"
        "         provenance       object: data, seed, accuracy; copied into the package\n"
        "  --weights W       fp16 (default), or int8: W_h, and W_x above the first layer, in 8 bits, a grid "
        "per "
        "row.\n"
        "                    Faster on a CPU where FP16 weights leave its cache; model check must say "
        "whether "
        "the\n"
        "                    decisions bear it\n"
        "info   Shape, weights, labels, normalisation, provenance, hashes, and the modelled cycles of the "
        "smallest\n"
        "       build of the kernel that takes it. With --json what NORM.json holds is among it: the output "
        "is "
        "one.\n"
        "check  Runs the package in C simulation and the original network (FP32 weights) over the ticks of "
        "DIR\n"
        "       (features.npy, labels.npy, stream.npy of killline features), each stream with its own "
        "state.\n"
        "       Prints the accuracy of both and how many decisions differ (95 %% Wilson interval).\n"
        "  --split A:B       only the rows from fraction A to B of the file, in time order (default 0:1)\n"
        "  --max-flips P     exit status 1 when more than P %% of the decisions differ (default %g)\n",
        KL_N_LAYER_MAX, KL_N_HIDDEN_MAX, KL_N_IN_MAX, KL_N_CLASS_MAX, FEATURES_SCHEMA, FLIPS_PERCENT_MAX);
}

static int print_json(json_t *root)
{
    int failed = json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) || putchar('\n') == EOF ||
                 fflush(stdout);
    json_decref(root);
    return failed ? cmd_error("standard output: write failed") : 0;
}

static json_t *hex(const uint8_t *bytes, size_t n)
{
    char text[2 * MODEL_SHA256_BYTES + 1];
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_string(text);
}

/* ---- pack ---- */

static int norm_u32(const json_t *norm, const char *path, const char *key, uint32_t *out)
{
    const json_t *value = json_object_get(norm, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT32_MAX)
        return cmd_error("%s: '%s' must be a number of 0 to 2^32 - 1: killline model --help shows the form",
                         path, key);
    *out = (uint32_t)json_integer_value(value);
    return 0;
}

static int norm_features(const json_t *norm, const char *path, struct model *model)
{
    const json_t *features = json_object_get(norm, "features");
    if (json_array_size(features) != FEATURES_N)
        return cmd_error("%s: 'features' has %zu entries: this build computes %d, train on its features",
                         path, json_array_size(features), FEATURES_N);
    for (uint32_t i = 0; i < FEATURES_N; i++) {
        const json_t *feature = json_array_get(features, i);
        const char *name = json_string_value(json_object_get(feature, "name"));
        const json_t *mean = json_object_get(feature, "mean"), *scale = json_object_get(feature, "scale");
        if (!name || !json_is_number(mean) || !json_is_number(scale))
            return cmd_error("%s: feature %u: needs 'name', and numbers 'mean' and 'scale'", path, i);
        if (strcmp(name, features_name(i)))
            return cmd_error("%s: feature %u is '%s': this build's is '%s', train on its features", path, i,
                             name, features_name(i));
        model->feature[i].mean = (float)json_number_value(mean);
        model->feature[i].scale = (float)json_number_value(scale);
    }
    model->n_feature = FEATURES_N;
    return 0;
}

static int norm_classes(const json_t *norm, const char *path, uint32_t n_class, struct model *model)
{
    const json_t *classes = json_object_get(norm, "classes");
    if (json_array_size(classes) != n_class)
        return cmd_error("%s: 'classes' names %zu classes, the network has %u", path,
                         json_array_size(classes), n_class);
    for (uint32_t c = 0; c < n_class; c++) {
        const char *name = json_string_value(json_array_get(classes, c));
        if (!name || strlen(name) >= MODEL_CLASS_NAME_CHARS)
            return cmd_error("%s: class %u needs a name of at most %d characters", path, c,
                             MODEL_CLASS_NAME_CHARS - 1);
        memcpy(model->class_name[c], name, strlen(name));
    }
    return 0;
}

/* The network's shape for the manifest. */
static json_t *describe_network(const struct kl_image_header *image)
{
    json_t *hidden = json_array();
    uint64_t n_weight = 0;
    for (uint32_t l = 0; l < image->n_layer; l++) {
        uint64_t n_in = l ? image->n_hidden[l - 1] : image->n_in;
        json_array_append_new(hidden, json_integer(image->n_hidden[l]));
        n_weight += KL_N_GATE * image->n_hidden[l] * (n_in + image->n_hidden[l] + 1);
    }
    n_weight += (uint64_t)image->n_class * (image->n_hidden[image->n_layer - 1] + 1u);
    return json_pack("{s:i, s:o, s:i, s:I}", "inputs", image->n_in, "hidden", hidden, "classes",
                     image->n_class, "parameters", (json_int_t)n_weight);
}

static int pack_with(const char *onnx_path, const char *norm_path, const char *out_path, int int8,
                     const json_t *norm)
{
    struct model model = {0};
    struct model_weights weights;
    struct kl_image_header *image;
    char error[MODEL_ERROR_CHARS];
    if (!json_is_object(norm) || !json_is_object(json_object_get(norm, "provenance")))
        return cmd_error(
            "%s: must be an object with an object 'provenance': killline model --help shows the form",
            norm_path);
    if (norm_u32(norm, norm_path, "feature_schema", &model.feature_schema) ||
        norm_u32(norm, norm_path, "horizon_events", &model.horizon_events) ||
        norm_u32(norm, norm_path, "warmup_ticks", &model.warmup_ticks) ||
        norm_features(norm, norm_path, &model))
        return 1;
    if (model.feature_schema != FEATURES_SCHEMA)
        return cmd_error("%s: feature_schema %u: this build computes %d, train on its features", norm_path,
                         model.feature_schema, FEATURES_SCHEMA);
    if (model_onnx_load(onnx_path, &weights, error))
        return cmd_error("%s", error);
    int status = norm_classes(norm, norm_path, weights.n_class, &model);
    if (!status && (int8 ? model_quantise_int8 : model_quantise)(&weights, &image, error))
        status = cmd_error("%s: %s", onnx_path, error);
    model_weights_free(&weights);
    if (status)
        return status;
    json_t *manifest =
        json_pack("{s:s, s:o, s:O, s:O, s:O}", "format", "killline-model", "network", describe_network(image),
                  "features", json_object_get(norm, "features"), "classes", json_object_get(norm, "classes"),
                  "provenance", json_object_get(norm, "provenance"));
    char *text =
        manifest ? json_dumps(manifest, JSON_SORT_KEYS | JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(manifest);
    model.image = image;
    model.manifest = text;
    if (!text)
        status = cmd_error("out of memory");
    else if (model_write(out_path, &model, error))
        status = cmd_error("%s", error);
    free(text);
    free(image);
    return status;
}

static int pack(const char *onnx_path, const char *norm_path, const char *out_path, int int8)
{
    json_error_t reason;
    if (!norm_path || !out_path) {
        cmd_error("model pack: --norm and --out are needed: killline model --help");
        return WRONG_USAGE;
    }
    json_t *norm = json_load_file(norm_path, JSON_REJECT_DUPLICATES, &reason);
    if (!norm)
        return reason.line > 0 ? cmd_error("%s, line %d: %s", norm_path, reason.line, reason.text)
                               : cmd_error("%s", reason.text); /* it names the file itself */
    int status = pack_with(onnx_path, norm_path, out_path, int8, norm);
    json_decref(norm);
    return status;
}

/* ---- info ---- */

static const char *weights_name(const struct kl_image_header *image, uint32_t layer, enum model_matrix matrix)
{
    return model_matrix_is_int8(image, layer, matrix) ? "int8" : "fp16";
}

static json_t *info_json(const struct model *model)
{
    const struct kl_image_header *image = model->image;
    const struct kl_build *build = accel_build_for(image);
    assert(build); /* the largest takes every shape that an image can have */
    json_t *classes = json_array(), *features = json_array(), *weights = json_array();
    char hash[17];
    for (uint32_t c = 0; c < image->n_class; c++)
        json_array_append_new(classes, json_string(model->class_name[c]));
    for (uint32_t i = 0; i < model->n_feature; i++)
        json_array_append_new(features, json_pack("{s:f, s:f}", "mean", (double)model->feature[i].mean,
                                                  "scale", (double)model->feature[i].scale));
    for (uint32_t l = 0; l < image->n_layer; l++)
        json_array_append_new(weights, json_pack("{s:s, s:s}", "w_x", weights_name(image, l, MODEL_W_X),
                                                 "w_h", weights_name(image, l, MODEL_W_H)));
    snprintf(hash, sizeof(hash), "%016" PRIx64, image->image_hash);
    json_t *manifest = json_loads(model->manifest, 0, NULL);
    return json_pack(
        "{s:o, s:o, s:i, s:i, s:i, s:o, s:o, s:i, s:s, s:o, s:s, s:{s:i, s:i, s:i}, s:O*, s:O*, s:o}",
        "network", describe_network(image), "weights", weights, "feature_schema", model->feature_schema,
        "horizon_events", model->horizon_events, "warmup_ticks", model->warmup_ticks, "classes", classes,
        "normalisation", features, "image_bytes", image->size_bytes, "image_hash", hash, "sha256",
        hex(model->sha256, sizeof(model->sha256)), "build", build->name, "modelled_cycles", "step",
        build->step_cycles(image, 1, 0), "step_prepared", build->step_cycles(image, 1, 1), "prepare",
        build->prepare_cycles(image, 1), "features", json_object_get(manifest, "features"), "provenance",
        json_object_get(manifest, "provenance"), "manifest", manifest);
}

static int info_text(const char *path, json_t *info)
{
    const json_t *network = json_object_get(info, "network"),
                 *cycles = json_object_get(info, "modelled_cycles");
    json_t *provenance = json_object_get(json_object_get(info, "manifest"), "provenance"), *item;
    const char *key;
    size_t i;
    printf("%s\n  network        %lld inputs", path,
           (long long)json_integer_value(json_object_get(network, "inputs")));
    json_array_foreach(json_object_get(network, "hidden"), i, item)
        printf(", LSTM %lld", (long long)json_integer_value(item));
    printf(", %lld parameters\n  weights       ",
           (long long)json_integer_value(json_object_get(network, "parameters")));
    json_array_foreach(json_object_get(info, "weights"), i, item) printf(
        "%s layer %zu W_x %s, W_h %s", i ? ";" : "", i, json_string_value(json_object_get(item, "w_x")),
        json_string_value(json_object_get(item, "w_h")));
    printf("\n  classes       ");
    json_array_foreach(json_object_get(info, "classes"), i, item) printf(" %s", json_string_value(item));
    printf("\n  label          %lld ticks ahead, after %lld ticks of warm-up\n",
           (long long)json_integer_value(json_object_get(info, "horizon_events")),
           (long long)json_integer_value(json_object_get(info, "warmup_ticks")));
    printf("  feature list   %lld\n", (long long)json_integer_value(json_object_get(info, "feature_schema")));
    printf("  kernel image   %lld bytes, hash %s\n",
           (long long)json_integer_value(json_object_get(info, "image_bytes")),
           json_string_value(json_object_get(info, "image_hash")));
    printf("  cycles         step %lld, prepared step %lld, prepare %lld (modelled, build %s)\n",
           (long long)json_integer_value(json_object_get(cycles, "step")),
           (long long)json_integer_value(json_object_get(cycles, "step_prepared")),
           (long long)json_integer_value(json_object_get(cycles, "prepare")),
           json_string_value(json_object_get(info, "build")));
    printf("  SHA-256        %s\n", json_string_value(json_object_get(info, "sha256")));
    json_object_foreach(provenance, key, item)
    {
        char *text = json_dumps(item, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        printf("  %-14s %s\n", key, text ? text : "?");
        free(text);
    }
    return fflush(stdout) ? cmd_error("standard output: write failed") : 0;
}

static int info(const char *path, int as_json)
{
    struct model model;
    char error[MODEL_ERROR_CHARS];
    if (model_load(path, &model, error))
        return cmd_error("%s", error);
    json_t *root = info_json(&model);
    model_free(&model);
    if (!root)
        return cmd_error("out of memory");
    if (as_json)
        return print_json(root);
    int status = info_text(path, root);
    json_decref(root);
    return status;
}

/* ---- check ---- */

struct check_options {
    const char *onnx, *data;
    double from, to; /* fractions of the rows */
    double flips_percent_max;
    int json;
};

static void show_progress(uint64_t done, uint64_t total)
{
    cmd_progress("checking", "ticks", done, total);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static uint64_t largest(const uint64_t *counts, uint32_t n)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = counts[i] > most ? counts[i] : most;
    return most;
}

static int check_print(const struct model *model, const struct check_options *options,
                       const struct model_check_result *r)
{
    const uint32_t n_class = model->image->n_class;
    double flips = 100 * share(r->n_flip, r->n_decision), low, high;
    model_check_interval(r->n_flip, r->n_decision, &low, &high);
    int ok = flips <= options->flips_percent_max;
    if (options->json) {
        json_t *confusion = json_array();
        for (uint32_t i = 0; i < n_class; i++) {
            json_t *row = json_array();
            for (uint32_t j = 0; j < n_class; j++)
                json_array_append_new(row, json_integer((json_int_t)r->confusion[i][j]));
            json_array_append_new(confusion, row);
        }
        json_t *root = json_pack(
            "{s:I, s:I, s:I, s:I, s:f, s:[f, f], s:f, s:b, s:I, s:f, s:f, s:f, s:o, s:f, s:f, s:f}", "steps",
            (json_int_t)r->n_step, "warmup", (json_int_t)r->n_warmup, "decisions", (json_int_t)r->n_decision,
            "flips", (json_int_t)r->n_flip, "flips_percent", flips, "flips_percent_95", 100 * low, 100 * high,
            "flips_percent_max", options->flips_percent_max, "ok", ok, "labelled", (json_int_t)r->n_labelled,
            "accuracy_kernel", share(r->n_right_kernel, r->n_labelled), "accuracy_reference",
            share(r->n_right_reference, r->n_labelled), "majority_share",
            share(largest(r->n_label, n_class), r->n_labelled), "confusion", confusion, "logit_error_max",
            r->logit_error_max, "logit_error_rms", r->logit_error_rms, "logit_rms", r->logit_rms);
        if (!root || print_json(root))
            return root ? 1 : cmd_error("out of memory");
    } else {
        printf("ticks            %" PRIu64 ", of which %" PRIu64 " warm-up and %" PRIu64 " decisions\n",
               r->n_step, r->n_warmup, r->n_decision);
        printf("decision flips   %" PRIu64 " = %.4f %% (95 %%: %.4f to %.4f %%), at most %g %%: %s\n",
               r->n_flip, flips, 100 * low, 100 * high, options->flips_percent_max, ok ? "passed" : "FAILED");
        printf("logit error      max %.3g, rms %.3g (logits: rms %.3g)\n", r->logit_error_max,
               r->logit_error_rms, r->logit_rms);
        printf("accuracy         kernel %.4f, FP32 weights %.4f, majority class %.4f; %" PRIu64 " labels\n",
               share(r->n_right_kernel, r->n_labelled), share(r->n_right_reference, r->n_labelled),
               share(largest(r->n_label, n_class), r->n_labelled), r->n_labelled);
        for (uint32_t i = 0; i < n_class; i++) {
            printf("  label %-10s predicted", model->class_name[i]);
            for (uint32_t j = 0; j < n_class; j++)
                printf("  %s %" PRIu64, model->class_name[j], r->confusion[i][j]);
            putchar('\n');
        }
        if (fflush(stdout))
            return cmd_error("standard output: write failed");
    }
    return !ok;
}

/* One array of the directory; its rows must be as many as those read before (0: none yet). */
static int read_array(const char *directory, const char *name, const char *dtype, uint32_t n_col, void **rows,
                      uint64_t *n_row)
{
    char path[PATH_CHARS], error[NPY_READ_ERROR_CHARS];
    uint64_t n = 0;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path))
        return cmd_error("%.100s...: path too long", directory);
    if (npy_read(path, dtype, n_col, rows, &n, error))
        return cmd_error("%s", error);
    if (!n || (*n_row && n != *n_row))
        return cmd_error("%s: %" PRIu64 " rows, the directory's other arrays have %" PRIu64
                         ": write them again",
                         path, n, *n_row);
    *n_row = n;
    return 0;
}

static int check_with(const char *path, const struct model *model, const struct model_weights *weights,
                      const struct check_options *options)
{
    void *features = NULL, *labels = NULL, *stream = NULL;
    uint64_t n_row = 0;
    char error[MODEL_ERROR_CHARS];
    struct model_check_result result;
    int status = read_array(options->data, "features.npy", "<f4", model->n_feature, &features, &n_row) ||
                 read_array(options->data, "labels.npy", "|i1", 0, &labels, &n_row) ||
                 read_array(options->data, "stream.npy", "<u2", 0, &stream, &n_row);
    if (!status) {
        uint64_t first = (uint64_t)((double)n_row * options->from),
                 end = (uint64_t)((double)n_row * options->to);
        struct model_check_data data = {.features = (const float *)features + first * model->n_feature,
                                        .label = (const int8_t *)labels + first,
                                        .stream = (const uint16_t *)stream + first,
                                        .n_row = end - first};
        status = model_check(model, weights, &data, show_progress, &result, error);
        cmd_progress_done();
        status = status ? cmd_error("%s, %s: %s", path, options->data, error)
                        : check_print(model, options, &result);
    }
    free(features);
    free(labels);
    free(stream);
    return status;
}

static int check(const char *path, const struct check_options *options)
{
    struct model model;
    struct model_weights weights;
    char error[MODEL_ERROR_CHARS];
    if (!options->onnx || !options->data) {
        cmd_error("model check: --onnx and --data are needed: killline model --help");
        return WRONG_USAGE;
    }
    if (model_load(path, &model, error))
        return cmd_error("%s", error);
    int status = model_onnx_load(options->onnx, &weights, error) ? cmd_error("%s", error) : 0;
    if (!status) {
        status = check_with(path, &model, &weights, options);
        model_weights_free(&weights);
    }
    model_free(&model);
    return status;
}

/* ---- options ---- */

/* "0.8:1" */
static int parse_split(const char *text, double *from, double *to)
{
    char *end;
    *from = strtod(text, &end);
    if (end == text || *end != ':')
        return -1;
    const char *second = end + 1;
    *to = strtod(second, &end);
    return end != second && !*end && *from >= 0 && *from < *to && *to <= 1 ? 0 : -1;
}

int cmd_model(int argc, char **argv)
{
    enum { NORM = 1, OUT, WEIGHTS, ONNX, DATA, SPLIT, MAX_FLIPS, JSON, HELP };
    static const struct option table[] = {{"norm", 1, 0, NORM},           {"out", 1, 0, OUT},
                                          {"weights", 1, 0, WEIGHTS},     {"onnx", 1, 0, ONNX},
                                          {"data", 1, 0, DATA},           {"split", 1, 0, SPLIT},
                                          {"max-flips", 1, 0, MAX_FLIPS}, {"json", 0, 0, JSON},
                                          {"help", 0, 0, HELP},           {0, 0, 0, 0}};
    struct check_options options = {.to = 1, .flips_percent_max = FLIPS_PERCENT_MAX};
    const char *norm = NULL, *out = NULL;
    int int8 = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
        char *end;
        switch (c) {
        case NORM:
            norm = optarg;
            break;
        case OUT:
            out = optarg;
            break;
        case WEIGHTS:
            int8 = !strcmp(optarg, "int8");
            if (!int8 && strcmp(optarg, "fp16")) {
                cmd_error("--weights %s: fp16 or int8", optarg);
                return WRONG_USAGE;
            }
            break;
        case ONNX:
            options.onnx = optarg;
            break;
        case DATA:
            options.data = optarg;
            break;
        case SPLIT:
            if (parse_split(optarg, &options.from, &options.to)) {
                cmd_error("--split %s: two fractions A:B with 0 <= A < B <= 1", optarg);
                return WRONG_USAGE;
            }
            break;
        case MAX_FLIPS:
            options.flips_percent_max = strtod(optarg, &end);
            if (end == optarg || *end ||
                !(options.flips_percent_max >= 0 && options.flips_percent_max <= 100)) {
                cmd_error("--max-flips %s: 0 to 100 percent", optarg);
                return WRONG_USAGE;
            }
            break;
        case JSON:
            options.json = 1;
            break;
        case HELP:
        case 'h':
            usage(stdout);
            return 0;
        default:
            return WRONG_USAGE;
        }
    }
    const char *action = optind < argc ? argv[optind] : "",
               *path = optind + 1 < argc ? argv[optind + 1] : NULL;
    if (path && optind + 2 == argc) {
        if (!strcmp(action, "pack"))
            return pack(path, norm, out, int8);
        if (!strcmp(action, "info"))
            return info(path, options.json);
        if (!strcmp(action, "check"))
            return check(path, &options);
    }
    cmd_error("model%s%s: pack, info or check and one file are needed: killline model --help",
              action[0] ? " " : "", action);
    return WRONG_USAGE;
}
