#include "cell.h"

#include "activation.h"
#include "kl_pragma.h"

int32_t cell_round_h(int32_t v_q30)
{
    enum { TO_GRID = 30 - KL_H_FRAC, FIRST_BINADE = 26, N_BINADE = 4 };
    const uint32_t magnitude = (uint32_t)(v_q30 < 0 ? -v_q30 : v_q30);
    /* binary16 has 11 significant bits: from 2^-4 (2^26 here) on, its step doubles per binade above the
     * grid's. */
    uint32_t step_bits = TO_GRID;
binade:
    for (int b = 0; b < N_BINADE; b++) {
        KL_PRAGMA(HLS UNROLL)
        step_bits += magnitude >> (FIRST_BINADE + b) != 0;
    }
    const uint32_t odd = (magnitude >> step_bits) & 1u;
    const uint32_t steps = (magnitude + (1u << (step_bits - 1)) - 1u + odd) >> step_bits;
    const uint32_t grid = steps << (step_bits - TO_GRID);
    const int32_t bounded = grid > KL_H_ABS_MAX ? KL_H_ABS_MAX : (int32_t)grid;
    return v_q30 < 0 ? -bounded : bounded;
}

void cell_update(const int32_t z[KL_CELL_LANES * KL_N_GATE], int32_t c[KL_CELL_LANES],
                 int16_t h[KL_CELL_LANES])
{
unit:
    for (int u = 0; u < KL_CELL_LANES; u++) {
        /* A lane per unit, a part per cycle: the caller's loop is at II = 1. */
        KL_PRAGMA(HLS UNROLL)
        const int32_t *row = &z[u * KL_N_GATE];
        const int32_t i = activation_sigma(row[0]);
        const int32_t f = activation_sigma(row[1]);
        const int32_t g = activation_tanh(row[2]);
        const int32_t o = activation_sigma(row[3]);
        /* c has 28 bits only at its upper bound, 2^26, which is taken apart: f * c is one DSP slice of 27 x
         * 18 bits. The casts tell a synthesis tool the widths. */
        const int32_t at_top = c[u] == KL_C_ABS_MAX;
        const int32_t c_low = (int32_t)((uint32_t)(c[u] - at_top) << 5) >> 5;
        /* Q0.15 * Q.18 = Q.33; i * g is Q0.30 and comes up to it. |f * c| < 2^41. */
        const int32_t i_g = (int16_t)i * (int16_t)g;
        const int64_t sum = (int64_t)(int16_t)f * c_low + (at_top ? f : 0) + (int64_t)i_g * 8 + (1 << 14);
        const int64_t next = sum >> 15;
        c[u] = next > KL_C_ABS_MAX ? KL_C_ABS_MAX : next < -KL_C_ABS_MAX ? -KL_C_ABS_MAX : (int32_t)next;
        /* T clamps far below c's bound, so it need not wait for the saturation. |next| < 2^27. */
        const int32_t t = activation_tanh((int32_t)next * (1 << (KL_Z_FRAC - KL_C_FRAC)));
        h[u] = (int16_t)cell_round_h((int16_t)o * (int16_t)t);
    }
}
