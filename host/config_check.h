/* What a schema cannot say of a configuration: ranges, and settings that exclude each other. For config.c. */
#ifndef CONFIG_CHECK_H
#define CONFIG_CHECK_H

#include "config.h"

/* 0, or -1 with a message that names the keys and what would be right. */
int config_check(const struct config *config, char error[CONFIG_ERROR_CHARS]);

#endif
