/* Any bytes as the state file: in doubt halted and with a message that names the remedy; or a state within
 * its ranges, which is the same after it was written and read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/state_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
    if (!ok)
        abort();
}

static const char *path(void)
{
    static char name[64];
    if (!*name) {
        static char dir[] = "/tmp/fuzz_state_file.XXXXXX";
        require(mkdtemp(dir) != NULL);
        snprintf(name, sizeof(name), "%s/state.json", dir);
    }
    return name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[STATE_FILE_ERROR_CHARS] = "";
    struct state_file state, again;
    memset(&state, 0, sizeof(state));
    memset(&again, 0, sizeof(again));
    if (state_file_parse("state.json", (const char *)data, size, &state, error)) {
        require(state.rung == GOVERNOR_HALTED && state.latched && state.cause == GOVERNOR_BY_STATE_FILE &&
                !state.n_device_fault && !state.n_halt_fault && !*state.by && !*state.reason);
        require(strstr(error, "state.json") && strstr(error, "killline resume --by"));
        return 0;
    }
    require(!*error && !order_text_check(state.by, sizeof(state.by)) &&
            !order_text_check(state.reason, sizeof(state.reason)));
    require(!state_file_write(path(), &state, error)); /* asserts the ranges */
    require(!state_file_read(path(), &again, error) && !memcmp(&state, &again, sizeof(state)));
    return 0;
}
