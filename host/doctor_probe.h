/* Runs a piece of code that may abort, hang or crash: in a child process, for a limited time. Cold code; the
 * caller has no other threads. */
#ifndef DOCTOR_PROBE_H
#define DOCTOR_PROBE_H

#include <stddef.h>

enum doctor_probe_end {
    DOCTOR_PROBE_DONE,    /* *result is what probe wrote */
    DOCTOR_PROBE_CRASHED, /* why says how */
    DOCTOR_PROBE_HANGS,   /* was ended after limit_s */
    DOCTOR_PROBE_FAILED,  /* no child could be made */
};

enum { DOCTOR_PROBE_CHARS = 512 };

/* Calls probe(context, result) in a child; result: result_bytes that begin as zeros and come back whole. What
 * the child prints is kept back; a line of it that tells a reason goes to why ("": there was none; of a child
 * that did not end by itself any line will do). */
enum doctor_probe_end doctor_probe(void (*probe)(const void *context, void *result), const void *context,
                                   void *result, size_t result_bytes, unsigned limit_s,
                                   char why[DOCTOR_PROBE_CHARS]);

#endif
