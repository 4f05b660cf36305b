/* Which variants there are, and which of them this machine can run. */
#include <cpuid.h>

#include "accel.h"
#include "accel_cpu_kernel.h"

static const struct {
    const char *name;
    const struct cpu_variant *variant;
} variants[] = {
    [ACCEL_CPU_AUTO] = {.name = "auto"},
    [ACCEL_CPU_AVX512VNNI] = {.name = "avx512vnni", .variant = &accel_cpu_vnni},
    [ACCEL_CPU_AVX512BW] = {.name = "avx512bw", .variant = &accel_cpu_bw},
    [ACCEL_CPU_AVX2] = {.name = "avx2", .variant = &accel_cpu_avx2},
    [ACCEL_CPU_PORTABLE] = {.name = "portable", .variant = &accel_cpu_portable},
};
enum { N_VARIANT = sizeof variants / sizeof variants[0] };

/* Every processor with AVX2 had it so far. The builtin does not know its name in every compiler. */
static int has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_F16C;
}

/* The builtin looks at what the operating system saves and restores as well (XCR0). */
int accel_cpu_has(enum accel_cpu_variant variant)
{
    const int has_bw = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512cd");
    switch (variant) {
    case ACCEL_CPU_AVX512VNNI:
        return has_bw && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
    case ACCEL_CPU_AVX512BW:
        return has_bw;
    case ACCEL_CPU_AVX2:
        return __builtin_cpu_supports("avx2") && has_f16c();
    case ACCEL_CPU_AUTO:
    case ACCEL_CPU_PORTABLE:
        return 1;
    }
    return 0;
}

const char *accel_cpu_variant_name(enum accel_cpu_variant variant)
{
    return (unsigned)variant < N_VARIANT ? variants[variant].name : "unknown";
}

const struct cpu_variant *cpu_variant_of(enum accel_cpu_variant variant)
{
    return variants[variant].variant;
}
