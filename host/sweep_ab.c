/* Live A/B: two thresholds at a time, split by symbol.
 *
 * The z test takes predictions for independent. They are not: those of one symbol share its liquidity, its
 * volatility and its bursts, and whole symbols were assigned to an arm. So the intervals resample symbols,
 * and it is these that decide. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sweep_stats.h"

int sweep_two_proportions(int64_t hits_a, int64_t n_a, int64_t hits_b, int64_t n_b, double *z,
                          double *p_value)
{
    if (n_a <= 0 || n_b <= 0)
        return -1;
    const double a = (double)hits_a / (double)n_a, b = (double)hits_b / (double)n_b,
                 pooled = ((double)hits_a + (double)hits_b) / ((double)n_a + (double)n_b),
                 variance = pooled * (1 - pooled) * (1 / (double)n_a + 1 / (double)n_b);
    if (variance <= 0)
        return -1;
    *z = (b - a) / sqrt(variance);
    *p_value = erfc(fabs(*z) / sqrt(2));
    return 0;
}

/* One figure of a row: numerator and denominator. */
static void figure_of(const struct sweep_arm_row *row, int which, int64_t *numerator, int64_t *denominator)
{
    *numerator = which == SWEEP_AB_PUBLISHED ? row->published
                 : which == SWEEP_AB_HITS    ? row->hits
                                             : row->value;
    *denominator = which == SWEEP_AB_PUBLISHED ? row->line : row->known;
}

static void test_of(const struct sweep_sums *s, const struct sweep_arm_row *row, uint32_t n_row, int which,
                    int is_too_small, struct sweep_ab_test *t)
{
    const double scale = which == SWEEP_AB_VALUE ? SWEEP_USD_PER_UNIT : 1;
    const uint32_t n = s->spec.n_replicate;
    int64_t numerator, denominator;
    *t = (struct sweep_ab_test){0};
    for (uint32_t i = 0; i < n_row; i++) {
        figure_of(&row[i], which, &numerator, &denominator);
        t->hits[row[i].is_b] += numerator;
        t->n[row[i].is_b] += denominator;
    }
    t->has_rate = t->n[0] > 0 && t->n[1] > 0;
    if (!t->has_rate)
        return;
    for (int b = 0; b < 2; b++)
        t->rate[b] = scale * (double)t->hits[b] / (double)t->n[b];
    t->difference.value = t->rate[1] - t->rate[0];
    t->difference.has_value = 1;
    if (which != SWEEP_AB_VALUE)
        t->has_z = !sweep_two_proportions(t->hits[0], t->n[0], t->hits[1], t->n[1], &t->z, &t->p_value);
    double x[SWEEP_REPLICATES_MAX], sum = 0, square = 0;
    for (uint32_t r = 0; r < n; r++) {
        double hits[2] = {0}, count[2] = {0};
        for (uint32_t i = 0; i < n_row; i++) {
            uint64_t symbol;
            memcpy(&symbol, row[i].symbol, sizeof(symbol));
            /* A symbol is one cluster, in whatever logs and arms it comes. */
            const double w = sweep_weight(sweep_block_key(s->spec.seed, 0, symbol, 0), r);
            figure_of(&row[i], which, &numerator, &denominator);
            hits[row[i].is_b] += w * (double)numerator;
            count[row[i].is_b] += w * (double)denominator;
        }
        if (!(count[0] > 0 && count[1] > 0))
            return; /* so few symbols that a replicate can be empty */
        x[r] = scale * (hits[1] / count[1] - hits[0] / count[0]);
        sum += x[r];
        square += x[r] * x[r];
    }
    const double mean = sum / n, deviation = sqrt(fmax(square / n - mean * mean, 0));
    /* Normal quantiles of 97.5 % and 80 %. */
    t->detectable = (1.959963985 + 0.841621234) * deviation;
    if (is_too_small)
        return;
    sweep_percentiles(x, n, &t->difference.low, &t->difference.high);
    t->difference.has_interval = 1;
}

uint32_t sweep_ab_of(const struct sweep_sums *s, uint32_t first_row, struct sweep_ab *ab)
{
    const struct sweep_arm_row *row = &s->row[first_row];
    uint32_t n = 0;
    *ab = (struct sweep_ab){.arms = row->arms};
    while (first_row + n < s->n_row && memcmp(&row[n].arms, &ab->arms, sizeof(ab->arms)) == 0)
        ab->n_symbol[row[n++].is_b]++;
    ab->is_too_small = ab->n_symbol[0] < SWEEP_AB_MIN_SYMBOLS || ab->n_symbol[1] < SWEEP_AB_MIN_SYMBOLS;
    for (int which = 0; which < SWEEP_N_AB; which++)
        test_of(s, row, n, which, ab->is_too_small, &ab->test[which]);
    return n;
}
