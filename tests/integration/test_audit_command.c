/* killline audit verify, show and report, as a user calls them. KILLLINE: the killline program. */
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit_log.h"
#include "command.h"
#include "hls/kl_abi.h"

enum { N = 5000, N_EVENT = 7 };

static char dir[] = "/tmp/test_audit_command_XXXXXX", path[64], error[AUDIT_ERROR_CHARS];
static struct command_result said; /* by the last command */
static struct audit_totals totals;

/* Runs killline audit; returns the exit status. */
#define run(...) keep(command_run("audit " __VA_ARGS__))

static int keep(struct command_result result)
{
    command_free(&said);
    said = result;
    return said.status;
}

static void assert_has(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' is not in: %.2000s", what, text);
}

/* The JSON object in the first line of *text; moves on to the next line. */
static json_t *next_json(const char **text)
{
    const char *end = strchr(*text, '\n');
    assert_non_null(end);
    json_error_t e;
    json_t *object = json_loadb(*text, (size_t)(end - *text), 0, &e);
    if (!object)
        fail_msg("no JSON: %s: %.*s", e.text, (int)(end - *text), *text);
    *text = end + 1;
    return object;
}

static int64_t integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no integer '%s'", key);
    return json_integer_value(value);
}

static const char *string(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (!value)
        fail_msg("no string '%s'", key);
    return value;
}

static int setup(void **state)
{
    (void)state;
    unlink(path);
    struct audit_config config = {
        .path = path, .n_ring = 1024, .on_full = AUDIT_FULL_WAIT, .header = log_header(AUDIT_CLOCK_REAL)};
    struct audit_log *audit = audit_open(&config, error);
    if (!audit)
        return -1;
    log_day(audit, N, 11);
    return audit_close(audit, &totals, error);
}

static void hex(const uint8_t *bytes, size_t size, char *text)
{
    for (size_t i = 0; i < size; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
}

static void flip(long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
}

static void test_verify(void **state)
{
    (void)state;
    char head[65];
    hex(totals.head, 32, head);
    assert_int_equal(run("verify %s", path), 0);
    assert_has(said.out, "intact and closed");
    assert_has(said.out, head);
    assert_string_equal(said.err, "");
    assert_int_equal(run("verify %s --json", dir), 0); /* the directory stands for the log in it */
    const char *text = said.out;
    json_t *o = next_json(&text);
    assert_true(json_is_true(json_object_get(o, "ok")));
    assert_true(json_is_null(json_object_get(o, "error")));
    assert_int_equal(integer(o, "records"), N + N_EVENT);
    assert_int_equal(integer(o, "predictions"), N);
    assert_int_equal(integer(o, "events"), N_EVENT);
    assert_int_equal(integer(o, "lost"), 0);
    assert_string_equal(string(o, "head"), head);
    assert_string_equal(string(o, "clock"), "real");
    int64_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(o, "verdicts"), key, value)
    {
        sum += json_integer_value(value);
    }
    assert_int_equal(sum, N);
    json_decref(o);
}

static void test_verify_against_a_head(void **state)
{
    (void)state;
    char head[65];
    hex(totals.head, 32, head);
    assert_int_equal(run("verify %s --head %s", path, head), 0);
    assert_has(said.out, "as given");
    head[0] = head[0] == '0' ? '1' : '0';
    assert_int_equal(run("verify %s --head %s", path, head), 1);
    assert_has(said.err, "rewritten");
    assert_int_equal(run("verify %s --head 1234", path), 2);
    assert_has(said.err, "64 hex digits");
}

static void test_verify_finds_damage(void **state)
{
    (void)state;
    flip(512 + 17 * 256 + 40);
    assert_int_equal(run("verify %s", path), 1);
    assert_has(said.err, path);
    assert_has(said.err, "chain broken at record 17 (byte 4864)");
    assert_has(said.out, "17 records are intact");
    assert_int_equal(run("verify %s --json", path), 1);
    const char *text = said.out;
    json_t *o = next_json(&text);
    assert_true(json_is_false(json_object_get(o, "ok")));
    assert_string_equal(string(o, "fault"), "chain");
    assert_int_equal(integer(o, "records"), 17);
    assert_has(string(o, "error"), "chain broken");
    json_decref(o);
}

static void test_verify_of_an_open_log(void **state)
{
    (void)state;
    assert_int_equal(truncate(path, 512 + 100 * 256), 0);
    assert_int_equal(run("verify %s", path), 1);
    assert_has(said.err, "not closed: no STOP event after 100 intact records");
    assert_int_equal(truncate(path, 512 + 10 * 256 + 100), 0);
    assert_int_equal(run("verify %s --json", path), 1);
    const char *text = said.out;
    json_t *o = next_json(&text);
    assert_string_equal(string(o, "fault"), "torn");
    assert_true(json_is_false(json_object_get(o, "closed")));
    assert_int_equal(integer(o, "records"), 10);
    json_decref(o);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(run("verify %s --json", path), 1);
    text = said.out;
    o = next_json(&text);
    assert_true(json_is_false(json_object_get(o, "ok")));
    json_decref(o);
}

/* Every line of show --json against the record it came from. */
static void test_show_json(void **state)
{
    (void)state;
    assert_int_equal(run("show %s --json", path), 0);
    struct audit_reader *reader = audit_reader_open(path, error);
    assert_non_null(reader);
    const struct audit_record *r;
    const char *text = said.out;
    char chain[65], hash[17];
    while (audit_reader_next(reader, &r, error) == 1) {
        json_t *o = next_json(&text);
        hex(r->chain, 32, chain);
        assert_string_equal(string(o, "chain"), chain);
        if (r->prediction.kind == AUDIT_EVENT) {
            const struct audit_event *e = &r->event;
            assert_string_equal(string(o, "kind"), "event");
            assert_string_equal(string(o, "event"), audit_event_name(e->code));
            assert_int_equal(integer(o, "record_no"), e->record_no);
            assert_int_equal(integer(o, "at"), e->at);
            assert_string_equal(string(o, "text"), e->text);
            if (e->code == AUDIT_EVENT_MODEL_LOAD) {
                assert_int_equal(integer(o, "slot"), e->value[0]);
                snprintf(hash, sizeof(hash), "%016" PRIx64, e->value[1]);
                assert_string_equal(string(o, "image_hash"), hash);
            }
            for (size_t i = 0; e->code != AUDIT_EVENT_MODEL_LOAD && i < 4; i++)
                assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "value"), i)),
                                 (int64_t)e->value[i]);
            json_decref(o);
            continue;
        }
        const struct audit_prediction *p = &r->prediction;
        const struct {
            const char *key;
            uint64_t value;
        } integers[] = {{"record_no", p->record_no},
                        {"feed_seq_no", p->feed_seq_no},
                        {"feed_ts_ns", p->feed_ts_ns},
                        {"locate", p->locate},
                        {"stream", p->stream},
                        {"slot", p->slot},
                        {"request_seq", p->request_seq},
                        {"arrival", p->arrival},
                        {"decoded", p->decoded},
                        {"submitted", p->submitted},
                        {"completed", p->completed},
                        {"decided", p->decided},
                        {"age_cycles", p->age_cycles},
                        {"threshold_cycles", p->threshold_cycles},
                        {"expected_cycles", p->expected_cycles},
                        {"kernel_cycles", p->kernel_cycles},
                        {"prepare_cycles", p->prepare_cycles},
                        {"class", p->cls},
                        {"bid_price", p->bid_price},
                        {"ask_price", p->ask_price},
                        {"bid_qty", p->bid_qty},
                        {"ask_qty", p->ask_qty},
                        {"publish_seq", p->publish_seq}};
        for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++)
            if ((uint64_t)integer(o, integers[i].key) != integers[i].value)
                fail_msg("record %llu: %s", (unsigned long long)p->record_no, integers[i].key);
        assert_string_equal(string(o, "verdict"), verdict_name(p->verdict));
        /* no class that nobody inferred */
        assert_int_equal(json_is_null(json_object_get(o, "class_name")), !(p->flags & AUDIT_FLAG_INFERRED));
        assert_memory_equal(string(o, "symbol"), p->symbol, 4);
        assert_int_equal(strlen(string(o, "symbol")), 4); /* without the padding */
        snprintf(hash, sizeof(hash), "%016" PRIx64, p->feature_hash);
        assert_string_equal(string(o, "feature_hash"), hash);
        assert_true(fabs(json_number_value(json_object_get(o, "age_ns")) - (double)p->age_cycles / 2.5) <
                    0.06);
        for (size_t i = 0; i < 8; i++) {
            assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "logits_raw"), i)),
                             p->logits[i]);
            assert_true(json_number_value(json_array_get(json_object_get(o, "logits"), i)) ==
                        ldexp((double)p->logits[i], -p->logit_frac));
        }
        json_decref(o);
    }
    assert_string_equal(text, "");
    audit_reader_close(reader);
}

static void test_show_filters(void **state)
{
    (void)state;
    uint64_t n[VERDICT_COUNT] = {0}, n_symbol = 0;
    struct audit_reader *reader = audit_reader_open(path, error);
    const struct audit_record *r;
    while (audit_reader_next(reader, &r, error) == 1) {
        const char *symbol = r->prediction.kind == AUDIT_PREDICTION ? r->prediction.symbol : r->event.symbol;
        n_symbol += memcmp(symbol, "SY03    ", 8) == 0;
        if (r->prediction.kind == AUDIT_PREDICTION)
            n[r->prediction.verdict]++;
    }
    audit_reader_close(reader);
    for (unsigned v = 0; v < VERDICT_COUNT; v++) {
        assert_int_equal(run("show %s --json --verdict %s", path, verdict_name(v)), 0);
        const char *text = said.out;
        uint64_t n_line = 0;
        while (*text) {
            json_t *o = next_json(&text);
            assert_string_equal(string(o, "verdict"), verdict_name(v));
            json_decref(o);
            n_line++;
        }
        assert_int_equal(n_line, n[v]);
    }
    uint64_t n_dropped = 0;
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        n_dropped += v == VERDICT_PUBLISHED ? 0 : n[v];
    assert_true(n_dropped > 0);
    assert_int_equal(
        run("show %s --json --verdict dropped | grep -v '\"verdict\":\"published\"' | wc -l", path), 0);
    assert_int_equal(atoll(said.out), n_dropped);
    assert_true(n_symbol > 0);
    assert_int_equal(run("show %s --json --symbol SY03 | wc -l", path), 0);
    assert_int_equal(atoll(said.out), n_symbol);
    assert_int_equal(run("show %s --json --from 4000 --limit 3", path), 0);
    const char *text = said.out;
    for (int i = 0; i < 3; i++) {
        json_t *o = next_json(&text);
        assert_int_equal(integer(o, "record_no"), 4000 + i);
        json_decref(o);
    }
    assert_string_equal(text, "");
    assert_int_equal(run("show %s --limit 0 --json", path), 0);
    assert_string_equal(said.out, "");
    assert_string_equal(said.err, "");
    /* nothing found is said, so that a mistyped symbol does not pass for one without drops */
    assert_int_equal(run("show %s --symbol NOSUCH --json", path), 0);
    assert_string_equal(said.out, "");
    assert_has(said.err, "none of its");
}

static void test_show_text(void **state)
{
    (void)state;
    assert_int_equal(run("show %s", path), 0);
    uint64_t n_line = 0;
    for (const char *c = said.out; *c; c++)
        n_line += *c == '\n';
    assert_int_equal(n_line, 1 + N + N_EVENT);
    assert_has(said.out, "EVENT gap from sequence number ");
    assert_has(said.out, "EVENT stop predictions ");
    assert_has(said.out, "published");
    assert_has(said.out, "09:30:");
}

static void test_show_stops_at_damage(void **state)
{
    (void)state;
    flip(512 + 17 * 256 + 255);
    assert_int_equal(run("show %s --json", path), 1);
    assert_has(said.err, "chain broken at record 17");
    const char *text = said.out;
    for (int i = 0; i < 17; i++)
        json_decref(next_json(&text));
    assert_string_equal(text, "");
}

/* Hostile text in the log is shown without doing anything. */
static void test_hostile_text(void **state)
{
    (void)state;
    unlink(path);
    struct audit_config config = {
        .path = path, .n_ring = 64, .on_full = AUDIT_FULL_WAIT, .header = log_header(AUDIT_CLOCK_REAL)};
    strcpy(config.header.feed, "\"\\<script>\x1b[2J\xff");
    struct audit_log *audit = audit_open(&config, error);
    log_event(audit, AUDIT_EVENT_GAP, 1, 1, "\"\\\x01<\x80", 1, 1, "<script>alert(1)</script>\x1b[31m\n\"");
    log_day(audit, 10, 1);
    assert_int_equal(audit_close(audit, NULL, error), 0);
    assert_int_equal(run("verify %s --json", path), 0);
    const char *text = said.out;
    json_t *o = next_json(&text);
    assert_has(string(o, "feed"), "\"\\<script>\x1b[2J");
    json_decref(o);
    assert_int_equal(run("show %s --json --limit 1", path), 0);
    text = said.out;
    o = next_json(&text);
    assert_string_equal(string(o, "text"), "<script>alert(1)</script>\x1b[31m\n\"");
    json_decref(o);
    assert_int_equal(run("show %s", path), 0);
    assert_null(strchr(said.out, '\x1b'));
    assert_int_equal(run("report %s --out %s/r.html", path, dir), 0);
    char page_path[80];
    snprintf(page_path, sizeof(page_path), "%s/r.html", dir);
    char *page = command_read_file(page_path);
    assert_non_null(page);
    assert_null(strstr(page, "<script"));
    assert_null(strchr(page, '\x1b'));
    assert_has(page, "&#60;script&#62;alert(1)");
    free(page);
    unlink(page_path);
}

/* A run on cards that failed: what each event says, and whose answer it was. */
static void test_cards(void **state)
{
    static const struct {
        enum audit_event_code code;
        uint64_t value[4];
        const char *name, *text;
    } cases[] = {
        {AUDIT_EVENT_CARD_FAILOVER,
         {1, AUDIT_CARD_SILENT, 7, 4711},
         "card-failover",
         "card 1: no answer in time (request 4711 of stream 7)"},
        {AUDIT_EVENT_CARD_QUARANTINE,
         {0, AUDIT_CARD_DIFFERS, 9, 4710},
         "card-quarantine",
         "card 0: answer other than the cpu backend's, stream 9; last proved request 4710"},
        {AUDIT_EVENT_CARD_RESET,
         {2, AUDIT_CARD_OK, 0, 0},
         "card-reset",
         "card 2: reset, loaded, being probed"},
        {AUDIT_EVENT_CARD_PROBE_FAILED,
         {3, AUDIT_CARD_LOAD, 0, 0},
         "card-probe-failed",
         "card 3: model does not load"},
        {AUDIT_EVENT_CARD_RECOVERED,
         {4, AUDIT_CARD_OK, 0, 257},
         "card-recovered",
         "card 4 serves again after 257 equal probes"},
        {AUDIT_EVENT_CARD_STATE_LOST,
         {5, AUDIT_CARD_OK, 11, 0},
         "card-state-lost",
         "card 5: stream 11 starts anew"},
        {AUDIT_EVENT_MODEL_SWITCH,
         {1, 0xf122334455667788, 0, 0},
         "model-switch",
         "to slot 1, image f122334455667788"},
        {AUDIT_EVENT_MODEL_LOAD,
         {1, 0xf122334455667788, KL_E_SHAPE, 0},
         "model-load",
         "slot 1, image f122334455667788: image beyond the build's limits (status 9)"},
        {AUDIT_EVENT_DEVICE_ERROR,
         {AUDIT_DEVICE_FAILED, 3, 0, 0},
         "device-error",
         "refuses access or is gone (status 65538), stream 3"},
    };
    enum { N_CASE = sizeof(cases) / sizeof(cases[0]) };
    (void)state;
    static_assert((int)KL_E_SHAPE == 9, "as in the text");
    unlink(path);
    struct audit_config config = {
        .path = path, .n_ring = 64, .on_full = AUDIT_FULL_WAIT, .header = log_header(AUDIT_CLOCK_REAL)};
    struct audit_log *audit = audit_open(&config, error);
    assert_non_null(audit);
    for (size_t i = 0; i < N_CASE; i++) {
        struct audit_record *r = audit_reserve(audit);
        r->event = (struct audit_event){.kind = AUDIT_EVENT, .code = (uint16_t)cases[i].code, .at = 5};
        memset(r->event.symbol, ' ', 8);
        memcpy(r->event.value, cases[i].value, sizeof(r->event.value));
        audit_commit(audit);
    }
    uint64_t seed = 1;
    for (unsigned i = 0; i < 2; i++) {
        struct audit_prediction p = log_prediction(&seed, i);
        p.flags = (uint16_t)(AUDIT_FLAG_INFERRED | (i ? AUDIT_FLAG_MIRROR : 0));
        audit_reserve(audit)->prediction = p;
        audit_commit(audit);
    }
    audit_stop(audit, 6);
    assert_int_equal(audit_close(audit, NULL, error), 0);

    assert_int_equal(run("verify %s", path), 0);
    assert_int_equal(run("show %s", path), 0);
    for (size_t i = 0; i < N_CASE; i++) {
        char line[200];
        snprintf(line, sizeof(line), "EVENT %s %s\n", cases[i].name, cases[i].text);
        assert_has(said.out, line);
    }
    assert_int_equal(run("show %s --json", path), 0);
    const char *text = said.out;
    for (size_t i = 0; i < N_CASE; i++) {
        json_t *o = next_json(&text);
        assert_string_equal(string(o, "event"), cases[i].name);
        if (cases[i].code == AUDIT_EVENT_MODEL_SWITCH || cases[i].code == AUDIT_EVENT_MODEL_LOAD) {
            assert_int_equal(integer(o, "slot"), 1);
            assert_string_equal(string(o, "image_hash"), "f122334455667788");
            assert_int_equal(integer(o, "status"), (int64_t)cases[i].value[2]);
        } else {
            for (size_t k = 0; k < 4; k++)
                assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "value"), k)),
                                 (int64_t)cases[i].value[k]);
        }
        json_decref(o);
    }
    for (int mirrored = 0; mirrored < 2; mirrored++) {
        json_t *o = next_json(&text);
        const json_t *flag = json_object_get(json_object_get(o, "flags"), "mirror");
        assert_true(mirrored ? json_is_true(flag) : json_is_false(flag));
        json_decref(o);
    }
}

static void test_report(void **state)
{
    (void)state;
    char page_path[80];
    snprintf(page_path, sizeof(page_path), "%s/r.html", dir);
    assert_int_equal(run("report %s --out %s", dir, page_path), 0);
    char *page = command_read_file(page_path);
    assert_has(page, "Kill line report");
    free(page);
    /* an open log: the page says so, and the exit status too */
    assert_int_equal(truncate(path, 512 + 4000 * 256), 0);
    assert_int_equal(run("report %s --out %s", path, page_path), 1);
    assert_has(said.err, "not closed");
    page = command_read_file(page_path);
    assert_has(page, "This log does not verify");
    assert_has(page, "4,000 intact records");
    free(page);
    unlink(page_path);
    assert_int_equal(run("report %s --out /nonexistent/r.html", path), 1);
    assert_has(said.err, "cannot write the report");
    assert_int_equal(run("report %s", path), 2);
    assert_has(said.err, "--out");
    /* a page never takes a log's place, under whatever name */
    char link_path[80];
    snprintf(link_path, sizeof(link_path), "%s/l.html", dir);
    assert_int_equal(symlink(path, link_path), 0);
    char *before = command_read_file(path);
    assert_int_equal(run("report %s --out %s", path, path), 1);
    assert_has(said.err, "never overwritten");
    assert_int_equal(run("report %s --out %s", path, link_path), 1);
    char *after = command_read_file(path);
    assert_memory_equal(before, after, 512 + 4000 * 256);
    free(before);
    free(after);
    unlink(link_path);
}

static void test_usage(void **state)
{
    (void)state;
    assert_int_equal(run("--help"), 0);
    assert_has(said.out, "usage: killline audit");
    assert_has(said.out, "book-unreliable");
    static const char *const subcommand[] = {"verify", "show", "report"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run("%s --help", subcommand[i]), 0);
        assert_has(said.out, "usage: killline audit");
        assert_int_equal(run("%s", subcommand[i]), 2);
        assert_int_equal(run("%s %s %s", subcommand[i], path, path), 2);
        assert_int_equal(run("%s --nonsense %s", subcommand[i], path), 2);
        assert_int_equal(run("%s /nonexistent/log --out %s/r.html", subcommand[i], dir), 1);
        assert_has(said.err, "/nonexistent/log: cannot open the audit log: No such file");
    }
    assert_int_equal(run("%s", ""), 2);
    assert_int_equal(run("prune %s", path), 2);
    assert_int_equal(run("show %s --verdict good", path), 2);
    assert_int_equal(run("show %s --limit -1", path), 2);
    assert_int_equal(run("show %s --from x", path), 2);
    assert_int_equal(run("show %s --symbol NINECHARS", path), 2);
    assert_int_equal(run("show %s >/dev/full", path), 1); /* what nobody got is no success */
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/audit.kla", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_verify, setup),
        cmocka_unit_test_setup(test_verify_against_a_head, setup),
        cmocka_unit_test_setup(test_verify_finds_damage, setup),
        cmocka_unit_test_setup(test_verify_of_an_open_log, setup),
        cmocka_unit_test_setup(test_show_json, setup),
        cmocka_unit_test_setup(test_show_filters, setup),
        cmocka_unit_test_setup(test_show_text, setup),
        cmocka_unit_test_setup(test_show_stops_at_damage, setup),
        cmocka_unit_test_setup(test_hostile_text, setup),
        cmocka_unit_test_setup(test_cards, setup),
        cmocka_unit_test_setup(test_report, setup),
        cmocka_unit_test_setup(test_usage, setup),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    keep(command_shell("rm -rf %s", dir));
    result |= said.status != 0;
    command_free(&said);
    return result;
}
