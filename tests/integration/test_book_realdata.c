/* killline book on real order flow against books made by others: every row of the LOBSTER oracles, every BBO
 * change of the AAPL stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "command.h"
#include "realdata.h"

/* Line at *at without its end; *at moves behind it. NULL at the end. */
static char *next_line(char **at)
{
    if (!**at)
        return NULL;
    char *line = *at, *end = strchr(line, '\n');
    if (end) {
        *at = end + 1;
        *end = '\0';
        if (end > line && end[-1] == '\r')
            end[-1] = '\0';
    } else {
        *at = line + strlen(line);
    }
    return line;
}

/* Every expected row is there, byte for byte; rows of the messages in between have no oracle. */
static void check_lobster(const char *name, const char *symbol, int n_level, int n_expected, int n_message)
{
    char path[REALDATA_PATH_CHARS], file[128];
    snprintf(file, sizeof(file), "lobster-itch/%s.itch50", name);
    struct command_result result =
        command_run("book '%s' --symbol %s --levels %d", realdata_path(path, file), symbol, n_level);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.err, "");
    snprintf(file, sizeof(file), "lobster-itch/%s.expected.csv", name);
    char *expected = command_read_file(realdata_path(path, file));
    char *at = result.out, *at_expected = expected, *row, *want;
    int n_row = 0, n_want = 0;
    while ((want = next_line(&at_expected))) {
        do {
            row = next_line(&at);
            assert_non_null(row);
            n_row++;
            assert_int_equal(atoi(row), n_row); /* one row per message: the files hold one symbol */
        } while (atoi(row) != atoi(want));
        assert_string_equal(row, want);
        n_want++;
    }
    while (next_line(&at))
        n_row++;
    assert_int_equal(n_want, n_expected);
    assert_int_equal(n_row, n_message);
    free(expected);
    command_free(&result);
}

static void test_lobster_aapl(void **state)
{
    (void)state;
    check_lobster("AAPL_L10", "AAPL", 10, 999, 1037);
}

static void test_lobster_msft(void **state)
{
    (void)state;
    check_lobster("MSFT_L50", "MSFT", 50, 1000, 1108);
}

static void test_lobster_amzn(void **state)
{
    (void)state;
    check_lobster("AMZN_L1_fullday", "AMZN", 1, 57515, 73901);
}

/* Joined in mid-day: 3,970 messages refer to orders never seen. The oracle writes 0,0 for an absent side. */
static void test_aapl_bbo(void **state)
{
    (void)state;
    char path[REALDATA_PATH_CHARS];
    struct command_result result =
        command_run("book '%s' --symbol AAPL --levels 1 --changes-only",
                    realdata_path(path, "itch-aapl-20191230/AAPL_20191230_0935.itch50"));
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.err, " 3970 messages refer to orders"));
    char *expected = command_read_file(realdata_path(path, "itch-aapl-20191230/AAPL_20191230_0935.bbo.csv"));
    char *at = result.out, *at_expected = expected, *row, *want;
    int n = 0;
    while ((want = next_line(&at_expected))) {
        row = next_line(&at);
        assert_non_null(row);
        long long got_no, ask, ask_qty, bid, bid_qty, want_no, want_ask, want_ask_qty, want_bid, want_bid_qty;
        assert_int_equal(sscanf(row, "%lld,%lld,%lld,%lld,%lld", &got_no, &ask, &ask_qty, &bid, &bid_qty), 5);
        assert_int_equal(sscanf(want, "%lld,%*d,%lld,%lld,%lld,%lld", &want_no, &want_bid, &want_bid_qty,
                                &want_ask, &want_ask_qty),
                         5);
        assert_true(got_no == want_no);
        assert_true(ask == (want_ask_qty ? want_ask : 9999999999) && ask_qty == want_ask_qty);
        assert_true(bid == (want_bid_qty ? want_bid : -9999999999) && bid_qty == want_bid_qty);
        n++;
    }
    assert_null(next_line(&at));
    assert_int_equal(n, 16583);
    free(expected);
    command_free(&result);
}

/* Untouched frames of the wire, VLAN tags and all; 38 messages in one datagram. */
static void test_pcap(void **state)
{
    (void)state;
    char path[REALDATA_PATH_CHARS];
    struct command_result result = command_run("book '%s' --symbol NOSUCH --levels 1",
                                               realdata_path(path, "totalview-pcap/Multiple.Packets.pcap"));
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, "no message names the symbol 'NOSUCH"));
    char symbol[9] = "", *names = strstr(result.err, "it has ");
    assert_non_null(names);
    assert_int_equal(sscanf(names, "it has %8[A-Z]", symbol), 1);
    command_free(&result);
    result = command_run("book '%s' --symbol %s --levels 2",
                         realdata_path(path, "totalview-pcap/Multiple.Packets.pcap"), symbol);
    assert_int_equal(result.status, 0);
    assert_true(atoi(result.out) >= 1);
    command_free(&result);
}

int main(void)
{
    realdata_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lobster_aapl), cmocka_unit_test(test_lobster_msft),
        cmocka_unit_test(test_lobster_amzn), cmocka_unit_test(test_aapl_bbo),
        cmocka_unit_test(test_pcap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
