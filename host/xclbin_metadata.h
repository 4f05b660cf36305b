/* The EMBEDDED_METADATA section of an .xclbin: the XML from which XRT takes a kernel's arguments and their
 * offsets. Cold code, any thread. */
#ifndef XCLBIN_METADATA_H
#define XCLBIN_METADATA_H

#include <stddef.h>
#include <stdint.h>

/* Compares kl_kernel's description with hls/kl_abi.h: every argument there once with its offset and kind,
 * and a control interface of at least KL_MAP_BYTES; other kernels, and more arguments, are fine. xml: bytes,
 * which may hold a NUL behind the text. *range_bytes: of the control interface, on success. 0, or -1 with
 * what is wrong, in error of error_chars. */
int xclbin_metadata_check(const char *xml, size_t size_bytes, uint64_t *range_bytes, char *error,
                          size_t error_chars);

#endif
