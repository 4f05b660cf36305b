/* book.c against a second book that is slow and plain: one array of orders, levels summed up anew each time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/book.h"

/* ---- the plain book ---- */

enum { PLAIN_MAX = 512 };

struct plain_order {
    uint64_t ref;
    uint16_t locate;
    enum book_side side;
    uint32_t qty, price;
};

struct plain_book {
    struct plain_order order[PLAIN_MAX];
    size_t n, n_max, n_level_max;
    struct book_counters counters;
};

static struct plain_order *plain_find(struct plain_book *plain, uint64_t ref)
{
    for (size_t i = 0; i < plain->n; i++)
        if (plain->order[i].ref == ref)
            return &plain->order[i];
    return NULL;
}

static void plain_remove(struct plain_book *plain, struct plain_order *order)
{
    *order = plain->order[--plain->n];
}

static int better(enum book_side side, uint32_t a, uint32_t b)
{
    return side == BOOK_BID ? a > b : a < b;
}

/* Levels best first: the next price is the best one that is worse than the last. */
static size_t plain_levels(const struct plain_book *plain, uint16_t locate, enum book_side side,
                           struct book_level *out, size_t n_out)
{
    size_t n = 0;
    while (n < n_out) {
        struct book_level level = {0};
        for (size_t i = 0; i < plain->n; i++) {
            const struct plain_order *o = &plain->order[i];
            if (o->locate != locate || o->side != side ||
                (n > 0 && !better(side, out[n - 1].price, o->price)))
                continue;
            if (level.n_order == 0 || better(side, o->price, level.price))
                level = (struct book_level){.price = o->price};
            if (o->price == level.price) {
                level.n_order++;
                level.qty += o->qty;
            }
        }
        if (level.n_order == 0)
            break;
        out[n++] = level;
    }
    return n;
}

static size_t plain_level_total(const struct plain_book *plain)
{
    size_t n = 0;
    for (size_t i = 0; i < plain->n; i++) {
        size_t j = 0;
        const struct plain_order *a = &plain->order[i];
        while (j < i && (plain->order[j].locate != a->locate || plain->order[j].side != a->side ||
                         plain->order[j].price != a->price))
            j++;
        n += j == i;
    }
    return n;
}

static struct book_bbo plain_bbo(const struct plain_book *plain, uint16_t locate)
{
    struct book_bbo bbo = {0};
    struct book_level level;
    if (plain_levels(plain, locate, BOOK_BID, &level, 1)) {
        bbo.bid_price = level.price;
        bbo.bid_qty = level.qty;
    }
    if (plain_levels(plain, locate, BOOK_ASK, &level, 1)) {
        bbo.ask_price = level.price;
        bbo.ask_qty = level.qty;
    }
    return bbo;
}

static enum book_status plain_insert(struct plain_book *plain, const struct plain_order *order)
{
    if (plain->n == plain->n_max)
        return BOOK_FULL;
    plain->order[plain->n++] = *order;
    if (plain_level_total(plain) <= plain->n_level_max)
        return BOOK_OK;
    plain->n--;
    return BOOK_FULL;
}

static enum book_status plain_add(struct plain_book *plain, const struct plain_order *order)
{
    if (plain_find(plain, order->ref))
        return BOOK_DUPLICATE_REF;
    if (order->qty == 0)
        return BOOK_ZERO_QTY;
    return plain_insert(plain, order);
}

static enum book_status plain_reduce(struct plain_book *plain, uint16_t locate, uint64_t ref, uint32_t qty)
{
    struct plain_order *order = plain_find(plain, ref);
    if (!order)
        return BOOK_UNKNOWN_REF;
    if (order->locate != locate)
        return BOOK_WRONG_LOCATE;
    if (qty == 0)
        return BOOK_ZERO_QTY;
    enum book_status status = qty > order->qty ? BOOK_EXCESS_QTY : BOOK_OK;
    if (qty >= order->qty)
        plain_remove(plain, order);
    else
        order->qty -= qty;
    return status;
}

static enum book_status plain_delete(struct plain_book *plain, uint16_t locate, uint64_t ref)
{
    struct plain_order *order = plain_find(plain, ref);
    if (!order)
        return BOOK_UNKNOWN_REF;
    if (order->locate != locate)
        return BOOK_WRONG_LOCATE;
    plain_remove(plain, order);
    return BOOK_OK;
}

static enum book_status plain_replace(struct plain_book *plain, uint16_t locate, uint64_t ref,
                                      uint64_t new_ref, uint32_t qty, uint32_t price)
{
    struct plain_order *order = plain_find(plain, ref);
    if (!order)
        return BOOK_UNKNOWN_REF;
    if (order->locate != locate)
        return BOOK_WRONG_LOCATE;
    if (new_ref != ref && plain_find(plain, new_ref))
        return BOOK_DUPLICATE_REF;
    if (qty == 0)
        return BOOK_ZERO_QTY;
    struct plain_order replaced = {
        .ref = new_ref, .locate = locate, .side = order->side, .qty = qty, .price = price};
    plain_remove(plain, order);
    return plain_insert(plain, &replaced);
}

static void plain_count(struct plain_book *plain, enum book_status status, int replace)
{
    struct book_counters *c = &plain->counters;
    uint64_t *by_status[] = {NULL,           &c->unknown_ref, &c->duplicate_ref, &c->wrong_locate,
                             &c->excess_qty, &c->zero_qty,    &c->full};
    if (status != BOOK_OK)
        ++*by_status[-(int)status];
    c->updates += status == BOOK_OK || status == BOOK_EXCESS_QTY || (replace && status == BOOK_FULL);
    c->n_order = plain->n;
    c->n_level = plain_level_total(plain);
    /* Peaks: a replace removes before it adds, so only what is there at the end counts. */
    c->n_order_peak = c->n_order > c->n_order_peak ? c->n_order : c->n_order_peak;
    c->n_level_peak = c->n_level > c->n_level_peak ? c->n_level : c->n_level_peak;
}

/* ---- comparison ---- */

static uint64_t random_state;

static uint64_t random_u64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)((random_u64() >> 32) * n >> 32);
}

static void assert_same_books(const struct book_set *set, const struct plain_book *plain, uint16_t locate)
{
    struct book_bbo bbo, expected_bbo = plain_bbo(plain, locate);
    book_bbo(set, locate, &bbo);
    assert_memory_equal(&bbo, &expected_bbo, sizeof(bbo));
    for (enum book_side side = BOOK_BID; side <= BOOK_ASK; side++) {
        struct book_level level[PLAIN_MAX], expected[PLAIN_MAX];
        size_t n_expected = plain_levels(plain, locate, side, expected, PLAIN_MAX);
        assert_int_equal(book_depth(set, locate, side), n_expected);
        size_t n = book_levels(set, locate, side, level, PLAIN_MAX);
        assert_int_equal(n, n_expected);
        assert_memory_equal(level, expected, n * sizeof(level[0]));
        size_t some = n / 2;
        assert_int_equal(book_levels(set, locate, side, level, some), some);
        assert_memory_equal(level, expected, some * sizeof(level[0]));
    }
}

enum ref_kind { REF_FEW, REF_RISING, REF_WIDE, REF_SAME_PAGE };

/* References that collide, that rise as a feed's do, that differ only in high bits, that crowd one page. */
static uint64_t random_ref(enum ref_kind kind, const struct plain_book *plain, uint64_t *rising,
                           uint32_t known_percent)
{
    if (plain->n > 0 && random_below(100) < known_percent)
        return plain->order[random_below((uint32_t)plain->n)].ref;
    switch (kind) {
    case REF_FEW:
        return random_below(64);
    case REF_RISING:
        return *rising += random_below(4);
    case REF_WIDE:
        return (uint64_t)random_below(64) << 58 | (uint64_t)random_below(4) << 31 | random_below(2);
    default:
        return 0xfffffffffffff000u + random_below(600);
    }
}

static const uint16_t locates[] = {0, 7, 65535};

static uint32_t random_price(void)
{
    static const uint32_t special[] = {0, 1, 0x77359400, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    if (random_below(8) == 0)
        return special[random_below(7)];
    return 1000000 + random_below(random_below(4) ? 12 : 400) * 100;
}

static uint32_t random_qty(void)
{
    static const uint32_t special[] = {0, 1, 0xffffffff, 0x80000000};
    return random_below(16) == 0 ? special[random_below(4)] : 1 + random_below(500);
}

static void check_change(const struct book_change *change, const struct plain_order *order, uint32_t qty,
                         const struct book_bbo *before, const struct book_bbo *after)
{
    int bid = order->side == BOOK_BID;
    assert_int_equal(change->side, order->side);
    assert_int_equal(change->price, order->price);
    assert_int_equal(change->qty, qty);
    assert_int_equal(change->top,
                     bid ? before->bid_price != after->bid_price || before->bid_qty != after->bid_qty
                         : before->ask_price != after->ask_price || before->ask_qty != after->ask_qty);
    assert_int_equal(change->crossed,
                     after->bid_qty && after->ask_qty && after->bid_price >= after->ask_price);
}

static void random_operation(struct book_set *set, struct plain_book *plain, enum ref_kind kind,
                             uint64_t *rising)
{
    uint16_t locate = locates[random_below(3)];
    unsigned what = random_below(100);
    uint64_t ref = random_ref(kind, plain, rising, what < 45 ? 5 : 90);
    struct plain_order *known = plain_find(plain, ref);
    if (known && random_below(16))
        locate = known->locate;
    struct plain_order touched = known ? *known : (struct plain_order){0};
    struct book_bbo before = plain_bbo(plain, locate);
    struct book_change change;
    memset(&change, 0xa5, sizeof(change));
    uint32_t qty = random_qty(), price = random_price(), change_qty = 0, new_qty = 0;
    enum book_status status, expected;
    if (what < 45) {
        touched = (struct plain_order){.ref = ref,
                                       .locate = locate,
                                       .side = random_below(2) ? BOOK_ASK : BOOK_BID,
                                       .qty = qty,
                                       .price = price};
        expected = plain_add(plain, &touched);
        status = book_add(set, locate, ref, touched.side, qty, price, &change);
        change_qty = qty;
    } else if (what < 65) {
        expected = plain_reduce(plain, locate, ref, qty);
        status = book_reduce(set, locate, ref, qty, &change);
        change_qty = qty < touched.qty ? qty : touched.qty;
    } else if (what < 80) {
        expected = plain_delete(plain, locate, ref);
        status = book_delete(set, locate, ref, &change);
        change_qty = touched.qty;
    } else {
        uint64_t new_ref = random_below(8) ? random_ref(kind, plain, rising, 10) : ref;
        expected = plain_replace(plain, locate, ref, new_ref, qty, price);
        status = book_replace(set, locate, ref, new_ref, qty, price, &change);
        change_qty = touched.qty;
        new_qty = status == BOOK_OK ? qty : 0;
    }
    int is_replace = what >= 80;
    plain_count(plain, expected, is_replace);
    assert_int_equal(status, expected);
    if (status == BOOK_OK || status == BOOK_EXCESS_QTY || (is_replace && status == BOOK_FULL)) {
        struct book_bbo after = plain_bbo(plain, locate);
        check_change(&change, &touched, change_qty, &before, &after);
        assert_int_equal(change.new_qty, new_qty);
        assert_int_equal(change.new_price, is_replace ? price : 0);
    }
    assert_same_books(set, plain, locate);
    assert_memory_equal(book_counters(set), &plain->counters, sizeof(plain->counters));
}

static void run_random(enum ref_kind kind, uint32_t n_order, uint32_t n_level, int n_operation)
{
    const struct book_limits limits = {.n_order = n_order, .n_level = n_level};
    struct book_set *set = book_create(&limits);
    struct plain_book *plain = calloc(1, sizeof(*plain));
    assert_non_null(set);
    assert_non_null(plain);
    plain->n_max = n_order;
    plain->n_level_max = n_level;
    uint64_t rising = UINT64_MAX - 1000; /* wraps: a reference is a name, not a number */
    for (int i = 0; i < n_operation; i++) {
        random_operation(set, plain, kind, &rising);
        if (i % 1000 == 999) {
            for (size_t l = 0; l < 3; l++)
                assert_same_books(set, plain, locates[l]);
        }
    }
    book_clear(set);
    plain->n = 0;
    for (size_t l = 0; l < 3; l++)
        assert_same_books(set, plain, locates[l]);
    assert_int_equal(book_counters(set)->updates, plain->counters.updates);
    assert_int_equal(book_counters(set)->n_order, 0);
    for (int i = 0; i < 200; i++)
        random_operation(set, plain, kind, &rising);
    free(plain);
    book_free(set);
}

static void test_random_against_plain(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        random_state = seed * 0x9e3779b97f4a7c15u;
        run_random(REF_FEW, 400, 2000, 4000);
        run_random(REF_RISING, 400, 2000, 4000);
        run_random(REF_WIDE, 400, 2000, 4000);
        run_random(REF_SAME_PAGE, 400, 2000, 4000);
    }
}

/* Small limits, so that both tables are full most of the time. */
static void test_random_full_tables(void **state)
{
    (void)state;
    random_state = 77;
    run_random(REF_SAME_PAGE, 1, 1, 2000);
    run_random(REF_SAME_PAGE, 2, 100, 3000);
    run_random(REF_SAME_PAGE, 61, 1000, 4000);
    run_random(REF_RISING, 64, 1000, 4000);
    run_random(REF_WIDE, 400, 9, 4000);
    run_random(REF_SAME_PAGE, 400, 20, 4000);
}

static void test_limits(void **state)
{
    (void)state;
    const struct book_limits bad[] = {{.n_order = 0, .n_level = 1},
                                      {.n_order = 1, .n_level = 0},
                                      {.n_order = (1u << 30) + 1, .n_level = 1},
                                      {.n_order = 1, .n_level = (1u << 28) + 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_null(book_create(&bad[i]));
    book_free(NULL);
}

/* Four orders of 2^32 - 1 shares: more than 32 bits hold. */
static void test_qty_does_not_wrap(void **state)
{
    (void)state;
    const struct book_limits limits = {.n_order = 8, .n_level = 8};
    struct book_set *set = book_create(&limits);
    struct book_change change;
    struct book_level level;
    for (uint64_t ref = 0; ref < 4; ref++)
        assert_int_equal(book_add(set, 5, ref, BOOK_ASK, UINT32_MAX, 0, &change), BOOK_OK);
    assert_int_equal(book_levels(set, 5, BOOK_ASK, &level, 1), 1);
    assert_true(level.qty == 4ull * UINT32_MAX);
    assert_int_equal(level.n_order, 4);
    assert_int_equal(book_reduce(set, 5, 0, 1, &change), BOOK_OK);
    assert_int_equal(book_reduce(set, 5, 0, UINT32_MAX, &change), BOOK_EXCESS_QTY);
    assert_true(change.qty == UINT32_MAX - 1);
    assert_int_equal(book_levels(set, 5, BOOK_ASK, &level, 1), 1);
    assert_true(level.qty == 3ull * UINT32_MAX);
    assert_int_equal(level.n_order, 3);
    book_free(set);
}

/* All orders of the limit alive at once, with the reference strides feeds have; then gone in another order.
 */
static void test_many_orders(void **state)
{
    (void)state;
    enum { N = 150000 };
    const uint64_t strides[] = {1, 2, 4, 8, 1u << 20, 1ull << 40};
    const struct book_limits limits = {.n_order = N, .n_level = 64};
    struct book_set *set = book_create(&limits);
    struct book_change change;
    assert_non_null(set);
    for (size_t s = 0; s < sizeof(strides) / sizeof(strides[0]); s++) {
        for (uint64_t i = 0; i < N; i++)
            assert_int_equal(
                book_add(set, (uint16_t)(i % 8), i * strides[s], BOOK_BID, 1, (uint32_t)(i % 4), &change),
                BOOK_OK);
        assert_int_equal(book_add(set, 0, UINT64_MAX, BOOK_BID, 1, 1, &change), BOOK_FULL);
        for (uint64_t i = 0; i < N; i++) {
            uint64_t k = i * 77773 % N; /* coprime with N */
            assert_int_equal(book_delete(set, (uint16_t)(k % 8), k * strides[s], &change), BOOK_OK);
        }
        assert_int_equal(book_counters(set)->n_order, 0);
        assert_int_equal(book_counters(set)->n_level, 0);
        assert_int_equal(book_delete(set, 0, 0, &change), BOOK_UNKNOWN_REF);
    }
    book_free(set);
}

/* One side up to the limit of levels, another behind it: blocks grow, shrink, split and merge, and nothing of
 * the pool is lost. */
static void test_many_levels(void **state)
{
    (void)state;
    enum { N = 5000 };
    const struct book_limits limits = {.n_order = 2 * N, .n_level = N};
    struct book_set *set = book_create(&limits);
    struct book_change change;
    assert_non_null(set);
    for (int round = 0; round < 3; round++) {
        uint16_t locate = (uint16_t)(100 + round);
        enum book_side side = round % 2 ? BOOK_ASK : BOOK_BID;
        for (uint64_t i = 0; i < N; i++) {
            uint32_t price = (uint32_t)(i * 3331 % N); /* scattered, each once */
            assert_int_equal(book_add(set, locate, i, side, price + 1, price, &change), BOOK_OK);
        }
        assert_int_equal(book_add(set, 1, N, BOOK_BID, 1, 1, &change), BOOK_FULL);
        assert_int_equal(book_add(set, locate, N, side, 1, 17, &change), BOOK_OK); /* a level that exists */
        assert_int_equal(book_delete(set, locate, N, &change), BOOK_OK);
        assert_int_equal(book_depth(set, locate, side), N);
        struct book_level *level = calloc(N, sizeof(*level));
        assert_non_null(level);
        assert_int_equal(book_levels(set, locate, side, level, N), N);
        for (uint32_t i = 0; i < N; i++) {
            uint32_t price = side == BOOK_BID ? N - 1 - i : i;
            assert_int_equal(level[i].price, price);
            assert_int_equal(level[i].qty, price + 1);
        }
        free(level);
        for (uint64_t i = 0; i < N; i++)
            assert_int_equal(book_delete(set, locate, i * 7 % N, &change), BOOK_OK);
        assert_int_equal(book_depth(set, locate, side), 0);
    }
    /* Every level on a side of its own: the other way to use the pool up. */
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(book_add(set, (uint16_t)i, i, BOOK_ASK, 1, 1, &change), BOOK_OK);
    assert_int_equal(book_add(set, N, N, BOOK_ASK, 1, 1, &change), BOOK_FULL);
    book_free(set);
}

/* A replace that finds no room for the new level: the old order is gone, as on the exchange. */
static void test_replace_full(void **state)
{
    (void)state;
    const struct book_limits limits = {.n_order = 4, .n_level = 1};
    struct book_set *set = book_create(&limits);
    struct book_change change;
    assert_int_equal(book_add(set, 3, 1, BOOK_BID, 10, 100, &change), BOOK_OK);
    assert_int_equal(book_add(set, 3, 2, BOOK_BID, 10, 100, &change), BOOK_OK);
    assert_int_equal(book_replace(set, 3, 1, 11, 5, 200, &change), BOOK_FULL);
    assert_int_equal(change.qty, 10);
    assert_int_equal(change.new_qty, 0);
    assert_int_equal(change.top, 1);
    assert_int_equal(book_delete(set, 3, 1, &change), BOOK_UNKNOWN_REF);
    assert_int_equal(book_delete(set, 3, 11, &change), BOOK_UNKNOWN_REF);
    /* The only level's only order may move to another price: its level is free by then. */
    assert_int_equal(book_replace(set, 3, 2, 12, 5, 200, &change), BOOK_OK);
    book_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_against_plain),
        cmocka_unit_test(test_random_full_tables),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_qty_does_not_wrap),
        cmocka_unit_test(test_many_orders),
        cmocka_unit_test(test_many_levels),
        cmocka_unit_test(test_replace_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
