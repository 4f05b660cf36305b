/* Any bytes as the configuration file: refused with a message, or a configuration within its limits. */
#include <stdlib.h>
#include <string.h>

#include "hls/kl_abi.h"
#include "host/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[CONFIG_ERROR_CHARS] = "";
    uint8_t sha256[CONFIG_SHA256_BYTES];
    struct config_layer layer = {"fuzz.yaml", (const char *)data, size};
    struct config *c = config_parse(&layer, 1, sha256, error);
    if (!c) {
        if (!error[0])
            abort();
        return 0;
    }
    if (c->killline.threshold_us == 0 || c->killline.threshold_us >= 1000 ||
        c->symbols_count > KL_N_STREAM_MAX || (c->audit.ring_records & (c->audit.ring_records - 1)))
        abort();
    for (unsigned i = 0; i < c->symbols_count; i++)
        if (strlen(c->symbols[i]) < 1 || strlen(c->symbols[i]) > 8)
            abort();
    config_free(c);
    return 0;
}
