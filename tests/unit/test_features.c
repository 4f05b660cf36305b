/* Features against values worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "features_rig.h"
#include "host/fp16.h"

static double slog(double x)
{
    return x < 0 ? -log2(1 - x) : log2(1 + x);
}

static void expect(const float raw[FEATURES_N], enum feature feature, double value)
{
    if (!(fabs((double)raw[feature] - value) <= 1e-6 * (1 + fabs(value))))
        fail_msg("%s is %.9g, not %.9g", features_name(feature), (double)raw[feature], value);
}

/* Bid 100 @ 10.00, ask 300 @ 10.02, and the first tick. */
static void open_book(struct rig *rig, float raw[FEATURES_N])
{
    apply(rig, (struct op){.type = 'A', .side = BOOK_BID, .ref = 1, .qty = 100, .price = 100000});
    apply(rig, (struct op){.type = 'A', .side = BOOK_ASK, .ref = 2, .qty = 300, .price = 100200});
    tick(rig, raw);
}

static void test_first_tick(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    open_book(rig, raw);
    double expected[FEATURES_N] = {
        [FEATURE_MICRO_PRICE_GAP] = slog(-0.5 * 0.5), /* -0.5 of half the spread; S = the spread */
        [FEATURE_SPREAD_TICKS] = log2(3),
        [FEATURE_IMBALANCE_L1] = -0.5,
        [FEATURE_IMBALANCE_L5] = -0.5,
        [FEATURE_IMBALANCE_L10] = -0.5,
        [FEATURE_SLOPE_IMBALANCE] = -0.5, /* both sides one level, 100 from the mid */
        [FEATURE_MESSAGE_INTENSITY] = log2(1 + 2 * log(2) / 0.1),
    }; /* everything that looks back is 0 */
    for (int i = 0; i < FEATURES_N; i++)
        expect(raw, i, expected[i]);
}

static void test_second_tick(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    open_book(rig, raw);
    rig->ts_ns += 1000000;
    apply(rig,
          (struct op){.type = 'F', .side = BOOK_BID, .ref = 3, .qty = 200, .price = 100100}); /* e = +200 */
    apply(rig, (struct op){.type = 'E', .ref = 2, .qty = 100});                               /* e = +100 */
    apply(rig, (struct op){.type = 'X', .ref = 2, .qty = 50});                                /* e = +50 */
    apply(rig,
          (struct op){.type = 'A', .side = BOOK_ASK, .ref = 4, .qty = 400, .price = 100400}); /* behind */
    tick(rig, raw);
    /* Bids 200 @ 10.01, 100 @ 10.00; asks 150 @ 10.02, 400 @ 10.04. Spread 100 after 200; mid +50. */
    double S = 200 + (100 - 200) / 64.0, D = 200 + (175 - 200) / 64.0, D5 = 200 + (425 - 200) / 64.0;
    double expected[FEATURES_N] = {
        [FEATURE_MID_RETURN_1] = slog(50 / S),
        [FEATURE_MID_RETURN_10] = slog(50 / S),
        [FEATURE_MID_EWMA_GAP] = slog(50 * (31 / 32.0) / S),
        [FEATURE_MICRO_PRICE_GAP] = slog(50 / 350.0 * 50 / S),
        [FEATURE_SPREAD_TICKS] = 1,
        [FEATURE_IMBALANCE_L1] = 50 / 350.0,
        [FEATURE_IMBALANCE_L5] = (300 - 550) / 850.0,
        [FEATURE_IMBALANCE_L10] = (2900 - 5100) / 8000.0,
        [FEATURE_SLOPE_IMBALANCE] = (300 / 150.0 - 550 / 250.0) / (300 / 150.0 + 550 / 250.0),
        [FEATURE_OFI] = slog(350 / D),
        [FEATURE_OFI_EWMA] = slog(350 / D),
        [FEATURE_MLOFI] =
            slog((200 + 100 + 150 - 400) / D5), /* bid 1 rose, bid 2 new, ask 1 -150, ask 2 new */
        [FEATURE_TRADE_IMBALANCE] = slog(100 / D),
        [FEATURE_TRADE_IMBALANCE_EWMA] = 1,
        [FEATURE_QUEUE_CHANGE_BID] = slog(200 / D),
        [FEATURE_QUEUE_CHANGE_ASK] = slog(-50 / D),
        [FEATURE_TRADE_INTENSITY] = log2(1 + log(2)),
        [FEATURE_MESSAGE_INTENSITY] = log2(1 + (2 * exp2(-0.01) + 4) * log(2) / 0.1),
        [FEATURE_TIME_SINCE_TICK] = log2(1001),
        [FEATURE_VOLATILITY] = log2(1 + 1e4 * 50 / 100150.0),
    };
    for (int i = 0; i < FEATURES_N; i++)
        expect(raw, i, expected[i]);
}

static void test_third_tick(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    open_book(rig, raw);
    rig->ts_ns += 1000000;
    apply(rig, (struct op){.type = 'E', .ref = 2, .qty = 100}); /* bought 100; e = +100 */
    tick(rig, raw);
    rig->ts_ns += 1500000000;
    apply(rig, (struct op){.type = 'E', .ref = 1, .qty = 40}); /* sold 40, e -40 */
    apply(rig,
          (struct op){.type = 'U', .ref = 1, .new_ref = 5, .qty = 500, .price = 99800}); /* bid falls: -60 */
    apply(rig,
          (struct op){.type = 'U', .ref = 2, .new_ref = 6, .qty = 80, .price = 100100}); /* ask falls: -80 */
    tick(rig, raw);
    /* One level each: bid 500 @ 9.98, ask 80 @ 10.01. mid2: 200200, 200200, 199900. Spreads 200, 200, 300. */
    double S = 200 + 100 / 64.0, D_2 = 200 + (150 - 200) / 64.0, D = D_2 + (290 - D_2) / 64.0;
    double ofi[2] = {100 / D_2, -180 / D};
    double u = 100 + (0 - 100) / 32.0, v = 0 + 40 / 32.0;
    expect(raw, FEATURE_MID_RETURN_1, slog(-150 / S));
    expect(raw, FEATURE_MID_EWMA_GAP, slog(-150 * (31 / 32.0) / S));
    expect(raw, FEATURE_MICRO_PRICE_GAP, slog(420 / 580.0 * 150 / S));
    expect(raw, FEATURE_SPREAD_TICKS, 2);
    expect(raw, FEATURE_OFI, slog(ofi[1]));
    expect(raw, FEATURE_OFI_EWMA, slog(ofi[0] + (ofi[1] - ofi[0]) / 16));
    expect(raw, FEATURE_MLOFI,
           slog((-100 - 80) / D)); /* one level: D5 = D; against 100 @ 10.00, 200 @ 10.02 */
    expect(raw, FEATURE_TRADE_IMBALANCE, slog(-40 / D));
    expect(raw, FEATURE_TRADE_IMBALANCE_EWMA, (u - v) / (u + v));
    expect(raw, FEATURE_QUEUE_CHANGE_BID, slog(-60 / D));        /* the new order lies behind the old best */
    expect(raw, FEATURE_QUEUE_CHANGE_ASK, slog((80 - 200) / D)); /* the new order improves the best */
    expect(raw, FEATURE_TRADE_INTENSITY, log2(1 + (exp2(-1.5) + 1) * log(2)));
    expect(raw, FEATURE_TIME_SINCE_TICK, log2(1 + 1.5e6));
    expect(raw, FEATURE_VOLATILITY, log2(1 + 1e4 * sqrt(150 * 150 / 32.0) / 99950.0));
}

/* m[10], and with fewer than ten ticks the oldest. */
static void test_return_horizon(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    open_book(rig, raw);
    for (int k = 1; k <= 13; k++) { /* each tick both quotes rise by k cents: the spread stays */
        uint32_t up = (uint32_t)(k * (k + 1) / 2 * 100);
        apply(rig, (struct op){.type = 'U',
                               .ref = (uint64_t)(2 * k - 1),
                               .new_ref = (uint64_t)(2 * k + 1),
                               .qty = 100,
                               .price = 100000 + up});
        apply(rig, (struct op){.type = 'U',
                               .ref = (uint64_t)(2 * k),
                               .new_ref = (uint64_t)(2 * k + 2),
                               .qty = 300,
                               .price = 100200 + up});
        tick(rig, raw);
        int from = k > 10 ? k - 10 : 0;
        expect(raw, FEATURE_MID_RETURN_1, slog(k * 100 / 200.0));
        expect(raw, FEATURE_MID_RETURN_10, slog((k * (k + 1) - from * (from + 1)) / 2 * 100 / 200.0));
    }
}

/* Hidden trades by the quote rule; auctions not at all. */
static void test_trades_without_order(void **state)
{
    static const struct {
        uint8_t type;
        uint32_t price;
        double sign, trades;
    } cases[] = {{'P', 100101, 1, 1}, {'P', 100100, 0, 1}, {'P', 100099, -1, 1}, {'Q', 100200, 0, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        void *fresh;
        set_up(&fresh);
        struct rig *rig = fresh;
        float raw[FEATURES_N];
        open_book(rig, raw);
        apply(rig, (struct op){.type = cases[i].type, .qty = 50, .price = cases[i].price});
        tick(rig, raw);
        expect(raw, FEATURE_TRADE_IMBALANCE, slog(cases[i].sign * 50 / 200));
        expect(raw, FEATURE_TRADE_IMBALANCE_EWMA, cases[i].sign);
        expect(raw, FEATURE_TRADE_INTENSITY, log2(1 + cases[i].trades * log(2)));
        expect(raw, FEATURE_OFI, 0);
        expect(raw, FEATURE_QUEUE_CHANGE_BID, 0);
        tear_down(&fresh);
    }
    (void)state;
}

static void test_missing_sides(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    for (int n = 0; n < 3; n++) { /* nothing at all */
        tick(rig, raw);
        for (int i = 0; i < FEATURES_N; i++)
            expect(raw, i, 0);
    }
    features_reset(rig->features, STREAM);

    open_book(rig, raw);
    apply(rig, (struct op){.type = 'D', .ref = 2}); /* the ask side goes: e = +300 */
    tick(rig, raw);
    static const enum feature need_mid[] = {
        FEATURE_MID_RETURN_1, FEATURE_MID_RETURN_10,   FEATURE_MID_EWMA_GAP, FEATURE_MICRO_PRICE_GAP,
        FEATURE_SPREAD_TICKS, FEATURE_SLOPE_IMBALANCE, FEATURE_VOLATILITY};
    for (size_t i = 0; i < sizeof(need_mid) / sizeof(need_mid[0]); i++)
        expect(raw, need_mid[i], 0);
    double D = 200 + (50 - 200) / 64.0;
    expect(raw, FEATURE_IMBALANCE_L1, 1);
    expect(raw, FEATURE_IMBALANCE_L5, 1);
    expect(raw, FEATURE_IMBALANCE_L10, 1);
    expect(raw, FEATURE_OFI, slog(300 / D));
    expect(raw, FEATURE_MLOFI, slog(300 / D));
    expect(raw, FEATURE_QUEUE_CHANGE_ASK, slog(-300 / D));

    /* It comes back 2 cents higher: e = -80, and the return is against the last mid there was. */
    apply(rig, (struct op){.type = 'A', .side = BOOK_ASK, .ref = 9, .qty = 80, .price = 100400});
    tick(rig, raw);
    D += (90 - D) / 64;
    expect(raw, FEATURE_OFI, slog(-80 / D));
    expect(raw, FEATURE_MLOFI, slog(-80 / D));
    expect(raw, FEATURE_QUEUE_CHANGE_ASK, slog(80 / D));
    expect(raw, FEATURE_MID_RETURN_1, slog(100 / (200 + 200 / 64.0)));
}

static void test_locked_and_crossed(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    open_book(rig, raw);
    apply(rig, (struct op){.type = 'A', .side = BOOK_BID, .ref = 3, .qty = 300, .price = 100500});
    tick(rig, raw);
    /* Bid 10.05 over ask 10.02; S takes a crossed spread for one price tick. Bids' last level 10.00 is 350
     * from m, the ask 150. */
    double S = 200 + (100 - 200) / 64.0;
    expect(raw, FEATURE_SPREAD_TICKS, -2);
    expect(raw, FEATURE_MICRO_PRICE_GAP, 0);
    expect(raw, FEATURE_MID_RETURN_1, slog(250 / S));
    expect(raw, FEATURE_SLOPE_IMBALANCE, (400 / 350.0 - 300 / 150.0) / (400 / 350.0 + 300 / 150.0));
    apply(rig, (struct op){.type = 'U', .ref = 3, .new_ref = 4, .qty = 300, .price = 100200});
    apply(rig, (struct op){.type = 'D', .ref = 1});
    tick(rig, raw); /* locked at 10.02: distance 0 counts as half a tick */
    expect(raw, FEATURE_SPREAD_TICKS, 0);
    expect(raw, FEATURE_SLOPE_IMBALANCE, 0);
}

static void test_price_tick(void **state)
{
    (void)state;
    assert_int_equal(features_price_tick(2), 1);
    assert_int_equal(features_price_tick(19999), 1);
    assert_int_equal(features_price_tick(20000), 100);
    assert_int_equal(features_price_tick((int64_t)UINT32_MAX * 2), 100);
}

static void test_time(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    open_book(rig, raw);
    double messages = raw[FEATURE_MESSAGE_INTENSITY];
    rig->ts_ns = T0 - 5000;
    tick(rig, raw);
    expect(raw, FEATURE_TIME_SINCE_TICK, 0);
    expect(raw, FEATURE_MESSAGE_INTENSITY, messages);
    rig->ts_ns = T0 + 7000; /* counted from the latest time seen, not from the step back */
    tick(rig, raw);
    expect(raw, FEATURE_TIME_SINCE_TICK, 3);
    rig->ts_ns = T0 + 100000000; /* no message: half of the memory is gone all the same */
    tick(rig, raw);
    expect(raw, FEATURE_MESSAGE_INTENSITY, log2(1 + log(2) / 0.1));
}

/* log2 and 2^-x of our own, through the features that show them, from 1 ns to 100 days. */
static void test_own_functions(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    double count = 0;
    uint64_t elapsed_ns = 0;
    for (int i = 0; i < 520; i++) {
        elapsed_ns = i == 0 ? 0 : elapsed_ns + elapsed_ns / 13 + 1;
        rig->ts_ns += elapsed_ns;
        apply(rig, (struct op){.type = 'P', .qty = 1, .price = 1});
        tick(rig, raw);
        count = count * exp2(-(double)elapsed_ns / 1e9) + 1;
        expect(raw, FEATURE_TIME_SINCE_TICK, log2(1 + (double)elapsed_ns / 1e3));
        expect(raw, FEATURE_TRADE_INTENSITY, log2(1 + count * log(2)));
    }
    assert_true(elapsed_ns > 86400ull * 100 * 1000000000);
}

static void test_reset(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N], again[FEATURES_N];
    open_book(rig, raw);
    apply(rig, (struct op){.type = 'E', .ref = 2, .qty = 200});
    tick(rig, again);
    assert_true(again[FEATURE_OFI] > 0);
    features_reset(rig->features, STREAM);
    apply(rig, (struct op){.type = 'A', .side = BOOK_ASK, .ref = 8, .qty = 200, .price = 100200});
    tick(rig, again);
    expect(again, FEATURE_MESSAGE_INTENSITY, log2(1 + log(2) / 0.1)); /* one message, not two */
    again[FEATURE_MESSAGE_INTENSITY] = raw[FEATURE_MESSAGE_INTENSITY];
    assert_memory_equal(raw, again, sizeof(raw));
}

/* Shares up to 2^64: no sum may wrap. */
static void test_huge_quantities(void **state)
{
    struct rig *rig = *state;
    float raw[FEATURES_N];
    open_book(rig, raw);
    for (uint64_t ref = 10; ref < 2010; ref++)
        apply(rig,
              (struct op){.type = 'A', .side = BOOK_BID, .ref = ref, .qty = UINT32_MAX, .price = 100000});
    tick(rig, raw);
    double added = 2000.0 * UINT32_MAX, D = 200 + ((100 + added + 300) / 2 - 200) / 64;
    expect(raw, FEATURE_OFI, slog(added / D));
    expect(raw, FEATURE_QUEUE_CHANGE_BID, slog(added / D));
    expect(raw, FEATURE_IMBALANCE_L1, (100 + added - 300) / (100 + added + 300));
}

/* ---- quantisation ---- */

static void test_quantise(void **state)
{
    (void)state;
    static struct model model; /* large */
    float raw[FEATURES_N] = {0};
    uint16_t x[KL_N_IN_MAX];
    model.n_feature = FEATURES_N;
    for (int i = 0; i < FEATURES_N; i++)
        model.feature[i] = (struct model_feature){.mean = 0, .scale = 1};
    model.feature[0] = (struct model_feature){.mean = 1.5f, .scale = 4};
    raw[0] = 2;             /* (2 - 1.5) * 4 = 2 */
    raw[1] = 0.25f / 2048;  /* below half a grid step */
    raw[2] = -0.75f / 2048; /* nearest step */
    raw[3] = 15.9921875f;   /* the largest */
    raw[4] = 15.9922f;
    raw[5] = -1e30f;
    raw[6] = 3e38f;
    model.feature[6].scale = 1e30f; /* overflows to infinity */
    memset(x, 0xee, sizeof(x));
    features_quantise(&model, raw, x);
    assert_true(fp16_to_double(x[0]) == 2);
    assert_int_equal(x[1], 0);
    assert_true(fp16_to_double(x[2]) == -1.0 / 2048);
    for (int i = 3; i < 7; i++)
        assert_true(fp16_to_double(x[i]) == (i == 5 ? -1 : 1) * KL_X_ABS_MAX / 2048.0);
    assert_int_equal(x[7], 0);
    assert_int_equal(x[FEATURES_N], 0xeeee);
}

/* The same bits as fp16_from_double: for values around every rounding boundary, and for any. */
static void test_quantise_like_fp16(void **state)
{
    (void)state;
    static struct model model; /* large */
    model.n_feature = FEATURES_N;
    for (int i = 0; i < FEATURES_N; i++)
        model.feature[i] = (struct model_feature){.mean = 0, .scale = 1};
    uint64_t random = 1;
    for (int round = 0; round < 100000; round++) {
        float raw[FEATURES_N];
        uint16_t x[KL_N_IN_MAX];
        for (int i = 0; i < FEATURES_N; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint32_t bits = (uint32_t)(random >> 32);
            if (i % 4 == 1) /* halves of the grid's steps and their neighbours, up to 16 */
                raw[i] = (float)((int32_t)(bits % 131072) - 65536) / 4096.0f;
            if (i % 4 == 2)
                raw[i] = nextafterf((float)((int32_t)(bits % 131072) - 65536) / 4096.0f, bits & 1 ? 99 : -99);
            if (i % 4 == 3) /* any value, with those that are none */
                memcpy(&raw[i], &bits, sizeof(bits));
            if (i % 4 == 0)
                raw[i] = ldexpf((float)(int32_t)bits, -27); /* +-16 */
        }
        features_quantise(&model, raw, x);
        for (int i = 0; i < FEATURES_N; i++)
            if (x[i] != fp16_from_double((double)raw[i], KL_X_FRAC, KL_X_ABS_MAX))
                fail_msg("%a gives %#x, not %#x", (double)raw[i], x[i],
                         fp16_from_double((double)raw[i], KL_X_FRAC, KL_X_ABS_MAX));
    }
}

static void test_hash(void **state)
{
    (void)state;
    static const uint16_t foobar[] = {0x6f66, 0x626f, 0x7261}; /* "foobar", low byte first */
    assert_true(features_hash(NULL, 0) == 0xcbf29ce484222325u);
    assert_true(features_hash(foobar, 3) == 0x85944171f73967e8u); /* from the FNV authors' test vectors */
}

static void test_names(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < FEATURES_N; i++) {
        const struct features_info *info = features_info(i);
        assert_true(strlen(info->formula) && strlen(info->unit) && strlen(info->source));
        assert_string_equal(info->name, features_name(i));
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(info->name, features_name(k));
    }
    assert_string_equal(features_name(FEATURE_OFI), "ofi");
    assert_null(features_name(FEATURES_N));
    assert_null(features_info(UINT32_MAX));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_first_tick),
        TEST(test_second_tick),
        TEST(test_third_tick),
        TEST(test_return_horizon),
        TEST(test_trades_without_order),
        TEST(test_missing_sides),
        TEST(test_locked_and_crossed),
        TEST(test_price_tick),
        TEST(test_time),
        TEST(test_own_functions),
        TEST(test_reset),
        TEST(test_huge_quantities),
        TEST(test_quantise),
        TEST(test_quantise_like_fp16),
        TEST(test_hash),
        TEST(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
