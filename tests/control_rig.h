/* An appliance without a market: control's threads, a real governor, and a thread that plays the poll loop,
 * in this process. What it says on stderr is kept in a file. */
#ifndef CONTROL_RIG_H
#define CONTROL_RIG_H

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/control.h"

struct control_rig {
    char folder[64], log_path[96], err_path[96];
    struct control *control;
    struct state_file start;
    char warning[CONTROL_ERROR_CHARS];
    struct order_desk desk;
    struct governor *governor;
    struct clock_calibration clock;
    struct config_governor rules;
    struct audit_log *log;
    pthread_t loop;
    _Atomic int ends, hangs;        /* the loop */
    _Atomic uint32_t ages_us, fail; /* of its predictions, 0: it makes none; device errors to come */
    char by[ORDER_BY_CHARS], reason[ORDER_REASON_CHARS]; /* of the last order that it carried out */
    int stderr_fd;
};

static inline void rig_sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l}, NULL);
}

static inline void *rig_loop(void *argument)
{
    struct control_rig *rig = argument;
    const uint64_t line = clock_ns_to_cycles(&rig->clock, 100e3);
    governor_threshold(rig->governor, line);
    while (!rig->ends) {
        const uint64_t now = clock_tsc();
        struct governor_event event;
        const struct order *order = rig->hangs ? NULL : order_next(&rig->desk);
        if (order) {
            if (order->kind == ORDER_HALT)
                governor_halt(rig->governor, now);
            else
                governor_resume(rig->governor, now);
            memcpy(rig->by, order->by, sizeof(rig->by));
            memcpy(rig->reason, order->reason, sizeof(rig->reason));
            order_carried_out(&rig->desk);
        }
        const uint32_t age_us = rig->ages_us;
        for (int i = 0; age_us && i < 10; i++)
            governor_prediction(rig->governor, age_us <= 100 ? VERDICT_PUBLISHED : VERDICT_STALE,
                                clock_ns_to_cycles(&rig->clock, age_us * 1e3), line);
        for (; rig->fail; rig->fail--)
            governor_device_error(rig->governor, now);
        governor_step(rig->governor, now);
        while (governor_next(rig->governor, &event))
            ;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NULL;
}

/* What ends a test program: this helper itself cannot go on. */
static inline void rig_require(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "control_rig: %s\n", what);
    abort();
}

static inline void rig_make(struct control_rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    snprintf(rig->folder, sizeof(rig->folder), "/tmp/test_control.XXXXXX");
    rig_require(mkdtemp(rig->folder) != NULL, "no folder");
    snprintf(rig->log_path, sizeof(rig->log_path), "%s/rig.kla", rig->folder);
    snprintf(rig->err_path, sizeof(rig->err_path), "%s/stderr", rig->folder);
    rig_require(clock_calibrate(&rig->clock, 5) == 0, "no invariant TSC");
    rig->rules.warning.latency_percent = (struct config_rule){80, 60};
    rig->rules.warning.device_errors = (struct config_rule){1, 0};
    rig->rules.backup.latency_percent = (struct config_rule){150, 90};
    rig->rules.halted.latency_percent = (struct config_rule){300, 200};
}

static inline void rig_remove(struct control_rig *rig)
{
    char line[128];
    snprintf(line, sizeof(line), "rm -r '%s'", rig->folder);
    rig_require(system(line) == 0, line);
}

static inline void rig_err_from_here(struct control_rig *rig)
{
    const int fd = open(rig->err_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    fflush(stderr);
    rig->stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    rig_require(fd >= 0 && rig->stderr_fd >= 0 && dup2(fd, STDERR_FILENO) >= 0, "stderr");
    close(fd);
}

static inline void rig_err_back(struct control_rig *rig)
{
    fflush(stderr);
    dup2(rig->stderr_fd, STDERR_FILENO);
    close(rig->stderr_fd);
}

/* Its lock and its state, no socket yet: an appliance that is about to start. Ends the program if it cannot.
 */
static inline void rig_open(struct control_rig *rig)
{
    char error[CONTROL_ERROR_CHARS];
    rig->control = control_open(rig->folder, &rig->start, rig->warning, error);
    rig_require(rig->control != NULL, error);
}

/* Starts, from what the folder's state file says. Ends the program if it cannot. */
static inline void rig_start(struct control_rig *rig)
{
    char error[CONTROL_ERROR_CHARS];
    if (!rig->control)
        rig_open(rig);
    struct governor_config g = {
        .ns_per_unit = 1e9 / rig->clock.hz,
        .window = clock_ns_to_cycles(&rig->clock, 400e6),
        .min_count = 20,
        .has_backup = 1,
        .throttle_devices = 4,
        .throttle_halts = 20,
        .throttle_window = clock_ns_to_cycles(&rig->clock, 60e9),
        .start_rung = rig->start.rung,
        .start_cause = rig->start.cause,
        .n_device_fault = rig->start.n_device_fault,
    };
    const struct config_rung *rungs[] = {&rig->rules.warning, &rig->rules.backup, &rig->rules.halted};
    for (int i = 0; i < 3; i++) {
        g.dwell[i + 1] = clock_ns_to_cycles(&rig->clock, 100e6);
        g.rule[i + 1][GOVERNOR_LATENCY] =
            (struct governor_rule){rungs[i]->latency_percent.enter, rungs[i]->latency_percent.leave};
    }
    g.rule[GOVERNOR_WARNING][GOVERNOR_DEVICE] = (struct governor_rule){1, 0};
    const uint64_t now = clock_tsc(),
                   utc_ns =
                       rig->clock.utc_ns0 + (uint64_t)clock_cycles_to_ns(&rig->clock, now - rig->clock.tsc0);
    for (uint32_t i = 0; i < g.n_device_fault; i++)
        g.device_fault[i] =
            now - clock_ns_to_cycles(&rig->clock, (double)(utc_ns - rig->start.device_fault_utc_ns[i]));
    rig->governor = governor_create(&g, now);
    struct audit_config log = {.path = rig->log_path,
                               .n_ring = 2,
                               .header = {.tsc_hz = rig->clock.hz, .abi_version = 1, .n_model = 1}};
    rig->log = audit_open(&log, error);
    rig_require(rig->governor && rig->log, error);
    memset(&rig->desk, 0, sizeof(rig->desk));
    rig->ends = rig->hangs = 0;
    rig->ages_us = rig->fail = 0;
    rig_err_from_here(rig);
    const struct control_view view = {.desk = &rig->desk,
                                      .governor = rig->governor,
                                      .rules = &rig->rules,
                                      .log = rig->log,
                                      .clock = rig->clock,
                                      .run_name = "a day",
                                      .out = "out/folder"};
    if (control_start(rig->control, &view, error)) {
        rig_err_back(rig);
        rig_require(0, error);
    }
    rig_require(pthread_create(&rig->loop, NULL, rig_loop, rig) == 0, "no thread");
}

static inline void rig_stop(struct control_rig *rig)
{
    rig->ends = 1;
    pthread_join(rig->loop, NULL);
    control_close(rig->control);
    rig->control = NULL;
    rig_err_back(rig);
    audit_stop(rig->log, clock_tsc());
    audit_close(rig->log, NULL, rig->warning);
    unlink(rig->log_path);
    governor_free(rig->governor);
}

/* What has been said on stderr so far. */
static inline const char *rig_err(const struct control_rig *rig)
{
    static char text[65536];
    FILE *f = fopen(rig->err_path, "rb");
    rig_require(f != NULL, rig->err_path);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* Waits until the state file holds the rung and the latch; ends the program after 10 s. */
static inline struct state_file rig_await(const struct control_rig *rig, enum governor_rung rung, int latched)
{
    struct state_file state;
    char error[CONTROL_ERROR_CHARS] = "", path[96];
    snprintf(path, sizeof(path), "%s/state.json", rig->folder);
    for (int i = 0; i < 2000; i++) {
        if (!access(path, F_OK) && !control_read(rig->folder, &state, error) && state.rung == rung &&
            state.latched == latched)
            return state;
        rig_sleep_ms(5);
    }
    dprintf(rig->stderr_fd, "it stands at %u, not %u %s\n%s\n", state.rung, rung, error, rig_err(rig));
    abort();
}

#endif
