#include "intake.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_STREAM = KL_N_STREAM_MAX,
    STREAM_NONE = 0xffff,    /* not looked at yet */
    STREAM_REFUSED = 0xfffe, /* not subscribed, or no stream was free */
    N_STORE = 1 << 16,       /* messages kept behind a hole: some 20 ms of the busiest feed */
};

struct pending {
    uint64_t seq_no, ts_ns, arrival;
    uint16_t locate;
};

struct intake {
    struct intake_config config;
    struct intake_handler handler;
    struct intake_counters counters;
    struct mold *mold;
    struct market *market;
    struct features *features;
    struct trace *trace; /* NULL: nobody measures */
    int takes_all;       /* no symbols were named */

    uint16_t stream_of[BOOK_N_LOCATE];
    uint64_t symbol_of[N_STREAM]; /* of a stream; the padded name's bytes */
    uint16_t locate_of[N_STREAM]; /* 0: not seen in this session */
    uint32_t n_stream;
    uint8_t trading_of[N_STREAM]; /* as last reported */
    uint8_t restarted[N_STREAM];  /* reset since its last tick */

    struct book_bbo last_bbo[N_STREAM]; /* at the stream's last tick */
    struct pending pending[N_STREAM];
    uint8_t is_pending[N_STREAM];
    uint16_t due[N_STREAM]; /* streams with a pending tick, in the order of their triggers */
    uint32_t n_due;

    struct intake_group learned[MOLD_N_LINE];
};

static uint64_t symbol_key(const char *symbol)
{
    uint64_t key;
    memcpy(&key, symbol, sizeof(key));
    return key;
}

static uint64_t symbol_key_of_name(const char *name)
{
    char padded[8];
    size_t len = strnlen(name, sizeof(padded));
    memset(padded, ' ', sizeof(padded));
    memcpy(padded, name, len);
    return symbol_key(padded);
}

static void restart(struct intake *in, uint32_t stream)
{
    features_reset(in->features, stream);
    in->restarted[stream] = 1;
}

/* The symbol's stream; a new one where all symbols are taken as they come. */
static uint16_t stream_of_symbol(struct intake *in, uint64_t key, uint16_t locate)
{
    for (uint32_t s = 0; s < in->n_stream; s++) /* a new session gives the symbol another locate */
        if (in->symbol_of[s] == key)
            return (uint16_t)s;
    if (in->takes_all && in->n_stream < N_STREAM) {
        in->symbol_of[in->n_stream] = key;
        return (uint16_t)in->n_stream++;
    }
    if (in->takes_all && in->handler.streams_full)
        in->handler.streams_full(in->handler.ctx, locate);
    return STREAM_REFUSED;
}

/* Subscribes a locate whose symbol has become known, or is another one now. Locate and stream have one
 * another alone: where the directory contradicts itself, its last word counts. */
static uint16_t resolve_stream(struct intake *in, uint16_t locate)
{
    static const char unknown[] = "        ";
    uint64_t key = symbol_key(market_symbol(in->market, locate));
    uint16_t before = in->stream_of[locate];
    uint16_t stream = key == symbol_key(unknown) ? STREAM_NONE : stream_of_symbol(in, key, locate);
    in->stream_of[locate] = stream;
    if (before < N_STREAM && before != stream && in->locate_of[before] == locate) {
        in->locate_of[before] = 0;
        in->trading_of[before] = 0;
        restart(in, before);
    }
    if (stream < N_STREAM && in->locate_of[stream] != locate) {
        uint16_t other = in->locate_of[stream];
        if (other) {
            in->stream_of[other] = STREAM_REFUSED;
            restart(in, stream);
        }
        in->locate_of[stream] = locate;
    }
    return stream;
}

static void note_trading(struct intake *in, uint16_t stream, uint64_t ts_ns)
{
    uint16_t locate = in->locate_of[stream];
    int trading = locate && market_trading(in->market, locate);
    if (trading == in->trading_of[stream])
        return;
    in->trading_of[stream] = (uint8_t)trading;
    restart(in, stream); /* nothing before a halt explains what comes after it */
    if (in->handler.trading)
        in->handler.trading(in->handler.ctx, locate, trading, ts_ns);
}

static void emit_ticks(struct intake *in)
{
    for (uint32_t i = 0; i < in->n_due; i++) {
        uint16_t stream = in->due[i];
        const struct pending *p = &in->pending[stream];
        in->is_pending[stream] = 0;
        if (in->stream_of[p->locate] != stream) /* the locate has become another symbol's since */
            continue;
        struct intake_tick tick = {.locate = p->locate,
                                   .stream = stream,
                                   .seq_no = p->seq_no,
                                   .feed_ts_ns = p->ts_ns,
                                   .arrival = p->arrival};
        book_bbo(market_books(in->market), p->locate, &tick.bbo);
        /* A quote that came back to where it was within the packet is no news. */
        if (in->config.trigger == INTAKE_ON_BBO &&
            !memcmp(&tick.bbo, &in->last_bbo[stream], sizeof(tick.bbo)))
            continue;
        in->last_bbo[stream] = tick.bbo;
        tick.reliable = (uint8_t)market_reliable(in->market, p->locate, p->ts_ns);
        tick.trading = (uint8_t)market_trading(in->market, p->locate);
        tick.restarted = in->restarted[stream];
        in->restarted[stream] = 0;
        in->handler.tick(in->handler.ctx, &tick);
    }
    in->n_due = 0;
}

static void on_message(void *ctx, uint64_t seq, const uint8_t *msg, uint16_t len, uint64_t arrival,
                       int last_of_packet)
{
    static const uint16_t trigger_effect[] = {
        [INTAKE_ON_BBO] = MARKET_TOP, [INTAKE_ON_TRADE] = MARKET_TRADE, [INTAKE_ON_BOOK] = MARKET_BOOK};
    struct intake *in = ctx;
    struct market_event event;
    trace_mark(in->trace, TRACE_DECODE);
    market_apply(in->market, msg, len, &event);
    trace_mark(in->trace, TRACE_BOOK);
    if (in->handler.message)
        in->handler.message(in->handler.ctx, seq, &event);
    if (!event.locate && event.effects & MARKET_STATE) /* a system event opens or closes for all */
        for (uint32_t s = 0; s < in->n_stream; s++)
            note_trading(in, (uint16_t)s, event.ts_ns);
    if (event.locate) {
        uint16_t stream = in->stream_of[event.locate];
        if (stream == STREAM_NONE || event.effects & MARKET_DIRECTORY)
            stream = resolve_stream(in, event.locate);
        if (stream < N_STREAM) {
            features_update(in->features, stream, &event, market_books(in->market));
            note_trading(in, stream, event.ts_ns);
            if (event.effects & trigger_effect[in->config.trigger]) {
                in->pending[stream] = (struct pending){
                    .seq_no = seq, .ts_ns = event.ts_ns, .arrival = arrival, .locate = event.locate};
                if (!in->is_pending[stream]) {
                    in->is_pending[stream] = 1;
                    in->due[in->n_due++] = stream;
                }
            }
        }
    }
    if (last_of_packet)
        emit_ticks(in);
}

static void forget_streams(struct intake *in)
{
    for (uint32_t s = 0; s < in->n_stream; s++) {
        restart(in, s);
        in->last_bbo[s] = (struct book_bbo){0};
        in->is_pending[s] = 0;
    }
    in->n_due = 0;
}

static void on_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    struct intake *in = ctx;
    emit_ticks(in);
    market_gap(in->market);
    forget_streams(in); /* sums with a hole in them are no features */
    if (in->handler.gap)
        in->handler.gap(in->handler.ctx, first, count, now);
}

static void on_end(void *ctx, uint64_t next_seq)
{
    struct intake *in = ctx;
    if (in->handler.session_end)
        in->handler.session_end(in->handler.ctx, next_seq);
}

static void on_new_session(void *ctx, const uint8_t session[MOLD_SESSION_BYTES])
{
    struct intake *in = ctx;
    (void)session;
    emit_ticks(in);
    market_new_session(in->market);
    forget_streams(in);
    /* Locates are assigned anew each day; streams stay with their symbols. */
    memset(in->stream_of, 0xff, sizeof(in->stream_of));
    memset(in->locate_of, 0, sizeof(in->locate_of));
    memset(in->trading_of, 0, sizeof(in->trading_of));
}

struct intake *intake_create(const struct intake_config *config, const struct intake_handler *handler)
{
    struct intake *in = calloc(1, sizeof(*in));
    if (!in)
        return NULL;
    in->config = *config;
    in->config.symbols = NULL; /* the caller's; their keys are in symbol_of */
    in->takes_all = !config->symbols;
    in->handler = *handler;
    memset(in->stream_of, 0xff, sizeof(in->stream_of));
    if (config->symbols)
        for (uint32_t i = 0; i < config->n_symbol && i < N_STREAM; i++)
            in->symbol_of[in->n_stream++] = symbol_key_of_name(config->symbols[i]);
    struct mold_config mold = {.n_store = N_STORE, .gap_wait = config->gap_wait};
    struct mold_handler on_mold = {
        .message = on_message, .gap = on_gap, .end = on_end, .new_session = on_new_session, .ctx = in};
    in->mold = mold_create(&mold, &on_mold);
    in->market = market_create(&config->market);
    in->features = features_create(N_STREAM);
    if (!in->mold || !in->market || !in->features) {
        intake_free(in);
        return NULL;
    }
    return in;
}

void intake_free(struct intake *in)
{
    if (!in)
        return;
    if (in->mold)
        mold_free(in->mold);
    if (in->market)
        market_free(in->market);
    if (in->features)
        features_free(in->features);
    free(in);
}

void intake_set_trace(struct intake *in, struct trace *trace)
{
    in->trace = trace;
}

static int group_is(const struct intake_group *group, const struct packet_udp *udp)
{
    return (!group->ip || group->ip == udp->dst_ip) && (!group->port || group->port == udp->dst_port);
}

/* Which line a datagram belongs to; -1: none. Without configured groups the first one that brings MoldUDP64
 * is line A, the second line B. */
static int line_of(struct intake *in, const struct packet_udp *udp)
{
    const struct intake_group *configured = in->config.line;
    int any_configured = configured[0].ip || configured[0].port || configured[1].ip || configured[1].port;
    for (int line = 0; line < MOLD_N_LINE; line++) {
        if (any_configured) {
            int is_set = configured[line].ip || configured[line].port;
            if (is_set && group_is(&configured[line], udp))
                return line;
            continue;
        }
        struct intake_group *learned = &in->learned[line];
        struct mold_packet_header header;
        if (!learned->ip && !learned->port && !mold_parse(udp->payload, udp->payload_len, &header))
            *learned = (struct intake_group){.ip = udp->dst_ip, .port = udp->dst_port};
        if (learned->ip == udp->dst_ip && learned->port == udp->dst_port)
            return line;
    }
    return -1;
}

void intake_frame(struct intake *in, const uint8_t *frame, uint32_t len, uint64_t arrival)
{
    struct packet_udp udp;
    in->counters.frames++;
    enum packet_status status = packet_parse(frame, len, in->config.verify_checksum, &udp);
    in->counters.packet_status[-(int)status]++;
    if (status != PACKET_OK)
        return;
    int line = line_of(in, &udp);
    if (line < 0) {
        in->counters.filtered++;
        return;
    }
    mold_packet(in->mold, (enum mold_line)line, udp.payload, udp.payload_len, arrival);
}

uint64_t intake_poll(struct intake *in, uint64_t now)
{
    return mold_poll(in->mold, now);
}

void intake_flush(struct intake *in, uint64_t now)
{
    mold_flush(in->mold, now);
}

const struct intake_counters *intake_counters(const struct intake *in)
{
    return &in->counters;
}

const struct mold_counters *intake_mold(const struct intake *in)
{
    return mold_counters(in->mold);
}

const struct market *intake_market(const struct intake *in)
{
    return in->market;
}

struct features *intake_features(struct intake *in)
{
    return in->features;
}
