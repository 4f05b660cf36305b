#include "latency.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t at;
    uint32_t least, most;
} keys[] = {
    {"write_ns", offsetof(struct latency, write_ns), 0, 1000000000},
    {"read_ns", offsetof(struct latency, read_ns), 0, 1000000000},
    {"fetch_ns", offsetof(struct latency, fetch_ns), 0, 1000000000},
    {"sync_ns", offsetof(struct latency, sync_ns), 0, 1000000000},
    {"sync_mbps", offsetof(struct latency, sync_mbps), 1, 1000000},
    {"kernel_mhz", offsetof(struct latency, kernel_mhz), 1, 10000},
    {"run_us", offsetof(struct latency, run_us), 0, 1000000},
};
enum { N_KEY = sizeof keys / sizeof *keys };

static int parse_key(const char *at, size_t length, struct latency *out)
{
    const char *equals = (const char *)memchr(at, '=', length);
    if (!equals)
        return -1;
    for (int i = 0; i < N_KEY; i++) {
        if (strlen(keys[i].name) != (size_t)(equals - at) ||
            memcmp(keys[i].name, at, (size_t)(equals - at)) != 0)
            continue;
        char *end;
        if (equals[1] < '0' || equals[1] > '9')
            return -1;
        const unsigned long value = strtoul(equals + 1, &end, 10);
        if (end != at + length || value < keys[i].least || value > keys[i].most)
            return -1;
        const uint32_t word = (uint32_t)value;
        memcpy((char *)out + keys[i].at, &word, sizeof word);
        return 0;
    }
    return -1;
}

int latency_parse(const char *spec, struct latency *out, char error[LATENCY_ERROR_CHARS])
{
    *out = (struct latency){0, 450, 900, 900, 19000, 10000, 300, 0};
    if (!spec || !*spec || strcmp(spec, "off") == 0)
        return 0;
    out->is_on = 1;
    if (strcmp(spec, "on") == 0)
        return 0;
    for (const char *at = spec;;) {
        const size_t length = strcspn(at, ",");
        if (parse_key(at, length, out) != 0) {
            snprintf(
                error, LATENCY_ERROR_CHARS,
                "KL_SIM_LATENCY: '%.*s' is not off, on, or KEY=N of write_ns, read_ns, fetch_ns, sync_ns, "
                "sync_mbps (from 1), kernel_mhz (1 to 10000), run_us",
                (int)(length < 64 ? length : 64), at);
            return -1;
        }
        if (!at[length])
            return 0;
        at += length + 1;
    }
}
