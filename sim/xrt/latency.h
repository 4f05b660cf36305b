/* The latency model: what a card and its bus cost, in real time, so that ages are those of a card.
 *
 * KL_SIM_LATENCY: unset or "off": nothing is added. "on": the figures below. "KEY=N[,KEY=N]...": those, with
 * these changed.
 *
 * write_ns=450: a posted write, of a register or of an answer, one way; the host does not wait for it. Half
 *   a round trip.
 * read_ns=900: a register read, a round trip, for which the host waits.
 * fetch_ns=900: the unit reads its request in the host's memory: a round trip.
 *   Round trips over PCIe: 850 ns, a Virtex-7 at Gen3 in a desktop (hackingnasdaq.blogspot.com, "PCIe
 *   latency", 2014); about 900 ns of VOLLO's published end-to-end latency on a V80; 700 to 1,600 ns per
 *   register access through the hypervisor of AWS F1 (Xilinx/XRT issue 6053). On what they depend:
 *   Neugebauer et al., "Understanding PCIe performance for end host networking", SIGCOMM 2018.
 * sync_ns=19000: a DMA transfer's set-up and completion, whatever its size: 19 us per xrt::bo::sync on a U25
 *   (Xilinx/XRT issue 6590).
 * sync_mbps=10000: its bytes, in MB/s: `xbutil validate` shows 8,500 to 9,600 to the card, 12,200 back (Vitis
 *   tutorials XD099, "Determine the Maximum Achievable Throughput").
 * kernel_mhz=300: the kernel's clock, the shipped builds' target. A unit is busy for its modelled cycles;
 *   where their simulation takes longer than that, nothing is added.
 * run_us=0: a launch through XRT's queue, on top of XRT's own code: 50 to 100 us on a U55C (Xilinx/XRT issue
 *   8687). 0: not modelled.
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
