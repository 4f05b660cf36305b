#include "xclbin_metadata.h"

#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xclbin.h"

enum {
    DEPTH_KERNEL = 4,
    DEPTH_MAX = 64, /* v++ nests some eight; XRT's parser goes down by recursion until its stack ends */
    MESSAGE_CHARS = 256,
};

/* Where XRT looks for kernels (its xclbin_parser.cpp), the element that carries them last. */
static const char *const path[DEPTH_KERNEL + 1] = {"project", "platform", "device", "core", "kernel"};

static const struct {
    const char *name;
    uint32_t offset, size_bytes;
    unsigned long address_qualifier; /* 0 scalar, 1 pointer to memory */
} expected[XCLBIN_N_ARG] = {
    [KL_ARG_COMMAND] = {"command", KL_MAP_COMMAND, 4, 0},
    [KL_ARG_SLOT] = {"slot", KL_MAP_SLOT, 4, 0},
    [KL_ARG_IMAGE_SIZE_BYTES] = {"image_size_bytes", KL_MAP_IMAGE_SIZE_BYTES, 4, 0},
    [KL_ARG_N_REQUEST] = {"n_request", KL_MAP_N_REQUEST, 4, 0},
    [KL_ARG_IMAGE] = {"image", KL_MAP_IMAGE, 8, 1},
    [KL_ARG_REQUEST] = {"request", KL_MAP_REQUEST, 8, 1},
    [KL_ARG_RESULT] = {"result", KL_MAP_RESULT, 8, 1},
    [KL_ARG_STATE] = {"state", KL_MAP_STATE, 8, 1},
};

struct reader {
    XML_Parser parser;
    int depth;   /* of the element being read; the root's is 0 */
    int on_path; /* how many elements of path enclose what is read, from the root on */
    int in_kernel, n_kernel, n_slave;
    int seen[XCLBIN_N_ARG];
    uint64_t range_bytes;
    char message[MESSAGE_CHARS]; /* "": nothing wrong so far */
};

/* Ends the parse with a message. */
static void refuse(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse(struct reader *r, const char *format, ...)
{
    va_list args;
    if (r->message[0])
        return;
    va_start(args, format);
    vsnprintf(r->message, sizeof r->message, format, args);
    va_end(args);
    XML_StopParser(r->parser, XML_FALSE);
}

static const char *attribute(const XML_Char **attributes, const char *name)
{
    for (; attributes[0]; attributes += 2)
        if (!strcmp(attributes[0], name))
            return attributes[1];
    return NULL;
}

/* A number as XRT takes it, decimal or 0x; 0, or -1: none. */
static int number(const XML_Char **attributes, const char *name, uint64_t *value)
{
    const char *text = attribute(attributes, name);
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return errno || *end ? -1 : 0;
}

static void read_argument(struct reader *r, const XML_Char **attributes)
{
    uint64_t id, offset, size_bytes, qualifier;
    const char *name = attribute(attributes, "name"), *id_text = attribute(attributes, "id");
    if (!name || !id_text || number(attributes, "offset", &offset) ||
        number(attributes, "size", &size_bytes) || number(attributes, "addressQualifier", &qualifier)) {
        refuse(r, "an argument of kl_kernel (%.40s) without id, offset, size or addressQualifier",
               name ? name : "no name");
        return;
    }
    if (!id_text[0]) /* XRT: not one that a host sets */
        return;
    if (number(attributes, "id", &id) || id > INT_MAX) {
        refuse(r, "argument %.40s: id '%.20s' is no number", name, id_text);
        return;
    }
    if (id >= XCLBIN_N_ARG)
        return;
    if (strcmp(name, expected[id].name) != 0)
        refuse(r, "argument %d is %.40s, not %s: built from another kernel source", (int)id, name,
               expected[id].name);
    else if (r->seen[id])
        refuse(r, "argument %s is there twice", name);
    else if (offset != expected[id].offset)
        refuse(r, "argument %s at offset 0x%llx, not 0x%x: built from another kl_abi.h", name,
               (unsigned long long)offset, expected[id].offset);
    else if (qualifier != expected[id].address_qualifier || size_bytes != expected[id].size_bytes)
        refuse(r, "argument %s: addressQualifier %llu, size %llu, not %lu and %u", name,
               (unsigned long long)qualifier, (unsigned long long)size_bytes, expected[id].address_qualifier,
               expected[id].size_bytes);
    r->seen[id] = 1;
}

/* XRT takes the first slave port as the control interface. */
static void read_port(struct reader *r, const XML_Char **attributes)
{
    const char *mode = attribute(attributes, "mode");
    if (!mode || strcmp(mode, "slave") != 0 || r->n_slave++)
        return;
    if (number(attributes, "range", &r->range_bytes))
        refuse(r, "kl_kernel's slave port has no range");
    else if (r->range_bytes < KL_MAP_BYTES || r->range_bytes > UINT32_MAX)
        refuse(r, "kl_kernel's slave port has a range of 0x%llx bytes: 0x%x at least, below 4 GiB",
               (unsigned long long)r->range_bytes, KL_MAP_BYTES);
}

static void XMLCALL start_element(void *data, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *r = data;
    const int depth = r->depth++;
    if (depth >= DEPTH_MAX)
        refuse(r, "elements nested more than %d deep, which no v++ writes", DEPTH_MAX);
    else if (depth == r->on_path && depth <= DEPTH_KERNEL && !strcmp(name, path[depth])) {
        r->on_path++;
        if (depth == DEPTH_KERNEL) {
            const char *kernel = attribute(attributes, "name");
            r->in_kernel = kernel && !strcmp(kernel, "kl_kernel");
            r->n_kernel += r->in_kernel;
            if (r->n_kernel > 1)
                refuse(r, "kernel kl_kernel is there twice");
        }
    } else if (depth == DEPTH_KERNEL + 1 && r->on_path == depth && r->in_kernel) {
        if (!strcmp(name, "arg"))
            read_argument(r, attributes);
        else if (!strcmp(name, "port"))
            read_port(r, attributes);
    }
}

static void XMLCALL end_element(void *data, const XML_Char *name)
{
    struct reader *r = data;
    (void)name;
    r->depth--;
    if (r->on_path > r->depth)
        r->on_path = r->depth;
}

/* v++ writes none, and entities are the way to make XML explode. */
static void XMLCALL start_doctype(void *data, const XML_Char *name, const XML_Char *system_id,
                                  const XML_Char *public_id, int has_internal_subset)
{
    (void)name, (void)system_id, (void)public_id, (void)has_internal_subset;
    refuse(data, "has a DOCTYPE, which no v++ writes");
}

static void check_complete(struct reader *r)
{
    if (!r->n_kernel)
        refuse(r, "no kernel kl_kernel: not an .xclbin of Killline");
    for (int i = 0; i < XCLBIN_N_ARG; i++)
        if (!r->seen[i])
            refuse(r, "kl_kernel has no argument %d (%s): built from another kernel source", i,
                   expected[i].name);
    if (!r->n_slave)
        refuse(r, "kl_kernel has no slave port, so no registers");
}

int xclbin_metadata_check(const char *xml, size_t size_bytes, uint64_t *range_bytes, char *error,
                          size_t error_chars)
{
    struct reader r = {.parser = XML_ParserCreate(NULL)};
    const size_t length = strnlen(xml, size_bytes); /* XRT's parser stops at a NUL too */
    if (!r.parser || length > INT_MAX) {
        snprintf(error, error_chars, r.parser ? "text of more than 2 GiB" : "out of memory");
        XML_ParserFree(r.parser);
        return -1;
    }
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, start_element, end_element);
    XML_SetStartDoctypeDeclHandler(r.parser, start_doctype);
    const enum XML_Status status = XML_Parse(r.parser, xml, (int)length, 1);
    if (status != XML_STATUS_OK)
        refuse(&r, "not well-formed XML: line %lu: %s", (unsigned long)XML_GetCurrentLineNumber(r.parser),
               XML_ErrorString(XML_GetErrorCode(r.parser)));
    check_complete(&r);
    XML_ParserFree(r.parser);
    if (r.message[0])
        snprintf(error, error_chars, "%s", r.message);
    else
        *range_bytes = r.range_bytes;
    return r.message[0] ? -1 : 0;
}
