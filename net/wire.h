/* The published prediction: one UDP datagram, little-endian, 96 bytes.
 *
 * offset bytes field
 *      0     4 magic "KLP1"
 *      4     2 version (1)
 *      6     2 bytes (96; a reader takes a longer one and ignores the rest)
 *      8     8 publish_seq: from 1, one per datagram; a hole is a lost datagram
 *     16     8 feed_seq_no: MoldUDP64 sequence number of the message that triggered it
 *     24     8 feed_ts_ns: exchange time of that message, ns since midnight
 *     32     8 symbol, space padded
 *     40     2 locate
 *     42     1 cls: index of the predicted class
 *     43     1 n_class (1..8)
 *     44     1 slot: 0 primary model, 1 backup
 *     45     3 zero
 *     48     8 model_hash: the kernel image's hash
 *     56     4 bid_price, 1e-4 USD; 0: none
 *     60     4 ask_price
 *     64    32 logits[8], int32, 2^-16, saturated; [n_class..7] are 0
 *
 * No age: it would have to be known before the last check, which comes after the datagram is complete. */
#ifndef WIRE_H
#define WIRE_H

#include <stddef.h>
#include <stdint.h>

enum { WIRE_VERSION = 1, WIRE_BYTES = 96, WIRE_N_LOGIT = 8, WIRE_LOGIT_FRAC = 16 };

struct wire_prediction {
    uint64_t publish_seq, feed_seq_no, feed_ts_ns;
    char symbol[8];
    uint16_t locate;
    uint8_t cls, n_class, slot;
    uint64_t model_hash;
    uint32_t bid_price, ask_price;
    int32_t logits[WIRE_N_LOGIT];
};

/* logit * 2^-frac in the wire's 2^-16, rounded down, saturated. frac 0..63. */
int32_t wire_logit(int64_t logit, int frac);

void wire_encode(const struct wire_prediction *prediction, uint8_t out[WIRE_BYTES]);

/* 0; -1: not a prediction (shorter, other magic, other version, cls or n_class out of range). */
int wire_decode(const uint8_t *data, size_t len, struct wire_prediction *out);

#endif
