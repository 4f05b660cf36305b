/* What a client is answered: one object. Of halt and resume:
 *   {"ok": true, "command": "halt", "running": true, "pid": N, "by": "NAME (uid N)", "reason": TEXT,
 *    "acknowledged": true, "ack_ns": N, "saved": true}
 * "ok": false comes with "error", and what is told of the rest holds: a halt is in force even so. Of status:
 * see status() below. Of what is no request: {"ok": false, "error": TEXT}. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control_self.h"

static void finish(json_t *root, char answer[CONTROL_ANSWER_BYTES])
{
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text || snprintf(answer, CONTROL_ANSWER_BYTES, "%s", text) >= CONTROL_ANSWER_BYTES - 1)
        snprintf(answer, CONTROL_ANSWER_BYTES, "{\"ok\":false,\"error\":\"out of memory\"}");
    free(text);
}

void control_refuse(const char *why, char answer[CONTROL_ANSWER_BYTES])
{
    finish(json_pack("{s:b, s:s}", "ok", 0, "error", why), answer);
}

/* A name of the file system need not be UTF-8, and may be long. */
static json_t *name_json(const char *name)
{
    char text[512];
    snprintf(text, sizeof(text), "%s", name);
    json_t *json = json_string(text);
    if (json)
        return json;
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return json_string(text);
}

static json_t *count(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *verdicts(const uint64_t by_verdict[VERDICT_COUNT])
{
    json_t *root = json_object();
    for (unsigned i = 0; i < VERDICT_COUNT; i++)
        json_object_set_new(root, verdict_name(i), count(by_verdict[i]));
    return root;
}

static json_t *window(const struct governor_stats *s)
{
    const struct {
        const char *key;
        uint64_t value;
    } figures[] = {
        {"p50_ns", s->p50_ns},
        {"p99_ns", s->p99_ns},
        {"p99_minus_p50_ns", s->metric[GOVERNOR_SPREAD]},
        {"max_ns", s->max_ns},
        {"per_s", s->per_s},
        {"miss_ppm", s->metric[GOVERNOR_MISS]},
        {"latency_percent", s->metric[GOVERNOR_LATENCY]},
        {"busy_percent", s->metric[GOVERNOR_BUSY]},
        {"resource_percent", s->metric[GOVERNOR_RESOURCE]},
        {"device_errors", s->metric[GOVERNOR_DEVICE]},
    };
    json_t *root = json_object();
    json_object_set_new(root, "count", count(s->count));
    json_object_set_new(root, "by_verdict", verdicts(s->by_verdict));
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        json_object_set_new(root, figures[i].key, count(figures[i].value));
    return root;
}

static void status(struct control *control, char answer[CONTROL_ANSWER_BYTES])
{
    const struct control_view *view = &control->view;
    struct governor_stats s;
    struct state_file state;
    char since[CONTROL_UTC_CHARS];
    control_look(control, &s, &state);
    control_utc_text(state.since_utc_ns, since);
    json_t *alerts = json_array();
    for (unsigned i = 0; i < GOVERNOR_N_METRIC; i++)
        if (s.alerts >> i & 1)
            json_array_append_new(alerts, json_string(governor_metric_name(i)));
    json_t *root =
        json_pack("{s:b, s:b, s:i, s:o, s:o, s:s, s:s, s:b, s:s, s:s, s:s}", "ok", 1, "running", 1, "pid",
                  (int)getpid(), "run", name_json(view->run_name), "out", name_json(view->out), "rung",
                  governor_rung_name(state.rung), "cause", governor_cause_name(state.cause), "latched",
                  state.latched, "since_utc", since, "by", state.by, "reason", state.reason);
    json_object_set_new(root, "threshold_ns",
                        count((uint64_t)llround(clock_cycles_to_ns(&view->clock, s.threshold))));
    json_object_set_new(root, "window", window(&s));
    json_object_set_new(root, "alerts", alerts);
    json_t *totals = verdicts(s.total_by_verdict);
    json_object_set_new(totals, "count", count(s.total));
    json_object_set_new(root, "totals", totals);
    json_t *ring = json_object();
    json_object_set_new(ring, "used", count(s.ring_used));
    json_object_set_new(ring, "size", count(s.ring_size));
    json_object_set_new(root, "ring", ring);
    json_object_set_new(root, "audit_lost", count(audit_lost(view->log)));
    json_t *throttle = json_object();
    json_object_set_new(throttle, "device_faults", count(s.n_device_fault));
    json_object_set_new(throttle, "halts", count(s.n_halt_fault));
    json_object_set_new(root, "throttle", throttle);
    finish(root, answer);
}

/* ---- orders ---- */

static int wait_until_done(const struct order_desk *desk, uint64_t until_ms)
{
    while (!order_is_done(desk)) {
        if (control_now_ms() >= until_ms)
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return 1;
}

void control_pay(struct control *control)
{
    if (control->owes && order_is_done(control->view.desk))
        control->owes = order_post(control->view.desk, &control->owed) != 0;
}

/* Whose change it is that the keeper sees next. A resume's name stands for nothing before it is carried out
 * (control_look). */
static void remember(struct control *control, const struct order *order)
{
    pthread_mutex_lock(&control->mutex);
    control->has_resume = order->kind == ORDER_RESUME;
    if (control->has_resume)
        control->resume = *order;
    else
        control->last = *order;
    pthread_mutex_unlock(&control->mutex);
}

static void obey(struct control *control, const struct order *order, char answer[CONTROL_ANSWER_BYTES])
{
    struct order_desk *desk = control->view.desk;
    const int halt = order->kind == ORDER_HALT;
    const uint64_t until_ms = control_now_ms() + CONTROL_ACK_MS;
    char error[STATE_FILE_ERROR_CHARS + 256] = "", save_error[STATE_FILE_ERROR_CHARS] = "";
    uint64_t ordered = clock_tsc();
    int posted = 0;
    if (halt) {
        remember(control, order); /* some instructions: the mutex is never held for long */
        posted = !order_post(desk, order);
        ordered = atomic_load_explicit(&desk->halted_at, memory_order_relaxed);
        control->owes = 0; /* this one takes its place */
    } else {
        struct governor_stats stats;
        struct state_file state;
        control_pay(control);
        control_look(control, &stats, &state);
        if (state.rung != GOVERNOR_HALTED) {
            snprintf(error, sizeof(error), "nothing to resume: it is not halted, but %s",
                     governor_rung_name(state.rung));
            control_refuse(error, answer);
            return;
        }
    }
    if (!posted && wait_until_done(desk, until_ms)) { /* the one before */
        remember(control, order);
        posted = !order_post(desk, order);
    }
    const int done = posted && wait_until_done(desk, until_ms);
    const uint64_t ack_ns =
        done
            ? (uint64_t)llround(clock_cycles_to_ns(
                  &control->view.clock, atomic_load_explicit(&desk->seen_at, memory_order_relaxed) - ordered))
            : 0;
    if (halt && !posted) {
        control->owes = 1;
        control->owed = *order;
    }
    if (!halt && !posted) {
        snprintf(error, sizeof(error),
                 "still halted: the poll loop has not carried out the order before this one, for %d ms. Does "
                 "it hang?",
                 CONTROL_ACK_MS);
        control_refuse(error, answer);
        return;
    }
    const int saved = !control_save(control, save_error);
    size_t n = 0;
    if (!done)
        n = (size_t)snprintf(error, sizeof(error),
                             "the poll loop has not acknowledged within %d ms: %s. Does it hang?",
                             CONTROL_ACK_MS,
                             halt ? "the halt is in force all the same, nothing is published"
                                  : "it is resumed when the loop goes on, and halted until then");
    if (!saved)
        snprintf(error + n, sizeof(error) - n, "%s%s, but not for after a restart: %s", n ? "; " : "",
                 halt ? "the halt is in force" : "it is resumed", save_error);
    json_t *root = json_pack("{s:b, s:s, s:b, s:i, s:s, s:s, s:b, s:o, s:b}", "ok", done && saved, "command",
                             halt ? "halt" : "resume", "running", 1, "pid", (int)getpid(), "by", order->by,
                             "reason", order->reason, "acknowledged", done, "ack_ns",
                             done ? count(ack_ns) : json_null(), "saved", saved);
    if (*error)
        json_object_set_new(root, "error", json_string(error));
    finish(root, answer);
}

void control_answer(struct control *control, const char *text, size_t size_bytes, uint32_t uid,
                    char answer[CONTROL_ANSWER_BYTES])
{
    struct control_request request;
    const char *wrong = control_request_parse(text, size_bytes, &request);
    if (wrong) {
        char error[128];
        snprintf(error, sizeof(error), "the request: %s", wrong);
        control_refuse(error, answer);
        return;
    }
    if (request.command == CONTROL_STATUS) {
        status(control, answer);
        return;
    }
    struct order order = {.kind = request.command == CONTROL_HALT ? ORDER_HALT : ORDER_RESUME};
    order_by(order.by, request.name, uid);
    memcpy(order.reason, request.reason, sizeof(order.reason));
    obey(control, &order, answer);
}
