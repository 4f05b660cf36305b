#include "bench_killline_run.h"

#include <stdlib.h>
#include <string.h>

#include "cmd.h"

enum {
    ROUNDS_MAX = 8,
    CLOSED_LOOP = 4,    /* frames outstanding */
    WARM_FRAMES = 1000, /* at the least */
};

const char *bench_killline_stage_name(enum bench_killline_stage stage)
{
    static const char *const name[BENCH_KILLLINE_N_STAGE] = {"wait", "receive", "queue", "inference",
                                                             "publish"};
    return name[stage];
}

const char *bench_killline_stage_text(enum bench_killline_stage stage)
{
    static const char *const text[BENCH_KILLLINE_N_STAGE] = {
        "due -> handed over: load generator late, or ring full",
        "-> decoded, in sequence, in the book; wait in the ring",
        "-> submitted: features, its turn, the first check",
        "-> the accelerator's answer is there",
        "-> datagram built, last check",
    };
    return text[stage];
}

const char *bench_killline_resource_name(enum bench_killline_resource resource)
{
    static const char *const name[BENCH_KILLLINE_N_RESOURCE] = {"poll_loop",  "accelerator", "receive_ring",
                                                                "audit_ring", "book_orders", "book_levels"};
    return name[resource];
}

/* ---- capacity ---- */

struct count {
    uint64_t frames, inferences, last;
};

static void count_record(void *ctx, const struct audit_prediction *r, uint64_t frame_no)
{
    struct count *c = ctx;
    if (frame_no == BENCH_RUN_PRELOADED)
        return;
    c->last = r->decided > c->last ? r->decided : c->last;
    c->inferences += (r->flags & AUDIT_FLAG_INFERRED) != 0;
}

int bench_killline_measure_capacity(const struct bench_rig *rig, struct accel *accel, uint64_t n_preload,
                                    double seconds, struct bench_killline_capacity *out)
{
    /* Every tick is to cost its inference. */
    struct config config = *rig->config;
    config.killline.supersede = false;
    config.killline.threshold_us = CONFIG_THRESHOLD_US_MAX;
    config.killline.threshold_max_us = 0;
    const struct bench_load load = {.config = &config,
                                    .accel = accel,
                                    .n_preload = n_preload,
                                    .n_frame = rig->flow->n_message - n_preload,
                                    .seconds = seconds,
                                    .ahead = CLOSED_LOOP};
    struct bench_run *run;
    struct count count = {0};
    *out = (struct bench_killline_capacity){0};
    const int failed = bench_run_open(rig, &load, &run) || bench_run_play(run) ||
                       bench_run_records(run, count_record, &count);
    if (!failed) {
        const struct bench_outcome *o = bench_run_outcome(run);
        const double s =
            count.last > o->start ? clock_cycles_to_ns(&rig->clock, count.last - o->start) / 1e9 : 0;
        out->inferences = count.inferences;
        out->frames_per_s = s > 0 ? (double)o->frames / s : 0;
        out->inferences_per_s = s > 0 ? (double)count.inferences / s : 0;
        out->inferred_share = o->frames ? (double)count.inferences / (double)o->frames : 0;
    }
    bench_run_close(run);
    if (!failed && !out->inferences)
        return cmd_error("%s: nothing is inferred, not even without a rate to keep up with: is the line at "
                         "%d us below the time of one inference?",
                         rig->command, CONFIG_THRESHOLD_US_MAX);
    return failed;
}

/* ---- evaluation ---- */

struct evaluation {
    const struct bench_rig *rig;
    struct bench_killline_result *out;
    struct bench_run *run;
    uint64_t warm_frames;           /* of this round */
    uint64_t first_due, last, busy; /* TSC of this round; busy: with a request outstanding */
    uint64_t answered;
    uint64_t poll_percent;          /* highest of the governor's windows */
    uint64_t watched_since, window; /* TSC; cycles */
    int window_is_whole;            /* one lay behind the preload and the warm-up as a whole */
    double stage_sum[BENCH_KILLLINE_N_STAGE];
    double inferred_share; /* of frames, as it is expected: by the round before */
    size_t age_room;
    int out_of_memory;
};

static uint64_t between(uint64_t from, uint64_t to)
{
    return (int64_t)(to - from) > 0 ? to - from : 0;
}

static void keep_age(struct evaluation *e, uint64_t cycles)
{
    struct bench_killline_result *out = e->out;
    if (out->n_age == e->age_room) {
        const size_t room = e->age_room ? 2 * e->age_room : 65536;
        uint64_t *grown = realloc(out->age_ns, room * sizeof(*grown));
        if (!grown) {
            e->out_of_memory = 1;
            return;
        }
        out->age_ns = grown;
        e->age_room = room;
    }
    out->age_ns[out->n_age++] = cycles == BENCH_KILLLINE_NEVER
                                    ? BENCH_KILLLINE_NEVER
                                    : (uint64_t)clock_cycles_to_ns(&e->rig->clock, cycles);
}

static void take_inferred(struct evaluation *e, const struct audit_prediction *r, uint64_t frame_no,
                          uint64_t due)
{
    struct bench_killline_result *out = e->out;
    const uint64_t stamp[BENCH_KILLLINE_N_STAGE + 1] = {
        due, bench_run_fed(e->run, frame_no), r->decoded, r->submitted, r->completed, r->decided};
    for (int s = 0; s < BENCH_KILLLINE_N_STAGE; s++) {
        const uint64_t cycles = between(stamp[s], stamp[s + 1]);
        histogram_record(&out->stage[s], cycles);
        e->stage_sum[s] += (double)cycles;
    }
    histogram_record(&out->age, between(due, r->decided));
    if (r->age_cycles != KILLLINE_AGE_NEVER)
        histogram_record(&out->uncorrected, r->age_cycles);
    out->runs++;
    keep_age(e, between(due, r->decided));
}

static void on_record(void *ctx, const struct audit_prediction *r, uint64_t frame_no)
{
    struct evaluation *e = ctx;
    struct bench_killline_result *out = e->out;
    if (frame_no == BENCH_RUN_PRELOADED || frame_no < e->warm_frames) {
        out->warm_up_predictions++;
        return;
    }
    const uint64_t due = bench_run_due(e->run, frame_no);
    e->last = r->decided;
    out->predictions++;
    out->verdicts[r->verdict]++;
    const int missed = r->verdict == VERDICT_EXPECTED_LATE || r->verdict == VERDICT_STALE ||
                       r->verdict == VERDICT_DEVICE_ERROR;
    out->missed += (uint64_t)missed;
    out->wanted += (uint64_t)(missed || r->verdict == VERDICT_PUBLISHED || r->verdict == VERDICT_SUPERSEDED);
    if (r->submitted && r->completed) {
        const uint64_t from = (int64_t)(r->submitted - e->answered) > 0 ? r->submitted : e->answered;
        e->busy += between(from, r->completed);
        e->answered = r->completed;
    }
    if (r->flags & AUDIT_FLAG_INFERRED)
        take_inferred(e, r, frame_no, due);
    else if (r->verdict == VERDICT_EXPECTED_LATE)
        /* What it would have been, as far as was known. */
        keep_age(e, between(due, r->decided) + r->expected_cycles);
    else if (missed)
        keep_age(e, BENCH_KILLLINE_NEVER);
}

/* The governor's windows that lie behind the preload; of a load shorter than that, the last one. */
static void watch(void *ctx, struct appliance *appliance)
{
    struct evaluation *e = ctx;
    struct governor_stats stats;
    governor_read(appliance_governor(appliance), &stats);
    const uint64_t busy = stats.metric[GOVERNOR_BUSY];
    if (!e->watched_since)
        e->watched_since = clock_tsc();
    if ((int64_t)(stats.at - e->watched_since - e->window) < 0) {
        e->poll_percent = e->window_is_whole ? e->poll_percent : busy;
        return;
    }
    e->poll_percent = e->window_is_whole && e->poll_percent > busy ? e->poll_percent : busy;
    e->window_is_whole = 1;
}

static void take_resources(struct evaluation *e)
{
    struct bench_killline_result *out = e->out;
    const struct bench_outcome *o = bench_run_outcome(e->run);
    const struct appliance *a = bench_run_appliance(e->run);
    const struct book_counters *book = book_counters(market_books(intake_market(appliance_intake(a))));
    const struct config *c = e->rig->config;
    const uint64_t measured = between(e->first_due, e->last);
    const double percent[BENCH_KILLLINE_N_RESOURCE] = {
        [BENCH_KILLLINE_POLL] = (double)e->poll_percent,
        [BENCH_KILLLINE_ACCELERATOR] = measured ? 100.0 * (double)e->busy / (double)measured : 0,
        [BENCH_KILLLINE_RING] = o->ring_size ? 100.0 * o->ring_high / o->ring_size : 0,
        [BENCH_KILLLINE_AUDIT] = 100.0 * (double)o->audit_high / c->audit.ring_records,
        [BENCH_KILLLINE_ORDERS] = 100.0 * (double)book->n_order_peak / c->book.orders,
        [BENCH_KILLLINE_LEVELS] = 100.0 * (double)book->n_level_peak / c->book.levels,
    };
    for (int i = 0; i < BENCH_KILLLINE_N_RESOURCE; i++)
        if (percent[i] > out->resource_percent[i])
            out->resource_percent[i] = percent[i];
}

static int check_sums(struct evaluation *e, uint64_t in_log)
{
    const struct appliance_stats *stats = appliance_stats(bench_run_appliance(e->run));
    const struct bench_outcome *o = bench_run_outcome(e->run);
    /* Every tick has one verdict, and its record, unless the log says how many are missing. */
    if (stats->predictions < in_log || stats->predictions - in_log > o->audit.lost)
        return cmd_error("%s: %llu predictions in the appliance's books, %llu in the log, %llu records lost",
                         e->rig->command, (unsigned long long)stats->predictions, (unsigned long long)in_log,
                         (unsigned long long)o->audit.lost);
    return 0;
}

/* One load. The governor's window at the rate is warm-up as well, so that its figures are of the load. */
static int play_round(struct evaluation *e, const struct bench_killline_plan *plan)
{
    const struct bench_rig *rig = e->rig;
    struct bench_killline_result *out = e->out;
    const uint64_t missing = plan->runs - out->runs, room = rig->flow->n_message - plan->n_preload,
                   window = (uint64_t)(plan->rate * rig->config->governor.window_ms / 1e3);
    e->warm_frames = window > WARM_FRAMES ? window : WARM_FRAMES;
    uint64_t n_frame = (uint64_t)((double)missing * 1.1 / e->inferred_share) + WARM_FRAMES + e->warm_frames;
    n_frame = n_frame > room ? room : n_frame;
    e->warm_frames = e->warm_frames > n_frame / 2 ? n_frame / 2 : e->warm_frames;
    e->busy = e->last = e->poll_percent = e->watched_since = 0;
    e->window_is_whole = 0;
    e->window = clock_ns_to_cycles(&rig->clock, rig->config->governor.window_ms * 1e6);
    const struct bench_load load = {
        .n_preload = plan->n_preload, .rate = plan->rate, .n_frame = n_frame, .watch = watch, .ctx = e};
    const uint64_t before = out->predictions + out->warm_up_predictions, runs = out->runs;
    if (bench_run_open(rig, &load, &e->run) || bench_run_play(e->run))
        return 1;
    const struct bench_outcome *o = bench_run_outcome(e->run);
    e->first_due = e->answered = bench_run_due(e->run, e->warm_frames);
    if (bench_run_records(e->run, on_record, e) ||
        check_sums(e, out->predictions + out->warm_up_predictions - before))
        return 1;
    if (e->out_of_memory)
        return cmd_error("%s: out of memory for the ages; fewer --runs", rig->command);
    take_resources(e);
    const double seconds = clock_cycles_to_ns(&rig->clock, between(e->first_due, e->last)) / 1e9;
    const struct appliance_stats *stats = appliance_stats(bench_run_appliance(e->run));
    out->seconds += seconds;
    out->frames += o->frames - e->warm_frames;
    out->audit_lost += o->audit.lost;
    out->rung_changes += stats->rung_changes;
    out->alerts += stats->alerts;
    out->kept_warm += stats->kept_warm;
    out->keep_warm_max_ns = (double)stats->keep_warm_ns_max > out->keep_warm_max_ns
                                ? (double)stats->keep_warm_ns_max
                                : out->keep_warm_max_ns;
    out->rounds++;
    const double share = (double)(out->runs - runs) / (double)(o->frames - e->warm_frames);
    /* A disturbed round is not to make the next one endless. */
    const double least = plan->inferred_share / 4;
    e->inferred_share = share > plan->inferred_share ? plan->inferred_share : share > least ? share : least;
    return out->runs > runs
               ? 0
               : cmd_error("%s: at %.0f frames/s nothing is inferred: %llu of %llu predictions "
                           "are expected-late; a lower --rate, or a higher threshold",
                           rig->command, plan->rate, (unsigned long long)out->verdicts[VERDICT_EXPECTED_LATE],
                           (unsigned long long)out->predictions);
}

static void conclude(struct evaluation *e, const struct bench_killline_plan *plan)
{
    struct bench_killline_result *out = e->out;
    double all = 0;
    uint64_t p50 = 0, p99 = 0;
    for (int s = 0; s < BENCH_KILLLINE_N_STAGE; s++)
        all += e->stage_sum[s];
    for (int s = 0; s < BENCH_KILLLINE_N_STAGE; s++) {
        const uint64_t q50 = histogram_quantile(&out->stage[s], 0.5),
                       q99 = histogram_quantile(&out->stage[s], 0.99);
        out->share_percent[s] = all > 0 ? 100 * e->stage_sum[s] / all : 0;
        if (q50 > p50) {
            p50 = q50;
            out->bottleneck = (enum bench_killline_stage)s;
        }
        if (q99 > p99) {
            p99 = q99;
            out->bottleneck_p99 = (enum bench_killline_stage)s;
        }
    }
    out->rate = plan->rate;
    out->reached = out->seconds > 0 ? (double)out->frames / out->seconds : 0;
    out->per_s = out->seconds > 0 ? (double)out->runs / out->seconds : 0;
    bench_killline_recommend(out->age_ns, out->n_age, plan->target_miss, &out->recommendation);
}

int bench_killline_evaluate(const struct bench_rig *rig, const struct bench_killline_plan *plan,
                            struct bench_killline_result *out)
{
    struct evaluation e = {.rig = rig, .out = out, .inferred_share = plan->inferred_share};
    int failed = 0;
    *out = (struct bench_killline_result){0};
    histogram_init(&out->age);
    histogram_init(&out->uncorrected);
    for (int s = 0; s < BENCH_KILLLINE_N_STAGE; s++)
        histogram_init(&out->stage[s]);
    while (!failed && out->runs < plan->runs && out->rounds < ROUNDS_MAX) {
        failed = play_round(&e, plan);
        bench_run_close(e.run);
        e.run = NULL;
    }
    if (!failed && out->runs < plan->runs)
        failed = cmd_error("%s: %llu inferences in %u rounds, of %llu asked: most ticks are not inferred at "
                           "%.0f frames/s; a lower --rate, or fewer --runs",
                           rig->command, (unsigned long long)out->runs, out->rounds,
                           (unsigned long long)plan->runs, plan->rate);
    if (!failed)
        conclude(&e, plan);
    return failed;
}
