/* The input is a sequence of packets: line and time step (1 byte), kind (1), sequence offset (1), count or
 * length (1), and for kind 0 the raw bytes of a packet. Properties: numbers are delivered or reported lost,
 * each once, in order and without a hole between; a message's bytes are there during the call; counters add
 * up; after a flush nothing is kept back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "net/moldudp64.h"

struct check {
    uint64_t next;
    int started;
    uint64_t messages, lost, gaps;
};

static void on_message(void *ctx, uint64_t seq, const uint8_t *msg, uint16_t len, uint64_t arrival,
                       int last_of_packet)
{
    struct check *check = ctx;
    static volatile uint8_t sink;
    (void)arrival;
    assert(!check->started || seq == check->next);
    assert(last_of_packet == 0 || last_of_packet == 1);
    for (uint16_t i = 0; i < len; i++)
        sink = msg[i]; /* the sanitizer sees a message that is not there any more */
    (void)sink;
    check->started = 1;
    check->next = seq + 1;
    check->messages++;
}

static void on_gap(void *ctx, uint64_t first, uint64_t count, uint64_t now)
{
    struct check *check = ctx;
    (void)now;
    assert(count > 0 && (!check->started || first == check->next) && first + count > first);
    check->started = 1;
    check->next = first + count;
    check->lost += count;
    check->gaps++;
}

static void on_end(void *ctx, uint64_t next_seq)
{
    struct check *check = ctx;
    assert(!check->started || next_seq == check->next);
}

static void on_new_session(void *ctx, const uint8_t session[MOLD_SESSION_BYTES])
{
    struct check *check = ctx;
    (void)session;
    check->started = 0;
}

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

enum { LENGTH_MAX = 300 };

/* A well-formed packet of count messages from seq on; message lengths depend on the number. */
static size_t write_packet(uint8_t *out, const char *session, uint64_t seq, uint16_t count)
{
    size_t at = MOLD_HEADER_BYTES;
    mold_write_header(out, (const uint8_t *)session, seq, count);
    for (uint64_t s = seq; count != MOLD_COUNT_END && s != seq + count; s++) {
        uint16_t len = (uint16_t)(s * 31 % LENGTH_MAX);
        out[at++] = (uint8_t)(len >> 8);
        out[at++] = (uint8_t)len;
        memset(out + at, (int)(s & 0xff), len);
        at += len;
    }
    return at;
}

/* Sends one packet from a buffer of its exact size. */
static void send_exact(struct mold *mold, enum mold_line line, const uint8_t *bytes, size_t n, uint64_t now)
{
    uint8_t *exact = malloc(n ? n : 1);
    assert(exact);
    memcpy(exact, bytes, n);
    mold_packet(mold, line, exact, n, now);
    free(exact);
}

static void check_counters(const struct mold *mold, const struct check *check)
{
    const struct mold_counters *c = mold_counters(mold);
    assert(c->messages == check->messages && c->messages_lost == check->lost && c->gaps_lost == check->gaps);
    assert(c->first_wins[0] + c->first_wins[1] >= c->messages);
    assert(c->recovered <= c->first_wins[0] + c->first_wins[1]);
    if (check->started)
        assert(mold_expected(mold) == check->next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sessions[] = {"000010059B", "000010060A"};
    static uint8_t packet[MOLD_HEADER_BYTES + 256 * (2 + LENGTH_MAX)];
    struct check check = {0};
    struct input input = {data, size};
    struct mold_handler handler = {on_message, on_gap, on_end, on_new_session, &check};
    uint8_t how = take(&input);
    struct mold_config config = {
        .n_store = 1u << how % 8, .gap_wait = how / 8 % 4 * 16, .first_seq = how & 128 ? 1 : 0};
    struct mold *mold = mold_create(&config, &handler);
    assert(mold);
    uint64_t now = 0, base = how & 64 ? UINT64_MAX - 600 : 1;
    while (input.size > 0) {
        uint8_t step = take(&input), kind = take(&input), offset = take(&input), amount = take(&input);
        enum mold_line line = step & 1 ? MOLD_LINE_B : MOLD_LINE_A;
        const char *session = sessions[kind / 8 % 16 == 15];
        uint64_t seq = base + offset;
        now += step / 2;
        switch (kind % 8) {
        case 0: { /* raw bytes */
            size_t n = amount < input.size ? amount : input.size;
            send_exact(mold, line, input.data, n, now);
            input.data += n;
            input.size -= n;
            break;
        }
        case 1:
            send_exact(mold, line, packet, write_packet(packet, session, seq, 0), now);
            break;
        case 2:
            send_exact(mold, line, packet, write_packet(packet, session, seq, MOLD_COUNT_END), now);
            break;
        case 3:
            mold_poll(mold, now);
            break;
        case 4: { /* cut at its end */
            size_t n = write_packet(packet, session, seq, 3);
            send_exact(mold, line, packet, n - amount % n, now);
            break;
        }
        case 5:
            base += offset;
            break;
        default:
            send_exact(mold, line, packet, write_packet(packet, session, seq, amount % 16), now);
        }
        check_counters(mold, &check);
    }
    mold_flush(mold, now);
    check_counters(mold, &check);
    assert(mold_poll(mold, now) == UINT64_MAX); /* nothing is open any more */
    /* Everything that was kept has been delivered. */
    assert(mold_counters(mold)->first_wins[0] + mold_counters(mold)->first_wins[1] == check.messages);
    mold_free(mold);
    return 0;
}
