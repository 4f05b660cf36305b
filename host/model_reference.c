#include "model_reference.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct layer {
    uint32_t n_in, n_hidden;
    /* Transposed, [n_in or n_hidden][4 * n_hidden]: a column at a time is a loop that compilers vectorise
     * without reordering a sum. */
    double *w_x, *w_h, *bias;
    double *h, *c; /* [stream][n_hidden] */
};

struct model_reference {
    uint32_t n_layer, n_in, n_class, n_stream;
    struct layer layer[KL_N_LAYER_MAX];
    double *head_w, *head_bias; /* [n_class][H] */
};

static double *transposed(const float *w, uint32_t n_row, uint32_t n_column)
{
    double *out = malloc((size_t)n_row * n_column * sizeof(*out));
    for (uint32_t r = 0; out && r < n_row; r++)
        for (uint32_t k = 0; k < n_column; k++)
            out[(size_t)k * n_row + r] = (double)w[(size_t)r * n_column + k];
    return out;
}

static int create_layer(struct layer *layer, const struct model_weights *weights, uint32_t l,
                        uint32_t n_stream)
{
    layer->n_in = l ? weights->n_hidden[l - 1] : weights->n_in;
    layer->n_hidden = weights->n_hidden[l];
    assert(layer->n_in && layer->n_hidden && layer->n_hidden <= KL_N_HIDDEN_MAX);
    uint32_t n_row = KL_N_GATE * layer->n_hidden;
    layer->w_x = transposed(weights->w_x[l], n_row, layer->n_in);
    layer->w_h = transposed(weights->w_h[l], n_row, layer->n_hidden);
    layer->bias = transposed(weights->bias[l], n_row, 1);
    layer->h = calloc((size_t)n_stream * layer->n_hidden, sizeof(double));
    layer->c = calloc((size_t)n_stream * layer->n_hidden, sizeof(double));
    return layer->w_x && layer->w_h && layer->bias && layer->h && layer->c ? 0 : -1;
}

struct model_reference *model_reference_create(const struct model_weights *weights, uint32_t n_stream)
{
    assert(weights->n_layer >= 1 && weights->n_layer <= KL_N_LAYER_MAX && n_stream);
    struct model_reference *reference = calloc(1, sizeof(*reference));
    if (!reference)
        return NULL;
    reference->n_layer = weights->n_layer;
    reference->n_in = weights->n_in;
    reference->n_class = weights->n_class;
    reference->n_stream = n_stream;
    int failed = 0;
    for (uint32_t l = 0; l < weights->n_layer; l++)
        failed |= create_layer(&reference->layer[l], weights, l, n_stream);
    uint32_t n_hidden = weights->n_hidden[weights->n_layer - 1];
    reference->head_w = transposed(weights->head_w, weights->n_class * n_hidden, 1);
    reference->head_bias = transposed(weights->head_bias, weights->n_class, 1);
    if (failed || !reference->head_w || !reference->head_bias) {
        model_reference_free(reference);
        return NULL;
    }
    return reference;
}

void model_reference_free(struct model_reference *reference)
{
    if (!reference)
        return;
    for (uint32_t l = 0; l < reference->n_layer; l++) {
        free(reference->layer[l].w_x);
        free(reference->layer[l].w_h);
        free(reference->layer[l].bias);
        free(reference->layer[l].h);
        free(reference->layer[l].c);
    }
    free(reference->head_w);
    free(reference->head_bias);
    free(reference);
}

void model_reference_reset(struct model_reference *reference, uint32_t stream)
{
    assert(stream < reference->n_stream);
    for (uint32_t l = 0; l < reference->n_layer; l++) {
        struct layer *layer = &reference->layer[l];
        memset(layer->h + (size_t)stream * layer->n_hidden, 0, layer->n_hidden * sizeof(double));
        memset(layer->c + (size_t)stream * layer->n_hidden, 0, layer->n_hidden * sizeof(double));
    }
}

static void add_product(double *z, uint32_t n_row, const double *w, const double *v, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t r = 0; r < n_row; r++)
            z[r] += w[(size_t)k * n_row + r] * v[k];
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

uint32_t model_reference_step(struct model_reference *reference, uint32_t stream, const double *x,
                              double *logits)
{
    double z[KL_N_GATE * KL_N_HIDDEN_MAX];
    assert(stream < reference->n_stream);
    for (uint32_t l = 0; l < reference->n_layer; l++) {
        struct layer *layer = &reference->layer[l];
        uint32_t n_hidden = layer->n_hidden, n_row = KL_N_GATE * n_hidden;
        double *h = layer->h + (size_t)stream * n_hidden, *c = layer->c + (size_t)stream * n_hidden;
        memcpy(z, layer->bias, n_row * sizeof(double));
        add_product(z, n_row, layer->w_x, x, layer->n_in);
        add_product(z, n_row, layer->w_h, h, n_hidden);
        for (uint32_t u = 0; u < n_hidden; u++) { /* gates i, f, g, o */
            double i = sigmoid(z[u]), f = sigmoid(z[n_hidden + u]), g = tanh(z[2 * n_hidden + u]);
            c[u] = f * c[u] + i * g;
            h[u] = sigmoid(z[3 * n_hidden + u]) * tanh(c[u]);
        }
        x = h;
    }
    uint32_t n_hidden = reference->layer[reference->n_layer - 1].n_hidden, best = 0;
    for (uint32_t k = 0; k < reference->n_class; k++) {
        logits[k] = reference->head_bias[k];
        for (uint32_t u = 0; u < n_hidden; u++)
            logits[k] += reference->head_w[(size_t)k * n_hidden + u] * x[u];
        if (logits[k] > logits[best])
            best = k;
    }
    return best;
}
