#include "sweep_partial.h"
#include "whole_file.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static_assert(SWEEP_DIGEST_BYTES == SHA256_DIGEST_LENGTH, "SHA-256");

static const char magic[8] = "KLSWEEP";
enum { FILE_BYTES_MAX = 1 << 28, ROWS_MAX = 1 << 20 };

/* ---- bytes out ---- */

struct buffer {
    uint8_t *data;
    size_t size, room;
    int failed;
};

static void put(struct buffer *b, const void *data, size_t size)
{
    if (b->size + size > b->room) {
        const size_t room = 2 * (b->size + size);
        uint8_t *grown = b->failed ? NULL : realloc(b->data, room);
        if (!grown) {
            b->failed = 1;
            return;
        }
        b->data = grown;
        b->room = room;
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_u64(struct buffer *b, uint64_t v)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; v > 0x7f; v >>= 7)
        bytes[n++] = (uint8_t)(v | 0x80);
    bytes[n++] = (uint8_t)v;
    put(b, bytes, n);
}

static void put_i64(struct buffer *b, int64_t v)
{
    put_u64(b, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63));
}

static void put_spec(struct buffer *b, const struct sweep_spec *s)
{
    put_u64(b, s->n_threshold);
    for (uint32_t i = 0; i < s->n_threshold; i++)
        put_u64(b, s->threshold_ns[i]);
    put_u64(b, s->n_replicate);
    put_u64(b, s->horizon_ticks);
    put_u64(b, s->horizon_ns);
    put_u64(b, s->seed);
}

/* Pairs of the length of a run of zeros and the value behind it. */
static void put_cells(struct buffer *b, const int64_t *cell, int64_t n)
{
    uint64_t zeros = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!cell[i]) {
            zeros++;
            continue;
        }
        put_u64(b, zeros);
        put_i64(b, cell[i]);
        zeros = 0;
    }
    put_u64(b, zeros);
}

static void put_row(struct buffer *b, const struct sweep_arm_row *r)
{
    put_u64(b, r->arms.a_ns);
    put_u64(b, r->arms.b_ns);
    put_u64(b, r->arms.share_percent);
    put_u64(b, r->arms.salt);
    put(b, r->symbol, sizeof(r->symbol));
    put_u64(b, r->is_b);
    put_i64(b, r->line);
    put_i64(b, r->published);
    put_i64(b, r->known);
    put_i64(b, r->hits);
    put_i64(b, r->value);
}

static void put_log(struct buffer *b, const struct sweep_log_info *l)
{
    put(b, l->key, sizeof(l->key));
    put(b, l->head, sizeof(l->head));
    put_u64(b, l->records);
    put_u64(b, l->predictions);
    put_u64(b, l->lost);
    put_u64(b, l->version);
    put_u64(b, l->clock);
    put_u64(b, l->is_closed);
    put(b, l->feed, sizeof(l->feed));
    put(b, l->path, sizeof(l->path));
}

uint8_t *sweep_partial_encode(const struct sweep_sums *s, size_t *size_bytes)
{
    struct buffer b = {0};
    put(&b, magic, sizeof(magic));
    put_u64(&b, SWEEP_PARTIAL_VERSION);
    put_spec(&b, &s->spec);
    put(&b, s->class_name, sizeof(s->class_name));
    put_i64(&b, s->predictions);
    put_i64(&b, s->disordered);
    put_i64(&b, s->value_bound);
    for (int v = 0; v < VERDICT_COUNT; v++)
        put_i64(&b, s->given[v]);
    put_u64(&b, s->n_log);
    for (uint32_t i = 0; i < s->n_log; i++)
        put_log(&b, &s->log[i]);
    put_u64(&b, s->n_row);
    for (uint32_t i = 0; i < s->n_row; i++)
        put_row(&b, &s->row[i]);
    put_cells(&b, s->cell, s->n_cell);
    uint8_t digest[SWEEP_DIGEST_BYTES];
    if (!b.failed)
        SHA256(b.data, b.size, digest);
    put(&b, digest, b.failed ? 0 : sizeof(digest));
    if (b.failed) {
        free(b.data);
        return NULL;
    }
    *size_bytes = b.size;
    return b.data;
}

/* ---- bytes in ---- */

struct cursor {
    const uint8_t *data;
    size_t size, at;
    int failed; /* cut short, or a number of more than 64 bits */
};

static void get(struct cursor *c, void *out, size_t size)
{
    if (size > c->size - c->at) {
        c->failed = 1;
        memset(out, 0, size);
        return;
    }
    memcpy(out, c->data + c->at, size);
    c->at += size;
}

static uint64_t get_u64(struct cursor *c)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && c->at < c->size; shift += 7) {
        const uint8_t byte = c->data[c->at++];
        if (shift == 63 && byte > 1)
            break;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return v;
    }
    c->failed = 1;
    return 0;
}

static int64_t get_i64(struct cursor *c)
{
    const uint64_t v = get_u64(c);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static uint32_t get_u32(struct cursor *c)
{
    const uint64_t v = get_u64(c);
    c->failed |= v > UINT32_MAX;
    return (uint32_t)v;
}

static const char *get_spec(struct cursor *c, struct sweep_spec *s)
{
    *s = (struct sweep_spec){.n_threshold = get_u32(c)};
    if (s->n_threshold > SWEEP_N_THRESHOLD_MAX)
        return "number of thresholds is out of range";
    for (uint32_t i = 0; i < s->n_threshold; i++)
        s->threshold_ns[i] = get_u32(c);
    s->n_replicate = get_u32(c);
    s->horizon_ticks = get_u64(c);
    s->horizon_ns = get_u64(c);
    s->seed = get_u64(c);
    return c->failed ? "cut short" : sweep_spec_check(s);
}

static int is_padded(const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    if (length == size)
        return 0;
    while (length < size && !text[length])
        length++;
    return length == size;
}

static void get_log(struct cursor *c, struct sweep_log_info *l)
{
    get(c, l->key, sizeof(l->key));
    get(c, l->head, sizeof(l->head));
    l->records = get_u64(c);
    l->predictions = get_u64(c);
    l->lost = get_u64(c);
    l->version = get_u32(c);
    l->clock = get_u32(c);
    l->is_closed = get_u32(c);
    get(c, l->feed, sizeof(l->feed));
    get(c, l->path, sizeof(l->path));
    c->failed |= !is_padded(l->path, sizeof(l->path)) || l->clock > AUDIT_CLOCK_REPLAY || l->is_closed > 1 ||
                 l->version < 1 || l->version > AUDIT_VERSION || l->predictions > l->records;
}

static void get_row(struct cursor *c, struct sweep_arm_row *r)
{
    r->arms.a_ns = get_u64(c);
    r->arms.b_ns = get_u64(c);
    r->arms.share_percent = get_u64(c);
    r->arms.salt = get_u64(c);
    get(c, r->symbol, sizeof(r->symbol));
    r->is_b = get_u64(c);
    r->line = get_i64(c);
    r->published = get_i64(c);
    r->known = get_i64(c);
    r->hits = get_i64(c);
    r->value = get_i64(c);
}

static const char *get_body(struct cursor *c, struct sweep_sums *s)
{
    char name[SWEEP_N_CLASS][8];
    get(c, name, sizeof(name));
    int8_t sign[SWEEP_N_CLASS];
    const char none[SWEEP_N_CLASS][8] = {0};
    if (memcmp(name, none, sizeof(none)) != 0) {
        if (!sweep_class_signs(name, sign))
            return "its class names have gaps";
        sweep_sums_classes(s, name);
    }
    s->predictions = get_i64(c);
    s->disordered = get_i64(c);
    s->value_bound = get_i64(c);
    for (int v = 0; v < VERDICT_COUNT; v++)
        s->given[v] = get_i64(c);
    const uint32_t n_log = get_u32(c);
    for (uint32_t i = 0; i < n_log && n_log <= SWEEP_N_LOG_MAX && !c->failed; i++) {
        struct sweep_log_info log = {0};
        const struct sweep_log_info *twin;
        get_log(c, &log);
        if (!c->failed && sweep_sums_log(s, &log, &twin))
            return "holds a log twice";
    }
    const uint32_t n_row = get_u32(c);
    for (uint32_t i = 0; i < n_row && n_row <= ROWS_MAX && !c->failed; i++) {
        struct sweep_arm_row row;
        get_row(c, &row);
        if (!c->failed && sweep_sums_row(s, &row))
            return "its A/B rows pass 64 bits";
    }
    for (int64_t i = 0; !c->failed; i++) {
        const uint64_t zeros = get_u64(c);
        if (zeros > (uint64_t)(s->n_cell - i))
            return "has more sums than its thresholds ask for";
        i += (int64_t)zeros;
        if (i == s->n_cell)
            break;
        s->cell[i] = get_i64(c);
    }
    if (c->failed || c->at != c->size)
        return "cut short, too long, or a field is out of range";
    return sweep_sums_check(s);
}

/* NULL and *sums, or what is wrong; *sums may be there then, too. */
static const char *decode(const uint8_t *data, size_t size_bytes, struct sweep_sums **sums)
{
    struct cursor c = {.data = data, .size = size_bytes};
    char head[sizeof(magic)];
    get(&c, head, sizeof(head));
    if (c.failed || memcmp(head, magic, sizeof(magic)) != 0)
        return "not a partial result of killline sweep";
    if (get_u64(&c) != SWEEP_PARTIAL_VERSION)
        return "of another version: make it anew with this killline";
    uint8_t digest[SWEEP_DIGEST_BYTES];
    if (c.size - c.at < sizeof(digest))
        return "cut short";
    c.size -= sizeof(digest);
    SHA256(data, c.size, digest);
    if (memcmp(digest, data + c.size, sizeof(digest)) != 0)
        return "damaged: its checksum is another";
    struct sweep_spec spec;
    const char *wrong = get_spec(&c, &spec);
    if (wrong)
        return wrong;
    *sums = sweep_sums_create(&spec);
    if (!*sums)
        return "out of memory";
    wrong = get_body(&c, *sums);
    if (wrong)
        return wrong;
    size_t again_bytes;
    uint8_t *again = sweep_partial_encode(*sums, &again_bytes);
    if (!again)
        return "out of memory";
    if (again_bytes != size_bytes || memcmp(again, data, size_bytes) != 0)
        wrong = "not as killline sweep writes it";
    free(again);
    return wrong;
}

struct sweep_sums *sweep_partial_decode(const uint8_t *data, size_t size_bytes, const char *name,
                                        char error[SWEEP_ERROR_CHARS])
{
    struct sweep_sums *sums = NULL;
    const char *wrong = decode(data, size_bytes, &sums);
    if (!wrong)
        return sums;
    snprintf(error, SWEEP_ERROR_CHARS, "%.200s: %s; --partial writes such files", name, wrong);
    sweep_sums_free(sums);
    return NULL;
}

/* ---- files ---- */

struct bytes {
    const uint8_t *data;
    size_t size_bytes;
};

static void put_bytes(FILE *out, const void *ctx)
{
    const struct bytes *bytes = ctx;
    fwrite(bytes->data, 1, bytes->size_bytes, out);
}

int sweep_partial_save(const struct sweep_sums *sums, const char *path, char error[SWEEP_ERROR_CHARS])
{
    struct bytes bytes = {0};
    uint8_t *data = sweep_partial_encode(sums, &bytes.size_bytes);
    if (!data) {
        snprintf(error, SWEEP_ERROR_CHARS, "out of memory");
        return -1;
    }
    bytes.data = data;
    const int failed = whole_file_write(path, 1, put_bytes, &bytes);
    if (failed)
        snprintf(error, SWEEP_ERROR_CHARS,
                 "%.200s: cannot write the partial result: %s; choose another --partial", path,
                 strerror(errno));
    free(data);
    return failed;
}

struct sweep_sums *sweep_partial_load(const char *path, char error[SWEEP_ERROR_CHARS])
{
    FILE *f = fopen(path, "rbe");
    struct buffer b = {0};
    int e = errno, failed = !f;
    if (f) {
        uint8_t block[65536];
        size_t n;
        while (!b.failed && b.size <= FILE_BYTES_MAX && (n = fread(block, 1, sizeof(block), f)) > 0)
            put(&b, block, n);
        failed = ferror(f);
        e = errno;
        fclose(f);
    }
    struct sweep_sums *sums = NULL;
    if (failed)
        snprintf(error, SWEEP_ERROR_CHARS, "%.200s: cannot read the partial result: %s", path, strerror(e));
    else if (b.failed || b.size > FILE_BYTES_MAX)
        snprintf(error, SWEEP_ERROR_CHARS, "%.200s: larger than any partial result, or out of memory", path);
    else
        sums = sweep_partial_decode(b.data ? b.data : (const uint8_t *)"", b.size, path, error);
    free(b.data);
    return sums;
}
