/* Portable C: the same tiles, 8 units wide, in loops that any compiler can vectorise. */
#include "../hls/activation.h"
#include "../hls/grid.h"
#include "accel_cpu_kernel.h"

enum { LANES = 8, BATCH_16BIT = 2 };
typedef struct {
    int32_t lane[LANES];
} vec;

static inline vec v_load(const void *p)
{
    vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

static inline void v_store(void *p, vec v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

static inline vec v_add(vec a, vec b)
{
    for (int i = 0; i < LANES; i++)
        a.lane[i] += b.lane[i];
    return a;
}

static inline vec v_sra(vec v, vec shifts)
{
    for (int i = 0; i < LANES; i++)
        v.lane[i] >>= shifts.lane[i];
    return v;
}

static inline vec v_pair(const int16_t *p)
{
    vec v;
    for (int i = 0; i < LANES; i++)
        __builtin_memcpy(&v.lane[i], p, sizeof v.lane[i]);
    return v;
}

static inline vec v_dot(vec sum, vec w, vec pair)
{
    int16_t a[2 * LANES], b[2 * LANES];
    __builtin_memcpy(a, &w, sizeof a);
    __builtin_memcpy(b, &pair, sizeof b);
    for (int i = 0; i < LANES; i++)
        sum.lane[i] += a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
    return sum;
}

static inline int64_t v_head(const int16_t *w, const int16_t *h, uint32_t n)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (int32_t)w[i] * h[i];
    return sum;
}

/* o * T(c), Q0.30, to binary16 on the 2^-15 grid: 11 significant bits, half to even, saturating. */
static inline int32_t round_h(int32_t v)
{
    enum { TO_GRID = 30 - KL_H_FRAC };
    const uint32_t magnitude = (uint32_t)(v < 0 ? -v : v);
    uint32_t drop = TO_GRID; /* from 2^26 on a bit more in every binade */
    for (int b = 26; b < 30; b++)
        drop += magnitude >> b != 0;
    const uint32_t odd = magnitude >> drop & 1u;
    const uint32_t steps = (magnitude + (1u << (drop - 1)) - 1 + odd) >> drop << (drop - TO_GRID);
    const int32_t bounded = steps > KL_H_ABS_MAX ? KL_H_ABS_MAX : (int32_t)steps;
    return v < 0 ? -bounded : bounded;
}

static inline void cell(const int n_sub, const struct cpu_tanh *table, const vec *z, int32_t *c, int16_t *h)
{
    (void)table; /* the vectors' layouts; here the knots themselves do */
    for (int sub = 0; sub < n_sub; sub++, z++, c += LANES, h++) {
        for (int lane = 0; lane < LANES; lane++) {
            const int32_t i = activation_sigma(z[0].lane[lane]), f = activation_sigma(z[n_sub].lane[lane]);
            const int32_t g = activation_tanh(z[2 * n_sub].lane[lane]);
            const int32_t o = activation_sigma(z[3 * n_sub].lane[lane]);
            const int64_t sum = (int64_t)f * c[lane] + (int64_t)(i * g) * 8 + (1 << 14);
            const int64_t next = sum >> 15;
            c[lane] = (int32_t)(next > KL_C_ABS_MAX    ? KL_C_ABS_MAX
                                : next < -KL_C_ABS_MAX ? -KL_C_ABS_MAX
                                                       : next);
            h[lane * n_sub] = (int16_t)round_h(o * activation_tanh(c[lane] * (1 << (KL_Z_FRAC - KL_C_FRAC))));
        }
    }
}

static int variant_read_x(const uint16_t *bits, uint32_t n_in, struct cpu_x *x)
{
    int good = 1;
    for (uint32_t k = 0; k < (n_in + 31) / 32 * 32; k++) {
        int32_t steps = 0;
        if (k < n_in)
            good &= grid_steps(bits[k], KL_X_FRAC, KL_X_ABS_MAX, &steps);
        x->v[k] = (int16_t)steps;
    }
    return good;
}

#include "accel_cpu_matrix.h"

const struct cpu_variant accel_cpu_portable = {.lanes = LANES,
                                               .read_x = variant_read_x,
                                               .prepare = variant_prepare,
                                               .step = variant_step,
                                               .prepare_batch = variant_prepare_batch,
                                               .step_batch = variant_step_batch};
