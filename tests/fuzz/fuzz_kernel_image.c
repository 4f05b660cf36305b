/* Model images, as they come and as edits of a valid one, into every build's unit and pair. The loader's
 * verdict is that of a second reading of kl_abi.h, written in real numbers below. An image that is taken runs
 * at extreme inputs without overflow (UBSan), stays within the contract's bounds, and answers the same
 * prepared or not, on this build and on the largest; one that is refused leaves its slot empty. The other
 * slot never notices. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernel_rig.h"
#include "tests/model_image.h"

enum { N_STEP = 3, N_X_BYTE = 32, SIZE_MAX_BYTES = 1 << 16, STREAM = 5 };

static void check(int holds)
{
    if (!holds)
        abort();
}

/* ---- the second reading ---- */

struct limits {
    const struct kl_build *build;
    uint32_t n_part, n_layer, n_in, n_hidden;
};

static const struct limits LIMITS[] = {
    {&kl_build_small, 1, 3, 128, 128}, {&kl_build_small, 2, 3, 128, 256}, {&kl_build_fast, 1, 2, 128, 128},
    {&kl_build_fast, 2, 2, 128, 256},  {&kl_build_large, 1, 3, 256, 256}, {&kl_build_large, 2, 3, 256, 256},
};

enum { N_LIMITS = sizeof LIMITS / sizeof LIMITS[0], LARGE = 4 };

/* binary16 as a real number; infinite where it is not finite. */
static double real_of(uint16_t bits)
{
    const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
    const double magnitude = exponent == 0x1f  ? (double)INFINITY
                             : exponent == 0x0 ? ldexp(fraction, -24)
                                               : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* Whether a weight is a whole number of steps of the grid, and how many. */
static int on_grid(uint16_t bits, int frac, double *steps)
{
    *steps = ldexp(real_of(bits), frac);
    return fabs(*steps) <= 32767 && floor(*steps) == *steps;
}

struct reader {
    const uint8_t *at;
};

static uint64_t read_le(struct reader *reader, int size_bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < size_bytes; i++)
        value |= (uint64_t)*reader->at++ << (8 * i);
    return value;
}

static int zeros_up_to_8(struct reader *reader, const uint8_t *start)
{
    int good = 1;
    while ((reader->at - start) % 8 != 0)
        good &= *reader->at++ == 0;
    return good;
}

/* One matrix of a layer: adds its blocks to the rows' bounds. */
static int matrix_good(struct reader *reader, const uint8_t *start, const uint8_t *frac, uint32_t n_row,
                       uint32_t n_col, int operand_frac, double operand_max, double *row_bound)
{
    int good = 1;
    for (uint32_t r = 0; r < n_row; r++) {
        const int shift = frac[r] + operand_frac - KL_Z_FRAC;
        const int grid_good = frac[r] <= KL_W_FRAC_MAX && shift >= 0;
        double block = 0;
        good &= grid_good;
        for (uint32_t k = 0; k < n_col; k++) {
            double steps;
            if (!on_grid((uint16_t)read_le(reader, 2), frac[r], &steps) || !grid_good) {
                good = 0;
                continue;
            }
            block += fabs(steps) * operand_max;
            if (k % KL_BLOCK == KL_BLOCK - 1 || k == n_col - 1) {
                const double bound = block + (shift ? ldexp(1, shift - 1) : 0);
                good &= bound <= INT32_MAX;
                row_bound[r] += floor(ldexp(bound, -shift));
                block = 0;
            }
        }
    }
    return good & zeros_up_to_8(reader, start);
}

static int body_good(const uint8_t *image, const struct kl_image_header *header)
{
    struct reader reader = {.at = image + sizeof *header};
    int good = 1;
    uint32_t n_operand = header->n_in;
    for (uint32_t l = 0; l < header->n_layer; l++) {
        const uint32_t n_row = 4u * header->n_hidden[l];
        double row_bound[4 * KL_N_HIDDEN_MAX];
        const uint8_t *x_frac = reader.at;
        reader.at += n_row;
        good &= zeros_up_to_8(&reader, image);
        const uint8_t *h_frac = reader.at;
        reader.at += n_row;
        good &= zeros_up_to_8(&reader, image);
        for (uint32_t r = 0; r < n_row; r++)
            row_bound[r] = fabs((double)(int32_t)read_le(&reader, 4));
        good &= zeros_up_to_8(&reader, image);
        good &= matrix_good(&reader, image, x_frac, n_row, n_operand, l ? KL_H_FRAC : KL_X_FRAC,
                            l ? KL_H_ABS_MAX : KL_X_ABS_MAX, row_bound);
        good &= matrix_good(&reader, image, h_frac, n_row, header->n_hidden[l], KL_H_FRAC, KL_H_ABS_MAX,
                            row_bound);
        for (uint32_t r = 0; r < n_row; r++)
            good &= row_bound[r] <= INT32_MAX;
        n_operand = header->n_hidden[l];
    }
    for (uint32_t k = 0; k < header->n_class; k++) {
        const int64_t bias = (int64_t)read_le(&reader, 8), bound = (int64_t)1 << KL_HEAD_BIAS_BITS;
        good &= bias >= -bound && bias <= bound;
    }
    for (uint32_t k = 0; k < header->n_class * n_operand; k++) {
        double steps;
        good &= on_grid((uint16_t)read_le(&reader, 2), header->head_frac, &steps);
    }
    return good & zeros_up_to_8(&reader, image);
}

static uint32_t verdict(const uint8_t *image, size_t size_bytes, const struct limits *limits)
{
    struct kl_image_header header;
    if (size_bytes < sizeof header)
        return KL_E_IMAGE;
    memcpy(&header, image, sizeof header);
    if (header.magic != KL_IMAGE_MAGIC)
        return KL_E_IMAGE;
    if (header.abi_version != KL_ABI_VERSION)
        return KL_E_ABI;
    int good = header.pad0[0] == 0 && header.pad0[1] == 0 && header.pad0[2] == 0 && header.pad1 == 0;
    for (size_t i = 0; i < sizeof header.pad2; i++)
        good &= header.pad2[i] == 0;
    good &= header.n_layer >= 1 && header.n_layer <= KL_N_LAYER_MAX && header.n_in >= 1 &&
            header.n_in <= KL_N_IN_MAX && header.n_class >= 1 && header.n_class <= KL_N_CLASS_MAX &&
            header.head_frac <= KL_W_FRAC_MAX && header.size_bytes == size_bytes;
    for (uint32_t l = 0; l < 4; l++)
        good &= l < header.n_layer ? header.n_hidden[l] >= 1 && header.n_hidden[l] <= KL_N_HIDDEN_MAX
                                   : header.n_hidden[l] == 0;
    if (!good || model_image_size(&header) != size_bytes)
        return KL_E_IMAGE;
    int fits = header.n_layer <= limits->n_layer && header.n_in <= limits->n_in;
    for (uint32_t l = 0; l < header.n_layer; l++)
        fits &= header.n_hidden[l] <= limits->n_hidden;
    if (!fits)
        return KL_E_SHAPE;
    if (header.image_hash != kl_image_hash(image, size_bytes))
        return KL_E_IMAGE_HASH;
    return body_good(image, &header) ? KL_OK : KL_E_IMAGE;
}

/* ---- units ---- */

static struct kl_unit *units[N_LIMITS][2];
static struct kl_image_header *other; /* in slot 0 of all of them */
static struct kl_result other_answer;

static struct kl_result exec(int device, const struct kl_request *request)
{
    const struct limits *limits = &LIMITS[device];
    struct kl_result result;
    if (limits->n_part == 1)
        limits->build->exec(units[device][0], request, &result);
    else
        limits->build->exec_pair(units[device], request, 0, &result);
    return result;
}

static struct kl_result exec_op(int device, uint32_t op, uint32_t slot, uint32_t stream)
{
    const struct kl_request request = kernel_rig_request(op, slot, stream);
    return exec(device, &request);
}

static struct kl_result step_of_other(int device)
{
    const struct kl_request request = kernel_rig_step(0, 0, 1);
    exec_op(device, KL_OP_RESET, 0, 0);
    exec(device, &request);
    return exec(device, &request);
}

static void set_up(void)
{
    const struct model_image_shape shape = {.n_in = 3, .n_layer = 2, .n_class = 2, .n_hidden = {9, 4}};
    other = model_image_new(&shape, 1);
    check(other != NULL);
    for (int i = 0; i < N_LIMITS; i++) {
        for (uint32_t part = 0; part < LIMITS[i].n_part; part++) {
            units[i][part] = kernel_rig_unit(LIMITS[i].build, part, LIMITS[i].n_part);
            check(units[i][part] != NULL);
            check(kernel_rig_load(LIMITS[i].build, units[i][part], 0, other) == KL_OK);
        }
    }
    other_answer = step_of_other(LARGE);
    check(other_answer.status == KL_OK);
}

static uint32_t load(int device, const uint8_t *image, size_t size_bytes)
{
    uint32_t status = KL_OK;
    for (uint32_t part = 0; part < LIMITS[device].n_part; part++) {
        const uint32_t of_part =
            kernel_rig_load_bytes(LIMITS[device].build, units[device][part], 1, image, size_bytes);
        check(part == 0 || of_part == status);
        status = of_part;
    }
    return status;
}

/* ---- a taken image ---- */

/* The k-th operand of step n: the fuzzer's byte as one of the grid's extreme or small values. */
static uint16_t operand(const uint8_t *data, uint32_t n, uint32_t k)
{
    static const uint16_t value[] = {0x4bff, 0xcbff, 0x0000, 0x3c00, 0xbc00, 0x1000, 0x9000, 0x8000};
    return value[(data[k % N_X_BYTE] >> n) & 7];
}

static void check_state(int device, const struct kl_image_header *header, struct kl_state *state)
{
    const struct kl_build *build = LIMITS[device].build;
    check((LIMITS[device].n_part == 1 ? build->save(units[device][0], 1, STREAM, state)
                                      : build->save_pair(units[device], 1, STREAM, state)) == KL_OK);
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u++) {
            const int there = l < header->n_layer && u < header->n_hidden[l];
            check(abs(state->h[l][u]) <= (there ? KL_H_ABS_MAX : 0));
            check(abs(state->c[l][u]) <= (there ? KL_C_ABS_MAX : 0));
        }
    }
    check((LIMITS[device].n_part == 1 ? build->restore(units[device][0], 1, STREAM, state)
                                      : build->restore_pair(units[device], 1, STREAM, state)) == KL_OK);
}

static void check_runs(int device, const struct kl_image_header *header, const uint8_t *x)
{
    for (uint32_t n = 0; n < N_STEP; n++) {
        struct kl_request request = kernel_rig_request(KL_OP_STEP, 1, STREAM);
        for (uint32_t k = 0; k < KL_N_IN_MAX; k++)
            request.x[k] = operand(x, n, k);
        const struct kl_result plain = exec(device, &request);
        request.stream++;
        check(exec_op(device, KL_OP_PREPARE, 1, request.stream).status == KL_OK);
        const struct kl_result prepared = exec(device, &request);
        check(plain.status == KL_OK && kernel_rig_same(plain, prepared));
        check(plain.kernel_cycles > prepared.kernel_cycles);
        check(plain.n_class == header->n_class && plain.cls < plain.n_class);
        for (uint32_t k = 0; k < plain.n_class; k++)
            check(k < plain.cls ? plain.logits[k] < plain.logits[plain.cls]
                                : plain.logits[k] <= plain.logits[plain.cls]);
        struct kl_state state, of_large;
        check_state(device, header, &state);
        if (device != LARGE) {
            request.stream = STREAM;
            check(kernel_rig_same(plain, exec(LARGE, &request)));
            check_state(LARGE, header, &of_large);
            check(memcmp(&state, &of_large, sizeof state) == 0);
        }
    }
}

/* ---- input ---- */

/* data: a shape, a seed, then edits of the image: offset and byte. */
static uint8_t *edited_image(const uint8_t *data, size_t size, size_t *image_size)
{
    enum { N_SHAPE_BYTE = 8, N_EDIT_BYTE = 3 };
    if (size < N_SHAPE_BYTE)
        return NULL;
    struct model_image_shape shape = {.n_layer = (uint16_t)(1 + data[0] % KL_N_LAYER_MAX),
                                      .n_class = (uint16_t)(1 + data[1] % KL_N_CLASS_MAX),
                                      .n_in = (uint16_t)(1 + (data[2] | data[3] << 8) % KL_N_IN_MAX)};
    for (uint32_t l = 0; l < shape.n_layer; l++)
        shape.n_hidden[l] = (uint16_t)(1 + data[4 + l]);
    struct kl_image_header header = {.n_layer = shape.n_layer, .n_in = shape.n_in, .n_class = shape.n_class};
    memcpy(header.n_hidden, shape.n_hidden, sizeof shape.n_hidden);
    if (model_image_size(&header) > SIZE_MAX_BYTES)
        return NULL;
    struct kl_image_header *image = model_image_new(&shape, data[7]);
    check(image != NULL);
    *image_size = image->size_bytes;
    for (size_t at = N_SHAPE_BYTE; at + N_EDIT_BYTE <= size; at += N_EDIT_BYTE)
        ((uint8_t *)image)[(data[at] | (size_t)data[at + 1] << 8) % *image_size] = data[at + 2];
    return (uint8_t *)image;
}

/* data: flags, N_X_BYTE bytes of x, then the image or how to make it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { IS_EDIT = 0x10, IS_SEALED = 0x20 };
    if (!other)
        set_up();
    if (size < 1 + N_X_BYTE)
        return 0;
    const int flags = data[0], device = (flags & 0xf) % N_LIMITS;
    const uint8_t *x = data + 1, *body = x + N_X_BYTE;
    size_t image_size = size - 1 - N_X_BYTE;
    uint8_t *image;
    if (flags & IS_EDIT) {
        image = edited_image(body, image_size, &image_size);
        if (!image)
            return 0;
    } else {
        image = malloc(image_size ? image_size : 1); /* of just its size, for ASan */
        check(image != NULL);
        memcpy(image, body, image_size);
    }
    if (flags & IS_SEALED && image_size >= sizeof(struct kl_image_header)) {
        const uint64_t hash = kl_image_hash(image, image_size);
        memcpy(image + KL_IMAGE_HASH_AT, &hash, sizeof hash);
    }
    const uint32_t status = load(device, image, image_size);
    check(status == verdict(image, image_size, &LIMITS[device]));
    if (status == KL_OK) {
        struct kl_image_header header;
        memcpy(&header, image, sizeof header);
        check(device == LARGE || load(LARGE, image, image_size) == KL_OK);
        check_runs(device, &header, x);
    } else {
        for (uint32_t op = KL_OP_STEP; op <= KL_OP_RESET; op++)
            check(exec_op(device, op, 1, STREAM).status == KL_E_EMPTY);
    }
    check(kernel_rig_same(step_of_other(device), other_answer));
    free(image);
    return 0;
}
