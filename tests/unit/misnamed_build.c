/* A library that shows the small build under the fast one's name. */
#include "hls/kl_abi.h"

static size_t unit_size_bytes(void)
{
    return 64;
}

static void init(struct kl_unit *unit, uint32_t part, uint32_t n_part)
{
    (void)unit, (void)part, (void)n_part;
}

static void info(const struct kl_unit *unit, struct kl_info *out)
{
    (void)unit;
    *out = (struct kl_info){.abi_version = KL_ABI_VERSION};
}

const struct kl_build kl_build_fast = {
    .name = "small", .unit_size_bytes = unit_size_bytes, .init = init, .info = info};
