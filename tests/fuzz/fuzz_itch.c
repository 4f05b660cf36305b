/* Properties: a decoded message is as long as its type, the rest is not looked at, and encoding it gives the
 * same bytes again; what is not decoded leaves the result alone. */
#include <assert.h>
#include <string.h>

#include "net/itch.h"

static uint64_t big_endian(const uint8_t *p, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value << 8 | p[i];
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct itch_msg msg, before;
    uint8_t again[ITCH_MESSAGE_BYTES_MAX];
    memset(&msg, 0x5a, sizeof(msg));
    before = msg;
    int n = itch_decode(data, size, &msg);
    if (n < 0) {
        assert(n == ITCH_SHORT || n == ITCH_UNKNOWN);
        assert(!memcmp(&msg, &before, sizeof(msg)));
        assert(n != ITCH_UNKNOWN || itch_message_bytes(data[0]) == 0);
        assert(n != ITCH_SHORT || size == 0 || size < itch_message_bytes(data[0]));
        return 0;
    }
    const struct itch_message_info *info = itch_message_info(data[0]);
    assert(n == info->bytes && (size_t)n <= size);
    for (int i = 0; i < info->n_field; i++) {
        const struct itch_field *field = &info->field[i];
        if (field->kind != ITCH_ALPHA)
            assert(itch_field_integer(&msg, field) == big_endian(data + field->offset, field->bytes));
    }
    assert(itch_encode(&msg, again, sizeof(again)) == n);
    assert(!memcmp(again, data, (size_t)n));
    return 0;
}
