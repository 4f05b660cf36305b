/* The accelerator through Xilinx XRT: a card, or the software device that XRT loads as its driver (sim/xrt).
 * The code cannot tell one from the other and does not ask, but to report which it was.
 *
 * Two modes. Doorbell: the compute unit is opened exclusively and restarts by itself; a request is written to
 * memory or to the register block and KL_REG_REQUEST_TAIL is rung; the answer is polled. Run: every request
 * is one start through XRT's queue (xrtRun), its state polled; for throughput, and for platforms whose
 * kernels may not be opened exclusively. XRT's waits are used in neither: they take milliseconds and may
 * never return. In both, open has a unit that a killed process left running come to rest first.
 *
 * In run mode a load is a run as well: ticks that are submitted while the unit takes the model in wait behind
 * it. On a device that failed (ACCEL_FAILED, until reset) a load ends with KL_E_EMPTY, and so do save and
 * restore. A load that a unit does not end within 5 s is such a failure. An answer whose check stays wrong is
 * given by poll as it is, after some 1,000 polls that found it so; one that does not come, never. */
#ifndef ACCEL_XRT_H
#define ACCEL_XRT_H

#include "accel.h"

enum accel_xrt_mode { ACCEL_XRT_DOORBELL = 0, ACCEL_XRT_RUN = 1 };

struct accel_xrt_options {
    const char *device; /* index ("0") or PCIe address ("0000:3b:00.1") */
    const char *xclbin; /* path */
    uint32_t unit;      /* compute unit, from 0, in the order of the xclbin's IP_LAYOUT */
    enum accel_xrt_mode mode;
    const struct kl_build *build; /* whose kernel the xclbin has to hold */
    /* TSC: an answer whose bytes have begun to come and are not whole after that is damaged, and handed out
     * as it is. 0: 100,000, some 30 us; on a bus they come within a microsecond of each other, but a software
     * device's thread or process may be interrupted between two of them. */
    uint64_t torn_cycles;
};

struct accel_xrt_info {
    char name[64];   /* the platform that the xclbin is for, and the device's own name where it says one */
    char device[32]; /* as opened: index or PCIe address */
    char uuid[37];   /* the xclbin's */
    uint32_t abi_version;
    int software_device; /* 1: sim/xrt's, not a card */
    int host_memory; /* 1: rings in host memory that the kernel reaches; 0: registers (doorbell), or device
                        buffers and DMA (run) */
    enum accel_xrt_mode mode;
    uint32_t unit;
};

/* Whether XRT can be called at all: XILINX_XRT is set and the driver library that XRT would load is there.
 * Its first call aborts the process otherwise. 0, or -1 with what to install or set. */
int accel_xrt_available(char error[ACCEL_ERROR_CHARS]);

/* Opens the device, checks and loads the xclbin, checks UUID, ABI version and build limits, starts the unit.
 * Cold: takes milliseconds here, seconds on a card. Several units of a device, and several devices, may be
 * open at once, each with its own accel; all are to be closed before the process exits (XRT 2.13 reads freed
 * memory otherwise). NULL with a message that says what to do. */
struct accel *accel_xrt_open(const struct accel_xrt_options *options, char error[ACCEL_ERROR_CHARS]);

/* accel: one that accel_xrt_open gave. */
void accel_xrt_describe(const struct accel *accel, struct accel_xrt_info *info);

/* "doorbell", "run". */
const char *accel_xrt_mode_name(enum accel_xrt_mode mode);

#endif
