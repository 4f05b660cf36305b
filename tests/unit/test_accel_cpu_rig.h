/* What the tests of the cpu backend share: random models with every kind of extreme, the variants of this
 * machine, requests, and whole-result comparison. */
#ifndef TEST_ACCEL_CPU_RIG_H
#define TEST_ACCEL_CPU_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hls/kl_tb.h"
#include "host/accel.h"

/* The variants that are tested here; says which this machine cannot run. */
static inline uint32_t rig_variants(enum accel_cpu_variant variants[ACCEL_CPU_PORTABLE])
{
    uint32_t n = 0;
    for (enum accel_cpu_variant v = ACCEL_CPU_AVX512VNNI; v <= ACCEL_CPU_PORTABLE; v++) {
        if (accel_cpu_has(v))
            variants[n++] = v;
        else
            print_message("not run: this machine has no %s\n", accel_cpu_variant_name(v));
    }
    return n;
}

static inline struct accel *rig_open(enum accel_cpu_variant variant, const struct kl_build *build)
{
    const struct accel_cpu_options options = {.variant = variant, .build = build};
    struct accel *accel = accel_cpu_open(&options);
    assert_non_null(accel);
    assert_int_equal(accel_cpu_variant_of(accel), variant);
    return accel;
}

/* Weights of a matrix to at most 127 steps of their row's grid: what an 8-bit package carries. */
static inline void rig_to_8bit(const int *frac, double *w, uint32_t stride, uint32_t n_row, uint32_t n_column)
{
    for (uint32_t r = 0; r < n_row; r++)
        for (uint32_t k = 0; k < n_column; k++)
            w[r * stride + k] =
                ldexp(fmax(-127, fmin(127, rint(ldexp(w[r * stride + k], frac[r])))), -frac[r]);
}

static inline uint32_t rig_size(uint32_t max, uint64_t *seed)
{
    const uint32_t edges[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256};
    const uint32_t n =
        tb_random_below(seed, 2) ? 1 + tb_random_below(seed, max) : edges[tb_random_below(seed, 16)];
    return n <= max ? n : max;
}

/* A random model of at most n_max inputs and units per layer; in about half of them some matrices are 8-bit.
 */
static inline void rig_model(struct tb_model *model, uint32_t n_max, uint64_t *seed)
{
    model->kind = tb_random_below(seed, TB_N_KIND);
    model->n_in = rig_size(n_max, seed);
    model->n_layer = 1 + tb_random_below(seed, KL_N_LAYER_MAX);
    model->n_class = 1 + tb_random_below(seed, KL_N_CLASS_MAX);
    for (uint32_t l = 0; l < model->n_layer; l++)
        model->layer[l].n_hidden = rig_size(n_max, seed);
    tb_model_fill(model, seed);
    if (tb_random_below(seed, 2))
        return;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        struct tb_layer *layer = &model->layer[l];
        const uint32_t n_row = KL_N_GATE * layer->n_hidden;
        if (tb_random_below(seed, 3))
            rig_to_8bit(layer->x_frac, layer->w_x[0], TB_N_OPERAND_MAX, n_row, layer->n_operand);
        if (tb_random_below(seed, 3))
            rig_to_8bit(layer->h_frac, layer->w_h[0], KL_N_HIDDEN_MAX, n_row, layer->n_hidden);
    }
}

/* What lies behind a model's inputs is garbage, as a caller may leave it. */
static inline struct kl_request rig_request(enum kl_op op, uint16_t slot, uint32_t stream, uint32_t seq_no)
{
    struct kl_request request = {
        .abi_version = KL_ABI_VERSION, .op = (uint16_t)op, .slot = slot, .stream = stream, .seq_no = seq_no};
    memset(request.x, 0x7f, sizeof request.x);
    return request;
}

static inline void rig_set_x(struct kl_request *request, const double *x, uint32_t n_in)
{
    for (uint32_t k = 0; k < n_in; k++)
        request->x[k] = tb_half(x[k]);
}

static inline struct kl_result rig_answer(struct accel *accel, const struct kl_request *request)
{
    struct kl_result result;
    assert_int_equal(accel->ops->submit(accel, request), 0);
    assert_int_equal(accel->ops->poll(accel, &result), 1);
    return result;
}

/* Two results, every byte, and whole by their check. */
static inline void rig_assert_same(const struct kl_result *got, const struct kl_result *expected,
                                   const char *where)
{
    assert_int_equal(expected->check, kl_result_check(expected));
    if (memcmp(got, expected, sizeof *got) == 0)
        return;
    print_error(
        "%s: status %u/%u flags %u/%u cls %u/%u cycles %u/%u prepare %u/%u wait %u/%u logit[0] %lld/%lld\n",
        where, got->status, expected->status, got->flags, expected->flags, got->cls, expected->cls,
        got->kernel_cycles, expected->kernel_cycles, got->prepare_cycles, expected->prepare_cycles,
        got->wait_cycles, expected->wait_cycles, (long long)got->logits[0], (long long)expected->logits[0]);
    assert_memory_equal(got, expected, sizeof *got);
}

#endif
