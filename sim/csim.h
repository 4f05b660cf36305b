/* killline csim's parts: the kernel's C simulation against the binary64 oracle and against golden vectors,
 * its modelled cycles and its resources. Cold code; one thread. Messages say what and what to do. */
#ifndef CSIM_H
#define CSIM_H

#include <jansson.h>

#include "../hls/kl_abi.h"
#include "../hls/kl_tb_run.h"
#include "../hls/kl_tb_units.h"
#include "../host/model.h"

enum { CSIM_ERROR_CHARS = MODEL_ERROR_CHARS, CSIM_SHAPE_CHARS = 48, CSIM_N_BUILD = 3 };

/* small, fast, large; and their unit checks. */
extern const struct kl_build *const csim_build[CSIM_N_BUILD];
const struct kl_tb_units *csim_units_of(const struct kl_build *build);

/* Writes the reason into error; returns -1. */
int csim_refuse(char error[CSIM_ERROR_CHARS], const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- csim_model.c: shapes and the kernel's units ---- */

/* "IN,HIDDENxLAYERS,OUT", or "IN,HIDDEN-HIDDEN-HIDDEN,OUT" with a size per layer. A header of this shape and
 * nothing else. 0, or -1: not of this form, or beyond what a header can say. */
int csim_shape_parse(const char *text, struct kl_image_header *header);

/* The same of a header: "128,128x2,3". */
void csim_shape_text(const struct kl_image_header *header, char text[CSIM_SHAPE_CHARS]);

/* The shape that a build is named for. */
const char *csim_shape_of_class(const struct kl_build *build);

/* 0, or -1: the build does not take the shape; the message names the limit and the build that takes it. */
int csim_check_shape(const struct kl_build *build, uint32_t n_unit, const struct kl_image_header *header,
                     char error[CSIM_ERROR_CHARS]);

/* Sets model's shape, for tb_model_fill. */
void csim_shape_to_model(const struct kl_image_header *header, struct tb_model *model);

/* A compute unit, or a pair, that holds one model in slot 0. */
struct csim_kernel {
    const struct kl_build *build;
    uint32_t n_unit;
    struct kl_unit *unit[2];
};

/* 0, or -1 with the reason: out of memory, or the kernel refuses the image. Close it in either case. */
int csim_kernel_open(struct csim_kernel *kernel, const struct kl_build *build, uint32_t n_unit,
                     const struct kl_image_header *image, char error[CSIM_ERROR_CHARS]);
void csim_kernel_close(struct csim_kernel *kernel);
void csim_kernel_exec(struct csim_kernel *kernel, const struct kl_request *request, struct kl_result *result);
uint32_t csim_kernel_save(const struct csim_kernel *kernel, uint32_t stream, struct kl_state *state);

/* ---- csim_check.c: one build's checks ---- */

struct csim_unit_result {
    const char *name;
    struct tb_report report;
};

enum { CSIM_UNIT_MAX = 32 };

struct csim_result {
    uint32_t n_unit_check;
    struct csim_unit_result unit[CSIM_UNIT_MAX];
    struct tb_report whole; /* the kernel as one, against the oracle */
    uint64_t n_step;        /* of it: steps */
    double steps_per_s;     /* measured: prepare and step through the C simulation */
};

/* What is checked. */
struct csim_subject {
    const struct kl_build *build;
    uint32_t n_unit;
    struct kl_image_header shape;
    struct model package; /* image NULL: random models of the shape */
    uint32_t n_vector;    /* steps; with features: at most so many rows, 0: all */
    uint64_t seed;
};

/* Unit checks, and the whole kernel: on random models of the shape; or on the package's model with random
 * inputs; or (features_path not NULL) with a day's features, progress as in model_check. 0, or -1: out of
 * memory, or data that cannot be read or does not fit the package. */
int csim_check(const struct csim_subject *subject, const char *features_path,
               void (*progress)(uint64_t done, uint64_t total), struct csim_result *result,
               char error[CSIM_ERROR_CHARS]);

/* Unit checks alone: n_case random inputs each, roughly. */
void csim_check_units(const struct kl_build *build, uint64_t seed, uint32_t n_case,
                      struct csim_result *result);

/* The whole kernel alone on random models of the shape, of every kind in turn, n_vector steps in all. */
int csim_check_shape_random(const struct csim_subject *subject, struct csim_result *result,
                            char error[CSIM_ERROR_CHARS]);

/* The package's model (oracle: decoded from its image) on the rows of features_path, as killline features
 * writes them, with their streams from stream.npy beside it: quantised as the appliance does, every stream of
 * the file a stream of the kernel, prepared after its answer. A case is a row: answer, state and every z are
 * compared. */
int csim_features_run(const struct csim_subject *subject, const struct tb_model *oracle,
                      const char *features_path, void (*progress)(uint64_t done, uint64_t total),
                      struct csim_result *result, char error[CSIM_ERROR_CHARS]);

/* Of units and whole together. passed: no mismatch, and nothing that had no case at all. first: "" or the
 * first difference, with the name of what failed. */
int csim_passed(const struct csim_result *result);
uint64_t csim_n_case(const struct csim_result *result);
uint64_t csim_n_mismatch(const struct csim_result *result);
const char *csim_first(const struct csim_result *result);

/* ---- csim_report.c ---- */

/* Input and output over PCIe of one request, modelled apart from the kernel. */
struct csim_io {
    double us;          /* of a whole round trip: used unless register_ns is given */
    int is_default;     /* us is the published one */
    double register_ns; /* of one register written; 0: not given */
};

struct csim_clock {
    double mhz;
    struct csim_io io;
};

/* NULL: out of memory. */
json_t *csim_report_json(const struct csim_subject *subject, const struct csim_clock *clock,
                         const struct csim_result *result);
void csim_report_text(const struct csim_subject *subject, const struct csim_clock *clock,
                      const struct csim_result *result);

/* ---- csim_vectors.c, csim_vectors_check.c: golden vectors as text ---- */

/* Writes dir/model.hex and dir/vectors.txt: n_step random steps of the model, with prepares and resets in
 * between, and what the oracle expects. dir is created if absent. image: model's. 0, or -1. */
int csim_vectors_write(const char *dir, const struct tb_model *model, const struct kl_image_header *image,
                       uint32_t n_step, uint64_t seed, char error[CSIM_ERROR_CHARS]);

/* Runs the vectors of dir on the kernel, in both slots, and compares every output; every operation is a case.
 * with_cycles: the file's table of modelled cycles, too. 0: *report says; 1: the build does not take the
 * model, *report is empty; -1: the files cannot be read, or are malformed. */
int csim_vectors_check(const char *dir, const struct kl_build *build, uint32_t n_unit, int with_cycles,
                       struct tb_report *report, char error[CSIM_ERROR_CHARS]);

/* ---- csim_all.c ---- */

/* Every build and pair: unit checks, random models, the golden vectors in data_dir, and cycles against
 * data_dir/cycles.json. One table on stdout, or with json one object. record: cycles.json is written anew
 * instead of compared. Returns the exit status. */
int csim_all(const char *data_dir, uint64_t seed, int record, int json);

#endif
