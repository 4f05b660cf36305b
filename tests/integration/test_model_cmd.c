/* killline model, as a user runs it, on the shipped package and on damaged input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "host/features.h"
#include "host/model.h"
#include "host/npy.h"
#include "model_random.h"

enum { N_ROW = 6000, N_STREAM = 3 };

static char directory[] = "/tmp/test_model_cmd.XXXXXX";
static struct command_result said; /* by the last command */

static int create(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int delete (void **state)
{
    (void)state;
    struct command_result removed = command_shell("rm -r %s", directory);
    int status = removed.status;
    command_free(&removed);
    command_free(&said);
    return status;
}

/* Runs killline model with these arguments, %s the scratch directory. */
static int run(const char *arguments)
{
    char expanded[1024] = "";
    for (const char *at = arguments; *at; at++) {
        size_t n = strlen(expanded);
        if (!strncmp(at, "%s", 2))
            n += (size_t)snprintf(expanded + n, sizeof(expanded) - n, "%s", directory), at++;
        else
            expanded[n] = *at;
    }
    command_free(&said);
    said = command_run("model %s", expanded);
    return said.status;
}

static void expect(const char *arguments, int status, const char *word)
{
    int got = run(arguments);
    if (got != status || (!strstr(said.out, word) && !strstr(said.err, word)))
        fail_msg("killline model %s: exit status %d, not %d, or without '%s':\n%s%s", arguments, got, status,
                 word, said.out, said.err);
}

static const char *in(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", directory, name);
    return path[turn];
}

/* Features like real ones: autocorrelated, around the package's mean. Labels: what the first feature did. */
static void write_data(const struct model *model, int break_row)
{
    char error[NPY_ERROR_CHARS];
    struct npy *features = npy_create(in("features.npy"), "<f4", FEATURES_N, error);
    struct npy *labels = npy_create(in("labels.npy"), "|i1", 0, error);
    struct npy *streams = npy_create(in("stream.npy"), "<u2", 0, error);
    double walk[N_STREAM][FEATURES_N] = {{0}};
    uint64_t random = 5;
    for (int row = 0; row < N_ROW; row++) {
        uint16_t stream = (uint16_t)((model_random_uniform(&random) + 1) / 2 * N_STREAM);
        float raw[FEATURES_N];
        for (int i = 0; i < FEATURES_N; i++) {
            walk[stream][i] = 0.9 * walk[stream][i] + 0.7 * model_random_uniform(&random);
            raw[i] = model->feature[i].mean + (float)walk[stream][i] / model->feature[i].scale;
        }
        int8_t label = walk[stream][0] > 0.5 ? 2 : walk[stream][0] < -0.5 ? 0 : row % 7 ? 1 : -1;
        if (row == break_row)
            label = 5;
        assert_int_equal(npy_append(features, raw, error), 0);
        assert_int_equal(npy_append(labels, &label, error), 0);
        assert_int_equal(npy_append(streams, &stream, error), 0);
    }
    assert_int_equal(npy_close(features, error) | npy_close(labels, error) | npy_close(streams, error), 0);
}

static json_t *output_json(void)
{
    json_error_t error;
    json_t *root = json_loads(said.out, 0, &error);
    if (!root)
        fail_msg("%s:\n%s", error.text, said.out);
    return root;
}

static void shipped_package_is_described(void **state)
{
    (void)state;
    expect("info " KL_MODELS "/primary.klm", 0, "modelled");
    expect("info " KL_MODELS "/primary.klm --json", 0, "synthetic");
    json_t *info = output_json();
    assert_int_equal(json_integer_value(json_object_get(info, "feature_schema")), FEATURES_SCHEMA);
    assert_int_equal(json_array_size(json_object_get(info, "classes")), 3);
    assert_int_equal(json_array_size(json_object_get(info, "normalisation")), FEATURES_N);
    assert_int_equal(strlen(json_string_value(json_object_get(info, "sha256"))), 64);
    assert_string_equal(json_string_value(json_object_get(info, "build")), "small");
    json_t *layers = json_object_get(info, "weights"), *cycles = json_object_get(info, "modelled_cycles");
    assert_int_equal(json_array_size(layers), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(layers, 0), "w_h")), "fp16");
    json_int_t step = json_integer_value(json_object_get(cycles, "step")),
               prepared = json_integer_value(json_object_get(cycles, "step_prepared"));
    assert_true(0 < prepared && prepared < step);
    assert_true(json_integer_value(json_object_get(cycles, "prepare")) > 0);
    json_decref(info);
}

/* The build that is named is the smallest that takes the model. */
static void larger_models_name_a_larger_build(void **state)
{
    struct model model;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    assert_int_equal(model_load(KL_MODELS "/primary.klm", &model, error), 0);
    struct model_weights wide = model_random(FEATURES_N, 2, (const uint32_t[]){16, 200}, 3, 1, 3);
    struct kl_image_header *image;
    assert_int_equal(model_quantise(&wide, &image, error), 0);
    struct model larger = model;
    larger.image = image;
    assert_int_equal(model_write(in("wide.klm"), &larger, error), 0);
    expect("info %s/wide.klm", 0, "(modelled, build large)");
    free(image);
    model_weights_free(&wide);
    model_free(&model);
}

/* The committed package is what the committed network and normalisation pack to. */
static void shipped_package_packs_again(void **state)
{
    struct model shipped, packed;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    assert_int_equal(model_load(KL_MODELS "/primary.klm", &shipped, error), 0);
    json_t *manifest = json_loads(shipped.manifest, 0, NULL);
    json_t *norm = json_pack("{s:i, s:i, s:i, s:O, s:O, s:O}", "feature_schema", (int)shipped.feature_schema,
                             "horizon_events", (int)shipped.horizon_events, "warmup_ticks",
                             (int)shipped.warmup_ticks, "features", json_object_get(manifest, "features"),
                             "classes", json_object_get(manifest, "classes"), "provenance",
                             json_object_get(manifest, "provenance"));
    assert_int_equal(json_dump_file(norm, in("norm.json"), 0), 0);
    json_decref(norm);
    json_decref(manifest);
    expect("pack " KL_MODELS "/primary.onnx --norm %s/norm.json --out %s/again.klm", 0, "");
    assert_int_equal(model_load(in("again.klm"), &packed, error), 0);
    assert_memory_equal(shipped.sha256, packed.sha256, sizeof(shipped.sha256));
    model_free(&packed);
    expect("pack " KL_MODELS "/primary.onnx --norm %s/norm.json --out %s/again.klm --weights fp16", 0, "");
    assert_int_equal(model_load(in("again.klm"), &packed, error), 0);
    assert_memory_equal(shipped.sha256, packed.sha256, sizeof(shipped.sha256));
    model_free(&packed);
    /* So does what info says of it: the way to other weights of a network whose norm.json is not at hand. */
    expect("info " KL_MODELS "/primary.klm --json", 0, "");
    json_t *info = output_json();
    assert_int_equal(json_dump_file(info, in("info.json"), 0), 0);
    json_decref(info);
    expect("pack " KL_MODELS "/primary.onnx --norm %s/info.json --out %s/again.klm", 0, "");
    assert_int_equal(model_load(in("again.klm"), &packed, error), 0);
    assert_memory_equal(shipped.sha256, packed.sha256, sizeof(shipped.sha256));
    model_free(&shipped);
    model_free(&packed);
}

static void int8_packages_are_made_named_and_checked(void **state)
{
    struct model model;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    expect("pack " KL_MODELS "/primary.onnx --norm %s/norm.json --out %s/int8.klm --weights int8", 0, "");
    expect("info %s/int8.klm", 0, "layer 0 W_x fp16, W_h int8");
    expect("info %s/int8.klm --json", 0, "\"weights\":[{\"w_x\":\"fp16\",\"w_h\":\"int8\"}]");
    assert_int_equal(model_load(in("int8.klm"), &model, error), 0);
    write_data(&model, -1);
    model_free(&model);
    expect("check %s/int8.klm --onnx " KL_MODELS "/primary.onnx --data %s --json --max-flips 5", 0, "flips");
    json_t *checked = output_json();
    assert_true(json_integer_value(json_object_get(checked, "flips")) > 0); /* more than FP16's few */
    json_decref(checked);
}

static void check_counts_and_judges(void **state)
{
    struct model model;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    assert_int_equal(model_load(KL_MODELS "/primary.klm", &model, error), 0);
    write_data(&model, -1);
    const char *const base =
        "check " KL_MODELS "/primary.klm --onnx " KL_MODELS "/primary.onnx --data %s --json --max-flips 1";
    char arguments[512];
    expect(base, 0, "flips");
    json_t *all = output_json();
    json_int_t decisions = json_integer_value(json_object_get(all, "decisions"));
    assert_int_equal(json_integer_value(json_object_get(all, "steps")), N_ROW);
    assert_int_equal(json_integer_value(json_object_get(all, "warmup")),
                     N_STREAM * (json_int_t)model.warmup_ticks);
    assert_int_equal(decisions, N_ROW - N_STREAM * (json_int_t)model.warmup_ticks);
    assert_true(json_integer_value(json_object_get(all, "labelled")) < decisions);
    assert_true(json_integer_value(json_object_get(all, "labelled")) > decisions / 2);
    int flipped = json_integer_value(json_object_get(all, "flips")) > 0;
    assert_true(json_real_value(json_object_get(all, "logit_error_rms")) > 0);
    assert_true(json_real_value(json_object_get(all, "logit_error_rms")) <
                0.01 * json_real_value(json_object_get(all, "logit_rms")));
    json_decref(all);
    snprintf(arguments, sizeof(arguments), "%s --split 0.5:1", base);
    expect(arguments, 0, "flips");
    json_t *half = output_json();
    assert_int_equal(json_integer_value(json_object_get(half, "steps")), N_ROW / 2);
    json_decref(half);
    /* The verdict is the exit status. */
    snprintf(arguments, sizeof(arguments), "%s --max-flips 0", base);
    expect(arguments, flipped, flipped ? "\"ok\":false" : "\"ok\":true");
    model_free(&model);
}

static void check_refuses_what_does_not_belong_together(void **state)
{
    struct model model;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    assert_int_equal(model_load(KL_MODELS "/primary.klm", &model, error), 0);
    write_data(&model, 4711);
    expect("check " KL_MODELS "/primary.klm --onnx " KL_MODELS "/primary.onnx --data %s", 1, "row 4711");
    /* Another network of the same shape. */
    struct model_weights other = model_random(FEATURES_N, 1, (const uint32_t[]){8}, 3, 1, 3);
    struct kl_image_header *image;
    assert_int_equal(model_quantise(&other, &image, error), 0);
    struct model forged = model;
    forged.image = image;
    assert_int_equal(model_write(in("other.klm"), &forged, error), 0);
    expect("check %s/other.klm --onnx " KL_MODELS "/primary.onnx --data %s", 1,
           "not packed from these weights");
    /* Another list of features. */
    forged.feature_schema = FEATURES_SCHEMA + 1;
    assert_int_equal(model_write(in("schema.klm"), &forged, error), 0);
    expect("check %s/schema.klm --onnx " KL_MODELS "/primary.onnx --data %s", 1, "feature list");
    expect("check " KL_MODELS "/primary.klm --onnx " KL_MODELS "/primary.onnx --data %s/none", 1,
           "features.npy");
    free(image);
    model_weights_free(&other);
    model_free(&model);
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(in(name), "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void pack_refuses_bad_norms(void **state)
{
    (void)state;
    const char *const pack = "pack " KL_MODELS "/primary.onnx --norm %s/bad.json --out %s/bad.klm";
    unlink(in("bad.json"));
    expect(pack, 1, "killline: unable to open");
    write_text("bad.json", "{");
    expect(pack, 1, "bad.json, line 1");
    write_text("bad.json", "[]");
    expect(pack, 1, "provenance");
    write_text("bad.json", "{\"provenance\": {}, \"feature_schema\": -1}");
    expect(pack, 1, "feature_schema");
    write_text("bad.json",
               "{\"provenance\": {}, \"feature_schema\": 1, \"horizon_events\": 1, \"warmup_ticks\": 1, "
               "\"features\": [{}]}");
    expect(pack, 1, "1 entries");
    json_error_t error;
    json_t *norm = json_load_file(in("norm.json"), 0, &error);
    assert_non_null(norm);
    json_t *first = json_array_get(json_object_get(norm, "features"), 0);
    struct {
        const char *key, *value, *why;
    } edits[] = {{"name", "\"other\"", "'other'"},
                 {"scale", "0", "scale 0"},
                 {"scale", "1e39", "scale inf"},
                 {"mean", "\"x\"", "mean"}};
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        json_t *keep = json_incref(json_object_get(first, edits[i].key));
        json_object_set_new(first, edits[i].key, json_loads(edits[i].value, JSON_DECODE_ANY, &error));
        assert_int_equal(json_dump_file(norm, in("bad.json"), 0), 0);
        expect(pack, 1, edits[i].why);
        json_object_set_new(first, edits[i].key, keep);
    }
    json_array_remove(json_object_get(norm, "classes"), 0);
    assert_int_equal(json_dump_file(norm, in("bad.json"), 0), 0);
    expect(pack, 1, "2 classes");
    json_object_set_new(norm, "feature_schema", json_integer(FEATURES_SCHEMA + 1));
    assert_int_equal(json_dump_file(norm, in("bad.json"), 0), 0);
    expect(pack, 1, "feature_schema");
    assert_int_not_equal(access(in("bad.klm"), F_OK), 0);
    json_decref(norm);
}

static void wrong_usage(void **state)
{
    (void)state;
    expect("--help", 0, "NORM.json");
    expect("", 2, "--help");
    expect("info", 2, "one file");
    expect("bake x.klm", 2, "bake");
    expect("info a b", 2, "one file");
    expect("pack x.onnx", 2, "--norm");
    expect("check x.klm", 2, "--onnx");
    expect("check x.klm --split 1:0", 2, "--split");
    expect("check x.klm --split 0.5", 2, "--split");
    expect("check x.klm --max-flips 101", 2, "--max-flips");
    expect("pack x.onnx --weights int4", 2, "--weights int4: fp16 or int8");
    expect("info /nonexistent.klm", 1, "/nonexistent.klm");
    write_text("text.klm", "hello");
    expect("info %s/text.klm", 1, "too short");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_package_is_described),
        cmocka_unit_test(larger_models_name_a_larger_build),
        cmocka_unit_test(shipped_package_packs_again),
        cmocka_unit_test(int8_packages_are_made_named_and_checked),
        cmocka_unit_test(check_counts_and_judges),
        cmocka_unit_test(check_refuses_what_does_not_belong_together),
        cmocka_unit_test(pack_refuses_bad_norms),
        cmocka_unit_test(wrong_usage),
    };
    return cmocka_run_group_tests(tests, create, delete);
}
