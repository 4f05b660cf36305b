/* A driver library that never lets XRT go on (BAD_DRIVER_HANGS), or crashes, as soon as it is loaded. */
#include <unistd.h>

static void __attribute__((constructor)) loaded(void)
{
#ifdef BAD_DRIVER_HANGS
    for (;;)
        pause();
#else
    __builtin_trap();
#endif
}
