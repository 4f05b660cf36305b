#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../hls/kl_abi.h"
#include "audit.h"
#include "governor.h"
#include "order.h"

const char *audit_device_name(uint64_t status)
{
    switch (status) {
    case KL_OK:
        return "no error";
    case KL_E_ABI:
        return "ABI version differs";
    case KL_E_OP:
        return "unknown operation";
    case KL_E_SLOT:
        return "slot out of range";
    case KL_E_STREAM:
        return "stream out of range";
    case KL_E_EMPTY:
        return "no model in the slot";
    case KL_E_IMAGE:
        return "image refused";
    case KL_E_IMAGE_HASH:
        return "image damaged";
    case KL_E_INPUT:
        return "input off its grid";
    case KL_E_SHAPE:
        return "image beyond the build's limits";
    case KL_E_STATE:
        return "state lost or damaged";
    case KL_E_BUSY:
        return "busy";
    case KL_E_PEER:
        return "the other unit of a split layer failed";
    case AUDIT_DEVICE_SILENT:
        return "no answer in time";
    case AUDIT_DEVICE_NONSENSE:
        return "answer of another model or out of range";
    case AUDIT_DEVICE_FAILED:
        return "refuses access or is gone";
    default:
        return "unknown status";
    }
}

uint64_t audit_utc_ns(const struct audit_header *header, uint64_t at)
{
    if (header->clock == AUDIT_CLOCK_REPLAY)
        return at; /* the capture's own time */
    const double ns = (double)(int64_t)(at - header->tsc0) * 1e9 / header->tsc_hz;
    if (!(fabs(ns) < 1e18))
        return 0;
    const int64_t utc_ns = (int64_t)header->utc_ns0 + llround(ns);
    return utc_ns > 0 ? (uint64_t)utc_ns : 0;
}

const char *audit_event_name(unsigned code)
{
    static const char *const name[AUDIT_EVENT_CODE_COUNT] = {
        [AUDIT_EVENT_START] = "start",
        [AUDIT_EVENT_STOP] = "stop",
        [AUDIT_EVENT_GAP] = "gap",
        [AUDIT_EVENT_TRADING_STATE] = "trading-state",
        [AUDIT_EVENT_RECORDS_LOST] = "records-lost",
        [AUDIT_EVENT_SESSION_END] = "session-end",
        [AUDIT_EVENT_MODEL_LOAD] = "model-load",
        [AUDIT_EVENT_DEVICE_ERROR] = "device-error",
        [AUDIT_EVENT_STREAMS_FULL] = "streams-full",
        [AUDIT_EVENT_CARD_FAILOVER] = "card-failover",
        [AUDIT_EVENT_CARD_QUARANTINE] = "card-quarantine",
        [AUDIT_EVENT_CARD_RESET] = "card-reset",
        [AUDIT_EVENT_CARD_PROBE_FAILED] = "card-probe-failed",
        [AUDIT_EVENT_CARD_RECOVERED] = "card-recovered",
        [AUDIT_EVENT_CARD_STATE_LOST] = "card-state-lost",
        [AUDIT_EVENT_MODEL_SWITCH] = "model-switch",
        [AUDIT_EVENT_RUNG] = "rung",
        [AUDIT_EVENT_ALERT] = "alert",
        [AUDIT_EVENT_THRESHOLD] = "threshold",
        [AUDIT_EVENT_ARMS] = "arms",
        [AUDIT_EVENT_ORDER] = "order",
        [AUDIT_EVENT_CLOCK_BACK] = "clock-back",
    };
    return code < AUDIT_EVENT_CODE_COUNT ? name[code] : NULL;
}

const char *audit_card_name(uint64_t reason)
{
    static const char *const name[] = {
        [AUDIT_CARD_OK] = "ok",
        [AUDIT_CARD_REFUSED] = "refuses access or is gone",
        [AUDIT_CARD_SILENT] = "no answer in time",
        [AUDIT_CARD_SEQUENCE] = "answer out of order",
        [AUDIT_CARD_DAMAGED] = "damaged answer",
        [AUDIT_CARD_DIFFERS] = "answer other than the cpu backend's",
        [AUDIT_CARD_STATUS] = "error status",
        [AUDIT_CARD_LOAD] = "model does not load",
    };
    return reason < sizeof(name) / sizeof(name[0]) ? name[reason] : "unknown";
}

int audit_card_text(const struct audit_event *e, char text[AUDIT_CARD_TEXT_CHARS])
{
    const unsigned long long card = e->value[0], stream = e->value[2], n = e->value[3];
    const char *why = audit_card_name(e->value[1]);
    switch (e->code) {
    case AUDIT_EVENT_CARD_FAILOVER:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: %s (request %llu of stream %llu)", card, why,
                        n, stream);
    case AUDIT_EVENT_CARD_QUARANTINE:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: %s, stream %llu; last proved request %llu",
                        card, why, stream, n);
    case AUDIT_EVENT_CARD_RESET:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: %s", card,
                        e->value[1] == AUDIT_CARD_OK ? "reset, loaded, being probed" : why);
    case AUDIT_EVENT_CARD_PROBE_FAILED:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: %s", card, why);
    case AUDIT_EVENT_CARD_RECOVERED:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu serves again after %llu equal probes", card,
                        n);
    case AUDIT_EVENT_CARD_STATE_LOST:
        return snprintf(text, AUDIT_CARD_TEXT_CHARS, "card %llu: stream %llu starts anew", card, stream);
    default:
        return 0;
    }
}

static double to_us(const struct audit_header *h, uint64_t cycles)
{
    return (double)cycles * 1e6 / h->tsc_hz;
}

/* A metric's value with its unit. */
static int metric_text(uint64_t metric, uint64_t value, char *text, size_t size)
{
    static const char *const unit[GOVERNOR_N_METRIC] = {
        [GOVERNOR_LATENCY] = " % of the threshold",
        [GOVERNOR_MISS] = " per million",
        [GOVERNOR_BUSY] = " %",
        [GOVERNOR_RESOURCE] = " %",
        [GOVERNOR_DEVICE] = "",
    };
    if (metric == GOVERNOR_SPREAD)
        return snprintf(text, size, "%.3f us", (double)value / 1e3);
    return snprintf(text, size, "%llu%s", (unsigned long long)value, unit[metric]);
}

static int alert_text(const struct audit_event *e, char text[AUDIT_GOVERN_TEXT_CHARS])
{
    static const char *const what[GOVERNOR_N_METRIC] = {
        [GOVERNOR_LATENCY] = "p99 age",    [GOVERNOR_SPREAD] = "P99 - P50 of the age",
        [GOVERNOR_MISS] = "misses",        [GOVERNOR_BUSY] = "poll loop busy",
        [GOVERNOR_RESOURCE] = "resources", [GOVERNOR_DEVICE] = "device errors",
    };
    char value[48], bound[48];
    metric_text(e->value[0], e->value[2], value, sizeof(value));
    metric_text(e->value[0], e->value[3], bound, sizeof(bound));
    return snprintf(text, AUDIT_GOVERN_TEXT_CHARS, "%s: %s %s, bound %s", e->value[1] ? "raised" : "gone",
                    what[e->value[0]], value, bound);
}

static int order_text(const struct audit_event *e, char text[AUDIT_GOVERN_TEXT_CHARS])
{
    int n = snprintf(text, AUDIT_GOVERN_TEXT_CHARS, "%s by ", e->value[0] == ORDER_HALT ? "halt" : "resume");
    for (size_t i = 0; i < sizeof(e->text) && e->text[i]; i++) /* nothing that could steer a terminal */
        text[n++] = e->text[i] >= 0x20 && e->text[i] < 0x7f ? e->text[i] : '?';
    static_assert(AUDIT_GOVERN_TEXT_CHARS > sizeof("resume by ") + sizeof(e->text), "fits");
    text[n] = '\0';
    return n;
}

int audit_govern_text(const struct audit_header *h, const struct audit_event *e,
                      char text[AUDIT_GOVERN_TEXT_CHARS])
{
    const uint64_t *v = e->value;
    const size_t size = AUDIT_GOVERN_TEXT_CHARS;
    switch (e->code) {
    case AUDIT_EVENT_RUNG:
        return snprintf(text, size, "%s -> %s: %s%s%s%.*s", governor_rung_name((unsigned)v[0]),
                        governor_rung_name((unsigned)v[1]), governor_cause_name((unsigned)v[2]),
                        v[3] ? ", latched" : "", e->text[0] ? "; " : "", (int)sizeof(e->text), e->text);
    case AUDIT_EVENT_ALERT:
        return alert_text(e, text);
    case AUDIT_EVENT_THRESHOLD:
        return snprintf(text, size, "%.3f us -> %.3f us, %s: backlog %.3f us old, receive ring %llu %% full",
                        to_us(h, v[0]), to_us(h, v[1]), v[1] > v[0] ? "relaxed" : "tightened", to_us(h, v[2]),
                        (unsigned long long)v[3]);
    case AUDIT_EVENT_ARMS:
        return snprintf(text, size, "A %.3f us, B %.3f us for %llu %% of the symbols, salt %llu",
                        to_us(h, v[0]), to_us(h, v[1]), (unsigned long long)v[2], (unsigned long long)v[3]);
    case AUDIT_EVENT_ORDER:
        return order_text(e, text);
    case AUDIT_EVENT_CLOCK_BACK:
        return snprintf(text, size, "epoch %llu begins; the last reading before was %llu",
                        (unsigned long long)v[0], (unsigned long long)v[1]);
    default:
        return 0;
    }
}
