/* killline book on small files made here: which rows, from which container, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pcap/pcap.h>

#include "command.h"
#include "feed_builder.h"

static char dir[64], path[128];

enum { N_DAY = 12 };
static struct itch_msg day[N_DAY];

/* Two symbols; TEST is first named by message 4, K names it with locate 0. */
static int make_day(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/killline-book-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/day", dir);
    int n = 0;
    day[n++] = feed_event('O', 1);
    day[n++] = feed_directory(2, "OTHR", 2);
    day[n++] = feed_delete(1, 999, 3); /* of an order before the file */
    day[n++] = feed_order(1, "TEST", 10, 'B', 100, 10000, 4);
    day[n++] = feed_order(2, "OTHR", 11, 'S', 100, 20000, 5);
    day[n++] = feed_order(1, "TEST", 12, 'S', 300, 0xffffffff, 6);
    day[n++] = feed_order(1, "TEST", 13, 'B', 50, 9900, 7);
    day[n] = (struct itch_msg){.type = 'K', .locate = 0, .timestamp_ns = 8};
    feed_symbol(day[n++].ipo_quoting_period_update.stock, "TEST");
    day[n] = (struct itch_msg){.type = 'E', .locate = 1, .timestamp_ns = 9};
    day[n++].order_executed =
        (struct itch_order_executed){.order_reference_number = 10, .executed_shares = 40};
    day[n++] = feed_delete(1, 13, 10);
    day[n++] = feed_state(1, "TEST", 'H', 11);
    day[n++] = feed_delete(2, 11, 12);
    return n == N_DAY ? 0 : -1;
}

static int remove_day(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* All rows of TEST, two levels. */
static const char rows[] = "3,9999999999,0,-9999999999,0,9999999999,0,-9999999999,0\n"
                           "4,9999999999,0,10000,100,9999999999,0,-9999999999,0\n"
                           "6,4294967295,300,10000,100,9999999999,0,-9999999999,0\n"
                           "7,4294967295,300,10000,100,9999999999,0,9900,50\n"
                           "8,4294967295,300,10000,100,9999999999,0,9900,50\n"
                           "9,4294967295,300,10000,60,9999999999,0,9900,50\n"
                           "10,4294967295,300,10000,60,9999999999,0,-9999999999,0\n"
                           "11,4294967295,300,10000,60,9999999999,0,-9999999999,0\n";

static void write_binaryfile(size_t cut_bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < N_DAY; i++) {
        uint8_t body[2 + ITCH_MESSAGE_BYTES_MAX];
        int len = itch_encode(&day[i], body + 2, ITCH_MESSAGE_BYTES_MAX);
        assert_true(len > 0);
        feed_put(body, (uint64_t)len, 2);
        size_t bytes = 2 + (size_t)len - (i == N_DAY - 1 ? cut_bytes : 0);
        assert_int_equal(fwrite(body, 1, bytes, f), bytes);
    }
    assert_int_equal(fclose(f), 0);
}

struct pcap_file {
    pcap_t *pcap;
    pcap_dumper_t *dumper;
    int64_t ts_us;
};

static struct pcap_file pcap_create_file(void)
{
    struct pcap_file file = {.pcap = pcap_open_dead(DLT_EN10MB, 65535)};
    assert_non_null(file.pcap);
    file.dumper = pcap_dump_open(file.pcap, path);
    assert_non_null(file.dumper);
    return file;
}

static void pcap_close_file(struct pcap_file *file)
{
    pcap_dump_close(file->dumper);
    pcap_close(file->pcap);
}

static void put_datagram(struct pcap_file *file, struct feed_builder *f, const char *session, uint64_t seq,
                         uint16_t count, uint32_t group)
{
    feed_frame(f, session, seq, count, group);
    struct pcap_pkthdr header = {
        .ts = {.tv_usec = file->ts_us++}, .caplen = (uint32_t)f->frame_len, .len = (uint32_t)f->frame_len};
    pcap_dump((u_char *)file->dumper, &header, f->frame);
}

/* Messages [from, from + count) of the day as one datagram. */
static void put_packet(struct pcap_file *file, int from, int count, uint32_t group)
{
    struct feed_builder f = {0};
    feed_begin(&f);
    for (int i = from; i < from + count; i++)
        feed_add(&f, &day[i]);
    put_datagram(file, &f, "TESTDAY001", (uint64_t)from + 1, (uint16_t)count, group);
}

static void test_rows(void **state)
{
    (void)state;
    write_binaryfile(0);
    struct command_result result = command_run("book %s --symbol TEST --levels 2", path);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.out, rows);
    assert_non_null(strstr(result.err, "1 messages refer to orders that the file does not hold"));
    command_free(&result);
}

static void test_changes_only(void **state)
{
    (void)state;
    write_binaryfile(0);
    struct command_result result = command_run("book %s --symbol TEST --levels 1 --changes-only", path);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.out, "4,9999999999,0,10000,100\n"
                                    "6,4294967295,300,10000,100\n"
                                    "9,4294967295,300,10000,60\n");
    command_free(&result);
}

static void test_most_levels(void **state)
{
    (void)state;
    write_binaryfile(0);
    struct command_result result = command_run("book %s --symbol OTHR --levels 1000", path);
    assert_int_equal(result.status, 0);
    int n_line = 0, n_comma = 0;
    for (const char *p = result.out; *p; p++) {
        n_line += *p == '\n';
        n_comma += *p == ',';
    }
    assert_int_equal(n_line, 3);
    assert_int_equal(n_comma, 3 * 4000);
    command_free(&result);
}

/* Lines A and B in one file: packets cut differently, late, missing on one line; each message once, in
 * sequence. */
static void test_pcap_two_lines(void **state)
{
    (void)state;
    struct pcap_file file = pcap_create_file();
    put_packet(&file, 0, 3, (uint32_t)FEED_GROUP_A);
    put_packet(&file, 0, 4, (uint32_t)FEED_GROUP_B);
    put_packet(&file, 6, 6, (uint32_t)FEED_GROUP_A); /* 4 and 5 missing on A */
    put_packet(&file, 4, 3, (uint32_t)FEED_GROUP_B);
    pcap_close_file(&file);
    struct command_result result = command_run("book %s --symbol TEST --levels 2", path);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.out, rows);
    assert_null(strstr(result.err, "lost"));
    command_free(&result);
}

static void test_pcap_gap(void **state)
{
    (void)state;
    struct pcap_file file = pcap_create_file();
    put_packet(&file, 0, 6, (uint32_t)FEED_GROUP_A);
    put_packet(&file, 8, 4, (uint32_t)FEED_GROUP_A);
    pcap_close_file(&file);
    struct command_result result = command_run("book %s --symbol TEST --levels 1", path);
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.err, "2 messages are lost on all lines, the first after message 6"));
    assert_non_null(strstr(result.out, "\n7,4294967295,300,10000,60\n")); /* numbered as delivered */
    command_free(&result);
}

/* A capture over two days: the second begins with empty books, whatever the first has left behind, and the
 * symbol may have another locate. */
static void test_pcap_two_sessions(void **state)
{
    (void)state;
    struct pcap_file file = pcap_create_file();
    struct feed_builder f = {0};
    const struct itch_msg first = feed_order(3, "TEST", 1, 'B', 100, 10000, 5),
                          second[] = {feed_order(4, "TEST", 1, 'S', 7, 20000, 5), feed_delete(4, 1, 6)};
    feed_begin(&f);
    feed_add(&f, &first);
    put_datagram(&file, &f, "TESTDAY001", 1, 1, FEED_GROUP_A);
    feed_begin(&f);
    put_datagram(&file, &f, "TESTDAY001", 2, MOLD_COUNT_END, FEED_GROUP_A);
    feed_begin(&f);
    feed_add(&f, &second[0]);
    feed_add(&f, &second[1]);
    put_datagram(&file, &f, "TESTDAY002", 1, 2, FEED_GROUP_A);
    pcap_close_file(&file);
    struct command_result result = command_run("book %s --symbol TEST --levels 1", path);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.out, "1,9999999999,0,10000,100\n"
                                    "2,20000,7,-9999999999,0\n"
                                    "3,9999999999,0,-9999999999,0\n");
    command_free(&result);
}

static void test_pcap_of_something_else(void **state)
{
    (void)state;
    struct pcap_file file = pcap_create_file();
    uint8_t frame[60] = {0};
    struct pcap_pkthdr header = {.caplen = sizeof(frame), .len = sizeof(frame)};
    pcap_dump((u_char *)file.dumper, &header, frame);
    pcap_close_file(&file);
    struct command_result result = command_run("book %s --symbol TEST --levels 1", path);
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, "none of 0 UDP datagrams is MoldUDP64"));
    command_free(&result);
}

static void test_unknown_symbol(void **state)
{
    (void)state;
    write_binaryfile(0);
    struct command_result result = command_run("book %s --symbol TES --levels 1", path);
    assert_int_equal(result.status, 1);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, "no message names the symbol 'TES     '; it has OTHR, TEST\n"));
    command_free(&result);
}

static void test_torn_file(void **state)
{
    (void)state;
    write_binaryfile(3);
    struct command_result result = command_run("book %s --symbol TEST --levels 2", path);
    assert_int_equal(result.status, 1);
    assert_string_equal(result.out, rows); /* what came before stays good */
    assert_non_null(strstr(result.err, path));
    command_free(&result);
}

static void test_usage(void **state)
{
    (void)state;
    write_binaryfile(0);
    const struct {
        const char *arguments;
        int status;
        const char *says;
    } cases[] = {
        {"--help", 0, NULL},
        {"--symbol TEST --levels 1", 2, "no file given"},
        {"x y --symbol TEST --levels 1", 2, "more than one file"},
        {"x --levels 1", 2, "--symbol and --levels"},
        {"x --symbol TEST", 2, "--symbol and --levels"},
        {"x --symbol TEST --levels 0", 2, "1 to 1000"},
        {"x --symbol TEST --levels 1001", 2, "1 to 1000"},
        {"x --symbol TOOLONGNAME --levels 1", 2, "1 to 8 characters"},
        {"x --symbol '' --levels 1", 2, "1 to 8 characters"},
        {"x --nothing", 2, "unknown option"},
        {"/nonexistent/file --symbol TEST --levels 1", 1, "/nonexistent/file"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct command_result result = command_run("book %s", cases[i].arguments);
        assert_int_equal(result.status, cases[i].status);
        if (cases[i].says)
            assert_non_null(strstr(result.err, cases[i].says));
        else
            assert_non_null(strstr(result.out, "usage: killline book"));
        command_free(&result);
    }
}

/* A full disk is not success. */
static void test_write_error(void **state)
{
    (void)state;
    write_binaryfile(0);
    struct command_result result = command_run("book %s --symbol TEST --levels 1 >/dev/full", path);
    assert_int_equal(result.status, 1);
    assert_string_equal(result.out, "");
    command_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_changes_only),
        cmocka_unit_test(test_most_levels),
        cmocka_unit_test(test_pcap_two_lines),
        cmocka_unit_test(test_pcap_gap),
        cmocka_unit_test(test_pcap_two_sessions),
        cmocka_unit_test(test_pcap_of_something_else),
        cmocka_unit_test(test_unknown_symbol),
        cmocka_unit_test(test_torn_file),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_write_error),
    };
    return cmocka_run_group_tests(tests, make_day, remove_day);
}
