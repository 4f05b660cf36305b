#include "run_accel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "features.h"

int run_accel_model(const char *path, struct model *model, char error[ACCEL_ERROR_CHARS])
{
    static_assert((int)MODEL_ERROR_CHARS <= (int)ACCEL_ERROR_CHARS, "the reader's message fits");
    if (model_load(path, model, error))
        return -1;
    if (model->feature_schema == FEATURES_SCHEMA && model->n_feature == FEATURES_N)
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS,
             "%.200s: trained on feature schema %u with %u features, this build computes schema %d with %d: "
             "train it "
             "again (models/README.md)",
             path, model->feature_schema, model->n_feature, FEATURES_SCHEMA, FEATURES_N);
    return -1;
}

/* The build whose limits and modelled cycles hold, whatever backend computes: the smallest that takes both
 * models, or the one asked for. With none that does, loading says what does not fit. */
static const struct kl_build *choose_build(const struct config *c, const struct model *model,
                                           const struct model *next)
{
    const int is_auto = c->accel_build == CONFIG_BUILD_AUTO;
    int b = is_auto ? CONFIG_BUILD_SMALL : c->accel_build;
    const int last = is_auto ? CONFIG_BUILD_LARGE : b;
    const struct kl_build *build = accel_build_named(config_build_name(b));
    while (b < last && (build->check_shape(model->image, c->accel_units) != KL_OK ||
                        (next && build->check_shape(next->image, c->accel_units) != KL_OK)))
        build = accel_build_named(config_build_name(++b));
    return build;
}

/* ---- xrt ---- */

/* XILINX_XRT names the software device of this build. */
static int is_own_device(void)
{
    const char *set = getenv("XILINX_XRT");
    char *there = set ? realpath(set, NULL) : NULL, *own = realpath(KL_SIM_XRT_DIR, NULL);
    const int same = there && own && !strcmp(there, own);
    free(there);
    free(own);
    return same;
}

static int choose_driver(const struct config *c, char error[ACCEL_ERROR_CHARS])
{
    if (!getenv("XILINX_XRT")) {
        if (c->clock != CONFIG_CLOCK_REPLAY) {
            snprintf(error, ACCEL_ERROR_CHARS,
                     "accel=xrt: XILINX_XRT is not set. For a card: source /opt/xilinx/xrt/setup.sh. For the "
                     "software device: eval \"$(killline sim-device env)\"");
            return -1;
        }
        setenv("XILINX_XRT", KL_SIM_XRT_DIR, 1);
    }
    return accel_xrt_available(error);
}

static int choose_xclbin(const struct config *c, const struct kl_build *build, char path[4096],
                         char error[ACCEL_ERROR_CHARS])
{
    if (c->xrt.xclbin[0]) {
        snprintf(path, 4096, "%s", c->xrt.xclbin);
        return 0;
    }
    if (!is_own_device()) {
        snprintf(
            error, ACCEL_ERROR_CHARS,
            "xrt.xclbin: which one? A card needs the kernel's xclbin (HARDWARE.md says how to build it): "
            "--set xrt.xclbin=kl_%s.xclbin",
            build->name);
        return -1;
    }
    char units[16] = "";
    if (c->xrt.units > 1)
        snprintf(units, sizeof(units), "_%u", c->xrt.units);
    snprintf(path, 4096, "%s/kl_%s%s.xclbin", KL_SIM_XRT_DIR, build->name, units);
    if (!access(path, R_OK))
        return 0;
    snprintf(
        error, ACCEL_ERROR_CHARS,
        "%.200s: not there. Make it: killline sim-device xclbin --build %s --units %u --out FILE, and --set "
        "xrt.xclbin=FILE",
        path, build->name, c->xrt.units);
    return -1;
}

static int open_xrt(const struct config *c, double tsc_hz, struct run_accel *run,
                    char error[ACCEL_ERROR_CHARS])
{
    char path[4096];
    struct accel *cards[ACCEL_GUARD_CARDS_MAX];
    if (choose_driver(c, error) || choose_xclbin(c, run->build, path, error))
        return -1;
    /* A replay is to be the same on a busy machine: half a second. */
    const uint64_t patience = c->clock == CONFIG_CLOCK_REPLAY ? (uint64_t)(tsc_hz / 2) : 0;
    for (unsigned d = 0; d < c->xrt.devices_count; d++)
        for (uint32_t u = 0; u < c->xrt.units; u++) {
            const struct accel_xrt_options options = {.device = c->xrt.devices[d],
                                                      .xclbin = path,
                                                      .unit = u,
                                                      .mode = (enum accel_xrt_mode)c->xrt.mode,
                                                      .build = run->build,
                                                      .torn_cycles = patience};
            struct accel *card = accel_xrt_open(&options, error);
            if (!card) {
                while (run->n_card) {
                    run->n_card--;
                    cards[run->n_card]->ops->close(cards[run->n_card]);
                }
                return -1;
            }
            accel_xrt_describe(card, &run->cards[run->n_card]);
            cards[run->n_card++] = card;
        }
    const struct accel_guard_options guard = {
        .cards = cards,
        .n_card = run->n_card,
        .cpu = {.variant = (enum accel_cpu_variant)c->cpu.variant, .build = run->build},
        .check_every = c->guard.check_every,
        .prove = c->guard.prove,
        /* A replay is to be the same every time. */
        .is_inline = c->clock == CONFIG_CLOCK_REPLAY,
        .n_probe = c->guard.probes,
        .retry_cycles = (uint64_t)(c->guard.retry_ms * tsc_hz / 1e3)};
    run->guard = run->accel = accel_guard_open(&guard, error);
    return run->accel ? 0 : -1;
}

/* ---- any ---- */

static int open_backend(const struct config *c, double tsc_hz, struct run_accel *run,
                        char error[ACCEL_ERROR_CHARS])
{
    const struct accel_cpu_options cpu = {.variant = (enum accel_cpu_variant)c->cpu.variant,
                                          .build = run->build,
                                          .prepare_thread = c->cpu.prepare_thread};
    if (c->accel != CONFIG_ACCEL_CSIM && !accel_cpu_has(cpu.variant)) {
        snprintf(
            error, ACCEL_ERROR_CHARS,
            "cpu.variant=%s: this machine has not got these instructions; cpu.variant=auto takes the best "
            "that it has",
            accel_cpu_variant_name(cpu.variant));
        return -1;
    }
    if (c->accel == CONFIG_ACCEL_XRT)
        return open_xrt(c, tsc_hz, run, error);
    run->accel =
        c->accel == CONFIG_ACCEL_CSIM ? accel_csim_open(run->build, c->accel_units) : accel_cpu_open(&cpu);
    if (run->accel)
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS, "out of memory for the accelerator backend");
    return -1;
}

static int load_model(const struct run_accel *run, uint32_t slot, const struct kl_image_header *image,
                      const char *path, char error[ACCEL_ERROR_CHARS])
{
    struct accel *accel = run->accel;
    const uint32_t status = accel_load(accel, slot, image, image->size_bytes);
    uint32_t largest = 0;
    if (status == KL_OK)
        return 0;
    if (status != KL_E_SHAPE) {
        snprintf(error, ACCEL_ERROR_CHARS, "%s: the accelerator refuses the model's image: kernel status %u",
                 path, status);
        return -1;
    }
    struct kl_info limits;
    accel->ops->info(accel, &limits);
    for (uint32_t l = 0; l < image->n_layer; l++)
        largest = image->n_hidden[l] > largest ? image->n_hidden[l] : largest;
    snprintf(error, ACCEL_ERROR_CHARS,
             "%s: %u layers of up to %u hidden units, %u inputs: beyond the kernel's build %s (%u layers "
             "of %u, %u inputs): choose a larger one, or accel_build=auto",
             path, image->n_layer, largest, image->n_in, run->build->name, limits.n_layer_max,
             limits.n_hidden_max, limits.n_in_max);
    return -1;
}

int run_accel_open(const struct config *config, const struct model *model, const char *path,
                   const struct model *next, double tsc_hz, struct run_accel *run,
                   char error[ACCEL_ERROR_CHARS])
{
    memset(run, 0, sizeof(*run));
    run->build = choose_build(config, model, next);
    return open_backend(config, tsc_hz, run, error) || load_model(run, 0, model->image, path, error) ? -1 : 0;
}

int run_accel_load_backup(const struct run_accel *run, const struct model *model, const char *path,
                          char error[ACCEL_ERROR_CHARS])
{
    return load_model(run, 1, model->image, path, error);
}

void run_accel_close(struct run_accel *run)
{
    if (run->accel)
        run->accel->ops->close(run->accel);
    run->accel = run->guard = NULL;
}
