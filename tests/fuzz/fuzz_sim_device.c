/* What the software device takes from outside: a spec of faults, one of latencies, a control file. The first
 * byte says which. Properties: a refusal has a reason; what is accepted is within its limits, says the same
 * again when it is written out, and fires no more often than it says; what is written into a control file is
 * what a reader gets, and a file of any bytes is read within itself. */
#undef NDEBUG
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hls/kl_abi.h"
#include "sim/xrt/fault_control.h"
#include "sim/xrt/latency.h"

/* ---- faults ---- */

static void check_value(const struct fault *fault)
{
    switch (fault->kind) {
    case FAULT_LATE:
        assert(fault->value >= 1 && fault->value <= 10000000);
        break;
    case FAULT_ERROR:
        assert(fault->value >= 1 && fault->value <= UINT16_MAX);
        break;
    case FAULT_CRASH:
        assert(fault->value >= 1 && fault->value <= 31);
        break;
    case FAULT_FLIP_ANSWER:
        assert(fault->value < 8 * sizeof(struct kl_result));
        break;
    default:
        break;
    }
}

static void check_fault(const struct fault *fault)
{
    assert((unsigned)fault->kind < FAULT_N_KIND);
    assert(fault->device >= FAULT_ANY && fault->unit >= FAULT_ANY);
    assert(fault->after || fault->kind == FAULT_HANG || fault->kind == FAULT_CRASH ||
           fault->kind == FAULT_VANISH);
    assert(!fault->is_sealed || (fault->is_sealed == 1 && fault->kind == FAULT_FLIP_ANSWER));
    assert(fault->on_xclbin || fault->on_model);
    check_value(fault);
}

/* As a spec says it, every key given. */
static void write_fault(const struct fault *fault, char out[256])
{
    static const char *const value_key[FAULT_N_KIND] = {[FAULT_LATE] = "us",
                                                        [FAULT_ERROR] = "status",
                                                        [FAULT_CRASH] = "signal",
                                                        [FAULT_FLIP_ANSWER] = "bit",
                                                        [FAULT_FLIP_WEIGHT] = "bit"};
    int n = sprintf(out, "%s:after=%u,count=%u", fault_kind_name(fault->kind), fault->after, fault->count);
    if (fault->device != FAULT_ANY)
        n += sprintf(out + n, ",device=%d", fault->device);
    if (fault->unit != FAULT_ANY)
        n += sprintf(out + n, ",unit=%d", fault->unit);
    if (value_key[fault->kind])
        n += sprintf(out + n, ",%s=%llu", value_key[fault->kind], (unsigned long long)fault->value);
    if (fault->is_sealed)
        n += sprintf(out + n, ",sealed=1");
    if (!fault->on_model || !fault->on_xclbin)
        sprintf(out + n, ",what=%s", fault->on_model ? "model" : "xclbin");
}

static int is_same(const struct fault *a, const struct fault *b)
{
    return a->kind == b->kind && a->device == b->device && a->unit == b->unit && a->after == b->after &&
           a->count == b->count && a->value == b->value && a->is_sealed == b->is_sealed &&
           a->on_xclbin == b->on_xclbin && a->on_model == b->on_model;
}

static void check_written(const struct fault *fault)
{
    struct fault_list again;
    char text[256], error[FAULT_ERROR_CHARS];
    write_fault(fault, text);
    assert(!fault_parse(text, &again, error));
    assert(again.n == 1 && !again.is_clear && is_same(fault, &again.list[0]));
}

/* Events of every kind, on some units, with resets in between. */
static void check_table(const struct fault_list *list, const uint8_t *events, size_t n)
{
    static struct fault_table table;
    struct fault_fired fired;
    uint32_t n_fired[FAULT_N_KIND] = {0}, most[FAULT_N_KIND] = {0};
    int for_ever = 0;
    memset(&table, 0, sizeof table);
    assert(!fault_table_add(&table, list, 0));
    for (uint32_t i = 0; i < list->n; i++) {
        for_ever |= (list->list[i].count == 0) << list->list[i].kind;
        most[list->list[i].kind] += list->list[i].count < 1000 ? list->list[i].count : 1000;
    }
    for (size_t i = 0; i < n && i < 100; i++) {
        if (events[i] == 255) {
            fault_table_reset(&table);
            continue;
        }
        if (events[i] & 0x80)
            fault_now(&table, events[i] & 3, &fired);
        else
            fault_at(&table, (enum fault_event)(events[i] % 5), events[i] >> 3 & 3, &fired);
        for (int kind = 0; kind < FAULT_N_KIND; kind++) {
            if (!(fired.kinds >> kind & 1))
                continue;
            assert(fired.by[kind]->kind == (enum fault_kind)kind);
            assert(++n_fired[kind] <= most[kind] || for_ever >> kind & 1);
        }
    }
}

static void use_spec(const char *spec)
{
    struct fault_list list;
    char error[FAULT_ERROR_CHARS] = "";
    if (fault_parse(spec, &list, error)) {
        assert(!strncmp(error, "fault '", 7) && error[7]);
        return;
    }
    assert(list.n <= FAULT_LIST_MAX && strlen(spec) < FAULT_SPEC_CHARS);
    for (uint32_t i = 0; i < list.n; i++) {
        check_fault(&list.list[i]);
        check_written(&list.list[i]);
    }
    check_table(&list, (const uint8_t *)spec, strlen(spec));
}

/* ---- latencies ---- */

static void use_latency(const char *spec)
{
    struct latency latency, again;
    char error[LATENCY_ERROR_CHARS] = "", text[256];
    if (latency_parse(spec, &latency, error)) {
        assert(!strncmp(error, "KL_SIM_LATENCY: '", 17));
        return;
    }
    assert(latency.is_on <= 1 && latency.sync_mbps && latency.kernel_mhz && latency.kernel_mhz <= 10000);
    assert(latency.write_ns <= 1000000000 && latency.sync_ns <= 1000000000 && latency.run_us <= 1000000);
    sprintf(text, "write_ns=%u,read_ns=%u,fetch_ns=%u,sync_ns=%u,sync_mbps=%u,kernel_mhz=%u,run_us=%u",
            latency.write_ns, latency.read_ns, latency.fetch_ns, latency.sync_ns, latency.sync_mbps,
            latency.kernel_mhz, latency.run_us);
    assert(!latency_parse(text, &again, error));
    again.is_on = latency.is_on;
    assert(!memcmp(&latency, &again, sizeof latency));
}

/* ---- the control file ---- */

struct read {
    uint32_t n_clear;
    struct fault_list list;
};

static void apply(void *context, int is_clear, const char *spec)
{
    struct read *read = context;
    struct fault_list list;
    char error[FAULT_ERROR_CHARS];
    assert(strlen(spec) < CONTROL_TEXT_BYTES && !strchr(spec, '\n'));
    read->n_clear += (uint32_t)is_clear;
    if (!*spec || fault_parse(spec, &list, error))
        return;
    for (uint32_t i = 0; i < list.n && read->list.n < FAULT_LIST_MAX; i++)
        read->list.list[read->list.n++] = list.list[i];
}

/* Specs, a line each, through a file of their own. */
static void use_specs(char *lines)
{
    char path[64], error[FAULT_ERROR_CHARS];
    int mapped;
    const int fd = memfd_create("control", MFD_CLOEXEC);
    assert(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct fault_control *control = fault_control_open(path, &mapped, error);
    assert(control);
    struct fault_control_reader reader = {0};
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        struct fault_list list;
        struct read read = {0};
        const int is_wrong = fault_parse(line, &list, error);
        if (fault_to_control(path, line, error)) {
            assert(is_wrong || strstr(error, "clear it first"));
            continue;
        }
        assert(!is_wrong && control_has_news(control, &reader));
        fault_control_read(control, &reader, apply, &read);
        assert(!control_has_news(control, &reader));
        assert(read.n_clear == (uint32_t)list.is_clear && read.list.n == list.n);
        for (uint32_t i = 0; i < list.n; i++)
            assert(is_same(&list.list[i], &read.list.list[i]));
    }
    fault_control_close(control, mapped);
    close(fd);
}

/* Any bytes as a file of some size; what is taken for one has words that make no sense in it. */
static void use_file(const uint8_t *data, size_t size_bytes)
{
    char error[FAULT_ERROR_CHARS] = "";
    const uint32_t words[4] = {0x53494d4b, 0x4c525443, CONTROL_VERSION, sizeof(struct fault_control)};
    const int fd = memfd_create("control", MFD_CLOEXEC);
    assert(fd >= 0);
    const int is_whole = size_bytes && data[0] & 1, has_head = size_bytes && data[0] & 2;
    if (is_whole)
        assert(!ftruncate(fd, sizeof(struct fault_control)));
    if (has_head)
        assert(pwrite(fd, words, sizeof words, 0) == sizeof words);
    if (size_bytes > 1)
        assert(pwrite(fd, data + 1, size_bytes - 1, has_head ? sizeof words : 0) == (ssize_t)size_bytes - 1);
    struct fault_control *control = fault_control_map(fd, "input", error);
    if (!control) {
        assert(!strncmp(error, "control file input: ", 20));
        close(fd);
        return;
    }
    struct read read = {0};
    struct fault_control_reader reader = {0};
    for (int i = 0; i < 2; i++)
        fault_control_read(control, &reader, apply, &read);
    assert(atomic_load(&control->generation) & 1 || reader.generation == atomic_load(&control->generation));
    fault_control_close(control, fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    if (!size_bytes)
        return 0;
    char *text = malloc(size_bytes);
    assert(text);
    memcpy(text, data + 1, size_bytes - 1);
    text[size_bytes - 1] = '\0';
    switch (data[0] & 3) {
    case 0:
        use_spec(text);
        break;
    case 1:
        use_latency(text);
        break;
    case 2:
        use_specs(text);
        break;
    default:
        use_file(data + 1, size_bytes - 1);
        break;
    }
    free(text);
    return 0;
}
