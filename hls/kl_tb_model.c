/* Random models and random inputs. */
#include <assert.h>
#include <math.h>

#include "kl_tb.h"

const char *const tb_kind_name[TB_N_KIND] = {"typical", "wide", "bound", "saturate", "zero"};

uint64_t tb_random_u64(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t tb_random_below(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(tb_random_u64(seed) % n);
}

double tb_random_real(uint64_t *seed)
{
    return (double)(int64_t)tb_random_u64(seed) * 0x1p-63;
}

/* v rounded to binary16's 11 significant bits (v is a multiple of a step it can hold). */
static double to_significand(double v)
{
    int exponent;
    const double fraction = frexp(v, &exponent);
    return ldexp(rint(fraction * 2048.0), exponent - 11);
}

/* What is left of a row's bound, in Q.20 steps; see kl_abi.h. */
struct row_budget {
    double left;
};

/* The block's bound in operand steps, for weights that are steps of the row's grid. */
static double block_bound(const double *steps, uint32_t n, double abs_max, int shift)
{
    double sum = 0;
    for (uint32_t k = 0; k < n; k++)
        sum += fabs(steps[k]);
    return sum * abs_max + floor(ldexp(0.5, shift));
}

/* Quantises n real weights to the finest grid that meets every bound; scale is halved until the row fits. */
static int quantise(const double *real, uint32_t n, int operand_frac, double abs_max,
                    struct row_budget *budget, double *w)
{
    const int frac_min = KL_Z_FRAC - operand_frac;
    for (double scale = 1.0;; scale /= 2) {
        for (int frac = KL_W_FRAC_MAX; frac >= frac_min; frac--) {
            const int shift = frac - frac_min;
            double steps[TB_N_OPERAND_MAX];
            int fits = 1;
            for (uint32_t k = 0; k < n; k++) {
                steps[k] = to_significand(rint(ldexp(real[k] * scale, frac)));
                fits &= fabs(steps[k]) <= 32767;
            }
            double used = 0;
            for (uint32_t from = 0; fits && from < n; from += KL_BLOCK) {
                const uint32_t size = n - from < KL_BLOCK ? n - from : KL_BLOCK;
                const double bound = block_bound(steps + from, size, abs_max, shift);
                fits &= bound <= INT32_MAX;
                used += floor(ldexp(bound, -shift));
            }
            if (!fits || used > budget->left)
                continue;
            budget->left -= used;
            for (uint32_t k = 0; k < n; k++)
                w[k] = ldexp(steps[k], -frac);
            return frac;
        }
    }
}

/* Fills a row so that each block's bound is as large as it may be: most weights small, some as large as they
 * come, the last one taking up the rest. */
static int fill_to_bound(uint32_t n, int operand_frac, double abs_max, struct row_budget *budget, double *w,
                         uint64_t *seed)
{
    const int frac_min = KL_Z_FRAC - operand_frac;
    const int frac = frac_min + (int)tb_random_below(seed, (uint32_t)(KL_W_FRAC_MAX - frac_min + 1));
    const int shift = frac - frac_min;
    for (uint32_t from = 0; from < n; from += KL_BLOCK) {
        const uint32_t size = n - from < KL_BLOCK ? n - from : KL_BLOCK;
        const double rounding = floor(ldexp(0.5, shift));
        const double bound = fmin(INT32_MAX, ldexp(budget->left + 1, shift) - 1);
        double steps_left = floor(fmax(bound - rounding, 0) / abs_max);
        double used = 0;
        for (uint32_t k = 0; k < size; k++) {
            double steps = tb_random_below(seed, 4) ? tb_random_below(seed, 2048) : 32752;
            if (steps > steps_left || k == size - 1)
                steps = steps_left < 2048 ? steps_left : fmin(floor(steps_left / 16) * 16, 32752);
            steps_left -= steps;
            used += steps;
            w[from + k] = ldexp(tb_random_below(seed, 2) ? steps : -steps, -frac);
        }
        budget->left -= floor(ldexp(used * abs_max + rounding, -shift));
        assert(budget->left >= 0);
    }
    return frac;
}

static void fill_row(const struct tb_model *model, struct tb_layer *layer, uint32_t r, int first_layer,
                     uint64_t *seed)
{
    const double half = r % KL_N_GATE == 2 ? 1.0 : 0.5; /* rows i, f, o at half scale */
    const double sign = tb_random_below(seed, 2) ? 1 : -1;
    const int x_frac = first_layer ? KL_X_FRAC : KL_H_FRAC;
    const double x_abs_max = first_layer ? KL_X_ABS_MAX : KL_H_ABS_MAX;
    double scale = half / sqrt((double)layer->n_hidden);
    switch (model->kind) {
    case TB_TYPICAL:
        layer->bias[r] = rint(tb_random_real(seed) * scale * 0x1p20);
        break;
    case TB_WIDE:
        scale = ldexp(1.0, (int)tb_random_below(seed, 20) - 14);
        layer->bias[r] = rint(ldexp(tb_random_real(seed), 8 + (int)tb_random_below(seed, 23)));
        break;
    case TB_BOUND:
        layer->bias[r] = 0;
        break;
    case TB_SATURATE:
        scale = 0x1p-20;
        layer->bias[r] = r % KL_N_GATE == 2 ? sign * 0x1p25 : 0x1p25;
        break;
    default: /* TB_ZERO */
        scale = 0;
        layer->bias[r] = 0;
        break;
    }
    struct row_budget budget = {INT32_MAX - fabs(layer->bias[r])};
    if (model->kind == TB_BOUND) {
        /* Sometimes x gets all of it, sometimes h: the two halves of the budget are not shared evenly. */
        struct row_budget x_budget = {floor(budget.left * (tb_random_real(seed) + 1) / 2)};
        budget.left -= x_budget.left;
        layer->x_frac[r] = fill_to_bound(layer->n_operand, x_frac, x_abs_max, &x_budget, layer->w_x[r], seed);
        budget.left += x_budget.left;
        layer->h_frac[r] =
            fill_to_bound(layer->n_hidden, KL_H_FRAC, KL_H_ABS_MAX, &budget, layer->w_h[r], seed);
        layer->bias[r] = sign * budget.left; /* the row's bound is 2^31 - 1 now */
        return;
    }
    double real[TB_N_OPERAND_MAX];
    for (uint32_t k = 0; k < layer->n_operand; k++)
        real[k] = tb_random_real(seed) * scale;
    layer->x_frac[r] = quantise(real, layer->n_operand, x_frac, x_abs_max, &budget, layer->w_x[r]);
    for (uint32_t k = 0; k < layer->n_hidden; k++)
        real[k] = tb_random_real(seed) * scale;
    layer->h_frac[r] = quantise(real, layer->n_hidden, KL_H_FRAC, KL_H_ABS_MAX, &budget, layer->w_h[r]);
}

static void fill_head(struct tb_model *model, uint64_t *seed)
{
    const uint32_t n_hidden = model->layer[model->n_layer - 1].n_hidden;
    /* TYPICAL's logits spread like a network's; the other kinds use the whole range of head_frac. */
    model->head_frac = model->kind == TB_TYPICAL ? 13 : (int)tb_random_below(seed, KL_W_FRAC_MAX + 1);
    const double steps_max = model->kind == TB_TYPICAL ? 8191 : model->kind == TB_ZERO ? 0 : 32752;
    const double bias_max = model->kind == TB_TYPICAL ? 0x1p26 : model->kind == TB_ZERO ? 0 : 0x1p52;
    for (uint32_t k = 0; k < model->n_class; k++) {
        const int copy = k > 0 && tb_random_below(seed, 4) == 0; /* a tie with the class before */
        model->head_bias[k] = copy ? model->head_bias[k - 1] : rint(tb_random_real(seed) * bias_max);
        for (uint32_t u = 0; u < n_hidden; u++)
            model->head_w[k][u] =
                copy ? model->head_w[k - 1][u]
                     : ldexp(to_significand(rint(tb_random_real(seed) * steps_max)), -model->head_frac);
    }
}

void tb_model_fill(struct tb_model *model, uint64_t *seed)
{
    uint32_t n_operand = model->n_in;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        struct tb_layer *layer = &model->layer[l];
        layer->n_operand = n_operand;
        for (uint32_t r = 0; r < KL_N_GATE * layer->n_hidden; r++)
            fill_row(model, layer, r, l == 0, seed);
        n_operand = layer->n_hidden;
    }
    fill_head(model, seed);
}

void tb_random_x(const struct tb_model *model, double *x, uint64_t *seed)
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
