#include "bench_setup.h"

#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd.h"

enum { SEED = 20191230, CALIBRATE_MS = 50, N_STAMP = 10001, RING_RECORDS = 524288 };

void bench_cpus_move(const struct bench_cpus *cpus, int poll)
{
    cpu_set_t set = cpus->all;
    if (poll) {
        CPU_ZERO(&set);
        CPU_SET(cpus->poll, &set);
    } else if (CPU_COUNT(&set) > 1) {
        CPU_CLR(cpus->poll, &set);
    }
    /* Refused only for CPUs that have been taken from the process meanwhile: then the system places it. */
    sched_setaffinity(0, sizeof(set), &set);
}

/* The last CPU is the poll loop's: the first ones have the system's interrupts. */
static int choose_cpus(const char *command, struct bench_cpus *cpus)
{
    int cpu[3], n = 0;
    if (sched_getaffinity(0, sizeof(cpus->all), &cpus->all))
        return cmd_error("%s: cannot read which CPUs there are: %m", command);
    for (int c = CPU_SETSIZE - 1; c >= 0 && n < 3; c--)
        if (CPU_ISSET(c, &cpus->all))
            cpu[n++] = c;
    cpus->poll = cpu[0];
    cpus->feeder = cpu[n > 1 ? 1 : 0];
    cpus->audit = cpu[n - 1];
    bench_cpus_move(cpus, 0); /* and with it the threads of a backend or its guard */
    return 0;
}

static void read_machine(char name[64])
{
    unsigned words[12] = {0}, highest = __get_cpuid_max(0x80000000, NULL);
    for (unsigned i = 0; i < 3 && highest >= 0x80000004; i++)
        __get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
    snprintf(name, 64, "%.48s", words[0] ? (const char *)words : "unknown CPU");
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double stamp_ns(const struct clock_calibration *clock)
{
    static uint64_t apart[N_STAMP];
    uint64_t last = __rdtsc();
    for (int i = 0; i < N_STAMP; i++) {
        const uint64_t now = __rdtsc();
        apart[i] = now - last;
        last = now;
    }
    qsort(apart, N_STAMP, sizeof(apart[0]), compare_u64);
    return clock_cycles_to_ns(clock, apart[N_STAMP / 2]);
}

static void describe(struct bench_setup *s)
{
    static const char *const names[] = {"csim", "cpu", "xrt"};
    s->backend = names[s->config->accel];
    s->time_stamp_ns = stamp_ns(&s->rig.clock);
    read_machine(s->machine);
    if (s->config->accel == CONFIG_ACCEL_CPU) {
        snprintf(s->details, sizeof(s->details), "%s",
                 accel_cpu_variant_name(accel_cpu_variant_of(s->accel.accel)));
    } else if (s->config->accel == CONFIG_ACCEL_XRT) {
        const struct accel_xrt_info *card = &s->accel.cards[0];
        const char *exec = getenv("KL_SIM_EXEC"), *latency = getenv("KL_SIM_LATENCY");
        int n = snprintf(s->details, sizeof(s->details), "%s, %s mode, %s memory", card->name,
                         accel_xrt_mode_name(card->mode), card->host_memory ? "host" : "device");
        if (card->software_device)
            snprintf(s->details + n, sizeof(s->details) - (size_t)n,
                     ", the software device, execution %.20s, latency model %.80s", exec ? exec : "inline",
                     latency ? latency : "off");
    }
}

static int open_model(struct bench_setup *s, const char *model)
{
    char error[ACCEL_ERROR_CHARS];
    s->model_path = model ? model : s->config->model[0] ? s->config->model : KL_MODEL_DEFAULT;
    if (run_accel_model(s->model_path, &s->model, error) ||
        run_accel_open(s->config, &s->model, s->model_path, NULL, s->rig.clock.hz, &s->accel, error))
        return cmd_error("%s", error);
    return 0;
}

int bench_setup_open(struct bench_setup *s, const char *command, const struct cmd_config *settings,
                     const char *model)
{
    struct bench_rig *rig = &s->rig;
    char error[PORT_ERROR_CHARS];
    rig->command = command;
    s->config = cmd_config_parse(settings, rig->config_sha256);
    if (!s->config)
        return 1;
    /* Which frame a tick comes from is in its record: none may be lost, also where load generator, poll loop
     * and writer share two CPUs at a real-time priority. */
    if (s->config->audit.ring_records < RING_RECORDS)
        s->config->audit.ring_records = RING_RECORDS;
    if (clock_calibrate(&rig->clock, CALIBRATE_MS))
        return cmd_error("%s: this machine's time stamp counter does not run evenly; no figures from here",
                         command);
    if (port_init(error))
        return cmd_error("%s: %s", command, error);
    if (choose_cpus(command, &rig->cpus) || open_model(s, model))
        return 1;
    rig->config = s->config;
    rig->model = &s->model;
    rig->accel = &s->accel;
    rig->flow = &s->flow;
    describe(s);
    return 0;
}

int bench_setup_flow(struct bench_setup *s, uint64_t n_message, uint32_t n_symbol)
{
    return bench_flow_generate(n_message, n_symbol, SEED, &s->flow)
               ? cmd_error("%s: no memory for a flow of %llu messages; ask for a shorter load",
                           s->rig.command, (unsigned long long)n_message)
               : 0;
}

void bench_setup_close(struct bench_setup *s)
{
    run_accel_close(&s->accel);
    model_free(&s->model);
    free(s->flow.data);
    config_free(s->config);
}
