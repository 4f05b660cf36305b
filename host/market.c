#include "market.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN_SIDE = 2 };
enum hours { HOURS_UNKNOWN = 0, HOURS_OPEN, HOURS_CLOSED };
enum begin {
    BEGIN_NONE = 0, /* no message of the session yet */
    BEGIN_START,    /* the first one was system event 'O' */
    BEGIN_JOINED,
};

static const uint64_t never_ns = UINT64_MAX;
static const char unknown_symbol[8] = {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' '};

struct locate_state {
    uint64_t reliable_from_ns; /* feed time; the session's own bound applies too */
    char symbol[8];
    uint8_t trading_state; /* letter of the last H; 0: none */
    uint8_t halted;        /* operational halt on Nasdaq */
    uint8_t pad[14];
};
static_assert(sizeof(struct locate_state) == 32, "two locates, one cache line");

struct market {
    struct book_set *books;
    struct locate_state *locate;
    uint64_t reliable_from_ns; /* of every book */
    uint64_t last_ts_ns;
    uint64_t settle_ns;
    uint8_t strict;
    uint8_t begin; /* enum begin */
    uint8_t hours; /* enum hours */
    uint8_t gap;   /* messages were lost; the settling time starts with the next message */
    struct market_counters counters;
};

static void states_clear(struct market *market)
{
    memset(market->locate, 0, BOOK_N_LOCATE * sizeof(struct locate_state));
    for (uint32_t i = 0; i < BOOK_N_LOCATE; i++)
        memcpy(market->locate[i].symbol, unknown_symbol, sizeof(unknown_symbol));
    market->reliable_from_ns = never_ns;
    market->last_ts_ns = 0;
    market->begin = BEGIN_NONE;
    market->hours = HOURS_UNKNOWN;
    market->gap = 0;
}

struct market *market_create(const struct market_config *config)
{
    struct market *market = calloc(1, sizeof(*market));
    if (!market)
        return NULL;
    market->books = book_create(&config->limits);
    market->locate = aligned_alloc(64, BOOK_N_LOCATE * sizeof(struct locate_state));
    if (!market->books || !market->locate) {
        market_free(market);
        return NULL;
    }
    market->strict = config->join == MARKET_JOIN_STRICT;
    market->settle_ns = config->settle_ns;
    states_clear(market);
    return market;
}

void market_free(struct market *market)
{
    if (!market)
        return;
    book_free(market->books);
    free(market->locate);
    free(market);
}

void market_new_session(struct market *market)
{
    book_clear(market->books);
    states_clear(market);
}

void market_gap(struct market *market)
{
    if (market->reliable_from_ns <= market->last_ts_ns)
        market->counters.unreliable_marks++;
    market->reliable_from_ns = never_ns;
    market->gap = 1;
}

/* Feed time from which a book counts again, given a doubt at ts_ns. */
static uint64_t settled_from(const struct market *market, uint64_t ts_ns)
{
    if (market->strict || ts_ns > never_ns - market->settle_ns)
        return never_ns;
    return ts_ns + market->settle_ns;
}

static void doubt(struct market *market, uint16_t locate, uint64_t ts_ns)
{
    struct locate_state *state = &market->locate[locate];
    if (state->reliable_from_ns <= ts_ns && market->reliable_from_ns <= ts_ns)
        market->counters.unreliable_marks++;
    uint64_t from = settled_from(market, ts_ns);
    if (from > state->reliable_from_ns)
        state->reliable_from_ns = from;
}

/* First message of the session, or after a gap. */
static void begin_or_resume(struct market *market, const uint8_t *msg, uint16_t len, uint64_t ts_ns)
{
    int is_start = len >= 12 && msg[0] == 'S' && msg[11] == 'O';
    if (market->begin == BEGIN_NONE)
        market->begin = is_start && !market->gap ? BEGIN_START : BEGIN_JOINED;
    if (market->begin == BEGIN_START && !market->gap)
        market->reliable_from_ns = 0;
    else
        market->reliable_from_ns = settled_from(market, ts_ns);
    market->gap = 0;
}

static inline int is_trading(const struct market *market, const struct locate_state *state)
{
    if (market->hours == HOURS_CLOSED || state->halted)
        return 0;
    return state->trading_state == 'T' || (state->trading_state == 0 && market->begin == BEGIN_JOINED);
}

static inline int is_crossed(const struct book_bbo *bbo)
{
    return bbo->bid_qty > 0 && bbo->ask_qty > 0 && bbo->bid_price >= bbo->ask_price;
}

static void learn_symbol(struct market *market, uint16_t locate, const char stock[8],
                         struct market_event *event)
{
    struct locate_state *state = &market->locate[locate];
    if (locate == 0 || !memcmp(state->symbol, stock, sizeof(state->symbol)))
        return;
    if (memcmp(state->symbol, unknown_symbol, sizeof(state->symbol)) != 0) /* its orders are another's */
        doubt(market, locate, event->ts_ns);
    memcpy(state->symbol, stock, sizeof(state->symbol));
    event->effects |= MARKET_DIRECTORY;
}

/* Does a book operation that failed speak against the book? new_price: of a replace. */
static int speaks_against(const struct market *market, enum book_status status, uint32_t new_price,
                          const struct market_event *event)
{
    if (status != BOOK_UNKNOWN_REF || market->strict)
        return 1;
    switch (event->type) {
    case 'E':
    case 'C':
        return 1;
    case 'U': /* its side is not known either: not worse than the best bid, nor than the best ask */
        return (event->before.bid_qty == 0 || new_price >= event->before.bid_price) &&
               (event->before.ask_qty == 0 || new_price <= event->before.ask_price);
    default:
        return 0;
    }
}

/* What follows from a book operation, whichever it was. */
static inline void book_done(struct market *market, enum book_status status, uint32_t new_price,
                             struct market_event *event)
{
    if (__builtin_expect(status == BOOK_OK, 1)) {
        event->effects |= MARKET_BOOK;
    } else {
        if (status == BOOK_EXCESS_QTY || (status == BOOK_FULL && event->type == 'U'))
            event->effects |= MARKET_BOOK;
        if (speaks_against(market, status, new_price, event))
            doubt(market, event->locate, event->ts_ns);
    }
    if (!(event->effects & MARKET_BOOK))
        return;
    /* No branch on top, nor on the side of an add: nobody foresees them. Together 45 to 42 ns per message. */
    event->effects |= (uint16_t)(event->change.top * MARKET_TOP);
    if (__builtin_expect(event->change.crossed & event->change.top, 0) && !market->strict &&
        is_trading(market, &market->locate[event->locate]))
        doubt(market, event->locate, event->ts_ns);
}

static inline void trade(struct market_event *event, unsigned side, uint32_t price, uint64_t qty)
{
    if (qty == 0)
        return;
    event->effects |= MARKET_TRADE;
    event->trade_side = (uint8_t)side;
    event->trade_price = price;
    event->trade_qty = qty;
}

static inline void apply_add(struct market *market, const struct itch_add_order *add,
                             struct market_event *event)
{
    uint16_t locate = event->locate;
    if (__builtin_expect(memcmp(market->locate[locate].symbol, add->stock, 8) != 0, 0) && locate != 0) {
        if (!memcmp(market->locate[locate].symbol, unknown_symbol, 8)) {
            learn_symbol(market, locate, add->stock, event);
        } else {
            market->counters.symbol_mismatch++;
            doubt(market, locate, event->ts_ns);
        }
    }
    int is_buy = add->buy_sell_indicator == 'B', is_sell = add->buy_sell_indicator == 'S';
    if (__builtin_expect(!(is_buy | is_sell), 0)) {
        market->counters.bad_enum++;
        doubt(market, locate, event->ts_ns);
        return;
    }
    enum book_side side = is_buy ? BOOK_BID : BOOK_ASK;
    book_done(market,
              book_add(market->books, locate, add->order_reference_number, side, add->shares, add->price,
                       &event->change),
              0, event);
}

static inline void apply_execution(struct market *market, const struct itch_order_executed *executed,
                                   struct market_event *event)
{
    book_done(market,
              book_reduce(market->books, event->locate, executed->order_reference_number,
                          executed->executed_shares, &event->change),
              0, event);
}

static void not_of_a_stock(const struct market *market, struct market_event *event)
{
    event->locate = 0;
    book_bbo(market->books, 0, &event->before);
}

static void apply_system_event(struct market *market, uint8_t code, struct market_event *event)
{
    if (code == 0 || !strchr("OSQMEC", code)) {
        market->counters.bad_enum++;
        return;
    }
    uint8_t hours = code == 'Q' ? HOURS_OPEN : HOURS_CLOSED;
    if ((hours == HOURS_CLOSED) != (market->hours == HOURS_CLOSED))
        event->effects |= MARKET_STATE;
    market->hours = hours;
}

static void apply_trading_action(struct market *market, uint8_t letter, struct market_event *event)
{
    struct locate_state *state = &market->locate[event->locate];
    int before = is_trading(market, state);
    if (letter != 'T' && letter != 'H' && letter != 'P' && letter != 'Q')
        market->counters.bad_enum++;
    state->trading_state = letter ? letter : '?'; /* 0 would mean that there was none */
    if (is_trading(market, state) != before)
        event->effects |= MARKET_STATE;
}

static void apply_operational_halt(struct market *market, const struct itch_operational_halt *halt,
                                   struct market_event *event)
{
    struct locate_state *state = &market->locate[event->locate];
    int before = is_trading(market, state);
    if (halt->market_code != 'Q') {
        if (halt->market_code != 'B' && halt->market_code != 'X')
            market->counters.bad_enum++;
        return;
    }
    if (halt->operational_halt_action != 'T' && halt->operational_halt_action != 'H')
        market->counters.bad_enum++;
    state->halted = halt->operational_halt_action != 'T';
    if (is_trading(market, state) != before)
        event->effects |= MARKET_STATE;
}

/* Unknown, cut short, empty: counted; the header is used as far as it goes. */
static void apply_undecoded(struct market *market, const uint8_t *msg, uint16_t len, int status,
                            struct market_event *event)
{
    int has_header = len >= ITCH_HEADER_BYTES;
    event->type = len > 0 ? msg[0] : 0;
    event->locate = has_header ? be_load_u16(msg + 1) : 0;
    event->ts_ns = has_header ? be_load_u48(msg + 5) : market->last_ts_ns;
    book_bbo(market->books, event->locate, &event->before);
    if (len == 0) { /* legal in MoldUDP64, and about nothing */
        market->counters.short_messages++;
        return;
    }
    if (__builtin_expect(market->begin == BEGIN_NONE || market->gap, 0))
        begin_or_resume(market, msg, len, event->ts_ns);
    market->last_ts_ns = event->ts_ns;
    if (status == ITCH_UNKNOWN) {
        market->counters.unknown_messages++;
        return;
    }
    market->counters.short_messages++;
    /* It may have been about any book: without a locate all are in doubt. */
    if (has_header) {
        doubt(market, event->locate, event->ts_ns);
    } else {
        if (market->reliable_from_ns <= event->ts_ns)
            market->counters.unreliable_marks++;
        market->reliable_from_ns = settled_from(market, event->ts_ns);
    }
}

void market_apply(struct market *market, const uint8_t *msg, uint16_t len, struct market_event *event)
{
    struct itch_msg m;
    int bytes = itch_decode(msg, len, &m);
    market->counters.messages++;
    event->effects = 0;
    if (__builtin_expect(bytes < 0, 0)) {
        if (len > 0)
            market->counters.by_type[msg[0]]++;
        apply_undecoded(market, msg, len, bytes, event);
        return;
    }
    market->counters.by_type[m.type]++;
    market->counters.long_messages += len > bytes;
    event->type = m.type;
    event->locate = m.locate;
    event->ts_ns = m.timestamp_ns;
    if (__builtin_expect(market->begin == BEGIN_NONE || market->gap, 0))
        begin_or_resume(market, msg, len, event->ts_ns);
    market->last_ts_ns = m.timestamp_ns;
    book_bbo(market->books, m.locate, &event->before);

    switch (m.type) {
    case 'A':
        apply_add(market, &m.add_order, event);
        break;
    case 'F': {
        const struct itch_add_order_mpid *f = &m.add_order_mpid;
        struct itch_add_order add = {.order_reference_number = f->order_reference_number,
                                     .buy_sell_indicator = f->buy_sell_indicator,
                                     .shares = f->shares,
                                     .price = f->price};
        memcpy(add.stock, f->stock, sizeof(add.stock));
        apply_add(market, &add, event);
        break;
    }
    case 'E':
        apply_execution(market, &m.order_executed, event);
        if (event->effects & MARKET_BOOK)
            trade(event, event->change.side, event->change.price, event->change.qty);
        break;
    case 'C': {
        const struct itch_order_executed_with_price *c = &m.order_executed_with_price;
        struct itch_order_executed executed = {.order_reference_number = c->order_reference_number,
                                               .executed_shares = c->executed_shares};
        apply_execution(market, &executed, event);
        if (c->printable == 'Y')
            trade(event, event->effects & MARKET_BOOK ? event->change.side : UNKNOWN_SIDE, c->execution_price,
                  event->effects & MARKET_BOOK ? event->change.qty : c->executed_shares);
        else if (c->printable != 'N')
            market->counters.bad_enum++;
        break;
    }
    case 'X':
        book_done(market,
                  book_reduce(market->books, m.locate, m.order_cancel.order_reference_number,
                              m.order_cancel.cancelled_shares, &event->change),
                  0, event);
        break;
    case 'D':
        book_done(market,
                  book_delete(market->books, m.locate, m.order_delete.order_reference_number, &event->change),
                  0, event);
        break;
    case 'U':
        book_done(market,
                  book_replace(market->books, m.locate, m.order_replace.original_order_reference_number,
                               m.order_replace.new_order_reference_number, m.order_replace.shares,
                               m.order_replace.price, &event->change),
                  m.order_replace.price, event);
        break;
    case 'P':
        trade(event, UNKNOWN_SIDE, m.trade.price, m.trade.shares);
        break;
    case 'Q':
        trade(event, UNKNOWN_SIDE, m.cross_trade.cross_price, m.cross_trade.shares);
        break;
    case 'S':
        not_of_a_stock(market, event);
        apply_system_event(market, m.system_event.event_code, event);
        break;
    case 'R':
        learn_symbol(market, m.locate, m.stock_directory.stock, event);
        break;
    case 'H':
        apply_trading_action(market, m.stock_trading_action.trading_state, event);
        break;
    case 'h':
        apply_operational_halt(market, &m.operational_halt, event);
        break;
    case 'V':
    case 'W':
        not_of_a_stock(market, event);
        break;
    default: /* known, and of no effect on book, tape or state */
        break;
    }
}

void market_prefetch(const struct market *market, const uint8_t *msg, uint16_t len)
{
    if (len < 19) /* the shortest message with a reference, D */
        return;
    switch (msg[0]) {
    case 'A':
    case 'F':
    case 'E':
    case 'C':
    case 'X':
    case 'D':
    case 'U': {
        uint16_t locate = be_load_u16(msg + 1);
        book_prefetch(market->books, locate, be_load_u64(msg + 11));
        __builtin_prefetch(&market->locate[locate]);
        break;
    }
    default:
        break;
    }
}

int market_reliable(const struct market *market, uint16_t locate, uint64_t ts_ns)
{
    const struct locate_state *state = &market->locate[locate];
    if (market->reliable_from_ns > ts_ns || state->reliable_from_ns > ts_ns)
        return 0;
    struct book_bbo bbo;
    book_bbo(market->books, locate, &bbo);
    return !is_crossed(&bbo) || !is_trading(market, state);
}

int market_trading(const struct market *market, uint16_t locate)
{
    return is_trading(market, &market->locate[locate]);
}

void market_bbo(const struct market *market, uint16_t locate, struct book_bbo *out)
{
    book_bbo(market->books, locate, out);
}

const char *market_symbol(const struct market *market, uint16_t locate)
{
    return market->locate[locate].symbol;
}

uint16_t market_locate(const struct market *market, const char *symbol)
{
    if (!memcmp(symbol, unknown_symbol, sizeof(unknown_symbol)))
        return 0;
    for (uint32_t i = 1; i < BOOK_N_LOCATE; i++)
        if (!memcmp(market->locate[i].symbol, symbol, 8))
            return (uint16_t)i;
    return 0;
}

const struct book_set *market_books(const struct market *market)
{
    return market->books;
}

const struct market_counters *market_counters(const struct market *market)
{
    return &market->counters;
}
