/* xclbin_make: the same bytes every time, an identity that follows the contents, options out of range, and
 * the look into a kernel's library. What the container says is checked by test_xclbin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/xclbin_make.h"

static const struct xclbin_make_options plain = {
    .build = "fast", .n_unit = 1, .bank_mib = 64, .abi_version = KL_ABI_VERSION};

static struct xclbin make(const struct xclbin_make_options *options, const char *library, void **bytes,
                          size_t *size_bytes)
{
    struct xclbin x = {0};
    char error[XCLBIN_ERROR_CHARS];
    if (xclbin_make(options, library, strlen(library), bytes, size_bytes, error) ||
        xclbin_parse(*bytes, *size_bytes, "made", &x, error))
        fail_msg("%s", error);
    return x;
}

static void same_contents_same_identity(void **state)
{
    (void)state;
    void *a, *b;
    size_t a_bytes, b_bytes;
    const struct xclbin x = make(&plain, "library", &a, &a_bytes), y = make(&plain, "library", &b, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    assert_string_equal(x.uuid, y.uuid);
    assert_int_equal(x.uuid[14], '8');           /* version: by the writer's own rule */
    assert_non_null(strchr("89ab", x.uuid[19])); /* variant of RFC 9562 */
    free(a);
    free(b);
}

static void other_contents_other_identity(void **state)
{
    (void)state;
    struct xclbin_make_options other[] = {plain, plain, plain, plain, plain};
    char seen[6][37];
    other[0].build = "small";
    other[1].n_unit = 2;
    other[2].bank_mib = 65;
    other[3].no_host_memory = 1;
    for (int i = 0; i < 6; i++) {
        void *bytes;
        size_t size_bytes;
        const struct xclbin x = i < 5 ? make(&other[i], i == 4 ? "librarx" : "library", &bytes, &size_bytes)
                                      : make(&plain, "library", &bytes, &size_bytes);
        free(bytes);
        memcpy(seen[i], x.uuid, sizeof seen[i]);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(seen[k], seen[i]);
    }
}

static void options_refused(void **state)
{
    (void)state;
    static const struct {
        struct xclbin_make_options options;
        const char *why;
    } wrong[] = {
        {{.build = "fast", .n_unit = 0, .bank_mib = 64}, "0 units: 1 to 16"},
        {{.build = "fast", .n_unit = 17, .bank_mib = 64}, "17 units"},
        {{.build = "fast", .n_unit = 1, .bank_mib = 0}, "a bank of 0 MiB"},
        {{.build = "fast", .n_unit = 1, .bank_mib = 65537}, "a bank of 65537 MiB: 1 to 65536"},
        {{.build = "", .n_unit = 1, .bank_mib = 64}, "1 to 11 characters"},
        {{.build = "twelve_chars", .n_unit = 1, .bank_mib = 64}, "1 to 11 characters"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        void *bytes;
        size_t size_bytes;
        char error[XCLBIN_ERROR_CHARS] = "";
        assert_int_equal(xclbin_make(&wrong[i].options, "x", 1, &bytes, &size_bytes, error), -1);
        if (!strstr(error, wrong[i].why))
            fail_msg("'%s' does not say '%s'", error, wrong[i].why);
    }
}

static void most_units_and_memory(void **state)
{
    (void)state;
    struct xclbin_make_options options = plain;
    void *bytes;
    size_t size_bytes;
    options.build = "eleven_char";
    options.n_unit = XCLBIN_UNITS_MAX;
    options.bank_mib = XCLBIN_MAKE_BANK_MIB_MAX;
    const struct xclbin x = make(&options, "", &bytes, &size_bytes);
    assert_int_equal(x.n_unit, XCLBIN_UNITS_MAX);
    assert_int_equal(x.banks[0].size_bytes, 64ull << 30);
    assert_string_equal(x.units[15].name, "kl_kernel:kl_kernel_16");
    assert_int_equal(x.units[15].bank[KL_ARG_STATE], 1);
    free(bytes);
}

static void library_probed(void **state)
{
    (void)state;
    uint32_t abi_version = 0;
    char error[XCLBIN_ERROR_CHARS];
    assert_int_equal(xclbin_make_probe(KL_LIBRARY_SMALL, "small", &abi_version, error), 0);
    assert_int_equal(abi_version, KL_ABI_VERSION);
    assert_int_equal(xclbin_make_probe(KL_LIBRARY_SMALL, "fast", &abi_version, error), -1);
    assert_non_null(strstr(error, "has no kl_build_fast"));
    assert_int_equal(xclbin_make_probe(KL_LIBRARY_MISNAMED, "fast", &abi_version, error), -1);
    assert_non_null(strstr(error, "calls itself small"));
    assert_int_equal(xclbin_make_probe("/nowhere/lib.so", "small", &abi_version, error), -1);
    assert_non_null(strstr(error, "/nowhere/lib.so: No such file"));
    assert_int_equal(xclbin_make_probe("/etc/passwd", "small", &abi_version, error), -1);
    assert_non_null(strstr(error, "/etc/passwd: not a library"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_contents_same_identity),
        cmocka_unit_test(other_contents_other_identity),
        cmocka_unit_test(options_refused),
        cmocka_unit_test(most_units_and_memory),
        cmocka_unit_test(library_probed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
