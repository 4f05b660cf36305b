#include "moldudp64.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "be.h"

enum {
    LENGTH_BYTES = 2, /* before each message */
    COUNT_OFFSET = MOLD_SESSION_BYTES + 8,
    CELL_BYTES = 64, /* an ITCH 5.0 message, 50 bytes at most, takes one cell */
    MESSAGE_MAX = 65535,
    N_CELL_LONGEST = (MESSAGE_MAX + CELL_BYTES - 1) / CELL_BYTES,
    N_STORE_MAX = 1 << 24,
};
static const uint32_t no_cell = UINT32_MAX;

/* One kept message. Bytes lie in a chain of cells: no length is too long for the store, nothing fragments. */
struct slot {
    uint64_t arrival;
    uint32_t cell; /* first of the chain */
    uint16_t len;
    uint8_t kept; /* 0: the slot is free */
    uint8_t last_of_packet;
};
static_assert(sizeof(struct slot) == 16, "four slots a line");

/* Numbers from first up to the next run's first were passed over at time since: if one of them is missing,
 * that is when its hole was seen. */
struct run {
    uint64_t first, since;
};

struct mold {
    uint64_t expected; /* next number to deliver */
    uint64_t horizon;  /* >= expected: numbers below it are known to have been sent */
    uint32_t n_kept;   /* all within [expected, expected + n_store) */
    uint32_t mask;     /* n_store - 1 */
    uint8_t session[MOLD_SESSION_BYTES];
    uint8_t started; /* session, expected and horizon are known */
    uint8_t has_end; /* end of session seen: horizon is the end */
    uint8_t ended;   /* ... and told to the handler */
    struct mold_handler handler;
    uint64_t line_next[MOLD_N_LINE]; /* each line's own next number; 0: nothing seen yet */
    struct mold_counters counters;

    struct slot *slots; /* by number & mask */
    uint8_t *cells;
    uint32_t *cell_next; /* chain or free list */
    uint32_t free_cell, n_free_cell, n_cell;

    struct run *runs; /* ring of 2 * n_store, so that live ones (<= n_store + 1 with messages kept) fit */
    uint64_t run_head, run_tail;

    struct mold_config config;
    uint8_t scratch[MESSAGE_MAX]; /* a message of several cells, put together */
};

struct mold *mold_create(const struct mold_config *config, const struct mold_handler *handler)
{
    uint32_t n_store = config->n_store;
    if (n_store == 0 || (n_store & (n_store - 1)) != 0 || n_store > N_STORE_MAX)
        return NULL;
    assert(handler->message && handler->gap && handler->end);
    struct mold *mold = calloc(1, sizeof(*mold));
    if (!mold)
        return NULL;
    mold->config = *config;
    mold->handler = *handler;
    mold->mask = n_store - 1;
    /* One cell for every slot, and room for two messages of the greatest length on top. */
    mold->n_cell = n_store + 2 * N_CELL_LONGEST;
    mold->slots = calloc(n_store, sizeof(*mold->slots));
    mold->cells = aligned_alloc(CELL_BYTES, (size_t)mold->n_cell * CELL_BYTES);
    mold->cell_next = malloc((size_t)mold->n_cell * sizeof(*mold->cell_next));
    mold->runs = malloc(2 * (size_t)n_store * sizeof(*mold->runs));
    if (!mold->slots || !mold->cells || !mold->cell_next || !mold->runs) {
        mold_free(mold);
        return NULL;
    }
    for (uint32_t i = 0; i < mold->n_cell; i++)
        mold->cell_next[i] = i + 1 < mold->n_cell ? i + 1 : no_cell;
    mold->n_free_cell = mold->n_cell;
    return mold;
}

void mold_free(struct mold *mold)
{
    if (!mold)
        return;
    free(mold->slots);
    free(mold->cells);
    free(mold->cell_next);
    free(mold->runs);
    free(mold);
}

static struct slot *slot_of(const struct mold *mold, uint64_t seq)
{
    return &mold->slots[seq & mold->mask];
}

/* seq >= expected */
static int is_kept(const struct mold *mold, uint64_t seq)
{
    return mold->n_kept != 0 && seq - mold->expected <= mold->mask && slot_of(mold, seq)->kept;
}

static uint32_t cells_of(uint16_t len)
{
    return len == 0 ? 1 : (len + (uint32_t)CELL_BYTES - 1) / CELL_BYTES;
}

static void keep(struct mold *mold, uint64_t seq, const uint8_t *msg, uint16_t len, uint64_t arrival,
                 int last_of_packet)
{
    struct slot *slot = slot_of(mold, seq);
    uint32_t n_cell = cells_of(len), left = len, *link = &slot->cell;
    assert(!slot->kept && n_cell <= mold->n_free_cell && seq - mold->expected <= mold->mask);
    mold->n_free_cell -= n_cell;
    for (; n_cell > 0; n_cell--) {
        uint32_t cell = mold->free_cell, part = left < CELL_BYTES ? left : CELL_BYTES;
        mold->free_cell = mold->cell_next[cell];
        memcpy(mold->cells + (size_t)cell * CELL_BYTES, msg, part);
        msg += part;
        left -= part;
        *link = cell;
        link = &mold->cell_next[cell];
    }
    *link = no_cell;
    slot->arrival = arrival;
    slot->len = len;
    slot->last_of_packet = (uint8_t)last_of_packet;
    slot->kept = 1;
    mold->n_kept++;
}

static void deliver(struct mold *mold, const uint8_t *msg, uint16_t len, uint64_t arrival, int last_of_packet)
{
    uint64_t seq = mold->expected++;
    mold->counters.messages++;
    mold->handler.message(mold->handler.ctx, seq, msg, len, arrival, last_of_packet);
}

/* Delivers what is kept from expected on, up to the next hole. */
static void drain(struct mold *mold)
{
    while (mold->n_kept != 0 && slot_of(mold, mold->expected)->kept) {
        struct slot *slot = slot_of(mold, mold->expected);
        const uint8_t *msg = mold->cells + (size_t)slot->cell * CELL_BYTES;
        uint32_t cell = slot->cell, n_cell = cells_of(slot->len), last = cell, at = 0;
        if (n_cell > 1)
            msg = mold->scratch;
        for (uint32_t i = 0; i < n_cell; i++, cell = mold->cell_next[cell]) {
            uint32_t part = slot->len - at < CELL_BYTES ? slot->len - at : CELL_BYTES;
            if (n_cell > 1)
                memcpy(mold->scratch + at, mold->cells + (size_t)cell * CELL_BYTES, part);
            at += part;
            last = cell;
        }
        slot->kept = 0;
        mold->n_kept--;
        deliver(mold, msg, slot->len, slot->arrival, slot->last_of_packet);
        /* The cells go back only now: msg pointed into them. */
        mold->cell_next[last] = mold->free_cell;
        mold->free_cell = slot->cell;
        mold->n_free_cell += n_cell;
    }
}

/* Declares the hole at expected lost, up to the first kept message, at most to limit (> expected), and
 * delivers what is kept behind it. */
static void give_up(struct mold *mold, uint64_t limit, uint64_t now)
{
    uint64_t first = mold->expected, next = limit;
    if (mold->n_kept != 0) {
        next = first + 1; /* expected itself is missing */
        while (next < limit && !is_kept(mold, next))
            next++;
    }
    mold->expected = next;
    mold->counters.gaps_lost++;
    mold->counters.messages_lost += next - first;
    mold->handler.gap(mold->handler.ctx, first, next - first, now);
    drain(mold);
}

/* Numbers [horizon, seq) were passed over. */
static void open_run(struct mold *mold, uint64_t now)
{
    uint64_t n_run = 2 * ((uint64_t)mold->mask + 1);
    while (mold->run_tail - mold->run_head > 1 &&
           mold->runs[(mold->run_head + 1) & (n_run - 1)].first <= mold->expected)
        mold->run_head++;
    /* Full only when heartbeats alone open hole after hole: these then count as seen with the last one. */
    if (mold->run_tail - mold->run_head == n_run)
        return;
    mold->runs[mold->run_tail++ & (n_run - 1)] = (struct run){mold->horizon, now};
}

/* When the hole at expected was seen. A hole is open: expected < horizon. */
static uint64_t hole_since(struct mold *mold)
{
    uint64_t n_run = 2 * ((uint64_t)mold->mask + 1);
    while (mold->run_tail - mold->run_head > 1 &&
           mold->runs[(mold->run_head + 1) & (n_run - 1)].first <= mold->expected)
        mold->run_head++;
    const struct run *run = &mold->runs[mold->run_head & (n_run - 1)];
    assert(mold->run_tail != mold->run_head && run->first <= mold->expected);
    return run->since;
}

/* Declares lost what has been waited for long enough, then tells the end of session if that is reached.
 * Returns the time when the next wait is over. */
static uint64_t expire(struct mold *mold, uint64_t now)
{
    while (mold->expected < mold->horizon) {
        uint64_t since = hole_since(mold), wait = mold->config.gap_wait;
        if (now < since || now - since < wait)
            return since > UINT64_MAX - wait ? UINT64_MAX : since + wait;
        give_up(mold, mold->horizon, now);
    }
    if (mold->has_end && !mold->ended) {
        mold->ended = 1;
        mold->handler.end(mold->handler.ctx, mold->expected);
    }
    return UINT64_MAX;
}

static void start_session(struct mold *mold, const uint8_t *session, uint64_t first_seq)
{
    assert(mold->n_kept == 0);
    memcpy(mold->session, session, MOLD_SESSION_BYTES);
    mold->started = 1;
    mold->has_end = mold->ended = 0;
    mold->expected = mold->horizon = first_seq;
    mold->run_head = mold->run_tail = 0;
    for (int i = 0; i < MOLD_N_LINE; i++)
        mold->line_next[i] = 0;
}

/* What a packet's session makes of it: foreign, of the running session, or the first of a new one. */
enum session_kind { SESSION_FOREIGN, SESSION_SAME, SESSION_NEW };

static enum session_kind session_kind(const struct mold *mold, const uint8_t *session)
{
    static const uint8_t any[MOLD_SESSION_BYTES];
    if (mold->started && !memcmp(session, mold->session, MOLD_SESSION_BYTES))
        return SESSION_SAME;
    if (memcmp(mold->config.session, any, MOLD_SESSION_BYTES) &&
        memcmp(mold->config.session, session, MOLD_SESSION_BYTES))
        return SESSION_FOREIGN;
    return !mold->started || mold->ended ? SESSION_NEW : SESSION_FOREIGN;
}

static int drop(uint64_t *counter)
{
    ++*counter;
    return -1;
}

int mold_parse(const uint8_t *payload, size_t len, struct mold_packet_header *out)
{
    if (len < MOLD_HEADER_BYTES)
        return -1;
    uint64_t seq_no = be_load_u64(payload + MOLD_SESSION_BYTES);
    uint16_t field = be_load_u16(payload + COUNT_OFFSET);
    uint32_t n_message = field == MOLD_COUNT_END ? 0 : field;
    if (seq_no > UINT64_MAX - n_message)
        return -1;
    size_t at = MOLD_HEADER_BYTES;
    for (uint32_t i = 0; i < n_message; i++) {
        if (len - at < LENGTH_BYTES)
            return -1;
        size_t block = (size_t)LENGTH_BYTES + be_load_u16(payload + at);
        if (len - at < block)
            return -1;
        at += block;
    }
    out->seq_no = seq_no;
    out->n_message = n_message;
    out->end = field == MOLD_COUNT_END;
    out->bytes = (uint32_t)at;
    out->session = payload;
    return 0;
}

void mold_write_header(uint8_t *payload, const uint8_t session[MOLD_SESSION_BYTES], uint64_t seq_no,
                       uint16_t count)
{
    uint64_t seq_be = __builtin_bswap64(seq_no);
    uint16_t count_be = __builtin_bswap16(count);
    memcpy(payload, session, MOLD_SESSION_BYTES);
    memcpy(payload + MOLD_SESSION_BYTES, &seq_be, sizeof(seq_be));
    memcpy(payload + COUNT_OFFSET, &count_be, sizeof(count_be));
}

/* The blocks of a data packet [seq, seq + count), checked by mold_parse. */
static void take_blocks(struct mold *mold, enum mold_line line, const uint8_t *payload, uint64_t seq,
                        uint32_t count, uint64_t now)
{
    struct mold_counters *counters = &mold->counters;
    uint64_t horizon = mold->horizon, last = seq + count;
    /* The last message of this packet that is new. */
    while (last > seq && last - 1 >= mold->expected && is_kept(mold, last - 1))
        last--;
    last--;

    size_t at = MOLD_HEADER_BYTES;
    for (uint64_t s = seq; s != seq + count; s++) {
        uint16_t len = be_load_u16(payload + at);
        const uint8_t *msg = payload + at + LENGTH_BYTES;
        at += (size_t)LENGTH_BYTES + len;
        if (s < mold->expected || is_kept(mold, s)) {
            counters->duplicates++;
            continue;
        }
        counters->first_wins[line]++;
        counters->recovered += s < horizon;
        while (s != mold->expected &&
               (s - mold->expected > mold->mask || cells_of(len) > mold->n_free_cell)) {
            counters->store_overflow++;
            give_up(mold, s, now);
        }
        if (s != mold->expected) {
            keep(mold, s, msg, len, now, s == last);
            continue;
        }
        deliver(mold, msg, len, now, s == last);
        drain(mold);
    }
}

int mold_packet(struct mold *mold, enum mold_line line, const uint8_t *payload, size_t len, uint64_t now)
{
    struct mold_counters *counters = &mold->counters;
    assert(line == MOLD_LINE_A || line == MOLD_LINE_B);
    counters->packets[line]++;
    struct mold_packet_header header;
    if (mold_parse(payload, len, &header))
        return drop(&counters->malformed);
    uint64_t seq = header.seq_no, next = seq + header.n_message;
    enum session_kind kind = session_kind(mold, payload);
    if (kind == SESSION_FOREIGN)
        return drop(&counters->foreign_session);
    /* A session that follows on another has been listened for from its start on, so its first number is 1. */
    uint64_t first_seq = mold->started ? 1 : mold->config.first_seq ? mold->config.first_seq : seq;
    uint64_t expected = kind == SESSION_NEW ? first_seq : mold->expected;
    if (seq > expected && seq - expected > MOLD_JUMP_MAX)
        return drop(&counters->malformed);
    /* The end cannot lie before what has been sent already. */
    if (header.end && kind == SESSION_SAME && seq < mold->horizon)
        return drop(&counters->malformed);
    if (kind == SESSION_NEW) {
        int another = mold->started;
        start_session(mold, payload, first_seq);
        if (another && mold->handler.new_session)
            mold->handler.new_session(mold->handler.ctx, mold->session);
    }

    counters->trailing_bytes += header.bytes < len;
    counters->gaps[line] += mold->line_next[line] != 0 && seq > mold->line_next[line];
    if (next > mold->line_next[line])
        mold->line_next[line] = next;
    if (seq > mold->horizon)
        open_run(mold, now);
    if (next > mold->horizon)
        mold->has_end = mold->ended = 0; /* not the end, then, whatever was said before */
    if (header.n_message != 0)
        take_blocks(mold, line, payload, seq, header.n_message, now);
    else if (header.end)
        mold->has_end = 1;
    counters->end_of_session += header.end;
    counters->heartbeats += header.n_message == 0 && !header.end;
    if (next > mold->horizon)
        mold->horizon = next;
    if (mold->expected < mold->horizon || mold->has_end)
        expire(mold, now);
    return 0;
}

uint64_t mold_poll(struct mold *mold, uint64_t now)
{
    return mold->expected < mold->horizon ? expire(mold, now) : UINT64_MAX;
}

void mold_flush(struct mold *mold, uint64_t now)
{
    while (mold->expected < mold->horizon)
        give_up(mold, mold->horizon, now);
    expire(mold, now);
}

const struct mold_counters *mold_counters(const struct mold *mold)
{
    return &mold->counters;
}

uint64_t mold_expected(const struct mold *mold)
{
    return mold->expected;
}
