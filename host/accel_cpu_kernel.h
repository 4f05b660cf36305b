/* What the instruction-set variants of the cpu backend share: the packed model, a stream's state, and the
 * functions that each variant gives. For accel_cpu*.c only.
 *
 * A layer's units are dealt out to tiles, 2 * lanes units wide; a last, narrow one of `lanes` units if that
 * is enough. In a wide tile sub 0 is the even units and sub 1 the odd ones, so that unit = first + 2 * lane +
 * sub; in a narrow one unit = first + lane. A vector is `lanes` int32, one unit each; a tile has 4 gates of 1
 * or 2 subs of them, vector = gate * n_sub + sub. Units that only fill up a tile have zero weights, bias and
 * state, which stay zero: f * 0 + i * T(0) = 0.
 *
 * A tile of a product, all in the order of reading:
 *   h only: bias[vectors]
 *   half[vectors], shift[vectors]             rounding of a block: (sum + half) >> shift
 *   per block of 64 operands:
 *     16-bit weights: per pair of operands: [vectors][lanes][2] int16
 *     8-bit weights:  correction[vectors], per four operands: [vectors][lanes][4] int8
 * Eight-bit weights meet an operand in two halves, v = 256 * (high - 128) + low with both unsigned:
 * sum = (correction + sum w * high) * 256 + half + sum w * low, correction = -128 * sum w. */
#ifndef ACCEL_CPU_KERNEL_H
#define ACCEL_CPU_KERNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "spsc_ring.h"

enum {
    CPU_LINE = 64,
    CPU_LANES_MAX = 16,
    CPU_UNITS_MAX = (KL_N_HIDDEN_MAX + 2 * CPU_LANES_MAX - 1) / (2 * CPU_LANES_MAX) * 2 * CPU_LANES_MAX,
    CPU_BATCH_MAX = 4, /* streams per pass over a tile */

    /* T is looked up by the magnitude of its argument, in segments; from here on it is flat at +-1. */
    CPU_T_SEGMENT_BITS = KL_Z_FRAC - 6,
    CPU_T_FLAT = 382,
    CPU_T_ROWS = 384,
};

/* T in the layouts that the variants look up, for segment k = |z| >> CPU_T_SEGMENT_BITS, with A(k) the knot
 * and D(k) the difference to the next one. A goes up to 2^15 and is not saturated: the negative side is not.
 */
struct cpu_tanh {
    /* A - 1 and 2 * D by bytes, for registers of 128; top: of k = 255 + index. The high byte of A - 1 stays
     * the same from 255 on, that of 2 * D is 0 from 128 on. */
    _Alignas(CPU_LINE) uint8_t a_low[256];
    uint8_t a_high[256], a_top[128], d_low[256], d_high[128], d_top[128];
    /* The same by words, for registers of 64. */
    int16_t a[CPU_T_ROWS], d[CPU_T_ROWS];
    /* A - 1 in the low half of a dword, D in the high one. */
    uint32_t a_d[CPU_T_ROWS];
};

struct cpu_product {
    const uint8_t *tiles;
    uint32_t n_operand;
    uint32_t tile_bytes[2]; /* of a narrow and of a wide tile */
    int is_8bit;
    int is_far; /* of a model that does not fit L2 */
};

struct cpu_layer {
    uint32_t n_hidden, n_wide, n_narrow;
    struct cpu_product x, h;
    /* In a stream's state, in bytes: int16 h by unit, int32 c and z by tile and vector. */
    uint32_t h_at, c_at, z_at;
};

struct cpu_model {
    const struct cpu_tanh *tanh;
    uint32_t n_layer, n_in, n_class;
    struct cpu_layer layer[KL_N_LAYER_MAX];
    const int16_t *head_w; /* [n_class][head_columns] */
    uint32_t head_columns; /* a multiple of 32, zeros behind the last unit */
    int64_t head_bias[KL_N_CLASS_MAX];
    uint32_t state_bytes; /* of a stream; a multiple of CPU_LINE */
    uint32_t arena_bytes; /* of what is read in a step and a prepare */
};

/* x in grid steps, zeros behind n_in to a whole line. */
struct cpu_x {
    _Alignas(CPU_LINE) int16_t v[KL_N_IN_MAX];
};

struct cpu_variant {
    uint32_t lanes;
    int has_8bit;
    /* 1, or 0: a value is not finite, off the grid, or too large; *x is then undefined. */
    int (*read_x)(const uint16_t *bits, uint32_t n_in, struct cpu_x *x);
    /* z = W_h.h + b of every layer. */
    void (*prepare)(const struct cpu_model *model, uint8_t *state);
    /* A step. prepared: a state that holds z, the stream's own or another. Writes n_class logits; returns the
     * class. */
    uint32_t (*step)(const struct cpu_model *model, uint8_t *state, const uint8_t *prepared,
                     const struct cpu_x *x, int64_t *logits);
    /* The same for n <= CPU_BATCH_MAX streams in one pass over the weights; a step uses up its own z. */
    void (*prepare_batch)(const struct cpu_model *model, uint8_t *const *states, uint32_t n);
    void (*step_batch)(const struct cpu_model *model, uint8_t *const *states, const struct cpu_x *x,
                       uint32_t n, int64_t (*logits)[KL_N_CLASS_MAX], uint32_t *classes);
};

extern const struct cpu_variant accel_cpu_vnni, accel_cpu_bw, accel_cpu_avx2, accel_cpu_portable;

/* ---- accel_cpu_variant.c, accel_cpu_tanh.c, accel_cpu_memory.c, accel_cpu_state.c ---- */

/* Not for ACCEL_CPU_AUTO. */
const struct cpu_variant *cpu_variant_of(enum accel_cpu_variant variant);

/* *table is all zeros before. */
void cpu_tanh_fill(struct cpu_tanh *table);

/* size_bytes of zeros, 64-byte aligned, every page there already, on huge pages where the system has them.
 * NULL: out of memory. */
void *cpu_map(size_t size_bytes);
void cpu_unmap(void *memory, size_t size_bytes);

/* from, to: a stream's state as the variants have it. fits: whether save can have written it, for this model.
 * restore: one that fits, onto zeros. */
void cpu_state_save(const struct cpu_model *model, uint32_t lanes, uint64_t image_hash, const uint8_t *from,
                    struct kl_state *state);
int cpu_state_fits(const struct cpu_model *model, uint64_t image_hash, const struct kl_state *state);
void cpu_state_restore(const struct cpu_model *model, uint32_t lanes, const struct kl_state *state,
                       uint8_t *to);

/* ---- accel_cpu_image.c ---- */

/* The largest arena and stream state of the models that a build takes. */
size_t cpu_arena_bytes_max(uint32_t lanes, const struct kl_info *limits);
uint32_t cpu_state_bytes_max(uint32_t lanes, const struct kl_info *limits);

/* An image on its way into a slot: checked beat by beat, then packed beat by beat. */
struct cpu_loader {
    const struct cpu_variant *variant;
    const struct kl_build *build;
    const uint8_t *image; /* any alignment */
    size_t size_bytes;
    struct cpu_model *model;
    uint8_t *arena;

    enum { CPU_LOAD_IDLE, CPU_LOAD_HEADER, CPU_LOAD_CHECK, CPU_LOAD_PACK, CPU_LOAD_CYCLES } phase;
    struct kl_image_header header;
    uint64_t hash;
    uint32_t status; /* KL_E_IMAGE from the first flaw on */
    uint32_t at;     /* next byte to check */

    /* Checking: the array under way and the element in it. */
    enum cpu_section {
        CPU_X_FRAC,
        CPU_H_FRAC,
        CPU_BIAS,
        CPU_W_X,
        CPU_W_H,
        CPU_HEAD_BIAS,
        CPU_HEAD,
        CPU_END
    } section;
    uint32_t layer, row, column;
    uint32_t section_at[KL_N_LAYER_MAX][CPU_HEAD_BIAS], head_bias_at, head_at;
    int64_t block_bound;
    int64_t row_bound[KL_N_GATE * KL_N_HIDDEN_MAX];
    uint8_t shift[2][KL_N_GATE * KL_N_HIDDEN_MAX]; /* of x, of h; of the layer that is being checked */
    int32_t w_abs_max[KL_N_LAYER_MAX][2];

    /* Packing: the next vector. */
    uint32_t of_h, tile, vector, head_row;

    uint32_t cycles_step, cycles_step_prepared, cycles_prepare, n_cycles;
};

/* begin: *model and arena are the idle slot's; loader->variant and build are set. advance: about 64 bytes of
 * work; KL_E_BUSY, then the verdict, with *model complete where it is KL_OK. */
void cpu_loader_begin(struct cpu_loader *loader, const void *image, size_t size_bytes,
                      struct cpu_model *model, uint8_t *arena);
uint32_t cpu_loader_advance(struct cpu_loader *loader);

/* ---- accel_cpu_thread.c: a second thread that prepares ----
 *
 * A task belongs to the poll loop in CPU_TASK_NONE and CPU_TASK_DONE, with the state it works on. Queued, it
 * can be taken back; running, it cannot. */
enum { CPU_TASK_NONE, CPU_TASK_QUEUED, CPU_TASK_RUNNING, CPU_TASK_DONE };

struct cpu_job {
    const struct cpu_model *model; /* and its arena: unchanged until the job is over */
    uint8_t *state;                /* h; the job writes z */
    _Atomic uint32_t *task;
};

struct cpu_worker {
    struct spsc_ring jobs;
    const struct cpu_variant *variant;
    _Atomic int stop;
    pthread_t thread;
};

/* 0, or -1: no memory or no thread. stop: waits for the job under way. */
int cpu_worker_start(struct cpu_worker *worker, const struct cpu_variant *variant);
void cpu_worker_stop(struct cpu_worker *worker);
/* The rest is the poll loop's. queue: 1, or 0: no room. take_back: 1, the task is NONE again and was not
 * begun. wait: for about n_spin times a pause; 1, the task is DONE. */
int cpu_worker_queue(struct cpu_worker *worker, const struct cpu_job *job);
int cpu_worker_take_back(_Atomic uint32_t *task);
int cpu_worker_wait(_Atomic uint32_t *task, uint32_t n_spin);
/* Jobs queued so far; whether the first n are over. */
uint64_t cpu_worker_queued(const struct cpu_worker *worker);
int cpu_worker_is_over(const struct cpu_worker *worker, uint64_t n);

#endif
