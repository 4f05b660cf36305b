#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../net/port.h"
#include "accel.h"
#include "clock.h"
#include "doctor.h"

enum { CALIBRATE_MS = 50, MEMORY_LOCK_MIB_WANTED = 64 };

void doctor_look_model(struct doctor *d)
{
    char error[MODEL_ERROR_CHARS];
    if (model_load(KL_MODEL_DEFAULT, &d->model, error)) {
        d->model.image = NULL;
        doctor_remedy(doctor_say(d, "model", DOCTOR_PROBLEM, NULL, "%s", error),
                      "put the shipped package back, or run with --model F");
        return;
    }
    const struct kl_image_header *image = d->model.image;
    const struct kl_build *build = accel_build_for(image);
    if (build) {
        doctor_say(d, "model", DOCTOR_OK,
                   json_pack("{s:s, s:s, s:i}", "file", KL_MODEL_DEFAULT, "build", build->name, "abi",
                             image->abi_version),
                   "%s: %u inputs, %u layer%s, %u classes: fits build %s", KL_MODEL_DEFAULT, image->n_in,
                   image->n_layer, image->n_layer == 1 ? "" : "s", image->n_class, build->name);
        return;
    }
    doctor_remedy(
        doctor_say(d, "model", DOCTOR_PROBLEM, NULL, "%s: beyond every build's limits", KL_MODEL_DEFAULT),
        "run with --model F, a smaller one");
}

static void look_cpu(struct doctor *d)
{
    static const enum accel_cpu_variant best_first[] = {ACCEL_CPU_AVX512VNNI, ACCEL_CPU_AVX512BW,
                                                        ACCEL_CPU_AVX2, ACCEL_CPU_PORTABLE};
    int i = 0;
    cpu_set_t allowed;
    const long n_core = sysconf(_SC_NPROCESSORS_ONLN);
    while (!accel_cpu_has(best_first[i]))
        i++;
    const int n_allowed = sched_getaffinity(0, sizeof allowed, &allowed) ? 0 : CPU_COUNT(&allowed);
    const char *variant = accel_cpu_variant_name(best_first[i]);
    /* Poll loop, mirror of the card, audit writer. */
    struct doctor_line *line =
        doctor_say(d, "cpu", n_allowed < 3 ? DOCTOR_NOTE : DOCTOR_OK,
                   json_pack("{s:s, s:I, s:i}", "variant", variant, "cores", (json_int_t)n_core,
                             "cores_allowed", n_allowed),
                   "cpu backend %s; %ld cores, %d of them for this process", variant, n_core, n_allowed);
    if (n_allowed < 3)
        doctor_remedy(line, "3 and more keep poll loop, mirror and audit writer apart: their threads share "
                            "cores, ages will show it");
}

static void look_tsc(struct doctor *d)
{
    struct clock_calibration clock;
    if (clock_calibrate(&clock, CALIBRATE_MS)) {
        doctor_remedy(doctor_say(d, "tsc", DOCTOR_NOTE, json_pack("{s:b}", "invariant", 0),
                                 "no invariant TSC: its cycles are not time"),
                      "--clock replay works; --clock real needs another machine");
        return;
    }
    doctor_say(d, "tsc", DOCTOR_OK,
               json_pack("{s:b, s:f, s:f}", "invariant", 1, "hz", clock.hz, "error_ppm", clock.error_ppm),
               "invariant, %.6f MHz, calibrated to %.1f ppm", clock.hz / 1e6, clock.error_ppm);
}

/* A figure of /proc/meminfo. -1: it is not there. */
static long meminfo(const char *key)
{
    char line[256];
    long value = -1;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && value < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)) && sscanf(line + strlen(key), ": %ld", &value) != 1)
            value = -1;
    if (f)
        fclose(f);
    return value;
}

static void look_memory(struct doctor *d)
{
    const long total = meminfo("HugePages_Total"), unused = meminfo("HugePages_Free"),
               size_kib = meminfo("Hugepagesize");
    struct rlimit limit;
    doctor_say(d, "hugepages", DOCTOR_OK,
               json_pack("{s:I, s:I, s:I}", "total", (json_int_t)total, "free", (json_int_t)unused, "kib",
                         (json_int_t)size_kib),
               "%ld of %ld free, of %ld KiB; killline's ports do without", unused, total, size_kib);
    if (getrlimit(RLIMIT_MEMLOCK, &limit)) {
        doctor_say(d, "memlock", DOCTOR_NOTE, NULL, "the limit of locked memory: %s", strerror(errno));
        return;
    }
    if (limit.rlim_cur == RLIM_INFINITY) {
        doctor_say(d, "memlock", DOCTOR_OK, json_pack("{s:n}", "bytes"), "no limit of locked memory");
        return;
    }
    const int small = limit.rlim_cur < (rlim_t)MEMORY_LOCK_MIB_WANTED << 20;
    struct doctor_line *line = doctor_say(d, "memlock", small ? DOCTOR_NOTE : DOCTOR_OK,
                                          json_pack("{s:I}", "bytes", (json_int_t)limit.rlim_cur),
                                          "locked memory up to %ju KiB", (uintmax_t)limit.rlim_cur >> 10);
    if (small)
        doctor_remedy(line, "ulimit -l unlimited (limits.conf: memlock), so that nothing that the poll loop "
                            "touches is ever paged out");
}

void doctor_look_host(struct doctor *d)
{
    doctor_say(d, "dpdk", DOCTOR_OK, NULL, "%s", port_library_version());
    doctor_say(d, "openssl", DOCTOR_OK, NULL, "%s", OpenSSL_version(OPENSSL_VERSION));
    look_cpu(d);
    look_tsc(d);
    look_memory(d);
}
