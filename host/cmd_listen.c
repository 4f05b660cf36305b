/* killline listen: prints published predictions, from the network or from a capture. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../net/capture.h"
#include "../net/packet.h"
#include "../net/wire.h"
#include "cmd.h"
#include "config.h"

static const char help[] =
    "usage: killline listen --pcap F | --group G [OPTIONS]\n\n"
    "Prints every prediction datagram (format: net/wire.h): sequence, exchange time, symbol, class, quote, "
    "logits.\n"
    "The class is a number, as in the logits' order; killline model info names the classes. The group and "
    "port "
    "of a\n"
    "run are egress.group (239.75.76.1) and egress.port; it sends to a network only with egress.device.\n\n"
    "  --pcap F         from a capture, such as predictions.pcap of a run's output folder\n"
    "  --group G        from the network: multicast group, or a local unicast address\n"
    "  --port P         UDP port (default 31075)\n"
    "  --interface IP   address of the interface to join on, 127.0.0.1 for this host's own (default: the "
    "system's\n"
    "                   choice)\n"
    "  --count N        stop after N predictions\n"
    "  --timeout S      stop after S seconds without a datagram (default: wait)\n"
    "  --json           one JSON object per line\n\n"
    "A hole in the sequence means lost datagrams: counted on stderr at the end. Exit status 0 when at least "
    "one\n"
    "prediction came and none was malformed.\n";

struct listen {
    int json;
    unsigned long long count_max, n, lost, malformed;
    uint64_t last_seq;
};

static void print_json_symbol(const char symbol[8])
{
    size_t n = 8;
    while (n && symbol[n - 1] == ' ')
        n--;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)symbol[i];
        if (c < ' ' || c > '~' || c == '"' || c == '\\')
            printf("\\u%04x", c);
        else
            putchar(c);
    }
}

/* 1: enough. */
static int take(struct listen *l, const uint8_t *data, size_t len)
{
    struct wire_prediction p;
    if (wire_decode(data, len, &p)) {
        l->malformed++;
        return 0;
    }
    if (l->n && p.publish_seq > l->last_seq + 1)
        l->lost += p.publish_seq - l->last_seq - 1;
    l->last_seq = p.publish_seq;
    const double one = 1 << WIRE_LOGIT_FRAC;
    if (l->json) {
        printf("{\"publish_seq\":%llu,\"feed_seq_no\":%llu,\"feed_ts_ns\":%llu,\"symbol\":\"",
               (unsigned long long)p.publish_seq, (unsigned long long)p.feed_seq_no,
               (unsigned long long)p.feed_ts_ns);
        print_json_symbol(p.symbol);
        printf("\",\"locate\":%u,\"class\":%u,\"slot\":%u,\"model_hash\":\"%016llx\",\"bid_price\":%u,\"ask_"
               "price\":%u,"
               "\"logits\":[",
               p.locate, p.cls, p.slot, (unsigned long long)p.model_hash, p.bid_price, p.ask_price);
        for (int k = 0; k < p.n_class; k++)
            printf("%s%.6f", k ? "," : "", p.logits[k] / one);
        puts("]}");
    } else {
        uint64_t s = p.feed_ts_ns / 1000000000;
        printf("%8llu  %02u:%02u:%02u.%09u  ", (unsigned long long)p.publish_seq, (unsigned)(s / 3600),
               (unsigned)(s / 60 % 60), (unsigned)(s % 60), (unsigned)(p.feed_ts_ns % 1000000000));
        for (int i = 0; i < 8; i++)
            putchar(p.symbol[i] >= ' ' && p.symbol[i] <= '~' ? p.symbol[i] : '?');
        printf("  class %u  bid %.4f ask %.4f  logits", p.cls, p.bid_price / 1e4, p.ask_price / 1e4);
        for (int k = 0; k < p.n_class; k++)
            printf(" %.3f", p.logits[k] / one);
        putchar('\n');
    }
    return ++l->n == l->count_max;
}

static int from_pcap(struct listen *l, const char *path)
{
    char error[CAPTURE_ERROR_CHARS];
    struct capture *capture = capture_open(path, CAPTURE_PCAP, error);
    if (!capture)
        return cmd_error("%s", error);
    struct capture_frame frame;
    struct packet_udp udp;
    int more;
    while ((more = capture_next_frame(capture, &frame, error)) == 1)
        if (packet_parse(frame.data, frame.len, 1, &udp) != PACKET_OK)
            l->malformed++;
        else if (take(l, udp.payload, udp.payload_len))
            break;
    capture_close(capture);
    return more < 0 ? cmd_error("%s", error) : 0;
}

static int from_network(struct listen *l, const char *group, uint16_t port, const char *interface,
                        unsigned long long timeout_s)
{
    uint32_t ip, interface_ip;
    if (config_parse_ip(group, &ip) || !ip || config_parse_ip(interface, &interface_ip)) {
        cmd_error("--group and --interface are IPv4 addresses, like 239.75.76.1");
        return 2;
    }
    int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(ip)};
    struct ip_mreq join = {.imr_multiaddr.s_addr = htonl(ip), .imr_interface.s_addr = htonl(interface_ip)};
    struct timeval wait = {.tv_sec = (time_t)timeout_s};
    int is_multicast = IN_MULTICAST(ip);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
        (timeout_s > 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait))) ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) ||
        (is_multicast && setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)))) {
        int e = cmd_error("%s:%u: %s", group, port, strerror(errno));
        if (fd >= 0)
            close(fd);
        return e;
    }
    uint8_t data[2048];
    int e = 0;
    for (;;) {
        ssize_t n = recv(fd, data, sizeof(data), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                e = cmd_error("%s:%u: %s", group, port, strerror(errno));
            break;
        }
        int enough = take(l, data, (size_t)n);
        fflush(stdout);
        if (enough)
            break;
    }
    close(fd);
    return e;
}

int cmd_listen(int argc, char **argv)
{
    enum { OPT_PCAP = 1, OPT_GROUP, OPT_PORT, OPT_INTERFACE, OPT_COUNT, OPT_TIMEOUT };
    static const struct option options[] = {{"pcap", 1, NULL, OPT_PCAP},
                                            {"group", 1, NULL, OPT_GROUP},
                                            {"port", 1, NULL, OPT_PORT},
                                            {"count", 1, NULL, OPT_COUNT},
                                            {"timeout", 1, NULL, OPT_TIMEOUT},
                                            {"interface", 1, NULL, OPT_INTERFACE},
                                            {"json", 0, NULL, 'j'},
                                            {"help", 0, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct listen l = {0};
    const char *pcap = NULL, *group = NULL, *interface = "";
    unsigned long long port = 31075, timeout_s = 0;
    int c, bad = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case OPT_PCAP:
            pcap = optarg;
            break;
        case OPT_GROUP:
            group = optarg;
            break;
        case OPT_PORT:
            bad |= cmd_parse_u64(optarg, 1, 65535, &port);
            break;
        case OPT_INTERFACE:
            interface = optarg;
            break;
        case OPT_COUNT:
            bad |= cmd_parse_u64(optarg, 1, UINT64_MAX, &l.count_max);
            break;
        case OPT_TIMEOUT:
            bad |= cmd_parse_u64(optarg, 1, 86400 * 365, &timeout_s);
            break;
        case 'j':
            l.json = 1;
            break;
        case 'h':
            fputs(help, stdout);
            return 0;
        default:
            return 2;
        }
    if (bad || optind < argc || !pcap == !group) {
        cmd_error("one of --pcap F and --group G is needed, numbers within their range (listen --help)");
        return 2;
    }
    int status = pcap ? from_pcap(&l, pcap) : from_network(&l, group, (uint16_t)port, interface, timeout_s);
    if (fflush(stdout) || ferror(stdout))
        return cmd_error("standard output: %s", strerror(errno));
    if (!status || l.n || l.malformed)
        fprintf(stderr, "%llu predictions, %llu lost, %llu malformed\n", l.n, l.lost, l.malformed);
    if (!status && !l.n && l.malformed)
        cmd_error("%s: no datagram is a prediction: is it the market's feed?", pcap ? pcap : group);
    return status ? status : !l.n || l.malformed ? 1 : 0;
}
