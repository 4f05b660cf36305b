/* What the kernel takes from C11, for compilers that stop at C99: some synthesis tools' front ends. The one
 * place; everything else in the kernel's sources is C99 and C++14 at once (tests/hls_digest). */
#ifndef KL_C99_H
#define KL_C99_H

#include <assert.h>

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L)
#include <stdalign.h>
#else
/* Declares an array and never defines it: repeats are harmless, a negative size is an error. */
#undef static_assert
#define static_assert(condition, text) extern char kl_static_assert[(condition) ? 1 : -1]
/* Alignment is speed in the native build only; no layout that leaves the kernel rests on it. */
#define alignas(bytes)
#endif

#endif
