/* C testbench of one build of the kernel: unit checks, then the whole kernel on random models, then a pair
 * that shares their rows. The exit status is the verdict. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "kl_build.h"
#include "kl_tb_run.h"
#include "kl_tb_units.h"

enum {
    N_MODEL_DEFAULT = 25,
    N_UNIT_CASE = 2000,
    MAC_BUDGET = 24 * 1000 * 1000, /* per model: how many steps a large one gets */
    N_STEP_MIN = 40,
    N_STEP_MAX = 400,
    N_STEP_SATURATE = 500, /* c moves by at most 1 per step: 256 steps to its bound */
};

/* The true LSTM's bounds are loose: a wrong number form misses them by far, no sound one comes near. */
static const double H_ERROR_MAX = 1e-3, FLIP_SHARE_MAX = 0.02;

static int print_verdict(const char *what, const struct tb_report *report)
{
    const int pass = report->n_mismatch == 0 && report->n_case > 0;
    printf("%s %s %s: %llu cases, %llu mismatches\n", pass ? "PASS" : "FAIL", KL_BUILD_NAME, what,
           (unsigned long long)report->n_case, (unsigned long long)report->n_mismatch);
    if (report->first[0])
        printf("  first: %s\n", report->first);
    fflush(stdout);
    return pass;
}

static int check_units(uint64_t seed, uint32_t n_case)
{
    const struct kl_tb_units *units = &KL_BUILD_SYMBOL(kl_tb_units);
    int pass = 1;
    for (uint32_t u = 0; u < units->n_unit; u++) {
        struct tb_report report = {.n_case = 0};
        units->check(u, seed, n_case, &report);
        pass &= print_verdict(units->name(u), &report);
    }
    return pass;
}

static uint32_t n_step_of(const struct tb_model *model)
{
    uint32_t n_mac = 0;
    for (uint32_t l = 0; l < model->n_layer; l++)
        n_mac +=
            KL_N_GATE * model->layer[l].n_hidden * (model->layer[l].n_operand + model->layer[l].n_hidden);
    const uint32_t n_step = MAC_BUDGET / n_mac;
    if (model->kind == TB_SATURATE)
        return N_STEP_SATURATE;
    return n_step < N_STEP_MIN ? N_STEP_MIN : n_step > N_STEP_MAX ? N_STEP_MAX : n_step;
}

static void print_model(const struct tb_model *model, const struct kl_image_header *image, uint32_t n_part)
{
    const struct kl_build *build = &KL_BUILD_SYMBOL(kl_build);
    printf("  %s %u", tb_kind_name[model->kind], model->n_in);
    for (uint32_t l = 0; l < model->n_layer; l++)
        printf("-%u", model->layer[l].n_hidden);
    printf("-%u: cycles (modelled) step %u, unprepared %u, prepare %u\n", model->n_class,
           build->step_cycles(image, n_part, 1), build->step_cycles(image, n_part, 0),
           build->prepare_cycles(image, n_part));
}

static int judge(const struct tb_run_report *report, uint32_t n_model, const char *name)
{
    int pass = print_verdict(name, &report->check);
    printf(
        "  %llu steps exact in every z, h, c and logit; largest |h| %.0f, |c| %.0f; against FP64: h within "
        "%.1e, %llu of %llu classes differ\n",
        (unsigned long long)report->n_step, report->h_abs_max, report->c_abs_max, report->h_error_max,
        (unsigned long long)report->n_flip, (unsigned long long)report->n_true_step);
    if (!pass)
        return 0;
    if (report->h_error_max > H_ERROR_MAX ||
        (double)report->n_flip > FLIP_SHARE_MAX * (double)report->n_true_step + 2) {
        printf("FAIL %s %s: too far from the FP64 LSTM\n", KL_BUILD_NAME, name);
        pass = 0;
    }
    if (n_model >= TB_N_KIND && (report->c_abs_max != KL_C_ABS_MAX || report->h_abs_max != KL_H_ABS_MAX)) {
        printf("FAIL %s %s: c and h never reached their bounds\n", KL_BUILD_NAME, name);
        pass = 0;
    }
    return pass;
}

/* Models in turn in both slots, each loaded while the one before goes on. */
static int check_whole(uint32_t n_part, uint64_t seed, uint32_t n_model, uint32_t n_vector)
{
    const struct kl_build *build = &KL_BUILD_SYMBOL(kl_build);
    struct tb_run *run = tb_run_open(build, n_part, seed);
    struct tb_model *model[KL_N_SLOT] = {calloc(1, sizeof **model), calloc(1, sizeof **model)};
    struct kl_image_header *image[KL_N_SLOT] = {NULL, NULL};
    int enough = run && model[0] && model[1];
    for (uint32_t number = 0; enough && number < n_model; number++) {
        const uint32_t slot = number % KL_N_SLOT;
        tb_run_draw_model(build, n_part, number, &seed, model[slot]);
        free(image[slot]);
        image[slot] = tb_model_image(model[slot]);
        enough = image[slot] != NULL;
        if (!enough || !tb_run_load(run, slot, model[slot], image[slot]))
            break;
        print_model(model[slot], image[slot], n_part);
        if (!tb_run_steps(run, slot, TB_RUN_MIX, n_vector ? n_vector : n_step_of(model[slot])))
            break;
    }
    const int pass = enough && judge(tb_run_report(run), n_model, n_part == 1 ? "whole kernel" : "pair");
    if (!enough)
        fprintf(stderr, "kl_tb: out of memory\n");
    tb_run_close(run);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        free(image[slot]);
        free(model[slot]);
    }
    return pass;
}

static int read_number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && *value <= max;
}

static int usage(FILE *out, int status)
{
    fprintf(
        out,
        "kl_tb_%s: C testbench of the Killline kernel, build %s; exit status 0 only if everything passes.\n"
        "usage: kl_tb_%s [--seed N] [--models N] [--vectors N]\n"
        "  --seed N     of every random choice (default 1)\n"
        "  --models N   random models for the whole kernel, and for a pair: 1 to 100000 (default %d)\n"
        "  --vectors N  steps per model (default: by its size), and random cases per unit check\n"
        "               (default %d)\n",
        KL_BUILD_NAME, KL_BUILD_NAME, KL_BUILD_NAME, N_MODEL_DEFAULT, N_UNIT_CASE);
    return status;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"models", required_argument, NULL, 'm'},
                                            {"vectors", required_argument, NULL, 'v'},
                                            {NULL, 0, NULL, 0}};
    uint64_t seed = 1, n_model = N_MODEL_DEFAULT, n_vector = 0;
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (option == 'h')
            return usage(stdout, 0);
        if (!(option == 's' && read_number(optarg, UINT64_MAX, &seed)) &&
            !(option == 'm' && read_number(optarg, 100000, &n_model) && n_model > 0) &&
            !(option == 'v' && read_number(optarg, 1000 * 1000 * 1000, &n_vector) && n_vector > 0))
            return usage(stderr, 2);
    }
    if (optind != argc)
        return usage(stderr, 2);

    int pass = check_units(seed, n_vector ? (uint32_t)n_vector : N_UNIT_CASE);
    for (uint32_t n_part = 1; n_part <= 2; n_part++)
        pass &= check_whole(n_part, seed, (uint32_t)n_model, (uint32_t)n_vector);
    printf("%s: build %s\n", pass ? "PASS" : "FAIL", KL_BUILD_NAME);
    return pass ? 0 : 1;
}
