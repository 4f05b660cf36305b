/* killline bench feed: it measures what it says, and says all of it. No figure is judged here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "command.h"
#include "host/bench_flow.h"
#include "host/market.h"
#include "net/itch.h"

/* The generated flow: the mix that is promised, no data error, never locked or crossed, reproducible. */
static void test_flow(void **state)
{
    (void)state;
    enum { N = 200000, N_SYMBOL = 20 };
    struct bench_flow flow, again;
    assert_int_equal(bench_flow_generate(N, N_SYMBOL, 7, &flow), 0);
    assert_int_equal(bench_flow_generate(N, N_SYMBOL, 7, &again), 0);
    assert_int_equal(flow.n_message, N);
    assert_int_equal(flow.size_bytes, again.size_bytes);
    assert_memory_equal(flow.data, again.data, flow.size_bytes);
    const struct market_config config = {.limits = {.n_order = N, .n_level = N}};
    struct market *market = market_create(&config);
    assert_non_null(market);
    const uint8_t *p = flow.data, *end = p + flow.size_bytes;
    uint64_t n = 0;
    while (p < end) {
        struct market_event event;
        uint16_t len = be_load_u16(p);
        market_apply(market, p + 2, len, &event);
        if (event.effects & MARKET_BOOK)
            assert_int_equal(event.change.crossed, 0);
        p += 2 + len;
        n++;
    }
    assert_true(p == end);
    assert_int_equal(n, N);
    const struct market_counters *counters = market_counters(market);
    const struct book_counters *books = book_counters(market_books(market));
    assert_int_equal(counters->unknown_messages + counters->short_messages + counters->long_messages +
                         counters->bad_enum + counters->symbol_mismatch + counters->unreliable_marks,
                     0);
    assert_int_equal(books->unknown_ref + books->duplicate_ref + books->wrong_locate + books->excess_qty +
                         books->zero_qty + books->full,
                     0);
    const struct {
        char type;
        double share;
    } mix[] = {{'A', .45}, {'D', .43}, {'U', .06}, {'E', .03}, {'X', .007}, {'P', .01}};
    for (size_t i = 0; i < sizeof(mix) / sizeof(mix[0]); i++) {
        double share = (double)counters->by_type[(uint8_t)mix[i].type] / N;
        assert_true(share > mix[i].share * 0.9 && share < mix[i].share * 1.1);
    }
    market_free(market);
    free(flow.data);
    free(again.data);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* The figures of one place where the bytes came from. */
static void check_figures(const json_t *figures)
{
    const json_t *book = json_object_get(figures, "book_ns"), *ratios = json_object_get(figures, "ratios");
    double walk = number(figures, "frame_walk_ns");
    assert_true(walk > 0);
    assert_true(number(book, "mean") > 0 && number(book, "p99") > 0);
    assert_true(number(book, "max") >= number(book, "p99"));
    const struct {
        const char *name;
        double ns;
    } stages[] = {{"decode", number(figures, "decode_ns")},
                  {"book", number(book, "mean")},
                  {"book_look_ahead", number(figures, "book_look_ahead_ns")}};
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        double ratio = number(ratios, stages[i].name);
        assert_true(stages[i].ns > 0);
        assert_true(ratio > stages[i].ns / walk * 0.999 && ratio < stages[i].ns / walk * 1.001);
    }
}

static void check_json(const char *text, const char *source, double n_message, double n_symbol)
{
    json_error_t error;
    json_t *root = json_loads(text, 0, &error);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "label")), "measured");
    assert_string_equal(json_string_value(json_object_get(root, "source")), source);
    static const char *const positive[] = {"live_orders", "peak_rss_mb", "time_stamp_ns"};
    for (size_t i = 0; i < sizeof(positive) / sizeof(positive[0]); i++)
        assert_true(number(root, positive[i]) > 0);
    assert_true(number(root, "messages") == n_message);
    assert_true(number(root, "symbols") == n_symbol);
    const json_t *in_memory = json_object_get(root, "in_memory");
    check_figures(root);
    check_figures(in_memory);
    /* Which is which: a read costs more than the walk over what it read. */
    assert_true(number(root, "frame_walk_ns") > number(in_memory, "frame_walk_ns"));
    json_decref(root);
}

static void test_generated(void **state)
{
    (void)state;
    struct command_result result = command_run("bench feed --json --messages 20k --symbols 5");
    assert_int_equal(result.status, 0);
    check_json(result.out, "generated", 20000, 5);
    command_free(&result);
    result = command_run("bench feed --messages 20k --symbols 5");
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.out, "measured"));
    assert_non_null(strstr(result.out, "frame walk"));
    command_free(&result);
}

static void test_file(void **state)
{
    (void)state;
    struct bench_flow flow;
    char path[] = "/tmp/killline-bench-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(bench_flow_generate(5000, 3, 1, &flow), 0);
    assert_int_equal(write(fd, flow.data, flow.size_bytes), flow.size_bytes);
    close(fd);
    free(flow.data);
    struct command_result result = command_run("bench feed --json --itch %s", path);
    assert_int_equal(result.status, 0);
    check_json(result.out, path, 5000, 3);
    command_free(&result);
    result = command_run("bench feed --json --itch %s --messages 4k", path);
    assert_int_equal(result.status, 0);
    check_json(result.out, path, 4000, 3);
    command_free(&result);
    assert_int_equal(truncate(path, 100), 0);
    result = command_run("bench feed --itch %s", path);
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, path));
    command_free(&result);
    unlink(path);
}

static void test_usage(void **state)
{
    (void)state;
    const struct {
        const char *arguments;
        int status;
    } cases[] = {{"bench", 2},
                 {"bench --help", 0},
                 {"bench nothing", 2},
                 {"bench feed --help", 0},
                 {"bench feed --messages 0", 2},
                 {"bench feed --symbols 60001", 2},
                 {"bench feed extra", 2},
                 {"bench feed --what", 2},
                 {"bench feed --itch /nonexistent/file", 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct command_result result = command_run("%s", cases[i].arguments);
        assert_int_equal(result.status, cases[i].status);
        assert_true(result.status == 0 ? result.out[0] : result.err[0]);
        command_free(&result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flow),
        cmocka_unit_test(test_generated),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
