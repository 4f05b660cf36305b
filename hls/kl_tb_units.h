/* Unit checks: every unit of a build's kernel against a model of its own that shares no code with it. */
#ifndef KL_TB_UNITS_H
#define KL_TB_UNITS_H

#include "kl_tb.h"

/* One per named build, beside its struct kl_build. One caller at a time: a check works on static memory. */
struct kl_tb_units {
    uint32_t n_unit;
    const char *(*name)(uint32_t unit); /* as a report shows it: "MAC array" */
    /* Adds what the check of a unit finds to *report. seed: of its random inputs. n_case: how many of those,
     * roughly (an expensive unit takes fewer); what is checked exhaustively is so with any n_case, 0 too. */
    void (*check)(uint32_t unit, uint64_t seed, uint32_t n_case, struct tb_report *report);
};

extern const struct kl_tb_units kl_tb_units_small, kl_tb_units_fast, kl_tb_units_large;

#endif
