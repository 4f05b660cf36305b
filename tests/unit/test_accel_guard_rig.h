/* What the tests of the guard share: a card (csim) that fails on request, and a session that sends the same
 * requests to a guard and to a clean csim and compares every answer. */
#ifndef TEST_ACCEL_GUARD_RIG_H
#define TEST_ACCEL_GUARD_RIG_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "host/accel_guard.h"
#include "tests/model_image.h"

enum rig_fault {
    RIG_NONE,
    RIG_HANG,      /* nothing is answered any more */
    RIG_REFUSE,    /* ACCEL_FAILED */
    RIG_FORGET,    /* "nothing is outstanding" while something is */
    RIG_SEQUENCE,  /* another seq_no, rightly sealed */
    RIG_STREAM,    /* another stream's, rightly sealed */
    RIG_DUPLICATE, /* the last answer again */
    RIG_EXTRA,     /* the last answer again, in an idle moment */
    RIG_DAMAGE,    /* a bit of a logit, not sealed */
    RIG_MODEL,     /* another model's, rightly sealed */
    RIG_LATE,      /* says that it was late; the request had no budget */
    RIG_STATUS,    /* an error that is none, rightly sealed */
    RIG_DENY,      /* no error where there is one: of the last good answer, rightly sealed */
    RIG_FLIP,      /* logits turned over, rightly sealed: only a comparison shows it */
    RIG_STATE,     /* a stream's state is damaged before its step */
    RIG_CYCLES,    /* a cycle more, rightly sealed */
};

struct rig_card {
    struct accel accel;
    struct accel *inner;
    _Atomic int fault;         /* until a reset that works */
    _Atomic int sticky;        /* also after it */
    _Atomic int reset_fails;   /* so many more times; below 0: for ever */
    _Atomic int reset_hangs;   /* for as long as it is set */
    _Atomic int load_fails;    /* so many more times */
    _Atomic int restore_fails; /* so many more times */
    _Atomic int n_reset, n_answer, is_open, n_fired;
    uint32_t n_outstanding, delay;
    _Atomic uint32_t delay_polls; /* an answer comes after so many fruitless polls */
    int load_is_bad;
    uint32_t load_delay, load_waits; /* a load takes so many calls more */
    struct kl_result last;
};

static inline struct rig_card *rig_of(struct accel *accel)
{
    return (struct rig_card *)(void *)accel;
}

/* Takes one of *n_more failures; below 0 they do not end. The test may set it at the same time. */
static inline int rig_fails(_Atomic int *n_more)
{
    int n = *n_more;
    while (n > 0 && !atomic_compare_exchange_weak(n_more, &n, n - 1))
        ;
    return n != 0;
}

static inline int rig_submit(struct accel *accel, const struct kl_request *request)
{
    struct rig_card *card = rig_of(accel);
    if (card->fault == RIG_REFUSE) {
        card->n_fired++;
        return ACCEL_FAILED;
    }
    if (card->fault == RIG_STATE && request->slot < KL_N_SLOT && card->n_outstanding == 0) {
        struct kl_state state;
        if (card->inner->ops->save(card->inner, request->slot, request->stream, &state) == KL_OK) {
            state.c[0][0] ^= 1 << (KL_C_FRAC - 2);
            state.check = kl_state_check(&state);
            card->inner->ops->restore(card->inner, request->slot, request->stream, &state);
            card->n_fired++;
        }
    }
    const int got = card->inner->ops->submit(card->inner, request);
    card->n_outstanding += got == 0;
    return got;
}

static inline void rig_spoil(struct rig_card *card, int fault, struct kl_result *r)
{
    const struct kl_result before = *r;
    const int is_good = r->status == KL_OK && !(r->flags & KL_RESULT_LATE);
    switch (fault) {
    case RIG_SEQUENCE:
        r->seq_no++;
        break;
    case RIG_STREAM:
        r->stream++;
        break;
    case RIG_DUPLICATE:
        if (card->last.seq_no)
            *r = card->last;
        break;
    case RIG_MODEL:
        r->image_hash ^= r->image_hash != 0;
        break;
    case RIG_LATE:
        if (is_good) {
            r->flags = KL_RESULT_LATE;
            r->cls = 0;
            memset(r->logits, 0, sizeof r->logits);
        }
        break;
    case RIG_STATUS:
        if (is_good)
            *r = (struct kl_result){.abi_version = KL_ABI_VERSION,
                                    .status = KL_E_PEER,
                                    .stream = r->stream,
                                    .seq_no = r->seq_no,
                                    .slot = r->slot};
        break;
    case RIG_DENY:
        if (r->status != KL_OK && card->last.status == KL_OK && card->last.seq_no) {
            *r = card->last;
            r->seq_no = before.seq_no;
            r->stream = before.stream;
            r->slot = before.slot;
        }
        break;
    case RIG_FLIP:
        if (is_good && r->logits[0])
            r->logits[0] ^= 1;
        break;
    case RIG_CYCLES:
        if (is_good)
            r->kernel_cycles++;
        break;
    default:
        break;
    }
    r->check = kl_result_check(r);
    if (fault == RIG_DAMAGE)
        r->logits[0] ^= 1 << 7;
    card->n_fired += memcmp(&before, r, sizeof before) != 0;
}

static inline int rig_poll(struct accel *accel, struct kl_result *result)
{
    struct rig_card *card = rig_of(accel);
    const int fault = card->fault;
    if (fault == RIG_REFUSE) {
        card->n_fired++;
        return ACCEL_FAILED;
    }
    if (fault == RIG_EXTRA && card->last.seq_no && card->n_outstanding == 0) {
        *result = card->last;
        card->n_fired++;
        return 1;
    }
    if (card->n_outstanding == 0)
        return card->inner->ops->poll(card->inner, result);
    if (fault == RIG_HANG || fault == RIG_FORGET) {
        card->n_fired++;
        return fault == RIG_HANG ? 0 : -1;
    }
    if (card->delay++ < card->delay_polls)
        return 0;
    card->delay = 0;
    const int got = card->inner->ops->poll(card->inner, result);
    assert_int_equal(got, 1);
    card->n_outstanding--;
    card->n_answer++;
    const struct kl_result good = *result;
    if (fault)
        rig_spoil(card, fault, result);
    card->last = good;
    return 1;
}

static inline uint32_t rig_load_begin(struct accel *accel, uint32_t slot, const void *image,
                                      size_t size_bytes)
{
    struct rig_card *card = rig_of(accel);
    card->load_is_bad = rig_fails(&card->load_fails);
    card->load_waits = card->load_delay;
    return card->inner->ops->load_begin(card->inner, slot, image, size_bytes);
}

static inline uint32_t rig_load_advance(struct accel *accel)
{
    struct rig_card *card = rig_of(accel);
    if (card->load_waits > 0) {
        card->load_waits--;
        return KL_E_BUSY;
    }
    const uint32_t status = card->inner->ops->load_advance(card->inner);
    return status == KL_OK && card->load_is_bad ? KL_E_IMAGE_HASH : status;
}

static inline uint32_t rig_save(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    return rig_of(accel)->inner->ops->save(rig_of(accel)->inner, slot, stream, state);
}

static inline uint32_t rig_restore(struct accel *accel, uint32_t slot, uint32_t stream,
                                   const struct kl_state *state)
{
    struct rig_card *card = rig_of(accel);
    if (rig_fails(&card->restore_fails))
        return KL_E_STATE;
    return card->inner->ops->restore(card->inner, slot, stream, state);
}

static inline void rig_info(struct accel *accel, struct kl_info *info)
{
    rig_of(accel)->inner->ops->info(rig_of(accel)->inner, info);
}

static inline void rig_warm(struct accel *accel, uint32_t slot, uint32_t stream)
{
    rig_of(accel)->inner->ops->warm(rig_of(accel)->inner, slot, stream);
}

static inline int rig_reset(struct accel *accel, char error[ACCEL_ERROR_CHARS])
{
    struct rig_card *card = rig_of(accel);
    while (card->reset_hangs)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    card->n_reset++;
    if (rig_fails(&card->reset_fails)) {
        snprintf(error, ACCEL_ERROR_CHARS, "it is broken");
        return -1;
    }
    card->inner->ops->close(card->inner);
    card->inner = accel_csim_open(&kl_build_small, 1);
    assert_non_null(card->inner);
    if (!card->sticky)
        card->fault = RIG_NONE;
    card->n_outstanding = card->delay = 0;
    memset(&card->last, 0, sizeof card->last);
    return 0;
}

static inline void rig_close(struct accel *accel)
{
    struct rig_card *card = rig_of(accel);
    card->inner->ops->close(card->inner);
    card->is_open = 0; /* the card itself is the test's */
}

static const struct accel_ops rig_ops = {.name = "rig",
                                         .submit = rig_submit,
                                         .poll = rig_poll,
                                         .load_begin = rig_load_begin,
                                         .load_advance = rig_load_advance,
                                         .save = rig_save,
                                         .restore = rig_restore,
                                         .info = rig_info,
                                         .warm = rig_warm,
                                         .reset = rig_reset,
                                         .close = rig_close};

/* ---- a session ---- */

enum { RIG_N_STREAM = 14, RIG_N_EVENT = 4096, RIG_PATIENCE = 40 };

static const struct model_image_shape RIG_SHAPES[2] = {
    {.n_in = 8, .n_layer = 1, .n_class = 3, .n_hidden = {16}},
    {.n_in = 5, .n_layer = 2, .n_class = 2, .n_hidden = {12, 9}},
};

struct rig {
    struct accel_guard_options options;
    struct rig_card card[3];
    struct accel *guard, *truth;
    struct kl_image_header *images[2];
    const struct kl_image_header *loaded[KL_N_SLOT];
    uint64_t seed;
    uint32_t seq_no;
    struct kl_request asked[KL_QUEUE_DEPTH];
    uint32_t n_asked, n_heard; /* run freely */
    int flags_allowed; /* requests may carry KL_REQUEST_PREPARE; kernel_cycles are not compared then */
    int lies_allowed;  /* answers may be wrong: they are counted, and kept until an event says so */
    uint32_t n_lie, first_lie, last_lie;
    uint32_t n_late, n_refused;
    struct accel_guard_event events[RIG_N_EVENT];
    uint32_t n_event;
};

static inline uint32_t rig_below(struct rig *rig, uint32_t n)
{
    return (uint32_t)(model_image_random_u64(&rig->seed) % n);
}

static inline void rig_load(struct rig *rig, uint32_t slot, uint32_t image)
{
    const struct kl_image_header *header = rig->images[image];
    assert_int_equal(accel_load(rig->guard, slot, header, header->size_bytes), KL_OK);
    assert_int_equal(accel_load(rig->truth, slot, header, header->size_bytes), KL_OK);
    rig->loaded[slot] = header;
}

static inline struct accel_guard_options rig_options(uint32_t n_card)
{
    return (struct accel_guard_options){.n_card = n_card,
                                        .cpu = {.build = &kl_build_small},
                                        .check_every = 1,
                                        .is_inline = 1,
                                        .n_probe = 20,
                                        .retry_cycles = 1000};
}

static inline struct rig *rig_open(const struct accel_guard_options *options, uint64_t seed)
{
    struct rig *rig = calloc(1, sizeof *rig);
    struct accel *cards[3];
    char error[ACCEL_ERROR_CHARS];
    assert_non_null(rig);
    rig->options = *options;
    rig->seed = seed;
    for (uint32_t i = 0; i < options->n_card; i++) {
        rig->card[i].accel.ops = &rig_ops;
        rig->card[i].inner = accel_csim_open(&kl_build_small, 1);
        rig->card[i].is_open = 1;
        assert_non_null(rig->card[i].inner);
        cards[i] = &rig->card[i].accel;
    }
    rig->options.cards = cards;
    rig->guard = accel_guard_open(&rig->options, error);
    assert_non_null(rig->guard);
    rig->truth = accel_csim_open(&kl_build_small, 1);
    assert_non_null(rig->truth);
    for (uint32_t i = 0; i < 2; i++) {
        rig->images[i] = model_image_new(&RIG_SHAPES[i], 70 + i);
        assert_non_null(rig->images[i]);
        rig_load(rig, i, i);
    }
    return rig;
}

static inline void rig_fetch_events(struct rig *rig)
{
    while (rig->n_event < RIG_N_EVENT && accel_guard_event(rig->guard, &rig->events[rig->n_event]))
        rig->n_event++;
}

static inline void rig_end(struct rig *rig)
{
    rig->guard->ops->close(rig->guard);
    rig->truth->ops->close(rig->truth);
    for (uint32_t i = 0; i < rig->options.n_card; i++)
        assert_int_equal(rig->card[i].is_open, 0);
    free(rig->images[0]);
    free(rig->images[1]);
    free(rig);
}

static inline struct accel_guard_stats rig_stats(const struct rig *rig, uint32_t card)
{
    struct accel_guard_stats stats;
    accel_guard_stats(rig->guard, card, &stats);
    return stats;
}

static inline struct kl_request rig_request(struct rig *rig, enum kl_op op, uint32_t slot, uint32_t stream)
{
    struct kl_request request = {.abi_version = KL_ABI_VERSION,
                                 .op = (uint16_t)op,
                                 .slot = (uint16_t)slot,
                                 .stream = stream,
                                 .seq_no = ++rig->seq_no};
    memset(request.x, 0x7f, sizeof request.x); /* beyond the inputs: anything */
    for (uint32_t k = 0; slot < KL_N_SLOT && rig->loaded[slot] && k < rig->loaded[slot]->n_in; k++)
        request.x[k] = model_image_random_x(&rig->seed);
    return request;
}

static inline int rig_ask(struct rig *rig, const struct kl_request *request)
{
    const int got = rig->guard->ops->submit(rig->guard, request);
    if (got == 0)
        rig->asked[rig->n_asked++ % KL_QUEUE_DEPTH] = *request;
    return got;
}

static inline void rig_compare(struct rig *rig, const struct kl_request *request, const struct kl_result *got)
{
    struct kl_request question = *request;
    struct kl_result expected;
    assert_int_equal(got->seq_no, request->seq_no);
    if (got->status == KL_OK && got->flags & KL_RESULT_LATE) {
        assert_true(request->budget_cycles != 0);
        rig->n_late++;
        return;
    }
    question.budget_cycles = 0;
    assert_int_equal(rig->truth->ops->submit(rig->truth, &question), 0);
    assert_int_equal(rig->truth->ops->poll(rig->truth, &expected), 1);
    expected.wait_cycles = got->wait_cycles;
    if (rig->flags_allowed)
        expected.kernel_cycles = got->kernel_cycles;
    expected.check = kl_result_check(&expected);
    rig->n_refused += got->status != KL_OK;
    if (memcmp(got, &expected, sizeof expected) == 0)
        return;
    if (!rig->lies_allowed)
        print_error("seq_no %u op %u slot %u stream %u: status %u/%u cycles %u/%u logit %lld/%lld\n",
                    request->seq_no, request->op, request->slot, request->stream, got->status,
                    expected.status, got->kernel_cycles, expected.kernel_cycles, (long long)got->logits[0],
                    (long long)expected.logits[0]);
    assert_true(rig->lies_allowed);
    rig->last_lie = got->seq_no;
    if (!rig->n_lie++)
        rig->first_lie = got->seq_no;
}

/* The next answer, or 0: it does not come (and nobody has given it up). */
static inline int rig_hear_once(struct rig *rig, struct kl_result *result)
{
    const int got = rig->guard->ops->poll(rig->guard, result);
    assert_true(got == 0 || got == 1);
    if (got)
        rig_compare(rig, &rig->asked[rig->n_heard++ % KL_QUEUE_DEPTH], result);
    return got;
}

static inline struct kl_result rig_hear(struct rig *rig)
{
    struct kl_result result;
    for (int i = 0; !rig_hear_once(rig, &result); i++) {
        if (i == RIG_PATIENCE) {
            assert_int_equal(accel_guard_give_up(rig->guard), 0);
            assert_int_equal(rig_hear_once(rig, &result), 1); /* at once */
            break;
        }
    }
    return result;
}

static inline struct kl_result rig_call(struct rig *rig, enum kl_op op, uint32_t slot, uint32_t stream)
{
    const struct kl_request request = rig_request(rig, op, slot, stream);
    assert_int_equal(rig_ask(rig, &request), 0);
    return rig_hear(rig);
}

static inline void rig_hear_all(struct rig *rig)
{
    while (rig->n_heard != rig->n_asked)
        rig_hear(rig);
}

static inline void rig_idle(struct rig *rig)
{
    struct kl_result none;
    rig_hear_all(rig);
    assert_int_equal(rig->guard->ops->poll(rig->guard, &none), -1);
    if (rig->flags_allowed)
        assert_int_equal(rig->truth->ops->poll(rig->truth, &none), -1);
    rig_fetch_events(rig);
}

/* Idle until card is in the phase. 0: it never is. */
static inline int rig_reaches(struct rig *rig, uint32_t card, enum accel_guard_phase phase)
{
    const time_t start = time(NULL);
    for (uint32_t i = 0; rig_stats(rig, card).phase != phase; i++) {
        if (rig->options.is_inline ? i > 200000 : time(NULL) - start > 60)
            return 0;
        rig_idle(rig);
        if (!rig->options.is_inline)
            sched_yield();
    }
    return 1;
}

static inline uint32_t rig_count(const struct rig *rig, enum accel_guard_code code)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rig->n_event; i++)
        n += rig->events[i].code == code;
    return n;
}

/* Every state, in the guard and, with all cards serving, on the card itself. */
static inline void rig_compare_states(struct rig *rig)
{
    struct kl_state expected, got;
    rig_hear_all(rig);
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        for (uint32_t stream = 0; stream < RIG_N_STREAM; stream++) {
            const uint32_t card = stream % rig->options.n_card;
            assert_int_equal(rig->truth->ops->save(rig->truth, slot, stream, &expected), KL_OK);
            assert_int_equal(rig->guard->ops->save(rig->guard, slot, stream, &got), KL_OK);
            assert_memory_equal(&got, &expected, sizeof got);
            if (rig_stats(rig, card).phase != ACCEL_GUARD_SERVING)
                continue;
            struct accel *inner = rig->card[card].inner;
            assert_int_equal(inner->ops->save(inner, slot, stream, &got), KL_OK);
            assert_memory_equal(&got, &expected, sizeof got);
        }
}

/* A request of any kind, sound ones mostly. */
static inline struct kl_request rig_any_request(struct rig *rig)
{
    const uint32_t dice = rig_below(rig, 100), slot = rig_below(rig, 2),
                   stream = rig_below(rig, RIG_N_STREAM);
    struct kl_request request = rig_request(rig,
                                            dice < 70   ? KL_OP_STEP
                                            : dice < 85 ? KL_OP_PREPARE
                                                        : KL_OP_RESET,
                                            slot, stream);
    if (rig->flags_allowed && rig_below(rig, 2))
        request.flags = KL_REQUEST_PREPARE;
    switch (rig_below(rig, 60)) {
    case 0:
        request.slot = KL_N_SLOT;
        break;
    case 1:
        request.stream = KL_N_STREAM_MAX + rig_below(rig, 5);
        break;
    case 2:
        request.op = 9;
        break;
    case 3:
        request.abi_version++;
        break;
    case 4:
        request.x[1] = 0x7c00; /* infinite */
        break;
    case 5:
    case 6:
        request.budget_cycles = 1 + rig_below(rig, 100);
        break;
    default:
        break;
    }
    return request;
}

/* Moves a stream's state to another stream. */
static inline void rig_move_state(struct rig *rig)
{
    const uint32_t slot = rig_below(rig, 2), from = rig_below(rig, RIG_N_STREAM),
                   to = rig_below(rig, RIG_N_STREAM);
    struct kl_state state;
    rig_hear_all(rig);
    assert_int_equal(rig->guard->ops->save(rig->guard, slot, from, &state), KL_OK);
    assert_int_equal(rig->guard->ops->restore(rig->guard, slot, to, &state), KL_OK);
    assert_int_equal(rig->truth->ops->restore(rig->truth, slot, to, &state), KL_OK);
}

/* Some traffic: several outstanding, idle moments, states moved, models loaded. */
static inline void rig_run(struct rig *rig, uint32_t n, int with_loads)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_more = 1 + rig_below(rig, rig_below(rig, 8) ? 1 : KL_QUEUE_DEPTH);
        for (uint32_t k = 0; k < n_more; k++) {
            const struct kl_request request = rig_any_request(rig);
            if (rig_ask(rig, &request)) {
                rig_hear(rig);
                rig->seq_no--;
            }
        }
        for (uint32_t k = rig_below(rig, 10); k > 0 && rig->n_heard != rig->n_asked; k--)
            rig_hear(rig);
        if (rig_below(rig, 3))
            rig_idle(rig);
        if (rig_below(rig, 50) == 0)
            rig_move_state(rig);
        if (with_loads && rig_below(rig, 200) == 0) {
            rig_hear_all(rig);
            rig_load(rig, rig_below(rig, 2), rig_below(rig, 2));
        }
        rig_fetch_events(rig);
    }
    rig_hear_all(rig);
}

#endif
