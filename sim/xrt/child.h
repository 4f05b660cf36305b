/* Between the library and the program that is its child process (KL_SIM_EXEC=child). */
#ifndef CHILD_H
#define CHILD_H

/* The program's name; it lies beside the library. Its one argument: the parent's process id. */
#define CHILD_NAME "killline-sim-child"

/* Its file descriptors. */
enum {
    CHILD_FD_CARD = 3, /* struct card */
    CHILD_FD_MEMORY,
    CHILD_FD_KERNEL,  /* the kernel's library */
    CHILD_FD_CONTROL, /* struct fault_control */
    CHILD_FD_EVENT,   /* eventfd: it is ready, a run has ended */
    CHILD_FD_END
};

#endif
