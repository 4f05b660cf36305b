#include <stdlib.h>
#include <string.h>

#include "accel.h"

/* From the smallest. */
static const struct kl_build *const builds[] = {&kl_build_small, &kl_build_fast, &kl_build_large};
enum { N_BUILD = sizeof builds / sizeof builds[0] };

const struct kl_build *accel_build_for(const struct kl_image_header *header)
{
    for (int i = 0; i < N_BUILD; i++)
        if (builds[i]->check_shape(header, 1) == KL_OK)
            return builds[i];
    return NULL;
}

const struct kl_build *accel_build_named(const char *name)
{
    for (int i = 0; i < N_BUILD; i++)
        if (!strcmp(builds[i]->name, name))
            return builds[i];
    return NULL;
}

int accel_build_limits(const struct kl_build *build, struct kl_info *info)
{
    struct kl_unit *unit = aligned_alloc(64, build->unit_size_bytes());
    if (!unit)
        return -1;
    build->init(unit, 0, 1);
    build->info(unit, info);
    free(unit);
    return 0;
}
