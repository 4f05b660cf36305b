/* One synthetic market day: the exchange, its order flow, its schedule (spins, auctions, halts, bursts) and
 * its feed, run as a discrete-event simulation.
 *
 * The day's hours are compressed: messages start at 09:29:48 Eastern, continuous trading at 09:30:00, and the
 * closing cross comes when the trading time is over. Same options, same bytes, on every machine.
 * Bounded memory whatever the length. One thread. */
#ifndef SYNTH_H
#define SYNTH_H

#include <stddef.h>
#include <stdint.h>

#include "exchange.h"
#include "feed.h"
#include "flow.h"

enum { SYNTH_SECONDS_MAX = 20000, SYNTH_LOSS_MAX = 1000, SYNTH_BURST_MAX = 100000, SYNTH_HALT_MAX = 1000 };
#define SYNTH_BURST_AUTO UINT32_MAX /* one in two seconds of trading */

struct synth_options {
    const char *pcap_path;
    const char *itch_path; /* NULL: none */
    uint64_t seed;
    uint32_t n_symbol;   /* 1 .. FLOW_SYMBOL_MAX */
    uint64_t messages;   /* about so many in all; 0: rate * seconds of trading */
    double rate;         /* messages per second of trading, all symbols together; with messages and seconds
                            both given it follows from them */
    uint32_t seconds;    /* of trading; 0: from messages and rate */
    uint32_t n_gap;      /* losses on line A alone; a third as many more on B alone */
    uint32_t n_lost_gap; /* losses on both lines */
    uint32_t n_burst, n_halt;
    uint32_t lag_ns;
    uint16_t vlan_id;
};

struct synth_halt {
    uint32_t symbol;
    char reason[5];          /* LUDP, T1; OPER: operational halt of this market (h) */
    uint64_t from_ns, to_ns; /* feed time */
};

struct synth_burst {
    uint64_t from_ns, to_ns;
    uint32_t messages, symbols;
};

struct synth;

/* The demo day. */
void synth_defaults(struct synth_options *options);

/* NULL with a message when the options contradict each other, a file cannot be written or memory is short. */
struct synth *synth_open(const struct synth_options *options, char error[FEED_ERROR_CHARS]);

/* Runs up to n_event events. 1: more to do; 0: the day is over; -1: writing failed (synth_close says why). */
int synth_run(struct synth *synth, uint32_t n_event);

/* Estimate of all messages of the day, for progress. */
uint64_t synth_expected_messages(const struct synth *synth);
const struct exchange *synth_exchange(const struct synth *synth);
const struct flow *synth_flow(const struct synth *synth);
const struct feed *synth_feed(const struct synth *synth);
const struct synth_options *synth_options(const struct synth *synth); /* rate and seconds as they came out */
const struct synth_halt *synth_halts(const struct synth *synth, size_t *n);
const struct synth_burst *synth_bursts(const struct synth *synth, size_t *n);

/* Writes what is left and frees. 0, or -1 with a message. */
int synth_close(struct synth *synth, char error[FEED_ERROR_CHARS]);

#endif
