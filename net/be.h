/* Big-endian loads, any alignment: the order of every header and feed here. */
#ifndef BE_H
#define BE_H

#include <stdint.h>
#include <string.h>

static inline uint16_t be_load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return __builtin_bswap16(v);
}

static inline uint32_t be_load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return __builtin_bswap32(v);
}

static inline uint64_t be_load_u48(const uint8_t *p)
{
    return (uint64_t)be_load_u16(p) << 32 | be_load_u32(p + 2);
}

static inline uint64_t be_load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return __builtin_bswap64(v);
}

#endif
