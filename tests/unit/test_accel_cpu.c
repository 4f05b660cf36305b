/* Bits of the cpu backend: random shapes and weights at their limits, every variant that this machine has,
 * against the binary64 oracle and against the kernel's native build. */
#include "test_accel_cpu_rig.h"

enum { SLOT = 1, STREAM = 200 };

static struct tb_model model;
static enum accel_cpu_variant variants[ACCEL_CPU_PORTABLE];
static uint32_t n_variant;
static struct accel *cpu[ACCEL_CPU_PORTABLE];

static int set_up(void **state)
{
    (void)state;
    tb_oracle_init();
    n_variant = rig_variants(variants);
    for (uint32_t i = 0; i < n_variant; i++)
        cpu[i] = rig_open(variants[i], &kl_build_large);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_variant; i++)
        cpu[i]->ops->close(cpu[i]);
    return 0;
}

static void assert_oracle(const struct kl_result *result, const struct tb_answer *answer, uint64_t seed,
                          uint32_t i)
{
    int same =
        result->status == KL_OK && result->cls == answer->cls && result->check == kl_result_check(result);
    for (uint32_t k = 0; k < model.n_class; k++)
        same &= result->logits[k] == (int64_t)answer->logit[k];
    for (uint32_t k = model.n_class; k < KL_N_CLASS_MAX; k++)
        same &= result->logits[k] == 0;
    if (!same)
        fail_msg("%s differs from the oracle: model %llu (%s), status %u, logit[0] %lld, expected %.0f",
                 accel_cpu_variant_name(variants[i]), (unsigned long long)seed, tb_kind_name[model.kind],
                 result->status, (long long)result->logits[0], answer->logit[0]);
}

static void assert_oracle_state(struct accel *accel, const struct tb_state *expected)
{
    struct kl_state saved;
    assert_int_equal(accel->ops->save(accel, SLOT, STREAM, &saved), KL_OK);
    for (uint32_t l = 0; l < model.n_layer; l++) {
        for (uint32_t u = 0; u < model.layer[l].n_hidden; u++) {
            assert_int_equal(saved.h[l][u], (int)ldexp(expected->h[l][u], KL_H_FRAC));
            assert_int_equal(saved.c[l][u], (int)expected->c[l][u]);
        }
    }
}

/* Steps with prepare before, after or never, and on average a reset every so many steps; 0: none. */
static void run_model(uint64_t seed, uint32_t n_step, uint32_t reset_every)
{
    uint64_t random = seed;
    struct kl_image_header *image = tb_model_image(&model);
    assert_non_null(image);
    for (uint32_t i = 0; i < n_variant; i++)
        assert_int_equal(accel_load(cpu[i], SLOT, image, image->size_bytes), KL_OK);
    static struct tb_state state;
    static struct tb_answer answer;
    memset(&state, 0, sizeof state);
    for (uint32_t step = 0; step < n_step; step++) {
        double x[KL_N_IN_MAX];
        struct kl_request request = rig_request(KL_OP_STEP, SLOT, STREAM, step);
        tb_random_x(&model, x, &random);
        rig_set_x(&request, x, model.n_in);
        tb_oracle_step(&model, &state, x, &answer);
        const int reset = reset_every && tb_random_below(&random, reset_every) == 0;
        const int prepare = tb_random_below(&random, 3) == 0;
        for (uint32_t i = 0; i < n_variant; i++) {
            const struct kl_result result = rig_answer(cpu[i], &request);
            assert_oracle(&result, &answer, seed, i);
            const struct kl_request extra =
                rig_request(reset ? KL_OP_RESET : KL_OP_PREPARE, SLOT, STREAM, step);
            if (reset || prepare)
                assert_int_equal(rig_answer(cpu[i], &extra).status, KL_OK);
        }
        if (reset)
            memset(&state, 0, sizeof state);
    }
    for (uint32_t i = 0; i < n_variant; i++)
        assert_oracle_state(cpu[i], &state);
    free(image);
}

static void every_variant_equals_the_oracle(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed;
        rig_model(&model, KL_N_HIDDEN_MAX, &random);
        run_model(random, 12, 16);
    }
}

/* Gates wide open add about 1 per step to c, which goes up to 256. */
static void c_runs_into_its_bounds(void **state)
{
    (void)state;
    uint64_t random = 1;
    memset(&model, 0, sizeof model);
    model.kind = TB_SATURATE;
    model.n_in = 3;
    model.n_layer = 1;
    model.n_class = 2;
    model.layer[0].n_hidden = 41;
    tb_model_fill(&model, &random);
    run_model(random, 300, 0);
}

/* ---- batches ---- */

enum { N_BATCH_STREAM = 11 };

/* A step of random streams, now and then one that is late, off the grid or refused. */
static void random_batch(struct kl_request *requests, uint32_t n, uint32_t first, uint64_t *random)
{
    for (uint32_t i = 0; i < n; i++) {
        double x[KL_N_IN_MAX];
        requests[i] = rig_request(KL_OP_STEP, SLOT, (first + i) % N_BATCH_STREAM, first + i);
        tb_random_x(&model, x, random);
        rig_set_x(&requests[i], x, model.n_in);
        requests[i].flags = tb_random_below(random, 2) ? KL_REQUEST_PREPARE : 0;
        switch (tb_random_below(random, 12)) {
        case 0:
            requests[i].x[tb_random_below(random, model.n_in)] = 0x7c00;
            break;
        case 1:
            requests[i].budget_cycles = 1 + tb_random_below(random, 900);
            break;
        case 2:
            requests[i].stream += KL_N_STREAM_MAX;
            break;
        default:
            break;
        }
    }
}

static void run_batches(enum accel_cpu_variant variant, uint64_t seed)
{
    uint64_t random = seed;
    rig_model(&model, KL_N_HIDDEN_MAX, &random);
    struct kl_image_header *image = tb_model_image(&model);
    assert_non_null(image);
    struct accel *one = rig_open(variant, &kl_build_large), *batch = rig_open(variant, &kl_build_large);
    for (uint32_t round = 0; round < 8; round++) {
        struct kl_request requests[N_BATCH_STREAM];
        struct kl_result results[N_BATCH_STREAM], unused;
        const uint32_t n = tb_random_below(&random, N_BATCH_STREAM + 1);
        random_batch(requests, n, round * 5, &random);
        if (round == 1) { /* the round before met an empty slot */
            assert_int_equal(accel_load(one, SLOT, image, image->size_bytes), KL_OK);
            assert_int_equal(accel_load(batch, SLOT, image, image->size_bytes), KL_OK);
        }
        accel_cpu_step_batch(batch, requests, results, n);
        for (uint32_t i = 0; i < n; i++) {
            const struct kl_result expected = rig_answer(one, &requests[i]);
            rig_assert_same(&results[i], &expected, accel_cpu_variant_name(variant));
        }
        if (tb_random_below(&random, 2)) { /* idle: prepares */
            assert_int_equal(one->ops->poll(one, &unused), -1);
            assert_int_equal(batch->ops->poll(batch, &unused), -1);
        }
    }
    for (uint32_t stream = 0; stream < N_BATCH_STREAM; stream++) {
        struct kl_state a, b;
        assert_int_equal(one->ops->save(one, SLOT, stream, &a), KL_OK);
        assert_int_equal(batch->ops->save(batch, SLOT, stream, &b), KL_OK);
        assert_memory_equal(&a, &b, sizeof a);
    }
    one->ops->close(one);
    batch->ops->close(batch);
    free(image);
}

static void a_batch_equals_one_by_one(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_variant; i++)
        for (uint64_t seed = 100; seed < 112; seed++)
            run_batches(variants[i], seed);
}

/* ---- T, everywhere ---- */

/* One unit whose z is its bias, with i and o open and f shut: logit = h = o * T(i * T(z_g)). Over all of
 * z_g's range against the oracle, in steps that meet every segment at its ends and between. */
static void every_segment_of_tanh(void **state)
{
    (void)state;
    memset(&model, 0, sizeof model);
    model.kind = TB_TYPICAL;
    model.n_in = 1;
    model.n_layer = 1;
    model.n_class = 1;
    struct tb_layer *layer = &model.layer[0];
    layer->n_operand = 1;
    layer->n_hidden = 128; /* as many arguments at once */
    for (uint32_t r = 0; r < KL_N_GATE * layer->n_hidden; r++)
        layer->x_frac[r] = layer->h_frac[r] = KL_Z_FRAC - KL_X_FRAC;
    for (int32_t z = -9 * (1 << KL_Z_FRAC); z < 9 * (1 << KL_Z_FRAC);) {
        for (uint32_t u = 0; u < layer->n_hidden; u++, z += 1023 + 512 * (u % 3)) {
            double *bias = &layer->bias[KL_N_GATE * u];
            bias[0] = bias[3] = 8 * (1 << KL_Z_FRAC);
            bias[1] = -8 * (1 << KL_Z_FRAC);
            bias[2] = z;
        }
        struct kl_image_header *image = tb_model_image(&model);
        struct tb_state expected;
        struct tb_answer answer;
        const double x = 0;
        memset(&expected, 0, sizeof expected);
        tb_oracle_step(&model, &expected, &x, &answer);
        struct kl_request request = rig_request(KL_OP_STEP, SLOT, STREAM, 0);
        rig_set_x(&request, &x, 1);
        for (uint32_t i = 0; i < n_variant; i++) {
            assert_int_equal(accel_load(cpu[i], SLOT, image, image->size_bytes), KL_OK);
            assert_int_equal(rig_answer(cpu[i], &request).status, KL_OK);
            assert_oracle_state(cpu[i], &expected);
        }
        free(image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_equals_the_oracle),
        cmocka_unit_test(c_runs_into_its_bounds),
        cmocka_unit_test(every_segment_of_tanh),
        cmocka_unit_test(a_batch_equals_one_by_one),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
