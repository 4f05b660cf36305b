#include "threshold.h"

int threshold_update(struct threshold *t, uint64_t now, uint64_t backlog_age, uint32_t ring_percent)
{
    const struct threshold_config *c = &t->cfg;
    if (c->base == c->max)
        return 0;
    const uint64_t since = now - t->changed_at;
    if ((int64_t)since < 0) { /* the clock went back: the dwell begins anew */
        t->changed_at = now;
        return 0;
    }
    if (since < c->dwell)
        return 0;
    /* The first age that is at or above relax, the last that is at or below tighten. */
    const uint64_t relax_age = (c->base * c->relax_percent + 99) / 100;
    const uint64_t tighten_age = c->base * c->tighten_percent / 100;
    if (backlog_age >= relax_age || ring_percent >= c->relax_percent) {
        if (t->current == c->max)
            return 0;
        t->current = c->max - t->current > c->step ? t->current + c->step : c->max;
    } else if (backlog_age <= tighten_age && ring_percent <= c->tighten_percent) {
        if (t->current == c->base)
            return 0;
        t->current = t->current - c->base > c->step ? t->current - c->step : c->base;
    } else
        return 0;
    t->changed_at = now;
    return 1;
}
