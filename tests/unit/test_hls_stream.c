#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernel_rig.h"
#include "tests/model_image.h"

/* State of streams: reset, save, restore; between units, builds and pairs. */

static const struct kl_build *const builds[] = {&kl_build_small, &kl_build_fast, &kl_build_large};

enum { N_BUILD = sizeof builds / sizeof builds[0], N_STEP = 5, STREAM = 9 };

static const struct model_image_shape SHAPE = {.n_in = 20, .n_layer = 2, .n_class = 5, .n_hidden = {67, 33}};

/* A unit, or a pair. */
struct device {
    const struct kl_build *build;
    uint32_t n_part;
    struct kl_unit *unit[2];
};

static struct device new_device(const struct kl_build *build, uint32_t n_part)
{
    struct device device = {.build = build, .n_part = n_part};
    for (uint32_t part = 0; part < n_part; part++) {
        device.unit[part] = kernel_rig_unit(build, part, n_part);
        assert_non_null(device.unit[part]);
    }
    return device;
}

static void free_device(struct device *device)
{
    free(device->unit[0]);
    free(device->unit[1]);
}

static void load(struct device *device, uint32_t slot, const struct kl_image_header *image)
{
    for (uint32_t part = 0; part < device->n_part; part++)
        assert_int_equal(kernel_rig_load(device->build, device->unit[part], slot, image), KL_OK);
}

static struct kl_result exec(struct device *device, const struct kl_request *request)
{
    struct kl_result result;
    memset(&result, 0xa5, sizeof result);
    if (device->n_part == 1)
        device->build->exec(device->unit[0], request, &result);
    else
        device->build->exec_pair(device->unit, request, 0, &result);
    return result;
}

static struct kl_result op_of(struct device *device, uint32_t op, uint32_t slot, uint32_t stream)
{
    const struct kl_request request = kernel_rig_request(op, slot, stream);
    const struct kl_result result = exec(device, &request);
    assert_int_equal(result.status, KL_OK);
    return result;
}

static struct kl_result step(struct device *device, uint32_t slot, uint32_t stream, uint64_t n)
{
    const struct kl_request request = kernel_rig_step(slot, stream, n);
    const struct kl_result result = exec(device, &request);
    assert_int_equal(result.status, KL_OK);
    return result;
}

static uint32_t save(struct device *device, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    return device->n_part == 1 ? device->build->save(device->unit[0], slot, stream, state)
                               : device->build->save_pair(device->unit, slot, stream, state);
}

static uint32_t restore(struct device *device, uint32_t slot, uint32_t stream, const struct kl_state *state)
{
    return device->n_part == 1 ? device->build->restore(device->unit[0], slot, stream, state)
                               : device->build->restore_pair(device->unit, slot, stream, state);
}

static struct kl_state saved(struct device *device, uint32_t slot, uint32_t stream)
{
    struct kl_state state;
    memset(&state, 0xa5, sizeof state);
    assert_int_equal(save(device, slot, stream, &state), KL_OK);
    return state;
}

static void seal(struct kl_state *state)
{
    state->check = kl_state_check(state);
}

static struct device device; /* a unit of small with SHAPE in slot 1 and STREAM some steps on */
static struct kl_image_header *image;

static int set_up(void **state)
{
    (void)state;
    device = new_device(&kl_build_small, 1);
    image = model_image_new(&SHAPE, 1);
    if (!image)
        return -1;
    load(&device, 1, image);
    for (uint64_t n = 0; n < N_STEP; n++)
        step(&device, 1, STREAM, n);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(image);
    free_device(&device);
    return 0;
}

/* ---- reset ---- */

static void reset_brings_one_stream_back_to_its_start(void **state)
{
    (void)state;
    load(&device, 0, image);
    struct kl_result first[N_STEP];
    for (uint64_t n = 0; n < N_STEP; n++) {
        first[n] = step(&device, 0, STREAM, n);
        step(&device, 1, STREAM + 1, n);
    }
    const struct kl_state zero = saved(&device, 1, 0), other = saved(&device, 1, STREAM + 1),
                          other_slot = saved(&device, 0, STREAM);
    op_of(&device, KL_OP_PREPARE, 1, STREAM); /* sums of the old h must not survive */
    const struct kl_result reset = op_of(&device, KL_OP_RESET, 1, STREAM);
    assert_int_equal(reset.kernel_cycles, kl_build_small.reset_cycles());
    assert_int_equal(reset.prepare_cycles, kl_build_small.prepare_cycles(image, 1));
    const struct kl_state now = saved(&device, 1, STREAM);
    assert_memory_equal(&now, &zero, sizeof now);
    const struct kl_state other_now = saved(&device, 1, STREAM + 1), slot_now = saved(&device, 0, STREAM);
    assert_memory_equal(&other_now, &other, sizeof other);
    assert_memory_equal(&slot_now, &other_slot, sizeof other_slot);
    for (uint64_t n = 0; n < N_STEP; n++)
        assert_true(kernel_rig_same(step(&device, 1, STREAM, n), first[n]));
}

/* ---- save ---- */

static void a_saved_state_says_whose_it_is(void **state)
{
    (void)state;
    const struct kl_state s = saved(&device, 1, STREAM);
    struct kl_state fields = {
        .abi_version = KL_ABI_VERSION, .n_layer = 2, .n_hidden = {67, 33}, .image_hash = image->image_hash};
    fields.check = s.check;
    assert_memory_equal(&s, &fields, offsetof(struct kl_state, h));
    assert_int_equal(s.check, kl_state_check(&s));
    int moved = 0;
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u++) {
            if (l < 2 && u < SHAPE.n_hidden[l])
                moved += s.h[l][u] != 0 && s.c[l][u] != 0;
            else
                assert_true(s.h[l][u] == 0 && s.c[l][u] == 0);
        }
    }
    assert_true(moved > 90); /* of 100 units: the others of a random model may well be 0 */
}

static void save_and_restore_refuse_a_place_that_is_not_there(void **state)
{
    (void)state;
    struct device pair = new_device(&kl_build_small, 2);
    load(&pair, 1, image);
    struct device *devices[] = {&device, &pair};
    const struct kl_state good = saved(&device, 1, STREAM);
    const struct {
        uint32_t slot, stream, status;
    } bad[] = {{KL_N_SLOT, STREAM, KL_E_SLOT},
               {UINT32_MAX, STREAM, KL_E_SLOT},
               {1, KL_N_STREAM_MAX, KL_E_STREAM},
               {1, UINT32_MAX, KL_E_STREAM},
               {0, STREAM, KL_E_EMPTY}};
    for (int d = 0; d < 2; d++) {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            struct kl_state untouched, s;
            memset(&untouched, 0xa5, sizeof untouched);
            s = untouched;
            assert_int_equal(save(devices[d], bad[i].slot, bad[i].stream, &s), bad[i].status);
            assert_memory_equal(&s, &untouched, sizeof s);
            assert_int_equal(restore(devices[d], bad[i].slot, bad[i].stream, &good), bad[i].status);
        }
    }
    free_device(&pair);
}

static void half_of_a_pair_has_no_state_of_its_own(void **state)
{
    (void)state;
    struct device pair = new_device(&kl_build_small, 2);
    load(&pair, 1, image);
    const struct kl_state good = saved(&device, 1, STREAM);
    assert_int_equal(restore(&pair, 1, STREAM, &good), KL_OK);
    for (int half = 0; half < 2; half++) {
        struct kl_state untouched, s;
        memset(&untouched, 0xa5, sizeof untouched);
        s = untouched;
        assert_int_equal(kl_build_small.save(pair.unit[half], 1, STREAM, &s), KL_E_PEER);
        assert_memory_equal(&s, &untouched, sizeof s);
        assert_int_equal(kl_build_small.restore(pair.unit[half], 1, 0, &good), KL_E_PEER);
    }
    const struct kl_state now = saved(&pair, 1, STREAM);
    assert_memory_equal(&now, &good, sizeof now);
    free_device(&pair);
}

/* ---- restore ---- */

static void a_restored_stream_goes_on_bit_equal(void **state)
{
    (void)state;
    load(&device, 0, image);
    const struct kl_state s = saved(&device, 1, STREAM);
    struct kl_result expected[N_STEP];
    for (uint64_t n = 0; n < N_STEP; n++)
        expected[n] = step(&device, 1, STREAM, 50 + n);
    const struct kl_state end = saved(&device, 1, STREAM);
    /* Back onto itself with sums of another h prepared, onto another stream, and into the other slot. */
    const uint32_t slot[] = {1, 1, 0}, stream[] = {STREAM, KL_N_STREAM_MAX - 1, 0};
    for (int i = 0; i < 3; i++) {
        op_of(&device, KL_OP_PREPARE, slot[i], stream[i]);
        assert_int_equal(restore(&device, slot[i], stream[i], &s), KL_OK);
        const struct kl_state again = saved(&device, slot[i], stream[i]);
        assert_memory_equal(&again, &s, sizeof s);
        for (uint64_t n = 0; n < N_STEP; n++) {
            const struct kl_result result = step(&device, slot[i], stream[i], 50 + n);
            assert_true(kernel_rig_same(result, expected[n]));
            assert_int_equal(result.kernel_cycles, kl_build_small.step_cycles(image, 1, 0));
        }
        const struct kl_state then = saved(&device, slot[i], stream[i]);
        assert_memory_equal(&then, &end, sizeof end);
    }
}

/* A state moves round every unit and pair of every build, a few steps on each. */
static void a_state_moves_between_builds_and_pairs(void **state)
{
    (void)state;
    struct device devices[2 * N_BUILD];
    struct kl_result expected[2 * 2 * N_BUILD * 2];
    const uint64_t n_expected = sizeof expected / sizeof *expected;
    struct kl_state s = saved(&device, 1, 0);
    for (uint64_t n = 0; n < n_expected; n++)
        expected[n] = step(&device, 1, 0, n);
    const struct kl_state end = saved(&device, 1, 0);
    for (int i = 0; i < 2 * N_BUILD; i++) {
        devices[i] = new_device(builds[i % N_BUILD], i < N_BUILD ? 1 : 2);
        load(&devices[i], 0, image);
    }
    /* 0 1 2 3 4 5, then 0 5 4 3 2 1: every kind of hop in both directions. */
    for (uint64_t n = 0; n < n_expected; n++) {
        const uint64_t hop = n / 2;
        struct device *d = &devices[hop < 2 * N_BUILD ? hop : (4 * N_BUILD - hop) % (2 * N_BUILD)];
        if (n % 2 == 0)
            assert_int_equal(restore(d, 0, 3, &s), KL_OK);
        assert_true(kernel_rig_same(step(d, 0, 3, n), expected[n]));
        s = saved(d, 0, 3);
    }
    assert_memory_equal(&s, &end, sizeof s);
    for (int i = 0; i < 2 * N_BUILD; i++)
        free_device(&devices[i]);
}

/* state is refused by a unit and by a pair, and the stream stays as it was. */
static void assert_refused(struct device *pair, const struct kl_state *state)
{
    const struct kl_state before = saved(&device, 1, STREAM);
    assert_int_equal(restore(&device, 1, STREAM, state), KL_E_STATE);
    assert_int_equal(restore(pair, 1, STREAM, state), KL_E_STATE);
    const struct kl_state after = saved(&device, 1, STREAM), of_pair = saved(pair, 1, STREAM);
    assert_memory_equal(&after, &before, sizeof after);
    assert_memory_equal(&of_pair, &before, sizeof of_pair);
}

static void every_damaged_bit_of_a_state_is_refused(void **state)
{
    (void)state;
    const struct kl_state good = saved(&device, 1, STREAM);
    struct kl_state bad = good;
    for (size_t i = 0; i < sizeof bad; i++) {
        for (int bit = 0; bit < 8; bit++) {
            ((uint8_t *)&bad)[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(restore(&device, 1, STREAM, &bad), KL_E_STATE);
            ((uint8_t *)&bad)[i] ^= (uint8_t)(1 << bit);
        }
    }
    const struct kl_state after = saved(&device, 1, STREAM);
    assert_memory_equal(&after, &good, sizeof good);
    assert_int_equal(restore(&device, 1, STREAM, &bad), KL_OK);
}

static void what_save_cannot_have_written_is_refused(void **state)
{
    (void)state;
    struct device pair = new_device(&kl_build_small, 2);
    load(&pair, 1, image);
    const struct kl_state good = saved(&device, 1, STREAM);
    assert_int_equal(restore(&pair, 1, STREAM, &good), KL_OK);
    enum { N_FIELD = 12 };
    for (int i = 0; i < N_FIELD; i++) {
        struct kl_state bad = good;
        switch (i) {
        case 0:
            bad.abi_version++;
            break;
        case 1:
            bad.n_layer++;
            break;
        case 2:
            bad.n_layer--;
            break;
        case 3:
            bad.n_hidden[0]--;
            break;
        case 4:
            bad.n_hidden[1]++;
            break;
        case 5:
            bad.n_hidden[2] = 1;
            break;
        case 6:
            bad.n_hidden[3] = 1;
            break;
        case 7:
            bad.pad0 = 1;
            break;
        case 8:
            bad.image_hash++; /* of another model */
            break;
        case 9:
            bad.pad1[0] = 1;
            break;
        case 10:
            bad.pad1[31] = 1;
            break;
        default:
            bad.check++;
            break;
        }
        if (i < N_FIELD - 1)
            seal(&bad);
        assert_refused(&pair, &bad);
    }
    /* Beyond the shape. */
    const struct {
        uint32_t layer, unit;
    } beyond[] = {{0, 67}, {0, KL_N_HIDDEN_MAX - 1}, {1, 33}, {2, 0}, {2, KL_N_HIDDEN_MAX - 1}};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        struct kl_state bad = good;
        bad.h[beyond[i].layer][beyond[i].unit] = 1;
        seal(&bad);
        assert_refused(&pair, &bad);
        bad = good;
        bad.c[beyond[i].layer][beyond[i].unit] = 1;
        seal(&bad);
        assert_refused(&pair, &bad);
    }
    free_device(&pair);
}

/* h is binary16 on its grid, c within its bound: first and last unit of each layer, on either side of 0. */
static void h_and_c_are_values_that_a_step_can_give(void **state)
{
    (void)state;
    struct device pair = new_device(&kl_build_small, 2);
    load(&pair, 1, image);
    const struct kl_state good = saved(&device, 1, STREAM);
    const int32_t h_good[] = {0,    1,    2047, 2048,  2050,  4094,  4096, 4100,
                              8184, 8192, 8200, 16368, 16384, 16400, 32752},
                  h_bad[] = {2049, 4095, 4097, 4098, 8194, 8196, 16380, 16392, 32744, 32753, 32767};
    const int32_t c_good[] = {0, 1, KL_C_ABS_MAX}, c_bad[] = {KL_C_ABS_MAX + 1, INT32_MAX};
    for (uint32_t l = 0; l < 2; l++) {
        for (uint32_t u = 0; u < SHAPE.n_hidden[l]; u += SHAPE.n_hidden[l] - 1u) {
            for (int sign = -1; sign <= 1; sign += 2) {
                struct kl_state s = good;
                for (size_t i = 0; i < sizeof h_good / sizeof *h_good; i++) {
                    s.h[l][u] = (int16_t)(sign * h_good[i]);
                    seal(&s);
                    assert_int_equal(restore(&device, 1, STREAM, &s), KL_OK);
                    assert_int_equal(restore(&pair, 1, STREAM, &s), KL_OK);
                }
                for (size_t i = 0; i < sizeof h_bad / sizeof *h_bad; i++) {
                    struct kl_state bad = s;
                    bad.h[l][u] = (int16_t)(sign * h_bad[i]);
                    seal(&bad);
                    assert_refused(&pair, &bad);
                }
                for (size_t i = 0; i < sizeof c_good / sizeof *c_good; i++) {
                    s.c[l][u] = sign * c_good[i];
                    seal(&s);
                    assert_int_equal(restore(&device, 1, STREAM, &s), KL_OK);
                    assert_int_equal(restore(&pair, 1, STREAM, &s), KL_OK);
                }
                for (size_t i = 0; i < sizeof c_bad / sizeof *c_bad; i++) {
                    struct kl_state bad = s;
                    bad.c[l][u] = sign * c_bad[i];
                    seal(&bad);
                    assert_refused(&pair, &bad);
                }
            }
        }
    }
    struct kl_state bad = good;
    bad.h[0][0] = INT16_MIN;
    seal(&bad);
    assert_int_equal(restore(&device, 1, STREAM, &bad), KL_E_STATE);
    bad = good;
    bad.c[0][0] = INT32_MIN;
    seal(&bad);
    assert_int_equal(restore(&device, 1, STREAM, &bad), KL_E_STATE);
    free_device(&pair);
}

static void the_state_of_another_model_is_refused(void **state)
{
    (void)state;
    struct kl_image_header *other = model_image_new(&SHAPE, 2); /* of the same shape */
    assert_non_null(other);
    load(&device, 0, other);
    const struct kl_state s = saved(&device, 1, STREAM), before = saved(&device, 0, STREAM);
    assert_int_equal(restore(&device, 0, STREAM, &s), KL_E_STATE);
    const struct kl_state after = saved(&device, 0, STREAM);
    assert_memory_equal(&after, &before, sizeof after);
    /* While its own model is loaded anew there is nothing to restore it to. */
    assert_int_equal(kl_build_small.load_begin(device.unit[0], 1, image, image->size_bytes), KL_OK);
    struct kl_state s2 = s;
    for (uint32_t status = KL_E_BUSY; status == KL_E_BUSY;) {
        assert_int_equal(restore(&device, 1, STREAM, &s), KL_E_EMPTY);
        assert_int_equal(save(&device, 1, STREAM, &s2), KL_E_EMPTY);
        status = kl_build_small.load_advance(device.unit[0]);
    }
    assert_int_equal(restore(&device, 1, STREAM, &s), KL_OK);
    free(other);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(reset_brings_one_stream_back_to_its_start),
        TEST(a_saved_state_says_whose_it_is),
        TEST(save_and_restore_refuse_a_place_that_is_not_there),
        TEST(half_of_a_pair_has_no_state_of_its_own),
        TEST(a_restored_stream_goes_on_bit_equal),
        TEST(a_state_moves_between_builds_and_pairs),
        TEST(every_damaged_bit_of_a_state_is_refused),
        TEST(what_save_cannot_have_written_is_refused),
        TEST(h_and_c_are_values_that_a_step_can_give),
        TEST(the_state_of_another_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
