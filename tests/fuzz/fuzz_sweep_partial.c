/* The partial result's reader. The checksum is made right first, so that the fields behind it are reached.
 * Properties: what is taken is what would be written of it, its checks hold, it can be merged with nothing
 * and gives a result, whose counts sum to the predictions; and not with itself. */
#include <assert.h>
#include <openssl/sha.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/sweep_partial.h"
#include "host/sweep_report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[SWEEP_ERROR_CHARS];
    if (size > 1 << 16)
        return 0;
    uint8_t *sealed = malloc(size + SWEEP_DIGEST_BYTES);
    assert(sealed);
    if (size)
        memcpy(sealed, data, size);
    SHA256(sealed, size, sealed + size);
    struct sweep_sums *s = sweep_partial_decode(sealed, size + SWEEP_DIGEST_BYTES, "fuzz", error);
    if (s) {
        assert(!sweep_sums_check(s));
        size_t again_bytes;
        uint8_t *again = sweep_partial_encode(s, &again_bytes);
        assert(again && again_bytes == size + SWEEP_DIGEST_BYTES && !memcmp(again, sealed, again_bytes));
        free(again);
        struct sweep_sums *sum = sweep_sums_create(&s->spec);
        assert(sum && !sweep_sums_merge(sum, s, "fuzz", error));
        assert(!s->n_log || sweep_sums_merge(sum, s, "fuzz", error) == -1);
        sweep_sums_free(sum);
        struct sweep_result *r = sweep_result_create(s, 10000);
        FILE *out = fopen("/dev/null", "w");
        assert(r && out);
        for (uint32_t j = 0; j < r->n_point; j++) {
            int64_t n = 0;
            for (int v = 0; v < VERDICT_COUNT; v++)
                n += r->point[j].by_verdict[v];
            assert(n == s->predictions);
        }
        sweep_report_text(out, r);
        sweep_report_html(out, r);
        sweep_report_json(out, r);
        fclose(out);
        sweep_result_free(r);
        sweep_sums_free(s);
    }
    free(sealed);
    return 0;
}
