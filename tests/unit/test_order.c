/* The order desk: what it says before, between and after; a halt never lost, whatever became of the order
 * before it; and two threads on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "host/clock.h"
#include "host/order.h"

static const struct order halt = {ORDER_HALT, "ann (uid 7)", "smoke"},
                          resume = {ORDER_RESUME, "bob (uid 8)", "aired"};

static void one_after_the_other(void **state)
{
    (void)state;
    struct order_desk desk = {0};
    assert_false(order_is_halted(&desk));
    assert_true(order_is_done(&desk));
    assert_null(order_next(&desk));

    const uint64_t before = clock_tsc();
    assert_int_equal(order_post(&desk, &halt), 0);
    assert_true(order_is_halted(&desk)); /* at once */
    assert_false(order_is_done(&desk));
    assert_in_range(desk.halted_at, before, clock_tsc());
    const struct order *next = order_next(&desk);
    assert_memory_equal(next, &halt, sizeof(halt));
    order_carried_out(&desk);
    assert_null(order_next(&desk));
    assert_true(order_is_done(&desk));
    assert_true(order_is_halted(&desk));
    assert_in_range(desk.seen_at, desk.halted_at, clock_tsc());

    assert_int_equal(order_post(&desk, &resume), 0);
    assert_true(order_is_halted(&desk)); /* only when it is carried out */
    assert_memory_equal(order_next(&desk), &resume, sizeof(resume));
    order_carried_out(&desk);
    assert_false(order_is_halted(&desk));
    assert_true(order_is_done(&desk));
}

/* The poll loop has not come round yet. */
static void busy(void **state)
{
    (void)state;
    struct order_desk desk = {0};
    assert_int_equal(order_post(&desk, &halt), 0);
    assert_int_equal(order_post(&desk, &resume), -1);
    assert_true(order_is_halted(&desk));
    assert_int_equal(order_next(&desk)->kind, ORDER_HALT); /* as it was */
    order_carried_out(&desk);
    assert_null(order_next(&desk));
    assert_true(order_is_halted(&desk));
}

/* A halt that comes while a resume waits is in force, and the resume does not lift it. */
static void halt_overtakes_resume(void **state)
{
    (void)state;
    struct order_desk desk = {0};
    for (int was_halted = 0; was_halted < 2; was_halted++) {
        assert_int_equal(order_post(&desk, &resume), 0);
        assert_int_equal(order_post(&desk, &halt), -1);
        assert_true(order_is_halted(&desk));
        order_carried_out(&desk); /* the resume */
        assert_true(order_is_halted(&desk));
        assert_int_equal(order_post(&desk, &halt), 0); /* again, for the ladder */
        order_carried_out(&desk);
        assert_true(order_is_halted(&desk));
    }
    assert_int_equal(order_post(&desk, &resume), 0);
    order_carried_out(&desk);
    assert_false(order_is_halted(&desk));
}

/* The halt's number wraps past 0. */
static void four_billion_halts(void **state)
{
    (void)state;
    struct order_desk desk = {.halts = UINT32_MAX - 1};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(order_post(&desk, &halt), 0);
        assert_true(order_is_halted(&desk));
        order_carried_out(&desk);
    }
}

static void texts(void **state)
{
    (void)state;
    char by[ORDER_BY_CHARS], name[ORDER_NAME_CHARS + 1];
    memset(name, 'n', sizeof(name));
    name[ORDER_NAME_CHARS] = '\0';
    assert_string_equal(order_text_check(name, ORDER_NAME_CHARS), "is too long");
    name[ORDER_NAME_CHARS - 1] = '\0';
    assert_null(order_text_check(name, ORDER_NAME_CHARS));
    order_by(by, name, UINT32_MAX); /* the longest there is */
    assert_int_equal(strlen(by), ORDER_BY_CHARS - 1);
    assert_non_null(strstr(by, "n (uid 4294967295)"));
    assert_null(order_text_check("", 1));
    assert_null(order_text_check(" ~", 3));
    assert_non_null(order_text_check("a\nb", 9));
    assert_non_null(order_text_check("a\x7f", 9));
    assert_non_null(order_text_check("caf\xc3\xa9", 9));
}

/* Two threads. The poll loop sees whole orders only, each once, and after a halt that was ordered it never
 * again finds the desk open until the resume. */
enum { N_ORDER = 20000 };
struct loop {
    struct order_desk desk;
    unsigned seen, torn, open_while_halted;
    _Atomic int end, is_ordered_halted;
};

static void *loop(void *argument)
{
    struct loop *l = argument;
    while (!atomic_load_explicit(&l->end, memory_order_relaxed)) {
        /* The order of these two looks: told first, then the desk. */
        if (atomic_load_explicit(&l->is_ordered_halted, memory_order_acquire) && !order_is_halted(&l->desk))
            l->open_while_halted++;
        const struct order *next = order_next(&l->desk);
        if (!next)
            continue;
        const enum order_kind expected = l->seen % 2 ? ORDER_RESUME : ORDER_HALT;
        unsigned n = 0;
        for (size_t i = 0; i < sizeof(next->reason) - 1; i++)
            n += next->reason[i] == next->by[0];
        l->torn += next->kind != expected || n != sizeof(next->reason) - 1;
        l->seen++;
        order_carried_out(&l->desk);
    }
    return NULL;
}

static void two_threads(void **state)
{
    (void)state;
    static struct loop l;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, loop, &l), 0);
    for (int i = 0; i < N_ORDER; i++) {
        struct order order = {.kind = i % 2 ? ORDER_RESUME : ORDER_HALT};
        order.by[0] = (char)('a' + i % 26);
        memset(order.reason, order.by[0], sizeof(order.reason) - 1);
        if (order.kind == ORDER_RESUME)
            atomic_store_explicit(&l.is_ordered_halted, 0, memory_order_relaxed);
        while (order_post(&l.desk, &order))
            ;
        if (order.kind == ORDER_HALT)
            atomic_store_explicit(&l.is_ordered_halted, 1, memory_order_release);
        while (!order_is_done(&l.desk))
            ;
        assert_int_equal(order_is_halted(&l.desk), order.kind == ORDER_HALT);
    }
    atomic_store(&l.end, 1);
    pthread_join(thread, NULL);
    assert_int_equal(l.seen, N_ORDER);
    assert_int_equal(l.torn, 0);
    assert_int_equal(l.open_while_halted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(busy),
        cmocka_unit_test(halt_overtakes_resume),
        cmocka_unit_test(four_billion_halts),
        cmocka_unit_test(texts),
        cmocka_unit_test(two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
