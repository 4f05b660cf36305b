#include "config_check.h"

#include <stdio.h>

#include "accel_guard.h"
#include "governor.h"

/* Every rule of a rung. */
static int check_rules(const char *name, const struct config_rung *rung, char *error)
{
    const struct {
        const char *key;
        const struct config_rule *rule;
    } rules[] = {{"latency_percent", &rung->latency_percent},
                 {"spread_us", &rung->spread_us},
                 {"miss_ppm", &rung->miss_ppm},
                 {"busy_percent", &rung->busy_percent},
                 {"resource_percent", &rung->resource_percent},
                 {"device_errors", &rung->device_errors}};
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].rule->enter ? rules[i].rule->leave >= rules[i].rule->enter : rules[i].rule->leave) {
            snprintf(
                error, CONFIG_ERROR_CHARS,
                "governor.%s.%s: enter %u, leave %u: leave has to be less than enter; both 0: no such rule",
                name, rules[i].key, rules[i].rule->enter, rules[i].rule->leave);
            return -1;
        }
    return 0;
}

static int check_killline(const struct config *c, char *error)
{
    const struct config_killline *k = &c->killline;
    if (k->threshold_max_us && k->threshold_max_us < k->threshold_us) {
        snprintf(
            error, CONFIG_ERROR_CHARS,
            "killline.threshold_max_us: %u is below killline.threshold_us=%u, from which it is relaxed; 0: "
            "the threshold is fixed",
            k->threshold_max_us, k->threshold_us);
        return -1;
    }
    if (k->adaptive.tighten_percent >= k->adaptive.relax_percent) {
        snprintf(error, CONFIG_ERROR_CHARS,
                 "killline.adaptive.tighten_percent: %u is not below relax_percent=%u",
                 k->adaptive.tighten_percent, k->adaptive.relax_percent);
        return -1;
    }
    if (k->ab.threshold_us && k->threshold_max_us) {
        snprintf(
            error, CONFIG_ERROR_CHARS,
            "killline.ab compares two fixed thresholds: killline.threshold_max_us=0, or ab.threshold_us=0");
        return -1;
    }
    if (c->backup.model[0] && c->model_switch.model[0]) {
        snprintf(error, CONFIG_ERROR_CHARS,
                 "backup.model, model_switch.model: both need the second of two model slots: set one");
        return -1;
    }
    return check_rules("warning", &c->governor.warning, error) ||
                   check_rules("backup", &c->governor.backup, error) ||
                   check_rules("halted", &c->governor.halted, error)
               ? -1
               : 0;
}

int config_check(const struct config *c, char error[CONFIG_ERROR_CHARS])
{
    uint32_t ip;
    const struct {
        const char *key, *text;
    } ips[] = {{"feed.a.group", c->feed.a.group},
               {"feed.b.group", c->feed.b.group},
               {"egress.group", c->egress.group},
               {"egress.source", c->egress.source}};
    for (size_t i = 0; i < sizeof(ips) / sizeof(ips[0]); i++)
        if (config_parse_ip(ips[i].text, &ip)) {
            snprintf(error, CONFIG_ERROR_CHARS, "%s: '%.40s' is no IPv4 address (like 233.54.12.111)",
                     ips[i].key, ips[i].text);
            return -1;
        }
    const struct {
        const char *key;
        uint32_t value, min, max;
    } ranges[] = {
        {"accel_units", c->accel_units, 1, 2},
        {"xrt.units", c->xrt.units, 1, ACCEL_GUARD_CARDS_MAX},
        {"guard.probes", c->guard.probes, 1, 1000000},
        {"guard.retry_ms", c->guard.retry_ms, 1, 60000},
        {"killline.threshold_us", c->killline.threshold_us, 1, CONFIG_THRESHOLD_US_MAX},
        {"killline.threshold_max_us", c->killline.threshold_max_us, 0, CONFIG_THRESHOLD_US_MAX},
        {"killline.adaptive.step_us", c->killline.adaptive.step_us, 1, CONFIG_THRESHOLD_US_MAX},
        {"killline.adaptive.relax_percent", c->killline.adaptive.relax_percent, 1, 100},
        {"killline.adaptive.tighten_percent", c->killline.adaptive.tighten_percent, 0, 99},
        {"killline.adaptive.dwell_us", c->killline.adaptive.dwell_us, 0, 60000000},
        {"killline.ab.threshold_us", c->killline.ab.threshold_us, 0, CONFIG_THRESHOLD_US_MAX},
        {"killline.ab.share_percent", c->killline.ab.share_percent, 1, 99},
        {"killline.device_timeout_us", c->killline.device_timeout_us, 1, 1000000},
        {"killline.batch", c->killline.batch, 1, KL_QUEUE_DEPTH},
        {"killline.keep_warm_us", c->killline.keep_warm_us, 0, 1000000},
        {"governor.window_ms", c->governor.window_ms, 8, 600000},
        {"governor.min_count", c->governor.min_count, 1, 1000000},
        {"governor.warning.dwell_ms", c->governor.warning.dwell_ms, 0, 3600000},
        {"governor.backup.dwell_ms", c->governor.backup.dwell_ms, 0, 3600000},
        {"governor.halted.dwell_ms", c->governor.halted.dwell_ms, 0, 3600000},
        {"throttle.device_errors", c->throttle.device_errors, 0, GOVERNOR_N_FAULT},
        {"throttle.halts", c->throttle.halts, 0, GOVERNOR_N_FAULT},
        {"throttle.window_s", c->throttle.window_s, 1, 86400},
        {"feed.gap_wait_us", c->feed.gap_wait_us, 0, 10000000},
        {"join.settle_ms", c->join.settle_ms, 0, 3600000},
        {"replay.frame_ns", c->replay.frame_ns, 0, 1000000},
        {"replay.message_ns", c->replay.message_ns, 0, 1000000},
        {"replay.features_ns", c->replay.features_ns, 0, 1000000},
        {"replay.io_ns", c->replay.io_ns, 0, 1000000},
        {"replay.publish_ns", c->replay.publish_ns, 0, 1000000},
        {"replay.kernel_mhz", c->replay.kernel_mhz, 1, 2000},
        {"replay.stall.per_million", c->replay.stall.per_million, 0, 1000000},
        {"replay.stall.max_us", c->replay.stall.max_us, 1, 1000000},
        {"audit.ring_records", c->audit.ring_records, 2, 1 << 24},
        {"book.orders", c->book.orders, 1000, 200000000},
        {"book.levels", c->book.levels, 1000, 100000000},
        {"egress.port", c->egress.port, 1, 65535},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max) {
            snprintf(error, CONFIG_ERROR_CHARS, "%s: %u is not within %u..%u", ranges[i].key, ranges[i].value,
                     ranges[i].min, ranges[i].max);
            return -1;
        }
    if (c->accel != CONFIG_ACCEL_CSIM && c->accel_units != 1) {
        snprintf(error, CONFIG_ERROR_CHARS,
                 "accel_units: %u that split a layer's rows are csim's alone: accel_units=1, or accel=csim%s",
                 c->accel_units,
                 c->accel == CONFIG_ACCEL_XRT ? "; streams are spread over several cards or units by "
                                                "xrt.devices, xrt.units"
                                              : "");
        return -1;
    }
    if (c->xrt.devices_count * c->xrt.units > ACCEL_GUARD_CARDS_MAX) {
        snprintf(error, CONFIG_ERROR_CHARS,
                 "xrt.devices, xrt.units: %u devices with %u units each: %d units in all",
                 c->xrt.devices_count, c->xrt.units, ACCEL_GUARD_CARDS_MAX);
        return -1;
    }
    if (c->audit.ring_records & (c->audit.ring_records - 1)) {
        snprintf(error, CONFIG_ERROR_CHARS, "audit.ring_records: %u is not a power of two",
                 c->audit.ring_records);
        return -1;
    }
    return check_killline(c, error);
}
