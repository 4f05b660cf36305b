#include <jansson.h>
#include <string.h>

#include "sweep_report.h"

static json_t *number_or_null(int has, double value)
{
    return has ? json_real(value) : json_null();
}

static json_t *interval_json(const struct sweep_interval *i, const char *value_key)
{
    json_t *o = json_object();
    json_object_set_new(o, value_key, number_or_null(i->has_value, i->value));
    json_object_set_new(o, "low", number_or_null(i->has_interval, i->low));
    json_object_set_new(o, "high", number_or_null(i->has_interval, i->high));
    return o;
}

/* Text of a log: what is not printable ASCII would not be UTF-8 either. */
static json_t *text_json(const char *text, size_t size)
{
    char clean[256];
    size_t n = 0;
    for (; n < size && n + 1 < sizeof(clean) && text[n]; n++)
        clean[n] = (char)(text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?');
    return json_stringn(clean, n);
}

static json_t *hex_json(const uint8_t *bytes, size_t size)
{
    char text[2 * AUDIT_CHAIN_BYTES + 1];
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return json_string(text);
}

static void add_quality(json_t *o, const char *prefix, const struct sweep_quality *q)
{
    char key[64];
    snprintf(key, sizeof(key), "%sanswers", prefix);
    json_object_set_new(o, key, json_integer(q->n));
    snprintf(key, sizeof(key), "%soutcomes", prefix);
    json_object_set_new(o, key, json_integer(q->known));
    snprintf(key, sizeof(key), "%shits", prefix);
    json_object_set_new(o, key, json_integer(q->hits));
    snprintf(key, sizeof(key), "%shit_rate", prefix);
    json_object_set_new(o, key, interval_json(&q->hit_rate, "value"));
    snprintf(key, sizeof(key), "%svalue", prefix);
    json_object_set_new(o, key, interval_json(&q->mean_usd, "mean_usd"));
}

static json_t *point_json(const struct sweep_result *r, const struct sweep_point *p)
{
    const struct sweep_sums *s = r->sums;
    json_t *o = json_object(), *dropped = json_object(), *other = json_object(), *classes = json_array();
    json_object_set_new(o, "threshold_ns", json_integer(p->threshold_ns));
    json_object_set_new(o, "published", json_integer(p->by_verdict[VERDICT_PUBLISHED]));
    for (unsigned v = 1; v < VERDICT_COUNT; v++)
        json_object_set_new(dropped, verdict_name(v), json_integer(p->by_verdict[v]));
    json_object_set_new(o, "dropped", dropped);
    json_object_set_new(o, "estimated", json_integer(p->estimated));
    json_object_set_new(o, "unsubmitted", json_integer(p->unsubmitted));
    json_object_set_new(o, "miss_rate", number_or_null(p->line > 0, p->miss_rate));
    add_quality(o, "", &p->published[SWEEP_N_CLASS]);
    add_quality(o, "dropped_", &p->dropped[SWEEP_N_CLASS]);
    json_object_set_new(o, "value_difference", interval_json(&p->difference_usd, "mean_usd"));
    for (uint32_t c = 0; c < s->n_class; c++) {
        json_t *class = json_object();
        json_object_set_new(class, "class", text_json(s->class_name[c], sizeof(s->class_name[c])));
        add_quality(class, "", &p->published[c]);
        add_quality(class, "dropped_", &p->dropped[c]);
        json_array_append_new(classes, class);
    }
    json_object_set_new(o, "classes", classes);
    for (unsigned v = 1; v < VERDICT_COUNT; v++) {
        if (!p->other[v].n)
            continue;
        json_t *cause = json_object();
        add_quality(cause, "", &p->other[v]);
        json_object_set_new(other, verdict_name(v), cause);
    }
    json_object_set_new(o, "other_answers", other);
    return o;
}

static json_t *test_json(const struct sweep_ab *ab, int which)
{
    const struct sweep_ab_test *t = &ab->test[which];
    const char *key = which == SWEEP_AB_VALUE ? "mean_usd" : "value";
    char text[256];
    json_t *o = json_object();
    sweep_report_ab_text(ab, which, text);
    json_object_set_new(o, "n", json_pack("[I,I]", (json_int_t)t->n[0], (json_int_t)t->n[1]));
    json_object_set_new(o, "a", number_or_null(t->has_rate, t->rate[0]));
    json_object_set_new(o, "b", number_or_null(t->has_rate, t->rate[1]));
    json_object_set_new(o, "difference", interval_json(&t->difference, key));
    json_object_set_new(o, "z", number_or_null(t->has_z, t->z));
    json_object_set_new(o, "p_value", number_or_null(t->has_z, t->p_value));
    json_object_set_new(o, "detectable_difference", number_or_null(t->detectable > 0, t->detectable));
    json_object_set_new(o, "says", json_string(text));
    return o;
}

static json_t *ab_json(const struct sweep_ab *ab)
{
    static const char *const key[SWEEP_N_AB] = {"published_rate", "hit_rate", "value"};
    json_t *o = json_object();
    json_object_set_new(o, "threshold_ns",
                        json_pack("[I,I]", (json_int_t)ab->arms.a_ns, (json_int_t)ab->arms.b_ns));
    json_object_set_new(o, "share_percent", json_integer((json_int_t)ab->arms.share_percent));
    json_object_set_new(o, "salt", json_integer((json_int_t)ab->arms.salt));
    json_object_set_new(o, "symbols",
                        json_pack("[I,I]", (json_int_t)ab->n_symbol[0], (json_int_t)ab->n_symbol[1]));
    json_object_set_new(o, "sample_too_small", json_boolean(ab->is_too_small));
    for (int w = 0; w < SWEEP_N_AB; w++)
        json_object_set_new(o, key[w], test_json(ab, w));
    return o;
}

static json_t *log_json(const struct sweep_log_info *l)
{
    json_t *o = json_object();
    json_object_set_new(o, "feed", text_json(l->feed, sizeof(l->feed)));
    json_object_set_new(o, "head", hex_json(l->head, sizeof(l->head)));
    json_object_set_new(o, "records", json_integer((json_int_t)l->records));
    json_object_set_new(o, "predictions", json_integer((json_int_t)l->predictions));
    json_object_set_new(o, "records_lost", json_integer((json_int_t)l->lost));
    json_object_set_new(o, "version", json_integer(l->version));
    json_object_set_new(o, "clock", json_string(l->clock == AUDIT_CLOCK_REPLAY ? "replay" : "real"));
    json_object_set_new(o, "closed", json_boolean(l->is_closed));
    return o;
}

int sweep_report_json(FILE *out, const struct sweep_result *r)
{
    const struct sweep_sums *s = r->sums;
    json_t *o = json_object(), *given = json_object(), *logs = json_array(), *points = json_array(),
           *tests = json_array(), *notes = json_array(), *classes = json_array();
    json_object_set_new(o, "horizon_ticks",
                        s->spec.horizon_ticks ? json_integer((json_int_t)s->spec.horizon_ticks)
                                              : json_null());
    json_object_set_new(o, "horizon_ns",
                        s->spec.horizon_ns ? json_integer((json_int_t)s->spec.horizon_ns) : json_null());
    json_object_set_new(o, "seed", json_integer((json_int_t)s->spec.seed));
    json_object_set_new(o, "replicates", json_integer(s->spec.n_replicate));
    json_object_set_new(o, "target_miss_rate", json_real(r->target_ppm / 1e6));
    json_object_set_new(o, "predictions", json_integer(s->predictions));
    json_object_set_new(o, "disordered", json_integer(s->disordered));
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        json_object_set_new(given, verdict_name(v), json_integer(s->given[v]));
    json_object_set_new(o, "verdicts", given);
    for (uint32_t c = 0; c < s->n_class; c++)
        json_array_append_new(classes, json_pack("{s:o,s:i}", "class",
                                                 text_json(s->class_name[c], sizeof(s->class_name[c])),
                                                 "sign", s->sign[c]));
    json_object_set_new(o, "classes", classes);
    for (uint32_t i = 0; i < s->n_log; i++)
        json_array_append_new(logs, log_json(&s->log[i]));
    json_object_set_new(o, "logs", logs);
    for (uint32_t j = 0; j < r->n_point; j++)
        json_array_append_new(points, point_json(r, &r->point[j]));
    json_object_set_new(o, "thresholds", points);
    json_object_set_new(o, "recommended_threshold_ns",
                        r->recommended >= 0 ? json_integer(r->point[r->recommended].threshold_ns)
                                            : json_null());
    json_object_set_new(o, "recommendation", json_string(r->recommendation));
    json_object_set_new(o, "worth", json_string(r->worth));
    for (uint32_t k = 0; k < r->n_ab; k++)
        json_array_append_new(tests, ab_json(&r->ab[k]));
    json_object_set_new(o, "ab", tests);
    for (unsigned i = 0; sweep_report_note(i); i++)
        json_array_append_new(notes, json_string(sweep_report_note(i)));
    json_object_set_new(o, "notes", notes);
    const int status = json_dumpf(o, out, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(o);
    fputc('\n', out);
    return status;
}
