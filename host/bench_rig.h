/* The appliance under a measured load: frames of a generated flow, at their due times, through a ring port
 * into the poll loop as it runs in production, with its audit writer and file. What became of every tick is
 * read from the audit log afterwards. For killline bench pipeline and killline bench killline.
 *
 * One message per frame: message i of the flow has feed sequence number i + 1, and so every record says which
 * frame it comes from, and when that was due. */
#ifndef BENCH_RIG_H
#define BENCH_RIG_H

#include <sched.h>

#include "appliance.h"
#include "bench_flow.h"
#include "run_accel.h"

/* Where the threads run. Fewer than three CPUs: some share one. */
struct bench_cpus {
    int poll, feeder, audit;
    cpu_set_t all;
};

/* What all loads have in common. */
struct bench_rig {
    const char *command;         /* "bench killline": stands in messages */
    const struct config *config; /* real clock */
    const struct model *model;
    const struct run_accel *accel; /* its slot 0 is loaded anew for every load */
    const struct bench_flow *flow; /* preload, and the frames that count */
    struct clock_calibration clock;
    struct bench_cpus cpus;
    uint8_t config_sha256[CONFIG_SHA256_BYTES];
};

enum {
    /* Messages that come first, as fast as they are worked off: they fill the books and warm the models'
     * streams up. */
    BENCH_RIG_PRELOAD = 50000,
};

struct bench_load {
    const struct config *config; /* NULL: the rig's */
    struct accel *accel;         /* NULL: the rig's; model loaded, no guard */
    uint64_t n_preload;
    double rate;      /* frames per second, due evenly; 0: as fast as the ring takes them */
    uint64_t n_frame; /* behind the preload; one message each */
    double seconds;   /* without a rate: ends after them, if not after n_frame */
    uint32_t ahead;   /* without a rate: at most so many frames are handed over and not worked off yet (closed
                         loop); 0: as many as the ring holds */
    int is_lossy;     /* a frame that finds the ring full is lost, as on a NIC; else it comes late */
    struct trace *trace; /* NULL: none */
    /* The calling thread, about every millisecond while the load (not the preload) is under way. NULL: none.
     */
    void (*watch)(void *ctx, struct appliance *appliance);
    void *ctx;
    struct order_desk *desk; /* NULL: nobody orders */
};

struct bench_run;

/* Cold code; each that returns int: 0, or 1 after a message on stderr. port_init has been called. */
int bench_run_open(const struct bench_rig *rig, const struct bench_load *load, struct bench_run **run);
/* Plays the load to its end, and closes the log. */
int bench_run_play(struct bench_run *run);
void bench_run_close(struct bench_run *run);

/* After bench_run_play. */
struct bench_outcome {
    uint64_t start;                /* TSC of the first due time */
    uint64_t frames;               /* that were due; without the preload */
    uint64_t ring_full;            /* of them, found the port's ring full: came later, or */
    uint64_t ring_lost;            /* is_lossy: did not come */
    unsigned ring_high, ring_size; /* receive ring: most frames that waited, and its room */
    uint64_t audit_high;           /* audit ring: most records that waited; looked at every millisecond */
    struct audit_totals audit;     /* preload included */
};
const struct bench_outcome *bench_run_outcome(const struct bench_run *run);
const struct appliance *bench_run_appliance(const struct bench_run *run);

/* Every prediction of the log, in the order of verdicts; frame_no: within the load, or BENCH_RUN_PRELOADED.
 */
#define BENCH_RUN_PRELOADED UINT64_MAX
int bench_run_records(struct bench_run *run,
                      void (*on_record)(void *ctx, const struct audit_prediction *r, uint64_t frame_no),
                      void *ctx);
/* TSC: when a frame of the load was due; when it was handed over (UINT64_MAX: it was lost). Without a rate
 * they are the same. */
uint64_t bench_run_due(const struct bench_run *run, uint64_t frame_no);
uint64_t bench_run_fed(const struct bench_run *run, uint64_t frame_no);

#endif
