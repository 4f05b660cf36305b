/* Events to come, earliest first; those of one time in the order they were put: a binary heap in the caller's
 * memory. One thread. */
#ifndef AGENDA_H
#define AGENDA_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

struct agenda_event {
    uint64_t ts_ns, order;
    uint32_t kind, arg;
};

struct agenda {
    struct agenda_event *event; /* room for max */
    size_t n, max;
    uint64_t n_put;
};

static inline int agenda_before(const struct agenda_event *a, const struct agenda_event *b)
{
    return a->ts_ns != b->ts_ns ? a->ts_ns < b->ts_ns : a->order < b->order;
}

static inline void agenda_put(struct agenda *agenda, uint64_t ts_ns, uint32_t kind, uint32_t arg)
{
    struct agenda_event event = {ts_ns, agenda->n_put++, kind, arg}, *heap = agenda->event;
    assert(agenda->n < agenda->max);
    size_t i = agenda->n++;
    for (; i > 0 && agenda_before(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = event;
}

/* The earliest; there must be one. */
static inline struct agenda_event agenda_take(struct agenda *agenda)
{
    assert(agenda->n > 0);
    struct agenda_event *heap = agenda->event, top = heap[0], last = heap[--agenda->n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < agenda->n) {
        if (child + 1 < agenda->n && agenda_before(&heap[child + 1], &heap[child]))
            child++;
        if (!agenda_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

#endif
