/* The file: bounded reading, then protobuf-c, whose decoder itself knows no bounds. */
#include "model_onnx.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model_onnx_graph.h"

enum { DEPTH_MAX = 12, OPSET_MIN = 9, OPSET_MAX = 17 };

/* protobuf-c allocates what the bytes ask for, and two bytes can ask for a message of 200: hence a
 * budget. */
struct budget {
    size_t left_bytes;
};

static void *budget_alloc(void *context, size_t size_bytes)
{
    struct budget *budget = context;
    if (size_bytes > budget->left_bytes)
        return NULL;
    budget->left_bytes -= size_bytes;
    return malloc(size_bytes);
}

static void budget_free(void *context, void *memory)
{
    (void)context; /* freed memory is not credited: the budget bounds the sum, hence also the work */
    free(memory);
}

static int read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return 0;
    }
    return -1;
}

/* protobuf-c's decoder recurses as deep as the messages nest, without a limit: this walk has one. Nonzero:
 * the bytes are well-formed as far as lengths go, and no message lies deeper than DEPTH_MAX. */
static int nesting_is_bounded(const ProtobufCMessageDescriptor *type, const uint8_t *at, const uint8_t *end,
                              int depth)
{
    if (depth > DEPTH_MAX)
        return 0;
    while (at < end) {
        uint64_t tag, value;
        if (read_varint(&at, end, &tag))
            return 0;
        switch (tag & 7) {
        case 0:
            if (read_varint(&at, end, &value))
                return 0;
            break;
        case 1:
        case 5:
            value = (tag & 7) == 1 ? 8 : 4;
            if ((uint64_t)(end - at) < value)
                return 0;
            at += value;
            break;
        case 2: {
            if (read_varint(&at, end, &value) || (uint64_t)(end - at) < value)
                return 0;
            const ProtobufCFieldDescriptor *field =
                tag >> 3 <= UINT32_MAX ? protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3))
                                       : NULL;
            if (field && field->type == PROTOBUF_C_TYPE_MESSAGE &&
                !nesting_is_bounded(field->descriptor, at, at + value, depth + 1))
                return 0;
            at += value;
            break;
        }
        default: /* groups: ONNX has none */
            return 0;
        }
    }
    return 1;
}

static int64_t opset_of(const Onnx__ModelProto *model)
{
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = model->opset_import[i]->domain;
        if (!domain || !*domain || !strcmp(domain, "ai.onnx"))
            return model->opset_import[i]->version;
    }
    return 0;
}

static int follow_model(const Onnx__ModelProto *model, struct model_weights *out, char *error)
{
    struct onnx_graph graph = {.proto = model->graph, .opset = opset_of(model), .error = error};
    if (!model->graph)
        return model_refuse(error, "no graph in it");
    if (graph.opset < OPSET_MIN || graph.opset > OPSET_MAX)
        return model_refuse(error, "opset %" PRId64 ": export with opset_version %d to %d", graph.opset,
                            OPSET_MIN, OPSET_MAX);
    if (model->n_functions || model->n_training_info)
        return model_refuse(
            error, "functions or training information: export for inference, with standard operators");
    if (onnx_follow(&graph)) {
        model_weights_free(&graph.weights);
        return -1;
    }
    *out = graph.weights;
    return 0;
}

static int parse(const uint8_t *data, size_t size_bytes, struct model_weights *out, char *error)
{
    struct budget budget = {MODEL_ONNX_MEMORY_BYTES_MAX};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    if (size_bytes > MODEL_ONNX_FILE_BYTES_MAX)
        return model_refuse(error, "%zu bytes: at most %d", size_bytes, MODEL_ONNX_FILE_BYTES_MAX);
    if (!size_bytes || !nesting_is_bounded(&onnx__model_proto__descriptor, data, data + size_bytes, 0))
        return model_refuse(error, "not an ONNX file, cut short, or nested deeper than %d messages",
                            DEPTH_MAX);
    Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, size_bytes, data);
    if (!model)
        return model_refuse(
            error, "not an ONNX file (protobuf does not decode), or it takes more than %d MiB of memory",
            MODEL_ONNX_MEMORY_BYTES_MAX >> 20);
    int result = follow_model(model, out, error);
    onnx__model_proto__free_unpacked(model, &allocator);
    return result;
}

int model_onnx_parse(const char *name, const void *data, size_t size_bytes, struct model_weights *out,
                     char error[MODEL_ERROR_CHARS])
{
    char reason[MODEL_ERROR_CHARS];
    if (!parse(data, size_bytes, out, reason))
        return 0;
    return model_refuse(error, "%.150s: %.350s", name, reason);
}

int model_onnx_load(const char *path, struct model_weights *out, char error[MODEL_ERROR_CHARS])
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    if (!file)
        return model_refuse(error, "%.160s: %s", path, strerror(errno));
    if (fstat(fileno(file), &status) || !S_ISREG(status.st_mode) ||
        status.st_size > MODEL_ONNX_FILE_BYTES_MAX) {
        fclose(file);
        return model_refuse(error, "%.120s: not a regular file of at most %d bytes", path,
                            MODEL_ONNX_FILE_BYTES_MAX);
    }
    size_t size_bytes = (size_t)status.st_size;
    uint8_t *data = malloc(size_bytes + 1);
    size_t got = data ? fread(data, 1, size_bytes, file) : 0;
    fclose(file);
    int result = data && got == size_bytes
                     ? model_onnx_parse(path, data, size_bytes, out, error)
                     : model_refuse(error, "%.120s: read %zu of %zu bytes", path, got, size_bytes);
    free(data);
    return result;
}
