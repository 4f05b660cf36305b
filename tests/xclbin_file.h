/* An .xclbin in memory, for tests that damage it: made by sim/xclbin_make around a library of a few bytes,
 * taken apart and put together again. What this helper itself cannot do ends the test program. */
#ifndef XCLBIN_FILE_H
#define XCLBIN_FILE_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xclbin.h>

#include "sim/xclbin_make.h"

struct xclbin_file {
    uint8_t *bytes;
    size_t size_bytes;
};

static const uint8_t xclbin_file_library[] = "\177ELF, but no library";

static inline struct xclbin_file xclbin_file_make(uint32_t n_unit, int no_host_memory)
{
    const struct xclbin_make_options options = {.build = "small",
                                                .n_unit = n_unit,
                                                .bank_mib = 64,
                                                .no_host_memory = no_host_memory,
                                                .abi_version = KL_ABI_VERSION};
    struct xclbin_file file;
    char error[XCLBIN_ERROR_CHARS];
    void *bytes;
    const int status = xclbin_make(&options, xclbin_file_library, sizeof xclbin_file_library, &bytes,
                                   &file.size_bytes, error);
    assert(!status);
    (void)status;
    file.bytes = bytes;
    return file;
}

static inline struct axlf *xclbin_file_top(struct xclbin_file *file)
{
    return (struct axlf *)file->bytes;
}

/* The header of the first section of that kind. NULL: none. */
static inline struct axlf_section_header *xclbin_file_header(struct xclbin_file *file, uint32_t kind)
{
    struct axlf *top = xclbin_file_top(file);
    /* m_sections has one element in its type and more in the file. */
    struct axlf_section_header *header =
        (struct axlf_section_header *)(file->bytes + offsetof(struct axlf, m_sections));
    for (uint32_t i = 0; i < top->m_header.m_numSections; i++)
        if (header[i].m_sectionKind == kind)
            return &header[i];
    return NULL;
}

static inline void *xclbin_file_section(struct xclbin_file *file, uint32_t kind)
{
    struct axlf_section_header *header = xclbin_file_header(file, kind);
    assert(header);
    return file->bytes + header->m_sectionOffset;
}

/* Adds a section at the end; the headers move what is behind them, and every offset with it. */
static inline void xclbin_file_add(struct xclbin_file *file, uint32_t kind, const void *bytes, size_t n)
{
    const size_t one = sizeof(struct axlf_section_header);
    struct axlf *top = xclbin_file_top(file);
    const size_t n_old = top->m_header.m_numSections,
                 headers_end = offsetof(struct axlf, m_sections) + n_old * one;
    const size_t padded = (n + 7) & ~(size_t)7, size = file->size_bytes + one + padded;
    uint8_t *larger = calloc(1, size);
    assert(larger);
    memcpy(larger, file->bytes, headers_end);
    memcpy(larger + headers_end + one, file->bytes + headers_end, file->size_bytes - headers_end);
    if (n)
        memcpy(larger + file->size_bytes + one, bytes, n);
    struct axlf_section_header *header = (struct axlf_section_header *)(larger + headers_end) - n_old;
    for (size_t i = 0; i < n_old; i++)
        header[i].m_sectionOffset += one;
    header[n_old] = (struct axlf_section_header){
        .m_sectionKind = kind, .m_sectionOffset = file->size_bytes + one, .m_sectionSize = n};
    free(file->bytes);
    file->bytes = larger;
    file->size_bytes = size;
    top = xclbin_file_top(file);
    top->m_header.m_numSections++;
    top->m_header.m_length = size;
}

/* The section in another form; its old bytes stay behind as a section of no known kind. */
static inline void xclbin_file_replace(struct xclbin_file *file, uint32_t kind, const void *bytes, size_t n)
{
    xclbin_file_header(file, kind)->m_sectionKind = 1000;
    xclbin_file_add(file, kind, bytes, n);
}

/* EMBEDDED_METADATA with the first text `from` replaced by `to`. */
static inline void xclbin_file_edit(struct xclbin_file *file, const char *from, const char *to)
{
    const struct axlf_section_header *header = xclbin_file_header(file, EMBEDDED_METADATA);
    const size_t n_old = header->m_sectionSize, n = n_old - strlen(from) + strlen(to);
    char *old = calloc(1, n_old + 1), *text = malloc(n + 1);
    assert(old && text);
    memcpy(old, file->bytes + header->m_sectionOffset, n_old);
    const char *at = strstr(old, from);
    assert(at);
    memcpy(text, old, (size_t)(at - old));
    strcpy(text + (at - old), to);
    strcat(text, at + strlen(from));
    xclbin_file_replace(file, EMBEDDED_METADATA, text, n);
    free(text);
    free(old);
}

#endif
