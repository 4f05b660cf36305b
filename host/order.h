/* What a person orders of a running appliance, from another thread to the poll loop: halt, resume.
 *
 * The halt itself is one word that the poll loop looks at immediately before the clock reading of the last
 * check: a halt that was ordered before that look keeps the tick from being published. What follows (audit
 * event, ladder) is done between two ticks, and acknowledged. One order at a time; one thread orders, one
 * obeys. */
#ifndef ORDER_H
#define ORDER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum order_kind { ORDER_HALT = 1, ORDER_RESUME = 2 };
/* With the NUL; printable ASCII. by: "NAME (uid N)"; with it, ": " and the reason an audit event's text holds
 * both. */
enum { ORDER_NAME_CHARS = 31, ORDER_BY_CHARS = 48, ORDER_REASON_CHARS = 94 };

struct order {
    enum order_kind kind;
    char by[ORDER_BY_CHARS], reason[ORDER_REASON_CHARS];
};

struct order_desk {                       /* all zero at first */
    _Alignas(64) _Atomic uint32_t halted; /* nonzero: nothing is published. Another number for every halt */
    _Atomic uint32_t posted, done;        /* orders so far */
    _Atomic uint64_t halted_at, seen_at;  /* TSC: stored when halt was ordered; the poll loop's answer */
    struct order order;                   /* the thread's that orders while posted == done, else the loop's */
    uint32_t resumes;                     /* the same: value of halted that the resume was ordered for */
    uint32_t halts;                       /* the thread's that orders */
};

/* Orders. 0, or -1: the one before has not been carried out yet (the poll loop is not running, or hangs). A
 * halt is in force all the same, and a resume that still waits does not lift it: order it again when
 * order_is_done, for the ladder to know of it. */
int order_post(struct order_desk *desk, const struct order *order);
/* Nonzero: every order that was posted has been carried out. The thread that orders. */
int order_is_done(const struct order_desk *desk);

/* "NAME (uid N)". name: valid, up to ORDER_NAME_CHARS. */
void order_by(char by[ORDER_BY_CHARS], const char *name, uint32_t uid);
/* NULL, or what is wrong with it: printable ASCII with the NUL in chars at most; may be "". */
const char *order_text_check(const char *text, size_t chars);

/* Poll loop, before the last check. */
static inline int order_is_halted(const struct order_desk *desk)
{
    return atomic_load_explicit(&desk->halted, memory_order_acquire) != 0;
}
/* Poll loop, between two ticks: the order that waits, or NULL; order_carried_out when it is. */
static inline const struct order *order_next(const struct order_desk *desk)
{
    /* acquire: the order's text was written before posted was raised */
    return atomic_load_explicit(&desk->posted, memory_order_acquire) ==
                   atomic_load_explicit(&desk->done, memory_order_relaxed)
               ? NULL
               : &desk->order;
}
void order_carried_out(struct order_desk *desk);

#endif
