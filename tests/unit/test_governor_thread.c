/* Readers beside the poll loop: every copy is one that was written as a whole, and never older than the last.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "test_governor_rig.h"

#ifdef __SANITIZE_THREAD__ /* sees each race at once, and is slow */
enum { N_SLICE_WRITTEN = 4000 };
#else
enum { N_SLICE_WRITTEN = 100000 }; /* so many that a copy that is torn was seen in nine runs of ten */
#endif
enum { N_READER = 2, PER_SLICE = 3 };

struct shared {
    struct governor *g;
    atomic_int done;
    atomic_uint ready;
};

struct reader {
    struct shared *shared;
    pthread_t thread;
    uint64_t n_read, n_new, n_torn;
};

/* The poll loop of this test tells ring and threshold as functions of the time. */
static int is_whole(const struct governor_stats *s)
{
    const uint64_t n = s->at / SLICE;
    int whole = s->at % SLICE == 0 && s->total == n * PER_SLICE && s->threshold == n * 3 &&
                s->ring_used == n && s->ring_size == (n ? n + 1 : 0) &&
                s->n_device_fault <= GOVERNOR_N_FAULT && s->by_verdict[VERDICT_PUBLISHED] == s->count &&
                s->total_by_verdict[VERDICT_PUBLISHED] == s->total && s->max_ns == (n ? n - 1 : 0);
    for (uint64_t i = 0; i < s->n_device_fault; i++)
        whole &= s->device_fault[i] == s->at - (s->n_device_fault - 1 - i) * SLICE;
    return whole && (n == 0 || s->n_device_fault == (n < GOVERNOR_N_FAULT ? n : GOVERNOR_N_FAULT));
}

static void *read_on(void *arg)
{
    struct reader *r = arg;
    uint64_t last = 0;
    atomic_fetch_add(&r->shared->ready, 1);
    for (int done = 0; !done;) {
        done = atomic_load(&r->shared->done);
        struct governor_stats s;
        governor_read(r->shared->g, &s);
        r->n_read++;
        r->n_new += s.at > last;
        r->n_torn += !is_whole(&s) || s.at < last;
        last = s.at;
    }
    r->n_torn += last != (uint64_t)N_SLICE_WRITTEN * SLICE;
    return NULL;
}

static void copies_are_whole(void **state)
{
    (void)state;
    struct governor_config c = rig_config();
    c.throttle_window = UINT64_C(1) << 40;
    struct shared shared = {.g = rig_create(&c, 0)};
    struct reader reader[N_READER];
    for (int i = 0; i < N_READER; i++) {
        reader[i] = (struct reader){.shared = &shared};
        assert_int_equal(pthread_create(&reader[i].thread, NULL, read_on, &reader[i]), 0);
    }
    while (atomic_load(&shared.ready) < N_READER)
        ;
    for (uint64_t n = 1; n <= N_SLICE_WRITTEN; n++) {
        for (int i = 0; i < PER_SLICE; i++)
            governor_prediction(shared.g, VERDICT_PUBLISHED, n - 1, 1000);
        governor_threshold(shared.g, n * 3);
        governor_ring(shared.g, n, n + 1);
        governor_device_error(shared.g, n * SLICE);
        governor_step(shared.g, n * SLICE);
    }
    atomic_store(&shared.done, 1);
    for (int i = 0; i < N_READER; i++) {
        assert_int_equal(pthread_join(reader[i].thread, NULL), 0);
        assert_int_equal(reader[i].n_torn, 0);
        assert_true(reader[i].n_new > 0);
    }
    governor_free(shared.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies_are_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
