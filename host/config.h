/* Configuration: built-in defaults (host/killline.yaml, embedded), one YAML file over them, --set over both.
 *
 * The schema is libcyaml's; unknown keys, wrong types and values out of range are refused with file, line or
 * key, and what would be right. Cold code. */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONFIG_ERROR_CHARS = 512, CONFIG_SHA256_BYTES = 32, CONFIG_THRESHOLD_US_MAX = 999 };

enum config_clock { CONFIG_CLOCK_REAL = 0, CONFIG_CLOCK_REPLAY = 1 };
enum config_accel { CONFIG_ACCEL_CSIM = 0, CONFIG_ACCEL_CPU = 1, CONFIG_ACCEL_XRT = 2 };
enum config_build { CONFIG_BUILD_AUTO = 0, CONFIG_BUILD_SMALL, CONFIG_BUILD_FAST, CONFIG_BUILD_LARGE };

struct config_group {
    char *group; /* dotted quad, or "" */
    uint16_t port;
};

struct config {
    char **symbols;
    unsigned symbols_count;
    int trigger; /* enum intake_trigger */
    char *model;
    int accel;       /* enum config_accel */
    int accel_build; /* enum config_build */
    uint32_t accel_units;
    int clock; /* enum config_clock */
    struct config_cpu {
        int variant; /* enum accel_cpu_variant */
        bool prepare_thread;
    } cpu;
    struct config_xrt {
        char **devices;
        unsigned devices_count;
        uint32_t units;
        char *xclbin;
        int mode; /* enum accel_xrt_mode */
    } xrt;
    struct config_guard {
        uint32_t check_every, probes, retry_ms;
        bool prove;
    } guard;
    struct config_model_switch {
        char *model;
        uint32_t after_ms;
    } model_switch;
    struct config_feed {
        struct config_group a, b;
        uint32_t gap_wait_us;
        bool verify_checksum;
    } feed;
    struct config_join {
        int policy; /* enum market_join */
        uint32_t settle_ms;
    } join;
    struct config_backup {
        char *model;
    } backup;
    struct config_killline {
        uint32_t threshold_us, threshold_max_us, device_timeout_us, batch, keep_warm_us;
        bool supersede;
        struct config_adaptive {
            uint32_t step_us, relax_percent, tighten_percent, dwell_us;
        } adaptive;
        struct config_ab {
            uint32_t threshold_us, share_percent, salt;
        } ab;
    } killline;
    struct config_governor {
        uint32_t window_ms, min_count;
        bool stays_halted;
        struct config_rung {
            uint32_t dwell_ms;
            struct config_rule {
                uint32_t enter, leave;
            } latency_percent, spread_us, miss_ppm, busy_percent, resource_percent, device_errors;
        } warning, backup, halted;
    } governor;
    struct config_throttle {
        uint32_t device_errors, halts, window_s;
    } throttle;
    struct config_state {
        char *dir;
    } state;
    struct config_replay {
        uint32_t frame_ns, message_ns, features_ns, io_ns, publish_ns, kernel_mhz;
        struct config_stall {
            uint32_t per_million, max_us, seed;
        } stall;
    } replay;
    struct config_egress {
        char *group;
        uint16_t port;
        char *source, *device;
    } egress;
    struct config_audit {
        uint32_t ring_records;
        int on_full; /* enum audit_full */
    } audit;
    struct config_book {
        uint32_t orders, levels;
    } book;
};

/* One layer of YAML text; name stands in messages ("killline.yaml", "--set a.b=c"). */
struct config_layer {
    const char *name;
    const char *text;
    size_t size_bytes;
};

/* Merges the layers over the defaults, later ones win. sha256: of the merged text, for the audit header. NULL
 * with a message in error. Free with config_free. */
struct config *config_parse(const struct config_layer *layers, size_t n_layer,
                            uint8_t sha256[CONFIG_SHA256_BYTES], char error[CONFIG_ERROR_CHARS]);
void config_free(struct config *config);

/* "a.b=value" as a YAML layer "{a: {b: value}}" in a malloc'd string; NULL: not of this form. */
char *config_set_text(const char *assignment);

/* "auto", "small" ...: enum config_build. */
const char *config_build_name(int build);

/* Dotted quad to host order; 0 for "". Returns 0, or -1. */
int config_parse_ip(const char *text, uint32_t *ip);

/* The documented defaults. */
extern const char config_default_yaml[];
extern const size_t config_default_yaml_bytes;

#endif
