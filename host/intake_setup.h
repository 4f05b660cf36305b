/* An intake by the configuration: one place, so that killline features sees the ticks that the appliance
 * sees. */
#ifndef INTAKE_SETUP_H
#define INTAKE_SETUP_H

#include "config.h"
#include "intake.h"

/* gap_wait: feed.gap_wait_us in the caller's arrival unit. config, which config_parse has checked, is not
 * kept. NULL: out of memory (book.orders, book.levels). */
struct intake *intake_setup(const struct config *config, uint64_t gap_wait,
                            const struct intake_handler *handler);

#endif
