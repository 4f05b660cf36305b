#include "bench_lstm_onnx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ONNX Runtime's C API is a table of functions that only ever grows: the places of those used here, in the
 * table of version 5 (release 1.5) and every later one. Source: OrtApi in onnxruntime_c_api.h, counted from
 * 0; the library itself asserts the last place of each version (101, 118, 124, 126, 149). */
enum {
    API_VERSION = 5,
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION_FROM_ARRAY = 8,
    CREATE_SESSION_OPTIONS = 10,
    SET_GRAPH_OPTIMIZATION = 23,
    SET_INTRA_OP_THREADS = 24,
    SET_INTER_OP_THREADS = 25,
    CREATE_TENSOR_WITH_DATA = 49,
    CREATE_CPU_MEMORY_INFO = 69,
    RELEASE_ENV = 92,
    RELEASE_STATUS = 93,
    RELEASE_MEMORY_INFO = 94,
    RELEASE_SESSION = 95,
    RELEASE_VALUE = 96,
    RELEASE_SESSION_OPTIONS = 100,
    RUN_WITH_BINDING = 133,
    CREATE_IO_BINDING = 134,
    RELEASE_IO_BINDING = 135,
    BIND_INPUT = 136,
    BIND_OUTPUT = 137,
    LOG_ERROR = 3,        /* OrtLoggingLevel */
    OPTIMIZE_ALL = 99,    /* GraphOptimizationLevel */
    ALLOCATOR_DEVICE = 0, /* OrtAllocatorType */
    MEMORY_DEFAULT = 0,   /* OrtMemType */
    TYPE_FLOAT = 1,       /* ONNXTensorElementDataType */
    N_STATE_MAX = 2 * KL_N_LAYER_MAX,
    NAME_CHARS = 32,
};

struct ort_api_base {
    const void *const *(*get_api)(uint32_t version);
    const char *(*version)(void);
};

/* Whatever the library makes is opaque here; a status of NULL is success. */
typedef void *ort_status;

struct onnx {
    struct bench_lstm_peer base;
    void *library;
    const void *const *api;
    ort_status (*run)(void *session, const void *run_options, const void *binding);
    void *env, *options, *session, *memory, *binding[2];
    void *x_value, *logits_value, *state_value[2][N_STATE_MAX];
    uint32_t n_in, n_class, n_state, turn;
    float x[KL_N_IN_MAX], logits[KL_N_CLASS_MAX], state[2][N_STATE_MAX][KL_N_HIDDEN_MAX];
    char *error;
};

/* The function in a place of the table, as the type of the variable that it is for. */
#define API(onnx, place, type) ((type)(uintptr_t)(onnx)->api[place])

typedef void (*release_fn)(void *object);

static int refuse(struct onnx *onnx, const char *what, ort_status status)
{
    const char *(*message)(const void *) = API(onnx, GET_ERROR_MESSAGE, const char *(*)(const void *));
    if (!status)
        return 0;
    model_refuse(onnx->error, "ONNX Runtime: %s: %s", what, message(status));
    API(onnx, RELEASE_STATUS, release_fn)(status);
    return -1;
}

static void release(struct onnx *onnx, int place, void *object)
{
    if (object)
        API(onnx, place, release_fn)(object);
}

static uint32_t onnx_step(struct bench_lstm_peer *peer, const float *x, float *logits)
{
    struct onnx *onnx = (struct onnx *)(void *)peer;
    memcpy(onnx->x, x, onnx->n_in * sizeof(*x));
    ort_status status = onnx->run(onnx->session, NULL, onnx->binding[onnx->turn]);
    onnx->turn ^= 1;
    if (status) { /* nobody can go on; the check before the measurement sees the NaN */
        API(onnx, RELEASE_STATUS, release_fn)(status);
        memset(onnx->logits, 0xff, sizeof(onnx->logits));
    }
    uint32_t best = 0;
    for (uint32_t k = 0; k < onnx->n_class; k++) {
        logits[k] = onnx->logits[k];
        if (logits[k] > logits[best])
            best = k;
    }
    return best;
}

static void onnx_free(struct bench_lstm_peer *peer)
{
    struct onnx *onnx = (struct onnx *)(void *)peer;
    if (onnx->api) {
        for (int turn = 0; turn < 2; turn++) {
            release(onnx, RELEASE_IO_BINDING, onnx->binding[turn]);
            for (uint32_t i = 0; i < N_STATE_MAX; i++)
                release(onnx, RELEASE_VALUE, onnx->state_value[turn][i]);
        }
        release(onnx, RELEASE_VALUE, onnx->x_value);
        release(onnx, RELEASE_VALUE, onnx->logits_value);
        release(onnx, RELEASE_SESSION, onnx->session);
        release(onnx, RELEASE_SESSION_OPTIONS, onnx->options);
        release(onnx, RELEASE_MEMORY_INFO, onnx->memory);
        release(onnx, RELEASE_ENV, onnx->env);
    }
    if (onnx->library)
        dlclose(onnx->library);
    free(onnx);
}

/* RTLD_NODELETE: the library does not survive being unloaded and loaded again. */
static int load_library(struct onnx *onnx, const char *path)
{
    onnx->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!onnx->library)
        return model_refuse(onnx->error, "%s; --onnxruntime takes the path of a libonnxruntime.so",
                            dlerror());
    const struct ort_api_base *(*base)(void);
    *(void **)&base = dlsym(onnx->library, "OrtGetApiBase");
    if (!base)
        return model_refuse(onnx->error, "%s: it has no OrtGetApiBase, so it is not ONNX Runtime", path);
    onnx->api = base()->get_api(API_VERSION);
    if (!onnx->api)
        return model_refuse(onnx->error, "%s: version %s, from 1.5 on they have what is needed", path,
                            base()->version());
    onnx->run = API(onnx, RUN_WITH_BINDING, ort_status(*)(void *, const void *, const void *));
    return 0;
}

static int open_session(struct onnx *onnx, const void *model, size_t size_bytes)
{
    typedef ort_status (*set_fn)(void *options, int value);
    return refuse(onnx, "environment",
                  API(onnx, CREATE_ENV, ort_status(*)(int, const char *, void **))(LOG_ERROR, "killline",
                                                                                   &onnx->env)) ||
           refuse(onnx, "options",
                  API(onnx, CREATE_SESSION_OPTIONS, ort_status(*)(void **))(&onnx->options)) ||
           refuse(onnx, "one thread", API(onnx, SET_INTRA_OP_THREADS, set_fn)(onnx->options, 1)) ||
           refuse(onnx, "one thread", API(onnx, SET_INTER_OP_THREADS, set_fn)(onnx->options, 1)) ||
           refuse(onnx, "optimisation",
                  API(onnx, SET_GRAPH_OPTIMIZATION, set_fn)(onnx->options, OPTIMIZE_ALL)) ||
           refuse(onnx, "model",
                  API(onnx, CREATE_SESSION_FROM_ARRAY,
                      ort_status(*)(const void *, const void *, size_t, const void *, void **))(
                      onnx->env, model, size_bytes, onnx->options, &onnx->session)) ||
           refuse(onnx, "memory",
                  API(onnx, CREATE_CPU_MEMORY_INFO,
                      ort_status(*)(int, int, void **))(ALLOCATOR_DEVICE, MEMORY_DEFAULT, &onnx->memory));
}

static int wrap(struct onnx *onnx, float *data, uint32_t n, void **value)
{
    const int64_t shape[] = {1, 1, n};
    return refuse(onnx, "tensor",
                  API(onnx, CREATE_TENSOR_WITH_DATA,
                      ort_status(*)(const void *, void *, size_t, const int64_t *, size_t, int, void **))(
                      onnx->memory, data, n * sizeof(*data), shape, sizeof(shape) / sizeof(shape[0]),
                      TYPE_FLOAT, value));
}

static int bind(struct onnx *onnx, int place, int turn, const char *name, const void *value)
{
    typedef ort_status (*bind_fn)(void *binding, const char *name, const void *value);
    return refuse(onnx, name, API(onnx, place, bind_fn)(onnx->binding[turn], name, value));
}

/* turn t reads state[t] and writes state[1 - t]. */
static int bind_all(struct onnx *onnx, const struct model_weights *weights)
{
    if (wrap(onnx, onnx->x, onnx->n_in, &onnx->x_value) ||
        wrap(onnx, onnx->logits, onnx->n_class, &onnx->logits_value))
        return -1;
    for (uint32_t i = 0; i < onnx->n_state; i++)
        for (int turn = 0; turn < 2; turn++)
            if (wrap(onnx, onnx->state[turn][i], weights->n_hidden[i / 2], &onnx->state_value[turn][i]))
                return -1;
    for (int turn = 0; turn < 2; turn++) {
        if (refuse(onnx, "binding",
                   API(onnx, CREATE_IO_BINDING, ort_status(*)(void *, void **))(onnx->session,
                                                                                &onnx->binding[turn])) ||
            bind(onnx, BIND_INPUT, turn, "x", onnx->x_value) ||
            bind(onnx, BIND_OUTPUT, turn, "logits", onnx->logits_value))
            return -1;
        for (uint32_t i = 0; i < onnx->n_state; i++) {
            char name[NAME_CHARS];
            snprintf(name, sizeof(name), "%c%u", i % 2 ? 'c' : 'h', i / 2);
            if (bind(onnx, BIND_INPUT, turn, name, onnx->state_value[turn][i]))
                return -1;
            snprintf(name, sizeof(name), "%c%u_next", i % 2 ? 'c' : 'h', i / 2);
            if (bind(onnx, BIND_OUTPUT, turn, name, onnx->state_value[1 - turn][i]))
                return -1;
        }
    }
    return 0;
}

struct bench_lstm_peer *bench_lstm_onnx_create(const struct model_weights *weights, const char *path,
                                               char error[MODEL_ERROR_CHARS])
{
    static const struct bench_lstm_peer_ops ops = {
        .name = "ONNX Runtime", .step = onnx_step, .free = onnx_free};
    void *model = NULL;
    size_t size_bytes;
    struct onnx *onnx = calloc(1, sizeof(*onnx));
    if (!onnx || bench_lstm_onnx_model(weights, &model, &size_bytes) != 0) {
        model_refuse(error, "out of memory for an ONNX model");
        free(onnx);
        return NULL;
    }
    onnx->base.ops = &ops;
    onnx->error = error;
    onnx->n_in = weights->n_in;
    onnx->n_class = weights->n_class;
    onnx->n_state = 2 * weights->n_layer;
    int failed = load_library(onnx, path) || open_session(onnx, model, size_bytes) || bind_all(onnx, weights);
    free(model);
    onnx->error = NULL;
    if (failed) {
        onnx_free(&onnx->base);
        return NULL;
    }
    return &onnx->base;
}
