/* killline features on real order flow: everything finite, rows plausible, the best known predictor predicts,
 * and the number contract's clamp at 16 standard deviations (hls/kl_abi.h) leaves real values alone. Prints
 * what it saw. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "host/features.h"
#include "npy_array.h"
#include "realdata.h"

enum { CLAMP_SD = 16 };

static const struct {
    const char *file;
    uint64_t n_row_min, n_row_max;
} cases[] = {
    /* 16,583 changes of the BBO, some of one packet; joined in mid-session, so a part is not reliable */
    {"itch-aapl-20191230/AAPL_20191230_0935.itch50", 8000, 16583},
    {"lobster-itch/AMZN_L1_fullday.itch50", 40000, 270000},
};

static int check(const char *data, int i, const char *dir)
{
    struct command_result result = command_run("features '%s/%s' --out %s", data, cases[i].file, dir);
    if (result.status)
        fprintf(stderr, "features %s: status %d\n%s", cases[i].file, result.status, result.err);
    int status = result.status;
    command_free(&result);
    if (status)
        return 1;
    struct npy_array features = npy_array(dir, "features.npy", "<f4", FEATURES_N),
                     mid = npy_array(dir, "mid.npy", "<i8", 0);
    struct npy_array labels = npy_array(dir, "labels.npy", "|i1", 0);
    const float(*raw)[FEATURES_N] = features.data;
    const int64_t *mid2 = mid.data;
    const int8_t *label = labels.data;
    uint64_t n = features.n_row, beyond_all = 0;
    int failed = 0;
    printf("%s: %llu rows\n%-20s %10s %10s %10s %10s %12s\n", cases[i].file, (unsigned long long)n, "feature",
           "mean", "sd", "min", "max", "beyond 16 sd");
    if (n < cases[i].n_row_min || n > cases[i].n_row_max) {
        fprintf(stderr, "%s: expected %llu to %llu rows\n", cases[i].file,
                (unsigned long long)cases[i].n_row_min, (unsigned long long)cases[i].n_row_max);
        return 1;
    }
    for (int f = 0; f < FEATURES_N; f++) {
        double sum = 0, squares = 0, min = (double)raw[0][f], max = min;
        for (uint64_t r = 0; r < n; r++) {
            double x = (double)raw[r][f];
            if (!isfinite(x)) {
                fprintf(stderr, "%s: row %llu: %s is not finite\n", cases[i].file, (unsigned long long)r,
                        features_name((uint32_t)f));
                return 1;
            }
            sum += x;
            min = fmin(min, x);
            max = fmax(max, x);
        }
        double mean = sum / (double)n;
        for (uint64_t r = 0; r < n; r++)
            squares += ((double)raw[r][f] - mean) * ((double)raw[r][f] - mean);
        double sd = sqrt(squares / (double)n);
        uint64_t beyond = 0;
        for (uint64_t r = 0; r < n; r++)
            beyond += fabs((double)raw[r][f] - mean) > CLAMP_SD * sd;
        printf("%-20s %10.5f %10.5f %10.5f %10.5f %12.7f\n", features_name((uint32_t)f), mean, sd, min, max,
               (double)beyond / (double)n);
        beyond_all += beyond;
        if (!(sd > 0)) {
            fprintf(stderr, "%s: %s never changes\n", cases[i].file, features_name((uint32_t)f));
            failed = 1;
        }
    }
    double beyond = (double)beyond_all / (double)(n * FEATURES_N);
    /* Gould, Bonart 2016: queue imbalance foretells the direction of the next mid move. One symbol per file.
     */
    uint64_t right = 0, moves = 0, labelled = 0, label_right = 0;
    for (uint64_t r = 0, next = 0; r < n; r++) {
        if (next <= r)
            next = r + 1;
        while (next < n && mid2[next] == mid2[r])
            next++;
        float x = raw[r][FEATURE_IMBALANCE_L1];
        if (x == 0)
            continue;
        if (next < n) {
            moves++;
            right += (mid2[next] > mid2[r]) == (x > 0);
        }
        if (label[r] == 0 || label[r] == 2) {
            labelled++;
            label_right += (label[r] == 2) == (x > 0);
        }
    }
    double hit = (double)right / (double)moves, label_hit = (double)label_right / (double)labelled;
    printf("beyond 16 sd: %.7f of all values; sign of imbalance_l1: right for %.4f of %llu next mid moves, "
           "%.4f of "
           "%llu labels up or down\n\n",
           beyond, hit, (unsigned long long)moves, label_hit, (unsigned long long)labelled);
    if (!(hit > 0.55) || !(label_hit > 0.5)) {
        fprintf(stderr, "%s: the sign of the queue imbalance does not foretell the mid's move\n",
                cases[i].file);
        failed = 1;
    }
    if (!(beyond < 1e-4)) {
        fprintf(stderr, "%s: too much lies beyond the clamp of %d standard deviations\n", cases[i].file,
                CLAMP_SD);
        failed = 1;
    }
    free(features.data), free(mid.data), free(labels.data);
    return failed;
}

int main(void)
{
    realdata_require();
    const char *data = realdata_dir();
    char dir[] = "/tmp/test_features_realdata.XXXXXX";
    if (!mkdtemp(dir)) {
        perror(dir);
        return 1;
    }
    int failed = 0;
    for (int i = 0; i < (int)(sizeof(cases) / sizeof(cases[0])); i++)
        failed |= check(data, i, dir);
    struct command_result removed = command_shell("rm -r %s", dir);
    failed |= removed.status != 0;
    command_free(&removed);
    return failed;
}
