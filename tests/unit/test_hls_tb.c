/* The testbench itself: its oracle by hand, its reading of images, and that it sees what is wrong with a
 * kernel and names it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hls/kl_tb_run.h"
#include "hls/kl_tb_units.h"
#include "tests/unit/hls_example.h"

static void the_oracle_gives_the_example(void **state)
{
    (void)state;
    static struct tb_model model;
    static struct tb_state at;
    static struct tb_answer answer;
    const double x[2][2] = {{1, -2}, {0, 0}};
    tb_oracle_init();
    example_model(&model);
    memset(&at, 0, sizeof at);
    for (int n = 0; n < 2; n++) {
        tb_oracle_step(&model, &at, x[n], &answer);
        for (int unit = 0; unit < 2; unit++) {
            assert_true(at.h[0][unit] * 0x1p15 == example_h[n][unit]);
            assert_true(at.c[0][unit] == example_c[n][unit]);
            assert_true(answer.logit[unit] == (double)example_logit[n][unit]);
        }
        assert_int_equal(answer.cls, 0);
        assert_true(answer.z[0][EXAMPLE_G] == (n == 0 ? 8 << KL_Z_FRAC : 0));
        assert_true(answer.z[0][KL_N_GATE + EXAMPLE_G] == (n == 0 ? 0 : 242304));
    }
}

static void the_true_lstm_is_near_the_example(void **state)
{
    (void)state;
    static struct tb_model model;
    static struct tb_state at;
    static struct tb_answer answer;
    const double x[2] = {1, -2};
    example_model(&model);
    memset(&at, 0, sizeof at);
    tb_true_step(&model, &at, x, &answer);
    /* c = 1/2 * tanh(8), h = sigma(16) * tanh(c). */
    assert_true(fabs(at.c[0][0] - 0.5 * tanh(8)) < 1e-12);
    assert_true(fabs(at.h[0][0] - tanh(0.5 * tanh(8)) / (1 + exp(-16))) < 1e-12);
    assert_true(fabs(answer.logit[0] - at.h[0][0]) < 1e-12);
}

static void binary16_goes_back_and_forth(void **state)
{
    (void)state;
    assert_true(tb_half_value(0x3c00) == 1 && tb_half_value(0xc000) == -2 && tb_half_value(1) == 0x1p-24);
    assert_true(isinf(tb_half_value(0x7c00)) && isnan(tb_half_value(0x7e00)));
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        assert_int_equal(tb_half(tb_half_value((uint16_t)bits)), bits);
        if (bits > 0)
            assert_int_equal(tb_half(tb_half_value((uint16_t)(bits | 0x8000))), bits | 0x8000);
    }
}

static void an_image_is_read_as_it_was_written(void **state)
{
    (void)state;
    static struct tb_model model, read;
    uint64_t seed = 5;
    for (uint32_t kind = 0; kind < TB_N_KIND; kind++) {
        memset(&model, 0, sizeof model);
        model.kind = (enum tb_kind)kind;
        model.n_in = 5;
        model.n_layer = 2;
        model.n_class = 3;
        model.layer[0].n_hidden = 7;
        model.layer[1].n_hidden = 9;
        tb_model_fill(&model, &seed);
        struct kl_image_header *image = tb_model_image(&model);
        assert_non_null(image);
        assert_null(tb_model_from_image(&read, image, image->size_bytes));
        struct kl_image_header *again = tb_model_image(&read);
        assert_non_null(again);
        assert_int_equal(again->size_bytes, image->size_bytes);
        assert_memory_equal(again, image, image->size_bytes);
        free(again);
        assert_true(read.kind == TB_TYPICAL && read.layer[1].w_h[35][8] == model.layer[1].w_h[35][8]);

        assert_non_null(tb_model_from_image(&read, image, image->size_bytes - 8));
        assert_non_null(tb_model_from_image(&read, image, sizeof *image - 1));
        assert_non_null(tb_model_from_image(&read, image, 0));
        image->n_hidden[0]++;
        assert_non_null(tb_model_from_image(&read, image, image->size_bytes));
        image->n_hidden[0] = KL_N_HIDDEN_MAX + 1;
        assert_non_null(tb_model_from_image(&read, image, image->size_bytes));
        image->n_hidden[0] = 7;
        image->n_layer = KL_N_LAYER_MAX + 1;
        assert_non_null(tb_model_from_image(&read, image, image->size_bytes));
        image->n_layer = 2;
        image->magic++;
        assert_non_null(tb_model_from_image(&read, image, image->size_bytes));
        free(image);
    }
}

static void the_first_mismatch_keeps_its_text(void **state)
{
    (void)state;
    struct tb_report report = {.n_case = 3};
    tb_report_mismatch(&report, "row %d", 7);
    tb_report_mismatch(&report, "row %d", 8);
    assert_int_equal(report.n_mismatch, 2);
    assert_string_equal(report.first, "row 7");
}

/* ---- kernels that are wrong ---- */

static struct kl_build broken;
static uint32_t n_exec, break_at;

static void (*break_result)(struct kl_result *result);

static void exec(struct kl_unit *unit, const struct kl_request *request, struct kl_result *result)
{
    kl_build_small.exec(unit, request, result);
    if (request->op == KL_OP_STEP && result->status == KL_OK && result->flags == 0 && n_exec++ == break_at)
        break_result(result);
}

static int32_t seen_z(const struct kl_unit *unit, uint32_t layer, uint32_t row)
{
    return kl_build_small.seen_z(unit, layer, row) + (n_exec > break_at && layer == 1 && row == 6);
}

static uint32_t save(const struct kl_unit *unit, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    const uint32_t status = kl_build_small.save(unit, slot, stream, state);
    if (n_exec > break_at)
        state->c[1][2]++;
    return status;
}

/* Runs a small two-layer model on `broken`, plain. Returns the report. */
static struct tb_run_report run_broken(void)
{
    static struct tb_model model;
    uint64_t seed = 9;
    n_exec = 0;
    memset(&model, 0, sizeof model);
    model.n_in = 3;
    model.n_layer = 2;
    model.n_class = 2;
    model.layer[0].n_hidden = model.layer[1].n_hidden = 4;
    tb_model_fill(&model, &seed);
    struct kl_image_header *image = tb_model_image(&model);
    struct tb_run *run = tb_run_open(&broken, 1, seed);
    assert_true(image && run && tb_run_load(run, 0, &model, image));
    tb_run_steps(run, 0, TB_RUN_PLAIN, 40);
    const struct tb_run_report report = *tb_run_report(run);
    tb_run_close(run);
    free(image);
    return report;
}

static void assert_told(const struct tb_run_report *report, const char *part)
{
    if (!strstr(report->check.first, part))
        fail_msg("\"%s\" is not in: %s", part, report->check.first);
}

static void break_nothing(struct kl_result *result)
{
    (void)result;
}

static void break_logit(struct kl_result *result)
{
    result->logits[1]++;
}

static void break_class(struct kl_result *result)
{
    result->cls ^= 1;
}

static void break_cycles(struct kl_result *result)
{
    result->kernel_cycles++;
}

static void break_padding(struct kl_result *result)
{
    result->pad[3] = 1;
}

static void break_seq_no(struct kl_result *result)
{
    result->seq_no++;
}

static int set_up(void **state)
{
    (void)state;
    broken = kl_build_small;
    broken.exec = exec;
    break_at = 20;
    break_result = break_nothing;
    return 0;
}

static void a_right_kernel_passes(void **state)
{
    (void)state;
    const struct tb_run_report report = run_broken();
    assert_int_equal(report.check.n_mismatch, 0);
    assert_int_equal(report.n_step, 40);
    assert_int_equal(report.n_true_step, 40);
    assert_true(report.check.n_case > 40 && report.h_error_max > 0 && report.h_error_max < 1e-3);
    assert_string_equal(report.check.first, "");
}

static void a_wrong_answer_is_seen_and_named(void **state)
{
    (void)state;
    static const struct {
        void (*break_result)(struct kl_result *result);
        const char *told;
    } wrong[] = {{break_logit, "class 1: logit"},
                 {break_class, "argmax"},
                 {break_cycles, "sequencer"},
                 {break_padding, "padding"},
                 {break_seq_no, "controller"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        break_result = wrong[i].break_result;
        const struct tb_run_report report = run_broken();
        assert_int_equal(report.check.n_mismatch, 1);
        assert_told(&report, wrong[i].told);
        assert_told(&report, "slot 0");
    }
}

static void a_wrong_z_is_told_with_layer_unit_and_gate(void **state)
{
    (void)state;
    broken.seen_z = seen_z;
    const struct tb_run_report report = run_broken();
    assert_true(report.check.n_mismatch > 1);
    assert_told(&report, "layer 1, unit 1, gate g (row 6: group 0, lane 6");
    assert_told(&report, "1 of 16 rows");
}

static void a_wrong_cell_is_told_with_layer_and_unit(void **state)
{
    (void)state;
    broken.save = save;
    const struct tb_run_report report = run_broken();
    assert_told(&report, "layer 1, unit 2");
    assert_told(&report, "cell update");
}

static uint32_t n_input;

static int three_inputs(void *context, uint32_t slot, uint32_t stream, uint16_t x[KL_N_IN_MAX])
{
    (void)context;
    (void)slot;
    (void)stream;
    x[0] = n_input == 1 ? 0x7c00 : 0x3c00; /* the second one is no input: to be refused */
    x[1] = x[2] = 0;
    return n_input++ < 3;
}

static void note_answer(void *context, const struct kl_request *request, const struct kl_result *result,
                        const struct tb_answer *oracle)
{
    assert_int_equal(request->x[0], 0x3c00);
    assert_true((double)result->logits[0] == oracle->logit[0]);
    ++*(uint32_t *)context;
}

static void given_inputs_run_to_their_end(void **state)
{
    (void)state;
    static struct tb_model model;
    uint64_t seed = 9;
    uint32_t n_answered = 0;
    const struct tb_run_hooks hooks = {&n_answered, three_inputs, note_answer};
    memset(&model, 0, sizeof model);
    model.n_in = 3;
    model.n_layer = model.n_class = 1;
    model.layer[0].n_hidden = 2;
    tb_model_fill(&model, &seed);
    struct kl_image_header *image = tb_model_image(&model);
    struct tb_run *run = tb_run_open(&kl_build_small, 1, seed);
    assert_true(image && run && tb_run_load(run, 1, &model, image));
    n_input = 0;
    tb_run_hook(run, &hooks);
    assert_false(tb_run_steps(run, 1, TB_RUN_PLAIN, 10));
    assert_int_equal(tb_run_report(run)->check.n_mismatch, 0);
    assert_int_equal(tb_run_report(run)->n_step, 2);
    assert_int_equal(n_answered, 2);
    tb_run_close(run);
    free(image);
}

/* Static memories, the top's among them, must not carry anything from one check to the next. */
static void units_can_be_checked_again(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        for (uint32_t u = 0; u < kl_tb_units_small.n_unit; u++) {
            struct tb_report report = {.n_case = 0};
            kl_tb_units_small.check(u, seed, 10, &report);
            if (report.n_mismatch > 0)
                fail_msg("%s: %s", kl_tb_units_small.name(u), report.first);
            assert_true(report.n_case > 0);
        }
    }
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_oracle_gives_the_example),
        TEST(the_true_lstm_is_near_the_example),
        TEST(binary16_goes_back_and_forth),
        TEST(an_image_is_read_as_it_was_written),
        TEST(the_first_mismatch_keeps_its_text),
        TEST(a_right_kernel_passes),
        TEST(a_wrong_answer_is_seen_and_named),
        TEST(a_wrong_z_is_told_with_layer_unit_and_gate),
        TEST(a_wrong_cell_is_told_with_layer_and_unit),
        TEST(given_inputs_run_to_their_end),
        TEST(units_can_be_checked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
