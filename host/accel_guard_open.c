/* Set-up, threads, close. */
#include <assert.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "accel_guard_self.h"

enum {
    /* Fruitless rounds before a card's thread sleeps: some 10 us. */
    SPINS_BEFORE_SLEEP = 500,
    /* Asleep it is not to be woken, which would be a system call of the poll loop's. So long a mirror may be
     * behind at the start of a burst; the queue holds far more than comes meanwhile. */
    SLEEP_NS = 20 * 1000,
    CLOSE_WAIT_MS = 2000,
};

/* ---- a card's thread ---- */

/* Steps one entry on the mirror, if nobody else holds it. 1: done something. */
static int run_mirror(struct guard_card *c)
{
    if (atomic_load_explicit(&c->mirror_wanted, memory_order_relaxed))
        return 0;
    uint32_t nobody = GUARD_NOBODY;
    /* acquire: pairs with the release in guard_give_mirror, and with its own below */
    if (!atomic_compare_exchange_strong_explicit(&c->mirror_holder, &nobody, GUARD_THREAD,
                                                 memory_order_acquire, memory_order_relaxed))
        return 0;
    const int busy = guard_mirror_piece(c);
    /* release: pairs with the acquire in guard_take_mirror */
    atomic_store_explicit(&c->mirror_holder, GUARD_NOBODY, memory_order_release);
    return busy;
}

static void *run_card(void *argument)
{
    struct guard_card *c = argument;
    uint32_t n_idle = 0;
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        /* acquire: pairs with the release in the poll loop's start */
        const int rests = guard_at_rest(atomic_load_explicit(&c->stage, memory_order_acquire));
        if (!rests ? guard_recover_piece(c) : c->is_threaded_mirror && run_mirror(c)) {
            n_idle = 0;
        } else if (++n_idle < SPINS_BEFORE_SLEEP) {
            _mm_pause();
        } else {
            const struct timespec nap = {.tv_nsec = SLEEP_NS};
            nanosleep(&nap, NULL);
        }
    }
    /* release: pairs with the acquire in end_thread */
    atomic_store_explicit(&c->gone, 1, memory_order_release);
    return NULL;
}

/* 0, or -1: it hangs in a call of the device's. */
static int end_thread(struct guard_card *c)
{
    const struct timespec ms = {.tv_nsec = 1000 * 1000};
    atomic_store_explicit(&c->stop, 1, memory_order_relaxed);
    for (int i = 0; i < CLOSE_WAIT_MS; i++) {
        if (atomic_load_explicit(&c->gone, memory_order_acquire)) {
            pthread_join(c->thread, NULL);
            return 0;
        }
        nanosleep(&ms, NULL);
    }
    pthread_detach(c->thread);
    return -1;
}

/* ---- close ---- */

static void close_accel(struct accel *accel)
{
    if (accel)
        accel->ops->close(accel);
}

static void close_card(struct guard_card *c)
{
    if (c->has_thread && end_thread(c))
        return; /* the card and all that its thread may still touch are left behind */
    close_accel(c->card);
    close_accel(c->mirror);
    close_accel(c->judge);
    spsc_ring_free(&c->queue);
    spsc_ring_free(&c->states);
    free(c);
}

static void guard_close(struct accel *accel)
{
    struct guard *g = guard_of(accel);
    for (uint32_t i = 0; i < g->n_card; i++)
        close_card(g->card[i]);
    free(g);
}

/* ---- the rest of accel.h ---- */

static void guard_info(struct accel *accel, struct kl_info *info)
{
    struct guard *g = guard_of(accel);
    struct guard_card *c = g->card[0];
    struct accel *from = c->phase == ACCEL_GUARD_SERVING ? c->card : c->mirror;
    from->ops->info(from, info);
}

static void guard_warm(struct accel *accel, uint32_t slot, uint32_t stream)
{
    struct guard *g = guard_of(accel);
    struct guard_card *c = g->card[stream % g->n_card];
    if (c->phase == ACCEL_GUARD_SERVING)
        c->card->ops->warm(c->card, slot, stream);
    if (c->phase != ACCEL_GUARD_SERVING || g->prove) /* the mirror is on the critical path */
        c->mirror->ops->warm(c->mirror, slot, stream);
}

static const struct accel_ops guard_ops = {
    .name = "guard",
    .submit = guard_submit,
    .poll = guard_poll,
    .load_begin = guard_load_begin,
    .load_advance = guard_load_advance,
    .save = guard_save,
    .restore = guard_restore,
    .info = guard_info,
    .warm = guard_warm,
    .close = guard_close,
};

/* ---- open ---- */

static int check_card(const struct accel_guard_options *options, uint32_t i, const struct kl_info *build,
                      char error[ACCEL_ERROR_CHARS])
{
    struct kl_info info;
    options->cards[i]->ops->info(options->cards[i], &info);
    if (info.abi_version == KL_ABI_VERSION && memcmp(info.build, build->build, sizeof info.build) == 0 &&
        info.n_part == build->n_part && info.n_stream == build->n_stream)
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS,
             "card %u is of build '%.*s', part of %u, ABI %u; all cards have to be of build '%s', whole, ABI "
             "%u",
             i, (int)sizeof info.build, info.build, info.n_part, info.abi_version, options->cpu.build->name,
             (unsigned)KL_ABI_VERSION);
    return -1;
}

/* Pages are touched now: no fault on the hot path. */
static int ring_init(struct spsc_ring *ring, uint64_t n_record, uint32_t record_bytes)
{
    if (spsc_ring_init(ring, n_record, record_bytes))
        return -1;
    memset(ring->records, 0, n_record * record_bytes);
    return 0;
}

/* Takes accel over, also when it fails. NULL: out of memory. */
static struct guard_card *open_card(const struct accel_guard_options *options, uint32_t index,
                                    uint32_t n_stream)
{
    struct guard_card *c = aligned_alloc(64, sizeof *c);
    if (!c) {
        close_accel(options->cards[index]);
        return NULL;
    }
    memset(c, 0, sizeof *c);
    c->card = options->cards[index];
    c->index = index;
    c->n_card = options->n_card;
    c->n_stream = n_stream;
    c->is_inline = options->is_inline;
    c->is_threaded_mirror = !options->is_inline && !options->prove;
    c->n_probe = options->n_probe;
    c->retry_cycles = options->retry_cycles;
    c->phase = ACCEL_GUARD_SERVING;
    atomic_init(&c->stage, GUARD_REST);
    c->mirror = accel_cpu_open(&options->cpu);
    struct accel_cpu_options judge = options->cpu;
    judge.prepare_thread = 0;
    c->judge = accel_cpu_open(&judge);
    const int no_queue = ring_init(&c->queue, GUARD_N_ENTRY, sizeof(struct guard_entry));
    const int no_states = ring_init(&c->states, GUARD_N_STATE, sizeof(struct kl_state));
    if (c->mirror && c->judge && !no_queue && !no_states)
        return c;
    close_card(c);
    return NULL;
}

static void close_cards(const struct accel_guard_options *options, uint32_t from)
{
    for (uint32_t i = from; i < options->n_card; i++)
        close_accel(options->cards[i]);
}

struct accel *accel_guard_open(const struct accel_guard_options *options, char error[ACCEL_ERROR_CHARS])
{
    assert(options->n_card >= 1 && options->n_card <= ACCEL_GUARD_CARDS_MAX && options->n_probe >= 1);
    struct kl_info build;
    struct guard *g = NULL;
    snprintf(error, ACCEL_ERROR_CHARS, "out of memory for the cards' mirrors");
    uint32_t n_checked = 0;
    if (accel_build_limits(options->cpu.build, &build) == 0) {
        while (n_checked < options->n_card && !check_card(options, n_checked, &build, error))
            n_checked++;
        g = n_checked == options->n_card ? calloc(1, sizeof *g) : NULL;
    }
    if (!g) {
        close_cards(options, 0);
        return NULL;
    }
    g->accel.ops = &guard_ops;
    g->n_stream = build.n_stream;
    g->check_every = options->check_every;
    g->prove = options->prove;
    for (uint32_t i = 0; i < options->n_card; i++) {
        struct guard_card *c = open_card(options, i, g->n_stream);
        int is_good = c != NULL;
        if (c) {
            g->card[g->n_card++] = c;
            c->has_thread = !options->is_inline && pthread_create(&c->thread, NULL, run_card, c) == 0;
            is_good = options->is_inline || c->has_thread;
            if (!is_good)
                snprintf(error, ACCEL_ERROR_CHARS, "card %u: its thread does not start", i);
        }
        if (!is_good) {
            close_cards(options, i + 1);
            guard_close(&g->accel);
            return NULL;
        }
    }
    return &g->accel;
}
