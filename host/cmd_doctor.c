/* killline doctor: is everything there that killline run --accel xrt needs? */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "doctor.h"

enum { WRONG_USAGE = 2, LIMIT_S_DEFAULT = 20, LIMIT_S_MAX = 3600 };

static const char help[] =
    "usage: killline doctor [--xclbin F] [--timeout S] [--json]\n\n"
    "Looks at what killline run --accel xrt needs, and at the machine: XRT and its driver, devices, and\n"
    "which of them are the software device, the xclbin and the kernel in it, the shipped model, DPDK,\n"
    "OpenSSL, CPU, clock, memory. A line each: OK, note or problem, and what to do.\n\n"
    "Device 0 is opened, the xclbin loaded and unit 0 asked who it is, as a run would; a unit that a\n"
    "running appliance has is said to be in use. XRT is called in a child process: nothing that it does\n"
    "ends or stops the doctor.\n\n"
    "  --xclbin F       the kernel's container (default: where killline run takes the software device's)\n"
    "  --timeout S      for each step with XRT (default 20)\n"
    "  --json           one JSON object\n\n"
    "Exit status: 0 run --accel xrt can work, 1 it cannot, 2 wrong usage.\n";

struct doctor_line *doctor_say(struct doctor *doctor, const char *check, enum doctor_level level,
                               json_t *data, const char *format, ...)
{
    va_list args;
    /* A full list keeps its last line: the first ones say more. */
    if (doctor->n_line == DOCTOR_LINES_MAX)
        json_decref(doctor->lines[--doctor->n_line].data);
    struct doctor_line *line = &doctor->lines[doctor->n_line++];
    *line = (struct doctor_line){.check = check, .level = level, .data = data};
    va_start(args, format);
    vsnprintf(line->text, sizeof line->text, format, args);
    va_end(args);
    return line;
}

void doctor_remedy(struct doctor_line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(line->remedy, sizeof line->remedy, format, args);
    va_end(args);
}

static const char *level_name(enum doctor_level level)
{
    static const char *const name[] = {
        [DOCTOR_OK] = "OK", [DOCTOR_NOTE] = "note", [DOCTOR_PROBLEM] = "problem"};
    return name[level];
}

/* NULL: nothing stands in the way. */
static const struct doctor_line *first_problem(const struct doctor *d)
{
    for (unsigned i = 0; i < d->n_line; i++)
        if (d->lines[i].level == DOCTOR_PROBLEM)
            return &d->lines[i];
    return NULL;
}

static void print_text(const struct doctor *d)
{
    const struct doctor_line *problem = first_problem(d);
    for (unsigned i = 0; i < d->n_line; i++) {
        const struct doctor_line *line = &d->lines[i];
        printf("%-8s %-9s  %s\n", level_name(line->level), line->check, line->text);
        if (line->remedy[0])
            printf("%-8s %-9s  -> %s\n", "", "", line->remedy);
    }
    if (problem)
        printf("\nrun --accel xrt cannot work: %s: %s\n", problem->check, problem->text);
    else
        puts("\nrun --accel xrt can work");
}

/* Text from a driver may be any bytes: what is not ASCII is replaced, since JSON takes UTF-8 only. */
static json_t *json_text(const char *text)
{
    char ascii[DOCTOR_TEXT_CHARS];
    size_t i = 0;
    for (; text[i] && i < sizeof ascii - 1; i++)
        ascii[i] = text[i] > 0 ? text[i] : '?';
    ascii[i] = '\0';
    return json_string(ascii);
}

static int print_json(struct doctor *d)
{
    const struct doctor_line *problem = first_problem(d);
    json_t *checks = json_array();
    for (unsigned i = 0; i < d->n_line; i++) {
        struct doctor_line *line = &d->lines[i];
        json_t *check = json_pack("{s:s, s:s, s:o}", "check", line->check, "level",
                                  line->level == DOCTOR_OK ? "ok" : level_name(line->level), "text",
                                  json_text(line->text));
        if (line->remedy[0])
            json_object_set_new(check, "remedy", json_text(line->remedy));
        if (line->data)
            json_object_set(check, "data", line->data);
        json_array_append_new(checks, check);
    }
    json_t *root = json_pack("{s:b, s:o*, s:o}", "ok", !problem, "reason",
                             problem ? json_text(problem->text) : NULL, "checks", checks);
    const int failed =
        !root || json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12)) || putchar('\n') == EOF;
    json_decref(root);
    return failed;
}

/* 0; -1: help was printed; 2: wrong usage. */
static int parse(int argc, char **argv, struct doctor *d, int *json)
{
    enum { XCLBIN = 1, TIMEOUT };
    static const struct option table[] = {{"xclbin", 1, 0, XCLBIN},
                                          {"timeout", 1, 0, TIMEOUT},
                                          {"json", 0, 0, 'j'},
                                          {"help", 0, 0, 'h'},
                                          {0, 0, 0, 0}};
    unsigned long long n;
    optind = 0; /* GNU: starts anew */
    for (int c; (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
        switch (c) {
        case XCLBIN:
            d->xclbin = optarg;
            break;
        case TIMEOUT:
            if (cmd_parse_u64(optarg, 1, LIMIT_S_MAX, &n)) {
                cmd_error("doctor: --timeout %s: 1 to %d seconds are possible", optarg, LIMIT_S_MAX);
                return WRONG_USAGE;
            }
            d->limit_s = (unsigned)n;
            break;
        case 'j':
            *json = 1;
            break;
        case 'h':
            fputs(help, stdout);
            return -1;
        default:
            cmd_error("doctor: killline doctor --help lists the options");
            return WRONG_USAGE;
        }
    }
    if (optind < argc) {
        cmd_error("doctor: '%s' is not an option: killline doctor --help", argv[optind]);
        return WRONG_USAGE;
    }
    return 0;
}

int cmd_doctor(int argc, char **argv)
{
    int json = 0;
    struct doctor *d = calloc(1, sizeof *d);
    if (!d)
        return cmd_error("doctor: out of memory");
    d->limit_s = LIMIT_S_DEFAULT;
    const int wrong = parse(argc, argv, d, &json);
    if (wrong) {
        free(d);
        return wrong < 0 ? 0 : wrong;
    }
    doctor_look_model(d);
    doctor_look_xrt(d);
    doctor_look_host(d);
    int lost = 0;
    if (json)
        lost = print_json(d);
    else
        print_text(d);
    lost |= fflush(stdout) || ferror(stdout);
    int status = first_problem(d) != NULL;
    for (unsigned i = 0; i < d->n_line; i++)
        json_decref(d->lines[i].data);
    if (d->model.image)
        model_free(&d->model);
    free(d);
    return lost ? cmd_error("doctor: standard output: write failed") : status;
}
