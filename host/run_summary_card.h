/* The part of a run's summary that is about cards. */
#ifndef RUN_SUMMARY_CARD_H
#define RUN_SUMMARY_CARD_H

#include <jansson.h>
#include <stdio.h>

#include "run_summary.h"

/* Nothing without a guard. */
void run_summary_cards_text(const struct run_summary *summary, FILE *out);
/* {name, software_device, uuid, abi, mode, failovers, quarantines, ..., cards: [...]}: sums over all cards,
 * name and uuid of the first; NULL without a guard. */
json_t *run_summary_cards_json(const struct run_summary *summary);

#endif
