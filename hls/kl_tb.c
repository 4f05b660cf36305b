/* C testbench of the kernel: its exit status is the verdict.
 *
 * Random models are loaded into both slots in turn and stepped on interleaved streams, with and without
 * prepare, with resets and refused requests in between. After every step hidden state, cell, logits, class
 * and cycles are compared for equality with the oracle (kl_tb_oracle.c), and the synthesisable top must
 * answer every request as the core does, byte for byte. TYPICAL models also run beside a true FP64 LSTM. */
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kl_core.h"
#include "kl_kernel.h"
#include "kl_tb.h"

enum {
    N_STREAM = 4,
    N_MODEL_DEFAULT = 30,
    MAC_BUDGET = 40 * 1000 * 1000, /* per model: how many steps a large model gets */
    N_STEP_MIN = 60,
    N_STEP_MAX = 400,
    N_STEP_SATURATE = 600, /* c moves by at most 1 per step: 256 steps to its bound */
};

/* The true LSTM's bounds are loose: a wrong number form misses them by far, no sound one comes near. */
static const double H_ERROR_MAX = 1e-3, FLIP_SHARE_MAX = 0.02;

struct run {
    struct tb_model model;
    struct kl_image_header *image;
    uint32_t number, slot, n_step_done, n_flip;
    uint32_t stream[N_STREAM];
    int prepared[N_STREAM];
    struct tb_state state[N_STREAM], true_state[N_STREAM];
    double h_error_max;
    double c_abs_max, h_abs_max; /* what the run reached: a SATURATE model must reach the bounds */
};

static struct kl_core *core;

__attribute__((format(printf, 2, 3))) static int fail(const struct run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("FAIL model %u: ", run->number);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    return 0;
}

/* The request through core and top; both must answer the same. */
static int execute(const struct run *run, const struct kl_request *request, struct kl_result *result)
{
    struct kl_result of_top;
    kl_core_exec(core, request, result);
    kl_kernel(KL_COMMAND_EXEC, 0, NULL, 0, request, &of_top);
    if (memcmp(result, &of_top, sizeof of_top) != 0)
        return fail(run, "op %u, seq_no %u: kl_kernel and kl_core answer differently", request->op,
                    request->seq_no);
    return 1;
}

static int expect_status(const struct run *run, const struct kl_result *result, uint32_t expected)
{
    if (result->status != expected)
        return fail(run, "seq_no %u: status %u, expected %u", result->seq_no, result->status, expected);
    return 1;
}

static int load(const struct run *run)
{
    struct kl_result result;
    const uint32_t status = kl_core_load(core, run->slot, run->image, run->image->size_bytes);
    kl_kernel(KL_COMMAND_LOAD, run->slot, (const uint8_t *)run->image, run->image->size_bytes, NULL, &result);
    if (status != KL_OK || result.status != KL_OK)
        return fail(run, "image refused: core %u, top %u", status, result.status);
    if (result.image_hash != run->image->image_hash)
        return fail(run, "the top reports another image hash");
    return 1;
}

/* Hidden state and cell of every unit, those beyond the model's shape included. */
static int compare_state(struct run *run, uint32_t s)
{
    const struct kl_stream *stream = &core->stream[run->slot][run->stream[s]];
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        const uint32_t n_hidden = l < run->model.n_layer ? run->model.layer[l].n_hidden : 0;
        for (uint32_t u = 0; u < KL_N_UNIT_MAX; u++) {
            const int32_t h = stream->h[l][u / KL_BLOCK].v[u % KL_BLOCK];
            const int32_t c = stream->c[l][u / KL_GROUP_UNITS][u % KL_GROUP_UNITS];
            const double h_expected = u < n_hidden ? run->state[s].h[l][u] * 0x1p15 : 0;
            const double c_expected = u < n_hidden ? run->state[s].c[l][u] : 0;
            if (h != h_expected || c != c_expected)
                return fail(run, "step %u, layer %u, unit %u: h %d c %d, oracle h %.0f c %.0f",
                            run->n_step_done, l, u, h, c, h_expected, c_expected);
            run->h_abs_max = fmax(run->h_abs_max, abs(h));
            run->c_abs_max = fmax(run->c_abs_max, abs(c));
        }
    }
    return 1;
}

static int compare_answer(const struct run *run, const struct kl_result *result,
                          const struct tb_answer *answer, uint32_t cycles)
{
    if (result->image_hash != run->image->image_hash || result->n_class != run->model.n_class ||
        result->logit_frac != run->model.head_frac + KL_H_FRAC || result->kernel_cycles != cycles)
        return fail(run, "step %u: a result field is wrong (cycles %u, expected %u)", run->n_step_done,
                    result->kernel_cycles, cycles);
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
        const double expected = k < run->model.n_class ? answer->logit[k] : 0;
        if ((double)result->logits[k] != expected)
            return fail(run, "step %u, class %u: logit %lld, oracle %.0f", run->n_step_done, k,
                        (long long)result->logits[k], expected);
    }
    if (result->cls != answer->cls)
        return fail(run, "step %u: class %u, oracle %u", run->n_step_done, result->cls, answer->cls);
    return 1;
}

/* x on the input grid: mostly small, sometimes at its bounds, sometimes aligned with a row of layer 0 so that
 * its sums go as far as they can. */
static void draw_x(const struct tb_model *model, double *x, uint64_t *seed)
{
    const double x_max = KL_X_ABS_MAX * 0x1p-11;
    const uint32_t n_row = KL_N_GATE * model->layer[0].n_hidden;
    const double *row = model->layer[0].w_x[tb_random_below(seed, n_row)];
    const uint32_t how = tb_random_below(seed, 8);
    const double direction = how & 1 ? 1 : -1;
    for (uint32_t k = 0; k < model->n_in; k++) {
        if (model->kind != TB_TYPICAL && how < 2) {
            x[k] = row[k] < 0 ? -direction * x_max : direction * x_max;
            continue;
        }
        const double scale = tb_random_below(seed, 16) ? 2.0 : 16.0;
        const double v = fmin(fabs(tb_random_real(seed)) * scale, x_max);
        /* binary16's step at v, at least the grid's, downwards: never above x_max. */
        int exponent;
        frexp(v, &exponent);
        const double step = fmax(ldexp(1.0, exponent - 11), 0x1p-11);
        x[k] = floor(v / step) * step * (tb_random_below(seed, 2) ? 1 : -1);
    }
}

/* A request that must be refused and must change nothing: the next comparison would show it. */
static int refused_request(const struct run *run, uint32_t s, uint64_t *seed)
{
    static const uint16_t bad_x[] = {0x7c00 /* inf */, 0xfe00 /* NaN */, 0x4c00 /* 16 */, 0x0001 /* 2^-24 */};
    struct kl_request request = {.abi_version = KL_ABI_VERSION,
                                 .op = KL_OP_STEP,
                                 .slot = (uint16_t)run->slot,
                                 .stream = run->stream[s]};
    request.x[tb_random_below(seed, run->model.n_in)] = bad_x[tb_random_below(seed, 4)];
    struct kl_result result;
    return execute(run, &request, &result) && expect_status(run, &result, KL_E_INPUT);
}

static int operation(struct run *run, uint32_t s, uint32_t op)
{
    const struct kl_request request = {.abi_version = KL_ABI_VERSION,
                                       .op = (uint16_t)op,
                                       .slot = (uint16_t)run->slot,
                                       .stream = run->stream[s]};
    struct kl_result result;
    if (!execute(run, &request, &result) || !expect_status(run, &result, KL_OK))
        return 0;
    run->prepared[s] = op == KL_OP_PREPARE;
    return 1;
}

static int step(struct run *run, uint64_t *seed)
{
    /* A SATURATE model has to stay on one stream to get anywhere. */
    const int stay = run->model.kind == TB_SATURATE && tb_random_below(seed, 8) != 0;
    const uint32_t s = stay ? 0 : tb_random_below(seed, N_STREAM);
    if (!stay && tb_random_below(seed, 64) == 0 && s != 0) {
        if (!operation(run, s, KL_OP_RESET))
            return 0;
        memset(&run->state[s], 0, sizeof run->state[s]);
        memset(&run->true_state[s], 0, sizeof run->true_state[s]);
    }
    if (tb_random_below(seed, 2) && !operation(run, s, KL_OP_PREPARE))
        return 0;
    if (tb_random_below(seed, 32) == 0 && !refused_request(run, s, seed))
        return 0;

    double x[KL_N_IN_MAX];
    draw_x(&run->model, x, seed);
    struct kl_request request = {.abi_version = KL_ABI_VERSION,
                                 .op = KL_OP_STEP,
                                 .slot = (uint16_t)run->slot,
                                 .stream = run->stream[s],
                                 .seq_no = run->n_step_done};
    for (uint32_t k = 0; k < KL_N_IN_MAX; k++)
        request.x[k] = k < run->model.n_in ? tb_half(x[k]) : 0x7c00; /* the rest is ignored */

    struct kl_result result;
    struct tb_answer answer, true_answer;
    const uint32_t cycles = kl_schedule_step_cycles(run->image, run->prepared[s]);
    tb_oracle_step(&run->model, &run->state[s], x, &answer);
    if (!execute(run, &request, &result) || !expect_status(run, &result, KL_OK) || !compare_state(run, s) ||
        !compare_answer(run, &result, &answer, cycles))
        return 0;
    run->prepared[s] = 0;
    run->n_step_done++;

    if (run->model.kind == TB_TYPICAL) {
        tb_true_step(&run->model, &run->true_state[s], x, &true_answer);
        run->n_flip += true_answer.cls != answer.cls;
        for (uint32_t l = 0; l < run->model.n_layer; l++) {
            for (uint32_t u = 0; u < run->model.layer[l].n_hidden; u++)
                run->h_error_max =
                    fmax(run->h_error_max, fabs(run->state[s].h[l][u] - run->true_state[s].h[l][u]));
        }
    }
    return 1;
}

static void draw_model(struct run *run, uint32_t number, uint64_t *seed)
{
    static const uint16_t hidden[] = {1, 3, 17, 64, 65, 100, 256};
    enum { N_HIDDEN = sizeof hidden / sizeof *hidden };
    static const uint16_t input[] = {1, 2, 16, 17, 32, 63, 64};
    enum { N_INPUT = sizeof input / sizeof *input };
    struct tb_model *model = &run->model;
    memset(run, 0, sizeof *run);
    run->number = number;
    run->slot = number % KL_N_SLOT;
    for (uint32_t s = 0; s < N_STREAM; s++)
        run->stream[s] = s == 0   ? 0
                         : s == 1 ? KL_N_STREAM_MAX - 1
                                  : 1 + (s - 2) * 100 + tb_random_below(seed, 100);
    /* Kinds and first-layer sizes in turn (5 and 7 are coprime), the rest at random. The first model is the
     * largest. */
    model->kind = (enum tb_kind)(number % TB_N_KIND);
    model->n_in = number == 0 ? KL_N_IN_MAX : input[tb_random_below(seed, N_INPUT)];
    model->n_class = number == 0 ? KL_N_CLASS_MAX : 1 + tb_random_below(seed, KL_N_CLASS_MAX);
    model->n_layer = number == 0 ? KL_N_LAYER_MAX : 1 + tb_random_below(seed, KL_N_LAYER_MAX);
    for (uint32_t l = 0; l < model->n_layer; l++)
        model->layer[l].n_hidden = number == 0 ? KL_N_HIDDEN_MAX
                                   : l == 0    ? hidden[number % N_HIDDEN]
                                               : hidden[tb_random_below(seed, N_HIDDEN)];
    tb_model_fill(model, seed);
}

static uint32_t n_step_of(const struct tb_model *model)
{
    if (model->kind == TB_SATURATE)
        return N_STEP_SATURATE;
    uint32_t n_mac = 0;
    for (uint32_t l = 0; l < model->n_layer; l++)
        n_mac +=
            KL_N_GATE * model->layer[l].n_hidden * (model->layer[l].n_operand + model->layer[l].n_hidden);
    const uint32_t n_step = MAC_BUDGET / n_mac;
    return n_step < N_STEP_MIN ? N_STEP_MIN : n_step > N_STEP_MAX ? N_STEP_MAX : n_step;
}

static int judge(const struct run *run)
{
    if (run->model.kind == TB_SATURATE && (run->c_abs_max != KL_C_ABS_MAX || run->h_abs_max != KL_H_ABS_MAX))
        return fail(run, "c and h never reached their bounds (c %.0f, h %.0f)", run->c_abs_max,
                    run->h_abs_max);
    if (run->model.kind == TB_TYPICAL && run->h_error_max > H_ERROR_MAX)
        return fail(run, "h is off the FP64 LSTM by %.1e, allowed %.1e", run->h_error_max, H_ERROR_MAX);
    if (run->model.kind == TB_TYPICAL && run->n_flip > FLIP_SHARE_MAX * run->n_step_done)
        return fail(run, "%u of %u classes differ from the FP64 LSTM", run->n_flip, run->n_step_done);
    return 1;
}

/* other: the model in the other slot, stepped now and then; NULL for the first. */
static int run_model(struct run *run, struct run *other, uint64_t *seed)
{
    if (!load(run))
        return 0;
    const uint32_t n_step = n_step_of(&run->model);
    while (run->n_step_done < n_step) {
        if (!step(run, seed))
            return 0;
        if (other && tb_random_below(seed, 8) == 0 && !step(other, seed))
            return 0;
    }
    if (!judge(run))
        return 0;
    const struct tb_model *model = &run->model;
    printf("PASS model %u %s %u", run->number, tb_kind_name[model->kind], model->n_in);
    for (uint32_t l = 0; l < model->n_layer; l++)
        printf("-%u", model->layer[l].n_hidden);
    printf("-%u slot %u: %u steps exact; cycles (modelled) step %u, unprepared %u, prepare %u",
           model->n_class, run->slot, run->n_step_done, kl_schedule_step_cycles(run->image, 1),
           kl_schedule_step_cycles(run->image, 0), kl_schedule_prepare_cycles(run->image));
    if (model->kind == TB_TYPICAL)
        printf("; against FP64: h within %.1e, %u classes differ", run->h_error_max, run->n_flip);
    printf("\n");
    return 1;
}

static int read_number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && *value <= max;
}

static int usage(FILE *out, int status)
{
    fprintf(out,
            "kl_tb: C testbench of the Killline kernel; exit status 0 only if every model passes.\n"
            "usage: kl_tb [--seed N] [--models N]\n"
            "  --seed N    of every random choice (default 1)\n"
            "  --models N  how many random models, 1 to 100000 (default %d)\n",
            N_MODEL_DEFAULT);
    return status;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"models", required_argument, NULL, 'm'},
                                            {NULL, 0, NULL, 0}};
    uint64_t seed = 1, n_model = N_MODEL_DEFAULT;
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (option == 'h')
            return usage(stdout, 0);
        if (!(option == 's' && read_number(optarg, UINT64_MAX, &seed)) &&
            !(option == 'm' && read_number(optarg, 100000, &n_model) && n_model > 0))
            return usage(stderr, 2);
    }
    if (optind != argc)
        return usage(stderr, 2);

    /* Whole lines for aligned_alloc; the runs are too large for the stack. */
    core = aligned_alloc(64, (kl_core_size_bytes() + 63) & ~(size_t)63);
    struct run *run[KL_N_SLOT] = {calloc(1, sizeof **run), calloc(1, sizeof **run)};
    if (!core || !run[0] || !run[1]) {
        fprintf(stderr, "kl_tb: out of memory\n");
        return 1;
    }
    kl_core_init(core);
    tb_oracle_init();

    uint32_t n_failed = 0;
    for (uint32_t number = 0; number < n_model; number++) {
        struct run *mine = run[number % KL_N_SLOT], *other = run[(number + 1) % KL_N_SLOT];
        free(mine->image);
        draw_model(mine, number, &seed);
        mine->image = tb_model_image(&mine->model);
        if (!mine->image) {
            fprintf(stderr, "kl_tb: out of memory\n");
            return 1;
        }
        n_failed += !run_model(mine, number > 0 ? other : NULL, &seed);
        fflush(stdout);
    }
    printf("%s: %u of %u models passed\n", n_failed ? "FAIL" : "PASS", (uint32_t)n_model - n_failed,
           (uint32_t)n_model);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        free(run[slot]->image);
        free(run[slot]);
    }
    free(core);
    return n_failed ? 1 : 0;
}
