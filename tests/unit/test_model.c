/* The package file: what is written comes back, and nothing else is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/model.h"
#include "model_random.h"

static struct model sample(void)
{
    struct model_weights w = model_random(3, 2, (const uint32_t[]){5, 2}, 3, 1, 9);
    struct kl_image_header *image;
    char error[MODEL_ERROR_CHARS];
    assert_int_equal(model_quantise(&w, &image, error), 0);
    model_weights_free(&w);
    return (struct model){.feature_schema = 7,
                          .horizon_events = 10,
                          .warmup_ticks = 50,
                          .n_feature = 3,
                          .feature = {{0.5f, 2}, {-1, 1e-3f}, {0, 100}},
                          .class_name = {"down", "flat", "up"},
                          .image = image,
                          .manifest = "{\"name\": \"Schlußkurs\"}"};
}

static void free_image(const struct model *model)
{
    free((void *)(uintptr_t)model->image);
}

static uint8_t *bytes_of(const struct model *model, size_t *size_bytes)
{
    void *data;
    char error[MODEL_ERROR_CHARS];
    if (model_serialise(model, &data, size_bytes, error))
        fail_msg("%s", error);
    return data;
}

/* Makes the SHA-256 right again after an edit. */
static void seal(uint8_t *data, size_t size_bytes)
{
    const size_t from = offsetof(struct model_file_header, file_bytes);
    assert_int_equal(EVP_Digest(data + from, size_bytes - from,
                                data + offsetof(struct model_file_header, sha256), NULL, EVP_sha256(), NULL),
                     1);
}

static void expect_same(const struct model *a, const struct model *b)
{
    assert_int_equal(a->feature_schema, b->feature_schema);
    assert_int_equal(a->horizon_events, b->horizon_events);
    assert_int_equal(a->warmup_ticks, b->warmup_ticks);
    assert_int_equal(a->n_feature, b->n_feature);
    assert_memory_equal(a->feature, b->feature, sizeof(a->feature));
    assert_memory_equal(a->class_name, b->class_name, sizeof(a->class_name));
    assert_string_equal(a->manifest, b->manifest);
    assert_int_equal(a->image->size_bytes, b->image->size_bytes);
    assert_memory_equal(a->image, b->image, a->image->size_bytes);
}

static void what_is_written_comes_back(void **state)
{
    (void)state;
    char directory[] = "/tmp/test_model.XXXXXX", path[64], error[MODEL_ERROR_CHARS];
    struct model model = sample(), back;
    struct stat status;
    uint8_t digest[MODEL_SHA256_BYTES];
    size_t size_bytes;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/x.klm", directory);
    for (int run = 0; run < 2; run++) { /* the second replaces the first */
        model.warmup_ticks += (uint32_t)run;
        assert_int_equal(model_write(path, &model, error), 0);
        assert_int_equal(model_load(path, &back, error), 0);
        expect_same(&model, &back);
        model_free(&back);
        assert_null(back.buffer);
    }
    uint8_t *data = bytes_of(&model, &size_bytes);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, size_bytes);
    assert_int_equal(status.st_mode & 0777, 0644);
    assert_int_equal(model_parse("x", data, size_bytes, &back, error), 0);
    assert_int_equal(EVP_Digest(data, size_bytes, digest, NULL, EVP_sha256(), NULL), 1);
    assert_memory_equal(back.sha256, digest, sizeof(digest));
    assert_int_equal((uintptr_t)back.image % 8, 0);
    model_free(&back);
    free(data);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0); /* so no temporary file is left either */
    free_image(&model);
}

static void failed_writes_leave_nothing(void **state)
{
    (void)state;
    char directory[] = "/tmp/test_model.XXXXXX", path[64], error[MODEL_ERROR_CHARS];
    struct model model = sample();
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/none/x.klm", directory);
    assert_int_equal(model_write(path, &model, error), -1);
    assert_non_null(strstr(error, path));
    snprintf(path, sizeof(path), "%s/x.klm", directory);
    assert_int_equal(mkdir(path, 0755), 0); /* a directory cannot be replaced by a file */
    assert_int_equal(model_write(path, &model, error), -1);
    assert_non_null(strstr(error, path));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(model_load(path, &model, error), -1);
    assert_non_null(strstr(error, path));
    assert_int_equal(model_load("/tmp", &model, error), -1);
    assert_non_null(strstr(error, "regular file"));
    free_image(&model);
}

static void expect_unwritable(const struct model *model, const char *why)
{
    void *data;
    size_t size_bytes;
    char error[MODEL_ERROR_CHARS];
    if (!model_serialise(model, &data, &size_bytes, error))
        fail_msg("written in spite of: %s", why);
    if (!strstr(error, why))
        fail_msg("'%s' does not say '%s'", error, why);
}

static void nonsense_is_not_written(void **state)
{
    (void)state;
    struct model good = sample(), bad = good;
    const float not_scales[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        bad.feature[1].scale = not_scales[i];
        expect_unwritable(&bad, "feature 1");
    }
    bad = good, bad.feature[2].mean = NAN;
    expect_unwritable(&bad, "feature 2");
    bad = good, bad.n_feature = 2;
    expect_unwritable(&bad, "2 normalised features");
    bad = good, bad.horizon_events = 0;
    expect_unwritable(&bad, "horizon");
    bad = good, memset(bad.class_name[1], 0, 16);
    expect_unwritable(&bad, "class 1");
    bad = good, memset(bad.class_name[1], 'x', 16);
    expect_unwritable(&bad, "class 1");
    bad = good, bad.class_name[1][9] = 'x'; /* behind the name's end */
    expect_unwritable(&bad, "class 1");
    bad = good, bad.class_name[0][1] = '\n';
    expect_unwritable(&bad, "class 0");
    bad = good, bad.class_name[3][0] = 'x';
    expect_unwritable(&bad, "class 3");
    const char *const not_manifests[] = {"",     "[]", "{", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}",
                                         "{} x", "nul"};
    for (size_t i = 0; i < sizeof(not_manifests) / sizeof(not_manifests[0]); i++) {
        bad = good, bad.manifest = not_manifests[i];
        expect_unwritable(&bad, "manifest");
    }
    free_image(&good);
}

static void expect_refused(const uint8_t *data, size_t size_bytes, const char *why)
{
    struct model model;
    char error[MODEL_ERROR_CHARS];
    if (!model_parse("name.klm", data, size_bytes, &model, error))
        fail_msg("accepted in spite of: %s", why);
    if (strncmp(error, "name.klm: ", 10) || !strstr(error, why))
        fail_msg("'%s' does not say '%s'", error, why);
}

static void every_bit_counts(void **state)
{
    (void)state;
    struct model model = sample();
    size_t size_bytes;
    uint8_t *data = bytes_of(&model, &size_bytes);
    for (size_t i = 0; i < size_bytes * 8; i++) {
        data[i / 8] ^= (uint8_t)(1 << i % 8);
        expect_refused(data, size_bytes, "");
        data[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    for (size_t n = 0; n < size_bytes; n++) {
        uint8_t *cut = malloc(n ? n : 1); /* its own block, so that reading past the end shows */
        assert_non_null(cut);
        memcpy(cut, data, n);
        expect_refused(cut, n, "");
        free(cut);
    }
    uint8_t *longer = calloc(1, size_bytes + 8);
    assert_non_null(longer);
    memcpy(longer, data, size_bytes);
    expect_refused(longer, size_bytes + 8, "bytes there");
    free(longer);
    free(data);
    free_image(&model);
}

/* With the SHA-256 made right again: whoever writes packages can do that. */
static void forged_headers_are_refused(void **state)
{
    (void)state;
    struct model model = sample();
    size_t size_bytes;
    uint8_t *good = bytes_of(&model, &size_bytes);
    uint8_t *data = malloc(size_bytes);
    struct model_file_header *header = (void *)data;
    assert_non_null(data);
    const size_t manifest_at = sizeof(*header), manifest_bytes = strlen(model.manifest);
    const size_t features_at = manifest_at + (manifest_bytes / 8 + 1) * 8, image_at = features_at + 24;
    struct {
        size_t offset;
        uint32_t value;
        const char *why;
    } edits[] = {
        {0, 1, "not a model package"},
        {4, 2, "version 2"},
        {6, 1, "padding"},
        {offsetof(struct model_file_header, manifest_bytes), UINT32_MAX, "manifest of"},
        {offsetof(struct model_file_header, manifest_bytes), 0, "add up"},
        {offsetof(struct model_file_header, manifest_bytes), (uint32_t)manifest_bytes - 1, "padding"},
        {offsetof(struct model_file_header, image_bytes), UINT32_MAX, "add up"},
        {offsetof(struct model_file_header, image_bytes), model.image->size_bytes - 4, "add up"},
        {offsetof(struct model_file_header, n_feature), 0, "features"},
        {offsetof(struct model_file_header, n_feature), UINT32_MAX, "features"},
        {offsetof(struct model_file_header, n_feature), 4, "add up"},
        {offsetof(struct model_file_header, horizon_events), 0, "horizon"},
        {offsetof(struct model_file_header, class_name) + 8, 0x78, "class 0"},
        {offsetof(struct model_file_header, class_name) + 16 * 7, 0x78, "class 7"},
        {manifest_at, 0x7b7b7b7b, "manifest"},
        {features_at - 4, 1u << 24, "padding behind the manifest"},
        {features_at + 4, 0x7fc00000, "feature 0"},
        {features_at + 4, 0x80000000, "feature 0"},
        {features_at + 16, 0xff800000, "feature 2"},
        {image_at, 1, "kernel image"},
        {image_at + 64, 1, "hash"},
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        memcpy(data, good, size_bytes);
        memcpy(data + edits[i].offset, &edits[i].value, edits[i].offset == 4 || edits[i].offset == 6 ? 2 : 4);
        seal(data, size_bytes);
        expect_refused(data, size_bytes, edits[i].why);
    }
    memcpy(data, good, size_bytes);
    header->manifest_bytes += 8, header->image_bytes -= 8; /* adds up, at other places */
    seal(data, size_bytes);
    expect_refused(data, size_bytes, "");
    memcpy(data, good, size_bytes);
    data[size_bytes - 1] ^= 1;
    expect_refused(data, size_bytes, "SHA-256");
    free(data);
    free(good);
    free_image(&model);
}

/* A package that an older killline wrote, intact in every hash. */
static void packages_of_another_abi_say_what_to_do(void **state)
{
    (void)state;
    struct model model = sample();
    size_t size_bytes;
    uint8_t *data = bytes_of(&model, &size_bytes);
    struct kl_image_header *image = (void *)(data + size_bytes - model.image->size_bytes);
    image->abi_version = 1;
    image->image_hash = 0x0123456789abcdef; /* of another definition */
    seal(data, size_bytes);
    expect_refused(data, size_bytes, "ABI version 1, this build's is 3: pack the model again");
    free(data);
    free_image(&model);
}

static void too_large_is_refused_unread(void **state)
{
    (void)state;
    expect_refused((const uint8_t *)"", MODEL_FILE_BYTES_MAX + (size_t)1, "larger");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(failed_writes_leave_nothing),
        cmocka_unit_test(nonsense_is_not_written),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(forged_headers_are_refused),
        cmocka_unit_test(packages_of_another_abi_say_what_to_do),
        cmocka_unit_test(too_large_is_refused_unread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
