/* Killline accelerator: ABI and number contract.
 *
 * The one header that host and kernel both compile: limits, model image layout, request and result
 * records, the fixed-point formats, and the entry points of the native (C simulation) build.
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

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KL_ABI_VERSION = 1,

    /* Compile-time limits of this build; run-time shapes lie below them. */
    KL_N_LAYER_MAX = 3,
    KL_N_HIDDEN_MAX = 256,
    KL_N_IN_MAX = 64,
    KL_N_CLASS_MAX = 8,
    KL_N_SLOT = 2, /* primary and backup model resident together */
    KL_N_STREAM_MAX = 256,

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

    /* The MAC array of the shipped build; kl_schedule.c turns it into cycles. */
    KL_MAC_ROWS = 32,
    KL_MAC_COLS = 16,
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
    KL_E_OP = 2,     /* unknown operation */
    KL_E_SLOT = 3,   /* slot out of range */
    KL_E_STREAM = 4, /* stream out of range */
    KL_E_EMPTY = 5,  /* no model in this slot: load one */
    KL_E_IMAGE = 6,  /* image header, size or shape wrong, a weight off its grid, a row that can overflow */
    KL_E_IMAGE_HASH = 7, /* image damaged on its way */
    KL_E_INPUT = 8,      /* x is not finite, off the 2^-11 grid, or above KL_X_ABS_MAX */
};

enum { KL_RESULT_LATE = 1 }; /* kl_result.flags: kernel_cycles > budget_cycles */

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
 * What the packer proves and kl_core_load checks again, per row (rounding = half of 2^shift):
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

/* FNV-1a 64 over the whole image, header included (a damaged head_frac would change every logit), with the
 * eight bytes of image_hash itself left out. image: size_bytes bytes, at least the header. */
static inline uint64_t kl_image_hash(const void *image, size_t size_bytes)
{
    const uint8_t *byte = (const uint8_t *)image;
    const size_t skip = offsetof(struct kl_image_header, image_hash);
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size_bytes; i++) {
        if (i < skip || i >= skip + sizeof(uint64_t))
            hash = (hash ^ byte[i]) * 0x100000001b3u;
    }
    return hash;
}

struct kl_request {
    uint16_t abi_version;
    uint16_t op; /* enum kl_op */
    uint16_t slot;
    uint16_t pad0;
    uint32_t stream;
    uint32_t seq_no;         /* echoed */
    uint32_t budget_cycles;  /* kernel clock; 0: no budget */
    uint32_t pad1[11];       /* zero */
    uint16_t x[KL_N_IN_MAX]; /* binary16 bits; [n_in..] are ignored */
};
static_assert(sizeof(struct kl_request) == 192 && sizeof(struct kl_request) % 64 == 0, "whole beats");
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
    uint32_t kernel_cycles;  /* this operation, from start to answer */
    uint32_t prepare_cycles; /* what KL_OP_PREPARE of this stream will take now */
    uint64_t image_hash;
    uint8_t n_class;
    uint8_t logit_frac; /* logit = logits[k] * 2^-logit_frac */
    uint8_t pad[30];
    int64_t logits[KL_N_CLASS_MAX];
};
static_assert(sizeof(struct kl_result) == 128, "whole beats");
static_assert(offsetof(struct kl_result, logits) == 64, "logits start a beat");

/* The kernel's on-chip memory: weights of every slot, state of every stream. One per compute unit; opaque to
 * the host. The synthesised top (kl_kernel.c) holds one as a static array; the native build below takes as
 * many as the caller has memory for. */
struct kl_core;

/* Bytes that kl_core_init needs, 64-byte aligned. */
size_t kl_core_size_bytes(void);

/* Empties every slot and stream. core: kl_core_size_bytes() bytes, owned by the caller. */
void kl_core_init(struct kl_core *core);

/* Checks and loads a model image into a slot (idle or not) and resets that slot's streams. On error the slot
 * is left empty. image is not kept. Returns enum kl_status. */
uint32_t kl_core_load(struct kl_core *core, uint32_t slot, const void *image, size_t size_bytes);

/* Carries out one request. Never fails silently: result->status. One caller at a time per core. */
void kl_core_exec(struct kl_core *core, const struct kl_request *request, struct kl_result *result);

/* Modelled cycles (kl_schedule.c; from the pragmas' schedule, not measured, not RTL-simulated) of an
 * operation on a model of this shape. header must have passed kl_core_load. prepared: W_h.h + b is ready. */
uint32_t kl_schedule_step_cycles(const struct kl_image_header *header, int prepared);
uint32_t kl_schedule_prepare_cycles(const struct kl_image_header *header);

#endif
