/* Memory of the cpu backend: one mapping, so that a model's weights lie on as few pages as there can be. */
#include <string.h>
#include <sys/mman.h>

#include "accel_cpu_kernel.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

static size_t whole_pages(size_t size_bytes)
{
    return (size_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

/* A mapping that starts on a huge page's boundary: the kernel gives such pages only there. */
static void *map_aligned(size_t size_bytes)
{
    const size_t with_slack = size_bytes + HUGE_PAGE_BYTES;
    uint8_t *memory = mmap(NULL, with_slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    const size_t before = (HUGE_PAGE_BYTES - (uintptr_t)memory % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (before)
        munmap(memory, before);
    munmap(memory + before + size_bytes, with_slack - before - size_bytes);
    madvise(memory + before, size_bytes, MADV_HUGEPAGE); /* refused: small pages do as well, slower */
    return memory + before;
}

void *cpu_map(size_t size_bytes)
{
    size_bytes = whole_pages(size_bytes);
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
    if (memory != MAP_FAILED)
        return memory;
    memory = map_aligned(size_bytes);
    if (memory)
        memset(memory, 0, size_bytes); /* no page fault later */
    return memory;
}

void cpu_unmap(void *memory, size_t size_bytes)
{
    if (memory)
        munmap(memory, whole_pages(size_bytes));
}
