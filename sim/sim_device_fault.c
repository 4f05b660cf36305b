#include "sim_device_fault.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../host/cmd.h"
#include "xrt/fault_control.h"

enum { WRONG_USAGE = 2 };

struct fault_options {
    const char *control, *spec; /* spec NULL: not given */
    int json;
};

static int wrong(const char *what)
{
    cmd_error("sim-device: %s; killline sim-device --help", what);
    return WRONG_USAGE;
}

/* 0; -1: help is wanted; or the exit status. */
static int parse(int argc, char **argv, int wants_spec, struct fault_options *o)
{
    enum { CONTROL = 1, JSON };
    static const struct option table[] = {
        {"control", 1, 0, CONTROL}, {"json", 0, 0, JSON}, {"help", 0, 0, 'h'}, {0, 0, 0, 0}};
    *o = (struct fault_options){.control = getenv("KL_SIM_CONTROL")};
    optind = 0; /* GNU: starts anew */
    for (int c; (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
        if (c == 'h')
            return -1;
        if (c == CONTROL)
            o->control = optarg;
        else if (c == JSON)
            o->json = 1;
        else
            return wrong("no such option");
    }
    if (wants_spec && optind < argc)
        o->spec = argv[optind++];
    if (optind < argc)
        return wrong("more than one argument: separate faults by ';', in quotes");
    if (wants_spec && !o->spec)
        return wrong("which fault?");
    if (!o->control || !o->control[0])
        return wrong("which devices? Give --control F, or set KL_SIM_CONTROL as they have it");
    return 0;
}

static int print_json(json_t *root)
{
    const int failed = !root || json_dumpf(root, stdout, JSON_COMPACT) || putchar('\n') == EOF;
    json_decref(root);
    return failed ? cmd_error("sim-device: standard output: write failed") : 0;
}

/* ---- fault ---- */

/* "any", or the number. */
static const char *which(int32_t index, char text[16])
{
    if (index == FAULT_ANY)
        return "any";
    snprintf(text, 16, "%" PRId32, index);
    return text;
}

static void print_fault(const struct fault *fault)
{
    char device[16], unit[16];
    printf("armed: %s, device %s, unit %s, ", fault_kind_name(fault->kind), which(fault->device, device),
           which(fault->unit, unit));
    if (fault->after)
        printf("from event %" PRIu32 " on, ", fault->after);
    else
        fputs("at once, ", stdout);
    if (fault->count)
        printf("%" PRIu32 " time%s\n", fault->count, fault->count == 1 ? "" : "s");
    else
        puts("for ever");
}

static json_t *fault_json(const struct fault *fault)
{
    json_t *root = json_pack("{s:s, s:I, s:I}", "kind", fault_kind_name(fault->kind), "after",
                             (json_int_t)fault->after, "count", (json_int_t)fault->count);
    if (root && fault->device != FAULT_ANY)
        json_object_set_new(root, "device", json_integer(fault->device));
    if (root && fault->unit != FAULT_ANY)
        json_object_set_new(root, "unit", json_integer(fault->unit));
    return root;
}

int sim_device_fault(int argc, char **argv)
{
    struct fault_options o;
    struct fault_list list;
    char error[FAULT_ERROR_CHARS];
    const int status = parse(argc, argv, 1, &o);
    if (status)
        return status;
    if (fault_parse(o.spec, &list, error)) {
        cmd_error("sim-device: %s", error);
        return WRONG_USAGE;
    }
    if (fault_to_control(o.control, o.spec, error))
        return cmd_error("sim-device: %s", error);
    if (o.json) {
        json_t *faults = json_array();
        for (uint32_t i = 0; i < list.n; i++)
            json_array_append_new(faults, fault_json(&list.list[i]));
        return print_json(
            json_pack("{s:s, s:b, s:o}", "control", o.control, "cleared", list.is_clear, "armed", faults));
    }
    if (list.is_clear)
        puts("cleared: what was armed before");
    for (uint32_t i = 0; i < list.n; i++)
        print_fault(&list.list[i]);
    return 0;
}

/* ---- status ---- */

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static const struct {
    const char *key, *what;
    size_t offset;
} counters[] = {
    {"requests", "requests executed in doorbell mode", offsetof(struct control_device, requests)},
    {"runs", "runs ended", offsetof(struct control_device, runs)},
    {"bad_access", "accesses of memory where the kernel has no business",
     offsetof(struct control_device, bad_access)},
    {"resets", "resets of the device", offsetof(struct control_device, resets)},
    {"lost", "times that the device was gone", offsetof(struct control_device, lost)},
};

static uint64_t counter(const struct control_device *device, size_t i)
{
    return load((const _Atomic uint64_t *)(const void *)((const char *)device + counters[i].offset));
}

static int was_used(const struct control_device *device)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        sum |= counter(device, i);
    for (int kind = 0; kind < FAULT_N_KIND; kind++)
        sum |= load(&device->injected[kind]);
    return sum != 0;
}

static json_t *device_json(const struct control_device *device, int index)
{
    json_t *injected = json_object(), *root = json_pack("{s:i}", "device", index);
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        json_object_set_new(root, counters[i].key, json_integer((json_int_t)counter(device, i)));
    for (int kind = 0; kind < FAULT_N_KIND; kind++)
        json_object_set_new(injected, fault_kind_name((enum fault_kind)kind),
                            json_integer((json_int_t)load(&device->injected[kind])));
    json_object_set_new(root, "injected", injected);
    return root;
}

static void print_device(const struct control_device *device, int index)
{
    printf("device %d\n", index);
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        printf("  %12" PRIu64 "  %s\n", counter(device, i), counters[i].what);
    for (int kind = 0; kind < FAULT_N_KIND; kind++)
        if (load(&device->injected[kind]))
            printf("  %12" PRIu64 "  injected: %s\n", load(&device->injected[kind]),
                   fault_kind_name((enum fault_kind)kind));
}

int sim_device_status(int argc, char **argv)
{
    struct fault_options o;
    char error[FAULT_ERROR_CHARS];
    int fd, n_used = 0;
    const int status = parse(argc, argv, 0, &o);
    if (status)
        return status;
    /* Opening makes a file that is not there: here that is a mistake in its name. */
    if (access(o.control, R_OK | W_OK))
        return cmd_error("sim-device: control file %s: %m", o.control);
    struct fault_control *control = fault_control_open(o.control, &fd, error);
    if (!control)
        return cmd_error("sim-device: %s", error);
    json_t *devices = json_array();
    for (int i = 0; i < CONTROL_DEVICES_MAX; i++) {
        const struct control_device *device = &control->devices[i];
        if (!was_used(device))
            continue;
        n_used++;
        json_array_append_new(devices, device_json(device, i));
        if (!o.json)
            print_device(device, i);
    }
    fault_control_close(control, fd);
    if (o.json)
        return print_json(json_pack("{s:s, s:o}", "control", o.control, "devices", devices));
    json_decref(devices);
    if (!n_used)
        puts("no device has counted anything yet");
    return 0;
}
