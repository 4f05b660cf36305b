#include "bench_pipeline_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"

/* One tick, kept until the load is over: histograms would cost the loop more of its caches. */
struct sample {
    uint64_t end;      /* TSC, behind the last mark */
    uint64_t frame_no; /* within the load, or BENCH_RUN_PRELOADED; from the audit log */
    uint16_t reached;
    uint8_t verdict;
    uint32_t cycles[TRACE_N_STAGE]; /* saturated */
    uint16_t floor_cycles[TRACE_N_STAGE];
};

struct bench {
    const struct bench_pipeline_load *load;
    struct bench_run *run;
    struct trace trace;
    struct sample *samples;
    uint64_t n_sample, n_all; /* n_all: frames there are, preload included */
    uint64_t n_record;        /* of predictions in the log */
};

const char *bench_pipeline_row_name(enum bench_pipeline_row row)
{
    static const char *const name[BENCH_PIPELINE_N_ROW] = {
        [TRACE_RECEIVE] = "receive",
        [TRACE_DECODE] = "decode",
        [TRACE_BOOK] = "book",
        [TRACE_FEATURES] = "features",
        [TRACE_SUBMIT] = "submit",
        [TRACE_INFERENCE] = "inference",
        [TRACE_CHECK] = "check",
        [TRACE_PUBLISH] = "publish",
        [TRACE_AUDIT] = "audit",
        [BENCH_PIPELINE_WAIT] = "wait",
        [BENCH_PIPELINE_TOTAL] = "total",
        [BENCH_PIPELINE_OTHER] = "other_than_inference",
    };
    return name[row];
}

/* The poll loop's thread, after a verdict. */
static void on_tick(struct trace *trace, unsigned verdict)
{
    struct bench *b = trace->ctx;
    assert(b->n_sample < b->n_all); /* one message per frame: one tick at most */
    struct sample *s = &b->samples[b->n_sample++];
    s->end = trace->last;
    s->reached = (uint16_t)trace->reached;
    s->verdict = (uint8_t)verdict;
    for (int i = 0; i < TRACE_N_STAGE; i++) {
        const uint64_t cycles = trace->cycles[i], empty = trace->floor_cycles[i];
        s->cycles[i] = cycles < UINT32_MAX ? (uint32_t)cycles : UINT32_MAX;
        s->floor_cycles[i] = empty < UINT16_MAX ? (uint16_t)empty : UINT16_MAX;
    }
}

/* Of the log, in the same order. */
static void on_record(void *ctx, const struct audit_prediction *r, uint64_t frame_no)
{
    struct bench *b = ctx;
    if (b->n_record < b->n_sample && b->samples[b->n_record].verdict == r->verdict)
        b->samples[b->n_record].frame_no = frame_no;
    b->n_record++;
}

/* ---- the load and what came of it ---- */

static int open_bench(const struct bench_rig *rig, struct config *config, struct bench *b)
{
    /* One tick after the other: the stages of a batch's ticks cannot be told apart. */
    *config = *rig->config;
    config->killline.batch = 1;
    b->n_all = BENCH_RIG_PRELOAD + b->load->n_frame;
    const size_t sample_bytes = b->n_all * sizeof(*b->samples);
    b->samples = malloc(sample_bytes);
    if (!b->samples)
        return cmd_error(
            "bench pipeline: out of memory for the stamps of %llu frames; fewer --seconds or --rates",
            (unsigned long long)b->n_all);
    /* Touched now: no page fault between two ticks. */
    memset(b->samples, 0xff, sample_bytes);
    b->trace.on_tick = on_tick;
    b->trace.ctx = b;
    const struct bench_load load = {.config = config,
                                    .n_preload = BENCH_RIG_PRELOAD,
                                    .rate = b->load->rate,
                                    .n_frame = b->load->n_frame,
                                    .seconds = b->load->seconds,
                                    .trace = &b->trace};
    return bench_run_open(rig, &load, &b->run);
}

/* Since the guard was opened. */
static void count_failures(const struct accel *guard, uint64_t *failovers, uint64_t *mirror_answers)
{
    *failovers = *mirror_answers = 0;
    for (uint32_t card = 0; guard && card < accel_guard_n_card(guard); card++) {
        struct accel_guard_stats stats;
        accel_guard_stats(guard, card, &stats);
        *failovers += stats.failovers + stats.quarantines;
        *mirror_answers += stats.mirror_answers;
    }
}

static void record(struct bench_pipeline_result *result, int row, uint64_t cycles, uint64_t floor_cycles)
{
    histogram_record(&result->row[row], cycles);
    histogram_record(&result->floor[row], floor_cycles);
}

/* An idle loop is in port_receive when a frame becomes due, and may be interrupted there, or elsewhere with
 * what came before it: the time before counts for no frame. */
static void take_sample(const struct bench *b, struct sample *s, struct bench_pipeline_result *result)
{
    uint64_t stages = 0, floors = 0;
    for (int i = 0; i < TRACE_N_STAGE; i++) {
        stages += s->cycles[i];
        floors += s->floor_cycles[i];
    }
    const uint64_t total = s->end - bench_run_due(b->run, s->frame_no);
    const uint64_t before = stages + floors > total ? stages + floors - total : 0;
    const uint64_t early = before < s->cycles[TRACE_RECEIVE] ? before : s->cycles[TRACE_RECEIVE];
    s->cycles[TRACE_RECEIVE] -= early;
    stages -= early;
    for (int i = 0; i < TRACE_N_STAGE; i++)
        if (s->reached & 1u << i)
            record(result, i, s->cycles[i] < total ? s->cycles[i] : total, s->floor_cycles[i]);
    record(result, BENCH_PIPELINE_TOTAL, total, floors);
    record(result, BENCH_PIPELINE_WAIT, total > stages + floors ? total - stages - floors : 0, 0);
    if (s->verdict == VERDICT_PUBLISHED)
        record(result, BENCH_PIPELINE_OTHER, stages - s->cycles[TRACE_INFERENCE],
               floors - s->floor_cycles[TRACE_INFERENCE]);
}

static int summarise(const struct bench_rig *rig, struct bench *b, struct bench_pipeline_result *result)
{
    const struct appliance_stats *stats = appliance_stats(bench_run_appliance(b->run));
    const struct bench_outcome *outcome = bench_run_outcome(b->run);
    const uint64_t warm = outcome->frames / BENCH_PIPELINE_WARM_UP;
    *result = (struct bench_pipeline_result){.rate = b->load->rate,
                                             .frames = outcome->frames,
                                             .ring_full = outcome->ring_full,
                                             .audit_records = outcome->audit.records,
                                             .audit_lost = outcome->audit.lost};
    for (int row = 0; row < BENCH_PIPELINE_N_ROW; row++) {
        histogram_init(&result->row[row]);
        histogram_init(&result->floor[row]);
    }
    if (bench_run_records(b->run, on_record, b))
        return 1;
    if (outcome->audit.lost)
        return cmd_error("bench pipeline: %llu audit records found their ring full, and which frame a tick "
                         "comes from is in them; --set audit.ring_records=%llu, or a lower rate",
                         (unsigned long long)outcome->audit.lost,
                         (unsigned long long)rig->config->audit.ring_records * 4);
    uint64_t by_verdict[VERDICT_COUNT] = {0}, last = outcome->start;
    for (uint64_t i = 0; i < b->n_sample; i++) {
        struct sample *s = &b->samples[i];
        by_verdict[s->verdict]++;
        if (s->frame_no == BENCH_RUN_PRELOADED) {
            result->preload_ticks++;
            continue;
        }
        last = s->end;
        result->ticks++;
        result->verdicts[s->verdict]++;
        if (s->frame_no >= warm)
            take_sample(b, s, result);
    }
    result->seconds =
        clock_cycles_to_ns(&rig->clock, last > outcome->start ? last - outcome->start : 0) / 1e9;
    result->reached = result->seconds > 0 ? (double)result->frames / result->seconds : 0;
    /* Every tick has one verdict: what the appliance counted is what was stamped, and what is in the log. */
    if (stats->predictions != b->n_sample || b->n_record != b->n_sample ||
        memcmp(by_verdict, stats->verdicts, sizeof(by_verdict)) != 0)
        return cmd_error(
            "bench pipeline: %llu predictions in the appliance's books, %llu ticks stamped, %llu "
            "in the log",
            (unsigned long long)stats->predictions, (unsigned long long)b->n_sample,
            (unsigned long long)b->n_record);
    return 0;
}

int bench_pipeline_run(const struct bench_rig *rig, const struct bench_pipeline_load *load,
                       struct bench_pipeline_result *result)
{
    struct bench b = {.load = load};
    struct config config; /* as long as the run */
    const struct accel *guard = rig->accel->guard;
    uint64_t failovers, mirror_answers;
    count_failures(guard, &failovers, &mirror_answers);
    const int failed = open_bench(rig, &config, &b) || bench_run_play(b.run) || summarise(rig, &b, result);
    count_failures(guard, &result->failovers, &result->mirror_answers);
    result->failovers -= failovers;
    result->mirror_answers -= mirror_answers;
    bench_run_close(b.run);
    free(b.samples);
    return failed;
}
