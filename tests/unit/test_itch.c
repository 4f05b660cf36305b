#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/itch.h"

static const char all_types[] = "SRHYLVWKJhAFECXDUPQBINO";

/* Lengths as the specification prints them, independent of the table. */
static const uint8_t lengths[] = {12, 39, 25, 20, 26, 35, 12, 28, 35, 21, 36, 40,
                                  31, 36, 23, 19, 35, 44, 40, 19, 50, 20, 48};

/* Bytes with a different value at every offset, of the given type. */
static void fill(uint8_t *buf, size_t n, uint8_t type)
{
    for (size_t i = 0; i < n; i++)
        buf[i] = (uint8_t)(0x81 + 3 * i);
    buf[0] = type;
}

static uint64_t big_endian(const uint8_t *p, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value << 8 | p[i];
    return value;
}

static void lengths_of_all_types(void **state)
{
    (void)state;
    int n_known = 0;
    for (int type = 0; type < 256; type++) {
        const char *at = type ? strchr(all_types, type) : NULL;
        assert_int_equal(itch_message_bytes((uint8_t)type), at ? lengths[at - all_types] : 0);
        assert_true((itch_message_info((uint8_t)type) != NULL) == (at != NULL));
        n_known += at != NULL;
    }
    assert_int_equal(n_known, 23);
}

static void fields_have_no_gap(void **state)
{
    (void)state;
    for (size_t i = 0; all_types[i]; i++) {
        const struct itch_message_info *info = itch_message_info((uint8_t)all_types[i]);
        size_t at = ITCH_HEADER_BYTES;
        assert_int_equal(info->type, all_types[i]);
        for (int k = 0; k < info->n_field; k++) {
            assert_int_equal(info->field[k].offset, at);
            at += info->field[k].bytes;
        }
        assert_int_equal(at, info->bytes);
    }
}

static void every_field_is_decoded(void **state)
{
    (void)state;
    for (size_t i = 0; all_types[i]; i++) {
        uint8_t buf[ITCH_MESSAGE_BYTES_MAX];
        struct itch_msg msg;
        const struct itch_message_info *info = itch_message_info((uint8_t)all_types[i]);
        fill(buf, sizeof(buf), info->type);
        memset(&msg, 0x55, sizeof(msg));
        assert_int_equal(itch_decode(buf, info->bytes, &msg), info->bytes);
        assert_int_equal(msg.type, info->type);
        assert_int_equal(msg.locate, big_endian(buf + 1, 2));
        assert_int_equal(msg.tracking, big_endian(buf + 3, 2));
        assert_true(msg.timestamp_ns == big_endian(buf + 5, 6));
        for (int k = 0; k < info->n_field; k++) {
            const struct itch_field *field = &info->field[k];
            if (field->kind == ITCH_ALPHA || field->kind == ITCH_U8)
                assert_memory_equal(itch_field_alpha(&msg, field), buf + field->offset, field->bytes);
            if (field->kind != ITCH_ALPHA)
                assert_true(itch_field_integer(&msg, field) == big_endian(buf + field->offset, field->bytes));
        }
    }
}

/* One message by hand: the table's names stand at the right bytes. */
static void add_order_by_hand(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {'F',  0x12, 0x34, 0,    7,    0x1f, 0x1a, 0xce, 0xe1, 0x50,
                                    0x03, 0x80, 0,    0,    0,    0,    0,    0,    5,    'S',
                                    0xff, 0xff, 0xff, 0xff, 'B',  'R',  'K',  '.',  'A',  ' ',
                                    ' ',  ' ',  0x77, 0x35, 0x94, 0x00, 'N',  'S',  'D',  'Q'};
    struct itch_msg msg;
    assert_int_equal(itch_decode(bytes, sizeof(bytes), &msg), 40);
    assert_int_equal(msg.locate, 0x1234);
    assert_int_equal(msg.tracking, 7);
    assert_true(msg.timestamp_ns == 0x1f1acee15003);
    assert_true(msg.add_order_mpid.order_reference_number == 0x8000000000000005);
    assert_int_equal(msg.add_order_mpid.buy_sell_indicator, 'S');
    assert_true(msg.add_order_mpid.shares == UINT32_MAX);
    assert_memory_equal(msg.add_order_mpid.stock, "BRK.A   ", 8);
    assert_int_equal(msg.add_order_mpid.price, 2000000000);
    assert_memory_equal(msg.add_order_mpid.attribution, "NSDQ", 4);
}

static void cut_messages_are_short(void **state)
{
    (void)state;
    for (size_t i = 0; all_types[i]; i++)
        for (size_t len = 1; len < lengths[i]; len++) {
            uint8_t *buf = malloc(len); /* the sanitizer sees a read beyond it */
            struct itch_msg msg, before;
            fill(buf, len, (uint8_t)all_types[i]);
            memset(&msg, 0x55, sizeof(msg));
            before = msg;
            assert_int_equal(itch_decode(buf, len, &msg), ITCH_SHORT);
            assert_memory_equal(&msg, &before, sizeof(msg));
            free(buf);
        }
    struct itch_msg msg;
    assert_int_equal(itch_decode((const uint8_t *)"", 0, &msg), ITCH_SHORT);
}

static void longer_bodies_decode(void **state)
{
    (void)state;
    for (size_t i = 0; all_types[i]; i++) {
        uint8_t buf[ITCH_MESSAGE_BYTES_MAX + 9];
        struct itch_msg msg;
        fill(buf, sizeof(buf), (uint8_t)all_types[i]);
        assert_int_equal(itch_decode(buf, sizeof(buf), &msg), lengths[i]);
    }
}

static void unknown_types(void **state)
{
    (void)state;
    for (int type = 0; type < 256; type++) {
        uint8_t buf[ITCH_MESSAGE_BYTES_MAX];
        struct itch_msg msg;
        if (type && strchr(all_types, type))
            continue;
        fill(buf, sizeof(buf), (uint8_t)type);
        assert_int_equal(itch_decode(buf, sizeof(buf), &msg), ITCH_UNKNOWN);
        assert_int_equal(itch_decode(buf, 1, &msg), ITCH_UNKNOWN);
        msg.type = (uint8_t)type;
        assert_int_equal(itch_encode(&msg, buf, sizeof(buf)), ITCH_UNKNOWN);
    }
}

static void encode_is_the_inverse(void **state)
{
    (void)state;
    for (size_t i = 0; all_types[i]; i++) {
        uint8_t buf[ITCH_MESSAGE_BYTES_MAX], again[ITCH_MESSAGE_BYTES_MAX + 1];
        struct itch_msg msg;
        fill(buf, sizeof(buf), (uint8_t)all_types[i]);
        assert_int_equal(itch_decode(buf, lengths[i], &msg), lengths[i]);
        memset(again, 0xee, sizeof(again));
        assert_int_equal(itch_encode(&msg, again, lengths[i] - 1u), ITCH_SHORT);
        assert_int_equal(again[0], 0xee);
        assert_int_equal(itch_encode(&msg, again, lengths[i]), lengths[i]);
        assert_memory_equal(again, buf, lengths[i]);
        assert_int_equal(again[lengths[i]], 0xee);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_of_all_types),   cmocka_unit_test(fields_have_no_gap),
        cmocka_unit_test(every_field_is_decoded), cmocka_unit_test(add_order_by_hand),
        cmocka_unit_test(cut_messages_are_short), cmocka_unit_test(longer_bodies_decode),
        cmocka_unit_test(unknown_types),          cmocka_unit_test(encode_is_the_inverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
