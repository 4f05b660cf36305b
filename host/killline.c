#include "killline.h"

#include <stddef.h>

const char *verdict_name(unsigned verdict)
{
    static const char *const name[VERDICT_COUNT] = {"published",    "expected-late",   "stale",
                                                    "superseded",   "book-unreliable", "warming-up",
                                                    "device-error", "halted"};
    return verdict < VERDICT_COUNT ? name[verdict] : NULL;
}
