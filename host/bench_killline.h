/* killline bench killline: the evaluation procedure of the kill line, on the target. */
#ifndef BENCH_KILLLINE_H
#define BENCH_KILLLINE_H

/* argv[0] is "killline". As a command of cmd.h. */
int bench_killline(int argc, char **argv);

#endif
