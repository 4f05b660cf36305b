#include "itch.h"

#include <assert.h>

/* The table's own consistency: every kind has its width, every type's fields add up to its length. */
#define ITCH_WIDTH_U8(n)     1
#define ITCH_WIDTH_ALPHA(n)  (n)
#define ITCH_WIDTH_U16(n)    2
#define ITCH_WIDTH_U32(n)    4
#define ITCH_WIDTH_U48(n)    6
#define ITCH_WIDTH_U64(n)    8
#define ITCH_WIDTH_PRICE4(n) 4
#define ITCH_WIDTH_PRICE8(n) 8
#define ITCH_CHECK_WIDTH(c, kind, name, offset, bytes)                                                       \
    static_assert(ITCH_WIDTH_##kind(bytes) == (bytes), "width of " #name);
#define ITCH_ADD_WIDTH(c, kind, name, offset, bytes) +(bytes)
#define ITCH_CHECK(type, member, fields, text, size)                                                         \
    fields(ITCH_CHECK_WIDTH, ) static_assert(ITCH_HEADER_BYTES fields(ITCH_ADD_WIDTH, ) == (size), text);    \
    static_assert((size) <= ITCH_MESSAGE_BYTES_MAX, text);
ITCH_MESSAGES(ITCH_CHECK)
static_assert(0 ITCH_HEADER(ITCH_ADD_WIDTH, ) == ITCH_HEADER_BYTES, "header");

static void store(uint8_t *p, uint64_t value, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0; value >>= 8)
        p[i] = (uint8_t)value;
}

#define ITCH_STORE_U8(p, from, n)     *(p) = (from)
#define ITCH_STORE_ALPHA(p, from, n)  memcpy((p), (from), (n))
#define ITCH_STORE_U16(p, from, n)    store((p), (from), (n))
#define ITCH_STORE_U32(p, from, n)    store((p), (from), (n))
#define ITCH_STORE_U48(p, from, n)    store((p), (from), (n))
#define ITCH_STORE_U64(p, from, n)    store((p), (from), (n))
#define ITCH_STORE_PRICE4(p, from, n) store((p), (from), (n))
#define ITCH_STORE_PRICE8(p, from, n) store((p), (from), (n))

int itch_encode(const struct itch_msg *msg, uint8_t *buf, size_t size)
{
    switch (msg->type) {
#define ITCH_ENCODE_HEADER(c, kind, name, offset, bytes) ITCH_STORE_##kind(buf + (offset), msg->name, bytes);
#define ITCH_ENCODE_FIELD(c, kind, name, offset, bytes)  ITCH_STORE_##kind(buf + (offset), msg->c.name, bytes);
#define ITCH_ENCODE(letter, member, fields, text, length)                                                    \
    case letter:                                                                                             \
        if (size < (length))                                                                                 \
            return ITCH_SHORT;                                                                               \
        ITCH_HEADER(ITCH_ENCODE_HEADER, )                                                                    \
        fields(ITCH_ENCODE_FIELD, member) return (length);
        ITCH_MESSAGES(ITCH_ENCODE)
    default:
        return ITCH_UNKNOWN;
    }
}

#define ITCH_DESCRIBE(c, kind, name, offset, bytes)                                                          \
    {#name, ITCH_##kind, (offset), (bytes), offsetof(struct itch_msg, c.name)},
#define ITCH_DESCRIBE_ALL(type, member, fields, text, size)                                                  \
    static const struct itch_field member##_fields[] = {fields(ITCH_DESCRIBE, member)};
ITCH_MESSAGES(ITCH_DESCRIBE_ALL)

static const struct itch_message_info infos[256] = {
#define ITCH_INFO(letter, member, fields, text, size)                                                        \
    [letter] = {text, member##_fields, sizeof(member##_fields) / sizeof(member##_fields[0]), (size), letter},
    ITCH_MESSAGES(ITCH_INFO)};

uint16_t itch_message_bytes(uint8_t type)
{
    return infos[type].bytes;
}

const struct itch_message_info *itch_message_info(uint8_t type)
{
    return infos[type].bytes ? &infos[type] : NULL;
}

uint64_t itch_field_integer(const struct itch_msg *msg, const struct itch_field *field)
{
    const char *p = (const char *)msg + field->member;
    uint32_t v32;
    uint64_t v64;
    switch (field->kind) {
    case ITCH_U8:
        return *(const uint8_t *)p;
    case ITCH_U32:
    case ITCH_PRICE4:
        memcpy(&v32, p, sizeof(v32));
        return v32;
    case ITCH_U64:
    case ITCH_PRICE8:
        memcpy(&v64, p, sizeof(v64));
        return v64;
    default:
        assert(!"an alpha field, or a kind that no field outside the header has");
        return 0;
    }
}

const char *itch_field_alpha(const struct itch_msg *msg, const struct itch_field *field)
{
    assert(field->kind == ITCH_ALPHA || field->kind == ITCH_U8);
    return (const char *)msg + field->member;
}
