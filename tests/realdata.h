/* Test helper: where the real data is. Not part of the repository: ../shared/data beside it (KL_REALDATA_DIR,
 * from CMake), or $KILLLINE_TEST_DATA. */
#ifndef REALDATA_H
#define REALDATA_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { REALDATA_SKIPPED = 77, REALDATA_PATH_CHARS = 4096 };

static inline const char *realdata_dir(void)
{
    const char *dir = getenv("KILLLINE_TEST_DATA");
    return dir ? dir : KL_REALDATA_DIR;
}

/* Exits with ctest's code for "skipped" when the data is not there. Call first in main. */
static inline void realdata_require(void)
{
    struct stat st;
    if (stat(realdata_dir(), &st) == 0 && S_ISDIR(st.st_mode))
        return;
    printf("skipped: no real data at %s: set KILLLINE_TEST_DATA\n", realdata_dir());
    exit(REALDATA_SKIPPED);
}

static inline const char *realdata_path(char path[REALDATA_PATH_CHARS], const char *name)
{
    snprintf(path, REALDATA_PATH_CHARS, "%s/%s", realdata_dir(), name);
    return path;
}

#endif
