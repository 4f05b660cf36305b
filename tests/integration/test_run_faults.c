/* A card that fails in the middle of a replayed day, in every way that the software device knows: what leaves
 * the appliance is what would have left without the fault, or nothing.
 *
 * The replay clock: a silent card costs its tick the rest of the time to the kill line. What a stream answers
 * follows from the ticks that were stepped, so as long as a stream was stepped at the same ticks as in the
 * clean run, every bit of it has to be the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/audit.h"
#include "host/killline.h"
#include "run_json.h"

/* ---- logs ---- */

struct log {
    struct audit_record *record;
    size_t n;
};

static struct log clean;
static json_t *reference_json;

static struct log read_log(const char *out)
{
    char path[96], error[AUDIT_ERROR_CHARS];
    snprintf(path, sizeof(path), "%s/audit.kla", out);
    struct audit_reader *reader = audit_reader_open(path, error);
    if (!reader)
        print_error("%s\n", error);
    assert_non_null(reader);
    struct log log = {.record = malloc(audit_reader_size_records(reader) * sizeof(*log.record))};
    assert_non_null(log.record);
    const struct audit_record *r;
    int more;
    while ((more = audit_reader_next(reader, &r, error)) == 1)
        log.record[log.n++] = *r;
    if (more)
        print_error("%s: %s\n", path, error);
    assert_int_equal(more, 0);
    audit_reader_close(reader);
    return log;
}

static unsigned count_events(const struct log *log, enum audit_event_code code)
{
    unsigned n = 0;
    for (size_t i = 0; i < log->n; i++)
        n += log->record[i].event.kind == AUDIT_EVENT && log->record[i].event.code == code;
    return n;
}

static const struct audit_prediction *next_prediction(const struct log *log, size_t *at)
{
    while (*at < log->n && log->record[*at].prediction.kind != AUDIT_PREDICTION)
        ++*at;
    return *at < log->n ? &log->record[(*at)++].prediction : NULL;
}

static int was_stepped(const struct audit_prediction *p)
{
    return (p->flags & (AUDIT_FLAG_INFERRED | AUDIT_FLAG_MIRROR)) && !(p->flags & AUDIT_FLAG_KERNEL_LATE);
}

struct outcome {
    uint64_t compared, other_verdicts, wrong, wrong_published, mirrored;
};

/* Prediction by prediction: the same ticks, and the same answers wherever the stream has the same history. */
static struct outcome compare(const struct log *faulty)
{
    static uint8_t other_history[KL_N_STREAM_MAX];
    memset(other_history, 0, sizeof(other_history));
    struct outcome o = {0};
    size_t at = 0, clean_at = 0;
    const struct audit_prediction *p, *q;
    while ((p = next_prediction(faulty, &at))) {
        q = next_prediction(&clean, &clean_at);
        assert_non_null(q);
        assert_int_equal(p->feed_seq_no, q->feed_seq_no);
        assert_int_equal(p->stream, q->stream);
        assert_int_equal(p->feature_hash && q->feature_hash ? p->feature_hash : 0,
                         p->feature_hash && q->feature_hash ? q->feature_hash : 0);
        if (p->verdict == VERDICT_PUBLISHED) /* nothing stale leaves, whatever happened */
            assert_true(p->age_cycles <= p->threshold_cycles && p->completed && p->publish_seq);
        else
            assert_int_equal(p->publish_seq, 0);
        o.other_verdicts += p->verdict != q->verdict;
        o.mirrored += (p->flags & AUDIT_FLAG_MIRROR) != 0;
        other_history[p->stream] |= was_stepped(p) != was_stepped(q);
        if (!(p->flags & q->flags & AUDIT_FLAG_INFERRED) || other_history[p->stream])
            continue;
        o.compared++;
        const int wrong = p->cls != q->cls || memcmp(p->logits, q->logits, sizeof(p->logits)) != 0;
        o.wrong += wrong;
        o.wrong_published += wrong && p->verdict == VERDICT_PUBLISHED;
    }
    assert_null(next_prediction(&clean, &clean_at));
    return o;
}

/* ---- runs ---- */

struct fault {
    const char *name, *environment, *args; /* the software device's, the appliance's */
    uint32_t reason;                       /* enum audit_card of the first failover or quarantine; 0: none */
    int is_silent;                         /* costs its tick */
    int recovers;
};

static void run_fault(const struct fault *f)
{
    char out[64], environment[256], args[256];
    strcpy(out, fresh());
    snprintf(environment, sizeof(environment), "KL_SIM_LATENCY=off %s", f->environment);
    snprintf(args, sizeof(args), "--accel xrt --set guard.probes=20 %s", f->args);
    json_t *json = run_json_with(environment, model, out, args);
    struct log log = read_log(out);
    const struct outcome o = compare(&log);
    const unsigned n_out =
        count_events(&log, AUDIT_EVENT_CARD_FAILOVER) + count_events(&log, AUDIT_EVENT_CARD_QUARANTINE);
    print_message("%s: %llu compared, %llu other verdicts, %llu from the mirror, failover in %.1f us\n",
                  f->name, (unsigned long long)o.compared, (unsigned long long)o.other_verdicts,
                  (unsigned long long)o.mirrored,
                  json_real_value(json_object_get(json_object_get(json, "device"), "failover_ns_max")) / 1e3);
    assert_int_equal(o.wrong, 0);
    assert_true(o.compared > (uint64_t)number_at(reference_json, "verdicts", "published") * 9 / 10);
    assert_int_equal(number_at(json, "device", "failovers") + number_at(json, "device", "quarantines"),
                     n_out);
    if (!f->reason) {
        assert_int_equal(n_out, 0);
        assert_int_equal(o.other_verdicts, 0);
    } else {
        assert_true(n_out >= 1);
        for (size_t i = 0; i < log.n; i++)
            if (log.record[i].event.kind == AUDIT_EVENT &&
                (log.record[i].event.code == AUDIT_EVENT_CARD_FAILOVER ||
                 log.record[i].event.code == AUDIT_EVENT_CARD_QUARANTINE)) {
                assert_int_equal(log.record[i].event.value[1], f->reason);
                break;
            }
    }
    assert_int_equal(number_at(json, "device", "given_up"), f->is_silent);
    assert_int_equal(number_at(json, "verdicts", "device-error"), f->is_silent);
    if (!f->is_silent)
        assert_int_equal(o.other_verdicts, 0);
    if (f->recovers)
        assert_true(count_events(&log, AUDIT_EVENT_CARD_RECOVERED) >= 1 &&
                    number_at(json, "device", "recoveries") >= 1);
    else if (f->reason)
        assert_int_equal(number_at(json, "device", "recoveries"), 0);
    free(log.record);
    json_decref(json);
}

static void one_fault_each(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {"hang at a step", "KL_SIM_FAULT=hang:after=1001", "", AUDIT_CARD_SILENT, 1, 1},
        {"hang, run mode", "KL_SIM_EXEC=thread KL_SIM_FAULT=hang:after=1002", "--xrt-mode run",
         AUDIT_CARD_SILENT, 1, 1},
        {"late, within the replay's patience", "KL_SIM_FAULT=late:us=3000,after=1000", "", 0, 0, 0},
        {"late, beyond it", "KL_SIM_EXEC=thread KL_SIM_FAULT=late:us=2500000,after=1001,count=1", "",
         AUDIT_CARD_SILENT, 1, 1},
        {"error, run mode", "KL_SIM_FAULT=error:after=1000", "--xrt-mode run", AUDIT_CARD_REFUSED, 0, 1},
        {"error", "KL_SIM_FAULT=error:after=1000", "", AUDIT_CARD_STATUS, 0, 1},
        /* Doorbell mode looks at nothing but memory: who is gone is silent there. */
        {"crash", "KL_SIM_EXEC=child KL_SIM_FAULT=crash:after=1001", "", AUDIT_CARD_SILENT, 1, 1},
        {"crash, run mode", "KL_SIM_EXEC=child KL_SIM_FAULT=crash:after=1000", "--xrt-mode run",
         AUDIT_CARD_REFUSED, 0, 1},
        {"bit flipped in the answer", "KL_SIM_FAULT=flip-answer:after=1000,bit=521", "", AUDIT_CARD_DAMAGED,
         0, 1},
        {"bit flipped in the answer, run mode", "KL_SIM_FAULT=flip-answer:after=1000,bit=70",
         "--xrt-mode run", AUDIT_CARD_DAMAGED, 0, 1},
        {"bit flipped in a weight, proving", "KL_SIM_FAULT=flip-weight:after=1001", "--set guard.prove=true",
         AUDIT_CARD_DIFFERS, 0, 1},
        {"lost doorbell", "KL_SIM_FAULT=lose-doorbell:after=1001", "", AUDIT_CARD_SILENT, 1, 1},
        {"duplicate answer", "KL_SIM_FAULT=duplicate:after=1000", "", AUDIT_CARD_SEQUENCE, 0, 1},
        {"vanishes for ever", "KL_SIM_FAULT=vanish:after=1001,count=0", "", AUDIT_CARD_SILENT, 1, 0},
        {"vanishes, run mode", "KL_SIM_FAULT=vanish:after=1000", "--xrt-mode run", AUDIT_CARD_REFUSED, 0, 1},
        {"hangs, reload refused", "KL_SIM_FAULT='hang:after=1001;refuse-load:after=3,count=0'", "",
         AUDIT_CARD_SILENT, 1, 0},
        {"hangs, memory full at the reset", "KL_SIM_FAULT='hang:after=1001;memory-full:after=8,count=0'", "",
         AUDIT_CARD_SILENT, 1, 0},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        run_fault(&faults[i]);
}

/* With a weight turned over and answers compared only afterwards wrong ones can leave, until one of them is
 * compared: before the next tick if every one is. */
static void unproved_answers_end_with_the_comparison(void **state)
{
    (void)state;
    static const unsigned check_every[] = {1, 8};
    for (int c = 0; c < 2; c++) {
        char out[64], args[96];
        strcpy(out, fresh());
        snprintf(args, sizeof(args), "--accel xrt --set guard.check_every=%u --set guard.probes=20",
                 check_every[c]);
        json_t *json =
            run_json_with("KL_SIM_LATENCY=off KL_SIM_FAULT=flip-weight:after=1001", model, out, args);
        assert_int_equal(number_at(json, "device", "quarantines"), 1);
        assert_int_equal(number_at(json, "device", "recoveries"), 1);
        struct log log = read_log(out);
        const struct audit_event *e = NULL;
        for (size_t i = 0; i < log.n && !e; i++)
            if (log.record[i].event.kind == AUDIT_EVENT &&
                log.record[i].event.code == AUDIT_EVENT_CARD_QUARANTINE)
                e = &log.record[i].event;
        assert_non_null(e);
        assert_int_equal(e->value[1], AUDIT_CARD_DIFFERS);
        size_t at = 0, clean_at = 0, n_wrong = 0;
        const struct audit_prediction *p, *q;
        while ((p = next_prediction(&log, &at)) && (q = next_prediction(&clean, &clean_at)))
            if (p->flags & AUDIT_FLAG_INFERRED && memcmp(p->logits, q->logits, sizeof(p->logits)) != 0) {
                n_wrong++;
                assert_true(p->record_no < e->record_no);
            }
        print_message("every %u compared: %zu wrong\n", check_every[c], n_wrong);
        /* A step whose operand is zero does not show the weight. */
        assert_true(n_wrong >= 1 && n_wrong <= (check_every[c] == 1 ? 1 : 4 * check_every[c]));
        free(log.record);
        json_decref(json);
    }
}

/* On the real clock: whatever the card does, nothing older than the line leaves, every tick gets its verdict,
 * and a card that does not answer costs ticks only until the mirror has them. */
static void the_real_clock(void **state)
{
    (void)state;
    static const char *const faults[] = {"hang:after=500",   "late:us=2000,after=3000,count=8",
                                         "vanish:after=500", "lose-doorbell:after=500",
                                         "error:after=500",  "flip-answer:after=500,bit=600,count=8"};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        for (int mode = 0; mode < 2; mode++) {
            char out[64], environment[160];
            strcpy(out, fresh());
            if (mode && !strncmp(faults[i], "lose", 4))
                continue; /* run mode has no doorbell of ours */
            snprintf(environment, sizeof(environment), "XILINX_XRT=%s KL_SIM_FAULT=%s", KL_XRT_DIR,
                     faults[i]);
            char args[400];
            /* A request for every tick, one after the other (the next doorbell makes good for a lost one);
             * and the ladder halts nothing on a busy machine. */
            snprintf(args, sizeof(args),
                     "--accel xrt --xrt-mode %s --clock real --set killline.threshold_us=500 --set "
                     "guard.probes=20 --set killline.supersede=false --set killline.batch=1 "
                     "--set 'governor.halted.miss_ppm={enter: 0, leave: 0}'",
                     mode ? "run" : "doorbell");
            json_t *json = run_json_with(environment, model, out, args);
            struct log log = read_log(out);
            size_t at = 0;
            uint64_t n = 0;
            const struct audit_prediction *p;
            while ((p = next_prediction(&log, &at))) {
                n++;
                if (p->verdict == VERDICT_PUBLISHED)
                    assert_true(p->age_cycles <= p->threshold_cycles);
            }
            assert_int_equal(n, number_at(reference_json, "predictions", NULL));
            print_message("%s, %s mode: %lld failovers, %lld from the mirror, %lld device-error\n", faults[i],
                          mode ? "run" : "doorbell", (long long)number_at(json, "device", "failovers"),
                          (long long)number_at(json, "device", "mirror_answers"),
                          (long long)number_at(json, "verdicts", "device-error"));
            /* (Behind the streams' warm-up, whose ticks are never published.) Executed inline a late answer
             * keeps the caller in the register access: it is there when he looks, and stale. */
            if (!strncmp(faults[i], "late", 4)) {
                assert_true(number_at(json, "verdicts", "stale") >= 1);
            } else {
                assert_true(number_at(json, "device", "failovers") >= 1);
                assert_true(number_at(json, "device", "mirror_answers") >= 1);
            }
            assert_true(number_at(json, "verdicts", "published") > 0);
            assert_true(number_at(json, "verdicts", "device-error") <=
                        2 * number_at(json, "device", "failovers"));
            free(log.record);
            json_decref(json);
        }
}

/* As soon as there is a log, the ports are still being opened. */
static void a_signal_while_it_opens_leaves_a_closed_log(void **state)
{
    (void)state;
    static const char *const signals[] = {"TERM", "HUP"};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        char out[64];
        strcpy(out, fresh());
        struct command_result c =
            command_shell("'%s' run --pcap %s --model %s --out %s --accel xrt --json & pid=$!; "
                          "until test -e %s/audit.kla || ! kill -0 $pid; do sleep 0.01; done; "
                          "kill -%s $pid; wait $pid",
                          KILLLINE, day, model, out, out, signals[i]);
        assert_int_equal(c.status, 1);
        assert_non_null(strstr(c.err, "stopped by a signal after "));
        command_free(&c);
        c = command_run("audit verify %s", out);
        assert_int_equal(c.status, 0);
        command_free(&c);
    }
}

static int make_day(void **state)
{
    (void)state;
    if (run_day_make(70))
        return -1;
    char out[64];
    strcpy(out, fresh());
    reference_json = run_json(model, out, "");
    clean = read_log(out);
    return 0;
}

static int remove_day(void **state)
{
    free(clean.record);
    json_decref(reference_json);
    return run_day_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fault_each),
        cmocka_unit_test(unproved_answers_end_with_the_comparison),
        cmocka_unit_test(the_real_clock),
        cmocka_unit_test(a_signal_while_it_opens_leaves_a_closed_log),
    };
    return cmocka_run_group_tests(tests, make_day, remove_day);
}
