/* --config, --set and the options that stand for a key, as every command that takes a configuration reads
 * them: files lie under everything else, wherever they stand; of the rest the later one wins. */
#ifndef CMD_CONFIG_H
#define CMD_CONFIG_H

#include <stddef.h>

#include "config.h"

enum { CMD_CONFIG_LAYERS_MAX = 64 };

/* Zero: nothing yet. Free with cmd_config_free, also after an error. */
struct cmd_config {
    struct config_layer layer[CMD_CONFIG_LAYERS_MAX]; /* texts are owned, files first */
    size_t n_layer, n_file;
};

/* Each returns 0, or the exit status after a message on stderr: 1 failure, 2 wrong usage. Names and arguments
 * must live as long as config. */
int cmd_config_file(struct cmd_config *config, const char *path);
/* KEY=VALUE of --set. */
int cmd_config_set(struct cmd_config *config, const char *assignment);
/* An option that stands for a key: messages name the option. */
int cmd_config_key(struct cmd_config *config, const char *option, const char *key, const char *value);
/* A,B,C of --symbols. */
int cmd_config_symbols(struct cmd_config *config, const char *list);

/* config_parse with its message on stderr. */
struct config *cmd_config_parse(const struct cmd_config *config, uint8_t sha256[CONFIG_SHA256_BYTES]);
void cmd_config_free(struct cmd_config *config);

#endif
