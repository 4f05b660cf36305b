/* killline halt, resume, status: to the appliance that runs, or to what the last one left. */
#include <getopt.h>
#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd.h"
#include "control.h"

/* An appliance that starts has its lock for seconds before it listens. */
enum { PATIENCE_MS = 10000, STEP_MS = 20 };

static const char help_halt[] =
    "usage: killline halt [--by NAME] [--reason TEXT] [--state DIR] [--json]\n\n"
    "Halts the running appliance: nothing is published from then on, across restarts, until killline "
    "resume.\n"
    "It says how long the poll loop took to acknowledge; the halt is in force before that. If none runs, "
    "the\n"
    "next one starts halted.\n\n"
    "  --by NAME      who halts, for the audit log (default: the login name); up to 30 characters\n"
    "  --reason TEXT  why; up to 93 characters\n"
    "  --state DIR    the appliance's state.dir (default: $XDG_STATE_HOME/killline, else\n"
    "                 $HOME/.local/state/killline)\n"
    "  --json         the answer as one JSON object\n\n"
    "Exit status 0: halted, acknowledged, and in the state file; 1: not all of that, stderr says what.\n";
static const char help_resume[] =
    "usage: killline resume --by NAME --reason TEXT [--state DIR] [--json]\n\n"
    "Lets a halted appliance publish again, whatever halted it: it goes to WARNING, the throttle's counts "
    "are\n"
    "emptied, and the rules decide on. If none runs, the next one starts so.\n\n"
    "  --by NAME      who resumes, for the audit log; up to 30 characters\n"
    "  --reason TEXT  why it may publish again; up to 93 characters\n"
    "  --state DIR    the appliance's state.dir (default: $XDG_STATE_HOME/killline, else\n"
    "                 $HOME/.local/state/killline)\n"
    "  --json         the answer as one JSON object\n\n"
    "Exit status 0: resumed; 1: it was not halted, or could not be, stderr says why.\n";
static const char help_status[] =
    "usage: killline status [--state DIR] [--json]\n\n"
    "Where the running appliance stands on the ladder, why, and its figures over the window; if none runs, "
    "how\n"
    "the last one was left.\n\n"
    "  --state DIR    the appliance's state.dir (default: $XDG_STATE_HOME/killline, else\n"
    "                 $HOME/.local/state/killline)\n"
    "  --json         one JSON object\n\n"
    "Exit status 0, whatever the rung; 1: it could not be found out.\n";

struct arguments {
    const char *by, *reason, *dir;
    int json;
};

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, const char *help, int is_order, struct arguments *a)
{
    enum { OPT_BY = 1, OPT_REASON, OPT_STATE };
    static const struct option options[] = {{"state", 1, NULL, OPT_STATE},   {"json", 0, NULL, 'j'},
                                            {"help", 0, NULL, 'h'},          {"by", 1, NULL, OPT_BY},
                                            {"reason", 1, NULL, OPT_REASON}, {NULL, 0, NULL, 0}};
    *a = (struct arguments){.dir = ""};
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        switch (c) {
        case OPT_BY:
            a->by = optarg;
            break;
        case OPT_REASON:
            a->reason = optarg;
            break;
        case OPT_STATE:
            a->dir = optarg;
            break;
        case 'j':
            a->json = 1;
            break;
        case 'h':
            fputs(help, stdout);
            return 0;
        default:
            cmd_error("--help lists the options");
            return 2;
        }
    if (optind < argc) {
        cmd_error("'%s' is not an option (--help lists them)", argv[optind]);
        return 2;
    }
    if (!is_order && (a->by || a->reason)) {
        cmd_error("status takes neither --by nor --reason");
        return 2;
    }
    return -1;
}

/* 0, or -1: told. */
static int check_text(const char *option, const char *text, size_t chars)
{
    const char *wrong = *text ? order_text_check(text, chars) : "is empty";
    if (wrong)
        cmd_error("%s %s: it %s: up to %zu printable ASCII characters, please", option, text, wrong,
                  chars - 1);
    return wrong ? -1 : 0;
}

/* Who is logged in, under sudo too; else whose process this is. */
static void login_name(char name[ORDER_NAME_CHARS])
{
    char login[256] = "";
    const struct passwd *p = getpwuid(getuid());
    if ((getlogin_r(login, sizeof(login)) || !*login) && p)
        snprintf(login, sizeof(login), "%s", p->pw_name);
    snprintf(name, ORDER_NAME_CHARS, "%.30s", login);
    if (!*name || order_text_check(name, ORDER_NAME_CHARS))
        snprintf(name, ORDER_NAME_CHARS, "unnamed");
}

static int finish(int status)
{
    return fflush(stdout) || ferror(stdout) ? cmd_error("standard output: write failed") : status;
}

static void print_json(const json_t *root)
{
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
}

/* The appliance's answer as an object; NULL: told. */
static json_t *answer_of(const char *answer)
{
    json_error_t at;
    json_t *root = json_loads(answer, JSON_REJECT_DUPLICATES, &at);
    if (!root)
        cmd_error("the appliance's answer makes no sense: is it of another version? (%s)", at.text);
    return root;
}

static const char *text_at(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text ? text : "?";
}

static unsigned long long figure_at(const json_t *root, const char *key)
{
    return (unsigned long long)json_integer_value(json_object_get(root, key));
}

/* ---- halt, resume ---- */

static int print_order(const json_t *root, const char *did, int json)
{
    const int ok = json_is_true(json_object_get(root, "ok"));
    if (json)
        print_json(root);
    if (!ok)
        return cmd_error("%s", text_at(root, "error"));
    if (!json)
        printf("%s by %s; the poll loop (process %llu) acknowledged within %.1f us\n", did,
               text_at(root, "by"), figure_at(root, "pid"), (double)figure_at(root, "ack_ns") / 1e3);
    return 0;
}

static void print_offline(const char *folder, const struct order *order, const char *did, int json)
{
    const int halt = order->kind == ORDER_HALT;
    if (json) {
        json_t *root = json_pack("{s:b, s:s, s:b, s:n, s:s, s:s, s:b, s:n, s:b}", "ok", 1, "command",
                                 halt ? "halt" : "resume", "running", 0, "pid", "by", order->by, "reason",
                                 order->reason, "acknowledged", 0, "ack_ns", "saved", 1);
        print_json(root);
        json_decref(root);
    } else
        printf("no appliance runs in %s; %s by %s for the next one: it starts %s\n", folder, did, order->by,
               halt ? "halted" : "in WARNING");
}

static int give_order(enum order_kind kind, const struct arguments *a)
{
    const char *did = kind == ORDER_HALT ? "halted" : "resumed";
    char folder[CONTROL_PATH_CHARS], error[CONTROL_ERROR_CHARS], lock_error[CONTROL_ERROR_CHARS],
        answer[CONTROL_ANSWER_BYTES], name[ORDER_NAME_CHARS];
    struct order order = {.kind = kind};
    if (control_folder(a->dir, folder, error))
        return cmd_error("%s", error);
    if (a->by)
        snprintf(name, sizeof(name), "%s", a->by);
    else
        login_name(name);
    order_by(order.by, name, getuid());
    snprintf(order.reason, sizeof(order.reason), "%s", a->reason ? a->reason : "");
    json_t *request = json_pack("{s:s, s:s, s:s}", "command", kind == ORDER_HALT ? "halt" : "resume", "by",
                                name, "reason", order.reason);
    char *line = json_dumps(request, JSON_COMPACT);
    json_decref(request);
    if (!line)
        return cmd_error("out of memory");
    /* The one that runs, or the file, under the lock; or one that is between having its lock and listening.
     */
    int asked, set = 1;
    for (int waited_ms = 0;; waited_ms += STEP_MS) {
        asked = control_ask(folder, line, answer, error);
        if (asked == 1)
            set = control_set(folder, &order, lock_error);
        if (asked != 1 || set != 1 || waited_ms >= PATIENCE_MS)
            break;
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    }
    free(line);
    if (asked < 0)
        return cmd_error("%s", error);
    if (asked == 1 && set == 1)
        return cmd_error("%s. It does not listen either: if it is about to start, or to end, try again",
                         lock_error);
    if (asked == 1 && set < 0)
        return cmd_error("%s", lock_error);
    if (asked == 1) {
        print_offline(folder, &order, did, a->json);
        return 0;
    }
    json_t *root = answer_of(answer);
    const int status = root ? print_order(root, did, a->json) : 1;
    json_decref(root);
    return status;
}

int cmd_halt(int argc, char **argv)
{
    struct arguments a;
    const int status = parse(argc, argv, help_halt, 1, &a);
    if (status >= 0)
        return status;
    if ((a.by && check_text("--by", a.by, ORDER_NAME_CHARS)) ||
        (a.reason && check_text("--reason", a.reason, ORDER_REASON_CHARS)))
        return 2;
    return finish(give_order(ORDER_HALT, &a));
}

int cmd_resume(int argc, char **argv)
{
    struct arguments a;
    const int status = parse(argc, argv, help_resume, 1, &a);
    if (status >= 0)
        return status;
    if (!a.by || !a.reason) {
        cmd_error("resume needs --by NAME and --reason TEXT: who says that it may publish again, and why");
        return 2;
    }
    if (check_text("--by", a.by, ORDER_NAME_CHARS) || check_text("--reason", a.reason, ORDER_REASON_CHARS))
        return 2;
    return finish(give_order(ORDER_RESUME, &a));
}

/* ---- status ---- */

/* "2 stale, 1 halted"; nothing that is zero. */
static void print_verdicts(const json_t *by_verdict)
{
    const char *between = "";
    for (unsigned i = 0; i < VERDICT_COUNT; i++) {
        const unsigned long long n = figure_at(by_verdict, verdict_name(i));
        if (n)
            printf("%s%llu %s", between, n, verdict_name(i));
        between = n ? ", " : between;
    }
    if (!*between)
        fputs("none", stdout);
}

/* since: NULL if it is not known. until: when it publishes again, if it does not; else NULL. */
static void print_rung(const char *rung, const char *cause, const char *until, const char *since,
                       const char *by, const char *reason)
{
    printf("%s%s%s: %s%s%s\n", rung, since ? " since " : "", since ? since : "", cause,
           until ? "; nothing is published until " : "", until ? until : "");
    if (*by)
        printf("  last order   %s%s%s\n", by, *reason ? ": " : "", reason);
}

static void print_running(const json_t *root)
{
    const json_t *w = json_object_get(root, "window"), *totals = json_object_get(root, "totals"),
                 *ring = json_object_get(root, "ring"), *throttle = json_object_get(root, "throttle"),
                 *alerts = json_object_get(root, "alerts");
    const int is_halted = !strcmp(text_at(root, "rung"), governor_rung_name(GOVERNOR_HALTED));
    print_rung(text_at(root, "rung"), text_at(root, "cause"),
               json_is_true(json_object_get(root, "latched")) ? "killline resume"
               : is_halted ? "its rules are quiet again, or killline resume"
                           : NULL,
               text_at(root, "since_utc"), text_at(root, "by"), text_at(root, "reason"));
    printf("  run          %s, process %llu, log in %s\n", text_at(root, "run"), figure_at(root, "pid"),
           text_at(root, "out"));
    fputs("  alerts       ", stdout);
    for (size_t i = 0; i < json_array_size(alerts); i++)
        printf("%s%s", i ? ", " : "", json_string_value(json_array_get(alerts, i)));
    puts(json_array_size(alerts) ? "" : "none");
    printf("  kill line    %.1f us\n", (double)figure_at(root, "threshold_ns") / 1e3);
    if (figure_at(w, "max_ns"))
        printf("  age          p50 %.1f us, p99 %.1f us, P99-P50 %.1f us, max %.1f us (arrival to verdict, "
               "measured)\n",
               (double)figure_at(w, "p50_ns") / 1e3, (double)figure_at(w, "p99_ns") / 1e3,
               (double)figure_at(w, "p99_minus_p50_ns") / 1e3, (double)figure_at(w, "max_ns") / 1e3);
    else
        puts("  age          no prediction in the window that has one");
    printf(
        "  load         %llu predictions/s, poll loop %llu %% busy, fullest resource %llu %%, receive ring "
        "%llu of %llu\n",
        figure_at(w, "per_s"), figure_at(w, "busy_percent"), figure_at(w, "resource_percent"),
        figure_at(ring, "used"), figure_at(ring, "size"));
    printf("  misses       %llu ppm, %llu device errors\n  window       ", figure_at(w, "miss_ppm"),
           figure_at(w, "device_errors"));
    print_verdicts(json_object_get(w, "by_verdict"));
    if (!is_halted && figure_at(json_object_get(w, "by_verdict"), verdict_name(VERDICT_HALTED)))
        printf(" (halted in %s: the symbol is not trading)", text_at(root, "rung"));
    fputs("\n  since start  ", stdout);
    print_verdicts(totals);
    printf("\n  throttle     %llu device faults, %llu forced halts in its window\n",
           figure_at(throttle, "device_faults"), figure_at(throttle, "halts"));
    if (figure_at(root, "audit_lost"))
        printf("  audit log    %llu records LOST\n", figure_at(root, "audit_lost"));
}

static void print_left(const char *folder, const struct state_file *state, int json)
{
    char since[CONTROL_UTC_CHARS];
    control_utc_text(state->since_utc_ns, since);
    if (!json) {
        if (state->cause == GOVERNOR_BY_START && !state->since_utc_ns) {
            printf("no appliance runs in %s, and none has left a state there: the next one starts %s\n",
                   folder, governor_rung_name(state->rung));
            return;
        }
        printf("no appliance runs in %s; the next one starts as the last was left:\n", folder);
        /* Who is HALTED at the end stays so, whatever it was that halted. */
        print_rung(governor_rung_name(state->rung), governor_cause_name(state->cause),
                   state->rung == GOVERNOR_HALTED ? "killline resume" : NULL,
                   state->since_utc_ns ? since : NULL, state->by, state->reason);
        printf("  throttle     %u device faults, %u forced halts\n", state->n_device_fault,
               state->n_halt_fault);
        return;
    }
    json_t *root =
        json_pack("{s:b, s:b, s:n, s:n, s:n, s:s, s:s, s:b, s:s*, s:s, s:s, s:{s:i, s:i}}", "ok", 1,
                  "running", 0, "pid", "run", "out", "rung", governor_rung_name(state->rung), "cause",
                  governor_cause_name(state->cause), "latched", state->latched, "since_utc",
                  state->since_utc_ns ? since : NULL, "by", state->by, "reason", state->reason, "throttle",
                  "device_faults", (int)state->n_device_fault, "halts", (int)state->n_halt_fault);
    print_json(root);
    json_decref(root);
}

int cmd_status(int argc, char **argv)
{
    struct arguments a;
    char folder[CONTROL_PATH_CHARS], error[CONTROL_ERROR_CHARS], answer[CONTROL_ANSWER_BYTES],
        pid[CONTROL_PID_CHARS];
    const int usage = parse(argc, argv, help_status, 0, &a);
    if (usage >= 0)
        return usage;
    if (control_folder(a.dir, folder, error))
        return cmd_error("%s", error);
    int asked, is_taken = 1;
    for (int waited_ms = 0;; waited_ms += STEP_MS) {
        asked = control_ask(folder, "{\"command\":\"status\"}", answer, error);
        is_taken = asked == 1 && control_is_taken(folder, pid);
        if (!is_taken || waited_ms >= PATIENCE_MS)
            break;
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    }
    if (asked < 0)
        return cmd_error("%s", error);
    if (is_taken)
        return cmd_error(
            "%s: an appliance (%s) has this folder, but does not listen: it is about to start, or "
            "to end. Try again",
            folder, pid);
    if (asked) {
        struct state_file state;
        const int bad = control_read(folder, &state, error);
        print_left(folder, &state, a.json);
        return finish(bad ? cmd_error("%s", error) : 0);
    }
    json_t *root = answer_of(answer);
    if (!root)
        return 1;
    const int ok = json_is_true(json_object_get(root, "ok"));
    if (a.json)
        print_json(root);
    else if (ok)
        print_running(root);
    const int status = ok ? 0 : cmd_error("%s", text_at(root, "error"));
    json_decref(root);
    return finish(status);
}
