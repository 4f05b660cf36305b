#include "bench_killline_stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_slow.h"
#include "cmd.h"

enum {
    OVERLOAD = 10, /* times the capacity */
    WINDOW_MS = 10,
    HOLD_US = 1000, /* between an order to halt and the one to resume, and between two pairs */
    ORDER_LIMIT_MS = 1000,
    ORDERS_MAX = 1000,
};

static uint64_t between(uint64_t from, uint64_t to)
{
    return (int64_t)(to - from) > 0 ? to - from : 0;
}

/* ---- overload ---- */

/* By stream: the last window in which it ticked, or had a prediction published. */
struct window {
    uint64_t no;
    uint8_t ticked[KL_N_STREAM_MAX], served[KL_N_STREAM_MAX];
};

struct overload {
    const struct bench_rig *rig;
    struct bench_killline_overload *out;
    struct bench_run *run;
    uint64_t first, last; /* TSC */
    struct window window;
    int64_t memory_first, memory_last;
    uint64_t n_look, start_look;
    double seconds;
};

static int64_t resident_bytes(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %lld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void watch_memory(void *ctx, struct appliance *appliance)
{
    struct overload *o = ctx;
    (void)appliance;
    if (!o->start_look)
        o->start_look = clock_tsc();
    const double s = clock_cycles_to_ns(&o->rig->clock, clock_tsc() - o->start_look) / 1e9;
    o->memory_last = resident_bytes();
    if (!o->memory_first && s > o->seconds / 4)
        o->memory_first = o->memory_last;
}

static void close_window(struct overload *o)
{
    struct bench_killline_overload *out = o->out;
    struct window *w = &o->window;
    uint64_t ticked = 0, served = 0;
    for (int i = 0; i < KL_N_STREAM_MAX; i++) {
        ticked += w->ticked[i];
        served += (uint64_t)(w->ticked[i] && w->served[i]);
    }
    if (ticked) {
        const double percent = 100.0 * (double)served / (double)ticked;
        if (!out->windows || percent < out->served_least_percent)
            out->served_least_percent = percent;
        out->windows++;
        out->ticked += ticked;
        out->served += served;
    }
    memset(w->ticked, 0, sizeof(w->ticked));
    memset(w->served, 0, sizeof(w->served));
}

/* Verdicts come in the order of time; a tick counts in the window of its verdict, which is at most a
 * threshold's worth later. */
static void overload_record(void *ctx, const struct audit_prediction *r, uint64_t frame_no)
{
    struct overload *o = ctx;
    struct bench_killline_overload *out = o->out;
    if (frame_no == BENCH_RUN_PRELOADED)
        return;
    out->predictions++;
    out->verdicts[r->verdict]++;
    o->last = r->decided;
    const uint64_t no = between(o->first, r->decided) / clock_ns_to_cycles(&o->rig->clock, WINDOW_MS * 1e6);
    if (no != o->window.no) {
        close_window(o);
        o->window.no = no;
    }
    o->window.ticked[r->stream] = 1;
    if (r->verdict != VERDICT_PUBLISHED)
        return;
    o->window.served[r->stream] = 1;
    out->over_line += r->age_cycles > r->threshold_cycles;
    histogram_record(&out->published_age, r->age_cycles);
    histogram_record(&out->published_due, between(bench_run_due(o->run, frame_no), r->decided));
}

static int play_overload(struct overload *o, const struct bench_load *load)
{
    struct bench_killline_overload *out = o->out;
    int failed = bench_run_open(o->rig, load, &o->run) || bench_run_play(o->run);
    if (!failed) {
        o->first = bench_run_outcome(o->run)->start;
        failed = bench_run_records(o->run, overload_record, o);
    }
    if (!failed) {
        const struct bench_outcome *outcome = bench_run_outcome(o->run);
        close_window(o);
        uint64_t fed = o->first;
        for (uint64_t i = outcome->frames; i-- > 0 && fed == o->first;)
            fed = bench_run_fed(o->run, i) != UINT64_MAX ? bench_run_fed(o->run, i) : fed;
        const double feeding = clock_cycles_to_ns(&o->rig->clock, between(o->first, fed)) / 1e9;
        out->offered = feeding > 0 ? (double)outcome->frames / feeding : 0;
        out->seconds = clock_cycles_to_ns(&o->rig->clock, between(o->first, o->last)) / 1e9;
        out->frames = outcome->frames;
        out->ring_full = outcome->ring_full;
        out->ring_lost = outcome->ring_lost;
        out->ring_high = outcome->ring_high;
        out->ring_size = outcome->ring_size;
        out->audit_lost = outcome->audit.lost;
        out->rung_changes = appliance_stats(bench_run_appliance(o->run))->rung_changes;
        out->memory_growth_bytes = o->memory_first ? o->memory_last - o->memory_first : 0;
    }
    bench_run_close(o->run);
    return failed;
}

/* With a time imposed the backend is the vector one, whatever serves otherwise: the answers are the same, and
 * it is faster than what it plays. */
static int open_slow(const struct bench_rig *rig, double step_ns, struct accel **fast, struct accel **slow)
{
    const struct accel_cpu_options options = {.build = rig->accel->build};
    *fast = accel_cpu_open(&options);
    *slow = *fast ? bench_slow_open(*fast, clock_ns_to_cycles(&rig->clock, step_ns)) : NULL;
    if (*slow)
        return 0;
    return cmd_error("%s: out of memory for the slowed accelerator", rig->command);
}

int bench_killline_overload(const struct bench_rig *rig, const struct bench_killline_overload_plan *plan,
                            struct bench_killline_overload *out)
{
    struct overload *o = calloc(1, sizeof(*o));
    struct accel *fast = NULL, *slow = NULL;
    *out = (struct bench_killline_overload){.step_ns = plan->step_ns};
    histogram_init(&out->published_age);
    histogram_init(&out->published_due);
    if (!o)
        return cmd_error("%s: out of memory", rig->command);
    int failed = plan->step_ns > 0 && open_slow(rig, plan->step_ns, &fast, &slow);
    failed = failed || bench_killline_measure_capacity(rig, slow, plan->n_preload, plan->capacity_seconds,
                                                       &out->capacity);
    if (!failed) {
        out->rate = OVERLOAD * out->capacity.frames_per_s;
        const double n = out->rate * plan->seconds;
        const uint64_t room = rig->flow->n_message - plan->n_preload;
        const uint64_t n_frame = n < (double)room ? (uint64_t)n : room;
        const struct bench_load load = {.accel = slow,
                                        .n_preload = plan->n_preload,
                                        .rate = out->rate,
                                        .n_frame = n_frame,
                                        .is_lossy = plan->is_lossy,
                                        .watch = watch_memory,
                                        .ctx = o};
        o->rig = rig;
        o->out = out;
        o->seconds = (double)n_frame / out->rate;
        failed = play_overload(o, &load);
    }
    if (slow)
        slow->ops->close(slow);
    if (fast)
        fast->ops->close(fast);
    free(o);
    return failed;
}

/* ---- idle gaps ---- */

struct idle {
    struct bench_run *run;
    struct histogram *age;
};

static void idle_record(void *ctx, const struct audit_prediction *r, uint64_t frame_no)
{
    struct idle *i = ctx;
    /* The first one had no gap before it. */
    if (frame_no != BENCH_RUN_PRELOADED && frame_no > 0 && r->flags & AUDIT_FLAG_INFERRED)
        histogram_record(i->age, between(bench_run_fed(i->run, frame_no), r->decided));
}

static int idle_block(const struct bench_rig *rig, const struct bench_load *load,
                      struct bench_killline_idle *out, struct histogram *age)
{
    struct idle i = {.age = age};
    const int failed = bench_run_open(rig, load, &i.run) || bench_run_play(i.run) ||
                       bench_run_records(i.run, idle_record, &i);
    if (!failed) {
        const struct appliance_stats *stats = appliance_stats(bench_run_appliance(i.run));
        const double longest = (double)stats->keep_warm_ns_max;
        out->kept_warm += stats->kept_warm;
        out->keep_warm_max_ns = longest > out->keep_warm_max_ns ? longest : out->keep_warm_max_ns;
    }
    bench_run_close(i.run);
    return failed;
}

int bench_killline_idle(const struct bench_rig *rig, double gap_ns, uint64_t n_frame, uint32_t n_block,
                        uint64_t n_preload, struct bench_killline_idle *out)
{
    struct config on = *rig->config, off = *rig->config;
    off.killline.keep_warm_us = 0;
    /* The widest line: a cold tick is to be inferred as well. */
    on.killline.threshold_us = off.killline.threshold_us = CONFIG_THRESHOLD_US_MAX;
    on.killline.threshold_max_us = off.killline.threshold_max_us = 0;
    *out = (struct bench_killline_idle){.gap_ns = gap_ns, .keep_warm_us = on.killline.keep_warm_us};
    histogram_init(&out->on);
    histogram_init(&out->off);
    int failed = 0;
    for (uint32_t b = 0; !failed && b < 2 * n_block; b++) {
        const struct bench_load load = {
            .config = b % 2 ? &off : &on, .n_preload = n_preload, .rate = 1e9 / gap_ns, .n_frame = n_frame};
        failed = idle_block(rig, &load, out, b % 2 ? &out->off : &out->on);
    }
    return failed;
}

/* ---- halts ---- */

struct halt {
    uint64_t ordered, returned, resumed; /* TSC; resumed: before that order was given */
    uint32_t late_after_return;
};

struct halts {
    const struct bench_rig *rig;
    struct bench_killline_halt *out;
    struct order_desk desk;
    struct halt halt[ORDERS_MAX];
    uint32_t n_order, at;
};

/* Nonzero: it was carried out. */
static int await(struct halts *h)
{
    const uint64_t start = clock_tsc(), limit = clock_ns_to_cycles(&h->rig->clock, ORDER_LIMIT_MS * 1e6);
    while (!order_is_done(&h->desk)) {
        if (clock_tsc() - start > limit) {
            h->out->not_carried_out++;
            return 0;
        }
        usleep(20);
    }
    return 1;
}

static void order_once(void *ctx, struct appliance *appliance)
{
    struct halts *h = ctx;
    struct bench_killline_halt *out = h->out;
    (void)appliance;
    if (out->orders == h->n_order || out->not_carried_out)
        return;
    struct halt *halt = &h->halt[out->orders];
    order_post(&h->desk, &(struct order){.kind = ORDER_HALT, .by = "bench", .reason = "measuring a halt"});
    halt->returned = clock_tsc();
    halt->resumed = UINT64_MAX;
    out->orders++;
    halt->ordered = atomic_load_explicit(&h->desk.halted_at, memory_order_relaxed);
    if (!await(h))
        return;
    histogram_record(&out->acknowledged,
                     between(halt->ordered, atomic_load_explicit(&h->desk.seen_at, memory_order_relaxed)));
    usleep(HOLD_US);
    halt->resumed = clock_tsc();
    order_post(&h->desk, &(struct order){.kind = ORDER_RESUME, .by = "bench", .reason = "measured"});
    await(h);
}

/* Verdicts and orders both come in the order of time. */
static void halt_record(void *ctx, const struct audit_prediction *r, uint64_t frame_no)
{
    struct halts *h = ctx;
    struct bench_killline_halt *out = h->out;
    if (r->verdict != VERDICT_PUBLISHED)
        return;
    out->published += frame_no != BENCH_RUN_PRELOADED;
    while (h->at < out->orders && (int64_t)(r->decided - h->halt[h->at].resumed) >= 0 &&
           h->halt[h->at].resumed != UINT64_MAX)
        h->at++;
    if (h->at == out->orders || (int64_t)(r->decided - h->halt[h->at].ordered) <= 0)
        return;
    struct halt *halt = &h->halt[h->at];
    const double late_ns = clock_cycles_to_ns(&h->rig->clock, r->decided - halt->ordered);
    out->late++;
    out->late_max_ns = late_ns > out->late_max_ns ? late_ns : out->late_max_ns;
    if ((int64_t)(r->decided - halt->returned) > 0) {
        out->late_after_return++;
        halt->late_after_return++;
        if (halt->late_after_return > out->late_after_return_most)
            out->late_after_return_most = halt->late_after_return;
    }
}

int bench_killline_halts(const struct bench_rig *rig, double rate, uint32_t n_order, uint64_t n_preload,
                         struct bench_killline_halt *out)
{
    struct halts *h = aligned_alloc(64, (sizeof(*h) + 63) / 64 * 64);
    *out = (struct bench_killline_halt){0};
    histogram_init(&out->acknowledged);
    if (!h)
        return cmd_error("%s: out of memory", rig->command);
    *h = (struct halts){.rig = rig, .out = out, .n_order = n_order < ORDERS_MAX ? n_order : ORDERS_MAX};
    /* Time for every pair: held, released, and what sleeping costs above what was asked. */
    const double seconds = h->n_order * (2 * HOLD_US + 1500) / 1e6 + 0.01;
    const double n = rate * seconds;
    const uint64_t room = rig->flow->n_message - n_preload;
    const struct bench_load load = {.n_preload = n_preload,
                                    .rate = rate,
                                    .n_frame = n < (double)room ? (uint64_t)n : room,
                                    .watch = order_once,
                                    .ctx = h,
                                    .desk = &h->desk};
    struct bench_run *run;
    const int failed =
        bench_run_open(rig, &load, &run) || bench_run_play(run) || bench_run_records(run, halt_record, h);
    bench_run_close(run);
    free(h);
    return failed;
}
