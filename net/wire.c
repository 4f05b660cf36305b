#include "wire.h"

#include <assert.h>
#include <string.h>

/* The build is for x86-64: host order is the wire's order. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian");

static const char magic[4] = {'K', 'L', 'P', '1'};

/* Field offsets of the table in wire.h. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_BYTES = 6,
    AT_PUBLISH_SEQ = 8,
    AT_FEED_SEQ = 16,
    AT_FEED_TS = 24,
    AT_SYMBOL = 32,
    AT_LOCATE = 40,
    AT_CLS = 42,
    AT_N_CLASS = 43,
    AT_SLOT = 44,
    AT_MODEL_HASH = 48,
    AT_BID = 56,
    AT_ASK = 60,
    AT_LOGITS = 64,
};
static_assert(AT_LOGITS + 4 * WIRE_N_LOGIT == WIRE_BYTES, "table");

int32_t wire_logit(int64_t logit, int frac)
{
    /* Saturated before the shift where that is to the left, so that nothing runs over. */
    int up = frac < WIRE_LOGIT_FRAC ? WIRE_LOGIT_FRAC - frac : 0,
        down = frac > WIRE_LOGIT_FRAC ? frac - WIRE_LOGIT_FRAC : 0;
    int64_t v = logit >> down;
    if (v > INT32_MAX >> up)
        return INT32_MAX;
    if (v < INT32_MIN / (1 << up))
        return INT32_MIN;
    return (int32_t)(v * (1 << up));
}

void wire_encode(const struct wire_prediction *p, uint8_t out[WIRE_BYTES])
{
    const uint16_t version = WIRE_VERSION, bytes = WIRE_BYTES;
    memset(out, 0, WIRE_BYTES);
    memcpy(out + AT_MAGIC, magic, sizeof(magic));
    memcpy(out + AT_VERSION, &version, 2);
    memcpy(out + AT_BYTES, &bytes, 2);
    memcpy(out + AT_PUBLISH_SEQ, &p->publish_seq, 8);
    memcpy(out + AT_FEED_SEQ, &p->feed_seq_no, 8);
    memcpy(out + AT_FEED_TS, &p->feed_ts_ns, 8);
    memcpy(out + AT_SYMBOL, p->symbol, 8);
    memcpy(out + AT_LOCATE, &p->locate, 2);
    out[AT_CLS] = p->cls;
    out[AT_N_CLASS] = p->n_class;
    out[AT_SLOT] = p->slot;
    memcpy(out + AT_MODEL_HASH, &p->model_hash, 8);
    memcpy(out + AT_BID, &p->bid_price, 4);
    memcpy(out + AT_ASK, &p->ask_price, 4);
    memcpy(out + AT_LOGITS, p->logits, sizeof(p->logits));
}

int wire_decode(const uint8_t *data, size_t len, struct wire_prediction *p)
{
    uint16_t version, bytes;
    if (len < WIRE_BYTES || memcmp(data, magic, sizeof(magic)))
        return -1;
    memcpy(&version, data + AT_VERSION, 2);
    memcpy(&bytes, data + AT_BYTES, 2);
    if (version != WIRE_VERSION || bytes < WIRE_BYTES || bytes > len || data[AT_N_CLASS] < 1 ||
        data[AT_N_CLASS] > WIRE_N_LOGIT || data[AT_CLS] >= data[AT_N_CLASS])
        return -1;
    memcpy(&p->publish_seq, data + AT_PUBLISH_SEQ, 8);
    memcpy(&p->feed_seq_no, data + AT_FEED_SEQ, 8);
    memcpy(&p->feed_ts_ns, data + AT_FEED_TS, 8);
    memcpy(p->symbol, data + AT_SYMBOL, 8);
    memcpy(&p->locate, data + AT_LOCATE, 2);
    p->cls = data[AT_CLS];
    p->n_class = data[AT_N_CLASS];
    p->slot = data[AT_SLOT];
    memcpy(&p->model_hash, data + AT_MODEL_HASH, 8);
    memcpy(&p->bid_price, data + AT_BID, 4);
    memcpy(&p->ask_price, data + AT_ASK, 4);
    memcpy(p->logits, data + AT_LOGITS, sizeof(p->logits));
    return 0;
}
