/* Reads an .xclbin, the container that XRT loads, and says what is in it: enough to refuse a wrong one with a
 * reason before XRT sees it, since XRT answers a bad one with an exception or a crash.
 *
 * Layout: the public header xclbin.h of XRT (struct axlf). Cold code. */
#ifndef XCLBIN_H
#define XCLBIN_H

#include <stddef.h>
#include <stdint.h>

#include "../hls/kl_abi.h"

enum {
    XCLBIN_ERROR_CHARS = 512,
    XCLBIN_UNITS_MAX = 16,
    XCLBIN_BANKS_MAX = 64,
    XCLBIN_N_ARG = KL_ARG_STATE + 1,
};

/* The software device's BITSTREAM section: this, then the kernel's shared library, size_bytes of it to the
 * section's end. The library shows symbol, the struct kl_build of that build. */
#define XCLBIN_LIBRARY_MAGIC "KLBUILD" /* with its NUL 8 bytes */
enum { XCLBIN_LIBRARY_FORMAT = 1 };
struct xclbin_library {
    char magic[8];
    uint32_t format;
    uint32_t abi_version; /* KL_ABI_VERSION that the library was compiled with */
    char build[12];       /* small, fast, large; 0-terminated like symbol */
    char symbol[28];      /* kl_build_fast */
    uint64_t size_bytes;
};
static_assert(sizeof(struct xclbin_library) == 64, "the library behind it lies as aligned as the section");

struct xclbin_bank {
    char tag[17]; /* "HBM[0]", "bank0", "HOST[0]" */
    uint64_t base, size_bytes;
    int is_used, is_host; /* is_host: the host's memory, as the kernel reaches it */
};

struct xclbin_unit {
    char name[64];          /* "kl_kernel:kl_kernel_1" */
    uint64_t base;          /* of its control interface */
    int bank[XCLBIN_N_ARG]; /* of each pointer argument: index of its bank; -1: a scalar */
};

struct xclbin {
    char uuid[37];
    char platform[65];
    uint32_t n_unit, n_bank;
    struct xclbin_unit units[XCLBIN_UNITS_MAX]; /* of the kernel kl_kernel, in the order of IP_LAYOUT */
    struct xclbin_bank banks[XCLBIN_BANKS_MAX];
    /* Of the software device's BITSTREAM (struct xclbin_library); "" and 0: a card's, which does not say. */
    char build[12];
    uint32_t abi_version;
};

/* Checks and describes. name stands in messages. 0, or -1 with a message that names the section and what is
 * wrong with it: nothing of it should be given to XRT. Any thread. */
int xclbin_parse(const void *bytes, size_t size_bytes, const char *name, struct xclbin *out,
                 char error[XCLBIN_ERROR_CHARS]);

/* The same for a file. *bytes: malloc'd, the whole file, size in *size_bytes; NULL: not wanted. */
int xclbin_read(const char *path, struct xclbin *out, void **bytes, size_t *size_bytes,
                char error[XCLBIN_ERROR_CHARS]);

#endif
