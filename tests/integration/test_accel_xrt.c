/* The XRT backend on the software device, through the real XRT library, against the kernel's native build
 * behind the same interface: random sequences of every call, whole results compared.
 *
 * What may differ: wait_cycles with several requests outstanding, since the native build carries a request
 * out when it is polled, a device when it comes; and, where the device runs beside us (thread, child),
 * whether a prepare has been done yet, which kernel_cycles and prepare_cycles show. So budgets here are far
 * too small, or ample, but where waiting and preparing are known. */
#include "test_accel_xrt_rig.h"

enum { N_STREAM = 4, N_IMAGE = 3, N_CALL = 5000 };

static struct tb_model model[N_IMAGE];
static struct kl_image_header *image[N_IMAGE];
static struct accel *csim, *xrt;
static uint64_t seed;
static int is_loading;
static uint32_t images_in[KL_N_SLOT];
static struct kl_state saved[8];
static uint32_t n_outstanding, n_since_idle;
static uint32_t n_strict, n_late, n_ok, n_refused, n_full;
static int is_lone[KL_QUEUE_DEPTH]; /* of the outstanding requests: none was before it */
static uint32_t n_submitted, n_answered;

static uint32_t below(uint32_t n)
{
    return tb_random_below(&seed, n);
}

static int set_up(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (uint32_t i = 0; i < N_IMAGE; i++) {
        rig_model(&model[i], (uint32_t[]){40, 1, 23}[i], (uint32_t[]){33, 16, 8}[i], 1 + i, &random);
        image[i] = tb_model_image(&model[i]);
        if (!image[i])
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_IMAGE; i++)
        free(image[i]);
    return 0;
}

/* Mostly a proper step; now and then something that is refused. */
static struct kl_request random_request(void)
{
    const uint32_t slot = below(KL_N_SLOT);
    /* seq_no repeat, and jump: they are the caller's affair. */
    struct kl_request request =
        rig_request(1 + below(3), slot, below(N_STREAM), below(3) ? n_submitted : below(4),
                    &model[images_in[slot]], &seed);
    if (below(2))
        request.op = KL_OP_STEP;
    /* Inline, a load goes on - and owed prepares with it - whenever a register is read. */
    if (below(2) && !(rig_is_inline() && is_loading))
        request.flags = KL_REQUEST_PREPARE;
    switch (below(40)) {
    case 0:
        request.abi_version--;
        break;
    case 1:
        request.op = (uint16_t)(below(2) ? 0 : 4 + below(9));
        break;
    case 2:
        request.slot = (uint16_t)(KL_N_SLOT + below(9));
        break;
    case 3:
        request.stream = KL_N_STREAM_MAX + below(9);
        break;
    case 4:
        request.flags = (uint16_t)(1u << below(16));
        break;
    case 5: /* off the grid, infinite, or too large */
        request.x[below(model[images_in[slot]].n_in)] =
            (uint16_t[]){0x0fff, 0x7c00, 0xfe00, 0x4c00, 0x0001}[below(5)];
        break;
    case 6:
        request.budget_cycles = 1;
        break;
    case 7:
        request.budget_cycles = rig_is_inline() && n_outstanding == 0 ? 1 + below(600) : 1u << 30;
        break;
    default:
        break;
    }
    return request;
}

/* What the other side may have done at another time. */
static void take_over(struct kl_result *got, const struct kl_result *expected, int lone)
{
    assert_int_equal(got->check, kl_result_check(got));
    const struct kl_image_header *header = got->slot < KL_N_SLOT ? image[images_in[got->slot]] : NULL;
    const struct kl_build *build = accel_build_named("small");
    if (!rig_is_inline() && got->status == KL_OK) {
        const uint32_t step = build->step_cycles(header, 1, 0), prepare = build->prepare_cycles(header, 1);
        assert_in_range(got->kernel_cycles, 1, (step > prepare ? step : prepare) + build->reset_cycles());
        assert_true(got->prepare_cycles <= prepare);
        got->kernel_cycles = expected->kernel_cycles;
        got->prepare_cycles = expected->prepare_cycles;
    }
    if ((!rig_is_inline() || !lone) && got->status == KL_OK)
        got->wait_cycles = expected->wait_cycles;
    else
        n_strict++;
    got->check = kl_result_check(got);
}

static void poll_both(void)
{
    struct kl_result expected, got;
    memset(&expected, 0, sizeof expected);
    memset(&got, 0xff, sizeof got);
    const int n = csim->ops->poll(csim, &expected);
    assert_int_equal(rig_poll(xrt, &got), n);
    assert_int_equal(n, n_outstanding ? 1 : -1);
    if (n == 1) {
        const uint32_t at = n_answered++ % KL_QUEUE_DEPTH;
        take_over(&got, &expected, is_lone[at]);
        rig_assert_same(&got, &expected);
        n_outstanding--;
        n_late += (expected.flags & KL_RESULT_LATE) != 0;
        n_ok += expected.status == KL_OK;
        n_refused += expected.status != KL_OK;
    } else {
        n_since_idle = 0;
    }
}

/* To where both have nothing to do but what they owe, and have done that. */
static void idle_both(void)
{
    while (n_outstanding)
        poll_both();
    poll_both();
}

static void submit_both(void)
{
    /* With more since an idle moment the device is rung for room, and inline that ring is when it prepares.
     */
    if (rig_is_inline() && n_since_idle == KL_QUEUE_DEPTH && n_outstanding < KL_QUEUE_DEPTH)
        idle_both();
    const struct kl_request request = random_request();
    const int lone = n_outstanding == 0;
    const int expected = csim->ops->submit(csim, &request);
    assert_int_equal(xrt->ops->submit(xrt, &request), expected);
    assert_int_equal(expected, n_outstanding == KL_QUEUE_DEPTH ? -1 : 0);
    n_full += expected != 0;
    if (expected)
        return;
    is_lone[n_submitted++ % KL_QUEUE_DEPTH] = lone;
    n_outstanding++;
    n_since_idle++;
}

static void begin_load_both(void)
{
    idle_both();
    const uint32_t slot = below(KL_N_SLOT + 1), which = below(N_IMAGE);
    const uint32_t expected = csim->ops->load_begin(csim, slot, image[which], image[which]->size_bytes);
    assert_int_equal(xrt->ops->load_begin(xrt, slot, image[which], image[which]->size_bytes), expected);
    assert_int_equal(expected, slot >= KL_N_SLOT ? KL_E_SLOT : is_loading ? KL_E_BUSY : KL_OK);
    if (expected == KL_OK) {
        is_loading = 1;
        images_in[slot] = which;
    }
}

/* How many pieces a load takes is a backend's own: the native one waits for the other. None may be
 * outstanding to the slot when it ends. */
static void advance_load_both(void)
{
    idle_both();
    const uint32_t got = below(2) ? xrt->ops->load_advance(xrt) : rig_load_end(xrt);
    if (got == KL_E_BUSY)
        return;
    assert_int_equal(rig_load_end(csim), got);
    assert_int_equal(got, is_loading ? KL_OK : KL_E_EMPTY);
    is_loading = 0;
}

static void save_both(void)
{
    struct kl_state expected, got;
    const uint32_t slot = below(KL_N_SLOT + 1), stream = below(8) ? below(N_STREAM) : KL_N_STREAM_MAX;
    idle_both();
    memset(&expected, 0, sizeof expected);
    memset(&got, 0, sizeof got);
    const uint32_t status = csim->ops->save(csim, slot, stream, &expected);
    assert_int_equal(xrt->ops->save(xrt, slot, stream, &got), status);
    assert_memory_equal(&got, &expected, sizeof got);
    if (status == KL_OK)
        saved[below(8)] = got; /* the device's, for both: states travel */
}

static void restore_both(void)
{
    struct kl_state given = saved[below(8)];
    const uint32_t slot = below(KL_N_SLOT + 1), stream = below(8) ? below(N_STREAM) : KL_N_STREAM_MAX;
    idle_both();
    if (!below(8))
        ((uint8_t *)&given)[below(sizeof given)] ^= (uint8_t)(1u << below(8));
    const uint32_t expected = csim->ops->restore(csim, slot, stream, &given);
    assert_int_equal(xrt->ops->restore(xrt, slot, stream, &given), expected);
}

static void info_both(void)
{
    struct kl_info expected, got;
    idle_both();
    if (is_loading)
        return;
    csim->ops->info(csim, &expected);
    xrt->ops->info(xrt, &got);
    expected.cycles = got.cycles = 0; /* rounds count */
    assert_memory_equal(&got, &expected, sizeof got);
}

static void same_as_native(enum accel_xrt_mode mode, const char *xclbin)
{
    struct kl_result unheard;
    seed = 20260101 + mode;
    is_loading = 0;
    n_outstanding = n_since_idle = n_submitted = n_answered = 0;
    n_strict = n_late = n_ok = n_refused = n_full = 0;
    memset(saved, 0, sizeof saved);
    csim = accel_csim_open(accel_build_named("small"), 1);
    xrt = rig_open(mode, xclbin);
    assert_non_null(csim);
    assert_int_equal(xrt->ops->poll(xrt, &unheard), -1);
    info_both();
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        images_in[slot] = slot;
        assert_int_equal(rig_load(csim, slot, image[slot]), KL_OK);
        assert_int_equal(rig_load(xrt, slot, image[slot]), KL_OK);
    }
    info_both();
    for (uint32_t call = 0; call < N_CALL; call++) {
        const uint32_t what = below(100);
        if (what < 44)
            submit_both();
        else if (what < 90)
            poll_both();
        else if (what < 91)
            begin_load_both();
        else if (what < 95)
            advance_load_both();
        else if (what < 97)
            save_both();
        else if (what < 99)
            restore_both();
        else
            info_both();
    }
    idle_both();
    print_message("%s, %s: %u answers with all their cycles, %u good, %u late, %u refused, %u times full\n",
                  RIG_EXEC, accel_xrt_mode_name(mode), n_strict, n_ok, n_late, n_refused, n_full);
    assert_true(n_late > 10 && n_ok > 500 && n_refused > 50 && (n_full > 0 || rig_is_inline()));
    assert_true(n_strict > 100);
    rig_close(csim);
    rig_close(xrt);
}

static void doorbell_is_native(void **state)
{
    (void)state;
    same_as_native(ACCEL_XRT_DOORBELL, RIG_SMALL);
}

static void doorbell_by_registers_is_native(void **state)
{
    (void)state;
    same_as_native(ACCEL_XRT_DOORBELL, RIG_NOHOST);
}

static void run_is_native(void **state)
{
    (void)state;
    same_as_native(ACCEL_XRT_RUN, RIG_SMALL);
}

static void run_by_dma_is_native(void **state)
{
    (void)state;
    same_as_native(ACCEL_XRT_RUN, RIG_NOHOST);
}

/* A burst that fills the queue over and over, answers taken late: nothing is lost at the rings' ends. */
static void full_queue(enum accel_xrt_mode mode, const char *xclbin)
{
    struct accel *accel = rig_open(mode, xclbin);
    struct kl_result result;
    uint32_t n_sent = 0, n_seen = 0;
    seed = 3;
    assert_int_equal(rig_load(accel, 1, image[0]), KL_OK);
    while (n_seen < 200) {
        struct kl_request request = rig_request(KL_OP_STEP, 1, n_sent % N_STREAM, n_sent, &model[0], &seed);
        while (accel->ops->submit(accel, &request) == 0)
            request.seq_no = ++n_sent;
        assert_int_equal(n_sent - n_seen, KL_QUEUE_DEPTH);
        for (uint32_t n = 1 + below(KL_QUEUE_DEPTH); n > 0; n--) {
            assert_int_equal(rig_poll(accel, &result), 1);
            assert_int_equal(result.seq_no, n_seen++);
            assert_int_equal(result.status, KL_OK);
        }
    }
    rig_close(accel); /* with requests outstanding */
}

static void the_queue_fills(void **state)
{
    (void)state;
    for (enum accel_xrt_mode mode = ACCEL_XRT_DOORBELL; mode <= ACCEL_XRT_RUN; mode++) {
        full_queue(mode, RIG_SMALL);
        full_queue(mode, RIG_NOHOST);
    }
}

/* Images that are none, cut, too large, or damaged on their way: the same verdicts, and an empty slot. */
static void bad_images_are_refused(enum accel_xrt_mode mode)
{
    const uint32_t size_bytes = image[0]->size_bytes;
    uint64_t random = 9;
    static struct tb_model too_large; /* small takes 128 hidden */
    rig_model(&too_large, 256, 256, 3, &random);
    struct kl_image_header *large = tb_model_image(&too_large);
    uint64_t *bytes = malloc(size_bytes);
    csim = accel_csim_open(accel_build_named("small"), 1);
    xrt = rig_open(mode, RIG_SMALL);
    seed = 5;
    for (uint32_t i = 0; i < 30; i++) {
        memcpy(bytes, image[0], size_bytes);
        size_t given = size_bytes;
        const void *from = bytes;
        if (i == 0)
            from = image[0];
        else if (i == 1) /* larger than any that the build takes */
            from = large, given = large->size_bytes;
        else if (i == 2)
            from = large, given = large->size_bytes - 8;
        else if (i == 3)
            given = 8;
        else if (i % 2)
            given = 64 + 8 * below(size_bytes / 8 - 8);
        else
            ((uint8_t *)bytes)[below(size_bytes)] ^= (uint8_t)(1u << below(8));
        struct accel *const both[] = {csim, xrt};
        uint32_t status[2], after[2];
        for (uint32_t k = 0; k < 2; k++) {
            struct kl_request request = rig_request(KL_OP_STEP, 0, 0, i, &model[0], &seed);
            memset(request.x, 0, sizeof request.x);
            assert_int_equal(both[k]->ops->load_begin(both[k], 0, from, given), KL_OK);
            status[k] = rig_load_end(both[k]);
            after[k] = rig_answer(both[k], &request).status;
        }
        assert_int_equal(status[1], status[0]);
        assert_int_equal(after[1], after[0]);
        assert_int_equal(after[0], i ? KL_E_EMPTY : KL_OK);
        assert_true(i == 0 || status[0] != KL_OK);
    }
    assert_int_equal(rig_load(xrt, 0, image[0]), KL_OK);
    rig_close(csim);
    rig_close(xrt);
    free(bytes);
    free(large);
}

static void bad_images(void **state)
{
    (void)state;
    bad_images_are_refused(ACCEL_XRT_DOORBELL);
    bad_images_are_refused(ACCEL_XRT_RUN);
}

/* Two units of a device, each with its own model and streams, driven in turn; and closed in the other order.
 */
static void two_units(void **state)
{
    (void)state;
    for (enum accel_xrt_mode mode = ACCEL_XRT_DOORBELL; mode <= ACCEL_XRT_RUN; mode++) {
        struct accel *unit[2], *reference[2];
        seed = 11;
        for (uint32_t u = 0; u < 2; u++) {
            struct accel_xrt_options options = rig_options(mode, RIG_SMALL_2);
            char error[ACCEL_ERROR_CHARS];
            options.unit = u;
            unit[u] = accel_xrt_open(&options, error);
            if (!unit[u])
                fail_msg("%s", error);
            reference[u] = accel_csim_open(options.build, 1);
            assert_int_equal(rig_load(unit[u], 0, image[u]), KL_OK);
            assert_int_equal(rig_load(reference[u], 0, image[u]), KL_OK);
        }
        for (uint32_t i = 0; i < 100; i++) {
            struct kl_request request[2];
            for (uint32_t u = 0; u < 2; u++) {
                request[u] = rig_request(KL_OP_STEP, 0, below(N_STREAM), i, &model[u], &seed);
                assert_int_equal(unit[u]->ops->submit(unit[u], &request[u]), 0);
            }
            for (uint32_t u = 0; u < 2; u++) {
                struct kl_result got, expected = rig_answer(reference[u], &request[u]);
                assert_int_equal(rig_poll(unit[u], &got), 1);
                got.wait_cycles = expected.wait_cycles;
                got.check = kl_result_check(&got);
                rig_assert_same(&got, &expected);
            }
        }
        for (uint32_t u = 0; u < 2; u++) {
            rig_close(unit[u]);
            rig_close(reference[u]);
        }
    }
}

static void describes(void **state)
{
    (void)state;
    struct accel_xrt_info info;
    struct accel *accel = rig_open(ACCEL_XRT_DOORBELL, RIG_SMALL);
    accel_xrt_describe(accel, &info);
    assert_true(info.software_device && info.host_memory && info.abi_version == KL_ABI_VERSION);
    assert_string_equal(info.device, "0");
    assert_int_equal(strlen(info.uuid), 36);
    assert_true(info.name[0] && info.mode == ACCEL_XRT_DOORBELL && info.unit == 0);
    rig_close(accel);
    accel = rig_open(ACCEL_XRT_RUN, RIG_NOHOST);
    accel_xrt_describe(accel, &info);
    assert_true(info.software_device && !info.host_memory && info.mode == ACCEL_XRT_RUN);
    rig_close(accel);
}

/* argv[1]: a pattern of test names, for the one that is looked at. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    rig_environment();
    tb_oracle_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(describes),
        cmocka_unit_test(doorbell_is_native),
        cmocka_unit_test(doorbell_by_registers_is_native),
        cmocka_unit_test(run_is_native),
        cmocka_unit_test(run_by_dma_is_native),
        cmocka_unit_test(the_queue_fills),
        cmocka_unit_test(bad_images),
        cmocka_unit_test(two_units),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
