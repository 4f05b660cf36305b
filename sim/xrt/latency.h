/* The latency model: what a card and its bus cost, in real time, so that ages are those of a card.
 *
 * KL_SIM_LATENCY: unset or "off": nothing is added. "on": the figures below. "KEY=N[,KEY=N]...": those, with
 * these changed.
 *
 *   key            default  what, and where the figure comes from
 *   write_ns           450  a posted write, register or answer, one way; the host does not wait for it.
 *                           Half a round trip.
 *   read_ns            900  a register read: a round trip, the host waits.
 *   fetch_ns           900  a unit reads a request in the host's memory: a round trip.
 *                           Round trips over PCIe of 800 to 1,000 ns, of which the NIC or card and root complex
 *                           take most: Neugebauer et al., "Understanding PCIe performance for end host
 *                           networking", SIGCOMM 2018, figures 5 and 6 (64 bytes: 550 to 1,100 ns by machine).
 *   sync_ns          20000  a DMA transfer's set-up and completion, whatever its size.
 *   sync_mbps        10000  and its bytes, MB/s: XDMA on a Gen3 x16 Alveo moves 9 to 12 GB/s.
 *                           XRT's `xbutil validate` DMA test; and UG1393 on small transfers, "tens of
 *                           microseconds".
 *   kernel_mhz         300  the kernel's clock: the shipped builds' target. A unit is busy for its modelled
 *                           cycles; where their simulation takes longer than that, nothing is added.
 *   run_us               0  a launch through XRT's queue. 50 to 100 us are reported of a U55C (Xilinx/XRT issue
 *                           8687); XRT's own code is not part of this model.
 */
#ifndef LATENCY_H
#define LATENCY_H

#include <stdint.h>
#include <time.h>

struct latency {
    uint32_t is_on;
    uint32_t write_ns, read_ns, fetch_ns, sync_ns, sync_mbps, kernel_mhz, run_us;
};

enum { LATENCY_ERROR_CHARS = 256 };

/* spec: NULL as unset. 0, or -1 with a message. */
int latency_parse(const char *spec, struct latency *out, char error[LATENCY_ERROR_CHARS]);

/* CLOCK_MONOTONIC: the same in every process. */
static inline uint64_t latency_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Spins. */
static inline void latency_until(uint64_t ns)
{
    while (latency_now_ns() < ns)
        __builtin_ia32_pause();
}

#endif
