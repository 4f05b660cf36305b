/* Unit checks of operand fetch, MAC array and block rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kl_tb_unit.h"
#include "mac.h"

/* Whether a binary16 pattern is an input by the number contract, and its steps. */
static int x_steps(uint16_t bits, int32_t *steps)
{
    const double v = tb_half_value(bits) * 0x1p11;
    if (!(fabs(v) <= KL_X_ABS_MAX) || v != floor(v))
        return 0;
    *steps = (int32_t)v;
    return 1;
}

/* Every binary16 pattern through every lane's conversion; what lies beyond n_in must not be looked at. */
static void check_x_patterns(struct tb_report *report)
{
    uint16_t x[KL_N_IN_MAX];
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
        const uint32_t lane = bits % KL_MAC_COLS, col = bits % (KL_BUILD_IN / KL_MAC_COLS);
        const uint32_t at = col * KL_MAC_COLS + lane;
        struct operand_step step;
        int32_t expected = 0;
        const int good = x_steps((uint16_t)bits, &expected);
        memset(x, 0, sizeof x);
        x[at] = (uint16_t)bits;
        report->n_case += 2;
        if (operand_fetch_x(x, at + 1, col, &step) != good || (good && step.v[lane] != expected))
            tb_report_mismatch(report,
                               "operand fetch: binary16 %04x, column step %u, lane %u: %d steps, right: "
                               "%s %d",
                               bits, col, lane, step.v[lane], good ? "" : "refused", expected);
        if (!operand_fetch_x(x, at, col, &step) || step.v[lane] != 0)
            tb_report_mismatch(report, "operand fetch: binary16 %04x at %u, beyond n_in, is not taken as 0",
                               bits, at);
    }
}

/* Whole vectors of x and h, at every column step. */
static void check_vectors(uint64_t *seed, uint32_t n_case, struct tb_report *report)
{
    static int16_t h[KL_N_COL][KL_MAC_COLS];
    uint16_t x[KL_N_IN_MAX];
    for (uint32_t n = 0; n < n_case; n++) {
        struct operand_step step;
        const uint32_t n_in = 1 + tb_random_below(seed, KL_BUILD_IN);
        for (uint32_t k = 0; k < KL_N_IN_MAX; k++)
            x[k] = (uint16_t)tb_random_u64(seed);
        /* Most vectors are good ones. */
        for (uint32_t k = 0; k < n_in; k++) {
            int32_t steps;
            while (!x_steps(x[k], &steps) && tb_random_below(seed, 100 * n_in) != 0)
                x[k] = (uint16_t)tb_random_u64(seed);
        }
        for (uint32_t k = 0; k < KL_OPERANDS; k++)
            h[k / KL_MAC_COLS][k % KL_MAC_COLS] = (int16_t)tb_random_u64(seed);
        report->n_case++;
        for (uint32_t col = 0; col < KL_BUILD_IN / KL_MAC_COLS; col++) {
            int32_t expected[KL_MAC_COLS] = {0};
            int good = 1;
            for (uint32_t k = 0; k < KL_MAC_COLS && col * KL_MAC_COLS + k < n_in; k++)
                good &= x_steps(x[col * KL_MAC_COLS + k], &expected[k]);
            const int taken = operand_fetch_x(x, n_in, col, &step);
            uint32_t k = 0;
            while (good && k < KL_MAC_COLS && step.v[k] == expected[k])
                k++;
            if (taken != good || (good && k < KL_MAC_COLS))
                tb_report_mismatch(report,
                                   "operand fetch: n_in %u, column step %u, lane %u is wrong, taken %d", n_in,
                                   col, k, taken);
        }
        for (uint32_t col = 0; col < KL_N_COL; col++) {
            operand_fetch_h((const int16_t(*)[KL_MAC_COLS])h, col, &step);
            if (memcmp(step.v, h[col], sizeof h[col]) != 0)
                tb_report_mismatch(report, "operand fetch: column step %u of h is wrong", col);
        }
    }
}

void tb_unit_operand(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    check_x_patterns(report);
    check_vectors(&seed, n_case / 10, report);
}

/* A weight or operand: anything, often at a bound. */
static int16_t draw_int16(uint64_t *seed, int32_t abs_max)
{
    switch (tb_random_below(seed, 4)) {
    case 0:
        return (int16_t)abs_max;
    case 1:
        return (int16_t)-abs_max;
    default:
        return (int16_t)((int32_t)tb_random_below(seed, 2 * (uint32_t)abs_max + 1) - abs_max);
    }
}

void tb_unit_mac(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    static mac_word w;
    for (uint32_t n = 0; n < n_case; n++) {
        struct operand_step step;
        int32_t sum[KL_MAC_ROWS];
        int64_t wide[KL_N_CLASS_MAX];
        for (uint32_t k = 0; k < KL_MAC_COLS; k++)
            step.v[k] = draw_int16(&seed, 32752);
        for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
            /* What a proven row can hold: its products sum up to int32 at most. From a random column on,
             * every other row with weights small enough for all columns to have one. */
            const uint32_t from = tb_random_below(&seed, KL_MAC_COLS);
            int64_t left = INT32_MAX / 32752;
            for (uint32_t i = 0; i < KL_MAC_COLS; i++) {
                const uint32_t k = (from + i) % KL_MAC_COLS;
                int16_t weight = draw_int16(&seed, r / 2 % 2 ? 32767 : 65567 / KL_MAC_COLS);
                if (abs(weight) > left)
                    weight = (int16_t)left;
                left -= abs(weight);
                /* Half of the rows go as far as they can to one side. */
                w[r][k] = r % 2 && (weight < 0) != (step.v[k] < 0) ? (int16_t)-weight : weight;
            }
        }
        mac_array(w, &step, sum, wide);
        report->n_case++;
        for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
            double exact = 0;
            for (uint32_t k = 0; k < KL_MAC_COLS; k++)
                exact += (double)w[r][k] * step.v[k];
            if (sum[r] != exact)
                tb_report_mismatch(report, "MAC array: case %u, row %u: %d, right %.0f", n, r, sum[r], exact);
        }
    }
}

void tb_unit_head_rows(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    static mac_word w; /* zero but for the head's rows */
    for (uint32_t n = 0; n < n_case; n++) {
        struct operand_step step;
        int64_t sum[KL_N_CLASS_MAX];
        int32_t row_sum[KL_MAC_ROWS];
        const int same_sign = n % 2; /* beyond int32, on either side */
        for (uint32_t k = 0; k < KL_MAC_COLS; k++)
            step.v[k] = draw_int16(&seed, 32752);
        for (uint32_t r = 0; r < KL_N_CLASS_MAX; r++) {
            for (uint32_t k = 0; k < KL_MAC_COLS; k++) {
                w[r][k] = draw_int16(&seed, 32767);
                if (same_sign && (w[r][k] < 0) != ((step.v[k] < 0) != (r % 2)))
                    w[r][k] = (int16_t)-w[r][k];
            }
        }
        mac_array(w, &step, row_sum, sum);
        report->n_case++;
        for (uint32_t r = 0; r < KL_N_CLASS_MAX; r++) {
            double exact = 0;
            for (uint32_t k = 0; k < KL_MAC_COLS; k++)
                exact += (double)w[r][k] * step.v[k];
            if ((double)sum[r] != exact)
                tb_report_mismatch(report, "MAC array, head rows: case %u, row %u: %lld, right %.0f", n, r,
                                   (long long)sum[r], exact);
        }
    }
}

/* One block of a row for every shift: sums that go to the bound, ties, either sign; all four combinations of
 * its first and last column step. */
void tb_unit_rounding(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    enum { SHIFT_MAX = KL_W_FRAC_MAX + KL_H_FRAC - KL_Z_FRAC };
    const uint32_t n_round = 32 + n_case;
    for (uint32_t n = 0; n < n_round; n++) {
        uint8_t shift[KL_MAC_ROWS];
        int32_t acc[KL_MAC_ROWS], z[KL_MAC_ROWS], sum[KL_MAC_ROWS];
        double block[KL_MAC_ROWS], right[KL_MAC_ROWS];
        for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
            shift[r] = (uint8_t)((r + n) % (SHIFT_MAX + 1));
            /* As large as a proven row lets it be beside the block. */
            z[r] = (int32_t)(tb_random_real(&seed) * (INT32_MAX - ldexp(INT32_MAX, -shift[r])));
            right[r] = z[r];
            block[r] = 0;
            acc[r] = (int32_t)tb_random_u64(&seed); /* of the block before: must not matter */
        }
        const uint32_t n_col = 1 + n % KL_BLOCK_COLS;
        for (uint32_t col = 0; col < n_col; col++) {
            for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
                const double half = ldexp(0.5, shift[r]);
                const double to_tie = floor(block[r] / (2 * half)) * 2 * half + half - block[r];
                const uint32_t how = tb_random_below(&seed, 4);
                double v = floor(tb_random_real(&seed) * 0x1p31);
                if (how == 0 && shift[r] > 0) /* exactly a tie, or a step below it */
                    v = to_tie - tb_random_below(&seed, 2);
                else if (how == 1) /* as far as the block's bound allows */
                    v = tb_random_below(&seed, 2) ? 0x1p31 : -0x1p31;
                v = fmin(v, INT32_MAX - floor(half) - block[r]);
                v = fmax(v, -(double)INT32_MAX + floor(half) - block[r]);
                v = fmin(fmax(v, INT32_MIN), INT32_MAX);
                sum[r] = (int32_t)v;
                block[r] += v;
            }
            mac_round_block(sum, shift, col == 0, col == n_col - 1, acc, z);
            report->n_case++;
            for (uint32_t r = 0; r < KL_MAC_ROWS; r++) {
                if (col == n_col - 1)
                    right[r] += floor(ldexp(block[r], -shift[r]) + 0.5);
                if (z[r] != right[r])
                    tb_report_mismatch(
                        report,
                        "block rounding: case %u, row %u, shift %u, column step %u of %u: z %d, "
                        "right %.0f",
                        n, r, shift[r], col, n_col, z[r], right[r]);
            }
        }
    }
}
