/* What the poll loop asks of the operating system: nothing. Between the poll thread's two name changes its
 * trace is empty. Not under AddressSanitizer, whose own allocator maps memory at any time. */
#ifndef SYSTEM_CALLS_H
#define SYSTEM_CALLS_H
#ifndef __SANITIZE_ADDRESS__

#include "run_day.h"

/* environment: assignments before the command, or "". allowed: an extended regular expression of lines of
 * strace that may be there; NULL: none. */
static inline void assert_no_system_call(const char *environment, const char *itch, const char *args,
                                         const char *allowed)
{
    char trace[64];
    snprintf(trace, sizeof(trace), "%s/trace", folder);
    struct command_result c = command_shell(
        "rm -f %s.*; %s strace -ff -o %s '%s' run --itch %s --model %s --out %s --clock real --set "
        "egress.device=net_null0 --set audit.on_full=wait --json %s",
        trace, environment, trace, KILLLINE, itch, model, fresh(), args);
    if (c.status)
        print_error("%s\n%s\n", c.out, c.err);
    assert_int_equal(c.status, 0);
    command_free(&c);
    /* prints the lines between the marks; exits 3 when no thread shows both */
    c = command_shell(
        "awk '/PR_SET_NAME, \"kl-poll\"/ {inside = 1; began++; next} /PR_SET_NAME, \"kl-poll-done\"/ "
        "{inside = 0; ended++} inside && !/%s/ {print} END {exit began == 1 && ended == 1 ? 0 : 3}' %s.*",
        allowed ? allowed : "no line says this", trace);
    if (c.status || c.out[0])
        print_error("%s %s: system calls in the poll loop, or no marks (status %d):\n%.2000s%s\n",
                    environment, args, c.status, c.out, c.err);
    assert_int_equal(c.status, 0);
    assert_string_equal(c.out, "");
    assert_string_equal(c.err, "");
    command_free(&c);
}

#endif
#endif
