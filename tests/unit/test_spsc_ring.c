#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "host/spsc_ring.h"

struct item {
    uint64_t seq_no, check[4];
};

static void fill(struct item *item, uint64_t seq_no)
{
    item->seq_no = seq_no;
    for (int i = 0; i < 4; i++)
        item->check[i] = (seq_no + (uint64_t)i) * 0x9e3779b97f4a7c15u;
}

/* Nonzero: the item is whole and is number seq_no. */
static int whole(const struct item *item, uint64_t seq_no)
{
    int ok = item->seq_no == seq_no;
    for (int i = 0; i < 4; i++)
        ok &= item->check[i] == (seq_no + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    return ok;
}

static void test_refused_sizes(void **state)
{
    (void)state;
    struct spsc_ring ring;
    assert_int_equal(spsc_ring_init(&ring, 0, 8), -1);
    assert_int_equal(spsc_ring_init(&ring, 3, 8), -1);
    assert_int_equal(spsc_ring_init(&ring, 6, 8), -1);
    assert_int_equal(spsc_ring_init(&ring, 8, 0), -1);
    assert_int_equal(spsc_ring_init(&ring, 1, 1), 0);
    spsc_ring_free(&ring);
}

static void test_layout(void **state)
{
    (void)state;
    /* producer's, consumer's and read-only fields share no cache line */
    assert_int_equal(offsetof(struct spsc_ring, head) / 64, offsetof(struct spsc_ring, tail_seen) / 64);
    assert_int_equal(offsetof(struct spsc_ring, tail) / 64, offsetof(struct spsc_ring, head_seen) / 64);
    assert_int_not_equal(offsetof(struct spsc_ring, head) / 64, offsetof(struct spsc_ring, tail) / 64);
    assert_int_not_equal(offsetof(struct spsc_ring, tail) / 64, offsetof(struct spsc_ring, mask) / 64);
}

static void test_full_empty_wrap(void **state)
{
    (void)state;
    for (uint64_t size = 1; size <= 8; size *= 2) {
        struct spsc_ring ring;
        assert_int_equal(spsc_ring_init(&ring, size, sizeof(struct item)), 0);
        uint64_t in = 0, out = 0;
        assert_null(spsc_ring_peek(&ring));
        /* every fill level at every position, several laps */
        for (int lap = 0; lap < 40; lap++) {
            uint64_t n_in = 1 + (uint64_t)lap % size, n_out;
            for (uint64_t i = 0; i < n_in; i++) {
                struct item *slot = spsc_ring_reserve(&ring);
                if (in - out == size) {
                    assert_null(slot);
                    break;
                }
                assert_non_null(slot);
                assert_ptr_equal(slot, spsc_ring_reserve(&ring)); /* reserving alone takes nothing */
                fill(slot, in++);
                spsc_ring_push(&ring);
            }
            assert_int_equal(spsc_ring_count(&ring), in - out);
            n_out = 1 + (uint64_t)(lap * 7) % size;
            for (uint64_t i = 0; i < n_out; i++) {
                const struct item *item = spsc_ring_peek(&ring);
                if (in == out) {
                    assert_null(item);
                    break;
                }
                assert_non_null(item);
                assert_ptr_equal(item, spsc_ring_peek(&ring)); /* peeking takes nothing */
                assert_true(whole(item, out));
                out++;
                spsc_ring_pop(&ring);
            }
        }
        while (in - out < size) {
            fill(spsc_ring_reserve(&ring), in++);
            spsc_ring_push(&ring);
        }
        assert_null(spsc_ring_reserve(&ring));
        assert_int_equal(spsc_ring_count(&ring), size);
        assert_true(whole(spsc_ring_peek(&ring), out));
        spsc_ring_pop(&ring);
        assert_non_null(spsc_ring_reserve(&ring));
        spsc_ring_free(&ring);
    }
}

struct run {
    struct spsc_ring ring;
    uint64_t n, n_full;
};

static void *produce(void *arg)
{
    struct run *run = arg;
    for (uint64_t i = 0; i < run->n; i++) {
        struct item *slot;
        while ((slot = spsc_ring_reserve(&run->ring)) == NULL) {
            run->n_full++;
            sched_yield(); /* the two threads may share a core */
        }
        fill(slot, i);
        spsc_ring_push(&run->ring);
    }
    return NULL;
}

/* Two threads, a small ring that wraps all the time: every item arrives once, whole and in order. */
static void run_two_threads(uint64_t size, uint64_t n)
{
    struct run *run = aligned_alloc(64, (sizeof(*run) + 63) / 64 * 64);
    assert_non_null(run);
    run->n = n;
    run->n_full = 0;
    assert_int_equal(spsc_ring_init(&run->ring, size, sizeof(struct item)), 0);
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, produce, run), 0);
    uint64_t n_bad = 0, n_empty = 0, n_over = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct item *item;
        while ((item = spsc_ring_peek(&run->ring)) == NULL) {
            n_empty++;
            sched_yield();
        }
        n_bad += !whole(item, i);
        n_over += spsc_ring_count(&run->ring) > size;
        spsc_ring_pop(&run->ring);
    }
    pthread_join(producer, NULL);
    assert_int_equal(n_bad, 0);
    assert_int_equal(n_over, 0);
    assert_null(spsc_ring_peek(&run->ring));
    assert_true(run->n_full + n_empty > 0); /* else it never was at its limits, and this showed nothing */
    spsc_ring_free(&run->ring);
    free(run);
}

static void test_two_threads(void **state)
{
    (void)state;
    run_two_threads(1, 200000);
    run_two_threads(4, 1000000);
    run_two_threads(1024, 4000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_sizes),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_full_empty_wrap),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
