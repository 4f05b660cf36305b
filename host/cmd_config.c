#include "cmd_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"

enum { FILE_BYTES_MAX = 1 << 18, SYMBOL_CHARS = 8 };

/* Takes text over. at: its place among the layers. */
static int add_layer(struct cmd_config *c, size_t at, const char *name, char *text)
{
    if (!text || c->n_layer == CMD_CONFIG_LAYERS_MAX) {
        free(text);
        return cmd_error(text ? "%s: more than %d settings and files" : "%s: out of memory", name,
                         CMD_CONFIG_LAYERS_MAX);
    }
    memmove(c->layer + at + 1, c->layer + at, (c->n_layer - at) * sizeof(c->layer[0]));
    c->layer[at] = (struct config_layer){.name = name, .text = text, .size_bytes = strlen(text)};
    c->n_layer++;
    return 0;
}

int cmd_config_file(struct cmd_config *c, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return cmd_error("%s: cannot read: %s", path, strerror(errno));
    char *text = malloc(FILE_BYTES_MAX + 1);
    size_t n = text ? fread(text, 1, FILE_BYTES_MAX + 1, f) : 0;
    int failed = ferror(f), why = errno;
    fclose(f);
    if (failed || (text && (n > FILE_BYTES_MAX || memchr(text, 0, n)))) {
        free(text);
        return failed ? cmd_error("%s: cannot read: %s", path, strerror(why))
                      : cmd_error("%s: not a configuration (YAML text up to 256 KiB)", path);
    }
    if (text)
        text[n] = '\0';
    int e = add_layer(c, c->n_file, path, text);
    c->n_file += !e;
    return e;
}

int cmd_config_set(struct cmd_config *c, const char *assignment)
{
    char *text = config_set_text(assignment);
    if (text)
        return add_layer(c, c->n_layer, assignment, text);
    cmd_error("--set %s: expected KEY=VALUE, like killline.threshold_us=50", assignment);
    return 2;
}

int cmd_config_key(struct cmd_config *c, const char *option, const char *key, const char *value)
{
    char *assignment = NULL;
    if (asprintf(&assignment, "%s=%s", key, value) < 0)
        return cmd_error("%s: out of memory", option);
    char *text = config_set_text(assignment);
    free(assignment);
    return add_layer(c, c->n_layer, option, text);
}

/* As the YAML {symbols: ["A","B"]}. */
int cmd_config_symbols(struct cmd_config *c, const char *list)
{
    char *text = malloc(strlen(list) * 4 + 32), *out = text;
    if (!text)
        return cmd_error("--symbols: out of memory");
    out = stpcpy(out, "{symbols: [\"");
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        int good = n >= 1 && n <= SYMBOL_CHARS;
        for (size_t i = 0; i < n; i++)
            good &= p[i] > ' ' && p[i] <= '~' && p[i] != '"' && p[i] != '\\';
        if (!good) {
            free(text);
            cmd_error("--symbols %s: '%.*s' is no symbol; 1 to %d letters each, separated by commas", list,
                      (int)n, p, SYMBOL_CHARS);
            return 2;
        }
        out = mempcpy(out, p, n);
        p += n;
        if (!*p)
            break;
        out = stpcpy(out, "\",\"");
    }
    strcpy(out, "\"]}");
    return add_layer(c, c->n_layer, "--symbols", text);
}

struct config *cmd_config_parse(const struct cmd_config *c, uint8_t sha256[CONFIG_SHA256_BYTES])
{
    char error[CONFIG_ERROR_CHARS];
    struct config *config = config_parse(c->layer, c->n_layer, sha256, error);
    if (!config)
        cmd_error("%s", error);
    return config;
}

void cmd_config_free(struct cmd_config *c)
{
    for (size_t i = 0; i < c->n_layer; i++)
        free((void *)(uintptr_t)c->layer[i].text); /* the layer only reads it */
    *c = (struct cmd_config){0};
}
