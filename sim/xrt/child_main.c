/* killline-sim-child: a card's units in a process of their own. Started by the library (child.c) only. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "unit.h"

static int fail(const char *what)
{
    fprintf(stderr, CHILD_NAME ": %s\n", what);
    return 2;
}

static void *map(int fd, size_t size)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < size)
        return NULL;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void tell(void *context, uint32_t index)
{
    (void)context;
    (void)index;
    const uint64_t one = 1;
    if (write(CHILD_FD_EVENT, &one, sizeof one) < 0)
        perror(CHILD_NAME ": eventfd");
}

static void *run(void *unit)
{
    unit_loop((struct unit *)unit, tell, NULL);
    return NULL;
}

/* Runs the units until the card is told to stop. */
static int run_all(struct card *card, struct unit *const *units)
{
    pthread_t threads[XCLBIN_UNITS_MAX];
    for (uint32_t u = 0; u < card->n_unit; u++) {
        if (pthread_create(&threads[u], NULL, run, units[u]) != 0)
            return fail("no thread for a unit"); /* the others end with the process */
    }
    atomic_store_explicit(&card->is_ready, 1, memory_order_release);
    tell(NULL, 0);
    for (uint32_t u = 0; u < card->n_unit; u++)
        pthread_join(threads[u], NULL);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return fail("started by killline's software device, not by hand");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)atoi(argv[1]))
        return fail("its parent has ended");
    char error[FAULT_ERROR_CHARS];
    struct card *card = (struct card *)map(CHILD_FD_CARD, sizeof *card);
    if (!card || card->magic != CARD_MAGIC || card->size_bytes != sizeof *card)
        return fail("the library beside it is of another version");
    uint8_t *memory = (uint8_t *)map(CHILD_FD_MEMORY, card->memory_bytes);
    struct fault_control *control = fault_control_map(CHILD_FD_CONTROL, "of the library", error);
    if (!control)
        return fail(error);
    if (!memory && card->memory_bytes)
        return fail("the card's memory does not map");
    struct unit_kernel kernel;
    if (unit_kernel_open(CHILD_FD_KERNEL, card->build, card->symbol, &kernel, error) != 0)
        return fail(error);
    struct unit *units[XCLBIN_UNITS_MAX] = {NULL};
    for (uint32_t u = 0; u < card->n_unit; u++) {
        units[u] = unit_open(card, u, memory, kernel.build, &control->devices[card->device], error);
        if (!units[u])
            return fail(error);
    }
    const int status = run_all(card, units);
    for (uint32_t u = 0; status == 0 && u < card->n_unit; u++)
        unit_close(units[u]);
    return status;
}
