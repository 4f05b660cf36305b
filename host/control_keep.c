/* The keeper: every tick, and when the server asks, a look at the governor; what is new goes into the file
 * and on stderr. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control_self.h"

uint64_t control_utc_ns(const struct clock_calibration *clock, uint64_t tsc)
{
    const double utc_ns = (double)(int64_t)(tsc - clock->tsc0) * 1e9 / clock->hz; /* before tsc0: negative */
    return utc_ns < 0 && (uint64_t)-utc_ns > clock->utc_ns0 ? 0 : clock->utc_ns0 + (uint64_t)(int64_t)utc_ns;
}

static void faults(const struct clock_calibration *clock, const uint64_t *tsc, uint64_t n, uint64_t *utc_ns)
{
    for (uint64_t i = 0; i < n; i++) {
        utc_ns[i] = control_utc_ns(clock, tsc[i]);
        if (i && utc_ns[i] < utc_ns[i - 1]) /* a clock that went back */
            utc_ns[i] = utc_ns[i - 1];
    }
}

void control_look(struct control *control, struct governor_stats *stats, struct state_file *state)
{
    const struct control_view *view = &control->view;
    memset(state, 0, sizeof(*state)); /* padding too: it is compared */
    /* Before the governor: a halt that is lifted meanwhile is seen once more, not a halt that begins missed.
     */
    const int is_halted = order_is_halted(view->desk);
    const uint64_t halted_at = atomic_load_explicit(&view->desk->halted_at, memory_order_relaxed);
    governor_read(view->governor, stats);
    state->rung = (enum governor_rung)stats->rung;
    state->cause = (enum governor_cause)stats->cause;
    state->latched = stats->latched != 0;
    /* A run that goes on where the last one was left has not begun it. */
    const int is_left = !stats->changes && state->rung == control->began.rung && control->began.since_utc_ns;
    state->since_utc_ns = is_left ? control->began.since_utc_ns : control_utc_ns(&view->clock, stats->since);
    if (is_halted && !state->latched) { /* in force already, though the poll loop has not told the governor */
        state->rung = GOVERNOR_HALTED;
        state->cause = GOVERNOR_BY_OPERATOR;
        state->latched = 1;
        state->since_utc_ns = control_utc_ns(&view->clock, halted_at);
    }
    state->n_device_fault = (uint32_t)stats->n_device_fault;
    state->n_halt_fault = (uint32_t)stats->n_halt_fault;
    faults(&view->clock, stats->device_fault, stats->n_device_fault, state->device_fault_utc_ns);
    faults(&view->clock, stats->halt_fault, stats->n_halt_fault, state->halt_fault_utc_ns);
    pthread_mutex_lock(&control->mutex);
    if (control->has_resume && state->rung != GOVERNOR_HALTED) {
        control->last = control->resume;
        control->has_resume = 0;
    }
    memcpy(state->by, control->last.by, sizeof(state->by));
    memcpy(state->reason, control->last.reason, sizeof(state->reason));
    pthread_mutex_unlock(&control->mutex);
}

/* ---- stderr ---- */

static __attribute__((format(printf, 2, 3))) void say(uint64_t utc_ns, const char *format, ...)
{
    char utc[CONTROL_UTC_CHARS], text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    control_utc_text(utc_ns, utc);
    fprintf(stderr, "%s killline: %s\n", utc, text);
}

static const struct config_rule *rule_of(const struct config_rung *rung, unsigned metric)
{
    const struct config_rule *const rules[GOVERNOR_N_METRIC] = {
        [GOVERNOR_LATENCY] = &rung->latency_percent,
        [GOVERNOR_SPREAD] = &rung->spread_us,
        [GOVERNOR_MISS] = &rung->miss_ppm,
        [GOVERNOR_BUSY] = &rung->busy_percent,
        [GOVERNOR_RESOURCE] = &rung->resource_percent,
        [GOVERNOR_DEVICE] = &rung->device_errors,
    };
    return rules[metric];
}

enum { METRIC_CHARS = 128 };

/* "latency near or over the line: p99 81 % of the threshold (enter 80 %)" */
static void metric_text(const struct governor_stats *stats, unsigned metric, const char *which,
                        uint32_t bound, char text[METRIC_CHARS])
{
    static const struct {
        const char *before, *after, *unit;
    } words[GOVERNOR_N_METRIC] = {
        [GOVERNOR_LATENCY] = {"p99 ", " % of the threshold", " %"},
        [GOVERNOR_SPREAD] = {"P99 - P50 ", " us", " us"},
        [GOVERNOR_MISS] = {"", " ppm of the predictions missed", " ppm"},
        [GOVERNOR_BUSY] = {"poll loop ", " % busy", " %"},
        [GOVERNOR_RESOURCE] = {"fullest resource ", " %", " %"},
        [GOVERNOR_DEVICE] = {"", " device errors in the window", ""},
    };
    char value[24];
    if (metric == GOVERNOR_SPREAD)
        snprintf(value, sizeof(value), "%.1f", (double)stats->metric[metric] / 1e3);
    else
        snprintf(value, sizeof(value), "%" PRIu64, stats->metric[metric]);
    snprintf(text, METRIC_CHARS, "%s: %s%s%s (%s %u%s)", governor_cause_name(metric), words[metric].before,
             value, words[metric].after, which, bound, words[metric].unit);
}

static void tell_rung(struct control *control, const struct governor_stats *stats,
                      const struct state_file *state)
{
    const struct config_governor *rules = control->view.rules;
    const struct config_rung *const rungs[GOVERNOR_N_RUNG] = {NULL, &rules->warning, &rules->backup,
                                                              &rules->halted};
    struct state_file *shown = &control->shown;
    if (state->rung == shown->rung && state->latched == shown->latched)
        return;
    char why[METRIC_CHARS + ORDER_BY_CHARS + ORDER_REASON_CHARS];
    if ((unsigned)state->cause < GOVERNOR_N_METRIC && !stats->changes) /* its figures are another run's */
        snprintf(why, sizeof(why), "as the last run was left, for %s", governor_cause_name(state->cause));
    else if ((unsigned)state->cause < GOVERNOR_N_METRIC && rungs[state->rung])
        metric_text(stats, state->cause, "enter", rule_of(rungs[state->rung], state->cause)->enter, why);
    else if (state->cause == GOVERNOR_BY_OPERATOR)
        snprintf(why, sizeof(why), "%s: %s%s%s", governor_cause_name(state->cause), state->by,
                 *state->reason ? ": " : "", state->reason);
    else
        snprintf(why, sizeof(why), "%s", governor_cause_name(state->cause));
    say(state->since_utc_ns != shown->since_utc_ns ? state->since_utc_ns : control_now_utc_ns(), "%s: %s%s",
        governor_rung_name(state->rung), why,
        state->latched                   ? "; nothing is published until killline resume"
        : state->rung == GOVERNOR_HALTED ? "; nothing is published"
                                         : "");
    memcpy(shown, state, sizeof(*shown));
}

static void tell_alerts(struct control *control, const struct governor_stats *stats)
{
    const uint64_t changed = control->alerts ^ stats->alerts;
    for (unsigned i = 0; i < GOVERNOR_N_METRIC; i++) {
        if (!(changed >> i & 1))
            continue;
        const struct config_rule *rule = rule_of(&control->view.rules->warning, i);
        const int raised = stats->alerts >> i & 1;
        char text[METRIC_CHARS];
        metric_text(stats, i, raised ? "enter" : "leave", raised ? rule->enter : rule->leave, text);
        say(control_utc_ns(&control->view.clock, stats->at), "alert%s: %s", raised ? "" : " over", text);
    }
    control->alerts = stats->alerts;
}

static void tell_losses(struct control *control, int at_once)
{
    const uint64_t lost = audit_lost(control->view.log), now_ms = control_now_ms();
    if (lost == control->lost || (!at_once && control->lost && now_ms - control->lost_shown_ms < 1000))
        return;
    say(control_now_utc_ns(),
        "alert: audit log %s: %" PRIu64 " records lost, %" PRIu64
        " in all: its disk is full, or too slow, or audit.ring_records too small",
        control->view.out, lost - control->lost, lost);
    control->lost = lost;
    control->lost_shown_ms = now_ms;
}

/* ---- file ---- */

/* Writes what differs from the last try, and what failed again after a second or when asked. is_saved and
 * save_error are written by this thread only. */
static void save(struct control *control, const struct state_file *state, int asked)
{
    const int is_new = !control->has_tried || memcmp(state, &control->tried, sizeof(*state)) != 0;
    const uint64_t now_ms = control_now_ms();
    if (!is_new && (control->is_saved || (!asked && now_ms < control->retry_ms)))
        return;
    char path[CONTROL_PATH_CHARS + 32], error[STATE_FILE_ERROR_CHARS] = "";
    control_path(control->folder, "state.json", path);
    const int was_saved = !control->has_tried || control->is_saved,
              is_saved = !state_file_write(path, state, error);
    if (!is_saved && (is_new || was_saved))
        say(control_now_utc_ns(),
            "alert: %s. It goes on, and tries again; after a restart it would stand where "
            "the old file says",
            error);
    if (is_saved && !was_saved)
        say(control_now_utc_ns(), "alert over: %s is written again", path);
    memcpy(&control->tried, state, sizeof(*state));
    control->has_tried = 1;
    control->retry_ms = now_ms + 1000;
    pthread_mutex_lock(&control->mutex);
    control->is_saved = is_saved;
    memcpy(control->save_error, error, sizeof(error));
    pthread_mutex_unlock(&control->mutex);
}

int control_save(struct control *control, char error[STATE_FILE_ERROR_CHARS])
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CONTROL_SAVE_MS / 1000;
    pthread_mutex_lock(&control->mutex);
    const uint64_t mine = ++control->asked;
    pthread_cond_signal(&control->wake);
    int bad = 0;
    while (control->looked < mine && !bad)
        bad = pthread_cond_timedwait(&control->kept, &control->mutex, &until);
    const int is_saved = control->looked >= mine && control->is_saved;
    if (control->looked < mine)
        snprintf(error, STATE_FILE_ERROR_CHARS, "%s/state.json: the disk has not answered for %d ms",
                 control->folder, CONTROL_SAVE_MS);
    else
        memcpy(error, control->save_error, STATE_FILE_ERROR_CHARS);
    pthread_mutex_unlock(&control->mutex);
    return is_saved ? 0 : -1;
}

void *control_keep(void *argument)
{
    struct control *control = argument;
    for (int ends = 0; !ends;) {
        struct governor_stats stats;
        struct state_file state;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += CONTROL_TICK_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&control->mutex);
        int over = 0;
        while (!control->ends && control->asked == control->looked && !over)
            over = pthread_cond_timedwait(&control->wake, &control->mutex, &until);
        const uint64_t asked = control->asked;
        const int is_asked = asked != control->looked;
        ends = control->ends;
        pthread_mutex_unlock(&control->mutex);

        control_look(control, &stats, &state);
        tell_rung(control, &stats, &state);
        tell_alerts(control, &stats);
        tell_losses(control, ends);
        save(control, &state, is_asked || ends);

        pthread_mutex_lock(&control->mutex);
        control->looked = asked;
        pthread_cond_broadcast(&control->kept);
        pthread_mutex_unlock(&control->mutex);
    }
    return NULL;
}
