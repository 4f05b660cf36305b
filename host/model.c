/* The package file: every length and offset is the file's word against ours. */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int model_refuse(char error[MODEL_ERROR_CHARS], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, MODEL_ERROR_CHARS, format, args);
    va_end(args);
    return -1;
}

enum {
    HEADER_BYTES = sizeof(struct model_file_header),
    SHA256_FROM = offsetof(struct model_file_header, file_bytes)
};

static size_t padded(size_t size_bytes)
{
    return (size_bytes + 7) & ~(size_t)7;
}

/* The manifest and at least one zero, so that it can be used in place. */
static size_t manifest_part_bytes(size_t manifest_bytes)
{
    return padded(manifest_bytes + 1);
}

static int sha256(const void *data, size_t size_bytes, uint8_t out[MODEL_SHA256_BYTES])
{
    unsigned n = 0;
    return EVP_Digest(data, size_bytes, out, &n, EVP_sha256(), NULL) == 1 && n == MODEL_SHA256_BYTES ? 0 : -1;
}

static int check_manifest(const char *manifest, size_t size_bytes, char *error)
{
    json_error_t reason;
    json_t *root = json_loadb(manifest, size_bytes, JSON_REJECT_DUPLICATES, &reason);
    if (!root)
        return model_refuse(error, "manifest, byte %d: %.160s", reason.position, reason.text);
    int is_object = json_is_object(root);
    json_decref(root);
    return is_object ? 0 : model_refuse(error, "manifest: not a JSON object");
}

/* What must hold whether the numbers come from a file or from a caller. */
static int check_fields(const struct model *model, char *error)
{
    const struct kl_image_header *image = model->image;
    if (model->n_feature != image->n_in)
        return model_refuse(error, "%u normalised features for the image's %u inputs", model->n_feature,
                            image->n_in);
    if (!model->horizon_events)
        return model_refuse(error, "horizon of the label is 0 events");
    for (uint32_t i = 0; i < model->n_feature; i++)
        if (!isfinite(model->feature[i].mean) || !isfinite(model->feature[i].scale) ||
            !(model->feature[i].scale > 0))
            return model_refuse(error, "feature %u: mean %g, scale %g: must be finite, scale above 0", i,
                                (double)model->feature[i].mean, (double)model->feature[i].scale);
    for (uint32_t c = 0; c < KL_N_CLASS_MAX; c++) {
        const char *name = model->class_name[c];
        size_t length = strnlen(name, MODEL_CLASS_NAME_CHARS), i;
        for (i = 0; i < length && name[i] > ' ' && name[i] <= '~'; i++)
            ;
        int ok = i == length && length < MODEL_CLASS_NAME_CHARS && !length == (c >= image->n_class);
        for (; i < MODEL_CLASS_NAME_CHARS; i++)
            ok = ok && !name[i];
        if (!ok)
            return model_refuse(
                error,
                "name of class %u of %u: 1 to %d visible ASCII characters, zeros behind, none beyond the "
                "last class",
                c, image->n_class, MODEL_CLASS_NAME_CHARS - 1);
    }
    return 0;
}

static int check_header(const struct model_file_header *header, size_t size_bytes, char *error)
{
    if (header->magic != MODEL_MAGIC)
        return model_refuse(error, "not a model package (offset 0: 0x%08x): killline model pack writes one",
                            header->magic);
    if (header->version != MODEL_VERSION)
        return model_refuse(error,
                            "package version %u at offset 4: this build reads %d, pack the model again",
                            header->version, MODEL_VERSION);
    if (header->pad0)
        return model_refuse(error, "offset 6: padding is not zero");
    if (header->file_bytes != size_bytes)
        return model_refuse(
            error, "%zu bytes there, %llu in its header (offset %d): cut short or grown, copy it again",
            size_bytes, (unsigned long long)header->file_bytes, SHA256_FROM);
    if (header->manifest_bytes > MODEL_MANIFEST_BYTES_MAX)
        return model_refuse(error, "manifest of %u bytes: at most %d", header->manifest_bytes,
                            MODEL_MANIFEST_BYTES_MAX);
    if (header->n_feature < 1 || header->n_feature > KL_N_IN_MAX)
        return model_refuse(error, "%u features: 1 to %d", header->n_feature, KL_N_IN_MAX);
    uint64_t parts = HEADER_BYTES + manifest_part_bytes(header->manifest_bytes) +
                     (uint64_t)header->n_feature * sizeof(struct model_feature) + header->image_bytes;
    if (parts != size_bytes || header->image_bytes % 8)
        return model_refuse(error,
                            "its parts (manifest %u, %u features, image %u bytes) do not add up to %zu bytes",
                            header->manifest_bytes, header->n_feature, header->image_bytes, size_bytes);
    return 0;
}

/* data: size_bytes bytes from malloc, kept by the model on success. */
static int parse(uint8_t *data, size_t size_bytes, struct model *model, char *error)
{
    struct model_file_header header;
    uint8_t digest[MODEL_SHA256_BYTES];
    if (size_bytes < sizeof(header))
        return model_refuse(error, "%zu bytes: too short for a model package", size_bytes);
    memcpy(&header, data, sizeof(header));
    if (check_header(&header, size_bytes, error))
        return -1;
    if (sha256(data + SHA256_FROM, size_bytes - SHA256_FROM, digest))
        return model_refuse(error, "SHA-256 failed: out of memory?");
    if (memcmp(digest, header.sha256, sizeof(digest)))
        return model_refuse(
            error, "its SHA-256 (offset 8) does not match its content: damaged, copy or pack it again");

    const char *manifest = (const char *)data + sizeof(header);
    size_t manifest_part = manifest_part_bytes(header.manifest_bytes);
    for (size_t i = header.manifest_bytes; i < manifest_part; i++)
        if (manifest[i])
            return model_refuse(error, "offset %zu: padding behind the manifest is not zero",
                                sizeof(header) + i);
    const uint8_t *features = data + sizeof(header) + manifest_part;
    size_t features_bytes = header.n_feature * sizeof(struct model_feature);
    const uint8_t *image = features + features_bytes;
    if (check_manifest(manifest, header.manifest_bytes, error) ||
        model_image_check(image, header.image_bytes, error))
        return -1;

    *model = (struct model){.feature_schema = header.feature_schema,
                            .horizon_events = header.horizon_events,
                            .warmup_ticks = header.warmup_ticks,
                            .n_feature = header.n_feature,
                            .image = (const void *)image,
                            .manifest = manifest,
                            .buffer = data};
    memcpy(model->feature, features, features_bytes);
    memcpy(model->class_name, header.class_name, sizeof(model->class_name));
    if (sha256(data, size_bytes, model->sha256))
        return model_refuse(error, "SHA-256 failed: out of memory?");
    return check_fields(model, error);
}

/* Puts the file's name in front of the reason. */
static int refuse_file(char *error, const char *name)
{
    char reason[MODEL_ERROR_CHARS];
    memcpy(reason, error, sizeof(reason));
    return model_refuse(error, "%.150s: %.350s", name, reason);
}

int model_parse(const char *name, const void *data, size_t size_bytes, struct model *out,
                char error[MODEL_ERROR_CHARS])
{
    struct model model;
    uint8_t *copy = size_bytes <= MODEL_FILE_BYTES_MAX ? malloc(size_bytes + 1) : NULL; /* never malloc(0) */
    if (!copy) {
        model_refuse(error, "%zu bytes: larger than any model package (%d bytes), or out of memory",
                     size_bytes, MODEL_FILE_BYTES_MAX);
        return refuse_file(error, name);
    }
    if (size_bytes)
        memcpy(copy, data, size_bytes);
    if (parse(copy, size_bytes, &model, error)) {
        free(copy);
        return refuse_file(error, name);
    }
    *out = model;
    return 0;
}

int model_load(const char *path, struct model *out, char error[MODEL_ERROR_CHARS])
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    if (!file)
        return model_refuse(error, "%.160s: %s", path, strerror(errno));
    if (fstat(fileno(file), &status) || !S_ISREG(status.st_mode) || status.st_size > MODEL_FILE_BYTES_MAX) {
        fclose(file);
        return model_refuse(error, "%.120s: not a regular file of at most %d bytes, so no model package",
                            path, MODEL_FILE_BYTES_MAX);
    }
    size_t size_bytes = (size_t)status.st_size;
    uint8_t *data = malloc(size_bytes + 1);
    size_t got = data ? fread(data, 1, size_bytes, file) : 0;
    fclose(file);
    if (!data || got != size_bytes) {
        free(data);
        return model_refuse(error, "%.120s: read %zu of %zu bytes", path, got, size_bytes);
    }
    int result = model_parse(path, data, size_bytes, out, error);
    free(data);
    return result;
}

void model_free(struct model *model)
{
    free(model->buffer);
    *model = (struct model){0};
}

int model_serialise(const struct model *model, void **data, size_t *size_bytes, char error[MODEL_ERROR_CHARS])
{
    const struct kl_image_header *image = model->image;
    size_t manifest_bytes = strlen(model->manifest);
    if (manifest_bytes > MODEL_MANIFEST_BYTES_MAX)
        return model_refuse(error, "manifest of %zu bytes: at most %d", manifest_bytes,
                            MODEL_MANIFEST_BYTES_MAX);
    if (model_image_check(image, image->size_bytes, error) ||
        check_manifest(model->manifest, manifest_bytes, error) || check_fields(model, error))
        return -1;
    size_t manifest_part = manifest_part_bytes(manifest_bytes);
    size_t features_bytes = model->n_feature * sizeof(struct model_feature);
    size_t total = HEADER_BYTES + manifest_part + features_bytes + image->size_bytes;
    struct model_file_header header = {
        .magic = MODEL_MAGIC,
        .version = MODEL_VERSION,
        .file_bytes = total,
        .manifest_bytes = (uint32_t)manifest_bytes,
        .image_bytes = image->size_bytes,
        .feature_schema = model->feature_schema,
        .horizon_events = model->horizon_events,
        .warmup_ticks = model->warmup_ticks,
        .n_feature = model->n_feature,
    };
    memcpy(header.class_name, model->class_name, sizeof(header.class_name));
    uint8_t *out = calloc(1, total);
    if (!out)
        return model_refuse(error, "out of memory: %zu bytes for the package", total);
    memcpy(out, &header, sizeof(header));
    memcpy(out + HEADER_BYTES, model->manifest, manifest_bytes);
    memcpy(out + HEADER_BYTES + manifest_part, model->feature, features_bytes);
    memcpy(out + HEADER_BYTES + manifest_part + features_bytes, image, image->size_bytes);
    if (sha256(out + SHA256_FROM, total - SHA256_FROM, out + offsetof(struct model_file_header, sha256))) {
        free(out);
        return model_refuse(error, "SHA-256 failed: out of memory?");
    }
    *data = out;
    *size_bytes = total;
    return 0;
}

/* Everything on the disk before the name points at it: a crash leaves the old package or the new one. */
static int write_durably(int fd, const uint8_t *data, size_t size_bytes)
{
    while (size_bytes) {
        ssize_t n = write(fd, data, size_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        data += n;
        size_bytes -= (size_t)n;
    }
    return fchmod(fd, 0644) || fsync(fd) ? -1 : 0;
}

static void sync_directory_of(const char *path)
{
    char directory[4096];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    snprintf(directory, sizeof(directory), "%.*s", (int)length, path);
    int fd = open(length ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* some file systems refuse it; the rename has happened either way */
        close(fd);
    }
}

int model_write(const char *path, const struct model *model, char error[MODEL_ERROR_CHARS])
{
    char temporary[4096];
    void *data;
    size_t size_bytes;
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= sizeof(temporary))
        return model_refuse(error, "%.100s...: path too long", path);
    if (model_serialise(model, &data, &size_bytes, error))
        return refuse_file(error, path);
    int fd = mkostemp(temporary, O_CLOEXEC), result = -1;
    if (fd < 0) {
        model_refuse(error, "%.160s: %s", path, strerror(errno));
    } else {
        int failed = write_durably(fd, data, size_bytes), reason = errno;
        if (close(fd) && !failed) {
            failed = 1;
            reason = errno;
        }
        if (!failed && rename(temporary, path)) {
            failed = 1;
            reason = errno;
        }
        if (failed) {
            unlink(temporary);
            model_refuse(error, "%.160s: %s", path, strerror(reason));
        } else {
            sync_directory_of(path);
            result = 0;
        }
    }
    free(data);
    return result;
}

void model_weights_free(struct model_weights *weights)
{
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        free(weights->w_x[l]);
        free(weights->w_h[l]);
        free(weights->bias[l]);
    }
    free(weights->head_w);
    free(weights->head_bias);
    *weights = (struct model_weights){0};
}
