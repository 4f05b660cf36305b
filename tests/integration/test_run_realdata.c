/* The appliance on real exchange data: untouched VLAN-tagged frames through DPDK's net_pcap, a real hour of
 * one symbol through the ring port. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "command.h"
#include "realdata.h"

static char folder[] = "/tmp/test_run_realdata_XXXXXX";

static json_t *run_json(const char *args)
{
    static int n;
    struct command_result c = command_run("run --json --out %s/out%d %s", folder, n++, args);
    if (c.status)
        print_error("run %s: status %d\n%s", args, c.status, c.err);
    assert_int_equal(c.status, 0);
    json_t *json = json_loads(c.out, 0, NULL);
    assert_non_null(json);
    command_free(&c);
    return json;
}

static json_int_t number_at(json_t *json, const char *a, const char *b)
{
    json_t *v = json_object_get(json, a);
    if (b)
        v = json_object_get(v, b);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

/* Frames as they were captured: nanosecond pcap, 802.1Q tag, checksums that must hold. */
static void untouched_frames_through_dpdk(void **state)
{
    static const struct {
        const char *name, *type;
        int packets, messages;
    } captures[] = {
        {"AddOrderNoMpidAttributionMessage", "A", 1, 1},
        {"MarketParticipantPositionMessage", "L", 1, 1},
        {"NetOrderImbalanceIndicatorMessage", "I", 1, 1},
        {"OrderDeleteMessage", "D", 1, 1},
        {"OrderExecutedMessage", "E", 1, 1},
        {"OrderReplaceMessage", "U", 1, 1},
        {"StockTradingActionMessage", "H", 1, 1},
        {"Multiple.Packets", NULL, 2, 39},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(captures) / sizeof(captures[0]); i++) {
        char args[REALDATA_PATH_CHARS + 64], path[REALDATA_PATH_CHARS], name[128];
        snprintf(name, sizeof(name), "totalview-pcap/%s.pcap", captures[i].name);
        snprintf(args, sizeof(args), "--pcap %s", realdata_path(path, name));
        json_t *json = run_json(args);
        assert_int_equal(number_at(json, "frames", NULL), captures[i].packets);
        assert_int_equal(number_at(json, "packets", "ok"), captures[i].packets);
        assert_int_equal(number_at(json, "messages", NULL), captures[i].messages);
        assert_int_equal(number_at(json, "unknown_messages", NULL), 0);
        if (captures[i].type)
            assert_int_equal(number_at(json, "messages_by_type", captures[i].type), 1);
        json_decref(json);
    }
}

/* The configured group is the one on the wire; another one is filtered. */
static void the_real_group_can_be_configured(void **state)
{
    (void)state;
    char args[REALDATA_PATH_CHARS + 128], path[REALDATA_PATH_CHARS];
    realdata_path(path, "totalview-pcap/OrderDeleteMessage.pcap");
    snprintf(args, sizeof(args), "--pcap %s --set feed.a.group=233.54.12.111 --set feed.a.port=26477", path);
    json_t *json = run_json(args);
    assert_int_equal(number_at(json, "messages", NULL), 1);
    json_decref(json);
    snprintf(args, sizeof(args), "--pcap %s --set feed.a.group=233.54.12.111 --set feed.a.port=26478", path);
    json = run_json(args);
    assert_int_equal(number_at(json, "messages", NULL), 0);
    assert_int_equal(number_at(json, "filtered", NULL), 1);
    json_decref(json);
}

/* Joined in the middle: 3,970 messages refer to orders never seen (README of the data). */
static void a_real_mid_session_join(void **state)
{
    (void)state;
    char args[REALDATA_PATH_CHARS + 64], path[REALDATA_PATH_CHARS];
    realdata_path(path, "itch-aapl-20191230/AAPL_20191230_0935.itch50");
    snprintf(args, sizeof(args), "--itch %s", path);
    json_t *json = run_json(args);
    assert_int_equal(number_at(json, "messages", NULL), 49947);
    assert_int_equal(number_at(json, "books", "unknown_ref"), 3970);
    assert_int_equal(number_at(json, "books", "excess_qty"), 0);
    assert_int_equal(number_at(json, "unknown_messages", NULL), 0);
    assert_true(number_at(json, "verdicts", "published") > 5000);
    assert_true(number_at(json, "verdicts", "book-unreliable") > 1000);
    json_decref(json);
    /* a book that was joined is never trusted under the strict policy */
    strcat(args, " --set join.policy=strict");
    json = run_json(args);
    assert_int_equal(number_at(json, "verdicts", "published"), 0);
    assert_int_equal(number_at(json, "verdicts", "book-unreliable"), number_at(json, "predictions", NULL));
    assert_true(number_at(json, "predictions", NULL) > 10000);
    json_decref(json);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    struct command_result c = command_shell("rm -rf %s", folder);
    command_free(&c);
    return 0;
}

int main(void)
{
    realdata_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(untouched_frames_through_dpdk),
        cmocka_unit_test(the_real_group_can_be_configured),
        cmocka_unit_test(a_real_mid_session_join),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
