/* Unit checks of activation, cell update and dense head. */
#include <math.h>
#include <string.h>

#include "activation.h"
#include "cell.h"
#include "head.h"
#include "kl_tb_unit.h"

static const int32_t LIMIT = 8 << KL_Z_FRAC;

static double sigma_of(double half_z)
{
    return floor((tb_oracle_tanh(half_z) + 32768.0) / 2.0);
}

/* T and sigma at x against the oracle's, and against the functions themselves: two roundings of half a step
 * (knot, value), and half of a chord's error, w^2/16 * 0.77. */
static void check_activation_at(int32_t x, struct tb_report *report)
{
    static const double error_max = 0x1p-15 + 1.2e-5;
    const int32_t t = activation_tanh(x), sigma = activation_sigma(x);
    report->n_case++;
    if (t != tb_oracle_tanh(x) || fabs(t * 0x1p-15 - tanh(x * 0x1p-20)) > error_max)
        tb_report_mismatch(report, "activation: T(%d * 2^-20) is %d, right %.0f", x, t, tb_oracle_tanh(x));
    if (sigma != sigma_of(x) || fabs(sigma * 0x1p-15 - 1 / (1 + exp(-2.0 * x * 0x1p-20))) > error_max)
        tb_report_mismatch(report, "activation: sigma from %d * 2^-20 is %d, right %.0f", x, sigma,
                           sigma_of(x));
}

void tb_unit_activation(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    enum { SEGMENT = 1 << (KL_Z_FRAC - 6), STEP = 61 };
    tb_oracle_init();
    for (int32_t k = -2; k <= KL_T_SEGMENTS + 2; k++) {
        for (int32_t d = -1; d <= 1; d++)
            check_activation_at(k * SEGMENT - LIMIT + d, report);
    }
    for (int32_t x = -LIMIT - 10 * STEP; x <= LIMIT + 10 * STEP; x += STEP)
        check_activation_at(x, report);
    for (int bit = 23; bit < 31; bit++) {
        check_activation_at(1 << bit, report);
        check_activation_at(-(1 << bit), report);
    }
    check_activation_at(INT32_MAX, report);
    check_activation_at(INT32_MIN, report);
    for (uint32_t n = 0; n < n_case; n++)
        check_activation_at((int32_t)tb_random_u64(&seed), report);
}

static void check_round_at(int64_t v, struct tb_report *report)
{
    if (v < -(1 << 30) || v > 1 << 30)
        return;
    const int32_t h = cell_round_h((int32_t)v);
    report->n_case++;
    if (h != tb_oracle_round_h((double)v))
        tb_report_mismatch(report, "cell update: %lld * 2^-30 rounds to h %d, right %.0f", (long long)v, h,
                           tb_oracle_round_h((double)v));
}

/* Every h there is, and every tie between two of them, each with both neighbours; and the range in steps. */
static void check_rounding(struct tb_report *report)
{
    for (int64_t grid = -(1 << 16); grid <= 1 << 16; grid++) {
        for (int64_t d = -1; d <= 1; d++)
            check_round_at(grid * (1 << 14) + d, report);
    }
    for (int64_t v = -(1 << 30); v <= 1 << 30; v += 997)
        check_round_at(v, report);
}

/* cell_update of whole lanes against binary64. */
static void check_update(const int32_t z[KL_CELL_LANES * KL_N_GATE], const int32_t before[KL_CELL_LANES],
                         struct tb_report *report)
{
    int32_t c[KL_CELL_LANES];
    int16_t h[KL_CELL_LANES];
    memcpy(c, before, sizeof c);
    cell_update(z, c, h);
    for (uint32_t u = 0; u < KL_CELL_LANES; u++) {
        const double i = sigma_of(z[4 * u]), f = sigma_of(z[4 * u + 1]), o = sigma_of(z[4 * u + 3]);
        const double sum = f * before[u] + i * tb_oracle_tanh(z[4 * u + 2]) * 8;
        const double c_right = fmin(fmax(floor(sum / 32768 + 0.5), -KL_C_ABS_MAX), KL_C_ABS_MAX);
        const double h_right = tb_oracle_round_h(o * tb_oracle_tanh(c_right * 4));
        report->n_case++;
        if (c[u] != c_right || h[u] != h_right)
            tb_report_mismatch(
                report,
                "cell update: lane %u, z i %d, f %d, g %d, o %d, c %d: c %d, h %d, right c %.0f, h "
                "%.0f",
                u, z[4 * u], z[4 * u + 1], z[4 * u + 2], z[4 * u + 3], before[u], c[u], h[u], c_right,
                h_right);
    }
}

/* c on either side of its bound, step by step: f as large as it goes, g either way. */
static void check_bounds(struct tb_report *report)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        int32_t z[KL_CELL_LANES * KL_N_GATE], c[KL_CELL_LANES];
        const double i = sigma_of(LIMIT), g = tb_oracle_tanh(sign * LIMIT);
        const double at_bound = floor((sign * 32768.0 * KL_C_ABS_MAX - i * g * 8) / 32767);
        for (uint32_t u = 0; u < KL_CELL_LANES; u++) {
            for (uint32_t gate = 0; gate < KL_N_GATE; gate++)
                z[KL_N_GATE * u + gate] = gate == 2 ? sign * LIMIT : LIMIT;
            c[u] = (int32_t)at_bound + (int32_t)u - KL_CELL_LANES / 2;
        }
        check_update(z, c, report);
    }
}

/* z of a gate: anything, often beyond its clamps or around 0. */
static int32_t draw_z(uint64_t *seed)
{
    switch (tb_random_below(seed, 6)) {
    case 0:
        return INT32_MAX;
    case 1:
        return INT32_MIN;
    case 2:
        return (int32_t)tb_random_u64(seed);
    default:
        return (int32_t)(tb_random_real(seed) * LIMIT);
    }
}

/* c, often at its limits or at the edges of T. */
static int32_t draw_c(uint64_t *seed)
{
    const int32_t sign = tb_random_below(seed, 2) ? 1 : -1;
    switch (tb_random_below(seed, 4)) {
    case 0:
        return sign * (KL_C_ABS_MAX - (int32_t)tb_random_below(seed, 4));
    case 1:
        /* One step more may cross the limit. */
        return sign * (KL_C_ABS_MAX - (int32_t)tb_random_below(seed, 1 << 19));
    case 2:
        return sign * ((8 << KL_C_FRAC) + (int32_t)tb_random_below(seed, 4000) - 2000);
    default:
        return (int32_t)(tb_random_real(seed) * ldexp(1.0, KL_C_FRAC + (int)tb_random_below(seed, 9)));
    }
}

void tb_unit_cell(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    tb_oracle_init();
    check_rounding(report);
    check_bounds(report);
    for (uint32_t n = 0; n < 64 + n_case; n++) {
        int32_t z[KL_CELL_LANES * KL_N_GATE], c[KL_CELL_LANES];
        for (uint32_t r = 0; r < KL_CELL_LANES * KL_N_GATE; r++)
            z[r] = draw_z(&seed);
        for (uint32_t u = 0; u < KL_CELL_LANES; u++)
            c[u] = draw_c(&seed);
        check_update(z, c, report);
    }
}

/* The first of the largest. */
static uint32_t argmax_of(const int64_t *logit, uint32_t n_class)
{
    uint32_t best = 0;
    for (uint32_t k = 1; k < n_class; k++) {
        if (logit[k] > logit[best])
            best = k;
    }
    return best;
}

static void check_argmax(const int64_t *logit, uint32_t n_class, struct tb_report *report)
{
    const uint32_t cls = head_argmax(logit, n_class);
    report->n_case++;
    if (cls != argmax_of(logit, n_class))
        tb_report_mismatch(report, "dense head: argmax of %u logits %lld, %lld, %lld ... is %u, right %u",
                           n_class, (long long)logit[0], (long long)logit[1], (long long)logit[2], cls,
                           argmax_of(logit, n_class));
}

/* Every pattern of logits out of three values: all orders and all ties. What lies beyond n_class is larger.
 */
static void check_orders(struct tb_report *report)
{
    static const int64_t value[3] = {-5, 0, (int64_t)1 << 52};
    for (uint32_t n_class = 1; n_class <= KL_N_CLASS_MAX; n_class++) {
        uint32_t n_pattern = 1;
        for (uint32_t k = 0; k < n_class; k++)
            n_pattern *= 3;
        for (uint32_t pattern = 0; pattern < n_pattern; pattern++) {
            int64_t logit[KL_N_CLASS_MAX];
            uint32_t rest = pattern;
            for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++, rest /= 3)
                logit[k] = k < n_class ? value[rest % 3] : INT64_MAX;
            check_argmax(logit, n_class, report);
        }
    }
}

void tb_unit_head(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    check_orders(report);
    for (uint32_t n = 0; n < n_case; n++) {
        int64_t logit[KL_N_CLASS_MAX], sum[KL_N_CLASS_MAX], before[KL_N_CLASS_MAX];
        for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
            before[k] = logit[k] = (int64_t)(tb_random_real(&seed) * 0x1p52);
            sum[k] = (int64_t)(tb_random_real(&seed) * 0x1p39);
        }
        head_accumulate(logit, sum);
        report->n_case++;
        for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
            if ((double)logit[k] != (double)before[k] + (double)sum[k])
                tb_report_mismatch(report, "dense head: logit %lld + %lld is %lld, right %.0f",
                                   (long long)before[k], (long long)sum[k], (long long)logit[k],
                                   (double)before[k] + (double)sum[k]);
        }
        check_argmax(logit, 1 + tb_random_below(&seed, KL_N_CLASS_MAX), report);
    }
}
