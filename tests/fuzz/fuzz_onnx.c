/* ONNX files from anywhere. Properties: what is accepted has a shape of this build and all of its arrays (the
 * reference reads every element), and goes through quantisation: an image that passes its own check, or a
 * reason. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/model_onnx.h"
#include "host/model_reference.h"

static void use(const struct model_weights *weights)
{
    struct kl_image_header *image;
    char error[MODEL_ERROR_CHARS];
    double x[KL_N_IN_MAX] = {1, -1, 0.5}, logits[KL_N_CLASS_MAX];
    assert(weights->n_layer >= 1 && weights->n_layer <= KL_N_LAYER_MAX);
    assert(weights->n_in >= 1 && weights->n_in <= KL_N_IN_MAX);
    assert(weights->n_class >= 2 && weights->n_class <= KL_N_CLASS_MAX);
    struct model_reference *reference = model_reference_create(weights, 1);
    assert(reference);
    assert(model_reference_step(reference, 0, x, logits) < weights->n_class);
    model_reference_free(reference);
    error[0] = '\0';
    if (model_quantise(weights, &image, error)) {
        assert(error[0]);
        return;
    }
    assert(!model_image_check(image, image->size_bytes, error));
    free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct model_weights weights;
    char error[MODEL_ERROR_CHARS] = "";
    if (model_onnx_parse("input", data, size_bytes, &weights, error)) {
        assert(!strncmp(error, "input: ", 7) && error[7]);
        return 0;
    }
    use(&weights);
    model_weights_free(&weights);
    return 0;
}
