/* What no example shows: features of random markets, mirrored, scaled, interleaved, and of hostile events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "features_rig.h"

enum { OTHER_LOCATE = 2 };

static uint64_t random_u64(uint64_t *seed) /* splitmix64 */
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

enum { N_OP = 3000, N_LIVE = 30 };

/* A thin market: bids 1 to 16 cents below mid_price, asks above, so that the best prices move often and never
 * cross. */
static void random_ops(struct op ops[N_OP], uint32_t mid_price)
{
    uint64_t seed = 7, live[N_LIVE], next_ref = 1;
    uint8_t side_of[N_LIVE];
    int n_live = 0;
    for (int i = 0; i < N_OP; i++) {
        uint64_t r = random_u64(&seed);
        int kind = r & 15, k = n_live ? (int)((r >> 32) % (uint64_t)n_live) : 0;
        uint8_t side = r >> 5 & 1;
        int is_add = n_live < 10 || (kind < 6 && n_live < N_LIVE);
        if (!is_add)
            side = side_of[k];
        uint32_t away = 100 + (uint32_t)(r >> 40 & 15) * 100;
        ops[i] = (struct op){.qty = (uint32_t)(r >> 12 & 0x3ff) + 1,
                             .price = side == BOOK_BID ? mid_price - away : mid_price + away};
        if (is_add) {
            ops[i].type = kind & 1 ? 'A' : 'F';
            ops[i].side = side_of[n_live] = side;
            ops[i].ref = live[n_live++] = next_ref++;
        } else if (kind < 9) { /* more than is left is an error of the book's, and no event */
            ops[i].type = kind == 6 ? 'E' : kind == 7 ? 'X' : 'C';
            ops[i].ref = live[k];
        } else if (kind < 12) {
            ops[i].type = 'D';
            ops[i].ref = live[k];
            side_of[k] = side_of[--n_live];
            live[k] = live[n_live];
        } else if (kind < 15) {
            ops[i].type = 'U';
            ops[i].ref = live[k];
            ops[i].new_ref = live[k] = next_ref++;
        } else {
            ops[i].type = 'P';
        }
    }
}

/* Runs the market, a tick after every third message; returns the number of ticks. */
static int play(const struct op ops[N_OP], float rows[][FEATURES_N])
{
    void *state;
    set_up(&state);
    struct rig *rig = state;
    int n = 0;
    for (int i = 0; i < N_OP; i++) {
        rig->ts_ns += 12345u * (uint64_t)(i % 17);
        apply(rig, ops[i]);
        if (i % 3 == 2)
            tick(rig, rows[n++]);
    }
    tear_down(&state);
    return n;
}

static struct op ops[N_OP], changed_ops[N_OP];
static float rows[N_OP][FEATURES_N], changed_rows[N_OP][FEATURES_N];

static void test_mirror(void **state)
{
    static const enum feature odd[] = {FEATURE_MID_RETURN_1,
                                       FEATURE_MID_RETURN_10,
                                       FEATURE_MID_EWMA_GAP,
                                       FEATURE_MICRO_PRICE_GAP,
                                       FEATURE_IMBALANCE_L1,
                                       FEATURE_IMBALANCE_L5,
                                       FEATURE_IMBALANCE_L10,
                                       FEATURE_SLOPE_IMBALANCE,
                                       FEATURE_OFI,
                                       FEATURE_OFI_EWMA,
                                       FEATURE_MLOFI,
                                       FEATURE_TRADE_IMBALANCE,
                                       FEATURE_TRADE_IMBALANCE_EWMA};
    static const enum feature even[] = {FEATURE_SPREAD_TICKS, FEATURE_TRADE_INTENSITY,
                                        FEATURE_MESSAGE_INTENSITY, FEATURE_TIME_SINCE_TICK};
    static_assert(sizeof(odd) / sizeof(odd[0]) + sizeof(even) / sizeof(even[0]) + 3 == FEATURES_N,
                  "the queue changes and the volatility remain");
    (void)state;
    random_ops(ops, 500000);
    memcpy(changed_ops, ops, sizeof(ops));
    for (int i = 0; i < N_OP; i++) {
        changed_ops[i].side = ops[i].side == BOOK_BID ? BOOK_ASK : BOOK_BID;
        changed_ops[i].price = 1000000 - ops[i].price;
    }
    int n = play(ops, rows), n_moved = 0;
    assert_int_equal(play(changed_ops, changed_rows), n);
    for (int r = 0; r < n; r++) {
        const float *a = rows[r], *b = changed_rows[r];
        for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
            if (a[odd[i]] != -b[odd[i]])
                fail_msg("row %d: %s %.9g, mirrored %.9g", r, features_name(odd[i]), (double)a[odd[i]],
                         (double)b[odd[i]]);
        for (size_t i = 0; i < sizeof(even) / sizeof(even[0]); i++)
            assert_true(a[even[i]] == b[even[i]]);
        assert_true(a[FEATURE_QUEUE_CHANGE_BID] == b[FEATURE_QUEUE_CHANGE_ASK]);
        assert_true(a[FEATURE_QUEUE_CHANGE_ASK] == b[FEATURE_QUEUE_CHANGE_BID]);
        /* in basis points of a mid that the mirror moves by up to some percent */
        assert_true(fabsf(a[FEATURE_VOLATILITY] - b[FEATURE_VOLATILITY]) <=
                    0.2f * a[FEATURE_VOLATILITY] + 1e-6f);
        n_moved += a[FEATURE_MID_RETURN_1] != 0;
    }
    assert_true(n_moved > n / 10); /* else the market above would prove nothing */
}

static void test_scale(void **state)
{
    (void)state;
    random_ops(ops, 500000);
    int n = play(ops, rows);
    memcpy(changed_ops, ops, sizeof(ops));
    for (int i = 0; i < N_OP;
         i++) /* lots of another size, prices of another level; powers of two stay exact */
        changed_ops[i].qty *= 8, changed_ops[i].price *= 2;
    assert_int_equal(play(changed_ops, changed_rows), n);
    for (int r = 0; r < n; r++) {
        changed_rows[r][FEATURE_SPREAD_TICKS] = rows[r][FEATURE_SPREAD_TICKS]; /* the one in absolute ticks */
        for (int i = 0; i < FEATURES_N; i++)
            if (rows[r][i] != changed_rows[r][i])
                fail_msg("row %d: %s %.9g, scaled %.9g", r, features_name((uint32_t)i), (double)rows[r][i],
                         (double)changed_rows[r][i]);
    }
}

/* The bits themselves: another compiler, optimisation or machine must not change them, nor a formula without
 * a new FEATURES_SCHEMA (then: update the number). */
static void test_golden_bits(void **state)
{
    (void)state;
    random_ops(ops, 500000);
    int n = play(ops, rows);
    uint64_t hash = 0;
    for (int r = 0; r < n; r++) {
        uint16_t words[2 * FEATURES_N];
        memcpy(words, rows[r], sizeof(words));
        hash = hash * 31 + features_hash(words, 2 * FEATURES_N);
    }
    if (hash != 0xcdbe95b8c728884du)
        fail_msg("the features' bits hash to %#llx", (unsigned long long)hash);
}

static void test_streams_are_separate(void **state)
{
    struct rig *rig = *state;
    static float own[N_OP][FEATURES_N];
    random_ops(ops, 500000);
    int n = play(ops, rows), k = 0;
    for (int i = 0; i < N_OP; i++) {
        rig->ts_ns += 12345u * (uint64_t)(i % 17);
        struct op other = ops[(i * 7) % N_OP];
        other.ref += 1000000, other.new_ref += 1000000;
        apply_to(rig, STREAM + 1, OTHER_LOCATE, &other);
        apply(rig, ops[i]);
        if (i % 3 == 2) {
            float ignored[FEATURES_N];
            features_tick(rig->features, STREAM + 1, OTHER_LOCATE, rig->ts_ns, rig->books, ignored);
            tick(rig, own[k++]);
        }
    }
    assert_int_equal(k, n);
    assert_memory_equal(own, rows, (size_t)n * sizeof(own[0]));
}

/* Events that no market makes: any field, any time, any book. */
static void test_hostile(void **state)
{
    struct rig *rig = *state;
    static const uint8_t types[] = "AFECXDUPQBHzRS";
    static const uint32_t extreme[] = {0, 1, 2, 99, 100, 10000, UINT32_MAX / 2, UINT32_MAX - 1, UINT32_MAX};
    uint64_t seed = 99, ref = 1;
    for (int i = 0; i < 300000; i++) {
        uint64_t r = random_u64(&seed), r2 = random_u64(&seed), r3 = random_u64(&seed);
        struct market_event event = {.locate = LOCATE,
                                     .effects =
                                         (uint16_t)(r & 7) | (uint16_t)(r2 % 1000 == 0 ? MARKET_STATE : 0),
                                     .type = types[(r >> 8) % (sizeof(types) - 1)],
                                     .trade_side = r >> 12 & 3,
                                     .ts_ns = r2 >> (r >> 16 & 63),
                                     .trade_qty = r3 >> (r >> 22 & 63)};
        uint32_t *fields[] = {&event.before.bid_price, &event.before.ask_price, &event.change.price,
                              &event.change.qty,       &event.change.new_price, &event.change.new_qty,
                              &event.trade_price};
        for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
            uint64_t v = random_u64(&seed);
            *fields[f] = v & 1 ? extreme[(v >> 1) % 9] : (uint32_t)(v >> 32);
        }
        event.before.bid_qty = r >> 30 & 1 ? UINT64_MAX : r2;
        event.before.ask_qty = r >> 31 & 1 ? UINT64_MAX : 0;
        event.change.side = r >> 33 & 3;
        struct book_change ignored;
        uint32_t price = r >> 40 & 1 ? extreme[(r >> 41) % 9] : (uint32_t)(r3 >> 32);
        if (r >> 60 < 6)
            book_add(rig->books, LOCATE, ref++, r >> 35 & 1, extreme[(r >> 36) % 9], price, &ignored);
        else
            book_delete(rig->books, LOCATE, r2 % ref, &ignored);
        features_update(rig->features, STREAM, &event, rig->books);
        if (r >> 50 & 1) {
            float raw[FEATURES_N];
            features_tick(rig->features, STREAM, LOCATE, r3 >> (r2 & 63), rig->books, raw);
            for (int k = 0; k < FEATURES_N; k++)
                if (!(fabsf(raw[k]) < 200))
                    fail_msg("round %d: %s is %g", i, features_name((uint32_t)k), (double)raw[k]);
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_mirror),  TEST(test_scale), TEST(test_golden_bits), TEST(test_streams_are_separate),
        TEST(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
