/* The ONNX import against PyTorch: tests/data/onnx, made by tests/data/make_onnx_goldens.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "host/model_onnx.h"
#include "host/model_reference.h"

#define TOLERANCE 1e-5

static json_t *goldens;

static int load_goldens(void **state)
{
    json_error_t error;
    (void)state;
    goldens = json_load_file(KL_ONNX_GOLDENS "/goldens.json", 0, &error);
    if (!goldens)
        print_error("%s: %s\n", KL_ONNX_GOLDENS "/goldens.json", error.text);
    return goldens ? 0 : -1;
}

static int free_goldens(void **state)
{
    (void)state;
    json_decref(goldens);
    return 0;
}

static int load(const json_t *golden, struct model_weights *weights, char *error)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", KL_ONNX_GOLDENS,
             json_string_value(json_object_get(golden, "file")));
    return model_onnx_load(path, weights, error);
}

static void check_accepted(const json_t *golden)
{
    const char *file = json_string_value(json_object_get(golden, "file"));
    const json_t *hidden = json_object_get(golden, "hidden"), *x = json_object_get(golden, "x");
    const json_t *logits = json_object_get(golden, "logits");
    struct model_weights weights;
    char error[MODEL_ERROR_CHARS] = "";
    if (load(golden, &weights, error))
        fail_msg("%s", error);
    assert_int_equal(weights.n_layer, json_array_size(hidden));
    assert_int_equal(weights.n_in, json_array_size(json_array_get(x, 0)));
    assert_int_equal(weights.n_class, json_array_size(json_array_get(logits, 0)));
    for (uint32_t l = 0; l < weights.n_layer; l++)
        assert_int_equal(weights.n_hidden[l], json_integer_value(json_array_get(hidden, l)));
    /* Stream 1 of 2, so that a state at the wrong place shows. */
    struct model_reference *reference = model_reference_create(&weights, 2);
    assert_non_null(reference);
    for (int run = 0; run < 2; run++) {
        for (size_t t = 0; t < json_array_size(x); t++) {
            double in[KL_N_IN_MAX], out[KL_N_CLASS_MAX];
            uint32_t best = 0;
            for (uint32_t i = 0; i < weights.n_in; i++)
                in[i] = json_number_value(json_array_get(json_array_get(x, t), i));
            uint32_t cls = model_reference_step(reference, 1, in, out);
            for (uint32_t c = 0; c < weights.n_class; c++) {
                double expected = json_number_value(json_array_get(json_array_get(logits, t), c));
                if (!(fabs(out[c] - expected) <= TOLERANCE))
                    fail_msg("%s, step %zu, class %u: %.8f, PyTorch %.8f", file, t, c, out[c], expected);
                if (out[c] > out[best])
                    best = c;
            }
            assert_int_equal(cls, best);
        }
        model_reference_reset(reference, 1); /* the second run must repeat the first */
    }
    model_reference_free(reference);
    model_weights_free(&weights);
}

static void supported_networks_compute_what_pytorch_does(void **state)
{
    size_t i;
    const json_t *golden;
    (void)state;
    json_array_foreach(json_object_get(goldens, "accepted"), i, golden)
    {
        check_accepted(golden);
    }
    assert_true(i >= 20);
}

static void others_are_refused_by_name(void **state)
{
    size_t i, k;
    const json_t *golden, *word;
    (void)state;
    json_array_foreach(json_object_get(goldens, "refused"), i, golden)
    {
        struct model_weights weights;
        char error[MODEL_ERROR_CHARS] = "";
        const char *file = json_string_value(json_object_get(golden, "file"));
        if (!load(golden, &weights, error))
            fail_msg("%s: accepted", file);
        assert_non_null(strstr(error, file));
        json_array_foreach(json_object_get(golden, "contains"), k, word)
        {
            if (!strstr(error, json_string_value(word)))
                fail_msg("'%s' does not say '%s'", error, json_string_value(word));
        }
    }
    assert_true(i >= 35);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(supported_networks_compute_what_pytorch_does),
        cmocka_unit_test(others_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, load_goldens, free_goldens);
}
