/* killline features on a small day made here: rows, labels, what is left out, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "host/features.h"
#include "net/capture.h"
#include "net/itch.h"
#include "npy_array.h"

static char dir[64], capture[128];
static struct command_result said; /* by the last command */
static FILE *day;
static uint64_t ts_ns;

static void put(struct itch_msg msg)
{
    uint8_t frame[2 + ITCH_MESSAGE_BYTES_MAX];
    msg.timestamp_ns = ts_ns += 1000000; /* every message its own packet */
    int len = itch_encode(&msg, frame + 2, ITCH_MESSAGE_BYTES_MAX);
    assert_true(len > 0);
    frame[0] = 0;
    frame[1] = (uint8_t)len;
    assert_int_equal(fwrite(frame, 1, (size_t)len + 2, day), len + 2);
}

static void put_event(uint8_t code)
{
    put((struct itch_msg){.type = 'S', .system_event = {.event_code = code}});
}

static void put_directory(uint16_t locate, const char *stock)
{
    struct itch_msg msg = {.type = 'R', .locate = locate};
    memcpy(msg.stock_directory.stock, stock, 8);
    put(msg);
}

static void put_state(uint16_t locate, const char *stock, uint8_t trading_state)
{
    struct itch_msg msg = {
        .type = 'H', .locate = locate, .stock_trading_action = {.trading_state = trading_state}};
    memcpy(msg.stock_trading_action.stock, stock, 8);
    put(msg);
}

static void put_add(uint16_t locate, const char *stock, uint64_t ref, uint8_t side, uint32_t shares,
                    uint32_t price)
{
    struct itch_msg msg = {
        .type = 'A',
        .locate = locate,
        .add_order = {
            .order_reference_number = ref, .buy_sell_indicator = side, .shares = shares, .price = price}};
    memcpy(msg.add_order.stock, stock, 8);
    put(msg);
}

/* What the command must write: one entry per tick. */
struct expected {
    uint16_t stream;
    uint64_t ts_ns;
    int64_t mid2;
    int part; /* labels do not reach from one part of the day into another */
};
static struct expected expected[8192];
static int n_expected, part_of[2];

/* Moves a quote by a replace (the side's only order) and notes the tick. */
static uint64_t ref_of[2][2]; /* by stream, side */
static uint32_t price_of[2][2];

static void move_quote(uint16_t stream, int side, uint32_t price, int trading)
{
    static uint64_t next_ref = 100;
    put((struct itch_msg){.type = 'U',
                          .locate = (uint16_t)(stream + 1u),
                          .order_replace = {.original_order_reference_number = ref_of[stream][side],
                                            .new_order_reference_number = next_ref,
                                            .shares = (uint32_t)next_ref, /* always another: always a tick */
                                            .price = price}});
    ref_of[stream][side] = next_ref++;
    price_of[stream][side] = price;
    if (trading)
        expected[n_expected++] = (struct expected){
            stream, ts_ns, (int64_t)price_of[stream][0] + price_of[stream][1], part_of[stream]};
}

static const char *const stocks[] = {"AAA     ", "BBB     "};

enum { N_MOVE = 6000, HALT = 1000, RESUME = 1200, SHORT_HALT = 1500, CROSS = 2000, SETTLE_MS = 2000 };

/* Both symbols wander. AAA is halted for a while and goes on quoting; BBB is halted for a moment without a
 * quote; later BBB's book is crossed for a moment, which makes it unreliable for the time that books need to
 * settle. */
static int make_day(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/test_features.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(capture, sizeof(capture), "%s/day.itch50", dir);
    day = fopen(capture, "wb");
    assert_non_null(day);
    ts_ns = 34200000000000u;
    put_event('O');
    for (uint16_t s = 0; s < 2; s++)
        put_directory(s + 1, stocks[s]);
    for (uint16_t s = 0; s < 2; s++)
        put_state(s + 1, stocks[s], 'T');
    for (uint16_t s = 0; s < 2; s++)
        for (int side = 0; side < 2; side++) {
            ref_of[s][side] = (uint64_t)(10 * s + side);
            price_of[s][side] = 1000000u * (s + 1u) + 1600u * (uint32_t)side;
            put_add(s + 1, stocks[s], ref_of[s][side], side ? 'S' : 'B', 100, price_of[s][side]);
        }
    put_event('Q');
    uint32_t r = 1;
    uint64_t settled_ns = 0;
    for (int i = 0; i < N_MOVE; i++) {
        if (i == HALT || i == RESUME) {
            part_of[0]++;
            put_state(1, stocks[0], i == HALT ? 'H' : 'T');
        } else if (i == SHORT_HALT) {
            part_of[1]++;
            put_state(2, stocks[1], 'H');
            put_state(2, stocks[1], 'T');
        }
        r = r * 1664525u + 1013904223u;
        uint16_t stream = i % 3 == 2;
        int side = r >> 16 & 1;
        /* bids end in 0 to 15 cents, asks in 16 to 31: never crossed */
        uint32_t step = (r >> 20 & 15) * 100, price = 1000000u * (stream + 1u) + (side ? 1600 : 0) + step;
        int used = stream == 0 ? i < HALT || i >= RESUME : i < CROSS || ts_ns >= settled_ns;
        if (i == CROSS) {
            move_quote(1, 0, price_of[1][1] + 100, 0);
            settled_ns = ts_ns + SETTLE_MS * 1000000ull;
            part_of[1]++;
        } else if (i == CROSS + 3) {
            move_quote(1, 0, 2000000, 0);
        } else {
            move_quote(stream, side, price, used);
        }
    }
    put_event('M');
    put_event('C');
    assert_int_equal(fclose(day), 0);
    return 0;
}
static_assert(CROSS % 3 == 2 && (CROSS + SETTLE_MS) % 3 != 2,
              "the crossed book is BBB's; no tick as it settles");

static int remove_day(void **state)
{
    (void)state;
    struct command_result removed = command_shell("rm -r %s", dir);
    int status = removed.status;
    command_free(&removed);
    command_free(&said);
    return status;
}

/* Runs killline features; returns the exit status. */
static int run(const char *arguments)
{
    command_free(&said);
    said = command_run("features %s", arguments);
    return said.status;
}

/* The exit status of any shell line that prints nothing. */
#define assert_succeeds(...)                                                                                 \
    do {                                                                                                     \
        struct command_result result_ = command_shell(__VA_ARGS__);                                          \
        assert_string_equal(result_.out, "");                                                                \
        assert_string_equal(result_.err, "");                                                                \
        assert_int_equal(result_.status, 0);                                                                 \
        command_free(&result_);                                                                              \
    } while (0)

static int expected_label(int i, int horizon, double dead_band_ticks)
{
    int seen = 0;
    for (int k = i + 1; k < n_expected; k++) {
        if (expected[k].stream != expected[i].stream)
            continue;
        if (expected[k].part != expected[i].part)
            return -1;
        if (++seen == horizon) {
            double change = (double)(expected[k].mid2 - expected[i].mid2) / 2 / 100; /* price ticks */
            return change > dead_band_ticks ? 2 : change < -dead_band_ticks ? 0 : 1;
        }
    }
    return -1;
}

static json_t *description(const char *out)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s/features.json", dir, out);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    assert_non_null(root);
    return root;
}

static json_int_t integer(const json_t *root, const char *group, const char *key)
{
    const json_t *value = json_object_get(group ? json_object_get(root, group) : root, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void check_labels(const char *arguments, const char *out, int horizon, double dead_band_ticks)
{
    char line[512], path[128];
    snprintf(line, sizeof(line), "%s --out %s/%s %s", capture, dir, out, arguments);
    assert_int_equal(run(line), 0);
    snprintf(path, sizeof(path), "%s/%s", dir, out);
    struct npy_array features = npy_array(path, "features.npy", "<f4", FEATURES_N);
    struct npy_array labels = npy_array(path, "labels.npy", "|i1", 0),
                     stream = npy_array(path, "stream.npy", "<u2", 0);
    struct npy_array ts = npy_array(path, "ts_ns.npy", "<u8", 0), mid = npy_array(path, "mid.npy", "<i8", 0);
    assert_int_equal(features.n_row, n_expected);
    assert_true(labels.n_row == features.n_row && stream.n_row == features.n_row &&
                ts.n_row == features.n_row && mid.n_row == features.n_row);
    int count[4] = {0};
    for (int i = 0; i < n_expected; i++) {
        assert_int_equal(((const uint16_t *)stream.data)[i], expected[i].stream);
        assert_true(((const uint64_t *)ts.data)[i] == expected[i].ts_ns);
        assert_true(((const int64_t *)mid.data)[i] == expected[i].mid2);
        int label = expected_label(i, horizon, dead_band_ticks);
        if (((const int8_t *)labels.data)[i] != label)
            fail_msg("label of row %d is %d, not %d", i, ((const int8_t *)labels.data)[i], label);
        count[label + 1]++;
    }
    json_t *root = description(out);
    assert_true(horizon > n_expected ? count[0] == n_expected : count[1] && count[3]);
    assert_int_equal(integer(root, "labels", "none"), count[0]);
    assert_int_equal(integer(root, "labels", "down"), count[1]);
    assert_int_equal(integer(root, "labels", "flat"), count[2]);
    assert_int_equal(integer(root, "labels", "up"), count[3]);
    assert_int_equal(integer(root, NULL, "horizon_ticks"), horizon);
    json_decref(root);
    free(features.data), free(labels.data), free(stream.data), free(ts.data), free(mid.data);
}

static void test_labels(void **state)
{
    (void)state;
    check_labels("", "default", 10, 0.5);
    check_labels("--horizon 1 --dead-band 0", "one", 1, 0);
    check_labels("--horizon 333 --dead-band 2.5", "far", 333, 2.5);
    check_labels("--horizon 100000", "beyond", 100000, 0.5);
}

static void test_description(void **state)
{
    (void)state;
    char line[512], path[128];
    snprintf(line, sizeof(line), "%s --out %s/json --json", capture, dir);
    assert_int_equal(run(line), 0);
    json_t *root = description("json");
    json_error_t error;
    json_t *printed = json_loads(said.out, 0, &error);
    assert_non_null(printed);
    assert_true(json_equal(root, printed));
    json_decref(printed);
    assert_int_equal(integer(root, NULL, "feature_schema"), FEATURES_SCHEMA);
    assert_int_equal(integer(root, NULL, "rows"), n_expected);
    assert_int_equal(integer(root, NULL, "messages"), N_MOVE + 4 + 4 + 2 + 4 + 2);
    assert_int_equal(integer(root, NULL, "messages_lost"), 0);
    assert_int_equal(integer(root, NULL, "ticks_not_trading"), 4 + (RESUME - HALT) * 2 / 3);
    assert_int_equal(integer(root, NULL, "rows") + integer(root, NULL, "ticks_not_trading") +
                         integer(root, NULL, "ticks_unreliable"),
                     N_MOVE + 4);
    snprintf(path, sizeof(path), "%s/json", dir);
    struct npy_array raw = npy_array(path, "features.npy", "<f4", FEATURES_N);
    assert_int_equal(raw.n_row, n_expected);
    assert_int_equal(json_array_size(json_object_get(root, "names")), FEATURES_N);
    for (uint32_t i = 0; i < FEATURES_N; i++) {
        assert_string_equal(json_string_value(json_array_get(json_object_get(root, "names"), i)),
                            features_name(i));
        const json_t *f = json_array_get(json_object_get(root, "features"), i);
        assert_string_equal(json_string_value(json_object_get(f, "formula")), features_info(i)->formula);
        double sum = 0, squares = 0, min = INFINITY, max = -INFINITY;
        for (int r = 0; r < n_expected; r++) {
            double x = (double)((const float *)raw.data)[(size_t)r * FEATURES_N + i];
            sum += x, squares += x * x, min = fmin(min, x), max = fmax(max, x);
        }
        double mean = sum / n_expected, sd = sqrt(squares / n_expected - mean * mean);
        assert_true(fabs(json_number_value(json_object_get(f, "mean")) - mean) < 1e-6);
        assert_true(fabs(json_number_value(json_object_get(f, "sd")) - sd) < 1e-6);
        assert_true(fabs(json_number_value(json_object_get(f, "min")) - min) < 1e-6);
        assert_true(fabs(json_number_value(json_object_get(f, "max")) - max) < 1e-6);
    }
    free(raw.data);
    const json_t *symbols = json_object_get(root, "symbols");
    assert_int_equal(json_array_size(symbols), 2);
    assert_string_equal(json_string_value(json_array_get(symbols, 0)), "AAA");
    assert_string_equal(json_string_value(json_array_get(symbols, 1)), "BBB");
    assert_string_equal(json_string_value(json_object_get(root, "capture")), "day.itch50");
    struct command_result sum = command_shell("sha256sum %s", capture);
    assert_true(sum.status == 0 && strlen(sum.out) > 64);
    sum.out[64] = '\0';
    assert_string_equal(json_string_value(json_object_get(root, "capture_sha256")), sum.out);
    command_free(&sum);
    json_decref(root);
}

static void test_same_input_same_bytes(void **state)
{
    (void)state;
    char line[512];
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof(line), "%s --out %s/same%d", capture, dir, i);
        assert_int_equal(run(line), 0);
    }
    assert_succeeds("diff -r %s/same0 %s/same1", dir, dir);
}

static void test_selection(void **state)
{
    (void)state;
    char line[512], path[128];
    snprintf(line, sizeof(line), "%s --out %s/bbb --symbols BBB", capture, dir);
    assert_int_equal(run(line), 0);
    snprintf(path, sizeof(path), "%s/bbb", dir);
    struct npy_array mid = npy_array(path, "mid.npy", "<i8", 0);
    uint64_t n = 0;
    for (int i = 0; i < n_expected; i++)
        if (expected[i].stream == 1)
            assert_true(n < mid.n_row && ((const int64_t *)mid.data)[n++] == expected[i].mid2);
    assert_true(n == mid.n_row);
    free(mid.data);
    assert_null(strstr(said.err, "not one tick"));
    snprintf(line, sizeof(line), "%s --out %s/none --symbols NOSUCH", capture, dir);
    assert_int_equal(run(line), 0);
    assert_non_null(strstr(said.err, "not one tick"));
    snprintf(line, sizeof(line), "%s --out %s/trades --trigger trade", capture, dir);
    assert_int_equal(run(line), 0); /* the day has no trades: empty arrays, and that is no error */
    snprintf(path, sizeof(path), "%s/trades", dir);
    struct npy_array none = npy_array(path, "features.npy", "<f4", FEATURES_N);
    assert_int_equal(none.n_row, 0);
    free(none.data);
}

/* The day as a pcap, without the frame of message lost (0: whole). */
static void write_pcap(const char *path, uint64_t lost)
{
    char error[CAPTURE_ERROR_CHARS];
    struct capture *frames = capture_open(capture, 0, error);
    pcap_t *format = pcap_open_dead_with_tstamp_precision(DLT_EN10MB, 65535, PCAP_TSTAMP_PRECISION_NANO);
    pcap_dumper_t *out = pcap_dump_open(format, path);
    assert_true(frames && out);
    struct capture_frame frame;
    for (uint64_t n = 1; capture_next_frame(frames, &frame, error) == 1; n++) {
        struct pcap_pkthdr header = {.caplen = frame.len, .len = frame.len};
        header.ts.tv_sec = (time_t)(frame.ts_ns / 1000000000);
        header.ts.tv_usec = (suseconds_t)(frame.ts_ns % 1000000000);
        if (n != lost)
            pcap_dump((u_char *)out, &header, frame.data);
    }
    pcap_dump_close(out);
    pcap_close(format);
    capture_close(frames);
}

static void test_pcap_and_gap(void **state)
{
    (void)state;
    enum { LOST = 500 };
    char line[512], path[128];
    snprintf(path, sizeof(path), "%s/day.pcap", dir);
    write_pcap(path, 0);
    snprintf(line, sizeof(line), "%s --out %s/whole", path, dir);
    assert_int_equal(run(line), 0);
    snprintf(line, sizeof(line), "%s --out %s/binaryfile", capture, dir);
    assert_int_equal(run(line), 0);
    assert_succeeds("cd %s && for a in whole/*.npy; do cmp $a binaryfile/${a#*/} || exit 1; done", dir);

    write_pcap(path, LOST);
    snprintf(line, sizeof(line), "%s --out %s/gap --set join.settle_ms=0", path, dir);
    assert_int_equal(run(line), 0);
    json_t *root = description("gap");
    assert_int_equal(integer(root, NULL, "messages_lost"), 1);
    json_decref(root);
    snprintf(path, sizeof(path), "%s/gap", dir);
    struct npy_array labels = npy_array(path, "labels.npy", "|i1", 0),
                     ts = npy_array(path, "ts_ns.npy", "<u8", 0);
    struct npy_array stream = npy_array(path, "stream.npy", "<u2", 0);
    uint64_t lost_ns = 34200000000000u + LOST * 1000000ull, row = 0;
    while (row < ts.n_row && ((const uint64_t *)ts.data)[row] < lost_ns)
        row++;
    assert_true(row > 300 && row < ts.n_row && ((const uint64_t *)ts.data)[row] < lost_ns + 20000000);
    int n[2] = {0}; /* ticks of a stream between the row and the gap */
    while (row-- > 0) {
        int s = ((const uint16_t *)stream.data)[row];
        assert_int_equal(((const int8_t *)labels.data)[row] == -1, n[s]++ < 10);
    }
    free(labels.data), free(ts.data), free(stream.data);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int takes_capture;
        const char *arguments, *message;
        int status;
    } cases[] = {
        {0, "", "give one capture", 2},
        {1, "", "give --out DIR", 2},
        {1, " extra --out /tmp/x", "give one capture", 2},
        {1, " --out /tmp/x --horizon 0", "--horizon 0: 1 to 100000 ticks", 2},
        {1, " --out /tmp/x --horizon 100001", "--horizon 100001", 2},
        {1, " --out /tmp/x --dead-band -1", "--dead-band -1", 2},
        {1, " --out /tmp/x --dead-band nan", "--dead-band nan", 2},
        {1, " --out /tmp/x --dead-band 1x", "--dead-band 1x", 2},
        {1, " --out /tmp/x --symbols AAA,,BBB", "'' is no symbol", 2},
        {1, " --out /tmp/x --symbols ABCDEFGHI", "'ABCDEFGHI' is no symbol", 2},
        {1, " --out /tmp/x --trigger sometimes", "sometimes", 1},
        {1, " --out /tmp/x --set trigger", "expected KEY=VALUE", 2},
        {1, " --out /tmp/x --config /nonexistent.yaml", "/nonexistent.yaml: cannot read: No such file", 1},
        {1, " --out /nonexistent/x", "--out /nonexistent/x: cannot create: No such file", 1},
        {0, "/nonexistent.itch50 --out /tmp/x", "/nonexistent.itch50", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[512];
        snprintf(line, sizeof(line), "%s%s", cases[i].takes_capture ? capture : "", cases[i].arguments);
        assert_int_equal(run(line), cases[i].status);
        if (!strstr(said.err, cases[i].message))
            fail_msg("'%s' does not say '%s'", line, cases[i].message);
    }
    assert_int_equal(run("--help"), 0);
    assert_true(strstr(said.out, "mid[i + horizon]") && strstr(said.out, "imbalance_l10"));
}

/* A torn capture fails, and the description of an earlier run does not stay beside the new arrays. */
static void test_torn_capture(void **state)
{
    (void)state;
    char line[512], path[128];
    snprintf(line, sizeof(line), "%s --out %s/torn", capture, dir);
    assert_int_equal(run(line), 0);
    snprintf(path, sizeof(path), "%s/torn/features.json", dir);
    assert_int_equal(access(path, F_OK), 0);
    assert_succeeds("head -c 20001 %s >%s/torn.itch50", capture, dir);
    snprintf(line, sizeof(line), "%s/torn.itch50 --out %s/torn", dir, dir);
    assert_int_equal(run(line), 1);
    assert_non_null(strstr(said.err, "torn.itch50"));
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),       cmocka_unit_test(test_description),
        cmocka_unit_test(test_selection),    cmocka_unit_test(test_same_input_same_bytes),
        cmocka_unit_test(test_pcap_and_gap), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_torn_capture),
    };
    return cmocka_run_group_tests(tests, make_day, remove_day);
}
