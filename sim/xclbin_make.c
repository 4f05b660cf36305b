#include "xclbin_make.h"

#include <dlfcn.h>
#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xclbin.h>

/* ---- EMBEDDED_METADATA ---- */

/* The kernel's arguments; names are kl_kernel's parameters, ports v++'s names of its bundles. */
static const struct {
    const char *name, *port, *type;
    int id, offset, is_pointer;
} arguments[XCLBIN_N_ARG] = {
    {"command", "S_AXI_CONTROL", "uint", KL_ARG_COMMAND, KL_MAP_COMMAND, 0},
    {"slot", "S_AXI_CONTROL", "uint", KL_ARG_SLOT, KL_MAP_SLOT, 0},
    {"image_size_bytes", "S_AXI_CONTROL", "uint", KL_ARG_IMAGE_SIZE_BYTES, KL_MAP_IMAGE_SIZE_BYTES, 0},
    {"n_request", "S_AXI_CONTROL", "uint", KL_ARG_N_REQUEST, KL_MAP_N_REQUEST, 0},
    {"image", "M_AXI_LOAD", "void*", KL_ARG_IMAGE, KL_MAP_IMAGE, 1},
    {"request", "M_AXI_REQUEST", "void*", KL_ARG_REQUEST, KL_MAP_REQUEST, 1},
    {"result", "M_AXI_RESULT", "void*", KL_ARG_RESULT, KL_MAP_RESULT, 1},
    {"state", "M_AXI_STATE", "void*", KL_ARG_STATE, KL_MAP_STATE, 1},
};

/* The description that XRT parses: every attribute of an argument has to be there, or its parser throws. */
static void write_metadata(FILE *out, const struct xclbin_make_options *o)
{
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<project name=\"kl_kernel_%s\">\n"
            "<platform vendor=\"killline\" boardid=\"sim\" name=\"sim\" featureRomTime=\"0\">\n"
            "<version major=\"1\" minor=\"0\"/>\n"
            "<device name=\"fpga0\" fpgaDevice=\"killline:sim:sim\">\n"
            "<core name=\"OCL_REGION_0\" target=\"hw_em\" type=\"clc_region\">\n"
            "<kernelClocks/>\n"
            "<kernel name=\"kl_kernel\" language=\"c\" type=\"pl\" hwControlProtocol=\"ap_ctrl_hs\">\n",
            o->build);
    for (int i = 0; i < XCLBIN_N_ARG; i++)
        if (arguments[i].is_pointer)
            fprintf(out,
                    "<port name=\"%s\" mode=\"master\" range=\"0xFFFFFFFFFFFFFFFF\" dataWidth=\"64\" "
                    "portType=\"addressable\" base=\"0x0\"/>\n",
                    arguments[i].port);
    fprintf(out,
            "<port name=\"S_AXI_CONTROL\" mode=\"slave\" range=\"0x%x\" dataWidth=\"32\" "
            "portType=\"addressable\" base=\"0x0\"/>\n",
            KL_MAP_BYTES);
    for (int i = 0; i < XCLBIN_N_ARG; i++) {
        const int size_bytes = arguments[i].is_pointer ? 8 : 4;
        fprintf(out,
                "<arg name=\"%s\" addressQualifier=\"%d\" id=\"%d\" port=\"%s\" size=\"0x%x\" "
                "offset=\"0x%x\" hostOffset=\"0x0\" hostSize=\"0x%x\" type=\"%s\"/>\n",
                arguments[i].name, arguments[i].is_pointer, arguments[i].id, arguments[i].port, size_bytes,
                arguments[i].offset, size_bytes, arguments[i].type);
    }
    for (uint32_t i = 0; i < o->n_unit; i++)
        fprintf(out,
                "<instance name=\"kl_kernel_%u\"><addrRemap base=\"0x%x\" port=\"S_AXI_CONTROL\"/>"
                "</instance>\n",
                i + 1, XCLBIN_MAKE_UNIT_BASE + i * XCLBIN_MAKE_UNIT_BYTES);
    fputs("</kernel>\n</core>\n</device>\n</platform>\n</project>\n", out);
}

/* ---- the tables ---- */

/* A table is a count, then rows from where its public struct has the first. */
static void write_count(FILE *out, int32_t count, size_t rows_at)
{
    static const uint8_t zeros[8];
    fwrite(&count, sizeof count, 1, out);
    fwrite(zeros, 1, rows_at - sizeof count, out);
}

static void write_units(FILE *out, const struct xclbin_make_options *o)
{
    write_count(out, (int32_t)o->n_unit, offsetof(struct ip_layout, m_ip_data));
    for (uint32_t i = 0; i < o->n_unit; i++) {
        struct ip_data row = {.m_type = IP_KERNEL,
                              .properties = AP_CTRL_HS << IP_CONTROL_SHIFT,
                              .m_base_address = XCLBIN_MAKE_UNIT_BASE + i * XCLBIN_MAKE_UNIT_BYTES};
        snprintf((char *)row.m_name, sizeof row.m_name, "kl_kernel:kl_kernel_%u", i + 1);
        fwrite(&row, sizeof row, 1, out);
    }
}

static void write_bank(FILE *out, const char *tag, uint8_t type, uint64_t base, uint64_t size_bytes)
{
    struct mem_data row = {.m_type = type, .m_used = 1, .m_size = size_bytes >> 10, .m_base_address = base};
    snprintf((char *)row.m_tag, sizeof row.m_tag, "%s", tag);
    fwrite(&row, sizeof row, 1, out);
}

/* XRT's driver knows the host's bank by its tag alone (xocl_drm.h, IS_HOST_MEM); its type is DRAM. */
static void write_banks(FILE *out, const struct xclbin_make_options *o)
{
    write_count(out, o->no_host_memory ? 1 : 2, offsetof(struct mem_topology, m_mem_data));
    write_bank(out, XCLBIN_MAKE_BANK, MEM_DDR4, XCLBIN_MAKE_BANK_BASE, (uint64_t)o->bank_mib << 20);
    if (!o->no_host_memory)
        write_bank(out, XCLBIN_MAKE_HOST, MEM_DRAM, XCLBIN_MAKE_HOST_BASE, XCLBIN_MAKE_HOST_BYTES);
}

/* Images are read from the card's memory, what is exchanged per request lies with the host. */
static void write_connections(FILE *out, const struct xclbin_make_options *o)
{
    const int32_t n_pointer = KL_ARG_STATE - KL_ARG_IMAGE + 1;
    write_count(out, (int32_t)o->n_unit * n_pointer, offsetof(struct connectivity, m_connection));
    for (uint32_t i = 0; i < o->n_unit; i++)
        for (int32_t arg = KL_ARG_IMAGE; arg <= KL_ARG_STATE; arg++) {
            const struct connection row = {.arg_index = arg,
                                           .m_ip_layout_index = (int32_t)i,
                                           .mem_data_index = arg != KL_ARG_IMAGE && !o->no_host_memory};
            fwrite(&row, sizeof row, 1, out);
        }
}

/* ---- the container ---- */

enum { N_SECTION = 5 };

struct section {
    uint32_t kind;
    void (*write)(FILE *out, const struct xclbin_make_options *o);
    char *bytes;
    size_t size_bytes;
};

/* Sections start at multiples of 8 (xclbin.h). */
static size_t aligned(size_t size_bytes)
{
    return (size_bytes + 7) & ~(size_t)7;
}

static int write_section(struct section *section, const struct xclbin_make_options *o)
{
    FILE *out = open_memstream(&section->bytes, &section->size_bytes);
    if (!out)
        return -1;
    section->write(out, o);
    const int failed = ferror(out);
    return fclose(out) || failed ? -1 : 0;
}

/* A UUID of version 8, a hash by the writer's own rule (RFC 9562): SHA-256 of the file while it has none. */
static void identify(struct axlf *top, size_t size_bytes)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256((const uint8_t *)top, size_bytes, digest);
    memcpy(top->m_header.uuid, digest, sizeof top->m_header.uuid);
    top->m_header.uuid[6] = (uint8_t)(0x80 | (digest[6] & 0x0f));
    top->m_header.uuid[8] = (uint8_t)(0x80 | (digest[8] & 0x3f));
    memcpy(&top->m_uniqueId, digest + sizeof top->m_header.uuid, sizeof top->m_uniqueId);
}

static void write_header(struct axlf *top, size_t size_bytes)
{
    memcpy(top->m_magic, "xclbin2", 8);
    top->m_signature_length = -1; /* none */
    memset(top->reserved, 0xff, sizeof top->reserved);
    memset(top->m_keyBlock, 0xff, sizeof top->m_keyBlock);
    top->m_header.m_length = size_bytes;
    top->m_header.m_versionMajor = 2;
    top->m_header.m_mode = XCLBIN_HW_EMU; /* a card's driver is not to take it for a card's */
    top->m_header.m_numSections = N_SECTION;
    memcpy(top->m_header.m_platformVBNV, XCLBIN_MAKE_PLATFORM, sizeof XCLBIN_MAKE_PLATFORM);
}

/* Puts the sections into one piece, the library behind them. NULL: out of memory. */
static uint8_t *assemble(const struct section section[N_SECTION], const void *library, size_t library_bytes,
                         size_t *size_bytes)
{
    size_t at = aligned(sizeof(struct axlf) + (N_SECTION - 1) * sizeof(struct axlf_section_header));
    *size_bytes = at;
    for (int i = 0; i < N_SECTION; i++)
        *size_bytes += aligned(section[i].size_bytes + (i == N_SECTION - 1 ? library_bytes : 0));
    uint8_t *bytes = calloc(1, *size_bytes);
    if (!bytes)
        return NULL;
    struct axlf *top = (struct axlf *)bytes;
    write_header(top, *size_bytes);
    uint8_t *headers = bytes + offsetof(struct axlf, m_sections);
    for (int i = 0; i < N_SECTION; i++) {
        const size_t more = i == N_SECTION - 1 ? library_bytes : 0;
        const struct axlf_section_header header = {.m_sectionKind = section[i].kind,
                                                   .m_sectionOffset = at,
                                                   .m_sectionSize = section[i].size_bytes + more};
        memcpy(headers + (size_t)i * sizeof header, &header, sizeof header);
        memcpy(bytes + at, section[i].bytes, section[i].size_bytes);
        if (more)
            memcpy(bytes + at + section[i].size_bytes, library, more);
        at += aligned(section[i].size_bytes + more);
    }
    identify(top, *size_bytes);
    return bytes;
}

static int check(const struct xclbin_make_options *o, char error[XCLBIN_ERROR_CHARS])
{
    const size_t build_max = sizeof((struct xclbin_library *)NULL)->build - 1;
    if (o->n_unit < 1 || o->n_unit > XCLBIN_UNITS_MAX)
        snprintf(error, XCLBIN_ERROR_CHARS, "%u units: 1 to %d are possible", o->n_unit, XCLBIN_UNITS_MAX);
    else if (o->bank_mib < 1 || o->bank_mib > XCLBIN_MAKE_BANK_MIB_MAX)
        snprintf(error, XCLBIN_ERROR_CHARS, "a bank of %u MiB: 1 to %d are possible", o->bank_mib,
                 XCLBIN_MAKE_BANK_MIB_MAX);
    else if (!o->build[0] || strlen(o->build) > build_max)
        snprintf(error, XCLBIN_ERROR_CHARS, "build '%s': a name of 1 to %zu characters is wanted", o->build,
                 build_max);
    else
        return 0;
    return -1;
}

int xclbin_make(const struct xclbin_make_options *options, const void *library, size_t library_bytes,
                void **bytes, size_t *size_bytes, char error[XCLBIN_ERROR_CHARS])
{
    if (check(options, error))
        return -1;
    struct xclbin_library header = {.magic = XCLBIN_LIBRARY_MAGIC,
                                    .format = XCLBIN_LIBRARY_FORMAT,
                                    .abi_version = options->abi_version,
                                    .size_bytes = library_bytes};
    snprintf(header.build, sizeof header.build, "%s", options->build);
    snprintf(header.symbol, sizeof header.symbol, "kl_build_%s", header.build);
    struct section section[N_SECTION] = {
        {.kind = EMBEDDED_METADATA, .write = write_metadata},
        {.kind = IP_LAYOUT, .write = write_units},
        {.kind = MEM_TOPOLOGY, .write = write_banks},
        {.kind = CONNECTIVITY, .write = write_connections},
        {.kind = BITSTREAM, .bytes = (char *)&header, .size_bytes = sizeof header},
    };
    int failed = 0;
    for (int i = 0; i < N_SECTION - 1; i++)
        failed |= write_section(&section[i], options);
    *bytes = failed ? NULL : assemble(section, library, library_bytes, size_bytes);
    for (int i = 0; i < N_SECTION - 1; i++)
        free(section[i].bytes);
    if (!*bytes)
        snprintf(error, XCLBIN_ERROR_CHARS, "out of memory for a container of %zu bytes", library_bytes);
    return *bytes ? 0 : -1;
}

/* ---- the kernel's library ---- */

/* name, unit_size_bytes, init and info lead struct kl_build in every ABI version, abi_version struct kl_info.
 */
static int probe_build(const struct kl_build *found, const char *path, const char *build,
                       uint32_t *abi_version, char error[XCLBIN_ERROR_CHARS])
{
    struct kl_info info = {0};
    struct kl_unit *unit = aligned_alloc(64, found->unit_size_bytes());
    if (!unit) {
        snprintf(error, XCLBIN_ERROR_CHARS, "%s: out of memory for a unit of it", path);
        return -1;
    }
    found->init(unit, 0, 1);
    found->info(unit, &info);
    free(unit);
    *abi_version = info.abi_version;
    if (strcmp(found->name, build) == 0)
        return 0;
    snprintf(error, XCLBIN_ERROR_CHARS, "%s: calls itself %s: the library of build %s is wanted", path,
             found->name, build);
    return -1;
}

int xclbin_make_probe(const char *path, const char *build, uint32_t *abi_version,
                      char error[XCLBIN_ERROR_CHARS])
{
    char symbol[64];
    int status = -1;
    char *absolute = realpath(path, NULL); /* a bare name would be looked for in the loader's own places */
    if (!absolute) {
        snprintf(error, XCLBIN_ERROR_CHARS, "%s: %s", path, strerror(errno));
        return -1;
    }
    void *library = dlopen(absolute, RTLD_NOW | RTLD_LOCAL);
    free(absolute);
    if (!library) {
        snprintf(error, XCLBIN_ERROR_CHARS, "%s: not a library that can be loaded: %s", path, dlerror());
        return -1;
    }
    snprintf(symbol, sizeof symbol, "kl_build_%s", build);
    const struct kl_build *found = dlsym(library, symbol);
    if (found)
        status = probe_build(found, path, build, abi_version, error);
    else
        snprintf(error, XCLBIN_ERROR_CHARS, "%s: has no %s: the kernel library of build %s is wanted", path,
                 symbol, build);
    dlclose(library);
    return status;
}
