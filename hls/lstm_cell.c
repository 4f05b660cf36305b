#include "lstm_cell.h"

#include "activation.h"
#include "kl_pragma.h"

/* II of the two loops over weight words: a row reads KL_MAC_COLS of a block's 64 weights per cycle, which is
 * the width of its memory and the number of its multipliers. */
static_assert(KL_BLOCK == 4 * KL_MAC_COLS, "the II = 4 in the pragmas below");

/* Exact in any order: the block's bound was proved. Natively this loop becomes vpmaddwd. */
static inline int32_t dot(const int16_t *w, const int16_t *v)
{
    int32_t sum = 0;
column:
    for (int k = 0; k < KL_BLOCK; k++) {
        KL_PRAGMA(HLS UNROLL) /* shared by II = 4 of the caller: 16 multipliers */
        sum += w[k] * v[k];
    }
    return sum;
}

/* z[r] += round(w.v / 2^shift[r]), half up, for every row of a group. */
static inline void multiply(int32_t z[KL_MAC_ROWS], const struct lstm_weights *weights,
                            const struct lstm_operands *operands, const uint8_t shift[KL_MAC_ROWS])
{
row:
    for (int r = 0; r < KL_MAC_ROWS; r++) {
        KL_PRAGMA(HLS UNROLL)
        const int32_t half = (int32_t)((1u << shift[r]) >> 1);
        z[r] += (dot(weights->w[r], operands->v) + half) >> shift[r];
    }
}

int32_t lstm_round_h(int32_t v_q30)
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

void lstm_update(const int32_t z[KL_MAC_ROWS], int32_t c[KL_GROUP_UNITS], int16_t h[KL_GROUP_UNITS])
{
unit:
    for (int u = 0; u < KL_GROUP_UNITS; u++) {
        KL_PRAGMA(HLS UNROLL)
        const int32_t *row = &z[u * KL_N_GATE];
        const int32_t i = activation_sigma(row[0]);
        const int32_t f = activation_sigma(row[1]);
        const int32_t g = activation_tanh(row[2]);
        const int32_t o = activation_sigma(row[3]);
        /* Q0.15 * Q.18 = Q.33; i * g is Q0.30 and comes up to it. |f * c| < 2^41. */
        const int64_t sum = (int64_t)f * c[u] + (int64_t)(i * g) * 8 + (1 << 14);
        const int64_t next = sum >> 15;
        c[u] = next > KL_C_ABS_MAX ? KL_C_ABS_MAX : next < -KL_C_ABS_MAX ? -KL_C_ABS_MAX : (int32_t)next;
        h[u] = (int16_t)lstm_round_h(o * activation_tanh(c[u] * (1 << (KL_Z_FRAC - KL_C_FRAC))));
    }
}

void lstm_prepare(int32_t z[KL_N_GROUP_MAX][KL_MAC_ROWS], const int32_t bias[KL_N_GROUP_MAX][KL_MAC_ROWS],
                  const struct lstm_weights *weights, const struct lstm_operands *h,
                  const uint8_t shift[KL_N_GROUP_MAX][KL_MAC_ROWS], struct lstm_shape shape)
{
    int32_t sum[KL_MAC_ROWS];
    KL_PRAGMA(HLS ARRAY_PARTITION variable = sum complete)
    uint32_t group = 0, block = 0;
prepare_word:
    for (uint32_t word = 0; word < shape.n_group * shape.n_block; word++) {
        /* II = 4, see above. Groups and blocks in one loop, so that the pipeline drains once per layer; the
         * only carried dependence, sum[r] +=, is one adder. */
        KL_PRAGMA(HLS PIPELINE II = 4)
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 128)
    load:
        for (int r = 0; r < KL_MAC_ROWS; r++) {
            KL_PRAGMA(HLS UNROLL)
            sum[r] = block == 0 ? bias[group][r] : sum[r];
        }
        multiply(sum, &weights[word], &h[block], shift[group]);
    store:
        for (int r = 0; r < KL_MAC_ROWS; r++) {
            KL_PRAGMA(HLS UNROLL)
            z[group][r] = sum[r]; /* the last block's write stays */
        }
        block++;
        if (block == shape.n_block) {
            block = 0;
            group++;
        }
    }
}

void lstm_step(struct lstm_operands *h, int32_t c[KL_N_GROUP_MAX][KL_GROUP_UNITS],
               const int32_t z_h[KL_N_GROUP_MAX][KL_MAC_ROWS], const struct lstm_weights *weights,
               const struct lstm_operands *x, const uint8_t shift[KL_N_GROUP_MAX][KL_MAC_ROWS],
               struct lstm_shape shape)
{
    int32_t z[KL_MAC_ROWS];
    KL_PRAGMA(HLS ARRAY_PARTITION variable = z complete)
    uint32_t group = 0, block = 0;
step_word:
    for (uint32_t word = 0; word < shape.n_group * shape.n_block; word++) {
        /* II = 4 as above; the cell update of a group streams behind its last block in the same pipeline, 8
         * units in 4 cycles. x is not h, and a group is updated once. */
        KL_PRAGMA(HLS PIPELINE II = 4)
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 128)
        KL_PRAGMA(HLS DEPENDENCE variable = h inter false)
        KL_PRAGMA(HLS DEPENDENCE variable = c inter false)
    load:
        for (int r = 0; r < KL_MAC_ROWS; r++) {
            KL_PRAGMA(HLS UNROLL)
            z[r] = block == 0 ? z_h[group][r] : z[r];
        }
        multiply(z, &weights[word], &x[block], shift[group]);
        block++;
        if (block == shape.n_block) {
            const uint32_t unit = group * KL_GROUP_UNITS;
            lstm_update(z, c[group], &h[unit / KL_BLOCK].v[unit % KL_BLOCK]);
            block = 0;
            group++;
        }
    }
}
