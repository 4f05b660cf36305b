/* kl_tiny against the oracle and against the product's small build; its vectors and their testbench. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "command.h" /* KILLLINE: the testbench, kl_tiny_tb, here */
#include "hls/tiny/kl_tiny.h"
#include "hls/tiny/kl_tiny_vectors.h"

static struct tb_model model;

static int set_up(void **state)
{
    (void)state;
    tb_oracle_init();
    kl_tiny_model(&model);
    return 0;
}

static void draw_x(double *x, uint16_t *bits, uint64_t *seed)
{
    const uint32_t binade = tb_random_below(seed, 5);
    for (int k = 0; k < KL_TINY_N_IN; k++) {
        x[k] = ldexp(rint(tb_random_real(seed) * 2047), (int)binade - KL_X_FRAC);
        bits[k] = tb_half(x[k]);
    }
}

static void the_tables_are_those_of_the_model(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_int_equal(kl_tiny_write_model(out), 0);
    fclose(out);
    char *committed = command_read_file(KL_TINY_DIR "/kl_tiny_model.h");
    assert_string_equal(committed, text); /* else: kl_tiny_vectors --model > hls/tiny/kl_tiny_model.h */
    free(committed);
    free(text);

    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(kl_tiny_write_model(full), -1);
    fclose(full);
}

static void every_step_is_the_oracles(void **state)
{
    (void)state;
    static struct tb_state stream;
    static struct tb_answer expected;
    double x[KL_TINY_N_IN];
    uint16_t bits[KL_TINY_N_IN];
    int64_t logit[KL_TINY_N_CLASS];
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        const int reset = i % 500 == 0;
        if (reset)
            memset(&stream, 0, sizeof stream);
        draw_x(x, bits, &seed);
        tb_oracle_step(&model, &stream, x, &expected);
        assert_int_equal(kl_tiny((uint32_t)reset, bits, logit), expected.cls);
        for (int k = 0; k < KL_TINY_N_CLASS; k++)
            assert_true(logit[k] == (int64_t)expected.logit[k]);
    }
}

static void every_step_is_the_small_builds(void **state)
{
    (void)state;
    const struct kl_build *build = &kl_build_small;
    struct kl_unit *unit = aligned_alloc(64, build->unit_size_bytes());
    struct kl_image_header *image = tb_model_image(&model);
    assert_non_null(unit);
    assert_non_null(image);
    build->init(unit, 0, 1);
    assert_int_equal(build->load_begin(unit, 1, image, image->size_bytes), KL_OK);
    uint32_t status;
    while ((status = build->load_advance(unit)) == KL_E_BUSY)
        ;
    assert_int_equal(status, KL_OK);

    struct kl_request request;
    struct kl_result result;
    int64_t logit[KL_TINY_N_CLASS];
    double x[KL_TINY_N_IN];
    uint64_t seed = 2;
    memset(&request, 0, sizeof request);
    request.abi_version = KL_ABI_VERSION;
    request.op = KL_OP_STEP;
    request.slot = 1;
    request.stream = 3;
    for (int i = 0; i < 2000; i++) {
        draw_x(x, request.x, &seed);
        build->exec(unit, &request, &result);
        assert_int_equal(result.status, KL_OK);
        assert_int_equal(kl_tiny(i == 0, request.x, logit), result.cls);
        assert_memory_equal(logit, result.logits, sizeof logit);
    }
    free(image);
    free(unit);
}

static void a_bad_input_is_refused_and_moves_nothing(void **state)
{
    (void)state;
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e01, 0x4c00, 0xcc00, 0x3401, 0x0001};
    static struct tb_state stream;
    static struct tb_answer expected;
    double x[KL_TINY_N_IN];
    uint16_t bits[KL_TINY_N_IN];
    int64_t logit[KL_TINY_N_CLASS];
    uint64_t seed = 3;
    memset(&stream, 0, sizeof stream);
    for (uint32_t i = 0; i < KL_TINY_N_IN * sizeof bad / sizeof bad[0]; i++) {
        draw_x(x, bits, &seed);
        tb_oracle_step(&model, &stream, x, &expected);
        assert_int_equal(kl_tiny(i == 0, bits, logit), expected.cls);
        assert_true(logit[0] == (int64_t)expected.logit[0]);
        bits[i % KL_TINY_N_IN] = bad[i / KL_TINY_N_IN];
        assert_int_equal(kl_tiny(0, bits, logit), KL_TINY_BAD_INPUT);
        for (int k = 0; k < KL_TINY_N_CLASS; k++)
            assert_true(logit[k] == 0);
    }
}

/* ---- vectors and testbench ---- */

static char dir[] = "/tmp/killline-tiny-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    struct command_result result = command_shell("rm -r '%s'", dir);
    const int status = result.status;
    command_free(&result);
    return status;
}

static void expect_testbench(int status, const char *says)
{
    struct command_result result = command_run("'%s'", dir);
    assert_int_equal(result.status, status);
    if (!strstr(status == 0 ? result.out : result.err, says))
        fail_msg("\"%s\" is not in: %s%s", says, result.out, result.err);
    command_free(&result);
}

static void edit(const char *sed, const char *name)
{
    struct command_result result = command_shell("sed -i '%s' '%s/%s'", sed, dir, name);
    assert_int_equal(result.status, 0);
    command_free(&result);
}

static void the_vectors_pass_and_reach_every_answer(void **state)
{
    (void)state;
    const int n_step = kl_tiny_write_vectors(dir);
    assert_true(n_step > 500);
    char text[64];
    snprintf(text, sizeof text, "PASS, %d steps bit-equal", n_step);
    expect_testbench(0, text);
    struct command_result result =
        command_shell("cut -d' ' -f1 '%s/expected.txt' | sort -u | tr '\\n' ' '", dir);
    assert_string_equal(result.out, "// 00 01 02 ff ");
    command_free(&result);
}

static void the_testbench_refuses(void **state)
{
    (void)state;
    const struct {
        const char *name, *sed, *says;
    } wrong[] = {
        {"expected.txt", "9s/0$/1/;9t;9s/.$/0/",
         "inputs.txt:9: the first difference"}, /* one logit, last digit */
        {"expected.txt", "2s/^0./03/", "inputs.txt:2: the first difference"},
        {"inputs.txt", "200s/^0/1/", "inputs.txt:200: the first difference"}, /* a reset too many */
        {"expected.txt", "$d", "expected.txt ends before"},
        {"inputs.txt", "$d", "inputs.txt ends before"},
        {"inputs.txt", "2s/ [^ ]*$//", "inputs.txt:2: not a line of 7 hexadecimal words"},
        {"inputs.txt", "3s/$/ 0/", "inputs.txt:3: not a line of 7"},
        {"inputs.txt", "3s/ [^ ]*$/ 03c00/", "inputs.txt:3: not a line of 7"},
        {"inputs.txt", "3s/ /  /", "inputs.txt:3: not a line of 7"},
        {"expected.txt", "4s/ [^ ]*$/ -1/", "expected.txt:4: not a line of 4"},
        {"expected.txt", "5s/ [^ ]*$/ 0x1/", "expected.txt:5: not a line of 4"},
        {"inputs.txt", "s/^/\\/\\//", "inputs.txt ends before"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_true(kl_tiny_write_vectors(dir) > 0);
        edit(wrong[i].sed, wrong[i].name);
        expect_testbench(1, wrong[i].says);
    }
    assert_true(kl_tiny_write_vectors(dir) > 0);
    edit("1!d", "inputs.txt");
    edit("1!d", "expected.txt");
    expect_testbench(1, "no step in it");
    struct command_result result = command_run("'%s/absent'", dir);
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, "cannot be read: write it with kl_tiny_vectors"));
    command_free(&result);
}

static void vectors_that_cannot_be_written_are_an_error(void **state)
{
    (void)state;
    char absent[sizeof dir + 8];
    static char too_long[5000];
    snprintf(absent, sizeof absent, "%s/absent", dir);
    assert_int_equal(kl_tiny_write_vectors(absent), -1);
    memset(too_long, 'x', sizeof too_long - 1);
    assert_int_equal(kl_tiny_write_vectors(too_long), -1);
    for (int i = 0; i < 2; i++) {
        struct command_result result = command_shell("cd '%s' && rm -f *.txt && ln -s /dev/full %s", dir,
                                                     i == 0 ? "inputs.txt" : "expected.txt");
        assert_int_equal(result.status, 0);
        command_free(&result);
        assert_int_equal(kl_tiny_write_vectors(dir), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_are_those_of_the_model),
        cmocka_unit_test(every_step_is_the_oracles),
        cmocka_unit_test(every_step_is_the_small_builds),
        cmocka_unit_test(a_bad_input_is_refused_and_moves_nothing),
    };
    const struct CMUnitTest vector_tests[] = {
        cmocka_unit_test(the_vectors_pass_and_reach_every_answer),
        cmocka_unit_test(the_testbench_refuses),
        cmocka_unit_test(vectors_that_cannot_be_written_are_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, NULL) +
           cmocka_run_group_tests(vector_tests, make_dir, remove_dir);
}
