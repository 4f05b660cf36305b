/* A campaign against the kill line: the appliance on the replay clock over made-up days, in segments with
 * other seeds, thresholds and settings each, with stalls injected at every stage; then every verdict given
 * anew from the raw stamps in the log, by the code below, which shares none with the appliance.
 *
 * What it knows of the truth: a day's arrivals are its messages' exchange times, so ages are recomputed from
 * those; thresholds are followed through the log's own events, from the configured one on, within the
 * configured bounds. KL_CAMPAIGN_VERDICTS: how many (by default 2,000,000, with sanitizers 200,000; 10^8 take
 * half an hour or more). KL_CAMPAIGN_SEED: where the random settings start. */
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "command.h"
#include "host/audit.h"
#include "host/killline.h"

enum { MESSAGES = 400000 }; /* of a segment: some 160,000 verdicts, 40 MB of log */

static char dir[] = "/tmp/test_killline_campaign_XXXXXX";
static uint64_t random_state;

static uint64_t random_below(uint64_t n) /* splitmix64 */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

struct segment {
    uint64_t seed, seconds, threshold_us, max_us, arm_b_us, stall_per_million, stall_us, batch;
    int supersede, backup;
};

static struct segment choose(void)
{
    static const uint64_t thresholds[] = {2, 3, 5, 20, 100, 250, 999},
                          stalls[] = {0, 200, 5000, 50000, 300000}, lengths[] = {2, 20, 200, 2000},
                          seconds[] = {1, 3, 10, 30};
    struct segment s = {.seed = 1 + random_below(1000000),
                        .seconds = seconds[random_below(4)], /* of the same messages: from calm to overload */
                        .threshold_us = thresholds[random_below(7)],
                        .stall_per_million = stalls[random_below(5)],
                        .stall_us = lengths[random_below(4)],
                        .batch = 1 + random_below(8),
                        .supersede = random_below(4) != 0,
                        .backup = random_below(2) == 0};
    if (random_below(2))
        s.max_us = s.threshold_us + random_below(999 - s.threshold_us + 1);
    else if (random_below(2) == 0) /* live A/B compares two fixed thresholds */
        s.arm_b_us = 1 + random_below(998);
    return s;
}

static struct totals {
    uint64_t verdicts, by_verdict[VERDICT_COUNT], at_the_line, near, segments, thresholds, rungs, batched,
        bytes;
} totals;

/* What the log has said so far. */
struct follow {
    const struct segment *s;
    uint64_t threshold, rung, published, n, by_verdict[VERDICT_COUNT], stop_count;
};

#define require(ok)                                                                                          \
    do {                                                                                                     \
        if (!(ok))                                                                                           \
            fail_msg("record %" PRIu64 " (%s): not %s", p->record_no, verdict_name(p->verdict), #ok);        \
    } while (0)

static void check_prediction(struct follow *f, const struct audit_prediction *p)
{
    const int inferred = (p->flags & AUDIT_FLAG_INFERRED) != 0,
              late = (p->flags & AUDIT_FLAG_KERNEL_LATE) != 0, arm_b = (p->flags & AUDIT_FLAG_ARM_B) != 0,
              published = p->verdict == VERDICT_PUBLISHED;
    /* The truth: when it came, and when it was decided upon. */
    require(p->arrival == p->feed_ts_ns && p->decided >= p->arrival);
    const uint64_t age = p->decided - p->feed_ts_ns;
    require(p->age_cycles == age);
    require(!(p->flags & (AUDIT_FLAG_AGE_CLAMPED | AUDIT_FLAG_AGE_UNKNOWN | AUDIT_FLAG_EGRESS_FAILED)));
    require(p->decoded >= p->arrival && p->decided >= p->decoded);
    if (inferred || late)
        require(p->submitted >= p->decoded && p->completed >= p->submitted && p->decided >= p->completed);
    /* The line that was in force. */
    require(arm_b ? f->s->arm_b_us && p->threshold_cycles == f->s->arm_b_us * 1000
                  : p->threshold_cycles == f->threshold);
    require(((p->flags / 64u) & 3) == f->rung);
    /* The verdict. */
    require(published == (p->publish_seq != 0));
    require(p->model_hash != 0);
    switch (p->verdict) {
    case VERDICT_PUBLISHED:
        require(age <= p->threshold_cycles && inferred && f->rung != 3);
        require(p->publish_seq == ++f->published);
        break;
    case VERDICT_STALE:
        require(age > p->threshold_cycles && inferred);
        break;
    case VERDICT_EXPECTED_LATE:
        require(!inferred && (late || age + p->expected_cycles > p->threshold_cycles));
        break;
    case VERDICT_HALTED: /* by the ladder after inference; or the symbol, before it */
        require(!inferred || f->rung == 3);
        break;
    case VERDICT_SUPERSEDED:
        require(f->s->supersede && !inferred && !p->submitted);
        break;
    case VERDICT_WARMING_UP:
        require(inferred);
        break;
    case VERDICT_BOOK_UNRELIABLE:
        require(!inferred);
        break;
    default: /* no device fails here */
        require(0);
    }
    f->n++;
    f->by_verdict[p->verdict]++;
    totals.at_the_line += published && age == p->threshold_cycles;
    totals.near += p->threshold_cycles - age + 1000 < 2000; /* within 1 us on either side */
    totals.batched += (p->flags & AUDIT_FLAG_BATCH) != 0;
}

static void check_event(struct follow *f, const struct audit_event *e)
{
    switch (e->code) {
    case AUDIT_EVENT_THRESHOLD:
        assert_int_equal(e->value[0], f->threshold);
        f->threshold = e->value[1];
        assert_true(f->threshold >= f->s->threshold_us * 1000 && f->threshold <= f->s->max_us * 1000);
        totals.thresholds++;
        break;
    case AUDIT_EVENT_RUNG:
        assert_int_equal(e->value[0], f->rung);
        f->rung = e->value[1];
        totals.rungs++;
        break;
    case AUDIT_EVENT_STOP:
        f->stop_count = e->value[0];
        break;
    case AUDIT_EVENT_RECORDS_LOST:
    case AUDIT_EVENT_CLOCK_BACK:
    case AUDIT_EVENT_DEVICE_ERROR:
        fail_msg("%s", audit_event_name(e->code));
        break;
    default:
        break;
    }
}

static void check_log(const struct segment *s, const char *path, struct follow *f)
{
    char error[AUDIT_ERROR_CHARS];
    struct audit_reader *reader = audit_reader_open(path, error);
    if (!reader)
        fail_msg("%s", error);
    *f = (struct follow){.s = s, .threshold = s->threshold_us * 1000};
    const struct audit_record *r;
    int result;
    while ((result = audit_reader_next(reader, &r, error)) == 1) {
        if (r->prediction.kind == AUDIT_PREDICTION)
            check_prediction(f, &r->prediction);
        else
            check_event(f, &r->event);
    }
    if (result)
        fail_msg("%s", error);
    totals.bytes += (audit_reader_records(reader) + 2) * AUDIT_RECORD_BYTES;
    audit_reader_close(reader);
    assert_int_equal(f->stop_count, f->n);
}

/* Datagrams in a pcap file with the host's byte order. */
static uint64_t count_frames(const char *path)
{
    uint64_t n = 0;
    uint32_t header[4];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 24, SEEK_SET), 0);
    while (fread(header, sizeof(header), 1, file) == 1 && fseek(file, header[2], SEEK_CUR) == 0)
        n++;
    fclose(file);
    return n;
}

static int64_t summary(const json_t *o, const char *group, const char *key)
{
    const json_t *value = json_object_get(group ? json_object_get(o, group) : o, key);
    if (!json_is_integer(value))
        fail_msg("the summary has no integer %s", key);
    return json_integer_value(value);
}

static void run_segment(const struct segment *s)
{
    print_message("segment %" PRIu64 ": seed %" PRIu64 ", %" PRIu64 " s, line %" PRIu64 " to %" PRIu64
                  " us, B %" PRIu64 ", stalls %" PRIu64 " ppm up to %" PRIu64 " us, batch %" PRIu64
                  ", supersede %d, backup %d\n",
                  totals.segments, s->seed, s->seconds, s->threshold_us, s->max_us, s->arm_b_us,
                  s->stall_per_million, s->stall_us, s->batch, s->supersede, s->backup);
    struct command_result r = command_run("synth --out %s/day.pcap --itch %s/day.itch --seed %" PRIu64
                                          " --messages %d --seconds %" PRIu64 " && rm %s/day.pcap",
                                          dir, dir, s->seed, MESSAGES, s->seconds, dir);
    if (r.status)
        fail_msg("%s", r.err);
    command_free(&r);
    r = command_run(
        "run --itch %s/day.itch --out %s/out --accel cpu --json --set killline.threshold_us=%" PRIu64
        " --set killline.threshold_max_us=%" PRIu64 " --set killline.ab.threshold_us=%" PRIu64
        " --set killline.batch=%" PRIu64 " --set killline.supersede=%s --set backup.model=%s"
        " --set replay.stall.per_million=%" PRIu64 " --set replay.stall.max_us=%" PRIu64
        " --set replay.stall.seed=%" PRIu64,
        dir, dir, s->threshold_us, s->max_us, s->arm_b_us, s->batch, s->supersede ? "true" : "false",
        s->backup ? KL_BACKUP : "\"\"", s->stall_per_million, s->stall_us, s->seed);
    if (r.status)
        fail_msg("%s", r.err);
    json_t *o = json_loads(r.out, 0, NULL);
    assert_non_null(o);
    command_free(&r);

    char path[128];
    struct follow f;
    snprintf(path, sizeof(path), "%s/out/audit.kla", dir);
    check_log(s, path, &f);
    uint64_t sum = 0;
    for (unsigned v = 0; v < VERDICT_COUNT; v++) {
        assert_int_equal(summary(o, "verdicts", verdict_name(v)), f.by_verdict[v]);
        totals.by_verdict[v] += f.by_verdict[v];
        sum += f.by_verdict[v];
    }
    assert_int_equal(sum, f.n);
    assert_int_equal(summary(o, NULL, "predictions"), f.n);
    json_decref(o);
    snprintf(path, sizeof(path), "%s/out/predictions.pcap", dir);
    assert_int_equal(count_frames(path), f.by_verdict[VERDICT_PUBLISHED]);
    totals.verdicts += f.n;
    totals.segments++;
    r = command_shell("rm -r %s/out %s/day.itch", dir, dir);
    assert_int_equal(r.status, 0);
    command_free(&r);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void every_verdict_given_anew(void **state)
{
    (void)state;
    const uint64_t n = from_environment("KL_CAMPAIGN_VERDICTS", KL_CAMPAIGN_DEFAULT);
    random_state = from_environment("KL_CAMPAIGN_SEED", 1);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    while (totals.verdicts < n) {
        const struct segment s = choose();
        run_segment(&s);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    print_message("%" PRIu64 " verdicts in %" PRIu64 " segments, %.0f s:", totals.verdicts, totals.segments,
                  (double)(to.tv_sec - from.tv_sec));
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        print_message(" %s %" PRIu64, verdict_name(v), totals.by_verdict[v]);
    print_message("\n%" PRIu64 " as old as the line to the ns and published, %" PRIu64
                  " within 1 us of it; %" PRIu64 " batched; %" PRIu64 " changes of the threshold, %" PRIu64
                  " of the rung; %.1f GB of logs\n",
                  totals.at_the_line, totals.near, totals.batched, totals.thresholds, totals.rungs,
                  (double)totals.bytes / 1e9);
    /* a campaign that puts nothing to the test is none */
    if (n >= 2000000)
        assert_true(totals.by_verdict[VERDICT_STALE] && totals.by_verdict[VERDICT_EXPECTED_LATE] &&
                    totals.by_verdict[VERDICT_SUPERSEDED] && totals.by_verdict[VERDICT_HALTED] &&
                    totals.near && totals.batched && totals.thresholds && totals.rungs);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verdict_given_anew),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    struct command_result r = command_shell("rm -rf %s", dir);
    result |= r.status != 0;
    command_free(&r);
    return result;
}
