#include "records.h"

#include "kl_pragma.h"

enum {
    RESULT_CHECK = offsetof(struct kl_result, check) / 4,
    RESULT_LOGITS = offsetof(struct kl_result, logits) / 4,
    STATE_H = offsetof(struct kl_state, h) / 4,
    STATE_C = offsetof(struct kl_state, c) / 4,
    STATE_PAD = offsetof(struct kl_state, pad1) / 4,
};
static_assert(offsetof(struct kl_request, budget_cycles) / 4 == RECORD_REQUEST_HEAD - 1,
              "the last field's word");

static uint32_t halves(uint32_t low, uint32_t high)
{
    return (low & 0xffffu) | high << 16;
}

static uint32_t half_of(uint64_t value, uint32_t i)
{
    return (uint32_t)(i == 0 ? value : value >> 32);
}

static uint64_t with_half(uint64_t value, uint32_t i, uint32_t word)
{
    return i == 0 ? (value & ~(uint64_t)UINT32_MAX) | word : (value & UINT32_MAX) | (uint64_t)word << 32;
}

void record_request_put(struct kl_request *request, uint32_t i, uint32_t word)
{
    switch (i) {
    case 0:
        request->abi_version = (uint16_t)word;
        request->op = (uint16_t)(word >> 16);
        break;
    case 1:
        request->slot = (uint16_t)word;
        request->flags = (uint16_t)(word >> 16);
        break;
    case 2:
        request->stream = word;
        break;
    case 3:
        request->seq_no = word;
        break;
    case 4:
        request->budget_cycles = word;
        break;
    default:
        if (i >= RECORD_REQUEST_X) {
            request->x[2 * (i - RECORD_REQUEST_X)] = (uint16_t)word;
            request->x[2 * (i - RECORD_REQUEST_X) + 1] = (uint16_t)(word >> 16);
        }
        break;
    }
}

uint32_t record_result_get(const struct kl_result *result, uint32_t i)
{
    switch (i) {
    case 0:
        return halves(result->abi_version, result->status);
    case 1:
        return result->stream;
    case 2:
        return result->seq_no;
    case 3:
        return result->slot | (uint32_t)result->cls << 16 | (uint32_t)result->flags << 24;
    case 4:
        return result->kernel_cycles;
    case 5:
        return result->prepare_cycles;
    case 6:
    case 7:
        return half_of(result->image_hash, i - 6);
    case 8:
        return result->n_class | (uint32_t)result->logit_frac << 8;
    case 9:
        return result->wait_cycles;
    case RESULT_CHECK:
    case RESULT_CHECK + 1:
        return half_of(result->check, i - RESULT_CHECK);
    default:
        return i < RESULT_LOGITS ? 0 : half_of((uint64_t)result->logits[(i - RESULT_LOGITS) / 2], i % 2);
    }
}

void record_result_seal(struct kl_result *result)
{
    /* Its loops unrolled: 13 words at every bit of an XOR tree, KL_LAT_CHECK. */
    KL_PRAGMA(HLS PIPELINE II = 1)
    result->check = kl_result_check(result);
}

void record_result_beat(const struct kl_result *result, uint32_t beat, uint32_t *words)
{
word:
    for (uint32_t i = beat * RECORD_BEAT_WORDS; i < (beat + 1) * RECORD_BEAT_WORDS; i++) {
        KL_PRAGMA(HLS UNROLL) /* a beat per cycle */
        words[i] = record_result_get(result, i);
    }
}

uint32_t record_info_get(const struct kl_info *info, uint32_t i)
{
    switch (i) {
    case 0:
        return info->abi_version;
    case 1:
    case 2:
    case 3: {
        const char *four = &info->build[4 * (i - 1)];
        return (uint32_t)(uint8_t)four[0] | (uint32_t)(uint8_t)four[1] << 8 |
               (uint32_t)(uint8_t)four[2] << 16 | (uint32_t)(uint8_t)four[3] << 24;
    }
    case 4:
        return halves(info->mac_rows, info->mac_cols);
    case 5:
        return halves(info->cell_lanes, info->n_slr);
    case 6:
        return halves(info->n_layer_max, info->n_hidden_max);
    case 7:
        return halves(info->n_in_max, info->n_class_max);
    case 8:
        return halves(info->n_slot, info->n_stream);
    case 9:
        return halves(info->queue_depth, info->part);
    case 10:
        return halves(info->n_part, info->pad0);
    case 12:
    case 13:
    case 14:
    case 15:
        return half_of(info->image_hash[(i - 12) / 2], i % 2);
    case 16:
    case 17:
        return half_of(info->cycles, i % 2);
    default:
        return 0;
    }
}

uint32_t record_state_get(const struct kl_state *state, uint32_t i)
{
    if (i >= STATE_C)
        return (uint32_t)state->c[(i - STATE_C) / KL_N_HIDDEN_MAX][(i - STATE_C) % KL_N_HIDDEN_MAX];
    if (i >= STATE_H) {
        const uint32_t at = 2 * (i - STATE_H);
        const int16_t *h = &state->h[at / KL_N_HIDDEN_MAX][at % KL_N_HIDDEN_MAX];
        return halves((uint16_t)h[0], (uint16_t)h[1]);
    }
    if (i >= STATE_PAD) {
        const uint8_t *pad = &state->pad1[4 * (i - STATE_PAD)];
        return pad[0] | (uint32_t)pad[1] << 8 | (uint32_t)pad[2] << 16 | (uint32_t)pad[3] << 24;
    }
    switch (i) {
    case 0:
        return halves(state->abi_version, state->n_layer);
    case 1:
    case 2:
        return halves(state->n_hidden[2 * i - 2], state->n_hidden[2 * i - 1]);
    case 3:
        return state->pad0;
    case 4:
    case 5:
        return half_of(state->image_hash, i - 4);
    default: /* 6, 7 */
        return half_of(state->check, i - 6);
    }
}

void record_state_put(struct kl_state *state, uint32_t i, uint32_t word)
{
    if (i >= STATE_C) {
        state->c[(i - STATE_C) / KL_N_HIDDEN_MAX][(i - STATE_C) % KL_N_HIDDEN_MAX] = (int32_t)word;
    } else if (i >= STATE_H) {
        const uint32_t at = 2 * (i - STATE_H);
        state->h[at / KL_N_HIDDEN_MAX][at % KL_N_HIDDEN_MAX] = (int16_t)(uint16_t)word;
        state->h[at / KL_N_HIDDEN_MAX][at % KL_N_HIDDEN_MAX + 1] = (int16_t)(uint16_t)(word >> 16);
    } else if (i >= STATE_PAD) {
        for (uint32_t b = 0; b < 4; b++)
            state->pad1[4 * (i - STATE_PAD) + b] = (uint8_t)(word >> (8 * b));
    } else {
        switch (i) {
        case 0:
            state->abi_version = (uint16_t)word;
            state->n_layer = (uint16_t)(word >> 16);
            break;
        case 1:
        case 2:
            state->n_hidden[2 * i - 2] = (uint16_t)word;
            state->n_hidden[2 * i - 1] = (uint16_t)(word >> 16);
            break;
        case 3:
            state->pad0 = word;
            break;
        case 4:
        case 5:
            state->image_hash = with_half(state->image_hash, i - 4, word);
            break;
        default: /* 6, 7 */
            state->check = with_half(state->check, i - 6, word);
            break;
        }
    }
}
