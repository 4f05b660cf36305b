#include "intake_setup.h"

#include <stdio.h>

struct intake *intake_setup(const struct config *config, uint64_t gap_wait,
                            const struct intake_handler *handler)
{
    char names[KL_N_STREAM_MAX][9];
    for (unsigned i = 0; i < config->symbols_count; i++)
        snprintf(names[i], sizeof(names[i]), "%s", config->symbols[i]);
    struct intake_config in = {
        .verify_checksum = config->feed.verify_checksum,
        .gap_wait = gap_wait,
        .trigger = (enum intake_trigger)config->trigger,
        .symbols = config->symbols_count ? (const char(*)[9])names : NULL,
        .n_symbol = config->symbols_count,
        .market = {.join = (enum market_join)config->join.policy,
                   .settle_ns = config->join.settle_ms * 1000000ull,
                   .limits = {.n_order = config->book.orders, .n_level = config->book.levels}},
    };
    const struct config_group *group[MOLD_N_LINE] = {&config->feed.a, &config->feed.b};
    for (int line = 0; line < MOLD_N_LINE; line++) {
        config_parse_ip(group[line]->group, &in.line[line].ip); /* checked when the configuration was read */
        in.line[line].port = group[line]->port;
    }
    return intake_create(&in, handler);
}
