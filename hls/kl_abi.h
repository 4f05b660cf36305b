/* Killline accelerator: ABI and number contract.
 *
 * The one header that host and kernel both compile: limits, model image layout, the records, the fixed-point
 * formats, and the entry points of the native (C simulation) builds.
 * No constant in here is repeated anywhere else. Everything is little-endian.
 *
 * Number contract (why csim, FPGA and CPU agree to the bit): operands are IEEE binary16 values that lie on
 * a power-of-two grid, so each is also an int16 times 2^-frac, and dot products are exact int32 sums, free of
 * order. Gate order i, f, g, o; a unit's four rows are adjacent, row = 4 * unit + gate. Per row of a layer:
 *
 *   z  = bias + sum over blocks of 64 operands, by index, never across x and h:
 *        block = int32 sum of w_int * operand_int; block_q20 = (block + half) >> shift   (half-up),
 *        shift = w_frac + operand_frac - KL_Z_FRAC >= 0
 *   T  = tanh, 1,024 linear segments on [-8, 8), Q0.15 knots
 *   i, f, o rows are stored at half scale: sigma(z) = (T(z/2) + 2^15) >> 1
 *   c' = saturate((f*c + ((i*g) << 3) + 2^14) >> 15)       Q.18, f, i, g in Q0.15, at +-KL_C_ABS_MAX
 *   h' = o * T(c') in Q0.30, rounded once, to nearest even, to binary16 on the 2^-15 grid,
 *        saturating at +-KL_H_ABS_MAX
 *   logits = bias + sum w_int * h_int in int64, one grid for all rows; a tie goes to the lowest class
 */
#ifndef KL_ABI_H
#define KL_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "kl_c99.h"

enum {
    KL_ABI_VERSION = 3,

    /* Largest shapes and counts that the records have room for. What a kernel takes is its build's:
     * struct kl_info. */
    KL_N_LAYER_MAX = 3,
    KL_N_HIDDEN_MAX = 256,
    KL_N_IN_MAX = 256,
    KL_N_CLASS_MAX = 8,
    KL_N_SLOT = 2, /* primary and backup model resident together */
    KL_N_STREAM_MAX = 256,
    KL_QUEUE_DEPTH = 8, /* requests that may be outstanding */

    /* Fraction bits. */
    KL_X_FRAC = 11,
    KL_H_FRAC = 15,
    KL_Z_FRAC = 20,
    KL_C_FRAC = 18,
    KL_T_FRAC = 15,
    KL_W_FRAC_MAX = 24, /* 2^-24 is binary16's smallest step */

    /* Largest magnitudes, in grid steps. */
    KL_X_ABS_MAX = 32752,   /* 16 - 2^-7: the largest binary16 below 16 */
    KL_H_ABS_MAX = 32752,   /* 1 - 2^-11: the largest binary16 below 1 */
    KL_C_ABS_MAX = 1 << 26, /* 256 in Q.18 */

    KL_HEAD_BIAS_BITS = 52, /* |head_bias| <= 2^52: with the sum (< 2^39) exact in binary64 too */

    KL_BLOCK = 64, /* operands per exactly summed block */
    KL_N_GATE = 4, /* rows per hidden unit: i, f, g, o */
    KL_T_SEGMENTS = 1024,
};

enum kl_op {
    KL_OP_STEP = 1, /* x -> class and logits; the stream's state moves on */
    /* W_h.h + b of the stream's next step, off the critical path; changes no bit. Does nothing twice. */
    KL_OP_PREPARE = 2,
    KL_OP_RESET = 3, /* the stream's state in this slot back to zero */
};

enum kl_status {
    KL_OK = 0,
    KL_E_ABI = 1,    /* abi_version differs: host and kernel are not of one build */
    KL_E_OP = 2,     /* unknown operation, command or request flag */
    KL_E_SLOT = 3,   /* slot out of range */
    KL_E_STREAM = 4, /* stream out of range */
    KL_E_EMPTY = 5,  /* no model in this slot, or its load has not ended: load one, or wait */
    KL_E_IMAGE =
        6, /* image malformed: header, size, padding, a weight off its grid, a row that can overflow */
    KL_E_IMAGE_HASH = 7, /* image damaged on its way: send it again */
    KL_E_INPUT = 8,      /* x is not finite, off the 2^-11 grid, or above KL_X_ABS_MAX */
    KL_E_SHAPE = 9,      /* a well-formed image that is beyond this build's limits: take a larger build */
    KL_E_STATE = 10, /* a state to restore is damaged or of another model; or the stream's own state was lost
                        in a failed step: reset or restore it */
    KL_E_BUSY = 11,  /* the queue is full, or a load is under way: later */
    /* The other compute unit of a split layer did not answer, or differed: reset the stream. Or the halves
     * hold different models or states, or one of them is driven alone. */
    KL_E_PEER = 12,
};

enum {
    KL_REQUEST_PREPARE = 1
}; /* kl_request.flags: KL_OP_PREPARE of the stream after the answer, when idle */

/* kl_result.flags. LATE: wait_cycles + kernel_cycles would exceed budget_cycles, so the operation was not
 * begun: the stream's state is as before, cls and logits are 0. */
enum { KL_RESULT_LATE = 1 };

enum { KL_IMAGE_MAGIC = 0x4d494c4b }; /* "KLIM" */

/* Model image. The header is followed, without gaps but for padding of every array to 8 bytes, by
 *   for each layer l (K = n_in for l = 0, else n_hidden[l - 1]; H = n_hidden[l]; R = 4 * H rows):
 *     uint8_t  w_x_frac[R], w_h_frac[R]
 *     int32_t  bias[R]                    Q.20
 *     uint16_t w_x[R][K], w_h[R][H]       binary16 bits, exactly on the row's grid
 *   int64_t  head_bias[n_class]           2^-(head_frac + KL_H_FRAC)
 *   uint16_t head_w[n_class][H of the last layer]
 * Padding bytes are zero. image_hash: kl_image_hash().
 *
 * What the packer proves and the kernel checks again while it loads, per row (rounding = half of 2^shift):
 *   every block: bound = sum|w_int| * KL_X_ABS_MAX or KL_H_ABS_MAX + rounding <= 2^31 - 1
 *   every row:   sum over its x and h blocks of (bound >> shift) + |bias| <= 2^31 - 1
 *   head:        |head_bias| <= 2^KL_HEAD_BIAS_BITS; |w_int| <= 2^15 - 1 as everywhere */
struct kl_image_header {
    uint32_t magic;
    uint16_t abi_version;
    uint16_t n_layer;
    uint16_t n_in;
    uint16_t n_class;
    uint16_t n_hidden[4]; /* [n_layer..3] are 0 */
    uint8_t head_frac;
    uint8_t pad0[3];
    uint32_t size_bytes; /* header included */
    uint32_t pad1;
    uint64_t image_hash;
    uint8_t pad2[24]; /* zero */
};
static_assert(sizeof(struct kl_image_header) == 64, "image header is one beat");
static_assert(offsetof(struct kl_image_header, image_hash) == 32, "no hidden padding");
static_assert(KL_N_LAYER_MAX <= 4, "n_hidden has room");

/* One step of the image hash: a bijection of hash for every word, so a change of a single word always shows.
 * Shifts only (xorshift64): the kernel computes it while it loads, a word per cycle and without a multiplier.
 */
static inline uint64_t kl_image_hash_word(uint64_t hash, uint64_t word)
{
    hash ^= word;
    hash ^= hash << 13;
    hash ^= hash >> 7;
    return hash ^ (hash << 17);
}

/* Where the hash starts. */
#define KL_HASH_START 0x9e3779b97f4a7c15u

enum { KL_IMAGE_HASH_AT = 32 }; /* offset of image_hash */
static_assert(offsetof(struct kl_image_header, image_hash) == KL_IMAGE_HASH_AT, "the hash leaves itself out");

/* kl_image_hash_word over the image's little-endian 64-bit words, header included (a damaged head_frac would
 * change every logit), image_hash itself left out. An identity against accidents, not against a
 * forger. image: size_bytes bytes, any alignment; a last part of a word counts as filled up with zeros. */
static inline uint64_t kl_image_hash(const void *image, size_t size_bytes)
{
    const uint8_t *byte = (const uint8_t *)image;
    uint64_t hash = KL_HASH_START;
    for (size_t at = 0; at < size_bytes; at += 8) {
        uint64_t word = 0;
        for (size_t i = 0; i < 8 && at + i < size_bytes; i++)
            word |= (uint64_t)byte[at + i] << (8 * i);
        if (at != KL_IMAGE_HASH_AT)
            hash = kl_image_hash_word(hash, word);
    }
    return hash;
}

struct kl_request {
    uint16_t abi_version;
    uint16_t op; /* enum kl_op */
    uint16_t slot;
    uint16_t flags; /* KL_REQUEST_PREPARE */
    uint32_t stream;
    uint32_t seq_no;         /* echoed */
    uint32_t budget_cycles;  /* kernel clock, from the doorbell on; 0: no budget */
    uint32_t pad1[11];       /* zero */
    uint16_t x[KL_N_IN_MAX]; /* binary16 bits; [n_in..] are ignored and need not be written */
};
static_assert(sizeof(struct kl_request) == 576 && sizeof(struct kl_request) % 64 == 0, "whole beats");
static_assert(offsetof(struct kl_request, x) == 64, "x starts a beat");

struct kl_result {
    uint16_t abi_version;
    /* enum kl_status. On an error stream, seq_no and slot are echoed and the rest is 0. cls and logits are
     * KL_OP_STEP's; the other operations leave them 0. */
    uint16_t status;
    uint32_t stream;
    uint32_t seq_no;
    uint16_t slot;
    uint8_t cls;             /* argmax of logits */
    uint8_t flags;           /* KL_RESULT_LATE */
    uint32_t kernel_cycles;  /* this operation, from its start to its answer */
    uint32_t prepare_cycles; /* what KL_OP_PREPARE of this stream will take now */
    uint64_t image_hash;
    uint8_t n_class;
    uint8_t logit_frac; /* logit = logits[k] * 2^-logit_frac */
    uint8_t pad0[2];
    uint32_t wait_cycles; /* in the queue, before the operation started */
    uint8_t pad[16];      /* zero */
    uint64_t check;       /* kl_result_check, errors too: whole and undamaged */
    int64_t logits[KL_N_CLASS_MAX];
};
static_assert(sizeof(struct kl_result) == 128, "whole beats");
static_assert(offsetof(struct kl_result, wait_cycles) == 36, "no hidden padding");
static_assert(offsetof(struct kl_result, check) == 56, "no hidden padding");
static_assert(offsetof(struct kl_result, logits) == 64, "logits start a beat");

/* XOR of the result's fields as little-endian 64-bit words, each turned left by its place; check itself and
 * padding left out. In the kernel an XOR tree of a cycle or two. Any change within one word shows, and so
 * does a record of which a part has not arrived yet: whoever polls memory takes an answer whose check is
 * right, in whatever order its bytes came. */
static inline uint64_t kl_result_check(const struct kl_result *result)
{
    const uint64_t head[5] = {
        result->abi_version | (uint64_t)result->status << 16 | (uint64_t)result->stream << 32,
        result->seq_no | (uint64_t)result->slot << 32 | (uint64_t)result->cls << 48 |
            (uint64_t)result->flags << 56,
        result->kernel_cycles | (uint64_t)result->prepare_cycles << 32,
        result->image_hash,
        result->n_class | (uint64_t)result->logit_frac << 8 | (uint64_t)result->wait_cycles << 32,
    };
    uint64_t check = KL_HASH_START;
    for (uint32_t i = 0; i < 5; i++)
        check ^= head[i] << (4 * i + 1) | head[i] >> (63 - 4 * i);
    for (uint32_t i = 0; i < KL_N_CLASS_MAX; i++) {
        const uint64_t word = (uint64_t)result->logits[i];
        check ^= word << (4 * i + 21) | word >> (43 - 4 * i);
    }
    return check;
}

/* State of one stream in one slot, as saved and restored: moves a stream between compute units, backends or
 * restarts. Prepared sums are not part of it: they follow from h. */
struct kl_state {
    uint16_t abi_version;
    uint16_t n_layer;
    uint16_t n_hidden[4];
    uint32_t pad0;
    uint64_t image_hash;                        /* of the model whose state it is */
    uint64_t check;                             /* kl_state_check */
    uint8_t pad1[32];                           /* zero */
    int16_t h[KL_N_LAYER_MAX][KL_N_HIDDEN_MAX]; /* 2^-15 steps; 0 beyond the shape */
    int32_t c[KL_N_LAYER_MAX][KL_N_HIDDEN_MAX]; /* Q.18; 0 beyond the shape */
};
static_assert(sizeof(struct kl_state) == 64 + KL_N_LAYER_MAX * KL_N_HIDDEN_MAX * 6, "no hidden padding");
static_assert(sizeof(struct kl_state) % 64 == 0, "whole beats");
static_assert(offsetof(struct kl_state, h) == 64, "h starts a beat");

/* kl_image_hash_word over the state's little-endian 64-bit words, check itself left out. */
static inline uint64_t kl_state_check(const struct kl_state *state)
{
    uint64_t hash = KL_HASH_START;
    hash =
        kl_image_hash_word(hash, state->abi_version | (uint64_t)state->n_layer << 16 |
                                     (uint64_t)state->n_hidden[0] << 32 | (uint64_t)state->n_hidden[1] << 48);
    hash = kl_image_hash_word(hash, state->n_hidden[2] | (uint64_t)state->n_hidden[3] << 16 |
                                        (uint64_t)state->pad0 << 32);
    hash = kl_image_hash_word(hash, state->image_hash);
    for (uint32_t i = 0; i < sizeof state->pad1; i += 8) {
        uint64_t word = 0;
        for (uint32_t b = 0; b < 8; b++)
            word |= (uint64_t)state->pad1[i + b] << (8 * b);
        hash = kl_image_hash_word(hash, word);
    }
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u += 4) {
            uint64_t word = 0;
            for (uint32_t i = 0; i < 4; i++)
                word |= (uint64_t)(uint16_t)state->h[l][u + i] << (16 * i);
            hash = kl_image_hash_word(hash, word);
        }
    }
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u += 2)
            hash = kl_image_hash_word(hash, (uint32_t)state->c[l][u] | (uint64_t)(uint32_t)state->c[l][u + 1]
                                                                           << 32);
    }
    return hash;
}

/* What a kernel is and holds. The first words of its register block; abi_version comes first in every
 * version. */
struct kl_info {
    uint32_t abi_version;
    char build[12]; /* name, 0-terminated: small, fast, large */
    uint16_t mac_rows, mac_cols, cell_lanes, n_slr;
    uint16_t n_layer_max, n_hidden_max, n_in_max, n_class_max;
    uint16_t n_slot, n_stream, queue_depth;
    uint16_t part, n_part; /* of a model split by rows: this unit is part `part` of n_part; else 0 of 1 */
    uint16_t pad0;
    uint32_t pad1;
    uint64_t image_hash[KL_N_SLOT]; /* 0: empty */
    uint64_t cycles;                /* the kernel's clock */
    uint8_t pad2[56];
};
static_assert(sizeof(struct kl_info) == 128, "two beats");
static_assert(offsetof(struct kl_info, image_hash) == 48, "no hidden padding");

/* ---- The register block (AXI-Lite), in 32-bit words ----
 *
 * Words 32 to 47 and the request ring are the host's, all others the kernel's; both kinds lie in whole beats
 * of 64 bytes. Doorbell mode: the kernel restarts by itself and looks at the block in every round. The host
 * owns the words that it writes, the kernel all others; counters run on modulo 2^32.
 *
 * Request: write entry tail % KL_QUEUE_DEPTH of the request ring, then KL_REG_REQUEST_TAIL = tail + 1.
 *
 * Answer: KL_REG_RESULT_TAIL has moved on; read entry (old tail) % KL_QUEUE_DEPTH of the result ring, then
 * KL_REG_RESULT_HEAD += 1, which frees the entry. A step's answer is there earlier, by what the pipeline
 * takes to drain: it is whole as soon as the entry's seq_no is the request's, which may be polled instead by
 * a host whose seq_no do not repeat within KL_QUEUE_DEPTH.
 *
 * Load: write the image's size and slot, then KL_REG_LOAD_DOORBELL += 1. KL_REG_LOAD_DONE becomes its number
 * when the load has ended with KL_REG_LOAD_STATUS; the number of a refused doorbell never shows there.
 *
 * Rings in memory: registers cost a host an access of their own per word, memory does not. With
 * KL_CONFIG_RESULT_TO_HOST an answer also goes to entry (tail % KL_QUEUE_DEPTH) of the buffer at the kernel's
 * argument `result`; it may be polled there by its seq_no and its check, and only those say that it has come:
 * memory and registers are different ways. With KL_CONFIG_REQUEST_FROM_HOST a request is read from entry
 * (tail % KL_QUEUE_DEPTH) of the buffer at the argument `request`, not from the request ring here; the host
 * has written it before KL_REG_REQUEST_TAIL. KL_REG_CONFIG changes only while nothing is outstanding. */
enum kl_reg {
    KL_REG_INFO = 0, /* struct kl_info, read only */
    KL_REG_REQUEST_TAIL = 32,
    KL_REG_RESULT_HEAD = 33,
    KL_REG_CONFIG = 34,
    KL_REG_LOAD_SLOT = 35,
    KL_REG_LOAD_SIZE_BYTES = 36,
    KL_REG_LOAD_DOORBELL = 37,
    /* The kernel's, read only. */
    KL_REG_REQUEST_HEAD = 48, /* requests taken */
    KL_REG_RESULT_TAIL = 49,  /* answers given */
    /* Doorbells refused: REQUEST_TAIL more than KL_QUEUE_DEPTH ahead of REQUEST_HEAD or behind what was seen,
     * RESULT_HEAD ahead of RESULT_TAIL, a load while one is under way. Nothing is executed while the tail
     * stands wrong. */
    KL_REG_BAD_DOORBELLS = 50,
    KL_REG_LOAD_STATUS = 51,
    KL_REG_LOAD_DONE = 52,
    KL_REG_REQUESTS = 64, /* KL_QUEUE_DEPTH of struct kl_request */
    KL_REG_RESULTS = KL_REG_REQUESTS + KL_QUEUE_DEPTH * (int)(sizeof(struct kl_request) / 4),
    KL_N_REG = KL_REG_RESULTS + KL_QUEUE_DEPTH * (int)(sizeof(struct kl_result) / 4),
};
enum { KL_CONFIG_RESULT_TO_HOST = 1, KL_CONFIG_REQUEST_FROM_HOST = 2 };
static_assert(KL_REG_INFO + sizeof(struct kl_info) / 4 == KL_REG_REQUEST_TAIL,
              "info and control do not overlap");
static_assert((KL_QUEUE_DEPTH & (KL_QUEUE_DEPTH - 1)) == 0, "counters wrap on an entry's boundary");

/* Commands of run mode, one per start of the kernel. */
enum kl_command {
    KL_COMMAND_SERVICE = 0, /* doorbell mode's round */
    /* n_request requests in memory -> results in memory; each waits for those before it. A batch has no idle
     * moment: KL_REQUEST_PREPARE does nothing. */
    KL_COMMAND_EXEC = 1,
    KL_COMMAND_LOAD = 2,    /* a whole image -> slot; result[0]: status, slot, image_hash */
    KL_COMMAND_SAVE = 3,    /* slot, stream of request[0] -> state; result[0] as above */
    KL_COMMAND_RESTORE = 4, /* state -> slot, stream of request[0]; result[0] as above */
    KL_COMMAND_INFO = 5,    /* struct kl_info -> result[0], which is as large */
};
static_assert(sizeof(struct kl_info) == sizeof(struct kl_result), "KL_COMMAND_INFO");

/* The control interface (AXI-Lite) as a host sees it: byte offsets. The order and spacing of the arguments
 * are those of UG1399, "S_AXILITE Control Register Map": 8 bytes for a scalar of up to 32 bits, 12 for a
 * pointer. Arguments have their number in XRT's calls. */
enum kl_map {
    KL_MAP_CONTROL = 0x00, /* enum kl_control */
    KL_MAP_COMMAND = 0x10,
    KL_MAP_SLOT = 0x18,
    KL_MAP_IMAGE_SIZE_BYTES = 0x20,
    KL_MAP_N_REQUEST = 0x28,
    KL_MAP_IMAGE = 0x30,
    KL_MAP_REQUEST = 0x3c,
    KL_MAP_RESULT = 0x48,
    KL_MAP_STATE = 0x54,
    KL_MAP_REG = 0x2000, /* the register block: word i at KL_MAP_REG + 4 * i */
    KL_MAP_BYTES = 0x4000,
};
static_assert(KL_MAP_REG + 4 * (int)KL_N_REG <= (int)KL_MAP_BYTES, "the block fits");
/* ap_ctrl_hs. START stands until the start is taken in, DONE is cleared by reading; written 0, AUTO_RESTART
 * ends with the round that is under way. */
enum kl_control {
    KL_CONTROL_START = 1,
    KL_CONTROL_DONE = 2,
    KL_CONTROL_IDLE = 4,
    KL_CONTROL_AUTO_RESTART = 0x80,
};
enum kl_argument {
    KL_ARG_COMMAND,
    KL_ARG_SLOT,
    KL_ARG_IMAGE_SIZE_BYTES,
    KL_ARG_N_REQUEST,
    KL_ARG_IMAGE,
    KL_ARG_REQUEST,
    KL_ARG_RESULT,
    KL_ARG_STATE,
};

/* ---- The native build: the kernel's source as a library, one per named build ----
 *
 * A unit is one compute unit: its on-chip memories and its controller, in memory that the caller owns. Units
 * are independent of each other; one caller at a time per unit. Nothing allocates or blocks. */
struct kl_unit;

/* A start's arguments: kl_kernel's, as the host sets them. */
struct kl_arguments {
    uint32_t command; /* enum kl_command */
    uint32_t slot, image_size_bytes, n_request;
    const void *image; /* 8-byte aligned natively; on a card 64, as every buffer of XRT's is */
    const struct kl_request *request;
    struct kl_result *result; /* KL_COMMAND_SERVICE: the host's rings of KL_QUEUE_DEPTH each, or NULL.
                                 Without a ring of requests those that are to be read there wait; without one
                                 of answers they are in the register block alone */
    struct kl_state *state;
};

struct kl_resources;

struct kl_build {
    const char *name; /* small, fast, large */

    size_t (*unit_size_bytes)(void); /* a multiple of 64; the memory is 64-byte aligned */
    /* Empties every slot and stream. n_part 1: a unit of its own. n_part 2: half of a pair that splits every
     * layer's rows; both halves are loaded with the same image and driven by the functions on pairs. */
    void (*init)(struct kl_unit *unit, uint32_t part, uint32_t n_part);
    void (*info)(const struct kl_unit *unit, struct kl_info *info);

    /* Loads a model image beside the running model. begin empties the slot (requests to it answer KL_E_EMPTY
     * until the load has ended), resets its streams and answers KL_OK, KL_E_SLOT, or KL_E_BUSY: a load is
     * under way. advance takes in one beat of 64 bytes and answers KL_E_BUSY until the whole image is in,
     * then its verdict, once: KL_OK and the slot is live, or an error and it is empty; KL_E_EMPTY: no load is
     * under way. image (any alignment) must stay until then. */
    uint32_t (*load_begin)(struct kl_unit *unit, uint32_t slot, const void *image, size_t size_bytes);
    uint32_t (*load_advance)(struct kl_unit *unit);

    /* Carries out one request from start to end. Never fails silently: result->status. exec_pair: both halves
     * of a pair, cycle by cycle beside each other; wait_cycles: what it has waited in the host's queue. */
    void (*exec)(struct kl_unit *unit, const struct kl_request *request, struct kl_result *result);
    void (*exec_pair)(struct kl_unit *const unit[2], const struct kl_request *request, uint32_t wait_cycles,
                      struct kl_result *result);

    /* The same through the queue: post returns 0, or -1: KL_QUEUE_DEPTH requests are outstanding, take first.
     * take serves the queue until the next answer, in the order of posting; 1, or 0: nothing outstanding. A
     * prepare that was asked for by flag is carried out when take finds the queue empty. */
    int (*post)(struct kl_unit *unit, const struct kl_request *request);
    int (*take)(struct kl_unit *unit, struct kl_result *result);

    /* One start of the kernel: kl_kernel.h, with this unit's memories. The register block, KL_N_REG words. */
    void (*kernel)(struct kl_unit *unit, const struct kl_arguments *arguments);
    uint32_t *(*registers)(struct kl_unit *unit);

    /* State of one stream. save writes all of *state on KL_OK. restore refuses (KL_E_STATE, stream as before)
     * what save cannot have written. Of a pair: save_pair, restore_pair. */
    uint32_t (*save)(const struct kl_unit *unit, uint32_t slot, uint32_t stream, struct kl_state *state);
    uint32_t (*restore)(struct kl_unit *unit, uint32_t slot, uint32_t stream, const struct kl_state *state);
    uint32_t (*save_pair)(struct kl_unit *const unit[2], uint32_t slot, uint32_t stream,
                          struct kl_state *state);
    uint32_t (*restore_pair)(struct kl_unit *const unit[2], uint32_t slot, uint32_t stream,
                             const struct kl_state *state);

    /* Whether this build takes a model of this shape: KL_OK, KL_E_IMAGE, KL_E_SHAPE. The cycles of its
     * operations (modelled: counted by running the kernel's own sequencer; input and output over PCIe not
     * included); n_part as in init. prepared: W_h.h + b is ready. header: one that check_shape takes. */
    uint32_t (*check_shape)(const struct kl_image_header *header, uint32_t n_part);
    uint32_t (*step_cycles)(const struct kl_image_header *header, uint32_t n_part, int prepared);
    uint32_t (*prepare_cycles)(const struct kl_image_header *header, uint32_t n_part);
    uint32_t (*reset_cycles)(void); /* of any model */
    uint32_t (*frame_cycles)(void); /* a request that does nothing else: a second PREPARE, a late one */
    /* A step's request and answer between the register block and the core: on top of its step_cycles. */
    uint32_t (*io_cycles)(const struct kl_image_header *header);

    /* What the build takes of an FPGA (modelled): kl_resources.h. */
    void (*resources)(struct kl_resources *out);

    /* The on-chip memory of the weights, for fault injection: a bit of it turned over is a fault that no hash
     * of an image sees. */
    uint8_t *(*weights)(struct kl_unit *unit, size_t *size_bytes);

    /* For a testbench's trail: z (Q.20) of a row of the unit's last step; row: 4 * unit + gate of the whole
     * layer. 0: a row that this unit does not hold. */
    int32_t (*seen_z)(const struct kl_unit *unit, uint32_t layer, uint32_t row);
};

/* 512 MACs, up to 3 x 128 hidden; 2,048 MACs in one SLR, up to 2 x 128; 4,096 MACs over two SLRs, up to
 * 3 x 256. hls/kl_build.h has the parameters. */
extern const struct kl_build kl_build_small, kl_build_fast, kl_build_large;

#endif
