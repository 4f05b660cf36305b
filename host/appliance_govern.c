#include "appliance_self.h"

#include <stdio.h>
#include <string.h>

enum {
    LOOK_US = 100, /* between two looks at the resources */
    /* Live: how far ahead a NIC's stamp may lie, mapped to the TSC. A PTP-disciplined NIC's mapping errs by
     * less than a microsecond. */
    FUTURE_MAX_NS = 1000,
};

static uint64_t in_units(const struct appliance *a, double ns)
{
    return (uint64_t)(ns * a->per_ns + 0.5);
}

static void set_rules(const struct config_rung *rung, enum governor_rung to, struct governor_config *g,
                      uint64_t dwell)
{
    const struct {
        enum governor_metric metric;
        const struct config_rule *rule;
        uint64_t scale;
    } rules[] = {{GOVERNOR_LATENCY, &rung->latency_percent, 1},
                 {GOVERNOR_SPREAD, &rung->spread_us, 1000},
                 {GOVERNOR_MISS, &rung->miss_ppm, 1},
                 {GOVERNOR_BUSY, &rung->busy_percent, 1},
                 {GOVERNOR_RESOURCE, &rung->resource_percent, 1},
                 {GOVERNOR_DEVICE, &rung->device_errors, 1}};
    static_assert(sizeof(rules) / sizeof(rules[0]) == GOVERNOR_N_METRIC, "every metric");
    for (int i = 0; i < GOVERNOR_N_METRIC; i++)
        g->rule[to][rules[i].metric] = (struct governor_rule){.enter = rules[i].rule->enter * rules[i].scale,
                                                              .leave = rules[i].rule->leave * rules[i].scale};
    g->dwell[to] = dwell;
}

/* Faults of earlier runs, on this run's clock. */
static uint32_t faults_before(const struct appliance *a, uint64_t now, const uint64_t *utc_ns, uint32_t n,
                              uint64_t *at)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n && i < GOVERNOR_N_FAULT; i++) {
        if (utc_ns[i] > a->cfg.start_utc_ns) /* the wall clock was put back: as if it were now */
            at[kept++] = now;
        else
            at[kept++] = now - in_units(a, (double)(a->cfg.start_utc_ns - utc_ns[i]));
    }
    return kept;
}

int appliance_govern_create(struct appliance *a)
{
    const struct config *c = a->cfg.config;
    const struct config_adaptive *adaptive = &c->killline.adaptive;
    const uint64_t now = appliance_now(a), base = in_units(a, c->killline.threshold_us * 1e3),
                   max = in_units(a, c->killline.threshold_max_us * 1e3);
    threshold_init(&a->threshold,
                   &(struct threshold_config){.base = base,
                                              .max = max > base ? max : base,
                                              .step = in_units(a, adaptive->step_us * 1e3),
                                              .relax_percent = adaptive->relax_percent,
                                              .tighten_percent = adaptive->tighten_percent,
                                              .dwell = in_units(a, adaptive->dwell_us * 1e3)},
                   now);
    a->arm_b = in_units(a, c->killline.ab.threshold_us * 1e3);
    a->future_max = in_units(a, FUTURE_MAX_NS);
    a->clock = (struct killline_clock){.last = now};

    struct governor_config g = {.ns_per_unit = a->to_ns,
                                .window = in_units(a, c->governor.window_ms * 1e6),
                                .min_count = c->governor.min_count,
                                .has_backup = a->cfg.backup != NULL,
                                .stays_halted = c->governor.stays_halted,
                                .throttle_devices = c->throttle.device_errors,
                                .throttle_halts = c->throttle.halts,
                                .throttle_window = in_units(a, c->throttle.window_s * 1e9),
                                .start_cause = GOVERNOR_BY_START};
    set_rules(&c->governor.warning, GOVERNOR_WARNING, &g, in_units(a, c->governor.warning.dwell_ms * 1e6));
    set_rules(&c->governor.backup, GOVERNOR_BACKUP, &g, in_units(a, c->governor.backup.dwell_ms * 1e6));
    set_rules(&c->governor.halted, GOVERNOR_HALTED, &g, in_units(a, c->governor.halted.dwell_ms * 1e6));
    const struct state_file *start = a->cfg.start;
    if (start) {
        g.start_rung = start->rung;
        g.start_cause = start->cause;
        g.n_device_fault =
            faults_before(a, now, start->device_fault_utc_ns, start->n_device_fault, g.device_fault);
        g.n_halt_fault = faults_before(a, now, start->halt_fault_utc_ns, start->n_halt_fault, g.halt_fault);
    }
    a->governor = governor_create(&g, now);
    if (!a->governor)
        return -1;
    governor_threshold(a->governor, a->threshold.current);
    a->looked_at = now;
    a->look_every = in_units(a, LOOK_US * 1e3);
    return 0;
}

/* Where the ladder stands decides whose predictions count. */
static void choose_slot(struct appliance *a)
{
    if (!a->cfg.backup)
        return;
    const uint8_t slot = governor_rung(a->governor) >= GOVERNOR_BACKUP;
    if (slot == a->slot)
        return;
    a->slot = slot;
    appliance_commit_event(a, AUDIT_EVENT_MODEL_SWITCH, 0, 0, slot, a->model[slot]->image->image_hash);
}

static void news(struct appliance *a)
{
    struct governor_event e;
    while (governor_next(a->governor, &e)) {
        const uint64_t rung[4] = {e.from, e.to, e.cause, e.latched},
                       alert[4] = {e.metric, e.raised, e.value, e.bound};
        appliance_commit_values(a, e.news == GOVERNOR_RUNG ? AUDIT_EVENT_RUNG : AUDIT_EVENT_ALERT,
                                e.news == GOVERNOR_RUNG ? rung : alert, "");
        a->stats.rung_changes += e.news == GOVERNOR_RUNG;
        a->stats.alerts += e.news == GOVERNOR_ALERT && e.raised;
    }
    choose_slot(a);
}

void appliance_govern_start(struct appliance *a)
{
    const struct config_ab *ab = &a->cfg.config->killline.ab;
    const enum governor_rung rung = governor_rung(a->governor);
    if (rung != GOVERNOR_ACTIVE) {
        const struct state_file *start = a->cfg.start;
        const uint64_t value[4] = {GOVERNOR_ACTIVE, rung, start->cause, rung == GOVERNOR_HALTED};
        char text[sizeof(((struct audit_event *)0)->text)];
        snprintf(text, sizeof(text), "as the last run was left%s%s%s%.60s", start->by[0] ? ", " : "",
                 start->by, start->reason[0] ? ": " : "", start->reason);
        appliance_commit_values(a, AUDIT_EVENT_RUNG, value, text);
        a->stats.rung_changes++;
    }
    if (a->arm_b) {
        const uint64_t value[4] = {a->threshold.current, a->arm_b, ab->share_percent, ab->salt};
        appliance_commit_values(a, AUDIT_EVENT_ARMS, value, "");
    }
    choose_slot(a);
}

static void obey(struct appliance *a, const struct order *order, uint64_t now)
{
    char text[ORDER_BY_CHARS + ORDER_REASON_CHARS + 1]; /* "by: reason", each shorter by its NUL */
    static_assert(sizeof(text) <= sizeof(((struct audit_event *)0)->text), "an order is one event");
    const size_t by = strnlen(order->by, ORDER_BY_CHARS - 1),
                 n = strnlen(order->reason, ORDER_REASON_CHARS - 1);
    memcpy(text, order->by, by);
    memcpy(text + by, ": ", 2);
    memcpy(text + by + 2, order->reason, n);
    text[by + 2 + n] = '\0';
    const uint64_t value[4] = {order->kind};
    appliance_commit_values(a, AUDIT_EVENT_ORDER, value, text);
    if (order->kind == ORDER_HALT)
        governor_halt(a->governor, now);
    else
        governor_resume(a->governor, now);
    news(a);
    order_carried_out(a->cfg.desk);
}

/* Fullest of the resources beside the receive ring, percent. */
static uint32_t resources(const struct appliance *a)
{
    const struct config_book *limits = &a->cfg.config->book;
    const struct book_counters *book = book_counters(market_books(intake_market(a->intake)));
    /* How far the audit log's writer is behind depends on this machine: a replay's ladder must not. */
    const uint64_t used = a->replay ? 0 : audit_used(a->cfg.log);
    const uint64_t parts[] = {used * 100 / a->cfg.config->audit.ring_records,
                              book->n_order * 100 / limits->orders, book->n_level * 100 / limits->levels};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        most = parts[i] > most ? parts[i] : most;
    return (uint32_t)most;
}

static void move_threshold(struct appliance *a, uint64_t now)
{
    const uint64_t from = a->threshold.current;
    uint64_t age = 0;
    if (appliance_n_pending(a)) {
        const struct pending *oldest = &a->pending[a->pending_head % PENDING_MAX];
        const int64_t waits = (int64_t)(now - oldest->tick.arrival);
        age = waits > 0 && oldest->epoch == a->clock.epoch ? (uint64_t)waits : 0;
    }
    const uint32_t ring = a->ring_size ? (uint32_t)(a->ring_used * 100 / a->ring_size) : 0;
    if (!threshold_update(&a->threshold, now, age, ring))
        return;
    const uint64_t value[4] = {from, a->threshold.current, age, ring};
    appliance_commit_values(a, AUDIT_EVENT_THRESHOLD, value, "");
    governor_threshold(a->governor, a->threshold.current);
    a->stats.threshold_changes++;
}

void appliance_device_fault(struct appliance *a)
{
    if (!a->fault_told)
        governor_device_error(a->governor, appliance_now(a));
    a->fault_told = 1;
}

void appliance_govern(struct appliance *a, uint64_t now)
{
    a->fault_told = 0;
    const struct order *order = order_next(a->cfg.desk);
    if (order)
        obey(a, order, now);
    if (a->threshold.cfg.max != a->threshold.cfg.base)
        move_threshold(a, now);
    if (now - a->looked_at > a->look_every) { /* or the clock went back */
        a->looked_at = now;
        governor_ring(a->governor, a->ring_used, a->ring_size);
        governor_resource(a->governor, resources(a));
    }
    if (governor_step(a->governor, now))
        news(a);
}

void appliance_clock_back(struct appliance *a, uint64_t last)
{
    const uint64_t value[4] = {a->clock.epoch, last};
    appliance_commit_values(a, AUDIT_EVENT_CLOCK_BACK, value, "");
    a->stats.clock_back++;
}

void appliance_begin_epoch(struct appliance *a, uint64_t now, uint32_t epoch)
{
    /* What is still held back for a gap belongs to the old epoch: it comes out now, without an age. */
    intake_flush(a->intake, now);
    a->epoch = epoch;
    a->threshold.changed_at = a->looked_at = a->warmed_at = now;
}
