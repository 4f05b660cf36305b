/* What the benches of the whole appliance open before they measure: configuration, clock, CPUs, model,
 * accelerator, flow. Cold code. */
#ifndef BENCH_SETUP_H
#define BENCH_SETUP_H

#include "bench_rig.h"
#include "cmd_config.h"

struct bench_setup {
    struct bench_rig rig;
    struct config *config;
    struct model model;
    struct run_accel accel;
    struct bench_flow flow;
    const char *backend, *model_path;
    char machine[64], details[256]; /* details of the backend: variant, or device; "" */
    double time_stamp_ns;           /* between two readings of the counter: median */
};

/* command: "bench killline", stands in messages; settings: clock is real; model: path, or NULL. 0, or the
 * exit status after a message on stderr; bench_setup_close either way (zeroed before). Moves the calling
 * thread, and with it those it starts, away from the poll loop's CPU. */
int bench_setup_open(struct bench_setup *setup, const char *command, const struct cmd_config *settings,
                     const char *model);
/* The flow that loads are cut from; seeded. 0, or 1 after a message. */
int bench_setup_flow(struct bench_setup *setup, uint64_t n_message, uint32_t n_symbol);
void bench_setup_close(struct bench_setup *setup);

/* The calling thread, and those that it starts: to the poll loop's CPU, or to the others, if there are
 * others. */
void bench_cpus_move(const struct bench_cpus *cpus, int poll);

#endif
