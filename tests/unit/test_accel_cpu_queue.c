/* The cpu backend's queue, slots, streams and states: random sequences of every call, whole results compared
 * with the kernel's native build behind the same interface, cycles and waiting times included. */
#include "test_accel_cpu_rig.h"

enum { N_STREAM = 4, N_IMAGE = 3, N_CALL = 12000 };

static struct tb_model model[N_IMAGE];
static struct kl_image_header *image[N_IMAGE];
static struct accel *csim, *cpu;
static uint64_t seed;
static int is_loading;
static uint32_t images_in[KL_N_SLOT]; /* slot to image; what a state fits */
static struct kl_state saved[8];

static uint32_t below(uint32_t n)
{
    return tb_random_below(&seed, n);
}

static int set_up(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (uint32_t i = 0; i < N_IMAGE; i++) {
        rig_model(&model[i], 40, &random);
        image[i] = tb_model_image(&model[i]);
        if (!image[i])
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_IMAGE; i++)
        free(image[i]);
    return 0;
}

/* Mostly a proper step; now and then something that is refused. */
static struct kl_request random_request(void)
{
    struct kl_request request = rig_request(1 + below(3), below(KL_N_SLOT), below(N_STREAM), (uint32_t)seed);
    if (below(2))
        request.op = KL_OP_STEP;
    if (below(2))
        request.flags = KL_REQUEST_PREPARE;
    double x[KL_N_IN_MAX];
    const struct tb_model *m = &model[images_in[request.slot]];
    tb_random_x(m, x, &seed);
    rig_set_x(&request, x, m->n_in);
    switch (below(40)) {
    case 0:
        request.abi_version--;
        break;
    case 1:
        request.op = (uint16_t)(below(2) ? 0 : 4 + below(9));
        break;
    case 2:
        request.slot = (uint16_t)(KL_N_SLOT + below(9));
        break;
    case 3:
        request.stream = KL_N_STREAM_MAX + below(9);
        break;
    case 4:
        request.flags = (uint16_t)(1u << below(16));
        break;
    case 5: /* off the grid, infinite, or too large */
        request.x[below(m->n_in)] = (uint16_t[]){0x0fff, 0x7c00, 0xfe00, 0x4c00, 0x0001}[below(5)];
        break;
    case 6:
    case 7:
        request.budget_cycles = 1 + below(600);
        break;
    default:
        break;
    }
    return request;
}

static uint32_t n_outstanding;

static void submit_both(void)
{
    const struct kl_request request = random_request();
    const int expected = csim->ops->submit(csim, &request);
    assert_int_equal(cpu->ops->submit(cpu, &request), expected);
    assert_int_equal(expected, n_outstanding == KL_QUEUE_DEPTH ? -1 : 0);
    n_outstanding += expected == 0;
}

static void poll_both(void)
{
    struct kl_result expected, got;
    memset(&expected, 0, sizeof expected);
    memset(&got, 0xff, sizeof got);
    const int n = csim->ops->poll(csim, &expected);
    assert_int_equal(cpu->ops->poll(cpu, &got), n);
    assert_int_equal(n, n_outstanding ? 1 : -1);
    if (n == 1) {
        rig_assert_same(&got, &expected, "poll");
        n_outstanding--;
    }
}

/* Nothing is outstanding when a slot's model goes: what happens to a request then is the slot's epoch's
 * affair. */
static void begin_load_both(void)
{
    while (n_outstanding)
        poll_both();
    const uint32_t slot = below(KL_N_SLOT + 1), which = below(N_IMAGE);
    const uint32_t expected = csim->ops->load_begin(csim, slot, image[which], image[which]->size_bytes);
    assert_int_equal(cpu->ops->load_begin(cpu, slot, image[which], image[which]->size_bytes), expected);
    assert_int_equal(expected, slot >= KL_N_SLOT ? KL_E_SLOT : is_loading ? KL_E_BUSY : KL_OK);
    if (expected == KL_OK) {
        is_loading = 1;
        images_in[slot] = which;
    }
}

/* Both to the end: how many pieces a load takes is a backend's own. */
static void end_load_both(void)
{
    uint32_t expected, got;
    while ((expected = csim->ops->load_advance(csim)) == KL_E_BUSY)
        ;
    while ((got = cpu->ops->load_advance(cpu)) == KL_E_BUSY)
        ;
    assert_int_equal(got, expected);
    assert_int_equal(expected, is_loading ? KL_OK : KL_E_EMPTY);
    is_loading = 0;
}

static void save_both(void)
{
    struct kl_state expected, got;
    const uint32_t slot = below(KL_N_SLOT + 1), stream = below(8) ? below(N_STREAM) : KL_N_STREAM_MAX;
    memset(&expected, 0, sizeof expected);
    memset(&got, 0, sizeof got);
    const uint32_t status = csim->ops->save(csim, slot, stream, &expected);
    assert_int_equal(cpu->ops->save(cpu, slot, stream, &got), status);
    assert_memory_equal(&got, &expected, sizeof got);
    if (status == KL_OK)
        saved[below(8)] = got;
}

/* A state of before, as it was or damaged; with its check made right again it is a state that no save writes.
 */
static void restore_both(void)
{
    struct kl_state state = saved[below(8)];
    switch (below(10)) {
    case 0:
        ((uint8_t *)&state)[below(sizeof state)] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        if (state.n_layer) {
            const uint32_t layer = below(state.n_layer);
            state.h[layer][below(state.n_hidden[layer])] =
                (int16_t[]){0x7fff, 0x1001, -0x1001, 0x4008}[below(4)];
        }
        state.check = kl_state_check(&state);
        break;
    case 2:
        if (state.n_layer) {
            const uint32_t layer = below(state.n_layer);
            state.c[layer][below(state.n_hidden[layer])] = below(2) ? KL_C_ABS_MAX + 1 : -KL_C_ABS_MAX - 1;
        }
        state.check = kl_state_check(&state);
        break;
    case 3:
        state.pad1[below(sizeof state.pad1)] = 1;
        state.check = kl_state_check(&state);
        break;
    case 4: /* a unit that is not there */
        state.h[KL_N_LAYER_MAX - 1][KL_N_HIDDEN_MAX - 1] = 1;
        state.check = kl_state_check(&state);
        break;
    default:
        break;
    }
    const uint32_t slot = below(KL_N_SLOT + 1), stream = below(8) ? below(N_STREAM) : KL_N_STREAM_MAX;
    const uint32_t status = csim->ops->restore(csim, slot, stream, &state);
    assert_int_equal(cpu->ops->restore(cpu, slot, stream, &state), status);
}

static void info_both(void)
{
    struct kl_info expected, got;
    csim->ops->info(csim, &expected);
    cpu->ops->info(cpu, &got);
    assert_memory_equal(&got, &expected, sizeof got);
}

static void random_call(void)
{
    switch (below(24)) {
    case 0:
        begin_load_both();
        break;
    case 1:
    case 2:
        end_load_both();
        break;
    case 3:
    case 4:
        save_both();
        break;
    case 5:
    case 6:
        restore_both();
        break;
    case 7:
        info_both();
        break;
    case 8:
        cpu->ops->warm(cpu, below(KL_N_SLOT + 1), below(N_STREAM + 1));
        break;
    case 9: /* a piece of it, whatever it says */
        if (is_loading && cpu->ops->load_advance(cpu) != KL_E_BUSY)
            fail_msg("a load ended within one piece");
        break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
        submit_both();
        break;
    default:
        poll_both();
        break;
    }
}

static void run_variant(enum accel_cpu_variant variant, int prepare_thread)
{
    const struct accel_cpu_options options = {
        .variant = variant, .build = &kl_build_small, .prepare_thread = prepare_thread};
    cpu = accel_cpu_open(&options);
    csim = accel_csim_open(&kl_build_small, 1);
    assert_non_null(cpu);
    assert_non_null(csim);
    seed = 11 + variant;
    is_loading = 0;
    n_outstanding = 0;
    memset(images_in, 0, sizeof images_in);
    memset(saved, 0, sizeof saved);
    begin_load_both();
    end_load_both();
    for (uint32_t i = 0; i < N_CALL; i++)
        random_call();
    cpu->ops->close(cpu);
    csim->ops->close(csim);
}

static void every_call_equals_the_kernel(void **state)
{
    (void)state;
    enum accel_cpu_variant variants[ACCEL_CPU_PORTABLE];
    const uint32_t n = rig_variants(variants);
    for (uint32_t i = 0; i < n; i++)
        run_variant(variants[i], 0);
}

static void so_with_a_second_thread(void **state)
{
    (void)state;
    run_variant(ACCEL_CPU_PORTABLE, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_equals_the_kernel),
        cmocka_unit_test(so_with_a_second_thread),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
