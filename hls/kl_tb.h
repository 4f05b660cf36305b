/* The testbench's own view of a model: real-valued weights, and an oracle in binary64 that shares no code
 * with the kernel. Exactness is a test of equality: every product and block sum of the contract is exact in
 * binary64. */
#ifndef KL_TB_H
#define KL_TB_H

#include "kl_abi.h"

/* What a check found. A case is one input whose every output was compared. */
struct tb_report {
    uint64_t n_case, n_mismatch;
    char first[1024]; /* the first mismatch with its trail; empty: none */
};

/* Counts a mismatch; the first one keeps its text. */
__attribute__((format(printf, 2, 3))) void tb_report_mismatch(struct tb_report *report, const char *format,
                                                              ...);

enum tb_kind {
    TB_TYPICAL,  /* U(+-1/sqrt(H)), like a fresh or trained network; also compared with a true FP64 LSTM */
    TB_WIDE,     /* row scales over many binades, large biases */
    TB_BOUND,    /* every block and row at its proven bound, to the last step */
    TB_SATURATE, /* gates wide open: c runs into +-256, h into its maximum */
    TB_ZERO,     /* nothing but zeros: every logit ties */
    TB_N_KIND
};
extern const char *const tb_kind_name[TB_N_KIND];

enum {
    TB_N_ROW_MAX = KL_N_GATE * KL_N_HIDDEN_MAX,
    TB_N_OPERAND_MAX = KL_N_IN_MAX > KL_N_HIDDEN_MAX ? KL_N_IN_MAX : KL_N_HIDDEN_MAX
};

struct tb_layer {
    uint32_t n_operand, n_hidden;
    int x_frac[TB_N_ROW_MAX], h_frac[TB_N_ROW_MAX];
    double bias[TB_N_ROW_MAX]; /* in Q.20 steps */
    double w_x[TB_N_ROW_MAX][TB_N_OPERAND_MAX];
    double w_h[TB_N_ROW_MAX][KL_N_HIDDEN_MAX];
};

struct tb_model {
    enum tb_kind kind;
    uint32_t n_in, n_layer, n_class;
    struct tb_layer layer[KL_N_LAYER_MAX];
    int head_frac;
    double head_bias[KL_N_CLASS_MAX]; /* in steps of 2^-(head_frac + KL_H_FRAC) */
    double head_w[KL_N_CLASS_MAX][KL_N_HIDDEN_MAX];
};

/* One stream's state: h as real values, c in Q.18 steps (contract) or real (true LSTM). */
struct tb_state {
    double h[KL_N_LAYER_MAX][KL_N_HIDDEN_MAX];
    double c[KL_N_LAYER_MAX][KL_N_HIDDEN_MAX];
};

struct tb_answer {
    double logit[KL_N_CLASS_MAX]; /* contract: in steps; true LSTM: real */
    uint32_t cls;
    double z[KL_N_LAYER_MAX][TB_N_ROW_MAX]; /* contract only: every row's z in Q.20 steps, for the trail */
};

/* splitmix64. */
uint64_t tb_random_u64(uint64_t *seed);
/* Uniform in 0 .. n - 1. */
uint32_t tb_random_below(uint64_t *seed, uint32_t n);
/* Uniform in [-1, 1). */
double tb_random_real(uint64_t *seed);

/* A random model of the given kind and shape (n_in, n_layer, n_class and the layers' n_hidden are set). */
void tb_model_fill(struct tb_model *model, uint64_t *seed);

/* The header of model's image but for size_bytes and image_hash: enough for kl_build.check_shape. */
struct kl_image_header tb_model_header(const struct tb_model *model);

/* The kernel image of model; malloc'd, the caller frees it. NULL: out of memory. */
struct kl_image_header *tb_model_image(const struct tb_model *model);

/* Decodes an image into *model, as TB_TYPICAL. Shares no code with the kernel's loader and proves no bound:
 * for an image that the kernel takes. Returns NULL, or what is wrong with it. */
const char *tb_model_from_image(struct tb_model *model, const void *image, size_t size_bytes);

/* binary16 bits of v, which must be a binary16 value; value of the bits, infinities and NaN as such. */
uint16_t tb_half(double v);
double tb_half_value(uint16_t bits);

/* Random inputs on the grid: mostly small, sometimes at their bounds, and but for TB_TYPICAL sometimes
 * aligned with a row of layer 0, so that its sums go as far as they can. x: n_in values. */
void tb_random_x(const struct tb_model *model, double *x, uint64_t *seed);

/* Writes T's knots; call once before the rest. */
void tb_oracle_init(void);

/* T(x) in Q0.15 steps, from x in Q.20 steps. */
double tb_oracle_tanh(double x_q20);

/* v (Q0.30 steps) rounded to h, in 2^-15 steps. */
double tb_oracle_round_h(double v_q30);

/* One step by the number contract. x: n_in values on the grid. */
void tb_oracle_step(const struct tb_model *model, struct tb_state *state, const double *x,
                    struct tb_answer *answer);

/* Q.20 steps of one row's product: exact blocks of 64, each rounded half-up. */
double tb_oracle_product(const double *w, const double *v, uint32_t n);

/* One step of the same network in plain binary64: exact tanh and sigma, no rounding. */
void tb_true_step(const struct tb_model *model, struct tb_state *state, const double *x,
                  struct tb_answer *answer);

#endif
