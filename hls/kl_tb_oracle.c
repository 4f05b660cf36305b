#include <math.h>

#include "kl_tb.h"

static double knot[KL_T_SEGMENTS + 1]; /* Q0.15 steps */

void tb_oracle_init(void)
{
    const double w = 1.0 / 64;
    for (int k = 0; k <= KL_T_SEGMENTS; k++) {
        const double y = tanh(k * w - 8.0);
        const double second_derivative = -2.0 * y * (1.0 - y * y);
        const double steps = floor((y - w * w / 16 * second_derivative) * 32768.0 + 0.5);
        knot[k] = fmin(fmax(steps, -32768.0), 32767.0);
    }
}

double tb_oracle_tanh(double x_q20)
{
    const double position = (fmin(fmax(x_q20 * 0x1p-20, -8.0), 8.0) + 8.0) * 64.0;
    const int k = (int)fmin(floor(position), KL_T_SEGMENTS - 1);
    return knot[k] + floor((knot[k + 1] - knot[k]) * (position - k) + 0.5);
}

/* sigma in Q0.15 steps from half its argument. */
static double sigma_steps(double half_z_q20)
{
    return floor((tb_oracle_tanh(half_z_q20) + 32768.0) / 2.0);
}

/* To the binary16 value on the 2^-15 grid nearest to v, ties to even (rint in the default rounding mode). */
double tb_oracle_round_h(double v_q30)
{
    const double v = v_q30 * 0x1p-30;
    int exponent; /* v = m * 2^exponent, m in [1/2, 1): binary16's step there is 2^(exponent - 11) */
    frexp(v, &exponent);
    const double step = fmax(ldexp(1.0, exponent - 11), 0x1p-15);
    const double h = rint(v / step) * step;
    return fmin(fmax(h, -(1.0 - 0x1p-11)), 1.0 - 0x1p-11) * 0x1p15;
}

/* Partial sums side by side are what a compiler can vectorise; the contract's are exact in any order. */
static double dot(const double *w, const double *v, uint32_t n)
{
    enum { N_PARTIAL = 16 };
    double partial[N_PARTIAL] = {0}, sum = 0;
    for (; n >= N_PARTIAL; n -= N_PARTIAL, w += N_PARTIAL, v += N_PARTIAL) {
        for (int i = 0; i < N_PARTIAL; i++)
            partial[i] += w[i] * v[i];
    }
    for (uint32_t k = 0; k < n; k++)
        sum += w[k] * v[k];
    for (int width = N_PARTIAL / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++)
            partial[i] += partial[i + width];
    }
    return sum + partial[0];
}

double tb_oracle_product(const double *w, const double *v, uint32_t n)
{
    double sum = 0;
    for (uint32_t from = 0; from < n; from += 64)
        sum += floor(dot(w + from, v + from, n - from < 64 ? n - from : 64) * 0x1p20 + 0.5);
    return sum;
}

static void answer_from(const struct tb_model *model, const double *h, double scale, struct tb_answer *answer)
{
    const uint32_t n_hidden = model->layer[model->n_layer - 1].n_hidden;
    const double bias_scale = scale / ldexp(1.0, model->head_frac + KL_H_FRAC);
    answer->cls = 0;
    for (uint32_t k = 0; k < model->n_class; k++) {
        answer->logit[k] = model->head_bias[k] * bias_scale;
        for (uint32_t u = 0; u < n_hidden; u++)
            answer->logit[k] += model->head_w[k][u] * h[u] * scale;
        if (answer->logit[k] > answer->logit[answer->cls])
            answer->cls = k;
    }
}

void tb_oracle_step(const struct tb_model *model, struct tb_state *state, const double *x,
                    struct tb_answer *answer)
{
    const double *operands = x;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const struct tb_layer *layer = &model->layer[l];
        double next[KL_N_HIDDEN_MAX]; /* h must stay as it was until every row has seen it */
        for (uint32_t u = 0; u < layer->n_hidden; u++) {
            double *z = &answer->z[l][KL_N_GATE * u];
            for (uint32_t gate = 0; gate < KL_N_GATE; gate++) {
                const uint32_t r = KL_N_GATE * u + gate;
                z[gate] = layer->bias[r] + tb_oracle_product(layer->w_x[r], operands, layer->n_operand) +
                          tb_oracle_product(layer->w_h[r], state->h[l], layer->n_hidden);
            }
            const double i = sigma_steps(z[0]), f = sigma_steps(z[1]);
            const double g = tb_oracle_tanh(z[2]), o = sigma_steps(z[3]);
            const double c = floor((f * state->c[l][u] + i * g * 8.0) / 32768.0 + 0.5);
            state->c[l][u] = fmin(fmax(c, -0x1p26), 0x1p26);
            next[u] = tb_oracle_round_h(o * tb_oracle_tanh(state->c[l][u] * 4.0)) * 0x1p-15;
        }
        for (uint32_t u = 0; u < layer->n_hidden; u++)
            state->h[l][u] = next[u];
        operands = state->h[l];
    }
    answer_from(model, operands, ldexp(1.0, model->head_frac + KL_H_FRAC), answer);
}

static double sigma(double z)
{
    return 1.0 / (1.0 + exp(-z));
}

void tb_true_step(const struct tb_model *model, struct tb_state *state, const double *x,
                  struct tb_answer *answer)
{
    const double *operands = x;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const struct tb_layer *layer = &model->layer[l];
        double next[KL_N_HIDDEN_MAX];
        for (uint32_t u = 0; u < layer->n_hidden; u++) {
            double z[KL_N_GATE];
            for (uint32_t gate = 0; gate < KL_N_GATE; gate++) {
                const uint32_t r = KL_N_GATE * u + gate;
                z[gate] = layer->bias[r] * 0x1p-20 + dot(layer->w_x[r], operands, layer->n_operand) +
                          dot(layer->w_h[r], state->h[l], layer->n_hidden);
            }
            /* Rows i, f and o are stored at half scale. */
            state->c[l][u] = sigma(2 * z[1]) * state->c[l][u] + sigma(2 * z[0]) * tanh(z[2]);
            next[u] = sigma(2 * z[3]) * tanh(state->c[l][u]);
        }
        for (uint32_t u = 0; u < layer->n_hidden; u++)
            state->h[l][u] = next[u];
        operands = state->h[l];
    }
    answer_from(model, operands, 1.0, answer);
}
