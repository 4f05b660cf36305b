/* The .xclbin as the real XRT takes it, against host/xclbin.h: XRT's own UUID, group ids and offsets have to
 * be those that our reader gives, for what sim/xclbin_make writes and with what v++ writes besides. XRT
 * throws out of its C functions: then this program aborts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uuid/uuid.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include "xclbin_file.h"

static const uint32_t offsets[XCLBIN_N_ARG] = {
    KL_MAP_COMMAND, KL_MAP_SLOT,    KL_MAP_IMAGE_SIZE_BYTES, KL_MAP_N_REQUEST,
    KL_MAP_IMAGE,   KL_MAP_REQUEST, KL_MAP_RESULT,           KL_MAP_STATE,
};

/* name: kl_kernel:kl_kernel_1; XRT wants kl_kernel:{kl_kernel_1}. */
static void compare_unit(xrtDeviceHandle device, const xuid_t uuid, const struct xclbin_unit *unit)
{
    char name[80];
    const char *instance = strchr(unit->name, ':') + 1;
    snprintf(name, sizeof name, "kl_kernel:{%s}", instance);
    xrtKernelHandle kernel = xrtPLKernelOpenExclusive(device, uuid, name);
    assert_non_null(kernel);
    for (int arg = 0; arg < XCLBIN_N_ARG; arg++) {
        assert_int_equal(xrtKernelArgOffset(kernel, arg), offsets[arg]);
        if (unit->bank[arg] >= 0)
            assert_int_equal(xrtKernelArgGroupId(kernel, arg), unit->bank[arg]);
    }
    uint32_t value;
    assert_int_not_equal(xrtKernelReadRegister(kernel, KL_MAP_BYTES, &value), 0); /* beyond the range */
    xrtKernelClose(kernel);
}

/* Both readers on the same bytes. */
static struct xclbin compare(const void *bytes, size_t size_bytes)
{
    struct xclbin x;
    char error[XCLBIN_ERROR_CHARS], text[37];
    xuid_t uuid;
    if (xclbin_parse(bytes, size_bytes, "compared", &x, error))
        fail_msg("%s", error);
    xrtDeviceHandle device = xrtDeviceOpen(0);
    assert_non_null(device);
    assert_int_equal(xrtDeviceLoadXclbin(device, bytes), 0);
    assert_int_equal(xrtDeviceGetXclbinUUID(device, uuid), 0);
    uuid_unparse_lower(uuid, text);
    assert_string_equal(text, x.uuid);
    for (uint32_t i = 0; i < x.n_unit; i++)
        compare_unit(device, uuid, &x.units[i]);
    xrtDeviceClose(device);
    return x;
}

static struct xclbin_file file_of(const char *name)
{
    char path[512], error[XCLBIN_ERROR_CHARS];
    struct xclbin_file file;
    struct xclbin x;
    void *bytes;
    snprintf(path, sizeof path, "%s/%s.xclbin", KL_SIM_XRT_DIR, name);
    if (xclbin_read(path, &x, &bytes, &file.size_bytes, error))
        fail_msg("%s", error);
    file.bytes = bytes;
    return file;
}

static void what_the_build_makes(void **state)
{
    (void)state;
    static const struct {
        const char *name, *build;
        uint32_t n_unit, n_bank;
    } made[] = {{"kl_small", "small", 1, 2},
                {"kl_fast", "fast", 1, 2},
                {"kl_large", "large", 1, 2},
                {"kl_small_2", "small", 2, 2},
                {"kl_small_nohost", "small", 1, 1}};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        struct xclbin_file file = file_of(made[i].name);
        const struct xclbin x = compare(file.bytes, file.size_bytes);
        assert_string_equal(x.build, made[i].build);
        assert_int_equal(x.n_unit, made[i].n_unit);
        assert_int_equal(x.n_bank, made[i].n_bank);
        free(file.bytes);
    }
}

/* An argument with several banks, groups, another section: XRT's choice is the reader's. */
static void with_groups(void **state)
{
    (void)state;
    struct xclbin_file file = file_of("kl_small");
    const uint8_t *rows =
        (const uint8_t *)xclbin_file_section(&file, MEM_TOPOLOGY) + offsetof(struct mem_topology, m_mem_data);
    struct {
        int32_t count, pad;
        struct mem_data rows[3];
    } groups = {.count = 3};
    struct {
        int32_t count;
        struct connection rows[5];
    } connections = {.count = 5,
                     .rows = {{KL_ARG_IMAGE, 0, 2},
                              {KL_ARG_IMAGE, 0, 0},
                              {KL_ARG_REQUEST, 0, 1},
                              {KL_ARG_RESULT, 0, 1},
                              {KL_ARG_STATE, 0, 0}}};
    memcpy(groups.rows, rows, 2 * sizeof groups.rows[0]);
    groups.rows[2] = groups.rows[0];
    memcpy(groups.rows[2].m_tag, "DDR[0:0]", 9);
    xclbin_file_add(&file, ASK_GROUP_TOPOLOGY, &groups, sizeof groups);
    xclbin_file_add(&file, ASK_GROUP_CONNECTIVITY, &connections, sizeof connections);
    xclbin_file_add(&file, BUILD_METADATA, "{}", 2);
    const struct xclbin x = compare(file.bytes, file.size_bytes);
    assert_int_equal(x.units[0].bank[KL_ARG_IMAGE], 2);
    assert_int_equal(x.units[0].bank[KL_ARG_STATE], 0);
    free(file.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_build_makes),
        cmocka_unit_test(with_groups),
    };
    if (setenv("XILINX_XRT", KL_SIM_XRT_DIR, 1) || unsetenv("XCL_EMULATION_MODE"))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
