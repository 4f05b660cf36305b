#include "xclbin.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include <xclbin.h>

#include "xclbin_metadata.h"

enum {
    N_SECTION_MAX = 256, /* v++ writes some twenty */
    N_KIND = VENDER_METADATA + 1,
    UNIT_ALIGNMENT = 4096, /* address ranges of AXI come in 4 KiB */
};
#define FILE_BYTES_MAX ((size_t)2 << 30) /* the largest card's bitstreams are below 200 MB */

struct span {
    const uint8_t *bytes; /* NULL: no such section */
    uint64_t offset, size_bytes;
};

/* A section that is a count, then rows. */
struct table {
    const char *section;
    const uint8_t *rows;
    uint32_t count;
};

struct reader {
    const uint8_t *bytes;
    size_t size_bytes;
    const char *name;
    char *error;
    struct xclbin *out;
    struct span section[N_KIND];
    struct table units, banks, connections;
    uint64_t range_bytes;
    uint32_t layout_index[XCLBIN_UNITS_MAX]; /* of a unit of ours, in IP_LAYOUT */
};

/* Returns -1. */
static int refuse(const struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(const struct reader *r, const char *format, ...)
{
    va_list args;
    const int used = snprintf(r->error, XCLBIN_ERROR_CHARS, "%.255s: ", r->name);
    va_start(args, format);
    vsnprintf(r->error + used, (size_t)(XCLBIN_ERROR_CHARS - used), format, args);
    va_end(args);
    return -1;
}

/* ---- the container ---- */

static const char *kind_name(uint32_t kind)
{
    static const char *const name[N_KIND] = {
        [BITSTREAM] = "BITSTREAM",
        [EMBEDDED_METADATA] = "EMBEDDED_METADATA",
        [MEM_TOPOLOGY] = "MEM_TOPOLOGY",
        [CONNECTIVITY] = "CONNECTIVITY",
        [IP_LAYOUT] = "IP_LAYOUT",
        [PDI] = "PDI",
        [BITSTREAM_PARTIAL_PDI] = "BITSTREAM_PARTIAL_PDI",
        [ASK_GROUP_TOPOLOGY] = "GROUP_TOPOLOGY",
        [ASK_GROUP_CONNECTIVITY] = "GROUP_CONNECTIVITY",
    };
    return kind < N_KIND ? name[kind] : NULL;
}

/* A signature, where there is one, lies behind m_length. */
static int read_length(const struct reader *r, const struct axlf *top)
{
    const uint64_t length = top->m_header.m_length;
    const uint64_t signature = top->m_signature_length > 0 ? (uint64_t)top->m_signature_length : 0;
    if (length > r->size_bytes)
        return refuse(r, "cut short: %zu bytes, its header says %llu: copy it again", r->size_bytes,
                      (unsigned long long)length);
    if (r->size_bytes - length != signature)
        return refuse(r, "%zu bytes, its header says %llu and a signature of %llu: copy it again",
                      r->size_bytes, (unsigned long long)length, (unsigned long long)signature);
    return 0;
}

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int check_overlaps(const struct reader *r, struct span *span, uint32_t n)
{
    qsort(span, n, sizeof *span, compare_spans);
    for (uint32_t i = 1; i < n; i++)
        if (span[i - 1].offset + span[i - 1].size_bytes > span[i].offset)
            return refuse(r, "sections overlap at offset %llu", (unsigned long long)span[i].offset);
    return 0;
}

static int read_section(struct reader *r, const struct axlf_section_header *header, uint32_t index,
                        uint64_t headers_end, uint64_t length, struct span *span)
{
    const uint32_t kind = header->m_sectionKind;
    *span = (struct span){.offset = header->m_sectionOffset, .size_bytes = header->m_sectionSize};
    if (span->size_bytes &&
        (span->offset < headers_end || span->offset > length || span->size_bytes > length - span->offset))
        return refuse(r, "section %u (kind %u): %llu bytes at %llu lie outside of the file's %llu", index,
                      kind, (unsigned long long)span->size_bytes, (unsigned long long)span->offset,
                      (unsigned long long)length);
    if (!kind_name(kind) || !span->size_bytes) /* not one of ours; empty: not present (xclbin.h) */
        return 0;
    if (r->section[kind].bytes)
        return refuse(r, "section %s is there twice", kind_name(kind));
    r->section[kind] = *span;
    r->section[kind].bytes = r->bytes + span->offset;
    return 0;
}

static int read_container(struct reader *r)
{
    struct axlf top;
    struct span span[N_SECTION_MAX];
    const size_t headers_at = offsetof(struct axlf, m_sections);
    uint32_t n_span = 0;
    if (r->size_bytes < sizeof top)
        return refuse(r, "%zu bytes are no .xclbin: its header alone has %zu", r->size_bytes, sizeof top);
    memcpy(&top, r->bytes, sizeof top);
    if (memcmp(top.m_magic, "xclbin2", 8) != 0)
        return refuse(r, "does not begin with xclbin2: not an .xclbin");
    if (read_length(r, &top))
        return -1;
    const uint32_t n = top.m_header.m_numSections;
    const uint64_t headers_end = headers_at + (uint64_t)n * sizeof(struct axlf_section_header);
    if (n < 1 || n > N_SECTION_MAX || headers_end > top.m_header.m_length)
        return refuse(r, "%u sections: 1 to %d that the file has room for are possible", n, N_SECTION_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct axlf_section_header header;
        memcpy(&header, r->bytes + headers_at + i * sizeof header, sizeof header);
        if (read_section(r, &header, i, headers_end, top.m_header.m_length, &span[n_span]))
            return -1;
        n_span += span[n_span].size_bytes != 0;
    }
    if (check_overlaps(r, span, n_span))
        return -1;
    if (!memchr(top.m_header.m_platformVBNV, 0, sizeof top.m_header.m_platformVBNV))
        return refuse(r, "the platform's name is not terminated");
    snprintf(r->out->platform, sizeof r->out->platform, "%s", (const char *)top.m_header.m_platformVBNV);
    uuid_unparse_lower(top.m_header.uuid, r->out->uuid);
    return 0;
}

/* A group section, where there is one, is what XRT takes its group ids from. */
static const struct span *preferred(const struct reader *r, uint32_t group, uint32_t plain, const char **name)
{
    const uint32_t kind = r->section[group].bytes ? group : plain;
    *name = kind_name(kind);
    return &r->section[kind];
}

static int read_table(const struct reader *r, const struct span *span, size_t rows_at, size_t row_bytes,
                      struct table *table)
{
    int32_t count;
    if (!span->bytes)
        return refuse(r, "section %s is missing", table->section);
    if (span->size_bytes < sizeof count)
        return refuse(r, "section %s: %llu bytes", table->section, (unsigned long long)span->size_bytes);
    memcpy(&count, span->bytes, sizeof count);
    if (count < 1 || span->size_bytes < rows_at || (uint64_t)count > (span->size_bytes - rows_at) / row_bytes)
        return refuse(r, "section %s: a count of %d in %llu bytes", table->section, count,
                      (unsigned long long)span->size_bytes);
    table->rows = span->bytes + rows_at;
    table->count = (uint32_t)count;
    return 0;
}

static int find_sections(struct reader *r)
{
    const struct span *banks = preferred(r, ASK_GROUP_TOPOLOGY, MEM_TOPOLOGY, &r->banks.section);
    const struct span *connections =
        preferred(r, ASK_GROUP_CONNECTIVITY, CONNECTIVITY, &r->connections.section);
    r->units.section = kind_name(IP_LAYOUT);
    if (!r->section[EMBEDDED_METADATA].bytes)
        return refuse(r, "section EMBEDDED_METADATA is missing");
    if (!r->section[BITSTREAM].bytes && !r->section[PDI].bytes && !r->section[BITSTREAM_PARTIAL_PDI].bytes)
        return refuse(r, "section BITSTREAM is missing, and PDI and BITSTREAM_PARTIAL_PDI too");
    if (read_table(r, &r->section[IP_LAYOUT], offsetof(struct ip_layout, m_ip_data), sizeof(struct ip_data),
                   &r->units) ||
        read_table(r, banks, offsetof(struct mem_topology, m_mem_data), sizeof(struct mem_data), &r->banks))
        return -1;
    return read_table(r, connections, offsetof(struct connectivity, m_connection), sizeof(struct connection),
                      &r->connections);
}

/* ---- what is in it ---- */

static int read_metadata(struct reader *r)
{
    const struct span *xml = &r->section[EMBEDDED_METADATA];
    char what[256];
    if (xclbin_metadata_check((const char *)xml->bytes, xml->size_bytes, &r->range_bytes, what, sizeof what))
        return refuse(r, "section EMBEDDED_METADATA: %s", what);
    return 0;
}

static int read_banks(struct reader *r)
{
    struct xclbin *out = r->out;
    if (r->banks.count > XCLBIN_BANKS_MAX)
        return refuse(r, "section %s: %u banks: up to %d are possible", r->banks.section, r->banks.count,
                      XCLBIN_BANKS_MAX);
    for (uint32_t i = 0; i < r->banks.count; i++) {
        struct mem_data row;
        struct xclbin_bank *bank = &out->banks[i];
        memcpy(&row, r->banks.rows + i * sizeof row, sizeof row);
        if (!memchr(row.m_tag, 0, sizeof row.m_tag))
            return refuse(r, "section %s: the tag of bank %u is not terminated", r->banks.section, i);
        snprintf(bank->tag, sizeof bank->tag, "%s", (const char *)row.m_tag);
        bank->is_used = row.m_used != 0;
        if (row.m_type == MEM_STREAMING || row.m_type == MEM_STREAMING_CONNECTION)
            continue; /* no memory: its size and address are numbers of a route */
        if (row.m_size > UINT64_MAX >> 10 || row.m_size << 10 > UINT64_MAX - row.m_base_address)
            return refuse(r, "section %s: bank %u (%s) of %llu KiB ends beyond the address space",
                          r->banks.section, i, bank->tag, (unsigned long long)row.m_size);
        bank->base = row.m_base_address;
        bank->size_bytes = row.m_size << 10;
        /* XRT's driver goes by the tag; the type came later. */
        bank->is_host = !strncmp(bank->tag, "HOST[", 5) || row.m_type == MEM_HOST;
    }
    out->n_bank = r->banks.count;
    return 0;
}

static int add_unit(struct reader *r, const struct ip_data *row, uint32_t index)
{
    struct xclbin *out = r->out;
    const uint32_t control = (row->properties & IP_CONTROL_MASK) >> IP_CONTROL_SHIFT;
    const char *name = (const char *)row->m_name;
    if (out->n_unit == XCLBIN_UNITS_MAX)
        return refuse(r, "section IP_LAYOUT: more than %d units of kl_kernel", XCLBIN_UNITS_MAX);
    /* Vitis gives a kernel one or the other (UG1399); a host starts both the same way. */
    if (control != AP_CTRL_HS && control != AP_CTRL_CHAIN)
        return refuse(r, "section IP_LAYOUT: %s has control protocol %u: ap_ctrl_hs or ap_ctrl_chain", name,
                      control);
    if (row->m_base_address % UNIT_ALIGNMENT || row->m_base_address > UINT64_MAX - r->range_bytes)
        return refuse(r, "section IP_LAYOUT: %s has no usable address (0x%llx)", name,
                      (unsigned long long)row->m_base_address);
    struct xclbin_unit *unit = &out->units[out->n_unit];
    snprintf(unit->name, sizeof unit->name, "%s", name);
    unit->base = row->m_base_address;
    for (int arg = 0; arg < XCLBIN_N_ARG; arg++)
        unit->bank[arg] = -1;
    for (uint32_t i = 0; i < out->n_unit; i++) {
        const struct xclbin_unit *other = &out->units[i];
        const uint64_t apart = unit->base > other->base ? unit->base - other->base : other->base - unit->base;
        if (apart < r->range_bytes)
            return refuse(r, "section IP_LAYOUT: %s and %s overlap", other->name, name);
        if (!strcmp(other->name, name))
            return refuse(r, "section IP_LAYOUT: %s is there twice", name);
    }
    r->layout_index[out->n_unit++] = index;
    return 0;
}

static int read_units(struct reader *r)
{
    static const char prefix[] = "kl_kernel:";
    for (uint32_t i = 0; i < r->units.count; i++) {
        struct ip_data row;
        memcpy(&row, r->units.rows + i * sizeof row, sizeof row);
        if (!memchr(row.m_name, 0, sizeof row.m_name))
            return refuse(r, "section IP_LAYOUT: the name of entry %u is not terminated", i);
        if (row.m_type != IP_KERNEL || strncmp((const char *)row.m_name, prefix, sizeof prefix - 1) != 0)
            continue;
        if (add_unit(r, &row, i))
            return -1;
    }
    return r->out->n_unit ? 0 : refuse(r, "section IP_LAYOUT: no unit of kl_kernel");
}

/* Of several banks of an argument XRT takes the last as its group (xrt_kernel.cpp, connectivity). */
static int read_connections(struct reader *r)
{
    struct xclbin *out = r->out;
    const char *section = r->connections.section;
    for (uint32_t i = 0; i < r->connections.count; i++) {
        struct connection row;
        uint32_t unit = 0;
        memcpy(&row, r->connections.rows + i * sizeof row, sizeof row);
        if ((uint32_t)row.m_ip_layout_index >= r->units.count)
            return refuse(r, "section %s: entry %u names unit %d of %u", section, i, row.m_ip_layout_index,
                          r->units.count);
        if ((uint32_t)row.mem_data_index >= out->n_bank)
            return refuse(r, "section %s: entry %u names bank %d of %u", section, i, row.mem_data_index,
                          out->n_bank);
        while (unit < out->n_unit && r->layout_index[unit] != (uint32_t)row.m_ip_layout_index)
            unit++;
        if (unit == out->n_unit || row.arg_index >= XCLBIN_N_ARG)
            continue; /* another kernel's, or an argument that we do not use */
        if (row.arg_index < KL_ARG_IMAGE)
            return refuse(r, "section %s: entry %u gives argument %d of %s memory: it is a scalar", section,
                          i, row.arg_index, out->units[unit].name);
        const struct xclbin_bank *bank = &out->banks[row.mem_data_index];
        if (!bank->is_used || !bank->size_bytes)
            return refuse(r, "section %s: argument %d of %s is tied to bank %d (%s), which is not in use",
                          section, row.arg_index, out->units[unit].name, row.mem_data_index, bank->tag);
        int *chosen = &out->units[unit].bank[row.arg_index];
        *chosen = row.mem_data_index > *chosen ? row.mem_data_index : *chosen;
    }
    for (uint32_t unit = 0; unit < out->n_unit; unit++)
        for (int arg = KL_ARG_IMAGE; arg <= KL_ARG_STATE; arg++)
            if (out->units[unit].bank[arg] < 0)
                return refuse(r, "section %s: argument %d of %s has no bank", section, arg,
                              out->units[unit].name);
    return 0;
}

/* The software device's library, where it is one. */
static int read_library(struct reader *r)
{
    struct xclbin_library library;
    const struct span *section = &r->section[BITSTREAM];
    char symbol[sizeof library.symbol];
    if (section->size_bytes < sizeof library.magic ||
        memcmp(section->bytes, XCLBIN_LIBRARY_MAGIC, sizeof library.magic) != 0)
        return 0;
    if (section->size_bytes < sizeof library)
        return refuse(r, "section BITSTREAM: %llu bytes of a software device's header of %zu",
                      (unsigned long long)section->size_bytes, sizeof library);
    memcpy(&library, section->bytes, sizeof library);
    if (library.format != XCLBIN_LIBRARY_FORMAT)
        return refuse(r,
                      "section BITSTREAM: format %u, this program's is %d: make it again with killline "
                      "sim-device xclbin",
                      library.format, XCLBIN_LIBRARY_FORMAT);
    if (library.abi_version != KL_ABI_VERSION)
        return refuse(r,
                      "section BITSTREAM: a kernel of ABI version %u, this program's is %d: make it again "
                      "with killline sim-device xclbin",
                      library.abi_version, KL_ABI_VERSION);
    if (!memchr(library.build, 0, sizeof library.build) || !library.build[0])
        return refuse(r, "section BITSTREAM: the build's name is empty or not terminated");
    const int used = snprintf(symbol, sizeof symbol, "kl_build_%s", library.build);
    assert(used < (int)sizeof symbol);
    if (strncmp(library.symbol, symbol, sizeof symbol) != 0)
        return refuse(r, "section BITSTREAM: the symbol is not that of build %s", library.build);
    if (library.size_bytes != section->size_bytes - sizeof library)
        return refuse(r, "section BITSTREAM: a library of %llu bytes in %llu",
                      (unsigned long long)library.size_bytes,
                      (unsigned long long)(section->size_bytes - sizeof library));
    memcpy(r->out->build, library.build, strlen(library.build));
    r->out->abi_version = library.abi_version;
    return 0;
}

int xclbin_parse(const void *bytes, size_t size_bytes, const char *name, struct xclbin *out,
                 char error[XCLBIN_ERROR_CHARS])
{
    struct reader r = {.bytes = bytes, .size_bytes = size_bytes, .name = name, .error = error, .out = out};
    memset(out, 0, sizeof *out);
    /* The library first: a kernel of another ABI has another map as well, and the first reason is the one. */
    return read_container(&r) || find_sections(&r) || read_library(&r) || read_metadata(&r) ||
                   read_banks(&r) || read_units(&r) || read_connections(&r)
               ? -1
               : 0;
}

static int too_large(const char *path, char error[XCLBIN_ERROR_CHARS])
{
    snprintf(error, XCLBIN_ERROR_CHARS, "%.255s: more than 2 GiB: not an .xclbin", path);
    return -1;
}

int xclbin_read(const char *path, struct xclbin *out, void **bytes, size_t *size_bytes,
                char error[XCLBIN_ERROR_CHARS])
{
    FILE *f = fopen(path, "rb");
    uint8_t *whole = NULL;
    size_t size = 0, room = 0;
    int status = f ? 0 : -1;
    /* By reading, not by asking for a size: a folder or a pipe has none. */
    while (!status && !feof(f) && !ferror(f) && size < FILE_BYTES_MAX) {
        if (size == room) {
            room = room ? 2 * room : (size_t)1 << 20;
            uint8_t *larger = realloc(whole, room);
            if (!larger) {
                snprintf(error, XCLBIN_ERROR_CHARS, "%.255s: out of memory for %zu bytes", path, room);
                free(whole);
                fclose(f);
                return -1;
            }
            whole = larger;
        }
        errno = 0;
        size += fread(whole + size, 1, room - size, f);
        status = ferror(f) ? -1 : 0;
    }
    if (status)
        snprintf(error, XCLBIN_ERROR_CHARS, "%.255s: %s", path, strerror(errno));
    else if (size >= FILE_BYTES_MAX)
        status = too_large(path, error);
    else
        status = xclbin_parse(whole, size, path, out, error);
    if (f)
        fclose(f);
    if (!status && bytes) {
        *bytes = whole;
        *size_bytes = size;
    } else {
        free(whole);
    }
    return status;
}
