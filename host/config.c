#include "config.h"

#include <arpa/inet.h>
#include <cyaml/cyaml.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "accel_guard.h"
#include "accel_xrt.h"
#include "audit.h"
#include "config_check.h"
#include "intake.h"
#include "market.h"

enum { TEXT_BYTES_MAX = 1 << 20, DEPTH_MAX = 16 };

/* ---- schema ---- */

#define OPTIONAL CYAML_FLAG_OPTIONAL

static const cyaml_strval_t trigger_names[] = {
    {"bbo", INTAKE_ON_BBO}, {"trade", INTAKE_ON_TRADE}, {"book", INTAKE_ON_BOOK}};
static const cyaml_strval_t accel_names[] = {
    {"csim", CONFIG_ACCEL_CSIM}, {"cpu", CONFIG_ACCEL_CPU}, {"xrt", CONFIG_ACCEL_XRT}};
static const cyaml_strval_t mode_names[] = {{"doorbell", ACCEL_XRT_DOORBELL}, {"run", ACCEL_XRT_RUN}};
static const cyaml_strval_t build_names[] = {{"auto", CONFIG_BUILD_AUTO},
                                             {"small", CONFIG_BUILD_SMALL},
                                             {"fast", CONFIG_BUILD_FAST},
                                             {"large", CONFIG_BUILD_LARGE}};
static const cyaml_strval_t variant_names[] = {{"auto", ACCEL_CPU_AUTO},
                                               {"avx512vnni", ACCEL_CPU_AVX512VNNI},
                                               {"avx512bw", ACCEL_CPU_AVX512BW},
                                               {"avx2", ACCEL_CPU_AVX2},
                                               {"portable", ACCEL_CPU_PORTABLE}};
static const cyaml_strval_t clock_names[] = {{"real", CONFIG_CLOCK_REAL}, {"replay", CONFIG_CLOCK_REPLAY}};
static const cyaml_strval_t join_names[] = {{"strict", MARKET_JOIN_STRICT}, {"settled", MARKET_JOIN_SETTLED}};
static const cyaml_strval_t full_names[] = {{"drop", AUDIT_FULL_DROP}, {"wait", AUDIT_FULL_WAIT}};

#define ENUM(key, type, member, names)                                                                       \
    CYAML_FIELD_ENUM(key, OPTIONAL | CYAML_FLAG_STRICT, type, member, names, CYAML_ARRAY_LEN(names))
#define STRING(key, type, member)                                                                            \
    CYAML_FIELD_STRING_PTR(key, OPTIONAL | CYAML_FLAG_POINTER, type, member, 0, 255)

static const cyaml_schema_field_t group_fields[] = {
    STRING("group", struct config_group, group),
    CYAML_FIELD_UINT("port", OPTIONAL, struct config_group, port),
    CYAML_FIELD_END,
};

#define SECTION(name) CYAML_FIELD_MAPPING(#name, OPTIONAL, struct config, name, name##_fields)

static const cyaml_schema_field_t feed_fields[] = {
    CYAML_FIELD_MAPPING("a", OPTIONAL, struct config_feed, a, group_fields),
    CYAML_FIELD_MAPPING("b", OPTIONAL, struct config_feed, b, group_fields),
    CYAML_FIELD_UINT("gap_wait_us", OPTIONAL, struct config_feed, gap_wait_us),
    CYAML_FIELD_BOOL("verify_checksum", OPTIONAL, struct config_feed, verify_checksum),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t cpu_fields[] = {
    ENUM("variant", struct config_cpu, variant, variant_names),
    CYAML_FIELD_BOOL("prepare_thread", OPTIONAL, struct config_cpu, prepare_thread),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t device_entry = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 31)};
static const cyaml_schema_field_t xrt_fields[] = {
    CYAML_FIELD_SEQUENCE("devices", OPTIONAL | CYAML_FLAG_POINTER, struct config_xrt, devices, &device_entry,
                         1, ACCEL_GUARD_CARDS_MAX),
    CYAML_FIELD_UINT("units", OPTIONAL, struct config_xrt, units),
    STRING("xclbin", struct config_xrt, xclbin),
    ENUM("mode", struct config_xrt, mode, mode_names),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t guard_fields[] = {
    CYAML_FIELD_UINT("check_every", OPTIONAL, struct config_guard, check_every),
    CYAML_FIELD_BOOL("prove", OPTIONAL, struct config_guard, prove),
    CYAML_FIELD_UINT("probes", OPTIONAL, struct config_guard, probes),
    CYAML_FIELD_UINT("retry_ms", OPTIONAL, struct config_guard, retry_ms),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t model_switch_fields[] = {
    STRING("model", struct config_model_switch, model),
    CYAML_FIELD_UINT("after_ms", OPTIONAL, struct config_model_switch, after_ms),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t join_fields[] = {
    ENUM("policy", struct config_join, policy, join_names),
    CYAML_FIELD_UINT("settle_ms", OPTIONAL, struct config_join, settle_ms),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t backup_fields[] = {
    STRING("model", struct config_backup, model),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t adaptive_fields[] = {
    CYAML_FIELD_UINT("step_us", OPTIONAL, struct config_adaptive, step_us),
    CYAML_FIELD_UINT("relax_percent", OPTIONAL, struct config_adaptive, relax_percent),
    CYAML_FIELD_UINT("tighten_percent", OPTIONAL, struct config_adaptive, tighten_percent),
    CYAML_FIELD_UINT("dwell_us", OPTIONAL, struct config_adaptive, dwell_us),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t ab_fields[] = {
    CYAML_FIELD_UINT("threshold_us", OPTIONAL, struct config_ab, threshold_us),
    CYAML_FIELD_UINT("share_percent", OPTIONAL, struct config_ab, share_percent),
    CYAML_FIELD_UINT("salt", OPTIONAL, struct config_ab, salt),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t killline_fields[] = {
    CYAML_FIELD_UINT("threshold_us", OPTIONAL, struct config_killline, threshold_us),
    CYAML_FIELD_UINT("threshold_max_us", OPTIONAL, struct config_killline, threshold_max_us),
    CYAML_FIELD_MAPPING("adaptive", OPTIONAL, struct config_killline, adaptive, adaptive_fields),
    CYAML_FIELD_MAPPING("ab", OPTIONAL, struct config_killline, ab, ab_fields),
    CYAML_FIELD_UINT("device_timeout_us", OPTIONAL, struct config_killline, device_timeout_us),
    CYAML_FIELD_BOOL("supersede", OPTIONAL, struct config_killline, supersede),
    CYAML_FIELD_UINT("batch", OPTIONAL, struct config_killline, batch),
    CYAML_FIELD_UINT("keep_warm_us", OPTIONAL, struct config_killline, keep_warm_us),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t rule_fields[] = {
    CYAML_FIELD_UINT("enter", OPTIONAL, struct config_rule, enter),
    CYAML_FIELD_UINT("leave", OPTIONAL, struct config_rule, leave),
    CYAML_FIELD_END,
};
#define RULE(name) CYAML_FIELD_MAPPING(#name, OPTIONAL, struct config_rung, name, rule_fields)
static const cyaml_schema_field_t rung_fields[] = {
    CYAML_FIELD_UINT("dwell_ms", OPTIONAL, struct config_rung, dwell_ms),
    RULE(latency_percent),
    RULE(spread_us),
    RULE(miss_ppm),
    RULE(busy_percent),
    RULE(resource_percent),
    RULE(device_errors),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t governor_fields[] = {
    CYAML_FIELD_UINT("window_ms", OPTIONAL, struct config_governor, window_ms),
    CYAML_FIELD_UINT("min_count", OPTIONAL, struct config_governor, min_count),
    CYAML_FIELD_BOOL("stays_halted", OPTIONAL, struct config_governor, stays_halted),
    CYAML_FIELD_MAPPING("warning", OPTIONAL, struct config_governor, warning, rung_fields),
    CYAML_FIELD_MAPPING("backup", OPTIONAL, struct config_governor, backup, rung_fields),
    CYAML_FIELD_MAPPING("halted", OPTIONAL, struct config_governor, halted, rung_fields),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t throttle_fields[] = {
    CYAML_FIELD_UINT("device_errors", OPTIONAL, struct config_throttle, device_errors),
    CYAML_FIELD_UINT("halts", OPTIONAL, struct config_throttle, halts),
    CYAML_FIELD_UINT("window_s", OPTIONAL, struct config_throttle, window_s),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t state_fields[] = {
    STRING("dir", struct config_state, dir),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t stall_fields[] = {
    CYAML_FIELD_UINT("per_million", OPTIONAL, struct config_stall, per_million),
    CYAML_FIELD_UINT("max_us", OPTIONAL, struct config_stall, max_us),
    CYAML_FIELD_UINT("seed", OPTIONAL, struct config_stall, seed),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t replay_fields[] = {
    CYAML_FIELD_UINT("frame_ns", OPTIONAL, struct config_replay, frame_ns),
    CYAML_FIELD_UINT("message_ns", OPTIONAL, struct config_replay, message_ns),
    CYAML_FIELD_UINT("features_ns", OPTIONAL, struct config_replay, features_ns),
    CYAML_FIELD_UINT("io_ns", OPTIONAL, struct config_replay, io_ns),
    CYAML_FIELD_UINT("publish_ns", OPTIONAL, struct config_replay, publish_ns),
    CYAML_FIELD_UINT("kernel_mhz", OPTIONAL, struct config_replay, kernel_mhz),
    CYAML_FIELD_MAPPING("stall", OPTIONAL, struct config_replay, stall, stall_fields),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t egress_fields[] = {
    STRING("group", struct config_egress, group),
    CYAML_FIELD_UINT("port", OPTIONAL, struct config_egress, port),
    STRING("source", struct config_egress, source),
    STRING("device", struct config_egress, device),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t audit_fields[] = {
    CYAML_FIELD_UINT("ring_records", OPTIONAL, struct config_audit, ring_records),
    ENUM("on_full", struct config_audit, on_full, full_names),
    CYAML_FIELD_END,
};
static const cyaml_schema_field_t book_fields[] = {
    CYAML_FIELD_UINT("orders", OPTIONAL, struct config_book, orders),
    CYAML_FIELD_UINT("levels", OPTIONAL, struct config_book, levels),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t symbol_entry = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, 8)};
static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_SEQUENCE("symbols", OPTIONAL | CYAML_FLAG_POINTER, struct config, symbols, &symbol_entry, 0,
                         KL_N_STREAM_MAX),
    ENUM("trigger", struct config, trigger, trigger_names),
    STRING("model", struct config, model),
    ENUM("accel", struct config, accel, accel_names),
    ENUM("accel_build", struct config, accel_build, build_names),
    CYAML_FIELD_UINT("accel_units", OPTIONAL, struct config, accel_units),
    SECTION(cpu),
    SECTION(xrt),
    SECTION(guard),
    SECTION(model_switch),
    ENUM("clock", struct config, clock, clock_names),
    SECTION(feed),
    SECTION(join),
    SECTION(backup),
    SECTION(killline),
    SECTION(governor),
    SECTION(throttle),
    SECTION(state),
    SECTION(replay),
    SECTION(egress),
    SECTION(audit),
    SECTION(book),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t schema = {CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct config, fields)};

struct log_text {
    char text[CONFIG_ERROR_CHARS];
    size_t len;
};

/* libcyaml says in some lines what is wrong and where: one sentence of them. */
static void keep_log(cyaml_log_t level, void *ctx, const char *format, va_list args)
{
    struct log_text *log = ctx;
    if (level < CYAML_LOG_ERROR || log->len >= sizeof(log->text) - 1)
        return;
    int n = vsnprintf(log->text + log->len, sizeof(log->text) - log->len, format, args);
    if (n < 0)
        return;
    log->len += (size_t)n;
    if (log->len >= sizeof(log->text))
        log->len = sizeof(log->text) - 1;
    for (char *c = log->text; *c; c++)
        if (*c == '\n')
            *c = ' ';
}

static int parse_document(const char *text, size_t size, yaml_document_t *document)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return -1;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    int ok = yaml_parser_load(&parser, document);
    yaml_parser_delete(&parser);
    return ok ? 0 : -1;
}

static int is_whole_number(const char *text)
{
    size_t n_digit = strspn(text, "0123456789");
    return n_digit && !text[n_digit] && (text[0] != '0' || n_digit == 1);
}

static int is_name_of(const char *text, const cyaml_schema_value_t *value, char *names, size_t size)
{
    size_t n = 0;
    for (uint32_t i = 0; i < value->enumeration.count; i++) {
        const char *name = value->enumeration.strings[i].str;
        if (!strcmp(text, name))
            return 1;
        if (n < size)
            n += (size_t)snprintf(names + n, size - n, "%s%s", i ? ", " : "", name);
    }
    return 0;
}

/* What follows behind "---" would not be read. */
static int is_one_document(const char *text, size_t size)
{
    yaml_parser_t parser;
    yaml_document_t document;
    int n = 0, more = 1;
    if (!yaml_parser_initialize(&parser))
        return 1;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    while (n < 2 && more && yaml_parser_load(&parser, &document)) {
        more = yaml_document_get_root_node(&document) != NULL;
        n += more;
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    return n < 2;
}

/* libcyaml takes 1e3 for 1, 9.5 for 9, 010 for 8 and off for true, and does not say what names a key can
 * have. */
static int check_scalars(yaml_document_t *document, const yaml_node_t *node,
                         const cyaml_schema_field_t *field, const char *file, char *error)
{
    if (!node || node->type != YAML_MAPPING_NODE)
        return 0;
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(document, p->key),
                          *value = yaml_document_get_node(document, p->value);
        if (!key || !value || key->type != YAML_SCALAR_NODE)
            continue;
        const cyaml_schema_field_t *f = field;
        while (f->key && strcmp(f->key, (const char *)key->data.scalar.value) != 0)
            f++;
        if (!f->key)
            continue;
        if (f->value.type == CYAML_MAPPING &&
            check_scalars(document, value, f->value.mapping.fields, file, error))
            return -1;
        if (value->type != YAML_SCALAR_NODE)
            continue;
        const char *text = (const char *)value->data.scalar.value;
        char names[100] = "";
        int is_number = f->value.type == CYAML_UINT, is_bool = f->value.type == CYAML_BOOL;
        if (is_number ? is_whole_number(text)
            : is_bool ? !strcmp(text, "true") || !strcmp(text, "false")
                      : f->value.type != CYAML_ENUM || is_name_of(text, &f->value, names, sizeof(names)))
            continue;
        if (is_bool)
            snprintf(names, sizeof(names), "true, false");
        snprintf(error, CONFIG_ERROR_CHARS, "%.100s: %s: '%.40s' is %s%s (line: %zu)", file, f->key, text,
                 is_number ? "no whole number in plain digits" : "none of ", names,
                 value->start_mark.line + 1);
        return -1;
    }
    return 0;
}

static struct config *load(const char *name, const char *text, size_t size, char *error)
{
    yaml_document_t document;
    if (!is_one_document(text, size)) {
        snprintf(error, CONFIG_ERROR_CHARS, "%.100s: more than one YAML document: put everything into one",
                 name);
        return NULL;
    }
    if (!parse_document(text, size, &document)) {
        int bad = check_scalars(&document, yaml_document_get_root_node(&document), fields, name, error);
        yaml_document_delete(&document);
        if (bad)
            return NULL;
    }
    struct log_text log = {.len = 0};
    cyaml_config_t cyaml = {.log_fn = keep_log,
                            .log_ctx = &log,
                            .mem_fn = cyaml_mem,
                            .log_level = CYAML_LOG_ERROR,
                            .flags = CYAML_CFG_NO_ALIAS};
    struct config *config = NULL;
    cyaml_err_t e =
        cyaml_load_data((const uint8_t *)text, size, &cyaml, &schema, (cyaml_data_t **)&config, NULL);
    if (e == CYAML_OK && config)
        return config;
    snprintf(error, CONFIG_ERROR_CHARS, "%.100s: %.300s (every key: host/killline.yaml)", name,
             log.len         ? log.text
             : e == CYAML_OK ? "holds no settings; {} says that nothing differs"
                             : cyaml_strerror(e));
    return NULL;
}

/* ---- layers ---- */

/* Copies node `from` of src into dst; 0 on failure (out of memory, too deep). */
static int copy_node(yaml_document_t *dst, yaml_document_t *src, int from, int depth)
{
    yaml_node_t *node = yaml_document_get_node(src, from);
    if (!node || depth > DEPTH_MAX)
        return 0;
    int id = 0;
    switch (node->type) {
    case YAML_SCALAR_NODE:
        return yaml_document_add_scalar(dst, NULL, node->data.scalar.value, (int)node->data.scalar.length,
                                        node->data.scalar.style);
    case YAML_SEQUENCE_NODE:
        id = yaml_document_add_sequence(dst, NULL, YAML_FLOW_SEQUENCE_STYLE);
        for (yaml_node_item_t *i = node->data.sequence.items.start; id && i < node->data.sequence.items.top;
             i++) {
            int item = copy_node(dst, src, *i, depth + 1);
            if (!item || !yaml_document_append_sequence_item(dst, id, item))
                return 0;
        }
        return id;
    case YAML_MAPPING_NODE:
        id = yaml_document_add_mapping(dst, NULL, YAML_BLOCK_MAPPING_STYLE);
        for (yaml_node_pair_t *p = node->data.mapping.pairs.start; id && p < node->data.mapping.pairs.top;
             p++) {
            int key = copy_node(dst, src, p->key, depth + 1),
                value = copy_node(dst, src, p->value, depth + 1);
            if (!key || !value || !yaml_document_append_mapping_pair(dst, id, key, value))
                return 0;
        }
        return id;
    default:
        return 0;
    }
}

static int same_scalar(const yaml_node_t *a, const yaml_node_t *b)
{
    return a->type == YAML_SCALAR_NODE && b->type == YAML_SCALAR_NODE &&
           a->data.scalar.length == b->data.scalar.length &&
           !memcmp(a->data.scalar.value, b->data.scalar.value, a->data.scalar.length);
}

/* Puts every pair of src's mapping `from` into dst's mapping `to`; mappings merge, the rest replaces. */
static int merge_mapping(yaml_document_t *dst, int to, yaml_document_t *src, int from, int depth)
{
    if (depth > DEPTH_MAX)
        return -1;
    /* Node addresses move when dst grows: nodes are looked up again by number. */
    size_t n_src = (size_t)(yaml_document_get_node(src, from)->data.mapping.pairs.top -
                            yaml_document_get_node(src, from)->data.mapping.pairs.start);
    for (size_t s = 0; s < n_src; s++) {
        yaml_node_pair_t pair = yaml_document_get_node(src, from)->data.mapping.pairs.start[s];
        yaml_node_t *src_key = yaml_document_get_node(src, pair.key);
        yaml_node_t *target = yaml_document_get_node(dst, to);
        size_t n_dst = (size_t)(target->data.mapping.pairs.top - target->data.mapping.pairs.start), d;
        for (d = 0; d < n_dst; d++)
            if (same_scalar(yaml_document_get_node(dst, target->data.mapping.pairs.start[d].key), src_key))
                break;
        if (d < n_dst) {
            int old = target->data.mapping.pairs.start[d].value;
            if (yaml_document_get_node(dst, old)->type == YAML_MAPPING_NODE &&
                yaml_document_get_node(src, pair.value)->type == YAML_MAPPING_NODE) {
                if (merge_mapping(dst, old, src, pair.value, depth + 1))
                    return -1;
                continue;
            }
            int value = copy_node(dst, src, pair.value, depth);
            if (!value)
                return -1;
            yaml_document_get_node(dst, to)->data.mapping.pairs.start[d].value = value;
        } else {
            int key = copy_node(dst, src, pair.key, depth), value = copy_node(dst, src, pair.value, depth);
            if (!key || !value || !yaml_document_append_mapping_pair(dst, to, key, value))
                return -1;
        }
    }
    return 0;
}

/* Merged YAML text of base under layer, malloc'd; NULL on failure. */
static char *merge_text(const char *base, size_t base_size, const struct config_layer *layer, size_t *size)
{
    yaml_document_t dst, src;
    if (parse_document(base, base_size, &dst))
        return NULL;
    if (parse_document(layer->text, layer->size_bytes, &src)) {
        yaml_document_delete(&dst);
        return NULL;
    }
    char *text = NULL;
    yaml_node_t *root = yaml_document_get_root_node(&src);
    if (root && root->type == YAML_MAPPING_NODE && !merge_mapping(&dst, 1, &src, 1, 0)) {
        yaml_emitter_t emitter;
        text = malloc(TEXT_BYTES_MAX);
        if (text && yaml_emitter_initialize(&emitter)) {
            yaml_emitter_set_output_string(&emitter, (unsigned char *)text, TEXT_BYTES_MAX, size);
            int ok = yaml_emitter_open(&emitter) && yaml_emitter_dump(&emitter, &dst) &&
                     yaml_emitter_close(&emitter);
            yaml_emitter_delete(&emitter);
            yaml_document_delete(&src);
            if (!ok) {
                free(text);
                text = NULL;
            }
            return text; /* the dump has deleted dst */
        }
        free(text);
        text = NULL;
    }
    yaml_document_delete(&src);
    yaml_document_delete(&dst);
    return text;
}

/* ---- values ---- */

const char *config_build_name(int build)
{
    for (size_t i = 0; i < CYAML_ARRAY_LEN(build_names); i++)
        if (build_names[i].val == build)
            return build_names[i].str;
    return NULL;
}

int config_parse_ip(const char *text, uint32_t *ip)
{
    struct in_addr address;
    if (!text[0]) {
        *ip = 0;
        return 0;
    }
    if (inet_pton(AF_INET, text, &address) != 1)
        return -1;
    *ip = ntohl(address.s_addr);
    return 0;
}

struct config *config_parse(const struct config_layer *layers, size_t n_layer,
                            uint8_t sha256[CONFIG_SHA256_BYTES], char error[CONFIG_ERROR_CHARS])
{
    /* Merged with nothing, the defaults come out in the emitter's form, as every merge does: equal settings
     * have equal text, whatever layers they came from. */
    static const struct config_layer nothing = {"", "{}", 2};
    size_t size = 0;
    char *text = merge_text(config_default_yaml, config_default_yaml_bytes, &nothing, &size);
    if (!text) {
        snprintf(error, CONFIG_ERROR_CHARS, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < n_layer; i++) {
        /* Alone first: here its own lines and keys can be named. */
        struct config *alone = NULL;
        if (layers[i].size_bytes > TEXT_BYTES_MAX / 4)
            snprintf(error, CONFIG_ERROR_CHARS, "%.100s: %zu bytes are no configuration (limit %d)",
                     layers[i].name, layers[i].size_bytes, TEXT_BYTES_MAX / 4);
        else
            alone = load(layers[i].name, layers[i].text, layers[i].size_bytes, error);
        if (!alone) {
            free(text);
            return NULL;
        }
        config_free(alone);
        char *merged = merge_text(text, size, &layers[i], &size);
        free(text);
        text = merged;
        if (!text) {
            snprintf(error, CONFIG_ERROR_CHARS, "%.100s: cannot be merged over the defaults", layers[i].name);
            return NULL;
        }
    }
    struct config *config = load("configuration", text, size, error);
    if (config)
        EVP_Digest(text, size, sha256, NULL, EVP_sha256(), NULL);
    free(text);
    if (config && config_check(config, error)) {
        config_free(config);
        return NULL;
    }
    return config;
}

void config_free(struct config *config)
{
    static const cyaml_config_t cyaml = {.mem_fn = cyaml_mem, .flags = CYAML_CFG_NO_ALIAS};
    cyaml_free(&cyaml, &schema, config, 0);
}

char *config_set_text(const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return NULL;
    size_t n_dot = 0, key_len = (size_t)(equals - assignment);
    for (size_t i = 0; i < key_len; i++) {
        char c = assignment[i];
        if (c == '.')
            n_dot++;
        else if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'))
            return NULL;
    }
    const char *value = equals + 1;
    char *text = malloc(strlen(assignment) + 4 * (n_dot + 1) + 4), *out = text;
    if (!text)
        return NULL;
    *out++ = '{';
    for (size_t i = 0; i < key_len; i++)
        if (assignment[i] == '.')
            out = stpcpy(out, ": {");
        else
            *out++ = assignment[i];
    out = stpcpy(stpcpy(out, ": "), *value ? value : "\"\"");
    for (size_t i = 0; i <= n_dot; i++)
        *out++ = '}';
    *out = '\0';
    return text;
}
