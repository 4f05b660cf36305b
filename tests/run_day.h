/* What the tests of `killline run` share: a synthetic day, a model, and a folder for the runs' outputs. */
#ifndef RUN_DAY_H
#define RUN_DAY_H

#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "model_package.h"

static char folder[] = "/tmp/test_run_XXXXXX", day[64], model[64];

/* A fresh output folder's name. */
static inline const char *fresh(void)
{
    static char path[64];
    static int n;
    snprintf(path, sizeof(path), "%s/out%d", folder, n++);
    return path;
}

/* Writes folder, day and model (one layer of n_hidden). 0, or not. */
static inline int run_day_make(uint32_t n_hidden)
{
    char error[MODEL_ERROR_CHARS];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_STATE_HOME", folder, 1), 0); /* nothing of an earlier run is left there */
    snprintf(day, sizeof(day), "%s/day.pcap", folder);
    snprintf(model, sizeof(model), "%s/model.klm", folder);
    if (model_package_write(model, n_hidden, 1, error)) {
        print_error("%s\n", error);
        return -1;
    }
    struct command_result c = command_run("synth --out %s --seed 3 --seconds 3", day);
    if (c.status)
        print_error("%s\n", c.err);
    const int status = c.status;
    command_free(&c);
    return status;
}

/* Group teardown. */
static inline int run_day_remove(void **state)
{
    (void)state;
    struct command_result c = command_shell("rm -rf %s", folder);
    command_free(&c);
    return 0;
}

#endif
