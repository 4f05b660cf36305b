/* The software device's latency model through XRT: what it adds is there, in real time, and nothing else is.
 * Its figures are large ones here, so that a busy machine does not blur them. */
#include "test_sim_device_rig.h"

static const uint32_t RINGS = KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST;

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* write 2 ms, read 3 ms, fetch 5 ms, a sync 7 ms and 1 ms per 10,000 bytes; kernel at 1 MHz. */
static void each_part_takes_its_time(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_image_header *image = rig_image(1);
    rig_open(&rig, 1);
    uint64_t begin = now_us();
    assert_int_equal(xrtBOSync(rig.image, XCL_BO_SYNC_BO_TO_DEVICE, 30000, 0), 0);
    assert_true(now_us() - begin >= 10000);
    begin = now_us();
    assert_int_equal(xrtBOSync(rig.request, XCL_BO_SYNC_BO_TO_DEVICE, 576, 0),
                     0); /* host memory: no transfer */
    assert_true(now_us() - begin < 7000);
    begin = now_us();
    rig_read(&rig, KL_MAP_CONTROL);
    assert_true(now_us() - begin >= 3000);
    begin = now_us();
    for (uint32_t i = 0; i < 100; i++)
        rig_write(&rig, KL_MAP_SLOT, i);
    assert_true(now_us() - begin < 100 * 2000); /* posted: nobody waits */
    rig_serve(&rig, RINGS);
    assert_int_equal(rig_load_by_bell(&rig, 0, image), KL_OK);
    rig_load_reference(&rig, 0, image);
    struct kl_request request;
    struct kl_result is;
    rig_request(&request, KL_OP_STEP, 0, 1);
    begin = now_us();
    assert_true(rig_ask(&rig, &request, RIG_DEADLINE_MS, &is));
    const uint64_t took = now_us() - begin;
    assert_int_equal(is.status, KL_OK);
    /* There, fetched, executed, back. */
    assert_true(took >= 2000 + 5000 + is.kernel_cycles + 2000);
    rig_close(&rig);
    free(image);
}

static int start(void **state)
{
    (void)state;
    setenv("KL_SIM_LATENCY",
           "write_ns=2000000,read_ns=3000000,fetch_ns=5000000,sync_ns=7000000,sync_mbps=10,kernel_mhz=1", 1);
    rig_start(1);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return unlink(getenv("KL_SIM_CONTROL"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_takes_its_time),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
