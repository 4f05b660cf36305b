/* The contract's knots in the layouts of the vector variants. */
#include <assert.h>

#include "../hls/activation.h"
#include "accel_cpu_kernel.h"

void cpu_tanh_fill(struct cpu_tanh *table)
{
    enum { MIDDLE = KL_T_SEGMENTS / 2 };
    const int16_t *knot = activation_knot;
    for (int k = 0; k < MIDDLE; k++) {
        const int32_t a = -knot[MIDDLE - k], d = -knot[MIDDLE - k - 1] - a;
        /* What struct cpu_tanh and the vector forms rest on. */
        assert(knot[MIDDLE + k] == (a > INT16_MAX ? INT16_MAX : a));
        assert(d >= 0 && (k < 128 || d < 128) && (k < 255 || (a - 1) >> 8 == 0x7f));
        assert(k < CPU_T_FLAT || (a == -INT16_MIN && d == 0));
        if (k < CPU_T_ROWS) {
            table->a[k] = (int16_t)(a - 1);
            table->d[k] = (int16_t)(2 * d);
            table->a_d[k] = (uint32_t)d << 16 | (uint16_t)(a - 1);
        }
        if (k < 256) {
            table->a_low[k] = (uint8_t)(a - 1);
            table->a_high[k] = (uint8_t)((a - 1) >> 8);
            table->d_low[k] = (uint8_t)(2 * d);
        }
        if (k < 128)
            table->d_high[k] = (uint8_t)(2 * d >> 8);
        if (k >= 255 && k < 255 + 128) {
            table->a_top[k - 255] = (uint8_t)(a - 1);
            table->d_top[k - 255] = (uint8_t)(2 * d);
        }
    }
}
static_assert(CPU_T_FLAT <= 255 + 127 && CPU_T_FLAT < CPU_T_ROWS, "a saturated index shows a flat segment");
