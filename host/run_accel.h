/* Reads a model, opens the accelerator that a configuration asks for and loads the model into slot 0. Cold
 * code. */
#ifndef RUN_ACCEL_H
#define RUN_ACCEL_H

#include "accel_guard.h"
#include "accel_xrt.h"
#include "config.h"
#include "model.h"

struct run_accel {
    struct accel *accel;
    struct accel *guard; /* accel, where it is one (xrt); else NULL */
    const struct kl_build *build;
    uint32_t n_card;
    struct accel_xrt_info cards[ACCEL_GUARD_CARDS_MAX]; /* as opened */
};

/* Reads a package, and refuses one that was trained on other features than this build computes. 0, or -1 with
 * a message; free with model_free either way. */
int run_accel_model(const char *path, struct model *model, char error[ACCEL_ERROR_CHARS]);

/* model: for slot 0, from path, which stands in messages. next: one that shall fit the same build, too, or
 * NULL. tsc_hz: cycles per second. Both have to stay as long as *run. 0, or -1 with a message that says what
 * to do; *run is to be closed either way.
 *
 * Without XILINX_XRT in the environment a replay takes the software device that was built along, and sets the
 * variable; on the real clock that is refused: nobody shall trade on a simulated card by mistake. */
int run_accel_open(const struct config *config, const struct model *model, const char *path,
                   const struct model *next, double tsc_hz, struct run_accel *run,
                   char error[ACCEL_ERROR_CHARS]);
/* Loads another model into slot 1, beside the first. 0, or -1 with a message. */
int run_accel_load_backup(const struct run_accel *run, const struct model *model, const char *path,
                          char error[ACCEL_ERROR_CHARS]);
void run_accel_close(struct run_accel *run);

#endif
