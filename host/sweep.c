#include "sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "governor.h"
#include "killline.h"

/* "50us": ns in *ns, the rest of the text in *rest. Units from ns on; 0, or -1. */
static int parse_duration(const char *text, uint64_t max_ns, int with_seconds, const char **rest,
                          uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    uint64_t value = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++)
        if ((value = value * 10 + (uint64_t)(*p - '0')) > max_ns)
            return -1;
    if (p == text)
        return -1;
    for (size_t i = 0; i < (with_seconds ? 4 : 3); i++) {
        size_t length = strlen(units[i].name);
        if (strncmp(p, units[i].name, length) == 0) {
            if (value > max_ns / units[i].ns)
                return -1;
            *ns = value * units[i].ns;
            *rest = p + length;
            return 0;
        }
    }
    return -1;
}

static int compare_u32(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int thresholds_wrong(char error[SWEEP_ERROR_CHARS], const char *text, const char *what)
{
    snprintf(error, SWEEP_ERROR_CHARS,
             "--thresholds %.80s: %s. Right is FROM:TO:STEP without TO itself, or single values, with commas "
             "between, for example 50us:1ms:50us or 20us,50us,100us; units ns, us, ms; above 0, below 1ms, "
             "at most %d",
             text, what, SWEEP_N_THRESHOLD_MAX);
    return -1;
}

int sweep_parse_thresholds(const char *text, struct sweep_spec *spec, char error[SWEEP_ERROR_CHARS])
{
    uint32_t found[SWEEP_N_THRESHOLD_MAX], n = 0, n_unique = 0;
    for (const char *p = text;; p++) {
        uint64_t from, to, step = 1;
        if (parse_duration(p, SWEEP_THRESHOLD_END_NS, 0, &p, &from))
            return thresholds_wrong(error, text, "a value has no unit, is no number or is above 1ms");
        to = from + 1;
        if (*p == ':') {
            if (parse_duration(p + 1, SWEEP_THRESHOLD_END_NS, 0, &p, &to) || *p != ':' ||
                parse_duration(p + 1, SWEEP_THRESHOLD_END_NS, 0, &p, &step))
                return thresholds_wrong(error, text,
                                        "a range has three values with units, none of them above 1ms");
            if (!step)
                return thresholds_wrong(error, text, "the step is 0");
            if (to <= from)
                return thresholds_wrong(error, text, "a range ends before it begins");
        }
        if (!from)
            return thresholds_wrong(error, text, "a threshold is 0");
        for (; from < to; from += step) {
            if (from >= SWEEP_THRESHOLD_END_NS)
                return thresholds_wrong(error, text, "a threshold is not below 1ms");
            if (n == SWEEP_N_THRESHOLD_MAX)
                return thresholds_wrong(error, text, "too many");
            found[n++] = (uint32_t)from;
        }
        if (!*p)
            break;
        if (*p != ',')
            return thresholds_wrong(error, text, "neither a comma nor the end behind a value");
    }
    qsort(found, n, sizeof(found[0]), compare_u32);
    memset(spec->threshold_ns, 0, sizeof(spec->threshold_ns));
    for (uint32_t i = 0; i < n; i++)
        if (!i || found[i] != found[i - 1])
            spec->threshold_ns[n_unique++] = found[i];
    spec->n_threshold = n_unique;
    return 0;
}

int sweep_parse_horizon(const char *text, struct sweep_spec *spec, char error[SWEEP_ERROR_CHARS])
{
    char *end;
    const char *rest;
    uint64_t ns;
    const int is_digit = text[0] >= '0' && text[0] <= '9';
    const unsigned long long ticks = is_digit ? strtoull(text, &end, 10) : 0;
    if (is_digit && (!strcmp(end, "ticks") || !strcmp(end, "tick")) && ticks > 0 &&
        ticks <= SWEEP_TICKS_MAX) {
        spec->horizon_ticks = ticks;
        spec->horizon_ns = 0;
        return 0;
    }
    if (!parse_duration(text, SWEEP_HORIZON_MAX_NS, 1, &rest, &ns) && !*rest && ns > 0) {
        spec->horizon_ticks = 0;
        spec->horizon_ns = ns;
        return 0;
    }
    snprintf(
        error, SWEEP_ERROR_CHARS,
        "--horizon %.80s: right is a number of the symbol's ticks, 1ticks to %dticks, or a time with its "
        "unit (ns, us, ms, s), at most 600s: for example 10ticks or 100ms",
        text, SWEEP_TICKS_MAX);
    return -1;
}

int sweep_parse_target(const char *text, uint32_t *ppm, char error[SWEEP_ERROR_CHARS])
{
    uint64_t value = 0, scale = 10000; /* ppm per percent */
    const char *p = text;
    int n_digit = 0;
    for (; *p >= '0' && *p <= '9' && n_digit < 4; p++, n_digit++)
        value = value * 10 + (uint64_t)(*p - '0');
    value *= scale;
    if (n_digit && *p == '.')
        for (p++; *p >= '0' && *p <= '9' && scale > 1; p++)
            value += (uint64_t)(*p - '0') * (scale /= 10);
    if (!n_digit || strcmp(p, "%") != 0 || value >= 1000000) {
        snprintf(error, SWEEP_ERROR_CHARS,
                 "--target-miss %.80s: right is a share below 100%%, to four decimals, for example 1%% or "
                 "0.25%%",
                 text);
        return -1;
    }
    *ppm = (uint32_t)value;
    return 0;
}

const char *sweep_spec_check(const struct sweep_spec *s)
{
    if (s->n_threshold < 1 || s->n_threshold > SWEEP_N_THRESHOLD_MAX)
        return "number of thresholds is out of range";
    for (uint32_t i = 0; i < SWEEP_N_THRESHOLD_MAX; i++) {
        const uint32_t ns = s->threshold_ns[i], least = i ? s->threshold_ns[i - 1] : 0;
        if (i < s->n_threshold ? ns <= least || ns >= SWEEP_THRESHOLD_END_NS : ns != 0)
            return "thresholds do not ascend, or are not below 1 ms";
    }
    if (!s->horizon_ticks == !s->horizon_ns || s->horizon_ticks > SWEEP_TICKS_MAX ||
        s->horizon_ns > SWEEP_HORIZON_MAX_NS)
        return "horizon is out of range";
    if (s->seed > INT64_MAX)
        return "seed is out of range";
    if (s->n_replicate < SWEEP_REPLICATES_MIN || s->n_replicate > SWEEP_REPLICATES_MAX)
        return "number of replicates is out of range";
    return NULL;
}

const char *sweep_spec_differs(const struct sweep_spec *a, const struct sweep_spec *b)
{
    if (a->n_threshold != b->n_threshold ||
        memcmp(a->threshold_ns, b->threshold_ns, sizeof(a->threshold_ns)) != 0)
        return "thresholds";
    if (a->horizon_ticks != b->horizon_ticks || a->horizon_ns != b->horizon_ns)
        return "horizon";
    if (a->seed != b->seed)
        return "seed";
    return a->n_replicate != b->n_replicate ? "number of replicates" : NULL;
}

void sweep_thresholds_cycles(const struct sweep_spec *spec, const struct audit_header *header,
                             uint64_t cycles[SWEEP_N_THRESHOLD_MAX])
{
    const struct clock_calibration clock = {.hz = header->tsc_hz};
    for (uint32_t i = 0; i < spec->n_threshold; i++)
        cycles[i] = clock_ns_to_cycles(&clock, spec->threshold_ns[i]);
}

/* First threshold that is at least this; n: none. */
static uint16_t first_at_least(const uint64_t *threshold, uint32_t n, uint64_t cycles)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (threshold[middle] >= cycles)
            high = middle;
        else
            low = middle + 1;
    }
    return (uint16_t)low;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void sweep_path_of(const struct audit_prediction *p, const uint64_t *threshold_cycles, uint32_t n_threshold,
                   struct sweep_path *path)
{
    const int is_halted = audit_rung(p) == GOVERNOR_HALTED,
              is_answer = (p->verdict == VERDICT_PUBLISHED || p->verdict == VERDICT_STALE) &&
                          p->flags & AUDIT_FLAG_INFERRED;
    /* Nothing in between, and the same from the first threshold on. */
    *path = (struct sweep_path){.before = p->verdict, .after = p->verdict};
    if (p->flags & AUDIT_FLAG_AGE_UNKNOWN || (!is_answer && p->verdict != VERDICT_EXPECTED_LATE))
        return;
    /* A stamp that lies ahead was clamped at the time too. */
    const uint64_t submit_age = !p->submitted               ? p->age_cycles
                                : p->submitted > p->arrival ? p->submitted - p->arrival
                                                            : 0;
    uint64_t need = add_saturated(submit_age, p->expected_cycles);
    path->before = VERDICT_EXPECTED_LATE;
    path->after = is_halted ? VERDICT_HALTED : VERDICT_PUBLISHED;
    if (is_answer) {
        /* It was let through at the threshold in force. */
        need = need < p->threshold_cycles ? need : p->threshold_cycles;
        path->submitted_from = first_at_least(threshold_cycles, n_threshold, need);
        path->at = first_at_least(threshold_cycles, n_threshold, p->age_cycles);
        path->stale_from = path->submitted_from < path->at ? path->submitted_from : path->at;
        path->is_line = !is_halted;
        return;
    }
    const uint64_t refused = add_saturated(p->threshold_cycles, 1);
    need = need > refused ? need : refused;
    path->at = path->stale_from = path->submitted_from = first_at_least(threshold_cycles, n_threshold, need);
    path->is_estimated = !is_halted;
}

uint32_t sweep_class_signs(const char class_name[SWEEP_N_CLASS][8], int8_t sign[SWEEP_N_CLASS])
{
    static const char *const known[] = {"down", "flat", "up"};
    uint32_t n = 0, n_known = 0;
    memset(sign, 0, SWEEP_N_CLASS);
    while (n < SWEEP_N_CLASS && class_name[n][0])
        n++;
    for (uint32_t i = n; i < SWEEP_N_CLASS; i++)
        if (class_name[i][0])
            return 0;
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            if (strncmp(class_name[i], known[k], 8) == 0) {
                sign[i] = (int8_t)(k - 1);
                n_known++;
            }
    if (n_known < n)
        for (uint32_t i = 0; i < n; i++)
            sign[i] = (int8_t)((2 * i > n - 1) - (2 * i < n - 1));
    return n;
}
