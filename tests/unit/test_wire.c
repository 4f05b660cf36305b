#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net/wire.h"

static const struct wire_prediction sample = {
    .publish_seq = 0x0102030405060708,
    .feed_seq_no = 0x1112131415161718,
    .feed_ts_ns = 34200000000001,
    .symbol = "ZVZZT   ",
    .locate = 0xfffe,
    .cls = 2,
    .n_class = 3,
    .slot = 1,
    .model_hash = 0xa1a2a3a4a5a6a7a8,
    .bid_price = 1999900,
    .ask_price = 2000000,
    .logits = {-65536, 1, 0x7fffffff},
};

/* The documented table, byte by byte: a receiver written from it must not break. */
static void bytes_are_the_documented_ones(void **state)
{
    (void)state;
    static const uint8_t expected[WIRE_BYTES] = {
        'K',  'L',  'P',  '1',  1,    0,    96,   0,    8,    7,    6,    5,    4,    3,    2,    1,
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x01, 0xf0, 0xd9, 0xce, 0x1a, 0x1f, 0,    0,
        'Z',  'V',  'Z',  'Z',  'T',  ' ',  ' ',  ' ',  0xfe, 0xff, 2,    3,    1,    0,    0,    0,
        0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1, 0x1c, 0x84, 0x1e, 0,    0x80, 0x84, 0x1e, 0,
        0,    0,    0xff, 0xff, 1,    0,    0,    0,    0xff, 0xff, 0xff, 0x7f};
    uint8_t bytes[WIRE_BYTES];
    wire_encode(&sample, bytes);
    assert_memory_equal(bytes, expected, WIRE_BYTES);
}

static void decode_inverts_encode(void **state)
{
    (void)state;
    uint8_t bytes[WIRE_BYTES + 8] = {0};
    struct wire_prediction out;
    memset(&out, 0, sizeof(out));
    wire_encode(&sample, bytes);
    assert_int_equal(wire_decode(bytes, WIRE_BYTES, &out), 0);
    assert_memory_equal(&out, &sample, sizeof(out));
    /* a later version may be longer */
    bytes[6] = WIRE_BYTES + 8;
    assert_int_equal(wire_decode(bytes, WIRE_BYTES + 8, &out), 0);
    assert_int_equal(wire_decode(bytes, WIRE_BYTES, &out), -1);
}

static void logits_keep_their_value(void **state)
{
    (void)state;
    /* 1.5, with fewer, as many and more fraction bits than the wire */
    for (int frac = 1; frac < 62; frac++) {
        assert_int_equal(wire_logit((int64_t)3 << (frac - 1), frac), 3 << 15);
        assert_int_equal(wire_logit(-((int64_t)3 << (frac - 1)), frac), -(3 << 15));
    }
    assert_int_equal(wire_logit(7, 0), 7 << 16);
    assert_int_equal(wire_logit(32767, 0), 32767 << 16);
    assert_int_equal(wire_logit(32768, 0), INT32_MAX);
    assert_int_equal(wire_logit(-32768, 0), INT32_MIN);
    assert_int_equal(wire_logit(-32769, 0), INT32_MIN);
    assert_int_equal(wire_logit(INT32_MAX, 16), INT32_MAX);
    assert_int_equal(wire_logit((int64_t)INT32_MAX + 1, 16), INT32_MAX);
    assert_int_equal(wire_logit((int64_t)INT32_MIN - 1, 16), INT32_MIN);
    assert_int_equal(wire_logit(INT64_MAX, 0), INT32_MAX);
    assert_int_equal(wire_logit(INT64_MIN, 0), INT32_MIN);
    assert_int_equal(wire_logit(INT64_MIN, 63), -(1 << 16));
}

static void refuses_what_is_none(void **state)
{
    (void)state;
    uint8_t good[WIRE_BYTES], bytes[WIRE_BYTES];
    struct wire_prediction out;
    wire_encode(&sample, good);
    for (size_t len = 0; len < WIRE_BYTES; len++)
        assert_int_equal(wire_decode(good, len, &out), -1);
    static const struct {
        int at;
        uint8_t value;
    } damage[] = {{0, 'k'}, {3, '2'}, {4, 2}, {5, 1}, {6, 95}, {42, 3}, {43, 0}, {43, 9}, {43, 2}};
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        memcpy(bytes, good, sizeof(bytes));
        bytes[damage[i].at] = damage[i].value;
        assert_int_equal(wire_decode(bytes, WIRE_BYTES, &out), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_the_documented_ones),
        cmocka_unit_test(decode_inverts_encode),
        cmocka_unit_test(logits_keep_their_value),
        cmocka_unit_test(refuses_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
