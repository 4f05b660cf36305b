/* The software device as a host sees it through XRT: devices, buffers, registers, resets, xclbins. Run by
 * CTest in every mode: XCL_EMULATION_MODE x KL_SIM_EXEC. */
#include "test_sim_device_rig.h"

#include <dlfcn.h>

/* ---- devices ---- */

static void opens(void **state)
{
    (void)state;
    xrtDeviceHandle first = xrtDeviceOpen(0), second = xrtDeviceOpen(1), again = xrtDeviceOpen(0);
    assert_true(first && second && again);
    assert_null(xrtDeviceOpen(2));
    xrtDeviceHandle named = xrtDeviceOpenByBDF("0000:00:01.0");
    assert_non_null(named);
    assert_null(xrtDeviceOpenByBDF("0000:00:02.0"));
    assert_null(xrtDeviceOpenByBDF("0000:00:01.1"));
    assert_null(xrtDeviceOpenByBDF("elsewhere"));
    const char *version = (const char *)dlsym(RTLD_DEFAULT, "kl_sim_device_version");
    assert_non_null(version);
    assert_memory_equal(version, "killline-sim ", 13);
    xrtDeviceClose(first);
    xrtDeviceClose(second);
    xrtDeviceClose(again);
    xrtDeviceClose(named);
}

static void contexts(void **state)
{
    (void)state;
    struct rig a, b;
    rig_open_device(&a, 0, "kl_small_2");
    rig_open_device(&b, 0, "kl_small_2");
    xrtKernelHandle one = xrtPLKernelOpenExclusive(a.device, a.uuid, rig_unit_name(0));
    assert_non_null(one);
    assert_null(xrtPLKernelOpenExclusive(b.device, b.uuid, rig_unit_name(0)));
    assert_null(xrtPLKernelOpen(b.device, b.uuid, rig_unit_name(0)));
    xrtKernelHandle other = xrtPLKernelOpen(b.device, b.uuid, rig_unit_name(1));
    assert_non_null(other);
    xrtKernelHandle shared = xrtPLKernelOpen(a.device, a.uuid, rig_unit_name(1));
    assert_non_null(shared);
    assert_null(xrtPLKernelOpenExclusive(b.device, b.uuid, rig_unit_name(2))); /* there is no third */
    /* Shared units have no registers. */
    uint32_t value;
    assert_int_not_equal(xrtKernelReadRegister(shared, KL_MAP_COMMAND, &value), 0);
    /* Another xclbin does not push a used one out; the same is no news. */
    assert_int_not_equal(xrtDeviceLoadXclbinFile(b.device, rig_xclbin("kl_small")), 0);
    assert_int_equal(xrtDeviceLoadXclbinFile(b.device, rig_xclbin("kl_small_2")), 0);
    xrtKernelClose(one);
    xrtKernelClose(other);
    xrtKernelClose(shared);
    assert_int_equal(xrtDeviceLoadXclbinFile(b.device, rig_xclbin("kl_small")), 0);
    xrtDeviceClose(a.device);
    xrtDeviceClose(b.device);
}

/* ---- buffers ---- */

static void a_forgotten_sync_shows(void **state)
{
    (void)state;
    struct rig rig;
    rig_open_device(&rig, 0, "kl_small");
    xrtBufferHandle buffer = xrtBOAlloc(rig.device, 8192, XRT_BO_FLAGS_NONE, 0);
    uint8_t *at = (uint8_t *)xrtBOMap(buffer);
    assert_non_null(at);
    memset(at, 1, 8192);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, 4096, 0), 0);
    memset(at, 2, 8192);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_FROM_DEVICE, 8192, 0), 0);
    assert_int_equal(at[0], 1);
    assert_int_equal(at[4095], 1);
    assert_int_equal(at[4096], 0); /* never sent */
    memset(at, 3, 8192);
    at[5000] = 9;
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, 100, 5000), 0);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_FROM_DEVICE, 8192, 0), 0);
    assert_int_equal(at[4999], 0);
    assert_int_equal(at[5000], 9);
    assert_int_equal(at[5099], 3);
    assert_int_equal(at[5100], 0);
    assert_int_not_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, 8193, 0), 0);
    assert_int_not_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, 1, 8192), 0);
    assert_int_not_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_TO_DEVICE, SIZE_MAX, 1), 0);
    xrtBOFree(buffer);
    /* The host's own memory is one copy. */
    buffer = xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_HOST_ONLY, 1);
    at = (uint8_t *)xrtBOMap(buffer);
    assert_non_null(at);
    memset(at, 7, 4096);
    assert_int_equal(xrtBOSync(buffer, XCL_BO_SYNC_BO_FROM_DEVICE, 4096, 0), 0);
    assert_int_equal(at[4095], 7);
    xrtBOFree(buffer);
    xrtDeviceClose(rig.device);
}

static void banks(void **state)
{
    (void)state;
    struct rig rig;
    rig_open_device(&rig, 0, "kl_small");
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_HOST_ONLY, 0));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_NONE, 1));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_NONE, 2));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_P2P, 0));
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_SVM, 0));
    xrtBufferHandle device_only = xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_DEV_ONLY, 0);
    assert_non_null(device_only);
    assert_null(xrtBOMap(device_only));
    assert_int_equal(xrtBOAddress(device_only), 0x4000000000);
    xrtBufferHandle host = xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_HOST_ONLY, 1);
    assert_int_equal(xrtBOAddress(host), 0x2000000000);
    xrtBOFree(device_only);
    xrtBOFree(host);
    xrtDeviceClose(rig.device);
}

/* A bank of 64 MiB. */
static void memory_runs_out_and_comes_back(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    struct rig rig;
    rig_open_device(&rig, 0, "kl_small");
    xrtBufferHandle pieces[64];
    uint64_t addresses[64];
    for (uint32_t i = 0; i < 64; i++) {
        pieces[i] = xrtBOAlloc(rig.device, MIB, XRT_BO_FLAGS_DEV_ONLY, 0);
        assert_non_null(pieces[i]);
        addresses[i] = xrtBOAddress(pieces[i]);
        for (uint32_t j = 0; j < i; j++)
            assert_true(addresses[j] + MIB <= addresses[i] || addresses[i] + MIB <= addresses[j]);
    }
    assert_null(xrtBOAlloc(rig.device, 4096, XRT_BO_FLAGS_DEV_ONLY, 0));
    /* Two holes of one are no hole of two; neighbours are. */
    xrtBOFree(pieces[10]);
    xrtBOFree(pieces[12]);
    assert_null(xrtBOAlloc(rig.device, 2 * MIB, XRT_BO_FLAGS_DEV_ONLY, 0));
    xrtBOFree(pieces[11]);
    xrtBufferHandle large = xrtBOAlloc(rig.device, 3 * MIB, XRT_BO_FLAGS_DEV_ONLY, 0);
    assert_non_null(large);
    assert_int_equal(xrtBOAddress(large), addresses[10]);
    xrtBOFree(large);
    for (uint32_t i = 0; i < 64; i++) {
        if (i < 10 || i > 12)
            xrtBOFree(pieces[i]);
    }
    large = xrtBOAlloc(rig.device, 64 * (size_t)MIB, XRT_BO_FLAGS_DEV_ONLY, 0);
    assert_non_null(large);
    xrtBOFree(large);
    assert_null(xrtBOAlloc(rig.device, 64 * (size_t)MIB + 1, XRT_BO_FLAGS_DEV_ONLY, 0));
    /* A closed device's buffers are gone. */
    assert_non_null(xrtBOAlloc(rig.device, 60 * (size_t)MIB, XRT_BO_FLAGS_DEV_ONLY, 0));
    xrtDeviceClose(rig.device);
    rig_open_device(&rig, 0, "kl_small");
    large = xrtBOAlloc(rig.device, 64 * (size_t)MIB, XRT_BO_FLAGS_DEV_ONLY, 0);
    assert_non_null(large);
    xrtBOFree(large);
    xrtDeviceClose(rig.device);
}

/* ---- registers ---- */

static void registers(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 1);
    uint32_t value = 1;
    assert_int_not_equal(xrtKernelReadRegister(rig.kernel, KL_MAP_COMMAND + 1, &value), 0);
    assert_int_not_equal(xrtKernelWriteRegister(rig.kernel, KL_MAP_COMMAND + 2, 1), 0);
    assert_int_not_equal(xrtKernelReadRegister(rig.kernel, KL_MAP_BYTES, &value), 0);
    assert_int_not_equal(xrtKernelWriteRegister(rig.kernel, KL_MAP_BYTES, 1), 0);
    assert_int_not_equal(xrtKernelWriteRegister(rig.kernel, UINT32_MAX - 3, 1), 0);
    /* The kernel's words and nobody's stay as they are. */
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_INFO)), KL_ABI_VERSION);
    rig_write(&rig, RIG_REG(KL_REG_INFO), 77);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_INFO)), KL_ABI_VERSION);
    rig_write(&rig, RIG_REG(KL_REG_RESULTS), 5);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_RESULTS)), 0);
    rig_write(&rig, KL_MAP_REG - 4, 5);
    assert_int_equal(rig_read(&rig, KL_MAP_REG - 4), 0);
    rig_write(&rig, KL_MAP_BYTES - 4, 5);
    assert_int_equal(rig_read(&rig, KL_MAP_BYTES - 4), 0);
    /* The host's keep what was written. */
    rig_write(&rig, KL_MAP_SLOT, 1);
    assert_int_equal(rig_read(&rig, KL_MAP_SLOT), 1);
    rig_write(&rig, RIG_REG(KL_REG_REQUESTS + 3), 9);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_REQUESTS + 3)), 9);
    rig_close(&rig);
}

/* ---- resets ---- */

static uint32_t status_of_a_step(struct rig *rig)
{
    struct kl_request request;
    struct kl_result is;
    rig_request(&request, KL_OP_STEP, 0, 1 + rig->tail);
    assert_true(rig_ask(rig, &request, RIG_DEADLINE_MS, &is));
    return is.status;
}

/* The last close resets a card, one of two does not; loading again with no unit open does. */
static void closing_and_loading_again_reset(void **state)
{
    (void)state;
    struct rig rig;
    struct kl_image_header *image = rig_image(6);
    const uint32_t config = KL_CONFIG_REQUEST_FROM_HOST | KL_CONFIG_RESULT_TO_HOST;
    const uint64_t resets = control->devices[0].resets;
    xrtDeviceHandle other = xrtDeviceOpen(0);
    rig_open(&rig, 1);
    assert_int_equal(control->devices[0].resets, resets + 1);
    rig_serve(&rig, config);
    assert_int_equal(rig_load_by_bell(&rig, 0, image), KL_OK);
    assert_int_equal(status_of_a_step(&rig), KL_OK);
    assert_int_equal(xrtDeviceLoadXclbinFile(other, rig_xclbin("kl_small")), 0);
    assert_int_equal(status_of_a_step(&rig), KL_OK);
    assert_int_equal(control->devices[0].resets, resets + 1);
    rig_close(&rig);
    rig_open(&rig, 1);
    assert_int_equal(control->devices[0].resets, resets + 2); /* loaded again, no unit open */
    rig_serve(&rig, config);
    assert_int_equal(status_of_a_step(&rig), KL_E_EMPTY);
    rig_close(&rig);
    xrtDeviceClose(other);
    rig_open(&rig, 1);
    assert_int_equal(rig_read(&rig, KL_MAP_CONTROL), KL_CONTROL_IDLE);
    assert_int_equal(rig_read(&rig, RIG_REG(KL_REG_REQUEST_TAIL)), 0);
    rig_close(&rig);
    free(image);
}

/* ---- xclbins ---- */

static uint8_t *read_xclbin(const char *name, size_t *size)
{
    FILE *file = fopen(rig_xclbin(name), "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = (uint8_t *)malloc(*size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static struct axlf_section_header *section(struct axlf *axlf, enum axlf_section_kind kind)
{
    for (uint32_t i = 0; i < axlf->m_header.m_numSections; i++) {
        if (axlf->m_sections[i].m_sectionKind == (uint32_t)kind)
            return &axlf->m_sections[i];
    }
    fail();
    return NULL;
}

static void malformed_xclbins_are_refused(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = read_xclbin("kl_small", &size);
    struct axlf *axlf = (struct axlf *)(void *)bytes;
    xrtDeviceHandle device = xrtDeviceOpen(0);
    assert_non_null(device);
    struct axlf_section_header *stream = section(axlf, BITSTREAM);
    struct xclbin_library *library = (struct xclbin_library *)(void *)(bytes + stream->m_sectionOffset);
    library->abi_version++;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    library->abi_version--;
    library->symbol[9] = 'z';
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    library->symbol[9] = 's';
    library->size_bytes++;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    library->size_bytes--;
    /* Not an ELF file any more. */
    ((uint8_t *)library)[sizeof *library] ^= 1;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    ((uint8_t *)library)[sizeof *library] ^= 1;
    stream->m_sectionKind = BITSTREAM_PARTIAL_PDI;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    stream->m_sectionKind = BITSTREAM;
    /* No sections but those beside it. (An offset beyond the end XRT follows itself: a host checks that
     * first, host/xclbin.h.) */
    struct axlf_section_header *connectivity = section(axlf, CONNECTIVITY);
    connectivity->m_sectionKind = DEBUG_DATA;
    assert_int_not_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    connectivity->m_sectionKind = CONNECTIVITY;
    assert_int_equal(xrtDeviceLoadXclbin(device, axlf), 0);
    xrtDeviceClose(device);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens),
        cmocka_unit_test(contexts),
        cmocka_unit_test(a_forgotten_sync_shows),
        cmocka_unit_test(banks),
        cmocka_unit_test(memory_runs_out_and_comes_back),
        cmocka_unit_test(registers),
        cmocka_unit_test(closing_and_loading_again_reset),
        cmocka_unit_test(malformed_xclbins_are_refused),
    };
    return cmocka_run_group_tests(tests, rig_two_devices, rig_no_devices);
}
