#include <stdlib.h>
#include <string.h>

#include "kl_tb_run.h"
#include "kl_tb_unit.h"

struct kl_core *tb_unit_core(uint32_t i, uint32_t part, uint32_t n_part)
{
    static struct kl_core core[2];
    memset(&core[i], 0, sizeof core[i]);
    core[i].part = part;
    core[i].n_part = n_part;
    return &core[i];
}

struct kl_image_header *tb_unit_draw(uint32_t n_part, enum tb_kind kind, uint64_t *seed,
                                     struct tb_model **model, struct tb_report *report)
{
    static struct tb_model drawn;
    tb_run_draw_model(&KL_BUILD_SYMBOL(kl_build), n_part, TB_N_KIND + (uint32_t)kind, seed, &drawn);
    *model = &drawn;
    struct kl_image_header *image = tb_model_image(&drawn);
    if (!image)
        tb_report_mismatch(report, "out of memory");
    return image;
}

uint32_t tb_unit_load(struct kl_core *core, uint32_t slot, const void *image, size_t size_bytes,
                      uint32_t *n_advance)
{
    const uint32_t n_clear =
        (int)KL_BUILD_WORDS > (int)KL_BUILD_STREAMS ? (int)KL_BUILD_WORDS : (int)KL_BUILD_STREAMS;
    const uint32_t n_max = n_clear + (uint32_t)(size_bytes / 64) + 2;
    uint32_t status = loader_begin(core, slot, size_bytes);
    *n_advance = 0;
    if (status != KL_OK)
        return status;
    /* A second load has to wait; KL_E_OP is no load's verdict. */
    if (loader_begin(core, 1 - slot, size_bytes) != KL_E_BUSY)
        return KL_E_OP;
    do {
        uint64_t beat[LOADER_BEAT_WORDS] = {0};
        memcpy(beat, (const uint8_t *)image + 8 * (size_t)core->loader.at, 8 * (size_t)loader_n_word(core));
        status = loader_advance(core, beat);
        ++*n_advance;
    } while (status == KL_E_BUSY && *n_advance < n_max);
    return status;
}
