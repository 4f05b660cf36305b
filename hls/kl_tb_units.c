#include "kl_tb_units.h"

#include "kl_build.h"
#include "kl_tb_unit.h"

static const struct {
    const char *name;
    void (*check)(uint64_t seed, uint32_t n_case, struct tb_report *report);
} unit[] = {
    {"operand fetch", tb_unit_operand},
    {"MAC array", tb_unit_mac},
    {"MAC array, head rows", tb_unit_head_rows},
    {"block rounding", tb_unit_rounding},
    {"activation", tb_unit_activation},
    {"cell update", tb_unit_cell},
    {"dense head", tb_unit_head},
    {"sequencer", tb_unit_sequencer},
    {"state store", tb_unit_stream},
    {"weight loader", tb_unit_loader},
    {"controller", tb_unit_front},
    {"top", tb_unit_top},
};

static const char *name(uint32_t u)
{
    return unit[u].name;
}

static void check(uint32_t u, uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    unit[u].check(seed, n_case, report);
}

__attribute__((visibility("default"))) const struct kl_tb_units KL_BUILD_SYMBOL(kl_tb_units) = {
    .n_unit = sizeof unit / sizeof *unit,
    .name = name,
    .check = check,
};
