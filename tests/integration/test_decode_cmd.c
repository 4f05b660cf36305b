/* killline decode as its user sees it: output, exit status, messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "command.h"
#include "net/itch.h"
#include "net/moldudp64.h"
#include "net/packet.h"

static char path[] = "/tmp/test_decode_cmd.XXXXXX";
static struct command_result said; /* by the last command */

static int keep(struct command_result result)
{
    command_free(&said);
    said = result;
    return said.status;
}

/* Runs killline decode with arguments (a shell's words); returns the exit status. */
static int run(const char *arguments)
{
    return keep(command_run("decode %s", arguments));
}

static int run_on_file(const char *options)
{
    return keep(command_run("decode %s %s", path, options));
}

static void write_file(const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in: %s", part, text);
}

static void assert_prints(const char *part)
{
    assert_has(said.out, part);
}

/* On standard error. */
static void assert_reports(const char *part)
{
    assert_has(said.err, part);
}

static const char order_cancel[] =
    "\x00\x17X\x00\x05\x00\x00\x1f\x1a\xce\xe1\x50\x03\x00\x00\x00\x00\x00\x00\x00\x11\x00\x00\x00\x32";
static const char unknown[] = "\x00\x03z\x80\x01";

static void text_output(void **state)
{
    (void)state;
    write_file(order_cancel, sizeof(order_cancel) - 1);
    assert_int_equal(run_on_file(""), 0);
    assert_prints(
        "1 len=23 type=\"X\" name=\"Order Cancel\" locate=5 tracking=0 timestamp=09:30:00.000483331 "
        "order_reference_number=17 cancelled_shares=50\n");
    assert_reports(": 1 messages, 0 unknown, 0 longer, 0 short, 0 malformed\n");
}

static void prices_in_text_are_decimal(void **state)
{
    (void)state;
    struct itch_msg add = {.type = 'A'}, levels = {.type = 'V'};
    uint8_t bytes[2 * (2 + ITCH_MESSAGE_BYTES_MAX)] = {0, 36};
    add.add_order.price = 12305;
    memcpy(add.add_order.stock, "AB      ", 8);
    levels.mwcb_decline_level.level_1 = 258820000001;
    assert_int_equal(itch_encode(&add, bytes + 2, 36), 36);
    bytes[39] = 35;
    assert_int_equal(itch_encode(&levels, bytes + 40, 35), 35);
    write_file(bytes, 75);
    assert_int_equal(run_on_file(""), 0);
    assert_prints(" stock=\"AB\" price=1.2305\n");
    assert_prints(" level_1=2588.20000001 level_2=0.00000000 ");
}

static void unknown_longer_and_short_are_counted(void **state)
{
    (void)state;
    uint8_t bytes[128];
    size_t n = 0;
    memcpy(bytes + n, order_cancel, 25), n += 25;
    memcpy(bytes + n, unknown, 5), n += 5;
    memcpy(bytes + n, order_cancel, 25), bytes[n + 1] = 25, n += 25; /* two bytes more than the table */
    memcpy(bytes + n, "\xaa\xbb", 2), n += 2;
    memcpy(bytes + n, order_cancel, 24), bytes[n + 1] = 22, n += 24; /* one less */
    write_file(bytes, n);
    assert_int_equal(run_on_file("--json"), 0);
    assert_prints(
        "{\"number\":1,\"len\":23,\"type\":\"X\",\"name\":\"Order Cancel\",\"locate\":5,\"tracking\":0,"
        "\"timestamp\":34200000483331,\"order_reference_number\":17,\"cancelled_shares\":50}\n");
    assert_prints("{\"number\":2,\"len\":3,\"type\":\"z\",\"unknown\":true,\"hex\":\"7a8001\"}\n");
    assert_prints("{\"number\":3,\"len\":25,\"type\":\"X\",\"name\":\"Order Cancel\",\"locate\":5,");
    assert_prints(
        "{\"number\":4,\"len\":22,\"type\":\"X\",\"name\":\"Order Cancel\",\"short\":true,\"hex\":\"580005");
    assert_reports(": 4 messages, 1 unknown, 1 longer, 1 short, 0 malformed\n");
}

/* Any byte can stand in an alpha field; the output stays one line of ASCII JSON. */
static void every_byte_is_escaped(void **state)
{
    (void)state;
    struct itch_msg msg = {.type = 'R'};
    uint8_t bytes[2 + ITCH_MESSAGE_BYTES_MAX] = {0, 39};
    memcpy(msg.stock_directory.stock, "\"\\\n\x00\x7f\xe9  ", 8);
    memcpy(msg.stock_directory.issue_sub_type, " A", 2);
    msg.stock_directory.market_category = ' ';
    assert_int_equal(itch_encode(&msg, bytes + 2, 39), 39);
    write_file(bytes, 41);
    assert_int_equal(run_on_file("--json"), 0);
    assert_prints("\"stock\":\"\\\"\\\\\\u000a\\u0000\\u007f\\u00e9\",\"market_category\":\" \"");
    assert_prints("\"issue_sub_type\":\" A\"");
    for (const char *p = said.out; *p; p++)
        assert_true(*p == '\n' || (*p >= 0x20 && *p < 0x7f));
}

static void torn_file_fails(void **state)
{
    (void)state;
    char bytes[50];
    memcpy(bytes, order_cancel, 25);
    memcpy(bytes + 25, order_cancel, 25);
    write_file(bytes, 49);
    assert_int_equal(run_on_file("--json"), 1);
    assert_prints("{\"number\":1,"); /* what came before is there */
    assert_reports("offset 25: torn");
    assert_int_equal(run("/nonexistent"), 1);
    assert_reports("/nonexistent: No such file");
}

static void output_that_fails_is_told(void **state)
{
    (void)state;
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 20000; i++)
        fwrite(order_cancel, 1, 25, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run_on_file(">/dev/full"), 1);
    assert_reports("standard output: message");
    assert_reports("No space left on device");
    /* A reader that stops: the decoder's own exit status, not the pipe's. */
    assert_int_equal(
        keep(command_shell("{ '%s' decode %s; echo \"status $?\" >&2; } | head -1", KILLLINE, path)), 0);
    assert_prints("1 len=23");
    assert_reports("Broken pipe");
    assert_reports("status 1");
}

static void usage(void **state)
{
    (void)state;
    assert_int_equal(run("--help"), 0);
    assert_prints("usage: killline decode FILE [--json]");
    assert_int_equal(run(""), 2);
    assert_reports("usage:");
    assert_int_equal(run("one two"), 2);
    assert_int_equal(run("--jsn x"), 2);
}

/* Frames of a pcap as they stand: duplicates, damaged ones, strangers. */
static void pcap_frames(void **state)
{
    (void)state;
    static const uint32_t header[] = {0xa1b23c4d, 2 | 4 << 16, 0, 0, 262144, 1};
    uint8_t payload[64], frame[128];
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(header, sizeof(header), 1, file), 1);
    mold_write_header(payload, (const uint8_t *)"SESSION   ", 41, 2);
    memcpy(payload + 20, unknown, 5);
    memcpy(payload + 25, order_cancel, 25);
    for (int i = 0; i < 6; i++) {
        uint16_t n = 50;
        mold_write_header(payload, (const uint8_t *)"SESSION   ", 41, 2);
        if (i == 3) {
            mold_write_header(payload, (const uint8_t *)"SESSION   ", 43, 0);
            n = 20;
        } else if (i == 4) {
            n = 49; /* the count promises more */
        }
        size_t len = packet_build(frame, 1, 2, 0xe9360c6f, 26477, 0, payload, n);
        if (i == 2)
            frame[len - 1] ^= 1; /* damaged: still printed, but counted */
        if (i == 5)
            frame[12] = 0x86; /* not IPv4 */
        const uint32_t record[] = {1, 2, (uint32_t)len, (uint32_t)len};
        assert_int_equal(fwrite(record, sizeof(record), 1, file), 1);
        assert_int_equal(fwrite(frame, len, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run_on_file("--json"), 0);
    assert_prints("{\"number\":1,\"len\":3,\"frame\":1,\"session\":\"SESSION\",\"seq_no\":41,\"type\":\"z\","
                  "\"unknown\":true,");
    assert_prints(
        "{\"number\":2,\"len\":23,\"frame\":1,\"session\":\"SESSION\",\"seq_no\":42,\"type\":\"X\",");
    assert_prints(
        "{\"number\":4,\"len\":23,\"frame\":2,\"session\":\"SESSION\",\"seq_no\":42,\"type\":\"X\",");
    assert_prints("{\"number\":6,\"len\":23,\"frame\":3,");
    assert_prints("\"cancelled_shares\":51}");
    assert_reports(
        ": 6 messages, 3 unknown, 0 longer, 0 short, 1 malformed; 6 frames, 1 not UDP, 1 with a bad "
        "checksum\n");
    assert_int_equal(run_on_file(""), 0);
    assert_prints("2 len=23 frame=1 session=\"SESSION\" seq_no=42 type=\"X\" name=\"Order Cancel\"");

    file = fopen(path, "wb"); /* a capture of something else */
    assert_int_equal(fwrite(header, sizeof(header), 1, file), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(run_on_file(""), 1);
    assert_reports("no MoldUDP64 packet in 0 frames");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_output),
        cmocka_unit_test(prices_in_text_are_decimal),
        cmocka_unit_test(unknown_longer_and_short_are_counted),
        cmocka_unit_test(every_byte_is_escaped),
        cmocka_unit_test(torn_file_fails),
        cmocka_unit_test(output_that_fails_is_told),
        cmocka_unit_test(usage),
        cmocka_unit_test(pcap_frames),
    };
    int fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        return 1;
    }
    close(fd);
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return status;
}
