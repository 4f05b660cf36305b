#include "run_summary_card.h"

static const char *const phase_name[] = {
    [ACCEL_GUARD_SERVING] = "serving", [ACCEL_GUARD_OUT] = "out", [ACCEL_GUARD_SHADOWING] = "being probed"};

void run_summary_cards_text(const struct run_summary *s, FILE *out)
{
    const struct run_accel *run = s->accel;
    const struct appliance_stats *stats = appliance_stats(s->appliance);
    if (!run->guard)
        return;
    for (uint32_t c = 0; c < run->n_card; c++) {
        const struct accel_xrt_info *card = &run->cards[c];
        struct accel_guard_stats g;
        accel_guard_stats(run->guard, c, &g);
        fprintf(out, "card %u       %s%s, %s, device %s unit %u, %s\n", c, card->name,
                card->software_device ? " (software device: no card)" : "", accel_xrt_mode_name(card->mode),
                card->device, card->unit, phase_name[g.phase]);
        fprintf(
            out,
            "             %llu answers, %llu by the cpu backend in its place; %llu compared, %llu differed; "
            "%llu failovers, %llu recoveries\n",
            (unsigned long long)g.answers, (unsigned long long)g.mirror_answers,
            (unsigned long long)g.compared, (unsigned long long)g.differed,
            (unsigned long long)(g.failovers + g.quarantines), (unsigned long long)g.recoveries);
    }
    for (uint32_t c = 0; c < run->n_card; c++) {
        struct accel_guard_stats g;
        accel_guard_stats(run->guard, c, &g);
        if (g.gone_stale)
            fprintf(out,
                    "             card %u: the cpu backend fell behind with %llu streams, which were not "
                    "compared from then on: "
                    "its thread needs a core of its own\n",
                    c, (unsigned long long)g.gone_stale);
    }
    if (stats->failover_ns_max > 0)
        fprintf(out, "             longest failover %.1f us (measured)\n", stats->failover_ns_max / 1e3);
}

static void count(json_t *o, const char *key, uint64_t value)
{
    json_object_set_new(o, key, json_integer((json_int_t)value));
}

static void put(json_t *o, const struct accel_guard_stats *g)
{
    count(o, "answers", g->answers);
    count(o, "mirror_answers", g->mirror_answers);
    count(o, "compared", g->compared);
    count(o, "differed", g->differed);
    count(o, "failovers", g->failovers);
    count(o, "quarantines", g->quarantines);
    count(o, "resets", g->resets);
    count(o, "resets_failed", g->resets_failed);
    count(o, "recoveries", g->recoveries);
    count(o, "states_lost", g->states_lost);
    count(o, "gone_stale", g->gone_stale);
}

json_t *run_summary_cards_json(const struct run_summary *s)
{
    const struct run_accel *run = s->accel;
    const struct appliance_stats *stats = appliance_stats(s->appliance);
    if (!run->guard)
        return NULL;
    const struct accel_xrt_info *first = &run->cards[0];
    struct accel_guard_stats all = {.phase = ACCEL_GUARD_SERVING};
    json_t *cards = json_array(), *o = json_object();
    for (uint32_t c = 0; c < run->n_card; c++) {
        const struct accel_xrt_info *info = &run->cards[c];
        struct accel_guard_stats g;
        accel_guard_stats(run->guard, c, &g);
        json_t *card = json_object();
        json_object_set_new(card, "device", json_string(info->device));
        count(card, "unit", info->unit);
        json_object_set_new(card, "software_device", json_boolean(info->software_device));
        json_object_set_new(card, "uuid", json_string(info->uuid));
        json_object_set_new(card, "phase", json_string(phase_name[g.phase]));
        put(card, &g);
        json_array_append_new(cards, card);
        all.answers += g.answers;
        all.mirror_answers += g.mirror_answers;
        all.compared += g.compared;
        all.differed += g.differed;
        all.failovers += g.failovers;
        all.quarantines += g.quarantines;
        all.resets += g.resets;
        all.resets_failed += g.resets_failed;
        all.recoveries += g.recoveries;
        all.states_lost += g.states_lost;
        all.gone_stale += g.gone_stale;
    }
    json_object_set_new(o, "name", json_string(first->name));
    json_object_set_new(o, "software_device", json_boolean(first->software_device));
    json_object_set_new(o, "uuid", json_string(first->uuid));
    count(o, "abi", first->abi_version);
    json_object_set_new(o, "mode", json_string(accel_xrt_mode_name(first->mode)));
    json_object_set_new(o, "host_memory", json_boolean(first->host_memory));
    put(o, &all);
    count(o, "given_up", stats->given_up);
    json_object_set_new(o, "failover_ns_max", json_real(stats->failover_ns_max));
    json_object_set_new(o, "cards", cards);
    return o;
}
