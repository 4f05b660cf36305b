/* The input is a configuration (4 bytes) and a sequence of steps, each one frame or a pause. Half of the
 * steps are good packets: MoldUDP64 around messages of few locates and references, so that orders collide.
 * The others are repeats on the other line, raw payloads, raw frames, damaged frames, pauses.
 *
 * The same frames go to a model: headers and sequence by the product's own readers (they have targets of
 * their own), books by a list of orders. Properties: intake delivers exactly these messages; after each of
 * them the books, their BBO and their levels are the list's; nothing that proved a book wrong leaves it
 * reliable; ticks are of subscribed symbols, with the book's BBO, and their features are finite; counters add
 * up. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/intake.h"

enum {
    N_LOCATE = 5, /* 0 too */
    N_REF = 24,
    N_ORDER_MAX = 96,
    N_PAYLOAD = 2048,
    N_HISTORY = 8,
    N_STORE = 1 << 16,        /* as intake.c's */
    N_EVENT = N_STORE + 2048, /* news of one frame: messages kept behind a hole come at once */
    PORT = 26477,
};
static const uint32_t group_of[MOLD_N_LINE] = {0xe9360c6f, 0xe931c46f};
static const char symbols[][9] = {"A", "BB", "CCC"};
enum { N_SYMBOL = sizeof(symbols) / sizeof(symbols[0]) };

struct order {
    uint64_t ref;
    uint32_t price, qty;
    uint16_t locate;
    uint8_t side;
};

/* What the model's sequence says that intake must do next. */
struct news {
    enum { NEWS_MESSAGE, NEWS_GAP, NEWS_END } kind;
    uint64_t seq, count;
    uint8_t msg[64];
    uint16_t len;
};

struct rig {
    struct intake *intake;
    struct mold *mold;
    struct intake_config config;
    struct news news[N_EVENT];
    size_t n_news, next_news;
    struct order order[N_ORDER_MAX];
    size_t n_order;
    uint64_t full, messages, ticks, now;
    char symbol[BOOK_N_LOCATE][8];
    uint8_t wrong[BOOK_N_LOCATE]; /* proved since the session's start; never reliable in strict */
    uint8_t all_wrong, begun;
    uint8_t used[BOOK_N_LOCATE];
    uint16_t used_list[BOOK_N_LOCATE];
    size_t n_used;
};
static struct rig rig;

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t take(struct input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

/* ---- the list of orders ---- */

static struct order *order_find(uint64_t ref)
{
    for (size_t i = 0; i < rig.n_order; i++)
        if (rig.order[i].ref == ref)
            return &rig.order[i];
    return NULL;
}

static void order_remove(struct order *o)
{
    *o = rig.order[--rig.n_order];
}

static struct book_level model_level(uint16_t locate, unsigned side, uint32_t price)
{
    struct book_level level = {.price = price};
    for (size_t i = 0; i < rig.n_order; i++) {
        const struct order *o = &rig.order[i];
        if (o->locate == locate && o->side == side && o->price == price) {
            level.qty += o->qty;
            level.n_order++;
        }
    }
    return level;
}

/* The book found no room: only with the table or the level pool full, or too fragmented for another block. */
static int is_full(void)
{
    const struct book_counters *c = book_counters(market_books(intake_market(rig.intake)));
    if (c->full == rig.full)
        return 0;
    assert(c->full == ++rig.full);
    return 1;
}

static void proved_wrong(uint16_t locate)
{
    rig.wrong[locate] = 1;
}

static void model_add(uint16_t locate, uint64_t ref, uint8_t side, uint32_t qty, uint32_t price)
{
    if (order_find(ref) || qty == 0 || is_full()) {
        proved_wrong(locate);
        return;
    }
    assert(rig.n_order < rig.config.market.limits.n_order);
    rig.order[rig.n_order++] = (struct order){ref, price, qty, locate, side};
}

/* directory: R, which renames; an order only names what has no name yet. */
static void model_name(uint16_t locate, const char stock[8], int directory)
{
    static const char unknown[] = "        ";
    char *symbol = rig.symbol[locate];
    int known = memcmp(symbol, unknown, 8) != 0;
    if (!locate)
        return;
    if (known && memcmp(symbol, stock, 8) != 0)
        proved_wrong(locate);
    if (!known || directory)
        memcpy(symbol, stock, 8);
}

static struct order *model_order(uint16_t locate, uint64_t ref)
{
    struct order *o = order_find(ref);
    if (o && o->locate == locate)
        return o;
    proved_wrong(locate);
    return NULL;
}

static void model_reduce(uint16_t locate, uint64_t ref, uint32_t qty)
{
    struct order *o = model_order(locate, ref);
    if (!o)
        return;
    if (qty == 0 || qty > o->qty)
        proved_wrong(locate);
    if (qty >= o->qty)
        order_remove(o);
    else
        o->qty -= qty;
}

static void model_replace(uint16_t locate, const struct itch_order_replace *u)
{
    uint64_t ref = u->original_order_reference_number, new_ref = u->new_order_reference_number;
    struct order *o = model_order(locate, ref);
    if (!o)
        return;
    if ((new_ref != ref && order_find(new_ref)) || u->shares == 0) {
        proved_wrong(locate);
        return;
    }
    uint8_t side = o->side;
    order_remove(o);
    model_add(locate, new_ref, side, u->shares, u->price);
}

static void model_order_message(uint16_t locate, const struct itch_add_order *a)
{
    model_name(locate, a->stock, 0);
    if (a->buy_sell_indicator == 'B' || a->buy_sell_indicator == 'S')
        model_add(locate, a->order_reference_number, a->buy_sell_indicator == 'S', a->shares, a->price);
    else
        proved_wrong(locate);
}

static void model_apply(const uint8_t *msg, uint16_t len)
{
    struct itch_msg m;
    int status = itch_decode(msg, len, &m);
    if (len > 0 && !rig.begun) {
        rig.begun = 1;
        rig.all_wrong |= !(len >= 12 && msg[0] == 'S' && msg[11] == 'O');
    }
    if (status == ITCH_SHORT && len > 0) {
        if (len >= ITCH_HEADER_BYTES)
            proved_wrong(be_load_u16(msg + 1));
        else
            rig.all_wrong = 1;
    }
    if (status < 0)
        return;
    switch (m.type) {
    case 'A':
        model_order_message(m.locate, &m.add_order);
        break;
    case 'F': {
        const struct itch_add_order_mpid f = m.add_order_mpid;
        struct itch_add_order a = {.order_reference_number = f.order_reference_number,
                                   .buy_sell_indicator = f.buy_sell_indicator,
                                   .shares = f.shares,
                                   .price = f.price};
        memcpy(a.stock, f.stock, 8);
        model_order_message(m.locate, &a);
        break;
    }
    case 'R':
        model_name(m.locate, m.stock_directory.stock, 1);
        break;
    case 'E':
        model_reduce(m.locate, m.order_executed.order_reference_number, m.order_executed.executed_shares);
        break;
    case 'C':
        model_reduce(m.locate, m.order_executed_with_price.order_reference_number,
                     m.order_executed_with_price.executed_shares);
        break;
    case 'X':
        model_reduce(m.locate, m.order_cancel.order_reference_number, m.order_cancel.cancelled_shares);
        break;
    case 'D': {
        struct order *o = model_order(m.locate, m.order_delete.order_reference_number);
        if (o)
            order_remove(o);
        break;
    }
    case 'U':
        model_replace(m.locate, &m.order_replace);
        break;
    default:
        break;
    }
}

static void model_new_session(void)
{
    rig.n_order = 0;
    rig.begun = rig.all_wrong = 0;
    memset(rig.wrong, 0, sizeof(rig.wrong));
    memset(rig.symbol, ' ', sizeof(rig.symbol));
}

/* ---- comparing ---- */

static void check_book(uint16_t locate)
{
    const struct book_set *books = market_books(intake_market(rig.intake));
    struct book_level level[128];
    struct book_bbo bbo;
    size_t n_order = 0, n_expected = 0;
    book_bbo(books, locate, &bbo);
    for (unsigned side = BOOK_BID; side <= BOOK_ASK; side++) {
        size_t n = book_levels(books, locate, (enum book_side)side, level, 128);
        assert(n == book_depth(books, locate, (enum book_side)side));
        for (size_t i = 0; i < n; i++) {
            struct book_level expected = model_level(locate, side, level[i].price);
            assert(level[i].qty > 0 && level[i].n_order > 0);
            assert(level[i].qty == expected.qty && level[i].n_order == expected.n_order);
            assert(i == 0 || (side == BOOK_BID ? level[i].price < level[i - 1].price
                                               : level[i].price > level[i - 1].price));
            n_order += level[i].n_order;
        }
        uint32_t price = side == BOOK_BID ? bbo.bid_price : bbo.ask_price;
        uint64_t qty = side == BOOK_BID ? bbo.bid_qty : bbo.ask_qty;
        assert(n ? price == level[0].price && qty == level[0].qty : price == 0 && qty == 0);
    }
    for (size_t i = 0; i < rig.n_order; i++)
        n_expected += rig.order[i].locate == locate;
    assert(n_order == n_expected);
}

static void check_counters(void)
{
    const struct intake_counters *in = intake_counters(rig.intake);
    const struct mold_counters *mold = intake_mold(rig.intake), *mine = mold_counters(rig.mold);
    const struct market_counters *market = market_counters(intake_market(rig.intake));
    const struct book_counters *book = book_counters(market_books(intake_market(rig.intake)));
    uint64_t frames = 0, types = 0;
    for (int i = 0; i < 8; i++)
        frames += in->packet_status[i];
    for (int i = 0; i < 256; i++)
        types += market->by_type[i];
    assert(frames == in->frames);
    assert(in->packet_status[0] == in->filtered + mold->packets[0] + mold->packets[1]);
    assert(!memcmp(mold, mine, sizeof(*mine)));
    assert(mold->messages == rig.messages && market->messages == rig.messages && types <= rig.messages);
    assert(book->n_order == rig.n_order && book->n_level <= book->n_order);
    assert(book->n_order_peak <= rig.config.market.limits.n_order);
}

/* ---- what the model's sequence delivers ---- */

static struct news *news_add(void)
{
    assert(rig.n_news < N_EVENT);
    return &rig.news[rig.n_news++];
}

static void expect_message(void *ctx, uint64_t seq, const uint8_t *msg, uint16_t len, uint64_t arrival,
                           int last)
{
    (void)ctx, (void)arrival, (void)last;
    struct news *n = news_add();
    *n = (struct news){.kind = NEWS_MESSAGE, .seq = seq, .len = len};
    memcpy(n->msg, msg, len < sizeof(n->msg) ? len : sizeof(n->msg));
}

static void expect_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    (void)ctx, (void)now;
    *news_add() = (struct news){.kind = NEWS_GAP, .seq = first, .count = count};
}

static void expect_end(void *ctx, uint64_t next)
{
    (void)ctx;
    *news_add() = (struct news){.kind = NEWS_END, .seq = next};
}

static void expect_session(void *ctx, const uint8_t session[MOLD_SESSION_BYTES])
{
    (void)ctx, (void)session;
    /* It comes before anything else of its packet, and intake says nothing of it. */
    assert(rig.n_news == rig.next_news);
    model_new_session();
}

/* ---- what intake says ---- */

static const struct news *news_take(int kind)
{
    assert(rig.next_news < rig.n_news && (int)rig.news[rig.next_news].kind == kind);
    return &rig.news[rig.next_news++];
}

static void on_message(void *ctx, uint64_t seq, const struct market_event *event)
{
    (void)ctx;
    const struct news *n = news_take(NEWS_MESSAGE);
    assert(seq == n->seq && event->type == (n->len ? n->msg[0] : 0));
    rig.messages++;
    model_apply(n->msg, n->len);
    assert(book_counters(market_books(intake_market(rig.intake)))->full == rig.full);
    uint16_t locate = n->len >= ITCH_HEADER_BYTES ? be_load_u16(n->msg + 1) : 0;
    assert(event->locate == locate || event->locate == 0);
    assert(!memcmp(market_symbol(intake_market(rig.intake), locate), rig.symbol[locate], 8));
    if (!rig.used[locate]) {
        rig.used[locate] = 1;
        rig.used_list[rig.n_used++] = locate;
    }
    check_book(locate);
    if (rig.config.market.join == MARKET_JOIN_STRICT && (rig.wrong[locate] || rig.all_wrong))
        assert(!market_reliable(intake_market(rig.intake), locate, UINT64_MAX - 1));
}

static void on_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    (void)ctx, (void)now;
    const struct news *n = news_take(NEWS_GAP);
    assert(first == n->seq && count == n->count);
    rig.all_wrong = 1;
    for (size_t i = 0; i < rig.n_used; i++)
        assert(!market_reliable(intake_market(rig.intake), rig.used_list[i], UINT64_MAX - 1));
}

static void on_end(void *ctx, uint64_t next)
{
    (void)ctx;
    assert(next == news_take(NEWS_END)->seq);
}

static void on_tick(void *ctx, const struct intake_tick *tick)
{
    (void)ctx;
    const struct market *market = intake_market(rig.intake);
    struct book_bbo bbo;
    rig.ticks++;
    assert(tick->stream < KL_N_STREAM_MAX && tick->locate && tick->arrival <= rig.now);
    if (rig.config.symbols) {
        int subscribed = 0;
        for (int i = 0; i < N_SYMBOL; i++) {
            char padded[8];
            memset(padded, ' ', sizeof(padded));
            memcpy(padded, symbols[i], strlen(symbols[i]));
            subscribed |= !memcmp(padded, market_symbol(market, tick->locate), 8);
        }
        assert(subscribed && tick->stream < N_SYMBOL);
    }
    market_bbo(market, tick->locate, &bbo);
    assert(!memcmp(&bbo, &tick->bbo, sizeof(bbo)));
    assert(tick->reliable == market_reliable(market, tick->locate, tick->feed_ts_ns));
    assert(tick->trading == market_trading(market, tick->locate));
    if (tick->reliable && tick->trading && bbo.bid_qty && bbo.ask_qty)
        assert(bbo.bid_price < bbo.ask_price);
    if (rig.config.market.join == MARKET_JOIN_STRICT)
        assert(!tick->reliable || !(rig.all_wrong || rig.wrong[tick->locate]));
    float raw[FEATURES_N];
    features_tick(intake_features(rig.intake), tick->stream, tick->locate, tick->feed_ts_ns,
                  market_books(market), raw);
    for (int i = 0; i < FEATURES_N; i++)
        assert(isfinite(raw[i]));
}

/* ---- frames ---- */

/* One frame to both, from a buffer of its exact size. */
static void send_frame(const uint8_t *frame, size_t len)
{
    uint8_t *exact = malloc(len ? len : 1);
    struct packet_udp udp;
    assert(exact);
    memcpy(exact, frame, len);
    rig.n_news = rig.next_news = 0;
    if (packet_parse(exact, len, rig.config.verify_checksum, &udp) == PACKET_OK)
        for (int line = 0; line < MOLD_N_LINE; line++)
            if (udp.dst_ip == group_of[line] && udp.dst_port == PORT)
                mold_packet(rig.mold, (enum mold_line)line, udp.payload, udp.payload_len, rig.now);
    intake_frame(rig.intake, exact, (uint32_t)len, rig.now);
    free(exact);
}

static void pause_for(uint64_t time, int flush)
{
    rig.now += time;
    rig.n_news = rig.next_news = 0;
    if (flush) {
        mold_flush(rig.mold, rig.now);
        intake_flush(rig.intake, rig.now);
    } else {
        uint64_t due = mold_poll(rig.mold, rig.now);
        assert(intake_poll(rig.intake, rig.now) == due);
    }
}

static void check_all(void)
{
    assert(rig.next_news == rig.n_news); /* nothing was kept from us */
    for (size_t i = 0; i < rig.n_used; i++)
        check_book(rig.used_list[i]);
    check_counters();
}

static void fill_symbol(char out[8], unsigned which)
{
    static const char others[][9] = {"D       ", "        ", "\0\0\0\0\0\0\0\0"};
    memset(out, ' ', 8);
    if (which < N_SYMBOL)
        memcpy(out, symbols[which], strlen(symbols[which]));
    else
        memcpy(out, others[(which - N_SYMBOL) % 3], 8);
}

/* Few values, so that they meet; at times the edges of their type. */
static uint32_t take_u32(struct input *in, uint32_t first)
{
    uint8_t b = take(in);
    return b >= 0xfc ? UINT32_MAX - (b & 1) : b >= 0xf8 ? b & 1u : first + b % 12;
}

static uint64_t take_ref(struct input *in)
{
    uint8_t b = take(in);
    return b == 0xff ? UINT64_MAX : (uint64_t)(b % N_REF) << (b & 0x40 ? 4 : 0);
}

/* One message of fuzz bytes at out; its bytes. */
static size_t put_message(struct input *in, uint8_t *out)
{
    static const char types[] = "AAAAFFEECXXDDUUURHHhSSPQ";
    uint8_t pick = take(in), where = take(in);
    struct itch_msg m = {.type = (uint8_t)types[pick % (sizeof(types) - 1)],
                         .locate = where % N_LOCATE,
                         .timestamp_ns = (uint64_t)where * 1000 + rig.messages};
    switch (m.type) {
    case 'A':
    case 'F':
        m.add_order.order_reference_number = take_ref(in);
        m.add_order.buy_sell_indicator = "BSBSBSB?"[where / 8 % 8];
        m.add_order.shares = take_u32(in, 1);
        m.add_order.price = take_u32(in, 1000);
        fill_symbol(m.add_order.stock, where >= 0xf0 ? where % 6 : (unsigned)(where % N_LOCATE));
        if (m.type == 'F') {
            struct itch_add_order a = m.add_order;
            m.add_order_mpid =
                (struct itch_add_order_mpid){.order_reference_number = a.order_reference_number,
                                             .buy_sell_indicator = a.buy_sell_indicator,
                                             .shares = a.shares,
                                             .price = a.price};
            memcpy(m.add_order_mpid.stock, a.stock, 8);
        }
        break;
    case 'E':
    case 'X':
    case 'C':
    case 'D':
        m.order_executed.order_reference_number = take_ref(in);
        if (m.type != 'D') {
            uint32_t qty = take_u32(in, 1);
            m.order_executed.executed_shares = qty;
        }
        if (m.type == 'C') {
            m.order_executed_with_price.printable = "YN?"[where / 8 % 3];
            m.order_executed_with_price.execution_price = take_u32(in, 1000);
        }
        break;
    case 'U':
        m.order_replace.original_order_reference_number = take_ref(in);
        m.order_replace.new_order_reference_number = take_ref(in);
        m.order_replace.shares = take_u32(in, 1);
        m.order_replace.price = take_u32(in, 1000);
        break;
    case 'R':
        fill_symbol(m.stock_directory.stock, where / 8 % 6);
        break;
    case 'H':
        fill_symbol(m.stock_trading_action.stock, (unsigned)(where % N_LOCATE));
        m.stock_trading_action.trading_state = (uint8_t) "TTTHQP\0?"[where / 8 % 8];
        break;
    case 'h':
        m.operational_halt.market_code = (uint8_t) "QQBX"[where / 8 % 4];
        m.operational_halt.operational_halt_action = (uint8_t) "TTH?"[where / 32 % 4];
        break;
    case 'S':
        m.system_event.event_code = (uint8_t) "OSQMECQ?"[where / 8 % 8];
        break;
    default:
        break;
    }
    uint8_t body[ITCH_MESSAGE_BYTES_MAX + 4] = {0};
    int n = itch_encode(&m, body, ITCH_MESSAGE_BYTES_MAX);
    assert(n > 0);
    if (pick >= 0xf8) /* cut short, longer, empty, another type */
        n = pick == 0xff ? 0 : pick & 1 ? n + 4 : pick & 2 ? n / 2 : (body[0] = take(in), n);
    out[0] = 0;
    out[1] = (uint8_t)n;
    memcpy(out + 2, body, (size_t)n);
    return 2 + (size_t)n;
}

struct payload {
    uint16_t len;
    uint8_t bytes[N_PAYLOAD];
};

static void send_payload(const struct payload *p, unsigned line, unsigned damage)
{
    uint8_t frame[PACKET_HEADERS_MAX + N_PAYLOAD];
    size_t len = packet_build(frame, 0x0a000001, 5000, line == 2 ? 0xe0000001 : group_of[line % MOLD_N_LINE],
                              PORT, damage % 16 == 1 ? 7 : 0, p->bytes, p->len);
    if (damage >= 0xc0) { /* one bit, or the end */
        if (damage & 1)
            len -= damage % 64 < len ? damage % 64 : len;
        else
            frame[damage * 5 % len] ^= (uint8_t)(1u << damage / 2 % 8);
    }
    send_frame(frame, len);
}

static void send_start(struct payload *p, const char *session, uint64_t seq)
{
    struct itch_msg m = {.type = 'S', .system_event = {.event_code = 'O'}};
    mold_write_header(p->bytes, (const uint8_t *)session, seq, 1);
    int n = itch_encode(&m, p->bytes + MOLD_HEADER_BYTES + 2, ITCH_MESSAGE_BYTES_MAX);
    p->bytes[MOLD_HEADER_BYTES] = 0;
    p->bytes[MOLD_HEADER_BYTES + 1] = (uint8_t)n;
    p->len = (uint16_t)(MOLD_HEADER_BYTES + 2 + n);
    send_payload(p, MOLD_LINE_A, 0);
}

static void raw(struct input *in, uint8_t *out, uint16_t *len, size_t most)
{
    size_t n = take(in);
    n = n < in->size ? n : in->size;
    n = n < most ? n : most;
    memcpy(out, in->data, n);
    in->data += n;
    in->size -= n;
    *len = (uint16_t)n;
}

static void open_rig(struct input *in)
{
    uint8_t how = take(in), limit = take(in), wait = take(in), settle = take(in);
    memset(rig.used, 0, sizeof(rig.used));
    model_new_session();
    rig.n_used = rig.n_news = rig.next_news = 0;
    rig.full = rig.messages = rig.ticks = 0;
    rig.now = 1;
    rig.config =
        (struct intake_config){.line = {{group_of[0], PORT}, {group_of[1], PORT}},
                               .verify_checksum = how & 1,
                               .gap_wait = wait % 64,
                               .trigger = (enum intake_trigger)(how / 2 % 3),
                               .symbols = how & 8 ? symbols : NULL,
                               .n_symbol = N_SYMBOL,
                               .market = {.join = how & 16 ? MARKET_JOIN_STRICT : MARKET_JOIN_SETTLED,
                                          .settle_ns = settle * 100u,
                                          .limits = {.n_order = limit & 1 ? 1u + limit / 8 : N_ORDER_MAX,
                                                     .n_level = limit & 2 ? 1u + limit / 16 : N_ORDER_MAX}}};
    const struct intake_handler on = {
        .tick = on_tick, .message = on_message, .gap = on_gap, .session_end = on_end};
    const struct mold_config mold = {.n_store = N_STORE, .gap_wait = rig.config.gap_wait};
    const struct mold_handler expect = {
        .message = expect_message, .gap = expect_gap, .end = expect_end, .new_session = expect_session};
    rig.intake = intake_create(&rig.config, &on);
    rig.mold = mold_create(&mold, &expect);
    assert(rig.intake && rig.mold);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sessions[] = {"SESSION  1", "SESSION  2"};
    static struct payload history[N_HISTORY];
    struct input in = {data, size};
    uint64_t next = 1; /* number of the next packet */
    unsigned session = 0, n_sent = 0;
    memset(history, 0, sizeof(history));
    if (size > 4096) /* the model is quadratic */
        return 0;
    if (size > 0 && data[0] & 32) /* joined close to the end of the numbers */
        next = UINT64_MAX - 1000;
    open_rig(&in);
    if (size > 0 && data[0] & 64) /* seen from its start on: only then a strict book is ever reliable */
        send_start(&history[0], sessions[0], next++);
    while (in.size > 0) {
        uint8_t kind = take(&in);
        struct payload *p = &history[n_sent % N_HISTORY];
        rig.now += kind / 64;
        switch (kind % 16) {
        default: { /* a good packet, mostly the next one of the session */
            uint8_t how = take(&in), count = 1 + how % 4;
            uint64_t seq = how >= 0xf0 ? next + (uint64_t)(take(&in) % 16) - 4 : next;
            p->len = MOLD_HEADER_BYTES;
            mold_write_header(p->bytes, (const uint8_t *)sessions[session], seq, count);
            for (unsigned i = 0; i < count; i++)
                p->len = (uint16_t)(p->len + put_message(&in, p->bytes + p->len));
            next = seq + count;
            n_sent++;
            if (how / 4 % 8 != 7) /* else it is lost, until it is repeated */
                send_payload(p, how & 64 ? MOLD_LINE_B : MOLD_LINE_A, 0);
            break;
        }
        case 8:
        case 9: { /* an earlier one, on either line, perhaps damaged */
            uint8_t which = take(&in);
            send_payload(&history[which % N_HISTORY], which / 8 % 2, kind % 16 == 9 ? take(&in) : 0);
            break;
        }
        case 10: /* heartbeat, end of session */
        case 11:
            p->len = MOLD_HEADER_BYTES;
            mold_write_header(p->bytes, (const uint8_t *)sessions[session], next,
                              kind % 16 == 10 ? 0 : MOLD_COUNT_END);
            send_payload(p, take(&in) % 3, 0);
            break;
        case 12: { /* a hole, the other session, a number far off */
            uint8_t how = take(&in);
            if (how < 0x80) {
                next += how % 8;
            } else if (how < 0xf8) {
                session ^= 1;
                next = how & 1 ? 1 : next;
            } else {
                next = UINT64_MAX - take(&in);
            }
            break;
        }
        case 13:
            raw(&in, p->bytes, &p->len, N_PAYLOAD);
            send_payload(p, kind / 16 % 2, 0);
            break;
        case 14: {
            struct payload frame;
            raw(&in, frame.bytes, &frame.len, N_PAYLOAD);
            send_frame(frame.bytes, frame.len);
            break;
        }
        case 15:
            pause_for(take(&in), 0);
            break;
        }
        check_all();
    }
    pause_for(0, 1);
    check_all();
    intake_free(rig.intake);
    mold_free(rig.mold);
    return 0;
}
