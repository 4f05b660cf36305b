/* Real DPDK on virtual devices: what goes in comes out, nothing leaks, bad files are refused with their name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/capture.h"
#include "net/packet.h"
#include "net/port.h"

static char folder[] = "/tmp/test_port_XXXXXX", path[64];
static char error[PORT_ERROR_CHARS];

static uint32_t make_frame(uint8_t *frame, uint32_t number, uint16_t payload_len)
{
    uint8_t payload[1400];
    for (uint16_t i = 0; i < payload_len; i++)
        payload[i] = (uint8_t)(number + i);
    return (uint32_t)packet_build(frame, 0x0a000001, 1, 0xefeeeeee, 2, 0, payload, payload_len);
}

static void ring_port_returns_what_was_fed(void **state)
{
    (void)state;
    struct port *port = port_open_ring(error);
    assert_non_null(port);
    assert_int_equal(port_receive(port), 0);
    uint8_t frame[1600], want[1600];
    uint32_t fed = 0, taken = 0;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 100; i++, fed++)
            assert_int_equal(port_feed(port, frame, make_frame(frame, fed, (uint16_t)(fed % 1300))), 0);
        unsigned n;
        while ((n = port_receive(port))) {
            assert_true(n <= PORT_BURST);
            for (unsigned i = 0; i < n; i++, taken++) {
                uint32_t len;
                const uint8_t *data = port_packet(port, i, &len);
                uint32_t want_len = make_frame(want, taken, (uint16_t)(taken % 1300));
                assert_int_equal(len, want_len);
                assert_memory_equal(data, want, len);
            }
            port_release(port);
        }
        assert_int_equal(taken, fed);
    }
    port_close(port);
}

static void full_ring_refuses_and_loses_nothing(void **state)
{
    (void)state;
    struct port *port = port_open_ring(error);
    assert_non_null(port);
    uint8_t frame[1600];
    uint32_t fed = 0, taken = 0;
    while (!port_feed(port, frame, make_frame(frame, fed, 50)))
        assert_true(++fed < 100000);
    unsigned n;
    while ((n = port_receive(port))) {
        taken += n;
        port_release(port);
    }
    assert_int_equal(taken, fed);
    assert_int_equal(port_feed(port, frame, 60), 0);
    port_close(port);
}

/* Larger than one packet buffer: comes back in one piece. */
static void large_frames_are_put_together(void **state)
{
    (void)state;
    struct port *port = port_open_ring(error);
    assert_non_null(port);
    const uint32_t sizes[] = {1, 2048, 2049, 9000, 65557};
    uint8_t *frame = malloc(65557);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (uint32_t i = 0; i < sizes[s]; i++)
            frame[i] = (uint8_t)(i * 31 + s);
        assert_int_equal(port_feed(port, frame, sizes[s]), 0);
        assert_int_equal(port_receive(port), 1);
        uint32_t len;
        const uint8_t *data = port_packet(port, 0, &len);
        assert_int_equal(len, sizes[s]);
        assert_memory_equal(data, frame, len);
        port_release(port);
    }
    free(frame);
    port_close(port);
}

static void sent_frames_are_read_back_through_net_pcap(void **state)
{
    (void)state;
    enum { N = 3000 }; /* more than one pool of send buffers */
    struct port *tx = port_open_tx("", path, error);
    assert_non_null(tx);
    for (uint32_t i = 0; i < N; i++) {
        port_tx_prepare(tx);
        uint8_t *frame = port_tx_buffer(tx);
        assert_non_null(frame);
        assert_ptr_equal(frame, port_tx_buffer(tx)); /* reserved until it is sent */
        assert_int_equal(port_send(tx, make_frame(frame, i, 100)), 0);
    }
    assert_non_null(port_tx_buffer(tx)); /* reserved, never sent: not in the file */
    port_close(tx);

    struct port *rx = port_open_pcap(path, error);
    assert_non_null(rx);
    uint32_t taken = 0;
    for (int idle = 0; idle < 100; idle++) {
        unsigned n = port_receive(rx);
        for (unsigned i = 0; i < n; i++, taken++) {
            uint32_t len;
            uint8_t want[1600];
            const uint8_t *data = port_packet(rx, i, &len);
            assert_int_equal(len, make_frame(want, taken, 100));
            assert_memory_equal(data, want, len);
        }
        port_release(rx);
    }
    assert_int_equal(taken, N);
    port_close(rx);
    unlink(path);
}

/* A capture can hold records longer than any frame; net_pcap then promises more than it copies. */
static void records_beyond_64_kib_are_cut(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {65535, 65536, 65600, 200000, 262144, 60};
    const uint32_t magic_to_link[] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, 262144, 1};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    uint8_t *bytes = malloc(262144);
    FILE *f = fopen(path, "wb");
    assert_true(bytes && f);
    for (uint32_t i = 0; i < 262144; i++)
        bytes[i] = (uint8_t)(i * 31 >> 3);
    fwrite(magic_to_link, sizeof(magic_to_link), 1, f);
    for (int i = 0; i < N; i++) {
        const uint32_t record[] = {1, 0, sizes[i], sizes[i]};
        fwrite(record, sizeof(record), 1, f);
        fwrite(bytes, sizes[i], 1, f);
    }
    assert_int_equal(fclose(f), 0);
    struct port *rx = port_open_pcap(path, error);
    assert_non_null(rx);
    int taken = 0;
    for (int idle = 0; idle < 100; idle++) {
        unsigned n = port_receive(rx);
        for (unsigned i = 0; i < n; i++, taken++) {
            uint32_t len;
            assert_true(taken < N);
            const uint8_t *data = port_packet(rx, i, &len);
            assert_true(len <= sizes[taken] && (sizes[taken] > 65535 || len == sizes[taken]));
            assert_memory_equal(data, bytes, len);
        }
        port_release(rx);
    }
    assert_int_equal(taken, N); /* each counts: the frames' stamps are found by number */
    port_close(rx);
    unlink(path);
    free(bytes);
}

static void null_device_takes_everything(void **state)
{
    (void)state;
    struct port *tx = port_open_tx("net_null0", "", error);
    assert_non_null(tx);
    for (uint32_t i = 0; i < 5000; i++) {
        uint8_t *frame = port_tx_buffer(tx);
        assert_non_null(frame);
        assert_int_equal(port_send(tx, make_frame(frame, i, 100)), 0);
    }
    port_close(tx);
}

static void bad_files_and_devices_are_named(void **state)
{
    (void)state;
    assert_null(port_open_pcap("/nonexistent/x.pcap", error));
    assert_non_null(strstr(error, "/nonexistent/x.pcap"));
    assert_null(port_open_pcap("a,b.pcap", error));
    assert_non_null(strstr(error, "a,b.pcap"));
    FILE *f = fopen(path, "w");
    fputs("this is no capture", f);
    fclose(f);
    assert_null(port_open_pcap(path, error));
    assert_non_null(strstr(error, path));
    unlink(path);
    assert_null(port_open_tx("net_nosuch0", "", error));
    assert_non_null(strstr(error, "net_nosuch0"));
    assert_null(port_open_tx("", "/nonexistent/out.pcap", error));
    assert_non_null(strstr(error, "/nonexistent/out.pcap"));
}

static int start_eal(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/x.pcap", folder);
    if (port_init(error)) {
        print_error("%s\n", error);
        return -1;
    }
    return port_init(error); /* a second time is nothing */
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_port_returns_what_was_fed),
        cmocka_unit_test(full_ring_refuses_and_loses_nothing),
        cmocka_unit_test(large_frames_are_put_together),
        cmocka_unit_test(sent_frames_are_read_back_through_net_pcap),
        cmocka_unit_test(records_beyond_64_kib_are_cut),
        cmocka_unit_test(null_device_takes_everything),
        cmocka_unit_test(bad_files_and_devices_are_named),
    };
    return cmocka_run_group_tests(tests, start_eal, remove_folder);
}
