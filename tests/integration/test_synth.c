/* killline synth: the day it writes is reproducible to the bit, valid as a feed and as a market, and holds
 * the losses, halts and bursts it says. Books are rebuilt here from the bytes alone, order by order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "net/itch.h"
#include "net/moldudp64.h"
#include "net/packet.h"
#include "sim/synth.h"

enum { N_SYMBOL_MAX = 40, ORDER_MAX = 2 * EXCHANGE_ORDER_MAX, CHECKPOINT_MAX = 4096 };

static char dir[64], pcap_path[128], itch_path[128];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/test_synth.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(pcap_path, sizeof pcap_path, "%s/day.pcap", dir);
    snprintf(itch_path, sizeof itch_path, "%s/day.itch50", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(pcap_path);
    unlink(itch_path);
    return rmdir(dir);
}

static uint8_t *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *len = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*len + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *len, f), *len);
    fclose(f);
    return data;
}

static void digest(const char *path, char hex[65])
{
    size_t len;
    uint8_t *data = read_file(path, &len), hash[32];
    assert_int_equal(EVP_Digest(data, len, hash, NULL, EVP_sha256(), NULL), 1);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    free(data);
}

static void small_day(struct synth_options *o, uint64_t seed)
{
    synth_defaults(o);
    o->pcap_path = pcap_path;
    o->itch_path = itch_path;
    o->seed = seed;
    o->n_symbol = 12;
    o->seconds = 4;
    o->rate = 6000;
}

static void write_day(const struct synth_options *o)
{
    char error[FEED_ERROR_CHARS];
    int rc;
    struct synth *synth = synth_open(o, error);
    assert_non_null(synth);
    while ((rc = synth_run(synth, 1000)) == 1)
        ;
    assert_int_equal(rc, 0);
    assert_int_equal(synth_close(synth, error), 0);
}

/* The digests are those of every compiler and sanitizer. A change of the generator changes them: say so in
 * the commit, retrain what was trained on it, and put the new ones here. */
static void same_seed_same_bytes(void **state)
{
    struct synth_options o;
    char pcap_hex[65], itch_hex[65], hex[65];
    (void)state;
    small_day(&o, 7);
    write_day(&o);
    digest(pcap_path, pcap_hex);
    digest(itch_path, itch_hex);
    assert_string_equal(itch_hex, "a9a7bb5c86b10b21ccef5f5a925f2672170b8ef07498f90f7bfbc4a4a951cd17");
    assert_string_equal(pcap_hex, "e1eb4f21f3700b354adc0ded6065bf036381f152007d9d391c6409d5f985621c");
    write_day(&o);
    digest(pcap_path, hex);
    assert_string_equal(hex, pcap_hex);
    o.lag_ns = 9000; /* the wire changes, the messages do not */
    write_day(&o);
    digest(itch_path, hex);
    assert_string_equal(hex, itch_hex);
    digest(pcap_path, hex);
    assert_string_not_equal(hex, pcap_hex);
    o.seed = 8;
    write_day(&o);
    digest(itch_path, hex);
    assert_string_not_equal(hex, itch_hex);
}

/* -- the market, rebuilt -----------------------------------------------------------------------------------
 */

struct rebuilt_order {
    uint64_t ref, age; /* age: message that put it where it is */
    uint32_t price, qty;
    uint8_t side;
};

struct rebuilt {
    uint16_t locate;
    char stock[8], state;
    int operational_halt, crossed_now;
    uint32_t n;
    struct rebuilt_order order[ORDER_MAX];
    uint64_t n_cross[256]; /* by cross type */
    uint64_t mid2;         /* last */
    int lean;              /* sign of the queue imbalance when the mid last moved or the queues changed */
};

struct market_check {
    struct rebuilt book[N_SYMBOL_MAX];
    uint32_t n_book;
    uint64_t n, last_ts, last_match, by_type[256];
    uint64_t lean_right, lean_wrong; /* mid moves that a clear queue imbalance called before */
    int hours;                       /* 0 before Q, 1 market hours, 2 after M */
    char events[8];
    int n_events;
};

struct checkpoint {
    uint64_t messages, hash;
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x100000001b3u;
}

/* Order-independent within a level, as a level's orders are compared by the priority check. */
static uint64_t book_hash(uint64_t hash, const struct rebuilt_order *order, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t h = mix(mix(mix(mix(0xcbf29ce484222325u, order[i].ref), order[i].price), order[i].qty),
                         order[i].side);
        sum += h ^ h >> 29;
    }
    return mix(hash, sum + n);
}

static uint64_t exchange_hash(const struct exchange *ex, uint32_t n_symbol)
{
    uint64_t hash = 1;
    struct rebuilt_order order[ORDER_MAX];
    for (uint32_t i = 0; i < n_symbol; i++) {
        uint32_t n = 0, n_side;
        for (int side = 0; side < 2; side++) {
            const uint32_t *shown = exchange_shown(ex, i, (enum exchange_side)side, &n_side);
            for (uint32_t k = 0; k < n_side; k++) {
                const struct exchange_order *o = exchange_get(ex, shown[k]);
                order[n++] = (struct rebuilt_order){o->ref, 0, o->price, o->qty, side ? 'S' : 'B'};
            }
        }
        hash = book_hash(hash, order, n);
    }
    return hash;
}

static uint64_t rebuilt_hash(const struct market_check *m)
{
    uint64_t hash = 1;
    for (uint32_t i = 0; i < m->n_book; i++)
        hash = book_hash(hash, m->book[i].order, m->book[i].n);
    return hash;
}

static struct rebuilt *book_of(struct market_check *m, uint16_t locate)
{
    for (uint32_t i = 0; i < m->n_book; i++)
        if (m->book[i].locate == locate)
            return &m->book[i];
    fail_msg("message %llu: locate %u was never announced", (unsigned long long)m->n, locate);
    return NULL;
}

static struct rebuilt_order *order_of(struct market_check *m, struct rebuilt *b, uint64_t ref)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (b->order[i].ref == ref)
            return &b->order[i];
    fail_msg("message %llu: unknown reference %llu", (unsigned long long)m->n, (unsigned long long)ref);
    return NULL;
}

static void add(struct market_check *m, struct rebuilt *b, uint64_t ref, uint8_t side, uint32_t qty,
                uint32_t price)
{
    assert_true(b->n < ORDER_MAX && qty > 0 && price > 0 && price <= 2000000000u);
    assert_int_equal(price % exchange_tick(price), 0);
    for (uint32_t i = 0; i < b->n; i++)
        assert_true(b->order[i].ref != ref);
    b->order[b->n++] = (struct rebuilt_order){ref, m->n, price, qty, side};
}

static void reduce(struct rebuilt *b, struct rebuilt_order *o, uint32_t qty)
{
    assert_true(qty > 0 && qty <= o->qty);
    o->qty -= qty;
    if (!o->qty)
        *o = b->order[--b->n];
}

static int trading(const struct market_check *m, const struct rebuilt *b)
{
    return m->hours == 1 && b->state == 'T' && !b->operational_halt;
}

/* An execution is of the oldest order of the best level. */
static void check_priority(const struct rebuilt *b, const struct rebuilt_order *o)
{
    for (uint32_t i = 0; i < b->n; i++) {
        const struct rebuilt_order *p = &b->order[i];
        if (p->side != o->side)
            continue;
        assert_false(o->side == 'B' ? p->price > o->price : p->price < o->price);
        assert_false(p->price == o->price && p->age < o->age);
    }
}

static void check_match(struct market_check *m, uint64_t match)
{
    assert_true(match > m->last_match);
    m->last_match = match;
}

/* Best prices and queues after an event of the book, seen only between two timestamps. */
static void look(struct market_check *m, struct rebuilt *b)
{
    uint32_t bid = 0, ask = UINT32_MAX;
    uint64_t bid_qty = 0, ask_qty = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct rebuilt_order *o = &b->order[i];
        if (o->side == 'B') {
            bid_qty = o->price > bid ? o->qty : o->price == bid ? bid_qty + o->qty : bid_qty;
            bid = o->price > bid ? o->price : bid;
        } else {
            ask_qty = o->price < ask ? o->qty : o->price == ask ? ask_qty + o->qty : ask_qty;
            ask = o->price < ask ? o->price : ask;
        }
    }
    if (m->hours < 2 && b->state == 'T' && !b->operational_halt && bid >= ask)
        fail_msg("message %llu: locate %u is crossed while trading", (unsigned long long)m->n, b->locate);
    if (!trading(m, b) || !bid_qty || !ask_qty)
        return;
    uint64_t mid2 = (uint64_t)bid + ask;
    if (b->mid2 && mid2 != b->mid2 && b->lean) {
        if ((mid2 > b->mid2) == (b->lean > 0))
            m->lean_right++;
        else
            m->lean_wrong++;
    }
    b->mid2 = mid2;
    b->lean = bid_qty > 2 * ask_qty ? 1 : ask_qty > 2 * bid_qty ? -1 : 0;
}

static void apply_order(struct market_check *m, const struct itch_msg *msg, struct rebuilt *b)
{
    struct rebuilt_order *o, old;
    switch (msg->type) {
    case 'A':
    case 'F':
        assert_memory_equal(msg->type == 'A' ? msg->add_order.stock : msg->add_order_mpid.stock, b->stock, 8);
        if (msg->type == 'A')
            add(m, b, msg->add_order.order_reference_number, msg->add_order.buy_sell_indicator,
                msg->add_order.shares, msg->add_order.price);
        else
            add(m, b, msg->add_order_mpid.order_reference_number, msg->add_order_mpid.buy_sell_indicator,
                msg->add_order_mpid.shares, msg->add_order_mpid.price);
        break;
    case 'E':
        o = order_of(m, b, msg->order_executed.order_reference_number);
        assert_true(trading(m, b));
        check_priority(b, o);
        check_match(m, msg->order_executed.match_number);
        reduce(b, o, msg->order_executed.executed_shares);
        break;
    case 'C':
        o = order_of(m, b, msg->order_executed_with_price.order_reference_number);
        check_priority(b, o);
        check_match(m, msg->order_executed_with_price.match_number);
        if (msg->order_executed_with_price.printable == 'Y') {
            assert_true(trading(m, b));
            assert_int_not_equal(msg->order_executed_with_price.execution_price, o->price);
        } else {
            assert_int_equal(msg->order_executed_with_price.printable, 'N');
        }
        reduce(b, o, msg->order_executed_with_price.executed_shares);
        break;
    case 'X':
        o = order_of(m, b, msg->order_cancel.order_reference_number);
        assert_true(msg->order_cancel.cancelled_shares < o->qty); /* all of it would be D */
        reduce(b, o, msg->order_cancel.cancelled_shares);
        break;
    case 'D':
        o = order_of(m, b, msg->order_delete.order_reference_number);
        reduce(b, o, o->qty);
        break;
    default:
        o = order_of(m, b, msg->order_replace.original_order_reference_number);
        old = *o;
        reduce(b, o, o->qty);
        add(m, b, msg->order_replace.new_order_reference_number, old.side, msg->order_replace.shares,
            msg->order_replace.price);
    }
}

static void apply(struct market_check *m, const uint8_t *body, uint16_t len)
{
    struct itch_msg msg;
    struct rebuilt *b;
    m->n++;
    assert_int_equal(itch_decode(body, len, &msg), len);
    assert_true(msg.timestamp_ns >= m->last_ts);
    m->last_ts = msg.timestamp_ns;
    m->by_type[msg.type]++;
    switch (msg.type) {
    case 'S':
        assert_true(m->n_events < 7);
        m->events[m->n_events++] = (char)msg.system_event.event_code;
        m->hours = msg.system_event.event_code == 'Q' ? 1 : msg.system_event.event_code == 'M' ? 2 : m->hours;
        break;
    case 'R':
        assert_true(m->n_book < N_SYMBOL_MAX && msg.locate > 0);
        b = &m->book[m->n_book++];
        b->locate = msg.locate;
        memcpy(b->stock, msg.stock_directory.stock, 8);
        for (uint32_t i = 0; i + 1 < m->n_book; i++)
            assert_true(m->book[i].locate != b->locate && memcmp(m->book[i].stock, b->stock, 8));
        break;
    case 'H':
        book_of(m, msg.locate)->state = (char)msg.stock_trading_action.trading_state;
        break;
    case 'h':
        book_of(m, msg.locate)->operational_halt = msg.operational_halt.operational_halt_action == 'H';
        break;
    case 'Q':
        check_match(m, msg.cross_trade.match_number);
        assert_true((msg.cross_trade.shares == 0) == (msg.cross_trade.cross_price == 0));
        book_of(m, msg.locate)->n_cross[msg.cross_trade.cross_type]++;
        break;
    case 'P':
        check_match(m, msg.trade.match_number);
        assert_true(trading(m, book_of(m, msg.locate)));
        assert_int_equal(msg.trade.order_reference_number, 0);
        break;
    case 'B':
        assert_true(msg.broken_trade.match_number <= m->last_match);
        break;
    case 'A':
    case 'F':
    case 'E':
    case 'C':
    case 'X':
    case 'D':
    case 'U':
        apply_order(m, &msg, book_of(m, msg.locate));
        break;
    default:
        assert_non_null(strchr("YLVIJ", msg.type));
    }
}

/* Rebuilds the market from the BinaryFILE and compares it with the exchange's own at every checkpoint. */
static struct market_check *rebuild(const struct checkpoint *point, uint32_t n_point)
{
    size_t len, i = 0;
    uint32_t k = 0;
    uint8_t *data = read_file(itch_path, &len);
    struct market_check *m = calloc(1, sizeof *m);
    assert_non_null(m);
    while (i < len) {
        uint16_t body = be_load_u16(data + i), locate = be_load_u16(data + i + 3);
        apply(m, data + i + 2, body);
        i += 2u + body;
        /* An event ends where the timestamp or the stock changes. */
        if (locate && memchr("AFECXDUHQ", data[i - body], 9) &&
            (i >= len || memcmp(data + i + 7, data + i - body + 5, 6) || be_load_u16(data + i + 3) != locate))
            look(m, book_of(m, locate));
        if (k < n_point && point[k].messages == m->n)
            assert_true(point[k++].hash == rebuilt_hash(m));
    }
    assert_int_equal(i, len);
    assert_int_equal(k, n_point);
    free(data);
    return m;
}

/* -- the wire ---------------------------------------------------------------------------------------------
 */

struct wire_check {
    const uint8_t *day; /* the BinaryFILE */
    size_t day_len, at;
    uint64_t next_seq, delivered, lost, end_seq;
    uint32_t n_gap;
    uint64_t gap_first[64], gap_count[64];
};

static void pass_over(struct wire_check *w, uint64_t count)
{
    for (; count; count--, w->next_seq++) {
        assert_true(w->at + 2 <= w->day_len);
        w->at += 2u + be_load_u16(w->day + w->at);
    }
}

static void on_message(void *ctx, uint64_t seq, const uint8_t *msg, uint16_t len, uint64_t arrival, int last)
{
    struct wire_check *w = ctx;
    (void)arrival;
    (void)last;
    assert_int_equal(seq, w->next_seq);
    assert_int_equal(be_load_u16(w->day + w->at), len);
    assert_memory_equal(w->day + w->at + 2, msg, len);
    pass_over(w, 1);
    w->delivered++;
}

static void on_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    struct wire_check *w = ctx;
    (void)now;
    assert_true(w->n_gap < 64 && first == w->next_seq);
    w->gap_first[w->n_gap] = first;
    w->gap_count[w->n_gap++] = count;
    w->lost += count;
    pass_over(w, count);
}

static void on_end(void *ctx, uint64_t next_seq)
{
    ((struct wire_check *)ctx)->end_seq = next_seq;
}

/* Sends the pcap through the receiver: every message is there, in order, but for the losses on both lines. */
static void check_wire(const struct synth_options *o, const struct feed_loss *loss, size_t n_loss,
                       const struct feed_totals *totals)
{
    char error[PCAP_ERRBUF_SIZE];
    struct wire_check w = {.next_seq = 1};
    struct mold_handler handler = {.message = on_message, .gap = on_gap, .end = on_end, .ctx = &w};
    struct mold_config config = {.n_store = 1 << 16, .gap_wait = 20000000, .first_seq = 1};
    struct mold *mold = mold_create(&config, &handler);
    uint8_t *day = read_file(itch_path, &w.day_len);
    w.day = day;
    pcap_t *pcap = pcap_open_offline_with_tstamp_precision(pcap_path, PCAP_TSTAMP_PRECISION_NANO, error);
    assert_non_null(pcap);
    assert_non_null(mold);
    struct pcap_pkthdr *header;
    const u_char *frame;
    uint64_t last_ns = 0, packets[2] = {0, 0}, line_seq[2] = {1, 1}, line_missing[2] = {0, 0},
             last_first[2] = {0, 0};
    uint64_t end_packets[2] = {0, 0}, largest = 0, lag_sum = 0, lag_n = 0, sent_ns[2] = {0, 0};
    int rc;
    while ((rc = pcap_next_ex(pcap, &header, &frame)) == 1) {
        struct packet_udp udp;
        uint64_t ns = (uint64_t)header->ts.tv_sec * 1000000000u + (uint64_t)header->ts.tv_usec;
        assert_true(ns >= last_ns);
        last_ns = ns;
        assert_int_equal(header->caplen, header->len);
        assert_int_equal(packet_parse(frame, header->caplen, 1, &udp), PACKET_OK);
        assert_int_equal(udp.vlan_id, o->vlan_id);
        assert_int_equal(udp.dst_port, 26477);
        int line = udp.dst_ip == 0xe931c46f;
        assert_true(line || udp.dst_ip == 0xe9360c6f);
        assert_true(udp.payload_len <= 1472);
        largest = udp.payload_len > largest ? udp.payload_len : largest;
        packets[line]++;
        uint64_t seq = be_load_u64(udp.payload + 10), count = be_load_u16(udp.payload + 18);
        if (count == MOLD_COUNT_END) {
            end_packets[line]++;
            count = 0;
        } else if (count) {
            /* After the feed time of the newest message, by some microseconds. */
            uint64_t feed_ns = be_load_u48(udp.payload + 22 + 5);
            uint64_t delay_ns = ns - 1771477200u * 1000000000ull - feed_ns;
            assert_in_range(delay_ns, 3000, 3000000u + 4u * o->lag_ns);
            if (last_first[line ^ 1] == seq) {
                lag_sum += ns - sent_ns[line ^ 1];
                lag_n++;
            }
            last_first[line] = seq;
            sent_ns[line] = ns;
        }
        assert_true(seq >= line_seq[line]); /* each line is in order */
        line_missing[line] += seq - line_seq[line];
        line_seq[line] = seq + count;
        assert_int_equal(
            mold_packet(mold, line ? MOLD_LINE_B : MOLD_LINE_A, udp.payload, udp.payload_len, ns), 0);
        mold_poll(mold, ns);
    }
    assert_int_equal(rc, PCAP_ERROR_BREAK);
    mold_flush(mold, last_ns);
    uint64_t expected_missing[2] = {0, 0}, lost = 0;
    uint32_t n_lost = 0, n_a = 0, n_b = 0;
    for (size_t i = 0; i < n_loss; i++) {
        for (int line = 0; line < 2; line++)
            expected_missing[line] += loss[i].lines & 1u << line ? loss[i].count : 0;
        n_a += loss[i].lines == FEED_LINE_A;
        n_b += loss[i].lines == FEED_LINE_B;
        if (loss[i].lines == (FEED_LINE_A | FEED_LINE_B)) {
            assert_int_equal(w.gap_first[n_lost], loss[i].first_seq);
            assert_int_equal(w.gap_count[n_lost], loss[i].count);
            lost += loss[i].count;
            n_lost++;
        }
    }
    assert_int_equal(n_a, o->n_gap);
    assert_int_equal(n_b, (o->n_gap + 2) / 3);
    assert_int_equal(n_lost, o->n_lost_gap);
    assert_int_equal(w.n_gap, n_lost);
    const struct mold_counters *c = mold_counters(mold);
    assert_int_equal(c->malformed + c->foreign_session + c->trailing_bytes + c->store_overflow, 0);
    assert_int_equal(c->messages_lost, lost);
    assert_int_equal(w.delivered + lost, totals->messages);
    assert_int_equal(w.at, w.day_len);
    assert_int_equal(w.end_seq, totals->messages + 1);
    for (int line = 0; line < 2; line++) {
        assert_int_equal(line_missing[line], expected_missing[line]);
        assert_int_equal(packets[line], totals->packets[line]);
        assert_int_equal(end_packets[line], 3);
    }
    assert_true(c->first_wins[MOLD_LINE_A] > 3 * c->first_wins[MOLD_LINE_B] || o->lag_ns == 0);
    assert_true(c->first_wins[MOLD_LINE_B] > 0 && totals->b_first > 0);
    assert_true(lag_n > 0 && lag_sum / lag_n >= o->lag_ns / 2);
    assert_true(largest > 200);
    pcap_close(pcap);
    mold_free(mold);
    free(day);
}

/* -- days -------------------------------------------------------------------------------------------------
 */

static void check_day(const struct synth_options *o)
{
    static struct checkpoint point[CHECKPOINT_MAX];
    char error[FEED_ERROR_CHARS];
    uint32_t n_point = 0;
    int rc;
    struct synth *synth = synth_open(o, error);
    assert_non_null(synth);
    const struct exchange *ex = synth_exchange(synth);
    while ((rc = synth_run(synth, 997)) == 1)
        if (n_point < CHECKPOINT_MAX && exchange_n_messages(ex) &&
            (!n_point || exchange_n_messages(ex) > point[n_point - 1].messages))
            point[n_point++] = (struct checkpoint){exchange_n_messages(ex), exchange_hash(ex, o->n_symbol)};
    assert_int_equal(rc, 0);
    assert_true(n_point > 20);
    size_t n_loss, n_halt, n_burst;
    const struct feed_loss *now = feed_losses(synth_feed(synth), &n_loss);
    struct feed_loss loss[64];
    struct feed_totals totals = *feed_totals(synth_feed(synth));
    assert_true(n_loss <= 64);
    if (n_loss)
        memcpy(loss, now, n_loss * sizeof *loss);
    const struct synth_halt *halt = synth_halts(synth, &n_halt);
    const struct synth_burst *burst = synth_bursts(synth, &n_burst);
    assert_int_equal(n_halt, o->n_halt);
    assert_int_equal(n_burst, o->n_burst);
    uint32_t n_frozen = 0, n_paused = 0;
    for (size_t i = 0; i < n_halt; i++) {
        assert_true(halt[i].to_ns > halt[i].from_ns);
        n_frozen += !strcmp(halt[i].reason, "OPER");
        n_paused += !strcmp(halt[i].reason, "LUDP");
    }
    for (size_t i = 0; i < n_burst; i++) {
        assert_in_range(burst[i].messages, 100, 400 + 20); /* the last order may trade with several */
        assert_true(burst[i].to_ns - burst[i].from_ns < 300000);
        assert_true(burst[i].symbols > o->n_symbol / 2);
    }
    struct flow_truth truth;
    flow_truth(synth_flow(synth), &truth);
    assert_true(truth.n_right * 100 > truth.n_up_down * 65); /* the hidden pressure does move prices */
    assert_true(truth.n_right * 100 < truth.n_up_down * 97); /* but not it alone */
    for (int type = 0; type < 256; type++)
        if (exchange_by_type(ex)[type])
            assert_int_equal(itch_message_bytes((uint8_t)type) > 0, 1);
    assert_int_equal(synth_close(synth, error), 0);

    struct market_check *m = rebuild(point, n_point);
    assert_string_equal(m->events, "OSQMEC");
    assert_int_equal(m->n, totals.messages);
    assert_int_equal(m->n_book, o->n_symbol);
    assert_int_equal(m->by_type['h'], 2 * n_frozen);
    assert_int_equal(m->by_type['J'], n_paused);
    uint64_t reopened = 0;
    for (uint32_t i = 0; i < m->n_book; i++) {
        assert_int_equal(m->book[i].n_cross['O'], 1);
        assert_int_equal(m->book[i].n_cross['C'], 1);
        assert_int_equal(m->book[i].state, 'T');
        reopened += m->book[i].n_cross['H'];
    }
    assert_int_equal(reopened, o->n_halt - n_frozen);
    /* Queue imbalance calls the next move more often than not: what the features live on. */
    assert_true(m->lean_right * 100 > (m->lean_right + m->lean_wrong) * 55);
    check_wire(o, loss, n_loss, &totals);
    free(m);
}

static void default_like_day(void **state)
{
    struct synth_options o;
    (void)state;
    small_day(&o, 1);
    o.n_burst = 4;
    check_day(&o);
}

static void day_with_many_losses_and_halts(void **state)
{
    struct synth_options o;
    (void)state;
    small_day(&o, 2);
    o.n_gap = 20;
    o.n_lost_gap = 5;
    o.n_halt = 7;
    o.n_burst = 9;
    o.vlan_id = 141;
    o.lag_ns = 250000;
    check_day(&o);
}

static void plain_day(void **state)
{
    struct synth_options o;
    (void)state;
    small_day(&o, UINT64_MAX);
    o.n_symbol = 3;
    o.n_gap = o.n_lost_gap = o.n_halt = o.n_burst = 0;
    o.lag_ns = 0;
    check_day(&o);
}

static void busy_day(void **state)
{
    struct synth_options o;
    (void)state;
    small_day(&o, 4);
    o.n_symbol = 40;
    o.seconds = 1;
    o.messages = 50000;
    o.n_burst = 2;
    o.n_halt = 0;
    check_day(&o);
}

/* Shares of a real day: about 45 % A, 43 % D, 6 % U, 3 % E in public samples; ours trades more. */
static void message_mix(void **state)
{
    static const struct {
        char type;
        double low, high; /* per cent */
    } band[] = {{'A', 38, 50}, {'F', 0.5, 4}, {'D', 32, 46}, {'U', 3, 9},
                {'E', 3, 10},  {'C', 0.1, 2}, {'X', 0.3, 3}, {'P', 0.5, 4}};
    struct synth_options o;
    char error[FEED_ERROR_CHARS];
    (void)state;
    small_day(&o, 3);
    o.n_symbol = 30;
    o.seconds = 0;
    o.messages = 120000;
    o.rate = 12000;
    struct synth *synth = synth_open(&o, error);
    assert_non_null(synth);
    while (synth_run(synth, 1000) == 1)
        ;
    double total = (double)exchange_n_messages(synth_exchange(synth));
    assert_true(total > 0.98 * 120000 && total < 1.02 * 120000);
    for (size_t i = 0; i < sizeof band / sizeof band[0]; i++) {
        double share = 100.0 * (double)exchange_by_type(synth_exchange(synth))[(uint8_t)band[i].type] / total;
        if (share < band[i].low || share > band[i].high)
            fail_msg("%c: %.2f %%", band[i].type, share);
    }
    /* From below a dollar to above 100,000, on their grids. */
    uint32_t low = UINT32_MAX, high = 0;
    for (uint32_t i = 0; i < o.n_symbol; i++) {
        uint32_t price = flow_reference(synth_flow(synth), i);
        low = price < low ? price : low;
        high = price > high ? price : high;
    }
    assert_true(low < 10000 && high > 1000000000);
    assert_int_equal(synth_close(synth, error), 0);
}

/* -- the command -------------------------------------------------------------------------------------------
 */

static void assert_fails(int status, const char *says, const char *arguments)
{
    struct command_result result = command_run("synth %s", arguments);
    if (result.status != status || !strstr(result.err, says))
        fail_msg("synth %s: status %d, says: %s", arguments, result.status, result.err);
    command_free(&result);
}

static void command_summary(void **state)
{
    json_error_t error;
    (void)state;
    struct command_result result =
        command_run("synth --out %s --itch %s --seed 5 --symbols 6 --seconds 3 --rate 5k --gaps 3 "
                    "--lost-gaps 2 --halts 3 --bursts 2 --json",
                    pcap_path, itch_path);
    assert_int_equal(result.status, 0);
    json_t *j = json_loads(result.out, 0, &error);
    assert_non_null(j);
    size_t len;
    free(read_file(pcap_path, &len));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "bytes"), "pcap")), len);
    free(read_file(itch_path, &len));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "bytes"), "itch")), len);
    assert_int_equal(json_array_size(json_object_get(j, "gaps")), 3 + 1);
    assert_int_equal(json_array_size(json_object_get(j, "lost")), 2);
    assert_int_equal(json_array_size(json_object_get(j, "halts")), 3);
    assert_int_equal(json_array_size(json_object_get(j, "bursts")), 2);
    assert_int_equal(json_array_size(json_object_get(j, "symbols")), 6);
    assert_int_equal(json_integer_value(json_object_get(j, "seed")), 5);
    assert_int_equal(json_integer_value(json_object_get(j, "seconds")), 3);
    json_int_t sum = 0;
    const char *type;
    json_t *count;
    json_object_foreach(json_object_get(j, "messages_by_type"), type, count) sum += json_integer_value(count);
    assert_int_equal(sum, json_integer_value(json_object_get(j, "messages")));
    assert_true(sum > 15000);
    json_decref(j);
    command_free(&result);
    result = command_run("synth --help");
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.out, "--lost-gaps"));
    command_free(&result);
}

static void command_errors(void **state)
{
    static const struct {
        const char *arguments, *says;
        int status;
    } wrong[] = {
        {"", "--out", 2},
        {"--out", "help", 2},
        {"--out /tmp --nonsense", "help", 2},
        {"--out /tmp stray", "stray", 2},
        {"--out /tmp --symbols 0", "1 to 8000", 2},
        {"--out /tmp --symbols 8001", "1 to 8000", 2},
        {"--out /tmp --seed -1", "--seed", 2},
        {"--out /tmp --seed 1x", "--seed", 2},
        {"--out /tmp --vlan 4095", "4094", 2},
        {"--out /tmp --lag-us 5001", "5000", 2},
        {"--out /tmp --itch /tmp", "same file", 2},
        {"--out /tmp --messages 10k --seconds 5 --rate 1k", "contradict", 2},
        {"--out /tmp --messages 10G --seconds 1", "rate", 1},
        {"--out /tmp", "/tmp: cannot be written", 1},
        {"--out /nonexistent/day.pcap", "/nonexistent/day.pcap: cannot be written", 1},
        {"--out /dev/full --seconds 1", "/dev/full: writing failed", 1},
    };
    char arguments[512];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_fails(wrong[i].status, wrong[i].says, wrong[i].arguments);
    /* A failure of one file leaves none of the two behind. */
    snprintf(arguments, sizeof arguments, "--out %s --itch /dev/full --seconds 1", pcap_path);
    assert_fails(1, "/dev/full: writing failed: No space left", arguments);
    assert_int_not_equal(access(pcap_path, F_OK), 0);
    snprintf(arguments, sizeof arguments, "--out %s --itch /nonexistent/day", pcap_path);
    assert_fails(1, "/nonexistent/day", arguments);
    assert_int_not_equal(access(pcap_path, F_OK), 0);
    /* More losses than packets: written, and said. */
    snprintf(arguments, sizeof arguments, "--out %s --seconds 1 --rate 100 --bursts 0 --gaps 900", pcap_path);
    assert_fails(1, "losses fitted in", arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(default_like_day),
        cmocka_unit_test(day_with_many_losses_and_halts),
        cmocka_unit_test(plain_day),
        cmocka_unit_test(busy_day),
        cmocka_unit_test(message_mix),
        cmocka_unit_test(command_summary),
        cmocka_unit_test(command_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
