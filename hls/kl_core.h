/* What a compute unit holds on chip, and the operations on it. For the kernel's own files, its top and its
 * testbench; the host sees kl_abi.h only. */
#ifndef KL_CORE_H
#define KL_CORE_H

#include "link.h"
#include "sequencer.h"
#include "weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A slot's model, but for its weights. */
struct kl_model {
    uint32_t loaded;
    struct seq_shape shape;
    uint8_t head_frac;
    uint64_t image_hash;
    uint32_t word_x[KL_BUILD_LAYERS], word_h[KL_BUILD_LAYERS]; /* first weight word of each matrix */
    uint32_t cycles_step, cycles_step_prepared, cycles_prepare;
};

/* A load on its way: a state machine that takes one 64-bit word of the image at a time (loader.c). */
enum load_section {
    LOAD_IDLE,
    LOAD_HEADER,
    LOAD_CLEAR, /* weights and states of the slot, once the header is found good */
    LOAD_X_FRAC,
    LOAD_H_FRAC,
    LOAD_BIAS,
    LOAD_W_X,
    LOAD_W_H,
    LOAD_HEAD_BIAS,
    LOAD_HEAD,
    LOAD_END,
};

enum { LOAD_ROWS = KL_N_GATE * KL_OPERANDS }; /* a split layer's rows are all checked, half of them kept */

struct kl_loader {
    enum load_section section;
    uint32_t slot, size_bytes;
    uint32_t at;        /* words taken in */
    uint32_t n_cleared; /* memory lines */
    uint32_t layer;     /* of the section */
    uint32_t row, col;  /* of the section's next element */
    uint32_t status;    /* KL_OK until something is wrong */
    uint64_t hash, hash_expected;
    struct kl_image_header header;
    int64_t block_bound;
    int64_t row_bound[LOAD_ROWS];
    uint8_t x_shift[LOAD_ROWS], h_shift[LOAD_ROWS];
};

/* The operation under way. */
struct kl_run {
    struct sequencer sequencer;
    uint32_t slot, stream, seq_no;
    /* x in grid steps, taken in before the operation begins; x_good: all of it could be converted. */
    uint32_t x_good;
    struct operand_step x[KL_BUILD_IN / KL_MAC_COLS];
    /* The step's new h of the layer being read and the layer being written (by the layer's parity): in
     * registers, since a part is read in the cycle after it came. Beyond the shape it does not matter:
     * weights are 0 there. */
    struct operand_step h[2][KL_N_COL];
    uint32_t peer_failed; /* the link brought another request's h, or nothing for LINK_PATIENCE cycles */
    uint32_t waited;      /* cycles in a row that the link brought nothing */
    /* The group whose cells are being updated, a part per cycle. */
    uint32_t cell_busy, cell_layer, cell_group, cell_part;
    int32_t cell_z[KL_MAC_ROWS];
    int32_t acc[KL_N_GROUP][KL_MAC_ROWS], z[KL_N_GROUP][KL_MAC_ROWS];
    int64_t logit[KL_N_CLASS_MAX];
    uint32_t n_beat; /* of the answer that have left */
};

/* Flat arrays, one per on-chip memory, so that each can be partitioned by itself (kl_kernel.c). All bytes
 * zero: every slot empty, every stream at rest. */
struct kl_core {
    uint64_t cycles; /* the kernel's clock: advanced by what its operations take */
    uint32_t part, n_part;
    struct kl_model model[KL_BUILD_SLOTS];
    struct kl_loader loader;
    struct kl_run run;

    alignas(64) struct weights weights;
    int32_t bias[KL_BUILD_SLOTS][KL_BUILD_LAYERS][KL_N_GROUP][KL_MAC_ROWS];
    uint8_t x_shift[KL_BUILD_SLOTS][KL_BUILD_LAYERS][KL_N_GROUP][KL_MAC_ROWS];
    uint8_t h_shift[KL_BUILD_SLOTS][KL_BUILD_LAYERS][KL_N_GROUP][KL_MAC_ROWS];
    int64_t head_bias[KL_BUILD_SLOTS][KL_N_CLASS_MAX];

    alignas(64) int16_t h[KL_BUILD_SLOTS][KL_BUILD_STREAMS][KL_BUILD_LAYERS][KL_N_COL][KL_MAC_COLS];
    int32_t c[KL_BUILD_SLOTS][KL_BUILD_STREAMS][KL_BUILD_LAYERS][KL_OWN_PARTS]
             [KL_CELL_LANES];                                                              /* own units' */
    int32_t z[KL_BUILD_SLOTS][KL_BUILD_STREAMS][KL_BUILD_LAYERS][KL_N_GROUP][KL_MAC_ROWS]; /* W_h.h + b */
    uint8_t prepared[KL_BUILD_SLOTS][KL_BUILD_STREAMS];                                    /* z is of h */
    uint8_t lost[KL_BUILD_SLOTS][KL_BUILD_STREAMS]; /* a step failed half way: needs reset or restore */

#ifndef __SYNTHESIS__
    /* For a testbench's trail: z of every row of the last step, as the cells saw it. Not on chip. */
    int32_t seen_z[KL_BUILD_LAYERS][KL_N_GROUP][KL_MAC_ROWS];
#endif
};

enum {
    LOADER_BEAT_WORDS = 8,
    /* Cycles of a beat of a load: four weights to a word, two cycles each (loader.c, the elements' II). */
    KL_LOAD_BEAT = LOADER_BEAT_WORDS * 4 * 2,
    LINK_PATIENCE = 1 << 16, /* cycles; far beyond what the longest layer takes */
};

/* ---- datapath.c ---- */

/* Begins a step or a prepare of run->slot, run->stream. A step's x has been taken in, and is good. */
void datapath_start(struct kl_core *core, enum seq_mode mode);

/* One cycle: a slot of the sequencer through the MAC array, and a part of a finished group through the cells.
 * in, out: the links of a pair, or NULL. Returns 0 when the operation has ended: all products issued, or
 * run->peer_failed. */
int datapath_cycle(struct kl_core *core, struct link *in, struct link *out);

/* ---- stream.c: the state store ---- */

/* h and c of a stream back to zero. */
void stream_reset(struct kl_core *core, uint32_t slot, uint32_t stream);

/* kl_build.save and .restore, of a struct kl_state as words. KL_E_PEER: half of a pair, which holds half of a
 * state. */
uint32_t stream_save(const struct kl_core *core, uint32_t slot, uint32_t stream, uint32_t *words);
uint32_t stream_restore(struct kl_core *core, uint32_t slot, uint32_t stream, const uint32_t *words);

/* What they are made of, for a pair: h is whole in either unit, c and the check are not. stream_take checks
 * its arguments and writes the unit's rows of a state that is zero before; stream_seal finishes a whole
 * state; stream_check checks its arguments, and says whether a state is one that the slot's model can have:
 * KL_OK or KL_E_STATE. */
uint32_t stream_take(const struct kl_core *core, uint32_t slot, uint32_t stream, struct kl_state *state);
void stream_seal(struct kl_state *state);
uint32_t stream_check(const struct kl_core *core, uint32_t slot, uint32_t stream,
                      const struct kl_state *state);
void stream_put(struct kl_core *core, uint32_t slot, uint32_t stream, const struct kl_state *state);

/* ---- loader.c ---- */

/* As kl_build.check_shape. */
uint32_t loader_check_shape(const struct kl_image_header *header, uint32_t n_part);

/* The sequencer's shape of a header that loader_check_shape takes. */
struct seq_shape loader_shape(const struct kl_image_header *header, uint32_t part, uint32_t n_part);

/* As kl_build.load_begin. */
uint32_t loader_begin(struct kl_core *core, uint32_t slot, size_t size_bytes);

/* How many words of the image, from word core->loader.at on, the next advance takes in. 0: none. */
uint32_t loader_n_word(const struct kl_core *core);

/* A line to clear, or loader_n_word words of the image. KL_E_BUSY, or the verdict. KL_E_EMPTY: no load under
 * way. */
uint32_t loader_advance(struct kl_core *core, const uint64_t beat[LOADER_BEAT_WORDS]);

/* ---- kl_core.c ---- */

/* What a request may be answered with before it is begun: KL_OK, KL_E_ABI, KL_E_OP, KL_E_SLOT, KL_E_STREAM,
 * KL_E_EMPTY, KL_E_STATE. */
uint32_t core_check_request(const struct kl_core *core, const struct kl_request *request);

/* Inputs that the request needs: of its slot's model, 0 for other operations than a step and what
 * core_check_request refuses. */
uint32_t core_n_in(const struct kl_core *core, const struct kl_request *request);

/* Takes column step col of a request's x in, n_in values in all. Whoever brings the request does so as its
 * words arrive: input, not the operation. col 0 comes first. */
void core_take_x(struct kl_core *core, const uint16_t *x, uint32_t n_in, uint32_t col);

/* All of x. */
void core_take(struct kl_core *core, const struct kl_request *request);

/* Carries out one request, whose x has been taken in. wait_cycles: what it has waited already. words: where a
 * step's answer goes as soon as it is there (RECORD_RESULT_WORDS; the beat with seq_no last), *result apart;
 * or NULL. Half of a pair cannot: KL_E_PEER. */
void core_exec_taken(struct kl_core *core, const struct kl_request *request, uint32_t wait_cycles,
                     struct kl_result *result, uint32_t *words);

/* core_take and core_exec_taken. */
void core_exec(struct kl_core *core, const struct kl_request *request, uint32_t wait_cycles,
               struct kl_result *result);

/* Whether two units are the halves of one pair, with one model in the slot; and hold one state of the stream:
 * all of h lies in either. Slot and stream in range. */
int core_pair_fits(struct kl_core *const core[2], uint32_t slot);
int core_pair_agrees(struct kl_core *const core[2], uint32_t slot, uint32_t stream);

/* core_exec on a pair. KL_E_EMPTY also while one half has ended its load and the other not yet. KL_E_PEER:
 * the halves hold different models or states (nothing was changed), or differed in their answers (the stream
 * is lost). */
void core_exec_pair(struct kl_core *const core[2], const struct kl_request *request, uint32_t wait_cycles,
                    struct kl_result *result);

#ifdef __cplusplus
}
#endif

#endif
