#include <jansson.h>

#include "bench_killline_report.h"

/* A member that could not be made is left out by jansson: found at the end, in print. */
static json_t *ages_json(const struct bench_killline_report *r, const struct histogram *h)
{
    const double p50 = bench_killline_ns(r, h, 0.5), p99 = bench_killline_ns(r, h, 0.99);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "p50", p50, "p90", bench_killline_ns(r, h, 0.9),
                     "p99", p99, "p999", bench_killline_ns(r, h, 0.999), "max", bench_killline_ns(r, h, 1),
                     "p99_minus_p50", p99 - p50, "count", (json_int_t)h->count);
}

static json_t *verdicts_json(const uint64_t verdicts[VERDICT_COUNT])
{
    json_t *json = json_object();
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        json_object_set_new(json, verdict_name(v), json_integer((json_int_t)verdicts[v]));
    return json;
}

static json_t *stages_json(const struct bench_killline_report *r)
{
    json_t *json = json_object();
    for (int s = 0; s < BENCH_KILLLINE_N_STAGE; s++) {
        json_t *stage = json_pack("{s:o, s:f, s:s}", "ns", ages_json(r, &r->result.stage[s]), "share_percent",
                                  r->result.share_percent[s], "what",
                                  bench_killline_stage_text((enum bench_killline_stage)s));
        json_object_set_new(json, bench_killline_stage_name((enum bench_killline_stage)s), stage);
    }
    return json;
}

static json_t *resources_json(const struct bench_killline_report *r)
{
    json_t *json = json_object();
    for (int i = 0; i < BENCH_KILLLINE_N_RESOURCE; i++)
        json_object_set_new(json, bench_killline_resource_name((enum bench_killline_resource)i),
                            json_real(r->result.resource_percent[i]));
    return json;
}

static json_t *indicators_json(const struct bench_killline_report *r)
{
    static const char *const key[BENCH_KILLLINE_N_INDICATOR] = {"latency", "throughput", "resource_use",
                                                                "stability"};
    struct bench_killline_judged judged[BENCH_KILLLINE_N_INDICATOR];
    json_t *json = json_object();
    bench_killline_judge(r, judged);
    for (int i = 0; i < BENCH_KILLLINE_N_INDICATOR; i++) {
        const struct bench_killline_judged *j = &judged[i];
        json_t *one = json_pack("{s:b, s:f, s:s, s:s}", "alert", j->is_alert, "value", j->value, "unit",
                                j->unit, "text", j->text);
        json_object_set_new(one, "bound", j->bound > 0 ? json_real(j->bound) : json_null());
        json_object_set_new(json, key[i], one);
    }
    return json;
}

static json_t *miss_json(const struct bench_killline_report *r)
{
    static const enum verdict causes[] = {VERDICT_EXPECTED_LATE, VERDICT_STALE, VERDICT_DEVICE_ERROR};
    const struct bench_killline_result *m = &r->result;
    json_t *json = json_object();
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
        json_object_set_new(json, verdict_name(causes[i]),
                            json_real(m->wanted ? (double)m->verdicts[causes[i]] / (double)m->wanted : 0));
    return json;
}

static json_t *capacity_json(const struct bench_killline_capacity *c)
{
    return json_pack("{s:f, s:f, s:I}", "frames_per_s", c->frames_per_s, "inferences_per_s",
                     c->inferences_per_s, "inferences", (json_int_t)c->inferences);
}

static json_t *overload_json(const struct bench_killline_report *r, const struct bench_killline_overload *o)
{
    json_t *json =
        json_pack("{s:o, s:f, s:f, s:f, s:I, s:I, s:o}", "capacity", capacity_json(&o->capacity), "rate",
                  o->rate, "offered", o->offered, "seconds", o->seconds, "frames", (json_int_t)o->frames,
                  "predictions", (json_int_t)o->predictions, "verdicts", verdicts_json(o->verdicts));
    json_object_set_new(
        json, "published_fraction",
        json_real(o->predictions ? (double)o->verdicts[VERDICT_PUBLISHED] / (double)o->predictions : 0));
    json_object_set_new(json, "published_age_ns", ages_json(r, &o->published_age));
    json_object_set_new(json, "published_age_from_due_ns", ages_json(r, &o->published_due));
    json_object_set_new(json, "published_over_threshold", json_integer((json_int_t)o->over_line));
    json_object_set_new(json, "ring_full", json_integer((json_int_t)o->ring_full));
    json_object_set_new(json, "ring_lost", json_integer((json_int_t)o->ring_lost));
    json_object_set_new(json, "ring_high", json_integer(o->ring_high));
    json_object_set_new(json, "ring_size", json_integer(o->ring_size));
    json_object_set_new(json, "audit_lost", json_integer((json_int_t)o->audit_lost));
    json_object_set_new(json, "windows_of_10_ms", json_integer((json_int_t)o->windows));
    json_object_set_new(json, "symbols_ticked", json_integer((json_int_t)o->ticked));
    json_object_set_new(json, "symbols_served", json_integer((json_int_t)o->served));
    json_object_set_new(json, "served_least_percent", json_real(o->served_least_percent));
    json_object_set_new(json, "memory_growth_bytes", json_integer(o->memory_growth_bytes));
    json_object_set_new(json, "rung_changes", json_integer((json_int_t)o->rung_changes));
    json_object_set_new(json, "accelerator_step_ns", o->step_ns > 0 ? json_real(o->step_ns) : json_null());
    json_object_set_new(
        json, "accelerator_label",
        json_string(o->step_ns > 0 ? "modelled: each step is made to take that" : "measured"));
    return json;
}

static json_t *idle_json(const struct bench_killline_report *r, const struct bench_killline_idle *i)
{
    const double on50 = bench_killline_ns(r, &i->on, 0.5), on99 = bench_killline_ns(r, &i->on, 0.99);
    return json_pack("{s:f, s:i, s:o, s:o, s:f, s:f, s:I, s:f}", "gap_ns", i->gap_ns, "keep_warm_us",
                     (int)i->keep_warm_us, "with_ns", ages_json(r, &i->on), "without_ns",
                     ages_json(r, &i->off), "ratio_p50",
                     on50 > 0 ? bench_killline_ns(r, &i->off, 0.5) / on50 : 0.0, "ratio_p99",
                     on99 > 0 ? bench_killline_ns(r, &i->off, 0.99) / on99 : 0.0, "kept_warm",
                     (json_int_t)i->kept_warm, "keep_warm_max_ns", i->keep_warm_max_ns);
}

static json_t *halt_json(const struct bench_killline_report *r)
{
    const struct bench_killline_halt *h = &r->halt;
    return json_pack("{s:i, s:i, s:I, s:I, s:f, s:I, s:i, s:o}", "orders", (int)h->orders, "not_carried_out",
                     (int)h->not_carried_out, "published", (json_int_t)h->published, "published_after_order",
                     (json_int_t)h->late, "published_after_order_max_ns", h->late_max_ns,
                     "published_after_return", (json_int_t)h->late_after_return,
                     "published_after_return_most", (int)h->late_after_return_most, "acknowledged_ns",
                     ages_json(r, &h->acknowledged));
}

static json_t *check_json(const struct bench_killline_check *c)
{
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "blocks", (int)c->n_block,
                     "checks_per_block", (int)c->n_check, "check_ns", c->check_ns, "empty_ns", c->empty_ns,
                     "check_p99_ns", c->check_p99_ns, "empty_p99_ns", c->empty_p99_ns, "difference_ns",
                     c->check_ns - c->empty_ns, "ratio", c->check_ns / c->empty_ns);
}

static json_t *recommendation_json(const struct bench_killline_report *r)
{
    const struct bench_killline_recommendation *c = &r->result.recommendation;
    json_t *json = json_pack("{s:f, s:I, s:I, s:f, s:f, s:s}", "target_miss_rate", r->target_miss, "missed",
                             (json_int_t)c->missed, "count", (json_int_t)c->count, "miss_rate_upper",
                             c->miss_upper, "confidence", BENCH_KILLLINE_CONFIDENCE, "bound",
                             "larger of Clopper-Pearson and a block bootstrap, one-sided");
    json_object_set_new(json, "reason", c->threshold_us ? json_null() : json_string(c->reason));
    return json;
}

static json_t *target_json(const struct bench_killline_report *r)
{
    const struct bench_setup *s = r->setup;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:i, s:i, s:i}, s:f, s:i}", "machine", s->machine,
                     "backend", s->backend, "details", s->details, "build", s->accel.build->name, "model",
                     s->model_path, "cpus", "poll", s->rig.cpus.poll, "feeder", s->rig.cpus.feeder, "audit",
                     s->rig.cpus.audit, "time_stamp_ns", s->time_stamp_ns, "symbols", (int)r->n_symbol);
}

int bench_killline_json(const struct bench_killline_report *r, FILE *out)
{
    const struct bench_killline_result *m = &r->result;
    json_t *root = target_json(r), *overload = json_object(), *idle = json_array();
    int failed = !root || !overload || !idle;
    for (int i = 0; i < BENCH_KILLLINE_N_IDLE; i++)
        failed |= json_array_append_new(idle, idle_json(r, &r->idle[i]));
    failed |= json_object_set_new(overload, "accelerator", overload_json(r, &r->overload[0]));
    failed |= json_object_set_new(overload, "wire", overload_json(r, &r->overload[1]));
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"label", json_string("measured")},
        {"runs", json_integer((json_int_t)m->runs)},
        {"latency_ns", ages_json(r, &m->age)},
        {"latency_uncorrected_ns", ages_json(r, &m->uncorrected)},
        {"throughput_per_s", json_real(m->per_s)},
        {"resource_percent", json_real(bench_killline_resource_percent(r))},
        {"resources", resources_json(r)},
        {"stages", stages_json(r)},
        {"bottleneck", json_string(bench_killline_stage_name(m->bottleneck))},
        {"bottleneck_p99", json_string(bench_killline_stage_name(m->bottleneck_p99))},
        {"recommended_threshold_ns", m->recommendation.threshold_us
                                         ? json_integer(m->recommendation.threshold_us * 1000ll)
                                         : json_null()},
        {"recommendation", recommendation_json(r)},
        {"miss_rate", json_real(bench_killline_miss_rate(r))},
        {"miss_rate_by_cause", miss_json(r)},
        {"threshold_ns", json_integer(r->setup->config->killline.threshold_us * 1000ll)},
        {"rate", json_real(m->rate)},
        {"reached", json_real(m->reached)},
        {"seconds", json_real(m->seconds)},
        {"rounds", json_integer(m->rounds)},
        {"frames", json_integer((json_int_t)m->frames)},
        {"predictions", json_integer((json_int_t)m->predictions)},
        {"wanted", json_integer((json_int_t)m->wanted)},
        {"warm_up_predictions", json_integer((json_int_t)m->warm_up_predictions)},
        {"verdicts", verdicts_json(m->verdicts)},
        {"audit_lost", json_integer((json_int_t)m->audit_lost)},
        {"rung_changes", json_integer((json_int_t)m->rung_changes)},
        {"kept_warm", json_integer((json_int_t)m->kept_warm)},
        {"keep_warm_max_ns", json_real(m->keep_warm_max_ns)},
        {"capacity", capacity_json(&r->capacity)},
        {"indicators", indicators_json(r)},
        {"check", check_json(&r->check)},
        {"overload", overload},
        {"idle", idle},
        {"halt", halt_json(r)},
    };
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        failed |= json_object_set_new(root, members[i].key, members[i].value);
    failed |= json_dumpf(root, out, JSON_REAL_PRECISION(9)) != 0;
    json_decref(root);
    fputc('\n', out);
    return failed || fflush(out) != 0 || ferror(out) ? -1 : 0;
}
