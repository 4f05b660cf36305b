/* xclbin: what sim/xclbin_make writes, what v++ writes besides, and files that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/xclbin.h"
#include "xclbin_file.h"

static void expect_refused_as(struct xclbin_file file, const char *why)
{
    struct xclbin out;
    char error[XCLBIN_ERROR_CHARS] = "";
    if (!xclbin_parse(file.bytes, file.size_bytes, "f.xclbin", &out, error))
        fail_msg("accepted, not refused with '%s'", why);
    if (strncmp(error, "f.xclbin: ", 10) != 0 || !strstr(error, why))
        fail_msg("'%s' does not say '%s'", error, why);
}

/* Frees the file. */
static void expect_refused(struct xclbin_file file, const char *why)
{
    expect_refused_as(file, why);
    free(file.bytes);
}

/* Frees the file. */
static struct xclbin expect_accepted(struct xclbin_file file)
{
    struct xclbin out;
    char error[XCLBIN_ERROR_CHARS] = "";
    if (xclbin_parse(file.bytes, file.size_bytes, "f.xclbin", &out, error))
        fail_msg("%s", error);
    free(file.bytes);
    return out;
}

/* ---- what is written is read ---- */

static void what_is_written(void **state)
{
    (void)state;
    const struct xclbin x = expect_accepted(xclbin_file_make(2, 0));
    assert_string_equal(x.platform, "killline_sim_1_0");
    assert_null(strpbrk(x.uuid, "ABCDEF")); /* as XRT prints it */
    assert_string_equal(x.build, "small");
    assert_int_equal(x.abi_version, KL_ABI_VERSION);
    assert_int_equal(x.n_unit, 2);
    assert_string_equal(x.units[0].name, "kl_kernel:kl_kernel_1");
    assert_string_equal(x.units[1].name, "kl_kernel:kl_kernel_2");
    assert_int_equal(x.units[0].base, 0x1800000);
    assert_int_equal(x.units[1].base, 0x1810000);
    for (int unit = 0; unit < 2; unit++) {
        for (int arg = KL_ARG_COMMAND; arg <= KL_ARG_N_REQUEST; arg++)
            assert_int_equal(x.units[unit].bank[arg], -1);
        assert_int_equal(x.units[unit].bank[KL_ARG_IMAGE], 0);
        for (int arg = KL_ARG_REQUEST; arg <= KL_ARG_STATE; arg++)
            assert_int_equal(x.units[unit].bank[arg], 1);
    }
    assert_int_equal(x.n_bank, 2);
    assert_string_equal(x.banks[0].tag, "DDR[0]");
    assert_int_equal(x.banks[0].size_bytes, 64 << 20);
    assert_true(x.banks[0].is_used && !x.banks[0].is_host);
    assert_string_equal(x.banks[1].tag, "HOST[0]");
    assert_int_equal(x.banks[1].size_bytes, 16ull << 30);
    assert_true(x.banks[1].is_used && x.banks[1].is_host);
}

static void without_host_memory(void **state)
{
    (void)state;
    const struct xclbin x = expect_accepted(xclbin_file_make(1, 1));
    assert_int_equal(x.n_bank, 1);
    for (int arg = KL_ARG_IMAGE; arg <= KL_ARG_STATE; arg++)
        assert_int_equal(x.units[0].bank[arg], 0);
}

static void unaligned_bytes(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    uint8_t *moved = malloc(file.size_bytes + 1);
    struct xclbin out;
    char error[XCLBIN_ERROR_CHARS];
    assert_non_null(moved);
    memcpy(moved + 1, file.bytes, file.size_bytes);
    assert_int_equal(xclbin_parse(moved + 1, file.size_bytes, "f", &out, error), 0);
    free(moved);
    free(file.bytes);
}

/* ---- the container ---- */

static void cut_short(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    for (size_t n = 0; n < file.size_bytes; n++) {
        struct xclbin_file part = {malloc(n + 1), n}; /* of its own, so that ASan sees every byte beyond */
        assert_non_null(part.bytes);
        memcpy(part.bytes, file.bytes, n);
        expect_refused_as(part, n < sizeof(struct axlf) ? "header alone has 496" : "cut short");
        free(part.bytes);
    }
    free(file.bytes);
}

static void length_and_signature(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    file.bytes = realloc(file.bytes, file.size_bytes + 100);
    assert_non_null(file.bytes);
    memset(file.bytes + file.size_bytes, 0x55, 100);
    file.size_bytes += 100;
    expect_refused_as(file, "copy it again");
    xclbin_file_top(&file)->m_signature_length = 99;
    expect_refused_as(file, "a signature of 99");
    xclbin_file_top(&file)->m_signature_length = 100;
    expect_accepted(file);
}

static void header_fields(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    struct axlf *top = xclbin_file_top(&file);
    top->m_magic[6] = '1';
    expect_refused_as(file, "does not begin with xclbin2");
    top->m_magic[6] = '2';
    const uint32_t n = top->m_header.m_numSections;
    const uint32_t wrong[] = {0, 257, 0x10000, UINT32_MAX, 200};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        top->m_header.m_numSections = wrong[i];
        expect_refused_as(file, "sections: 1 to 256");
    }
    top->m_header.m_numSections = n;
    struct xclbin_file many = xclbin_file_make(1, 0);
    while (xclbin_file_top(&many)->m_header.m_numSections < 256)
        xclbin_file_add(&many, 1000, "some", 4);
    struct xclbin x;
    char error[XCLBIN_ERROR_CHARS];
    assert_int_equal(xclbin_parse(many.bytes, many.size_bytes, "f", &x, error), 0);
    xclbin_file_add(&many, 1000, "some", 4);
    expect_refused(many, "257 sections: 1 to 256");
    memset(top->m_header.m_platformVBNV, 'x', sizeof top->m_header.m_platformVBNV);
    expect_refused(file, "the platform's name is not terminated");
}

static void sections_out_of_bounds(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    const struct axlf_section_header good = *xclbin_file_header(&file, IP_LAYOUT);
    struct axlf_section_header *header = xclbin_file_header(&file, IP_LAYOUT);
    const struct {
        uint64_t offset, size_bytes;
    } wrong[] = {
        {0, good.m_sectionSize},
        {sizeof(struct axlf), good.m_sectionSize},
        {file.size_bytes - good.m_sectionSize + 1, good.m_sectionSize},
        {file.size_bytes, 1},
        {UINT64_MAX, 1},
        {UINT64_MAX - 10, 20},
        {good.m_sectionOffset, UINT64_MAX - good.m_sectionOffset + 2},
        {good.m_sectionOffset, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        header->m_sectionOffset = wrong[i].offset;
        header->m_sectionSize = wrong[i].size_bytes;
        expect_refused_as(file, "(kind 8)");
    }
    *header = good;
    header->m_sectionSize += 8;
    expect_refused(file, "sections overlap");
}

static void sections_twice_or_missing(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind;
        const char *name;
    } needed[] = {{BITSTREAM, "BITSTREAM"},
                  {EMBEDDED_METADATA, "EMBEDDED_METADATA"},
                  {MEM_TOPOLOGY, "MEM_TOPOLOGY"},
                  {CONNECTIVITY, "CONNECTIVITY"},
                  {IP_LAYOUT, "IP_LAYOUT"}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        char why[64];
        struct xclbin_file file = xclbin_file_make(1, 0);
        xclbin_file_add(&file, needed[i].kind, "another one", 11);
        snprintf(why, sizeof why, "section %s is there twice", needed[i].name);
        expect_refused(file, why);
        snprintf(why, sizeof why, "section %s is missing", needed[i].name);
        file = xclbin_file_make(1, 0);
        xclbin_file_header(&file, needed[i].kind)->m_sectionKind = 1000;
        expect_refused(file, why);
        file = xclbin_file_make(1, 0);
        xclbin_file_header(&file, needed[i].kind)->m_sectionSize = 0; /* empty is not there */
        expect_refused(file, why);
    }
}

static void counts(void **state)
{
    (void)state;
    static const uint32_t kind[] = {IP_LAYOUT, MEM_TOPOLOGY, CONNECTIVITY};
    for (size_t i = 0; i < sizeof kind / sizeof kind[0]; i++) {
        struct xclbin_file file = xclbin_file_make(1, 0);
        int32_t *count = xclbin_file_section(&file, kind[i]);
        const int32_t good = *count, wrong[] = {0, -1, INT32_MIN, INT32_MAX, good + 1};
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            *count = wrong[k];
            expect_refused_as(file, ": a count of");
        }
        *count = good;
        xclbin_file_header(&file, kind[i])->m_sectionSize = 3;
        expect_refused_as(file, ": 3 bytes");
        xclbin_file_header(&file, kind[i])->m_sectionSize = 4;
        expect_refused(file, ": a count of");
    }
}

/* ---- units ---- */

static struct ip_data *entry(struct xclbin_file *file, uint32_t i)
{
    return (struct ip_data *)((uint8_t *)xclbin_file_section(file, IP_LAYOUT) +
                              offsetof(struct ip_layout, m_ip_data)) +
           i;
}

static void units_refused(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(2, 0);
    struct ip_data *second = entry(&file, 1);
    const struct ip_data good = *second;
    second->m_base_address = entry(&file, 0)->m_base_address + 0x3000;
    expect_refused_as(file, "kl_kernel:kl_kernel_1 and kl_kernel:kl_kernel_2 overlap");
    second->m_base_address = entry(&file, 0)->m_base_address - 0x3000;
    expect_refused_as(file, "overlap");
    second->m_base_address = UINT64_MAX;
    expect_refused_as(file, "no usable address");
    second->m_base_address = UINT64_MAX - 0x1fff;
    expect_refused_as(file, "no usable address");
    second->m_base_address = good.m_base_address + 4;
    expect_refused_as(file, "no usable address");
    *second = good;
    second->properties = AP_CTRL_NONE << IP_CONTROL_SHIFT;
    expect_refused_as(file, "control protocol 2");
    second->m_type =
        IP_PS_KERNEL; /* not on the FPGA, whatever its name: no unit, so its protocol is nothing */
    struct xclbin x;
    char error[XCLBIN_ERROR_CHARS];
    assert_int_equal(xclbin_parse(file.bytes, file.size_bytes, "f", &x, error), 0);
    assert_int_equal(x.n_unit, 1);
    *second = good;
    memset(second->m_name, 'x', sizeof second->m_name);
    expect_refused_as(file, "the name of entry 1 is not terminated");
    *second = good;
    memcpy(second->m_name, "kl_kernel:kl_kernel_1", 22);
    expect_refused_as(file, "kl_kernel:kl_kernel_1 is there twice");
    memcpy(second->m_name, "vadd:vadd_1", 12);
    memcpy(entry(&file, 0)->m_name, "kl_kernel2:kl_ker", 18);
    expect_refused(file, "no unit of kl_kernel");

    struct {
        int32_t count;
        struct ip_data rows[XCLBIN_UNITS_MAX + 1];
    } many = {.count = XCLBIN_UNITS_MAX + 1};
    for (uint32_t i = 0; i <= XCLBIN_UNITS_MAX; i++) {
        many.rows[i] = good;
        many.rows[i].m_base_address += i * 0x10000;
        snprintf((char *)many.rows[i].m_name, sizeof many.rows[i].m_name, "kl_kernel:u%u", i);
    }
    file = xclbin_file_make(1, 0);
    xclbin_file_replace(&file, IP_LAYOUT, &many, sizeof many);
    expect_refused(file, "more than 16 units");
}

static void units_touching(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(2, 0);
    entry(&file, 1)->m_base_address = entry(&file, 0)->m_base_address + KL_MAP_BYTES;
    entry(&file, 1)->properties = AP_CTRL_CHAIN << IP_CONTROL_SHIFT | 0x3;
    const struct xclbin x = expect_accepted(file);
    assert_int_equal(x.units[1].base, 0x1804000);
}

/* ---- banks and connections ---- */

static struct mem_data *bank(struct xclbin_file *file, uint32_t i)
{
    return (struct mem_data *)((uint8_t *)xclbin_file_section(file, MEM_TOPOLOGY) +
                               offsetof(struct mem_topology, m_mem_data)) +
           i;
}

static struct connection *connection(struct xclbin_file *file, uint32_t i)
{
    return (struct connection *)((uint8_t *)xclbin_file_section(file, CONNECTIVITY) +
                                 offsetof(struct connectivity, m_connection)) +
           i;
}

static void banks_refused(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    struct mem_data *host = bank(&file, 1);
    const struct mem_data good = *host;
    memset(host->m_tag, 'x', sizeof host->m_tag);
    expect_refused_as(file, "the tag of bank 1 is not terminated");
    *host = good;
    host->m_size = UINT64_MAX / 1024 + 1;
    expect_refused_as(file, "bank 1 (HOST[0]) of 18014398509481984 KiB ends beyond");
    host->m_size = 1024;
    host->m_base_address = UINT64_MAX - 1024 * 1024 + 1;
    expect_refused_as(file, "ends beyond the address space");
    *host = good;
    host->m_used = 0;
    expect_refused_as(file,
                      "argument 5 of kl_kernel:kl_kernel_1 is tied to bank 1 (HOST[0]), which is not in");
    *host = good;
    host->m_size = 0;
    expect_refused(file, "which is not in use");

    static struct {
        int32_t count, pad;
        struct mem_data rows[XCLBIN_BANKS_MAX + 1];
    } many = {.count = XCLBIN_BANKS_MAX + 1};
    file = xclbin_file_make(1, 0);
    xclbin_file_replace(&file, MEM_TOPOLOGY, &many, sizeof many);
    expect_refused(file, "65 banks: up to 64");
}

static void connections_refused(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    struct connection *second = connection(&file, 1);
    const struct connection good = *second;
    second->mem_data_index = 2;
    expect_refused_as(file, "section CONNECTIVITY: entry 1 names bank 2 of 2");
    second->mem_data_index = -1;
    expect_refused_as(file, "names bank -1");
    *second = good;
    second->m_ip_layout_index = 1;
    expect_refused_as(file, "names unit 1 of 1");
    second->m_ip_layout_index = -1;
    expect_refused_as(file, "names unit -1");
    *second = good;
    second->arg_index = KL_ARG_N_REQUEST;
    expect_refused_as(file, "gives argument 3 of kl_kernel:kl_kernel_1 memory");
    second->arg_index = -1;
    expect_refused_as(file, "gives argument -1");
    second->arg_index = XCLBIN_N_ARG;
    expect_refused(file, "argument 5 of kl_kernel:kl_kernel_1 has no bank");
}

/* ---- the software device's library ---- */

static void library_refused(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    struct xclbin_library *library = xclbin_file_section(&file, BITSTREAM);
    const struct xclbin_library good = *library;
    library->format = 2;
    expect_refused_as(file, "section BITSTREAM: format 2, this program's is 1");
    *library = good;
    library->abi_version = KL_ABI_VERSION - 1;
    expect_refused_as(file, "section BITSTREAM: a kernel of ABI version 2, this program's is 3");
    *library = good;
    memset(library->build, 'x', sizeof library->build);
    expect_refused_as(file, "the build's name is empty or not terminated");
    library->build[0] = '\0';
    expect_refused_as(file, "the build's name is empty or not terminated");
    *library = good;
    memcpy(library->build, "fast", 5);
    expect_refused_as(file, "the symbol is not that of build fast");
    *library = good;
    memset(library->symbol, 'k', sizeof library->symbol);
    expect_refused_as(file, "the symbol is not that of build small");
    *library = good;
    library->size_bytes--;
    expect_refused_as(file, "a library of 20 bytes in 21");
    *library = good;
    xclbin_file_header(&file, BITSTREAM)->m_sectionSize = sizeof good - 1;
    expect_refused(file, "63 bytes of a software device's header of 64");
}

static void a_cards_bitstream(void **state)
{
    (void)state;
    static const uint32_t kind[] = {BITSTREAM, PDI, BITSTREAM_PARTIAL_PDI};
    for (size_t i = 0; i < sizeof kind / sizeof kind[0]; i++) {
        struct xclbin_file file = xclbin_file_make(1, 0);
        xclbin_file_header(&file, BITSTREAM)->m_sectionKind = 1000;
        xclbin_file_add(&file, kind[i], "\x00\x09\x0f\xf0", 4);
        const struct xclbin x = expect_accepted(file);
        assert_string_equal(x.build, "");
        assert_int_equal(x.abi_version, 0);
    }
}

/* ---- what v++ writes besides ---- */

static void groups_are_preferred(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(1, 0);
    struct {
        int32_t count, pad;
        struct mem_data rows[4];
    } groups = {.count = 4,
                .rows = {*bank(&file, 0),
                         *bank(&file, 1),
                         {.m_type = MEM_STREAMING, .m_used = 1, .route_id = UINT64_MAX, .m_tag = "dc_0"},
                         {.m_type = MEM_HBM, .m_used = 1, .m_size = 1024, .m_tag = "HBM[0:3]"}}};
    struct {
        int32_t count;
        struct connection rows[6];
    } connections = {.count = 6,
                     .rows = {{KL_ARG_IMAGE, 0, 3},
                              {KL_ARG_IMAGE, 0, 0}, /* the last bank counts, not the last entry */
                              {KL_ARG_REQUEST, 0, 1},
                              {KL_ARG_RESULT, 0, 1},
                              {KL_ARG_STATE, 0, 0},
                              {9, 0, 0}}};
    xclbin_file_add(&file, ASK_GROUP_TOPOLOGY, &groups, sizeof groups);
    xclbin_file_add(&file, ASK_GROUP_CONNECTIVITY, &connections, sizeof connections);
    const struct xclbin x = expect_accepted(file);
    assert_int_equal(x.n_bank, 4);
    assert_string_equal(x.banks[3].tag, "HBM[0:3]");
    assert_int_equal(x.banks[2].size_bytes, 0);
    assert_int_equal(x.units[0].bank[KL_ARG_IMAGE], 3);
    assert_int_equal(x.units[0].bank[KL_ARG_STATE], 0);

    file = xclbin_file_make(1, 0);
    connections.rows[2].mem_data_index = 7;
    xclbin_file_add(&file, ASK_GROUP_TOPOLOGY, &groups, sizeof groups);
    xclbin_file_add(&file, ASK_GROUP_CONNECTIVITY, &connections, sizeof connections);
    expect_refused(file, "section GROUP_CONNECTIVITY: entry 2 names bank 7 of 4");
}

static void other_kernels_and_sections(void **state)
{
    (void)state;
    struct xclbin_file file = xclbin_file_make(2, 0);
    struct {
        int32_t count;
        struct ip_data rows[4];
    } layout = {.count = 4,
                .rows = {{.m_type = IP_MEM_HBM, .m_base_address = UINT64_MAX, .m_name = "HBM"},
                         {.m_type = IP_KERNEL,
                          .properties = AP_CTRL_NONE << IP_CONTROL_SHIFT,
                          .m_base_address = UINT64_MAX,
                          .m_name = "free:free_1"},
                         *entry(&file, 1),
                         *entry(&file, 0)}};
    /* The units are 3 and 2 of the layout now. */
    for (uint32_t i = 0; i < 8; i++)
        connection(&file, i)->m_ip_layout_index = i < 4 ? 3 : 2;
    memcpy(layout.rows[3].m_name, "kl_kernel:b", 12);
    xclbin_file_replace(&file, IP_LAYOUT, &layout, sizeof layout);
    xclbin_file_add(&file, SOFT_KERNEL, "one", 3);
    xclbin_file_add(&file, SOFT_KERNEL, "two", 3);
    xclbin_file_add(&file, BUILD_METADATA, "{}", 2);
    xclbin_file_add(&file, UINT32_MAX, "later", 5);
    const struct xclbin x = expect_accepted(file);
    assert_int_equal(x.n_unit, 2);
    assert_string_equal(x.units[0].name, "kl_kernel:kl_kernel_2");
    assert_string_equal(x.units[1].name, "kl_kernel:b");
    assert_int_equal(x.units[1].bank[KL_ARG_RESULT], 1);
}

/* ---- files ---- */

static void files(void **state)
{
    (void)state;
    char path[] = "/tmp/test_xclbin.XXXXXX", error[XCLBIN_ERROR_CHARS], long_path[600];
    struct xclbin_file file = xclbin_file_make(1, 0);
    struct xclbin x;
    void *bytes = NULL;
    size_t size_bytes = 0;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(xclbin_read(path, &x, NULL, NULL, error), -1);
    assert_non_null(strstr(error, "0 bytes are no .xclbin"));
    assert_int_equal(write(fd, file.bytes, file.size_bytes), file.size_bytes);
    close(fd);
    assert_int_equal(xclbin_read(path, &x, NULL, NULL, error), 0);
    assert_int_equal(xclbin_read(path, &x, &bytes, &size_bytes, error), 0);
    assert_int_equal(size_bytes, file.size_bytes);
    assert_memory_equal(bytes, file.bytes, size_bytes);
    free(bytes);
    free(file.bytes);
    unlink(path);
    assert_int_equal(xclbin_read(path, &x, NULL, NULL, error), -1);
    assert_non_null(strstr(error, "No such file"));
    assert_int_equal(xclbin_read("/tmp", &x, NULL, NULL, error), -1);
    assert_non_null(strstr(error, "/tmp: Is a directory"));
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(xclbin_read(long_path, &x, NULL, NULL, error), -1);
    assert_non_null(strstr(error, "too long"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written),
        cmocka_unit_test(without_host_memory),
        cmocka_unit_test(unaligned_bytes),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(length_and_signature),
        cmocka_unit_test(header_fields),
        cmocka_unit_test(sections_out_of_bounds),
        cmocka_unit_test(sections_twice_or_missing),
        cmocka_unit_test(counts),
        cmocka_unit_test(units_refused),
        cmocka_unit_test(units_touching),
        cmocka_unit_test(banks_refused),
        cmocka_unit_test(connections_refused),
        cmocka_unit_test(library_refused),
        cmocka_unit_test(a_cards_bitstream),
        cmocka_unit_test(groups_are_preferred),
        cmocka_unit_test(other_kernels_and_sections),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
