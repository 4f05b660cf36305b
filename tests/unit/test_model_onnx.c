/* ONNX import: what a file can do to the reader. What it can say is tested with files made by PyTorch
 * (tests/integration/test_model_onnx_goldens.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/model_onnx.h"

static void expect_refused(const uint8_t *data, size_t size_bytes, const char *why)
{
    struct model_weights weights;
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(model_onnx_parse("name.onnx", data, size_bytes, &weights, error), -1);
    if (strncmp(error, "name.onnx: ", 11) || !strstr(error, why))
        fail_msg("'%s' does not say '%s'", error, why);
}

static void bytes_that_are_no_onnx(void **state)
{
    (void)state;
    const uint8_t text[] = "<html>not found</html>";
    const uint8_t endless_varint[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const uint8_t length_beyond_end[] = {0x3a, 0x05, 0x00};
    const uint8_t length_of_2_64[] = {0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    const uint8_t group[] = {0x0b, 0x0c};
    const uint8_t cut_fixed64[] = {0x09, 1, 2, 3};
    const uint8_t only_a_version[] = {0x08, 0x07};
    expect_refused(NULL, 0, "not an ONNX file");
    expect_refused(text, sizeof(text) - 1, "not an ONNX file");
    expect_refused(endless_varint, sizeof(endless_varint), "not an ONNX file");
    expect_refused(length_beyond_end, sizeof(length_beyond_end), "not an ONNX file");
    expect_refused(length_of_2_64, sizeof(length_of_2_64), "not an ONNX file");
    expect_refused(group, sizeof(group), "not an ONNX file");
    expect_refused(cut_fixed64, sizeof(cut_fixed64), "not an ONNX file");
    expect_refused(only_a_version, sizeof(only_a_version), "no graph");
}

static size_t put_varint(uint8_t *out, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        out[n++] = (uint8_t)(v | 0x80);
    out[n++] = (uint8_t)v;
    return n;
}

/* graph { node { attribute { g { node { attribute { g ... : protobuf-c would recurse once per message. */
static void deep_nesting_is_refused_before_decoding(void **state)
{
    (void)state;
    enum { DEPTH = 300000, BYTES = DEPTH * 6 };
    static const uint8_t tags[3] = {0x32, 0x0a,
                                    0x2a}; /* AttributeProto.g, GraphProto.node, NodeProto.attribute */
    uint8_t *data = malloc(BYTES), head[12];
    assert_non_null(data);
    size_t at = BYTES; /* from the inside out */
    for (int depth = 0; depth < DEPTH; depth++) {
        size_t n = 0;
        head[n++] = tags[(DEPTH - depth) % 3];
        n += put_varint(head + n, BYTES - at);
        at -= n;
        memcpy(data + at, head, n);
    }
    size_t n = 0;
    head[n++] = 0x3a; /* ModelProto.graph */
    n += put_varint(head + n, BYTES - at);
    at -= n;
    memcpy(data + at, head, n);
    expect_refused(data + at, BYTES - at, "nested deeper");
    free(data);
}

/* Two bytes ask for a message of more than a hundred: what the file may cost is bounded. */
static void memory_is_bounded(void **state)
{
    (void)state;
    enum { N_NODE = 4 << 20 };
    uint8_t *data = malloc(2 * (size_t)N_NODE + 16);
    assert_non_null(data);
    size_t at = 0;
    data[at++] = 0x3a;
    at += put_varint(data + at, 2 * (uint64_t)N_NODE);
    for (int i = 0; i < N_NODE; i++) {
        data[at++] = 0x0a; /* GraphProto.node, empty */
        data[at++] = 0x00;
    }
    expect_refused(data, at, "256 MiB");
    free(data);
}

static void too_large_is_refused_unread(void **state)
{
    (void)state;
    expect_refused((const uint8_t *)"", MODEL_ONNX_FILE_BYTES_MAX + (size_t)1, "at most");
}

static void files_that_cannot_be_read(void **state)
{
    struct model_weights weights;
    char error[MODEL_ERROR_CHARS];
    (void)state;
    assert_int_equal(model_onnx_load("/nonexistent/x.onnx", &weights, error), -1);
    assert_non_null(strstr(error, "/nonexistent/x.onnx"));
    assert_int_equal(model_onnx_load("/tmp", &weights, error), -1);
    assert_non_null(strstr(error, "regular file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_no_onnx),
        cmocka_unit_test(deep_nesting_is_refused_before_decoding),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(too_large_is_refused_unread),
        cmocka_unit_test(files_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
