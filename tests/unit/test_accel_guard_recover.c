/* The guard without threads: how a lost card comes back, and models that load meanwhile. */
#include "test_accel_guard_faults.h"

/* ---- the way back ---- */

static void resets_fail_and_are_tried_again(void **state)
{
    (void)state;
    const struct accel_guard_options options = rig_options(1);
    struct rig *rig = rig_open(&options, 8);
    rig_run(rig, 30, 0);
    rig->card[0].reset_fails = 9;
    rig->card[0].fault = RIG_REFUSE;
    uint32_t tried_at[10] = {0}, n_poll = 0;
    rig_call(rig, KL_OP_STEP, 0, 0);
    for (int seen = 0; seen < 10; n_poll++) {
        rig_idle(rig);
        assert_true(n_poll < 30000);
        if (rig->card[0].n_reset != seen)
            tried_at[seen++] = n_poll;
    }
    for (uint32_t i = 2; i < 10; i++) { /* 64 idle polls, doubling up to 64 times that */
        const uint32_t wait = tried_at[i] - tried_at[i - 1], doublings = i - 1 < 6 ? i - 1 : 6;
        assert_in_range(wait, 64u << doublings, (64u << doublings) + 1);
    }
    assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING));
    assert_int_equal(rig_stats(rig, 0).resets_failed, 9);
    assert_int_equal(rig_stats(rig, 0).resets, 1);
    uint32_t n_failed = 0, n_good = 0;
    for (uint32_t i = 0; i < rig->n_event; i++)
        if (rig->events[i].code == ACCEL_GUARD_RESET)
            *(rig->events[i].reason == ACCEL_GUARD_REFUSED ? &n_failed : &n_good) += 1;
    assert_int_equal(n_failed, 9);
    assert_int_equal(n_good, 1);
    rig_compare_states(rig);
    /* It fails again soon: it waits before the first reset. After a recovery that lasted it does not. */
    for (int i = 0; i < 3; i++) {
        const int lasting = i == 1;
        for (int k = 0; lasting && k < 1100; k++)
            rig_call(rig, KL_OP_STEP, 0, 0);
        rig->card[0].fault = RIG_REFUSE;
        rig_call(rig, KL_OP_STEP, 0, 0);
        const int n_reset = rig->card[0].n_reset;
        rig_idle(rig);
        assert_int_equal(rig->card[0].n_reset, n_reset + lasting);
        assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING));
    }
    rig_end(rig);
}

static void a_card_without_reset_stays_out(void **state)
{
    (void)state;
    struct accel_ops no_reset = rig_ops;
    no_reset.reset = NULL;
    const struct accel_guard_options options = rig_options(1);
    struct rig *rig = rig_open(&options, 9);
    rig->card[0].accel.ops = &no_reset;
    rig_run(rig, 30, 0);
    rig->card[0].fault = RIG_HANG;
    rig_run(rig, 500, 1);
    assert_phase(rig, 0, ACCEL_GUARD_OUT);
    assert_int_equal(rig_stats(rig, 0).resets, 0);
    rig_compare_states(rig);
    rig_end(rig);
}

/* A fault that a reset does not cure is seen by the probes, every time; then it is cured. */
static void probes_find_what_a_reset_leaves(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_DETECTED; i++) {
        if (DETECTED[i].fault == RIG_EXTRA) /* an idle moment is only at the end: below */
            continue;
        const struct accel_guard_options options = rig_options(1);
        struct rig *rig = rig_open(&options, 200 + i);
        rig_run(rig, 20, 0);
        rig->card[0].sticky = 1;
        rig->lies_allowed = is_lie(DETECTED[i].fault);
        rig->card[0].fault = DETECTED[i].fault;
        rig_run(rig, 10, 0);
        rig->lies_allowed = 0;
        for (int k = 0; rig_count(rig, ACCEL_GUARD_PROBE_FAILED) < 2; k++) {
            assert_true(k < 30000);
            assert_int_not_equal(rig_stats(rig, 0).phase, ACCEL_GUARD_SERVING);
            rig_call(rig, KL_OP_STEP, (uint32_t)k % 2, (uint32_t)k % 5);
            rig_idle(rig);
        }
        for (uint32_t e = 0; e < rig->n_event; e++)
            if (rig->events[e].code == ACCEL_GUARD_PROBE_FAILED)
                assert_int_equal(rig->events[e].reason, DETECTED[i].reason == ACCEL_GUARD_STATUS
                                                            ? ACCEL_GUARD_DIFFERS
                                                            : DETECTED[i].reason);
        rig->card[0].sticky = 0;
        rig->card[0].fault = RIG_NONE;
        assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING));
        rig_compare_states(rig);
        rig_end(rig);
    }
}

/* The card answers probes, and fails at what comes after them. */
static void shadowing_fails(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        const struct accel_guard_options options = rig_options(1);
        struct rig *rig = rig_open(&options, 300);
        rig_run(rig, 100, 0);
        rig->card[0].load_fails = kind == 0;
        rig->card[0].restore_fails = kind == 1;
        rig->card[0].fault = RIG_REFUSE;
        rig_call(rig, KL_OP_STEP, 0, 0);
        const int n_answer = rig->card[0].n_answer;
        for (int k = 0; rig_count(rig, ACCEL_GUARD_PROBE_FAILED) < 1; k++) {
            assert_true(k < 30000);
            /* The probes and their resets are over. */
            if (kind >= 2 && rig->card[0].n_answer >= n_answer + (int)options.n_probe + 2)
                rig->card[0].fault = kind == 2 ? RIG_FLIP : kind == 3 ? RIG_EXTRA : RIG_HANG;
            for (uint32_t s = 0; kind % 2 == 0 && s < RIG_N_STREAM; s++)
                rig_call(rig, KL_OP_STEP, 1, s);
            rig_idle(rig);
        }
        assert_true(rig->events[rig->n_event - 1].count >= (kind ? options.n_probe : 0));
        const enum accel_guard_reason reason[5] = {ACCEL_GUARD_LOAD, ACCEL_GUARD_STATUS, ACCEL_GUARD_DIFFERS,
                                                   ACCEL_GUARD_SEQUENCE, ACCEL_GUARD_SILENT};
        assert_int_equal(rig->events[rig->n_event - 1].reason, reason[kind]);
        assert_phase(rig, 0, ACCEL_GUARD_OUT);
        const int n_reset = rig->card[0].n_reset;
        rig_idle(rig);
        assert_int_equal(rig->card[0].n_reset, n_reset); /* not at once again */
        assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING));
        rig_compare_states(rig);
        rig_run(rig, 100, 0);
        rig_end(rig);
    }
}

/* Live requests while it shadows, of streams that are in step, of those that are not yet, and of new ones. */
static void live_requests_are_shadowed(void **state)
{
    (void)state;
    struct accel_guard_options options = rig_options(2);
    options.n_probe = 3;
    struct rig *rig = rig_open(&options, 11);
    uint64_t n_equal = 0;
    for (int round = 0; round < 20; round++) {
        rig_run(rig, 30, 0);
        rig->card[0].fault = RIG_REFUSE;
        rig_call(rig, KL_OP_STEP, 0, 0);
        const uint32_t n_event = rig->n_event;
        for (int k = 0; rig_stats(rig, 0).phase != ACCEL_GUARD_SERVING; k++) {
            assert_true(k < 30000);
            const struct kl_request request = rig_any_request(rig);
            assert_int_equal(rig_ask(rig, &request), 0);
            rig_hear(rig);
            if (rig_below(rig, 10) == 0)
                rig_move_state(rig);
            rig_idle(rig);
        }
        for (uint32_t e = n_event; e < rig->n_event; e++) {
            assert_int_not_equal(rig->events[e].code, ACCEL_GUARD_PROBE_FAILED);
            if (rig->events[e].code == ACCEL_GUARD_RECOVERED)
                n_equal += rig->events[e].count;
        }
        rig_compare_states(rig);
    }
    assert_true(n_equal > 20 * (3 + 2)); /* more than probes and their resets */
    rig_end(rig);
}

/* ---- models ---- */

static void models_load_in_every_phase(void **state)
{
    (void)state;
    const enum accel_guard_phase phases[] = {ACCEL_GUARD_SERVING, ACCEL_GUARD_OUT, ACCEL_GUARD_SHADOWING};
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t n_idle = 0; n_idle < 3; n_idle++) {
            const struct accel_guard_options options = rig_options(2);
            struct rig *rig = rig_open(&options, 20 + p);
            rig_run(rig, 50, 1);
            rig->card[1].reset_fails = p == 1 ? 1 : 0;
            if (p) {
                rig->card[1].fault = RIG_HANG;
                rig_call(rig, KL_OP_STEP, 0, 1);
            }
            assert_true(rig_reaches(rig, 1, phases[p]));
            for (uint32_t i = 0; i < n_idle; i++)
                rig_idle(rig);
            const uint32_t slot = p % 2;
            const struct kl_image_header *image = rig->images[1 - slot];
            struct accel *guard = rig->guard;
            /* In pieces, with requests between them. */
            assert_int_equal(guard->ops->load_begin(guard, slot, image, image->size_bytes), KL_OK);
            assert_int_equal(guard->ops->load_begin(guard, slot, image, image->size_bytes), KL_E_BUSY);
            uint32_t status, n_piece = 0;
            while ((status = guard->ops->load_advance(guard)) == KL_E_BUSY) {
                if (n_piece++ % 16)
                    continue;
                struct kl_request request = rig_request(rig, KL_OP_STEP, slot, rig_below(rig, 4));
                struct kl_result result;
                request.op = n_piece % 3 ? KL_OP_STEP : 77;
                assert_int_equal(guard->ops->submit(guard, &request), 0);
                assert_int_equal(guard->ops->poll(guard, &result), 1);
                assert_int_equal(result.status, n_piece % 3 ? KL_E_EMPTY : KL_E_OP);
                assert_int_equal(result.check, kl_result_check(&result));
                assert_int_equal(accel_guard_mirrored(guard),
                                 n_piece % 3 == 0 && p > 0 && request.stream % 2);
                for (uint32_t s = 0; s < 4; s++)
                    rig_call(rig, KL_OP_STEP, 1 - slot, s);
                rig_idle(rig);
            }
            assert_int_equal(status, KL_OK);
            assert_int_equal(guard->ops->load_advance(guard), KL_E_EMPTY);
            assert_int_equal(accel_load(rig->truth, slot, image, image->size_bytes), KL_OK);
            rig->loaded[slot] = image;
            rig_run(rig, 20, 0);
            assert_true(rig_reaches(rig, 1, ACCEL_GUARD_SERVING));
            rig_compare_states(rig);
            rig_run(rig, 50, 1);
            rig_compare_states(rig);
            assert_int_equal(rig_stats(rig, 1).failovers, p > 0);
            assert_int_equal(rig_stats(rig, 0).failovers, 0);
            rig_end(rig);
        }
}

/* A model that is large enough for a load to meet every moment of another. */
static void a_load_interrupts_the_way_back(void **state)
{
    (void)state;
    const struct model_image_shape shape = {.n_in = 30, .n_layer = 1, .n_class = 3, .n_hidden = {64}};
    for (uint32_t n_idle = 0; n_idle < 60; n_idle++) {
        const struct accel_guard_options options = rig_options(1);
        struct rig *rig = rig_open(&options, 32);
        free(rig->images[0]);
        rig->images[0] = model_image_new(&shape, 9);
        assert_non_null(rig->images[0]);
        rig_load(rig, 0, 0);
        rig_run(rig, 10, 0);
        rig->card[0].fault = RIG_REFUSE;
        rig_call(rig, KL_OP_STEP, 0, 0);
        for (uint32_t i = 0; i < n_idle; i++)
            rig_idle(rig);
        rig_load(rig, 1, 0);
        assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING));
        assert_int_equal(rig_count(rig, ACCEL_GUARD_PROBE_FAILED), 0);
        rig_run(rig, 10, 0);
        rig_compare_states(rig);
        rig_end(rig);
    }
}

static void loads_that_fail(void **state)
{
    (void)state;
    const struct accel_guard_options options = rig_options(2);
    struct rig *rig = rig_open(&options, 31);
    struct accel *guard = rig->guard;
    struct kl_image_header *image = rig->images[0];
    rig_run(rig, 50, 0);
    rig_idle(rig);
    /* All refuse it: it is the image's fault. */
    image->head_frac ^= 1;
    assert_int_equal(accel_load(guard, 1, image, image->size_bytes), KL_E_IMAGE_HASH);
    assert_int_equal(accel_load(rig->truth, 1, image, image->size_bytes), KL_E_IMAGE_HASH);
    image->head_frac ^= 1;
    assert_int_equal(accel_load(guard, KL_N_SLOT, image, image->size_bytes), KL_E_SLOT);
    rig->loaded[1] = NULL;
    assert_int_equal(rig_call(rig, KL_OP_STEP, 1, 1).status, KL_E_EMPTY);
    assert_int_equal(rig_call(rig, KL_OP_STEP, 0, 1).status, KL_OK);
    rig_idle(rig);
    assert_int_equal(rig->n_event, 0);
    /* A card that is lost meanwhile comes back with the slot empty. */
    rig->card[0].fault = RIG_REFUSE;
    rig_call(rig, KL_OP_STEP, 0, 0);
    assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING));
    assert_int_equal(rig_call(rig, KL_OP_STEP, 1, 0).status, KL_E_EMPTY);
    /* One card refuses it: that card is lost, the model is there. */
    rig->card[1].load_fails = 1;
    rig_load(rig, 1, 1);
    rig_idle(rig);
    const struct accel_guard_stats lost = rig_stats(rig, 1);
    assert_int_equal(lost.failovers, 1);
    for (uint32_t i = 0; i < rig->n_event; i++)
        if (rig->events[i].code == ACCEL_GUARD_FAILOVER && rig->events[i].card == 1)
            assert_int_equal(rig->events[i].reason, ACCEL_GUARD_LOAD);
    assert_int_equal(rig_count(rig, ACCEL_GUARD_FAILOVER), 2);
    rig_run(rig, 50, 0);
    assert_true(rig_reaches(rig, 1, ACCEL_GUARD_SERVING));
    rig_compare_states(rig);
    struct kl_info info;
    guard->ops->info(guard, &info);
    for (uint32_t s = 0; s < KL_N_SLOT; s++)
        assert_int_equal(info.image_hash[s], rig->loaded[s]->image_hash);
    rig_end(rig);
}

/* The last card that still loads is lost between two pieces: the mirrors' verdict stands. */
static void a_card_is_lost_while_it_loads(void **state)
{
    (void)state;
    for (uint32_t n_piece = 0; n_piece < 800; n_piece += 29) {
        const struct accel_guard_options options = rig_options(1);
        struct rig *rig = rig_open(&options, 33);
        rig->card[0].load_delay = 600; /* the mirror is ready long before */
        const struct kl_image_header *image = rig->images[0];
        struct accel *guard = rig->guard;
        rig_run(rig, 20, 0);
        assert_int_equal(guard->ops->load_begin(guard, 1, image, image->size_bytes), KL_OK);
        uint32_t status = KL_E_BUSY;
        for (uint32_t i = 0; i < n_piece && status == KL_E_BUSY; i++)
            status = guard->ops->load_advance(guard);
        rig->card[0].fault = RIG_REFUSE;
        rig_call(rig, KL_OP_STEP, 0, 0);
        for (int i = 0; status == KL_E_BUSY; i++) {
            assert_true(i < 100000);
            status = guard->ops->load_advance(guard);
            rig_idle(rig);
        }
        assert_int_equal(status, KL_OK);
        assert_int_equal(accel_load(rig->truth, 1, image, image->size_bytes), KL_OK);
        rig->loaded[1] = image;
        rig_run(rig, 20, 0);
        assert_true(rig_reaches(rig, 0, ACCEL_GUARD_SERVING));
        rig_compare_states(rig);
        rig_end(rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resets_fail_and_are_tried_again), cmocka_unit_test(a_card_without_reset_stays_out),
        cmocka_unit_test(probes_find_what_a_reset_leaves), cmocka_unit_test(shadowing_fails),
        cmocka_unit_test(live_requests_are_shadowed),      cmocka_unit_test(models_load_in_every_phase),
        cmocka_unit_test(a_load_interrupts_the_way_back),  cmocka_unit_test(loads_that_fail),
        cmocka_unit_test(a_card_is_lost_while_it_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
