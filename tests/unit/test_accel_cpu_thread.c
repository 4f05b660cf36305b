/* The cpu backend's second thread: what it prepares, what is taken back from it, and that nobody sees it in a
 * result. Worth running under ThreadSanitizer. */
#include "test_accel_cpu_rig.h"

#include <sched.h>

#include "host/accel_cpu_kernel.h"
#include "tests/model_image.h"

enum { N_STREAM = 5, N_CALL = 3000, SPINS = 100000000 };

static const struct model_image_shape SHAPES[] = {
    {.n_in = 16, .n_layer = 1, .n_class = 3, .n_hidden = {32}},
    {.n_in = 33, .n_layer = 2, .n_class = 2, .n_hidden = {70, 17}},
};
static struct kl_image_header *images[2];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        images[i] = model_image_new(&SHAPES[i], 40 + (uint64_t)i);
    return images[0] && images[1] ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(images[0]);
    free(images[1]);
    return 0;
}

/* ---- the worker by itself ---- */

static _Atomic int gate; /* a prepare waits here as long as it is shut */

static void gated_prepare(const struct cpu_model *model, uint8_t *state)
{
    (void)model;
    while (!atomic_load(&gate))
        sched_yield();
    state[0]++;
}

static const struct cpu_variant gated = {.prepare = gated_prepare};

static void the_worker_does_what_is_not_taken_back(void **state)
{
    (void)state;
    struct cpu_worker *worker = aligned_alloc(64, (sizeof *worker + 63) / 64 * 64);
    _Atomic uint32_t task[3] = {CPU_TASK_NONE, CPU_TASK_NONE, CPU_TASK_NONE};
    uint8_t states[3][64] = {{0}};
    assert_non_null(worker);
    atomic_store(&gate, 0);
    assert_int_equal(cpu_worker_start(worker, &gated), 0);
    for (int i = 0; i < 3; i++) {
        const struct cpu_job job = {.state = states[i], .task = &task[i]};
        assert_int_equal(cpu_worker_queue(worker, &job), 1);
    }
    while (atomic_load(&task[0]) == CPU_TASK_QUEUED)
        sched_yield();
    assert_int_equal(atomic_load(&task[0]), CPU_TASK_RUNNING);
    assert_int_equal(cpu_worker_take_back(&task[0]), 0); /* too late */
    assert_int_equal(cpu_worker_wait(&task[0], 10), 0);  /* and not over: the wait has a bound */
    assert_int_equal(cpu_worker_take_back(&task[1]), 1);
    assert_int_equal(cpu_worker_take_back(&task[1]), 0); /* it is nobody's now */
    assert_int_equal(cpu_worker_queued(worker), 3);
    assert_int_equal(cpu_worker_is_over(worker, 1), 0);
    atomic_store(&gate, 1);
    assert_int_equal(cpu_worker_wait(&task[2], SPINS), 1);
    assert_int_equal(cpu_worker_wait(&task[0], 0), 1);
    while (!cpu_worker_is_over(worker, 3))
        sched_yield();
    cpu_worker_stop(worker);
    assert_int_equal(states[0][0], 1);
    assert_int_equal(states[1][0], 0);
    assert_int_equal(states[2][0], 1);
    free(worker);
}

static void a_full_ring_refuses(void **state)
{
    (void)state;
    struct cpu_worker *worker = aligned_alloc(64, (sizeof *worker + 63) / 64 * 64);
    enum { N = 200 };
    static _Atomic uint32_t task[N];
    static uint8_t states[N][64];
    assert_non_null(worker);
    atomic_store(&gate, 0);
    assert_int_equal(cpu_worker_start(worker, &gated), 0);
    int n_queued = 0;
    for (int i = 0; i < N; i++) {
        const struct cpu_job job = {.state = states[i], .task = &task[i]};
        const int queued = cpu_worker_queue(worker, &job);
        assert_int_equal(atomic_load(&task[i]) == CPU_TASK_NONE, !queued);
        n_queued += queued;
    }
    assert_true(n_queued > 0 && n_queued < N);
    atomic_store(&gate, 1);
    while (!cpu_worker_is_over(worker, (uint64_t)n_queued))
        sched_yield();
    cpu_worker_stop(worker);
    for (int i = 0; i < N; i++)
        assert_int_equal(states[i][0], i < n_queued);
    free(worker);
}

/* ---- behind the interface ---- */

static void pause_a_little(uint64_t *seed)
{
    for (uint32_t i = tb_random_below(seed, 4) ? 0 : tb_random_below(seed, 2000); i > 0; i--)
        __asm__ volatile("" ::: "memory");
    if (tb_random_below(seed, 50) == 0)
        sched_yield();
}

/* The same calls with and without a second thread: the same results, byte for byte. */
static void nobody_sees_it(void **state)
{
    (void)state;
    const struct accel_cpu_options with = {.build = &kl_build_small, .prepare_thread = 1};
    const struct accel_cpu_options without = {.build = &kl_build_small};
    struct accel *two = accel_cpu_open(&with), *one = accel_cpu_open(&without);
    uint64_t seed = 5;
    assert_non_null(two);
    assert_non_null(one);
    for (uint32_t slot = 0; slot < 2; slot++) {
        assert_int_equal(accel_load(two, slot, images[slot], images[slot]->size_bytes), KL_OK);
        assert_int_equal(accel_load(one, slot, images[slot], images[slot]->size_bytes), KL_OK);
    }
    uint32_t loaded[2] = {0, 1};
    for (uint32_t i = 0; i < N_CALL; i++) {
        const uint16_t slot = (uint16_t)tb_random_below(&seed, 2);
        struct kl_request request = rig_request(KL_OP_STEP, slot, tb_random_below(&seed, N_STREAM), i);
        request.flags = tb_random_below(&seed, 8) ? KL_REQUEST_PREPARE : 0;
        request.op = tb_random_below(&seed, 12) ? KL_OP_STEP : (uint16_t)(1 + tb_random_below(&seed, 3));
        for (uint32_t k = 0; k < SHAPES[loaded[slot]].n_in; k++)
            request.x[k] = model_image_random_x(&seed);
        const struct kl_result expected = rig_answer(one, &request), got = rig_answer(two, &request);
        rig_assert_same(&got, &expected, "with a second thread");
        pause_a_little(&seed);
        if (tb_random_below(&seed, 3)) {
            struct kl_result unused;
            assert_int_equal(one->ops->poll(one, &unused), -1);
            assert_int_equal(two->ops->poll(two, &unused), -1);
        }
        if (tb_random_below(&seed, 30) == 0) {
            struct kl_state a, b;
            const uint32_t stream = tb_random_below(&seed, N_STREAM);
            assert_int_equal(one->ops->save(one, slot, stream, &a), KL_OK);
            assert_int_equal(two->ops->save(two, slot, stream, &b), KL_OK);
            assert_memory_equal(&a, &b, sizeof a);
            assert_int_equal(one->ops->restore(one, slot, N_STREAM - 1 - stream, &a), KL_OK);
            assert_int_equal(two->ops->restore(two, slot, N_STREAM - 1 - stream, &a), KL_OK);
        }
        if (tb_random_below(&seed, 20) == 0)
            two->ops->warm(two, slot, request.stream);
        if (tb_random_below(&seed, 300) == 0) { /* the worker may be at work on the old model */
            loaded[slot] = tb_random_below(&seed, 2);
            const struct kl_image_header *image = images[loaded[slot]];
            assert_int_equal(accel_load(two, slot, image, image->size_bytes), KL_OK);
            assert_int_equal(accel_load(one, slot, image, image->size_bytes), KL_OK);
        }
        if (tb_random_below(&seed, 40) == 0) {
            struct kl_request batch[N_STREAM];
            struct kl_result of_two[N_STREAM], of_one[N_STREAM];
            for (uint32_t s = 0; s < N_STREAM; s++) {
                batch[s] = request;
                batch[s].op = KL_OP_STEP;
                batch[s].stream = s;
            }
            accel_cpu_step_batch(two, batch, of_two, N_STREAM);
            accel_cpu_step_batch(one, batch, of_one, N_STREAM);
            assert_memory_equal(of_two, of_one, sizeof of_one);
        }
    }
    two->ops->close(two);
    one->ops->close(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worker_does_what_is_not_taken_back),
        cmocka_unit_test(a_full_ring_refuses),
        cmocka_unit_test(nobody_sees_it),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
