#include "order.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"

int order_post(struct order_desk *desk, const struct order *order)
{
    if (order->kind == ORDER_HALT) {
        desk->halts += desk->halts == UINT32_MAX ? 2 : 1; /* never 0 */
        atomic_store_explicit(&desk->halted_at, clock_tsc(), memory_order_relaxed);
        /* At once, whatever became of the order before; seq_cst: not behind anything that the caller reads
           next. */
        atomic_store_explicit(&desk->halted, desk->halts, memory_order_seq_cst);
    }
    if (!order_is_done(desk))
        return -1;
    desk->order = *order;
    desk->resumes = atomic_load_explicit(&desk->halted, memory_order_relaxed);
    atomic_fetch_add_explicit(&desk->posted, 1, memory_order_release); /* after the text */
    return 0;
}

int order_is_done(const struct order_desk *desk)
{
    /* acquire: what the poll loop did about it is there */
    return atomic_load_explicit(&desk->done, memory_order_acquire) ==
           atomic_load_explicit(&desk->posted, memory_order_relaxed);
}

void order_carried_out(struct order_desk *desk)
{
    if (desk->order.kind == ORDER_RESUME) {
        uint32_t halt = desk->resumes; /* not one that was ordered after the resume */
        atomic_compare_exchange_strong_explicit(&desk->halted, &halt, 0, memory_order_relaxed,
                                                memory_order_relaxed);
    }
    atomic_store_explicit(&desk->seen_at, clock_tsc(), memory_order_relaxed);
    atomic_fetch_add_explicit(&desk->done, 1, memory_order_release); /* after what was done */
}

void order_by(char by[ORDER_BY_CHARS], const char *name, uint32_t uid)
{
    const int n = snprintf(by, ORDER_BY_CHARS, "%s (uid %u)", name, uid);
    assert(n < ORDER_BY_CHARS);
    (void)n;
}

const char *order_text_check(const char *text, size_t chars)
{
    const size_t n = strnlen(text, chars);
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~')
            return "has a character that is not printable ASCII";
    return n == chars ? "is too long" : NULL;
}
