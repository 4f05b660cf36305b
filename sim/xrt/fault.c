#include "fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../hls/kl_abi.h"

/* Own keys of a kind, and when it happens. value_key NULL: it has none. */
static const struct {
    const char *name;
    enum fault_event event;
    const char *value_key;
    uint64_t value, value_least, value_most;
    int may_be_now; /* after=0 */
} kinds[FAULT_N_KIND] = {
    [FAULT_HANG] = {"hang", FAULT_REQUEST, NULL, 0, 0, 0, 1},
    [FAULT_LATE] = {"late", FAULT_REQUEST, "us", 1000, 1, 10000000, 0},
    [FAULT_ERROR] = {"error", FAULT_REQUEST, "status", KL_E_STATE, 1, UINT16_MAX, 0},
    [FAULT_CRASH] = {"crash", FAULT_REQUEST, "signal", 11, 1, 31, 1},
    [FAULT_FLIP_ANSWER] = {"flip-answer", FAULT_REQUEST, "bit", 8 * offsetof(struct kl_result, logits), 0,
                           8 * sizeof(struct kl_result) - 1, 0},
    [FAULT_FLIP_WEIGHT] = {"flip-weight", FAULT_REQUEST, "bit", FAULT_ANY_WEIGHT, 0, UINT64_MAX, 0},
    [FAULT_DUPLICATE] = {"duplicate", FAULT_REQUEST, NULL, 0, 0, 0, 0},
    [FAULT_VANISH] = {"vanish", FAULT_REQUEST, NULL, 0, 0, 0, 1},
    [FAULT_LOSE_DOORBELL] = {"lose-doorbell", FAULT_DOORBELL, NULL, 0, 0, 0, 0},
    [FAULT_REFUSE_LOAD] = {"refuse-load", FAULT_LOAD_XCLBIN, NULL, 0, 0, 0, 0}, /* or _MODEL */
    [FAULT_MEMORY_FULL] = {"memory-full", FAULT_ALLOCATE, NULL, 0, 0, 0, 0},
};

const char *fault_kind_name(enum fault_kind kind)
{
    return kinds[kind].name;
}

static int is_word(const char *at, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(at, word, length) == 0;
}

/* Decimal digits and nothing else. 0, or -1. */
static int number(const char *at, size_t length, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    if (length == 0)
        return -1;
    for (size_t i = 0; i < length; i++) {
        const uint64_t digit = (uint64_t)(at[i] - '0');
        if (digit > 9 || value > (UINT64_MAX - digit) / 10)
            return -1;
        value = 10 * value + digit;
    }
    *out = value;
    return value >= least && value <= most ? 0 : -1;
}

/* 0; -1: no such key for this kind, or no such value. */
static int parse_key(const char *key, size_t key_length, const char *text, size_t length, struct fault *out)
{
    uint64_t value;
    if (out->kind == FAULT_REFUSE_LOAD && is_word(key, key_length, "what")) {
        out->on_xclbin = is_word(text, length, "xclbin");
        out->on_model = is_word(text, length, "model");
        return out->on_xclbin || out->on_model ? 0 : -1;
    }
    if (kinds[out->kind].value_key && is_word(key, key_length, kinds[out->kind].value_key))
        return number(text, length, kinds[out->kind].value_least, kinds[out->kind].value_most, &out->value);
    if (number(text, length, 0, UINT32_MAX, &value) != 0)
        return -1;
    if (is_word(key, key_length, "device") && value < INT32_MAX)
        out->device = (int32_t)value;
    else if (is_word(key, key_length, "unit") && value < INT32_MAX)
        out->unit = (int32_t)value;
    else if (is_word(key, key_length, "after") && (value > 0 || kinds[out->kind].may_be_now))
        out->after = (uint32_t)value;
    else if (is_word(key, key_length, "count"))
        out->count = (uint32_t)value;
    else if (out->kind == FAULT_FLIP_ANSWER && is_word(key, key_length, "sealed") && value <= 1)
        out->is_sealed = (int)value;
    else
        return -1;
    return 0;
}

static int refuse(const char *what, const char *at, size_t length, char error[FAULT_ERROR_CHARS])
{
    snprintf(error, FAULT_ERROR_CHARS, "fault '%.*s': %s", (int)(length < 80 ? length : 80), at, what);
    return -1;
}

static int parse_keys(const char *at, size_t length, struct fault *out, char error[FAULT_ERROR_CHARS])
{
    const char *end = at + length;
    while (at < end) {
        const char *comma = (const char *)memchr(at, ',', (size_t)(end - at));
        const size_t n = comma ? (size_t)(comma - at) : (size_t)(end - at);
        const char *equals = (const char *)memchr(at, '=', n);
        if (!equals ||
            parse_key(at, (size_t)(equals - at), equals + 1, n - (size_t)(equals - at) - 1, out) != 0) {
            char what[160];
            snprintf(what, sizeof what,
                     "%s takes device=N, unit=N, after=N (from 1%s), count=N (0: for ever)%s%s%s",
                     kinds[out->kind].name, kinds[out->kind].may_be_now ? "; 0: at once" : "",
                     kinds[out->kind].value_key ? ", " : "",
                     kinds[out->kind].value_key       ? kinds[out->kind].value_key
                     : out->kind == FAULT_REFUSE_LOAD ? ", what=xclbin|model"
                                                      : "",
                     out->kind == FAULT_FLIP_ANSWER ? "=N, sealed=0|1"
                     : kinds[out->kind].value_key   ? "=N"
                                                    : "");
            return refuse(what, at, n, error);
        }
        if (comma && comma + 1 == end)
            return refuse("a key is missing behind the comma", at, n + 1, error);
        at += n + !!comma;
    }
    return 0;
}

static int parse_one(const char *at, size_t length, struct fault_list *out, char error[FAULT_ERROR_CHARS])
{
    const char *colon = (const char *)memchr(at, ':', length);
    const size_t n = colon ? (size_t)(colon - at) : length;
    if (!colon && is_word(at, n, "clear")) {
        out->is_clear = 1;
        out->n = 0;
        return 0;
    }
    uint32_t kind = 0;
    while (kind < FAULT_N_KIND && !is_word(at, n, kinds[kind].name))
        kind++;
    if (kind == FAULT_N_KIND)
        return refuse("the kinds are hang, late, error, crash, flip-answer, flip-weight, duplicate, vanish, "
                      "lose-doorbell, refuse-load, memory-full; and clear",
                      at, n, error);
    if (out->n == FAULT_LIST_MAX)
        return refuse("more than 64 in one", at, n, error);
    struct fault *fault = &out->list[out->n];
    *fault = (struct fault){.kind = (enum fault_kind)kind,
                            .device = FAULT_ANY,
                            .unit = FAULT_ANY,
                            .after = 1,
                            .count = 1,
                            .value = kinds[kind].value,
                            .on_xclbin = 1,
                            .on_model = 1};
    if (colon && n + 1 == length)
        return refuse("keys are missing behind the colon", at, length, error);
    if (colon && parse_keys(colon + 1, length - n - 1, fault, error) != 0)
        return -1;
    out->n++;
    return 0;
}

int fault_parse(const char *spec, struct fault_list *out, char error[FAULT_ERROR_CHARS])
{
    out->is_clear = 0;
    out->n = 0;
    if (strlen(spec) >= FAULT_SPEC_CHARS)
        return refuse("longer than 1023 characters", spec, strlen(spec), error);
    for (const char *at = spec;; at++) {
        const size_t length = strcspn(at, ";");
        if (parse_one(at, length, out, error) != 0)
            return -1;
        at += length;
        if (!*at)
            return 0;
    }
}

/* ---- the table ---- */

int fault_table_add(struct fault_table *table, const struct fault_list *list, uint32_t device)
{
    uint32_t n = atomic_load_explicit(&table->n, memory_order_relaxed);
    if (list->is_clear)
        atomic_store_explicit(&table->first, n, memory_order_relaxed);
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->list[i].device != FAULT_ANY && list->list[i].device != (int32_t)device)
            continue;
        if (n == FAULT_TABLE_MAX)
            return -1;
        table->entries[n].fault = list->list[i];
        atomic_store_explicit(&table->entries[n].seen, 0, memory_order_relaxed);
        atomic_store_explicit(&table->entries[n].fired, 0, memory_order_relaxed);
        atomic_store_explicit(&table->n, ++n, memory_order_release);
    }
    return 0;
}

static int is_over(const struct fault_entry *entry)
{
    return entry->fault.count &&
           atomic_load_explicit(&entry->fired, memory_order_relaxed) >= entry->fault.count;
}

void fault_table_reset(struct fault_table *table)
{
    const uint32_t n = atomic_load_explicit(&table->n, memory_order_relaxed);
    uint32_t kept = 0;
    for (uint32_t i = atomic_load_explicit(&table->first, memory_order_relaxed); i < n; i++) {
        const struct fault_entry *entry = &table->entries[i];
        if (is_over(entry))
            continue;
        struct fault_entry *to = &table->entries[kept++];
        to->fault = entry->fault;
        atomic_store_explicit(&to->seen, atomic_load_explicit(&entry->seen, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&to->fired, atomic_load_explicit(&entry->fired, memory_order_relaxed),
                              memory_order_relaxed);
    }
    atomic_store_explicit(&table->first, 0, memory_order_relaxed);
    atomic_store_explicit(&table->n, kept, memory_order_release);
}

static int is_for(const struct fault *fault, enum fault_event event)
{
    if (fault->kind == FAULT_REFUSE_LOAD)
        return event == FAULT_LOAD_XCLBIN ? fault->on_xclbin : event == FAULT_LOAD_MODEL && fault->on_model;
    return kinds[fault->kind].event == event;
}

static void fire(struct fault_entry *entry, struct fault_fired *fired)
{
    /* Units count in threads of their own: no more than `count` fire. */
    if (atomic_fetch_add_explicit(&entry->fired, 1, memory_order_relaxed) >= entry->fault.count &&
        entry->fault.count) {
        atomic_fetch_sub_explicit(&entry->fired, 1, memory_order_relaxed);
        return;
    }
    fired->kinds |= 1u << entry->fault.kind;
    fired->by[entry->fault.kind] = &entry->fault;
}

void fault_look(struct fault_table *table, enum fault_event event, uint32_t unit, struct fault_fired *fired)
{
    fired->kinds = 0;
    const uint32_t n = atomic_load_explicit(&table->n, memory_order_acquire);
    for (uint32_t i = atomic_load_explicit(&table->first, memory_order_relaxed); i < n; i++) {
        struct fault_entry *entry = &table->entries[i];
        if (!is_for(&entry->fault, event) ||
            (entry->fault.unit != FAULT_ANY && entry->fault.unit != (int32_t)unit) || is_over(entry))
            continue;
        if (atomic_fetch_add_explicit(&entry->seen, 1, memory_order_relaxed) + 1 >= entry->fault.after)
            fire(entry, fired);
    }
}

void fault_now(struct fault_table *table, uint32_t unit, struct fault_fired *fired)
{
    fired->kinds = 0;
    const uint32_t n = atomic_load_explicit(&table->n, memory_order_acquire);
    for (uint32_t i = atomic_load_explicit(&table->first, memory_order_relaxed); i < n; i++) {
        struct fault_entry *entry = &table->entries[i];
        if (entry->fault.after == 0 && !is_over(entry) &&
            (entry->fault.unit == FAULT_ANY || entry->fault.unit == (int32_t)unit))
            fire(entry, fired);
    }
}
