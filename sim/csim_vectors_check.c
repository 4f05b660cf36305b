/* Reads golden vectors back and runs the kernel on them, through the accelerator interface as the appliance
 * does. The files are text that people edit: everything is checked, with file and line. */
#include "csim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../host/accel.h"

enum { IMAGE_BYTES_MAX = 8 << 20 }; /* the largest image of these limits has 3.2 MB */

struct reader {
    FILE *file;
    char *path, *line, *at; /* at: what is left of line */
    size_t line_size;
    uint32_t number; /* of the line */
    char *error;
};

struct vectors {
    struct reader in;
    const struct kl_build *build;
    uint32_t n_unit;
    int with_cycles;
    struct accel *accel;
    uint8_t *image;
    struct kl_image_header header;
    int prepared[KL_N_STREAM_MAX];
    uint32_t n_operation;
    struct tb_report *report;
};

__attribute__((format(printf, 2, 3))) static int malformed(const struct reader *in, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return csim_refuse(in->error, "%s:%u: %s", in->path, in->number, what);
}

static int reader_open(struct reader *in, const char *dir, const char *name, char *error)
{
    *in = (struct reader){.error = error};
    if (asprintf(&in->path, "%s/%s", dir, name) < 0) {
        in->path = NULL;
        return csim_refuse(error, "out of memory");
    }
    in->file = fopen(in->path, "r");
    return in->file ? 0 : csim_refuse(error, "%s: %s", in->path, strerror(errno));
}

static void reader_close(struct reader *in)
{
    if (in->file)
        fclose(in->file);
    free(in->path);
    free(in->line);
    *in = (struct reader){0};
}

/* The next line that is neither empty nor a comment. 1, or 0: the end. */
static int next_line(struct reader *in)
{
    ssize_t n;
    while ((n = getline(&in->line, &in->line_size, in->file)) > 0) {
        in->number++;
        in->at = in->line;
        if (in->line[n - 1] == '\n')
            in->line[n - 1] = '\0';
        if (in->line[0] != '\0' && in->line[0] != '#')
            return 1;
    }
    in->at = NULL;
    return 0;
}

/* The next word of the line, or "" at its end. */
static const char *next_word(struct reader *in)
{
    while (*in->at == ' ')
        in->at++;
    char *word = in->at;
    while (*in->at != '\0' && *in->at != ' ')
        in->at++;
    if (*in->at == ' ')
        *in->at++ = '\0';
    return word;
}

/* base 10 or 16. */
static int next_number(struct reader *in, int base, int64_t min, int64_t max, int64_t *value)
{
    const char *word = next_word(in);
    char *end;
    errno = 0;
    *value = strtoll(word, &end, base);
    if (end == word || *end != '\0' || errno || *value < min || *value > max)
        return malformed(in, "'%s': a number from %" PRId64 " to %" PRId64 " is wanted", word, min, max);
    return 0;
}

static int line_end(struct reader *in)
{
    const char *word = next_word(in);
    return *word == '\0' ? 0 : malformed(in, "'%s' is one word too many", word);
}

/* The next line, which must begin with this word. */
static int expect_line(struct reader *in, const char *word)
{
    if (!next_line(in))
        return malformed(in, "the file ends where '%s' is wanted", word);
    const char *found = next_word(in);
    return strcmp(found, word) == 0 ? 0 : malformed(in, "'%s' where '%s' is wanted", found, word);
}

/* ---- the model ---- */

static int read_image(struct vectors *v, const char *dir, char *error)
{
    struct reader in;
    size_t at = 0;
    int status = reader_open(&in, dir, "model.hex", error);
    v->image = malloc(IMAGE_BYTES_MAX);
    if (!status && !v->image)
        status = csim_refuse(error, "out of memory");
    while (!status && next_line(&in)) {
        uint64_t word = 0;
        if (strlen(in.line) != 16 || strspn(in.line, "0123456789abcdef") != 16)
            status = malformed(&in, "16 hex digits are wanted");
        else if (at == IMAGE_BYTES_MAX)
            status = malformed(&in, "longer than any model image");
        else if (sscanf(in.line, "%16" SCNx64, &word) == 1)
            memcpy(v->image + at, &word, sizeof word);
        at += sizeof word;
    }
    if (!status && at < sizeof v->header)
        status = malformed(&in, "ends within the image's header");
    if (!status) {
        memcpy(&v->header, v->image, sizeof v->header);
        if (v->header.size_bytes != at)
            status =
                malformed(&in, "the image says that it has %u bytes, here are %zu", v->header.size_bytes, at);
        else if (v->header.image_hash != kl_image_hash(v->image, at))
            status = malformed(&in, "the image's hash is another: write the vectors anew");
        else if (v->build->check_shape(&v->header, v->n_unit) == KL_E_IMAGE)
            status = malformed(&in, "the image's shape is none that a kernel takes: write the vectors anew");
    }
    reader_close(&in);
    return status;
}

/* The head of vectors.txt up to the cycles; it must describe the image. */
static int read_head(struct vectors *v)
{
    struct reader *in = &v->in;
    const struct kl_image_header *header = &v->header;
    int64_t value;
    if (expect_line(in, "killline-vectors") || next_number(in, 10, 1, 1, &value) || line_end(in) ||
        expect_line(in, "shape") || next_number(in, 10, header->n_in, header->n_in, &value) ||
        next_number(in, 10, header->n_layer, header->n_layer, &value))
        return -1;
    for (uint32_t l = 0; l < header->n_layer; l++) {
        if (next_number(in, 10, header->n_hidden[l], header->n_hidden[l], &value))
            return -1;
    }
    if (next_number(in, 10, header->n_class, header->n_class, &value) || line_end(in) ||
        expect_line(in, "model"))
        return -1;
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, header->image_hash);
    const char *word = next_word(in);
    return strcmp(word, hash) == 0
               ? line_end(in)
               : malformed(in, "model '%s', but model.hex holds %s: write the vectors anew", word, hash);
}

/* ---- comparing ---- */

__attribute__((format(printf, 2, 3))) static void differs(struct vectors *v, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    tb_report_mismatch(v->report, "%s:%u: %s", v->in.path, v->in.number, what);
}

/* A line of the table, if it is this build's. */
static int check_cycles(struct vectors *v)
{
    static const char *const what[] = {"step", "unprepared step", "prepare", "reset"};
    struct reader *in = &v->in;
    const int mine = strcmp(next_word(in), v->build->name) == 0 && v->with_cycles;
    const uint32_t now[] = {v->build->step_cycles(&v->header, v->n_unit, 1),
                            v->build->step_cycles(&v->header, v->n_unit, 0),
                            v->build->prepare_cycles(&v->header, v->n_unit), v->build->reset_cycles()};
    int64_t n_unit, cycles;
    if (next_number(in, 10, 1, 2, &n_unit))
        return -1;
    for (int i = 0; i < 4; i++) {
        if (next_number(in, 10, 1, UINT32_MAX, &cycles))
            return -1;
        if (mine && n_unit == v->n_unit && cycles != now[i])
            differs(v, "%s cycles %" PRId64 " -> %u", what[i], cycles, now[i]);
    }
    return line_end(in);
}

static int exec(struct vectors *v, const struct kl_request *request, struct kl_result *result)
{
    int ready;
    if (v->accel->ops->submit(v->accel, request))
        return malformed(&v->in, "the kernel takes no request");
    while ((ready = v->accel->ops->poll(v->accel, result)) == 0)
        ;
    if (ready < 0 || result->status != KL_OK || result->seq_no != request->seq_no)
        differs(v, "slot %u: status %u, seq_no %u for %u", request->slot, result->status, result->seq_no,
                request->seq_no);
    if (result->check != kl_result_check(result))
        differs(v, "slot %u: the answer's check is wrong", request->slot);
    return 0;
}

/* One line of values, the same in both slots. layer: of h and c; NO_LAYER: of an answer. */
enum { NO_LAYER = KL_N_LAYER_MAX };

static int compare_line(struct vectors *v, const char *word, uint32_t layer, uint32_t n,
                        const int64_t of_slot[KL_N_SLOT][KL_N_HIDDEN_MAX])
{
    char at[40] = "";
    if (expect_line(&v->in, word))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        int64_t expected;
        if (next_number(&v->in, 10, INT64_MIN, INT64_MAX, &expected))
            return -1;
        if (layer != NO_LAYER)
            snprintf(at, sizeof at, " of layer %u, unit %u", layer, i);
        else if (n > 1)
            snprintf(at, sizeof at, " of class %u", i);
        for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
            if (of_slot[slot][i] != expected)
                differs(v, "%s%s, slot %u: %" PRId64 ", expected %" PRId64, word, at, slot, of_slot[slot][i],
                        expected);
        }
    }
    return line_end(&v->in);
}

static int compare_states(struct vectors *v, const struct kl_state state[KL_N_SLOT])
{
    static int64_t value[KL_N_SLOT][KL_N_HIDDEN_MAX];
    for (int is_c = 0; is_c < 2; is_c++) {
        for (uint32_t l = 0; l < v->header.n_layer; l++) {
            for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
                for (uint32_t u = 0; u < v->header.n_hidden[l]; u++)
                    value[slot][u] = is_c ? state[slot].c[l][u] : state[slot].h[l][u];
            }
            if (compare_line(v, is_c ? "c" : "h", l, v->header.n_hidden[l],
                             (const int64_t(*)[KL_N_HIDDEN_MAX])value))
                return -1;
        }
    }
    return 0;
}

static int read_x(struct vectors *v, struct kl_request *request)
{
    if (expect_line(&v->in, "x"))
        return -1;
    for (uint32_t k = 0; k < v->header.n_in; k++) {
        int64_t bits;
        if (next_number(&v->in, 16, 0, UINT16_MAX, &bits))
            return -1;
        request->x[k] = (uint16_t)bits;
    }
    return line_end(&v->in);
}

static int run_step(struct vectors *v, struct kl_request *request, uint32_t cycles_expected)
{
    static struct kl_state state[KL_N_SLOT];
    struct kl_result result[KL_N_SLOT];
    int64_t logit[KL_N_SLOT][KL_N_HIDDEN_MAX], cls[KL_N_SLOT][KL_N_HIDDEN_MAX];
    if (read_x(v, request))
        return -1;
    for (uint16_t slot = 0; slot < KL_N_SLOT; slot++) {
        request->slot = slot;
        if (exec(v, request, &result[slot]))
            return -1;
        if (result[slot].kernel_cycles != cycles_expected)
            differs(v, "slot %u: %u cycles, its own table says %u", slot, result[slot].kernel_cycles,
                    cycles_expected);
        if (v->accel->ops->save(v->accel, slot, request->stream, &state[slot]) != KL_OK) {
            differs(v, "slot %u: the stream's state cannot be saved", slot);
            memset(&state[slot], 0, sizeof state[slot]);
        }
        cls[slot][0] = result[slot].cls;
        for (uint32_t k = 0; k < v->header.n_class; k++)
            logit[slot][k] = result[slot].logits[k];
    }
    return compare_line(v, "class", NO_LAYER, 1, (const int64_t(*)[KL_N_HIDDEN_MAX])cls) ||
                   compare_line(v, "logits", NO_LAYER, v->header.n_class,
                                (const int64_t(*)[KL_N_HIDDEN_MAX])logit) ||
                   compare_states(v, state)
               ? -1
               : 0;
}

static int run_operation(struct vectors *v)
{
    static const char *const name[] = {
        [KL_OP_STEP] = "step", [KL_OP_PREPARE] = "prepare", [KL_OP_RESET] = "reset"};
    struct reader *in = &v->in;
    const char *word = next_word(in);
    uint16_t op = KL_OP_STEP;
    while (op <= KL_OP_RESET && strcmp(word, name[op]) != 0)
        op++;
    if (op > KL_OP_RESET)
        return malformed(in, "'%s': step, prepare or reset is wanted", word);
    int64_t stream;
    if (next_number(in, 10, 0, KL_N_STREAM_MAX - 1, &stream) || line_end(in))
        return -1;
    static struct kl_request request;
    memset(&request, 0, sizeof request);
    request.abi_version = KL_ABI_VERSION;
    request.op = op;
    request.stream = (uint32_t)stream;
    request.seq_no = v->n_operation++;
    v->report->n_case++;
    int status = 0;
    if (op == KL_OP_STEP) {
        status = run_step(v, &request, v->build->step_cycles(&v->header, v->n_unit, v->prepared[stream]));
    } else {
        for (request.slot = 0; request.slot < KL_N_SLOT && !status; request.slot++) {
            struct kl_result result;
            status = exec(v, &request, &result);
        }
    }
    v->prepared[stream] = op == KL_OP_PREPARE;
    return status;
}

static int open_kernel(struct vectors *v, char *error)
{
    v->accel = accel_csim_open(v->build, v->n_unit);
    if (!v->accel)
        return csim_refuse(error, "out of memory");
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        const uint32_t status = accel_load(v->accel, slot, v->image, v->header.size_bytes);
        if (status != KL_OK)
            return malformed(&v->in, "build %s refuses model.hex: status %u", v->build->name, status);
    }
    return 0;
}

/* A file that was cut between two operations would pass without it. */
static int check_end(struct vectors *v)
{
    struct reader *in = &v->in;
    char *rest;
    const char *word = next_word(in);
    const unsigned long n = strtoul(word, &rest, 10);
    if (!*word || *rest || n != v->n_operation || n == 0)
        return malformed(in, "'end %s' after %u operations", word, v->n_operation);
    return next_line(in) ? malformed(in, "more behind 'end'") : 0;
}

static int run_file(struct vectors *v)
{
    struct reader *in = &v->in;
    while (next_line(in)) {
        const char *word = next_word(in);
        const int is_cycles = strcmp(word, "cycles") == 0;
        if (strcmp(word, "end") == 0)
            return check_end(v);
        if (!is_cycles && strcmp(word, "op") != 0)
            return malformed(in, "'%s' where 'cycles' or 'op' is wanted", word);
        if (is_cycles ? check_cycles(v) : run_operation(v))
            return -1;
    }
    return malformed(in, "no 'end' line: the file was cut short");
}

int csim_vectors_check(const char *dir, const struct kl_build *build, uint32_t n_unit, int with_cycles,
                       struct tb_report *report, char error[CSIM_ERROR_CHARS])
{
    struct vectors v = {.build = build, .n_unit = n_unit, .with_cycles = with_cycles, .report = report};
    memset(report, 0, sizeof *report);
    int status = read_image(&v, dir, error);
    if (!status && build->check_shape(&v.header, n_unit) == KL_E_SHAPE)
        status = 1;
    if (!status)
        status = reader_open(&v.in, dir, "vectors.txt", error) || read_head(&v) || open_kernel(&v, error) ||
                         run_file(&v)
                     ? -1
                     : 0;
    if (v.accel)
        v.accel->ops->close(v.accel);
    reader_close(&v.in);
    free(v.image);
    return status;
}
