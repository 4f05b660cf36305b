#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernel_front_rig.h"
#include "tests/model_image.h"

/* The register block: loads by doorbell, and a host that writes nonsense. */

static const struct kl_build *const build = &kl_build_small;
static const struct model_image_shape SHAPE = {.n_in = 5, .n_layer = 2, .n_class = 3, .n_hidden = {17, 6}};
static struct kernel_front_rig rig;
static struct kl_unit *direct; /* the same models, driven by exec alone */
static struct kl_image_header *image[KL_N_SLOT];

static int set_up(void **state)
{
    (void)state;
    rig = (struct kernel_front_rig){.build = build, .unit = kernel_rig_unit(build, 0, 1)};
    direct = kernel_rig_unit(build, 0, 1);
    if (!rig.unit || !direct)
        return -1;
    rig.reg = build->registers(rig.unit);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        image[slot] = model_image_new(&SHAPE, 1 + slot);
        if (!image[slot] || kernel_rig_load(build, direct, slot, image[slot]) != KL_OK)
            return -1;
    }
    if (kernel_rig_load(build, rig.unit, 0, image[0]) != KL_OK)
        return -1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        free(image[slot]);
    free(direct);
    free(rig.unit);
    return 0;
}

static void rounds(uint32_t n)
{
    while (n-- > 0)
        kernel_front_rig_round(&rig);
}

static void post_step(uint32_t slot, uint32_t stream, uint64_t n)
{
    const struct kl_request request = kernel_rig_step(slot, stream, n);
    kernel_front_rig_post(&rig, &request);
}

static struct kl_result take(void)
{
    struct kl_result result;
    assert_true(kernel_front_rig_take(&rig, &result));
    return result;
}

/* The next answer is the direct unit's of the same step. */
static void assert_answers(uint32_t slot, uint32_t stream, uint64_t n)
{
    const struct kl_request request = kernel_rig_step(slot, stream, n);
    assert_true(kernel_rig_same(take(), kernel_rig_exec(build, direct, &request)));
}

static uint64_t hash_in_block(uint32_t slot)
{
    struct kl_info info;
    memcpy(&info, &rig.reg[KL_REG_INFO], sizeof info);
    return info.image_hash[slot];
}

/* ---- loads ---- */

static void ring_load(uint32_t slot, const void *bytes, uint32_t size_bytes)
{
    rig.image = bytes;
    rig.reg[KL_REG_LOAD_SLOT] = slot;
    rig.reg[KL_REG_LOAD_SIZE_BYTES] = size_bytes;
    rig.reg[KL_REG_LOAD_DOORBELL]++;
}

/* Rounds until the last doorbell's load has ended. Returns its status. */
static uint32_t load_status(void)
{
    for (int i = 0; rig.reg[KL_REG_LOAD_DONE] != rig.reg[KL_REG_LOAD_DOORBELL]; i++) {
        assert_in_range(i, 0, 100000);
        rounds(1);
    }
    return rig.reg[KL_REG_LOAD_STATUS];
}

static void a_load_runs_beside_the_service(void **state)
{
    (void)state;
    /* A request per round while the load is under way: each is answered in its round. */
    ring_load(1, image[1], image[1]->size_bytes);
    uint64_t n = 0;
    while (rig.reg[KL_REG_LOAD_DONE] != rig.reg[KL_REG_LOAD_DOORBELL]) {
        assert_int_equal(hash_in_block(1), 0);
        post_step(0, n % 3, n);
        rounds(1);
        assert_answers(0, n % 3, n);
        n++;
    }
    assert_int_equal(rig.reg[KL_REG_LOAD_STATUS], KL_OK);
    assert_true(n > KL_N_STREAM_MAX);
    /* What LOAD_DONE says is there: the hash in the block, and the slot. */
    assert_int_equal(hash_in_block(1), image[1]->image_hash);
    post_step(1, 0, 0);
    rounds(1);
    assert_answers(1, 0, 0);
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 0);
}

static void the_slot_is_empty_while_it_loads(void **state)
{
    (void)state;
    post_step(0, 0, 0);
    rounds(1);
    assert_answers(0, 0, 0);
    ring_load(0, image[1], image[1]->size_bytes);
    rounds(1);
    for (int i = 0; i < 50; i++) {
        post_step(0, 0, 0);
        rounds(1);
        assert_int_equal(hash_in_block(0), 0);
        assert_int_equal(take().status, KL_E_EMPTY);
    }
    assert_int_equal(load_status(), KL_OK);
    post_step(0, 0, 0);
    rounds(1);
    const struct kl_request request = kernel_rig_step(1, 0, 0); /* image[1] is in slot 1 over there */
    assert_true(kernel_rig_same(take(), kernel_rig_exec(build, direct, &request)));
}

static void every_doorbell_tells_how_its_load_ended(void **state)
{
    (void)state;
    struct kl_image_header *bad = model_image_new(&SHAPE, 1);
    assert_non_null(bad);
    bad->image_hash++;
    const struct model_image_shape large = {.n_in = 200, .n_layer = 1, .n_class = 1, .n_hidden = {1}};
    struct kl_image_header *beyond = model_image_new(&large, 1);
    assert_non_null(beyond);
    const struct {
        uint32_t slot;
        const struct kl_image_header *image;
        uint32_t size_bytes, status;
    } load[] = {
        {1, image[1], image[1]->size_bytes, KL_OK},
        {1, bad, bad->size_bytes, KL_E_IMAGE_HASH},
        {KL_N_SLOT, bad, bad->size_bytes, KL_E_SLOT},
        {UINT32_MAX, bad, 0, KL_E_SLOT},
        {1, image[1], 0, KL_E_IMAGE},
        {1, image[1], image[1]->size_bytes - 8, KL_E_IMAGE},
        {1, image[1], UINT32_MAX, KL_E_IMAGE},
        {1, beyond, beyond->size_bytes, KL_E_SHAPE},
        {1, NULL, image[1]->size_bytes, KL_E_IMAGE},
        {1, image[1], image[1]->size_bytes, KL_OK},
        {0, image[0], image[0]->size_bytes - 1, KL_E_IMAGE},
    };
    /* One that ends where it begins shows in its round. */
    ring_load(KL_N_SLOT, image[1], image[1]->size_bytes);
    rounds(1);
    assert_int_equal(rig.reg[KL_REG_LOAD_DONE], rig.reg[KL_REG_LOAD_DOORBELL]);
    assert_int_equal(rig.reg[KL_REG_LOAD_STATUS], KL_E_SLOT);
    rig.reg[KL_REG_LOAD_DOORBELL] = rig.unit->front.load_doorbell = 0u - 5; /* it wraps on the way */
    for (size_t i = 0; i < sizeof load / sizeof *load; i++) {
        ring_load(load[i].slot, load[i].image, load[i].size_bytes);
        assert_int_equal(load_status(), load[i].status);
        rounds(3);
        assert_int_equal(rig.reg[KL_REG_LOAD_STATUS], load[i].status);
        if (load[i].slot == 1)
            assert_int_equal(hash_in_block(1), load[i].status == KL_OK ? image[1]->image_hash : 0);
    }
    assert_int_equal(hash_in_block(1), image[1]->image_hash);
    assert_int_equal(hash_in_block(0), 0);
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 0);
    free(bad);
    free(beyond);
}

static void a_second_load_doorbell_is_refused_and_counted(void **state)
{
    (void)state;
    ring_load(1, image[1], image[1]->size_bytes);
    const uint32_t first = rig.reg[KL_REG_LOAD_DOORBELL];
    rounds(5);
    for (uint32_t i = 1; i <= 3; i++) {
        ring_load(i == 3 ? KL_N_SLOT : i - 1, image[1], 3);
        rounds(2);
        assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], i);
        assert_int_not_equal(rig.reg[KL_REG_LOAD_DONE], first);
    }
    /* The load goes on and ends under its own number; the refused ones' never shows. */
    rounds(2000);
    assert_int_equal(rig.reg[KL_REG_LOAD_DONE], first);
    assert_int_equal(rig.reg[KL_REG_LOAD_STATUS], KL_OK);
    assert_int_equal(hash_in_block(1), image[1]->image_hash);
    assert_int_equal(hash_in_block(0), image[0]->image_hash);
    ring_load(1, image[0], image[0]->size_bytes);
    assert_int_equal(load_status(), KL_OK);
    assert_int_equal(hash_in_block(1), image[0]->image_hash);
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 3);
}

/* Whoever began a load ends it: rounds and load_advance do not take each other's. */
static void the_two_ways_of_loading_do_not_mix(void **state)
{
    (void)state;
    assert_int_equal(build->load_begin(rig.unit, 1, image[1], image[1]->size_bytes), KL_OK);
    rig.image = image[0];
    rounds(2000);
    assert_int_equal(build->load_advance(rig.unit), KL_E_BUSY);
    ring_load(0, image[0], image[0]->size_bytes);
    rounds(5);
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 1);
    assert_int_equal(rig.reg[KL_REG_LOAD_DONE], 0);
    uint32_t status;
    while ((status = build->load_advance(rig.unit)) == KL_E_BUSY)
        ;
    assert_int_equal(status, KL_OK);

    ring_load(0, image[0], image[0]->size_bytes);
    rounds(5);
    assert_int_equal(build->load_advance(rig.unit), KL_E_EMPTY);
    assert_int_equal(build->load_begin(rig.unit, 1, image[1], image[1]->size_bytes), KL_E_BUSY);
    struct kl_result result;
    const struct kl_arguments arguments = {.command = KL_COMMAND_LOAD,
                                           .slot = 1,
                                           .image = image[0],
                                           .image_size_bytes = image[0]->size_bytes,
                                           .result = &result};
    build->kernel(rig.unit, &arguments);
    assert_int_equal(result.status, KL_E_BUSY);
    /* Rounds without an image wait for one. */
    rig.image = NULL;
    rounds(2000);
    assert_int_equal(rig.reg[KL_REG_LOAD_DONE], 0);
    rig.image = image[0];
    assert_int_equal(load_status(), KL_OK);
    assert_int_equal(hash_in_block(1), image[1]->image_hash);
    assert_int_equal(hash_in_block(0), image[0]->image_hash);
}

static void a_request_waits_for_the_loads_beat(void **state)
{
    (void)state;
    ring_load(1, image[1], image[1]->size_bytes);
    rounds(2);
    const uint32_t step = build->step_cycles(image[0], 1, 0);
    uint64_t clock = kernel_front_rig_cycles(&rig);
    rounds(1);
    const uint64_t beat = kernel_front_rig_cycles(&rig) - clock;
    assert_true(beat > 0);
    post_step(0, 0, 0);
    post_step(0, 1, 0);
    clock = kernel_front_rig_cycles(&rig);
    rounds(2);
    assert_int_equal(kernel_front_rig_cycles(&rig) - clock, 2 * (step + beat));
    assert_int_equal(take().wait_cycles, 0);
    assert_int_equal(take().wait_cycles, step + beat);
}

/* ---- bad doorbells ---- */

/* Nothing is executed, the doorbell counts once, and the service goes on when it is mended. */
static void assert_bad_tail(uint32_t tail, uint32_t n_bad)
{
    const uint32_t right = rig.reg[KL_REG_REQUEST_TAIL], head = rig.reg[KL_REG_REQUEST_HEAD];
    const uint64_t clock = kernel_front_rig_cycles(&rig);
    rig.reg[KL_REG_REQUEST_TAIL] = tail;
    rounds(4);
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], n_bad);
    assert_int_equal(rig.reg[KL_REG_REQUEST_HEAD], head);
    assert_int_equal(rig.reg[KL_REG_RESULT_TAIL], head);
    assert_int_equal(kernel_front_rig_cycles(&rig), clock);
    rig.reg[KL_REG_REQUEST_TAIL] = right;
}

static void a_wrong_tail_is_counted_once_and_survived(void **state)
{
    (void)state;
    uint32_t n_bad = 0;
    for (uint64_t n = 0; n < 20; n++) {
        struct kl_request request = kernel_rig_step(0, 0, 2 * n);
        request.flags = KL_REQUEST_PREPARE; /* owed, and not done either while the tail stands wrong */
        kernel_front_rig_post(&rig, &request);
        rounds(1);
        assert_answers(0, 0, 2 * n);
        const uint32_t head = rig.reg[KL_REG_REQUEST_HEAD];
        const uint32_t bad[] = {head + KL_QUEUE_DEPTH + 1, head - 1, head + 0x80000000u, head - 0x7fffffffu};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            assert_bad_tail(bad[i], ++n_bad);
        /* The same one again, without and with a good one seen between. */
        assert_bad_tail(bad[3], n_bad);
        rounds(1);
        assert_bad_tail(bad[3], ++n_bad);
        post_step(0, 0, 2 * n + 1);
        rounds(1);
        assert_answers(0, 0, 2 * n + 1);
    }
}

/* A tail that goes back would take away what was already seen. */
static void a_request_cannot_be_taken_back(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 3; n++)
        post_step(0, 0, n);
    rounds(1);
    rig.reg[KL_REG_REQUEST_TAIL] = 2;
    rounds(3);
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 1);
    assert_int_equal(rig.reg[KL_REG_RESULT_TAIL], 1);
    rig.reg[KL_REG_REQUEST_TAIL] = 3;
    rounds(2);
    for (uint64_t n = 0; n < 3; n++)
        assert_answers(0, 0, n);
}

static void exactly_a_full_queue_is_no_error(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < KL_QUEUE_DEPTH; n++)
        post_step(0, 0, n);
    rounds(KL_QUEUE_DEPTH);
    for (uint64_t n = 0; n < KL_QUEUE_DEPTH; n++)
        assert_answers(0, 0, n);
    assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 0);
}

static void a_wrong_result_head_is_counted_once_and_survived(void **state)
{
    (void)state;
    uint32_t n_bad = 0;
    for (uint64_t n = 0; n < 3; n++) {
        /* Seen without a request as well; a request waits until it is mended. */
        const uint32_t right = rig.reg[KL_REG_RESULT_HEAD];
        const uint32_t bad[] = {right + 1, right + 0x80000000u, right - KL_QUEUE_DEPTH - 1};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            rig.reg[KL_REG_RESULT_HEAD] = bad[i];
            rounds(3);
            assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], ++n_bad);
        }
        rig.reg[KL_REG_RESULT_HEAD] = right;
        rounds(1);
        rig.reg[KL_REG_RESULT_HEAD] = bad[2]; /* again, with a good one seen between */
        rounds(1);
        assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], ++n_bad);
        post_step(0, 0, n);
        rounds(3);
        assert_int_equal(rig.reg[KL_REG_RESULT_TAIL], right);
        assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], n_bad);
        rig.reg[KL_REG_RESULT_HEAD] = right;
        rounds(1);
        assert_answers(0, 0, n);
        rounds(1);
    }
}

/* ---- words that are the kernel's ---- */

static void writes_to_read_only_words_have_no_effect(void **state)
{
    (void)state;
    static uint32_t before[KL_N_REG];
    ring_load(1, image[1], image[1]->size_bytes);
    assert_int_equal(load_status(), KL_OK);
    for (uint64_t n = 0; n < 30; n++) {
        const uint32_t value = n % 3 == 0 ? 0 : n % 3 == 1 ? ~0u : (uint32_t)(n * 0x9e3779b9u);
        post_step(0, 0, n);
        rounds(1);
        memcpy(before, rig.reg, sizeof before);
        for (uint32_t r = 0; r < KL_REG_REQUESTS; r++) {
            if (r < KL_REG_REQUEST_TAIL || r >= KL_REG_REQUEST_HEAD)
                rig.reg[r] = value;
        }
        rounds(1);
        for (uint32_t r = 0; r < KL_REG_REQUESTS; r++) {
            if (r < KL_REG_REQUEST_TAIL || (r >= KL_REG_REQUEST_HEAD && r <= KL_REG_LOAD_DONE))
                assert_int_equal(rig.reg[r], before[r]);
        }
        assert_int_equal(rig.reg[KL_REG_BAD_DOORBELLS], 0);
        assert_answers(0, 0, n);
        /* An answer that is overwritten is the host's loss; the next in its place is whole. */
        memset(&rig.reg[KL_REG_RESULTS], (int)(value & 0xff), (KL_N_REG - KL_REG_RESULTS) * sizeof *rig.reg);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_load_runs_beside_the_service),
        TEST(the_slot_is_empty_while_it_loads),
        TEST(every_doorbell_tells_how_its_load_ended),
        TEST(a_second_load_doorbell_is_refused_and_counted),
        TEST(the_two_ways_of_loading_do_not_mix),
        TEST(a_request_waits_for_the_loads_beat),
        TEST(a_wrong_tail_is_counted_once_and_survived),
        TEST(a_request_cannot_be_taken_back),
        TEST(exactly_a_full_queue_is_no_error),
        TEST(a_wrong_result_head_is_counted_once_and_survived),
        TEST(writes_to_read_only_words_have_no_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
