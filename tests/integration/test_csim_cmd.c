/* killline csim, as a user runs it: verdicts, figures, golden vectors, and a kernel that is broken on
 * purpose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "host/features.h"
#include "host/npy.h"
#include "model_random.h"

enum { N_ROW = 240, N_STREAM = 5 };

static char directory[] = "/tmp/test_csim_cmd.XXXXXX";
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

/* Every @ stands for the scratch directory. */
static void expand(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text && n + sizeof directory < size; text++)
        n += *text == '@' ? (size_t)snprintf(out + n, size - n, "%s", directory)
                          : (size_t)snprintf(out + n, size - n, "%c", *text);
    assert_int_equal(*text, '\0');
}

static void shell(const char *line)
{
    char expanded[1024];
    expand(line, expanded, sizeof expanded);
    struct command_result done = command_take(expanded);
    assert_int_equal(done.status, 0);
    command_free(&done);
}

static void expect(const char *arguments, int status, const char *word)
{
    char expanded[1024];
    expand(arguments, expanded, sizeof expanded);
    command_free(&said);
    said = command_run("csim %s", expanded);
    if (said.status != status || (!strstr(said.out, word) && !strstr(said.err, word)))
        fail_msg("csim %s: status %d, wanted %d with '%s'; said: %s%s", expanded, said.status, status, word,
                 said.out, said.err);
}

/* What the last command printed with --json: one object, nothing else. */
static json_t *said_json(void)
{
    json_error_t error;
    json_t *root = json_loads(said.out, 0, &error);
    if (!root)
        fail_msg("not JSON: %s: %s", error.text, said.out);
    return root;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("%s is not a number", key);
    return json_number_value(value);
}

static int is_true(const json_t *object, const char *key)
{
    assert_true(json_is_boolean(json_object_get(object, key)));
    return json_is_true(json_object_get(object, key));
}

static void assert_near(double value, double wanted)
{
    assert_true(value > wanted - 1e-6 && value < wanted + 1e-6);
}

/* ---- one build ---- */

static void check_resources(const json_t *resources)
{
    static const char *const kind[] = {"dsp", "bram", "uram", "lut"};
    const char *card;
    json_t *part;
    int n = 0;
    json_object_foreach((json_t *)(uintptr_t)resources, card, part)
    {
        for (int i = 0; i < 4; i++) {
            const json_t *r = json_object_get(part, kind[i]);
            assert_true(number(r, "used") >= 0);
            assert_true(number(r, "total") > 0);
            assert_near(number(r, "percent"), 100 * number(r, "used") / number(r, "total"));
            assert_int_equal(is_true(r, "warn"), number(r, "slr_percent") > 70);
        }
        assert_true(number(json_object_get(part, "dsp"), "used") >= 512); /* the multipliers */
        n++;
    }
    assert_true(n >= 3);
}

static void test_json(void **state)
{
    (void)state;
    expect("--build small --shape 5,9-17,3 --vectors 40 --seed 7 --json", 0, "");
    json_t *root = said_json();
    assert_true(is_true(root, "pass"));
    assert_string_equal(json_string_value(json_object_get(root, "build")), "small");
    assert_string_equal(json_string_value(json_object_get(root, "shape")), "5,9-17,3");
    assert_string_equal(json_string_value(json_object_get(root, "label")), "modelled");
    assert_int_equal(number(root, "compute_units"), 1);
    assert_int_equal(number(root, "mismatches"), 0);
    assert_true(json_is_null(json_object_get(root, "first_difference")));
    const json_t *whole = json_object_get(root, "whole"), *units = json_object_get(root, "units");
    assert_true(number(whole, "steps") >= 40);
    double n_case = number(whole, "cases");
    assert_true(n_case > 0);
    assert_true(json_array_size(units) >= 8);
    for (size_t i = 0; i < json_array_size(units); i++) {
        const json_t *unit = json_array_get(units, i);
        assert_true(json_is_string(json_object_get(unit, "name")) && is_true(unit, "pass"));
        assert_true(number(unit, "cases") > 0);
        assert_int_equal(number(unit, "mismatches"), 0);
        assert_true(json_is_null(json_object_get(unit, "first")));
        n_case += number(unit, "cases");
    }
    assert_int_equal(number(root, "cases"), n_case);

    assert_near(number(root, "step_us"), number(root, "step_cycles") / 300);
    assert_near(number(root, "prepare_us"), number(root, "prepare_cycles") / 300);
    assert_true(number(root, "step_unprepared_cycles") > number(root, "step_cycles"));
    const json_t *io = json_object_get(root, "io");
    assert_near(number(io, "us"), 0.9);
    assert_string_equal(json_string_value(json_object_get(io, "label")), "published");
    assert_int_equal(number(io, "registers_written"), 5 + 3 + 1);
    assert_int_equal(number(io, "copy_cycles"),
                     (2 + 1) + (2 + 1 + 2) + 1 +
                         2); /* header, x, check, answer: beats with their latencies */
    assert_near(number(io, "step_us"), number(root, "step_us") + 0.9 + number(io, "copy_us"));
    check_resources(json_object_get(root, "resources"));
    assert_true(number(root, "steps_per_s") > 0);
    json_decref(root);
}

static void test_clock_and_io(void **state)
{
    (void)state;
    expect("--build small --shape 8,8x1,2 --vectors 10 --mhz 250 --register-ns 20 --json", 0, "");
    json_t *root = said_json();
    assert_near(number(root, "step_us"), number(root, "step_cycles") / 250);
    assert_near(number(json_object_get(root, "io"), "us"), (5 + 4 + 1) * 0.020);
    json_decref(root);
    expect("--build small --shape 8,8x1,2 --vectors 10 --io-us 2.5", 0, "2.500 us  given");
}

/* The product's targets at 300 MHz, and a pair. */
static void test_targets(void **state)
{
    static const struct {
        const char *arguments;
        double step_us;
    } target[] = {
        {"--build fast --shape 128,128x2,3 --vectors 12 --json", 0.40},
        {"--build large --shape 128,128x2,3 --vectors 12 --json", 0.30},
        {"--build large --shape 256,256x3,3 --vectors 6 --json", 1.0},
        {"--build large --units 2 --shape 130,67x3,3 --vectors 12 --json", 1.0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof target / sizeof target[0]; i++) {
        expect(target[i].arguments, 0, "");
        json_t *root = said_json();
        assert_true(is_true(root, "pass"));
        assert_true(number(root, "step_us") <= target[i].step_us);
        json_decref(root);
    }
    assert_non_null(strstr(said.out, "\"compute_units\":2"));
}

static void test_seed(void **state)
{
    (void)state;
    expect("--build small --shape 8,8x1,2 --vectors 60 --seed 1 --json", 0, "");
    json_t *one = said_json();
    expect("--build small --shape 8,8x1,2 --vectors 60 --seed 1 --json", 0, "");
    json_t *same = said_json();
    expect("--build small --shape 8,8x1,2 --vectors 60 --seed 2 --json", 0, "");
    json_t *other = said_json();
    assert_true(json_equal(json_object_get(one, "whole"), json_object_get(same, "whole")));
    assert_false(json_equal(json_object_get(one, "whole"), json_object_get(other, "whole")));
    json_decref(one);
    json_decref(same);
    json_decref(other);
}

static void test_beyond_a_build(void **state)
{
    (void)state;
    expect("--build fast --shape 128,256x3,3", 1, "3 layers, at most 2): take --build large");
    expect("--build small --shape 129,8x1,3", 1, "129 inputs, at most 128): take --build large");
    expect("--build small --shape 8,129x1,3", 1, "129 hidden units, at most 128): take --build large");
    expect("--build fast --shape 8,128-129,3 --units 2 --vectors 4", 0, "build fast pair");
    expect("--build large --shape 257,8x1,3", 1, "257 inputs, at most 256), and no other build");
    expect("--shape 257,256x3,3", 1,
           "257 inputs, at most 256), and no other build"); /* the largest's limit */
    expect("--build large --shape 8,8x4,3", 1, "4 layers, at most 3)");
    expect("--build large --shape 8,8x1,9", 1, "9 classes, at most 8)");
    assert_string_equal(said.out, "");
}

static void test_wrong_usage(void **state)
{
    static const char *const wrong[] = {"--shape 8,8x1",
                                        "--shape 8,8x1,3,3",
                                        "--shape 0,8x1,3",
                                        "--shape 8,8x0,3",
                                        "--shape 8,8xx1,3",
                                        "--shape 8,-8,3",
                                        "--shape 8,8-,3",
                                        "--shape ''",
                                        "--shape 8,8-8-8-8-8,3",
                                        "--shape 8,99999x1,3",
                                        "--build huge",
                                        "--units 0",
                                        "--units 3",
                                        "--vectors 0",
                                        "--vectors -1",
                                        "--mhz 0",
                                        "--mhz nan",
                                        "--mhz 300x",
                                        "--io-us -1",
                                        "--register-ns ''",
                                        "--seed x",
                                        "--features f.npy",
                                        "--record",
                                        "--data x",
                                        "--kind wide",
                                        "--all --build fast",
                                        "--all --units 2",
                                        "--all --vectors 3",
                                        "--all --shape 8,8x1,3",
                                        "--all --check-vectors x",
                                        "--check-vectors x --model y",
                                        "--shape 8,8x1,3 --model y",
                                        "--write-vectors @/x --kind new --shape 8,8x1,3",
                                        "extra",
                                        "--unknown"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect(wrong[i], 2, "killline");
        assert_string_equal(said.out, "");
    }
    expect("--help", 0, "--write-vectors");
}

/* A verdict that nobody got is a failure. */
static void test_full_output(void **state)
{
    static const char *const arguments[] = {
        "--build small --shape 8,8x1,2 --vectors 10", "--build small --shape 8,8x1,2 --vectors 10 --json",
        "--check-vectors " KL_CSIM_DATA "/odd --build small", "--all", "--all --json"};
    (void)state;
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++) {
        command_free(&said);
        said = command_shell("'%s' csim %s >/dev/full", KILLLINE, arguments[i]);
        assert_int_equal(said.status, 1);
        assert_non_null(strstr(said.err, "standard output: write failed"));
    }
}

/* ---- a package, and a day's features ---- */

static void write_array(const char *name, const char *dtype, uint32_t n_col, const void *rows,
                        size_t row_bytes, uint32_t n_row)
{
    char path[64], error[NPY_ERROR_CHARS];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    struct npy *npy = npy_create(path, dtype, n_col, error);
    assert_non_null(npy);
    for (uint32_t i = 0; i < n_row; i++)
        assert_int_equal(npy_append(npy, (const char *)rows + i * row_bytes, error), 0);
    assert_int_equal(npy_close(npy, error), 0);
}

static float features[N_ROW][FEATURES_N];
static uint16_t stream[N_ROW];

static void write_features(void)
{
    write_array("features.npy", "<f4", FEATURES_N, features, sizeof features[0], N_ROW);
    write_array("stream.npy", "<u2", 0, stream, sizeof stream[0], N_ROW);
}

static void test_package(void **state)
{
    (void)state;
    expect("--model " KL_MODELS "/primary.klm --vectors 40 --json", 0, "\"build\":\"small\"");
    expect("--model " KL_MODELS "/primary.klm --build fast --units 2 --vectors 40", 0, "of the package");
    expect("--model @/absent.klm", 1, "absent.klm");
}

static void test_features(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int i = 0; i < N_ROW; i++) {
        stream[i] = (uint16_t)(i % N_STREAM == 4 ? KL_N_STREAM_MAX - 1 : i % N_STREAM);
        for (int k = 0; k < FEATURES_N; k++)
            features[i][k] = (float)(model_random_uniform(&seed) * 40); /* some beyond the input's bound */
    }
    write_features();
    expect("--model " KL_MODELS "/primary.klm --features @/features.npy --json", 0, "");
    json_t *root = said_json();
    assert_int_equal(number(json_object_get(root, "whole"), "cases"), N_ROW);
    json_decref(root);
    expect("--model " KL_MODELS
           "/primary.klm --features @/features.npy --vectors 100 --units 2 --build large --json",
           0, "\"cases\":100,");

    stream[7] = KL_N_STREAM_MAX;
    write_features();
    expect("--model " KL_MODELS "/primary.klm --features @/features.npy", 1, "row 7: stream 256");
    stream[7] = 7;
    features[9][3] = 1.0f / 0.0f;
    write_features();
    expect("--model " KL_MODELS "/primary.klm --features @/features.npy", 1, "row 9, feature 3: not finite");
    write_array("stream.npy", "<u2", 0, stream, sizeof stream[0], N_ROW - 1);
    expect("--model " KL_MODELS "/primary.klm --features @/features.npy", 1, "not of one run");
    expect("--model " KL_MODELS "/primary.klm --features @/stream.npy", 1, "stream.npy");
}

/* ---- golden vectors ---- */

static void test_golden_vectors(void **state)
{
    static const char *const set[] = {"blocks", "bound", "odd", "saturate"};
    char arguments[256];
    (void)state;
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
        snprintf(arguments, sizeof arguments, "--check-vectors " KL_CSIM_DATA "/%s", set[i]);
        expect(arguments, 0, "PASS  large pair: ");
    }
    expect("--check-vectors " KL_CSIM_DATA "/odd --build fast --units 2 --json", 0, "\"pass\":true");
    assert_null(strstr(said.out, "large"));
    expect("--check-vectors " KL_CSIM_DATA "/bound --build fast", 1, "beyond build fast");
}

/* The shipped sets are what the command writes today. */
static void test_written_vectors(void **state)
{
    (void)state;
    expect("--write-vectors @/odd --shape 21,37x2,3 --seed 1 --vectors 24", 0, "24 steps");
    shell("test -s @/odd/tiny/inputs.txt && test -s @/odd/tiny/expected.txt && rm -r @/odd/tiny");
    shell("diff -r " KL_CSIM_DATA "/odd @/odd");
    expect("--write-vectors @/package --model " KL_MODELS "/primary.klm --vectors 5 --json", 0,
           "\"steps\":5");
    expect("--check-vectors @/package", 0, "PASS  fast pair: ");
    expect("--write-vectors @/absent/x --shape 8,8x1,3", 1, "absent/x");
    expect("--check-vectors @/absent", 1, "absent/model.hex");
}

/* Edits of the odd set, and what the check says of them. sed -z: the file is one line to it. */
static void test_damaged_vectors(void **state)
{
    static const struct {
        const char *sed, *says;
    } damage[] = {
        {"s/class 1/class 2/ vectors.txt", "class, slot 0: 1, expected 2"},
        {"s/logits -/logits -1/ vectors.txt", "logits of class 0, slot 0: -"},
        {"s/\\nh [-0-9]*/\\nh 77/ vectors.txt", "h of layer 0, unit 0, slot 0: "},
        {"s/\\nc [-0-9]* \\([-0-9]*\\)/\\nc \\1 \\1/ vectors.txt", "c of layer 0, unit 0, slot 0: "},
        {"s/\\nx [0-9a-f]*/\\nx 3c00/ vectors.txt", "logits of class "},
        {"s/\\nx [0-9a-f]*/\\nx 7c00/ vectors.txt", "status 8"},
        {"s/cycles fast 1 /cycles fast 1 1/ vectors.txt", "step cycles 1"},
        {"s/\\nx [0-9a-f]*/\\nx/ vectors.txt", "'': a number from"},
        {"s/\\nx [0-9a-f]*/\\nx 3c00 3c00/ vectors.txt", "is one word too many"},
        {"s/\\nx 3c00/\\nx 3g00/;s/\\nx [0-9a-f]*/\\nx 3g00/ vectors.txt", "'3g00': a number from"},
        {"s/op step 7/op step 256/ vectors.txt", "'256': a number from 0 to 255"},
        {"s/op step 7/op stop 7/ vectors.txt", "'stop': step, prepare or reset"},
        {"s/\\nlogits/\\nlogit/ vectors.txt", "'logit' where 'logits' is wanted"},
        {"s/\\nkillline-vectors 1/\\nkillline-vectors 2/ vectors.txt", "'2': a number from 1 to 1"},
        {"s/shape 21/shape 22/ vectors.txt", "'22': a number from 21 to 21"},
        {"s/model [0-9a-f]/model x/ vectors.txt", "write the vectors anew"},
        {"s/op step.*// vectors.txt", "cut short"},
        {"s/\\nend .*/\\n/ vectors.txt", "cut short"},
        {"s/\\nend \\([0-9]\\)/\\nend 1\\1/ vectors.txt", "operations"},
        {"s/$/op reset 7\\n/ vectors.txt", "more behind"},
        {"s/\\nx .*// vectors.txt", "ends where 'x' is wanted"},
        {"s/^.// model.hex", "16 hex digits are wanted"},
        {"s/[0-9a-f]*\\n$// model.hex", "the image says that it has"},
        {"s/0\\n$/1\\n/;s/[2-9a-f]\\n$/1\\n/ model.hex", "hash is another"},
        {"s/.*// model.hex", "within the image's header"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        char line[512];
        const char *file = strrchr(damage[i].sed, ' ') + 1;
        snprintf(line, sizeof line,
                 "rm -rf @/damaged && cp -r " KL_CSIM_DATA
                 "/odd @/damaged && sed -i -z '%.*s' @/damaged/%s && "
                 "! cmp -s @/damaged/%s " KL_CSIM_DATA "/odd/%s",
                 (int)(file - damage[i].sed - 1), damage[i].sed, file, file, file);
        shell(line);
        expect("--check-vectors @/damaged --build fast", 1, damage[i].says);
    }
}

/* An image whose hash is right and whose header is not: its layers are more than there is room for. */
static void test_hostile_image(void **state)
{
    (void)state;
    struct kl_image_header header = {.magic = KL_IMAGE_MAGIC,
                                     .abi_version = KL_ABI_VERSION,
                                     .n_layer = 40000,
                                     .n_in = 1,
                                     .n_class = 1,
                                     .n_hidden = {1, 1, 1, 1},
                                     .size_bytes = sizeof header};
    header.image_hash = kl_image_hash(&header, sizeof header);
    char path[sizeof directory + sizeof "/hostile/model.hex"];
    shell("rm -rf @/hostile && mkdir @/hostile && "
          "printf 'killline-vectors 1\nshape 1 40000 1 1 1 1 0 0 0 0\n' > @/hostile/vectors.txt");
    snprintf(path, sizeof path, "%s/hostile/model.hex", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    uint64_t word[sizeof header / 8];
    memcpy(word, &header, sizeof header);
    for (size_t i = 0; i < sizeof header / 8; i++)
        fprintf(file, "%016" PRIx64 "\n", word[i]);
    assert_int_equal(fclose(file), 0);
    expect("--check-vectors @/hostile", 1, "shape is none that a kernel takes");
    expect("--check-vectors @/hostile --build large --units 2", 1, "shape is none that a kernel takes");
}

/* ---- everything ---- */

static void test_all(void **state)
{
    (void)state;
    expect("--all", 0, "PASS");
    assert_null(strstr(said.out, "moved"));
    shell("cp -r " KL_CSIM_DATA " @/data && sed -i '/fast.*: 1,.*128,128x2/s/\"step\": [0-9]*/\"step\": 7/' "
          "@/data/cycles.json");
    expect("--all --data @/data", 1, "moved: fast 128,128x2,3 step 7 -> ");
    assert_non_null(strstr(said.out, "MOVED 1"));
    assert_non_null(strstr(said.out, "no bit moved, 1 cycle count did"));
    shell("sed -i 's/^cycles fast/cycles slow/; 0,/^class/s/^class .*/class 7/' @/data/odd/vectors.txt");
    expect("--all --data @/data --record --json", 1, "class, slot 0: ");
    json_t *root = said_json();
    assert_false(is_true(root, "pass"));
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 6);
    assert_int_equal(number(json_array_get(json_object_get(root, "rows"), 5), "compute_units"), 2);
    assert_int_equal(json_array_size(json_object_get(root, "moved")), 0);
    json_decref(root);
    shell("cmp @/data/cycles.json " KL_CSIM_DATA "/cycles.json"); /* as it was before the edit */
    shell("rm @/data/cycles.json");
    expect("--all --data @/data", 1, "/data/cycles.json: No such file or directory; --record writes it");
    assert_null(strstr(said.err, "line -1"));
    shell("echo '[{]' >@/data/cycles.json");
    expect("--all --data @/data", 1, "/data/cycles.json, line 1: ");
    expect("--all --data @/absent --record", 1, "absent");
}

/* ---- a broken kernel: build small with broken_cell.c ---- */

static void expect_broken(const char *arguments, const char *word)
{
    char expanded[1024];
    expand(arguments, expanded, sizeof expanded);
    command_free(&said);
    said = command_shell("LD_LIBRARY_PATH='%s' '%s' csim %s", KL_BROKEN_DIR, KILLLINE, expanded);
    if (said.status != 1 || !strstr(said.out, word))
        fail_msg("csim %s on a broken kernel: status %d, '%s' wanted; said: %s%s", expanded, said.status,
                 word, said.out, said.err);
}

static void test_broken_kernel(void **state)
{
    (void)state;
    expect_broken("--build small --shape 8,40x2,3 --vectors 60", "FAIL  cell update");
    assert_non_null(strstr(said.out, "FAIL  whole kernel"));
    assert_non_null(strstr(said.out, " differences in ")); /* a case may have several */
    assert_non_null(strstr(said.out, "PASS  MAC array"));
    expect_broken("--build small --shape 8,40x2,3 --vectors 60 --units 2 --json", "\"pass\":false");
    json_t *root = said_json();
    assert_true(number(root, "mismatches") > 0);
    assert_true(number(json_object_get(root, "whole"), "mismatches") > 0);
    assert_non_null(strstr(json_string_value(json_object_get(root, "first_difference")), "cell"));
    json_decref(root);

    uint64_t seed = 6;
    for (int i = 0; i < N_ROW; i++) {
        stream[i] = (uint16_t)(i % N_STREAM);
        for (int k = 0; k < FEATURES_N; k++)
            features[i][k] = (float)(model_random_uniform(&seed) * 40);
    }
    write_features();
    expect_broken("--model " KL_MODELS "/primary.klm --features @/features.npy --build small",
                  "layer 0, unit ");
    expect_broken("--check-vectors " KL_CSIM_DATA "/saturate --build small", "FAIL  small");
    expect_broken("--all", "first difference of small: ");
    assert_non_null(strstr(said.out, "FAIL"));
    assert_null(strstr(said.out, "no bit moved"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_clock_and_io),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_beyond_a_build),
        cmocka_unit_test(test_wrong_usage),
        cmocka_unit_test(test_full_output),
        cmocka_unit_test(test_package),
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_golden_vectors),
        cmocka_unit_test(test_written_vectors),
        cmocka_unit_test(test_damaged_vectors),
        cmocka_unit_test(test_hostile_image),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_broken_kernel),
    };
    return cmocka_run_group_tests(tests, create, delete);
}
