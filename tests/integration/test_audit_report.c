/* The report page against the log it was made from: its counts, its bars, its kill line; well formed,
 * self-contained. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit_log.h"
#include "hls/kl_abi.h"
#include "host/report.h"

static char dir[] = "/tmp/test_audit_report_XXXXXX", path[64], html[64], error[AUDIT_ERROR_CHARS];
static char *page;

static struct audit_log *open_log(enum audit_clock clock)
{
    unlink(path);
    struct audit_config config = {
        .path = path, .n_ring = 1024, .on_full = AUDIT_FULL_WAIT, .header = log_header(clock)};
    struct audit_log *audit = audit_open(&config, error);
    assert_non_null(audit);
    return audit;
}

static void put(struct audit_log *audit, const struct audit_prediction *p)
{
    audit_reserve(audit)->prediction = *p;
    audit_commit(audit);
}

static void close_log(struct audit_log *audit)
{
    if (audit_close(audit, NULL, error) != 0)
        fail_msg("%s", error);
}

/* Every element is closed, in order; an attribute's quotes too. */
static void assert_well_formed(const char *text)
{
    static const char *const empty[] = {"meta", "br"};
    char open[64][16];
    int depth = 0;
    for (const char *c = strchr(text, '<'); c; c = strchr(c, '<')) {
        const char *end = strchr(c, '>'), *word = c + 1 + (c[1] == '/');
        assert_non_null(end);
        int n_quote = 0, n = 0;
        for (const char *q = c; q < end; q++)
            n_quote += *q == '"';
        if (n_quote % 2)
            fail_msg("quotes: %.80s", c);
        char name[16] = "";
        while (n < 15 && isalnum((unsigned char)word[n])) {
            name[n] = word[n];
            n++;
        }
        int is_empty = end[-1] == '/' || c[1] == '!';
        for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++)
            is_empty |= !strcmp(name, empty[i]);
        if (c[1] == '/') {
            if (depth == 0 || strcmp(open[depth - 1], name) != 0)
                fail_msg("closed but not open: %.80s", c);
            depth--;
        } else if (!is_empty) {
            assert_true(n > 0 && depth < 64);
            memcpy(open[depth++], name, sizeof(name));
        }
        c = end;
    }
    assert_int_equal(depth, 0);
}

static void report(int status)
{
    int got = report_write(path, html, error);
    if (got != status)
        fail_msg("%d, not %d: %s", got, status, error);
    free(page);
    page = NULL;
    FILE *f = fopen(html, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    rewind(f);
    page = malloc(size + 1);
    assert_int_equal(fread(page, 1, size, f), size);
    page[size] = 0;
    fclose(f);
    assert_well_formed(page);
    static const char *const foreign[] = {"<script", "http:", "https:",  "src=",   "url(",
                                          "@import", "<link", "\"nan",   "\"-nan", "nan%",
                                          ">nan",    ">-nan", "\"inf\"", "inf%",   ">inf "};
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        if (strstr(page, foreign[i]))
            fail_msg("the page has '%s'", foreign[i]);
}

static void assert_has(const char *what)
{
    if (!strstr(page, what))
        fail_msg("the page does not say '%s'", what);
}

static uint64_t number(const char *text) /* with thousands commas */
{
    uint64_t n = 0;
    for (; isdigit((unsigned char)*text) || *text == ','; text++)
        if (*text != ',')
            n = 10 * n + (uint64_t)(*text - '0');
    return n;
}

/* Sum of the counts in the titles of the bars of this class; their outermost edges in *low and *high. */
static uint64_t bars(const char *class, double *low, double *high)
{
    char start[32];
    uint64_t sum = 0;
    *low = 1e9;
    *high = -1e9;
    snprintf(start, sizeof(start), "<rect class=\"%s\" ", class);
    for (const char *c = strstr(page, start); c; c = strstr(c + 1, start)) {
        double x, y, w, h;
        assert_int_equal(
            sscanf(c + strlen(start), "x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x, &y, &w, &h), 4);
        assert_true(h > 0 && w > 0);
        *low = x < *low ? x : *low;
        *high = x + w > *high ? x + w : *high;
        sum += number(strstr(c, "<title>") + 7);
    }
    return sum;
}

static double kill_line_x(void)
{
    double x;
    const char *c = strstr(page, "<line class=\"kl\" ");
    assert_non_null(c);
    assert_int_equal(sscanf(c, "<line class=\"kl\" x1=\"%lf\"", &x), 1);
    return x;
}

static void test_counts_of_a_day(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct audit_log *audit = open_log(AUDIT_CLOCK_REPLAY);
    log_day(audit, N, 5);
    close_log(audit);
    report(0);
    uint64_t n[VERDICT_COUNT] = {0};
    struct audit_reader *reader = audit_reader_open(path, error);
    const struct audit_record *r;
    while (audit_reader_next(reader, &r, error) == 1)
        if (r->prediction.kind == AUDIT_PREDICTION)
            n[r->prediction.verdict]++;
    audit_reader_close(reader);
    double low, high;
    /* the latency histogram ... */
    assert_int_equal(bars("pf", &low, &high), n[VERDICT_PUBLISHED]);
    assert_true(high < kill_line_x());
    assert_int_equal(bars("df", &low, &high), N - n[VERDICT_PUBLISHED]);
    assert_true(high > kill_line_x());
    for (unsigned v = 0; v < VERDICT_COUNT; v++) {
        /* ... verdicts over time, and the table */
        char name[64], *row;
        assert_true(n[v] > 0 || v == VERDICT_DEVICE_ERROR);
        snprintf(name, sizeof(name), "v%u", v);
        assert_int_equal(bars(name, &low, &high), n[v]);
        snprintf(name, sizeof(name), "</span>%s</td>", verdict_name(v));
        row = strstr(page, name);
        assert_non_null(row);
        assert_int_equal(number(strstr(row, "<td class=\"r\">") + 14), n[v]);
    }
    assert_has("modelled");
    assert_null(strstr(page, "measured"));
    assert_has("kill line 50.0 ");
    assert_has("40 messages lost from sequence number");
    assert_has("SHA-256 chain verified, log closed");
}

/* Published at the line, dropped one cycle over it: on the two sides of it. */
static void test_line_is_a_border(void **state)
{
    (void)state;
    static const uint64_t lines[] = {1, 2, 1000, 50000, 123457, 1000000};
    for (size_t k = 0; k < sizeof(lines) / sizeof(lines[0]); k++) {
        struct audit_log *audit = open_log(AUDIT_CLOCK_REAL);
        uint64_t seed = 1;
        struct audit_prediction p = log_prediction(&seed, 1);
        p.threshold_cycles = lines[k];
        p.age_cycles = lines[k];
        p.verdict = VERDICT_PUBLISHED;
        put(audit, &p);
        p.age_cycles = lines[k] + 1;
        p.verdict = VERDICT_STALE;
        put(audit, &p);
        audit_stop(audit, 0);
        close_log(audit);
        report(0);
        double low, high, line = kill_line_x();
        assert_int_equal(bars("pf", &low, &high), 1);
        assert_true(high < line);
        assert_int_equal(bars("df", &low, &high), 1);
        assert_true(low > line);
    }
    assert_has("<b>measured</b>");
    assert_has("not a card's");
}

static void test_extreme_values(void **state)
{
    (void)state;
    struct audit_log *audit = open_log(AUDIT_CLOCK_REAL);
    uint64_t seed = 1;
    for (int i = 0; i < 40; i++) {
        struct audit_prediction p = log_prediction(&seed, 1);
        uint64_t v = i % 2 ? UINT64_MAX : 0;
        p.threshold_cycles = i < 10 ? v : UINT64_MAX / 3;
        p.age_cycles = i & 2 ? UINT64_MAX : 0;
        p.arrival = i & 4 ? UINT64_MAX : 0;
        p.decided = i & 8 ? UINT64_MAX : 0;
        p.submitted = i & 16 ? UINT64_MAX : 0;
        p.feed_ts_ns = v;
        memset(p.symbol, i & 1 ? 0xff : '<', 8);
        put(audit, &p);
    }
    audit_stop(audit, UINT64_MAX);
    close_log(audit);
    report(0);
    double low, high;
    assert_int_equal(bars("pf", &low, &high) + bars("df", &low, &high), 40);
    assert_has("stamps that run backwards");
    assert_has("The line moved");
}

static void test_no_prediction(void **state)
{
    (void)state;
    struct audit_log *audit = open_log(AUDIT_CLOCK_REAL);
    audit_stop(audit, 0);
    close_log(audit);
    report(0);
    assert_has("No prediction");
}

/* Long lists are capped, and the page says what it leaves out. */
static void test_caps(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct audit_log *audit = open_log(AUDIT_CLOCK_REPLAY);
    uint64_t seed = 1;
    for (unsigned i = 0; i < N; i++) {
        struct audit_prediction p = log_prediction(&seed, i);
        char symbol[16];
        snprintf(symbol, sizeof(symbol), "S%07u", i);
        memcpy(p.symbol, symbol, 8);
        put(audit, &p);
        if (i % 50 == 0)
            log_event(audit, AUDIT_EVENT_GAP, p.decided, p.feed_ts_ns, "", i, 1, "");
    }
    audit_stop(audit, 0);
    close_log(audit);
    report(0);
    assert_has("100 gap");
    assert_has("first 40 of each kind");
    assert_has("4,970 predictions of other symbols");
    int n_gap_row = 0;
    for (const char *c = strstr(page, "<td class=\"w\">gap"); c; c = strstr(c + 1, "<td class=\"w\">gap"))
        n_gap_row++;
    assert_int_equal(n_gap_row, 40);
}

/* What became of the cards, and of the models, in words. */
static void test_cards(void **state)
{
    static const struct {
        enum audit_event_code code;
        uint64_t value[4];
        const char *name, *text;
    } cases[] = {
        {AUDIT_EVENT_CARD_FAILOVER,
         {1, AUDIT_CARD_SEQUENCE, 7, 4711},
         "card-failover",
         "card 1: answer out of order (request 4711 of stream 7) "},
        {AUDIT_EVENT_CARD_QUARANTINE,
         {0, AUDIT_CARD_DIFFERS, 9, 4710},
         "card-quarantine",
         "card 0: answer other than the cpu backend's, stream 9; last proved request 4710 "},
        {AUDIT_EVENT_CARD_RESET, {2, 0, 0, 0}, "card-reset", "card 2: reset, loaded, being probed "},
        {AUDIT_EVENT_CARD_PROBE_FAILED,
         {3, AUDIT_CARD_DAMAGED, 0, 0},
         "card-probe-failed",
         "card 3: damaged answer "},
        {AUDIT_EVENT_CARD_RECOVERED,
         {4, 0, 0, 257},
         "card-recovered",
         "card 4 serves again after 257 equal probes "},
        {AUDIT_EVENT_CARD_STATE_LOST, {5, 0, 11, 0}, "card-state-lost", "card 5: stream 11 starts anew "},
        {AUDIT_EVENT_MODEL_SWITCH,
         {1, 0xf122334455667788, 0, 0},
         "model-switch",
         "to slot 1, image f122334455667788 "},
        {AUDIT_EVENT_MODEL_LOAD,
         {1, 0xf122334455667788, KL_E_BUSY, 0},
         "model-load",
         "slot 1, image f122334455667788 busy (status "},
        {AUDIT_EVENT_DEVICE_ERROR,
         {AUDIT_DEVICE_FAILED, 3, 0, 0},
         "device-error",
         "refuses access or is gone (status 65538) "},
    };
    (void)state;
    struct audit_log *audit = open_log(AUDIT_CLOCK_REPLAY);
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct audit_record *r = audit_reserve(audit);
        r->event = (struct audit_event){.kind = AUDIT_EVENT, .code = (uint16_t)cases[i].code, .at = 5};
        memset(r->event.symbol, ' ', 8);
        memcpy(r->event.value, cases[i].value, sizeof(r->event.value));
        audit_commit(audit);
        struct audit_prediction p = log_prediction(&seed, i);
        p.flags |= AUDIT_FLAG_MIRROR;
        put(audit, &p);
    }
    audit_stop(audit, 6);
    close_log(audit);
    report(0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char cell[256];
        snprintf(cell, sizeof(cell), "<td class=\"w\">%s</td>", cases[i].name);
        assert_has(cell);
        snprintf(cell, sizeof(cell), "<td>%s", cases[i].text);
        assert_has(cell);
        snprintf(cell, sizeof(cell), "1 %s", cases[i].name);
        assert_has(cell);
    }
}

static void test_damaged_log(void **state)
{
    (void)state;
    struct audit_log *audit = open_log(AUDIT_CLOCK_REPLAY);
    log_day(audit, 3000, 5);
    close_log(audit);
    FILE *f = fopen(path, "r+b");
    fseek(f, 512 + 2000 * 256 + 60, SEEK_SET);
    fputc(0xee, f);
    fclose(f);
    report(1);
    assert_non_null(strstr(error, "record 2000"));
    assert_has("This log does not verify");
    assert_has("chain broken at record 2000");
    assert_has("2,000 intact records");
    assert_null(strstr(page, "chain verified"));
    assert_int_equal(truncate(path, 300), 0);
    assert_int_equal(report_write(path, html, error), -1);
    assert_non_null(strstr(error, "not an audit log"));
    assert_int_equal(report_write(path, "/nonexistent/r.html", error), -1);
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/audit.kla", dir);
    snprintf(html, sizeof(html), "%s/report.html", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_of_a_day),
        cmocka_unit_test(test_line_is_a_border),
        cmocka_unit_test(test_extreme_values),
        cmocka_unit_test(test_no_prediction),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_cards),
        cmocka_unit_test(test_damaged_log),
    };
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    free(page);
    unlink(path);
    unlink(html);
    rmdir(dir);
    return result;
}
