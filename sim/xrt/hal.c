/* The driver's entry points: what XRT's prebuilt glue objects call. Signatures: xrt.h,
 * experimental/xrt-next.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xrt.h>
/* behind xrt.h */
#include <experimental/xrt-next.h>

#include "device.h"

/* xrt.h declares these two without a parameter list. */
unsigned int xclProbe(void);
unsigned int xclVersion(void);

__attribute__((visibility("default"))) const char kl_sim_device_version[] = "killline-sim " KL_SIM_VERSION;

/* ---- devices ---- */

unsigned int xclProbe(void)
{
    return device_count();
}

unsigned int xclVersion(void)
{
    return 2;
}

xclDeviceHandle xclOpen(unsigned int index, const char *unused, enum xclVerbosityLevel level)
{
    (void)unused;
    (void)level;
    return device_open(index);
}

void xclClose(xclDeviceHandle handle)
{
    struct session *session = device_session(handle);
    if (session)
        device_close(session);
}

int xclGetDeviceInfo2(xclDeviceHandle handle, struct xclDeviceInfo2 *info)
{
    const struct session *session = device_session(handle);
    if (!session)
        return -EINVAL;
    memset(info, 0, sizeof *info);
    info->mMagic = 0x586C0C6C;
    strcpy(info->mName, "killline-sim");
    info->mHALMajorVersion = 2;
    info->mDataAlignment = 4096;
    info->mMinTransferSize = 1;
    info->mNumClocks = 1;
    info->mOCLFrequency[0] = (unsigned short)session->device->card->latency.kernel_mhz;
    info->mPciSlot = session->device->index;
    for (uint32_t b = 0; session->device->is_loaded && b < session->device->card->n_bank; b++) {
        const struct card_bank *bank = &session->device->card->banks[b];
        if (bank->is_used && !bank->is_host) {
            info->mDDRSize += bank->size_bytes;
            info->mDDRBankCount++;
        }
    }
    return 0;
}

int xclLoadXclBin(xclDeviceHandle handle, const struct axlf *axlf)
{
    struct session *session = device_session(handle);
    return session && axlf ? device_load(session, axlf) : -EINVAL;
}

int xclOpenContext(xclDeviceHandle handle, const xuid_t uuid, unsigned int unit, bool shared)
{
    struct session *session = device_session(handle);
    if (!session)
        return -EINVAL;
    return unit == UINT32_MAX ? 0
                              : device_open_unit(session, uuid, unit, shared); /* the virtual unit: no more */
}

int xclCloseContext(xclDeviceHandle handle, const xuid_t uuid, unsigned int unit)
{
    (void)uuid;
    struct session *session = device_session(handle);
    if (!session)
        return -EINVAL;
    return unit == UINT32_MAX ? 0 : device_close_unit(session, unit);
}

/* ---- buffers ---- */

static xclBufferHandle allocate(xclDeviceHandle handle, void *user, size_t size, unsigned int flags)
{
    struct session *session = device_session(handle);
    uint32_t buffer;
    const int rc = session ? memory_allocate(session, user, size, flags, &buffer) : -EINVAL;
    if (rc == 0)
        return buffer;
    errno = -rc;
    return XRT_NULL_BO;
}

xclBufferHandle xclAllocBO(xclDeviceHandle handle, size_t size, int unused, unsigned int flags)
{
    (void)unused;
    return allocate(handle, NULL, size, flags);
}

xclBufferHandle xclAllocUserPtrBO(xclDeviceHandle handle, void *user, size_t size, unsigned int flags)
{
    if (user)
        return allocate(handle, user, size, flags);
    errno = EINVAL;
    return XRT_NULL_BO;
}

void xclFreeBO(xclDeviceHandle handle, xclBufferHandle buffer)
{
    struct session *session = device_session(handle);
    if (session)
        memory_release(session, buffer);
}

void *xclMapBO(xclDeviceHandle handle, xclBufferHandle buffer, bool write)
{
    (void)write;
    struct session *session = device_session(handle);
    struct device_buffer found;
    if (session && memory_get(session, buffer, &found) == 0 && found.host)
        return found.host;
    errno = EINVAL;
    return NULL;
}

int xclUnmapBO(xclDeviceHandle handle, xclBufferHandle buffer, void *at)
{
    struct session *session = device_session(handle);
    struct device_buffer found;
    return session && memory_get(session, buffer, &found) == 0 && found.host == at ? 0 : -EINVAL;
}

int xclSyncBO(xclDeviceHandle handle, xclBufferHandle buffer, enum xclBOSyncDirection direction, size_t size,
              size_t offset)
{
    struct session *session = device_session(handle);
    if (!session || (direction != XCL_BO_SYNC_BO_TO_DEVICE && direction != XCL_BO_SYNC_BO_FROM_DEVICE))
        return -EINVAL;
    return memory_sync(session, buffer, direction == XCL_BO_SYNC_BO_TO_DEVICE, size, offset);
}

int xclCopyBO(xclDeviceHandle handle, xclBufferHandle to, xclBufferHandle from, size_t size, size_t to_offset,
              size_t from_offset)
{
    struct session *session = device_session(handle);
    return session ? memory_copy(session, to, from, size, to_offset, from_offset) : -EINVAL;
}

int xclGetBOProperties(xclDeviceHandle handle, xclBufferHandle buffer, struct xclBOProperties *properties)
{
    struct session *session = device_session(handle);
    struct device_buffer found;
    if (!session || memory_get(session, buffer, &found) != 0)
        return -EINVAL;
    *properties = (struct xclBOProperties){
        .handle = buffer, .flags = found.flags, .size = found.size_bytes, .paddr = found.address};
    return 0;
}

/* Sharing buffers between devices or processes, and accesses by raw address, are not offered. */
xclBufferExportHandle xclExportBO(xclDeviceHandle handle, xclBufferHandle buffer)
{
    (void)handle;
    (void)buffer;
    errno = EOPNOTSUPP;
    return XRT_NULL_BO_EXPORT;
}

xclBufferHandle xclImportBO(xclDeviceHandle handle, xclBufferExportHandle fd, unsigned int flags)
{
    (void)handle;
    (void)fd;
    (void)flags;
    errno = EOPNOTSUPP;
    return XRT_NULL_BO;
}

ssize_t xclUnmgdPwrite(xclDeviceHandle handle, unsigned int flags, const void *at, size_t size,
                       uint64_t offset)
{
    (void)handle;
    (void)flags;
    (void)at;
    (void)size;
    (void)offset;
    return -EOPNOTSUPP;
}

ssize_t xclUnmgdPread(xclDeviceHandle handle, unsigned int flags, void *at, size_t size, uint64_t offset)
{
    (void)handle;
    (void)flags;
    (void)at;
    (void)size;
    (void)offset;
    return -EOPNOTSUPP;
}

/* ---- runs and registers ---- */

int xclExecBuf(xclDeviceHandle handle, xclBufferHandle buffer)
{
    struct session *session = device_session(handle);
    return session ? queue_submit(session, buffer) : -EINVAL;
}

int xclExecWait(xclDeviceHandle handle, int timeout_ms)
{
    struct session *session = device_session(handle);
    return session ? queue_wait(session, timeout_ms) : -EINVAL;
}

int xclRegRead(xclDeviceHandle handle, uint32_t unit, uint32_t offset, uint32_t *value)
{
    struct session *session = device_session(handle);
    return session ? device_read(session, unit, offset, value) : -EINVAL;
}

int xclRegWrite(xclDeviceHandle handle, uint32_t unit, uint32_t offset, uint32_t value)
{
    struct session *session = device_session(handle);
    return session ? device_write(session, unit, offset, value) : -EINVAL;
}

/* A unit's words by address. -1 is (size_t)-1: XRT compares with the size asked for. */
size_t xclRead(xclDeviceHandle handle, enum xclAddressSpace space, uint64_t address, void *at, size_t size)
{
    struct session *session = device_session(handle);
    uint32_t unit, offset;
    if (!session || space != XCL_ADDR_KERNEL_CTRL || size % 4 != 0)
        return (size_t)-1;
    for (size_t i = 0; i < size; i += 4) {
        uint32_t value;
        if (device_unit_at(session, address + i, &unit, &offset) != 0 ||
            device_read_at(session, unit, offset, &value) != 0)
            return (size_t)-1;
        memcpy((char *)at + i, &value, 4);
    }
    return size;
}

size_t xclWrite(xclDeviceHandle handle, enum xclAddressSpace space, uint64_t address, const void *at,
                size_t size)
{
    struct session *session = device_session(handle);
    uint32_t unit, offset;
    if (!session || space != XCL_ADDR_KERNEL_CTRL || size % 4 != 0)
        return (size_t)-1;
    /* The first word, which may be ap_start, last: the arguments are behind it. */
    for (size_t i = size; i > 0; i -= 4) {
        uint32_t value;
        memcpy(&value, (const char *)at + i - 4, 4);
        if (device_unit_at(session, address + i - 4, &unit, &offset) != 0 ||
            device_write_at(session, unit, offset, value) != 0)
            return (size_t)-1;
    }
    return size;
}

/* ---- what a software device has not ---- */

int xclReClock2(xclDeviceHandle handle, unsigned short region, const unsigned short *mhz)
{
    (void)handle;
    (void)region;
    (void)mhz;
    return -EOPNOTSUPP;
}

int xclP2pEnable(xclDeviceHandle handle, bool enable, bool force)
{
    (void)handle;
    (void)enable;
    (void)force;
    return -EOPNOTSUPP;
}

/* Functions of XRT's own driver that its glue calls under their C++ names. */
int hal_update_scheduler(xclDeviceHandle handle) __asm__("_Z22xclUpdateSchedulerStatPv");
int hal_reset(xclDeviceHandle handle,
              enum xclResetKind kind) __asm__("_Z22xclInternalResetDevicePv12xclResetKind");
int hal_host_memory(xclDeviceHandle handle, bool enable, uint64_t size) __asm__("_Z12xclCmaEnablePvbm");
int hal_close_export(int fd) __asm__("_Z20xclCloseExportHandlei");
void *hal_check(xclDeviceHandle handle) __asm__("_ZN12xclcpuemhal29CpuemShim11handleCheckEPv");
int hal_query(void *device,
              int key) __asm__("_ZN12xclcpuemhal29CpuemShim11deviceQueryEN8xrt_core5query8key_typeE");

int hal_update_scheduler(xclDeviceHandle handle)
{
    (void)handle;
    return 0;
}

int hal_reset(xclDeviceHandle handle, enum xclResetKind kind)
{
    (void)kind;
    struct session *session = device_session(handle);
    return session ? device_reset(session) : -EINVAL;
}

int hal_host_memory(xclDeviceHandle handle, bool enable, uint64_t size)
{
    (void)handle;
    (void)enable;
    (void)size;
    return -EOPNOTSUPP; /* it is there when the xclbin has the bank */
}

int hal_close_export(int fd)
{
    (void)fd;
    return -EOPNOTSUPP;
}

void *hal_check(xclDeviceHandle handle)
{
    return device_session(handle);
}

/* m2m (copies on the card) and nodma: neither. */
int hal_query(void *device, int key)
{
    (void)device;
    (void)key;
    return 0;
}
