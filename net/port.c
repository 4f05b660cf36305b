#include "port.h"

#include <errno.h>
#include <pthread.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_version.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N_RX_MBUF =
        2047, /* twice the ring; more would cost the poll loop TLB misses (measured: 150 ns a frame) */
    N_TX_MBUF = 1023,
    N_RING = 1024,
    N_DESC = 1024,
    SCRATCH_BYTES = 65557, /* largest frame (net/capture.h); for those that the driver spread over several
                              mbufs */
};

struct port {
    uint16_t id;
    char device[32]; /* vdev to remove at close; empty: a ring port */
    struct rte_mempool *pool;
    struct rte_ring *ring;
    struct rte_mbuf *burst[PORT_BURST];
    uint16_t n_burst;
    struct rte_mbuf *tx;
    uint8_t scratch[SCRATCH_BYTES];
};

static int eal_started;
static unsigned n_opened; /* names of pools, rings and devices must differ within the process */

int port_init(char error[PORT_ERROR_CHARS])
{
    if (eal_started)
        return 0;
    cpu_set_t affinity;
    if (pthread_getaffinity_np(pthread_self(), sizeof(affinity), &affinity)) {
        snprintf(error, PORT_ERROR_CHARS, "cannot read this thread's CPU affinity");
        return -1;
    }
    int cpu = 0;
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &affinity))
        cpu++;
    char lcores[32], prefix[48];
    snprintf(lcores, sizeof(lcores), "0@%d", cpu);
    snprintf(prefix, sizeof(prefix), "--file-prefix=killline%d", (int)getpid());
    char name[] = "killline", huge[] = "--no-huge", shconf[] = "--no-shconf", pci[] = "--no-pci",
         telemetry[] = "--no-telemetry", m[] = "-m", mb[] = "128", lc[] = "--lcores",
         level[] = "--log-level=4";
    char *argv[] = {name, huge, shconf, pci, telemetry, m, mb, lc, lcores, level, prefix, NULL};
    int n = rte_eal_init((int)(sizeof(argv) / sizeof(argv[0])) - 1, argv);
    int saved = rte_errno;
    /* EAL has pinned us to one CPU. */
    pthread_setaffinity_np(pthread_self(), sizeof(affinity), &affinity);
    if (n < 0) {
        snprintf(error, PORT_ERROR_CHARS, "DPDK's EAL did not start: %s (128 MB of memory are needed)",
                 rte_strerror(saved));
        return -1;
    }
    eal_started = 1;
    return 0;
}

const char *port_library_version(void)
{
    return rte_version();
}

static struct port *port_new(unsigned n_mbuf, char *error)
{
    if (!eal_started) {
        snprintf(error, PORT_ERROR_CHARS, "port_init has not been called");
        return NULL;
    }
    struct port *port = calloc(1, sizeof(*port));
    char name[32];
    snprintf(name, sizeof(name), "pool%u", n_opened);
    if (port)
        port->pool = rte_pktmbuf_pool_create(name, n_mbuf, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    if (!port || !port->pool) {
        snprintf(error, PORT_ERROR_CHARS, "no memory for %u packet buffers: %s", n_mbuf,
                 rte_strerror(rte_errno));
        free(port);
        return NULL;
    }
    n_opened++;
    return port;
}

static void port_delete(struct port *port)
{
    if (port->device[0])
        rte_eal_hotplug_remove("vdev", port->device);
    rte_mempool_free(port->pool);
    free(port);
}

static int start(struct port *port, uint16_t n_rx, uint16_t n_tx, char *error)
{
    struct rte_eth_conf conf = {0};
    int e = rte_eth_dev_configure(port->id, n_rx, n_tx, &conf);
    if (!e && n_rx)
        e = rte_eth_rx_queue_setup(port->id, 0, N_DESC, SOCKET_ID_ANY, NULL, port->pool);
    if (!e && n_tx)
        e = rte_eth_tx_queue_setup(port->id, 0, N_DESC, SOCKET_ID_ANY, NULL);
    if (!e)
        e = rte_eth_dev_start(port->id);
    if (e)
        snprintf(error, PORT_ERROR_CHARS, "DPDK port %u does not start: %s", port->id, rte_strerror(-e));
    return e;
}

/* Creates a vdev and finds its port. The vdev is named after the port, so that several can live side by side.
 */
static int attach(struct port *port, const char *device, const char *args, char *error)
{
    snprintf(port->device, sizeof(port->device), "%s", device);
    int e = rte_eal_hotplug_add("vdev", port->device, args);
    if (!e)
        e = rte_eth_dev_get_port_by_name(port->device, &port->id);
    if (e) {
        snprintf(error, PORT_ERROR_CHARS, "DPDK refused device %s,%.120s: %s", port->device, args,
                 rte_strerror(-e));
        port->device[0] = '\0';
    }
    return e;
}

struct port *port_open_pcap(const char *path, char error[PORT_ERROR_CHARS])
{
    /* A comma would end the argument; the driver itself would only say "invalid". */
    if (strchr(path, ',')) {
        snprintf(error, PORT_ERROR_CHARS, "%.150s: a comma in the name cannot be passed to DPDK: rename it",
                 path);
        return NULL;
    }
    if (access(path, R_OK)) {
        snprintf(error, PORT_ERROR_CHARS, "%.150s: %s", path, strerror(errno));
        return NULL;
    }
    char args[4200], device[32];
    struct port *port = port_new(N_RX_MBUF, error);
    if (!port)
        return NULL;
    snprintf(args, sizeof(args), "rx_pcap=%s", path);
    snprintf(device, sizeof(device), "net_pcap%u", n_opened);
    if (attach(port, device, args, error) || start(port, 1, 1, error)) {
        port_delete(port);
        return NULL;
    }
    return port;
}

struct port *port_open_ring(char error[PORT_ERROR_CHARS])
{
    struct port *port = port_new(N_RX_MBUF, error);
    if (!port)
        return NULL;
    char name[32];
    snprintf(name, sizeof(name), "feed%u", n_opened);
    port->ring = rte_ring_create(name, N_RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    int id = port->ring ? rte_eth_from_rings(name, &port->ring, 1, &port->ring, 1, SOCKET_ID_ANY) : -1;
    if (id < 0) {
        snprintf(error, PORT_ERROR_CHARS, "no DPDK ring port: %s", rte_strerror(rte_errno));
        rte_ring_free(port->ring);
        port_delete(port);
        return NULL;
    }
    port->id = (uint16_t)id;
    if (start(port, 1, 1, error)) {
        port_close(port);
        return NULL;
    }
    return port;
}

struct port *port_open_tx(const char *device, const char *path, char error[PORT_ERROR_CHARS])
{
    char args[4200] = "", name[32];
    struct port *port = port_new(N_TX_MBUF, error);
    if (!port)
        return NULL;
    int e;
    if (device[0]) {
        const char *comma = strchr(device, ',');
        snprintf(name, sizeof(name), "%.*s", comma ? (int)(comma - device) : (int)strlen(device), device);
        e = attach(port, name, comma ? comma + 1 : "", error);
    } else {
        snprintf(args, sizeof(args), "tx_pcap=%s", path);
        snprintf(name, sizeof(name), "net_pcap%u", n_opened);
        e = attach(port, name, args, error);
    }
    /* net_pcap and net_null want a queue on either side. */
    if (e || start(port, 1, 1, error)) {
        port_delete(port);
        return NULL;
    }
    return port;
}

void port_close(struct port *port)
{
    if (!port)
        return;
    if (port->tx)
        rte_pktmbuf_free(port->tx);
    port_release(port);
    rte_eth_dev_stop(port->id);
    if (port->ring) {
        struct rte_mbuf *m;
        while (!rte_ring_dequeue(port->ring, (void **)&m))
            rte_pktmbuf_free(m);
        rte_eth_dev_close(port->id);
        rte_ring_free(port->ring);
    }
    port_delete(port);
}

unsigned port_receive(struct port *port)
{
    return port->n_burst = rte_eth_rx_burst(port->id, 0, port->burst, PORT_BURST);
}

const uint8_t *port_packet(struct port *port, unsigned i, uint32_t *len)
{
    struct rte_mbuf *m = port->burst[i];
    *len = rte_pktmbuf_pkt_len(m);
    if (__builtin_expect(m->nb_segs > 1, 0)) {
        /* net_pcap (DPDK 22.11) copies a record's length modulo 2^16, yet reports it whole: what is there
         * counts. */
        uint32_t held = 0;
        for (const struct rte_mbuf *s = m; s; s = s->next)
            held += s->data_len;
        *len = *len < held ? *len : held;
    }
    if (*len > SCRATCH_BYTES)
        *len = SCRATCH_BYTES;
    /* A pointer into the mbuf where it is one segment, else a copy. */
    return rte_pktmbuf_read(m, 0, *len, port->scratch);
}

void port_release(struct port *port)
{
    if (port->n_burst)
        rte_pktmbuf_free_bulk(port->burst, port->n_burst);
    port->n_burst = 0;
}

unsigned port_waiting(const struct port *port, unsigned *size)
{
    if (port->ring) {
        *size = rte_ring_get_capacity(port->ring);
        return rte_ring_count(port->ring);
    }
    struct rte_eth_rxq_info info;
    const int n = rte_eth_rx_queue_count(port->id, 0);
    if (n < 0 || rte_eth_rx_queue_info_get(port->id, 0, &info)) {
        *size = 0;
        return 0;
    }
    *size = info.nb_desc;
    return (unsigned)n;
}

int port_feed(struct port *port, const uint8_t *frame, uint32_t len)
{
    /* A frame larger than one buffer (a jumbo message of a capture) becomes a chain, as a NIC would scatter
     * it. */
    struct rte_mbuf *head = NULL;
    uint32_t done = 0;
    do {
        struct rte_mbuf *m = rte_pktmbuf_alloc(port->pool);
        uint32_t room = m ? rte_pktmbuf_tailroom(m) : 0, n = len - done < room ? len - done : room;
        if (!m || (head && rte_pktmbuf_chain(head, m))) {
            rte_pktmbuf_free(m);
            rte_pktmbuf_free(head);
            return -1;
        }
        memcpy(rte_pktmbuf_mtod(m, uint8_t *), frame + done, n);
        m->data_len = (uint16_t)n;
        if (head)
            head->pkt_len += n;
        else
            (head = m)->pkt_len = n;
        done += n;
    } while (done < len);
    if (rte_ring_enqueue(port->ring, head)) {
        rte_pktmbuf_free(head);
        return -1;
    }
    return 0;
}

uint8_t *port_tx_buffer(struct port *port)
{
    if (!port->tx) {
        port->tx = rte_pktmbuf_alloc(port->pool);
        if (!port->tx)
            return NULL;
    }
    return rte_pktmbuf_mtod(port->tx, uint8_t *);
}

void port_tx_prepare(struct port *port)
{
    const uint8_t *buffer = port_tx_buffer(port);
    for (int line = 0; buffer && line < 3; line++)
        __builtin_prefetch(buffer + 64 * line, 1);
}

int port_send(struct port *port, uint32_t len)
{
    port->tx->data_len = (uint16_t)len;
    port->tx->pkt_len = len;
    if (rte_eth_tx_burst(port->id, 0, &port->tx, 1) != 1)
        return -1;
    port->tx = NULL;
    return 0;
}
