/* The ABI's records as 32-bit words, as they lie in the register block and in memory: word by word and field
 * by field, since a synthesis tool takes no pointer of one type for another. Word i is bytes 4 * i .. of the
 * record in kl_abi.h. */
#ifndef RECORDS_H
#define RECORDS_H

#include "kl_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RECORD_BEAT_WORDS = 16, /* of the register block: what it gives and takes per cycle */
    RECORD_REQUEST_WORDS = sizeof(struct kl_request) / 4,
    RECORD_REQUEST_HEAD =
        5, /* the words that hold a field; x follows at RECORD_REQUEST_X, two values a word */
    RECORD_REQUEST_X = offsetof(struct kl_request, x) / 4,
    RECORD_RESULT_WORDS = sizeof(struct kl_result) / 4,
    RECORD_INFO_WORDS = sizeof(struct kl_info) / 4,
    RECORD_STATE_WORDS = sizeof(struct kl_state) / 4,
};

/* Puts word i < RECORD_REQUEST_WORDS into a request; words without a field are passed over. */
void record_request_put(struct kl_request *request, uint32_t i, uint32_t word);

/* Word i < RECORD_RESULT_WORDS, < RECORD_INFO_WORDS, < RECORD_STATE_WORDS. */
uint32_t record_result_get(const struct kl_result *result, uint32_t i);
uint32_t record_info_get(const struct kl_info *info, uint32_t i);
uint32_t record_state_get(const struct kl_state *state, uint32_t i);

/* Writes check: the last that is done to an answer. */
void record_result_seal(struct kl_result *result);

/* Writes beat `beat` of an answer to its place in words, where the whole answer goes. */
void record_result_beat(const struct kl_result *result, uint32_t beat, uint32_t *words);

void record_state_put(struct kl_state *state, uint32_t i, uint32_t word);

#ifdef __cplusplus
}
#endif

#endif
