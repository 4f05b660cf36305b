/* Writes an .xclbin for the software device, without Vitis: a container as XRT and host/xclbin.h read it,
 * with the kernel's shared library in the place of the bitstream (struct xclbin_library of host/xclbin.h).
 *
 * The register map is generated from hls/kl_abi.h. The same library and options give the same bytes and so
 * the same UUID, which is a hash of the contents. Cold code, any thread. */
#ifndef XCLBIN_MAKE_H
#define XCLBIN_MAKE_H

#include "../host/xclbin.h"

/* What every file says that this writes. */
#define XCLBIN_MAKE_PLATFORM "killline_sim_1_0"
#define XCLBIN_MAKE_BANK     "DDR[0]"
#define XCLBIN_MAKE_HOST     "HOST[0]"

/* Units lie 64 KiB apart, the range that XRT assumes of a unit (xclbin_parser.cpp, get_cus_pair). */
#define XCLBIN_MAKE_UNIT_BASE  0x1800000u
#define XCLBIN_MAKE_UNIT_BYTES 0x10000u
static_assert(XCLBIN_MAKE_UNIT_BYTES % KL_MAP_BYTES == 0, "a unit's range holds its registers");

/* Bank 0 is the card's memory, bank 1 the host's as the kernel reaches it, where the platform has one. Their
 * addresses and the window's 16 GiB are like those of a U250's platform; nothing depends on them. */
#define XCLBIN_MAKE_BANK_BASE  0x4000000000u
#define XCLBIN_MAKE_HOST_BASE  0x2000000000u
#define XCLBIN_MAKE_HOST_BYTES 0x400000000u

enum { XCLBIN_MAKE_BANK_MIB_DEFAULT = 64, XCLBIN_MAKE_BANK_MIB_MAX = 65536 };

struct xclbin_make_options {
    const char *build;    /* small, fast, large */
    uint32_t n_unit;      /* 1 to XCLBIN_UNITS_MAX: kl_kernel:kl_kernel_1, ... */
    uint32_t bank_mib;    /* 1 to XCLBIN_MAKE_BANK_MIB_MAX */
    int no_host_memory;   /* 1: a platform whose kernels do not reach the host's memory */
    uint32_t abi_version; /* the library's */
};

/* The container around a library of library_bytes. *bytes: malloc'd, *size_bytes of it. 0, or -1 with a
 * message: out of memory, or an option out of range. */
int xclbin_make(const struct xclbin_make_options *options, const void *library, size_t library_bytes,
                void **bytes, size_t *size_bytes, char error[XCLBIN_ERROR_CHARS]);

/* Looks into the kernel library at path, by loading it: whether it is this build's. Its ABI version goes to
 * *abi_version. 0, or -1 with a message. */
int xclbin_make_probe(const char *path, const char *build, uint32_t *abi_version,
                      char error[XCLBIN_ERROR_CHARS]);

#endif
